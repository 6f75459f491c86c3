//===- dispatch.cpp - From calls of the C ABI to inner functions ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One function per kernel of the list: reads the descriptor, derives what
// depends on the rank's coordinates and on the step, checks data that comes
// from outside (tokens, labels), and calls the table of the instruction set.
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
  const bool narrow = op.buffers[kernels::Gemm::a].dtype == GRT_BF16;
  auto adds = [&](int64_t acc) { return acc == 1 || (acc == 2 && accumulate); };
  auto isNarrow = [&](int buffer) {
    return op.buffers[buffer].dtype == GRT_BF16;
  };
  switch (op.kernel) {
  case GRT_KERNEL_GEMM_GELU: {
    const auto n = intsOf<kernels::GemmGelu>(op);
    return {n.M,           n.N,   n.K,    n.transA != 0, n.transB != 0,
            /*bias=*/true, false, narrow, narrow};
  }
  case GRT_KERNEL_GEMM_GELU_GRAD: {
    const auto n = intsOf<kernels::GemmGeluGrad>(op);
    return {n.M,
            n.N,
            n.K,
            n.transA != 0,
            n.transB != 0,
            /*bias=*/false,
            false,
            narrow,
            narrow};
  }
  case GRT_KERNEL_GEMM_BIAS_GRAD: {
    const auto n = intsOf<kernels::GemmBiasGrad>(op);
    return {n.M,
            n.N,
            n.K,
            /*transA=*/true,
            false,
            false,
            adds(n.acc),
            narrow,
            isNarrow(kernels::GemmBiasGrad::c)};
  }
  default: {
    const auto n = intsOf<kernels::Gemm>(op);
    return {n.M,           n.N,           n.K,
            n.transA != 0, n.transB != 0, n.hasBias != 0,
            adds(n.acc),   narrow,        isNarrow(kernels::Gemm::c)};
  }
  }
}

int gemmScratchIndex(const grt_kernel_op &op) {
  using namespace kernels;
  // What a call lacks in front of it moves it.
  int index = op.kernel == GRT_KERNEL_GEMM
                  ? Gemm::scratch - (intsOf<Gemm>(op).hasBias == 0)
              : op.kernel == GRT_KERNEL_GEMM_GELU
                  ? GemmGelu::scratch - (intsOf<GemmGelu>(op).hasPre == 0)
              : op.kernel == GRT_KERNEL_GEMM_GELU_GRAD
                  ? int(GemmGeluGrad::scratch)
                  : int(GemmBiasGrad::scratch);
  return int64_t(op.buffer_count) > index ? index : -1;
}

uint64_t gemmScratchBytes(const grt_kernel_op &op, int threads) {
  GemmShape s = gemmShape(op, /*accumulate=*/true);
  uint32_t wide = op.buffers[kernels::Gemm::a].dtype == GRT_F64 ? 8 : 4;
  return grt_cpu_gemm_scratch_bytes(s.m, s.n, s.k, s.transA, s.transB, s.add,
                                    s.narrow ? 2 : wide,
                                    s.narrowResult ? 2 : wide, threads);
}

