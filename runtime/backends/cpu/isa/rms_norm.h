//===- rms_norm.h - RMS normalisation and its gradient --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_RMS_NORM_H
#define GRT_BACKENDS_CPU_ISA_RMS_NORM_H

#include "rows.h"

namespace grt::cpu {
namespace {

template <class T>
void rmsNorm(int threads, int64_t rows, int64_t n, const T *x, const T *gamma,
             T *y, Accumulator<T> *stats, bool unitOffset, double eps) {
  using A = Accumulator<T>;
  parallelFor(threads, rows, rowGrain(n), [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *row = x + r * n;
      T *out = y + r * n;
      Vec<A> sum{};
      sweep<A>(0, n, [&](int64_t i, auto at) {
        Vec<A> v = at.load(row + i);
        sum += v * v;
      });
      A squares = horizontalSum<A>(sum);
      A inverse = A(1.0 / __builtin_sqrt(double(squares) / double(n) + eps));
      stats[r] = inverse;
      if (unitOffset) {
        sweep<A>(0, n, [&](int64_t i, auto at) {
          at.store(out + i,
                   at.load(row + i) * inverse * (at.load(gamma + i) + A(1)));
        });
        continue;
      }
      sweep<A>(0, n, [&](int64_t i, auto at) {
        // Storing rounds to the compute type.
        at.store(out + i, at.load(row + i) * inverse);
        at.store(out + i, at.load(out + i) * at.load(gamma + i));
      });
    }
  });
}

/// dgamma of rows [r0, r1), columns [begin, end).
template <class T>
void rmsNormColumns(int64_t r0, int64_t r1, int64_t begin, int64_t end,
                    int64_t n, const T *dy, const T *x,
                    const Accumulator<T> *stats, Accumulator<T> *dgamma,
                    bool add) {
  using A = Accumulator<T>;
  sweep<A>(begin, end, [&](int64_t i, auto at) {
    Vec<A> sum{};
    for (int64_t r = r0; r < r1; ++r)
      sum += at.load(dy + r * n + i) * (at.load(x + r * n + i) * stats[r]);
    at.store(dgamma + i, add ? sum + at.load(dgamma + i) : sum);
  });
}

/// Computes, with x^ the normalised input and g = dy gamma, or dy (1 + gamma),
/// dx = (g - x^ mean(g x^)) / sqrt(mean(x^2) + eps).
template <class T>
void rmsNormGrad(int threads, int64_t rows, int64_t n, const T *dy, const T *x,
                 const Accumulator<T> *stats, const T *gamma, T *dx,
                 Accumulator<T> *dgamma, bool add, bool unitOffset) {
  using A = Accumulator<T>;
  const A offset = unitOffset ? 1 : 0;
  auto rowPart = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *g = dy + r * n, *in = x + r * n;
      A inverse = stats[r];
      Vec<A> sum{};
      sweep<A>(0, n, [&](int64_t i, auto at) {
        sum += at.load(g + i) * (at.load(gamma + i) + offset) *
               (at.load(in + i) * inverse);
      });
      A mean = horizontalSum<A>(sum) / A(n);
      sweep<A>(0, n, [&](int64_t i, auto at) {
        Vec<A> normal = at.load(in + i) * inverse;
        Vec<A> scaled = at.load(g + i) * (at.load(gamma + i) + offset);
        at.store(dx + r * n + i, (scaled - normal * mean) * inverse);
      });
    }
  };
  // dx may stand where dy stood: the sums over a block's rows come first.
  threads = threadsForElements(threads, rows * n);
  if (threads <= 1 || rows == 0) {
    for (int64_t r0 = 0; r0 < rows || r0 == 0; r0 += sumRows) {
      int64_t r1 = smaller(r0 + sumRows, rows);
      rmsNormColumns(r0, r1, 0, n, n, dy, x, stats, dgamma, add || r0 > 0);
      rowPart(r0, r1);
    }
    return;
  }
  parallelFor(threads, n, 128, [&](int, int64_t begin, int64_t end) {
    for (int64_t r0 = 0; r0 < rows; r0 += sumRows)
      rmsNormColumns(r0, smaller(r0 + sumRows, rows), begin, end, n, dy, x,
                     stats, dgamma, add || r0 > 0);
  });
  parallelFor(threads, rows, rowGrain(n),
              [&](int, int64_t begin, int64_t end) { rowPart(begin, end); });
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_RMS_NORM_H
