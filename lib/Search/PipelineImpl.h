//===- PipelineImpl.h - The parts of PipelineSearch -------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// PipelineBounds.cpp decides which stage can hold which layers,
// PipelineClasses.cpp which layout classes their ends can have,
// PipelineRuns.cpp runs the labels, PipelineJoin.cpp joins the stages and
// PipelineSearch.cpp drives them. docs/search.md tells how they fit together.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SEARCH_PIPELINEIMPL_H
#define GALVATRON_LIB_SEARCH_PIPELINEIMPL_H

#include "PipelineTables.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <tuple>

namespace galvatron {
namespace search {

inline Picoseconds floorOf(double bound) {
  return bound <= 0 ? 0 : static_cast<Picoseconds>(std::floor(bound));
}

/// Layers [begin, end) as a stage, with lower bounds of its functionals.
struct Interval {
  size_t begin = 0, end = 0;
  Picoseconds least[kFunctionals] = {};
};
using Intervals = std::vector<std::vector<Interval>>; ///< by stage

/// Bounds of an interval that hold whatever the limit, by first and last class
/// (where the stage has a neighbour there), first class major.
struct Refined {
  std::vector<Picoseconds> least[kFunctionals];
  /// The limit up to which a functional's dual is known; above, bounds are just
  /// above it.
  double bounded[kFunctionals] = {-1, -1, -1, -1};
  std::vector<uint32_t> possible; ///< cells within all of these
  std::vector<char> exact[kFunctionals];
  /// Cheapest choices by one functional; they make upper bounds.
  std::vector<StageEntry> entries;
};

/// The pipelines that are looked for: those of cost at most `limit` and with no
/// stage's nosync above `ceiling`. A largest nosync below `floor` counts as
/// `floor`; such a pipeline belongs to a lower window.
struct SearchWindow {
  Picoseconds limit;
  Picoseconds floor = 0, ceiling = kNoBound;
};

/// The least costs of a stage with given classes of its first and last layer.
/// An end of the pipeline has class 0.
struct KeyedCell {
  uint32_t first, last;
  Picoseconds least[kFunctionals];
};
/// An interval with its classes told apart: pairs that there may be.
struct Keyed {
  size_t begin = 0, end = 0;
  std::vector<KeyedCell> cells; ///< by first class, then last
};
using KeyedIntervals = std::vector<std::vector<Keyed>>; ///< by stage

/// Intervals of a stage that no cost tells apart.
struct EqualCostStart {
  size_t begin = 0; ///< once moved to the group's end
  llvm::SmallVector<Keyed *, 4> intervals;
};
/// Intervals that end alike, moved as far to the right as they go: one label
/// run serves all of them.
struct EqualCostGroup {
  size_t stage = 0, end = 0;
  std::vector<EqualCostStart> starts; ///< by begin, ascending
};

/// Adds an item to a list of undominated ones, unless one of them is within it.
/// It replaces those that it is within.
template <typename List>
void insertUndominated(List &known, typename List::value_type fresh) {
  for (const auto &other : known)
    if (other.within(fresh))
      return;
  llvm::erase_if(known, [&](const auto &other) { return fresh.within(other); });
  known.push_back(fresh);
}

/// Partial pipelines: sum of times and largest nosync.
struct Point {
  Picoseconds sum, largest;

  bool within(const Point &other) const {
    return sum <= other.sum && largest <= other.largest;
  }
};

/// Undominated points.
struct Front {
  std::vector<Point> points;
  Point least{kNoBound, kNoBound}; ///< least sum and least largest nosync

  void clear() {
    points.clear();
    least = {kNoBound, kNoBound};
  }
  void insert(Point point) {
    insertUndominated(points, point);
    lower(point);
  }
  /// Counts a point in the least numbers alone.
  void lower(Point point) {
    least.sum = std::min(least.sum, point.sum);
    least.largest = std::min(least.largest, point.largest);
  }
};

/// Fronts of the stages before and after every cut, by stage and first layer.
struct Paths {
  std::vector<std::vector<Front>> before, after;
};

/// Points by cut with the classes on both sides told apart (former major):
/// least sum of times and least largest nosync of all stages before, and of all
/// after. The activation belongs to what is before, the gradient to what is
/// after. An end of the pipeline has one cell.
class KeyedSide {
public:
  void reset(size_t stages, size_t layers) {
    width = layers + 1;
    slots.assign((stages + 1) * width, kNone);
    points.clear();
  }
  /// The cells of a stage and its first layer; null if nothing gets there.
  const Point *at(size_t stage, size_t layer) const {
    size_t slot = slots[stage * width + layer];
    return slot == kNone ? nullptr : &points[slot];
  }
  /// Makes them if need be. They stay where they are until the next are made.
  Point *make(size_t stage, size_t layer, size_t cells) {
    size_t &slot = slots[stage * width + layer];
    if (slot == kNone) {
      slot = points.size();
      points.resize(slot + cells, {kNoBound, kNoBound});
    }
    return &points[slot];
  }

private:
  static constexpr size_t kNone = ~size_t(0);
  size_t width = 0;
  std::vector<size_t> slots; ///< [stage][layer]: of the first cell
  std::vector<Point> points;
};
struct KeyedPaths {
  KeyedSide before, after;
  Picoseconds bound = 0; ///< no pipeline of the window costs less

