//===- FactorPropagation.cpp - States of a function's values --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FactorPropagation.h"
#include "AxisRanks.h"

#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Dialect/NN/IR/WholeSamples.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

using namespace mlir;
using namespace mlir::galvatron;

int64_t mlir::galvatron::getSplitDim(func::FuncOp function, unsigned argument,
                                     ::galvatron::LayerAxis axis) {
  auto factors =
      function.getArgAttrOfType<ArrayAttr>(argument, nn::kFactorsAttr);
  if (factors && axis == ::galvatron::LayerAxis::Tensor)
    for (auto [dim, name] : llvm::enumerate(factors))
      if (!cast<StringAttr>(name).empty())
        return int64_t(dim);
  return -1;
}

namespace {

class Propagation {
public:
  Propagation(func::FuncOp function, bool balanced)
      : function(function), axes(PartitionAttr::of(function).getAxes()),
        hasWork(sumsProducts(function) || hasGradients(function)),
        balanced(balanced) {
    rowAxes = getRowAxes(axes);
    order = rowAxes;
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (!llvm::is_contained(order, axis))
        order.push_back(axis);
  }

  LogicalResult run(ArrayRef<AxisStates> stash);

  /// States of the results with role stash, in order.
  SmallVector<AxisStates> stashStates;

private:
  /// The rule by which one axis cuts one operation.
  struct Rules {
    int factor = nn::kNoFactor;
    /// Operands that are converted before this use, each with its target.
    SmallVector<std::pair<int64_t, AxisState>> conversions;
    SmallVector<AxisState> results;
    bool takesRows = false; ///< blocks of rows of its operands
    bool any() const {
      return factor != nn::kNoFactor || !conversions.empty() ||
             !llvm::all_of(
                 results, [](AxisState state) { return state.isReplicated(); });
    }
  };

  AxisState stateOf(Value value, size_t axis) const {
    return states.find(value)->second[axis];
  }
  bool isConverted(Value value, size_t axis) const {
    return converted.contains({value, axis});
  }
  bool restsInRows(size_t axis) const {
    return axes[axis].paradigm->resting == ::galvatron::RestingState::Rows;
  }
  bool dividesPositions(size_t axis) const {
    return axes[axis].paradigm->dividesPositions();
  }
  /// True if the ranks of an axis share out positions: what is whole is cut by
  /// the first operation that takes rows, where the function has work to share.
  bool sharesPositions(size_t axis) const {
    return hasWork && dividesPositions(axis);
  }
  /// True if the ranks of an axis divide heads where positions are mixed.
  bool exchangesHeads(size_t axis) const {
    return axes[axis].paradigm->exchangesHeads();
  }
  /// The axis whose blocks of rows the ranks of this one cut again; nothing if
  /// theirs are of all rows.
  std::optional<size_t> getOuter(size_t axis) const {
    if (rowAxes.size() > 1 && axis != rowAxes.front() && restsInRows(axis))
      return rowAxes.front();
    return std::nullopt;
  }
  /// True if the ranks of an axis pass keys and values of the operation round.
  bool passesKeys(size_t axis, nn::FactorOpInterface op) const {
    return axes[axis].paradigm->passesKeys() && sharesPositions(axis) &&
           op.mixesPositions();
  }
  /// Late positions are as much work as others where all of a sample are on
  /// every rank. A block is cut as the blocks of its kind are.
  AxisState rowsOn(size_t axis, int64_t positions = 1) const {
    const size_t first = getOuter(axis).value_or(axis);
    return AxisState::rows(positions, balanced && dividesPositions(first) &&
                                          !exchangesHeads(first));
  }
  static bool sumsProducts(func::FuncOp function);
  /// True if the function gives gradients of parameters, which are terms of
  /// sums over the ranks that divide positions.
  static bool hasGradients(func::FuncOp function) {
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (nn::getResultRole(function, i) == nn::ValueRole::ParameterGradient)
        return true;
    return false;
  }
  /// True if there are fewer heads, dimension `dim` of a value, than ranks:
  /// each goes to several, so that a block of rows is less to keep.
  bool repeatsHeads(size_t axis, Value value, int64_t dim) const {
    int64_t heads = cast<RankedTensorType>(value.getType()).getDimSize(dim);
    for (auto [other, level] : llvm::enumerate(axes))
      if (other != axis && stateOf(value, other) == AxisState::split(dim))
        heads = llvm::divideCeil(heads, level.degree);
    return heads < axes[axis].degree;
  }
  /// Lists the conversion of a use, unless the value is in the state.
  void convert(Rules &rules, size_t axis, int64_t operand, Value value,
               AxisState target) {
    if (stateOf(value, axis) == target)
      return;
    rules.conversions.push_back({operand, target});
    converted.insert({value, axis});
  }

