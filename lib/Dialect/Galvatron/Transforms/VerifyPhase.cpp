//===- VerifyPhase.cpp - galvatron-verify-phase ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One function a phase. Each states what the next phases rely on; what a
// dialect's own verifiers state is not repeated here.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Executable.h"
#include "galvatron/Dialect/Galvatron/IR/LiveSets.h"
#include "galvatron/Dialect/Galvatron/Transforms/FunctionValues.h"
#include "galvatron/Dialect/Galvatron/Transforms/FunctionsByName.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/Galvatron/Transforms/Phase.h"
#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/Dialect/Galvatron/Transforms/VerifyData.h"
#include "galvatron/Dialect/Galvatron/Transforms/VerifyStates.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONVERIFYPHASE
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

class PhaseVerifier {
public:
  PhaseVerifier(ModuleOp module, Phase phase, bool isRead)
      : module(module), phase(phase), isRead(isRead) {}

  LogicalResult verify() {
    // A phase keeps what the phases before it established, up to the point
    // where the model itself is turned into roles. What no pass changes is
    // asked again of IR that is read.
    if (failed(legalOps()))
      return failure();
    if (phase >= Phase::Schedule)
      return verifyRoles();
    ModelOp model = getModel(module);
    if (!model)
      return failure();
    layers = model.getLayers();
    auto is = [&](Phase first) {
      return isRead ? phase >= first : phase == first;
    };
    if (is(Phase::Annotate) && failed(verifyAnnotated()))
      return failure();
    if (is(Phase::Plan) && failed(verifyPlanned()))
      return failure();
    // Phases behind it keep the model's edges; ScheduleTasks asks again, as it
    // follows them.
    if (phase >= Phase::Split && failed(verifySplit(model, is(Phase::Split))))
      return failure();
    if (phase >= Phase::Differentiate && failed(verifyDifferentiated()))
      return failure();
    if (phase >= Phase::Partition && failed(verifyPartitioned()))
      return failure();
    if (phase >= Phase::Bufferize && failed(verifyBufferized()))
      return failure();
    if ((isRead || phase <= Phase::Annotate) && failed(verifyDataBounds(model)))
      return failure();
    if (phase < Phase::Differentiate || !isRead)
      return success();
    if (failed(verifyComputed()))
      return failure();
    return verifyModelNumber(model,
                             numberModel(model, phase >= Phase::Partition));
  }

private:
  LogicalResult illegal(Operation *op, StringRef expectation) {
    InFlightDiagnostic error = op->emitError();
    error << "'" << op->getName() << "' is illegal after the phase '"
          << stringifyPhase(phase) << "', " << expectation;
    if (isRead)
      error.attachNote() << "IR is read by the rules of the phase behind which "
                            "it was printed";
    return error;
  }

  /// Which operations may stand in the module at all.
  LogicalResult legalOps() {
    for (Operation &op : *module.getBody()) {
      if (isa<ParameterOp>(op))
        continue; // most of them
      const bool isGrt = op.getName().getDialectNamespace() == "grt";
      bool legal;
      if (phase < Phase::Bufferize)
        legal = isa<ModelOp, func::FuncOp>(op);
      else if (phase < Phase::Schedule)
        legal = isa<ModelOp>(op) || isGrt;
      else
        legal = isGrt;
      if (!legal)
        return illegal(&op, "expected it to have been converted");
    }
    return success();
  }

  LogicalResult verifyAnnotated() {
    for (LayerOp layer : layers)
      if (!layer.isOpaque() && !layer.getCostsAttr())
        return layer.emitOpError() << "expected 'costs' on layer '"
                                   << layer.getLayerName() << "', found none";
    return success();
  }

  LogicalResult verifyPlanned() {
    for (StringRef name :
         {GalvatronDialect::kClusterAttr, GalvatronDialect::kTrainingAttr,
          GalvatronDialect::kPlanAttr})
      if (!module->hasAttr(name))
        return module.emitError()
               << "expected the attribute '" << name << "' after the phase '"
               << stringifyPhase(phase) << "', found none";
    FailureOr<::galvatron::Cluster> cluster = resolveCluster(module, "");
    if (failed(cluster) || failed(readPlan(module, *cluster)))
      return failure();
    return success();
  }

