//===- rank_streams.h - Order between the streams of a rank ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is put on one stream comes behind what stands on another: by the events
// of the schedule, where transfers and functions share memory, behind sums of
// gradients, and at the end of a step. Nothing without a device.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_RANK_STREAMS_H
#define GRT_CORE_RANK_STREAMS_H

#include "core/handoffs.h"
#include "core/rank_memories.h"

namespace grt {

class RankStreams {
public:
  explicit RankStreams(const RankMemories &memories) : memories(memories) {}

  /// Events of the schedule: those that a task's stream waits for, and the one
  /// behind it.
  void beginTask(const grt_task &task) const;
  void endTask(const grt_task &task) const;
  /// COMPUTE comes behind all other streams.
  void join();
  /// What comes on `stream` runs behind the sums of gradients begun so far.
  void awaitSums(grt_stream stream) const;

  Handoffs handoffs;
  bool sums = false; ///< gradients are under way on GRADIENT
  // Set when the rank is loaded.
  /// Tasks of the schedule are on GRT_STREAM_IN and GRT_STREAM_OUT, even if
  /// they have nothing to copy here.
  bool swaps = false;
  uint32_t firstScheduleEvent = 0;

private:
  const RankMemories &memories;
};

} // namespace grt

#endif // GRT_CORE_RANK_STREAMS_H
