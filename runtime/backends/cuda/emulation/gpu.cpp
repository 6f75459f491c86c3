//===- gpu.cpp - A device that is the host --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For tests: work is done when it is put on a stream. Kernels run as
// cuda_on_host.h says, there is one library of products (products.cpp) and
// none else, and there are no graphs.
//
//===----------------------------------------------------------------------===//

#include "gpu.h"

#include "collectives.h"
#include "fused_attention.h"
#include "queries.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace grt::cuda {

namespace {
std::atomic<uint64_t> handles{0};
/// Distinct, never used as an address.
template <class Handle> Handle newHandle() {
  return reinterpret_cast<Handle>(++handles);
}
} // namespace

namespace gpu {

int count() { return 1; }
void choose(int number) {
  if (number != 0)
    throw DeviceError("the emulated device is number 0");
}
std::string identity() { return "the emulated device"; }

void use() {}

void *allocate(uint64_t bytes) {
  return std::aligned_alloc(256, (bytes + 256) / 256 * 256);
}
void release(void *memory) { std::free(memory); }
void *mapArena(const grt_arena &) {
  throw DeviceError("the emulated device maps no windows");
}
void unmapArena(void *, const grt_arena &) {}
void *allocateHost(uint64_t bytes) { return allocate(bytes); }
void releaseHost(void *memory) { release(memory); }
void *addressOnDevice(void *hostMemory) { return hostMemory; }
uint64_t bytesInUse() { return 0; }
uint64_t cacheBytes() { return 0; }
/// The size is so small that only a part of the longer rows of tests is kept.
uint64_t sharedBytes() { return 12 << 10; }
bool multipliesInGroups() { return false; }
std::string deviceKind() { return "the host"; }

Stream makeStream(bool) { return newHandle<Stream>(); }
void destroyStream(Stream) {}
void synchronise(Stream) {}
void fill(Stream, void *to, int byte, uint64_t bytes) {
  std::memset(to, byte, bytes);
}
void copy(Stream, void *to, const void *from, uint64_t bytes) {
  // Buffers overlap where a call is only tried, before the first step.
  std::memmove(to, from, bytes);
}

Event makeEvent(bool) { return newHandle<Event>(); }
void destroyEvent(Event) {}
void record(Stream, Event) {}
void recordForHost(Stream, Event) {}
void await(Event) {}
void wait(Stream, Event) {}
bool isDone(Event) { return true; }
double millisecondsBetween(Event, Event) { return 0; }

void pinHost(void *, uint64_t) {}
void unpinHost(void *) {}

bool hasGraphs() { return false; }
void beginCapture(Stream) {
  throw DeviceError("the emulated device has no graphs");
}
Graph endCapture(Stream) { return nullptr; }
void dropCapture(Stream) {}
bool isCapturing(Stream) { return false; }
void launchGraph(Graph, Stream) {}
void destroyGraph(Graph) {}

} // namespace gpu

std::unique_ptr<FusedAttention> openFusedAttention() { return nullptr; }
const grt_device_collectives *processCollectives() { return nullptr; }

} // namespace grt::cuda
