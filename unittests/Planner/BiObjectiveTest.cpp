//===- BiObjectiveTest.cpp - Algorithm 2, step by step --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The partitions that arXiv 2307.02031, Algorithm 2, accepts follow from its
// three conditions; here they are applied as they are written, to plain sums.
//
//===----------------------------------------------------------------------===//

#include "BiObjective.h"

#include "../RandomInstances.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <set>

using namespace galvatron;

namespace {

/// Three stages and eight layers without what moves between them.
PipelineProblem randomPipeline(std::mt19937_64 &random) {
  const size_t layers = 8, stages = 3;
  PipelineProblem problem;
  problem.microBatches = 4;
  for (int set = 0; set < 4; ++set) {
    PipelineOption fast, small;
    fast.time = fast.nosync = pick(random, 20, 60);
    fast.time += pick(random, 0, 40);
    fast.kept = pick(random, 20, 60);
    fast.state = pick(random, 10, 50);
    small = fast;
    small.nosync += pick(random, 1, 20);
    small.time = std::max(small.nosync, fast.time + pick(random, 0, 10));
    small.kept /= 3;
    problem.optionSets.push_back({fast, small});
  }
  problem.layers.emplace_back();
  for (size_t layer = 0; layer < layers; ++layer)
    problem.layers[0].push_back(static_cast<size_t>(pick(random, 0, 3)));
  problem.matrices = {{0}};
  problem.transforms = {std::vector<size_t>(layers - 1, 0)};
  problem.cutPlace.assign(stages - 1, 0);
  problem.cuts.assign(1, std::vector<PipelineCut>(layers - 1));
  int64_t memory = pick(random, 250, 600);
  for (size_t stage = 0; stage < stages; ++stage)
    problem.stages.push_back({0, static_cast<int64_t>(stages - stage), memory});
  return problem;
}

struct Definition {
  size_t visited = 0;
  std::optional<Picoseconds> best;
  int64_t slower = 0, fuller = 0; ///< moves that are refused for that
};

Definition byDefinition(const PipelineProblem &problem) {
  Definition result;
  auto solve = [&](const std::vector<int64_t> &partition) {
    ++result.visited;
    PipelineProblem given = problem;
    given.partition = partition;
    std::optional<PipelineSolution> found = PipelineSearch(given).solve();
    if (found && (!result.best || found->cost < *result.best))
      result.best = found->cost;
    return found;
  };
  auto largest = [](const std::vector<int64_t> &values) {
    return *std::max_element(values.begin(), values.end());
  };
  auto timesOf = [&](const std::vector<int64_t> &partition,
                     const std::vector<uint32_t> &choice) {
    std::vector<int64_t> times;
    size_t layer = 0;
    for (int64_t length : partition) {
      times.push_back(0);
      for (int64_t i = 0; i < length; ++i, ++layer)
        times.back() +=
            problem.optionSets[problem.layers[0][layer]][choice[layer]].time;
    }
    return times;
  };
  std::vector<int64_t> byTime = planner::timeBalanced(problem);
  int64_t most = std::numeric_limits<int64_t>::max();
  if (auto found = solve(byTime))
    most = largest(evaluatePipeline(problem, byTime, found->choice).memory);
  std::vector<int64_t> even = {3, 3, 2},
                       byMemory = planner::memoryBalanced(problem);
  if (even != byTime && even != byMemory)
    solve(even);
  std::set<std::vector<int64_t>> accepted = {byMemory};
  std::vector<std::vector<int64_t>> open(accepted.begin(), accepted.end());
  while (!open.empty()) {
    std::vector<int64_t> partition = open.back();
    open.pop_back();
    auto found = solve(partition);
    if (!found)
      continue;
    std::vector<int64_t> times = timesOf(partition, found->choice);
    auto slowest = std::max_element(times.begin(), times.end()) - times.begin();
    for (int64_t to : {slowest - 1, slowest + 1}) {
      if (to < 0 || to >= 3 || partition[slowest] == 1)
        continue;
      std::vector<int64_t> next = partition;
      --next[slowest];
      ++next[to];
      bool isSlower = largest(timesOf(next, found->choice)) > times[slowest];
      PipelineValue value = evaluatePipeline(problem, next, found->choice);
      bool isFuller = !value.fits || largest(value.memory) > most;
      result.slower += isSlower && !isFuller;
      result.fuller += isFuller && !isSlower;
      if (!isSlower && !isFuller && accepted.insert(next).second)
        open.push_back(next);
    }
  }
  return result;
}

TEST(BiObjective, searches_the_partitions_that_the_conditions_accept) {
  std::mt19937_64 random(5);
  int64_t moved = 0, slower = 0, fuller = 0;
  for (int trial = 0; trial < 200; ++trial) {
    PipelineProblem problem = randomPipeline(random);
    ASSERT_EQ(llvm::toString(problem.check()), "");
    Definition expected = byDefinition(problem);
    planner::BiObjectiveResult found = planner::biObjective(problem);
    EXPECT_FALSE(found.stopped);
    ASSERT_EQ(found.best.has_value(), expected.best.has_value()) << trial;
    EXPECT_EQ(found.visited, expected.visited) << trial;
    moved += expected.visited > 3;
    slower += expected.slower;
    fuller += expected.fuller;
    if (expected.best) {
      EXPECT_EQ(found.best->cost, *expected.best) << trial;
    }
  }
  EXPECT_GT(moved, 10);
  EXPECT_GT(slower, 20);
  EXPECT_GT(fuller, 10);
}

TEST(BiObjective, ends_where_it_is_told_to) {
  std::mt19937_64 random(6);
  Cancellation past;
  past.setSeconds(0);
  int stopped = 0, fewer = 0;
  for (int trial = 0; trial < 50; ++trial) {
    PipelineProblem problem = randomPipeline(random);
    planner::BiObjectiveResult whole = planner::biObjective(problem);
    if (!whole.best)
      continue;
    // A search looks at the clock now and then: a short one may have ended.
    planner::BiObjectiveResult late = planner::biObjective(problem, &past);
    stopped += late.stopped;
    EXPECT_LE(late.visited, whole.visited);
    planner::BiObjectiveResult few =
        planner::biObjective(problem, nullptr, 0, /*mostSteps=*/1);
    fewer += few.stopped;
    for (const planner::BiObjectiveResult &cut : {late, few})
      if (cut.best) {
        EXPECT_GE(cut.best->cost, whole.best->cost);
      }
  }
  EXPECT_GT(stopped, 10);
  EXPECT_GT(fewer, 10);
}

} // namespace
