//===- Variants.cpp - Clusters that differ from a given one ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Cluster.h"

#include <cmath>

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace galvatron {

Cluster Cluster::with(function_ref<void(ClusterDescription &)> change) const {
  Cluster other = *this;
  change(other.description);
  other.known = std::make_shared<Hash>();
  return other;
}

Cluster Cluster::scaled(double memory, double bandwidth) const {
  return with([&](ClusterDescription &to) {
    for (DeviceType &type : to.deviceTypes)
      type.memory = static_cast<int64_t>(
          std::floor(static_cast<double>(type.memory) * memory));
    for (NodeGroup &group : to.nodes) {
      group.link.bandwidth *= bandwidth;
      if (group.network)
        group.network->bandwidth *= bandwidth;
    }
    if (to.network)
      to.network->bandwidth *= bandwidth;
    for (std::vector<double> &row : to.matrix)
      for (double &entry : row)
        entry *= bandwidth;
    // The time of the smallest buffer is taken as latency.
    for (CollectiveTable &table : to.collectives)
      for (CollectiveTable::Point &point : table.times) {
        double latency = table.times.front().second;
        point.second = latency + (point.second - latency) / bandwidth;
      }
  });
}

Cluster Cluster::withoutOptimizerTime() const {
  return with([](ClusterDescription &to) {
    for (DeviceType &type : to.deviceTypes)
      type.optimizerBandwidth = 0;
  });
}

std::optional<Cluster> Cluster::resized(int64_t count) const {
  if (description.nodes.size() != 1 || hasBandwidthMatrix() || count < 1)
    return std::nullopt;
  ClusterDescription other = description;
  NodeGroup &group = other.nodes.front();
  if (description.network || group.network) {
    if (count > group.devices && count % group.devices != 0)
      return std::nullopt;
    group.devices = std::min(group.devices, count);
    group.count = count / group.devices;
  } else {
    // A link is only known where there is something to link.
    if (group.devices == 1 && count > 1)
      return std::nullopt;
    group.devices = count;
  }
  Expected<Cluster> cluster = get(std::move(other));
  if (!cluster) {
    consumeError(cluster.takeError());
    return std::nullopt;
  }
  return std::move(*cluster);
}

std::optional<Cluster> Cluster::without(StringRef deviceType) const {
  if (hasBandwidthMatrix())
    return std::nullopt;
  ClusterDescription other = description;
  erase_if(other.nodes, [&](const NodeGroup &group) {
    return group.deviceType == deviceType;
  });
  if (other.nodes.empty() || other.nodes.size() == description.nodes.size())
    return std::nullopt;
  erase_if(other.deviceTypes,
           [&](const DeviceType &type) { return type.name == deviceType; });
  Expected<Cluster> cluster = get(std::move(other));
  if (!cluster) {
    consumeError(cluster.takeError());
    return std::nullopt;
  }
  return std::move(*cluster);
}

} // namespace galvatron
