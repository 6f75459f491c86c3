//===- Baselines.h - Plans of published planners ----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TOOLS_GALVATRONPLAN_BASELINES_H
#define GALVATRON_TOOLS_GALVATRONPLAN_BASELINES_H

#include "Questions.h"

#include "galvatron/Pipelines/SimulateOption.h"
#include "galvatron/Pipelines/ToolOptions.h"

namespace galvatron {

/// Plans a layer profile in the space of a baseline and prints the answer;
/// returns the exit code.
int printBaseline(const Tool &tool, LayerModel &model, const Cluster &cluster,
                  const PlannerOptions &planner, const AmpOptions &amp,
                  const PlanOptions &options, const SimulateOption &simulate,
                  const Questions &questions);

} // namespace galvatron

#endif // GALVATRON_TOOLS_GALVATRONPLAN_BASELINES_H
