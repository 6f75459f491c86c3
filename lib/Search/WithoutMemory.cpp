//===- WithoutMemory.cpp - The best partition of the fastest layers -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/PipelineSearch.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <bit>
#include <tuple>

using namespace llvm;

namespace galvatron {
namespace {

/// Labels of one place that there may be before those that others dominate go,
/// which they do each time the rest has doubled.
constexpr size_t kMostLabels = 64;
/// The most labels that are made, some milliseconds: many unlike layers have
/// more, and a search bounds them as quickly.
constexpr size_t kMostWork = 200'000;

/// The first stages of a pipeline: the sum of their C, and their largest N.
struct FirstStages {
  Picoseconds time = 0, nosync = 0;
};

/// The least times of a layer on a place.
struct LeastOfLayer {
  Picoseconds time, nosync;
};

/// The search for the best partition where every layer is at its fastest: a
/// shortest path over stages and the layers before them.
class WithoutMemory {
public:
  WithoutMemory(const PipelineProblem &problem, Picoseconds atMost)
      : problem(problem), atMost(atMost), layers(problem.layerCount()) {
    for (const std::vector<PipelineOption> &set : problem.optionSets) {
      LeastOfLayer least{kNoBound, kNoBound};
      for (const PipelineOption &option : set) {
        least.time = std::min(least.time, option.time);
        least.nosync = std::min(least.nosync, option.nosync);
      }
      leastOf.push_back(least);
    }
    for (const std::vector<Picoseconds> &matrix : problem.matrices)
      leastMove.push_back(*llvm::min_element(matrix));
    rest.assign(layers + 1, 0);
    for (size_t l = layers; l-- > 0;) {
      Picoseconds least = kNoBound;
      for (const std::vector<size_t> &place : problem.layers)
        least = std::min(least, leastOf[place[l]].time);
      rest[l] = rest[l + 1] + least;
    }
  }

  Picoseconds run() {
    const size_t stages = problem.stages.size();
    // Pipelines of the stages so far, by the number of their layers.
    std::vector<std::vector<FirstStages>> fronts(layers + 1);
    fronts[0].push_back({});
    size_t given = 0;
    for (size_t s = 0; s < stages; ++s) {
      std::vector<std::vector<FirstStages>> next(layers + 1);
      const size_t behind = stages - 1 - s; // at least a layer for each
      if (!problem.partition.empty())
        given += problem.partition[s];
      for (size_t begin = s; begin + behind < layers; ++begin)
        if (!fronts[begin].empty() && work <= kMostWork)
          addStages(s, begin, layers - behind, given, fronts[begin], next);
      for (std::vector<FirstStages> &front : next)
        removeDominated(front);
      fronts = std::move(next);
      if (work > kMostWork)
        return 0;
    }
    Picoseconds least = kNoBound;
    for (const FirstStages &whole : fronts[layers])
      least = std::min(least, costOf(whole, layers));
    return least;
  }

private:
  /// The least cost of a pipeline that begins so.
  Picoseconds costOf(const FirstStages &first, size_t layer) const {
    return first.time + rest[layer] + (problem.microBatches - 1) * first.nosync;
  }

  /// Adds stage `s` from layer `begin` on behind each of `before`, of all
  /// lengths up to layer `last`; `end` is where it ends if that is given.
  void addStages(size_t s, size_t begin, size_t last, size_t end,
                 ArrayRef<FirstStages> before,
                 std::vector<std::vector<FirstStages>> &to) {
    const size_t place = problem.stages[s].place;
    const bool isLast = s + 1 == problem.stages.size();
    FirstStages stage;
    if (s > 0)
      add(stage, cutBehind(s - 1, begin - 1).gradient);
    for (size_t l = begin; l < last; ++l) {
      if (l > begin)
        add(stage, problem.transforms[place][l - 1]);
      const LeastOfLayer &least = leastOf[problem.layers[place][l]];
      stage.time += least.time;
      // One micro-batch waits for no slowest stage.
      if (problem.microBatches > 1)
        stage.nosync += least.nosync;
      if ((problem.microBatches - 1) * stage.nosync > atMost)
        return;
      if ((isLast && l + 1 < layers) || (end > 0 && l + 1 != end))
        continue;
      FirstStages whole = stage;
      if (!isLast)
        add(whole, cutBehind(s, l).activation);
      std::vector<FirstStages> &front = to[l + 1];
      const size_t known = front.size();
      work += before.size();
      for (const FirstStages &first : before) {
        FirstStages both{first.time + whole.time,
                         std::max(first.nosync, whole.nosync)};
        if (costOf(both, l + 1) <= atMost)
          front.push_back(both);
      }
      if (front.size() > kMostLabels &&
          std::bit_width(front.size()) > std::bit_width(known))
        removeDominated(front);
    }
  }

  void add(FirstStages &stage, size_t matrix) const {
    stage.time += leastMove[matrix];
    if (problem.microBatches > 1)
      stage.nosync += leastMove[matrix];
  }
  const PipelineCut &cutBehind(size_t stage, size_t layer) const {
    return problem.cuts[problem.cutPlace[stage]][layer];
  }

  static void removeDominated(std::vector<FirstStages> &front) {
    llvm::sort(front, [](const FirstStages &a, const FirstStages &b) {
      return std::tie(a.time, a.nosync) < std::tie(b.time, b.nosync);
    });
    size_t kept = 0;
    for (const FirstStages &some : front)
      if (kept == 0 || some.nosync < front[kept - 1].nosync)
        front[kept++] = some;
    front.resize(kept);
  }

  const PipelineProblem &problem;
  Picoseconds atMost;
  size_t layers;
  size_t work = 0;                    ///< labels made so far
  std::vector<LeastOfLayer> leastOf;  ///< by option set
  std::vector<Picoseconds> leastMove; ///< by matrix
  /// The least of all layers from one on, wherever they are.
  std::vector<Picoseconds> rest;
};

} // namespace

Picoseconds leastWithoutMemory(const PipelineProblem &problem,
                               Picoseconds atMost) {
  if (problem.slowestAlone)
    return 0;
  return WithoutMemory(problem, atMost).run();
}

} // namespace galvatron
