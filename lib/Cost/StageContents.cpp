//===- StageContents.cpp - The footprints of a plan's stages --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/StageContents.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Concurrency.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace galvatron {

int64_t LiveTensors::bytes(ArrayRef<int64_t> tensors, int64_t samples) {
  int64_t sum = 0;
  for (int64_t each : tensors)
    sum = addBytes(sum, align64(multiplyBytes(each, samples)));
  return sum;
}

LiveTensors LayerModel::liveTensors(size_t layer) const {
  LiveTensors tensors;
  if (int64_t bytes = boundaryBytesPerSample(layer))
    tensors.made.push_back(bytes);
  return tensors;
}

/// The error of models without bodies, whose layers have no points.
static Error noPoints(const Strategy &strategy) {
  return makeError("strategy '" + strategy.str() +
                   "' keeps a part of a layer's values, and a profile does not "
                   "say which there are: expected all or nothing recomputed");
}

Expected<KeptValues> LayerModel::keptValues(size_t, const Strategy &strategy,
                                            int64_t) {
  return noPoints(strategy);
}

Error LayerModel::givePoint(size_t, const Strategy &strategy, int64_t,
                            const KeptValues &) {
  return noPoints(strategy);
}

Error LayerModel::keepOnly(size_t, std::vector<KeptValue>) {
  return makeError("a profile does not say which values a layer has: expected "
                   "all or nothing recomputed");
}

/// Gives a footprint the strategy's homes.
static Expected<LayerFootprint> atHome(Expected<LayerFootprint> result,
                                       const Strategy &strategy) {
  if (!result)
    return result;
  if (strategy.home().activations &&
      result->passingInBytes + result->passingOutBytes > 0)
    return makeError("tensors that pass layers stay on the devices, so "
                     "activations of a layer that they pass do, too");
  result->home = strategy.home();
  return result;
}

Expected<LayerFootprint> LayerModel::footprintUnder(const Schedule &schedule,
                                                    size_t kind,
                                                    const Strategy &strategy,
                                                    int64_t samples) {
  return atHome(schedule.splitsBackward()
                    ? splitFootprint(kind, strategy, samples)
                    : footprint(kind, strategy, samples),
                strategy);
}

Expected<LayerFootprint>
LayerModel::leastFootprintUnder(const Schedule &schedule, size_t kind,
                                const Strategy &strategy, int64_t samples) {
  return atHome(schedule.splitsBackward()
                    ? splitFootprint(kind, strategy, samples)
                    : leastFootprint(kind, strategy, samples),
                strategy);
}

void connectLayers(MutableArrayRef<StageLayer> layers,
                   ArrayRef<Strategy> strategies, const LayerModel &model,
                   size_t first) {
  for (size_t i = 0; i < layers.size(); ++i) {
    StageLayer &layer = layers[i];
    layer.behind = model.liveTensors(first + i).allBytes(layer.samples);
    if (first + i == 0)
      continue;
    LiveTensors front = model.liveTensors(first + i - 1);
    layer.front = front.allBytes(layer.samples);
    layer.resharded = i > 0 && strategies[i].sampleLayout() !=
                                   strategies[i - 1].sampleLayout();
    if (i == 0 || layer.resharded)
      layer.entering = front.passingBytes(layer.samples);
  }
}

Error checkDevices(LayerModel &model, const Cluster &cluster,
                   ArrayRef<int64_t> devices) {
  if (cluster.flopsOf(devices, model.dtype()) == 0)
    return makeError("cluster '" + cluster.name() +
                     "': a device type has no flops for dtype '" +
                     model.dtype() + "'");
  std::vector<std::string> measured = model.measuredTypes();
  if (measured.empty())
    return Error::success();
  for (int64_t device : devices)
    if (!is_contained(measured, cluster.deviceType(device).name))
      return makeError("model '" + model.name() +
                       "' has no times for device "
                       "type '" +
                       cluster.deviceType(device).name + "', only for " +
                       join(measured, ", "));
  return Error::success();
}

