//===- AmpCosts.cpp - What a placed shape costs ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AmpCosts.h"
#include "galvatron/Cost/RoundedTimes.h"

#include "galvatron/Cost/StageContents.h"
#include "galvatron/Schedule/Schedule.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace galvatron::baselines {

AmpCosts::AmpCosts(LayerModel &model, const Cluster &cluster,
                   const AmpProblem &problem)
    : model(model), cluster(cluster), problem(problem),
      layers(static_cast<int64_t>(model.layerCount())),
      byNode(!cluster.hasBandwidthMatrix() &&
             none_of(cluster.collectives(), [](const CollectiveTable &table) {
               return table.stride != 0;
             })) {}

Error AmpCosts::setShape(const AmpShape &next) {
  shape = next;
  strategy = shape.strategy();
  samples = shape.dataDegree * shape.microBatchSize;
  contents.clear();
  stages.clear();
  cuts.clear();
  limits.clear();
  for (int64_t l = 0; l < layers; ++l) {
    Expected<LayerFootprint> footprint =
        model.footprint(model.kindOf(l), strategy, shape.microBatchSize);
    if (!footprint)
      return makeError("layer '" + model.layerName(l) +
                       "' cannot have strategy '" + strategy.str() +
                       "': " + toString(footprint.takeError()));
    contents.push_back({std::move(*footprint), shape.microBatchSize});
  }
  // Layers of a profile make all that passes between them: a stage's first
  // layer is like any other.
  connectLayers(contents, std::vector<Strategy>(layers, strategy), model,
                /*first=*/0);
  return Error::success();
}

const AmpCosts::StageTimes &AmpCosts::stageTimes(ArrayRef<int64_t> devices,
                                                 ArrayRef<double> contention) {
  std::vector<int64_t> places = devices.vec();
  if (byNode)
    for (int64_t &place : places)
      place = cluster.nodeOf(place);
  auto [it, fresh] = stages.try_emplace({places, contention.vec()});
  StageTimes &times = it->second;
  if (!fresh)
    return times;
  StrategyLinks links = linksOf(cluster, strategy, devices, problem.ring);
  for (int64_t l = 0; l < layers; ++l) {
    // Neighbours are mostly of one kind.
    if (l > 0 && model.kindOf(l) == model.kindOf(l - 1)) {
      times.microBatch.push_back(times.microBatch.back());
      times.end.push_back(times.end.back());
      continue;
    }
    LayerTimeParts parts =
        layerTimeParts(contents[l].footprint, strategy, links, cluster, devices,
                       model.dtype(), contention);
    times.microBatch.push_back(layerNosyncPicoseconds(layerTime(parts)));
    times.end.push_back(toPicoseconds(parts.sync) +
                        updatePicoseconds(parts, /*stages=*/1));
  }
  return times;
}

const std::vector<Picoseconds> &AmpCosts::cutTimes(ArrayRef<int64_t> from,
                                                   ArrayRef<int64_t> to) {
  auto [it, fresh] = cuts.try_emplace({from.vec(), to.vec()});
  std::vector<Picoseconds> &times = it->second;
  if (!fresh)
    return times;
  ReshardRate onward = reshardRate(cluster, strategy, strategy, from, to);
  ReshardRate back = reshardRate(cluster, strategy, strategy, to, from);
  for (int64_t l = 0; l + 1 < layers; ++l) {
    int64_t bytes = model.boundaryBytesPerSample(l);
    times.push_back(transferPicoseconds(onward, bytes, samples) +
                    transferPicoseconds(back, bytes, samples));
  }
  return times;
}

StageShape AmpCosts::stageShape(int64_t stage,
                                ArrayRef<int64_t> devices) const {
  StageShape at;
  at.inFlight = defaultSchedule().slots(
      {shape.pipelineDegree, shape.microBatches}, stage);
  at.microBatches = shape.microBatches;
  at.lastStage = stage + 1 == shape.pipelineDegree;
  at.backend = backendTraits(cluster.backendOf(devices));
  return at;
}

