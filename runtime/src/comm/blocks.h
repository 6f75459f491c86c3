//===- blocks.h - Blocks of all-to-all and shift --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where blocks stand, and checks of arguments, shared by all communicators.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_BLOCKS_H
#define GRT_COMM_BLOCKS_H

#include "comm/communicator.h"

namespace grt {

/// Refuses blocks of an all-to-all whose bytes cannot be counted, or whose
/// input and output overlap.
void checkBlocks(const Group &group, const void *in, const void *out,
                 uint64_t bytes);
/// Refuses counts of member `index` that cannot be right: expects one for each
/// member, as many sent to itself as received, and no more in all than there is
/// memory for.
void checkBlocks(const Group &group, int index, const void *in, const void *out,
                 const BlockCounts &counts);
/// Refuses a shift whose input and output overlap.
void checkShift(const void *in, const void *out, uint64_t bytes);

/// The member `distance` behind `index` in a group of so many, around it.
inline int memberAt(int index, int64_t distance, int members) {
  const int64_t at = (index + distance % members) % members;
  return int(at < 0 ? at + members : at);
}

/// visit(member, byte where its block begins, bytes) for each block, in the
/// order of the members.
template <typename Visit>
void forBlocks(std::span<const uint64_t> counts, uint64_t bytesPerUnit,
               Visit visit) {
  uint64_t at = 0;
  for (size_t member = 0; member < counts.size(); ++member) {
    const uint64_t bytes = counts[member] * bytesPerUnit;
    visit(int(member), at, bytes);
    at += bytes;
  }
}

} // namespace grt

#endif // GRT_COMM_BLOCKS_H
