//===- LayerModelInterface.h - Where footprints come from -------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Footprints are made by compiling layers to kernels, which stands above the
// dialects (lib/Footprint). The planning passes, which stand below, get them
// by this interface of the galvatron dialect: galvatron::registerFootprints()
// attaches it when a context is made.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_LAYERMODELINTERFACE_H
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_LAYERMODELINTERFACE_H

#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "mlir/IR/DialectInterface.h"

#include <memory>

namespace mlir::galvatron {

class LayerModelInterface : public DialectInterface::Base<LayerModelInterface> {
public:
  explicit LayerModelInterface(Dialect *dialect) : Base(dialect) {}

  /// Creates the layer model of the module's model, whose layers have bodies.
  /// The module may die before the answer. `optimizer` decides the optimizer
  /// state; `backend` and the `threads` of a device the kernels' scratch.
  virtual llvm::Expected<std::unique_ptr<::galvatron::LayerModel>>
  create(ModuleOp module, StringRef optimizer, StringRef backend,
         int64_t threads) const = 0;
};

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_LAYERMODELINTERFACE_H
