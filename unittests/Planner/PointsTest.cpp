//===- PointsTest.cpp - The search of layers that keep a part -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is dropped before points are priced is in no plan that is as good as the
// limit: against problems with all points, and against simulated plans.
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "Candidate.h"
#include "ExecutedModels.h"
#include "galvatron/Planner/Planner.h"

#include "gtest/gtest.h"

#include <cmath>
#include <functional>
#include <random>

using namespace galvatron;
using namespace galvatron::test;

namespace {

constexpr int64_t kPoints = 3;

/// Layers with points: each keeps less than the one before, and computes a
/// larger part of its forward pass again.
class PointModel : public GatheredModel {
public:
  using GatheredModel::GatheredModel;
  int64_t pointCount(size_t, const Strategy &, int64_t) override {
    return kPoints;
  }
  llvm::Expected<KeptValues> keptValues(size_t, const Strategy &strategy,
                                        int64_t) override {
    return KeptValues{"body", {{strategy.point(), 0}}, {}, {}};
  }
  std::vector<NamedValue> valuesOf(size_t) override {
    return {{{kPoints, 0}, "kept", /*needed=*/true, {}}};
  }
  llvm::Error givePoint(size_t, const Strategy &, int64_t,
                        const KeptValues &) override {
    return llvm::Error::success();
  }
  llvm::Expected<LayerFootprint>
  footprint(size_t kind, const Strategy &strategy, int64_t samples) override {
    llvm::Expected<LayerFootprint> own = measured(kind, strategy, samples);
    if (!own || strategy.point() == 0)
      return own;
    ++priced;
    // Without bound, so that solutions with least bytes often do not fit.
    own->backwardTransient += own->inputBytes * strategy.point() * hidden;
    return own;
  }
  llvm::Expected<LayerFootprint> leastFootprint(size_t kind,
                                                const Strategy &strategy,
                                                int64_t samples) override {
    return isLazy ? measured(kind, strategy, samples)
                  : footprint(kind, strategy, samples);
  }

  int64_t priced = 0; ///< footprints of points
  bool isLazy = true;
  int64_t hidden = 0; ///< temporaries that measuring does not know, per point
  std::function<void(LayerFootprint &)> change; ///< of all points

private:
  llvm::Expected<LayerFootprint> measured(size_t kind, const Strategy &strategy,
                                          int64_t samples) {
    int64_t point = strategy.point();
    llvm::Expected<LayerFootprint> own = GatheredModel::footprint(
        kind, point ? strategy.withPoint(0) : strategy, samples);
    if (!own || point == 0)
      return own;
    // The local search asks for any point of the space.
    if (point > kPoints)
      return makeError("no point " + llvm::Twine(point));
    constexpr double parts[] = {0, 0.05, 0.2, 0.8};
    own->stashBytes = own->stashBytes / (kPoints + 1) * (kPoints + 1 - point);
    own->backwardFlops += parts[point] * own->forwardFlops;
    own->backwardMovedBytes += parts[point] * own->forwardMovedBytes;
    own->backwardSeconds += parts[point] * own->forwardSeconds;
    for (ProductWork work : own->forwardProducts) {
      work.flops *= parts[point];
      own->backwardProducts.push_back(work);
    }
    if (change)
      change(*own);
    return own;
  }
};

planner::StrategySet withPoints(int64_t devices) {
  std::vector<Strategy> strategies = enumerateStrategies(devices, {});
  for (size_t i = 0, count = strategies.size(); i < count; ++i)
    for (int64_t point = 1; point <= kPoints && !strategies[i].checkpoint();
         ++point)
      strategies.push_back(strategies[i].withPoint(point));
  return planner::StrategySet::make(std::move(strategies));
}

/// A pipeline's cost, and the bytes of its fullest stage.
struct Fastest {
  Picoseconds cost;
  int64_t memory;
};

/// A random model on stages that are alike.
struct Case {
  std::unique_ptr<ProfileLayerModel> profile;
  std::unique_ptr<PointModel> model;
  Cluster cluster;
  std::unique_ptr<planner::CostTables> tables;
  planner::StrategySet set;
  planner::Layout layout;
  planner::Shape shape;

