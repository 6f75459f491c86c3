//===- KeptOperations.h - Recomputation by kinds of operations --*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SOFTWARE_KEPTOPERATIONS_H
#define GALVATRON_LIB_SOFTWARE_KEPTOPERATIONS_H

#include "galvatron/Cost/ProfileLayerModel.h"
#include "galvatron/Software/Configuration.h"
#include "galvatron/Software/Execution.h"

namespace galvatron {

/// Makes a block one of Recompute::Operations: it keeps what attention gives,
/// the results of every second product in the order of the block, and those of
/// reduce-scatters, and computes the rest again in its backward pass
/// (torchtitan's SelectiveAC). `block`: of the configuration, as it is where
/// everything is kept.
void keepOperations(ProfileLayer &block, const ModelShape &shape,
                    const Configuration &configuration,
                    const Execution &execution);

} // namespace galvatron

#endif // GALVATRON_LIB_SOFTWARE_KEPTOPERATIONS_H
