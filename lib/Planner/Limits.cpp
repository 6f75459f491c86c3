//===- Limits.cpp - The device and the link that limit a plan -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Limits.h"

#include "galvatron/Cost/ExchangeName.h"
#include "galvatron/Cost/StageContents.h"
#include "galvatron/Strategy/ReshardPlan.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>

using namespace llvm;

namespace galvatron {

namespace {

/// The pair of devices with the lowest bandwidth so far.
struct SlowestPair {
  int64_t from = 0, to = 0;
  Link link;

  void see(const Cluster &cluster, int64_t a, int64_t b) {
    Link next = cluster.pairLink(a, b);
    if (link.bandwidth == 0 || next.bandwidth < link.bandwidth)
      *this = {a, b, next};
  }
};

SlowestPair slowestOfRings(const Cluster &cluster, const Strategy &strategy,
                           Paradigm paradigm, ArrayRef<int64_t> devices) {
  SlowestPair slowest;
  for (int64_t rank = 0; rank < strategy.devices(); ++rank) {
    std::vector<int64_t> ring;
    for (int64_t member : strategy.group(rank, paradigm))
      ring.push_back(devices[member]);
    for (size_t i = 0; ring.size() > 1 && i < ring.size(); ++i)
      slowest.see(cluster, ring[i], ring[(i + 1) % ring.size()]);
  }
  return slowest;
}

class LimitFinder {
public:
  LimitFinder(LayerModel &model, const Cluster &cluster, const Plan &plan)
      : model(model), cluster(cluster), plan(plan) {}

  Expected<PlanLimits> run() {
    if (Error error = checkPlan(model, cluster, plan))
      return std::move(error);
    limits.stage = static_cast<int64_t>(plan.slowestStage());
    const PlanStage &slowest = plan.stages[limits.stage];
    limits.stageMs = slowest.timeNosyncMs;
    limits.device = *min_element(slowest.devices, [&](int64_t a, int64_t b) {
      return rate(a) < rate(b);
    });
    limits.deviceType = cluster.deviceType(limits.device).name;
    std::vector<CoreContention> contention = planContention(cluster, plan);
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      if (Error error = seeRings(s, contention[s]))
        return std::move(error);
    }
    std::vector<PlanChunk> chunks = plan.chunks();
    for (size_t c = 0; c + 1 < chunks.size(); ++c)
      seeCut(chunks[c], chunks[c + 1]);
    return std::move(limits);
  }

private:
  double rate(int64_t device) const {
    return cluster.flopsTogether({device}, model.dtype());
  }

  void offer(const Twine &what, double seconds, const SlowestPair &pair) {
    if (seconds <= 0 || (limits.link && limits.link->stepMs >= seconds * 1e3))
      return;
    limits.link = {what.str(), pair.from, pair.to, pair.link, seconds * 1e3};
  }

  /// Collectives of a stage, each paradigm by itself.
  Error seeRings(size_t s, const CoreContention &contention) {
    const PlanStage &stage = plan.stages[s];
    Expected<StageContents> contents =
        stageContents(model, cluster, plan, static_cast<int64_t>(s));
    if (!contents)
      return contents.takeError();
    auto m = static_cast<double>(plan.microBatches);
    std::map<std::string, Rings> rings; // by what they are for
    for (auto [i, l] : enumerate(stage.layers())) {
      const Strategy &strategy = plan.layers[l].strategy;
      const LayerFootprint &footprint = contents->layers[i].footprint;
      const StrategyLinks links = linksOf(cluster, strategy, stage.devices);
      LayerTimeParts parts =
          layerTimeParts(footprint, strategy, links, cluster, stage.devices,
                         model.dtype(), contention);
      const double inside =
          parts.tpForward + parts.tpBackward + parts.tpRecompute;
      auto add = [&](Paradigm paradigm, StringRef what, double seconds) {
        Rings &own = rings[(what + paradigm->purpose).str()];
        own.seconds += seconds;
        own.strategy = &strategy;
        own.paradigm = paradigm;
      };
      for (const Level &level : strategy.levels()) {
        if (level.paradigm->shardsParameters)
          add(level.paradigm, "gathers and sums of ",
              m * (2 * parts.gather + parts.scatter));
        else if (level.paradigm->splitsBatch)
          add(level.paradigm, "", parts.sync);
        if (level.paradigm->hasAxis())
          add(level.paradigm, "",
              m * inside * shareOf(level.paradigm->axis, footprint, links));
      }
    }
    // The first of equal times is told.
    for (const auto &[what, own] : rings)
      offer(
          what + " of stage " + Twine(s), own.seconds,
          slowestOfRings(cluster, *own.strategy, own.paradigm, stage.devices));
    return Error::success();
  }

