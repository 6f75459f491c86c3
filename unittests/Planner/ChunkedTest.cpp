//===- ChunkedTest.cpp - Plans with several chunks a stage ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "BusyBound.h"
#include "ChunkedProblem.h"
#include "ChunkedSearch.h"
#include "Executed.h"
#include "ExecutedModels.h"
#include "RandomModel.h"
#include "StageRepair.h"
#include "galvatron/Cost/ProfileLayerModel.h"
#include "galvatron/Planner/Gap.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Simulate/Simulate.h"
#include "galvatron/Support/Cancellation.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include "gtest/gtest.h"

#include <random>
#include <set>

using namespace galvatron;

namespace {

Cluster chunkCluster(int64_t devices, double bandwidth = 2e11) {
  DeviceType type;
  type.name = "device";
  type.backend = "cuda";
  type.memory = int64_t(1) << 34;
  type.flops = {{"f32", 1e13}};
  type.memoryBandwidth = 1e12;
  type.overlapSlowdown = 1.3;
  return llvm::cantFail(
      Cluster::get("test", {type}, {{1, "device", devices, {bandwidth, 1e-6}}},
                   Link{bandwidth, 1e-6}));
}

std::unique_ptr<ProfileLayerModel> layersWith(
    int64_t count,
    llvm::function_ref<void(int64_t index, ProfileLayer &layer)> change) {
  std::vector<ProfileLayer> layers;
  for (int64_t l = 0; l < count; ++l) {
    ProfileLayer layer;
    layer.name = "l" + std::to_string(l);
    layer.forwardFlops = 4e11;
    layer.forwardMovedBytes = 1e7;
    layer.parameterBytes = int64_t(64) << 20;
    layer.boundaryBytes = int64_t(1) << 20;
    layer.intermediateBytes = int64_t(32) << 20;
    layer.tpAllReduceBytes = int64_t(2) << 20;
    change(l, layer);
    layers.push_back(layer);
  }
  return llvm::cantFail(
      ProfileLayerModel::get("equal", "f32", std::move(layers)));
}

std::unique_ptr<ProfileLayerModel> equalLayers(int64_t count) {
  return layersWith(count, [](int64_t, ProfileLayer &) {});
}

PlannerOptions chunkOptions(int64_t batch, int64_t chunks = 0) {
  PlannerOptions options;
  options.batch = batch;
  options.schedule = &scheduleNamed("interleaved");
  options.chunks = chunks;
  return options;
}

std::string errorOf(const PlannerOptions &options) {
  auto model = equalLayers(8);
  auto result = plan(*model, chunkCluster(4), options);
  return result ? "" : llvm::toString(result.takeError());
}

TEST(Chunked, plans_are_sound_and_simulated) {
  auto model = equalLayers(13);
  Cluster cluster = chunkCluster(4);
  for (int64_t chunks : {2, 3})
    for (int64_t microBatches : {4, 6}) {
      PlannerOptions options = chunkOptions(24, chunks);
      options.microBatches = microBatches;
      Plan found = llvm::cantFail(plan(*model, cluster, options)).plan();
      EXPECT_EQ(llvm::toString(found.check()), "");
      EXPECT_EQ(found.chunksPerStage(), chunks);
      EXPECT_EQ(found.foundBy, "heuristic");
      // 13 layers are no equal chunks, which a mean of stages does not see.
      ASSERT_TRUE(found.gapPercent.has_value());
      EXPECT_GT(*found.gapPercent, 0);
      EXPECT_LT(*found.gapPercent, 40);
      SimulationInput input =
          llvm::cantFail(simulationInput(*model, cluster, found));
      double simulated = llvm::cantFail(simulate(input)).seconds * 1e3;
      EXPECT_NEAR(found.iterationMs, simulated, 1e-6 * simulated);
      StepBounds bounds = stepBounds(input);
      EXPECT_LE(bounds.lower * 1e3, simulated * (1 + 1e-9));
      EXPECT_GE(bounds.upper * 1e3, simulated * (1 - 1e-9));
      for (const PlanStage &stage : found.stages)
        EXPECT_EQ(stage.peakBytes, stage.ledger.total());
      // Written and read again it is the same.
      Plan read = llvm::cantFail(Plan::fromJson(found.toJson()));
      ASSERT_EQ(read.stages.size(), found.stages.size());
      for (size_t s = 0; s < read.stages.size(); ++s)
        EXPECT_EQ(read.stages[s].layers(), found.stages[s].layers());
    }
}

/// Groups of devices of a pipeline's stages: equal ones, in both orders, and
/// two that are not equal.
std::vector<std::vector<std::vector<int64_t>>>
groupsOf(const Cluster &cluster) {
  std::vector<std::vector<std::vector<int64_t>>> all;
  for (int64_t degree : {2, 4})
    if (cluster.deviceCount() % degree == 0)
      all.push_back(stageDevices(cluster.deviceCount(), degree));
  if (cluster.deviceCount() == 4)
    all.insert(all.end(), {{{2, 3}, {0, 1}}, {{0}, {1, 2, 3}}});
  return all;
}

/// Of random plans of a model: no row of their shape's problem is longer than
/// their step, no home fuller than their stages, and no shape's bound above
/// what any of its plans takes. Returns the largest part of a step that a row
/// was.
double expectHomesHold(LayerModel &model, const Cluster &cluster,
                       const char *schedule, uint64_t seed,
                       const char *offload = "off") {
  std::mt19937_64 random(seed);
  auto pick = [&](size_t count) {
    return static_cast<size_t>(random() % count);
  };
  PlannerOptions options;
  options.schedule = &scheduleNamed(schedule);
  options.batch = 8;
  options.offload = llvm::cantFail(parseOffload(offload));
  if (planner::chunksOf(options) > 1)
    options.chunks = 2;
  const int64_t chunks = planner::chunksOf(options);
  planner::Space space =
      llvm::cantFail(planner::getSpace(options, cluster.deviceCount()));
  auto layers = static_cast<int64_t>(model.layerCount());
  double largest = 0, leastMs = 0;
  // Of all shapes.
  if (auto chosen = plan(model, cluster, options);
      chosen && chosen->feasible() && chosen->plan().gapPercent)
    leastMs =
        chosen->plan().iterationMs / (1 + *chosen->plan().gapPercent / 100);
  else
    llvm::consumeError(chosen.takeError());
  for (const auto &groups : groupsOf(cluster)) {
    const auto degree = static_cast<int64_t>(groups.size());
    if (chunks * degree > layers)
      continue;
    planner::BusyBound times(model, cluster, *options.schedule, chunks);
    times.setAnyGroups();
    for (int64_t microBatches : {1, 2, 4, 8}) {
      Plan plan;
      plan.schedule = options.schedule;
      plan.objective = Objective::Executed;
      plan.batch = 8;
      plan.microBatches = microBatches;
      plan.pipelineDegree = degree;
      plan.offload = options.offload;
      for (const std::vector<int64_t> &devices : groups)
        plan.stages.emplace_back().devices = devices;
      if (llvm::Error refused = options.schedule->check(ScheduleShape::of(
              degree, microBatches, chunks, options.offload))) {
        llvm::consumeError(std::move(refused));
        continue;
      }
      std::optional<planner::ChunkedProblem> problem =
          planner::ChunkedProblem::make(model, cluster, options, space, plan,
                                        times);
      if (!problem)
        continue;
      constexpr double noLimit = std::numeric_limits<double>::infinity();
      HomesSearch search(problem->homes, noLimit, 60);
      for (int nodes = 0; nodes < 10 && search.branch(noLimit);)
        ++nodes;
      double least = search.least();
      for (int tries = 0; tries < 6; ++tries) {
        std::vector<int64_t> sizes(chunks * degree, 1);
        for (int64_t extra = chunks * degree; extra < layers; ++extra)
          ++sizes[pick(sizes.size())];
        Plan own = plan;
        ScheduleShape shape{degree, microBatches, chunks};
        std::vector<std::vector<LayerRange>> ranges(degree);
        std::vector<uint32_t> choice;
        for (size_t c = 0; c < sizes.size(); ++c) {
          int64_t home = plan.schedule->home(shape, static_cast<int64_t>(c));
          ranges[home].push_back(
              {static_cast<int64_t>(choice.size()), sizes[c]});
          for (int64_t i = 0; i < sizes[c]; ++i) {
            size_t l = choice.size();
            size_t set =
                problem->homes.layers[problem->homes.chunks[c].place][l];
            size_t number = pick(problem->strategies[set].size());
            choice.push_back(static_cast<uint32_t>(number));
            own.layers.push_back(
                {model.layerName(l), home, problem->strategies[set][number]});
          }
        }
        for (int64_t s = 0; s < degree; ++s)
          own.stages[s].setRanges(ranges[s]);
        auto answer = evaluate(model, cluster, own);
        if (!answer) {
          // What the home cannot have of a layer.
          llvm::consumeError(answer.takeError());
          continue;
        }
        const PlannerResult &priced = *answer;
        if (!priced.feasible())
          continue;
        const Plan &found = priced.plan();
        HomesSolution homes = evaluateHomes(problem->homes, sizes, choice);
        EXPECT_LE(homes.longest * 1e3, found.iterationMs * (1 + 1e-9))
            << schedule << " " << found.summary();
        EXPECT_LE(std::max(least * 1e3, leastMs),
                  found.iterationMs * (1 + 1e-9))
            << schedule << " " << found.summary();
        EXPECT_LE(times.leastSeconds(found) * 1e3,
                  found.iterationMs * (1 + 1e-9))
            << schedule << " " << found.summary();
        // Any layer may be anywhere only where groups are equal.
        if (groups.front().size() == groups.back().size())
          EXPECT_LE(times.leastSecondsAnywhere(found) * 1e3,
                    found.iterationMs * (1 + 1e-9))
              << schedule << " " << found.summary();
        double fullness = 0;
        for (const PlanStage &stage : found.stages)
          fullness =
              std::max(fullness, static_cast<double>(stage.peakBytes) /
                                     static_cast<double>(stage.availableBytes));
        EXPECT_LE(homes.fullness, fullness * (1 + 1e-9));
        largest = std::max(largest, homes.longest * 1e3 / found.iterationMs);
      }
    }
  }
  return largest;
}

TEST(Chunked, problems_of_homes_are_bounds_of_every_plan) {
  std::vector<Cluster> clusters = {
      chunkCluster(4, 5e9), test::smallCluster(2, 2, 1.3, /*cores=*/2),
      test::smallCluster(1, 4, 2), test::executedCluster(2, 2, 1e9)};
  std::mt19937_64 random(3);
  for (int i = 0; i < 3; ++i)
    clusters.push_back(test::oddCluster(random, 4));
  for (const char *schedule : {"interleaved", "zb-v", "zb-h1", "zb-h2"})
    for (auto [number, cluster] : llvm::enumerate(clusters)) {
      double largest = 0;
      for (uint64_t seed = 0; seed < 6; ++seed) {
        test::RandomModel model(seed, {0, 1, 1, 2, 1, 2, 3, 1}, seed % 2);
        largest = std::max(
            largest, expectHomesHold(model, cluster, schedule, 10 * seed));
        auto profile = layersWith(9, [&](int64_t l, ProfileLayer &layer) {
          layer.forwardFlops *= 1 + static_cast<double>((l * 7 + seed) % 5);
          layer.parameterBytes <<= (l + seed) % 3;
        });
        test::GatheredModel gathered(*profile);
        if (number == 0 || number == 3)
          largest = std::max(
              largest, expectHomesHold(gathered, cluster, schedule, seed));
      }
      // A row that has lost a term is one, and far away.
      EXPECT_GT(largest, number < 4 ? 0.75 : 0.5)
          << schedule << " on cluster " << number;
    }
}

/// The same where states, and what slots hold, have their home on the host.
TEST(Chunked, problems_of_homes_are_bounds_where_states_are_away) {
  std::vector<Cluster> clusters = {chunkCluster(4, 5e9),
                                   test::executedCluster(2, 2, 1e9)};
  for (const char *schedule : {"1f1b", "interleaved"})
    for (const char *offload :
         {"optimizer", "optimizer,activations", "all", "all,activations"})
      for (auto [number, cluster] : llvm::enumerate(clusters)) {
        double largest = 0;
        for (uint64_t seed = 0; seed < 4; ++seed) {
          test::RandomModel model(seed, {0, 1, 1, 2, 1, 2, 3, 1}, seed % 2);
          largest = std::max(largest, expectHomesHold(model, cluster, schedule,
                                                      seed, offload));
        }
        EXPECT_GT(largest, 0.3) << schedule << " " << offload << " " << number;
      }
}

/// Equal layers in equal chunks under one strategy: how near the longest row is
/// to the step, and the fullest home to the fullest stage.
struct Nearness {
  double time = 0, memory = 0;
};
Nearness nearnessOf(LayerModel &model, const Cluster &cluster,
                    const char *schedule, int64_t degree, int64_t microBatches,
                    llvm::StringRef strategy) {
  PlannerOptions options;
  options.schedule = &scheduleNamed(schedule);
  const int64_t chunks = planner::chunksOf(options) > 1 ? 2 : 1;
  options.chunks = chunks > 1 ? chunks : 0;
  options.batch = 2 * microBatches;
  options.microBatches = microBatches;
  options.pipelineDegree = degree;
  options.strategy = llvm::cantFail(Strategy::parse(strategy));
  planner::Space space =
      llvm::cantFail(planner::getSpace(options, cluster.deviceCount()));
  Plan found = llvm::cantFail(plan(model, cluster, options)).plan();
  planner::BusyBound times(model, cluster, *options.schedule, chunks);
  std::optional<planner::ChunkedProblem> problem =
      planner::ChunkedProblem::make(model, cluster, options, space, found,
                                    times);
  std::vector<int64_t> sizes;
  for (const PlanChunk &chunk : found.chunks())
    sizes.push_back(chunk.layers.count);
  HomesSolution homes = evaluateHomes(
      problem->homes, sizes, std::vector<uint32_t>(model.layerCount(), 0));
  double fullness = 0;
  for (const PlanStage &stage : found.stages)
    fullness =
        std::max(fullness, static_cast<double>(stage.peakBytes) /
                               static_cast<double>(stage.availableBytes));
  return {homes.longest * 1e3 / found.iterationMs, homes.fullness / fullness};
}

TEST(Chunked, problems_of_homes_are_near_what_is_executed) {
  auto model = layersWith(16, [](int64_t, ProfileLayer &layer) {
    layer.intermediateBytes *= 2;
    layer.boundaryBytes *= 8;
  });
  Cluster cluster = chunkCluster(4, 5e9);
  test::GatheredModel gathered(*model);
  for (const char *schedule : {"interleaved", "zb-v", "zb-h1", "zb-h2"})
    for (int64_t microBatches : {1, 2, 4, 8, 16}) {
      for (bool ahead : {false, true}) {
        // It does not say what the parts of backward passes take.
        const bool splits = scheduleNamed(schedule).splitsBackward();
        if (splits ? ahead : microBatches == 1)
          continue;
        LayerModel &layers = ahead ? static_cast<LayerModel &>(gathered)
                                   : static_cast<LayerModel &>(*model);
        Nearness near = nearnessOf(layers, cluster, schedule, ahead ? 2 : 4,
                                   microBatches, ahead ? "sdp2" : "single");
        EXPECT_LE(near.time, 1 + 1e-9);
        EXPECT_LE(near.memory, 1 + 1e-9);
        // Whatever term a row loses, it is further away.
        double part = splits             ? 0.96
                      : microBatches > 2 ? 0.975
                      : ahead            ? 0.96
                                         : 0.83;
        EXPECT_GT(near.time, part) << schedule << " " << microBatches;
        EXPECT_GT(near.memory, 0.9) << schedule;
      }
    }
}

/// A repaired plan fits; layers of stages that fit anyway, and layers whose
/// strategies are given, stay; and stages take no longer than with the halves
/// of their layers recomputed that it takes to fit.
TEST(Chunked, stages_that_do_not_fit_are_repaired) {
  int repaired = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    test::RandomModel model(seed, {0, 1, 1, 1, 1, 1, 1, 2}, false);
    Cluster cluster = chunkCluster(4);
    PlannerOptions options = chunkOptions(8, 2);
    planner::Space space =
        llvm::cantFail(planner::getSpace(options, cluster.deviceCount()));
    const Strategy given = llvm::cantFail(Strategy::parse("dp2"));
    space.pins.resize(model.layerCount());
    space.pins[seed % 8] = given;
    planner::BusyBound times(model, cluster, *options.schedule, 2);
    Plan plan;
    plan.schedule = options.schedule;
    plan.objective = Objective::Executed;
    plan.batch = 8;
    plan.microBatches = 4;
    plan.pipelineDegree = 2;
    for (auto &devices : stageDevices(4, 2)) {
      plan.stages.emplace_back();
      plan.stages.back().devices = devices;
    }
    plan.stages[0].setRanges({{0, 2}, {4, 2}});
    plan.stages[1].setRanges({{2, 2}, {6, 2}});
    for (int64_t l = 0; l < 8; ++l)
      plan.layers.push_back({model.layerName(l), l / 2 % 2, given});
    auto excessOf = [&](Plan some, int64_t stage) {
      return llvm::cantFail(
          planner::stageExcess(model, cluster, some, stage, options.memory));
    };
    // Between what the first stage needs with and without recomputation.
    const int64_t large = int64_t(1) << 33;
    options.memory = large;
    Plan lean = plan;
    for (size_t l = 0; l < 8; ++l)
      if (!space.pins[l])
        lean.layers[l].strategy = given.withCheckpoint(true);
    const int64_t most = excessOf(plan, 0), least = excessOf(lean, 0);
    if (least >= most)
      continue;
    options.memory =
        large + least + (most - least) / (2 + static_cast<int64_t>(seed % 3));
    const bool otherFits = excessOf(plan, 1) <= 0;
    auto stopped = [] { return false; };
    planner::StageRepair repair(
        {model, cluster, options, space, times, true, stopped}, plan);
    bool can = true;
    while (can && *repair.worstExcess() > 0)
      can = repair.recompute(/*everyStage=*/seed % 2 == 0);
    if (!can) {
      EXPECT_GT(std::max(excessOf(lean, 0), excessOf(lean, 1)), 0)
          << "seed " << seed;
      continue;
    }
    const Plan halves = repair.plan();
    const Plan fitting = std::move(repair).finish();
    ++repaired;
    int before = 0, after = 0;
    for (size_t l = 0; l < 8; ++l) {
      const int64_t stage = fitting.layers[l].stage;
      EXPECT_LE(excessOf(fitting, stage), 0) << "seed " << seed;
      if (space.pins[l] || (stage == 1 && otherFits))
        EXPECT_EQ(fitting.layers[l].strategy.str(), "dp2") << "seed " << seed;
      before += halves.layers[l].strategy.checkpoint();
      after += fitting.layers[l].strategy.checkpoint();
    }
    EXPECT_LE(after, before) << "seed " << seed;
  }
  EXPECT_GT(repaired, 10);
}

