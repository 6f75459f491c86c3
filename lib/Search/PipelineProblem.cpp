//===- PipelineProblem.cpp - Checks and values of pipelines ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/PipelineSearch.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

using namespace llvm;

namespace galvatron {

static Error refuse(const Twine &text) {
  return makeError("pipeline: " + text);
}

/// Sums of a whole pipeline, weighted by m, stay below this: a few of them, and
/// the rounding of sums in floating point, do not reach kNoBound.
static constexpr int64_t kMostSum = int64_t(1) << 60;
/// The part of it that options may take; transfers and ties take the rest.
static constexpr Picoseconds kMostOptions = kMostSum / 4;

Picoseconds PipelineProblem::leastCost(const PipelineOption &option) const {
  __int128 cost = slowestAlone
                      ? 0
                      : static_cast<__int128>(microBatches - 1) * option.nosync;
  return static_cast<Picoseconds>(
      std::min<__int128>(cost + option.time, kNoBound));
}

/// The sum over the layers of each one's dearest option of at most `limit`.
static __int128 dearest(const PipelineProblem &problem, Picoseconds limit) {
  std::vector<Picoseconds> most(problem.optionSets.size(), 0);
  for (auto [set, options] : enumerate(problem.optionSets))
    for (const PipelineOption &option : options)
      if (Picoseconds cost = problem.leastCost(option); cost <= limit)
        most[set] = std::max(most[set], cost);
  __int128 sum = 0;
  for (size_t layer = 0; layer < problem.layerCount(); ++layer) {
    Picoseconds own = 0;
    for (const std::vector<size_t> &place : problem.layers)
      own = std::max(own, most[place[layer]]);
    sum += own;
  }
  return sum;
}

Picoseconds PipelineProblem::mostSummable() const {
  Picoseconds limit = kMostOptions;
  while (dearest(*this, limit) > kMostOptions)
    limit /= 2;
  return limit;
}

Error PipelineProblem::check() const {
  size_t count = layerCount();
  if (count == 0 || stages.empty())
    return refuse("expected at least one layer and one stage");
  if (microBatches < 1)
    return refuse("expected at least 1 micro-batch, found " +
                  Twine(microBatches));
  if (classes < 1 || tieKeys < 1)
    return refuse("expected at least one class and one tie key");
  int64_t mostInFlight = 1;
  for (const PipelineStage &stage : stages) {
    if (stage.place >= layers.size())
      return refuse("a stage's place does not exist");
    if (stage.inFlight < 1)
      return refuse("expected at least 1 micro-batch in flight, found " +
                    Twine(stage.inFlight));
    mostInFlight = std::max(mostInFlight, stage.inFlight);
  }
  int64_t mostTime = kMostSum / 8 / microBatches / static_cast<int64_t>(count);
  int64_t mostBytes = kMostSum / 4 / mostInFlight / static_cast<int64_t>(count);
  auto outside = [](int64_t value, int64_t most) {
    return value < 0 || value > most;
  };
  for (const std::vector<PipelineOption> &set : optionSets) {
    if (set.empty())
      return refuse("a layer has no options");
    for (const PipelineOption &option : set) {
      if (option.layoutClass >= classes || option.tieKey >= tieKeys)
        return refuse("an option's class or tie key is out of range");
      for (int64_t time : {option.time, option.nosync})
        if (outside(time, kMostOptions))
          return refuse("expected times of 0 to " + Twine(kMostOptions) +
                        " ps, found " + Twine(time));
      for (int64_t bytes : {option.kept, option.transient, option.state,
                            option.boundary, option.host, option.hostKept})
        if (outside(bytes, mostBytes))
          return refuse("expected 0 to " + Twine(mostBytes) +
                        " bytes, the most that can be summed over " +
                        Twine(count) + " layers and " + Twine(mostInFlight) +
                        " micro-batches in flight, found " + Twine(bytes));
    }
  }
  bool placed = all_of(layers, [&](const std::vector<size_t> &place) {
    return place.size() == count &&
           all_of(place, [&](size_t set) { return set < optionSets.size(); });
  });
  if (!placed)
    return refuse("expected an option set for each of " + Twine(count) +
                  " layers in every place");
  if (dearest(*this, kNoBound) > kMostOptions)
    return refuse("the times of " + Twine(count) + " layers and " +
                  Twine(microBatches) +
                  " micro-batches are too long to be summed");
  for (const auto *list : {&matrices, &tieTables})
    for (const std::vector<Picoseconds> &matrix : *list) {
      size_t side = list == &matrices ? classes : tieKeys;
      if (matrix.size() != side * side)
        return refuse("expected a matrix of " + Twine(side) + " x " +
                      Twine(side));
      for (Picoseconds time : matrix)
        if (outside(time, mostTime))
          return refuse("a transfer is negative or too large");
    }
  if (!layouts.empty() && layouts.size() != classes)
    return refuse("expected a layout for each of " + Twine(classes) +
                  " classes, found " + Twine(layouts.size()));
  for (const PipelineBoundary &boundary : boundaries)
    for (const auto *list : {&boundary.live, &boundary.passing}) {
      if (list->size() != classes)
        return refuse("expected a boundary's bytes for " + Twine(classes) +
                      " classes, found " + Twine(list->size()));
      for (int64_t bytes : *list)
        if (outside(bytes, mostBytes))
          return refuse("a boundary is negative or too large");
      for (size_t a = 0; a < layouts.size(); ++a)
        for (size_t b = 0; b < a; ++b)
          if (layouts[a] == layouts[b] && (*list)[a] != (*list)[b])
            return refuse("classes of one layout hold unlike boundaries");
    }
  if (!boundaryBehind.empty() && boundaryBehind.size() + 1 != count)
    return refuse("expected " + Twine(count - 1) + " boundaries, found " +
                  Twine(boundaryBehind.size()));
  for (size_t boundary : boundaryBehind)
    if (boundary >= boundaries.size())
      return refuse("a boundary does not exist");
  if (transforms.size() != layers.size())
    return refuse("expected transforms for every place");
  for (size_t p = 0; p < layers.size(); ++p) {
    if (transforms[p].size() + 1 != count)
      return refuse("expected " + Twine(count - 1) +
                    " transforms in every place");
    for (size_t matrix : transforms[p])
      if (matrix >= matrices.size())
        return refuse("a transform does not exist");
  }
  if (cutPlace.size() + 1 != stages.size())
    return refuse("expected " + Twine(stages.size() - 1) +
                  " places of cuts, found " + Twine(cutPlace.size()));
  for (size_t place : cutPlace)
    if (place >= cuts.size())
      return refuse("a cut's place does not exist");
  for (const std::vector<PipelineCut> &row : cuts) {
    if (row.size() + 1 != count)
      return refuse("expected " + Twine(count - 1) + " cuts in every place");
    for (const PipelineCut &cut : row)
      if (cut.activation >= matrices.size() || cut.gradient >= matrices.size())
        return refuse("a cut's matrix does not exist");
  }
  for (const PipelineTie &tie : ties) {
    if (tie.owner >= tie.borrower || tie.borrower >= count)
      return refuse("a tie's owner must be a layer before its borrower");
    if (tie.table.size() != stages.size() * stages.size())
      return refuse("expected a tie table for every pair of stages");
    for (size_t o = 0; o < stages.size(); ++o)
      for (size_t b = o; b < stages.size(); ++b)
        if (tie.table[o * stages.size() + b] >= tieTables.size())
          return refuse("a tie's table does not exist");
  }
  if (!partition.empty()) {
    int64_t sum = 0;
    for (int64_t length : partition) {
      if (length < 1)
        return refuse("a stage has no layers");
      sum += length;
    }
    if (partition.size() != stages.size() || sum != static_cast<int64_t>(count))
      return refuse("the partition does not cover the layers");
  }
  return Error::success();
}

int64_t stageBytes(const PipelineProblem &problem, size_t stage, size_t begin,
                   ArrayRef<const PipelineOption *> options) {
  int64_t state = 0, kept = 0, highest = 0, buffers = 0;
  for (size_t i = 0; i < options.size(); ++i) {
    const PipelineOption &option = *options[i];
    if (const PipelineBoundary *front = problem.front(begin + i)) {
      size_t own = option.layoutClass;
      size_t former = i > 0 ? options[i - 1]->layoutClass : own;
      bool moves = changesLayout(problem.layouts, former, own);
      if (i == 0 || moves)
        kept += front->passing[own];
      if (moves)
        buffers = std::max(buffers, front->live[former] + front->live[own]);
    }
    state += option.state;
    kept += option.kept;
    highest = std::max(highest, kept + option.transient);
    buffers = std::max(buffers, option.boundary);
  }
  int64_t held = state + (problem.stages[stage].inFlight - 1) * kept;
  const PipelineBoundary *end = problem.behind(begin + options.size() - 1);
  if (!end)
    return held + highest + buffers;
  size_t last = options.back()->layoutClass;
  int64_t bytes = held + highest + std::max(buffers, 2 * end->live[last]);
  if (problem.stages[stage].sendsFromTransient && end->passing[last] == 0)
    bytes = std::min(bytes, held + std::max(highest, kept + end->live[last]) +
                                buffers);
  return bytes;
}

int64_t stageExcess(const PipelineProblem &problem, size_t stage, size_t begin,
                    ArrayRef<const PipelineOption *> options) {
  const PipelineStage &at = problem.stages[stage];
  int64_t host = 0;
  for (const PipelineOption *option : options)
    host += option->host + at.inFlight * option->hostKept;
  return std::max(stageBytes(problem, stage, begin, options) - at.memory,
                  host - at.hostMemory);
}

PipelineValue evaluatePipeline(const PipelineProblem &problem,
                               const std::vector<int64_t> &partition,
                               const std::vector<uint32_t> &choice) {
  size_t stages = problem.stages.size(), classes = problem.classes;
  PipelineValue value;
  value.time.assign(stages, 0);
  value.nosync.assign(stages, 0);
  std::vector<size_t> stageOf;
  for (size_t s = 0; s < stages; ++s)
    stageOf.insert(stageOf.end(), partition[s], s);
  auto optionOf = [&](size_t layer) -> const PipelineOption & {
    size_t place = problem.stages[stageOf[layer]].place;
    return problem.optionSets[problem.layers[place][layer]][choice[layer]];
  };
  auto add = [&](size_t stage, Picoseconds time) {
    value.time[stage] += time;
    value.nosync[stage] += time;
  };
  for (size_t l = 0; l < stageOf.size(); ++l) {
    size_t s = stageOf[l];
    const PipelineOption &option = optionOf(l);
    value.time[s] += option.time;
    value.nosync[s] += option.nosync;
    if (l + 1 == stageOf.size())
      break;
    size_t cell = option.layoutClass * classes + optionOf(l + 1).layoutClass;
    if (stageOf[l + 1] == s) {
      size_t matrix = problem.transforms[problem.stages[s].place][l];
      add(s, problem.matrices[matrix][cell]);
    } else {
      const PipelineCut &cut = problem.cuts[problem.cutPlace[s]][l];
      add(s, problem.matrices[cut.activation][cell]);
      add(s + 1, problem.matrices[cut.gradient][cell]);
    }
  }
  for (const PipelineTie &tie : problem.ties) {
    size_t owner = stageOf[tie.owner], borrower = stageOf[tie.borrower];
    value.time[owner] +=
        problem.tieTables[tie.table[owner * stages + borrower]]
                         [optionOf(tie.owner).tieKey * problem.tieKeys +
                          optionOf(tie.borrower).tieKey];
  }
  size_t next = 0;
  for (size_t s = 0; s < stages; ++s) {
    std::vector<const PipelineOption *> options;
    for (int64_t i = 0; i < partition[s]; ++i)
      options.push_back(&optionOf(next + i));
    value.memory.push_back(stageBytes(problem, s, next, options));
    value.excess.push_back(stageExcess(problem, s, next, options));
    next += partition[s];
    value.fits &= value.excess.back() <= 0;
  }
  value.cost =
      problem.slowestAlone
          ? *std::max_element(value.time.begin(), value.time.end())
          : std::accumulate(value.time.begin(), value.time.end(),
                            Picoseconds(0)) +
                (problem.microBatches - 1) *
                    *std::max_element(value.nosync.begin(), value.nosync.end());
  return value;
}

} // namespace galvatron
