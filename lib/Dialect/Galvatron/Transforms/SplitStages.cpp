//===- SplitStages.cpp - galvatron-split-stages ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Executable.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Dtype.h"

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
    if (!model || failed(verifyExecutable(model)))
      return failure();
    std::string dtype = getTrainingOptions(module).dtype;
    if (!::galvatron::isExecutedDtype(dtype))
      return module.emitError()
             << "dtype '" << dtype
             << "' is planned, not executed: expected 'f32', 'bf16' or 'f64'";
    PlanAttr plan = getPlan(module);
    if (!plan)
      return module.emitError("expected a 'galvatron.plan' attribute to split "
                              "stages by, found none");
    ClusterAttr cluster = getCluster(module);
    if (!cluster)
      return module.emitError("expected a 'galvatron.cluster' attribute to "
                              "split stages by, found none");
    auto groups = getStageDevices(module, plan, cluster.getDeviceCount());
    if (failed(groups))
      return failure();
    if (!model.getStages().empty())
      return model.emitOpError("expected a model without stages, found ")
             << model.getStages().size();
    leaveStaleReport(module);
    FailureOr<::galvatron::ScheduleShape> shape = getScheduleShape(module);
    if (failed(shape))
      return failure();
    // Each chunk of a device group is a stage of its own here. Packs that run
    // forward only are made of the others when tasks are.
    int64_t stageCount = shape->runCount();

    SmallVector<SmallVector<LayerOp>> layers(stageCount);
    for (LayerOp layer : model.getLayers()) {
      // A plan of one stage needs no word on every layer.
      if (!layer.getStageAttr() && stageCount == 1)
        layer.setStage(0);
      if (!layer.getStageAttr())
        return layer.emitOpError("expected 'stage', found none");
      int64_t stage = layer.getStageAttr().getInt();
      if (stage >= stageCount)
        return layer.emitOpError()
               << "expected a stage below the " << stageCount
               << " of the plan, found stage " << stage;
      layers[stage].push_back(layer);
    }
    for (int64_t stage = 0; stage < stageCount; ++stage)
      if (layers[stage].empty())
        return model.emitOpError()
               << "expected layers in each of the " << stageCount
               << " stages of the plan, found none in stage " << stage;

    const ::galvatron::Schedule &schedule =
        *llvm::cantFail(::galvatron::parseSchedule(plan.getSchedule()));
    SmallVector<StageOp> stages;
    for (int64_t stage = 0; stage < stageCount; ++stage)
      stages.push_back(
          makeStage(model, stage,
                    (*groups)[schedule.home(*shape, shape->chunkOfRun(stage))],
                    layers[stage]));
    SmallVector<Value> alive;
    for (int64_t stage = 0; stage + 1 < stageCount; ++stage) {
      alive.append(stages[stage]->result_begin(), stages[stage]->result_end());
      transfer(alive, stages[stage], stages[stage + 1]);
    }
    return success();
  }

private:
  /// Leaves out the report of the plan if it speaks of another one, as it does
  /// once somebody has changed the plan: its times are of what is run no more.
  static void leaveStaleReport(ModuleOp module) {
    auto report =
        module->getAttrOfType<StringAttr>(GalvatronDialect::kPlanReportAttr);
    if (!report)
      return;
    llvm::Expected<::galvatron::Cluster> cluster =
        getCluster(module).toCluster();
    llvm::Expected<llvm::json::Value> json =
        llvm::json::parse(report.getValue());
    FailureOr<::galvatron::Plan> plan = failure();
    if (cluster && json)
      plan = readPlan(module, *cluster);
    llvm::consumeError(cluster.takeError());
    llvm::consumeError(json.takeError());
    const llvm::json::Object *known = json ? json->getAsObject() : nullptr;
    if (failed(plan) || !known)
      return;
    const llvm::json::Value now = plan->toJson();
    auto isOf = [&](StringRef key, ArrayRef<StringRef> fields) {
      const llvm::json::Array *was = known->getArray(key);
      const llvm::json::Array *is = now.getAsObject()->getArray(key);
      if (!was || !is || was->size() != is->size())
        return false;
      for (auto [before, after] : llvm::zip(*was, *is))
        for (StringRef field : fields) {
          const llvm::json::Object *one = before.getAsObject();
          const llvm::json::Value *a = one ? one->get(field) : nullptr;
          const llvm::json::Value *b = after.getAsObject()->get(field);
          if (bool(a) != bool(b) || (a && *a != *b))
            return false;
        }
      return true;
    };
    bool same = isOf("layers", {"stage", "strategy"}) &&
                isOf("stages", {"devices", "first-layer", "layer-count"});
    for (StringRef field :
         {"batch", "micro-batches", "schedule", "pipeline-degree"})
      same = same && known->get(field) &&
             *known->get(field) == *now.getAsObject()->get(field);
    if (same)
      return;
    module->removeAttr(GalvatronDialect::kPlanReportAttr);
    module.emitRemark() << "the plan is not the one that was priced: its "
                           "predicted times are left out "
                           "('galvatron-plan --keep-plan' prices it again)";
  }

  /// Moves the layers of one stage into a stage operation before the output.
  static StageOp makeStage(ModelOp model, int64_t index,
                           ArrayRef<int64_t> devices,
                           MutableArrayRef<LayerOp> layers) {
    OpBuilder builder(model.getOutput());
    SmallVector<Value> escaping;
    DenseSet<Operation *> own(layers.begin(), layers.end());
    for (LayerOp layer : layers)
      for (Value result : layer->getResults())
        if (llvm::any_of(result.getUsers(),
                         [&](Operation *user) { return !own.contains(user); }))
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

  /// Takes what is alive behind a stage to the next one, for this and those
  /// behind it. What nobody there uses leaves the set.
  static void transfer(SmallVector<Value> &alive, StageOp from, StageOp to) {
    OpBuilder builder(to);
    auto isLater = [&](Operation *user) {
      auto stage = dyn_cast<StageOp>(user->getParentOp());
      return stage && stage.getIndex() >= to.getIndex();
    };
    llvm::erase_if(alive, [&](Value value) {
      return llvm::none_of(value.getUsers(), isLater);
    });
    for (Value &value : alive) {
      Value moved =
          TransferOp::create(builder, value.getLoc(), value.getType(), value,
                             builder.getI64IntegerAttr(from.getIndex()),
                             builder.getI64IntegerAttr(to.getIndex()));
      value.replaceUsesWithIf(
          moved, [&](OpOperand &use) { return isLater(use.getOwner()); });
      value = moved;
    }
  }
};

} // namespace
