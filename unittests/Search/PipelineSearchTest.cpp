//===- PipelineSearchTest.cpp - Whole pipelines against brute force -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/PipelineSearch.h"
#include "BruteForce.h"
#include "RandomPipelines.h"
#include "galvatron/Search/QuickPipeline.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <numeric>
#include <random>
#include <string>

using namespace galvatron;
using namespace galvatron::test;

namespace {

/// Tells what is wrong with a solution, by evaluatePipeline; nothing if it is
/// right.
std::string mistakeOf(const PipelineProblem &problem,
                      const PipelineSolution &solution) {
  auto count = static_cast<int64_t>(problem.layerCount());
  const std::vector<int64_t> &partition = solution.partition;
  if (partition.size() != problem.stages.size() ||
      std::accumulate(partition.begin(), partition.end(), int64_t(0)) !=
          count ||
      *std::min_element(partition.begin(), partition.end()) < 1)
    return "the partition does not cover the layers";
  if (!problem.partition.empty() && partition != problem.partition)
    return "the partition is not the given one";
  auto number = [](auto value) { return std::to_string(value); };
  if (solution.choice.size() != problem.layerCount())
    return "expected " + number(count) + " choices, found " +
           number(solution.choice.size());
  size_t layer = 0;
  for (size_t s = 0; s < partition.size(); ++s)
    for (int64_t i = 0; i < partition[s]; ++i, ++layer) {
      size_t set = problem.layers[problem.stages[s].place][layer];
      if (solution.choice[layer] >= problem.optionSets[set].size())
        return "layer " + number(layer) + " has no option " +
               number(solution.choice[layer]);
    }
  PipelineValue value = evaluatePipeline(problem, partition, solution.choice);
  if (value.cost != solution.cost)
    return "expected a cost of " + number(value.cost) + " ps, found " +
           number(solution.cost);
  for (size_t s = 0; s < partition.size(); ++s)
    if (value.excess[s] > 0)
      return "stage " + number(s) + " needs " + number(value.excess[s]) +
             " bytes more than there are, here or on the host";
  return "";
}

struct Outcome {
  int mismatches = 0, feasible = 0, pipelines = 0, uneven = 0;
};

Outcome compare(int count, uint64_t seed, PipelineFault fault, Sizes sizes = {},
                bool slowestAlone = false, bool hosts = false,
                bool alike = false) {
  std::mt19937_64 random(seed);
  Outcome outcome;
  for (int i = 0; i < count; ++i) {
    PipelineProblem problem = randomProblem(random, sizes);
    problem.slowestAlone = slowestAlone;
    if (hosts)
      addHosts(problem, random);
    if (alike)
      addAlikeTies(problem, random);
    if (llvm::Error error = problem.check()) {
      ADD_FAILURE() << llvm::toString(std::move(error));
      return outcome;
    }
    auto expected = bruteforce::solvePipeline(problem);
    auto found = PipelineSearch(problem, {}, {}, fault).solve();
    bool wrong = expected.has_value() != found.has_value();
    if (expected && found) {
      ++outcome.feasible;
      outcome.pipelines += problem.stages.size() > 1;
      outcome.uneven +=
          problem.stages.size() > 1 &&
          expected->partition.front() != expected->partition.back();
      wrong |= found->cost != expected->cost;
      std::string mistake = mistakeOf(problem, *found);
      wrong |= !mistake.empty();
      if (fault == PipelineFault::None)
        EXPECT_EQ(mistake, "");
    }
    if (wrong && fault == PipelineFault::None && outcome.mismatches < 5)
      ADD_FAILURE() << "instance " << i << ": expected "
                    << (expected ? expected->cost : -1) << ", found "
                    << (found ? found->cost : -1);
    outcome.mismatches += wrong;
  }
  return outcome;
}

TEST(PipelineSearch, agrees_with_brute_force) {
  Outcome outcome = compare(instances(1500), 2024, PipelineFault::None);
  EXPECT_EQ(outcome.mismatches, 0);
  EXPECT_GT(outcome.feasible, 1000);
  EXPECT_GT(outcome.pipelines, 500);
  EXPECT_GT(outcome.uneven, 200);
}

/// Batches that follow each other without a drain: the slowest stage, its ties
/// included, is all that counts.
TEST(PipelineSearch, agrees_with_brute_force_where_the_slowest_stage_counts) {
  Outcome outcome = compare(instances(1500), 2026, PipelineFault::None,
                            /*sizes=*/{}, /*slowestAlone=*/true);
  EXPECT_EQ(outcome.mismatches, 0);
  EXPECT_GT(outcome.feasible, 1000);
  EXPECT_GT(outcome.pipelines, 500);
  EXPECT_GT(outcome.uneven, 200);
  outcome = compare(instances(300), 2027, PipelineFault::None,
                    {/*fewestStages=*/4, /*mostStages=*/5, /*mostLayers=*/7},
                    /*slowestAlone=*/true);
  EXPECT_EQ(outcome.mismatches, 0);
  EXPECT_GT(outcome.feasible, 200);
}

/// What layers have on the host is one more sum of every stage.
TEST(PipelineSearch, agrees_with_brute_force_where_hosts_are_small) {
  Outcome outcome =
      compare(instances(1000), 2028, PipelineFault::None, /*sizes=*/{},
              /*slowestAlone=*/false, /*hosts=*/true);
  EXPECT_EQ(outcome.mismatches, 0);
  EXPECT_GT(outcome.feasible, 500);
  EXPECT_GT(outcome.pipelines, 250);
}

/// A layer shares parameters with many behind it, which are held alike where
/// they are on other stages.
TEST(PipelineSearch, agrees_with_brute_force_where_tied_layers_are_alike) {
  for (bool slowestAlone : {false, true}) {
    Outcome outcome = compare(
        instances(1000), 2030, PipelineFault::None,
        {/*fewestStages=*/1, /*mostStages=*/4, /*mostLayers=*/6}, slowestAlone,
        /*hosts=*/false, /*alike=*/true);
    EXPECT_EQ(outcome.mismatches, 0);
    EXPECT_GT(outcome.feasible, 500);
    EXPECT_GT(outcome.pipelines, 250);
  }
}

/// Where no cost can tell the stages behind the owner's apart, a choice says
/// how many borrowers are on the owner's stage, and the owner's key.
TEST(PipelineSearch, ties_of_many_layers_have_few_choices) {
  constexpr size_t stages = 4, borrowers = 12, keys = 3;
  PipelineProblem problem;
  problem.stages.resize(stages);
  problem.tieKeys = keys;
  problem.optionSets.resize(1);
  for (size_t key = 0; key < keys; ++key) {
    problem.optionSets[0].emplace_back();
    problem.optionSets[0].back().tieKey = key;
  }
  problem.layers = {std::vector<size_t>(borrowers + 3, 0)};
  problem.tieTables = {std::vector<Picoseconds>(keys * keys, 1),
                       std::vector<Picoseconds>(keys * keys, 2)};
  for (size_t borrower = 2; borrower < borrowers + 2; ++borrower) {
    PipelineTie tie;
    tie.owner = 1;
    tie.borrower = borrower;
    tie.alike = true;
    for (size_t pair = 0; pair < stages * stages; ++pair)
      tie.table.push_back(pair / stages == pair % stages ? 0 : 1);
    problem.ties.push_back(tie);
  }
  // The owner, the second layer, is on the first stage and up to 10 borrowers
  // with it (the last three stages have a layer each), or on the second and up
  // to 11 with it.
  size_t count = countTieChoices(problem, 1000);
  EXPECT_EQ(count, keys * (11 + 12));
  EXPECT_EQ(countTieChoices(problem, count - 1), count);
}

/// Two and three stages that are neither first nor last: what passes through
/// them, and ties that reach over them.
TEST(PipelineSearch, agrees_with_brute_force_on_four_and_five_stages) {
  Outcome outcome = compare(instances(600), 2025, PipelineFault::None,
                            {/*fewestStages=*/4, /*mostStages=*/5,
                             /*mostLayers=*/7});
  EXPECT_EQ(outcome.mismatches, 0);
  EXPECT_GT(outcome.feasible, 400);
  EXPECT_GT(outcome.uneven, 80);
}

TEST(PipelineSearch, faults_are_seen) {
  for (PipelineFault fault :
       {PipelineFault::IgnoreBackwardPeak,
        PipelineFault::IgnoreTransformInDominance,
        PipelineFault::DominanceBeforeCompletion, PipelineFault::CutFrontTooFar,
        PipelineFault::DropCutTransfer,
        PipelineFault::IgnoreBoundaryInDominance, PipelineFault::ForgetEntry}) {
    Outcome outcome = compare(1500, 2024, fault);
    EXPECT_GT(outcome.mismatches, 0) << static_cast<int>(fault);
    RecordProperty("mismatches_" + std::to_string(static_cast<int>(fault)),
                   outcome.mismatches);
  }
}

TEST(PipelineSearch, the_least_need_is_the_least_budget) {
  std::mt19937_64 random(5);
  for (int i = 0; i < instances(300); ++i) {
    PipelineProblem problem = randomProblem(random);
    PipelineNeed need = leastNeed(problem);
    int64_t least = bruteforce::leastExcess(problem);
    EXPECT_LE(need.bound, least) << i;
    EXPECT_GE(need.excess, least) << i;
    PipelineValue value = evaluatePipeline(problem, need.solution.partition,
                                           need.solution.choice);
    EXPECT_EQ(value.memory[need.stage] - problem.stages[need.stage].memory,
              need.excess);
    if (problem.boundaries.empty()) {
      EXPECT_EQ(need.excess, least) << i;
      EXPECT_EQ(need.bound, least) << i;
    }
    for (PipelineStage &stage : problem.stages)
      stage.memory += least;
    EXPECT_TRUE(PipelineSearch(problem).solve().has_value()) << i;
    for (PipelineStage &stage : problem.stages)
      --stage.memory;
    EXPECT_FALSE(PipelineSearch(problem).solve().has_value()) << i;
  }
}

/// Each stage has another number of micro-batches in flight, so each has runs
/// of its own of every length; only short ones are worked out.
TEST(PipelineSearch, the_least_need_of_many_layers_is_told_quickly) {
  std::mt19937_64 random(29);
  PipelineProblem problem;
  constexpr size_t stages = 64, layers = 400;
  problem.microBatches = 128;
  for (int set = 0; set < 2; ++set) {
    problem.optionSets.emplace_back();
    for (int o = 0; o < 24; ++o) {
      PipelineOption option;
      option.time = option.nosync = 1000;
      option.kept = pick(random, 100, 1000);
      option.transient = 3000 - 2 * option.kept + pick(random, 0, 100);
      option.state = 2000 - option.kept + pick(random, 0, 100);
      option.boundary = pick(random, 0, 500);
      problem.optionSets.back().push_back(option);
    }
  }
  for (size_t s = 0; s < stages; ++s)
    problem.stages.push_back({0, static_cast<int64_t>(stages - s), 0});
  problem.layers.assign(1, std::vector<size_t>(layers, 0));
  problem.layers[0].front() = problem.layers[0].back() = 1;
  problem.matrices.emplace_back(1, 0);
  problem.transforms.assign(1, std::vector<size_t>(layers - 1, 0));
  problem.cutPlace.assign(stages - 1, 0);
  problem.cuts.assign(1, std::vector<PipelineCut>(layers - 1));
  ASSERT_EQ(llvm::toString(problem.check()), "");
  std::clock_t before = std::clock();
  PipelineNeed need = leastNeed(problem);
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 2);
  EXPECT_EQ(need.bound, need.excess);
}

