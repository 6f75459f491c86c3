//===- SplitBackward.cpp - Backward functions in two parts ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The input part is the slice that the gradients of the layer's inputs depend
// on, and all that reads parameters: so sharded parameters are gathered for one
// of the parts only. The rest is the weight part. What crosses is kept.
//
// A sharded layer scatters the gradients of all its parameters in one piece,
// which is the weight part's; those that come with an input gradient are kept
// until then. Others are added where they are made.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/Transforms/SplitBackward.h"
#include "galvatron/Dialect/Galvatron/IR/FunctionValuesAttr.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"
#include "galvatron/Schedule/Schedule.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONSPLITBACKWARD
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;
using nn::ValueRole;

namespace {

class BackwardSplitter {
public:
  explicit BackwardSplitter(func::FuncOp backward)
      : backward(backward), block(backward.getBody().front()),
        terminator(block.getTerminator()) {
    PartitionAttr partition = PartitionAttr::of(backward);
    isSharded = partition && partition.getSdp() > 1;
  }

  func::FuncOp run(StringRef name) {
    if (!slice() || !collectKept())
      return {};
    // Two parts are not what the whole was numbered as.
    backward->removeAttr(kValuesAttr);
    func::FuncOp weight = buildWeightPart(name);
    keepInputPart();
    return weight;
  }

private:
  bool isInput(Operation *op) const { return inputPart.contains(op); }
  bool isInput(Value value) const {
    Operation *op = value.getDefiningOp();
    return op && isInput(op);
  }
  bool hasRole(BlockArgument argument, ValueRole role) {
    return nn::getArgRole(backward, argument.getArgNumber()) == role;
  }
  bool isGradient(unsigned result) {
    return nn::getResultRole(backward, result) == ValueRole::ParameterGradient;
  }

  bool slice();
  bool collectKept();
  func::FuncOp buildWeightPart(StringRef name);
  void keepInputPart();
  static void finish(func::FuncOp function, ArrayRef<Value> values,
                     ArrayRef<NamedAttrList> attrs);
  NamedAttrList makeAttrs(ValueRole role) {
    MLIRContext *context = backward.getContext();
    NamedAttrList attrs;
    attrs.set(nn::kRoleAttr, StringAttr::get(context, nn::stringifyRole(role)));
    return attrs;
  }
  NamedAttrList makeKeptAttrs(Value value) {
    NamedAttrList attrs = makeAttrs(ValueRole::Stash);
    if (wide.contains(value))
      attrs.set(PartValueAttr::attrName,
                PartValueAttr::ofGradient(backward.getContext()));
    return attrs;
  }
  NamedAttrList makeGradientAttrs(int64_t parameter) {
    NamedAttrList attrs = makeAttrs(ValueRole::ParameterGradient);
    attrs.set(PartValueAttr::attrName,
              PartValueAttr::ofParameter(backward.getContext(), parameter));
    return attrs;
  }

  func::FuncOp backward;
  Block &block;
  Operation *terminator;
  bool isSharded;
  DenseSet<Operation *> inputPart;
  /// What the weight part reads of the input part.
  SetVector<Value> kept;
  DenseSet<Value> wide; ///< of these gradients of parameters
};

/// False if one of the parts has nothing to do.
bool BackwardSplitter::slice() {
  SmallVector<Operation *> work;
  auto add = [&](Operation *op) {
    if (op && inputPart.insert(op).second)
      work.push_back(op);
  };
  bool hasInputs = false;
  for (auto [index, value] : llvm::enumerate(terminator->getOperands()))
    if (nn::getResultRole(backward, index) == ValueRole::InputGradient) {
      hasInputs = true;
      add(value.getDefiningOp());
    }
  if (!hasInputs)
    return false;
  for (Operation &op : block.without_terminator()) {
    bool reads = llvm::any_of(op.getOperands(), [&](Value operand) {
      auto argument = dyn_cast<BlockArgument>(operand);
      return argument && hasRole(argument, ValueRole::Parameter);
    });
    if (reads || isa<GatherParametersOp>(op))
      add(&op);
  }
  while (!work.empty())
    for (Value operand : work.pop_back_val()->getOperands())
      add(operand.getDefiningOp());
  return llvm::any_of(block.without_terminator(), [&](Operation &op) {
    return isa<nn::KernelOpInterface>(op) && !isInput(&op);
  });
}

/// False if a value would have to be kept in two types.
bool BackwardSplitter::collectKept() {
  // In the order of the function: arguments, then results.
  SmallVector<Value> values;
  for (BlockArgument argument : block.getArguments())
    if (hasRole(argument, ValueRole::Gradient))
      values.push_back(argument);
  for (Operation &op : block.without_terminator())
    if (isInput(&op))
      llvm::append_range(values, op.getResults());
  for (Value value : values) {
    bool read = false, returned = false;
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      if (user == terminator)
        returned |= isSharded && isGradient(use.getOperandNumber());
      else
        read |= !isInput(user);
    }
    if (read && returned)
      return false;
    if (read || returned)
      kept.insert(value);
    if (returned)
      wide.insert(value);
  }
  return true;
}

void BackwardSplitter::finish(func::FuncOp function, ArrayRef<Value> values,
                              ArrayRef<NamedAttrList> attrs) {
  Block &body = function.getBody().front();
  body.getTerminator()->setOperands(values);
  // Attributes of results that are left must not stand on others.
  function.removeResAttrsAttr();
  function.setType(FunctionType::get(function.getContext(),
                                     body.getArgumentTypes(),
                                     ValueRange(values).getTypes()));
  for (auto [index, list] : llvm::enumerate(attrs))
    function.setResultAttrs(index, list);
}

