//===- stream_order.cpp - What streams of a layer function share ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/stream_order.h"
#include "grt/axes.h"

#include <algorithm>

namespace galvatron::streams {
namespace {

bool overlap(const ByteUse &a, const ByteUse &b) {
  return a.memory == b.memory && a.begin < b.end && b.begin < a.end;
}

/// True if collectives along two axes have one order; -1 is none.
bool shareRanks(int one, int other) {
  return one >= 0 && other >= 0 &&
         grt::axesShareRanks(uint32_t(one), uint32_t(other));
}

bool conflict(const Operation &a, const Operation &b) {
  if (shareRanks(a.axis, b.axis))
    return true;
  for (const ByteUse &first : a.uses)
    for (const ByteUse &second : b.uses)
      if ((first.writes || second.writes) && overlap(first, second))
        return true;
  return false;
}

Positions nothing() {
  Positions positions;
  positions.fill(-1);
  return positions;
}

} // namespace

std::vector<Positions> findNeeds(const std::vector<Operation> &operations) {
  std::vector<Positions> needs(operations.size(), nothing());
  // The operation that waiting for each one comes down to.
  std::vector<int> standsFor = {0};
  int work = 0;
  Positions last = nothing();
  last[0] = 0;
  for (size_t number = 1; number < operations.size(); ++number) {
    const Operation &op = operations[number];
    for (size_t other = 0; other < kStreams; ++other) {
      if (other == op.stream)
        continue;
      if (op.kind == Operation::Kind::Return) {
        needs[number][other] = last[other];
        continue;
      }
      for (size_t before = number; last[other] >= 0 && before-- > 0;)
        if (operations[before].stream == other &&
            conflict(operations[before], op)) {
          needs[number][other] = standsFor[before];
          break;
        }
    }
    // The start: number 0, on stream 0.
    if (last[op.stream] < 0)
      needs[number][0] = std::max(needs[number][0], 0);
    last[op.stream] = int(number);
    // A begin runs nothing: the memory is free once what stands before it on
    // its stream has ended, for which that has waited if it had to.
    const bool begins = op.kind == Operation::Kind::Begin;
    standsFor.push_back(begins ? work : int(number));
    if (op.stream == 0 && !begins)
      work = int(number);
  }
  return needs;
}

Progress::Progress() {
  known.fill(nothing());
  // The function's start.
  run(0, 0);
}

void Progress::wait(size_t stream, const Positions &positions) {
  for (size_t other = 0; other < kStreams; ++other)
    known[stream][other] = std::max(known[stream][other], positions[other]);
}

std::optional<size_t> Progress::findMissing(size_t stream,
                                            const Positions &needs) const {
  for (size_t other = 0; other < kStreams; ++other)
    if (other != stream && needs[other] > known[stream][other])
      return other;
  return std::nullopt;
}

} // namespace galvatron::streams
