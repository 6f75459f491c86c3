//===- ClusterTest.cpp - Clusters -----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Cluster.h"

#include "gtest/gtest.h"

#include <set>

using namespace galvatron;

namespace {

const char *mixed = R"(name: mixed
device-types:
  - {name: fast, backend: cuda, memory: 40GiB, flops: {f32: 10TFLOPS, bf16: 100TFLOPS}, memory-bandwidth: 1TB/s}
  - name: slow
    backend: cuda
    memory: 16GiB
    flops: {f32: 5TFLOPS}
    memory-bandwidth: 500GB/s
    overlap-slowdown: 1.25
    kernel-overhead: 7us
    host-overhead: 11us
nodes:
  - {count: 2, device-type: fast, devices: 4, link: {bandwidth: 200GB/s, latency: 5us}}
  - {device-type: slow, devices: 2, link: {bandwidth: 10GB/s, latency: 20us}}
network: {bandwidth: 12.5GB/s, latency: 10us}
)";

Cluster get(const char *yaml) {
  return llvm::cantFail(Cluster::parse(yaml, "test.yaml"));
}

std::string errorOf(const std::string &yaml) {
  llvm::Expected<Cluster> cluster = Cluster::parse(yaml, "test.yaml");
  return cluster ? "no error" : llvm::toString(cluster.takeError());
}

