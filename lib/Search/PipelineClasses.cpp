//===- PipelineClasses.cpp - Which classes stages can end in --------------===//
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

PipelineSearch::Impl::Entering
PipelineSearch::Impl::entering(const KeyedPaths &paths, size_t stage,
                               size_t begin, size_t first) {
  Entering result;
  const KeyedPaths::Cells &cells = paths.before[stage][begin];
  if (cells.empty())
    return result;
  if (stage == 0) {
    result.sum = cells[0].sum;
    result.choices.push_back({cells[0].largest, 0});
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

PipelineSearch::Impl::LeavingWays
PipelineSearch::Impl::leaving(const KeyedPaths &paths, size_t stage, size_t end,
                              size_t last) {
  const KeyedPaths::Cells &cells = paths.after[stage + 1][end];
  if (cells.empty())
    return {};
  if (stage + 1 == tables.stages)
    return {Leaving{0, cells[0]}};
  const std::vector<Picoseconds> &rests =
      tables.activationResiduals(stage, end);
  LeavingWays result;
  for (size_t b = 0; b < problem.classes; ++b) {
    size_t cell = last * problem.classes + b;
    if (cells[cell].sum < kNoBound)
      result.push_back({rests[cell], cells[cell]});
  }
  return result;
}

/// Kills pairs of classes of intervals that no pipeline of the room can have;
/// see prune().
bool PipelineSearch::Impl::pruneKeyed(KeyedIntervals &intervals, Room room,
                                      KeyedPaths &paths) {
  if (tables.bottleneck == 0)
    return pruneKeyedOnce(intervals, room, paths);
  Picoseconds sum = sumBound();
  for (int round = 0; round < 4; ++round) {
    Picoseconds most = mostNosync(room, sum);
    if (most < room.floor)
      return false;
    for (std::vector<Keyed> &own : intervals)
      for (Keyed &interval : own) {
        Picoseconds *time = interval.least(kTime);
        const Picoseconds *nosync = interval.least(kNosync),
                          *mix = interval.least(kMix),
                          *balance = interval.least(kBalance);
        for (size_t cell = 0; cell < interval.cells; ++cell) {
          if (time[cell] >= kNoBound)
            continue;
          if (nosync[cell] > most)
            interval.kill(cell);
          else
            time[cell] = timeBelow(time[cell], mix[cell], balance[cell], most);
        }
      }
    if (!pruneKeyedOnce(intervals, room, paths))
      return false;
    Picoseconds grown = paths.after[0][0][0].sum;
    if (grown - sum < sum / 8192)
      break;
    sum = grown;
  }
  return true;
}

bool PipelineSearch::Impl::pruneKeyedOnce(KeyedIntervals &intervals, Room room,
                                          KeyedPaths &paths) {
  size_t stages = tables.stages, layers = tables.layers;
  size_t classes = problem.classes;
  int64_t weight = tables.bottleneck;
  Picoseconds limit = room.limit;
  for (std::vector<Keyed> &own : intervals)
    for (Keyed &interval : own)
      for (size_t cell = 0; cell < interval.cells; ++cell)
        if (interval.least(kTime)[cell] > limit ||
            (weight > 0 && interval.least(kMix)[cell] > limit))
          interval.kill(cell);
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
  // What transfers cost above the least; an end of the pipeline has none.
  static constexpr Picoseconds none = 0;

  cellsAt(paths.after, stages, layers)[0] = {0, room.floor};
  for (size_t s = stages; s-- > 0;)
    for (const Keyed &interval : intervals[s]) {
      size_t lasts = lastsOf(s), firsts = firstsOf(s);
      size_t formers = s > 0 ? classes : 1;
      const Picoseconds *rests =
          s > 0 ? tables.gradientResiduals(s, interval.begin).data() : &none;
      const Picoseconds *times = interval.least(kTime);
      KeyedPaths::Cells *to = nullptr;
      for (size_t last = 0; last < lasts; ++last) {
        LeavingWays ways = leaving(paths, s, interval.end, last);
        if (ways.empty())
          continue;
        Picoseconds sum = kNoBound;
        for (const Leaving &way : ways)
          sum = std::min(sum, way.rest + way.after.sum);
        for (size_t first = 0; first < firsts; ++first) {
          size_t cell = first * lasts + last;
          Picoseconds time = times[cell];
          if (time >= kNoBound || time + sum + weight * room.floor > limit)
            continue;
          Picoseconds nosync = weight > 0 ? interval.least(kNosync)[cell] : 0;
          if (!to)
            to = &cellsAt(paths.after, s, interval.begin);
          for (size_t a = 0; a < formers; ++a) {
            size_t target = s > 0 ? a * classes + first : 0;
            Picoseconds rest = rests[target];
            Picoseconds largest = kNoBound;
            for (const Leaving &way : ways)
              largest = std::min(largest, std::max(way.after.largest,
                                                   nosync + way.rest + rest));
            Point &point = (*to)[target];
            point.sum = std::min(point.sum, time + sum + rest);
            point.largest = std::min(point.largest, largest);
          }
        }
      }
    }

  cellsAt(paths.before, 0, 0)[0] = {0, room.floor};
  bool complete = false;
  for (size_t s = 0; s < stages; ++s) {
    size_t lasts = lastsOf(s), firsts = firstsOf(s);
    size_t latters = s + 1 < stages ? classes : 1;
    for (Keyed &interval : intervals[s]) {
      const KeyedPaths::Cells &ends = paths.after[s + 1][interval.end];
      const Picoseconds *rests =
          s + 1 < stages ? tables.activationResiduals(s, interval.end).data()
                         : &none;
      KeyedPaths::Cells *to = nullptr;
      for (size_t first = 0; first < firsts; ++first) {
        Entering from = entering(paths, s, interval.begin, first);
        Picoseconds leastRest = from.leastRest();
        for (size_t last = 0; last < lasts; ++last) {
          size_t cell = first * lasts + last;
          Picoseconds time = interval.least(kTime)[cell];
          if (time >= kNoBound)
            continue;
          bool alive = false;
          Picoseconds nosync = weight > 0 ? interval.least(kNosync)[cell] : 0;
          Picoseconds mix = weight > 0 ? interval.least(kMix)[cell] : 0;
          if (from.sum < kNoBound && !ends.empty())
            for (size_t b = 0; b < latters; ++b) {
              size_t target = s + 1 < stages ? last * classes + b : 0;
              const Point &after = ends[target];
              if (after.sum >= kNoBound)
                continue;
              Picoseconds rest = rests[target];
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
              if (!to)
                to = &cellsAt(paths.before, s + 1, interval.end);
              Point &point = (*to)[target];
              point.sum = std::min(point.sum, sum + time);
              point.largest = std::min(point.largest, largest);
              complete |= s + 1 == stages;
            }
          if (!alive)
            interval.kill(cell);
        }
      }
    }
    erase_if(intervals[s],
             [](const Keyed &interval) { return !interval.alive(); });
    if (intervals[s].empty())
      return false;
  }
  return complete;
}

} // namespace galvatron
