//===- AmpAnneal.cpp - Placements by simulated annealing ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The paper anneals degrees and placement together and finds it worse than the
// given placement. Here degrees are enumerated, and only the placements of the
// plans that are in sight are annealed.
//
//===----------------------------------------------------------------------===//

#include "AmpCosts.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <random>

using namespace llvm;

namespace galvatron::baselines {

namespace {

/// As many as are simulated, twice: half of them may be recomputed ones.
constexpr size_t kAnnealedPlans = 20;
/// About a tenth of a second a plan on 16 devices.
constexpr int64_t kSteps = 1000;
/// The part of the energy by which a rise is taken with a chance of 1/e at the
/// beginning.
constexpr double kFirstTemperature = 0.05;

/// Numbers that every standard library draws alike.
class Dice {
public:
  explicit Dice(uint64_t seed) : random(seed) {}
  size_t below(size_t count) { return random() % count; }
  double fraction() { return static_cast<double>(random() >> 11) * 0x1p-53; }

private:
  std::mt19937_64 random;
};

bool severalNodes(const Cluster &cluster, const AmpPlan &plan) {
  int64_t first = cluster.nodeOf(plan.devices.front().front());
  return any_of(plan.devices, [&](const std::vector<int64_t> &stage) {
    return any_of(
        stage, [&](int64_t device) { return cluster.nodeOf(device) != first; });
  });
}

} // namespace

Error annealPlacements(AmpResult &result, AmpCosts &costs,
                       const Cluster &cluster, const AmpProblem &problem) {
  size_t plans = std::min(result.plans.size(), kAnnealedPlans);
  for (size_t i = 0; i < plans; ++i) {
    AmpPlan &best = result.plans[i];
    if (!severalNodes(cluster, best))
      continue;
    if (Error error = costs.setShape(best.shape))
      return error;
    Dice dice(problem.seed);
    AmpPlan current = best;
    for (int64_t step = 0; step < kSteps; ++step) {
      if (problem.cancellation && problem.cancellation->requested())
        return Error::success();
      StageDevices devices = current.devices;
      size_t width = devices.front().size();
      auto drawn = [&]() -> int64_t & {
        size_t place = dice.below(width * devices.size());
        return devices[place / width][place % width];
      };
      int64_t &one = drawn(), &other = drawn();
      if (cluster.nodeOf(one) == cluster.nodeOf(other))
        continue;
      std::swap(one, other);
      std::optional<AmpPlan> next = costs.solve(devices);
      if (!next)
        continue;
      double rise = static_cast<double>(next->total() - current.total()) /
                    static_cast<double>(best.total());
      double temperature =
          kFirstTemperature *
          (1 - static_cast<double>(step) / static_cast<double>(kSteps));
      if (rise > 0 && dice.fraction() >= std::exp(-rise / temperature))
        continue;
      current = std::move(*next);
      if (current.total() < best.total())
        best = current;
      if (problem.progress) {
        PlannerProgress progress;
        progress.batch = problem.batch;
        progress.solved = i;
        progress.open = plans - i;
        progress.samplesPerSecond = static_cast<double>(problem.batch) * 1e12 /
                                    static_cast<double>(best.total());
        problem.progress(progress);
      }
    }
  }
  return Error::success();
}

} // namespace galvatron::baselines
