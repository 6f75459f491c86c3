//===- LayerCostTest.cpp - Layer times by hand ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/LayerCost.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

Strategy get(const char *text) { return llvm::cantFail(Strategy::parse(text)); }

/// 1 GFLOP/s, 1 GB/s of memory, links of 1 GB/s without latency, slowdown 1.5.
Cluster flat(int64_t nodes, int64_t devices, double kernelOverhead = 0) {
  DeviceType type;
  type.name = "unit";
  type.backend = "cuda";
  type.memory = 1 << 30;
  type.flops = {{"f32", 1e9}};
  type.memoryBandwidth = 1e9;
  type.overlapSlowdown = 1.5;
  type.kernelOverhead = kernelOverhead;
  return llvm::cantFail(Cluster::get(
      "flat", {type}, {{nodes, "unit", devices, {1e9, 0}}}, Link{0.25e9, 0}));
}

LayerFootprint footprint() {
  LayerFootprint out;
  out.forwardFlops = 1e9;
  out.forwardMovedBytes = 0.5e9;
  out.backwardFlops = 2e9;
  out.backwardMovedBytes = 1e9;
  out.forwardKernels = 10;
  out.backwardKernels = 20;
  return out;
}

TEST(LayerCost, overlap) {
  EXPECT_DOUBLE_EQ(overlapSeconds(4, 2, 1.3), 4.6);
  EXPECT_DOUBLE_EQ(overlapSeconds(2, 4, 1.3), 4.6);
  EXPECT_DOUBLE_EQ(overlapSeconds(2, 4, 2), 6);
}

TEST(LayerCost, computation) {
  LayerTime time =
      layerTime(footprint(), get("single"), flat(1, 1, 0.01), {0}, "f32");
  EXPECT_DOUBLE_EQ(time.forward, 1.5 + 0.1);
  EXPECT_DOUBLE_EQ(time.backward, 3.0 + 0.2);
  EXPECT_DOUBLE_EQ(time.backward, time.backwardNosync);
}

TEST(LayerCost, recompute_is_one_more_forward) {
  LayerFootprint checkpointed = footprint();
  checkpointed.recomputeFlops = 1e9;
  checkpointed.recomputeMovedBytes = 0.5e9;
  LayerTime time =
      layerTime(checkpointed, get("single.ckpt"), flat(1, 1), {0}, "f32");
  EXPECT_DOUBLE_EQ(time.backward, 4.5);
}

TEST(LayerCost, data_parallel_syncs_once_and_overlaps) {
  LayerFootprint dp = footprint();
  dp.gradientSyncBytes = 1000000000;
  LayerTime time = layerTime(dp, get("dp4"), flat(1, 4), {0, 1, 2, 3}, "f32");
  // Ring over 4: 2 * 3/4 of a second, beside 3 seconds of computation.
  EXPECT_DOUBLE_EQ(time.backward, 3.0 + 0.5 * 1.5);
  EXPECT_DOUBLE_EQ(time.backwardNosync, 3.0);
}

TEST(LayerCost, sharded_data_parallel_moves_in_every_micro_batch) {
  LayerFootprint sdp = footprint();
  sdp.gatherBytes = 1000000000;
  sdp.scatterBytes = 1000000000;
  LayerTime time = layerTime(sdp, get("sdp4"), flat(1, 4), {0, 1, 2, 3}, "f32");
  EXPECT_DOUBLE_EQ(time.forward, 1.5 + 0.75);
  EXPECT_DOUBLE_EQ(time.backward, 3.0 + 0.5 * 1.5);
  EXPECT_DOUBLE_EQ(time.backwardNosync, time.backward);
}

TEST(LayerCost, tensor_parallel_does_not_overlap) {
  LayerFootprint tp = footprint();
  tp.tpForwardBytes = 2000000000;
  tp.tpForwardCalls = 2;
  tp.tpBackwardBytes = 2000000000;
  tp.tpBackwardCalls = 2;
  tp.tpRecomputeBytes = 2000000000;
  tp.tpRecomputeCalls = 2;
  LayerTime time =
      layerTime(tp, get("tp4.ckpt"), flat(1, 4), {0, 1, 2, 3}, "f32");
  EXPECT_DOUBLE_EQ(time.forward, 1.5 + 2 * 1.5);
  EXPECT_DOUBLE_EQ(time.backward, 3.0 + 4 * 1.5);
}

TEST(LayerCost, innermost_levels_sit_on_the_fast_links) {
  Cluster cluster = flat(2, 4);
  std::vector<int64_t> devices = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(linksOf(cluster, get("dp2.tp4"), devices).tp.bandwidth, 1e9);
  // Four rings of two cross between the nodes, over one network link.
  EXPECT_EQ(linksOf(cluster, get("dp2.tp4"), devices).dp.bandwidth, 0.25e9 / 4);
  EXPECT_EQ(linksOf(cluster, get("tp2.dp4"), devices).dp.bandwidth, 1e9);
  EXPECT_EQ(linksOf(cluster, get("dp8"), devices).dp.bandwidth, 0.25e9);
}

TEST(LayerCost, measured_times_replace_the_model) {
  LayerFootprint measured = footprint();
  measured.measured = true;
  measured.forwardSeconds = 7;
  measured.backwardSeconds = 9;
  LayerTime time =
      layerTime(measured, get("single"), flat(1, 1, 1), {0}, "f32");
  EXPECT_DOUBLE_EQ(time.forward, 7);
  EXPECT_DOUBLE_EQ(time.backward, 9);
}

TEST(LayerCost, reshards_take_what_the_busiest_rank_needs) {
  Cluster cluster = flat(1, 4);
  std::vector<int64_t> devices = {0, 1, 2, 3};
  // Every rank receives 3/4 of the micro-batch.
  EXPECT_DOUBLE_EQ(
      reshardRate(cluster, get("dp4"), get("tp4"), devices, devices)
          .seconds(1e9, 4),
      3.0);
  EXPECT_EQ(reshardRate(cluster, get("tp4"), get("dp4"), devices, devices)
                .seconds(1e9, 4),
            0);
  EXPECT_EQ(reshardRate(cluster, get("dp4"), get("sdp4"), devices, devices)
                .seconds(1e9, 4),
            0);
}

TEST(LayerCost, ties_move_what_the_other_side_lacks) {
  Cluster cluster = flat(1, 4);
  std::vector<int64_t> devices = {0, 1, 2, 3};
  // Equal layouts hold everything already.
  for (const char *text : {"dp4", "tp4", "sdp4", "dp2.tp2"})
    EXPECT_EQ(
        tieSeconds(cluster, get(text), get(text), devices, devices, 1000000000),
        0)
        << text;
  // dp4 owner, tp4 borrower: three quarters in, nothing back.
  EXPECT_DOUBLE_EQ(
      tieSeconds(cluster, get("dp4"), get("tp4"), devices, devices, 1000000000),
      0.75);
  // Across stages the whole tensor goes each way.
  EXPECT_DOUBLE_EQ(
      tieSeconds(cluster, get("single"), get("single"), {0}, {3}, 1000000000),
      2.0);
}

} // namespace
