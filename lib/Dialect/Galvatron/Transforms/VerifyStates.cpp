//===- VerifyStates.cpp - States of values in local functions -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/Transforms/VerifyStates.h"
#include "AxisRanks.h"

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"
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
  AxisState stateOf(Value value) const { return states.find(value)->second; }

  /// States of parameters, and of arguments and results with role stash, in
  /// their order.
  SmallVector<AxisState> parameters, stashArguments, stashResults;

private:
  void set(Value value, AxisState state) {
    states.insert_or_assign(value, state);
  }
  InFlightDiagnostic error(Operation *op) const {
    return op->emitError() << "on axis '" << level.paradigm.name() << "': ";
  }

  LogicalResult visit(Operation *op);
  template <typename OpTy>
  LogicalResult visitConversion(OpTy op, AxisState from, AxisState to);
  /// True if ranks of another axis divide rows first, and this one's divide
  /// their blocks.
  bool cutsBlocks() const {
    SmallVector<size_t, 2> cuts =
        getRowAxes(PartitionAttr::of(function).getAxes());
    return cuts.size() > 1 && cuts.back() == axis;
  }
  LogicalResult visitFactors(nn::FactorOpInterface op);
  LogicalResult verifyHeads(nn::FactorOpInterface op,
                            std::optional<int> factor) const;
  LogicalResult visitDistances(Operation *op);
  LogicalResult visitReturn(Operation *op);

  func::FuncOp function;
  size_t axis;
  StrategyLevel level;
  DenseMap<Value, AxisState> states;
  /// How many ranks in front of this one the block of a value is, of those that
  /// ranks have passed on.
  DenseMap<Value, int64_t> distances;
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
        if (other.isRows()) {
          state = AxisState::split(dimInBlock(state.dim(), other.positions()));
          break; // a block of a block has the dimensions of the block
        }
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

/// Checks that an operation takes the blocks of the ranks whose it works on:
/// its own, but for steps of a ring.
LogicalResult AxisVerifier::visitDistances(Operation *op) {
  auto factors = dyn_cast<nn::FactorOpInterface>(op);
  auto shift = dyn_cast<ShiftOp>(op);
  const bool isPassed = level.paradigm->passesKeys();
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    if (shift)
      break;
    const int64_t found = distances.lookup(operand);
    const int64_t expected =
        factors && isPassed ? factors.getOperandDistance(unsigned(index)) : 0;
    if (found != expected)
      return error(op) << "expected operand " << index
                       << " to be the block of the rank " << expected
                       << " in front, found that of the rank " << found
                       << " in front";
  }
  if (shift && isPassed &&
      symbolizeAxis(level.paradigm->groupInside()) == shift.getAxis())
    distances[shift.getOutput()] =
        (distances.lookup(shift.getInput()) + 1) % level.degree;
  if (factors && isPassed)
    for (auto [index, result] : llvm::enumerate(op->getResults()))
      distances[result] = factors.getResultDistance(unsigned(index));
  return success();
}

LogicalResult AxisVerifier::visit(Operation *op) {
  using State = AxisState;
  if (failed(visitDistances(op)))
    return failure();
  // All-gather lists the terms behind a new dimension: the list is the same on
  // all ranks, too.
  if (auto reduce = dyn_cast<AllReduceOp>(op))
    return visitConversion(reduce, State::unreduced(), State::replicated());
  if (auto gather = dyn_cast<AllGatherOp>(op))
    return visitConversion(gather, State::unreduced(), State::replicated());
  auto rowsOf = [](Type block) {
    nn::RowsAttr rows = nn::RowsAttr::of(block);
    return State::rows(/*positions=*/1, rows && rows.getBalanced());
  };
  if (auto gather = dyn_cast<GatherRowsOp>(op))
    return visitConversion(gather, rowsOf(gather.getInput().getType()),
                           State::replicated());
  if (auto scatter = dyn_cast<ReduceScatterRowsOp>(op))
    return visitConversion(scatter, State::unreduced(),
                           rowsOf(scatter.getOutput().getType()));
  if (auto slice = dyn_cast<SliceRowsOp>(op))
    return visitConversion(slice, State::replicated(),
                           rowsOf(slice.getOutput().getType()));
  if (auto exchange = dyn_cast<AllToAllOp>(op)) {
    if (int64_t(exchange.getDim()) >= exchange.getPartType().getRank())
      return error(op) << "exchanges dimension " << exchange.getDim()
                       << ", which its value does not have";
    const State rows = rowsOf(exchange.getBlockType()),
                part = State::split(int64_t(exchange.getDim()));
    return exchange.isToRows() ? visitConversion(exchange, part, rows)
                               : visitConversion(exchange, rows, part);
  }
  if (auto shift = dyn_cast<ShiftOp>(op)) {
    const State rows = rowsOf(shift.getInput().getType());
    return visitConversion(shift, rows, rows);
  }
  if (auto term = dyn_cast<FirstTermOp>(op))
    return visitConversion(term, State::replicated(), State::unreduced());
  if (auto factors = dyn_cast<nn::FactorOpInterface>(op))
    return visitFactors(factors);
  if (op->getNumOperands() == 0 && op->getNumResults() == 0)
    return success(); // marks of sharded parameters
  return error(op) << "expected an operation with factors, found '"
                   << op->getName() << "'";
}

