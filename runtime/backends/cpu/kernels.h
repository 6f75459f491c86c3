//===- kernels.h - The CPU backend's inner functions ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What stands between the C ABI and the vector code. dispatch.cpp checks a
// call, works out everything that depends on the rank or the step, and calls
// one function of a KernelTable. The table's functions are compiled once per
// instruction set (isa/table.cpp); the best one that the machine has is picked
// when the backend is loaded.
//
// T is the compute type, Accumulator<T> the type of statistics and gradients.
// Matrices are row-major. Nothing here allocates or fails.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_KERNELS_H
#define GRT_BACKENDS_CPU_KERNELS_H

#include "grt/abi.h"
#include "grt/cpu_bounds.h"

#include <stdint.h>

namespace grt {
struct RelativeBuckets;
}

namespace grt::cpu {

/// The bits of a bfloat16: the upper half of an f32. Stored and loaded, never
/// computed with.
struct BF16 {
  uint16_t bits;
};

template <class T> struct AccumulatorOf {
  using Type = T;
};
template <> struct AccumulatorOf<BF16> {
  using Type = float;
};
/// The type of statistics, gradients and optimizer state for compute type T,
/// and the one that kernels compute in.
template <class T> using Accumulator = typename AccumulatorOf<T>::Type;

/// Rows of a product whose time is that of reading the other operand.
constexpr int64_t fewRows = 4;

/// Tile of the attention kernels: queries by keys.
/// grt_cpu_attention_scratch_bytes in abi.h counts on both.
constexpr int64_t attentionQueries = 64;
constexpr int64_t attentionKeys = 64;

/// A stream of dropout numbers, see grt/philox.h.
struct DropoutStream {
  uint32_t keyLo, keyHi;
  uint32_t opIndex;
  uint32_t threshold; ///< an element is kept where its number is at least this
  double keptScale;   ///< 1 / (1 - p)
};

/// Elements of one worker's scratch in the attention kernels: panels and tiles,
/// and for a narrow storage type the rows at hand and the sums in the wide one.
/// The sums of a bias' gradient stand behind, or a column of a table.
constexpr int64_t attentionScratchElements(int64_t keyRows, int64_t headDim,
                                           bool narrow, bool backward) {
  int64_t panel = attentionQueries * headDim;
  int64_t tile = attentionQueries * attentionKeys;
  if (!backward)
    return panel + tile + (narrow ? 3 * panel : 0);
  return 2 * (panel + tile) + (narrow ? 5 * panel + 2 * keyRows * headDim : 0);
}

/// The arguments that WINDOW_ATTENTION and its gradient have besides those of
/// attention, whose samples are their windows.
template <class T> struct WindowBias {
  int64_t down, across, window, shift;
  const T *table;         ///< [side^2, heads]
  Accumulator<T> *dtable; ///< the same, backward only, as are those that follow
  bool add;               ///< to dtable
  Accumulator<T> *sums;   ///< [parts, heads, side^2]
  int64_t parts;
  int64_t perSample() const { return down * across; }
  int64_t side() const { return 2 * window - 1; }
};

/// Arguments of ATTENTION, BIASED_ATTENTION, SHAPED_ATTENTION,
/// WINDOW_ATTENTION, RING_ATTENTION and their gradients; names as in abi.h.
template <class T> struct AttentionArguments {
  const T *q, *k, *v;
  T *o;
  Accumulator<T> *lse;
  const T *dout; ///< backward only, as are dq, dk, dv
  T *dq, *dk, *dv;
  int64_t samples, queryRows, keyRows, heads, kvHeads, headDim;
  int64_t qStride, kStride, vStride;
  bool causal;
  int64_t window;      ///< 0: none; reaches to both sides unless causal
  const int32_t *mask; ///< [samples, keyRows], 0: unseen; null: none
  /// [samples, queryRows], the first position of each query's document; null:
  /// none
  const int32_t *starts;
  const T
      *bias; ///< [samples, globalHeads, queryRows + keyRows - 1]; null: none
  T *dbias;  ///< the same, backward only
  const WindowBias<T> *windows; ///< null: none
  double scale;
  double cap;      ///< of scores; 0: none
  double distance; ///< the factor of distances times slopes; 0: none
  const DropoutStream *dropout; ///< null: none
  int64_t firstSample;          ///< global number of sample 0
  int64_t firstHead, globalHeads;
  int64_t firstQuery;    ///< position of query 0 in its sample
  int64_t globalQueries; ///< of a sample
  /// The last key that query 0 sees under causal masking: keys of a sample less
  /// its queries, and `firstQuery`.
  int64_t diagonal;
  bool addsKeys;    ///< to what dk and dv have, backward only
  int64_t firstKey; ///< position of key 0 in its sample
  /// Of a step of a ring, what stands in the place of o, or backward of dq, dk
  /// and dv: sums over steps, which others have added to. Null: no ring.
  Accumulator<T> *oSums, *dqSums, *dkSums, *dvSums;
  int workers;
  Accumulator<T> *const *scratch; ///< one block per worker
};

/// Arguments of DROPOUT and DROPOUT_ADD.
struct DropoutArguments {
  int64_t rows, cols;
  uint64_t firstRow;    ///< global number of row 0
  uint64_t firstColumn; ///< global number of column 0
  DropoutStream stream;
};

/// Arguments of ROTARY.
struct RotaryArguments {
  int64_t samples, positions, heads, headDim, pairs;
  int64_t firstPosition; ///< of what is there
  /// The position of every row, [samples, positions]; null: rows have positions
  /// in order.
  const int32_t *each;
  bool inverse;
  bool interleaved; ///< pairs are neighbours, else a half apart
  double factor;
  const double *frequencies; ///< `pairs` of them
};

/// Arguments of CACHED_ATTENTION.
template <class T> struct CachedAttentionArguments {
  int64_t samples, rows, length, heads, kvHeads, headDim;
  int64_t qStride, kStride, vStride, window;
  double scale, cap;
  double distance; ///< as for ATTENTION, with the next two
  int64_t firstHead, globalHeads;
  const T *q, *k, *v;
  const T *bias;     ///< [samples, globalHeads, distances]; null: none
  int64_t distances; ///< odd; the middle one is that of a query's own key
  T *keys, *values;  ///< [rows, kvHeads, length, headDim]
  const int32_t *row, *position;
  T *o;
};

/// Arguments of CACHED_CROSS_ATTENTION.
template <class T> struct CachedCrossAttentionArguments {
  /// As of CACHED_ATTENTION, without positions, window, cap, distance and bias.
  CachedAttentionArguments<T> cache;
  const int32_t *begins, *count;
};

/// Arguments of PATCHES.
struct PatchArguments {
  int64_t samples, channels, rows, cols, patchRows, patchCols;
  bool padded;
};

/// Arguments of WINDOWS.
struct WindowsArguments {
  int64_t samples, rows, cols, width, window, shift;
  bool merge, join;
};

/// Arguments of DROP_PATH; `firstSample` is the global number of sample 0.
struct DropPathArguments {
  int64_t samples, elements;
  uint64_t firstSample;
  DropoutStream stream;
};

/// Arguments of MEAN and its gradient.
struct MeanArguments {
  int64_t samples, positions, width;
  bool besideFirst;
};

/// Arguments of RELATIVE_BIAS and its gradient.
struct RelativeBiasArguments {
  int64_t samples, heads, positions, buckets;
  const RelativeBuckets *rule;
};
/// The bucket of a distance. Defined apart: what these units instantiate of
/// shared headers would be linked into code for every processor.
int32_t relativeBucket(const RelativeBuckets &rule, int64_t distance);

/// Arguments of SOFTMAX_STATS, CROSS_ENTROPY and their regularized forms.
template <class T> struct LossArguments {
  T *logits; ///< read by softmaxStats only
  const int32_t *labels;
  Accumulator<T> *stats; ///< [shards, statsRows, width]
  int64_t width;         ///< 3, or 4 with the sum of the logits
  T *dlogits;
  int64_t rows, statsRows; ///< of this piece, of all pieces
  int64_t cols;            ///< local columns
  int64_t firstColumn;     ///< global number of column 0
  int64_t validCols;       ///< local columns that are not padding
  int64_t shards;
  double inverseTokens;
  int64_t globalCols;
  double smoothing, zLoss; ///< 0 without
  bool generate;
};

/// The arguments of one update of a run of elements. Weight decay is 0 where
/// the segment is not decayed.
struct OptimizerArguments {
  grt_optimizer kind;
  double learningRate, beta1, beta2, eps, weightDecay, momentum, clipFactor;
  double correction1, correction2; ///< 1 - beta^step
};

/// The memory in which `gemm` packs its operands: a part of `memory` for each
/// thread, with grt_cpu_gemm_pack_bytes() for blocks of `bytesOfRow`, a
/// multiple of GRT_CPU_GEMM_LEAST_BYTES_OF_ROW.
struct GemmBlocks {
  int threads;
  void *memory;
  int64_t bytesPerThread, bytesOfRow;
};

template <class T> struct KernelTable {
  using A = Accumulator<T>;
  /// c = op(a) op(b) (+ c) (+ bias).
  void (*gemm)(const GemmBlocks &blocks, int64_t m, int64_t n, int64_t k,
               const T *a, bool transA, const T *b, bool transB, A *c,
               const T *bias, bool add);
  /// The same with c of the compute type; sums are rounded once.
  void (*gemmNarrow)(const GemmBlocks &blocks, int64_t m, int64_t n, int64_t k,
                     const T *a, bool transA, const T *b, bool transB, T *c,
                     const T *bias, bool add);
  /// Products of at most `fewRows` rows, not transposed: b is read once, in
  /// place.
  void (*gemmOfFewRows)(int threads, int64_t m, int64_t n, int64_t k,
                        const T *a, const T *b, bool transB, A *c,
                        const T *bias, bool add);
  void (*gemmOfFewRowsNarrow)(int threads, int64_t m, int64_t n, int64_t k,
                              const T *a, const T *b, bool transB, T *c,
                              const T *bias, bool add);
  void (*biasAdd)(int threads, int64_t rows, int64_t n, const T *x,
                  const T *bias, T *y);
  void (*biasGrad)(int threads, int64_t rows, int64_t n, const T *dy, A *dbias,
                   bool add);
  void (*columnScale)(int threads, int64_t rows, int64_t n, const T *x,
                      const T *scale, T *y);
  void (*columnScaleGrad)(int threads, int64_t rows, int64_t n, const T *dy,
                          const T *x, A *dscale, bool add);
  /// `gamma` and `beta` are null: there is none.
  void (*layerNorm)(int threads, int64_t rows, int64_t n, const T *x,
                    const T *gamma, const T *beta, T *y, A *stats, double eps);
  /// sum = x (dropped, unless `dropout` is null) + residual, and its layer
  /// norm.
  void (*addLayerNorm)(int threads, int64_t rows, int64_t n,
                       const DropoutArguments *dropout, const T *x,
                       const T *residual, const T *gamma, const T *beta, T *sum,
                       T *y, A *stats, double eps);
  /// `residual` is added to dx, unless it is null; gamma and dgamma, or dbeta,
  /// are null: there is none.
  void (*layerNormGrad)(int threads, int64_t rows, int64_t n, const T *dy,
                        const T *x, const A *stats, const T *gamma,
                        const T *residual, T *dx, A *dgamma, A *dbeta,
                        bool add);
  void (*rmsNorm)(int threads, int64_t rows, int64_t n, const T *x,
                  const T *gamma, T *y, A *stats, bool unitOffset, double eps);
  void (*rmsNormGrad)(int threads, int64_t rows, int64_t n, const T *dy,
                      const T *x, const A *stats, const T *gamma, T *dx,
                      A *dgamma, bool add, bool unitOffset);
  void (*rotary)(int threads, const RotaryArguments &arguments, const T *x,
                 T *y);
  void (*gatedSilu)(int threads, int64_t n, const T *gate, const T *up, T *y);
  void (*gatedSiluGrad)(int threads, int64_t n, const T *gate, const T *up,
                        const T *dy, T *dgate, T *dup);
  void (*relu)(int threads, int64_t n, const T *x, T *y);
  void (*reluGrad)(int threads, int64_t n, const T *y, const T *dy, T *dx);
  void (*gatedGelu)(int threads, int64_t n, const T *gate, const T *up, T *y,
                    bool approximate);
  void (*gatedGeluGrad)(int threads, int64_t n, const T *gate, const T *up,
                        const T *dy, T *dgate, T *dup, bool approximate);
  void (*softCap)(int threads, int64_t n, const T *x, T *y, double cap);
  void (*softCapGrad)(int threads, int64_t n, const T *y, const T *dy, T *dx,
                      double cap);
  void (*round)(int threads, int64_t n, const Accumulator<T> *x, T *y);
  void (*clip)(int threads, int64_t n, const T *x, T *y, double limit);
  void (*clipGrad)(int threads, int64_t n, const T *x, const T *dy, T *dx,
                   double limit);
  /// pre = x + bias, y = gelu(pre); without bias y = gelu(x) and pre is null.
  void (*biasGelu)(int threads, int64_t rows, int64_t n, const T *x,
                   const T *bias, T *pre, T *y, bool approximate);
  void (*geluGrad)(int threads, int64_t n, const T *x, const T *dy, T *dx,
                   bool approximate);
  void (*attention)(const AttentionArguments<T> &arguments);
  void (*attentionGrad)(const AttentionArguments<T> &arguments);
  void (*cachedAttention)(int threads,
                          const CachedAttentionArguments<T> &arguments);
  void (*cachedCrossAttention)(
      int threads, const CachedCrossAttentionArguments<T> &arguments);
  void (*relativeBias)(int threads, const RelativeBiasArguments &arguments,
                       const T *table, T *bias);
  void (*relativeBiasGrad)(int threads, const RelativeBiasArguments &arguments,
                           const T *dbias, A *dtable, bool add);
  /// y = dropout(x) (+ residual, unless null).
  void (*dropout)(int threads, const DropoutArguments &arguments, const T *x,
                  const T *residual, T *y);
  void (*add)(int threads, int64_t n, const T *a, const T *b, T *y);
  void (*scale)(int threads, int64_t n, const T *x, T *y, double factor);
  void (*embedding)(int threads, int64_t rows, int64_t width, int64_t first,
                    int64_t localRows, const int32_t *tokens, const T *table,
                    T *y);
  /// Token `padding` adds nothing.
  void (*embeddingGrad)(int threads, int64_t rows, int64_t width, int64_t first,
                        int64_t localRows, int64_t padding,
                        const int32_t *tokens, const T *dy, A *dtable,
                        bool add);
  /// Positions count from `starts`, [samples, t], unless it is null.
  void (*positionAdd)(int threads, int64_t samples, int64_t t, int64_t width,
                      const int32_t *starts, const T *x, const T *table, T *y);
  void (*positionGrad)(int threads, int64_t samples, int64_t t, int64_t width,
                       int64_t tableRows, const int32_t *starts, const T *dy,
                       A *dtable, bool add);
  void (*patches)(int threads, const PatchArguments &arguments, const T *images,
                  T *y);
  void (*windows)(int threads, const WindowsArguments &arguments, const T *x,
                  T *y);
  void (*dropPath)(int threads, const DropPathArguments &arguments, const T *x,
                   T *y);
  void (*mean)(int threads, const MeanArguments &arguments, const T *x, T *y);
  void (*meanGrad)(int threads, const MeanArguments &arguments, const T *dy,
                   T *dx);
  /// Transposes `count` matrices.
  void (*transpose)(int threads, int64_t count, int64_t rows, int64_t cols,
                    const T *x, T *y);
  void (*softmaxStats)(int threads, const LossArguments<T> &arguments);
  /// Writes dlogits; the loss is the caller's.
  void (*crossEntropyGrad)(int threads, const LossArguments<T> &arguments);
  /// `first`, `second`: m and v, or the momentum and null. `master`: what is
  /// updated and then rounded to `parameter`; null where T is A.
  void (*optimize)(int threads, const OptimizerArguments &arguments, int64_t n,
                   T *parameter, A *master, const A *gradient, A *first,
                   A *second);
  double (*sumOfSquares)(int threads, int64_t n, const A *x);
};

/// The tables of one instruction set.
struct KernelTables {
  const char *isa;
  KernelTable<float> f32;
  KernelTable<double> f64;
  KernelTable<BF16> bf16;
};

/// x86-64-v2, that plus AVX2 and FMA, and AVX-512 (F, BW, DQ, VL).
extern const KernelTables kernelTablesBase;
extern const KernelTables kernelTablesAvx2;
extern const KernelTables kernelTablesAvx512;

} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_KERNELS_H
