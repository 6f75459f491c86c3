//===- PipelineBounds.cpp - Which stage can hold which layers -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PipelineImpl.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {

using namespace search;

//===----------------------------------------------------------------------===//
// Bounds without a limit
//===----------------------------------------------------------------------===//

/// All stages' memory together, every layer at the fewest micro-batches in
/// flight.
Picoseconds PipelineSearch::Impl::makeSumBound() const {
  const StageClass *light = nullptr;
  bool onePlace = true;
  double memory = 0;
  for (size_t s = 0; s < tables.stages; ++s) {
    const StageClass &stageClass = tables.stageClass(s);
    onePlace &= stageClass.place == tables.stageClass(0).place;
    memory += static_cast<double>(stageClass.memory);
    if (!light || stageClass.inFlight < light->inFlight)
      light = &stageClass;
  }
  if (onePlace)
    return floorOf(light->curves[kTime]->curve.bound(0, tables.layers, memory));
  // Places have different costs and multipliers: without memory.
  constexpr double enough = 1e18;
  double sum = 0;
  for (size_t l = 0; l < tables.layers; ++l) {
    double least = std::numeric_limits<double>::infinity();
    for (const StageClass &stageClass : tables.stageClasses)
      least = std::min(least,
                       stageClass.curves[kTime]->curve.bound(l, l + 1, enough));
    sum += least > 0 ? least : 0;
  }
  return floorOf(sum);
}

/// A lower bound of the slowest stage's nosync: the mean over the stages of the
/// layers' least ones, less what sums are rounded by.
double PipelineSearch::Impl::meanNosync() const {
  double sum = 0;
  for (size_t l = 0; l < tables.layers; ++l) {
    double least = std::numeric_limits<double>::infinity();
    for (const StageClass &stageClass : tables.stageClasses)
      least = std::min(least, *stageClass.curves[kNosync]->curve.leastOf(l));
    sum += least;
  }
  constexpr double rounding = 1 - 1e-9;
  return sum / static_cast<double>(tables.stages) * rounding - 4;
}

/// The least nosync that some stage has at least, by bisection: at most `most`
/// for every stage must leave a partition.
Picoseconds PipelineSearch::Impl::bottleneckBound() {
  std::vector<size_t> low, high;
  // Impossible intervals are pruned with a limit that no partition is near.
  if (!positions(kNoBound, low, high))
    return kNoBound;
  // Asks for no positions below the mean, where there are none.
  double mean = meanNosync();
  auto possible = [&](Picoseconds most) {
    return static_cast<double>(most) >= mean && positions(most, low, high);
  };
  Picoseconds no = 0, yes = 1;
  while (!possible(yes)) {
    no = yes;
    yes *= 4;
    if (yes >= kNoBound)
      return no;
  }
  for (int i = 0; i < 14 && yes - no > 1 + yes / 4096; ++i) {
    Picoseconds middle = no + (yes - no) / 2;
    (possible(middle) ? yes : no) = middle;
  }
  return no;
}

PipelineBounds PipelineSearch::Impl::firstBounds() {
  PipelineBounds bounds;
  std::vector<size_t> low, high;
  if (tables.bottleneck > 0)
    bounds.nosync = bottleneckBound();
  else if (!positions(kNoBound, low, high))
    bounds.nosync = kNoBound;
  bounds.time = bounds.nosync >= kNoBound ? kNoBound : sumBound();
  return bounds;
}

//===----------------------------------------------------------------------===//
// Windows: which stage can hold which layers
//===----------------------------------------------------------------------===//

bool PipelineSearch::Impl::within(size_t stage, size_t begin, size_t end,
                                  Picoseconds most) const {
  // Must not turn true again as runs grow.
  const StageClassCurve &curve =
      *tables.stageClass(stage)
           .curves[tables.bottleneck == 0 ? kTime : kNosync];
  double bound = curve.boundOfFitting(begin, end);
  return tables.bottleneck == 0 || most >= kNoBound
             ? bound < std::numeric_limits<double>::infinity()
             : bound <= static_cast<double>(most);
}

