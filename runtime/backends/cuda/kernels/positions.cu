//===- positions.cu - Windows of a grid, means, transposes ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All of these are bound by memory. Bytes are stated for an element of w bytes.
//
//===----------------------------------------------------------------------===//

#include "elements.h"
#include "kernels.h"
#include "map.h"

namespace grt::cuda {
namespace {

GRT_EVERYWHERE int64_t windowsOf(int64_t positions, int64_t window) {
  return (positions + window - 1) / window;
}

/// Positions of a grid into windows, or back. 2w bytes an element; threads
/// stand over elements of windows, whose rows are whole in the grid.
template <class T> struct Windows {
  WindowsArguments a;
  const T *x;
  T *y;
  template <int N> __device__ void run(int64_t e) const {
    const int64_t w = a.window, down = windowsOf(a.rows, w),
                  across = windowsOf(a.cols, w);
    Quotient channel = divide(e, a.width);
    Quotient second = divide(channel.quotient, w);
    Quotient first = divide(second.quotient, w);
    Quotient left = divide(first.quotient, across);
    Quotient top = divide(left.quotient, down);
    int64_t i = a.merge ? second.rest : first.rest;
    int64_t j = a.merge ? first.rest : second.rest;
    int64_t row = top.rest * w + i + a.shift, col = left.rest * w + j + a.shift;
    row -= row >= down * w ? down * w : 0;
    col -= col >= across * w ? across * w : 0;
    int64_t place =
        ((top.quotient * a.rows + row) * a.cols + col) * a.width + channel.rest;
    if (row < a.rows && col < a.cols) {
      store<N>(y + (a.join ? place : e), load<N>(x + (a.join ? e : place)));
    } else if (!a.join) {
      Pack<T, N> zeros;
      for (int n = 0; n < N; ++n)
        zeros.at[n] = narrow<T>(Accumulator<T>(0));
      store<N>(y + e, zeros);
    }
  }
};

/// y = x, samples dropped. 2w bytes an element.
template <class T> struct DropPath {
  DropPathArguments a;
  const T *x;
  T *y;
  template <int N> __device__ void run(int64_t i) const {
    const grt_step &step = *a.key.step;
    Accumulator<T> factor = 1;
    if (a.key.p > 0 && step.mode == GRT_MODE_TRAIN) {
      PhiloxBlock block =
          dropoutBlock(dropoutKey(step.seed, step.step, a.key.layer),
                       a.firstSample + uint64_t(divide(i, a.elements).quotient),
                       0, a.key.opIndex);
      factor = block.lane[0] >= dropoutThreshold(a.key.p)
                   ? Accumulator<T>(1 / (1 - a.key.p))
                   : Accumulator<T>(0);
    }
    Pack<T, N> in = load<N>(x + i), out;
    for (int e = 0; e < N; ++e)
      out.at[e] = narrow<T>(wide(in.at[e]) * factor);
    store<N>(y + i, out);
  }
};

/// y[s] = mean of x[s, t]. w bytes an element of x; a thread has a column of a
/// sample.
template <class T> struct Mean {
  MeanArguments a;
  const T *x;
  T *y;
  template <int N> __device__ void run(int64_t i) const {
    Quotient column = divide(i, a.width);
    const T *from = x + column.quotient * a.positions * a.width + column.rest;
    Accumulator<T> sums[N] = {};
    for (int64_t t = 0; t < a.positions; ++t) {
      Pack<T, N> in = load<N>(from + t * a.width);
      for (int e = 0; e < N; ++e)
        sums[e] += wide(in.at[e]);
    }
    Pack<T, N> out;
    for (int e = 0; e < N; ++e)
      out.at[e] = narrow<T>(sums[e] *
                            (Accumulator<T>(1) / Accumulator<T>(a.positions)));
    store<N>(y + i, out);
  }
};

/// dx[s, t] = dy[s] / positions. w bytes an element of dx.
template <class T> struct MeanGrad {
  MeanArguments a;
  const T *dy;
  T *dx;
  template <int N> __device__ void run(int64_t i) const {
    Quotient column = divide(i, a.width);
    int64_t sample = divide(column.quotient, a.positions).quotient;
    Pack<T, N> in = load<N>(dy + sample * a.width + column.rest), out;
    for (int e = 0; e < N; ++e)
      out.at[e] = narrow<T>(wide(in.at[e]) *
                            (Accumulator<T>(1) / Accumulator<T>(a.positions)));
    store<N>(dx + i, out);
  }
};

constexpr int squareSide = 32, squareRows = 8;

/// A block a square of a matrix, through shared memory: reads and writes are of
/// whole rows. 2w bytes an element.
template <class T>
__global__ void __launch_bounds__(squareSide *squareRows)
    transposeKernel(int64_t rows, int64_t cols, const T *x, T *y) {
  __shared__ T square[squareSide * (squareSide + 1)];
  const int64_t across = (cols + squareSide - 1) / squareSide;
  const int64_t down = (rows + squareSide - 1) / squareSide;
  const Quotient left = divide(int64_t(blockIdx.x), across);
  const Quotient top = divide(left.quotient, down);
  const int64_t matrix = top.quotient * rows * cols;
  const int64_t firstRow = top.rest * squareSide;
  const int64_t firstCol = left.rest * squareSide;
  const int lane = int(threadIdx.x) % squareSide;
  const int first = int(threadIdx.x) / squareSide;
  for (int r = first; r < squareSide; r += squareRows)
    if (firstRow + r < rows && firstCol + lane < cols)
      square[r * (squareSide + 1) + lane] =
          x[matrix + (firstRow + r) * cols + firstCol + lane];
  __syncthreads();
  for (int c = first; c < squareSide; c += squareRows)
    if (firstCol + c < cols && firstRow + lane < rows)
      y[matrix + (firstCol + c) * rows + firstRow + lane] =
          square[lane * (squareSide + 1) + c];
}

} // namespace

template <class T>
void windows(const Queue &queue, const WindowsArguments &a, const T *x, T *y) {
  int64_t n = a.samples * windowsOf(a.rows, a.window) *
              windowsOf(a.cols, a.window) * a.window * a.window * a.width;
  map<T>(queue, n, a.width, {x, y}, Windows<T>{a, x, y});
}

template <class T>
void dropPath(const Queue &queue, const DropPathArguments &a, const T *x,
              T *y) {
  map<T>(queue, a.samples * a.elements, a.elements, {x, y},
         DropPath<T>{a, x, y});
}

template <class T>
void mean(const Queue &queue, const MeanArguments &a, const T *x, T *y) {
  map<T>(queue, a.samples * a.width, a.width, {x, y}, Mean<T>{a, x, y});
}

template <class T>
void meanGrad(const Queue &queue, const MeanArguments &a, const T *dy, T *dx) {
  map<T>(queue, a.samples * a.positions * a.width, a.width, {dy, dx},
         MeanGrad<T>{a, dy, dx});
}

template <class T>
void transpose(const Queue &queue, int64_t count, int64_t rows, int64_t cols,
               const T *x, T *y) {
  int64_t blocks =
      count * windowsOf(rows, squareSide) * windowsOf(cols, squareSide);
  if (blocks > 0)
    launch(transposeKernel<T>, dim3(unsigned(blocks)),
           dim3(squareSide * squareRows), 0, queue.stream, rows, cols, x, y);
}

#define GRT_INSTANTIATE(T)                                                     \
  template void windows(const Queue &, const WindowsArguments &, const T *,    \
                        T *);                                                  \
  template void dropPath(const Queue &, const DropPathArguments &, const T *,  \
                         T *);                                                 \
  template void mean(const Queue &, const MeanArguments &, const T *, T *);    \
  template void meanGrad(const Queue &, const MeanArguments &, const T *,      \
                         T *);                                                 \
  template void transpose(const Queue &, int64_t, int64_t, int64_t, const T *, \
                          T *)
GRT_INSTANTIATE(float);
GRT_INSTANTIATE(double);
GRT_INSTANTIATE(BF16);

} // namespace grt::cuda
