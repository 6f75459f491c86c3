//===- BusyBound.cpp - How long a plan's busiest stage works --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BusyBound.h"

#include "galvatron/Cost/StageContents.h"

#include <algorithm>

using namespace llvm;

namespace galvatron::planner {

void BusyBound::Sum::add(const Times &times) {
  forward += times.forward;
  backward += times.backward;
  forwardMoved += times.forwardMoved;
  backwardMoved += times.backwardMoved;
  backwardInLine += times.backwardInLine;
  end += times.end;
  slowdown = std::min(slowdown, times.slowdown);
  ahead |= times.ahead;
}

double BusyBound::Sum::forwardSeconds() const {
  return ahead ? overlapSeconds(forward, forwardMoved, slowdown)
               : forward + forwardMoved;
}

double BusyBound::Sum::backwardSeconds() const {
  return ahead ? overlapSeconds(backward, backwardMoved, slowdown)
               : backwardInLine;
}

size_t BusyBound::placeOf(const Plan &plan, size_t stage) {
  std::vector<size_t> &known = places[plan.pipelineDegree];
  if (known.empty())
    for (const PlanStage &each : plan.stages)
      known.push_back(tables.placeOf(each.devices));
  return known[stage];
}

const CoreContention &BusyBound::contentionOf(const Plan &plan, size_t stage) {
  if (!cluster.sharesCores())
    return alone;
  auto [it, fresh] =
      contentions.try_emplace({plan.pipelineDegree, plan.microBatches});
  if (fresh)
    it->second = planContention(cluster, plan);
  return it->second[stage];
}

const BusyBound::Times &BusyBound::timesOf(const Plan &plan, size_t layer,
                                           size_t stage) {
  const Strategy &strategy = plan.layers[layer].strategy;
  int64_t samples = plan.microBatchSamples() / strategy.sampleShards();
  bool shares = cluster.sharesCores();
  auto &list = known[{placeOf(plan, stage), model.kindOf(layer),
                      plan.microBatchSamples(), shares ? plan.microBatches : 0,
                      shares ? stage : 0}];
  for (const std::unique_ptr<Times> &times : list)
    if (times->strategy == strategy)
      return *times;
  Times &times = *list.emplace_back(std::make_unique<Times>());
  times.strategy = strategy;
  if (plan.microBatchSamples() % strategy.sampleShards() != 0) {
    times.refusal = "strategy '" + strategy.str() +
                    "' does not divide the samples of a micro-batch";
    return times;
  }
  Expected<LayerFootprint> footprint =
      model.footprintUnder(schedule, model.kindOf(layer), strategy, samples);
  if (!footprint) {
    times.refusal = toString(footprint.takeError());
    return times;
  }
  const std::vector<int64_t> &devices = plan.stages[stage].devices;
  LayerTimeParts parts =
      partsAt(strategy.home(),
              layerTimeParts(
                  *footprint, strategy, linksOf(cluster, strategy, devices),
                  cluster, devices, model.dtype(), contentionOf(plan, stage)));
  double computed = parts.recompute + parts.backward;
  double back = parts.tpRecompute + parts.tpBackward;
  times.forward = parts.forward + parts.tpForward;
  times.backward = computed + back;
  times.forwardMoved = parts.gather;
  times.backwardMoved = parts.gather + parts.scatter;
  times.backwardInLine =
      parts.gather + back +
      overlapSeconds(computed, parts.scatter, parts.slowdown);
  times.end = parts.norm + parts.update;
  times.ahead = footprint->forwardGathered + footprint->backwardGathered > 0;
  times.slowdown = parts.slowdown;
  times.nosync = layerNosyncPicoseconds(layerTime(parts));
  return times;
}

/// A little less for what doubles round.
static constexpr double kBusyRounding = 1 - 1e-9;

double BusyBound::leastSeconds(const Plan &plan) {
  auto count = static_cast<double>(plan.microBatches);
  // What is swapped may be updated behind others' passes.
  bool hasEnds = plan.offload == Offload::Off;
  struct Role {
    double begins = -1; ///< behind the forward passes of all chunks before
    double returns = 0; ///< through which its gradients have to go on
    double works = 0, ends = 0;
  };
  std::vector<Role> roles(plan.stages.size());
  double forward = 0, backward = 0;
  for (const PlanChunk &chunk : plan.chunks()) {
    auto stage = static_cast<size_t>(chunk.stage);
    Sum sum;
    const Times *before = nullptr;
    size_t kind = 0;
    for (int64_t l = chunk.layers.first; l < chunk.layers.end(); ++l) {
      if (!before || model.kindOf(l) != kind ||
          !(plan.layers[l].strategy == before->strategy))
        before = &timesOf(plan, l, stage);
      kind = model.kindOf(l);
      if (!before->refusal.empty())
        return 0;
      sum.add(*before);
    }
    Role &role = roles[stage];
    if (role.begins < 0) {
      role.begins = forward;
      role.returns = backward;
    }
    role.works += count * (sum.forwardSeconds() + sum.backwardSeconds());
    role.ends += hasEnds ? sum.end : 0;
    forward += sum.forwardSeconds();
    backward += sum.backwardSeconds();
  }
  // A role does nothing before its first chunk's first micro-batch is there,
  // and where backward passes are whole its last one goes on through all chunks
  // before that one. Steps that go on neither begin nor end.
  bool drains = schedule.delay({}) == 0;
  bool returns = drains && !schedule.splitsBackward();
  double longest = 0;
  for (const Role &role : roles) {
    double works = (drains ? role.begins : 0) + role.works;
    longest = std::max(longest, works + role.ends);
    if (returns)
      longest = std::max(longest, works + role.returns + roles.front().ends);
  }
  return longest * kBusyRounding;
}

double BusyBound::leastSecondsAnywhere(const Plan &plan) {
  // Stages of one place are alike.
  std::map<size_t, size_t> stages;
  for (size_t s = 0; s < plan.stages.size(); ++s)
    stages.try_emplace(cluster.sharesCores() ? s : placeOf(plan, s), s);
  Sum sum;
  for (size_t layer = 0; layer < plan.layers.size(); ++layer) {
    // The least of each number: no place is better in all.
    Times least;
    bool first = true;
    for (auto [place, stage] : stages) {
      const Times &times = timesOf(plan, layer, stage);
      if (!times.refusal.empty())
        return 0;
      if (std::exchange(first, false)) {
        least = times;
        continue;
      }
      for (double Times::*number :
           {&Times::forward, &Times::backward, &Times::forwardMoved,
            &Times::backwardMoved, &Times::backwardInLine, &Times::slowdown})
        least.*number = std::min(least.*number, times.*number);
      least.ahead |= times.ahead;
    }
    sum.add(least);
  }
  return static_cast<double>(plan.microBatches) *
         (sum.forwardSeconds() + sum.backwardSeconds()) /
         static_cast<double>(plan.stages.size()) * kBusyRounding;
}

Expected<std::vector<Picoseconds>> BusyBound::layerTimes(const Plan &plan) {
  std::vector<Picoseconds> list;
  for (size_t layer = 0; layer < plan.layers.size(); ++layer) {
    const Times &times =
        timesOf(plan, layer, static_cast<size_t>(plan.layers[layer].stage));
    if (!times.refusal.empty())
      return makeError(
          "layer '" + model.layerName(layer) + "' cannot have strategy '" +
          plan.layers[layer].strategy.str() + "': " + times.refusal);
    list.push_back(times.nosync);
  }
  return list;
}

} // namespace galvatron::planner
