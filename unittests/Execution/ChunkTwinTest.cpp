//===- ChunkTwinTest.cpp - Several chunks a stage change no mathematics ---===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "galvatron/Strategy/DecisionTree.h"
#include "gtest/gtest.h"

using namespace galvatron;
using namespace galvatron::test;

namespace {

class ChunkTwinTest : public ::testing::Test {
protected:
  ChunkTwinTest() { loadTwinDialects(context); }

  void expectTwins(const TwinModel &model, const TwinPlan &plan,
                   TwinOptions options = {}) {
    SCOPED_TRACE(plan.str() + " chunks " + std::to_string(plan.chunks));
    TwinOptions alone = options;
    alone.backend = "cpu";
    const TwinRun &expected = references.of(model, alone, plan.batch);
    ASSERT_EQ(expected.error, "");
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
    // Not how closely: slots have the size of the largest chunk's, and not all
    // chunks are fullest at one time (docs/search.md, "Chunks").
    for (const ::grt::RankMemory &rank : run.memory)
      EXPECT_LE(rank.measuredPeakBytes, rank.plannedPeakBytes) << rank.rank;
    EXPECT_EQ(
        compareRuns(run, expected, getBounds(options.dtype, options.optimizer)),
        "");
  }

  /// The even partition into chunks, one strategy for all layers.
  static TwinPlan chunked(const TwinModel &model, int64_t stages,
                          int64_t chunks, const Strategy &strategy,
                          int64_t batch, int64_t microBatches) {
    TwinPlan plan = uniformPlan(model, stages * chunks, strategy, batch,
                                microBatches, "interleaved");
    plan.chunks = chunks;
    return plan;
  }

  mlir::MLIRContext context;
  References references{context};
};

/// Micro-batches that the stages divide, and that they do not.
TEST_F(ChunkTwinTest, StrategiesOfEightRanks) {
  TwinModel model;
  model.layers = 10;
  bool all = std::getenv("GALVATRON_LONG");
  int64_t number = 0;
  for (int64_t stages : {4, 2})
    for (int64_t chunks : {2, 3})
      for (const Strategy &strategy : enumerateStrategies(8 / stages, {})) {
        // A sample of them; all in the long run.
        if (!all && number++ % 3)
          continue;
        for (int64_t microBatches : {3, 4, 7}) {
          if (!all && (number + microBatches) % 2)
            continue;
          int64_t batch = microBatches * strategy.sampleShards();
          expectTwins(model, chunked(model, stages, chunks, strategy, batch,
                                     microBatches));
        }
      }
}

/// From one micro-batch to more than two groups of them.
TEST_F(ChunkTwinTest, EveryNumberOfMicroBatches) {
  TwinModel model;
  for (int64_t stages : {2, 3})
    for (int64_t microBatches = 1; microBatches <= 2 * stages + 1;
         ++microBatches)
      expectTwins(model, chunked(model, stages, 2, Strategy(), microBatches,
                                 microBatches));
}

/// Chunks of unequal depth, another strategy on every layer, recomputation,
/// and the tied embedding in the first and the last chunk.
TEST_F(ChunkTwinTest, UnevenChunksOfMixedStrategies) {
  TwinModel model;
  model.layers = 8;
  std::mt19937 generator(16);
  SpaceOptions space;
  space.keepDpSdp = true;
  std::vector<Strategy> strategies = enumerateStrategies(4, space);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  int64_t count = std::getenv("GALVATRON_LONG") ? 60 : 8;
  for (int64_t i = 0; i < count; ++i) {
    TwinPlan plan =
        chunked(model, 2, 2 + i % 2, strategies.front(), 16, i % 3 ? 4 : 2);
    plan.stageLayers.assign(plan.stageLayers.size(), 1);
    for (int64_t left = model.modelLayers() - int64_t(plan.stageLayers.size());
         left > 0; --left)
      ++plan.stageLayers[size_t(pick(0, int64_t(plan.stageLayers.size()) - 1))];
    for (Strategy &strategy : plan.strategies)
      strategy = strategies[size_t(pick(0, int64_t(strategies.size()) - 1))];
    expectTwins(model, plan);
  }
}

/// As many stages as there are ranks, sixteen chunks.
TEST_F(ChunkTwinTest, EightStages) {
  TwinModel model;
  model.layers = 14;
  for (int64_t microBatches : {5, 8})
    expectTwins(model,
                chunked(model, 8, 2, Strategy(), microBatches, microBatches));
}

TEST_F(ChunkTwinTest, OtherTypesAndOptimizers) {
  TwinModel model;
  for (auto [dtype, optimizer] : {std::pair("f32", "adamw"),
                                  {"bf16", "adamw"},
                                  {"f64", "sgd"},
                                  {"f64", "adam"}}) {
    TwinOptions options;
    options.dtype = dtype;
    options.optimizer = optimizer;
    options.eps = options.dtype == "f64" ? 1e-8 : 1e-6;
    for (const char *text : {"dp2", "sdp2.ckpt", "tp2"}) {
      Strategy strategy = llvm::cantFail(Strategy::parse(text));
      expectTwins(model, chunked(model, 2, 2, strategy, 6, 3), options);
    }
  }
}

/// Order and lifetimes of every access, on the backend that checks them.
TEST_F(ChunkTwinTest, WithStreams) {
  TwinModel model;
  TwinOptions options;
  options.backend = "cuda";
  for (const char *text : {"dp2", "sdp2", "tp2", "sdp2.ckpt"}) {
    Strategy strategy = llvm::cantFail(Strategy::parse(text));
    for (int64_t microBatches : {3, 4})
      expectTwins(
          model, chunked(model, 2, 2, strategy, 2 * microBatches, microBatches),
          options);
  }
}

} // namespace
