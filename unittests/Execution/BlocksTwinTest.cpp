//===- BlocksTwinTest.cpp - Models whose blocks are split in layers -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What galvatron-split-blocks makes of a model computes what the model did:
// one rank with whole blocks, and plans of their parts, each with strategies of
// its own. Masks of dropout are those of the whole blocks.
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "gtest/gtest.h"

using namespace galvatron;
using namespace galvatron::test;

namespace {

class BlocksTwinTest : public ::testing::Test {
protected:
  BlocksTwinTest() { loadTwinDialects(context); }

  /// `parts`: layers that the model has once its blocks are split.
  void expectTwins(TwinModel model, int64_t parts, unsigned plans,
                   const TwinOptions &options = {}) {
    std::mt19937 generator(static_cast<unsigned>(parts));
    for (unsigned i = 0; i < plans; ++i) {
      TwinModel split = model;
      split.splitLayers = parts;
      TwinPlan plan = randomPlan(split, generator);
      SCOPED_TRACE(model.family + " " + plan.str());
      TwinOptions alone = options;
      alone.backend = "cpu";
      const TwinRun &expected = references.of(model, alone, plan.batch);
      ASSERT_EQ(expected.error, "");
      TwinRun run = runTwin(context, split, plan, options);
      ASSERT_EQ(run.error, "");
      if (options.backend == "cpu")
        EXPECT_EQ(checkMemory(run), "");
      EXPECT_EQ(compareRuns(run, expected,
                            getBounds(options.dtype, options.optimizer)),
                "");
    }
  }

  mlir::MLIRContext context;
  References references{context};
};

TwinModel small(const char *family, int64_t layers) {
  TwinModel model;
  model.family = family;
  model.layers = layers;
  return model;
}

} // namespace

/// Two parts of a block, with the norm in front of each or behind it.
TEST_F(BlocksTwinTest, RandomMixedPlans) {
  expectTwins(small("gpt2", 3), 8, 3);
  expectTwins(small("llama", 3), 8, 2);
  expectTwins(small("bert", 3), 8, 2);
  expectTwins(small("vit", 3), 8, 1);
}

TEST_F(BlocksTwinTest, OnDevicesWithStreams) {
  TwinOptions options;
  options.backend = "cuda";
  expectTwins(small("gpt2", 3), 8, 2, options);
}

/// Without its key a layer behind a split one draws other masks.
TEST_F(BlocksTwinTest, AnotherKeyOfDropoutIsCaught) {
  TwinModel model = small("gpt2", 2), split = model;
  split.splitLayers = 6;
  TwinOptions options;
  options.corruptBodies = [](mlir::ModuleOp module) {
    module.walk([](mlir::Operation *op) { op->removeAttr("dropout_key"); });
  };
  TwinPlan plan = singleRank(split, 16);
  TwinRun run = runTwin(context, split, plan, options);
  ASSERT_EQ(run.error, "");
  EXPECT_NE(compareRuns(run, references.of(model, {}, plan.batch),
                        getBounds(options.dtype, options.optimizer)),
            "");
}
