//===- Executable.cpp - Which models are compiled -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Executable.h"
#include "galvatron/Dialect/Galvatron/IR/LiveSets.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Dtype.h"

#include <map>

using namespace mlir;
using namespace mlir::galvatron;

namespace {

/// Checks what `user` takes of `previous`, all of whose results it must take.
LogicalResult verifyLink(LayerOp user, LayerOp previous) {
  unsigned next = 0;
  bool inOrder = true;
  for (Value operand : user.getInputs()) {
    Value origin = getOrigin(operand);
    if (isa<BlockArgument>(origin))
      continue;
    auto source = origin.getDefiningOp<LayerOp>();
    if (source != previous) {
      auto diagnostic =
          user.emitOpError()
          << "layer '" << user.getLayerName() << "' uses a result of layer '"
          << source.getLayerName()
          << "', expected results of the layer in front of it alone, '"
          << previous.getLayerName() << "': opaque layers are a chain";
      diagnostic.attachNote(source.getLoc())
          << "'" << source.getLayerName() << "' is here";
      return diagnostic;
    }
    inOrder &= cast<OpResult>(origin).getResultNumber() == next++;
  }
  if (inOrder && next == previous.getNumResults() && next > 0)
    return success();
  auto diagnostic = user.emitOpError()
                    << "layer '" << user.getLayerName() << "' takes " << next
                    << " results of layer '" << previous.getLayerName()
                    << "', expected each of the " << previous.getNumResults()
                    << " it gives, once and in order: opaque layers are a "
                       "chain";
  diagnostic.attachNote(previous.getLoc())
      << "'" << previous.getLayerName() << "' is here";
  return diagnostic;
}

/// A tensor of samples: its first dimension alone is dynamic.
bool hasSamples(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() > 0 && tensor.isDynamicDim(0) &&
         tensor.getNumDynamicDims() == 1;
}

/// Checks what a layer takes of those in front of it.
LogicalResult verifyTakes(LayerOp layer, bool first) {
  DenseSet<Value> taken;
  for (Value operand : layer.getInputs()) {
    Value origin = getOrigin(operand);
    auto source = origin.getDefiningOp<LayerOp>();
    if (!source || taken.insert(origin).second)
      continue;
    auto diagnostic = layer.emitOpError()
                      << "layer '" << layer.getLayerName() << "' takes result "
                      << cast<OpResult>(origin).getResultNumber()
                      << " of layer '" << source.getLayerName()
                      << "' twice, expected it once: its gradient is one "
                         "tensor";
    diagnostic.attachNote(source.getLoc())
        << "'" << source.getLayerName() << "' is here";
    return diagnostic;
  }
  if (first || !taken.empty())
    return success();
  return layer.emitOpError()
         << "layer '" << layer.getLayerName()
         << "' takes nothing of the layers in front of it, expected a result "
            "of "
            "one of them: only the first layer begins with data";
}

/// Checks what a layer gives to those behind it. `used` are the values that
/// some layer takes; `common` is the element type of such tensors so far.
LogicalResult verifyGives(LayerOp layer, const DenseSet<Value> &used,
                          Type &common) {
  for (OpResult result : layer->getResults()) {
    Type type = result.getType();
    auto refuse = [&]() {
      return layer.emitOpError()
             << "layer '" << layer.getLayerName() << "' gives " << type
             << " to later layers, expected ";
    };
    if (!hasSamples(type) ||
        !isa<FloatType>(cast<RankedTensorType>(type).getElementType()))
      return refuse() << "a floating-point tensor whose first dimension alone "
                         "is dynamic";
    Type element = cast<RankedTensorType>(type).getElementType();
    if (!common)
      common = element;
    if (element != common)
      return refuse() << "elements of type " << common
                      << " as earlier layers give: gradients of such tensors "
                         "are added in one type";
    if (!used.contains(result))
      return layer.emitOpError()
             << "layer '" << layer.getLayerName() << "' gives result "
             << result.getResultNumber()
             << " to no layer, expected a use: it would have no gradient";
  }
  return success();
}

/// Label smoothing and a z-loss make two numbers of a loss.
LogicalResult verifyLoss(LayerOp last) {
  TrainingAttr training = getTraining(last->getParentOfType<ModuleOp>());
  const bool hasTerms =
      training && (training.getLabelSmoothing() || training.getZLoss());
  auto loss = RankedTensorType::get(hasTerms ? 2 : 1,
                                    Float64Type::get(last.getContext()));
  if (last.getNumResults() == 1 && last.getResult(0).getType() == loss)
    return success();
  return last.emitOpError()
         << "expected the last layer, '" << last.getLayerName()
         << "', to give the loss, a " << Type(loss) << ", found "
         << last.getResultTypes();
}

/// Checks that the loader is told what it has to deliver, and that the loss is
/// a mean over something.
LogicalResult verifyDeclarations(ModelOp model) {
  SmallVector<DataAttr> data = model.getDeclaredData();
  for (BlockArgument argument : model.getBlock().getArguments())
    if (data.empty() && !argument.use_empty())
      return model.emitOpError()
             << "argument " << argument.getArgNumber() << " of type "
             << argument.getType()
             << " does not say what it is, expected 'is <kind, ..>' behind it";
  DataAttr counted;
  for (auto [datum, argument] :
       llvm::zip(data, model.getBlock().getArguments())) {
    if (argument.use_empty())
      return model.emitOpError() << "no layer reads '" << datum.getName()
                                 << "', expected one that does";
    if (datum.isCounted() && counted)
      return model.emitOpError()
             << "expected one argument that the loss is a mean over, found '"
             << counted.getName() << "' and '" << datum.getName() << "'";
    if (datum.isCounted())
      counted = datum;
  }
  if (counted)
    return success();
  return model.emitOpError() << "expected an argument that the loss is a mean "
                                "over, such as 'labels' or 'classes', found "
                                "none";
}

/// Layers of one body have one set of functions: what one of them reads as
/// data is data for the others too. `first` has a layer of each body.
LogicalResult verifyData(LayerOp layer,
                         llvm::DenseMap<StringAttr, LayerOp> &first) {
  FlatSymbolRefAttr body =
      layer.getCalleeAttr() ? layer.getCalleeAttr() : layer.getForwardAttr();
  if (!body)
    return success();
  auto [known, inserted] = first.try_emplace(body.getAttr(), layer);
  LayerOp other = known->second;
  SmallVector<bool> data = layer.getDataInputs();
  SmallVector<bool> expected = other.getDataInputs();
  for (size_t i = 0; i < std::min(data.size(), expected.size()); ++i)
    if (data[i] != expected[i]) {
      LayerOp reader = data[i] ? layer : other, taker = data[i] ? other : layer;
      auto diagnostic = layer.emitOpError()
                        << "operand " << i << " of layer '"
                        << reader.getLayerName()
                        << "' is an argument of the model, that of layer '"
                        << taker.getLayerName()
                        << "', which has the same body, is not: expected "
                           "layers of one body to read alike";
      diagnostic.attachNote(other.getLoc())
          << "'" << other.getLayerName() << "' is here";
      return diagnostic;
    }
  return success();
}

/// Whether all declared parameters have one element type, that of the training.
bool haveElementType(ModuleOp module, TrainingAttr training) {
  Type common;
  for (auto parameter : module.getOps<ParameterOp>()) {
    Type type = parameter.getTensorType().getElementType();
    if (common && type != common)
      return false;
    common = type;
  }
  return common && (common.isF32() || common.isF64() || common.isBF16()) &&
         (!training || isStoredAs(common, training));
}

/// Checks that parameters have one element type, for all layers share one
/// width of parameters, gradients and optimizer state.
LogicalResult verifyElementTypes(ModelOp model) {
  ParameterOp first;
  auto module = model->getParentOfType<ModuleOp>();
  TrainingAttr training = getTraining(module);
  // Where all that are declared have the right one, nothing has to be looked
  // up.
  if (haveElementType(module, training))
    return success();
  SymbolTable symbols(module);
  for (LayerOp layer : model.getLayers())
    for (FlatSymbolRefAttr symbol : layer.getParamSymbols()) {
      auto parameter = symbols.lookup<ParameterOp>(symbol.getAttr());
      Type type = parameter.getTensorType().getElementType();
      if (!type.isF32() && !type.isF64() && !type.isBF16())
        return layer.emitOpError()
               << "parameter '" << parameter.getSymName() << "' of layer '"
               << layer.getLayerName() << "' has the element type " << type
               << ", expected f32, f64 or bf16";
      if (!first && training && !isStoredAs(type, training))
        return layer.emitOpError()
               << "parameter '" << parameter.getSymName() << "' of layer '"
               << layer.getLayerName() << "' has the element type " << type
               << ", expected that of 'galvatron.training', "
               << training.getDtype();
      if (!first)
        first = parameter;
      Type expected = first.getTensorType().getElementType();
      if (type == expected)
        continue;
      auto diagnostic = layer.emitOpError()
                        << "parameter '" << parameter.getSymName()
                        << "' of layer '" << layer.getLayerName()
                        << "' has the element type " << type
                        << ", expected that of '" << first.getSymName() << "', "
                        << expected << ": all parameters of a model have one";
      diagnostic.attachNote(first.getLoc())
          << "'" << first.getSymName() << "' is here";
      return diagnostic;
    }
  return success();
}

/// By stage the first one with the devices that it has to have: as the plan's
/// schedule says; without a plan stages take the groups of devices in turns.
SmallVector<size_t> firstStages(ModelOp model) {
  SmallVector<StageOp, 8> stages = model.getStages();
  auto count = static_cast<int64_t>(stages.size());
  PlanAttr plan;
  if (auto module = model->getParentOfType<ModuleOp>())
    plan = getPlan(module);
  SmallVector<size_t> firsts;
  if (plan) {
    ::galvatron::ScheduleShape shape =
        plan.getShape(count / plan.getPipelineDegree());
    if (shape.runCount() == count) {
      auto schedule =
          llvm::cantFail(::galvatron::parseSchedule(plan.getSchedule()));
      std::map<int64_t, size_t> firstOfRole;
      for (int64_t stage = 0; stage < count; ++stage)
        firsts.push_back(
            firstOfRole
                .try_emplace(schedule->home(shape, shape.chunkOfRun(stage)),
                             stage)
                .first->second);
      return firsts;
    }
  }
  auto again = llvm::find_if(llvm::drop_begin(stages), [&](StageOp stage) {
    return stage.getDevices() == stages.front().getDevices();
  });
  int64_t groups = std::distance(stages.begin(), again);
  for (int64_t stage = 0; stage < count; ++stage)
    firsts.push_back(stage % groups);
  return firsts;
}

/// The stages that are there already have the devices from 0 on, as the ranks
/// of a program are numbered. The model's verifier sees to it that no two have
/// one in part. Stages with the same devices are chunks of one.
LogicalResult verifyDevices(ModelOp model) {
  SmallVector<StageOp, 8> stages = model.getStages();
  if (stages.empty())
    return success();
  SmallVector<size_t> firsts = firstStages(model);
  int64_t count = 0;
  for (auto [number, stage] : llvm::enumerate(stages)) {
    if (firsts[number] == number) {
      count += stage.getDevices().size();
      continue;
    }
    StageOp first = stages[firsts[number]];
    if (stage.getDevices() != first.getDevices())
      return stage.emitOpError()
             << "expected the devices of stage " << first.getIndex()
             << ", which has a chunk of the same role";
  }
  for (StageOp stage : stages)
    for (int64_t device : stage.getDevices())
      if (device >= count)
        return stage.emitOpError()
               << "the stages have " << count << " devices, expected 0 to "
               << count - 1 << ", found " << device;
  return success();
}

/// Checks that the model returns results of the last layer.
LogicalResult verifyOutput(ModelOp model, LayerOp previous) {
  for (Value operand : model.getOutput().getOperands()) {
    Value origin = getOrigin(operand);
    if (previous && origin.getDefiningOp() == previous)
      continue;
    auto diagnostic = model.getOutput().emitOpError() << "returns ";
    if (auto argument = dyn_cast<BlockArgument>(origin))
      diagnostic << "argument " << argument.getArgNumber() << " of the model";
    else
      diagnostic << "a result of layer '"
                 << origin.getDefiningOp<LayerOp>().getLayerName() << "'";
    diagnostic << ", expected results of the last layer";
    if (previous)
      diagnostic << ", '" << previous.getLayerName() << "'";
    return diagnostic;
  }
  return success();
}

} // namespace

