//===- ReferenceExecutor.cpp - A slow interpreter of nn in f64 ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceExecutor.h"
#include "ReferenceOps.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

using namespace galvatron::reference;
using namespace mlir;
using mlir::nn::ValueRole;

namespace {

llvm::Error makeError(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

llvm::StringMap<Evaluator> &evaluators() {
  static llvm::StringMap<Evaluator> table = [] {
    llvm::StringMap<Evaluator> all;
    addNNEvaluators(all);
    return all;
  }();
  return table;
}

std::string printShape(ArrayRef<int64_t> shape) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::interleave(shape, stream, "x");
  return text;
}

/// One function on all ranks of a group.
class Interpreter {
public:
  Interpreter(func::FuncOp function, const Context &context, int64_t ranks)
      : function(function), context(context), ranks(ranks) {}

  llvm::Expected<std::vector<std::vector<Tensor>>>
  run(ArrayRef<std::vector<Tensor>> arguments);

private:
  llvm::Error bindArguments(ArrayRef<std::vector<Tensor>> arguments);
  llvm::Error visit(Operation *op);
  std::vector<int64_t> shapeOf(Value value) const {
    std::vector<int64_t> shape;
    for (int64_t dim : cast<RankedTensorType>(value.getType()).getShape())
      shape.push_back(ShapedType::isDynamic(dim) ? samples : dim);
    return shape;
  }

  func::FuncOp function;
  const Context &context;
  int64_t ranks, samples = 0;
  /// One tensor a rank.
  DenseMap<Value, std::vector<Tensor>> values;
};

llvm::Error
Interpreter::bindArguments(ArrayRef<std::vector<Tensor>> arguments) {
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    auto type = cast<RankedTensorType>(argument.getType());
    for (const std::vector<Tensor> &rank : arguments) {
      if (rank.size() != function.getNumArguments())
        return makeError("function '" + function.getName() + "' takes " +
                         Twine(function.getNumArguments()) +
                         " arguments, found " + Twine(rank.size()));
      const Tensor &tensor = rank[index];
      if (!type.hasStaticShape() && samples == 0 && !tensor.shape.empty())
        samples = tensor.shape.front();
      int64_t count = 1;
      for (int64_t dim : tensor.shape)
        count *= dim;
      if (tensor.shape != shapeOf(argument) || count != tensor.size())
        return makeError("argument " + Twine(index) + " of '" +
                         function.getName() + "' has shape " +
                         printShape(shapeOf(argument)) + ", found " +
                         printShape(tensor.shape));
      values[argument].push_back(tensor);
    }
  }
  return llvm::Error::success();
}

llvm::Error Interpreter::visit(Operation *op) {
  if (auto reduce = dyn_cast<mlir::galvatron::AllReduceOp>(op)) {
    Tensor sum = Tensor::zeros(shapeOf(reduce.getOutput()));
    for (const Tensor &part : values.lookup(reduce.getInput()))
      for (int64_t i = 0; i < sum.size(); ++i)
        sum.values[i] += part.values[i];
    values[reduce.getOutput()].assign(ranks, sum);
    return llvm::Error::success();
  }
  if (auto gather = dyn_cast<mlir::galvatron::AllGatherOp>(op)) {
    Tensor all;
    all.shape = shapeOf(gather.getOutput());
    if (all.shape.front() != ranks)
      return makeError("all-gather of " + Twine(all.shape.front()) +
                       " ranks in a group of " + Twine(ranks));
    for (const Tensor &part : values.lookup(gather.getInput()))
      all.values.insert(all.values.end(), part.values.begin(),
                        part.values.end());
    values[gather.getOutput()].assign(ranks, all);
    return llvm::Error::success();
  }
  // Marks for the conversion: arguments are whole parameters here.
  if (isa<mlir::galvatron::GatherParametersOp,
          mlir::galvatron::ReduceScatterGradientsOp>(op))
    return llvm::Error::success();

  auto entry = evaluators().find(op->getName().getStringRef());
  if (entry == evaluators().end())
    return makeError("no reference for operation '" +
                     op->getName().getStringRef() + "'");
  for (int64_t rank = 0; rank < ranks; ++rank) {
    SmallVector<const Tensor *> operands;
    for (Value operand : op->getOperands())
      operands.push_back(&values.find(operand)->second[rank]);
    SmallVector<Tensor> results;
    for (Value result : op->getResults())
      results.push_back(Tensor::zeros(shapeOf(result)));
    entry->second(op, operands, results, context, Rank{rank, ranks});
    for (auto [value, tensor] : llvm::zip_equal(op->getResults(), results))
      values[value].push_back(std::move(tensor));
  }
  return llvm::Error::success();
}

