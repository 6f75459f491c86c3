//===- PlannerTest.cpp - The planner against whole-plan brute force -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Planner.h"
#include "../TestSchedule.h"
#include "galvatron/Planner/Gap.h"
#include "galvatron/Planner/Knee.h"

#include "../PaperOptions.h"
#include "../RandomInstances.h"
#include "LongSamples.h"
#include "PlannerProblems.h"
#include "RandomModel.h"

#include "gtest/gtest.h"

#include <random>

using namespace galvatron;
using galvatron::test::brute;
using galvatron::test::BruteResult;
using galvatron::test::forced;
using galvatron::test::mixedCluster;
using galvatron::test::oddCluster;
using galvatron::test::PlainModel;
using galvatron::test::RandomModel;
using galvatron::test::smallCluster;

namespace {

TEST(Planner, agrees_with_brute_force_over_whole_plans) {
  std::mt19937_64 random(99);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int feasible = 0, infeasible = 0, pipelines = 0, uneven = 0, mixed = 0,
      odd = 0;
  for (int trial = 0; trial < instances(210); ++trial) {
    int64_t devices = trial % 6 == 0 ? 4 : trial % 6 == 1 ? 3 : 2;
    int64_t kind = trial >= instances(150) ? 3 : pick(0, devices == 3 ? 0 : 2);
    // Every third of them has more devices than cores.
    int64_t cores = trial % 3 == 2 ? 1 + trial % 2 : 0;
    Cluster cluster = kind == 0   ? smallCluster(1, devices, 1.3, cores)
                      : kind == 1 ? smallCluster(2, devices / 2, 2)
                      : kind == 2 ? mixedCluster(devices)
                                  : oddCluster(random, devices);
    size_t count = devices == 2 ? pick(2, 4) : pick(2, 3);
    bool anyPartition = pick(0, 2) != 0;
    std::vector<size_t> kinds = {0};
    while (kinds.size() < count)
      kinds.push_back(pick(1, 2));
    // In this order: arguments of a call have none.
    bool tied = pick(0, 1);
    RandomModel model(random(), kinds, tied);
    int64_t batch = devices * (int64_t(1) << pick(0, 2));
    const Schedule &schedule = scheduleNamed(pick(0, 2) ? "1f1b" : "gpipe");
    int64_t memory = pick(200000, 600000) * batch;
    SpaceOptions space;
    // bmw has no variant without recomputation.
    if (devices == 4 && !anyPartition)
      space.checkpoint = CheckpointChoice::Never;
    if (devices == 4 && anyPartition && count > 2)
      continue;
    BruteResult expected =
        brute(model, cluster, batch, memory, schedule, space, anyPartition);
    PlannerOptions options = paperOptions();
    options.space = anyPartition ? "bmw" : devices == 4 ? "no-ckpt" : "base";
    options.groups = Groups::Equal;
    options.batch = batch;
    options.memory = memory;
    options.schedule = &schedule;
    auto found = plan(model, cluster, options);
    ASSERT_TRUE(static_cast<bool>(found)) << llvm::toString(found.takeError());
    if (expected.plans == 0)
      continue;
    ASSERT_EQ(found->feasible(), expected.best >= 0) << "trial " << trial;
    if (!found->feasible()) {
      ++infeasible;
      const Infeasible &reason = found->infeasible();
      EXPECT_EQ(reason.neededBytes - reason.availableBytes,
                expected.leastExcess);
      EXPECT_EQ(reason.ledger.total(), reason.neededBytes);
      // The budget that the message asks for is enough, one byte less is not.
      options.memory = reason.neededBytes;
      EXPECT_TRUE(llvm::cantFail(plan(model, cluster, options)).feasible());
      options.memory = reason.neededBytes - 1;
      EXPECT_FALSE(llvm::cantFail(plan(model, cluster, options)).feasible());
      continue;
    }
    ++feasible;
    const Plan &best = found->plan();
    pipelines += best.pipelineDegree > 1;
    uneven += best.stages.front().layerCount < best.stages.back().layerCount;
    mixed += kind == 2;
    odd += kind == 3;
    EXPECT_EQ(best.provenGapPercent, 0);
    EXPECT_EQ(best.foundBy, "exact");
    EXPECT_EQ(found->plan().iterationMs, expected.best) << "trial " << trial;
  }
  EXPECT_GT(feasible, 40);
  EXPECT_GT(infeasible, 5);
  EXPECT_GT(pipelines, 5);
  EXPECT_GT(uneven, 1);
  EXPECT_GT(mixed, 10);
  EXPECT_GT(odd, 20);
}

/// Paradigms that are searched on request are in the trees that ask for them.
TEST(Planner, agrees_with_brute_force_where_rows_may_be_divided) {
  const Paradigm tsp = *ParadigmRegistry::find("tsp");
  std::mt19937_64 random(31);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int feasible = 0, used = 0, besideOthers = 0;
  for (int trial = 0; trial < instances(60); ++trial) {
    int64_t devices = trial % 20 == 0 ? 4 : 2;
    Cluster cluster = smallCluster(1, devices, 1.3);
    std::vector<size_t> kinds = {0};
    for (int64_t count = devices == 4 ? 2 : pick(2, 3);
         static_cast<int64_t>(kinds.size()) < count;)
      kinds.push_back(1);
    RandomModel model(random(), kinds, /*tied=*/trial % 2);
    int64_t batch = devices * (int64_t(1) << pick(0, 2));
    int64_t memory = pick(300000, 900000) * batch;
    PlannerOptions options = paperOptions();
    options.groups = Groups::Equal;
    options.batch = batch;
    options.memory = memory;
    options.paradigms = {Paradigm::DP, Paradigm::SDP, Paradigm::TP, tsp};
    SpaceOptions space;
    space.paradigms = ParadigmSet(options.paradigms);
    BruteResult expected = brute(model, cluster, batch, memory,
                                 scheduleNamed("1f1b"), space, true);
    auto found = plan(model, cluster, options);
    ASSERT_TRUE(static_cast<bool>(found)) << llvm::toString(found.takeError());
    if (expected.plans == 0)
      continue;
    ASSERT_EQ(found->feasible(), expected.best >= 0) << "trial " << trial;
    if (!found->feasible())
      continue;
    ++feasible;
    EXPECT_EQ(found->plan().iterationMs, expected.best) << "trial " << trial;
    bool mine = false, others = false;
    for (const PlanLayer &layer : found->plan().layers) {
      mine |= layer.strategy.hasLevel(tsp);
      others |= !layer.strategy.hasLevel(tsp);
    }
    used += mine;
    besideOthers += mine && others;
  }
  EXPECT_GT(feasible, 30);
  EXPECT_GT(used, 5);
  EXPECT_GT(besideOthers, 3);
}

/// A model whose samples are long.
class LongModel : public RandomModel {
public:
  LongModel(uint64_t seed, std::vector<size_t> kinds, int64_t positions)
      : RandomModel(seed, std::move(kinds), /*tied=*/false),
        positions(positions) {}
  int64_t sequenceLength() const override { return positions; }

private:
  int64_t positions;
};

/// Four devices of a backend, of so many bytes.
Cluster devicesOf(const char *backend, int64_t memory) {
  DeviceType type;
  type.name = "d";
  type.backend = backend;
  type.memory = memory;
  type.flops = {{"f32", 1e12}};
  type.memoryBandwidth = 1e12;
  return llvm::cantFail(
      Cluster::get("t", {type}, {{1, "d", 4, {1e10, 1e-6}}}, Link{1e10, 1e-6}));
}

/// Positions are cut unasked where samples are long, and a batch has fewer than
/// there are devices or a device has too little for one.
TEST(Planner, positions_are_cut_unasked_where_samples_are_long) {
  constexpr int64_t room = int64_t(1) << 40, narrow = 200000;
  auto extra = [](int64_t positions, const char *backend, int64_t memory,
                  PlannerOptions options) {
    LongModel model(3, {0, 1, 1}, positions);
    Cluster cluster = devicesOf(backend, memory);
    planner::LongSamples found =
        planner::findLongSamples(model, cluster, options);
    std::string names;
    for (Paradigm paradigm :
         llvm::ArrayRef(found.wide)
             .drop_front(std::min(found.narrow.size(), found.wide.size())))
      names += (paradigm.name() + " ").str();
    EXPECT_EQ(found.matter(), !names.empty());
    EXPECT_EQ(found.reason.empty(), names.empty());
    return names;
  };
  PlannerOptions options;
  options.batch = 2;
  EXPECT_EQ(extra(4096, "cpu", room, options),
            "tsp cp scp zcp up sup ring sring ");
  EXPECT_EQ(extra(4096, "cuda", room, options),
            "tsp cp scp zcp up sup ring sring ");
  EXPECT_EQ(extra(4095, "cpu", room, options), "");
  options.batch = 4;
  EXPECT_EQ(extra(4096, "cpu", room, options), "");
  EXPECT_EQ(extra(4096, "cpu", narrow, options),
            "tsp cp scp zcp up sup ring sring ");
  options.memory = narrow;
  EXPECT_EQ(extra(4096, "cpu", room, options),
            "tsp cp scp zcp up sup ring sring ");
  EXPECT_EQ(extra(2048, "cpu", room, options), "");
  options.memory.reset();
  options.batch.reset();
  EXPECT_EQ(extra(1 << 20, "cpu", room, options), "");
  options.batch = 1;
  for (const char *space : {"no-ckpt", "dp", "3d"}) {
    options.space = space;
    EXPECT_EQ(extra(8192, "cpu", room, options), "") << space;
  }
  options.space = "base";
  EXPECT_EQ(extra(8192, "cpu", room, options),
            "tsp cp scp zcp up sup ring sring ");
  options.paradigms = {Paradigm::DP};
  EXPECT_EQ(extra(8192, "cpu", room, options), "");
  PlannerOptions paper = paperOptions();
  paper.batch = 1;
  EXPECT_EQ(extra(8192, "cpu", room, paper), "");
}

/// A plan is never slower for the strategies that cut positions, and is the
/// better one of what both lists of paradigms give.
TEST(Planner, the_better_of_both_spaces_is_taken_where_samples_are_long) {
  int cut = 0, whole = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    LongModel model(seed, {0, 1, 1}, 8192);
    Cluster cluster = devicesOf("cpu", 4000000);
    PlannerOptions options;
    options.batch = 2;
    auto planned = [&](std::vector<Paradigm> paradigms) {
      PlannerOptions asked = options;
      asked.paradigms = std::move(paradigms);
      return llvm::cantFail(plan(model, cluster, asked));
    };
    planner::LongSamples samples =
        planner::findLongSamples(model, cluster, options);
    PlannerResult narrow = planned(samples.narrow);
    PlannerResult wide = planned(samples.wide), unasked = planned({});
    auto timeOf = [](const PlannerResult &result) {
      return result.feasible() ? result.plan().iterationMs
                               : std::numeric_limits<double>::infinity();
    };
    ASSERT_EQ(timeOf(unasked), std::min(timeOf(narrow), timeOf(wide)))
        << "seed " << seed;
    if (!unasked.feasible())
      continue;
    bool isCut = llvm::any_of(unasked.plan().layers, [](const auto &layer) {
      return llvm::any_of(layer.strategy.levels(), [](const Level &level) {
        return level.paradigm->resting == RestingState::Rows;
      });
    });
    ++(isCut ? cut : whole);
    // The plan of a list has the name of the search of that list.
    if (timeOf(narrow) <= timeOf(wide))
      EXPECT_EQ(unasked.plan().foundBy, narrow.plan().foundBy);
    bool isTold = llvm::any_of(unasked.decisions, [](llvm::StringRef decision) {
      return decision.starts_with("positions are cut as well: 4 devices have "
                                  "2 samples of 8192 positions");
    });
    EXPECT_TRUE(isTold);
    // No bound is above the time of a plan that the space has.
    if (unasked.plan().gapPercent)
      EXPECT_LE(planner::leastMsOf(unasked.plan()),
                std::min(timeOf(narrow), timeOf(wide)) * (1 + 1e-9));
  }
  EXPECT_GT(cut, 2);
}

