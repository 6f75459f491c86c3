//===- Cluster.cpp - Devices, nodes and links -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Support/Hash.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {

static Error checkLink(const Link &link, const Twine &where) {
  if (!(link.bandwidth > 0))
    return makeError(where + ": expected a bandwidth above 0");
  if (!(link.latency >= 0))
    return makeError(where + ": expected a latency of at least 0");
  return Error::success();
}

Expected<Cluster> Cluster::get(std::string name,
                               std::vector<DeviceType> deviceTypes,
                               std::vector<NodeGroup> nodes,
                               std::optional<Link> network,
                               std::vector<std::vector<double>> matrix) {
  Cluster cluster;
  if (name.empty())
    return makeError("cluster: expected a name");
  if (deviceTypes.empty())
    return makeError("cluster: expected at least one device type");
  if (nodes.empty())
    return makeError("cluster: expected at least one node");
  StringSet<> names;
  for (const DeviceType &type : deviceTypes) {
    std::string where = "device type '" + type.name + "'";
    if (type.name.empty() || !names.insert(type.name).second)
      return makeError(where + ": expected a name that is used once");
    if (type.backend != "cpu" && type.backend != "cuda")
      return makeError(where + ": expected backend 'cpu' or 'cuda', found '" +
                       type.backend + "'");
    if (type.memory <= 0)
      return makeError(where + ": expected a memory above 0");
    if (type.flops.empty())
      return makeError(where + ": expected flops for at least one dtype");
    for (const auto &[dtype, rate] : type.flops) {
      if (!is_contained({"f32", "bf16", "f64"}, dtype))
        return makeError(where + ": unknown dtype '" + dtype +
                         "' in flops, expected 'f32', 'bf16' or 'f64'");
      if (!(rate > 0))
        return makeError(where + ": expected flops above 0 for '" + dtype +
                         "'");
    }
    if (!(type.memoryBandwidth > 0))
      return makeError(where + ": expected a memory bandwidth above 0");
    if (!(type.overlapSlowdown >= 1 && type.overlapSlowdown <= 2))
      return makeError(where +
                       ": expected an overlap slowdown between 1 and 2");
    if (!(type.kernelOverhead >= 0))
      return makeError(where + ": expected a kernel overhead of at least 0");
  }

  constexpr int64_t maxDevices = 1 << 20;
  int64_t total = 0;
  for (size_t g = 0; g < nodes.size(); ++g) {
    const NodeGroup &group = nodes[g];
    std::string where = "nodes[" + std::to_string(g) + "]";
    auto type = find_if(deviceTypes, [&](const DeviceType &candidate) {
      return candidate.name == group.deviceType;
    });
    if (type == deviceTypes.end())
      return makeError(where + ": unknown device type '" + group.deviceType +
                       "'");
    if (group.count < 1)
      return makeError(where + ": expected a count of at least 1, found " +
                       Twine(group.count));
    if (group.devices < 1)
      return makeError(where + ": expected at least 1 device, found " +
                       Twine(group.devices));
    if (group.count > maxDevices || group.devices > maxDevices ||
        total + group.count * group.devices > maxDevices)
      return makeError(where + ": more than 2^20 devices");
    total += group.count * group.devices;
    if (group.devices > 1)
      if (Error error = checkLink(group.link, where + ".link"))
        return error;
    for (int64_t n = 0; n < group.count; ++n) {
      int64_t node = static_cast<int64_t>(cluster.nodeStart.size());
      cluster.nodeStart.push_back(
          static_cast<int64_t>(cluster.deviceNode.size()));
      for (int64_t d = 0; d < group.devices; ++d) {
        cluster.deviceNode.push_back(node);
        cluster.deviceTypeIndex.push_back(type - deviceTypes.begin());
        cluster.deviceGroup.push_back(g);
      }
    }
  }
  if (network) {
    if (Error error = checkLink(*network, "network"))
      return error;
  } else if (cluster.nodeCount() > 1) {
    return makeError("cluster: expected 'network', because there are " +
                     Twine(cluster.nodeCount()) + " nodes");
  }
  if (!matrix.empty()) {
    int64_t count = cluster.deviceCount();
    if (static_cast<int64_t>(matrix.size()) != count)
      return makeError("bandwidth-matrix: expected " + Twine(count) +
                       " rows, one per device, found " + Twine(matrix.size()));
    for (int64_t i = 0; i < count; ++i) {
      if (static_cast<int64_t>(matrix[i].size()) != count)
        return makeError("bandwidth-matrix: row " + Twine(i) + ": expected " +
                         Twine(count) + " entries, found " +
                         Twine(matrix[i].size()));
      for (int64_t j = 0; j < count; ++j)
        if (i != j && !(matrix[i][j] > 0))
          return makeError("bandwidth-matrix: row " + Twine(i) +
                           ": expected a bandwidth above 0 in column " +
                           Twine(j));
    }
  }
  cluster.clusterName = std::move(name);
  cluster.types = std::move(deviceTypes);
  cluster.groups = std::move(nodes);
  cluster.network = network;
  cluster.bandwidthMatrix = std::move(matrix);
  return cluster;
}

