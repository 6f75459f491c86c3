//===- dispatch.cpp - From calls of the C ABI to kernels ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One function per kernel of the list: reads the descriptor and derives what
// depends on the rank's coordinates. Buffers and the step block are the
// device's, so what depends on their contents is the kernels' to find out.
//
//===----------------------------------------------------------------------===//

#include "dispatch.h"
#include "../common/attention.h"
#include "call.h"

#include "grt/cuda_bounds.h"

#include <algorithm>
#include <vector>

namespace grt::cuda {

template <class T> void runBiasAdd(const Call &call) {
  using K = kernels::BiasAdd;
  const auto n = call.ints<K>();
  biasAdd(call.queue(), n.rows, n.n, call.buffer<T>(K::x),
          call.buffer<T>(K::bias), call.buffer<T>(K::y));
}

template <class T> void runBiasGrad(const Call &call) {
  using K = kernels::BiasGrad;
  const auto n = call.ints<K>();
  const bool counts = n.ofFirstBlock == 0 || call.at().block_index == 0;
  biasGrad<T>(call.queue(), counts ? n.rows : 0, n.n, call.buffer<T>(K::dy),
              call.buffer<Accumulator<T>>(K::dbias), call.add(n.acc));
}

template <class T> void runLayerNorm(const Call &call) {
  using K = kernels::LayerNorm;
  const auto n = call.ints<K>();
  layerNorm<T>(call.queue(), n.rows, n.n, call.buffer<T>(K::x),
               call.buffer<T>(K::gamma), call.buffer<T>(K::beta),
               call.buffer<T>(K::y), call.buffer<Accumulator<T>>(K::stats),
               call.real(K::eps));
}

template <class T> void runPlainNorm(const Call &call) {
  using K = kernels::PlainNorm;
  const auto n = call.ints<K>();
  plainNorm<T>(call.queue(), n.rows, n.n, call.buffer<T>(K::x),
               call.buffer<T>(K::y), call.buffer<Accumulator<T>>(K::stats),
               call.real(K::eps));
}

template <class T> void runPlainNormGrad(const Call &call) {
  using K = kernels::PlainNormGrad;
  const auto n = call.ints<K>();
  plainNormGrad<T>(call.queue(), n.rows, n.n, call.buffer<T>(K::dy),
                   call.buffer<T>(K::x), call.buffer<Accumulator<T>>(K::stats),
                   call.buffer<T>(K::dx));
}

template <class T> void runColumnScale(const Call &call) {
  using K = kernels::ColumnScale;
  const auto n = call.ints<K>();
  columnScale<T>(call.queue(), n.rows, n.n, call.buffer<T>(K::x),
                 call.buffer<T>(K::scale), call.buffer<T>(K::y));
}

template <class T> void runColumnScaleGrad(const Call &call) {
  using K = kernels::ColumnScaleGrad;
  const auto n = call.ints<K>();
  columnScaleGrad<T>(call.queue(), n.rows, n.n, call.buffer<T>(K::dy),
                     call.buffer<T>(K::x),
                     call.buffer<Accumulator<T>>(K::dscale), call.add(n.acc));
}

template <class T> void runCenteredNorm(const Call &call) {
  using K = kernels::CenteredNorm;
  const auto n = call.ints<K>();
  layerNorm<T>(call.queue(), n.rows, n.n, call.buffer<T>(K::x),
               call.buffer<T>(K::gamma), /*beta=*/nullptr, call.buffer<T>(K::y),
               call.buffer<Accumulator<T>>(K::stats), call.real(K::eps));
}

template <class T> void runCenteredNormGrad(const Call &call) {
  using K = kernels::CenteredNormGrad;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  layerNormGrad<T>(call.queue(), n.rows, n.n, call.buffer<T>(K::dy),
                   call.buffer<T>(K::x), call.buffer<A>(K::stats),
                   call.buffer<T>(K::gamma), nullptr, call.buffer<T>(K::dx),
                   call.buffer<A>(K::dgamma), /*dbeta=*/nullptr,
                   call.add(n.acc));
}

template <class T> void runLayerNormGrad(const Call &call) {
  using K = kernels::LayerNormGrad;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  layerNormGrad<T>(call.queue(), n.rows, n.n, call.buffer<T>(K::dy),
                   call.buffer<T>(K::x), call.buffer<A>(K::stats),
                   call.buffer<T>(K::gamma), nullptr, call.buffer<T>(K::dx),
                   call.buffer<A>(K::dgamma), call.buffer<A>(K::dbeta),
                   call.add(n.acc));
}

template <class T> void runLayerNormAddGrad(const Call &call) {
  using K = kernels::LayerNormAddGrad;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  layerNormGrad<T>(call.queue(), n.rows, n.n, call.buffer<T>(K::dy),
                   call.buffer<T>(K::x), call.buffer<A>(K::stats),
                   call.buffer<T>(K::gamma), call.buffer<T>(K::residual),
                   call.buffer<T>(K::dx), call.buffer<A>(K::dgamma),
                   call.buffer<A>(K::dbeta), call.add(n.acc));
}

template <class T> void runRmsNorm(const Call &call) {
  using K = kernels::RmsNorm;
  const auto n = call.ints<K>();
  rmsNorm<T>(call.queue(), n.rows, n.n, call.buffer<T>(K::x),
             call.buffer<T>(K::gamma), call.buffer<T>(K::y),
             call.buffer<Accumulator<T>>(K::stats), n.unitOffset != 0,
             call.real(K::eps));
}

template <class T> void runRmsNormGrad(const Call &call) {
  using K = kernels::RmsNormGrad;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  rmsNormGrad<T>(call.queue(), n.rows, n.n, call.buffer<T>(K::dy),
                 call.buffer<T>(K::x), call.buffer<A>(K::stats),
                 call.buffer<T>(K::gamma), call.buffer<T>(K::dx),
                 call.buffer<A>(K::dgamma), call.add(n.acc), n.unitOffset != 0);
}

namespace {

/// Throws for what programs that generate call.
[[noreturn]] void refuseKept(const Call &call) {
  throw CallError(std::string("kernel ") + kernelForms[call.op().kernel].name +
                  " of positions that are given is not of the cuda backend: "
                  "programs that keep keys and values run on CPU ranks");
}

} // namespace

template <class T> void runRotary(const Call &call) {
  using K = kernels::Rotary;
  const auto n = call.ints<K>();
  if (n.hasPositions != 0)
    refuseKept(call);
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
  if (n.length == 0)
    return rotary<T>(call.queue(), a, x, y);
  call.forEachRowRun(n.T, n.length, n.balanced, [&](const auto &run) {
    a.positions = run.count;
    a.firstPosition = run.first;
    const int64_t place = run.row * n.heads * n.headDim;
    rotary<T>(call.queue(), a, x + place, y + place);
  });
}

template <class T> void runGatedSilu(const Call &call) {
  using K = kernels::GatedSilu;
  const auto n = call.ints<K>();
  gatedSilu<T>(call.queue(), n.n, call.buffer<T>(K::gate),
               call.buffer<T>(K::up), call.buffer<T>(K::y));
}

template <class T> void runGatedSiluGrad(const Call &call) {
  using K = kernels::GatedSiluGrad;
  const auto n = call.ints<K>();
  gatedSiluGrad<T>(call.queue(), n.n, call.buffer<T>(K::gate),
                   call.buffer<T>(K::up), call.buffer<T>(K::dy),
                   call.buffer<T>(K::dgate), call.buffer<T>(K::dup));
}

template <class T> void runRelu(const Call &call) {
  using K = kernels::Relu;
  const auto n = call.ints<K>();
  relu<T>(call.queue(), n.n, call.buffer<T>(K::x), call.buffer<T>(K::y));
}

template <class T> void runReluGrad(const Call &call) {
  using K = kernels::ReluGrad;
  const auto n = call.ints<K>();
  reluGrad<T>(call.queue(), n.n, call.buffer<T>(K::y), call.buffer<T>(K::dy),
              call.buffer<T>(K::dx));
}

template <class T> void runSoftCap(const Call &call) {
  using K = kernels::SoftCap;
  call.checkCap(call.real(K::cap));
  softCap<T>(call.queue(), call.ints<K>().n, call.buffer<T>(K::x),
             call.buffer<T>(K::y), call.real(K::cap));
}

template <class T> void runSoftCapGrad(const Call &call) {
  using K = kernels::SoftCapGrad;
  call.checkCap(call.real(K::cap));
  softCapGrad<T>(call.queue(), call.ints<K>().n, call.buffer<T>(K::y),
                 call.buffer<T>(K::dy), call.buffer<T>(K::dx),
                 call.real(K::cap));
}

template <class T> void runClip(const Call &call) {
  using K = kernels::Clip;
  call.checkCap(call.real(K::limit));
  clip<T>(call.queue(), call.ints<K>().n, call.buffer<T>(K::x),
          call.buffer<T>(K::y), call.real(K::limit));
}

template <class T> void runClipGrad(const Call &call) {
  using K = kernels::ClipGrad;
  call.checkCap(call.real(K::limit));
  clipGrad<T>(call.queue(), call.ints<K>().n, call.buffer<T>(K::x),
              call.buffer<T>(K::dy), call.buffer<T>(K::dx),
              call.real(K::limit));
}

template <class T> void runGatedGelu(const Call &call) {
  using K = kernels::GatedGelu;
  const auto n = call.ints<K>();
  gatedGelu<T>(call.queue(), n.n, call.buffer<T>(K::gate),
               call.buffer<T>(K::up), call.buffer<T>(K::y),
               /*approximate=*/n.exact == 0);
}

template <class T> void runGatedGeluGrad(const Call &call) {
  using K = kernels::GatedGeluGrad;
  const auto n = call.ints<K>();
  gatedGeluGrad<T>(call.queue(), n.n, call.buffer<T>(K::gate),
                   call.buffer<T>(K::up), call.buffer<T>(K::dy),
                   call.buffer<T>(K::dgate), call.buffer<T>(K::dup),
                   /*approximate=*/n.exact == 0);
}

namespace {

template <class Ints> RelativeBiasArguments relativeArguments(const Ints &n) {
  return {n.samples, n.heads, n.T, n.buckets,
          RelativeBuckets(n.buckets, n.maxDistance, n.bidirectional != 0)};
}

} // namespace

template <class T> void runRelativeBias(const Call &call) {
  using K = kernels::RelativeBias;
  relativeBias<T>(call.queue(), relativeArguments(call.ints<K>()),
                  call.buffer<T>(K::table), call.buffer<T>(K::bias));
}

template <class T> void runRelativeBiasGrad(const Call &call) {
  using K = kernels::RelativeBiasGrad;
  const auto n = call.ints<K>();
  relativeBiasGrad<T>(call.queue(), relativeArguments(n),
                      call.buffer<T>(K::dbias),
                      call.buffer<Accumulator<T>>(K::dtable), call.add(n.acc));
}

template <class T> void runGelu(const Call &call) {
  using K = kernels::Gelu;
  const auto n = call.ints<K>();
  biasGelu<T>(call.queue(), 1, n.n, call.buffer<T>(K::x), nullptr, nullptr,
              call.buffer<T>(K::y), n.approximate != 0);
}

template <class T> void runGeluGrad(const Call &call) {
  using K = kernels::GeluGrad;
  const auto n = call.ints<K>();
  geluGrad<T>(call.queue(), n.n, call.buffer<T>(K::x), call.buffer<T>(K::dy),
              call.buffer<T>(K::dx), n.approximate != 0);
}

template <class T> void runBiasGelu(const Call &call) {
  using K = kernels::BiasGelu;
  const auto n = call.ints<K>();
  biasGelu<T>(call.queue(), n.rows, n.n, call.buffer<T>(K::x),
              call.buffer<T>(K::bias), call.buffer<T>(K::pre),
              call.buffer<T>(K::y), n.approximate != 0);
}

namespace {

DropoutKey dropoutKeyOf(const Call &call, double p, int64_t opIndex) {
  CallReader::checkDropout(p);
  return {call.step(), call.at().layer, uint32_t(opIndex), p};
}

template <class K> AttentionShape attentionShape(const grt_kernel_op &op) {
  const auto n = intsOf<K>(op);
  if (n.window > 0 && n.causal == 0)
    throw CallError("windows that reach to both sides are attention of the CPU "
                    "backend alone");
  return {n.samples, n.Tq,          n.Tk,      n.heads,
          n.kvHeads, n.headDim,     n.qStride, n.kStride,
          n.vStride, n.causal != 0, n.window,  float(op.reals[K::scale])};
}

/// The buffers that all kernels of attention have, and the key of its dropout.
template <class K, class T>
AttentionArguments<T> attentionArguments(const Call &call) {
  AttentionArguments<T> a = {};
  readAttentionBuffers<K, T>(call, a);
  if constexpr (isBackward<K>)
    a.delta = call.buffer<Accumulator<T>>(K::scratch);
  a.dropout = dropoutKeyOf(call, call.real(K::dropout), call.ints<K>().opIndex);
  return a;
}

/// Puts attention on the rank's stream, with the kernels that take it.
template <class K, class T>
void launchAttention(const Call &call, const AttentionArguments<T> &a) {
  constexpr bool backward = isBackward<K>;
  Queue queue = call.queue();
  if constexpr (sizeof(T) == 2 && !isBiased<K> && !isShaped<K>)
    if (!call.rank().plainAttention && tensorAttentionTakes(a))
      return backward ? tensorAttentionGrad(queue, a)
                      : tensorAttention(queue, a);
  if (backward)
    attentionGrad(queue, a);
  else
    cuda::attention(queue, a);
}

/// Sets the rows of a gradient to zero, which stand `stride` elements apart.
template <class T>
void zeroRows(const Queue &queue, T *first, int64_t rows, int64_t width,
              int64_t stride) {
  const int64_t bytes = width * int64_t(sizeof(T));
  const int64_t strideBytes = stride * int64_t(sizeof(T));
  if (rows <= 0)
    return;
  gpu::fill(queue.stream, first, 0,
            uint64_t(stride == width ? rows * bytes : bytes));
  if (stride != width) // the first row, again and again
    copyRows(queue, rows - 1, bytes, /*sourceStride=*/0, strideBytes, first,
             first + stride);
}

/// Attention of a block of queries: of each sample, those that the block has,
/// as a call of its own. Causal ones see no more than the keys up to the last
/// of them, so these are the keys of the call, and its last query sees the last
/// of them.
template <class K, class T>
void blockAttention(const Call &call, const AttentionArguments<T> &a) {
  const int64_t length = call.ints<K>().length;
  auto zero = [&](T *first, int64_t rows, int64_t width, int64_t stride) {
    zeroRows(call.queue(), first, rows, width, stride);
  };
  forEachBlockOfQueries<K>(
      call, a, zero,
      [&](AttentionArguments<T> &part, int64_t keys, const auto &rows) {
        // As `diagonal` of the CPU backend: query `count - 1` sees all of
        // these.
        const int64_t seen = keys - length + rows.first + rows.count;
        if (a.causal)
          part.keyRows = std::clamp<int64_t>(seen, 0, keys);
        launchAttention<K>(call, part);
      });
}

template <class K, class T> void attention(const Call &call) {
  using A = Accumulator<T>;
  const auto n = call.ints<K>();
  AttentionShape s = attentionShape<K>(call.op());
  constexpr bool backward = isBackward<K>, biased = isBiased<K>;
  // These have kernels for every type alone.
  constexpr bool plain = !biased && !isShaped<K>;
  uint64_t bytes = grt_cuda_attention_scratch_bytes(
      s.samples, s.queryRows, s.keyRows, s.heads, s.kvHeads, s.headDim,
      sizeof(T), backward);
  [[maybe_unused]] const uint64_t sums = bytes;
  if (biased)
    bytes += grt_cuda_bias_scratch_bytes(s.samples, s.queryRows, s.keyRows,
                                         s.heads, sizeof(T), backward);
  call.checkScratch(K::scratch, bytes);
  AttentionArguments<T> a = attentionArguments<K, T>(call);
  readAttentionSizes<K>(call, a);
  if constexpr (biased) {
    call.checkBiasHeads(n.biasHeads, a.globalHeads);
    a.bias = call.buffer<T>(K::bias);
    if constexpr (backward) {
      a.dbias = call.buffer<T>(K::dbias);
      a.biasSums = reinterpret_cast<A *>(call.buffer<char>(K::scratch) + sums);
    }
  }
  if constexpr (isShaped<K>) {
    a.cap = call.real(K::cap);
    a.distance = call.real(K::distance);
    call.checkShape(a.cap, a.distance);
  }
  if constexpr (plain) {
    if (n.length > 0)
      return blockAttention<K>(call, a);
    if constexpr (sizeof(T) == 2) {
      FusedAttention *library = call.rank().fusedAttention.get();
      if (library && !backward && a.dropout.p == 0 && !a.mask && !a.starts &&
          library->run(call.queue(), s, a))
        return;
    }
  }
  launchAttention<K>(call, a);
}

} // namespace

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

template <class T> void runCachedAttention(const Call &call) {
  refuseKept(call);
}

template <class T> void runCachedCrossAttention(const Call &call) {
  refuseKept(call);
}

namespace {

/// Sets the sums of a ring to those of no keys.
template <class K, class T>
void beginSums(const Call &call, const AttentionArguments<T> &a) {
  const auto n = call.ints<K>();
  Queue queue = call.queue();
  if constexpr (isBackward<K>) {
    auto zero = [&](auto *sums, int64_t elements) {
      gpu::fill(queue.stream, sums, 0, uint64_t(elements) * sizeof(*sums));
    };
    zero(a.dqSums, n.Tq * n.heads * n.headDim);
    zero(a.dkSums, n.Tk * n.kvHeads * n.headDim);
    zero(a.dvSums, n.Tk * n.kvHeads * n.headDim);
  } else {
    AttentionArguments<T> none = a;
    none.queryRows = n.Tq;
    none.causal = false;
    none.begins = true;
    cuda::attention(queue, none);
  }
}

/// A step of a ring.
template <class K, class T> void ringAttention(const Call &call) {
  const auto n = call.ints<K>();
  call.checkScratch(K::scratch, grt_cuda_attention_scratch_bytes(
                                    n.samples, n.Tq, n.Tk, n.heads, n.kvHeads,
                                    n.headDim, sizeof(T), isBackward<K>));
  AttentionArguments<T> a = {};
  readStepOfRing<K, T>(call, a);
  if constexpr (isBackward<K>)
    a.delta = call.buffer<Accumulator<T>>(K::scratch);
  a.dropout = dropoutKeyOf(call, call.real(K::dropout), n.opIndex);
  if (!call.add(n.acc))
    beginSums<K>(call, a);
  forEachRunOfStep<K>(call, a, [&](AttentionArguments<T> &part) {
    // Keys of other rows than the queries' stand in front of all of these, so
    // that causal queries see them all.
    part.causal = a.causal && part.firstKey == part.firstQuery;
    launchAttention<K>(call, part);
  });
}

} // namespace

template <class T> void runRingAttention(const Call &call) {
  ringAttention<kernels::RingAttention, T>(call);
}

template <class T> void runRingAttentionGrad(const Call &call) {
  ringAttention<kernels::RingAttentionGrad, T>(call);
}

template <class T> void runRound(const Call &call) {
  using K = kernels::Round;
  roundSums<T>(call.queue(), call.ints<K>().n,
               call.buffer<Accumulator<T>>(K::x), call.buffer<T>(K::y));
}

namespace {

template <class K, class T> void windowAttention(const Call &call) {
  using A = Accumulator<T>;
  constexpr bool backward = isBackward<K>;
  const WindowShape s(call.op());
  call.checkScratch(
      K::scratch, grt_cuda_window_scratch_bytes(s.windows(), s.window, s.heads,
                                                sizeof(T), backward));
  AttentionArguments<T> a = attentionArguments<K, T>(call);
  readWindowSizes(call, s, a);
  a.windows.table = call.buffer<T>(K::table);
  a.windows.down = s.down;
  a.windows.across = s.across;
  a.windows.window = s.window;
  a.windows.shift = s.shift;
  if constexpr (backward) {
    a.windows.dtable = call.buffer<A>(K::dtable);
    a.windows.add = call.add(call.ints<K>().acc);
    a.windows.sums = a.delta + a.samples * a.heads * a.queryRows;
    a.windows.parts = std::min<int64_t>(a.samples, GRT_CUDA_WINDOW_PARTS);
    attentionGrad(call.queue(), a);
  } else {
    cuda::attention(call.queue(), a);
  }
}

} // namespace

template <class T> void runWindowAttention(const Call &call) {
  windowAttention<kernels::WindowAttention, T>(call);
}

template <class T> void runWindowAttentionGrad(const Call &call) {
  windowAttention<kernels::WindowAttentionGrad, T>(call);
}

namespace {

template <class K, class T>
void dropoutOf(const Call &call, const T *residual) {
  const auto n = call.ints<K>();
  DropoutArguments d = {};
  d.cols = n.cols;
  d.firstColumn = n.colSharded != 0 ? uint64_t(call.at().tp_index * d.cols) : 0;
  d.key = dropoutKeyOf(call, call.real(K::p), n.opIndex);
  call.forEachDropoutPiece(n, [&](int64_t row, int64_t count, uint64_t number) {
    d.rows = count;
    d.firstRow = number;
    const int64_t place = row * d.cols;
    dropout<T>(call.queue(), d, call.buffer<T>(K::x) + place,
               residual ? residual + place : nullptr,
               call.buffer<T>(K::y) + place);
  });
}

} // namespace

template <class T> void runDropout(const Call &call) {
  dropoutOf<kernels::Dropout, T>(call, nullptr);
}

template <class T> void runDropoutAdd(const Call &call) {
  using K = kernels::DropoutAdd;
  dropoutOf<K, T>(call, call.buffer<T>(K::residual));
}

template <class T> void runAddLayerNorm(const Call &call) {
  using K = kernels::AddLayerNorm;
  const auto n = call.ints<K>();
  DropoutArguments d = {};
  d.cols = n.n;
  d.key = dropoutKeyOf(call, call.real(K::p), n.opIndex);
  call.forEachDropoutPiece(n, [&](int64_t row, int64_t count, uint64_t number) {
    d.rows = count;
    d.firstRow = number;
    const int64_t place = row * d.cols;
    addLayerNorm<T>(
        call.queue(), d, call.buffer<T>(K::x) + place,
        call.buffer<T>(K::residual) + place, call.buffer<T>(K::gamma),
        call.buffer<T>(K::beta), call.buffer<T>(K::sum) + place,
        call.buffer<T>(K::y) + place,
        call.buffer<Accumulator<T>>(K::stats) + 2 * row, call.real(K::eps));
  });
}

template <class T> void runAdd(const Call &call) {
  using K = kernels::Add;
  const auto n = call.ints<K>();
  add<T>(call.queue(), n.n, call.buffer<T>(K::a), call.buffer<T>(K::b),
         call.buffer<T>(K::y));
}

template <class T> void runScale(const Call &call) {
  using K = kernels::Scale;
  const auto n = call.ints<K>();
  scale<T>(call.queue(), n.n, call.buffer<T>(K::x), call.buffer<T>(K::y),
           call.real(K::factor));
}

namespace {

template <class Ints> TableSlice tableSlice(const Call &call, const Ints &n) {
  if (n.sharded == 0)
    return {0, n.localRows, n.localRows};
  return {call.at().tp_index * n.localRows, n.localRows,
          call.at().tp_size * n.localRows};
}

} // namespace

template <class T> void runEmbedding(const Call &call) {
  using K = kernels::Embedding;
  const auto n = call.ints<K>();
  embedding<T>(call.queue(), n.rows, n.width, tableSlice(call, n),
               call.buffer<int32_t>(K::tokens), call.buffer<T>(K::table),
               call.buffer<T>(K::y));
}

template <class T> void runEmbeddingGrad(const Call &call) {
  using K = kernels::EmbeddingGrad;
  const auto n = call.ints<K>();
  call.forEachPieceOf(n.rows, n.tokenRows, n.balanced, [&](const auto &piece) {
    embeddingGrad<T>(call.queue(), piece.count, n.width, tableSlice(call, n),
                     n.padding, call.buffer<int32_t>(K::tokens) + piece.number,
                     call.buffer<T>(K::dy) + piece.row * n.width,
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
  if (n.length > 0)
    return call.forEachRowRun(n.T, n.length, n.balanced, [&](const auto &run) {
      const int64_t place = run.row * n.width;
      positionAdd<T>(call.queue(), /*samples=*/1, run.count, n.width, x + place,
                     table + run.first * n.width, y + place);
    });
  if (const auto *starts = call.buffer<const int32_t>(K::starts, n.hasStarts))
    documentPositionAdd<T>(call.queue(), n.samples, n.T, n.width, starts, x,
                           table, y);
  else
    positionAdd<T>(call.queue(), n.samples, n.T, n.width, x, table, y);
}

template <class T> void runPositionGrad(const Call &call) {
  using K = kernels::PositionGrad;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  const T *dy = call.buffer<T>(K::dy);
  auto *dtable = call.buffer<A>(K::dtable);
  if (n.length > 0) {
    if (!call.add(n.acc))
      gpu::fill(call.rank().stream(GRT_STREAM_COMPUTE), dtable, 0,
                uint64_t(n.tableRows * n.width) * sizeof(A));
    return call.forEachRowRun(n.T, n.length, n.balanced, [&](const auto &run) {
      positionGrad<T>(call.queue(), /*samples=*/1, run.count, n.width,
                      /*first=*/0, /*tableRows=*/run.count,
                      dy + run.row * n.width,
                      dtable + (n.first + run.first) * n.width,
                      /*add=*/true);
    });
  }
  if (const auto *starts = call.buffer<const int32_t>(K::starts, n.hasStarts))
    documentPositionGrad<T>(call.queue(), n.samples, n.T, n.width, n.first,
                            n.tableRows, starts, dy, dtable, call.add(n.acc));
  else
    positionGrad<T>(call.queue(), n.samples, n.T, n.width, n.first, n.tableRows,
                    dy, dtable, call.add(n.acc));
}

template <class T> void runPatches(const Call &call) {
  using K = kernels::Patches;
  const auto n = call.ints<K>();
  PatchArguments a = {n.samples,   n.channels,  n.rows,       n.cols,
                      n.patchRows, n.patchCols, n.padded != 0};
  patches(call.queue(), a, call.buffer<const T>(K::images),
          call.buffer<T>(K::y));
}

template <class T> void runWindows(const Call &call) {
  using K = kernels::Windows;
  const auto n = call.ints<K>();
  WindowsArguments a = {n.samples, n.rows,  n.cols,       n.width,
                        n.window,  n.shift, n.merge != 0, n.join != 0};
  windows<T>(call.queue(), a, call.buffer<T>(K::x), call.buffer<T>(K::y));
}

template <class T> void runDropPath(const Call &call) {
  using K = kernels::DropPath;
  const auto n = call.ints<K>();
  DropPathArguments a = {
      n.samples, n.elementsPerSample, uint64_t(call.at().first_sample),
      dropoutKeyOf(call, call.dropPathProbability(), n.opIndex)};
  dropPath<T>(call.queue(), a, call.buffer<T>(K::x), call.buffer<T>(K::y));
}

/// Calls `body(samples, positions, sample, skipped)` for samples whose means
/// are taken together: all, or beside a first position one after the other.
template <class Ints, class Body> void forEachMean(const Ints &n, Body body) {
  if (n.besideFirst == 0)
    return body(n.samples, n.T, 0, 0);
  for (int64_t sample = 0; sample < n.samples; ++sample)
    body(1, n.T - 1, sample, 1);
}

template <class T> void runMean(const Call &call) {
  using K = kernels::Mean;
  const auto n = call.ints<K>();
  forEachMean(n, [&](int64_t samples, int64_t positions, int64_t sample,
                     int64_t skipped) {
    const T *from = call.buffer<T>(K::x) + sample * n.T * n.width;
    T *to = call.buffer<T>(K::y) + sample * 2 * n.width;
    if (skipped)
      scale<T>(call.queue(), n.width, from, to, 1);
    mean<T>(call.queue(), {samples, positions, n.width},
            from + skipped * n.width, to + skipped * n.width);
  });
}

template <class T> void runMeanGrad(const Call &call) {
  using K = kernels::MeanGrad;
  const auto n = call.ints<K>();
  forEachMean(n, [&](int64_t samples, int64_t positions, int64_t sample,
                     int64_t skipped) {
    const T *from = call.buffer<T>(K::dy) + sample * 2 * n.width;
    T *to = call.buffer<T>(K::dx) + sample * n.T * n.width;
    if (skipped)
      scale<T>(call.queue(), n.width, from, to, 1);
    meanGrad<T>(call.queue(), {samples, positions, n.width},
                from + skipped * n.width, to + skipped * n.width);
  });
}

template <class T> void runTranspose(const Call &call) {
  using K = kernels::Transpose;
  const auto n = call.ints<K>();
  transpose<T>(call.queue(), n.count, n.rows, n.cols, call.buffer<T>(K::x),
               call.buffer<T>(K::y));
}

namespace {

/// Returns the rows of a call of the loss.
template <class K> LossPieces lossPieces(const Call &call) {
  const auto n = call.ints<K>();
  LossPieces pieces = {};
  pieces.ofBlock = n.labelRows != 0;
  call.forEachPieceOf(n.rows, n.labelRows, n.balanced, [&](const auto &piece) {
    pieces.at[pieces.count++] = {piece.row, piece.number, piece.count};
  });
  return pieces;
}

/// What the kernels of the loss share. Without more a vocabulary is not
/// divided.
template <class K, class T> LossArguments<T> lossArguments(const Call &call) {
  const auto n = call.ints<K>();
  LossArguments<T> a = {};
  a.logits = call.buffer<T>(K::logits);
  a.labels = call.buffer<int32_t>(K::labels);
  a.stats = call.buffer<Accumulator<T>>(K::stats);
  a.rows = n.rows;
  a.shards = 1;
  if constexpr (std::is_same_v<K, kernels::SoftmaxCrossEntropy>) {
    a.cols = a.globalCols = n.cols;
  } else {
    a.cols = n.localCols;
    a.globalCols = n.globalCols;
    a.firstColumn = n.sharded != 0 ? call.at().tp_index * a.cols : 0;
  }
  a.validCols = std::clamp<int64_t>(a.globalCols - a.firstColumn, 0, a.cols);
  if constexpr (requires { K::loss; }) {
    a.dlogits = call.buffer<T>(K::dlogits);
    a.loss = call.buffer<double>(K::loss);
  }
  a.step = call.step();
  return a;
}

} // namespace

template <class T> void runSoftmaxStats(const Call &call) {
  using K = kernels::SoftmaxStats;
  softmaxStats(call.queue(), lossArguments<K, T>(call), lossPieces<K>(call));
}

template <class T> void runCrossEntropy(const Call &call) {
  using K = kernels::CrossEntropy;
  LossArguments<T> a = lossArguments<K, T>(call);
  a.shards = call.ints<K>().shards;
  crossEntropy(call.queue(), a, lossPieces<K>(call));
}

template <class T> void runRegularizedStats(const Call &call) {
  using K = kernels::RegularizedStats;
  regularizedStats(call.queue(), lossArguments<K, T>(call),
                   lossPieces<K>(call));
}

template <class T> void runRegularizedCrossEntropy(const Call &call) {
  using K = kernels::RegularizedCrossEntropy;
  LossArguments<T> a = lossArguments<K, T>(call);
  a.shards = call.ints<K>().shards;
  a.smoothing = call.real(K::smoothing);
  a.zLoss = call.real(K::zLoss);
  call.checkLossTerms(a.smoothing, a.zLoss);
  regularizedCrossEntropy(call.queue(), a, lossPieces<K>(call));
}

template <class T> void runSoftmaxCrossEntropy(const Call &call) {
  using K = kernels::SoftmaxCrossEntropy;
  softmaxCrossEntropy(call.queue(), lossArguments<K, T>(call),
                      lossPieces<K>(call));
}

template <class> void runCopy(const Call &call) {
  using K = kernels::Copy;
  const auto n = call.ints<K>();
  copyRows(call.queue(), n.rows, n.rowBytes, n.srcStrideBytes, n.dstStrideBytes,
           call.buffer<void>(K::src), call.buffer<void>(K::dst));
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
    copyRows(call.queue(), rows, bytes, all, bytes, x + offset, y);
    return;
  }
  gpu::fill(call.rank().stream(GRT_STREAM_COMPUTE), y, 0, uint64_t(rows * all));
  copyRows(call.queue(), rows, bytes, bytes, all, x, y + offset);
}

template <class> void runZero(const Call &call) {
  using K = kernels::Zero;
  gpu::fill(call.rank().stream(GRT_STREAM_COMPUTE), call.buffer<void>(K::dst),
            0, call.descriptor(K::dst).bytes);
}

template <class T> void runOptimizer(const Call &call) {
  using K = kernels::Optimizer;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  int64_t kind = n.optimizer, shardElements = n.shardElements;
  call.checkOptimizer(kind);
  std::vector<Segment> segments;
  call.forEachSegment<K>([&](int64_t begin, int64_t length, int64_t decay) {
    segments.push_back({begin, length, decay != 0});
  });
  A *first = call.buffer<A>(K::state), *second = first + shardElements;
  // Behind the moments, where parameters are narrower than what they round.
  bool sgd = grt_optimizer(kind) == GRT_OPTIMIZER_SGD;
  A *master = sgd ? second : second + shardElements;
  optimize<T>(call.queue(), grt_optimizer(kind), call.step(), segments.data(),
              int(segments.size()), call.buffer<T>(K::parameter), master,
              call.buffer<A>(K::gradient), first, second);
}

template <class T> void runNorm(const Call &call) {
  using K = kernels::Norm;
  if (call.at().dp_index != 0)
    return;
  std::vector<Segment> segments;
  call.forEachSegment<K>(
      [&](int64_t begin, int64_t length, int64_t replicated) {
        if (!replicated || call.at().tp_index == 0)
          segments.push_back({begin, length, false});
      });
  sumOfSquares<Accumulator<T>>(call.queue(), call.step(), segments.data(),
                               int(segments.size()),
                               call.buffer<Accumulator<T>>(K::gradient));
}

namespace {

/// A kernel's code for every type.
struct KernelEntry {
  void (*f32)(const Call &call);
  void (*f64)(const Call &call);
  void (*bf16)(const Call &call);
};

/// Indexed by grt_kernel.
const KernelEntry kernelEntries[GRT_KERNEL_COUNT] = {
#define GRT_KERNEL(NAME, Name, ...)                                            \
  {run##Name<float>, run##Name<double>, run##Name<BF16>},
#include GRT_KERNEL_LIST
};

} // namespace

void launchCall(const grt_call &call) {
  checkForm(*call.op);
  const KernelEntry &entry = kernelEntries[call.op->kernel];
  uint32_t dtype = computeType(*call.op, "cuda");
  (dtype == GRT_F32   ? entry.f32
   : dtype == GRT_F64 ? entry.f64
                      : entry.bf16)(Call(call));
}

void prepareCall(Rank &rank, const grt_kernel_op &op) {
  checkForm(op);
  rank.queue(nameOf(op)); // its workspace
  if (isProduct(op.kernel) && rank.products)
    prepareProduct(rank, op);
  using K = kernels::Attention;
  if (op.kernel == K::kernel && rank.fusedAttention &&
      op.buffers[K::q].dtype == GRT_BF16 && op.reals[K::dropout] == 0 &&
      intsOf<K>(op).hasMask == 0 && intsOf<K>(op).hasStarts == 0 &&
      intsOf<K>(op).length == 0)
    rank.fusedAttention->prepare(attentionShape<K>(op));
}

} // namespace grt::cuda
