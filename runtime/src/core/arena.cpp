//===- arena.cpp - A rank's memory and what of it is live -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/arena.h"
#include "base/error.h"
#include "base/kept_memory.h"

#include <algorithm>

namespace grt {

std::string whyNot(const grt_backend &backend) {
  const char *reason = backend.failure ? backend.failure() : nullptr;
  return reason && *reason ? std::string(": ") + reason : std::string();
}

Arena::Arena(const grt_backend &backend, const grt_arena &shape, int rank)
    : backend(backend), shape(shape) {
  std::string who = "rank " + std::to_string(rank);
  if (shape.window_bytes && !backend.map_arena)
    fail(who + ": backend '" + backend.name +
         "' cannot share one region for temporaries between the " +
         std::to_string(shape.window_count) + " slots of the program");
  memory =
      static_cast<char *>(shape.window_bytes ? backend.map_arena(&shape)
                                             : backend.allocate(shape.bytes));
  if (!memory)
    fail(ExitMemory, who + ": cannot allocate an arena of " +
                         std::to_string(shape.bytes) + " bytes" +
                         whyNot(backend));
}

Arena::~Arena() {
  // With a window the same memory is at several addresses.
  const uint64_t more = shape.window_count > 1
                            ? (shape.window_count - 1) * shape.window_stride
                            : 0;
  if (isKept(memory, shape.bytes + more))
    return;
  if (shape.window_bytes)
    backend.unmap_arena(memory, &shape);
  else
    backend.release(memory, shape.bytes);
}

template <typename Visit> void LiveSet::forUncovered(Range range, Visit visit) {
  scratch.clear();
  for (const Range &other : ranges)
    if (other.begin < range.end && range.begin < other.end)
      scratch.push_back(other);
  std::sort(scratch.begin(), scratch.end(),
            [](const Range &a, const Range &b) { return a.begin < b.begin; });
  uint64_t at = range.begin;
  for (const Range &other : scratch) {
    if (other.begin > at)
      visit(at, other.begin);
    at = std::max(at, other.end);
  }
  if (at < range.end)
    visit(at, range.end);
}

void LiveSet::begin(uint64_t offset, uint64_t bytes) {
  Range range{offset, offset + bytes};
  forUncovered(range, [&](uint64_t from, uint64_t to) { live += to - from; });
  ranges.push_back(range);
  peak = std::max(peak, live);
}

bool LiveSet::end(uint64_t offset, uint64_t bytes, const Dead &dead) {
  // The youngest such range: lifetimes nest more often than not.
  auto it = std::find_if(ranges.rbegin(), ranges.rend(), [&](const Range &r) {
    return r.begin == offset && r.end == offset + bytes;
  });
  if (it == ranges.rend())
    return false;
  Range range = *it;
  ranges.erase(std::next(it).base());
  forUncovered(range, [&](uint64_t from, uint64_t to) {
    live -= to - from;
    if (dead)
      dead(from, to);
  });
  return true;
}

void LiveSet::rewind(size_t mark) {
  while (ranges.size() > mark) {
    Range range = ranges.back();
    ranges.pop_back();
    forUncovered(range, [&](uint64_t from, uint64_t to) { live -= to - from; });
  }
}

} // namespace grt
