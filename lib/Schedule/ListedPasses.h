//===- ListedPasses.h - Passes listed for the times they take ---*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The passes of a step over chunks that lie in a V: role r of P has chunk r on
// the way down and chunk 2 P - 1 - r on the way up. Which pass a role runs next
// is found by list scheduling for given times of the passes and messages.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SCHEDULE_LISTEDPASSES_H
#define GALVATRON_LIB_SCHEDULE_LISTEDPASSES_H

#include "galvatron/Schedule/TaskProgram.h"

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <vector>

namespace galvatron {

/// Where chunks lie.
struct VShape {
  int64_t roles, microBatches;

  int64_t chunks() const { return 2 * roles; }
  int64_t home(int64_t chunk) const {
    return chunk < roles ? chunk : chunks() - 1 - chunk;
  }
  /// Of a chunk, from the activation that it receives to its weight part.
  int64_t slots(int64_t chunk) const;
};

/// A pass, or a message that goes from a chunk to its neighbour.
struct ListedStep {
  TaskKind kind; ///< Forward, BackwardInput, BackwardWeight or Transfer
  TransferValue value = TransferValue::Activation; ///< of a message
  int64_t chunk = 0;
  int64_t microBatch = 0;
};

/// All passes and messages of a step in an order in which they can be run one
/// by one. Every role runs its own of them in this order, and both ends of a
/// message wait for each other: so nobody waits for what comes later, and no
/// circle can close.
/// `times` by chunk.
std::vector<ListedStep> listPasses(const VShape &shape,
                                   llvm::ArrayRef<PassTimes> times);
/// The same of forward passes alone.
std::vector<ListedStep> listForwards(const VShape &shape);

} // namespace galvatron

#endif // GALVATRON_LIB_SCHEDULE_LISTEDPASSES_H
