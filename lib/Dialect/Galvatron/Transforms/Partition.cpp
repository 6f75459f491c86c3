//===- Partition.cpp - Propagates tensor-parallel factors -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"
#include "AxisRanks.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

using namespace mlir;
using namespace mlir::galvatron;
using ::galvatron::Strategy;

namespace {

/// State of a value over the ranks of a tensor-parallel group: the split
/// dimension, or one of these.
constexpr int64_t kReplicated = -1;
constexpr int64_t kPartial = -2;

/// The dimension of a parameter argument that carries a factor, or -1.
int64_t getFactorDim(func::FuncOp function, unsigned argument) {
  auto factors =
      function.getArgAttrOfType<ArrayAttr>(argument, nn::kFactorsAttr);
  if (factors)
    for (auto [dim, name] : llvm::enumerate(factors))
      if (!cast<StringAttr>(name).empty())
        return int64_t(dim);
  return kReplicated;
}

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
  if (!tensor || tensor.hasStaticShape())
    return type;
  SmallVector<int64_t> shape(tensor.getShape());
  for (int64_t &dim : shape)
    if (ShapedType::isDynamic(dim))
      dim = samples;
  return tensor.clone(shape);
}

/// Propagates splits through one function and annotates it.
class Propagation {
public:
  explicit Propagation(func::FuncOp function)
      : function(function), degree(PartitionAttr::of(function).getTp()) {}

  /// `stash` gives the states of the stash arguments, in order.
  LogicalResult run(ArrayRef<int64_t> stash) {
    unsigned nextStash = 0;
    for (BlockArgument argument : function.getArguments()) {
      int64_t state = kReplicated;
      unsigned index = argument.getArgNumber();
      switch (nn::getArgRole(function, index)) {
      case nn::ValueRole::Parameter:
        if (degree > 1)
          state = getFactorDim(function, index);
        break;
      case nn::ValueRole::Stash:
        state = stash[nextStash++];
        break;
      default:
        break;
      }
      states[argument] = state;
      if (state >= 0) {
        auto whole =
            function.getArgAttrOfType<SliceAttr>(index, SliceAttr::attrName);
        function.setArgAttr(
            index, SliceAttr::attrName,
            SliceAttr::get(function.getContext(),
                           whole ? whole.getView() : DenseI64ArrayAttr(),
                           state));
      }
    }
    Block &block = function.getBody().front();
    for (Operation &op : block.without_terminator())
      if (failed(visit(&op)))
        return failure();
    return visitReturn(block.getTerminator());
  }

  /// States of the results with role stash, in order.
  SmallVector<int64_t> stashStates;

private:
  /// `factor` is -1 and `results` null where there is none.
  void annotate(Operation *op, DenseI64ArrayAttr results, int64_t factor,
                ArrayRef<int64_t> reduce) {
    MLIRContext *context = op->getContext();
    op->setAttr(ShardingAttr::attrName,
                ShardingAttr::get(
                    context, results, factor,
                    reduce.empty() ? DenseI64ArrayAttr()
                                   : DenseI64ArrayAttr::get(context, reduce)));
  }

  LogicalResult visit(Operation *op);
  LogicalResult visitReturn(Operation *op);

  func::FuncOp function;
  int64_t degree;
  /// State that every value has where it is defined. A use that needs another
  /// one lists a conversion, and changes it for no other use.
  DenseMap<Value, int64_t> states;
  /// Partial sums that some use before this one needs summed. Uses that could
  /// take them as they are take the sum: it is there, and carrying them on
  /// would sum what comes of them once more.
  DenseSet<Value> summed;
};

