//===- SearchRound.h - Searches beside each other ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_SEARCHROUND_H
#define GALVATRON_LIB_PLANNER_SEARCHROUND_H

#include "galvatron/Planner/Planner.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <optional>
#include <vector>

namespace galvatron::planner {

/// The result of one search of a round; nothing if time was up, and a plan was
/// known, before it began.
using RoundResult = std::optional<llvm::Expected<PlannerResult>>;

/// Calls `plan` with the numbers below `count` on the threads of the options,
/// the first ones first. Each call gets the options with what is known of the
/// best plan so far, if there is one, and never of a plan of the same round: so
/// results are the same for any number of threads.
std::vector<RoundResult> planRound(
    const PlannerOptions &options, const std::optional<PlannerResult> &best,
    size_t count,
    llvm::function_ref<llvm::Expected<PlannerResult>(size_t, PlannerOptions)>
        plan);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_SEARCHROUND_H
