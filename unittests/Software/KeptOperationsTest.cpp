//===- KeptOperationsTest.cpp - Recomputation by kinds of operations ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KeptOperations.h"

#include "galvatron/Software/Pricing.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

/// Sizes that are easily told apart: queries of 512, keys of 128.
ModelShape shapeOf(bool gated) {
  ModelShape shape;
  shape.layers = 4;
  shape.hidden = 512;
  shape.heads = 8;
  shape.keyHeads = 2;
  shape.headWidth = 64;
  shape.inner = 1024;
  shape.vocabulary = 1000;
  shape.tokens = 256;
  shape.gated = gated;
  return shape;
}

Configuration planOf(int64_t tensor, bool cutsRows) {
  Configuration plan;
  plan.batch = 8;
  plan.microBatch = 1;
  plan.tensor = tensor;
  plan.data = 8 / tensor;
  plan.sequenceParallel = cutsRows;
  plan.blocks = {4};
  return plan;
}

Execution titan(bool fusesQueries, bool compiled) {
  Execution execution = llvm::cantFail(Execution::named("torchtitan"));
  execution.fusesQueries = fusesQueries;
  execution.fusesNorms = compiled;
  return execution;
}

/// The block of a plan with Recompute::Operations, and as it is otherwise.
std::pair<ProfileLayer, ProfileLayer> blocksOf(const ModelShape &shape,
                                               Configuration plan,
                                               const Execution &execution) {
  ProfileLayer all = softwareLayers(shape, plan, execution)[1];
  plan.recompute = Recompute::Operations;
  return {softwareLayers(shape, plan, execution)[1], all};
}

/// Bytes of a token, and the part of the products that is made again, counted
/// by hand.
TEST(KeptOperations, AreEverySecondProduct) {
  const double heads = 4 * 8; // a logarithm in f32 a head
  struct Case {
    bool gated, fused, compiled;
    double kept;  ///< elements of a token besides the heads'
    double again; ///< elements of matrices
  };
  const double q = 512, kv = 128, h = 512, f = 1024;
  for (const Case &one : {
           // qkv, not out, gate, not up, down, which nothing reads.
           Case{true, true, true, (q + 2 * kv) + q + f, q * h + h * f},
           Case{true, true, false, (q + 2 * kv) + q + f + h, q * h + h * f},
           // q, not k, v, not out, gate, not up, down.
           Case{true, false, false, q + kv + q + f + h, h * kv + q * h + h * f},
           // qkv, not out, up, not down, which nothing reads.
           Case{false, true, true, (q + 2 * kv) + q + f, q * h},
           Case{false, true, false, (q + 2 * kv) + q + f, q * h + f * h},
           // q, not k, v, not out, up, not down.
           Case{false, false, false, q + kv + q + f, h * kv + q * h + f * h},
       }) {
    const ModelShape shape = shapeOf(one.gated);
    auto [block, all] =
        blocksOf(shape, planOf(1, false), titan(one.fused, one.compiled));
    SCOPED_TRACE(testing::Message() << one.gated << one.fused << one.compiled);
    EXPECT_EQ(double(block.intermediateBytes), 256 * (2 * one.kept + heads));
    EXPECT_NEAR(block.again.flops, 2 * 256 * one.again, 1);
    EXPECT_EQ(block.again.movedBytes, block.forwardMovedBytes);
    EXPECT_EQ(block.again.bytes,
              all.intermediateBytes - block.intermediateBytes);
    EXPECT_EQ(block.again.tpAllReduceBytes, 0);
    EXPECT_EQ(block.forwardFlops, all.forwardFlops);
  }
}

/// Under tensor parallelism with cut rows the sums are kept, in parts, and what
/// is gathered is gathered again; without them the sums are made again.
TEST(KeptOperations, KeepWhatRanksHaveSummed) {
  const ModelShape shape = shapeOf(true);
  const double q = 512, kv = 128, h = 512, f = 1024, heads = 4 * 8;
  auto [block, all] = blocksOf(shape, planOf(4, true), titan(true, true));
  // All of it in four parts; the result behind which a sum is kept is neither
  // kept nor made again.
  EXPECT_EQ(double(block.intermediateBytes),
            256 * (2 * ((q + 2 * kv) + q + h + f) + heads));
  EXPECT_EQ(block.tpReplicatedBytes, 0);
  EXPECT_NEAR(block.again.flops, 2 * 256 * h * f / 4, 1);
  EXPECT_EQ(block.again.tpAllReduceBytes, all.tpAllReduceBytes / 2);
  // Not compiled, every rank keeps the last product's rows before their sum.
  block = blocksOf(shape, planOf(4, true), titan(true, false)).first;
  EXPECT_EQ(double(block.tpReplicatedBytes), 256 * 2 * h);
  EXPECT_EQ(double(block.intermediateBytes),
            256 * (2 * ((q + 2 * kv) + q + h + f + h + h) + heads));
  EXPECT_NEAR(block.again.flops, 2 * 256 * (q * h + h * f) / 4, 1);
  // Whole rows: all sums again where nothing is compiled.
  block = blocksOf(shape, planOf(4, false), titan(true, false)).first;
  EXPECT_EQ(block.again.tpAllReduceBytes, block.tpAllReduceBytes);
}

/// More time and less memory than nothing recomputed, less time and more memory
/// than everything.
TEST(KeptOperations, AreBetweenNothingAndAll) {
  ModelShape shape = shapeOf(true);
  shape.hidden = 4096;
  shape.heads = 32;
  shape.keyHeads = 8;
  shape.headWidth = 128;
  shape.inner = 14336;
  shape.tokens = 8192;
  const Cluster cluster = llvm::cantFail(Cluster::builtin("8xh100"));
  for (bool cutsRows : {false, true})
    for (bool compiled : {false, true}) {
      Configuration plan = planOf(cutsRows ? 4 : 1, cutsRows);
      plan.sharding = Sharding::Parameters;
      auto priceOf = [&](Recompute recompute) {
        plan.recompute = recompute;
        return llvm::cantFail(
            price(shape, plan, titan(true, compiled), cluster));
      };
      SoftwarePrice none = priceOf(Recompute::None),
                    some = priceOf(Recompute::Operations),
                    all = priceOf(Recompute::Full);
      EXPECT_LT(none.stepMs, some.stepMs);
      EXPECT_LT(some.stepMs, all.stepMs);
      EXPECT_GT(none.allocated, some.allocated);
      EXPECT_GT(some.allocated, all.allocated);
      // Every second block is half of the way.
      plan.recompute = Recompute::Full;
      plan.recomputedEvery = 2;
      SoftwarePrice half =
          llvm::cantFail(price(shape, plan, titan(true, compiled), cluster));
      EXPECT_NEAR(half.stepMs, (none.stepMs + all.stepMs) / 2,
                  1e-2 * all.stepMs);
      EXPECT_GT(half.allocated, all.allocated);
      EXPECT_LT(half.allocated, none.allocated);
    }
}

} // namespace
