//===- arena.h - A rank's memory and what of it is live -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_ARENA_H
#define GRT_CORE_ARENA_H

#include "grt/backend.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace grt {

/// ": " and why the backend's last call on this thread gave null, if it says.
std::string whyNot(const grt_backend &backend);

/// The one allocation of a rank, from its backend. Its size is the plan's;
/// every access is checked against the pieces it is cut into.
class Arena {
public:
  Arena(const grt_backend &backend, const grt_arena &shape, int rank);
  ~Arena();
  Arena(const Arena &) = delete;
  Arena &operator=(const Arena &) = delete;

  char *base() const { return memory; }

private:
  const grt_backend &backend;
  grt_arena shape;
  char *memory;
};

/// Every byte of memory that nobody should read: a NaN in every floating-point
/// type, -1 as an integer.
inline constexpr int poisonByte = 0xff;

/// The set of live byte ranges of an arena. Ranges may overlap (a buffer that
/// is written in place); a byte counts once. Never allocates below what was
/// reserved.
class LiveSet {
public:
  void reserve(size_t count) {
    ranges.reserve(count);
    scratch.reserve(count);
  }
  void begin(uint64_t offset, uint64_t bytes);
  /// Ends a range that was begun with the same bounds; `dead(from, to)` gets
  /// the bytes that no other range covers. False if there is none.
  using Dead = std::function<void(uint64_t, uint64_t)>;
  bool end(uint64_t offset, uint64_t bytes, const Dead &dead = {});

  /// Calls `visit(offset, bytes)` for the ranges within these bounds, as they
  /// were begun.
  template <typename Visit>
  void forWithin(uint64_t from, uint64_t to, Visit visit) const {
    for (const Range &range : ranges)
      if (range.begin >= from && range.end <= to)
        visit(range.begin, range.end - range.begin);
  }

  uint64_t liveBytes() const { return live; }
  uint64_t peakBytes() const { return peak; }

  /// Ranges begun after `mark` can be dropped together.
  size_t mark() const { return ranges.size(); }
  void rewind(size_t mark);

private:
  struct Range {
    uint64_t begin, end;
  };
  /// Calls `visit(begin, end)` for the pieces of a range that none of `ranges`
  /// covers.
  template <typename Visit> void forUncovered(Range range, Visit visit);

  std::vector<Range> ranges, scratch;
  uint64_t live = 0, peak = 0;
};

} // namespace grt

#endif // GRT_CORE_ARENA_H