  Case(std::mt19937_64 &random, int64_t degree, const char *schedule)
      : profile(randomProfile(random, degree + int64_t(random() % 4))),
        model(std::make_unique<PointModel>(*profile)),
        cluster(executedCluster(
            degree, int64_t(1) << random() % 3,
            std::pow(10, 8 + 0.5 * static_cast<double>(random() % 5)))),
        set(withPoints(cluster.deviceCount() / degree)) {
    shape.schedule = &scheduleNamed(schedule);
    tables = std::make_unique<planner::CostTables>(
        *model, cluster, Objective::Executed, *shape.schedule);
    layout.degree = degree;
    layout.set = &set;
    layout.own.resize(degree);
    for (planner::StrategySubset &own : layout.own)
      own.set = &set;
    layout.devices = stageDevices(cluster.deviceCount(), degree);
    layout.memory.assign(degree, int64_t(1) << 40);
    layout.hostMemory.assign(degree, kAnyBytes);
    for (auto [s, devices] : llvm::enumerate(layout.devices)) {
      layout.backend.push_back(backendTraits(cluster.backendOf(devices)));
      layout.place.push_back(tables->placeOf(devices));
      layout.movePlace.push_back(tables->movePlaceOf(devices));
      if (s > 0)
        layout.cutPlace.push_back(
            tables->placeOf(layout.devices[s - 1], devices));
    }
    shape.batch = 48;
    constexpr int64_t counts[] = {2, 3, 4, 6, 12};
    shape.microBatches = counts[random() % 5];
    shape.layout = &layout;
  }

  std::unique_ptr<planner::Candidate> candidate(planner::Points points) {
    std::string refusal;
    auto made = planner::Candidate::make(*tables, shape, refusal, /*fewest=*/0,
                                         planner::Moves::All, points);
    EXPECT_TRUE(made) << refusal;
    return made;
  }
  /// The fastest pipeline that keeps all, as if memory were endless.
  std::optional<Fastest> fastest() {
    std::string refusal;
    auto unbound = planner::Candidate::makeUnbound(*tables, shape, refusal,
                                                   planner::Moves::All);
    EXPECT_TRUE(unbound) << refusal;
    if (!unbound)
      return std::nullopt;
    PipelineSearch search(unbound->problem());
    std::optional<PipelineSolution> found = search.solve();
    if (!found)
      return std::nullopt;
    tables->setPoints(false);
    auto plain = candidate({});
    tables->setPoints(true);
    return Fastest{
        found->cost,
        *llvm::max_element(
            evaluatePipeline(plain->problem(), found->partition, found->choice)
                .memory)};
  }
};

size_t optionsOf(const PipelineProblem &problem) {
  size_t count = 0;
  for (const auto &set : problem.optionSets)
    count += set.size();
  return count;
}

} // namespace

/// Lemmas P1 to P3 of docs/search.md, for every formula.
TEST(Points, what_is_not_priced_is_in_no_plan_within_the_limit) {
  std::mt19937_64 random(7);
  int bound = 0, fewer = 0, none = 0, filled = 0;
  const char *schedules[] = {"1f1b", "gpipe", "zb-h1", "2bw"};
  for (int i = 0; i < instances(120); ++i) {
    Case one(random, 1 + int64_t(random() % 3), schedules[random() % 4]);
    std::optional<Fastest> fastest = one.fastest();
    ASSERT_TRUE(fastest);
    EXPECT_EQ(one.model->priced, 0);
    // Memory for a part of what keeping all takes.
    auto part = static_cast<double>(random() % 100) / 100;
    for (int64_t &memory : one.layout.memory)
      memory = static_cast<int64_t>(static_cast<double>(fastest->memory) *
                                    (0.4 + part));

    auto all = one.candidate({kNoBound, planner::PointBytes::Exact});
    PipelineSearch search(all->problem());
    std::optional<PipelineSolution> best = search.solve();
    if (!best) {
      ++none;
      continue;
    }
    planner::StepForm form = one.shape.form(Objective::Executed);
    planner::FreeBound least = planner::freeBound(*one.tables, one.shape);
    EXPECT_LE(
        planner::stepBound(one.shape, form, least, one.model->layerCount()),
        best->cost);
    if (planner::Candidate::pointsTakeNoLess(form)) {
      EXPECT_LE(fastest->cost, best->cost) << i;
      bound += fastest->cost < best->cost;
    } else {
      ++filled;
    }
    for (double above : {-0.02, 0.0, 0.03}) {
      auto limit = static_cast<Picoseconds>(static_cast<double>(best->cost) *
                                            (1 + above));
      auto some = one.candidate({limit, planner::PointBytes::Exact});
      fewer += optionsOf(some->problem()) < optionsOf(all->problem());
      PipelineSearch within(some->problem());
      std::optional<PipelineSolution> found = within.solve(limit);
      ASSERT_EQ(found.has_value(), limit >= best->cost) << i;
      if (found) {
        EXPECT_EQ(found->cost, best->cost) << i;
      }
    }
  }
  EXPECT_GT(bound, 10);
  EXPECT_GT(fewer, 10);
  EXPECT_GT(filled, 5);
  EXPECT_LT(none, instances(120) / 2);
}

