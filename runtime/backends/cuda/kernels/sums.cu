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

int64_t ceilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool aligned(std::initializer_list<const void *> addresses) {
  uintptr_t bits = 0;
  for (const void *address : addresses)
    bits |= reinterpret_cast<uintptr_t>(address);
  return bits % 16 == 0;
}

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

constexpr int finishColumns = 32, finishRows = 16;

/// partial[chunk][Values][n] -> out[value][n]. Bytes: those of the partial
/// sums.
template <class A, int Values>
__global__ void __launch_bounds__(finishColumns *finishRows)
    finishKernel(int64_t chunks, int64_t n, const A *partial, A *out0, A *out1,
                 bool add) {
  __shared__ A sums[Values][finishRows][finishColumns];
  int x = int(threadIdx.x) % finishColumns,
      y = int(threadIdx.x) / finishColumns;
  int64_t column = int64_t(blockIdx.x) * finishColumns + x;
  for (int v = 0; v < Values; ++v) {
    A sum = 0;
    if (column < n)
      for (int64_t c = y; c < chunks; c += finishRows)
        sum += partial[(c * Values + v) * n + column];
    sums[v][y][x] = sum;
  }
  __syncthreads();
  if (y != 0 || column >= n)
    return;
  for (int v = 0; v < Values; ++v) {
    A *out = v == 0 ? out0 : out1;
    A sum = sums[v][0][x];
    for (int i = 1; i < finishRows; ++i)
      sum += sums[v][i][x];
    out[column] = add ? out[column] + sum : sum;
  }
}

template <class A, int Values>
void finish(const Queue &queue, int64_t chunks, int64_t n, A *out0, A *out1,
            bool add) {
  launch(finishKernel<A, Values>, dim3(unsigned(ceilDivide(n, finishColumns))),
         dim3(finishColumns * finishRows), 0, queue.stream, chunks, n,
         static_cast<const A *>(queue.workspace), out0, out1, add);
}

//===--- BIAS_GRAD
//---------------------------------------------------------===//

constexpr int columnPacks = 32, columnRows = 8;

