//===- Cancellation.cpp - When long work is to end ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/Cancellation.h"

#include <algorithm>

namespace galvatron {

void Cancellation::setSeconds(double seconds) {
  // Beyond thirty years the clock's range would be left.
  constexpr double longest = 1e9;
  deadline = (now ? now() : Clock::now()) +
             std::chrono::duration_cast<Clock::duration>(
                 std::chrono::duration<double>(std::min(seconds, longest)));
}

bool Cancellation::requested() const {
  return interrupted() ||
         (deadline && (now ? now() : Clock::now()) >= *deadline);
}

} // namespace galvatron
