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
  int64_t down, across;
  Divisor byWidth, byWindow, byAcross, byDown;

  Windows(const WindowsArguments &a, const T *x, T *y)
      : a(a), x(x), y(y), down(windowsOf(a.rows, a.window)),
        across(windowsOf(a.cols, a.window)), byWidth(a.width),
        byWindow(a.window), byAcross(across), byDown(down) {}

  template <int N> __device__ void run(int64_t e) const {
    const int64_t w = a.window;
    Quotient channel = byWidth.divide(e);
    Quotient second = byWindow.divide(channel.quotient);
    Quotient first = byWindow.divide(second.quotient);
    Quotient left = byAcross.divide(first.quotient);
    Quotient top = byDown.divide(left.quotient);
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

constexpr int meanPacks = 8, meanRows = 32;

/// y[s] = mean of x[s, t]. w bytes an element of x. A block has eight packs of
/// a sample's columns, and 32 threads for each of them take positions in turns.
template <class T, int N>
__global__ void __launch_bounds__(meanPacks *meanRows)
    meanKernel(MeanArguments a, const T *x, T *y) {
  using A = Accumulator<T>;
  constexpr int warps = meanPacks * meanRows / warpSize_;
  __shared__ A sums[warps][meanPacks * N];
  const int pack = int(threadIdx.x) % meanPacks;
  const int row = int(threadIdx.x) / meanPacks;
  const int64_t first = int64_t(blockIdx.x) * meanPacks * N;
  const int64_t sample = blockIdx.y;
  A sum[N] = {};
  if (first + pack * N < a.width) {
    const T *from = x + sample * a.positions * a.width + first + pack * N;
    loadAhead<8>(
        row, int(a.positions), meanRows,
        [&](int t) { return load<N>(from + t * a.width); },
        [&](int, const Pack<T, N> &in) {
          A value[N];
          widen(in, value);
          for (int e = 0; e < N; ++e)
            sum[e] += value[e];
        });
  }
  for (int e = 0; e < N; ++e) {
    // The rows of a warp.
    for (int lanes = meanPacks; lanes < warpSize_; lanes *= 2)
      sum[e] += __shfl_xor_sync(~0u, sum[e], lanes);
    if (threadIdx.x % warpSize_ < meanPacks)
      sums[threadIdx.x / warpSize_][pack * N + e] = sum[e];
  }
  __syncthreads();
  const int column = int(threadIdx.x);
  if (column >= meanPacks * N || first + column >= a.width)
    return;
  A total = sums[0][column];
  for (int w = 1; w < warps; ++w)
    total += sums[w][column];
  y[sample * a.width + first + column] =
      narrow<T>(total * (A(1) / A(a.positions)));
}

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

constexpr int pairSide = 64, pairPacks = pairSide / 8;

/// The same of 16 bits, in squares of 64 by 64 and packs of 8: a thread takes
/// packs of two rows, and puts what stands below each other into one word of
/// shared memory. A row of words is one longer than the 32 it has, and the
/// lanes of a warp take 4 packs of 8 pairs of rows, so that their words lie in
/// 32 banks, going in and coming out.
template <class T>
__global__ void __launch_bounds__(pairPacks *pairSide / 2)
    transposePairsKernel(int64_t rows, int64_t cols, Divisor across,
                         Divisor down, const T *x, T *y) {
  constexpr int stride = pairSide / 2 + 1;
  __shared__ uint32_t words[pairSide * stride];
  const Quotient left = across.divide(int64_t(blockIdx.x));
  const Quotient top = down.divide(left.quotient);
  const int64_t matrix = top.quotient * rows * cols;
  const int64_t firstRow = top.rest * pairSide, firstCol = left.rest * pairSide;
  const int thread = int(threadIdx.x);
  {
    const int pack = thread % 4 + thread / 128 * 4;
    const int pair = thread / 4 % (pairSide / 2);
    const int64_t row = firstRow + 2 * pair, col = firstCol + 8 * pack;
    // Rows are packs too, so both of a pair are there or neither.
    if (row < rows && col < cols) {
      const auto upper = load<8>(x + matrix + row * cols + col);
      const auto lower = load<8>(x + matrix + (row + 1) * cols + col);
      for (int e = 0; e < 8; ++e)
        words[(8 * pack + e) * stride + pair] =
            uint32_t(upper.at[e].bits) | uint32_t(lower.at[e].bits) << 16;
    }
  }
  __syncthreads();
  for (int c = thread / pairPacks; c < pairSide; c += pairSide / 2) {
    const int pack = thread % pairPacks;
    const int64_t row = firstCol + c, col = firstRow + 8 * pack;
    if (row < cols && col < rows) {
      Pack<uint32_t, 4> out;
      for (int e = 0; e < 4; ++e)
        out.at[e] = words[c * stride + 4 * pack + e];
      store<4>(reinterpret_cast<uint32_t *>(y + matrix + row * rows + col),
               out);
    }
  }
}

} // namespace

template <class T>
void windows(const Queue &queue, const WindowsArguments &a, const T *x, T *y) {
  int64_t n = a.samples * windowsOf(a.rows, a.window) *
              windowsOf(a.cols, a.window) * a.window * a.window * a.width;
  map<T>(queue, n, a.width, {x, y}, Windows<T>(a, x, y));
}

template <class T>
void dropPath(const Queue &queue, const DropPathArguments &a, const T *x,
              T *y) {
  map<T>(queue, a.samples * a.elements, a.elements, {x, y},
         DropPath<T>{a, x, y});
}

template <class T>
void mean(const Queue &queue, const MeanArguments &a, const T *x, T *y) {
  auto run = [&](auto *kernel, int64_t pack) {
    const int64_t columns = meanPacks * pack;
    launch(
        kernel,
        dim3(unsigned((a.width + columns - 1) / columns), unsigned(a.samples)),
        dim3(meanPacks * meanRows), 0, queue.stream, a, x, y);
  };
  constexpr int N = packSize<T>;
  if (a.samples <= 0 || a.width <= 0)
    return;
  if (a.width % N == 0 && aligned({x}))
    run(meanKernel<T, N>, N);
  else
    run(meanKernel<T, 1>, 1);
}

template <class T>
void meanGrad(const Queue &queue, const MeanArguments &a, const T *dy, T *dx) {
  map<T>(queue, a.samples * a.positions * a.width, a.width, {dy, dx},
         MeanGrad<T>{a, dy, dx});
}

template <class T>
void transpose(const Queue &queue, int64_t count, int64_t rows, int64_t cols,
               const T *x, T *y) {
  if constexpr (sizeof(T) == 2)
    if (rows % 8 == 0 && cols % 8 == 0 && aligned({x, y})) {
      const int64_t down = windowsOf(rows, pairSide),
                    across = windowsOf(cols, pairSide);
      if (count * down * across > 0)
        launch(transposePairsKernel<T>, dim3(unsigned(count * down * across)),
               dim3(pairPacks * pairSide / 2), 0, queue.stream, rows, cols,
               Divisor(across), Divisor(down), x, y);
      return;
    }
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
