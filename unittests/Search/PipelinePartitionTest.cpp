//===- PipelinePartitionTest.cpp - Partitions against brute force ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/PipelinePartition.h"
#include "galvatron/Search/BruteForce.h"

#include "../RandomInstances.h"

#include "gtest/gtest.h"

#include <algorithm>
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

TEST(PipelinePartition, invalid_problems_are_refused) {
  PartitionProblem problem;
  EXPECT_TRUE(llvm::errorToBool(problem.check()));
  problem.layers = {1, 2};
  problem.stages = 2;
  EXPECT_FALSE(llvm::errorToBool(problem.check()));
  problem.cuts = {{}};
  EXPECT_TRUE(llvm::errorToBool(problem.check()));
  problem.cuts = {{-1}};
  EXPECT_TRUE(llvm::errorToBool(problem.check()));
  problem.cuts.clear();
  problem.microBatches = 0;
  EXPECT_TRUE(llvm::errorToBool(problem.check()));
  problem.microBatches = 1;
  problem.stages = 3;
  EXPECT_FALSE(solvePartition(problem));
}

} // namespace
