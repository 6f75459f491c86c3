//===- philox.h - Counter-based random numbers ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy
// as 1, 2, 3", SC 2011, section 3.3) and the keys made from it. A value is a
// pure function of key and counter, so it does not depend on which rank asks,
// in which order, or on which hardware: only 32-bit integer arithmetic is used.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_PHILOX_H
#define GRT_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define GRT_PHILOX_FUNCTION __host__ __device__ inline
#else
#define GRT_PHILOX_FUNCTION inline
#endif

namespace grt {

/// The constants of the rounds and of the key schedule.
constexpr uint32_t philoxMultiplier0 = 0xD2511F53u;
constexpr uint32_t philoxMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t philoxWeyl0 = 0x9E3779B9u;
constexpr uint32_t philoxWeyl1 = 0xBB67AE85u;

/// Key of a stream of random numbers.
struct PhiloxKey {
  uint32_t lo, hi;
};

/// The four 32-bit numbers that one counter gives.
struct PhiloxBlock {
  uint32_t lane[4];
};

/// Philox4x32 with 10 rounds at counter (c0, c1, c2, c3).
GRT_PHILOX_FUNCTION PhiloxBlock philox(PhiloxKey key, uint32_t c0, uint32_t c1,
                                       uint32_t c2, uint32_t c3) {
  for (int round = 0; round < 10; ++round) {
    uint64_t product0 = uint64_t(philoxMultiplier0) * c0;
    uint64_t product1 = uint64_t(philoxMultiplier1) * c2;
    uint32_t next0 = uint32_t(product1 >> 32) ^ c1 ^ key.lo;
    uint32_t next2 = uint32_t(product0 >> 32) ^ c3 ^ key.hi;
    c1 = uint32_t(product1);
    c3 = uint32_t(product0);
    c0 = next0;
    c2 = next2;
    key.lo += philoxWeyl0;
    key.hi += philoxWeyl1;
  }
  return PhiloxBlock{{c0, c1, c2, c3}};
}

/// A bijective mix of 64 bits (the finaliser of SplitMix64, Steele et al.
/// 2014).
GRT_PHILOX_FUNCTION uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// A key of two 64-bit words, e.g. the seed and the hash of a tensor's name.
GRT_PHILOX_FUNCTION PhiloxKey philoxKey(uint64_t a, uint64_t b) {
  uint64_t mixed = mix64(mix64(a) ^ b);
  return PhiloxKey{uint32_t(mixed), uint32_t(mixed >> 32)};
}

/// Key of the dropout masks of one layer in one step; `layer` is the layer's
/// index in the model. The op's index in the body is part of the counter.
GRT_PHILOX_FUNCTION PhiloxKey dropoutKey(uint64_t seed, uint64_t step,
                                         int64_t layer) {
  return philoxKey(mix64(seed) ^ step, uint64_t(layer));
}

/// The four numbers of columns 4*columnBlock .. 4*columnBlock+3 of `row`;
/// column c takes lane c % 4. `row` is a global row number: sample *
/// rowsPerSample + r for plain dropout, (sample * globalHeads + head) *
/// queryRows + r for attention.
GRT_PHILOX_FUNCTION PhiloxBlock dropoutBlock(PhiloxKey key, uint64_t row,
                                             uint32_t columnBlock,
                                             uint32_t opIndex) {
  return philox(key, uint32_t(row), uint32_t(row >> 32), columnBlock, opIndex);
}

/// An element is kept where its 32-bit number is at least this; the error of
/// the probability is below 2^-32. `p` is in [0, 1).
GRT_PHILOX_FUNCTION uint32_t dropoutThreshold(double p) {
  double scaled = p * 4294967296.0;
  return scaled >= 4294967295.0 ? 4294967295u : uint32_t(scaled);
}

} // namespace grt

#endif // GRT_PHILOX_H
