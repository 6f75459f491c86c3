//===- NNToGRT.cpp - convert-nn-to-grt ------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Conversion/NNToGRT/NNToGRT.h"
#include "galvatron/Cluster/Backend.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

namespace mlir {
#define GEN_PASS_DEF_CONVERTNNTOGRT
#include "galvatron/Conversion/NNToGRT/Passes.h.inc"
} // namespace mlir

using namespace mlir;
using namespace mlir::grt;

namespace {

/// What is known of a layer's functions, collected before they are converted.
struct LayerFacts {
  FlatLayout layout;
  int64_t bytesPerUnit = 0; ///< output boundary of one sample
  FunctionRegions forward;  ///< regions of the forward function
  int64_t recomputeStash = 0;
};

Type accumulatorElement(MLIRContext *context, const FlatLayout &layout) {
  return layout.accumulatorBytes == 8 ? Type(Float64Type::get(context))
                                      : Type(Float32Type::get(context));
}

/// The names of what a layer reads from the data loader, in the order in which
/// its functions number them.
SmallVector<StringRef> dataNames(mlir::galvatron::ModelOp model,
                                 mlir::galvatron::LayerOp layer) {
  SmallVector<mlir::galvatron::DataAttr> data = model.getDeclaredData();
  SmallVector<StringRef> names;
  for (unsigned i = 0; i < layer.getInputs().size(); ++i)
    if (BlockArgument argument = layer.getDataArgument(i))
      names.push_back(data[argument.getArgNumber()].getName());
  return names;
}

struct ConvertNNToGRTPass : mlir::impl::ConvertNNToGRTBase<ConvertNNToGRTPass> {
  void runOnOperation() override;

private:
  /// Whether weight decay acts on a parameter.
  bool decays(FlatSymbolRefAttr symbol) const {
    return decayed.contains(symbol.getAttr());
  }
  /// Begin, length and flag of each tensor that the layer owns.
  SmallVector<int64_t> segments(mlir::galvatron::LayerOp layer,
                                const FlatLayout &layout,
                                llvm::function_ref<bool(unsigned)> flag);
  FuncOp buildUpdate(mlir::galvatron::LayerOp layer, const LayerFacts &facts,
                     StringRef name, ::galvatron::Optimizer optimizer);
  FuncOp buildNorm(mlir::galvatron::LayerOp layer, const LayerFacts &facts,
                   StringRef name);
  mlir::galvatron::LayoutAttr buildLayout(mlir::galvatron::ModelOp model,
                                          mlir::galvatron::LayerOp layer,
                                          const LayerFacts &facts,
                                          int64_t samples);

