//===- tensor_attention.cu - Attention in bf16 on tensor cores ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The same walk as in attention.cu, with products of 16 by 16 by 8 on tensor
// cores (FlashAttention-2: Dao 2023). A block owns 64 rows of one head, 16 to
// each of its four warps, and walks over tiles of `Tile` rows of the other side
// in shared memory. Weights and their gradients are rounded to bf16 before they
// enter a product, as in the published kernels; sums and softmax are f32.
//
// Every product's left operand is in registers: own rows, or scores that
// another product left there. The gradient of keys and values computes the
// scores transposed, keys by queries, so that this holds there too. All sums
// have one order; nothing is atomic.
//
// With S = samples * heads * Tq * Tk * headDim (half of that if causal):
// forward 4 S operations, the gradient of queries 6 S, of keys and values 8 S;
// bytes are those of q, k, v, o once for every 64 rows of the other side. Bound
// by tensor cores, and the latency of loads that nothing overlaps but other
// blocks.
//
//===----------------------------------------------------------------------===//

#include "elements.h"
#include "kernels.h"
#include "tensor_core.h"

namespace grt::cuda {
namespace {

constexpr int warps = 4, warpRows = 16, ownRows = warps * warpRows;
constexpr int blockThreads = warps * warpSize_;
/// Elements behind a row in shared memory: rows then start at different banks.
constexpr int rowPad = 8;

using Arguments = AttentionArguments<BF16>;

__device__ inline float quickExponential(float x) {
#ifdef __CUDACC__
  return __expf(x);
#else
  return expf(x);
#endif
}

/// Rows [begin, begin + Rows) of a matrix of D columns, zeros past `end`.
template <int Rows, int D>
__device__ void loadRows(const BF16 *from, int64_t stride, int64_t begin,
                         int64_t end, BF16 *to) {
  constexpr int packs = D / 8;
  for (int i = int(threadIdx.x); i < Rows * packs; i += blockThreads) {
    int row = i / packs, column = i % packs * 8;
    Pack<BF16, 8> pack;
    if (begin + row < end)
      pack = load<8>(from + (begin + row) * stride + column);
    else
      for (BF16 &element : pack.at)
        element = {0};
    store<8>(to + row * (D + rowPad) + column, pack);
  }
}

/// A of columns [16 k, 16 k + 16) of 16 rows in shared memory.
template <int D> __device__ Fragments leftOperand(const BF16 *rows, int k) {
  int lane = int(threadIdx.x) % warpSize_;
  return loadMatrices<false>(rows + lane % 16 * (D + rowPad) + 16 * k +
                             lane / 16 * 8);
}

/// scores[n] = left . tile over D columns; scores[n] are columns 8 n of the
/// product, rows of the tile.
template <int Tile, int D>
__device__ void multiplyRows(const Fragments (&left)[D / 16], const BF16 *tile,
                             float (&scores)[Tile / 8][4]) {
  int lane = int(threadIdx.x) % warpSize_;
  for (auto &score : scores)
    for (float &value : score)
      value = 0;
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
#pragma unroll
    for (int n = 0; n < Tile / 16; ++n) {
      const BF16 *row = tile +
                        (16 * n + lane % 8 + lane / 16 * 8) * (D + rowPad) +
                        16 * k + lane / 8 % 2 * 8;
      Fragments b = loadMatrices<false>(row);
      multiplyAdd(scores[2 * n], left[k], b.at[0], b.at[1]);
      multiplyAdd(scores[2 * n + 1], left[k], b.at[2], b.at[3]);
    }
}

/// sums[d] += weights tile; sums[d] are columns 8 d of the tile.
template <int Tile, int D>
__device__ void multiplyColumns(const float (&weights)[Tile / 8][4],
                                const BF16 *tile, float (&sums)[D / 8][4]) {
  int lane = int(threadIdx.x) % warpSize_;
#pragma unroll
  for (int k = 0; k < Tile / 16; ++k) {
    const auto &low = weights[2 * k], &high = weights[2 * k + 1];
    Fragments left = {{packed(low[0], low[1]), packed(low[2], low[3]),
                       packed(high[0], high[1]), packed(high[2], high[3])}};
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
      Fragments b = loadMatrices<true>(
          tile + (16 * k + lane % 16) * (D + rowPad) + 16 * d + lane / 16 * 8);
      multiplyAdd(sums[2 * d], left, b.at[0], b.at[1]);
      multiplyAdd(sums[2 * d + 1], left, b.at[2], b.at[3]);
    }
  }
}

/// Writes a warp's 16 rows from `first` on, times factor[0] (rows g) and
/// factor[1] (rows g + 8).
template <int D>
__device__ void storeRows(const float (&sums)[D / 8][4], const float *factor,
                          BF16 *to, int64_t stride, int64_t first,
                          int64_t end) {
  int lane = int(threadIdx.x) % warpSize_, g = lane / 4, t = lane % 4;
  for (int half = 0; half < 2; ++half) {
    int64_t row = first + g + 8 * half;
    if (row >= end)
      continue;
    for (int d = 0; d < D / 8; ++d) {
      Pack<BF16, 2> pair = {
          {narrow<BF16>(sums[d][2 * half] * factor[half]),
           narrow<BF16>(sums[d][2 * half + 1] * factor[half])}};
      store<2>(to + row * stride + 8 * d + 2 * t, pair);
    }
  }
}

/// Dropout numbers of one head.
struct Mask {
  PhiloxKey key;
  uint32_t opIndex, threshold;
  bool active;
  uint64_t firstRow; ///< global number of query 0 of the head
  float keptScale;

