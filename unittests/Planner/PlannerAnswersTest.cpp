//===- PlannerAnswersTest.cpp - Sweeps, gaps, refusals of the planner -----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Search/PipelinePartition.h"

#include "../PaperOptions.h"
#include "../RandomInstances.h"
#include "PlannerProblems.h"
#include "RandomModel.h"

#include "gtest/gtest.h"

#include <chrono>
#include <functional>
#include <map>
#include <random>

using namespace galvatron;
using galvatron::test::forced;
using galvatron::test::mixedCluster;
using galvatron::test::PlainModel;
using galvatron::test::RandomModel;
using galvatron::test::smallCluster;

namespace {

TEST(Planner, one_byte_below_the_need_is_refused) {
  PlainModel model(4);
  Cluster cluster = smallCluster(1, 4, 1.3);
  for (const char *strategy : {"dp4", "sdp2.tp2", "tp4.ckpt"}) {
    PlannerOptions options = forced(16, strategy, 1, 2);
    PlannerResult result = llvm::cantFail(plan(model, cluster, options));
    int64_t peak = result.plan().stages[0].peakBytes;
    options.memory = peak;
    EXPECT_TRUE(llvm::cantFail(plan(model, cluster, options)).feasible());
    options.memory = peak - 1;
    result = llvm::cantFail(plan(model, cluster, options));
    ASSERT_FALSE(result.feasible());
    EXPECT_EQ(result.infeasible().neededBytes, peak);
    EXPECT_EQ(result.infeasible().availableBytes, peak - 1);
    EXPECT_EQ(result.infeasible().stage, 0);
    EXPECT_FALSE(result.infeasible().relaxations.empty());
  }
}

TEST(Planner, relaxations_are_tried_before_they_are_offered) {
  PlainModel model(4);
  Cluster cluster = smallCluster(1, 4, 1.3);
  PlannerOptions options = forced(64, "dp4", 1, 1);
  options.memory = 90000;
  PlannerResult result = llvm::cantFail(plan(model, cluster, options));
  ASSERT_FALSE(result.feasible());
  auto offered = [&](const std::string &text) {
    for (const std::string &relaxation : result.infeasible().relaxations)
      if (relaxation.find(text) != std::string::npos)
        return true;
    return false;
  };
  EXPECT_TRUE(offered("raise the memory"));
  EXPECT_TRUE(offered("use strategy 'dp4.ckpt'"));
  EXPECT_TRUE(offered("leave the number of micro-batches to the search"));
  EXPECT_TRUE(offered("reduce the batch to"));
}

/// What is offered where nothing fits is all that would help: each change is
/// made here, and planned.
TEST(Planner, relaxations_are_the_changes_that_fit) {
  std::mt19937_64 random(23);
  std::map<std::string, int> offered, withheld;
  for (int trial = 0; trial < instances(60); ++trial) {
    RandomModel model(random(), {0, 1, 1, 2}, false);
    Cluster cluster = smallCluster(1, 4, 1.3);
    PlannerOptions options;
    if (pick(random, 0, 1))
      options = paperOptions();
    options.batch = 8 << pick(random, 0, 2);
    options.memory = (int64_t(1) << pick(random, 14, 22)) + 5000;
    static constexpr const char *kSpaces[] = {"base", "bmw", "no-ckpt", "dp"};
    options.space = kSpaces[pick(random, 0, 3)];
    if (pick(random, 0, 1))
      options.microBatches = int64_t(1) << pick(random, 0, 1);
    int64_t forced = pick(random, 0, 4);
    if (forced == 0)
      options.strategy = llvm::cantFail(Strategy::parse("dp4"));
    if (forced == 1)
      options.pipelineDegree = 2;
    if (forced == 2)
      options.pins.push_back({"l1", llvm::cantFail(Strategy::parse(
                                        pick(random, 0, 1) ? "dp4" : "sdp2"))});
    if (forced == 3 && options.space != "dp")
      options.partition = {3, 1};
    auto found = plan(model, cluster, options);
    if (!found) {
      llvm::consumeError(found.takeError());
      continue;
    }
    if (found->feasible())
      continue;
    std::vector<std::string> expected;
    auto change = [&](const char *text, auto &&make) {
      PlannerOptions changed = options;
      make(changed);
      changed.relaxations = false;
      auto other = plan(model, cluster, changed);
      bool fits = other && other->feasible();
      if (!other)
        llvm::consumeError(other.takeError());
      if (fits)
        expected.push_back(text);
      ++(fits ? offered : withheld)[text];
    };
    if (options.strategy)
      change("use strategy 'dp4.ckpt'", [](PlannerOptions &o) {
        o.strategy = o.strategy->withCheckpoint(true);
      });
    if (options.objective == Objective::Executed)
      change("leave states of some layers on the host (--offload=layers)",
             [](PlannerOptions &o) { o.offload = Offload::Layers; });
    if (options.microBatches)
      change("leave the number of micro-batches to the search",
             [](PlannerOptions &o) { o.microBatches.reset(); });
    if (!options.pins.empty())
      change("leave all layers to the search",
             [](PlannerOptions &o) { o.pins.clear(); });
    if (options.strategy || options.pipelineDegree ||
        !options.partition.empty())
      change("leave strategy, pipeline degree and partition to the search",
             [](PlannerOptions &o) {
               o.strategy.reset();
               o.pipelineDegree.reset();
               o.partition.clear();
             });
    if (options.space != "bmw")
      change("use space 'bmw'", [](PlannerOptions &o) { o.space = "bmw"; });
    std::vector<std::string> told;
    for (const std::string &text : found->infeasible().relaxations)
      if (withheld.contains(text) || offered.contains(text))
        told.push_back(text);
    EXPECT_EQ(told, expected) << "trial " << trial;
    // All that is told besides is about other inputs.
    for (const std::string &text : found->infeasible().relaxations)
      EXPECT_TRUE(llvm::is_contained(told, text) ||
                  llvm::StringRef(text).starts_with("raise the memory") ||
                  llvm::StringRef(text).starts_with("reduce the batch") ||
                  (llvm::StringRef(text).starts_with("use ") &&
                   llvm::StringRef(text).ends_with(" such devices")))
          << text;
  }
  EXPECT_EQ(offered.size(), 6u);
  EXPECT_EQ(withheld.size(), 6u);
}

TEST(Planner, the_same_input_gives_the_same_plan) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    std::string first;
    for (int round = 0; round < 2; ++round) {
      RandomModel model(seed, {0, 1, 1, 1, 2}, true);
      PlannerOptions options = paperOptions();
      options.batch = 8;
      options.memory = 8000000;
      PlannerResult result =
          llvm::cantFail(plan(model, smallCluster(1, 4, 1.3), options));
      ASSERT_TRUE(result.feasible());
      Plan found = result.plan();
      found.searchMs = 0;
      std::string text;
      llvm::raw_string_ostream(text) << found.toJson();
      if (round == 0)
        first = text;
      EXPECT_EQ(text, first);
    }
  }
}

