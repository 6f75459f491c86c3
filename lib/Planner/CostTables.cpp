//===- CostTables.cpp - Costs of strategies on a stage --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CostTables.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

using namespace llvm;

namespace galvatron::planner {

StrategySet StrategySet::make(std::vector<Strategy> strategies) {
  StrategySet set;
  std::vector<std::vector<int64_t>> layouts;
  for (size_t s = 0; s < strategies.size(); ++s) {
    std::vector<int64_t> layout = strategies[s].sampleLayout();
    auto it = llvm::find(layouts, layout);
    set.classOf.push_back(it - layouts.begin());
    if (it == layouts.end()) {
      layouts.push_back(std::move(layout));
      set.classes.push_back(s);
    }
    set.sampleMultiple =
        std::lcm(set.sampleMultiple, strategies[s].sampleShards());
  }
  set.strategies = std::move(strategies);
  return set;
}

std::string CostTables::signature(ArrayRef<int64_t> a,
                                  ArrayRef<int64_t> b) const {
  // Ranks matter by type and by which of them share a node; with an explicit
  // matrix they matter by number. A node's number is that of its first member.
  std::string text;
  std::map<int64_t, size_t> nodes;
  for (ArrayRef<int64_t> list : {a, b}) {
    for (int64_t device : list) {
      size_t node =
          nodes.try_emplace(cluster.nodeOf(device), nodes.size()).first->second;
      text += std::to_string(node) + ":" + cluster.deviceType(device).name;
      text += "@" + std::to_string(cluster.nodeGroupOf(device));
      if (cluster.hasBandwidthMatrix())
        text += "#" + std::to_string(device);
      text += ",";
    }
    text += ";";
  }
  // Inside a stage or across a cut.
  text += a == b ? "same" : "";
  return text;
}

const KindOptions &CostTables::kindOptions(size_t kind, const StrategySet &set,
                                           ArrayRef<int64_t> devices,
                                           int64_t samples) {
  std::string place = signature(devices);
  std::string key =
      place + "/" + std::to_string(kind) + "/" + std::to_string(samples);
  std::unique_ptr<KindOptions> &entry = kinds[key];
  if (entry)
    return *entry;
  entry = std::make_unique<KindOptions>();
  for (size_t s = 0; s < set.strategies.size(); ++s) {
    const Strategy &strategy = set.strategies[s];
    int64_t local = samples / strategy.sampleShards();
    Expected<LayerFootprint> footprint = model.footprint(kind, strategy, local);
    if (!footprint) {
      std::string reason = toString(footprint.takeError());
      if (entry->refusal.empty())
        entry->refusal = strategy.str() + ": " + reason;
      continue;
    }
    std::string linkKey = place + "/" + strategy.withCheckpoint(false).str();
    auto link = links.find(linkKey);
    if (link == links.end())
      link = links.emplace(linkKey, linksOf(cluster, strategy, devices)).first;
    LayerTime time =
        layerTime(*footprint, strategy, link->second, cluster, devices, dtype);
    entry->options.push_back({s, *footprint, local, layerPicoseconds(time),
                              layerNosyncPicoseconds(time)});
  }
  return *entry;
}

const CostTables::BoundaryRates &
CostTables::boundaryRates(const StrategySet &set, ArrayRef<int64_t> fromDevices,
                          ArrayRef<int64_t> toDevices) {
  std::unique_ptr<BoundaryRates> &entry =
      rates[signature(fromDevices, toDevices)];
  if (entry)
    return *entry;
  entry = std::make_unique<BoundaryRates>();
  for (size_t from : set.classes)
    for (size_t to : set.classes) {
      entry->forward.push_back(reshardRate(cluster, set.strategies[from],
                                           set.strategies[to], fromDevices,
                                           toDevices));
      entry->backward.push_back(reshardRate(cluster, set.strategies[to],
                                            set.strategies[from], toDevices,
                                            fromDevices));
    }
  return *entry;
}

const std::vector<Picoseconds> &CostTables::tieTimes(const StrategySet &set,
                                                     ArrayRef<int64_t> owner,
                                                     ArrayRef<int64_t> borrower,
                                                     int64_t bytes) {
  std::unique_ptr<std::vector<Picoseconds>> &entry =
      ties[signature(owner, borrower) + "/" + std::to_string(bytes)];
  if (entry)
    return *entry;
  entry = std::make_unique<std::vector<Picoseconds>>();
  size_t count = set.strategies.size();
  entry->resize(count * count);
  for (size_t o = 0; o < count; ++o)
    for (size_t b = 0; b < count; ++b) {
      const Strategy &own = set.strategies[o], &borrow = set.strategies[b];
      // Recomputation does not move parameters: reuse the plain pair.
      auto plainOf = [&](const Strategy &strategy) {
        return static_cast<size_t>(
            llvm::find(set.strategies, strategy.withCheckpoint(false)) -
            set.strategies.begin());
      };
      size_t plainO = plainOf(own), plainB = plainOf(borrow);
      if (plainO < count && plainB < count &&
          std::make_pair(plainO, plainB) < std::make_pair(o, b)) {
        (*entry)[o * count + b] = (*entry)[plainO * count + plainB];
        continue;
      }
      (*entry)[o * count + b] = toPicoseconds(
          tieSeconds(cluster, own, borrow, owner, borrower, bytes));
    }
  return *entry;
}

} // namespace galvatron::planner
