//===- learning_rate.h - Learning rate of a step --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_LEARNING_RATE_H
#define GRT_LEARNING_RATE_H

#include <cmath>
#include <cstdint>

namespace grt {

/// Linear warm-up to `peak`, then a half cosine down to `least`, which the last
/// step reaches (Loshchilov and Hutter, "SGDR", eq. 5, one period).
struct LearningRateSchedule {
  double peak = 1e-3;
  double least = 1e-3;
  uint64_t warmupSteps = 0;
  uint64_t steps = 1;

  /// `step` counts from 1.
  double at(uint64_t step) const {
    if (step <= warmupSteps)
      return peak * double(step) / double(warmupSteps);
    if (step >= steps)
      return least;
    double part = double(step - warmupSteps) / double(steps - warmupSteps);
    return least + 0.5 * (peak - least) * (1 + std::cos(M_PI * part));
  }
};

} // namespace grt

#endif // GRT_LEARNING_RATE_H
