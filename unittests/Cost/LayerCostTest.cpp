//===- LayerCostTest.cpp - Layer times by hand ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/LayerCost.h"
#include "../TestStrategy.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

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
  dp.addCollective({CollectiveGroup::Gradients, Collective::AllReduce,
                    CollectiveTime::Step, 1000000000, 1});
  LayerTime time = layerTime(dp, get("dp4"), flat(1, 4), {0, 1, 2, 3}, "f32");
  // Ring over 4: 2 * 3/4 of a second, beside 3 seconds of computation.
  EXPECT_DOUBLE_EQ(time.backward, 3.0 + 0.5 * 1.5);
  EXPECT_DOUBLE_EQ(time.backwardNosync, 3.0);
}

TEST(LayerCost, sharded_data_parallel_moves_in_every_micro_batch) {
  LayerFootprint sdp = footprint();
  for (CollectiveTime when :
       {CollectiveTime::Forward, CollectiveTime::Backward})
    sdp.addCollective(
        {CollectiveGroup::Parameters, Collective::AllGather, when, 1000000000});
  sdp.addCollective({CollectiveGroup::Parameters, Collective::ReduceScatter,
                     CollectiveTime::Backward, 1000000000});
  LayerTime time = layerTime(sdp, get("sdp4"), flat(1, 4), {0, 1, 2, 3}, "f32");
  EXPECT_DOUBLE_EQ(time.forward, 1.5 + 0.75);
  EXPECT_DOUBLE_EQ(time.backward, 3.0 + 0.5 * 1.5);
  EXPECT_DOUBLE_EQ(time.backwardNosync, time.backward);
}

TEST(LayerCost, tensor_parallel_does_not_overlap) {
  LayerFootprint tp = footprint();
  for (CollectiveTime when : {CollectiveTime::Forward, CollectiveTime::Backward,
                              CollectiveTime::Recompute})
    tp.addCollective(
        {CollectiveGroup::Tensor, Collective::AllReduce, when, 2000000000, 2});
  LayerTime time =
      layerTime(tp, get("tp4.ckpt"), flat(1, 4), {0, 1, 2, 3}, "f32");
  EXPECT_DOUBLE_EQ(time.forward, 1.5 + 2 * 1.5);
  EXPECT_DOUBLE_EQ(time.backward, 3.0 + 4 * 1.5);
}

/// Gathers and scatters are priced as what they are, whatever is between them.
TEST(LayerCost, collectives_of_tensor_parallelism_by_kind) {
  Cluster cluster = flat(1, 4);
  llvm::SmallVector<int64_t, 4> devices = {0, 1, 2, 3};
  const Strategy strategy = get("tsp4");
  const GroupLink link = linksOf(cluster, strategy, devices).tensorParallel;
  LayerFootprint footprint;
  auto add = [&](Collective kind, CollectiveTime when, int64_t bytes,
                 int64_t calls) {
    footprint.addCollective(
        {CollectiveGroup::Tensor, kind, when, bytes, calls});
    return double(calls) * link.seconds(kind, double(bytes) / double(calls));
  };
  double forward =
      add(Collective::AllGather, CollectiveTime::Forward, 3000000000, 3) +
      add(Collective::ReduceScatter, CollectiveTime::Forward, 2000000000, 2);
  double recompute =
      add(Collective::AllGather, CollectiveTime::Recompute, 500000000, 1);
  double backward =
      add(Collective::AllReduce, CollectiveTime::Backward, 1000000, 2) +
      add(Collective::ReduceScatter, CollectiveTime::Backward, 700000000, 1);
  double weight =
      add(Collective::AllGather, CollectiveTime::Weight, 900000000, 1);
  LayerTimeParts parts =
      layerTimeParts(footprint, strategy, linksOf(cluster, strategy, devices),
                     cluster, devices, "f32");
  EXPECT_DOUBLE_EQ(parts.tpForward, forward);
  EXPECT_DOUBLE_EQ(parts.tpRecompute, recompute);
  EXPECT_DOUBLE_EQ(parts.tpBackward, backward + weight);
  EXPECT_DOUBLE_EQ(parts.tpWeight, weight);
}

/// Three steps of attention of half a second, beside the first two of which two
/// shifts of a second in all run; then two shifts that nothing runs beside.
LayerFootprint ring(CollectiveTime when) {
  LayerFootprint out;
  const ProductWork step = {0.5e9, 0, true};
  for (auto [flops, products] :
       {std::pair{&out.forwardFlops, &out.forwardProducts},
        {&out.backwardFlops, &out.backwardProducts},
        {&out.recomputeFlops, &out.recomputeProducts}}) {
    *flops = 1.5e9;
    products->push_back({1.5e9, 0, true});
  }
  out.addCollective(
      {CollectiveGroup::Context, Collective::Shift, when, 6LL * 500000000, 6});
  out.overlapped.push_back(
      {{CollectiveGroup::Context, Collective::Shift, when, 1000000000, 2},
       step,
       0,
       2});
  return out;
}