  __device__ Mask(const Arguments &a, int64_t sample, int64_t head) {
    const grt_step &step = *a.dropout.step;
    active = a.dropout.p > 0 && step.mode == GRT_MODE_TRAIN;
    key = dropoutKey(step.seed, step.step, a.dropout.layer);
    opIndex = a.dropout.opIndex;
    threshold = dropoutThreshold(a.dropout.p);
    firstRow = (uint64_t(a.firstSample + sample) * uint64_t(a.globalHeads) +
                uint64_t(a.firstHead + head)) *
               uint64_t(a.queryRows);
    keptScale = active ? float(1 / (1 - a.dropout.p)) : 1.0f;
  }
  /// Four bits: whether the columns 4 block .. 4 block + 3 of a query are kept.
  __device__ uint32_t four(int64_t query, int64_t block) const {
    PhiloxBlock numbers =
        dropoutBlock(key, firstRow + uint64_t(query), uint32_t(block), opIndex);
    uint32_t bits = 0;
    for (int c = 0; c < 4; ++c)
      bits |= uint32_t(numbers.lane[c] >= threshold) << c;
    return bits;
  }
  /// Bit i: whether element i of C is kept, rows being queries from `query` on
  /// and columns keys from `key8` on. Two lanes share the two blocks they need.
  __device__ uint32_t ofQueries(int64_t query, int64_t key8) const {
    int lane = int(threadIdx.x) % warpSize_, g = lane / 4, t = lane % 4;
    uint32_t mine = four(query + g + 8 * (t % 2), key8 / 4 + t / 2);
    uint32_t other = __shfl_xor_sync(~0u, mine, 1);
    uint32_t top = t % 2 ? other : mine, bottom = t % 2 ? mine : other;
    int shift = t % 2 * 2;
    return (top >> shift & 3u) | (bottom >> shift & 3u) << 2;
  }
  /// The same with rows keys and columns queries; four lanes share four blocks.
  __device__ uint32_t ofKeys(int64_t key16, int64_t query8) const {
    int lane = int(threadIdx.x) % warpSize_, g = lane / 4, t = lane % 4;
    int c = g % 4;
    uint32_t mine = four(query8 + 2 * t + c % 2, key16 / 4 + g / 4 + c / 2 * 2);
    uint32_t bits = 0;
    for (int i = 0; i < 4; ++i)
      bits |= (__shfl_sync(~0u, mine, 4 * (g / 4 * 4 + i) + t) >> c & 1u) << i;
    return bits;
  }
};

/// Where a query head stands in the buffers.
struct Head {
  int64_t sample, head;
  const BF16 *q, *k, *v;
  int64_t out, outStride, statistics;
  __device__ Head(const Arguments &a, int64_t index)
      : sample(index / a.heads), head(index % a.heads) {
    int64_t kvHead = head / (a.heads / a.kvHeads);
    q = a.q + sample * a.queryRows * a.qStride + head * a.headDim;
    k = a.k + sample * a.keyRows * a.kStride + kvHead * a.headDim;
    v = a.v + sample * a.keyRows * a.vStride + kvHead * a.headDim;
    outStride = a.heads * a.headDim;
    out = sample * a.queryRows * outStride + head * a.headDim;
    statistics = index * a.queryRows;
  }
};

__device__ inline bool sees(const Arguments &a, int64_t sample, int64_t query,
                            int64_t key) {
  int64_t own = query + a.keyRows - a.queryRows;
  return query < a.queryRows && key < a.keyRows && (!a.causal || key <= own) &&
         (a.window == 0 || key > own - a.window) &&
         (!a.mask || a.mask[sample * a.keyRows + key]);
}
/// The first key, rounded down to a tile, that queries from `begin` on see.
__device__ inline int64_t firstKeySeen(const Arguments &a, int64_t begin,
                                       int tile) {
  int64_t first = begin + a.keyRows - a.queryRows - a.window + 1;
  return a.window == 0 || first < 0 ? 0 : first / tile * tile;
}
/// Queries that see keys below `end`: those before this one.
__device__ inline int64_t queriesSeeing(const Arguments &a, int64_t end) {
  int64_t last = end - 1 - (a.keyRows - a.queryRows) + a.window;
  return a.window == 0 || last > a.queryRows ? a.queryRows : last;
}
/// Keys that queries below `end` see.
__device__ inline int64_t keysSeen(const Arguments &a, int64_t end) {
  if (!a.causal)
    return a.keyRows;
  int64_t last =
      (end < a.queryRows ? end : a.queryRows) + a.keyRows - a.queryRows;
  return last < 0 ? 0 : last < a.keyRows ? last : a.keyRows;
}
/// Whether queries [query, queryEnd) surely see all keys [key, keyEnd).
__device__ inline bool seesAll(const Arguments &a, int64_t query,
                               int64_t queryEnd, int64_t key, int64_t keyEnd) {
  int64_t shift = a.keyRows - a.queryRows;
  return !a.mask && queryEnd <= a.queryRows && keyEnd <= a.keyRows &&
         (!a.causal || keyEnd - 1 <= query + shift) &&
         (a.window == 0 || key > queryEnd - 1 + shift - a.window);
}

constexpr int forwardTile = 64, backwardTile = 32;
template <int D> constexpr int rowsBytes(int rows) {
  return rows * (D + rowPad) * int(sizeof(BF16));
}

template <int D>
__global__ void __launch_bounds__(blockThreads)
    tensorAttentionKernel(Arguments a) {
  constexpr int Tile = forwardTile;
  BF16 *keys = dynamicShared<BF16>(), *values = keys + Tile * (D + rowPad);
  const int warp = int(threadIdx.x) / warpSize_;
  const int lane = int(threadIdx.x) % warpSize_, g = lane / 4, t = lane % 4;
  const Head head(a, blockIdx.y);
  const int64_t begin = int64_t(blockIdx.x) * ownRows;
  const int64_t first = begin + warp * warpRows;
  const Mask mask(a, head.sample, head.head);
  const float scale = float(a.scale);

  // Own rows pass through the place of the keys.
  Fragments own[D / 16];
  loadRows<ownRows, D>(head.q, a.qStride, begin, a.queryRows, keys);
  __syncthreads();
  for (int k = 0; k < D / 16; ++k)
    own[k] = leftOperand<D>(keys + warp * warpRows * (D + rowPad), k);

  float sums[D / 8][4] = {};
  float maximum[2] = {-infinity<float>(), -infinity<float>()}, total[2] = {};
  const int64_t seen = keysSeen(a, begin + ownRows);
  for (int64_t j0 = firstKeySeen(a, begin, Tile); j0 < seen; j0 += Tile) {
    __syncthreads();
    loadRows<Tile, D>(head.k, a.kStride, j0, a.keyRows, keys);
    loadRows<Tile, D>(head.v, a.vStride, j0, a.keyRows, values);
    __syncthreads();
    float scores[Tile / 8][4];
    multiplyRows<Tile, D>(own, keys, scores);
    bool all = seesAll(a, first, first + warpRows, j0, j0 + Tile);
    float top[2] = {maximum[0], maximum[1]};
#pragma unroll
    for (int n = 0; n < Tile / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float score = scores[n][i] * scale;
        if (!all && !sees(a, head.sample, first + g + i / 2 * 8,
                          j0 + 8 * n + 2 * t + i % 2))
          score = -infinity<float>();
        scores[n][i] = score;
        top[i / 2] = larger(top[i / 2], score);
      }
    for (int half = 0; half < 2; ++half) {
      // The four lanes of a row.
      for (int distance : {1, 2})
        top[half] =
            larger(top[half], __shfl_xor_sync(~0u, top[half], distance));
      // Without a key so far there is nothing to shrink, and any number will do
      // for the distance to minus infinity.
      float shrink = top[half] > -infinity<float>()
                         ? quickExponential(maximum[half] - top[half])
                         : 1.0f;
      maximum[half] = top[half];
      total[half] *= shrink;
#pragma unroll
      for (int d = 0; d < D / 8; ++d) {
        sums[d][2 * half] *= shrink;
        sums[d][2 * half + 1] *= shrink;
      }
      if (!(top[half] > -infinity<float>()))
        top[half] = 0;
    }
#pragma unroll
    for (int n = 0; n < Tile / 8; ++n) {
      uint32_t kept = mask.active ? mask.ofQueries(first, j0 + 8 * n) : 0xfu;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float weight = quickExponential(scores[n][i] - top[i / 2]);
        total[i / 2] += weight;
        scores[n][i] = kept >> i & 1u ? weight : 0.0f;
      }
    }
    multiplyColumns<Tile, D>(scores, values, sums);
  }
  float factor[2];
  for (int half = 0; half < 2; ++half) {
    for (int distance : {1, 2})
      total[half] += __shfl_xor_sync(~0u, total[half], distance);
    factor[half] = total[half] > 0 ? mask.keptScale / total[half] : total[half];
    int64_t query = first + g + 8 * half;
    if (t == 0 && query < a.queryRows)
      a.lse[head.statistics + query] = maximum[half] + logf(total[half]);
  }
  storeRows<D>(sums, factor, a.o + head.out, head.outStride, first,
               a.queryRows);
}

