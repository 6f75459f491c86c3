//===- describe_test.cpp - Measurements as cluster files ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "describe.h"
#include "doubts.h"

#include <gtest/gtest.h>

using namespace grt::profile;

namespace {

Measurement twoRanks(std::vector<std::pair<int64_t, double>> times) {
  Measurement m;
  m.f32Flops = m.f64Flops = m.memoryBandwidth = 1e9;
  m.kernelOverhead = 1e-6;
  m.products = {{64, 1e9}};
  m.hosts = {0, 0};
  CollectiveTimes send;
  send.kind = "send";
  send.times = std::move(times);
  m.collectives = {send};
  return m;
}

std::vector<std::string> timesOf(const nlohmann::ordered_json &cluster) {
  std::vector<std::string> result;
  for (const auto &point : cluster["collectives"][0]["times"])
    result.push_back(point[1]);
  return result;
}

// The planner refuses tables with times of 0 or below, or that fall.
// Plans may use what contexts and libraries leave.
TEST(Describe, MemoryIsWithoutWhatIsOutsideTheArena) {
  Measurement m = twoRanks({});
  m.backend = "cuda";
  m.bf16Flops = 1e9;
  m.hosts = {0};
  m.collectives.clear();
  EXPECT_EQ(describe(m, uint64_t(2) << 30)["device-types"][0]["memory"],
            "2GiB");
  m.outsideBytes = 512 << 20;
  auto cluster = describe(m, uint64_t(2) << 30);
  EXPECT_EQ(cluster["device-types"][0]["memory"], "1536MiB");
  EXPECT_NE(toYaml(cluster, m).find("# memory is without 512MiB that"),
            std::string::npos);
}

TEST(Describe, NoiseDoesNotReachTheTables) {
  auto cluster =
      describe(twoRanks({{1024, -2e-5}, {2048, 0}, {4096, 3e-5}, {8192, 1e-5}}),
               1 << 30);
  EXPECT_EQ(timesOf(cluster),
            (std::vector<std::string>{"0.1us", "0.1us", "30us", "30us"}));
}

TEST(Describe, LinksHaveALatencyAndABandwidth) {
  auto cluster =
      describe(twoRanks({{1000, 3e-6}, {1001000, 5.03e-4}}), 1 << 30);
  EXPECT_EQ(cluster["nodes"][0]["link"]["bandwidth"], "2GB/s");
  EXPECT_EQ(cluster["nodes"][0]["link"]["latency"], "2.5us");
  cluster = describe(twoRanks({{1000, -1e-6}, {1001000, -1e-3}}), 1 << 30);
  EXPECT_EQ(cluster["nodes"][0]["link"]["latency"], "0.1us");
}

// Three ranks make no pairs.
TEST(Describe, AnAllGatherTellsOfALink) {
  Measurement m = twoRanks({});
  m.hosts = {0, 0, 0};
  m.collectives[0].kind = "all-gather";
  m.collectives[0].ranks = 3;
  m.collectives[0].times = {{3000, 8e-6}, {3003000, 2.008e-3}};
  auto cluster = describe(m, 1 << 30);
  EXPECT_EQ(cluster["nodes"][0]["link"]["bandwidth"], "1GB/s");
  EXPECT_EQ(cluster["nodes"][0]["link"]["latency"], "3us");

  // Two on one host and one on another: the network is all that was seen.
  m.hosts = {0, 0, 1};
  m.collectives[0].network = true;
  cluster = describe(m, 1 << 30);
  EXPECT_EQ(cluster["nodes"][0]["link"], cluster["network"]);
}

TEST(Doubts, AQuietMachineHasNone) {
  Measurement m = twoRanks({{1024, 2e-6}, {2048, 1.9e-6}, {4096, 4e-6}});
  m.products = {{512, 0.95e9}, {64, 0.5e9}, {256, 1e9}};
  EXPECT_TRUE(doubts(m, 0.1).empty());
}

TEST(Doubts, WhatCannotBeIsTold) {
  Measurement m = twoRanks({{1024, 5e-6}, {2048, -1e-9}, {4096, 2e-6}});
  m.products = {{64, 1e9}, {512, 0.5e9}};
  m.f64Flops = 2e9;
  std::vector<std::string> found = doubts(m, 1.9);
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[0],
            "other processes kept 1.9 of the machine's cores at work before "
            "the measurement: its figures are too low, and differ from run to "
            "run");
  EXPECT_EQ(found[1].find("send of 2 ranks: seems to take no time"), 0u);
  EXPECT_EQ(found[2].find("send of 2 ranks: 4096 bytes are quicker than 1024"),
            0u);
  EXPECT_EQ(found[3], "products: size 512 is much slower than size 64");
  EXPECT_EQ(found[4].find("products in f64 are quicker than in f32"), 0u);
}

TEST(Doubts, BusyCores) {
  ProcessorTicks before = parseTicks("cpu  100 0 50 800 50 0 0 0 9 9\ncpu0 1");
  EXPECT_EQ(before.busy, 150);
  EXPECT_EQ(before.all, 1000);
  ProcessorTicks after = parseTicks("cpu  200 0 50 850 50 0 0 50 9 9\n");
  EXPECT_DOUBLE_EQ(busyCores(before, after, 4), 3);
  EXPECT_EQ(busyCores(before, before, 4), 0);
  EXPECT_EQ(parseTicks("").all, 0);
}

} // namespace
