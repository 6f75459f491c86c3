//===- Executed.cpp - Plans by their simulated time -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Executed.h"

#include "galvatron/Simulate/Simulate.h"

using namespace llvm;

namespace galvatron::planner {

Expected<double> leastExecutedMs(LayerModel &model, const Cluster &cluster,
                                 const Plan &plan) {
  Plan ahead = plan;
  for (PlanStage &stage : ahead.stages)
    stage.gathersAhead = true;
  Expected<SimulationInput> input = simulationOutline(model, cluster, ahead);
  if (!input)
    return input.takeError();
  return leastStepSeconds(*input) * 1e3;
}

Error priceExecuted(LayerModel &model, const Cluster &cluster, Plan &plan,
                    const Pricing &pricing) {
  if (plan.schedule->runsPacks()) {
    // All tasks of the step: it is not made of rounds that are alike.
    Expected<SimulationInput> input = simulationInput(model, cluster, plan);
    if (!input)
      return input.takeError();
    Expected<Simulation> simulation = simulate(*input);
    if (!simulation)
      return simulation.takeError();
    plan.iterationMs = simulation->seconds * 1e3;
    plan.samplesPerSecond =
        1e3 * static_cast<double>(plan.batch) / plan.iterationMs;
    return Error::success();
  }
  Expected<SimulationInput> input = simulationOutline(model, cluster, plan);
  if (!input)
    return input.takeError();
  auto take = [&](double seconds) {
    plan.iterationMs = seconds * 1e3;
    plan.samplesPerSecond =
        seconds > 0 ? static_cast<double>(plan.batch) / seconds : 0;
  };
  if (pricing.lists) {
    plan.passTimes = passTimes(*input);
    input->program.passTimes = plan.passTimes;
  }
  constexpr double rounding = 1 - 1e-9;
  if (pricing.worthMs)
    if (double least = leastStepSeconds(*input) * rounding;
        least * 1e3 >= *pricing.worthMs) {
      take(least);
      return Error::success();
    }
  // A tenth of a second. Beyond, the slowdown of a last backward pass beside
  // its sums of gradients is lost between stages: 3% were seen.
  constexpr size_t mostOperations = 100'000;
  Expected<double> seconds = simulatedSeconds(*input, mostOperations);
  if (!seconds)
    return seconds.takeError();
  take(*seconds);
  if (!pricing.worthMs || plan.iterationMs < *pricing.worthMs)
    plan.boundMs = stepBounds(*input).upper * 1e3;
  return Error::success();
}

} // namespace galvatron::planner
