//===- interpreter_swaps.cpp - Between the device and home ----------------===//
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

#include "core/interpreter.h"

#include <algorithm>

namespace grt {

void Interpreter::runSwap(const gvx::Command &command, const TaskFrame &frame) {
  const bool out = command.kind == gvx::CommandKind::SwapOut;
  const Extent home = procedures.extent(out ? command.to : command.from, frame);
  const Extent inArena =
      procedures.extent(out ? command.from : command.to, frame);
  facts.activity.setLayer(memories.layer(size_t(command.layer)).name.c_str());
  facts.activity.begin("swap", nullptr);
  memories.swaps.copy(command.stream, out, home.offset, inArena.offset,
                      home.bytes);
  memories.swaps.count(grt_swap_class(command.number), out, home.bytes);
  facts.activity.end();
}

void Interpreter::swapSlot(const gvx::Command &command,
                           const TaskFrame &frame) {
  const Extent kept = procedures.extent(command.to, frame);
  const Extent home = procedures.extent(command.from, frame);
  const bool out = command.number == GRT_TO_HOST;
  // Else events of the schedule order it.
  const bool computes = command.stream == GRT_STREAM_COMPUTE;
  facts.activity.begin("swap", nullptr);
  if (computes)
    streams.handoffs.beforeFunction(0);
  // It goes as a whole, with what is not alive between buffers.
  const char *slot = memories.arena->base() + kept.offset;
  auto copy = [&] {
    memories.device->note(GRT_NOTE_BEGIN, slot, kept.bytes);
    memories.swaps.copy(command.stream, out, home.offset, kept.offset,
                        kept.bytes);
    memories.device->note(GRT_NOTE_END, slot, kept.bytes);
  };
  std::vector<Extent> &lives =
      memories.swaps.lives[(home.offset - facts.role->homeSlots.offset) /
                           std::max<uint64_t>(facts.role->homeSlotBytes, 1)];
  if (out) {
    copy();
    lives.clear();
    inUse.live.forWithin(kept.offset, kept.offset + kept.bytes,
                         [&](uint64_t offset, uint64_t length) {
                           lives.push_back({offset, length});
                         });
    for (const Extent &extent : lives)
      inUse.end(extent, /*sent=*/!computes);
  } else {
    for (const Extent &extent : lives)
      inUse.begin(extent);
    copy();
  }
  if (computes)
    streams.handoffs.afterFunctions();
  memories.swaps.count(GRT_SWAP_ACTIVATIONS, out, kept.bytes);
  facts.activity.end();
}

void Interpreter::swap(const grt_task &task) {
  const ChunkState &at = chunkOf(task.chunk);
  const Procedure procedure = procedures.swap(at.number, task);
  if (procedure.empty())
    return;
  observer.notePlace("swap");
  run(procedure, frameOf(at, task));
  observer.leaveMark(task.stream);
}

} // namespace grt
