//===- PipelinePartitionTest.cpp - Partitions against brute force ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/PipelinePartition.h"
#include "BruteForce.h"

#include "../RandomInstances.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

using namespace galvatron;

namespace {

TEST(PipelinePartition, agrees_with_brute_force) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    PartitionProblem problem;
    problem.stages = pick(random, 1, 5);
    problem.microBatches = pick(random, 1, 8);
    int64_t count = pick(random, 1, 9);
    int64_t spread = pick(random, 0, 1) ? 5 : 500;
    for (int64_t l = 0; l < count; ++l)
      problem.layers.push_back(pick(random, 0, spread));
    if (pick(random, 0, 1))
      for (int64_t l = 0; l + 1 < count; ++l) {
        problem.cuts.emplace_back();
        for (int64_t s = 0; s + 1 < problem.stages; ++s)
          problem.cuts.back().push_back(pick(random, 0, spread));
      }
    ASSERT_FALSE(llvm::errorToBool(problem.check()));
    auto expected = bruteforce::solvePartition(problem);
    auto found = solvePartition(problem);
    ASSERT_EQ(found.has_value(), expected.has_value());
    if (!found)
      continue;
    EXPECT_EQ(found->cost, expected->cost);
    EXPECT_EQ(std::accumulate(found->layersPerStage.begin(),
                              found->layersPerStage.end(), int64_t(0)),
              count);
    // The least maximum is what remains for a huge number of micro-batches.
    problem.cuts.clear();
    problem.microBatches = 1000001;
    expected = bruteforce::solvePartition(problem);
    auto balanced = minMaxPartition(problem.layers, problem.stages);
    ASSERT_TRUE(balanced);
    Picoseconds sum = std::accumulate(problem.layers.begin(),
                                      problem.layers.end(), Picoseconds(0));
    EXPECT_EQ(1000000 * balanced->cost + sum, expected->cost);
    EXPECT_EQ(balanced->layersPerStage, expected->layersPerStage);
  }
}

/// A layer may be faster in one stage than in another, stages may have limits,
/// and what is done at the end of a step may count.
PartitionProblem placedProblem(std::mt19937_64 &random) {
  PartitionProblem problem;
  problem.stages = pick(random, 1, 5);
  problem.microBatches = pick(random, 1, 8);
  int64_t count = pick(random, 1, 9);
  int64_t spread = pick(random, 0, 1) ? 5 : 500;
  auto fill = [&](auto &table, int64_t rows, int64_t columns, int64_t low,
                  int64_t high) {
    table.resize(rows);
    for (auto &row : table)
      for (int64_t j = 0; j < columns; ++j)
        row.push_back(pick(random, low, high));
  };
  if (pick(random, 0, 3)) {
    fill(problem.stageLayers, count, problem.stages, 0, spread);
  } else {
    for (int64_t l = 0; l < count; ++l)
      problem.layers.push_back(pick(random, 0, spread));
  }
  if (pick(random, 0, 3))
    fill(problem.cuts, count - 1, problem.stages - 1, 0, 3 * spread);
  if (pick(random, 0, 1))
    fill(problem.ends, count, problem.stages, 0, 2 * spread);
  if (pick(random, 0, 1))
    for (int64_t s = 0; s < problem.stages; ++s) {
      // Where a stage begins a layer later it ends no earlier.
      int64_t most = pick(random, 0, count);
      std::vector<int64_t> limits;
      for (int64_t l = 0; l < count; ++l) {
        limits.push_back(most);
        most = std::max<int64_t>(most - 1, 0) + pick(random, 0, 2);
      }
      problem.mostLayers.push_back(std::move(limits));
    }
  return problem;
}

