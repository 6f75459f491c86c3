//===- Pareto.cpp - Memory against throughput -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Explain.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <numeric>

using namespace llvm;

namespace galvatron {

static ParetoPoint pointOf(Plan plan) {
  ParetoPoint point;
  for (const PlanStage &stage : plan.stages)
    point.peakBytes = std::max(point.peakBytes, stage.peakBytes);
  point.plan = std::move(plan);
  return point;
}

Expected<std::vector<ParetoPoint>> paretoFront(const Cluster &cluster,
                                               const PlannerOptions &options,
                                               const Plan &chosen,
                                               PlanFunction planOn, int steps) {
  PlannerOptions changed = options;
  changed.relaxations = false;
  std::vector<ParetoPoint> points{pointOf(chosen)};
  // Both ends come from the search itself: the need of the leanest plan, and
  // the peak of the fastest.
  changed.memory = int64_t(1) << 50;
  Expected<PlannerResult> fastest = planOn(cluster, changed);
  if (!fastest)
    return fastest.takeError();
  if (!fastest->feasible())
    return points;
  int64_t high = pointOf(fastest->plan()).peakBytes;
  changed.memory = 1;
  Expected<PlannerResult> leanest = planOn(cluster, changed);
  if (!leanest)
    return leanest.takeError();
  int64_t low = leanest->feasible() ? 1 : leanest->infeasible().neededBytes;
  // Ladder and points are what plans may use, options say what devices have.
  std::vector<int64_t> devices(cluster.deviceCount());
  std::iota(devices.begin(), devices.end(), 0);
  low = std::clamp<int64_t>(low, 1, high);
  // Memory that no such device has is of no interest; nor is a budget that is
  // far more than the plan needs.
  int64_t budget = 0;
  for (const PlanStage &stage : chosen.stages)
    budget = std::max(budget, stage.availableBytes);
  high = std::clamp(high, low, std::max(low, 4 * budget));

  double ratio = static_cast<double>(high) / static_cast<double>(low);
  for (int i = 0; i < steps && !options.isLate(); ++i) {
    double exponent = static_cast<double>(i) / std::max(1, steps - 1);
    changed.memory = static_cast<int64_t>(
        std::ceil(static_cast<double>(low) * std::pow(ratio, exponent)));
    if (i == steps - 1)
      changed.memory = high; // however the power was rounded
    changed.memory = cluster.memoryFor(devices, *changed.memory);
    Expected<PlannerResult> result = planOn(cluster, changed);
    if (!result)
      return result.takeError();
    if (result->feasible() && !options.isLate())
      points.push_back(pointOf(result->plan()));
  }

  stable_sort(points, [](const ParetoPoint &a, const ParetoPoint &b) {
    if (a.peakBytes != b.peakBytes)
      return a.peakBytes < b.peakBytes;
    return a.plan.samplesPerSecond > b.plan.samplesPerSecond;
  });
  std::vector<ParetoPoint> front;
  for (ParetoPoint &point : points)
    if (front.empty() ||
        point.plan.samplesPerSecond > front.back().plan.samplesPerSecond)
      front.push_back(std::move(point));
  return front;
}

} // namespace galvatron
