//===- math.h - exp, tanh, GELU and dropout numbers on vectors ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// f32 functions are polynomials of our own, within about 1e-7 of the exact
// value; f64 functions are the C library's, lane by lane.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_MATH_H
#define GRT_BACKENDS_CPU_ISA_MATH_H

#include "vector.h"

namespace grt::cpu {
namespace {

/// e^x by x = n ln 2 + r, |r| <= ln 2 / 2, and a polynomial of degree 6 that
/// interpolates at the Chebyshev nodes (within 1.1e-8). Results below the
/// smallest normal number are 0 or denormal; beyond the largest, infinity; NaN
/// stays NaN.
inline __attribute__((always_inline)) Vec<float> exponential(Vec<float> x) {
  // Adding 1.5 * 2^23 rounds to an integer that stands in the low mantissa
  // bits.
  const float magic = 12582912.0f;
#if defined(__AVX512F__)
  const float low = -110.0f, high = 90.0f;
#else
  const float low = -86.6f, high = 89.0f;
#endif
  Vec<float> clamped = larger(splat(low), lesser(splat(high), x));
  Vec<float> shifted = clamped * 1.44269504f + magic;
  Vec<float> n = shifted - magic;
  // ln 2 in two parts; the first has 15 bits, so that n times it is exact.
  Vec<float> r = clamped - n * 0.693145751953125f;
  r = r - n * 1.42860682e-6f;
  Vec<float> p = splat(0.001392621347f);
  p = p * r + 0.008363202972f;
  p = p * r + 0.04166655444f;
  p = p * r + 0.1666657685f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
#if defined(__AVX512F__)
  return Vec<float>(_mm512_maskz_scalef_ps(0xffff, p, n));
#else
  // 2^(n-1), and the factor 2 apart: n may be 128. The clamp keeps n above
  // -126; what was below it is cleared.
  using Bits = Vec<int32_t>;
  Bits exponent = (Bits(shifted) + 126) << 23;
  Vec<float> result = (p * 2.0f) * Vec<float>(exponent);
  return x < low ? splat(0.0f) : result;
#endif
}

inline Vec<double> exponential(Vec<double> x) {
  Vec<double> y;
  for (int l = 0; l < lanes<double>; ++l)
    y[l] = __builtin_exp(x[l]);
  return y;
}

// gelu(x) = x * cdf(x). `pdf` is the density at x, the slope of the exact cdf.
struct GeluConstants {
  static constexpr double sqrtTwoOverPi = 0.79788456080286535588;
  static constexpr double cubic = 0.044715;
  static constexpr double sqrtHalf = 0.70710678118654752440;
  static constexpr double inverseSqrtTwoPi = 0.39894228040143267794;
};

/// The tanh form: (1 + tanh u) / 2 = 1 / (1 + exp(-2u)).
inline __attribute__((always_inline)) Vec<float> geluLogistic(Vec<float> x) {
  const float a = float(-2 * GeluConstants::sqrtTwoOverPi);
  const float b =
      float(-2 * GeluConstants::sqrtTwoOverPi * GeluConstants::cubic);
  Vec<float> minusTwoU = x * (x * x * b + a);
  return 1.0f / (exponential(minusTwoU) + 1.0f);
}

/// The normal distribution function and density. erfc(z) = t P(t) exp(-z^2) for
/// z >= 0 with t = 1 / (1 + 0.35 z); P was fitted at the Chebyshev nodes of
/// [t(9.5), 1] and is within 1e-8 of the exact quotient there.
inline __attribute__((always_inline)) Vec<float>
normalDistribution(Vec<float> x, Vec<float> &pdf) {
  Vec<float> z = (x < 0.0f ? -x : x) * float(GeluConstants::sqrtHalf);
  Vec<float> t = 1.0f / (z * 0.35f + 1.0f);
  Vec<float> p = splat(0.03570997447f);
  p = p * t - 0.1441787369f;
  p = p * t + 0.146401786f;
  p = p * t + 0.01965027074f;
  p = p * t + 0.04702814376f;
  p = p * t + 0.1679025257f;
  p = p * t + 0.1434621043f;
  p = p * t + 0.1896015165f;
  p = p * t + 0.1969273793f;
  p = p * t + 0.1974950402f;
  Vec<float> e = exponential(x * x * -0.5f);
  pdf = e * float(GeluConstants::inverseSqrtTwoPi);
  Vec<float> tail = p * t * e * 0.5f;
  return x < 0.0f ? tail : 1.0f - tail;
}

inline __attribute__((always_inline)) Vec<float> gelu(Vec<float> x,
                                                      bool approximate) {
  Vec<float> pdf;
  Vec<float> cdf = approximate ? geluLogistic(x) : normalDistribution(x, pdf);
  return x * cdf;
}

inline __attribute__((always_inline)) Vec<float> geluSlope(Vec<float> x,
                                                           bool approximate) {
  if (approximate) {
    const float a = float(2 * GeluConstants::sqrtTwoOverPi);
    const float b =
        float(6 * GeluConstants::sqrtTwoOverPi * GeluConstants::cubic);
    Vec<float> s = geluLogistic(x);
    return s + x * s * (1.0f - s) * (x * x * b + a);
  }
  Vec<float> pdf;
  Vec<float> cdf = normalDistribution(x, pdf);
  return cdf + x * pdf;
}

/// Near 0 the first six terms of its series, else 1 - 2 / (1 + exp(2x)).
inline __attribute__((always_inline)) Vec<float>
hyperbolicTangent(Vec<float> x) {
  Vec<float> s = x * x;
  Vec<float> p = splat(-1382.0f / 155925);
  p = p * s + float(62.0 / 2835);
  p = p * s - float(17.0 / 315);
  p = p * s + float(2.0 / 15);
  p = p * s - float(1.0 / 3);
  Vec<float> near = x + x * (p * s);
  Vec<float> far = 1.0f - 2.0f / (exponential(x * 2.0f) + 1.0f);
  return s < 0.09f ? near : far;
}

inline Vec<double> hyperbolicTangent(Vec<double> x) {
  Vec<double> y;
  for (int l = 0; l < lanes<double>; ++l)
    y[l] = __builtin_tanh(x[l]);
  return y;
}

inline Vec<double> gelu(Vec<double> x, bool approximate) {
  Vec<double> y;
  for (int l = 0; l < lanes<double>; ++l) {
    double v = x[l];
    y[l] =
        approximate
            ? 0.5 * v *
                  (1 + __builtin_tanh(GeluConstants::sqrtTwoOverPi *
                                      (v + GeluConstants::cubic * v * v * v)))
            : 0.5 * v * __builtin_erfc(-v * GeluConstants::sqrtHalf);
  }
  return y;
}

inline Vec<double> geluSlope(Vec<double> x, bool approximate) {
  Vec<double> y;
  for (int l = 0; l < lanes<double>; ++l) {
    double v = x[l];
    if (approximate) {
      double th = __builtin_tanh(GeluConstants::sqrtTwoOverPi *
                                 (v + GeluConstants::cubic * v * v * v));
      double slope =
          GeluConstants::sqrtTwoOverPi * (1 + 3 * GeluConstants::cubic * v * v);
      y[l] = 0.5 * (1 + th) + 0.5 * v * (1 - th * th) * slope;
    } else {
      y[l] = 0.5 * __builtin_erfc(-v * GeluConstants::sqrtHalf) +
             v * __builtin_exp(-0.5 * v * v) * GeluConstants::inverseSqrtTwoPi;
    }
  }
  return y;
}

// Philox4x32-10 on one counter per lane: the same numbers as grt/philox.h,
// which states the source.

using Lanes32 = Vec<uint32_t>;
using Lanes64 = Vec<uint64_t>;

/// Products of the low halves of the 64-bit lanes.
inline Lanes64 multiplyLow(Lanes64 a, Lanes64 b) {
#if defined(__AVX512F__)
  return Lanes64(_mm512_maskz_mul_epu32(0xff, __m512i(a), __m512i(b)));
#elif defined(__AVX2__)
  return Lanes64(_mm256_mul_epu32(__m256i(a), __m256i(b)));
#else
  return Lanes64(_mm_mul_epu32(__m128i(a), __m128i(b)));
#endif
}

/// Ten rounds on counters that stand in the low halves of 64-bit lanes; the
/// high halves hold anything, since products look at the low halves only.
inline __attribute__((always_inline)) void
philoxRounds(uint32_t keyLo, uint32_t keyHi, Lanes64 c[4]) {
  const Lanes64 factor0 = splat(uint64_t(0xD2511F53u));
  const Lanes64 factor1 = splat(uint64_t(0xCD9E8D57u));
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    Lanes64 product0 = multiplyLow(c[0], factor0);
    Lanes64 product1 = multiplyLow(c[2], factor1);
    c[0] = (product1 >> 32) ^ c[1] ^ uint64_t(keyLo);
    c[2] = (product0 >> 32) ^ c[3] ^ uint64_t(keyHi);
    c[1] = product1;
    c[3] = product0;
    keyLo += 0x9E3779B9u;
    keyHi += 0xBB67AE85u;
  }
}

/// c holds the counters on entry and the numbers on return.
inline __attribute__((always_inline)) void
philoxLanes(uint32_t keyLo, uint32_t keyHi, Lanes32 c[4]) {
  Lanes64 even[4], odd[4];
  for (int word = 0; word < 4; ++word) {
    even[word] = Lanes64(c[word]);
    odd[word] = Lanes64(c[word]) >> 32;
  }
  philoxRounds(keyLo, keyHi, even);
  philoxRounds(keyLo, keyHi, odd);
  for (int word = 0; word < 4; ++word)
    c[word] = Lanes32((even[word] & uint64_t(0xffffffffu)) | (odd[word] << 32));
}

/// 0, 1, 2, ...
inline Lanes32 laneNumbers() {
  Lanes32 v;
  for (int l = 0; l < lanes<uint32_t>; ++l)
    v[l] = uint32_t(l);
  return v;
}

/// Counter words of the rows firstRow, firstRow + 1, ...
inline void rowCounters(uint64_t firstRow, Lanes32 &low, Lanes32 &high) {
  low = laneNumbers() + uint32_t(firstRow);
  Lanes32 carry =
      Lanes32(low < uint32_t(firstRow)); // all ones where it wrapped
  high = splat(uint32_t(firstRow >> 32)) - carry;
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_MATH_H