StringRef Cluster::backend() const {
  StringRef first = deviceType(0).backend;
  for (int64_t device = 1; device < deviceCount(); ++device)
    if (deviceType(device).backend != first)
      return "";
  return first;
}

bool Cluster::isUniform() const { return all_equal(deviceTypeIndex); }

int64_t Cluster::memoryOf(ArrayRef<int64_t> devices) const {
  int64_t least = INT64_MAX;
  for (int64_t device : devices)
    least = std::min(least, deviceType(device).memory);
  return least;
}

double Cluster::flopsOf(ArrayRef<int64_t> devices, StringRef dtype) const {
  double least = 0;
  for (int64_t device : devices) {
    const DeviceType &type = deviceType(device);
    auto it = type.flops.find(dtype.str());
    if (it == type.flops.end())
      return 0;
    least = least == 0 ? it->second : std::min(least, it->second);
  }
  return least;
}

Link Cluster::linkBetween(int64_t a, int64_t b) const {
  Link link = nodeOf(a) == nodeOf(b) ? groups[deviceGroup[a]].link : *network;
  if (!bandwidthMatrix.empty())
    link.bandwidth = bandwidthMatrix[a][b];
  return link;
}

Link Cluster::linkOfGroup(ArrayRef<int64_t> group) const {
  return linkOfGroups(std::vector<int64_t>(group.begin(), group.end()));
}

Link Cluster::linkOfGroups(ArrayRef<std::vector<int64_t>> concurrent) const {
  // How many rings leave each node: they share its network link.
  std::vector<int64_t> leaving(nodeStart.size(), 0);
  auto edges = [&](auto visit) {
    for (const std::vector<int64_t> &ring : concurrent)
      for (size_t i = 0; ring.size() > 1 && i < ring.size(); ++i)
        visit(ring[i], ring[(i + 1) % ring.size()]);
  };
  edges([&](int64_t from, int64_t to) {
    if (nodeOf(from) != nodeOf(to))
      ++leaving[nodeOf(from)];
  });
  Link slowest;
  edges([&](int64_t from, int64_t to) {
    Link link = linkBetween(from, to);
    if (bandwidthMatrix.empty() && nodeOf(from) != nodeOf(to))
      link.bandwidth /= static_cast<double>(leaving[nodeOf(from)]);
    if (slowest.bandwidth == 0 || link.bandwidth < slowest.bandwidth)
      slowest.bandwidth = link.bandwidth;
    slowest.latency = std::max(slowest.latency, link.latency);
  });
  return slowest;
}

std::string Cluster::hash() const {
  Cluster copy = *this;
  copy.clusterName = "cluster";
  return contentHash(copy.toYaml());
}

bool Cluster::operator==(const Cluster &other) const {
  return clusterName == other.clusterName && types == other.types &&
         groups == other.groups && network == other.network &&
         bandwidthMatrix == other.bandwidthMatrix;
}

double allReduceSeconds(const Link &link, int64_t ranks, double bytes) {
  return reduceScatterSeconds(link, ranks, bytes) +
         allGatherSeconds(link, ranks, bytes);
}

double allGatherSeconds(const Link &link, int64_t ranks, double bytes) {
  if (ranks < 2)
    return 0;
  double n = static_cast<double>(ranks);
  return (n - 1) * (link.latency + bytes / n / link.bandwidth);
}

double reduceScatterSeconds(const Link &link, int64_t ranks, double bytes) {
  return allGatherSeconds(link, ranks, bytes);
}

double pointToPointSeconds(const Link &link, double bytes) {
  return link.latency + bytes / link.bandwidth;
}

} // namespace galvatron
