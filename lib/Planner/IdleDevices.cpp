//===- IdleDevices.cpp - Plans that leave devices idle --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/IdleDevices.h"
#include "galvatron/Planner/Gap.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <utility>

using namespace llvm;

namespace galvatron {

json::Value FewerDevices::toJson() const {
  return json::Object{{"devices", devices}, {"iteration-ms", iterationMs}};
}

std::string FewerDevices::str(const Cluster &cluster) const {
  return formatv("a batch of {0} does not divide among {1} devices: {2} of "
                 "them take {3:f3} ms (--devices=any)",
                 batch, cluster.deviceCount(), devices, iterationMs);
}

/// Options for a search of fewer devices, where only a faster plan is of
/// interest.
static PlannerOptions ofFewer(const PlannerOptions &options,
                              std::optional<double> samplesPerSecond) {
  PlannerOptions less = options;
  less.mayIdle = less.relaxations = less.reasons = false;
  less.groups.reset();
  less.progress = nullptr;
  if (samplesPerSecond)
    less.samplesPerSecondKnown =
        std::max(*samplesPerSecond, options.samplesPerSecondKnown.value_or(0));
  return less;
}

std::optional<FewerDevices> findFewerDevices(const Cluster &cluster,
                                             const PlannerOptions &options,
                                             const Plan &chosen,
                                             PlanFunction planOn) {
  if (options.mayIdle || options.objective != Objective::Executed ||
      !options.batch || chosen.batch % cluster.deviceCount() == 0)
    return std::nullopt;
  constexpr int mostTries = 2;
  std::optional<FewerDevices> fewer;
  double rate = chosen.samplesPerSecond;
  int tries = 0;
  for (int64_t count = std::min(cluster.deviceCount() - 1, chosen.batch);
       count >= 1 && tries < mostTries; --count) {
    if (chosen.batch % count != 0)
      continue;
    std::optional<Cluster> smaller = cluster.resized(count);
    if (!smaller)
      continue;
    ++tries;
    Expected<PlannerResult> found = planOn(*smaller, ofFewer(options, rate));
    if (!found) {
      // Forced parts that fewer devices cannot have.
      consumeError(found.takeError());
      continue;
    }
    if (!found->feasible() || found->plan().samplesPerSecond <= rate)
      continue;
    rate = found->plan().samplesPerSecond;
    fewer = {count, found->plan().iterationMs, chosen.batch};
  }
  return fewer;
}

namespace planner {

/// Searches of so many numbers of devices take as long as a search of all of
/// them some times over.
static constexpr size_t kMostCounts = 24;

/// Numbers of devices that are tried, the largest first. If there are too many,
/// those that divide the batch or are powers of two, then the largest.
static std::vector<int64_t> fewerCounts(const Cluster &cluster,
                                        std::optional<int64_t> batch,
                                        bool &areAll) {
  std::vector<int64_t> counts;
  for (int64_t count = cluster.deviceCount() - 1; count >= 1; --count)
    if (cluster.resized(count))
      counts.push_back(count);
  areAll = counts.size() <= kMostCounts;
  if (areAll)
    return counts;
  auto isEven = [&](int64_t count) {
    return isPowerOf2_64(static_cast<uint64_t>(count)) ||
           (batch && *batch % count == 0);
  };
  std::stable_partition(counts.begin(), counts.end(), isEven);
  counts.resize(kMostCounts);
  llvm::sort(counts, std::greater<>());
  return counts;
}

Expected<PlannerResult> planIdle(LayerModel &model, const Cluster &cluster,
                                 const PlannerOptions &options,
                                 PlanFunction planOn) {
  if (cluster.deviceCount() > 1 && !cluster.resized(1))
    return makeError("devices stay idle on clusters of nodes that are all "
                     "alike, found cluster '" +
                     cluster.name() + "': expected --devices=all");
  if (options.objective != Objective::Executed)
    return makeError("plans of fewer devices are compared by the time that is "
                     "executed, which objective '" +
                     objectiveName(options.objective) + "' is not");
  PlannerOptions all = options;
  all.mayIdle = all.relaxations = false;
  Expected<PlannerResult> best = planOn(cluster, all);
  if (!best)
    return best;
  LeastOfAll least; // of every number of devices
  least.add(*best);
  std::optional<double> allMs;
  if (best->feasible())
    allMs = best->plan().iterationMs;
  bool areAll = true;
  std::vector<std::string> tried = {std::to_string(cluster.deviceCount())};
  int64_t used = cluster.deviceCount();
  for (int64_t count : fewerCounts(cluster, options.batch, areAll)) {
    if (options.isLate()) {
      areAll = false;
      break;
    }
    std::optional<double> rate;
    if (best->feasible())
      rate = best->plan().samplesPerSecond;
    Expected<PlannerResult> found =
        planOn(*cluster.resized(count), ofFewer(options, rate));
    if (!found) {
      consumeError(found.takeError()); // forced parts that it cannot have
      continue;
    }
    tried.push_back(std::to_string(count));
    best->steps += found->steps;
    least.add(*found);
    if (!found->feasible() || (rate && found->plan().samplesPerSecond <= *rate))
      continue;
    // The plan of the first devices, as one of all of them.
    Expected<PlannerResult> whole =
        evaluate(model, cluster, found->plan(), options.memory);
    if (!whole)
      return whole.takeError();
    if (!whole->feasible())
      return makeError("internal error: devices that stay idle take memory: " +
                       whole->infeasible().reason);
    if (rate && whole->plan().samplesPerSecond <= *rate)
      continue;
    best->decisions.push_back(
        formatv("{0} of {1} devices: executed in {2:f3} ms, faster", count,
                cluster.deviceCount(), whole->plan().iterationMs));
    best->outcome = std::move(whole->outcome);
    best->formulaMs = found->formulaMs;
    best->runnersUp = found->runnersUp;
    used = count;
  }
  if (!best->feasible())
    return best;
  Plan &plan = std::get<Plan>(best->outcome);
  setLeastMs(plan, options.batch ? least.milliseconds() : 0);
  best->idleDevices = cluster.deviceCount() - used;
  if (best->idleDevices > 0)
    best->allDevicesMs = allMs;
  if (!areAll)
    plan.provenAmong += (plan.provenAmong.empty() ? "" : " and ") +
                        join(tried, ", ") + " devices in all";
  return best;
}

} // namespace planner
} // namespace galvatron
