//===- PlacementTest.cpp - Stages on any devices --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A plan names the devices of its stages, in any order and groups of any size:
// the program computes what one rank computes, and what the same plan does on
// consecutive devices.
//
//===----------------------------------------------------------------------===//

#include "GraphModels.h"
#include "Twin.h"

#include "galvatron/Footprint/IRLayerModel.h"
#include "galvatron/Import/HuggingFace.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

#include <filesystem>
#include <numeric>
#include <unistd.h>

using namespace galvatron;
using namespace galvatron::test;

namespace {

int numberOf(int normally, int inLongRuns) {
  return std::getenv("GALVATRON_LONG") ? inLongRuns : normally;
}

class PlacementTest : public ::testing::Test {
protected:
  PlacementTest() { loadTwinDialects(context); }

  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  }

  /// Deals the ranks of a plan to its stages, `sizes` each, in random order.
  void deal(TwinPlan &plan, llvm::ArrayRef<int64_t> sizes) {
    std::vector<int64_t> ranks(
        std::accumulate(sizes.begin(), sizes.end(), int64_t(0)));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), generator);
    auto next = ranks.begin();
    plan.devices.clear();
    for (int64_t size : sizes) {
      plan.devices.emplace_back(next, next + size);
      next += size;
    }
  }

  /// Stages of 1 to 4 devices, a random strategy for every layer.
  TwinPlan unequalPlan(const TwinModel &model) {
    TwinPlan plan;
    plan.batch = 24;
    plan.microBatches = pick(1, 2);
    plan.schedule = pick(0, 1) ? "1f1b" : "gpipe";
    int64_t layers = model.modelLayers(), stages = pick(2, 4);
    plan.stageLayers.assign(stages, 1);
    for (int64_t left = layers - stages; left > 0; --left)
      ++plan.stageLayers[pick(0, stages - 1)];
    std::vector<int64_t> sizes;
    for (int64_t s = 0; s < stages; ++s)
      sizes.push_back(pick(1, 4));
    if (llvm::all_equal(sizes))
      sizes.front() = sizes.front() % 4 + 1;
    deal(plan, sizes);
    for (auto [size, count] : llvm::zip_equal(sizes, plan.stageLayers)) {
      std::vector<Strategy> all = enumerateStrategies(size, {});
      // Eight heads are not cut in three.
      llvm::erase_if(all, [](const Strategy &strategy) {
        return 8 % strategy.degree(Paradigm::TP) != 0;
      });
      for (int64_t l = 0; l < count; ++l)
        plan.strategies.push_back(all[pick(0, int64_t(all.size()) - 1)]);
    }
    return plan;
  }

  void expectTwins(const TwinModel &model, const TwinPlan &plan,
                   const TwinOptions &options) {
    SCOPED_TRACE(plan.str() + " " + options.dtype + " on " + options.backend);
    TwinOptions alone = options;
    alone.backend = "cpu";
    std::string key = model.config() + model.text + options.dtype +
                      options.optimizer + std::to_string(plan.batch);
    auto [entry, inserted] = references.try_emplace(key);
    if (inserted)
      entry->second =
          runTwin(context, model, singleRank(model, plan.batch), alone);
    ASSERT_EQ(entry->second.error, "");
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
    if (options.backend == "cpu")
      EXPECT_EQ(checkMemory(run), "");
    EXPECT_EQ(compareRuns(run, entry->second,
                          getBounds(options.dtype, options.optimizer)),
              "");
  }

  mlir::MLIRContext context;
  std::map<std::string, TwinRun> references;
  std::mt19937 generator{15};
};

/// Only the order in which partial norms and losses are added differs: by rank.
TEST_F(PlacementTest, EqualGroupsDoWhatConsecutiveOnesDo) {
  TwinModel model;
  TwinOptions options;
  options.clip = false;
  for (int i = 0; i < numberOf(4, 40); ++i) {
    TwinPlan plan = randomPlan(model, generator);
    TwinRun consecutive = runTwin(context, model, plan, options);
    TwinPlan placed = plan;
    deal(placed,
         std::vector<int64_t>(plan.stageLayers.size(), plan.devicesPerStage));
    SCOPED_TRACE(placed.str());
    TwinRun run = runTwin(context, model, placed, options);
    ASSERT_EQ(consecutive.error, "");
    ASSERT_EQ(run.error, "");
    ASSERT_EQ(run.losses.size(), consecutive.losses.size());
    for (auto [loss, expected] : llvm::zip(run.losses, consecutive.losses))
      EXPECT_NEAR(loss, expected, 1e-14 * expected);
    for (const auto &[name, tensor] : consecutive.parameters)
      EXPECT_EQ(run.parameters[name].values, tensor.values) << name;
    // Every rank has the memory of its stage.
    int64_t rank = 0;
    for (const std::vector<int64_t> &stage : placed.devices)
      for (int64_t device : stage)
        EXPECT_EQ(run.memory[device].plannedPeakBytes,
                  consecutive.memory[rank++].plannedPeakBytes);
  }
}

