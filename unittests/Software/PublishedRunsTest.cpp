//===- PublishedRunsTest.cpp - Published runs behind an execution ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/PublishedRuns.h"

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Software/Execution.h"

#include "llvm/ADT/STLExtras.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

TEST(PublishedRuns, AreOfExecutionsAndCardsThatThereAre) {
  const std::vector<std::string> names = Execution::names();
  EXPECT_GT(publishedRuns().size(), 1000u);
  for (const PublishedRun &run : publishedRuns()) {
    EXPECT_TRUE(llvm::is_contained(names, run.execution)) << run.id.str();
    EXPECT_TRUE(bool(Strategy::parse(run.strategy))) << run.id.str();
    EXPECT_GT(run.predicted, 0) << run.id.str();
  }
  // Those that nothing stands behind are said to be unchecked.
  EXPECT_EQ(standingOf("deepspeed-zero").runs, 0);
  EXPECT_EQ(standingOf("alpa").runs, 8);
  EXPECT_NEAR(standingOf("alpa").medianError, 2.1, 0.1);
}

TEST(PublishedRuns, TheNearestIsOfTheExecution) {
  // GPT of 145.6B as SC 2021 ran it (Table 1).
  ModelShape shape;
  shape.layers = 80;
  shape.hidden = 12288;
  shape.heads = shape.keyHeads = 96;
  shape.headWidth = 128;
  shape.inner = 4 * shape.hidden;
  shape.vocabulary = 51200;
  shape.tokens = 2048;
  Configuration configuration;
  configuration.batch = 2304;
  configuration.microBatch = 2;
  configuration.tensor = 8;
  configuration.pipeline = 8;
  configuration.data = 24;
  const PublishedRun *run =
      nearestRun("megatron-sc21", shape, configuration, "a100-80gb");
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->devices, 1536);
  EXPECT_EQ(run->parameters, shape.layers * shape.blockWeights() +
                                 2 * shape.hidden * shape.vocabulary);
  EXPECT_EQ(run->str().substr(0, 47),
            "146.2B, 2304 samples of 2048 tokens on 1536 a10");
  // The same of an execution that has one model of 530B alone.
  EXPECT_EQ(nearestRun("mt-none", shape, configuration, "a100-80gb"), nullptr);
  EXPECT_EQ(nearestRun("megatron-bf16-2022", shape, configuration, "a100-80gb")
                ->execution,
            "megatron-bf16-2022");
}

} // namespace
