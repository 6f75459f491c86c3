//===- init.cpp - Initial weights -----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/init.h"
#include "core/error.h"

#include "grt/philox.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace grt {
namespace {

constexpr int64_t block = 256;

// Integers only, so every clone gives the same numbers.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&         \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GRT_VECTOR_CLONES                                                      \
  __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define GRT_VECTOR_CLONES
#endif

/// sums[i] = sum of the upper 24 bits of the twelve numbers of element
/// first + i, for i < block: philox() of three counters per element, rounds
/// outside and elements inside, so that the compiler can use whole vectors.
GRT_VECTOR_CLONES void irwinHallSums(PhiloxKey key, uint64_t first,
                                     int32_t *sums) {
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

} // namespace

uint64_t hashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : name)
    hash = (hash ^ uint8_t(c)) * 0x100000001b3ull;
  return hash;
}

void storeValues(const double *values, int64_t count, grt_dtype dtype,
                 void *out) {
  if (dtype == GRT_F64) {
    std::memcpy(out, values, size_t(count) * sizeof(double));
  } else if (dtype == GRT_F32) {
    float *to = static_cast<float *>(out);
    for (int64_t i = 0; i < count; ++i)
      to[i] = float(values[i]);
  } else {
    uint16_t *to = static_cast<uint16_t *>(out);
    for (int64_t i = 0; i < count; ++i) {
      uint32_t bits = std::bit_cast<uint32_t>(float(values[i]));
      bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
      to[i] = nan ? uint16_t(bits >> 16 | 0x40u)
                  : uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
  }
}

void loadValues(const void *in, int64_t count, grt_dtype dtype,
                double *values) {
  if (dtype == GRT_F64) {
    std::memcpy(values, in, size_t(count) * sizeof(double));
  } else if (dtype == GRT_F32) {
    const float *from = static_cast<const float *>(in);
    for (int64_t i = 0; i < count; ++i)
      values[i] = from[i];
  } else {
    const uint16_t *from = static_cast<const uint16_t *>(in);
    for (int64_t i = 0; i < count; ++i)
      values[i] = std::bit_cast<float>(uint32_t(from[i]) << 16);
  }
}

void initialValues(const Parameter &parameter, uint64_t seed, int64_t first,
                   int64_t count, grt_dtype dtype, void *out) {
  char *to = static_cast<char *>(out);
  double values[block];
  int32_t sums[block];
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
    } else {
      std::fill_n(values, n, parameter.init == InitKind::Ones ? 1.0 : 0.0);
    }
    storeValues(values, n, dtype, to + uint64_t(done) * dtypeBytes(dtype));
  }
}

} // namespace grt
