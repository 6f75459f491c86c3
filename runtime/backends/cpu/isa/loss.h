//===- loss.h - Softmax statistics and the gradient of cross entropy ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef GRT_BACKENDS_CPU_ISA_LOSS_H
#define GRT_BACKENDS_CPU_ISA_LOSS_H

#include "math.h"

namespace grt::cpu {
namespace {

/// Sums of exponentials are taken in the accumulator type over this many
/// columns and in f64 beyond, so that their error does not grow with the
/// vocabulary.
constexpr int64_t sumColumns = 1024;

template <class T> Accumulator<T> rowMaximum(const T *row, int64_t n) {
  using A = Accumulator<T>;
  constexpr int64_t stride = 4 * lanes<A>;
  Vec<A> m0 = splat(A(-__builtin_inf())), m1 = m0, m2 = m0, m3 = m0;
  int64_t whole = n / stride * stride;
  for (int64_t i = 0; i < whole; i += stride) {
    m0 = larger(m0, loadWhole(row + i));
    m1 = larger(m1, loadWhole(row + i + lanes<A>));
    m2 = larger(m2, loadWhole(row + i + 2 * lanes<A>));
    m3 = larger(m3, loadWhole(row + i + 3 * lanes<A>));
  }
  A result = horizontalMax<A>(larger(larger(m0, m1), larger(m2, m3)));
  for (int64_t i = whole; i < n; ++i)
    result = wide(row[i]) > result ? wide(row[i]) : result;
  return result;
}

template <class T>
double rowExponentialSum(const T *row, int64_t n, Accumulator<T> shift) {
  using A = Accumulator<T>;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += sumColumns) {
    int64_t end = smaller(begin + sumColumns, n);
    Vec<A> sum{};
    int64_t i = begin;
    for (; i + lanes<A> <= end; i += lanes<A>)
      sum += exponential(loadWhole(row + i) - shift);
    total += double(horizontalSum<A>(sum));
    if (i < end) {
      Vec<A> rest = exponential(loadPart(row + i, int(end - i)) - shift);
      for (int l = 0; l < int(end - i); ++l)
        total += double(rest[l]);
    }
  }
  return total;
}

template <class T> double rowSum(const T *row, int64_t n) {
  using A = Accumulator<T>;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += sumColumns) {
    Vec<A> sum{};
    sweep<A>(begin, smaller(begin + sumColumns, n),
             [&](int64_t i, auto at) { sum += at.load(row + i); });
    total += double(horizontalSum<A>(sum));
  }
  return total;
}

template <class T> void softmaxStats(int threads, const LossArguments<T> &a) {
  using A = Accumulator<T>;
  parallelFor(
      threads, a.rows, rowGrain(a.cols), [&](int, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T *row = a.logits + r * a.cols;
          A *stats = a.stats + a.width * r;
          A maximum = rowMaximum(row, a.validCols);
          stats[0] = maximum;
          stats[1] = a.validCols > 0
                         ? A(rowExponentialSum(row, a.validCols, maximum))
                         : A(0);
          stats[2] = 0;
          if (a.width > 3)
            stats[3] = A(rowSum(row, a.validCols));
          if (a.generate) {
            int64_t column = 0;
            while (column < a.validCols && wide(row[column]) != maximum)
              ++column;
            stats[2] = A(column);
            continue;
          }
          int64_t local = int64_t(a.labels[r]) - a.firstColumn;
          if (a.labels[r] >= 0 && local >= 0 && local < a.validCols)
            stats[2] = wide(row[local]);
        }
      });
}

template <class T>
void crossEntropyGrad(int threads, const LossArguments<T> &a) {
  using A = Accumulator<T>;
  parallelFor(
      threads, a.rows, rowGrain(a.cols), [&](int, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T *row = a.logits + r * a.cols;
          T *out = a.dlogits + r * a.cols;
          if (a.labels[r] < 0) {
            __builtin_memset(out, 0, size_t(a.cols) * sizeof(T));
            continue;
          }
          A maximum = a.stats[a.width * r];
          for (int64_t s = 1; s < a.shards; ++s) {
            A other = a.stats[a.width * (s * a.statsRows + r)];
            maximum = other > maximum ? other : maximum;
          }
          double sum = 0;
          for (int64_t s = 0; s < a.shards; ++s) {
            const A *stats = a.stats + a.width * (s * a.statsRows + r);
            sum += double(stats[1]) *
                   __builtin_exp(double(stats[0]) - double(maximum));
          }
          // The factor of every probability is computed, then what is taken
          // off: of every class, and of the label's.
          double scale = a.inverseTokens;
          if (a.zLoss != 0)
            scale *= 1 + 2 * a.zLoss * (double(maximum) + __builtin_log(sum));
          A factor = A(scale / sum);
          A uniform = A(a.inverseTokens * a.smoothing / double(a.globalCols));
          A target = uniform + A(a.inverseTokens * (1 - a.smoothing));
          int64_t local = int64_t(a.labels[r]) - a.firstColumn;
          bool here = local >= 0 && local < a.validCols;
          A logit = here ? wide(row[local]) : A(0);
          sweep<A>(0, a.validCols, [&](int64_t i, auto at) {
            at.store(out + i, exponential(at.load(row + i) - maximum) * factor -
                                  uniform);
          });
          for (int64_t i = a.validCols; i < a.cols; ++i)
            out[i] = narrow<T>(0);
          // The probability is computed from the logit again: what was stored
          // may have been rounded.
          if (here)
            out[local] = narrow<T>(
                exponential(splat(logit - maximum))[0] * factor - target);
        }
      });
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_LOSS_H
