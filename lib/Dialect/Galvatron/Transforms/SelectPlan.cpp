//===- SelectPlan.cpp - galvatron-select-plan -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Baselines/Baselines.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Support/Units.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONSELECTPLAN
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

struct SelectPlanPass
    : mlir::galvatron::impl::GalvatronSelectPlanBase<SelectPlanPass> {
  using Base::Base;

  void runOnOperation() override {
    if (failed(select(getOperation())))
      signalPassFailure();
  }

  LogicalResult select(ModuleOp module) {
    FailureOr<::galvatron::Cluster> found = resolveCluster(module, cluster);
    if (failed(found))
      return failure();
    auto model = createLayerModel(module, *found);
    if (failed(model))
      return failure();
    int64_t budget = 0;
    auto result = keepPlan ? evaluateGiven(module, *found, **model, budget)
                           : search(module, *found, **model, budget);
    if (failed(result))
      return failure();
    Location loc = getModel(module).getLoc();
    emitDecisions(loc, result->decisions);
    if (!result->feasible())
      return emitError(loc, result->infeasible().str());
    if (llvm::Error error =
            writePricedPlan(module, **model, *found, result->plan(), budget))
      return emitError(loc, llvm::toString(std::move(error)));
    return success();
  }

private:
  FailureOr<::galvatron::PlannerResult>
  unwrap(ModuleOp module, llvm::Expected<::galvatron::PlannerResult> result) {
    if (!result)
      return module.emitError(llvm::toString(result.takeError())), failure();
    return std::move(*result);
  }

  FailureOr<::galvatron::PlannerResult>
  evaluateGiven(ModuleOp module, const ::galvatron::Cluster &target,
                ::galvatron::LayerModel &model, int64_t &budget) {
    FailureOr<::galvatron::Plan> given = readPlan(module, target);
    if (failed(given))
      return failure();
    given->objective = ::galvatron::Objective::Executed;
    budget = getPlan(module).getMemory();
    if (failed(parseMemory(module, budget)))
      return failure();
    return unwrap(module, ::galvatron::evaluate(model, target, *given,
                                                budget ? std::optional(budget)
                                                       : std::nullopt));
  }

  FailureOr<::galvatron::PlannerResult>
  search(ModuleOp module, const ::galvatron::Cluster &target,
         ::galvatron::LayerModel &model, int64_t &budget) {
    ::galvatron::PlannerOptions options;
    if (!space.empty())
      options.space = space;
    if (failed(parseMemory(module, budget)))
      return failure();
    if (budget)
      options.memory = budget;
    if (batch)
      options.batch = batch;
    options.maxBatch = maxBatch;
    options.batchStep = batchStep;
    if (pipelineDegree)
      options.pipelineDegree = pipelineDegree;
    if (microBatches)
      options.microBatches = microBatches;
    if (!schedule.empty()) {
      auto kind = ::galvatron::parseSchedule(schedule);
      if (!kind)
        return module.emitError(llvm::toString(kind.takeError())), failure();
      options.schedule = *kind;
    }
    if (!strategy.empty()) {
      auto parsed = ::galvatron::Strategy::parse(strategy);
      if (!parsed)
        return module.emitError(llvm::toString(parsed.takeError())), failure();
      options.strategy = *parsed;
    }
    options.selective = true; // as tools do (docs/kept.md)
    options.training = getTrainingOptions(module);
    options.toolVersion = GALVATRON_VERSION;
    return unwrap(module, ::galvatron::planSpace(model, target, options));
  }

  LogicalResult parseMemory(ModuleOp module, int64_t &budget) {
    if (memory.empty())
      return success();
    auto bytes = ::galvatron::parseBytes(memory);
    if (!bytes)
      return module.emitError(llvm::toString(bytes.takeError()));
    budget = *bytes;
    return success();
  }
};

} // namespace
