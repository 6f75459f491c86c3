//===- vector.h - Vectors of one instruction set --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Included by isa/table.cpp only, which is compiled once per instruction set.
// Everything here and in the headers beside it lives in an anonymous namespace
// and no function of the standard library is called: a shared weak symbol
// compiled for AVX-512 could otherwise be the copy that the linker keeps for
// all.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_VECTOR_H
#define GRT_BACKENDS_CPU_ISA_VECTOR_H

#include "../kernels.h"
#include "../team.h"

#include <immintrin.h>
#include <stdint.h>
#include <utility>

namespace grt::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int vectorBytes = 64;
constexpr int vectorRegisters = 32;
#elif defined(__AVX2__)
constexpr int vectorBytes = 32;
constexpr int vectorRegisters = 16;
#else
constexpr int vectorBytes = 16;
constexpr int vectorRegisters = 16;
#endif

template <class T> struct VectorOf {
  typedef T Type __attribute__((vector_size(vectorBytes)));
  typedef T Unaligned
      __attribute__((vector_size(vectorBytes), aligned(alignof(T)), may_alias));
};
template <class T> using Vec = typename VectorOf<T>::Type;
template <class T> constexpr int lanes = vectorBytes / int(sizeof(T));

template <class T> inline Vec<T> splat(T value) { return Vec<T>{} + value; }

template <class T> inline Vec<T> loadWhole(const T *p) {
  return *reinterpret_cast<const typename VectorOf<T>::Unaligned *>(p);
}
template <class T> inline void storeWhole(T *p, Vec<T> v) {
  *reinterpret_cast<typename VectorOf<T>::Unaligned *>(p) = v;
}

/// The first `count` lanes from memory, the rest zero; nothing beyond is read.
template <class T> inline Vec<T> loadPart(const T *p, int count) {
  Vec<T> v{};
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    v = Vec<T>(_mm512_maskz_loadu_epi32(__mmask16((1u << count) - 1), p));
  else
    v = Vec<T>(_mm512_maskz_loadu_epi64(__mmask8((1u << count) - 1), p));
#else
  __builtin_memcpy(&v, p, size_t(count) * sizeof(T));
#endif
  return v;
}
template <class T> inline void storePart(T *p, Vec<T> v, int count) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    _mm512_mask_storeu_epi32(p, __mmask16((1u << count) - 1), __m512i(v));
  else
    _mm512_mask_storeu_epi64(p, __mmask8((1u << count) - 1), __m512i(v));
#else
  __builtin_memcpy(p, &v, size_t(count) * sizeof(T));
#endif
}

// BF16 is a storage type: loads widen it to f32, which is exact, and stores
// round to the nearest, ties to even, as storeValues() of the runtime does.

typedef uint16_t HalfWords
    __attribute__((vector_size(vectorBytes / 2), aligned(2), may_alias));
typedef uint16_t HalfVector __attribute__((vector_size(vectorBytes / 2)));

inline Vec<float> widen(HalfVector v) {
  return Vec<float>(__builtin_convertvector(v, Vec<uint32_t>) << 16);
}
inline HalfVector round(Vec<float> v) {
  Vec<uint32_t> bits = Vec<uint32_t>(v);
  Vec<uint32_t> rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  // Rounding could carry a NaN into infinity.
  Vec<uint32_t> quiet = bits >> 16 | 0x40u;
  return __builtin_convertvector(v == v ? rounded : quiet, HalfVector);
}

inline Vec<float> loadWhole(const BF16 *p) {
  return widen(*reinterpret_cast<const HalfWords *>(p));
}
inline void storeWhole(BF16 *p, Vec<float> v) {
  *reinterpret_cast<HalfWords *>(p) = round(v);
}
inline Vec<float> loadPart(const BF16 *p, int count) {
  HalfVector v{};
  __builtin_memcpy(&v, p, size_t(count) * sizeof(BF16));
  return widen(v);
}
inline void storePart(BF16 *p, Vec<float> v, int count) {
  HalfVector rounded = round(v);
  __builtin_memcpy(p, &rounded, size_t(count) * sizeof(BF16));
}

/// Converts one element to the type to compute in, and back.
inline float wide(float value) { return value; }
inline double wide(double value) { return value; }
inline float wide(BF16 value) {
  return __builtin_bit_cast(float, uint32_t(value.bits) << 16);
}
template <class T> inline T narrow(Accumulator<T> value) { return value; }
template <> inline BF16 narrow<BF16>(float value) {
  return {round(splat(value))[0]};
}

/// Access to a whole vector of T, and to the end of an array that fills none,
/// stored as T or narrower. Both compute the same bits for an element wherever
/// it stands.
template <class T> struct Whole {
  static constexpr int count = lanes<T>;
  template <class S> Vec<T> load(const S *p) const { return loadWhole(p); }
  template <class S> void store(S *p, Vec<T> v) const { storeWhole(p, v); }
};
template <class T> struct Part {
  int count;
  template <class S> Vec<T> load(const S *p) const {
    return loadPart(p, count);
  }
  template <class S> void store(S *p, Vec<T> v) const {
    storePart(p, v, count);
  }
};

/// Calls body(i, access) over [begin, end), a vector at a time.
template <class T, class Body>
inline __attribute__((always_inline)) void sweep(int64_t begin, int64_t end,
                                                 Body body) {
  int64_t i = begin;
  for (; i + lanes<T> <= end; i += lanes<T>)
    body(i, Whole<T>());
  if (i < end)
    body(i, Part<T>{int(end - i)});
}

