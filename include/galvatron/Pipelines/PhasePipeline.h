//===- PhasePipeline.h - Pipelines of the phases ----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PIPELINES_PHASEPIPELINE_H
#define GALVATRON_PIPELINES_PHASEPIPELINE_H

#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/Galvatron/Transforms/Phase.h"
#include "mlir/Pass/PassManager.h"

namespace galvatron {

using mlir::galvatron::Phase;

/// Appends the passes of one phase, and its verifier. `plan` matters to the
/// phase `plan` alone. The phase `emit` has no passes: a program is written by
/// emitProgram (Target/Program.h).
void buildPhasePipeline(
    mlir::OpPassManager &manager, Phase phase,
    const mlir::galvatron::GalvatronSelectPlanOptions &plan = {});

/// The phases after `from`, up to and including `to`: what takes the IR that
/// `--compile-to=from` prints to the IR that `--compile-to=to` prints; of
/// `emit` to IR that a program is made of and nobody reads.
void buildPhasePipelines(
    mlir::OpPassManager &manager, Phase from, Phase to,
    const mlir::galvatron::GalvatronSelectPlanOptions &plan = {});

/// Registers `--galvatron-pipeline=phase=partition` (one phase) and
/// `--galvatron-pipeline=from=plan to=partition` (several).
void registerPhasePipelines();

} // namespace galvatron

#endif // GALVATRON_PIPELINES_PHASEPIPELINE_H
