//===- GroupsTest.cpp - Unequal groups against brute force ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whole mixed problems, which devices form which stage, layers and strategies
// in one, are compared with all plans tried one by one: every assignment of
// devices to stages, and so some that the search knows to be alike. Plans are
// priced by evaluate(), which shares no sums with the search.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Planner.h"

#include "../PaperOptions.h"
#include "../RandomInstances.h"
#include "../TestSchedule.h"
#include "RandomModel.h"

#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

#include <set>

using namespace galvatron;
using galvatron::test::PlainModel;
using galvatron::test::RandomModel;

namespace {

/// A node of fast devices and one of slow ones with less memory.
Cluster twoKinds(int64_t fastDevices, int64_t slowDevices, int64_t memory,
                 int64_t fastNodes = 1) {
  DeviceType fast, slow;
  fast.name = "fast";
  fast.backend = slow.backend = "cpu";
  fast.memory = memory;
  slow.memory = memory * 3 / 4;
  fast.flops = {{"f32", 14e9}};
  fast.memoryBandwidth = slow.memoryBandwidth = 10e9;
  slow.name = "slow";
  slow.flops = {{"f32", 6e9}};
  slow.overlapSlowdown = 2;
  return llvm::cantFail(
      Cluster::get("mixed", {fast, slow},
                   {{fastNodes, "fast", fastDevices, {3e9, 2e-6}},
                    {1, "slow", slowDevices, {2e9, 3e-6}}},
                   Link{1e9, 9e-6}));
}

struct Instance {
  LayerModel &model;
  const Cluster &cluster;
  const Schedule &schedule;
  SpaceOptions space;
  Objective objective = Objective::Paper;
};

class BruteForce {
public:
  explicit BruteForce(Instance instance) : instance(instance) {}

  double best = -1; ///< iteration in ms, -1: nothing fits
  int64_t plans = 0;

  void run(int64_t batch) {
    auto layers = static_cast<int64_t>(instance.model.layerCount());
    int64_t devices = instance.cluster.deviceCount();
    for (int64_t stages = 1; stages <= std::min(devices, layers); ++stages)
      for (int64_t m = 1; m <= batch; ++m) {
        if (batch % m)
          continue;
        plan = Plan();
        plan.batch = batch;
        plan.microBatches = m;
        plan.pipelineDegree = stages;
        plan.schedule = &instance.schedule;
        plan.objective = instance.objective;
        plan.stages.resize(stages);
        assign(0);
      }
  }

private:
  /// A stage for every device.
  void assign(int64_t device) {
    if (device == instance.cluster.deviceCount()) {
      if (llvm::all_of(plan.stages, [](const PlanStage &stage) {
            return !stage.devices.empty();
          }))
        cut(0, 0);
      return;
    }
    for (PlanStage &stage : plan.stages) {
      stage.devices.push_back(device);
      assign(device + 1);
      stage.devices.pop_back();
    }
  }

  /// Layers for the stages from `stage` on.
  void cut(size_t stage, int64_t first) {
    auto layers = static_cast<int64_t>(instance.model.layerCount());
    auto left = static_cast<int64_t>(plan.stages.size() - stage);
    if (left == 0) {
      if (first == layers) {
        plan.layers.clear();
        for (size_t s = 0; s < plan.stages.size(); ++s)
          for (int64_t i = 0; i < plan.stages[s].layerCount; ++i)
            plan.layers.push_back({instance.model.layerName(plan.layers.size()),
                                   static_cast<int64_t>(s), Strategy()});
        choose(0);
      }
      return;
    }
    for (int64_t count = 1; first + count + left - 1 <= layers; ++count) {
      plan.stages[stage].firstLayer = first;
      plan.stages[stage].layerCount = count;
      cut(stage + 1, first + count);
    }
  }

  void choose(size_t layer) {
    if (layer < plan.layers.size()) {
      auto size = static_cast<int64_t>(
          plan.stages[plan.layers[layer].stage].devices.size());
      for (const Strategy &strategy : strategiesOf(size)) {
        if (plan.microBatchSamples() % strategy.sampleShards())
          continue;
        plan.layers[layer].strategy = strategy;
        choose(layer + 1);
      }
      return;
    }
    auto priced = evaluate(instance.model, instance.cluster, plan);
    if (!priced) {
      llvm::consumeError(priced.takeError());
      return;
    }
    ++plans;
    if (priced->feasible() && (best < 0 || priced->plan().iterationMs < best))
      best = priced->plan().iterationMs;
  }

  const std::vector<Strategy> &strategiesOf(int64_t size) {
    auto [it, fresh] = strategies.try_emplace(size);
    if (fresh)
      it->second = enumerateStrategies(size, instance.space);
    return it->second;
  }

