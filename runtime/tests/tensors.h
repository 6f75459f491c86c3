//===- tensors.h - Comparing tensors of two sessions ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_TENSORS_H
#define GRT_TESTS_TENSORS_H

#include "grt/session.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

namespace grt::test {

/// Norm of the difference over the norm of `a`.
inline double distance(const Tensor &a, const Tensor &b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    difference += std::pow(a.values[i] - b.values[i], 2);
    size += std::pow(a.values[i], 2);
  }
  return std::sqrt(difference / std::max(size, 1e-300));
}

/// Expects the same tensors, each within `bound` of the other.
inline void expectSame(const TensorMap &a, const TensorMap &b, double bound) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto &[name, tensor] : a) {
    ASSERT_TRUE(b.count(name)) << name;
    EXPECT_EQ(tensor.shape, b.at(name).shape) << name;
    EXPECT_LE(distance(tensor, b.at(name)), bound) << name;
  }
}

} // namespace grt::test

#endif // GRT_TESTS_TENSORS_H