std::string replaced(std::string text, const std::string &from,
                     const std::string &to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST(Cluster, nodes_of_a_file_may_be_of_built_in_types) {
  Cluster cluster = get(R"(
name: kinds
nodes:
  - {device-type: a100-40gb, devices: 4}
  - {count: 2, device-type: v100-16gb, devices: 2, link: {bandwidth: 1GB/s, latency: 2us}}
)");
  ASSERT_EQ(cluster.deviceTypes().size(), 2u);
  ASSERT_EQ(cluster.nodeGroups().size(), 2u);
  Cluster first = llvm::cantFail(Cluster::builtin("2x4xa100-40gb"));
  EXPECT_EQ(cluster.deviceTypes()[0], first.deviceTypes()[0]);
  EXPECT_EQ(cluster.nodeGroups()[0].link, first.nodeGroups()[0].link);
  EXPECT_EQ(cluster.nodeGroups()[0].network, first.networkLink());
  EXPECT_EQ(cluster.nodeGroups()[1].link.bandwidth, 1e9);
  EXPECT_TRUE(cluster.isNominal());
  // What the file says counts, and measures are nobody's data sheet.
  Cluster one = get(R"(
name: one
device-types: [{name: t4, backend: cpu, memory: 1GiB, flops: {f32: 1GFLOPS}, memory-bandwidth: 1GB/s}]
nodes: [{device-type: t4, devices: 1}]
)");
  EXPECT_EQ(one.deviceTypes()[0].backend, "cpu");
  EXPECT_FALSE(one.isNominal());
  EXPECT_NE(errorOf("name: none\nnodes: [{device-type: t5, devices: 1}]\n")
                .find("nodes[0]: unknown device type 't5'"),
            std::string::npos);
}

TEST(Cluster, file_is_read) {
  Cluster cluster = get(mixed);
  EXPECT_EQ(cluster.deviceCount(), 10);
  EXPECT_EQ(cluster.nodeCount(), 3);
  EXPECT_EQ(cluster.nodeOf(3), 0);
  EXPECT_EQ(cluster.nodeOf(4), 1);
  EXPECT_EQ(cluster.nodeOf(9), 2);
  EXPECT_EQ(cluster.deviceType(9).name, "slow");
  EXPECT_EQ(cluster.deviceType(9).kernelOverhead, 7e-6);
  EXPECT_EQ(cluster.deviceType(9).hostOverhead, 11e-6);
  EXPECT_EQ(cluster.backend(), "cuda");
  EXPECT_FALSE(cluster.isUniform());
  EXPECT_EQ(cluster.memoryOf({0, 9}), int64_t(16) << 30);
  EXPECT_EQ(cluster.flopsOf({0, 9}, "f32"), 5e12);
  EXPECT_EQ(cluster.flopsOf({0, 9}, "bf16"), 0);
}

/// Every entry of a file counts: another value is another cluster, and is
/// written as it was read.
TEST(Cluster, every_entry_is_read) {
  const std::string text = R"(name: full
device-types:
  - name: own
    backend: cuda
    memory: 41GiB
    reserved-memory: 3GiB
    flops: {f32: 11TFLOPS, bf16: 130TFLOPS, f64: 5TFLOPS}
    memory-bandwidth: 901GB/s
    overlap-slowdown: 1.4
    kernel-overhead: 6us
    host-overhead: 4us
    optimizer-bandwidth: 333GB/s
    host-bandwidth: 13GB/s
    host-memory-bandwidth: 17GB/s
    efficiency: [[64, 0.25], [512, 0.75]]
    attention-efficiency: [[32, 0.125], [256, 0.5]]
nodes:
  - {count: 2, device-type: own, devices: 2, link: {bandwidth: 21GB/s, latency: 7us}, network: {bandwidth: 6GB/s, latency: 23us}, cores: 5}
network: {bandwidth: 3GB/s, latency: 19us}
bandwidth-matrix: [[0B/s, 1GB/s, 2GB/s, 3GB/s], [4GB/s, 0B/s, 5GB/s, 8GB/s],
                   [9GB/s, 10GB/s, 0B/s, 11GB/s], [12GB/s, 14GB/s, 15GB/s, 0B/s]]
collectives:
  - {kind: all-gather, ranks: 2, span: network, stride: 3, concurrent: 4, times: [[1KiB, 10us], [5KiB, 41us]]}
)";
  Cluster cluster = get(text.c_str());
  const DeviceType &type = cluster.deviceType(0);
  EXPECT_EQ(type.memory, int64_t(41) << 30);
  EXPECT_EQ(type.reservedMemory, int64_t(3) << 30);
  EXPECT_EQ(type.flops.at("f64"), 5e12);
  EXPECT_EQ(type.hostBandwidth, 13e9);
  EXPECT_EQ(type.hostMemoryBandwidth, 17e9);
  EXPECT_EQ(type.optimizerBandwidth, 333e9);
  const std::pair<const char *, const char *> changes[] = {
      {"backend: cuda", "backend: cpu"},
      {"41GiB", "42GiB"},
      {"3GiB", "2GiB"},
      {"f32: 11", "f32: 12"},
      {"130", "131"},
      {"f64: 5", "f64: 6"},
      {"901", "902"},
      {"1.4", "1.5"},
      {"kernel-overhead: 6", "kernel-overhead: 8"},
      {"host-overhead: 4", "host-overhead: 5"},
      {"333", "334"},
      {"host-bandwidth: 13", "host-bandwidth: 14"},
      {"host-memory-bandwidth: 17", "host-memory-bandwidth: 18"},
      {"[64, 0.25]", "[65, 0.25]"},
      {"[512, 0.75]", "[512, 0.875]"},
      {"[32, 0.125]", "[33, 0.125]"},
      {"[256, 0.5]", "[256, 0.625]"},
      {"21GB/s", "22GB/s"},
      {"latency: 7us", "latency: 8us"},
      {"6GB/s", "7GB/s"},
      {"23us", "24us"},
      {"cores: 5", "cores: 6"},
      {"network: {bandwidth: 3GB/s", "network: {bandwidth: 4GB/s"},
      {"19us", "20us"},
      {"15GB/s", "16GB/s"},
      {"all-gather", "reduce-scatter"},
      {"ranks: 2", "ranks: 3"},
      {"span: network", "span: node"},
      {"stride: 3", "stride: 2"},
      {"concurrent: 4", "concurrent: 2"},
      {"1KiB", "2KiB"},
      {"41us", "42us"}};
  std::set<std::string> hashes = {cluster.hash()};
  for (const auto &[from, to] : changes) {
    Cluster other = get(replaced(text, from, to).c_str());
    EXPECT_FALSE(other == cluster) << to;
    EXPECT_TRUE(hashes.insert(other.hash()).second) << to;
    EXPECT_TRUE(get(other.toYaml().c_str()) == other) << other.toYaml();
  }
}

TEST(Cluster, yaml_round_trips) {
  Cluster cluster = get(mixed);
  Cluster again = get(cluster.toYaml().c_str());
  EXPECT_TRUE(cluster == again) << cluster.toYaml();
  EXPECT_EQ(cluster.hash(), again.hash());
  for (const std::string &type : Cluster::builtinTypes()) {
    for (const char *shape : {"1x", "6x", "3x4x"}) {
      std::string name = shape + type;
      Cluster builtin = llvm::cantFail(Cluster::builtin(name));
      EXPECT_TRUE(builtin == get(builtin.toYaml().c_str())) << name;
      EXPECT_EQ(builtin.name(), name);
    }
    EXPECT_NE(Cluster::describeBuiltinType(type), "");
  }
}