TEST(Planner, spaces_nest) {
  RandomModel model(3, {0, 1, 1, 2, 1, 1, 2, 1}, true);
  Cluster cluster = smallCluster(1, 8, 1.3);
  auto timeOf = [&](const char *space) {
    PlannerOptions options = paperOptions();
    options.batch = 16;
    options.memory = 200000000;
    options.space = space;
    PlannerResult result = llvm::cantFail(plan(model, cluster, options));
    EXPECT_TRUE(result.feasible()) << space;
    return result.feasible() ? result.plan().iterationMs : 0;
  };
  double bmw = timeOf("bmw"), base = timeOf("base"), plain = timeOf("no-ckpt");
  EXPECT_LE(bmw, base);
  EXPECT_LE(bmw, timeOf("1f1b-time"));
  EXPECT_LE(base, plain);
  for (const char *space : {"dp", "tp", "pp", "sdp", "3d", "dp+tp", "dp+pp"})
    EXPECT_LE(plain, timeOf(space)) << space;
}

TEST(Planner, the_batch_sweep_ends) {
  PlainModel model(4);
  PlannerOptions options = paperOptions();
  options.space = "base";
  PlannerResult result =
      llvm::cantFail(plan(model, smallCluster(1, 4, 1.3), options));
  ASSERT_TRUE(result.feasible());
  EXPECT_EQ(result.plan().batch % 8, 0);
  EXPECT_LT(result.plan().batch, 2048);
}

