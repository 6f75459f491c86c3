//===- OffloadTwinTest.cpp - States at home on the host -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where states have their home on the host and come to the devices for a pass,
// losses, gradients and parameters are those of one rank that has everything.
// What is copied is counted by the runtime and held against the schedule.
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "gtest/gtest.h"

#include <filesystem>
#include <map>
#include <unistd.h>

using namespace galvatron;
using namespace galvatron::test;

namespace {

class OffloadTwinTest : public ::testing::Test {
protected:
  OffloadTwinTest() { loadTwinDialects(context); }

  TwinRun expectTwins(const TwinModel &model, const TwinPlan &plan,
                      const TwinOptions &options = {}) {
    SCOPED_TRACE(plan.str() + " " + options.dtype);
    const TwinRun &expected = references.of(model, options, plan.batch);
    EXPECT_EQ(expected.error, "");
    TwinRun run = runTwin(context, model, plan, options);
    EXPECT_EQ(run.error, "");
    EXPECT_EQ(
        compareRuns(run, expected, getBounds(options.dtype, options.optimizer)),
        "");
    for (const ::grt::RankMemory &rank : run.memory) {
      EXPECT_LE(rank.measuredPeakBytes, rank.plannedPeakBytes) << rank.rank;
      // Of some ranks every layer may stay.
      EXPECT_TRUE(rank.homeBytes > 0 || plan.offload.byLayer());
      // Of what is planned at least 95% are used, or all but 256 KiB. (Slots of
      // several chunks are as large as the largest of them, and temporaries
      // overlay nothing of single layers' activations that go home.)
      uint64_t unused = rank.plannedPeakBytes - rank.measuredPeakBytes;
      bool overlays = !(plan.offload.byLayer() && plan.offload.activations);
      if (plan.chunks == 1 && overlays)
        EXPECT_TRUE(unused <= 256 * 1024 ||
                    unused * 20 <= rank.plannedPeakBytes)
            << rank.measuredPeakBytes << " of " << rank.plannedPeakBytes;
    }
    return run;
  }

  static TwinPlan offloaded(const TwinModel &model, Offload offload,
                            int64_t stages, int64_t chunks,
                            const Strategy &strategy, int64_t batch,
                            int64_t microBatches) {
    TwinPlan plan =
        uniformPlan(model, stages * chunks, strategy, batch, microBatches,
                    chunks > 1 ? "interleaved" : "1f1b");
    plan.chunks = chunks;
    plan.offload = offload;
    return plan;
  }

