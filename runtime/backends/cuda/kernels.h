//===- kernels.h - The CUDA backend's own kernels -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What stands between the C ABI and the kernels. dispatch.cpp checks a call,
// works out what depends on the rank, and calls one of these functions, which
// put work on the queue's stream and return. Names and shapes are those of
// grt/abi.h; matrices are row-major. T is the compute type, Accumulator<T> that
// of statistics and gradients. Instantiated for float, double and BF16.
//
// The same call gives the same bits on every device and in every run: sums have
// an order that depends on shapes alone, and there are no atomic additions.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_KERNELS_H
#define GRT_BACKENDS_CUDA_KERNELS_H

#include "../common/relative.h"
#include "gpu.h"
#include "types.h"

namespace grt::cuda {

/// The fault that a kernel found in its data; the first to say so wins. It is
/// in memory of the host that kernels write.
struct Complaint {
  enum Kind : uint32_t { None, Token, Label, Generation };
  uint32_t taken;
  uint32_t kind;
  const char *name; ///< the op's
  int64_t value, row, limit;
};

/// The stream that work goes to, and memory that it may use until it is done.
struct Queue {
  Stream stream;
  void *workspace;
  uint64_t workspaceBytes;
  Complaint *complaint; ///< its address on the device
  const char *opName;
};

// Element by element.

template <class T>
void biasAdd(const Queue &queue, int64_t rows, int64_t n, const T *x,
             const T *bias, T *y);
/// pre = x + bias, y = gelu(pre); without bias y = gelu(x) and pre is null.
template <class T>
void biasGelu(const Queue &queue, int64_t rows, int64_t n, const T *x,
              const T *bias, T *pre, T *y, bool approximate);
template <class T>
void geluGrad(const Queue &queue, int64_t n, const T *x, const T *dy, T *dx,
              bool approximate);
template <class T> void relu(const Queue &queue, int64_t n, const T *x, T *y);
template <class T>
void reluGrad(const Queue &queue, int64_t n, const T *y, const T *dy, T *dx);
template <class T>
void softCap(const Queue &queue, int64_t n, const T *x, T *y, double cap);
template <class T>
void softCapGrad(const Queue &queue, int64_t n, const T *y, const T *dy, T *dx,
                 double cap);
template <class T>
void clip(const Queue &queue, int64_t n, const T *x, T *y, double limit);
template <class T>
void clipGrad(const Queue &queue, int64_t n, const T *x, const T *dy, T *dx,
              double limit);
template <class T>
void columnScale(const Queue &queue, int64_t rows, int64_t n, const T *x,
                 const T *scale, T *y);
template <class T>
void gatedGelu(const Queue &queue, int64_t n, const T *gate, const T *up, T *y,
               bool approximate);
template <class T>
void gatedGeluGrad(const Queue &queue, int64_t n, const T *gate, const T *up,
                   const T *dy, T *dgate, T *dup, bool approximate);
template <class T>
void gatedSilu(const Queue &queue, int64_t n, const T *gate, const T *up, T *y);
template <class T>
void gatedSiluGrad(const Queue &queue, int64_t n, const T *gate, const T *up,
                   const T *dy, T *dgate, T *dup);

/// Arguments of ROTARY; `frequencies` are on the host.
struct RotaryArguments {
  int64_t samples, positions, heads, headDim, pairs;
  int64_t firstPosition; ///< of every sample, of a block of rows
  bool inverse;
  bool interleaved; ///< pairs are neighbours, else a half apart
  double factor;
  const double *frequencies; ///< `pairs` of them
};
template <class T>
void rotary(const Queue &queue, const RotaryArguments &arguments, const T *x,
            T *y);
template <class T>
void add(const Queue &queue, int64_t n, const T *a, const T *b, T *y);
template <class T>
void scale(const Queue &queue, int64_t n, const T *x, T *y, double factor);
/// y = x, rounded.
template <class T>
void roundSums(const Queue &queue, int64_t n, const Accumulator<T> *x, T *y);
template <class T>
void positionAdd(const Queue &queue, int64_t samples, int64_t t, int64_t width,
                 const T *x, const T *table, T *y);
/// The same of positions that count from `starts`, [samples, t].
template <class T>
void documentPositionAdd(const Queue &queue, int64_t samples, int64_t t,
                         int64_t width, const int32_t *starts, const T *x,
                         const T *table, T *y);

/// Arguments of RELATIVE_BIAS and its gradient.
struct RelativeBiasArguments {
  int64_t samples, heads, positions, buckets;
  RelativeBuckets rule;
};
template <class T>
void relativeBias(const Queue &queue, const RelativeBiasArguments &arguments,
                  const T *table, T *bias);
template <class T>
void relativeBiasGrad(const Queue &queue,
                      const RelativeBiasArguments &arguments, const T *dbias,
                      Accumulator<T> *dtable, bool add);

/// Arguments of PATCHES.
struct PatchArguments {
  int64_t samples, channels, rows, cols, patchRows, patchCols;
  bool padded;
};
template <class T>
void patches(const Queue &queue, const PatchArguments &arguments,
             const T *images, T *y);

/// Arguments of WINDOWS.
struct WindowsArguments {
  int64_t samples, rows, cols, width, window, shift;
  bool merge, join;
};
template <class T>
void windows(const Queue &queue, const WindowsArguments &arguments, const T *x,
             T *y);
/// Arguments of MEAN and its gradient.
struct MeanArguments {
  int64_t samples, positions, width;
};
template <class T>
void mean(const Queue &queue, const MeanArguments &arguments, const T *x, T *y);
template <class T>
void meanGrad(const Queue &queue, const MeanArguments &arguments, const T *dy,
              T *dx);
/// Transposes `count` matrices.
template <class T>
void transpose(const Queue &queue, int64_t count, int64_t rows, int64_t cols,
               const T *x, T *y);

/// The numbers that a dropout mask depends on besides the step block.
struct DropoutKey {
  const grt_step *step;
  int64_t layer;
  uint32_t opIndex;
  double p; ///< 0: nothing is ever dropped
};
/// Arguments of DROP_PATH; `firstSample` is the global number of sample 0.
struct DropPathArguments {
  int64_t samples, elements;
  uint64_t firstSample;
  DropoutKey key;
};
template <class T>
void dropPath(const Queue &queue, const DropPathArguments &arguments,
              const T *x, T *y);
struct DropoutArguments {
  int64_t rows, cols;
  uint64_t firstRow, firstColumn; ///< global numbers of row 0, column 0
  DropoutKey key;
};
/// y = dropout(x) (+ residual, unless null).
template <class T>
void dropout(const Queue &queue, const DropoutArguments &arguments, const T *x,
             const T *residual, T *y);

/// Rows of a table, counted from `first`, that this rank holds; tokens are
/// below `limit`.
struct TableSlice {
  int64_t first, localRows, limit;
};
template <class T>
void embedding(const Queue &queue, int64_t rows, int64_t width,
               const TableSlice &slice, const int32_t *tokens, const T *table,
               T *y);
void copyRows(const Queue &queue, int64_t rows, int64_t rowBytes,
              int64_t sourceStride, int64_t targetStride, const void *source,
              void *target);

// Rows and columns.

template <class T>
void biasGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
              Accumulator<T> *dbias, bool add);
