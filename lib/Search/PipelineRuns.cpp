//===- PipelineRuns.cpp - Label runs over the stages of a pipeline --------===//
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
// Intervals that are alike
//===----------------------------------------------------------------------===//

/// The bounds of an interval, which hold for all that are like it, in all
/// stages that are.
Refined &PipelineSearch::Impl::refined(size_t stage, size_t begin, size_t end,
                                       size_t tieChoice) {
  size_t shift = tables.shiftDistance(stage, begin, end);
  return known[{tables.tied(begin, end) ? tieChoice + 1 : 0,
                tables.representativeOf(stage), begin + shift, end + shift}];
}

/// Calls visit(group) from the first stage on, as long as there is time.
template <typename Visit>
void PipelineSearch::Impl::forEachGroup(KeyedIntervals &intervals,
                                        Visit visit) {
  struct Moved {
    size_t begin, end;
    Keyed *interval;
  };
  for (size_t s = 0; s < intervals.size(); ++s) {
    std::vector<Moved> moved;
    for (Keyed &interval : intervals[s]) {
      size_t shift = tables.shiftDistance(s, interval.begin, interval.end);
      moved.push_back(
          {interval.begin + shift, interval.end + shift, &interval});
    }
    llvm::sort(moved, [](const Moved &a, const Moved &b) {
      return std::tie(a.end, a.begin, a.interval->end) <
             std::tie(b.end, b.begin, b.interval->end);
    });
    for (size_t i = 0; i < moved.size();) {
      EqualCostGroup group;
      group.stage = s;
      group.end = moved[i].end;
      for (; i < moved.size() && moved[i].end == group.end; ++i) {
        if (group.starts.empty() || group.starts.back().begin != moved[i].begin)
          group.starts.push_back({moved[i].begin, {}});
        group.starts.back().intervals.push_back(moved[i].interval);
      }
      if (late())
        return;
      visit(group);
    }
  }
}

//===----------------------------------------------------------------------===//
// Limits
//===----------------------------------------------------------------------===//

StageRun PipelineSearch::Impl::makeRun(const EqualCostGroup &group,
                                       size_t tieChoice) {
  size_t stage = group.stage;
  StageRun run;
  run.classes = problem.classes;
  run.layouts = problem.layouts;
  run.end = group.end;
  run.stage = problem.stages[stage];
  auto byClass = [](const Charges *charges) {
    return charges ? &charges->byClass : nullptr;
  };
  run.endCharge = byClass(tables.endCharges(stage, run.end));
  run.byFirstClass = stage > 0;
  run.byLastClass = stage + 1 < tables.stages;
  run.fault = fault;
  run.mostSteps = mostSteps;
  run.cancellation = cancellation;
  for (const EqualCostStart &start : group.starts) {
    run.starts.push_back(start.begin);
    run.startCharge.push_back(byClass(tables.startCharges(stage, start.begin)));
  }
  for (size_t l = run.starts.front(); l < run.end; ++l) {
    run.options.push_back(&tables.options(stage, l, tieChoice));
    if (!problem.boundaryBehind.empty())
      run.boundaries.push_back(problem.front(l));
    if (l + 1 < run.end) {
      run.transforms.push_back(&tables.transform(stage, l));
      run.spreads.push_back(&tables.spread(stage, l));
    }
  }
  if (!problem.boundaryBehind.empty())
    run.boundaries.push_back(problem.behind(run.end - 1));
  return run;
}

