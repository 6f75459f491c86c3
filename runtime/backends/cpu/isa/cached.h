//===- cached.h - Attention to keys and values that are kept --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_CACHED_H
#define GRT_BACKENDS_CPU_ISA_CACHED_H

#include "attention.h"
#include "math.h"

namespace grt::cpu {
namespace {

/// Keys whose scores are there at a time.
constexpr int64_t cachedKeys = 64;

/// Attention of the query of head `head`, of `headDim` elements, to `count`
/// keys from position `first` on, the last of which is its own; the softmax of
/// what was seen so far is corrected block by block. `bias`, unless it is null,
/// is the head's for the query's own key, with those of keys before it in
/// front.
template <class T>
void attendCached(const CachedAttentionArguments<T> &a, int64_t head,
                  const T *q, const T *keys, const T *values, const T *bias,
                  int64_t first, int64_t count, T *o) {
  using A = Accumulator<T>;
  A query[GRT_CACHED_HEAD], sums[GRT_CACHED_HEAD];
  A scores[cachedKeys];
  const int64_t size = a.headDim;
  for (int64_t i = 0; i < size; ++i) {
    query[i] = wide(q[i]) * A(a.scale);
    sums[i] = 0;
  }
  const double slope =
      a.distance == 0
          ? 0
          : a.distance * distanceSlope(a.firstHead + head, a.globalHeads);
  A most = -__builtin_huge_val(), total = 0;
  for (int64_t begin = 0; begin < count; begin += cachedKeys) {
    const int64_t block = smaller(cachedKeys, count - begin);
    const int64_t place = (first + begin) % a.length;
    auto rowOf = [&](int64_t j) {
      const int64_t row = place + j;
      return (row < a.length ? row : row - a.length) * size;
    };
    A larger = most;
    for (int64_t j = 0; j < block; ++j) {
      const T *key = keys + rowOf(j);
      Vec<A> sum{};
      sweep<A>(0, size, [&](int64_t i, auto at) {
        sum += at.load(query + i) * at.load(key + i);
      });
      A score = horizontalSum<A>(sum);
      if (a.cap > 0)
        score = A(a.cap) * hyperbolicTangent(splat(score / A(a.cap)))[0];
      score += A(slope * double(begin + j + 1 - count));
      if (bias)
        score += wide(bias[begin + j + 1 - count]);
      scores[j] = score;
      larger = score > larger ? score : larger;
    }
    const A before = exponential(splat(most - larger))[0];
    most = larger;
    total *= before;
    sweep<A>(0, block, [&](int64_t j, auto at) {
      at.store(scores + j, exponential(at.load(scores + j) - splat(most)));
    });
    if (before != A(1))
      sweep<A>(0, size, [&](int64_t i, auto at) {
        at.store(sums + i, at.load(sums + i) * splat(before));
      });
    for (int64_t j = 0; j < block; ++j) {
      const T *value = values + rowOf(j);
      const Vec<A> weight = splat(scores[j]);
      total += scores[j];
      sweep<A>(0, size, [&](int64_t i, auto at) {
        at.store(sums + i, at.load(sums + i) + weight * at.load(value + i));
      });
    }
  }
  sweep<A>(0, size, [&](int64_t i, auto at) {
    at.store(o + i, at.load(sums + i) / splat(total));
  });
}

/// Keys that the query of position `position` sees.
template <class T>
int64_t cachedSeen(const CachedAttentionArguments<T> &a, int64_t position) {
  return a.window > 0 ? smaller(a.window, position + 1) : position + 1;
}

/// The bias of a query and its own key; null if there is none.
template <class T>
const T *cachedBias(const CachedAttentionArguments<T> &a, int64_t sample,
                    int64_t head) {
  if (!a.bias)
    return nullptr;
  const int64_t row = sample * a.globalHeads + a.firstHead + head;
  return a.bias + row * a.distances + (a.distances - 1) / 2;
}

/// Threads share out the key heads of all rows of the cache. In each the
/// samples of the row are taken one after the other: what is put for one of
/// them may take the place of what the one before it has seen.
template <class T>
void cachedAttention(int threads, const CachedAttentionArguments<T> &a) {
  const int64_t group = a.heads / a.kvHeads, size = a.headDim;
  double pairs = 0; // of a query and a key
  for (int64_t s = 0; s < a.samples; ++s)
    if (a.row[s] >= 0)
      pairs += double(cachedSeen(a, a.position[s]) * a.heads);
  parallelFor(threadsForOperations(threads, 4 * pairs * double(size)),
              a.rows * a.kvHeads, 1, [&](int, int64_t begin, int64_t end) {
                for (int64_t item = begin; item < end; ++item) {
                  const int64_t row = item / a.kvHeads, head = item % a.kvHeads;
                  T *keys = a.keys + item * a.length * size;
                  T *values = a.values + item * a.length * size;
                  for (int64_t s = 0; s < a.samples; ++s) {
                    if (a.row[s] != row)
                      continue;
                    const int64_t position = a.position[s];
                    const int64_t place = position % a.length * size;
                    const uint64_t bytes = uint64_t(size) * sizeof(T);
                    __builtin_memcpy(keys + place,
                                     a.k + s * a.kStride + head * size, bytes);
                    __builtin_memcpy(values + place,
                                     a.v + s * a.vStride + head * size, bytes);
                    const int64_t seen = cachedSeen(a, position);
                    for (int64_t h = head * group; h < (head + 1) * group; ++h)
                      attendCached(a, h, a.q + s * a.qStride + h * size, keys,
                                   values, cachedBias(a, s, h),
                                   position + 1 - seen, seen,
                                   a.o + (s * a.heads + h) * size);
                  }
                }
              });
  for (int64_t s = 0; s < a.samples; ++s)
    if (a.row[s] < 0)
      __builtin_memset(a.o + s * a.heads * size, 0,
                       uint64_t(a.heads * size) * sizeof(T));
}

/// Threads share out key heads, of which what begins is put where it stays,
/// then the queries of all samples.
template <class T>
void cachedCrossAttention(int threads,
                          const CachedCrossAttentionArguments<T> &a) {
  const CachedAttentionArguments<T> &c = a.cache;
  const int64_t group = c.heads / c.kvHeads, size = c.headDim;
  const uint64_t bytes = uint64_t(size) * sizeof(T);
  double put = 0, pairs = 0; // elements; of a query and a key
  for (int64_t s = 0; s < c.samples; ++s) {
    put += a.begins[s] >= 0 ? double(c.length * c.kvHeads * size) : 0;
    pairs += c.row[s] >= 0 ? double(a.count[s]) * double(c.heads) : 0;
  }
  if (put > 0)
    parallelFor(
        threadsForOperations(threads, put), c.kvHeads, 1,
        [&](int, int64_t begin, int64_t end) {
          for (int64_t head = begin; head < end; ++head)
            for (int64_t s = 0; s < c.samples; ++s)
              for (int64_t j = 0; a.begins[s] >= 0 && j < c.length; ++j) {
                const int64_t from = s * c.length + j;
                const int64_t to =
                    ((a.begins[s] * c.kvHeads + head) * c.length + j) * size;
                __builtin_memcpy(c.keys + to,
                                 c.k + from * c.kStride + head * size, bytes);
                __builtin_memcpy(c.values + to,
                                 c.v + from * c.vStride + head * size, bytes);
              }
        });
  parallelFor(threadsForOperations(threads, 4 * pairs * double(size)),
              c.samples * c.heads, 1, [&](int, int64_t begin, int64_t end) {
                for (int64_t item = begin; item < end; ++item) {
                  const int64_t s = item / c.heads, head = item % c.heads;
                  T *o = c.o + item * size;
                  if (c.row[s] < 0 || a.count[s] == 0) {
                    __builtin_memset(o, 0, bytes);
                    continue;
                  }
                  const int64_t at =
                      (c.row[s] * c.kvHeads + head / group) * c.length * size;
                  attendCached(c, head, c.q + s * c.qStride + head * size,
                               c.keys + at, c.values + at, /*bias=*/
                               static_cast<const T *>(nullptr), /*first=*/0,
                               a.count[s], o);
                }
              });
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_CACHED_H