/// What lemmas P1 to P3 say of points: no part of their time is less than that
/// of keeping all. Those of which one is are no options, however much longer
/// the others are.
TEST(Points, of_which_any_part_takes_less_are_left_out) {
  struct Lesser {
    const char *name;
    std::function<void(LayerFootprint &)> change;
  };
  auto longer = [](LayerFootprint &point) {
    point.backwardFlops *= 9;
    point.backwardMovedBytes *= 9;
    point.backwardSeconds *= 9;
  };
  auto without = [&](CollectiveTime when) {
    return [&longer, when](LayerFootprint &point) {
      longer(point);
      llvm::erase_if(point.collectives, [&](const LayerCollective &each) {
        return each.when == when;
      });
    };
  };
  const Lesser lessers[] = {
      {"backward",
       [](LayerFootprint &point) {
         point.backwardFlops /= 2;
         point.backwardMovedBytes /= 2;
         point.backwardSeconds /= 2;
       }},
      {"forward",
       [&](LayerFootprint &point) {
         longer(point);
         point.forwardFlops /= 2;
         point.forwardMovedBytes /= 2;
         point.forwardSeconds /= 2;
       }},
      {"sums of gradients", without(CollectiveTime::Step)},
      {"collectives of forward", without(CollectiveTime::Forward)},
      {"update",
       [&](LayerFootprint &point) {
         longer(point);
         point.updateBytes = 0;
       }},
  };
  std::mt19937_64 random(3);
  std::unique_ptr<Case> made;
  do
    made = std::make_unique<Case>(random, 2, "1f1b");
  while (made->cluster.deviceCount() < 4);
  Case &one = *made;
  one.shape.microBatches = 6;
  auto pointsOf = [&](std::function<void(LayerFootprint &)> change) {
    one.model->change = std::move(change);
    planner::CostTables tables(*one.model, one.cluster, Objective::Executed,
                               *one.shape.schedule);
    for (auto [s, devices] : llvm::enumerate(one.layout.devices)) {
      one.layout.place[s] = tables.placeOf(devices);
      one.layout.movePlace[s] = tables.movePlaceOf(devices);
    }
    size_t count = 0;
    for (const planner::KindOption &plain :
         tables.kindOptions(0, one.shape, 0).options)
      count +=
          tables
              .pointOptions(0, one.shape, 0, plain, planner::PointBytes::Exact)
              .size();
    return count;
  };
  size_t all = pointsOf(nullptr);
  EXPECT_EQ(pointsOf(longer), all);
  ASSERT_GT(all, size_t(kPoints));
  for (const Lesser &lesser : lessers)
    EXPECT_LT(pointsOf(lesser.change), all) << lesser.name;
  EXPECT_EQ(pointsOf(lessers[0].change), 0u);
  EXPECT_EQ(pointsOf(lessers[1].change), 0u);
  EXPECT_EQ(pointsOf(lessers[4].change), 0u);
}

/// Where gathers run ahead a layer's temporaries have room for its neighbour's
/// parameters: as much as two such layers take that follow each other.
TEST(Points, layers_gathered_ahead_have_room_for_two) {
  std::mt19937_64 random(4);
  int gathered = 0;
  for (int i = 0; i < 20; ++i) {
    Case one(random, 1 + int64_t(random() % 2), "1f1b");
    one.shape.microBatches = 6;
    auto optionsOf = [&](bool isAhead) {
      one.tables->setGathersAhead(isAhead);
      return one.tables->kindOptions(0, one.shape, 0).options;
    };
    std::vector<planner::KindOption> alone = optionsOf(false),
                                     ahead = optionsOf(true);
    ASSERT_EQ(alone.size(), ahead.size());
    for (auto [plain, two] : llvm::zip_equal(alone, ahead)) {
      const Strategy &strategy = one.set.strategies[two.strategy];
      LayerFootprint footprint =
          llvm::cantFail(one.model->footprint(0, strategy, two.samples));
      int64_t backward =
          align64(footprint.backwardTransient) + footprint.backwardGathered;
      int64_t forward = align64(footprint.outputBytes) +
                        align64(footprint.forwardTransient) +
                        footprint.forwardGathered;
      EXPECT_EQ(two.memory.kept, plain.memory.kept);
      if (footprint.backwardGathered == 0) {
        EXPECT_EQ(two.memory.backward, plain.memory.backward);
        continue;
      }
      ++gathered;
      EXPECT_GE(two.memory.backward, backward);
      EXPECT_GT(two.memory.backward, plain.memory.backward);
      if (footprint.forwardTransient > 0)
        EXPECT_GE(two.memory.backward, forward);
      EXPECT_LE(two.memory.backward, align64(std::max(backward, forward)) + 64);
    }
  }
  EXPECT_GT(gathered, 20);
}

