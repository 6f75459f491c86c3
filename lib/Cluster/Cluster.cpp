//===- Cluster.cpp - Devices, nodes and links -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Strategy/Dtype.h"
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

Expected<Cluster> Cluster::get(ClusterDescription description) {
  Cluster cluster;
  const std::vector<DeviceType> &deviceTypes = description.deviceTypes;
  const std::vector<NodeGroup> &nodes = description.nodes;
  const std::optional<Link> &network = description.network;
  const std::vector<std::vector<double>> &matrix = description.matrix;
  if (description.name.empty())
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
    if (type.reservedMemory < 0 || type.reservedMemory >= type.memory)
      return makeError(where + ": expected a reserved memory below the memory");
    if (type.flops.empty())
      return makeError(where + ": expected flops for at least one dtype");
    for (const auto &[dtype, rate] : type.flops) {
      if (!isPlannedDtype(dtype))
        return makeError(where + ": unknown dtype '" + dtype +
                         "' in flops, expected " + plannedDtypeList());
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
    if (!(type.hostOverhead >= 0))
      return makeError(where + ": expected a host overhead of at least 0");
    if (!(type.hostBandwidth >= 0) || !(type.hostMemoryBandwidth >= 0))
      return makeError(where + ": expected a bandwidth of the host, and of its "
                               "memory, of at least 0");
    if (type.optimizerBandwidth && !(*type.optimizerBandwidth >= 0))
      return makeError(where +
                       ": expected an optimizer bandwidth of at least 0");
    if (Error error = type.efficiency.check(where + ".efficiency"))
      return error;
    if (Error error =
            type.attentionEfficiency.check(where + ".attention-efficiency"))
      return error;
  }

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
    if (group.count > kMostDevices || group.devices > kMostDevices ||
        total + group.count * group.devices > kMostDevices)
      return makeError(where + ": more than 2^20 devices");
    total += group.count * group.devices;
    if (group.devices > 1)
      if (Error error = checkLink(group.link, where + ".link"))
        return error;
    if (group.network)
      if (Error error = checkLink(*group.network, where + ".network"))
        return error;
    if (group.cores < 0)
      return makeError(where + ": expected at least 1 core, found " +
                       Twine(group.cores));
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
  if (network)
    if (Error error = checkLink(*network, "network"))
      return error;
  if (!network && cluster.nodeCount() > 1 &&
      !all_of(nodes, [](const NodeGroup &group) { return group.network; }))
    return makeError("cluster: expected 'network', because there are " +
                     Twine(cluster.nodeCount()) + " nodes");
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
  for (size_t i = 0; i < description.collectives.size(); ++i)
    if (Error error =
            description.collectives[i].check("collectives[" + Twine(i) + "]"))
      return error;
  cluster.description = std::move(description);
  return cluster;
}

StringRef Cluster::backend() const {
  StringRef first = deviceType(0).backend;
  for (int64_t device = 1; device < deviceCount(); ++device)
    if (deviceType(device).backend != first)
      return "";
  return first;
}

int64_t Cluster::threadsPerDevice() const {
  int64_t most = 1;
  for (const NodeGroup &group : description.nodes)
    most = std::max(most, group.threadsPerDevice());
  return most;
}

