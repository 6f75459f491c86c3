//===- LayerCost.cpp - Time of layers, reshards and ties ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Cluster/Backend.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

using namespace llvm;

namespace galvatron {

double overlapSeconds(double x, double y, double slowdown) {
  return std::max(x, y) + (slowdown - 1) * std::min(x, y);
}

StrategyLinks linksOf(const Cluster &cluster, const Strategy &strategy,
                      ArrayRef<int64_t> devices, RingLink ring) {
  auto link = [&](ParadigmSet among) {
    std::vector<std::vector<int64_t>> groups;
    for (ArrayRef<int64_t> group : strategy.groups(among)) {
      groups.emplace_back();
      for (int64_t member : group)
        groups.back().push_back(devices[member]);
    }
    if (ring == RingLink::Lowest)
      return cluster.lowestLinkOfGroups(groups);
    return cluster.linkOfGroups(groups);
  };
  return {link(strategy.gradientSumLevels()),
          link(strategy.parameterSharding()),
          link(strategy.on(LayerAxis::Tensor)),
          link(strategy.on(LayerAxis::Context))};
}

/// Seconds of the calls of a collective, which are on buffers of one size.
static double callSeconds(const GroupLink &link, const LayerCollective &work) {
  auto calls = static_cast<double>(work.calls);
  return calls *
         link.seconds(work.kind, static_cast<double>(work.bytes) / calls);
}

/// How many times as long as at the memory's bandwidth the transfers of a
/// product take: what the size at which products reach half of their rate says
/// of the TITAN RTX in f32 (250, where its bandwidth says 105; Table II of
/// arXiv 2307.02031, benchmarks/planner/table2).
constexpr double kProductTransfers = 2.38;

/// Seconds of a product. TF32 multiplies faster than f32 and moves the same
/// bytes, so what is beside its multiplications does not shrink with them.
static double productSeconds(const ProductWork &product, const DeviceType &type,
                             StringRef dtype, double rate) {
  constexpr double elementBytes = 4;
  const bool own = product.attention && !type.attentionEfficiency.empty();
  const EfficiencyCurve &curve =
      own ? type.attentionEfficiency : type.efficiency;
  if (dtype != "tf32" || own || curve.empty() || product.size <= 0)
    return product.flops / (rate * curve.at(product.size));
  // Elements by the definition of a product's size (productSize).
  const double elements = 1.5 * product.flops / product.size;
  return product.flops / rate +
         kProductTransfers * elements * elementBytes / type.memoryBandwidth;
}

double computeSeconds(const ComputeWork &work, const DeviceType &type,
                      StringRef dtype, double communication) {
  double rate = type.flops.at(dtype.str());
  double seconds = work.movedBytes / type.memoryBandwidth +
                   static_cast<double>(work.kernels) * type.kernelOverhead;
  double sized = 0;
  for (const ProductWork &product : work.products) {
    seconds += productSeconds(product, type, dtype, rate);
    sized += product.flops;
  }
  return std::max(seconds + (work.flops - sized) / rate,
                  static_cast<double>(work.kernels) * type.hostOverhead -
                      communication);
}

LayerTime layerTime(const LayerFootprint &footprint, const Strategy &strategy,
                    const Cluster &cluster, ArrayRef<int64_t> devices,
                    StringRef dtype) {
  return layerTime(footprint, strategy, linksOf(cluster, strategy, devices),
                   cluster, devices, dtype);
}

LayerTime layerTime(const LayerFootprint &footprint, const Strategy &strategy,
                    const StrategyLinks &links, const Cluster &cluster,
                    ArrayRef<int64_t> devices, StringRef dtype) {
  return layerTime(
      layerTimeParts(footprint, strategy, links, cluster, devices, dtype));
}

LayerTime layerTime(const LayerTimeParts &parts) {
  double compute = parts.backward + parts.recompute;
  double tp = parts.tpBackward + parts.tpRecompute;
  double exchange = parts.gather + parts.scatter;
  LayerTime time;
  time.forward = parts.forward + parts.gather + parts.tpForward;
  time.backwardNosync = overlapSeconds(compute, exchange, parts.slowdown) + tp;
  time.backward =
      overlapSeconds(compute, exchange + parts.sync, parts.slowdown) + tp;
  return time;
}

LayerTime layerTimeGatheredAhead(const LayerTimeParts &parts) {
  LayerTime time = layerTime(parts);
  time.forward = overlapSeconds(parts.forward + parts.tpForward, parts.gather,
                                parts.slowdown);
  return time;
}

std::vector<CoreContention>
pipelineContention(const Cluster &cluster,
                   ArrayRef<std::vector<int64_t>> stages,
                   int64_t microBatches) {
  std::vector<CoreContention> contention(stages.size());
  if (!cluster.sharesCores())
    return contention;
  std::map<int64_t, double> ofNode;
  for (size_t s = 0; s < stages.size(); ++s)
    for (int64_t device : stages[s]) {
      auto [it, fresh] = ofNode.try_emplace(cluster.nodeOf(device), 1);
      if (!fresh)
        continue;
      int64_t cores = cluster.nodeGroups()[cluster.nodeGroupOf(device)].cores;
      if (cores == 0)
        continue;
      // The number of the node's devices that begin to work in a slot.
      std::map<int64_t, int64_t> change;
      for (size_t other = 0; other < stages.size(); ++other)
        for (int64_t neighbour : stages[other])
          if (cluster.nodeOf(neighbour) == it->first) {
            ++change[static_cast<int64_t>(other)];
            --change[static_cast<int64_t>(other) + microBatches];
          }
      double sum = 0, slots = 0;
      int64_t working = 0, since = 0;
      for (auto [slot, more] : change) {
        if (working > 0) {
          auto length = static_cast<double>(slot - since);
          slots += length;
          sum += length * std::max(1.0, static_cast<double>(working) /
                                            static_cast<double>(cores));
        }
        working += more;
        since = slot;
      }
      it->second = sum / slots;
    }
  for (size_t s = 0; s < stages.size(); ++s)
    for (int64_t device : stages[s])
      contention[s].push_back(ofNode.at(cluster.nodeOf(device)));
  return contention;
}

double copySeconds(const Cluster &cluster, ArrayRef<int64_t> devices,
                   int64_t bytes) {
  double seconds = 0;
  for (int64_t device : devices)
    seconds = std::max(seconds, cluster.coreContention(device) * 2 *
                                    static_cast<double>(bytes) /
                                    cluster.deviceType(device).memoryBandwidth);
  return seconds;
}

double hostCopySeconds(const Cluster &cluster, ArrayRef<int64_t> devices,
                       int64_t bytes) {
  double seconds = 0;
  for (int64_t device : devices) {
    const DeviceType &type = cluster.deviceType(device);
    bool streams = backendTraits(type.backend).streams;
    double rate = type.hostBandwidth > 0 ? type.hostBandwidth : kHostBandwidth;
    double overLink = static_cast<double>(bytes) / rate;
    if (streams || type.hostBandwidth > 0)
      seconds = std::max(seconds, overLink);
    if (!streams)
      seconds = std::max(seconds, copySeconds(cluster, device, bytes));
  }
  return seconds;
}

namespace {

/// The seconds that collectives inside a layer's functions take no more, as
/// they run beside computation (LayerFootprint::overlapped).
class HiddenSeconds {
public:
  HiddenSeconds(const LayerFootprint &footprint, const StrategyLinks &links,
                const Cluster &cluster, ArrayRef<int64_t> devices,
                StringRef dtype)
      : footprint(footprint), links(links), dtype(dtype) {
    if (footprint.overlapped.empty())
      return;
    for (int64_t device : devices) {
      const DeviceType &type = cluster.deviceType(device);
      hasStreams &= backendTraits(type.backend).streams;
      slowdown = std::max(slowdown, type.overlapSlowdown);
      if (!is_contained(types, &type))
        types.push_back(&type);
    }
  }

