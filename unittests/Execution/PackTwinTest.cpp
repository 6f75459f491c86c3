//===- PackTwinTest.cpp - Packs of layers that take turns -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Harmony's pipeline: forward and backward have packs of their own, which come
// to few devices from the host. Losses, gradients and parameters are those of
// one rank that has everything, and what is copied is what the paper says.
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "gtest/gtest.h"

#include <filesystem>
#include <numeric>
#include <unistd.h>

using namespace galvatron;
using namespace galvatron::test;

namespace {

class PackTwinTest : public ::testing::Test {
protected:
  PackTwinTest() { loadTwinDialects(context); }

  TwinRun expectTwins(const TwinModel &model, const TwinPlan &plan,
                      const TwinOptions &options = {}) {
    SCOPED_TRACE(plan.str() + " " + options.dtype);
    const TwinRun &expected = references.of(model, options, plan.batch);
    EXPECT_EQ(expected.error, "");
    TwinRun run = runTwin(context, model, plan, options);
    EXPECT_EQ(run.error, "");
    if (!run.error.empty())
      return run;
    EXPECT_EQ(
        compareRuns(run, expected, getBounds(options.dtype, options.optimizer)),
        "");
    for (const ::grt::RankMemory &rank : run.memory)
      EXPECT_LE(rank.measuredPeakBytes, rank.plannedPeakBytes) << rank.rank;
    return run;
  }

  /// Packs of these lengths.
  static TwinPlan packed(const TwinModel &model, int64_t devices,
                         std::vector<int64_t> forward,
                         std::vector<int64_t> backward, int64_t batch,
                         int64_t microBatches, bool justInTime = false) {
    TwinPlan plan;
    plan.batch = batch;
    plan.microBatches = microBatches;
    plan.schedule = "harmony-pp";
    plan.packDevices = devices;
    plan.stageLayers = std::move(backward);
    int64_t first = 0;
    for (int64_t layers : forward) {
      plan.forwardPacks.push_back(first);
      first += layers;
    }
    plan.offload = Offload::All;
    plan.offload.justInTime = justInTime;
    plan.strategies.assign(size_t(model.modelLayers()), Strategy());
    return plan;
  }

  mlir::MLIRContext context;
  References references{context};
};

TEST_F(PackTwinTest, OneDevice) {
  TwinModel model; // eight layers
  expectTwins(model, packed(model, 1, {}, {8}, 4, 2));
  expectTwins(model, packed(model, 1, {3, 3}, {3, 3, 2}, 4, 2));
  expectTwins(model, packed(model, 1, {5}, {2, 1, 2, 3}, 6, 3));
}

TEST_F(PackTwinTest, SeveralDevices) {
  TwinModel model;
  expectTwins(model, packed(model, 2, {3, 3}, {3, 3, 2}, 4, 2));
  expectTwins(model, packed(model, 2, {4, 2}, {2, 1, 3, 2}, 6, 6));
  expectTwins(model, packed(model, 3, {2, 2, 2}, {1, 5, 2}, 8, 4));
  expectTwins(model, packed(model, 4, {1, 1, 2, 3}, {1, 2, 3, 1, 1}, 6, 3));
}

} // namespace