TEST(PipelineSearch, bounds_and_attempts_are_proofs) {
  std::mt19937_64 random(11);
  for (int i = 0; i < instances(200); ++i) {
    PipelineProblem problem = randomProblem(random);
    auto optimum = PipelineSearch(problem).solve();
    PipelineSearch search(problem);
    if (!optimum) {
      EXPECT_FALSE(search.attempt(Picoseconds(1) << 50));
      continue;
    }
    EXPECT_LE(search.lowerBound(), optimum->cost);
    EXPECT_FALSE(search.attempt(optimum->cost - 1));
    EXPECT_EQ(search.lowerBound(), optimum->cost);
    auto again = search.attempt(optimum->cost);
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->cost, optimum->cost);
  }
}

/// A pipeline without a choice and with ample memory costs what is said of it
/// without memory.
static void leaveNoChoice(PipelineProblem &problem) {
  for (std::vector<PipelineOption> &set : problem.optionSets)
    set.resize(1);
  for (std::vector<Picoseconds> &matrix : problem.matrices)
    matrix.assign(matrix.size(), matrix.front());
  for (PipelineStage &stage : problem.stages)
    stage.memory = int64_t(1) << 40;
  problem.ties.clear();
}

TEST(PipelineSearch, bounds_without_memory_agree_with_brute_force) {
  std::mt19937_64 random(19);
  int exact = 0, above = 0, pipelines = 0;
  double nearness = 0;
  for (int i = 0; i < instances(2000); ++i) {
    PipelineProblem problem = randomProblem(random, {1, 4, 6});
    const bool isForced = i % 2;
    if (isForced)
      leaveNoChoice(problem);
    const Picoseconds least = leastWithoutMemory(problem, kNoBound - 1);
    auto optimum = bruteforce::solvePipeline(problem);
    if (!optimum)
      continue;
    ASSERT_LE(least, optimum->cost) << i;
    ++pipelines;
    nearness += static_cast<double>(least) / static_cast<double>(optimum->cost);
    if (!isForced)
      continue;
    exact += least == optimum->cost;
    // A limit changes nothing below it, and nothing is above it.
    EXPECT_EQ(leastWithoutMemory(problem, least), least) << i;
    above += leastWithoutMemory(problem, least - 1) == kNoBound;
  }
  EXPECT_EQ(exact, instances(2000) / 2);
  EXPECT_EQ(above, exact);
  if (instances(2000) == 2000)
    EXPECT_NEAR(nearness / pipelines, 0.820242, 1e-5);
  PipelineProblem steady = randomProblem(random);
  steady.slowestAlone = true;
  EXPECT_EQ(leastWithoutMemory(steady, kNoBound - 1), 0);
}

