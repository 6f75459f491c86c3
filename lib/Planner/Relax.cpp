//===- Relax.cpp - Which inputs would fit ---------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Explain.h"

#include "llvm/ADT/bit.h"

#include <limits>
#include <optional>

using namespace llvm;

namespace galvatron {

static constexpr int64_t mostTries = 64;

static bool fits(LayerModel &model, const Cluster &cluster,
                 const PlannerOptions &options, int64_t batch) {
  if (options.isLate())
    return false;
  PlannerOptions changed = options;
  changed.batch = batch;
  changed.relaxations = changed.reasons = false;
  // Any plan will do.
  changed.gapPercent = std::numeric_limits<double>::infinity();
  Expected<PlannerResult> result = plan(model, cluster, changed);
  if (!result) {
    // Not a batch, or not a cluster, for the forced parts of the plan.
    consumeError(result.takeError());
    return false;
  }
  return result->feasible();
}

static int64_t largestBatch(LayerModel &model, const Cluster &cluster,
                            const PlannerOptions &options, int64_t batch) {
  int64_t good = batch / 2, bad = batch;
  while (good >= 1 && !fits(model, cluster, options, good)) {
    bad = good;
    good /= 2;
  }
  if (good < 1)
    return 0;
  int64_t step = std::max<int64_t>(1, (bad - good) / mostTries);
  for (int64_t between = bad - step; between > good; between -= step)
    if (fits(model, cluster, options, between))
      return between;
  return good;
}

/// The step between device counts: whole nodes, or 1 inside the one node.
static int64_t deviceStep(const Cluster &cluster) {
  return cluster.networkLink() && !cluster.nodeGroups().empty()
             ? cluster.nodeGroups().front().devices
             : 1;
}

static int64_t fewestDevices(LayerModel &model, const Cluster &cluster,
                             const PlannerOptions &options, int64_t batch) {
  int64_t devices = cluster.deviceCount();
  int64_t most = 8 * devices;
  int64_t step = deviceStep(cluster);
  while ((most - devices) / step > mostTries)
    step *= 2;
  for (int64_t count = devices + step; count <= most; count += step) {
    std::optional<Cluster> larger = cluster.resized(count);
    if (larger && fits(model, *larger, options, batch))
      return count;
  }
  return 0;
}

/// The most devices of the cluster that some plan divides the batch among.
static int64_t mostDividingDevices(LayerModel &model, const Cluster &cluster,
                                   const PlannerOptions &options,
                                   int64_t batch) {
  const int64_t devices = cluster.deviceCount(), step = deviceStep(cluster);
  auto divides = [&](int64_t count) {
    std::optional<Cluster> smaller = cluster.resized(count);
    return smaller && fits(model, *smaller, options, batch);
  };
  // A search takes longer the more there are.
  const int64_t tries = std::min<int64_t>(mostTries, 4096 / devices + 1);
  for (int64_t i = 1; i <= tries && devices - i * step > 0; ++i)
    if (divides(devices - i * step))
      return devices - i * step;
  auto power = int64_t(llvm::bit_floor(uint64_t(devices - 1)));
  return devices > 1 && divides(power) ? power : 0;
}

void relaxDivision(LayerModel &model, const Cluster &cluster,
                   const PlannerOptions &options, int64_t batch,
                   Infeasible &infeasible) {
  infeasible.fittingDevices =
      mostDividingDevices(model, cluster, options, batch);
  if (infeasible.fittingDevices > 0)
    infeasible.relaxations.push_back(
        "use " + std::to_string(infeasible.fittingDevices) + " of the devices" +
        (options.objective == Objective::Executed ? " (--devices=any)" : ""));
  const int64_t devices = cluster.deviceCount();
  // Rows that ranks balance are two pieces a rank.
  const int64_t next = (batch / devices + 1) * devices;
  for (int64_t tried : {next, 2 * next})
    if (fits(model, cluster, options, tried)) {
      infeasible.fittingBatch = tried;
      infeasible.relaxations.push_back("use a batch of " +
                                       std::to_string(tried));
      return;
    }
}

void relaxInput(LayerModel &model, const Cluster &cluster,
                const PlannerOptions &options, int64_t batch,
                Infeasible &infeasible) {
  infeasible.fittingBatch = largestBatch(model, cluster, options, batch);
  if (infeasible.fittingBatch > 0)
    infeasible.relaxations.push_back("reduce the batch to " +
                                     std::to_string(infeasible.fittingBatch));
  infeasible.fittingDevices = fewestDevices(model, cluster, options, batch);
  if (infeasible.fittingDevices > 0)
    infeasible.relaxations.push_back(
        "use " + std::to_string(infeasible.fittingDevices) + " such devices");
}

} // namespace galvatron
