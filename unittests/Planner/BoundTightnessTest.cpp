//===- BoundTightnessTest.cpp - Lower bounds where they are near ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A bound that lacks a term is still sound. So here are plans whose time is
// made of one term above all: computing, filling a pipeline, messages, gathers
// and scatters of shards, sums over tensor-parallel ranks, updates. The
// simulated step is within a percentage of each bound, which is what it is
// today and little more: a bound without the term is far below.
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "BusyBound.h"
#include "ExecutedModels.h"

#include "gtest/gtest.h"

#include <random>

using namespace galvatron;
using namespace galvatron::test;

namespace {

/// Plans of one shape, on nodes of one network.
struct Family {
  const char *name;
  int64_t nodes, devices; ///< devices of a node
  double network;         ///< bytes per second between nodes
  int64_t degree, microBatches;
  const char *strategy, *schedule;
  double mostOfBusy;  ///< percent of the simulated step above BusyBound
  double mostOfProof; ///< and above the bound of the proof
};

/// BusyBound knows no sums of gradients behind the last backward pass.
constexpr double kNotAsked = 1e9;

constexpr Family kFamilies[] = {
    {"computing", 1, 1, 1e10, 1, 4, "single", "1f1b", 0.001, 0.001},
    {"filling", 4, 1, 1e12, 4, 4, "single", "1f1b", 14, 3.6},
    {"filling, GPipe", 4, 1, 1e12, 4, 4, "single", "gpipe", 26, 0.05},
    {"messages", 2, 1, 1e8, 2, 12, "single", "1f1b", 6.6, 0.03},
    {"shards", 2, 2, 1e8, 1, 2, "sdp4", "1f1b", 0.001, 0.001},
    {"gradients", 4, 1, 1e8, 1, 1, "dp4", "1f1b", kNotAsked, 2},
    {"tensor-parallel sums", 2, 1, 1e8, 1, 2, "tp2", "1f1b", 0.001, 0.001},
    {"recomputing", 1, 1, 1e10, 1, 4, "single.ckpt", "1f1b", 0.001, 0.001},
};

TEST(BoundTightness, the_term_that_a_step_is_made_of_is_in_the_bound) {
  for (const Family &family : kFamilies) {
    std::mt19937_64 random(5);
    double busy = 0, proof = 0;
    for (int i = 0; i < 8; ++i) {
      auto profile = randomProfile(random, 4);
      const Cluster cluster =
          executedCluster(family.nodes, family.devices, family.network);
      PlannerOptions options;
      options.memory = int64_t(1) << 40;
      options.batch = 48;
      options.pipelineDegree = family.degree;
      options.partition =
          std::vector<int64_t>(family.degree, 4 / family.degree);
      options.microBatches = family.microBatches;
      options.schedule = &scheduleNamed(family.schedule);
      options.strategy = llvm::cantFail(Strategy::parse(family.strategy));
      PlannerResult result = llvm::cantFail(plan(*profile, cluster, options));
      ASSERT_TRUE(result.feasible()) << family.name;
      const Plan &found = result.plan();
      const double seconds = simulated(*profile, cluster, found) / 1e3;
      planner::BusyBound bound(*profile, cluster, *options.schedule, 1);
      const double least = bound.leastSeconds(found);
      ASSERT_TRUE(found.gapPercent.has_value()) << family.name;
      EXPECT_LE(least, seconds) << family.name;
      busy = std::max(busy, 100 * (seconds / least - 1));
      proof = std::max(proof, *found.gapPercent);
    }
    EXPECT_LE(busy, family.mostOfBusy) << family.name;
    EXPECT_LE(proof, family.mostOfProof) << family.name;
  }
}

} // namespace
