//===- PlannedOnly.h - The planners behind planOnly() -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_PLANNEDONLY_H
#define GALVATRON_LIB_PLANNER_PLANNEDONLY_H

#include "galvatron/Planner/PlannedOnly.h"

namespace galvatron::planner {

llvm::Expected<PlannedOnly> planTwoBuffers(LayerModel &model,
                                           const Cluster &cluster,
                                           const PlannerOptions &options,
                                           bool simulate);
/// Whether options have a meaning in a space that is planned in its own way.
llvm::Error checkOwnOptions(LayerModel &model, const Cluster &cluster,
                            const PlannerOptions &options);
/// Spaces 'amp' and 'megatron-heuristic'.
llvm::Expected<PlannerResult> planAmpExecuted(LayerModel &model,
                                              const Cluster &cluster,
                                              const PlannerOptions &options);
/// The same with all candidates.
llvm::Expected<PlannedOnly> planAmp(LayerModel &model, const Cluster &cluster,
                                    const PlannerOptions &options);
/// "harmony-pp" or "harmony-dp".
bool isHarmonySpace(llvm::StringRef space);
/// These spaces as programs have them.
llvm::Expected<PlannerResult>
planHarmonyExecuted(LayerModel &model, const Cluster &cluster,
                    const PlannerOptions &options);
llvm::Expected<PlannedOnly> planHarmony(LayerModel &model,
                                        const Cluster &cluster,
                                        const PlannerOptions &options);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_PLANNEDONLY_H
