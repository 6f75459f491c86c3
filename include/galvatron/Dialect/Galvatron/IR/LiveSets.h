//===- LiveSets.h - Values alive between two layers -------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Layers are executed in their order, whatever graph their values form. A value
// that a layer makes and a later one uses passes the layers between them: it is
// alive at their boundaries, in their layouts, and they do not know of it.
// Prices, memory and exchanges follow from these sets, and the sets from uses.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_IR_LIVESETS_H
#define GALVATRON_DIALECT_GALVATRON_IR_LIVESETS_H

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

namespace mlir::galvatron {

/// The model's argument or the layer's result that `value` is, seen through
/// stages, transfers and reshards.
Value getOrigin(Value value);

/// Values alive at a boundary: the results of the layer in front of it in their
/// order, then what passes that layer, in the order of the boundary before.
using LiveSet = SmallVector<OpResult>;

/// The tensors alive in front of each layer. One more set than layers, the last
/// one is empty.
SmallVector<LiveSet> getLiveSets(ModelOp model);

/// Returns how many values of a set the layer in front of the boundary makes.
size_t countMade(const LiveSet &set, LayerOp layer);

/// Bytes of one sample, the first dimension, of a tensor.
int64_t getSampleBytes(Value value);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_IR_LIVESETS_H
