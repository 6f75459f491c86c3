//===- SplitTwinTest.cpp - Split backward passes change no mathematics ----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "gtest/gtest.h"

using namespace galvatron;
using namespace galvatron::test;

namespace {

class SplitTwinTest : public ::testing::Test {
protected:
  SplitTwinTest() { loadTwinDialects(context); }

  void expectTwins(const TwinModel &model, const TwinPlan &plan,
                   TwinOptions options = {}) {
    SCOPED_TRACE(plan.str() + " " + options.dtype);
    TwinOptions alone = options;
    alone.backend = "cpu";
    const TwinRun &expected = references.of(model, alone, plan.batch);
    ASSERT_EQ(expected.error, "");
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
    // Not how closely: slots have room for what weight parts need, and hardly
    // all of them wait for one.
    for (const ::grt::RankMemory &rank : run.memory) {
      uint64_t measured = rank.measuredPeakBytes;
      // What checks accesses has containers of its own.
      if (options.backend != "cpu")
        measured -= rank.outsideArenaBytes;
      EXPECT_LE(measured, rank.plannedPeakBytes) << rank.rank;
    }
    EXPECT_EQ(
        compareRuns(run, expected, getBounds(options.dtype, options.optimizer)),
        "");
  }

  /// The even partition into chunks that lie in a V, one strategy for all.
  static TwinPlan inV(const TwinModel &model, int64_t stages,
                      const Strategy &strategy, int64_t microBatches) {
    TwinPlan plan = uniformPlan(model, 2 * stages, strategy,
                                microBatches * strategy.sampleShards(),
                                microBatches, "zb-v");
    plan.chunks = 2;
    return plan;
  }

  /// That a fault in the scheduled program shows, in numbers or as an error.
  void expectCaught(std::function<void(mlir::ModuleOp)> fault) {
    TwinModel model;
    TwinOptions options;
    options.steps = 2;
    TwinPlan plan = uniformPlan(model, 2, Strategy(), 4, 4, "zb-h1");
    TwinRun expected = runTwin(context, model, singleRank(model, 4), options);
    ASSERT_EQ(expected.error, "");
    options.corrupt = std::move(fault);
    TwinRun run = runTwin(context, model, plan, options);
    EXPECT_TRUE(injected) << "the fault found no place in the program";
    EXPECT_TRUE(!run.error.empty() ||
                !compareRuns(run, expected, getBounds("f64", "adamw")).empty());
  }

