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

/// Checks that the ranks of an axis can have blocks of the rows of a value,
/// which may be a block of another axis.
LogicalResult verifyCut(Operation *at, RankedTensorType whole,
                        ArrayRef<StrategyLevel> axes, size_t axis,
                        AxisState rows) {
  RowCut cut = {/*length=*/0, {axes[axis]}, rows.isBalanced()};
  int64_t samples = 0;
  if (auto block = nn::RowsAttr::of(whole)) {
    cut.levels.insert(cut.levels.begin(), axes[getRowAxes(axes).front()]);
    cut.length = block.getLength();
    samples = whole.isDynamicDim(0)
                  ? ShapedType::kDynamic
                  : whole.getDimSize(0) * block.getDegree() / cut.length;
  } else {
    if (whole.getRank() <= rows.positions())
      return at->emitError() << "expected samples and positions to have blocks "
                                "of, found "
                             << whole;
    cut.length = whole.getDimSize(rows.positions());
    samples = whole.getDimSize(0);
  }
  if (ShapedType::isDynamic(samples))
    return success();
  if (auto why = cut.whyNot(samples))
    return at->emitError() << *why;
  return success();
}

/// Gives a value the type of a rank's part: a split dimension has the size of
/// the largest part. The outermost axis splits first.
LogicalResult makeLocal(Operation *at, Value value, StateAttr state,
                        ArrayRef<StrategyLevel> axes) {
  auto tensor = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> shape(tensor.getShape());
  for (auto [axis, level] : llvm::zip_equal(state.getAxes(), axes))
    if (axis.isSplit())
      shape[axis.dim()] = llvm::divideCeil(shape[axis.dim()], level.degree);
  tensor = tensor.clone(shape);
  for (size_t axis : getRowAxes(axes)) {
    AxisState rows = state.getAxes()[axis];
    if (!rows.isRows())
      continue;
    if (failed(verifyCut(at, tensor, axes, axis, rows)))
      return failure();
    tensor = nn::cutRows(tensor, axes[axis].degree, rows.positions(),
                         rows.isBalanced());
  }
  value.setType(tensor);
  return success();
}

/// Converts values for the uses that ask for it. Each conversion of a value is
/// made once, in front of its first use, and changes no other use of the value.
class Conversions {
public:
  explicit Conversions(ArrayRef<StrategyLevel> axes) : axes(axes) {}

  /// Declares the state of a value; others are replicated.
  /// Called in front of `makeLocal`, for it notes the whole types.
  void declare(Value value, StateAttr state) {
    states[value] = state;
    wholes[value] = cast<RankedTensorType>(value.getType());
  }

  /// Gives what takes a value's place its state.
  void replace(Value value, Value by) {
    auto state = states.find(value);
    if (state == states.end())
      return;
    StateAttr attribute = state->second;
    RankedTensorType whole = wholes.lookup(value);
    states.erase(state);
    wholes.erase(value);
    states[by] = attribute;
    wholes[by] = whole;
  }

  /// Converts the operands that `sharding` lists.
  LogicalResult apply(Operation *op, ShardingAttr sharding) {
    for (const OperandState &use : sharding.getOperands()) {
      Value value = op->getOperand(use.operand);
      StateAttr from = states.lookup(value);
      for (size_t axis : orderOf(use.getState())) {
        AxisState target = use.getState().getAxes()[axis];
        AxisState found = from ? from.getAxes()[axis] : AxisState::replicated();
        if (found == target)
          continue;
        // Other positions than the second dimension have statistics alone,
        // which nothing converts.
        auto areFront = [](AxisState state) {
          return state.isRows() && state.positions() == 1;
        };
        // Parts are exchanged for rows, by which other states are reached.
        const bool exchanges = axes[axis].paradigm->exchangesHeads();
        bool isFromParts = exchanges && found.isSplit() && found.dim() > 1;
        bool isToParts = exchanges && target.isSplit() && target.dim() > 1 &&
                         (!found.isRows() || areFront(found));
        bool isToRows = areFront(target) && !found.isRows() &&
                        (!found.isSplit() || isFromParts);
        bool isToWhole = target.isReplicated() &&
                         (!found.isSplit() || isFromParts) &&
                         (!found.isRows() || areFront(found));
        bool isToTerm = target.isUnreduced() && found.isReplicated();
        if (!isToRows && !isToWhole && !isToTerm &&
            (!isToParts || found.isSplit()))
          return refuse(op, use.operand, found, target);
        if ((isToRows || isToParts || isFromParts) && !found.isRows() &&
            failed(verifyCut(op, cast<RankedTensorType>(value.getType()), axes,
                             axis, isToRows ? target : AxisState::rows())))
          return failure();
        value = convert(op, op->getOperand(use.operand), value, axis, found,
                        target);
      }
      op->setOperand(use.operand, value);
    }
    return success();
  }

private:
  /// The axes in the order in which a use's conversions are made: a block is
  /// cut from a block that is there, and joined before that is joined.
  SmallVector<size_t, 2> orderOf(StateAttr target) const {
    SmallVector<size_t, 2> order;
    SmallVector<size_t, 2> rows = getRowAxes(axes);
    if (rows.size() > 1) {
      order = rows;
      if (!target.getAxes()[rows.back()].isRows())
        std::reverse(order.begin(), order.end());
    }
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (!llvm::is_contained(order, axis))
        order.push_back(axis);
    return order;
  }

  /// A value, the axis of a conversion, and the state on it that is its target.
  using Key = std::tuple<Value, unsigned, Attribute>;

