//===- ExecutedBoundsTest.cpp - Bounds of plans' simulated time -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../PaperOptions.h"
#include "../TestSchedule.h"
#include "BusyBound.h"
#include "Candidate.h"
#include "ExecutedModels.h"

#include "gtest/gtest.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

using namespace galvatron;
using namespace galvatron::test;

namespace {

/// The same layers, all alike, so that bounds of their pipelines are near. The
/// first one's parameter is the last one's too, if it has bytes.
class AlikeModel : public SameLayers {
public:
  AlikeModel(LayerModel &layers, int64_t tiedBytes)
      : SameLayers(layers), tiedBytes(tiedBytes) {}
  size_t kindOf(size_t) const override { return layers.kindOf(0); }
  std::vector<Tie> ties() const override {
    if (tiedBytes == 0 || layerCount() < 2)
      return {};
    return {{0, layerCount() - 1, tiedBytes}};
  }

private:
  int64_t tiedBytes;
};

/// The same layers, with a tensor that passes each of them.
class PassedModel : public SameLayers {
public:
  PassedModel(LayerModel &layers, int64_t bytes)
      : SameLayers(layers), bytes(bytes) {}
  LiveTensors liveTensors(size_t layer) const override {
    LiveTensors tensors;
    if (int64_t made = boundaryBytesPerSample(layer))
      tensors.made.push_back(made);
    tensors.passing.push_back(bytes);
    return tensors;
  }

private:
  int64_t bytes;
};

/// So many stages of consecutive devices, with room for anything.
planner::Layout equalStages(const Cluster &cluster, planner::CostTables &tables,
                            const planner::StrategySet &set, int64_t degree) {
  planner::Layout layout;
  layout.degree = degree;
  layout.set = &set;
  layout.own.resize(degree);
  for (planner::StrategySubset &own : layout.own)
    own.set = &set;
  layout.devices = stageDevices(cluster.deviceCount(), degree);
  layout.memory.assign(degree, int64_t(1) << 40);
  layout.hostMemory.assign(degree, int64_t(1) << 40);
  for (auto [s, devices] : llvm::enumerate(layout.devices)) {
    layout.backend.push_back(backendTraits(cluster.backendOf(devices)));
    layout.place.push_back(tables.placeOf(devices));
    layout.movePlace.push_back(tables.movePlaceOf(devices));
    if (s > 0)
      layout.cutPlace.push_back(tables.placeOf(layout.devices[s - 1], devices));
  }
  return layout;
}
/// Any plan costs no more by any form of the proof's bounds than it takes,
/// whatever the weights of ends and updates, the waiting, when stages sum
/// their gradients, and whether they gather ahead.
TEST(Executed, no_form_is_above_a_plan) {
  std::mt19937_64 random(41);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  // A few large ones or many small ones, their sum 1.
  auto pickWeights = [&](size_t count) {
    std::vector<double> weights(count);
    double sum = 0;
    int64_t power = pick(0, 4);
    for (double &weight : weights)
      sum += weight = std::pow(static_cast<double>(pick(1, 100)), power);
    for (double &weight : weights)
      weight /= sum;
    return weights;
  };
  int plans = 0, near = 0, shapes = 0;
  double nearness = 0, nearnessOfCuts = 0; // of bounds whatever the layers
  double nearnessOfForms = 0;              // of the plan's own
  for (int i = 0; i < instances(150); ++i) {
    bool alike = i % 2;
    int64_t degree = pick(1, 4);
    int64_t layers = alike ? degree * pick(1, 2) : degree + pick(0, 3);
    auto profile = randomProfile(random, layers);
    GatheredModel gathered(*profile);
    AlikeModel same(*profile, pick(0, 1) * (int64_t(1) << pick(20, 27)));
    GatheredModel sameGathered(same);
    LayerModel *const models[] = {profile.get(), &gathered, &same,
                                  &sameGathered};
    LayerModel &model = *models[(alike ? 2 : 0) + pick(0, 1)];
    Cluster cluster =
        executedCluster(degree, pick(1, 4), std::pow(10, 0.5 * pick(16, 20)));
    planner::CostTables tables(model, cluster, Objective::Executed,
                               defaultSchedule());
    planner::StrategySet set = planner::StrategySet::make(
        enumerateStrategies(cluster.deviceCount() / degree, {}));
    planner::Layout layout = equalStages(cluster, tables, set, degree);
    planner::Shape shape;
    shape.batch = 48;
    const int64_t counts[] = {2, 3, 4, 6, 12};
    shape.microBatches = counts[pick(0, 4)];
    shape.schedule = &scheduleNamed(pick(0, 4) ? "1f1b" : "gpipe");
    shape.layout = &layout;
    planner::LeastForm form = planner::LeastForm::first(tables, shape);
    form.behindBackward = static_cast<double>(pick(0, 4)) / 4;
    if (planner::LeastForm::hasWeights(shape)) {
      form.weights = pickWeights(degree);
      form.updates = pickWeights(degree);
    }
    if (planner::LeastForm::hasWaits(shape))
      form.waits = static_cast<double>(pick(0, 4)) / 4;
    std::string refusal;
    auto least = planner::Candidate::makeLeast(
        tables, shape, form, kNoBound - 1, refusal, planner::Moves::All);
    ASSERT_TRUE(least) << refusal;
    const PipelineProblem &problem = least->problem();
    double free =
        toMilliseconds(planner::leastFreeTime(tables, shape, /*cuts=*/false));
    double withCuts =
        toMilliseconds(planner::leastFreeTime(tables, shape, /*cuts=*/true));
    double fastest = std::numeric_limits<double>::infinity();
    planner::BusyBound known(model, cluster, *shape.schedule, 1);
    for (int j = 0; j < 20; ++j) {
      PipelineSolution solution;
      bool even = alike && pick(0, 1);
      solution.partition.assign(degree, even ? layers / degree : 1);
      for (int64_t l = degree; l < layers && !even; ++l)
        ++solution.partition[pick(0, degree - 1)];
      Plan plan;
      plan.objective = Objective::Executed;
      plan.schedule = shape.schedule;
      plan.batch = shape.batch;
      plan.microBatches = shape.microBatches;
      plan.pipelineDegree = degree;
      // Mostly plans that have one strategy, or two.
      int64_t others = even ? 0 : pick(0, 3), usual = pick(0, 1 << 20);
      for (int64_t s = 0, l = 0; s < degree; ++s) {
        PlanStage &stage = plan.stages.emplace_back();
        stage.devices = layout.devices[s];
        stage.firstLayer = l;
        stage.layerCount = solution.partition[s];
        stage.sums = pick(0, 1) ? SumTiming::Overlap : SumTiming::AtEnd;
        stage.gathersAhead = pick(0, 2) > 0;
        for (int64_t n = 0; n < stage.layerCount; ++n, ++l) {
          const auto &options =
              problem.optionSets[problem.layers[problem.stages[s].place][l]];
          int64_t choice = pick(0, 3) < others ? pick(0, 1 << 20) : usual;
          solution.choice.push_back(choice %
                                    static_cast<int64_t>(options.size()));
          plan.layers.push_back({model.layerName(l), s, {}});
        }
      }
      for (auto [layer, strategy] :
           llvm::zip_equal(plan.layers, least->toSolved(solution).strategies))
        layer.strategy = set.strategies[strategy];
      Picoseconds bound =
          evaluatePipeline(problem, solution.partition, solution.choice).cost;
      double ms = simulated(model, cluster, plan);
      ++plans;
      near += static_cast<double>(bound) * 1e-9 > 0.9 * ms;
      nearnessOfForms += static_cast<double>(bound) * 1e-9 / ms;
      EXPECT_LE(static_cast<double>(bound) * 1e-9, ms * (1 + 1e-9))
          << i << ": " << plan.summary();
      fastest = std::min(fastest, ms);
      EXPECT_LE(std::max(free, withCuts), ms * (1 + 1e-9)) << i;
      // What it knows of plans before changes no bound.
      EXPECT_EQ(known.leastSeconds(plan),
                planner::BusyBound(model, cluster, *plan.schedule, 1)
                    .leastSeconds(plan))
          << i;
      // The bound of searches that try plan after plan is one, too.
      for (const char *name : {"1f1b", "gpipe", "zb-h1", "zb-h2"}) {
        plan.schedule = &scheduleNamed(name);
        planner::BusyBound busy(model, cluster, *plan.schedule, 1);
        EXPECT_LE(busy.leastSeconds(plan) * 1e3,
                  simulated(model, cluster, plan) * (1 + 1e-9))
            << i << ": " << plan.summary();
      }
    }
    ++shapes;
    nearness += free / fastest;
    nearnessOfCuts += withCuts / fastest;
  }
  EXPECT_GT(near, plans / 4);
  // They are what they were: a weaker one is a bound still.
  if (instances(150) == 150) {
    EXPECT_NEAR(nearness / shapes, 0.825364, 1e-5);
    EXPECT_NEAR(nearnessOfCuts / shapes, 0.904532, 1e-5);
    EXPECT_NEAR(nearnessOfForms / plans, 0.812772, 1e-5);
  }
}

/// The problem of a bound needs the memory of the one whose plans it bounds,
/// though layers that gather are told apart from others there.
TEST(Executed, bounds_need_the_memory_of_plans) {
  std::mt19937_64 random(17);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  size_t classes = 0;
  for (int i = 0; i < 20; ++i) {
    int64_t degree = pick(1, 3), layers = degree + pick(1, 4);
    auto profile = randomProfile(random, layers);
    GatheredModel gathered(*profile);
    PassedModel model(gathered, int64_t(1) << pick(12, 26));
    Cluster cluster = executedCluster(degree, 4, 1e9);
    planner::CostTables tables(model, cluster, Objective::Executed,
                               defaultSchedule());
    planner::StrategySet set =
        planner::StrategySet::make(enumerateStrategies(4, {}));
    planner::Layout layout = equalStages(cluster, tables, set, degree);
    planner::Shape shape;
    shape.batch = 48;
    shape.microBatches = 6;
    shape.schedule = &defaultSchedule();
    shape.layout = &layout;
    std::string refusal;
    auto formula = planner::Candidate::make(tables, shape, refusal);
    ASSERT_TRUE(formula) << refusal;
    auto least = planner::Candidate::makeLeast(
        tables, shape, planner::LeastForm::first(tables, shape), kNoBound - 1,
        refusal, planner::Moves::All);
    ASSERT_TRUE(least) << refusal;
    const PipelineProblem &problem = least->problem();
    classes = std::max(classes, problem.classes - formula->problem().classes);
    for (int j = 0; j < 20; ++j) {
      PipelineSolution solution;
      solution.partition.assign(degree, 1);
      for (int64_t l = degree; l < layers; ++l)
        ++solution.partition[pick(0, degree - 1)];
      size_t stage = 0;
      int64_t left = solution.partition[0];
      for (int64_t l = 0; l < layers; ++l, --left) {
        if (left == 0)
          left = solution.partition[++stage];
        size_t number = problem.layers[problem.stages[stage].place][l];
        solution.choice.push_back(static_cast<uint32_t>(pick(
            0, static_cast<int64_t>(problem.optionSets[number].size()) - 1)));
      }
      std::vector<size_t> strategies = least->toSolved(solution).strategies;
      PipelineSolution same = solution;
      for (int64_t l = 0; l < layers; ++l)
        for (same.choice[l] = 0;
             formula->toSolved(same).strategies[l] != strategies[l];)
          ++same.choice[l];
      EXPECT_EQ(
          evaluatePipeline(problem, solution.partition, solution.choice).memory,
          evaluatePipeline(formula->problem(), same.partition, same.choice)
              .memory)
          << i << " " << j;
    }
  }
  EXPECT_GT(classes, 0u);
}

/// When a stage's gradients are summed is what the plan says, if it does.
TEST(Executed, given_ways_to_sum_stay) {
  std::mt19937_64 random(3);
  auto profile = randomProfile(random, 4);
  const Cluster cluster = executedCluster(4, 1, 1e8);
  PlannerOptions options;
  options.memory = int64_t(1) << 40;
  options.batch = 8;
  options.microBatches = 2;
  options.pipelineDegree = 2;
  options.strategy = llvm::cantFail(Strategy::parse("dp2"));
  Plan plan =
      llvm::cantFail(galvatron::plan(*profile, cluster, options)).plan();
  for (SumTiming timing : {SumTiming::AtEnd, SumTiming::Overlap}) {
    for (PlanStage &stage : plan.stages)
      stage.sums = timing;
    Plan priced =
        llvm::cantFail(evaluate(*profile, cluster, plan, options.memory))
            .plan();
    for (const PlanStage &stage : priced.stages)
      EXPECT_EQ(stage.sums, timing);
    EXPECT_NEAR(priced.iterationMs, simulated(*profile, cluster, plan),
                1e-9 * priced.iterationMs);
  }
}

/// Where all strategies of a layer take too long only the fastest one is left,
/// and is known by its own number.
TEST(Executed, options_of_lower_bounds_are_their_strategies) {
  std::mt19937_64 random(29);
  int later = 0;
  for (int i = 0; i < 8; ++i) {
    auto model = randomProfile(random, 4);
    Cluster cluster = executedCluster(2, 2, 1e10);
    planner::StrategySet set =
        planner::StrategySet::make(enumerateStrategies(4, {}));
    planner::CostTables tables(*model, cluster, Objective::Executed,
                               defaultSchedule());
    planner::Layout layout = equalStages(cluster, tables, set, 1);
    planner::Shape shape;
    shape.batch = 16;
    shape.microBatches = 2;
    shape.layout = &layout;
    auto form = planner::LeastForm::first(tables, shape);
    std::string refusal;
    auto all = planner::Candidate::makeLeast(tables, shape, form,
                                             /*atMost=*/kNoBound - 1, refusal,
                                             planner::Moves::All);
    auto few = planner::Candidate::makeLeast(tables, shape, form, /*atMost=*/1,
                                             refusal, planner::Moves::All);
    ASSERT_TRUE(all && few) << refusal;
    PipelineSolution fastest, first;
    fastest.partition = first.partition = {4};
    for (size_t l = 0; l < 4; ++l) {
      const PipelineProblem &problem = all->problem();
      const auto &options = problem.optionSets[problem.layers[0][l]];
      auto least = llvm::min_element(
          options, [&](const PipelineOption &a, const PipelineOption &b) {
            return problem.leastCost(a) < problem.leastCost(b);
          });
      fastest.choice.push_back(least - options.begin());
      first.choice.push_back(0);
      later += fastest.choice.back() > 0;
    }
    EXPECT_EQ(few->toSolved(first).strategies,
              all->toSolved(fastest).strategies);
  }
  EXPECT_GT(later, 0);
}

/// Where a space has one plan, its gap is what its lower bound misses: never
/// nothing, because bounds are rounded down.
TEST(Executed, no_plan_is_below_its_lower_bound) {
  std::mt19937_64 random(13);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int plans = 0, near = 0, tight = 0;
  for (int i = 0; i < instances(400); ++i) {
    int64_t layers = pick(1, 7);
    auto profile = randomProfile(random, layers);
    GatheredModel gathered(*profile);
    bool cpu = pick(0, 2) == 0;
    LayerModel *model = profile.get();
    if (!cpu && pick(0, 1))
      model = &gathered;
    Cluster cluster = executedCluster(
        2, pick(1, 4), cpu ? 1e9 : pick(1, 100) * 1e8, cpu ? "cpu" : "cuda");
    PlannerOptions options;
    options.memory = int64_t(1) << 40;
    options.batch = 48;
    std::vector<int64_t> degrees;
    for (int64_t degree = 1; degree <= layers; ++degree)
      if (cluster.deviceCount() % degree == 0)
        degrees.push_back(degree);
    options.pipelineDegree = degrees[pick(0, degrees.size() - 1)];
    std::vector<int64_t> rest(*options.pipelineDegree, 1);
    for (int64_t l = *options.pipelineDegree; l < layers; ++l)
      ++rest[pick(0, rest.size() - 1)];
    options.partition = rest;
    const int64_t counts[] = {1, 2, 3, 4, 6, 12};
    options.microBatches = counts[pick(0, 5)];
    options.schedule = &scheduleNamed(pick(0, 3) ? "1f1b" : "gpipe");
    std::vector<Strategy> strategies = enumerateStrategies(
        cluster.deviceCount() / *options.pipelineDegree, {});
    options.strategy = strategies[pick(0, strategies.size() - 1)];
    llvm::Expected<PlannerResult> result = plan(*model, cluster, options);
    if (!result) {
      llvm::consumeError(result.takeError());
      continue;
    }
    if (!result->feasible())
      continue;
    ++plans;
    ASSERT_TRUE(result->plan().gapPercent.has_value());
    EXPECT_GE(*result->plan().gapPercent, 0)
        << i << ": " << result->plan().summary();
    // A bound above the plan would end the proof with none.
    tight += *result->plan().gapPercent == 0;
    near += *result->plan().gapPercent < 10;
  }
  EXPECT_GT(plans, 200);
  EXPECT_GT(near, plans / 2);
  EXPECT_LT(tight, plans / 2);
}

/// Stages on any devices, groups of several sizes.
Plan placedPlan(LayerModel &model, int64_t devices, std::mt19937_64 &random) {
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  auto layers = static_cast<int64_t>(model.layerCount());
  std::vector<int64_t> ranks(devices);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), random);
  Plan plan;
  plan.objective = Objective::Executed;
  plan.batch = 24;
  plan.microBatches = 1 << pick(0, 1);
  plan.pipelineDegree = pick(1, std::min(layers, devices));
  plan.stages.resize(plan.pipelineDegree);
  for (size_t i = 0; i < ranks.size(); ++i) {
    size_t stage = i < plan.stages.size() ? i : pick(0, plan.stages.size() - 1);
    plan.stages[stage].devices.push_back(ranks[i]);
  }
  for (size_t s = 0; s < plan.stages.size(); ++s)
    plan.stages[s].layerCount = 1;
  for (int64_t left = layers - plan.pipelineDegree; left > 0; --left)
    ++plan.stages[pick(0, plan.pipelineDegree - 1)].layerCount;
  int64_t next = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    PlanStage &stage = plan.stages[s];
    stage.firstLayer = next;
    std::vector<Strategy> all =
        enumerateStrategies(static_cast<int64_t>(stage.devices.size()), {});
    llvm::erase_if(all, [&](const Strategy &strategy) {
      return plan.microBatchSamples() % strategy.sampleShards() != 0;
    });
    for (int64_t l = 0; l < stage.layerCount; ++l, ++next)
      plan.layers.push_back({model.layerName(next), static_cast<int64_t>(s),
                             all[pick(0, all.size() - 1)]});
  }
  return plan;
}