template <class T>
void columnScaleGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
                     const T *x, Accumulator<T> *dscale, bool add);
/// A layer norm without weights.
template <class T>
void plainNorm(const Queue &queue, int64_t rows, int64_t n, const T *x, T *y,
               Accumulator<T> *stats, double eps);
template <class T>
void plainNormGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
                   const T *x, const Accumulator<T> *stats, T *dx);
/// `beta` is null: there is none.
template <class T>
void layerNorm(const Queue &queue, int64_t rows, int64_t n, const T *x,
               const T *gamma, const T *beta, T *y, Accumulator<T> *stats,
               double eps);
/// sum = dropout(x) + residual, and its layer norm.
template <class T>
void addLayerNorm(const Queue &queue, const DropoutArguments &arguments,
                  const T *x, const T *residual, const T *gamma, const T *beta,
                  T *sum, T *y, Accumulator<T> *stats, double eps);
/// `residual` is added to dx, unless it is null; dbeta is null: there is none.
template <class T>
void layerNormGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
                   const T *x, const Accumulator<T> *stats, const T *gamma,
                   const T *residual, T *dx, Accumulator<T> *dgamma,
                   Accumulator<T> *dbeta, bool add);
template <class T>
void rmsNorm(const Queue &queue, int64_t rows, int64_t n, const T *x,
             const T *gamma, T *y, Accumulator<T> *stats, bool unitOffset,
             double eps);
