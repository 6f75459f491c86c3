//===- AmpPlacement.h - Other placements than the given one -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_AMPPLACEMENT_H
#define GALVATRON_LIB_PLANNER_AMPPLACEMENT_H

#include "AmpCosts.h"

namespace galvatron::planner {

/// Simulated annealing of the placements of the first few plans of a result:
/// two devices of different nodes change places. No plan gets slower. Errors:
/// those of AmpCosts::setShape().
llvm::Error annealPlacements(AmpResult &result, AmpCosts &costs,
                             const Cluster &cluster, const AmpProblem &problem);

/// Why Placement::Search has nothing to prove on a cluster.
llvm::Error checkPlacementSearch(const Cluster &cluster,
                                 const AmpProblem &problem);

/// The best placements of all shapes that may be better than the best plan so
/// far, in turn; sets the gap that is proven. Errors: those of
/// AmpCosts::setShape().
llvm::Error searchPlacements(AmpResult &result, AmpCosts &costs,
                             const Cluster &cluster, const AmpProblem &problem,
                             llvm::ArrayRef<AmpShape> shapes);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_AMPPLACEMENT_H