func::FuncOp BackwardSplitter::buildWeightPart(StringRef name) {
  MLIRContext *context = backward.getContext();
  IRMapping mapping;
  auto weight = cast<func::FuncOp>(backward->clone(mapping));
  weight.setName(name);
  weight->setAttr(PartitionAttr::attrName,
                  PartitionAttr::of(backward).withDirection(Direction::Weight));
  backward->getBlock()->getOperations().insertAfter(backward->getIterator(),
                                                    weight);
  Block &body = weight.getBody().front();
  for (Value value : kept) {
    unsigned index = weight.getNumArguments();
    (void)weight.insertArgument(index, value.getType(),
                                makeKeptAttrs(value).getDictionary(context),
                                value.getLoc());
    mapping.lookup(value).replaceAllUsesWith(weight.getArgument(index));
  }
  SmallVector<Value> values;
  SmallVector<NamedAttrList> attrs;
  SmallVector<unsigned> trained = nn::getTrainedParameters(backward);
  ArrayRef<unsigned> parameters = trained;
  for (auto [index, value] : llvm::enumerate(terminator->getOperands())) {
    if (!isGradient(index))
      continue;
    unsigned parameter = parameters.consume_front();
    if (!isInput(value) || wide.contains(value)) {
      values.push_back(body.getTerminator()->getOperand(index));
      attrs.push_back(makeGradientAttrs(parameter));
    }
  }
  finish(weight, values, attrs);
  SmallVector<Operation *> copies;
  for (Operation &op : block.without_terminator())
    if (isInput(&op))
      copies.push_back(mapping.lookup(&op));
  for (Operation *copy : llvm::reverse(copies))
    copy->erase();
  for (unsigned index = weight.getNumArguments(); index-- > 0;) {
    ValueRole role = nn::getArgRole(weight, index);
    BlockArgument argument = weight.getArgument(index);
    if (role == ValueRole::Gradient)
      (void)weight.eraseArgument(index);
    else if (role == ValueRole::Stash && argument.use_empty())
      weight.setArgAttr(
          index, PartValueAttr::attrName,
          PartValueAttr::ofLifetime(context, PartLifetime::Ended));
  }
  return weight;
}

void BackwardSplitter::keepInputPart() {
  MLIRContext *context = backward.getContext();
  SmallVector<Value> values;
  SmallVector<NamedAttrList> attrs;
  SmallVector<unsigned> trained = nn::getTrainedParameters(backward);
  ArrayRef<unsigned> parameters = trained;
  for (auto [index, value] : llvm::enumerate(terminator->getOperands())) {
    if (!isGradient(index)) {
      values.push_back(value);
      attrs.push_back(makeAttrs(nn::getResultRole(backward, index)));
      continue;
    }
    unsigned parameter = parameters.consume_front();
    if (isInput(value) && !wide.contains(value)) {
      values.push_back(value);
      attrs.push_back(makeGradientAttrs(parameter));
    }
  }
  for (BlockArgument argument : block.getArguments()) {
    bool livesOn = hasRole(argument, ValueRole::Stash) &&
                   llvm::any_of(argument.getUsers(), [&](Operation *user) {
                     return user != terminator && !isInput(user);
                   });
    if (livesOn)
      backward.setArgAttr(
          argument.getArgNumber(), PartValueAttr::attrName,
          PartValueAttr::ofLifetime(context, PartLifetime::Kept));
  }
  for (Value value : kept) {
    values.push_back(value);
    attrs.push_back(makeKeptAttrs(value));
  }
  finish(backward, values, attrs);
  SmallVector<Operation *> left;
  for (Operation &op : block.without_terminator())
    if (!isInput(&op))
      left.push_back(&op);
  for (Operation *op : llvm::reverse(left))
    op->erase();
}

struct SplitBackwardPass
    : mlir::galvatron::impl::GalvatronSplitBackwardBase<SplitBackwardPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    PlanAttr plan = mlir::galvatron::getPlan(module);
    ModelOp model = mlir::galvatron::getModel(module);
    if (!model)
      return signalPassFailure();
    // The attribute's verifier has parsed it.
    if (!plan || !llvm::cantFail(::galvatron::parseSchedule(plan.getSchedule()))
                      ->splitsBackward())
      return markAllAnalysesPreserved();
    SymbolTable symbols(module);
    llvm::StringMap<func::FuncOp> weights; // by backward function
    for (LayerOp layer : model.getLayers()) {
      if (!layer.getBackwardAttr() || layer.getRecomputeAttr())
        continue;
      StringRef name = layer.getBackwardAttr().getValue();
      auto [entry, inserted] = weights.try_emplace(name);
      if (inserted) {
        auto backward = symbols.lookup<func::FuncOp>(name);
        if (!backward || !PartitionAttr::of(backward)) {
          layer.emitError() << "expected layer '" << layer.getLayerName()
                            << "' to have partitioned functions, found none";
          return signalPassFailure();
        }
        StringRef stem = name;
        stem.consume_back(".backward");
        entry->second = splitBackward(backward, (stem + ".weight").str());
      }
      if (entry->second)
        layer.setWeightAttr(FlatSymbolRefAttr::get(entry->second));
    }
  }
};

} // namespace

func::FuncOp mlir::galvatron::splitBackward(func::FuncOp backward,
                                            StringRef name) {
  // The stash of a recomputed layer is gone when its backward function ends.
  if (PartitionAttr::of(backward).getGathered())
    return {};
  return BackwardSplitter(backward).run(name);
}
