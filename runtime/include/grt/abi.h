//===- abi.h - The C ABI between compiled programs and the runtime --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// This header is all that a compiled program (`.gvx`) and the runtime share,
// besides the JSON manifest (docs/manifest.md). It is plain C, free of MLIR.
//
// A program is a shared object that exports one symbol, `grt_program`. Its
// functions are sequences of calls to the `grt_*` entry points below, each fed
// with a constant descriptor; every status is checked. A buffer is named by a
// *region* and a byte offset in it. Before a task's functions run, the executor
// binds every region to an address inside the rank's arena, so that all layers
// of one body and strategy, on all ranks of a role, share the same code.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_ABI_H
#define GRT_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GRT_ABI_VERSION 5
/// Every buffer starts at a multiple of this many bytes inside its region.
#define GRT_ALIGNMENT 64

/// Element types. "Compute type" below is F32, BF16 or F64 as the program says;
/// "accumulator type" is F64 for F64 programs and F32 for all others.
typedef enum grt_dtype {
  GRT_F32 = 0,
  GRT_F64 = 1,
  GRT_BF16 = 2,
  GRT_I32 = 3,
  GRT_U8 = 4
} grt_dtype;

/// What a buffer offset is relative to. The executor binds all of them before
/// it calls a layer function.
typedef enum grt_region {
  GRT_REGION_PARAMETER = 0, ///< the layer's parameters held by this rank, flat
  GRT_REGION_GRADIENT = 1,  ///< the layer's gradient accumulators, flat
  GRT_REGION_OPTIMIZER = 2, ///< the layer's optimizer state, flat
  GRT_REGION_STASH = 3, ///< values kept from forward (or recompute) to backward
  GRT_REGION_TRANSIENT = 4, ///< temporaries of the running function
  GRT_REGION_INPUT = 5,     ///< boundary activation coming in
  GRT_REGION_OUTPUT = 6,    ///< boundary activation going out
  GRT_REGION_GRAD_IN = 7,   ///< gradient of the output, coming in
  GRT_REGION_GRAD_OUT = 8,  ///< gradient of the input, going out
  GRT_REGION_DATA = 9,      ///< data of the layer, each 64-byte aligned
  GRT_REGION_LOSS = 10, ///< one f64 per micro-batch: loss summed over tokens
  GRT_REGION_GATHERED = 11, ///< the layer's parameters in full, read only
  GRT_REGION_COUNT = 12
} grt_region;

/// A buffer: `bytes` bytes at `offset` in `region`.
typedef struct grt_buffer {
  uint32_t region; ///< grt_region
  uint32_t dtype;  ///< grt_dtype
  uint64_t
      offset; ///< bytes from the region's base, a multiple of GRT_ALIGNMENT
              ///< except where a kernel reads columns of a packed buffer
  uint64_t bytes;
} grt_buffer;

