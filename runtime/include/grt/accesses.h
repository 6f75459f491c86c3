//===- accesses.h - What a task reads and writes ----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The memory of a role that its tasks hand on to each other, and what each task
// does with it. What is proven of a schedule is proven from this list.
//
// Sets of tensors between layers have three places: an output waits to be sent,
// a gradient that came waits for its backward, and gradients are worked on from
// layer to layer until that of the chunk's input is sent. Most schedules of one
// chunk a role have them in one region, used from both of its ends: backward
// reaches over all of it, forward over the end of the output. Where a message
// waits while other micro-batches run there is a region for each, which the
// chunks of a role share (docs/manifest.md).
//
//===----------------------------------------------------------------------===//

#ifndef GRT_ACCESSES_H
#define GRT_ACCESSES_H

#include "grt/tasks.h"

namespace galvatron::tasks {

enum class Place : uint8_t {
  Slot,        ///< of a chunk: the input, then what backward needs besides
  HomeSlot,    ///< of a chunk, on the host, where slots have their home there
  Output,      ///< that waits to be resharded or sent
  GradientIn,  ///< of a chunk's output, received
  GradientOut, ///< between layers, at last of a chunk's input
  Waiting,     ///< of a role with packs: a message that came
  Sum,         ///< of a chunk's gradients over micro-batches
  InputSum,    ///< what input parts of backward passes add of it
  Weights,     ///< of a chunk
  /// Parameters of a chunk on the device, and sums of gradients; optimizer
  /// state, for an update there.
  Resident
};

enum class AccessMode : uint8_t {
  Fill,     ///< writes what is not needed any more
  Read,     ///< of what the access names
  Take,     ///< reads it for the last time
  Work,     ///< overwrites what is not needed any more, and leaves nothing
  Add,      ///< to a sum, micro-batches ascending
  Reduce,   ///< of a sum over ranks: all micro-batches are in it
  Replace,  ///< of weights, for the next step
  Bring,    ///< parameters from home
  BringSum, ///< a sum of gradients that goes on, from home
  SendSum,  ///< it to its home
  /// Optimizer state of a chunk that is updated on the device: from home, over
  /// slot and boundaries, and to it, with the new parameters.
  BringState,
  SendState
};

struct Access {
  Place place;
  AccessMode mode;
  /// The chunk whose content it is; also the index of the place, for Slot, both
  /// sums and Weights.
  uint16_t chunk = 0;
  uint16_t slot = 0;       ///< of Slot, HomeSlot, Waiting
  uint8_t generation = 0;  ///< of the batch whose content it is
  uint32_t microBatch = 0; ///< content of places that hold one at a time
};

/// Puts the accesses of a task into `list` instead of what is there, in the
/// order in which they count: of a grouped transfer everything arrives before
/// anything has left. Without `training` nothing is kept for backward.
void listAccesses(const TaskProgram &program, int64_t role, const Task &task,
                  bool training, std::vector<Access> &list);

} // namespace galvatron::tasks

#endif // GRT_ACCESSES_H
