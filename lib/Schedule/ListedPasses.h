//===- ListedPasses.h - Passes listed for the times they take ---*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The passes of a step with backward passes in two parts. Chunks lie in a line,
// one on each role, or in a V: role r of P has chunk r on the way down and
// chunk 2 P - 1 - r on the way up. Which pass a role runs next is found by list
// scheduling for given times of the passes and messages.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SCHEDULE_LISTEDPASSES_H
#define GALVATRON_LIB_SCHEDULE_LISTEDPASSES_H

#include "galvatron/Schedule/TaskProgram.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <cstdint>
#include <vector>

namespace galvatron {

/// The place of chunks, and the room of roles.
struct ListedShape {
  int64_t roles, microBatches;
  int64_t perRole;     ///< chunks: 1 in a line, 2 in a V
  int64_t mostHeld;    ///< by a role, from forward pass to weight part
  bool sharesBoundary; ///< Accesses.h

  static ListedShape inLine(int64_t roles, int64_t microBatches, int64_t slots,
                            bool sharesBoundary) {
    return {roles, microBatches, 1, slots, sharesBoundary};
  }
  static ListedShape inV(int64_t roles, int64_t microBatches) {
    return {roles, microBatches, 2, 2 * roles, false};
  }

  int64_t chunks() const { return perRole * roles; }
  int64_t home(int64_t chunk) const {
    return chunk < roles ? chunk : chunks() - 1 - chunk;
  }
  /// Slots of a chunk, from the activation that it receives to its weight part.
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
using ListedSteps = std::vector<ListedStep>;

/// Calls `visit` with the orders that are found for passes that take `times`,
/// by chunk, and for passes that all take the same, but those whose step cannot
/// be shorter than `most`, and then than what `visit` says. In a V there is at
/// least one.
void listOrders(const ListedShape &shape, llvm::ArrayRef<PassTimes> times,
                int64_t most, llvm::function_ref<int64_t(ListedSteps)> visit);
/// The one in which a step is shortest if messages go one by one.
ListedSteps listPasses(const ListedShape &shape,
                       llvm::ArrayRef<PassTimes> times);
/// Lists forward passes alone, in a V.
ListedSteps listForwards(const ListedShape &shape);

} // namespace galvatron

#endif // GALVATRON_LIB_SCHEDULE_LISTEDPASSES_H
