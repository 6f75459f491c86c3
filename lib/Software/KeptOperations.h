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

/// The cost of a norm that is not fused (to f32, power, mean, product, back,
/// weight): 16-bit values that it moves for each of its own besides the two of
/// a fused one.
inline constexpr double kUnfusedNorm = 16;

/// Makes a block one of Recompute::Operations: it keeps what attention gives,
/// the results of every second product in the order of the block, and those of
/// reduce-scatters, and computes the rest again in its backward pass
/// (torchtitan's SelectiveAC). `block`: of the configuration, as it is where
/// everything is kept.
void keepOperations(ProfileLayer &block, const ModelShape &shape,
                    const Configuration &configuration,
                    const Execution &execution);

/// Makes a block one of Recompute::Modules: without the results of its norms,
/// or what is behind its feed-forward's input, or both, which its backward pass
/// computes again, a module from its beginning to its end (Megatron-LM's
/// checkpoints of modules). Scores are not kept as `block` is given.
void recomputeModulesOf(ProfileLayer &block, const ModelShape &shape,
                        const Configuration &configuration,
                        const Execution &execution);

} // namespace galvatron

#endif // GALVATRON_LIB_SOFTWARE_KEPTOPERATIONS_H
