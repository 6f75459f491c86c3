//===- ReshardRateTest.cpp - A boundary's moves against all transfers -----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Strategy/ReshardPlan.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace galvatron;

namespace {

/// Nodes of four; their networks may differ.
Cluster cluster(int64_t nodes, bool alike) {
  DeviceType type;
  type.name = "a";
  type.backend = "cuda";
  type.memory = 1 << 30;
  type.flops = {{"f32", 1e9}};
  type.memoryBandwidth = 1e9;
  std::vector<NodeGroup> groups = {{nodes, "a", 4, {1e9, 3e-6}, {}}};
  if (!alike)
    groups = {{1, "a", 4, {1e9, 3e-6}, {}},
              {nodes - 1, "a", 4, {1e9, 3e-6}, Link{0.1e9, 20e-6}}};
  return llvm::cantFail(
      Cluster::get("nodes", {type}, groups, Link{0.3e9, 7e-6}));
}

/// What the busiest rank or network link does, by every transfer of the plan.
ReshardRate byAllTransfers(const Cluster &cluster, const Strategy &from,
                           const Strategy &to, llvm::ArrayRef<int64_t> before,
                           llvm::ArrayRef<int64_t> after) {
  int64_t samples = std::lcm(from.sampleShards(), to.sampleShards());
  ReshardRate rate;
  std::map<int64_t, double> sums[4];
  for (const ReshardTransfer &transfer :
       reshardPlan(from, to, before, after, samples).transfers) {
    if (transfer.isLocal())
      continue;
    Link link = cluster.pairLink(transfer.srcRank, transfer.dstRank);
    double seconds = static_cast<double>(transfer.units) / link.bandwidth;
    rate.latency = std::max(rate.latency, link.latency);
    sums[0][transfer.srcRank] += seconds;
    sums[1][transfer.dstRank] += seconds;
    int64_t leaves = cluster.nodeOf(transfer.srcRank);
    int64_t enters = cluster.nodeOf(transfer.dstRank);
    if (leaves == enters)
      continue;
    sums[2][leaves] += seconds;
    sums[3][enters] += seconds;
  }
  double busiest = 0;
  for (const auto &side : sums)
    for (auto [place, seconds] : side)
      busiest = std::max(busiest, seconds);
  rate.secondsPerByte = busiest / static_cast<double>(samples);
  return rate;
}

std::vector<int64_t> counting(int64_t first, int64_t count) {
  std::vector<int64_t> devices(count);
  std::iota(devices.begin(), devices.end(), first);
  return devices;
}

/// All pairs of strategies on 16 devices, to these and to others.
void compareAll(const Cluster &cluster, std::vector<int64_t> before,
                std::vector<int64_t> after) {
  SpaceOptions space;
  space.checkpoint = CheckpointChoice::Never;
  space.keepDpSdp = true;
  std::vector<Strategy> all = enumerateStrategies(16, space);
  for (const Strategy &from : all)
    for (const Strategy &to : all) {
      ReshardRate found = reshardRate(cluster, from, to, before, after);
      ReshardRate every = byAllTransfers(cluster, from, to, before, after);
      // Equal to the last bit: windows that repeat have equal sums.
      EXPECT_EQ(found.secondsPerByte, every.secondsPerByte)
          << from.str() << " -> " << to.str();
      EXPECT_EQ(found.latency, every.latency)
          << from.str() << " -> " << to.str();
    }
}

} // namespace

TEST(ReshardRate, of_nodes_that_are_alike_is_that_of_all_transfers) {
  Cluster equal = cluster(9, true);
  compareAll(equal, counting(0, 16), counting(0, 16));
  compareAll(equal, counting(0, 16), counting(16, 16));
  // Behind the beginning of a node, where windows meet in one.
  compareAll(equal, counting(2, 16), counting(2, 16));
  compareAll(equal, counting(0, 16), counting(18, 16));
}

TEST(ReshardRate, of_other_devices_is_that_of_all_transfers) {
  compareAll(cluster(8, false), counting(0, 16), counting(16, 16));
  // With a gap, so that windows are not equally far apart.
  std::vector<int64_t> gap = counting(0, 8);
  for (int64_t device : counting(12, 8))
    gap.push_back(device);
  Cluster equal = cluster(8, true);
  compareAll(equal, gap, gap);
}