TEST(Planner, odd_device_counts_are_planned) {
  for (int64_t devices : {6, 12, 24, 96}) {
    PlainModel model(12);
    PlannerOptions options = paperOptions();
    options.batch = 2 * devices;
    Cluster cluster = smallCluster(devices / 6, 6, 1.3);
    PlannerResult result = llvm::cantFail(plan(model, cluster, options));
    ASSERT_TRUE(result.feasible()) << devices;
    // A pipeline of three stages has groups that are no powers of two.
    options.pipelineDegree = 3;
    result = llvm::cantFail(plan(model, cluster, options));
    ASSERT_TRUE(result.feasible()) << devices;
    EXPECT_EQ(result.plan().stages.size(), 3u);
  }
}

/// Strategies whose blocks do not divide a micro-batch are left out for that
/// number of micro-batches only.
TEST(Planner, small_micro_batches_leave_strategies_out) {
  PlainModel model(4);
  PlannerOptions options = paperOptions();
  options.batch = 8;
  options.microBatches = 4;
  PlannerResult result =
      llvm::cantFail(plan(model, smallCluster(1, 4, 1.3), options));
  ASSERT_TRUE(result.feasible());
  for (const PlanLayer &layer : result.plan().layers)
    EXPECT_EQ(2 % layer.strategy.sampleShards(), 0);
}

TEST(Planner, bmw_is_never_worse) {
  std::mt19937_64 random(17);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int compared = 0, lost = 0;
  for (int trial = 0; trial < instances(12); ++trial) {
    int64_t devices = trial % 3 == 0 ? 6 : trial % 3 == 1 ? 4 : 8;
    std::vector<size_t> kinds = {0};
    while (kinds.size() < 8)
      kinds.push_back(pick(1, 2));
    // In this order: arguments of a call have none.
    bool tied = pick(0, 1);
    RandomModel model(random(), kinds, tied);
    Cluster cluster = devices != 6 && pick(0, 1)
                          ? mixedCluster(devices)
                          : smallCluster(2, devices / 2, 1.3);
    PlannerOptions options = paperOptions();
    options.batch = 24;
    options.memory = pick(3000000, 30000000);
    std::optional<PlannerResult> bmw;
    for (const char *space :
         {"bmw", "base", "no-ckpt", "bi-obj", "1f1b-mem", "1f1b-time"}) {
      options.space = space;
      PlannerResult result = llvm::cantFail(plan(model, cluster, options));
      if (!bmw) {
        bmw = std::move(result);
        continue;
      }
      if (!result.feasible())
        continue;
      ASSERT_TRUE(bmw->feasible()) << space;
      ++compared;
      EXPECT_LE(bmw->plan().iterationMs, result.plan().iterationMs) << space;
      bool heuristic = space == std::string("bi-obj");
      EXPECT_EQ(result.plan().foundBy, heuristic ? "heuristic" : "exact");
      EXPECT_EQ(result.plan().provenGapPercent.has_value(), !heuristic);
      // Algorithm 2 keeps the best of all partitions it has seen.
      if (space == std::string("bi-obj"))
        for (const char *fixed : {"no-ckpt", "1f1b-time"}) {
          options.space = fixed;
          PlannerResult other = llvm::cantFail(plan(model, cluster, options));
          if (other.feasible()) {
            EXPECT_LE(result.plan().iterationMs, other.plan().iterationMs);
          }
        }
    }
    if (!bmw->feasible())
      continue;
    const Plan &best = bmw->plan();
    EXPECT_TRUE(best.heuristicMs == 0 || best.heuristicMs >= best.iterationMs);
    lost += best.heuristicMs > best.iterationMs;
    EXPECT_GE(best.alphaTime(), 0);
    EXPECT_LE(best.alphaTime(),
              1 - 1.0 / static_cast<double>(best.pipelineDegree) + 1e-9);
    double last = std::numeric_limits<double>::infinity();
    for (const RunnerUp &other : bmw->runnersUp) {
      EXPECT_LE(other.samplesPerSecond, best.samplesPerSecond * (1 + 1e-9));
      EXPECT_LE(other.samplesPerSecond, last);
      last = other.samplesPerSecond;
    }
  }
  EXPECT_GT(compared, 20);
  EXPECT_GT(lost, 0);
}

