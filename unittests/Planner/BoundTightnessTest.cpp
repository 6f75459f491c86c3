//===- BoundTightnessTest.cpp - Lower bounds where they are near ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A bound that lacks a term is still sound. So here are plans whose time is
// made of one term above all: computing, filling a pipeline, messages, gathers
// and scatters of shards, sums of gradients and over tensor-parallel ranks. The
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
  const char *backend;
  double network;                ///< bytes per second between nodes
  int64_t degree, chunks;        ///< chunks of a stage
  int64_t microBatches, samples; ///< samples of a micro-batch
  const char *strategy, *schedule;
  double mostOfBusy;  ///< percent of the simulated step above BusyBound
  double mostOfProof; ///< and above the bound of the proof
};

constexpr Family kFamilies[] = {
    {"computing", 1, 1, "cuda", 1e10, 1, 1, 4, 12, "single", "1f1b", 0.001,
     0.001},
    {"filling", 4, 1, "cuda", 1e12, 4, 1, 4, 12, "single", "1f1b", 14, 3.6},
    {"filling, GPipe", 4, 1, "cuda", 1e12, 4, 1, 4, 12, "single", "gpipe", 26,
     0.05},
    {"messages", 2, 1, "cuda", 1e8, 2, 1, 12, 4, "single", "1f1b", 6.6, 0.03},
    {"shards", 2, 2, "cuda", 1e8, 1, 1, 2, 24, "sdp4", "1f1b", 0.001, 0.001},
    {"gradients", 4, 1, "cuda", 1e8, 1, 1, 1, 48, "dp4", "1f1b", 2, 2},
    {"gradients of two stages", 4, 1, "cuda", 1e7, 2, 1, 6, 2, "dp2", "1f1b", 4,
     14},
    {"gradients, GPipe", 4, 1, "cuda", 1e7, 2, 1, 6, 2, "dp2", "gpipe", 12,
     20.5},
    {"gradients, ZB-H1", 4, 1, "cuda", 1e7, 2, 1, 6, 2, "dp2", "zb-h1", 4, 4.4},
    {"gradients, ZB-H2", 4, 1, "cuda", 1e7, 2, 1, 6, 2, "dp2", "zb-h2", 3.94,
     4.3},
    {"gradients, 2BW", 4, 1, "cuda", 1e7, 2, 1, 6, 2, "dp2", "2bw", 221, 3.95},
    {"messages, 2BW", 2, 1, "cuda", 1e8, 2, 1, 12, 4, "single", "2bw", 8.95,
     0.001},
    {"few micro-batches, 2BW", 4, 1, "cuda", 1e8, 4, 1, 2, 4, "single", "2bw",
     164.1, 91.9},
    {"messages, ZB-H1", 2, 1, "cuda", 1e8, 2, 1, 12, 4, "single", "zb-h1", 3.95,
     3.95},
    {"messages of chunks", 2, 1, "cuda", 1e8, 2, 2, 12, 4, "single",
     "interleaved", 19, 19},
    {"shards of stages", 2, 2, "cuda", 1e8, 2, 1, 4, 24, "sdp2", "1f1b", 19.1,
     0.01},
    {"shards of chunks", 2, 2, "cuda", 1e8, 2, 2, 4, 24, "sdp2", "zb-v", 46.8,
     46.8},
    {"gradients of chunks", 4, 1, "cuda", 1e7, 2, 2, 6, 2, "dp2", "interleaved",
     24, 19.1},
    {"gradients, ZB-V", 4, 1, "cuda", 1e7, 2, 2, 6, 2, "dp2", "zb-v", 17, 13.6},
    {"gradients behind all", 4, 1, "cpu", 1e7, 2, 2, 6, 2, "dp2", "interleaved",
     6.8, 6.8},
    {"tensor-parallel sums", 2, 1, "cuda", 1e8, 1, 1, 2, 24, "tp2", "1f1b",
     0.001, 0.001},
    {"recomputing", 1, 1, "cuda", 1e10, 1, 1, 4, 12, "single.ckpt", "1f1b",
     0.001, 0.001},
};

TEST(BoundTightness, the_term_that_a_step_is_made_of_is_in_the_bound) {
  for (const Family &family : kFamilies) {
    std::mt19937_64 random(5);
    double busy = 0, proof = 0;
    for (int i = 0; i < 8; ++i) {
      auto profile = randomProfile(random, 4);
      const Cluster cluster = executedCluster(family.nodes, family.devices,
                                              family.network, family.backend);
      const int64_t chunks = family.degree * family.chunks;
      PlannerOptions options;
      options.memory = int64_t(1) << 40;
      options.batch = family.microBatches * family.samples;
      options.pipelineDegree = family.degree;
      if (family.chunks > 1)
        options.chunks = family.chunks;
      options.partition = std::vector<int64_t>(chunks, 4 / chunks);
      options.microBatches = family.microBatches;
      options.schedule = &scheduleNamed(family.schedule);
      options.training.clip = options.schedule->delay({}) == 0;
      options.strategy = llvm::cantFail(Strategy::parse(family.strategy));
      PlannerResult result = llvm::cantFail(plan(*profile, cluster, options));
      ASSERT_TRUE(result.feasible()) << family.name;
      const Plan &found = result.plan();
      const double seconds = simulated(*profile, cluster, found) / 1e3;
      planner::BusyBound bound(*profile, cluster, *options.schedule,
                               family.chunks);
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
