//===- Planner.cpp - From a model and a cluster to a plan -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlanSearch.h"
#include "PlannedOnly.h"

#include <numeric>

using namespace llvm;

namespace galvatron {

std::vector<int64_t> evenPartition(int64_t layers, int64_t stages) {
  std::vector<int64_t> sizes(stages, layers / stages);
  for (int64_t s = 0; s < layers % stages; ++s)
    ++sizes[s];
  return sizes;
}

std::vector<std::vector<int64_t>> stageDevices(int64_t devices,
                                               int64_t stages) {
  std::vector<std::vector<int64_t>> groups;
  int64_t size = devices / stages;
  for (int64_t s = 0; s < stages; ++s) {
    groups.emplace_back(size);
    std::iota(groups.back().begin(), groups.back().end(), s * size);
  }
  return groups;
}

Expected<PlannerResult> plan(LayerModel &model, const Cluster &cluster,
                             const PlannerOptions &options) {
  if (isExecutedSpace(options.space))
    return planner::planAmpExecuted(model, cluster, options);
  Expected<planner::Space> space =
      planner::getSpace(options, cluster.deviceCount());
  if (!space)
    return space.takeError();
  if (Error error =
          planner::applyPins(model, cluster.deviceCount(), options, *space))
    return error;
  if (Error error = planner::checkOptions(model, cluster, options, *space))
    return error;
  return planner::PlanSearch(model, cluster, options, std::move(*space)).run();
}

} // namespace galvatron