  void visitArgument(BlockArgument argument, const AxisStates &state);
  LogicalResult visit(Operation *op);
  LogicalResult visitReturn(Operation *op);

  FailureOr<Rules> rulesOn(size_t axis, nn::FactorOpInterface op,
                           const nn::FactorRule &rule, bool hasOuterRows);
  AxisState stashStateOf(Value value, size_t axis, bool hasOuterRows) const;
  LogicalResult verifyInRing(size_t axis, nn::FactorOpInterface op) const;
  LogicalResult verifyUncut(size_t axis, nn::FactorOpInterface op,
                            bool isCut) const;
  FailureOr<int> findFactor(size_t axis, nn::FactorOpInterface op,
                            const nn::FactorRule &rule) const;
  /// Writes down what all axes do to an operation, if any does something.
  void annotate(Operation *op, ArrayRef<Rules> rules);

  func::FuncOp function;
  ArrayRef<StrategyLevel> axes;
  SmallVector<size_t, 2> rowAxes; ///< in the order in which they cut rows
  SmallVector<size_t, 2> order;   ///< of all axes, these first
  bool hasWork;
  bool balanced; ///< blocks of positions
  /// States that values have where they are defined. A use that needs another
  /// one lists a conversion, and changes it for no other use.
  DenseMap<Value, AxisStates> states;
  /// Values that some use before this one has converted on an axis. Uses that
  /// could take the terms of a sum take the sum: it is there, and whatever came
  /// of the terms would have to be summed once more.
  DenseSet<std::pair<Value, unsigned>> converted;
  /// Values of which some use takes a part of the heads, in that state. They
  /// are kept in it: backward takes them so.
  DenseMap<std::pair<Value, unsigned>, AxisState> exchanged;
};

/// True if some operation of the function sums products of two operands, or is
/// attention. Bodies without (embeddings) are as fast where every rank does all
/// of them, and then nothing has to be gathered.
bool Propagation::sumsProducts(func::FuncOp function) {
  for (Operation &op : function.getBody().front()) {
    auto factorOp = dyn_cast<nn::FactorOpInterface>(op);
    if (!factorOp)
      continue;
    if (factorOp.mixesPositions())
      return true;
    nn::FactorRule rule = factorOp.getFactorRule();
    SmallVector<int> seen;
    for (auto [operand, dims] :
         llvm::zip_equal(op.getOperands(), rule.operands)) {
      if (!isa<FloatType>(getElementTypeOrSelf(operand.getType())))
        continue;
      for (int factor : dims) {
        if (factor == nn::kNoFactor)
          continue;
        bool isSummed = llvm::none_of(rule.results, [&](ArrayRef<int> result) {
          return llvm::is_contained(result, factor);
        });
        if (isSummed && llvm::is_contained(seen, factor))
          return true;
      }
      llvm::append_range(seen, dims);
    }
  }
  return false;
}

LogicalResult Propagation::run(ArrayRef<AxisStates> stash) {
  const AxisStates replicated(axes.size(), AxisState::replicated());
  for (BlockArgument argument : function.getArguments()) {
    AxisStates state = replicated;
    unsigned index = argument.getArgNumber();
    switch (nn::getArgRole(function, index)) {
    case nn::ValueRole::Parameter:
      for (auto [axis, level] : llvm::enumerate(axes))
        if (int64_t dim = getSplitDim(function, index, level.paradigm->axis);
            dim >= 0)
          state[axis] = AxisState::split(dim);
      break;
    case nn::ValueRole::Stash:
      if (stash.empty())
        return function.emitOpError()
               << "expected no more kept values than the function in front "
                  "leaves, found another as argument "
               << index;
      state = stash.consume_front();
      break;
    default:
      break;
    }
    visitArgument(argument, state);
  }
  Block &block = function.getBody().front();
  for (Operation &op : block.without_terminator())
    if (failed(visit(&op)))
      return failure();
  return visitReturn(block.getTerminator());
}

void Propagation::visitArgument(BlockArgument argument,
                                const AxisStates &state) {
  states[argument] = state;
  if (llvm::all_of(state, [](AxisState axis) { return axis.isReplicated(); }))
    return;
  unsigned index = argument.getArgNumber();
  MLIRContext *context = function.getContext();
  SliceAttr whole = SliceAttr::of(function, index);
  function.setArgAttr(
      index, SliceAttr::attrName,
      SliceAttr::get(context,
                     whole ? whole.getGlobalShape() : DenseI64ArrayAttr(),
                     StateAttr::get(context, state)));
}

/// The factor of the operation that an axis splits, for its operands are split
/// so, or it splits it by itself.
FailureOr<int> Propagation::findFactor(size_t axis, nn::FactorOpInterface op,
                                       const nn::FactorRule &rule) const {
  int factor = nn::kNoFactor;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    AxisState state = stateOf(operand, axis);
    if (!state.isSplit())
      continue;
    int found = rule.operands[index][state.dim()];
    if (found == nn::kNoFactor)
      return op->emitError()
             << "expected operand " << index
             << " to be split in a dimension that this operation can split, "
                "found it split in dimension "
             << state.dim();
    if (factor != nn::kNoFactor && found != factor)
      return op->emitError()
             << "expected operands that are split along one factor, found them "
                "split along two";
    factor = found;
  }
  if (factor == nn::kNoFactor &&
      axes[axis].paradigm->axis == ::galvatron::LayerAxis::Tensor)
    factor = op.getSlicedFactor();
  return factor;
}

