//===- NNVerify.h - Checks that verifiers of nn share -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shapes and types of values, and the messages where they are others: all have
// the form "expected 'name' ..., found ...".
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_NN_IR_NNVERIFY_H
#define GALVATRON_DIALECT_NN_IR_NNVERIFY_H

#include "galvatron/Dialect/NN/IR/NN.h"

namespace mlir::nn::verifiers {

/// The shape of a value.
inline ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

/// The shape of a value, of a block of rows that of what it is cut from.
SmallVector<int64_t> wholeShapeOf(Value value);

/// The type of the rows that `block` is one of, in blocks like it; `whole`
/// itself if `block` is none.
RankedTensorType cutLike(Value block, RankedTensorType whole,
                         int64_t positions);

/// The text of a shape: `[?, 64]`.
std::string printShape(ArrayRef<int64_t> shape);

/// `shape` with another last dimension.
SmallVector<int64_t> withLast(ArrayRef<int64_t> shape, int64_t last);

/// `shape` with the dimensions of `tail` behind it.
SmallVector<int64_t> append(ArrayRef<int64_t> shape, ArrayRef<int64_t> tail);

//===----------------------------------------------------------------------===//
// Checks of one value
//===----------------------------------------------------------------------===//

// Each emits an error at `op` that calls the value `name`, and fails, if the
// value is another than what is expected.

LogicalResult expectShape(Operation *op, StringRef name, Value value,
                          ArrayRef<int64_t> expected);
LogicalResult expectType(Operation *op, StringRef name, Value value,
                         Type expected);
LogicalResult expectRank(Operation *op, StringRef name, Value value,
                         size_t rank);
/// Expects at least one dimension.
LogicalResult expectVector(Operation *op, StringRef name, Value value);

using NamedValues = ArrayRef<std::pair<StringRef, Value>>;

/// The constraint on element types that NNOps.td states for all operations:
/// `values` have that of `like`, `statistics` its accumulator type. Null values
/// are optional operands that are not there.
LogicalResult expectElements(Operation *op, Value like, NamedValues values,
                             NamedValues statistics = {});

/// Expects the shape of `part` to be the last dimensions of that of `whole`.
LogicalResult expectTrailing(Operation *op, StringRef name, Value part,
                             Value whole);
/// Expects `starts`, if there are any, to have a number for each of so many
/// samples and positions.
LogicalResult expectStarts(Operation *op, Value starts, int64_t samples,
                           int64_t positions);
/// Expects a number of at least 0 and less than 1.
LogicalResult expectProbability(Operation *op, StringRef name, double p);

} // namespace mlir::nn::verifiers

#endif // GALVATRON_DIALECT_NN_IR_NNVERIFY_H