template <int D>
__global__ void __launch_bounds__(blockThreads)
    tensorQueryGradKernel(Arguments a) {
  constexpr int Tile = backwardTile;
  // Own rows of q, then of the output's gradient, pass through the tiles'
  // place.
  BF16 *keys = dynamicShared<BF16>(), *values = keys + Tile * (D + rowPad);
  const int warp = int(threadIdx.x) / warpSize_;
  const int lane = int(threadIdx.x) % warpSize_, g = lane / 4, t = lane % 4;
  const Head head(a, blockIdx.y);
  const int64_t begin = int64_t(blockIdx.x) * ownRows;
  const int64_t first = begin + warp * warpRows;
  const Mask mask(a, head.sample, head.head);
  const float scale = float(a.scale);
  Fragments ownQ[D / 16], ownDout[D / 16];
  const BF16 *mine = keys + warp * warpRows * (D + rowPad);
  loadRows<ownRows, D>(head.q, a.qStride, begin, a.queryRows, keys);
  __syncthreads();
  for (int k = 0; k < D / 16; ++k)
    ownQ[k] = leftOperand<D>(mine, k);
  __syncthreads();
  loadRows<ownRows, D>(a.dout + head.out, head.outStride, begin, a.queryRows,
                       keys);
  __syncthreads();
  for (int k = 0; k < D / 16; ++k)
    ownDout[k] = leftOperand<D>(mine, k);
  float lse[2], delta[2];
  for (int half = 0; half < 2; ++half) {
    int64_t query = first + g + 8 * half;
    bool in = query < a.queryRows;
    lse[half] = in ? a.lse[head.statistics + query] : 0.0f;
    delta[half] = in ? a.delta[head.statistics + query] : 0.0f;
  }
  float sums[D / 8][4] = {};
  const int64_t seen = keysSeen(a, begin + ownRows);
  for (int64_t j0 = firstKeySeen(a, begin, Tile); j0 < seen; j0 += Tile) {
    __syncthreads();
    loadRows<Tile, D>(head.k, a.kStride, j0, a.keyRows, keys);
    loadRows<Tile, D>(head.v, a.vStride, j0, a.keyRows, values);
    __syncthreads();
    float scores[Tile / 8][4], gradient[Tile / 8][4];
    multiplyRows<Tile, D>(ownQ, keys, scores);
    multiplyRows<Tile, D>(ownDout, values, gradient);
    bool all = seesAll(a, first, first + warpRows, j0, j0 + Tile);
#pragma unroll
    for (int n = 0; n < Tile / 8; ++n) {
      uint32_t kept = mask.active ? mask.ofQueries(first, j0 + 8 * n) : 0xfu;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float through = kept >> i & 1u ? gradient[n][i] * mask.keptScale : 0.0f;
        bool in = all || sees(a, head.sample, first + g + i / 2 * 8,
                              j0 + 8 * n + 2 * t + i % 2);
        float p =
            in ? quickExponential(scores[n][i] * scale - lse[i / 2]) : 0.0f;
        scores[n][i] = p * (through - delta[i / 2]);
      }
    }
    multiplyColumns<Tile, D>(scores, keys, sums);
  }
  const float factor[2] = {scale, scale};
  storeRows<D>(sums, factor, a.dq + (head.q - a.q), a.qStride, first,
               a.queryRows);
}

