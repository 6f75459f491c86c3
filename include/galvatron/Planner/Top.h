//===- Top.h - The best plans that differ -----------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Plans to measure beside the best one, as every prediction has an error: what
// is predicted a little slower may be faster. Plans that are nearly the same
// would be measured nearly the same, so no two of a list agree in all of
// schedule, pipeline degree, chunks of a stage, number of micro-batches, and
// the strategy in which their layers spend most time.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PLANNER_TOP_H
#define GALVATRON_PLANNER_TOP_H

#include "galvatron/Planner/Planner.h"

namespace galvatron {

/// Returns at most `count` plans that differ, `best` among them, all of its
/// batch; fastest first. `best` must be feasible, and found by plan() under
/// `options`. Each plan is the optimum of a shape and a set of paradigms (dp,
/// zdp, sdp, tp) under the formula that is searched. Fewer than `count` where
/// the space has no more, or where the search was cancelled.
llvm::Expected<std::vector<PlannerResult>>
planTop(LayerModel &model, const Cluster &cluster,
        const PlannerOptions &options, const PlannerResult &best, size_t count);

} // namespace galvatron

#endif // GALVATRON_PLANNER_TOP_H
