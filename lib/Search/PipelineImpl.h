//===- PipelineImpl.h - The parts of PipelineSearch -------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// PipelineBounds.cpp decides which stage can hold which layers,
// PipelineClasses.cpp which layout classes their ends can have,
// PipelineSearch.cpp runs the labels and joins the stages. docs/search.md tells
// how they fit together.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SEARCH_PIPELINEIMPL_H
#define GALVATRON_LIB_SEARCH_PIPELINEIMPL_H

#include "PipelineTables.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <unordered_map>

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
    return llvm::any_of(least[kTime],
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

} // namespace search

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
  search::PipelineTables tables;
  PipelineFault fault;
  Picoseconds bound = 0;
  PipelineStatistics statistics;

private:
  using Entries = std::vector<std::vector<
      std::pair<const search::Keyed *, const search::StageEntry *>>>;

  Picoseconds bottleneckBound();
  Picoseconds sumBound() const;
  bool positions(Picoseconds most, std::vector<size_t> &low,
                 std::vector<size_t> &high) const;
  bool within(size_t stage, size_t begin, size_t end, Picoseconds most) const;
  bool intervalsWithin(Picoseconds limit, search::Intervals &intervals);
  Picoseconds timeBelow(Picoseconds time, Picoseconds mix, Picoseconds balance,
                        Picoseconds most) const;
  bool prune(search::Intervals &intervals, Picoseconds limit,
             search::Paths &paths) const;
  bool pruneOnce(search::Intervals &intervals, Picoseconds limit,
                 search::Paths &paths) const;
  size_t firstsOf(size_t stage) const {
    return stage > 0 ? problem.classes : 1;
  }
  size_t lastsOf(size_t stage) const {
    return stage + 1 < tables.stages ? problem.classes : 1;
  }
  /// All pipelines before a stage with a given first class.
  struct Entering {
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
  struct Leaving {
    Picoseconds rest; ///< of the activation
    search::Point after;
  };

  Entering entering(const search::KeyedPaths &paths, size_t stage, size_t begin,
                    size_t first);
  std::vector<Leaving> leaving(const search::KeyedPaths &paths, size_t stage,
                               size_t end, size_t last);
  bool pruneKeyed(search::KeyedIntervals &intervals, Picoseconds limit,
                  search::KeyedPaths &paths);
  bool pruneKeyedOnce(search::KeyedIntervals &intervals, Picoseconds limit,
                      search::KeyedPaths &paths);
  search::Refined &refined(size_t stage, const search::Keyed &interval,
                           size_t tieChoice);
  search::StageRun makeRun(size_t stage, size_t tieChoice,
                           llvm::ArrayRef<const search::Keyed *> same);
  void addLimit(search::StageRun &run, size_t functional, size_t stage,
                llvm::ArrayRef<const search::Keyed *> same,
                const search::KeyedPaths &paths, Picoseconds limit);
  template <typename Visit>
  void forEachEnd(search::KeyedIntervals &intervals, Visit visit);
  void boundWithTransforms(search::KeyedIntervals &intervals, size_t tieChoice);
  void settle(search::KeyedIntervals &intervals, size_t tieChoice,
              size_t functional, const search::KeyedPaths &paths,
              Picoseconds limit);
  std::optional<PipelineSolution> join(const Entries &entries,
                                       const search::KeyedPaths &paths,
                                       Picoseconds limit);
  bool open(const search::Intervals &all, size_t tieChoice, Picoseconds limit,
            search::KeyedIntervals &keyed, search::KeyedPaths &paths);
  bool probe(Picoseconds limit);
  std::optional<PipelineSolution> solveChoice(const search::Intervals &all,
                                              size_t tieChoice,
                                              Picoseconds limit);

  std::unordered_map<uint64_t, search::Refined> known;
  bool checkedNeed = false;
};

} // namespace galvatron

#endif // GALVATRON_LIB_SEARCH_PIPELINEIMPL_H
