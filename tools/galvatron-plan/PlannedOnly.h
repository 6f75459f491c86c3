//===- PlannedOnly.h - Schedules without a runtime --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TOOLS_GALVATRONPLAN_PLANNEDONLY_H
#define GALVATRON_TOOLS_GALVATRONPLAN_PLANNEDONLY_H

#include "Questions.h"

#include "galvatron/Pipelines/SimulateOption.h"
#include "galvatron/Pipelines/ToolOptions.h"

namespace galvatron {

/// Whether the space's plans are ones that nothing can compile.
bool isPlannedOnly(const PlannerOptions &planner);

/// Plans a layer profile in such a space and prints the answer; returns the
/// exit code.
int printPlannedOnly(const Tool &tool, LayerModel &model,
                     const Cluster &cluster, const PlannerOptions &planner,
                     const PlanOptions &options, const SimulateOption &simulate,
                     const Questions &questions);

} // namespace galvatron

#endif // GALVATRON_TOOLS_GALVATRONPLAN_PLANNEDONLY_H
