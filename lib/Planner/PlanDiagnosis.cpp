//===- PlanDiagnosis.cpp - Why nothing fits, and what would help ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlanSearch.h"
#include "galvatron/Planner/Budget.h"

using namespace llvm;

namespace galvatron::planner {

static std::string bytesText(int64_t bytes) {
  return std::to_string(bytes) + " bytes (" + printBytesRounded(bytes) + ")";
}

std::optional<int64_t> PlanSearch::leastExcess(int64_t batch) {
  std::optional<int64_t> least;
  for (const Shape &shape : shapesOf(batch))
    if (std::unique_ptr<Candidate> candidate = leanCandidateOf(shape)) {
      int64_t excess = leastNeed(candidate->problem()).excess;
      least = least ? std::min(*least, excess) : excess;
    }
  return least;
}

Infeasible PlanSearch::explain(int64_t batch) {
  Infeasible infeasible;
  std::optional<MemoryNeed> need;
  std::vector<int64_t> devices; ///< of the stage in need
  std::string name;
  std::optional<Shape> least;
  // Memory must be priced to say what is missing; once time is up, of one
  // shape.
  tables.setCancellation(nullptr);
  bool lookedAtAll = true;
  for (const Shape &shape : shapesOf(batch)) {
    if (need && late()) {
      lookedAtAll = false;
      break;
    }
    std::unique_ptr<Candidate> candidate = leanCandidateOf(shape);
    if (!candidate)
      continue;
    MemoryNeed own = candidate->memoryNeed(model);
    if (need && own.excess() >= need->excess())
      continue;
    need = own;
    least = shape;
    name = shape.str();
    devices = shape.layout->devices[own.stage];
  }
  // A batch that divides, and layers that cannot have any of the strategies.
  if (!need && !refusal.empty() && !shapesOf(batch).empty()) {
    infeasible.reason =
        "no plan of space '" + space.name + "' can be made: " + refusal;
    return infeasible;
  }
  if (!need) {
    infeasible.reason =
        "no pipeline degree and number of micro-batches of space '" +
        space.name + "' divides a batch of " + std::to_string(batch) + " on " +
        std::to_string(cluster.deviceCount()) + " devices";
    if (!refusal.empty())
      infeasible.reason += "; of the last that was looked at, " + refusal;
    return infeasible;
  }
  // Memory is enough: the search refused the shape.
  if (lookedAtAll && need->excess() <= 0) {
    refusal.clear();
    if (!candidateOf(*least)) {
      infeasible.reason =
          "no plan of space '" + space.name + "' could be searched: " + refusal;
      return infeasible;
    }
  }
  infeasible.reason =
      "no plan of space '" + space.name +
      (lookedAtAll ? "' fits: with the least memory ("
                   : "' was found in time: with the least memory of one shape "
                     "(") +
      name + ") stage " + std::to_string(need->stage) + " needs " +
      bytesText(need->needed) +
      (need->onHost ? " of the host, of which each device's share is " +
                          bytesText(need->available)
                    : ", " + availableText(cluster, devices, options.memory));
  infeasible.stage = need->stage;
  infeasible.neededBytes = need->needed;
  infeasible.availableBytes = need->available;
  infeasible.ledger = need->ledger;
  if (need->onHost) {
    infeasible.relaxations.push_back("raise --host-memory, or the memory of "
                                     "each device");
  } else {
    infeasible.fittingMemory = cluster.memoryFor(devices, need->needed);
    infeasible.relaxations.push_back("raise the memory of each device to " +
                                     bytesText(infeasible.fittingMemory));
  }
  if (!options.relaxations || late())
    return infeasible;

  // Each relaxation is tried before it is offered.
  auto helps = [&](PlannerOptions changed, int64_t changedBatch) {
    Expected<Space> other = getSpace(changed, cluster.deviceCount());
    if (!other) {
      consumeError(other.takeError());
      return false;
    }
    if (Error error =
            applyPins(model, cluster.deviceCount(), changed, *other)) {
      consumeError(std::move(error));
      return false;
    }
    if (Error error = applyGroups(cluster, changed, *other)) {
      consumeError(std::move(error));
      return false;
    }
    PlanSearch search(model, cluster, changed, *other);
    std::optional<int64_t> excess = search.leastExcess(changedBatch);
    return excess && *excess <= 0 && !late();
  };
  if (options.strategy && !options.strategy->checkpoint()) {
    PlannerOptions changed = options;
    changed.strategy = options.strategy->withCheckpoint(true);
    if (helps(changed, batch))
      infeasible.relaxations.push_back("use strategy '" +
                                       changed.strategy->str() + "'");
  }
  bool mayMove = options.offload == Offload::Off && !space.anyGroups &&
                 options.objective == Objective::Executed &&
                 (!options.schedule || options.schedule->delay({}) == 0);
  if (mayMove) {
    PlannerOptions changed = options;
    changed.offload = Offload::Layers;
    if (helps(changed, batch))
      infeasible.relaxations.push_back(
          "leave states of some layers on the host (--offload=layers)");
  }
  if (options.microBatches) {
    PlannerOptions changed = options;
    changed.microBatches.reset();
    if (helps(changed, batch))
      infeasible.relaxations.push_back(
          "leave the number of micro-batches to the search");
  }
  if (!options.pins.empty()) {
    PlannerOptions changed = options;
    changed.pins.clear();
    if (helps(changed, batch))
      infeasible.relaxations.push_back("leave all layers to the search");
  }
  if (options.strategy || options.pipelineDegree ||
      !options.partition.empty()) {
    PlannerOptions changed = options;
    changed.strategy.reset();
    changed.pipelineDegree.reset();
    changed.partition.clear();
    if (helps(changed, batch))
      infeasible.relaxations.push_back(
          "leave strategy, pipeline degree and partition to the search");
  }
  if (space.name != "bmw") {
    PlannerOptions changed = options;
    changed.space = "bmw";
    if (helps(changed, batch))
      infeasible.relaxations.push_back("use space 'bmw'");
  }
  return infeasible;
}

} // namespace galvatron::planner
