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
#include <optional>
#include <utility>
#include <vector>

namespace galvatron {

/// Every set that is enough, by counting.
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

/// The lower hull of (bytes, time), by comparing every point with every line.
inline std::vector<std::pair<int64_t, Picoseconds>>
hullOf(const std::vector<KeptSet> &sets) {
  std::vector<std::pair<int64_t, Picoseconds>> points, hull;
  for (const KeptSet &set : sets)
    points.push_back({set.bytes, set.time});
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
