//===- AssignStrategies.cpp - galvatron-assign-strategies -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Schedule/Schedule.h"

#include "mlir/IR/Builders.h"

#include <numeric>

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONASSIGNSTRATEGIES
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

struct AssignStrategiesPass
    : mlir::galvatron::impl::GalvatronAssignStrategiesBase<
          AssignStrategiesPass> {
  using Base::Base;

  void runOnOperation() override {
    if (failed(assign(getOperation())))
      signalPassFailure();
  }

  LogicalResult assign(ModuleOp module) {
    ModelOp model = getModel(module);
    if (!model)
      return failure();
    if (!cluster.empty() && failed(resolveCluster(module, cluster)))
      return failure();
    SmallVector<LayerOp, 8> all = model.getLayers();
    SmallVector<StringRef> entries;
    StringRef(layers).split(entries, ';', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
    for (StringRef entry : entries)
      if (failed(assignEntry(module, all, entry.trim())))
        return failure();
    if (failed(setPlan(module, all)))
      return failure();
    module->removeAttr(GalvatronDialect::kPlanReportAttr);
    return success();
  }

private:
  /// `h.0-h.5:sdp4.ckpt`; later entries replace what earlier ones said.
  LogicalResult assignEntry(ModuleOp module, MutableArrayRef<LayerOp> all,
                            StringRef entry) {
    auto [selector, notation] = entry.rsplit(':');
    if (notation.empty())
      return module.emitError()
             << "expected 'layer:strategy' or 'first-last:strategy', found '"
             << entry << "'";
    auto strategy = ::galvatron::Strategy::parse(notation);
    if (!strategy)
      return module.emitError(llvm::toString(strategy.takeError()));
    std::vector<std::string> names;
    for (LayerOp layer : all)
      names.push_back(layer.getLayerName().str());
    auto range = ::galvatron::selectLayers(names, selector);
    if (!range)
      return module.emitError(llvm::toString(range.takeError()));
    StrategyAttr attribute = StrategyAttr::get(module.getContext(), *strategy);
    for (LayerOp layer :
         all.slice(range->first, range->second - range->first + 1)) {
      // The values of another point are not those of this one.
      layer.removeKeptAttr();
      layer.setStrategyAttr(attribute);
    }
    emitDecisions(module.getLoc(), {"by hand: " + strategy->str() + " for '" +
                                    selector.str() + "'"});
    return success();
  }

  LogicalResult setPlan(ModuleOp module, MutableArrayRef<LayerOp> all) {
    PlanAttr old = getPlan(module);
    int64_t degree = pipelineDegree;
    if (!degree && !stages.empty())
      degree = stages.size();
    bool newCut = degree || !stages.empty();
    if (!degree)
      degree = old ? old.getPipelineDegree() : 1;
    int64_t newBatch = batch ? int64_t(batch) : (old ? old.getBatch() : 0);
    if (!newBatch)
      return module.emitError("expected the option 'batch', or a "
                              "'galvatron.plan' with the batch, found neither");
    int64_t newMicroBatches = microBatches ? int64_t(microBatches)
                                           : (old ? old.getMicroBatches() : 1);
    std::string newSchedule = !schedule.empty()
                                  ? std::string(schedule)
                                  : (old ? old.getSchedule().str() : "1f1b");
    auto plan = PlanAttr::getChecked(
        [&]() { return module.emitError(); }, module.getContext(), newBatch,
        newMicroBatches, StringRef(newSchedule), degree,
        old ? old.getMemory() : 0, old ? old.getDevices() : ArrayAttr(),
        old ? old.getOffload() : StringAttr(),
        // Those of other strategies say nothing of these.
        DenseI64ArrayAttr(), old ? old.getPacks() : ArrayAttr(),
        old ? old.getForwardMicroBatches() : 0, /*sums=*/ArrayAttr());
    if (!plan)
      return failure();
    module->setAttr(GalvatronDialect::kPlanAttr, plan);
    if (!newCut && llvm::all_of(all, [](LayerOp layer) {
          return bool(layer.getStageAttr());
        }))
      return success();

    int64_t count = all.size();
    if (count < degree)
      return module.emitError()
             << "expected at least one layer for each of " << degree
             << " stages, found " << count << " layers";
    std::vector<int64_t> sizes(stages.begin(), stages.end());
    if (sizes.empty())
      sizes = ::galvatron::evenPartition(count, degree);
    // Chunk by chunk, where stages have several.
    if (sizes.size() % degree)
      return module.emitError()
             << "expected " << degree
             << " numbers of layers in 'stages', or a multiple of that, found "
             << sizes.size();
    auto kind = ::galvatron::parseSchedule(newSchedule);
    if (llvm::Error error =
            kind ? (*kind)->check({degree, newMicroBatches,
                                   int64_t(sizes.size()) / degree})
                 : kind.takeError())
      return module.emitError(llvm::toString(std::move(error)));
    if (llvm::any_of(sizes, [](int64_t size) { return size < 1; }) ||
        std::accumulate(sizes.begin(), sizes.end(), int64_t(0)) != count)
      return module.emitError()
             << "expected positive numbers in 'stages' that sum up to the "
             << count << " layers of the model";
    Builder builder(module.getContext());
    size_t next = 0;
    for (auto [stage, size] : llvm::enumerate(sizes))
      for (int64_t i = 0; i < size; ++i)
        all[next++].setStageAttr(builder.getI64IntegerAttr(stage));
    return success();
  }
};

} // namespace
