//===- dispatch_attention.cpp - Calls of attention ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../common/attention.h"
#include "../common/relative.h"
#include "dispatch.h"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace grt::cpu {

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

template <class Ints> RelativeBuckets bucketsOf(const Ints &n) {
  return {n.buckets, n.maxDistance, n.bidirectional != 0};
}

} // namespace

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

namespace {

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
/// see all its keys.
template <class K, class T>
void blockAttention(const Call &call, const AttentionArguments<T> &a) {
  const int64_t length = call.ints<K>().length;
  forEachBlockOfQueries<K>(
      call, a, zeroRows<T>,
      [&](AttentionArguments<T> &part, int64_t keys, const auto &rows) {
        part.diagonal = keys - length + rows.first;
        shareOutAttention<K>(call, part, 0);
      });
}

template <class K, class T> void attention(const Call &call) {
  const auto n = call.ints<K>();
  AttentionArguments<T> a = {};
  readAttentionBuffers<K, T>(call, a);
  readAttentionSizes<K>(call, a);
  DropoutStream stream;
  if (dropoutStream(call, call.real(K::dropout), n.opIndex, stream))
    a.dropout = &stream;
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

} // namespace

template <class T> void runAttention(const Call &call) {
  attention<kernels::Attention, T>(call);
}

template <class T> void runAttentionGrad(const Call &call) {
  attention<kernels::AttentionGrad, T>(call);
}

namespace {

/// A step of a ring, whose sums are empty before the first one.
template <class K, class T> void ringAttention(const Call &call) {
  using A = Accumulator<T>;
  const auto n = call.ints<K>();
  AttentionArguments<T> a = {};
  readStepOfRing<K, T>(call, a);
  DropoutStream stream;
  if (dropoutStream(call, call.real(K::dropout), n.opIndex, stream))
    a.dropout = &stream;
  const bool begins = !call.add(n.acc);
  const int64_t queries = n.Tq * n.heads, keys = n.Tk * n.kvHeads;
  if constexpr (isBackward<K>) {
    if (begins) {
      std::fill_n(a.dqSums, queries * n.headDim, A(0));
      std::fill_n(a.dkSums, keys * n.headDim, A(0));
      std::fill_n(a.dvSums, keys * n.headDim, A(0));
    }
  } else if (begins) {
    std::fill_n(a.oSums, queries * n.headDim, A(0));
    std::fill_n(a.lse, queries, -std::numeric_limits<A>::infinity());
  }
  forEachRunOfStep<K>(call, a, [&](AttentionArguments<T> &part) {
    part.diagonal = part.firstQuery - part.firstKey;
    shareOutAttention<K>(call, part, 0);
  });
}

} // namespace

template <class T> void runRingAttention(const Call &call) {
  ringAttention<kernels::RingAttention, T>(call);
}

template <class T> void runRingAttentionGrad(const Call &call) {
  ringAttention<kernels::RingAttentionGrad, T>(call);
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

namespace {

template <class K, class T> void windowAttention(const Call &call) {
  using A = Accumulator<T>;
  const WindowShape shape(call.op());
  AttentionArguments<T> a = {};
  readAttentionBuffers<K, T>(call, a);
  readWindowSizes(call, shape, a);
  DropoutStream stream;
  if (dropoutStream(call, call.real(K::dropout), shape.opIndex, stream))
    a.dropout = &stream;
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

} // namespace

template <class T> void runWindowAttention(const Call &call) {
  windowAttention<kernels::WindowAttention, T>(call);
}

template <class T> void runWindowAttentionGrad(const Call &call) {
  windowAttention<kernels::WindowAttentionGrad, T>(call);
}

namespace {

/// Reads sizes and buffers that both kinds of attention to kept keys have.
template <class K, class T>
CachedAttentionArguments<T> readCached(const Call &call) {
  const auto n = call.ints<K>();
  CachedAttentionArguments<T> a = {};
  a.samples = n.samples;
  a.rows = n.rows;
  a.length = n.length;
  readAttentionHeads<K>(call, a);
  a.scale = call.real(K::scale);
  a.q = call.buffer<T>(K::q);
  a.k = call.buffer<T>(K::k);
  a.v = call.buffer<T>(K::v);
  a.keys = call.buffer<T>(K::keys);
  a.values = call.buffer<T>(K::values);
  a.row = call.buffer<int32_t>(K::row);
  a.o = call.buffer<T>(K::o);
  return a;
}

} // namespace

template <class T> void runCachedAttention(const Call &call) {
  using K = kernels::CachedAttention;
  const auto n = call.ints<K>();
  CachedAttentionArguments<T> a = readCached<K, T>(call);
  a.window = n.window;
  a.cap = call.real(K::cap);
  a.distance = call.real(K::distance);
  call.checkShape(a.cap, a.distance);
  a.firstHead = call.firstHead(a.heads, /*ofBlocks=*/false);
  a.globalHeads = call.globalHeads(a.heads, /*ofBlocks=*/false);
  a.position = call.buffer<int32_t>(K::position);
  a.bias = call.buffer<T>(K::bias, n.hasBias);
  a.distances = n.distances;
  if (a.bias)
    call.checkBiasHeads(n.biasHeads, a.globalHeads);
  call.checkPlaces(a.row, a.position, n.samples, n.rows,
                   n.window > 0 ? INT32_MAX : n.length);
  call.table<T>().cachedAttention(call.threads(), a);
}

template <class T> void runCachedCrossAttention(const Call &call) {
  using K = kernels::CachedCrossAttention;
  CachedCrossAttentionArguments<T> a = {};
  a.cache = readCached<K, T>(call);
  a.begins = call.buffer<int32_t>(K::begins);
  a.count = call.buffer<int32_t>(K::count);
  const CachedAttentionArguments<T> &c = a.cache;
  call.checkPlaces(c.row, a.count, c.samples, c.rows, c.length + 1);
  call.checkPlaces(a.begins, a.count, c.samples, c.rows, c.length + 1);
  call.table<T>().cachedCrossAttention(call.threads(), a);
}

GRT_CPU_KERNEL(RelativeBias)
GRT_CPU_KERNEL(RelativeBiasGrad)
GRT_CPU_KERNEL(Attention)
GRT_CPU_KERNEL(AttentionGrad)
GRT_CPU_KERNEL(RingAttention)
GRT_CPU_KERNEL(RingAttentionGrad)
GRT_CPU_KERNEL(BiasedAttention)
GRT_CPU_KERNEL(BiasedAttentionGrad)
GRT_CPU_KERNEL(ShapedAttention)
GRT_CPU_KERNEL(ShapedAttentionGrad)
GRT_CPU_KERNEL(WindowAttention)
GRT_CPU_KERNEL(WindowAttentionGrad)
GRT_CPU_KERNEL(CachedAttention)
GRT_CPU_KERNEL(CachedCrossAttention)

} // namespace grt::cpu
