//===- IRLayerModel.h - Footprints by compiling layers ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// The planner's view of a model in IR. A footprint is not estimated: the layer
// function is differentiated, partitioned, converted to kernels and its
// temporaries are placed, by the same code that compiles the chosen plan, and
// the sizes are read off. FLOPs, moved bytes and collectives are counted on the
// same function.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_FOOTPRINT_IRLAYERMODEL_H
#define GALVATRON_FOOTPRINT_IRLAYERMODEL_H

#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

#include <memory>

namespace galvatron {

/// Builds the model; bodies are copied, `module` is not changed and may die.
/// `optimizer` ("adamw", "adam", "sgd") decides the optimizer state, `target`
/// the kernels' scratch. Fails on opaque layers and on
/// bodies without a gradient.
llvm::Expected<std::unique_ptr<LayerModel>>
createIRLayerModel(mlir::ModuleOp module, llvm::StringRef optimizer,
                   const mlir::grt::KernelTarget &target);

/// Gives the planning passes these models, by the galvatron dialect's
/// LayerModelInterface, and loads the dialects that they are compiled to.
void registerFootprints(mlir::DialectRegistry &registry);

} // namespace galvatron

#endif // GALVATRON_FOOTPRINT_IRLAYERMODEL_H
