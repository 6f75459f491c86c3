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
             "micro-batches to partition for";
      return signalPassFailure();
    }
    int64_t microBatch = plan.getBatch() / plan.getMicroBatches();

    SymbolTable symbols(module);
    DenseSet<StringAttr> seenParameters;
    llvm::StringMap<LayerFunctions> done;
    DenseSet<Operation *> wholeFunctions;
    for (LayerOp layer : model.getLayers()) {
      SmallVector<int64_t> borrowed;
      for (auto [index, symbol] : llvm::enumerate(layer.getParamSymbols()))
        if (!seenParameters.insert(symbol.getAttr()).second)
          borrowed.push_back(int64_t(index));
      if (!layer.getStrategyAttr() || !layer.getForwardAttr() ||
          !layer.getBackwardAttr()) {
        layer.emitError() << "expected layer '" << layer.getLayerName()
                          << "' to have a strategy and to be differentiated";
        return signalPassFailure();
      }
      ::galvatron::Strategy strategy = layer.getStrategyAttr().toStrategy();
      if (microBatch % strategy.sampleShards() != 0) {
        layer.emitError() << "expected the micro-batch of " << microBatch
                          << " samples to divide into "
                          << strategy.sampleShards()
                          << " sample shards of strategy '" << strategy.str()
                          << "'";
        return signalPassFailure();
      }
      int64_t samples = microBatch / strategy.sampleShards();

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

      StringRef stem = whole.backward.getName();
      stem.consume_back(".backward");
      std::string name = partitionedName(stem, strategy, samples, borrowed);
      auto entry = done.find(name);
      if (entry == done.end()) {
        if (auto reason = whyNotPartitionable(whole.forward, strategy)) {
          layer.emitError()
              << "layer '" << layer.getLayerName() << "' cannot have strategy '"
              << strategy.str() << "': " << *reason;
          return signalPassFailure();
        }
        FailureOr<LayerFunctions> functions =
            partitionLayer(whole, strategy, samples, name, borrowed);
        if (failed(functions))
          return signalPassFailure();
        if (strategy.ways(&::galvatron::ParadigmDescriptor::factor) > 1 &&
            !whole.forward->hasAttr(nn::kFactorUnitsAttr))
          layer.emitRemark()
              << "the body of layer '" << layer.getLayerName()
              << "' has no factor to split: it is replicated under '"
              << strategy.str() << "'";
        entry = done.try_emplace(name, *functions).first;
      }
      layer.setForwardAttr(FlatSymbolRefAttr::get(entry->second.forward));
      layer.setBackwardAttr(FlatSymbolRefAttr::get(entry->second.backward));
      if (entry->second.recompute)
        layer.setRecomputeAttr(FlatSymbolRefAttr::get(entry->second.recompute));
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
};

} // namespace
