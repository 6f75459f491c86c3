//===- MicroBatchRule.cpp - The paper's number of micro-batches -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MicroBatchRule.h"

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/DecisionTree.h"

namespace galvatron::planner {

std::optional<int64_t> paperMicroBatches(int64_t batch, int64_t pipelineDegree,
                                         int64_t stageDevices,
                                         const Schedule &schedule) {
  if (pipelineDegree == 1)
    return batch % stageDevices == 0 ? std::optional<int64_t>(1) : std::nullopt;
  // Fewer micro-batches where every one takes memory.
  int64_t aim = schedule.slotsBoundedIn({pipelineDegree}) ? 16 : 4;
  std::optional<int64_t> best;
  for (int64_t m : divisors(batch)) {
    if (batch / m % stageDevices != 0 || 2 * m < aim || m > 2 * aim)
      continue;
    // m / aim below 1 against aim / m above: divisors ascend, so m is nearer
    // than the one before if m * best < aim^2.
    if (!best || m * *best < aim * aim)
      best = m;
  }
  return best;
}

} // namespace galvatron::planner