/// The larger of two lanes; b where either is NaN.
inline Vec<float> larger(Vec<float> a, Vec<float> b) {
#if defined(__AVX512F__)
  return Vec<float>(_mm512_maskz_max_ps(0xffff, a, b));
#elif defined(__AVX2__)
  return Vec<float>(_mm256_max_ps(a, b));
#else
  return Vec<float>(_mm_max_ps(a, b));
#endif
}
inline Vec<double> larger(Vec<double> a, Vec<double> b) {
  return a > b ? a : b;
}

/// The smaller of two lanes; b where either is NaN.
inline Vec<float> lesser(Vec<float> a, Vec<float> b) {
#if defined(__AVX512F__)
  return Vec<float>(_mm512_maskz_min_ps(0xffff, a, b));
#elif defined(__AVX2__)
  return Vec<float>(_mm256_min_ps(a, b));
#else
  return Vec<float>(_mm_min_ps(a, b));
#endif
}

inline Vec<float> squareRoot(Vec<float> v) {
#if defined(__AVX512F__)
  return Vec<float>(_mm512_maskz_sqrt_ps(0xffff, v));
#elif defined(__AVX2__)
  return Vec<float>(_mm256_sqrt_ps(v));
#else
  return Vec<float>(_mm_sqrt_ps(v));
#endif
}
inline Vec<double> squareRoot(Vec<double> v) {
#if defined(__AVX512F__)
  return Vec<double>(_mm512_maskz_sqrt_pd(0xff, v));
#elif defined(__AVX2__)
  return Vec<double>(_mm256_sqrt_pd(v));
#else
  return Vec<double>(_mm_sqrt_pd(v));
#endif
}

/// a[0] b[0] a[1] b[1] ...: the first or the second half of it.
template <bool Second, class V, int... I>
inline V interleaveHalf(V a, V b, std::integer_sequence<int, I...>) {
  constexpr int n = int(sizeof...(I));
  return __builtin_shufflevector(
      a, b, (I / 2 + (Second ? n / 2 : 0) + (I % 2) * n)...);
}
template <class T, bool Second> inline Vec<T> interleave(Vec<T> a, Vec<T> b) {
  return interleaveHalf<Second>(a, b,
                                std::make_integer_sequence<int, lanes<T>>());
}

/// Transposes a square of lanes<T> vectors: each of log2(lanes) passes doubles
/// the number of rows that a vector holds pieces of.
template <class T> inline void transposeSquare(Vec<T> rows[lanes<T>]) {
  constexpr int n = lanes<T>;
  Vec<T> other[n];
#pragma GCC unroll 4
  for (int pass = 1; pass < n; pass *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < n / 2; ++i) {
      other[2 * i] = interleave<T, false>(rows[i], rows[i + n / 2]);
      other[2 * i + 1] = interleave<T, true>(rows[i], rows[i + n / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i)
      rows[i] = other[i];
  }
}

/// Adds to every lane the one that is `width` further on, around the end.
template <int width, class V, int... I>
inline V foldLanes(V v, std::integer_sequence<int, I...>) {
  return v +
         __builtin_shufflevector(v, v, ((I + width) % int(sizeof...(I)))...);
}

/// Lanes added in a fixed tree.
template <class T> inline T horizontalSum(Vec<T> v) {
  constexpr auto all = std::make_integer_sequence<int, lanes<T>>();
  if constexpr (lanes<T> > 8)
    v = foldLanes<8>(v, all);
  if constexpr (lanes<T> > 4)
    v = foldLanes<4>(v, all);
  if constexpr (lanes<T> > 2)
    v = foldLanes<2>(v, all);
  return foldLanes<1>(v, all)[0];
}
template <class T> inline T horizontalMax(Vec<T> v) {
  T result = v[0];
  for (int l = 1; l < lanes<T>; ++l)
    result = v[l] > result ? v[l] : result;
  return result;
}

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/// Elements below which a second thread costs more than it gives.
constexpr int64_t elementGrain = 16384;
/// The same in operations, for kernels that do many with an element.
constexpr int64_t serialElements = 32768;
constexpr int64_t serialOperations = GRT_CPU_SERIAL_OPERATIONS;

/// Threads for work on so many elements, or of so many operations.
inline int threadsForElements(int threads, int64_t elements) {
  return elements < serialElements ? 1 : threads;
}
inline int threadsForOperations(int threads, double operations) {
  return operations < serialOperations ? 1 : threads;
}

/// Splits [0, count) over the threads in chunks that are multiples of `grain`
/// and calls body(thread, begin, end). One thread calls it directly.
template <class Body>
inline void parallelFor(int threads, int64_t count, int64_t grain, Body body) {
  int64_t pieces = (count + grain - 1) / grain;
  int parts = pieces < threads ? int(pieces) : threads;
  if (parts <= 1) {
    if (count > 0)
      body(0, int64_t(0), count);
    return;
  }
  auto piece = [&](int t) {
    int64_t begin = pieces * t / parts * grain;
    int64_t end = smaller(pieces * (t + 1) / parts * grain, count);
    body(t, begin, end);
  };
  grt_cpu_team_run(
      threads, parts,
      [](void *context, int t) {
        (*static_cast<decltype(piece) *>(context))(t);
      },
      &piece);
}

/// Rows of `n` elements that make a chunk of that size.
inline int64_t rowGrain(int64_t n) {
  return n >= elementGrain ? 1 : (elementGrain + n - 1) / (n > 0 ? n : 1);
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_VECTOR_H