/// Kernels. Shapes are row-major and contiguous unless a stride is given.
/// `acc` says what to do with a gradient that is already there: 0 overwrite,
/// 1 add, 2 overwrite on the first micro-batch of the step and add on later
/// ones (the executor's accumulate flag).
/// "may alias" means that the two buffers may be the same memory.
typedef enum grt_kernel {
  /// bufs: a, b, c [, bias] [, scratch]; ints: M, N, K, transA, transB, acc,
  /// hasBias. c[M,N] = op(a) op(b) (+ c) (+ bias[N]). a is [M,K] ([K,M] if
  /// transA), b is [K,N] ([N,K] if transB). c may have the accumulator type.
  /// scratch: for the CPU backend grt_cpu_gemm_scratch_bytes(), others need
  /// none. Without it that backend takes as much outside the arena.
  GRT_KERNEL_GEMM = 0,
  /// bufs: x, bias, y; ints: rows, n. y = x + bias; y may alias x.
  GRT_KERNEL_BIAS_ADD = 1,
  /// bufs: dy, dbias; ints: rows, n, acc. dbias[n] = sum over rows.
  GRT_KERNEL_BIAS_GRAD = 2,
  /// bufs: x, gamma, beta, y, stats; ints: rows, n; reals: eps.
  /// stats[rows,2] (accumulator type) = mean, 1/sqrt(var+eps).
  GRT_KERNEL_LAYER_NORM = 3,
  /// bufs: dy, x, stats, gamma, dx, dgamma, dbeta; ints: rows, n, acc.
  /// dx may alias dy; acc applies to dgamma, dbeta.
  GRT_KERNEL_LAYER_NORM_GRAD = 4,
  /// bufs: x, y; ints: n, approximate (1 tanh form, 0 erf). y may alias x.
  GRT_KERNEL_GELU = 5,
  /// bufs: x, dy, dx; ints: n, approximate. dx may alias dy.
  GRT_KERNEL_GELU_GRAD = 6,
  /// bufs: x, bias, pre, y; ints: rows, n, approximate. pre = x + bias (may
  /// alias x), y = gelu(pre).
  GRT_KERNEL_BIAS_GELU = 7,
  /// bufs: q, k, v, o, lse, scratch [, mask]; ints: samples, Tq, Tk, heads,
  /// kvHeads, headDim, qStride, kStride, vStride, causal, opIndex, window
  /// [, hasMask]; reals: scale, dropout.
  /// Row r of q starts qStride elements after row r-1; head h covers headDim
  /// elements from h*headDim. o is [samples,Tq,heads*headDim]; lse (accumulator
  /// type) is [samples,heads,Tq], the log of the sum of exponentials of the
  /// scaled scores. heads are local; the global head is tpIndex*heads+h.
  /// Attention dropout is keyed by (sample, global head, row, column). With
  /// causal, query r sees keys 0 .. r + Tk - Tq. With a window (0: none) it
  /// sees no key up to r + Tk - Tq - window: with causal `window` keys, its own
  /// among them. No query sees key j of a sample whose mask[samples,Tk] (i32)
  /// is 0 there. A query that sees no key gives zeros.
  /// scratch: grt_cpu_attention_scratch_bytes() for each thread that may take
  /// part; at least for one.
  GRT_KERNEL_ATTENTION = 8,
  /// bufs: q, k, v, o, lse, dout, dq, dk, dv, scratch [, mask]; ints, reals as
  /// above; dq, dk, dv use qStride, kStride, vStride.
  GRT_KERNEL_ATTENTION_GRAD = 9,
  /// bufs: x, y; ints: samples, rowsPerSample, cols, opIndex, colSharded;
  /// reals: p. Inverted dropout; y may alias x. Its own backward.
  /// If colSharded the global column is tpIndex*cols+c.
  GRT_KERNEL_DROPOUT = 10,
  /// bufs: x, residual, y; otherwise as DROPOUT. y = dropout(x) + residual;
  /// y may alias x or residual.
  GRT_KERNEL_DROPOUT_ADD = 11,
  /// bufs: a, b, y; ints: n. y may alias a or b.
  GRT_KERNEL_ADD = 12,
  /// bufs: tokens, table, y; ints: rows, width, localRows, sharded.
  /// y[r] = table[token - first] where first = sharded ? tpIndex*localRows : 0;
  /// rows that belong to another shard give zeros.
  GRT_KERNEL_EMBEDDING = 13,
  /// bufs: tokens, dy, dtable; ints: rows, width, localRows, sharded, acc
  /// [, padding]. Rows of dtable are summed in ascending order of r:
  /// deterministic. Token `padding` (-1: none) adds nothing.
  GRT_KERNEL_EMBEDDING_GRAD = 14,
  /// bufs: x, table, y; ints: samples, T, width. y[s,t] = x[s,t] + table[t];
  /// y may alias x.
  GRT_KERNEL_POSITION_ADD = 15,
  /// bufs: dy, dtable; ints: samples, T, width, tableRows, acc. Rows t >= T of
  /// dtable get zero (when not adding).
  GRT_KERNEL_POSITION_GRAD = 16,
  /// bufs: logits, labels, stats; ints: rows, localCols, globalCols, sharded.
  /// stats[rows,3] (accumulator type) = max, sum exp(x - max), logit of the
  /// label (0 if it lives on another shard). Columns whose global index is
  /// >= globalCols are padding and take no part. In generate mode
  /// (grt_step.mode) the third value is the local column of the maximum.
  GRT_KERNEL_SOFTMAX_STATS = 17,
  /// bufs: logits, labels, stats, dlogits, loss; ints: rows, localCols,
  /// globalCols, sharded, shards. stats is [shards,rows,3], all shards.
  /// loss[1] (f64) = sum over rows with label >= 0 of -log p(label);
  /// dlogits = (softmax - onehot) * step.inverse_tokens, 0 for label < 0 and
  /// for padding columns; dlogits may alias logits. In generate mode writes the
  /// global index of the largest logit over the labels instead.
  GRT_KERNEL_CROSS_ENTROPY = 18,
  /// bufs: src, dst; ints: rows, rowBytes, srcStrideBytes, dstStrideBytes.
  GRT_KERNEL_COPY = 19,
  /// bufs: dst; ints: none. All bytes zero.
  GRT_KERNEL_ZERO = 20,
  /// bufs: parameter, gradient, state; ints: optimizer (0 sgd, 1 adam, 2
  /// adamw),
  /// shardElements, segments, then per segment: begin, length, decay (0/1).
  /// The buffers hold elements [i*shardElements, (i+1)*shardElements) of the
  /// layer's owned flat parameters, i = the rank's sdp (or zdp) index; segments
  /// are in
  /// elements of the whole flat. state is m then v (adam), or the momentum
  /// (sgd), shardElements each, accumulator type. If the parameter is BF16 the
  /// master weights follow (f32, shardElements): they are updated, and the
  /// parameter becomes their rounded copy. If step.update_left_out is not 0
  /// nothing changes.
  GRT_KERNEL_OPTIMIZER = 21,
  /// bufs: gradient; ints: shardElements, segments, then per segment: begin,
  /// length, replicatedOverTp (0/1). Adds the sum of squares of the elements
  /// this rank owns to step.local_norm_squared: nothing unless dpIndex is 0;
  /// segments replicated over TP count on tpIndex 0 only.
  GRT_KERNEL_NORM = 22,
  /// bufs: x, y; ints: n; reals: factor. y = factor * x; y may alias x.
  GRT_KERNEL_SCALE = 23,
  /// bufs: x, residual, gamma, beta, sum, y, stats; ints: samples,
  /// rowsPerSample, n, opIndex; reals: eps, p. sum = dropout(x) + residual as
  /// DROPOUT_ADD gives it, y and stats as LAYER_NORM gives them for it; sum may
  /// alias x or residual.
  GRT_KERNEL_ADD_LAYER_NORM = 24,
  /// bufs: dy, x, stats, gamma, residual, dx, dgamma, dbeta; ints: rows, n,
  /// acc. As LAYER_NORM_GRAD, but dx has `residual` added; dx may alias dy or
  /// residual.
  GRT_KERNEL_LAYER_NORM_ADD_GRAD = 25,
  /// bufs: a, b, bias, y [, pre] [, scratch]; ints: M, N, K, transA, transB,
  /// approximate, hasPre. pre[M,N] = op(a) op(b) + bias[N], y = gelu(pre);
  /// shapes and scratch as GEMM.
  GRT_KERNEL_GEMM_GELU = 26,
  /// bufs: a, b, x, c [, scratch]; ints: M, N, K, transA, transB, approximate.
  /// c[M,N] = op(a) op(b) * gelu'(x), x[M,N]; shapes and scratch as GEMM.
  GRT_KERNEL_GEMM_GELU_GRAD = 27,
  /// bufs: a, b, c, dbias [, scratch]; ints: M, N, K, acc. c[M,N] = a^T b (+ c)
  /// and dbias[N] = sum over rows of b (+ dbias): a is [K,M], b is [K,N], c and
  /// dbias have the accumulator type; scratch as GEMM.
  GRT_KERNEL_GEMM_BIAS_GRAD = 28,
  /// bufs: x, gamma, y, stats; ints: rows, n; reals: eps. stats[rows]
  /// (accumulator type) = 1/sqrt(mean of x^2 + eps); y = gamma * (x * stats),
  /// the product in brackets rounded to the compute type before the other.
  GRT_KERNEL_RMS_NORM = 29,
  /// bufs: dy, x, stats, gamma, dx, dgamma; ints: rows, n, acc. dx may alias
  /// dy; acc applies to dgamma.
  GRT_KERNEL_RMS_NORM_GRAD = 30,
  /// bufs: x, y; ints: samples, T, heads, headDim, inverse, pairs; reals:
  /// factor, then a frequency for each pair. Rotates elements (i, i + pairs) of
  /// every head at position t by the angle t * frequency[i] and multiplies them
  /// by factor; with `inverse` by minus the angle. Elements from 2 * pairs on
  /// are copied. Angles are products in the accumulator type; cosine and sine,
  /// times factor, are rounded to the compute type. y may alias x. pairs is at
  /// most GRT_ROTARY_PAIRS. With `inverse` flipped its own backward.
  GRT_KERNEL_ROTARY = 31,
  /// bufs: gate, up, y; ints: n. y = gate / (1 + exp(-gate)) * up; y may alias
  /// gate or up.
  GRT_KERNEL_GATED_SILU = 32,
  /// bufs: gate, up, dy, dgate, dup; ints: n. dgate may alias gate or dy, dup
  /// may alias up or dy.
  GRT_KERNEL_GATED_SILU_GRAD = 33,
  /// bufs: images, y; ints: samples, channels, rows, cols, patchRows, patchCols
  /// [, padded].
  /// images is [samples,channels,rows,cols]. A row of y is one patch, patches
  /// row by row: element (c, i, j) of patch (a, b) is
  /// images[s, c, a*patchRows+i, b*patchCols+j]. Rows and columns behind the
  /// last whole patch are left out; if padded they make patches too, with zeros
  /// where the image ends.
  GRT_KERNEL_PATCHES = 34,
  /// bufs: x, y; ints: n. y = x where x > 0, else 0; NaN stays. y may alias x.
  GRT_KERNEL_RELU = 35,
  /// bufs: y, dy, dx; ints: n. dx = dy where y > 0, else 0. dx may alias y or
  /// dy.
  GRT_KERNEL_RELU_GRAD = 36,
  /// bufs: gate, up, y; ints: n. y = gelu(gate) * up, the GELU in its tanh
  /// form; y may alias gate or up.
  GRT_KERNEL_GATED_GELU = 37,
  /// bufs: gate, up, dy, dgate, dup; ints: n. dgate may alias gate or dy, dup
  /// may alias up or dy.
  GRT_KERNEL_GATED_GELU_GRAD = 38,
  /// bufs: table, bias; ints: samples, heads, T, buckets, maxDistance,
  /// bidirectional. table is [buckets,heads]; bias is [samples,heads,2*T-1],
  /// alike for all samples: element d of head h is table[b,h] where b is the
  /// bucket of the distance d - (T-1). Negative distances lie before the query.
  /// With n buckets (bidirectional: n = buckets/2, to which distances above 0
  /// add n) and e = n/2, distance r (one way: max(-distance, 0); both ways: its
  /// size) has bucket r below e, from there on
  /// min(n-1, e + floor(ln(r/e) / ln(maxDistance/e) * (n-e))).
  /// buckets is at most GRT_RELATIVE_BUCKETS.
  GRT_KERNEL_RELATIVE_BIAS = 39,
  /// bufs: dbias, dtable; ints: as above, then acc. dtable (accumulator type)
  /// is summed over samples and distances in one order.
  GRT_KERNEL_RELATIVE_BIAS_GRAD = 40,
  /// bufs: q, k, v, o, lse, scratch, bias [, mask]; ints: the twelve of
  /// ATTENTION, biasHeads [, hasMask]; reals as there. To the scaled score of
  /// query r and key j of global head h bias[sample,h,j-r+Tq-1] is added; bias
  /// is [samples,biasHeads,Tq+Tk-1], of all heads whatever this rank has. scale
  /// is not 0.
  GRT_KERNEL_BIASED_ATTENTION = 41,
  /// bufs: q, k, v, o, lse, dout, dq, dk, dv, scratch, bias, dbias [, mask];
  /// ints, reals as above. dbias gets zeros for heads of other ranks. scratch:
  /// for each thread grt_cpu_bias_scratch_bytes() more.
  GRT_KERNEL_BIASED_ATTENTION_GRAD = 42,
  /// bufs: x, y; ints: samples, rows, cols, width, window, shift, merge, join.
  /// Between positions of a grid, [samples,rows,cols,width], and those of its
  /// windows, [samples,down,across,window,window,width] with down =
  /// ceil(rows/window) and across = ceil(cols/window). Position (i, j) of
  /// window
  /// (a, b) is that at ((a*window+i+shift) mod (down*window),
  /// (b*window+j+shift)
  /// mod (across*window)) of the grid with zeros below it and to its right;
  /// with `merge` positions of a window stand column by column. x is the grid
  /// and y the windows, or with `join` the other way round, and what would fall
  /// on the zeros is left out.
  GRT_KERNEL_WINDOWS = 43,
  /// bufs: q, k, v, o, lse, scratch, table; ints: samples, down, across,
  /// window,
  /// shift, heads, headDim, opIndex; reals: scale, dropout.
  /// Attention of the window^2 positions of a window among themselves; q, k, v,
  /// o are [samples,down*across,window^2,heads,headDim], lse (accumulator type)
  /// is [samples,down*across,heads,window^2]. With W = window the scaled score
  /// of query (i, j) and key (m, n) gets
  /// table[((i-m+W-1)*(2*W-1) + j-n+W-1), head] added, table is
  /// [(2*W-1)^2,heads]
  /// of this rank's heads. In windows of the last row -100 is added where just
  /// one of i, m is at least W-shift, or in those of the last column one of j,
  /// n
  /// (once, if both are so). Dropout as in ATTENTION, with sample*down*across +
  /// window for the sample. scale is not 0.
  /// scratch: for the CPU backend grt_cpu_window_scratch_bytes(), for CUDA
  /// grt_cuda_window_scratch_bytes().
  GRT_KERNEL_WINDOW_ATTENTION = 44,
  /// bufs: q, k, v, o, lse, dout, dq, dk, dv, scratch, table, dtable; ints as
  /// above, then acc; reals as above. dtable (accumulator type) is summed in
  /// one
  /// order, whatever the number of threads.
  GRT_KERNEL_WINDOW_ATTENTION_GRAD = 45,
  /// bufs: x, y; ints: samples, elementsPerSample, opIndex, firstLayer; reals:
  /// rate. With p = rate * (layer - firstLayer), where layer is the running
  /// layer's number in the model: all of a sample is multiplied by 0 or
  /// 1/(1-p). The number of a sample is that of DROPOUT for its row and column
  /// 0. y may alias x. Its own backward.
  GRT_KERNEL_DROP_PATH = 46,
  /// bufs: x, y; ints: samples, T, width. y[s] = mean over t of x[s,t].
  GRT_KERNEL_MEAN = 47,
  /// bufs: dy, dx; ints: samples, T, width. dx[s,t] = dy[s] / T.
  GRT_KERNEL_MEAN_GRAD = 48,
  /// bufs: x, y; ints: count, rows, cols. y[i] is the transpose of x[i], a
  /// matrix of rows by cols.
  GRT_KERNEL_TRANSPOSE = 49,
  /// bufs: x, y; ints: rows, parts, partElements, ranks, back. The group of
  /// tensor parallelism has parts*ranks ranks, and tpIndex/ranks is the part of
  /// this one. y[rows,partElements] is its part of x[rows,parts,partElements];
  /// with `back` y[rows,parts,partElements] is x[rows,partElements] there and
  /// zero elsewhere.
  GRT_KERNEL_OWN_PART = 50,
  /// bufs: logits, labels, stats, dlogits, loss; ints: rows, cols. What
  /// SOFTMAX_STATS and CROSS_ENTROPY are one after the other for a vocabulary
  /// that is not sharded, to the last bit: stats[rows,3] is written, and
  /// dlogits may alias logits. The logits can be read once.
  GRT_KERNEL_SOFTMAX_CROSS_ENTROPY = 51,
  GRT_KERNEL_COUNT = 52
} grt_kernel;