  /// The point of the whole pipeline.
  const Point &whole() const { return *after.at(0, 0); }
};

/// The two numbers that decide the largest nosync of a partial pipeline: that
/// of stages which are complete, and the part of one that is not.
struct Pending {
  Picoseconds largest, part;

  bool within(const Pending &other) const {
    return largest <= other.largest && part <= other.part;
  }
};

} // namespace search

class PipelineSearch::Impl {
public:
  Impl(const PipelineProblem &problem,
       std::shared_ptr<search::StageClassCache> stageClasses,
       std::optional<Picoseconds> atLeast, PipelineFault fault,
       bool boundsOnly = false)
      : problem(problem), cache(std::move(stageClasses)),
        tables(problem, *cache, boundsOnly), fault(fault) {
    leastSum = makeSumBound();
    partition = problem.partition;
    if (atLeast)
      bound = *atLeast;
    else
      restart(partition);
  }

  std::optional<PipelineSolution> attempt(Picoseconds limit);
  void tighten(Picoseconds most);
  void raise(Picoseconds atLeast) { bound = std::max(bound, atLeast); }
  void pruneIfNothingFits(Picoseconds suspicious);
  PipelineBounds firstBounds();
  void restart(std::vector<int64_t> newPartition);
  /// Returns true if time is up; once it is, nothing is proven any more.
  bool late();

  const PipelineProblem &problem;
  std::shared_ptr<search::StageClassCache> cache;
  search::PipelineTables tables;
  PipelineFault fault;
  /// Layers per stage if given, else empty. Not always the problem's.
  std::vector<int64_t> partition;
  Picoseconds bound = 0;
  PipelineStatistics statistics;
  const Cancellation *cancellation = nullptr;
  uint64_t mostSteps = ~uint64_t(0);
  bool stopped = false;

private:
  /// The choices for intervals, by stage.
  using Entries = std::vector<std::vector<
      std::pair<const search::Keyed *, const search::StageEntry *>>>;

  double meanNosync() const;
  Picoseconds bottleneckBound();
  Picoseconds makeSumBound() const;
  Picoseconds sumBound() const { return leastSum; }
  bool positions(Picoseconds most, std::vector<size_t> &low,
                 std::vector<size_t> &high) const;
  bool within(size_t stage, size_t begin, size_t end, Picoseconds most) const;
  /// The most that the slowest stage's nosync may be if all times sum to `sum`.
  Picoseconds mostNosync(search::SearchWindow window, Picoseconds sum) const {
    return std::min(window.ceiling, (window.limit - sum) / tables.bottleneck);
  }
  bool intervalsWithin(Picoseconds limit, search::Intervals &intervals);
  Picoseconds timeBelow(Picoseconds time, Picoseconds mix, Picoseconds balance,
                        Picoseconds most) const;
  bool prune(search::Intervals &intervals, Picoseconds limit,
             search::Paths &paths) const;
  bool pruneOnce(search::Intervals &intervals, Picoseconds limit,
                 Picoseconds most, search::Paths &paths) const;
  size_t firstsOf(size_t stage) const {
    return stage > 0 ? problem.classes : 1;
  }
  size_t lastsOf(size_t stage) const {
    return stage + 1 < tables.stages ? problem.classes : 1;
  }
  /// All pipelines before a stage with a given first class.
  struct Entering {
    Picoseconds sum = kNoBound; ///< least, with the rest of the gradient
    Picoseconds leastLargest = kNoBound, leastRest = kNoBound;
    /// Largest nosync before, and the rest of the gradient; undominated.
    llvm::SmallVector<search::Pending, 8> choices;
  };

  /// One class of the layer behind a stage with a given last class.
  struct Leaving {
    size_t target;    ///< cell of the paths
    Picoseconds rest; ///< of the activation
    search::Point after;
  };

  using LeavingWays = llvm::SmallVector<Leaving, 16>;

