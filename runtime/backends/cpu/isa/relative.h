//===- relative.h - Biases of relative positions --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_RELATIVE_H
#define GRT_BACKENDS_CPU_ISA_RELATIVE_H

#include "vector.h"

namespace grt::cpu {
namespace {

/// The bucket of element `d` of a row.
inline int64_t bucketAt(const RelativeBiasArguments &a, int64_t d) {
  return relativeBucket(*a.rule, d - (a.positions - 1));
}

/// Threads share out samples: what one reads is little.
template <class T>
void relativeBias(int threads, const RelativeBiasArguments &a, const T *table,
                  T *bias) {
  const int64_t distances = 2 * a.positions - 1;
  parallelFor(threadsForElements(threads, a.samples * a.heads * distances),
              a.samples, 1, [&](int, int64_t begin, int64_t end) {
                for (int64_t d = 0; d < distances; ++d) {
                  const T *row = table + bucketAt(a, d) * a.heads;
                  for (int64_t s = begin; s < end; ++s)
                    for (int64_t h = 0; h < a.heads; ++h)
                      bias[(s * a.heads + h) * distances + d] = row[h];
                }
              });
}

/// Threads share out heads, so that every sum has one order.
template <class T>
void relativeBiasGrad(int threads, const RelativeBiasArguments &a,
                      const T *dbias, Accumulator<T> *dtable, bool add) {
  const int64_t distances = 2 * a.positions - 1;
  parallelFor(threadsForElements(threads, a.samples * a.heads * distances),
              a.heads, 1, [&](int, int64_t begin, int64_t end) {
                for (int64_t h = begin; h < end; ++h) {
                  Accumulator<T> sums[GRT_RELATIVE_BUCKETS] = {};
                  for (int64_t d = 0; d < distances; ++d) {
                    Accumulator<T> &sum = sums[bucketAt(a, d)];
                    for (int64_t s = 0; s < a.samples; ++s)
                      sum += wide(dbias[(s * a.heads + h) * distances + d]);
                  }
                  for (int64_t b = 0; b < a.buckets; ++b) {
                    Accumulator<T> &sum = dtable[b * a.heads + h];
                    sum = add ? sum + sums[b] : sums[b];
                  }
                }
              });
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_RELATIVE_H
