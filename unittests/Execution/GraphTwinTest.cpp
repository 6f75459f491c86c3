//===- GraphTwinTest.cpp - Values that pass layers, under many plans ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GraphModels.h"

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "gtest/gtest.h"

using namespace galvatron;
using namespace galvatron::test;

namespace {

constexpr int64_t kBatch = 16;

class GraphTwinTest : public ::testing::TestWithParam<GraphModel (*)()> {
protected:
  GraphTwinTest() : graph(GetParam()()), model(graph.asLayers()) {
    loadTwinDialects(context);
    options.dropout = false;
    options.steps = 2;
  }

  const TwinRun &reference() {
    if (expected.losses.empty())
      expected = runTwin(context, graph.fused(),
                         singleRank(graph.fused(), kBatch), options);
    return expected;
  }

  /// Equal to the one layer's, and within the plan's memory.
  void expectTwin(const TwinPlan &plan) {
    SCOPED_TRACE(plan.str());
    ASSERT_EQ(reference().error, "");
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
    if (plan.chunks == 1) {
      EXPECT_EQ(checkMemory(run), "");
    }
    for (const ::grt::RankMemory &rank : run.memory)
      EXPECT_LE(rank.measuredPeakBytes, rank.plannedPeakBytes) << rank.rank;
    EXPECT_EQ(compareRuns(run, reference(), getBounds(options.dtype, "adamw")),
              "");
  }

  TwinPlan uniform(int64_t stages, const Strategy &strategy,
                   const char *schedule) {
    int64_t microBatches = stages == 1 ? 2 : 4;
    while (kBatch / microBatches % strategy.sampleShards() != 0)
      microBatches /= 2;
    return uniformPlan(model, stages, strategy, kBatch, microBatches, schedule);
  }

