//===- MicroBatchRule.h - The paper's number of micro-batches ---*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// arXiv 2307.02031 leaves the number of micro-batches open (it was tuned by
// hand). This rule fixes it per batch and pipeline degree so that the paper's
// tables can be rerun; its two figures were chosen on Table II, cluster (a).
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_MICROBATCHRULE_H
#define GALVATRON_LIB_PLANNER_MICROBATCHRULE_H

#include "galvatron/Strategy/Plan.h"

#include <optional>

namespace galvatron::planner {

/// 1 without a pipeline. Otherwise the divisor m of the batch for which batch /
/// m is a multiple of the stage's devices and that is nearest in ratio to 4
/// if every micro-batch takes a slot, as under GPipe, or else to 16, as under
/// 1F1B, within a factor of 2; the smaller one of two.
/// Nothing if no divisor will do.
std::optional<int64_t> paperMicroBatches(int64_t batch, int64_t pipelineDegree,
                                         int64_t stageDevices,
                                         const Schedule &schedule);

/// A sweep under the rule ends after so many batches in a row at which nothing
/// fits.
inline constexpr int64_t kPaperSweepPatience = 8;

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_MICROBATCHRULE_H