TEST(Cluster, hash_does_not_depend_on_the_name) {
  EXPECT_EQ(get(mixed).hash(),
            get(replaced(mixed, "name: mixed", "name: other").c_str()).hash());
  EXPECT_NE(get(mixed).hash(),
            get(replaced(mixed, "40GiB", "41GiB").c_str()).hash());
}

TEST(Cluster, json_is_yaml) {
  Cluster cluster = get(R"({"name": "j", "device-types": [{"name": "c",
    "backend": "cpu", "memory": "1GiB", "flops": {"f32": "1GFLOPS"},
    "memory-bandwidth": "1GB/s"}], "nodes": [{"device-type": "c",
    "devices": 1}]})");
  EXPECT_EQ(cluster.deviceCount(), 1);
}

TEST(Cluster, errors_point_at_the_line) {
  EXPECT_EQ(errorOf(replaced(mixed, "memory: 40GiB", "memory: 40")),
            "test.yaml:3:41: expected a number of bytes with a unit, like "
            "'24GiB', found the bare number '40'");
  EXPECT_EQ(errorOf(replaced(mixed, "latency: 10us", "latancy: 10us")),
            "test.yaml:15:32: unknown key 'latancy'; did you mean 'latency'?");
  EXPECT_EQ(errorOf(replaced(mixed, "devices: 2", "devises: 2")),
            "test.yaml:14:25: unknown key 'devises'; did you mean 'devices'?");
  EXPECT_EQ(errorOf(replaced(mixed, "nodes:", "node:")),
            "test.yaml:12:1: unknown key 'node'; did you mean 'nodes'?");
  EXPECT_EQ(errorOf(replaced(mixed, "    backend: cuda\n", "    colour: 1\n")),
            "test.yaml:5:5: unknown key 'colour'");
  EXPECT_NE(errorOf(replaced(mixed, "    backend: cuda\n", ""))
                .find("missing required key 'backend'"),
            std::string::npos);
}

TEST(Cluster, wrong_clusters_are_refused) {
  for (const char *nothing : {"", "\n", "# a comment\n", "---\n...\n"})
    EXPECT_EQ(errorOf(nothing),
              "test.yaml: expected a cluster, found an empty file");
  for (const char *other : {"[1", "[]", "3", "name", "{a", "name: {"})
    EXPECT_NE(errorOf(other), "no error") << other;
  EXPECT_EQ(errorOf(replaced(mixed,
                             "network: {bandwidth: 12.5GB/s, latency: "
                             "10us}\n",
                             "")),
            "test.yaml: cluster: expected 'network', because there are 3 "
            "nodes");
  EXPECT_EQ(errorOf(replaced(mixed, "device-type: slow", "device-type: slov")),
            "test.yaml: nodes[1]: unknown device type 'slov'; did you mean "
            "'slow'?");
  EXPECT_EQ(errorOf(replaced(mixed, "count: 2", "count: 0")),
            "test.yaml: nodes[0]: expected a count of at least 1, found 0");
  EXPECT_EQ(errorOf(replaced(mixed, "backend: cuda", "backend: tpu")),
            "test.yaml: device type 'fast': expected backend 'cpu' or 'cuda', "
            "found 'tpu'");
  EXPECT_EQ(errorOf(replaced(mixed, "f32: 10TFLOPS", "f8: 10TFLOPS")),
            "test.yaml: device type 'fast': unknown dtype 'f8' in flops, "
            "expected 'f32', 'tf32', 'f16', 'bf16' or 'f64'");
  EXPECT_EQ(
      errorOf(replaced(mixed, "overlap-slowdown: 1.25", "overlap-slowdown: 3")),
      "test.yaml: device type 'slow': expected an overlap slowdown "
      "between 1 and 2");
  EXPECT_NE(errorOf("name: [1"), "no error");
  EXPECT_NE(errorOf("just text"), "no error");
  llvm::Expected<Cluster> missing = Cluster::load("no-such-cluster");
  ASSERT_FALSE(missing);
  EXPECT_NE(llvm::toString(missing.takeError()).find("rtx-titan"),
            std::string::npos);
}

