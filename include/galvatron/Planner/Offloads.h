//===- Offloads.h - Plans for several homes of states -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PLANNER_OFFLOADS_H
#define GALVATRON_PLANNER_OFFLOADS_H

#include "galvatron/Planner/IdleDevices.h"

namespace galvatron::planner {

/// Every home of states of a list by itself, by `planOn`; the plan that is
/// executed fastest is taken, of equally fast ones the first, and if none fits,
/// what is closest to it is told. The gap is of all plans that were asked for:
/// by the least of the searches' bounds, where each has one. Errors: an
/// objective that compares no such plans, and those of the first search.
llvm::Expected<PlannerResult> planEachOffload(const Cluster &cluster,
                                              const PlannerOptions &options,
                                              llvm::ArrayRef<Offload> offloads,
                                              PlanFunction planOn);

} // namespace galvatron::planner

#endif // GALVATRON_PLANNER_OFFLOADS_H