/// Rows of the table of RELATIVE_BIAS, at most.
#define GRT_RELATIVE_BUCKETS 256

/// Pairs of elements that ROTARY turns in a head, at most.
#define GRT_ROTARY_PAIRS 256

/// Rules by which parameters are updated: an integer of OPTIMIZER.
typedef enum grt_optimizer {
  GRT_OPTIMIZER_SGD = 0, ///< with momentum
  GRT_OPTIMIZER_ADAM = 1,
  GRT_OPTIMIZER_ADAMW = 2
} grt_optimizer;

/// Axes of a layer's strategy along which a collective runs.
typedef enum grt_axis {
  GRT_AXIS_DP = 0,
  GRT_AXIS_SDP = 1,
  GRT_AXIS_TP = 2
} grt_axis;

/// Queues of a device, each in order, between them only what events say. A
/// backend whose calls are done when they return has none, and a program for it
/// has everything on GRT_STREAM_COMPUTE.
typedef enum grt_stream {
  GRT_STREAM_COMPUTE = 0,  ///< all kernels
  GRT_STREAM_GRADIENT = 1, ///< collectives over gradients
  GRT_STREAM_GATHER = 2,   ///< collectives that gather parameters
  GRT_STREAM_TRANSFER = 3, ///< between stages
  GRT_STREAM_IN = 4,       ///< copies from the host
  GRT_STREAM_OUT = 5,      ///< copies to the host
  GRT_STREAM_COUNT = 6
} grt_stream;

