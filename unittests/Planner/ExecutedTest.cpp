//===- ExecutedTest.cpp - Plans by their simulated time -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "galvatron/Cost/ProfileLayerModel.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Simulate/Simulate.h"
#include "galvatron/Strategy/DecisionTree.h"

#include "../PaperOptions.h"
#include "../RandomInstances.h"

#include "gtest/gtest.h"

#include <limits>
#include <random>

using namespace galvatron;

namespace {

Cluster clusterOf(int64_t nodes, int64_t devices, double network,
                  const char *backend = "cuda") {
  DeviceType type;
  type.name = "device";
  type.backend = backend;
  type.memory = int64_t(1) << 34;
  type.flops = {{"f32", 1e13}};
  type.memoryBandwidth = 1e12;
  type.overlapSlowdown = type.backend == "cpu" ? 2 : 1.3;
  return llvm::cantFail(Cluster::get("test", {type},
                                     {{nodes, "device", devices, {2e10, 5e-6}}},
                                     Link{network, 1e-5}));
}

std::unique_ptr<ProfileLayerModel> randomModel(std::mt19937_64 &random,
                                               int64_t count) {
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<ProfileLayer> layers;
  int64_t boundary = pick(1, 8) << 17;
  for (int64_t l = 0; l < count; ++l) {
    ProfileLayer layer;
    layer.name = "l" + std::to_string(l);
    layer.forwardFlops = static_cast<double>(pick(20, 60)) * 1e9;
    layer.forwardMovedBytes = static_cast<double>(pick(1, 5)) * 1e7;
    layer.parameterBytes = pick(1, 50) << 20;
    layer.boundaryBytes = boundary;
    layer.intermediateBytes = pick(1, 40) << 20;
    layer.tpAllReduceBytes = 2 * boundary;
    layers.push_back(layer);
  }
  return llvm::cantFail(
      ProfileLayerModel::get("random", "f32", std::move(layers)));
}

/// Simulates a plan anew.
double simulated(LayerModel &model, const Cluster &cluster, const Plan &plan) {
  SimulationInput input = llvm::cantFail(simulationInput(model, cluster, plan));
  return llvm::cantFail(simulate(input)).seconds * 1e3;
}

TEST(Executed, plans_have_the_simulators_time) {
  std::mt19937_64 random(3);
  for (int i = 0; i < instances(12); ++i) {
    auto model = randomModel(random, 6);
    Cluster cluster =
        clusterOf(2, 2, i % 2 ? 1e10 : 5e8, i % 3 ? "cuda" : "cpu");
    PlannerOptions options;
    options.batch = 16;
    Plan plan =
        llvm::cantFail(galvatron::plan(*model, cluster, options)).plan();
    EXPECT_EQ(plan.objective, Objective::Executed);
    EXPECT_NEAR(plan.iterationMs, simulated(*model, cluster, plan),
                1e-9 * plan.iterationMs);
    EXPECT_NEAR(plan.samplesPerSecond * plan.iterationMs, 16e3, 1e-6);
    ASSERT_TRUE(plan.boundMs.has_value());
    EXPECT_LE(plan.iterationMs, *plan.boundMs * (1 + 1e-9));
    // Priced again the same comes out, and Eq. 9 of it is another figure.
    Plan again =
        llvm::cantFail(evaluate(*model, cluster, plan, options.memory)).plan();
    EXPECT_EQ(again.iterationMs, plan.iterationMs);
    again.objective = Objective::Paper;
    again =
        llvm::cantFail(evaluate(*model, cluster, again, options.memory)).plan();
    EXPECT_FALSE(again.boundMs.has_value());
  }
}

/// All plans of one strategy a stage, by their simulated time.
struct Best {
  double ms = std::numeric_limits<double>::infinity();
  int64_t plans = 0;
};
void tryStages(LayerModel &model, const Cluster &cluster, Plan &plan,
               size_t stage, int64_t memory, Best &best) {
  if (stage == plan.stages.size()) {
    auto priced = evaluate(model, cluster, plan, memory);
    if (!priced) {
      llvm::consumeError(priced.takeError());
      return;
    }
    ++best.plans;
    if (priced->feasible())
      best.ms = std::min(best.ms, priced->plan().iterationMs);
    return;
  }
  int64_t rest = static_cast<int64_t>(plan.stages.size() - stage) - 1;
  int64_t begin = plan.stages[stage].firstLayer;
  int64_t left = static_cast<int64_t>(model.layerCount()) - begin;
  auto size = static_cast<int64_t>(plan.stages[stage].devices.size());
  for (int64_t count = rest ? 1 : left; count <= left - rest; ++count) {
    plan.stages[stage].layerCount = count;
    if (rest)
      plan.stages[stage + 1].firstLayer = begin + count;
    for (const Strategy &strategy : enumerateStrategies(size, {})) {
      if (plan.microBatchSamples() % strategy.sampleShards() != 0)
        continue;
      for (int64_t l = begin; l < begin + count; ++l) {
        plan.layers[l].stage = static_cast<int64_t>(stage);
        plan.layers[l].strategy = strategy;
      }
      tryStages(model, cluster, plan, stage + 1, memory, best);
    }
  }
}

/// Nothing is proven of simulated times, so this says how good the answer is:
/// no plan with one strategy a stage is faster by more than a few percent.
TEST(Executed, no_plan_of_uniform_stages_is_much_faster) {
  std::mt19937_64 random(5);
  int pipelines = 0;
  int64_t plans = 0;
  for (int i = 0; i < instances(4, 10); ++i) {
    auto model = randomModel(random, 5);
    Cluster cluster = clusterOf(2, 2, i % 2 ? 1e10 : 5e8);
    PlannerOptions options;
    options.batch = 16;
    options.memory = (i % 3 + 1) * (int64_t(700) << 20);
    PlannerResult result = llvm::cantFail(plan(*model, cluster, options));
    Best best;
    for (int64_t degree : {1, 2, 4})
      for (int64_t microBatches : {1, 2, 4, 8, 16}) {
        Plan plan;
        plan.objective = Objective::Executed;
        plan.batch = 16;
        plan.microBatches = microBatches;
        plan.pipelineDegree = degree;
        for (size_t l = 0; l < model->layerCount(); ++l)
          plan.layers.push_back({model->layerName(l), 0, {}});
        for (const std::vector<int64_t> &devices :
             stageDevices(cluster.deviceCount(), degree)) {
          plan.stages.emplace_back();
          plan.stages.back().devices = devices;
        }
        tryStages(*model, cluster, plan, 0, *options.memory, best);
      }
    plans += best.plans;
    ASSERT_EQ(result.feasible(), std::isfinite(best.ms)) << i;
    if (!result.feasible())
      continue;
    pipelines += result.plan().pipelineDegree > 1;
    EXPECT_LE(result.plan().iterationMs, 1.05 * best.ms) << i;
  }
  EXPECT_GT(pipelines, 0);
  EXPECT_GT(plans, 1000);
}

TEST(Executed, long_steps_continue_as_they_began) {
  std::mt19937_64 random(7);
  for (const char *schedule : {"1f1b", "gpipe"})
    for (int64_t degree : {1, 2, 4}) {
      auto model = randomModel(random, 8);
      Cluster cluster = clusterOf(2, 2, 1e9);
      PlannerOptions options;
      options.batch = 1024;
      options.microBatches = 256;
      options.pipelineDegree = degree;
      options.schedule = &scheduleNamed(schedule);
      options.memory = int64_t(1) << 40;
      Plan plan =
          llvm::cantFail(galvatron::plan(*model, cluster, options)).plan();
      SimulationInput input =
          llvm::cantFail(simulationInput(*model, cluster, plan));
      double whole = llvm::cantFail(simulate(input)).seconds;
      EXPECT_NEAR(llvm::cantFail(simulatedSeconds(input, 4000)), whole,
                  1e-2 * whole);
      EXPECT_EQ(llvm::cantFail(simulatedSeconds(input, 1 << 30)), whole);
    }
}

} // namespace