template <int D>
__global__ void __launch_bounds__(blockThreads)
    tensorKeyGradKernel(Arguments a) {
  constexpr int Tile = backwardTile;
  // Own rows stay in shared memory: registers hold two sets of sums.
  BF16 *ownK = dynamicShared<BF16>(), *ownV = ownK + ownRows * (D + rowPad);
  BF16 *queries = ownV + ownRows * (D + rowPad);
  BF16 *douts = queries + Tile * (D + rowPad);
  const int warp = int(threadIdx.x) / warpSize_;
  const int lane = int(threadIdx.x) % warpSize_, g = lane / 4, t = lane % 4;
  const int64_t sample = int64_t(blockIdx.y) / a.kvHeads;
  const int64_t kvHead = int64_t(blockIdx.y) % a.kvHeads;
  const int64_t group = a.heads / a.kvHeads;
  const int64_t begin = int64_t(blockIdx.x) * ownRows;
  const int64_t first = begin + warp * warpRows;
  const int64_t kPlace = sample * a.keyRows * a.kStride + kvHead * a.headDim;
  const int64_t vPlace = sample * a.keyRows * a.vStride + kvHead * a.headDim;
  const float scale = float(a.scale);
  loadRows<ownRows, D>(a.k + kPlace, a.kStride, begin, a.keyRows, ownK);
  loadRows<ownRows, D>(a.v + vPlace, a.vStride, begin, a.keyRows, ownV);
  const BF16 *mineK = ownK + warp * warpRows * (D + rowPad);
  const BF16 *mineV = ownV + warp * warpRows * (D + rowPad);
  float sumK[D / 8][4] = {}, sumV[D / 8][4] = {};
  // The first query that sees the block's first key.
  int64_t from = a.causal ? begin - (a.keyRows - a.queryRows) : 0;
  from = from < 0 ? 0 : from / Tile * Tile;
  const int64_t last = queriesSeeing(a, begin + ownRows);
  for (int64_t member = 0; member < group; ++member) {
    const Head head(a, sample * a.heads + kvHead * group + member);
    const Mask mask(a, sample, head.head);
    for (int64_t i0 = from; i0 < last; i0 += Tile) {
      __syncthreads();
      loadRows<Tile, D>(head.q, a.qStride, i0, a.queryRows, queries);
      loadRows<Tile, D>(a.dout + head.out, head.outStride, i0, a.queryRows,
                        douts);
      __syncthreads();
      float scores[Tile / 8][4], gradient[Tile / 8][4];
      {
        Fragments left[D / 16];
        for (int k = 0; k < D / 16; ++k)
          left[k] = leftOperand<D>(mineK, k);
        multiplyRows<Tile, D>(left, queries, scores);
        for (int k = 0; k < D / 16; ++k)
          left[k] = leftOperand<D>(mineV, k);
        multiplyRows<Tile, D>(left, douts, gradient);
      }
#pragma unroll
      for (int n = 0; n < Tile / 8; ++n) {
        uint32_t kept = mask.active ? mask.ofKeys(first, i0 + 8 * n) : 0xfu;
        // Of the lane's two queries.
        float lse[2], delta[2];
        for (int c = 0; c < 2; ++c) {
          int64_t query = i0 + 8 * n + 2 * t + c;
          bool in = query < a.queryRows;
          lse[c] = in ? a.lse[head.statistics + query] : 0.0f;
          delta[c] = in ? a.delta[head.statistics + query] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int64_t query = i0 + 8 * n + 2 * t + i % 2;
          float p = sees(a, sample, query, first + g + i / 2 * 8)
                        ? quickExponential(scores[n][i] * scale - lse[i % 2])
                        : 0.0f;
          float keptScale = kept >> i & 1u ? mask.keptScale : 0.0f;
          scores[n][i] = p * keptScale;
          gradient[n][i] = p * (gradient[n][i] * keptScale - delta[i % 2]);
        }
      }
      multiplyColumns<Tile, D>(scores, douts, sumV);
      multiplyColumns<Tile, D>(gradient, queries, sumK);
    }
  }
  const float scales[2] = {scale, scale}, ones[2] = {1, 1};
  storeRows<D>(sumK, scales, a.dk + kPlace, a.kStride, first, a.keyRows);
  storeRows<D>(sumV, ones, a.dv + vPlace, a.vStride, first, a.keyRows);
}

