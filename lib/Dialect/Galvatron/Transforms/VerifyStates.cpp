//===- VerifyStates.cpp - States of values in local functions -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/Transforms/VerifyStates.h"
#include "AxisRanks.h"

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

using namespace mlir;
using namespace mlir::galvatron;

namespace {

std::string textOf(AxisState state) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  printState(stream, state);
  return text;
}

/// Dimensions of a block of rows are numbered without the one of positions, of
/// which the slices of arguments and the rules of some operations speak. Gives
/// the number in the block.
int64_t dimInBlock(int64_t dim, int64_t positions) {
  return dim > positions ? dim - 1 : dim;
}

/// How a rule numbers the dimensions of a value.
class RuleDims {
public:
  /// `dims` are those of the rule, `positions` the factor of positions.
  RuleDims(ArrayRef<int> dims, Value value, int positions) {
    auto type = cast<RankedTensorType>(value.getType());
    if (nn::RowsAttr::of(type) && int64_t(dims.size()) > type.getRank())
      hidden = llvm::find(dims, positions) - dims.begin();
  }
  int64_t ofValue(int64_t dim) const {
    return hidden ? dimInBlock(dim, *hidden) : dim;
  }
  int64_t ofRule(int64_t dim) const {
    return hidden && dim >= *hidden ? dim + 1 : dim;
  }

private:
  /// The dimension of positions, if the rule has it and the value does not.
  std::optional<int64_t> hidden;
};

/// The factor of positions of an operation whose rule is of whole types: the
/// second of the first block of rows, as statistics, which have it last, come
/// behind others.
int positionsOf(nn::FactorOpInterface op, const nn::FactorRule &rule) {
  auto isOf = [](ArrayRef<int> dims, Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    return nn::RowsAttr::of(type) && int64_t(dims.size()) > type.getRank();
  };
  for (auto [dims, value] : llvm::zip_equal(rule.operands, op->getOperands()))
    if (isOf(dims, value))
      return dims[1];
  for (auto [dims, value] : llvm::zip_equal(rule.results, op->getResults()))
    if (isOf(dims, value))
      return dims[1];
  return nn::kNoFactor;
}

/// The values of one function on one of its axes.
class AxisVerifier {
public:
  AxisVerifier(func::FuncOp function, size_t axis)
      : function(function), axis(axis),
        level(PartitionAttr::of(function).getAxes()[axis]) {}

  LogicalResult run();

  /// States of parameters, and of arguments and results with role stash, in
  /// their order.
  SmallVector<AxisState> parameters, stashArguments, stashResults;

private:
  AxisState stateOf(Value value) const { return states.find(value)->second; }
  void set(Value value, AxisState state) {
    states.insert_or_assign(value, state);
  }
  InFlightDiagnostic error(Operation *op) const {
    return op->emitError() << "on axis '" << level.paradigm.name() << "': ";
  }

  LogicalResult visit(Operation *op);
  template <typename OpTy>
  LogicalResult visitConversion(OpTy op, AxisState from, AxisState to,
                                int64_t newDimensions);
  LogicalResult visitFactors(nn::FactorOpInterface op);
  LogicalResult visitReturn(Operation *op);

  func::FuncOp function;
  size_t axis;
  StrategyLevel level;
  DenseMap<Value, AxisState> states;
};

LogicalResult AxisVerifier::run() {
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    SliceAttr slice = SliceAttr::of(function, index);
    const size_t axes = PartitionAttr::of(function).getAxes().size();
    if (slice && slice.getState() && slice.getState().getAxes().size() != axes)
      return function.emitError()
             << "expected argument " << index << " to have a state on each of "
             << axes << " axes, found " << slice.getState().getAxes().size();
    AxisState state = slice ? slice.getStateOn(axis) : AxisState::replicated();
    bool isRows = slice && slice.getState() &&
                  llvm::any_of(slice.getState().getAxes(),
                               [](AxisState axis) { return axis.isRows(); });
    if (isRows && state.isSplit())
      for (AxisState other : slice.getState().getAxes())
        if (other.isRows())
          state = AxisState::split(dimInBlock(state.dim(), other.positions()));
    if (state.isSplit() &&
        state.dim() >= cast<RankedTensorType>(argument.getType()).getRank())
      return error(function) << "expected argument " << index
                             << " to be split in one of its dimensions, found "
                             << textOf(state);
    if (isRows != bool(nn::RowsAttr::of(argument.getType())))
      return error(function) << "expected argument " << index << ", which is "
                             << textOf(state) << ", to have the type "
                             << (isRows ? "of a block of rows" : "of all rows")
                             << ", found " << argument.getType();
    set(argument, state);
    nn::ValueRole role = nn::getArgRole(function, index);
    if (role == nn::ValueRole::Parameter)
      parameters.push_back(state);
    else if (role == nn::ValueRole::Stash)
      stashArguments.push_back(state);
  }
  Block &block = function.getBody().front();
  for (Operation &op : block.without_terminator())
    if (failed(visit(&op)))
      return failure();
  return visitReturn(block.getTerminator());
}

