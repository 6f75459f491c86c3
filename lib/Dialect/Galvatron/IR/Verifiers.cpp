//===- Verifiers.cpp - Checks of operations -------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The numbers in the comments are those of the constraints in GalvatronOps.td.
//
//===----------------------------------------------------------------------===//

#include "Numbers.h"
#include "galvatron/Dialect/Galvatron/IR/DataKinds.h"
#include "galvatron/Dialect/Galvatron/IR/LiveSets.h"
#include "galvatron/Dialect/Galvatron/IR/Views.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Support/Units.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::galvatron;

//===----------------------------------------------------------------------===//
// ParameterOp
//===----------------------------------------------------------------------===//

LogicalResult ParameterOp::verify() {
  // (C1)
  auto tensor = dyn_cast<RankedTensorType>(getType());
  if (!tensor || !tensor.hasStaticShape() ||
      llvm::is_contained(tensor.getShape(), 0) ||
      !tensor.getElementType().isIntOrFloat())
    return emitOpError() << "expected a tensor type of static shape with at "
                            "least one element, found "
                         << getType();
  int64_t bytes = (tensor.getElementTypeBitWidth() + 7) / 8;
  for (int64_t dim : tensor.getShape())
    bytes = ::galvatron::multiplyBytes(bytes, dim);
  if (bytes > ::galvatron::kMostLayerBytes)
    return emitOpError() << "expected parameter '" << getSymName()
                         << "' to take at most " << ::galvatron::kMostLayerBytes
                         << " bytes, found " << getType();
  // (C2)
  StringRef init = getInit();
  if (init != "normal" && init != "constant" && init != "zeros" &&
      init != "ones" && init != kSinusoidsInit && init != kCacheInit)
    return emitOpError() << "expected 'init' to be 'normal', 'constant', "
                            "'zeros', 'ones', 'sinusoids' or 'cache', found '"
                         << init << "'";
  if ((init == kCacheInit || init == kSinusoidsInit) && !getFrozen())
    return emitOpError() << "expected 'frozen' beside the init '" << init
                         << "', found none";
  if (init == kSinusoidsInit && tensor.getRank() != 2)
    return emitOpError() << "expected a matrix beside the init '" << init
                         << "', found " << getType();
  // (C3)
  bool normal = init == "normal";
  if (normal && !getStdAttr())
    return emitOpError("expected 'std' beside the init 'normal', found none");
  if (!normal && getStdAttr())
    return emitOpError() << "expected no 'std' beside the init '" << init
                         << "', found one";
  if (normal && !isNumber(getStdAttr(), /*positive=*/true))
    return emitOpError() << "expected 'std' to be positive, found "
                         << getStdAttr();
  bool constant = init == "constant";
  if (constant != bool(getValueAttr()))
    return emitOpError() << "expected " << (constant ? "" : "no ")
                         << "'value' beside the init '" << init << "', found "
                         << (constant ? "none" : "one");
  if (constant && !getValueAttr().getValue().isFinite())
    return emitOpError() << "expected 'value' to be finite, found "
                         << getValueAttr();
  // (C5)
  SmallVector<StringRef> names = {getSymName()};
  if (ArrayAttr copies = getCopiesAttr())
    for (auto copy : copies.getAsRange<StringAttr>()) {
      if (copy.empty() || llvm::is_contained(names, copy.getValue()))
        return emitOpError()
               << "expected 'copies' to hold other names, each once, found "
               << copy;
      names.push_back(copy);
    }
  // (C6)
  if (PartAttr part = getPartAttr()) {
    if (getCopiesAttr())
      return emitOpError("expected 'part' or 'copies', found both");
    if (int64_t rows = getTensorType().getDimSize(0); rows % part.getCount())
      return emitOpError() << "expected a multiple of the part's "
                           << part.getCount() << " rows, found " << rows;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// ModelOp
//===----------------------------------------------------------------------===//

LogicalResult ModelOp::verify() {
  // (C7)
  if (std::optional<StringRef> config = getConfig()) {
    auto json = llvm::json::parse(*config);
    if (!json)
      return emitOpError() << "expected 'config' to be the text of a JSON "
                              "object: "
                           << llvm::toString(json.takeError());
    if (!json->getAsObject())
      return emitOpError()
             << "expected 'config' to be the text of a JSON object, found "
                "another value";
  }
  return success();
}

LogicalResult ModelOp::verifyRegions() {
  // (C1)
  for (BlockArgument argument : getBlock().getArguments()) {
    auto tensor = dyn_cast<RankedTensorType>(argument.getType());
    if (!tensor || tensor.getRank() == 0 || !tensor.isDynamicDim(0) ||
        tensor.getNumDynamicDims() != 1)
      return emitOpError() << "expected argument " << argument.getArgNumber()
                           << " to be a tensor whose first dimension alone is "
                              "dynamic, found "
                           << argument.getType();
  }
  // (C2)
  SmallVector<DataAttr> data = getDeclaredData();
  if (getDataAttr() && data.size() != getBlock().getNumArguments())
    return emitOpError() << "expected the data of "
                         << getBlock().getNumArguments() << " arguments, found "
                         << data.size();
  llvm::StringSet<> names;
  for (auto [datum, argument] : llvm::zip(data, getBlock().getArguments())) {
    if (datum.getType() != argument.getType())
      return emitOpError() << "expected data '" << datum.getName()
                           << "' to have the type of its argument, "
                           << argument.getType() << ", found "
                           << datum.getType();
    if (!names.insert(datum.getName()).second)
      return emitOpError() << "expected arguments of different names, found "
                              "two called '"
                           << datum.getName() << "'";
  }
  // (C3)
  if (getBlock().empty() || !isa<OutputOp>(getBlock().back()))
    return emitOpError("expected the body to end with 'galvatron.output'");
  for (Operation &op : getBlock())
    if (!isa<LayerOp, StageOp, TransferOp, ReshardOp, OutputOp>(op)) {
      auto diagnostic = emitOpError()
                        << "expected only layers, stages, transfers and "
                           "reshards in a model, found '"
                        << op.getName() << "'";
      diagnostic.attachNote(op.getLoc()) << "it stands here";
      return diagnostic;
    }

  llvm::StringMap<LayerOp> byName;
  SmallVector<LayerOp, 8> layers = getLayers();
  int64_t lastStage = 0;
  for (auto [index, layer] : llvm::enumerate(layers)) {
    // (C4)
    auto [position, inserted] = byName.try_emplace(layer.getLayerName(), layer);
    if (!inserted) {
      auto diagnostic = layer.emitOpError()
                        << "expected a name of its own, found '"
                        << layer.getLayerName() << "' of another layer";
      diagnostic.attachNote(position->second.getLoc()) << "which stands here";
      return diagnostic;
    }
    // (C6)
    if (static_cast<bool>(layer.getStageAttr()) !=
        static_cast<bool>(layers.front().getStageAttr()))
      return layer.emitOpError()
             << "expected either every layer to have a stage or none, but '"
             << (layer.getStageAttr() ? layers.front() : layer).getLayerName()
             << "' has none";
    // (C5)
    if (!layer.getStageAttr())
      continue;
    int64_t stage = *layer.getStage();
    if (index == 0 && stage != 0)
      return layer.emitOpError()
             << "expected the first layer in stage 0, found stage " << stage;
    if (stage < lastStage || stage > lastStage + 1)
      return layer.emitOpError()
             << "expected stage " << lastStage << " or " << lastStage + 1
             << " after a layer of stage " << lastStage << ", found " << stage;
    lastStage = stage;
  }

  llvm::DenseMap<int64_t, StageOp> owner;
  int64_t next = 0;
  for (StageOp stage : getStages()) {
    // (C5)
    if (static_cast<int64_t>(stage.getIndex()) != next)
      return stage.emitOpError() << "expected stage " << next << ", found "
                                 << static_cast<int64_t>(stage.getIndex());
    ++next;
    // (C8)
    for (int64_t device : stage.getDevices()) {
      auto [position, inserted] = owner.try_emplace(device, stage);
      // Stages with the same devices are chunks of one.
      if (inserted || position->second.getDevices() == stage.getDevices())
        continue;
      auto diagnostic = stage.emitOpError()
                        << "expected devices of its own, found device "
                        << device << " of stage "
                        << static_cast<int64_t>(position->second.getIndex());
      diagnostic.attachNote(position->second.getLoc())
          << "the other stage is here";
      return diagnostic;
    }
  }
  return success();
}

//===----------------------------------------------------------------------===//
// LayerOp
//===----------------------------------------------------------------------===//

/// Names a layer's strategy in messages.
static std::string foundStrategy(LayerOp layer) {
  if (!layer.getStrategyAttr())
    return "no strategy";
  return "strategy '" + layer.getStrategyAttr().getNotation() + "'";
}

LogicalResult LayerOp::verify() {
  // (C1)
  bool body = getCalleeAttr() || getForwardAttr();
  if (body == isOpaque())
    return emitOpError() << "expected layer '" << getLayerName()
                         << "' to have either a body or a profile, found "
                         << (body ? "both" : "neither");
  // (C6)
  if (getStageAttr() && getStageAttr().getInt() < 0)
    return emitOpError() << "expected 'stage' not to be negative, found "
                         << getStageAttr().getInt();
  // (C14)
  if (getDropoutKeyAttr() && getDropoutKeyAttr().getInt() < 0)
    return emitOpError() << "expected 'dropout_key' not to be negative, found "
                         << getDropoutKeyAttr().getInt();
  // (C7)
  if (getRecomputeAttr() &&
      (!getStrategyAttr() || !getStrategyAttr().getCheckpoint()))
    return emitOpError()
           << "expected a strategy with ckpt beside 'recompute', found "
           << foundStrategy(*this);
  // (C13)
  if (getKeptAttr() &&
      (!getStrategyAttr() || getStrategyAttr().getPoint() == 0))
    return emitOpError()
           << "expected a strategy with a point beside 'kept', found "
           << foundStrategy(*this);
  // (C9)
  if (getWeightAttr() && (!getBackwardAttr() || getRecomputeAttr()))
    return emitOpError() << "expected 'weight' beside 'backward' and without "
                            "'recompute', found it "
                         << (getRecomputeAttr() ? "with 'recompute'"
                                                : "without 'backward'");
  // (C10)
  if ((getPackForwardAttr() && !getForwardAttr()) ||
      (getPackLayoutAttr() && (!getPackForwardAttr() || !getLayoutAttr())))
    return emitOpError()
           << "expected 'pack_forward' beside 'forward', and "
              "'pack_layout' beside both it and 'layout', found one "
              "alone";
  // (C12)
  for (LayoutAttr layout : {getLayoutAttr(), getPackLayoutAttr()}) {
    if (!layout)
      continue;
    SmallVector<FlatSymbolRefAttr> symbols = llvm::map_to_vector(
        layout.getTensors().getAsRange<FlatTensorAttr>(),
        [](FlatTensorAttr tensor) { return tensor.getParameter(); });
    if (symbols != getParamSymbols())
      return emitOpError("expected the tensors of its layout to be its "
                         "parameters, in their order, found others");
  }
  // (C8)
  llvm::SmallDenseSet<StringAttr, 32> names;
  for (FlatSymbolRefAttr param : getParamSymbols())
    if (!names.insert(param.getAttr()).second)
      return emitOpError() << "expected each parameter once, found '"
                           << param.getValue() << "' twice";
  return success();
}

/// (C15)
static LogicalResult verifyFrozen(LayerOp layer, FunctionOpInterface function,
                                  unsigned argument, ParameterOp parameter) {
  bool isFrozen = bool(function.getArgAttr(argument, nn::kFrozenAttr));
  if (isFrozen == parameter.getFrozen())
    return success();
  auto diagnostic = layer.emitOpError()
                    << "expected argument " << argument << " of '"
                    << function.getName() << "' "
                    << (isFrozen ? "without" : "with") << " '"
                    << nn::kFrozenAttr << "', as '" << parameter.getSymName()
                    << "' is" << (isFrozen ? " not" : "") << " frozen";
  diagnostic.attachNote(function->getLoc())
      << "'" << function.getName() << "' is here";
  return diagnostic;
}

/// Returns true if the layer that makes `value` trains nothing, and its body
/// says that nothing in front of it does.
static bool isMadeByFrozen(Value value, SymbolTableCollection &tables) {
  auto maker = value.getDefiningOp<LayerOp>();
  if (!maker || !maker.getCalleeAttr())
    return false;
  auto body = tables.lookupNearestSymbolFrom<FunctionOpInterface>(
      maker, maker.getCalleeAttr());
  if (!body || body.getNumArguments() < maker.getInputs().size())
    return false;
  for (FlatSymbolRefAttr symbol : maker.getParamSymbols()) {
    auto parameter = tables.lookupNearestSymbolFrom<ParameterOp>(maker, symbol);
    if (!parameter || !parameter.getFrozen())
      return false;
  }
  for (auto [index, isData] : llvm::enumerate(maker.getDataInputs()))
    if (!isData && !body.getArgAttr(unsigned(index), nn::kFrozenAttr))
      return false;
  return true;
}

/// (C16)
static LogicalResult verifyFrozenInputs(LayerOp layer, FunctionOpInterface body,
                                        SymbolTableCollection &tables) {
  for (auto [index, input] : llvm::enumerate(layer.getInputs())) {
    if (!body.getArgAttr(unsigned(index), nn::kFrozenAttr) ||
        isMadeByFrozen(getOrigin(input), tables))
      continue;
    auto diagnostic = layer.emitOpError()
                      << "expected argument " << index << " of '"
                      << body.getName() << "' without '" << nn::kFrozenAttr
                      << "', as what makes it is trained, or is data";
    diagnostic.attachNote(body->getLoc())
        << "'" << body.getName() << "' is here";
    return diagnostic;
  }
  return success();
}

/// Checks that the arguments of a derived function that are parameters are
/// those of the layer: as many, and of the elements that each has as a whole.
static LogicalResult verifyParameterRoles(LayerOp layer, func::FuncOp function,
                                          ArrayRef<ParameterOp> parameters) {
  auto mismatch = [&](InFlightDiagnostic diagnostic) -> LogicalResult {
    diagnostic.attachNote(function.getLoc())
        << "'" << function.getName() << "' is here";
    return diagnostic;
  };
  size_t found = 0;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    if (function.getArgAttrOfType<StringAttr>(i, nn::kRoleAttr).getValue() !=
        nn::stringifyRole(nn::ValueRole::Parameter))
      continue;
    if (++found > parameters.size())
      continue;
    ParameterOp parameter = parameters[found - 1];
    if (failed(verifyFrozen(layer, function, i, parameter)))
      return failure();
    auto type = dyn_cast<RankedTensorType>(function.getArgumentTypes()[i]);
    if (!type)
      continue;
    ArrayRef<int64_t> whole = type.getShape();
    if (SliceAttr slice = SliceAttr::of(function, i))
      if (slice.getGlobalShape())
        whole = slice.getGlobalShape().asArrayRef();
    RankedTensorType declared = parameter.getTensorType();
    if (type.getElementType() != declared.getElementType() ||
        !areViews(whole, declared.getShape()))
      return mismatch(layer.emitOpError()
                      << "expected argument " << i << " of '"
                      << function.getName() << "' to be a view of '"
                      << parameter.getSymName() << "', " << declared
                      << ", found "
                      << RankedTensorType::get(whole, type.getElementType()));
  }
  if (found == parameters.size())
    return success();
  return mismatch(layer.emitOpError()
                  << "expected as many parameters as '" << function.getName()
                  << "' has, " << found << ", found " << parameters.size());
}

LogicalResult LayerOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  auto module = (*this)->getParentOfType<ModuleOp>();
  // (C2)
  auto checkFunction = [&](FlatSymbolRefAttr symbol, StringRef role,
                           Operation *&function) -> LogicalResult {
    if (!symbol)
      return success();
    function = symbolTable.lookupSymbolIn(module, symbol);
    if (!function)
      return emitOpError() << "expected '" << role
                           << "' to name a function, found no '"
                           << symbol.getValue() << "'";
    if (isLayerFunction(function))
      return success();
    auto diagnostic = emitOpError()
                      << "expected '" << role << "' to name a function, but '"
                      << symbol.getValue() << "' is a '" << function->getName()
                      << "'";
    diagnostic.attachNote(function->getLoc()) << "which stands here";
    return diagnostic;
  };
  Operation *callee = nullptr, *other = nullptr;
  if (failed(checkFunction(getCalleeAttr(), "callee", callee)) ||
      failed(checkFunction(getForwardAttr(), "forward", other)) ||
      failed(checkFunction(getRecomputeAttr(), "recompute", other)) ||
      failed(checkFunction(getBackwardAttr(), "backward", other)) ||
      failed(checkFunction(getWeightAttr(), "weight", other)) ||
      failed(checkFunction(getPackForwardAttr(), "pack_forward", other)) ||
      failed(checkFunction(getUpdateAttr(), "update", other)) ||
      failed(checkFunction(getNormAttr(), "norm", other)))
    return failure();
  // (C3)
  SmallVector<ParameterOp> parameters;
  for (FlatSymbolRefAttr symbol : getParamSymbols()) {
    Operation *target = symbolTable.lookupSymbolIn(module, symbol);
    auto parameter = dyn_cast_or_null<ParameterOp>(target);
    if (!parameter) {
      auto diagnostic = emitOpError() << "expected '" << symbol.getValue()
                                      << "' to name a galvatron.parameter, ";
      if (target)
        diagnostic << "but it is a '" << target->getName() << "'";
      else
        diagnostic << "found no such symbol";
      return diagnostic;
    }
    parameters.push_back(parameter);
  }

  // (C11) Derived functions are read by the roles of their values.
  for (FlatSymbolRefAttr symbol :
       {getForwardAttr(), getRecomputeAttr(), getBackwardAttr(),
        getWeightAttr(), getPackForwardAttr()}) {
    auto derived =
        symbol
            ? symbolTable.lookupNearestSymbolFrom<func::FuncOp>(module, symbol)
            : func::FuncOp();
    // The weight part of a backward pass takes some of the parameters.
    if (derived && (failed(nn::verifyHasRoles(derived)) ||
                    (symbol != getWeightAttr() &&
                     failed(verifyParameterRoles(*this, derived, parameters)))))
      return failure();
  }

  // (C4) A bufferized body has no operands; then there is nothing to compare.
  auto function = dyn_cast_or_null<FunctionOpInterface>(callee);
  if (!function || function->getName().getStringRef() == "grt.func")
    return success();
  ArrayRef<Type> arguments = function.getArgumentTypes();
  ArrayRef<Type> results = function.getResultTypes();
  auto mismatch = [&](InFlightDiagnostic diagnostic) -> LogicalResult {
    diagnostic.attachNote(function->getLoc())
        << "'" << getCalleeAttr().getValue() << "' is here";
    return diagnostic;
  };
  size_t expected = getInputs().size() + parameters.size();
  if (arguments.size() != expected)
    return mismatch(emitOpError()
                    << "expected the " << arguments.size() << " arguments of '"
                    << *getCallee() << "', found " << getInputs().size()
                    << " operands and " << parameters.size() << " parameters");
  for (auto [index, input] : llvm::enumerate(getInputs()))
    if (input.getType() != arguments[index])
      return mismatch(emitOpError()
                      << "expected operand " << index << " of type "
                      << arguments[index] << ", found " << input.getType());
  if (results.size() != getNumResults())
    return mismatch(emitOpError()
                    << "expected the " << results.size() << " results of '"
                    << *getCallee() << "', found " << getNumResults());
  for (auto [index, type] : llvm::enumerate(getResultTypes()))
    if (type != results[index])
      return mismatch(emitOpError()
                      << "expected result " << index << " of type "
                      << results[index] << ", found " << type);
  // (C5)
  for (auto [index, parameter] : llvm::enumerate(parameters)) {
    auto argument =
        dyn_cast<RankedTensorType>(arguments[getInputs().size() + index]);
    RankedTensorType type = parameter.getTensorType();
    if (!argument || !argument.hasStaticShape() ||
        argument.getElementType() != type.getElementType() ||
        !areViews(argument.getShape(), type.getShape()))
      return mismatch(emitOpError()
                      << "passes parameter '" << parameter.getSymName()
                      << "' of type " << type << " as "
                      << arguments[getInputs().size() + index]
                      << ", expected the same element type and number of "
                         "elements, in rows that end where its rows do");
    if (failed(verifyFrozen(*this, function, getInputs().size() + index,
                            parameter)))
      return failure();
  }
  return verifyFrozenInputs(*this, function, symbolTable);
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

LogicalResult StageOp::verifyRegions() {
  // (C1)
  llvm::SmallSet<int64_t, 16> devices;
  if (getDevices().empty())
    return emitOpError("expected at least one device, found none");
  for (int64_t device : getDevices())
    if (device < 0 || !devices.insert(device).second)
      return emitOpError() << "expected distinct, non-negative devices, found "
                           << device << (device < 0 ? "" : " twice");
  // (C6)
  for (Operation &op : getBlock())
    if (!isa<LayerOp, ReshardOp, YieldOp>(op))
      return emitOpError()
             << "expected only layers and reshards in a stage, found '"
             << op.getName() << "'";
  // (C2)
  auto yield = cast<YieldOp>(getBlock().getTerminator());
  if (yield.getOperandTypes() != getResultTypes())
    return yield.emitOpError()
           << "expected the types of the stage's results: " << getResultTypes()
           << ", found " << yield.getOperandTypes();
  int64_t index = getIndex();
  for (LayerOp layer : getLayers()) {
    // (C3)
    if (!layer.getStageAttr() || layer.getStageAttr().getInt() != index)
      return layer.emitOpError()
             << "expected stage " << index << " of the "
             << "operation around it, found " << layer.getStageAttr();
    // (C4)
    StrategyAttr strategy = layer.getStrategyAttr();
    if (strategy &&
        strategy.getDevices() != static_cast<int64_t>(getDevices().size()))
      return layer.emitOpError()
             << "expected a strategy for the " << getDevices().size()
             << " devices of its stage, found '" << strategy.getNotation()
             << "' for " << strategy.getDevices();
  }
  // (C5)
  for (Operation &op : getBlock())
    for (Value operand : op.getOperands()) {
      if (operand.getParentBlock() == &getBlock() ||
          isa<BlockArgument>(operand))
        continue;
      auto transfer = operand.getDefiningOp<TransferOp>();
      if (!transfer || static_cast<int64_t>(transfer.getTo()) != index)
        return op.emitOpError()
               << "expected values of stage " << index
               << " or transferred to it, found one from outside";
    }
  return success();
}

LogicalResult TransferOp::verify() {
  int64_t from = getFrom(), to = getTo();
  // (C1)
  if (from < 0 || to != from + 1)
    return emitOpError() << "expected a transfer to the next stage, found from "
                         << from << " to " << to;
  // (C2)
  if (auto stage = getInput().getDefiningOp<StageOp>())
    if (static_cast<int64_t>(stage.getIndex()) == from)
      return success();
  if (auto transfer = getInput().getDefiningOp<TransferOp>())
    if (static_cast<int64_t>(transfer.getTo()) == from)
      return success();
  return emitOpError() << "expected a value of stage " << from
                       << ", found one of elsewhere";
}

LogicalResult ReshardOp::verify() {
  // (C1)
  if (getFrom().getDevices() != getTo().getDevices())
    return emitOpError() << "expected strategies for the same devices, found '"
                         << getFrom().getNotation() << "' for "
                         << getFrom().getDevices() << " and '"
                         << getTo().getNotation() << "' for "
                         << getTo().getDevices();
  return success();
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

LogicalResult AllGatherOp::verify() {
  // (C1)
  RankedTensorType input = getInput().getType(), output = getOutput().getType();
  bool fine = input.getElementType() == output.getElementType() &&
              output.getRank() == input.getRank() + 1 &&
              output.getShape().drop_front() == input.getShape() &&
              output.getShape().front() >= 2;
  if (!fine)
    return emitOpError() << "expected " << input
                         << " behind a new dimension of at least 2, found "
                         << output;
  return success();
}

/// (C1) of the operations on blocks of rows.
static LogicalResult verifyRows(Operation *op, RankedTensorType whole,
                                RankedTensorType block) {
  if (nn::RowsAttr::of(block) && nn::joinRows(block) == whole)
    return success();
  return op->emitOpError() << "expected " << block
                           << " to be a block of the rows of " << whole;
}

LogicalResult GatherRowsOp::verify() {
  return verifyRows(*this, getOutput().getType(), getInput().getType());
}

LogicalResult ReduceScatterRowsOp::verify() {
  return verifyRows(*this, getInput().getType(), getOutput().getType());
}

std::optional<int64_t> AllToAllOp::partOf(int64_t size, int64_t devices) {
  if (size % devices == 0)
    return size / devices;
  if (size > 0 && devices % size == 0)
    return 1;
  return std::nullopt;
}

RankedTensorType AllToAllOp::getPartType() {
  return isToRows() ? getInput().getType() : getOutput().getType();
}

bool AllToAllOp::isToRows() {
  return bool(nn::RowsAttr::of(getOutput().getType()));
}

RankedTensorType AllToAllOp::getBlockType() {
  return isToRows() ? getOutput().getType() : getInput().getType();
}

LogicalResult AllToAllOp::verify() {
  RankedTensorType block = getBlockType(), parts = getPartType();
  nn::RowsAttr rows = nn::RowsAttr::of(block);
  const auto dim = int64_t(getDim());
  if (rows && !rows.getBalanced() && !nn::RowsAttr::of(parts)) {
    RankedTensorType whole = nn::joinRows(block);
    SmallVector<int64_t> shape(whole.getShape());
    if (dim > 1 && dim < whole.getRank())
      if (auto size = partOf(shape[dim], rows.getDegree())) {
        shape[dim] = *size;
        if (whole.clone(shape) == parts)
          return success();
      }
  }
  return emitOpError() << "expected a block of rows and a part of dimension "
                       << dim << " of the tensor that it is of, found "
                       << getInput().getType() << " and "
                       << getOutput().getType();
}

LogicalResult ShiftOp::verify() {
  if (nn::RowsAttr::of(getInput().getType()))
    return success();
  return emitOpError() << "expected a block of rows, found "
                       << getInput().getType();
}

LogicalResult SliceRowsOp::verify() {
  return verifyRows(*this, getInput().getType(), getOutput().getType());
}

LogicalResult GatherParametersOp::verify() {
  // (C1)
  if (getAxis() != Axis::SDP)
    return emitOpError() << "expected the axis 'sdp', found '"
                         << stringifyAxis(getAxis()) << "'";
  return success();
}

LogicalResult ReduceScatterGradientsOp::verify() {
  // (C1)
  if (getAxis() != Axis::SDP)
    return emitOpError() << "expected the axis 'sdp', found '"
                         << stringifyAxis(getAxis()) << "'";
  return success();
}

bool mlir::galvatron::isLayerFunction(Operation *op) {
  StringRef name = op->getName().getStringRef();
  return name == "func.func" || name == "grt.func";
}