/// Sums of dy over the rows of a chunk. w bytes an element, 1 addition.
template <class T, int N>
__global__ void __launch_bounds__(columnPacks *columnRows)
    biasGradKernel(int64_t rows, int64_t n, int64_t chunkRows, const T *dy,
                   Accumulator<T> *partial) {
  using A = Accumulator<T>;
  __shared__ A sums[columnRows][columnPacks * N];
  int x = int(threadIdx.x) % columnPacks, y = int(threadIdx.x) / columnPacks;
  int64_t column = (int64_t(blockIdx.x) * columnPacks + x) * N;
  int64_t begin = int64_t(blockIdx.y) * chunkRows;
  int64_t end = begin + chunkRows < rows ? begin + chunkRows : rows;
  A sum[N] = {};
  if (column < n) {
#pragma unroll 4
    for (int64_t r = begin + y; r < end; r += columnRows) {
      Pack<T, N> in = load<N>(dy + r * n + column);
      for (int e = 0; e < N; ++e)
        sum[e] += wide(in.at[e]);
    }
  }
  for (int e = 0; e < N; ++e)
    sums[y][x * N + e] = sum[e];
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

/// Mean and variance in two passes, then y. A row is read once from memory and
/// twice more from the first-level cache. 2w bytes an element, 7 operations.
template <class T, int N, int Threads>
__global__ void __launch_bounds__(256)
    layerNormKernel(int64_t rows, int64_t n, const T *x, const T *gamma,
                    const T *beta, T *y, Accumulator<T> *stats, double eps) {
  using A = Accumulator<T>;
  constexpr int teams = 256 / Threads;
  int64_t r = int64_t(blockIdx.x) * teams + int64_t(threadIdx.x) / Threads;
  int first = int(threadIdx.x) % Threads * N;
  // Teams past the end stay for the barriers.
  int64_t length = r < rows ? n : 0;
  const T *row = x + r * n;
  A sum = 0;
  for (int64_t i = first; i < length; i += Threads * N) {
    Pack<T, N> in = load<N>(row + i);
    for (int e = 0; e < N; ++e)
      sum += wide(in.at[e]);
  }
  normalizeRow<Threads, N>(row, r, n, length, first, sum, gamma, beta, y, stats,
                           eps);
}

template <class T, int N>
void launchLayerNorm(const Queue &queue, int64_t rows, int64_t n, const T *x,
                     const T *gamma, const T *beta, T *y, Accumulator<T> *stats,
                     double eps) {
  auto run = [&](auto *kernel, int threads) {
    launch(kernel, dim3(unsigned(ceilDivide(rows, 256 / threads))), dim3(256),
           0, queue.stream, rows, n, x, gamma, beta, y, stats, eps);
  };
  // Wide rows would leave a warp with too long a way.
  if (n * int64_t(sizeof(T)) <= 8192)
    run(layerNormKernel<T, N, 32>, 32);
  else
    run(layerNormKernel<T, N, 256>, 256);
}

//===--- RMS_NORM
//----------------------------------------------------------===//

/// A row is read once from memory and once more from the first-level cache. 2w
/// bytes an element, 4 operations.
template <class T, int N, int Threads>
__global__ void __launch_bounds__(256)
    rmsNormKernel(int64_t rows, int64_t n, const T *x, const T *gamma, T *y,
                  Accumulator<T> *stats, double eps) {
  using A = Accumulator<T>;
  constexpr int teams = 256 / Threads;
  int64_t r = int64_t(blockIdx.x) * teams + int64_t(threadIdx.x) / Threads;
  int first = int(threadIdx.x) % Threads * N;
  // Teams past the end stay for the barriers.
  int64_t length = r < rows ? n : 0;
  const T *row = x + r * n;
  A squares = 0;
  for (int64_t i = first; i < length; i += Threads * N) {
    Pack<T, N> in = load<N>(row + i);
    for (int e = 0; e < N; ++e)
      squares += wide(in.at[e]) * wide(in.at[e]);
  }
  squares = teamSum<Threads>(squares);
  A inverse = A(1 / squareRoot(double(squares) / double(n) + eps));
  if (length > 0 && first == 0)
    stats[r] = inverse;
  for (int64_t i = first; i < length; i += Threads * N) {
    Pack<T, N> in = load<N>(row + i), g = load<N>(gamma + i), out;
    for (int e = 0; e < N; ++e)
      out.at[e] =
          narrow<T>(wide(narrow<T>(wide(in.at[e]) * inverse)) * wide(g.at[e]));
    store<N>(y + r * n + i, out);
  }
}

template <class T, int N>
void launchRmsNorm(const Queue &queue, int64_t rows, int64_t n, const T *x,
                   const T *gamma, T *y, Accumulator<T> *stats, double eps) {
  auto run = [&](auto *kernel, int threads) {
    launch(kernel, dim3(unsigned(ceilDivide(rows, 256 / threads))), dim3(256),
           0, queue.stream, rows, n, x, gamma, y, stats, eps);
  };
  // Wide rows would leave a warp with too long a way.
  if (n * int64_t(sizeof(T)) <= 8192)
    run(rmsNormKernel<T, N, 32>, 32);
  else
    run(rmsNormKernel<T, N, 256>, 256);
}

//===--- LAYER_NORM_GRAD, RMS_NORM_GRAD
//---------------------------------------------------===//

constexpr int gradThreads = 256;
/// A block of so many threads takes several rows at a time, where a row needs
/// few threads.
constexpr int gradBlock = 512;
/// Chunks at most: four blocks for each of an H100's multiprocessors, which
/// hold two of them, so that it is done in two whole rounds. Their sums are 9%
/// of what 16,384 rows in bf16 move.
constexpr int64_t gradChunks = 528;
/// Threads of a block whose threads hold K packs of a row: beyond one their
/// registers leave no room for more rows.
template <int K> constexpr int gradBlockOf = K == 1 ? gradBlock : gradThreads;

/// With x^ the normalised input and g = dy gamma: dx = (g - mean(g) - x^ mean(g
/// x^)) / sqrt(var + eps), plus the residual's if there is one; dgamma sums dy
/// x^, dbeta dy. A block takes the rows of a chunk, as many at a time as it has
/// teams of `teamThreads` threads; a thread holds up to K packs of a row, and
/// the column sums of those, in registers. Everything is read once: 3w bytes an
/// element, 12 operations; 4w and 13 with a residual. Without `Centered` it is
/// the gradient of an RMS norm: nothing is subtracted, there is no dbeta, and
/// stats has one number a row.
///
/// Memory bounds it as long as enough of it is asked for at a time: a row in
/// every team of the blocks that stand on a multiprocessor. At 3.35 TB/s and
/// some 700 ns from a load to its value that is 18 KB on each of an H100's 132;
/// two blocks of five teams with rows of 768 elements in bf16 ask for 30 KB,
/// one row a block was 9 KB.
template <class T, int N, int K, bool Centered>
__global__ void __launch_bounds__(gradBlockOf<K>)
    normGradKernel(int64_t rows, int64_t n, int64_t chunkRows, int teamThreads,
                   const T *dy, const T *x, const Accumulator<T> *stats,
                   const T *gamma, const T *residual, T *dx,
                   Accumulator<T> *partial) {
  using A = Accumulator<T>;
  constexpr int values = Centered ? 2 : 1;
  __shared__ A parts[2][2][gradBlockOf<K> / warpSize_];
  const int teams = int(blockDim.x) / teamThreads;
  const int team = int(threadIdx.x) / teamThreads;
  const int lane = int(threadIdx.x) % teamThreads;
  const int warp = int(threadIdx.x) / warpSize_;
  const int warps = teamThreads / warpSize_;
  int64_t begin = int64_t(blockIdx.x) * chunkRows;
  int64_t end = begin + chunkRows < rows ? begin + chunkRows : rows;
  auto columnOf = [&](int k) { return (int64_t(k) * teamThreads + lane) * N; };
  A scale[K][N], gammaSum[K][N] = {}, betaSum[K][N] = {};
  for (int k = 0; k < K; ++k)
    if (columnOf(k) < n) {
      Pack<T, N> in = load<N>(gamma + columnOf(k));
      for (int e = 0; e < N; ++e)
        scale[k][e] = wide(in.at[e]);
    }
  int set = 0;
  for (int64_t first = begin; first < end; first += teams) {
    const int64_t r = first + team;
    // Teams past the end stay for the barriers.
    const int64_t columns = r < end ? n : 0;
    A mean = 0, inverse = 0;
    if (columns > 0) {
      if (Centered)
        mean = stats[2 * r];
      inverse = stats[Centered ? 2 * r + 1 : r];
    }
    Pack<T, N> dyPack[K], xPack[K];
    for (int k = 0; k < K; ++k)
      if (columnOf(k) < columns) {
        dyPack[k] = load<N>(dy + r * n + columnOf(k));
        xPack[k] = load<N>(x + r * n + columnOf(k));
      }
    A sum = 0, product = 0;
    for (int k = 0; k < K; ++k)
      if (columnOf(k) < columns)
        for (int e = 0; e < N; ++e) {
          A d = wide(dyPack[k].at[e]);
          A normal = (wide(xPack[k].at[e]) - mean) * inverse;
          gammaSum[k][e] += d * normal;
          if (Centered) {
            betaSum[k][e] += d;
            sum += d * scale[k][e];
          }
          product += d * scale[k][e] * normal;
        }
    sum = warpSum(sum);
    product = warpSum(product);
    // Two sets in turn: one barrier for the rows of all teams.
    if (threadIdx.x % warpSize_ == 0) {
      parts[set][0][warp] = sum;
      parts[set][1][warp] = product;
    }
    __syncthreads();
    sum = parts[set][0][team * warps];
    product = parts[set][1][team * warps];
    for (int w = 1; w < warps; ++w) {
      sum += parts[set][0][team * warps + w];
      product += parts[set][1][team * warps + w];
    }
    set = 1 - set;
    sum = sum / A(n);
    product = product / A(n);
    for (int k = 0; k < K; ++k)
      if (columnOf(k) < columns) {
        Pack<T, N> out, past;
        if (residual)
          past = load<N>(residual + r * n + columnOf(k));
        for (int e = 0; e < N; ++e) {
          A g = wide(dyPack[k].at[e]) * scale[k][e];
          A normal = (wide(xPack[k].at[e]) - mean) * inverse;
          A value = (g - sum - normal * product) * inverse;
          out.at[e] = narrow<T>(residual ? value + wide(past.at[e]) : value);
        }
        store<N>(dx + r * n + columnOf(k), out);
      }
  }
  // The sums of the teams, in their order.
  if constexpr (K == 1) {
    __shared__ A sums[values][gradThreads * N];
    for (int t = 0; t < teams; ++t) {
      if (team == t && columnOf(0) < n)
        for (int e = 0; e < N; ++e) {
          A &gammaAll = sums[0][columnOf(0) + e];
          gammaAll = t == 0 ? gammaSum[0][e] : gammaAll + gammaSum[0][e];
          gammaSum[0][e] = gammaAll;
          if constexpr (Centered) {
            A &betaAll = sums[1][columnOf(0) + e];
            betaAll = t == 0 ? betaSum[0][e] : betaAll + betaSum[0][e];
            betaSum[0][e] = betaAll;
          }
        }
      __syncthreads();
    }
  }
  if (team != teams - 1)
    return;
  A *out = partial + int64_t(blockIdx.x) * values * n;
  for (int k = 0; k < K; ++k)
    if (columnOf(k) < n)
      for (int e = 0; e < N; ++e) {
        out[columnOf(k) + e] = gammaSum[k][e];
        if (Centered)
          out[n + columnOf(k) + e] = betaSum[k][e];
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
template <class T, bool Centered>
__global__ void __launch_bounds__(gradThreads)
    wideRowsKernel(int64_t n, const T *dy, const T *x,
                   const Accumulator<T> *stats, const T *gamma,
                   const T *residual, T *dx) {
  using A = Accumulator<T>;
  int64_t r = blockIdx.x;
  A mean = Centered ? stats[2 * r] : A(0);
  A inverse = stats[Centered ? 2 * r + 1 : r], sum = 0, product = 0;
  for (int64_t i = threadIdx.x; i < n; i += gradThreads) {
    A g = wide(dy[r * n + i]) * wide(gamma[i]);
    if (Centered)
      sum += g;
    product += g * ((wide(x[r * n + i]) - mean) * inverse);
  }
  sum = teamSum<gradThreads>(sum) / A(n);
  product = teamSum<gradThreads>(product) / A(n);
  for (int64_t i = threadIdx.x; i < n; i += gradThreads) {
    A g = wide(dy[r * n + i]) * wide(gamma[i]);
    A normal = (wide(x[r * n + i]) - mean) * inverse;
    A value = (g - sum - normal * product) * inverse;
    dx[r * n + i] =
        narrow<T>(residual ? value + wide(residual[r * n + i]) : value);
  }
}

//===--- POSITION_GRAD
//-----------------------------------------------------===//

/// dtable[t] = sum over samples of dy[s, t], in ascending order. w bytes an
/// element of dy, 1 addition.
template <class T, int N>
__global__ void __launch_bounds__(256)
    positionGradKernel(int64_t samples, int64_t perSample,
                       int64_t tableElements, const T *dy,
                       Accumulator<T> *dtable, bool add) {
  using A = Accumulator<T>;
  int64_t i = (int64_t(blockIdx.x) * 256 + threadIdx.x) * N;
  if (i >= tableElements)
    return;
  A sum[N] = {};
  if (i < perSample)
    for (int64_t s = 0; s < samples; ++s) {
      Pack<T, N> in = load<N>(dy + s * perSample + i);
      for (int e = 0; e < N; ++e)
        sum[e] += wide(in.at[e]);
    }
  for (int e = 0; e < N; ++e)
    dtable[i + e] = add ? dtable[i + e] + sum[e] : sum[e];
}

//===--- EMBEDDING_GRAD
//----------------------------------------------------===//

constexpr int gatherThreads = 128, gatherTurns = 8;

/// The block of the first row of a token adds all rows of that token, in
/// ascending order; the others leave. Bytes: w an element of dy, and those of
/// the rows of the table that get something. Looking for equal tokens takes up
/// to rows^2 / 2 comparisons of cached words, each way: fewer instructions than
/// moving dy takes up to some ten thousand rows.
template <class T, int N>
__global__ void __launch_bounds__(gatherThreads)
    embeddingGradKernel(int64_t rows, int64_t width, TableSlice slice,
                        int64_t padding, const int32_t *tokens, const T *dy,
                        Accumulator<T> *dtable, bool add, Complaint *complaint,
                        const char *name) {
  using A = Accumulator<T>;
  constexpr int warps = gatherThreads / warpSize_;
  constexpr int window = gatherThreads * gatherTurns;
  __shared__ uint32_t matches[gatherTurns][warps];
  __shared__ int64_t list[window];
  const int64_t r = blockIdx.x, token = tokens[r];
  const int thread = int(threadIdx.x);
  if (token < 0 || token >= slice.limit) {
    if (thread == 0 && blockIdx.y == 0 &&
        atomicCAS(&complaint->taken, 0u, 1u) == 0) {
      complaint->name = name;
      complaint->value = token;
      complaint->row = r;
      complaint->limit = slice.limit;
      complaint->kind = Complaint::Token;
    }
    return;
  }
  int64_t local = token - slice.first;
  if (local < 0 || local >= slice.localRows || token == padding)
    return;
  // The nearest first: frequent tokens leave early.
  for (int64_t end = r; end > 0; end -= window) {
    bool seen = false;
    for (int turn = 0; turn < gatherTurns; ++turn) {
      int64_t j = end - 1 - (turn * gatherThreads + thread);
      seen |= j >= 0 && tokens[j] == token;
    }
    if (__syncthreads_or(seen))
      return;
  }
  int64_t column = (int64_t(blockIdx.y) * gatherThreads + thread) * N;
  A sum[N] = {};
  for (int64_t begin = r; begin < rows; begin += window) {
    bool mine[gatherTurns];
    for (int turn = 0; turn < gatherTurns; ++turn) {
      int64_t j = begin + turn * gatherThreads + thread;
      mine[turn] = j < rows && tokens[j] == token;
      uint32_t bits = __ballot_sync(~0u, mine[turn]);
      if (thread % warpSize_ == 0)
        matches[turn][thread / warpSize_] = bits;
    }
    __syncthreads();
    int found = 0;
    for (int turn = 0; turn < gatherTurns; ++turn)
      for (int w = 0; w < warps; ++w) {
        uint32_t bits = matches[turn][w];
        if (mine[turn] && w == thread / warpSize_)
          list[found + __popc(bits & ((1u << (thread % warpSize_)) - 1))] =
              begin + turn * gatherThreads + thread;
        found += __popc(bits);
      }
    __syncthreads();
    if (column < width) {
#pragma unroll 4
      for (int i = 0; i < found; ++i) {
        Pack<T, N> in = load<N>(dy + list[i] * width + column);
        for (int e = 0; e < N; ++e)
          sum[e] += wide(in.at[e]);
      }
    }
    // The list is written again.
    __syncthreads();
  }
  A *to = dtable + local * width + column;
  if (column < width)
    for (int e = 0; e < N; ++e)
      to[e] = add ? to[e] + sum[e] : sum[e];
}

} // namespace

template <class T>
void biasGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
              Accumulator<T> *dbias, bool add) {
  using A = Accumulator<T>;
  if (n <= 0)
    return;
  Chunks chunks = chunksOf(queue, rows, 32, 256, n * int64_t(sizeof(A)));
  auto run = [&](auto *kernel, int width) {
    launch(kernel,
           dim3(unsigned(ceilDivide(n, int64_t(columnPacks) * width)),
                unsigned(chunks.count)),
           dim3(columnPacks * columnRows), 0, queue.stream, rows, n,
           chunks.rows, dy, static_cast<A *>(queue.workspace));
  };
  constexpr int N = packSize<T>;
  if (rows > 0) {
    if (n % N == 0 && aligned({dy}))
      run(biasGradKernel<T, N>, N);
    else
      run(biasGradKernel<T, 1>, 1);
  }
  finish<A, 1>(queue, chunks.count, n, dbias, nullptr, add);
}

template <class T>
void layerNorm(const Queue &queue, int64_t rows, int64_t n, const T *x,
               const T *gamma, const T *beta, T *y, Accumulator<T> *stats,
               double eps) {
  if (rows <= 0 || n <= 0)
    return;
  constexpr int N = packSize<T>;
  if (n % N == 0 && aligned({x, gamma, beta, y}))
    launchLayerNorm<T, N>(queue, rows, n, x, gamma, beta, y, stats, eps);
  else
    launchLayerNorm<T, 1>(queue, rows, n, x, gamma, beta, y, stats, eps);
}

template <class T>
void rmsNorm(const Queue &queue, int64_t rows, int64_t n, const T *x,
             const T *gamma, T *y, Accumulator<T> *stats, double eps) {
  if (rows <= 0 || n <= 0)
    return;
  constexpr int N = packSize<T>;
  if (n % N == 0 && aligned({x, gamma, y}))
    launchRmsNorm<T, N>(queue, rows, n, x, gamma, y, stats, eps);
  else
    launchRmsNorm<T, 1>(queue, rows, n, x, gamma, y, stats, eps);
}

/// Both norms' gradients.
template <class T, bool Centered>
static void normGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
                     const T *x, const Accumulator<T> *stats, const T *gamma,
                     const T *residual, T *dx, Accumulator<T> *dgamma,
                     Accumulator<T> *dbeta, bool add) {
  using A = Accumulator<T>;
  constexpr int values = Centered ? 2 : 1;
  if (n <= 0)
    return;
  Chunks chunks =
      chunksOf(queue, rows, 16, gradChunks, values * n * int64_t(sizeof(A)));
  A *partial = static_cast<A *>(queue.workspace);
  auto run = [&](auto *kernel, int64_t packs, int64_t held) {
    int64_t team = ceilDivide(ceilDivide(packs, held), warpSize_) * warpSize_;
    int64_t teams = held == 1 ? gradBlock / team : 1;
    launch(kernel, dim3(unsigned(chunks.count)), dim3(unsigned(teams * team)),
           0, queue.stream, rows, n, chunks.rows, int(team), dy, x, stats,
           gamma, residual, dx, partial);
  };
  constexpr int N = packSize<T>;
  bool packed = n % N == 0 && aligned({dy, x, gamma, residual, dx});
  int64_t packs = packed ? n / N : n;
  if (rows <= 0) {
  } else if (packed && packs <= gradThreads) {
    run(normGradKernel<T, N, 1, Centered>, packs, 1);
  } else if (packed && packs <= 2 * gradThreads) {
    run(normGradKernel<T, N, 2, Centered>, packs, 2);
  } else if (!packed && packs <= 4 * gradThreads) {
    run(normGradKernel<T, 1, 4, Centered>, packs, 4);
  } else {
    launch(wideColumnsKernel<T, Centered>,
           dim3(unsigned(ceilDivide(n, gradThreads)), unsigned(chunks.count)),
           dim3(gradThreads), 0, queue.stream, rows, n, chunks.rows, dy, x,
           stats, partial);
    launch(wideRowsKernel<T, Centered>, dim3(unsigned(rows)), dim3(gradThreads),
           0, queue.stream, n, dy, x, stats, gamma, residual, dx);
  }
  finish<A, values>(queue, chunks.count, n, dgamma, dbeta, add);
}