  mlir::MLIRContext context;
  GraphModel graph;
  TwinModel model;
  TwinOptions options;
  TwinRun expected;
};

TEST_P(GraphTwinTest, OneRank) {
  expectTwin(singleRank(model, kBatch));
  expectTwin(singleRank(model, kBatch, 4));
}

/// Every strategy of eight ranks at every pipeline degree; a sample of them
/// without GALVATRON_LONG.
TEST_P(GraphTwinTest, EveryStrategyOfEightRanks) {
  bool all = std::getenv("GALVATRON_LONG");
  int64_t number = 0;
  for (int64_t stages : {1, 2, 4, 8})
    for (const Strategy &strategy :
         enumerateStrategies(8 / stages, allStrategies()))
      for (const char *schedule : {"1f1b", "gpipe"}) {
        if (stages == 1 && std::string(schedule) == "gpipe")
          continue;
        if (all || number++ % 9 == 0)
          expectTwin(uniform(stages, strategy, schedule));
      }
}

/// Another layout at most boundaries, stages of unequal lengths.
TEST_P(GraphTwinTest, RandomMixedPlans) {
  std::mt19937 generator(13);
  int64_t count = std::getenv("GALVATRON_LONG") ? 200 : 12;
  for (int64_t i = 0; i < count && !HasFatalFailure(); ++i)
    expectTwin(randomPlan(model, generator));
}

/// Values that pass whole chunks, and come back to a stage that had them.
TEST_P(GraphTwinTest, SeveralChunksAStage) {
  bool all = std::getenv("GALVATRON_LONG");
  int64_t number = 0;
  for (auto [stages, chunks] : {std::pair(2, 2), {2, 3}, {2, 4}, {4, 2}})
    for (const Strategy &strategy : enumerateStrategies(4 / stages * 2, {})) {
      if (!all && number++ % 4)
        continue;
      TwinPlan plan = uniform(stages * chunks, strategy, "interleaved");
      plan.chunks = chunks;
      expectTwin(plan);
    }
}

/// The recording backend checks order and lifetime of every access.
TEST_P(GraphTwinTest, ProgramsForDevicesWithStreams) {
  options.dtype = "f32";
  options.eps = 1e-6;
  ASSERT_EQ(reference().error, "");
  options.backend = "cuda";
  std::mt19937 generator(17);
  for (int trial = 0; trial < 3; ++trial) {
    TwinPlan plan = randomPlan(model, generator);
    SCOPED_TRACE(plan.str());
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
    EXPECT_EQ(compareRuns(run, reference(), getBounds("f32", "adamw")), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, GraphTwinTest,
                         ::testing::Values(skipGraph, pairGraph,
                                           encoderDecoderGraph),
                         [](const auto &info) {
                           std::string name = info.param().name;
                           std::erase(name, '-');
                           return name;
                         });

/// Any graph under any plan, in f64 and in bf16.
TEST(RandomGraphTest, EqualsTheSameMathematicsAsOneLayer) {
  mlir::MLIRContext context;
  loadTwinDialects(context);
  std::mt19937 generator(23);
  int64_t count = std::getenv("GALVATRON_LONG") ? 100 : 8;
  for (int64_t i = 0; i < count; ++i) {
    GraphModel graph = randomGraph(generator);
    TwinModel model = graph.asLayers();
    SCOPED_TRACE(model.text);
    TwinOptions options;
    options.dropout = false;
    options.steps = 2;
    options.dtype = i % 4 == 3 ? "bf16" : "f64";
    if (options.dtype == "bf16")
      options.eps = 1e-4;
    TwinRun expected = runTwin(context, graph.fused(),
                               singleRank(graph.fused(), kBatch), options);
    ASSERT_EQ(expected.error, "");
    for (int trial = 0; trial < 2; ++trial) {
      TwinPlan plan = randomPlan(model, generator);
      SCOPED_TRACE(plan.str());
      TwinRun run = runTwin(context, model, plan, options);
      ASSERT_EQ(run.error, "");
      // Stages of few layers with ckpt leave up to 160 kB of a megabyte unused.
      EXPECT_EQ(checkMemory(run, /*reserved=*/128 << 10), "");
      EXPECT_EQ(compareRuns(run, expected, getBounds(options.dtype, "adamw")),
                "");
    }
  }
}

/// Mistakes in what the program says of passing tensors must show.
TEST(GraphFaultTest, WrongRowsAreSeen) {
  mlir::MLIRContext context;
  loadTwinDialects(context);
  GraphModel graph = encoderDecoderGraph();
  TwinModel model = graph.asLayers();
  TwinOptions options;
  options.dropout = false;
  options.steps = 1;
  TwinPlan plan = uniformPlan(model, 2, llvm::cantFail(Strategy::parse("dp2")),
                              kBatch, 2, "1f1b");
  for (size_t i = 0; i < plan.strategies.size(); i += 3)
    plan.strategies[i] = llvm::cantFail(Strategy::parse("tp2"));
  TwinRun expected = runTwin(context, model, plan, options);
  ASSERT_EQ(expected.error, "");
  /// Changes number `at` of every row of `passes`, or of `tensors`.
  auto expectSeen = [&](const char *what,
                        std::function<bool(mlir::Operation *)> corrupt) {
    SCOPED_TRACE(what);
    int changed = 0;
    options.verifyPlaced = false;
    options.corrupt = [&](mlir::ModuleOp module) {
      module.walk([&](mlir::Operation *op) { changed += corrupt(op); });
    };
    TwinRun run = runTwin(context, model, plan, options);
    EXPECT_GT(changed, 0);
    EXPECT_TRUE(!run.error.empty() ||
                !compareRuns(run, expected, getBounds("f64", "adamw")).empty());
  };
  auto passes = [](mlir::Operation *op, auto change) {
    auto layer = llvm::dyn_cast<mlir::grt::LayerOp>(op);
    if (!layer || layer.getPassRows().empty())
      return false;
    llvm::SmallVector<int64_t> rows(layer.getPassRows());
    bool changed = false;
    for (size_t i = 0; i < rows.size(); i += mlir::grt::LayerOp::kPassRow)
      changed |= change(&rows[i]);
    layer.setPasses(rows);
    return changed;
  };
  expectSeen("a later use overwrites the gradient", [&](mlir::Operation *op) {
    return passes(op, [](int64_t *row) { return std::exchange(row[5], 0); });
  });
  expectSeen("a gradient is added to nothing", [&](mlir::Operation *op) {
    return passes(op, [](int64_t *row) { return !std::exchange(row[5], 1); });
  });
  expectSeen("nothing passes", [&](mlir::Operation *op) {
    auto layer = llvm::dyn_cast<mlir::grt::LayerOp>(op);
    if (!layer || layer.getPassRows().empty())
      return false;
    layer.removePassesAttr();
    return true;
  });
  expectSeen("inputs change places", [&](mlir::Operation *op) {
    auto layer = llvm::dyn_cast<mlir::grt::LayerOp>(op);
    if (!layer || layer.getInputRows().size() < 8)
      return false;
    llvm::SmallVector<int64_t> rows(layer.getInputRows());
    for (int i = 0; i < 4; ++i)
      std::swap(rows[i], rows[4 + i]);
    layer.setInputs(rows);
    return true;
  });
  expectSeen("tensors of an exchange change places", [&](mlir::Operation *op) {
    auto exchange = llvm::dyn_cast<mlir::grt::ExchangeOp>(op);
    if (!exchange || !exchange.getTensors())
      return false;
    llvm::SmallVector<int64_t> rows(*exchange.getTensors());
    std::swap(rows[2], rows[5]);
    exchange.setTensors(rows);
    return true;
  });
}

} // namespace
