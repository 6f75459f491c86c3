//===- Partition.cpp - Layer functions under a strategy -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"

#include "FactorPropagation.h"
#include "galvatron/Dialect/Galvatron/IR/FunctionValuesAttr.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

#include <numeric>

using namespace mlir;
using namespace mlir::galvatron;
using ::galvatron::Strategy;

namespace {

/// Factors that parameters of the function carry, without repetition.
SmallVector<StringRef> getFactors(func::FuncOp function) {
  SmallVector<StringRef> names;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto factors = function.getArgAttrOfType<ArrayAttr>(i, nn::kFactorsAttr);
    if (!factors)
      continue;
    for (Attribute attr : factors) {
      StringRef name = cast<StringAttr>(attr).getValue();
      if (!name.empty() && !llvm::is_contained(names, name))
        names.push_back(name);
    }
  }
  return names;
}

Type specialize(Type type, int64_t samples) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? nn::withSamples(tensor, samples) : type;
}

/// Keeps parameters whole whose factor has fewer units than an axis has ranks:
/// every rank slices its part off, and what it adds to the gradient is a term
/// of a sum.
void sliceReplicatedParameters(func::FuncOp function,
                               const StrategyLevel &axis) {
  auto units = function->getAttrOfType<DictionaryAttr>(nn::kFactorUnitsAttr);
  Block &block = function.getBody().front();
  Operation *terminator = block.getTerminator();
  SmallVector<OpOperand *> gradients;
  for (OpOperand &operand : terminator->getOpOperands())
    if (nn::getResultRole(function, operand.getOperandNumber()) ==
        nn::ValueRole::ParameterGradient)
      gradients.push_back(&operand);
  OpBuilder begin = OpBuilder::atBlockBegin(&block), end(terminator);
  // By parameter; those that are not trained have none.
  llvm::SmallDenseMap<unsigned, OpOperand *> gradientOf;
  for (auto [number, gradient] :
       llvm::zip(nn::getTrainedParameters(function), gradients))
    gradientOf[number] = gradient;
  unsigned nextParameter = 0;
  for (BlockArgument parameter : block.getArguments()) {
    unsigned index = parameter.getArgNumber();
    if (nn::getArgRole(function, index) != nn::ValueRole::Parameter)
      continue;
    unsigned number = nextParameter++;
    int64_t dim = getSplitDim(function, index, axis.paradigm->axis);
    if (dim < 0)
      continue;
    SmallVector<Attribute> factors = llvm::to_vector(
        function.getArgAttrOfType<ArrayAttr>(index, nn::kFactorsAttr));
    StringRef name = cast<StringAttr>(factors[dim]).getValue();
    if (!nn::listsFactor(function, nn::kSharedAttr, name) ||
        axis.degree <= units.getAs<IntegerAttr>(name).getInt())
      continue;
    factors[dim] = begin.getStringAttr("");
    if (llvm::all_equal(factors) && factors[0] == factors[dim])
      function.removeArgAttr(index, nn::kFactorsAttr);
    else
      function.setArgAttr(index, nn::kFactorsAttr, begin.getArrayAttr(factors));
    if (!parameter.use_empty()) {
      auto part =
          nn::OwnPartOp::create(begin, parameter.getLoc(), parameter.getType(),
                                parameter, uint64_t(dim));
      parameter.replaceAllUsesExcept(part, part);
    }
    if (OpOperand *gradient = gradientOf.lookup(number)) {
      Value own = gradient->get();
      gradient->set(nn::OwnPartGradOp::create(end, own.getLoc(), own.getType(),
                                              own, uint64_t(dim)));
    }
  }
}

