//===- ApplyTraining.cpp - galvatron-apply-training -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Strategy/Dtype.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AttrTypeSubElements.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONAPPLYTRAINING
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

/// Replaces the element type of every parameter, body and boundary.
void changeElementType(ModuleOp module, Type from, Type to) {
  AttrTypeReplacer replacer;
  replacer.addReplacement(
      [&](Type type) -> std::optional<std::pair<Type, WalkResult>> {
        auto tensor = dyn_cast<RankedTensorType>(type);
        if (!tensor || tensor.getElementType() != from)
          return std::nullopt;
        return std::make_pair(Type(tensor.clone(to)), WalkResult::skip());
      });

  // Row statistics have the accumulator type, and losses are f64 whatever the
  // element type: their types are set apart.
  Type accumulator = nn::accumulatorElement(to);
  SmallVector<std::pair<Value, Type>> fixed;
  module.walk([&](nn::TrainingOpInterface op) {
    for (OpResult result : op->getResults()) {
      auto tensor = dyn_cast<RankedTensorType>(result.getType());
      switch (op.getElementRole(result.getResultNumber())) {
      case nn::ElementRole::Compute:
        break;
      case nn::ElementRole::Accumulator:
        fixed.emplace_back(result, tensor.clone(accumulator));
        break;
      case nn::ElementRole::Fixed:
        fixed.emplace_back(result, tensor);
        break;
      }
    }
  });
  auto isLoss = [](Type type) { return nn::isLossType(type); };
  // Only from f64 can a loss be taken for an activation.
  module.walk([&](Operation *op) {
    if (isa<LayerOp, StageOp, TransferOp>(op))
      for (OpResult result : op->getResults())
        if (isLoss(result.getType()))
          fixed.emplace_back(result, result.getType());
  });
  SmallVector<std::pair<func::FuncOp, FunctionType>> functions;
  for (auto function : module.getOps<func::FuncOp>()) {
    SmallVector<Type> results;
    for (Type type : function.getResultTypes())
      results.push_back(isLoss(type) ? type : replacer.replace(type));
    SmallVector<Type> arguments;
    for (Type type : function.getArgumentTypes())
      arguments.push_back(replacer.replace(type));
    functions.emplace_back(
        function, FunctionType::get(function.getContext(), arguments, results));
  }
  replacer.recursivelyReplaceElementsIn(module, /*replaceAttrs=*/true,
                                        /*replaceLocs=*/false,
                                        /*replaceTypes=*/true);
  for (auto [value, type] : fixed)
    value.setType(type);
  for (auto [function, type] : functions)
    function.setType(type);
}

/// Gives the losses of all bodies label smoothing and a z-loss. The types of
/// bodies and layers follow.
LogicalResult addLossTerms(ModuleOp module, double smoothing, double zLoss) {
  bool found = false;
  module.walk([&](nn::TrainingOpInterface op) {
    found |= op.addLossTerms(smoothing, zLoss);
  });
  if (!found)
    return module.emitError()
           << "expected a loss that has label smoothing or a z-loss, the "
              "cross-entropy of a layer's body, found none";
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isExternal())
      continue;
    Operation *end = function.getBody().back().getTerminator();
    function.setType(FunctionType::get(function.getContext(),
                                       function.getArgumentTypes(),
                                       end->getOperandTypes()));
  }
  SymbolTable symbols(module);
  module.walk([&](LayerOp layer) {
    auto body =
        layer.getCalleeAttr()
            ? symbols.lookup<func::FuncOp>(layer.getCalleeAttr().getValue())
            : func::FuncOp();
    if (!body)
      return;
    for (auto [result, type] :
         llvm::zip_equal(layer->getResults(), body.getResultTypes()))
      if (nn::isLossType(type))
        result.setType(type);
  });
  return success();
}

struct ApplyTrainingPass
    : mlir::galvatron::impl::GalvatronApplyTrainingBase<ApplyTrainingPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    MLIRContext *context = &getContext();
    ::galvatron::TrainingOptions options;
    options.optimizer = optimizer;
    options.dtype = dtype;
    options.clip = clip;
    options.clipDelayed = clipDelayed;
    options.dropout = dropout;
    options.decayAll = decayAll;
    options.labelSmoothing = labelSmoothing;
    options.zLoss = zLoss;
    auto rule = ::galvatron::optimizerNamed(options.optimizer);
    if (!rule) {
      module.emitError() << "expected 'optimizer' to be "
                         << ::galvatron::optimizerList() << ", found '"
                         << options.optimizer << "'";
      return signalPassFailure();
    }
    auto term = [&](double value) {
      return value == 0 ? FloatAttr()
                        : FloatAttr::get(Float64Type::get(context), value);
    };
    auto training = TrainingAttr::getChecked(
        [&]() { return module.emitError(); }, context, *rule,
        StringRef(options.dtype), options.clip, options.dropout,
        options.decayAll, options.clipDelayed, term(options.labelSmoothing),
        term(options.zLoss));
    if (!training)
      return signalPassFailure();
    module->setAttr(GalvatronDialect::kTrainingAttr, training);

    llvm::StringRef stored = ::galvatron::storedAs(options.dtype);
    Type to = stored == "f64"    ? Type(Float64Type::get(context))
              : stored == "bf16" ? Type(BFloat16Type::get(context))
                                 : Type(Float32Type::get(context));
    Type from;
    for (auto parameter : module.getOps<ParameterOp>()) {
      Type type = parameter.getTensorType().getElementType();
      if (from && from != type) {
        parameter.emitOpError()
            << "has the element type " << type
            << ", expected that of the other parameters, " << from;
        return signalPassFailure();
      }
      from = type;
    }
    if (from && from != to)
      changeElementType(module, from, to);
    if ((options.labelSmoothing != 0 || options.zLoss != 0) &&
        failed(addLossTerms(module, options.labelSmoothing, options.zLoss)))
      return signalPassFailure();
    if (!dropout)
      module.walk([](nn::TrainingOpInterface op) { op.removeDropout(); });
  }
};

} // namespace
