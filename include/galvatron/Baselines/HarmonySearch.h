//===- HarmonySearch.h - Packs and micro-batch sizes ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Algorithm 1 of Harmony (arXiv 2202.01306): tries micro-batch sizes of
// backward and of forward, packs the layers for each, simulates the step and
// keeps the shortest. What the published search leaves out is measured against
// all packs of small models (docs/harmony.md).
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_BASELINES_HARMONYSEARCH_H
#define GALVATRON_BASELINES_HARMONYSEARCH_H

#include "galvatron/Baselines/LayerPacking.h"
#include "galvatron/Simulate/Harmony.h"

#include <optional>
#include <string>
#include <vector>

namespace galvatron {

struct HarmonyProblem {
  int64_t minibatch = 1; ///< samples of a step, of all devices together
  HarmonyMachine machine;
  HarmonyRules rules;
  /// Tried in this order; of steps that take the same time the first stays.
  std::vector<PackingMethod> forwardPackings = {PackingMethod::BalancedTime,
                                                PackingMethod::Reuse};
  std::vector<PackingMethod> backwardPackings = {PackingMethod::BalancedTime};
  /// Tries all methods if nothing fits that way, so that a model fits if each
  /// of its layers does. (Packs of equal time often do not exist where layers
  /// are all alike, or take no time.)
  bool fallback = true;
  /// Sizes need not divide a device's samples, and forward's may be below
  /// backward's (Algorithm 1 as printed). Otherwise they divide and are not (as
  /// in the public code, and for Tables 1 and 6).
  bool allSizes = false;
  /// The relation of the two sizes. Programs have whole micro-batches of
  /// backward in one of forward,
  enum class Sizes { Any, Multiples, Equal } sizes = Sizes::Any;
  /// and at least so many backward packs.
  int64_t leastPacks = 0;
  /// Instead of packing: all packs that fit. At most kMostExhaustiveLayers.
  bool exhaustive = false;
  /// Also tries the optimizer on the device.
  bool chooseUpdate = false;
};

/// 3^11 pairs of packings for each pair of sizes: some seconds to a minute.
/// Each further layer takes three times as long.
inline constexpr int64_t kMostExhaustiveLayers = 12;

struct HarmonyPlan {
  HarmonyConfig config;
  HarmonyRules rules; ///< with the place of the update
  HarmonyTimeline timeline;
  std::string forwardPacking, backwardPacking; ///< "" if there are no packs
};

struct HarmonyResult {
  std::optional<HarmonyPlan> plan;
  /// The bytes that the largest layer needs at the smallest micro-batch size,
  /// if there is no plan.
  int64_t neededBytes = 0;
  std::string reason;
  int64_t considered = 0; ///< configurations that fit
  int64_t simulated = 0;  ///< of them, not excluded by their computation alone
};

/// The best plan that the methods find. Errors are wrong input: no samples for
/// a device, no method, a model too large for `exhaustive`.
llvm::Expected<HarmonyResult> searchHarmony(const HarmonyProfile &profile,
                                            const HarmonyProblem &problem);

} // namespace galvatron

#endif // GALVATRON_BASELINES_HARMONYSEARCH_H
