//===- ScratchTest.cpp - Bytes that kernels get beside their operands -----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "grt/cpu_bounds.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <string>

using namespace mlir::grt;

namespace {

/// Scratch of attention is for as many threads as take part: one below so many
/// operations, from there on all, but none that has no unit of work.
TEST(Scratch, AttentionGetsAsMuchAsItsThreadsUse) {
  // Windows of 5x5 positions and heads of 8: 25 * 25 pairs each, of 4 * 8
  // operations forward and 10 * 8 backward.
  const KernelTarget target{"cpu", /*threads=*/16};
  const int64_t side = 5, headDim = 8, pairs = side * side * side * side;
  for (bool backward : {false, true}) {
    const int64_t each = (backward ? 10 : 4) * headDim * pairs;
    const int64_t last = (GRT_CPU_SERIAL_OPERATIONS - 1) / each;
    ASSERT_EQ(last * each, GRT_CPU_SERIAL_OPERATIONS - each) << "a boundary";
    for (int64_t windows : {last, last + 1}) {
      SCOPED_TRACE(std::to_string(windows) + (backward ? " back" : " forward"));
      // Forward a unit is a window, backward one of at most so many parts.
      const int64_t units =
          backward ? std::min<int64_t>(windows, GRT_CPU_WINDOW_PARTS) : windows;
      const int64_t threads =
          windows == last ? 1 : std::min(units, target.threads);
      const int64_t inWindows[] = {windows, 1, 1, side, 0, 1, headDim, 0};
      EXPECT_EQ(getAttentionScratchBytes(target,
                                         backward ? Kernel::WindowAttentionGrad
                                                  : Kernel::WindowAttention,
                                         inWindows, 4),
                int64_t(grt_cpu_window_scratch_bytes(windows, side, 1, headDim,
                                                     4, backward, threads)));
      // The same numbers as samples of one head.
      const int64_t tokens = side * side;
      const int64_t whole[] = {windows, tokens, tokens, 1, 1, headDim, 0};
      EXPECT_EQ(getAttentionScratchBytes(target,
                                         backward ? Kernel::AttentionGrad
                                                  : Kernel::Attention,
                                         whole, 4),
                (windows == last ? 1 : std::min(windows, target.threads)) *
                    int64_t(grt_cpu_attention_scratch_bytes(
                        tokens, tokens, headDim, 4, backward)));
    }
  }
}

} // namespace
