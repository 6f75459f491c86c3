//===- PipelinePartition.cpp - Contiguous stages, exactly -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/PipelinePartition.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {

Error PartitionProblem::check() const {
  if (layers.empty())
    return makeError("pipeline-partition: expected at least one layer");
  if (stages < 1)
    return makeError("pipeline-partition: expected at least 1 stage, found " +
                     Twine(stages));
  if (microBatches < 1)
    return makeError(
        "pipeline-partition: expected at least 1 micro-batch, found " +
        Twine(microBatches));
  int64_t limit =
      (int64_t(1) << 60) / microBatches / static_cast<int64_t>(layers.size());
  for (Picoseconds time : layers)
    if (time < 0 || time > limit)
      return makeError("pipeline-partition: a layer's time is negative or too "
                       "large");
  if (cuts.empty())
    return Error::success();
  if (cuts.size() + 1 < layers.size())
    return makeError("pipeline-partition: expected " +
                     Twine(layers.size() - 1) + " rows of cuts, found " +
                     Twine(cuts.size()));
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (static_cast<int64_t>(cuts[i].size()) < stages - 1)
      return makeError("pipeline-partition: cuts[" + Twine(i) + "]: expected " +
                       Twine(stages - 1) + " entries, found " +
                       Twine(cuts[i].size()));
    for (Picoseconds cut : cuts[i])
      if (cut < 0 || cut > limit)
        return makeError("pipeline-partition: cuts[" + Twine(i) +
                         "]: a cost is negative or too large");
  }
  return Error::success();
}

namespace {
/// Stages from some layer on: the largest stage and the sum of the cuts.
struct Tail {
  Picoseconds largest;
  Picoseconds cuts;
  int64_t length; ///< layers of the first of these stages
  size_t next;    ///< index among the tails that follow it
};
} // namespace

std::optional<PartitionSolution>
solvePartition(const PartitionProblem &problem) {
  auto count = static_cast<int64_t>(problem.layers.size());
  int64_t stages = problem.stages;
  if (count < stages)
    return std::nullopt;
  std::vector<Picoseconds> sums(count + 1, 0);
  for (int64_t i = 0; i < count; ++i)
    sums[i + 1] = sums[i] + problem.layers[i];

  // tails[s][i]: stages s.. over layers i.., those that no other beats in both
  // numbers. Built from the back, so that ties go to longer first stages.
  std::vector<std::vector<std::vector<Tail>>> tails(
      stages, std::vector<std::vector<Tail>>(count + 1));
  for (int64_t s = stages - 1; s >= 0; --s) {
    for (int64_t i = s; i < count; ++i) {
      std::vector<Tail> fresh;
      if (s == stages - 1) {
        fresh.push_back({sums[count] - sums[i], 0, count - i, 0});
      } else {
        for (int64_t end = count - (stages - 1 - s); end > i; --end) {
          Picoseconds own = sums[end] - sums[i];
          Picoseconds cut = problem.cuts.empty() ? 0 : problem.cuts[end - 1][s];
          const std::vector<Tail> &after = tails[s + 1][end];
          for (size_t t = 0; t < after.size(); ++t)
            fresh.push_back({std::max(own, after[t].largest),
                             cut + after[t].cuts, end - i, t});
        }
      }
      // Stable: among equals the longer first stage stays in front.
      auto less = [](const Tail &a, const Tail &b) {
        if (a.largest != b.largest)
          return a.largest < b.largest;
        if (a.cuts != b.cuts)
          return a.cuts < b.cuts;
        if (a.length != b.length)
          return a.length > b.length;
        return a.next < b.next;
      };
      llvm::sort(fresh, less);
      for (const Tail &tail : fresh)
        if (tails[s][i].empty() || tail.cuts < tails[s][i].back().cuts)
          tails[s][i].push_back(tail);
    }
  }
  PartitionSolution best;
  const Tail *chosen = nullptr;
  for (const Tail &tail : tails[0][0]) {
    Picoseconds cost =
        (problem.microBatches - 1) * tail.largest + sums[count] + tail.cuts;
    if (!chosen || cost < best.cost) {
      chosen = &tail;
      best.cost = cost;
    }
  }
  int64_t at = 0;
  for (int64_t s = 0; s < stages; ++s) {
    best.layersPerStage.push_back(chosen->length);
    at += chosen->length;
    if (s + 1 < stages)
      chosen = &tails[s + 1][at][chosen->next];
  }
  return best;
}

std::optional<PartitionSolution>
minMaxPartition(const std::vector<Picoseconds> &layers, int64_t stages) {
  auto count = static_cast<int64_t>(layers.size());
  if (count < stages || stages < 1)
    return std::nullopt;
  std::vector<Picoseconds> sums(count + 1, 0);
  for (int64_t i = 0; i < count; ++i)
    sums[i + 1] = sums[i] + layers[i];
  // least[s][i]: least maximum of s stages over layers i..
  std::vector<std::vector<Picoseconds>> least(
      stages + 1, std::vector<Picoseconds>(count + 1, -1));
  for (int64_t i = 0; i < count; ++i)
    least[1][i] = sums[count] - sums[i];
  for (int64_t s = 2; s <= stages; ++s)
    for (int64_t i = 0; i + s <= count; ++i) {
      Picoseconds best = -1;
      for (int64_t end = i + 1; end + s - 1 <= count; ++end) {
        Picoseconds value = std::max(sums[end] - sums[i], least[s - 1][end]);
        if (best < 0 || value < best)
          best = value;
      }
      least[s][i] = best;
    }
  PartitionSolution solution;
  solution.cost = least[stages][0];
  int64_t at = 0;
  for (int64_t s = stages; s > 1; --s) {
    int64_t end = count - s + 1;
    while (sums[end] - sums[at] > solution.cost ||
           least[s - 1][end] > solution.cost)
      --end;
    solution.layersPerStage.push_back(end - at);
    at = end;
  }
  solution.layersPerStage.push_back(count - at);
  return solution;
}

} // namespace galvatron
