//===- cuda_bounds.h - What the CUDA backend asks of memory ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Pure functions and constants, shared by the backend and the compiler: plans
// are made where there is no device. Plain C.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CUDA_BOUNDS_H
#define GRT_CUDA_BOUNDS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Memory is mapped in multiples of this many bytes.
#define GRT_CUDA_GRANULE (UINT64_C(2) << 20)

/// Workspace of the library that computes products (cuBLASLt), per rank. No
/// algorithm that wants more is taken.
#define GRT_CUDA_WORKSPACE (UINT64_C(32) << 20)

/// Bytes of `scratch` of ATTENTION and, with `backward`, ATTENTION_GRAD for
/// these shapes; heads are local. Forward needs nothing but a valid buffer.
/// Backward: for every query of every head the sum over its gradient times its
/// output, in the accumulator type; where elements have 16 bits, room for the
/// sums of the queries' gradients too.
static inline uint64_t grt_cuda_attention_scratch_bytes(
    int64_t samples, int64_t tq, int64_t tk, int64_t heads, int64_t kv_heads,
    int64_t head_dim, uint32_t element_bytes, int backward) {
  (void)tk;
  (void)kv_heads;
  if (!backward)
    return 64;
  uint64_t queries = (uint64_t)samples * (uint64_t)heads * (uint64_t)tq;
  uint64_t accumulator = element_bytes < 4 ? 4 : element_bytes;
  uint64_t values = element_bytes == 2 ? 1 + (uint64_t)head_dim : 1;
  return (queries * values * accumulator + 255) / 256 * 256;
}

/// Bytes that BIASED_ATTENTION_GRAD needs behind that: the sums of every head's
/// distances, if elements have 16 bits.
static inline uint64_t grt_cuda_bias_scratch_bytes(int64_t samples, int64_t tq,
                                                   int64_t tk, int64_t heads,
                                                   uint32_t element_bytes,
                                                   int backward) {
  if (!backward || element_bytes != 2)
    return 0;
  return (uint64_t)samples * (uint64_t)heads * (uint64_t)(tq + tk) * 4;
}

/// The gradient of the table of WINDOW_ATTENTION is summed in so many parts of
/// the windows, as far as there are windows.
#define GRT_CUDA_WINDOW_PARTS 64

/// Bytes of `scratch` of WINDOW_ATTENTION and, with `backward`, its gradient.
/// Backward: for every query of every head the sum over its gradient times its
/// output, and the sums of every part. `windows` counts those of all samples.
static inline uint64_t
grt_cuda_window_scratch_bytes(int64_t windows, int64_t window, int64_t heads,
                              uint32_t element_bytes, int backward) {
  if (!backward)
    return 64;
  uint64_t side = 2 * (uint64_t)window - 1, count = (uint64_t)windows;
  uint64_t parts =
      count < GRT_CUDA_WINDOW_PARTS ? count : GRT_CUDA_WINDOW_PARTS;
  uint64_t values = count * (uint64_t)(window * window) + parts * side * side;
  return (values * (uint64_t)heads * (element_bytes < 4 ? 4 : element_bytes) +
          255) /
         256 * 256;
}

#ifdef __cplusplus
}
#endif

#endif // GRT_CUDA_BOUNDS_H