TEST(Cluster, built_in_clusters_are_patterns) {
  Cluster cluster = llvm::cantFail(Cluster::load("128x8xh100"));
  EXPECT_EQ(cluster.nodeCount(), 128);
  EXPECT_EQ(cluster.deviceCount(), 1024);
  EXPECT_EQ(cluster.linkBetween(0, 7).bandwidth, 340e9);
  EXPECT_EQ(cluster.linkBetween(0, 8).bandwidth, 360e9);
  EXPECT_TRUE(cluster.isNominal());
  EXPECT_FALSE(cluster.scaled(2, 1).isNominal());
  EXPECT_FALSE(get(mixed).isNominal());
  // One node needs no network.
  EXPECT_FALSE(llvm::cantFail(Cluster::load("3xcpu")).networkLink());
  // A type may call its devices otherwise.
  EXPECT_EQ(llvm::cantFail(Cluster::load("3xcpu")).deviceType(0).name,
            "cpu-core");
  EXPECT_EQ(cluster.deviceType(0).name, "h100");
  EXPECT_EQ(llvm::cantFail(Cluster::load("1x8xh100")).hash(),
            llvm::cantFail(Cluster::load("8xh100")).hash());

  auto error = [](const char *name) {
    llvm::Expected<Cluster> cluster = Cluster::load(name);
    return cluster ? "none" : llvm::toString(cluster.takeError());
  };
  EXPECT_EQ(
      error("8x8xa100-80g"),
      "built-in cluster '8x8xa100-80g': unknown device type 'a100-80g', "
      "expected one of cpu, rtx-titan, rtx-4090, t4, v100-16gb, v100-32gb, "
      "a100-40gb, a100-80gb, h100, h100-96gb, h200, h800, h20, b200, gb200, "
      "mi300x; did you mean 'a100-80gb'?");
  EXPECT_EQ(error("8xmainframe").find("did you mean"), std::string::npos);
  EXPECT_EQ(error("1048577xcpu"), "built-in cluster '1048577xcpu': expected at "
                                  "most 1048576 devices");
  EXPECT_EQ(error("99999999999999999999x99999999999999999999xcpu"),
            "built-in cluster '99999999999999999999x99999999999999999999xcpu': "
            "expected at most 1048576 devices");
  // These are files that do not exist.
  for (const char *name : {"0xcpu", "08xcpu", "8x", "x8xcpu", "8xcpu.yaml",
                           "8xh100/", "8x0xcpu", "2x3x4xcpu"})
    EXPECT_EQ(error(name).find("cluster '" + std::string(name) +
                               "' is neither a file that can be read ("),
              0u)
        << error(name);
}

TEST(Cluster, slowest_neighbour_decides) {
  Cluster cluster = get(mixed);
  EXPECT_EQ(cluster.linkOfGroup({0, 1, 2, 3}).bandwidth, 200e9);
  EXPECT_EQ(cluster.linkOfGroup({2, 3, 4, 5}).bandwidth, 12.5e9);
  EXPECT_EQ(cluster.linkOfGroup({8, 9}).latency, 20e-6);
  EXPECT_EQ(cluster.linkOfGroup({5}), Link());
  // Four rings that leave each node at once share its network link.
  std::vector<std::vector<int64_t>> rings = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  EXPECT_EQ(cluster.linkOfGroups(rings).bandwidth, 12.5e9 / 4);
}

TEST(Cluster, the_lowest_link_of_a_group_may_be_none_of_its_ring) {
  Cluster cluster = llvm::cantFail(Cluster::parse(R"(
name: crossed
device-types:
  - {name: d, backend: cuda, memory: 1GiB, flops: {f32: 1TFLOPS},
     memory-bandwidth: 1GB/s}
nodes:
  - {count: 1, device-type: d, devices: 4, link: {bandwidth: 9GB/s, latency: 1us}}
bandwidth-matrix:
  - [0GB/s, 8GB/s, 1GB/s, 8GB/s]
  - [8GB/s, 0GB/s, 8GB/s, 2GB/s]
  - [1GB/s, 8GB/s, 0GB/s, 8GB/s]
  - [8GB/s, 2GB/s, 8GB/s, 0GB/s]
)",
                                                  "crossed.yaml"));
  std::vector<std::vector<int64_t>> groups = {{0, 1, 2, 3}};
  EXPECT_EQ(cluster.linkOfGroups(groups).bandwidth, 8e9);
  GroupLink lowest = cluster.lowestLinkOfGroups(groups);
  EXPECT_EQ(lowest.bandwidth, 1e9);
  EXPECT_EQ(lowest.ranks, 4);
  EXPECT_EQ(lowest.latency, 1e-6);
}

TEST(Cluster, bandwidth_matrix_replaces_link_bandwidths) {
  std::string yaml = R"(name: m
device-types: [{name: c, backend: cpu, memory: 1GiB, flops: {f32: 1GFLOPS}, memory-bandwidth: 1GB/s}]
nodes: [{device-type: c, devices: 3, link: {bandwidth: 1GB/s, latency: 1us}}]
bandwidth-matrix:
  - [0B/s, 5GB/s, 2GB/s]
  - [5GB/s, 0B/s, 3GB/s]
  - [2GB/s, 3GB/s, 0B/s]
)";
  Cluster cluster = get(yaml.c_str());
  EXPECT_EQ(cluster.linkOfGroup({0, 1}).bandwidth, 5e9);
  EXPECT_EQ(cluster.linkOfGroup({0, 1, 2}).bandwidth, 2e9);
  EXPECT_EQ(errorOf(replaced(yaml, "  - [2GB/s, 3GB/s, 0B/s]\n", "")),
            "test.yaml: bandwidth-matrix: expected 3 rows, one per device, "
            "found 2");
}