StringRef Cluster::backendOf(ArrayRef<int64_t> devices) const {
  StringRef first = deviceType(devices.front()).backend;
  for (int64_t device : devices)
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

int64_t Cluster::budgetOf(ArrayRef<int64_t> devices,
                          std::optional<int64_t> memory) const {
  int64_t least = INT64_MAX;
  for (int64_t device : devices) {
    const DeviceType &type = deviceType(device);
    least = std::min(least, memory.value_or(type.memory) - type.reservedMemory);
  }
  return least;
}

int64_t Cluster::memoryFor(ArrayRef<int64_t> devices, int64_t bytes) const {
  int64_t reserved = 0;
  for (int64_t device : devices)
    reserved = std::max(reserved, deviceType(device).reservedMemory);
  return bytes + reserved;
}

double Cluster::flopsTogether(ArrayRef<int64_t> devices,
                              StringRef dtype) const {
  double contention = 1;
  for (int64_t device : devices)
    contention = std::max(contention, coreContention(device));
  return flopsOf(devices, dtype) / contention;
}

bool Cluster::isNominal() const {
  if (isBuiltinPattern(name())) {
    Expected<Cluster> nominal = builtin(name());
    if (nominal)
      return *nominal == *this;
    consumeError(nominal.takeError());
  }
  // A file of built-in types has their figures.
  return description.collectives.empty() &&
         all_of(description.deviceTypes, [](const DeviceType &type) {
           Expected<Cluster> nominal = builtin("1x" + type.name);
           if (nominal)
             return nominal->deviceTypes().front() == type;
           consumeError(nominal.takeError());
           return false;
         });
}

double Cluster::coreContention(int64_t device) const {
  const NodeGroup &group = description.nodes[deviceGroup[device]];
  if (group.cores == 0)
    return 1;
  return std::max(1.0, static_cast<double>(group.devices) /
                           static_cast<double>(group.cores));
}

bool Cluster::sharesCores() const {
  return any_of(description.nodes, [](const NodeGroup &group) {
    return group.cores > 0 && group.devices > group.cores;
  });
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

const Link &Cluster::uplink(int64_t device) const {
  const NodeGroup &group = description.nodes[deviceGroup[device]];
  return group.network ? *group.network : *description.network;
}

Link Cluster::linkBetween(int64_t a, int64_t b) const {
  Link link;
  if (nodeOf(a) == nodeOf(b)) {
    link = description.nodes[deviceGroup[a]].link;
  } else {
    const Link &from = uplink(a), &to = uplink(b);
    link = {std::min(from.bandwidth, to.bandwidth),
            std::max(from.latency, to.latency)};
  }
  if (hasBandwidthMatrix())
    link.bandwidth = description.matrix[a][b];
  return link;
}

Link Cluster::pairLink(int64_t a, int64_t b) const {
  const CollectiveTable *table = tableFor(Collective::Send, {a, b});
  if (!table)
    return linkBetween(a, b);
  auto [bytes0, seconds0] = table->times.front();
  auto [bytes1, seconds1] = table->times.back();
  if (table->times.size() == 1 || seconds1 <= seconds0)
    return {static_cast<double>(bytes1) / seconds1, 0};
  double perByte = (seconds1 - seconds0) / static_cast<double>(bytes1 - bytes0);
  return {1 / perByte,
          std::max(0.0, seconds0 - perByte * static_cast<double>(bytes0))};
}

bool Cluster::linksByNode() const {
  return !hasBandwidthMatrix() &&
         none_of(description.collectives, [](const CollectiveTable &table) {
           return table.kind == Collective::Send && table.stride != 0;
         });
}

/// The first table of a kind for such a ring; one with a stride wins. Strides
/// are of rings whose neighbours are all as far apart.
const CollectiveTable *Cluster::tableFor(Collective kind,
                                         ArrayRef<int64_t> ring) const {
  if (description.collectives.empty())
    return nullptr;
  auto ranks = static_cast<int64_t>(ring.size());
  bool across = any_of(
      ring, [&](int64_t rank) { return nodeOf(rank) != nodeOf(ring[0]); });
  int64_t stride = ring.size() > 1 ? std::abs(ring[1] - ring[0]) : 0;
  bool hasStride = true;
  for (size_t i = 1; i + 1 < ring.size(); ++i)
    hasStride &= std::abs(ring[i + 1] - ring[i]) == stride;
  const CollectiveTable *found = nullptr;
  for (const CollectiveTable &table : description.collectives) {
    if (table.kind != kind || table.ranks != ranks ||
        table.acrossNodes != across)
      continue;
    if (table.stride == 0)
      found = found ? found : &table;
    else if (hasStride && table.stride == stride)
      return &table;
  }
  return found;
}

/// Members of a ring that follow each other on one node, at most; 1 if all are
/// on one.
int64_t Cluster::mostOnOneNode(ArrayRef<int64_t> ring) const {
  if (ring.empty() || nodeOf(ring.front()) == nodeOf(ring.back()))
    return 1;
  int64_t most = 0, run = 0;
  for (size_t i = 0; i < ring.size(); ++i) {
    run = i > 0 && nodeOf(ring[i]) == nodeOf(ring[i - 1]) ? run + 1 : 1;
    most = std::max(most, run);
  }
  return most;
}

Link Cluster::linkOfGroup(ArrayRef<int64_t> group) const {
  return linkOfGroups(std::vector<int64_t>(group.begin(), group.end()));
}

GroupLink
Cluster::linkOfGroups(ArrayRef<std::vector<int64_t>> concurrent) const {
  // Ring edges that leave each node, which share its uplink.
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
  GroupLink slowest;
  edges([&](int64_t from, int64_t to) {
    Link link = linkBetween(from, to);
    if (nodeOf(from) != nodeOf(to)) {
      // Data leaves one node's uplink and enters by the other's.
      for (int64_t end : {from, to}) {
        int64_t edgesThere = leaving[nodeOf(end)];
        link.bandwidth =
            std::min(link.bandwidth,
                     uplink(end).bandwidth / static_cast<double>(edgesThere));
        slowest.sharing = std::max(slowest.sharing, edgesThere);
      }
    }
    if (slowest.bandwidth == 0 || link.bandwidth < slowest.bandwidth)
      slowest.bandwidth = link.bandwidth;
    slowest.latency = std::max(slowest.latency, link.latency);
  });
  // The groups of a level are of one size; those that span nodes decide.
  const std::vector<int64_t> *widest = nullptr;
  for (const std::vector<int64_t> &ring : concurrent) {
    if (ring.size() < 2)
      continue;
    bool across = nodeOf(ring.front()) != nodeOf(ring.back());
    if (!widest ||
        (across && nodeOf(widest->front()) == nodeOf(widest->back())))
      widest = &ring;
  }
  if (widest) {
    slowest.ranks = static_cast<int64_t>(widest->size());
    slowest.perNode = mostOnOneNode(*widest);
    for (int kind = 0; kind < kCollectiveCount; ++kind)
      slowest.tables[kind] = tableFor(static_cast<Collective>(kind), *widest);
  }
  return slowest;
}

GroupLink
Cluster::lowestLinkOfGroups(ArrayRef<std::vector<int64_t>> groups) const {
  GroupLink lowest;
  for (const std::vector<int64_t> &group : groups) {
    lowest.ranks = std::max(lowest.ranks, static_cast<int64_t>(group.size()));
    lowest.perNode = std::max(lowest.perNode, mostOnOneNode(group));
    for (size_t i = 0; i < group.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        Link link = linkBetween(group[i], group[j]);
        if (lowest.bandwidth == 0 || link.bandwidth < lowest.bandwidth)
          lowest.bandwidth = link.bandwidth;
        lowest.latency = std::max(lowest.latency, link.latency);
      }
  }
  return lowest;
}

double GroupLink::seconds(Collective kind, double bytes) const {
  if (ranks < 2)
    return 0;
  if (const CollectiveTable *table = tables[static_cast<int>(kind)]) {
    // More groups on the same uplink than were measured: as if each moved more.
    double more = std::max(1.0, static_cast<double>(sharing) /
                                    static_cast<double>(table->concurrent));
    return table->seconds(bytes * more);
  }
  switch (kind) {
  case Collective::AllReduce:
    return seconds(Collective::ReduceScatter, bytes) +
           seconds(Collective::AllGather, bytes);
  case Collective::AllGather:
    return allGatherSeconds(*this, ranks, bytes);
  case Collective::ReduceScatter:
    return reduceScatterSeconds(*this, ranks, bytes);
  case Collective::Send:
    return pointToPointSeconds(*this, bytes);
  case Collective::AllToAll:
    return allToAllSeconds(*this, ranks, bytes, perNode);
  case Collective::Shift:
    return shiftSeconds(*this, ranks, bytes);
  }
  return 0;
}

const std::string &Cluster::hash() const {
  std::call_once(known->once, [&] {
    known->text = contentHash(
        with([](ClusterDescription &to) { to.name = "cluster"; }).toYaml());
  });
  return known->text;
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

double shiftSeconds(const Link &link, int64_t ranks, double bytes) {
  return ranks < 2 ? 0 : pointToPointSeconds(link, bytes);
}

double allToAllSeconds(const Link &link, int64_t ranks, double bytes,
                       int64_t perNode) {
  if (ranks < 2)
    return 0;
  // Blocks that leave a node, or a member if there is one a node.
  double n = static_cast<double>(ranks), m = static_cast<double>(perNode);
  return (n - 1) * link.latency + m * (n - m) * (bytes / n / link.bandwidth);
}

double pointToPointSeconds(const Link &link, double bytes) {
  return link.latency + bytes / link.bandwidth;
}

} // namespace galvatron
