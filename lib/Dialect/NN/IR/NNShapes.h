//===- NNShapes.h - Types and sizes of values -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Types and sizes of tensors, as kernels of the dialect's operations have them.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_DIALECT_NN_IR_NNSHAPES_H
#define GALVATRON_LIB_DIALECT_NN_IR_NNSHAPES_H

#include "galvatron/Dialect/NN/IR/NN.h"

namespace mlir::nn {

inline RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}
inline int64_t size(Value value) { return typeOf(value).getNumElements(); }
inline int64_t last(Value value) { return typeOf(value).getShape().back(); }

} // namespace mlir::nn

#endif // GALVATRON_LIB_DIALECT_NN_IR_NNSHAPES_H
