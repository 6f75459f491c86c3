//===- InsertCollectives.cpp - Collectives and reshards -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AxisRanks.h"

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"
#include "galvatron/Strategy/Strategy.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONINSERTCOLLECTIVES
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

RankedTensorType localType(Type type, int64_t dim, int64_t degree) {
  auto tensor = cast<RankedTensorType>(type);
  if (dim < 0)
    return tensor;
  SmallVector<int64_t> shape(tensor.getShape());
  shape[dim] = (shape[dim] + degree - 1) / degree;
  return tensor.clone(shape);
}

/// Converts values for the uses that ask for it. Each conversion of a value is
/// made once, in front of its first use, and changes no other use of the value.
class Conversions {
public:
  /// Converts the operands that `op` lists.
  void apply(Operation *op) {
    auto sharding = op->getAttrOfType<ShardingAttr>(ShardingAttr::attrName);
    DenseI64ArrayAttr list = sharding ? sharding.getReduce() : nullptr;
    if (!list)
      return;
    OpBuilder builder(op);
    for (int64_t index : list.asArrayRef()) {
      Value value = op->getOperand(index);
      Value &sum = converted[{value, Axis::TP}];
      if (!sum)
        sum = AllReduceOp::create(builder, op->getLoc(), value.getType(), value,
                                  Axis::TP);
      op->setOperand(index, sum);
    }
  }

private:
  /// The sums over an axis, by value.
  DenseMap<std::pair<Value, Axis>, Value> converted;
};

/// True if the function reads or writes parameters at all.
bool touchesParameters(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    if (nn::getArgRole(function, argument.getArgNumber()) ==
        nn::ValueRole::Parameter)
      return true;
  return false;
}

struct InsertCollectivesPass
    : mlir::galvatron::impl::GalvatronInsertCollectivesBase<
          InsertCollectivesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (auto function : module.getOps<func::FuncOp>())
      if (PartitionAttr::of(function) && failed(insertCollectives(function)))
        return signalPassFailure();
    for (auto model : module.getOps<ModelOp>()) {
      LayerOp before;
      for (LayerOp layer : model.getLayers()) {
        if (before && before->getBlock() == layer->getBlock())
          insertReshards(before, layer);
        before = layer;
      }
    }
  }

  /// Brings what is alive between two neighbouring layers from the layout of
  /// the one to that of the other, where sample layouts differ: what this layer
  /// and those behind it use, or what leaves the stage.
  void insertReshards(LayerOp before, LayerOp layer) {
    StrategyAttr from = before.getStrategyAttr(), to = layer.getStrategyAttr();
    if (!from || !to ||
        from.toStrategy().sampleLayout() == to.toStrategy().sampleLayout())
      return;
    auto isBehind = [&](Operation *user) {
      return user == layer || layer->isBeforeInBlock(user);
    };
    SetVector<Value> alive;
    for (Operation *op = layer; op; op = op->getNextNode())
      for (Value operand : op->getOperands()) {
        Operation *source = operand.getDefiningOp();
        if (isa_and_nonnull<LayerOp, ReshardOp, TransferOp>(source) &&
            (source->getBlock() != layer->getBlock() ||
             source->isBeforeInBlock(layer)))
          alive.insert(operand);
      }
    OpBuilder builder(layer);
    for (Value value : alive) {
      Value moved = ReshardOp::create(builder, layer.getLoc(), value.getType(),
                                      value, from, to);
      value.replaceUsesWithIf(moved, [&](OpOperand &use) {
        return use.getOwner()->getBlock() == layer->getBlock() &&
               isBehind(use.getOwner());
      });
    }
  }
};

} // namespace

LogicalResult mlir::galvatron::insertCollectives(func::FuncOp function) {
  PartitionAttr partition = PartitionAttr::of(function);
  int64_t degree = partition.getTp();
  AxisRanks shards(degree);
  Conversions conversions;
  Block &block = function.getBody().front();
  for (BlockArgument argument : block.getArguments())
    if (auto slice = function.getArgAttrOfType<SliceAttr>(
            argument.getArgNumber(), SliceAttr::attrName))
      argument.setType(localType(argument.getType(), slice.getDim(), degree));

  for (Operation &op : llvm::make_early_inc_range(block.without_terminator())) {
    // The factor's number is that of the whole types' rule; local types have
    // the same one, since rules depend on ranks only.
    conversions.apply(&op);
    auto sharding = op.getAttrOfType<ShardingAttr>(ShardingAttr::attrName);
    op.removeAttr(ShardingAttr::attrName);
    if (!sharding)
      continue;
    for (auto [result, dim] :
         llvm::zip_equal(op.getResults(), sharding.getResults().asArrayRef()))
      result.setType(localType(result.getType(), dim, degree));
    if (sharding.getFactor() < 0)
      continue;
    OpBuilder builder(&op);
    if (failed(cast<nn::FactorOpInterface>(op).partition(
            builder, int(sharding.getFactor()), shards)))
      return failure();
  }
  conversions.apply(block.getTerminator());
  block.getTerminator()->removeAttr(ShardingAttr::attrName);
  // The factors speak of whole shapes; slices stay.
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    function.removeArgAttr(i, nn::kFactorsAttr);
  function.setType(FunctionType::get(function.getContext(),
                                     block.getArgumentTypes(),
                                     block.getTerminator()->getOperandTypes()));

  if (partition.getSdp() > 1 && touchesParameters(function)) {
    OpBuilder builder = OpBuilder::atBlockBegin(&block);
    if (!partition.getGathered())
      GatherParametersOp::create(builder, function.getLoc(), Axis::SDP);
    builder.setInsertionPoint(block.getTerminator());
    if (partition.getDirection() == Direction::Backward)
      ReduceScatterGradientsOp::create(builder, function.getLoc(), Axis::SDP);
  }
  return success();
}
