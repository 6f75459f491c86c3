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
#include <chrono>
#include <thread>
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

void Rank::reachHome() {
  if (hostIsHome() && std::exchange(leavesHere, false))
    device->waitFor(streamHome);
}

void Rank::limitCopy(std::chrono::steady_clock::time_point begin,
                     uint64_t bytes) const {
  if (state.copyRate > 0)
    std::this_thread::sleep_until(
        begin +
        std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::chrono::duration<double>(double(bytes) / state.copyRate)));
}

void Rank::copySwapped(const grt_task &task, uint64_t there, uint64_t inArena,
                       uint64_t bytes) {
  const auto begun = std::chrono::steady_clock::now();
  const bool out = task.tiers == GRT_TO_HOST;
  homeMemory->forPieces(there, bytes, [&](uint64_t offset, uint64_t length) {
    char *host = homeMemory->base() + offset;
    char *arenas = arena->base() + inArena + (offset - there);
    device->copy(task.stream, out ? host : arenas, out ? arenas : host, length);
  });
  leavesHere |= out;
  limitCopy(begun, bytes);
}

void Rank::swapSlot(const grt_task &task) {
  const Role &role = *roleData;
  const Chunk &chunk = *chunkOf(task.chunk).chunk;
  const Layer &last = role.layers[chunk.endLayer() - 1];
  // Temporaries of backward passes lie behind what is kept.
  const Extent kept =
      role.hasOneSlot()
          ? Extent{role.slots.offset, std::min(last.transient, role.slotBytes)}
          : role.awaySlot;
  const uint64_t bytes = kept.bytes;
  const uint32_t number = chunk.firstSlot + task.slot;
  const bool out = task.tiers == GRT_TO_HOST;
  // Else events of the schedule order it.
  const bool computes = task.stream == GRT_STREAM_COMPUTE;
  notePlace("swap");
  activity.begin("swap", nullptr);
  if (computes)
    beforeFunction(0);
  // It goes as a whole, with what is not alive between buffers.
  const char *slot = arena->base() + kept.offset;
  auto copy = [&] {
    device->note(GRT_NOTE_BEGIN, slot, bytes);
    copySwapped(task, role.homeSlots.offset + number * role.homeSlotBytes,
                kept.offset, bytes);
    device->note(GRT_NOTE_END, slot, bytes);
  };
  std::vector<Extent> &lives = livesAtHome[number];
  if (out) {
    copy();
    lives.clear();
    live.forWithin(kept.offset, kept.offset + bytes,
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
    afterFunctions();
  leaveMark(task.stream);
  (out ? swapped.activations.out : swapped.activations.in) += bytes;
  activity.end();
}

void Rank::swap(const grt_task &task) {
  if (task.classes == GRT_SWAP_ACTIVATIONS)
    return manifest.hasPacks       ? bringStash(task)
           : roleData->slotsAtHome ? swapSlot(task)
                                   : void();
  const Chunk &chunk = *chunkOf(task.chunk).chunk;
  const bool out = task.tiers == GRT_TO_HOST;
  notePlace("swap");
  if (manifest.hasPacks && !out && (task.classes & GRT_SWAP_PARAMETERS))
    takeTurn(chunk);
  const bool optimizer = task.classes & GRT_SWAP_OPTIMIZER;
  if (optimizer && !out)
    forResident(chunk, Resident::Optimizer,
                [&](const Extent &extent) { begin(extent); });
  for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i) {
    const Layer &layer = roleData->layers[i];
    if (!layer.isAway)
      continue;
    uint64_t held =
        uint64_t(layer.groups[0].shardElements + layer.groups[1].shardElements);
    activity.setLayer(&layer);
    activity.begin("swap", nullptr);
    auto move = [&](uint64_t there, uint64_t resident, uint64_t bytes,
                    RankSwaps::Bytes &count) {
      copySwapped(task, there, resident, bytes);
      (out ? count.out : count.in) += bytes;
    };
    if (task.classes & GRT_SWAP_PARAMETERS)
      move(layer.parameter, layer.residentParameter,
           held * manifest.elementBytes(), swapped.parameters);
    if (task.classes & GRT_SWAP_GRADIENTS)
      move(layer.gradient, layer.residentGradient,
           held * manifest.accumulatorBytes(), swapped.gradients);
    if (optimizer)
      move(layer.optimizer, layer.residentOptimizer,
           manifest.optimizerBytes(layer), swapped.optimizer);
    activity.end();
  }
  if (manifest.hasPacks && out && (task.classes & GRT_SWAP_GRADIENTS))
    forResident(chunk, Resident::Gradients,
                [&](const Extent &extent) { end(extent); });
  if (optimizer && out)
    forResident(chunk, Resident::Optimizer,
                [&](const Extent &extent) { end(extent); });
  leaveMark(task.stream);
}

} // namespace grt
