//===- sums.cu - Kernels that sum over rows or columns --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sums over rows are taken in chunks, one block each, whose number depends on
// the shape alone; the chunks' sums go to the workspace and are added in order
// by a second, small kernel. All kernels here are bound by memory.
//
//===----------------------------------------------------------------------===//

#include "elements.h"
#include "kernels.h"
#include "normalize.h"

namespace grt::cuda {
namespace {

/// Runs of rows that are summed apart.
struct Chunks {
  int64_t count, rows;
};
/// At most `most` chunks of at least `least` rows whose sums, `bytes` a chunk,
/// fit the workspace.
Chunks chunksOf(const Queue &queue, int64_t rows, int64_t least, int64_t most,
                int64_t bytes) {
  most = std::min(most, int64_t(queue.workspaceBytes) / bytes);
  if (most < 1)
    throw DeviceError("column sums of " + std::to_string(bytes) +
                      " bytes do not fit the workspace of " +
                      std::to_string(queue.workspaceBytes));
  int64_t size = std::max(least, ceilDivide(rows, most));
  return {ceilDivide(rows, size), size};
}

//===--- Sums of chunks into results
//---------------------------------------===//

constexpr int finishColumns = 8, finishRows = 32;

/// partial[chunk][value][n] -> out[value][n], a value a row of the grid. Bytes:
/// those of the partial sums. Few columns a block and all its loads under way
/// at once: what this kernel takes is the way to memory and back. A value
/// without an `out` is left out.
template <class A>
__global__ void __launch_bounds__(finishColumns *finishRows)
    finishKernel(int chunks, int64_t n, const A *partial, A *out0, A *out1,
                 bool add) {
  constexpr int warps = finishColumns * finishRows / warpSize_;
  __shared__ A sums[warps][finishColumns];
  const int x = int(threadIdx.x) % finishColumns;
  const int y = int(threadIdx.x) / finishColumns;
  const int64_t column = int64_t(blockIdx.x) * finishColumns + x;
  const int64_t stride = int64_t(gridDim.y) * n;
  A sum = 0;
  if (column < n) {
    const A *from = partial + int64_t(blockIdx.y) * n + column;
    loadAhead<8>(
        y, chunks, finishRows, [&](int c) { return from[c * stride]; },
        [&](int, A value) { sum += value; });
  }
  // The rows of a warp, then the warps.
  for (int lanes = finishColumns; lanes < warpSize_; lanes *= 2)
    sum += __shfl_xor_sync(~0u, sum, lanes);
  if (threadIdx.x % warpSize_ < finishColumns)
    sums[threadIdx.x / warpSize_][x] = sum;
  __syncthreads();
  if (y != 0 || column >= n)
    return;
  for (int w = 1; w < warps; ++w)
    sum += sums[w][x];
  A *out = blockIdx.y == 0 ? out0 : out1;
  if (!out)
    return;
  out[column] = add ? out[column] + sum : sum;
}

template <class A, int Values>
void finish(const Queue &queue, int64_t chunks, int64_t n, A *out0, A *out1,
            bool add) {
  launch(finishKernel<A>,
         dim3(unsigned(ceilDivide(n, finishColumns)), unsigned(Values)),
         dim3(finishColumns * finishRows), 0, queue.stream, int(chunks), n,
         static_cast<const A *>(queue.workspace), out0, out1, add);
}

//===--- BIAS_GRAD
//---------------------------------------------------------===//

constexpr int columnPacks = 32, columnRows = 8;

/// Sums of dy, or of dy * x where there is an x, over the rows of a chunk. w or
/// 2w bytes an element, 1 addition.
template <class T, int N, bool Weighted>
__global__ void __launch_bounds__(columnPacks *columnRows)
    columnSumsKernel(int64_t rows, int64_t n, int64_t chunkRows, const T *dy,
                     const T *x, Accumulator<T> *partial) {
  using A = Accumulator<T>;
  __shared__ A sums[columnRows][columnPacks * N];
  int across = int(threadIdx.x) % columnPacks,
      y = int(threadIdx.x) / columnPacks;
  int64_t column = (int64_t(blockIdx.x) * columnPacks + across) * N;
  int64_t begin = int64_t(blockIdx.y) * chunkRows;
  int64_t end = begin + chunkRows < rows ? begin + chunkRows : rows;
  A sum[N] = {};
  if (column < n) {
    const int64_t first = (begin + y) * n + column;
    loadAhead<8>(
        0, int(end - begin) - y, columnRows,
        [&](int r) { return load<N>(dy + first + r * n); },
        [&](int r, const Pack<T, N> &in) {
          A value[N];
          widen(in, value);
          if constexpr (Weighted) {
            A factor[N];
            widen(load<N>(x + first + r * n), factor);
            for (int e = 0; e < N; ++e)
              value[e] *= factor[e];
          }
          for (int e = 0; e < N; ++e)
            sum[e] += value[e];
        });
  }
  for (int e = 0; e < N; ++e)
    sums[y][across * N + e] = sum[e];
  __syncthreads();
  // A column a thread.
  for (int c = int(threadIdx.x); c < columnPacks * N;
       c += columnPacks * columnRows) {
    int64_t place = int64_t(blockIdx.x) * columnPacks * N + c;
    if (place >= n)
      continue;
    A total = sums[0][c];
    for (int i = 1; i < columnRows; ++i)
      total += sums[i][c];
    partial[int64_t(blockIdx.y) * n + place] = total;
  }
}

//===--- LAYER_NORM
//--------------------------------------------------------===//

/// Mean and variance in two passes over registers, then y. 2w bytes an element,
/// some 12 instructions.
template <class T, class Plan, bool Shifted, bool Scaled>
__global__ void __launch_bounds__(Plan::block)
    layerNormKernel(int64_t rows, int n, const T *x, const T *gamma,
                    const T *beta, T *y, Accumulator<T> *stats,
                    Accumulator<T> inverseN, Accumulator<T> eps) {
  using A = Accumulator<T>;
  constexpr int N = Plan::N;
  const int64_t r = Plan::row();
  // Teams past the end stay for the barriers.
  const int length = r < rows ? n : 0;
  const T *row = x + r * n;
  Pack<T, N> held[Plan::held];
  auto loadPack = [&](int i, int k) { held[k] = load<N>(row + i); };
  if constexpr (Plan::K > 0)
    Plan::each(length, loadPack);
  A sum = 0;
  Plan::each(length, [&](int i, int k) {
    if constexpr (Plan::K == 0)
      loadPack(i, k);
    A value[N];
    widen(held[k], value);
    sum += sumOf(value);
  });
  normalizeRow<Plan, Shifted, Scaled>(row, held, r, n, length, inverseN, sum,
                                      gamma, beta, y, stats, eps);
}

//===--- RMS_NORM
//----------------------------------------------------------===//

/// 2w bytes an element, some 8 instructions.
template <class T, class Plan>
__global__ void __launch_bounds__(Plan::block)
    rmsNormKernel(int64_t rows, int n, const T *x, const T *gamma, T *y,
                  Accumulator<T> *stats, bool unitOffset,
                  Accumulator<T> inverseN, Accumulator<T> eps) {
  using A = Accumulator<T>;
  constexpr int N = Plan::N;
  const int64_t r = Plan::row();
  // Teams past the end stay for the barriers.
  const int length = r < rows ? n : 0;
  const T *row = x + r * n;
  Pack<T, N> held[Plan::held];
  auto loadPack = [&](int i, int k) { held[k] = load<N>(row + i); };
  if constexpr (Plan::K > 0)
    Plan::each(length, loadPack);
  A squares = 0;
  Plan::each(length, [&](int i, int k) {
    if constexpr (Plan::K == 0)
      loadPack(i, k);
    A value[N];
    widen(held[k], value);
    for (int e = 0; e < N; ++e)
      value[e] *= value[e];
    squares += sumOf(value);
  });
  squares = teamSum<Plan::Threads>(squares);
  const A inverse = A(1) / squareRoot(multiplyAdd(squares, inverseN, eps));
  if (length > 0 && Plan::first() == 0)
    stats[r] = inverse;
  T *to = y + r * n;
  Plan::each(length, [&](int i, int k) {
    if constexpr (Plan::K == 0)
      loadPack(i, k);
    A value[N], scale[N];
    widen(held[k], value);
    widen(load<N>(gamma + i), scale);
    for (int e = 0; e < N; ++e)
      value[e] *= inverse;
    // What is scaled is rounded first, or not, as models that were trained
    // elsewhere have it.
    if (!unitOffset)
      widen(narrowAll<T, N>(value), value);
    for (int e = 0; e < N; ++e)
      value[e] *= unitOffset ? scale[e] + A(1) : scale[e];
    store<N>(to + i, narrowAll<T, N>(value));
  });
}

//===--- LAYER_NORM_GRAD, RMS_NORM_GRAD
//---------------------------------------------------===//

constexpr int gradThreads = 256;
/// Chunks at most: two blocks for each of an H100's multiprocessors, which hold
/// two of them, so that all are there at once. Their sums are 4% of what 16,384
/// rows in bf16 move, 1% of 65,536.
constexpr int64_t gradChunks = 264;
/// Packs of a row that a thread has at most: beyond, its column sums leave no
/// room for two blocks a multiprocessor.
constexpr int gradPacks = 4;

/// With x^ the normalised input and g = dy gamma: dx = (g - mean(g) - x^ mean(g
/// x^)) / sqrt(var + eps), plus the residual's if there is one; dgamma sums dy
/// x^, dbeta dy. A block takes the rows of a chunk, as many at a time as it has
/// teams of `teamThreads` threads; a thread has up to K packs of a row, and the
/// column sums of those in registers. Everything is read once: 3w bytes an
/// element, some 22 instructions; 4w and 24 with a residual. Without `Centered`
/// it is the gradient of an RMS norm: nothing is subtracted, there is no dbeta,
/// and stats has one number a row. `offset` is added to gamma.
///
/// Memory bounds it as long as enough of it is on its way. Column sums take too
/// many registers for more than 16 warps on a multiprocessor, so rows do not
/// wait in registers: while one is worked on, the next is copied to shared
/// memory, two sets in turn; its residual, which is wanted later, to a third
/// place as soon as that is free. A thread reads only what it fetched itself,
/// so that rows of one warp need no barrier. With rows of 768 elements in bf16,
/// 16 warps have 73 KB under way, 49 without a residual; 26 are enough for 4.8
/// TB/s at 700 ns.
template <class T, int N, int K, bool Centered, bool Residual>
__global__ void __launch_bounds__(gradThreads, sizeof(T) == 2 ? 2 : 1)
    normGradKernel(int64_t rows, int n, int64_t chunkRows, int teamThreads,
                   Accumulator<T> inverseN, Accumulator<T> offset, const T *dy,
                   const T *x, const Accumulator<T> *stats, const T *gamma,
                   const T *residual, T *dx, Accumulator<T> *partial) {
  using A = Accumulator<T>;
  constexpr int values = Centered ? 2 : 1;
  __shared__ A parts[2][2][gradThreads / warpSize_];
  const int teams = gradThreads / teamThreads;
  const int team = int(threadIdx.x) / teamThreads;
  const int lane = int(threadIdx.x) % teamThreads;
  const int warp = int(threadIdx.x) / warpSize_;
  const int warps = teamThreads / warpSize_;
  // [set][dy, x][k], residuals [k], all of a pack a thread; gamma as it is
  // counted with, [k] of a pack a lane.
  auto *const memory = dynamicShared<Pack<T, N>>();
  auto *const mine = memory + threadIdx.x;
  constexpr int setPacks = 2 * K * gradThreads;
  auto *const past = mine + 2 * setPacks;
  A *const scales =
      reinterpret_cast<A *>(memory + (Residual ? 5 : 4) * K * gradThreads) +
      lane * N;
  // From one pack of a thread to its next.
  const int stride = teamThreads * N;
  auto columnOf = [&](int k) { return k * stride + lane * N; };
  auto has = [&](int k) { return columnOf(k) < n; };
  auto scaleOf = [&](int k, A(&scale)[N]) {
    const auto pack = load<N>(scales + k * stride);
    for (int e = 0; e < N; ++e)
      scale[e] = pack.at[e];
  };

  const int64_t begin = int64_t(blockIdx.x) * chunkRows;
  const int64_t end = begin + chunkRows < rows ? begin + chunkRows : rows;
  // Rows of this team that are left, and where its first packs stand: of the
  // row that is fetched next, and of the one that is worked on.
  int left = int(end - begin) - team;
  const int64_t first = (begin + team) * n + lane * N,
                step = int64_t(teams) * n;
  const T *dyAt = dy + first, *xAt = x + first;
  const T *pastAt = Residual ? residual + first : nullptr;
  T *to = dx + first;
  const A *statsAt = stats + (begin + team) * values;
  A nextMean = 0, nextInverse = 0;
  auto fetchRow = [&](int set, bool there) {
    if (there) {
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (has(k)) {
          fetchPack(mine + set * setPacks + k * gradThreads, dyAt + k * stride);
          fetchPack(mine + set * setPacks + (K + k) * gradThreads,
                    xAt + k * stride);
        }
      if (Centered)
        nextMean = statsAt[0];
      nextInverse = statsAt[values - 1];
      dyAt += step;
      xAt += step;
      statsAt += teams * values;
    }
    endGroupOfCopies();
  };
  auto fetchPast = [&](bool there) {
    if constexpr (Residual) {
      if (there) {
#pragma unroll
        for (int k = 0; k < K; ++k)
          if (has(k))
            fetchPack(past + k * gradThreads, pastAt + k * stride);
        pastAt += step;
      }
      endGroupOfCopies();
    }
  };
  fetchRow(0, left > 0);
  fetchPast(left > 0);
  if (team == 0)
    for (int k = 0; k < K; ++k)
      if (has(k)) {
        A scale[N];
        widen(load<N>(gamma + columnOf(k)), scale);
        for (int e = 0; e < N; ++e)
          scales[k * stride + e] = scale[e] + offset;
      }
  __syncthreads();

  A gammaSum[K][N] = {}, betaSum[K][N] = {};
  int set = 0;
  // Teams past the end stay for the barriers.
  for (int turns = (int(end - begin) + teams - 1) / teams; turns > 0; --turns) {
    const bool there = left > 0;
    const A mean = nextMean, inverse = nextInverse;
    // All but the residual, which was asked for last.
    waitForGroups<Residual ? 1 : 0>();
    left -= teams;
    fetchRow(1 - set, left > 0);
    const auto *const dyPacks = mine + set * setPacks;
    const auto *const xPacks = dyPacks + K * gradThreads;
    A sum = 0, product = 0;
    if (there)
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (has(k)) {
          A d[N], in[N], scale[N];
          widen(dyPacks[k * gradThreads], d);
          widen(xPacks[k * gradThreads], in);
          scaleOf(k, scale);
#pragma unroll
          for (int e = 0; e < N; ++e) {
            const A g = d[e] * scale[e], normal = (in[e] - mean) * inverse;
            gammaSum[k][e] = multiplyAdd(d[e], normal, gammaSum[k][e]);
            if (Centered) {
              betaSum[k][e] += d[e];
              sum += g;
            }
            product = multiplyAdd(g, normal, product);
          }
        }
    if (Centered)
      sum = warpSum(sum);
    product = warpSum(product);
    if (warps > 1) {
      // Two sets in turn: one barrier for the rows of all teams.
      if (threadIdx.x % warpSize_ == 0) {
        parts[set][0][warp] = sum;
        parts[set][1][warp] = product;
      }
      __syncthreads();
      sum = parts[set][0][team * warps];
      product = parts[set][1][team * warps];
#pragma unroll 1
      for (int w = 1; w < warps; ++w) {
        sum += parts[set][0][team * warps + w];
        product += parts[set][1][team * warps + w];
      }
    }
    // dx = g inverse + (x - mean) slope + shift
    const A slope = -product * inverseN * inverse * inverse;
    const A shift = -sum * inverseN * inverse;
    if (Residual)
      waitForGroups<1>();
    if (there)
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (has(k)) {
          A d[N], in[N], scale[N], add[N];
          widen(dyPacks[k * gradThreads], d);
          widen(xPacks[k * gradThreads], in);
          scaleOf(k, scale);
          if constexpr (Residual)
            widen(past[k * gradThreads], add);
#pragma unroll
          for (int e = 0; e < N; ++e) {
            A value = d[e] * scale[e];
            value =
                Centered ? multiplyAdd(value, inverse, shift) : value * inverse;
            value = multiplyAdd(in[e] - mean, slope, value);
            d[e] = Residual ? value + add[e] : value;
          }
          store<N>(to + k * stride, narrowAll<T, N>(d));
        }
    to += step;
    fetchPast(left > 0);
    set = 1 - set;
  }
  // The sums of the teams, in their order: where rows stood.
  __syncthreads();
  A *const sums = reinterpret_cast<A *>(memory);
  const int columns = values * n;
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (has(k)) {
      Pack<A, N> pack;
      for (int e = 0; e < N; ++e)
        pack.at[e] = gammaSum[k][e];
      store<N>(sums + team * columns + columnOf(k), pack);
      for (int e = 0; e < N; ++e)
        pack.at[e] = betaSum[k][e];
      if (Centered)
        store<N>(sums + team * columns + n + columnOf(k), pack);
    }
  __syncthreads();
  A *out = partial + int64_t(blockIdx.x) * columns;
  for (int i = int(threadIdx.x); i < columns; i += gradThreads) {
    A total = sums[i];
    for (int t = 1; t < teams; ++t)
      total += sums[t * columns + i];
    out[i] = total;
  }
}

/// Rows too wide for registers: the column sums first (dx may stand where dy
/// stood), then dx; dy and x are read twice, 5w bytes an element.
template <class T, bool Centered>
__global__ void __launch_bounds__(gradThreads)
    wideColumnsKernel(int64_t rows, int64_t n, int64_t chunkRows, const T *dy,
                      const T *x, const Accumulator<T> *stats,
                      Accumulator<T> *partial) {
  using A = Accumulator<T>;
  int64_t column = int64_t(blockIdx.x) * gradThreads + threadIdx.x;
  int64_t begin = int64_t(blockIdx.y) * chunkRows;
  int64_t end = begin + chunkRows < rows ? begin + chunkRows : rows;
  if (column >= n)
    return;
  A gammaSum = 0, betaSum = 0;
#pragma unroll 4
  for (int64_t r = begin; r < end; ++r) {
    A d = wide(dy[r * n + column]);
    A mean = Centered ? stats[2 * r] : A(0);
    gammaSum += d * ((wide(x[r * n + column]) - mean) *
                     stats[Centered ? 2 * r + 1 : r]);
    betaSum += d;
  }
  A *sums = partial + int64_t(blockIdx.y) * (Centered ? 2 : 1) * n;
  sums[column] = gammaSum;
  if (Centered)
    sums[n + column] = betaSum;
}
/// Without `Scaled` gamma is 1.
template <class T, bool Centered, bool Scaled>
__global__ void __launch_bounds__(gradThreads)
    wideRowsKernel(int64_t n, Accumulator<T> offset, const T *dy, const T *x,
                   const Accumulator<T> *stats, const T *gamma,
                   const T *residual, T *dx) {
  using A = Accumulator<T>;
  int64_t r = blockIdx.x;
  A mean = Centered ? stats[2 * r] : A(0);
  A inverse = stats[Centered ? 2 * r + 1 : r], sum = 0, product = 0;
  auto scaled = [&](int64_t i) {
    A d = wide(dy[r * n + i]);
    if constexpr (Scaled)
      d *= wide(gamma[i]) + offset;
    return d;
  };
  for (int64_t i = threadIdx.x; i < n; i += gradThreads) {
    A g = scaled(i);
    if (Centered)
      sum += g;
    product += g * ((wide(x[r * n + i]) - mean) * inverse);
  }
  sum = teamSum<gradThreads>(sum) / A(n);
  product = teamSum<gradThreads>(product) / A(n);
  for (int64_t i = threadIdx.x; i < n; i += gradThreads) {
    A g = scaled(i);
    A normal = (wide(x[r * n + i]) - mean) * inverse;
    A value = (g - sum - normal * product) * inverse;
    dx[r * n + i] =
        narrow<T>(residual ? value + wide(residual[r * n + i]) : value);
  }
}

} // namespace

/// Sums over rows of dy, or with `Weighted` of dy * x.
template <class T, bool Weighted>
static void columnSums(const Queue &queue, int64_t rows, int64_t n, const T *dy,
                       const T *x, Accumulator<T> *sums, bool add) {
  using A = Accumulator<T>;
  if (n <= 0)
    return;
  Chunks chunks = chunksOf(queue, rows, 32, 256, n * int64_t(sizeof(A)));
  auto run = [&](auto *kernel, int width) {
    launch(kernel,
           dim3(unsigned(ceilDivide(n, int64_t(columnPacks) * width)),
                unsigned(chunks.count)),
           dim3(columnPacks * columnRows), 0, queue.stream, rows, n,
           chunks.rows, dy, x, static_cast<A *>(queue.workspace));
  };
  constexpr int N = packSize<T>;
  if (rows > 0) {
    if (n % N == 0 && aligned({dy, x}))
      run(columnSumsKernel<T, N, Weighted>, N);
    else
      run(columnSumsKernel<T, 1, Weighted>, 1);
  }
  finish<A, 1>(queue, chunks.count, n, sums, nullptr, add);
}

template <class T>
void biasGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
              Accumulator<T> *dbias, bool add) {
  columnSums<T, false>(queue, rows, n, dy, nullptr, dbias, add);
}

