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

} // namespace galvatron