static void sortUnique(std::vector<double> &values) {
  llvm::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

/// A functional's limit for a run: what the window leaves between the least
/// that lies before and after. Where intervals that are alike differ in that,
/// it is the loosest. Options that are too dear for it are left out of the run.
void PipelineSearch::Impl::addLimit(StageRun &run, size_t functional,
                                    const EqualCostGroup &group,
                                    Neighbours &neighbours,
                                    SearchWindow window) {
  // No finite limit: lower than any cost, and sums of it stay finite.
  constexpr double never = -1e300;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  auto weight = static_cast<double>(tables.bottleneck);
  size_t stage = group.stage, lasts = lastsOf(stage);
  const StageClass &stageClass = tables.stageClass(stage);
  // Under a ceiling nosync is bounded by that, whatever the times.
  bool capped = functional == kNosync && window.ceiling < kNoBound;

  struct End {
    std::vector<double> limit; ///< by last class
    Picoseconds leastLargest;
    double below; ///< how far its limits are below the run's, at least
  };
  std::map<size_t, End> ends;
  Limit limit;
  limit.weights = tables.weights[functional];
  limit.limit.assign(lasts, never);
  for (const EqualCostStart &start : group.starts)
    for (const Keyed *interval : start.intervals) {
      auto [it, fresh] = ends.try_emplace(interval->end);
      if (!fresh)
        continue;
      it->second.leastLargest = neighbours.leastLargestAfter(interval->end);
      for (size_t last = 0; last < lasts; ++last) {
        double least = infinity;
        for (const Leaving &way :
             neighbours.waysOf(neighbours.at(interval->end, last))) {
          // Functionals that count the time alone, and those that count nosync
          // too.
          double counted =
              (functional == kTime || functional == kBalance ? 0 : weight) +
              static_cast<double>(tables.summed);
          least =
              std::min(least, capped ? static_cast<double>(way.rest)
                                     : counted * static_cast<double>(way.rest) +
                                           static_cast<double>(way.after.sum));
        }
        double left =
            static_cast<double>(capped ? window.ceiling : window.limit) - least;
        if (functional == kBalance)
          left += static_cast<double>(tables.weights[kBalance].nosync) *
                  static_cast<double>(mostNosync(window, sumBound()));
        if (functional == kNosync && !capped)
          left /= weight;
        it->second.limit.push_back(std::max(left, never));
        limit.limit[last] = std::max(limit.limit[last], left);
      }
    }
  for (auto &[end, own] : ends) {
    own.below = infinity;
    for (size_t last = 0; last < lasts; ++last)
      own.below = std::min(own.below, limit.limit[last] - own.limit[last]);
  }

  double highest = *llvm::max_element(limit.limit);
  std::vector<double> most; // of the functional itself, by start
  std::vector<double> multipliers;
  std::vector<Picoseconds> times, nosyncs; // by first class
  for (size_t i = 0; i < group.starts.size(); ++i) {
    limit.added.emplace_back(problem.classes, infinity);
    for (const Keyed *interval : group.starts[i].intervals) {
      const End &end = ends.at(interval->end);
      times.assign(firstsOf(stage), kNoBound);
      nosyncs.assign(firstsOf(stage), kNoBound);
      for (const KeyedCell &cell : interval->cells) {
        times[cell.first] = std::min(times[cell.first], cell.least[kTime]);
        nosyncs[cell.first] =
            std::min(nosyncs[cell.first], cell.least[kNosync]);
      }
      for (size_t first = 0; first < problem.classes; ++first) {
        const Entering &from = neighbours.before(interval->begin, first);
        size_t row = stage > 0 ? first : 0;
        Picoseconds time = times[row], nosync = nosyncs[row];
        if (from.sum >= kNoBound || time >= kNoBound)
          continue;
        auto sum = static_cast<double>(from.sum);
        auto rest = static_cast<double>(from.leastRest);
        double added = sum;
        if ((functional == kTime && tables.bottleneck > 0) ||
            functional == kBalance)
          added += weight * static_cast<double>(
                                std::max({from.leastLargest, end.leastLargest,
                                          nosync + from.leastRest}));
        else if (functional == kNosync)
          added =
              capped ? rest : (sum + static_cast<double>(time)) / weight + rest;
        else if (functional == kMix)
          added += weight * rest;
        limit.added[i][first] =
            std::min(limit.added[i][first], added + end.below);
      }
    }
    most.push_back(highest - *llvm::min_element(limit.added[i]));
    if (i == 0 || i + 1 == group.starts.size())
      stageClass.curves[functional]->curve.choose(
          group.starts[i].begin, group.end,
          static_cast<double>(
              stageClass.memory -
              stageClass.boundary(group.starts[i].begin, group.end)),
          2, multipliers);
  }
  sortUnique(multipliers);
  run.limits.push_back(std::move(limit));
  run.multipliers.push_back(std::move(multipliers));
  restrictOptions(run, group, functional, most);
}

/// Leaves out options that no interval of the group can have if the functional
/// is at most `most`, by start: by the dual, with the option in its place.
void PipelineSearch::Impl::restrictOptions(StageRun &run,
                                           const EqualCostGroup &group,
                                           size_t functional,
                                           const std::vector<double> &most) {
  const StageClass &stageClass = tables.stageClass(group.stage);
  const Curve &curve = stageClass.curves[functional]->curve;
  Weights weights = tables.weights[functional];
  size_t count = curve.multipliers.size(), last = group.end - 1;
  Curve::Prefix beforeLast = curve.before(last);
  const double *ofLast = curve.lastOf(last);
  // The slack that remains for one layer, by start, at the best multipliers.
  struct Rest {
    size_t begin, k;
    double window;
  };
  std::vector<SmallVector<Rest, 3>> rests;
  for (size_t i = 0; i < group.starts.size(); ++i) {
    size_t begin = group.starts[i].begin;
    auto memory = static_cast<double>(stageClass.memory -
                                      stageClass.boundary(begin, group.end));
    Curve::Prefix before = curve.before(begin);
    auto at = [&](size_t k) {
      return beforeLast[k] - before[k] + ofLast[k] -
             curve.multipliers[k] * memory;
    };
    size_t best = curve.peakOf(at);
    rests.emplace_back();
    for (size_t k = best > 0 ? best - 1 : 0; k <= best + 1 && k < count; ++k) {
      double scale = beforeLast[k] + ofLast[k];
      rests.back().push_back(
          {begin, k, roomFor(most[i]) + 2 + 1e-12 * scale - at(k)});
    }
  }
  std::map<const Choices *, const Choices *> seen;
  for (size_t l = group.end; l-- > group.starts.front().begin;) {
    const Choices *&options = run.options[l - group.starts.front().begin];
    // The order is from the right: where a layer is first seen it is in most
    // intervals.
    bool isLast = l == last;
    auto it = isLast ? seen.end() : seen.find(options);
    if (it != seen.end()) {
      options = it->second;
      continue;
    }
    Choices kept;
    const double *own = isLast ? ofLast : curve.leastOf(l);
    for (const Choice &option : *options) {
      double cost = weights.of(static_cast<double>(option.time),
                               static_cast<double>(option.nosync));
      auto bytes =
          static_cast<double>(option.bytes() + (isLast ? option.transient : 0));
      bool possible = any_of(rests, [&](const auto &all) {
        return all.front().begin <= l && all_of(all, [&](const Rest &rest) {
                 double least = own[rest.k];
                 return cost + curve.multipliers[rest.k] * bytes - least <=
                        rest.window;
               });
      });
      if (possible)
        kept.push_back(option);
    }
    // The run finds nothing, by its limits, if none is left.
    if (kept.empty())
      kept.push_back(options->front());
    const Choices *restricted = options;
    if (kept.size() < options->size()) {
      run.restricted.push_back(std::move(kept));
      restricted = &run.restricted.back();
    }
    if (!isLast)
      seen[options] = restricted;
    options = restricted;
  }
}

//===----------------------------------------------------------------------===//
// One number
//===----------------------------------------------------------------------===//

/// The most that a functional of an interval can be in a pipeline within the
/// limit.
Picoseconds PipelineSearch::Impl::mostOf(size_t functional,
                                         const Interval &interval, size_t stage,
                                         const Paths &paths,
                                         Picoseconds limit) const {
  const Point &before = paths.before[stage][interval.begin].least;
  const Point &after = paths.after[stage + 1][interval.end].least;
  Picoseconds left = limit - before.sum - after.sum;
  if (tables.bottleneck == 0)
    return left;
  Picoseconds most = mostNosync({limit}, paths.after[0][0].least.sum);
  Picoseconds slowest =
      tables.bottleneck *
      std::max({before.largest, after.largest, interval.least[kNosync]});
  switch (functional) {
  case kTime:
    return left - slowest;
  case kNosync:
    return std::min(most, (left - interval.least[kTime]) / tables.bottleneck);
  case kBalance:
    return left - slowest + tables.weights[kBalance].nosync * most;
  default:
    return left;
  }
}

/// The intervals by classes, with better bounds: the dual with transforms, with
/// the tied layers' own options. Options and pairs of classes that are too dear
/// for the limit are left out.
void PipelineSearch::Impl::boundWithTransforms(const Intervals &intervals,
                                               const Paths &paths,
                                               Picoseconds limit,
                                               size_t tieChoice,
                                               KeyedIntervals &keyed) {
  keyed.assign(tables.stages, {});
  for (size_t s = 0; s < tables.stages; ++s)
    for (const Interval &interval : intervals[s])
      keyed[s].push_back({interval.begin, interval.end, {}});
  forEachGroup(keyed, [&](const EqualCostGroup &group) {
    size_t stage = group.stage, lasts = lastsOf(stage);
    size_t cells = firstsOf(stage) * lasts;
    auto blindOf = [&](const Keyed *interval) -> const Interval & {
      return intervals[stage][interval - keyed[stage].data()];
    };
    const StageClass &stageClass = tables.stageClass(stage);
    std::vector<char> reboundStarts(group.starts.size(), 0);
    for (size_t f = 0; f < tables.functionals(); ++f) {
      EqualCostGroup open{stage, group.end, {}};
      std::vector<double> most;
      for (size_t i = 0; i < group.starts.size(); ++i) {
        Picoseconds needed = 0, least = kNoBound;
        for (const Keyed *interval : group.starts[i].intervals) {
          const Interval &blind = blindOf(interval);
          needed = std::max(needed, mostOf(f, blind, stage, paths, limit));
          least = std::min(least, blind.least[f]);
        }
        if (refined(group, i, tieChoice).bounded[f] >=
            static_cast<double>(needed))
          continue;
        reboundStarts[i] = 1;
        open.starts.push_back(group.starts[i]);
        // A little ahead: the limit will rise.
        most.push_back(static_cast<double>(
            needed + std::max<Picoseconds>(0, needed - least)));
      }
      if (open.starts.empty())
        continue;
      StageRun run = makeRun(open, tieChoice);
      restrictOptions(run, open, f, most);
      std::vector<int64_t> reserved;
      for (const EqualCostStart &start : open.starts)
        reserved.push_back(stageClass.boundary(start.begin, open.end));
      std::vector<double> multipliers;
      for (size_t i : {size_t(0), open.starts.size() - 1})
        stageClass.curves[f]->curve.choose(
            open.starts[i].begin, open.end,
            static_cast<double>(stageClass.memory - reserved[i]), 1,
            multipliers);
      sortUnique(multipliers);
      std::vector<std::vector<double>> bounds =
          boundStage(run, tables.weights[f], multipliers, reserved);
      for (size_t i = 0; i < open.starts.size(); ++i) {
        Refined &record = refined(open, i, tieChoice);
        record.least[f].resize(cells, 0);
        record.exact[f].resize(cells, 0);
        record.bounded[f] = most[i];
        for (size_t cell = 0; cell < cells; ++cell)
          record.least[f][cell] =
              std::max(record.least[f][cell],
                       floorOf(std::min(bounds[i][cell], most[i] + 1)));
      }
    }
    for (size_t i = 0; i < group.starts.size(); ++i) {
      Refined &record = refined(group, i, tieChoice);
      if (reboundStarts[i]) {
        record.possible.clear();
        for (uint32_t c = 0; c < cells; ++c) {
          bool possible = true;
          for (size_t f = 0; f < tables.functionals(); ++f)
            possible &=
                static_cast<double>(record.least[f][c]) <= record.bounded[f];
          if (possible)
            record.possible.push_back(c);
        }
      }
      for (Keyed *interval : group.starts[i].intervals) {
        const Interval &blind = blindOf(interval);
        Picoseconds most[kFunctionals];
        for (size_t f = 0; f < tables.functionals(); ++f)
          most[f] = mostOf(f, blind, stage, paths, limit);
        for (uint32_t c : record.possible) {
          KeyedCell cell{static_cast<uint32_t>(c / lasts),
                         static_cast<uint32_t>(c % lasts),
                         {}};
          bool possible = true;
          for (size_t f = 0; f < tables.functionals(); ++f) {
            cell.least[f] = std::max(blind.least[f], record.least[f][c]);
            possible &= cell.least[f] <= most[f];
          }
          if (possible)
            interval->cells.push_back(cell);
        }
      }
    }
  });
  for (std::vector<Keyed> &own : keyed)
    erase_if(own, [](const Keyed &interval) { return interval.cells.empty(); });
}

/// The exact least of one functional for every interval and pair of classes, or
/// a proof that it is beyond what the window allows.
void PipelineSearch::Impl::settle(KeyedIntervals &intervals, size_t tieChoice,
                                  size_t functional, const KeyedPaths &paths,
                                  SearchWindow window) {
  Neighbours neighbours(*this, paths);
  forEachGroup(intervals, [&](const EqualCostGroup &group) {
    size_t lasts = lastsOf(group.stage);
    EqualCostGroup open{group.stage, group.end, {}};
    for (size_t i = 0; i < group.starts.size(); ++i) {
      const Refined &record = refined(group, i, tieChoice);
      bool known = true;
      for (const Keyed *interval : group.starts[i].intervals)
        for (const KeyedCell &cell : interval->cells)
          known &= record.exact[functional][cell.first * lasts + cell.last];
      if (!known)
        open.starts.push_back(group.starts[i]);
    }
    if (!open.starts.empty()) {
      neighbours.enter(group.stage);
      StageRun run = makeRun(open, tieChoice);
      run.cost = tables.weights[functional];
      addLimit(run, functional, open, neighbours, window);
      std::vector<std::vector<char>> found(
          open.starts.size(),
          std::vector<char>(firstsOf(group.stage) * lasts, 0));
      std::optional<std::vector<StageEntry>> entries =
          runStage(run, statistics);
      // Nothing is found, and nothing pruned.
      if (!entries)
        return;
      for (StageEntry &entry : *entries) {
        size_t cell = entry.firstClass * lasts + entry.lastClass;
        found[entry.start][cell] = 1;
        Refined &record = refined(open, entry.start, tieChoice);
        record.least[functional][cell] = run.cost.of(entry.time, entry.nosync);
        if (!std::exchange(record.exact[functional][cell], 1))
          record.entries.push_back(std::move(entry));
      }
      const Limit &limit = run.limits[0];
      for (size_t i = 0; i < open.starts.size(); ++i) {
        Refined &record = refined(open, i, tieChoice);
        for (size_t cell = 0; cell < found[i].size(); ++cell) {
          double pruned =
              limit.limit[cell % lasts] - limit.added[i][cell / lasts];
          if (found[i][cell] || !(pruned >= 0))
            continue;
          Picoseconds &least = record.least[functional][cell];
          least = std::max(least, floorOf(pruned) + 1);
        }
      }
    }
    for (size_t i = 0; i < group.starts.size(); ++i) {
      const Refined &record = refined(group, i, tieChoice);
      for (Keyed *interval : group.starts[i].intervals)
        for (KeyedCell &cell : interval->cells)
          cell.least[functional] = std::max(
              cell.least[functional],
              record.least[functional][cell.first * lasts + cell.last]);
    }
  });
}

//===----------------------------------------------------------------------===//
// Both numbers
//===----------------------------------------------------------------------===//

PipelineSearch::Impl::Fronts
PipelineSearch::Impl::frontsOf(KeyedIntervals &keyed, size_t tieChoice,
                               SearchWindow window, const KeyedPaths &paths) {
  Fronts fronts;
  fronts.entries.resize(tables.stages);
  Neighbours neighbours(*this, paths);
  forEachGroup(keyed, [&](const EqualCostGroup &group) {
    size_t stage = group.stage;
    neighbours.enter(stage);
    StageRun run = makeRun(group, tieChoice);
    run.twoCosts = tables.bottleneck > 0 && tables.summed > 0;
    run.cost =
        tables.weights[tables.summed > 0 || tables.bottleneck == 0 ? kTime
                                                                   : kNosync];
    for (size_t f = 0; f < tables.functionals(); ++f)
      addLimit(run, f, group, neighbours, window);
    for (const EqualCostStart &start : group.starts) {
      Picoseconds floor = kNoBound;
      for (const Keyed *interval : start.intervals) {
        Picoseconds before = kNoBound;
        for (size_t first = 0; first < firstsOf(stage); ++first)
          before = std::min(
              before, neighbours.before(interval->begin, first).leastLargest);
        Picoseconds slowest =
            std::max(before, neighbours.leastLargestAfter(interval->end));
        // Transfers can add as much to what lies outside.
        for (Charges *charges : {tables.endCharges(stage, interval->end),
                                 tables.startCharges(stage, interval->begin)})
          slowest -= charges ? charges->above().back() : 0;
        floor = std::min(floor, slowest);
      }
      run.floors.push_back(floor);
    }
    std::optional<std::vector<StageEntry>> entries = runStage(run, statistics);
    if (!entries)
      return;
    fronts.owned.push_back(std::move(*entries));
    for (const StageEntry &entry : fronts.owned.back())
      for (const Keyed *interval : group.starts[entry.start].intervals)
        fronts.entries[stage].push_back({interval, &entry});
  });
  return fronts;
}

} // namespace galvatron