  mlir::MLIRContext context;
  References references{context};
};

/// Ties, recomputation, shards of all kinds; one group of micro-batches, a part
/// of one and several.
TEST_F(OffloadTwinTest, StrategiesOfFourRanks) {
  TwinModel model;
  model.layers = 6;
  bool all = std::getenv("GALVATRON_LONG");
  int64_t number = 0;
  for (Offload offload : {Offload::All, Offload::Optimizer})
    for (auto [stages, chunks] :
         {std::pair(1, 1), {2, 1}, {4, 1}, {2, 2}, {2, 3}, {4, 2}})
      for (const Strategy &strategy :
           enumerateStrategies(4 / stages, allStrategies()))
        for (int64_t microBatches : {1, 2, 4, 5}) {
          // A sample of them; all in the long run.
          if (!all && number++ % 7)
            continue;
          int64_t batch = microBatches * strategy.sampleShards();
          expectTwins(model, offloaded(model, offload, stages, chunks, strategy,
                                       batch, microBatches));
        }
}

TEST_F(OffloadTwinTest, OtherTypesAndOptimizers) {
  TwinModel model;
  model.layers = 6;
  for (auto [dtype, optimizer] : {std::pair("f32", "adamw"),
                                  {"bf16", "adamw"},
                                  {"f64", "sgd"},
                                  {"f64", "adam"}}) {
    TwinOptions options;
    options.dtype = dtype;
    options.optimizer = optimizer;
    options.eps = options.dtype == "f64" ? 1e-8 : 1e-6;
    expectTwins(model, offloaded(model, Offload::All, 2, 2, Strategy(), 8, 4),
                options);
  }
}

/// Chunks are updated behind their last backward passes, those with the tied
/// parameter at the end of the step: strategies of all kinds.
TEST_F(OffloadTwinTest, UpdatedJustInTime) {
  TwinModel model;
  model.layers = 6;
  bool all = std::getenv("GALVATRON_LONG");
  int64_t number = 0;
  TwinOptions options;
  options.clip = false;
  for (Offload offload : {Offload::All, Offload::Optimizer}) {
    offload.justInTime = true;
    for (auto [stages, chunks] :
         {std::pair(1, 1), {2, 1}, {4, 1}, {2, 2}, {2, 3}, {4, 2}})
      for (const Strategy &strategy :
           enumerateStrategies(4 / stages, allStrategies()))
        for (int64_t microBatches : {1, 2, 4, 5}) {
          if (!all && number++ % 15)
            continue;
          int64_t batch = microBatches * strategy.sampleShards();
          TwinRun run = expectTwins(model,
                                    offloaded(model, offload, stages, chunks,
                                              strategy, batch, microBatches),
                                    options);
          // A norm is there all the same, of what has been.
          EXPECT_EQ(run.norms.size(), size_t(options.steps));
        }
  }
}

/// What forward keeps waits on the host for backward, recomputed or not.
TEST_F(OffloadTwinTest, ActivationsAtHome) {
  TwinModel model;
  model.layers = 6;
  bool all = std::getenv("GALVATRON_LONG");
  int64_t number = 0;
  for (Offload offload : {Offload::All, Offload::Optimizer}) {
    offload.activations = true;
    for (auto [stages, chunks] :
         {std::pair(1, 1), {2, 1}, {4, 1}, {2, 2}, {2, 3}, {4, 2}})
      for (const Strategy &strategy :
           enumerateStrategies(4 / stages, allStrategies()))
        for (int64_t microBatches : {1, 2, 4, 5}) {
          if (!all && number++ % 15)
            continue;
          expectTwins(model, offloaded(model, offload, stages, chunks, strategy,
                                       microBatches * strategy.sampleShards(),
                                       microBatches));
        }
  }
}

/// Where a layer is a chunk and keeps its input only: m of all inputs out and
/// in again (the table of docs/harmony.md), but those of the last layer, whose
/// backward pass is next, and of the first one, which is data.
TEST_F(OffloadTwinTest, StashIsThatOfTheTable) {
  TwinModel model;
  model.layers = 6;
  Offload offload = Offload::All;
  offload.activations = true;
  TwinOptions options;
  int64_t batch = 4, microBatches = 2;
  TwinRun run = expectTwins(model,
                            offloaded(model, offload, 2, 4,
                                      Strategy().withCheckpoint(true), batch,
                                      microBatches),
                            options);
  uint64_t in = 0, out = 0;
  for (const ::grt::RankSwaps &rank : run.swaps) {
    in += rank.activations.in;
    out += rank.activations.out;
  }
  uint64_t input = uint64_t(batch * model.positions * model.width) * 8;
  EXPECT_EQ(out, uint64_t(options.steps * model.layers) * input);
  EXPECT_EQ(in, out);
}

/// A device holds what one micro-batch keeps, however many are in flight.
TEST_F(OffloadTwinTest, ArenasDoNotGrowWithMicroBatches) {
  TwinModel model;
  model.layers = 6;
  Offload away = Offload::All;
  away.activations = true;
  std::map<std::pair<bool, int64_t>, ::grt::RankMemory> first;
  for (int64_t microBatches : {2, 8})
    for (bool activations : {false, true}) {
      TwinPlan plan = uniformPlan(model, 2, Strategy(), microBatches,
                                  microBatches, "gpipe");
      plan.offload = activations ? away : Offload::All;
      first[{activations, microBatches}] = expectTwins(model, plan).memory[0];
    }
  auto planned = [&](bool activations, int64_t microBatches) {
    return first[{activations, microBatches}].plannedPeakBytes;
  };
  auto atHome = [&](bool activations, int64_t microBatches) {
    return first[{activations, microBatches}].homeBytes;
  };
  uint64_t slot = (planned(false, 8) - planned(false, 2)) / 6;
  EXPECT_GT(slot, 0u);
  EXPECT_LT(planned(true, 8), planned(true, 2) + slot);
  EXPECT_LT(planned(true, 8) + 6 * slot, planned(false, 8));
  EXPECT_EQ(atHome(false, 8), atHome(false, 2));
  EXPECT_GT(atHome(true, 8), atHome(true, 2));
}

/// Pipelines and data parallelism at random: stages, chunks of random lengths,
/// micro-batches, where and when chunks are updated.
TEST_F(OffloadTwinTest, RandomConfigurations) {
  std::mt19937 generator(2022);
  auto among = [&](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(generator);
  };
  TwinModel model;
  model.layers = 10;
  int64_t count = std::getenv("GALVATRON_LONG") ? 30 : 8;
  for (int64_t i = 0; i < count; ++i) {
    int64_t stages = among(1, 4), chunks = stages > 1 ? among(1, 3) : 1;
    int64_t ranks = stages <= 2 ? among(1, 2) : 1;
    Strategy strategy;
    if (ranks == 2) {
      const char *names[] = {"dp2", "sdp2", "zdp2", "tp2"};
      strategy = llvm::cantFail(Strategy::parse(names[among(0, 3)]));
    }
    strategy = strategy.withCheckpoint(among(0, 1));
    Offload offload = among(0, 3) ? Offload::All : Offload::Optimizer;
    offload.justInTime = among(0, 2);
    offload.activations = among(0, 1);
    int64_t microBatches = among(1, 2 * stages);
    TwinPlan plan = offloaded(
        model, offload, stages, chunks, strategy,
        microBatches * strategy.sampleShards() * among(1, 2), microBatches);
    // Cuts anywhere.
    for (int64_t moves = 0; moves < 4; ++moves) {
      auto last = static_cast<int64_t>(plan.stageLayers.size()) - 1;
      int64_t &from = plan.stageLayers[among(0, last)];
      int64_t &to = plan.stageLayers[among(0, last)];
      if (from > 1) {
        --from;
        ++to;
      }
    }
    TwinOptions options;
    options.clip = !offload.justInTime;
    options.dtype = among(0, 2) ? "f64" : "f32";
    options.eps = options.dtype == "f64" ? 1e-8 : 1e-6;
    expectTwins(model, plan, options);
  }
}

/// Where a pipeline takes a batch in one group of micro-batches every chunk's
/// parameters come once for forward and once for backward, the last of a stage
/// for both at once, and gradients leave once (docs/offload.md).
TEST_F(OffloadTwinTest, BytesAreThoseOfTheSchedule) {
  TwinModel model;
  model.layers = 6;
  for (int64_t chunks : {1, 2, 4}) {
    TwinPlan plan = offloaded(model, Offload::All, 2, chunks, Strategy(), 4, 2);
    TwinOptions options;
    TwinRun run = expectTwins(model, plan, options);
    ASSERT_EQ(run.swaps.size(), 2u);
    for (const ::grt::RankSwaps &rank : run.swaps) {
      // What leaves is all gradients of the rank, once a step.
      EXPECT_EQ(rank.parameters.out, 0u);
      EXPECT_EQ(rank.gradients.in, 0u);
      ASSERT_EQ(rank.gradients.out % uint64_t(options.steps), 0u);
      uint64_t gradients = rank.gradients.out / uint64_t(options.steps);
      EXPECT_GT(gradients, 0u);
      EXPECT_LT(gradients, run.memory[size_t(rank.rank)].homeBytes / 3);
      // In f64 parameters are as many bytes; of the last chunk they come once.
      uint64_t in = rank.parameters.in / uint64_t(options.steps);
      EXPECT_LE(in, 2 * gradients);
      EXPECT_GE(in, gradients);
      if (chunks == 1) {
        EXPECT_EQ(in, gradients);
      }
    }
  }
}

/// A device holds a part of the states: with more chunks a smaller one.
TEST_F(OffloadTwinTest, ArenasAreSmallerThanStates) {
  TwinModel model;
  model.layers = 14;
  TwinPlan plain = uniformPlan(model, 2, Strategy(), 2, 2, "1f1b");
  TwinRun whole = runTwin(context, model, plain, {});
  ASSERT_EQ(whole.error, "");
  uint64_t before = 0;
  for (int64_t chunks : {1, 2, 4, 8}) {
    TwinRun run = expectTwins(
        model, offloaded(model, Offload::All, 2, chunks, Strategy(), 2, 2));
    uint64_t arena = 0, home = 0;
    for (const ::grt::RankMemory &rank : run.memory) {
      arena += rank.plannedPeakBytes;
      home += rank.homeBytes;
    }
    // As much as all ranks had of states on their devices.
    EXPECT_GT(home, 0u);
    if (before) {
      EXPECT_LT(arena, before);
    }
    before = arena;
  }
}

/// Every layer has a home of its own for states and for what forward keeps:
/// strategies of all kinds, each with others beside it, chunks, parts of
/// backward passes, types, optimizers.
TEST_F(OffloadTwinTest, HomesOfLayers) {
  TwinModel model;
  model.layers = 6;
  std::mt19937 generator(7);
  bool all = std::getenv("GALVATRON_LONG");
  int64_t number = 0;
  for (auto [stages, chunks, schedule] : {std::tuple(1, 1, "1f1b"),
                                          {2, 1, "gpipe"},
                                          {4, 1, "1f1b"},
                                          {2, 1, "zb-h1"},
                                          {2, 2, "interleaved"},
                                          {2, 3, "interleaved"}})
    for (const Strategy &strategy :
         enumerateStrategies(4 / stages, allStrategies()))
      for (int64_t microBatches : {1, 2, 4, 5}) {
        if (!all && number++ % 12)
          continue;
        TwinPlan plan = uniformPlan(model, stages * chunks, strategy,
                                    microBatches * strategy.sampleShards(),
                                    microBatches, schedule);
        plan.chunks = chunks;
        mixHomes(plan, generator, schedule != std::string("zb-h1"));
        TwinOptions options;
        options.dtype = number % 5 ? "f64" : number % 2 ? "f32" : "bf16";
        options.optimizer = optimizersInTurn(size_t(number)).front();
        options.eps = options.dtype == "f64" ? 1e-8 : 1e-6;
        expectTwins(model, plan, options);
      }
  // Layers with strategies of their own, stages of any length.
  for (int64_t i = 0; i < (all ? 40 : 5); ++i) {
    TwinPlan plan = randomPlan(model, generator);
    if (plan.offload != Offload::Off || plan.chunks > 1 ||
        plan.schedule == "2bw")
      continue;
    mixHomes(plan, generator, plan.schedule.rfind("zb", 0) != 0);
    expectTwins(model, plan);
  }
}

/// Of layers that stay nothing moves; of those that do not parameters come once
/// a step, gradients leave once, and what they keep goes out and comes back for
/// every micro-batch.
TEST_F(OffloadTwinTest, BytesAreThoseOfTheLayersThatMove) {
  TwinModel model;
  model.layers = 6;
  TwinOptions options;
  const int64_t batch = 4, microBatches = 2;
  auto swapped = [&](std::vector<size_t> states, std::vector<size_t> kept) {
    TwinPlan plan = uniformPlan(model, 1, Strategy().withCheckpoint(true),
                                batch, microBatches, "gpipe");
    plan.offload = Offload::Layers;
    plan.offload.activations = true;
    for (size_t l = 0; l < plan.strategies.size(); ++l)
      plan.strategies[l] = plan.strategies[l].withHome(
          {llvm::is_contained(states, l), llvm::is_contained(kept, l)});
    TwinRun run = expectTwins(model, plan, options);
    return run.swaps.front();
  };
  auto steps = uint64_t(options.steps);
  // A block of width 32 in f64: its parameters, four products and two norms.
  const uint64_t w = uint64_t(model.width);
  const uint64_t block = (12 * w * w + 13 * w) * 8;
  const uint64_t input = uint64_t(batch * model.positions) * w * 8;
  ::grt::RankSwaps one = swapped({2}, {3}), three = swapped({1, 2, 5}, {2, 3});
  EXPECT_EQ(one.parameters.in, steps * block);
  EXPECT_EQ(one.gradients.out, steps * block);
  EXPECT_EQ(one.parameters.out + one.gradients.in, 0u);
  EXPECT_EQ(one.activations.in, steps * input);
  EXPECT_EQ(one.activations.out, one.activations.in);
  EXPECT_EQ(three.parameters.in, 3 * steps * block);
  EXPECT_EQ(three.gradients.out, 3 * steps * block);
  EXPECT_EQ(three.activations.out, 2 * steps * input);
}

/// Checkpoints are of what is at home, so any plan goes on from them.
TEST_F(OffloadTwinTest, ResumedUnderAnotherPlan) {
  TwinModel model;
  model.layers = 6;
  TwinOptions options;
  TwinRun expected = runTwin(context, model, singleRank(model, 8), options);
  ASSERT_EQ(expected.error, "");
  std::string folder =
      ::testing::TempDir() + "offload-twin-" + std::to_string(getpid());
  TwinPlan away = offloaded(model, Offload::All, 2, 2, Strategy(), 8, 4);
  TwinPlan here = uniformPlan(model, 2, llvm::cantFail(Strategy::parse("zdp2")),
                              8, 2, "1f1b");
  TwinPlan mixed = uniformPlan(model, 2, Strategy(), 8, 4, "1f1b");
  std::mt19937 generator(3);
  mixHomes(mixed, generator, /*activations=*/true);
  for (auto [from, to] : {std::pair(away, here),
                          {here, away},
                          {away, away},
                          {mixed, here},
                          {away, mixed}}) {
    std::filesystem::remove_all(folder);
    TwinRun resumed =
        runResumedTwin(context, model, from, to, /*before=*/3, folder, options);
    ASSERT_EQ(resumed.error, "");
    EXPECT_EQ(compareRuns(resumed, expected, getBounds("f64", "adamw")), "");
  }
  std::filesystem::remove_all(folder);
}

} // namespace
