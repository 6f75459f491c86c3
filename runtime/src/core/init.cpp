//===- init.cpp - Initial weights -----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/init.h"
#include "base/error.h"

#include "grt/philox.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace grt {
namespace {

constexpr int64_t block = irwinHallBlock;

/// Rounds outside and elements inside, so that the compiler can use vectors.
void sumsInLoops(PhiloxKey key, uint64_t first, int32_t *sums) {
  uint32_t c0[block], c1[block], c2[block], c3[block], total[block] = {};
  for (uint32_t third = 0; third < 3; ++third) {
    for (int64_t i = 0; i < block; ++i) {
      c0[i] = uint32_t(first + uint64_t(i));
      c1[i] = uint32_t((first + uint64_t(i)) >> 32);
      c2[i] = third;
      c3[i] = 0;
    }
    PhiloxKey roundKey = key;
    for (int round = 0; round < 10; ++round) {
      for (int64_t i = 0; i < block; ++i) {
        uint64_t product0 = uint64_t(philoxMultiplier0) * c0[i];
        uint64_t product1 = uint64_t(philoxMultiplier1) * c2[i];
        c0[i] = uint32_t(product1 >> 32) ^ c1[i] ^ roundKey.lo;
        c2[i] = uint32_t(product0 >> 32) ^ c3[i] ^ roundKey.hi;
        c1[i] = uint32_t(product1);
        c3[i] = uint32_t(product0);
      }
      roundKey.lo += philoxWeyl0;
      roundKey.hi += philoxWeyl1;
    }
    for (int64_t i = 0; i < block; ++i)
      total[i] += (c0[i] >> 8) + (c1[i] >> 8) + (c2[i] >> 8) + (c3[i] >> 8);
  }
  for (int64_t i = 0; i < block; ++i)
    sums[i] = int32_t(total[i]);
}

#if defined(__x86_64__) && defined(__GNUC__)

// A word of the state stands in the lower half of each 64-bit lane: the
// instruction that multiplies two words looks at lower halves only, so what is
// in the upper ones need not be cleared. Three states, the thirds of one
// element, fill the time that a product takes.

__attribute__((target("avx2"))) void sumsByFour(PhiloxKey key, uint64_t first,
                                                int32_t *sums) {
  const __m256i m0 = _mm256_set1_epi64x(philoxMultiplier0);
  const __m256i m1 = _mm256_set1_epi64x(philoxMultiplier1);
  const __m256i lower = _mm256_setr_epi32(0, 2, 4, 6, 0, 0, 0, 0);
  for (int64_t i = 0; i < block; i += 4) {
    __m256i index =
        _mm256_add_epi64(_mm256_set1_epi64x(int64_t(first + uint64_t(i))),
                         _mm256_setr_epi64x(0, 1, 2, 3));
    __m256i c0[3], c1[3], c2[3], c3[3], total = _mm256_setzero_si256();
    for (int third = 0; third < 3; ++third) {
      c0[third] = index;
      c1[third] = _mm256_srli_epi64(index, 32);
      c2[third] = _mm256_set1_epi64x(third);
      c3[third] = _mm256_setzero_si256();
    }
    PhiloxKey roundKey = key;
    for (int round = 0; round < 10; ++round) {
      const __m256i k0 = _mm256_set1_epi64x(roundKey.lo);
      const __m256i k1 = _mm256_set1_epi64x(roundKey.hi);
      for (int third = 0; third < 3; ++third) {
        __m256i p0 = _mm256_mul_epu32(c0[third], m0);
        __m256i p1 = _mm256_mul_epu32(c2[third], m1);
        c0[third] = _mm256_xor_si256(
            _mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1[third]), k0);
        c2[third] = _mm256_xor_si256(
            _mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3[third]), k1);
        c1[third] = p1;
        c3[third] = p0;
      }
      roundKey.lo += philoxWeyl0;
      roundKey.hi += philoxWeyl1;
    }
    // Sums of shifted words stay below 2^28: the lower halves of lanes.
    for (int third = 0; third < 3; ++third)
      for (__m256i word : {c0[third], c1[third], c2[third], c3[third]})
        total = _mm256_add_epi32(total, _mm256_srli_epi32(word, 8));
    _mm_storeu_si128(
        reinterpret_cast<__m128i *>(sums + i),
        _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(total, lower)));
  }
}

#endif

/// Element `index` of a table of positions, see InitKind. Rounding to f32 hides
/// how libraries differ in the last bits of sines.
double sinusoid(const Parameter &parameter, int64_t index) {
  const int64_t columns = parameter.shape[1], half = (columns + 1) / 2;
  const int64_t row = index / columns, column = index % columns;
  const bool isSine = column < half;
  const double pair = double(isSine ? column : column - half);
  const double angle =
      double(row) / std::pow(10000.0, 2 * pair / double(columns));
  return double(float(isSine ? std::sin(angle) : std::cos(angle)));
}

} // namespace

std::vector<IrwinHallSums> irwinHallFunctions() {
  std::vector<IrwinHallSums> functions{sumsInLoops};
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2"))
    functions.push_back(sumsByFour);
#endif
  return functions;
}

void initialValues(const Parameter &parameter, uint64_t seed, int64_t first,
                   int64_t count, std::initializer_list<TypedMemory> out) {
  double values[block];
  int32_t sums[block];
  static const IrwinHallSums irwinHallSums = irwinHallFunctions().back();
  PhiloxKey key = philoxKey(seed, hashName(parameter.name));
  // The sum of twelve numbers of 24 bits has this mean and, in units of 2^24,
  // variance 1; the scale is exact, so the product is rounded once.
  constexpr int32_t mean = 6 * ((1 << 24) - 1);
  const double scale = parameter.std * 0x1p-24;
  for (int64_t done = 0; done < count; done += block) {
    int64_t n = std::min(block, count - done);
    if (parameter.init == InitKind::Normal) {
      irwinHallSums(key, uint64_t(first + done), sums);
      for (int64_t i = 0; i < n; ++i)
        values[i] = double(sums[i] - mean) * scale;
    } else if (parameter.init == InitKind::Sinusoids) {
      for (int64_t i = 0; i < n; ++i)
        values[i] = sinusoid(parameter, first + done + i);
    } else {
      std::fill_n(values, n, parameter.constant);
    }
    for (const TypedMemory &each : out)
      storeValues(values, n, each.dtype,
                  static_cast<char *>(each.to) +
                      uint64_t(done) * dtypeBytes(each.dtype));
  }
}

void initialValues(const Parameter &parameter, uint64_t seed, int64_t first,
                   int64_t count, grt_dtype dtype, void *out) {
  initialValues(parameter, seed, first, count, {{dtype, out}});
}

} // namespace grt
