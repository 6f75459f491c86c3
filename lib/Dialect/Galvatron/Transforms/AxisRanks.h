//===- AxisRanks.h - The ranks of an axis of a function ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_DIALECT_GALVATRON_TRANSFORMS_AXISRANKS_H
#define GALVATRON_LIB_DIALECT_GALVATRON_TRANSFORMS_AXISRANKS_H

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/NN/IR/NN.h"

namespace mlir::galvatron {

/// The ranks of one axis, as operations see them.
class AxisRanks : public nn::ShardContext {
public:
  explicit AxisRanks(const StrategyLevel &level) : level(level) {}
  int64_t size() const override { return level.degree; }
  bool numbersParts() const override {
    return level.paradigm->groupInside() == "tp";
  }
  /// The executor's group that the ranks are.
  Axis group() const {
    std::optional<Axis> axis = symbolizeAxis(level.paradigm->groupInside());
    assert(axis && "the executor has a group of axes that communicate");
    return *axis;
  }
  Value allGather(OpBuilder &builder, Location loc,
                  Value value) const override {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape = {level.degree};
    shape.append(type.getShape().begin(), type.getShape().end());
    Attribute encoding = type.getEncoding();
    if (auto rows = nn::RowsAttr::of(type))
      encoding = nn::RowsAttr::get(type.getContext(), rows.getLength(),
                                   rows.getDegree(), rows.getBalanced(),
                                   rows.getBehind() + 1, rows.getWithin());
    return AllGatherOp::create(
        builder, loc,
        RankedTensorType::get(shape, type.getElementType(), encoding), value,
        group());
  }
  Value shift(OpBuilder &builder, Location loc, Value value) const override {
    return ShiftOp::create(builder, loc, value.getType(), value, group());
  }
  Value allReduce(OpBuilder &builder, Location loc, Value value) const {
    return AllReduceOp::create(builder, loc, value.getType(), value, group());
  }
  /// Joins the blocks of rows of all ranks.
  Value gatherRows(OpBuilder &builder, Location loc, Value block) const {
    auto type = cast<RankedTensorType>(block.getType());
    return GatherRowsOp::create(builder, loc, nn::joinRows(type), block,
                                group());
  }
  /// Sums the terms of all ranks, of which each keeps its block of rows.
  Value reduceScatterRows(OpBuilder &builder, Location loc, Value term,
                          bool balanced) const {
    return ReduceScatterRowsOp::create(builder, loc, blockType(term, balanced),
                                       term, group());
  }
  /// Takes a rank's block of rows.
  Value sliceRows(OpBuilder &builder, Location loc, Value whole,
                  bool balanced) const {
    return SliceRowsOp::create(builder, loc, blockType(whole, balanced), whole,
                               group());
  }
  /// Exchanges a block of rows for all rows of a part of dimension `dim` of the
  /// whole value.
  Value rowsToParts(OpBuilder &builder, Location loc, Value block,
                    int64_t dim) const {
    RankedTensorType whole =
        nn::joinRows(cast<RankedTensorType>(block.getType()));
    SmallVector<int64_t> shape(whole.getShape());
    std::optional<int64_t> part = AllToAllOp::partOf(shape[dim], level.degree);
    assert(part && "heads are divided among the ranks, or they share them");
    shape[dim] = *part;
    return AllToAllOp::create(builder, loc, whole.clone(shape), block, dim,
                              group());
  }
  /// Exchanges a part of dimension `dim` for a block of rows of all of it,
  /// which is `size` large.
  Value partsToRows(OpBuilder &builder, Location loc, Value part, int64_t dim,
                    int64_t size) const {
    auto type = cast<RankedTensorType>(part.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[dim] = size;
    return AllToAllOp::create(builder, loc,
                              nn::cutRows(type.clone(shape), level.degree),
                              part, dim, group());
  }
  /// Takes what all ranks have for a term of a sum.
  Value firstTerm(OpBuilder &builder, Location loc, Value whole) const {
    return FirstTermOp::create(builder, loc, whole.getType(), whole, group());
  }

private:
  RankedTensorType blockType(Value whole, bool balanced) const {
    return nn::cutRows(cast<RankedTensorType>(whole.getType()), level.degree,
                       /*positions=*/1, balanced);
  }

  StrategyLevel level;
};

} // namespace mlir::galvatron

#endif // GALVATRON_LIB_DIALECT_GALVATRON_TRANSFORMS_AXISRANKS_H
