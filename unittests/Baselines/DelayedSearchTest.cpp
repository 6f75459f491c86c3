//===- DelayedSearchTest.cpp - Width, depth, micro-batch of 2BW -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Baselines/DelayedSearch.h"

#include "../RandomInstances.h"

#include <gtest/gtest.h>

#include <functional>

using namespace galvatron;

namespace {

/// 12 blocks of 3 ms a sample (1 forward), 100 MB of weights, 30 MB of
/// activations and 4 MB of boundary a sample; 4 devices in a node.
DelayedSetting twelve() {
  DelayedSetting setting;
  setting.blocks.count = 12;
  setting.blocks.forward = BatchTimes({{1, 1}});
  setting.blocks.backward = BatchTimes({{1, 2}});
  setting.blocks.parameterBytes = 100'000'000;
  setting.blocks.gradientBytes = 100'000'000;
  setting.blocks.optimizerBytes = 200'000'000;
  setting.blocks.activationBytes = 30'000'000;
  setting.blocks.boundaryBytes = 4'000'000;
  setting.links = {4, 8e9, 1e9, false};
  setting.batch = 48;
  return setting;
}

constexpr int64_t MB = 1'000'000;

TEST(DelayedPipeline, memoryAsInTheAppendix) {
  DelayedSetting setting = twelve();
  // Four stages of three blocks, two samples: 2W/d + d A_total/d + d A_in.
  DelayedShape shape{2, 4, 2, DelayedExecution::Pipelined};
  EXPECT_EQ(delayedMemory(setting, shape).total(),
            2 * 300 * MB + 4 * 3 * 60 * MB + 4 * 8 * MB);
  // With recomputation the activations of one micro-batch.
  shape.execution = DelayedExecution::Recomputed;
  EXPECT_EQ(delayedMemory(setting, shape).total(),
            2 * 300 * MB + 3 * 60 * MB + 4 * 8 * MB);
  shape.execution = DelayedExecution::OneByOne;
  EXPECT_EQ(delayedMemory(setting, shape).total(),
            300 * MB + 3 * 60 * MB + 8 * MB);
  // Five stages: the largest has three of the twelve blocks.
  EXPECT_EQ(delayedMemory(setting, {1, 5, 2}).weights, 600 * MB);
  setting.fullLedger = true;
  shape.execution = DelayedExecution::Pipelined;
  EXPECT_EQ(delayedMemory(setting, shape).total(),
            (600 + 300 + 600) * MB + 4 * 3 * 60 * MB + 4 * 8 * MB);
}

TEST(DelayedPipeline, otherSchedulesKeepOtherThings) {
  DelayedSetting setting = twelve();
  DelayedShape shape{1, 4, 2}; // 24 micro-batches
  setting.schedule = DelayedSchedule::GPipe;
  EXPECT_EQ(delayedMemory(setting, shape).weights, 300 * MB);
  EXPECT_EQ(delayedMemory(setting, shape).activations, 24 * 3 * 60 * MB);
  setting.schedule = DelayedSchedule::Flush;
  EXPECT_EQ(delayedMemory(setting, shape).activations, 4 * 3 * 60 * MB);
  setting.schedule = DelayedSchedule::VersionPerStage;
  EXPECT_EQ(delayedMemory(setting, shape).weights, 4 * 300 * MB);
}

TEST(DelayedPipeline, timesAsInTheAppendix) {
  DelayedSetting setting = twelve();
  // Stages of 3 blocks: 18 ms a micro-batch of two; boundary 2 * 8 MB over the
  // fast link, 2 ms; gradients of 300 MB over 8 devices' slow link are
  // 2 * 7/8 * 300 MB / 1 GB/s = 525 ms a batch of three micro-batches.
  DelayedTimes times = delayedTimes(setting, {8, 4, 2});
  EXPECT_NEAR(times.compute, 0.018, 1e-12);
  EXPECT_NEAR(times.boundary, 0.002, 1e-12);
  EXPECT_NEAR(times.exchange, 0.525, 1e-12);
  EXPECT_NEAR(times.microBatch, 0.525 / 3, 1e-12);
  // Two replicas on the fast link: 37.5 ms, hidden behind 12 of 20 ms.
  times = delayedTimes(setting, {2, 4, 2});
  EXPECT_NEAR(times.exchange, 0.0375, 1e-12);
  EXPECT_NEAR(times.microBatch, 0.020, 1e-12);
  // Replicas that just fill the node are fast (printed with <, they were not).
  EXPECT_NEAR(delayedTimes(setting, {4, 1, 2}).exchange, 2 * 0.75 * 1.2 / 8,
              1e-12);
  // Recomputation, and one stage after another.
  times = delayedTimes(setting, {2, 4, 2, DelayedExecution::Recomputed});
  EXPECT_NEAR(times.microBatch, 0.024 + 0.002, 1e-12);
  times = delayedTimes(setting, {2, 4, 2, DelayedExecution::OneByOne});
  EXPECT_NEAR(times.microBatch, 4 * 0.020, 1e-12);
  // A pipeline that drains: 12 + 3 stages' times and the gradients.
  setting.schedule = DelayedSchedule::Flush;
  EXPECT_NEAR(delayedTimes(setting, {2, 4, 2}).microBatch,
              (15 * 0.020 + 0.0375) / 12, 1e-12);
}

TEST(DelayedPipeline, placementsCannotHaveBothLinksFast) {
  DelayedSetting setting = twelve();
  setting.links.placed = true;
  // Two by four do not fit in a node of four: either stages or replicas are in
  // different ones. Gradients hide behind 12 micro-batches, so replicas are.
  DelayedTimes times = delayedTimes(setting, {2, 4, 2});
  EXPECT_NEAR(times.boundary, 0.002, 1e-12);
  EXPECT_NEAR(times.exchange, 0.3, 1e-12);
  EXPECT_NEAR(times.microBatch, 0.025, 1e-12);
}

TEST(DelayedSearch, findsTheFastestThatFits) {
  std::mt19937_64 random(2);
  int feasible = 0, recomputed = 0, restricted = 0;
  for (int i = 0; i < instances(300); ++i) {
    DelayedProblem problem;
    problem.setting = twelve();
    DelayedSetting &setting = problem.setting;
    setting.blocks.count = pick(random, 1, 12);
    setting.blocks.forward = BatchTimes(
        {{1, double(pick(random, 1, 5))}, {8, double(pick(random, 5, 24))}});
    setting.batch = pick(random, 1, 24);
    setting.fullLedger = pick(random, 0, 1);
    problem.devices = pick(random, 1, 12);
    problem.memory = pick(random, 100, 4000) * MB;
    if (pick(random, 0, 3) == 0)
      problem.depth = pick(random, 1, 4);
    DelayedResult result = llvm::cantFail(searchDelayed(problem));

    double best = 0;
    int64_t least = 0;
    for (int64_t w = 1; w <= problem.devices; ++w)
      for (int64_t d = 1; w * d <= problem.devices; ++d)
        for (int64_t b = 1; w * b <= setting.batch; ++b)
          for (DelayedExecution execution :
               {DelayedExecution::OneByOne, DelayedExecution::Pipelined,
                DelayedExecution::Recomputed}) {
            if (d > setting.blocks.count || setting.batch % (w * b) ||
                problem.depth.value_or(d) != d ||
                (execution != DelayedExecution::OneByOne &&
                 setting.batch / (w * b) < d))
              continue;
            DelayedShape shape{w, d, b, execution};
            int64_t bytes = delayedMemory(setting, shape).total();
            least = least ? std::min(least, bytes) : bytes;
            if (bytes <= problem.memory)
              best =
                  std::max(best, double(w * b) /
                                     delayedTimes(setting, shape).microBatch);
          }
    ASSERT_EQ(result.plan.has_value(), best > 0);
    EXPECT_EQ(result.neededBytes, least);
    if (!result.plan)
      continue;
    ++feasible;
    restricted += problem.depth.has_value();
    recomputed += result.plan->shape.execution == DelayedExecution::Recomputed;
    EXPECT_EQ(result.plan->samplesPerSecond, best);
    EXPECT_LE(result.plan->memory.total(), problem.memory);
  }
  EXPECT_GT(feasible, 150);
  EXPECT_GT(recomputed, 5);
  EXPECT_GT(restricted, 20);
}

TEST(DelayedSearch, recomputesWhereItAllowsLargerMicroBatches) {
  DelayedProblem problem;
  problem.setting = twelve();
  problem.devices = 4;
  problem.setting.batch = 64;
  // Eight samples take only three times as long as one.
  problem.setting.blocks.forward = BatchTimes({{1, 1}, {8, 3}});
  problem.setting.blocks.backward = BatchTimes({{1, 2}, {8, 6}});
  problem.memory = 100'000 * MB;
  DelayedResult roomy = llvm::cantFail(searchDelayed(problem));
  EXPECT_NE(roomy.plan->shape.execution, DelayedExecution::Recomputed);
  problem.memory = 1600 * MB;
  DelayedResult tight = llvm::cantFail(searchDelayed(problem));
  EXPECT_EQ(tight.plan->shape.execution, DelayedExecution::Recomputed);
  ASSERT_TRUE(tight.executions[1]);
  EXPECT_GT(tight.plan->shape.microBatch,
            tight.executions[1]->shape.microBatch);
  EXPECT_GT(tight.plan->samplesPerSecond,
            tight.executions[1]->samplesPerSecond);
}

TEST(DelayedSearch, refusesWhatIsWrong) {
  DelayedProblem problem;
  problem.setting = twelve();
  problem.devices = 0;
  EXPECT_EQ(llvm::toString(searchDelayed(problem).takeError()),
            "expected at least 1 device, found 0");
  problem.devices = 8;
  using Setting = DelayedSetting;
  const std::pair<std::function<void(Setting &)>, const char *> faults[] = {
      {[](Setting &s) { s.batch = 0; },
       "expected a batch of at least 1 sample, found 0"},
      {[](Setting &s) { s.blocks.count = 0; },
       "expected at least 1 block, found 0"},
      {[](Setting &s) { s.links.devicesPerNode = 0; },
       "expected at least 1 device in a node, found 0"},
      {[](Setting &s) { s.links.intraRate = 0; },
       "expected a rate inside a node above 0"},
      {[](Setting &s) {
         s.links.devicesPerNode = 4;
         s.links.interRate = 0;
       },
       "expected a rate between nodes above 0"}};
  for (const auto &[change, message] : faults) {
    problem.setting = twelve();
    change(problem.setting);
    EXPECT_EQ(llvm::toString(searchDelayed(problem).takeError()), message);
  }
  // One node has no links between nodes.
  problem.setting = twelve();
  problem.setting.links.devicesPerNode = 8;
  problem.setting.links.interRate = 0;
  EXPECT_TRUE(bool(searchDelayed(problem)));
}

} // namespace
