//===- Kept.cpp - Backward from a part of the stash -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Values that backward needs and that were not kept are computed again inside
// the backward function, by the least slice of the forward function behind kept
// values and inputs. So nothing behind differentiation has to know of it: the
// slice is partitioned, gets its collectives, is fused, split and allocated
// with the rest. Every operation of it stands directly in front of its first
// user, so that what it makes is there no longer than it must be.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/NN/Transforms/Bodies.h"
#include "galvatron/Support/Hash.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mlir::nn;

std::string nn::hashBody(func::FuncOp body) {
  // Bodies that differ in their names and in free attributes alone have the
  // same values.
  func::FuncOp plain = body.clone();
  plain.setName("body");
  plain.walk([](KernelOpInterface op) {
    for (StringRef name : op.getFreeAttributes())
      op->setAttr(name, Builder(op).getZeroAttr(
                            op->getAttrOfType<TypedAttr>(name).getType()));
  });
  std::string text;
  llvm::raw_string_ostream stream(text);
  plain.print(stream, OpPrintingFlags().useLocalScope());
  plain->erase();
  return ::galvatron::contentHash(text);
}

bool nn::mayBeRemade(Operation *op) { return isMemoryEffectFree(op); }

SmallVector<BodyValue> nn::getStash(func::FuncOp forward) {
  DenseMap<Operation *, unsigned> numbers;
  for (auto [number, op] : llvm::enumerate(forward.getBody().front()))
    numbers[&op] = number;
  SmallVector<BodyValue> values;
  Operation *terminator = forward.getBody().front().getTerminator();
  for (auto [index, value] : llvm::enumerate(terminator->getOperands()))
    if (getResultRole(forward, index) == ValueRole::Stash)
      values.push_back({numbers.lookup(value.getDefiningOp()),
                        cast<OpResult>(value).getResultNumber()});
  return values;
}

namespace {

class KeptBuilder {
public:
  KeptBuilder(const DerivedFunctions &whole, ArrayRef<BodyValue> kept)
      : whole(whole) {
    for (Operation &op : forwardBlock().without_terminator())
      operations.push_back(&op);
    this->kept.assign(kept.begin(), kept.end());
  }

  FailureOr<DerivedFunctions> run(StringRef stem);

private:
  Block &forwardBlock() { return whole.forward.getBody().front(); }
  LogicalResult findValues();
  FailureOr<SmallVector<Operation *>> findSlice();
  func::FuncOp buildForward(StringRef name);
  func::FuncOp buildBackward(StringRef name, ArrayRef<Operation *> slice);