typedef enum grt_collective {
  /// in == out, summed over the group; the same bits on every member.
  GRT_ALL_REDUCE = 0,
  /// out is the members' inputs, concatenated by their index on the axis.
  GRT_ALL_GATHER = 1,
  /// out = the member's slice of the sum of all inputs; `acc` as for kernels.
  /// When it adds, the member's own slice of `in` is undefined afterwards.
  GRT_REDUCE_SCATTER = 2
} grt_collective;

/// Constant descriptor of one kernel call.
typedef struct grt_kernel_op {
  uint32_t kernel; ///< grt_kernel
  uint32_t buffer_count;
  uint32_t int_count;
  uint32_t real_count;
  const grt_buffer *buffers;
  const int64_t *ints;
  const double *reals;
  const char *name; ///< for messages and traces, e.g. "h.attn.c_attn"
} grt_kernel_op;

/// Constant descriptor of one collective call inside a layer function.
typedef struct grt_collective_op {
  uint32_t collective; ///< grt_collective
  uint32_t axis;       ///< grt_axis, of the running layer's strategy
  uint32_t acc;
  uint32_t stream; ///< grt_stream
  grt_buffer in;
  grt_buffer out;
  const char *name;
} grt_collective_op;

/// Constant descriptor of one call that orders streams. Events are numbered per
/// function call; an event is recorded before it is waited for.
///
/// What a program promises: at the beginning of a function GRT_STREAM_COMPUTE
/// is behind everything that the function may touch, other streams are behind
/// nothing; at its end COMPUTE has waited for all that the function put on
/// other streams. Marks of lifetimes stand in the order of COMPUTE.
typedef struct grt_event_op {
  uint32_t event;
  uint32_t stream; ///< grt_stream
  uint32_t wait;   ///< 0: record the event, 1: the stream waits for it
  uint32_t reserved;
  const char *name;
} grt_event_op;

