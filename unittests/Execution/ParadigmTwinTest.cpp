//===- ParadigmTwinTest.cpp - Paradigms that only tests have --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A paradigm is a descriptor: those added here go through search, ledger,
// compilation and execution, and no pass knows of them.
//
//===----------------------------------------------------------------------===//

#include "../TestParadigms.h"
#include "Twin.h"

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Footprint/IRLayerModel.h"
#include "galvatron/Import/HuggingFace.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

using namespace galvatron;
using namespace galvatron::test;

namespace {

class ParadigmTwinTest : public ::testing::Test {
protected:
  ParadigmTwinTest() { loadTwinDialects(context); }

  bool isAdded(Paradigm paradigm) const {
    return paradigm == added.replicated || paradigm == added.sharded ||
           paradigm == added.optimizer;
  }

  /// Strategies of so many devices in which a paradigm of the test stands.
  std::vector<Strategy> strategiesOf(int64_t devices) const {
    SpaceOptions space;
    space.paradigms = ParadigmSet(ParadigmRegistry::all());
    space.paradigms.erase(added.context);
    std::vector<Strategy> all = enumerateStrategies(devices, space);
    llvm::erase_if(all, [&](const Strategy &strategy) {
      return llvm::none_of(strategy.levels(), [&](const Level &level) {
        return isAdded(level.paradigm);
      });
    });
    return all;
  }

  /// Returns the run, to be compared with what was planned.
  TwinRun expectTwins(const TwinModel &model, const TwinPlan &plan,
                      const TwinOptions &options) {
    SCOPED_TRACE(plan.str() + " " + options.optimizer);
    const TwinRun &expected = references.of(model, options, plan.batch);
    EXPECT_EQ(expected.error, "");
    TwinRun run = runTwin(context, model, plan, options);
    EXPECT_EQ(run.error, "");
    EXPECT_EQ(checkMemory(run), "");
    EXPECT_EQ(
        compareRuns(run, expected, getBounds(options.dtype, options.optimizer)),
        "");
    return run;
  }

  std::unique_ptr<LayerModel> layersOf(const TwinModel &model) {
    ImportOptions import;
    import.dtype = "f64";
    module = llvm::cantFail(importHuggingFaceConfig(
        model.config(), "config.json", import, context));
    return llvm::cantFail(createIRLayerModel(*module, "adamw", {}));
  }

  static PlannerOptions optionsOf(int64_t batch) {
    PlannerOptions options;
    options.batch = batch;
    options.training.dtype = "f64";
    return options;
  }

  static Cluster cpus(int64_t count) {
    return llvm::cantFail(Cluster::parse(
        "name: cpus\n"
        "device-types:\n"
        "  - {name: core, backend: cpu, memory: 64MiB, flops: {f64: 8GFLOPS}, "
        "memory-bandwidth: 9GB/s}\n"
        "nodes:\n"
        "  - {count: 1, device-type: core, devices: " +
            std::to_string(count) +
            ", link: {bandwidth: 3GB/s, latency: 2us}}\n"
            "network: {bandwidth: 1GB/s, latency: 9us}\n",
        "cpus.yaml"));
  }

  /// Trains by a plan that was found, and compares what ranks hold with it.
  void expectExecuted(const TwinModel &model, const Plan &plan) {
    TwinPlan twin;
    twin.batch = plan.batch;
    twin.microBatches = plan.microBatches;
    for (const PlanStage &stage : plan.stages) {
      twin.stageLayers.push_back(stage.layerCount);
      twin.devices.push_back(stage.devices);
    }
    for (const PlanLayer &layer : plan.layers)
      twin.strategies.push_back(layer.strategy);
    TwinRun run = expectTwins(model, twin, {});
    if (!run.error.empty())
      return;
    for (const PlanStage &stage : plan.stages)
      for (int64_t device : stage.devices)
        EXPECT_EQ(int64_t(run.memory[device].plannedPeakBytes),
                  stage.ledger.total())
            << "rank " << device;
  }

