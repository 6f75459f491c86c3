//===- LayerStrategiesTest.cpp - The solver against brute force -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/LayerStrategies.h"
#include "BruteForce.h"

#include "../RandomInstances.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <functional>
#include <random>

using namespace galvatron;

namespace {

/// A small problem. Few distinct values make ties and equal layers likely;
/// the budget lies between the least peak and one at which nothing binds.
LayerStrategiesProblem randomProblem(std::mt19937_64 &random) {
  LayerStrategiesProblem problem;
  size_t count = pick(random, 1, 6);
  size_t kinds = pick(random, 1, 3);
  problem.classes = pick(random, 1, 3);
  problem.inFlight = pick(random, 0, 1) ? 1 : pick(random, 2, 4);
  int64_t spread = pick(random, 0, 2) == 0 ? 4 : 1000;
  bool large = pick(random, 0, 3) == 0;
  int64_t optionCount = count <= 4 ? pick(random, 1, 6) : pick(random, 1, 4);
  for (size_t k = 0; k < kinds; ++k) {
    std::vector<LayerOption> set;
    for (int64_t o = 0; o < optionCount; ++o) {
      LayerOption option;
      option.layoutClass = pick(random, 0, problem.classes - 1);
      option.timeNosync = pick(random, 1, spread);
      option.time = option.timeNosync +
                    (pick(random, 0, 1) ? pick(random, 0, spread / 2 + 1) : 0);
      option.kept = pick(random, 0, spread);
      option.transient = pick(random, 0, large ? 6 * spread : spread);
      option.state = pick(random, 0, spread);
      set.push_back(option);
    }
    problem.optionSets.push_back(std::move(set));
  }
  for (size_t l = 0; l < count; ++l)
    problem.layers.push_back(pick(random, 0, kinds - 1));
  if (pick(random, 0, 1))
    std::sort(problem.layers.begin(), problem.layers.end());
  size_t matrices = pick(random, 1, 2);
  for (size_t t = 0; t < matrices; ++t) {
    std::vector<Picoseconds> matrix;
    for (size_t c = 0; c < problem.classes * problem.classes; ++c)
      matrix.push_back(pick(random, 0, 2) ? pick(random, 0, spread) : 0);
    if (pick(random, 0, 1))
      for (size_t c = 0; c < problem.classes; ++c)
        matrix[c * problem.classes + c] = 0;
    problem.transforms.push_back(std::move(matrix));
  }
  for (size_t l = 0; l + 1 < count; ++l)
    problem.transformAfter.push_back(pick(random, 0, matrices - 1));
  int64_t least = bruteforce::minimumPeak(problem);
  int64_t most = 0;
  for (size_t l : problem.layers) {
    int64_t largest = 0;
    for (const LayerOption &option : problem.optionSets[l])
      largest = std::max(largest, problem.inFlight * option.kept +
                                      option.transient + option.state);
    most += largest;
  }
  problem.memory = pick(random, std::max<int64_t>(least - 2, 0),
                        least + (most - least) / pick(random, 1, 4));
  return problem;
}

/// Number of random problems on which the (possibly faulty) solver disagrees.
int mismatches(int count, SolverFault fault) {
  std::mt19937_64 random(20240229);
  int wrong = 0;
  for (int i = 0; i < count; ++i) {
    LayerStrategiesProblem problem = randomProblem(random);
    EXPECT_FALSE(llvm::errorToBool(problem.check()));
    CostWeights weights{1, pick(random, 0, 1) ? 0 : pick(random, 1, 5)};
    auto expected = bruteforce::solveLayerStrategies(problem, weights);
    auto found = solveLayerStrategies(problem, weights, kNoBound, fault);
    bool same = expected.has_value() == found.has_value();
    if (same && found)
      same = found->choice == expected->choice &&
             found->time == expected->time &&
             found->timeNosync == expected->timeNosync &&
             found->peak == expected->peak &&
             !llvm::errorToBool(verify(problem, *found));
    wrong += !same;
  }
  return wrong;
}

TEST(LayerStrategies, agrees_with_brute_force) {
  EXPECT_EQ(mismatches(instances(3000), SolverFault::None), 0);
}

TEST(LayerStrategies, injected_faults_are_seen) {
  EXPECT_GT(mismatches(2000, SolverFault::IgnoreBackwardPeak), 10);
  EXPECT_GT(mismatches(2000, SolverFault::IgnoreTransformInDominance), 10);
  EXPECT_GT(mismatches(2000, SolverFault::CutFrontTooFar), 10);
}

TEST(LayerStrategies, least_peak_agrees_with_brute_force) {
  std::mt19937_64 random(11);
  for (int i = 0; i < instances(1000); ++i) {
    LayerStrategiesProblem problem = randomProblem(random);
    LayerStrategiesSolution least = minimumPeak(problem);
    ASSERT_EQ(least.peak, bruteforce::minimumPeak(problem));
    problem.memory = least.peak;
    EXPECT_TRUE(solveLayerStrategies(problem));
    problem.memory = least.peak - 1;
    EXPECT_FALSE(solveLayerStrategies(problem));
  }
}

/// The states of later layers count at the peak of earlier ones: the recurrence
/// printed in the paper's appendix forgets them.
TEST(LayerStrategies, states_of_later_layers_count) {
  LayerStrategiesProblem problem;
  problem.optionSets = {{{0, 10, 10, 1, 100, 0}}, {{0, 10, 10, 1, 0, 50}}};
  problem.layers = {0, 1};
  problem.transforms = {{0}};
  problem.transformAfter = {0};
  problem.memory = 150;
  EXPECT_FALSE(solveLayerStrategies(problem));
  problem.memory = 151;
  ASSERT_TRUE(solveLayerStrategies(problem));
  EXPECT_EQ(solveLayerStrategies(problem)->peak, 151);
}

/// The sweep over the forward budget that stops at its first failure misses
/// this: more forward memory fails where still more would not.
TEST(LayerStrategies, peak_needs_every_layers_transient) {
  LayerStrategiesProblem problem;
  // The first layer's temporaries decide although others come after it.
  problem.optionSets = {{{0, 1, 1, 0, 90, 0}, {0, 5, 5, 30, 0, 0}},
                        {{0, 1, 1, 5, 0, 15}}};
  problem.layers = {0, 1, 1};
  problem.transforms = {{0}};
  problem.transformAfter = {0, 0};
  problem.memory = 119;
  auto found = solveLayerStrategies(problem);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->choice, (std::vector<uint32_t>{1, 0, 0}));
  problem.memory = 120;
  EXPECT_EQ(solveLayerStrategies(problem)->choice,
            (std::vector<uint32_t>{0, 0, 0}));
}