func::FuncOp cloneFor(func::FuncOp whole, StringRef name, Operation *after,
                      Direction direction, const Strategy &strategy,
                      ArrayRef<int64_t> borrowed, bool gathered = false) {
  func::FuncOp function = whole.clone();
  function.setName(name);
  function->removeAttr(kValuesAttr);
  after->getBlock()->getOperations().insertAfter(after->getIterator(),
                                                 function);
  MLIRContext *context = function.getContext();
  ::galvatron::LayerPartition partition = strategy.partition();
  for (const StrategyLevel &axis : partition.axes)
    sliceReplicatedParameters(function, axis);
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (nn::getArgRole(function, i) == nn::ValueRole::Parameter)
      function.setArgAttr(
          i, SliceAttr::attrName,
          SliceAttr::get(context,
                         DenseI64ArrayAttr::get(
                             context, cast<RankedTensorType>(
                                          function.getArgumentTypes()[i])
                                          .getShape()),
                         StateAttr()));
  function->setAttr(PartitionAttr::attrName,
                    PartitionAttr::get(context, direction, partition.axes,
                                       /*sdp=*/1,
                                       /*zdp=*/1, gathered, DenseI64ArrayAttr())
                        .withShards(partition.parameterShards,
                                    partition.optimizerShards, borrowed));
  return function;
}

/// Why one axis cannot split a factor of the body; nullopt if it can.
std::optional<std::string> whyNotSplit(func::FuncOp forward, StringRef factor,
                                       int64_t degree) {
  auto units = forward->getAttrOfType<DictionaryAttr>(nn::kFactorUnitsAttr);
  auto count = units ? units.getAs<IntegerAttr>(factor) : nullptr;
  if (!count)
    return ("factor '" + factor + "' has no number of units").str();
  bool mayBeUneven = nn::listsFactor(forward, nn::kUnevenAttr, factor);
  std::string has =
      ("factor '" + factor + "' has " + Twine(count.getInt()) + " units, ")
          .str();
  if (nn::listsFactor(forward, nn::kSharedAttr, factor)) {
    if (count.getInt() % degree != 0 && degree % count.getInt() != 0)
      return has + "which tensor parallel degree " + std::to_string(degree) +
             " neither divides nor is a multiple of";
    return std::nullopt;
  }
  if (!mayBeUneven && count.getInt() % degree != 0)
    return has + "which tensor parallel degree " + std::to_string(degree) +
           " does not divide";
  // A ceil-sized shard per rank; every rank needs at least one unit.
  int64_t shard = (count.getInt() + degree - 1) / degree;
  if (mayBeUneven && shard * (degree - 1) >= count.getInt())
    return has + "too few for a shard on each of " + std::to_string(degree) +
           " ranks";
  return std::nullopt;
}

/// Why the ranks of an axis that exchanges heads cannot have as many each, of
/// those that `tensor` ranks of tensor parallelism have parts of; nullopt if
/// they can.
std::optional<std::string> whyNotExchanged(func::FuncOp forward,
                                           const StrategyLevel &axis,
                                           int64_t tensor) {
  for (Operation &op : forward.getBody().front()) {
    auto factorOp = dyn_cast<nn::FactorOpInterface>(op);
    if (!factorOp)
      continue;
    for (auto [index, count] :
         llvm::enumerate(factorOp.getHeadCounts().counts)) {
      const int64_t own = llvm::divideCeil(count, tensor);
      // A key head goes to all ranks that have queries of its group.
      if (own % axis.degree != 0 && (index == 0 || axis.degree % own != 0))
        return ("'" + op.getName().getStringRef() + "' has " + Twine(own) +
                (index == 0 ? " heads" : " key heads") +
                (tensor > 1 ? " on a tensor-parallel rank" : "") +
                ", which degree " + Twine(axis.degree) + " of '" +
                axis.paradigm.name() +
                (index == 0 ? "' does not divide"
                            : "' neither divides nor is a multiple of"))
            .str();
    }
  }
  return std::nullopt;
}

} // namespace

std::optional<std::string>
mlir::galvatron::whyNotPartitionable(func::FuncOp forward,
                                     const Strategy &strategy) {
  for (const StrategyLevel &axis : strategy.axes())
    if (axis.paradigm->axis == ::galvatron::LayerAxis::Tensor)
      for (StringRef factor : getFactors(forward))
        if (auto reason = whyNotSplit(forward, factor, axis.degree))
          return reason;
  const auto tensor = strategy.on(::galvatron::LayerAxis::Tensor);
  for (const StrategyLevel &axis : strategy.axes())
    if (axis.paradigm->exchangesHeads())
      if (auto reason = whyNotExchanged(forward, axis, strategy.degree(tensor)))
        return reason;
  return std::nullopt;
}