/// Keys and values are passed on beside the step that has them still, each
/// slowed down by the other: 1 + 0.5 * 0.5 a step.
TEST(LayerCost, shifts_of_a_ring_run_beside_its_steps) {
  const std::vector<int64_t> devices = {0, 1, 2, 3};
  auto timeOf = [&](CollectiveTime when, const Cluster &cluster) {
    return layerTime(ring(when), get("ring4"), cluster, devices, "f32");
  };
  const double steps = 2 * overlapSeconds(0.5, 1, 1.5) + 0.5 + 1;
  EXPECT_DOUBLE_EQ(timeOf(CollectiveTime::Forward, flat(1, 4)).forward, steps);
  const double last = 1.5;
  EXPECT_DOUBLE_EQ(timeOf(CollectiveTime::Backward, flat(1, 4)).backward,
                   steps + last);
  EXPECT_DOUBLE_EQ(timeOf(CollectiveTime::Recompute, flat(1, 4)).backward,
                   steps + last);
  // Ranks without streams do one after the other.
  Cluster plain = flat(1, 4);
  DeviceType cpu = plain.deviceType(0);
  cpu.backend = "cpu";
  Cluster host = llvm::cantFail(
      Cluster::get("host", {cpu}, plain.nodeGroups().vec(), Link{0.25e9, 0}));
  EXPECT_DOUBLE_EQ(timeOf(CollectiveTime::Forward, host).forward, 1.5 + 3);
}

/// Computation beside which parameters are exchanged hides no shifts: of three
/// seconds these leave one.
TEST(LayerCost, shifts_of_a_ring_leave_room_for_parameters) {
  const std::vector<int64_t> devices = {0, 1, 2, 3};
  LayerFootprint sharded = ring(CollectiveTime::Backward);
  auto time = [&](LayerFootprint footprint) {
    return layerTime(footprint, get("sring4"), flat(1, 4), devices, "f32")
        .backward;
  };
  const double shifts = 3, hidden = 2 * (1 + 0.5 - overlapSeconds(1, 0.5, 1.5));
  EXPECT_DOUBLE_EQ(time(sharded), 3 + shifts - hidden);
  sharded.addCollective({CollectiveGroup::Parameters, Collective::ReduceScatter,
                         CollectiveTime::Backward, int64_t(2.5e9 * 4 / 3)});
  EXPECT_NEAR(time(sharded),
              overlapSeconds(3, 2.5, 1.5) + shifts - 0.5 * (3 - 2.5), 1e-8);
}

TEST(LayerCost, collectives_are_listed_by_size) {
  LayerFootprint footprint;
  auto add = [&](Collective kind, int64_t bytes, int64_t calls) {
    footprint.addCollective(
        {CollectiveGroup::Tensor, kind, CollectiveTime::Forward, bytes, calls});
  };
  add(Collective::AllReduce, 640, 1);
  add(Collective::AllGather, 96, 1);
  add(Collective::AllReduce, 1280, 2);
  add(Collective::AllReduce, 320, 1);
  add(Collective::AllReduce, 0, 2);
  using Work = LayerCollective;
  EXPECT_EQ(footprint.collectives,
            (llvm::SmallVector<Work, 6>{
                Work{CollectiveGroup::Tensor, Collective::AllReduce,
                     CollectiveTime::Forward, 1920, 3},
                Work{CollectiveGroup::Tensor, Collective::AllGather,
                     CollectiveTime::Forward, 96, 1},
                Work{CollectiveGroup::Tensor, Collective::AllReduce,
                     CollectiveTime::Forward, 320, 1}}));
  EXPECT_EQ(footprint.bytesOf(CollectiveGroup::Tensor, Collective::AllGather,
                              CollectiveTime::Forward),
            96);
  EXPECT_EQ(footprint.bytesOf(CollectiveGroup::Gradients, Collective::AllReduce,
                              CollectiveTime::Forward),
            0);
}

