//===- FlatLayout.cpp - Flat storage of a layer's parameters --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Conversion/NNToGRT/NNToGRT.h"
#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

using namespace mlir;
using namespace mlir::grt;

/// The dimension in which an argument is split, or -1. The program's layout of
/// a tensor has one.
static int64_t splitDimOf(mlir::galvatron::SliceAttr slice) {
  int64_t dim = -1;
  if (slice.getState())
    for (mlir::galvatron::AxisState axis : slice.getState().getAxes())
      if (axis.isSplit()) {
        assert(dim < 0 && "parameters are split on one axis");
        dim = axis.dim();
      }
  return dim;
}

int64_t FlatTensor::elements() const {
  int64_t count = 1;
  for (int64_t dim : local)
    count *= dim;
  return count;
}

int64_t FlatLayout::elementsBefore(size_t bucket) const {
  int64_t count = 0;
  for (const FlatBucket &before : ArrayRef(buckets).take_front(bucket))
    count += before.elements;
  return count;
}
int64_t FlatLayout::shardElements() const {
  int64_t count = 0;
  for (const FlatBucket &bucket : buckets)
    count += bucket.shardElements;
  return count;
}
int64_t FlatLayout::trainedShardElements() const {
  int64_t count = 0;
  for (const FlatBucket &bucket : buckets)
    if (!bucket.frozen)
      count += bucket.shardElements;
  return count;
}
int64_t FlatLayout::borrowedShardElements() const {
  int64_t count = 0;
  for (const FlatBucket &bucket : buckets)
    if (bucket.borrowed && !bucket.frozen)
      count += bucket.shardElements;
  return count;
}
int64_t FlatLayout::updatedElements() const {
  int64_t count = 0;
  for (const FlatBucket &bucket : buckets)
    if (!bucket.borrowed && !bucket.frozen)
      count += bucket.shardElements / bucket.optimizerShards;
  return count;
}
int64_t FlatLayout::parameterBytes() const {
  return shardElements() * elementBytes;
}
int64_t FlatLayout::gradientBytes() const {
  return trainedShardElements() * accumulatorBytes;
}
int64_t FlatLayout::optimizerBytes(::galvatron::Optimizer optimizer) const {
  return updatedElements() * accumulatorBytes *
         getOptimizerValues(optimizer, elementBytes, accumulatorBytes);
}
int64_t FlatLayout::gatheredBytes() const {
  int64_t bytes = 0;
  for (const FlatBucket &bucket : buckets)
    bytes += alignBytes(bucket.elements * elementBytes);
  return bytes;
}

LogicalResult grt::verifyElementTypes(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    if (failed(verifyElementType(argument.getType(), [&] {
          return function.emitOpError()
                 << "argument " << argument.getArgNumber() << ": ";
        })))
      return failure();
  for (Operation &op : function.getBody().front())
    for (Type type : op.getResultTypes())
      if (failed(verifyElementType(type, [&] { return op.emitOpError(); })))
        return failure();
  return success();
}

FailureOr<FlatLayout> grt::getFlatLayout(func::FuncOp function) {
  FlatLayout layout;
  FlatBucket owned;
  ArrayRef<int64_t> borrowed;
  if (auto partition = mlir::galvatron::PartitionAttr::of(function)) {
    layout.shards = partition.getSdp();
    owned.optimizerShards = partition.getZdp();
    if (DenseI64ArrayAttr list = partition.getBorrowed())
      borrowed = list.asArrayRef();
  }
  // The owner updates tied parameters; the borrower keeps no shard of states.
  layout.buckets = {owned, FlatBucket{.borrowed = true}};
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (nn::isFrozen(function, i)) {
      layout.buckets.push_back({.frozen = true});
      layout.buckets.push_back({.borrowed = true, .frozen = true});
      break;
    }

  int64_t parameter = 0;
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    if (nn::getArgRole(function, index) != nn::ValueRole::Parameter)
      continue;
    auto type = cast<RankedTensorType>(argument.getType());
    Type element = type.getElementType();
    if (!element.isF32() && !element.isF64() && !element.isBF16())
      return function.emitOpError()
             << "expected parameters of f32, f64 or bf16, found " << type
             << " as argument " << index;
    if (layout.element && layout.element != element)
      return function.emitOpError()
             << "expected parameters of one element type, " << layout.element
             << ", found " << type << " as argument " << index;
    layout.element = element;
    layout.elementBytes = getElementBytes(element);
    layout.accumulatorBytes = element.isF64() ? 8 : 4;
    FlatTensor tensor;
    tensor.bucket = (llvm::is_contained(borrowed, parameter++) ? 1 : 0) +
                    (nn::isFrozen(function, index) ? 2 : 0);
    tensor.local.assign(type.getShape().begin(), type.getShape().end());
    auto slice = mlir::galvatron::SliceAttr::of(function, index);
    ArrayRef<int64_t> shape = slice && slice.getGlobalShape()
                                  ? slice.getGlobalShape().asArrayRef()
                                  : type.getShape();
    tensor.view.assign(shape.begin(), shape.end());
    tensor.tpDim = slice ? splitDimOf(slice) : -1;
    layout.tensors.push_back(tensor);
  }
  // The narrower of the two element types decides how many elements make 64
  // bytes in both.
  int64_t unit =
      kAlignment / std::min(layout.elementBytes, layout.accumulatorBytes);
  for (FlatTensor &tensor : layout.tensors) {
    int64_t &end = layout.buckets[tensor.bucket].elements;
    tensor.offset = end;
    end += llvm::alignTo(tensor.elements(), unit);
  }
  for (FlatBucket &bucket : layout.buckets) {
    bucket.elements = llvm::alignTo(
        bucket.elements, unit * layout.shards * bucket.optimizerShards);
    bucket.shardElements = bucket.elements / layout.shards;
  }
  return layout;
}