TEST(Planner, more_memory_is_never_slower) {
  RandomModel model(23, {0, 1, 1, 2, 1, 2, 1, 1}, true);
  Cluster cluster = smallCluster(2, 4, 1.3);
  double last = std::numeric_limits<double>::infinity();
  for (int64_t memory = 1000000; memory < 40000000; memory += memory / 4) {
    PlannerOptions options = paperOptions();
    options.batch = 16;
    options.memory = memory;
    PlannerResult result = llvm::cantFail(plan(model, cluster, options));
    if (!result.feasible()) {
      EXPECT_EQ(last, std::numeric_limits<double>::infinity());
      continue;
    }
    EXPECT_LE(result.plan().iterationMs, last);
    last = result.plan().iterationMs;
  }
}

/// A sweep that ends where its plan is near the best one says how near, over
/// all of its batches.
TEST(Planner, a_gap_is_proven_of_all_batches_of_a_sweep) {
  int nearest = 0, other = 0;
  for (uint64_t seed = 40; seed < 52; ++seed) {
    RandomModel model(seed, {0, 1, 1, 2, 1, 2}, false);
    Cluster cluster = smallCluster(2, 2, 1.3);
    PlannerOptions options = paperOptions();
    options.memory = 20000000;
    options.batchStep = 3;
    options.maxBatch = 48;
    PlannerResult exact = llvm::cantFail(plan(model, cluster, options));
    if (!exact.feasible())
      continue;
    options.gapPercent = 25;
    PlannerResult near = llvm::cantFail(plan(model, cluster, options));
    ASSERT_TRUE(near.feasible()) << seed;
    ASSERT_TRUE(near.plan().provenGapPercent) << seed;
    double gap = *near.plan().provenGapPercent;
    EXPECT_LE(gap, 25 + 1e-6) << seed;
    EXPECT_LE(exact.plan().samplesPerSecond,
              near.plan().samplesPerSecond * (1 + gap / 100) * (1 + 1e-9))
        << seed;
    bool isBest = near.plan().samplesPerSecond >=
                  exact.plan().samplesPerSecond * (1 - 1e-9);
    (isBest ? nearest : other) += 1;
  }
  EXPECT_GT(nearest + other, 6);
  EXPECT_GT(other, 0);
}

TEST(Planner, a_gap_is_proven) {
  RandomModel model(29, {0, 1, 1, 2, 1, 2, 1, 1}, false);
  Cluster cluster = smallCluster(2, 4, 1.3);
  PlannerOptions options = paperOptions();
  options.memory = 20000000;
  options.maxBatch = 256;
  Plan best = llvm::cantFail(plan(model, cluster, options)).plan();
  options.gapPercent = 5;
  Plan near = llvm::cantFail(plan(model, cluster, options)).plan();
  EXPECT_LE(*near.provenGapPercent, 5);
  EXPECT_LE(best.samplesPerSecond,
            near.samplesPerSecond * (1 + *near.provenGapPercent / 100 + 1e-9));
  // No time at all: the first plan, with what is proven about it.
  options.gapPercent = 0;
  Cancellation past;
  past.setSeconds(0);
  options.cancellation = &past;
  options.batch = 64;
  Plan first = llvm::cantFail(plan(model, cluster, options)).plan();
  EXPECT_EQ(first.foundBy, "quick");
  options.cancellation = nullptr;
  best = llvm::cantFail(plan(model, cluster, options)).plan();
  EXPECT_LE(first.samplesPerSecond, best.samplesPerSecond);
  // Pricing what the proof needs may have taken too long.
  EXPECT_LE(best.samplesPerSecond,
            first.samplesPerSecond *
                (1 + first.provenGapPercent.value_or(1e9) / 100 + 1e-9));
}

