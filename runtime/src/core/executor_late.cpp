//===- executor_late.cpp - Steps whose gradients are late -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A schedule that goes on (docs/2bw.md) begins with the next batch while it
// ends one: forward passes of the next batch use the newest weights W(t), what
// is left of batch t uses W(t-1), and the update makes W(t+1) of W(t). Newest
// parameters always lie in front, where checkpoints, ties and evaluations look;
// before an update makes them newer they are copied over those a version older,
// which nobody needs any more.
//
// What was begun of a batch is nothing but time: it can be given up at any
// moment and done again.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace grt {

void Rank::completeWeights() {
  if (!std::exchange(hasOlderWeights, true))
    run(procedures.older(), {});
}

void Rank::settle() { ties.takeValues(); }

void Rank::trainLate() {
  // The host writes where an earlier batch has been read.
  device->waitForAll();
  leaveGraphs();
  if (input->begun) {
    ++progress.since;
    results.updateLeftOut = false;
    for (ChunkState &chunk : chunks)
      chunk.beginStep();
    activity.setStep(input->step);
  } else {
    beginStep();
  }
  completeWeights();
  // Hyperparameters may have changed since the batch was begun.
  fillStep(0, input->step, input->batch->countedValues);
  bool goesOn = input->next != nullptr;
  if (goesOn) {
    fillStep(1, input->step + 1, input->next->countedValues);
    fillData(1, *input->next);
  }
  if (!input->begun)
    runPart(GRT_PART_PROLOGUE, false);
  runPart(goesOn ? GRT_PART_STEADY : GRT_PART_DRAIN, false);
  runPart(GRT_PART_STEP_END, false);
  joinStreams();
  turnTo(0);
  stepEnd.fetch(/*withNorm=*/false);
  stepEnd.gather();
}

} // namespace grt
