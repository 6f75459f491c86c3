//===- KeptTwinTest.cpp - What is kept changes no mathematics -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"
#include "galvatron/Footprint/IRLayerModel.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "gtest/gtest.h"

using namespace galvatron;
using namespace galvatron::test;

namespace {

mlir::func::FuncOp bodyOf(mlir::galvatron::LayerOp layer) {
  auto module = layer->getParentOfType<mlir::ModuleOp>();
  return mlir::SymbolTable(module).lookup<mlir::func::FuncOp>(
      layer.getCallee().value());
}

/// Gives every layer at a point a set of values: each value of its body with
/// the same chance.
void keepAtRandom(mlir::ModuleOp module, uint32_t seed) {
  std::mt19937 generator(seed);
  for (mlir::galvatron::LayerOp layer :
       mlir::galvatron::getModel(module).getLayers()) {
    if (layer.getStrategyAttr().getPoint() == 0)
      continue;
    mlir::func::FuncOp body = bodyOf(layer);
    KeptValues kept;
    kept.body = mlir::nn::hashBody(body);
    unsigned chance = generator() % 4;
    for (auto [number, op] :
         llvm::enumerate(body.getBody().front().without_terminator()))
      for (unsigned result = 0; result < op.getNumResults(); ++result)
        if (generator() % 4 < chance &&
            !mlir::nn::isLossType(op.getResult(result).getType()))
          kept.values.push_back({int64_t(number), int64_t(result)});
    layer.setKeptAttr(
        mlir::galvatron::KeptAttr::get(module.getContext(), kept));
  }
}

class KeptTwinTest : public ::testing::Test {
protected:
  KeptTwinTest() { loadTwinDialects(context); }