/// Lemma P4: bytes of points that are made exact once a solution has them are
/// as good as if all had been exact from the beginning on.
TEST(Points, bytes_that_are_priced_late_change_no_plan) {
  std::mt19937_64 random(9);
  int with = 0, fewer = 0;
  for (int i = 0; i < instances(100); ++i) {
    Case one(random, 1 + int64_t(random() % 3), "1f1b");
    one.model->hidden = int64_t(random() % 4) * 4;
    PlannerOptions options;
    options.selective = true;
    options.relaxations = options.reasons = false;
    options.batch = 16 << random() % 3;
    if (random() % 4 == 0) {
      // A sweep, with families.
      options.batch.reset();
      options.maxBatch = 64;
    }
    std::optional<Fastest> fastest = one.fastest();
    ASSERT_TRUE(fastest);
    auto part = static_cast<double>(random() % 100) / 100;
    options.memory = static_cast<int64_t>(static_cast<double>(fastest->memory) *
                                          (0.3 + part / 2));
    std::string texts[2];
    int64_t priced[2];
    double gaps[2] = {0, 0};
    for (bool isLazy : {false, true}) {
      one.model->isLazy = isLazy;
      one.model->priced = 0;
      PlannerResult result =
          llvm::cantFail(plan(*one.model, one.cluster, options));
      priced[isLazy] = one.model->priced;
      if (!result.feasible())
        continue;
      Plan found = result.plan();
      found.searchMs = 0;
      // Bounds of the executed time know no more than the least bytes.
      gaps[isLazy] = found.gapPercent.value_or(100);
      found.gapPercent.reset();
      for (const PlanLayer &layer : found.layers)
        with += layer.strategy.point() > 0;
      llvm::raw_string_ostream(texts[isLazy])
          << found.iterationMs << " " << found.toJson();
    }
    EXPECT_EQ(texts[0], texts[1]) << i;
    EXPECT_LE(priced[1], priced[0]);
    EXPECT_GE(gaps[1], gaps[0]);
    fewer += priced[1] < priced[0];
  }
  EXPECT_GT(with, 20);
  EXPECT_GT(fewer, 20);
}

/// The least executed time, which is found without points, of plans with them.
TEST(Points, no_plan_is_executed_faster_than_the_least_without_points) {
  std::mt19937_64 random(8);
  int near = 0, plans = 0;
  for (int i = 0; i < instances(80); ++i) {
    int64_t degree = 1 + int64_t(random() % 3);
    Case one(random, degree, random() % 4 ? "1f1b" : "gpipe");
    Picoseconds least = planner::leastFreeTime(*one.tables, one.shape, true);
    EXPECT_EQ(one.model->priced, 0);
    std::string refusal;
    auto bounds = planner::Candidate::makeLeast(
        *one.tables, one.shape,
        planner::LeastForm::first(*one.tables, one.shape), kNoBound - 1,
        refusal, planner::Moves::All);
    ASSERT_TRUE(bounds) << refusal;
    // A bound needs no bytes but the least.
    EXPECT_EQ(one.model->priced, 0);
    const PipelineProblem &problem = bounds->problem();
    for (int j = 0; j < 10; ++j) {
      PipelineSolution solution;
      auto layers = static_cast<int64_t>(one.model->layerCount());
      solution.partition.assign(degree, 1);
      for (int64_t l = degree; l < layers; ++l)
        ++solution.partition[random() % degree];
      Plan plan;
      plan.objective = Objective::Executed;
      plan.schedule = one.shape.schedule;
      plan.batch = one.shape.batch;
      plan.microBatches = one.shape.microBatches;
      plan.pipelineDegree = degree;
      for (int64_t s = 0, l = 0; s < degree; ++s) {
        PlanStage &stage = plan.stages.emplace_back();
        stage.devices = one.layout.devices[s];
        stage.firstLayer = l;
        stage.layerCount = solution.partition[s];
        stage.sums = random() % 2 ? SumTiming::Overlap : SumTiming::AtEnd;
        for (int64_t n = 0; n < stage.layerCount; ++n, ++l) {
          size_t place = problem.stages[s].place;
          solution.choice.push_back(
              random() % problem.optionSets[problem.layers[place][l]].size());
          plan.layers.push_back({one.model->layerName(l), s, {}});
        }
      }
      for (auto [layer, strategy] :
           llvm::zip_equal(plan.layers, bounds->toSolved(solution).strategies))
        layer.strategy = one.set.strategies[strategy];
      double ms = simulated(*one.model, one.cluster, plan);
      Picoseconds own =
          evaluatePipeline(problem, solution.partition, solution.choice).cost;
      EXPECT_LE(static_cast<double>(own) * 1e-9, ms * (1 + 1e-9)) << i;
      EXPECT_LE(static_cast<double>(least) * 1e-9, ms * (1 + 1e-9)) << i;
      ++plans;
      near += static_cast<double>(own) * 1e-9 > 0.8 * ms;
    }
  }
  EXPECT_GT(near, plans / 8);
}
