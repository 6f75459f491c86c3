//===- tables.cu - Gradients of embedding tables --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows of a table collect the gradients of all rows that were read of them, in
// ascending order. All kernels here are bound by memory.
//
//===----------------------------------------------------------------------===//

#include "elements.h"
#include "kernels.h"

namespace grt::cuda {
namespace {

//===--- POSITION_GRAD
//-----------------------------------------------------===//

/// dtable[first + t] = sum over samples of dy[s, t], in ascending order;
/// `before`: elements of the rows in front. w bytes an element of dy, 1
/// addition.
template <class T, int N>
__global__ void __launch_bounds__(256)
    positionGradKernel(int64_t samples, int64_t perSample, int64_t before,
                       int64_t tableElements, const T *dy,
                       Accumulator<T> *dtable, bool add) {
  using A = Accumulator<T>;
  int64_t i = (int64_t(blockIdx.x) * 256 + threadIdx.x) * N;
  if (i >= tableElements)
    return;
  A sum[N] = {};
  const int64_t at = i - before;
  if (at >= 0 && at < perSample)
    loadAhead<8>(
        0, int(samples), 1,
        [&](int s) { return load<N>(dy + s * perSample + at); },
        [&](int, const Pack<T, N> &in) {
          A value[N];
          widen(in, value);
          for (int e = 0; e < N; ++e)
            sum[e] += value[e];
        });
  Pack<A, N> out;
  if (add)
    out = load<N>(dtable + i);
  for (int e = 0; e < N; ++e)
    out.at[e] = add ? out.at[e] + sum[e] : sum[e];
  store<N>(dtable + i, out);
}

/// The same of positions that count from the documents' first ones: a thread
/// goes from document to document, whose ends it looks for by halving, since
/// starts ascend.
template <class T, int N>
__global__ void __launch_bounds__(256)
    documentPositionGradKernel(int64_t samples, int64_t t, int64_t width,
                               int64_t before, int64_t tableElements,
                               const int32_t *starts, const T *dy,
                               Accumulator<T> *dtable, bool add) {
  using A = Accumulator<T>;
  const int64_t i = (int64_t(blockIdx.x) * 256 + threadIdx.x) * N;
  if (i >= tableElements)
    return;
  A sum[N] = {};
  const Quotient place = divide(i < before ? i : i - before, width);
  const int64_t position = place.quotient;
  for (int64_t s = 0; s < samples && i >= before; ++s) {
    const int32_t *of = starts + s * t;
    for (int64_t begin = 0; begin + position < t;) {
      if (of[begin + position] == begin) {
        A value[N];
        widen(load<N>(dy + (s * t + begin + position) * width + place.rest),
              value);
        for (int e = 0; e < N; ++e)
          sum[e] += value[e];
      }
      int64_t low = begin + 1, high = t;
      while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (of[middle] > begin)
          high = middle;
        else
          low = middle + 1;
      }
      begin = low;
    }
  }
  Pack<A, N> out;
  if (add)
    out = load<N>(dtable + i);
  for (int e = 0; e < N; ++e)
    out.at[e] = add ? out.at[e] + sum[e] : sum[e];
  store<N>(dtable + i, out);
}

//===--- EMBEDDING_GRAD
//----------------------------------------------------===//

// Rows are cut into up to 256 runs, and for every row of the table a bit says
// which runs have its token: bits that are set in any order are the same bits.
// The sum of a token's rows looks for them in those runs alone, so that all of
// it takes no more comparisons than rows times those of a run.

constexpr int gatherWarps = 8;
/// Words of bits a row of the table, at most.
constexpr int gatherWords = 8;
/// Packs of a row that a thread has, and rows that are on their way at a time.
constexpr int gatherPacks = 3, gatherAhead = 4;
/// Rows that a warp compares at a time.
constexpr int gatherWindow = 8 * warpSize_;
/// A token of so many runs is summed by all warps of a block.
constexpr int gatherMany = 16;

struct GatherRuns {
  int rows;    ///< of a run
  int words;   ///< of bits
  int columns; ///< of a block: packs of the warp's threads
};

__device__ inline bool counts(int64_t token, const TableSlice &slice,
                              int64_t padding) {
  const int64_t local = token - slice.first;
  return token >= 0 && token < slice.limit && local >= 0 &&
         local < slice.localRows && token != padding;
}

/// Sets the bits of all rows. 4 bytes a row.
__global__ void __launch_bounds__(256)
    embeddingRunsKernel(int rows, GatherRuns runs, TableSlice slice,
                        int64_t padding, const int32_t *tokens, uint32_t *bits,
                        Complaint *complaint, const char *name) {
  const int64_t r = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (r >= rows)
    return;
  const int64_t token = tokens[r];
  if (token < 0 || token >= slice.limit) {
    if (atomicCAS(&complaint->taken, 0u, 1u) == 0) {
      complaint->name = name;
      complaint->value = token;
      complaint->row = r;
      complaint->limit = slice.limit;
      complaint->kind = Complaint::Token;
    }
    return;
  }
  if (!counts(token, slice, padding))
    return;
  const int run = int(r) / runs.rows;
  atomicOr(bits + (token - slice.first) * runs.words + run / 32,
           1u << (run % 32));
}

/// The sum of the rows of one token, over all its runs or every eighth of them,
/// in ascending order.
template <class T, int N>
__device__ void gatherRows(int rows, const GatherRuns &runs, uint32_t myWord,
                           int part, int parts, int32_t token,
                           const int32_t *tokens, const T *dy, int64_t width,
                           int columns, int *list,
                           Accumulator<T> (&sum)[gatherPacks][N]) {
  const int lane = int(threadIdx.x) % warpSize_;
  int ordinal = 0;
  for (int w = 0; w < runs.words; ++w)
    for (uint32_t left = __shfl_sync(~0u, myWord, w); left != 0;
         left &= left - 1) {
      if (ordinal++ % parts != part)
        continue;
      const int begin = (w * 32 + __ffs(left) - 1) * runs.rows;
      const int end = begin + runs.rows < rows ? begin + runs.rows : rows;
      for (int from = begin; from < end; from += gatherWindow) {
        bool mine[gatherWindow / warpSize_];
#pragma unroll
        for (int t = 0; t < gatherWindow / warpSize_; ++t) {
          const int j = from + t * warpSize_ + lane;
          mine[t] = j < end && tokens[j] == token;
        }
        int found = 0;
        // The list may be read still.
        __syncwarp();
#pragma unroll
        for (int t = 0; t < gatherWindow / warpSize_; ++t) {
          const uint32_t all = __ballot_sync(~0u, mine[t]);
          if (mine[t])
            list[found + __popc(all & ((1u << lane) - 1))] =
                from + t * warpSize_ + lane;
          found += __popc(all);
        }
        __syncwarp();
        for (int i = 0; i < found; i += gatherAhead) {
          Pack<T, N> in[gatherAhead][gatherPacks];
#pragma unroll
          for (int a = 0; a < gatherAhead; ++a)
            if (i + a < found) {
              const T *row = dy + list[i + a] * width;
#pragma unroll
              for (int k = 0; k < gatherPacks; ++k)
                if (const int c = (k * warpSize_ + lane) * N; c < columns)
                  in[a][k] = load<N>(row + c);
            }
#pragma unroll
          for (int a = 0; a < gatherAhead; ++a)
            if (i + a < found)
#pragma unroll
              for (int k = 0; k < gatherPacks; ++k)
                if ((k * warpSize_ + lane) * N < columns) {
                  Accumulator<T> value[N];
                  widen(in[a][k], value);
                  for (int e = 0; e < N; ++e)
                    sum[k][e] += value[e];
                }
        }
      }
    }
}

/// The warp of the first row of a token adds all rows of that token; the others
/// have nothing to do. Where they are many, all warps of the block take runs in
/// turns, and their sums are added in order. Bytes: w an element of dy, and
/// those of the rows of the table that get something.
template <class T, int N>
__global__ void __launch_bounds__(gatherWarps *warpSize_, 2)
    embeddingGradKernel(int rows, int64_t width, GatherRuns runs,
                        TableSlice slice, int64_t padding,
                        const int32_t *tokens, const uint32_t *bits,
                        const T *dy, Accumulator<T> *dtable, bool add) {
  using A = Accumulator<T>;
  __shared__ int lists[gatherWarps][gatherWindow];
  __shared__ int many[gatherWarps];
  __shared__ A sums[gatherWarps][gatherPacks * warpSize_ * N];
  const int lane = int(threadIdx.x) % warpSize_;
  const int warp = int(threadIdx.x) / warpSize_;
  const int64_t firstColumn = int64_t(blockIdx.y) * runs.columns;
  const int columns = width - firstColumn < runs.columns
                          ? int(width - firstColumn)
                          : runs.columns;
  dy += firstColumn;
  dtable += firstColumn;
  auto wordOf = [&](int64_t token) {
    return lane < runs.words ? bits[(token - slice.first) * runs.words + lane]
                             : 0u;
  };
  auto put = [&](int32_t token, A(&sum)[gatherPacks][N]) {
    A *to = dtable + (token - slice.first) * width;
#pragma unroll
    for (int k = 0; k < gatherPacks; ++k)
      if (const int c = (k * warpSize_ + lane) * N; c < columns) {
        Pack<A, N> out;
        if (add)
          out = load<N>(to + c);
        for (int e = 0; e < N; ++e)
          out.at[e] = add ? out.at[e] + sum[k][e] : sum[k][e];
        store<N>(to + c, out);
      }
  };
  // Rows of a block lie far from each other: frequent tokens have their first
  // ones near the beginning, and each should have a block of its own.
  auto rowOf = [&](int w) { return int64_t(w) * gridDim.x + blockIdx.x; };
  const int64_t r = rowOf(warp);
  bool first = false;
  int runsOf = 0;
  if (r < rows) {
    const int32_t token = tokens[r];
    if (counts(token, slice, padding)) {
      const uint32_t word = wordOf(token);
      const int words = int(__ffs(__ballot_sync(~0u, word != 0))) - 1;
      const int run = words * 32 + __ffs(__shfl_sync(~0u, word, words)) - 1;
      first = int(r) / runs.rows == run;
      if (first) {
        bool before = false;
        for (int j = run * runs.rows + lane; j < r; j += warpSize_)
          before |= tokens[j] == token;
        first = __ballot_sync(~0u, before) == 0;
      }
      if (first)
        runsOf = warpSum(__popc(word));
      if (first && runsOf < gatherMany) {
        A sum[gatherPacks][N] = {};
        gatherRows<T, N>(rows, runs, word, 0, 1, token, tokens, dy, width,
                         columns, lists[warp], sum);
        put(token, sum);
      }
    }
  }
  if (lane == 0)
    many[warp] = first && runsOf >= gatherMany;
  __syncthreads();
  for (int of = 0; of < gatherWarps; ++of) {
    if (!many[of])
      continue;
    const int32_t token = tokens[rowOf(of)];
    A sum[gatherPacks][N] = {};
    gatherRows<T, N>(rows, runs, wordOf(token), warp, gatherWarps, token,
                     tokens, dy, width, columns, lists[warp], sum);
#pragma unroll
    for (int k = 0; k < gatherPacks; ++k)
      for (int e = 0; e < N; ++e)
        sums[warp][(k * N + e) * warpSize_ + lane] = sum[k][e];
    __syncthreads();
    if (warp == 0) {
#pragma unroll
      for (int k = 0; k < gatherPacks; ++k)
        for (int e = 0; e < N; ++e)
          for (int w = 1; w < gatherWarps; ++w)
            sum[k][e] += sums[w][(k * N + e) * warpSize_ + lane];
      put(token, sum);
    }
    __syncthreads();
  }
}

/// Calls `run` with the elements that a thread has, as a type, and the blocks
/// of 256 threads for all of them: a pack where rows are whole packs.
template <class T, class Run>
void byPacks(int64_t width, int64_t elements, const T *dy,
             const Accumulator<T> *dtable, Run run) {
  constexpr int N = packSize<T>;
  auto blocks = [&](int pack) {
    return dim3(unsigned(ceilDivide(elements, 256 * pack)));
  };
  if (elements <= 0)
    return;
  if (width % N == 0 && aligned({dy, dtable}))
    run(std::integral_constant<int, N>(), blocks(N));
  else
    run(std::integral_constant<int, 1>(), blocks(1));
}

} // namespace