TEST(Planner, progress_tells_how_far_a_search_is) {
  Cluster cluster = smallCluster(2, 4, 1.3);
  bool open = false, gaps = false;
  for (uint64_t trial = 0; trial < 12; ++trial) {
    RandomModel model(trial, {0, 1, 1, 2, 1, 2, 1, 1}, trial % 4 >= 2);
    PlannerOptions options = paperOptions();
    options.memory = 8000000;
    if (trial % 2 == 0)
      options.batch = 64;
    options.maxBatch = 64;
    std::vector<PlannerProgress> told;
    options.progress = [&](const PlannerProgress &now) { told.push_back(now); };
    Plan best = llvm::cantFail(plan(model, cluster, options)).plan();
    ASSERT_FALSE(told.empty());
    for (size_t i = 0; i < told.size(); ++i) {
      const PlannerProgress &now = told[i];
      EXPECT_EQ(now.batch % 8, 0);
      EXPECT_LE(now.batch, 64);
      EXPECT_LE(now.samplesPerSecond, best.samplesPerSecond * (1 + 1e-9));
      open |= now.open > 0;
      if (i > 0) {
        EXPECT_GE(now.batch, told[i - 1].batch);
        EXPECT_GE(now.solved, told[i - 1].solved);
        EXPECT_GE(now.samplesPerSecond, told[i - 1].samplesPerSecond);
      }
      if (!now.gapPercent)
        continue;
      EXPECT_GT(now.samplesPerSecond, 0);
      EXPECT_GE(*now.gapPercent, 0);
      gaps |= *now.gapPercent > 0;
      // Of these batches; in a sweep a later one may have the best plan.
      if (options.batch)
        EXPECT_LE(best.samplesPerSecond,
                  now.samplesPerSecond * (1 + *now.gapPercent / 100 + 1e-9));
    }
    EXPECT_GT(told.back().solved, 0u);
  }
  EXPECT_TRUE(open);
  EXPECT_TRUE(gaps);
}

/// A sweep solves shapes with equal micro-batches together, unless cores are
/// shared, where their times depend on their number; batches one by one must
/// not find anything better.
TEST(Planner, a_sweep_is_the_best_of_its_batches) {
  std::mt19937_64 random(41);
  int pipelines = 0;
  for (int trial = 0; trial < instances(12); ++trial) {
    std::vector<size_t> kinds = {0};
    while (kinds.size() < 6)
      kinds.push_back(pick(random, 1, 2));
    bool tied = pick(random, 0, 1);
    RandomModel model(random(), kinds, tied);
    Cluster cluster = smallCluster(2, 2, 1.3, trial % 3 == 2 ? 1 : 0);
    PlannerOptions options = paperOptions();
    options.memory = pick(random, 1500000, 8000000);
    options.batchStep = 4;
    options.maxBatch = 64;
    PlannerResult swept = llvm::cantFail(plan(model, cluster, options));
    if (!swept.feasible())
      continue;
    const Plan &best = swept.plan();
    pipelines += best.pipelineDegree > 1;
    int64_t end = options.batchStep;
    while (end < best.batch)
      end *= 2;
    double fastest = 0;
    for (int64_t batch = 4; batch <= std::min<int64_t>(end, 64); batch += 4) {
      options.batch = batch;
      PlannerResult alone = llvm::cantFail(plan(model, cluster, options));
      if (alone.feasible())
        fastest = std::max(fastest, alone.plan().samplesPerSecond);
    }
    EXPECT_EQ(best.samplesPerSecond, fastest) << trial;
  }
  EXPECT_GT(pipelines, 0);
}