llvm::Expected<std::vector<std::vector<Tensor>>>
Interpreter::run(ArrayRef<std::vector<Tensor>> arguments) {
  if (function.isDeclaration())
    return makeError("function '" + function.getName() + "' has no body");
  if (llvm::Error error = bindArguments(arguments))
    return error;
  Block &block = function.getBody().front();
  for (Operation &op : block.without_terminator())
    if (llvm::Error error = visit(&op))
      return error;
  std::vector<std::vector<Tensor>> results(ranks);
  for (Value value : block.getTerminator()->getOperands())
    for (int64_t rank = 0; rank < ranks; ++rank)
      results[rank].push_back(values.find(value)->second[rank]);
  return results;
}

//===----------------------------------------------------------------------===//
// Whole models
//===----------------------------------------------------------------------===//

void accumulate(Tensor &sum, const Tensor &value) {
  if (sum.values.empty()) {
    sum = value;
    return;
  }
  for (int64_t i = 0; i < sum.size(); ++i)
    sum.values[i] += value.values[i];
}

class ModelRun {
public:
  ModelRun(ModuleOp module, const ModelInput &input)
      : module(module), input(input) {}
  llvm::Expected<ModelResult> run();

private:
  llvm::Error prepare();
  llvm::Error forward(mlir::galvatron::LayerOp layer, int64_t index);
  llvm::Error backward(mlir::galvatron::LayerOp layer, int64_t index);
  llvm::Expected<Tensor> parameter(func::FuncOp body, unsigned argument,
                                   StringRef name);
  Context contextOf(int64_t layer) const {
    Context context;
    context.seed = input.seed;
    context.step = input.step;
    context.layer = layer;
    context.inverseTokens = inverseTokens;
    context.dropout = input.dropout;
    return context;
  }

  ModuleOp module; ///< a copy that may be changed
  const ModelInput &input;
  SmallVector<mlir::galvatron::LayerOp> layers;
  double inverseTokens = 0;
  llvm::StringMap<nn::DerivedFunctions> derived;
  DenseMap<Value, Tensor> values, gradients;
  std::vector<std::vector<Tensor>> stashes;
  ModelResult result;
};

llvm::Error ModelRun::prepare() {
  mlir::galvatron::ModelOp model = mlir::galvatron::getModel(module);
  if (!model || model.getBlock().getNumArguments() != 2)
    return makeError("expected a model of tokens and labels");
  layers = model.getLayers();
  int64_t count = input.samples * int64_t(model.getSequenceLength());
  int64_t valid = 0;
  const std::vector<int32_t> *const data[] = {&input.tokens, &input.labels};
  for (int index : {0, 1}) {
    if (int64_t(data[index]->size()) != count)
      return makeError("expected " + Twine(count) +
                       " tokens and labels, found " +
                       Twine(data[index]->size()));
    values[model.getBlock().getArgument(index)] =
        Tensor{{input.samples, int64_t(model.getSequenceLength())},
               {data[index]->begin(), data[index]->end()}};
  }
  for (int32_t label : input.labels)
    valid += label >= 0;
  inverseTokens = valid ? 1.0 / double(valid) : 0;

  SymbolTable symbols(module);
  for (mlir::galvatron::LayerOp layer : layers) {
    if (!layer.getCalleeAttr())
      return makeError("expected layer '" + layer.getLayerName() +
                       "' to have a body");
    StringRef callee = layer.getCallee().value();
    if (derived.count(callee))
      continue;
    FailureOr<nn::DerivedFunctions> functions = nn::differentiateBody(
        symbols.lookup<func::FuncOp>(callee), layer.getDataInputs());
    if (failed(functions))
      return makeError("body '" + callee + "' has no gradient");
    derived[callee] = *functions;
  }
  return llvm::Error::success();
}

/// The parameter in the shape in which the body sees it.
llvm::Expected<Tensor> ModelRun::parameter(func::FuncOp body, unsigned argument,
                                           StringRef name) {
  auto found = input.parameters.find(name.str());
  if (found == input.parameters.end())
    return makeError("no value for parameter '" + name + "'");
  auto type = cast<RankedTensorType>(body.getArgumentTypes()[argument]);
  if (type.getNumElements() != int64_t(found->second.size()))
    return makeError("parameter '" + name + "' has " +
                     Twine(type.getNumElements()) + " elements, found " +
                     Twine(found->second.size()));
  return Tensor{type.getShape().vec(), found->second};
}

