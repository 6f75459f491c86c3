//===- Differentiate.cpp - Forward and backward of a body -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// The gradient operations are first built in one function behind the forward
// ones, where they may refer to any forward value. That function is then split:
// forward values that the gradient refers to become the stash.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/NN/Transforms/Bodies.h"
#include "galvatron/Support/Units.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

using namespace mlir;
using namespace mlir::nn;

ValueRole nn::getArgRole(func::FuncOp function, unsigned index) {
  auto attr = function.getArgAttrOfType<StringAttr>(index, kRoleAttr);
  assert(attr && "layer function without roles");
  return *symbolizeRole(attr.getValue());
}
ValueRole nn::getResultRole(func::FuncOp function, unsigned index) {
  auto attr = function.getResultAttrOfType<StringAttr>(index, kRoleAttr);
  assert(attr && "layer function without roles");
  return *symbolizeRole(attr.getValue());
}
void nn::setArgRole(func::FuncOp function, unsigned index, ValueRole role) {
  function.setArgAttr(
      index, kRoleAttr,
      StringAttr::get(function.getContext(), stringifyRole(role)));
}
void nn::setResultRole(func::FuncOp function, unsigned index, ValueRole role) {
  function.setResultAttr(
      index, kRoleAttr,
      StringAttr::get(function.getContext(), stringifyRole(role)));
}

bool nn::isFrozen(func::FuncOp function, unsigned index) {
  return bool(function.getArgAttr(index, kFrozenAttr));
}

SmallVector<unsigned> nn::getTrainedParameters(func::FuncOp function) {
  SmallVector<unsigned> numbers;
  unsigned parameter = 0;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    if (getArgRole(function, i) != ValueRole::Parameter)
      continue;
    if (!isFrozen(function, i))
      numbers.push_back(parameter);
    ++parameter;
  }
  return numbers;
}

LogicalResult nn::verifySizes(func::FuncOp function, int64_t samples) {
  __int128 sum = 0, most = 0;
  Value largest;
  auto add = [&](Value value) {
    auto tensor = dyn_cast<RankedTensorType>(value.getType());
    if (!tensor)
      return;
    __int128 bytes = (tensor.getElementTypeBitWidth() + 7) / 8;
    // What is too large at some dimension is so with the others.
    for (int64_t dim : tensor.getShape())
      bytes = std::min<__int128>(
          bytes * (ShapedType::isDynamic(dim) ? samples : dim),
          ::galvatron::kBeyondMemory);
    sum += bytes;
    if (bytes > most) {
      most = bytes;
      largest = value;
    }
  };
  llvm::for_each(function.getArguments(), add);
  function.walk([&](Operation *op) { llvm::for_each(op->getResults(), add); });
  if (sum <= ::galvatron::kMostLayerBytes)
    return success();
  auto diagnostic = function.emitError()
                    << "expected the values of '" << function.getName()
                    << "' to take at most " << ::galvatron::kMostLayerBytes
                    << " bytes with " << samples << " samples, the largest is ";
  if (auto argument = dyn_cast<BlockArgument>(largest))
    diagnostic << "argument " << argument.getArgNumber();
  else
    diagnostic << "a result of '" << largest.getDefiningOp()->getName() << "'";
  return diagnostic << " of type " << largest.getType();
}

bool nn::isLossType(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getElementType().isF64() &&
         (tensor.getShape() == ArrayRef<int64_t>{1} ||
          tensor.getShape() == ArrayRef<int64_t>{2});
}

namespace {

/// Reverse-mode differentiation of one body.
class Differentiator {
public:
  Differentiator(func::FuncOp body, ArrayRef<bool> dataInputs)
      : body(body), dataInputs(dataInputs), inputCount(dataInputs.size()) {}

  FailureOr<DerivedFunctions> run() {
    joint = body.clone();
    if (failed(buildGradients()))
      return failure();
    collectStash();
    DerivedFunctions result;
    result.forward = buildForward();
    result.backward = buildBackward();
    joint->destroy();
    return result;
  }

private:
  Block &block() { return joint.getBody().front(); }
  Operation *terminator() { return block().getTerminator(); }

  LogicalResult buildGradients();
  void collectStash();
  func::FuncOp buildForward();
  func::FuncOp buildBackward();
  void addGradient(OpBuilder &builder, Value value, Value gradient);
  func::FuncOp createFunction(StringRef suffix, Operation *after,
                              ArrayRef<std::pair<Type, ValueRole>> arguments);
  void copyParameterAttrs(func::FuncOp function, unsigned firstParameter);

