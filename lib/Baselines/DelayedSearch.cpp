//===- DelayedSearch.cpp - Width, depth, micro-batch of 2BW ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Baselines/DelayedSearch.h"

#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Support/Units.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {

static Error checkDelayed(const DelayedProblem &problem) {
  const DelayedSetting &setting = problem.setting;
  const DelayedLinks &links = setting.links;
  if (problem.devices < 1)
    return makeError("expected at least 1 device, found " +
                     Twine(problem.devices));
  if (setting.batch < 1)
    return makeError("expected a batch of at least 1 sample, found " +
                     Twine(setting.batch));
  if (setting.blocks.count < 1)
    return makeError("expected at least 1 block, found " +
                     Twine(setting.blocks.count));
  if (links.devicesPerNode < 1)
    return makeError("expected at least 1 device in a node, found " +
                     Twine(links.devicesPerNode));
  if (problem.devices > 1 && !(links.intraRate > 0))
    return makeError("expected a rate inside a node above 0");
  if (problem.devices > links.devicesPerNode && !(links.interRate > 0))
    return makeError("expected a rate between nodes above 0");
  return Error::success();
}

Expected<DelayedResult> searchDelayed(const DelayedProblem &problem) {
  if (Error error = checkDelayed(problem))
    return std::move(error);
  const DelayedSetting &setting = problem.setting;
  constexpr DelayedExecution executions[] = {DelayedExecution::OneByOne,
                                             DelayedExecution::Pipelined,
                                             DelayedExecution::Recomputed};
  DelayedResult result;
  result.executions.resize(std::size(executions));
  auto allowed = [](std::optional<int64_t> only, int64_t value) {
    return only.value_or(value) == value;
  };
  auto consider = [&](const DelayedShape &shape) {
    int64_t m = setting.microBatches(shape);
    bool recomputes = shape.execution == DelayedExecution::Recomputed;
    if (m == 0 || problem.recompute.value_or(recomputes) != recomputes ||
        (m < shape.depth && shape.execution != DelayedExecution::OneByOne))
      return;
    DelayedPlan plan{shape, delayedTimes(setting, shape),
                     delayedMemory(setting, shape), 0};
    int64_t needed = plan.memory.total();
    if (result.neededBytes == 0 || needed < result.neededBytes)
      result.neededBytes = needed;
    if (needed > problem.memory)
      return;
    plan.samplesPerSecond =
        static_cast<double>(shape.width * shape.microBatch) /
        plan.times.microBatch;
    for (std::optional<DelayedPlan> *best :
         {&result.plan,
          &result.executions[static_cast<size_t>(shape.execution)]})
      if (!*best || plan.samplesPerSecond > (*best)->samplesPerSecond)
        *best = plan;
  };
  for (int64_t width = 1; width <= std::min(problem.devices, setting.batch);
       ++width) {
    if (!allowed(problem.width, width) || setting.batch % width)
      continue;
    std::vector<int64_t> sizes = divisors(setting.batch / width);
    int64_t deepest = std::min(problem.devices / width, setting.blocks.count);
    for (int64_t depth = 1; depth <= deepest; ++depth) {
      if (!allowed(problem.depth, depth))
        continue;
      for (DelayedExecution execution : executions)
        for (int64_t samples : sizes)
          if (allowed(problem.microBatch, samples))
            consider({width, depth, samples, execution});
    }
  }
  return result;
}

} // namespace galvatron
