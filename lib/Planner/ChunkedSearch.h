//===- ChunkedSearch.h - Plans with several chunks a stage ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_CHUNKEDSEARCH_H
#define GALVATRON_LIB_PLANNER_CHUNKEDSEARCH_H

#include "Spaces.h"

#include "galvatron/Planner/Planner.h"

namespace galvatron::planner {

/// Chunks of a stage that the options' schedule asks for; 1 for schedules of
/// whole stages.
int64_t chunksOf(const PlannerOptions &options);

/// The stage that needs most beyond its devices' shares of their hosts' memory,
/// if any does.
std::optional<Infeasible> fullHost(const Cluster &cluster, const Plan &plan,
                                   std::optional<int64_t> hostMemory);
/// Bytes of the host that a device of a stage may take, each an equal share of
/// its node's.
int64_t hostShare(const Cluster &cluster, llvm::ArrayRef<int64_t> devices,
                  std::optional<int64_t> hostMemory);

/// A plan for the options' schedule, whose stages have several chunks. A
/// heuristic that proves nothing (docs/search.md, "Chunks"); memory and time of
/// what it finds are those of evaluate().
llvm::Expected<PlannerResult> planChunked(LayerModel &model,
                                          const Cluster &cluster,
                                          const PlannerOptions &options,
                                          const Space &space);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_CHUNKEDSEARCH_H
