//===- AmpSearch.cpp - AMP's plans on mixed clusters ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AmpCosts.h"

#include "galvatron/Strategy/DecisionTree.h"

#include "llvm/ADT/STLExtras.h"

#include <tuple>

using namespace llvm;

namespace galvatron {

using baselines::AmpCosts;

Strategy AmpShape::strategy() const {
  SmallVector<Level, 2> levels;
  if (dataDegree > 1)
    levels.push_back({Paradigm::DP, dataDegree});
  if (tensorDegree > 1)
    levels.push_back({Paradigm::TP, tensorDegree});
  return cantFail(Strategy::get(levels, recompute));
}

std::string AmpShape::str() const {
  return ("pp" + Twine(pipelineDegree) + " dp" + Twine(dataDegree) + " tp" +
          Twine(tensorDegree) + " size " + Twine(microBatchSize) +
          (recompute ? ", recomputed" : ""))
      .str();
}

std::vector<AmpShape> ampShapes(LayerModel &model, const Cluster &cluster,
                                const AmpProblem &problem) {
  int64_t devices = cluster.deviceCount(), widest = 0;
  for (const NodeGroup &group : cluster.nodeGroups())
    widest = std::max(widest, group.devices);
  std::vector<AmpShape> shapes;
  for (int64_t stages : divisors(devices)) {
    if (problem.pipelineDegree.value_or(stages) != stages ||
        stages > static_cast<int64_t>(model.layerCount()))
      continue;
    for (int64_t tensor : divisors(devices / stages)) {
      int64_t data = devices / stages / tensor;
      if (tensor > widest || problem.batch % data != 0)
        continue;
      for (int64_t size : divisors(problem.batch / data)) {
        int64_t microBatches = problem.batch / data / size;
        if (problem.microBatches.value_or(microBatches) != microBatches)
          continue;
        for (bool recompute : {false, true})
          shapes.push_back(
              {stages, data, tensor, size, microBatches, recompute});
      }
    }
  }
  return shapes;
}

namespace {

/// Shapes of at most so many tensor ranks that every layer can have; the others
/// are noted.
std::vector<AmpShape> shapesOf(LayerModel &model, const Cluster &cluster,
                               const AmpProblem &problem, AmpResult &result,
                               int64_t mostTensorRanks = INT64_MAX) {
  std::vector<AmpShape> shapes = ampShapes(model, cluster, problem);
  erase_if(shapes, [&](const AmpShape &shape) {
    if (shape.tensorDegree > mostTensorRanks)
      return true;
    Error error = AmpCosts(model, cluster, problem).setShape(shape);
    if (!error)
      return false;
    ++result.refused;
    std::string reason = toString(std::move(error));
    if (result.refusal.empty())
      result.refusal = std::move(reason);
    return true;
  });
  return shapes;
}

void sortPlans(std::vector<AmpPlan> &plans) {
  stable_sort(plans, [](const AmpPlan &a, const AmpPlan &b) {
    return a.total() < b.total();
  });
}

/// Notes what a shape that does not fit would need, if it is the least so far.
void noteNeed(AmpResult &result, AmpCosts &costs,
              const baselines::StageDevices &devices) {
  auto [needed, available] = costs.evenNeed(devices);
  if (result.neededBytes == 0 ||
      needed - available < result.neededBytes - result.availableBytes)
    std::tie(result.neededBytes, result.availableBytes) =
        std::tie(needed, available);
}

/// Contiguous stages of about equally many parameters.
std::vector<int64_t> splitByParameters(LayerModel &model,
                                       const AmpShape &shape) {
  std::vector<Picoseconds> bytes;
  for (size_t l = 0; l < model.layerCount(); ++l) {
    Expected<LayerFootprint> footprint = model.footprint(
        model.kindOf(l), shape.strategy(), shape.microBatchSize);
    bytes.push_back(footprint ? footprint->parameterBytes : 0);
    if (!footprint)
      consumeError(footprint.takeError());
  }
  return minMaxPartition(bytes, shape.pipelineDegree)->layersPerStage;
}

} // namespace

Expected<AmpResult> searchAmp(LayerModel &model, const Cluster &cluster,
                              const AmpProblem &problem) {
  AmpResult result;
  AmpCosts costs(model, cluster, problem);
  std::vector<AmpShape> shapes = shapesOf(model, cluster, problem, result);
  for (const AmpShape &shape : shapes) {
    // A plan is looked for until there is one.
    if (problem.cancellation && problem.cancellation->requested() &&
        !result.plans.empty())
      break;
    if (Error error = costs.setShape(shape))
      return std::move(error);
    ++result.shapes;
    baselines::StageDevices devices =
        stageDevices(cluster.deviceCount(), shape.pipelineDegree);
    if (std::optional<AmpPlan> plan = costs.solve(devices))
      result.plans.push_back(std::move(*plan));
    else
      noteNeed(result, costs, devices);
  }
  sortPlans(result.plans);
  if (problem.placement == Placement::Anneal)
    if (Error error =
            baselines::annealPlacements(result, costs, cluster, problem))
      return std::move(error);
  sortPlans(result.plans);
  return result;
}

Expected<AmpResult> megatronHeuristic(LayerModel &model, const Cluster &cluster,
                                      const AmpProblem &problem) {
  int64_t narrowest = cluster.deviceCount();
  for (const NodeGroup &group : cluster.nodeGroups())
    narrowest = std::min(narrowest, group.devices);
  AmpResult result;
  AmpCosts costs(model, cluster, problem);
  std::vector<AmpShape> shapes =
      shapesOf(model, cluster, problem, result, narrowest);
  // Fewest ranks that share a model first.
  stable_sort(shapes, [](const AmpShape &a, const AmpShape &b) {
    return a.pipelineDegree * a.tensorDegree <
           b.pipelineDegree * b.tensorDegree;
  });
  std::map<std::pair<int64_t, bool>, int64_t> leastOf; // by size, recompute
  for (const AmpShape &shape : shapes) {
    int64_t shared = shape.pipelineDegree * shape.tensorDegree;
    auto least = leastOf.find({shape.microBatchSize, shape.recompute});
    if (least != leastOf.end() && least->second < shared)
      continue;
    if (Error error = costs.setShape(shape))
      return std::move(error);
    ++result.shapes;
    baselines::StageDevices devices =
        stageDevices(cluster.deviceCount(), shape.pipelineDegree);
    std::optional<AmpPlan> best;
    for (const std::vector<int64_t> &sizes :
         {evenPartition(static_cast<int64_t>(model.layerCount()),
                        shape.pipelineDegree),
          splitByParameters(model, shape)})
      if (std::optional<AmpPlan> plan = costs.price(devices, sizes);
          plan && (!best || plan->total() < best->total()))
        best = std::move(plan);
    if (!best) {
      noteNeed(result, costs, devices);
      continue;
    }
    leastOf[{shape.microBatchSize, shape.recompute}] = shared;
    result.plans.push_back(std::move(*best));
  }
  sortPlans(result.plans);
  return result;
}

} // namespace galvatron
