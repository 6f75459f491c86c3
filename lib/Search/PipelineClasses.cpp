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
        erase_if(interval.cells, [&](const KeyedCell &cell) {
          return cell.least[kNosync] > most;
        });
        for (KeyedCell &cell : interval.cells)
          cell.least[kTime] = timeBelow(cell.least[kTime], cell.least[kMix],
                                        cell.least[kBalance], most);
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

namespace {

/// What decides the largest nosync of a partial pipeline: that of stages which
/// are complete, and the part of one that is not.
struct Pending {
  Picoseconds largest, part;
};
using Pendings = SmallVector<Pending, 4>;

void insertPending(Pendings &known, Pending fresh) {
  for (const Pending &other : known)
    if (other.largest <= fresh.largest && other.part <= fresh.part)
      return;
  erase_if(known, [&](const Pending &other) {
    return fresh.largest <= other.largest && fresh.part <= other.part;
  });
  known.push_back(fresh);
}

/// All that can follow a stage with a given end and last class.
struct Exit {
  Picoseconds sum = kNoBound; ///< least, with the rest of the activation
  Pendings pendings;
  Picoseconds leastLargest = kNoBound, leastRest = kNoBound;
  struct Way {
    size_t target; ///< cell of the paths
    Picoseconds rest;
    Point after;
  };
  SmallVector<Way, 8> ways;
};

} // namespace

bool PipelineSearch::Impl::pruneKeyedOnce(KeyedIntervals &intervals, Room room,
                                          KeyedPaths &paths) {
  size_t stages = tables.stages, layers = tables.layers;
  size_t classes = problem.classes;
  int64_t weight = tables.bottleneck;
  Picoseconds limit = room.limit;
  for (std::vector<Keyed> &own : intervals)
    for (Keyed &interval : own)
      erase_if(interval.cells, [&](const KeyedCell &cell) {
        return cell.least[kTime] > limit ||
               (weight > 0 && cell.least[kMix] > limit);
      });
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
  auto exitOf = [&](size_t s, size_t end, size_t last) {
    Exit exit;
    const KeyedPaths::Cells &cells = paths.after[s + 1][end];
    bool inner = s + 1 < stages;
    const Picoseconds *rests =
        inner ? tables.activationResiduals(s, end).data() : &none;
    for (size_t b = 0; b < (cells.empty() ? 0 : inner ? classes : 1); ++b) {
      size_t target = inner ? last * classes + b : 0;
      if (cells[target].sum >= kNoBound)
        continue;
      exit.ways.push_back({target, rests[target], cells[target]});
      exit.sum = std::min(exit.sum, rests[target] + cells[target].sum);
      exit.leastLargest = std::min(exit.leastLargest, cells[target].largest);
      exit.leastRest = std::min(exit.leastRest, rests[target]);
      insertPending(exit.pendings, {cells[target].largest, rests[target]});
    }
    return exit;
  };
  /// Of one stage, by end and last class, made when asked for.
  std::vector<std::vector<std::optional<Exit>>> exits;
  auto exitFor = [&](size_t s, size_t end, size_t last) -> const Exit & {
    std::vector<std::optional<Exit>> &own = exits[end];
    own.resize(lastsOf(s));
    if (!own[last])
      own[last] = exitOf(s, end, last);
    return *own[last];
  };

  struct Start {
    Picoseconds sum = kNoBound;
    Pendings pendings;
  };
  cellsAt(paths.after, stages, layers)[0] = {0, room.floor};
  for (size_t s = stages; s-- > 0;) {
    exits.assign(layers + 1, {});
    const std::vector<Keyed> &own = intervals[s];
    for (size_t i = 0; i < own.size();) {
      size_t begin = own[i].begin;
      std::vector<Start> starts(firstsOf(s));
      for (; i < own.size() && own[i].begin == begin; ++i)
        for (const KeyedCell &cell : own[i].cells) {
          const Exit &exit = exitFor(s, own[i].end, cell.last);
          Picoseconds time = cell.least[kTime];
          if (exit.sum >= kNoBound ||
              time + exit.sum + weight * room.floor > limit)
            continue;
          Start &start = starts[cell.first];
          start.sum = std::min(start.sum, time + exit.sum);
          Picoseconds nosync = weight > 0 ? cell.least[kNosync] : 0;
          for (const Pending &pending : exit.pendings)
            insertPending(start.pendings,
                          {pending.largest, nosync + pending.part});
        }
      const Picoseconds *rests =
          s > 0 ? tables.gradientResiduals(s, begin).data() : &none;
      for (size_t first = 0; first < starts.size(); ++first) {
        const Start &start = starts[first];
        if (start.sum >= kNoBound)
          continue;
        KeyedPaths::Cells &to = cellsAt(paths.after, s, begin);
        for (size_t a = 0; a < (s > 0 ? classes : 1); ++a) {
          size_t target = s > 0 ? a * classes + first : 0;
          Picoseconds largest = kNoBound;
          for (const Pending &pending : start.pendings)
            largest = std::min(largest, std::max(pending.largest,
                                                 pending.part + rests[target]));
          to[target] = {start.sum + rests[target], largest};
        }
      }
    }
  }

  cellsAt(paths.before, 0, 0)[0] = {0, room.floor};
  bool complete = false;
  for (size_t s = 0; s < stages; ++s) {
    exits.assign(layers + 1, {});
    std::vector<Keyed> &own = intervals[s];
    for (size_t i = 0; i < own.size();) {
      size_t begin = own[i].begin;
      std::vector<std::optional<Entering>> entries(firstsOf(s));
      for (; i < own.size() && own[i].begin == begin; ++i) {
        size_t end = own[i].end;
        KeyedPaths::Cells *to = nullptr;
        erase_if(own[i].cells, [&](const KeyedCell &cell) {
          if (!entries[cell.first])
            entries[cell.first] = entering(paths, s, begin, cell.first);
          const Entering &from = *entries[cell.first];
          const Exit &exit = exitFor(s, end, cell.last);
          if (from.sum >= kNoBound || exit.sum >= kNoBound)
            return true;
          Picoseconds time = cell.least[kTime];
          Picoseconds nosync = weight > 0 ? cell.least[kNosync] : 0;
          Picoseconds mix = weight > 0 ? cell.least[kMix] : 0;
          auto cost = [&](Picoseconds sum, Picoseconds slowest,
                          Picoseconds rest) {
            return sum + std::max(time + weight * slowest, mix + weight * rest);
          };
          Picoseconds leastRest = from.leastRest();
          if (cost(from.sum + exit.sum,
                   std::max({from.leastLargest(), exit.leastLargest,
                             nosync + leastRest + exit.leastRest}),
                   exit.leastRest + leastRest) > limit)
            return true;
          bool alive = false;
          for (const Exit::Way &way : exit.ways) {
            Picoseconds largest = kNoBound;
            for (const auto &[before, gradient] : from.choices)
              largest = std::min(
                  largest, std::max(before, nosync + gradient + way.rest));
            Picoseconds sum = from.sum + way.rest;
            if (cost(sum + way.after.sum, std::max(largest, way.after.largest),
                     way.rest + leastRest) > limit)
              continue;
            alive = true;
            if (!to)
              to = &cellsAt(paths.before, s + 1, end);
            Point &point = (*to)[way.target];
            point.sum = std::min(point.sum, sum + time);
            point.largest = std::min(point.largest, largest);
            complete |= s + 1 == stages;
          }
          return !alive;
        });
      }
    }
    erase_if(own, [](const Keyed &interval) { return interval.cells.empty(); });
    if (own.empty())
      return false;
  }
  return complete;
}

} // namespace galvatron