TEST(Planner, pinned_layers_keep_their_strategy_and_the_rest_is_optimal) {
  std::mt19937_64 random(7);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int feasible = 0, outside = 0, slower = 0;
  for (int trial = 0; trial < instances(60); ++trial) {
    int64_t devices = trial % 4 == 0 ? 4 : 2;
    Cluster cluster = smallCluster(1, devices, 1.3);
    size_t count = devices == 4 ? 2 : pick(2, 4);
    std::vector<size_t> kinds = {0};
    while (kinds.size() < count)
      kinds.push_back(1);
    RandomModel model(random(), kinds, /*tied=*/trial % 2);
    int64_t batch = devices * (int64_t(1) << pick(0, 2));
    int64_t memory = pick(300000, 900000) * batch;
    // Recomputation is a pin's alone in half of the trials.
    SpaceOptions space;
    bool plain = pick(0, 1);
    if (plain)
      space.checkpoint = CheckpointChoice::Never;
    std::vector<int64_t> sizes = divisors(devices);
    std::vector<Strategy> all = enumerateStrategies(
        sizes[size_t(pick(0, int64_t(sizes.size()) - 1))], SpaceOptions());
    galvatron::test::Pins pins(count);
    PlannerOptions options = paperOptions();
    for (int64_t i = pick(1, 2); i > 0; --i) {
      size_t layer = size_t(pick(0, int64_t(count) - 1));
      if (pins[layer])
        continue;
      pins[layer] = all[size_t(pick(0, int64_t(all.size()) - 1))];
      options.pins.push_back({model.layerName(layer), *pins[layer]});
    }
    options.space = plain ? "no-ckpt" : "base";
    options.batch = batch;
    options.memory = memory;
    BruteResult expected = brute(model, cluster, batch, memory,
                                 scheduleNamed("1f1b"), space, false, pins);
    auto found = plan(model, cluster, options);
    if (!found) {
      // More stages than layers.
      llvm::consumeError(found.takeError());
      EXPECT_EQ(expected.plans, 0);
      continue;
    }
    ASSERT_EQ(found->feasible(), expected.best >= 0) << "trial " << trial;
    if (!found->feasible())
      continue;
    ++feasible;
    EXPECT_EQ(found->plan().iterationMs, expected.best) << "trial " << trial;
    for (size_t layer = 0; layer < count; ++layer) {
      const Strategy &strategy = found->plan().layers[layer].strategy;
      if (pins[layer]) {
        EXPECT_EQ(strategy, *pins[layer]);
        outside += plain && strategy.checkpoint();
      } else {
        EXPECT_FALSE(plain && strategy.checkpoint()) << "a pin's strategy";
      }
    }
    // The proof of executed times finds plans, too.
    PlannerOptions executed = options;
    executed.objective = Objective::Executed;
    PlannerResult best = llvm::cantFail(plan(model, cluster, executed));
    ASSERT_TRUE(best.feasible());
    for (size_t layer = 0; layer < count; ++layer) {
      const Strategy &strategy = best.plan().layers[layer].strategy;
      if (pins[layer])
        EXPECT_EQ(strategy, *pins[layer]) << "executed, trial " << trial;
      else
        EXPECT_FALSE(plain && strategy.checkpoint());
    }
    options.pins.clear();
    double without =
        llvm::cantFail(plan(model, cluster, options)).plan().iterationMs;
    EXPECT_LE(without, expected.best);
    slower += without < expected.best;
  }
  EXPECT_GT(feasible, 20);
  EXPECT_GT(outside, 5);
  EXPECT_GT(slower, 10);
}