unsigned blocksOver(int64_t rows) {
  return unsigned((rows + ownRows - 1) / ownRows);
}

/// Calls body with the width of a head, which the kernels know.
template <class Body> void forWidth(int64_t headDim, Body body) {
  if (headDim == 64)
    body(std::integral_constant<int, 64>());
  else if (headDim == 80)
    body(std::integral_constant<int, 80>());
  else if (headDim == 128)
    body(std::integral_constant<int, 128>());
}

} // namespace

bool tensorAttentionTakes(const Arguments &a) {
  uintptr_t bits = uintptr_t(a.qStride | a.kStride | a.vStride) * sizeof(BF16);
  for (const void *address : std::initializer_list<const void *>{
           a.q, a.k, a.v, a.o, a.dout, a.dq, a.dk, a.dv})
    bits |= reinterpret_cast<uintptr_t>(address);
  return bits % 16 == 0 &&
         (a.headDim == 64 || a.headDim == 80 || a.headDim == 128);
}

void tensorAttention(const Queue &queue, const Arguments &a) {
  int64_t heads = a.samples * a.heads;
  if (heads <= 0 || a.queryRows <= 0)
    return;
  forWidth(a.headDim, [&](auto width) {
    constexpr int D = decltype(width)::value;
    launch(tensorAttentionKernel<D>,
           dim3(blocksOver(a.queryRows), unsigned(heads)), dim3(blockThreads),
           rowsBytes<D>(2 * forwardTile), queue.stream, a);
  });
}

void tensorAttentionGrad(const Queue &queue, const Arguments &a) {
  int64_t heads = a.samples * a.heads;
  if (heads <= 0)
    return;
  attentionDelta(queue, a);
  forWidth(a.headDim, [&](auto width) {
    constexpr int D = decltype(width)::value;
    if (a.queryRows > 0)
      launch(tensorQueryGradKernel<D>,
             dim3(blocksOver(a.queryRows), unsigned(heads)), dim3(blockThreads),
             rowsBytes<D>(2 * backwardTile), queue.stream, a);
    if (a.keyRows > 0)
      launch(tensorKeyGradKernel<D>,
             dim3(blocksOver(a.keyRows), unsigned(a.samples * a.kvHeads)),
             dim3(blockThreads), rowsBytes<D>(2 * ownRows + 2 * backwardTile),
             queue.stream, a);
  });
}

} // namespace grt::cuda