/// First layers that each stage can have if no stage's nosync is above `most`.
bool PipelineSearch::Impl::positions(Picoseconds most, std::vector<size_t> &low,
                                     std::vector<size_t> &high) const {
  size_t stages = tables.stages, layers = tables.layers;
  low.assign(stages + 1, layers);
  high.assign(stages + 1, 0);
  if (stages > layers)
    return false;
  if (!partition.empty()) {
    for (size_t s = 0; s < stages; ++s) {
      low[s] = high[s];
      high[s + 1] = high[s] + partition[s];
      if (!within(s, high[s], high[s + 1], most))
        return false;
    }
    return true;
  }
  // A later first layer lets a stage end later. Where places differ a layer may
  // not fit on a stage at all, so the latest first layer may have to be
  // earlier.
  for (size_t s = 0; s < stages; ++s) {
    size_t begin = std::min(high[s], layers - (stages - s));
    while (!within(s, begin, begin + 1, most)) {
      if (begin == s)
        return false;
      --begin;
    }
    size_t end = begin + 1;
    while (end < layers - (stages - 1 - s) && within(s, begin, end + 1, most))
      ++end;
    high[s + 1] = end;
  }
  if (high[stages] < layers)
    return false;
  for (size_t s = stages; s-- > 0;) {
    size_t end = std::max(low[s + 1], s + 1);
    while (!within(s, end - 1, end, most))
      if (++end > high[s + 1])
        return false;
    size_t begin = end - 1;
    while (begin > s && within(s, begin - 1, end, most))
      --begin;
    if (begin > high[s])
      return false;
    low[s] = begin;
  }
  return true;
}

bool PipelineSearch::Impl::intervalsWithin(Picoseconds limit,
                                           Intervals &intervals) {
  size_t stages = tables.stages;
  Picoseconds sum = sumBound();
  if (sum > limit)
    return false;
  Picoseconds most =
      tables.bottleneck > 0 ? mostNosync({limit}, sum) : kNoBound;
  std::vector<size_t> low, high;
  if (!positions(most, low, high))
    return false;
  intervals.assign(stages, {});
  for (size_t s = 0; s < stages; ++s) {
    const StageClass &stageClass = tables.stageClass(s);
    for (size_t begin = low[s]; begin <= high[s]; ++begin)
      for (size_t end = std::max(begin + 1, low[s + 1]); end <= high[s + 1];
           ++end) {
        if (!within(s, begin, end, most))
          break;
        const StageClassLayers &own = *stageClass.layers;
        if (own.leastBytes[end - 1] - own.leastBytes[begin] +
                own.leastLast[end - 1] >
            stageClass.memory - stageClass.boundary(begin, end))
          continue;
        Picoseconds charge = 0;
        for (const Charges *own :
             {tables.endCharges(s, end), tables.startCharges(s, begin)})
          charge += own ? own->least : 0;
        Interval interval{begin, end, {}};
        auto bound = [&](size_t f) {
          interval.least[f] =
              floorOf(stageClass.curves[f]->boundOfStage(begin, end)) +
              tables.weights[f].both() * charge;
          return interval.least[f];
        };
        if (bound(kTime) > limit)
          continue;
        if (tables.bottleneck > 0 &&
            (bound(kNosync) > most || bound(kMix) > limit))
          continue;
        if (tables.bottleneck > 0)
          bound(kBalance);
        intervals[s].push_back(interval);
      }
    if (intervals[s].empty())
      return false;
  }
  return true;
}

/// The least time of a stage whose nosync is at most `most`.
Picoseconds PipelineSearch::Impl::timeBelow(Picoseconds time, Picoseconds mix,
                                            Picoseconds balance,
                                            Picoseconds most) const {
  if (mix >= kNoBound || balance >= kNoBound)
    return kNoBound;
  return std::max({time, mix - tables.weights[kMix].nosync * most,
                   balance - tables.weights[kBalance].nosync * most});
}