/// Refuses an operation that all ranks of an axis would do whole, and cannot or
/// must not: `isCut` says that they share it out.
LogicalResult Propagation::verifyUncut(size_t axis, nn::FactorOpInterface op,
                                       bool isCut) const {
  if (isCut)
    return success();
  if (sharesPositions(axis) && op.mixesPositions())
    return op->emitError()
           << "'" << op->getName() << "' " << nn::whyWholeSamples(op)
           << ", and works on whole samples alone: expected no '"
           << axes[axis].paradigm.name()
           << "', which cuts their positions: use "
           << nn::waysToCutPositions(op);
  if (!op.mayBeReplicated(AxisRanks(axes[axis])))
    return op->emitError() << "expected a factor to split '" << op->getName()
                           << "' by: it cannot be the same on all "
                           << axes[axis].degree
                           << " ranks of a tensor-parallel group";
  return success();
}

/// Refuses an operation whose keys the ranks of an axis cannot pass round.
LogicalResult Propagation::verifyInRing(size_t axis,
                                        nn::FactorOpInterface op) const {
  std::string why = op.whyNotInRing();
  if (why.empty())
    return success();
  return op->emitError() << "'" << op->getName() << "' " << why
                         << ": expected no '" << axes[axis].paradigm.name()
                         << "', which passes keys and values round: use "
                         << nn::waysToCutPositions(op);
}

