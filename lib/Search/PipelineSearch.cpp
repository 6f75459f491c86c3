//===- PipelineSearch.cpp - Partition and strategies together -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/PipelineSearch.h"

#include "PipelineTables.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

using namespace llvm;

namespace galvatron {

using namespace search;

namespace {

/// Layers [begin, end) as a stage, with lower bounds of its functionals.
struct Interval {
  size_t begin = 0, end = 0;
  Picoseconds least[kFunctionals] = {};
};
using Intervals = std::vector<std::vector<Interval>>; ///< by stage

/// What is known of an interval whatever the limit, by first and last class
/// (where the stage has a neighbour there), first class major.
struct Refined {
  std::vector<Picoseconds> least[kFunctionals]; ///< empty: not bounded yet
  std::vector<char> exact[kFunctionals];
  /// Cheapest choices by one functional; they make upper bounds.
  std::vector<StageEntry> entries;
};

/// An interval with its classes told apart. A dead pair of classes has times of
/// kNoBound.
struct Keyed {
  size_t begin = 0, end = 0;
  std::vector<Picoseconds> least[kFunctionals];

  bool alive() const {
    return any_of(least[kTime],
                  [](Picoseconds time) { return time < kNoBound; });
  }
  void kill(size_t cell) {
    for (std::vector<Picoseconds> &values : least)
      if (!values.empty())
        values[cell] = kNoBound;
  }
};
using KeyedIntervals = std::vector<std::vector<Keyed>>; ///< by stage

/// Partial pipelines: sum of times and largest nosync, undominated.
struct Point {
  Picoseconds sum, largest;
};
using Front = std::vector<Point>;

void insertPoint(Front &front, Point point) {
  for (const Point &other : front)
    if (other.sum <= point.sum && other.largest <= point.largest)
      return;
  erase_if(front, [&](const Point &other) {
    return point.sum <= other.sum && point.largest <= other.largest;
  });
  front.push_back(point);
}

Point leastOf(const Front &front) {
  Point least{kNoBound, kNoBound};
  for (const Point &point : front) {
    least.sum = std::min(least.sum, point.sum);
    least.largest = std::min(least.largest, point.largest);
  }
  return least;
}

/// Fronts of the stages before and after every cut, by stage and first layer.
struct Paths {
  std::vector<std::vector<Front>> before, after;
  std::vector<std::vector<Point>> leastBefore, leastAfter;
};

/// The same with the classes on both sides of the cut told apart (former
/// major): least sum of times and least largest nosync of all stages before,
/// and of all after. The activation belongs to what is before, the gradient to
/// what is after. An end of the pipeline has one cell.
struct KeyedPaths {
  using Cells = std::vector<Point>;
  std::vector<std::vector<Cells>> before, after; ///< [stage][first layer]
};

} // namespace

class PipelineSearch::Impl {
public:
  Impl(const PipelineProblem &problem, PipelineFault fault)
      : problem(problem), tables(problem), fault(fault) {
    PipelineBounds bounds = firstBounds();
    bound = std::max(bounds.time, bounds.nosync) >= kNoBound
                ? kNoBound
                : bounds.time + tables.bottleneck * bounds.nosync;
  }

  std::optional<PipelineSolution> attempt(Picoseconds limit);
  void tighten(Picoseconds most);
  void refuteIfNothingFits(Picoseconds suspicious);
  PipelineBounds firstBounds();

  const PipelineProblem &problem;
  PipelineTables tables;
  PipelineFault fault;
  Picoseconds bound = 0;
  PipelineStatistics statistics;

private:
  using Entries =
      std::vector<std::vector<std::pair<const Keyed *, const StageEntry *>>>;

  Picoseconds bottleneckBound();
  Picoseconds sumBound() const;
  bool positions(Picoseconds most, std::vector<size_t> &low,
                 std::vector<size_t> &high) const;
  bool within(size_t stage, size_t begin, size_t end, Picoseconds most) const;
  bool intervalsWithin(Picoseconds limit, Intervals &intervals);
  Picoseconds timeBelow(Picoseconds time, Picoseconds mix, Picoseconds balance,
                        Picoseconds most) const;
  bool prune(Intervals &intervals, Picoseconds limit, Paths &paths) const;
  bool pruneOnce(Intervals &intervals, Picoseconds limit, Paths &paths) const;
  size_t firstsOf(size_t stage) const {
    return stage > 0 ? problem.classes : 1;
  }
  size_t lastsOf(size_t stage) const {
    return stage + 1 < tables.stages ? problem.classes : 1;
  }
  struct Entering;
  struct Leaving;
  Entering entering(const KeyedPaths &paths, size_t stage, size_t begin,
                    size_t first);
  std::vector<Leaving> leaving(const KeyedPaths &paths, size_t stage,
                               size_t end, size_t last);
  bool pruneKeyed(KeyedIntervals &intervals, Picoseconds limit,
                  KeyedPaths &paths);
  bool pruneKeyedOnce(KeyedIntervals &intervals, Picoseconds limit,
                      KeyedPaths &paths);
  Refined &refined(size_t stage, const Keyed &interval, size_t tieChoice);
  StageRun makeRun(size_t stage, size_t tieChoice,
                   ArrayRef<const Keyed *> same);
  void addLimit(StageRun &run, size_t functional, size_t stage,
                ArrayRef<const Keyed *> same, const KeyedPaths &paths,
                Picoseconds limit);
  template <typename Visit>
  void forEachEnd(KeyedIntervals &intervals, Visit visit);
  void boundWithTransforms(KeyedIntervals &intervals, size_t tieChoice);
  void settle(KeyedIntervals &intervals, size_t tieChoice, size_t functional,
              const KeyedPaths &paths, Picoseconds limit);
  std::optional<PipelineSolution>
  join(const Entries &entries, const KeyedPaths &paths, Picoseconds limit);
  bool open(const Intervals &all, size_t tieChoice, Picoseconds limit,
            KeyedIntervals &keyed, KeyedPaths &paths);
  bool probe(Picoseconds limit);
  std::optional<PipelineSolution>
  solveChoice(const Intervals &all, size_t tieChoice, Picoseconds limit);