TEST(LayerStrategies, ties_go_to_the_first_strategies) {
  LayerStrategiesProblem problem;
  problem.optionSets = {{{0, 3, 3, 9, 0, 0}, {0, 3, 3, 1, 0, 0}}};
  problem.layers = {0, 0, 0};
  problem.transforms = {{0}};
  problem.transformAfter = {0, 0};
  problem.memory = 19;
  EXPECT_EQ(solveLayerStrategies(problem)->choice,
            (std::vector<uint32_t>{0, 0, 1}));
}

TEST(LayerStrategies, invalid_problems_are_refused) {
  LayerStrategiesProblem good;
  good.optionSets = {{{0, 1, 1, 1, 1, 1}}};
  good.layers = {0, 0};
  good.transforms = {{0}};
  good.transformAfter = {0};
  EXPECT_FALSE(llvm::errorToBool(good.check()));
  using P = LayerStrategiesProblem;
  const std::pair<std::function<void(P &)>, const char *> faults[] = {
      {[](P &p) { p.layers.clear(); }, "expected at least one layer"},
      {[](P &p) { p.inFlight = 0; },
       "expected at least 1 micro-batch in flight, found 0"},
      {[](P &p) { p.memory = -1; }, "expected a memory of at least 0"},
      {[](P &p) { p.transformAfter.clear(); },
       "expected 1 transforms, found 0"},
      {[](P &p) { p.optionSets[0].clear(); }, "a layer has no options"},
      {[](P &p) { p.optionSets[0][0].layoutClass = 1; },
       "an option's class is out of range"},
      {[](P &p) { p.optionSets[0][0].time = -1; },
       "expected times and bytes of at least 0, found -1"},
      {[](P &p) { p.optionSets[0][0].timeNosync = -2; }, "found -2"},
      {[](P &p) { p.optionSets[0][0].kept = -3; }, "found -3"},
      {[](P &p) { p.optionSets[0][0].transient = -4; }, "found -4"},
      {[](P &p) { p.optionSets[0][0].state = (int64_t(1) << 59) + 1; },
       "times or bytes are too large to be summed"},
      {[](P &p) {
         p.optionSets[0][0].kept = (int64_t(1) << 58) + 1;
         p.inFlight = 2;
       },
       ": bytes are too large to be summed"},
      {[](P &p) { p.layers[0] = 1; }, "a layer's option set does not exist"},
      {[](P &p) { p.transforms[0].clear(); },
       "expected a transform matrix of 1 x 1"},
      {[](P &p) { p.transforms[0][0] = -1; },
       "a transform is negative or too large"},
      {[](P &p) { p.transforms[0][0] = (int64_t(1) << 59) + 1; },
       "a transform is negative or too large"},
      {[](P &p) { p.transformAfter[0] = 1; },
       "a transform matrix does not exist"}};
  for (const auto &[change, message] : faults) {
    P problem = good;
    change(problem);
    llvm::Error error = problem.check();
    ASSERT_TRUE(bool(error)) << message;
    std::string found = llvm::toString(std::move(error));
    EXPECT_TRUE(llvm::StringRef(found).ends_with(message)) << found;
  }
}

TEST(LayerStrategies, a_wrong_solution_does_not_verify) {
  LayerStrategiesProblem problem;
  problem.optionSets = {{{0, 3, 2, 9, 4, 1}}};
  problem.layers = {0};
  problem.memory = 14;
  LayerStrategiesSolution solution = *solveLayerStrategies(problem);
  EXPECT_FALSE(llvm::errorToBool(verify(problem, solution)));
  LayerStrategiesSolution wrong = solution;
  wrong.time = 2;
  EXPECT_TRUE(llvm::errorToBool(verify(problem, wrong)));
  wrong = solution;
  wrong.peak = 13;
  EXPECT_TRUE(llvm::errorToBool(verify(problem, wrong)));
  problem.memory = 13;
  EXPECT_TRUE(llvm::errorToBool(verify(problem, solution)));
}

} // namespace
