//===- few_rows.h - Products that take as long as reading a matrix --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where a has a row or a few, nothing of b is used more than that often, so it
// is read where it stands, line after line, by as many streams as the processor
// fetches ahead. Instructions fetch elements of 16 bits ahead, too: a thread's
// part of a line is short, and the processor's own prefetching begins anew with
// every part. Sums of an element have one order, whatever the threads.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_FEW_ROWS_H
#define GRT_BACKENDS_CPU_ISA_FEW_ROWS_H

#include "vector.h"

namespace grt::cpu {
namespace {

/// Sums that are under way at a time, and rows of b that are added to them
/// together.
constexpr int64_t fewRowsSums = 4096;
constexpr int fewRowsTogether = 8;
/// Columns of transposed b whose sums are under way at a time.
constexpr int fewColumnsTogether = 4;
constexpr int64_t lineBytes = 64;

/// Begins to fetch element `i` of each of `Lines` lines, `stride` elements
/// apart, if a line of the cache begins with it. Wider elements are not fetched
/// ahead: with them memory is the limit as it is.
template <class T, int Lines>
inline void fetchAhead(const T *lines, int64_t stride, int64_t i) {
  if constexpr (sizeof(T) < sizeof(Accumulator<T>))
    if (i % (lineBytes / int64_t(sizeof(T))) == 0) {
#pragma GCC unroll 8
      for (int l = 0; l < Lines; ++l)
        __builtin_prefetch(lines + l * stride + i);
    }
}

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
  constexpr int64_t most = fewRowsSums / M;
  A sums[M][most];
  for (int64_t first = begin; first < end; first += most) {
    const int64_t columns = smaller(most, end - first);
    for (int r = 0; r < M; ++r)
      for (int64_t j = 0; j < columns; ++j)
        sums[r][j] = 0;
    auto lines = [&]<int Together>(int64_t line) {
      const T *from = b + line * n + first;
      // The next lines; of the last ones these again.
      const T *next = line + 2 * Together <= k ? from + Together * n : from;
      A factors[M][Together];
      for (int r = 0; r < M; ++r)
        for (int l = 0; l < Together; ++l)
          factors[r][l] = wide(a[r * k + line + l]);
      sweep<A>(0, columns, [&](int64_t j, auto at) {
        fetchAhead<T, Together>(next, n, j);
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
    const T *from = b + first * k;
    const T *next = first + 2 * Together <= n ? from + Together * k : from;
    sweep<A>(0, k, [&](int64_t i, auto at) {
      fetchAhead<T, Together>(next, k, i);
      Vec<A> left[M];
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r)
        left[r] = at.load(a + r * k + i);
#pragma GCC unroll 4
      for (int l = 0; l < Together; ++l) {
        const Vec<A> right = at.load(from + l * k + i);
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
  for (; column + fewColumnsTogether <= end; column += fewColumnsTogether)
    columns.template operator()<fewColumnsTogether>(column);
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
