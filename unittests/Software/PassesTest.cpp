//===- PassesTest.cpp - What every micro-batch gathers and sums -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Bounds.h"
#include "galvatron/Software/Pricing.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

/// Sharded on two nodes, where communication takes longer than computation.
struct Sharded {
  ModelShape shape;
  Configuration configuration;
  Cluster cluster = llvm::cantFail(Cluster::builtin("2x8xa100-80gb"));

  Sharded(Sharding sharding, int64_t passes) {
    shape.layers = 6;
    shape.hidden = 4096;
    shape.heads = shape.keyHeads = 32;
    shape.headWidth = 128;
    shape.inner = 16384;
    shape.vocabulary = 32000;
    shape.tokens = 512;
    configuration.batch = 16 * passes;
    configuration.data = 16;
    configuration.sharding = sharding;
    configuration.blocks = {6};
  }

  SoftwarePrice price(llvm::StringRef fact = "",
                      llvm::StringRef value = "") const {
    Execution execution = llvm::cantFail(Execution::named("fms-fsdp"));
    if (!fact.empty())
      llvm::cantFail(execution.set({{fact.str(), value.str()}}));
    return llvm::cantFail(
        galvatron::price(shape, configuration, execution, cluster));
  }
};

/// Savings are counted in closed form, which is near the planner's step of
/// streams: every pass gathers twice and sums once.
TEST(Passes, PlansOfOneStageAreTheSumOfTheirPasses) {
  for (int64_t passes : {1, 2, 5}) {
    SoftwarePrice price = Sharded(Sharding::Parameters, passes).price();
    const PlanStage &stage = price.plan.stages.front();
    EXPECT_NEAR(price.stepMs,
                double(passes - 1) * stage.timeNosyncMs + stage.timeMs +
                    stage.optimizerMs,
                0.04 * price.stepMs)
        << passes;
  }
}

TEST(Passes, SumsMayWaitForTheLastPass) {
  auto saved = [](int64_t passes) {
    Sharded run(Sharding::Parameters, passes);
    return run.price().stepMs - run.price("sums-every-pass", "off").stepMs;
  };
  EXPECT_EQ(saved(1), 0);
  EXPECT_GT(saved(2), 0);
  EXPECT_NEAR(saved(5), 4 * saved(2), 1e-6 * saved(5));
  // Whole 16-bit gradients stay until then; with one pass there is none before.
  Sharded run(Sharding::Parameters, 2), one(Sharding::Parameters, 1);
  int64_t elements =
      run.shape.layers * (run.shape.blockWeights() + 4 * run.shape.hidden) +
      2 * run.shape.vocabulary * run.shape.hidden;
  EXPECT_NEAR(double(run.price("sums-every-pass", "off").allocated -
                     run.price().allocated),
              2.0 * double(elements), 1e-3 * double(elements));
  EXPECT_EQ(one.price("sums-every-pass", "off").allocated,
            one.price().allocated);
}

/// A backward pass gathers nothing, for parameters that take 2 bytes each.
TEST(Passes, ParametersThatStayAreNotGatheredAgain) {
  Sharded three(Sharding::Parameters, 3), two(Sharding::Gradients, 3);
  SoftwarePrice given = three.price(), kept = two.price();
  EXPECT_LT(kept.stepMs, given.stepMs);
  EXPECT_GT(kept.allocated, given.allocated);
  EXPECT_EQ(kept.plan.iterationMs, given.plan.iterationMs);
  SoftwarePrice once = two.price("gathers-every-pass", "off");
  EXPECT_LT(once.stepMs, kept.stepMs);
  EXPECT_EQ(once.allocated, kept.allocated);
  Sharded single(Sharding::Gradients, 1);
  EXPECT_EQ(single.price("gathers-every-pass", "off").stepMs,
            single.price().stepMs);
  two.configuration.pipeline = 2;
  two.configuration.data = 8;
  two.configuration.blocks = {3, 3};
  llvm::Expected<SoftwarePrice> none =
      price(two.shape, two.configuration,
            llvm::cantFail(Execution::named("fms-fsdp")), two.cluster);
  ASSERT_FALSE(bool(none));
  EXPECT_EQ(llvm::toString(none.takeError()),
            "expected one stage beside sharded gradients (ZeRO-2), found 2");
}

/// A bound that knew nothing of them would be far below where the network is
/// what a step waits for.
TEST(Passes, AreInTheBoundOfAStep) {
  for (Sharding sharding : {Sharding::Gradients, Sharding::Parameters})
    for (const char *sumsEveryPass : {"on", "off"})
      for (const char *gathersEveryPass : {"on", "off"}) {
        Sharded run(sharding, 3);
        run.cluster = llvm::cantFail(Cluster::builtin("16x1xa100-80gb"));
        Execution execution = llvm::cantFail(Execution::named("fms-fsdp"));
        llvm::cantFail(
            execution.set({{"sums-every-pass", sumsEveryPass},
                           {"gathers-every-pass", gathersEveryPass}}));
        const double least = LeastSteps(execution, run.cluster)
                                 .leastMs(run.shape, run.configuration),
                     found = llvm::cantFail(
                                 galvatron::price(run.shape, run.configuration,
                                                  execution, run.cluster))
                                 .stepMs;
        EXPECT_LE(least, found);
        EXPECT_GT(least, 0.7 * found) << sumsEveryPass << gathersEveryPass;
      }
}

TEST(Passes, GatheredLogitsAreOnEveryRank) {
  Sharded run(Sharding::Parameters, 1);
  run.configuration.tensor = 4;
  run.configuration.data = 4;
  run.configuration.batch = 4;
  SoftwarePrice cut = run.price(), whole = run.price("gathers-logits", "on");
  EXPECT_GT(whole.stepMs, cut.stepMs);
  EXPECT_NEAR(double(whole.allocated - cut.allocated),
              0.75 * 4 * double(run.shape.tokens * run.shape.vocabulary),
              0.02 * double(run.shape.tokens * run.shape.vocabulary));
}

} // namespace