/// Rows of moving are near the simulated step where gathers take longer than
/// the computation beside them, of which the other rows are.
TEST(Chunked, problems_of_homes_know_what_moves) {
  auto model = layersWith(16, [](int64_t, ProfileLayer &) {});
  test::GatheredModel gathered(*model);
  for (double bandwidth : {2e9, 1e9, 5e8, 2e8}) {
    Nearness near = nearnessOf(gathered, chunkCluster(4, bandwidth),
                               "interleaved", 2, 8, "sdp2");
    EXPECT_LE(near.time, 1 + 1e-9) << bandwidth;
    EXPECT_GT(near.time, 0.9) << bandwidth;
  }
}

/// The plan of two chunks a stage that is found takes no less than its bound
/// says, and the bound at least this part of it.
void expectBoundNear(LayerModel &model, const Cluster &cluster,
                     const PlannerOptions &options, double part) {
  Plan found = llvm::cantFail(plan(model, cluster, options)).plan();
  planner::BusyBound bound(model, cluster, *options.schedule, 2);
  double least = bound.leastSeconds(found) * 1e3;
  EXPECT_LE(least, found.iterationMs);
  EXPECT_GE(least, part * found.iterationMs);
  EXPECT_LE(bound.leastSecondsAnywhere(found) * 1e3, found.iterationMs);
}