/// A function has at most so many events.
#define GRT_FUNCTION_EVENTS 64

typedef struct grt_context grt_context;

/// Entry points a program imports. Descriptors, and what they point to, stay as
/// they are as long as the program is loaded. All return 0 on success; anything
/// else ends the function at once (the runtime has already recorded the
/// message).
int32_t grt_launch(grt_context *context, const grt_kernel_op *op);
int32_t grt_communicate(grt_context *context, const grt_collective_op *op);
int32_t grt_order(grt_context *context, const grt_event_op *op);
/// Lifetime marks of a buffer: the bytes between them count as live.
int32_t grt_begin(grt_context *context, const grt_buffer *buffer);
int32_t grt_end(grt_context *context, const grt_buffer *buffer);

/// A layer function.
typedef int32_t (*grt_function)(grt_context *context);

/// What a role does, in order. A chunk is a run of layers that a role runs as
/// one; chunks are numbered over all roles, in the order of the model.
typedef enum grt_task_kind {
  /// Runs a chunk forward for (micro_batch, slot).
  GRT_TASK_FORWARD = 0,
  /// Runs a chunk backward for (micro_batch, slot).
  GRT_TASK_BACKWARD = 1,
  /// Messages between chunks, all parts as one grouped operation: `first`,
  /// `count` name rows of the schedule's table of parts.
  GRT_TASK_TRANSFER = 2,
  /// All-reduces the gradients of each layer of a chunk over its dp axis
  /// (layers descending). Layers of level `zdp` reduce-scatter them.
  GRT_TASK_SYNC_GRADIENTS = 3,
  /// Borrowers' gradients of tied parameters go to their owners and are added.
  GRT_TASK_TIE_REDUCE = 4,
  /// Global gradient norm (and loss): gathered over all ranks, added in rank
  /// order.
  GRT_TASK_NORM = 5,
  /// Runs the update function of each layer of a chunk; with level `zdp`, then
  /// gathers the layer's parameters.
  GRT_TASK_UPDATE = 6,
  /// Owners' new values of tied parameters go to the borrowers.
  GRT_TASK_TIE_BROADCAST = 7,
  /// A backward pass in two parts. The input part runs the layers' backward
  /// functions, which leave in the slot what their weight functions read.
  GRT_TASK_BACKWARD_INPUT = 8,
  /// The weight part, behind the input part of the same micro-batch, at any
  /// time until the end of the step: runs the layers' weight functions. What
  /// the slot holds ends with it.
  GRT_TASK_BACKWARD_WEIGHT = 9,
  /// Copies what `classes` says of all layers of a chunk between their home on
  /// the host and the arena, which way `tiers` says.
  GRT_TASK_SWAP = 10
} grt_task_kind;