LogicalResult AxisVerifier::visit(Operation *op) {
  using State = AxisState;
  // All-gather lists the terms behind a new dimension: the list is the same on
  // all ranks, too.
  if (auto reduce = dyn_cast<AllReduceOp>(op))
    return visitConversion(reduce, State::unreduced(), State::replicated(), 0);
  if (auto gather = dyn_cast<AllGatherOp>(op))
    return visitConversion(gather, State::unreduced(), State::replicated(), 1);
  auto rowsOf = [](Type block) {
    nn::RowsAttr rows = nn::RowsAttr::of(block);
    return State::rows(/*positions=*/1, rows && rows.getBalanced());
  };
  if (auto gather = dyn_cast<GatherRowsOp>(op))
    return visitConversion(gather, rowsOf(gather.getInput().getType()),
                           State::replicated(), 1);
  if (auto scatter = dyn_cast<ReduceScatterRowsOp>(op))
    return visitConversion(scatter, State::unreduced(),
                           rowsOf(scatter.getOutput().getType()), -1);
  if (auto slice = dyn_cast<SliceRowsOp>(op))
    return visitConversion(slice, State::replicated(),
                           rowsOf(slice.getOutput().getType()), -1);
  if (auto exchange = dyn_cast<AllToAllOp>(op)) {
    if (int64_t(exchange.getDim()) >= exchange.getPartType().getRank())
      return error(op) << "exchanges dimension " << exchange.getDim()
                       << ", which its value does not have";
    const State rows = rowsOf(exchange.getBlockType()),
                part = State::split(int64_t(exchange.getDim()));
    return exchange.isToRows() ? visitConversion(exchange, part, rows, -1)
                               : visitConversion(exchange, rows, part, 1);
  }
  if (auto term = dyn_cast<FirstTermOp>(op))
    return visitConversion(term, State::replicated(), State::unreduced(), 0);
  if (auto factors = dyn_cast<nn::FactorOpInterface>(op))
    return visitFactors(factors);
  if (op->getNumOperands() == 0 && op->getNumResults() == 0)
    return success(); // marks of sharded parameters
  return error(op) << "expected an operation with factors, found '"
                   << op->getName() << "'";
}

/// Brings a value from one state into another on the axis of the operation; on
/// other axes its state is what it was, behind more dimensions or fewer.
template <typename OpTy>
LogicalResult AxisVerifier::visitConversion(OpTy op, AxisState from,
                                            AxisState to,
                                            int64_t newDimensions) {
  auto isOf = [&](const StrategyLevel &other) {
    return symbolizeAxis(other.paradigm->groupInside()) == op.getAxis();
  };
  if (llvm::none_of(PartitionAttr::of(function).getAxes(), isOf))
    return op->emitOpError() << "expected an axis of the function, found '"
                             << stringifyAxis(op.getAxis()) << "'";
  AxisState state = stateOf(op.getInput());
  if (!isOf(level)) {
    if (state.isSplit())
      state = AxisState::split(state.dim() + newDimensions);
    else if (state.isRows())
      state = AxisState::rows(state.positions() + newDimensions,
                              state.isBalanced());
    set(op.getOutput(), state);
    return success();
  }
  if (!(state == from))
    return error(op) << "expected "
                     << (from.isUnreduced() ? "a term of a sum"
                         : from.isRows()    ? from.isBalanced()
                                                  ? "a balanced block of rows"
                                                  : "a block of rows"
                         : from.isSplit()   ? "a part of a dimension"
                                            : "a replicated value")
                     << ", found a value that is " << textOf(state);
  auto rows = nn::RowsAttr::of(to.isRows() ? op.getOutput().getType()
                                           : op.getInput().getType());
  if ((from.isRows() || to.isRows()) && rows.getDegree() != level.degree)
    return error(op) << "expected blocks of " << level.degree
                     << " ranks, found those of " << rows.getDegree();
  set(op.getOutput(), to);
  return success();
}

