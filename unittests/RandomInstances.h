//===- RandomInstances.h - For tests over random instances ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_RANDOMINSTANCES_H
#define GALVATRON_UNITTESTS_RANDOMINSTANCES_H

#include <cstdint>
#include <cstdlib>
#include <random>

namespace galvatron {

inline int64_t pick(std::mt19937_64 &random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

/// `count`, or `factor` times as many if GALVATRON_LONG=1.
inline int instances(int count, int factor = 10) {
  const char *value = std::getenv("GALVATRON_LONG");
  return value && *value && *value != '0' ? factor * count : count;
}

} // namespace galvatron

#endif // GALVATRON_UNITTESTS_RANDOMINSTANCES_H
