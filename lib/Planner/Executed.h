//===- Executed.h - Plans by their simulated time ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_EXECUTED_H
#define GALVATRON_LIB_PLANNER_EXECUTED_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Strategy/Plan.h"

namespace galvatron::planner {

/// What a step of a plan takes at least when it is executed, ms, whether its
/// stages gather ahead or not; of the plan only what checkPlan() reads. Errors:
/// those of simulationOutline().
llvm::Expected<double>
leastExecutedMs(LayerModel &model, const Cluster &cluster, const Plan &plan);

/// Sets iteration, throughput and bound of a priced plan to what the simulator
/// says of its step. Errors: those of simulationOutline() and simulate().
llvm::Error priceExecuted(LayerModel &model, const Cluster &cluster,
                          Plan &plan);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_EXECUTED_H