template <class T>
void columnScaleGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
                     const T *x, Accumulator<T> *dscale, bool add) {
  columnSums<T, true>(queue, rows, n, dy, x, dscale, add);
}

template <class T>
void plainNorm(const Queue &queue, int64_t rows, int64_t n, const T *x, T *y,
               Accumulator<T> *stats, double eps) {
  using A = Accumulator<T>;
  if (rows <= 0 || n <= 0)
    return;
  planRows<T>(n, n % packSize<T> == 0 && aligned({x, y}), [&](auto plan) {
    using Plan = decltype(plan);
    launch(layerNormKernel<T, Plan, false, false>, Plan::grid(rows),
           dim3(Plan::block), 0, queue.stream, rows, int(n), x, nullptr,
           nullptr, y, stats, A(1 / double(n)), A(eps));
  });
}

template <class T>
void plainNormGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
                   const T *x, const Accumulator<T> *stats, T *dx) {
  if (rows > 0 && n > 0)
    launch(wideRowsKernel<T, true, false>, dim3(unsigned(rows)),
           dim3(gradThreads), 0, queue.stream, n, Accumulator<T>(0), dy, x,
           stats, nullptr, nullptr, dx);
}

template <class T>
void layerNorm(const Queue &queue, int64_t rows, int64_t n, const T *x,
               const T *gamma, const T *beta, T *y, Accumulator<T> *stats,
               double eps) {
  using A = Accumulator<T>;
  if (rows <= 0 || n <= 0)
    return;
  const bool packs = n % packSize<T> == 0 && aligned({x, gamma, beta, y});
  planRows<T>(n, packs, [&](auto plan) {
    using Plan = decltype(plan);
    launch(beta ? layerNormKernel<T, Plan, true, true>
                : layerNormKernel<T, Plan, false, true>,
           Plan::grid(rows), dim3(Plan::block), 0, queue.stream, rows, int(n),
           x, gamma, beta, y, stats, A(1 / double(n)), A(eps));
  });
}

