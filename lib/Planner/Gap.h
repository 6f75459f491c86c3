//===- Gap.h - How much faster something could be ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_GAP_H
#define GALVATRON_LIB_PLANNER_GAP_H

#include <cmath>

namespace galvatron::planner {

/// The percent by which a time exceeds the least that is possible. Times are
/// sums of parts that are rounded to picoseconds: a millionth is none. Less
/// than the least is possible only if that is wrong, and is not hidden.
inline double gapInPercent(double time, double least) {
  constexpr double rounding = 1e-6;
  double gap = time / least - 1;
  return std::abs(gap) < rounding ? 0 : 100 * gap;
}

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_GAP_H
