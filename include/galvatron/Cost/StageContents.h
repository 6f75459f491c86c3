//===- StageContents.h - The footprints of a plan's stages ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The stages that a given plan makes of a model, stage by stage, for all who
// price plans: the planner's evaluation and the simulator.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_COST_STAGECONTENTS_H
#define GALVATRON_COST_STAGECONTENTS_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Cost/StageMemory.h"

namespace galvatron {

/// Errors: one of `devices` has no flops for the model's element type, or the
/// model's times were not measured on its type.
llvm::Error checkDevices(LayerModel &model, const Cluster &cluster,
                         llvm::ArrayRef<int64_t> devices);

/// Errors: the plan is not sound, or not one of this model and cluster: other
/// layers, devices that do not exist or that checkDevices() refuses. Memory is
/// not looked at.
llvm::Error checkPlan(LayerModel &model, const Cluster &cluster,
                      const Plan &plan);

/// A stage as the memory formula sees it.
struct StageContents {
  std::vector<StageLayer> layers;
  StageShape shape;
};

/// Sets what layers of a stage, from `first` on under these strategies, have to
/// do with the boundaries around them.
void connectLayers(llvm::MutableArrayRef<StageLayer> layers,
                   llvm::ArrayRef<Strategy> strategies, const LayerModel &model,
                   size_t first);

/// A stage of a plan that checkPlan() finds good. Errors: a layer that cannot
/// have its strategy.
llvm::Expected<StageContents> stageContents(LayerModel &model,
                                            const Cluster &cluster,
                                            const Plan &plan, int64_t stage);

/// Marks the layers of a plan's stage whose sharded parameters are gathered
/// while the layer that runs before them computes: where the schedule may do so
/// (gathersAhead()) and there is something to gather outside the functions. The
/// budget is not looked at, see fitStage().
void markGathersAhead(StageContents &contents, const Plan &plan, int64_t stage);

/// The contention of every stage of a plan, see pipelineContention().
std::vector<CoreContention> planContention(const Cluster &cluster,
                                           const Plan &plan);

} // namespace galvatron

#endif // GALVATRON_COST_STAGECONTENTS_H
