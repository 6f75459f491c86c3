//===- masked.h - Dropout of a pack ---------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_MASKED_H
#define GRT_BACKENDS_CUDA_MASKED_H

#include "elements.h"
#include "kernels.h"

namespace grt::cuda {

/// What a thread needs to drop elements. Philox gives four numbers for about 80
/// integer operations, 20 an element.
template <class T> struct Mask {
  DropoutArguments arguments;
  uint32_t threshold;
  Accumulator<T> keptScale;

  explicit Mask(const DropoutArguments &arguments)
      : arguments(arguments), threshold(dropoutThreshold(arguments.key.p)),
        keptScale(Accumulator<T>(1 / (1 - arguments.key.p))) {}

  /// value[e] = dropout(in[e]) of elements i + e; they lie in one row.
  template <int N>
  __device__ void drop(int64_t i, const Pack<T, N> &in,
                       Accumulator<T> (&value)[N]) const {
    for (int e = 0; e < N; ++e)
      value[e] = wide(in.at[e]);
    const grt_step &step = *arguments.key.step;
    if (step.mode != GRT_MODE_TRAIN)
      return;
    PhiloxKey key = dropoutKey(step.seed, step.step, arguments.key.layer);
    Quotient place = divide(i, arguments.cols);
    uint64_t row = arguments.firstRow + uint64_t(place.quotient);
    uint64_t column = arguments.firstColumn + uint64_t(place.rest);
    PhiloxBlock block;
    for (int e = 0; e < N; ++e) {
      // The first column may stand inside a block.
      if (e == 0 || (column + e) % 4 == 0)
        block = dropoutBlock(key, row, uint32_t((column + e) / 4),
                             arguments.key.opIndex);
      bool kept = laneOf(block, uint32_t(column + e)) >= threshold;
      value[e] = kept ? value[e] * keptScale : Accumulator<T>(0);
    }
  }
};

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_MASKED_H
