//===- ClusterTest.cpp - Clusters -----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Cluster.h"

#include "gtest/gtest.h"

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

TEST(Cluster, file_is_read) {
  Cluster cluster = get(mixed);
  EXPECT_EQ(cluster.deviceCount(), 10);
  EXPECT_EQ(cluster.nodeCount(), 3);
  EXPECT_EQ(cluster.nodeOf(3), 0);
  EXPECT_EQ(cluster.nodeOf(4), 1);
  EXPECT_EQ(cluster.nodeOf(9), 2);
  EXPECT_EQ(cluster.deviceType(9).name, "slow");
  EXPECT_EQ(cluster.deviceType(9).kernelOverhead, 7e-6);
  EXPECT_EQ(cluster.backend(), "cuda");
  EXPECT_FALSE(cluster.isUniform());
  EXPECT_EQ(cluster.memoryOf({0, 9}), int64_t(16) << 30);
  EXPECT_EQ(cluster.flopsOf({0, 9}, "f32"), 5e12);
  EXPECT_EQ(cluster.flopsOf({0, 9}, "bf16"), 0);
}

TEST(Cluster, yaml_round_trips) {
  Cluster cluster = get(mixed);
  Cluster again = get(cluster.toYaml().c_str());
  EXPECT_TRUE(cluster == again) << cluster.toYaml();
  EXPECT_EQ(cluster.hash(), again.hash());
  for (const std::string &name : Cluster::builtinNames()) {
    Cluster builtin = llvm::cantFail(Cluster::builtin(name));
    EXPECT_TRUE(builtin == get(builtin.toYaml().c_str())) << name;
    EXPECT_EQ(builtin.name(), name);
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
            "test.yaml:14:32: unknown key 'latancy'");
  EXPECT_NE(errorOf(replaced(mixed, "    backend: cuda\n", ""))
                .find("missing required key 'backend'"),
            std::string::npos);
}

TEST(Cluster, wrong_clusters_are_refused) {
  EXPECT_EQ(errorOf(""), "test.yaml: expected a cluster, found an empty file");
  EXPECT_EQ(errorOf(replaced(mixed,
                             "network: {bandwidth: 12.5GB/s, latency: "
                             "10us}\n",
                             "")),
            "test.yaml: cluster: expected 'network', because there are 3 "
            "nodes");
  EXPECT_EQ(errorOf(replaced(mixed, "device-type: slow", "device-type: slov")),
            "test.yaml: nodes[1]: unknown device type 'slov'");
  EXPECT_EQ(errorOf(replaced(mixed, "count: 2", "count: 0")),
            "test.yaml: nodes[0]: expected a count of at least 1, found 0");
  EXPECT_EQ(errorOf(replaced(mixed, "backend: cuda", "backend: tpu")),
            "test.yaml: device type 'fast': expected backend 'cpu' or 'cuda', "
            "found 'tpu'");
  EXPECT_EQ(errorOf(replaced(mixed, "f32: 10TFLOPS", "f16: 10TFLOPS")),
            "test.yaml: device type 'fast': unknown dtype 'f16' in flops, "
            "expected 'f32', 'bf16' or 'f64'");
  EXPECT_EQ(
      errorOf(replaced(mixed, "overlap-slowdown: 1.25", "overlap-slowdown: 3")),
      "test.yaml: device type 'slow': expected an overlap slowdown "
      "between 1 and 2");
  EXPECT_NE(errorOf("name: [1"), "no error");
  EXPECT_NE(errorOf("just text"), "no error");
  llvm::Expected<Cluster> missing = Cluster::load("no-such-cluster");
  ASSERT_FALSE(missing);
  EXPECT_NE(llvm::toString(missing.takeError()).find("8xrtx-titan"),
            std::string::npos);
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

TEST(Cluster, ring_times) {
  Link link{1e9, 1e-6};
  EXPECT_DOUBLE_EQ(allReduceSeconds(link, 4, 4e9), 2 * 3 * (1e-6 + 1));
  EXPECT_DOUBLE_EQ(allGatherSeconds(link, 4, 4e9), 3 * (1e-6 + 1));
  EXPECT_DOUBLE_EQ(reduceScatterSeconds(link, 2, 4e9), 1e-6 + 2);
  EXPECT_EQ(allReduceSeconds(link, 1, 4e9), 0);
  EXPECT_DOUBLE_EQ(pointToPointSeconds(link, 1e9), 1 + 1e-6);
}

} // namespace
