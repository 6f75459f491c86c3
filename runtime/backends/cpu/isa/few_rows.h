//===- few_rows.h - Products that take as long as reading a matrix --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where a has a row or a few, nothing of b is used more than that often, so it
// is read where it stands, line after line, by as many streams as the processor
// fetches ahead. With elements of 16 bits that does not take up what memory
// gives: threads read parts of b in the order of memory, and instructions fetch
// ahead. Sums of an element have one order, whatever the threads.
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

/// Parts that a b of 16-bit elements is cut into, one behind the other in
/// memory, each with sums of its own.
constexpr int fewRowsParts = 4;
/// Sums of a part, at most: what has more is cut by columns.
constexpr int64_t fewRowsPartSums = 8192;
/// Rows of a part that are added to its sums together.
constexpr int fewPartRowsTogether = 4;
/// Rows of b below which it is not cut into parts.
constexpr int64_t fewRowsOfParts = 64;

/// Begins to fetch some of the lines that are used next, `Lines` of them from
/// `next` on and `stride` elements apart, while element `i` of the present ones
/// is used: element `i` of each. `Whole` lines stand one behind the other and
/// are fetched in the order of memory. Elements wider than 16 bits are not
/// fetched ahead: memory is their limit as it is.
template <class T, int Lines, bool Whole = false>
inline void fetchAhead(const T *next, int64_t stride, int64_t i) {
  if constexpr (sizeof(T) < sizeof(Accumulator<T>)) {
    constexpr int64_t elements = lineBytes / int64_t(sizeof(T));
    if (i % elements == 0) {
#pragma GCC unroll 8
      for (int l = 0; l < Lines; ++l)
        __builtin_prefetch(Whole ? next + i * Lines + l * elements
                                 : next + l * stride + i);
    }
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

/// The same of `count` sums, with as many of the bias unless that is null.
template <class T, class C>
inline void putSums(int64_t count, const Accumulator<T> *sums, C *place,
                    const T *bias, bool add) {
  using A = Accumulator<T>;
  sweep<A>(0, count, [&](int64_t j, auto at) {
    Vec<A> sum = at.load(sums + j);
    if (bias)
      sum += at.load(bias + j);
    if (add)
      sum += at.load(place + j);
    at.store(place + j, sum);
  });
}

/// Sums of columns of b as it stands, [k, n], for M rows of a.
template <class T, int M> struct ColumnSums {
  using A = Accumulator<T>;
  int64_t n, k;
  const T *a, *b;
  int64_t first, columns; ///< of b
  A *sums;                ///< of the rows of a, `stride` apart
  int64_t stride;

  /// Sets all sums to those of lines [begin, end) of b.
  template <int Together, bool Whole = false>
  void make(int64_t begin, int64_t end) const {
    for (int r = 0; r < M; ++r)
      for (int64_t j = 0; j < columns; ++j)
        sums[r * stride + j] = 0;
    int64_t line = begin;
    for (; line + Together <= end; line += Together)
      add<Together, Whole>(line);
    for (; line < end; ++line)
      add<1, false>(line);
  }

private:
  template <int Together, bool Whole> void add(int64_t line) const {
    const T *from = b + line * n + first;
    // The next lines; of the last ones these again.
    const T *next = line + 2 * Together <= k ? from + Together * n : from;
    A factors[M][Together];
    for (int r = 0; r < M; ++r)
      for (int l = 0; l < Together; ++l)
        factors[r][l] = wide(a[r * k + line + l]);
    sweep<A>(0, columns, [&](int64_t j, auto at) {
      fetchAhead<T, Together, Whole>(next, n, j);
      Vec<A> part[M];
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r)
        part[r] = at.load(sums + r * stride + j);
#pragma GCC unroll 8
      for (int l = 0; l < Together; ++l) {
        const Vec<A> value = at.load(from + l * n + j);
#pragma GCC unroll 4
        for (int r = 0; r < M; ++r)
          part[r] += factors[r][l] * value;
      }
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r)
        at.store(sums + r * stride + j, part[r]);
    });
  }
};

/// c[M, begin..end) of b as it stands, [k, n].
template <class T, class C, int M>
void fewRowsOfLines(int64_t begin, int64_t end, int64_t n, int64_t k,
                    const T *a, const T *b, C *c, const T *bias, bool add) {
  constexpr int64_t most = fewRowsSums / M;
  Accumulator<T> sums[M][most];
  for (int64_t first = begin; first < end; first += most) {
    const int64_t columns = smaller(most, end - first);
    ColumnSums<T, M>{n, k, a, b, first, columns, sums[0], most}
        .template make<fewRowsTogether>(0, k);
    for (int r = 0; r < M; ++r)
      putSums<T>(columns, sums[r], c + r * n + first,
                 bias ? bias + first : nullptr, add);
  }
}

/// c[M, n] of b as it stands, [k, n], of elements of 16 bits: threads share out
/// the lines, so that each reads memory in its order, and columns too where
/// there are other numbers of threads than parts.
template <class T, class C, int M>
void fewRowsInParts(int threads, int64_t n, int64_t k, const T *a, const T *b,
                    C *c, const T *bias, bool add) {
  using A = Accumulator<T>;
  A sums[fewRowsParts][fewRowsPartSums];
  int64_t chunks = threads;
  for (int even = fewRowsParts; even % 2 == 0 && chunks % 2 == 0; even /= 2)
    chunks /= 2;
  constexpr int64_t elements = lineBytes / int64_t(sizeof(T));
  const int64_t pieces = (n + elements - 1) / elements;
  const int64_t groups = k / fewPartRowsTogether;
  auto firstLine = [&](int64_t part) {
    return part == fewRowsParts
               ? k
               : groups * part / fewRowsParts * fewPartRowsTogether;
  };
  parallelFor(
      threads, fewRowsParts * chunks, 1, [&](int, int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item) {
          const int64_t part = item / chunks, chunk = item % chunks;
          const int64_t first = pieces * chunk / chunks * elements;
          const int64_t last =
              smaller(n, pieces * (chunk + 1) / chunks * elements);
          const ColumnSums<T, M> columns = {
              n, k, a, b, first, last - first, sums[part] + first, n};
          const int64_t from = firstLine(part), to = firstLine(part + 1);
          if (chunks == 1)
            columns.template make<fewPartRowsTogether, true>(from, to);
          else
            columns.template make<fewPartRowsTogether>(from, to);
        }
      });
  for (int part = 1; part < fewRowsParts; ++part)
    sweep<A>(0, M * n, [&](int64_t j, auto at) {
      at.store(sums[0] + j, at.load(sums[0] + j) + at.load(sums[part] + j));
    });
  for (int r = 0; r < M; ++r)
    putSums<T>(n, sums[0] + r * n, c + r * n, bias, add);
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
  if constexpr (sizeof(T) < sizeof(Accumulator<T>))
    if (!transB && M * n <= fewRowsPartSums && k >= fewRowsOfParts)
      return fewRowsInParts<T, C, M>(threads, n, k, a, b, c, bias, add);
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