SmallVector<size_t, 2>
mlir::galvatron::getRowAxes(ArrayRef<::galvatron::Level> axes) {
  SmallVector<size_t, 2> found;
  for (auto [axis, level] : llvm::enumerate(axes))
    if (level.paradigm->resting == ::galvatron::RestingState::Rows)
      found.insert(level.paradigm->dividesPositions() ? found.begin()
                                                      : found.end(),
                   axis);
  return found;
}

/// The least length above `length` of which so many samples divide into so many
/// blocks.
static int64_t nextLength(int64_t length, int64_t samples, int64_t blocks) {
  const int64_t step = blocks / std::gcd(samples, blocks);
  return llvm::divideCeil(length, step) * step;
}

std::optional<std::string> RowCut::whyNot(int64_t samples) const {
  int64_t rows = samples * length, degree = 1;
  std::string names;
  for (const ::galvatron::Level &level : levels) {
    degree *= level.degree;
    names +=
        (names.empty() ? "'" : " and '") + level.paradigm.name().str() + "'";
  }
  // What suits all operations of a body, some of which may balance blocks.
  const int64_t blocks =
      llvm::any_of(levels,
                   [](const ::galvatron::Level &level) {
                     return level.paradigm->dividesPositions();
                   })
          ? 2 * degree
          : degree;
  // Balanced blocks have two pieces.
  if (rows % (balanced ? 2 * degree : degree) == 0)
    return std::nullopt;
  return std::to_string(samples) + (samples == 1 ? " sample" : " samples") +
         " of " + std::to_string(length) + " positions are " +
         std::to_string(rows) + " rows, which " + (balanced ? "twice " : "") +
         "degree " + std::to_string(degree) + " of " + names +
         " does not divide" +
         (balanced ? ": under causal attention a rank has two pieces of them"
                   : "") +
         "; " + std::to_string(nextLength(length, samples, blocks)) +
         " positions would do, or " +
         std::to_string(blocks / std::gcd(length, blocks)) + " samples";
}

SmallVector<RowCut>
mlir::galvatron::getRowCuts(const LayerFunctions &functions) {
  SmallVector<RowCut> cuts;
  auto add = [&](Value value, StateAttr state, ArrayRef<StrategyLevel> axes) {
    RowCut cut;
    for (size_t axis : getRowAxes(axes)) {
      AxisState onAxis = state.getAxes()[axis];
      if (!onAxis.isRows())
        continue;
      cut.length = cast<RankedTensorType>(value.getType())
                       .getDimSize(onAxis.positions());
      cut.levels.push_back(axes[axis]);
      cut.balanced = onAxis.isBalanced();
    }
    if (!cut.levels.empty() && !llvm::is_contained(cuts, cut))
      cuts.push_back(cut);
  };
  for (func::FuncOp function :
       {functions.forward, functions.recompute, functions.backward}) {
    if (!function)
      continue;
    ArrayRef<StrategyLevel> axes = PartitionAttr::of(function).getAxes();
    function.walk([&](Operation *op) {
      auto sharding = op->getAttrOfType<ShardingAttr>(ShardingAttr::attrName);
      if (!sharding)
        return;
      for (auto [result, state] :
           llvm::zip_equal(op->getResults(), sharding.getResults()))
        add(result, state, axes);
      for (const OperandState &use : sharding.getOperands())
        add(op->getOperand(use.operand), use.getState(), axes);
    });
  }
  return cuts;
}