/// The plan of the given stages with one strategy a stage and layers cut
/// evenly.
PlannerResult evenPlan(LayerModel &model, const Cluster &cluster,
                       const Schedule &schedule,
                       const std::vector<std::vector<int64_t>> &groups,
                       const std::vector<const char *> &strategies) {
  Plan plan;
  plan.schedule = &schedule;
  plan.objective = Objective::Executed;
  plan.batch = 24;
  plan.microBatches = 4;
  plan.pipelineDegree = static_cast<int64_t>(groups.size());
  int64_t first = 0,
          each = static_cast<int64_t>(model.layerCount()) / plan.pipelineDegree;
  for (auto [s, devices] : llvm::enumerate(groups)) {
    PlanStage &stage = plan.stages.emplace_back();
    stage.devices = devices;
    stage.firstLayer = first;
    stage.layerCount = each;
    for (int64_t end = first + each; first < end; ++first)
      plan.layers.push_back({model.layerName(first), static_cast<int64_t>(s),
                             llvm::cantFail(Strategy::parse(strategies[s]))});
  }
  return llvm::cantFail(evaluate(model, cluster, plan));
}

TEST(Chunked, plans_of_whole_stages_are_changed_as_long_as_that_helps) {
  // The last layers take longer, so that stages of as many layers are uneven.
  auto model = layersWith(12, [](int64_t l, ProfileLayer &layer) {
    layer.forwardFlops *= l < 8 ? 1 : 3;
  });
  Cluster cluster = chunkCluster(4, 5e9);
  for (const char *schedule : {"1f1b", "gpipe", "zb-h1", "2bw"})
    for (bool isEqual : {true, false}) {
      std::vector<std::vector<int64_t>> groups = {{0, 1}, {2, 3}};
      std::vector<const char *> strategies = {"tp2", "tp2"};
      if (!isEqual) {
        groups = {{0, 1}, {2}, {3}};
        strategies = {"tp2", "single", "single"};
      }
      PlannerOptions options;
      options.schedule = &scheduleNamed(schedule);
      options.batch = 24;
      planner::Space space =
          llvm::cantFail(planner::getSpace(options, cluster.deviceCount()));
      PlannerResult poor =
          evenPlan(*model, cluster, *options.schedule, groups, strategies);
      ASSERT_TRUE(poor.feasible()) << poor.infeasible().reason;
      const double before = poor.plan().iterationMs, least = before / 3;
      planner::setLeastMs(std::get<Plan>(poor.outcome), least);
      PlannerResult found = poor;
      planner::searchLocally(*model, cluster, options, space, found);
      const Plan &better = found.plan();
      EXPECT_LT(better.iterationMs, before * 0.97) << schedule << isEqual;
      EXPECT_EQ(better.foundBy, "heuristic");
      EXPECT_NEAR(planner::leastMsOf(better), least, 1e-6 * least);
      EXPECT_LT(better.stages.back().layerCount,
                poor.plan().stages.back().layerCount);
      EXPECT_FALSE(found.decisions.empty());
      for (size_t s = 0; s < groups.size(); ++s)
        EXPECT_EQ(better.stages[s].devices, groups[s]);
      // The time is that of evaluate().
      PlannerResult again = llvm::cantFail(evaluate(*model, cluster, better));
      ASSERT_TRUE(again.feasible());
      EXPECT_DOUBLE_EQ(again.plan().iterationMs, better.iterationMs);
      // A partition that is given stays.
      options.partition.assign(groups.size(),
                               static_cast<int64_t>(12 / groups.size()));
      found = poor;
      planner::searchLocally(*model, cluster, options, space, found);
      EXPECT_EQ(found.plan().stages[0].layerCount, options.partition[0]);
      EXPECT_LE(found.plan().iterationMs, before);
      // Where a faster plan is known, nothing is changed.
      options.partition.clear();
      options.samplesPerSecondKnown = 1.01 * poor.plan().samplesPerSecond;
      found = poor;
      planner::searchLocally(*model, cluster, options, space, found);
      EXPECT_EQ(found.plan().iterationMs, before);
    }
}

