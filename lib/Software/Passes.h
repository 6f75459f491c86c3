//===- Passes.h - Gathers and sums of every micro-batch ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SOFTWARE_PASSES_H
#define GALVATRON_LIB_SOFTWARE_PASSES_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Software/Bounds.h"
#include "galvatron/Software/Configuration.h"

#include <optional>

namespace galvatron {

/// The gathers and sums of a configuration whose software has less of them than
/// the planner, which gathers sharded parameters in front of every forward and
/// backward pass and sums gradients behind every one; nothing where it has not
/// less. Under ZeRO-2 no backward pass gathers, and where the software says so
/// only one forward pass of a step does; sums may wait for the last
/// micro-batch. Nothing with several stages. `model`: of softwareModel();
/// `links`: of the strategy on all devices, the same whether a layer is
/// recomputed. Errors are the model's, of a layer that cannot have the
/// strategy.
llvm::Expected<std::optional<PassSumsEither>>
passSums(LayerModel &model, const Cluster &cluster, const StrategyLinks &links,
         const Configuration &configuration, const Execution &execution);

/// Seconds by which a step is shorter than the planner's, of streams, without
/// its update: the sums' difference, and by as much less as that step waits
/// less for communication. Never grows faster than the step.
double savedSeconds(const PassSums &sums, double stepSeconds);

} // namespace galvatron

#endif // GALVATRON_LIB_SOFTWARE_PASSES_H
