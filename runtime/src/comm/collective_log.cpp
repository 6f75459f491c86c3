//===- collective_log.cpp - Which collectives a rank has called -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/collective_log.h"
#include "base/allocation.h"
#include "grt/abi.h"

#include <algorithm>

namespace grt {
namespace {

template <typename T, typename V>
void storeRelaxed(std::atomic<T> &to, V value) {
  to.store(T(value), std::memory_order_relaxed);
}
template <typename T> T loadRelaxed(const std::atomic<T> &from) {
  return from.load(std::memory_order_relaxed);
}

} // namespace

int CollectiveLog::add(const void *key, const char *name,
                       std::span<const int> members) {
  const size_t number = loadRelaxed(count);
  if (number == mostCommunicators)
    return -1;
  // The log's memory is not memory that a plan has to count.
  UncountedAllocations uncounted;
  auto slot = std::make_unique<Slot>();
  slot->key = key;
  slot->name = name;
  slot->members = RankList(members);
  if (!key) {
    slot->from = members[0];
    slot->to = members[1];
  }
  slots[number] = std::move(slot);
  count.store(number + 1, std::memory_order_release);
  return int(number);
}

int CollectiveLog::communicator(const void *key, const char *name,
                                std::span<const int> members) {
  const size_t known = loadRelaxed(count);
  for (size_t i = 0; i < known; ++i)
    if (slots[i]->key == key)
      return int(i);
  return add(key, name, members);
}

int CollectiveLog::channel(int from, int to) {
  const size_t known = loadRelaxed(count);
  for (size_t i = 0; i < known; ++i)
    if (!slots[i]->key && slots[i]->from == from && slots[i]->to == to)
      return int(i);
  const int members[] = {from, to};
  return add(nullptr, "", members);
}

void CollectiveLog::enqueue(int communicator, CollectiveKind kind,
                            uint64_t bytes, uint32_t stream, uint64_t operation,
                            bool onDevice) {
  if (communicator < 0)
    return;
  if (capturing) {
    UncountedAllocations uncounted;
    capturing->push_back({communicator, kind, bytes});
    return;
  }
  push(communicator, kind, bytes, stream, operation, onDevice,
       /*inGraph=*/false);
}

void CollectiveLog::push(int communicator, CollectiveKind kind, uint64_t bytes,
                         uint32_t stream, uint64_t operation, bool onDevice,
                         bool inGraph) {
  Slot &slot = *slots[communicator];
  const uint64_t number = loadRelaxed(slot.enqueued) + 1;
  Entry &entry = slot.calls[number % mostCalls];
  entry.number.store(0, std::memory_order_release);
  storeRelaxed(entry.order, ++order);
  storeRelaxed(entry.bytes, bytes);
  storeRelaxed(entry.operation, operation);
  storeRelaxed(entry.kind, kind);
  storeRelaxed(entry.stream, stream);
  storeRelaxed(entry.inGraph, inGraph);
  storeRelaxed(entry.onDevice, onDevice);
  entry.number.store(number, std::memory_order_release);
  slot.enqueued.store(number, std::memory_order_release);
}

void CollectiveLog::finish(int communicator) {
  if (communicator >= 0 && !capturing)
    storeRelaxed(slots[communicator]->done,
                 loadRelaxed(slots[communicator]->enqueued));
}

void CollectiveLog::beginGraph(uint32_t number) {
  UncountedAllocations uncounted;
  if (graphs.size() <= number)
    graphs.resize(number + 1);
  capturing = &graphs[number];
  capturing->clear();
}

void CollectiveLog::start(uint32_t number, uint64_t operation) {
  if (number < graphs.size())
    for (const Captured &call : graphs[number])
      push(call.communicator, call.kind, call.bytes, GRT_STREAM_COMPUTE,
           operation, /*onDevice=*/true, /*inGraph=*/true);
}

std::vector<CommunicatorState>
CollectiveLog::states(const DeviceDid &did) const {
  std::vector<CommunicatorState> states;
  const size_t known = count.load(std::memory_order_acquire);
  for (size_t i = 0; i < known; ++i) {
    const Slot &slot = *slots[i];
    CommunicatorState state;
    state.name = slot.name;
    state.members = slot.members;
    state.done = loadRelaxed(slot.done);
    state.enqueued = slot.enqueued.load(std::memory_order_acquire);
    uint64_t oldest = state.enqueued + 1;
    for (const Entry &entry : slot.calls) {
      const uint64_t number = entry.number.load(std::memory_order_acquire);
      CollectiveCall call{number,
                          loadRelaxed(entry.order),
                          CollectiveKind(loadRelaxed(entry.kind)),
                          loadRelaxed(entry.stream),
                          loadRelaxed(entry.inGraph),
                          loadRelaxed(entry.bytes)};
      const bool onDevice = loadRelaxed(entry.onDevice);
      const uint64_t operation = loadRelaxed(entry.operation);
      if (!number || number > state.enqueued ||
          entry.number.load(std::memory_order_acquire) != number)
        continue;
      oldest = std::min(oldest, number);
      if (!onDevice) {
        state.started = std::max(state.started, number);
      } else if (!did || did(call.stream, operation)) {
        state.done = std::max(state.done, number);
      } else if (did(call.stream, operation - 1)) {
        state.started = std::max(state.started, number);
      }
      state.calls.push_back(call);
    }
    // Calls that the ring has dropped are older than all that it has, so they
    // have ended.
    state.done = std::max(state.done, oldest - 1);
    state.started = std::max(state.started, state.done);
    std::sort(state.calls.begin(), state.calls.end(),
              [](const CollectiveCall &a, const CollectiveCall &b) {
                return a.number < b.number;
              });
    states.push_back(std::move(state));
  }
  return states;
}

} // namespace grt
