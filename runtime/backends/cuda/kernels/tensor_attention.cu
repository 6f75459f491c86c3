//===- tensor_attention.cu - Attention in bf16 on tensor cores ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The same walk as in attention.cu, with products on tensor cores
// (FlashAttention-2: Dao 2023). A block of four warps owns 64 rows of one head,
// 16 to a warp, and walks over tiles of 64 rows of the other side, of which one
// is in shared memory while the next is on its way. Weights and their gradients
// are rounded to bf16 before they enter a product, as in the published kernels;
// sums and softmax are f32.
//
// Every product's left operand is a warp's own rows, or scores that another
// product left in registers. The gradient of keys and values computes the
// scores transposed, keys by queries, so that this holds there too. All sums
// have one order; nothing is atomic. So the gradient of queries computes the
// scores once more, instead of adding to one array from every block of keys.
//
// On Hopper, and with heads of multiples of 64 columns, the four warps multiply
// together what is in shared memory (tensor_core.h): there a matrix is read
// once for all of them. Elsewhere each loads what it multiplies, 512 bytes for
// one product of 16 rows, which takes shared memory as long as the product
// takes the tensor cores.
//
// With S = samples * heads * Tq * Tk * headDim (half of that if causal):
// forward 4 S operations, the gradient of queries 6 S, of keys and values 8 S;
// bytes are those of q, k, v, o once for every block of the other side. Bound
// by tensor cores, with dropout by its generator.
//
//===----------------------------------------------------------------------===//

#include "elements.h"
#include "kernels.h"
#include "queries.h"
#include "ring.h"
#include "tensor_core.h"