LogicalResult AxisVerifier::visitFactors(nn::FactorOpInterface op) {
  nn::FactorRule rule = op.getFactorRule();
  // The factor that is split: of every operand that is, the same. Rows are the
  // first dimension of local types, or behind those that a gather over another
  // axis has put in front; where positions are mixed rules go by whole types,
  // and positions by their factor.
  const bool mixes = op.mixesPositions();
  auto rowFactorOf = [&](ArrayRef<int> dims, AxisState state) {
    return dims[mixes ? state.positions() : state.positions() - 1];
  };
  const int positions = positionsOf(op, rule);
  bool balanced = false;
  std::optional<int> factor;
  SmallVector<bool> terms;
  bool takesRows = false;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    AxisState state = stateOf(operand);
    terms.push_back(state.isUnreduced());
    if (!state.isSplit() && !state.isRows())
      continue;
    if (state.isRows() && takesRows && state.isBalanced() != balanced)
      return error(op) << "expected operand " << index
                       << " to be in the order of others, found it "
                       << textOf(state);
    takesRows |= state.isRows();
    balanced |= state.isBalanced();
    int own = state.isRows()
                  ? rowFactorOf(rule.operands[index], state)
                  : rule.operands[index][RuleDims(rule.operands[index], operand,
                                                  positions)
                                             .ofRule(state.dim())];
    if (own == nn::kNoFactor || own != factor.value_or(own) ||
        (takesRows && (!state.isRows() || !op.takesRows())))
      return error(op) << "expected operand " << index
                       << " in a state that matches the operation and its "
                          "other operands, found it "
                       << textOf(state);
    factor = own;
  }
  // Where all operands are whole, the type of the outputs says that they are
  // those of a block of queries.
  if (!factor && mixes && op.takesRows() &&
      level.paradigm->resting == ::galvatron::RestingState::Rows &&
      nn::RowsAttr::of(op->getResult(0).getType())) {
    factor = rule.results[0][1];
    takesRows = true;
    balanced = nn::RowsAttr::of(op->getResult(0).getType()).getBalanced();
  }
  if (!factor && op.getSlicedFactor() != nn::kNoFactor &&
      level.paradigm->axis == ::galvatron::LayerAxis::Tensor)
    factor = op.getSlicedFactor();

  bool takesTerms = llvm::is_contained(terms, true);
  if (takesTerms && (factor || !op.propagatesPartialSums(terms))) {
    size_t index = llvm::find(terms, true) - terms.begin();
    return error(op) << "expected operand " << index
                     << " to be summed, found a term of a sum";
  }
  if (factor)
    for (auto [index, operand] : llvm::enumerate(op->getOperands()))
      if (!stateOf(operand).isSplit() && !stateOf(operand).isRows() &&
          (!takesRows ||
           isa<FloatType>(getElementTypeOrSelf(operand.getType()))) &&
          llvm::is_contained(rule.operands[index], *factor))
        return error(op) << "expected operand " << index
                         << " to be split along its dimension as others are, "
                            "found it replicated";
  if (!factor && !op.mayBeReplicated(AxisRanks(level)))
    return error(op) << "expected an operand that is split, found all "
                        "replicated: the operation cannot be the same on all "
                        "ranks";

  for (auto [index, result] : llvm::enumerate(op->getResults())) {
    AxisState state =
        takesTerms ? AxisState::unreduced() : AxisState::replicated();
    if (factor) {
      auto *dim = llvm::find(rule.results[index], *factor);
      if (dim != rule.results[index].end())
        state =
            !takesRows ? AxisState::split(
                             RuleDims(rule.results[index], result, positions)
                                 .ofValue(dim - rule.results[index].begin()))
            : mixes
                ? AxisState::rows(dim - rule.results[index].begin(), balanced)
                : AxisState::rows(/*positions=*/1, balanced);
      else if (op.isPartialResult(index, *factor))
        state = AxisState::unreduced();
    }
    if (nn::RowsAttr rows = nn::RowsAttr::of(result.getType());
        rows && state.isRows() && rows.getBalanced() != state.isBalanced())
      return error(op) << "expected result " << index << ", which is "
                       << textOf(state) << ", to have the type of its order, "
                       << "found that of another";
    set(result, state);
  }
  return success();
}

LogicalResult AxisVerifier::visitReturn(Operation *op) {
  SmallVector<unsigned> trained = nn::getTrainedParameters(function);
  size_t gradient = 0;
  for (auto [index, value] : llvm::enumerate(op->getOperands())) {
    AxisState state = stateOf(value);
    nn::ValueRole role = nn::getResultRole(function, index);
    if (role == nn::ValueRole::Stash) {
      stashResults.push_back(state);
      continue;
    }
    AxisState expected = AxisState::replicated();
    if (role == nn::ValueRole::ParameterGradient) {
      if (gradient == trained.size())
        return error(op) << "expected a gradient for each of " << trained.size()
                         << " parameters, found another as result " << index;
      expected = parameters[trained[gradient++]];
      // The executor sums terms over positions, with those of samples.
      if (level.paradigm->dividesPositions())
        expected = AxisState::unreduced();
    }
    if (!(state == expected))
      return error(op) << "expected result " << index << " ("
                       << nn::stringifyRole(role) << ") to be "
                       << textOf(expected) << ", found " << textOf(state);
  }
  return success();
}

} // namespace

LogicalResult mlir::galvatron::verifyStates(const LayerFunctions &functions) {
  ArrayRef<StrategyLevel> axes = PartitionAttr::of(functions.forward).getAxes();
  for (auto [axis, level] : llvm::enumerate(axes)) {
    AxisVerifier forward(functions.forward, axis);
    if (failed(forward.run()))
      return failure();
    SmallVector<AxisState> stash = forward.stashResults;
    for (func::FuncOp function : {functions.recompute, functions.backward}) {
      if (!function)
        continue;
      AxisVerifier other(function, axis);
      if (failed(other.run()))
        return failure();
      auto disagrees = [&](StringRef what) {
        return function.emitError()
               << "on axis '" << level.paradigm.name() << "': expected " << what
               << " in the states that forward has them in, found others";
      };
      if (other.parameters != forward.parameters)
        return disagrees("parameters");
      if (function == functions.recompute)
        stash = other.stashResults;
      else if (other.stashArguments != stash)
        return disagrees("kept values");
    }
  }
  return success();
}