/// A caller that raises its limit while the bound is finite must come to an
/// end where nothing fits: beyond the cost of any pipeline the bound is none.
TEST(PipelineSearch, a_bound_beyond_every_pipeline_is_none) {
  std::mt19937_64 random(17);
  int infeasible = 0;
  for (int i = 0; i < instances(50); ++i) {
    PipelineProblem problem = randomProblem(random);
    for (PipelineStage &stage : problem.stages)
      stage.memory = 0;
    PipelineSearch search(problem);
    if (PipelineSearch(problem).solve())
      continue;
    ++infeasible;
    EXPECT_FALSE(search.attempt(Picoseconds(1) << 60));
    EXPECT_EQ(search.lowerBound(), kNoBound) << i;
    EXPECT_EQ(search.tighten(), kNoBound) << i;
  }
  EXPECT_GT(infeasible, 20);
}

/// Layers [1, 3) and [65537, 65539) as stages that are alike in all but their
/// layers: what is known of the one does not pass for the other.
TEST(PipelineSearch, positions_beyond_16_bits_are_told_apart) {
  PipelineProblem problem;
  size_t count = 65540;
  problem.partition = {1, 2, 65534, 2, 1};
  problem.stages.resize(problem.partition.size());
  for (PipelineStage &stage : problem.stages)
    stage.memory = int64_t(1) << 40;
  // The first stage is like no other, the second one like the fourth.
  ++problem.stages.front().memory;
  // Most layers, those at 1, and cheaper ones at 65537.
  problem.classes = 2;
  for (Picoseconds time : {1, 100000, 300}) {
    problem.optionSets.emplace_back();
    for (size_t c : {0, 1}) {
      PipelineOption option;
      option.layoutClass = c;
      option.time = option.nosync = time + static_cast<Picoseconds>(c);
      problem.optionSets.back().push_back(option);
    }
  }
  problem.layers.emplace_back(count, 0);
  problem.layers[0][1] = problem.layers[0][2] = 1;
  problem.layers[0][65537] = problem.layers[0][65538] = 2;
  problem.matrices.push_back({0, 1, 1, 0});
  problem.transforms.assign(1, std::vector<size_t>(count - 1, 0));
  problem.cutPlace.assign(problem.stages.size() - 1, 0);
  problem.cuts.assign(1, std::vector<PipelineCut>(count - 1));
  ASSERT_FALSE(problem.check());
  std::optional<PipelineSolution> found = PipelineSearch(problem).solve();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cost, 65540 - 4 + 2 * 100000 + 2 * 300);
  EXPECT_EQ(mistakeOf(problem, *found), "");
}