TEST(Planner, forced_plans_are_priced_by_the_formula) {
  PlainModel model(5);
  Cluster cluster = smallCluster(1, 4, 1.3);
  PlannerOptions options = forced(16, "dp2", 2, 4);
  options.space = "base";
  PlannerResult result = llvm::cantFail(plan(model, cluster, options));
  ASSERT_TRUE(result.feasible());
  const Plan &found = result.plan();
  // 3 and 2 layers; 2 local samples; 2 ms forward and 4 ms backward a layer.
  EXPECT_EQ(found.stages[0].layerCount, 3);
  // 128 bytes over 3 GB/s, 2 us of latency, one transfer on each side.
  double send = 2e-3 + 128 / 3e9 * 1e3;
  EXPECT_NEAR(found.stages[0].timeMs, 18 + send, 1e-6);
  EXPECT_NEAR(found.stages[1].timeMs, 12 + send, 1e-6);
  EXPECT_NEAR(found.iterationMs, 3 * (18 + send) + 30 + 2 * send, 1e-6);
  EXPECT_NEAR(found.samplesPerSecond, 16 / found.iterationMs * 1e3, 1e-6);
  // Stage 0 keeps two micro-batches in flight.
  const StageLedger &ledger = found.stages[0].ledger;
  EXPECT_EQ(ledger.parameters, 3 * 6400);
  EXPECT_EQ(ledger.activations, 2 * 3 * 2 * (64 + 640));
  EXPECT_EQ(ledger.communication, 2 * 128);
  EXPECT_EQ(ledger.runtime, 256);
  EXPECT_EQ(found.stages[1].ledger.runtime, 256 + 64);
  EXPECT_EQ(found.stages[0].peakBytes, ledger.total());
  EXPECT_TRUE(found.exactPeak);
  EXPECT_FALSE(result.decisions.empty());
}