template <class T>
void rmsNorm(const Queue &queue, int64_t rows, int64_t n, const T *x,
             const T *gamma, T *y, Accumulator<T> *stats, bool unitOffset,
             double eps) {
  using A = Accumulator<T>;
  if (rows <= 0 || n <= 0)
    return;
  const bool packs = n % packSize<T> == 0 && aligned({x, gamma, y});
  planRows<T>(n, packs, [&](auto plan) {
    using Plan = decltype(plan);
    launch(rmsNormKernel<T, Plan>, Plan::grid(rows), dim3(Plan::block), 0,
           queue.stream, rows, int(n), x, gamma, y, stats, unitOffset,
           A(1 / double(n)), A(eps));
  });
}

/// Both norms' gradients.
template <class T, bool Centered>
static void normGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
                     const T *x, const Accumulator<T> *stats, const T *gamma,
                     const T *residual, T *dx, Accumulator<T> *dgamma,
                     Accumulator<T> *dbeta, bool add, bool unitOffset) {
  using A = Accumulator<T>;
  constexpr int values = Centered ? 2 : 1;
  const A offset = unitOffset ? 1 : 0;
  if (n <= 0)
    return;
  Chunks chunks =
      chunksOf(queue, rows, 16, gradChunks, values * n * int64_t(sizeof(A)));
  A *partial = static_cast<A *>(queue.workspace);
  // The fewest threads that have no more than gradPacks packs each.
  auto teamOf = [&](int width) {
    int team = warpSize_;
    while (int64_t(team) * gradPacks * width < n)
      team *= 2;
    return team;
  };
  auto sharedOf = [&](int width, int held) {
    const int64_t rowsBytes = int64_t(residual ? 5 : 4) * gradThreads * held *
                              width * int64_t(sizeof(T));
    return rowsBytes +
           int64_t(teamOf(width)) * held * width * int64_t(sizeof(A));
  };
  auto run = [&](auto *kernel, int width, int held) {
    launch(kernel, dim3(unsigned(chunks.count)), dim3(gradThreads),
           int(sharedOf(width, held)), queue.stream, rows, int(n), chunks.rows,
           teamOf(width), A(1 / double(n)), offset, dy, x, stats, gamma,
           residual, dx, partial);
  };
  constexpr int N = packSize<T>;
  const bool packed = n % N == 0 && aligned({dy, x, gamma, residual, dx});
  auto pick = [&](auto width, auto held) {
    constexpr int W = decltype(width)::value, K = decltype(held)::value;
    if constexpr (Centered)
      if (residual)
        return run(normGradKernel<T, W, K, Centered, true>, W, K);
    run(normGradKernel<T, W, K, Centered, false>, W, K);
  };
  using Packs = std::integral_constant<int, N>;
  using Single = std::integral_constant<int, 1>;
  using Fewer = std::integral_constant<int, gradPacks - 1>;
  using Most = std::integral_constant<int, gradPacks>;
  // What a block may have on the least of the devices that we build for.
  constexpr int64_t leastShared = 99 * 1024 - 1024;
  if (rows <= 0) {
  } else if (packed && n <= gradThreads * N * Fewer::value &&
             n <= teamOf(N) * N * Fewer::value) {
    pick(Packs(), Fewer());
  } else if (packed && n <= gradThreads * N * gradPacks &&
             sharedOf(N, gradPacks) <= leastShared) {
    pick(Packs(), Most());
  } else if (!packed && n <= gradThreads * gradPacks) {
    pick(Single(), Most());
  } else {
    launch(wideColumnsKernel<T, Centered>,
           dim3(unsigned(ceilDivide(n, gradThreads)), unsigned(chunks.count)),
           dim3(gradThreads), 0, queue.stream, rows, n, chunks.rows, dy, x,
           stats, partial);
    launch(wideRowsKernel<T, Centered, true>, dim3(unsigned(rows)),
           dim3(gradThreads), 0, queue.stream, n, offset, dy, x, stats, gamma,
           residual, dx);
  }
  finish<A, values>(queue, chunks.count, n, dgamma, dbeta, add);
}

