//===- AnnotateCosts.cpp - galvatron-annotate-costs -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONANNOTATECOSTS
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

struct Work {
  double flops = 0, movedBytes = 0;
};

/// Work of one sample.
FailureOr<Work> countWork(func::FuncOp function) {
  Work work;
  for (Operation &op : function.getBody().front().without_terminator()) {
    auto cost = dyn_cast<nn::CostOpInterface>(op);
    if (!cost)
      return op.emitOpError("expected an operation with known cost in a body");
    work.flops += cost.getFlops(1);
    work.movedBytes += cost.getMovedBytes(1);
  }
  return work;
}

int64_t bytesOf(ValueRange values) {
  int64_t bytes = 0;
  for (Value value : values)
    bytes += nn::countBytes(value.getType(), 1);
  return bytes;
}

/// The largest sum of values of the block that are live at one time. Gradients
/// of parameters, which the function returns, count as well.
int64_t peakLiveBytes(func::FuncOp function) {
  Block &block = function.getBody().front();
  DenseMap<Value, Operation *> lastUse;
  for (Operation &op : block)
    for (Value operand : op.getOperands())
      lastUse[operand] = &op;
  int64_t live = 0, peak = 0;
  for (Operation &op : block) {
    for (Value result : op.getResults())
      live += nn::countBytes(result.getType(), 1);
    peak = std::max(peak, live);
    llvm::SmallDenseSet<Value> dead;
    for (Value operand : op.getOperands())
      if (operand.getParentBlock() == &block && operand.getDefiningOp() &&
          lastUse[operand] == &op && dead.insert(operand).second)
        live -= nn::countBytes(operand.getType(), 1);
    for (Value result : op.getResults())
      if (!lastUse.contains(result))
        live -= nn::countBytes(result.getType(), 1);
  }
  return peak;
}

struct AnnotateCostsPass
    : mlir::galvatron::impl::GalvatronAnnotateCostsBase<AnnotateCostsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    ModelOp model = getModel(module);
    if (!model)
      return signalPassFailure();
    SymbolTable symbols(module);
    llvm::StringMap<CostsAttr> costs;
    for (LayerOp layer : model.getLayers()) {
      if (!layer.getCalleeAttr())
        continue;
      auto body = symbols.lookup<func::FuncOp>(*layer.getCallee());
      if (!body)
        continue;
      CostsAttr &entry = costs[body.getSymName()];
      if (!entry && failed(measure(layer, body, entry)))
        return signalPassFailure();
      layer.setCostsAttr(entry);
    }
    report(module, model, symbols);
  }

  LogicalResult measure(LayerOp layer, func::FuncOp body, CostsAttr &entry) {
    unsigned inputs = layer.getInputs().size();
    FailureOr<Work> forward = countWork(body);
    if (failed(forward))
      return failure();
    // The derivative is made beside the module, so that annotating changes
    // nothing but attributes.
    OwningOpRef<ModuleOp> scratch = ModuleOp::create(body.getLoc());
    func::FuncOp copy = body.clone();
    scratch->push_back(copy);
    FailureOr<nn::DerivedFunctions> derived =
        nn::differentiateBody(copy, layer.getDataInputs());
    if (failed(derived))
      return failure();
    FailureOr<Work> backward = countWork(derived->backward);
    if (failed(backward))
      return failure();
    int64_t stash = 0;
    for (auto [index, type] :
         llvm::enumerate(derived->forward.getResultTypes()))
      if (nn::getResultRole(derived->forward, index) == nn::ValueRole::Stash)
        stash += nn::countBytes(type, 1);
    int64_t parameters = 0;
    for (BlockArgument argument : body.getArguments().drop_front(inputs))
      parameters += nn::countElements(argument.getType(), 1);

    Builder builder(body.getContext());
    entry = CostsAttr::get(
        body.getContext(), parameters,
        bytesOf(body.getArguments().drop_front(inputs)),
        bytesOf(body.getBody().front().getTerminator()->getOperands()), stash,
        peakLiveBytes(derived->backward),
        builder.getF64FloatAttr(forward->flops),
        builder.getF64FloatAttr(backward->flops),
        builder.getF64FloatAttr(forward->movedBytes),
        builder.getF64FloatAttr(backward->movedBytes));
    return success();
  }

  /// What the whole model comes to, tied parameters counted once.
  void report(ModuleOp module, ModelOp model, SymbolTable &symbols) {
    llvm::StringSet<> seen;
    int64_t parameters = 0, bytes = 0;
    double flops = 0;
    SmallVector<LayerOp, 8> layers = model.getLayers();
    for (LayerOp layer : layers) {
      for (FlatSymbolRefAttr symbol : layer.getParamSymbols())
        if (seen.insert(symbol.getValue()).second) {
          auto type =
              symbols.lookup<ParameterOp>(symbol.getValue()).getTensorType();
          parameters += nn::countElements(type, 1);
          bytes += nn::countBytes(type, 1);
        }
      if (CostsAttr costs = layer.getCostsAttr())
        flops += costs.getForwardFlops().getValueAsDouble();
    }
    std::string text =
        llvm::formatv("{0} parameters of {1} bytes in {2} layers, {3} "
                      "floating-point operations a sample in the forward pass",
                      parameters, bytes, layers.size(), int64_t(flops));
    remark::analysis(
        model.getLoc(),
        remark::RemarkOpts::name("annotate-costs").category("galvatron"))
        << text;
  }
};

} // namespace
