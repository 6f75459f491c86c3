//===- KeptPlan.h - What a plan's layers keep -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_KEPTPLAN_H
#define GALVATRON_LIB_PLANNER_KEPTPLAN_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Strategy/Plan.h"

namespace galvatron::planner {

/// Lets a model choose the points of its layers by the times of a cluster.
void setPointTimes(LayerModel &model, const Cluster &cluster);

/// Returns true if some layer has a body, whose values may be kept or not.
bool hasValues(LayerModel &model);

/// Error: two layers that are alike have one strategy and keep different
/// values, which no figures of the model could tell apart.
llvm::Error checkKept(const LayerModel &model, const Plan &plan);

/// Makes the values that the options name the one point of all layers that have
/// them, and gives these that point; what is left of the options plans with it.
/// Error: there is no strategy that is the same for all layers and keeps all
/// values, or a word that no layer has, with what there is.
llvm::Error forceKept(LayerModel &model, PlannerOptions &options);

/// Writes into the layers at points what they keep.
llvm::Error fillKept(LayerModel &model, Plan &plan);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_KEPTPLAN_H
