//===- PlannedOnly.h - Spaces with planners of their own --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Spaces that are planned in a way of their own and shown with what else was
// looked at: AMP with its baseline (docs/amp.md), PipeDream-2BW (docs/2bw.md)
// and Harmony (docs/harmony.md), whose pipeline is compiled where forward and
// backward have micro-batches of one size. Nobody gets one unasked.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PLANNER_PLANNEDONLY_H
#define GALVATRON_PLANNER_PLANNEDONLY_H

#include "galvatron/Planner/Planner.h"

#include "llvm/Support/JSON.h"

#include <optional>
#include <string>

namespace galvatron {

struct PlannedOnly {
  /// Why there is no plan; then the rest is empty.
  std::optional<Infeasible> infeasible;
  /// The keys of a plan, and those of the schedule.
  llvm::json::Object json;
  /// A table that a person can read.
  std::string text;
};

/// Whether a space of plannedOnlySpaces() has plans that can be compiled: then
/// plan() makes them, too, and planOnly() shows what else was looked at.
bool isExecutedSpace(llvm::StringRef space);

/// Plans in one of plannedOnlySpaces(); with `simulate` the figure of an
/// event simulation is in the answer. Errors: no batch, options that have no
/// meaning there, for 2BW and Harmony a cluster of several kinds of devices,
/// and for Harmony one of several nodes.
llvm::Expected<PlannedOnly> planOnly(LayerModel &model, const Cluster &cluster,
                                     const PlannerOptions &options,
                                     bool simulate);

} // namespace galvatron

#endif // GALVATRON_PLANNER_PLANNEDONLY_H