  const TestParadigms &added = TestParadigms::get();
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  References references{context};
};

/// Two stages of two and one of four ranks: alone, beside paradigms that were
/// there, and checkpointed.
TEST_F(ParadigmTwinTest, EveryStrategyOfFourRanks) {
  TwinModel model;
  size_t tried = 0;
  for (int64_t stages : {2, 1})
    for (const Strategy &strategy : strategiesOf(4 / stages)) {
      TwinOptions options;
      options.optimizer = ++tried % 4 ? "adamw" : "sgd";
      expectTwins(model, uniformPlan(model, stages, strategy, 16, 2, "1f1b"),
                  options);
    }
  // Of two ranks rep, fsd, osd; of four these, and with two levels fsd and osd
  // beside tp, tsp and rep, fsd beside scp, sup and sring, osd beside zcp, and
  // rep beside dp, sdp, zdp, cp, scp, zcp, up, sup, ring and sring, in both
  // orders. All are there with recomputation, too.
  EXPECT_EQ(tried, 2 * (3 + 3 + 2 * (10 + 10)));
}

/// Ranks of an axis that splits nothing of the body compute the same, dropout
/// in attention included, which ranks of tensor parallelism number their heads
/// for.
TEST_F(ParadigmTwinTest, AnAxisWithoutFactors) {
  TwinModel model;
  for (const char *text : {"ctx2.fsd2", "dp2.ctx2.ckpt"})
    expectTwins(model,
                uniformPlan(model, 1, llvm::cantFail(Strategy::parse(text)), 16,
                            2, "1f1b"),
                {});
}

/// Neighbours differ, so boundaries reshard between layouts, and both ends of
/// the tied embedding have paradigms of the test.
TEST_F(ParadigmTwinTest, MixedPlans) {
  TwinModel model;
  std::mt19937 generator(13);
  std::vector<Strategy> mine = strategiesOf(4);
  SpaceOptions others = allStrategies();
  std::vector<Strategy> known = enumerateStrategies(4, others);
  for (int i = 0; i < (std::getenv("GALVATRON_LONG") ? 40 : 4); ++i) {
    TwinPlan plan = uniformPlan(model, 1 + i % 2, mine.front(), 16, 2, "gpipe");
    plan.devicesPerStage = 4;
    for (size_t l = 0; l < plan.strategies.size(); ++l) {
      bool isEnd = l == 0 || l + 1 == plan.strategies.size();
      const std::vector<Strategy> &from = isEnd || l % 2 ? mine : known;
      plan.strategies[l] = from[generator() % from.size()];
    }
    expectTwins(model, plan, {});
  }
}

/// Streams, gathers ahead of layers and sums beside them, in the order that the
/// recording backend checks.
TEST_F(ParadigmTwinTest, OnDevicesWithStreams) {
  TwinModel model;
  TwinOptions options, alone;
  options.backend = "cuda";
  for (const char *text : {"fsd2.rep2", "rep2.osd2", "fsd4"}) {
    TwinPlan plan = uniformPlan(model, 1, llvm::cantFail(Strategy::parse(text)),
                                16, 2, "1f1b");
    SCOPED_TRACE(plan.str());
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
    EXPECT_EQ(compareRuns(run, references.of(model, alone, plan.batch),
                          getBounds("f64", "adamw")),
              "");
  }
}

/// One sample and three heads: two ranks can divide neither, so without
/// `rep` nothing can be planned for them.
TEST_F(ParadigmTwinTest, TheSearchFindsAPlanThatOnlyItAllows) {
  TwinModel model;
  model.heads = 3;
  model.width = 24;
  std::unique_ptr<LayerModel> layers = layersOf(model);
  PlannerOptions options = optionsOf(1);
  options.pipelineDegree = 1;
  options.paradigms = {Paradigm::DP, Paradigm::SDP, Paradigm::TP,
                       Paradigm::ZDP};
  Cluster cluster = cpus(2);
  PlannerResult before = llvm::cantFail(plan(*layers, cluster, options));
  EXPECT_FALSE(before.feasible());
  options.paradigms.clear();
  PlannerResult found = llvm::cantFail(plan(*layers, cluster, options));
  ASSERT_TRUE(found.feasible());
  for (const PlanLayer &layer : found.plan().layers)
    EXPECT_EQ(layer.strategy.degree(added.replicated), 2)
        << layer.strategy.str();
  expectExecuted(model, found.plan());
}

/// A paradigm with the properties of another one has its plans: the same time
/// and memory, which are those of the run.
TEST_F(ParadigmTwinTest, EqualPropertiesGiveEqualPlans) {
  TwinModel model;
  std::unique_ptr<LayerModel> layers = layersOf(model);
  Cluster cluster = cpus(4);
  struct Pair {
    Paradigm known, mine;
  };
  for (Pair pair : {Pair{Paradigm::SDP, added.sharded},
                    Pair{Paradigm::ZDP, added.optimizer}}) {
    std::optional<Plan> plans[2];
    for (int i : {0, 1}) {
      PlannerOptions options = optionsOf(16);
      options.pipelineDegree = 2;
      options.microBatches = 2;
      options.paradigms = {i ? pair.mine : pair.known, Paradigm::TP};
      PlannerResult result = llvm::cantFail(plan(*layers, cluster, options));
      ASSERT_TRUE(result.feasible());
      plans[i] = result.plan();
    }
    EXPECT_EQ(plans[0]->iterationMs, plans[1]->iterationMs);
    bool used = false;
    for (auto [known, mine] :
         llvm::zip_equal(plans[0]->layers, plans[1]->layers)) {
      EXPECT_EQ(known.strategy.degree(pair.known),
                mine.strategy.degree(pair.mine));
      used |= mine.strategy.degree(pair.mine) > 1;
    }
    EXPECT_TRUE(used);
    for (auto [known, mine] :
         llvm::zip_equal(plans[0]->stages, plans[1]->stages))
      EXPECT_EQ(known.ledger.total(), mine.ledger.total());
    expectExecuted(model, *plans[1]);
  }
}

} // namespace
