//===- Adapters.h - Products that may have adapters -------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_ADAPTERS_H
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_ADAPTERS_H

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

namespace mlir::galvatron {

/// A module of checkpoints whose weight is one of a product, and the layer that
/// it is in.
struct ProductModule {
  std::string name;
  LayerOp layer;
};

/// The products of a model by the names of their modules, in the order of
/// layers; each once.
SmallVector<ProductModule> getProductModules(ModelOp model);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_ADAPTERS_H
