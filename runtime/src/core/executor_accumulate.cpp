//===- executor_accumulate.cpp - A step over several batches --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The batch of a step may be a multiple of the program's. Its parts go through
// forward and backward one after the other and add to the same gradients; norm
// and update follow once. Gradients are scaled by the tokens of all parts, and
// random numbers are keyed by the sample's number in all of them, so a step is
// that of a program compiled for the larger batch, but for the order of sums.
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"

namespace grt {

bool Rank::toNextPart() {
  if (progress.part + 1 >= input->parts)
    return false;
  // What is under way still reads the data of this part, and adds its loss.
  joinStreams();
  stepEnd.fetch(/*withNorm=*/false);
  device->waitForAll();
  progress.earlierLosses += stepEnd.fetchedLosses();
  ++progress.part;
  fillData(0, *input->batch);
  return true;
}

void Rank::runSteadyParts() {
  do {
    // Gradients are summed over ranks once, behind the last part.
    progress.leavesSums = progress.part + 1 < input->parts;
    runPart(GRT_PART_STEADY, false);
  } while (toNextPart());
  progress.leavesSums = false;
}

} // namespace grt
