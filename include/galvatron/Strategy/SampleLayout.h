//===- SampleLayout.h - Which rank has which samples ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The ranks of a stage cut a micro-batch into equal blocks. A rank's block is
// the mixed-radix number of its coordinates on the levels that split the batch,
// the outermost most significant. Levels that stand side by side cut like one
// level of the product of their degrees, so they are one here: two layouts give
// every rank the same block if and only if they are equal.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_STRATEGY_SAMPLELAYOUT_H
#define GALVATRON_STRATEGY_SAMPLELAYOUT_H

#include "llvm/ADT/SmallVector.h"

#include <compare>
#include <cstdint>
#include <vector>

namespace galvatron {

class SampleLayout {
public:
  /// Makes the layout of one rank, which has all samples.
  SampleLayout() = default;
  /// `ranks` ranks that all have all samples.
  explicit SampleLayout(int64_t ranks) : rankCount(ranks) {}

  /// Adds a level that splits the batch further in than those before: ranks
  /// that are `stride` apart have neighbouring blocks.
  void split(int64_t degree, int64_t stride);

  int64_t ranks() const { return rankCount; }
  /// Number of blocks.
  int64_t blocks() const;
  /// The block of a rank of the stage, from 0.
  int64_t block(int64_t rank) const;
  /// The least number of neighbouring ranks that repeats: for every multiple q
  /// of it that divides the ranks, ranks i q to (i + 1) q own blocks i b to
  /// (i + 1) b and no others, b = blocks() q / ranks(), in the same order for
  /// every i. All ranks where a level of copies is outermost.
  int64_t period() const;
  /// The blocks of all ranks; O(ranks).
  std::vector<int64_t> blocksByRank() const;

  bool operator==(const SampleLayout &other) const = default;
  /// Some total order.
  bool operator<(const SampleLayout &other) const;

private:
  struct Digit {
    int64_t degree, stride;
    auto operator<=>(const Digit &other) const = default;
  };
  int64_t rankCount = 1;
  llvm::SmallVector<Digit, 2> digits; ///< most significant first
};

} // namespace galvatron

#endif // GALVATRON_STRATEGY_SAMPLELAYOUT_H