Error checkPlan(LayerModel &model, const Cluster &cluster, const Plan &plan) {
  if (Error error = plan.check())
    return error;
  if (plan.layers.size() != model.layerCount())
    return makeError("plan: has " + Twine(plan.layers.size()) +
                     " layers, but model '" + model.name() + "' has " +
                     Twine(model.layerCount()));
  for (size_t l = 0; l < plan.layers.size(); ++l)
    if (plan.layers[l].name != model.layerName(l))
      return makeError("plan: layer " + Twine(l) + " is '" +
                       plan.layers[l].name + "', but the model has '" +
                       model.layerName(l) + "' there");
  for (const PlanStage &stage : plan.stages) {
    for (int64_t device : stage.devices)
      if (device < 0 || device >= cluster.deviceCount())
        return makeError("plan: device " + Twine(device) +
                         " does not exist, cluster '" + cluster.name() +
                         "' has " + Twine(cluster.deviceCount()));
    if (Error error = checkDevices(model, cluster, stage.devices))
      return error;
  }
  for (const Tie &tie : model.ties()) {
    auto isAway = [&](size_t layer) {
      return plan.layers[layer].strategy.home().states;
    };
    const PlanStage &stage = plan.stages[plan.layers[tie.ownerLayer].stage];
    if (isAway(tie.ownerLayer) != isAway(tie.borrowerLayer) &&
        backendTraits(cluster.backendOf(stage.devices)).streams)
      return makeError("plan: layers '" + plan.layers[tie.ownerLayer].name +
                       "' and '" + plan.layers[tie.borrowerLayer].name +
                       "' have a tied parameter, whose gradients a host and a "
                       "device cannot sum: expected 'opt-host' in both "
                       "strategies or in neither");
  }
  return Error::success();
}

