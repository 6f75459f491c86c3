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

/// The numbers that a kernel needs to drop elements.
template <class T> struct Mask {
  DropoutArguments arguments;
  uint32_t threshold;
  Accumulator<T> keptScale;

  explicit Mask(const DropoutArguments &arguments)
      : arguments(arguments), threshold(dropoutThreshold(arguments.key.p)),
        keptScale(Accumulator<T>(1 / (1 - arguments.key.p))) {}
};

/// The key of a step's masks. It takes some hundred instructions to make, so a
/// block makes it once.
struct StepKey {
  PhiloxKey key;
  bool drops;
};

/// Returns the step's key. All threads of a block call it, none of them twice
/// at a time.
__device__ inline StepKey stepKey(const DropoutKey &of) {
  __shared__ StepKey shared;
  if (threadIdx.x < warpSize_) {
    const grt_step &step = *of.step;
    StepKey made = {dropoutKey(step.seed, step.step, of.layer),
                    step.mode == GRT_MODE_TRAIN};
    if (threadIdx.x == 0)
      shared = made;
  }
  __syncthreads();
  return shared;
}

/// value[e] = dropout(value[e]) of columns column + e of a row, both counted
/// from 0. Philox gives four numbers for 40 multiplications and logical
/// operations: 10 an element where packs begin at multiples of four columns,
/// which they do unless a shard begins elsewhere.
template <int N, class T>
__device__ void drop(const Mask<T> &mask, const StepKey &step, int64_t row,
                     int64_t column, Accumulator<T> (&value)[N]) {
  using A = Accumulator<T>;
  if (!step.drops)
    return;
  const uint64_t globalRow = mask.arguments.firstRow + uint64_t(row);
  const uint64_t global = mask.arguments.firstColumn + uint64_t(column);
  const uint32_t first = uint32_t(global / 4), shift = uint32_t(global % 4);
  auto block = [&](int b) {
    return dropoutBlock(step.key, globalRow, first + uint32_t(b),
                        mask.arguments.key.opIndex);
  };
  auto keep = [&](int e, uint32_t number) {
    value[e] = number >= mask.threshold ? value[e] * mask.keptScale : A(0);
  };
  if (N % 4 == 0 && shift == 0) {
#pragma unroll
    for (int b = 0; b < N / 4; ++b) {
      const PhiloxBlock numbers = block(b);
#pragma unroll
      for (int e = 0; e < 4 && b * 4 + e < N; ++e)
        keep(b * 4 + e, numbers.lane[e]);
    }
    return;
  }
  constexpr int blocks = (N + 6) / 4;
  uint32_t numbers[4 * blocks];
#pragma unroll
  for (int b = 0; b < blocks; ++b) {
    const PhiloxBlock four = block(b);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      numbers[4 * b + e] = four.lane[e];
  }
#pragma unroll
  for (int e = 0; e < N; ++e) {
    uint32_t number = numbers[e];
#pragma unroll
    for (int s = 1; s < 4; ++s)
      if (e + s < 4 * blocks && shift == uint32_t(s))
        number = numbers[e + s];
    keep(e, number);
  }
}

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_MASKED_H
