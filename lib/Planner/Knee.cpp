//===- Knee.cpp - A batch that is large enough ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Knee.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <functional>

using namespace llvm;

namespace galvatron {

/// A percent of throughput is below what plans of different batches are told
/// apart by.
static constexpr double kEnoughGap = 1;
/// The number of batches in a row that are too small and end the search.
static constexpr int kEnoughFailures = 3;
/// Batches tried between the last that is enough and the first that is not.
static constexpr int kBetween = 3;

json::Value Knee::toJson() const {
  return json::Object{{"batch", batch},
                      {"samples-per-second", samplesPerSecond},
                      {"percent", percent}};
}

std::string Knee::str(const Plan &chosen) const {
  return formatv("batch {0} has {1:f1}% of the throughput of {2} (--batch={0})",
                 batch, percent, chosen.batch);
}

std::optional<Knee> findKnee(LayerModel &model, const Cluster &cluster,
                             const PlannerOptions &options,
                             const Plan &chosen) {
  PlannerOptions one = options;
  one.relaxations = false;
  one.progress = nullptr;
  one.fewGroups = true;
  one.gapPercent = std::max(options.gapPercent, kEnoughGap);
  std::optional<Knee> knee;
  bool late = false;
  auto isEnough = [&](int64_t batch) {
    one.batch = batch;
    Expected<PlannerResult> result = plan(model, cluster, one);
    late |= options.isLate();
    if (!result) {
      // Not a batch for the forced parts of the plan.
      consumeError(result.takeError());
      return false;
    }
    if (late || !result->feasible())
      return false;
    double rate = result->plan().samplesPerSecond;
    double percent = 100 * rate / chosen.samplesPerSecond;
    if (percent < kKneePercent)
      return false;
    knee = {batch, rate, std::min(percent, 100.0)};
    return true;
  };
  // A batch grows in steps of the sweep: halves of the batch, and powers of
  // two, which have many divisors; others say more of that than of their size.
  std::vector<int64_t> tried;
  for (int64_t half = chosen.batch / options.batchStep / 2; half; half /= 2)
    tried.push_back(half);
  for (int64_t power = 1; power < chosen.batch / options.batchStep; power *= 2)
    tried.push_back(power);
  llvm::sort(tried, std::greater<>());
  tried.erase(llvm::unique(tried), tried.end());
  int64_t good = chosen.batch / options.batchStep, bad = 0;
  int failed = 0;
  for (int64_t steps : tried) {
    if (late || failed == kEnoughFailures)
      break;
    bool enough = isEnough(steps * options.batchStep);
    failed = enough ? 0 : failed + 1;
    if (enough)
      good = steps;
    else if (failed == 1)
      bad = steps;
  }
  for (int i = 0; i < kBetween && good - bad > 1 && failed && !late; ++i) {
    int64_t between = (good + bad) / 2;
    (isEnough(between * options.batchStep) ? good : bad) = between;
  }
  return late ? std::nullopt : knee;
}

} // namespace galvatron
