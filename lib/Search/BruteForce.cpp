//===- BruteForce.cpp - Oracles for the solvers ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/BruteForce.h"

#include <algorithm>

using namespace llvm;

namespace galvatron::bruteforce {
namespace {

/// Calls `visit` for every choice in lexicographic order.
template <typename Visit>
void forEachChoice(const LayerStrategiesProblem &problem, Visit visit) {
  std::vector<uint32_t> choice(problem.layers.size(), 0);
  while (true) {
    visit(choice);
    size_t l = choice.size();
    while (l-- > 0) {
      if (++choice[l] < problem.optionSets[problem.layers[l]].size())
        break;
      choice[l] = 0;
      if (l == 0)
        return;
    }
  }
}

const LayerOption &optionOf(const LayerStrategiesProblem &problem,
                            const std::vector<uint32_t> &choice, size_t l) {
  return problem.optionSets.at(problem.layers.at(l)).at(choice.at(l));
}

/// max_i ((k-1) * sum f + sum_{j<=i} f_j + b_i) + sum state, term by term.
int64_t peakOf(const LayerStrategiesProblem &problem,
               const std::vector<uint32_t> &choice) {
  size_t count = choice.size();
  int64_t peak = 0;
  for (size_t i = 0; i < count; ++i) {
    int64_t bytes = optionOf(problem, choice, i).transient;
    for (size_t j = 0; j < count; ++j) {
      const LayerOption &option = optionOf(problem, choice, j);
      bytes += option.state + (problem.inFlight - 1) * option.kept;
      if (j <= i)
        bytes += option.kept;
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

std::pair<Picoseconds, Picoseconds>
timesOf(const LayerStrategiesProblem &problem,
        const std::vector<uint32_t> &choice) {
  Picoseconds time = 0, nosync = 0;
  for (size_t i = 0; i < choice.size(); ++i) {
    const LayerOption &option = optionOf(problem, choice, i);
    time += option.time;
    nosync += option.timeNosync;
    if (i == 0)
      continue;
    const LayerOption &former = optionOf(problem, choice, i - 1);
    Picoseconds transform =
        problem.transforms.at(problem.transformAfter.at(i - 1))
            .at(former.layoutClass * problem.classes + option.layoutClass);
    time += transform;
    nosync += transform;
  }
  return {time, nosync};
}

} // namespace

std::optional<LayerStrategiesSolution>
solveLayerStrategies(const LayerStrategiesProblem &problem,
                     CostWeights weights) {
  std::optional<LayerStrategiesSolution> best;
  Picoseconds bestCost = 0;
  forEachChoice(problem, [&](const std::vector<uint32_t> &choice) {
    int64_t peak = peakOf(problem, choice);
    if (peak > problem.memory)
      return;
    auto [time, nosync] = timesOf(problem, choice);
    Picoseconds cost = weights.time * time + weights.nosync * nosync;
    if (best && cost >= bestCost)
      return;
    bestCost = cost;
    best = LayerStrategiesSolution{time, nosync, peak, choice, 0, 0};
  });
  return best;
}

std::vector<LayerStrategiesSolution>
solveFront(const LayerStrategiesProblem &problem, bool byFirstClass,
           bool byLastClass) {
  std::vector<LayerStrategiesSolution> front;
  forEachChoice(problem, [&](const std::vector<uint32_t> &choice) {
    int64_t peak = peakOf(problem, choice);
    if (peak > problem.memory)
      return;
    auto [time, nosync] = timesOf(problem, choice);
    LayerStrategiesSolution fresh{time, nosync, peak, choice, 0, 0};
    if (byFirstClass)
      fresh.firstClass = optionOf(problem, choice, 0).layoutClass;
    if (byLastClass)
      fresh.lastClass =
          optionOf(problem, choice, choice.size() - 1).layoutClass;
    auto beats = [](const LayerStrategiesSolution &a,
                    const LayerStrategiesSolution &b) {
      return a.firstClass == b.firstClass && a.lastClass == b.lastClass &&
             a.time <= b.time && a.timeNosync <= b.timeNosync;
    };
    for (const LayerStrategiesSolution &other : front)
      if (beats(other, fresh))
        return;
    std::erase_if(front, [&](const LayerStrategiesSolution &other) {
      return beats(fresh, other);
    });
    front.push_back(std::move(fresh));
  });
  return front;
}

int64_t minimumPeak(const LayerStrategiesProblem &problem) {
  int64_t least = std::numeric_limits<int64_t>::max();
  forEachChoice(problem, [&](const std::vector<uint32_t> &choice) {
    least = std::min(least, peakOf(problem, choice));
  });
  return least;
}

static void growPartition(const PartitionProblem &problem,
                          std::vector<int64_t> &sizes, int64_t used,
                          std::optional<PartitionSolution> &best) {
  auto count = static_cast<int64_t>(problem.layers.size());
  auto done = static_cast<int64_t>(sizes.size());
  if (done == problem.stages) {
    if (used != count)
      return;
    Picoseconds sum = 0, largest = 0, cuts = 0;
    int64_t at = 0;
    for (int64_t s = 0; s < problem.stages; ++s) {
      Picoseconds stage = 0;
      for (int64_t i = 0; i < sizes[s]; ++i)
        stage += problem.layers[at++];
      sum += stage;
      largest = std::max(largest, stage);
      if (s + 1 < problem.stages && !problem.cuts.empty())
        cuts += problem.cuts[at - 1][s];
    }
    Picoseconds cost = (problem.microBatches - 1) * largest + sum + cuts;
    if (!best || cost < best->cost)
      best = PartitionSolution{cost, sizes};
    return;
  }
  for (int64_t size = count - used; size >= 1; --size) {
    sizes.push_back(size);
    growPartition(problem, sizes, used + size, best);
    sizes.pop_back();
  }
}

std::optional<PartitionSolution>
solvePartition(const PartitionProblem &problem) {
  std::optional<PartitionSolution> best;
  std::vector<int64_t> sizes;
  growPartition(problem, sizes, 0, best);
  return best;
}

} // namespace galvatron::bruteforce
