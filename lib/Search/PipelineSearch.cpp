//===- PipelineSearch.cpp - Partition and strategies together -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/PipelineSearch.h"

#include "PipelineImpl.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {

using namespace search;

void PipelineSearch::Impl::restart(std::vector<int64_t> newPartition) {
  partition = std::move(newPartition);
  bound = firstBounds().cost(tables.bottleneck);
  checkedNeed = false;
  statistics.attempts = 0;
}

bool PipelineSearch::Impl::late() {
  if (!stopped && cancellation)
    stopped = cancellation->requested();
  stopped |= statistics.steps > mostSteps;
  return stopped;
}

/// The intervals by classes that bounds leave open under a tie choice; false if
/// there is no pipeline of them, or no time.
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
  if (!prune(intervals, limit, blind))
    return false;
  boundWithTransforms(intervals, blind, limit, tieChoice, keyed);
  return !late() && pruneKeyed(keyed, {limit}, paths);
}

/// Cuts off the ends of a window, by the nosync of the slowest stage, that
/// bounds alone prune: at the one end all stages must be so fast that they
/// cost too much time, at the other the slowest leaves no room for the rest.
/// False if nothing is left.
bool PipelineSearch::Impl::narrow(KeyedIntervals &keyed, KeyedPaths &paths,
                                  SearchWindow &window) {
  if (tables.bottleneck == 0)
    return true;
  constexpr Picoseconds finest = 4096; // part of the limit
  // The order is from small pieces to large ones: what cannot be pruned of a
  // small one cannot of a large one.
  constexpr int smallest = 16;
  KeyedIntervals inside; // once, for the sake of its allocations
  for (bool low : {true, false})
    for (int part = smallest; part <= smallest;) {
      const Point &least = paths.whole();
      Picoseconds from = std::max(window.floor, least.largest);
      Picoseconds to = mostNosync(window, least.sum);
      Picoseconds piece = (to - from) / part;
      if (tables.bottleneck * piece <= window.limit / finest || late())
        break;
      SearchWindow end = window;
      if (low)
        end.ceiling = from + piece;
      else
        end.floor = to - piece;
      inside = keyed;
      if (pruneKeyed(inside, end, tryPaths)) {
        part *= 2;
        continue;
      }
      part = std::max(2, part / 2);
      if (low)
        window.floor = end.ceiling + 1;
      else
        window.ceiling = end.floor - 1;
      if (!pruneKeyed(keyed, window, paths))
        return false;
    }
  return true;
}

std::optional<PipelineSolution>
PipelineSearch::Impl::solveChoice(const Intervals &all, size_t tieChoice,
                                  Picoseconds limit) {
  SearchWindow window{limit};
  KeyedIntervals keyed;
  KeyedPaths paths;
  if (!open(all, tieChoice, limit, keyed, paths) ||
      !narrow(keyed, paths, window))
    return std::nullopt;
  std::optional<PipelineSolution> best;
  // Single numbers prune intervals. Where every stage has one left the fronts
  // say the same in one run in place of four.
  const bool isDecided = all_of(
      keyed, [](const std::vector<Keyed> &stage) { return stage.size() == 1; });
  if (tables.bottleneck > 0 && !isDecided) {
    for (size_t functional : {kNosync, kBalance, kMix}) {
      if (functional != kNosync && tables.summed == 0)
        break;
      settle(keyed, tieChoice, functional, paths, window);
      if (late() || !pruneKeyed(keyed, window, paths) ||
          !narrow(keyed, paths, window))
        return std::nullopt;
    }
    // The cheapest stages by one number often make the best pipeline already.
    Entries entries(tables.stages);
    for (size_t s = 0; s < tables.stages; ++s)
      for (const Keyed &interval : keyed[s])
        for (const StageEntry &entry :
             refined(s, interval.begin, interval.end, tieChoice).entries)
          entries[s].push_back({&interval, &entry});
    best = join(entries, paths, window);
    if (best) {
      window.limit = best->cost - 1;
      if (!pruneKeyed(keyed, window, paths) || !narrow(keyed, paths, window))
        return best;
    }
  }
  Fronts fronts = frontsOf(keyed, tieChoice, window, paths);
  if (late())
    return best;
  if (std::optional<PipelineSolution> better =
          join(fronts.entries, paths, window))
    best = std::move(better);
  return best;
}

/// A lower bound by bounds alone, of pipelines of cost at most `limit`; above
/// the limit if there is none. Nothing new once time is up.
Picoseconds PipelineSearch::Impl::probe(Picoseconds limit) {
  Intervals intervals;
  if (!intervalsWithin(limit, intervals) || !prune(intervals, limit, blind))
    return limit + 1;
  Picoseconds least = limit + 1;
  KeyedIntervals keyed;
  KeyedPaths paths;
  for (size_t c = 0; c < tables.tieChoices.size(); ++c) {
    if (open(intervals, c, limit, keyed, paths))
      least = std::min(least, paths.bound);
    if (stopped || least <= bound)
      return bound;
  }
  return least;
}