/// Equal layers of the first stage are looked at further behind, where
/// something passes; they themselves keep nothing of it.
TEST(PipelineSearch, the_first_stage_keeps_nothing_that_passes) {
  PipelineProblem problem;
  PipelineOption option;
  option.time = option.nosync = 5;
  option.state = 3;
  problem.optionSets = {{option}};
  problem.layers.emplace_back(6, 0);
  problem.matrices = {{0}};
  problem.transforms.assign(1, std::vector<size_t>(5, 0));
  problem.cutPlace = {0};
  problem.cuts.assign(1, std::vector<PipelineCut>(5));
  problem.boundaries = {{{20}, {10}}};
  problem.boundaryBehind.assign(5, 0);
  // Twice what is sent on; and behind it what passes.
  problem.stages = {{0, 1, 3 * 3 + 40}, {0, 1, 3 * 3 + 10}};
  ASSERT_FALSE(problem.check());
  std::optional<PipelineSolution> found = PipelineSearch(problem).solve();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->partition, (std::vector<int64_t>{3, 3}));
  --problem.stages[1].memory;
  EXPECT_FALSE(PipelineSearch(problem).solve());
}

/// Of two options the one that is no larger in states with either buffer may
/// still be larger with both.
TEST(PipelineSearch, buffers_count_together) {
  auto option = [](Picoseconds time, int64_t state, int64_t buffers) {
    PipelineOption made;
    made.time = made.nosync = time;
    made.state = state;
    made.transient = made.boundary = buffers;
    return made;
  };
  PipelineProblem problem;
  // The buffers serve both layers. Beside the fast option of the first layer
  // only the last one of the second fits, whose states and either buffer are no
  // less than those of the one before.
  problem.optionSets = {{option(50, 0, 10), option(1, 10, 5)},
                        {option(1, 15, 0), option(2, 0, 10), option(3, 5, 5)}};
  problem.layers = {{0, 1}};
  problem.matrices = {{0}};
  problem.transforms = {{0}};
  problem.cuts = {{PipelineCut()}};
  problem.stages = {{0, 1, 10 + 5 + 5 + 5}};
  ASSERT_FALSE(problem.check());
  // Under a low limit what is left for the first layer rules options out.
  std::optional<PipelineSolution> found = PipelineSearch(problem).attempt(1000);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cost, 4);
  EXPECT_EQ(found->choice, (std::vector<uint32_t>{1, 2}));
}

