//===- windows.h - Where an arena with a window has its memory ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_WINDOWS_H
#define GRT_BACKENDS_CUDA_WINDOWS_H

#include "grt/backend.h"

#include <stdexcept>
#include <string>
#include <vector>

namespace grt::cuda {

/// A run of addresses with one piece of memory behind it; all with `window` set
/// share one.
struct MappedRange {
  uint64_t offset, bytes;
  bool window;
};

/// The ranges of an arena, ascending, without gaps; all begin and end at
/// multiples of `granule`, the end of the arena rounded up to one. Throws where
/// the window does not.
inline std::vector<MappedRange> mappedRanges(const grt_arena &arena,
                                             uint64_t granule) {
  if (arena.window_offset % granule || arena.window_bytes % granule ||
      arena.window_stride % granule)
    throw std::invalid_argument(
        "an arena's window must lie at multiples of " +
        std::to_string(granule) + " bytes, found offset " +
        std::to_string(arena.window_offset) + ", " +
        std::to_string(arena.window_bytes) + " bytes, stride " +
        std::to_string(arena.window_stride));
  uint64_t end = arena.bytes + (arena.window_count - 1) * arena.window_bytes;
  end = (end + granule - 1) / granule * granule;
  std::vector<MappedRange> ranges;
  uint64_t at = 0;
  auto add = [&](uint64_t to, bool window) {
    if (to > at)
      ranges.push_back({at, to - at, window});
    at = to;
  };
  for (uint64_t i = 0; i < arena.window_count; ++i) {
    add(arena.window_offset + i * arena.window_stride, false);
    add(at + arena.window_bytes, true);
  }
  add(end, false);
  return ranges;
}

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_WINDOWS_H
