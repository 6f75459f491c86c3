//===- Builtin.cpp - Built-in clusters ------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/StringExtras.h"

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

/// GV100, NVIDIA V100 SXM2 data sheet: f16 (tensor) 125, f32 15.7, f64 7.8
/// TFLOP/s; 900 GB/s, 16 GB. It has no bf16.
DeviceType v100() {
  DeviceType type =
      gpu("v100-16gb", 16 * GiB, 15.7e12 * ofPeak, 0, 7.8e12 * ofPeak, 900e9);
  type.flops["f16"] = 125e12 * ofPeak;
  return type;
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
/// NVLink 2 (V100, six links of 25 GB/s a direction), about 0.75 reached.
const Link nvlink2 = {112e9, 8e-6};
/// NVLink 3 (A100 with NVSwitch): 300 GB/s a direction, about 0.75 reached.
const Link nvlink3 = {225e9, 8e-6};
/// NVLink 4 (H100, H200): 450 GB/s a direction, about 0.75 reached.
const Link nvlink4 = {340e9, 8e-6};
/// Ethernet of 25 Gb/s a node, about 0.9 of the wire: cloud nodes of V100s.
const Link ethernet25 = {2.8e9, 50e-6};
/// InfiniBand per node: 100 Gb/s is 12.5 GB/s, 400 Gb/s is 50 GB/s; 0.9
/// reached.
const Link infiniband100 = {11.25e9, 10e-6};
const Link infiniband400 = {45e9, 10e-6};
/// H100/H200 nodes carry eight 400 Gb/s adapters.
const Link infiniband8x400 = {360e9, 10e-6};

/// A device type with what joins its devices inside a node, and nodes.
struct BuiltinType {
  const char *name;
  DeviceType (*type)();
  const Link *link;
  const Link *network;
  const char *description;
};

// Clusters (a) to (e) of arXiv 2307.02031 are 8xrtx-titan, 2x8xrtx-titan,
// 2x8xa100-40gb, 8x8xa100-40gb and 4x8xa100-80gb.
const BuiltinType builtins[] = {
    {"cpu", cpuCore, &threadLink, &ethernet10,
     "a core of a current server; Ethernet of 10 Gb/s"},
    {"rtx-titan", rtxTitan, &pcie3, &infiniband100,
     "NVIDIA TITAN RTX, 24 GB, PCIe 3.0; InfiniBand of 100 Gb/s a node"},
    {"rtx-4090", rtx4090, &pcie4Host, &infiniband100,
     "NVIDIA RTX 4090, 24 GB, PCIe 4.0 through the host; InfiniBand of 100 "
     "Gb/s a node"},
    {"v100-16gb", v100, &nvlink2, &ethernet25,
     "NVIDIA V100 SXM2, 16 GB, NVLink 2; Ethernet of 25 Gb/s a node"},
    {"a100-40gb", [] { return a100(40 * GiB, "a100-40gb", 1555e9); }, &nvlink3,
     &infiniband100,
     "NVIDIA A100, 40 GB, NVLink 3; InfiniBand of 100 Gb/s a node"},
    {"a100-80gb", [] { return a100(80 * GiB, "a100-80gb", 2039e9); }, &nvlink3,
     &infiniband400,
     "NVIDIA A100, 80 GB, NVLink 3; InfiniBand of 400 Gb/s a node"},
    {"h100", h100, &nvlink4, &infiniband8x400,
     "NVIDIA H100 SXM, 80 GB, NVLink 4; InfiniBand of 8 x 400 Gb/s a node"},
    {"h200", h200, &nvlink4, &infiniband8x400,
     "NVIDIA H200, 141 GB, NVLink 4; InfiniBand of 8 x 400 Gb/s a node"},
};

/// Takes "Nx" off the front: a number of at least 1 without leading zeros.
/// Returns 0, and leaves the text alone, if there is none; numbers beyond the
/// largest cluster count as one too many.
int64_t takeCount(StringRef &text) {
  size_t digits = text.take_while(isDigit).size();
  if (digits == 0 || text[0] == '0' ||
      !text.drop_front(digits).starts_with("x"))
    return 0;
  int64_t count = 0;
  if (text.take_front(digits).getAsInteger(10, count))
    count = kMostDevices + 1;
  text = text.drop_front(digits + 1);
  return std::min(count, kMostDevices + 1);
}

} // namespace

std::vector<std::string> Cluster::builtinTypes() {
  std::vector<std::string> names;
  for (const BuiltinType &builtin : builtins)
    names.push_back(builtin.name);
  return names;
}

StringRef Cluster::describeBuiltinType(StringRef name) {
  for (const BuiltinType &builtin : builtins)
    if (name == builtin.name)
      return builtin.description;
  return "";
}

bool Cluster::isBuiltinPattern(StringRef name) {
  if (!takeCount(name))
    return false;
  takeCount(name);
  return !name.empty() && isAlpha(name[0]) && !name.contains('/') &&
         !name.contains('.');
}

Expected<Cluster> Cluster::builtin(StringRef name) {
  StringRef typeName = name;
  int64_t nodes = 1, devices = takeCount(typeName);
  if (int64_t second = devices ? takeCount(typeName) : 0) {
    nodes = devices;
    devices = second;
  }
  if (!devices)
    return makeError("unknown built-in cluster '" + name +
                     "', expected MxTYPE or NxMxTYPE as in '8xh100' and "
                     "'4x8xa100-80gb'");
  if (devices > kMostDevices || nodes > kMostDevices / devices)
    return makeError("built-in cluster '" + name + "': expected at most " +
                     Twine(kMostDevices) + " devices");
  for (const BuiltinType &builtin : builtins) {
    if (typeName != builtin.name)
      continue;
    DeviceType type = builtin.type();
    NodeGroup group{nodes, type.name, devices,
                    devices > 1 ? *builtin.link : Link()};
    std::optional<Link> network;
    if (nodes > 1)
      network = *builtin.network;
    return get(name.str(), {type}, {group}, network);
  }
  std::vector<std::string> known = builtinTypes();
  return makeError("built-in cluster '" + name + "': unknown device type '" +
                   typeName + "', expected one of " + join(known, ", ") +
                   didYouMean(typeName, known));
}

} // namespace galvatron
