//===- RowKernels.cpp - Kernels that move blocks of rows ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowKernels.h"

#include "galvatron/Dialect/NN/IR/NN.h"

using namespace mlir;
using namespace mlir::grt;

void mlir::grt::dealRows(OpBuilder &builder, Location loc, Value from, Value to,
                         int64_t degree, bool back) {
  auto type = cast<MemRefType>(to.getType());
  const int64_t pieces = 2 * degree;
  const int64_t elements = type.getNumElements() / pieces;
  const int64_t bytes = elements * type.getElementTypeBitWidth() / 8;
  // Copies pieces, of both sides the first and how far the next is.
  auto copy = [&](int64_t count, int64_t inOrder, int64_t orderStride,
                  int64_t inBlocks, int64_t blockStride) {
    auto viewOf = [&](Value buffer, int64_t first, int64_t stride) -> Value {
      return ViewOp::create(
          builder, loc,
          MemRefType::get((stride * (count - 1) + 1) * elements,
                          type.getElementType()),
          buffer, first * bytes);
    };
    int64_t fromStride = back ? blockStride : orderStride;
    int64_t toStride = back ? orderStride : blockStride;
    Value source = viewOf(from, back ? inBlocks : inOrder, fromStride);
    Value target = viewOf(to, back ? inOrder : inBlocks, toStride);
    KernelOp::create(builder, loc, Kernel::Copy, ValueRange{source, target},
                     {count, bytes, fromStride * bytes, toStride * bytes}, {},
                     "deal_rows");
  };
  copy(degree, 0, 1, 0, 2);
  for (int64_t rank = 0; rank < degree; ++rank)
    copy(1, pieces - 1 - rank, 1, 2 * rank + 1, 1);
}

void mlir::grt::sliceRows(OpBuilder &builder,
                          mlir::galvatron::SliceRowsOp slice, Value whole,
                          Value block) {
  RankedTensorType type = slice.getOutput().getType();
  nn::RowsAttr rows = nn::RowsAttr::of(type);
  const int64_t blocks = rows.getDegree();
  const int64_t pieces = rows.getBalanced() ? 2 : 1;
  const int64_t elements = type.getNumElements() / pieces;
  const int64_t bytes = elements * type.getElementTypeBitWidth() / 8;
  auto viewOf = [&](Value buffer, ArrayRef<int64_t> shape,
                    int64_t first) -> Value {
    return ViewOp::create(builder, slice.getLoc(),
                          MemRefType::get(shape, type.getElementType()), buffer,
                          first * bytes);
  };
  for (int64_t piece = 0; piece < pieces; ++piece) {
    SmallVector<int64_t> ints = {/*rows=*/1, blocks, elements, /*ranks=*/1,
                                 /*back=*/0};
    if (slice.getAxis() == mlir::galvatron::Axis::CP)
      ints.push_back(/*ofBlocks=*/1 + piece);
    Value from = viewOf(whole, {blocks, elements}, piece * blocks);
    Value to = pieces > 1 ? viewOf(block, {elements}, piece) : block;
    KernelOp::create(builder, slice.getLoc(), Kernel::OwnPart,
                     ValueRange{from, to}, ints, {}, "slice_rows");
  }
}
