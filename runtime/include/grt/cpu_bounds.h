//===- cpu_bounds.h - What the CPU backend asks of memory -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Pure functions and constants, shared by the backend and the compiler. Plain
// C.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CPU_BOUNDS_H
#define GRT_CPU_BOUNDS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Products and attention of fewer operations than this are one thread's on the
/// CPU backend: waking the others takes longer.
#define GRT_CPU_SERIAL_OPERATIONS 500000

/// Host function of the CPU backend: scratch bytes that one thread needs in
/// ATTENTION and ATTENTION_GRAD of these shapes. Pure, callable by the
/// compiler.
static inline uint64_t grt_cpu_attention_scratch_bytes(int64_t tq, int64_t tk,
                                                       int64_t head_dim,
                                                       uint32_t element_bytes,
                                                       int backward) {
  // Tiles of 64 queries by 64 keys in the accumulator type, whatever the length
  // of the sequence. Forward: the queries transposed and one tile of scores.
  // Backward: the same for the gradient of the output. Where elements are
  // narrower than the accumulator type also tiles of widened rows and of sums,
  // and, backward, the sums of one head's keys and values.
  (void)tq;
  uint64_t accumulator = element_bytes < 4 ? 4 : element_bytes;
  uint64_t panel = 64ull * (uint64_t)head_dim;
  uint64_t elements = panel + 64ull * 64ull;
  if (backward)
    elements *= 2;
  if (element_bytes < 4)
    elements += backward ? 5 * panel + 2ull * (uint64_t)tk * (uint64_t)head_dim
                         : 3 * panel;
  return elements * accumulator;
}

/// Bytes that a thread needs besides in BIASED_ATTENTION_GRAD: the sums of one
/// head's distances, if elements are narrower than the accumulator type.
static inline uint64_t grt_cpu_bias_scratch_bytes(int64_t tq, int64_t tk,
                                                  uint32_t element_bytes,
                                                  int backward) {
  if (!backward || element_bytes >= 4)
    return 0;
  return (uint64_t)(tq + tk) * 4;
}

/// The gradient of the table of WINDOW_ATTENTION is summed in so many parts of
/// the windows, as far as there are windows: threads share them out.
#define GRT_CPU_WINDOW_PARTS 8

/// Bytes that a thread needs in WINDOW_ATTENTION and its gradient: as in
/// ATTENTION, and the table's column of one head.
static inline uint64_t grt_cpu_window_thread_bytes(int64_t window,
                                                   int64_t head_dim,
                                                   uint32_t element_bytes,
                                                   int backward) {
  uint64_t side = 2 * (uint64_t)window - 1;
  return grt_cpu_attention_scratch_bytes(window * window, window * window,
                                         head_dim, element_bytes, backward) +
         side * side * (element_bytes < 4 ? 4 : element_bytes);
}

/// Bytes that WINDOW_ATTENTION_GRAD needs in front of that for all threads
/// together: the sums of every part. `windows` counts those of all samples.
static inline uint64_t grt_cpu_window_sums_bytes(int64_t windows,
                                                 int64_t window, int64_t heads,
                                                 uint32_t element_bytes) {
  uint64_t side = 2 * (uint64_t)window - 1;
  uint64_t parts =
      (uint64_t)(windows < GRT_CPU_WINDOW_PARTS ? windows
                                                : GRT_CPU_WINDOW_PARTS);
  uint64_t bytes = parts * (uint64_t)heads * side * side *
                   (element_bytes < 4 ? 4 : element_bytes);
  return (bytes + 63) / 64 * 64;
}

/// Scratch of WINDOW_ATTENTION and, with `backward`, its gradient for so many
/// threads.
static inline uint64_t
grt_cpu_window_scratch_bytes(int64_t windows, int64_t window, int64_t heads,
                             int64_t head_dim, uint32_t element_bytes,
                             int backward, int64_t threads) {
  return (backward
              ? grt_cpu_window_sums_bytes(windows, window, heads, element_bytes)
              : 0) +
         (uint64_t)threads * grt_cpu_window_thread_bytes(
                                 window, head_dim, element_bytes, backward);
}