/// A sweep that time cuts short has proven nothing about larger batches but
/// what bounds say.
TEST(Planner, a_sweep_cut_short_does_not_overstate_its_proof) {
  RandomModel model(31, {0, 1, 1, 2, 1, 2, 1, 1}, true);
  Cluster cluster = smallCluster(2, 4, 1.3);
  PlannerOptions options = paperOptions();
  options.memory = 20000000;
  options.maxBatch = 256;
  Plan best = llvm::cantFail(plan(model, cluster, options)).plan();
  EXPECT_EQ(best.provenGapPercent, 0);
  bool partial = false;
  bool proven = false;
  // Ends after so many looks at the clock, wherever that is: how many a sweep
  // takes depends on what its threads find first.
  for (int looks = 0; looks < 200000; looks = looks * 3 / 2 + 8) {
    Cancellation::Clock::time_point time;
    Cancellation counted([&] { return time += std::chrono::seconds(1); });
    counted.setSeconds(looks);
    options.cancellation = &counted;
    PlannerResult result = llvm::cantFail(plan(model, cluster, options));
    ASSERT_TRUE(result.feasible()) << looks;
    const Plan &found = result.plan();
    if (!found.provenGapPercent)
      continue;
    proven = true;
    EXPECT_LE(best.samplesPerSecond,
              found.samplesPerSecond *
                  (1 + *found.provenGapPercent / 100 + 1e-9))
        << looks;
    partial |= *found.provenGapPercent > 0;
  }
  EXPECT_TRUE(proven);
  EXPECT_TRUE(partial);
}

TEST(Planner, the_rule_for_reruns_fixes_the_micro_batches) {
  PlainModel model(8);
  PlannerOptions options = paperOptions();
  options.microBatchRule = MicroBatchRule::Paper;
  options.memory = 120000;
  PlannerResult result =
      llvm::cantFail(plan(model, smallCluster(1, 4, 1.3), options));
  ASSERT_TRUE(result.feasible());
  const Plan &found = result.plan();
  if (found.pipelineDegree == 1)
    EXPECT_EQ(found.microBatches, 1);
  else
    EXPECT_LE(found.microBatches, 64);
  // The sweep went on until nothing fitted.
  bool ended = false;
  for (const std::string &line : result.decisions)
    ended |= line.find("nothing fits any more") != std::string::npos;
  EXPECT_TRUE(ended);
}

TEST(Planner, the_partition_can_be_forced) {
  PlainModel model(5);
  PlannerOptions options = forced(16, "dp2", 2, 4);
  options.partition = {1, 4};
  PlannerResult result =
      llvm::cantFail(plan(model, smallCluster(1, 4, 1.3), options));
  ASSERT_TRUE(result.feasible());
  EXPECT_EQ(result.plan().stages[1].layerCount, 4);
}

TEST(Planner, wrong_usage_is_refused) {
  PlainModel model(3);
  Cluster cluster = smallCluster(1, 4, 1.3);
  auto errorOf = [&](PlannerOptions options) {
    auto result = plan(model, cluster, options);
    return result ? std::string("no error")
                  : llvm::toString(result.takeError());
  };
  PlannerOptions options = paperOptions();
  options.batch = 8;
  options.space = "all";
  EXPECT_NE(errorOf(options).find("unknown space 'all', expected one of bmw"),
            std::string::npos);
  options.space = "base";
  options.partition = {1, 1};
  EXPECT_EQ(errorOf(options),
            "the partition has 2 layers, but model 'random' has 3");
  options.pipelineDegree = 4;
  EXPECT_EQ(errorOf(options),
            "the partition has 2 stages, but the pipeline degree is 4");
  options.partition.clear();
  options.pipelineDegree = 3;
  EXPECT_EQ(errorOf(options),
            "pipeline degree 3 does not divide the 4 devices");
  options.pipelineDegree = 4;
  EXPECT_EQ(errorOf(options), "model 'random' has 3 layers, fewer than the 4 "
                              "stages of the pipeline");
  EXPECT_EQ(
      errorOf(forced(8, "dp8", 1, 1)),
      "strategy 'dp8' is for 8 devices, which does not divide 4: expected "
      "1, 2 or 4");
  EXPECT_EQ(errorOf(forced(8, "dp2", 1, 1)),
            "pipeline degree 1 leaves 4 devices per stage, but strategy 'dp2' "
            "is for 2");
  EXPECT_EQ(errorOf(forced(8, "dp4", 1, 3)),
            "3 micro-batches do not divide the batch of 8");
  EXPECT_EQ(errorOf(forced(8, "dp4", 1, 4)),
            "strategy 'dp4' cuts a micro-batch into 4 blocks, which does not "
            "divide its 2 samples");
  PlannerOptions three = paperOptions();
  three.batch = 3;
  three.space = "dp";
  PlannerResult result = llvm::cantFail(plan(model, cluster, three));
  ASSERT_FALSE(result.feasible());
  EXPECT_EQ(result.infeasible().reason,
            "no pipeline degree and number of micro-batches of space 'dp' "
            "divides a batch of 3 on 4 devices");
}

