//===- Passes.h - Gathers and sums of every micro-batch ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SOFTWARE_PASSES_H
#define GALVATRON_LIB_SOFTWARE_PASSES_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Software/Configuration.h"
#include "galvatron/Software/Execution.h"
#include "galvatron/Strategy/Plan.h"

namespace galvatron {

/// Milliseconds by which a step of one stage is shorter than the plan's. The
/// planner gathers sharded parameters in front of every forward and backward
/// pass and sums gradients behind every one. Under ZeRO-2 no backward pass
/// gathers, and where the software says so only one forward pass of a step
/// does; sums may wait for the last micro-batch. Counted in closed form, in
/// which communication overlaps computation layer by layer, and by as much less
/// as the planner's step, of streams, waits less for communication. 0 with
/// several stages. Errors are the model's, of a layer that cannot have the
/// strategy.
llvm::Expected<double> savedByPasses(LayerModel &model, const Cluster &cluster,
                                     const Plan &plan,
                                     const Configuration &configuration,
                                     const Execution &execution);

} // namespace galvatron

#endif // GALVATRON_LIB_SOFTWARE_PASSES_H
