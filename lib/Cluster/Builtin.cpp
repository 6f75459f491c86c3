//===- Builtin.cpp - Built-in clusters ------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Support/Units.h"

using namespace llvm;

namespace galvatron {
namespace {

constexpr int64_t GiB = int64_t(1) << 30;

/// Of a data sheet's dense peak (never the one with sparsity), the part that
/// the largest products are taken to reach; of its memory bandwidth, the part
/// that streaming kernels reach. Assumptions, where no measurement is named.
constexpr double ofPeak = 0.8;
constexpr double ofMemoryBandwidth = 0.85;

/// `f32`, `bf16` and `f64` are FLOP/s of large products. The curve's half size,
/// the reserve and the slowdown are those found for the TITAN RTX, see
/// rtxTitan().
DeviceType gpu(StringRef name, int64_t memory, double f32, double bf16,
               double f64, double memoryBandwidth) {
  DeviceType type;
  type.name = name.str();
  type.backend = "cuda";
  type.memory = memory;
  type.reservedMemory = GiB * 13 / 10;
  type.flops = {{"f32", f32}, {"f64", f64}};
  if (bf16 > 0)
    type.flops["bf16"] = bf16;
  type.efficiency = EfficiencyCurve::hyperbola(250);
  type.memoryBandwidth = ofMemoryBandwidth * memoryBandwidth;
  // arXiv 2307.02031, Fig. 7.
  type.overlapSlowdown = 1.3;
  type.kernelOverhead = 5e-6;
  return type;
}

/// One core of a current server, nominal: 60 GFLOP/s in f32 is 0.93 of what an
/// AVX-512 core reaches in oneDNN at 2 GHz; f64 runs through a plain blocked
/// loop. Ranks are threads that do not overlap communication with anything.
DeviceType cpuCore() {
  DeviceType type;
  type.name = "cpu-core";
  type.backend = "cpu";
  type.memory = 4 * GiB;
  type.flops = {{"f32", 60e9}, {"f64", 4e9}, {"bf16", 100e9}};
  type.memoryBandwidth = 8e9;
  type.overlapSlowdown = 2;
  type.kernelOverhead = 2e-6;
  return type;
}

/// TU102, NVIDIA TITAN RTX data sheet: 24 GB, 672 GB/s, 16.3 TFLOP/s in f32,
/// f64 1/32 of it. Calibrated on the given part of Table II of arXiv 2307.02031
/// (benchmarks/planner/table2), four figures beside the paper's slowdown: 10
/// TFLOP/s for large products, half of it at size 250, 1.3 GiB reserved,
/// and 4.6 GB/s ring bandwidth over 8 cards (pcie3 below).
DeviceType rtxTitan() {
  return gpu("rtx-titan", 24 * GiB, 10e12, 0, 16.3e12 / 32 * ofPeak, 672e9);
}

/// GA100, NVIDIA A100 data sheet: bf16 312, f32 (not TF32) 19.5, f64 (tensor)
/// 19.5 TFLOP/s; 1555 GB/s (40 GB) or 2039 GB/s (80 GB).
DeviceType a100(int64_t memory, StringRef name, double bandwidth) {
  return gpu(name, memory, 19.5e12 * ofPeak, 312e12 * ofPeak, 19.5e12 * ofPeak,
             bandwidth);
}

/// GH100, NVIDIA H100 SXM and H200 data sheets: bf16 989, f32 67, f64 (tensor)
/// 67 TFLOP/s; 3.35 TB/s and 80 GB, 4.8 TB/s and 141 GB.
DeviceType h100() {
  return gpu("h100", 79 * GiB, 67e12 * ofPeak, 989e12 * ofPeak, 67e12 * ofPeak,
             3.35e12);
}
DeviceType h200() {
  return gpu("h200", 139 * GiB, 67e12 * ofPeak, 989e12 * ofPeak, 67e12 * ofPeak,
             4.8e12);
}

/// AD102, NVIDIA Ada whitepaper, RTX 4090: f32 82.6, bf16 with f32 accumulation
/// 165.2, f64 1/64 of f32; 1008 GB/s, 24 GB.
DeviceType rtx4090() {
  return gpu("rtx-4090", 24 * GiB, 82.6e12 * ofPeak, 165.2e12 * ofPeak,
             82.6e12 / 64 * ofPeak, 1008e9);
}

// Ring bandwidths (one direction, as an all-reduce sees them).
/// Between threads of one process: two passes over shared memory.
const Link threadLink = {3e9, 10e-6};
/// Ethernet of 10 Gb/s between CPU nodes, about 0.9 of the wire.
const Link ethernet10 = {1.1e9, 50e-6};
/// PCIe 3.0 x16 among 8 cards behind shared switches, see rtxTitan().
const Link pcie3 = {4.6e9, 20e-6};
/// PCIe 4.0 x16 without peer-to-peer (consumer cards): through host memory.
const Link pcie4Host = {9e9, 25e-6};
/// NVLink 3 (A100 with NVSwitch): 300 GB/s a direction, about 0.75 reached.
const Link nvlink3 = {225e9, 8e-6};
/// NVLink 4 (H100, H200): 450 GB/s a direction, about 0.75 reached.
const Link nvlink4 = {340e9, 8e-6};
/// InfiniBand per node: 100 Gb/s is 12.5 GB/s, 400 Gb/s is 50 GB/s; 0.9
/// reached.
const Link infiniband100 = {11.25e9, 10e-6};
const Link infiniband400 = {45e9, 10e-6};
/// H100/H200 nodes carry eight 400 Gb/s adapters.
const Link infiniband8x400 = {360e9, 10e-6};

struct Entry {
  const char *name;
  DeviceType (*type)();
  int64_t nodes, devices;
  const Link *link;
  const Link *network;
};

const Entry entries[] = {
    {"1xcpu", cpuCore, 1, 1, &threadLink, nullptr},
    {"2xcpu", cpuCore, 1, 2, &threadLink, nullptr},
    {"4xcpu", cpuCore, 1, 4, &threadLink, nullptr},
    {"8xcpu", cpuCore, 1, 8, &threadLink, nullptr},
    {"16xcpu", cpuCore, 1, 16, &threadLink, nullptr},
    {"32xcpu", cpuCore, 1, 32, &threadLink, nullptr},
    {"64xcpu", cpuCore, 1, 64, &threadLink, nullptr},
    {"2x8xcpu", cpuCore, 2, 8, &threadLink, &ethernet10},
    // Clusters (a) to (e) of arXiv 2307.02031: 8xrtx-titan, 2x8xrtx-titan,
    // 2x8xa100-40gb, 8x8xa100-40gb, 4x8xa100-80gb.
    {"8xrtx-titan", rtxTitan, 1, 8, &pcie3, nullptr},
    {"2x8xrtx-titan", rtxTitan, 2, 8, &pcie3, &infiniband100},
    {"8xa100-40gb", [] { return a100(40 * GiB, "a100-40gb", 1555e9); }, 1, 8,
     &nvlink3, nullptr},
    {"2x8xa100-40gb", [] { return a100(40 * GiB, "a100-40gb", 1555e9); }, 2, 8,
     &nvlink3, &infiniband100},
    {"8x8xa100-40gb", [] { return a100(40 * GiB, "a100-40gb", 1555e9); }, 8, 8,
     &nvlink3, &infiniband100},
    {"8xa100-80gb", [] { return a100(80 * GiB, "a100-80gb", 2039e9); }, 1, 8,
     &nvlink3, nullptr},
    {"4x8xa100-80gb", [] { return a100(80 * GiB, "a100-80gb", 2039e9); }, 4, 8,
     &nvlink3, &infiniband400},
    {"1xh100", h100, 1, 1, &nvlink4, nullptr},
    {"8xh100", h100, 1, 8, &nvlink4, nullptr},
    {"2x8xh100", h100, 2, 8, &nvlink4, &infiniband8x400},
    {"1xh200", h200, 1, 1, &nvlink4, nullptr},
    {"8xh200", h200, 1, 8, &nvlink4, nullptr},
    {"4xrtx-4090", rtx4090, 1, 4, &pcie4Host, nullptr},
    {"8xrtx-4090", rtx4090, 1, 8, &pcie4Host, nullptr},
};

} // namespace

std::vector<std::string> Cluster::builtinNames() {
  std::vector<std::string> names;
  for (const Entry &entry : entries)
    names.push_back(entry.name);
  return names;
}

Expected<Cluster> Cluster::builtin(StringRef name) {
  for (const Entry &entry : entries) {
    if (name != entry.name)
      continue;
    DeviceType type = entry.type();
    NodeGroup group{entry.nodes, type.name, entry.devices,
                    entry.devices > 1 ? *entry.link : Link()};
    std::optional<Link> network;
    if (entry.network)
      network = *entry.network;
    return get(entry.name, {type}, {group}, network);
  }
  return makeError("unknown built-in cluster '" + name + "'");
}

} // namespace galvatron