Expected<StageContents> stageContents(LayerModel &model, const Cluster &cluster,
                                      const Plan &plan, int64_t stage) {
  const PlanStage &at = plan.stages[stage];
  StageContents contents;
  bool regroups = plan.shape().regroups();
  std::optional<int64_t> last; // of the layers so far, one with backward passes
  auto add = [&](int64_t l, bool forwardOnly) -> Error {
    const Strategy &strategy = plan.layers[l].strategy;
    int64_t samples =
        forwardOnly ? plan.forwardSamples() : plan.microBatchSamples();
    Expected<int64_t> local = strategy.localSamples(samples);
    if (!local)
      return makeError("layer '" + plan.layers[l].name +
                       "': " + toString(local.takeError()));
    const std::optional<KeptValues> &kept = plan.layers[l].kept;
    // Neighbours are often alike.
    const std::optional<int64_t> before =
        std::exchange(last, forwardOnly ? std::nullopt : std::optional(l));
    if (before && last && !kept && model.kindOf(l) == model.kindOf(*before) &&
        strategy == plan.layers[*before].strategy) {
      contents.layers.push_back(makeStageLayer(
          contents.layers.back().footprint, *local, model.dataOf(l), strategy));
      return Error::success();
    }
    if (kept)
      if (Error error =
              model.givePoint(model.kindOf(l), strategy, *local, *kept))
        return makeError("layer '" + plan.layers[l].name +
                         "': " + toString(std::move(error)));
    Expected<LayerFootprint> footprint =
        model.footprintUnder(*plan.schedule, model.kindOf(l), strategy, *local);
    if (!footprint)
      return makeError("layer '" + plan.layers[l].name +
                       "' cannot have strategy '" + strategy.str() +
                       "': " + toString(footprint.takeError()));
    contents.layers.push_back(makeStageLayer(
        forwardOnly ? forwardOnlyFootprint(*footprint) : std::move(*footprint),
        *local, model.dataOf(l), strategy));
    if (forwardOnly && regroups)
      contents.layers.back().microBatches = plan.forwardMicroBatches;
    return Error::success();
  };
  std::vector<size_t> own = at.layers();
  contents.layers.reserve(own.size());
  for (size_t l : own)
    if (Error error = add(static_cast<int64_t>(l), /*forwardOnly=*/false))
      return error;
  StageShape &shape = contents.shape;
  ScheduleShape scheduled = plan.shape();
  shape.inFlight = 0;
  // A stage of packs has its own first and then those that it runs forward for
  // others: where they stand changes no sum.
  std::vector<StageChunk> chunks;
  std::vector<LayerRange> ranges = at.ranges();
  auto addChunk = [&](int64_t chunk, const LayerRange &range) {
    StageChunk held{static_cast<size_t>(range.count),
                    plan.schedule->slots(scheduled, chunk),
                    chunk + 1 == scheduled.allChunks()};
    held.forwardOnly = chunk < scheduled.chunkOfRun(0);
    held.readsData = range.first == 0;
    held.number = chunk;
    // Gradients of tied parameters are summed at home first.
    held.updatesOnDevice =
        scheduled.updateOnDevice && !held.forwardOnly &&
        none_of(model.ties(), [&](const Tie &tie) {
          auto has = [&](size_t layer) {
            auto l = static_cast<int64_t>(layer);
            return l >= range.first && l < range.end();
          };
          return has(tie.ownerLayer) || has(tie.borrowerLayer);
        });
    std::vector<Strategy> strategies = plan.strategiesOf(range);
    size_t before = 0;
    for (const StageChunk &other : chunks)
      before += other.layers;
    connectLayers(
        MutableArrayRef(contents.layers).slice(before, strategies.size()),
        strategies, model, range.first);
    shape.inFlight += held.inFlight;
    shape.lastStage |= held.last;
    chunks.push_back(held);
  };
  size_t seen = 0;
  for (int64_t run = 0; run < scheduled.runCount(); ++run)
    if (plan.schedule->home(scheduled, scheduled.chunkOfRun(run)) == stage)
      addChunk(scheduled.chunkOfRun(run), ranges[seen++]);
  for (size_t pack = 0; pack < scheduled.forwardPacks.size(); ++pack) {
    auto number = static_cast<int64_t>(pack);
    if (plan.schedule->home(scheduled, number) != stage)
      continue;
    int64_t first = scheduled.forwardPacks[pack];
    int64_t end = pack + 1 < scheduled.forwardPacks.size()
                      ? scheduled.forwardPacks[pack + 1]
                      : scheduled.backwardPacks.back();
    for (int64_t l = first; l < end; ++l) {
      if (Error error = add(l, /*forwardOnly=*/true))
        return error;
      // Its own packs have it, in their order.
      if (plan.layers[l].stage == stage)
        contents.layers.back().parametersOf =
            llvm::find(own, static_cast<size_t>(l)) - own.begin();
    }
    addChunk(number, {first, end - first});
  }
  if (plan.schedule->separatesMessages(scheduled))
    shape.chunks = std::move(chunks);
  shape.waiting = plan.schedule->waitingMessages(scheduled, stage);
  shape.microBatches = plan.microBatches;
  shape.setSchedule(*plan.schedule, scheduled);
  shape.backend = backendTraits(cluster.backendOf(at.devices));
  return contents;
}

void markGathersAhead(StageContents &contents, const Plan &plan,
                      int64_t stage) {
  MutableArrayRef<StageLayer> rest = contents.layers;
  for (const LayerRange &range : plan.stages[stage].ranges()) {
    std::vector<Strategy> strategies = plan.strategiesOf(range);
    for (auto [layer, ahead] : zip_equal(rest.take_front(strategies.size()),
                                         gathersAhead(strategies))) {
      layer.forwardAhead = ahead.forward && layer.footprint.forwardGathered > 0;
      layer.backwardAhead =
          ahead.backward && layer.footprint.backwardGathered > 0;
    }
    rest = rest.drop_front(strategies.size());
  }
}

std::vector<CoreContention> planContention(const Cluster &cluster,
                                           const Plan &plan) {
  std::vector<std::vector<int64_t>> devices;
  for (const PlanStage &stage : plan.stages)
    devices.push_back(stage.devices);
  return pipelineContention(cluster, devices, plan.microBatches);
}

} // namespace galvatron
