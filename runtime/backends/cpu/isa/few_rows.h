//===- few_rows.h - Products that take as long as reading a matrix --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where a has a row or a few, nothing of b is used more than that often, so it
// is read where it stands, line after line, by as many streams as the processor
// fetches ahead. Sums of an element have one order, whatever the threads.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_FEW_ROWS_H
#define GRT_BACKENDS_CPU_ISA_FEW_ROWS_H

#include "vector.h"

namespace grt::cpu {
namespace {

/// Columns of b whose sums are under way at a time, and rows that are added to
/// them together.
constexpr int64_t fewRowsColumns = 1024;
constexpr int fewRowsTogether = 8;

template <class T, class C>
inline void putSum(Accumulator<T> sum, C *place, const T *bias, bool add) {
  using A = Accumulator<T>;
  if (bias)
    sum += wide(*bias);
  if (add)
    sum += A(wide(*place));
  *place = narrow<C>(sum);
}

/// c[M, begin..end) of b as it stands, [k, n].
template <class T, class C, int M>
void fewRowsOfLines(int64_t begin, int64_t end, int64_t n, int64_t k,
                    const T *a, const T *b, C *c, const T *bias, bool add) {
  using A = Accumulator<T>;
  A sums[M][fewRowsColumns];
  for (int64_t first = begin; first < end; first += fewRowsColumns) {
    const int64_t columns = smaller(fewRowsColumns, end - first);
    for (int r = 0; r < M; ++r)
      for (int64_t j = 0; j < columns; ++j)
        sums[r][j] = 0;
    auto lines = [&]<int Together>(int64_t line) {
      const T *from = b + line * n + first;
      A factors[M][Together];
      for (int r = 0; r < M; ++r)
        for (int l = 0; l < Together; ++l)
          factors[r][l] = wide(a[r * k + line + l]);
      sweep<A>(0, columns, [&](int64_t j, auto at) {
        Vec<A> part[M];
#pragma GCC unroll 4
        for (int r = 0; r < M; ++r)
          part[r] = at.load(sums[r] + j);
#pragma GCC unroll 8
        for (int l = 0; l < Together; ++l) {
          const Vec<A> value = at.load(from + l * n + j);
#pragma GCC unroll 4
          for (int r = 0; r < M; ++r)
            part[r] += factors[r][l] * value;
        }
#pragma GCC unroll 4
        for (int r = 0; r < M; ++r)
          at.store(sums[r] + j, part[r]);
      });
    };
    int64_t line = 0;
    for (; line + fewRowsTogether <= k; line += fewRowsTogether)
      lines.template operator()<fewRowsTogether>(line);
    for (; line < k; ++line)
      lines.template operator()<1>(line);
    for (int r = 0; r < M; ++r)
      for (int64_t j = 0; j < columns; ++j)
        putSum<T>(sums[r][j], c + r * n + first + j,
                  bias ? bias + first + j : nullptr, add);
  }
}

/// c[M, begin..end) of b that is transposed, [n, k].
template <class T, class C, int M>
void fewRowsOfColumns(int64_t begin, int64_t end, int64_t n, int64_t k,
                      const T *a, const T *b, C *c, const T *bias, bool add) {
  using A = Accumulator<T>;
  auto columns = [&]<int Together>(int64_t first) {
    Vec<A> sums[Together][M] = {};
    sweep<A>(0, k, [&](int64_t i, auto at) {
      Vec<A> left[M];
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r)
        left[r] = at.load(a + r * k + i);
#pragma GCC unroll 4
      for (int l = 0; l < Together; ++l) {
        const Vec<A> right = at.load(b + (first + l) * k + i);
#pragma GCC unroll 4
        for (int r = 0; r < M; ++r)
          sums[l][r] += left[r] * right;
      }
    });
    for (int l = 0; l < Together; ++l)
      for (int r = 0; r < M; ++r)
        putSum<T>(horizontalSum<A>(sums[l][r]), c + r * n + first + l,
                  bias ? bias + first + l : nullptr, add);
  };
  int64_t column = begin;
  for (; column + 4 <= end; column += 4)
    columns.template operator()<4>(column);
  for (; column < end; ++column)
    columns.template operator()<1>(column);
}

template <class T, class C, int M>
void gemmOfRows(int threads, int64_t n, int64_t k, const T *a, const T *b,
                bool transB, C *c, const T *bias, bool add) {
  parallelFor(
      threads, n, lanes<Accumulator<T>>, [&](int, int64_t begin, int64_t end) {
        if (transB)
          fewRowsOfColumns<T, C, M>(begin, end, n, k, a, b, c, bias, add);
        else
          fewRowsOfLines<T, C, M>(begin, end, n, k, a, b, c, bias, add);
      });
}

template <class T, class C>
void gemmOfFewRows(int threads, int64_t m, int64_t n, int64_t k, const T *a,
                   const T *b, bool transB, C *c, const T *bias, bool add) {
  static_assert(fewRows == 4);
  switch (m) {
  case 1:
    return gemmOfRows<T, C, 1>(threads, n, k, a, b, transB, c, bias, add);
  case 2:
    return gemmOfRows<T, C, 2>(threads, n, k, a, b, transB, c, bias, add);
  case 3:
    return gemmOfRows<T, C, 3>(threads, n, k, a, b, transB, c, bias, add);
  default:
    return gemmOfRows<T, C, 4>(threads, n, k, a, b, transB, c, bias, add);
  }
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_FEW_ROWS_H
