//===- MemoryTest.cpp - What a software keeps, by hand --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Memory.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

/// Two stages of 100 parameters of 2 bytes, the last with more activations.
Plan twoStages() {
  StageLedger ledger;
  ledger.parameters = 200;
  ledger.gradients = 400;
  ledger.optimizer = 300;
  ledger.activations = 800;
  ledger.backward = 50;
  ledger.communication = 20;
  ledger.workspace = 5;
  Plan plan;
  plan.microBatches = 8;
  plan.pipelineDegree = 2;
  plan.stages.resize(2);
  plan.stages[0].ledger = ledger;
  ledger.activations = 5000;
  ledger.backward = 0;
  plan.stages[1].ledger = ledger;
  return plan;
}

ModelShape tinyShape() {
  ModelShape shape;
  shape.hidden = 3;
  shape.vocabulary = 10;
  shape.tokens = 5;
  shape.inner = 12;
  return shape;
}

Configuration zero1() {
  Configuration configuration;
  configuration.data = 4;
  configuration.pipeline = 2;
  configuration.sharding = Sharding::Optimizer;
  return configuration;
}

Execution with(std::vector<std::pair<std::string, std::string>> facts) {
  Execution execution;
  llvm::cantFail(execution.set(facts));
  return execution;
}

TEST(Memory, CountsWhatIsKept) {
  auto bytes = [&](const Execution &execution) {
    return allocatedBytes(twoStages(), tinyShape(), zero1(), execution);
  };
  // States, activations, and of the last stage no more than the first's and the
  // logits of a micro-batch: 4 * 50.
  EXPECT_EQ(bytes(with({})), 900 + 800 + 200 + 20 + 5);
  // 16-bit gradients of 100 parameters stay.
  EXPECT_EQ(bytes(with({{"gradient-copies", "stay"}})),
            900 + 1000 + 200 + 20 + 5);
  // Outputs of 30 bytes, of the one micro-batch in flight.
  EXPECT_EQ(bytes(with({{"keeps-outputs", "on"}})), 900 + 1000 + 20 + 30 + 5);
  // An update that takes more than the passes.
  EXPECT_EQ(bytes(with({{"update-bytes", "80"}})), 900 + 80 * 100 / 4 + 5);
}

/// Of a V the first stage has the last chunk, whose slots have room for the
/// logits of 4 * 50 bytes; they are there once.
TEST(Memory, AVHasItsLogitsOnce) {
  Plan plan = twoStages();
  plan.schedule = llvm::cantFail(parseSchedule("zb-v"));
  Configuration configuration;
  configuration.pipeline = 2;
  configuration.schedule = plan.schedule;
  configuration.chunks = 2;
  configuration.batch = plan.microBatches;
  plan.stages[0].ledger.activations = 4000;
  plan.stages[1].ledger.activations = 12 * foldedPasses(configuration, 1);
  EXPECT_EQ(allocatedBytes(plan, tinyShape(), configuration, with({})),
            900 + 12 * foldedPasses(configuration, 0) + 200 + 50 + 20 + 5);
}

/// Buckets of 100 parameters, where replicas are torch's.
TEST(Memory, ReplicasMayHaveBuckets) {
  Execution buckets = with({{"replica-buckets", "on"}});
  Configuration configuration = zero1();
  auto more = [&] {
    return allocatedBytes(twoStages(), tinyShape(), configuration, buckets) -
           allocatedBytes(twoStages(), tinyShape(), configuration, with({}));
  };
  EXPECT_EQ(more(), 0);
  configuration.sharding = Sharding::None;
  EXPECT_EQ(more(), 200);
  configuration.data = 1;
  EXPECT_EQ(more(), 0);
  EXPECT_TRUE(llvm::cantFail(Execution::named("nanotron")).replicaBuckets);
}