/// Rows and depth of the blocks in which the CPU backend's own products pack
/// their operands; the bytes of a row of a block of op(b), at least, and enough
/// for nearly their full speed.
#define GRT_CPU_GEMM_ROWS 96
#define GRT_CPU_GEMM_DEPTH 256
#define GRT_CPU_GEMM_LEAST_BYTES_OF_ROW 256
#define GRT_CPU_GEMM_BYTES_OF_ROW 1024

/// Bytes that one thread of the CPU backend's own code packs at once of a
/// product of M x N x K: a block of op(b) of as many columns as fill
/// `bytes_of_row`, one of op(a), and sums if c is narrower than the accumulator
/// type.
static inline uint64_t grt_cpu_gemm_pack_bytes(int64_t m, int64_t n, int64_t k,
                                               uint32_t accumulator_bytes,
                                               int narrow_result,
                                               uint64_t bytes_of_row) {
  uint64_t least = GRT_CPU_GEMM_LEAST_BYTES_OF_ROW;
  uint64_t depth = k < GRT_CPU_GEMM_DEPTH ? (uint64_t)k : GRT_CPU_GEMM_DEPTH;
  uint64_t rows =
      m < GRT_CPU_GEMM_ROWS ? ((uint64_t)m + 5) / 6 * 6 : GRT_CPU_GEMM_ROWS;
  uint64_t row = ((uint64_t)n * accumulator_bytes + least - 1) / least * least;
  if (row > bytes_of_row)
    row = bytes_of_row;
  return ((depth + (narrow_result ? rows : 0)) * row +
          (depth + 1) * rows * accumulator_bytes + 63) /
         64 * 64;
}

/// Scratch bytes of a GEMM on the CPU backend with so many threads. Pure,
/// callable by the compiler. What the backend's own code packs, and no less
/// than what oneDNN's primitives were seen to ask for on the shapes of
/// transformers (its scratchpad is no documented function of the shape: a
/// product that would want more takes fewer threads or the backend's own code).
static inline uint64_t
grt_cpu_gemm_scratch_bytes(int64_t m, int64_t n, int64_t k, int trans_a,
                           int trans_b, int acc, uint32_t element_bytes,
                           uint32_t result_bytes, int64_t threads) {
  uint32_t accumulator = element_bytes < 4 ? 4 : element_bytes;
  if (m <= 0 || n <= 0)
    return 0;
  if (k < 0)
    k = 0;
  // Packing a transposed takes longer: it should serve more columns.
  uint64_t own =
      grt_cpu_gemm_pack_bytes(m, n, k, accumulator, result_bytes < accumulator,
                              (trans_a ? 2 : 1) * GRT_CPU_GEMM_BYTES_OF_ROW);
  uint64_t library = 0;
  if (element_bytes < 8) {
    // Blocks of b are copied where its rows cannot be read as they lie, blocks
    // of a where it is transposed, and sums of a part of k have their own
    // place.
    int narrow = element_bytes == 2, odd = narrow && k % 32 != 0;
    uint64_t rows = m < 256 ? (uint64_t)m : 256;
    uint64_t columns = n < 1024 ? (uint64_t)n : 1024;
    uint64_t reach = narrow ? 4096 : 1024, area = rows * ((uint64_t)k + 32);
    uint64_t block = 256 * (narrow ? 1056 : 544);
    if (reach > (uint64_t)k)
      reach = (uint64_t)k;
    library = 4096;
    if (trans_b || narrow || (n & (n - 1)) == 0)
      library += 64 * (reach + 64) * element_bytes;
    if (trans_a || odd)
      library += (area < block ? area : block) * element_bytes;
    if (odd || (k > (narrow && !acc ? 1024 : 512) && (acc || narrow)))
      library += rows * columns * 4;
  }
  if (2.0 * (double)m * (double)n * (double)k < GRT_CPU_SERIAL_OPERATIONS)
    threads = 1;
  return (own > library ? own : library) * (uint64_t)threads;
}

#ifdef __cplusplus
}
#endif

#endif // GRT_CPU_BOUNDS_H
