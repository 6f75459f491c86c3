//===- DelayedSteps.cpp - A pipeline that never drains --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Simulate/DelayedSteps.h"

#include <algorithm>
#include <cassert>

namespace galvatron {

namespace {

/// The progress of a stage so far.
struct StageProgress {
  int64_t forwards = 0, backwards = 0, updates = 0;
  Picoseconds free = 0;
};

} // namespace

DelayedSteadyState simulateDelayed(const std::vector<DelayedStage> &stages,
                                   int64_t microBatches) {
  assert(!stages.empty() && microBatches >= 1);
  auto depth = static_cast<int64_t>(stages.size());
  // The first batches fill the pipeline and the last ones drain it. Between
  // them the slowest stage sets the pace, though stages before it run ahead
  // until they may no further: the slowest pace of any is measured.
  int64_t warmUp = 2 * depth + 16, measured = 4 * depth;
  int64_t batches = warmUp + measured + depth + 2;
  int64_t total = batches * microBatches;
  std::vector<std::vector<Picoseconds>> forwardEnd(depth), backwardEnd(depth);
  std::vector<StageProgress> progress(depth);
  std::vector<std::vector<Picoseconds>> batchEnd(depth);

  // Runs the next operation of a stage if what it needs has been simulated.
  auto advance = [&](int64_t s) {
    StageProgress &own = progress[s];
    const DelayedStage &stage = stages[s];
    if (own.updates == batches)
      return false;
    if (own.backwards == (own.updates + 1) * microBatches) {
      own.free += stage.update;
      ++own.updates;
      batchEnd[s].push_back(own.free);
      return true;
    }
    int64_t ahead = own.forwards - own.backwards;
    bool weightsThere = own.forwards / microBatches <= own.updates + 1;
    if (own.forwards < total && ahead <= depth - s - 1 && weightsThere) {
      int64_t k = own.forwards;
      Picoseconds arrived = 0;
      if (s > 0) {
        if (static_cast<int64_t>(forwardEnd[s - 1].size()) <= k)
          return false;
        arrived = forwardEnd[s - 1][k] + stages[s - 1].sendForward;
      }
      own.free = std::max(own.free, arrived) + stage.forward;
      forwardEnd[s].push_back(own.free);
      ++own.forwards;
      return true;
    }
    int64_t k = own.backwards;
    Picoseconds arrived = 0;
    if (s + 1 < depth) {
      if (static_cast<int64_t>(backwardEnd[s + 1].size()) <= k)
        return false;
      arrived = backwardEnd[s + 1][k] + stages[s + 1].sendBackward;
    }
    own.free = std::max(own.free, arrived) + stage.backward;
    backwardEnd[s].push_back(own.free);
    ++own.backwards;
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int64_t s = 0; s < depth; ++s)
      while (advance(s))
        moved = true;
  }

  DelayedSteadyState state;
  for (const std::vector<Picoseconds> &ends : batchEnd) {
    assert(static_cast<int64_t>(ends.size()) == batches &&
           "the order of every stage respects what it needs");
    state.batch = std::max(state.batch,
                           (ends[warmUp + measured] - ends[warmUp]) / measured);
  }
  double work = 0;
  for (const DelayedStage &stage : stages)
    work += static_cast<double>(
        microBatches * (stage.forward + stage.backward) + stage.update);
  if (state.batch > 0)
    state.busy =
        work / static_cast<double>(depth) / static_cast<double>(state.batch);
  return state;
}

} // namespace galvatron
