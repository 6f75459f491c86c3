//===- rank_groups.h - Ranks that two groups share --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two collectives whose groups share two or more ranks need one order on all of
// these. The compiler decides by it what may run beside what, and the runtime
// that loads a program proves by it that nothing else does.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_RANK_GROUPS_H
#define GRT_RANK_GROUPS_H

#include <compare>
#include <cstdint>
#include <span>

namespace grt {

/// A level of a layer's ranks: a rank's coordinate is (rank / stride) % degree.
/// Ranks are local, positions in the stage's list of devices.
struct RankLevel {
  int64_t degree = 1, stride = 1;

  int64_t coordinate(int64_t rank) const { return rank / stride % degree; }
  auto operator<=>(const RankLevel &) const = default;
};

/// True if some group of `one` and some group of `other` have two or more of
/// `ranks` ranks in common. A group is ranks that differ in the coordinates of
/// these levels only; each level of more than one rank, strides ascending or
/// descending.
bool groupsShareRanks(int64_t ranks, std::span<const RankLevel> one,
                      std::span<const RankLevel> other);

} // namespace grt

#endif // GRT_RANK_GROUPS_H