  mlir::MLIRContext context;
  References references{context};
  bool injected = false;
};

/// They take turns where both would take long.
const char *splitSchedule(int64_t number) {
  return number % 2 ? "zb-h2" : "zb-h1";
}

bool isLong() { return std::getenv("GALVATRON_LONG"); }

/// From one micro-batch to three for each stage.
TEST_F(SplitTwinTest, EveryNumberOfMicroBatches) {
  TwinModel model;
  for (int64_t stages : {1, 2, 3, 4})
    for (int64_t microBatches = 1; microBatches <= 3 * stages; ++microBatches)
      for (const char *schedule : {"zb-h1", "zb-h2"})
        if (isLong() || stages < 3 || microBatches % 2)
          expectTwins(model, uniformPlan(model, stages, Strategy(),
                                         microBatches, microBatches, schedule));
}

TEST_F(SplitTwinTest, StrategiesOfEightRanks) {
  TwinModel model;
  int64_t number = 0;
  for (int64_t stages : {4, 2})
    for (const Strategy &strategy : enumerateStrategies(8 / stages, {})) {
      // A sample of them; all in the long run.
      if (!isLong() && number++ % 2)
        continue;
      int64_t microBatches = 3 + number % 4;
      expectTwins(model, uniformPlan(model, stages, strategy,
                                     microBatches * strategy.sampleShards(),
                                     microBatches, splitSchedule(number / 2)));
    }
}

/// Uneven stages, another strategy on every layer, recomputation on some, the
/// tied embedding on the first and the last stage.
TEST_F(SplitTwinTest, RandomMixedPlans) {
  TwinModel model;
  std::mt19937 generator(1);
  int64_t count = isLong() ? 100 : 10;
  for (int64_t i = 0; i < count && !HasFatalFailure(); ++i) {
    TwinPlan plan = randomPlan(model, generator);
    plan.schedule = splitSchedule(i);
    for (const std::string &optimizer : optimizersInTurn(size_t(i))) {
      TwinOptions options;
      options.optimizer = optimizer;
      expectTwins(model, plan, options);
    }
  }
}

/// Orders that are listed for stages of unequal times.
TEST_F(SplitTwinTest, ListedForTheirTimes) {
  TwinModel model;
  std::mt19937 generator(7);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  for (int64_t i = 0; i < (isLong() ? 60 : 6) && !HasFatalFailure(); ++i) {
    int64_t stages = 2 + i / 2 % 3, microBatches = pick(stages, 2 * stages);
    TwinPlan plan = uniformPlan(model, stages, Strategy(), microBatches,
                                microBatches, splitSchedule(i));
    for (int64_t stage = 0; stage < stages; ++stage)
      plan.passTimes.push_back(
          {pick(10, 100), pick(10, 100), pick(0, 100), pick(0, 10)});
    PassTimes &longest = plan.passTimes[pick(0, stages - 1)];
    longest.forward *= 3, longest.input *= 3, longest.weight *= 3;
    expectTwins(model, plan);
    TwinOptions streams;
    streams.backend = "cuda";
    if (i % 4 > 1)
      expectTwins(model, plan, streams);
  }
}

TEST_F(SplitTwinTest, EightStages) {
  if (!isLong())
    GTEST_SKIP() << "in the long run";
  TwinModel model;
  model.layers = 14;
  for (int64_t microBatches : {1, 5, 8, 13, 15, 24})
    for (const char *schedule : {"zb-h1", "zb-h2"})
      expectTwins(model, uniformPlan(model, 8, Strategy(), microBatches,
                                     microBatches, schedule));
}

TEST_F(SplitTwinTest, OtherTypesAndWithoutDropout) {
  TwinModel model;
  int64_t number = 0;
  for (auto [dtype, optimizer] :
       {std::pair("f32", "adamw"), {"bf16", "adamw"}, {"f64", "adam"}}) {
    TwinOptions options;
    options.dtype = dtype;
    options.optimizer = optimizer;
    options.eps = options.dtype == "f64" ? 1e-8 : 1e-6;
    options.dropout = options.dtype != "f64";
    for (const char *text : {"dp2", "sdp2", "sdp2.ckpt", "tp2"}) {
      Strategy strategy = llvm::cantFail(Strategy::parse(text));
      expectTwins(
          model, uniformPlan(model, 2, strategy, 6, 3, splitSchedule(number++)),
          options);
    }
  }
}

TEST_F(SplitTwinTest, AWeightPartThatIsLeftOutIsCaught) {
  expectCaught([&](mlir::ModuleOp module) {
    module.walk([&](mlir::grt::LayerOp layer) {
      if (layer.getLayerName() != "h.1")
        return;
      injected = bool(layer.getWeightAttr());
      layer.removeWeightAttr();
    });
  });
}

/// What the input part keeps, in the place of what the weight part reads.
TEST_F(SplitTwinTest, AValueInTheWrongPlaceIsCaught) {
  expectCaught([&](mlir::ModuleOp module) {
    module.walk([&](mlir::grt::FuncOp function) {
      bool isInput = function.getSymName().ends_with(".backward");
      if (!function.getSymName().contains("block") ||
          !(isInput || function.getSymName().ends_with(".weight")))
        return;
      int64_t last = 0;
      mlir::grt::BufferOp behind;
      function.walk([&](mlir::grt::BufferOp buffer) {
        if (buffer.getRegion() == mlir::grt::MemoryRegion::Stash &&
            buffer.getOffset().value_or(0) > last) {
          last = *buffer.getOffset();
          behind = buffer;
        }
      });
      behind.setOffset(0);
      injected = true;
    });
  });
}

/// Weight parts with the slots of other micro-batches; in front of their input
/// parts.
TEST_F(SplitTwinTest, WeightPartsInDisorderAreCaught) {
  auto first = [](mlir::ModuleOp module, mlir::grt::TaskKind kind) {
    mlir::grt::TaskOp found;
    module.walk([&](mlir::grt::TaskOp task) {
      if (!found && task.getKind() == kind)
        found = task;
    });
    return found;
  };
  expectCaught([&](mlir::ModuleOp module) {
    mlir::grt::TaskOp weight =
        first(module, mlir::grt::TaskKind::BackwardWeight);
    weight.setSlot(1 - *weight.getSlot());
    injected = true;
  });
  expectCaught([&](mlir::ModuleOp module) {
    mlir::grt::TaskOp weight =
        first(module, mlir::grt::TaskKind::BackwardWeight);
    weight->moveBefore(first(module, mlir::grt::TaskKind::BackwardInput));
  });
}

/// Grouped heads, norms without a bias, masks, images: other operations in
/// either part.
class SplitFamilyTwinTest : public SplitTwinTest,
                            public ::testing::WithParamInterface<const char *> {
};

TEST_P(SplitFamilyTwinTest, MixedPlans) {
  TwinModel model;
  model.family = GetParam();
  model.layers = 4;
  int64_t number = 0;
  for (const char *text : {"tp2.sdp2", "sdp2.tp2.ckpt", "dp4"}) {
    Strategy strategy = llvm::cantFail(Strategy::parse(text));
    expectTwins(
        model, uniformPlan(model, 2, strategy, 16, 4, splitSchedule(number++)));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SplitFamilyTwinTest,
                         ::testing::Values("bert", "llama", "qwen3", "swin",
                                           "vit"),
                         [](const auto &info) {
                           return std::string(info.param);
                         });

/// Order and lifetimes of every access, on the backend that checks them; there
/// products have epilogues, parameters are gathered ahead, and gradients are
/// summed behind the last weight part.
TEST_F(SplitTwinTest, WithStreams) {
  TwinModel model;
  TwinOptions options;
  options.backend = "cuda";
  for (const char *text : {"dp2", "sdp2", "tp2", "sdp2.ckpt"}) {
    Strategy strategy = llvm::cantFail(Strategy::parse(text));
    for (int64_t microBatches : {1, 3, 4})
      for (const char *schedule : {"zb-h1", "zb-h2"})
        expectTwins(model,
                    uniformPlan(model, 2, strategy, 2 * microBatches,
                                microBatches, schedule),
                    options);
  }
  // A stage between two others, and messages that wait for it.
  expectTwins(model, uniformPlan(model, 4, Strategy(), 9, 9, "zb-h2"), options);
}

/// The tied embedding is on the first stage with the head.
TEST_F(SplitTwinTest, ChunksInAV) {
  TwinModel model;
  model.layers = 8;
  for (int64_t stages : {2, 3})
    for (int64_t microBatches = 1; microBatches <= 2 * stages + 1;
         ++microBatches)
      if (isLong() || microBatches % 2)
        expectTwins(model, inV(model, stages, Strategy(), microBatches));
  int64_t number = 0;
  for (int64_t stages : {4, 2})
    for (const Strategy &strategy : enumerateStrategies(8 / stages, {}))
      // A sample of them; all in the long run.
      if (isLong() || number++ % 3 == 0)
        expectTwins(model, inV(model, stages, strategy, 3 + number % 5));
  if (!isLong())
    return;
  model.layers = 14;
  for (int64_t microBatches : {1, 5, 8, 13, 17})
    expectTwins(model, inV(model, 8, Strategy(), microBatches));
}

/// Chunks of unequal depth, another strategy on every layer, recomputation on
/// some: slots have the size of the larger chunk's.
TEST_F(SplitTwinTest, UnevenChunksInAV) {
  TwinModel model;
  model.layers = 6;
  std::mt19937 generator(3);
  SpaceOptions space;
  space.keepDpSdp = true;
  std::vector<Strategy> strategies = enumerateStrategies(4, space);
  auto pick = [&](size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(generator);
  };
  for (int64_t i = 0; i < (isLong() ? 40 : 6); ++i) {
    TwinPlan plan = inV(model, 2, strategies.front(), i % 3 ? 4 : 3);
    plan.batch = 4 * plan.microBatches;
    plan.stageLayers.assign(4, 1);
    for (int64_t left = model.modelLayers() - 4; left > 0; --left)
      ++plan.stageLayers[pick(4)];
    for (Strategy &strategy : plan.strategies)
      strategy = strategies[pick(strategies.size())];
    TwinOptions options;
    options.optimizer = i % 2 ? "sgd" : "adamw";
    expectTwins(model, plan, options);
  }
}

/// Orders that are listed for passes of unequal times: a head as long as a
/// stage, weight parts of next to nothing, messages as long as passes.
TEST_F(SplitTwinTest, ChunksInAVListedForTheirTimes) {
  TwinModel model;
  model.layers = 8;
  std::mt19937 generator(5);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  for (int64_t i = 0; i < (isLong() ? 60 : 8) && !HasFatalFailure(); ++i) {
    int64_t stages = 2 + i % 3;
    TwinPlan plan = inV(model, stages, Strategy(), pick(1, 3 * stages));
    plan.batch = plan.microBatches;
    int64_t most = i % 2 ? 100 : 300;
    for (int64_t chunk = 0; chunk < 2 * stages; ++chunk)
      plan.passTimes.push_back({pick(10, most), pick(10, most), pick(0, most),
                                i % 4 ? pick(0, 30) : pick(0, most)});
    if (i % 3 == 0)
      plan.passTimes.back().forward *= stages;
    expectTwins(model, plan);
  }
}

TEST_F(SplitTwinTest, ChunksInAVWithStreams) {
  TwinModel model;
  model.layers = 6;
  TwinOptions options;
  options.backend = "cuda";
  for (const char *text : {"dp2", "sdp2", "tp2", "sdp2.ckpt"})
    for (int64_t microBatches : {3, 4})
      expectTwins(
          model,
          inV(model, 2, llvm::cantFail(Strategy::parse(text)), microBatches),
          options);
  expectTwins(model, inV(model, 3, Strategy(), 7), options);
}

} // namespace
