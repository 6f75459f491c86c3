//===- PipelineClasses.cpp - Which classes stages can end in --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PipelineImpl.h"

#include <algorithm>
#include <optional>

using namespace llvm;

namespace galvatron {

using namespace search;

PipelineSearch::Impl::Entering
PipelineSearch::Impl::entering(const KeyedPaths &paths, size_t stage,
                               size_t begin, size_t first) {
  Entering result;
  const Point *cells = paths.before.at(stage, begin);
  if (!cells)
    return result;
  if (stage == 0) {
    result.sum = cells[0].sum;
    result.choices.push_back({cells[0].largest, 0});
  } else {
    const std::vector<Picoseconds> &rests =
        tables.startCharges(stage, begin)->above();
    for (size_t a = 0; a < problem.classes; ++a) {
      size_t cell = a * problem.classes + first;
      if (cells[cell].sum >= kNoBound)
        continue;
      result.sum =
          std::min(result.sum, cells[cell].sum + tables.summed * rests[cell]);
      insertUndominated(result.choices, {cells[cell].largest, rests[cell]});
    }
  }
  for (const Pending &choice : result.choices) {
    result.leastLargest = std::min(result.leastLargest, choice.largest);
    result.leastRest = std::min(result.leastRest, choice.part);
  }
  return result;
}

PipelineSearch::Impl::LeavingWays
PipelineSearch::Impl::leaving(const KeyedPaths &paths, size_t stage, size_t end,
                              size_t last) {
  const Point *cells = paths.after.at(stage + 1, end);
  if (!cells)
    return {};
  if (stage + 1 == tables.stages)
    return {Leaving{0, 0, cells[0]}};
  const std::vector<Picoseconds> &rests =
      tables.endCharges(stage, end)->above();
  LeavingWays result;
  for (size_t b = 0; b < problem.classes; ++b) {
    size_t cell = last * problem.classes + b;
    if (cells[cell].sum < kNoBound)
      result.push_back({cell, rests[cell], cells[cell]});
  }
  return result;
}

void PipelineSearch::Impl::Neighbours::enter(size_t newStage) {
  if (newStage == stage)
    return;
  stage = newStage;
  entered.clear();
  index.assign((impl.tables.layers + 1) * impl.problem.classes, 0);
  exits.clear();
  ways.clear();
}

const PipelineSearch::Impl::Entering &
PipelineSearch::Impl::Neighbours::before(size_t begin, size_t first) {
  entered.resize(impl.tables.layers + 1);
  std::vector<Entering> &all = entered[begin];
  if (all.empty())
    for (size_t c = 0; c < impl.firstsOf(stage); ++c)
      all.push_back(impl.entering(paths, stage, begin, c));
  return all[stage > 0 ? first : 0];
}

Picoseconds PipelineSearch::Impl::Neighbours::leastLargestAfter(size_t end) {
  Picoseconds least = kNoBound;
  for (size_t last = 0; last < impl.lastsOf(stage); ++last)
    least = std::min(least, at(end, last).leastLargest);
  return least;
}

void PipelineSearch::Impl::Neighbours::make(size_t end, size_t last) {
  Exit &exit = exits.emplace_back();
  exit.from = ways.size();
  for (const Leaving &way : impl.leaving(paths, stage, end, last)) {
    ways.push_back(way);
    exit.sum =
        std::min(exit.sum, impl.tables.summed * way.rest + way.after.sum);
    exit.leastLargest = std::min(exit.leastLargest, way.after.largest);
    exit.leastRest = std::min(exit.leastRest, way.rest);
    insertUndominated(exit.pendings, {way.after.largest, way.rest});
  }
  exit.to = ways.size();
}

/// Kills pairs of classes of intervals that no pipeline of the window can have;
/// see prune().
bool PipelineSearch::Impl::pruneKeyed(KeyedIntervals &intervals,
                                      SearchWindow window, KeyedPaths &paths) {
  if (tables.bottleneck == 0)
    return pruneKeyedOnce(intervals, window, paths);
  Picoseconds sum = sumBound();
  for (int round = 0; round < 4; ++round) {
    Picoseconds most = mostNosync(window, sum);
    if (most < window.floor)
      return false;
    for (std::vector<Keyed> &own : intervals)
      for (Keyed &interval : own) {
        erase_if(interval.cells, [&](const KeyedCell &cell) {
          return cell.least[kNosync] > most;
        });
        for (KeyedCell &cell : interval.cells)
          cell.least[kTime] = timeBelow(cell.least[kTime], cell.least[kMix],
                                        cell.least[kBalance], most);
      }
    if (!pruneKeyedOnce(intervals, window, paths))
      return false;
    Picoseconds grown = paths.whole().sum;
    if (grown - sum < sum / 8192)
      break;
    sum = grown;
  }
  return true;
}

bool PipelineSearch::Impl::pruneKeyedOnce(KeyedIntervals &intervals,
                                          SearchWindow window,
                                          KeyedPaths &paths) {
  size_t stages = tables.stages, layers = tables.layers;
  size_t classes = problem.classes;
  int64_t weight = tables.bottleneck;
  Picoseconds limit = window.limit;
  for (std::vector<Keyed> &own : intervals)
    for (Keyed &interval : own)
      erase_if(interval.cells, [&](const KeyedCell &cell) {
        return cell.least[kTime] > limit ||
               (weight > 0 && cell.least[kMix] > limit);
      });
  auto cellsAt = [&](KeyedSide &side, size_t stage, size_t layer) {
    return side.make(stage, layer,
                     stage == 0 || stage == stages ? 1 : classes * classes);
  };
  paths.before.reset(stages, layers);
  paths.after.reset(stages, layers);
  // Costs of transfers above the least; an end of the pipeline has none.
  static constexpr Picoseconds none = 0;
  Neighbours exits(*this, paths);

  struct Start {
    Picoseconds sum;
    SmallVector<Pending, 4> pendings;
  };
  std::vector<Start> starts(classes);
  cellsAt(paths.after, stages, layers)[0] = {0, window.floor};
  for (size_t s = stages; s-- > 0;) {
    exits.enter(s);
    const std::vector<Keyed> &own = intervals[s];
    for (size_t i = 0; i < own.size();) {
      size_t begin = own[i].begin;
      for (Start &start : starts) {
        start.sum = kNoBound;
        start.pendings.clear();
      }
      for (; i < own.size() && own[i].begin == begin; ++i) {
        statistics.steps += own[i].cells.size();
        for (const KeyedCell &cell : own[i].cells) {
          const Neighbours::Exit &exit = exits.at(own[i].end, cell.last);
          Picoseconds time = cell.least[kTime];
          if (exit.sum >= kNoBound ||
              time + exit.sum + weight * window.floor > limit)
            continue;
          Start &start = starts[cell.first];
          start.sum = std::min(start.sum, time + exit.sum);
          Picoseconds nosync = weight > 0 ? cell.least[kNosync] : 0;
          for (const Pending &pending : exit.pendings)
            insertUndominated(start.pendings,
                              {pending.largest, nosync + pending.part});
        }
      }
      const Picoseconds *rests =
          s > 0 ? tables.startCharges(s, begin)->above().data() : &none;
      for (size_t first = 0; first < firstsOf(s); ++first) {
        const Start &start = starts[first];
        if (start.sum >= kNoBound)
          continue;
        Point *to = cellsAt(paths.after, s, begin);
        for (size_t a = 0; a < (s > 0 ? classes : 1); ++a) {
          size_t target = s > 0 ? a * classes + first : 0;
          Picoseconds largest = kNoBound;
          for (const Pending &pending : start.pendings)
            largest = std::min(largest, std::max(pending.largest,
                                                 pending.part + rests[target]));
          to[target] = {start.sum + tables.summed * rests[target], largest};
        }
      }
    }
  }
  if (!paths.after.at(0, 0))
    return false;

  cellsAt(paths.before, 0, 0)[0] = {0, window.floor};
  paths.bound = 0;
  std::vector<std::optional<Entering>> entries(classes);
  for (size_t s = 0; s < stages; ++s) {
    exits.enter(s);
    // Every pipeline passes through the stage.
    Picoseconds bound = kNoBound;
    std::vector<Keyed> &own = intervals[s];
    for (size_t i = 0; i < own.size();) {
      size_t begin = own[i].begin;
      for (std::optional<Entering> &entry : entries)
        entry.reset();
      for (; i < own.size() && own[i].begin == begin; ++i) {
        size_t end = own[i].end;
        Point *to = nullptr;
        erase_if(own[i].cells, [&](const KeyedCell &cell) {
          if (!entries[cell.first])
            entries[cell.first] = entering(paths, s, begin, cell.first);
          const Entering &from = *entries[cell.first];
          const Neighbours::Exit &exit = exits.at(end, cell.last);
          if (from.sum >= kNoBound || exit.sum >= kNoBound)
            return true;
          Picoseconds time = cell.least[kTime];
          Picoseconds nosync = weight > 0 ? cell.least[kNosync] : 0;
          Picoseconds mix = weight > 0 ? cell.least[kMix] : 0;
          auto cost = [&](Picoseconds sum, Picoseconds slowest,
                          Picoseconds rest) {
            return sum + std::max(time + weight * slowest, mix + weight * rest);
          };
          if (cost(from.sum + exit.sum,
                   std::max({from.leastLargest, exit.leastLargest,
                             nosync + from.leastRest + exit.leastRest}),
                   exit.leastRest + from.leastRest) > limit)
            return true;
          bool alive = false;
          ArrayRef<Leaving> ways = exits.waysOf(exit);
          statistics.steps += ways.size();
          for (const Leaving &way : ways) {
            Picoseconds largest = kNoBound;
            for (const Pending &choice : from.choices)
              largest =
                  std::min(largest, std::max(choice.largest,
                                             nosync + choice.part + way.rest));
            Picoseconds sum = from.sum + tables.summed * way.rest;
            Picoseconds least =
                cost(sum + way.after.sum, std::max(largest, way.after.largest),
                     way.rest + from.leastRest);
            if (least > limit)
              continue;
            bound = std::min(bound, least);
            alive = true;
            if (!to)
              to = cellsAt(paths.before, s + 1, end);
            Point &point = to[way.target];
            point.sum = std::min(point.sum, sum + time);
            point.largest = std::min(point.largest, largest);
          }
          return !alive;
        });
      }
    }
    erase_if(own, [](const Keyed &interval) { return interval.cells.empty(); });
    if (own.empty())
      return false;
    paths.bound = std::max(paths.bound, bound);
  }
  return true;
}

} // namespace galvatron