/// One search for partition after partition finds what new searches find.
TEST(PipelineSearch, restarts_find_the_same) {
  std::mt19937_64 random(13);
  int compared = 0;
  for (int i = 0; i < instances(150); ++i) {
    PipelineProblem problem = randomProblem(random);
    problem.partition.clear();
    PipelineSearch search(problem);
    PipelineProblem fixed = problem;
    auto count = static_cast<int64_t>(problem.layerCount());
    auto stages = static_cast<int64_t>(problem.stages.size());
    for (int round = 0; round < 4; ++round) {
      fixed.partition.clear();
      int64_t left = count;
      for (int64_t s = 0; s < stages && round < 3; ++s) {
        int64_t rest = stages - 1 - s;
        fixed.partition.push_back(rest == 0 ? left
                                            : pick(random, 1, left - rest));
        left -= fixed.partition.back();
      }
      search.restart(fixed.partition);
      auto found = search.solve();
      auto expected = PipelineSearch(fixed).solve();
      ASSERT_EQ(found.has_value(), expected.has_value()) << i;
      if (!found)
        continue;
      ++compared;
      EXPECT_EQ(found->cost, expected->cost) << i;
      EXPECT_EQ(mistakeOf(fixed, *found), "") << i;
    }
  }
  EXPECT_GT(compared, 200);
}