LogicalResult mlir::galvatron::verifyChain(ModelOp model) {
  LayerOp previous;
  for (LayerOp layer : model.getLayers()) {
    if (previous && failed(verifyLink(layer, previous)))
      return failure();
    previous = layer;
  }
  return verifyOutput(model, previous);
}

bool mlir::galvatron::isStoredAs(Type type, TrainingAttr training) {
  std::string name;
  llvm::raw_string_ostream(name) << type;
  return ::galvatron::storedAs(training.getDtype()) == name;
}

LogicalResult mlir::galvatron::verifyExecutable(ModelOp model) {
  SmallVector<LayerOp, 8> layers = model.getLayers();
  if (layers.empty() ||
      llvm::any_of(layers, [](LayerOp layer) { return layer.isOpaque(); }))
    return success(succeeded(verifyChain(model)) &&
                   succeeded(verifyDevices(model)));
  if (failed(verifyOutput(model, layers.back())) ||
      failed(verifyDevices(model)))
    return failure();
  if (!llvm::is_contained(layers.front().getDataInputs(), true))
    return layers.front().emitOpError()
           << "expected the first layer, '" << layers.front().getLayerName()
           << "', to read an argument of the model";
  DenseSet<Value> used;
  Type common;
  for (LayerOp layer : layers)
    for (Value operand : layer.getInputs())
      used.insert(getOrigin(operand));
  llvm::DenseMap<StringAttr, LayerOp> first;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (failed(verifyTakes(layers[i], i == 0)))
      return failure();
    if (i + 1 < layers.size() && failed(verifyGives(layers[i], used, common)))
      return failure();
    if (failed(verifyData(layers[i], first)))
      return failure();
  }
  if (failed(verifyLoss(layers.back())) || failed(verifyDeclarations(model)))
    return failure();
  return verifyElementTypes(model);
}
