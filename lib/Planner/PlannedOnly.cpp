//===- PlannedOnly.cpp - Schedules without a runtime ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlannedOnly.h"

#include "galvatron/Cost/StageContents.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

using namespace llvm;

namespace galvatron {

static Error refuseInSpace(const PlannerOptions &options, const Twine &what) {
  return makeError("space '" + options.space + "': " + what);
}

Error planner::checkOwnOptions(LayerModel &model, const Cluster &cluster,
                               const PlannerOptions &options) {
  auto refuse = [&](const Twine &what) { return refuseInSpace(options, what); };
  if (!options.batch)
    return refuse("expected --batch, which is not searched");
  if (options.strategy)
    return refuse("expected no --strategy, its stages have one of their own");
  if (!options.pins.empty())
    return refuse("expected no --layers, its stages have one strategy");
  if (!options.partition.empty())
    return refuse("expected no --partition, it is searched");
  if (options.schedule)
    return refuse("expected no --schedule, it is the space's own");
  if (options.microBatchRule != MicroBatchRule::Search)
    return refuse("expected no --micro-batch-rule, all numbers are tried");
  if (options.space != "amp" && (options.placement || options.ring))
    return refuse("expected neither --placement nor --ring-link, which are of "
                  "space 'amp'");
  std::vector<int64_t> all(cluster.deviceCount());
  std::iota(all.begin(), all.end(), 0);
  return checkDevices(model, cluster, all);
}

bool isExecutedSpace(StringRef space) {
  return space == "amp" || space == "megatron-heuristic" ||
         planner::isHarmonySpace(space);
}

bool planner::isHarmonySpace(StringRef space) {
  return space == "harmony-pp" || space == "harmony-dp";
}

Expected<PlannedOnly> planOnly(LayerModel &model, const Cluster &cluster,
                               const PlannerOptions &options, bool simulate) {
  auto refuse = [&](const Twine &what) { return refuseInSpace(options, what); };
  if (!is_contained(plannedOnlySpaces(), options.space))
    return refuse("expected one of those that are planned only");
  if (Error error = planner::checkOwnOptions(model, cluster, options))
    return std::move(error);
  if (isExecutedSpace(options.space) && !planner::isHarmonySpace(options.space))
    return planner::planAmp(model, cluster, options);
  if (!cluster.isUniform())
    return refuse("expected devices of one type");
  if (options.space == "2bw")
    return planner::planTwoBuffers(model, cluster, options, simulate);
  if (options.pipelineDegree || options.microBatches)
    return refuse("expected neither --pipeline-degree nor --micro-batches, "
                  "packs and sizes are searched");
  if (cluster.nodeCount() > 1)
    return refuse("expected a cluster of one node, found " +
                  Twine(cluster.nodeCount()));
  return planner::planHarmony(model, cluster, options);
}

} // namespace galvatron
