//===- operations.cpp - Putting operations on a model's streams -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "operations.h"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace grt::recording {

namespace {

Memories allMemories;
uint64_t seed = 1;

} // namespace

Memories &memories() { return allMemories; }

uint64_t &nextSeed() { return seed; }

Allocation *Memories::allocationAt(const void *address) {
  auto next = allocations.upper_bound(static_cast<const char *>(address));
  if (next == allocations.begin())
    return nullptr;
  Allocation *found = std::prev(next)->second.get();
  return found->holds(address) ? found : nullptr;
}

std::unique_ptr<Operation> operation(Rank &rank, uint32_t stream,
                                     Operation::Kind kind, std::string what) {
  if (stream >= GRT_STREAM_COUNT)
    throw std::runtime_error("unknown stream " + std::to_string(stream));
  auto made = std::make_unique<Operation>();
  made->kind = kind;
  made->rank = &rank;
  made->stream = stream;
  made->label = std::make_shared<OperationLabel>();
  made->label->rank = rank.number;
  made->label->stream = stream;
  made->label->queue = rank.queueOf(stream);
  made->label->place = rank.place;
  made->label->what = std::move(what);
  made->host = rank.host;
  return made;
}

void put(std::unique_ptr<Operation> made) {
  Rank &rank = *made->rank;
  Stream &stream = rank.streams[made->stream];
  made->label->number = ++stream.issued;
  stream.last = made->label;
  if (rank.capturing) {
    rank.captured.push_back(std::move(made));
    return;
  }
  rank.world->put(*made);
  stream.queue.push_back(std::move(made));
  rank.world->changed.notify_all();
}

char *touch(Operation &made, const void *address, uint64_t bytes, bool writes) {
  Allocation *allocation = memories().allocationAt(address);
  const char *begin = static_cast<const char *>(address);
  if (bytes == 0)
    return allocation ? allocation->memory(allocation->offset(address))
                      : nullptr;
  auto wrong = [&](const std::string &where) {
    throw std::runtime_error(
        made.label->text() + (writes ? " writes " : " reads ") +
        std::to_string(bytes) + " bytes" +
        (allocation
             ? " from byte " + std::to_string(allocation->offset(address)) +
                   " of its arena"
             : "") +
        ", " + where);
  };
  if (!allocation ||
      bytes > allocation->addressBytes() - allocation->offset(address))
    wrong("outside the device's memory");
  Rank &rank = *made.rank;
  if (rank.tracksLives && !rank.isAlive(begin, begin + bytes))
    wrong("not within one buffer that is alive");
  uint64_t offset = allocation->offset(address);
  rank.used.insert(allocation);
  made.touches.push_back({allocation, offset, offset + bytes, writes});
  return allocation->memory(offset);
}

char *touchEither(Operation &made, const void *address, uint64_t bytes,
                  bool writes, bool mayBePageable) {
  HostRanges &host = memories().host;
  if (memories().allocationAt(address))
    return touch(made, address, bytes, writes);
  auto [begin, home] = host.homeAt(address, bytes);
  if (!host.isPinned(address, bytes) &&
      (!mayBePageable || !home || host.anyPinned(address, bytes)))
    throw std::runtime_error(
        made.label->text() + " names " + std::to_string(bytes) +
        " bytes of the host that are not pinned" + (home ? " as one" : ""));
  if (home) {
    auto at = uint64_t(static_cast<const char *>(address) - begin);
    made.touches.push_back({nullptr, at, at + bytes, writes, home});
  }
  return static_cast<char *>(const_cast<void *>(address));
}

int32_t synchronise(void *state, uint32_t stream, char *message,
                    size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &lock, Rank &rank) {
    if (rank.capturing)
      throw std::runtime_error("the host waits while a graph is made");
    rank.world->drain(lock, rank, stream);
  });
}

} // namespace grt::recording
