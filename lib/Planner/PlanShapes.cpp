//===- PlanShapes.cpp - The shapes that a search looks at -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BiObjective.h"

#include "PlanSearch.h"
#include "galvatron/Schedule/Schedule.h"

using namespace llvm;

namespace galvatron::planner {

/// time + (m - 1) * nosync; what is longer than any pipeline is just below
/// kNoBound, which stands for "nothing fits".
static Picoseconds pipelineBound(int64_t microBatches, Picoseconds time,
                                 Picoseconds nosync) {
  __int128 sum = static_cast<__int128>(microBatches - 1) * nosync + time;
  return static_cast<Picoseconds>(std::min<__int128>(sum, kNoBound - 1));
}

const Layout *PlanSearch::layoutOf(int64_t degree) {
  auto [it, fresh] = layouts.try_emplace(degree);
  Layout &layout = it->second;
  if (!fresh)
    return &layout;
  int64_t devices = cluster.deviceCount();
  auto [set, isNew] = sets.try_emplace(devices / degree);
  if (isNew)
    set->second =
        StrategySet::make(space.strategies(devices / degree), space.pins);
  layout.degree = degree;
  layout.set = &set->second;
  layout.devices = stageDevices(devices, degree);
  for (size_t s = 0; s < layout.devices.size(); ++s) {
    layout.memory.push_back(
        cluster.budgetOf(layout.devices[s], options.memory));
    layout.backend.push_back(
        backendTraits(cluster.backendOf(layout.devices[s])));
    layout.place.push_back(tables.placeOf(layout.devices[s]));
    if (s > 0)
      layout.cutPlace.push_back(
          tables.placeOf(layout.devices[s - 1], layout.devices[s]));
  }
  return &layout;
}

static const Schedule &scheduleOf(const PlannerOptions &options) {
  return options.schedule ? *options.schedule : defaultSchedule();
}

std::vector<int64_t> PlanSearch::microBatchesOf(int64_t batch,
                                                int64_t degree) const {
  if (options.microBatches)
    return batch % *options.microBatches == 0
               ? std::vector<int64_t>{*options.microBatches}
               : std::vector<int64_t>();
  if (options.microBatchRule == MicroBatchRule::Search)
    return divisors(batch);
  std::optional<int64_t> fixed = paperMicroBatches(
      batch, degree, cluster.deviceCount() / degree, scheduleOf(options));
  return fixed ? std::vector<int64_t>{*fixed} : std::vector<int64_t>();
}

std::vector<Shape> PlanSearch::shapesOf(int64_t batch) {
  std::vector<Shape> shapes;
  auto layers = static_cast<int64_t>(model.layerCount());
  for (int64_t degree : space.pipelineDegrees) {
    if (degree > layers)
      continue;
    const Layout *layout = layoutOf(degree);
    for (int64_t microBatches : microBatchesOf(batch, degree)) {
      int64_t samples = batch / microBatches;
      // A strategy that does not divide the samples is left out; a number of
      // micro-batches that leaves none is no shape.
      if (none_of(layout->set->strategies, [&](const Strategy &strategy) {
            return samples % strategy.sampleShards() == 0;
          }))
        continue;
      shapes.push_back({batch, microBatches, &scheduleOf(options), layout});
    }
  }
  return shapes;
}

/// The partition that the space prescribes; empty if it is searched.
std::vector<int64_t>
PlanSearch::partitionOf(const PipelineProblem &problem) const {
  switch (space.partition) {
  case PartitionMode::Free:
  case PartitionMode::BiObjective:
    return {};
  case PartitionMode::Even:
    return evenPartition(static_cast<int64_t>(problem.layerCount()),
                         static_cast<int64_t>(problem.stages.size()));
  case PartitionMode::TimeBalanced:
    return timeBalanced(problem);
  case PartitionMode::MemoryBalanced:
    return memoryBalanced(problem);
  case PartitionMode::Given:
    return options.partition;
  }
  return {};
}

std::unique_ptr<Candidate>
PlanSearch::candidateOf(const Shape &shape, int64_t fewest, bool transfers) {
  std::string reason;
  std::unique_ptr<Candidate> candidate =
      Candidate::make(model, tables, shape, reason, fewest, transfers);
  if (!candidate) {
    if (tables.incomplete())
      return nullptr;
    log(shape.str() + ": rejected, " + reason);
    if (refusal.empty())
      refusal = reason;
    return nullptr;
  }
  candidate->setPartition(partitionOf(candidate->problem()));
  return candidate;
}

Picoseconds PlanSearch::freeBoundOf(const Shape &shape) {
  auto [it, fresh] =
      freeBounds.try_emplace({shape.degree(), shape.samples(),
                              tables.sharesCores() ? shape.microBatches : 0});
  if (fresh) {
    it->second = freeBound(model, tables, shape);
    if (tables.incomplete()) {
      freeBounds.erase(it);
      return 0;
    }
  }
  if (it->second.time >= kNoBound)
    return kNoBound;
  return pipelineBound(shape.microBatches, it->second.time, it->second.nosync);
}

/// A bound that all shapes share whose stages hold the same numbers of
/// micro-batches: made for the fewest, of which data takes least memory. With
/// one stage a single cost decides, which depends on all micro-batches.
Picoseconds PlanSearch::sharedBoundOf(const Shape &shape) {
  int64_t microBatches = shape.microBatches;
  std::optional<int64_t> bound = shape.schedule->slotsBoundedIn({shape.degree()});
  if (bound && shape.degree() > 1 && !tables.sharesCores())
    microBatches = std::min(microBatches, *bound);
  auto [it, fresh] =
      sharedBounds.try_emplace({shape.degree(), shape.samples(), microBatches});
  if (fresh) {
    Shape fewest = shape;
    fewest.microBatches = microBatches;
    fewest.batch = microBatches * shape.samples();
    std::string reason;
    std::unique_ptr<Candidate> candidate = Candidate::make(
        model, tables, fewest, reason, /*fewest=*/0, /*transfers=*/false);
    if (!candidate && tables.incomplete()) {
      sharedBounds.erase(it);
      return 0;
    }
    // A problem that cannot be posed says nothing about what fits.
    it->second = candidate ? PipelineSearch::bounds(candidate->problem())
                           : PipelineBounds{};
  }
  const PipelineBounds &bounds = it->second;
  if (bounds.time >= kNoBound || bounds.nosync >= kNoBound)
    return kNoBound;
  return pipelineBound(shape.microBatches, bounds.time, bounds.nosync);
}

} // namespace galvatron::planner