/// The bound that plans are ruled out by is one, and near where messages take a
/// good part of the step.
TEST(Chunked, busy_bound_has_messages) {
  auto model = equalLayers(13);
  Cluster cluster = chunkCluster(4, /*bandwidth=*/1e8);
  for (const char *name : {"interleaved", "zb-v"})
    for (int64_t microBatches : {4, 12, 24}) {
      PlannerOptions options = chunkOptions(24);
      options.schedule = &scheduleNamed(name);
      options.pipelineDegree = 4;
      options.microBatches = microBatches;
      // With few micro-batches uneven chunks are faster, whose step is longer
      // than what its busiest stage does.
      expectBoundNear(*model, cluster, options,
                      microBatches == 4 ? 0.89 : 0.94);
    }
}

/// Where ranks share cores their times depend on how many compute at once.
TEST(Chunked, busy_bound_knows_shared_cores) {
  auto model = equalLayers(13);
  DeviceType type;
  type.name = "core";
  type.backend = "cpu";
  type.memory = int64_t(1) << 36;
  type.flops = {{"f32", 1e11}};
  type.memoryBandwidth = 1e10;
  NodeGroup node{1, "core", 4, {1e10, 1e-6}};
  node.cores = 2;
  Cluster cluster =
      llvm::cantFail(Cluster::get("two cores", {type}, {node}, std::nullopt));
  ASSERT_TRUE(cluster.sharesCores());
  PlannerOptions options = chunkOptions(24);
  options.pipelineDegree = 4;
  options.microBatches = 12;
  expectBoundNear(*model, cluster, options, 0.9);
}

