//===- rank_streams.cpp - Order between the streams of a rank -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/rank_streams.h"

namespace grt {
namespace {

uint32_t streamOf(const grt_task &task) {
  return task.kind == GRT_TASK_SWAP       ? task.stream
         : task.kind == GRT_TASK_TRANSFER ? uint32_t(GRT_STREAM_TRANSFER)
                                          : uint32_t(GRT_STREAM_COMPUTE);
}

} // namespace

void RankStreams::beginTask(const grt_task &task) const {
  for (uint8_t event : task.waits)
    if (event)
      memories.device->wait(streamOf(task), firstScheduleEvent + event - 1);
}

void RankStreams::endTask(const grt_task &task) const {
  if (task.records)
    memories.device->record(streamOf(task),
                            firstScheduleEvent + task.records - 1);
}

void RankStreams::join() {
  Device &device = *memories.device;
  device.order(GRT_STREAM_GRADIENT, GRT_STREAM_COMPUTE);
  device.order(GRT_STREAM_TRANSFER, GRT_STREAM_COMPUTE);
  if (swaps)
    for (uint32_t stream : {GRT_STREAM_IN, GRT_STREAM_OUT})
      device.order(stream, GRT_STREAM_COMPUTE);
  sums = false;
  handoffs.joined();
  device.note(GRT_NOTE_JOINED);
}

void RankStreams::awaitSums(grt_stream stream) const {
  if (sums)
    memories.device->order(GRT_STREAM_GRADIENT, stream);
}

} // namespace grt
