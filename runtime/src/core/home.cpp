//===- home.cpp - Memory of the host that states live in ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/home.h"
#include "base/error.h"

#include <cstdlib>

namespace grt {
namespace {

uint64_t pagesUp(uint64_t bytes) {
  constexpr uint64_t page = HomeMemory::page;
  return (bytes + page - 1) / page * page;
}

} // namespace

HomeMemory::HomeMemory(const grt_backend &backend, uint64_t bytes, int rank)
    : backend(backend), size(bytes) {
  memory = static_cast<char *>(std::aligned_alloc(page, pagesUp(bytes)));
  if (!memory)
    throw Error(ExitMemory, "rank " + std::to_string(rank) + ": no memory of " +
                                std::to_string(bytes) +
                                " bytes for states on the host");
}

HomeMemory::~HomeMemory() {
  for (const Range &range : pinned)
    backend.device->unpin_host(memory + range.begin, range.end - range.begin);
  std::free(memory);
}

bool HomeMemory::pinNow(Range range) {
  char message[256] = "";
  if (!backend.device->pin_host ||
      backend.device->pin_host(memory + range.begin, range.end - range.begin,
                               message, sizeof(message)) != 0)
    return false;
  pinned.push_back(range);
  return true;
}

bool HomeMemory::isPinned(uint64_t offset, uint64_t bytes) const {
  return std::any_of(pinned.begin(), pinned.end(), [&](const Range &range) {
    return range.begin <= offset && offset + bytes <= range.end;
  });
}

void HomeMemory::pin(uint64_t offset, uint64_t bytes) {
  if (!backend.device || bytes == 0)
    return;
  // A page that two ranges have a part of is the first one's.
  Range wanted{std::max(offset / page * page, wantedUpTo),
               pagesUp(offset + bytes)};
  wantedUpTo = std::max(wantedUpTo, wanted.end);
  Range range = wanted;
  while (range.begin < range.end && !pinNow(range))
    range.end = range.begin + (range.end - range.begin) / 2 / page * page;
  if (wanted.begin < wanted.end)
    pageable += wanted.end - range.end;
}

} // namespace grt
