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

/// A plan for the options' schedule, whose stages have several chunks. A
/// heuristic, with a proven bound of all plans (docs/search.md, "Chunks");
/// memory and time of what it finds are those of evaluate().
llvm::Expected<PlannerResult> planChunked(LayerModel &model,
                                          const Cluster &cluster,
                                          const PlannerOptions &options,
                                          const Space &space);

/// Changes a plan of the options' schedule, kind of layer by kind of layer and
/// cut by cut, as long as that makes its simulated step shorter; what is proven
/// of the batch stays. Not if a faster plan is known.
void searchLocally(LayerModel &model, const Cluster &cluster,
                   const PlannerOptions &options, const Space &space,
                   PlannerResult &found);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_CHUNKEDSEARCH_H