/// Tables that searches of many problems share, stages of which are the same
/// now and then, and a lower bound that is known, change no answer.
TEST(PipelineSearch, shared_stage_classes_change_no_answer) {
  std::mt19937_64 random(77);
  SharedStageClasses shared;
  int feasible = 0;
  for (int i = 0; i < instances(150); ++i) {
    PipelineProblem problem = randomProblem(random);
    auto seed = static_cast<size_t>(pick(random, 0, 1 << 20));
    for (int variant = 0; variant < 3; ++variant) {
      PipelineSearch own(problem), sharing(problem, shared);
      EXPECT_EQ(own.lowerBound(), sharing.lowerBound()) << i;
      std::optional<PipelineSolution> expected = own.solve();
      std::optional<PipelineSolution> found = sharing.solve();
      ASSERT_EQ(expected.has_value(), found.has_value()) << i;
      EXPECT_EQ(own.statistics().steps, sharing.statistics().steps) << i;
      EXPECT_LE(
          PipelineSearch::bounds(problem, shared)
              .cost(problem.stages.size() > 1 ? problem.microBatches - 1 : 0),
          expected ? expected->cost : kNoBound)
          << i;
      if (expected) {
        ++feasible;
        EXPECT_EQ(expected->cost, found->cost) << i;
        EXPECT_EQ(expected->partition, found->partition) << i;
        EXPECT_EQ(expected->choice, found->choice) << i;
        for (Picoseconds known : {Picoseconds(0), expected->cost}) {
          auto begun = PipelineSearch(problem, shared, known).solve();
          ASSERT_TRUE(begun.has_value()) << i;
          EXPECT_EQ(begun->cost, expected->cost) << i;
        }
      }
      // Another problem of which most is the same.
      switch (variant) {
      case 0:
        problem.stages[seed % problem.stages.size()].memory += 7;
        break;
      case 1: {
        auto &set = problem.optionSets[seed % problem.optionSets.size()];
        set[seed % set.size()].nosync /= 2;
        break;
      }
      }
    }
  }
  EXPECT_GT(feasible, 200);
}

TEST(PipelineSearch, a_stopped_search_proves_nothing) {
  std::mt19937_64 random(14);
  for (int i = 0; i < 50; ++i) {
    PipelineProblem problem = randomProblem(random);
    auto optimum = PipelineSearch(problem).solve();
    PipelineSearch search(problem);
    Cancellation past;
    past.setSeconds(0);
    search.setCancellation(&past);
    auto found = search.attempt(Picoseconds(1) << 50);
    EXPECT_TRUE(!optimum || search.lowerBound() <= optimum->cost);
    EXPECT_TRUE(!found || found->cost >= optimum->cost);
    search.setCancellation(nullptr);
    auto again = search.solve();
    ASSERT_EQ(again.has_value(), optimum.has_value());
    if (again) {
      EXPECT_EQ(again->cost, optimum->cost);
    }
  }
}

/// A search may stop inside a run over the layers of a stage. What the run had
/// seen until then is neither found nor pruned.
TEST(PipelineSearch, a_search_that_stops_again_and_again_finds_the_same) {
  std::mt19937_64 random(15);
  int stops = 0;
  for (int i = 0; i < instances(100); ++i) {
    PipelineProblem problem = randomProblem(random, {1, 3, 8});
    auto optimum = PipelineSearch(problem).solve();
    PipelineSearch search(problem);
    uint64_t most = 0;
    // Every turn may go a little further than the one before.
    for (int turn = 0; turn < 30; ++turn) {
      most = search.statistics().steps + pick(random, 0, 20 * (turn + 1));
      search.setCancellation(nullptr);
      search.setMostSteps(most);
      auto found = search.attempt(optimum ? optimum->cost + pick(random, 0, 50)
                                          : Picoseconds(1) << 50);
      stops += search.stopped();
      ASSERT_TRUE(!optimum || search.lowerBound() <= optimum->cost) << i;
      ASSERT_TRUE(!found || (optimum && found->cost >= optimum->cost)) << i;
    }
    search.setCancellation(nullptr);
    search.setMostSteps(~uint64_t(0));
    auto again = search.solve();
    ASSERT_EQ(again.has_value(), optimum.has_value()) << i;
    if (again)
      ASSERT_EQ(again->cost, optimum->cost) << i;
  }
  EXPECT_GT(stops, 500);
}

TEST(PipelineSearch, quick_pipelines_fit_and_are_no_better) {
  std::mt19937_64 random(77);
  int found = 0, best = 0;
  for (int i = 0; i < 300; ++i) {
    PipelineProblem problem = randomProblem(random);
    problem.partition.assign(problem.stages.size(), 1);
    problem.partition.back() +=
        static_cast<int64_t>(problem.layerCount() - problem.stages.size());
    std::optional<PipelineSolution> quick =
        quickPipeline(problem, problem.partition);
    if (!quick)
      continue;
    ++found;
    EXPECT_EQ(mistakeOf(problem, *quick), "");
    std::optional<PipelineSolution> exact = PipelineSearch(problem).solve();
    ASSERT_TRUE(exact);
    EXPECT_LE(exact->cost, quick->cost);
    best += exact->cost == quick->cost;
  }
  EXPECT_GT(found, 50);
  EXPECT_GT(best, 5);
}

