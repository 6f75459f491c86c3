//===- Gap.h - How much faster something could be ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PLANNER_GAP_H
#define GALVATRON_PLANNER_GAP_H

#include "galvatron/Planner/Planner.h"

#include <algorithm>
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

/// A lower bound of what any plan for the batch takes, ms, by the gap that a
/// plan says; 0 if nothing is proven.
inline double leastMsOf(const Plan &plan) {
  return plan.gapPercent ? plan.iterationMs / (1 + *plan.gapPercent / 100) : 0;
}
/// A lower bound of all plans that were asked for, ms; 0: nothing is proven.
inline double leastMsOf(const PlannerResult &result) {
  return result.feasible() ? leastMsOf(result.plan()) : result.leastMs;
}
/// Sets the gap of a plan to such a bound; one above its time is met by it.
inline void setLeastMs(Plan &plan, double leastMs) {
  plan.gapPercent.reset();
  if (leastMs > 0)
    plan.gapPercent =
        gapInPercent(plan.iterationMs, std::min(leastMs, plan.iterationMs));
}

/// A lower bound of all plans of several searches, of which each has its own;
/// nothing is proven where one of them has none.
class LeastOfAll {
public:
  void add(const PlannerResult &result) { add(leastMsOf(result)); }
  void add(double leastMs) {
    least = std::min(least.value_or(leastMs), leastMs);
  }
  double milliseconds() const { return least.value_or(0); }

private:
  std::optional<double> least;
};

} // namespace galvatron::planner

#endif // GALVATRON_PLANNER_GAP_H