  void expectTwins(const TwinModel &model, const TwinPlan &plan,
                   TwinOptions options = {}) {
    SCOPED_TRACE(plan.str() + " seed " + std::to_string(seed));
    TwinOptions alone = options;
    alone.backend = "cpu";
    alone.changePlan = nullptr;
    const TwinRun &expected = references.of(model, alone, plan.batch);
    ASSERT_EQ(expected.error, "");
    if (!options.changePlan)
      options.changePlan = [this](mlir::ModuleOp module) {
        keepAtRandom(module, seed++);
      };
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
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

  mlir::MLIRContext context;
  References references{context};
  uint32_t seed = 1;
};

Strategy parse(llvm::StringRef text) {
  return llvm::cantFail(Strategy::parse(text));
}

/// Dropout, sums and gathered rows inside of what is computed again; pipelines;
/// layers beside them that keep all or nothing.
TEST_F(KeptTwinTest, RandomSetsUnderEveryParadigm) {
  TwinModel model;
  model.layers = 4;
  for (const char *text :
       {"single.ckpt1", "dp4.ckpt1", "zdp4.ckpt1", "sdp4.ckpt1", "tp4.ckpt1",
        "tsp4.ckpt1", "sdp2.tsp2.ckpt1", "tp2.sdp2.ckpt1", "scp4.ckpt1",
        "zcp4.ckpt1", "tp2.cp2.ckpt1"}) {
    Strategy strategy = parse(text);
    TwinPlan plan = uniformPlan(model, 2, strategy, 16, 4, "1f1b");
    expectTwins(model, plan);
    plan.strategies[1] = strategy.withCheckpoint(false);
    plan.strategies[3] = strategy.withCheckpoint(true);
    expectTwins(model, plan);
  }
}

TEST_F(KeptTwinTest, RandomSetsOfEveryFamily) {
  for (const char *family :
       {"bert", "bloom", "falcon", "gemma2", "gemma3_text", "gpt_neox", "llama",
        "olmo2", "opt", "phi", "qwen3", "swin", "t5", "t5_v1_1", "vit"}) {
    SCOPED_TRACE(family);
    TwinModel model;
    model.family = family;
    model.layers = llvm::StringRef(family) == "swin" ? 4 : 2;
    for (const char *text : {"tp2.ckpt1", "sdp2.ckpt1"})
      expectTwins(model, uniformPlan(model, 2, parse(text), 16, 4, "1f1b"));
    if (HasFailure())
      return;
  }
}

/// Backward passes in two parts: the weight part gets what it needs of what the
/// input part has computed again.
TEST_F(KeptTwinTest, RandomSetsInSplitBackwardPasses) {
  TwinModel model;
  model.layers = 4;
  for (const char *schedule : {"zb-h1", "zb-h2"})
    for (const char *text : {"single.ckpt1", "tp2.ckpt1", "sdp2.ckpt1"})
      expectTwins(model, uniformPlan(model, 2, parse(text), 16, 4, schedule));
}

/// The recording backend checks order and lifetime of every access.
TEST_F(KeptTwinTest, RandomSetsOnDevicesWithStreams) {
  TwinModel model;
  model.layers = 3;
  TwinOptions options;
  options.dtype = "f32";
  options.eps = 1e-6;
  options.backend = "cuda";
  for (const char *text :
       {"tp4.ckpt1", "sdp2.tp2.ckpt1", "dp4.ckpt1", "tsp4.ckpt1"})
    expectTwins(model, uniformPlan(model, 2, parse(text), 16, 2, "1f1b"),
                options);
}

/// What a point keeps goes to the host and comes back; what it does not keep is
/// computed again from that.
TEST_F(KeptTwinTest, RandomSetsThatGoToTheHost) {
  TwinModel model;
  model.layers = 4;
  // Devices with streams have activations of all layers there or of none.
  for (const char *text : {"single.ckpt1", "tp2.ckpt1", "sdp2.ckpt1"}) {
    TwinPlan plan = uniformPlan(model, 2, parse(text), 16, 4, "1f1b");
    plan.offload = Offload::Layers;
    plan.offload.activations = true;
    for (size_t layer : {1, 3, 4})
      plan.strategies[layer] = plan.strategies[layer].withHome(
          {/*states=*/false, /*activations=*/true});
    expectTwins(model, plan);
  }
}

/// What the planner offers, from much to little kept.
TEST_F(KeptTwinTest, ChosenPoints) {
  TwinModel model;
  model.layers = 2;
  // Enough that a pass takes longer than its kernels' launches.
  model.positions = 64;
  model.width = 64;
  for (const char *text : {"single", "tp2", "tsp2"}) {
    std::vector<int64_t> kept;
    for (int64_t point = 0; point <= 3; ++point) {
      Strategy strategy = parse(text).withPoint(point);
      TwinPlan plan = uniformPlan(model, 1, strategy, 8, 2, "1f1b");
      SCOPED_TRACE(plan.str());
      TwinOptions options;
      options.dtype = "f32";
      options.eps = 1e-6;
      size_t sets = 0;
      options.changePlan = [&](mlir::ModuleOp module) {
        mlir::DialectRegistry registry;
        registerFootprints(registry);
        context.appendDialectRegistry(registry);
        auto layers = llvm::cantFail(
            createIRLayerModel(module, "adamw", {"cpu", /*threads=*/1}));
        Cluster cluster =
            llvm::cantFail(mlir::galvatron::getCluster(module).toCluster());
        Plan priced;
        priced.batch = plan.batch;
        priced.microBatches = plan.microBatches;
        PlanStage stage;
        for (int64_t device = 0; device < plan.world(); ++device)
          stage.devices.push_back(device);
        stage.layerCount = int64_t(layers->layerCount());
        priced.stages = {stage};
        for (size_t l = 0; l < layers->layerCount(); ++l)
          priced.layers.push_back({layers->layerName(l), 0, strategy});
        auto result = evaluate(*layers, cluster, priced, std::nullopt);
        if (!result)
          llvm::report_fatal_error(result.takeError());
        kept.push_back(result->plan().layers[1].memoryBytes);
        for (auto [layer, entry] :
             llvm::zip_equal(mlir::galvatron::getModel(module).getLayers(),
                             result->plan().layers))
          if (entry.kept) {
            ++sets;
            layer.setKeptAttr(
                mlir::galvatron::KeptAttr::get(&context, *entry.kept));
          }
      };
      expectTwins(model, plan, options);
      EXPECT_EQ(sets, point ? plan.strategies.size() : 0);
    }
    EXPECT_GT(kept[0], kept[1]) << text << ": the point keeps no less";
    EXPECT_TRUE(llvm::is_sorted(llvm::reverse(kept))) << text;
  }
}

/// A set of another body, and one that the body does not have.
TEST_F(KeptTwinTest, RefusesSetsOfOtherBodies) {
  TwinModel model;
  model.layers = 2;
  TwinPlan plan = uniformPlan(model, 1, parse("single.ckpt1"), 4, 1, "1f1b");
  auto errorOf = [&](std::function<KeptValues(mlir::func::FuncOp)> make) {
    TwinOptions options;
    options.changePlan = [&](mlir::ModuleOp module) {
      for (auto layer : mlir::galvatron::getModel(module).getLayers())
        layer.setKeptAttr(
            mlir::galvatron::KeptAttr::get(&context, make(bodyOf(layer))));
    };
    return runTwin(context, model, plan, options).error;
  };
  EXPECT_NE(errorOf([](mlir::func::FuncOp) {
              return KeptValues{"0123456789abcdef", {}};
            }).find("the body has changed since they were chosen"),
            std::string::npos);
  std::string error = errorOf([](mlir::func::FuncOp body) {
    return KeptValues{mlir::nn::hashBody(body), {{1000, 0}}};
  });
  EXPECT_NE(error.find("found result 0 of operation 1000"), std::string::npos)
      << error;
  TwinOptions options;
  options.changePlan = [](mlir::ModuleOp) {};
  error = runTwin(context, model, plan, options).error;
  EXPECT_NE(error.find("expected 'kept' beside strategy 'single.ckpt1'"),
            std::string::npos)
      << error;
}

/// Operands that are missing, a sum that is left out, and an operation of
/// several results that is computed as two show.
TEST_F(KeptTwinTest, FaultsInWhatIsComputedAgainAreCaught) {
  TwinModel model;
  model.layers = 2;
  TwinOptions options;
  const TwinRun expected = references.of(model, options, 8);
  ASSERT_EQ(expected.error, "");
  // Nothing is kept, so backward computes all of it again.
  options.changePlan = [](mlir::ModuleOp module) {
    for (auto layer : mlir::galvatron::getModel(module).getLayers())
      layer.setKeptAttr(mlir::galvatron::KeptAttr::get(
          module.getContext(), {mlir::nn::hashBody(bodyOf(layer)), {}}));
  };
  TwinPlan plan = uniformPlan(model, 1, parse("tp2.ckpt1"), 8, 1, "1f1b");
  for (const char *fault : {"sum", "key", "operand", "apart"}) {
    SCOPED_TRACE(fault);
    bool injected = false;
    options.corruptBodies = [&](mlir::ModuleOp module) {
      module.walk([&](mlir::func::FuncOp function) {
        if (injected || !function.getName().contains(".kept") ||
            !function.getName().ends_with(".backward"))
          return;
        function.walk([&](mlir::Operation *op) {
          if (injected)
            return;
          if (fault == llvm::StringRef("sum") &&
              mlir::isa<mlir::galvatron::AllReduceOp>(op)) {
            op->getResult(0).replaceAllUsesWith(op->getOperand(0));
            op->erase();
            injected = true;
          } else if (fault == llvm::StringRef("key") &&
                     mlir::isa<mlir::nn::DropoutOp>(op)) {
            op->setAttr("op_index", mlir::Builder(op).getI64IntegerAttr(77));
            injected = true;
          } else if (fault == llvm::StringRef("apart") &&
                     mlir::isa<mlir::nn::AttentionOp>(op)) {
            // One for each result, of which each draws by itself.
            mlir::Operation *other = mlir::OpBuilder(op).clone(*op);
            other->setAttr("op_index", mlir::Builder(op).getI64IntegerAttr(77));
            op->getResult(0).replaceAllUsesWith(other->getResult(0));
            injected = true;
          } else if (fault == llvm::StringRef("operand") &&
                     mlir::isa<mlir::nn::GeluOp>(op)) {
            for (mlir::OpOperand &use : op->getResult(0).getUses())
              if (use.getOwner()
                      ->getOperand(use.getOperandNumber())
                      .getType() == op->getOperand(0).getType()) {
                use.set(op->getOperand(0));
                injected = true;
                return;
              }
          }
        });
      });
    };
    TwinRun run = runTwin(context, model, plan, options);
    EXPECT_TRUE(injected) << "the fault found no place in the program";
    EXPECT_TRUE(!run.error.empty() ||
                !compareRuns(run, expected, getBounds("f64", "adamw")).empty());
  }
}

} // namespace
