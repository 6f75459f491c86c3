//===- KeptSubsets.h - Sets of kept values by counting ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_SEARCH_KEPTSUBSETS_H
#define GALVATRON_UNITTESTS_SEARCH_KEPTSUBSETS_H

#include "galvatron/Search/KeptSets.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace galvatron {

/// Every set that is enough, by counting, each with its values.
inline std::vector<KeptSet> allSets(const KeptProblem &problem) {
  std::vector<size_t> candidates;
  for (size_t value = 0; value < problem.values.size(); ++value)
    if (problem.values[value].mayBeKept)
      candidates.push_back(value);
  std::vector<KeptSet> sets;
  for (size_t bits = 0; bits < size_t(1) << candidates.size(); ++bits) {
    std::vector<size_t> kept;
    for (size_t i = 0; i < candidates.size(); ++i)
      if (bits >> i & 1)
        kept.push_back(candidates[i]);
    if (std::optional<KeptSet> set = priceKept(problem, kept))
      sets.push_back(*set);
  }
  return sets;
}

/// Bytes and time of every set that is enough, as allSets() has them. Walks the
/// operations from the last to the first: those behind decide what an operation
/// has to make, so sets that agree on these share the work, and a set takes
/// some nanoseconds. At most 128 values.
template <typename Visit> class SubsetWalk {
public:
  SubsetWalk(const KeptProblem &problem, Visit visit) : visit(visit) {
    assert(problem.values.size() <= 128 && "a mask has 128 bits");
    for (const KeptProblem::Operation &operation : problem.operations) {
      Step step = {0, 0, {}, operation.time, operation.mayBeRemade};
      for (size_t value : operation.operands)
        step.operands |= bit(value);
      step.choices.push_back({0, 0});
      for (size_t value : operation.results) {
        step.results |= bit(value);
        if (!problem.values[value].mayBeKept)
          continue;
        for (size_t i = 0, count = step.choices.size(); i < count; ++i) {
          auto [mask, bytes] = step.choices[i];
          step.choices.push_back(
              {mask | bit(value), bytes + problem.values[value].bytes});
        }
      }
      steps.push_back(step);
    }
    Mask needed = 0;
    for (size_t value = 0; value < problem.values.size(); ++value)
      if (problem.values[value].needed)
        needed |= bit(value);
    walk(steps.size(), needed, 0, 0);
  }

private:
  using Mask = unsigned __int128;
  struct Step {
    Mask operands, results;
    std::vector<std::pair<Mask, int64_t>> choices; ///< kept results, bytes
    Picoseconds time;
    bool mayBeRemade;
  };

  static Mask bit(size_t value) { return Mask(1) << value; }

  /// What backward must have and does not keep, of the first `count` steps.
  void walk(size_t count, Mask missing, int64_t bytes, Picoseconds time) {
    if (count == 0)
      return visit(bytes, time);
    const Step &step = steps[count - 1];
    for (auto [kept, more] : step.choices) {
      if ((missing & step.results & ~kept) == 0)
        walk(count - 1, missing, bytes + more, time);
      else if (step.mayBeRemade)
        walk(count - 1, missing | step.operands, bytes + more,
             time + step.time);
    }
  }

  Visit visit;
  std::vector<Step> steps;
};

using KeptPoint = std::pair<int64_t, Picoseconds>; ///< bytes and time

/// Points of which none takes both no more bytes and no more time than another,
/// by bytes.
class KeptFront {
public:
  /// For points of at most so many bytes, which are not negative.
  explicit KeptFront(int64_t mostBytes)
      : width(mostBytes / kBuckets + 1),
        least(kBuckets + 1, std::numeric_limits<Picoseconds>::max()) {}

  void add(int64_t bytes, Picoseconds time) {
    auto bucket = size_t(bytes / width);
    if (least[bucket] <= time)
      return; // fewer bytes take no longer
    points.push_back({bytes, time});
    for (size_t i = bucket + 1; i <= kBuckets && least[i] > time; ++i)
      least[i] = time;
  }

  /// The points, after all were added.
  const std::vector<KeptPoint> &finish() {
    std::sort(points.begin(), points.end());
    size_t kept = 0;
    for (KeptPoint point : points)
      if (kept == 0 || point.second < points[kept - 1].second)
        points[kept++] = point;
    points.resize(kept);
    return points;
  }

private:
  static constexpr int64_t kBuckets = 1024;
  int64_t width;                  ///< bytes of a bucket
  std::vector<Picoseconds> least; ///< of all points in buckets before this one
  std::vector<KeptPoint> points;
};

/// The front of all sets that are enough.
inline std::vector<KeptPoint> frontOf(const KeptProblem &problem) {
  int64_t bytes = 0;
  for (const KeptProblem::Value &value : problem.values)
    bytes += value.bytes;
  KeptFront front(bytes);
  SubsetWalk walk(problem, [&](int64_t bytes, Picoseconds time) {
    front.add(bytes, time);
  });
  return front.finish();
}

/// The lower hull of (bytes, time), by comparing every point with every line.
inline std::vector<KeptPoint> hullOf(std::vector<KeptPoint> points) {
  std::vector<KeptPoint> hull;
  std::sort(points.begin(), points.end());
  for (auto [bytes, time] : points) {
    if (!hull.empty() && time >= hull.back().second)
      continue;
    while (hull.size() > 1) {
      auto [b0, t0] = hull[hull.size() - 2];
      auto [b1, t1] = hull.back();
      // Products of bytes and picoseconds are long.
      if (static_cast<__int128>(t0 - t1) * (bytes - b1) <=
          static_cast<__int128>(t1 - time) * (b1 - b0))
        hull.pop_back();
      else
        break;
    }
    hull.push_back({bytes, time});
  }
  std::reverse(hull.begin(), hull.end());
  return hull;
}

} // namespace galvatron

#endif // GALVATRON_UNITTESTS_SEARCH_KEPTSUBSETS_H
