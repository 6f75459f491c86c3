//===- EachSchedule.h - The fastest plan of all schedules -------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_EACHSCHEDULE_H
#define GALVATRON_LIB_PLANNER_EACHSCHEDULE_H

#include "galvatron/Planner/IdleDevices.h"
#include "galvatron/Planner/Planner.h"

namespace galvatron::planner {

/// Plans every schedule by itself, with every number of chunks that it may
/// have, and takes the plan that is executed fastest; `planOn` plans one.
/// Schedules that know of the same faster plans are planned on several threads,
/// and which do does not depend on how many there are. The gap is of all
/// schedules. Error: none can be had, or whole stages cannot.
llvm::Expected<PlannerResult> planEachSchedule(LayerModel &model,
                                               const Cluster &cluster,
                                               const PlannerOptions &options,
                                               PlanFunction planOn);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_EACHSCHEDULE_H
