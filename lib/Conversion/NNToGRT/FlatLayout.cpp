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

int64_t FlatLayout::parameterBytes() const {
  return (shardElements[0] + shardElements[1]) * elementBytes;
}
int64_t FlatLayout::gradientBytes() const {
  return (shardElements[0] + shardElements[1]) * accumulatorBytes;
}
int64_t FlatLayout::optimizerBytes(::galvatron::Optimizer optimizer) const {
  return ownedElements() * accumulatorBytes *
         getOptimizerValues(optimizer, elementBytes, accumulatorBytes);
}
int64_t FlatLayout::gatheredBytes() const {
  return alignBytes(elements[0] * elementBytes) +
         alignBytes(elements[1] * elementBytes);
}

FlatLayout grt::getFlatLayout(func::FuncOp function) {
  FlatLayout layout;
  ArrayRef<int64_t> borrowed;
  if (auto partition = mlir::galvatron::PartitionAttr::of(function)) {
    layout.shards = partition.getSdp();
    layout.stateShards = partition.getZdp();
    if (DenseI64ArrayAttr list = partition.getBorrowed())
      borrowed = list.asArrayRef();
  }

  int64_t parameter = 0;
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    if (nn::getArgRole(function, index) != nn::ValueRole::Parameter)
      continue;
    auto type = cast<RankedTensorType>(argument.getType());
    layout.elementBytes = type.getElementTypeBitWidth() / 8;
    layout.accumulatorBytes = layout.elementBytes == 8 ? 8 : 4;
    FlatTensor tensor;
    tensor.group = llvm::is_contained(borrowed, parameter++) ? 1 : 0;
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
    int64_t &end = layout.elements[tensor.group];
    tensor.offset = end;
    end += llvm::alignTo(tensor.elements(), unit);
  }
  for (int group : {0, 1}) {
    // Borrowed parameters are updated by nobody.
    int64_t parts = layout.shards * (group == 0 ? layout.stateShards : 1);
    layout.elements[group] =
        llvm::alignTo(layout.elements[group], unit * parts);
    layout.shardElements[group] = layout.elements[group] / layout.shards;
  }
  return layout;
}
