//===- SearchEffortTest.cpp - How much a search does ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A search whose bounds are weaker than they were, or that prunes less, finds
// the same, only later: no test of answers sees it. So here are the numbers of
// what it does for a fixed set of problems. Whoever changes how it searches
// sees whether it became more or less, and writes the new numbers.
//
//===----------------------------------------------------------------------===//

#include "RandomPipelines.h"

#include "galvatron/Search/QuickPipeline.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include "gtest/gtest.h"

#include <array>
#include <cmath>
#include <string>

using namespace galvatron;
using namespace galvatron::test;

namespace {

/// Problems of one kind.
struct Effort {
  const char *name;
  int count;
  Sizes sizes;
  bool slowestAlone, hosts;
};

constexpr Effort kEfforts[] = {
    {"small", 300, {1, 3, 5}, false, false},
    {"one stage", 60, {1, 1, 24}, false, false},
    {"stages", 120, {3, 6, 12}, false, false},
    {"many layers", 40, {2, 4, 30}, false, false},
    {"the slowest stage", 120, {2, 5, 10}, true, false},
    {"small hosts", 120, {1, 4, 8}, false, true},
};

/// Of every kind: attempts, runs, labels and steps; then, in percent of the
/// optimum of the problems that have one and in the mean, the first lower bound
/// and that raised as far as bounds alone can; what quick pipelines for the
/// optimum's partition take, in percent of the optimum in the mean of those
/// found; bytes that all problems need beyond what there is, at least.
constexpr std::array<double, 8> kExpected[] = {
    {819, 2222, 1574, 50737, 57.10, 82.24, 103.24, -152664}, // small
    {164, 194, 1760, 3424, 71.10, 87.70, 105.46, -33543},    // one stage
    {302, 3068, 4479, 109967, 56.11, 83.74, 104.82, -61494}, // stages
    {114, 748, 5594, 38134, 58.12, 83.68, 102.14, -20329},   // many layers
    {233, 1217, 1898, 101370, 56.18, 81.69, 106.10,
     -78196}, // the slowest stage
    {2571, 10657, 17815, 260972, 58.90, 80.54, 100.93, 8798}, // small hosts
};

TEST(PipelineSearch, does_as_much_as_it_did) {
  for (auto [effort, numbers] : llvm::zip_equal(kEfforts, kExpected)) {
    std::mt19937_64 random(77);
    PipelineStatistics sum;
    double bound = 0, tightened = 0, quick = 0, excess = 0;
    int solved = 0, quickly = 0;
    for (int i = 0; i < effort.count; ++i) {
      PipelineProblem problem = randomProblem(random, effort.sizes);
      problem.slowestAlone = effort.slowestAlone;
      if (effort.slowestAlone)
        problem.microBatches = 1;
      if (effort.hosts)
        addHosts(problem, random);
      ASSERT_FALSE(problem.check());
      PipelineSearch search(problem);
      auto first = static_cast<double>(search.lowerBound());
      auto raised = static_cast<double>(search.tighten());
      PipelineSearch whole(problem);
      std::optional<PipelineSolution> found = whole.solve();
      const PipelineStatistics &own = whole.statistics();
      sum.attempts += own.attempts;
      sum.runs += own.runs;
      sum.labels += own.labels;
      sum.steps += own.steps;
      excess += static_cast<double>(leastNeed(problem).excess);
      if (!found)
        continue;
      ++solved;
      if (auto one = quickPipeline(problem, found->partition)) {
        ++quickly;
        quick +=
            static_cast<double>(one->cost) / static_cast<double>(found->cost);
      }
      bound += first / static_cast<double>(found->cost);
      tightened += raised / static_cast<double>(found->cost);
    }
    bound *= 100.0 / solved;
    tightened *= 100.0 / solved;
    const double now[] = {static_cast<double>(sum.attempts),
                          static_cast<double>(sum.runs),
                          static_cast<double>(sum.labels),
                          static_cast<double>(sum.steps),
                          bound,
                          tightened,
                          100 * quick / quickly,
                          excess};
    std::string row;
    for (double number : now)
      row += llvm::formatv("{0:f2}, ", number).str();
    for (auto [expected, number] : llvm::zip_equal(numbers, now))
      EXPECT_NEAR(number, expected, 5e-4 * std::abs(expected))
          << effort.name << ": now {" << row << "}";
  }
}

} // namespace