LogicalResult Propagation::visit(Operation *op) {
  auto factorOp = dyn_cast<nn::FactorOpInterface>(op);
  if (!factorOp)
    return op->emitError() << "expected an operation with factors, got '"
                           << op->getName() << "'";
  nn::FactorRule rule = factorOp.getFactorRule();
  OpBuilder builder(op);

  int factor = nn::kNoFactor;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    int64_t state = states.lookup(operand);
    if (state < 0)
      continue;
    int found = rule.operands[index][state];
    if (found == nn::kNoFactor)
      return op->emitError() << "operand " << index << " is split in dimension "
                             << state << ", which this operation cannot split";
    if (factor != nn::kNoFactor && found != factor)
      return op->emitError()
             << "operands are split along two different factors";
    factor = found;
  }
  if (degree > 1 && factor == nn::kNoFactor)
    factor = factorOp.getSlicedFactor();

  if (degree > 1 && factor == nn::kNoFactor &&
      !factorOp.mayBeReplicated(AxisRanks(degree)))
    return op->emitError() << "expected a factor to split '" << op->getName()
                           << "' by: it cannot be the same on all " << degree
                           << " ranks of a tensor-parallel group";

  SmallVector<bool> partial;
  for (Value operand : op->getOperands())
    partial.push_back(states.lookup(operand) == kPartial &&
                      !summed.contains(operand));
  bool carriesPartial = factor == nn::kNoFactor &&
                        llvm::is_contained(partial, true) &&
                        factorOp.propagatesPartialSums(partial);
  SmallVector<int64_t> reduce;
  for (auto [index, operand] : llvm::enumerate(op->getOperands()))
    if (states.lookup(operand) == kPartial &&
        !(carriesPartial && partial[index])) {
      reduce.push_back(int64_t(index));
      summed.insert(operand);
    }

  if (factor != nn::kNoFactor)
    for (auto [index, operand] : llvm::enumerate(op->getOperands()))
      if ((states.lookup(operand) == kReplicated ||
           llvm::is_contained(reduce, int64_t(index))) &&
          llvm::is_contained(rule.operands[index], factor))
        return op->emitError()
               << "operand " << index
               << " is the same on all ranks but another operand is split "
                  "along its dimension";

  SmallVector<int64_t> shards;
  for (auto [index, result] : llvm::enumerate(op->getResults())) {
    int64_t state = carriesPartial ? kPartial : kReplicated;
    if (factor != nn::kNoFactor) {
      auto *dim = llvm::find(rule.results[index], factor);
      if (dim != rule.results[index].end())
        state = dim - rule.results[index].begin();
      else if (factorOp.isPartialResult(index, factor))
        state = kPartial;
    }
    states[result] = state;
    shards.push_back(state);
  }
  if (factor != nn::kNoFactor || carriesPartial || !reduce.empty())
    annotate(op, builder.getDenseI64ArrayAttr(shards),
             factor == nn::kNoFactor ? -1 : factor, reduce);
  return success();
}

LogicalResult Propagation::visitReturn(Operation *op) {
  SmallVector<int64_t> reduce;
  SmallVector<int64_t> expected;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (nn::getArgRole(function, i) == nn::ValueRole::Parameter)
      expected.push_back(states.lookup(function.getArgument(i)));
  unsigned nextParameter = 0;
  for (auto [index, value] : llvm::enumerate(op->getOperands())) {
    nn::ValueRole role = nn::getResultRole(function, index);
    int64_t state = states.lookup(value);
    if (state == kPartial) {
      reduce.push_back(int64_t(index));
      state = kReplicated;
    }
    if (role == nn::ValueRole::Stash) {
      stashStates.push_back(state);
      continue;
    }
    int64_t wanted = kReplicated;
    if (role == nn::ValueRole::ParameterGradient)
      wanted = expected[nextParameter++];
    if (state != wanted)
      return op->emitError()
             << "expected result " << index << " (" << nn::stringifyRole(role)
             << ") to be split in dimension " << wanted << ", got " << state
             << " (-1: not split)";
  }
  if (!reduce.empty())
    annotate(op, {}, -1, reduce);
  return success();
}

/// Parameters whose factor has fewer units than the group has ranks stay whole
/// on all of them: every rank takes its part, and what it adds to the gradient
/// is a partial sum.
void takeSharedParts(func::FuncOp function, int64_t degree) {
  auto units = function->getAttrOfType<DictionaryAttr>(nn::kFactorUnitsAttr);
  Block &block = function.getBody().front();
  Operation *terminator = block.getTerminator();
  SmallVector<OpOperand *> gradients;
  for (OpOperand &operand : terminator->getOpOperands())
    if (nn::getResultRole(function, operand.getOperandNumber()) ==
        nn::ValueRole::ParameterGradient)
      gradients.push_back(&operand);
  OpBuilder begin = OpBuilder::atBlockBegin(&block), end(terminator);
  unsigned nextParameter = 0;
  for (BlockArgument parameter : block.getArguments()) {
    unsigned index = parameter.getArgNumber();
    if (nn::getArgRole(function, index) != nn::ValueRole::Parameter)
      continue;
    unsigned number = nextParameter++;
    int64_t dim = getFactorDim(function, index);
    if (dim < 0)
      continue;
    auto name = cast<StringAttr>(
        function.getArgAttrOfType<ArrayAttr>(index, nn::kFactorsAttr)[dim]);
    if (!nn::listsFactor(function, nn::kSharedAttr, name.getValue()) ||
        degree <= units.getAs<IntegerAttr>(name.getValue()).getInt())
      continue;
    function.removeArgAttr(index, nn::kFactorsAttr);
    if (!parameter.use_empty()) {
      auto part =
          nn::OwnPartOp::create(begin, parameter.getLoc(), parameter.getType(),
                                parameter, uint64_t(dim));
      parameter.replaceAllUsesExcept(part, part);
    }
    if (!gradients.empty()) {
      Value own = gradients[number]->get();
      gradients[number]->set(nn::OwnPartGradOp::create(
          end, own.getLoc(), own.getType(), own, uint64_t(dim)));
    }
  }
}