TEST(LayerCost, innermost_levels_sit_on_the_fast_links) {
  Cluster cluster = flat(2, 4);
  std::vector<int64_t> devices = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(linksOf(cluster, get("dp2.tp4"), devices).tensorParallel.bandwidth,
            1e9);
  // Four rings of two cross between the nodes, over one network link.
  EXPECT_EQ(linksOf(cluster, get("dp2.tp4"), devices).gradients.bandwidth,
            0.25e9 / 4);
  EXPECT_EQ(linksOf(cluster, get("tp2.dp4"), devices).gradients.bandwidth, 1e9);
  EXPECT_EQ(linksOf(cluster, get("dp8"), devices).gradients.bandwidth, 0.25e9);
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

TEST(LayerCost, small_products_reach_less) {
  DeviceType type = flat(1, 1).deviceType(0);
  type.efficiency = EfficiencyCurve({{64, 0.25}, {256, 0.5}});
  ComputeWork work;
  work.flops = 3e9;
  work.movedBytes = 0.5e9;
  // Nothing known of the sizes: 3 s and half a second.
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "f32"), 3.5);
  // 1 GFLOP at a quarter, 1 at a half, 1 of unknown size: 4 + 2 + 1.
  std::vector<ProductWork> products = {{1e9, 64}, {1e9, 1024}};
  work.products = products;
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "f32"), 7.5);
  // Attention takes the products' curve, unless it has its own: 8 + 2 + 1.
  products[0].attention = true;
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "f32"), 7.5);
  type.attentionEfficiency = EfficiencyCurve({{1, 0.125}});
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "f32"), 11.5);
  // Ten launches of a second each are not waited for, of two seconds they are.
  work.kernels = 10;
  type.hostOverhead = 1;
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "f32"), 11.5);
  type.hostOverhead = 2;
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "f32"), 20);
  // Launched on while the device communicates.
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "f32", 5), 15);
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "f32", 10), 11.5);
}

/// A faster multiplication moves no byte faster.
TEST(LayerCost, products_in_tf32_move_the_bytes_of_f32) {
  DeviceType type = flat(1, 1).deviceType(0);
  type.flops = {{"f32", 1e9}, {"tf32", 8e9}};
  ComputeWork work;
  work.flops = 8e9;
  std::vector<ProductWork> products = {{8e9, 120}};
  work.products = products;
  // Without a curve of sizes nothing is known of transfers.
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "tf32"), 1);
  type.efficiency = EfficiencyCurve({{60, 0.25}, {240, 0.5}});
  // 1.5 * 8e9 / 120 = 1e8 elements of 4 bytes, 2.38 times, at 1 GB/s.
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "tf32"), 1 + 2.38 * 0.4);
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "f32"), 8 / 0.375);
  // Half of that bandwidth, twice their time; a larger product, fewer of them.
  type.memoryBandwidth = 0.5e9;
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "tf32"), 1 + 2.38 * 0.8);
  products[0].size = 480;
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "tf32"), 1 + 2.38 * 0.2);
  products[0].size = 0;
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "tf32"), 1);
  // Attention's kernels may have a curve of their own.
  products[0] = {8e9, 120, true};
  type.attentionEfficiency = EfficiencyCurve({{1, 0.125}});
  EXPECT_DOUBLE_EQ(computeSeconds(work, type, "tf32"), 8);
}

TEST(LayerCost, the_host_launches_while_tensor_parallelism_communicates) {
  DeviceType type = flat(1, 4).deviceType(0);
  type.hostOverhead = 0.4;
  Cluster cluster = llvm::cantFail(
      Cluster::get("host", {type}, {{1, "unit", 4, {1e9, 0}}}, std::nullopt));
  LayerFootprint tp = footprint();
  std::vector<int64_t> devices = {0, 1, 2, 3};
  // Launches take 4 and 8 seconds where 1.5 and 3 are computed.
  LayerTime alone = layerTime(tp, get("dp4"), cluster, devices, "f32");
  EXPECT_DOUBLE_EQ(alone.forward, 4);
  EXPECT_DOUBLE_EQ(alone.backward, 8);
  // All-reduces of 3 seconds in each pass hide as much of that.
  for (CollectiveTime when :
       {CollectiveTime::Forward, CollectiveTime::Backward})
    tp.addCollective(
        {CollectiveGroup::Tensor, Collective::AllReduce, when, 2000000000, 2});
  LayerTime time = layerTime(tp, get("tp4"), cluster, devices, "f32");
  EXPECT_DOUBLE_EQ(time.forward, 1.5 + 3);
  EXPECT_DOUBLE_EQ(time.backward, 8);
}