  /// Seconds that layers of a stage exchange for one purpose, and one of their
  /// strategies with the paradigm of its level.
  struct Rings {
    double seconds = 0;
    const Strategy *strategy = nullptr;
    Paradigm paradigm;
  };

  /// The part of a layer's exchanges inside functions that is along an axis.
  static double shareOf(LayerAxis axis, const LayerFootprint &footprint,
                        const StrategyLinks &links) {
    const double tensor =
        exchangeSeconds(footprint, links, CollectiveGroup::Tensor);
    const double context =
        exchangeSeconds(footprint, links, CollectiveGroup::Context);
    const double own = axis == LayerAxis::Tensor ? tensor : context;
    return own > 0 ? own / (tensor + context) : 0;
  }

  /// Activations to the next chunk, and their gradients back.
  void seeCut(const PlanChunk &chunk, const PlanChunk &behind) {
    const PlanStage &stage = plan.stages[chunk.stage];
    const PlanStage &next = plan.stages[behind.stage];
    size_t last = behind.layers.first - 1;
    const Strategy &from = plan.layers[last].strategy;
    const Strategy &to = plan.layers[last + 1].strategy;
    auto bytes = static_cast<double>(model.boundaryBytesPerSample(last));
    auto samples = static_cast<double>(plan.microBatchSamples());
    double seconds = reshardRate(cluster, from, to, stage.devices, next.devices)
                         .seconds(bytes, samples) +
                     reshardRate(cluster, to, from, next.devices, stage.devices)
                         .seconds(bytes, samples);
    SlowestPair pair;
    for (const ReshardTransfer &transfer :
         reshardPlan(from, to, stage.devices, next.devices,
                     plan.microBatchSamples())
             .transfers)
      if (!transfer.isLocal())
        pair.see(cluster, transfer.srcRank, transfer.dstRank);
    offer("transfers between stages " + Twine(chunk.stage) + " and " +
              Twine(behind.stage),
          seconds * static_cast<double>(plan.microBatches), pair);
  }

  LayerModel &model;
  const Cluster &cluster;
  const Plan &plan;
  PlanLimits limits;
};

} // namespace

Expected<PlanLimits> planLimits(LayerModel &model, const Cluster &cluster,
                                const Plan &plan) {
  return LimitFinder(model, cluster, plan).run();
}

void PlanLimits::print(raw_ostream &os, const Cluster &cluster,
                       const Plan &plan) const {
  auto place = [&](int64_t at) {
    std::string text = "device " + std::to_string(at);
    if (cluster.nodeCount() > 1)
      text += " of node " + std::to_string(cluster.nodeOf(at));
    return text;
  };
  os << "  slowest stage: " << stage << " on devices "
     << deviceRange(plan.stages[stage].devices) << ", its pace is set by "
     << place(device) << " (" << deviceType << ")"
     << formatv(": {0:f3} ms a micro-batch, {1} of them a step\n", stageMs,
                plan.microBatches);
  if (!link)
    return;
  // "1.25 GB/s", whatever unit reads it back exactly.
  os << "  busiest link: " << place(link->from) << " to " << place(link->to)
     << formatv(", {0:f2} GB/s: {1}, {2:f3} ms a step\n",
                link->link.bandwidth / 1e9, link->what, link->stepMs);
}

json::Value PlanLimits::toJson() const {
  json::Object object{{"stage", stage},
                      {"device", device},
                      {"device-type", deviceType},
                      {"micro-batch-ms", stageMs}};
  if (link)
    object["link"] = json::Object{{"from", link->from},
                                  {"to", link->to},
                                  {"bytes-per-second", link->link.bandwidth},
                                  {"carries", link->what},
                                  {"step-ms", link->stepMs}};
  return object;
}

} // namespace galvatron