func::FuncOp cloneFor(func::FuncOp whole, StringRef name, Operation *after,
                      Direction direction, const Strategy &strategy,
                      ArrayRef<int64_t> borrowed, bool gathered = false) {
  func::FuncOp function = whole.clone();
  function.setName(name);
  after->getBlock()->getOperations().insertAfter(after->getIterator(),
                                                 function);
  MLIRContext *context = function.getContext();
  takeSharedParts(function,
                  strategy.ways(&::galvatron::ParadigmDescriptor::factor));
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (nn::getArgRole(function, i) == nn::ValueRole::Parameter)
      function.setArgAttr(
          i, SliceAttr::attrName,
          SliceAttr::get(context,
                         DenseI64ArrayAttr::get(
                             context, cast<RankedTensorType>(
                                          function.getArgumentTypes()[i])
                                          .getShape()),
                         -1));
  function->setAttr(
      PartitionAttr::attrName,
      PartitionAttr::get(
          context, direction,
          strategy.ways(&::galvatron::ParadigmDescriptor::factor),
          strategy.ways(&::galvatron::ParadigmDescriptor::parameters),
          strategy.updateParts(), gathered,
          borrowed.empty() ? DenseI64ArrayAttr()
                           : DenseI64ArrayAttr::get(context, borrowed)));
  return function;
}

} // namespace

std::optional<std::string>
mlir::galvatron::whyNotPartitionable(func::FuncOp forward,
                                     const Strategy &strategy) {
  int64_t degree = strategy.ways(&::galvatron::ParadigmDescriptor::factor);
  if (degree == 1)
    return std::nullopt;
  auto units = forward->getAttrOfType<DictionaryAttr>(nn::kFactorUnitsAttr);
  for (StringRef factor : getFactors(forward)) {
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
      continue;
    }
    if (!mayBeUneven && count.getInt() % degree != 0)
      return has + "which tensor parallel degree " + std::to_string(degree) +
             " does not divide";
    // A ceil-sized shard per rank; every rank needs at least one unit.
    int64_t shard = (count.getInt() + degree - 1) / degree;
    if (mayBeUneven && shard * (degree - 1) >= count.getInt())
      return has + "too few for a shard on each of " + std::to_string(degree) +
             " ranks";
  }
  return std::nullopt;
}

std::string mlir::galvatron::partitionedName(StringRef body,
                                             const Strategy &strategy,
                                             int64_t samples,
                                             ArrayRef<int64_t> borrowed) {
  std::string name = body.str();
  llvm::raw_string_ostream stream(name);
  // Factors first, whatever the order of the levels.
  for (bool factor : {true, false})
    for (::galvatron::Paradigm paradigm : ::galvatron::ParadigmRegistry::all())
      if (int64_t degree = strategy.degree(paradigm);
          degree > 1 && paradigm->cutsLayer() && paradigm->factor == factor)
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
  Propagation forward(result.forward);
  if (failed(forward.run({})))
    return refuse();
  SmallVector<int64_t> stash = forward.stashStates;
  after = result.forward;
  if (whole.recompute) {
    result.recompute =
        cloneFor(whole.recompute, (name + ".recompute").str(), after,
                 Direction::Recompute, strategy, borrowed);
    Propagation recompute(result.recompute);
    if (failed(recompute.run({})))
      return refuse();
    stash = recompute.stashStates;
    after = result.recompute;
  }
  result.backward = cloneFor(whole.backward, (name + ".backward").str(), after,
                             Direction::Backward, strategy, borrowed,
                             /*gathered=*/bool(result.recompute));
  Propagation backward(result.backward);
  if (failed(backward.run(stash)))
    return refuse();
  return result;
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
  for (func::FuncOp function :
       {local->forward, local->recompute, local->backward})
    if (function)
      specializeSamples(function, samples);
  return local;
}