/// Two nodes of two: "unit" as in flat(), and one with four times the FLOP/s,
/// half the memory bandwidth and a slowdown of 2.
Cluster mixed(int64_t cores = 0) {
  DeviceType unit = flat(1, 1).deviceType(0), other = unit;
  other.name = "other";
  other.flops = {{"f32", 4e9}};
  other.memoryBandwidth = 0.5e9;
  other.overlapSlowdown = 2;
  NodeGroup first{1, "unit", 2, {1e9, 0}}, second{1, "other", 2, {1e9, 0}};
  first.cores = cores;
  return llvm::cantFail(
      Cluster::get("mixed", {unit, other}, {first, second}, Link{0.25e9, 0}));
}

TEST(LayerCost, the_slowest_device_decides) {
  Cluster cluster = mixed();
  auto forward = [&](const LayerFootprint &footprint, const char *strategy,
                     std::vector<int64_t> devices) {
    return layerTime(footprint, get(strategy), cluster, devices, "f32").forward;
  };
  // 1 GFLOP and 0.5 GB: 1.5 s on a unit, 0.25 + 1 on the other.
  EXPECT_DOUBLE_EQ(forward(footprint(), "single", {2}), 1.25);
  EXPECT_DOUBLE_EQ(forward(footprint(), "dp2", {1, 2}), 1.5);
  // Limited by memory it is the other way round: 0.5 and 1.
  LayerFootprint moved = footprint();
  moved.forwardFlops = 0;
  EXPECT_DOUBLE_EQ(forward(moved, "dp2", {1, 2}), 1);
  // 3 s of backward beside 2 * 1/2 * 1 GB over the 0.25 GB/s network: 4 s; with
  // the larger slowdown nothing is gained.
  LayerFootprint synced = footprint();
  synced.addCollective({CollectiveGroup::Gradients, Collective::AllReduce,
                        CollectiveTime::Step, 1000000000, 1});
  EXPECT_DOUBLE_EQ(
      layerTime(synced, get("dp2"), cluster, {1, 2}, "f32").backward, 7);
  EXPECT_DOUBLE_EQ(
      layerTime(synced, get("dp2"), cluster, {0, 1}, "f32").backward, 3 + 0.5);
}

TEST(LayerCost, devices_that_share_cores_compute_slower) {
  auto forward = [&](int64_t cores) {
    return layerTime(footprint(), get("single"), mixed(cores), {0}, "f32")
        .forward;
  };
  EXPECT_DOUBLE_EQ(forward(1), 3);
  EXPECT_DOUBLE_EQ(forward(2), 1.5);
}

TEST(LayerCost, updates_and_norms_touch_the_states_once) {
  LayerFootprint update;
  update.updateBytes = 28 * 1000000;
  update.normBytes = 4 * 1000000;
  auto parts = [&](const Cluster &cluster, std::vector<int64_t> devices) {
    Strategy strategy = get(devices.size() == 1 ? "single" : "dp2");
    return layerTimeParts(update, strategy, linksOf(cluster, strategy, devices),
                          cluster, devices, "f32");
  };
  // The memory's bandwidth of 1 GB/s; half of it on the slower device, and
  // there again half where two devices share a core.
  EXPECT_DOUBLE_EQ(parts(flat(1, 1), {0}).update, 0.028);
  EXPECT_DOUBLE_EQ(parts(flat(1, 1), {0}).norm, 0.004);
  EXPECT_DOUBLE_EQ(parts(mixed(), {1, 2}).update, 0.056);
  EXPECT_DOUBLE_EQ(parts(mixed(1), {0}).update, 0.056);
  // A bandwidth of its own, and none at all.
  DeviceType type = flat(1, 1).deviceType(0);
  type.optimizerBandwidth = 4e9;
  Cluster own = llvm::cantFail(
      Cluster::get("own", {type}, {{1, "unit", 1}}, std::nullopt));
  EXPECT_DOUBLE_EQ(parts(own, {0}).update, 0.007);
  EXPECT_EQ(parts(own.withoutOptimizerTime(), {0}).update, 0);
  EXPECT_EQ(parts(own.withoutOptimizerTime(), {0}).norm, 0);
  // No part of a micro-batch.
  EXPECT_EQ(layerTime(parts(own, {0})).total(), 0);
  // Adam in f32: parameter, two moments read and written, gradient read; in
  // bf16 the parameter is written from its f32 master.
  EXPECT_EQ(updateTraffic(4, 4, 2), 28);
  EXPECT_EQ(updateTraffic(2, 4, 3), 30);
  EXPECT_EQ(updateTraffic(8, 8, 1), 40);
}

