//===- rank_groups.cpp - Ranks that two groups share ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/rank_groups.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace grt {
namespace {

/// Of groups of one level each. A level's groups are ranks of equal distance,
/// so of two in common the nearest are a common multiple of both distances
/// apart.
bool levelsShareRanks(int64_t ranks, const RankLevel &one,
                      const RankLevel &other) {
  const int64_t apart = std::lcm(one.stride, other.stride);
  // True if the rank that is so much further is in the group of `rank`.
  auto reaches = [&](int64_t rank, const RankLevel &level) {
    return level.coordinate(rank) + apart / level.stride < level.degree;
  };
  for (int64_t rank = 0; rank + apart < ranks; ++rank)
    if (reaches(rank, one) && reaches(rank, other))
      return true;
  return false;
}

/// The first rank of the group that a rank is in.
int64_t firstOfGroup(int64_t rank, std::span<const RankLevel> levels) {
  int64_t first = rank;
  for (const RankLevel &level : levels)
    first -= level.coordinate(rank) * level.stride;
  return first;
}

} // namespace

bool groupsShareRanks(int64_t ranks, std::span<const RankLevel> one,
                      std::span<const RankLevel> other) {
  if (one.empty() || other.empty())
    return false;
  if (one.size() == 1 && other.size() == 1)
    return levelsShareRanks(ranks, one.front(), other.front());
  std::vector<std::pair<int64_t, int64_t>> groups;
  groups.reserve(size_t(ranks));
  for (int64_t rank = 0; rank < ranks; ++rank)
    groups.emplace_back(firstOfGroup(rank, one), firstOfGroup(rank, other));
  std::ranges::sort(groups);
  return std::ranges::adjacent_find(groups) != groups.end();
}

} // namespace grt