/// Only what is sent counts: chunks end where there is little of it.
TEST(Chunked, busy_bound_is_of_the_messages_between_chunks) {
  auto model = layersWith(16, [](int64_t index, ProfileLayer &layer) {
    if (index % 2 == 0)
      layer.boundaryBytes = int64_t(64) << 20;
  });
  Cluster cluster = chunkCluster(4, /*bandwidth=*/1e8);
  PlannerOptions options = chunkOptions(24);
  options.pipelineDegree = 4;
  options.microBatches = 12;
  options.partition = std::vector<int64_t>(8, 2);
  expectBoundNear(*model, cluster, options, 0.9);
}

/// With as many micro-batches as stages half of 1F1B's bubble is left.
TEST(Chunked, fewer_bubbles_are_found) {
  auto model = equalLayers(16);
  Cluster cluster = chunkCluster(4);
  PlannerOptions options = chunkOptions(4);
  options.pipelineDegree = 4;
  options.microBatches = 4;
  double interleaved =
      llvm::cantFail(plan(*model, cluster, options)).plan().iterationMs;
  options.schedule = nullptr;
  double whole =
      llvm::cantFail(plan(*model, cluster, options)).plan().iterationMs;
  EXPECT_LT(interleaved, 0.85 * whole);
  options.anySchedule = true;
  PlannerResult any = llvm::cantFail(plan(*model, cluster, options));
  EXPECT_LE(any.plan().iterationMs, interleaved);
  // Counted products say what the parts of backward passes take.
  EXPECT_EQ(any.plan().schedule->name(), "zb-v");
  // Schedules whose plans were all slower than the known one have bounds, too.
  EXPECT_EQ(any.plan().provenSchedule,
            "1f1b, gpipe, zb-h1, zb-h2, interleaved, zb-v");
  EXPECT_TRUE(any.plan().gapPercent.has_value());
}

