//===- products.h - Register-tiled matrix products ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One register tile serves the attention kernels (operands in place) and the
// general product (operands packed): C[MR, NV vectors] (+)= A B where A may
// have any two strides and rows of B and C are contiguous. Each element is
// summed in ascending order of k.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_PRODUCTS_H
#define GRT_BACKENDS_CPU_ISA_PRODUCTS_H

#include "vector.h"

namespace grt::cpu {
namespace {

/// Rows and vectors of the tile: 6 * 4 + 4 + 1 of 32 registers, or 6 * 2 + 2 +
/// 1 of 16.
constexpr int tileRows = 6;
constexpr int tileVectors = vectorRegisters == 32 ? 4 : 2;

/// A in place or packed: element (m, k) is at m * rowStride + k * columnStride.
template <class T> struct Strided {
  const T *data;
  int64_t rowStride, columnStride;
};

template <class T, int MR, int NV, class Access>
inline __attribute__((always_inline)) void
tile(int64_t depth, Strided<T> a, const T *b, int64_t bStride, T *c,
     int64_t cStride, bool add, Access access) {
  Vec<T> sum[MR][NV] = {};
  const T *row[MR];
#pragma GCC unroll 8
  for (int r = 0; r < MR; ++r)
    row[r] = a.data + r * a.rowStride;
  for (int64_t k = 0; k < depth; ++k) {
    Vec<T> bRow[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v)
      bRow[v] = access.load(b + v * lanes<T>);
#pragma GCC unroll 8
    for (int r = 0; r < MR; ++r) {
      T factor = *row[r];
      row[r] += a.columnStride;
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v)
        sum[r][v] += factor * bRow[v];
    }
    b += bStride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      T *place = c + r * cStride + v * lanes<T>;
      access.store(place, add ? sum[r][v] + access.load(place) : sum[r][v]);
    }
}

/// Computes all rows of one panel of NV vectors.
template <class T, int NV, class Access>
void panel(int64_t m, int64_t depth, Strided<T> a, const T *b, int64_t bStride,
           T *c, int64_t cStride, bool add, Access access) {
  int64_t r = 0;
  for (; r + tileRows <= m; r += tileRows)
    tile<T, tileRows, NV>(
        depth, {a.data + r * a.rowStride, a.rowStride, a.columnStride}, b,
        bStride, c + r * cStride, cStride, add, access);
  Strided<T> rest = {a.data + r * a.rowStride, a.rowStride, a.columnStride};
  T *place = c + r * cStride;
  switch (m - r) {
  case 5:
    return tile<T, 5, NV>(depth, rest, b, bStride, place, cStride, add, access);
  case 4:
    return tile<T, 4, NV>(depth, rest, b, bStride, place, cStride, add, access);
  case 3:
    return tile<T, 3, NV>(depth, rest, b, bStride, place, cStride, add, access);
  case 2:
    return tile<T, 2, NV>(depth, rest, b, bStride, place, cStride, add, access);
  case 1:
    return tile<T, 1, NV>(depth, rest, b, bStride, place, cStride, add, access);
  }
}

/// c[m, n] (+)= a b with all operands in place.
template <class T>
void products(int64_t m, int64_t n, int64_t depth, Strided<T> a, const T *b,
              int64_t bStride, T *c, int64_t cStride, bool add) {
  int64_t j = 0;
  for (; j + tileVectors * lanes<T> <= n; j += tileVectors * lanes<T>)
    panel<T, tileVectors>(m, depth, a, b + j, bStride, c + j, cStride, add,
                          Whole<T>());
  if constexpr (tileVectors == 4)
    if (j + 2 * lanes<T> <= n) {
      panel<T, 2>(m, depth, a, b + j, bStride, c + j, cStride, add, Whole<T>());
      j += 2 * lanes<T>;
    }
  for (; j + lanes<T> <= n; j += lanes<T>)
    panel<T, 1>(m, depth, a, b + j, bStride, c + j, cStride, add, Whole<T>());
  if (j < n)
    panel<T, 1>(m, depth, a, b + j, bStride, c + j, cStride, add,
                Part<T>{int(n - j)});
}

// The general product, after Goto and van de Geijn, "Anatomy of
// High-Performance Matrix Multiplication" (ACM TOMS 34(3), 2008): a block of B
// is packed for the last-level cache, a block of A for the second level, and
// tiles run over both. How wide a block of B is depends on the memory that the
// caller has; sums do not.

constexpr int64_t blockDepth = GRT_CPU_GEMM_DEPTH;
constexpr int64_t blockRows = GRT_CPU_GEMM_ROWS;
static_assert(blockRows % tileRows == 0);
static_assert(GRT_CPU_GEMM_LEAST_BYTES_OF_ROW %
                  (tileVectors * lanes<float> * sizeof(float)) ==
              0);

/// Transposes what stands in `count` lines of `depth` elements each, `stride`
/// apart: out[k * width + l] = lines[l * stride + k], a square of lanes at a
/// time. Lines that are missing are zero.
template <int width, class T>
inline __attribute__((always_inline)) void
packTransposed(const T *lines, int64_t stride, int64_t count, int64_t depth,
               Accumulator<T> *out) {
  using A = Accumulator<T>;
  constexpr int square = lanes<A>;
  sweep<A>(0, depth, [&](int64_t k, auto at) {
#pragma GCC unroll 16
    for (int l = 0; l < width; l += square) {
      constexpr int fullSquares = width / square;
      Vec<A> piece[square];
#pragma GCC unroll 16
      for (int i = 0; i < square; ++i)
        piece[i] = l + i < width && l + i < count
                       ? at.load(lines + (l + i) * stride + k)
                       : Vec<A>{};
      transposeSquare<A>(piece);
#pragma GCC unroll 16
      for (int i = 0; i < square; ++i) {
        if (i >= at.count)
          break;
        A *place = out + (k + i) * width + l;
        if (l / square < fullSquares)
          storeWhole(place, piece[i]);
        else
          storePart(place, piece[i], width % square);
      }
    }
  });
}

/// Packs op(b)[depth, cols] as panels of `width` columns, each [depth, width];
/// missing columns of the last panel are zero. One of the strides is 1. Memory
/// is read along its rows, whose ends may lie pages apart.
template <int width, class T>
void packColumns(const T *b, int64_t rowStride, int64_t columnStride,
                 int64_t depth, int64_t cols, Accumulator<T> *out) {
  using A = Accumulator<T>;
  if (rowStride == 1) {
    for (int64_t j = 0; j < cols; j += width)
      packTransposed<width>(b + j * columnStride, columnStride,
                            smaller(width, cols - j), depth, out + j * depth);
    return;
  }
  for (int64_t k = 0; k < depth; ++k) {
    const T *row = b + k * rowStride;
    A *place = out + k * width;
    int64_t j = 0;
    for (; j + width <= cols; j += width, place += depth * width)
#pragma GCC unroll 8
      for (int l = 0; l < width; l += lanes<A>) {
        const int count = width - l < lanes<A> ? width - l : lanes<A>;
        storePart(place + l, Vec<A>(loadPart(row + j + l, count)), count);
      }
    if (j < cols)
      for (int l = 0; l < width; ++l)
        place[l] = j + l < cols ? wide(row[j + l]) : A(0);
  }
}

/// Packs op(a)[rows, depth] as panels of tileRows rows, each [depth, tileRows]:
/// as columns, of the transposed matrix.
template <class T>
void packRows(const T *a, int64_t rowStride, int64_t columnStride, int64_t rows,
              int64_t depth, Accumulator<T> *out) {
  packColumns<tileRows>(a, columnStride, rowStride, depth, rows, out);
}

/// c[rows, cols] (+)= packed A times packed B.
template <class A>
void packedProduct(const A *packedA, const A *packedB, int64_t rows,
                   int64_t cols, int64_t depth, A *c, int64_t cStride,
                   bool add) {
  constexpr int64_t width = tileVectors * lanes<A>;
  A edge[tileRows * width];
  for (int64_t j = 0; j < cols; j += width) {
    const A *bPanel = packedB + j * depth;
    for (int64_t i = 0; i < rows; i += tileRows) {
      Strided<A> aPanel = {packedA + i * depth, 1, tileRows};
      A *place = c + i * cStride + j;
      int64_t height = smaller(tileRows, rows - i);
      int64_t across = smaller(width, cols - j);
      // While the sums are made; without that the end of a tile waits.
      for (int64_t r = 0; r < height; ++r) {
        __builtin_prefetch(place + r * cStride, /*rw=*/1);
        __builtin_prefetch(place + r * cStride + across - 1, /*rw=*/1);
      }
      if (height == tileRows && across == width) {
        tile<A, tileRows, tileVectors>(depth, aPanel, bPanel, width, place,
                                       cStride, add, Whole<A>());
        continue;
      }
      tile<A, tileRows, tileVectors>(depth, aPanel, bPanel, width, edge, width,
                                     false, Whole<A>());
      for (int64_t r = 0; r < height; ++r)
        for (int64_t l = 0; l < across; ++l)
          place[r * cStride + l] =
              add ? place[r * cStride + l] + edge[r * width + l]
                  : edge[r * width + l];
    }
  }
}

/// C is T or its accumulator type. A narrow c is summed in a wide block and
/// rounded once, so B is packed again for every block of rows.
template <class T, class C>
void gemm(const GemmBlocks &blocks, int64_t m, int64_t n, int64_t k, const T *a,
          bool transA, const T *b, bool transB, C *c, const T *bias, bool add) {
  using A = Accumulator<T>;
  constexpr bool rounds = sizeof(C) < sizeof(A);
  constexpr int64_t width = tileVectors * lanes<A>;
  const int64_t blockColumns = blocks.bytesOfRow / int64_t(sizeof(A));
  // The depths are those that grt_cpu_gemm_pack_bytes() counts.
  const int64_t mostDepth = smaller(blockDepth, k);
  const int64_t mostRows =
      smaller(blockRows, (m + tileRows - 1) / tileRows * tileRows);
  int64_t aRow = transA ? 1 : k, aColumn = transA ? m : 1;
  int64_t bRow = transB ? 1 : n, bColumn = transB ? k : 1;
  // Threads share out columns and pack for themselves.
  auto part = [&](int thread, int64_t begin, int64_t end) {
    A *packedB = reinterpret_cast<A *>(static_cast<char *>(blocks.memory) +
                                       thread * blocks.bytesPerThread);
    A *packedA = packedB + mostDepth * blockColumns;
    A *sums = packedA + (mostDepth + 1) * mostRows;
    auto packB = [&](int64_t k0, int64_t depth, int64_t j, int64_t cols) {
      packColumns<int(width)>(b + k0 * bRow + j * bColumn, bRow, bColumn, depth,
                              cols, packedB);
    };
    auto packA = [&](int64_t k0, int64_t depth, int64_t i, int64_t rows) {
      packRows(a + i * aRow + k0 * aColumn, aRow, aColumn, rows, depth,
               packedA);
    };
    for (int64_t j = begin; j < end; j += blockColumns) {
      int64_t cols = smaller(blockColumns, end - j);
      if constexpr (rounds) {
        for (int64_t i = 0; i < m; i += blockRows) {
          int64_t rows = smaller(blockRows, m - i);
          for (int64_t k0 = 0; k0 < k || k0 == 0; k0 += blockDepth) {
            int64_t depth = smaller(blockDepth, k - k0);
            packB(k0, depth, j, cols);
            packA(k0, depth, i, rows);
            packedProduct(packedA, packedB, rows, cols, depth, sums, cols,
                          k0 > 0);
          }
          for (int64_t r = 0; r < rows; ++r)
            sweep<A>(0, cols, [&](int64_t l, auto at) {
              Vec<A> sum = at.load(sums + r * cols + l);
              C *place = c + (i + r) * n + j + l;
              if (bias)
                sum += at.load(bias + j + l);
              at.store(place, add ? sum + at.load(place) : sum);
            });
        }
      } else {
        for (int64_t k0 = 0; k0 < k || k0 == 0; k0 += blockDepth) {
          int64_t depth = smaller(blockDepth, k - k0);
          packB(k0, depth, j, cols);
          for (int64_t i = 0; i < m; i += blockRows) {
            int64_t rows = smaller(blockRows, m - i);
            packA(k0, depth, i, rows);
            packedProduct(packedA, packedB, rows, cols, depth, c + i * n + j, n,
                          add || k0 > 0);
          }
        }
      }
    }
    if constexpr (!rounds)
      if (bias)
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = begin; j < end; ++j)
            c[i * n + j] += wide(bias[j]);
  };
  parallelFor(blocks.threads, n, width, part);
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_PRODUCTS_H
