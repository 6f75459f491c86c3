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
  std::vector<SampleLayout> layouts;
  for (size_t s = 0; s < strategies.size(); ++s) {
    SampleLayout layout = strategies[s].sampleLayout();
    auto it = llvm::find(layouts, layout);
    set.classOf.push_back(it - layouts.begin());
    if (it == layouts.end()) {
      layouts.push_back(std::move(layout));
      set.classes.push_back(s);
    }
    auto key = llvm::find_if(set.tieKeys, [&](size_t other) {
      return strategies[other].levels() == strategies[s].levels();
    });
    set.tieKeyOf.push_back(key - set.tieKeys.begin());
    if (key == set.tieKeys.end())
      set.tieKeys.push_back(s);
  }
  set.free = strategies.size();
  set.strategies = std::move(strategies);
  return set;
}

bool StrategySet::hasHomes() const {
  return any_of(strategies,
                [](const Strategy &strategy) { return bool(strategy.home()); });
}

StrategySet StrategySet::make(std::vector<Strategy> strategies,
                              ArrayRef<std::optional<Strategy>> pins) {
  size_t free = strategies.size();
  std::vector<std::optional<size_t>> pinned;
  for (const std::optional<Strategy> &pin : pins) {
    if (!pin) {
      pinned.emplace_back();
      continue;
    }
    auto it = llvm::find(strategies, *pin);
    pinned.emplace_back(it - strategies.begin());
    if (it == strategies.end())
      strategies.push_back(*pin);
  }
  StrategySet set = make(std::move(strategies));
  set.free = free;
  set.pinned = std::move(pinned);
  return set;
}

StrategySet StrategySet::join(ArrayRef<const StrategySet *> sets) {
  StrategySet all;
  for (const StrategySet *set : sets) {
    size_t strategy = all.strategies.size(), layoutClass = all.classes.size(),
           tieKey = all.tieKeys.size();
    llvm::append_range(all.strategies, set->strategies);
    for (size_t own : set->classOf)
      all.classOf.push_back(layoutClass + own);
    for (size_t own : set->classes)
      all.classes.push_back(strategy + own);
    for (size_t own : set->tieKeyOf)
      all.tieKeyOf.push_back(tieKey + own);
    for (size_t own : set->tieKeys)
      all.tieKeys.push_back(strategy + own);
  }
  all.free = all.strategies.size();
  return all;
}

std::string CostTables::signature(ArrayRef<int64_t> a, ArrayRef<int64_t> b,
                                  bool moves) const {
  // Ranks matter by type and by which of them share a node; with an explicit
  // matrix they matter by number. A node's number is that of its first member.
  std::string text;
  std::map<int64_t, size_t> nodes;
  bool apart = anyGroups && (moves || !cluster.collectives().empty());
  int64_t first = std::min(*llvm::min_element(a), *llvm::min_element(b));
  for (ArrayRef<int64_t> list : {a, b}) {
    for (int64_t device : list) {
      size_t node =
          nodes.try_emplace(cluster.nodeOf(device), nodes.size()).first->second;
      text += std::to_string(node) + ":" + cluster.deviceType(device).name;
      text += "@" + std::to_string(cluster.nodeGroupOf(device));
      if (cluster.hasBandwidthMatrix())
        text += "#" + std::to_string(device);
      if (apart)
        text += "+" + std::to_string(device - first);
      text += ",";
    }
    text += ";";
  }
  // Inside a stage or across a cut.
  text += a == b ? "same" : "";
  return text;
}

size_t CostTables::placeOf(ArrayRef<int64_t> devices) {
  return numberOf(signature(devices, devices, /*moves=*/false), devices,
                  devices);
}

size_t CostTables::placeOf(ArrayRef<int64_t> from, ArrayRef<int64_t> to) {
  return numberOf(signature(from, to, /*moves=*/true), from, to);
}

size_t CostTables::numberOf(std::string text, ArrayRef<int64_t> from,
                            ArrayRef<int64_t> to) {
  auto [it, fresh] = placeNumbers.try_emplace(std::move(text), places.size());
  if (fresh)
    places.push_back({from.vec(), to.vec(), {}});
  return it->second;
}

