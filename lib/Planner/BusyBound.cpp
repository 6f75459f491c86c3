//===- BusyBound.cpp - How long a plan's busiest stage works --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BusyBound.h"

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Cost/StageContents.h"

#include <algorithm>
#include <limits>
#include <utility>

using namespace llvm;

namespace galvatron::planner {

void BusyBound::Sum::add(const Times &times) {
  forward += times.forward;
  backward += times.backward;
  forwardMoved += times.forwardMoved;
  backwardMoved += times.backwardMoved;
  backwardInLine += times.backwardInLine;
  scatterBeside += times.scatterBeside;
  sums += times.sums;
  end += times.end;
  if (std::exchange(isEmpty, false))
    firstSums = times.sums;
  lastBackward = times.backward;
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

double BusyBound::Sum::roomForSums() const {
  return std::max(0.0, backward - (ahead ? backwardMoved : scatterBeside));
}

double BusyBound::Sum::sumsBesideOwnPass() const {
  return std::min({sums - firstSums, backward - lastBackward, roomForSums()});
}

void BusyBound::GradientSums::add(const Sum &chunk, double messages,
                                  int64_t slots, bool endsRole) {
  if (isBeside)
    slowdown = std::min(slowdown, chunk.slowdown);
  double beside = endsRole ? chunk.sumsBesideOwnPass() : chunk.sums;
  if (endsRole)
    behindRole = chunk.sums - (2 - slowdown) * beside;
  all += chunk.sums;
  hideable += beside;
  double pass = chunk.roomForSums() + messages;
  double passes = static_cast<double>(slots) * pass;
  room = passesInFront + (isWhole ? pass : passes);
  passesInFront += passes;
}

double BusyBound::GradientSums::seconds() const {
  return all - (2 - slowdown) * std::min(hideable, room);
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

const BusyBound::Times &BusyBound::timesOf(const Plan &plan, size_t kind,
                                           const Strategy &strategy,
                                           size_t stage) {
  bool shares = cluster.sharesCores();
  auto [it, isNew] =
      known[{placeOf(plan, stage), kind, plan.microBatchSamples(),
             shares ? plan.microBatches : 0, shares ? stage : 0}]
          .try_emplace(strategy);
  Times &times = it->second;
  if (!isNew)
    return times;
  Expected<int64_t> samples = strategy.localSamples(plan.microBatchSamples());
  if (!samples) {
    times.refusal = toString(samples.takeError());
    return times;
  }
  Expected<LayerFootprint> footprint =
      model.footprintUnder(schedule, kind, strategy, *samples);
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
  times.input = times.backward;
  if (parts.split)
    times.input -= parts.weight + parts.tpWeight;
  times.scatterBeside = std::min(computed, parts.scatter);
  times.sums = parts.sync;
  times.end = parts.norm + parts.update;
  times.ahead = footprint->forwardGathered + footprint->backwardGathered > 0;
  times.slowdown = parts.slowdown;
  times.nosync = layerNosyncPicoseconds(layerTime(parts));
  times.memory = layerMemory(*footprint, *samples, schedule.splitsBackward());
  return times;
}

size_t BusyBound::placeOf(const Plan &plan, int64_t from, int64_t to) {
  auto [place, isNew] = cutPlaces.try_emplace({plan.pipelineDegree, from, to});
  if (isNew)
    place->second =
        tables.placeOf(plan.stages[from].devices, plan.stages[to].devices);
  return place->second;
}

std::pair<double, double> BusyBound::leastMessages(const Plan &plan,
                                                   const StrategySet &former,
                                                   const StrategySet &latter,
                                                   int64_t from, int64_t to,
                                                   int64_t bytes) {
  if (bytes == 0)
    return {0, 0};
  CostTables::LeastMove least = tables.leastMove(
      former, latter, placeOf(plan, from, to), bytes, plan.microBatchSamples());
  // The time leaves out what whole picoseconds round up.
  auto seconds = [](Picoseconds time) {
    return static_cast<double>(std::max<Picoseconds>(time - 1, 0)) / 1e12;
  };
  return {seconds(least.activation), seconds(least.gradient)};
}

BusyBound::Messages BusyBound::messagesOf(const Plan &plan,
                                          const Strategy &former,
                                          const Strategy &latter, int64_t from,
                                          int64_t to, int64_t bytes) {
  if (bytes == 0)
    return {};
  const std::vector<int64_t> &source = plan.stages[from].devices;
  const std::vector<int64_t> &target = plan.stages[to].devices;
  auto [it, isNew] = moves[placeOf(plan, from, to)][former].try_emplace(latter);
  if (isNew)
    it->second = {reshardRate(cluster, former, latter, source, target),
                  reshardRate(cluster, latter, former, target, source)};
  const auto &[there, back] = it->second;
  auto size = static_cast<double>(bytes);
  auto samples = static_cast<double>(plan.microBatchSamples());
  return {there.seconds(size, samples), back.seconds(size, samples)};
}

/// A little less for what doubles round.
static constexpr double kBusyRounding = 1 - 1e-9;

std::optional<std::vector<BusyBound::ChunkTimes>>
BusyBound::chunksOf(const Plan &plan) {
  std::vector<ChunkTimes> chunks;
  for (const PlanChunk &chunk : plan.chunks()) {
    ChunkTimes &times = chunks.emplace_back();
    times.stage = static_cast<size_t>(chunk.stage);
    const Times *before = nullptr;
    size_t kind = 0;
    for (int64_t l = chunk.layers.first; l < chunk.layers.end(); ++l) {
      if (!before || model.kindOf(l) != kind ||
          plan.layers[l].strategy != plan.layers[l - 1].strategy)
        before = &timesOf(plan, l, times.stage);
      kind = model.kindOf(l);
      if (!before->refusal.empty())
        return std::nullopt;
      times.sum.add(*before);
    }
    if (chunks.size() == 1)
      continue;
    ChunkTimes &former = chunks[chunks.size() - 2];
    int64_t last = chunk.layers.first - 1;
    former.behind = messagesOf(plan, plan.layers[last].strategy,
                               plan.layers[last + 1].strategy,
                               static_cast<int64_t>(former.stage), chunk.stage,
                               model.boundaryBytesPerSample(last));
  }
  return chunks;
}

double BusyBound::leastSeconds(const Plan &plan) {
  std::optional<std::vector<ChunkTimes>> chunks = chunksOf(plan);
  if (!chunks)
    return 0;
  auto count = static_cast<double>(plan.microBatches);
  // Layers that are swapped may be updated behind others' passes.
  bool hasEnds = plan.offload == Offload::Off;
  // Steps that go on neither begin nor end, and sums have the next one's passes
  // to run beside.
  bool drains = schedule.delay({}) == 0;
  bool isWhole = !schedule.splitsBackward(), returns = drains && isWhole;
  struct Role {
    double begins = -1; ///< behind the forward passes of all chunks before
    double returns = 0; ///< through which its gradients have to go on
    double works = 0, ends = 0;
    // A message holds up both of its stages.
    double sends = 0, receives = 0;
    GradientSums sums;
  };
  std::vector<Role> roles(plan.stages.size());
  ScheduleShape shape = plan.shape();
  double forward = 0, backward = 0;
  Messages before; // of the cut in front
  for (auto [number, chunk] : enumerate(*chunks)) {
    const Sum &sum = chunk.sum;
    Role &role = roles[chunk.stage];
    bool isFirst = role.begins < 0;
    if (isFirst) {
      role.begins = forward;
      role.returns = backward;
      role.sums.isWhole = isWhole;
      role.sums.isBeside =
          backendTraits(cluster.backendOf(plan.stages[chunk.stage].devices))
              .streams;
      if (!drains)
        role.sums.passesInFront = std::numeric_limits<double>::infinity();
    }
    if (hasEnds) {
      // A role's last backward pass, where these are whole, is of its first
      // chunk.
      bool endsRole =
          isFirst && drains && (isWhole || chunks->size() == roles.size());
      role.sums.add(sum, before.gradient + chunk.behind.gradient,
                    schedule.slots(shape, static_cast<int64_t>(number)),
                    endsRole);
      role.ends += sum.end;
    }
    role.works += count * (sum.forwardSeconds() + sum.backwardSeconds());
    // The first output comes before its stage begins, and the last gradient may
    // leave when that has ended.
    role.receives += (count - 1) * before.output;
    role.sends += (count - 1) * before.gradient;
    role.sends += count * chunk.behind.output;
    role.receives += count * chunk.behind.gradient;
    before = chunk.behind;
    forward += sum.forwardSeconds();
    backward += sum.backwardSeconds();
  }
  // A role does nothing before its first chunk's first micro-batch is there,
  // and where backward passes are whole its last one goes on through all chunks
  // before that one.
  const Role &front = roles.front();
  double longest = 0;
  for (const Role &role : roles) {
    double works = (drains ? role.begins : 0) + role.works +
                   std::max(role.sends, role.receives);
    longest = std::max(longest, works + role.sums.seconds() + role.ends);
    if (returns)
      longest = std::max(longest, works + role.returns + front.sums.behindRole +
                                      front.ends);
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
  auto count = static_cast<double>(plan.microBatches);
  double works = count * (sum.forwardSeconds() + sum.backwardSeconds());
  const Strategy &strategy = plan.layers.front().strategy;
  if (all_of(plan.layers, [&](const PlanLayer &layer) {
        return layer.strategy == strategy;
      })) {
    int64_t bytes = std::numeric_limits<int64_t>::max();
    for (size_t layer = 0; layer + 1 < plan.layers.size(); ++layer)
      bytes = std::min(bytes, model.boundaryBytesPerSample(layer));
    ScheduleShape shape{plan.pipelineDegree, plan.microBatches, chunks};
    for (int64_t chunk = 0; chunk + 1 < shape.allChunks(); ++chunk) {
      Messages messages =
          messagesOf(plan, strategy, strategy, schedule.home(shape, chunk),
                     schedule.home(shape, chunk + 1), bytes);
      works += count * messages.output + (count - 1) * messages.gradient;
    }
  }
  // The mean over the stages.
  return works / static_cast<double>(plan.stages.size()) * kBusyRounding;
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
