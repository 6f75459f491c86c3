//===- BoundedPipelines.h - Least times by bounds of maxima -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Minimises (m-1) * max t + sum t + sum cut + max end with the help of somebody
// who minimises `sum t + sum cut` under bounds of both maxima (docs/amp.md).
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SEARCH_BOUNDEDPIPELINES_H
#define GALVATRON_LIB_SEARCH_BOUNDEDPIPELINES_H

#include "galvatron/Support/Units.h"

#include <optional>
#include <utility>

namespace galvatron {

/// The least cost and its solution; nothing if no pipeline keeps the limits.
/// `Pipelines` has
///   Solution: what is returned;
///   boundEnds(b): bounds the ends of all that follows;
///   leastRest(b): the least sum with no stage above `b`, kNoBound if none;
///   leastLargest(): the least that the longest stage can be;
///   largest(), largestEnd(), solution(): of what leastRest() found.
template <typename Pipelines>
std::optional<std::pair<Picoseconds, typename Pipelines::Solution>>
solveByBounds(Pipelines &pipelines, int64_t microBatches) {
  std::optional<std::pair<Picoseconds, typename Pipelines::Solution>> best;
  Picoseconds factor = microBatches - 1;
  for (Picoseconds endBound = kNoBound; endBound >= 0;) {
    pipelines.boundEnds(endBound);
    // Under this bound: the least cost without the end, and its end.
    Picoseconds rest = kNoBound, end = 0;
    std::optional<typename Pipelines::Solution> found;
    Picoseconds lowest = pipelines.leastLargest();
    // A pipeline below a bound has at least the sum that is least there. So
    // only what leaves (m-1) * max t <= rest - sum can be as good as the best
    // so far: that is the next bound.
    for (Picoseconds bound = kNoBound; bound >= lowest && lowest < kNoBound;) {
      Picoseconds sum = pipelines.leastRest(bound);
      // Only if it was told to stop.
      if (sum >= kNoBound)
        break;
      Picoseconds largest = pipelines.largest();
      if (factor * largest + sum <= rest) {
        rest = factor * largest + sum;
        end = pipelines.largestEnd();
        found = pipelines.solution();
      }
      bound = largest - 1;
      if (factor > 0)
        bound = std::min(bound, (rest - sum) / factor);
      else if (sum > rest)
        break;
    }
    if (!found)
      break;
    if (!best || rest + end < best->first)
      best = {rest + end, std::move(*found)};
    // The bound of ends falls likewise: a tighter one leaves the rest no
    // smaller.
    endBound = std::min(end, best->first - rest) - 1;
  }
  return best;
}

} // namespace galvatron

#endif // GALVATRON_LIB_SEARCH_BOUNDEDPIPELINES_H
