//===- ContextTest.cpp - Positions cut among ranks ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Context.h"

#include "galvatron/Software/Bounds.h"
#include "galvatron/Software/Pricing.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

/// Llama 3.1 8B with long samples.
ModelShape longShape(int64_t tokens) {
  ModelShape shape;
  shape.layers = 32;
  shape.hidden = 4096;
  shape.heads = 32;
  shape.keyHeads = 8;
  shape.headWidth = 128;
  shape.inner = 14336;
  shape.vocabulary = 128256;
  shape.tokens = tokens;
  shape.gated = true;
  return shape;
}

Configuration cut(int64_t context, int64_t data, int64_t tensor = 1) {
  Configuration configuration;
  configuration.batch = 8;
  configuration.context = context;
  configuration.data = data;
  configuration.tensor = tensor;
  configuration.sharding = Sharding::Optimizer;
  configuration.blocks = {32};
  return configuration;
}

/// Milliseconds of a step.
double contextOf(const ModelShape &shape, const Configuration &degrees,
                 const Execution &execution, const Cluster &cluster) {
  return contextMs(contextSeconds(shape, degrees, execution, cluster,
                                  contextLink(degrees, cluster), "bf16"),
                   degrees);
}

TEST(Context, KeysAndValuesByHand) {
  Cluster cluster = llvm::cantFail(Cluster::builtin("8xh100"));
  Execution ring = llvm::cantFail(Execution::named("megatron-core"));
  Execution gathers = llvm::cantFail(Execution::named("torchtitan"));
  EXPECT_EQ(ring.contextWay, ContextWay::Ring);
  EXPECT_EQ(gathers.contextWay, ContextWay::Gather);
  const ModelShape shape = longShape(131072);
  const Configuration degrees = cut(4, 2);
  // Of 32,768 tokens: keys and values of 8 heads of 128, 2 bytes each.
  const int64_t own = 2 * 2 * 32768 * 8 * 128;
  // Of all four ranks with their gradients, or two neighbours' of each.
  EXPECT_EQ(contextBytes(shape, degrees, gathers), 2 * 4 * own);
  EXPECT_EQ(contextBytes(shape, degrees, ring), 2 * 2 * own);
  EXPECT_EQ(contextBytes(shape, cut(1, 8), ring), 0);
  // A rank of tensor parallelism has its key heads alone, at least one.
  EXPECT_EQ(contextBytes(shape, cut(4, 1, 2), gathers), 4 * own);
  EXPECT_EQ(contextBytes(shape, cut(2, 1, 4), gathers), 2 * 2 * 2 * own / 4);
  // Two gathers and a sum of each layer and pass stand in the way.
  Cluster met = llvm::cantFail(softwareCluster(cluster, degrees, gathers));
  GroupLink link = met.linkOfGroups({{0, 1, 2, 3}});
  double gather = link.seconds(Collective::AllGather, double(4 * own)),
         sum = link.seconds(Collective::ReduceScatter, double(4 * own));
  EXPECT_NEAR(contextOf(shape, degrees, gathers, met),
              4 * 32 * (2 * gather + sum) * 1e3, 1e-6);
  // A ring at that length hides behind attention, but for the way home.
  Cluster other = llvm::cantFail(softwareCluster(cluster, degrees, ring));
  EXPECT_NEAR(contextOf(shape, degrees, ring, other), 4 * 32 * gather / 3 * 1e3,
              1e-6);
  // Over a network a shift of short samples takes longer than the attention
  // beside it: three forward, three of keys and gradients, one home.
  ModelShape few = longShape(4096);
  few.keyHeads = 32;
  Cluster far = llvm::cantFail(softwareCluster(
      llvm::cantFail(Cluster::builtin("8x1xh100")), degrees, ring));
  const double shift =
      far.linkOfGroups({{0, 1, 2, 3}})
          .seconds(Collective::AllGather, double(4 * own / 8)) /
      3;
  const double attention =
      4.0 * 1024 * 1024 * 4096 * 0.5 /
      (far.deviceType(0).flops.at("bf16") * ring.attentionOn("h100"));
  EXPECT_GT(2 * shift, 2.5 * attention);
  EXPECT_NEAR(
      contextOf(few, degrees, ring, far),
      4 * 32 * 1e3 *
          (3 * (shift - attention) + 3 * (2 * shift - 2.5 * attention) + shift),
      1e-6);
}

