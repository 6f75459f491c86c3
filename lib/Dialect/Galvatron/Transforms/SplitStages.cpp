//===- SplitStages.cpp - galvatron-split-stages ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/Planner/Planner.h"

#include "mlir/IR/Builders.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONSPLITSTAGES
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

struct SplitStagesPass
    : mlir::galvatron::impl::GalvatronSplitStagesBase<SplitStagesPass> {
  void runOnOperation() override {
    if (failed(split(getOperation())))
      signalPassFailure();
  }

  LogicalResult split(ModuleOp module) {
    ModelOp model = getModel(module);
    if (!model)
      return failure();
    PlanAttr plan = getPlan(module);
    if (!plan)
      return module.emitError(
          "expected a 'galvatron.plan' attribute to split stages by");
    ClusterAttr cluster = getCluster(module);
    if (!cluster)
      return module.emitError(
          "expected a 'galvatron.cluster' attribute to split stages by");
    int64_t stageCount = plan.getPipelineDegree();
    int64_t devices = cluster.getDeviceCount();
    if (devices % stageCount)
      return module.emitError()
             << "expected 'pipeline_degree' to divide the " << devices
             << " devices of the cluster, found " << stageCount;
    if (!model.getStages().empty())
      return model.emitOpError("is split into stages already");

    SmallVector<SmallVector<LayerOp>> layers(stageCount);
    DenseMap<Operation *, int64_t> stageOf;
    for (LayerOp layer : model.getLayers()) {
      // A plan of one stage needs no word on every layer.
      if (!layer.getStageAttr() && stageCount == 1)
        layer.setStage(0);
      if (!layer.getStageAttr())
        return layer.emitOpError("has no 'stage'");
      int64_t stage = layer.getStageAttr().getInt();
      if (stage >= stageCount)
        return layer.emitOpError() << "is in stage " << stage
                                   << ", but the plan has " << stageCount;
      layers[stage].push_back(layer);
      stageOf[layer] = stage;
    }
    for (int64_t stage = 0; stage < stageCount; ++stage)
      if (layers[stage].empty())
        return model.emitOpError()
               << "has no layer in stage " << stage << " of " << stageCount;

    std::vector<std::vector<int64_t>> groups =
        ::galvatron::stageDevices(devices, stageCount);
    // The values that later stages use, in the order of their definition, and
    // how far they have to go.
    SmallVector<StageOp> stages;
    for (int64_t stage = 0; stage < stageCount; ++stage)
      stages.push_back(
          makeStage(model, stage, groups[stage], layers[stage], stageOf));
    for (int64_t stage = 0; stage < stageCount; ++stage)
      for (OpResult result : stages[stage]->getResults())
        relay(model, stages, result);
    return success();
  }

private:
  /// The last stage that uses `value`, other than the one that defines it.
  static std::optional<int64_t>
  lastUser(Value value, const DenseMap<Operation *, int64_t> &stageOf,
           int64_t home) {
    std::optional<int64_t> last;
    for (Operation *user : value.getUsers()) {
      auto position = stageOf.find(user);
      if (position == stageOf.end()) // the model's output
        last = std::max(last.value_or(home), home);
      else if (position->second > home)
        last = std::max(last.value_or(home), position->second);
    }
    return last;
  }

  /// Moves the layers of one stage into a stage operation before the output.
  static StageOp makeStage(ModelOp model, int64_t index,
                           ArrayRef<int64_t> devices,
                           MutableArrayRef<LayerOp> layers,
                           const DenseMap<Operation *, int64_t> &stageOf) {
    OpBuilder builder(model.getOutput());
    SmallVector<Value> escaping;
    for (LayerOp layer : layers)
      for (Value result : layer->getResults())
        if (lastUser(result, stageOf, index))
          escaping.push_back(result);
    SmallVector<Type> types(ValueRange(escaping).getTypes());
    auto stage = StageOp::create(builder, layers.front().getLoc(), types,
                                 builder.getI64IntegerAttr(index),
                                 builder.getDenseI64ArrayAttr(devices));
    Block &block = stage.getBody().emplaceBlock();
    for (LayerOp layer : layers)
      layer->moveBefore(&block, block.end());
    builder.setInsertionPointToEnd(&block);
    YieldOp::create(builder, stage.getLoc(), escaping);
    // Users outside take the stage's result; transfers are put in later.
    for (auto [value, result] : llvm::zip(escaping, stage->getResults()))
      value.replaceUsesWithIf(result, [&](OpOperand &use) {
        return use.getOwner()->getBlock() != &block;
      });
    return stage;
  }

  /// Takes one result from stage to stage as far as it is used.
  static void relay(ModelOp model, ArrayRef<StageOp> stages, OpResult result) {
    int64_t home = cast<StageOp>(result.getOwner()).getIndex();
    int64_t last = home;
    for (Operation *user : result.getUsers())
      if (auto stage = user->getParentOfType<StageOp>())
        last = std::max<int64_t>(last, stage.getIndex());
    Value value = result;
    for (int64_t to = home + 1; to <= last; ++to) {
      OpBuilder builder(stages[to]);
      value = TransferOp::create(builder, result.getLoc(), value.getType(),
                                 value, builder.getI64IntegerAttr(to - 1),
                                 builder.getI64IntegerAttr(to));
      result.replaceUsesWithIf(value, [&](OpOperand &use) {
        return use.getOwner()->getParentOp() == stages[to];
      });
    }
  }
};

} // namespace