/// `classes` of a SWAP task.
typedef enum grt_swap_class {
  GRT_SWAP_PARAMETERS = 1,
  GRT_SWAP_GRADIENTS = 2, ///< the sum over the micro-batches so far
  /// What forward keeps of a micro-batch, whose slot is then the one at home.
  GRT_SWAP_ACTIVATIONS = 4,
  /// Optimizer state of a chunk that is updated in the arena: to the device
  /// alone, to the host with the parameters.
  GRT_SWAP_OPTIMIZER = 8
} grt_swap_class;

/// `tiers` of a SWAP task.
typedef enum grt_swap_tiers {
  GRT_TO_DEVICE = 1,
  GRT_TO_HOST = 2
} grt_swap_tiers;

/// `flags` of a BACKWARD or BACKWARD_WEIGHT task.
typedef enum grt_backward_flag {
  /// Behind each layer's last function its gradients are all-reduced over
  /// its dp axis on GRT_STREAM_GRADIENT; the chunk's GRT_TASK_SYNC_GRADIENTS
  /// then only waits for it.
  GRT_SYNC_BEHIND = 1
} grt_backward_flag;

/// A task waits for at most so many events: its stream, of four that tasks are
/// on, for the other three.
#define GRT_TASK_WAITS 3
/// A schedule has at most so many events.
#define GRT_SCHEDULE_EVENTS 32

