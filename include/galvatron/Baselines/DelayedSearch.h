//===- DelayedSearch.h - Width, depth, micro-batch of 2BW -------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Algorithm 1 of PipeDream-2BW (arXiv 2006.09503, appendix A): every width,
// depth, micro-batch and execution that the closed forms allow; the fastest of
// those that fit.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_BASELINES_DELAYEDSEARCH_H
#define GALVATRON_BASELINES_DELAYEDSEARCH_H

#include "galvatron/Cost/DelayedPipeline.h"

#include <optional>
#include <vector>

namespace galvatron {

struct DelayedProblem {
  DelayedSetting setting;
  int64_t devices = 1;
  int64_t memory = 0; ///< bytes of a device
  /// Restrictions of the search, where given.
  std::optional<int64_t> width, depth, microBatch;
  std::optional<bool> recompute;
};

struct DelayedPlan {
  DelayedShape shape;
  DelayedTimes times;
  DelayedMemory memory;
  double samplesPerSecond = 0;
};

struct DelayedResult {
  std::optional<DelayedPlan> plan;
  /// The fastest of each execution, in the order of DelayedExecution.
  std::vector<std::optional<DelayedPlan>> executions;
  /// The least bytes that any shape needs if there is no plan; 0 if no shape is
  /// whole.
  int64_t neededBytes = 0;
};

/// The fastest plan that fits; of equally fast ones the first in the order of
/// width, depth, execution and micro-batch. A shape is considered if its stages
/// have blocks, micro-batches are whole, and there are at least as many of them
/// as stages (one by one: any number). Errors are wrong input.
llvm::Expected<DelayedResult> searchDelayed(const DelayedProblem &problem);

} // namespace galvatron

#endif // GALVATRON_BASELINES_DELAYEDSEARCH_H
