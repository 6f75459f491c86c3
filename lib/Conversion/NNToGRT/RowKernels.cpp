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

void mlir::grt::exchangeRows(OpBuilder &builder,
                             mlir::galvatron::AllToAllOp exchange, Value from,
                             Value packed, Value to) {
  RankedTensorType type = exchange.getBlockType();
  const int64_t ranks = nn::RowsAttr::of(type).getSharers();
  // A block has its rows for samples and positions.
  ArrayRef<int64_t> shape = type.getShape();
  const size_t dim = size_t(exchange.getDim()) - 1;
  const int64_t rows = llvm::product_of(shape.take_front(dim));
  // Several ranks share a part where there are fewer.
  const int64_t sharing = std::max(int64_t(1), ranks / shape[dim]);
  const int64_t parts = ranks / sharing;
  const int64_t width = llvm::product_of(shape.drop_front(dim)) / parts;
  const int64_t bytes = width * type.getElementTypeBitWidth() / 8;
  const bool toRows = exchange.isToRows();
  auto send = [&](Value source, Value destination) {
    AllToAllOp::create(builder, exchange.getLoc(), source, destination,
                       static_cast<Axis>(exchange.getAxis()),
                       builder.getStringAttr("all_to_all"));
  };
  // A part of rows where all stand side by side, or of those that stand one
  // behind the other.
  auto viewOf = [&](Value buffer, int64_t first, int64_t stride) -> Value {
    return ViewOp::create(
        builder, exchange.getLoc(),
        MemRefType::get(stride * (rows - 1) + width, type.getElementType()),
        buffer, first * bytes);
  };
  auto copy = [&](Value sideBySide, Value behind, int64_t step) {
    for (int64_t rank = 0; rank < ranks; rank += step) {
      Value one = viewOf(sideBySide, rank / sharing, parts * width);
      Value other = viewOf(behind, rank * rows, width);
      SmallVector<int64_t> ints = {rows, bytes, parts * bytes, bytes};
      if (toRows) {
        std::swap(one, other);
        std::swap(ints[2], ints[3]);
      }
      KernelOp::create(builder, exchange.getLoc(), Kernel::Copy,
                       ValueRange{one, other}, ints, {}, "exchange_rows");
    }
  };
  if (toRows) {
    send(from, packed);
    for (int64_t rank = 0; rank < ranks; ++rank)
      if (rank % sharing != 0) {
        Value sum = viewOf(packed, rank / sharing * sharing * rows, width);
        Value term = viewOf(packed, rank * rows, width);
        KernelOp::create(builder, exchange.getLoc(), Kernel::Add,
                         ValueRange{sum, term, sum}, {rows * width}, {},
                         "exchange_rows");
      }
    copy(/*sideBySide=*/to, /*behind=*/packed, sharing);
  } else {
    copy(/*sideBySide=*/from, /*behind=*/packed, 1);
    send(packed, to);
  }
}

void mlir::grt::sliceRows(OpBuilder &builder,
                          mlir::galvatron::SliceRowsOp slice, Value whole,
                          Value block) {
  RankedTensorType type = slice.getOutput().getType();
  nn::RowsAttr rows = nn::RowsAttr::of(type);
  const int64_t blocks = rows.getSharers();
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
    else if (piece > 0)
      ints.push_back(/*ofBlocks=*/3);
    Value from = viewOf(whole, {blocks, elements}, piece * blocks);
    Value to = pieces > 1 ? viewOf(block, {elements}, piece) : block;
    KernelOp::create(builder, slice.getLoc(), Kernel::OwnPart,
                     ValueRange{from, to}, ints, {}, "slice_rows");
  }
}