TEST_F(PlacementTest, UnequalGroups) {
  TwinModel model;
  for (int i = 0; i < numberOf(10, 100) && !HasFatalFailure(); ++i) {
    TwinPlan plan = unequalPlan(model);
    for (const std::string &optimizer : optimizersInTurn(size_t(i))) {
      TwinOptions options;
      options.optimizer = optimizer;
      expectTwins(model, plan, options);
    }
  }
}

/// Streams, events and gathers ahead of stages of several sizes.
TEST_F(PlacementTest, UnequalGroupsWithStreams) {
  TwinModel model;
  TwinOptions options;
  options.backend = "cuda";
  for (int i = 0; i < numberOf(3, 20) && !HasFatalFailure(); ++i)
    expectTwins(model, unequalPlan(model), options);
}

/// Several tensors cross the cuts, some for later stages.
TEST_F(PlacementTest, GraphsOnUnequalGroups) {
  for (const GraphModel &graph :
       {skipGraph(), pairGraph(), encoderDecoderGraph()})
    for (int i = 0; i < numberOf(2, 12) && !HasFatalFailure(); ++i) {
      TwinModel model = graph.asLayers();
      TwinPlan plan = unequalPlan(model);
      plan.microBatches = 2;
      expectTwins(model, plan, {});
    }
}

/// A node of fast devices and one of slow ones with less memory.
Cluster mixedCluster(int64_t fast, int64_t slow, double slowFlops) {
  std::string text =
      "name: mixed\n"
      "device-types:\n"
      "  - {name: fast, backend: cpu, memory: 64MiB, flops: {f64: 8GFLOPS}, "
      "memory-bandwidth: 9GB/s}\n"
      "  - {name: slow, backend: cpu, memory: 48MiB, flops: {f64: " +
      std::to_string(slowFlops) +
      "GFLOPS}, memory-bandwidth: 6GB/s}\n"
      "nodes:\n"
      "  - {count: 1, device-type: slow, devices: " +
      std::to_string(slow) +
      ", link: {bandwidth: 2GB/s, latency: 3us}}\n"
      "  - {count: 1, device-type: fast, devices: " +
      std::to_string(fast) +
      ", link: {bandwidth: 3GB/s, latency: 2us}}\n"
      "network: {bandwidth: 1GB/s, latency: 9us}\n";
  return llvm::cantFail(Cluster::parse(text, "mixed.yaml"));
}

/// What the search finds for mixed clusters: which devices form which stage is
/// its own choice.
TEST_F(PlacementTest, PlansOfMixedClusters) {
  TwinModel model;
  ImportOptions import;
  import.dtype = "f64";
  auto module = llvm::cantFail(
      importHuggingFaceConfig(model.config(), "config.json", import, context));
  std::unique_ptr<LayerModel> layers =
      llvm::cantFail(createIRLayerModel(*module, "adamw", {}));
  int unequal = 0, found = 0;
  for (int i = 0; i < numberOf(12, 60) && !HasFatalFailure(); ++i) {
    int64_t fast = pick(1, 4), slow = pick(1, 3);
    Cluster cluster = mixedCluster(fast, slow, double(pick(20, 80)) / 10);
    PlannerOptions options;
    options.batch = 24;
    options.training.dtype = "f64";
    options.objective = pick(0, 1) ? Objective::Executed : Objective::Paper;
    // Whole batches too: pipelines would always be cheap.
    options.microBatches = int64_t(1) << pick(0, 2);
    // Every other plan has stages.
    if (i % 2)
      options.pipelineDegree = pick(2, std::min<int64_t>(3, fast + slow));
    options.groups = Groups::Any;
    PlannerResult result = llvm::cantFail(plan(*layers, cluster, options));
    if (!result.feasible())
      continue;
    ++found;
    const Plan &best = result.plan();
    TwinPlan twin;
    twin.batch = best.batch;
    twin.microBatches = best.microBatches;
    for (const PlanStage &stage : best.stages) {
      twin.stageLayers.push_back(stage.layerCount);
      twin.devices.push_back(stage.devices);
      unequal += stage.devices.size() != best.stages.front().devices.size();
    }
    for (const PlanLayer &layer : best.layers)
      twin.strategies.push_back(layer.strategy);
    expectTwins(model, twin, {});
  }
  EXPECT_GT(found, 8);
  EXPECT_GT(unequal, 3);
}

/// A checkpoint of one placement is read under another.
TEST_F(PlacementTest, CheckpointsKnowNoPlacement) {
  TwinModel model;
  std::string base =
      access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : ::testing::TempDir();
  std::string folder = base + "placement-twin-" + std::to_string(getpid());
  TwinOptions options;
  TwinRun expected = runTwin(context, model, singleRank(model, 24), options);
  for (int i = 0; i < numberOf(2, 10); ++i) {
    TwinPlan from = unequalPlan(model), to = unequalPlan(model);
    SCOPED_TRACE(from.str() + " to " + to.str());
    std::filesystem::remove_all(folder);
    TwinRun run =
        runResumedTwin(context, model, from, to, /*before=*/3, folder, options);
    EXPECT_EQ(run.error, "");
    EXPECT_EQ(compareRuns(run, expected, getBounds("f64", "adamw")), "");
  }
  std::filesystem::remove_all(folder);
}

} // namespace
