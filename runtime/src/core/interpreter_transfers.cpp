//===- interpreter_transfers.cpp - Messages between chunks ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The parts of a transfer are one grouped operation. What comes from this rank
// itself has both ends here, in one call.
//
//===----------------------------------------------------------------------===//

#include "core/interpreter.h"

#include <algorithm>
#include <chrono>

namespace grt {

size_t Interpreter::movedBy(const grt_task &task, unsigned parts,
                            Moved *moved) {
  size_t count = 0;
  for (unsigned p = 0; p < task.count; ++p) {
    if (!(parts & 1u << p))
      continue;
    const size_t number = size_t(task.first) + p;
    const grt_transfer_part &part = facts.schedule().transfers[number];
    const gvx::Message &message = procedures.message(number);
    TaskFrame frame;
    frame.place = part.slot;
    frame.part = part.micro_batch % uint64_t(facts.manifest.perSlot(true));
    frame.slot =
        chunkOf(part.chunk).slotOf(part.slot, batch.microBatchesBefore());
    const Extent at = procedures.extent(message.place, frame);
    Moved &one = moved[count++];
    one.part = &part;
    one.message = &message;
    one.memory =
        (message.home == 1 ? memories.atHome.base : memories.arena->base()) +
        at.offset;
    one.extent = at;
    one.handoff = message.shared == gvx::Shared::WithSlot ? int64_t(frame.slot)
                  : message.shared == gvx::Shared::WithBuffer
                      ? int64_t(streams.handoffs.ofBuffer(message.buffer))
                      : -1;
  }
  return count;
}

size_t Interpreter::callsFor(std::span<const Moved> moved,
                             ExchangeCall *calls) const {
  size_t count = 0;
  auto otherEnd = [&](const Moved &one) {
    return std::find_if(moved.begin(), moved.end(), [&](const Moved &other) {
      return other.part->value == one.part->value &&
             other.part->chunk == one.part->peer_chunk &&
             other.part->peer_chunk == one.part->chunk &&
             other.sends() != one.sends();
    });
  };
  for (const Moved &one : moved) {
    const auto other = otherEnd(one);
    // A call with both ends is the sender's.
    if (other != moved.end() && !one.sends())
      continue;
    ExchangeCall &call = calls[count++];
    const auto exchange = size_t(one.message->exchange);
    char *there = other != moved.end() ? other->memory : memories.arena->base();
    call.table = &facts.state.exchanges[exchange][facts.self];
    call.source = one.sends() ? one.memory : there;
    call.destination = one.sends() ? there : one.memory;
    call.bytesPerUnit = facts.manifest.exchanges[exchange].tableUnit();
  }
  return count;
}

void Interpreter::beginTransfer(std::span<const Moved> moved) {
  for (const Moved &one : moved)
    if (!one.sends())
      inUse.begin(one.extent);
  bool withAll = false;
  for (const Moved &one : moved) {
    if (one.handoff >= 0)
      streams.handoffs.beforeTransfer(size_t(one.handoff), one.extent);
    withAll |= one.handoff < 0;
    // What goes home leaves the device before the message to its receiver.
    if (one.message->home == 2)
      memories.swaps.limit(std::chrono::steady_clock::now(), one.extent.bytes);
  }
  // A device has one of everything that is sent: the pass that made it comes
  // before, and what uses its place behind.
  if (withAll)
    memories.device->order(GRT_STREAM_COMPUTE, GRT_STREAM_TRANSFER);
}

void Interpreter::endTransfer(std::span<const Moved> moved) {
  bool withAll = false;
  for (const Moved &one : moved) {
    if (one.handoff >= 0)
      streams.handoffs.afterTransfer(size_t(one.handoff));
    withAll |= one.handoff < 0;
  }
  if (withAll)
    memories.device->order(GRT_STREAM_TRANSFER, GRT_STREAM_COMPUTE);
  observer.leaveMark(GRT_STREAM_TRANSFER);
  for (const Moved &one : moved) {
    if (!one.sends())
      continue;
    if (one.message->home == 2)
      memories.swaps.count(GRT_SWAP_ACTIVATIONS, /*out=*/true,
                           one.extent.bytes);
    inUse.end(one.extent, /*sent=*/true);
  }
}

void Interpreter::transfer(const grt_task &task, unsigned parts) {
  Moved moved[GRT_TRANSFER_PARTS];
  ExchangeCall calls[GRT_TRANSFER_PARTS];
  const std::span<const Moved> all(moved, movedBy(task, parts, moved));
  const size_t count = callsFor(all, calls);
  observer.notePlace("transfer");
  beginTransfer(all);
  memories.communicator->onStream(GRT_STREAM_TRANSFER);
  memories.communicator->exchange({calls, count});
  memories.communicator->onStream(GRT_STREAM_COMPUTE);
  endTransfer(all);
}

} // namespace grt