  LogicalResult verifySplit(ModelOp model, bool isNew) {
    FailureOr<::galvatron::ScheduleShape> shape = getScheduleShape(module);
    if (failed(shape))
      return failure();
    int64_t expected = shape->runCount();
    int64_t found = model.getStages().size();
    if (found != expected)
      return model.emitOpError() << "expected " << expected
                                 << " stages as the plan says, found " << found;
    for (LayerOp layer : layers)
      if (!layer->getParentOfType<StageOp>())
        return layer.emitOpError() << "expected layer '" << layer.getLayerName()
                                   << "' inside a stage, found it outside";
    return isNew ? verifyExecutable(model) : success();
  }

  LogicalResult verifyDifferentiated() {
    for (LayerOp layer : layers) {
      if (layer.isOpaque())
        return layer.emitOpError()
               << "expected layer '" << layer.getLayerName()
               << "' to have a body, found a profile alone: it can be planned, "
                  "not executed";
      if (!layer.getForwardAttr() || !layer.getBackwardAttr())
        return layer.emitOpError()
               << "expected forward and backward functions for layer '"
               << layer.getLayerName() << "', found none";
      if (failed(verifyOneBody(layer)))
        return failure();
    }
    return success();
  }

  /// (M2) The functions of a layer are those of one body, each in its
  /// direction.
  static LogicalResult verifyOneBody(LayerOp layer) {
    StringRef stem = layer.getBackward()->rsplit('.').first;
    const std::pair<FlatSymbolRefAttr, StringRef> named[] = {
        {layer.getForwardAttr(), "forward"},
        {layer.getRecomputeAttr(), "recompute"},
        {layer.getBackwardAttr(), "backward"},
        {layer.getWeightAttr(), "weight"},
        {layer.getUpdateAttr(), "update"},
        {layer.getNormAttr(), "norm"}};
    for (auto [symbol, kind] : named) {
      if (!symbol)
        continue;
      auto [body, direction] = symbol.getValue().rsplit('.');
      if (body != stem || !direction.starts_with(kind))
        return layer.emitOpError()
               << "(M2) expected '" << kind << "' of layer '"
               << layer.getLayerName() << "' to name '" << stem << "." << kind
               << "', of one body with its other functions, found '"
               << symbol.getValue() << "'";
    }
    return success();
  }

  /// Verifies the states of values in a layer's functions, unless they are
  /// bufferized, or those of a layer before.
  LogicalResult verifyFunctions(const FunctionsByName &byName, LayerOp layer) {
    auto lookup = [&](FlatSymbolRefAttr symbol) {
      func::FuncOp function = byName.lookup(symbol);
      return function && PartitionAttr::of(function) ? function : nullptr;
    };
    LayerFunctions functions = {lookup(layer.getForwardAttr()),
                                lookup(layer.getRecomputeAttr()),
                                lookup(layer.getBackwardAttr())};
    if (functions.forward && verified.insert(functions.forward).second &&
        failed(verifyStates(functions)))
      return failure();
    func::FuncOp pack = lookup(layer.getPackForwardAttr());
    return pack && verified.insert(pack).second ? verifyStates({pack, {}, {}})
                                                : success();
  }

  LogicalResult verifyPartitioned() {
    FunctionsByName byName(module);
    // Layers of one body share its functions, which are looked at once.
    DenseSet<StringAttr> seen;
    for (LayerOp layer : layers) {
      if (phase == Phase::Partition && failed(verifyFunctions(byName, layer)))
        return failure();
      for (FlatSymbolRefAttr symbol :
           {layer.getForwardAttr(), layer.getRecomputeAttr(),
            layer.getBackwardAttr(), layer.getWeightAttr(),
            layer.getPackForwardAttr()}) {
        if (!symbol || !seen.insert(symbol.getAttr()).second)
          continue;
        func::FuncOp function = byName.lookup(symbol);
        if (!function)
          continue; // bufferized
        auto isDynamic = [](Type type) {
          auto shaped = dyn_cast<ShapedType>(type);
          return shaped && !shaped.hasStaticShape();
        };
        if (llvm::any_of(function.getArgumentTypes(), isDynamic) ||
            llvm::any_of(function.getResultTypes(), isDynamic))
          return function.emitOpError()
                 << "expected local sample counts, found '?'";
      }
      // Boundary tensors arrive in the layout that the layer works on.
      for (Value operand : layer.getInputs()) {
        auto producer = operand.getDefiningOp<LayerOp>();
        if (producer && producer.getStrategyAttr() != layer.getStrategyAttr() &&
            producer.getStrategyAttr().toStrategy().sampleLayout() !=
                layer.getStrategyAttr().toStrategy().sampleLayout())
          return layer.emitOpError()
                 << "expected a reshard from '"
                 << producer.getStrategyAttr().getNotation() << "' to '"
                 << layer.getStrategyAttr().getNotation() << "' in front of '"
                 << layer.getLayerName() << "', found none";
      }
    }
    return success();
  }