TEST(LayerCost, stages_that_wait_leave_their_cores_to_the_others) {
  auto nodes = [](std::vector<NodeGroup> groups) {
    return llvm::cantFail(Cluster::get("nodes", {flat(1, 1).deviceType(0)},
                                       std::move(groups), Link{1e9, 0}));
  };
  auto group = [](int64_t count, int64_t devices, int64_t cores) {
    NodeGroup made{count, "unit", devices, {1e9, 0}};
    made.cores = cores;
    return made;
  };
  auto means = [](const std::vector<CoreContention> &contention) {
    std::vector<double> flat;
    for (const CoreContention &stage : contention)
      flat.insert(flat.end(), stage.begin(), stage.end());
    return flat;
  };
  using Values = std::vector<double>;
  Cluster two = nodes({group(1, 4, 2)});
  // 1, 2, 3, 4, 3, 2, 1 of four stages work; seven slots take nine.
  EXPECT_EQ(means(pipelineContention(two, {{0}, {1}, {2}, {3}}, 4)),
            Values(4, 9.0 / 7));
  // All the time all of them, or never more than cores.
  EXPECT_EQ(means(pipelineContention(two, {{0, 1, 2, 3}}, 5)), Values(4, 2));
  EXPECT_EQ(means(pipelineContention(two, {{0, 1}, {2, 3}}, 1)), Values(4, 1));
  EXPECT_EQ(means(pipelineContention(two, {{0}, {1}}, 8)), Values(2, 1));
  // Every node by itself: on the first 2, 4, 4, 2 devices, on the second three
  // in all slots in which there are any.
  Cluster uneven = nodes({group(1, 4, 2), group(1, 3, 1)});
  EXPECT_EQ(means(pipelineContention(uneven, {{0, 1}, {2, 3}, {4, 5, 6}}, 3)),
            Values({1.5, 1.5, 1.5, 1.5, 3, 3, 3}));
  // Nobody shares: nothing to say.
  EXPECT_EQ(pipelineContention(nodes({group(1, 2, 2)}), {{0}, {1}}, 3),
            std::vector<CoreContention>(2));
  // It takes the place of the full contention, in computation alone.
  LayerFootprint both = footprint();
  both.updateBytes = 1000000000;
  std::vector<double> contention = {1.25};
  LayerTimeParts parts =
      layerTimeParts(both, get("single"), linksOf(two, get("single"), {0}), two,
                     {0}, "f32", contention);
  EXPECT_DOUBLE_EQ(parts.forward, 1.25 * 1.5);
  EXPECT_DOUBLE_EQ(parts.update, 2);
}

TEST(LayerCost, measured_times_scale_with_the_device) {
  LayerFootprint measured;
  measured.measured = true;
  measured.forwardSeconds = 8;
  measured.measuredFlops = 2e9;
  auto forward = [&](int64_t device) {
    return layerTime(measured, get("single"), mixed(), {device}, "f32").forward;
  };
  // Measured at 2 GFLOP/s: twice as long at 1, half as long at 4.
  EXPECT_DOUBLE_EQ(forward(0), 16);
  EXPECT_DOUBLE_EQ(forward(3), 4);
}

TEST(LayerCost, measured_collectives_enter) {
  Cluster plain = flat(1, 4);
  CollectiveTable table;
  table.kind = Collective::AllReduce;
  table.ranks = 4;
  table.times = {{1000000000, 0.25}};
  Cluster cluster =
      llvm::cantFail(Cluster::get(ClusterDescription{"tables",
                                                     plain.deviceTypes().vec(),
                                                     plain.nodeGroups().vec(),
                                                     {},
                                                     {},
                                                     {table}}));
  LayerFootprint dp = footprint();
  dp.addCollective({CollectiveGroup::Gradients, Collective::AllReduce,
                    CollectiveTime::Step, 2000000000, 1});
  // Half a second beside three, both slowed down by half of it.
  EXPECT_DOUBLE_EQ(
      layerTime(dp, get("dp4"), cluster, {0, 1, 2, 3}, "f32").backward, 3.25);
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

TEST(LayerCost, what_enters_a_node_shares_its_uplink) {
  Cluster cluster = flat(3, 2);
  auto seconds = [&](const char *strategy, std::vector<int64_t> from,
                     std::vector<int64_t> to, int64_t samples) {
    return reshardRate(cluster, get(strategy), get(strategy), from, to)
        .seconds(1e9, samples);
  };
  double one = seconds("single", {0}, {4}, 1);
  EXPECT_DOUBLE_EQ(one, 4); // at 0.25 GB/s
  // From two nodes into one, and from one node into two.
  EXPECT_DOUBLE_EQ(seconds("dp2", {0, 2}, {4, 5}, 2), 2 * one);
  EXPECT_DOUBLE_EQ(seconds("dp2", {4, 5}, {0, 2}, 2), 2 * one);
  EXPECT_DOUBLE_EQ(seconds("dp2", {0, 2}, {3, 4}, 2), one);
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
