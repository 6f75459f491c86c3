//===- dispatch.cpp - From calls of the C ABI to inner functions ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One function per kernel of abi.h: reads the descriptor, derives what depends
// on the rank's coordinates and on the step, checks data that comes from
// outside (tokens, labels), and calls the table of the instruction set.
//
//===----------------------------------------------------------------------===//

#include "../common/relative.h"
#include "call.h"

#include "grt/philox.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace grt::cpu {

GemmShape gemmShape(const grt_kernel_op &op, bool accumulate) {
  const int64_t *i = op.ints;
  const bool narrow = op.buffers[0].dtype == GRT_BF16;
  auto adds = [&](int64_t acc) { return acc == 1 || (acc == 2 && accumulate); };
  switch (op.kernel) {
  case GRT_KERNEL_GEMM_GELU:
    return {i[0],          i[1],  i[2],   i[3] != 0, i[4] != 0,
            /*bias=*/true, false, narrow, narrow};
  case GRT_KERNEL_GEMM_GELU_GRAD:
    return {i[0],           i[1],  i[2],   i[3] != 0, i[4] != 0,
            /*bias=*/false, false, narrow, narrow};
  case GRT_KERNEL_GEMM_BIAS_GRAD:
    return {i[0],
            i[1],
            i[2],
            /*transA=*/true,
            false,
            false,
            adds(i[3]),
            narrow,
            op.buffers[2].dtype == GRT_BF16};
  default:
    return {i[0],       i[1],      i[2],
            i[3] != 0,  i[4] != 0, i[6] != 0,
            adds(i[5]), narrow,    op.buffers[2].dtype == GRT_BF16};
  }
}

int gemmScratchIndex(const grt_kernel_op &op) {
  int index = op.kernel == GRT_KERNEL_GEMM        ? 3 + (op.ints[6] != 0)
              : op.kernel == GRT_KERNEL_GEMM_GELU ? 4 + (op.ints[6] != 0)
                                                  : 4;
  return int64_t(op.buffer_count) > index ? index : -1;
}

uint64_t gemmScratchBytes(const grt_kernel_op &op, int threads) {
  GemmShape s = gemmShape(op, /*accumulate=*/true);
  uint32_t wide = op.buffers[0].dtype == GRT_F64 ? 8 : 4;
  return grt_cpu_gemm_scratch_bytes(s.m, s.n, s.k, s.transA, s.transB, s.add,
                                    s.narrow ? 2 : wide,
                                    s.narrowResult ? 2 : wide, threads);
}

uint64_t attentionScratchBytes(const grt_kernel_op &op) {
  uint32_t dtype = op.buffers[0].dtype;
  bool backward = isAttentionGrad(op.kernel);
  if (isWindowAttention(op.kernel)) {
    WindowShape shape(op);
    return grt_cpu_window_thread_bytes(shape.window, shape.headDim,
                                       dtype == GRT_F64    ? 8
                                       : dtype == GRT_BF16 ? 2
                                                           : 4,
                                       backward);
  }
  uint64_t bytes = (dtype == GRT_F64 ? sizeof(double) : sizeof(float)) *
                   uint64_t(attentionScratchElements(
                       op.ints[2], op.ints[5], dtype == GRT_BF16, backward));
  if (isBiasedAttention(op.kernel))
    bytes += grt_cpu_bias_scratch_bytes(op.ints[1], op.ints[2],
                                        dtype == GRT_BF16 ? 2 : 4, backward);
  return bytes;
}

int32_t relativeBucket(const RelativeBuckets &rule, int64_t distance) {
  return rule.of(distance);
}

