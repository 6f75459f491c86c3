//===- CostTables.cpp - Costs of strategies on a stage --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CostTables.h"

#include "llvm/ADT/STLExtras.h"

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
  set.pointsOf.resize(strategies.size());
  set.isPoint.assign(strategies.size(), 0);
  std::map<Strategy, size_t> plain;
  for (size_t s = 0; s < strategies.size(); ++s)
    if (!strategies[s].checkpoint() && strategies[s].point() == 0)
      plain.try_emplace(strategies[s], s);
  for (size_t s = 0; s < strategies.size(); ++s)
    if (strategies[s].point() > 0)
      if (auto it = plain.find(strategies[s].withPoint(0)); it != plain.end()) {
        set.pointsOf[it->second].push_back(s);
        set.isPoint[s] = 1;
      }
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
    // A point that a layer must have is one whatever others have.
    auto first = strategies.begin() + (pin->point() > 0 ? free : 0);
    auto it = std::find(first, strategies.end(), *pin);
    pinned.emplace_back(it - strategies.begin());
    if (it == strategies.end())
      strategies.push_back(*pin);
  }
  StrategySet set = make(std::move(strategies));
  for (size_t s = free; s < set.strategies.size(); ++s)
    if (std::exchange(set.isPoint[s], 0))
      for (std::vector<size_t> &points : set.pointsOf)
        llvm::erase(points, s);
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
    llvm::append_range(all.isPoint, set->isPoint);
    for (const std::vector<size_t> &points : set->pointsOf) {
      all.pointsOf.emplace_back();
      for (size_t point : points)
        all.pointsOf.back().push_back(strategy + point);
    }
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