template <class T>
void rmsNormGrad(const Queue &queue, int64_t rows, int64_t n, const T *dy,
                 const T *x, const Accumulator<T> *stats, const T *gamma, T *dx,
                 Accumulator<T> *dgamma, bool add, bool unitOffset);
template <class T>
void positionGrad(const Queue &queue, int64_t samples, int64_t t, int64_t width,
                  int64_t first, int64_t tableRows, const T *dy,
                  Accumulator<T> *dtable, bool add);
/// The same of positions that count from `starts`, [samples, t].
template <class T>
void documentPositionGrad(const Queue &queue, int64_t samples, int64_t t,
                          int64_t width, int64_t first, int64_t tableRows,
                          const int32_t *starts, const T *dy,
                          Accumulator<T> *dtable, bool add);
/// Token `padding` adds nothing.
template <class T>
void embeddingGrad(const Queue &queue, int64_t rows, int64_t width,
                   const TableSlice &slice, int64_t padding,
                   const int32_t *tokens, const T *dy, Accumulator<T> *dtable,
                   bool add);

// Loss.

/// The rows of a call of the loss, in pieces: all, or those of a block of rows
/// (grt/kernels.def).
struct LossPieces {
  /// `count` rows from `row` on, whose labels are those from `label` on.
  struct Piece {
    int64_t row, label, count;
  };
  Piece at[2];
  int count;
  bool ofBlock; ///< which no pass can be that generates
};
template <class T> struct LossArguments {
  const T *logits;
  int32_t *labels;
  Accumulator<T> *stats; ///< [shards, rows, 3], regularized [shards, rows, 4]
  T *dlogits;
  double *loss;
  int64_t rows, cols; ///< local columns
  int64_t firstColumn, globalCols;
  int64_t validCols; ///< local columns that are not padding
  int64_t shards;
  const grt_step *step;
  double smoothing, zLoss; ///< of the regularized kernels
};
template <class T>
void softmaxStats(const Queue &queue, const LossArguments<T> &arguments,
                  const LossPieces &pieces);
template <class T>
void crossEntropy(const Queue &queue, const LossArguments<T> &arguments,
                  const LossPieces &pieces);
/// Computes both, for one shard whose columns are all valid.
template <class T>
void softmaxCrossEntropy(const Queue &queue, const LossArguments<T> &arguments,
                         const LossPieces &pieces);
/// Computes the same with the sum of the logits, with label smoothing and
/// z-loss, and with two values of a loss.
template <class T>
void regularizedStats(const Queue &queue, const LossArguments<T> &arguments,
                      const LossPieces &pieces);
template <class T>
void regularizedCrossEntropy(const Queue &queue,
                             const LossArguments<T> &arguments,
                             const LossPieces &pieces);

// Update.

/// A run of elements of a shard.
struct Segment {
  int64_t begin, length;
  bool flag; ///< OPTIMIZER: decays
};
/// The most segments of one launch.
constexpr int mostSegments = 64;

/// `first`, `second`: m and v, or the momentum and null. `master`: what is
/// updated and then rounded to `parameter`; null where T is its accumulator.
template <class T>
void optimize(const Queue &queue, grt_optimizer kind, const grt_step *step,
              const Segment *segments, int count, T *parameter,
              Accumulator<T> *master, const Accumulator<T> *gradient,
              Accumulator<T> *first, Accumulator<T> *second);
/// Adds the sum of squares to step->local_norm_squared.
template <class A>
void sumOfSquares(const Queue &queue, grt_step *step, const Segment *segments,
                  int count, const A *x);

/// See grt_device in grt/backend.h.
void addResults(const Queue &queue, const double *losses, uint64_t count,
                grt_step *step);
void decideUpdate(const Queue &queue, const double *results, uint64_t ranks,
                  bool clips, grt_step *step);

// Products.

