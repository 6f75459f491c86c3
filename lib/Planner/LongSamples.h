//===- LongSamples.h - Strategies that cut positions ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Strategies that cut the positions of samples make a space several times as
// large, and are no faster than those that cut the samples themselves where
// there is a sample for every device and a device has room for one. So they are
// searched, unasked, where one of the two is not so (docs/search.md, "Long
// samples"). No published space has them.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_LONGSAMPLES_H
#define GALVATRON_LIB_PLANNER_LONGSAMPLES_H

#include "galvatron/Planner/Planner.h"

#include <string>

namespace galvatron::planner {

/// Samples with fewer positions are not cut unasked: of LLaMA-3-8B with one
/// sample of 2,048 on eight H100 no plan gains by it, of 4,096 0.3%, of 8,192
/// 8% (benchmarks/planner/positions.py).
inline constexpr int64_t kLeastPositions = 4096;

/// The paradigms that cut positions and that a search has unasked.
struct LongSamples {
  /// Paradigms by number: those of spaces that leave them open, and with them
  /// those that cut positions.
  std::vector<Paradigm> narrow, wide;
  /// Lists of paradigms that cut positions in one way alone: by rows of
  /// products, or with keys that meet in one way; each with those of the space.
  std::vector<std::vector<Paradigm>> ways;
  /// Why positions are cut, for the list of decisions.
  std::string reason;

  /// False if `wide` has nothing more.
  bool matter() const { return wide.size() > narrow.size(); }
};

/// The paradigms of a search whose options leave them open. Positions are cut
/// if samples have at least kLeastPositions, and there are fewer samples in a
/// batch than devices, or what the layers keep of one sample, nothing computed
/// again, is more than a device has.
LongSamples findLongSamples(LayerModel &model, const Cluster &cluster,
                            const PlannerOptions &options);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_LONGSAMPLES_H
