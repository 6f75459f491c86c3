//===- role_state.h - What is in use while tasks are followed ---*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The proof of a schedule (proof_roles.cpp) follows a role's tasks in order.
// This is what it knows of the role's memory, and of what was done, behind one.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_SCHEDULE_ROLE_STATE_H
#define GRT_SCHEDULE_ROLE_STATE_H

#include "grt/accesses.h"

#include <optional>
#include <set>
#include <vector>

namespace galvatron::tasks::proof {

/// Progress of one micro-batch through one chunk.
struct PassState {
  bool received = false, forwarded = false, backwarded = false;
  bool awaitsWeight = false; ///< only the input part was run backward
};

/// Micro-batches are counted over all batches that are run.
struct Holder {
  int64_t chunk = -1, microBatch = -1; ///< -1: nothing that is needed
  bool isFree() const { return chunk < 0; }
};

struct ChunkState {
  bool isHere = false;
  std::vector<Holder> slots; ///< of packs the parts of each
  std::vector<PassState> passes;
  /// Micro-batches of the sender that came home; of packs.
  std::set<int64_t> stashes;
  int64_t slotShift = 0;   ///< of a batch
  int64_t added = -1;      ///< the last micro-batch in the sum of gradients
  int64_t inputAdded = -1; ///< the same of what input parts add
  bool reduced = false;
  int64_t version = 0; ///< updates of the weights

  size_t slotAt(int64_t slot, int64_t batch) const {
    return size_t(slot + batch * slotShift) % slots.size();
  }
};

/// A place for a resident chunk.
struct Residency {
  int64_t chunk = -1;   ///< whose parameters are there
  int64_t sumOf = -1;   ///< whose gradients, which home does not have
  int64_t stateOf = -1; ///< whose optimizer state
  /// Chunk whose parameters were updated on the device, and are not at home
  /// yet.
  int64_t updated = -1;
};

struct RoleState {
  std::vector<ChunkState> chunks; ///< of all roles
  std::vector<Residency> residents;
  /// The only slot on the device, if slots are offloaded to the host.
  std::optional<Holder> deviceSlot;
  std::vector<Holder> waiting; ///< messages that came
  Holder output, gradientIn, gradientOut;
  int64_t packHere = -1; ///< the chunk that used the devices' memory last
  int64_t batch = 0;     ///< that parts are run for
  bool tookTied = false; ///< in this batch

  Holder &holder(const Access &access) {
    ChunkState &chunk = chunks[access.chunk];
    switch (access.place) {
    case Place::Slot:
      if (deviceSlot)
        return *deviceSlot;
      [[fallthrough]];
    case Place::HomeSlot:
      return chunk.slots[chunk.slotAt(access.slot, batch)];
    case Place::Output:
      return output;
    case Place::GradientIn:
      return gradientIn;
    case Place::Waiting:
      return waiting[access.slot];
    default:
      return gradientOut;
    }
  }
};

} // namespace galvatron::tasks::proof

#endif // GRT_SCHEDULE_ROLE_STATE_H