namespace {

/// As many threads as there is scratch for, and as wide blocks as they can
/// have.
GemmBlocks gemmBlocks(const GemmShape &s, uint32_t accumulatorBytes,
                      int threads, Scratch scratch) {
  auto needed = [&](uint64_t bytesOfRow) {
    return grt_cpu_gemm_pack_bytes(s.m, s.n, s.k, accumulatorBytes,
                                   s.narrowResult, bytesOfRow);
  };
  constexpr uint64_t step = GRT_CPU_GEMM_LEAST_BYTES_OF_ROW;
  // A block of b for the last-level cache, no wider than b.
  constexpr uint64_t block = (1 << 20) / GRT_CPU_GEMM_DEPTH;
  uint64_t widest = std::min(block, uint64_t(s.n) * accumulatorBytes);
  uint64_t least = needed(step);
  if (scratch.bytes < least)
    throw CallError("gemm needs " + std::to_string(least) +
                    " bytes of scratch, found " +
                    std::to_string(scratch.bytes));
  threads = int(std::min<uint64_t>(uint64_t(s.threadsOf(threads)),
                                   scratch.bytes / least));
  uint64_t share = scratch.bytes / uint64_t(threads) / 64 * 64;
  uint64_t row = step;
  while (row < widest && needed(row + step) <= share)
    row += step;
  return {threads, scratch.memory, int64_t(share), int64_t(row)};
}

/// The product of buffers 0 and 1.
template <class T>
void multiply(const Call &call, const GemmShape &shape, void *c,
              const T *bias) {
  const T *a = call.buffer<T>(0), *b = call.buffer<T>(1);
  if (shape.m <= 0 || shape.n <= 0)
    return;
  int index = gemmScratchIndex(call.op());
  Scratch scratch = index < 0 ? call.rank().reserveScratch(
                                    gemmScratchBytes(call.op(), call.threads()))
                              : Scratch{call.buffer<char>(index),
                                        call.descriptor(index).bytes};
  if constexpr (!std::is_same_v<T, double>) {
    // oneDNN refuses empty sums; ours gives zeros.
    if (shape.k > 0 && call.rank().oneDnn.run(shape, a, b, c, bias, scratch))
      return;
  }
  GemmBlocks blocks =
      gemmBlocks(shape, sizeof(Accumulator<T>), call.threads(), scratch);
  auto own = [&](auto gemm, auto *c) {
    gemm(blocks, shape.m, shape.n, shape.k, a, shape.transA, b, shape.transB, c,
         bias, shape.add);
  };
  if (shape.narrowResult)
    own(call.table<T>().gemmNarrow, static_cast<T *>(c));
  else
    own(call.table<T>().gemm, static_cast<Accumulator<T> *>(c));
}

template <class T> void runGemm(const Call &call) {
  GemmShape shape = gemmShape(call.op(), call.accumulate());
  if (shape.bias)
    call.checkBuffers(4, "a bias");
  multiply(call, shape, call.buffer<void>(2),
           shape.bias ? call.buffer<T>(3) : nullptr);
}

template <class T> void runGemmGelu(const Call &call) {
  bool hasPre = call.integer(6) != 0;
  if (hasPre)
    call.checkBuffers(5, "a result before the activation");
  GemmShape shape = gemmShape(call.op(), call.accumulate());
  T *y = call.buffer<T>(3), *pre = hasPre ? call.buffer<T>(4) : y;
  multiply(call, shape, pre, call.buffer<T>(2));
  call.table<T>().biasGelu(call.threads(), 1, shape.m * shape.n, pre, nullptr,
                           nullptr, y, call.integer(5) != 0);
}

template <class T> void runGemmGeluGrad(const Call &call) {
  GemmShape shape = gemmShape(call.op(), call.accumulate());
  T *c = call.buffer<T>(3);
  multiply<T>(call, shape, c, nullptr);
  call.table<T>().geluGrad(call.threads(), shape.m * shape.n, call.buffer<T>(2),
                           c, c, call.integer(5) != 0);
}

template <class T> void runGemmBiasGrad(const Call &call) {
  GemmShape shape = gemmShape(call.op(), call.accumulate());
  multiply<T>(call, shape, call.buffer<void>(2), nullptr);
  call.table<T>().biasGrad(call.threads(), shape.k, shape.n, call.buffer<T>(1),
                           call.buffer<Accumulator<T>>(3), shape.add);
}

template <class T> void runBiasAdd(const Call &call) {
  call.table<T>().biasAdd(call.threads(), call.integer(0), call.integer(1),
                          call.buffer<T>(0), call.buffer<T>(1),
                          call.buffer<T>(2));
}

template <class T> void runBiasGrad(const Call &call) {
  call.table<T>().biasGrad(call.threads(), call.integer(0), call.integer(1),
                           call.buffer<T>(0), call.buffer<Accumulator<T>>(1),
                           call.add(call.integer(2)));
}

template <class T> void runLayerNorm(const Call &call) {
  call.table<T>().layerNorm(call.threads(), call.integer(0), call.integer(1),
                            call.buffer<T>(0), call.buffer<T>(1),
                            call.buffer<T>(2), call.buffer<T>(3),
                            call.buffer<Accumulator<T>>(4), call.real(0));
}

template <class T> void runLayerNormGrad(const Call &call) {
  using A = Accumulator<T>;
  call.table<T>().layerNormGrad(
      call.threads(), call.integer(0), call.integer(1), call.buffer<T>(0),
      call.buffer<T>(1), call.buffer<A>(2), call.buffer<T>(3), nullptr,
      call.buffer<T>(4), call.buffer<A>(5), call.buffer<A>(6),
      call.add(call.integer(2)));
}

template <class T> void runLayerNormAddGrad(const Call &call) {
  using A = Accumulator<T>;
  call.table<T>().layerNormGrad(
      call.threads(), call.integer(0), call.integer(1), call.buffer<T>(0),
      call.buffer<T>(1), call.buffer<A>(2), call.buffer<T>(3),
      call.buffer<T>(4), call.buffer<T>(5), call.buffer<A>(6),
      call.buffer<A>(7), call.add(call.integer(2)));
}

template <class T> void runRmsNorm(const Call &call) {
  call.table<T>().rmsNorm(call.threads(), call.integer(0), call.integer(1),
                          call.buffer<T>(0), call.buffer<T>(1),
                          call.buffer<T>(2), call.buffer<Accumulator<T>>(3),
                          call.real(0));
}

template <class T> void runRmsNormGrad(const Call &call) {
  using A = Accumulator<T>;
  call.table<T>().rmsNormGrad(
      call.threads(), call.integer(0), call.integer(1), call.buffer<T>(0),
      call.buffer<T>(1), call.buffer<A>(2), call.buffer<T>(3),
      call.buffer<T>(4), call.buffer<A>(5), call.add(call.integer(2)));
}

template <class T> void runRotary(const Call &call) {
  call.checkRotary();
  RotaryArguments a = {};
  a.samples = call.integer(0);
  a.positions = call.integer(1);
  a.heads = call.integer(2);
  a.headDim = call.integer(3);
  a.inverse = call.integer(4) != 0;
  a.pairs = call.integer(5);
  a.factor = call.real(0);
  a.frequencies = call.op().reals + 1;
  call.table<T>().rotary(call.threads(), a, call.buffer<T>(0),
                         call.buffer<T>(1));
}

template <class T> void runGatedSilu(const Call &call) {
  call.table<T>().gatedSilu(call.threads(), call.integer(0), call.buffer<T>(0),
                            call.buffer<T>(1), call.buffer<T>(2));
}

template <class T> void runGatedSiluGrad(const Call &call) {
  call.table<T>().gatedSiluGrad(
      call.threads(), call.integer(0), call.buffer<T>(0), call.buffer<T>(1),
      call.buffer<T>(2), call.buffer<T>(3), call.buffer<T>(4));
}

template <class T> void runRelu(const Call &call) {
  call.table<T>().relu(call.threads(), call.integer(0), call.buffer<T>(0),
                       call.buffer<T>(1));
}

template <class T> void runReluGrad(const Call &call) {
  call.table<T>().reluGrad(call.threads(), call.integer(0), call.buffer<T>(0),
                           call.buffer<T>(1), call.buffer<T>(2));
}

template <class T> void runGatedGelu(const Call &call) {
  call.table<T>().gatedGelu(call.threads(), call.integer(0), call.buffer<T>(0),
                            call.buffer<T>(1), call.buffer<T>(2));
}

template <class T> void runGatedGeluGrad(const Call &call) {
  call.table<T>().gatedGeluGrad(
      call.threads(), call.integer(0), call.buffer<T>(0), call.buffer<T>(1),
      call.buffer<T>(2), call.buffer<T>(3), call.buffer<T>(4));
}

/// RELATIVE_BIAS and its gradient.
template <class T> void runRelativeBias(const Call &call) {
  call.checkRelativeBias();
  RelativeBuckets rule(call.integer(3), call.integer(4), call.integer(5) != 0);
  RelativeBiasArguments a = {call.integer(0), call.integer(1), call.integer(2),
                             call.integer(3), &rule};
  if (call.op().kernel == GRT_KERNEL_RELATIVE_BIAS)
    call.table<T>().relativeBias(call.threads(), a, call.buffer<T>(0),
                                 call.buffer<T>(1));
  else
    call.table<T>().relativeBiasGrad(call.threads(), a, call.buffer<T>(0),
                                     call.buffer<Accumulator<T>>(1),
                                     call.add(call.integer(6)));
}

template <class T> void runGelu(const Call &call) {
  call.table<T>().biasGelu(call.threads(), 1, call.integer(0),
                           call.buffer<T>(0), nullptr, nullptr,
                           call.buffer<T>(1), call.integer(1) != 0);
}

template <class T> void runGeluGrad(const Call &call) {
  call.table<T>().geluGrad(call.threads(), call.integer(0), call.buffer<T>(0),
                           call.buffer<T>(1), call.buffer<T>(2),
                           call.integer(1) != 0);
}

template <class T> void runBiasGelu(const Call &call) {
  call.table<T>().biasGelu(call.threads(), call.integer(0), call.integer(1),
                           call.buffer<T>(0), call.buffer<T>(1),
                           call.buffer<T>(2), call.buffer<T>(3),
                           call.integer(2) != 0);
}

/// The dropout stream of a call; false where nothing is dropped.
bool dropoutStream(const Call &call, double p, int64_t opIndex,
                   DropoutStream &stream) {
  if (call.step().mode != GRT_MODE_TRAIN || p == 0)
    return false;
  CallReader::checkDropout(p);
  PhiloxKey key =
      dropoutKey(call.step().seed, call.step().step, call.at().layer);
  stream = {key.lo, key.hi, uint32_t(opIndex), dropoutThreshold(p),
            1.0 / (1.0 - p)};
  return true;
}

/// The buffers that all kernels of attention have in front of their scratch.
template <class T> AttentionArguments<T> attentionArguments(const Call &call) {
  AttentionArguments<T> a = {};
  a.q = call.buffer<T>(0);
  a.k = call.buffer<T>(1);
  a.v = call.buffer<T>(2);
  a.o = call.buffer<T>(3);
  a.lse = call.buffer<Accumulator<T>>(4);
  if (isAttentionGrad(call.op().kernel)) {
    a.dout = call.buffer<T>(5);
    a.dq = call.buffer<T>(6);
    a.dk = call.buffer<T>(7);
    a.dv = call.buffer<T>(8);
  }
  return a;
}

/// Calls the kernel with as many workers as there is scratch for behind its
/// first `taken` bytes.
template <class T>
void shareOutAttention(const Call &call, AttentionArguments<T> &a,
                       uint64_t taken) {
  using A = Accumulator<T>;
  const bool backward = isAttentionGrad(call.op().kernel);
  uint64_t bytes = attentionScratchBytes(call.op());
  int scratchBuffer = attentionScratch(backward);
  call.checkScratch(scratchBuffer, taken + bytes);
  constexpr int mostWorkers = 64;
  A *scratch[mostWorkers];
  a.workers = int(std::min<uint64_t>(
      uint64_t(std::min(call.threads(), mostWorkers)),
      (call.descriptor(scratchBuffer).bytes - taken) / bytes));
  for (int worker = 0; worker < a.workers; ++worker)
    scratch[worker] = reinterpret_cast<A *>(call.buffer<char>(scratchBuffer) +
                                            taken + uint64_t(worker) * bytes);
  a.scratch = scratch;
  if (backward)
    call.table<T>().attentionGrad(a);
  else
    call.table<T>().attention(a);
}

/// ATTENTION (5 + 1 buffers), BIASED_ATTENTION and their gradients (9 + 1).
template <class T> void runAttention(const Call &call) {
  const bool backward = isAttentionGrad(call.op().kernel);
  AttentionArguments<T> a = attentionArguments<T>(call);
  a.samples = call.integer(0);
  a.queryRows = call.integer(1);
  a.keyRows = call.integer(2);
  a.heads = call.integer(3);
  a.kvHeads = call.integer(4);
  a.headDim = call.integer(5);
  a.qStride = call.integer(6);
  a.kStride = call.integer(7);
  a.vStride = call.integer(8);
  a.causal = call.integer(9) != 0;
  a.window = call.integer(11);
  a.mask = call.attentionMask();
  a.scale = call.real(0);
  call.checkHeads(a.heads, a.kvHeads);
  DropoutStream stream;
  if (dropoutStream(call, call.real(1), call.integer(10), stream))
    a.dropout = &stream;
  a.firstSample = call.at().first_sample;
  a.firstHead = call.at().tp_index * a.heads;
  a.globalHeads = call.at().tp_size * a.heads;
  if (isBiasedAttention(call.op().kernel)) {
    call.checkBiasHeads(a.globalHeads);
    a.bias = call.buffer<T>(attentionScratch(backward) + 1);
    if (backward)
      a.dbias = call.buffer<T>(attentionScratch(backward) + 2);
  }
  shareOutAttention(call, a, 0);
}

/// WINDOW_ATTENTION (5 + 1 buffers and the table) and its gradient (9 + 1, the
/// table and its gradient).
template <class T> void runWindowAttention(const Call &call) {
  using A = Accumulator<T>;
  const bool backward = isAttentionGrad(call.op().kernel);
  const WindowShape shape(call.op());
  call.checkWindow(shape.window, shape.shift);
  AttentionArguments<T> a = attentionArguments<T>(call);
  a.samples = shape.windows();
  a.queryRows = a.keyRows = shape.positions();
  a.heads = a.kvHeads = shape.heads;
  a.headDim = shape.headDim;
  a.qStride = a.kStride = a.vStride = shape.heads * shape.headDim;
  a.scale = call.real(0);
  DropoutStream stream;
  if (dropoutStream(call, call.real(1), shape.opIndex, stream))
    a.dropout = &stream;
  a.firstSample = call.at().first_sample * shape.perSample();
  a.firstHead = call.at().tp_index * a.heads;
  a.globalHeads = call.at().tp_size * a.heads;
  const int scratch = attentionScratch(backward);
  WindowBias<T> bias = {};
  bias.down = shape.down;
  bias.across = shape.across;
  bias.window = shape.window;
  bias.shift = shape.shift;
  bias.table = call.buffer<T>(scratch + 1);
  uint64_t taken = 0;
  if (backward) {
    bias.dtable = call.buffer<A>(scratch + 2);
    bias.add = call.add(call.integer(8));
    bias.sums = call.buffer<A>(scratch);
    bias.parts = std::min<int64_t>(a.samples, GRT_CPU_WINDOW_PARTS);
    taken = grt_cpu_window_sums_bytes(a.samples, shape.window, shape.heads,
                                      sizeof(T));
  }
  a.windows = &bias;
  shareOutAttention(call, a, taken);
}

template <class T>
void runDropoutCall(const Call &call, const T *residual, T *y) {
  int64_t samples = call.integer(0), rowsPerSample = call.integer(1);
  DropoutArguments a = {};
  a.rows = samples * rowsPerSample;
  a.cols = call.integer(2);
  const T *x = call.buffer<T>(0);
  int64_t n = a.rows * a.cols;
  if (!dropoutStream(call, call.real(0), call.integer(3), a.stream)) {
    if (residual)
      call.table<T>().add(call.threads(), n, x, residual, y);
    else if (x != y)
      std::memmove(y, x, size_t(n) * sizeof(T));
    return;
  }
  a.firstRow = uint64_t(call.at().first_sample) * uint64_t(rowsPerSample);
  a.firstColumn =
      call.integer(4) != 0 ? uint64_t(call.at().tp_index * a.cols) : 0;
  call.table<T>().dropout(call.threads(), a, x, residual, y);
}

template <class T> void runDropout(const Call &call) {
  runDropoutCall<T>(call, nullptr, call.buffer<T>(1));
}
template <class T> void runDropoutAdd(const Call &call) {
  runDropoutCall<T>(call, call.buffer<T>(1), call.buffer<T>(2));
}

template <class T> void runAddLayerNorm(const Call &call) {
  int64_t rowsPerSample = call.integer(1);
  DropoutArguments a = {};
  a.rows = call.integer(0) * rowsPerSample;
  a.cols = call.integer(2);
  a.firstRow = uint64_t(call.at().first_sample) * uint64_t(rowsPerSample);
  bool drops = dropoutStream(call, call.real(1), call.integer(3), a.stream);
  call.table<T>().addLayerNorm(
      call.threads(), a.rows, a.cols, drops ? &a : nullptr, call.buffer<T>(0),
      call.buffer<T>(1), call.buffer<T>(2), call.buffer<T>(3),
      call.buffer<T>(4), call.buffer<T>(5), call.buffer<Accumulator<T>>(6),
      call.real(0));
}

template <class T> void runAdd(const Call &call) {
  call.table<T>().add(call.threads(), call.integer(0), call.buffer<T>(0),
                      call.buffer<T>(1), call.buffer<T>(2));
}

template <class T> void runScale(const Call &call) {
  call.table<T>().scale(call.threads(), call.integer(0), call.buffer<T>(0),
                        call.buffer<T>(1), call.real(0));
}

/// Rows of the table, counted from `first`, that this rank holds.
struct TableSlice {
  int64_t first, localRows;
};

TableSlice tableSlice(const Call &call, const int32_t *tokens, int64_t rows,
                      int64_t localRows, bool sharded) {
  TableSlice slice = {sharded ? call.at().tp_index * localRows : 0, localRows};
  int64_t limit = sharded ? call.at().tp_size * localRows : localRows;
  for (int64_t r = 0; r < rows; ++r)
    if (tokens[r] < 0 || tokens[r] >= limit)
      throw CallError("token " + std::to_string(tokens[r]) + " at row " +
                      std::to_string(r) + " is not in [0, " +
                      std::to_string(limit) + ")");
  return slice;
}

template <class T> void runEmbedding(const Call &call) {
  const int32_t *tokens = call.buffer<int32_t>(0);
  TableSlice slice = tableSlice(call, tokens, call.integer(0), call.integer(2),
                                call.integer(3) != 0);
  call.table<T>().embedding(call.threads(), call.integer(0), call.integer(1),
                            slice.first, slice.localRows, tokens,
                            call.buffer<T>(1), call.buffer<T>(2));
}

template <class T> void runEmbeddingGrad(const Call &call) {
  const int32_t *tokens = call.buffer<int32_t>(0);
  TableSlice slice = tableSlice(call, tokens, call.integer(0), call.integer(2),
                                call.integer(3) != 0);
  call.table<T>().embeddingGrad(
      call.threads(), call.integer(0), call.integer(1), slice.first,
      slice.localRows, call.embeddingPadding(), tokens, call.buffer<T>(1),
      call.buffer<Accumulator<T>>(2), call.add(call.integer(4)));
}

template <class T> void runPositionAdd(const Call &call) {
  call.table<T>().positionAdd(call.threads(), call.integer(0), call.integer(1),
                              call.integer(2), call.buffer<T>(0),
                              call.buffer<T>(1), call.buffer<T>(2));
}

template <class T> void runPositionGrad(const Call &call) {
  call.table<T>().positionGrad(
      call.threads(), call.integer(0), call.integer(1), call.integer(2),
      call.integer(3), call.buffer<T>(0), call.buffer<Accumulator<T>>(1),
      call.add(call.integer(4)));
}

template <class T> void runPatches(const Call &call) {
  call.checkPatches();
  PatchArguments a = {call.integer(0),   call.integer(1), call.integer(2),
                      call.integer(3),   call.integer(4), call.integer(5),
                      call.padsPatches()};
  call.table<T>().patches(call.threads(), a, call.buffer<T>(0),
                          call.buffer<T>(1));
}

template <class T> void runWindows(const Call &call) {
  call.checkWindow(call.integer(4), call.integer(5));
  WindowsArguments a = {call.integer(0),      call.integer(1),
                        call.integer(2),      call.integer(3),
                        call.integer(4),      call.integer(5),
                        call.integer(6) != 0, call.integer(7) != 0};
  call.table<T>().windows(call.threads(), a, call.buffer<T>(0),
                          call.buffer<T>(1));
}

template <class T> void runDropPath(const Call &call) {
  DropPathArguments a = {};
  a.samples = call.integer(0);
  a.elements = call.integer(1);
  a.firstSample = uint64_t(call.at().first_sample);
  const T *x = call.buffer<T>(0);
  T *y = call.buffer<T>(1);
  if (dropoutStream(call, call.dropPathProbability(), call.integer(2),
                    a.stream))
    call.table<T>().dropPath(call.threads(), a, x, y);
  else if (x != y)
    std::memmove(y, x, size_t(a.samples * a.elements) * sizeof(T));
}

/// MEAN and MEAN_GRAD.
template <class T> void runMean(const Call &call) {
  MeanArguments a = {call.integer(0), call.integer(1), call.integer(2)};
  if (call.op().kernel == GRT_KERNEL_MEAN)
    call.table<T>().mean(call.threads(), a, call.buffer<T>(0),
                         call.buffer<T>(1));
  else
    call.table<T>().meanGrad(call.threads(), a, call.buffer<T>(0),
                             call.buffer<T>(1));
}

template <class T> void runTranspose(const Call &call) {
  call.table<T>().transpose(call.threads(), call.integer(0), call.integer(1),
                            call.integer(2), call.buffer<T>(0),
                            call.buffer<T>(1));
}

/// What the kernels of the loss share, with the integers of SOFTMAX_STATS.
template <class T>
LossArguments<T> lossArguments(const Call &call, const int64_t *integers) {
  LossArguments<T> a = {};
  a.logits = call.buffer<T>(0);
  a.labels = call.buffer<int32_t>(1);
  a.stats = call.buffer<Accumulator<T>>(2);
  a.rows = integers[0];
  a.cols = integers[1];
  int64_t globalCols = integers[2];
  a.firstColumn = integers[3] != 0 ? call.at().tp_index * a.cols : 0;
  a.validCols = std::clamp<int64_t>(globalCols - a.firstColumn, 0, a.cols);
  a.generate = call.step().mode == GRT_MODE_GENERATE;
  a.inverseTokens = call.step().inverse_tokens;
  if (!a.generate)
    for (int64_t r = 0; r < a.rows; ++r)
      if (a.labels[r] >= globalCols)
        throw CallError("label " + std::to_string(a.labels[r]) + " at row " +
                        std::to_string(r) + " is not below " +
                        std::to_string(globalCols));
  return a;
}

template <class T> void runSoftmaxStats(const Call &call) {
  call.table<T>().softmaxStats(call.threads(),
                               lossArguments<T>(call, call.integers()));
}

/// From the statistics of all shards; adds to the loss.
template <class T>
void crossEntropy(const Call &call, const LossArguments<T> &a, int32_t *labels,
                  double &loss) {
  auto stats = [&](int64_t shard, int64_t row) {
    return a.stats + 3 * (shard * a.rows + row);
  };
  for (int64_t r = 0; r < a.rows; ++r) {
    int64_t largest = 0;
    for (int64_t s = 1; s < a.shards; ++s)
      if (stats(s, r)[0] > stats(largest, r)[0])
        largest = s;
    if (a.generate) {
      labels[r] = int32_t(largest * a.cols + int64_t(stats(largest, r)[2]));
      continue;
    }
    if (labels[r] < 0)
      continue;
    double maximum = stats(largest, r)[0], sum = 0, logit = 0;
    for (int64_t s = 0; s < a.shards; ++s) {
      sum +=
          double(stats(s, r)[1]) * std::exp(double(stats(s, r)[0]) - maximum);
      logit += double(stats(s, r)[2]);
    }
    loss += maximum + std::log(sum) - logit;
  }
  if (!a.generate)
    call.table<T>().crossEntropyGrad(call.threads(), a);
}

template <class T> void runCrossEntropy(const Call &call) {
  LossArguments<T> a = lossArguments<T>(call, call.integers());
  a.dlogits = call.buffer<T>(3);
  a.shards = call.integer(4);
  double loss = 0;
  crossEntropy(call, a, call.buffer<int32_t>(1), loss);
  if (!a.generate)
    *call.buffer<double>(4) = loss;
}

template <class T> void runSoftmaxCrossEntropy(const Call &call) {
  const int64_t rows = call.integer(0), cols = call.integer(1);
  const int64_t undivided[] = {rows, cols, cols, /*sharded=*/0};
  LossArguments<T> a = lossArguments<T>(call, undivided);
  a.dlogits = call.buffer<T>(3);
  a.shards = 1;
  // So many rows that they are in the cache when they are read again, and that
  // every thread has some.
  constexpr int64_t cachedBytes = 1 << 20;
  const int64_t rowBytes = std::max<int64_t>(1, cols * int64_t(sizeof(T)));
  const int64_t block =
      std::max<int64_t>(call.threads(), cachedBytes / rowBytes);
  double loss = 0;
  for (int64_t begin = 0; begin < rows; begin += block) {
    LossArguments<T> part = a;
    part.rows = std::min(block, rows - begin);
    part.logits += begin * cols;
    part.labels += begin;
    part.stats += 3 * begin;
    part.dlogits += begin * cols;
    call.table<T>().softmaxStats(call.threads(), part);
    crossEntropy(call, part, call.buffer<int32_t>(1) + begin, loss);
  }
  if (!a.generate)
    *call.buffer<double>(4) = loss;
}

void copyRows(int64_t rows, int64_t rowBytes, int64_t sourceStride,
              int64_t targetStride, const char *source, char *target) {
  if (sourceStride == rowBytes && targetStride == rowBytes) {
    std::memcpy(target, source, size_t(rows * rowBytes));
    return;
  }
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(target + r * targetStride, source + r * sourceStride,
                size_t(rowBytes));
}

void runCopy(const Call &call) {
  copyRows(call.integer(0), call.integer(1), call.integer(2), call.integer(3),
           call.buffer<char>(0), call.buffer<char>(1));
}

template <class T> void runOwnPart(const Call &call) {
  int64_t rows = call.integer(0), parts = call.integer(1);
  int64_t bytes = call.integer(2) * int64_t(sizeof(T)), all = parts * bytes;
  int64_t offset = call.ownPart() * bytes;
  const char *x = call.buffer<char>(0);
  char *y = call.buffer<char>(1);
  if (call.integer(4) == 0) {
    copyRows(rows, bytes, all, bytes, x + offset, y);
    return;
  }
  std::memset(y, 0, size_t(rows * all));
  copyRows(rows, bytes, bytes, all, x, y + offset);
}

void runZero(const Call &call) {
  std::memset(call.buffer<char>(0), 0, call.descriptor(0).bytes);
}

template <class T> void runOptimizer(const Call &call) {
  using A = Accumulator<T>;
  const grt_step &step = call.step();
  int64_t kind = call.integer(0), shardElements = call.integer(1);
  call.checkOptimizer(kind);
  if (step.update_left_out)
    return;
  OptimizerArguments o = {};
  o.kind = grt_optimizer(kind);
  o.learningRate = step.learning_rate;
  o.beta1 = step.beta1;
  o.beta2 = step.beta2;
  o.eps = step.eps;
  o.momentum = step.momentum;
  o.clipFactor = step.clip_factor;
  o.correction1 = 1 - std::pow(step.beta1, double(step.step));
  o.correction2 = 1 - std::pow(step.beta2, double(step.step));
  T *parameter = call.buffer<T>(0);
  const A *gradient = call.buffer<A>(1);
  A *first = call.buffer<A>(2);
  A *second = first + shardElements;
  // Behind the moments, where parameters are narrower than what they round.
  A *master = o.kind == GRT_OPTIMIZER_SGD ? second : second + shardElements;
  call.forEachSegment(
      3, shardElements, [&](int64_t begin, int64_t length, int64_t decay) {
        o.weightDecay = decay ? step.weight_decay : 0;
        call.table<T>().optimize(call.threads(), o, length, parameter + begin,
                                 master + begin, gradient + begin,
                                 first + begin, second + begin);
      });
}

template <class T> void runNorm(const Call &call) {
  if (call.at().dp_index != 0)
    return;
  int64_t shardElements = call.integer(0);
  const auto *gradient = call.buffer<Accumulator<T>>(0);
  double sum = 0;
  call.forEachSegment(2, shardElements,
                      [&](int64_t begin, int64_t length, int64_t replicated) {
                        if (!replicated || call.at().tp_index == 0)
                          sum += call.table<T>().sumOfSquares(
                              call.threads(), length, gradient + begin);
                      });
  call.step().local_norm_squared += sum;
}

} // namespace

