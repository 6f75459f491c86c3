//===- FewSamples.h - Batches below the step of a sweep ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A sweep begins with the batch of one step, eight samples unless asked
// otherwise. Of long samples these may be too many for the devices where one
// is not (docs/search.md, "Long samples").
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_FEWSAMPLES_H
#define GALVATRON_LIB_PLANNER_FEWSAMPLES_H

#include "galvatron/Planner/IdleDevices.h"
#include "galvatron/Planner/Planner.h"

namespace galvatron::planner {

/// Plans by `planOn`. A sweep of long samples whose first batch does not fit is
/// one of all batches below the usual step, if one of them fits. A refusal is
/// that of the batch that needs least.
llvm::Expected<PlannerResult> planFewSamples(LayerModel &model,
                                             const Cluster &cluster,
                                             const PlannerOptions &options,
                                             PlanFunction planOn);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_FEWSAMPLES_H
