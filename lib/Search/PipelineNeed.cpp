//===- PipelineNeed.cpp - The least memory of a pipeline ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PipelineTables.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {

using namespace search;

PipelineNeed leastNeed(const PipelineProblem &problem) {
  StageClassCache cache;
  PipelineTables tables(problem, cache, /*boundsOnly=*/true);
  return leastNeed(tables, problem.partition);
}

/// The lightest option of every layer takes its bytes, and together no more
/// temporaries and buffers than the largest of each: what that allows a stage
/// it can hold. Stages take as many layers as they can.
bool search::surelyFits(const PipelineTables &tables,
                        const std::vector<int64_t> &partition) {
  size_t begin = 0;
  for (size_t s = 0; s < tables.stages; ++s) {
    const StageClass &stageClass = tables.stageClass(s);
    size_t most = tables.layers - (tables.stages - 1 - s);
    if (!partition.empty())
      most = begin + partition[s];
    int64_t bytes = 0, transient = 0, boundary = 0, host = 0;
    size_t end = begin;
    for (; end < most; ++end) {
      const Choices &options = stageClass.options(end);
      const Choice &lightest =
          *llvm::min_element(options, [](const Choice &a, const Choice &b) {
            return a.bytes() + a.transient < b.bytes() + b.transient;
          });
      bytes += lightest.bytes();
      transient = std::max(transient, lightest.transient);
      boundary = std::max(boundary, lightest.boundary);
      host += lightest.host;
      if (bytes + transient + boundary > stageClass.memory ||
          host > stageClass.hostMemory)
        break;
    }
    if (end == begin || (!partition.empty() && end < most))
      return false;
    begin = end;
  }
  return begin == tables.layers;
}

/// The bytes that layers [begin, end) take beyond the stage's memory,
/// temporaries and buffers left out: no more than their true excess.
static int64_t roughExcess(const PipelineTables &tables, size_t stage,
                           size_t begin, size_t end) {
  const std::vector<int64_t> &bytes =
      tables.stageClass(stage).layers->leastBytes;
  return bytes[end] - bytes[begin] - tables.problem.stages[stage].memory;
}

/// Ends of stages that take as many layers as they can within a rough excess;
/// empty if the last one cannot take the rest.
static std::vector<size_t> endsWithin(const PipelineTables &tables,
                                      int64_t most) {
  std::vector<size_t> ends;
  size_t begin = 0;
  for (size_t s = 0; s < tables.stages; ++s) {
    size_t last = tables.layers - (tables.stages - 1 - s), end = begin;
    while (end < last && roughExcess(tables, s, begin, end + 1) <= most)
      ++end;
    if (end == begin)
      return {};
    ends.push_back(end);
    begin = end;
  }
  return begin == tables.layers ? ends : std::vector<size_t>();
}

/// Ends of stages by rough excesses, the largest of which is nearly the least.
static std::vector<size_t> roughEnds(const PipelineTables &tables) {
  int64_t low = 0, high = 0;
  for (size_t s = 0; s < tables.stages; ++s) {
    low = std::min(low, -tables.problem.stages[s].memory);
    high = std::max(high, roughExcess(tables, s, 0, tables.layers));
  }
  std::vector<size_t> ends = endsWithin(tables, high);
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    std::vector<size_t> closer = endsWithin(tables, middle);
    if (closer.empty()) {
      low = middle + 1;
    } else {
      ends = std::move(closer);
      high = middle;
    }
  }
  return ends;
}

PipelineNeed search::leastNeed(PipelineTables &tables,
                               const std::vector<int64_t> &partition) {
  const PipelineProblem &problem = tables.problem;
  size_t stages = tables.stages, layers = tables.layers;
  auto least = [&](size_t s, size_t begin, size_t end) -> const LeastMemory & {
    size_t shift = tables.shiftDistance(s, begin, end);
    return tables.stageClass(s).layers->leastMemory(begin + shift, end + shift);
  };
  constexpr int64_t most = std::numeric_limits<int64_t>::max() / 2;
  // Some pipeline needs no more than this, so whatever needs more counts as if
  // it needed a byte more: what is least stays the least, and long runs of
  // layers, which are dear to work out, are told by their layers' least bytes.
  int64_t enough = most - 1;
  if (partition.empty() && stages > 1) {
    std::vector<size_t> ends = roughEnds(tables);
    int64_t worst = std::numeric_limits<int64_t>::min();
    size_t begin = 0;
    for (size_t s = 0; s < ends.size(); begin = ends[s++])
      worst = std::max(worst, least(s, begin, ends[s]).bytes -
                                  problem.stages[s].memory);
    if (!ends.empty())
      enough = worst;
  }
  auto excess = [&](size_t s, size_t begin, size_t end) {
    if (roughExcess(tables, s, begin, end) > enough)
      return enough + 1;
    return std::min(enough + 1,
                    least(s, begin, end).bytes - problem.stages[s].memory);
  };
  // The table need[s][i] is the least largest excess of stages s.. over layers
  // i... A stage's excess grows with its end, that of the rest falls.
  std::vector<std::vector<int64_t>> need(
      stages + 1, std::vector<int64_t>(layers + 1, most));
  std::vector<std::vector<size_t>> ends(
      stages + 1, std::vector<size_t>(layers + 1, layers));
  auto fixedEnd = [&](size_t s) {
    size_t end = 0;
    for (size_t i = 0; i <= s; ++i)
      end += partition[i];
    return end;
  };
  for (size_t s = stages; s-- > 0;)
    for (size_t i = s; i + (stages - s) <= layers; ++i) {
      size_t low = i + 1, high = layers - (stages - 1 - s);
      if (s + 1 == stages) {
        low = high = layers;
      } else if (!partition.empty()) {
        if (i + partition[s] != fixedEnd(s))
          continue;
        low = high = fixedEnd(s);
      }
      // First end at which this stage is no better off than the rest.
      while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (excess(s, i, middle) >= need[s + 1][middle])
          high = middle;
        else
          low = middle + 1;
      }
      auto value = [&](size_t end) {
        int64_t own = excess(s, i, end);
        return s + 1 == stages ? own : std::max(own, need[s + 1][end]);
      };
      need[s][i] = value(low);
      ends[s][i] = low;
      if (s + 1 == stages || !partition.empty())
        continue;
      // Later ends are no better. Earlier ones can be where the rest needs
      // less.
      for (size_t end = i + 1; end < low; ++end)
        if (need[s + 1][end] < need[s][i] && value(end) < need[s][i]) {
          need[s][i] = value(end);
          ends[s][i] = end;
        }
    }
  PipelineNeed result;
  result.bound = need[0][0];
  size_t at = 0;
  for (size_t s = 0; s < stages; ++s) {
    size_t end = ends[s][at];
    const LeastMemory &own = least(s, at, end);
    result.solution.partition.push_back(static_cast<int64_t>(end - at));
    result.solution.choice.insert(result.solution.choice.end(),
                                  own.choice.begin(), own.choice.end());
    at = end;
  }
  result.excess = std::numeric_limits<int64_t>::min();
  PipelineValue value = evaluatePipeline(problem, result.solution.partition,
                                         result.solution.choice);
  for (size_t s = 0; s < stages; ++s)
    if (value.excess[s] > result.excess) {
      result.excess = value.excess[s];
      result.stage = s;
    }
  return result;
}

} // namespace galvatron
