//===- backend.h - What a backend gives the executor ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A backend is a shared object `libgrt_<name>.so`, loaded when a program asks
// for it, that exports `grt_backend_get`. It fills one table of kernels and one
// of memory calls; the executor and the communicators do the rest.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKEND_H
#define GRT_BACKEND_H

#include "grt/abi.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Where the running rank stands for the running layer. Indices are 0 and sizes
/// 1 on axes that the layer's strategy lacks.
typedef struct grt_coordinates {
  int64_t dp_index, dp_size;
  int64_t sdp_index, sdp_size;
  int64_t tp_index, tp_size;
  int64_t layer;         ///< index of the layer in the model
  int64_t first_sample;  ///< global number in the batch of local sample 0
  int64_t local_samples; ///< samples of the micro-batch on this rank
} grt_coordinates;

/// One kernel call with its buffers resolved to addresses.
typedef struct grt_call {
  const grt_kernel_op *op;
  void *const *buffers; ///< op->buffer_count addresses
  const grt_coordinates *coordinates;
  grt_step *step;
  int32_t accumulate; ///< 1 on every micro-batch of a step but the first
  void *rank_state;   ///< what `create_rank` returned
} grt_call;

/// Returns 0, or non-zero after writing a message (lower case, no full stop).
typedef int32_t (*grt_kernel_function)(const grt_call *call, char *message,
                                       size_t message_bytes);

/// An arena of `bytes` bytes. `window_bytes` of them, at `window_offset`, are
/// mapped `window_count` times, `window_stride` apart: several micro-batches in
/// flight share one region for temporaries that each of them has right behind
/// what it keeps. The arena takes bytes + (window_count - 1) * window_bytes
/// addresses. Without a window `window_bytes` is 0 and the other fields say
/// nothing.
typedef struct grt_arena {
  uint64_t bytes;
  uint64_t window_offset;
  uint64_t window_bytes;
  uint64_t window_stride;
  uint64_t window_count;
} grt_arena;

typedef struct grt_backend {
  uint32_t abi_version;
  const char *name; ///< "cpu"
  grt_kernel_function kernels[GRT_KERNEL_COUNT];
  /// State of one rank (primitive cache, thread count). `threads` >= 1.
  void *(*create_rank)(int32_t rank, int32_t threads);
  void (*destroy_rank)(void *rank_state);
  /// Plain memory; NULL when the device has less.
  void *(*allocate)(size_t bytes);
  void (*release)(void *memory, size_t bytes);
  /// An arena with a window; NULL when the device has less, or cannot map the
  /// window at these offsets (CPUs need multiples of the page size). Both
  /// functions are null where the backend knows no windows.
  void *(*map_arena)(const grt_arena *arena);
  void (*unmap_arena)(void *memory, const grt_arena *arena);
  /// Takes now, on the rank's thread, whatever memory outside the arena the
  /// calls of `op` would take the first time (a primitive and its scratchpad).
  /// The executor calls it at load for every op of the rank's program. Status
  /// and message as for kernels; null where nothing is ever taken.
  int32_t (*prepare)(void *rank_state, const grt_kernel_op *op, char *message,
                     size_t message_bytes);
} grt_backend;

/// The backend's only export. Never fails; the table is static.
const grt_backend *grt_backend_get(void);

#ifdef __cplusplus
}
#endif

#endif // GRT_BACKEND_H