/// Everything that is optional.
const char *full = R"(name: full
device-types:
  - name: fast
    backend: cuda
    memory: 40GiB
    reserved-memory: 1GiB
    flops: {f32: 10TFLOPS}
    memory-bandwidth: 1TB/s
    optimizer-bandwidth: 250GB/s
    efficiency: [[64, 0.25], [256, 0.75]]
    attention-efficiency: [[64, 0.125]]
  - {name: slow, backend: cpu, memory: 16GiB, flops: {f32: 5TFLOPS}, memory-bandwidth: 1TB/s}
nodes:
  - {count: 2, device-type: fast, devices: 2, link: {bandwidth: 200GB/s}, network: {bandwidth: 20GB/s, latency: 2us}}
  - {device-type: slow, devices: 4, link: {bandwidth: 10GB/s}, network: {bandwidth: 8GB/s, latency: 9us}, cores: 2}
collectives:
  - {kind: all-reduce, ranks: 2, times: [[1MiB, 10us], [3MiB, 20us]]}
  - {kind: all-reduce, ranks: 2, stride: 2, times: [[1MiB, 40us]]}
  - {kind: all-gather, ranks: 2, span: network, concurrent: 2, times: [[1MB, 1ms], [3MB, 2ms]]}
  - {kind: send, ranks: 2, times: [[1MB, 5ms], [3MB, 7ms]]}
)";

TEST(Cluster, optional_parts_are_read_and_round_trip) {
  Cluster cluster = get(full);
  EXPECT_TRUE(cluster == get(cluster.toYaml().c_str())) << cluster.toYaml();
  EXPECT_EQ(cluster.deviceType(0).efficiency.at(128), 0.5);
  EXPECT_EQ(cluster.deviceType(0).attentionEfficiency.at(1000), 0.125);
  EXPECT_EQ(cluster.collectives().size(), 4u);
  EXPECT_EQ(cluster.coreContention(0), 1);
  EXPECT_EQ(cluster.coreContention(5), 2);
  EXPECT_TRUE(cluster.sharesCores());
  // Four ranks on two cores take turns.
  EXPECT_EQ(cluster.flopsTogether({4, 5, 6, 7}, "f32"), 2.5e12);
  EXPECT_EQ(cluster.flopsTogether({0, 1}, "f32"), 10e12);
  EXPECT_FALSE(get(mixed).sharesCores());
  EXPECT_EQ(cluster.deviceType(0).optimizerBandwidth, 250e9);
  EXPECT_EQ(cluster.deviceType(5).optimizerBandwidth, std::nullopt);
  // 0 says that updates take no time; it is not the same as nothing.
  std::string hash = cluster.hash();
  Cluster free = cluster.withoutOptimizerTime();
  EXPECT_EQ(free.deviceType(5).optimizerBandwidth, 0);
  EXPECT_TRUE(free == get(free.toYaml().c_str())) << free.toYaml();
  EXPECT_NE(free.hash(), hash);
  EXPECT_EQ(Cluster(cluster).hash(), hash);
}

TEST(Cluster, budgets_leave_the_reserve) {
  Cluster cluster = get(full);
  int64_t gib = int64_t(1) << 30;
  EXPECT_EQ(cluster.budgetOf({0, 1}), 39 * gib);
  EXPECT_EQ(cluster.budgetOf({0, 4}), 16 * gib);
  // A budget given by hand is that of the device, reserve included.
  EXPECT_EQ(cluster.budgetOf({4}, 8 * gib), 8 * gib);
  EXPECT_EQ(cluster.budgetOf({0, 4}, 8 * gib), 7 * gib);
  EXPECT_EQ(cluster.memoryFor({0, 4}, 7 * gib), 8 * gib);
  EXPECT_EQ(cluster.memoryFor({4}, 7 * gib), 7 * gib);
}

