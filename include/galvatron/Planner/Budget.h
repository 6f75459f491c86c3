//===- Budget.h - What memory a plan may take -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_BUDGET_H
#define GALVATRON_LIB_PLANNER_BUDGET_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Planner/Planner.h"

#include <optional>
#include <string>

namespace galvatron::planner {

/// The stage that needs most beyond its devices' shares of their hosts' memory,
/// if any does.
std::optional<Infeasible> fullHost(const Cluster &cluster, const Plan &plan,
                                   std::optional<int64_t> hostMemory);
/// Bytes of the host that a device of a stage may take, each an equal share of
/// its node's.
int64_t hostShare(const Cluster &cluster, llvm::ArrayRef<int64_t> devices,
                  std::optional<int64_t> hostMemory);

/// "available are 5 bytes (5 B)", or, where the devices reserve all the memory
/// that they have or that `memory` gives them, what they reserve of it.
std::string availableText(const Cluster &cluster,
                          llvm::ArrayRef<int64_t> devices,
                          std::optional<int64_t> memory);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_BUDGET_H
