//===- types.h - Element types of the CUDA backend ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_TYPES_H
#define GRT_BACKENDS_CUDA_TYPES_H

#include <stdint.h>

namespace grt::cuda {

/// The bits of a bfloat16: the upper half of an f32. Stored and loaded, never
/// computed with.
struct BF16 {
  uint16_t bits;
};

template <class T> struct AccumulatorOf {
  using Type = T;
};
template <> struct AccumulatorOf<BF16> {
  using Type = float;
};
/// The type of statistics, gradients and optimizer state for compute type T,
/// and the one that kernels compute in.
template <class T> using Accumulator = typename AccumulatorOf<T>::Type;

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_TYPES_H