template <class T>
void layerNormGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
                   const T *x, const Accumulator<T> *stats, const T *gamma,
                   const T *residual, T *dx, Accumulator<T> *dgamma,
                   Accumulator<T> *dbeta, bool add) {
  normGrad<T, true>(queue, rows, n, dy, x, stats, gamma, residual, dx, dgamma,
                    dbeta, add, /*unitOffset=*/false);
}

template <class T>
void rmsNormGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
                 const T *x, const Accumulator<T> *stats, const T *gamma, T *dx,
                 Accumulator<T> *dgamma, bool add, bool unitOffset) {
  normGrad<T, false>(queue, rows, n, dy, x, stats, gamma, nullptr, dx, dgamma,
                     nullptr, add, unitOffset);
}

#define GRT_INSTANTIATE(T)                                                     \
  template void biasGrad(const Queue &, int64_t, int64_t, const T *,           \
                         Accumulator<T> *, bool);                              \
  template void columnScaleGrad(const Queue &, int64_t, int64_t, const T *,    \
                                const T *, Accumulator<T> *, bool);            \
  template void plainNorm(const Queue &, int64_t, int64_t, const T *, T *,     \
                          Accumulator<T> *, double);                           \
  template void plainNormGrad(const Queue &, int64_t, int64_t, const T *,      \
                              const T *, const Accumulator<T> *, T *);         \
  template void layerNorm(const Queue &, int64_t, int64_t, const T *,          \
                          const T *, const T *, T *, Accumulator<T> *,         \
                          double);                                             \
  template void layerNormGrad(const Queue &, int64_t, int64_t, const T *,      \
                              const T *, const Accumulator<T> *, const T *,    \
                              const T *, T *, Accumulator<T> *,                \
                              Accumulator<T> *, bool);                         \
  template void rmsNorm(const Queue &, int64_t, int64_t, const T *, const T *, \
                        T *, Accumulator<T> *, bool, double);                  \
  template void rmsNormGrad(const Queue &, int64_t, int64_t, const T *,        \
                            const T *, const Accumulator<T> *, const T *, T *, \
                            Accumulator<T> *, bool, bool)
GRT_INSTANTIATE(float);
GRT_INSTANTIATE(double);
GRT_INSTANTIATE(BF16);

} // namespace grt::cuda