TEST(Cluster, the_largest_latency_of_a_ring_decides) {
  std::string text = full;
  size_t nodes = text.find("nodes:"), end = text.find("collectives:");
  text.replace(nodes, end - nodes,
               "nodes:\n"
               "  - {device-type: fast, devices: 1, network: {bandwidth: "
               "20GB/s, latency: 1us}}\n"
               "  - {device-type: fast, devices: 1, network: {bandwidth: "
               "40GB/s, latency: 50us}}\n"
               "  - {device-type: fast, devices: 1, network: {bandwidth: "
               "30GB/s, latency: 1us}}\n");
  Cluster cluster = get(text.c_str());
  for (std::vector<int64_t> ring :
       {std::vector<int64_t>{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}}) {
    EXPECT_EQ(cluster.linkOfGroup(ring).latency, 50e-6);
    EXPECT_EQ(cluster.linkOfGroup(ring).bandwidth, 20e9);
  }
  EXPECT_EQ(cluster.linkOfGroup({0, 2}).latency, 1e-6);
}

TEST(Cluster, nodes_may_differ_in_their_uplinks) {
  Cluster cluster = get(full);
  // The slower uplink of the two, the larger latency.
  EXPECT_EQ(cluster.linkBetween(0, 2), (Link{20e9, 2e-6}));
  EXPECT_EQ(cluster.linkBetween(0, 4), (Link{8e9, 9e-6}));
  // Two rings between fast nodes share 20 GB/s; with the slow node 8 GB/s.
  EXPECT_EQ(cluster.linkOfGroups({{0, 2}, {1, 3}}).bandwidth, 10e9);
  EXPECT_EQ(cluster.linkOfGroups({{0, 4}, {1, 5}}).bandwidth, 4e9);
  // Of one ring over both nodes one edge leaves each.
  GroupLink ring = cluster.linkOfGroups({{0, 1, 4, 5}});
  EXPECT_EQ(ring.bandwidth, 8e9);
  EXPECT_EQ(ring.sharing, 1);
  EXPECT_EQ(ring.ranks, 4);
  // Of an all-to-all two members of each send half of what they have over it.
  EXPECT_EQ(ring.perNode, 2);
  EXPECT_DOUBLE_EQ(ring.seconds(Collective::AllToAll, 4e9),
                   3 * ring.latency + 2 * 2e9 / 8e9);
  EXPECT_EQ(cluster.linkOfGroups({{0, 2}, {1, 3}}).perNode, 1);
  EXPECT_EQ(cluster.linkOfGroups({{4, 5, 6}}).perNode, 1);
}

TEST(Cluster, strides_are_of_rings_of_equal_distances) {
  std::string text = full;
  text +=
      "  - {kind: all-reduce, ranks: 3, stride: 1, times: [[1MiB, 90us]]}\n";
  Cluster cluster = get(text.c_str());
  double mib = 1 << 20;
  auto seconds = [&](std::vector<int64_t> ring) {
    return cluster.linkOfGroups({ring}).seconds(Collective::AllReduce, mib);
  };
  EXPECT_DOUBLE_EQ(seconds({4, 5, 6}), 90e-6);
  // Two neighbours and one further off: the ring of 10 GB/s.
  EXPECT_DOUBLE_EQ(seconds({4, 5, 7}), 2 * 2.0 / 3 * mib / 10e9);
}

TEST(Cluster, measured_collectives_replace_rings) {
  Cluster cluster = get(full);
  double mib = 1 << 20;
  // Between two points; the table with the ring's stride wins.
  GroupLink neighbours = cluster.linkOfGroups({{0, 1}});
  EXPECT_DOUBLE_EQ(neighbours.seconds(Collective::AllReduce, 2 * mib), 15e-6);
  GroupLink strided = cluster.linkOfGroups({{4, 6}});
  EXPECT_DOUBLE_EQ(strided.seconds(Collective::AllReduce, 2 * mib), 80e-6);
  // No table: the ring of 200 GB/s.
  EXPECT_DOUBLE_EQ(neighbours.seconds(Collective::AllGather, 4e6), 10e-6);
  // Measured with two groups at once, two groups run: as it is.
  GroupLink two = cluster.linkOfGroups({{0, 2}, {1, 3}});
  EXPECT_EQ(two.sharing, 2);
  EXPECT_DOUBLE_EQ(two.seconds(Collective::AllGather, 2e6), 1.5e-3);
  // An all-reduce is the table's all-gather and a ring's reduce-scatter:
  // 2 us + 1 MB / 10 GB/s.
  EXPECT_DOUBLE_EQ(two.seconds(Collective::AllReduce, 2e6),
                   1.5e-3 + 2e-6 + 1e6 / 10e9);
  // The line through a send table: 1 ms a megabyte, 4 ms ahead.
  EXPECT_NEAR(cluster.pairLink(0, 1).bandwidth, 1e9, 1);
  EXPECT_NEAR(cluster.pairLink(0, 1).latency, 4e-3, 1e-12);
  EXPECT_EQ(cluster.pairLink(0, 2), cluster.linkBetween(0, 2));
}