  /// The conversion to `target`, of the value, which is `declared` or a
  /// conversion of it on other axes, or of what another conversion has
  /// made of it: parts are exchanged for rows, rows of a sum that is there are
  /// a slice, and the sum of rows that are there is a gather.
  Value convert(Operation *op, Value declared, Value value, size_t axis,
                AxisState found, AxisState target) {
    auto made = [&](AxisState state) -> Value & {
      return done[{value, unsigned(axis),
                   StateAttr::get(op->getContext(), state)}];
    };
    if (Value converted = made(target))
      return converted;
    // Rows of a sum that some use has had scattered.
    auto madeRows = [&]() -> Value {
      for (bool balanced : {false, true})
        if (Value rows = made(AxisState::rows(1, balanced)))
          return rows;
      return {};
    };
    OpBuilder builder(op);
    AxisRanks ranks(axes[axis]);
    Location loc = op->getLoc();
    Value converted;
    if (found.isSplit()) {
      Value rows = made(AxisState::rows());
      if (!rows)
        rows = made(AxisState::rows()) =
            ranks.partsToRows(builder, loc, value, found.dim(),
                              sizeBeside(declared, axis, found.dim()));
      converted = target.isRows() ? rows : ranks.gatherRows(builder, loc, rows);
    } else if (target.isSplit()) {
      Value rows = found.isRows() ? value
                                  : convert(op, declared, value, axis, found,
                                            AxisState::rows());
      converted = ranks.rowsToParts(builder, loc, rows, target.dim());
    } else if (target.isUnreduced()) {
      converted = ranks.firstTerm(builder, loc, value);
    } else if (target.isRows()) {
      Value whole =
          found.isReplicated() ? value : made(AxisState::replicated());
      const bool balanced = target.isBalanced();
      converted = whole
                      ? ranks.sliceRows(builder, loc, whole, balanced)
                      : ranks.reduceScatterRows(builder, loc, value, balanced);
    } else {
      Value rows = found.isRows() ? value : madeRows();
      converted = rows ? ranks.gatherRows(builder, loc, rows)
                       : ranks.allReduce(builder, loc, value);
    }
    return made(target) = converted;
  }

  static LogicalResult refuse(Operation *op, int64_t operand, AxisState found,
                              AxisState target) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    stream << "from ";
    printState(stream, found);
    stream << " to ";
    printState(stream, target);
    return op->emitError() << "expected operand " << operand
                           << " to be summed, sliced, gathered or exchanged, "
                              "found a conversion "
                           << text;
  }

  /// The size of a dimension of a declared value on the ranks of `axis`: what
  /// other axes leave of it.
  int64_t sizeBeside(Value declared, size_t axis, int64_t dim) const {
    int64_t size = wholes.lookup(declared).getDimSize(dim);
    for (auto [other, state] :
         llvm::enumerate(states.lookup(declared).getAxes()))
      if (other != axis && state == AxisState::split(dim))
        size = llvm::divideCeil(size, axes[other].degree);
    return size;
  }

  ArrayRef<StrategyLevel> axes;
  DenseMap<Value, StateAttr> states;
  DenseMap<Value, RankedTensorType> wholes;
  DenseMap<Key, Value> done;
};

/// True if the function reads or writes parameters at all.
bool touchesParameters(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    if (nn::getArgRole(function, argument.getArgNumber()) ==
        nn::ValueRole::Parameter)
      return true;
  return false;
}

/// Makes steps of an operation whose keys and values the ranks of an axis pass
/// round, if there is such an axis.
void expandInRing(Operation *op, ArrayRef<StrategyLevel> axes,
                  Conversions &conversions) {
  auto factorOp = dyn_cast<nn::FactorOpInterface>(op);
  if (!factorOp || !factorOp.mixesPositions())
    return;
  for (const StrategyLevel &level : axes) {
    if (!level.paradigm->passesKeys())
      continue;
    OpBuilder builder(op);
    SmallVector<Value> values =
        factorOp.expandInRing(builder, AxisRanks(level));
    for (auto [result, value] : llvm::zip_equal(op->getResults(), values))
      conversions.replace(result, value);
    op->replaceAllUsesWith(values);
    op->erase();
    return;
  }
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
  ArrayRef<StrategyLevel> axes = partition.getAxes();
  Conversions conversions(axes);
  Block &block = function.getBody().front();
  for (BlockArgument argument : block.getArguments()) {
    SliceAttr slice = SliceAttr::of(function, argument.getArgNumber());
    if (!slice || !slice.getState())
      continue;
    conversions.declare(argument, slice.getState());
    if (failed(makeLocal(function, argument, slice.getState(), axes)))
      return failure();
  }

  for (Operation &op : llvm::make_early_inc_range(block)) {
    auto sharding = op.getAttrOfType<ShardingAttr>(ShardingAttr::attrName);
    if (!sharding)
      continue;
    op.removeAttr(ShardingAttr::attrName);
    if (failed(conversions.apply(&op, sharding)))
      return failure();
    for (auto [result, state] :
         llvm::zip_equal(op.getResults(), sharding.getResults())) {
      conversions.declare(result, state);
      if (failed(makeLocal(&op, result, state, axes)))
        return failure();
    }
    // The factor's number is that of the whole types' rule; local types have
    // the same one, since rules depend on ranks only.
    OpBuilder builder(&op);
    for (auto [axis, level] : llvm::enumerate(axes))
      if (int64_t factor = sharding.getFactor(axis); factor >= 0)
        if (failed(cast<nn::FactorOpInterface>(op).partition(
                builder, int(factor), AxisRanks(level))))
          return failure();
    expandInRing(&op, axes, conversions);
  }
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
