//===- blocks.cpp - Blocks of all-to-all and shift ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/blocks.h"

namespace grt {
namespace {

void checkApart(const char *what, const void *in, uint64_t inBytes,
                const void *out, uint64_t outBytes) {
  const auto from = uint64_t(reinterpret_cast<uintptr_t>(in));
  const auto to = uint64_t(reinterpret_cast<uintptr_t>(out));
  if (inBytes && outBytes && from < to + outBytes && to < from + inBytes)
    fail(std::string(what) + ": expected an input and an output that do not " +
         "overlap, found " + str(inBytes) + " and " + str(outBytes) +
         " bytes that begin " + str(from < to ? to - from : from - to) +
         " bytes apart");
}

/// The units of one side, none of which is more than `most`.
uint64_t sumOf(const char *side, std::span<const uint64_t> counts,
               size_t members, uint64_t most, uint64_t bytesPerUnit) {
  if (counts.size() != members)
    fail("all-to-all: expected " + str(members) + " counts of units " + side +
         ", one for each member, found " + str(counts.size()));
  uint64_t sum = 0;
  for (uint64_t count : counts) {
    if (count > most - sum)
      fail(std::string("all-to-all: expected at most ") + str(most) +
           " units " + side + ", found " + str(count) + " behind " + str(sum));
    sum += count;
  }
  if (bytesPerUnit && sum > UINT64_MAX / bytesPerUnit)
    fail("all-to-all: expected bytes below 2^64, found " + str(sum) +
         " units of " + str(bytesPerUnit));
  return sum;
}

} // namespace

void checkBlocks(const Group &group, const void *in, const void *out,
                 uint64_t bytes) {
  const auto members = uint64_t(group.size());
  if (bytes > UINT64_MAX / members)
    fail("all-to-all: expected bytes below 2^64, found " + str(members) +
         " blocks of " + str(bytes));
  checkApart("all-to-all", in, members * bytes, out, members * bytes);
}

void checkBlocks(const Group &group, int index, const void *in, const void *out,
                 const BlockCounts &counts) {
  const uint64_t unit = counts.bytesPerUnit, members = uint64_t(group.size());
  const uint64_t sent =
      sumOf("sent", counts.sends, members, counts.mostSent, unit);
  const uint64_t received =
      sumOf("received", counts.receives, members, counts.mostReceived, unit);
  const auto self = size_t(index);
  if (counts.sends[self] != counts.receives[self])
    fail("all-to-all: expected as many units received as sent where a member "
         "is its own, found " +
         str(counts.receives[self]) + " and " + str(counts.sends[self]));
  checkApart("all-to-all", in, sent * unit, out, received * unit);
}

void checkShift(const void *in, const void *out, uint64_t bytes) {
  checkApart("shift", in, bytes, out, bytes);
}

} // namespace grt
