//===- swap_order.h - Events between swaps and what runs --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On devices with memory of their own swaps are copies on two streams, one into
// the device and one out of it, beside the streams of layers and of messages.
// Each stream is in order; between two of them only events say what comes
// first. Which tasks must not run at the same time follows from what they
// access (accesses.h), here and at home: two tasks that share a place have an
// order unless both only read it.
//
// Three orders need no event of the schedule. Layers and messages are ordered
// by who runs them, where they meet (docs/streams.md). What is done at home the
// host does itself, once everything that was put on the stream out of the
// device is done. And whatever is put on a stream is behind what the host has
// done before.
//
// galvatron-assign-streams makes the events, the schedule's proof
// (schedule_proof.h) finds whether they are enough; both ask here.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_SWAP_ORDER_H
#define GRT_SWAP_ORDER_H

#include "grt/schedule_proof.h"

namespace galvatron::tasks {

/// Most events of a role's schedule; the same number as GRT_SCHEDULE_EVENTS.
inline constexpr uint8_t kScheduleEvents = 32;

/// Puts all swaps of a program whose states have their home on the host on
/// their streams, with the events that are needed and no other; those of packs
/// stay on the stream of layers. Returns why it cannot: a role would need more
/// events than there are; "" if it can.
std::string assignSwapEvents(TaskProgram &program);

/// Returns the faults of a program with `swapsOnStreams`; for any other,
/// streams and events of tasks that must have none.
std::vector<ScheduleFault> checkSwapOrder(const TaskProgram &program);

} // namespace galvatron::tasks

#endif // GRT_SWAP_ORDER_H