  /// Functions compute what they were made for. Behind everything else, which
  /// says more of what is wrong.
  LogicalResult verifyComputed() {
    FunctionsByName byName(module);
    DenseSet<Operation *> seen;
    for (LayerOp layer : layers)
      for (FlatSymbolRefAttr symbol :
           {layer.getForwardAttr(), layer.getRecomputeAttr(),
            layer.getBackwardAttr(), layer.getPackForwardAttr()}) {
        func::FuncOp function = byName.lookup(symbol);
        if (function && seen.insert(function).second &&
            failed(verifyValues(function, numberValues(function))))
          return failure();
      }
    return success();
  }

  LogicalResult verifyBufferized() {
    for (LayerOp layer : layers)
      if (!layer.getLayoutAttr())
        return layer.emitOpError() << "expected 'layout' on layer '"
                                   << layer.getLayerName() << "', found none";
    for (LayerOp layer : layers)
      if (failed(verifyLayout(layer)))
        return failure();
    return success();
  }

  /// (M3) The layout of a layer has the bytes of its values and the names of
  /// its data.
  static LogicalResult verifyLayout(LayerOp layer) {
    LayoutAttr layout = layer.getLayoutAttr();
    // Each value begins at a multiple of 64 bytes; one alone need not end
    // there.
    struct Bytes {
      int64_t exact = 0, aligned = 0;
    } in, out;
    auto add = [&](Bytes &bytes, Value value) {
      int64_t held = layout.getSamples() * getSampleBytes(value);
      bytes.exact = bytes.aligned + held;
      bytes.aligned += int64_t(llvm::alignTo(held, 64));
    };
    for (Value input : layer.getInputs())
      if (isa_and_nonnull<LayerOp>(getOrigin(input).getDefiningOp()))
        add(in, input);
    for (OpResult result : layer->getResults())
      if (cast<RankedTensorType>(result.getType()).isDynamicDim(0))
        add(out, result);
    for (auto [name, found, expected] :
         {std::tuple("input_bytes", layout.getInputBytes(), in),
          {"output_bytes", layout.getOutputBytes(), out}})
      if (found != expected.aligned && found != expected.exact)
        return layer.emitOpError()
               << "(M3) expected '" << name << "' of the layout of layer '"
               << layer.getLayerName() << "' to be the " << expected.aligned
               << " of its values, found " << found;
    SmallVector<DataAttr> declared =
        layer->getParentOfType<ModelOp>().getDeclaredData();
    SmallVector<StringRef> names;
    for (unsigned i = 0; i < layer.getInputs().size(); ++i)
      if (BlockArgument argument = layer.getDataArgument(i))
        names.push_back(declared[argument.getArgNumber()].getName());
    SmallVector<StringRef> listed;
    if (layout.getData())
      llvm::append_range(listed,
                         layout.getData().getAsValueRange<StringAttr>());
    if (names != listed)
      return layer.emitOpError()
             << "(M3) expected the layout of layer '" << layer.getLayerName()
             << "' to name the " << names.size()
             << " data that it reads, found " << listed.size()
             << " or other ones";
    return success();
  }

  /// Roles are numbered and checked by the grt dialect itself; here only that
  /// they are there, and that allocation has happened.
  LogicalResult verifyRoles() {
    int64_t roles = 0, schedules = 0;
    for (Operation &op : *module.getBody()) {
      StringRef name = op.getName().getStringRef();
      schedules += name == "grt.schedule";
      if (name != "grt.role")
        continue;
      ++roles;
      if (phase >= Phase::Allocate && !op.getAttr("arena"))
        return op.emitOpError("expected an arena layout, found none");
    }
    if (roles == 0 || roles != schedules)
      return module.emitError()
             << "expected one schedule for every role, found " << schedules
             << " for " << roles << " roles";
    return success();
  }

  ModuleOp module;
  Phase phase;
  bool isRead; ///< else it was made just now
  SmallVector<LayerOp, 8> layers;
  DenseSet<Operation *> verified; ///< forward functions
};

struct VerifyPhasePass
    : mlir::galvatron::impl::GalvatronVerifyPhaseBase<VerifyPhasePass> {
  using Base::Base;

  void runOnOperation() override {
    std::optional<Phase> known = symbolizePhase(phase);
    if (!known) {
      getOperation().emitError() << "unknown phase '" << phase
                                 << "', expected one of " << phaseNames();
      return signalPassFailure();
    }
    if (failed(PhaseVerifier(getOperation(), *known, read).verify()))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
