//===- attention.cu - Attention for every type and shape ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Softmax on line, scores never stored (Milakov and Gimelshein 2018; Dao et al.
// 2022). Ordinary arithmetic in the accumulator type, no tensor cores: for f32
// and f64, and for bf16 what tensor_attention.cu does not take.
//
// A block owns 16 rows of one head, four to each of its four warps, and walks
// over tiles of 32 rows of the other side, a row a lane. Rows are handled in
// column parts of 64, so that shared memory does not grow with the width of a
// head. Forward and the gradient of queries own queries and walk over keys; the
// gradient of keys and values owns keys and walks over queries, of all heads of
// the group in order, so that every sum has one order and nothing is atomic.
//
// A cap and slopes change scores, and a bias is added, where they are made.
// Where the gradient of a bias is wanted, the blocks of queries of a head
// become one that has them in turn and adds up the diagonals of its tiles: one
// order again, for a grid with fewer blocks. Where samples are windows, a block
// has a head of a part of the windows, and sums of its own for the table's
// column of that head.
//
// In a step of a ring, keys and queries have places of their own in the sample,
// and results are added to what other steps left (ring.h).
//
// With S = samples * heads * Tq * Tk * headDim (half of that if causal):
// forward 4 S operations, the gradient of queries 6 S, of keys and values 8 S.
// All are bound by shared memory, at about 5 operations for every word read.
//
//===----------------------------------------------------------------------===//

#include "elements.h"
#include "kernels.h"
#include "ring.h"