/// Plans that are known to be slower than another schedule's are not looked at;
/// the fastest one is found all the same.
TEST(Chunked, any_schedule_is_as_fast_as_each) {
  std::set<std::string> taken;
  int pairs = 0;
  for (int i = 0; i < 6; ++i) {
    auto model = equalLayers(12 + i % 2);
    Cluster cluster = chunkCluster(4, i % 3 == 2 ? 1e9 : 5e10);
    PlannerOptions options;
    options.batch = i % 2 ? 8 : 32;
    options.memory = int64_t(i < 3 ? 1200 : 3000) << 20;
    options.allowDelayed = i % 3 == 1;
    options.training.clip = !options.allowDelayed;
    // No smaller spaces beside it.
    options.paradigms = {Paradigm::DP, Paradigm::TP};
    options.anySchedule = true;
    PlannerResult any = llvm::cantFail(plan(*model, cluster, options));
    ASSERT_TRUE(any.feasible()) << i;
    taken.insert(any.plan().schedule->name().str());
    options.anySchedule = false;
    for (const char *name :
         {"1f1b", "gpipe", "zb-h1", "zb-h2", "2bw", "interleaved", "zb-v"}) {
      options.schedule = &scheduleNamed(name);
      if (options.schedule->delay({}) > 0 && !options.allowDelayed)
        continue;
      auto one = plan(*model, cluster, options);
      if (!one) {
        llvm::consumeError(one.takeError());
        continue;
      }
      // Each one is bounded, whatever was known.
      std::string proven = ", " + any.plan().provenSchedule + ",";
      EXPECT_NE(proven.find(", " + std::string(name) + ","), std::string::npos)
          << i << ": " << name << " is not of " << proven;
      // Of one stage such schedules are left out.
      bool odd =
          options.schedule->delay({}) > 0 || options.schedule->splitsBackward();
      if (!one->feasible() || (odd && one->plan().pipelineDegree == 1))
        continue;
      ++pairs;
      EXPECT_LE(any.plan().iterationMs, one->plan().iterationMs * (1 + 1e-9))
          << i << ": " << any.plan().summary() << ", " << name << " "
          << one->plan().summary();
    }
    ASSERT_TRUE(any.plan().gapPercent.has_value()) << i;
    EXPECT_GE(*any.plan().gapPercent, 0) << i;
    EXPECT_LT(*any.plan().gapPercent, 30) << i;
  }
  EXPECT_GT(pairs, 25);
  EXPECT_GT(taken.size(), 1u);
}

