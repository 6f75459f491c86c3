//===- PassTimes.h - What the passes of a chunk take ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SCHEDULE_PASSTIMES_H
#define GALVATRON_SCHEDULE_PASSTIMES_H

#include <cstdint>
#include <tuple>

namespace galvatron {

/// The times of the passes of a micro-batch, in any unit that is the same for
/// all chunks.
struct PassTimes {
  int64_t forward = 1, input = 1, weight = 1;
  /// The time of its output to the next chunk, and of the gradient back.
  int64_t message = 0;

  /// The largest time, so that sums over all passes of a step stay far from
  /// what 64 bits hold.
  static constexpr int64_t kMost = 1 << 20;

  bool operator==(const PassTimes &other) const = default;
  bool operator<(const PassTimes &other) const {
    return std::tie(forward, input, weight, message) <
           std::tie(other.forward, other.input, other.weight, other.message);
  }
};

} // namespace galvatron

#endif // GALVATRON_SCHEDULE_PASSTIMES_H
