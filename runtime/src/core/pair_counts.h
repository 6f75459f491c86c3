//===- pair_counts.h - Counts of an all-to-all, read by the host ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Counts of units are values of the program: the host waits for them, and a
// graph cannot hold a call that depends on them.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_PAIR_COUNTS_H
#define GRT_CORE_PAIR_COUNTS_H

#include "base/error.h"
#include "comm/communicator.h"
#include "core/device.h"

#include <vector>

namespace grt {

/// The counts of one call of GRT_ALL_TO_ALL_COUNTS at a time.
class PairCounts {
public:
  /// Nothing is taken from the heap for groups of at most so many members.
  void reserve(uint64_t members) {
    if (members * members > pairs.size()) {
      pairs.resize(members * members);
      sends.resize(members);
      receives.resize(members);
    }
  }
  /// Reads the matrix at `from` and returns what member `index` sends and
  /// receives; valid until the next call. Throws Error where a count is
  /// negative; those that are too large are refused by the collective.
  BlockCounts read(Device &device, const char *from,
                   const grt_collective_op &op, uint64_t members,
                   size_t index) {
    reserve(members);
    device.download(pairs.data(), from, members * members * sizeof(int32_t));
    for (size_t i = 0; i < members; ++i) {
      sends[i] = countAt(members, index, i);
      receives[i] = countAt(members, i, index);
    }
    return {{sends.data(), members},
            {receives.data(), members},
            op.unit_bytes,
            op.in.bytes / op.unit_bytes,
            op.out.bytes / op.unit_bytes};
  }

private:
  uint64_t countAt(uint64_t members, size_t from, size_t to) const {
    const int32_t count = pairs[from * members + to];
    if (count < 0)
      fail("expected counts from 0 on, found " + str(count) + " of member " +
           str(from) + " for member " + str(to));
    return uint64_t(count);
  }

  std::vector<int32_t> pairs;
  std::vector<uint64_t> sends, receives;
};

} // namespace grt

#endif // GRT_CORE_PAIR_COUNTS_H