/// Gradients are summed once a step, however large its batch is.
class SyncedModel : public PlainModel {
public:
  using PlainModel::PlainModel;
  llvm::Expected<LayerFootprint>
  footprint(size_t kind, const Strategy &strategy, int64_t samples) override {
    auto out = PlainModel::footprint(kind, strategy, samples);
    llvm::erase_if(out->collectives, [](const LayerCollective &work) {
      return work.among == CollectiveGroup::Gradients;
    });
    out->addCollective({CollectiveGroup::Gradients, Collective::AllReduce,
                        CollectiveTime::Step, 4 << 20});
    return out;
  }
};

TEST(Planner, a_smaller_batch_is_almost_as_fast) {
  SyncedModel model(4);
  Cluster cluster = smallCluster(1, 4, 1.3);
  PlannerOptions options = paperOptions();
  options.space = "dp";
  options.maxBatch = 128;
  options.batchStep = 4;
  PlannerResult result = llvm::cantFail(plan(model, cluster, options));
  std::optional<Knee> knee = findKnee(model, cluster, options, result.plan());
  ASSERT_TRUE(knee);
  EXPECT_LT(knee->batch, result.plan().batch);
  EXPECT_EQ(knee->batch % options.batchStep, 0);
  EXPECT_GE(knee->percent, kKneePercent);
  // What is promised is what planning for it gives; half of it is too little.
  options.batch = knee->batch;
  double rate =
      llvm::cantFail(plan(model, cluster, options)).plan().samplesPerSecond;
  EXPECT_NEAR(knee->samplesPerSecond, rate, 0.01 * rate);
  EXPECT_GE(rate, 0.95 * result.plan().samplesPerSecond);
  // No time: nothing is claimed.
  options.batch.reset();
  Cancellation now;
  now.setSeconds(0);
  options.cancellation = &now;
  EXPECT_FALSE(findKnee(model, cluster, options, result.plan()));
}

} // namespace