  /// The names of parameters that weight decay acts on.
  llvm::DenseSet<StringAttr> decayed;
};

SmallVector<int64_t>
ConvertNNToGRTPass::segments(mlir::galvatron::LayerOp layer,
                             const FlatLayout &layout,
                             llvm::function_ref<bool(unsigned)> flag) {
  SmallVector<int64_t> ints;
  for (auto [index, tensor] : llvm::enumerate(layout.tensors))
    if (tensor.bucket == 0)
      ints.append({tensor.offset, tensor.elements(), flag(index) ? 1 : 0});
  return ints;
}

FuncOp ConvertNNToGRTPass::buildUpdate(mlir::galvatron::LayerOp layer,
                                       const LayerFacts &facts, StringRef name,
                                       ::galvatron::Optimizer optimizer) {
  ModuleOp module = getOperation();
  const FlatLayout &layout = facts.layout;
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  auto function = FuncOp::create(builder, layer.getLoc(), name);
  builder.setInsertionPointToStart(&function.getBody().front());
  Type accumulator = accumulatorElement(&getContext(), layout);
  Type element = layout.element ? layout.element : accumulator;
  int64_t n = layout.updatedElements();
  auto buffer = [&](int64_t elements, Type type, MemoryRegion region) -> Value {
    return BufferOp::create(builder, layer.getLoc(),
                            MemRefType::get(elements, type), region, 0);
  };
  Value parameter = buffer(n, element, MemoryRegion::Parameter);
  Value gradient = buffer(n, accumulator, MemoryRegion::Gradient);
  Value state = buffer(n * getOptimizerValues(optimizer, layout.elementBytes,
                                              layout.accumulatorBytes),
                       accumulator, MemoryRegion::Optimizer);
  SmallVector<int64_t> list = segments(layer, layout, [&](unsigned index) {
    return decays(layer.getParamSymbols()[index]);
  });
  SmallVector<int64_t> ints = {int64_t(optimizer), n, int64_t(list.size() / 3)};
  ints.append(list);
  KernelOp::create(builder, layer.getLoc(), Kernel::Optimizer,
                   ValueRange{parameter, gradient, state}, ints, {},
                   ::galvatron::optimizerName(optimizer));
  return function;
}

FuncOp ConvertNNToGRTPass::buildNorm(mlir::galvatron::LayerOp layer,
                                     const LayerFacts &facts, StringRef name) {
  const FlatLayout &layout = facts.layout;
  OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
  auto function = FuncOp::create(builder, layer.getLoc(), name);
  builder.setInsertionPointToStart(&function.getBody().front());
  int64_t n = layout.updatedElements();
  Value gradient = BufferOp::create(
      builder, layer.getLoc(),
      MemRefType::get(n, accumulatorElement(&getContext(), layout)),
      MemoryRegion::Gradient, 0);
  SmallVector<int64_t> list = segments(layer, layout, [&](unsigned index) {
    return layout.tensors[index].tpDim < 0;
  });
  SmallVector<int64_t> ints = {n, int64_t(list.size() / 3)};
  ints.append(list);
  KernelOp::create(builder, layer.getLoc(), Kernel::Norm, ValueRange{gradient},
                   ints, {}, "norm");
  return function;
}

mlir::galvatron::LayoutAttr
ConvertNNToGRTPass::buildLayout(mlir::galvatron::ModelOp model,
                                mlir::galvatron::LayerOp layer,
                                const LayerFacts &facts, int64_t samples) {
  MLIRContext *context = &getContext();
  Builder builder(context);
  const FlatLayout &layout = facts.layout;
  SmallVector<Attribute> tensors, groups;
  for (auto [symbol, tensor] :
       llvm::zip_equal(layer.getParamSymbols(), layout.tensors))
    tensors.push_back(mlir::galvatron::FlatTensorAttr::get(
        context, symbol, int64_t(tensor.bucket), tensor.offset,
        builder.getDenseI64ArrayAttr(tensor.view),
        builder.getDenseI64ArrayAttr(tensor.local), tensor.tpDim));
  for (const FlatBucket &bucket : layout.buckets)
    groups.push_back(mlir::galvatron::FlatGroupAttr::get(
        context, bucket.elements, bucket.shardElements));
  ArrayAttr data;
  if (SmallVector<StringRef> names = dataNames(model, layer); !names.empty())
    data = builder.getStrArrayAttr(names);
  return mlir::galvatron::LayoutAttr::get(
      context, samples, facts.forward.inputBytes, facts.forward.outputBytes,
      facts.forward.stashBytes, facts.recomputeStash, facts.bytesPerUnit,
      builder.getArrayAttr(tensors), builder.getArrayAttr(groups), data);
}

void ConvertNNToGRTPass::runOnOperation() {
  ModuleOp module = getOperation();
  mlir::galvatron::PlanAttr plan = mlir::galvatron::getPlan(module);
  mlir::galvatron::TrainingAttr training = mlir::galvatron::getTraining(module);
  mlir::galvatron::ModelOp model = mlir::galvatron::getModel(module);
  if (!model)
    return signalPassFailure();
  if (!plan || !training) {
    module.emitError() << "expected the attributes 'galvatron.plan' and "
                          "'galvatron.training', found "
                       << (plan       ? "the first alone"
                           : training ? "the second alone"
                                      : "neither");
    return signalPassFailure();
  }

  SymbolTable symbols(module);
  for (auto parameter : module.getOps<mlir::galvatron::ParameterOp>())
    if (parameter.getDecay())
      decayed.insert(parameter.getSymNameAttr());
  SmallVector<mlir::galvatron::LayerOp> layers = model.getLayers();
  if (!model.getDataAttr() &&
      llvm::any_of(layers, [](mlir::galvatron::LayerOp layer) {
        return llvm::is_contained(layer.getDataInputs(), true);
      })) {
    model.emitError(
        "expected the arguments to say what they are, found no 'data'");
    return signalPassFailure();
  }
  llvm::StringMap<LayerFacts> facts; // by forward function
  llvm::StringMap<FunctionRegions> regions;
  auto samplesOf = [&](mlir::galvatron::LayerOp layer, int64_t microBatches) {
    return cantFail(layer.getStrategyAttr().toStrategy().localSamples(
        plan.getBatch() / microBatches));
  };
  auto addFacts = [&](mlir::galvatron::LayerOp layer, FlatSymbolRefAttr symbol,
                      int64_t samples) -> LogicalResult {
    auto forward =
        symbol ? symbols.lookup<func::FuncOp>(symbol.getValue()) : nullptr;
    if (!forward || !mlir::galvatron::PartitionAttr::of(forward))
      return layer.emitError() << "expected layer '" << layer.getLayerName()
                               << "' to have partitioned functions, found none";
    auto [entry, inserted] = facts.try_emplace(forward.getName());
    if (!inserted)
      return success();
    FailureOr<FlatLayout> layout = getFlatLayout(forward);
    if (failed(layout))
      return failure();
    entry->second.layout = *layout;
    for (auto [index, type] : llvm::enumerate(forward.getResultTypes()))
      if (nn::getResultRole(forward, index) == nn::ValueRole::Output)
        entry->second.bytesPerUnit += nn::countBytes(type, 1) / samples;
    return success();
  };
  for (mlir::galvatron::LayerOp layer : layers) {
    SmallVector<int64_t, 2> counts = {plan.getMicroBatches()};
    if (layer.getPackForwardAttr())
      counts.push_back(plan.getForwardMicroBatches());
    for (int64_t count : counts)
      if (llvm::Expected<int64_t> local =
              layer.getStrategyAttr().toStrategy().localSamples(
                  plan.getBatch() / count);
          !local) {
        layer.emitError() << llvm::toString(local.takeError());
        return signalPassFailure();
      }
    if (failed(addFacts(layer, layer.getForwardAttr(),
                        samplesOf(layer, plan.getMicroBatches()))))
      return signalPassFailure();
    if (layer.getPackForwardAttr() &&
        failed(addFacts(layer, layer.getPackForwardAttr(),
                        samplesOf(layer, plan.getForwardMicroBatches()))))
      return signalPassFailure();
  }

  // Weight parts, by the input part.
  llvm::StringMap<func::FuncOp> weights;
  for (mlir::galvatron::LayerOp layer : layers)
    if (layer.getWeightAttr())
      weights[layer.getBackward().value()] =
          symbols.lookup<func::FuncOp>(layer.getWeight().value());
  // Here, since nn knows no devices.
  if (::galvatron::backendTraits(getBackend(module)).productEpilogues)
    for (auto function : module.getOps<func::FuncOp>())
      if (mlir::galvatron::PartitionAttr::of(function))
        nn::fuseProducts(function);
  for (auto &entry : weights)
    if (failed(placeKeptValues(symbols.lookup<func::FuncOp>(entry.getKey()),
                               entry.getValue())))
      return signalPassFailure();
  for (auto function :
       llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
    if (!mlir::galvatron::PartitionAttr::of(function))
      continue;
    std::string name = function.getName().str();
    if (failed(nn::verifyHasRoles(function)))
      return signalPassFailure();
    if (failed(
            convertFunction(function, getKernelTarget(module), &regions[name])))
      return signalPassFailure();
  }

  // By stem; updates also by the decay of the parameters, which layers of one
  // body need not share.
  llvm::StringMap<FuncOp> norms, updates;
  llvm::StringMap<int64_t> variants;
  for (mlir::galvatron::LayerOp layer : layers) {
    StringRef forward = layer.getForward().value();
    LayerFacts &fact = facts[forward];
    fact.forward = regions[forward];
    // What the input part keeps for the weight part lies behind what forward
    // keeps for both.
    if (layer.getWeightAttr())
      fact.forward.stashBytes = regions[layer.getBackward().value()].stashBytes;
    if (layer.getRecomputeAttr())
      fact.recomputeStash = regions[layer.getRecompute().value()].stashBytes;
    layer.setLayoutAttr(buildLayout(model, layer, fact,
                                    samplesOf(layer, plan.getMicroBatches())));
    if (layer.getPackForwardAttr()) {
      StringRef name = layer.getPackForward().value();
      LayerFacts ofPack = facts[name];
      ofPack.forward = regions[name];
      layer.setPackLayoutAttr(
          buildLayout(model, layer, ofPack,
                      samplesOf(layer, plan.getForwardMicroBatches())));
    }
    if (fact.layout.updatedElements() == 0)
      continue;
    StringRef stem = forward;
    stem.consume_back(".forward");
    std::string key = stem.str() + '/';
    for (FlatSymbolRefAttr symbol : layer.getParamSymbols())
      key += decays(symbol) ? '1' : '0';
    FuncOp &update = updates[key];
    if (!update) {
      int64_t variant = variants[stem]++;
      std::string name = (stem + ".update").str();
      if (variant > 0)
        name += std::to_string(variant);
      update = buildUpdate(layer, fact, name, training.getOptimizer());
    }
    FuncOp &norm = norms[stem];
    if (!norm)
      norm = buildNorm(layer, fact, (stem + ".norm").str());
    layer.setUpdateAttr(FlatSymbolRefAttr::get(update.getSymNameAttr()));
    layer.setNormAttr(FlatSymbolRefAttr::get(norm.getSymNameAttr()));
  }
}

} // namespace