TEST(PipelineSearch, more_memory_never_costs_more) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 100; ++i) {
    PipelineProblem problem = randomProblem(random);
    Picoseconds last = kNoBound;
    for (int step = 0; step < 4; ++step) {
      auto found = PipelineSearch(problem).solve();
      if (found) {
        EXPECT_LE(found->cost, last);
        last = found->cost;
      } else {
        EXPECT_EQ(last, kNoBound);
      }
      for (PipelineStage &stage : problem.stages)
        stage.memory += stage.memory / 5 + 1;
    }
  }
}

/// No pipeline with an option costs less than the option's leastCost(), and
/// what is below mostSummable() passes check().
TEST(PipelineSearch, options_that_are_too_long_can_be_left_out) {
  std::mt19937_64 random(11);
  for (int i = 0; i < instances(200); ++i) {
    PipelineProblem problem = randomProblem(random);
    std::optional<PipelineSolution> solution = PipelineSearch(problem).solve();
    if (!solution)
      continue;
    size_t layer = 0;
    for (size_t s = 0; s < problem.stages.size(); ++s)
      for (int64_t k = 0; k < solution->partition[s]; ++k, ++layer) {
        size_t set = problem.layers[problem.stages[s].place][layer];
        EXPECT_LE(
            problem.leastCost(problem.optionSets[set][solution->choice[layer]]),
            solution->cost);
      }
    for (std::vector<PipelineOption> &set : problem.optionSets) {
      set.push_back(set.front());
      set.back().time = set.back().nosync = (int64_t(1) << 58) + 1;
    }
    ASSERT_TRUE(llvm::errorToBool(problem.check()));
    Picoseconds most = problem.mostSummable();
    for (std::vector<PipelineOption> &set : problem.optionSets)
      llvm::erase_if(set, [&](const PipelineOption &option) {
        return problem.leastCost(option) > most;
      });
    ASSERT_FALSE(llvm::errorToBool(problem.check()));
    EXPECT_EQ(PipelineSearch(problem).solve()->cost, solution->cost);
  }
}