/// One row of a role's task table. Fields that a kind does not name are 0, and
/// so are those that no kind names yet: they have their places because a row
/// that grew would need another version.
typedef struct grt_task {
  uint8_t kind;   ///< grt_task_kind
  uint8_t flags;  ///< grt_backward_flag set
  uint16_t chunk; ///< of tasks that run layers, SYNC_GRADIENTS, UPDATE, SWAP
  uint16_t slot;  ///< of tasks that run layers: stash slot of the chunk, or
                  ///< the place in which its message waits; SWAP of
                  ///< activations
  uint8_t generation;   ///< FORWARD: batches behind the part's
  uint8_t classes;      ///< SWAP: grt_swap_class set
  uint32_t micro_batch; ///< of tasks that run layers; SWAP of activations
  uint32_t first;       ///< TRANSFER: the first part
  uint16_t count;       ///< TRANSFER: parts
  uint8_t stream;       ///< SWAP: grt_stream, where the device has several
  uint8_t tiers;        ///< SWAP: grt_swap_tiers
  /// Where swaps have streams of their own: events of the schedule, from 1 on;
  /// 0 is none. Before the task its stream waits for `waits`, behind it
  /// `records` is recorded there. The stream of tasks that run layers is
  /// GRT_STREAM_COMPUTE, that of TRANSFER is GRT_STREAM_TRANSFER; what is done
  /// at home has none, and the host waits for GRT_STREAM_OUT before it.
  uint8_t records;
  uint8_t waits[GRT_TASK_WAITS];
} grt_task;