template <class T>
void layerNormGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
                   const T *x, const Accumulator<T> *stats, const T *gamma,
                   const T *residual, T *dx, Accumulator<T> *dgamma,
                   Accumulator<T> *dbeta, bool add) {
  normGrad<T, true>(queue, rows, n, dy, x, stats, gamma, residual, dx, dgamma,
                    dbeta, add);
}

template <class T>
void rmsNormGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
                 const T *x, const Accumulator<T> *stats, const T *gamma, T *dx,
                 Accumulator<T> *dgamma, bool add) {
  normGrad<T, false>(queue, rows, n, dy, x, stats, gamma, nullptr, dx, dgamma,
                     nullptr, add);
}

template <class T>
void positionGrad(const Queue &queue, int64_t samples, int64_t t, int64_t width,
                  int64_t tableRows, const T *dy, Accumulator<T> *dtable,
                  bool add) {
  int64_t perSample = t * width, elements = tableRows * width;
  auto run = [&](auto *kernel, int64_t pack) {
    launch(kernel, dim3(unsigned(ceilDivide(elements, 256 * pack))), dim3(256),
           0, queue.stream, samples, perSample, elements, dy, dtable, add);
  };
  constexpr int N = packSize<T>;
  if (elements <= 0)
    return;
  if (width % N == 0 && aligned({dy, dtable}))
    run(positionGradKernel<T, N>, N);
  else
    run(positionGradKernel<T, 1>, 1);
}

