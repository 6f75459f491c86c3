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

/// A lower bound of what any plan for the batch of a known one takes, ms: by
/// the rows and the memory of shared homes, of which each stage of a schedule
/// with whole stages is one by itself. At most the known plan's time, or that
/// of PlannerOptions::samplesPerSecondKnown; 0 if time was up.
double leastByRows(LayerModel &model, const Cluster &cluster,
                   const PlannerOptions &options, const Space &space,
                   const Plan &known);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_CHUNKEDSEARCH_H
