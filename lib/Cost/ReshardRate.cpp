//===- ReshardRate.cpp - Time of a boundary's moves -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every rank sends and receives its transfers one after the other, all ranks at
// once, and the ranks of a node share its network link; the busiest decides.
//
// On many nodes that are alike most moves repeat. Let q ranks be a multiple of
// both layouts' periods (Strategy/SampleLayout.h) and whole nodes, and let the
// devices of both ends follow one another from the beginning of a node. Then
// the receivers of window i, ranks i q to (i + 1) q, fetch only from the owners
// in window i, and whom each of them chooses depends on differences of device
// numbers alone: the transfers of window i are those of window 0, with both
// devices i q further on. Links depend on nodes alone, and no node is in two
// windows, so the sums of window 0 are those of every window, to the last bit,
// and its busiest is as busy as any.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Strategy/ReshardPlan.h"

#include <algorithm>
#include <numeric>

using namespace llvm;

namespace galvatron {
namespace {

/// Returns true if devices follow one another and fill nodes from the first on.
bool fillsNodes(ArrayRef<int64_t> devices, int64_t perNode) {
  if (devices.front() % perNode != 0)
    return false;
  for (size_t i = 1; i < devices.size(); ++i)
    if (devices[i] != devices[i - 1] + 1)
      return false;
  return true;
}

/// The number of first ranks whose moves stand for those of all.
size_t windowOf(const Cluster &cluster, const Strategy &from,
                const Strategy &to, ArrayRef<int64_t> fromDevices,
                ArrayRef<int64_t> toDevices) {
  size_t all = toDevices.size();
  if (fromDevices.size() != all || cluster.nodeGroups().size() != 1 ||
      !cluster.linksByNode())
    return all;
  int64_t perNode = cluster.nodeGroups().front().devices;
  auto window = static_cast<size_t>(
      std::lcm(perNode, std::lcm(from.sampleLayout().period(),
                                 to.sampleLayout().period())));
  bool repeats = window < all && all % window == 0 &&
                 fillsNodes(fromDevices, perNode) &&
                 fillsNodes(toDevices, perNode);
  return repeats ? window : all;
}

} // namespace

ReshardRate reshardRate(const Cluster &cluster, const Strategy &from,
                        const Strategy &to, ArrayRef<int64_t> fromDevices,
                        ArrayRef<int64_t> toDevices) {
  if (fromDevices == toDevices && from.sampleLayout() == to.sampleLayout())
    return {};
  // Transfers scale with the samples: one plan serves all micro-batches.
  int64_t samples = std::lcm(from.sampleShards(), to.sampleShards());
  auto devices = static_cast<size_t>(cluster.deviceCount());
  auto nodes = static_cast<size_t>(cluster.nodeCount());
  std::vector<double> sending(devices, 0), receiving(devices, 0);
  std::vector<double> leaving(nodes, 0), entering(nodes, 0);
  ReshardRate rate;
  double busiest = 0;
  auto see = [&](const ReshardTransfer &transfer) {
    if (transfer.isLocal())
      return;
    Link link = cluster.pairLink(transfer.srcRank, transfer.dstRank);
    rate.latency = std::max(rate.latency, link.latency);
    double seconds = static_cast<double>(transfer.units) / link.bandwidth;
    busiest = std::max(busiest, sending[transfer.srcRank] += seconds);
    busiest = std::max(busiest, receiving[transfer.dstRank] += seconds);
    // A node's network link serves all its ranks.
    int64_t source = cluster.nodeOf(transfer.srcRank);
    int64_t target = cluster.nodeOf(transfer.dstRank);
    if (source != target) {
      busiest = std::max(busiest, leaving[source] += seconds);
      busiest = std::max(busiest, entering[target] += seconds);
    }
  };
  forEachTransfer(from, to, fromDevices, toDevices, samples,
                  windowOf(cluster, from, to, fromDevices, toDevices), see);
  rate.secondsPerByte = busiest / static_cast<double>(samples);
  return rate;
}

} // namespace galvatron
