//===- executor_swaps.cpp - Between the device and home -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where states have their home on the host, chunks come to the arena and
// gradients go home. On CPU ranks the thread that computes copies. A device has
// streams for it: the schedule says which, and by which events they and what
// runs wait for each other. What is done at home is done by the host itself, on
// this thread, once all that was on its way home is there.
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"

#include <algorithm>
#include <utility>

namespace grt {
namespace {

uint32_t streamOf(const grt_task &task) {
  return task.kind == GRT_TASK_SWAP       ? task.stream
         : task.kind == GRT_TASK_TRANSFER ? uint32_t(GRT_STREAM_TRANSFER)
                                          : uint32_t(GRT_STREAM_COMPUTE);
}

} // namespace

void Rank::beginOrder(const grt_task &task) {
  for (uint8_t event : task.waits)
    if (event)
      device->wait(streamOf(task), firstScheduleEvent + event - 1);
}

void Rank::endOrder(const grt_task &task) {
  if (task.records)
    device->record(streamOf(task), firstScheduleEvent + task.records - 1);
}

void Rank::runSwap(const gvx::Command &command, const TaskFrame &frame) {
  const bool out = command.kind == gvx::CommandKind::SwapOut;
  const Extent home = procedures.extent(out ? command.to : command.from, frame);
  const Extent inArena =
      procedures.extent(out ? command.from : command.to, frame);
  activity.setLayer(roleData->layers[size_t(command.layer)].name.c_str());
  activity.begin("swap", nullptr);
  swaps.copy(command.stream, out, home.offset, inArena.offset, home.bytes);
  swaps.count(grt_swap_class(command.number), out, home.bytes);
  activity.end();
}

void Rank::swapSlot(const gvx::Command &command, const TaskFrame &frame) {
  const Extent kept = procedures.extent(command.to, frame);
  const Extent home = procedures.extent(command.from, frame);
  const bool out = command.number == GRT_TO_HOST;
  // Else events of the schedule order it.
  const bool computes = command.stream == GRT_STREAM_COMPUTE;
  activity.begin("swap", nullptr);
  if (computes)
    handoffs.beforeFunction(0);
  // It goes as a whole, with what is not alive between buffers.
  const char *slot = arena->base() + kept.offset;
  auto copy = [&] {
    device->note(GRT_NOTE_BEGIN, slot, kept.bytes);
    swaps.copy(command.stream, out, home.offset, kept.offset, kept.bytes);
    device->note(GRT_NOTE_END, slot, kept.bytes);
  };
  std::vector<Extent> &lives =
      swaps.lives[(home.offset - roleData->homeSlots.offset) /
                  std::max<uint64_t>(roleData->homeSlotBytes, 1)];
  if (out) {
    copy();
    lives.clear();
    live.forWithin(kept.offset, kept.offset + kept.bytes,
                   [&](uint64_t offset, uint64_t length) {
                     lives.push_back({offset, length});
                   });
    for (const Extent &extent : lives)
      end(extent, /*sent=*/!computes);
  } else {
    for (const Extent &extent : lives)
      begin(extent);
    copy();
  }
  if (computes)
    handoffs.afterFunctions();
  swaps.count(GRT_SWAP_ACTIVATIONS, out, kept.bytes);
  activity.end();
}

void Rank::swap(const grt_task &task) {
  const ChunkState &at = chunkOf(task.chunk);
  const Procedure procedure = procedures.swap(at.number, task);
  if (procedure.empty())
    return;
  notePlace("swap");
  run(procedure, frameOf(at, task));
  leaveMark(task.stream);
}

} // namespace grt
