//===- HomesTest.cpp - The search over homes of states --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../RandomInstances.h"
#include "../TestSchedule.h"
#include "galvatron/Cost/ProfileLayerModel.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Search/PipelinePartition.h"

#include "gtest/gtest.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>
#include <iostream>
#include <random>
#include <set>

using namespace galvatron;

namespace {

/// Two devices beside a host.
Cluster homeCluster(double hostBandwidth, const char *backend = "cuda") {
  DeviceType type;
  type.name = "device";
  type.backend = backend;
  type.memory = int64_t(1) << 34;
  type.flops = {{"f32", 1e13}};
  type.memoryBandwidth = 1e12;
  type.overlapSlowdown = 1.3;
  type.hostBandwidth = hostBandwidth;
  return llvm::cantFail(Cluster::get(
      "test", {type}, {{1, "device", 2, {2e10, 1e-6}}}, Link{2e10, 1e-6}));
}

std::unique_ptr<ProfileLayerModel> unequalLayers(int64_t count,
                                                 std::mt19937 &random) {
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<ProfileLayer> layers;
  for (int64_t l = 0; l < count; ++l) {
    ProfileLayer layer;
    layer.name = "l" + std::to_string(l);
    layer.forwardFlops = static_cast<double>(pick(1, 8)) * 1e11;
    layer.forwardMovedBytes = 1e7;
    layer.parameterBytes = pick(16, 96) << 20;
    layer.boundaryBytes = pick(1, 4) << 20;
    layer.intermediateBytes = pick(16, 128) << 20;
    layer.tpAllReduceBytes = int64_t(2) << 20;
    layers.push_back(layer);
  }
  return llvm::cantFail(
      ProfileLayerModel::get("unequal", "f32", std::move(layers)));
}

/// Every plan of whole stages with states at every home, priced by evaluate().
struct EveryHome {
  LayerModel &model;
  const Cluster &cluster;
  int64_t memory;
  std::vector<Paradigm> paradigms = {};
  /// Of every layer by itself, if any is given; and what a device may have of
  /// the host.
  std::vector<LayerHome> homes = {};
  int64_t hostShare = std::numeric_limits<int64_t>::max();
  std::vector<const char *> offloads = {
      "off", "optimizer", "optimizer,activations", "all", "all,activations"};
  double bestMs = INFINITY;
  Plan plan = {};

  void cut(int64_t stages, int64_t first, int64_t stage) {
    auto layers = static_cast<int64_t>(model.layerCount());
    if (stage == stages) {
      if (first == layers)
        choose(0);
      return;
    }
    for (int64_t size = 1; first + size <= layers; ++size) {
      PlanStage &home = plan.stages[stage];
      home.firstLayer = first;
      home.layerCount = size;
      for (int64_t l = first; l < first + size; ++l)
        plan.layers[l] = {model.layerName(l), stage, Strategy()};
      cut(stages, first + size, stage + 1);
    }
  }

  void choose(size_t layer) {
    if (layer == plan.layers.size()) {
      if (!homes.empty())
        plan.offload = plan.homesOfLayers();
      auto priced = evaluate(model, cluster, plan, memory);
      if (!priced)
        llvm::consumeError(priced.takeError());
      else if (priced->feasible() &&
               llvm::all_of(priced->plan().stages, [&](const PlanStage &stage) {
                 return stage.hostLedger.total() <= hostShare;
               }))
        bestMs = std::min(bestMs, priced->plan().iterationMs);
      return;
    }
    auto size = static_cast<int64_t>(
        plan.stages[plan.layers[layer].stage].devices.size());
    SpaceOptions trees;
    if (!paradigms.empty())
      trees.paradigms = ParadigmSet(paradigms);
    for (const Strategy &strategy : enumerateStrategies(size, trees)) {
      if (plan.microBatchSamples() % strategy.sampleShards() != 0)
        continue;
      for (LayerHome home : homes.empty() ? std::vector<LayerHome>(1) : homes) {
        plan.layers[layer].strategy = strategy.withHome(home);
        choose(layer + 1);
      }
    }
  }

