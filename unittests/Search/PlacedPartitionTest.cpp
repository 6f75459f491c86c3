//===- PlacedPartitionTest.cpp - Placements against brute force -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/PlacedPartition.h"
#include "galvatron/Search/BruteForce.h"

#include "../RandomInstances.h"

#include "gtest/gtest.h"

#include <functional>

using namespace galvatron;

namespace {

/// The order of groups fixed, it is a problem of PipelinePartition.h.
PartitionProblem withGroups(const PlacedPartitionProblem &problem,
                            const std::vector<size_t> &groups) {
  PartitionProblem fixed;
  fixed.stages = problem.stages;
  fixed.microBatches = problem.microBatches;
  for (int64_t l = 0; l < problem.layers; ++l) {
    fixed.stageLayers.emplace_back();
    fixed.ends.emplace_back();
    if (l + 1 < problem.layers)
      fixed.cuts.emplace_back();
    for (size_t s = 0; s < groups.size(); ++s) {
      fixed.stageLayers.back().push_back(problem.times[groups[s]][l]);
      fixed.ends.back().push_back(problem.ends[groups[s]][l]);
      if (l + 1 < problem.layers && s + 1 < groups.size())
        fixed.cuts.back().push_back(problem.cuts[groups[s]][groups[s + 1]][l]);
    }
  }
  if (!problem.mostLayers.empty())
    for (size_t s = 0; s < groups.size(); ++s)
      fixed.mostLayers.push_back(problem.mostLayers[s][groups[s]]);
  return fixed;
}

/// All orders of groups and all partitions.
std::optional<Picoseconds> bruteForce(const PlacedPartitionProblem &problem) {
  std::optional<Picoseconds> best;
  std::vector<size_t> groups;
  std::function<void(std::vector<int64_t>)> grow =
      [&](std::vector<int64_t> pools) {
        if (static_cast<int64_t>(groups.size()) == problem.stages) {
          for (int64_t left : pools)
            if (left != 0)
              return;
          auto found = bruteforce::solvePartition(withGroups(problem, groups));
          if (found && (!best || found->cost < *best))
            best = found->cost;
          return;
        }
        for (size_t g = 0; g < problem.groups.size(); ++g) {
          std::vector<int64_t> left = pools;
          bool fits = true;
          for (size_t p = 0; p < left.size(); ++p)
            fits &= (left[p] -= problem.groups[g][p]) >= 0;
          if (!fits)
            continue;
          groups.push_back(g);
          grow(std::move(left));
          groups.pop_back();
        }
      };
  grow(problem.pools);
  return best;
}

PlacedPartitionProblem randomPlaced(std::mt19937_64 &random) {
  PlacedPartitionProblem problem;
  problem.stages = pick(random, 1, 4);
  problem.microBatches = pick(random, 1, 8);
  problem.layers = pick(random, 1, 6);
  int64_t spread = pick(random, 0, 1) ? 5 : 500;
  for (int64_t p = pick(random, 1, 3); p > 0; --p)
    problem.pools.push_back(pick(random, 1, 3));
  auto costs = [&](int64_t count, int64_t most) {
    std::vector<Picoseconds> row;
    for (int64_t i = 0; i < count; ++i)
      row.push_back(pick(random, 0, most));
    return row;
  };
  int64_t groups = pick(random, 1, 4);
  for (int64_t g = 0; g < groups; ++g) {
    std::vector<int64_t> group;
    for (size_t p = 0; p < problem.pools.size(); ++p)
      group.push_back(pick(random, 0, 2));
    group[pick(random, 0, static_cast<int64_t>(group.size()) - 1)] += 1;
    problem.groups.push_back(std::move(group));
    problem.times.push_back(costs(problem.layers, spread));
    problem.ends.push_back(costs(problem.layers, spread));
    problem.cuts.emplace_back();
    for (int64_t other = 0; other < groups; ++other)
      problem.cuts.back().push_back(costs(problem.layers - 1, 3 * spread));
  }
  if (pick(random, 0, 1))
    for (int64_t s = 0; s < problem.stages; ++s) {
      problem.mostLayers.emplace_back();
      for (int64_t g = 0; g < groups; ++g) {
        problem.mostLayers.back().emplace_back();
        for (int64_t l = 0; l < problem.layers; ++l)
          problem.mostLayers.back().back().push_back(
              pick(random, 0, problem.layers));
      }
    }
  return problem;
}

TEST(PlacedPartition, agrees_with_brute_force) {
  std::mt19937_64 random(29);
  int solved = 0, without = 0;
  for (int i = 0; i < instances(20000); ++i) {
    PlacedPartitionProblem problem = randomPlaced(random);
    ASSERT_FALSE(llvm::errorToBool(problem.check())) << i;
    std::optional<Picoseconds> expected = bruteForce(problem);
    auto found = solvePlacedPartition(problem);
    ASSERT_EQ(found.has_value(), expected.has_value()) << i;
    if (!found) {
      ++without;
      continue;
    }
    ++solved;
    ASSERT_EQ(found->cost, *expected) << i;
    // The answer uses the pools up, and costs what it says.
    std::vector<int64_t> used(problem.pools.size(), 0);
    for (size_t group : found->groups)
      for (size_t p = 0; p < used.size(); ++p)
        used[p] += problem.groups[group][p];
    EXPECT_EQ(used, problem.pools) << i;
    PartitionProblem fixed = withGroups(problem, found->groups);
    fixed.mostLayers.assign(problem.stages,
                            std::vector<int64_t>(problem.layers, 0));
    int64_t at = 0;
    for (int64_t s = 0; s < problem.stages; ++s) {
      fixed.mostLayers[s][at] = found->layersPerStage[s];
      at += found->layersPerStage[s];
    }
    EXPECT_EQ(bruteforce::solvePartition(fixed)->cost, found->cost) << i;
  }
  EXPECT_GT(solved, 1000);
  EXPECT_GT(without, 1000);
}

TEST(PlacedPartition, invalid_problems_are_refused) {
  std::mt19937_64 random(1);
  PlacedPartitionProblem sound = randomPlaced(random);
  ASSERT_FALSE(llvm::errorToBool(sound.check()));
  using P = PlacedPartitionProblem;
  const std::pair<std::function<void(P &)>, const char *> faults[] = {
      {[](P &p) { p.stages = 0; },
       "expected at least 1 stage, micro-batch and layer"},
      {[](P &p) { p.microBatches = 0; },
       "expected at least 1 stage, micro-batch and layer"},
      {[](P &p) { p.layers = 0; },
       "expected at least 1 stage, micro-batch and layer"},
      {[](P &p) { p.times.pop_back(); },
       "expected times, ends and cuts of every group"},
      {[](P &p) { p.ends.pop_back(); },
       "expected times, ends and cuts of every group"},
      {[](P &p) { p.cuts.pop_back(); },
       "expected times, ends and cuts of every group"},
      {[](P &p) { p.groups[0].push_back(1); },
       "expected devices of every pool in group 0"},
      {[](P &p) { p.groups[0][0] = -1; },
       "expected devices of every pool in group 0"},
      {[](P &p) { p.groups[0].assign(p.groups[0].size(), 0); },
       "expected devices of every pool in group 0"},
      {[](P &p) { p.times[0].push_back(1); },
       "a cost of group 0 is missing, negative or too large"},
      {[](P &p) { p.ends[0][0] = -1; },
       "a cost of group 0 is missing, negative or too large"},
      {[](P &p) { p.cuts[0].pop_back(); },
       "a cost of group 0 is missing, negative or too large"},
      {[](P &p) { p.cuts[0][0].push_back(1); },
       "a cost of group 0 is missing, negative or too large"},
      {[](P &p) { p.mostLayers.resize(9); },
       "expected a limit for every stage, group and first layer"}};
  for (const auto &[change, message] : faults) {
    P problem = sound;
    change(problem);
    llvm::Error error = problem.check();
    ASSERT_TRUE(bool(error)) << message;
    EXPECT_EQ(llvm::toString(std::move(error)),
              std::string("placed-partition: ") + message);
  }
  PlacedPartitionProblem problem = sound;
  EXPECT_EQ(placedPartitionSize(problem, 2), 2);
  EXPECT_GT(placedPartitionSize(problem, 1000000), 2);
}

} // namespace