/// Ulysses: queries, keys, values and what attention gives, in front of it and
/// behind, in both directions.
TEST(Context, PositionsForHeadsByHand) {
  Execution ulysses = llvm::cantFail(Execution::named("deepspeed-zero"));
  EXPECT_EQ(ulysses.contextWay, ContextWay::Exchange);
  const ModelShape shape = longShape(32768);
  // Of 8,192 tokens: 32 heads twice, 8 key heads twice, of 128, 2 bytes each.
  const int64_t own = 2 * 8192 * (2 * 32 + 2 * 8) * 128;
  EXPECT_EQ(contextBytes(shape, cut(4, 2), ulysses), own);
  Cluster met = llvm::cantFail(softwareCluster(
      llvm::cantFail(Cluster::builtin("8xh100")), cut(4, 2), ulysses));
  const double four = met.linkOfGroups({{0, 1, 2, 3}, {4, 5, 6, 7}})
                          .seconds(Collective::AllGather, double(own));
  EXPECT_NEAR(contextOf(shape, cut(4, 2), ulysses, met),
              4 * 32 * 2 * four * 1e3, 1e-6);
  // Over two nodes of four ranks each sends a half over one network, eight of
  // 16 parts of what an eighth of the tokens has.
  Cluster far = llvm::cantFail(softwareCluster(
      llvm::cantFail(Cluster::builtin("2x4xh100")), cut(8, 1), ulysses));
  std::vector<int64_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  const double eight = far.linkOfGroups({all}).seconds(
      Collective::AllGather, double(own) / 2 * 4 * 4 / 7);
  EXPECT_NEAR(contextOf(shape, cut(8, 1), ulysses, far),
              8 * 32 * 2 * eight * 1e3, 1e-6);
  // Sixteen ranks of eight key heads have a copy each.
  Configuration many = cut(16, 1);
  EXPECT_EQ(contextBytes(shape, many, ulysses),
            2 * 2048 * (2 * 32 + 2 * 16) * 128);
  EXPECT_EQ(contextBytes(shape, cut(1, 8), ulysses), 0);
}

/// XTuner's published runs of a 104B (Command R+) with ZeRO-3 and Ulysses of
/// 16: 102.1 and 101.3 tokens a second and card of 131,072 tokens a sample on
/// 128 and 256 A100. Of the batch, which is not printed, a sample on every
/// replica is taken, all blocks recomputed. Nothing is fitted to them.
TEST(Context, PublishedRunsOfUlysses) {
  ModelShape shape;
  shape.layers = 64;
  shape.hidden = 12288;
  shape.heads = 96;
  shape.keyHeads = 8;
  shape.headWidth = 128;
  shape.inner = 33792;
  shape.vocabulary = 256000;
  shape.tokens = 131072;
  shape.gated = shape.tied = true;
  Execution ulysses = llvm::cantFail(Execution::named("deepspeed-zero"));
  for (auto [nodes, rate] : {std::pair(16, 102.1), {32, 101.3}}) {
    Configuration degrees = cut(16, nodes / 2);
    degrees.batch = degrees.data;
    degrees.sharding = Sharding::Parameters;
    degrees.recompute = Recompute::Full;
    degrees.blocks = {64};
    Cluster cluster = llvm::cantFail(
        Cluster::builtin(std::to_string(nodes) + "x8xa100-80gb"));
    SoftwarePrice found =
        llvm::cantFail(price(shape, degrees, ulysses, cluster));
    const double published =
        double(degrees.batch * shape.tokens) / double(8 * nodes) / rate * 1e3;
    EXPECT_NEAR(found.stepMs / published, 1, 0.05) << nodes;
    EXPECT_TRUE(found.fits);
  }
}

/// A rank has a part of every sample, and its attention as much as others.
TEST(Context, CutsTimeAndMemory) {
  Cluster cluster = llvm::cantFail(Cluster::builtin("8xh100"));
  Execution megatron = llvm::cantFail(Execution::named("megatron-core"));
  const ModelShape shape = longShape(32768);
  SoftwarePrice whole =
      llvm::cantFail(price(shape, cut(1, 8), megatron, cluster));
  SoftwarePrice parts =
      llvm::cantFail(price(shape, cut(4, 2), megatron, cluster));
  // The same samples and work, with a quarter of what is kept.
  EXPECT_NEAR(parts.stepMs / whole.stepMs, 1, 0.1);
  EXPECT_LT(parts.allocated, whole.allocated / 2);
  EXPECT_EQ(parts.plan.batch, 8);
  LeastSteps bounds(megatron, cluster);
  for (const Configuration &degrees : {cut(1, 8), cut(2, 4), cut(4, 2),
                                       cut(8, 1), cut(2, 2, 2), cut(4, 1, 2)}) {
    SoftwarePrice found =
        llvm::cantFail(price(shape, degrees, megatron, cluster));
    EXPECT_LE(bounds.leastMs(shape, degrees), found.stepMs) << degrees.str();
    EXPECT_LE(leastAllocated(shape, degrees, megatron), found.allocated)
        << degrees.str();
  }
  // Shards and replicas are the ranks of all parts.
  Configuration sharded = cut(4, 2);
  sharded.sharding = Sharding::Parameters;
  sharded.shardGroup = 1;
  EXPECT_EQ(sharded.shards(), 4);
  EXPECT_EQ(sharded.strategyOfEnds().str(), "dp2.sdp4");
  EXPECT_EQ(sharded.devices(), 8);
  EXPECT_EQ(sharded.microBatches(), 4);
}

} // namespace