std::string Shape::str() const {
  std::string text = "pp" + std::to_string(degree());
  if (!layout->hasEqualGroups()) {
    for (size_t s = 0; s < layout->devices.size(); ++s)
      text += (s == 0 ? " (" : "+") + std::to_string(layout->devices[s].size());
    text += ")";
  }
  return text + " m" + std::to_string(microBatches) + " batch " +
         std::to_string(batch);
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

const std::vector<size_t> &CostTables::contentionsOf(const Shape &shape) {
  auto [it, fresh] = contentionNumbers.try_emplace(
      {shape.layout->number, contended ? shape.microBatches : 0});
  if (fresh)
    for (const CoreContention &contention : pipelineContention(
             cluster, shape.layout->devices, shape.microBatches)) {
      auto number = llvm::find(contentions, contention);
      if (number == contentions.end())
        number = contentions.insert(number, contention);
      it->second.push_back(number - contentions.begin());
    }
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

CostTables::KindKey CostTables::keyOf(size_t kind, const Shape &shape,
                                      size_t stage) {
  return {shape.layout->place[stage],  kind,  shape.samples(),
          contentionsOf(shape)[stage], ahead, shape.degree()};
}

const StrategyLinks &CostTables::linksAt(size_t place, const StrategySet &set,
                                         size_t strategy) {
  Place &at = places[place];
  for (size_t s = at.links.size(); s < set.strategies.size(); ++s) {
    size_t plain = set.tieKeys[set.tieKeyOf[s]];
    at.links.push_back(plain < s
                           ? at.links[plain]
                           : linksOf(cluster, set.strategies[s], at.from));
  }
  return at.links[strategy];
}

/// One option, and by how much computation and communication slow each other
/// down. Error: why the layer cannot have it.
Expected<KindOption> CostTables::price(const KindKey &key, const Layout &layout,
                                       size_t stage, size_t strategyNumber,
                                       PointBytes bytes, double &slowdown) {
  auto [place, kind, samples, contention, gatherAhead, degree] = key;
  const StrategySet &set = *layout.own[stage].set;
  const Strategy &strategy = set.strategies[strategyNumber];
  int64_t local = cantFail(strategy.localSamples(samples));
  Expected<LayerFootprint> footprint =
      bytes == PointBytes::Exact
          ? model.footprintUnder(schedule, kind, strategy, local)
          : model.leastFootprintUnder(schedule, kind, strategy, local);
  if (!footprint)
    return makeError(strategy.str() + ": " + toString(footprint.takeError()));
  const StrategyLinks &links = linksAt(place, set, strategyNumber);
  const LayerTimeParts alone =
      partsAt(strategy.home(), layerTimeParts(*footprint, strategy, links,
                                              cluster, places[place].from,
                                              dtype, contentions[contention]));
  LayerTimeParts parts = withCopies(alone, layout.backend[stage].streams);
  canGatherAhead |=
      footprint->forwardGathered + footprint->backwardGathered > 0;
  bool gathersAhead = ahead && footprint->forwardGathered > 0;
  LayerTime time =
      gathersAhead ? layerTimeGatheredAhead(parts) : layerTime(parts);
  FormTimes form = FormTimes::of(time, parts, layout.degree, objective);
  LeastParts least = LeastParts::of(alone, *footprint);
  // Gradients leave behind the last backward pass, by the thread that
  // computes. Other copies may be where a stage waits anyway.
  if (!layout.backend[stage].streams)
    least.end += alone.swapGradients;
  KindOption option{strategyNumber,
                    local,
                    form.nosync + form.ends,
                    form.nosync,
                    form,
                    least,
                    layerMemory(*footprint, local, schedule.splitsBackward())};
  if (ahead)
    option.memory.backward =
        std::max(option.memory.backward, transientGatheredAhead(*footprint));
  slowdown = parts.slowdown;
  return option;
}

const KindOptions &CostTables::kindOptions(size_t kind, const Shape &shape,
                                           size_t stage) {
  const Layout &layout = *shape.layout;
  const StrategySet &set = *layout.own[stage].set;
  const int64_t samples = shape.samples();
  KindKey key = keyOf(kind, shape, stage);
  auto [it, fresh] = kinds.try_emplace(key);
  KindOptions &entry = it->second;
  if (!fresh)
    return entry;
  // The fewest blocks of a strategy that samples do not divide into.
  std::optional<int64_t> undivided;
  for (size_t s = 0; s < set.strategies.size(); ++s) {
    const Strategy &strategy = set.strategies[s];
    if (set.isPoint[s])
      continue;
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
    double slowdown = 1;
    Expected<KindOption> option =
        price(key, layout, stage, s, PointBytes::Exact, slowdown);
    if (!option) {
      std::string reason = toString(option.takeError());
      if (entry.refusal.empty())
        entry.refusal = reason;
      continue;
    }
    entry.leastTime = std::min(entry.leastTime, option->time);
    entry.leastNosync = std::min(entry.leastNosync, option->nosync);
    entry.leastForward = std::min(entry.leastForward, option->form.forward);
    entry.slowdown = std::max(entry.slowdown, slowdown);
    entry.options.push_back(*option);
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

/// Returns true if no part of a point's time is less than that of keeping all
/// values, so that every sum in which the point stands is no less.
static bool takesNoLess(const KindOption &point, const KindOption &plain) {
  return point.nosync >= plain.nosync && point.time >= plain.time &&
         point.nosync + point.form.wholeEnd >=
             plain.nosync + plain.form.wholeEnd &&
         point.form.forward >= plain.form.forward &&
         point.least.forward >= plain.least.forward &&
         point.least.backward >= plain.least.backward &&
         point.least.beside >= plain.least.beside &&
         point.least.forwardAhead == plain.least.forwardAhead &&
         point.least.backwardAhead == plain.least.backwardAhead &&
         point.least.sync >= plain.least.sync &&
         point.least.end >= plain.least.end;
}

const std::vector<KindOption> &
CostTables::pointOptions(size_t kind, const Shape &shape, size_t stage,
                         const KindOption &plain, PointBytes bytes) {
  static const std::vector<KindOption> none;
  const Layout &layout = *shape.layout;
  const StrategySet &set = *layout.own[stage].set;
  const std::vector<size_t> &numbers = set.pointsOf[plain.strategy];
  if (numbers.empty() || !hasPoints)
    return none;
  KindKey key = keyOf(kind, shape, stage);
  if (auto exact = points.find({key, plain.strategy}); exact != points.end())
    return exact->second;
  auto &priced = bytes == PointBytes::Exact ? points : leastPoints;
  auto [it, fresh] = priced.try_emplace({key, plain.strategy});
  if (!fresh)
    return it->second;
  if (cancelled())
    return leftOut(priced, it);
  int64_t count =
      model.pointCount(kind, set.strategies[plain.strategy], plain.samples);
  for (size_t s : numbers) {
    if (set.strategies[s].point() > count)
      continue;
    double slowdown = 1;
    Expected<KindOption> option = price(key, layout, stage, s, bytes, slowdown);
    if (!option)
      consumeError(option.takeError());
    else if (takesNoLess(*option, plain))
      it->second.push_back(*option);
  }
  return it->second;
}

const CostTables::BoundaryRates &
CostTables::boundaryRates(const StrategySet &former, const StrategySet &latter,
                          size_t pairPlace) {
  auto [it, fresh] = rates.try_emplace(pairPlace);
  if (!fresh)
    return it->second;
  const Place &at = places[pairPlace];
  auto [forward, backward] = std::tie(it->second.forward, it->second.backward);
  size_t rows = former.classes.size(), columns = latter.classes.size();
  forward.resize(rows * columns);
  backward.resize(rows * columns);
  for (size_t from = 0; from < rows; ++from)
    for (size_t to = 0; to < columns; ++to) {
      if (cancelled())
        return leftOut(rates, it);
      const Strategy &one = former.strategies[former.classes[from]];
      const Strategy &other = latter.strategies[latter.classes[to]];
      ReshardRate &there = forward[from * columns + to];
      there = reshardRate(cluster, one, other, at.from, at.to);
      // Inside a stage a move is also the way back of the opposite one.
      if (at.from == at.to)
        backward[to * columns + from] = there;
      else
        backward[from * columns + to] =
            reshardRate(cluster, other, one, at.to, at.from);
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
