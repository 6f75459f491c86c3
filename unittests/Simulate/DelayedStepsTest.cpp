//===- DelayedStepsTest.cpp - A pipeline that never drains ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Simulate/DelayedSteps.h"

#include "../RandomInstances.h"

#include <gtest/gtest.h>

using namespace galvatron;

namespace {

double busy(int64_t depth, int64_t microBatches) {
  std::vector<DelayedStage> stages(depth, {1000, 2000, 0, 0, 0});
  return simulateDelayed(stages, microBatches).busy;
}

TEST(DelayedSteps, equalStagesNeverWaitOnceTheWarmUpIsCovered) {
  for (int64_t depth : {1, 2, 4, 8})
    for (int64_t m = std::max<int64_t>(depth - 1, 1); m < 3 * depth; ++m)
      EXPECT_DOUBLE_EQ(busy(depth, m), 1) << depth << " " << m;
}

TEST(DelayedSteps, fewerMicroBatchesWaitForUpdates) {
  double former = 0;
  for (int64_t m = 1; m <= 6; ++m) {
    EXPECT_GT(busy(8, m), former);
    EXPECT_LT(busy(8, m), 1);
    former = busy(8, m);
  }
  // One micro-batch on two stages and more: two batches are on their way at a
  // time, so each takes at least half a round trip.
  EXPECT_LE(busy(8, 1), 2.0 / 8);
}

TEST(DelayedSteps, theSlowestStageSetsThePace) {
  std::mt19937_64 random(4);
  for (int i = 0; i < instances(50); ++i) {
    std::vector<DelayedStage> stages(static_cast<size_t>(pick(random, 1, 6)));
    int64_t m = 2 * static_cast<int64_t>(stages.size());
    Picoseconds bound = 0;
    for (DelayedStage &stage : stages) {
      stage.forward = pick(random, 100, 110);
      stage.backward = pick(random, 200, 220);
      stage.update = pick(random, 0, 50);
      bound =
          std::max(bound, m * (stage.forward + stage.backward) + stage.update);
    }
    Picoseconds batch = simulateDelayed(stages, m).batch;
    EXPECT_GE(batch, bound);
    EXPECT_LE(static_cast<double>(batch), 1.1 * static_cast<double>(bound));
  }
}

TEST(DelayedSteps, transfersAreHiddenByWhatRunsAhead) {
  // Two stages: the first has one forward pass ahead, which hides transfers as
  // long as a stage's work.
  std::vector<DelayedStage> stages(2, {1000, 1000, 0, 0, 0});
  Picoseconds without = simulateDelayed(stages, 4).batch;
  EXPECT_EQ(without, 4 * 2000);
  stages[0].sendForward = stages[1].sendBackward = 5000;
  EXPECT_GT(simulateDelayed(stages, 4).batch, without);
}

} // namespace