template <class T> struct ProductArguments {
  int64_t m, n, k;
  bool transA, transB, add;
  const T *a, *b, *bias; ///< bias may be null
};
/// c = op(a) op(b) (+ c) (+ bias): what the library does not do. Sums in the
/// accumulator type, rounded once.
template <class T, class C>
void product(const Queue &queue, const ProductArguments<T> &arguments, C *c);

// Attention.

/// The arguments that WINDOW_ATTENTION and its gradient have besides those of
/// attention, whose samples are their windows.
template <class T> struct WindowBias {
  const T *table;         ///< [side^2, heads]; null: no windows
  Accumulator<T> *dtable; ///< the same, backward only, as are those that follow
  bool add;               ///< to dtable
  Accumulator<T> *sums;   ///< [parts, heads, side^2]
  int64_t parts;
  int64_t down, across, window, shift;
  int64_t first; ///< number of the first of them
};

template <class T> struct AttentionArguments {
  const T *q, *k, *v;
  T *o;
  Accumulator<T> *lse;
  const T *dout; ///< backward only, as are dq, dk, dv and delta
  T *dq, *dk, *dv;
  Accumulator<T> *delta; ///< [samples, heads, queryRows]
  int64_t samples, queryRows, keyRows, heads, kvHeads, headDim;
  int64_t qStride, kStride, vStride;
  bool causal;
  int64_t window;      ///< 0: none
  const int32_t *mask; ///< [samples, keyRows], 0: unseen; null: none
  /// [samples, queryRows], the first position of each query's document; null:
  /// none
  const int32_t *starts;
  const T
      *bias; ///< [samples, globalHeads, queryRows + keyRows - 1]; null: none
  T *dbias;  ///< the same, backward only
  Accumulator<T> *biasSums; ///< of this rank's heads, where T is narrower
  WindowBias<T> windows;
  double scale;
  double cap;      ///< of scores; 0: none
  double distance; ///< the factor of distances times slopes; 0: none
  DropoutKey dropout;
  int64_t firstSample, firstHead, globalHeads;
  /// A run of a sample's queries is of so many, and its first has this number:
  /// dropout is keyed by them.
  int64_t globalQueries, firstQuery;
  bool addsKeys; ///< dk and dv are added to what is there
  /// The sums over steps of a ring in place of o, or backward of dq, dk and dv;
  /// earlier steps have added to them, as to lse. Null: no ring.
  Accumulator<T> *oSums, *dqSums, *dkSums, *dvSums;
  bool begins;      ///< forward: nothing is there to add to
  int64_t firstKey; ///< number of the first key in its sample
};
/// True if kernels for steps of a ring are wanted.
template <class T> bool isInRing(const AttentionArguments<T> &a) {
  return a.oSums || a.dqSums;
}
constexpr int64_t mostHeadDim = 256;
template <class T>
void attention(const Queue &queue, const AttentionArguments<T> &arguments);
template <class T>
void attentionGrad(const Queue &queue, const AttentionArguments<T> &arguments);

/// The same on tensor cores: heads of 64, 80 or 128 columns, rows at multiples
/// of 16 bytes.
bool tensorAttentionTakes(const AttentionArguments<BF16> &arguments);
void tensorAttention(const Queue &queue,
                     const AttentionArguments<BF16> &arguments);
void tensorAttentionGrad(const Queue &queue,
                         const AttentionArguments<BF16> &arguments);

// Between ranks of one process.

/// The most ranks in a group of one process.
constexpr int mostMembers = 64;
struct Members {
  void *at[mostMembers];
  int count;
};
/// sum[i] = onto[i] + (in[0][i] + in[1][i] + ...) for i in [0, count), each
/// `onto` and `in` as stored, rounded once, written to every `out`. `onto` may
/// be null, and be an `out`. Byte offsets are already in the addresses.
void sumInOrder(Stream stream, uint32_t dtype, uint64_t count,
                const Members &in, const void *onto, const Members &out);
/// The largest of each element in[m][i] for i in [0, count), written to every
/// `out`; of F32, F64, BF16, I32 and U8.
void largestInOrder(Stream stream, uint32_t dtype, uint64_t count,
                    const Members &in, const Members &out);

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_KERNELS_H
