//===- home.h - Memory of the host that states live in ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_HOME_H
#define GRT_CORE_HOME_H

#include "grt/backend.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace grt {

/// Where states have their home on the host: one allocation of a rank. What a
/// device copies of it is pinned, as far as the machine allows; copies of the
/// rest are slower.
class HomeMemory {
public:
  /// Memory is pinned in pages of so many bytes.
  static constexpr uint64_t page = 4096;

  /// Throws Error with ExitMemory when there is none.
  HomeMemory(const grt_backend &backend, uint64_t bytes, int rank);
  ~HomeMemory();
  HomeMemory(const HomeMemory &) = delete;
  HomeMemory &operator=(const HomeMemory &) = delete;

  char *base() const { return memory; }
  uint64_t bytes() const { return size; }

  /// Pins a range of it or, if that is refused, the first half of it, the first
  /// quarter and so on. Ranges ascend. Nothing without a device.
  void pin(uint64_t offset, uint64_t bytes);
  /// Whether a range is pinned, and as one.
  bool isPinned(uint64_t offset, uint64_t bytes) const;
  /// Bytes that were to be pinned and are not.
  uint64_t pageableBytes() const { return pageable; }

  /// Calls `visit(offset, bytes)` for the pieces of a range that are pinned
  /// together, or not at all.
  template <typename Visit>
  void forPieces(uint64_t offset, uint64_t bytes, Visit visit) const {
    const uint64_t end = offset + bytes;
    while (offset < end) {
      uint64_t next = end;
      for (const Range &range : pinned)
        for (uint64_t edge : {range.begin, range.end})
          if (edge > offset)
            next = std::min(next, edge);
      visit(offset, next - offset);
      offset = next;
    }
  }

private:
  struct Range {
    uint64_t begin, end;
  };
  bool pinNow(Range range);

  const grt_backend &backend;
  char *memory = nullptr;
  uint64_t size, pageable = 0, wantedUpTo = 0;
  std::vector<Range> pinned; ///< ascending
};

} // namespace grt

#endif // GRT_CORE_HOME_H