std::string mlir::galvatron::partitionedName(StringRef body,
                                             const Strategy &strategy,
                                             int64_t samples,
                                             ArrayRef<int64_t> borrowed) {
  std::string name = body.str();
  llvm::raw_string_ostream stream(name);
  // Axes first, wherever they stand among the levels.
  for (const StrategyLevel &axis : strategy.axes())
    stream << '.' << axis.paradigm.name() << axis.degree;
  for (::galvatron::Paradigm paradigm : ::galvatron::ParadigmRegistry::all())
    if (int64_t degree = strategy.degree(paradigm);
        degree > 1 && paradigm->changesLocalFunction() && !paradigm->hasAxis())
      stream << '.' << paradigm.name() << degree;
  stream << ".b" << samples;
  if (strategy.checkpoint())
    stream << ".ckpt";
  for (int64_t index : borrowed)
    stream << ".borrow" << index;
  return name;
}

void mlir::galvatron::specializeSamples(func::FuncOp function,
                                        int64_t samples) {
  Block &block = function.getBody().front();
  for (BlockArgument argument : block.getArguments())
    argument.setType(specialize(argument.getType(), samples));
  function.walk([&](Operation *op) {
    for (Value result : op->getResults())
      result.setType(specialize(result.getType(), samples));
  });
  SmallVector<Type> results;
  for (Type type : function.getResultTypes())
    results.push_back(specialize(type, samples));
  function.setType(FunctionType::get(function.getContext(),
                                     block.getArgumentTypes(), results));
}

FailureOr<LayerFunctions> mlir::galvatron::partitionForAnySamples(
    const LayerFunctions &whole, const Strategy &strategy, StringRef name,
    ArrayRef<int64_t> borrowed) {
  LayerFunctions result;
  // A layer that cannot be split leaves nothing behind.
  auto refuse = [&]() -> LogicalResult {
    for (func::FuncOp function :
         {result.forward, result.recompute, result.backward})
      if (function)
        function.erase();
    return failure();
  };
  Operation *after = whole.backward;
  result.forward = cloneFor(whole.forward, (name + ".forward").str(), after,
                            Direction::Forward, strategy, borrowed);
  const bool balanced = weighsLatePositions(whole.forward);
  FailureOr<SmallVector<AxisStates>> stash =
      propagateFactors(result.forward, {}, balanced);
  if (failed(stash))
    return refuse();
  after = result.forward;
  if (whole.recompute) {
    result.recompute =
        cloneFor(whole.recompute, (name + ".recompute").str(), after,
                 Direction::Recompute, strategy, borrowed);
    stash = propagateFactors(result.recompute, {}, balanced);
    if (failed(stash))
      return refuse();
    after = result.recompute;
  }
  result.backward = cloneFor(whole.backward, (name + ".backward").str(), after,
                             Direction::Backward, strategy, borrowed,
                             /*gathered=*/bool(result.recompute));
  if (failed(propagateFactors(result.backward, *stash, balanced)))
    return refuse();
  return result;
}

FailureOr<func::FuncOp>
mlir::galvatron::partitionForward(func::FuncOp forward,
                                  const Strategy &strategy, StringRef name) {
  func::FuncOp local = cloneFor(forward, (name + ".forward").str(), forward,
                                Direction::Forward, strategy, /*borrowed=*/{});
  if (succeeded(propagateFactors(local, {}, weighsLatePositions(forward))))
    return local;
  local.erase();
  return failure();
}

FailureOr<LayerFunctions>
mlir::galvatron::partitionLayer(const LayerFunctions &whole,
                                const Strategy &strategy, int64_t samples,
                                StringRef name, ArrayRef<int64_t> borrowed) {
  if (failed(nn::verifySizes(whole.forward, samples)) ||
      failed(nn::verifySizes(whole.backward, samples)))
    return failure();
  FailureOr<LayerFunctions> local =
      partitionForAnySamples(whole, strategy, name, borrowed);
  if (failed(local))
    return failure();
  for (const RowCut &cut : getRowCuts(*local))
    if (auto why = cut.whyNot(samples)) {
      whole.forward->emitError()
          << "cannot have strategy '" << strategy.str() << "': " << *why;
      return failure();
    }
  for (func::FuncOp function :
       {local->forward, local->recompute, local->backward})
    if (function)
      specializeSamples(function, samples);
  return local;
}