TEST(Cluster, more_groups_than_measured_move_more) {
  std::string one = replaced(full, "concurrent: 2, ", "");
  Cluster cluster = get(one.c_str());
  GroupLink two = cluster.linkOfGroups({{0, 2}, {1, 3}});
  // As if one group moved 2 MB, then 4 MB: 1.5 ms, and 0.5 ms more past 3 MB.
  EXPECT_DOUBLE_EQ(two.seconds(Collective::AllGather, 1e6), 1.5e-3);
  EXPECT_DOUBLE_EQ(two.seconds(Collective::AllGather, 2e6), 2.5e-3);
}

TEST(Cluster, wrong_optional_parts_are_refused) {
  auto error = [&](const char *from, const char *to) {
    return errorOf(replaced(full, from, to));
  };
  EXPECT_EQ(error("[64, 0.25]", "[64]"),
            "test.yaml: device type 'fast'.efficiency: expected [size, "
            "fraction], found 1 numbers");
  EXPECT_EQ(error("[256, 0.75]", "[256, 1.75]"),
            "test.yaml: device type 'fast'.efficiency: expected fractions "
            "above 0 and up to 1");
  EXPECT_EQ(error("[256, 0.75]", "[32, 0.75]"),
            "test.yaml: device type 'fast'.efficiency: expected sizes above 0 "
            "in ascending order");
  EXPECT_EQ(error("reserved-memory: 1GiB", "reserved-memory: 40GiB"),
            "test.yaml: device type 'fast': expected a reserved memory below "
            "the memory");
  EXPECT_NE(error("optimizer-bandwidth: 250GB/s", "optimizer-bandwidth: 250")
                .find("test.yaml:9:26: expected"),
            std::string::npos);
  DeviceType backwards = get(full).deviceType(0);
  backwards.optimizerBandwidth = -1;
  EXPECT_EQ(
      llvm::toString(
          Cluster::get("one", {backwards}, {{1, "fast", 1}}, std::nullopt)
              .takeError()),
      "device type 'fast': expected an optimizer bandwidth of at least 0");
  EXPECT_EQ(error("kind: send, ranks: 2", "kind: send, ranks: 4"),
            "test.yaml: collectives[3]: expected 2 ranks, found 4");
  EXPECT_EQ(error("kind: all-gather", "kind: gossip"),
            "test.yaml: collectives[2]: expected kind 'all-reduce', "
            "'all-gather', 'reduce-scatter', 'send', 'all-to-all' or 'shift', "
            "found 'gossip'");
  EXPECT_NE(error("[3MiB, 20us]", "[3MiB, 20]")
                .find("test.yaml: collectives[0].times[1]: expected"),
            std::string::npos);
  EXPECT_EQ(error("[3MiB, 20us]", "[3MiB, 2us]"),
            "test.yaml: collectives[0]: expected sizes in ascending order, and "
            "times above 0 that do not fall");
  EXPECT_EQ(error("cores: 2", "cores: -2"),
            "test.yaml: nodes[1]: expected at least 1 core, found -2");
  EXPECT_EQ(error(", network: {bandwidth: 8GB/s, latency: 9us}", ""),
            "test.yaml: cluster: expected 'network', because there are 3 "
            "nodes");
}

TEST(Cluster, a_matrix_does_not_widen_an_uplink) {
  Cluster cluster = get(R"(name: m
device-types: [{name: c, backend: cpu, memory: 1GiB, flops: {f32: 1GFLOPS}, memory-bandwidth: 1GB/s}]
nodes: [{count: 2, device-type: c, devices: 2, link: {bandwidth: 9GB/s}}]
network: {bandwidth: 4GB/s}
bandwidth-matrix:
  - [0B/s, 9GB/s, 3GB/s, 3GB/s]
  - [9GB/s, 0B/s, 3GB/s, 3GB/s]
  - [3GB/s, 3GB/s, 0B/s, 9GB/s]
  - [3GB/s, 3GB/s, 9GB/s, 0B/s]
)");
  EXPECT_EQ(cluster.linkOfGroups({{0, 2}}).bandwidth, 3e9);
  EXPECT_EQ(cluster.linkOfGroups({{0, 2}, {1, 3}}).bandwidth, 2e9);
}

