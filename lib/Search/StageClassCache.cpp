//===- StageClassCache.cpp - Stages that problems have in common ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StageClassCache.h"

#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>

using namespace llvm;

namespace galvatron::search {

double Curve::bound(size_t begin, size_t end, double memory) const {
  Prefix from = before(begin), to = before(end);
  auto at = [&](size_t k) { return to[k] - from[k] - multipliers[k] * memory; };
  size_t best = peakOf(at);
  // Prefix sums carry the rounding of all layers before.
  return std::max(0.0, at(best)) - 2 - 1e-12 * to[best];
}

double Curve::boundOfStage(size_t begin, size_t end, double memory) const {
  Prefix from = before(begin), to = before(end - 1);
  const double *own = lastOf(end - 1);
  auto at = [&](size_t k) {
    return to[k] - from[k] + own[k] - multipliers[k] * memory;
  };
  size_t best = peakOf(at);
  return std::max(0.0, at(best)) - 2 - 1e-12 * (to[best] + own[best]);
}

void Curve::choose(size_t begin, size_t end, double memory, size_t reach,
                   std::vector<double> &chosen) const {
  size_t count = multipliers.size();
  Prefix from = before(begin), to = before(end);
  size_t best = peakOf(
      [&](size_t k) { return to[k] - from[k] - multipliers[k] * memory; });
  chosen.push_back(0);
  for (size_t k = best > reach ? best - reach : 0;
       k <= best + reach && k < count; ++k)
    chosen.push_back(multipliers[k]);
}

Choices toChoices(const std::vector<PipelineOption> &options,
                  int64_t inFlight) {
  Choices choices;
  choices.reserve(options.size());
  for (uint32_t i = 0; i < options.size(); ++i) {
    const PipelineOption &from = options[i];
    Choice choice;
    choice.index = i;
    choice.layoutClass = static_cast<uint32_t>(from.layoutClass);
    choice.time = from.time;
    choice.nosync = from.nosync;
    // Stashes of the other micro-batches in flight count like state.
    choice.kept = from.kept;
    choice.state = from.state + (inFlight - 1) * from.kept;
    choice.transient = from.transient;
    choice.boundary = from.boundary;
    choice.host = from.host + inFlight * from.hostKept;
    choices.push_back(choice);
  }
  return choices;
}

Curve Curve::of(ArrayRef<Choices> distinct, ArrayRef<uint32_t> numberOf,
                Weights weights) {
  // Thousands of these are made: all of it is in few pieces of memory.
  struct Point {
    double bytes, cost;
  };
  // The dual function of a sum bends at the slopes of its terms' lower hulls.
  SmallVector<Point, 256> hulls;
  SmallVector<size_t, 17> firstOf = {0}; // in `hulls`, by number
  SmallVector<Point, 64> points;
  SmallVector<double, 256> slopes;
  for (const Choices &options : distinct) {
    points.clear();
    for (const Choice &choice : options)
      points.push_back({static_cast<double>(choice.bytes()),
                        weights.of(static_cast<double>(choice.time),
                                   static_cast<double>(choice.nosync))});
    llvm::sort(points, [](const Point &a, const Point &b) {
      return std::tie(a.bytes, a.cost) < std::tie(b.bytes, b.cost);
    });
    auto slope = [](const Point &a, const Point &b) {
      return (a.cost - b.cost) / (b.bytes - a.bytes);
    };
    size_t first = firstOf.back();
    for (const Point &point : points) {
      auto size = [&] { return hulls.size() - first; };
      if (size() > 0 && point.cost >= hulls.back().cost)
        continue;
      while (size() > 1 && slope(hulls[hulls.size() - 2], hulls.back()) <=
                               slope(hulls.back(), point))
        hulls.pop_back();
      hulls.push_back(point);
    }
    for (size_t i = first; i + 1 < hulls.size(); ++i)
      slopes.push_back(slope(hulls[i], hulls[i + 1]));
    firstOf.push_back(hulls.size());
  }
  llvm::sort(slopes);
  slopes.erase(llvm::unique(slopes), slopes.end());
  Curve curve;
  curve.multipliers = {0};
  // Models of many kinds have many bends; a sample of them is as good.
  constexpr size_t most = 40;
  size_t index = 0, step = (slopes.size() + most - 1) / most;
  for (double slope : slopes)
    if (index++ % std::max<size_t>(step, 1) == 0 || index == slopes.size())
      curve.multipliers.push_back(slope);
  size_t count = curve.multipliers.size();
  auto leastOf = [&](ArrayRef<Point> among, double *row) {
    for (size_t k = 0; k < count; ++k) {
      double value = std::numeric_limits<double>::infinity();
      for (const Point &point : among)
        value =
            std::min(value, point.cost + curve.multipliers[k] * point.bytes);
      row[k] = value;
    }
  };
  std::vector<double> rows(2 * distinct.size() * count);
  for (size_t n = 0; n < distinct.size(); ++n) {
    leastOf(ArrayRef(hulls).slice(firstOf[n], firstOf[n + 1] - firstOf[n]),
            &rows[2 * n * count]);
    // The last layer of a stage: nothing covers its temporaries.
    points.clear();
    for (const Choice &choice : distinct[n])
      points.push_back({static_cast<double>(choice.bytes() + choice.transient),
                        weights.of(static_cast<double>(choice.time),
                                   static_cast<double>(choice.nosync))});
    leastOf(points, &rows[(2 * n + 1) * count]);
  }
  // Values are by runs of equal layers; the end belongs to the last run.
  auto startsRun = [&](size_t l) {
    return l == 0 || numberOf[l] != numberOf[l - 1];
  };
  size_t runs = 0;
  for (size_t l = 0; l < numberOf.size(); ++l)
    runs += startsRun(l);
  curve.starts.reserve(runs);
  curve.runOf.reserve(numberOf.size() + 1);
  for (std::vector<double> *table : {&curve.sums, &curve.least, &curve.last})
    table->reserve(runs * count);
  std::vector<double> sum(count, 0);
  for (size_t l = 0; l < numberOf.size(); ++l) {
    const double *row = &rows[2 * numberOf[l] * count], *end = row + count;
    if (startsRun(l)) {
      curve.starts.push_back(static_cast<uint32_t>(l));
      curve.sums.insert(curve.sums.end(), sum.begin(), sum.end());
      curve.least.insert(curve.least.end(), row, row + count);
      curve.last.insert(curve.last.end(), end, end + count);
    }
    curve.runOf.push_back(static_cast<uint32_t>(curve.starts.size() - 1));
    for (size_t k = 0; k < count; ++k)
      sum[k] += row[k];
  }
  curve.runOf.push_back(curve.runOf.back());
  return curve;
}

StageClassLayers::StageClassLayers(ArrayRef<std::vector<PipelineOption>> sets,
                                   ArrayRef<uint32_t> numberOf,
                                   int64_t inFlight)
    : boundaries(numberOf.size()) {
  for (const std::vector<PipelineOption> &set : sets)
    distinct.push_back(withoutDominated(toChoices(set, inFlight)));
  leastBytes.push_back(0);
  for (uint32_t number : numberOf) {
    options.push_back(&distinct[number]);
    constexpr int64_t most = std::numeric_limits<int64_t>::max();
    int64_t bytes = most, last = most, boundary = most;
    for (const Choice &choice : distinct[number]) {
      bytes = std::min(bytes, choice.bytes());
      last = std::min(last, choice.bytes() + choice.transient);
      boundary = std::min(boundary, choice.boundary);
    }
    leastBytes.push_back(leastBytes.back() + bytes);
    leastLast.push_back(last);
    leastBoundary.push_back(boundary);
  }
}

int64_t StageClassLayers::boundary(size_t begin, size_t end) const {
  return boundaries.at(begin, end, [&] {
    int64_t boundary = 0;
    for (size_t l = begin; l < end; ++l)
      boundary = std::max(boundary, leastBoundary[l]);
    return boundary;
  });
}

const LeastMemory &StageClassLayers::leastMemory(size_t begin,
                                                 size_t end) const {
  auto [it, fresh] = leastMemories.try_emplace({begin, end});
  if (!fresh)
    return it->second;
  if (light.empty())
    for (Choices choices : distinct) {
      // Only memory counts, whatever the class.
      for (Choice &choice : choices) {
        choice.layoutClass = 0;
        choice.time = choice.nosync = 0;
      }
      light.push_back(withoutDominated(choices));
    }
  std::vector<const Choices *> lightest;
  for (size_t l = begin; l < end; ++l)
    lightest.push_back(&light[options[l] - distinct.data()]);
  it->second = search::leastMemory(lightest);
  return it->second;
}

StageClassPlace::Slots &StageClassPlace::slotsOf(int64_t inFlight) {
  auto it = byInFlight.find(inFlight);
  if (it != byInFlight.end())
    return it->second;
  *made += sizeof(Slots) + numberOf.size() * 4 * sizeof(int64_t);
  for (const std::vector<PipelineOption> &set : sets)
    *made += set.size() * sizeof(Choice);
  return byInFlight
      .emplace(inFlight,
               Slots{StageClassLayers(sets, numberOf, inFlight), {}, {}})
      .first->second;
}

const StageClassCurve &StageClassPlace::curve(int64_t inFlight, int64_t memory,
                                              Weights weights) {
  Slots &slots = slotsOf(inFlight);
  auto stageClass =
      slots.stageClasses.find({memory, weights.time, weights.nosync});
  if (stageClass != slots.stageClasses.end())
    return stageClass->second;
  auto [curve, fresh] =
      slots.curves.try_emplace({weights.time, weights.nosync});
  if (fresh) {
    curve->second = Curve::of(slots.layers.distinct, numberOf, weights);
    *made += 3 * curve->second.sums.size() * sizeof(double);
  }
  *made += sizeof(StageClassCurve) +
           2 * IntervalTable<double>(numberOf.size()).mostBytes();
  return slots.stageClasses
      .try_emplace({memory, weights.time, weights.nosync}, slots.layers,
                   curve->second, memory)
      .first->second;
}

bool StageClassPlace::isOf(
    ArrayRef<const std::vector<PipelineOption> *> otherSets,
    ArrayRef<uint32_t> otherNumbers) const {
  return otherNumbers.equals(numberOf) && otherSets.size() == sets.size() &&
         all_of(zip_equal(otherSets, sets), [](const auto &pair) {
           return *std::get<0>(pair) == std::get<1>(pair);
         });
}

std::shared_ptr<StageClassPlace>
StageClassCache::placeOf(ArrayRef<const std::vector<PipelineOption> *> sets,
                         ArrayRef<uint32_t> numberOf) {
  // A few numbers of each option tell places apart nearly always.
  size_t hash = numberOf.size();
  for (const std::vector<PipelineOption> *set : sets)
    for (const PipelineOption &option : *set)
      hash = hash_combine(hash, option.time, option.nosync, option.state,
                          option.host, option.hostKept);
  auto [from, to] = places.equal_range(hash);
  for (auto it = from; it != to; ++it)
    if (it->second->isOf(sets, numberOf))
      return it->second;
  // A place that is used is kept.
  constexpr size_t kMostBytes = 16 << 20;
  if (*made > kMostBytes) {
    places.clear();
    made = std::make_shared<size_t>(0);
  }
  std::vector<std::vector<PipelineOption>> own;
  for (const std::vector<PipelineOption> *set : sets)
    own.push_back(*set);
  return places
      .emplace(hash, std::make_shared<StageClassPlace>(std::move(own),
                                                       numberOf.vec(), made))
      ->second;
}

} // namespace galvatron::search