  std::unordered_map<uint64_t, Refined> known;
  bool checkedNeed = false;
};

//===----------------------------------------------------------------------===//
// Bounds without a limit
//===----------------------------------------------------------------------===//

static Picoseconds floorOf(double bound) {
  return bound <= 0 ? 0 : static_cast<Picoseconds>(std::floor(bound));
}

/// All stages' memory together, every layer at the fewest micro-batches in
/// flight.
Picoseconds PipelineSearch::Impl::sumBound() const {
  const Station *light = nullptr;
  bool onePlace = true;
  double memory = 0;
  for (size_t s = 0; s < tables.stages; ++s) {
    const Station &station = tables.station(s);
    onePlace &= station.place == tables.station(0).place;
    memory += static_cast<double>(station.memory);
    if (!light || station.inFlight < light->inFlight)
      light = &station;
  }
  if (onePlace)
    return floorOf(light->curves[kTime].bound(0, tables.layers, memory));
  // Places have different costs and multipliers: without memory.
  constexpr double enough = 1e18;
  double sum = 0;
  for (size_t l = 0; l < tables.layers; ++l) {
    double least = std::numeric_limits<double>::infinity();
    for (const Station &station : tables.stations)
      least = std::min(least, station.curves[kTime].bound(l, l + 1, enough));
    sum += least > 0 ? least : 0;
  }
  return floorOf(sum);
}

/// The least nosync that some stage has at least, by bisection: at most `most`
/// for every stage must leave a partition.
Picoseconds PipelineSearch::Impl::bottleneckBound() {
  std::vector<size_t> low, high;
  // What cannot be is refuted with a limit that no partition is near.
  if (!positions(kNoBound, low, high))
    return kNoBound;
  Picoseconds no = 0, yes = 1;
  while (!positions(yes, low, high)) {
    no = yes;
    yes *= 4;
    if (yes >= kNoBound)
      return no;
  }
  for (int i = 0; i < 14 && yes - no > 1 + yes / 4096; ++i) {
    Picoseconds middle = no + (yes - no) / 2;
    (positions(middle, low, high) ? yes : no) = middle;
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
  const Station &station = tables.station(stage);
  // Must not turn true again as runs grow.
  int64_t left = station.memory - station.boundary(begin, end);
  if (station.leastBytes[end] - station.leastBytes[begin] > left)
    return false;
  return tables.bottleneck == 0 || most >= kNoBound ||
         station.curves[kNosync].bound(begin, end, static_cast<double>(left)) <=
             static_cast<double>(most);
}

/// First layers that each stage can have if no stage's nosync is above `most`.
bool PipelineSearch::Impl::positions(Picoseconds most, std::vector<size_t> &low,
                                     std::vector<size_t> &high) const {
  size_t stages = tables.stages, layers = tables.layers;
  low.assign(stages + 1, layers);
  high.assign(stages + 1, 0);
  if (stages > layers)
    return false;
  if (!problem.partition.empty()) {
    for (size_t s = 0; s < stages; ++s) {
      low[s] = high[s];
      high[s + 1] = high[s] + problem.partition[s];
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
      tables.bottleneck > 0 ? (limit - sum) / tables.bottleneck : kNoBound;
  std::vector<size_t> low, high;
  if (!positions(most, low, high))
    return false;
  intervals.assign(stages, {});
  for (size_t s = 0; s < stages; ++s) {
    const Station &station = tables.station(s);
    for (size_t begin = low[s]; begin <= high[s]; ++begin)
      for (size_t end = std::max(begin + 1, low[s + 1]); end <= high[s + 1];
           ++end) {
        if (!within(s, begin, end, most))
          break;
        int64_t left = station.memory - station.boundary(begin, end);
        if (station.leastBytes[end - 1] - station.leastBytes[begin] +
                station.leastLast[end - 1] >
            left)
          continue;
        Picoseconds charge = 0;
        if (const auto *charges = tables.endCharge(s, end))
          charge += *std::min_element(charges->begin(), charges->end());
        if (const auto *charges = tables.startCharge(s, begin))
          charge += *std::min_element(charges->begin(), charges->end());
        Interval interval{begin, end, {}};
        for (size_t f = 0; f < tables.functionals(); ++f)
          interval.least[f] = floorOf(station.curves[f].boundOfStage(
                                  begin, end, static_cast<double>(left))) +
                              tables.weights[f].both() * charge;
        if (tables.bottleneck > 0 && interval.least[kNosync] > most)
          continue;
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

/// Drops intervals that no pipeline of cost at most `limit` can have. As long
/// as the sum of the times grows, the room for the largest nosync shrinks, and
/// with it the times grow.
bool PipelineSearch::Impl::prune(Intervals &intervals, Picoseconds limit,
                                 Paths &paths) const {
  if (tables.bottleneck == 0)
    return pruneOnce(intervals, limit, paths);
  Picoseconds sum = sumBound();
  for (int round = 0; round < 4; ++round) {
    Picoseconds most = (limit - sum) / tables.bottleneck;
    for (std::vector<Interval> &own : intervals)
      for (Interval &interval : own)
        interval.least[kTime] =
            timeBelow(interval.least[kTime], interval.least[kMix],
                      interval.least[kBalance], most);
    if (!pruneOnce(intervals, limit, paths))
      return false;
    Picoseconds grown = paths.leastAfter[0][0].sum;
    if (grown - sum < sum / 8192)
      break;
    sum = grown;
  }
  return true;
}

bool PipelineSearch::Impl::pruneOnce(Intervals &intervals, Picoseconds limit,
                                     Paths &paths) const {
  size_t stages = tables.stages, layers = tables.layers;
  int64_t weight = tables.bottleneck;
  const Point none{kNoBound, kNoBound};
  for (std::vector<Interval> &own : intervals) {
    erase_if(own, [&](const Interval &interval) {
      return interval.least[kTime] > limit || interval.least[kMix] > limit ||
             (weight > 0 && interval.least[kNosync] > limit / weight);
    });
    if (own.empty())
      return false;
  }
  paths.leastBefore.assign(stages + 1, std::vector<Point>(layers + 1, none));
  paths.leastAfter = paths.leastBefore;
  paths.before.assign(stages + 1, std::vector<Front>(layers + 1));
  paths.after = paths.before;

  paths.leastAfter[stages][layers] = {0, 0};
  for (size_t s = stages; s-- > 0;)
    for (const Interval &interval : intervals[s]) {
      const Point &rest = paths.leastAfter[s + 1][interval.end];
      if (rest.sum + interval.least[kTime] > limit)
        continue;
      Point &at = paths.leastAfter[s][interval.begin];
      at.sum = std::min(at.sum, rest.sum + interval.least[kTime]);
      at.largest =
          std::min(at.largest, std::max(rest.largest, interval.least[kNosync]));
    }
  /// The least cost of a pipeline with this stage between these partial ones.
  auto costOf = [&](Point before, const Interval &interval, Point after) {
    Picoseconds largest =
        std::max({before.largest, after.largest, interval.least[kNosync]});
    return before.sum + after.sum +
           std::max(interval.least[kTime] + weight * largest,
                    interval.least[kMix]);
  };
  paths.before[0][0] = {{0, 0}};
  paths.leastBefore[0][0] = {0, 0};
  for (size_t s = 0; s < stages; ++s) {
    for (const Interval &interval : intervals[s]) {
      const Point &rest = paths.leastAfter[s + 1][interval.end];
      if (rest.sum >= kNoBound)
        continue;
      for (const Point &point : paths.before[s][interval.begin])
        if (costOf(point, interval, rest) <= limit)
          insertPoint(paths.before[s + 1][interval.end],
                      {point.sum + interval.least[kTime],
                       std::max(point.largest, interval.least[kNosync])});
    }
    for (size_t l = 0; l <= layers; ++l)
      paths.leastBefore[s + 1][l] = leastOf(paths.before[s + 1][l]);
  }
  if (paths.before[stages][layers].empty())
    return false;
  paths.after[stages][layers] = {{0, 0}};
  paths.leastAfter.assign(stages + 1, std::vector<Point>(layers + 1, none));
  paths.leastAfter[stages][layers] = {0, 0};
  for (size_t s = stages; s-- > 0;) {
    for (const Interval &interval : intervals[s]) {
      const Point &rest = paths.leastBefore[s][interval.begin];
      if (rest.sum >= kNoBound)
        continue;
      for (const Point &point : paths.after[s + 1][interval.end])
        if (costOf(rest, interval, point) <= limit)
          insertPoint(paths.after[s][interval.begin],
                      {point.sum + interval.least[kTime],
                       std::max(point.largest, interval.least[kNosync])});
    }
    for (size_t l = 0; l <= layers; ++l)
      paths.leastAfter[s][l] = leastOf(paths.after[s][l]);
  }
  for (size_t s = 0; s < stages; ++s) {
    erase_if(intervals[s], [&](const Interval &interval) {
      for (const Point &before : paths.before[s][interval.begin])
        for (const Point &after : paths.after[s + 1][interval.end])
          if (costOf(before, interval, after) <= limit)
            return false;
      return true;
    });
    if (intervals[s].empty())
      return false;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Classes told apart
//===----------------------------------------------------------------------===//

/// All pipelines before a stage with a given first class.
struct PipelineSearch::Impl::Entering {
  Picoseconds sum = kNoBound; ///< least, with the rest of the gradient
  /// Largest nosync before, and the rest of the gradient; undominated.
  std::vector<std::pair<Picoseconds, Picoseconds>> choices;

  Picoseconds leastLargest() const {
    Picoseconds least = kNoBound;
    for (const auto &[largest, rest] : choices)
      least = std::min(least, largest);
    return least;
  }
  Picoseconds leastRest() const {
    Picoseconds least = kNoBound;
    for (const auto &[largest, rest] : choices)
      least = std::min(least, rest);
    return least;
  }
};

/// One class of the layer behind a stage with a given last class.
struct PipelineSearch::Impl::Leaving {
  Picoseconds rest; ///< of the activation
  Point after;
};

PipelineSearch::Impl::Entering
PipelineSearch::Impl::entering(const KeyedPaths &paths, size_t stage,
                               size_t begin, size_t first) {
  Entering result;
  const KeyedPaths::Cells &cells = paths.before[stage][begin];
  if (cells.empty())
    return result;
  if (stage == 0) {
    result.sum = 0;
    result.choices = {{0, 0}};
    return result;
  }
  const std::vector<Picoseconds> &rests =
      tables.gradientResiduals(stage, begin);
  for (size_t a = 0; a < problem.classes; ++a) {
    size_t cell = a * problem.classes + first;
    if (cells[cell].sum >= kNoBound)
      continue;
    result.sum = std::min(result.sum, cells[cell].sum + rests[cell]);
    std::pair<Picoseconds, Picoseconds> fresh{cells[cell].largest, rests[cell]};
    auto beats = [](const auto &x, const auto &y) {
      return x.first <= y.first && x.second <= y.second;
    };
    if (any_of(result.choices,
               [&](const auto &other) { return beats(other, fresh); }))
      continue;
    erase_if(result.choices,
             [&](const auto &other) { return beats(fresh, other); });
    result.choices.push_back(fresh);
  }
  return result;
}

std::vector<PipelineSearch::Impl::Leaving>
PipelineSearch::Impl::leaving(const KeyedPaths &paths, size_t stage, size_t end,
                              size_t last) {
  const KeyedPaths::Cells &cells = paths.after[stage + 1][end];
  if (cells.empty())
    return {};
  if (stage + 1 == tables.stages)
    return {{0, cells[0]}};
  const std::vector<Picoseconds> &rests =
      tables.activationResiduals(stage, end);
  std::vector<Leaving> result;
  for (size_t b = 0; b < problem.classes; ++b) {
    size_t cell = last * problem.classes + b;
    if (cells[cell].sum < kNoBound)
      result.push_back({rests[cell], cells[cell]});
  }
  return result;
}

/// Kills pairs of classes of intervals that no pipeline of cost at most `limit`
/// can have; see prune().
bool PipelineSearch::Impl::pruneKeyed(KeyedIntervals &intervals,
                                      Picoseconds limit, KeyedPaths &paths) {
  if (tables.bottleneck == 0)
    return pruneKeyedOnce(intervals, limit, paths);
  Picoseconds sum = sumBound();
  for (int round = 0; round < 4; ++round) {
    Picoseconds most = (limit - sum) / tables.bottleneck;
    for (std::vector<Keyed> &own : intervals)
      for (Keyed &interval : own)
        for (size_t cell = 0; cell < interval.least[kTime].size(); ++cell)
          if (interval.least[kTime][cell] < kNoBound)
            interval.least[kTime][cell] = timeBelow(
                interval.least[kTime][cell], interval.least[kMix][cell],
                interval.least[kBalance][cell], most);
    if (!pruneKeyedOnce(intervals, limit, paths))
      return false;
    Picoseconds grown = paths.after[0][0][0].sum;
    if (grown - sum < sum / 8192)
      break;
    sum = grown;
  }
  return true;
}

bool PipelineSearch::Impl::pruneKeyedOnce(KeyedIntervals &intervals,
                                          Picoseconds limit,
                                          KeyedPaths &paths) {
  size_t stages = tables.stages, layers = tables.layers;
  size_t classes = problem.classes;
  int64_t weight = tables.bottleneck;
  for (std::vector<Keyed> &own : intervals)
    for (Keyed &interval : own)
      for (size_t cell = 0; cell < interval.least[kTime].size(); ++cell)
        if (interval.least[kTime][cell] > limit ||
            (weight > 0 && (interval.least[kMix][cell] > limit ||
                            interval.least[kNosync][cell] > limit / weight)))
          interval.kill(cell);
  auto nosyncOf = [&](const Keyed &interval, size_t cell) {
    return weight > 0 ? interval.least[kNosync][cell] : 0;
  };
  auto cellsAt = [&](std::vector<std::vector<KeyedPaths::Cells>> &side,
                     size_t stage, size_t layer) -> KeyedPaths::Cells & {
    KeyedPaths::Cells &cells = side[stage][layer];
    if (cells.empty())
      cells.assign(stage == 0 || stage == stages ? 1 : classes * classes,
                   {kNoBound, kNoBound});
    return cells;
  };
  paths.before.assign(stages + 1, std::vector<KeyedPaths::Cells>(layers + 1));
  paths.after = paths.before;

  cellsAt(paths.after, stages, layers)[0] = {0, 0};
  for (size_t s = stages; s-- > 0;)
    for (const Keyed &interval : intervals[s]) {
      size_t lasts = lastsOf(s), firsts = firstsOf(s);
      for (size_t last = 0; last < lasts; ++last) {
        std::vector<Leaving> ways = leaving(paths, s, interval.end, last);
        if (ways.empty())
          continue;
        Picoseconds sum = kNoBound;
        for (const Leaving &way : ways)
          sum = std::min(sum, way.rest + way.after.sum);
        for (size_t first = 0; first < firsts; ++first) {
          size_t cell = first * lasts + last;
          Picoseconds time = interval.least[kTime][cell];
          if (time >= kNoBound || time + sum > limit)
            continue;
          Picoseconds nosync = nosyncOf(interval, cell);
          KeyedPaths::Cells &to = cellsAt(paths.after, s, interval.begin);
          for (size_t a = 0; a < (s > 0 ? classes : 1); ++a) {
            size_t target = s > 0 ? a * classes + first : 0;
            Picoseconds rest =
                s > 0 ? tables.gradientResiduals(s, interval.begin)[target] : 0;
            Picoseconds largest = kNoBound;
            for (const Leaving &way : ways)
              largest = std::min(largest, std::max(way.after.largest,
                                                   nosync + way.rest + rest));
            to[target].sum = std::min(to[target].sum, time + sum + rest);
            to[target].largest = std::min(to[target].largest, largest);
          }
        }
      }
    }

  cellsAt(paths.before, 0, 0)[0] = {0, 0};
  bool complete = false;
  for (size_t s = 0; s < stages; ++s) {
    size_t lasts = lastsOf(s), firsts = firstsOf(s);
    for (Keyed &interval : intervals[s])
      for (size_t first = 0; first < firsts; ++first) {
        Entering from = entering(paths, s, interval.begin, first);
        Picoseconds leastRest = from.leastRest();
        for (size_t last = 0; last < lasts; ++last) {
          size_t cell = first * lasts + last;
          Picoseconds time = interval.least[kTime][cell];
          if (time >= kNoBound)
            continue;
          bool alive = false;
          Picoseconds nosync = nosyncOf(interval, cell);
          Picoseconds mix = weight > 0 ? interval.least[kMix][cell] : 0;
          if (from.sum < kNoBound)
            for (size_t b = 0; b < (s + 1 < stages ? classes : 1); ++b) {
              const KeyedPaths::Cells &ends = paths.after[s + 1][interval.end];
              if (ends.empty())
                break;
              size_t target = s + 1 < stages ? last * classes + b : 0;
              const Point &after = ends[target];
              if (after.sum >= kNoBound)
                continue;
              Picoseconds rest =
                  s + 1 < stages
                      ? tables.activationResiduals(s, interval.end)[target]
                      : 0;
              Picoseconds largest = kNoBound;
              for (const auto &[before, gradient] : from.choices)
                largest = std::min(largest,
                                   std::max(before, nosync + gradient + rest));
              Picoseconds sum = from.sum + rest;
              Picoseconds slowest = std::max(largest, after.largest);
              if (sum + after.sum +
                      std::max(time + weight * slowest,
                               mix + weight * (rest + leastRest)) >
                  limit)
                continue;
              alive = true;
              Point &to = cellsAt(paths.before, s + 1, interval.end)[target];
              to.sum = std::min(to.sum, sum + time);
              to.largest = std::min(to.largest, largest);
              complete |= s + 1 == stages;
            }
          if (!alive)
            interval.kill(cell);
        }
      }
    erase_if(intervals[s],
             [](const Keyed &interval) { return !interval.alive(); });
    if (intervals[s].empty())
      return false;
  }
  return complete;
}

//===----------------------------------------------------------------------===//
// Runs over one stage
//===----------------------------------------------------------------------===//

Refined &PipelineSearch::Impl::refined(size_t stage, const Keyed &interval,
                                       size_t tieChoice) {
  uint64_t key = tables.tied(interval.begin, interval.end) ? tieChoice + 1 : 0;
  for (size_t part : {stage, interval.begin, interval.end})
    key = key << 16 | part;
  return known[key];
}

/// Calls visit(stage, intervals with one end) from the first stage on.
template <typename Visit>
void PipelineSearch::Impl::forEachEnd(KeyedIntervals &intervals, Visit visit) {
  for (size_t s = 0; s < intervals.size(); ++s) {
    llvm::sort(intervals[s], [](const Keyed &a, const Keyed &b) {
      return std::tie(a.end, a.begin) < std::tie(b.end, b.begin);
    });
    for (size_t i = 0; i < intervals[s].size();) {
      std::vector<Keyed *> same;
      size_t end = intervals[s][i].end;
      for (; i < intervals[s].size() && intervals[s][i].end == end; ++i)
        same.push_back(&intervals[s][i]);
      visit(s, same);
    }
  }
}

StageRun PipelineSearch::Impl::makeRun(size_t stage, size_t tieChoice,
                                       ArrayRef<const Keyed *> same) {
  StageRun run;
  run.classes = problem.classes;
  run.end = same.front()->end;
  run.memory = problem.stages[stage].memory;
  run.endCharge = tables.endCharge(stage, run.end);
  run.byFirstClass = stage > 0;
  run.byLastClass = stage + 1 < tables.stages;
  run.fault = fault;
  for (const Keyed *interval : same) {
    run.starts.push_back(interval->begin);
    run.startCharge.push_back(tables.startCharge(stage, interval->begin));
  }
  for (size_t l = run.starts.front(); l < run.end; ++l) {
    run.options.push_back(&tables.options(stage, l, tieChoice));
    if (l + 1 < run.end) {
      run.transforms.push_back(&tables.transform(stage, l));
      run.spreads.push_back(&tables.spread(stage, l));
    }
  }
  return run;
}

static void sortUnique(std::vector<double> &values) {
  llvm::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

void PipelineSearch::Impl::addLimit(StageRun &run, size_t functional,
                                    size_t stage, ArrayRef<const Keyed *> same,
                                    const KeyedPaths &paths, Picoseconds most) {
  // No finite limit: lower than any cost, and sums of it stay finite.
  constexpr double never = -1e300;
  auto weight = static_cast<double>(tables.bottleneck);
  const Station &station = tables.station(stage);
  size_t lasts = lastsOf(stage);
  Limit limit;
  limit.weights = tables.weights[functional];
  Picoseconds leastAfter = kNoBound;
  for (size_t last = 0; last < lasts; ++last) {
    double least = std::numeric_limits<double>::infinity();
    for (const Leaving &way : leaving(paths, stage, run.end, last)) {
      // Functionals that count the time alone, and those that count nosync too.
      double counted =
          functional == kTime || functional == kBalance ? 1 : 1 + weight;
      least = std::min(least, counted * static_cast<double>(way.rest) +
                                  static_cast<double>(way.after.sum));
      leastAfter = std::min(leastAfter, way.after.largest);
    }
    double left = static_cast<double>(most) - least;
    if (functional == kBalance)
      left += static_cast<double>(tables.weights[kBalance].nosync) *
              static_cast<double>(most - sumBound()) / weight;
    limit.limit.push_back(left < never            ? never
                          : functional == kNosync ? left / weight
                                                  : left);
  }
  std::vector<double> multipliers;
  for (size_t i = 0; i < same.size(); ++i) {
    const Keyed &interval = *same[i];
    limit.added.emplace_back();
    for (size_t first = 0; first < problem.classes; ++first) {
      Entering from = entering(paths, stage, interval.begin, first);
      size_t row = stage > 0 ? first : 0;
      Picoseconds time = kNoBound, nosync = kNoBound;
      for (size_t cell = row * lasts; cell < (row + 1) * lasts; ++cell) {
        time = std::min(time, interval.least[kTime][cell]);
        if (tables.bottleneck > 0)
          nosync = std::min(nosync, interval.least[kNosync][cell]);
      }
      if (from.sum >= kNoBound || time >= kNoBound) {
        limit.added.back().push_back(std::numeric_limits<double>::infinity());
        continue;
      }
      auto sum = static_cast<double>(from.sum);
      auto rest = static_cast<double>(from.leastRest());
      double added = sum;
      if ((functional == kTime && tables.bottleneck > 0) ||
          functional == kBalance)
        added += weight *
                 static_cast<double>(std::max({from.leastLargest(), leastAfter,
                                               nosync + from.leastRest()}));
      else if (functional == kNosync)
        added = (sum + static_cast<double>(time)) / weight + rest;
      else if (functional == kMix)
        added += weight * rest;
      limit.added.back().push_back(added);
    }
    if (i == 0 || i + 1 == same.size())
      station.curves[functional].choose(
          interval.begin, interval.end,
          static_cast<double>(station.memory -
                              station.boundary(interval.begin, interval.end)),
          2, multipliers);
  }
  sortUnique(multipliers);
  run.limits.push_back(std::move(limit));
  run.multipliers.push_back(std::move(multipliers));
}

/// Better bounds for all intervals: the dual with transforms, with the tied
/// layers' own options and by classes.
void PipelineSearch::Impl::boundWithTransforms(KeyedIntervals &intervals,
                                               size_t tieChoice) {
  forEachEnd(intervals, [&](size_t stage, std::vector<Keyed *> &same) {
    std::vector<const Keyed *> open;
    for (const Keyed *interval : same)
      if (refined(stage, *interval, tieChoice).least[kTime].empty())
        open.push_back(interval);
    if (!open.empty()) {
      StageRun run = makeRun(stage, tieChoice, open);
      const Station &station = tables.station(stage);
      std::vector<int64_t> reserved;
      for (const Keyed *interval : open)
        reserved.push_back(station.boundary(interval->begin, interval->end));
      for (size_t f = 0; f < tables.functionals(); ++f) {
        std::vector<double> multipliers;
        for (size_t i : {size_t(0), open.size() - 1})
          station.curves[f].choose(
              open[i]->begin, open[i]->end,
              static_cast<double>(station.memory - reserved[i]), 1,
              multipliers);
        sortUnique(multipliers);
        std::vector<std::vector<double>> bounds =
            boundStage(run, tables.weights[f], multipliers, reserved);
        for (size_t i = 0; i < open.size(); ++i) {
          Refined &record = refined(stage, *open[i], tieChoice);
          for (double bound : bounds[i])
            record.least[f].push_back(bound >= static_cast<double>(kNoBound)
                                          ? kNoBound
                                          : floorOf(bound));
          record.exact[f].assign(bounds[i].size(), 0);
        }
      }
    }
    for (Keyed *interval : same) {
      const Refined &record = refined(stage, *interval, tieChoice);
      for (size_t f = 0; f < tables.functionals(); ++f)
        for (size_t cell = 0; cell < record.least[f].size(); ++cell)
          interval->least[f][cell] =
              std::max(interval->least[f][cell], record.least[f][cell]);
    }
  });
}

/// The exact least of one functional for every interval and pair of classes, or
/// a proof that it is beyond what `most` allows.
void PipelineSearch::Impl::settle(KeyedIntervals &intervals, size_t tieChoice,
                                  size_t functional, const KeyedPaths &paths,
                                  Picoseconds most) {
  forEachEnd(intervals, [&](size_t stage, std::vector<Keyed *> &same) {
    size_t lasts = lastsOf(stage);
    std::vector<const Keyed *> open;
    for (const Keyed *interval : same) {
      const Refined &record = refined(stage, *interval, tieChoice);
      for (size_t cell = 0; cell < record.least[functional].size(); ++cell)
        if (interval->least[kTime][cell] < kNoBound &&
            !record.exact[functional][cell]) {
          open.push_back(interval);
          break;
        }
    }
    if (!open.empty()) {
      StageRun run = makeRun(stage, tieChoice, open);
      run.cost = tables.weights[functional];
      addLimit(run, functional, stage, open, paths, most);
      std::vector<std::vector<char>> found(
          open.size(), std::vector<char>(firstsOf(stage) * lasts, 0));
      for (StageEntry &entry : runStage(run, statistics)) {
        size_t cell = (stage > 0 ? entry.firstClass : 0) * lasts +
                      (run.byLastClass ? entry.lastClass : 0);
        found[entry.start][cell] = 1;
        Refined &record = refined(stage, *open[entry.start], tieChoice);
        record.least[functional][cell] = run.cost.of(entry.time, entry.nosync);
        if (!std::exchange(record.exact[functional][cell], 1))
          record.entries.push_back(std::move(entry));
      }
      const Limit &limit = run.limits[0];
      for (size_t i = 0; i < open.size(); ++i) {
        Refined &record = refined(stage, *open[i], tieChoice);
        for (size_t cell = 0; cell < found[i].size(); ++cell) {
          double refuted =
              limit.limit[cell % lasts] - limit.added[i][cell / lasts];
          if (found[i][cell] || !(refuted >= 0))
            continue;
          Picoseconds &least = record.least[functional][cell];
          least = std::max(least, floorOf(refuted) + 1);
        }
      }
    }
    for (Keyed *interval : same) {
      const Refined &record = refined(stage, *interval, tieChoice);
      for (size_t cell = 0; cell < record.least[functional].size(); ++cell)
        interval->least[functional][cell] = std::max(
            interval->least[functional][cell], record.least[functional][cell]);
    }
  });
}

//===----------------------------------------------------------------------===//
// Stages joined
//===----------------------------------------------------------------------===//

namespace {
/// Stages 0..s joined. The last one may still grow by what it sends on.
struct ChainLabel {
  Picoseconds sum;     ///< of times
  Picoseconds largest; ///< nosync of the stages before the last
  Picoseconds current; ///< nosync of the last stage so far
  size_t end, lastClass;
  size_t entry, parent;
};
} // namespace

std::optional<PipelineSolution>
PipelineSearch::Impl::join(const Entries &entries, const KeyedPaths &paths,
                           Picoseconds limit) {
  size_t stages = tables.stages, classes = problem.classes;
  int64_t weight = tables.bottleneck;
  std::vector<std::vector<ChainLabel>> labels(stages);
  for (size_t s = 0; s < stages; ++s) {
    std::vector<ChainLabel> fresh;
    auto admit = [&](ChainLabel label) {
      bool within = false;
      Picoseconds leastLargest = kNoBound;
      for (const Leaving &way :
           leaving(paths, s, label.end, s + 1 < stages ? label.lastClass : 0)) {
        within |=
            label.sum + way.rest + way.after.sum +
                weight * std::max({label.largest, label.current + way.rest,
                                   way.after.largest}) <=
            limit;
        leastLargest = std::min(leastLargest, way.after.largest);
      }
      if (!within)
        return;
      // Raise what cannot decide any more: some later stage is that slow, and
      // this one can only grow by what it sends.
      label.largest = std::max(label.largest, leastLargest);
      label.current = std::max(
          label.current, label.largest - tables.endResidual(s, label.end));
      fresh.push_back(label);
    };
    std::map<size_t, std::vector<size_t>> formerByEnd;
    if (s > 0)
      for (size_t p = 0; p < labels[s - 1].size(); ++p)
        formerByEnd[labels[s - 1][p].end].push_back(p);
    for (size_t e = 0; e < entries[s].size(); ++e) {
      const auto &[interval, entry] = entries[s][e];
      Picoseconds time = tables.weights[kTime].of(entry->time, entry->nosync);
      if (s == 0) {
        admit({time, 0, entry->nosync, interval->end, entry->lastClass, e, 0});
        continue;
      }
      // What is left of both transfers after the least charges.
      const PipelineCut &cut = tables.cut(s - 1, interval->begin);
      const auto &activations = problem.matrices[cut.activation];
      const auto &gradients = problem.matrices[cut.gradient];
      const auto &paidBefore = *tables.endCharge(s - 1, interval->begin);
      const auto &paidHere = *tables.startCharge(s, interval->begin);
      for (size_t p : formerByEnd[interval->begin]) {
        const ChainLabel &from = labels[s - 1][p];
        size_t cell = from.lastClass * classes + entry->firstClass;
        Picoseconds activation = activations[cell] - paidBefore[from.lastClass];
        Picoseconds gradient = gradients[cell] - paidHere[entry->firstClass];
        if (fault == PipelineFault::DropCutTransfer)
          activation = gradient = 0;
        admit({from.sum + time + activation + gradient,
               std::max(from.largest, from.current + activation),
               entry->nosync + gradient, interval->end, entry->lastClass, e,
               p});
      }
    }
    llvm::sort(fresh, [](const ChainLabel &a, const ChainLabel &b) {
      return std::tie(a.end, a.lastClass, a.sum, a.largest, a.current, a.entry,
                      a.parent) < std::tie(b.end, b.lastClass, b.sum, b.largest,
                                           b.current, b.entry, b.parent);
    });
    size_t first = 0;
    std::vector<ChainLabel> &kept = labels[s];
    for (const ChainLabel &label : fresh) {
      if (!kept.empty() && (kept.back().end != label.end ||
                            kept.back().lastClass != label.lastClass))
        first = kept.size();
      bool beaten = false;
      for (size_t i = first; i < kept.size() && !beaten; ++i)
        beaten = weight == 0 || (kept[i].largest <= label.largest &&
                                 kept[i].current <= label.current);
      if (!beaten)
        kept.push_back(label);
    }
  }
  const ChainLabel *best = nullptr;
  PipelineSolution solution;
  for (const ChainLabel &label : labels.back()) {
    Picoseconds cost =
        label.sum + weight * std::max(label.largest, label.current);
    if (cost > limit || (best && cost >= solution.cost))
      continue;
    best = &label;
    solution.cost = cost;
  }
  if (!best)
    return std::nullopt;
  solution.partition.resize(stages);
  solution.choice.resize(tables.layers);
  for (size_t s = stages; s-- > 0;) {
    const auto &[interval, entry] = entries[s][best->entry];
    solution.partition[s] =
        static_cast<int64_t>(interval->end - interval->begin);
    std::copy(entry->choice.begin(), entry->choice.end(),
              solution.choice.begin() + interval->begin);
    if (s > 0)
      best = &labels[s - 1][best->parent];
  }
  return solution;
}

/// The intervals by classes that bounds leave open under a tie choice; false if
/// there is no pipeline of them.
bool PipelineSearch::Impl::open(const Intervals &all, size_t tieChoice,
                                Picoseconds limit, KeyedIntervals &keyed,
                                KeyedPaths &paths) {
  Intervals intervals = all;
  for (size_t s = 0; s < tables.stages; ++s)
    erase_if(intervals[s], [&](const Interval &interval) {
      if (!tables.agrees(tieChoice, s, interval.begin, interval.end))
        return true;
      for (size_t l = interval.begin; l < interval.end; ++l)
        if (tables.options(s, l, tieChoice).empty())
          return true;
      return false;
    });
  Paths blind;
  if (!prune(intervals, limit, blind))
    return false;
  keyed.assign(tables.stages, {});
  for (size_t s = 0; s < tables.stages; ++s)
    for (const Interval &interval : intervals[s]) {
      Keyed &own = keyed[s].emplace_back();
      own.begin = interval.begin;
      own.end = interval.end;
      for (size_t f = 0; f < tables.functionals(); ++f)
        own.least[f].assign(firstsOf(s) * lastsOf(s), interval.least[f]);
    }
  boundWithTransforms(keyed, tieChoice);
  return pruneKeyed(keyed, limit, paths);
}

std::optional<PipelineSolution>
PipelineSearch::Impl::solveChoice(const Intervals &all, size_t tieChoice,
                                  Picoseconds limit) {
  KeyedIntervals keyed;
  KeyedPaths paths;
  if (!open(all, tieChoice, limit, keyed, paths))
    return std::nullopt;
  std::optional<PipelineSolution> best;
  if (tables.bottleneck > 0) {
    for (size_t functional : {kNosync, kMix}) {
      settle(keyed, tieChoice, functional, paths, limit);
      if (!pruneKeyed(keyed, limit, paths))
        return std::nullopt;
    }
    // The cheapest stages by one number often make the best pipeline already.
    Entries entries(tables.stages);
    for (size_t s = 0; s < tables.stages; ++s)
      for (const Keyed &interval : keyed[s])
        for (const StageEntry &entry : refined(s, interval, tieChoice).entries)
          entries[s].push_back({&interval, &entry});
    best = join(entries, paths, limit);
    if (best) {
      limit = best->cost - 1;
      if (!pruneKeyed(keyed, limit, paths))
        return best;
    }
  }

  std::vector<std::vector<std::vector<StageEntry>>> fronts(tables.stages);
  std::vector<std::vector<const Keyed *>> intervalOf(tables.stages);
  Entries entries(tables.stages);
  forEachEnd(keyed, [&](size_t stage, std::vector<Keyed *> &same) {
    std::vector<const Keyed *> open(same.begin(), same.end());
    StageRun run = makeRun(stage, tieChoice, open);
    run.twoCosts = tables.bottleneck > 0;
    run.cost = tables.weights[kTime];
    for (size_t f = 0; f < tables.functionals(); ++f)
      addLimit(run, f, stage, open, paths, limit);
    Picoseconds after = kNoBound;
    for (size_t last = 0; last < lastsOf(stage); ++last)
      for (const Leaving &way : leaving(paths, stage, run.end, last))
        after = std::min(after, way.after.largest);
    for (const Keyed *interval : open) {
      Picoseconds before = kNoBound;
      for (size_t first = 0; first < firstsOf(stage); ++first)
        before = std::min(
            before,
            entering(paths, stage, interval->begin, first).leastLargest());
      run.floors.push_back(std::max(before, after) -
                           tables.endResidual(stage, interval->end) -
                           tables.startResidual(stage, interval->begin));
    }
    fronts[stage].push_back(runStage(run, statistics));
    for (const StageEntry &entry : fronts[stage].back())
      intervalOf[stage].push_back(same[entry.start]);
  });
  for (size_t s = 0; s < tables.stages; ++s) {
    size_t next = 0;
    for (const std::vector<StageEntry> &front : fronts[s])
      for (const StageEntry &entry : front)
        entries[s].push_back({intervalOf[s][next++], &entry});
  }
  if (std::optional<PipelineSolution> better = join(entries, paths, limit))
    best = std::move(better);
  return best;
}

/// Whether bounds alone leave a pipeline of cost at most `limit`.
bool PipelineSearch::Impl::probe(Picoseconds limit) {
  Intervals intervals;
  Paths paths;
  if (!intervalsWithin(limit, intervals) || !prune(intervals, limit, paths))
    return false;
  KeyedIntervals keyed;
  KeyedPaths keyedPaths;
  for (size_t c = 0; c < tables.tieChoices.size(); ++c)
    if (open(intervals, c, limit, keyed, keyedPaths))
      return true;
  return false;
}

/// Once the bound has risen above `suspicious`, perhaps nothing fits at all.
void PipelineSearch::Impl::refuteIfNothingFits(Picoseconds suspicious) {
  if (bound <= suspicious || checkedNeed)
    return;
  checkedNeed = true;
  if (leastNeed(problem).excess > 0)
    bound = kNoBound;
}

/// Raises the bound to the least limit, nearly, that bounds alone do not
/// refute; stops above `most`.
void PipelineSearch::Impl::tighten(Picoseconds most) {
  Picoseconds step = std::max<Picoseconds>(16, bound / 1000);
  Picoseconds suspicious = bound + bound / 4 + 1000;
  while (bound <= most && !probe(std::min(most, bound + step))) {
    bound = std::min(most, bound + step) + 1;
    step *= 2;
    refuteIfNothingFits(suspicious);
  }
  if (bound > most)
    return;
  // bound - 1 is refuted, bound + step is not.
  Picoseconds fine = std::max<Picoseconds>(16, bound / 4000);
  while (step > fine) {
    step /= 2;
    if (!probe(bound + step))
      bound += step + 1;
  }
}

std::optional<PipelineSolution>
PipelineSearch::Impl::attempt(Picoseconds limit) {
  if (bound > limit)
    return std::nullopt;
  ++statistics.attempts;
  Picoseconds given = limit;
  std::optional<PipelineSolution> best;
  Intervals intervals;
  Paths paths;
  if (intervalsWithin(limit, intervals) && prune(intervals, limit, paths))
    for (size_t c = 0; c < tables.tieChoices.size(); ++c)
      if (std::optional<PipelineSolution> found =
              solveChoice(intervals, c, limit)) {
        best = std::move(found);
        limit = best->cost - 1;
      }
  bound = best ? best->cost : std::max(bound, given + 1);
  // The first tries are near the bound: a few of them say nothing about memory.
  constexpr uint64_t few = 5;
  if (!best && statistics.attempts > few)
    refuteIfNothingFits(0);
  return best;
}

//===----------------------------------------------------------------------===//
// PipelineSearch
//===----------------------------------------------------------------------===//

/// No pipeline that passes check() costs more, and a few sums do not overflow.
constexpr Picoseconds kMostCost = Picoseconds(1) << 60;

PipelineSearch::PipelineSearch(const PipelineProblem &problem,
                               PipelineFault fault)
    : impl(std::make_unique<Impl>(problem, fault)) {}
PipelineSearch::~PipelineSearch() = default;
PipelineSearch::PipelineSearch(PipelineSearch &&other) noexcept = default;

Picoseconds PipelineSearch::lowerBound() const {
  return std::min(impl->bound, kNoBound);
}

Picoseconds PipelineSearch::tighten(Picoseconds most) {
  most = std::min(most, kMostCost);
  if (impl->bound <= most)
    impl->tighten(most);
  return lowerBound();
}

std::optional<PipelineSolution> PipelineSearch::attempt(Picoseconds limit) {
  return impl->attempt(limit);
}

PipelineBounds PipelineSearch::bounds(const PipelineProblem &problem) {
  return Impl(problem, PipelineFault::None).firstBounds();
}

const PipelineStatistics &PipelineSearch::statistics() const {
  return impl->statistics;
}

std::optional<PipelineSolution> PipelineSearch::solve(Picoseconds atMost) {
  atMost = std::min(atMost, kMostCost);
  tighten(atMost);
  Picoseconds slack = std::max<Picoseconds>(16, lowerBound() / 2000);
  while (lowerBound() <= atMost) {
    Picoseconds limit = std::min(atMost, lowerBound() + slack);
    if (std::optional<PipelineSolution> found = attempt(limit))
      return found;
    slack *= 2;
  }
  return std::nullopt;
}

PipelineNeed leastNeed(const PipelineProblem &problem) {
  PipelineTables tables(problem);
  size_t stages = tables.stages, layers = tables.layers;
  std::map<std::tuple<size_t, size_t, size_t>, LeastMemory> known;
  std::map<const Choices *, Choices> light;
  auto least = [&](size_t s, size_t begin, size_t end) -> const LeastMemory & {
    auto [it, fresh] = known.try_emplace({tables.stationOf[s], begin, end});
    if (fresh) {
      std::vector<const Choices *> options;
      for (size_t l = begin; l < end; ++l) {
        const Choices *all = tables.station(s).options[l];
        auto [own, isNew] = light.try_emplace(all);
        if (isNew)
          own->second = withoutDominated(*all, /*timesMatter=*/false);
        options.push_back(&own->second);
      }
      it->second = leastMemory(options);
    }
    return it->second;
  };
  auto excess = [&](size_t s, size_t begin, size_t end) {
    return least(s, begin, end).bytes - problem.stages[s].memory;
  };
  // need[s][i]: least largest excess of stages s.. over layers i... A stage's
  // excess grows with its end, that of the rest falls.
  constexpr int64_t most = std::numeric_limits<int64_t>::max() / 2;
  std::vector<std::vector<int64_t>> need(
      stages + 1, std::vector<int64_t>(layers + 1, most));
  std::vector<std::vector<size_t>> ends(
      stages + 1, std::vector<size_t>(layers + 1, layers));
  auto fixedEnd = [&](size_t s) {
    size_t end = 0;
    for (size_t i = 0; i <= s; ++i)
      end += problem.partition[i];
    return end;
  };
  for (size_t s = stages; s-- > 0;)
    for (size_t i = s; i + (stages - s) <= layers; ++i) {
      size_t low = i + 1, high = layers - (stages - 1 - s);
      if (s + 1 == stages) {
        low = high = layers;
      } else if (!problem.partition.empty()) {
        if (i + problem.partition[s] != fixedEnd(s))
          continue;
        low = high = fixedEnd(s);
      }
      // First end at which this stage is no better off than the rest.
      while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (excess(s, i, middle) >= need[s + 1][middle])
          high = middle;
        else
          low = middle + 1;
      }
      auto value = [&](size_t end) {
        int64_t own = excess(s, i, end);
        return s + 1 == stages ? own : std::max(own, need[s + 1][end]);
      };
      need[s][i] = value(low);
      ends[s][i] = low;
      if (s + 1 == stages || !problem.partition.empty())
        continue;
      // Later ends are no better. Earlier ones can be where the rest needs
      // less.
      for (size_t end = i + 1; end < low; ++end)
        if (need[s + 1][end] < need[s][i] && value(end) < need[s][i]) {
          need[s][i] = value(end);
          ends[s][i] = end;
        }
    }
  PipelineNeed result;
  result.excess = need[0][0];
  size_t at = 0;
  bool named = false;
  for (size_t s = 0; s < stages; ++s) {
    size_t end = ends[s][at];
    const LeastMemory &own = least(s, at, end);
    if (!named && excess(s, at, end) == result.excess) {
      result.stage = s;
      named = true;
    }
    result.solution.partition.push_back(static_cast<int64_t>(end - at));
    result.solution.choice.insert(result.solution.choice.end(),
                                  own.choice.begin(), own.choice.end());
    at = end;
  }
  return result;
}

} // namespace galvatron