namespace grt::cuda {
namespace {

constexpr int warps = 4, rowsPerWarp = 4, ownRows = warps * rowsPerWarp;
constexpr int attentionThreads = warps * warpSize_;
constexpr int tileRows = warpSize_;
constexpr int partColumns = 64, tileStride = partColumns + 1;
/// Columns of a part that a lane sums.
constexpr int laneColumns = partColumns / warpSize_;

/// Dropout numbers of one head.
struct Mask {
  PhiloxKey key;
  uint32_t opIndex, threshold;
  bool active;
  uint64_t firstRow; ///< global number of query 0 of the head
};

template <class T>
__device__ Mask maskOf(const AttentionArguments<T> &a, int64_t sample,
                       int64_t head) {
  Mask mask = {};
  const grt_step &step = *a.dropout.step;
  mask.active = a.dropout.p > 0 && step.mode == GRT_MODE_TRAIN;
  if (!mask.active)
    return mask;
  mask.key = dropoutKey(step.seed, step.step, a.dropout.layer);
  mask.opIndex = a.dropout.opIndex;
  mask.threshold = dropoutThreshold(a.dropout.p);
  mask.firstRow = (uint64_t(a.firstSample + sample) * uint64_t(a.globalHeads) +
                   uint64_t(a.firstHead + head)) *
                      uint64_t(a.globalQueries) +
                  uint64_t(a.firstQuery);
  return mask;
}

/// Rows [begin, begin + count) of a matrix as a block owns them, times
/// `factor`: own[row][column], `width` columns; zeros past the ends.
template <class T>
__device__ void loadOwn(const T *rows, int64_t stride, int64_t begin,
                        int64_t end, int64_t columns, int width,
                        Accumulator<T> factor, Accumulator<T> *own) {
  using A = Accumulator<T>;
  for (int i = int(threadIdx.x); i < ownRows * width; i += attentionThreads) {
    int row = i / width, column = i % width;
    bool in = begin + row < end && column < columns;
    own[i] = in ? wide(rows[(begin + row) * stride + column]) * factor : A(0);
  }
}

/// Loads one column part of a tile: tile[row][column]; zeros past the ends.
template <class T>
__device__ void loadTile(const T *rows, int64_t stride, int64_t begin,
                         int64_t end, int64_t columns, int part,
                         Accumulator<T> *tile) {
  using A = Accumulator<T>;
  __syncthreads();
  for (int i = int(threadIdx.x); i < tileRows * partColumns;
       i += attentionThreads) {
    int row = i / partColumns, column = i % partColumns;
    int64_t place = int64_t(part) * partColumns + column;
    bool in = begin + row < end && place < columns;
    tile[row * tileStride + column] =
        in ? wide(rows[(begin + row) * stride + place]) : A(0);
  }
  __syncthreads();
}

/// sums[r] += own[r] . tile[lane] over one column part.
template <class A>
__device__ void scorePart(const A *own, int width, int part, const A *tile,
                          A (&sums)[rowsPerWarp]) {
  int warp = int(threadIdx.x) / warpSize_, lane = int(threadIdx.x) % warpSize_;
  const A *mine = own + warp * rowsPerWarp * width + part * partColumns;
#pragma unroll 8
  for (int column = 0; column < partColumns; ++column) {
    A value = tile[lane * tileStride + column];
    for (int r = 0; r < rowsPerWarp; ++r)
      sums[r] += mine[r * width + column] * value;
  }
}

/// out[r] += sum over the tile's rows of weights[r][row] * tile[row].
template <class A>
__device__ void weighPart(const A *weights, const A *tile,
                          A (*out)[laneColumns]) {
  int lane = int(threadIdx.x) % warpSize_;
#pragma unroll 8
  for (int row = 0; row < tileRows; ++row)
    for (int c = 0; c < laneColumns; ++c) {
      A value = tile[row * tileStride + lane + c * warpSize_];
      for (int r = 0; r < rowsPerWarp; ++r)
        out[r][c] += weights[r * tileRows + row] * value;
    }
}

/// Which of the weights of the warp's queries and the lane's key are kept: bit
/// r for query firstQuery + r. Lane l asks the generator for query l / 8 and
/// the block of columns l % 8, which are all that the warp needs.
__device__ inline uint32_t keptOfQueries(const Mask &mask, int64_t firstQuery,
                                         int64_t firstKey) {
  int lane = int(threadIdx.x) % warpSize_;
  PhiloxBlock block =
      dropoutBlock(mask.key, mask.firstRow + uint64_t(firstQuery + lane / 8),
                   uint32_t(firstKey / 4) + uint32_t(lane % 8), mask.opIndex);
  uint32_t four = 0, kept = 0;
  for (int c = 0; c < 4; ++c)
    four |= uint32_t(block.lane[c] >= mask.threshold) << c;
  for (int r = 0; r < rowsPerWarp; ++r)
    kept |= (__shfl_sync(~0u, four, r * 8 + lane / 4) >> (lane % 4) & 1u) << r;
  return kept;
}

/// The same for the lane's query and the warp's keys, which are one block of
/// columns.
__device__ inline uint32_t keptOfKeys(const Mask &mask, int64_t query,
                                      int64_t firstKey) {
  PhiloxBlock block = dropoutBlock(mask.key, mask.firstRow + uint64_t(query),
                                   uint32_t(firstKey / 4), mask.opIndex);
  uint32_t kept = 0;
  for (int c = 0; c < rowsPerWarp; ++c)
    kept |= uint32_t(block.lane[c] >= mask.threshold) << c;
  return kept;
}

/// Whether one weight is kept, of a key with any number.
__device__ inline uint32_t keptOf(const Mask &mask, int64_t query,
                                  int64_t key) {
  PhiloxBlock block = dropoutBlock(mask.key, mask.firstRow + uint64_t(query),
                                   uint32_t(key / 4), mask.opIndex);
  uint32_t four = 0;
  for (int c = 0; c < 4; ++c)
    four |= uint32_t(block.lane[c] >= mask.threshold) << c;
  return four >> (key % 4) & 1u;
}
/// The same as above of keys that begin anywhere, as those of a ring's step do:
/// a lane asks for what it needs.
__device__ inline uint32_t keptOfRing(const Mask &mask, int64_t firstQuery,
                                      int64_t firstKey) {
  if (firstKey % 4 == 0)
    return keptOfQueries(mask, firstQuery, firstKey);
  uint32_t kept = 0;
#pragma unroll 1
  for (int r = 0; r < rowsPerWarp; ++r)
    kept |=
        keptOf(mask, firstQuery + r, firstKey + int(threadIdx.x) % warpSize_)
        << r;
  return kept;
}
__device__ inline uint32_t keptOfRingKeys(const Mask &mask, int64_t query,
                                          int64_t firstKey) {
  if (firstKey % 4 == 0)
    return keptOfKeys(mask, query, firstKey);
  uint32_t kept = 0;
#pragma unroll 1
  for (int c = 0; c < rowsPerWarp; ++c)
    kept |= keptOf(mask, query, firstKey + c) << c;
  return kept;
}

template <class T> struct HeadOfQueries {
  int64_t sample, head;
  const T *q, *k, *v;
  int64_t out; ///< of row 0 in o, dout
  int64_t statistics;
  __device__ HeadOfQueries(const AttentionArguments<T> &a, int64_t index)
      : sample(index / a.heads), head(index % a.heads) {
    int64_t kvHead = head / (a.heads / a.kvHeads);
    q = a.q + sample * a.queryRows * a.qStride + head * a.headDim;
    k = a.k + sample * a.keyRows * a.kStride + kvHead * a.headDim;
    v = a.v + sample * a.keyRows * a.vStride + kvHead * a.headDim;
    out = (sample * a.queryRows * a.heads + head) * a.headDim;
    statistics = index * a.queryRows;
  }
};

/// Keys that queries below `end` see.
template <class T>
__device__ int64_t keysSeen(const AttentionArguments<T> &a, int64_t end) {
  if (!a.causal)
    return a.keyRows;
  int64_t last =
      (end < a.queryRows ? end : a.queryRows) + a.keyRows - a.queryRows;
  return last < 0 ? 0 : last < a.keyRows ? last : a.keyRows;
}
/// The first key, rounded down to a tile, that queries from `begin` on see.
/// `More`: starts, a cap or a factor of distances may be there. Programs
/// without keep the registers of kernels that do not ask for them.
template <bool More, class T>
__device__ int64_t firstKeySeen(const AttentionArguments<T> &a, int64_t sample,
                                int64_t begin) {
  int64_t first = begin + a.keyRows - a.queryRows - a.window + 1;
  if (a.window == 0 || first < 0)
    first = 0;
  // Documents ascend.
  if constexpr (More)
    if (a.starts && a.starts[sample * a.queryRows + begin] > first)
      first = a.starts[sample * a.queryRows + begin];
  return first / tileRows * tileRows;
}
/// Queries that see keys below `end`: those before this one.
template <bool More, class T>
__device__ int64_t queriesSeeing(const AttentionArguments<T> &a, int64_t sample,
                                 int64_t end) {
  int64_t last = end - 1 - (a.keyRows - a.queryRows) + a.window;
  if (a.window == 0 || last > a.queryRows)
    last = a.queryRows;
  if (More && a.starts) {
    // Queries from the document behind key end - 1 on see none of these: the
    // first whose document begins at `end` or later. It is behind that key.
    const int32_t *starts = a.starts + sample * a.queryRows;
    for (int64_t low = end < last ? end : last; low < last;) {
      const int64_t middle = low + (last - low) / 2;
      if (starts[middle] < end)
        low = middle + 1;
      else
        last = middle;
    }
  }
  return last;
}
template <bool More, class T>
__device__ bool sees(const AttentionArguments<T> &a, int64_t sample,
                     int64_t query, int64_t key) {
  int64_t own = query + a.keyRows - a.queryRows;
  return query < a.queryRows && key < a.keyRows && (!a.causal || key <= own) &&
         (a.window == 0 || key > own - a.window) &&
         (!More || !a.starts ||
          key >= a.starts[sample * a.queryRows + query]) &&
         (!a.mask || a.mask[sample * a.keyRows + key]);
}

/// The biases that a head adds to its scores: a row of biases by distance, or,
/// of windows, the first element of its column of the table.
template <class T> struct HeadBias {
  const T *row = nullptr, *table = nullptr;
  /// Whether turning the grid has brought rows, or columns, of the window
  /// together.
  bool lastRow = false, lastColumn = false;
};
template <class T>
__device__ HeadBias<T> biasOfHead(const AttentionArguments<T> &a,
                                  int64_t sample, int64_t head) {
  HeadBias<T> bias;
  if (a.bias)
    bias.row = a.bias + (sample * a.globalHeads + a.firstHead + head) *
                            (a.queryRows + a.keyRows - 1);
  if (const WindowBias<T> &w = a.windows; w.table) {
    bias.table = w.table + head;
    Quotient number = divide(w.first + sample, w.across);
    bias.lastColumn = w.shift > 0 && number.rest == w.across - 1;
    bias.lastRow =
        w.shift > 0 && divide(number.quotient, w.down).rest == w.down - 1;
  }
  return bias;
}

/// Returns the place of a query and a key of a window in a column of its table.
template <class T>
__device__ int64_t tablePlace(const WindowBias<T> &w, const Quotient &query,
                              const Quotient &key) {
  return (query.quotient - key.quotient + w.window - 1) * (2 * w.window - 1) +
         query.rest - key.rest + w.window - 1;
}

/// Returns the bias of a query and a key; 0 past their ends.
template <class T>
__device__ Accumulator<T> biasOf(const AttentionArguments<T> &a,
                                 const HeadBias<T> &bias, int64_t query,
                                 int64_t key) {
  using A = Accumulator<T>;
  if (query >= a.queryRows || key >= a.keyRows)
    return A(0);
  if (bias.row)
    return wide(bias.row[key - query + a.queryRows - 1]);
  if (!bias.table)
    return A(0);
  const WindowBias<T> &w = a.windows;
  const Quotient from = divide(query, w.window), to = divide(key, w.window);
  const int64_t edge = w.window - w.shift;
  bool apart =
      (bias.lastRow && (from.quotient >= edge) != (to.quotient >= edge)) ||
      (bias.lastColumn && (from.rest >= edge) != (to.rest >= edge));
  return wide(bias.table[tablePlace(w, from, to) * a.heads]) -
         (apart ? A(100) : A(0));
}

/// The slope of the head times the factor of distances (Press et al., arXiv
/// 2108.12409).
template <class T>
__device__ Accumulator<T> distanceFactor(const AttentionArguments<T> &a,
                                         int64_t head) {
  using A = Accumulator<T>;
  if (a.distance == 0)
    return A(0);
  int64_t power = 1;
  while (2 * power <= a.globalHeads)
    power *= 2;
  const int64_t number = a.firstHead + head;
  const A exponent = number < power
                         ? A(-8) * A(number + 1) / A(power)
                         : A(-4) * A(2 * (number - power) + 1) / A(power);
  return A(a.distance) * exponential(exponent * A(0.69314718055994530942));
}

/// A scaled score after its cap, and the factor of its gradient.
template <class A> struct Shaped {
  A score, slope;
};
template <class T>
__device__ Shaped<Accumulator<T>>
shapedScore(const AttentionArguments<T> &a, Accumulator<T> factor,
            Accumulator<T> score, int64_t query, int64_t key) {
  using A = Accumulator<T>;
  Shaped<A> result = {score, A(1)};
  if (a.cap != 0) {
    const A t = hyperbolicTangent(score / A(a.cap));
    result = {t * A(a.cap), A(1) - t * t};
  }
  result.score += factor * A(key - query - (a.keyRows - a.queryRows));
  return result;
}

/// Shared memory, in elements of the accumulator type.
template <int Parts> constexpr int ownElements = ownRows * Parts * partColumns;
constexpr int tileElements = tileRows * tileStride;
constexpr int weightElements = ownRows * tileRows;

/// Writes the mean of the values that one query of a step has seen, with what
/// is there of other steps; all lanes of a warp call it.
template <class T, int Parts>
__device__ void
storeStep(const AttentionArguments<T> &a, const HeadOfQueries<T> &head,
          int64_t query, Accumulator<T> maximum, Accumulator<T> sum,
          const Accumulator<T> (&out)[Parts][rowsPerWarp][laneColumns], int r) {
  using A = Accumulator<T>;
  const int lane = int(threadIdx.x) % warpSize_;
  A *lse = a.lse + head.statistics + query;
  const auto merged =
      mergeMeans(a.begins ? -infinity<A>() : *lse, A(maximum + logarithm(sum)));
  // Every lane has read it.
  __syncwarp();
  if (lane == 0)
    *lse = merged.lse;
  const A factor = (sum > A(0) ? A(1) / sum : A(sum)) * merged.own;
  for (int part = 0; part < Parts; ++part)
    for (int c = 0; c < laneColumns; ++c) {
      int64_t column = part * partColumns + lane + c * warpSize_;
      if (column >= a.headDim)
        continue;
      A &o = a.oSums[head.out + query * a.heads * a.headDim + column];
      A before = a.begins ? A(0) : o * merged.before;
      o = before + out[part][r][c] * factor;
    }
}

/// `Ring`: a step of one.
template <class T, int Parts, bool More, bool Ring = false>
__global__ void __launch_bounds__(attentionThreads)
    attentionKernel(AttentionArguments<T> a) {
  using A = Accumulator<T>;
  constexpr int width = Parts * partColumns;
  A *own = dynamicShared<A>(), *tile = own + ownElements<Parts>;
  const int warp = int(threadIdx.x) / warpSize_;
  const int lane = int(threadIdx.x) % warpSize_;
  A *weights = tile + tileElements + warp * rowsPerWarp * tileRows;
  const HeadOfQueries<T> head(a, blockIdx.y);
  const int64_t begin = int64_t(blockIdx.x) * ownRows;
  const int64_t firstQuery = begin + warp * rowsPerWarp;
  const Mask mask = maskOf(a, head.sample, head.head);
  const HeadBias<T> bias = biasOfHead(a, head.sample, head.head);
  const A keptScale = A(1 / (1 - a.dropout.p));
  const A factor = More ? distanceFactor(a, head.head) : A(0);
  loadOwn(head.q, a.qStride, begin, a.queryRows, a.headDim, width, A(a.scale),
          own);
  A maximum[rowsPerWarp], sum[rowsPerWarp] = {};
  A out[Parts][rowsPerWarp][laneColumns] = {};
  for (int r = 0; r < rowsPerWarp; ++r)
    maximum[r] = -infinity<A>();
  const int64_t keys = keysSeen(a, begin + ownRows);
  for (int64_t j0 = firstKeySeen<More>(a, head.sample, begin); j0 < keys;
       j0 += tileRows) {
    A score[rowsPerWarp] = {};
    for (int part = 0; part < Parts; ++part) {
      loadTile(head.k, a.kStride, j0, a.keyRows, a.headDim, part, tile);
      scorePart(own, width, part, tile, score);
    }
    uint32_t kept = !mask.active ? ~0u
                    : Ring       ? keptOfRing(mask, firstQuery, a.firstKey + j0)
                                 : keptOfQueries(mask, firstQuery, j0);
    __syncwarp();
    for (int r = 0; r < rowsPerWarp; ++r) {
      bool seen = sees<More>(a, head.sample, firstQuery + r, j0 + lane);
      if constexpr (More)
        score[r] =
            shapedScore(a, factor, score[r], firstQuery + r, j0 + lane).score;
      score[r] += biasOf(a, bias, firstQuery + r, j0 + lane);
      A top = larger(maximum[r], warpMaximum(seen ? score[r] : -infinity<A>()));
      // A row without a key so far has nothing to weigh or to shrink.
      bool any = top > -infinity<A>();
      A weight = seen && any ? exponential(score[r] - top) : A(0);
      A shrink = any ? exponential(maximum[r] - top) : A(1);
      maximum[r] = top;
      sum[r] = sum[r] * shrink + warpSum(weight);
      for (int part = 0; part < Parts; ++part)
        for (int c = 0; c < laneColumns; ++c)
          out[part][r][c] *= shrink;
      if (mask.active)
        weight = kept >> r & 1u ? weight * keptScale : A(0);
      weights[r * tileRows + lane] = weight;
    }
    __syncwarp();
    for (int part = 0; part < Parts; ++part) {
      loadTile(head.v, a.vStride, j0, a.keyRows, a.headDim, part, tile);
      weighPart(weights, tile, out[part]);
    }
  }
  for (int r = 0; r < rowsPerWarp; ++r) {
    int64_t query = firstQuery + r;
    if (query >= a.queryRows)
      continue;
    if constexpr (Ring) {
      storeStep<T, Parts>(a, head, query, maximum[r], sum[r], out, r);
      continue;
    }
    A inverse = sum[r] > A(0) ? A(1) / sum[r] : A(sum[r]);
    for (int part = 0; part < Parts; ++part)
      for (int c = 0; c < laneColumns; ++c) {
        int64_t column = part * partColumns + lane + c * warpSize_;
        if (column < a.headDim)
          a.o[head.out + query * a.heads * a.headDim + column] =
              narrow<T>(out[part][r][c] * inverse);
      }
    if (lane == 0)
      a.lse[head.statistics + query] = maximum[r] + logarithm(sum[r]);
  }
}

/// delta = dout . o of every query; a warp each. 2w bytes an element.
template <class T>
__global__ void __launch_bounds__(attentionThreads)
    deltaKernel(AttentionArguments<T> a) {
  using A = Accumulator<T>;
  const HeadOfQueries<T> head(a, blockIdx.y);
  const int lane = int(threadIdx.x) % warpSize_;
  int64_t query = int64_t(blockIdx.x) * warps + int(threadIdx.x) / warpSize_;
  if (query >= a.queryRows)
    return;
  int64_t row = head.out + query * a.heads * a.headDim;
  A sum = 0;
  for (int64_t column = lane; column < a.headDim; column += warpSize_)
    sum += wide(a.o[row + column]) * wide(a.dout[row + column]);
  sum = warpSum(sum);
  if (lane == 0)
    a.delta[head.statistics + query] = sum;
}

/// Returns the place of the sums of a head's distances: in dbias, or behind the
/// rest of the scratch where that is too narrow.
template <class T>
__device__ Accumulator<T> *biasSumsOf(const AttentionArguments<T> &a,
                                      int64_t index, T *dbias) {
  using A = Accumulator<T>;
  if constexpr (sizeof(T) == sizeof(A))
    return dbias;
  else
    return a.biasSums + index * (a.queryRows + a.keyRows - 1);
}

/// Adds the diagonals of a tile's weights, [ownRows, tileRows] of all warps, to
/// the distances of a head; each has one thread. Weights carry the scale, which
/// a bias does not see.
template <class T>
__device__ void addDiagonals(const AttentionArguments<T> &a,
                             const Accumulator<T> *weights, int64_t begin,
                             int64_t j0, Accumulator<T> *sums) {
  using A = Accumulator<T>;
  __syncthreads();
  int diagonal = int(threadIdx.x) - (ownRows - 1);
  int64_t place = j0 + diagonal - begin + a.queryRows - 1;
  if (diagonal < tileRows && place >= 0 &&
      place < a.queryRows + a.keyRows - 1) {
    A sum = 0;
    for (int row = 0; row < ownRows; ++row)
      if (int key = row + diagonal; key >= 0 && key < tileRows)
        sum += weights[row * tileRows + key];
    sums[place] += sum / A(a.scale);
  }
  __syncthreads();
}

/// The same for the table of windows: a query's keys have places of their own,
/// so that one warp adds a row at a time.
template <class T>
__device__ void addToTable(const AttentionArguments<T> &a,
                           const Accumulator<T> *weights, int64_t begin,
                           int64_t j0, Accumulator<T> *sums) {
  __syncthreads();
  const int64_t key = j0 + int64_t(threadIdx.x);
  if (int(threadIdx.x) < tileRows)
    for (int row = 0; row < ownRows; ++row) {
      if (begin + row < a.queryRows && key < a.keyRows)
        sums[tablePlace(a.windows, divide(begin + row, a.windows.window),
                        divide(key, a.windows.window))] +=
            weights[row * tileRows + int(threadIdx.x)];
      __syncwarp();
    }
  __syncthreads();
}

/// The sums that the gradient of queries adds up besides.
enum class Sums { None, Distances, Table };

/// The gradient of the block's queries from `begin` on; `sums` are those of
/// distances or of a table.
template <class T, int Parts, Sums Kind, bool More = false, bool Ring = false>
__device__ void queryGradRows(const AttentionArguments<T> &a,
                              const HeadOfQueries<T> &head, int64_t begin,
                              Accumulator<T> *sums) {
  using A = Accumulator<T>;
  constexpr int width = Parts * partColumns;
  constexpr bool biased = Kind != Sums::None;
  A *ownQ = dynamicShared<A>(), *ownDout = ownQ + ownElements<Parts>;
  A *tile = ownDout + ownElements<Parts>;
  const int warp = int(threadIdx.x) / warpSize_;
  const int lane = int(threadIdx.x) % warpSize_;
  A *weights = tile + tileElements + warp * rowsPerWarp * tileRows;
  const Mask mask = maskOf(a, head.sample, head.head);
  HeadBias<T> bias;
  if (biased)
    bias = biasOfHead(a, head.sample, head.head);
  const A keptScale = mask.active ? A(1 / (1 - a.dropout.p)) : A(1);
  const A scale = A(a.scale);
  const A factor = More ? distanceFactor(a, head.head) : A(0);
  const int64_t firstQuery = begin + warp * rowsPerWarp;
  // Rows of the turn before may still be read.
  if (biased)
    __syncthreads();
  loadOwn(head.q, a.qStride, begin, a.queryRows, a.headDim, width, scale, ownQ);
  loadOwn(a.dout + head.out, a.heads * a.headDim, begin, a.queryRows, a.headDim,
          width, A(1), ownDout);
  A lse[rowsPerWarp], delta[rowsPerWarp];
  for (int r = 0; r < rowsPerWarp; ++r) {
    bool in = firstQuery + r < a.queryRows;
    lse[r] = in ? a.lse[head.statistics + firstQuery + r] : A(0);
    delta[r] = in ? a.delta[head.statistics + firstQuery + r] : A(0);
  }
  A out[Parts][rowsPerWarp][laneColumns] = {};
  const int64_t keys = keysSeen(a, begin + ownRows);
  for (int64_t j0 = firstKeySeen<More>(a, head.sample, begin); j0 < keys;
       j0 += tileRows) {
    A score[rowsPerWarp] = {}, gradient[rowsPerWarp] = {};
    for (int part = 0; part < Parts; ++part) {
      loadTile(head.v, a.vStride, j0, a.keyRows, a.headDim, part, tile);
      scorePart(ownDout, width, part, tile, gradient);
    }
    for (int part = 0; part < Parts; ++part) {
      loadTile(head.k, a.kStride, j0, a.keyRows, a.headDim, part, tile);
      scorePart(ownQ, width, part, tile, score);
    }
    uint32_t kept = !mask.active ? ~0u
                    : Ring       ? keptOfRing(mask, firstQuery, a.firstKey + j0)
                                 : keptOfQueries(mask, firstQuery, j0);
    __syncwarp();
    for (int r = 0; r < rowsPerWarp; ++r) {
      bool seen = sees<More>(a, head.sample, firstQuery + r, j0 + lane);
      A slope = scale;
      if constexpr (More) {
        const auto shaped =
            shapedScore(a, factor, score[r], firstQuery + r, j0 + lane);
        score[r] = shaped.score;
        slope *= shaped.slope;
      }
      if (biased)
        score[r] += biasOf(a, bias, firstQuery + r, j0 + lane);
      A p = seen ? exponential(score[r] - lse[r]) : A(0);
      A through = kept >> r & 1u ? gradient[r] * keptScale : A(0);
      weights[r * tileRows + lane] = p * (through - delta[r]) * slope;
    }
    __syncwarp();
    if (Kind == Sums::Distances)
      addDiagonals(a, tile + tileElements, begin, j0, sums);
    if (Kind == Sums::Table)
      addToTable(a, tile + tileElements, begin, j0, sums);
    for (int part = 0; part < Parts; ++part) {
      // The keys are there still where there is one part.
      if (Parts > 1)
        loadTile(head.k, a.kStride, j0, a.keyRows, a.headDim, part, tile);
      weighPart(weights, tile, out[part]);
    }
  }
  if constexpr (Ring) {
    A *dq = a.dqSums + (head.q - a.q);
    for (int r = 0; r < rowsPerWarp; ++r)
      for (int part = 0; part < Parts; ++part)
        for (int c = 0; c < laneColumns; ++c) {
          int64_t column = part * partColumns + lane + c * warpSize_;
          if (firstQuery + r < a.queryRows && column < a.headDim)
            dq[(firstQuery + r) * a.qStride + column] += out[part][r][c];
        }
    return;
  }
  T *dq = a.dq + (head.q - a.q);
  for (int r = 0; r < rowsPerWarp; ++r)
    for (int part = 0; part < Parts; ++part)
      for (int c = 0; c < laneColumns; ++c) {
        int64_t column = part * partColumns + lane + c * warpSize_;
        if (firstQuery + r < a.queryRows && column < a.headDim)
          dq[(firstQuery + r) * a.qStride + column] =
              narrow<T>(out[part][r][c]);
      }
}

template <class T, int Parts, bool More, bool Ring = false>
__global__ void __launch_bounds__(attentionThreads)
    queryGradKernel(AttentionArguments<T> a) {
  queryGradRows<T, Parts, Sums::None, More, Ring>(
      a, HeadOfQueries<T>(a, blockIdx.y), int64_t(blockIdx.x) * ownRows,
      nullptr);
}

template <class T, int Parts, bool More>
__global__ void __launch_bounds__(attentionThreads)
    biasedQueryGradKernel(AttentionArguments<T> a) {
  const HeadOfQueries<T> head(a, blockIdx.y);
  T *dbias = a.dbias + (biasOfHead(a, head.sample, head.head).row - a.bias);
  Accumulator<T> *sums = biasSumsOf(a, blockIdx.y, dbias);
  for (int64_t begin = 0; begin < a.queryRows; begin += ownRows)
    queryGradRows<T, Parts, Sums::Distances, More>(a, head, begin, sums);
  if constexpr (sizeof(T) < sizeof(Accumulator<T>)) {
    __syncthreads();
    for (int64_t d = threadIdx.x; d < a.queryRows + a.keyRows - 1;
         d += attentionThreads)
      dbias[d] = narrow<T>(sums[d]);
  }
}

/// A block has a head of a part of the windows.
template <class T, int Parts>
__global__ void __launch_bounds__(attentionThreads)
    windowQueryGradKernel(AttentionArguments<T> a) {
  const int64_t side = 2 * a.windows.window - 1, unit = blockIdx.x;
  const Quotient place = divide(unit, a.heads);
  Accumulator<T> *sums = a.windows.sums + unit * side * side;
  for (int64_t i = threadIdx.x; i < side * side; i += attentionThreads)
    sums[i] = 0;
  const int64_t parts = a.windows.parts;
  const int64_t last = a.samples * (place.quotient + 1) / parts;
  for (int64_t s = a.samples * place.quotient / parts; s < last; ++s)
    for (int64_t begin = 0; begin < a.queryRows; begin += ownRows)
      queryGradRows<T, Parts, Sums::Table>(
          a, HeadOfQueries<T>(a, s * a.heads + place.rest), begin, sums);
}

/// A thread an element of the table; parts are added in their order. Their sums
/// carry the scale, which a bias does not see.
template <class T>
__global__ void __launch_bounds__(attentionThreads)
    tableGradKernel(AttentionArguments<T> a) {
  using A = Accumulator<T>;
  const WindowBias<T> &w = a.windows;
  const int64_t elements = (2 * w.window - 1) * (2 * w.window - 1);
  int64_t i = int64_t(blockIdx.x) * attentionThreads + threadIdx.x;
  if (i >= elements * a.heads)
    return;
  const Quotient place = divide(i, a.heads);
  A sum = 0;
  for (int64_t part = 0; part < w.parts; ++part)
    sum += w.sums[(part * a.heads + place.rest) * elements + place.quotient];
  sum /= A(a.scale);
  w.dtable[i] = w.add ? w.dtable[i] + sum : sum;
}

/// `Adds`: to the gradients of keys and values that are there.
template <class T, int Parts, bool More, bool Adds = false, bool Ring = false>
__global__ void __launch_bounds__(attentionThreads)
    keyGradKernel(AttentionArguments<T> a) {
  using A = Accumulator<T>;
  constexpr int width = Parts * partColumns;
  A *ownK = dynamicShared<A>(), *ownV = ownK + ownElements<Parts>;
  A *tile = ownV + ownElements<Parts>;
  const int warp = int(threadIdx.x) / warpSize_;
  const int lane = int(threadIdx.x) % warpSize_;
  // The weights are for the gradient of values, and for that of keys.
  A *weightsV = tile + tileElements + warp * rowsPerWarp * tileRows;
  A *weightsK = weightsV + weightElements;
  const int64_t sample = int64_t(blockIdx.y) / a.kvHeads;
  const int64_t kvHead = int64_t(blockIdx.y) % a.kvHeads;
  const int64_t group = a.heads / a.kvHeads;
  const int64_t begin = int64_t(blockIdx.x) * ownRows;
  const int64_t firstKey = begin + warp * rowsPerWarp;
  const int64_t kPlace = sample * a.keyRows * a.kStride + kvHead * a.headDim;
  const int64_t vPlace = sample * a.keyRows * a.vStride + kvHead * a.headDim;
  const A scale = A(a.scale);
  loadOwn(a.k + kPlace, a.kStride, begin, a.keyRows, a.headDim, width, scale,
          ownK);
  loadOwn(a.v + vPlace, a.vStride, begin, a.keyRows, a.headDim, width, A(1),
          ownV);
  A sumK[Parts][rowsPerWarp][laneColumns] = {};
  A sumV[Parts][rowsPerWarp][laneColumns] = {};
  // The first query that sees the block's first key.
  int64_t first = a.causal ? begin - (a.keyRows - a.queryRows) : 0;
  first = first < 0 ? 0 : first / tileRows * tileRows;
  const int64_t last = queriesSeeing<More>(a, sample, begin + ownRows);
  for (int64_t member = 0; member < group; ++member) {
    const HeadOfQueries<T> head(a, sample * a.heads + kvHead * group + member);
    const Mask mask = maskOf(a, sample, head.head);
    const HeadBias<T> bias = biasOfHead(a, sample, head.head);
    const A keptScale = mask.active ? A(1 / (1 - a.dropout.p)) : A(1);
    const A distances = More ? distanceFactor(a, head.head) : A(0);
    const T *dout = a.dout + head.out;
    const int64_t doutStride = a.heads * a.headDim;
    for (int64_t i0 = first; i0 < last; i0 += tileRows) {
      A score[rowsPerWarp] = {}, gradient[rowsPerWarp] = {};
      for (int part = 0; part < Parts; ++part) {
        loadTile(head.q, a.qStride, i0, a.queryRows, a.headDim, part, tile);
        scorePart(ownK, width, part, tile, score);
      }
      for (int part = 0; part < Parts; ++part) {
        loadTile(dout, doutStride, i0, a.queryRows, a.headDim, part, tile);
        scorePart(ownV, width, part, tile, gradient);
      }
      const int64_t query = i0 + lane;
      bool in = query < a.queryRows;
      A lse = in ? a.lse[head.statistics + query] : A(0);
      A delta = in ? a.delta[head.statistics + query] : A(0);
      uint32_t kept = !mask.active ? ~0u
                      : Ring
                          ? keptOfRingKeys(mask, query, a.firstKey + firstKey)
                          : keptOfKeys(mask, query, firstKey);
      __syncwarp();
      for (int r = 0; r < rowsPerWarp; ++r) {
        A slope = scale;
        if constexpr (More) {
          const auto shaped =
              shapedScore(a, distances, score[r], query, firstKey + r);
          score[r] = shaped.score;
          slope *= shaped.slope;
        }
        score[r] += biasOf(a, bias, query, firstKey + r);
        A p = sees<More>(a, sample, query, firstKey + r)
                  ? exponential(score[r] - lse)
                  : A(0);
        A factor = kept >> r & 1u ? keptScale : A(0);
        weightsV[r * tileRows + lane] = p * factor;
        weightsK[r * tileRows + lane] =
            p * (factor * gradient[r] - delta) * slope;
      }
      __syncwarp();
      for (int part = 0; part < Parts; ++part) {
        if (Parts > 1)
          loadTile(dout, doutStride, i0, a.queryRows, a.headDim, part, tile);
        weighPart(weightsV, tile, sumV[part]);
      }
      for (int part = 0; part < Parts; ++part) {
        loadTile(head.q, a.qStride, i0, a.queryRows, a.headDim, part, tile);
        weighPart(weightsK, tile, sumK[part]);
      }
    }
  }
  for (int r = 0; r < rowsPerWarp; ++r)
    for (int part = 0; part < Parts; ++part)
      for (int c = 0; c < laneColumns; ++c) {
        int64_t column = part * partColumns + lane + c * warpSize_;
        if (firstKey + r >= a.keyRows || column >= a.headDim)
          continue;
        if constexpr (Ring) {
          a.dkSums[kPlace + (firstKey + r) * a.kStride + column] +=
              sumK[part][r][c];
          a.dvSums[vPlace + (firstKey + r) * a.vStride + column] +=
              sumV[part][r][c];
          continue;
        }
        T &dk = a.dk[kPlace + (firstKey + r) * a.kStride + column];
        T &dv = a.dv[vPlace + (firstKey + r) * a.vStride + column];
        dk = narrow<T>(Adds ? sumK[part][r][c] + wide(dk) : sumK[part][r][c]);
        dv = narrow<T>(Adds ? sumV[part][r][c] + wide(dv) : sumV[part][r][c]);
      }
}

inline unsigned blocksOver(int64_t rows, int per) {
  return unsigned((rows + per - 1) / per);
}

/// Calls body with the number of column parts of a head. f64 is for tests: one
/// form does.
template <class T, class Body> void inParts(int64_t headDim, Body body) {
  if (headDim > mostHeadDim)
    throw DeviceError("attention heads have at most " +
                      std::to_string(mostHeadDim) + " columns, found " +
                      std::to_string(headDim));
  if constexpr (sizeof(T) < 8) {
    if (headDim <= partColumns)
      return body(std::integral_constant<int, 1>());
    if (headDim <= 2 * partColumns)
      return body(std::integral_constant<int, 2>());
  }
  body(std::integral_constant<int, mostHeadDim / partColumns>());
}

/// A grid has so many rows of blocks, at most.
constexpr int64_t mostUnits = 65535;

/// Calls body with the arguments of so many samples at a time that `units` of
/// each are no more than a grid has.
template <class T, class Body>
void inSamples(const AttentionArguments<T> &whole, int64_t units, Body body) {
  const int64_t most = units > mostUnits ? 1 : mostUnits / units;
  for (int64_t first = 0; first < whole.samples; first += most) {
    AttentionArguments<T> a = whole;
    a.samples = whole.samples - first < most ? whole.samples - first : most;
    const int64_t queries = first * a.queryRows, keys = first * a.keyRows;
    const int64_t out = queries * a.heads * a.headDim;
    const int64_t biases =
        first * a.globalHeads * (a.queryRows + a.keyRows - 1);
    a.q += queries * a.qStride;
    a.k += keys * a.kStride;
    a.v += keys * a.vStride;
    a.o += out;
    a.lse += queries * a.heads;
    a.mask += a.mask ? keys : 0;
    a.starts += a.starts ? queries : 0;
    a.bias += a.bias ? biases : 0;
    a.firstSample += first;
    a.windows.first += first;
    if (a.dout) {
      a.dout += out;
      a.dq += queries * a.qStride;
      a.dk += keys * a.kStride;
      a.dv += keys * a.vStride;
      a.delta += queries * a.heads;
      a.dbias += a.dbias ? biases : 0;
      a.biasSums +=
          a.biasSums ? first * a.heads * (a.queryRows + a.keyRows - 1) : 0;
    }
    body(a);
  }
}

/// Whether the kernels that ask for more are wanted.
template <class T> bool hasMore(const AttentionArguments<T> &a) {
  return a.starts || a.cap != 0 || a.distance != 0;
}

} // namespace

template <class T>
void attention(const Queue &queue, const AttentionArguments<T> &whole) {
  using A = Accumulator<T>;
  if (whole.heads <= 0 || whole.queryRows <= 0)
    return;
  inSamples(whole, whole.heads, [&](const AttentionArguments<T> &a) {
    inParts<T>(a.headDim, [&](auto number) {
      constexpr int parts = decltype(number)::value;
      int shared =
          (ownElements<parts> + tileElements + weightElements) * int(sizeof(A));
      launch(
          isInRing(whole)  ? attentionKernel<T, parts, false, true>
          : hasMore(whole) ? attentionKernel<T, parts, true>
                           : attentionKernel<T, parts, false>,
          dim3(blocksOver(a.queryRows, ownRows), unsigned(a.samples * a.heads)),
          dim3(attentionThreads), shared, queue.stream, a);
    });
  });
}

template <class T>
void attentionGrad(const Queue &queue, const AttentionArguments<T> &whole) {
  using A = Accumulator<T>;
  if (whole.samples <= 0 || whole.heads <= 0)
    return;
  if (whole.queryRows > 0)
    inSamples(whole, whole.heads, [&](const AttentionArguments<T> &a) {
      launch(
          deltaKernel<T>,
          dim3(blocksOver(a.queryRows, warps), unsigned(a.samples * a.heads)),
          dim3(attentionThreads), 0, queue.stream, a);
    });
  if (whole.dbias) {
    int64_t distances = whole.queryRows + whole.keyRows - 1;
    gpu::fill(queue.stream, whole.dbias, 0,
              uint64_t(whole.samples * whole.globalHeads * distances) *
                  sizeof(T));
    if (sizeof(T) < sizeof(A))
      gpu::fill(queue.stream, whole.biasSums, 0,
                uint64_t(whole.samples * whole.heads * distances) * sizeof(A));
  }
  inParts<T>(whole.headDim, [&](auto number) {
    constexpr int parts = decltype(number)::value;
    constexpr int own = 2 * ownElements<parts> + tileElements;
    constexpr int element = int(sizeof(A));
    constexpr int queryBytes = (own + weightElements) * element;
    const WindowBias<T> &w = whole.windows;
    if (w.table) {
      launch(windowQueryGradKernel<T, parts>,
             dim3(unsigned(w.parts * whole.heads)), dim3(attentionThreads),
             queryBytes, queue.stream, whole);
      int64_t elements = (2 * w.window - 1) * (2 * w.window - 1) * whole.heads;
      launch(tableGradKernel<T>, dim3(blocksOver(elements, attentionThreads)),
             dim3(attentionThreads), 0, queue.stream, whole);
    }
    inSamples(whole, whole.heads, [&](const AttentionArguments<T> &a) {
      const unsigned heads = unsigned(a.samples * a.heads);
      if (a.queryRows > 0 && a.dbias)
        launch(hasMore(a) ? biasedQueryGradKernel<T, parts, true>
                          : biasedQueryGradKernel<T, parts, false>,
               dim3(1, heads), dim3(attentionThreads), queryBytes, queue.stream,
               a);
      else if (a.queryRows > 0 && !w.table)
        launch(isInRing(a)  ? queryGradKernel<T, parts, false, true>
               : hasMore(a) ? queryGradKernel<T, parts, true>
                            : queryGradKernel<T, parts, false>,
               dim3(blocksOver(a.queryRows, ownRows), heads),
               dim3(attentionThreads), queryBytes, queue.stream, a);
      if (a.keyRows > 0)
        launch(isInRing(a)  ? keyGradKernel<T, parts, false, false, true>
               : a.addsKeys ? keyGradKernel<T, parts, false, true>
               : hasMore(a) ? keyGradKernel<T, parts, true>
                            : keyGradKernel<T, parts, false>,
               dim3(blocksOver(a.keyRows, ownRows),
                    unsigned(a.samples * a.kvHeads)),
               dim3(attentionThreads), (own + 2 * weightElements) * element,
               queue.stream, a);
    });
  });
}

#define GRT_INSTANTIATE(T)                                                     \
  template void attention(const Queue &, const AttentionArguments<T> &);       \
  template void attentionGrad(const Queue &, const AttentionArguments<T> &)
GRT_INSTANTIATE(float);
GRT_INSTANTIATE(double);
GRT_INSTANTIATE(BF16);

} // namespace grt::cuda