/// Of a layer's 4 * 9 + 2 * 3 * 12 elements the largest matrix has 3 * 12, in
/// parameters and gradients of 2 bytes.
TEST(Memory, GathersAMatrixAtATime) {
  Plan plan = twoStages();
  plan.stages.resize(1);
  plan.microBatches = 1;
  Configuration configuration;
  configuration.sharding = Sharding::Parameters;
  for (auto [data, saved] : {std::pair(1, 0), {2, 2 * 2 * (36 + 72 - 36)}}) {
    configuration.data = data;
    EXPECT_EQ(allocatedBytes(plan, tinyShape(), configuration, with({})) -
                  allocatedBytes(plan, tinyShape(), configuration,
                                 with({{"gathers-matrices", "on"}})),
              saved);
  }
}

TEST(Memory, ShowsContextAndReserve) {
  Execution card = llvm::cantFail(Execution::named("deepspeed-2021"));
  DeviceType type;
  type.name = "a100-80gb";
  type.memory = int64_t(80) << 30;
  type.reservedMemory = 1395864371;
  EXPECT_EQ(shownBytes(10'000'000'000, card, type),
            7'000'000'000 + 11'700'000'000);
  EXPECT_EQ(shownBytes(90'000'000'000, card, type), type.memory);
  EXPECT_EQ(shownBytes(90'000'000'000, with({}), type), 90'000'000'000);
}

TEST(Memory, FitsBesideWhatTheCardHas) {
  Execution card = llvm::cantFail(Execution::named("deepspeed-2021"));
  DeviceType type;
  type.name = "a100-80gb";
  type.memory = 80'000'000'000;
  type.reservedMemory = 1395864371;
  auto fits = [&](int64_t bytes, const Execution &execution,
                  int64_t vocabulary) {
    ModelShape shape = tinyShape();
    shape.vocabulary = vocabulary;
    return fitsCard(bytes, shape, Configuration(), execution, type);
  };
  EXPECT_TRUE(fits(78'000'000'000, with({}), 10));
  EXPECT_FALSE(fits(78'000'000'000, card, 10));
  // Beside 7 GB of those 73 fit, but not if logits of 4 * 5 * 1e8 bytes need a
  // block of their own: 2 of them are free in pieces.
  EXPECT_TRUE(fits(71'000'000'000, card, 100'000'000));
  EXPECT_FALSE(fits(71'500'000'000, card, 100'000'000));
}

/// Three steps of the second stage's 5 ms and one with its sums, and an update.
TEST(Memory, StagesThatDoNotMeetGoOn) {
  Plan plan = twoStages();
  plan.microBatches = 4;
  plan.iterationMs = 40;
  for (size_t stage = 0; stage < 2; ++stage) {
    plan.stages[stage].timeNosyncMs = 4 + double(stage);
    plan.stages[stage].timeMs = 5 + double(stage);
    plan.stages[stage].optimizerMs = 2;
  }
  auto step = [&](llvm::StringRef schedule, int64_t pipeline, bool meet) {
    plan.schedule = llvm::cantFail(parseSchedule(schedule));
    plan.pipelineDegree = pipeline;
    return stepMs(plan, with({{"stages-meet", meet ? "on" : "off"}}));
  };
  EXPECT_EQ(step("zb-h2", 2, false), 3 * 5 + 6 + 2);
  EXPECT_EQ(step("zb-h2", 2, true), 40);
  EXPECT_EQ(step("zb-h1", 2, false), 40);
  EXPECT_EQ(step("zb-h2", 3, false), 40);
}

/// 8 stages of 3 chunks: the first has 14 + 16 passes behind it when its first
/// backward pass begins, and places for 16, 15 and 8.
TEST(Memory, InterleavedPassesAndPlaces) {
  EXPECT_EQ(interleavedPasses(8, 3, 0, 32),
            std::pair(int64_t(31), int64_t(39)));
}

/// A block is 40 of work, the head 80: 160 a stage, reached by the fourth and
/// passed by the fifth.
TEST(Memory, BlocksByWork) {
  ModelShape shape;
  shape.layers = 6;
  shape.hidden = 2;
  shape.inner = 4;
  shape.vocabulary = 40;
  EXPECT_EQ(Configuration::blocksByWork(shape, 2),
            (std::vector<int64_t>{5, 1}));
}

} // namespace