const std::vector<int64_t> &AmpCosts::mostLayers(int64_t stage,
                                                 ArrayRef<int64_t> devices) {
  StageShape at = stageShape(stage, devices);
  int64_t budget = cluster.budgetOf(devices, problem.memory);
  auto [it, fresh] = limits.try_emplace(
      {at.inFlight, at.lastStage, cluster.backendOf(devices).str(), budget});
  std::vector<int64_t> &most = it->second;
  if (!fresh)
    return most;
  // A part of what fits fits: the end never moves back.
  for (int64_t begin = 0, end = 0; begin < layers; ++begin) {
    end = std::max(begin, end);
    while (end < layers &&
           stageLedger(ArrayRef(contents).slice(begin, end + 1 - begin), at)
                   .total() <= budget)
      ++end;
    most.push_back(end - begin);
  }
  return most;
}

PartitionProblem AmpCosts::partitionProblem(const StageDevices &devices) {
  PartitionProblem result;
  result.stages = shape.pipelineDegree;
  result.microBatches = shape.microBatches;
  std::vector<CoreContention> contention =
      pipelineContention(cluster, devices, shape.microBatches);
  auto table = [&](std::vector<std::vector<Picoseconds>> &into, int64_t rows) {
    into.assign(rows, std::vector<Picoseconds>(devices.size()));
  };
  table(result.stageLayers, layers);
  table(result.ends, layers);
  table(result.cuts, layers - 1);
  for (size_t s = 0; s < devices.size(); ++s) {
    const StageTimes &times = stageTimes(devices[s], contention[s]);
    for (int64_t l = 0; l < layers; ++l) {
      result.stageLayers[l][s] = times.microBatch[l];
      result.ends[l][s] = times.end[l];
    }
    if (s + 1 < devices.size()) {
      const std::vector<Picoseconds> &cut =
          cutTimes(devices[s], devices[s + 1]);
      for (int64_t l = 0; l + 1 < layers; ++l)
        result.cuts[l][s] = cut[l];
    }
    result.mostLayers.push_back(
        mostLayers(static_cast<int64_t>(s), devices[s]));
  }
  return result;
}

std::optional<AmpPlan> AmpCosts::solve(const StageDevices &devices) {
  PartitionProblem partition = partitionProblem(devices);
  std::optional<PartitionSolution> solution = solvePartition(partition);
  if (!solution)
    return std::nullopt;
  AmpPlan plan{shape, devices, std::move(solution->layersPerStage)};
  for (size_t s = 0, begin = 0; s < devices.size(); ++s) {
    Picoseconds end = 0;
    for (int64_t i = 0; i < plan.layersPerStage[s]; ++i, ++begin)
      end += partition.ends[begin][s];
    plan.end = std::max(plan.end, end);
  }
  plan.pipeline = solution->cost - plan.end;
  return plan;
}

std::optional<AmpPlan>
AmpCosts::price(const StageDevices &devices,
                const std::vector<int64_t> &layersPerStage) {
  AmpPlan plan{shape, devices, layersPerStage};
  PartitionProblem partition = partitionProblem(devices);
  Picoseconds largest = 0;
  for (size_t s = 0, begin = 0; s < devices.size(); ++s) {
    if (layersPerStage[s] > partition.mostLayers[s][begin])
      return std::nullopt;
    Picoseconds time = 0, end = 0;
    for (int64_t i = 0; i < layersPerStage[s]; ++i, ++begin) {
      time += partition.stageLayers[begin][s];
      end += partition.ends[begin][s];
    }
    largest = std::max(largest, time);
    plan.pipeline += time;
    if (s + 1 < devices.size())
      plan.pipeline += partition.cuts[begin - 1][s];
    plan.end = std::max(plan.end, end);
  }
  plan.pipeline += (shape.microBatches - 1) * largest;
  return plan;
}

std::pair<int64_t, int64_t> AmpCosts::evenNeed(const StageDevices &devices) {
  std::pair<int64_t, int64_t> worst = {0, 0};
  int64_t begin = 0;
  std::vector<int64_t> even = evenPartition(layers, shape.pipelineDegree);
  for (size_t s = 0; s < devices.size(); begin += even[s++]) {
    int64_t budget = cluster.budgetOf(devices[s], problem.memory);
    int64_t bytes = stageLedger(ArrayRef(contents).slice(begin, even[s]),
                                stageShape(static_cast<int64_t>(s), devices[s]))
                        .total();
    if (bytes - budget >= worst.first - worst.second)
      worst = {bytes, budget};
  }
  return worst;
}

} // namespace galvatron::baselines
