//===- RefusalsTest.cpp - What a cluster may not be -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One valid description with everything that one may have. Every check refuses
// what is just beyond its boundary, with its own message, and accepts what is
// just within.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Cluster.h"

#include "gtest/gtest.h"

#include <cmath>
#include <functional>
#include <limits>

using namespace galvatron;

namespace {

const double none = std::numeric_limits<double>::quiet_NaN();

/// Two nodes of two devices and one of one.
ClusterDescription valid() {
  DeviceType fast;
  fast.name = "fast";
  fast.backend = "cuda";
  fast.memory = 1000;
  fast.reservedMemory = 10;
  fast.flops = {{"f32", 1e12}, {"bf16", 4e12}};
  fast.efficiency = EfficiencyCurve({{64, 0.25}, {256, 0.5}});
  fast.attentionEfficiency = EfficiencyCurve({{64, 0.25}});
  fast.memoryBandwidth = 1e9;
  fast.kernelOverhead = fast.hostOverhead = 1e-6;
  fast.optimizerBandwidth = 1e9;
  fast.hostBandwidth = fast.hostMemoryBandwidth = 1e9;
  DeviceType slow = fast;
  slow.name = "slow";
  ClusterDescription description;
  description.name = "valid";
  description.deviceTypes = {fast, slow};
  description.nodes = {{2, "fast", 2, {1e9, 1e-6}, Link{1e8, 1e-6}, 4},
                       {1, "slow", 1, {}, std::nullopt, 0}};
  description.network = Link{1e8, 1e-5};
  description.matrix.assign(5, std::vector<double>(5, 1e8));
  CollectiveTable table;
  table.kind = Collective::Send;
  table.times = {{64, 1e-6}, {128, 1e-6}};
  description.collectives = {table};
  return description;
}

struct Edit {
  std::function<void(ClusterDescription &)> edit;
  const char *message = ""; ///< empty: accepted
};

void expectOutcomes(const std::vector<Edit> &edits) {
  for (size_t i = 0; i < edits.size(); ++i) {
    ClusterDescription description = valid();
    edits[i].edit(description);
    llvm::Expected<Cluster> cluster = Cluster::get(std::move(description));
    EXPECT_EQ(cluster ? "" : llvm::toString(cluster.takeError()),
              edits[i].message)
        << "edit " << i;
  }
}

/// Of the first device type; the second one stays valid.
Edit ofType(std::function<void(DeviceType &)> edit, const char *message = "") {
  return {[edit = std::move(edit)](ClusterDescription &description) {
            edit(description.deviceTypes[0]);
          },
          message};
}

TEST(ClusterRefusals, device_types) {
  const char *overlap =
      "device type 'fast': expected an overlap slowdown between 1 and 2";
  const char *kernel =
      "device type 'fast': expected a kernel overhead of at least 0";
  const char *host =
      "device type 'fast': expected a host overhead of at least 0";
  const char *homes = "device type 'fast': expected a bandwidth of the host, "
                      "and of its memory, of at least 0";
  const char *reserve =
      "device type 'fast': expected a reserved memory below the memory";
  const char *rate = "device type 'fast': expected flops above 0 for 'f32'";
  const char *bandwidth =
      "device type 'fast': expected a memory bandwidth above 0";
  using Type = DeviceType;
  expectOutcomes({
      ofType([](Type &) {}),
      ofType([](Type &t) { t.name = ""; },
             "device type '': expected a name that is used once"),
      ofType([](Type &t) { t.name = "slow"; },
             "device type 'slow': expected a name that is used once"),
      ofType([](Type &t) { t.backend = "CUDA"; },
             "device type 'fast': expected backend 'cpu' or 'cuda', found "
             "'CUDA'"),
      ofType([](Type &t) { t.backend = "cpu"; }),
      ofType([](Type &t) { t.memory = t.reservedMemory = 0; },
             "device type 'fast': expected a memory above 0"),
      ofType([](Type &t) { t.memory = 1, t.reservedMemory = 0; }),
      ofType([](Type &t) { t.reservedMemory = -1; }, reserve),
      ofType([](Type &t) { t.reservedMemory = t.memory; }, reserve),
      ofType([](Type &t) { t.reservedMemory = t.memory - 1; }),
      ofType([](Type &t) { t.flops.clear(); },
             "device type 'fast': expected flops for at least one dtype"),
      ofType([](Type &t) { t.flops["f32"] = 0; }, rate),
      ofType([](Type &t) { t.flops["f32"] = none; }, rate),
      ofType([](Type &t) { t.memoryBandwidth = 0; }, bandwidth),
      ofType([](Type &t) { t.memoryBandwidth = none; }, bandwidth),
      ofType([](Type &t) { t.overlapSlowdown = 1; }),
      ofType([](Type &t) { t.overlapSlowdown = 2; }),
      ofType([](Type &t) { t.overlapSlowdown = std::nextafter(1.0, 0.0); },
             overlap),
      ofType([](Type &t) { t.overlapSlowdown = std::nextafter(2.0, 3.0); },
             overlap),
      ofType([](Type &t) { t.overlapSlowdown = none; }, overlap),
      ofType([](Type &t) { t.kernelOverhead = 0; }),
      ofType([](Type &t) { t.kernelOverhead = -1e-12; }, kernel),
      ofType([](Type &t) { t.kernelOverhead = none; }, kernel),
      ofType([](Type &t) { t.hostOverhead = 0; }),
      ofType([](Type &t) { t.hostOverhead = -1e-12; }, host),
      ofType([](Type &t) { t.hostOverhead = none; }, host),
      ofType([](Type &t) { t.hostBandwidth = t.hostMemoryBandwidth = 0; }),
      ofType([](Type &t) { t.hostBandwidth = -1; }, homes),
      ofType([](Type &t) { t.hostMemoryBandwidth = -1; }, homes),
      ofType([](Type &t) { t.optimizerBandwidth = 0; }),
      ofType([](Type &t) { t.optimizerBandwidth = -1; },
             "device type 'fast': expected an optimizer bandwidth of at least "
             "0"),
      ofType([](Type &t) { t.efficiency = EfficiencyCurve({{64, 1}}); }),
      ofType([](Type &t) { t.efficiency = EfficiencyCurve({{64, 1.001}}); },
             "device type 'fast'.efficiency: expected fractions above 0 and "
             "up to 1"),
      ofType([](Type &t) { t.efficiency = EfficiencyCurve({{64, 0}}); },
             "device type 'fast'.efficiency: expected fractions above 0 and "
             "up to 1"),
      ofType([](Type &t) { t.efficiency = EfficiencyCurve({{0, 0.5}}); },
             "device type 'fast'.efficiency: expected sizes above 0 in "
             "ascending order"),
      ofType(
          [](Type &t) {
            t.attentionEfficiency = EfficiencyCurve({{64, 0.5}, {64, 0.5}});
          },
          "device type 'fast'.attention-efficiency: expected sizes above 0 in "
          "ascending order"),
  });
}

TEST(ClusterRefusals, nodes_and_links) {
  using Description = ClusterDescription;
  expectOutcomes({
      {[](Description &d) { d.name = ""; }, "cluster: expected a name"},
      {[](Description &d) { d.deviceTypes.clear(); },
       "cluster: expected at least one device type"},
      {[](Description &d) { d.nodes.clear(); },
       "cluster: expected at least one node"},
      {[](Description &d) { d.nodes[1].deviceType = "none"; },
       "nodes[1]: unknown device type 'none'"},
      {[](Description &d) { d.nodes[1].count = 0; },
       "nodes[1]: expected a count of at least 1, found 0"},
      {[](Description &d) { d.nodes[1].devices = 0; },
       "nodes[1]: expected at least 1 device, found 0"},
      // A node of one device has no link.
      {[](Description &d) { d.nodes[1].link = {-1, -1}; }},
      {[](Description &d) { d.nodes[0].link.bandwidth = 0; },
       "nodes[0].link: expected a bandwidth above 0"},
      {[](Description &d) { d.nodes[0].link.latency = 0; }},
      {[](Description &d) { d.nodes[0].link.latency = -1e-12; },
       "nodes[0].link: expected a latency of at least 0"},
      {[](Description &d) { d.nodes[0].network->bandwidth = none; },
       "nodes[0].network: expected a bandwidth above 0"},
      {[](Description &d) { d.nodes[0].network->latency = none; },
       "nodes[0].network: expected a latency of at least 0"},
      {[](Description &d) { d.network->bandwidth = 0; },
       "network: expected a bandwidth above 0"},
      {[](Description &d) { d.nodes[0].cores = 0; }},
      {[](Description &d) { d.nodes[0].cores = -1; },
       "nodes[0]: expected at least 1 core, found -1"},
      {[](Description &d) { d.network.reset(); },
       "cluster: expected 'network', because there are 3 nodes"},
      // All nodes have links of their own.
      {[](Description &d) {
        d.network.reset();
        d.nodes[1].network = Link{1e8, 0};
      }},
  });
  // A single node needs no network.
  Description alone = valid();
  alone.nodes = {{1, "fast", 2, {1e9, 0}, std::nullopt, 0}};
  alone.network.reset();
  alone.matrix.clear();
  EXPECT_EQ(llvm::cantFail(Cluster::get(alone)).deviceCount(), 2);
}

TEST(ClusterRefusals, as_many_devices_as_can_be_planned_for) {
  auto of = [](int64_t count, const char *type, int64_t devices) {
    return NodeGroup{count, type, devices, {1e9, 0}, std::nullopt, 0};
  };
  auto outcome = [](std::vector<NodeGroup> nodes) {
    ClusterDescription description = valid();
    description.nodes = std::move(nodes);
    description.matrix.clear();
    llvm::Expected<Cluster> cluster = Cluster::get(std::move(description));
    return cluster ? std::to_string(cluster->deviceCount())
                   : llvm::toString(cluster.takeError());
  };
  EXPECT_EQ(outcome({of(1 << 19, "fast", 2)}), "1048576");
  EXPECT_EQ(outcome({of(1 << 19, "fast", 2), of(1, "slow", 1)}),
            "nodes[1]: more than 2^20 devices");
  // Products that 64 bits do not hold, too.
  EXPECT_EQ(outcome({of(int64_t(1) << 40, "fast", int64_t(1) << 40)}),
            "nodes[0]: more than 2^20 devices");
  EXPECT_EQ(outcome({of(1, "fast", (1 << 20) + 1)}),
            "nodes[0]: more than 2^20 devices");
}

TEST(ClusterRefusals, matrices_and_collectives) {
  using Description = ClusterDescription;
  const char *order = "collectives[0]: expected sizes in ascending order, and "
                      "times above 0 that do not fall";
  const char *groups = "collectives[0]: expected a stride of at least 1 and at "
                       "least 1 concurrent group";
  expectOutcomes({
      {[](Description &d) { d.matrix.pop_back(); },
       "bandwidth-matrix: expected 5 rows, one per device, found 4"},
      {[](Description &d) { d.matrix[3].push_back(1); },
       "bandwidth-matrix: row 3: expected 5 entries, found 6"},
      {[](Description &d) { d.matrix[4][0] = 0; },
       "bandwidth-matrix: row 4: expected a bandwidth above 0 in column 0"},
      {[](Description &d) { d.matrix[0][4] = none; },
       "bandwidth-matrix: row 0: expected a bandwidth above 0 in column 4"},
      // Nothing is sent from a device to itself.
      {[](Description &d) { d.matrix[2][2] = 0; }},
      {[](Description &d) { d.collectives[0].ranks = 3; },
       "collectives[0]: expected 2 ranks, found 3"},
      {[](Description &d) { d.collectives[0].ranks = 1; },
       "collectives[0]: expected 2 ranks, found 1"},
      {[](Description &d) {
        d.collectives[0].kind = Collective::AllGather;
        d.collectives[0].ranks = 3;
      }},
      {[](Description &d) {
         d.collectives[0].kind = Collective::AllGather;
         d.collectives[0].ranks = 1;
       },
       "collectives[0]: expected at least 2 ranks, found 1"},
      {[](Description &d) { d.collectives[0].stride = -1; }, groups},
      {[](Description &d) { d.collectives[0].concurrent = 0; }, groups},
      {[](Description &d) { d.collectives[0].times.clear(); },
       "collectives[0]: expected times [[bytes, seconds], ..]"},
      {[](Description &d) { d.collectives[0].times[1].first = 64; }, order},
      {[](Description &d) { d.collectives[0].times[1].second = 0.9e-6; },
       order},
      {[](Description &d) { d.collectives[0].times[0].second = 0; }, order},
      {[](Description &d) { d.collectives[0].times[0].first = 0; }, order},
      {[](Description &d) {
         d.collectives.push_back(d.collectives[0]);
         d.collectives[1].times.clear();
       },
       "collectives[1]: expected times [[bytes, seconds], ..]"},
  });
}

TEST(ClusterRefusals, patterns_and_files) {
  for (const char *name : {"h100", "8h100", "x8xh100", "08xh100"})
    EXPECT_EQ(llvm::toString(Cluster::builtin(name).takeError()),
              std::string("unknown built-in cluster '") + name +
                  "', expected MxTYPE or NxMxTYPE as in '8xh100' and "
                  "'4x8xa100-80gb'");
  auto errorOf = [](const char *collective) {
    std::string text = "name: c\nnodes: [{device-type: h100, devices: 2}]\n"
                       "collectives:\n  - {kind: all-reduce, ranks: 2, " +
                       std::string(collective) + "}\n";
    llvm::Expected<Cluster> cluster = Cluster::parse(text, "test.yaml");
    return cluster ? "" : llvm::toString(cluster.takeError());
  };
  EXPECT_EQ(errorOf("span: node, times: [[64B, 1us]]"), "");
  EXPECT_EQ(errorOf("span: rack, times: [[64B, 1us]]"),
            "test.yaml: collectives[0]: expected span 'node' or 'network', "
            "found 'rack'");
  EXPECT_EQ(errorOf("span: node, times: [[64B, 1us, 2us]]"),
            "test.yaml: collectives[0].times[0]: expected [size, time]");
}

} // namespace