template <class T>
void positionGrad(const Queue &queue, int64_t samples, int64_t t, int64_t width,
                  int64_t first, int64_t tableRows, const T *dy,
                  Accumulator<T> *dtable, bool add) {
  int64_t perSample = t * width, elements = tableRows * width;
  byPacks(width, elements, dy, dtable, [&](auto pack, dim3 blocks) {
    launch(positionGradKernel<T, pack>, blocks, dim3(256), 0, queue.stream,
           samples, perSample, first * width, elements, dy, dtable, add);
  });
}

template <class T>
void documentPositionGrad(const Queue &queue, int64_t samples, int64_t t,
                          int64_t width, int64_t first, int64_t tableRows,
                          const int32_t *starts, const T *dy,
                          Accumulator<T> *dtable, bool add) {
  const int64_t elements = tableRows * width;
  byPacks(width, elements, dy, dtable, [&](auto pack, dim3 blocks) {
    launch(documentPositionGradKernel<T, pack>, blocks, dim3(256), 0,
           queue.stream, samples, t, width, first * width, elements, starts, dy,
           dtable, add);
  });
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
  GatherRuns runs = {0, gatherWords, 0};
  while (runs.words > 0 &&
         uint64_t(slice.localRows) * uint64_t(runs.words) * sizeof(uint32_t) >
             queue.workspaceBytes)
    runs.words /= 2;
  if (runs.words == 0 || rows > INT32_MAX / 2)
    throw DeviceError("the gradient of a table of " +
                      std::to_string(slice.localRows) + " rows, of " +
                      std::to_string(rows) +
                      " tokens: 4 bytes a row do not fit the workspace of " +
                      std::to_string(queue.workspaceBytes) +
                      ", or there are more than 2^30 tokens");
  runs.rows =
      int(ceilDivide(ceilDivide(rows, int64_t(runs.words) * 32), warpSize_)) *
      warpSize_;
  auto *bits = static_cast<uint32_t *>(queue.workspace);
  gpu::fill(queue.stream, bits, 0,
            uint64_t(slice.localRows) * uint64_t(runs.words) *
                sizeof(uint32_t));
  launch(embeddingRunsKernel, dim3(unsigned(ceilDivide(rows, 256))), dim3(256),
         0, queue.stream, int(rows), runs, slice, padding, tokens, bits,
         queue.complaint, queue.opName);
  auto run = [&](auto *kernel, int64_t pack) {
    // Blocks of a row's columns, alike as far as whole packs of a warp go.
    const int64_t warpColumns = warpSize_ * pack;
    const int64_t blocks = ceilDivide(width, gatherPacks * warpColumns);
    runs.columns =
        int(ceilDivide(ceilDivide(width, blocks), warpColumns) * warpColumns);
    launch(kernel,
           dim3(unsigned(ceilDivide(rows, gatherWarps)), unsigned(blocks)),
           dim3(gatherWarps * warpSize_), 0, queue.stream, int(rows), width,
           runs, slice, padding, tokens, bits, dy, dtable, add);
  };
  constexpr int N = packSize<T>;
  if (width % N == 0 && aligned({dy, dtable}))
    run(embeddingGradKernel<T, N>, N);
  else
    run(embeddingGradKernel<T, 1>, 1);
}

#define GRT_INSTANTIATE(T)                                                     \
  template void positionGrad(const Queue &, int64_t, int64_t, int64_t,         \
                             int64_t, int64_t, const T *, Accumulator<T> *,    \
                             bool);                                            \
  template void documentPositionGrad(const Queue &, int64_t, int64_t, int64_t, \
                                     int64_t, int64_t, const int32_t *,        \
                                     const T *, Accumulator<T> *, bool);       \
  template void embeddingGrad(const Queue &, int64_t, int64_t,                 \
                              const TableSlice &, int64_t, const int32_t *,    \
                              const T *, Accumulator<T> *, bool)
GRT_INSTANTIATE(float);
GRT_INSTANTIATE(double);
GRT_INSTANTIATE(BF16);

} // namespace grt::cuda