  DerivedFunctions whole;
  SmallVector<Operation *> operations;
  SmallVector<BodyValue> kept;
  llvm::SetVector<Value> keptValues; ///< of the forward function
};

LogicalResult KeptBuilder::findValues() {
  for (auto [operation, result] : kept) {
    if (operation >= operations.size() ||
        result >= operations[operation]->getNumResults())
      return whole.forward.emitError()
             << "expected kept values of the body's " << operations.size()
             << " operations, found result " << result << " of operation "
             << operation;
    keptValues.insert(operations[operation]->getResult(result));
  }
  return success();
}

/// The operations that make what backward needs and what was not kept, in their
/// order.
FailureOr<SmallVector<Operation *>> KeptBuilder::findSlice() {
  DenseSet<Value> missing;
  Operation *terminator = forwardBlock().getTerminator();
  for (auto [index, value] : llvm::enumerate(terminator->getOperands()))
    if (getResultRole(whole.forward, index) == ValueRole::Stash &&
        !keptValues.contains(value))
      missing.insert(value);
  SmallVector<Operation *> slice;
  for (Operation *op : llvm::reverse(operations)) {
    if (llvm::none_of(op->getResults(),
                      [&](Value value) { return missing.contains(value); }))
      continue;
    if (!mayBeRemade(op))
      return op->emitError() << "expected its results to be kept: '"
                             << op->getName() << "' must not run twice";
    slice.push_back(op);
    for (Value operand : op->getOperands())
      if (operand.getDefiningOp() && !keptValues.contains(operand))
        missing.insert(operand);
  }
  std::reverse(slice.begin(), slice.end());
  return slice;
}

/// A clone in which kept values are the stash.
func::FuncOp KeptBuilder::buildForward(StringRef name) {
  IRMapping mapping;
  auto function = cast<func::FuncOp>(whole.forward->clone(mapping));
  function.setName(name);
  Block &block = function.getBody().front();
  Operation *terminator = block.getTerminator();
  SmallVector<Value> values;
  SmallVector<ValueRole> roles;
  for (auto [index, value] : llvm::enumerate(terminator->getOperands()))
    if (ValueRole role = getResultRole(whole.forward, index);
        role != ValueRole::Stash) {
      values.push_back(value);
      roles.push_back(role);
    }
  for (Value value : keptValues) {
    values.push_back(mapping.lookup(value));
    roles.push_back(ValueRole::Stash);
  }
  terminator->setOperands(values);
  function.removeResAttrsAttr();
  function.setType(FunctionType::get(function.getContext(),
                                     function.getArgumentTypes(),
                                     ValueRange(values).getTypes()));
  for (auto [index, role] : llvm::enumerate(roles))
    setResultRole(function, index, role);
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
  return function;
}

/// A clone whose stash arguments are the kept values, and in which the slice
/// makes the others.
func::FuncOp KeptBuilder::buildBackward(StringRef name,
                                        ArrayRef<Operation *> slice) {
  func::FuncOp function = whole.backward.clone();
  function.setName(name);
  Block &block = function.getBody().front();
  // The mapping takes forward's arguments and stash to values of backward.
  IRMapping mapping;
  SmallVector<Value> inputs, parameters, oldStash;
  for (BlockArgument argument : block.getArguments()) {
    ValueRole role = getArgRole(function, argument.getArgNumber());
    if (role == ValueRole::Input || role == ValueRole::Data)
      inputs.push_back(argument);
    else if (role == ValueRole::Parameter)
      parameters.push_back(argument);
    else if (role == ValueRole::Stash)
      oldStash.push_back(argument);
  }
  ArrayRef<Value> nextInput = inputs, nextParameter = parameters;
  for (BlockArgument argument : forwardBlock().getArguments())
    mapping.map(argument, getArgRole(whole.forward, argument.getArgNumber()) ==
                                  ValueRole::Parameter
                              ? nextParameter.consume_front()
                              : nextInput.consume_front());
  // New stash arguments in front of the old ones, which lose their users.
  unsigned first = 0;
  while (first < function.getNumArguments() &&
         (getArgRole(function, first) == ValueRole::Gradient ||
          getArgRole(function, first) == ValueRole::Input ||
          getArgRole(function, first) == ValueRole::Data))
    ++first;
  for (auto [number, value] : llvm::enumerate(keptValues)) {
    unsigned index = first + unsigned(number);
    (void)function.insertArgument(index, value.getType(), DictionaryAttr(),
                                  value.getLoc());
    setArgRole(function, index, ValueRole::Stash);
    mapping.map(value, function.getArgument(index));
  }
  OpBuilder builder = OpBuilder::atBlockBegin(&block);
  SmallVector<Operation *> remade;
  for (Operation *op : slice) {
    IRMapping ofSlice = mapping;
    Operation *copy = builder.clone(*op, ofSlice);
    remade.push_back(copy);
    // A result that was kept is the kept one.
    for (auto [from, to] : llvm::zip(op->getResults(), copy->getResults()))
      if (!mapping.contains(from))
        mapping.map(from, to);
  }
  ArrayRef<Value> nextStash = oldStash;
  Operation *terminator = forwardBlock().getTerminator();
  for (auto [index, value] : llvm::enumerate(terminator->getOperands()))
    if (getResultRole(whole.forward, index) == ValueRole::Stash)
      Value(nextStash.consume_front())
          .replaceAllUsesWith(mapping.lookup(value));
  for (unsigned i = function.getNumArguments(); i-- > 0;)
    if (llvm::is_contained(oldStash, Value(function.getArgument(i))))
      (void)function.eraseArgument(i);
  for (Operation *op : llvm::reverse(remade)) {
    Operation *user = block.getTerminator();
    for (Operation *other : op->getUsers())
      if (other->isBeforeInBlock(user))
        user = other;
    op->moveBefore(user);
  }
  return function;
}

FailureOr<DerivedFunctions> KeptBuilder::run(StringRef stem) {
  if (failed(findValues()))
    return failure();
  FailureOr<SmallVector<Operation *>> slice = findSlice();
  if (failed(slice))
    return failure();
  DerivedFunctions result;
  result.forward = buildForward((stem + ".forward").str());
  result.backward = buildBackward((stem + ".backward").str(), *slice);
  Operation *after = whole.backward;
  for (func::FuncOp function : {result.forward, result.backward}) {
    after->getBlock()->getOperations().insertAfter(after->getIterator(),
                                                   function);
    after = function;
  }
  return result;
}

} // namespace

FailureOr<DerivedFunctions> nn::buildKept(const DerivedFunctions &whole,
                                          ArrayRef<BodyValue> kept,
                                          StringRef stem) {
  return KeptBuilder(whole, kept).run(stem);
}
