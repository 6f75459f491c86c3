//===- memory_in_use.cpp - What of a memory is in use ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/memory_in_use.h"
#include "base/allocation.h"
#include "core/program_text.h"

#include <algorithm>

namespace grt {

void MemoryInUse::begin(const Extent &extent) {
  if (!tracks || !extent.bytes)
    return;
  live.begin(extent.offset, extent.bytes);
  memories.device->note(GRT_NOTE_BEGIN, memories.arena->base() + extent.offset,
                        extent.bytes);
}

void MemoryInUse::end(const Extent &extent, bool sent) {
  if (!tracks || !extent.bytes)
    return;
  if (!live.end(extent.offset, extent.bytes,
                sent && *memories.device ? LiveSet::Dead() : poisonDead()))
    observer.failHere("a boundary buffer of " + std::to_string(extent.bytes) +
                      " bytes ends that never began");
  memories.device->note(GRT_NOTE_END, memories.arena->base() + extent.offset,
                        extent.bytes);
}

void MemoryInUse::begin(const char *address, const grt_buffer &buffer) {
  if (!buffer.bytes)
    return;
  live.begin(uint64_t(address - memories.arena->base()), buffer.bytes);
  memories.device->note(GRT_NOTE_BEGIN, address, buffer.bytes);
}

void MemoryInUse::end(const char *address, const grt_buffer &buffer) {
  if (!buffer.bytes)
    return;
  if (!live.end(uint64_t(address - memories.arena->base()), buffer.bytes,
                poisonDead()))
    observer.failHere("a buffer of " + str(buffer.bytes) + " bytes at " +
                      str(buffer.offset) + " of region " +
                      regionName(buffer.region) + " ends that never began");
  memories.device->note(GRT_NOTE_END, address, buffer.bytes);
}

LiveSet::Dead MemoryInUse::poisonDead() {
  if (!facts.state.poison)
    return {};
  return [this](uint64_t from, uint64_t to) {
    memories.device->fill(GRT_STREAM_COMPUTE, memories.arena->base() + from,
                          poisonByte, to - from);
  };
}

void MemoryInUse::takeTurn(const Chunk &chunk) {
  if (!tracks)
    return;
  if (packHere)
    for (size_t i = packHere->firstLayer; i < packHere->endLayer(); ++i)
      end(memories.layers[i].places.resident.parameters);
  packHere = &chunk;
  for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i)
    begin(memories.layers[i].places.resident.parameters);
}

void MemoryInUse::beginStep() {
  live.rewind(0);
  packHere = nullptr;
  memories.device->note(GRT_NOTE_FORGET, nullptr, tracks);
}

void MemoryInUse::lookAtHeap() {
  heapBytes = std::max(heapBytes, allocationPeakBytes());
}

void MemoryInUse::lookAtDevice() {
  const Device &device = *memories.device;
  if (device && device->peak_bytes)
    deviceBytes =
        std::max(deviceBytes, device->peak_bytes(memories.backendState));
}

RankMemory MemoryInUse::figures() const {
  // Beside a device's arena the heap is other memory. (Before a program is
  // loaded there is neither.)
  const bool onDevice = memories.device && *memories.device;
  return {facts.self,
          facts.role->arenaBytes,
          staticBytes + live.peakBytes() + (onDevice ? 0 : heapBytes),
          heapBytes,
          deviceBytes,
          facts.role->homeBytes,
          memories.homeMemory ? memories.homeMemory->pageableBytes() : 0};
}

} // namespace grt