#define GRT_ALL(FUNCTION) FUNCTION<float>, FUNCTION<double>, FUNCTION<BF16>

const KernelEntry kernelEntries[GRT_KERNEL_COUNT] = {
    {GRT_ALL(runGemm)},
    {GRT_ALL(runBiasAdd)},
    {GRT_ALL(runBiasGrad)},
    {GRT_ALL(runLayerNorm)},
    {GRT_ALL(runLayerNormGrad)},
    {GRT_ALL(runGelu)},
    {GRT_ALL(runGeluGrad)},
    {GRT_ALL(runBiasGelu)},
    {GRT_ALL(runAttention)},
    {GRT_ALL(runAttention)},
    {GRT_ALL(runDropout)},
    {GRT_ALL(runDropoutAdd)},
    {GRT_ALL(runAdd)},
    {GRT_ALL(runEmbedding)},
    {GRT_ALL(runEmbeddingGrad)},
    {GRT_ALL(runPositionAdd)},
    {GRT_ALL(runPositionGrad)},
    {GRT_ALL(runSoftmaxStats)},
    {GRT_ALL(runCrossEntropy)},
    {runCopy, runCopy, runCopy},
    {runZero, runZero, runZero},
    {GRT_ALL(runOptimizer)},
    {GRT_ALL(runNorm)},
    {GRT_ALL(runScale)},
    {GRT_ALL(runAddLayerNorm)},
    {GRT_ALL(runLayerNormAddGrad)},
    {GRT_ALL(runGemmGelu)},
    {GRT_ALL(runGemmGeluGrad)},
    {GRT_ALL(runGemmBiasGrad)},
    {GRT_ALL(runRmsNorm)},
    {GRT_ALL(runRmsNormGrad)},
    {GRT_ALL(runRotary)},
    {GRT_ALL(runGatedSilu)},
    {GRT_ALL(runGatedSiluGrad)},
    {GRT_ALL(runPatches)},
    {GRT_ALL(runRelu)},
    {GRT_ALL(runReluGrad)},
    {GRT_ALL(runGatedGelu)},
    {GRT_ALL(runGatedGeluGrad)},
    {GRT_ALL(runRelativeBias)},
    {GRT_ALL(runRelativeBias)},
    {GRT_ALL(runAttention)},
    {GRT_ALL(runAttention)},
    {GRT_ALL(runWindows)},
    {GRT_ALL(runWindowAttention)},
    {GRT_ALL(runWindowAttention)},
    {GRT_ALL(runDropPath)},
    {GRT_ALL(runMean)},
    {GRT_ALL(runMean)},
    {GRT_ALL(runTranspose)},
    {GRT_ALL(runOwnPart)},
    {GRT_ALL(runSoftmaxCrossEntropy)},
};

#undef GRT_ALL

} // namespace grt::cpu