typedef enum grt_direction { GRT_SEND = 0, GRT_RECEIVE = 1 } grt_direction;

typedef enum grt_value {
  /// Of the chunk before in the model's order, for the one behind it.
  GRT_ACTIVATION = 0,
  /// Of the chunk behind, for the one before it.
  GRT_GRADIENT = 1,
  /// Where chunks are packs: what goes into a layer that one chunk runs forward
  /// and another one again, to the other one's home.
  GRT_STASH = 2
} grt_value;

/// A part of a transfer: what a chunk sends to, or receives from another one,
/// whose role is known by its number.
typedef struct grt_transfer_part {
  uint8_t direction; ///< grt_direction
  uint8_t value;     ///< grt_value
  uint16_t chunk;
  uint16_t peer_chunk;
  /// Of the chunk, where a received activation goes, or a stash at home. Where
  /// chunks are packs: the place in which another message waits.
  uint16_t slot;
  uint32_t micro_batch;
  uint8_t generation; ///< batches behind the part's
  uint8_t reserved[3];
} grt_transfer_part;

/// A transfer has at most one part of each direction and value.
#define GRT_TRANSFER_PARTS 4

/// Parts of a schedule. Synchronous schedules have an empty prologue and drain
/// and run `steady` once a step; `evaluate` is forward only. Others run the
/// prologue before a batch that nothing was done for yet, then `steady` if
/// another batch follows and `drain` if none does; `step end` behind either. A
/// batch behind the part's is the next one. Slots of a chunk are counted from
/// the prologue on: with every batch since they shift by the number of
/// micro-batches, modulo their own.
typedef enum grt_part {
  GRT_PART_PROLOGUE = 0,
  GRT_PART_STEADY = 1,
  GRT_PART_STEP_END = 2,
  GRT_PART_DRAIN = 3,
  GRT_PART_EVALUATE = 4,
  GRT_PART_COUNT = 5
} grt_part;

typedef struct grt_task_list {
  const grt_task *tasks;
  uint64_t count;
} grt_task_list;

typedef struct grt_schedule {
  grt_task_list parts[GRT_PART_COUNT];
  const grt_transfer_part *transfers; ///< of all transfers of the role
  uint64_t transfer_count;
} grt_schedule;

/// The exported symbol `grt_program`. Functions and roles are numbered as in
/// the manifest.
typedef struct grt_program {
  uint32_t abi_version;
  uint32_t function_count;
  uint32_t role_count;
  uint16_t task_bytes;          ///< sizeof(grt_task)
  uint16_t transfer_part_bytes; ///< sizeof(grt_transfer_part)
  const grt_function *functions;
  const grt_schedule *schedules; ///< one per role
  const char *manifest;          ///< JSON, manifest_bytes long; also in the
                                 ///< section ".grt.manifest"
  uint64_t manifest_bytes;
} grt_program;

/// Execution modes of a forward pass.
typedef enum grt_mode {
  GRT_MODE_TRAIN = 0,
  GRT_MODE_EVALUATE = 1, ///< no dropout
  GRT_MODE_GENERATE = 2  ///< no dropout; cross entropy writes argmax to labels
} grt_mode;

/// The step block: scalars that change from step to step. It lives in the arena
/// and kernels read it; nothing of it is ever baked into a call.
typedef struct grt_step {
  uint64_t step; ///< counts from 1 (Adam's bias correction)
  uint64_t seed;
  uint32_t mode; ///< grt_mode
  /// Not 0: the optimizer changes nothing in this step.
  uint32_t update_left_out;
  double learning_rate;
  double beta1, beta2, eps, weight_decay;
  double momentum;
  double clip_factor;        ///< gradients are multiplied by it in the update
  double inverse_tokens;     ///< 1 / number of valid tokens of the global batch
  double local_norm_squared; ///< this rank's part, see GRT_KERNEL_NORM
  // Where the backend decides of the update itself: see grt_device.
  double local_loss; ///< this rank's part
  double clip_norm;  ///< gradients of a larger norm are scaled to it
  double skip_norm;  ///< those of a larger norm update nothing; 0: any does
} grt_step;

#ifdef __cplusplus
}
#endif

#endif // GRT_ABI_H
