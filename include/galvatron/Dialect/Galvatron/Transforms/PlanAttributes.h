//===- PlanAttributes.h - The plan as attributes ----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The plan of a module is its attributes: `galvatron.plan` on the module,
// `strategy` and `stage` on the layers. Here they are read and written as the
// planner's types.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PLANATTRIBUTES_H
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PLANATTRIBUTES_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Plan.h"

#include <memory>

namespace mlir::galvatron {

/// The training options of the module, or the defaults.
::galvatron::TrainingOptions getTrainingOptions(ModuleOp module);
TrainingAttr getTrainingAttr(MLIRContext *context,
                             const ::galvatron::TrainingOptions &options);

/// The layer model of the module's model: exact footprints from its bodies,
/// compiled for `cluster`, or estimates if its layers are opaque. `module` must
/// outlive it.
FailureOr<std::unique_ptr<::galvatron::LayerModel>>
createLayerModel(ModuleOp module, const ::galvatron::Cluster &cluster);

/// The module's cluster, or, if `nameOrPath` is given, that cluster, which then
/// becomes the module's. Fails, with a diagnostic, without either, or if the
/// two differ.
FailureOr<::galvatron::Cluster> resolveCluster(ModuleOp module,
                                               StringRef nameOrPath);

/// The devices of every stage of a plan for `deviceCount` devices: those that
/// it gives, or equal groups of consecutive ones. Fails, with a diagnostic, if
/// these are others than the cluster's or cannot be cut so.
FailureOr<std::vector<std::vector<int64_t>>>
getStageDevices(ModuleOp module, PlanAttr plan, int64_t deviceCount);

/// Whether the module has a complete or partial plan.
bool hasPlan(ModuleOp module);

/// The shape that the plan's schedule is made for. Layers name the chunk that
/// runs them as their stage: where there are more of those than the pipeline
/// has stages, stages have several chunks. Fails, with a diagnostic, if the
/// schedule cannot have that shape.
FailureOr<::galvatron::ScheduleShape> getScheduleShape(ModuleOp module);

/// The plan of the module for `cluster`: batch, schedule, stages with their
/// devices, and strategies; times and bytes are zero, and hashes empty, up to
/// where it is priced (evaluate). Fails, with a diagnostic,
/// if something is missing or does not fit together (Plan::check).
FailureOr<::galvatron::Plan> readPlan(ModuleOp module,
                                      const ::galvatron::Cluster &cluster);

/// Replaces the plan of the module. `memory` is the budget of every device that
/// the plan was made for, 0 for the devices' own. `predictedTimes` are those of
/// Simulate/, for the program's manifest.
void writePlan(ModuleOp module, const ::galvatron::Plan &plan, int64_t memory,
               const llvm::json::Value *predictedTimes = nullptr);

/// Writes a priced plan with its predicted times: what every planning entrance
/// does with its answer.
llvm::Error writePricedPlan(ModuleOp module, ::galvatron::LayerModel &model,
                            const ::galvatron::Cluster &cluster,
                            const ::galvatron::Plan &plan, int64_t memory);

/// Removes the plan: module attributes, strategies and stages.
void removePlan(ModuleOp module);

/// Sends the planner's decisions out as analysis remarks, folded.
void emitDecisions(Location loc, ArrayRef<std::string> decisions);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PLANATTRIBUTES_H