  double of(CollectiveTime when) const {
    double hidden = 0;
    for (const OverlappedCollective &each : footprint.overlapped) {
      if (each.calls.when != when || !hasStreams)
        continue;
      const double moved = callSeconds(links.of(each.calls.among), each.calls);
      // All ranks take part in the collective, and the fastest of them has the
      // least to do beside it.
      double beside = std::numeric_limits<double>::infinity();
      for (const DeviceType *type : types) {
        ComputeWork work{each.product.flops, each.movedBytes, 0, {}};
        if (each.product.flops > 0)
          work.products = each.product;
        beside = std::min(beside, computeSeconds(work, *type, dtype));
      }
      hidden += static_cast<double>(each.times) *
                (beside + moved - overlapSeconds(beside, moved, slowdown));
    }
    return hidden;
  }

  /// The seconds of `hidden` that cannot be hidden where a pass computes for
  /// `computed` seconds and parameters are exchanged beside it for
  /// `exchanged`: that computation hides nothing else.
  double excess(double hidden, double computed, double exchanged) const {
    if (exchanged <= 0)
      return 0;
    const double room = std::max(0.0, computed - exchanged);
    return std::max(0.0, hidden - (2 - slowdown) * room);
  }

private:
  const LayerFootprint &footprint;
  const StrategyLinks &links;
  StringRef dtype;
  SmallVector<const DeviceType *, 2> types;
  bool hasStreams = true;
  double slowdown = 1;
};

} // namespace

LayerTimeParts layerTimeParts(const LayerFootprint &footprint,
                              const Strategy &strategy,
                              const StrategyLinks &links,
                              const Cluster &cluster, ArrayRef<int64_t> devices,
                              StringRef dtype, ArrayRef<double> contention) {
  LayerTimeParts parts;
  const HiddenSeconds hidden(footprint, links, cluster, devices, dtype);
  auto insideFunctions = [&](CollectiveTime when) {
    double seconds = 0;
    for (const LayerCollective &work : footprint.collectives)
      if (isInsideFunctions(work.among) && work.when == when)
        seconds += callSeconds(links.of(work.among), work);
    return std::max(0.0, seconds - hidden.of(when));
  };
  parts.tpForward = insideFunctions(CollectiveTime::Forward);
  parts.tpWeight = insideFunctions(CollectiveTime::Weight);
  parts.tpBackward = insideFunctions(CollectiveTime::Backward) + parts.tpWeight;
  parts.tpRecompute = insideFunctions(CollectiveTime::Recompute);
  // Devices of one type in one kind of node compute alike; collectives make all
  // wait for the slowest.
  SmallVector<std::tuple<const DeviceType *, size_t, double>, 2> seen;
  for (auto [index, device] : enumerate(devices)) {
    // A thousand devices are mostly like the one before.
    if (index > 0 &&
        cluster.nodeGroupOf(device) ==
            cluster.nodeGroupOf(devices[index - 1]) &&
        (contention.empty() || contention[index] == contention[index - 1]))
      continue;
    const DeviceType &type = cluster.deviceType(device);
    double full = cluster.coreContention(device);
    double scale = contention.empty() ? full : contention[index];
    std::tuple<const DeviceType *, size_t, double> kind = {
        &type, cluster.nodeGroupOf(device), scale};
    if (is_contained(seen, kind))
      continue;
    seen.push_back(kind);
    parts.slowdown = std::max(parts.slowdown, type.overlapSlowdown);
    double bandwidth = type.optimizerBandwidth.value_or(type.memoryBandwidth);
    if (bandwidth > 0) {
      // All ranks of the pipeline update at once.
      auto touch = [&](double &part, int64_t bytes) {
        part = std::max(part, full * static_cast<double>(bytes) / bandwidth);
      };
      touch(parts.norm, footprint.normBytes);
      touch(parts.update, footprint.updateBytes);
      if (backendTraits(type.backend).streams)
        bandwidth = type.hostMemoryBandwidth > 0 ? type.hostMemoryBandwidth
                                                 : kHostMemoryBandwidth;
      touch(parts.normAtHome, footprint.normBytes);
      touch(parts.updateAtHome, footprint.updateBytes);
    }
    auto copied = [&](double &part, int64_t bytes) {
      part = std::max(part, hostCopySeconds(cluster, device, bytes));
    };
    copied(parts.swapParameters, footprint.parameterBytes);
    copied(parts.swapGradients, footprint.gradientBytes);
    copied(parts.swapOptimizer, footprint.optimizerBytes);
    copied(parts.swapKept, footprint.inputBytes + footprint.stashBytes);
    const MeasuredSeconds *own =
        find_if(footprint.measuredOn, [&](const MeasuredSeconds &measured) {
          return measured.deviceType == type.name;
        });
    if (own != footprint.measuredOn.end()) {
      double recompute = strategy.checkpoint() ? own->forward : 0;
      parts.forward = std::max(parts.forward, scale * own->forward);
      parts.backward = std::max(parts.backward, scale * own->backward);
      parts.recompute = std::max(parts.recompute, scale * recompute);
      continue;
    }
    // Measured on some device: others are as much slower as their FLOP/s say.
    if (footprint.measured && footprint.measuredFlops > 0)
      scale *= footprint.measuredFlops / type.flops.at(dtype.str());
    auto slowest = [&](double &part, double measured, const ComputeWork &work,
                       double communication) {
      double seconds = footprint.measured
                           ? measured
                           : computeSeconds(work, type, dtype, communication);
      part = std::max(part, scale * seconds);
    };
    slowest(parts.forward, footprint.forwardSeconds, footprint.forwardWork(),
            parts.tpForward);
    slowest(parts.backward, footprint.backwardSeconds, footprint.backwardWork(),
            parts.tpBackward);
    slowest(parts.recompute, footprint.recomputeSeconds,
            footprint.recomputeWork(), parts.tpRecompute);
    if (footprint.split)
      slowest(parts.weight, footprint.weightSeconds, footprint.weightWork(),
              parts.tpWeight);
  }
  parts.split = footprint.split;
  parts.weight = std::min(parts.weight, parts.backward);

  // One call for the buffers of a layer that move together.
  auto seconds = [&](CollectiveGroup group, Collective kind,
                     std::initializer_list<CollectiveTime> times) {
    int64_t bytes = 0;
    for (CollectiveTime when : times)
      bytes += footprint.bytesOf(group, kind, when);
    return bytes > 0 ? links.of(group).seconds(kind, static_cast<double>(bytes))
                     : 0.0;
  };
  using Group = CollectiveGroup;
  using Time = CollectiveTime;
  parts.gather =
      seconds(Group::Parameters, Collective::AllGather, {Time::Forward});
  parts.scatter = seconds(Group::Parameters, Collective::ReduceScatter,
                          {Time::Backward, Time::Weight});
  parts.tpForward +=
      hidden.excess(hidden.of(Time::Forward), parts.forward, parts.gather);
  parts.tpBackward += hidden.excess(
      hidden.of(Time::Recompute) + hidden.of(Time::Backward),
      parts.recompute + parts.backward, parts.gather + parts.scatter);
  // Sums and gathers of a step, of ranks that shard parameters, are those of
  // states that are sharded alone, in groups.
  double gathered = 0;
  for (Group among : {Group::Parameters, Group::Gradients}) {
    parts.sync += seconds(among, Collective::AllReduce, {Time::Step}) +
                  seconds(among, Collective::ReduceScatter, {Time::Step});
    gathered += seconds(among, Collective::AllGather, {Time::Update});
  }
  parts.update += gathered;
  parts.updateAtHome += gathered;
  return parts;
}

LayerTimeParts partsAt(LayerHome home, LayerTimeParts parts) {
  if (home.states) {
    parts.norm = parts.normAtHome;
    parts.update = parts.updateAtHome;
  } else {
    parts.swapParameters = parts.swapGradients = 0;
  }
  if (!home.activations)
    parts.swapKept = 0;
  return parts;
}

LayerTimeParts withCopies(LayerTimeParts parts, bool beside) {
  parts.update += parts.swapParameters + parts.swapGradients;
  for (double *pass : {&parts.forward, &parts.backward})
    *pass = beside ? std::max(*pass, parts.swapKept) : *pass + parts.swapKept;
  return parts;
}

} // namespace galvatron
