//===- SimulateOption.cpp - The option --simulate -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/SimulateOption.h"
#include "galvatron/Simulate/Simulate.h"

using namespace galvatron;
namespace cl = llvm::cl;

SimulateOption::SimulateOption(Tool &tool)
    : trace("simulate", cl::desc("simulate the plan; FILE: its Chrome trace"),
            cl::value_desc("FILE"), cl::ValueOptional,
            cl::cat(tool.category())) {}

llvm::Error SimulateOption::run(LayerModel &model, const Cluster &cluster,
                                PlannerResult &result) {
  if (!trace.getNumOccurrences() || !result.feasible())
    return llvm::Error::success();
  Plan &plan = std::get<Plan>(result.outcome);
  llvm::Expected<SimulationInput> input = simulationInput(model, cluster, plan);
  if (!input)
    return input.takeError();
  llvm::Expected<Simulation> simulation = simulate(*input);
  if (!simulation)
    return simulation.takeError();
  plan.simulatedIterationMs = simulation->seconds * 1e3;
  llvm::raw_string_ostream os(text);
  os << "\n";
  printSimulation(os, *input, *simulation);
  // The CPU's ranks need not meet behind a step (docs/zero-bubble.md).
  if (mayEndAlone(*input, plan)) {
    llvm::Expected<double> seconds = secondsWithoutNorm(*input);
    if (!seconds)
      return seconds.takeError();
    os << llvm::format("step by step with --on-nan=late: %.3f ms\n",
                       *seconds * 1e3);
  }
  if (!trace.empty()) {
    llvm::raw_string_ostream file(events);
    writeTrace(file, *input, *simulation);
  }
  return llvm::Error::success();
}

void SimulateOption::addTo(PlanAnswers &answers) const {
  answers.text = text + answers.text;
  if (!events.empty())
    answers.files.push_back({trace, events});
}