  /// Whether an argument of the body takes part in gradients.
  bool isDifferentiable(BlockArgument argument) const {
    unsigned number = argument.getArgNumber();
    return !isFrozen(body, number) &&
           (number >= inputCount || !dataInputs[number]);
  }
  ValueRole inputRole(unsigned number) const {
    return dataInputs[number] ? ValueRole::Data : ValueRole::Input;
  }

  func::FuncOp body, joint;
  ArrayRef<bool> dataInputs;
  unsigned inputCount;
  /// Last forward operation of `joint`; gradient operations follow it.
  Operation *lastForward = nullptr;
  DenseMap<Value, Value> gradients;
  SmallVector<Value> outputGradients; ///< block arguments added to `joint`
  SmallVector<Value> stash;
};

void Differentiator::addGradient(OpBuilder &builder, Value value,
                                 Value gradient) {
  Value &sum = gradients[value];
  sum = sum ? AddOp::create(builder, value.getLoc(), gradient.getType(), sum,
                            gradient)
                  .getResult()
            : gradient;
}

LogicalResult Differentiator::buildGradients() {
  DenseSet<Value> needsGradient;
  for (BlockArgument argument : block().getArguments())
    if (isDifferentiable(argument))
      needsGradient.insert(argument);
  SmallVector<Operation *> forward;
  for (Operation &op : block().without_terminator()) {
    forward.push_back(&op);
    if (llvm::any_of(op.getOperands(),
                     [&](Value v) { return needsGradient.contains(v); }))
      needsGradient.insert(op.getResults().begin(), op.getResults().end());
  }
  if (forward.empty())
    return body.emitError()
           << "expected a body with at least one operation, found none";
  lastForward = forward.back();

  OpBuilder builder(terminator());
  DenseSet<Operation *> endsInLoss;
  for (Value output : terminator()->getOperands()) {
    if (isLossType(output.getType())) {
      if (Operation *op = output.getDefiningOp())
        endsInLoss.insert(op);
      continue;
    }
    Value gradient = block().addArgument(output.getType(), output.getLoc());
    outputGradients.push_back(gradient);
    addGradient(builder, output, gradient);
  }

  for (Operation *op : llvm::reverse(forward)) {
    SmallVector<Value> resultGradients;
    bool active = endsInLoss.contains(op);
    for (Value result : op->getResults()) {
      resultGradients.push_back(gradients.lookup(result));
      active |= bool(resultGradients.back());
    }
    SmallVector<bool> needed;
    for (Value operand : op->getOperands())
      needed.push_back(needsGradient.contains(operand));
    if (!active || !llvm::is_contained(needed, true))
      continue;
    auto differentiable = dyn_cast<GradientOpInterface>(op);
    if (!differentiable)
      return op->emitError() << "expected an operation with a gradient, found '"
                             << op->getName() << "'";
    SmallVector<Value> operandGradients(op->getNumOperands());
    differentiable.buildGradient(builder, resultGradients, needed,
                                 operandGradients);
    for (auto [operand, gradient, wanted] :
         llvm::zip_equal(op->getOperands(), operandGradients, needed))
      if (gradient && wanted)
        addGradient(builder, operand, gradient);
  }

  for (BlockArgument argument :
       block().getArguments().take_front(body.getNumArguments()))
    if (isDifferentiable(argument) && !gradients.count(argument))
      return body.emitError()
             << "expected every argument but data to reach the result, "
                "argument "
             << argument.getArgNumber() << " does not";
  // Boundaries have gradients in both directions. Zeros stand for those that
  // nobody needs, so that no bytes are passed on that nothing has written.
  for (unsigned number = 0; number < inputCount; ++number)
    if (isFrozen(body, number)) {
      Value input = block().getArgument(number);
      gradients[input] =
          ScaleOp::create(builder, input.getLoc(), input.getType(), input,
                          builder.getF64FloatAttr(0), /*rounded=*/UnitAttr());
    }
  return success();
}

void Differentiator::collectStash() {
  DenseSet<Value> used;
  for (Operation *op = lastForward->getNextNode(); op != terminator();
       op = op->getNextNode())
    used.insert(op->operand_begin(), op->operand_end());
  // A gradient may be a forward value itself (cross entropy computes it).
  for (BlockArgument argument :
       block().getArguments().take_front(body.getNumArguments()))
    if (Value gradient = gradients.lookup(argument))
      used.insert(gradient);
  for (Operation &op : block()) {
    for (Value result : op.getResults())
      if (used.contains(result))
        stash.push_back(result);
    if (&op == lastForward)
      break;
  }
}

func::FuncOp
Differentiator::createFunction(StringRef suffix, Operation *after,
                               ArrayRef<std::pair<Type, ValueRole>> arguments) {
  OpBuilder builder(body.getContext());
  builder.setInsertionPointAfter(after);
  SmallVector<Type> types;
  for (auto [type, role] : arguments)
    types.push_back(type);
  auto function = func::FuncOp::create(builder, body.getLoc(),
                                       (body.getName() + suffix).str(),
                                       builder.getFunctionType(types, {}));
  function.setPrivate();
  for (StringRef name : {StringRef(kFactorUnitsAttr), StringRef(kUnevenAttr),
                         StringRef(kSharedAttr)})
    if (Attribute attr = body->getAttr(name))
      function->setAttr(name, attr);
  function.addEntryBlock();
  for (auto [index, argument] : llvm::enumerate(arguments))
    setArgRole(function, index, argument.second);
  return function;
}

void Differentiator::copyParameterAttrs(func::FuncOp function,
                                        unsigned firstParameter) {
  for (unsigned i = inputCount; i < body.getNumArguments(); ++i)
    for (StringRef name : {StringRef(kFactorsAttr), StringRef(kFrozenAttr)})
      if (Attribute attr = body.getArgAttr(i, name))
        function.setArgAttr(firstParameter + i - inputCount, name, attr);
}

/// Ends `function` with a return of `values` and sets its result types and
/// roles.
void finishFunction(func::FuncOp function,
                    ArrayRef<std::pair<Value, ValueRole>> results) {
  OpBuilder builder = OpBuilder::atBlockEnd(&function.getBody().front());
  SmallVector<Value> values;
  for (auto [value, role] : results)
    values.push_back(value);
  func::ReturnOp::create(builder, function.getLoc(), values);
  function.setType(builder.getFunctionType(function.getArgumentTypes(),
                                           ValueRange(values).getTypes()));
  for (auto [index, result] : llvm::enumerate(results))
    setResultRole(function, index, result.second);
}

func::FuncOp Differentiator::buildForward() {
  SmallVector<std::pair<Type, ValueRole>> arguments;
  for (auto [index, type] : llvm::enumerate(body.getArgumentTypes()))
    arguments.emplace_back(type, index < inputCount ? inputRole(index)
                                                    : ValueRole::Parameter);
  func::FuncOp function = createFunction(".forward", body, arguments);
  copyParameterAttrs(function, inputCount);
  for (unsigned i = 0; i < inputCount; ++i)
    if (Attribute madeOf = body.getArgAttr(i, kMadeOfAttr))
      function.setArgAttr(i, kMadeOfAttr, madeOf);
  IRMapping mapping;
  for (auto [from, to] : llvm::zip(block().getArguments(), // outputs' gradients
                                   function.getArguments())) // are not needed
    mapping.map(from, to);
  OpBuilder builder = OpBuilder::atBlockEnd(&function.getBody().front());
  for (Operation &op : block()) {
    builder.clone(op, mapping);
    if (&op == lastForward)
      break;
  }
  SmallVector<std::pair<Value, ValueRole>> results;
  for (Value output : terminator()->getOperands())
    results.emplace_back(mapping.lookup(output), isLossType(output.getType())
                                                     ? ValueRole::Loss
                                                     : ValueRole::Output);
  for (Value value : stash)
    results.emplace_back(mapping.lookup(value), ValueRole::Stash);
  finishFunction(function, results);
  return function;
}

func::FuncOp Differentiator::buildBackward() {
  SmallVector<std::pair<Type, ValueRole>> arguments;
  SmallVector<Value> sources;
  auto add = [&](Value value, ValueRole role) {
    arguments.emplace_back(value.getType(), role);
    sources.push_back(value);
  };
  for (Value gradient : outputGradients)
    add(gradient, ValueRole::Gradient);
  auto bodyArguments =
      block().getArguments().take_front(body.getNumArguments());
  for (BlockArgument input : bodyArguments.take_front(inputCount))
    add(input, inputRole(input.getArgNumber()));
  for (Value value : stash)
    add(value, ValueRole::Stash);
  unsigned firstParameter = arguments.size();
  for (Value parameter : bodyArguments.drop_front(inputCount))
    add(parameter, ValueRole::Parameter);

  Operation *after = body->getNextNode(); // the forward function
  func::FuncOp function = createFunction(".backward", after, arguments);
  copyParameterAttrs(function, firstParameter);
  IRMapping mapping;
  for (auto [from, to] : llvm::zip_equal(sources, function.getArguments()))
    mapping.map(from, to);
  OpBuilder builder = OpBuilder::atBlockEnd(&function.getBody().front());
  for (Operation *op = lastForward->getNextNode(); op != terminator();
       op = op->getNextNode())
    builder.clone(*op, mapping);
  SmallVector<std::pair<Value, ValueRole>> results;
  for (auto [index, argument] : llvm::enumerate(bodyArguments))
    if (Value gradient = gradients.lookup(argument))
      results.emplace_back(mapping.lookup(gradient),
                           index < inputCount ? ValueRole::InputGradient
                                              : ValueRole::ParameterGradient);
  finishFunction(function, results);
  return function;
}

/// Operations that draw by one key would draw the same numbers.
LogicalResult verifyRandomKeys(func::FuncOp body) {
  llvm::DenseMap<int64_t, Operation *> byKey;
  for (Operation &op : body.getBody().front()) {
    auto training = dyn_cast<TrainingOpInterface>(op);
    std::optional<int64_t> key =
        training ? training.getRandomKey() : std::nullopt;
    if (!key)
      continue;
    auto [other, inserted] = byKey.try_emplace(*key, &op);
    if (inserted)
      continue;
    auto diagnostic = op.emitError()
                      << "expected another 'op_index' than " << *key
                      << ", which another operation of body '" << body.getName()
                      << "' has: they would draw the same random numbers";
    diagnostic.attachNote(other->second->getLoc()) << "the other one is here";
    return diagnostic;
  }
  return success();
}

/// Clones `forward` keeping only results for which `keep` holds, and erases
/// what is then unused.
func::FuncOp cloneWithResults(func::FuncOp forward, StringRef name,
                              llvm::function_ref<bool(ValueRole)> keep) {
  func::FuncOp function = forward.clone();
  function.setName(name);
  forward->getBlock()->getOperations().insertAfter(forward->getIterator(),
                                                   function);
  Block &block = function.getBody().front();
  SmallVector<std::pair<Value, ValueRole>> results;
  for (auto [index, value] :
       llvm::enumerate(block.getTerminator()->getOperands()))
    if (keep(getResultRole(function, index)))
      results.emplace_back(value, getResultRole(function, index));
  block.getTerminator()->erase();
  function.removeResAttrsAttr();
  finishFunction(function, results);
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
  return function;
}

} // namespace

