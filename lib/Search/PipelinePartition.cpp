//===- PipelinePartition.cpp - Contiguous stages, exactly -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/PipelinePartition.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>
#include <utility>

using namespace llvm;

namespace galvatron {

/// Rows of a table with an entry for every stage (every cut, if `columns` is
/// one less).
static Error checkTable(const Twine &name,
                        const std::vector<std::vector<Picoseconds>> &table,
                        size_t rows, int64_t columns, Picoseconds limit) {
  if (table.size() < rows)
    return makeError("pipeline-partition: expected " + Twine(rows) +
                     " rows of " + name + ", found " + Twine(table.size()));
  for (size_t i = 0; i < table.size(); ++i) {
    if (static_cast<int64_t>(table[i].size()) < columns)
      return makeError("pipeline-partition: " + name + "[" + Twine(i) +
                       "]: expected " + Twine(columns) + " entries, found " +
                       Twine(table[i].size()));
    for (Picoseconds entry : table[i])
      if (entry < 0 || entry > limit)
        return makeError("pipeline-partition: " + name + "[" + Twine(i) +
                         "]: a cost is negative or too large");
  }
  return Error::success();
}

Error PartitionProblem::check() const {
  if (layers.empty() && stageLayers.empty())
    return makeError("pipeline-partition: expected at least one layer");
  if (stages < 1)
    return makeError("pipeline-partition: expected at least 1 stage, found " +
                     Twine(stages));
  if (microBatches < 1)
    return makeError(
        "pipeline-partition: expected at least 1 micro-batch, found " +
        Twine(microBatches));
  if (!layers.empty() && !stageLayers.empty())
    return makeError("pipeline-partition: expected the times of layers either "
                     "by stage or for all stages, found both");
  int64_t limit = (int64_t(1) << 60) / microBatches / layerCount();
  for (Picoseconds time : layers)
    if (time < 0 || time > limit)
      return makeError("pipeline-partition: a layer's time is negative or too "
                       "large");
  auto rows = static_cast<size_t>(layerCount());
  if (!stageLayers.empty())
    if (Error error =
            checkTable("layers by stage", stageLayers, rows, stages, limit))
      return error;
  if (!ends.empty())
    if (Error error = checkTable("ends", ends, rows, stages, limit))
      return error;
  if (!mostLayers.empty() &&
      (static_cast<int64_t>(mostLayers.size()) < stages ||
       any_of(mostLayers,
              [&](const auto &limits) { return limits.size() < rows; })))
    return makeError("pipeline-partition: expected a limit for every stage and "
                     "first layer");
  if (cuts.empty())
    return Error::success();
  return checkTable("cuts", cuts, rows - 1, stages - 1, limit);
}

namespace {

/// Finds partitions with the least sum of stages and cuts among those whose
/// stages, and whose ends, keep below a bound.
class BoundedPartitions {
public:
  explicit BoundedPartitions(const PartitionProblem &problem)
      : problem(problem), count(problem.layerCount()), stages(problem.stages),
        times(problem.layers.empty() ? stages : 1,
              std::vector<Picoseconds>(count + 1, 0)),
        endTimes(problem.ends.empty() ? 0 : stages, times.front()),
        least(stages + 1, std::vector<Picoseconds>(count + 1, kNoBound)),
        chosen(stages, std::vector<int64_t>(count + 1, 0)) {
    for (size_t row = 0; row < times.size(); ++row)
      for (int64_t i = 0; i < count; ++i)
        times[row][i + 1] = times[row][i] + (problem.layers.empty()
                                                 ? problem.stageLayers[i][row]
                                                 : problem.layers[i]);
    for (size_t s = 0; s < endTimes.size(); ++s)
      for (int64_t i = 0; i < count; ++i)
        endTimes[s][i + 1] = endTimes[s][i] + problem.ends[i][s];
    least[stages][count] = 0;
  }

  /// Bounds the ends of all that follows.
  void boundEnds(Picoseconds bound) { mostEnd = bound; }

  /// The least sum of stages and cuts with no stage above `bound`; kNoBound if
  /// there is none. Among equals the longest first stage, and so on.
  Picoseconds leastRest(Picoseconds bound) {
    // More layers never take less, so the first end that is too far ends the
    // loop.
    for (int64_t s = stages - 1; s >= 0; --s) {
      int64_t furthest = count - (stages - 1 - s);
      for (int64_t begin = s; begin < furthest; ++begin) {
        int64_t most =
            problem.mostLayers.empty() ? count : problem.mostLayers[s][begin];
        least[s][begin] = kNoBound;
        for (int64_t end = begin + 1; end <= furthest && end - begin <= most;
             ++end) {
          Picoseconds own = stageTime(s, begin, end);
          if (own > bound || endTime(s, begin, end) > mostEnd)
            break;
          if (least[s + 1][end] >= kNoBound)
            continue;
          Picoseconds cut = problem.cuts.empty() || s + 1 == stages
                                ? 0
                                : problem.cuts[end - 1][s];
          Picoseconds value = own + cut + least[s + 1][end];
          if (value <= least[s][begin]) {
            least[s][begin] = value;
            chosen[s][begin] = end;
          }
        }
      }
    }
    return least[0][0];
  }

