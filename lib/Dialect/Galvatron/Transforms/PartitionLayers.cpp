//===- PartitionLayers.cpp - Layer functions per strategy -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Strategy/Strategy.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONPARTITIONLAYERS
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

struct PartitionLayersPass
    : mlir::galvatron::impl::GalvatronPartitionLayersBase<PartitionLayersPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    PlanAttr plan = mlir::galvatron::getPlan(module);
    ModelOp model = mlir::galvatron::getModel(module);
    if (!model)
      return signalPassFailure();
    if (!plan) {
      module.emitError()
          << "expected a 'galvatron.plan' with the batch and the "
             "micro-batches to partition for, found none";
      return signalPassFailure();
    }
    microBatch = plan.getBatch() / plan.getMicroBatches();
    // Packs that run forward only may have micro-batches of another size.
    ::galvatron::ScheduleShape shape = plan.getShape(/*chunks=*/1);
    int64_t packs = shape.regroups() ? shape.backwardPacks.back() : 0;

    SymbolTable symbols(module);
    DenseSet<StringAttr> seenParameters;
    for (auto [index, layer] : llvm::enumerate(model.getLayers())) {
      SmallVector<int64_t> borrowed;
      for (auto [number, symbol] : llvm::enumerate(layer.getParamSymbols()))
        if (!seenParameters.insert(symbol.getAttr()).second)
          borrowed.push_back(int64_t(number));
      if (!layer.getStrategyAttr() || !layer.getForwardAttr() ||
          !layer.getBackwardAttr()) {
        layer.emitError() << "expected layer '" << layer.getLayerName()
                          << "' to have a strategy and to be differentiated";
        return signalPassFailure();
      }
      LayerFunctions whole;
      whole.forward = symbols.lookup<func::FuncOp>(layer.getForward().value());
      whole.backward =
          symbols.lookup<func::FuncOp>(layer.getBackward().value());
      if (layer.getRecomputeAttr())
        whole.recompute =
            symbols.lookup<func::FuncOp>(layer.getRecompute().value());
      for (func::FuncOp function :
           {whole.forward, whole.recompute, whole.backward})
        if (function)
          wholeFunctions.insert(function);

      FailureOr<LayerFunctions> functions =
          getFunctions(layer, whole, microBatch, borrowed);
      if (failed(functions))
        return signalPassFailure();
      layer.setForwardAttr(FlatSymbolRefAttr::get(functions->forward));
      layer.setBackwardAttr(FlatSymbolRefAttr::get(functions->backward));
      if (functions->recompute)
        layer.setRecomputeAttr(FlatSymbolRefAttr::get(functions->recompute));
      if (int64_t(index) < packs) {
        FailureOr<LayerFunctions> ofPack =
            getFunctions(layer, whole,
                         plan.getBatch() / shape.forwardMicroBatches, borrowed);
        if (failed(ofPack))
          return signalPassFailure();
        layer.setPackForwardAttr(FlatSymbolRefAttr::get(ofPack->forward));
      }
      if (layer.getCalleeAttr()) {
        wholeFunctions.insert(symbols.lookup(layer.getCallee().value()));
        layer.removeCalleeAttr();
      }
    }
    // Bodies and derivatives on whole tensors have done their work.
    for (Operation *function : wholeFunctions)
      function->erase();
    // So have bodies that no layer calls.
    for (auto function :
         llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (function.isPrivate() && !PartitionAttr::of(function) &&
          SymbolTable::symbolKnownUseEmpty(function, module))
        function.erase();
  }

private:
  /// The functions of a layer for the local samples of a micro-batch of so
  /// many; of one that runs forward only nothing but the forward function.
  FailureOr<LayerFunctions> getFunctions(LayerOp layer,
                                         const LayerFunctions &whole,
                                         int64_t ofMicroBatch,
                                         ArrayRef<int64_t> borrowed) {
    ::galvatron::Strategy strategy = layer.getStrategyAttr().toStrategy();
    llvm::Expected<int64_t> local = strategy.localSamples(ofMicroBatch);
    if (!local)
      return layer.emitError() << llvm::toString(local.takeError());
    int64_t samples = *local;
    StringRef stem = func::FuncOp(whole.backward).getName();
    stem.consume_back(".backward");
    std::string name = partitionedName(stem, strategy, samples, borrowed);
    auto entry = done.find(name);
    if (entry != done.end())
      return entry->second;
    if (auto reason = whyNotPartitionable(whole.forward, strategy))
      return layer.emitError()
             << "layer '" << layer.getLayerName() << "' cannot have strategy '"
             << strategy.str() << "': " << *reason;
    FailureOr<LayerFunctions> functions =
        partitionLayer(whole, strategy, samples, name, borrowed);
    if (failed(functions))
      return failure();
    if (ofMicroBatch != microBatch) {
      for (func::FuncOp *unused : {&functions->backward, &functions->recompute})
        if (*unused)
          unused->erase();
      functions->backward = functions->recompute = nullptr;
    } else if (strategy.on(::galvatron::LayerAxis::Tensor) &&
               !whole.forward->hasAttr(nn::kFactorUnitsAttr)) {
      layer.emitRemark() << "the body of layer '" << layer.getLayerName()
                         << "' has no factor to split: it is replicated under '"
                         << strategy.str() << "'";
    }
    done.try_emplace(name, *functions);
    return functions;
  }

  int64_t microBatch = 0; ///< samples, of layers that run backward
  llvm::StringMap<LayerFunctions> done;
  DenseSet<Operation *> wholeFunctions;
};

} // namespace
