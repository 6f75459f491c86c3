//===- IdleDevices.h - Plans that leave devices idle ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A batch may divide badly among all devices of a cluster, and a step may be so
// short that messages between more devices cost more than they save. Plans of
// the first so many devices are then executed faster; the others stay idle.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PLANNER_IDLEDEVICES_H
#define GALVATRON_PLANNER_IDLEDEVICES_H

#include "galvatron/Planner/Planner.h"

namespace galvatron {

using PlanFunction = llvm::function_ref<llvm::Expected<PlannerResult>(
    const Cluster &, const PlannerOptions &)>;

/// Some of a cluster's devices that take less time for a batch than all do.
struct FewerDevices {
  int64_t devices = 0;
  double iterationMs = 0; ///< of their fastest plan
  int64_t batch = 0;

  llvm::json::Value toJson() const;
  /// "a batch of 24 does not divide among 5 devices: 4 of them take 12.448 ms
  /// (--devices=any)".
  std::string str(const Cluster &cluster) const;
};

/// The plan on fewer devices, by `planOn`, where a batch does not divide among
/// all: of the two largest numbers of devices that do divide it the one with
/// the faster plan, if that is executed faster than `chosen`. Nothing if
/// `options` allow idle devices, which then were tried already.
std::optional<FewerDevices> findFewerDevices(const Cluster &cluster,
                                             const PlannerOptions &options,
                                             const Plan &chosen,
                                             PlanFunction planOn);

namespace planner {

/// Plans with `planOn` for all devices and for fewer of them; the plan that is
/// executed fastest is taken, of equally fast ones that of most devices.
/// Errors: the nodes are not all alike, or those of the search for all devices.
llvm::Expected<PlannerResult> planIdle(LayerModel &model,
                                       const Cluster &cluster,
                                       const PlannerOptions &options,
                                       PlanFunction planOn);

} // namespace planner
} // namespace galvatron

#endif // GALVATRON_PLANNER_IDLEDEVICES_H
