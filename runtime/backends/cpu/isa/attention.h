//===- attention.h - Attention without a matrix of scores
//------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tiles of 64 queries by 64 keys with the softmax kept as a running maximum and
// sum (Milakov and Gimelshein, arXiv 1805.02867; Rabe and Staats, arXiv
// 2112.05682; the backward pass from lse as in FlashAttention, Dao et al.,
// arXiv 2205.14135, algorithm 4). Scratch does not grow with the sequence.
//
// Scores are held transposed, keys down and queries across: the softmax then
// runs lane by lane without horizontal operations, a row of lanes shares its
// dropout counters, and all five products have the form of isa/products.h with
// nothing but the queries (and dout) transposed into a panel.
//
// With causal set, query r sees keys 0 .. r + Tk - Tq.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_ATTENTION_H
#define GRT_BACKENDS_CPU_ISA_ATTENTION_H

#include "math.h"
#include "products.h"

namespace grt::cpu {
namespace {

constexpr int64_t queryTile = attentionQueries, keyTile = attentionKeys;
static_assert(queryTile % lanes<float> == 0 && keyTile % 4 == 0);

/// out[d][i] = factor * rows[i][d], zero for i >= count.
template <class T>
void transposeTile(const T *rows, int64_t stride, int64_t count,
                   int64_t headDim, Accumulator<T> factor,
                   Accumulator<T> *out) {
  constexpr int64_t square = 16;
  for (int64_t i0 = 0; i0 < queryTile; i0 += square)
    for (int64_t d0 = 0; d0 < headDim; d0 += square) {
      int64_t depth = smaller(square, headDim - d0);
      for (int64_t i = i0; i < i0 + square; ++i) {
        if (i < count) {
          const T *row = rows + i * stride + d0;
          for (int64_t d = 0; d < depth; ++d)
            out[(d0 + d) * queryTile + i] = factor * row[d];
        } else {
          for (int64_t d = 0; d < depth; ++d)
            out[(d0 + d) * queryTile + i] = 0;
        }
      }
    }
}

/// What the tiles of one (sample, head) share.
template <class T> struct Head {
  const AttentionArguments<T> &a;
  int64_t sample, head;

  const T *q(int64_t i) const {
    return a.q + (sample * a.queryRows + i) * a.qStride + head * a.headDim;
  }
  int64_t kvHead() const { return head / (a.heads / a.kvHeads); }
  const T *k(int64_t j) const {
    return a.k + (sample * a.keyRows + j) * a.kStride + kvHead() * a.headDim;
  }
  const T *v(int64_t j) const {
    return a.v + (sample * a.keyRows + j) * a.vStride + kvHead() * a.headDim;
  }
  int64_t outStride() const { return a.heads * a.headDim; }
  int64_t outOffset(int64_t i) const {
    return (sample * a.queryRows + i) * outStride() + head * a.headDim;
  }
  Accumulator<T> *lse() const {
    return a.lse + (sample * a.heads + head) * a.queryRows;
  }
  int64_t diagonal() const { return a.keyRows - a.queryRows; }
  /// Keys that queries [i, i + count) see.
  int64_t keyLimit(int64_t i, int64_t count) const {
    if (!a.causal)
      return a.keyRows;
    int64_t limit = smaller(a.keyRows, i + count + diagonal());
    return limit < 0 ? 0 : limit;
  }
  /// Global row number of query i, see grt/philox.h.
  uint64_t dropoutRow(int64_t i) const {
    uint64_t s = uint64_t(a.firstSample + sample);
    uint64_t h = uint64_t(a.firstHead + head);
    return (s * uint64_t(a.globalHeads) + h) * uint64_t(a.queryRows) +
           uint64_t(i);
  }
};

/// Writes `masked` where the query of the lane must not see the key of the row.
template <class T, class Number>
void maskTile(const Head<T> &head, int64_t i0, int64_t j0, int64_t keys,
              Number masked, Number *scores) {
  if (!head.a.causal)
    return;
  for (int64_t j = 0; j < keys; ++j) {
    // Lanes below this one see too little.
    int64_t first = j0 + j - head.diagonal() - i0;
    first = first > queryTile ? queryTile : first;
    for (int64_t i = 0; i < first; ++i)
      scores[j * queryTile + i] = masked;
  }
}

/// Multiplies a tile by `whenKept` or `whenDropped`, element by element.
template <class T>
void dropTile(const Head<T> &head, int64_t i0, int64_t j0, int64_t keys,
              Accumulator<T> whenKept, Accumulator<T> whenDropped,
              Accumulator<T> *tile) {
  using A = Accumulator<T>;
  constexpr int width = lanes<uint32_t>;
  const DropoutStream &stream = *head.a.dropout;
  for (int64_t i = 0; i < queryTile; i += width) {
    Lanes32 low, high;
    rowCounters(head.dropoutRow(i0 + i), low, high);
    for (int64_t j = 0; j < keys; j += 4) {
      Lanes32 number[4] = {low, high, splat(uint32_t((j0 + j) / 4)),
                           splat(stream.opIndex)};
      philoxLanes(stream.keyLo, stream.keyHi, number);
      int64_t words = smaller(4, keys - j);
      for (int64_t w = 0; w < words; ++w) {
        A *row = tile + (j + w) * queryTile + i;
        if constexpr (sizeof(A) == sizeof(uint32_t)) {
          Vec<A> factor = number[w] >= stream.threshold ? splat(whenKept)
                                                        : splat(whenDropped);
          storeWhole(row, loadWhole(row) * factor);
        } else {
          for (int l = 0; l < width; ++l)
            row[l] *= number[w][l] >= stream.threshold ? whenKept : whenDropped;
        }
      }
    }
  }
}

template <class T>
void attentionTile(const Head<T> &head, int64_t i0, Accumulator<T> *scratch) {
  using A = Accumulator<T>;
  constexpr int width = lanes<A>;
  const AttentionArguments<T> &a = head.a;
  int64_t queries = smaller(queryTile, a.queryRows - i0);
  int64_t limit = head.keyLimit(i0, queries);
  A *queryPanel = scratch, *scores = scratch + queryTile * a.headDim;
  T *out = a.o + head.outOffset(i0);
  A largest[queryTile], sum[queryTile], correction[queryTile];
  for (int64_t i = 0; i < queryTile; ++i) {
    largest[i] = -__builtin_inf();
    sum[i] = 0;
  }
  if (limit == 0)
    for (int64_t i = 0; i < queries; ++i)
      __builtin_memset(out + i * head.outStride(), 0,
                       size_t(a.headDim) * sizeof(T));
  transposeTile(head.q(i0), a.qStride, queries, a.headDim, A(a.scale),
                queryPanel);
  for (int64_t j0 = 0; j0 < limit; j0 += keyTile) {
    int64_t keys = smaller(keyTile, limit - j0);
    products<A>(keys, queryTile, a.headDim, {head.k(j0), a.kStride, 1},
                queryPanel, queryTile, scores, queryTile, false);
    maskTile(head, i0, j0, keys, A(-__builtin_inf()), scores);
    for (int64_t i = 0; i < queryTile; i += width) {
      Vec<A> before = loadWhole(largest + i), now = before;
      for (int64_t j = 0; j < keys; ++j)
        now = larger<A>(now, loadWhole(scores + j * queryTile + i));
      // A lane that has seen no key yet must not subtract infinities.
      Vec<A> shift = now == A(-__builtin_inf()) ? splat(A(0)) : now;
      Vec<A> scaled = exponential(before - shift);
      Vec<A> partial{};
      for (int64_t j = 0; j < keys; ++j) {
        A *place = scores + j * queryTile + i;
        Vec<A> p = exponential(loadWhole(place) - shift);
        storeWhole(place, p);
        partial += p;
      }
      storeWhole(largest + i, now);
      storeWhole(correction + i, scaled);
      storeWhole(sum + i, loadWhole(sum + i) * scaled + partial);
    }
    if (a.dropout)
      dropTile<T>(head, i0, j0, keys, A(a.dropout->keptScale), A(0), scores);
    if (j0 > 0)
      for (int64_t i = 0; i < queries; ++i) {
        T *row = out + i * head.outStride();
        if (correction[i] != 1)
          sweep<T>(0, a.headDim, [&](int64_t d, auto at) {
            at.store(row + d, at.load(row + d) * correction[i]);
          });
      }
    products<A>(queries, a.headDim, keys, {scores, 1, queryTile}, head.v(j0),
                a.vStride, out, head.outStride(), j0 > 0);
  }
  for (int64_t i = 0; i < queries; ++i) {
    A inverse = sum[i] > 0 ? 1 / sum[i] : A(0);
    // NaN in the scores must reach the output.
    inverse = sum[i] == sum[i] ? inverse : sum[i];
    T *row = out + i * head.outStride();
    sweep<T>(0, a.headDim, [&](int64_t d, auto at) {
      at.store(row + d, at.load(row + d) * inverse);
    });
    head.lse()[i0 + i] = A(double(largest[i]) + __builtin_log(double(sum[i])));
  }
}

template <class T> void attention(const AttentionArguments<T> &a) {
  int64_t tiles = (a.queryRows + queryTile - 1) / queryTile;
  parallelFor(
      a.workers, a.samples * a.heads * tiles, 1,
      [&](int worker, int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          Head<T> head = {a, unit / tiles / a.heads, unit / tiles % a.heads};
          attentionTile(head, unit % tiles * queryTile, a.scratch[worker]);
        }
      });
}

/// Adds what queries [i0, ..) of one head give to dq, dk and dv.
template <class T>
void attentionGradTile(const Head<T> &head, int64_t i0,
                       Accumulator<T> *scratch) {
  using A = Accumulator<T>;
  constexpr int width = lanes<A>;
  const AttentionArguments<T> &a = head.a;
  int64_t queries = smaller(queryTile, a.queryRows - i0);
  int64_t limit = head.keyLimit(i0, queries);
  int64_t panelElements = queryTile * a.headDim;
  A *queryPanel = scratch, *doutPanel = scratch + panelElements;
  A *probability = scratch + 2 * panelElements;
  A *gradient = probability + queryTile * keyTile;
  const T *dout = a.dout + head.outOffset(i0), *out = a.o + head.outOffset(i0);
  T *dq = a.dq + (head.q(i0) - a.q);
  if (limit == 0)
    for (int64_t i = 0; i < queries; ++i)
      __builtin_memset(dq + i * a.qStride, 0, size_t(a.headDim) * sizeof(T));
  transposeTile(head.q(i0), a.qStride, queries, a.headDim, A(a.scale),
                queryPanel);
  transposeTile(dout, head.outStride(), queries, a.headDim, A(1), doutPanel);
  // Lanes without a query have zero panels; finite lse keeps them harmless.
  A lse[queryTile] = {}, delta[queryTile] = {};
  for (int64_t i = 0; i < queries; ++i) {
    lse[i] = head.lse()[i0 + i];
    Vec<A> sum{};
    sweep<A>(0, a.headDim, [&](int64_t d, auto at) {
      sum += at.load(out + i * head.outStride() + d) *
             at.load(dout + i * head.outStride() + d);
    });
    delta[i] = horizontalSum<A>(sum);
  }
  for (int64_t j0 = 0; j0 < limit; j0 += keyTile) {
    int64_t keys = smaller(keyTile, limit - j0);
    const T *k = head.k(j0);
    products<A>(keys, queryTile, a.headDim, {k, a.kStride, 1}, queryPanel,
                queryTile, probability, queryTile, false);
    products<A>(keys, queryTile, a.headDim, {head.v(j0), a.vStride, 1},
                doutPanel, queryTile, gradient, queryTile, false);
    for (int64_t i = 0; i < queryTile; i += width) {
      Vec<A> shift = loadWhole(lse + i);
      for (int64_t j = 0; j < keys; ++j) {
        A *place = probability + j * queryTile + i;
        storeWhole(place, exponential(loadWhole(place) - shift));
      }
    }
    maskTile(head, i0, j0, keys, A(0), probability);
    // dV takes D P and dS = P (D dP - delta), D being the dropout factors. A
    // dropped probability is marked by a minus sign.
    A kept = 1;
    if (a.dropout) {
      dropTile<T>(head, i0, j0, keys, A(1), A(-1), probability);
      kept = A(a.dropout->keptScale);
    }
    const A factor = A(a.scale);
    for (int64_t i = 0; i < queryTile; i += width) {
      Vec<A> shift = loadWhole(delta + i);
      for (int64_t j = 0; j < keys; ++j) {
        A *pPlace = probability + j * queryTile + i;
        A *gPlace = gradient + j * queryTile + i;
        Vec<A> marked = loadWhole(pPlace);
        Vec<A> p = marked < A(0) ? -marked : marked;
        Vec<A> d = marked < A(0) ? splat(A(0)) : splat(kept);
        storeWhole(gPlace, p * (d * loadWhole(gPlace) - shift) * factor);
        storeWhole(pPlace, p * d);
      }
    }
    products<A>(keys, a.headDim, queries, {probability, queryTile, 1}, dout,
                head.outStride(), a.dv + (head.v(j0) - a.v), a.vStride, true);
    products<A>(keys, a.headDim, queries, {gradient, queryTile, 1}, head.q(i0),
                a.qStride, a.dk + (k - a.k), a.kStride, true);
    products<A>(queries, a.headDim, keys, {gradient, 1, queryTile}, k,
                a.kStride, dq, a.qStride, j0 > 0);
  }
}

template <class T> void attentionGrad(const AttentionArguments<T> &a) {
  int64_t group = a.heads / a.kvHeads;
  // Query heads that share a key head are one unit: its sums have one order.
  parallelFor(
      a.workers, a.samples * a.kvHeads, 1,
      [&](int worker, int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          Head<T> head = {a, unit / a.kvHeads, unit % a.kvHeads * group};
          size_t bytes = size_t(a.headDim) * sizeof(T);
          for (int64_t j = 0; j < a.keyRows; ++j) {
            __builtin_memset(a.dk + (head.k(j) - a.k), 0, bytes);
            __builtin_memset(a.dv + (head.v(j) - a.v), 0, bytes);
          }
          for (int64_t member = 0; member < group; ++member, ++head.head)
            for (int64_t i0 = 0; i0 < a.queryRows; i0 += queryTile)
              attentionGradTile(head, i0, a.scratch[worker]);
        }
      });
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_ATTENTION_H