/// Fewer devices and a larger batch are offered, both tried.
TEST(Planner, what_helps_a_batch_that_nothing_divides) {
  PlainModel model(2);
  // Nodes of one device.
  Cluster seven = smallCluster(7, 1, 1.3);
  PlannerOptions options = paperOptions();
  options.batch = 2;
  options.space = "dp";
  PlannerResult result = llvm::cantFail(plan(model, seven, options));
  ASSERT_FALSE(result.feasible());
  EXPECT_EQ(
      result.infeasible().relaxations,
      (std::vector<std::string>{"use 2 of the devices", "use a batch of 7"}));
  EXPECT_EQ(result.infeasible().fittingDevices, 2);
  EXPECT_EQ(result.infeasible().fittingBatch, 7);
  options.relaxations = false;
  result = llvm::cantFail(plan(model, seven, options));
  EXPECT_TRUE(result.infeasible().relaxations.empty());
}

/// With devices that may stay idle no number of them is faster, and what is
/// proven holds for all numbers.
TEST(Planner, idle_devices_are_never_slower_than_fewer_devices) {
  int withIdle = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    RandomModel model(seed, {0, 1, 1, 2}, seed % 2 == 1);
    constexpr int64_t devices = 5;
    Cluster cluster = smallCluster(devices, 1, 1.3);
    PlannerOptions options;
    options.batch = 4 + seed % 3;
    options.mayIdle = true;
    PlannerResult chosen = llvm::cantFail(plan(model, cluster, options));
    ASSERT_TRUE(chosen.feasible());
    const Plan &best = chosen.plan();
    int64_t used = 0;
    for (const PlanStage &stage : best.stages)
      used += static_cast<int64_t>(stage.devices.size());
    EXPECT_EQ(chosen.idleDevices, devices - used);
    withIdle += chosen.idleDevices > 0;
    EXPECT_EQ(best.clusterHash, cluster.hash());
    EXPECT_EQ(best.space, options.space);
    ASSERT_TRUE(best.gapPercent);
    double least = best.iterationMs / (1 + *best.gapPercent / 100);
    options.mayIdle = false;
    bool isOneOfThem = false;
    for (int64_t count = 1; count <= devices; ++count) {
      PlannerResult one =
          llvm::cantFail(plan(model, *cluster.resized(count), options));
      if (!one.feasible())
        continue;
      EXPECT_LE(best.iterationMs, one.plan().iterationMs * (1 + 1e-9));
      EXPECT_LE(least, one.plan().iterationMs * (1 + 1e-9));
      isOneOfThem |= count == used &&
                     best.iterationMs <= one.plan().iterationMs * (1 + 1e-9);
      // Its proof is part of the whole one.
      if (count == devices && one.plan().gapPercent)
        EXPECT_LE(least, one.plan().iterationMs /
                             (1 + *one.plan().gapPercent / 100) * (1 + 1e-6));
      if (count == devices && chosen.idleDevices > 0) {
        ASSERT_TRUE(chosen.allDevicesMs);
        EXPECT_EQ(*chosen.allDevicesMs, one.plan().iterationMs);
      }
    }
    EXPECT_TRUE(isOneOfThem);
  }
  EXPECT_GT(withIdle, 2);
}