TEST(PipelinePartition, times_by_stage_agree_with_brute_force) {
  std::mt19937_64 random(17);
  int solved = 0, limited = 0;
  for (int i = 0; i < 10000; ++i) {
    PartitionProblem problem = placedProblem(random);
    ASSERT_FALSE(llvm::errorToBool(problem.check()));
    auto expected = bruteforce::solvePartition(problem);
    auto found = solvePartition(problem);
    ASSERT_EQ(found.has_value(), expected.has_value()) << i;
    if (!found) {
      limited += problem.layerCount() >= problem.stages;
      continue;
    }
    ++solved;
    ASSERT_EQ(found->cost, expected->cost) << i;
    // The answer has the cost that it claims: nothing else is left to choose.
    PartitionProblem fixed = problem;
    fixed.mostLayers.assign(problem.stages,
                            std::vector<int64_t>(problem.layerCount(), 0));
    int64_t at = 0;
    for (int64_t s = 0; s < problem.stages; ++s) {
      fixed.mostLayers[s][at] = found->layersPerStage[s];
      at += found->layersPerStage[s];
    }
    auto again = bruteforce::solvePartition(fixed);
    ASSERT_TRUE(again) << i;
    EXPECT_EQ(again->cost, found->cost) << i;
  }
  EXPECT_GT(solved, 5000);
  EXPECT_GT(limited, 100);
}

TEST(PipelinePartition, ties_go_to_the_shortest_longest_stage) {
  PartitionProblem problem;
  problem.stages = 2;
  problem.layers = {2, 1, 1, 2};
  problem.microBatches = 1;
  EXPECT_EQ(solvePartition(problem)->layersPerStage,
            (std::vector<int64_t>{2, 2}));
  problem.layers = {4, 0, 0, 4};
  EXPECT_EQ(solvePartition(problem)->layersPerStage,
            (std::vector<int64_t>{3, 1}));
}

TEST(PipelinePartition, invalid_problems_are_refused) {
  auto messageOf = [](const PartitionProblem &problem) {
    llvm::Error error = problem.check();
    return error ? llvm::toString(std::move(error)) : std::string();
  };
  PartitionProblem plain, placed;
  plain.layers = {1, 2};
  plain.stages = placed.stages = 2;
  placed.stageLayers = {{1, 2}, {3, 4}};
  placed.mostLayers = {{2, 1}, {2, 1}};
  EXPECT_EQ(messageOf(plain), "");
  EXPECT_EQ(messageOf(placed), "");
  using P = PartitionProblem;
  const struct {
    const P &from;
    std::function<void(P &)> change;
    const char *message;
  } faults[] = {
      {plain, [](P &p) { p.layers.clear(); }, "expected at least one layer"},
      {plain, [](P &p) { p.stages = 0; }, "expected at least 1 stage, found 0"},
      {plain, [](P &p) { p.microBatches = 0; },
       "expected at least 1 micro-batch, found 0"},
      {placed, [](P &p) { p.layers = {1, 2}; },
       "expected the times of layers either by stage or for all stages, found "
       "both"},
      {plain, [](P &p) { p.layers[1] = -1; },
       "a layer's time is negative or too large"},
      {plain, [](P &p) { p.layers[1] = (int64_t(1) << 59) + 1; },
       "a layer's time is negative or too large"},
      {plain, [](P &p) { p.cuts = {{}}; },
       "cuts[0]: expected 1 entries, found 0"},
      {plain, [](P &p) { p.cuts = {{-1}}; },
       "cuts[0]: a cost is negative or too large"},
      {plain, [](P &p) { p.cuts = {{(int64_t(1) << 59) + 1}}; },
       "cuts[0]: a cost is negative or too large"},
      {placed, [](P &p) { p.ends = {{1, 2}}; },
       "expected 2 rows of ends, found 1"},
      {placed, [](P &p) { p.mostLayers.pop_back(); },
       "expected a limit for every stage and first layer"},
      {placed, [](P &p) { p.mostLayers[1].pop_back(); },
       "expected a limit for every stage and first layer"},
      {placed, [](P &p) { p.stageLayers[1].pop_back(); },
       "layers by stage[1]: expected 2 entries, found 1"},
  };
  for (const auto &fault : faults) {
    P problem = fault.from;
    fault.change(problem);
    EXPECT_EQ(messageOf(problem),
              std::string("pipeline-partition: ") + fault.message);
  }
  // More stages than layers are sound, and have no partition.
  plain.stages = 3;
  EXPECT_FALSE(solvePartition(plain));
}

} // namespace
