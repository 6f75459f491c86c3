//===- PlannerProblems.h - Problems for the planner's tests -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_PLANNER_PLANNERPROBLEMS_H
#define GALVATRON_UNITTESTS_PLANNER_PLANNERPROBLEMS_H

#include "../PaperOptions.h"
#include "galvatron/Planner/Planner.h"

#include <functional>
#include <optional>
#include <vector>

namespace galvatron::test {

/// Every plan over P, m, partitions and strategies per layer, priced by
/// evaluate(), which shares no sums with the search.
struct BruteResult {
  double best = -1;                ///< iteration in ms, -1: nothing fits
  int64_t leastExcess = INT64_MAX; ///< of the memory over the budget
  int64_t plans = 0;
};

/// By layer the strategy that it must have; empty: no layer must.
using Pins = std::vector<std::optional<Strategy>>;

inline void bruteStrategies(LayerModel &model, const Cluster &cluster,
                            Plan &plan, size_t layer, int64_t memory,
                            const SpaceOptions &space, const Pins &pins,
                            BruteResult &result) {
  if (layer == plan.layers.size()) {
    auto priced = evaluate(model, cluster, plan, memory);
    if (!priced) {
      llvm::consumeError(priced.takeError());
      return;
    }
    ++result.plans;
    if (!priced->feasible()) {
      const Infeasible &reason = priced->infeasible();
      result.leastExcess =
          std::min(result.leastExcess, reason.neededBytes - memory);
      return;
    }
    int64_t largest = 0;
    for (const PlanStage &stage : priced->plan().stages)
      largest = std::max(largest, stage.peakBytes);
    result.leastExcess = std::min(result.leastExcess, largest - memory);
    double time = priced->plan().iterationMs;
    if (result.best < 0 || time < result.best)
      result.best = time;
    return;
  }
  int64_t size = plan.stages[plan.layers[layer].stage].devices.size();
  std::vector<Strategy> strategies = enumerateStrategies(size, space);
  if (layer < pins.size() && pins[layer]) {
    if (pins[layer]->devices() != size)
      return;
    strategies = {*pins[layer]};
  }
  for (const Strategy &strategy : strategies) {
    if (plan.microBatchSamples() % strategy.sampleShards() != 0)
      continue;
    plan.layers[layer].strategy = strategy;
    bruteStrategies(model, cluster, plan, layer + 1, memory, space, pins,
                    result);
  }
}

/// Calls visit for every way to cut `layers` into `stages` runs.
inline void forEachPartition(int64_t layers, int64_t stages,
                             std::vector<int64_t> &sizes,
                             const std::function<void()> &visit) {
  if (stages == 1) {
    sizes.push_back(layers);
    visit();
    sizes.pop_back();
    return;
  }
  for (int64_t size = 1; size + stages - 1 <= layers; ++size) {
    sizes.push_back(size);
    forEachPartition(layers - size, stages - 1, sizes, visit);
    sizes.pop_back();
  }
}

inline BruteResult brute(LayerModel &model, const Cluster &cluster,
                         int64_t batch, int64_t memory,
                         const Schedule &schedule, const SpaceOptions &space,
                         bool anyPartition, const Pins &pins = {}) {
  BruteResult result;
  int64_t devices = cluster.deviceCount();
  auto layers = static_cast<int64_t>(model.layerCount());
  for (int64_t stages = 1; stages <= std::min(devices, layers); ++stages) {
    if (devices % stages != 0)
      continue;
    for (int64_t m = 1; m <= batch; ++m) {
      if (batch % m != 0)
        continue;
      std::vector<int64_t> sizes;
      forEachPartition(layers, stages, sizes, [&] {
        Plan plan;
        plan.batch = batch;
        plan.microBatches = m;
        plan.pipelineDegree = stages;
        plan.schedule = &schedule;
        int64_t next = 0;
        for (int64_t s = 0; s < stages; ++s) {
          PlanStage stage;
          for (int64_t d = 0; d < devices / stages; ++d)
            stage.devices.push_back(s * (devices / stages) + d);
          stage.firstLayer = next;
          stage.layerCount = sizes[s];
          if (!anyPartition &&
              sizes[s] != layers / stages + (s < layers % stages))
            return;
          for (int64_t l = 0; l < stage.layerCount; ++l)
            plan.layers.push_back({model.layerName(next + l), s, Strategy()});
          next += stage.layerCount;
          plan.stages.push_back(std::move(stage));
        }
        bruteStrategies(model, cluster, plan, 0, memory, space, pins, result);
      });
    }
  }
  return result;
}

/// Two nodes of different devices, links and speeds.
inline Cluster mixedCluster(int64_t devices) {
  DeviceType fast, slow;
  fast.name = "fast";
  fast.backend = slow.backend = "cpu";
  fast.memory = slow.memory = int64_t(1) << 30;
  fast.flops = {{"f32", 14e9}};
  fast.memoryBandwidth = slow.memoryBandwidth = 10e9;
  slow.name = "slow";
  slow.flops = {{"f32", 6e9}};
  slow.overlapSlowdown = 2;
  return llvm::cantFail(Cluster::get("mixed", {fast, slow},
                                     {{1, "fast", devices / 2, {3e9, 2e-6}},
                                      {1, "slow", devices / 2, {2e9, 3e-6}}},
                                     Link{1e9, 9e-6}));
}

/// One strategy for all layers, a pipeline degree and micro-batches.
inline PlannerOptions forced(int64_t batch, const char *strategy,
                             int64_t degree, int64_t microBatches) {
  PlannerOptions options = paperOptions();
  options.batch = batch;
  options.strategy = llvm::cantFail(Strategy::parse(strategy));
  options.pipelineDegree = degree;
  options.microBatches = microBatches;
  return options;
}

} // namespace galvatron::test

#endif // GALVATRON_UNITTESTS_PLANNER_PLANNERPROBLEMS_H