llvm::Error ModelRun::forward(mlir::galvatron::LayerOp layer, int64_t index) {
  func::FuncOp function = derived[layer.getCallee().value()].forward;
  std::vector<Tensor> arguments;
  for (Value operand : layer.getInputs())
    arguments.push_back(values.lookup(operand));
  for (FlatSymbolRefAttr symbol : layer.getParamSymbols()) {
    llvm::Expected<Tensor> tensor =
        parameter(function, arguments.size(), symbol.getValue());
    if (!tensor)
      return tensor.takeError();
    arguments.push_back(std::move(*tensor));
  }
  auto results = evaluate(function, arguments, contextOf(index));
  if (!results)
    return results.takeError();
  size_t outputs = layer.getNumResults();
  for (size_t i = 0; i < outputs; ++i) {
    values[layer.getResult(i)] = (*results)[i];
    if (nn::getResultRole(function, i) == ValueRole::Loss)
      result.loss += (*results)[i].values[0] * inverseTokens;
  }
  stashes.emplace_back(results->begin() + outputs, results->end());
  return llvm::Error::success();
}

llvm::Error ModelRun::backward(mlir::galvatron::LayerOp layer, int64_t index) {
  func::FuncOp function = derived[layer.getCallee().value()].backward;
  // In the order that Bodies.h gives.
  std::vector<Tensor> arguments;
  for (Value output : layer.getOutputs()) {
    if (nn::isLossType(output.getType()))
      continue;
    Tensor &gradient = gradients[output];
    if (gradient.values.empty())
      gradient = Tensor::zeros(values.lookup(output).shape);
    arguments.push_back(gradient);
  }
  for (Value operand : layer.getInputs())
    arguments.push_back(values.lookup(operand));
  arguments.insert(arguments.end(), stashes[index].begin(),
                   stashes[index].end());
  for (FlatSymbolRefAttr symbol : layer.getParamSymbols()) {
    llvm::Expected<Tensor> tensor =
        parameter(function, arguments.size(), symbol.getValue());
    if (!tensor)
      return tensor.takeError();
    arguments.push_back(std::move(*tensor));
  }
  auto results = evaluate(function, arguments, contextOf(index));
  if (!results)
    return results.takeError();
  size_t next = 0;
  for (Value operand : layer.getInputs()) {
    if (!isa<FloatType>(
            cast<RankedTensorType>(operand.getType()).getElementType()))
      continue;
    accumulate(gradients[operand], (*results)[next++]);
  }
  for (FlatSymbolRefAttr symbol : layer.getParamSymbols()) {
    std::vector<double> &sum = result.gradients[symbol.getValue().str()];
    const std::vector<double> &part = (*results)[next++].values;
    sum.resize(part.size());
    for (size_t i = 0; i < part.size(); ++i)
      sum[i] += part[i];
  }
  return llvm::Error::success();
}

llvm::Expected<ModelResult> ModelRun::run() {
  if (llvm::Error error = prepare())
    return error;
  for (auto [index, layer] : llvm::enumerate(layers))
    if (llvm::Error error = forward(layer, int64_t(index)))
      return error;
  for (int64_t index = int64_t(layers.size()) - 1; index >= 0; --index)
    if (llvm::Error error = backward(layers[index], index))
      return error;
  return result;
}

} // namespace

namespace galvatron::reference {

Tensor Tensor::zeros(std::vector<int64_t> shape) {
  int64_t count = 1;
  for (int64_t dim : shape)
    count *= dim;
  return Tensor{std::move(shape), std::vector<double>(count)};
}

void registerEvaluator(StringRef operation, Evaluator evaluator) {
  evaluators()[operation] = std::move(evaluator);
}

llvm::Expected<std::vector<std::vector<Tensor>>>
evaluateRanks(func::FuncOp function, ArrayRef<std::vector<Tensor>> arguments,
              const Context &context) {
  return Interpreter(function, context, int64_t(arguments.size()))
      .run(arguments);
}

llvm::Expected<std::vector<Tensor>> evaluate(func::FuncOp function,
                                             ArrayRef<Tensor> arguments,
                                             const Context &context) {
  auto results = evaluateRanks(
      function, ArrayRef<std::vector<Tensor>>{arguments.vec()}, context);
  if (!results)
    return results.takeError();
  return std::move(results->front());
}

llvm::Expected<ModelResult> runModel(ModuleOp module, const ModelInput &input) {
  OwningOpRef<ModuleOp> copy = module.clone();
  return ModelRun(*copy, input).run();
}

} // namespace galvatron::reference
