//===- TopTest.cpp - The best plans that differ ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Top.h"
#include "galvatron/Schedule/Schedule.h"

#include "RandomModel.h"

#include "gtest/gtest.h"

#include <map>
#include <set>

using namespace galvatron;
using galvatron::test::RandomModel;

namespace {

/// What Top.h says makes a plan different.
std::string kindOf(const Plan &plan) {
  std::map<Strategy, double> times;
  for (const PlanLayer &layer : plan.layers)
    times[layer.strategy] += layer.timeMs;
  Strategy most = times.begin()->first;
  for (const auto &[strategy, time] : times)
    if (time > times[most])
      most = strategy;
  return plan.schedule->name().str() + "/" +
         std::to_string(plan.pipelineDegree) + "/" +
         std::to_string(plan.microBatches) + "/" + most.str();
}

class Top : public testing::Test {
protected:
  RandomModel model{7, {0, 1, 1, 1, 2}, true};
  Cluster cluster = llvm::cantFail(Cluster::builtin("4xcpu"));

  PlannerOptions options() {
    PlannerOptions options;
    options.batch = 8;
    options.space = "no-ckpt";
    return options;
  }
  std::vector<PlannerResult> top(const PlannerOptions &options, size_t count) {
    PlannerResult best = llvm::cantFail(plan(model, cluster, options));
    return llvm::cantFail(planTop(model, cluster, options, best, count));
  }
};

TEST_F(Top, PlansDifferAndComeInOrder) {
  std::vector<PlannerResult> found = top(options(), 9);
  ASSERT_EQ(found.size(), 9u);
  std::set<std::string> kinds;
  double before = 0;
  for (const PlannerResult &result : found) {
    EXPECT_TRUE(kinds.insert(kindOf(result.plan())).second)
        << kindOf(result.plan());
    EXPECT_GE(result.plan().iterationMs, before);
    before = result.plan().iterationMs;
    EXPECT_EQ(result.plan().batch, 8);
    EXPECT_FALSE(static_cast<bool>(result.plan().check()));
  }
  PlannerResult best = llvm::cantFail(plan(model, cluster, options()));
  EXPECT_TRUE(kinds.count(kindOf(best.plan())));
}

/// Every shape under every set of paradigms, each by a search of its own: none
/// of another kind is faster than the last of the list.
TEST_F(Top, NoOtherKindIsFaster) {
  std::vector<PlannerResult> found = top(options(), 6);
  ASSERT_EQ(found.size(), 6u);
  std::set<std::string> kinds;
  double last = 0;
  for (const PlannerResult &result : found) {
    kinds.insert(kindOf(result.plan()));
    last = std::max(last, result.formulaMs);
  }
  std::vector<Paradigm> all = {Paradigm::DP, Paradigm::SDP, Paradigm::TP};
  size_t looked = 0;
  for (int64_t degree : {1, 2, 4})
    for (int64_t count : {1, 2, 4, 8})
      for (unsigned set = 1; set < 8; ++set) {
        PlannerOptions one = options();
        one.pipelineDegree = degree;
        one.microBatches = count;
        for (size_t i = 0; i < all.size(); ++i)
          if (set >> i & 1)
            one.paradigms.push_back(all[i]);
        llvm::Expected<PlannerResult> result = plan(model, cluster, one);
        if (!result) {
          llvm::consumeError(result.takeError());
          continue;
        }
        if (!result->feasible())
          continue;
        ++looked;
        EXPECT_TRUE(result->formulaMs >= last ||
                    kinds.count(kindOf(result->plan())))
            << kindOf(result->plan()) << " takes " << result->formulaMs
            << " ms, the last of the list " << last;
      }
  EXPECT_GT(looked, 30u);
}

TEST_F(Top, SmallSpacesHaveFewer) {
  PlannerOptions forced = options();
  forced.pipelineDegree = 2;
  forced.microBatches = 4;
  forced.strategy = llvm::cantFail(Strategy::parse("dp2"));
  EXPECT_EQ(top(forced, 5).size(), 1u);
  forced.microBatches.reset();
  // 1, 2 and 4 micro-batches of at least two samples.
  EXPECT_EQ(top(forced, 5).size(), 3u);
}

TEST_F(Top, ASweepKeepsTheBestBatch) {
  PlannerOptions sweep = options();
  sweep.batch.reset();
  sweep.maxBatch = 16;
  PlannerResult best = llvm::cantFail(plan(model, cluster, sweep));
  std::vector<PlannerResult> found =
      llvm::cantFail(planTop(model, cluster, sweep, best, 4));
  ASSERT_EQ(found.size(), 4u);
  for (const PlannerResult &result : found)
    EXPECT_EQ(result.plan().batch, best.plan().batch);
}

} // namespace
