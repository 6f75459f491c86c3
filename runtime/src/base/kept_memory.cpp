//===- kept_memory.cpp - Memory that is never given back ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/kept_memory.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace grt {
namespace {

struct Kept {
  std::mutex mutex;
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
  uint64_t bytes = 0;
};

/// Lives as long as the process, behind the last owner.
Kept &kept() {
  static Kept &all = *new Kept;
  return all;
}

} // namespace

void keepMemory(const void *begin, uint64_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(begin);
  std::lock_guard<std::mutex> lock(kept().mutex);
  kept().ranges.push_back({first, first + bytes});
  kept().bytes += bytes;
}

bool isKept(const void *begin, uint64_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(begin);
  std::lock_guard<std::mutex> lock(kept().mutex);
  return std::ranges::any_of(kept().ranges, [&](const auto &range) {
    return range.first < first + bytes && first < range.second;
  });
}

uint64_t keptMemoryBytes() {
  std::lock_guard<std::mutex> lock(kept().mutex);
  return kept().bytes;
}

} // namespace grt
