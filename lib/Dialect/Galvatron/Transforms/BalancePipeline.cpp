//===- BalancePipeline.cpp - galvatron-balance-pipeline -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Search/PipelinePartition.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONBALANCEPIPELINE
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;
using ::galvatron::Picoseconds;

namespace {

struct BalancePipelinePass
    : mlir::galvatron::impl::GalvatronBalancePipelineBase<BalancePipelinePass> {
  using Base::Base;

  void runOnOperation() override {
    if (failed(balance(getOperation())))
      signalPassFailure();
  }

  LogicalResult balance(ModuleOp module) {
    ModelOp model = getModel(module);
    if (!model)
      return failure();
    PlanAttr plan = getPlan(module);
    int64_t count = stages ? int64_t(stages)
                           : (plan ? plan.getPipelineDegree() : int64_t(0));
    if (count < 1)
      return module.emitError(
          "expected the option 'stages', or a "
          "'galvatron.plan' with the pipeline degree, found neither");
    if (plan && plan.getDevices())
      return module.emitError(
          "expected a plan without 'devices': layers are "
          "balanced over equal groups of consecutive ones, found them");
    SmallVector<LayerOp, 8> layers = model.getLayers();
    if (!model.getStages().empty())
      return model.emitOpError("expected a model without stages, found ")
             << model.getStages().size();
    if (int64_t(layers.size()) < count)
      return model.emitOpError() << "expected at least one layer for each of "
                                 << count << " stages, found " << layers.size();
    std::vector<Picoseconds> times;
    bool planned =
        plan && getCluster(module) && llvm::all_of(layers, [](LayerOp layer) {
          return bool(layer.getStrategyAttr());
        });
    if (failed(planned ? timesOfPlan(module, layers, plan, count, times)
                       : timesOfCosts(layers, times)))
      return failure();

    auto solution = ::galvatron::minMaxPartition(times, count);
    if (!solution)
      return model.emitOpError("cannot be cut into stages");
    Builder builder(module.getContext());
    size_t next = 0;
    std::string sizes;
    for (auto [stage, size] : llvm::enumerate(solution->layersPerStage)) {
      sizes += (stage ? ", " : "") + std::to_string(size);
      for (int64_t i = 0; i < size; ++i)
        layers[next++].setStageAttr(builder.getI64IntegerAttr(stage));
    }
    if (plan) {
      module->setAttr(
          GalvatronDialect::kPlanAttr,
          PlanAttr::get(module.getContext(), plan.getBatch(),
                        plan.getMicroBatches(), plan.getSchedule(), count,
                        plan.getMemory(), ArrayAttr(), plan.getOffload(),
                        DenseI64ArrayAttr(), ArrayAttr(),
                        /*forward_micro_batches=*/0, /*sums=*/ArrayAttr()));
      // Its times are those of another cut.
      module->removeAttr(GalvatronDialect::kPlanReportAttr);
    }
    emitDecisions(model.getLoc(), {"layers per stage: " + sizes});
    return success();
  }

private:
  /// Time of each layer for one micro-batch, on the devices of the first stage:
  /// stages are equal groups.
  LogicalResult timesOfPlan(ModuleOp module, MutableArrayRef<LayerOp> layers,
                            PlanAttr plan, int64_t count,
                            std::vector<Picoseconds> &times) {
    FailureOr<::galvatron::Cluster> cluster = resolveCluster(module, "");
    if (failed(cluster))
      return failure();
    auto model = createLayerModel(module, *cluster);
    if (failed(model))
      return failure();
    int64_t deviceCount = cluster->deviceCount();
    if (deviceCount % count)
      return module.emitError()
             << "expected the number of stages to divide the " << deviceCount
             << " devices, found " << count;
    std::vector<int64_t> devices =
        ::galvatron::stageDevices(deviceCount, count).front();
    int64_t samples = plan.getBatch() / plan.getMicroBatches();
    for (auto [index, layer] : llvm::enumerate(layers)) {
      ::galvatron::Strategy strategy = layer.getStrategyAttr().toStrategy();
      if (strategy.devices() != int64_t(devices.size()))
        return layer.emitOpError()
               << "expected a strategy for the " << devices.size()
               << " devices of a stage, found '" << strategy.str() << "' for "
               << strategy.devices();
      llvm::Expected<int64_t> local = strategy.localSamples(samples);
      if (!local)
        return layer.emitError() << llvm::toString(local.takeError());
      auto footprint =
          (*model)->footprint((*model)->kindOf(index), strategy, *local);
      if (!footprint)
        return layer.emitOpError(llvm::toString(footprint.takeError()));
      times.push_back(::galvatron::toPicoseconds(
          ::galvatron::layerTime(*footprint, strategy, *cluster, devices,
                                 (*model)->dtype())
              .totalNosync()));
    }
    return success();
  }

  /// FLOPs in place of time; only their ratio matters. An opaque layer has its
  /// measured times.
  LogicalResult timesOfCosts(MutableArrayRef<LayerOp> layers,
                             std::vector<Picoseconds> &times) {
    for (LayerOp layer : layers) {
      double weight;
      if (ProfileAttr profile = layer.getProfileAttr())
        weight = profile.getForwardTime()
                     ? *profile.getForwardTime() + *profile.getBackwardTime()
                     : profile.getForwardFlops().getValueAsDouble() * 1e-9;
      else if (CostsAttr costs = layer.getCostsAttr())
        weight = (costs.getForwardFlops().getValueAsDouble() +
                  costs.getBackwardFlops().getValueAsDouble()) *
                 1e-9;
      else
        return layer.emitOpError(
            "expected costs, or a strategy, a plan and a cluster: run "
            "'galvatron-annotate-costs' first");
      // So that all layers' sum is a number of 64 bits.
      double most = double(::galvatron::kMostTime) / double(layers.size());
      if (!(weight * 1e6 < most))
        return layer.emitOpError()
               << "expected the work of layer '" << layer.getLayerName()
               << "' to be below " << most << " to be added up, found "
               << weight * 1e6;
      times.push_back(Picoseconds(weight * 1e6));
    }
    return success();
  }
};

} // namespace