/// Finds what an axis does to an operation. `hasOuterRows` says that blocks of
/// rows may be cut: there is no axis that cuts rows first, or the operation
/// takes its blocks.
FailureOr<Propagation::Rules> Propagation::rulesOn(size_t axis,
                                                   nn::FactorOpInterface op,
                                                   const nn::FactorRule &rule,
                                                   bool hasOuterRows) {
  Rules rules;
  const nn::HeadCounts heads = op.getHeadCounts();
  const bool exchanges = exchangesHeads(axis);
  const bool byHeads = exchanges && !heads.counts.empty();
  if (byHeads) {
    rules.factor = heads.factor;
  } else if (!exchanges) {
    FailureOr<int> factor = findFactor(axis, op, rule);
    if (failed(factor))
      return failure();
    rules.factor = *factor;
  }

  SmallVector<bool> terms;
  bool hasRows = false, allWhole = true;
  for (Value operand : op->getOperands()) {
    AxisState state = stateOf(operand, axis);
    terms.push_back(state.isUnreduced() && !isConverted(operand, axis));
    hasRows |= state.isRows() || (exchanges && state.isSplit());
    allWhole &= state.isReplicated();
  }
  bool carriesTerms = rules.factor == nn::kNoFactor && !hasRows &&
                      llvm::is_contained(terms, true) &&
                      op.propagatesPartialSums(terms);
  // Where sums rest in rows, operations that can take blocks of them do. What
  // is whole stays whole: a block of it would have to be gathered again.
  std::optional<std::pair<int, int>> rows;
  if (rules.factor == nn::kNoFactor && !carriesTerms && hasOuterRows &&
      (sharesPositions(axis) ||
       (!allWhole && restsInRows(axis) && !op.countsPositions())))
    rows = nn::getRowFactors(op, rule);
  rules.takesRows = rows.has_value();
  if (failed(verifyUncut(axis, op, rules.factor != nn::kNoFactor || rows)))
    return failure();
  // The state of a value with these factors.
  auto rowsOf = [&](ArrayRef<int> dims) -> std::optional<AxisState> {
    const int *positions = rows ? llvm::find(dims, rows->second) : dims.end();
    if (positions == dims.end())
      return std::nullopt;
    return rowsOn(axis, positions - dims.begin());
  };
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    if (carriesTerms && terms[index])
      continue;
    AxisState state = stateOf(operand, axis);
    bool isNumber = isa<FloatType>(getElementTypeOrSelf(operand.getType()));
    const auto &dims = rule.operands[index];
    if (auto *part = llvm::find(dims, heads.factor);
        byHeads && part != dims.end()) {
      AxisState heads = AxisState::split(part - dims.begin());
      convert(rules, axis, int64_t(index), operand, heads);
      if (!repeatsHeads(axis, operand, heads.dim()))
        exchanged.insert({{operand, axis}, heads});
    } else if (auto block = rowsOf(dims); block && isNumber)
      convert(rules, axis, int64_t(index), operand, *block);
    else if (state.isUnreduced() || state.isRows() ||
             (exchanges && state.isSplit()))
      convert(rules, axis, int64_t(index), operand, AxisState::replicated());
  }

  if (rules.factor != nn::kNoFactor && !byHeads)
    for (auto [index, operand] : llvm::enumerate(op->getOperands()))
      if (!stateOf(operand, axis).isSplit() &&
          llvm::is_contained(rule.operands[index], rules.factor))
        return op->emitError()
               << "expected operand " << index
               << " to be split along its dimension as another operand is, "
                  "found it the same on all ranks";

  for (auto [index, result] : llvm::enumerate(op->getResults())) {
    AxisState state =
        carriesTerms ? AxisState::unreduced() : AxisState::replicated();
    if (rules.factor != nn::kNoFactor) {
      auto *dim = llvm::find(rule.results[index], rules.factor);
      if (dim != rule.results[index].end())
        state = AxisState::split(dim - rule.results[index].begin());
      else if (op.isPartialResult(index, rules.factor))
        state = AxisState::unreduced();
    } else if (rows) {
      if (auto block = rowsOf(rule.results[index]))
        state = *block;
      else if (op.isPartialResult(index, rows->second))
        state = AxisState::unreduced();
    }
    rules.results.push_back(state);
  }
  return rules;
}

LogicalResult Propagation::visit(Operation *op) {
  auto factorOp = dyn_cast<nn::FactorOpInterface>(op);
  if (!factorOp)
    return op->emitError() << "expected an operation with factors, found '"
                           << op->getName() << "'";
  nn::FactorRule rule = factorOp.getFactorRule();
  SmallVector<Rules, 2> rules(axes.size());
  for (size_t axis : order) {
    const bool passes = passesKeys(axis, factorOp);
    if (passes && failed(verifyInRing(axis, factorOp)))
      return failure();
    std::optional<size_t> outer = getOuter(axis);
    FailureOr<Rules> found =
        rulesOn(axis, factorOp, passes ? factorOp.getRingRule() : rule,
                !outer || rules[*outer].takesRows);
    if (failed(found))
      return failure();
    rules[axis] = std::move(*found);
  }
  for (auto [index, result] : llvm::enumerate(op->getResults())) {
    AxisStates &state = states[result];
    for (const Rules &onAxis : rules)
      state.push_back(onAxis.results[index]);
  }
  annotate(op, rules);
  return success();
}