/// Once the bound has risen above `suspicious`, perhaps nothing fits at all.
void PipelineSearch::Impl::pruneIfNothingFits(Picoseconds suspicious) {
  if (bound <= suspicious || checkedNeed)
    return;
  checkedNeed = true;
  if (!search::surelyFits(tables, partition) &&
      search::leastNeed(tables, partition).bound > 0)
    bound = kNoBound;
}

/// Raises the bound to the least limit, nearly, that bounds alone do not
/// prune; stops above `most`. A limit that is not pruned still tells which
/// cost the pipelines within it have at least.
void PipelineSearch::Impl::tighten(Picoseconds most) {
  auto least = [&] { return std::max<Picoseconds>(16, bound / 1000); };
  // A limit that is near is tried at once.
  Picoseconds step = most - bound <= bound / 8 ? most - bound : least();
  Picoseconds suspicious = bound + bound / 4 + 1000;
  while (bound <= most && !late()) {
    Picoseconds limit = std::min(most, bound + step);
    Picoseconds proven = probe(limit);
    if (late())
      return;
    bound = std::max(bound, proven);
    if (proven > limit) {
      step = std::max(least(), step) * 4;
      pruneIfNothingFits(suspicious);
    } else if (step <= least()) {
      return;
    } else {
      step = least();
    }
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
  if (intervalsWithin(limit, intervals) && prune(intervals, limit, blind))
    for (size_t c = 0; c < tables.tieChoices.size(); ++c)
      if (std::optional<PipelineSolution> found =
              solveChoice(intervals, c, limit)) {
        best = std::move(found);
        limit = best->cost - 1;
      }
  if (stopped)
    return best;
  bound = best ? best->cost : std::max(bound, given + 1);
  // The first tries are near the bound: a few of them say nothing about memory.
  constexpr uint64_t few = 5;
  if (!best && statistics.attempts > few)
    pruneIfNothingFits(0);
  return best;
}

//===----------------------------------------------------------------------===//
// PipelineSearch
//===----------------------------------------------------------------------===//

SharedStageClasses::SharedStageClasses()
    : cache(std::make_shared<search::StageClassCache>()) {}

/// No pipeline that passes check() costs more, and a few sums do not overflow.
constexpr Picoseconds kMostCost = Picoseconds(1) << 60;

PipelineSearch::PipelineSearch(const PipelineProblem &problem,
                               const SharedStageClasses &shared,
                               std::optional<Picoseconds> atLeast,
                               PipelineFault fault)
    : impl(std::make_unique<Impl>(problem, shared.cache, atLeast, fault)) {}
PipelineSearch::~PipelineSearch() = default;

Picoseconds PipelineSearch::lowerBound() const {
  // A cost above that of any pipeline is no pipeline's: solve() goes no
  // further.
  return impl->bound > kMostCost ? kNoBound : impl->bound;
}

Picoseconds PipelineSearch::tighten(Picoseconds most) {
  most = std::min(most, kMostCost);
  if (impl->bound <= most)
    impl->tighten(most);
  return lowerBound();
}

void PipelineSearch::raise(Picoseconds atLeast) { impl->raise(atLeast); }

std::optional<PipelineSolution> PipelineSearch::attempt(Picoseconds limit) {
  return impl->attempt(limit);
}

void PipelineSearch::restart(std::vector<int64_t> partition) {
  impl->restart(std::move(partition));
}

void PipelineSearch::setCancellation(const Cancellation *cancellation) {
  impl->cancellation = cancellation;
  impl->stopped = false;
}

void PipelineSearch::setMostSteps(uint64_t steps) { impl->mostSteps = steps; }

bool PipelineSearch::stopped() const { return impl->stopped; }

PipelineBounds PipelineSearch::bounds(const PipelineProblem &problem,
                                      SharedStageClasses &shared) {
  return Impl(problem, shared.cache, /*atLeast=*/0, PipelineFault::None,
              /*boundsOnly=*/true)
      .firstBounds();
}

const PipelineStatistics &PipelineSearch::statistics() const {
  return impl->statistics;
}

std::optional<PipelineSolution> PipelineSearch::solve(Picoseconds atMost) {
  atMost = std::min(atMost, kMostCost);
  tighten(atMost);
  Picoseconds slack = std::max<Picoseconds>(16, lowerBound() / 2000);
  while (lowerBound() <= atMost && !stopped()) {
    Picoseconds limit = std::min(atMost, lowerBound() + slack);
    if (std::optional<PipelineSolution> found = attempt(limit))
      return found;
    slack *= 2;
  }
  return std::nullopt;
}

} // namespace galvatron