TEST(Measured, product_size_is_the_harmonic_mean) {
  // 2 x 6 times 6 x 3: 72 FLOPs, 12 + 18 + 6 elements, 3 / (1/2 + 1/6 + 1/3).
  EXPECT_DOUBLE_EQ(productSize(72, 36), 3);
  EXPECT_EQ(productSize(72, 0), 0);
}

TEST(Measured, efficiency_between_points) {
  EfficiencyCurve curve({{64, 0.25}, {256, 0.75}});
  EXPECT_DOUBLE_EQ(curve.at(32), 0.125);
  EXPECT_DOUBLE_EQ(curve.at(128), 0.5); // half way in the logarithm
  EXPECT_DOUBLE_EQ(curve.at(4096), 0.75);
  EXPECT_EQ(curve.at(0), 1);
  EXPECT_EQ(EfficiencyCurve().at(64), 1);
  EXPECT_DOUBLE_EQ(EfficiencyCurve::hyperbola(256).at(256), 0.5);
}

TEST(Measured, times_outside_the_points) {
  CollectiveTable table;
  table.times = {{1000, 3e-6}, {2000, 4e-6}, {4000, 8e-6}};
  EXPECT_DOUBLE_EQ(table.seconds(0), 2e-6);
  EXPECT_DOUBLE_EQ(table.seconds(3000), 6e-6);
  EXPECT_DOUBLE_EQ(table.seconds(8000), 16e-6);
  table.times = {{1000, 3e-6}};
  EXPECT_DOUBLE_EQ(table.seconds(2000), 6e-6);
}

TEST(Cluster, ring_times) {
  Link link{1e9, 1e-6};
  EXPECT_DOUBLE_EQ(allReduceSeconds(link, 4, 4e9), 2 * 3 * (1e-6 + 1));
  EXPECT_DOUBLE_EQ(allGatherSeconds(link, 4, 4e9), 3 * (1e-6 + 1));
  EXPECT_DOUBLE_EQ(reduceScatterSeconds(link, 2, 4e9), 1e-6 + 2);
  // A member sends three quarters of its buffer.
  EXPECT_DOUBLE_EQ(allToAllSeconds(link, 4, 4e9, 1), 3 * (1e-6 + 1));
  EXPECT_EQ(allToAllSeconds(link, 1, 4e9, 1), 0);
  // And the whole of it to the next.
  EXPECT_DOUBLE_EQ(shiftSeconds(link, 4, 4e9), 1e-6 + 4);
  EXPECT_EQ(shiftSeconds(link, 1, 4e9), 0);
  EXPECT_EQ(allReduceSeconds(link, 1, 4e9), 0);
  EXPECT_DOUBLE_EQ(pointToPointSeconds(link, 1e9), 1 + 1e-6);
}

TEST(Cluster, scaled_memory_and_bandwidth) {
  Cluster cluster = get(mixed);
  Cluster other = cluster.scaled(1.5, 2);
  EXPECT_EQ(other.deviceCount(), cluster.deviceCount());
  for (int64_t d : {0, 9})
    EXPECT_EQ(other.deviceType(d).memory, cluster.deviceType(d).memory * 3 / 2);
  for (auto [a, b] : {std::pair(0, 1), {8, 9}, {0, 9}}) {
    EXPECT_EQ(other.linkBetween(a, b).bandwidth,
              2 * cluster.linkBetween(a, b).bandwidth);
    EXPECT_EQ(other.linkBetween(a, b).latency,
              cluster.linkBetween(a, b).latency);
  }
  EXPECT_TRUE(cluster.scaled(1, 1) == cluster);
  EXPECT_NE(other.hash(), cluster.hash());
}

TEST(Cluster, resized_by_nodes_or_within_the_node) {
  Cluster two = llvm::cantFail(Cluster::builtin("2x8xa100-40gb"));
  ASSERT_TRUE(two.resized(24));
  EXPECT_EQ(two.resized(24)->nodeCount(), 3);
  EXPECT_EQ(two.resized(64)->hash(),
            llvm::cantFail(Cluster::builtin("8x8xa100-40gb")).hash());
  EXPECT_FALSE(two.resized(20));
  Cluster one = llvm::cantFail(Cluster::builtin("8xrtx-titan"));
  ASSERT_TRUE(one.resized(12));
  EXPECT_EQ(one.resized(12)->nodeCount(), 1);
  EXPECT_EQ(one.resized(12)->deviceCount(), 12);
  // One device has no link that a second could use.
  EXPECT_FALSE(llvm::cantFail(Cluster::builtin("1xh100")).resized(2));
  EXPECT_FALSE(get(mixed).resized(20));
}

} // namespace