/// Schedules that were asked for and not planned are told of, with why; and a
/// sweep, whose batches have no bound in common, proves the one that it took.
TEST(Chunked, any_schedule_says_what_it_left_out) {
  auto model = equalLayers(8);
  Cluster cluster = chunkCluster(4);
  PlannerOptions options;
  options.anySchedule = options.allowDelayed = true;
  options.maxBatch = 16;
  PlannerResult found = llvm::cantFail(plan(*model, cluster, options));
  auto says = [&](llvm::StringRef begin, llvm::StringRef part) {
    return llvm::any_of(found.decisions, [&](llvm::StringRef decision) {
      return decision.starts_with(begin) && decision.contains(part);
    });
  };
  EXPECT_TRUE(says("2bw: ", "clip")) << llvm::join(found.decisions, "\n");
  ASSERT_TRUE(found.feasible());
  EXPECT_EQ(found.plan().provenSchedule, found.plan().schedule->name());

  // Time is up behind the first schedule.
  options.batch = 16;
  Cancellation past;
  past.setSeconds(0);
  options.cancellation = &past;
  found = llvm::cantFail(plan(*model, cluster, options));
  ASSERT_TRUE(found.feasible());
  EXPECT_EQ(found.plan().schedule->name(), "1f1b");
  EXPECT_FALSE(found.plan().gapPercent.has_value());
  for (const char *name :
       {"gpipe", "zb-h1", "interleaved with 4 chunks a stage", "zb-v"})
    EXPECT_TRUE(says(name, "not looked at, time is up")) << name;
}

/// Without a batch doublings of the step are planned, and the gap is of the
/// batch that was chosen.
TEST(Chunked, sweeps_are_bounded_at_the_batch_that_is_chosen) {
  auto model = equalLayers(12);
  Cluster cluster = chunkCluster(4);
  PlannerOptions options;
  options.schedule = &scheduleNamed("interleaved");
  options.pipelineDegree = 4;
  options.batchStep = 4;
  options.maxBatch = 16;
  Plan found = llvm::cantFail(plan(*model, cluster, options)).plan();
  // A full pipeline takes the least time a sample.
  EXPECT_EQ(found.batch, 16);
  ASSERT_TRUE(found.gapPercent);
  double leastMs = found.iterationMs / (1 + *found.gapPercent / 100);
  options.batch = 16;
  for (int64_t microBatches : {4, 8, 16}) {
    options.microBatches = microBatches;
    Plan one = llvm::cantFail(plan(*model, cluster, options)).plan();
    EXPECT_GE(one.iterationMs, found.iterationMs * (1 - 1e-9));
    EXPECT_LE(leastMs, one.iterationMs);
    // What is asked for is bounded, and not more: few micro-batches wait long.
    double own = one.iterationMs / (1 + one.gapPercent.value_or(1000) / 100);
    EXPECT_GE(own, leastMs * (microBatches == 4 ? 1.02 : 1 - 1e-9));
  }
  // That of another batch would be far away.
  EXPECT_LT(*found.gapPercent, 30);
}