TEST(PipelineSearch, malformed_problems_are_refused) {
  std::mt19937_64 random(1);
  PipelineProblem good;
  do
    good = randomProblem(random);
  while (good.stages.size() < 2 || good.ties.empty() ||
         good.boundaries.empty() || good.layerCount() < 3);
  const size_t layers = good.layerCount(), stages = good.stages.size();
  auto number = [](size_t value) { return std::to_string(value); };
  const std::string sums =
      number(layers) + " layers and " + number(good.microBatches);
  using Problem = PipelineProblem;
  const std::pair<std::function<void(Problem &)>, std::string> faults[] = {
      {[](Problem &p) { p.stages.clear(); },
       "expected at least one layer and one stage"},
      {[](Problem &p) {
         for (std::vector<size_t> &place : p.layers)
           place.clear();
       },
       "expected at least one layer and one stage"},
      {[](Problem &p) { p.microBatches = 0; },
       "expected at least 1 micro-batch, found 0"},
      {[](Problem &p) { p.classes = 0; },
       "expected at least one class and one tie key"},
      {[](Problem &p) { p.tieKeys = 0; },
       "expected at least one class and one tie key"},
      {[](Problem &p) { p.stages[1].place = p.layers.size(); },
       "a stage's place does not exist"},
      {[](Problem &p) { p.stages[0].inFlight = 0; },
       "expected at least 1 micro-batch in flight, found 0"},
      {[](Problem &p) { p.optionSets[0].clear(); }, "a layer has no options"},
      {[](Problem &p) { p.optionSets[0][0].layoutClass = p.classes; },
       "an option's class or tie key is out of range"},
      {[](Problem &p) { p.optionSets[0][0].tieKey = p.tieKeys; },
       "an option's class or tie key is out of range"},
      {[](Problem &p) { p.optionSets[0][0].time = -1; },
       "expected times of 0 to 288230376151711744 ps, found -1"},
      {[](Problem &p) { p.optionSets[0][0].nosync = (int64_t(1) << 58) + 1; },
       "expected times of 0 to 288230376151711744 ps, found "
       "288230376151711745"},
      {[](Problem &p) { p.optionSets[0][0].nosync = int64_t(1) << 57; },
       "the times of " + sums + " micro-batches are too long to be summed"},
      {[](Problem &p) { p.optionSets[0][0].kept = int64_t(1) << 60; },
       "bytes, the most that can be summed over " + number(layers) + " layers"},
      {[](Problem &p) { p.optionSets[0][0].transient = -1; }, "found -1"},
      {[](Problem &p) { p.optionSets[0][0].state = -2; }, "found -2"},
      {[](Problem &p) { p.optionSets[0][0].boundary = -3; }, "found -3"},
      {[](Problem &p) { p.optionSets[0][0].host = -4; }, "found -4"},
      {[](Problem &p) { p.optionSets[0][0].hostKept = -5; }, "found -5"},
      {[](Problem &p) { p.layers.push_back({0}); },
       "expected an option set for each of "},
      {[](Problem &p) { p.layers[0][1] = p.optionSets.size(); },
       "expected an option set for each of " + number(layers) + " layers"},
      {[](Problem &p) { p.matrices[0].push_back(0); }, "expected a matrix of "},
      {[](Problem &p) { p.matrices[0][0] = -1; },
       "a transfer is negative or too large"},
      {[](Problem &p) { p.tieTables[0].push_back(0); },
       "expected a matrix of "},
      {[](Problem &p) { p.tieTables[0][0] = int64_t(1) << 60; },
       "a transfer is negative or too large"},
      {[](Problem &p) { p.boundaries[0].passing.push_back(0); },
       "expected a boundary's bytes for "},
      {[](Problem &p) { p.boundaries[0].live[0] = -1; },
       "a boundary is negative or too large"},
      {[](Problem &p) { p.layouts.assign(p.classes + 1, 0); },
       "expected a layout for each of "},
      {[](Problem &p) { p.boundaryBehind.push_back(0); },
       "expected " + number(layers - 1) + " boundaries, found " +
           number(layers)},
      {[](Problem &p) { p.boundaryBehind[0] = p.boundaries.size(); },
       "a boundary does not exist"},
      {[](Problem &p) { p.transforms.emplace_back(); },
       "expected transforms for every place"},
      {[](Problem &p) { p.transforms[0].pop_back(); },
       "expected " + number(layers - 1) + " transforms in every place"},
      {[](Problem &p) { p.transforms[0][0] = p.matrices.size(); },
       "a transform does not exist"},
      {[](Problem &p) { p.cutPlace.clear(); },
       "expected " + number(stages - 1) + " places of cuts, found 0"},
      {[](Problem &p) { p.cutPlace[0] = p.cuts.size(); },
       "a cut's place does not exist"},
      {[](Problem &p) { p.cuts[0].pop_back(); },
       "expected " + number(layers - 1) + " cuts in every place"},
      {[](Problem &p) { p.cuts[0][0].activation = p.matrices.size(); },
       "a cut's matrix does not exist"},
      {[](Problem &p) { p.cuts[0][0].gradient = p.matrices.size(); },
       "a cut's matrix does not exist"},
      {[](Problem &p) { p.ties[0].owner = p.ties[0].borrower; },
       "a tie's owner must be a layer before its borrower"},
      {[](Problem &p) { p.ties[0].borrower = p.layerCount(); },
       "a tie's owner must be a layer before its borrower"},
      {[](Problem &p) { p.ties[0].table.pop_back(); },
       "expected a tie table for every pair of stages"},
      {[](Problem &p) { p.ties[0].table[1] = p.tieTables.size(); },
       "a tie's table does not exist"},
      {[=](Problem &p) {
         p.partition.assign(stages, 1);
         p.partition[0] = 0;
       },
       "a stage has no layers"},
      {[](Problem &p) { p.partition = {1}; },
       "the partition does not cover the layers"},
      {[=](Problem &p) { p.partition = {int64_t(layers)}; },
       "the partition does not cover the layers"},
  };
  llvm::cantFail(good.check());
  for (const auto &[change, message] : faults) {
    PipelineProblem problem = good;
    change(problem);
    llvm::Error error = problem.check();
    std::string found =
        error ? llvm::toString(std::move(error)) : std::string("no error");
    EXPECT_NE(found.find(message), std::string::npos)
        << "expected " << message << ", found " << found;
  }
}

} // namespace