  void run(int64_t batch) {
    if (!homes.empty())
      offloads = {"off"};
    for (const char *home : offloads)
      for (int64_t stages : {1, 2})
        for (int64_t m = 1; m <= batch; m *= 2) {
          plan = Plan();
          plan.objective = Objective::Executed;
          plan.schedule = &scheduleNamed("1f1b");
          plan.offload = llvm::cantFail(parseOffload(home));
          plan.batch = batch;
          plan.microBatches = m;
          plan.pipelineDegree = stages;
          plan.layers.resize(model.layerCount());
          plan.stages.resize(stages);
          for (int64_t s = 0, next = 0; s < stages; ++s)
            for (int64_t d = 0; d < 2 / stages; ++d)
              plan.stages[s].devices.push_back(next++);
          cut(stages, 0, 0);
        }
  }
};

/// From where little fits to where everything does, over links of two speeds.
TEST(Homes, are_searched_against_every_plan) {
  std::mt19937 random(11);
  std::set<std::string> taken;
  int equal = 0, count = instances(5, 4);
  for (int i = 0; i < count; ++i) {
    auto model = unequalLayers(3, random);
    Cluster cluster = homeCluster(i % 2 ? 6e10 : 1.2e10);
    PlannerOptions options;
    options.batch = 4;
    options.anyOffload = true;
    options.schedule = &scheduleNamed("1f1b");
    options.paradigms = {Paradigm::DP, Paradigm::SDP, Paradigm::TP};
    // Of what everything on the devices takes, from a quarter.
    int64_t budget = 0;
    for (size_t l = 0; l < model->layerCount(); ++l) {
      auto footprint =
          llvm::cantFail(model->footprint(model->kindOf(l), Strategy(), 4));
      budget += footprint.parameterBytes + footprint.gradientBytes +
                footprint.optimizerBytes;
    }
    options.memory = budget * (1 + i % 5) / 4;
    EveryHome every{*model, cluster, *options.memory};
    every.run(*options.batch);
    PlannerResult found = llvm::cantFail(plan(*model, cluster, options));
    ASSERT_EQ(found.feasible(), std::isfinite(every.bestMs)) << i;
    if (!found.feasible())
      continue;
    taken.insert(offloadName(found.plan().offload));
    double ms = found.plan().iterationMs;
    // Whatever the home, nothing is faster than the answer says.
    ASSERT_TRUE(found.plan().gapPercent) << i;
    EXPECT_LE(ms / (1 + *found.plan().gapPercent / 100),
              every.bestMs * (1 + 1e-9))
        << i;
    // Homes of single layers may be faster. Without them, of what is searched
    // by a heuristic, 15 of 17 that fit are the best, the others 0.2% slower.
    EXPECT_LE(ms, every.bestMs * 1.005) << i;
    equal += ms <= every.bestMs * (1 + 1e-9); // or faster
  }
  EXPECT_GE(taken.size(), 2u);
  EXPECT_GE(equal, 3 * count / 5);
}

/// What is proven of one home, beside every plan with it, and how wide the gaps
/// are.
TEST(Homes, have_bounds_that_no_plan_is_below) {
  std::mt19937 random(17);
  std::vector<double> gaps;
  int count = instances(24, 20);
  for (int i = 0; i < count; ++i) {
    auto model = unequalLayers(3, random);
    Cluster cluster = homeCluster(i % 2 ? 6e10 : 1.2e10);
    const char *homes[] = {"optimizer", "optimizer,activations", "all",
                           "all,activations"};
    PlannerOptions options;
    options.batch = 4;
    options.schedule = &scheduleNamed("1f1b");
    options.offload = llvm::cantFail(parseOffload(homes[i % 4]));
    options.paradigms = {Paradigm::DP, Paradigm::SDP};
    int64_t states = 0;
    for (size_t l = 0; l < model->layerCount(); ++l) {
      auto footprint =
          llvm::cantFail(model->footprint(model->kindOf(l), Strategy(), 4));
      states += footprint.parameterBytes + footprint.gradientBytes +
                footprint.optimizerBytes;
    }
    options.memory = states * (2 + i % 5) / 6;
    EveryHome every{*model, cluster, *options.memory, options.paradigms};
    every.offloads = {homes[i % 4]};
    every.run(*options.batch);
    PlannerResult found = llvm::cantFail(plan(*model, cluster, options));
    if (!found.feasible())
      continue;
    ASSERT_TRUE(found.plan().gapPercent) << i;
    double gap = *found.plan().gapPercent;
    EXPECT_GE(gap, 0) << i;
    EXPECT_LE(found.plan().iterationMs / (1 + gap / 100),
              every.bestMs * (1 + 1e-9))
        << i;
    gaps.push_back(gap);
  }
  ASSERT_GE(gaps.size(), size_t(count / 2));
  llvm::sort(gaps);
  std::cout << "gaps of " << gaps.size() << " plans with a home: median "
            << gaps[gaps.size() / 2] << "%, nine of ten at most "
            << gaps[gaps.size() * 9 / 10] << "%, largest " << gaps.back()
            << "%\n";
  // A bound that has lost a term says less.
  EXPECT_LT(gaps[gaps.size() / 2], 60);
}

/// Every layer by itself, with hosts that hold some of it: whatever there is,
/// what is executed fastest lies within the gap that is told, and nothing fits
/// exactly where nothing does.
TEST(Homes, of_layers_agree_with_every_plan) {
  std::mt19937 random(20);
  int fitting = 0, equal = 0, away = 0, count = instances(6, 20);
  for (int i = 0; i < count; ++i) {
    auto model = unequalLayers(3, random);
    bool streams = i % 3 == 2;
    Cluster cluster =
        homeCluster(i % 2 ? 6e10 : 1.2e10, streams ? "cuda" : "cpu");
    PlannerOptions options;
    options.batch = 4;
    options.schedule = &scheduleNamed("1f1b");
    options.offload = Offload::Layers;
    options.offload.activations = !streams;
    options.paradigms = {Paradigm::DP};
    if (streams)
      options.paradigms = {Paradigm::DP, Paradigm::SDP, Paradigm::TP};
    int64_t states = 0;
    for (size_t l = 0; l < model->layerCount(); ++l) {
      auto footprint =
          llvm::cantFail(model->footprint(model->kindOf(l), Strategy(), 4));
      states += footprint.parameterBytes + footprint.gradientBytes +
                footprint.optimizerBytes;
    }
    options.memory = states * (3 + i % 5) / 6;
    EveryHome every{*model, cluster, *options.memory, options.paradigms};
    every.homes = {{}, {/*states=*/true, false}};
    if (!streams)
      every.homes.insert(every.homes.end(), {{false, true}, {true, true}});
    if (i % 2) {
      options.hostMemory = states * (1 + i % 4) / 4;
      every.hostShare = *options.hostMemory / 2;
    }
    every.run(*options.batch);
    PlannerResult found = llvm::cantFail(plan(*model, cluster, options));
    ASSERT_EQ(found.feasible(), std::isfinite(every.bestMs)) << i;
    if (!found.feasible())
      continue;
    const Plan &best = found.plan();
    ++fitting;
    away += best.offload.byLayer();
    EXPECT_GE(best.iterationMs, every.bestMs * (1 - 1e-9)) << i;
    ASSERT_TRUE(best.gapPercent) << i;
    EXPECT_GE(every.bestMs * (1 + *best.gapPercent / 100),
              best.iterationMs * (1 - 1e-6))
        << i;
    equal += best.iterationMs <= every.bestMs * (1 + 1e-9);
    for (const PlanStage &stage : best.stages)
      EXPECT_LE(stage.hostLedger.total(), every.hostShare)
          << i << ": " << best.summary() << best.foundBy
          << llvm::join(found.decisions, "\n");
    RecordProperty("found-" + std::to_string(i),
                   std::to_string(best.iterationMs / every.bestMs));
  }
  EXPECT_GE(away, count / 4);
  // Of 103 that fit in the long run two are 0.24% and 0.10% slower.
  EXPECT_GE(equal, fitting * 9 / 10);
}

TEST(Homes, what_is_asked_for_by_name_is_no_faster) {
  std::mt19937 random(3);
  auto model = unequalLayers(8, random);
  Cluster cluster = homeCluster(3e10);
  PlannerOptions options;
  options.batch = 8;
  options.schedule = &scheduleNamed("interleaved");
  options.memory = int64_t(1200) << 20;
  options.anyOffload = true;
  PlannerResult any = llvm::cantFail(plan(*model, cluster, options));
  ASSERT_TRUE(any.feasible());
  options.anyOffload = false;
  int fitting = 0;
  for (const char *home : {"off", "optimizer", "all", "all,activations"}) {
    options.offload = llvm::cantFail(parseOffload(home));
    PlannerResult one = llvm::cantFail(plan(*model, cluster, options));
    if (!one.feasible())
      continue;
    ++fitting;
    EXPECT_LE(any.plan().iterationMs, one.plan().iterationMs * (1 + 1e-9))
        << home;
  }
  EXPECT_GE(fitting, 2);
}

} // namespace
