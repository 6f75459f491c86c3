//===- TieCostTest.cpp - Ties counted by node against pair by pair --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Strategy/DecisionTree.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace galvatron;

namespace {

DeviceType deviceType(const char *name) {
  DeviceType type;
  type.name = name;
  type.backend = "cuda";
  type.memory = 1 << 30;
  type.flops = {{"f32", 1e9}};
  type.memoryBandwidth = 1e9;
  return type;
}

Cluster equalNodes(int64_t nodes, int64_t devices) {
  return llvm::cantFail(Cluster::get("equal", {deviceType("a")},
                                     {{nodes, "a", devices, {1e9, 3e-6}}},
                                     Link{0.3e9, 7e-6}));
}

/// A node of four, one of two with a slower network, three of six.
Cluster mixedNodes() {
  return llvm::cantFail(
      Cluster::get("mixed", {deviceType("a"), deviceType("b")},
                   {{1, "a", 4, {1e9, 3e-6}, {}},
                    {1, "b", 2, {2e9, 1e-6}, Link{0.1e9, 20e-6}},
                    {3, "a", 6, {1.5e9, 2e-6}, Link{0.4e9, 5e-6}}},
                   Link{0.3e9, 7e-6}));
}

/// Every pair of devices has a bandwidth of its own.
Cluster ownLinks(int64_t nodes, int64_t devices) {
  ClusterDescription description;
  description.name = "matrix";
  description.deviceTypes = {deviceType("a")};
  description.nodes = {{nodes, "a", devices, {1e9, 3e-6}}};
  description.network = Link{0.3e9, 7e-6};
  int64_t count = nodes * devices;
  for (int64_t a = 0; a < count; ++a) {
    description.matrix.emplace_back();
    for (int64_t b = 0; b < count; ++b)
      description.matrix.back().push_back(
          1e9 / static_cast<double>(1 + (a + b) % 5 + std::abs(a - b)));
  }
  return llvm::cantFail(Cluster::get(description));
}

/// Neighbours send faster than others.
Cluster strideTable() {
  ClusterDescription description;
  description.name = "stride";
  description.deviceTypes = {deviceType("a")};
  description.nodes = {{2, "a", 6, {1e9, 3e-6}}};
  description.network = Link{0.3e9, 7e-6};
  CollectiveTable table;
  table.kind = Collective::Send;
  table.ranks = 2;
  table.stride = 1;
  table.times = {{1000, 1e-6}, {1000000, 50e-6}};
  description.collectives = {table};
  return llvm::cantFail(Cluster::get(description));
}

/// The shard of a rank, in parts of `whole`: cut by TP first, by SDP inside.
std::pair<int64_t, int64_t> shardOf(const Strategy &strategy, int64_t rank,
                                    int64_t whole) {
  int64_t sdp = strategy.degree(Paradigm::SDP);
  int64_t length = whole / (strategy.degree(Paradigm::TP) * sdp);
  int64_t begin = (strategy.coordinate(rank, Paradigm::TP) * sdp +
                   strategy.coordinate(rank, Paradigm::SDP)) *
                  length;
  return {begin, begin + length};
}

/// What a direction means, pair by pair: every receiver fetches what it lacks
/// of its shard from all that hold it, evenly.
double pairByPair(const Cluster &cluster, const Strategy &from,
                  const Strategy &to, llvm::ArrayRef<int64_t> fromDevices,
                  llvm::ArrayRef<int64_t> toDevices, double bytes) {
  int64_t whole =
      std::lcm(from.degree(Paradigm::TP) * from.degree(Paradigm::SDP),
               to.degree(Paradigm::TP) * to.degree(Paradigm::SDP));
  double latency = 0;
  std::map<int64_t, double> sending, receiving;
  for (size_t r = 0; r < toDevices.size(); ++r) {
    auto wanted = shardOf(to, static_cast<int64_t>(r), whole);
    for (int64_t part = wanted.first; part < wanted.second; ++part) {
      std::vector<int64_t> holders;
      bool has = false;
      for (size_t s = 0; s < fromDevices.size(); ++s) {
        auto held = shardOf(from, static_cast<int64_t>(s), whole);
        if (part < held.first || part >= held.second)
          continue;
        holders.push_back(fromDevices[s]);
        has |= fromDevices[s] == toDevices[r];
      }
      if (has)
        continue;
      for (int64_t holder : holders) {
        Link link = cluster.pairLink(holder, toDevices[r]);
        latency = std::max(latency, link.latency);
        double seconds = bytes / static_cast<double>(whole) /
                         static_cast<double>(holders.size()) / link.bandwidth;
        sending[holder] += seconds;
        receiving[toDevices[r]] += seconds;
      }
    }
  }
  double busiest = 0;
  for (const auto &side : {sending, receiving})
    for (auto [device, seconds] : side)
      busiest = std::max(busiest, seconds);
  return latency + busiest;
}

std::vector<Strategy> strategiesOf(size_t devices) {
  SpaceOptions space;
  space.keepDpSdp = true;
  std::vector<Strategy> strategies;
  for (const PipelineStrategy &listed :
       listStrategies(static_cast<int64_t>(devices), space))
    if (listed.pipelineDegree == 1 && !listed.strategy.checkpoint())
      strategies.push_back(listed.strategy);
  return strategies;
}

std::vector<int64_t> range(int64_t begin, int64_t count) {
  std::vector<int64_t> devices(count);
  std::iota(devices.begin(), devices.end(), begin);
  return devices;
}

/// All pairs of strategies of two groups of devices.
void compare(const Cluster &cluster, const std::vector<int64_t> &owners,
             const std::vector<int64_t> &borrowers) {
  std::vector<Strategy> ofOwner = strategiesOf(owners.size());
  std::vector<Strategy> ofBorrower = strategiesOf(borrowers.size());
  ASSERT_FALSE(ofOwner.empty() || ofBorrower.empty());
  constexpr int64_t bytes = 720720;
  std::vector<TieTime> times =
      tieTimes(cluster, ofOwner, ofBorrower, owners, borrowers, bytes);
  ASSERT_EQ(times.size(), ofOwner.size() * ofBorrower.size());
  size_t at = 0;
  for (const Strategy &owner : ofOwner)
    for (const Strategy &borrower : ofBorrower) {
      SCOPED_TRACE(cluster.name().str() + " " + owner.str() + " and " +
                   borrower.str());
      double reduce =
          pairByPair(cluster, borrower, owner, borrowers, owners, bytes);
      double broadcast =
          pairByPair(cluster, owner, borrower, owners, borrowers, bytes);
      EXPECT_NEAR(times[at].reduce, reduce, 1e-12 + reduce * 1e-10);
      EXPECT_NEAR(times[at].broadcast, broadcast, 1e-12 + broadcast * 1e-10);
      TieTime one = tieTime(cluster, owner, borrower, owners, borrowers, bytes);
      EXPECT_EQ(one.reduce, times[at].reduce);
      EXPECT_EQ(one.broadcast, times[at].broadcast);
      ++at;
    }
}

TEST(TieCost, within_a_stage) {
  compare(equalNodes(1, 6), range(0, 6), range(0, 6));
  compare(equalNodes(2, 4), range(0, 8), range(0, 8));
  compare(equalNodes(4, 3), range(0, 12), range(0, 12));
}

TEST(TieCost, between_stages) {
  compare(equalNodes(2, 8), range(0, 8), range(8, 8));
  compare(equalNodes(3, 4), range(0, 6), range(6, 6));
  compare(equalNodes(1, 12), range(0, 6), range(6, 6));
}

TEST(TieCost, groups_of_other_sizes_that_share_devices) {
  compare(equalNodes(2, 6), range(0, 8), range(6, 6));
  compare(equalNodes(2, 6), {11, 2, 5, 8, 0, 3}, {3, 9, 11, 1});
}

TEST(TieCost, nodes_that_differ) {
  Cluster cluster = mixedNodes();
  compare(cluster, range(0, 12), range(12, 12));
  compare(cluster, range(0, 12), range(0, 12));
  compare(cluster, range(0, 6), range(3, 6));
}

TEST(TieCost, links_given_pair_by_pair) {
  compare(ownLinks(2, 4), range(0, 8), range(0, 8));
  compare(ownLinks(2, 4), range(0, 4), range(4, 4));
  compare(strideTable(), range(0, 6), range(6, 6));
  compare(strideTable(), range(0, 12), range(0, 12));
}

} // namespace