TEST(Chunked, memory_is_kept) {
  auto model = equalLayers(16);
  Cluster cluster = chunkCluster(4);
  PlannerOptions options = chunkOptions(16);
  options.pipelineDegree = 4;
  options.microBatches = 16;
  Plan rich = llvm::cantFail(plan(*model, cluster, options)).plan();
  int64_t needed = 0;
  for (const PlanStage &stage : rich.stages)
    needed = std::max(needed, stage.peakBytes);
  options.memory = needed * 3 / 4;
  PlannerResult poor = llvm::cantFail(plan(*model, cluster, options));
  ASSERT_TRUE(poor.feasible());
  int recomputed = 0;
  for (const PlanLayer &layer : poor.plan().layers)
    recomputed += layer.strategy.checkpoint();
  EXPECT_GT(recomputed, 0);
  for (const PlanStage &stage : poor.plan().stages)
    EXPECT_LE(stage.peakBytes, *options.memory);
  options.memory = int64_t(1) << 20;
  PlannerResult none = llvm::cantFail(plan(*model, cluster, options));
  ASSERT_FALSE(none.feasible());
  EXPECT_GT(none.infeasible().neededBytes, *options.memory);
}

/// Each stage recomputes what it must, whatever the others do.
TEST(Chunked, later_stages_recompute_where_the_first_one_need_not) {
  // The fourth stage's first chunk.
  auto model = layersWith(16, [](int64_t index, ProfileLayer &layer) {
    if (index == 6 || index == 7)
      layer.intermediateBytes *= 32;
  });
  Cluster cluster = chunkCluster(4);
  PlannerOptions options = chunkOptions(16);
  options.pipelineDegree = 4;
  options.microBatches = 16;
  options.chunks = 2;
  options.partition = std::vector<int64_t>(8, 2);
  Plan free = llvm::cantFail(plan(*model, cluster, options)).plan();
  auto recomputing = [&](const std::set<size_t> &layers) {
    Plan changed = free;
    for (size_t l : layers)
      changed.layers[l].strategy =
          changed.layers[l].strategy.withCheckpoint(true);
    return llvm::cantFail(evaluate(*model, cluster, changed)).plan();
  };
  // One of them is not enough.
  Plan both = recomputing({6, 7});
  options.memory = both.stages[both.fullestStage()].peakBytes;
  ASSERT_GT(recomputing({6}).stages[3].peakBytes, *options.memory);
  ASSERT_GT(recomputing({7}).stages[3].peakBytes, *options.memory);
  PlannerResult found = llvm::cantFail(plan(*model, cluster, options));
  ASSERT_TRUE(found.feasible());
  for (size_t l = 0; l < 16; ++l)
    EXPECT_EQ(found.plan().layers[l].strategy.checkpoint(), l == 6 || l == 7)
        << l;
}

TEST(Chunked, what_cannot_be_is_refused) {
  PlannerOptions options = chunkOptions(8, 1);
  EXPECT_EQ(errorOf(options),
            "schedule 'interleaved' needs at least 2 chunks a stage, found 1");
  options = chunkOptions(8, 2);
  options.schedule = nullptr;
  EXPECT_EQ(errorOf(options), "schedule '1f1b' has one chunk a stage, found 2");
  options = chunkOptions(8, -1);
  EXPECT_EQ(errorOf(options), "expected at least one chunk a stage, found -1");
  options = chunkOptions(8, 2);
  options.partition = {3, 3, 2};
  EXPECT_EQ(errorOf(options), "the partition has 3 numbers, expected a "
                              "multiple of the 2 chunks of a stage");
  options = chunkOptions(8, 3);
  options.pipelineDegree = 4;
  EXPECT_EQ(errorOf(options),
            "no pipeline degree and number of micro-batches of the space can "
            "have schedule 'interleaved' with 3 chunks a stage: model 'equal' "
            "has 8 layers, fewer than the 12 chunks");
  options = chunkOptions(8, 2);
  options.pipelineDegree = 1;
  EXPECT_NE(errorOf(options).find("needs at least 2 stages, found 1"),
            std::string::npos);
  options = chunkOptions(8);
  options.objective = Objective::Paper;
  EXPECT_EQ(errorOf(options),
            "objective 'paper' is of whole stages: expected "
            "objective 'executed' for schedule 'interleaved'");
  options.schedule = nullptr;
  options.anySchedule = true;
  options.objective = Objective::Paper;
  EXPECT_EQ(errorOf(options), "schedules are compared by the time that is "
                              "executed, which objective 'paper' is not");
}

/// A partition that is given is chunk by chunk.
TEST(Chunked, partitions_are_obeyed) {
  auto model = equalLayers(8);
  PlannerOptions options = chunkOptions(8);
  options.partition = {1, 2, 4, 1};
  Plan found = llvm::cantFail(plan(*model, chunkCluster(4), options)).plan();
  ASSERT_EQ(found.pipelineDegree, 2);
  EXPECT_EQ(found.stages[0].layerText(), "0, 3-6");
  EXPECT_EQ(found.stages[1].layerText(), "1-2, 7");
}

} // namespace