void Propagation::annotate(Operation *op, ArrayRef<Rules> rules) {
  if (llvm::none_of(rules, [](const Rules &onAxis) { return onAxis.any(); }))
    return;
  MLIRContext *context = op->getContext();
  SmallVector<StateAttr> results;
  for (Value result : op->getResults())
    results.push_back(StateAttr::get(context, states.find(result)->second));
  SmallVector<int64_t> factors;
  for (const Rules &onAxis : rules)
    factors.push_back(onAxis.factor);
  if (llvm::all_of(factors, [](int64_t factor) { return factor < 0; }))
    factors.clear();
  SmallVector<OperandState> operands;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    AxisStates state = states.find(operand)->second;
    for (auto [axis, onAxis] : llvm::enumerate(rules))
      for (auto [number, target] : onAxis.conversions)
        if (number == int64_t(index))
          state[axis] = target;
    if (state != states.find(operand)->second)
      operands.push_back({int64_t(index), StateAttr::get(context, state)});
  }
  op->setAttr(ShardingAttr::attrName,
              ShardingAttr::get(context, results, factors, operands));
}

/// Gives the state in which a value is kept: its own, or for terms of a sum
/// that which values of the axis rest in. Blocks of a block are of one that is
/// kept.
AxisState Propagation::stashStateOf(Value value, size_t axis,
                                    bool hasOuterRows) const {
  if (auto part = exchanged.find({value, axis}); part != exchanged.end())
    return part->second;
  AxisState state = stateOf(value, axis);
  if (!state.isUnreduced())
    return state;
  auto type = cast<RankedTensorType>(value.getType());
  bool hasRows = type.getRank() >= 3 && type.isDynamicDim(0);
  return restsInRows(axis) && hasRows && hasOuterRows ? rowsOn(axis)
                                                      : AxisState::replicated();
}

LogicalResult Propagation::visitReturn(Operation *op) {
  SmallVector<AxisStates> parameters;
  for (BlockArgument argument : function.getArguments())
    if (nn::getArgRole(function, argument.getArgNumber()) ==
        nn::ValueRole::Parameter)
      parameters.push_back(states.find(argument)->second);
  const AxisStates replicated(axes.size(), AxisState::replicated());
  SmallVector<AxisStates> trained;
  for (unsigned number : nn::getTrainedParameters(function))
    trained.push_back(parameters[number]);
  ArrayRef<AxisStates> nextParameter = trained;
  SmallVector<Rules, 2> rules(axes.size());
  for (auto [index, value] : llvm::enumerate(op->getOperands())) {
    AxisStates state = states.find(value)->second;
    nn::ValueRole role = nn::getResultRole(function, index);
    for (size_t axis : order) {
      std::optional<size_t> outer = getOuter(axis);
      if (role == nn::ValueRole::Stash)
        state[axis] =
            stashStateOf(value, axis, !outer || state[*outer].isRows());
      else if (role == nn::ValueRole::ParameterGradient &&
               dividesPositions(axis))
        state[axis] = AxisState::unreduced();
      else if (state[axis].isUnreduced() || state[axis].isRows() ||
               (exchangesHeads(axis) && state[axis].isSplit()))
        state[axis] = AxisState::replicated();
      convert(rules[axis], axis, int64_t(index), value, state[axis]);
    }
    if (role == nn::ValueRole::Stash) {
      stashStates.push_back(state);
      continue;
    }
    if (role == nn::ValueRole::ParameterGradient && nextParameter.empty())
      return op->emitError()
             << "expected a gradient for each of " << trained.size()
             << " parameters, found another as result " << index;
    const AxisStates &wanted = role == nn::ValueRole::ParameterGradient
                                   ? nextParameter.consume_front()
                                   : replicated;
    for (auto [axis, found, expected] : llvm::enumerate(state, wanted))
      if (!(found == expected) && !(role == nn::ValueRole::ParameterGradient &&
                                    dividesPositions(axis))) {
        std::string text;
        llvm::raw_string_ostream stream(text);
        stream << "to be ";
        printState(stream, expected);
        stream << ", found ";
        printState(stream, found);
        return op->emitError() << "expected result " << index << " ("
                               << nn::stringifyRole(role) << ") " << text;
      }
  }
  annotate(op, rules);
  return success();
}

} // namespace

bool mlir::galvatron::weighsLatePositions(func::FuncOp forward) {
  return llvm::any_of(forward.getBody().front(), [](Operation &op) {
    auto factorOp = dyn_cast<nn::FactorOpInterface>(op);
    return factorOp && factorOp.weighsLatePositions();
  });
}

FailureOr<SmallVector<AxisStates>>
mlir::galvatron::propagateFactors(func::FuncOp function,
                                  ArrayRef<AxisStates> stash, bool balanced) {
  Propagation propagation(function, balanced);
  if (failed(propagation.run(stash)))
    return failure();
  return std::move(propagation.stashStates);
}