size_t CostTables::contentionNumber(const CoreContention &contention) {
  auto it = llvm::find(contentions, contention);
  if (it == contentions.end())
    it = contentions.insert(it, contention);
  return it - contentions.begin();
}

const std::vector<size_t> &CostTables::contentionsOf(const Layout &layout,
                                                     int64_t microBatches) {
  auto [it, fresh] = contentionNumbers.try_emplace(
      {layout.number, contended ? microBatches : 0});
  if (fresh)
    for (const CoreContention &contention :
         pipelineContention(cluster, layout.devices, microBatches))
      it->second.push_back(contentionNumber(contention));
  return it->second;
}

/// Forgets a table that is not complete.
template <typename Map>
static const typename Map::mapped_type &leftOut(Map &tables,
                                                typename Map::iterator it) {
  static const typename Map::mapped_type none;
  tables.erase(it);
  return none;
}

/// Temporaries of a layer while those of its neighbour, of the same size, are
/// gathered (placeTemporaries() has the true figure).
static int64_t transientGatheredAhead(const LayerFootprint &footprint) {
  int64_t forward = 0;
  if (footprint.forwardTransient > 0)
    forward = align64(footprint.outputBytes) +
              align64(footprint.forwardTransient) +
              align64(footprint.forwardGathered);
  return std::max(forward, align64(footprint.backwardTransient) +
                               align64(footprint.backwardGathered));
}

const KindOptions &CostTables::kindOptions(size_t kind, const Layout &layout,
                                           size_t stage, int64_t samples,
                                           int64_t microBatches) {
  const StrategySet &set = *layout.own[stage].set;
  size_t place = layout.place[stage];
  size_t contention = contentionsOf(layout, microBatches)[stage];
  auto [it, fresh] = kinds.try_emplace(
      {place, kind, samples, contention, ahead, layout.degree});
  KindOptions &entry = it->second;
  if (!fresh)
    return entry;
  Place &at = places[place];
  for (size_t s = at.links.size(); s < set.strategies.size(); ++s) {
    size_t plain = set.tieKeys[set.tieKeyOf[s]];
    at.links.push_back(plain < s
                           ? at.links[plain]
                           : linksOf(cluster, set.strategies[s], at.from));
  }
  // The fewest blocks of a strategy that samples do not divide into.
  std::optional<int64_t> undivided;
  for (size_t s = 0; s < set.strategies.size(); ++s) {
    const Strategy &strategy = set.strategies[s];
    if (!strategy.divides(samples)) {
      int64_t blocks = strategy.sampleShards();
      undivided = std::min(blocks, undivided.value_or(blocks));
      continue;
    }
    if (cancelled())
      return leftOut(kinds, it);
    // A host and a device do not sum tied gradients (checkPlan()): beside
    // devices with memory of their own both ends stay, unless it is asked for.
    if (layout.backend[stage].streams && strategy.home().states &&
        s < set.free && tiedKinds.count(kind))
      continue;
    int64_t local = cantFail(strategy.localSamples(samples));
    // A point that the layer does not have takes what the one in front of it
    // does, which stands in the set if all points do.
    if (strategy.point() > 0 && set.pinned.empty() && set.free > 1 &&
        strategy.point() > model.pointCount(kind, strategy, local))
      continue;
    Expected<LayerFootprint> footprint =
        model.footprintUnder(schedule, kind, strategy, local);
    if (!footprint) {
      std::string reason = toString(footprint.takeError());
      if (entry.refusal.empty())
        entry.refusal = strategy.str() + ": " + reason;
      continue;
    }
    const LayerTimeParts alone =
        partsAt(strategy.home(),
                layerTimeParts(*footprint, strategy, at.links[s], cluster,
                               at.from, dtype, contentions[contention]));
    LayerTimeParts parts = withCopies(alone, layout.backend[stage].streams);
    canGatherAhead |=
        footprint->forwardGathered + footprint->backwardGathered > 0;
    bool gathersAhead = ahead && footprint->forwardGathered > 0;
    LayerTime time =
        gathersAhead ? layerTimeGatheredAhead(parts) : layerTime(parts);
    FormTimes form{layerNosyncPicoseconds(time), toPicoseconds(time.forward),
                   endPicoseconds(time, parts, layout.degree, objective),
                   wholeEndPicoseconds(time, parts)};
    LeastParts least = LeastParts::of(alone, *footprint);
    // Gradients leave behind the last backward pass, by the thread that
    // computes. Other copies may be where a stage waits anyway.
    if (!layout.backend[stage].streams)
      least.end += alone.swapGradients;
    KindOption option{
        s,
        local,
        form.nosync + form.ends,
        form.nosync,
        form,
        least,
        layerMemory(*footprint, local, schedule.splitsBackward())};
    if (ahead)
      option.memory.backward =
          std::max(option.memory.backward, transientGatheredAhead(*footprint));
    entry.leastTime = std::min(entry.leastTime, option.time);
    entry.leastNosync = std::min(entry.leastNosync, option.nosync);
    entry.leastForward = std::min(entry.leastForward, form.forward);
    entry.slowdown = std::max(entry.slowdown, parts.slowdown);
    entry.options.push_back(option);
  }
  if (entry.options.empty() && undivided) {
    std::string reason = "a micro-batch of " + std::to_string(samples) +
                         (samples == 1 ? " sample" : " samples") +
                         " does not divide into " + std::to_string(*undivided) +
                         " blocks";
    entry.refusal =
        reason + (entry.refusal.empty() ? "" : "; " + entry.refusal);
  }
  return entry;
}

