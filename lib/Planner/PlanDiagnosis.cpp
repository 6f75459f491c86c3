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
    MemoryNeed own = candidate->memoryNeed();
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
  auto offer = [&](const std::string &text,
                   llvm::function_ref<void(PlannerOptions &)> change) {
    PlannerOptions changed = options;
    change(changed);
    Expected<Space> other = getSpace(changed, cluster.deviceCount());
    if (!other)
      return consumeError(other.takeError());
    if (Error error = applyPins(model, cluster.deviceCount(), changed, *other))
      return consumeError(std::move(error));
    if (Error error = applyGroups(cluster, changed, *other))
      return consumeError(std::move(error));
    if (PlanSearch(model, cluster, changed, *other).fits(batch) && !late())
      infeasible.relaxations.push_back(text);
  };
  if (options.strategy && !options.strategy->checkpoint()) {
    Strategy with = options.strategy->withCheckpoint(true);
    offer("use strategy '" + with.str() + "'",
          [&](PlannerOptions &changed) { changed.strategy = with; });
  }
  bool mayMove = options.offload == Offload::Off && !space.anyGroups &&
                 options.objective == Objective::Executed &&
                 (!options.schedule || options.schedule->delay({}) == 0);
  if (mayMove)
    offer("leave states of some layers on the host (--offload=layers)",
          [](PlannerOptions &changed) { changed.offload = Offload::Layers; });
  if (options.microBatches)
    offer("leave the number of micro-batches to the search",
          [](PlannerOptions &changed) { changed.microBatches.reset(); });
  if (!options.pins.empty())
    offer("leave all layers to the search",
          [](PlannerOptions &changed) { changed.pins.clear(); });
  if (options.strategy || options.pipelineDegree || !options.partition.empty())
    offer("leave strategy, pipeline degree and partition to the search",
          [](PlannerOptions &changed) {
            changed.strategy.reset();
            changed.pipelineDegree.reset();
            changed.partition.clear();
          });
  if (space.name != "bmw")
    offer("use space 'bmw'",
          [](PlannerOptions &changed) { changed.space = "bmw"; });
  return infeasible;
}

} // namespace galvatron::planner
