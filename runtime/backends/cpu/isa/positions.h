//===- positions.h - Windows of a grid, means, transposes -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All are bound by memory. Rows go whole, and threads share out rows of the
// result.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_POSITIONS_H
#define GRT_BACKENDS_CPU_ISA_POSITIONS_H

#include "math.h"
#include "vector.h"

namespace grt::cpu {
namespace {

/// The places of the rows of windows in the grid.
struct WindowPlaces {
  const WindowsArguments &a;
  int64_t down, across;
  explicit WindowPlaces(const WindowsArguments &a)
      : a(a), down((a.rows + a.window - 1) / a.window),
        across((a.cols + a.window - 1) / a.window) {}
  int64_t inSample() const { return down * across * a.window * a.window; }
  /// The grid's row of position `place` of a sample's windows; -1: a zero.
  int64_t inGrid(int64_t place) const {
    const int64_t w = a.window;
    int64_t inside = place % (w * w), window = place / (w * w);
    int64_t i = inside / w, j = inside % w;
    if (a.merge) {
      int64_t swapped = i;
      i = j;
      j = swapped;
    }
    int64_t row = (window / across * w + i + a.shift) % (down * w);
    int64_t col = (window % across * w + j + a.shift) % (across * w);
    return row < a.rows && col < a.cols ? row * a.cols + col : -1;
  }
};

template <class T>
void windows(int threads, const WindowsArguments &a, const T *x, T *y) {
  const WindowPlaces places(a);
  const int64_t inSample = places.inSample(), inGrid = a.rows * a.cols;
  const size_t bytes = size_t(a.width) * sizeof(T);
  // Every position of the grid is in one window, so both ways the rows of
  // windows may be shared out.
  parallelFor(
      threadsForElements(threads, a.samples * inSample * a.width),
      a.samples * inSample, rowGrain(a.width),
      [&](int, int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          int64_t place = places.inGrid(row % inSample);
          int64_t there = row / inSample * inGrid + place;
          if (place < 0) {
            if (!a.join)
              __builtin_memset(y + row * a.width, 0, bytes);
          } else if (a.join) {
            __builtin_memcpy(y + there * a.width, x + row * a.width, bytes);
          } else {
            __builtin_memcpy(y + row * a.width, x + there * a.width, bytes);
          }
        }
      });
}

template <class T>
void dropPath(int threads, const DropPathArguments &a, const T *x, T *y) {
  using A = Accumulator<T>;
  parallelFor(threadsForElements(threads, a.samples * a.elements), a.samples, 1,
              [&](int, int64_t begin, int64_t end) {
                for (int64_t s = begin; s < end; ++s) {
                  Lanes32 low, high;
                  rowCounters(a.firstSample + uint64_t(s), low, high);
                  Lanes32 number[4] = {low, high, splat(uint32_t(0)),
                                       splat(a.stream.opIndex)};
                  philoxLanes(a.stream.keyLo, a.stream.keyHi, number);
                  const A factor = number[0][0] >= a.stream.threshold
                                       ? A(a.stream.keptScale)
                                       : A(0);
                  sweep<A>(0, a.elements, [&](int64_t i, auto at) {
                    at.store(y + s * a.elements + i,
                             at.load(x + s * a.elements + i) * factor);
                  });
                }
              });
}

/// Threads share out columns of samples; positions are added in their order.
template <class T>
void mean(int threads, const MeanArguments &a, const T *x, T *y) {
  using A = Accumulator<T>;
  constexpr int64_t most = 4 * lanes<A>;
  const int64_t pieces = (a.width + most - 1) / most;
  const int64_t skipped = a.besideFirst ? 1 : 0;
  const A factor = A(1) / A(a.positions - skipped);
  parallelFor(threadsForElements(threads, a.samples * a.positions * a.width),
              a.samples * pieces, 1, [&](int, int64_t begin, int64_t end) {
                for (int64_t piece = begin; piece < end; ++piece) {
                  const int64_t sample = piece / pieces;
                  const int64_t first = piece % pieces * most;
                  const int64_t count = smaller(most, a.width - first);
                  A sums[most] = {};
                  const T *from = x + sample * a.positions * a.width + first;
                  T *to = y + sample * (1 + skipped) * a.width + first;
                  if (a.besideFirst) {
                    __builtin_memcpy(to, from, size_t(count) * sizeof(T));
                    from += a.width;
                    to += a.width;
                  }
                  for (int64_t t = skipped; t < a.positions;
                       ++t, from += a.width)
                    sweep<A>(0, count, [&](int64_t i, auto at) {
                      at.store(sums + i, at.load(sums + i) + at.load(from + i));
                    });
                  sweep<A>(0, count, [&](int64_t i, auto at) {
                    at.store(to + i, at.load(sums + i) * factor);
                  });
                }
              });
}

template <class T>
void meanGrad(int threads, const MeanArguments &a, const T *dy, T *dx) {
  using A = Accumulator<T>;
  const int64_t skipped = a.besideFirst ? 1 : 0;
  const A factor = A(1) / A(a.positions - skipped);
  parallelFor(threadsForElements(threads, a.samples * a.positions * a.width),
              a.samples * a.positions, rowGrain(a.width),
              [&](int, int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                  const bool isFirst = skipped && row % a.positions == 0;
                  const T *from = dy + (row / a.positions * (1 + skipped) +
                                        (isFirst ? 0 : skipped)) *
                                           a.width;
                  const A by = isFirst ? A(1) : factor;
                  T *to = dx + row * a.width;
                  sweep<A>(0, a.width, [&](int64_t i, auto at) {
                    at.store(to + i, at.load(from + i) * by);
                  });
                }
              });
}

/// Transposes square by square, so that both sides use whole cache lines.
template <class T>
void transpose(int threads, int64_t count, int64_t rows, int64_t cols,
               const T *x, T *y) {
  constexpr int64_t square = 32;
  const int64_t down = (rows + square - 1) / square;
  const int64_t across = (cols + square - 1) / square;
  parallelFor(threadsForElements(threads, count * rows * cols),
              count * across * down, 1, [&](int, int64_t begin, int64_t end) {
                for (int64_t piece = begin; piece < end; ++piece) {
                  const int64_t matrix = piece / (down * across) * rows * cols;
                  const int64_t c0 = piece / down % across * square;
                  const int64_t r0 = piece % down * square;
                  const int64_t c1 = smaller(c0 + square, cols);
                  const int64_t r1 = smaller(r0 + square, rows);
                  for (int64_t c = c0; c < c1; ++c)
                    for (int64_t r = r0; r < r1; ++r)
                      y[matrix + c * rows + r] = x[matrix + r * cols + c];
                }
              });
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_POSITIONS_H