namespace grt::cuda {
namespace {

constexpr int warps = 4, blockThreads = warps * warpSize_;
/// Rows of a block, 16 to each warp.
constexpr int ownRows = warps * 16;
/// Rows of the other side in shared memory at a time, and, in gradients, how
/// many of them are worked on at a time.
constexpr int tileRows = 64;
static_assert(ownRows == tileRows);

/// The place of 64 rows of D columns in shared memory, so that eight rows of
/// eight columns are in different banks. Multiples of 64 columns stand in
/// blocks of 64 whose packs of eight are exchanged by the row's number, as
/// products of Hopper's groups of warps want them; others have eight columns
/// left over behind a row.
template <int D> struct Matrix {
  static constexpr bool inBlocks = D % 64 == 0;
  static constexpr int elements = tileRows * (inBlocks ? D : D + 8);
  static constexpr int blockElements = tileRows * 64;
  static constexpr int bytes = elements * int(sizeof(BF16));
  BF16 *at;
  /// Columns [8 pack, 8 pack + 8) of a row.
  __device__ BF16 *operator()(int row, int pack) const {
    if (inBlocks)
      return at + pack / 8 * blockElements + row * 64 +
             (pack % 8 ^ row % 8) * 8;
    return at + row * (D + 8) + pack * 8;
  }
};
/// Whether the four warps of a block multiply together.
template <int D>
constexpr bool together = GRT_WARP_GROUPS && Matrix<D>::inBlocks;

using Arguments = AttentionArguments<BF16>;

constexpr float log2e = 1.4426950408889634f;

/// Returns what is taken from a score's power of two for its weight. A query
/// that sees nothing has no weights.
__device__ inline float weightScale(float lse) {
  return lse > -infinity<float>() ? lse * log2e : infinity<float>();
}

/// Begins to copy rows [begin, begin + 64) of a matrix of D columns to shared
/// memory; zeros past `end`.
template <int D>
__device__ void copyRows(const BF16 *from, int64_t stride, int begin, int end,
                         Matrix<D> to) {
  constexpr int packs = D / 8;
#pragma unroll
  for (int part = 0; part < tileRows * packs / blockThreads; ++part) {
    int i = part * blockThreads + int(threadIdx.x);
    int row = i / packs, pack = i % packs;
    bool in = begin + row < end;
    copyAheadOrZeros(to(row, pack),
                     from + (in ? begin + row : 0) * stride + 8 * pack, in);
  }
  static_assert(tileRows * packs % blockThreads == 0);
}
/// Waits until copied data are there for every thread of the block.
template <int D> __device__ void arrive() {
  waitForCopies();
#if GRT_WARP_GROUPS
  if (together<D>)
    showToProducts();
#endif
  __syncthreads();
}

/// A of a warp's 16 rows from `row` on.
template <int D>
__device__ void leftOperands(Matrix<D> rows, int row,
                             Fragments (&left)[D / 16]) {
  int lane = int(threadIdx.x) % warpSize_;
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
    left[k] = loadMatrices<false>(rows(row + lane % 16, 2 * k + lane / 16));
}

#if GRT_WARP_GROUPS
/// Returns where columns [16 k, 16 k + 16) of rows from `first` on begin.
template <int D>
__device__ uint64_t columnsAt(Matrix<D> rows, int first, int k) {
  return operandAt(
      rows.at + k / 4 * rows.blockElements + first * 64 + k % 4 * 16, 16);
}
#endif
/// scores[n] = left . rows [first, first + Rows) of the tile, over D columns;
/// scores[n] are columns 8 n of the product.
template <int Rows, int D>
__device__ void multiplyByWarp(const Fragments (&left)[D / 16], Matrix<D> tile,
                               int first, float (&scores)[Rows / 8][4]) {
  int lane = int(threadIdx.x) % warpSize_;
  for (auto &score : scores)
    for (float &value : score)
      value = 0;
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
#pragma unroll
    for (int n = 0; n < Rows / 16; ++n) {
      Fragments b = loadMatrices<false>(tile(
          first + 16 * n + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
      multiplyAdd(scores[2 * n], left[k], b.at[0], b.at[1]);
      multiplyAdd(scores[2 * n + 1], left[k], b.at[2], b.at[3]);
    }
}

// Products stand between begin() and end(), which are given what these write,
// and begin() what they read in registers.

/// A warp's own rows, as left operands of products: in shared memory if
/// `Stays`, and where all warps multiply together (there ptxas 13.0 gave the
/// registers of such operands to others, from the second tile on); else in
/// registers.
template <int D, bool Stays = false> struct OwnRows {
  static constexpr bool inRegisters = !Stays && !together<D>;
  Matrix<D> rows;
  int row;
  Fragments left[inRegisters ? D / 16 : 1];

  /// Reads a thread's part of the rows into registers, which have no further
  /// need of `rows`.
  __device__ OwnRows(Matrix<D> rows, int row) : rows(rows), row(row) {
    if constexpr (inRegisters)
      leftOperands<D>(rows, row, left);
  }
};
template <int Rows, int D, bool Stays>
__device__ void multiplyRows(const OwnRows<D, Stays> &own, Matrix<D> tile,
                             int first, float (&scores)[Rows / 8][4]) {
#if GRT_WARP_GROUPS
  if constexpr (together<D>) {
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      multiplyGroup(scores, columnsAt(own.rows, 0, k),
                    columnsAt(tile, first, k), k > 0);
  } else
#endif
      if constexpr (OwnRows<D, Stays>::inRegisters) {
    multiplyByWarp<Rows, D>(own.left, tile, first, scores);
  } else {
    Fragments left[D / 16];
    leftOperands<D>(own.rows, own.row, left);
    multiplyByWarp<Rows, D>(left, tile, first, scores);
  }
}

/// Scores, rounded, as left operands.
template <int Rows>
__device__ void leftOfScores(const float (&scores)[Rows / 8][4],
                             Fragments (&left)[Rows / 16]) {
#pragma unroll
  for (int k = 0; k < Rows / 16; ++k) {
    const auto &low = scores[2 * k], &high = scores[2 * k + 1];
    left[k] = {{packed(low[0], low[1]), packed(low[2], low[3]),
                packed(high[0], high[1]), packed(high[2], high[3])}};
  }
}
/// sums[d] += left . rows [first, first + Rows) of the tile; sums[d] are
/// columns 8 d of the tile.
template <int Rows, int D>
__device__ void multiplyColumns(const Fragments (&left)[Rows / 16],
                                Matrix<D> tile, int first,
                                float (&sums)[D / 8][4]) {
#if GRT_WARP_GROUPS
  if constexpr (together<D>) {
#pragma unroll
    for (int k = 0; k < Rows / 16; ++k)
      multiplyGroup<true>(sums, left[k],
                          operandAt(tile.at + (first + 16 * k) * 64,
                                    tile.blockElements * int(sizeof(BF16))),
                          true);
  } else
#endif
  {
    int lane = int(threadIdx.x) % warpSize_;
#pragma unroll
    for (int k = 0; k < Rows / 16; ++k)
#pragma unroll
      for (int d = 0; d < D / 16; ++d) {
        Fragments b = loadMatrices<true>(
            tile(first + 16 * k + lane % 16, 2 * d + lane / 16));
        multiplyAdd(sums[2 * d], left[k], b.at[0], b.at[1]);
        multiplyAdd(sums[2 * d + 1], left[k], b.at[2], b.at[3]);
      }
  }
}
template <int D, class... Registers>
__device__ void begin([[maybe_unused]] Registers &...registers) {
#if GRT_WARP_GROUPS
  if (together<D>)
    beginProducts(registers...);
#endif
}
template <int D, class... Registers>
__device__ void end([[maybe_unused]] Registers &...registers) {
#if GRT_WARP_GROUPS
  if (together<D>)
    endProducts(registers...);
#endif
}

/// Writes 16 rows from `first` on, times factor[0] (rows g) and factor[1] (rows
/// g + 8), or with `Adds` adds them to what is there.
template <int D, bool Adds = false>
__device__ void storeRows(const float (&sums)[D / 8][4], const float *factor,
                          BF16 *to, int64_t stride, int first, int end) {
  int lane = int(threadIdx.x) % warpSize_, g = lane / 4, t = lane % 4;
  for (int half = 0; half < 2; ++half) {
    int row = first + g + 8 * half;
    if (row >= end)
      continue;
    for (int d = 0; d < D / 8; ++d) {
      BF16 *place = to + row * stride + 8 * d + 2 * t;
      float low = sums[d][2 * half] * factor[half];
      float high = sums[d][2 * half + 1] * factor[half];
      if constexpr (Adds) {
        const auto there = load<2>(place);
        low += wide(there.at[0]);
        high += wide(there.at[1]);
      }
      store<2>(place, Pack<BF16, 2>{{narrow<BF16>(low), narrow<BF16>(high)}});
    }
  }
}

/// The same in a step of a ring, to sums times before[0] and before[1].
template <int D>
__device__ void addRows(const float (&sums)[D / 8][4], const float *factor,
                        const float *before, float *to, int64_t stride,
                        int first, int end) {
  int lane = int(threadIdx.x) % warpSize_, g = lane / 4, t = lane % 4;
  for (int half = 0; half < 2; ++half) {
    int row = first + g + 8 * half;
    if (row >= end)
      continue;
    for (int d = 0; d < D / 8; ++d) {
      float *place = to + row * stride + 8 * d + 2 * t;
      auto there = load<2>(place);
      for (int c = 0; c < 2; ++c)
        there.at[c] =
            there.at[c] * before[half] + sums[d][2 * half + c] * factor[half];
      store<2>(place, there);
    }
  }
}

/// Dropout numbers of one head. Without dropout they cost nothing.
template <bool Drops> struct Mask {
  PhiloxKey key;
  uint32_t opIndex, threshold;
  uint64_t firstRow; ///< global number of query 0 of the head
  float keptScale;

  __device__ Mask(const Arguments &a, int64_t sample, int64_t head) {
    const grt_step &step = *a.dropout.step;
    // Evaluation keeps everything.
    const bool active = step.mode == GRT_MODE_TRAIN;
    key = dropoutKey(step.seed, step.step, a.dropout.layer);
    opIndex = a.dropout.opIndex;
    threshold = active ? dropoutThreshold(a.dropout.p) : 0;
    firstRow = (uint64_t(a.firstSample + sample) * uint64_t(a.globalHeads) +
                uint64_t(a.firstHead + head)) *
                   uint64_t(a.globalQueries) +
               uint64_t(a.firstQuery);
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

template <> struct Mask<false> {
  static constexpr float keptScale = 1;
  __device__ Mask(const Arguments &, int64_t, int64_t) {}
  __device__ uint32_t ofQueries(int64_t, int64_t) const { return 0xfu; }
  __device__ uint32_t ofKeys(int64_t, int64_t) const { return 0xfu; }
};

/// The place of a query head in the buffers.
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

/// `count` neighbours from `begin` on.
struct Range {
  int begin, count;
  __device__ bool holds(int i) const {
    return uint32_t(i - begin) < uint32_t(count);
  }
};

/// Which keys the queries of a sample see.
struct Sight {
  int queryRows, keyRows;
  int shift; ///< the last query sees the last key
  int window;
  bool causal;
  const int32_t *mask;

  __device__ Sight(const Arguments &a, int64_t sample)
      : queryRows(int(a.queryRows)), keyRows(int(a.keyRows)),
        shift(keyRows - queryRows), window(int(a.window)), causal(a.causal),
        mask(a.mask ? a.mask + sample * a.keyRows : nullptr) {}

  /// The keys that a query sees, but for those that the mask hides.
  __device__ Range keysOf(int query) const {
    int own = query + shift;
    int begin = window != 0 && own >= window ? own - window + 1 : 0;
    int end = causal && own + 1 < keyRows ? own + 1 : keyRows;
    return {begin, query < queryRows && end > begin ? end - begin : 0};
  }
  /// The queries that see a key.
  __device__ Range queriesOf(int key) const {
    int begin = causal && key > shift ? key - shift : 0;
    int end = window != 0 && key - shift + window < queryRows
                  ? key - shift + window
                  : queryRows;
    bool any = key < keyRows && end > begin && (!mask || mask[key]);
    return {begin, any ? end - begin : 0};
  }
  /// Whether queries [query, queryEnd) surely see all keys [key, keyEnd).
  __device__ bool seesAll(int query, int queryEnd, int key, int keyEnd) const {
    return !mask && queryEnd <= queryRows && keyEnd <= keyRows &&
           (!causal || keyEnd - 1 <= query + shift) &&
           (window == 0 || key > queryEnd - 1 + shift - window);
  }
  /// Whether they surely see none.
  __device__ bool seesNone(int query, int queryEnd, int key, int keyEnd) const {
    return query >= queryRows || key >= keyRows ||
           (causal && key > queryEnd - 1 + shift) ||
           (window != 0 && keyEnd - 1 <= query + shift - window);
  }
  /// The first key, rounded down to a tile, that queries from `query` on see.
  __device__ int firstKey(int query) const {
    int first = query + shift - window + 1;
    return window == 0 || first < 0 ? 0 : first / tileRows * tileRows;
  }
  /// Keys that queries below `end` see: those before this one.
  __device__ int keysEnd(int end) const {
    if (!causal)
      return keyRows;
    int last = (end < queryRows ? end : queryRows) + shift;
    return last < 0 ? 0 : last < keyRows ? last : keyRows;
  }
  /// The first query, rounded down to a tile, that sees keys from `key` on.
  __device__ int firstQuery(int key) const {
    int first = causal ? key - shift : 0;
    return first < 0 ? 0 : first / tileRows * tileRows;
  }
  /// Queries that see keys below `end`: those before this one.
  __device__ int queriesEnd(int end) const {
    int last = end - 1 - shift + window;
    return window == 0 || last > queryRows ? queryRows : last;
  }
};

/// Scores whose columns, from `first` on, the lane's two rows do not see.
template <int Columns>
__device__ void hide(const Range (&rows)[2], int first,
                     float (&scores)[Columns / 8][4]) {
  const int t = int(threadIdx.x) % 4;
#pragma unroll
  for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (!rows[i / 2].holds(first + 8 * n + 2 * t + i % 2))
        scores[n][i] = -infinity<float>();
}
/// The same of keys from `first` on, rows being 16 queries from `query` on.
template <int Columns>
__device__ void hideKeys(const Sight &sight, int query, int first,
                         float (&scores)[Columns / 8][4]) {
  const int lane = int(threadIdx.x) % warpSize_, g = lane / 4, t = lane % 4;
  const Range seen[2] = {sight.keysOf(query + g), sight.keysOf(query + g + 8)};
  hide<Columns>(seen, first, scores);
  if (!sight.mask)
    return;
#pragma unroll
  for (int n = 0; n < Columns / 8; ++n)
    for (int c = 0; c < 2; ++c) {
      const int key = first + 8 * n + 2 * t + c;
      if (key >= sight.keyRows || !sight.mask[key])
        scores[n][c] = scores[n][c + 2] = -infinity<float>();
    }
}

/// A block's rows of one head. Those that see most come first, so that the last
/// blocks to be started are the short ones; blocks of a head stand side by
/// side, so that what they read is in the cache.
struct Share {
  int begin;
  int64_t head;
  __device__ Share(int rows, bool lastFirst) {
    unsigned blocks = unsigned((rows + ownRows - 1) / ownRows);
    unsigned block = blockIdx.x % blocks;
    begin = int(lastFirst ? blocks - 1 - block : block) * ownRows;
    head = int64_t(blockIdx.x / blocks);
  }
};
dim3 blocksOver(int64_t rows, int64_t heads) {
  return dim3(unsigned((rows + ownRows - 1) / ownRows * heads));
}

/// Two tiles of two matrices in shared memory: one that is worked on, and one
/// that is on its way.
template <int D> struct Tiles {
  static constexpr int bytes = 4 * Matrix<D>::bytes;
  BF16 *at;
  __device__ Matrix<D> first(int stage) const {
    return {at + 2 * stage * Matrix<D>::elements};
  }
  __device__ Matrix<D> second(int stage) const {
    return {at + (2 * stage + 1) * Matrix<D>::elements};
  }
  __device__ BF16 *behind() const { return at + 4 * Matrix<D>::elements; }
  /// Returns the place of the block's own rows: behind the tiles, or, where
  /// these only pass through to registers, the second stage.
  __device__ Matrix<D> own() const {
    return together<D> ? Matrix<D>{behind()} : first(1);
  }
};

/// Begins to copy the keys and values from `key` on to a stage.
template <int D>
__device__ void fetchKeys(const Arguments &a, const Head &head,
                          const Sight &sight, int key, Tiles<D> tiles,
                          int stage) {
  copyRows<D>(head.k, a.kStride, key, sight.keyRows, tiles.first(stage));
  copyRows<D>(head.v, a.vStride, key, sight.keyRows, tiles.second(stage));
}

/// The 16 rows of which a warp asks whether they see something: its own, or
/// those of the block where all warps multiply together.
template <int D> struct Rows {
  int begin, end;
  __device__ Rows(int block, int own)
      : begin(together<D> ? block : own),
        end(together<D> ? block + ownRows : own + 16) {}
};

/// Blocks of a multiprocessor that registers are to suffice for: as many as do
/// without spilling, or with a few words of it.
template <int D>
constexpr int forwardBlocks = together<D> && D <= 64 ? 4
                              : D <= 80              ? 3
                                                     : 2;
template <int D> constexpr int queryGradBlocks = D <= 80 ? 3 : 2;
template <int D> constexpr int keyGradBlocks = together<D> && D <= 64 ? 3 : 2;

/// `Ring`: a step of one.
template <int D, bool Drops, bool Ring = false>
__global__ void __launch_bounds__(blockThreads, forwardBlocks<D>)
    tensorAttentionKernel(Arguments a) {
  constexpr int Tile = tileRows;
  const Tiles<D> tiles = {dynamicSharedBlocks<BF16>()};
  const int warp = int(threadIdx.x) / warpSize_;
  const int lane = int(threadIdx.x) % warpSize_, g = lane / 4, t = lane % 4;
  const Share share(int(a.queryRows), true);
  const Head head(a, share.head);
  const Sight sight(a, head.sample);
  const Mask<Drops> mask(a, head.sample, head.head);
  const int first = share.begin + warp * 16;
  const Rows<D> rows(share.begin, first);
  // The number of key 0 in its sample.
  const int numbered = Ring ? int(a.firstKey) : 0;
  // exp(scale x) is a power of two of this.
  const float scale = float(a.scale) * log2e;

  const int j1 = sight.keysEnd(share.begin + ownRows);
  int j0 = sight.firstKey(share.begin);
  auto fetch = [&](int stage, int j) {
    fetchKeys<D>(a, head, sight, j, tiles, stage);
  };
  copyRows<D>(head.q, a.qStride, share.begin, sight.queryRows, tiles.own());
  fetch(0, j0);
  arrive<D>();
  const OwnRows<D> own(tiles.own(), warp * 16);

  float sums[D / 8][4] = {};
  float maximum[2] = {-infinity<float>(), -infinity<float>()}, total[2] = {};
  for (int stage = 0; j0 < j1; j0 += Tile, stage ^= 1) {
    arrive<D>();
    if (j0 + Tile < j1)
      fetch(stage ^ 1, j0 + Tile);
    if (sight.seesNone(rows.begin, rows.end, j0, j0 + Tile))
      continue;
    float scores[Tile / 8][4];
    begin<D>();
    multiplyRows<Tile>(own, tiles.first(stage), 0, scores);
    end<D>(scores);
    if (!sight.seesAll(first, first + 16, j0, j0 + Tile))
      hideKeys<Tile>(sight, first, j0, scores);
    float base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = maximum[half];
#pragma unroll
      for (int n = 0; n < Tile / 8; ++n)
        top = fmaxf(top, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      // The four lanes of a row.
      for (int distance : {1, 2})
        top = fmaxf(top, __shfl_xor_sync(~0u, top, distance));
      // A row without a key so far has nothing to shrink, and any number will
      // do for the distance to minus infinity.
      const bool any = top > -infinity<float>();
      const float shrink =
          any ? quickPower((maximum[half] - top) * scale) : 1.0f;
      maximum[half] = top;
      base[half] = any ? top * scale : 0.0f;
      total[half] *= shrink;
#pragma unroll
      for (int d = 0; d < D / 8; ++d) {
        sums[d][2 * half] *= shrink;
        sums[d][2 * half + 1] *= shrink;
      }
    }
#pragma unroll
    for (int n = 0; n < Tile / 8; ++n) {
      const uint32_t kept = mask.ofQueries(first, numbered + j0 + 8 * n);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float weight = quickPower(scores[n][i] * scale - base[i / 2]);
        total[i / 2] += weight;
        scores[n][i] = kept >> i & 1u ? weight : 0.0f;
      }
    }
    Fragments weights[Tile / 16];
    leftOfScores<Tile>(scores, weights);
    begin<D>(weights, sums);
    multiplyColumns<Tile, D>(weights, tiles.second(stage), 0, sums);
    end<D>(weights, sums);
  }
  float factor[2];
  [[maybe_unused]] float before[2];
  for (int half = 0; half < 2; ++half) {
    for (int distance : {1, 2})
      total[half] += __shfl_xor_sync(~0u, total[half], distance);
    factor[half] = total[half] > 0 ? mask.keptScale / total[half] : total[half];
    int query = first + g + 8 * half;
    if constexpr (Ring) {
      const bool in = query < sight.queryRows;
      float *lse = a.lse + head.statistics + (in ? query : 0);
      const auto merged = mergeMeans(
          in ? *lse : 0.0f, maximum[half] * float(a.scale) + logf(total[half]));
      // The four lanes of the row have read it.
      __syncwarp();
      if (t == 0 && in)
        *lse = merged.lse;
      factor[half] *= merged.own;
      before[half] = merged.before;
      continue;
    }
    if (t == 0 && query < sight.queryRows)
      a.lse[head.statistics + query] =
          maximum[half] * float(a.scale) + logf(total[half]);
  }
  if constexpr (Ring)
    addRows<D>(sums, factor, before, a.oSums + head.out, head.outStride, first,
               sight.queryRows);
  else
    storeRows<D>(sums, factor, a.o + head.out, head.outStride, first,
                 sight.queryRows);
}

template <int D, bool Drops, bool Ring = false>
__global__ void __launch_bounds__(blockThreads, queryGradBlocks<D>)
    tensorQueryGradKernel(Arguments a) {
  constexpr int Tile = tileRows, Step = together<D> ? tileRows : 32;
  const Tiles<D> tiles = {dynamicSharedBlocks<BF16>()};
  const int warp = int(threadIdx.x) / warpSize_;
  const int lane = int(threadIdx.x) % warpSize_, g = lane / 4, t = lane % 4;
  const Share share(int(a.queryRows), true);
  const Head head(a, share.head);
  const Sight sight(a, head.sample);
  const Mask<Drops> mask(a, head.sample, head.head);
  const int first = share.begin + warp * 16;
  const Rows<D> rows(share.begin, first);
  // The number of key 0 in its sample.
  const int numbered = Ring ? int(a.firstKey) : 0;
  const float scale = float(a.scale) * log2e;

  const int j1 = sight.keysEnd(share.begin + ownRows);
  int j0 = sight.firstKey(share.begin);
  auto fetch = [&](int stage, int j) {
    fetchKeys<D>(a, head, sight, j, tiles, stage);
  };
  const Matrix<D> placeQ = tiles.own();
  const Matrix<D> placeDout = {placeQ.at + Matrix<D>::elements};
  copyRows<D>(head.q, a.qStride, share.begin, sight.queryRows, placeQ);
  copyRows<D>(a.dout + head.out, head.outStride, share.begin, sight.queryRows,
              placeDout);
  fetch(0, j0);
  arrive<D>();
  const OwnRows<D> ownQ(placeQ, warp * 16), ownDout(placeDout, warp * 16);

  // delta = dout . o, of which a lane has a quarter; the gradient of keys and
  // values reads it.
  float lse[2], delta[2] = {};
  for (int half = 0; half < 2; ++half) {
    const int query = first + g + 8 * half;
    const bool in = query < sight.queryRows;
    lse[half] =
        in ? weightScale(a.lse[head.statistics + query]) : infinity<float>();
    const int64_t place = head.out + (in ? query : 0) * head.outStride + 2 * t;
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      const auto o = load<2>(a.o + place + 8 * i);
      const auto dout = load<2>(a.dout + place + 8 * i);
      delta[half] +=
          wide(o.at[0]) * wide(dout.at[0]) + wide(o.at[1]) * wide(dout.at[1]);
    }
    for (int distance : {1, 2})
      delta[half] += __shfl_xor_sync(~0u, delta[half], distance);
    if (t == 0 && in)
      a.delta[head.statistics + query] = delta[half];
  }
  float sums[D / 8][4] = {};
  for (int stage = 0; j0 < j1; j0 += Tile, stage ^= 1) {
    arrive<D>();
    if (j0 + Tile < j1)
      fetch(stage ^ 1, j0 + Tile);
#pragma unroll 1
    for (int j = j0; j < j0 + Tile; j += Step) {
      if (sight.seesNone(rows.begin, rows.end, j, j + Step))
        continue;
      const Matrix<D> keys = tiles.first(stage), values = tiles.second(stage);
      float scores[Step / 8][4], gradient[Step / 8][4];
      begin<D>();
      multiplyRows<Step>(ownQ, keys, j - j0, scores);
      multiplyRows<Step>(ownDout, values, j - j0, gradient);
      end<D>(scores, gradient);
      if (!sight.seesAll(first, first + 16, j, j + Step))
        hideKeys<Step>(sight, first, j, scores);
#pragma unroll
      for (int n = 0; n < Step / 8; ++n) {
        const uint32_t kept = mask.ofQueries(first, numbered + j + 8 * n);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float through =
              kept >> i & 1u ? gradient[n][i] * mask.keptScale : 0.0f;
          scores[n][i] = quickPower(scores[n][i] * scale - lse[i / 2]) *
                         (through - delta[i / 2]);
        }
      }
      Fragments left[Step / 16];
      leftOfScores<Step>(scores, left);
      begin<D>(left, sums);
      multiplyColumns<Step, D>(left, keys, j - j0, sums);
      end<D>(left, sums);
    }
  }
  const float factor[2] = {float(a.scale), float(a.scale)};
  [[maybe_unused]] const float ones[2] = {1, 1};
  if constexpr (Ring)
    addRows<D>(sums, factor, ones, a.dqSums + (head.q - a.q), a.qStride, first,
               sight.queryRows);
  else
    storeRows<D>(sums, factor, a.dq + (head.q - a.q), a.qStride, first,
                 sight.queryRows);
}

/// Shared memory of the gradient of keys and values: own rows, which registers
/// have no room for beside two sets of sums; tiles of queries and of the
/// output's gradient; and lse and delta of two tiles.
template <int D>
constexpr int keyGradBytes =
    2 * Matrix<D>::bytes + Tiles<D>::bytes + 4 * tileRows * int(sizeof(float));

/// `Adds`: to the gradients that are there.
template <int D, bool Drops, bool Adds = false, bool Ring = false>
__global__ void __launch_bounds__(blockThreads, keyGradBlocks<D>)
    tensorKeyGradKernel(Arguments a) {
  constexpr int Tile = tileRows;
  constexpr int Step = D <= 64 ? 64 : D <= 80 || together<D> ? 32 : 16;
  const Matrix<D> ownK = {dynamicSharedBlocks<BF16>()};
  const Matrix<D> ownV = {ownK.at + Matrix<D>::elements};
  const Tiles<D> tiles = {ownV.at + Matrix<D>::elements};
  float *statistics = reinterpret_cast<float *>(tiles.behind());
  const int thread = int(threadIdx.x), warp = thread / warpSize_;
  const int lane = thread % warpSize_, g = lane / 4, t = lane % 4;
  const Share share(int(a.keyRows), false);
  const int64_t sample = share.head / a.kvHeads;
  const int64_t kvHead = share.head % a.kvHeads;
  const int64_t group = a.heads / a.kvHeads;
  const Sight sight(a, sample);
  const int first = share.begin + warp * 16;
  const Rows<D> rows(share.begin, first);
  // The number of key 0 in its sample.
  const int numbered = Ring ? int(a.firstKey) : 0;
  const int64_t kPlace = sample * a.keyRows * a.kStride + kvHead * a.headDim;
  const int64_t vPlace = sample * a.keyRows * a.vStride + kvHead * a.headDim;
  const float scale = float(a.scale) * log2e;
  copyRows<D>(a.k + kPlace, a.kStride, share.begin, sight.keyRows, ownK);
  copyRows<D>(a.v + vPlace, a.vStride, share.begin, sight.keyRows, ownV);
  const OwnRows<D, true> keys(ownK, warp * 16), values(ownV, warp * 16);
  float sumK[D / 8][4] = {}, sumV[D / 8][4] = {};
  const int i1 = sight.queriesEnd(share.begin + ownRows);
  for (int64_t member = 0; member < group; ++member) {
    const Head head(a, sample * a.heads + kvHead * group + member);
    const Mask<Drops> mask(a, sample, head.head);
    // The numbers are of the tile that is on its way: lse in the first threads,
    // delta in the others. A row without a query has weight zero.
    float mine = 0;
    auto fetch = [&](int stage, int i) {
      copyRows<D>(head.q, a.qStride, i, sight.queryRows, tiles.first(stage));
      copyRows<D>(a.dout + head.out, head.outStride, i, sight.queryRows,
                  tiles.second(stage));
      int query = i + thread % Tile;
      bool in = query < sight.queryRows;
      if (thread < Tile)
        mine = in ? weightScale(a.lse[head.statistics + query])
                  : infinity<float>();
      else
        mine = in ? a.delta[head.statistics + query] : 0.0f;
    };
    static_assert(blockThreads == 2 * Tile);
    int i0 = sight.firstQuery(share.begin);
    if (member > 0)
      __syncthreads();
    if (i0 < i1)
      fetch(0, i0);
    for (int stage = 0; i0 < i1; i0 += Tile, stage ^= 1) {
      statistics[2 * Tile * stage + thread] = mine;
      arrive<D>();
      if (i0 + Tile < i1)
        fetch(stage ^ 1, i0 + Tile);
#pragma unroll 1
      for (int i = i0; i < i0 + Tile; i += Step) {
        if (sight.seesNone(i, i + Step, rows.begin, rows.end))
          continue;
        const Matrix<D> queries = tiles.first(stage);
        const Matrix<D> douts = tiles.second(stage);
        const float *lse = statistics + 2 * Tile * stage + (i - i0) + 2 * t;
        float scores[Step / 8][4], gradient[Step / 8][4];
        begin<D>();
        multiplyRows<Step>(keys, queries, i - i0, scores);
        multiplyRows<Step>(values, douts, i - i0, gradient);
        end<D>(scores, gradient);
        if (!sight.seesAll(i, i + Step, first, first + 16)) {
          const Range seeing[2] = {sight.queriesOf(first + g),
                                   sight.queriesOf(first + g + 8)};
          hide<Step>(seeing, i, scores);
        }
#pragma unroll
        for (int n = 0; n < Step / 8; ++n) {
          const auto top = load<2>(lse + 8 * n);
          const auto delta = load<2>(lse + 8 * n + Tile);
          const uint32_t kept = mask.ofKeys(numbered + first, i + 8 * n);
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            float p = quickPower(scores[n][c] * scale - top.at[c % 2]);
            float keptScale = kept >> c & 1u ? mask.keptScale : 0.0f;
            scores[n][c] = p * keptScale;
            gradient[n][c] = p * (gradient[n][c] * keptScale - delta.at[c % 2]);
          }
        }
        Fragments weights[Step / 16], left[Step / 16];
        leftOfScores<Step>(scores, weights);
        leftOfScores<Step>(gradient, left);
        begin<D>(weights, left, sumV, sumK);
        multiplyColumns<Step, D>(weights, douts, i - i0, sumV);
        multiplyColumns<Step, D>(left, queries, i - i0, sumK);
        end<D>(weights, left, sumV, sumK);
      }
    }
  }
  const float scales[2] = {float(a.scale), float(a.scale)}, ones[2] = {1, 1};
  if constexpr (Ring) {
    addRows<D>(sumK, scales, ones, a.dkSums + kPlace, a.kStride, first,
               sight.keyRows);
    addRows<D>(sumV, ones, ones, a.dvSums + vPlace, a.vStride, first,
               sight.keyRows);
  } else {
    storeRows<D, Adds>(sumK, scales, a.dk + kPlace, a.kStride, first,
                       sight.keyRows);
    storeRows<D, Adds>(sumV, ones, a.dv + vPlace, a.vStride, first,
                       sight.keyRows);
  }
}

/// Calls body with the width of a head, and whether anything may be dropped,
/// which the kernels know.
template <class Body> void specialised(const Arguments &a, Body body) {
  auto forWidth = [&](auto drops) {
    if (a.headDim == 64)
      body(std::integral_constant<int, 64>(), drops);
    else if (a.headDim == 80)
      body(std::integral_constant<int, 80>(), drops);
    else if (a.headDim == 128)
      body(std::integral_constant<int, 128>(), drops);
  };
  if (a.dropout.p > 0)
    forWidth(std::true_type());
  else
    forWidth(std::false_type());
}

} // namespace

/// Bytes of so many matrices of own rows, which stay in shared memory on
/// Hopper.
template <int D> int ownBytes(int matrices) {
  return Matrix<D>::inBlocks && gpu::multipliesInGroups()
             ? matrices * Matrix<D>::bytes
             : 0;
}

bool tensorAttentionTakes(const Arguments &a) {
  uintptr_t bits = uintptr_t(a.qStride | a.kStride | a.vStride) * sizeof(BF16);
  for (const void *address : std::initializer_list<const void *>{
           a.q, a.k, a.v, a.o, a.dout, a.dq, a.dk, a.dv})
    bits |= reinterpret_cast<uintptr_t>(address);
  // The largest score is looked for before they are scaled.
  // Documents are left to the other kernels, which read their starts, and so
  // are dropout's numbers that do not begin with a block of four keys.
  return bits % 16 == 0 && a.scale > 0 && !a.starts &&
         (a.dropout.p == 0 || a.firstKey % 4 == 0) &&
         (a.headDim == 64 || a.headDim == 80 || a.headDim == 128);
}

void tensorAttention(const Queue &queue, const Arguments &a) {
  int64_t heads = a.samples * a.heads;
  if (heads <= 0 || a.queryRows <= 0)
    return;
  specialised(a, [&](auto width, auto dropping) {
    constexpr int D = decltype(width)::value;
    constexpr bool drops = decltype(dropping)::value;
    launch(isInRing(a) ? tensorAttentionKernel<D, drops, true>
                       : tensorAttentionKernel<D, drops>,
           blocksOver(a.queryRows, heads), dim3(blockThreads),
           Tiles<D>::bytes + ownBytes<D>(1), queue.stream, a);
  });
}

void tensorAttentionGrad(const Queue &queue, const Arguments &a) {
  int64_t heads = a.samples * a.heads;
  if (heads <= 0)
    return;
  specialised(a, [&](auto width, auto dropping) {
    constexpr int D = decltype(width)::value;
    constexpr bool drops = decltype(dropping)::value;
    if (a.queryRows > 0)
      launch(isInRing(a) ? tensorQueryGradKernel<D, drops, true>
                         : tensorQueryGradKernel<D, drops>,
             blocksOver(a.queryRows, heads), dim3(blockThreads),
             Tiles<D>::bytes + ownBytes<D>(2), queue.stream, a);
    if (a.keyRows > 0)
      launch(isInRing(a)  ? tensorKeyGradKernel<D, drops, false, true>
             : a.addsKeys ? tensorKeyGradKernel<D, drops, true>
                          : tensorKeyGradKernel<D, drops>,
             blocksOver(a.keyRows, a.samples * a.kvHeads), dim3(blockThreads),
             keyGradBytes<D>, queue.stream, a);
  });
}

} // namespace grt::cuda