template <class T>
void embeddingGrad(const Queue &queue, int64_t rows, int64_t width,
                   const TableSlice &slice, int64_t padding,
                   const int32_t *tokens, const T *dy, Accumulator<T> *dtable,
                   bool add) {
  using A = Accumulator<T>;
  if (!add)
    gpu::fill(queue.stream, dtable, 0,
              uint64_t(slice.localRows * width) * sizeof(A));
  if (rows <= 0 || width <= 0)
    return;
  auto run = [&](auto *kernel, int64_t pack) {
    launch(
        kernel,
        dim3(unsigned(rows), unsigned(ceilDivide(width, gatherThreads * pack))),
        dim3(gatherThreads), 0, queue.stream, rows, width, slice, padding,
        tokens, dy, dtable, add, queue.complaint, queue.opName);
  };
  constexpr int N = packSize<T>;
  if (width % N == 0 && aligned({dy, dtable}))
    run(embeddingGradKernel<T, N>, N);
  else
    run(embeddingGradKernel<T, 1>, 1);
}

#define GRT_INSTANTIATE(T)                                                     \
  template void biasGrad(const Queue &, int64_t, int64_t, const T *,           \
                         Accumulator<T> *, bool);                              \
  template void layerNorm(const Queue &, int64_t, int64_t, const T *,          \
                          const T *, const T *, T *, Accumulator<T> *,         \
                          double);                                             \
  template void layerNormGrad(const Queue &, int64_t, int64_t, const T *,      \
                              const T *, const Accumulator<T> *, const T *,    \
                              const T *, T *, Accumulator<T> *,                \
                              Accumulator<T> *, bool);                         \
  template void rmsNorm(const Queue &, int64_t, int64_t, const T *, const T *, \
                        T *, Accumulator<T> *, double);                        \
  template void rmsNormGrad(const Queue &, int64_t, int64_t, const T *,        \
                            const T *, const Accumulator<T> *, const T *, T *, \
                            Accumulator<T> *, bool);                           \
  template void positionGrad(const Queue &, int64_t, int64_t, int64_t,         \
                             int64_t, const T *, Accumulator<T> *, bool);      \
  template void embeddingGrad(const Queue &, int64_t, int64_t,                 \
                              const TableSlice &, int64_t, const int32_t *,    \
                              const T *, Accumulator<T> *, bool)
GRT_INSTANTIATE(float);
GRT_INSTANTIATE(double);
GRT_INSTANTIATE(BF16);

} // namespace grt::cuda