FailureOr<DerivedFunctions> nn::differentiateBody(func::FuncOp body,
                                                  ArrayRef<bool> dataInputs) {
  if (!llvm::hasSingleElement(body.getBody()))
    return body.emitError() << "expected body '" << body.getName()
                            << "' to be defined by one block";
  for (auto [index, type] : llvm::enumerate(body.getArgumentTypes()))
    if (!isa<RankedTensorType>(type))
      return body.emitError()
             << "expected argument " << index << " of body '" << body.getName()
             << "' to be a tensor, found " << type;
  if (failed(verifySizes(body, /*samples=*/1)) ||
      failed(verifyRandomKeys(body)))
    return failure();
  return Differentiator(body, dataInputs).run();
}

func::FuncOp nn::buildForwardOnly(func::FuncOp forward, StringRef name) {
  return cloneWithResults(
      forward, name, [](ValueRole role) { return role != ValueRole::Stash; });
}

func::FuncOp nn::buildRecompute(func::FuncOp forward, StringRef name) {
  bool hasStash = false;
  for (unsigned i = 0; i < forward.getNumResults(); ++i)
    hasStash |= getResultRole(forward, i) == ValueRole::Stash;
  if (!hasStash)
    return nullptr;
  return cloneWithResults(
      forward, name, [](ValueRole role) { return role == ValueRole::Stash; });
}