const CostTables::BoundaryRates &
CostTables::boundaryRates(const StrategySet &former, const StrategySet &latter,
                          size_t pairPlace) {
  auto [it, fresh] = rates.try_emplace(pairPlace);
  if (!fresh)
    return it->second;
  const Place &at = places[pairPlace];
  auto [forward, backward] = std::tie(it->second.forward, it->second.backward);
  for (size_t from : former.classes)
    for (size_t to : latter.classes) {
      if (cancelled())
        return leftOut(rates, it);
      forward.push_back(reshardRate(cluster, former.strategies[from],
                                    latter.strategies[to], at.from, at.to));
    }
  // Inside a stage the way back is a move from the latter class to the former.
  size_t rows = former.classes.size(), columns = latter.classes.size();
  for (size_t from = 0; from < rows; ++from)
    for (size_t to = 0; to < columns; ++to) {
      if (cancelled())
        return leftOut(rates, it);
      backward.push_back(
          at.from == at.to
              ? forward[to * columns + from]
              : reshardRate(cluster, latter.strategies[latter.classes[to]],
                            former.strategies[former.classes[from]], at.to,
                            at.from));
    }
  return it->second;
}

CostTables::LeastMove CostTables::leastMove(const StrategySet &former,
                                            const StrategySet &latter,
                                            size_t pairPlace, int64_t bytes,
                                            int64_t samples) {
  auto [it, fresh] = leastMoves.try_emplace({pairPlace, bytes, samples});
  if (!fresh)
    return it->second;
  const BoundaryRates &both = boundaryRates(former, latter, pairPlace);
  if (isIncomplete) {
    leastMoves.erase(it);
    return {};
  }
  auto least = [&](const std::vector<ReshardRate> &moves) {
    Picoseconds time = kNoBound;
    for (const ReshardRate &rate : moves)
      time = std::min(time, transferPicoseconds(rate, bytes, samples));
    return time;
  };
  return it->second = {least(both.forward), least(both.backward)};
}

const std::vector<Picoseconds> &
CostTables::tieTimes(const StrategySet &owner, const StrategySet &borrower,
                     size_t pairPlace, int64_t bytes) {
  auto [it, fresh] = ties.try_emplace({pairPlace, bytes});
  if (!fresh)
    return it->second;
  if (cancelled())
    return leftOut(ties, it);
  const Place &at = places[pairPlace];
  auto keysOf = [](const StrategySet &set) {
    std::vector<Strategy> strategies;
    for (size_t strategy : set.tieKeys)
      strategies.push_back(set.strategies[strategy]);
    return strategies;
  };
  for (const TieTime &time : galvatron::tieTimes(
           cluster, keysOf(owner), keysOf(borrower), at.from, at.to, bytes))
    it->second.push_back(toPicoseconds(time.total()));
  return it->second;
}

} // namespace galvatron::planner
