//===- ExecutedTest.cpp - Plans by their simulated time -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "ExecutedModels.h"
#include "galvatron/Strategy/DecisionTree.h"

#include "../PaperOptions.h"
#include "../RandomInstances.h"

#include "gtest/gtest.h"

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

using namespace galvatron;
using namespace galvatron::test;

namespace {

TEST(Executed, plans_have_the_simulators_time) {
  std::mt19937_64 random(3);
  for (int i = 0; i < instances(12); ++i) {
    auto model = randomProfile(random, 6);
    Cluster cluster =
        executedCluster(2, 2, i % 2 ? 1e10 : 5e8, i % 3 ? "cuda" : "cpu");
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
void tryPlan(LayerModel &model, const Cluster &cluster, const Plan &plan,
             int64_t memory, Best &best) {
  auto priced = evaluate(model, cluster, plan, memory);
  if (!priced) {
    llvm::consumeError(priced.takeError());
    return;
  }
  ++best.plans;
  if (priced->feasible())
    best.ms = std::min(best.ms, priced->plan().iterationMs);
}
void tryStages(LayerModel &model, const Cluster &cluster, Plan &plan,
               size_t stage, int64_t memory, Best &best) {
  if (stage == plan.stages.size()) {
    tryPlan(model, cluster, plan, memory, best);
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

/// No plan with one strategy a stage is faster by more than the gap says, nor
/// by more than a few percent.
TEST(Executed, no_plan_of_uniform_stages_is_much_faster) {
  std::mt19937_64 random(5);
  int pipelines = 0;
  int64_t plans = 0;
  for (int i = 0; i < instances(4, 10); ++i) {
    auto model = randomProfile(random, 5);
    Cluster cluster = executedCluster(2, 2, i % 2 ? 1e10 : 5e8);
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
    ASSERT_TRUE(result.plan().gapPercent.has_value());
    EXPECT_LE(result.plan().iterationMs,
              (1 + *result.plan().gapPercent / 100) * best.ms * (1 + 1e-9))
        << i;
  }
  EXPECT_GT(pipelines, 0);
  EXPECT_GT(plans, 1000);
}

/// All ways in which the stages of a plan may sum their gradients.
void trySums(LayerModel &model, const Cluster &cluster, Plan &plan,
             size_t stage, int64_t memory, Best &best) {
  if (stage < plan.stages.size()) {
    for (SumTiming timing : {SumTiming::Overlap, SumTiming::AtEnd}) {
      plan.stages[stage].sums = timing;
      trySums(model, cluster, plan, stage + 1, memory, best);
    }
    plan.stages[stage].sums = SumTiming::ByRule;
    return;
  }
  tryPlan(model, cluster, plan, memory, best);
}

/// The strategies of all layers, one by one.
void tryLayers(LayerModel &model, const Cluster &cluster, Plan &plan,
               size_t layer, int64_t memory, Best &best) {
  if (layer == plan.layers.size()) {
    trySums(model, cluster, plan, 0, memory, best);
    return;
  }
  const PlanStage &stage = plan.stages[plan.layers[layer].stage];
  for (const Strategy &strategy :
       enumerateStrategies(static_cast<int64_t>(stage.devices.size()), {})) {
    if (plan.microBatchSamples() % strategy.sampleShards() != 0)
      continue;
    plan.layers[layer].strategy = strategy;
    tryLayers(model, cluster, plan, layer + 1, memory, best);
  }
}

/// The same layers with backward passes in two parts of equal length, of those
/// that keep their values.
class SplitModel : public SameLayers {
public:
  using SameLayers::SameLayers;
  bool splitsBackward() const override { return true; }
  llvm::Expected<LayerFootprint> splitFootprint(size_t kind,
                                                const Strategy &strategy,
                                                int64_t samples) override {
    llvm::Expected<LayerFootprint> own =
        layers.footprint(kind, strategy, samples);
    if (!own || strategy.checkpoint())
      return own;
    own->split = true;
    own->weightFlops = own->backwardFlops / 2;
    own->stashBytes += samples << 18;
    return own;
  }
};

/// Steps that do not drain, and those whose weight parts fill what stages would
/// wait: no plan with one strategy a stage is faster by more than the gap says.
TEST(Executed, gaps_of_other_formulas_cover_plans_of_uniform_stages) {
  std::mt19937_64 random(17);
  int64_t plans = 0;
  int pipelines = 0, near = 0, feasible = 0;
  for (int i = 0; i < instances(6, 10); ++i) {
    auto profile = randomProfile(random, 4);
    SplitModel model(*profile);
    Cluster cluster =
        executedCluster(2, 2, i % 2 ? 1e10 : 1e9, i % 5 == 4 ? "cpu" : "cuda");
    PlannerOptions options;
    options.batch = 8;
    options.memory = (i / 3 % 3 + 1) * (int64_t(400) << 20);
    const char *names[] = {"2bw", "zb-h1", "zb-h2"};
    options.schedule = &scheduleNamed(names[i % 3]);
    options.training.clip = false;
    PlannerResult result = llvm::cantFail(plan(model, cluster, options));
    Best best;
    for (int64_t degree : {1, 2, 4})
      for (int64_t microBatches : {1, 2, 4, 8}) {
        Plan plan;
        plan.objective = Objective::Executed;
        plan.schedule = options.schedule;
        plan.training = options.training;
        plan.batch = 8;
        plan.microBatches = microBatches;
        plan.pipelineDegree = degree;
        for (size_t l = 0; l < model.layerCount(); ++l)
          plan.layers.push_back({model.layerName(l), 0, {}});
        for (const std::vector<int64_t> &devices :
             stageDevices(cluster.deviceCount(), degree)) {
          plan.stages.emplace_back();
          plan.stages.back().devices = devices;
        }
        tryStages(model, cluster, plan, 0, *options.memory, best);
      }
    plans += best.plans;
    ASSERT_EQ(result.feasible(), std::isfinite(best.ms)) << i;
    if (!result.feasible())
      continue;
    ++feasible;
    const Plan &found = result.plan();
    pipelines += found.pipelineDegree > 1;
    near += found.iterationMs <= 1.03 * best.ms;
    ASSERT_TRUE(found.gapPercent.has_value()) << i;
    EXPECT_LE(found.iterationMs,
              (1 + *found.gapPercent / 100) * best.ms * (1 + 1e-9))
        << i << ": " << found.summary() << ", gap " << *found.gapPercent;
  }
  EXPECT_GT(plans, 1000);
  EXPECT_GT(pipelines, 1);
  EXPECT_GE(10 * near, 9 * feasible);
}

/// Of stages that are uneven, with few micro-batches, whose plans are listed
/// one by one, and with many, which are listed where the search ends.
TEST(Executed, passes_are_listed_where_a_step_is_shorter) {
  std::mt19937_64 random(23);
  const std::vector<int64_t> partitions[] = {
      {1, 4, 2, 1}, {1, 3, 3, 1}, {2, 1, 4, 1}};
  int proven = 0;
  int listed[4] = {0, 0, 0, 0};
  for (int i = 0; i < instances(16, 10); ++i) {
    auto profile = randomProfile(random, 8);
    SplitModel model(*profile);
    Cluster cluster = executedCluster(4, 1, 1e10, "cpu");
    PlannerOptions options;
    options.schedule = &scheduleNamed(i % 2 ? "zb-h1" : "zb-h2");
    options.pipelineDegree = 4;
    options.microBatches = options.batch = i / 2 % 2 ? 24 : 4;
    options.partition = partitions[i / 4 % 3];
    options.training.clip = i % 8 < 4;
    PlannerResult result = llvm::cantFail(plan(model, cluster, options));
    ASSERT_TRUE(result.feasible()) << i;
    Plan found = result.plan();
    listed[i % 4] += !found.passTimes.empty();
    // Who prices the plan again says the same of it.
    PlannerResult again =
        llvm::cantFail(evaluate(model, cluster, found, options.memory));
    EXPECT_EQ(again.plan().passTimes, found.passTimes);
    EXPECT_DOUBLE_EQ(again.plan().iterationMs, found.iterationMs);
    ASSERT_TRUE(found.boundMs.has_value());
    EXPECT_DOUBLE_EQ(*again.plan().boundMs, *found.boundMs);
    EXPECT_LE(found.iterationMs, *found.boundMs * (1 + 1e-9));
    if (found.passTimes.empty())
      continue;
    found.passTimes.clear();
    PlannerResult alike =
        llvm::cantFail(evaluate(model, cluster, found, options.memory));
    EXPECT_LT(result.plan().iterationMs, alike.plan().iterationMs) << i;
    // A plan that is slower than a known one until its passes are listed says
    // all that others do.
    options.samplesPerSecondKnown =
        (alike.plan().samplesPerSecond + result.plan().samplesPerSecond) / 2;
    PlannerResult besideKnown = llvm::cantFail(plan(model, cluster, options));
    ASSERT_TRUE(besideKnown.feasible()) << i;
    EXPECT_EQ(besideKnown.plan().iterationMs, result.plan().iterationMs) << i;
    EXPECT_EQ(besideKnown.plan().model, result.plan().model) << i;
    EXPECT_EQ(besideKnown.plan().clusterHash, cluster.hash()) << i;
    // Nor are steps longer that follow each other without a norm.
    if (!options.training.clip) {
      auto onAndOn = [&](const Plan &plan) {
        return llvm::cantFail(secondsWithoutNorm(
            llvm::cantFail(simulationInput(model, cluster, plan))));
      };
      EXPECT_LE(onAndOn(result.plan()), onAndOn(found) * (1 + 1e-9)) << i;
    }
    // What is proven is proven of every order.
    if (!result.plan().gapPercent)
      continue;
    ++proven;
    EXPECT_GE(*result.plan().gapPercent, 0);
    EXPECT_LT(*result.plan().gapPercent, 100);
  }
  // zb-h1 seldom gains by it.
  for (int kind : {0, 2})
    EXPECT_GT(listed[kind], 0) << kind;
  EXPECT_EQ(proven, std::accumulate(listed, listed + 4, 0));
}

/// Whatever the schedule is priced by, more to choose from is never worse.
TEST(Executed, a_space_is_never_slower_than_one_inside_it) {
  std::mt19937_64 random(19);
  struct Pair {
    const char *space, *inside;
  };
  const Pair pairs[] = {
      {"bmw", "base"},      {"bmw", "no-ckpt"},   {"bmw", "1f1b-time"},
      {"bmw", "dp+pp"},     {"bmw", "pp"},        {"bmw", "3d"},
      {"bmw", "dp+tp"},     {"base", "dp+pp"},    {"base", "no-ckpt"},
      {"no-ckpt", "dp+pp"}, {"dp+pp", "pp"},      {"dp+pp", "dp"},
      {"dp+tp", "tp"},      {"no-ckpt", "dp+tp"}, {"base", "3d"}};
  int compared = 0, faster = 0;
  for (int i = 0; i < instances(7, 10); ++i) {
    auto profile = randomProfile(random, 9);
    SplitModel model(*profile);
    const char *names[] = {"2bw",         "zb-h1", "zb-h2", "zb-v",
                           "interleaved", "1f1b",  "gpipe"};
    Cluster cluster = executedCluster(2, 2, i % 2 ? 1e10 : 1e9, "cpu");
    PlannerOptions options;
    options.batch = 8;
    options.memory = int64_t(600 + 300 * (i % 4)) << 20;
    options.schedule = &scheduleNamed(names[i % 7]);
    options.training.clip = false;
    if (i % 7 == 4 && i % 2)
      options.offload = Offload::Optimizer;
    std::map<std::string, PlannerResult> found;
    auto planIn = [&](const char *space) -> const PlannerResult * {
      auto known = found.find(space);
      if (known != found.end())
        return &known->second;
      options.space = space;
      llvm::Expected<PlannerResult> result = plan(model, cluster, options);
      if (!result) {
        llvm::consumeError(result.takeError());
        return nullptr;
      }
      return &found.emplace(space, std::move(*result)).first->second;
    };
    for (const Pair &pair : pairs) {
      const PlannerResult *inside = planIn(pair.inside);
      if (!inside || !inside->feasible())
        continue;
      const PlannerResult *more = planIn(pair.space);
      ASSERT_TRUE(more && more->feasible()) << i << " " << pair.space;
      double ms = more->plan().iterationMs, less = inside->plan().iterationMs;
      // Steps that drain are compared with what is proven of them.
      if (more->plan().gapPercent && i % 7 >= 5)
        ms /= 1 + *more->plan().gapPercent / 100;
      EXPECT_LE(ms, less * (1 + 1e-9)) << i << " " << names[i % 7] << ": "
                                       << pair.space << ", " << pair.inside;
      ++compared;
      faster += more->plan().iterationMs < less;
    }
  }
  EXPECT_GT(compared, 60);
  EXPECT_GT(faster, 20);
}

/// Every plan of small problems is simulated: none is faster than the answer by
/// more than the gap that is printed with it.
TEST(Executed, the_gap_covers_every_plan) {
  std::mt19937_64 random(11);
  int64_t plans = 0;
  int feasible = 0, optimal = 0, pipelines = 0;
  for (int i = 0; i < instances(12, 20); ++i) {
    int64_t layers = 3, devices = 2 + 2 * (i % 4 == 3);
    auto profile = randomProfile(random, devices == 4 ? 2 : layers);
    GatheredModel gathered(*profile);
    LayerModel *model = profile.get();
    if (i % 2 && i % 5 != 4)
      model = &gathered;
    layers = static_cast<int64_t>(model->layerCount());
    const double networks[] = {1e10, 1e9, 2e8};
    Cluster cluster = executedCluster(
        devices == 4 ? 2 : 1 + i % 2, devices == 4 ? 2 : 2 - i % 2,
        networks[i % 3], i % 5 == 4 ? "cpu" : "cuda");
    PlannerOptions options;
    options.batch = 8;
    options.memory = (i % 3 + 1) * (int64_t(250) << 20);
    options.schedule = &scheduleNamed(i % 6 == 5 ? "gpipe" : "1f1b");
    PlannerResult result = llvm::cantFail(plan(*model, cluster, options));
    Best best;
    for (int64_t degree = 1; degree <= std::min(devices, layers); degree *= 2)
      for (int64_t microBatches : {1, 2, 4, 8})
        for (int64_t first = 1; first <= layers - degree + 1; ++first) {
          Plan plan;
          plan.objective = Objective::Executed;
          plan.schedule = options.schedule;
          plan.batch = 8;
          plan.microBatches = microBatches;
          plan.pipelineDegree = degree;
          for (const std::vector<int64_t> &own :
               stageDevices(devices, degree)) {
            plan.stages.emplace_back();
            plan.stages.back().devices = own;
            plan.stages.back().layerCount = degree == 1 ? layers : first;
          }
          if (degree > 1) {
            plan.stages[1].firstLayer = first;
            plan.stages[1].layerCount = layers - first;
          } else if (first > 1) {
            continue;
          }
          for (int64_t l = 0; l < layers; ++l)
            plan.layers.push_back(
                {model->layerName(l), degree > 1 && l >= first ? 1 : 0, {}});
          tryLayers(*model, cluster, plan, 0, *options.memory, best);
        }
    plans += best.plans;
    ASSERT_EQ(result.feasible(), std::isfinite(best.ms)) << i;
    if (!result.feasible())
      continue;
    const Plan &found = result.plan();
    ++feasible;
    pipelines += found.pipelineDegree > 1;
    optimal += found.iterationMs <= best.ms * (1 + 1e-9);
    ASSERT_TRUE(found.gapPercent.has_value()) << i;
    EXPECT_LE(found.iterationMs,
              (1 + *found.gapPercent / 100) * best.ms * (1 + 1e-9))
        << i << ": " << found.summary() << ", gap " << *found.gapPercent;
  }
  EXPECT_GT(feasible, 6);
  EXPECT_GT(pipelines, 0);
  EXPECT_GT(optimal, feasible / 2);
  EXPECT_GT(plans, 5000);
}

/// Algorithm 2 looks at some partitions; what is proven is of all of them.
TEST(Executed, algorithm_2_says_how_far_from_the_best_it_may_be) {
  std::mt19937_64 random(31);
  int compared = 0, open = 0;
  for (int i = 0; i < instances(8, 10); ++i) {
    auto profile = randomProfile(random, 7);
    Cluster cluster = executedCluster(2, 2, i % 2 ? 1e10 : 1e9, "cuda");
    PlannerOptions options;
    options.batch = 8;
    options.memory = int64_t(500 + 300 * (i % 3)) << 20;
    options.space = "bi-obj";
    PlannerResult own = llvm::cantFail(plan(*profile, cluster, options));
    if (!own.feasible())
      continue;
    ASSERT_TRUE(own.plan().gapPercent) << i;
    EXPECT_EQ(own.plan().foundBy, "heuristic");
    double leastMs =
        own.plan().iterationMs / (1 + *own.plan().gapPercent / 100);
    open += *own.plan().gapPercent > 0;
    for (const char *space : {"no-ckpt", "1f1b-time", "1f1b-mem", "dp+pp"}) {
      options.space = space;
      PlannerResult other = llvm::cantFail(plan(*profile, cluster, options));
      if (!other.feasible())
        continue;
      ++compared;
      EXPECT_LE(leastMs, other.plan().iterationMs * (1 + 1e-9))
          << i << " " << space;
    }
  }
  EXPECT_GT(compared, 10);
  EXPECT_GT(open, 0);
}

/// When the stages of a plan sum their gradients is chosen as well as by trying
/// everything, and recorded: the plan is priced again as it was.
TEST(Executed, sums_of_gradients_come_when_it_is_best) {
  std::mt19937_64 random(23);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int plans = 0, chosen = 0, atEnd = 0;
  double most = 1;
  for (int i = 0; i < instances(150); ++i) {
    int64_t degree = pick(2, 5), layers = degree + pick(0, 5);
    auto profile = randomProfile(random, layers);
    GatheredModel gathered(*profile);
    LayerModel *model = profile.get();
    if (i % 2)
      model = &gathered;
    // Stages of two nodes, whose sums take long.
    Cluster cluster = executedCluster(2 * degree, 2, pick(1, 30) * 1e8);
    std::vector<Strategy> strategies = enumerateStrategies(4, {});
    Plan plan;
    plan.objective = Objective::Executed;
    plan.schedule = &scheduleNamed(i % 5 ? "1f1b" : "gpipe");
    plan.batch = 48;
    plan.microBatches = int64_t(1) << pick(0, 2);
    plan.pipelineDegree = degree;
    std::vector<int64_t> counts(degree, 1);
    for (int64_t l = degree; l < layers; ++l)
      ++counts[pick(0, degree - 1)];
    for (const std::vector<int64_t> &own : stageDevices(4 * degree, degree)) {
      PlanStage stage;
      stage.devices = own;
      stage.firstLayer = static_cast<int64_t>(plan.layers.size());
      stage.layerCount = counts[plan.stages.size()];
      for (int64_t l = 0; l < stage.layerCount; ++l)
        plan.layers.push_back({model->layerName(plan.layers.size()),
                               static_cast<int64_t>(plan.stages.size()),
                               strategies[pick(0, strategies.size() - 1)]});
      plan.stages.push_back(std::move(stage));
    }
    int64_t memory = int64_t(1) << 40;
    Plan found = llvm::cantFail(evaluate(*model, cluster, plan, memory)).plan();
    ++plans;
    // As the compiler would without a choice.
    Plan given = found;
    for (PlanStage &stage : given.stages)
      stage.sums = SumTiming::ByRule;
    double rule = simulated(*model, cluster, given);
    EXPECT_LE(found.iterationMs, rule * (1 + 1e-9)) << i;
    most = std::max(most, rule / found.iterationMs);
    EXPECT_NEAR(found.iterationMs, simulated(*model, cluster, found),
                1e-9 * found.iterationMs);
    Plan again =
        llvm::cantFail(evaluate(*model, cluster, found, memory)).plan();
    EXPECT_EQ(again.iterationMs, found.iterationMs) << i;
    for (size_t s = 0; s < found.stages.size(); ++s) {
      EXPECT_EQ(again.stages[s].sums, found.stages[s].sums) << i;
      atEnd += found.stages[s].sums == SumTiming::AtEnd;
    }
    Best best;
    trySums(*model, cluster, plan, 0, memory, best);
    EXPECT_GE(best.plans, 4);
    EXPECT_LE(found.iterationMs, best.ms * (1 + 1e-9))
        << i << ": " << found.summary();
    chosen += found.iterationMs < rule * (1 - 1e-6);
  }
  EXPECT_GT(chosen, plans / 5);
  EXPECT_GT(atEnd, 10);
  EXPECT_GT(most, 1.02);
}

/// Plans of one strategy gather ahead where their memory allows it: none is
/// faster than the answer by more than a little, wherever the budget lies.
TEST(Executed, memory_is_left_for_gathering_ahead) {
  std::mt19937_64 random(17);
  int ahead = 0, near = 0;
  const int count = instances(16, 20);
  for (int i = 0; i < count; ++i) {
    auto layers = randomProfile(random, 12);
    GatheredModel model(*layers);
    Cluster cluster = executedCluster(2, 2, 1e10);
    Plan plan;
    plan.objective = Objective::Executed;
    plan.batch = 8;
    plan.stages.emplace_back();
    plan.stages.back().devices = {0, 1, 2, 3};
    plan.stages.back().layerCount = 12;
    for (size_t l = 0; l < model.layerCount(); ++l)
      plan.layers.push_back(
          {model.layerName(l), 0, llvm::cantFail(Strategy::parse("sdp4"))});
    // What it takes to gather ahead without recomputing anything, and less.
    PlannerOptions options;
    options.batch = 8;
    options.memory = llvm::cantFail(evaluate(model, cluster, plan))
                         .plan()
                         .stages[0]
                         .peakBytes *
                     (100 - 2 * (i % 4)) / 100;
    Plan found =
        llvm::cantFail(galvatron::plan(model, cluster, options)).plan();
    ahead += llvm::any_of(found.stages, [](const PlanStage &stage) {
      return stage.gathersAhead;
    });
    Best best;
    for (const Strategy &strategy : enumerateStrategies(4, {})) {
      for (PlanLayer &layer : plan.layers)
        layer.strategy = strategy;
      PlannerResult priced =
          llvm::cantFail(evaluate(model, cluster, plan, options.memory));
      if (priced.feasible())
        best.ms = std::min(best.ms, priced.plan().iterationMs);
    }
    EXPECT_LE(found.iterationMs, 1.05 * best.ms)
        << i << ": " << found.summary();
    near += found.iterationMs <= 1.01 * best.ms;
  }
  EXPECT_GT(ahead, 1);
  EXPECT_GE(near, count * 7 / 8);
}

/// A ring crosses nodes where some of its neighbours do, whichever they are.
TEST(Executed, prices_ask_for_the_devices) {
  std::mt19937_64 random(23);
  auto model = randomProfile(random, 4);
  Cluster cluster = executedCluster(2, 2, 1e9);
  auto priceOf = [&](std::vector<int64_t> first, std::vector<int64_t> second,
                     const char *strategy) {
    Plan plan;
    plan.objective = Objective::Executed;
    plan.batch = 8;
    plan.microBatches = 2;
    plan.pipelineDegree = 2;
    plan.stages.resize(2);
    plan.stages[0].devices = std::move(first);
    plan.stages[1].devices = std::move(second);
    for (int64_t s = 0; s < 2; ++s) {
      plan.stages[s].firstLayer = 2 * s;
      plan.stages[s].layerCount = 2;
    }
    for (int64_t l = 0; l < 4; ++l)
      plan.layers.push_back({model->layerName(l), l / 2,
                             llvm::cantFail(Strategy::parse(strategy))});
    return llvm::cantFail(evaluate(*model, cluster, plan)).plan().iterationMs;
  };
  for (const char *strategy : {"tp2", "sdp2"}) {
    double inNodes = priceOf({0, 1}, {2, 3}, strategy);
    // The nodes are alike, and so are the devices of each.
    EXPECT_EQ(priceOf({2, 3}, {0, 1}, strategy), inNodes);
    EXPECT_EQ(priceOf({1, 0}, {3, 2}, strategy), inNodes);
    EXPECT_GT(priceOf({0, 2}, {1, 3}, strategy), 1.02 * inNodes);
    EXPECT_GT(priceOf({3, 0}, {2, 1}, strategy), 1.02 * inNodes);
  }
}

TEST(Executed, long_steps_continue_as_they_began) {
  std::mt19937_64 random(7);
  for (const char *schedule : {"1f1b", "gpipe"})
    for (int64_t degree : {1, 2, 4}) {
      auto model = randomProfile(random, 8);
      Cluster cluster = executedCluster(2, 2, 1e9);
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
      // The tasks of one micro-batch say all there is to know.
      SimulationInput outline =
          llvm::cantFail(simulationOutline(*model, cluster, plan));
      EXPECT_EQ(outline.program.microBatches, 1);
      EXPECT_EQ(outline.microBatches(), 256);
      for (size_t most : {4000, 1 << 30})
        EXPECT_EQ(llvm::cantFail(simulatedSeconds(outline, most)),
                  llvm::cantFail(simulatedSeconds(input, most)));
    }
}

} // namespace