uint64_t attentionScratchBytes(const grt_kernel_op &op) {
  uint32_t dtype = op.buffers[kernels::Attention::q].dtype;
  bool backward = isAttentionGrad(op.kernel);
  if (isWindowAttention(op.kernel)) {
    WindowShape shape(op);
    return grt_cpu_window_thread_bytes(shape.window, shape.headDim,
                                       dtype == GRT_F64    ? 8
                                       : dtype == GRT_BF16 ? 2
                                                           : 4,
                                       backward);
  }
  // The integers of all others begin with these.
  const auto n = intsOf<kernels::Attention>(op);
  uint64_t bytes = (dtype == GRT_F64 ? sizeof(double) : sizeof(float)) *
                   uint64_t(attentionScratchElements(
                       n.Tk, n.headDim, dtype == GRT_BF16, backward));
  if (isBiasedAttention(op.kernel))
    bytes += grt_cpu_bias_scratch_bytes(n.Tq, n.Tk, dtype == GRT_BF16 ? 2 : 4,
                                        backward);
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

/// The product of a and b, which all products begin with.
template <class T>
void multiply(const Call &call, const GemmShape &shape, void *c,
              const T *bias) {
  const T *a = call.buffer<T>(kernels::Gemm::a);
  const T *b = call.buffer<T>(kernels::Gemm::b);
  if (shape.m <= 0 || shape.n <= 0)
    return;
  if (shape.m <= fewRows && !shape.transA && shape.k > 0) {
    const int threads = shape.threadsOf(call.threads());
    auto few = [&](auto gemm, auto *to) {
      gemm(threads, shape.m, shape.n, shape.k, a, b, shape.transB, to, bias,
           shape.add);
    };
    return shape.narrowResult
               ? few(call.table<T>().gemmOfFewRowsNarrow, static_cast<T *>(c))
               : few(call.table<T>().gemmOfFewRows,
                     static_cast<Accumulator<T> *>(c));
  }
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
  using K = kernels::Gemm;
  GemmShape shape = gemmShape(call.op(), call.accumulate());
  multiply<T>(call, shape, call.buffer<void>(K::c),
              call.buffer<T>(K::bias, shape.bias));
}

template <class T> void runGemmGelu(const Call &call) {
  using K = kernels::GemmGelu;
  const auto n = call.ints<K>();
  GemmShape shape = gemmShape(call.op(), call.accumulate());
  T *y = call.buffer<T>(K::y), *pre = call.buffer<T>(K::pre, n.hasPre);
  if (!pre)
    pre = y;
  multiply(call, shape, pre, call.buffer<T>(K::bias));
  call.table<T>().biasGelu(call.threads(), 1, shape.m * shape.n, pre, nullptr,
                           nullptr, y, n.approximate != 0);
}

template <class T> void runGemmGeluGrad(const Call &call) {
  using K = kernels::GemmGeluGrad;
  const auto n = call.ints<K>();
  GemmShape shape = gemmShape(call.op(), call.accumulate());
  T *c = call.buffer<T>(K::c);
  multiply<T>(call, shape, c, nullptr);
  call.table<T>().geluGrad(call.threads(), shape.m * shape.n,
                           call.buffer<T>(K::x), c, c, n.approximate != 0);
}

template <class T> void runGemmBiasGrad(const Call &call) {
  using K = kernels::GemmBiasGrad;
  GemmShape shape = gemmShape(call.op(), call.accumulate());
  multiply<T>(call, shape, call.buffer<void>(K::c), nullptr);
  call.table<T>().biasGrad(call.threads(), shape.k, shape.n,
                           call.buffer<T>(K::b),
                           call.buffer<Accumulator<T>>(K::dbias), shape.add);
}

template <class T> void runBiasAdd(const Call &call) {
  using K = kernels::BiasAdd;
  const auto n = call.ints<K>();
  call.table<T>().biasAdd(call.threads(), n.rows, n.n, call.buffer<T>(K::x),
                          call.buffer<T>(K::bias), call.buffer<T>(K::y));
}

template <class T> void runBiasGrad(const Call &call) {
  using K = kernels::BiasGrad;
  const auto n = call.ints<K>();
  const bool counts = n.ofFirstBlock == 0 || call.at().block_index == 0;
  call.table<T>().biasGrad(
      call.threads(), counts ? n.rows : 0, n.n, call.buffer<T>(K::dy),
      call.buffer<Accumulator<T>>(K::dbias), call.add(n.acc));
}

template <class T> void runLayerNorm(const Call &call) {
  using K = kernels::LayerNorm;
  const auto n = call.ints<K>();
  call.table<T>().layerNorm(
      call.threads(), n.rows, n.n, call.buffer<T>(K::x),
      call.buffer<T>(K::gamma), call.buffer<T>(K::beta), call.buffer<T>(K::y),
      call.buffer<Accumulator<T>>(K::stats), call.real(K::eps));
}

template <class T> void runCenteredNorm(const Call &call) {
  using K = kernels::CenteredNorm;
  const auto n = call.ints<K>();
  call.table<T>().layerNorm(
      call.threads(), n.rows, n.n, call.buffer<T>(K::x),
      call.buffer<T>(K::gamma), /*beta=*/nullptr, call.buffer<T>(K::y),
      call.buffer<Accumulator<T>>(K::stats), call.real(K::eps));
}

template <class T> void runCenteredNormGrad(const Call &call) {
  using K = kernels::CenteredNormGrad;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  call.table<T>().layerNormGrad(
      call.threads(), n.rows, n.n, call.buffer<T>(K::dy), call.buffer<T>(K::x),
      call.buffer<A>(K::stats), call.buffer<T>(K::gamma), nullptr,
      call.buffer<T>(K::dx), call.buffer<A>(K::dgamma), /*dbeta=*/nullptr,
      call.add(n.acc));
}

template <class T> void runLayerNormGrad(const Call &call) {
  using K = kernels::LayerNormGrad;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  call.table<T>().layerNormGrad(
      call.threads(), n.rows, n.n, call.buffer<T>(K::dy), call.buffer<T>(K::x),
      call.buffer<A>(K::stats), call.buffer<T>(K::gamma), nullptr,
      call.buffer<T>(K::dx), call.buffer<A>(K::dgamma),
      call.buffer<A>(K::dbeta), call.add(n.acc));
}

template <class T> void runLayerNormAddGrad(const Call &call) {
  using K = kernels::LayerNormAddGrad;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  call.table<T>().layerNormGrad(
      call.threads(), n.rows, n.n, call.buffer<T>(K::dy), call.buffer<T>(K::x),
      call.buffer<A>(K::stats), call.buffer<T>(K::gamma),
      call.buffer<T>(K::residual), call.buffer<T>(K::dx),
      call.buffer<A>(K::dgamma), call.buffer<A>(K::dbeta), call.add(n.acc));
}

template <class T> void runRmsNorm(const Call &call) {
  using K = kernels::RmsNorm;
  const auto n = call.ints<K>();
  call.table<T>().rmsNorm(call.threads(), n.rows, n.n, call.buffer<T>(K::x),
                          call.buffer<T>(K::gamma), call.buffer<T>(K::y),
                          call.buffer<Accumulator<T>>(K::stats),
                          n.unitOffset != 0, call.real(K::eps));
}

template <class T> void runRmsNormGrad(const Call &call) {
  using K = kernels::RmsNormGrad;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  call.table<T>().rmsNormGrad(
      call.threads(), n.rows, n.n, call.buffer<T>(K::dy), call.buffer<T>(K::x),
      call.buffer<A>(K::stats), call.buffer<T>(K::gamma), call.buffer<T>(K::dx),
      call.buffer<A>(K::dgamma), call.add(n.acc), n.unitOffset != 0);
}

template <class T> void runRotary(const Call &call) {
  using K = kernels::Rotary;
  const auto n = call.ints<K>();
  call.checkFrequencies(n.pairs);
  RotaryArguments a = {};
  a.samples = n.samples;
  a.positions = n.T;
  a.heads = n.heads;
  a.headDim = n.headDim;
  a.inverse = n.inverse != 0;
  a.interleaved = n.interleaved != 0;
  a.pairs = n.pairs;
  a.factor = call.real(K::factor);
  a.frequencies = call.op().reals + K::frequency;
  const T *x = call.buffer<T>(K::x);
  T *y = call.buffer<T>(K::y);
  a.each = call.buffer<const int32_t>(K::positions, n.hasPositions);
  if (n.length == 0)
    return call.table<T>().rotary(call.threads(), a, x, y);
  call.forEachRowRun(n.T, n.length, n.balanced, [&](const auto &run) {
    a.positions = run.count;
    a.firstPosition = run.first;
    const int64_t place = run.row * n.heads * n.headDim;
    call.table<T>().rotary(call.threads(), a, x + place, y + place);
  });
}

template <class T> void runGatedSilu(const Call &call) {
  using K = kernels::GatedSilu;
  const auto n = call.ints<K>();
  call.table<T>().gatedSilu(call.threads(), n.n, call.buffer<T>(K::gate),
                            call.buffer<T>(K::up), call.buffer<T>(K::y));
}

template <class T> void runGatedSiluGrad(const Call &call) {
  using K = kernels::GatedSiluGrad;
  const auto n = call.ints<K>();
  call.table<T>().gatedSiluGrad(
      call.threads(), n.n, call.buffer<T>(K::gate), call.buffer<T>(K::up),
      call.buffer<T>(K::dy), call.buffer<T>(K::dgate), call.buffer<T>(K::dup));
}

template <class T> void runRelu(const Call &call) {
  using K = kernels::Relu;
  const auto n = call.ints<K>();
  call.table<T>().relu(call.threads(), n.n, call.buffer<T>(K::x),
                       call.buffer<T>(K::y));
}

template <class T> void runReluGrad(const Call &call) {
  using K = kernels::ReluGrad;
  const auto n = call.ints<K>();
  call.table<T>().reluGrad(call.threads(), n.n, call.buffer<T>(K::y),
                           call.buffer<T>(K::dy), call.buffer<T>(K::dx));
}

template <class T> void runSoftCap(const Call &call) {
  using K = kernels::SoftCap;
  call.checkCap(call.real(K::cap));
  call.table<T>().softCap(call.threads(), call.ints<K>().n,
                          call.buffer<T>(K::x), call.buffer<T>(K::y),
                          call.real(K::cap));
}

template <class T> void runSoftCapGrad(const Call &call) {
  using K = kernels::SoftCapGrad;
  call.checkCap(call.real(K::cap));
  call.table<T>().softCapGrad(call.threads(), call.ints<K>().n,
                              call.buffer<T>(K::y), call.buffer<T>(K::dy),
                              call.buffer<T>(K::dx), call.real(K::cap));
}

template <class T> void runGatedGelu(const Call &call) {
  using K = kernels::GatedGelu;
  const auto n = call.ints<K>();
  call.table<T>().gatedGelu(call.threads(), n.n, call.buffer<T>(K::gate),
                            call.buffer<T>(K::up), call.buffer<T>(K::y));
}

template <class T> void runGatedGeluGrad(const Call &call) {
  using K = kernels::GatedGeluGrad;
  const auto n = call.ints<K>();
  call.table<T>().gatedGeluGrad(
      call.threads(), n.n, call.buffer<T>(K::gate), call.buffer<T>(K::up),
      call.buffer<T>(K::dy), call.buffer<T>(K::dgate), call.buffer<T>(K::dup));
}

template <class Ints> RelativeBuckets bucketsOf(const Ints &n) {
  return {n.buckets, n.maxDistance, n.bidirectional != 0};
}

template <class T> void runRelativeBias(const Call &call) {
  using K = kernels::RelativeBias;
  const auto n = call.ints<K>();
  const RelativeBuckets rule = bucketsOf(n);
  RelativeBiasArguments a = {n.samples, n.heads, n.T, n.buckets, &rule};
  call.table<T>().relativeBias(call.threads(), a, call.buffer<T>(K::table),
                               call.buffer<T>(K::bias));
}

template <class T> void runRelativeBiasGrad(const Call &call) {
  using K = kernels::RelativeBiasGrad;
  const auto n = call.ints<K>();
  const RelativeBuckets rule = bucketsOf(n);
  RelativeBiasArguments a = {n.samples, n.heads, n.T, n.buckets, &rule};
  call.table<T>().relativeBiasGrad(call.threads(), a, call.buffer<T>(K::dbias),
                                   call.buffer<Accumulator<T>>(K::dtable),
                                   call.add(n.acc));
}

template <class T> void runGelu(const Call &call) {
  using K = kernels::Gelu;
  const auto n = call.ints<K>();
  call.table<T>().biasGelu(call.threads(), 1, n.n, call.buffer<T>(K::x),
                           nullptr, nullptr, call.buffer<T>(K::y),
                           n.approximate != 0);
}

template <class T> void runGeluGrad(const Call &call) {
  using K = kernels::GeluGrad;
  const auto n = call.ints<K>();
  call.table<T>().geluGrad(call.threads(), n.n, call.buffer<T>(K::x),
                           call.buffer<T>(K::dy), call.buffer<T>(K::dx),
                           n.approximate != 0);
}

template <class T> void runBiasGelu(const Call &call) {
  using K = kernels::BiasGelu;
  const auto n = call.ints<K>();
  call.table<T>().biasGelu(call.threads(), n.rows, n.n, call.buffer<T>(K::x),
                           call.buffer<T>(K::bias), call.buffer<T>(K::pre),
                           call.buffer<T>(K::y), n.approximate != 0);
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
template <class K, class T>
AttentionArguments<T> attentionArguments(const Call &call) {
  AttentionArguments<T> a = {};
  a.q = call.buffer<T>(K::q);
  a.k = call.buffer<T>(K::k);
  a.v = call.buffer<T>(K::v);
  a.o = call.buffer<T>(K::o);
  a.lse = call.buffer<Accumulator<T>>(K::lse);
  if constexpr (isBackward<K>) {
    a.dout = call.buffer<T>(K::dout);
    a.dq = call.buffer<T>(K::dq);
    a.dk = call.buffer<T>(K::dk);
    a.dv = call.buffer<T>(K::dv);
  }
  a.scale = call.real(K::scale);
  return a;
}

/// Calls the kernel with as many workers as there is scratch for behind its
/// first `taken` bytes.
template <class K, class T>
void shareOutAttention(const Call &call, AttentionArguments<T> &a,
                       uint64_t taken) {
  using A = Accumulator<T>;
  uint64_t bytes = attentionScratchBytes(call.op());
  call.checkScratch(K::scratch, taken + bytes);
  constexpr int mostWorkers = 64;
  A *scratch[mostWorkers];
  a.workers = int(
      std::min<uint64_t>(uint64_t(std::min(call.threads(), mostWorkers)),
                         (call.descriptor(K::scratch).bytes - taken) / bytes));
  for (int worker = 0; worker < a.workers; ++worker)
    scratch[worker] = reinterpret_cast<A *>(call.buffer<char>(K::scratch) +
                                            taken + uint64_t(worker) * bytes);
  a.scratch = scratch;
  if constexpr (isBackward<K>)
    call.table<T>().attentionGrad(a);
  else
    call.table<T>().attention(a);
}

/// Sets the rows of a gradient to zero, which stand `stride` elements apart.
template <class T>
void zeroRows(T *first, int64_t rows, int64_t width, int64_t stride) {
  for (int64_t row = 0; row < rows; ++row)
    std::memset(first + row * stride, 0, size_t(width) * sizeof(T));
}

/// Attention of a block of queries: of each sample, those that the block has
/// see all its keys. Gradients of keys that no query of the block sees are
/// zero.
template <class K, class T>
void blockAttention(const Call &call, const AttentionArguments<T> &a) {
  const auto n = call.ints<K>();
  const int64_t samples = call.samplesOfBlocks(n.Tq, n.length);
  const int64_t keys = n.Tk / samples;
  const bool packed = n.qStride > n.heads * n.headDim;
  if (n.Tk % samples != 0 || (packed && keys != n.length))
    throw CallError(std::to_string(n.Tk) + " keys must be those of " +
                    std::to_string(samples) + " samples, as many as queries " +
                    "where they are packed");
  if constexpr (isBackward<K>) {
    zeroRows(a.dk, n.Tk, n.kvHeads * n.headDim, n.kStride);
    zeroRows(a.dv, n.Tk, n.kvHeads * n.headDim, n.vStride);
    if (packed)
      zeroRows(a.dq, n.Tk, n.heads * n.headDim, n.qStride);
  }
  call.forEachRowRun(n.Tq, n.length, n.balanced, [&](const auto &run) {
    AttentionArguments<T> part = a;
    const int64_t query = packed ? run.sample * n.length + run.first : run.row;
    const int64_t key = run.sample * keys, out = run.row * n.heads * n.headDim;
    part.q += query * n.qStride;
    part.k += key * n.kStride;
    part.v += key * n.vStride;
    part.o += out;
    part.lse += run.row * n.heads;
    if (part.mask)
      part.mask += key;
    if constexpr (isBackward<K>) {
      part.dout += out;
      part.dq += query * n.qStride;
      part.dk += key * n.kStride;
      part.dv += key * n.vStride;
    }
    part.queryRows = run.count;
    part.keyRows = keys;
    part.firstSample += run.sample;
    part.firstQuery = run.first;
    part.globalQueries = n.length;
    part.diagonal = keys - n.length + run.first;
    // A balanced block has two runs of one sample.
    part.addsKeys = true;
    shareOutAttention<K>(call, part, 0);
  });
}

template <class K, class T> void attention(const Call &call) {
  const auto n = call.ints<K>();
  AttentionArguments<T> a = attentionArguments<K, T>(call);
  a.samples = n.samples;
  a.queryRows = n.Tq;
  a.keyRows = n.Tk;
  a.heads = n.heads;
  a.kvHeads = n.kvHeads;
  a.headDim = n.headDim;
  a.qStride = n.qStride;
  a.kStride = n.kStride;
  a.vStride = n.vStride;
  a.causal = n.causal != 0;
  a.window = n.window;
  a.mask = call.buffer<const int32_t>(K::mask, n.hasMask);
  // It stands where the mask would, unless both are there.
  a.starts =
      call.buffer<const int32_t>(K::starts - (n.hasMask == 0), n.hasStarts);
  DropoutStream stream;
  if (dropoutStream(call, call.real(K::dropout), n.opIndex, stream))
    a.dropout = &stream;
  a.firstSample = call.at().first_sample;
  a.firstHead = call.at().tp_index * a.heads;
  a.globalHeads = call.at().tp_size * a.heads;
  a.globalQueries = a.queryRows;
  a.diagonal = a.keyRows - a.queryRows;
  if constexpr (isBiased<K>) {
    call.checkBiasHeads(n.biasHeads, a.globalHeads);
    a.bias = call.buffer<T>(K::bias);
    if constexpr (isBackward<K>)
      a.dbias = call.buffer<T>(K::dbias);
  } else if constexpr (isShaped<K>) {
    a.cap = call.real(K::cap);
    a.distance = call.real(K::distance);
    call.checkShape(a.cap, a.distance);
  } else if (n.length > 0) {
    return blockAttention<K>(call, a);
  }
  shareOutAttention<K>(call, a, 0);
}

template <class T> void runAttention(const Call &call) {
  attention<kernels::Attention, T>(call);
}
template <class T> void runAttentionGrad(const Call &call) {
  attention<kernels::AttentionGrad, T>(call);
}
template <class T> void runBiasedAttention(const Call &call) {
  attention<kernels::BiasedAttention, T>(call);
}
template <class T> void runBiasedAttentionGrad(const Call &call) {
  attention<kernels::BiasedAttentionGrad, T>(call);
}
template <class T> void runShapedAttention(const Call &call) {
  attention<kernels::ShapedAttention, T>(call);
}
template <class T> void runShapedAttentionGrad(const Call &call) {
  attention<kernels::ShapedAttentionGrad, T>(call);
}

template <class K, class T> void windowAttention(const Call &call) {
  using A = Accumulator<T>;
  const WindowShape shape(call.op());
  AttentionArguments<T> a = attentionArguments<K, T>(call);
  a.samples = shape.windows();
  a.queryRows = a.keyRows = shape.positions();
  a.heads = a.kvHeads = shape.heads;
  a.headDim = shape.headDim;
  a.qStride = a.kStride = a.vStride = shape.heads * shape.headDim;
  DropoutStream stream;
  if (dropoutStream(call, call.real(K::dropout), shape.opIndex, stream))
    a.dropout = &stream;
  a.firstSample = call.at().first_sample * shape.perSample();
  a.firstHead = call.at().tp_index * a.heads;
  a.globalHeads = call.at().tp_size * a.heads;
  a.globalQueries = a.queryRows;
  WindowBias<T> bias = {};
  bias.down = shape.down;
  bias.across = shape.across;
  bias.window = shape.window;
  bias.shift = shape.shift;
  bias.table = call.buffer<T>(K::table);
  uint64_t taken = 0;
  if constexpr (isBackward<K>) {
    bias.dtable = call.buffer<A>(K::dtable);
    bias.add = call.add(call.ints<K>().acc);
    bias.sums = call.buffer<A>(K::scratch);
    bias.parts = std::min<int64_t>(a.samples, GRT_CPU_WINDOW_PARTS);
    taken = grt_cpu_window_sums_bytes(a.samples, shape.window, shape.heads,
                                      sizeof(T));
  }
  a.windows = &bias;
  shareOutAttention<K>(call, a, taken);
}

template <class T> void runWindowAttention(const Call &call) {
  windowAttention<kernels::WindowAttention, T>(call);
}
template <class T> void runWindowAttentionGrad(const Call &call) {
  windowAttention<kernels::WindowAttentionGrad, T>(call);
}

template <class T> void runCachedAttention(const Call &call) {
  using K = kernels::CachedAttention;
  const auto n = call.ints<K>();
  CachedAttentionArguments<T> a = {};
  a.samples = n.samples;
  a.rows = n.rows;
  a.length = n.length;
  a.heads = n.heads;
  a.kvHeads = n.kvHeads;
  a.headDim = n.headDim;
  a.qStride = n.qStride;
  a.kStride = n.kStride;
  a.vStride = n.vStride;
  a.window = n.window;
  a.scale = call.real(K::scale);
  a.cap = call.real(K::cap);
  call.checkShape(a.cap, /*distance=*/0);
  a.q = call.buffer<T>(K::q);
  a.k = call.buffer<T>(K::k);
  a.v = call.buffer<T>(K::v);
  a.keys = call.buffer<T>(K::keys);
  a.values = call.buffer<T>(K::values);
  a.row = call.buffer<int32_t>(K::row);
  a.position = call.buffer<int32_t>(K::position);
  a.o = call.buffer<T>(K::o);
  call.checkPlaces(a.row, a.position, n.samples, n.rows,
                   n.window > 0 ? INT32_MAX : n.length);
  call.table<T>().cachedAttention(call.threads(), a);
}

template <class K, class T> void dropout(const Call &call, const T *residual) {
  const auto n = call.ints<K>();
  DropoutArguments a = {};
  a.rows = n.samples * n.rowsPerSample;
  a.cols = n.cols;
  const T *x = call.buffer<T>(K::x);
  T *y = call.buffer<T>(K::y);
  const int64_t elements = a.rows * a.cols;
  if (!dropoutStream(call, call.real(K::p), n.opIndex, a.stream)) {
    if (residual)
      call.table<T>().add(call.threads(), elements, x, residual, y);
    else if (x != y)
      std::memmove(y, x, size_t(elements) * sizeof(T));
    return;
  }
  a.firstColumn = n.colSharded != 0 ? uint64_t(call.at().tp_index * a.cols) : 0;
  call.forEachDropoutPiece(n.samples, n.rowsPerSample, n.length, n.balanced,
                           [&](int64_t row, int64_t count, uint64_t number) {
                             a.rows = count;
                             a.firstRow = number;
                             const int64_t place = row * a.cols;
                             call.table<T>().dropout(
                                 call.threads(), a, x + place,
                                 residual ? residual + place : nullptr,
                                 y + place);
                           });
}

template <class T> void runDropout(const Call &call) {
  dropout<kernels::Dropout, T>(call, nullptr);
}
template <class T> void runDropoutAdd(const Call &call) {
  using K = kernels::DropoutAdd;
  dropout<K, T>(call, call.buffer<T>(K::residual));
}

template <class T> void runAddLayerNorm(const Call &call) {
  using K = kernels::AddLayerNorm;
  const auto n = call.ints<K>();
  int64_t rowsPerSample = n.rowsPerSample;
  DropoutArguments a = {};
  a.cols = n.n;
  bool drops = dropoutStream(call, call.real(K::p), n.opIndex, a.stream);
  call.forEachDropoutPiece(
      n.samples, rowsPerSample, n.length, n.balanced,
      [&](int64_t row, int64_t count, uint64_t number) {
        a.rows = count;
        a.firstRow = number;
        const int64_t place = row * a.cols;
        call.table<T>().addLayerNorm(
            call.threads(), a.rows, a.cols, drops ? &a : nullptr,
            call.buffer<T>(K::x) + place, call.buffer<T>(K::residual) + place,
            call.buffer<T>(K::gamma), call.buffer<T>(K::beta),
            call.buffer<T>(K::sum) + place, call.buffer<T>(K::y) + place,
            call.buffer<Accumulator<T>>(K::stats) + 2 * row, call.real(K::eps));
      });
}

template <class T> void runAdd(const Call &call) {
  using K = kernels::Add;
  const auto n = call.ints<K>();
  call.table<T>().add(call.threads(), n.n, call.buffer<T>(K::a),
                      call.buffer<T>(K::b), call.buffer<T>(K::y));
}

template <class T> void runScale(const Call &call) {
  using K = kernels::Scale;
  const auto n = call.ints<K>();
  call.table<T>().scale(call.threads(), n.n, call.buffer<T>(K::x),
                        call.buffer<T>(K::y), call.real(K::factor));
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
  using K = kernels::Embedding;
  const auto n = call.ints<K>();
  const int32_t *tokens = call.buffer<int32_t>(K::tokens);
  TableSlice slice =
      tableSlice(call, tokens, n.rows, n.localRows, n.sharded != 0);
  call.table<T>().embedding(call.threads(), n.rows, n.width, slice.first,
                            slice.localRows, tokens, call.buffer<T>(K::table),
                            call.buffer<T>(K::y));
}

template <class T> void runEmbeddingGrad(const Call &call) {
  using K = kernels::EmbeddingGrad;
  const auto n = call.ints<K>();
  call.forEachPieceOf(n.rows, n.tokenRows, n.balanced, [&](const auto &piece) {
    const int32_t *tokens = call.buffer<int32_t>(K::tokens) + piece.number;
    TableSlice slice =
        tableSlice(call, tokens, piece.count, n.localRows, n.sharded != 0);
    call.table<T>().embeddingGrad(
        call.threads(), piece.count, n.width, slice.first, slice.localRows,
        n.padding, tokens, call.buffer<T>(K::dy) + piece.row * n.width,
        call.buffer<Accumulator<T>>(K::dtable),
        piece.row > 0 || call.add(n.acc));
  });
}

template <class T> void runPositionAdd(const Call &call) {
  using K = kernels::PositionAdd;
  const auto n = call.ints<K>();
  const T *x = call.buffer<T>(K::x);
  const T *table = call.buffer<T>(K::table) + n.first * n.width;
  T *y = call.buffer<T>(K::y);
  if (n.length == 0)
    return call.table<T>().positionAdd(
        call.threads(), n.samples, n.T, n.width,
        call.buffer<const int32_t>(K::starts, n.hasStarts), x, table, y);
  call.forEachRowRun(n.T, n.length, n.balanced, [&](const auto &run) {
    call.table<T>().positionAdd(
        call.threads(), /*samples=*/1, run.count, n.width, /*starts=*/nullptr,
        x + run.row * n.width, table + run.first * n.width,
        y + run.row * n.width);
  });
}

template <class T> void runPositionGrad(const Call &call) {
  using K = kernels::PositionGrad;
  const auto n = call.ints<K>();
  auto *dtable = call.buffer<Accumulator<T>>(K::dtable);
  const int64_t before = n.first * n.width;
  if (!call.add(n.acc))
    std::fill(dtable, dtable + before, Accumulator<T>(0));
  const T *dy = call.buffer<T>(K::dy);
  if (n.length == 0)
    return call.table<T>().positionGrad(
        call.threads(), n.samples, n.T, n.width, n.tableRows - n.first,
        call.buffer<const int32_t>(K::starts, n.hasStarts), dy, dtable + before,
        call.add(n.acc));
  if (!call.add(n.acc))
    std::fill(dtable + before, dtable + n.tableRows * n.width,
              Accumulator<T>(0));
  call.forEachRowRun(n.T, n.length, n.balanced, [&](const auto &run) {
    const int64_t first = n.first + run.first;
    call.table<T>().positionGrad(call.threads(), /*samples=*/1, run.count,
                                 n.width, n.tableRows - first,
                                 /*starts=*/nullptr, dy + run.row * n.width,
                                 dtable + first * n.width, /*add=*/true);
  });
}

template <class T> void runPatches(const Call &call) {
  using K = kernels::Patches;
  const auto n = call.ints<K>();
  PatchArguments a = {n.samples,   n.channels,  n.rows,       n.cols,
                      n.patchRows, n.patchCols, n.padded != 0};
  call.table<T>().patches(call.threads(), a, call.buffer<T>(K::images),
                          call.buffer<T>(K::y));
}

template <class T> void runWindows(const Call &call) {
  using K = kernels::Windows;
  const auto n = call.ints<K>();
  WindowsArguments a = {n.samples, n.rows,  n.cols,       n.width,
                        n.window,  n.shift, n.merge != 0, n.join != 0};
  call.table<T>().windows(call.threads(), a, call.buffer<T>(K::x),
                          call.buffer<T>(K::y));
}

template <class T> void runDropPath(const Call &call) {
  using K = kernels::DropPath;
  const auto n = call.ints<K>();
  DropPathArguments a = {};
  a.samples = n.samples;
  a.elements = n.elementsPerSample;
  a.firstSample = uint64_t(call.at().first_sample);
  const T *x = call.buffer<T>(K::x);
  T *y = call.buffer<T>(K::y);
  if (dropoutStream(call, call.dropPathProbability(), n.opIndex, a.stream))
    call.table<T>().dropPath(call.threads(), a, x, y);
  else if (x != y)
    std::memmove(y, x, size_t(a.samples * a.elements) * sizeof(T));
}

template <class T> void runMean(const Call &call) {
  using K = kernels::Mean;
  const auto n = call.ints<K>();
  call.table<T>().mean(call.threads(), {n.samples, n.T, n.width},
                       call.buffer<T>(K::x), call.buffer<T>(K::y));
}

template <class T> void runMeanGrad(const Call &call) {
  using K = kernels::MeanGrad;
  const auto n = call.ints<K>();
  call.table<T>().meanGrad(call.threads(), {n.samples, n.T, n.width},
                           call.buffer<T>(K::dy), call.buffer<T>(K::dx));
}

template <class T> void runTranspose(const Call &call) {
  using K = kernels::Transpose;
  const auto n = call.ints<K>();
  call.table<T>().transpose(call.threads(), n.count, n.rows, n.cols,
                            call.buffer<T>(K::x), call.buffer<T>(K::y));
}

/// Arguments that all kernels of the loss have, for a piece of their rows. The
/// vocabulary is whole unless the kernel says otherwise.
template <class K, class T>
LossArguments<T> lossArguments(const Call &call, const Call::RowPiece &piece) {
  const auto n = call.ints<K>();
  LossArguments<T> a = {};
  a.generate = call.step().mode == GRT_MODE_GENERATE;
  Call::checkGeneration(n.labelRows, a.generate);
  constexpr bool regularized =
      std::is_same_v<K, kernels::RegularizedStats> ||
      std::is_same_v<K, kernels::RegularizedCrossEntropy>;
  a.width = regularized ? 4 : 3;
  if constexpr (std::is_same_v<K, kernels::SoftmaxCrossEntropy>) {
    a.cols = a.globalCols = n.cols;
  } else {
    a.cols = n.localCols;
    a.globalCols = n.globalCols;
    a.firstColumn = n.sharded != 0 ? call.at().tp_index * a.cols : 0;
  }
  a.logits = call.buffer<T>(K::logits) + piece.row * a.cols;
  a.labels = call.buffer<int32_t>(K::labels) + piece.number;
  a.stats = call.buffer<Accumulator<T>>(K::stats) + a.width * piece.row;
  a.rows = piece.count;
  a.statsRows = n.rows;
  if constexpr (requires { K::dlogits; })
    a.dlogits = call.buffer<T>(K::dlogits) + piece.row * a.cols;
  const int64_t globalCols = a.globalCols;
  a.validCols = std::clamp<int64_t>(globalCols - a.firstColumn, 0, a.cols);
  a.inverseTokens = call.step().inverse_tokens;
  if (!a.generate)
    for (int64_t r = 0; r < a.rows; ++r)
      if (a.labels[r] >= globalCols)
        throw CallError("label " + std::to_string(a.labels[r]) + " at row " +
                        std::to_string(r) + " is not below " +
                        std::to_string(globalCols));
  return a;
}

/// Row statistics of three values or, regularized, of four.
template <class K, class T> void runStats(const Call &call) {
  const auto n = call.ints<K>();
  call.forEachPieceOf(n.rows, n.labelRows, n.balanced,
                      [&](const Call::RowPiece &piece) {
                        call.table<T>().softmaxStats(
                            call.threads(), lossArguments<K, T>(call, piece));
                      });
}

template <class T> void runSoftmaxStats(const Call &call) {
  runStats<kernels::SoftmaxStats, T>(call);
}

template <class T> void runRegularizedStats(const Call &call) {
  runStats<kernels::RegularizedStats, T>(call);
}

/// From the statistics of all shards; adds to the loss and, with statistics of
/// four values, to the sum of squares of the logarithms of all exponentials.
template <class T>
void crossEntropy(const Call &call, const LossArguments<T> &a, int32_t *labels,
                  double &loss, double *squares = nullptr) {
  auto stats = [&](int64_t shard, int64_t row) {
    return a.stats + a.width * (shard * a.statsRows + row);
  };
  const bool smooths = a.smoothing != 0;
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
    double maximum = stats(largest, r)[0], sum = 0, logit = 0, all = 0;
    for (int64_t s = 0; s < a.shards; ++s) {
      sum +=
          double(stats(s, r)[1]) * std::exp(double(stats(s, r)[0]) - maximum);
      logit += double(stats(s, r)[2]);
      if (smooths)
        all += double(stats(s, r)[3]);
    }
    if (smooths)
      logit =
          (1 - a.smoothing) * logit + a.smoothing / double(a.globalCols) * all;
    loss += maximum + std::log(sum) - logit;
    if (squares) {
      const double logSum = maximum + std::log(sum);
      *squares += logSum * logSum;
    }
  }
  if (!a.generate)
    call.table<T>().crossEntropyGrad(call.threads(), a);
}

template <class T> void runCrossEntropy(const Call &call) {
  using K = kernels::CrossEntropy;
  const auto n = call.ints<K>();
  double loss = 0;
  call.forEachPieceOf(
      n.rows, n.labelRows, n.balanced, [&](const Call::RowPiece &piece) {
        LossArguments<T> a = lossArguments<K, T>(call, piece);
        a.shards = n.shards;
        crossEntropy(call, a, call.buffer<int32_t>(K::labels) + piece.number,
                     loss);
      });
  if (call.step().mode != GRT_MODE_GENERATE)
    *call.buffer<double>(K::loss) = loss;
}

template <class T> void runRegularizedCrossEntropy(const Call &call) {
  using K = kernels::RegularizedCrossEntropy;
  const auto n = call.ints<K>();
  call.checkLossTerms(call.real(K::smoothing), call.real(K::zLoss));
  double losses[2] = {};
  call.forEachPieceOf(
      n.rows, n.labelRows, n.balanced, [&](const Call::RowPiece &piece) {
        LossArguments<T> a = lossArguments<K, T>(call, piece);
        if (call.step().mode == GRT_MODE_TRAIN)
          a.smoothing = call.real(K::smoothing);
        a.zLoss = call.real(K::zLoss);
        a.shards = n.shards;
        crossEntropy(call, a, call.buffer<int32_t>(K::labels) + piece.number,
                     losses[0], &losses[1]);
      });
  if (call.step().mode != GRT_MODE_GENERATE)
    std::copy_n(losses, 2, call.buffer<double>(K::loss));
}

template <class T> void runSoftmaxCrossEntropy(const Call &call) {
  using K = kernels::SoftmaxCrossEntropy;
  const auto n = call.ints<K>();
  const int64_t cols = n.cols;
  // So many rows that they are in the cache when they are read again, and that
  // every thread has some.
  constexpr int64_t cachedBytes = 1 << 20;
  const int64_t rowBytes = std::max<int64_t>(1, cols * int64_t(sizeof(T)));
  const int64_t block =
      std::max<int64_t>(call.threads(), cachedBytes / rowBytes);
  double loss = 0;
  call.forEachPieceOf(
      n.rows, n.labelRows, n.balanced, [&](const Call::RowPiece &piece) {
        LossArguments<T> a = lossArguments<K, T>(call, piece);
        a.shards = 1;
        int32_t *labels = call.buffer<int32_t>(K::labels) + piece.number;
        for (int64_t begin = 0; begin < piece.count; begin += block) {
          LossArguments<T> part = a;
          part.rows = std::min(block, piece.count - begin);
          part.logits += begin * cols;
          part.labels += begin;
          part.stats += 3 * begin;
          part.dlogits += begin * cols;
          call.table<T>().softmaxStats(call.threads(), part);
          crossEntropy(call, part, labels + begin, loss);
        }
      });
  if (call.step().mode != GRT_MODE_GENERATE)
    *call.buffer<double>(K::loss) = loss;
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

template <class> void runCopy(const Call &call) {
  using K = kernels::Copy;
  const auto n = call.ints<K>();
  copyRows(n.rows, n.rowBytes, n.srcStrideBytes, n.dstStrideBytes,
           call.buffer<char>(K::src), call.buffer<char>(K::dst));
}

template <class T> void runOwnPart(const Call &call) {
  using K = kernels::OwnPart;
  const auto n = call.ints<K>();
  int64_t rows = n.rows, parts = n.parts;
  int64_t bytes = n.partElements * int64_t(sizeof(T)), all = parts * bytes;
  int64_t offset = call.ownPart(parts, n.ranks, n.ofBlocks) * bytes;
  const char *x = call.buffer<char>(K::x);
  char *y = call.buffer<char>(K::y);
  if (n.back == 0) {
    copyRows(rows, bytes, all, bytes, x + offset, y);
    return;
  }
  std::memset(y, 0, size_t(rows * all));
  copyRows(rows, bytes, bytes, all, x, y + offset);
}

template <class> void runZero(const Call &call) {
  using K = kernels::Zero;
  std::memset(call.buffer<char>(K::dst), 0, call.descriptor(K::dst).bytes);
}

template <class T> void runOptimizer(const Call &call) {
  using K = kernels::Optimizer;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  const grt_step &step = call.step();
  int64_t kind = n.optimizer, shardElements = n.shardElements;
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
  T *parameter = call.buffer<T>(K::parameter);
  const A *gradient = call.buffer<A>(K::gradient);
  A *first = call.buffer<A>(K::state);
  A *second = first + shardElements;
  // Behind the moments, where parameters are narrower than what they round.
  A *master = o.kind == GRT_OPTIMIZER_SGD ? second : second + shardElements;
  call.forEachSegment<K>([&](int64_t begin, int64_t length, int64_t decay) {
    o.weightDecay = decay ? step.weight_decay : 0;
    call.table<T>().optimize(call.threads(), o, length, parameter + begin,
                             master + begin, gradient + begin, first + begin,
                             second + begin);
  });
}

template <class T> void runNorm(const Call &call) {
  using K = kernels::Norm;
  if (call.at().dp_index != 0)
    return;
  const auto *gradient = call.buffer<Accumulator<T>>(K::gradient);
  double sum = 0;
  call.forEachSegment<K>(
      [&](int64_t begin, int64_t length, int64_t replicated) {
        if (!replicated || call.at().tp_index == 0)
          sum += call.table<T>().sumOfSquares(call.threads(), length,
                                              gradient + begin);
      });
  call.step().local_norm_squared += sum;
}

} // namespace

const KernelEntry kernelEntries[GRT_KERNEL_COUNT] = {
#define GRT_KERNEL(NAME, Name, ...)                                            \
  {run##Name<float>, run##Name<double>, run##Name<BF16>},
#include GRT_KERNEL_LIST
};

} // namespace grt::cpu
