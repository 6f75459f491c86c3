//===- RecordingTest.cpp - Twins on a model of a device -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Programs compiled for devices with streams run on the recording backend:
// their numbers are those of one rank on the CPU, and every access is inside
// memory that is alive and ordered against all others. What is broken on
// purpose in a compiled program is found.
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "galvatron/Dialect/GRT/IR/StreamOrder.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "mlir/IR/Builders.h"
#include "gtest/gtest.h"

#include <mutex>
#include <thread>

using namespace galvatron;
using namespace galvatron::test;

namespace {

class RecordingTest : public ::testing::Test {
protected:
  RecordingTest() { loadTwinDialects(context); }

  static TwinOptions optionsOf(const std::string &dtype) {
    TwinOptions options;
    options.dtype = dtype;
    options.steps = 3;
    options.eps = dtype == "f64" ? 1e-8 : 1e-6;
    return options;
  }

  void expectTwins(const TwinPlan &plan, const std::string &dtype) {
    SCOPED_TRACE(plan.str() + " " + dtype);
    TwinOptions options = optionsOf(dtype);
    auto [entry, inserted] =
        references.try_emplace(dtype + std::to_string(plan.batch));
    if (inserted)
      entry->second =
          runTwin(context, model, singleRank(model, plan.batch), options);
    ASSERT_EQ(entry->second.error, "");
    options.backend = "cuda";
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
    // The model of the device keeps its books on the ranks' threads.
    for (grt::RankMemory &rank : run.memory)
      rank.measuredPeakBytes -= rank.outsideArenaBytes;
    // Models this small leave most of every granule of the window.
    EXPECT_EQ(checkMemory(run, (plan.microBatches + 1) << 21), "");
    EXPECT_EQ(compareRuns(run, entry->second, getBounds(dtype, "adamw")), "");
  }

  static TwinPlan planOf(const TwinModel &model, const char *strategy,
                         int64_t stages = 2) {
    return uniformPlan(model, stages, llvm::cantFail(Strategy::parse(strategy)),
                       16, 4, "1f1b");
  }