/// Drops intervals that no pipeline within the limit can have. As long as the
/// sum of the times grows, the room for the largest nosync shrinks, and with it
/// the times grow.
bool PipelineSearch::Impl::prune(Intervals &intervals, Picoseconds limit,
                                 Paths &paths) const {
  if (tables.bottleneck == 0)
    return pruneOnce(intervals, limit, kNoBound, paths);
  Picoseconds sum = sumBound();
  for (int round = 0; round < 4; ++round) {
    Picoseconds most = mostNosync({limit}, sum);
    if (most < 0)
      return false;
    for (std::vector<Interval> &own : intervals)
      for (Interval &interval : own)
        interval.least[kTime] =
            timeBelow(interval.least[kTime], interval.least[kMix],
                      interval.least[kBalance], most);
    if (!pruneOnce(intervals, limit, most, paths))
      return false;
    Picoseconds grown = paths.after[0][0].least.sum;
    if (grown - sum < sum / 8192)
      break;
    sum = grown;
  }
  return true;
}

bool PipelineSearch::Impl::pruneOnce(Intervals &intervals, Picoseconds limit,
                                     Picoseconds most, Paths &paths) const {
  size_t stages = tables.stages, layers = tables.layers;
  int64_t weight = tables.bottleneck;
  for (std::vector<Interval> &own : intervals) {
    erase_if(own, [&](const Interval &interval) {
      return interval.least[kTime] > limit || interval.least[kMix] > limit ||
             interval.least[kNosync] > most;
    });
    if (own.empty())
      return false;
  }
  // The fronts keep their memory from call to call.
  for (auto *side : {&paths.before, &paths.after}) {
    side->resize(stages + 1);
    for (std::vector<Front> &row : *side) {
      row.resize(layers + 1);
      for (Front &front : row)
        front.clear();
    }
  }
  auto with = [](Point rest, const Interval &interval) {
    return Point{rest.sum + interval.least[kTime],
                 std::max(rest.largest, interval.least[kNosync])};
  };

  // At first only the least numbers behind are known.
  paths.after[stages][layers].lower({0, 0});
  for (size_t s = stages; s-- > 0;)
    for (const Interval &interval : intervals[s]) {
      Point point = with(paths.after[s + 1][interval.end].least, interval);
      if (point.sum <= limit)
        paths.after[s][interval.begin].lower(point);
    }
  /// The least cost of a pipeline with this stage between these partial ones.
  auto costOf = [&](Point before, const Interval &interval, Point after) {
    Picoseconds largest =
        std::max({before.largest, after.largest, interval.least[kNosync]});
    return before.sum + after.sum +
           std::max(interval.least[kTime] + weight * largest,
                    interval.least[kMix]);
  };
  paths.before[0][0].insert({0, 0});
  for (size_t s = 0; s < stages; ++s)
    for (const Interval &interval : intervals[s]) {
      Point rest = paths.after[s + 1][interval.end].least;
      if (rest.sum >= kNoBound)
        continue;
      for (const Point &point : paths.before[s][interval.begin].points)
        if (costOf(point, interval, rest) <= limit)
          paths.before[s + 1][interval.end].insert(with(point, interval));
    }
  if (paths.before[stages][layers].points.empty())
    return false;
  for (std::vector<Front> &row : paths.after)
    for (Front &front : row)
      front.clear();
  paths.after[stages][layers].insert({0, 0});
  for (size_t s = stages; s-- > 0;)
    for (const Interval &interval : intervals[s]) {
      Point rest = paths.before[s][interval.begin].least;
      if (rest.sum >= kNoBound)
        continue;
      for (const Point &point : paths.after[s + 1][interval.end].points)
        if (costOf(rest, interval, point) <= limit)
          paths.after[s][interval.begin].insert(with(point, interval));
    }
  for (size_t s = 0; s < stages; ++s) {
    erase_if(intervals[s], [&](const Interval &interval) {
      for (const Point &before : paths.before[s][interval.begin].points)
        for (const Point &after : paths.after[s + 1][interval.end].points)
          if (costOf(before, interval, after) <= limit)
            return false;
      return true;
    });
    if (intervals[s].empty())
      return false;
  }
  return true;
}

} // namespace galvatron
