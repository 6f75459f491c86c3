//===- attention.h - Reads a call of attention ------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// This header reads calls of attention for all backends. `K` is the kernel's
// entry of kernels.def, `Call` a backend's reader of calls, `Arguments` the
// arguments of its kernels.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_COMMON_ATTENTION_H
#define GRT_BACKENDS_COMMON_ATTENTION_H

#include "call.h"

#include <string>
#include <type_traits>

namespace grt {

/// Sets queries, keys and values, the logarithms of their sums, and the scale.
template <class K, class T, class Call, class Arguments>
void readAttentionInputs(const Call &call, Arguments &a) {
  using Sum = std::remove_pointer_t<decltype(a.lse)>;
  a.q = call.template buffer<T>(K::q);
  a.k = call.template buffer<T>(K::k);
  a.v = call.template buffer<T>(K::v);
  a.lse = call.template buffer<Sum>(K::lse);
  a.scale = call.real(K::scale);
}

/// Sets the buffers that all kernels of attention have up to their scratch, and
/// the scale.
template <class K, class T, class Call, class Arguments>
void readAttentionBuffers(const Call &call, Arguments &a) {
  readAttentionInputs<K, T>(call, a);
  a.o = call.template buffer<T>(K::o);
  if constexpr (isBackward<K>) {
    a.dout = call.template buffer<T>(K::dout);
    a.dq = call.template buffer<T>(K::dq);
    a.dk = call.template buffer<T>(K::dk);
    a.dv = call.template buffer<T>(K::dv);
  }
}

/// Sets what a head of attention is, and the strides from row to row.
template <class K, class Call, class Arguments>
void readAttentionHeads(const Call &call, Arguments &a) {
  const auto n = call.template ints<K>();
  a.heads = n.heads;
  a.kvHeads = n.kvHeads;
  a.headDim = n.headDim;
  a.qStride = n.qStride;
  a.kStride = n.kStride;
  a.vStride = n.vStride;
}

/// Sets sizes and strides, what hides keys, and where the rank's samples and
/// heads stand among all.
template <class K, class Call, class Arguments>
void readAttentionSizes(const Call &call, Arguments &a) {
  const auto n = call.template ints<K>();
  a.samples = n.samples;
  a.queryRows = n.Tq;
  a.keyRows = n.Tk;
  readAttentionHeads<K>(call, a);
  a.causal = n.causal != 0;
  a.window = n.window;
  a.mask = call.template buffer<const int32_t>(K::mask, n.hasMask);
  // It stands where the mask would, unless both are there.
  a.starts = call.template buffer<const int32_t>(K::starts - (n.hasMask == 0),
                                                 n.hasStarts);
  a.firstSample = call.at().first_sample;
  a.firstHead = call.firstHead(a.heads, n.headsOfBlocks != 0);
  a.globalHeads = call.globalHeads(a.heads, n.headsOfBlocks != 0);
  a.globalQueries = a.queryRows;
}

/// The same of attention inside the windows of `shape`, a WindowShape.
template <class Call, class Shape, class Arguments>
void readWindowSizes(const Call &call, const Shape &shape, Arguments &a) {
  a.samples = shape.windows();
  a.queryRows = a.keyRows = shape.positions();
  a.heads = a.kvHeads = shape.heads;
  a.headDim = shape.headDim;
  a.qStride = a.kStride = a.vStride = shape.heads * shape.headDim;
  a.firstSample = call.at().first_sample * shape.perSample();
  a.firstHead = call.at().tp_index * a.heads;
  a.globalHeads = call.at().tp_size * a.heads;
  a.globalQueries = a.queryRows;
}

/// Attention of a block of queries: calls `run(part, keys, rows)` for each run
/// of rows that the block has of a sample, with the arguments of a call for
/// these queries and all `keys` keys of their sample. Gradients of keys and
/// values are added to, so they are zero before, by `zero(first, rows, width,
/// stride)`; those of keys that no query of the block sees stay so. Throws
/// CallError where the sizes are not those of such a block.
template <class K, class Call, class Arguments, class Zero, class Run>
void forEachBlockOfQueries(const Call &call, const Arguments &a, Zero zero,
                           Run run) {
  const auto n = call.template ints<K>();
  const int64_t samples = call.samplesOfBlocks(n.Tq, n.length);
  const int64_t keys = n.Tk / samples;
  const bool packed = n.qStride > n.heads * n.headDim;
  if (n.Tk % samples != 0 || (packed && keys != n.length))
    throw CallError(std::to_string(n.Tk) + " keys must be those of " +
                    std::to_string(samples) + " samples, as many as queries " +
                    "where they are packed");
  if constexpr (isBackward<K>) {
    zero(a.dk, n.Tk, n.kvHeads * n.headDim, n.kStride);
    zero(a.dv, n.Tk, n.kvHeads * n.headDim, n.vStride);
    if (packed)
      zero(a.dq, n.Tk, n.heads * n.headDim, n.qStride);
  }
  call.forEachRowRun(n.Tq, n.length, n.balanced, [&](const auto &rows) {
    Arguments part = a;
    const int64_t query =
        packed ? rows.sample * n.length + rows.first : rows.row;
    const int64_t key = rows.sample * keys;
    const int64_t out = rows.row * n.heads * n.headDim;
    part.q += query * n.qStride;
    part.k += key * n.kStride;
    part.v += key * n.vStride;
    part.o += out;
    part.lse += rows.row * n.heads;
    if (part.mask)
      part.mask += key;
    if constexpr (isBackward<K>) {
      part.dout += out;
      part.dq += query * n.qStride;
      part.dk += key * n.kStride;
      part.dv += key * n.vStride;
    }
    part.queryRows = rows.count;
    part.keyRows = keys;
    part.firstSample += rows.sample;
    part.firstQuery = rows.first;
    part.globalQueries = n.length;
    // A balanced block has two runs of one sample.
    part.addsKeys = true;
    run(part, keys, rows);
  });
}

/// Sets what all runs of a step of a ring share: buffers, of which those of
/// sums are `oSums`, or backward `dqSums`, `dkSums` and `dvSums`, the heads,
/// and where they stand among all.
template <class K, class T, class Call, class Arguments>
void readStepOfRing(const Call &call, Arguments &a) {
  using Sum = std::remove_pointer_t<decltype(a.lse)>;
  const auto n = call.template ints<K>();
  readAttentionInputs<K, T>(call, a);
  if constexpr (isBackward<K>) {
    a.o = call.template buffer<T>(K::o);
    a.dout = call.template buffer<T>(K::dout);
    a.dqSums = call.template buffer<Sum>(K::dq);
    a.dkSums = call.template buffer<Sum>(K::dk);
    a.dvSums = call.template buffer<Sum>(K::dv);
  } else {
    a.oSums = call.template buffer<Sum>(K::o);
  }
  a.samples = 1;
  readAttentionHeads<K>(call, a);
  a.causal = n.causal != 0;
  a.firstHead = call.firstHead(a.heads, false);
  a.globalHeads = call.globalHeads(a.heads, false);
  a.globalQueries = n.length;
}

/// A step of a ring: calls `run(part)` for each run of queries that this rank's
/// block has of a sample and each run of keys that the step's block has of it,
/// unless the queries see none of them. Two runs are the same rows or have none
/// in common. Throws CallError where the sizes are not those of such blocks.
template <class K, class Call, class Arguments, class Run>
void forEachRunOfStep(const Call &call, const Arguments &a, Run run) {
  const auto n = call.template ints<K>();
  const int64_t block = call.blockOfStep(n.Tq, n.allRows, n.distance);
  const int64_t width = n.heads * n.headDim;
  call.samplesOfBlocks(n.Tq, n.length);
  const int32_t *mask = call.template buffer<const int32_t>(K::mask, n.hasMask);
  call.forEachRowRun(n.Tq, n.length, n.balanced, [&](const auto &queries) {
    call.forEachRowRunOf(
        block, n.Tk, n.length, n.balanced, [&](const auto &keys) {
          if (keys.sample != queries.sample ||
              (a.causal && keys.first >= queries.first + queries.count))
            return;
          Arguments part = a;
          const int64_t key = keys.row * n.kvHeads * n.headDim;
          part.q += queries.row * width;
          part.k += key;
          part.v += key;
          part.lse += queries.row * n.heads;
          if (mask)
            part.mask = mask + keys.sample * n.length + keys.first;
          if constexpr (isBackward<K>) {
            part.o += queries.row * width;
            part.dout += queries.row * width;
            part.dqSums += queries.row * width;
            part.dkSums += key;
            part.dvSums += key;
          } else {
            part.oSums += queries.row * width;
          }
          part.queryRows = queries.count;
          part.keyRows = keys.count;
          part.firstSample = call.at().first_sample + queries.sample;
          part.firstQuery = queries.first;
          part.firstKey = keys.first;
          run(part);
        });
  });
}

} // namespace grt

#endif // GRT_BACKENDS_COMMON_ATTENTION_H
