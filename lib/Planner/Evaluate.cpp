//===- Evaluate.cpp - Pricing a given plan --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CostTables.h"
#include "Executed.h"
#include "KeptPlan.h"
#include "galvatron/Planner/Budget.h"

#include "galvatron/Cost/StageContents.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Simulate/Simulate.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>
#include <numeric>

using namespace llvm;

namespace galvatron {

/// Returns true if a layer is gathered ahead, once its stage was fitted.
static bool hasGatherAhead(ArrayRef<StageLayer> layers) {
  return any_of(layers, [](const StageLayer &layer) {
    return layer.forwardAhead || layer.backwardAhead;
  });
}

Expected<int64_t> planner::stageExcess(LayerModel &model,
                                       const Cluster &cluster, Plan &plan,
                                       int64_t stage,
                                       std::optional<int64_t> memory) {
  Expected<StageContents> contents = stageContents(model, cluster, plan, stage);
  if (!contents)
    return contents.takeError();
  int64_t available = cluster.budgetOf(plan.stages[stage].devices, memory);
  markGathersAhead(*contents, plan, stage);
  const int64_t bytes =
      fitStage(contents->layers, contents->shape, available).total();
  plan.stages[stage].gathersAhead = hasGatherAhead(contents->layers);
  return bytes - available;
}

Expected<PlannerResult> evaluate(LayerModel &model, const Cluster &cluster,
                                 const Plan &given,
                                 std::optional<int64_t> memory) {
  return planner::evaluateAmong(model, cluster, given, memory, {});
}

Error planner::describe(LayerModel &model, const Cluster &cluster, Plan &plan) {
  if (Error error = planner::fillKept(model, plan))
    return error;
  plan.exactPeak = model.exact();
  plan.model = model.name();
  plan.modelHash = model.hash();
  plan.profileHash = model.profileHash();
  plan.cluster = cluster.name().str();
  plan.clusterHash = cluster.hash();
  plan.seqLen = model.sequenceLength();
  plan.parameters = model.parameterCount();
  plan.flopsPerSample = model.flopsPerSample();
  plan.peakFlops = 0;
  for (const PlanStage &stage : plan.stages)
    plan.peakFlops += cluster.flopsTogether(stage.devices, model.dtype()) *
                      static_cast<double>(stage.devices.size());
  plan.nominal = cluster.isNominal();
  return Error::success();
}

Expected<PlannerResult> planner::evaluateAmong(LayerModel &model,
                                               const Cluster &cluster,
                                               const Plan &given,
                                               std::optional<int64_t> memory,
                                               const Pricing &pricing) {
  if (Error error = checkPlan(model, cluster, given))
    return error;
  if (Error error = planner::checkKept(model, given))
    return error;
  planner::setPointTimes(model, cluster);

  Plan plan = given;
  std::string dtype = model.dtype();
  auto stageCount = static_cast<int64_t>(plan.stages.size());
  int64_t samples = plan.microBatchSamples();
  std::vector<Picoseconds> time(stageCount, 0), nosync(stageCount, 0);
  // Parts of `nosync`.
  std::vector<Picoseconds> forward(stageCount, 0), compute(stageCount, 0);
  std::vector<Picoseconds> update(stageCount, 0);
  bool tooLong = false;
  auto add = [&](Picoseconds &sum, Picoseconds time) {
    sum = std::min(sum + std::min(time, kMostTime), kNoBound);
    tooLong |= time >= kMostTime || sum >= kNoBound;
  };
  // Sums of the formula that is searched, by stage, and how many messages share
  // an uplink.
  bool isWhole = all_of(plan.stages, [](const PlanStage &stage) {
    return stage.ranges().size() == 1;
  });
  planner::StepForm form =
      isWhole ? planner::stepFormOf(*plan.schedule, stageCount,
                                    plan.microBatches, plan.objective)
              : planner::StepForm::Drain;
  std::vector<__int128> formed(stageCount, 0);
  std::vector<int64_t> users;
  if (form == planner::StepForm::Steady) {
    std::vector<std::vector<int64_t>> devices;
    for (const PlanStage &stage : plan.stages)
      devices.push_back(stage.devices);
    users = planner::messagesAtUplinks(cluster, devices);
  }
  std::vector<CoreContention> contention = planContention(cluster, plan);
  std::optional<Infeasible> worst;
  for (int64_t s = 0; s < stageCount; ++s) {
    PlanStage &stage = plan.stages[s];
    Expected<StageContents> contents = stageContents(model, cluster, plan, s);
    if (!contents)
      return contents.takeError();
    std::vector<StageLayer> &memoryLayers = contents->layers;
    StageShape &shape = contents->shape;
    // Neighbours are often alike, and so are the moves between them.
    std::vector<size_t> own = stage.layers();
    LayerTimeParts parts;
    ReshardRate there, back;
    std::optional<size_t> movedBehind; // of the stage's layers, the last one
    for (auto [i, l] : enumerate(own)) {
      const Strategy &strategy = plan.layers[l].strategy;
      if (i == 0 || model.kindOf(l) != model.kindOf(own[i - 1]) ||
          !(strategy == plan.layers[own[i - 1]].strategy))
        parts = withCopies(
            partsAt(strategy.home(),
                    layerTimeParts(memoryLayers[i].footprint, strategy,
                                   linksOf(cluster, strategy, stage.devices),
                                   cluster, stage.devices, dtype,
                                   contention[s])),
            shape.backend.streams);
      LayerTime cost = layerTime(parts);
      planner::FormTimes rounded =
          planner::FormTimes::of(cost, parts, stageCount, plan.objective);
      Picoseconds withUpdate =
          layerPicoseconds(cost) + updatePicoseconds(parts, stageCount);
      add(time[s], withUpdate);
      add(update[s], updatePicoseconds(parts, 1));
      add(nosync[s], rounded.nosync);
      add(forward[s], rounded.forward);
      add(compute[s],
          toPicoseconds(parts.forward + parts.recompute + parts.backward));
      formed[s] += rounded.summed(form, stageCount, plan.microBatches);
      plan.layers[l].timeMs = toMilliseconds(withUpdate);
      plan.layers[l].timeNosyncMs = toMilliseconds(rounded.nosync);
      if (l + 1 == plan.layers.size())
        continue;

      // The boundary to the next layer, both directions.
      int64_t bytes = model.boundaryBytesPerSample(l);
      const Strategy &next = plan.layers[l + 1].strategy;
      int64_t nextStage = plan.layers[l + 1].stage;
      const std::vector<int64_t> &nextDevices = plan.stages[nextStage].devices;
      bool isInside = nextStage == s;
      if (!isInside || !movedBehind ||
          !(plan.layers[*movedBehind].strategy == strategy) ||
          !(plan.layers[*movedBehind + 1].strategy == next)) {
        there =
            reshardRate(cluster, strategy, next, stage.devices, nextDevices);
        back = reshardRate(cluster, next, strategy, nextDevices, stage.devices);
        movedBehind = isInside ? std::optional<size_t>(l) : std::nullopt;
      }
      Picoseconds activation = transferPicoseconds(there, bytes, samples);
      Picoseconds gradient = transferPicoseconds(back, bytes, samples);
      add(time[s], activation);
      add(nosync[s], activation);
      add(forward[s], activation);
      add(time[nextStage], gradient);
      add(nosync[nextStage], gradient);
      __int128 count = planner::countsAllMessages(form) ? plan.microBatches : 1;
      if (form == planner::StepForm::Steady && nextStage != s) {
        __int128 both = count * users[s] * std::max(activation, gradient);
        formed[s] += both;
        formed[nextStage] += both;
      } else {
        formed[s] += count * activation;
        formed[nextStage] += count * gradient;
      }
    }

    int64_t available = cluster.budgetOf(stage.devices, memory);
    markGathersAhead(*contents, plan, s);
    stage.ledger = fitStage(memoryLayers, shape, available);
    stage.gathersAhead = hasGatherAhead(memoryLayers);
    stage.hostLedger = hostLedger(memoryLayers, shape);
    stage.peakBytes = stage.ledger.total();
    size_t i = 0;
    for (auto [k, range] : enumerate(stage.ranges())) {
      int64_t inFlight = shape.slotsAtHome && !shape.homesByLayer ? 1
                         : shape.chunks.empty() ? shape.inFlight
                                                : shape.chunks[k].inFlight;
      for (int64_t l = range.first; l < range.end(); ++l, ++i) {
        LayerMemory own =
            layerMemory(memoryLayers[i].footprint, memoryLayers[i].samples,
                        shape.splitsBackward);
        plan.layers[l].memoryBytes =
            shape.stateBytes(own) + inFlight * own.kept;
      }
    }
    stage.availableBytes = available;
    stage.reservedBytes = cluster.memoryFor(stage.devices, 0);
    int64_t excess = stage.peakBytes - available;
    if (excess > 0 &&
        (!worst || excess > worst->neededBytes - worst->availableBytes)) {
      Infeasible infeasible;
      infeasible.reason =
          "the plan does not fit: stage " + std::to_string(s) + " needs " +
          std::to_string(stage.peakBytes) + " bytes, " +
          planner::availableText(cluster, stage.devices, memory);
      infeasible.stage = s;
      infeasible.neededBytes = stage.peakBytes;
      infeasible.availableBytes = available;
      infeasible.ledger = stage.ledger;
      worst = std::move(infeasible);
    }
  }
  for (const Tie &tie : model.ties()) {
    int64_t owner = plan.layers[tie.ownerLayer].stage;
    int64_t borrower = plan.layers[tie.borrowerLayer].stage;
    Picoseconds exchange = toPicoseconds(tieSeconds(
        cluster, plan.layers[tie.ownerLayer].strategy,
        plan.layers[tie.borrowerLayer].strategy, plan.stages[owner].devices,
        plan.stages[borrower].devices, tie.bytes));
    add(time[owner], exchange);
    formed[owner] += exchange;
  }
  if (tooLong)
    return makeError("plan: a layer of a micro-batch would take longer than "
                     "three days, or a stage longer than three weeks: times "
                     "that long are not added up");

  Picoseconds largest = 0;
  for (int64_t s = 0; s < stageCount; ++s) {
    plan.stages[s].timeMs = toMilliseconds(time[s]);
    plan.stages[s].timeNosyncMs = toMilliseconds(nosync[s]);
    plan.stages[s].forwardMs = toMilliseconds(forward[s]);
    plan.stages[s].computeMs = toMilliseconds(compute[s]);
    plan.stages[s].optimizerMs = toMilliseconds(update[s]);
    largest = std::max(largest, nosync[s]);
  }
  const __int128 periods =
      form == planner::StepForm::Drain    ? plan.microBatches - 1
      : form == planner::StepForm::Filled ? plan.microBatches
                                          : 0;
  const __int128 exact =
      form == planner::StepForm::Steady
          ? *llvm::max_element(formed)
          : std::accumulate(formed.begin(), formed.end(), periods * largest);
  if (exact > std::numeric_limits<Picoseconds>::max())
    return makeError("plan: a step would take longer than three months");
  auto iteration = static_cast<Picoseconds>(exact);
  plan.iterationMs = toMilliseconds(iteration);
  plan.samplesPerSecond = iteration > 0
                              ? static_cast<double>(plan.batch) * 1e12 /
                                    static_cast<double>(iteration)
                              : 0;
  // Nothing is recorded if there is nothing to choose.
  for (auto [s, stage] : enumerate(plan.stages))
    if (!canOverlapSums(cluster, plan, s))
      stage.sums = SumTiming::ByRule;

  double formulaMs = plan.iterationMs;
  plan.boundMs.reset();
  plan.gapPercent.reset();
  if (plan.objective == Objective::Executed && !worst && !pricing.formulaOnly)
    if (Error error = planner::priceExecuted(model, cluster, plan, pricing))
      return error;
  if (worst) {
    worst->fittingMemory = cluster.memoryFor(plan.stages[worst->stage].devices,
                                             worst->neededBytes);
    worst->relaxations.push_back("raise the memory of each device to " +
                                 std::to_string(worst->fittingMemory) +
                                 " bytes (" +
                                 printBytesRounded(worst->fittingMemory) + ")");
    bool allCheckpointed = all_of(plan.layers, [](const PlanLayer &layer) {
      return layer.strategy.checkpoint();
    });
    if (!allCheckpointed)
      worst->relaxations.push_back("recompute more layers of stage " +
                                   std::to_string(worst->stage) + " ('.ckpt')");
    worst->relaxations.push_back("use more micro-batches or a smaller batch");
    return PlannerResult{std::move(*worst), {}, {}, 0, formulaMs};
  }
  // A plan that is too slow needs no description; one that is as fast as the
  // best may take its place.
  constexpr double rounding = 1 + 1e-9;
  if (!pricing.worthMs || plan.iterationMs <= *pricing.worthMs * rounding)
    if (Error error = describe(model, cluster, plan))
      return error;
  return PlannerResult{std::move(plan), {}, {}, 0, formulaMs};
}

} // namespace galvatron
