//===- BiObjective.cpp - Algorithm 2 of the paper -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BiObjective.h"

#include "galvatron/Planner/Planner.h"

#include <algorithm>
#include <deque>
#include <set>

using namespace llvm;

namespace galvatron::planner {
namespace {

/// The fastest option of every layer without synchronisation, by place.
std::vector<std::vector<const PipelineOption *>>
fastestOptions(const PipelineProblem &problem) {
  std::vector<std::vector<const PipelineOption *>> fastest;
  for (const std::vector<size_t> &sets : problem.layers) {
    fastest.emplace_back();
    for (size_t set : sets)
      fastest.back().push_back(&*std::min_element(
          problem.optionSets[set].begin(), problem.optionSets[set].end(),
          [](const PipelineOption &a, const PipelineOption &b) {
            return a.nosync < b.nosync;
          }));
  }
  return fastest;
}

/// The partition with the least largest value of a stage. `makeValue(stage)`
/// returns a function that adds one layer to the stage and gives its value.
template <typename Value>
std::vector<int64_t> leastLargest(const PipelineProblem &problem,
                                  Value makeValue) {
  auto fastest = fastestOptions(problem);
  size_t stages = problem.stages.size(), layers = problem.layerCount();
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  std::vector<std::vector<int64_t>> least(
      stages + 1, std::vector<int64_t>(layers + 1, most));
  std::vector<std::vector<size_t>> ends(stages,
                                        std::vector<size_t>(layers + 1, 0));
  least[stages][layers] = 0;
  for (size_t s = stages; s-- > 0;)
    for (size_t begin = s; begin + (stages - s) <= layers; ++begin) {
      auto value = makeValue(problem.stages[s]);
      for (size_t end = begin + 1; end + (stages - 1 - s) <= layers; ++end) {
        int64_t own = value(*fastest[problem.stages[s].place][end - 1]);
        int64_t worst = std::max(own, least[s + 1][end]);
        if (least[s + 1][end] == most || worst > least[s][begin])
          continue;
        least[s][begin] = worst;
        ends[s][begin] = end;
      }
    }
  std::vector<int64_t> partition;
  for (size_t s = 0, at = 0; s < stages; ++s) {
    partition.push_back(static_cast<int64_t>(ends[s][at] - at));
    at = ends[s][at];
  }
  return partition;
}

} // namespace

std::vector<int64_t> timeBalanced(const PipelineProblem &problem) {
  return leastLargest(problem, [](const PipelineStage &) {
    return [sum = Picoseconds(0)](const PipelineOption &option) mutable {
      return sum += option.nosync;
    };
  });
}

std::vector<int64_t> memoryBalanced(const PipelineProblem &problem) {
  return leastLargest(problem, [](const PipelineStage &stage) {
    return [inFlight = stage.inFlight, state = int64_t(0), kept = int64_t(0),
            highest = int64_t(0),
            boundary = int64_t(0)](const PipelineOption &option) mutable {
      state += option.state;
      kept += option.kept;
      highest = std::max(highest, kept + option.transient);
      boundary = std::max(boundary, option.boundary);
      return state + (inFlight - 1) * kept + highest + boundary;
    };
  });
}

BiObjectiveResult biObjective(const PipelineProblem &problem,
                              const Cancellation *cancellation,
                              Picoseconds atLeast, uint64_t mostSteps) {
  BiObjectiveResult result;
  // Neighbouring partitions share most of their stages.
  PipelineSearch search(problem);
  search.setMostSteps(mostSteps);
  search.setCancellation(cancellation);
  auto solve = [&](const std::vector<int64_t> &partition) {
    ++result.visited;
    search.restart(partition);
    search.raise(atLeast);
    std::optional<PipelineSolution> found = search.solve();
    if (found && (!result.best || found->cost < result.best->cost))
      result.best = found;
    return found;
  };
  auto largestOf = [](const std::vector<int64_t> &values) {
    return *std::max_element(values.begin(), values.end());
  };
  std::set<std::vector<int64_t>> seen;
  std::vector<int64_t> byTime = timeBalanced(problem);
  std::vector<int64_t> byMemory = memoryBalanced(problem);
  // Where p_t does not fit, the budgets alone bound the memory.
  int64_t mostMemory = std::numeric_limits<int64_t>::max();
  if (auto found = solve(byTime))
    mostMemory =
        largestOf(evaluatePipeline(problem, byTime, found->choice).memory);
  std::vector<int64_t> even =
      evenPartition(static_cast<int64_t>(problem.layerCount()),
                    static_cast<int64_t>(problem.stages.size()));
  if (even != byTime && even != byMemory && !search.stopped())
    solve(even);

  std::deque<std::vector<int64_t>> queue = {byMemory};
  seen.insert(byMemory);
  while (!queue.empty() && !search.stopped()) {
    std::vector<int64_t> partition = std::move(queue.front());
    queue.pop_front();
    std::optional<PipelineSolution> found = solve(partition);
    if (!found)
      continue;
    PipelineValue value = evaluatePipeline(problem, partition, found->choice);
    Picoseconds slowest = largestOf(value.time);
    auto stage = static_cast<size_t>(
        std::max_element(value.time.begin(), value.time.end()) -
        value.time.begin());
    if (partition[stage] == 1)
      continue;
    for (int direction : {-1, 1}) {
      if ((direction < 0 && stage == 0) ||
          (direction > 0 && stage + 1 == partition.size()))
        continue;
      std::vector<int64_t> next = partition;
      --next[stage];
      ++next[stage + direction];
      // Sets of one kind list the same strategies on every place.
      PipelineValue moved = evaluatePipeline(problem, next, found->choice);
      if (largestOf(moved.time) > slowest || !moved.fits ||
          largestOf(moved.memory) > mostMemory || !seen.insert(next).second)
        continue;
      queue.push_back(std::move(next));
    }
  }
  result.stopped = search.stopped();
  return result;
}

} // namespace galvatron::planner
