//===- NNVerifyShapes.cpp - Checks that verifiers of nn share -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NNVerify.h"

using namespace mlir;
using namespace mlir::nn;
using namespace mlir::nn::verifiers;

SmallVector<int64_t> verifiers::wholeShapeOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  while (RowsAttr::of(type))
    type = joinRows(type);
  return llvm::to_vector(type.getShape());
}

RankedTensorType verifiers::cutLike(Value block, RankedTensorType whole,
                                    int64_t positions) {
  RowsAttr rows = RowsAttr::of(block.getType());
  if (!rows)
    return whole;
  if (rows.getWithin() > 1)
    whole = cutRows(whole, rows.getWithin(), positions, rows.getBalanced());
  return cutRows(whole, rows.getSharers(), positions, rows.getBalanced());
}

std::string verifiers::printShape(ArrayRef<int64_t> shape) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << '[';
  llvm::interleaveComma(shape, stream, [&](int64_t dim) {
    if (ShapedType::isDynamic(dim))
      stream << '?';
    else
      stream << dim;
  });
  stream << ']';
  return text;
}

LogicalResult verifiers::expectShape(Operation *op, StringRef name, Value value,
                                     ArrayRef<int64_t> expected) {
  if (shapeOf(value) == expected)
    return success();
  return op->emitOpError() << "expected '" << name << "' of shape "
                           << printShape(expected) << ", found "
                           << printShape(shapeOf(value));
}

LogicalResult verifiers::expectType(Operation *op, StringRef name, Value value,
                                    Type expected) {
  if (value.getType() == expected)
    return success();
  return op->emitOpError() << "expected '" << name << "' of type " << expected
                           << ", found " << value.getType();
}

LogicalResult verifiers::expectRank(Operation *op, StringRef name, Value value,
                                    size_t rank) {
  if (shapeOf(value).size() == rank)
    return success();
  return op->emitOpError() << "expected '" << name << "' of rank " << rank
                           << ", found " << value.getType();
}

LogicalResult verifiers::expectVector(Operation *op, StringRef name,
                                      Value value) {
  if (!shapeOf(value).empty())
    return success();
  return op->emitOpError() << "expected '" << name << "' of rank >= 1, found "
                           << value.getType();
}

LogicalResult verifiers::expectElements(Operation *op, Value like,
                                        NamedValues values,
                                        NamedValues statistics) {
  auto elementOf = [](Value value) {
    return cast<RankedTensorType>(value.getType()).getElementType();
  };
  Type compute = elementOf(like);
  Type accumulator = accumulatorElement(compute);
  for (auto [named, expected] :
       {std::pair(values, compute), std::pair(statistics, accumulator)})
    for (auto [name, value] : named)
      if (value && elementOf(value) != expected)
        return op->emitOpError() << "expected '" << name << "' of element type "
                                 << expected << ", found " << elementOf(value);
  return success();
}

LogicalResult verifiers::expectTrailing(Operation *op, StringRef name,
                                        Value part, Value whole) {
  ArrayRef<int64_t> tail = shapeOf(part), shape = shapeOf(whole);
  if (tail.size() <= shape.size() && shape.take_back(tail.size()) == tail)
    return success();
  return op->emitOpError() << "expected the shape of '" << name
                           << "' to be a trailing part of " << printShape(shape)
                           << ", found " << printShape(tail);
}

LogicalResult verifiers::expectProbability(Operation *op, StringRef name,
                                           double p) {
  if (p >= 0 && p < 1)
    return success();
  return op->emitOpError() << "expected '" << name << "' in [0, 1), found "
                           << p;
}

SmallVector<int64_t> verifiers::withLast(ArrayRef<int64_t> shape,
                                         int64_t last) {
  SmallVector<int64_t> result(shape.begin(), shape.end());
  result.back() = last;
  return result;
}

SmallVector<int64_t> verifiers::append(ArrayRef<int64_t> shape,
                                       ArrayRef<int64_t> tail) {
  SmallVector<int64_t> result(shape.begin(), shape.end());
  result.append(tail.begin(), tail.end());
  return result;
}

LogicalResult verifiers::expectStarts(Operation *op, Value starts,
                                      int64_t samples, int64_t positions) {
  if (!starts)
    return success();
  return expectShape(op, "starts", starts, {samples, positions});
}