/// Brings a value from one state into another on the axis of the operation; on
/// other axes its state is what it was, behind more dimensions or fewer. A
/// block is not joined, or made, while blocks of it are what the ranks have.
template <typename OpTy>
LogicalResult AxisVerifier::visitConversion(OpTy op, AxisState from,
                                            AxisState to) {
  auto isOf = [&](const StrategyLevel &other) {
    return symbolizeAxis(other.paradigm->groupInside()) == op.getAxis();
  };
  if (llvm::none_of(PartitionAttr::of(function).getAxes(), isOf))
    return op->emitOpError() << "expected an axis of the function, found '"
                             << stringifyAxis(op.getAxis()) << "'";
  AxisState state = stateOf(op.getInput());
  if (!isOf(level)) {
    if (cutsBlocks() && state.isRows() && (from.isRows() || to.isRows()))
      return error(op) << "expected the blocks of a block to be joined before "
                          "it is, found a value that is "
                       << textOf(state);
    const int64_t newDimensions =
        op.getOutput().getType().getRank() - op.getInput().getType().getRank();
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
  if ((from.isRows() || to.isRows()) && rows.getSharers() != level.degree)
    return error(op) << "expected blocks of " << level.degree
                     << " ranks, found those of " << rows.getSharers();
  set(op.getOutput(), to);
  return success();
}

/// Checks that an operation whose heads the ranks have exchanged for rows
/// numbers them over these ranks, and no other does.
LogicalResult AxisVerifier::verifyHeads(nn::FactorOpInterface op,
                                        std::optional<int> factor) const {
  const nn::HeadCounts heads = op.getHeadCounts();
  if (heads.counts.empty())
    return success();
  auto exchanges = [](const StrategyLevel &other) {
    return other.paradigm->exchangesHeads();
  };
  // Where no axis exchanges heads, every one says so.
  if (!exchanges(level) &&
      llvm::any_of(PartitionAttr::of(function).getAxes(), exchanges))
    return success();
  const bool expected = exchanges(level) && factor == heads.factor;
  if (heads.ofBlocks == expected)
    return success();
  return error(op) << "expected heads that are " << (expected ? "" : "not ")
                   << "numbered over the ranks that have blocks of rows, found "
                   << (expected ? "none" : "'heads_of_blocks'");
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
      level.paradigm->dividesPositions() &&
      nn::RowsAttr::of(op->getResult(0).getType())) {
    factor = rule.results[0][1];
    takesRows = true;
    balanced = nn::RowsAttr::of(op->getResult(0).getType()).getBalanced();
  }
  if (takesRows && cutsBlocks() && op.countsPositions())
    return error(op) << "expected blocks that no other ranks have cut for an "
                        "operation that counts positions, found blocks of them";
  if (!factor && op.getSlicedFactor() != nn::kNoFactor &&
      level.paradigm->axis == ::galvatron::LayerAxis::Tensor)
    factor = op.getSlicedFactor();

  if (failed(verifyHeads(op, factor)))
    return failure();
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
  if (failed(visitDistances(op)))
    return failure();
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

/// All axes of a function.
using AxisVerifiers = SmallVector<AxisVerifier, 2>;

/// Checks that a value has the type of the block of rows that its states on all
/// axes say: how many ranks have one, and of what.
LogicalResult verifyBlock(func::FuncOp function, Operation *at, Value value,
                          const AxisVerifiers &axes) {
  ArrayRef<StrategyLevel> levels = PartitionAttr::of(function).getAxes();
  SmallVector<size_t, 2> cuts = getRowAxes(levels);
  int64_t degree = 1, within = 1;
  for (size_t axis : cuts) {
    if (!axes[axis].stateOf(value).isRows())
      continue;
    if (axis != cuts.front() && degree == 1)
      return at->emitError()
             << "expected blocks of '" << levels[axis].paradigm.name()
             << "' to be of blocks of '" << levels[cuts.front()].paradigm.name()
             << "', found them of all rows";
    within = degree;
    degree *= levels[axis].degree;
  }
  nn::RowsAttr rows = nn::RowsAttr::of(value.getType());
  const int64_t foundDegree = rows ? rows.getDegree() : 1;
  const int64_t foundWithin = rows ? rows.getWithin() : 1;
  if (degree != foundDegree || within != foundWithin)
    return at->emitError() << "expected one of " << degree
                           << " blocks of rows, cut from " << within
                           << ", as its states are, found one of "
                           << foundDegree << ", cut from " << foundWithin
                           << ": " << value.getType();
  return success();
}

/// Runs the verifiers of all axes of a function, and compares what they find of
/// blocks of rows.
FailureOr<AxisVerifiers> verifyFunction(func::FuncOp function) {
  AxisVerifiers axes;
  for (size_t i = 0, count = PartitionAttr::of(function).getAxes().size();
       i < count; ++i)
    if (failed(axes.emplace_back(function, i).run()))
      return failure();
  for (BlockArgument argument : function.getArguments())
    if (failed(verifyBlock(function, function, argument, axes)))
      return failure();
  for (Operation &op : function.getBody().front())
    for (Value result : op.getResults())
      if (failed(verifyBlock(function, &op, result, axes)))
        return failure();
  return axes;
}

} // namespace

LogicalResult mlir::galvatron::verifyStates(const LayerFunctions &functions) {
  FailureOr<AxisVerifiers> forwards = verifyFunction(functions.forward);
  if (failed(forwards))
    return failure();
  SmallVector<SmallVector<AxisState>> stashes;
  for (const AxisVerifier &forward : *forwards)
    stashes.push_back(forward.stashResults);
  for (func::FuncOp function : {functions.recompute, functions.backward}) {
    if (!function)
      continue;
    FailureOr<AxisVerifiers> others = verifyFunction(function);
    if (failed(others))
      return failure();
    ArrayRef<StrategyLevel> axes = PartitionAttr::of(function).getAxes();
    for (auto [axis, level] : llvm::enumerate(axes)) {
      const AxisVerifier &forward = (*forwards)[axis], &other = (*others)[axis];
      SmallVector<AxisState> &stash = stashes[axis];
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