  /// The sizes that the last call of leastRest() found.
  std::vector<int64_t> sizes() const {
    std::vector<int64_t> all;
    for (int64_t s = 0, at = 0; s < stages; at = chosen[s][at], ++s)
      all.push_back(chosen[s][at] - at);
    return all;
  }
  Picoseconds largest() const {
    Picoseconds most = 0;
    for (int64_t s = 0, at = 0; s < stages; at = chosen[s][at], ++s)
      most = std::max(most, stageTime(s, at, chosen[s][at]));
    return most;
  }
  Picoseconds largestEnd() const {
    Picoseconds most = 0;
    for (int64_t s = 0, at = 0; s < stages; at = chosen[s][at], ++s)
      most = std::max(most, endTime(s, at, chosen[s][at]));
    return most;
  }

private:
  Picoseconds stageTime(int64_t s, int64_t begin, int64_t end) const {
    const std::vector<Picoseconds> &row = times[times.size() == 1 ? 0 : s];
    return row[end] - row[begin];
  }
  Picoseconds endTime(int64_t s, int64_t begin, int64_t end) const {
    return endTimes.empty() ? 0 : endTimes[s][end] - endTimes[s][begin];
  }

  const PartitionProblem &problem;
  int64_t count, stages;
  Picoseconds mostEnd = kNoBound;
  std::vector<std::vector<Picoseconds>> times, endTimes; ///< first i layers
  std::vector<std::vector<Picoseconds>> least;           ///< stages s.., i..
  std::vector<std::vector<int64_t>> chosen; ///< where the first of them ends
};

} // namespace

/// The search bounds the longest stage and the largest end, and asks for the
/// least sum of stages and cuts under both bounds (docs/amp.md).
std::optional<PartitionSolution>
solvePartition(const PartitionProblem &problem) {
  if (problem.layerCount() < problem.stages)
    return std::nullopt;
  BoundedPartitions partitions(problem);
  std::optional<PartitionSolution> best;
  Picoseconds factor = problem.microBatches - 1;
  for (Picoseconds endBound = kNoBound; endBound >= 0;) {
    partitions.boundEnds(endBound);
    // Under this bound: the least cost without the end, and its end.
    Picoseconds rest = kNoBound, end = 0;
    std::optional<std::vector<int64_t>> found;
    // A partition below a bound has at least the sum that is least there. So
    // only what leaves (m-1) * max t <= rest - sum can be as good as the best
    // so far: that is the next bound.
    for (Picoseconds bound = kNoBound;;) {
      Picoseconds sum = partitions.leastRest(bound);
      if (sum >= kNoBound)
        break;
      Picoseconds largest = partitions.largest();
      if (factor * largest + sum <= rest) {
        rest = factor * largest + sum;
        end = partitions.largestEnd();
        found = partitions.sizes();
      }
      bound = largest - 1;
      if (factor > 0)
        bound = std::min(bound, (rest - sum) / factor);
      else if (sum > rest)
        break;
    }
    if (!found)
      break;
    if (!best || rest + end < best->cost)
      best = {rest + end, std::move(*found)};
    // The bound of ends falls likewise: a tighter one leaves the rest no
    // smaller.
    endBound = std::min(end, best->cost - rest) - 1;
  }
  return best;
}

std::optional<PartitionSolution>
minMaxPartition(const std::vector<Picoseconds> &layers, int64_t stages) {
  auto count = static_cast<int64_t>(layers.size());
  if (count < stages || stages < 1)
    return std::nullopt;
  PartitionSolution solution;
  // Every stage takes what it can below the limit, and leaves each later one a
  // layer.
  auto fill = [&](Picoseconds limit) {
    solution = {limit, {}};
    int64_t at = 0;
    for (int64_t later = stages; later-- > 0;) {
      int64_t begin = at;
      for (Picoseconds sum = 0; at < count - later && sum + layers[at] <= limit;
           ++at)
        sum += layers[at];
      if (at == begin)
        return false;
      solution.layersPerStage.push_back(at - begin);
    }
    return at == count;
  };
  Picoseconds low = 0,
              high = std::accumulate(layers.begin(), layers.end(), low);
  while (low < high) {
    Picoseconds middle = low + (high - low) / 2;
    if (fill(middle))
      high = middle;
    else
      low = middle + 1;
  }
  fill(low);
  return solution;
}

} // namespace galvatron
