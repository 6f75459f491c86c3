//===- Budget.cpp - What memory a plan may take ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Budget.h"
#include "CostTables.h"

#include "galvatron/Search/PipelineSearch.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace llvm;

namespace galvatron::planner {

int64_t hostShare(const Cluster &cluster, ArrayRef<int64_t> devices,
                  std::optional<int64_t> hostMemory) {
  int64_t share = kAnyBytes;
  for (int64_t device : devices)
    if (hostMemory)
      share = std::min(
          share, *hostMemory /
                     cluster.nodeGroups()[cluster.nodeGroupOf(device)].devices);
  return share;
}

std::optional<Infeasible> fullHost(const Cluster &cluster, const Plan &plan,
                                   std::optional<int64_t> hostMemory) {
  std::optional<Infeasible> worst;
  for (auto [number, stage] : enumerate(plan.stages)) {
    int64_t needed = stage.hostLedger.total();
    int64_t share = hostShare(cluster, stage.devices, hostMemory);
    if (needed <= share ||
        (worst && needed - share <= worst->neededBytes - worst->availableBytes))
      continue;
    Infeasible infeasible;
    infeasible.reason = "the host's memory does not hold the states: stage " +
                        std::to_string(number) + " needs " +
                        std::to_string(needed) +
                        " bytes, a device's share is " + std::to_string(share);
    infeasible.stage = static_cast<int64_t>(number);
    infeasible.neededBytes = needed;
    infeasible.availableBytes = share;
    infeasible.ledger = stage.hostLedger;
    worst = std::move(infeasible);
  }
  return worst;
}

std::string availableText(const Cluster &cluster, ArrayRef<int64_t> devices,
                          std::optional<int64_t> memory) {
  int64_t available = cluster.budgetOf(devices, memory);
  if (available >= 0)
    return "available are " + std::to_string(available) + " bytes (" +
           printBytesRounded(available) + ")";
  auto least = llvm::min_element(devices, [&](int64_t a, int64_t b) {
    return cluster.budgetOf(a, memory) < cluster.budgetOf(b, memory);
  });
  int64_t reserved = cluster.memoryFor(*least, 0);
  return "none are available: of its " +
         printBytesRounded(available + reserved) + " a device reserves " +
         printBytesRounded(reserved) + " for contexts and communicators";
}

} // namespace galvatron::planner