  Entering entering(const search::KeyedPaths &paths, size_t stage, size_t begin,
                    size_t first);
  LeavingWays leaving(const search::KeyedPaths &paths, size_t stage, size_t end,
                      size_t last);
  bool pruneKeyed(search::KeyedIntervals &intervals,
                  search::SearchWindow window, search::KeyedPaths &paths);
  bool pruneKeyedOnce(search::KeyedIntervals &intervals,
                      search::SearchWindow window, search::KeyedPaths &paths);
  /// All that can come before and after one stage at a time, made when asked
  /// for.
  class Neighbours {
  public:
    /// All that can follow a stage that ends somewhere in some class.
    struct Exit {
      Picoseconds sum = kNoBound; ///< least, with the rest of the activation
      Picoseconds leastLargest = kNoBound, leastRest = kNoBound;
      llvm::SmallVector<search::Pending, 4> pendings;
      size_t from = 0, to = 0; ///< of the ways
    };

    Neighbours(Impl &impl, const search::KeyedPaths &paths)
        : impl(impl), paths(paths) {}

    /// Forgets what is around any other stage.
    void enter(size_t newStage);
    const Entering &before(size_t begin, size_t first);
    /// The exit stays where it is until the next one is made.
    const Exit &at(size_t end, size_t last) {
      uint32_t &place = index[end * impl.problem.classes + last];
      if (place == 0) {
        make(end, last);
        place = static_cast<uint32_t>(exits.size());
      }
      return exits[place - 1];
    }
    llvm::ArrayRef<Leaving> waysOf(const Exit &exit) const {
      return llvm::ArrayRef(ways).slice(exit.from, exit.to - exit.from);
    }
    /// The least largest nosync behind, whatever the classes.
    Picoseconds leastLargestAfter(size_t end);

  private:
    void make(size_t end, size_t last);

    Impl &impl;
    const search::KeyedPaths &paths;
    size_t stage = ~size_t(0);
    /// [begin][first class]; empty until asked for.
    std::vector<std::vector<Entering>> entered;
    std::vector<uint32_t> index; ///< by end and last class; 0: not made
    std::vector<Exit> exits;
    std::vector<Leaving> ways;
  };

  search::Refined &refined(size_t stage, size_t begin, size_t end,
                           size_t tieChoice);
  search::Refined &refined(const search::EqualCostGroup &group, size_t start,
                           size_t tieChoice) {
    return refined(group.stage, group.starts[start].begin, group.end,
                   tieChoice);
  }
  search::StageRun makeRun(const search::EqualCostGroup &group,
                           size_t tieChoice);
  void restrictOptions(search::StageRun &run,
                       const search::EqualCostGroup &group, size_t functional,
                       const std::vector<double> &most);
  Picoseconds mostOf(size_t functional, const search::Interval &interval,
                     size_t stage, const search::Paths &paths,
                     Picoseconds limit) const;
  void addLimit(search::StageRun &run, size_t functional,
                const search::EqualCostGroup &group, Neighbours &neighbours,
                search::SearchWindow window);
  template <typename Visit>
  void forEachGroup(search::KeyedIntervals &intervals, Visit visit);
  void boundWithTransforms(const search::Intervals &intervals,
                           const search::Paths &paths, Picoseconds limit,
                           size_t tieChoice, search::KeyedIntervals &keyed);
  void settle(search::KeyedIntervals &intervals, size_t tieChoice,
              size_t functional, const search::KeyedPaths &paths,
              search::SearchWindow window);
  /// The fronts of both times of all intervals, within the window.
  struct Fronts {
    std::deque<std::vector<search::StageEntry>> owned;
    Entries entries;
  };
  Fronts frontsOf(search::KeyedIntervals &keyed, size_t tieChoice,
                  search::SearchWindow window, const search::KeyedPaths &paths);
  class Joiner;
  std::optional<PipelineSolution> join(const Entries &entries,
                                       const search::KeyedPaths &paths,
                                       search::SearchWindow window);
  bool open(const search::Intervals &all, size_t tieChoice, Picoseconds limit,
            search::KeyedIntervals &keyed, search::KeyedPaths &paths);
  Picoseconds probe(Picoseconds limit);
  bool narrow(search::KeyedIntervals &keyed, search::KeyedPaths &paths,
              search::SearchWindow &window);
  std::optional<PipelineSolution> solveChoice(const search::Intervals &all,
                                              size_t tieChoice,
                                              Picoseconds limit);

  /// Intervals that are not alike are told apart by the choice of a tie (0:
  /// none), the first stage that is like theirs, and their layers.
  std::map<std::tuple<size_t, size_t, size_t, size_t>, search::Refined> known;
  Picoseconds leastSum = 0; ///< no pipeline has less of C
  bool checkedNeed = false;
  search::Paths blind;         ///< of the last prune()
  search::KeyedPaths tryPaths; ///< of what narrow() tries
};

} // namespace galvatron

#endif // GALVATRON_LIB_SEARCH_PIPELINEIMPL_H
