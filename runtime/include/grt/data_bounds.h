//===- data_bounds.h - Which integers a kernel tells apart ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Integers that are data, tokens and labels, number the rows of a table or
// classes; those of a program that generates, rows and places of a cache. The
// compiler's verifier and the loader of programs hold the bounds of data
// against the kernels that read them.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_DATA_BOUNDS_H
#define GRT_DATA_BOUNDS_H

#include "grt/kernels.h"

#include <optional>

namespace grt {

/// Returns how many values a call tells apart in the integers of its buffer
/// number `buffer`, on all `parts` ranks of its tensor parallelism together;
/// nothing if it does not.
inline std::optional<int64_t> valuesToldApart(uint32_t kernel,
                                              const int64_t *ints, size_t count,
                                              size_t buffer, int64_t parts) {
  switch (kernel) {
  case GRT_KERNEL_EMBEDDING: {
    using K = kernels::Embedding;
    const auto n = intsOf<K>(ints, count);
    if (buffer != K::tokens)
      break;
    return n.localRows * (n.sharded ? parts : 1);
  }
  case GRT_KERNEL_SOFTMAX_STATS: {
    using K = kernels::SoftmaxStats;
    if (buffer == K::labels)
      return intsOf<K>(ints, count).globalCols;
    break;
  }
  case GRT_KERNEL_CROSS_ENTROPY: {
    using K = kernels::CrossEntropy;
    if (buffer == K::labels)
      return intsOf<K>(ints, count).globalCols;
    break;
  }
  case GRT_KERNEL_SOFTMAX_CROSS_ENTROPY: {
    using K = kernels::SoftmaxCrossEntropy;
    if (buffer == K::labels)
      return intsOf<K>(ints, count).cols;
    break;
  }
  case GRT_KERNEL_CACHED_ATTENTION: {
    using K = kernels::CachedAttention;
    const auto n = intsOf<K>(ints, count);
    if (buffer == K::row)
      return n.rows;
    // With a window places are used again.
    if (buffer == K::position && n.window == 0)
      return n.length;
    break;
  }
  case GRT_KERNEL_CACHED_CROSS_ATTENTION: {
    using K = kernels::CachedCrossAttention;
    const auto n = intsOf<K>(ints, count);
    if (buffer == K::row || buffer == K::begins)
      return n.rows;
    if (buffer == K::count)
      return n.length + 1;
    break;
  }
  default: {
    const KernelBuffers buffers = buffersOf(kernel, ints, count, buffer + 1);
    if (buffer < buffers.size() && buffers[buffer].elements == Elements::Mask)
      return 2;
    break;
  }
  }
  return std::nullopt;
}

/// Returns true if a call takes -1 in the integers of its buffer number
/// `buffer` for the row of a cache of no text.
inline bool takesNoRow(uint32_t kernel, size_t buffer) {
  using Own = kernels::CachedAttention;
  using Cross = kernels::CachedCrossAttention;
  if (kernel == GRT_KERNEL_CACHED_CROSS_ATTENTION)
    return buffer == Cross::row || buffer == Cross::begins;
  return kernel == GRT_KERNEL_CACHED_ATTENTION && buffer == Own::row;
}

} // namespace grt

#endif // GRT_DATA_BOUNDS_H
