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
  EXPECT_FALSE(describe(m, uint64_t(2) << 30)["device-types"][0].contains(
      "reserved-memory"));
  m.outsideBytes = 512 << 20;
  auto cluster = describe(m, uint64_t(2) << 30);
  EXPECT_EQ(cluster["device-types"][0]["memory"], "2GiB");
  EXPECT_EQ(cluster["device-types"][0]["reserved-memory"], "512MiB");
  EXPECT_NE(toYaml(cluster, m)
                .find("# reserved: 512MiB that the context, "
                      "kernels, a graph and libraries take, and "
                      "no communicators\n"),
            std::string::npos);
  m.communicatorBytes = 10 << 20;
  cluster = describe(m, uint64_t(2) << 30);
  EXPECT_EQ(cluster["device-types"][0]["reserved-memory"], "582MiB");
  EXPECT_NE(toYaml(cluster, m).find("take, 7 communicators of 10MiB\n"),
            std::string::npos);
}

/// Ranks that share cores evenly are slower than a core; where hosts differ
/// nobody knows by how much.
TEST(Describe, RatesAreThoseOfACore) {
  Measurement m = twoRanks({});
  const std::pair<std::vector<int>, const char *> cases[] = {
      {{0, 1}, "1GFLOPS"}, {{0, 0, 1, 1}, "2GFLOPS"}, {{0, 0, 1}, "1GFLOPS"}};
  m.cores = 1;
  m.collectives.clear();
  for (const auto &[hosts, expected] : cases) {
    m.hosts = hosts;
    auto cluster = describe(m, 1 << 30);
    EXPECT_EQ(cluster["device-types"][0]["flops"]["f32"], expected)
        << hosts.size();
  }
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

/// Hosts of one rank each with these FLOP/s, joined in pairs with these times
/// of 10 MB.
Measurement severalHosts(const std::vector<double> &flops,
                         const std::vector<double> &pairs = {}) {
  Measurement m = twoRanks({{1000, 1e-6}, {10001000, 0.100001}});
  m.collectives[0].network = true;
  m.hosts.clear();
  for (double each : flops) {
    Measurement host = m;
    host.f32Flops = each;
    host.products = {{64, each}};
    m.ofHosts.push_back(host);
    m.hosts.push_back(int(m.hosts.size()));
  }
  size_t next = 0;
  for (int a = 0; a < int(flops.size()); ++a)
    for (int b = a + 1; b < int(flops.size()) && next < pairs.size(); ++b) {
      PairTimes pair{a, b, m.collectives[0]};
      pair.times.times.back().second = 1e-6 + pairs[next++];
      m.pairs.push_back(pair);
    }
  return m;
}

/// Hosts tell each other their figures in a row, each at its place.
TEST(Describe, FiguresGoIntoARowAndBack) {
  Measurement m;
  m.products = {{64, 1}, {128, 2}};
  m.attention = {{32, 3}};
  m.f32Flops = 4;
  m.f64Flops = 5;
  m.bf16Flops = 6;
  m.memoryBandwidth = 7;
  m.copyBandwidth = 8;
  m.kernelOverhead = 9;
  m.optimizerBandwidth = 10;
  m.kernels = {{"softmax", 11, 100}, {"gelu", 12, 200}};
  std::vector<double> row = figuresOf(m);
  EXPECT_EQ(row, (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  for (double &figure : row)
    figure += 100;
  setFigures(m, row);
  EXPECT_EQ(m.products, (Measurement::Curve{{64, 101}, {128, 102}}));
  EXPECT_EQ(m.optimizerBandwidth, 110);
  EXPECT_EQ(m.kernels[1].seconds, 112);
  EXPECT_EQ(m.kernels[1].bytes, 200);
  EXPECT_EQ(figuresOf(m), row);
}

TEST(Describe, UnlikeHostsAreOfSeveralTypes) {
  Measurement m = severalHosts({1e10, 4e9, 1.1e10, 4.2e9});
  EXPECT_EQ(typesOfHosts(m), (std::vector<int>{0, 1, 0, 1}));
  auto cluster = describe(m, 1 << 30);
  ASSERT_EQ(cluster["device-types"].size(), 2u);
  EXPECT_EQ(cluster["device-types"][0]["name"], "cpu-core-1");
  EXPECT_EQ(cluster["device-types"][0]["flops"]["f32"], "10.5GFLOPS");
  EXPECT_EQ(cluster["device-types"][1]["flops"]["f32"], "4.1GFLOPS");
  ASSERT_EQ(cluster["nodes"].size(), 4u);
  EXPECT_EQ(cluster["nodes"][1]["device-type"], "cpu-core-2");
  EXPECT_EQ(cluster["nodes"][2]["device-type"], "cpu-core-1");

  // Noise makes no types, and hosts that are alike are one entry.
  m = severalHosts({1e10, 1.1e10});
  cluster = describe(m, 1 << 30);
  EXPECT_EQ(cluster["device-types"].size(), 1u);
  EXPECT_EQ(cluster["device-types"][0]["name"], "cpu-core");
  ASSERT_EQ(cluster["nodes"].size(), 1u);
  EXPECT_EQ(cluster["nodes"][0]["count"], 2);
}

TEST(Describe, UnlikeLinksAreAMatrix) {
  // 1 GB/s, but for the first and the third.
  auto cluster =
      describe(severalHosts({1e9, 1e9, 1e9}, {0.01, 0.1, 0.01}), 1 << 30);
  EXPECT_EQ(cluster["network"]["bandwidth"], "1GB/s");
  auto matrix = cluster["bandwidth-matrix"];
  ASSERT_EQ(matrix.size(), 3u);
  EXPECT_EQ(matrix[0][1], "1GB/s");
  EXPECT_EQ(matrix[2][0], "100MB/s");
  EXPECT_EQ(matrix[2][1], "1GB/s");
  // A table would say the same of both kinds of links.
  EXPECT_FALSE(cluster.contains("collectives"));

  // The latency is one that every pair keeps: that of the slowest.
  Measurement late = severalHosts({1e9, 1e9, 1e9}, {0.01, 0.1, 0.01});
  for (PairTimes &pair : late.pairs)
    for (auto &[bytes, seconds] : pair.times.times)
      seconds += pair.second - pair.first == 2 ? 2.9e-5 : 5e-6;
  cluster = describe(late, 1 << 30);
  EXPECT_EQ(cluster["network"]["bandwidth"], "1GB/s");
  EXPECT_EQ(cluster["network"]["latency"], "20us");

  cluster =
      describe(severalHosts({1e9, 1e9, 1e9}, {0.01, 0.011, 0.01}), 1 << 30);
  EXPECT_FALSE(cluster.contains("bandwidth-matrix"));
  EXPECT_TRUE(cluster.contains("collectives"));
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