  mlir::MLIRContext context;
  TwinModel model;
  std::map<std::string, TwinRun> references;
};

TEST_F(RecordingTest, Strategies) {
  expectTwins(singleRank(model, 16, 2), "f64");
  for (const char *text : {"dp4", "sdp4", "tp2.sdp2.ckpt", "dp2.tp2"})
    expectTwins(planOf(model, text), "f64");
  // All-reduces beside the scatters of the layers below.
  expectTwins(planOf(model, "dp2.sdp2"), "f32");
  expectTwins(planOf(model, "sdp2.dp2.ckpt", 1), "bf16");
}

TEST_F(RecordingTest, RandomMixedPlans) {
  std::mt19937 generator(31);
  int64_t count = std::getenv("GALVATRON_LONG") ? 100 : 4;
  for (int64_t i = 0; i < count && !HasFatalFailure(); ++i) {
    TwinPlan plan = randomPlan(model, generator);
    for (int64_t stage = 0; stage < plan.stages(); ++stage)
      plan.sums.push_back((stage + i) % 2 ? SumTiming::Overlap
                                          : SumTiming::AtEnd);
    expectTwins(plan, i % 2 ? "f32" : "f64");
  }
}

/// All that TwinTest sweeps, on the model of a device.
TEST_F(RecordingTest, EveryStrategyOfEightRanks) {
  if (!std::getenv("GALVATRON_LONG"))
    GTEST_SKIP() << "GALVATRON_LONG is not set";
  for (int64_t stages : {8, 4, 2, 1})
    for (const Strategy &strategy :
         enumerateStrategies(8 / stages, allStrategies()))
      for (const char *schedule : {"1f1b", "gpipe"}) {
        if (stages == 1 && std::string(schedule) == "gpipe")
          continue;
        int64_t microBatches = stages == 1 ? 2 : 4;
        while (16 / microBatches % strategy.sampleShards() != 0)
          microBatches /= 2;
        expectTwins(
            uniformPlan(model, stages, strategy, 16, microBatches, schedule),
            "f64");
      }
}

/// Erases event operation number `left` of all functions; false if there are
/// not so many.
bool eraseEvent(mlir::ModuleOp module, size_t left) {
  for (auto func : module.getOps<mlir::grt::FuncOp>())
    for (mlir::Operation &op :
         llvm::make_early_inc_range(func.getBody().front()))
      if (llvm::isa<mlir::grt::RecordOp, mlir::grt::WaitOp>(op) &&
          left-- == 0) {
        op.erase();
        return true;
      }
  return false;
}

TEST_F(RecordingTest, AMissingEventIsFound) {
  TwinPlan plan = planOf(model, "sdp2.ckpt", 1);
  size_t limit = std::getenv("GALVATRON_LONG") ? 1000 : 10, found = 0;
  for (size_t left = 0; left < limit; ++left) {
    bool erased = false;
    TwinOptions options = optionsOf("f32");
    options.steps = 2;
    options.backend = "cuda";
    options.verifyPlaced = false;
    options.corrupt = [&](mlir::ModuleOp module) {
      erased = eraseEvent(module, left);
    };
    TwinRun run = runTwin(context, model, plan, options);
    if (!erased) {
      EXPECT_EQ(run.error, "");
      break;
    }
    ++found;
    EXPECT_NE(run.error, "") << "without event operation " << left;
  }
  EXPECT_GE(found, 10u);
}

TEST_F(RecordingTest, AMissingWaitOfAGatherIsFound) {
  // Eight layers, all gathered in forward and all but the embedding in
  // backward: 15 gathers a micro-batch, four of these a step.
  struct Case {
    const char *strategy;
    uint32_t stream, behind; ///< which stream waits for which
    std::vector<int64_t> left;
  };
  const int64_t forward = 5 * 15, scatters = 5 * 7;
  const Case cases[] = {
      // Where parameters go, those of the layer before the last were read.
      {"sdp2.ckpt",
       GRT_STREAM_GATHER,
       GRT_STREAM_COMPUTE,
       {forward + 3, forward + 5, forward + 6}},
      // The functions need them.
      {"sdp2",
       GRT_STREAM_COMPUTE,
       GRT_STREAM_GATHER,
       {forward, forward + 3, forward + 7}},
      // Gradients are scattered beside it, over the same ranks.
      {"sdp2",
       GRT_STREAM_GRADIENT,
       GRT_STREAM_GATHER,
       {scatters + 1, scatters + 3, scatters + 5}}};
  for (const Case &test : cases) {
    SCOPED_TRACE(std::string(test.strategy) + ", stream " +
                 std::to_string(test.stream));
    TwinPlan plan = planOf(model, test.strategy, 1);
    // Counted on one rank, whichever comes first.
    std::mutex mutex;
    std::thread::id counted;
    int64_t seen = 0, left = -1;
    TwinOptions options = optionsOf("f32");
    options.steps = 2;
    options.backend = "cuda";
    options.keepWait = [&](uint32_t stream, uint32_t event) {
      if (stream != test.stream || event != GRT_FUNCTION_EVENTS + test.behind)
        return true;
      std::lock_guard lock(mutex);
      if (counted == std::thread::id())
        counted = std::this_thread::get_id();
      return counted != std::this_thread::get_id() || seen++ != left;
    };
    EXPECT_EQ(runTwin(context, model, plan, options).error, "");
    EXPECT_EQ(seen,
              test.stream == GRT_STREAM_GRADIENT ? 2 * 4 * 7 : 2 * 4 * 15);
    for (int64_t each : test.left) {
      seen = 0;
      left = each;
      counted = {};
      EXPECT_NE(runTwin(context, model, plan, options).error, "")
          << "without wait " << left;
    }
  }
}

/// Layers of unlike strategies: what shares ranks with a sum of gradients that
/// runs behind backward passes waits for it, and a wait that is left out is
/// refused or seen. Some are for nothing: an embedding's backward pass exchanges nothing,
/// and a reshard may move samples between ranks that share no sum.
TEST_F(RecordingTest, SumsOfGradientsAreAwaited) {
  auto planWith = [&](const char *above,
                      std::map<size_t, const char *> others) {
    TwinPlan plan = planOf(model, above, 1);
    for (auto [layer, text] : others)
      plan.strategies[layer] = llvm::cantFail(Strategy::parse(text));
    return plan;
  };
  struct Case {
    TwinPlan plan;
    int64_t gathers, passes, reshards; ///< that wait
    std::vector<int64_t> idle;         ///< marks, that are for nothing
  };
  const Case cases[] = {
      {planWith("dp2.tp2", {{0, "tp2.dp2"}, {7, "tp2.dp2"}}), 0, 2, 1, {0}},
      {planWith("dp2.tp2", {{0, "tp4"}, {3, "tp4"}}), 0, 2, 2, {0}},
      {planWith("dp4", {{1, "sdp4"}, {2, "sdp4"}, {5, "sdp4.ckpt"}}),
       3,
       0,
       0,
       {}},
      {planWith("sdp2.dp2", {{2, "tp2.sdp2"}, {3, "dp2.tp2"}}), 0, 2, 1, {2}}};
  for (const Case &test : cases) {
    SCOPED_TRACE(test.plan.str());
    expectTwins(test.plan, "f64");
    if (HasFatalFailure())
      return;
    // Takes one mark away, the n-th of the program; counts all.
    int64_t left = -1, gathers = 0, passes = 0, reshards = 0;
    TwinOptions options = optionsOf("f32");
    options.steps = 2;
    options.backend = "cuda";
    options.verifyPlaced = false;
    options.corrupt = [&](mlir::ModuleOp module) {
      int64_t number = 0;
      gathers = passes = reshards = 0;
      module.walk([&](mlir::grt::LayerOp layer) {
        gathers += layer.getGatherAwaitsSums();
        passes += layer.getBackwardAwaitsSums();
        reshards += layer.getReshardAwaitsSums();
        if (layer.getGatherAwaitsSums() && number++ == left)
          layer.setGatherAwaitsSums(false);
        if (layer.getBackwardAwaitsSums() && number++ == left)
          layer.setBackwardAwaitsSums(false);
        if (layer.getReshardAwaitsSums() && number++ == left)
          layer.setReshardAwaitsSums(false);
      });
    };
    EXPECT_EQ(runTwin(context, model, test.plan, options).error, "");
    EXPECT_EQ(gathers, test.gathers);
    EXPECT_EQ(passes, test.passes);
    EXPECT_EQ(reshards, test.reshards);
    int64_t marks = gathers + passes + reshards;
    for (left = 0; left < marks; ++left)
      EXPECT_EQ(runTwin(context, model, test.plan, options).error.empty(),
                llvm::is_contained(test.idle, left))
          << "without mark " << left;
  }
}

/// Of backward passes in two parts the weight part exchanges, too: gradients of
/// key heads that ranks share. It waits for the sums of the layers above.
TEST_F(RecordingTest, SumsOfGradientsAreAwaitedByWeightParts) {
  TwinModel shared;
  shared.family = "llama";
  shared.keyHeads = 2;
  TwinPlan plan = uniformPlan(
      shared, 2, llvm::cantFail(Strategy::parse("dp2.tp2")), 16, 4, "zb-h1");
  plan.strategies[1] = llvm::cantFail(Strategy::parse("tp4"));
  TwinOptions options = optionsOf("f32");
  options.steps = 2;
  options.backend = "cuda";
  options.verifyPlaced = false;
  bool taken = false;
  int64_t marks = 0;
  options.corrupt = [&](mlir::ModuleOp module) {
    marks = 0;
    module.walk([&](mlir::grt::LayerOp layer) {
      marks += layer.getBackwardAwaitsSums();
      if (taken)
        layer.setBackwardAwaitsSums(false);
    });
  };
  EXPECT_EQ(runTwin(context, shared, plan, options).error, "");
  EXPECT_GT(marks, 0);
  taken = true;
  EXPECT_NE(runTwin(context, shared, plan, options).error, "");
}

/// Every stage sums its gradients when its plan says: the losses are those of
/// one rank, on the CPU as on a device with streams, whose order is proven.
TEST_F(RecordingTest, GradientsAreSummedWhenThePlanSays) {
  const SumTiming rule = SumTiming::ByRule, overlap = SumTiming::Overlap,
                  end = SumTiming::AtEnd;
  TwinPlan plan = planOf(model, "dp2.tp2");
  for (size_t layer : {1, 5})
    plan.strategies[layer] = llvm::cantFail(Strategy::parse("tp2.dp2"));
  struct Case {
    std::vector<SumTiming> sums;
    bool overlap[2]; ///< by stage
  };
  for (const Case &test :
       {Case{{overlap, overlap}, {true, true}},
        Case{{end, overlap}, {false, true}},
        Case{{overlap, end}, {true, false}}, Case{{end, end}, {false, false}},
        Case{{rule, overlap}, {true, true}}, Case{{}, {true, false}}}) {
    plan.sums = test.sums;
    SCOPED_TRACE(plan.str());
    TwinOptions options = optionsOf("f32");
    options.backend = "cuda";
    options.steps = 1;
    int64_t flags[2] = {0, 0}, marks[2] = {0, 0};
    options.corrupt = [&](mlir::ModuleOp module) {
      module.walk([&](mlir::grt::RoleOp role) {
        auto stage = static_cast<size_t>(role.getStage());
        role.walk([&](mlir::grt::LayerOp layer) {
          marks[stage] += layer.getGatherAwaitsSums() ||
                          layer.getBackwardAwaitsSums() ||
                          layer.getReshardAwaitsSums();
        });
      });
      size_t stage = 0;
      for (auto schedule : module.getOps<mlir::grt::ScheduleOp>()) {
        schedule.walk([&](mlir::grt::TaskOp task) {
          flags[stage] += task.getSyncBehind();
        });
        ++stage;
      }
    };
    EXPECT_EQ(runTwin(context, model, plan, options).error, "");
    for (size_t stage : {0, 1}) {
      EXPECT_EQ(flags[stage], test.overlap[stage]) << stage;
      EXPECT_EQ(marks[stage] > 0, test.overlap[stage]) << stage;
    }
    expectTwins(plan, "f64");
    options = optionsOf("f64");
    TwinRun onCpu = runTwin(context, model, plan, options);
    ASSERT_EQ(onCpu.error, "");
    EXPECT_EQ(compareRuns(onCpu,
                          references.at("f64" + std::to_string(plan.batch)),
                          getBounds("f64", "adamw")),
              "");
  }
}

/// A wait that is left out of a stage behind the first one is seen, too.
TEST_F(RecordingTest, SumsOfLaterStagesAreAwaited) {
  TwinPlan plan = planOf(model, "dp2.tp2");
  for (size_t layer : {4, 6})
    plan.strategies[layer] = llvm::cantFail(Strategy::parse("tp4"));
  plan.sums = {SumTiming::AtEnd, SumTiming::Overlap};
  int64_t left = -1, marks = 0;
  TwinOptions options = optionsOf("f32");
  options.steps = 2;
  options.backend = "cuda";
  options.verifyPlaced = false;
  options.corrupt = [&](mlir::ModuleOp module) {
    marks = 0;
    module.walk([&](mlir::grt::LayerOp layer) {
      if (layer.getBackwardAwaitsSums() && marks++ == left)
        layer.setBackwardAwaitsSums(false);
    });
  };
  EXPECT_EQ(runTwin(context, model, plan, options).error, "");
  ASSERT_GT(marks, 0);
  int64_t all = marks;
  for (left = 0; left < all; ++left)
    EXPECT_NE(runTwin(context, model, plan, options).error, "")
        << "without mark " << left;
}

/// Where layer number `layer` has its parameters gathered, `by` bytes further.
bool shiftGathered(mlir::ModuleOp module, size_t layer, bool isForward,
                   int64_t by) {
  bool shifted = false;
  module.walk([&](mlir::grt::LayerOp op) {
    if (layer-- != 0)
      return;
    mlir::grt::PlacementAttr at = *op.getPlacement();
    int64_t gathered[] = {at.getForwardGathered(), at.getBackwardGathered()};
    int64_t &offset = gathered[isForward ? 0 : 1];
    if (offset >= 0) {
      offset += by;
      op.setPlacementAttr(mlir::grt::PlacementAttr::get(
          op.getContext(), at.getParameter(), at.getGradient(),
          at.getOptimizer(), at.getStash(), at.getForwardTransient(),
          at.getBackwardTransient(), at.getResidentParameter(),
          at.getResidentGradient(), at.getResidentOptimizer(), gathered[0],
          gathered[1], at.getData(), at.getGradIn(), at.getGradOut(),
          at.getOutput()));
      shifted = true;
    }
  });
  return shifted;
}

TEST_F(RecordingTest, GatheredParametersOverWhatIsInUseAreFound) {
  for (const char *text : {"sdp2", "sdp2.ckpt"})
    for (bool isForward : {true, false}) {
      TwinOptions options = optionsOf("f32");
      options.steps = 2;
      options.backend = "cuda";
      options.corruptPlaced = [&](mlir::ModuleOp module) {
        EXPECT_TRUE(shiftGathered(module, 3, isForward, -4096));
      };
      EXPECT_NE(runTwin(context, model, planOf(model, text, 1), options).error,
                "")
          << text << (isForward ? " forward" : " backward");
    }
}

/// Lets operand number `which` of all products' transient operands look 64
/// bytes too far; false if there are not so many.
bool shiftOperand(mlir::ModuleOp module, size_t which) {
  using namespace mlir::grt;
  for (auto func : module.getOps<FuncOp>())
    for (auto kernel : func.getOps<KernelOp>()) {
      if (!stringifyKernel(kernel.getKernel()).starts_with("gemm"))
        continue;
      for (mlir::OpOperand &operand : kernel.getBuffersMutable()) {
        auto buffer = operand.get().getDefiningOp<BufferOp>();
        if (!buffer || buffer.getRegion() != MemoryRegion::Transient ||
            which-- != 0)
          continue;
        mlir::OpBuilder builder(buffer);
        operand.set(BufferOp::create(builder, buffer.getLoc(), buffer.getType(),
                                     MemoryRegion::Transient,
                                     *buffer.getOffset() + 64));
        return true;
      }
    }
  return false;
}

TEST_F(RecordingTest, AShiftedBufferIsFound) {
  TwinPlan plan = planOf(model, "sdp2", 1);
  TwinOptions clean = optionsOf("f32");
  TwinRun reference = runTwin(context, model, singleRank(model, 16), clean);
  size_t limit = std::getenv("GALVATRON_LONG") ? 1000 : 8, found = 0,
         checked = 0;
  for (size_t which = 0; which < limit; ++which) {
    bool shifted = false;
    TwinOptions options = clean;
    options.backend = "cuda";
    options.corruptPlaced = [&](mlir::ModuleOp module) {
      shifted = shiftOperand(module, which);
    };
    TwinRun run = runTwin(context, model, plan, options);
    if (!shifted)
      break;
    ++found;
    checked += !run.error.empty();
    // Where the bytes behind belong to a buffer that is alive, numbers tell.
    EXPECT_TRUE(!run.error.empty() ||
                !compareRuns(run, reference, getBounds("f32", "adamw")).empty())
        << "operand " << which;
  }
  EXPECT_GE(found, 8u);
  EXPECT_GT(checked, 0u);
}

} // namespace
