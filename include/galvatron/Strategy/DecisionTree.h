//===- DecisionTree.h - The strategies of a device group --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The search space of arXiv 2307.02031, Sec. III-B: pipeline degree first, then
// inside a stage every ordered choice of distinct paradigms with degrees whose
// product is the group size, each with and without recomputation. Takeaway 3
// drops trees that hold both DP and SDP; ZDP, which the paper does not have,
// stands in the place of DP. Degrees are the divisors greater than
// one; on powers of two that is the paper's space: 68 strategies on 8 devices,
// 44 after Takeaway 3.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_STRATEGY_DECISIONTREE_H
#define GALVATRON_STRATEGY_DECISIONTREE_H

#include "galvatron/Strategy/Strategy.h"

#include <vector>

namespace galvatron {

enum class CheckpointChoice : uint8_t { Never, Always, Both };

struct SpaceOptions {
  /// The paradigms that levels may have; by default the paper's.
  ParadigmSet paradigms = ParadigmSet::searched(/*executed=*/false);
  /// Keep trees with two levels that cut the samples (against Takeaway 3).
  bool keepDpSdp = false;
  /// Trees with two levels that cut rows (cp2.tsp2): half as many again where
  /// all paradigms are searched.
  bool blocksOfBlocks = false;
  /// A level that cuts a factor only as the innermost one (the variants `dp+tp`
  /// and `3d`).
  bool factorInnermostOnly = false;
  CheckpointChoice checkpoint = CheckpointChoice::Both;
};

/// Reads "dp,zdp,sdp,tsp"; an error names the entry.
llvm::Expected<std::vector<Paradigm>> parseParadigms(llvm::StringRef list);

/// Returns all divisors of `number` in ascending order.
std::vector<int64_t> divisors(int64_t number);

/// The strategies of a stage of `devices` devices, sorted by Strategy's order.
/// Empty if the allowed paradigms cannot fill the group.
std::vector<Strategy> enumerateStrategies(int64_t devices,
                                          const SpaceOptions &options = {});

struct PipelineStrategy {
  int64_t pipelineDegree;
  Strategy strategy;

  /// "pp2 tp2.sdp2.ckpt".
  std::string str() const;
};

/// Every (pipeline degree, strategy) of `devices` devices: pipeline degrees are
/// the divisors, descending.
std::vector<PipelineStrategy> listStrategies(int64_t devices,
                                             const SpaceOptions &options = {});

} // namespace galvatron

#endif // GALVATRON_STRATEGY_DECISIONTREE_H