TEST(Executed, placed_plans_keep_their_bounds) {
  std::mt19937_64 random(19);
  int unequal = 0;
  for (int i = 0; i < instances(400); ++i) {
    auto profile = randomProfile(random, 1 + i % 6);
    GatheredModel model(*profile);
    Cluster cluster = executedCluster(2, 1 + i % 4, i % 3 ? 1e10 : 5e8,
                                      i % 5 ? "cuda" : "cpu");
    Plan plan = placedPlan(model, cluster.deviceCount(), random);
    ASSERT_FALSE(llvm::errorToBool(plan.check()));
    ASSERT_FALSE(llvm::errorToBool(plan.checkDevices()));
    unequal += !llvm::all_equal(llvm::map_range(
        plan.stages, [](const PlanStage &s) { return s.devices.size(); }));
    PlannerResult priced =
        llvm::cantFail(evaluate(model, cluster, plan, int64_t(1) << 40));
    ASSERT_TRUE(priced.feasible());
    StepBounds bounds = stepBounds(
        llvm::cantFail(simulationInput(model, cluster, priced.plan())));
    double ms = simulated(model, cluster, priced.plan());
    EXPECT_LE(bounds.lower * 1e3, ms * (1 + 1e-9)) << priced.plan().summary();
    EXPECT_GE(bounds.upper * 1e3, ms * (1 - 1e-9)) << priced.plan().summary();
  }
  EXPECT_GT(unequal, 100);
}

} // namespace
