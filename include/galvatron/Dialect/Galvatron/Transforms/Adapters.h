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

/// A module of checkpoints whose weight can have no adapter, and why: words
/// that go on a sentence about it.
struct OtherModule {
  std::string name, why;
  bool isProduct; ///< its weight is one of products and of nothing else
};

/// The modules with weights that are none of `getProductModules`, in the order
/// of layers. Names of copies of a tied weight are among them.
SmallVector<OtherModule> getOtherModules(ModelOp model);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_ADAPTERS_H
