//===- normalize.h - A row's norm once its sum is known -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_NORMALIZE_H
#define GRT_BACKENDS_CUDA_NORMALIZE_H

#include "elements.h"

namespace grt::cuda {

/// Row r of y and stats from the row of `length` elements (0: a team past the
/// end, which stays for the barriers), of which this thread added up `share`,
/// starting at element `first`. Two passes over the row.
template <int Threads, int N, class T>
__device__ void normalizeRow(const T *row, int64_t r, int64_t n, int64_t length,
                             int first, Accumulator<T> share, const T *gamma,
                             const T *beta, T *y, Accumulator<T> *stats,
                             double eps) {
  using A = Accumulator<T>;
  A mean = teamSum<Threads>(share) / A(n);
  A squares = 0;
  for (int64_t i = first; i < length; i += Threads * N) {
    Pack<T, N> in = load<N>(row + i);
    for (int e = 0; e < N; ++e) {
      A d = wide(in.at[e]) - mean;
      squares += d * d;
    }
  }
  squares = teamSum<Threads>(squares);
  A inverse = A(1 / squareRoot(double(squares) / double(n) + eps));
  if (length > 0 && first == 0) {
    stats[2 * r] = mean;
    stats[2 * r + 1] = inverse;
  }
  for (int64_t i = first; i < length; i += Threads * N) {
    Pack<T, N> in = load<N>(row + i), g = load<N>(gamma + i);
    Pack<T, N> b = load<N>(beta + i), out;
    for (int e = 0; e < N; ++e)
      out.at[e] = narrow<T>((wide(in.at[e]) - mean) * inverse * wide(g.at[e]) +
                            wide(b.at[e]));
    store<N>(y + r * n + i, out);
  }
}

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_NORMALIZE_H