/// A plan says what of it was given, in the order of its words.
TEST(Planner, a_plan_says_what_was_given) {
  RandomModel model(3, {0, 1, 1, 2}, false);
  Cluster cluster = smallCluster(4, 1, 1.3);
  auto given = [&](auto change) {
    PlannerOptions options;
    options.batch = 8;
    change(options);
    return llvm::cantFail(plan(model, cluster, options)).plan().provenGiven;
  };
  using Options = PlannerOptions;
  EXPECT_EQ(given([](Options &) {}), "");
  EXPECT_EQ(given([](Options &o) { o.microBatches = 4; }),
            "the given micro-batches");
  EXPECT_EQ(given([](Options &o) { o.pipelineDegree = 2; }),
            "the given pipeline degree");
  EXPECT_EQ(given([](Options &o) {
              o.pipelineDegree = 2;
              o.microBatches = 4;
              o.partition = {2, 2};
            }),
            "the given pipeline degree, partition and micro-batches");
  EXPECT_EQ(given([](Options &o) {
              o.strategy = llvm::cantFail(Strategy::parse("dp2"));
              o.paradigms = {Paradigm::DP, Paradigm::TP};
            }),
            "the given strategy and paradigms");
  EXPECT_EQ(given([](Options &o) {
              o.pins = {{"l1", llvm::cantFail(Strategy::parse("dp2"))}};
            }),
            "the given layers' strategies");
}

/// A plan names the numbers of devices that were looked at, if not all were.
TEST(Planner, idle_devices_say_which_numbers_were_tried) {
  RandomModel model(3, {0, 1, 1, 2}, false);
  PlannerOptions options;
  options.batch = 4;
  options.mayIdle = true;
  Plan found =
      llvm::cantFail(plan(model, smallCluster(40, 1, 1.3), options)).plan();
  std::vector<std::string> counts;
  llvm::StringRef among = found.provenAmong;
  ASSERT_TRUE(among.consume_back(" devices in all")) << found.provenAmong;
  llvm::SmallVector<llvm::StringRef> names;
  among.rsplit(" and ").second.split(names, ", ");
  if (names.size() == 1 && names.front().empty()) {
    names.clear();
    among.split(names, ", ");
  }
  EXPECT_GT(names.size(), 2u) << found.provenAmong;
  EXPECT_EQ(names.front(), "40");
}

/// Rounding is no gap: with one device there is one plan.
TEST(Planner, rounding_is_no_gap) {
  PlainModel model(3);
  PlannerOptions options;
  options.batch = 24;
  Plan found =
      llvm::cantFail(plan(model, smallCluster(1, 1, 1.3), options)).plan();
  EXPECT_EQ(found.gapPercent, 0.0);
}

TEST(Planner, hand_edited_plans_are_checked) {
  PlainModel model(4);
  Cluster cluster = smallCluster(1, 4, 1.3);
  Plan good =
      llvm::cantFail(plan(model, cluster, forced(16, "dp2", 2, 2))).plan();
  PlannerResult again = llvm::cantFail(evaluate(model, cluster, good));
  EXPECT_EQ(again.plan().iterationMs, good.iterationMs);
  auto errorOf = [&](std::function<void(Plan &)> change) {
    Plan edited = good;
    change(edited);
    auto result = evaluate(model, cluster, edited);
    return result ? std::string("no error")
                  : llvm::toString(result.takeError());
  };
  EXPECT_EQ(errorOf([](Plan &p) { p.layers[2].name = "x"; }),
            "plan: layer 2 is 'x', but the model has 'l2' there");
  EXPECT_EQ(errorOf([](Plan &p) { p.layers.front().name = "x"; }),
            "plan: layer 0 is 'x', but the model has 'l0' there");
  EXPECT_EQ(errorOf([](Plan &p) { p.stages[1].devices = {4, 5}; }),
            "plan: device 4 does not exist, cluster 'small' has 4");
  EXPECT_EQ(errorOf([](Plan &p) {
              p.layers.pop_back();
              --p.stages[1].layerCount;
            }),
            "plan: has 3 layers, but model 'random' has 4");
  PlannerResult small = llvm::cantFail(evaluate(model, cluster, good, 1000));
  ASSERT_FALSE(small.feasible());
  EXPECT_EQ(small.infeasible().stage, 0);
  EXPECT_EQ(small.infeasible().neededBytes, good.stages[0].peakBytes);
}

TEST(Planner, even_partition_counts_every_layer) {
  EXPECT_EQ(evenPartition(14, 4), (std::vector<int64_t>{4, 4, 3, 3}));
  EXPECT_EQ(evenPartition(4, 4), (std::vector<int64_t>{1, 1, 1, 1}));
  EXPECT_EQ(stageDevices(4, 2),
            (std::vector<std::vector<int64_t>>{{0, 1}, {2, 3}}));
}

} // namespace
