//===- Limits.h - The device and the link that limit a plan -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PLANNER_LIMITS_H
#define GALVATRON_PLANNER_LIMITS_H

#include "galvatron/Planner/Planner.h"

namespace galvatron {

/// The parts of a priced plan that take most of a step, by the sums of Cost/.
struct PlanLimits {
  /// The stage with the longest micro-batch, and its slowest device.
  int64_t stage = 0;
  int64_t device = 0;
  std::string deviceType;
  double stageMs = 0; ///< of a micro-batch

  /// Communication that takes most of a step, and the slowest pair of devices
  /// in it. Nothing if none takes any time.
  struct Busiest {
    std::string what; ///< "transfers between stages 0 and 1"
    int64_t from = 0, to = 0;
    Link link;
    double stepMs = 0;
  };
  std::optional<Busiest> link;

  /// Two lines; nodes are named where there are several.
  void print(llvm::raw_ostream &os, const Cluster &cluster,
             const Plan &plan) const;
  llvm::json::Value toJson() const;
};

/// Errors: those of checkPlan(), or a layer that cannot have its strategy.
llvm::Expected<PlanLimits> planLimits(LayerModel &model, const Cluster &cluster,
                                      const Plan &plan);

} // namespace galvatron

#endif // GALVATRON_PLANNER_LIMITS_H
