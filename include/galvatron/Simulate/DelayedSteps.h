//===- DelayedSteps.h - A pipeline that never drains ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// PipeDream-2BW (arXiv 2006.09503, Sec. 3) batch after batch: stage s of d runs
// d - s - 1 forward passes ahead, then one forward and one backward in turn.
// Batch t uses the weights that the update of batch t - 2 wrote, so a forward
// pass runs ahead only as far as these are there.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SIMULATE_DELAYEDSTEPS_H
#define GALVATRON_SIMULATE_DELAYEDSTEPS_H

#include "galvatron/Support/Units.h"

#include <vector>

namespace galvatron {

/// The times of one stage, per micro-batch but for the update.
struct DelayedStage {
  Picoseconds forward = 0, backward = 0;
  /// Transfer times to the next stage after forward, to the one before after
  /// backward; the links are free otherwise.
  Picoseconds sendForward = 0, sendBackward = 0;
  /// The time after the last backward of a batch on the stage: gradient
  /// exchange that is not hidden, and the update.
  Picoseconds update = 0;
};

struct DelayedSteadyState {
  Picoseconds batch = 0; ///< from one batch's end to the next one's
  double busy = 0;       ///< part of it that the mean stage works
};

/// Simulates enough batches for the pace to settle. `microBatches` is at least
/// 1; below stages - 1 the pipeline waits for updates.
DelayedSteadyState simulateDelayed(const std::vector<DelayedStage> &stages,
                                   int64_t microBatches);

} // namespace galvatron

#endif // GALVATRON_SIMULATE_DELAYEDSTEPS_H