  Instance instance;
  Plan plan;
  std::map<int64_t, std::vector<Strategy>> strategies;
};

/// Of which the layers of every kind are measured on either device type, and
/// each type is the faster one for other kinds.
class MeasuredModel : public RandomModel {
public:
  using RandomModel::RandomModel;

  llvm::Expected<LayerFootprint>
  footprint(size_t kind, const Strategy &strategy, int64_t samples) override {
    llvm::Expected<LayerFootprint> out =
        RandomModel::footprint(kind, strategy, samples);
    if (!out)
      return out;
    double seconds = 1e-4 * static_cast<double>(samples) /
                     static_cast<double>(strategy.degree(Paradigm::TP));
    for (const char *type : {"fast", "slow"}) {
      bool suits = (kind % 2 == 0) == (type[0] == 'f');
      double own = suits ? seconds : 8 * seconds;
      out->measuredOn.push_back({type, own, 2 * own});
    }
    return out;
  }
};

/// A model of which half of what the backward passes of some kinds compute is
/// in weight parts.
class HalvedModel : public RandomModel {
public:
  using RandomModel::RandomModel;

  bool splitsBackward() const override { return true; }
  llvm::Expected<LayerFootprint> splitFootprint(size_t kind,
                                                const Strategy &strategy,
                                                int64_t samples) override {
    llvm::Expected<LayerFootprint> out = footprint(kind, strategy, samples);
    if (!out || kind == 2)
      return out;
    out->split = true;
    out->weightFlops = out->backwardFlops / 2;
    out->weightMovedBytes = out->backwardMovedBytes / 2;
    return out;
  }
};

TEST(Groups, agree_with_all_placements_partitions_and_strategies) {
  std::mt19937_64 random(2024);
  int feasible = 0, infeasible = 0, unequal = 0, mixedGroups = 0, slowFirst = 0;
  for (int trial = 0; trial < instances(30); ++trial) {
    // Two of each, three and one, two nodes of one and a slow one of two, ...
    int64_t shape = trial % 5;
    int64_t batch = shape == 1 ? 6 : 4;
    int64_t memory = pick(random, 100000, 900000) * batch;
    Cluster cluster = shape == 0   ? twoKinds(2, 2, memory)
                      : shape == 1 ? twoKinds(1, 2, memory)
                      : shape == 2 ? twoKinds(2, 1, memory)
                      : shape == 3 ? twoKinds(1, 2, memory, 2)
                                   : twoKinds(1, 1, memory, 2);
    int64_t devices = cluster.deviceCount();
    std::vector<size_t> kinds = {0};
    for (int64_t count = devices == 4 ? 3 : pick(random, 3, 4);
         static_cast<int64_t>(kinds.size()) < count;)
      kinds.push_back(pick(random, 1, 2));
    bool tied = pick(random, 0, 1);
    uint64_t seed = random();
    RandomModel computed(seed, kinds, tied);
    MeasuredModel measured(seed, kinds, tied);
    LayerModel &model =
        trial % 3 ? static_cast<LayerModel &>(computed) : measured;
    const Schedule &schedule =
        scheduleNamed(pick(random, 0, 2) ? "1f1b" : "gpipe");
    PlannerOptions options = paperOptions();
    options.batch = batch;
    options.schedule = &schedule;
    // Four devices have many strategies.
    options.paradigms = {Paradigm::DP, Paradigm::TP};
    if (devices < 4)
      options.paradigms.push_back(Paradigm::SDP);
    SpaceOptions space;
    space.paradigms = ParadigmSet(options.paradigms);
    BruteForce expected({model, cluster, schedule, space});
    expected.run(batch);
    if (expected.plans == 0)
      continue;
    auto found = plan(model, cluster, options);
    ASSERT_TRUE(static_cast<bool>(found)) << llvm::toString(found.takeError());
    ASSERT_EQ(found->feasible(), expected.best >= 0) << "trial " << trial;
    if (!found->feasible()) {
      ++infeasible;
      continue;
    }
    ++feasible;
    const Plan &best = found->plan();
    EXPECT_EQ(best.provenGapPercent, 0);
    EXPECT_EQ(best.foundBy, "exact");
    EXPECT_EQ(best.iterationMs, expected.best) << "trial " << trial;
    EXPECT_FALSE(best.checkDevices());
    for (const PlanStage &stage : best.stages) {
      unequal += stage.devices.size() != best.stages[0].devices.size();
      std::set<std::string> types;
      for (int64_t device : stage.devices)
        types.insert(cluster.deviceType(device).name);
      mixedGroups += types.size() > 1;
    }
    slowFirst += best.stages.size() > 1 &&
                 cluster.deviceType(best.stages[0].devices[0]).name == "slow";
  }
  EXPECT_GT(feasible, 15);
  EXPECT_GT(infeasible, 0);
  EXPECT_GT(unequal, 3);
  EXPECT_GT(mixedGroups, 3);
  EXPECT_GT(slowFirst, 3);
}

/// No placement, partition and choice is executed faster than the bounds of
/// schedules that split backward passes tell, and plans are near the best one.
TEST(Groups, split_schedules_are_bounded_whatever_the_placement) {
  std::mt19937_64 random(7);
  int plans = 0;
  std::vector<double> gaps, apart;
  for (int trial = 0; trial < instances(12); ++trial) {
    Cluster cluster = trial % 3 ? twoKinds(2, trial % 3, 900000 * 8)
                                : twoKinds(1, 1, 900000 * 8, 2);
    std::vector<size_t> kinds = {0, trial % 2 ? 1u : 2u, 1, 2};
    if (cluster.deviceCount() == 4)
      kinds.pop_back();
    HalvedModel model(random(), kinds, /*tied=*/trial % 2);
    const Schedule &schedule = scheduleNamed(trial % 4 < 2 ? "zb-h1" : "zb-h2");
    PlannerOptions options;
    options.batch = 4;
    options.schedule = &schedule;
    options.paradigms = {Paradigm::DP, Paradigm::TP};
    options.space = "bmw";
    SpaceOptions space;
    space.paradigms = ParadigmSet(options.paradigms);
    BruteForce expected({model, cluster, schedule, space, Objective::Executed});
    expected.run(4);
    auto found = plan(model, cluster, options);
    ASSERT_TRUE(static_cast<bool>(found)) << llvm::toString(found.takeError());
    if (!found->feasible() || expected.best < 0)
      continue;
    ++plans;
    const Plan &best = found->plan();
    ASSERT_TRUE(best.gapPercent.has_value());
    EXPECT_LE(best.iterationMs / (1 + *best.gapPercent / 100),
              expected.best * (1 + 1e-9))
        << "trial " << trial;
    gaps.push_back(*best.gapPercent);
    apart.push_back(100 * (best.iterationMs / expected.best - 1));
  }
  EXPECT_GT(plans, 8);
  llvm::sort(gaps);
  llvm::sort(apart);
  std::printf("%d plans: gaps %.1f%% in the median, at most %.1f%%; above the "
              "best of all by %.1f%% in the median, at most %.1f%%\n",
              plans, gaps[gaps.size() / 2], gaps.back(),
              apart[apart.size() / 2], apart.back());
}

/// The layers of each kind go to the device that is the fastest for them, as
/// pipelines of such devices are faster than a bound that took every layer at
/// what the last device needs.
TEST(Groups, each_device_has_the_layers_that_it_is_fastest_for) {
  class TwoKinds : public PlainModel {
  public:
    TwoKinds() : PlainModel(8) {}
    size_t kindOf(size_t layer) const override { return layer / 4; }
    llvm::Expected<LayerFootprint>
    footprint(size_t kind, const Strategy &strategy, int64_t samples) override {
      LayerFootprint out =
          llvm::cantFail(PlainModel::footprint(kind, strategy, samples));
      bool cut = strategy.degree(Paradigm::TP) > 1;
      for (const char *type : {"fast", "slow"}) {
        bool suits = (kind == 0) == (type[0] == 'f');
        double own = 1e-3 * static_cast<double>(samples) *
                     (cut     ? 1.5
                      : suits ? 1
                              : 10);
        out.measuredOn.push_back({type, own, 2 * own});
      }
      return out;
    }
  };
  TwoKinds model;
  for (Objective objective : {Objective::Paper, Objective::Executed}) {
    PlannerOptions options;
    options.objective = objective;
    options.batch = 32;
    auto found = plan(model, twoKinds(1, 1, int64_t(1) << 30), options);
    ASSERT_TRUE(static_cast<bool>(found)) << llvm::toString(found.takeError());
    ASSERT_TRUE(found->feasible());
    const Plan &best = found->plan();
    ASSERT_EQ(best.stages.size(), 2u);
    for (int64_t stage : {0, 1}) {
      EXPECT_EQ(best.stages[stage].devices, (std::vector<int64_t>{stage}));
      EXPECT_EQ(best.stages[stage].layerCount, 4);
    }
    // 33 times four layers of 1 and 2 ms, and what is sent.
    EXPECT_NEAR(best.iterationMs, 33 * 4 * 3, 10);
  }
}

} // namespace
