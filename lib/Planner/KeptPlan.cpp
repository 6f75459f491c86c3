//===- KeptPlan.cpp - What a plan's layers keep ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KeptPlan.h"

#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Support/Units.h"

#include <map>
#include <memory>
#include <numeric>

using namespace llvm;

namespace galvatron::planner {

namespace {

/// The devices that points are priced on: the first ones, in their order.
struct PointTimes {
  Cluster cluster;
  std::string dtype;
  struct Place {
    std::vector<int64_t> devices;
    StrategyLinks links;
  };
  std::map<Strategy, Place> places;

  double secondsOf(const LayerFootprint &footprint, const Strategy &strategy) {
    auto [it, fresh] = places.try_emplace(strategy);
    Place &place = it->second;
    if (fresh) {
      place.devices.resize(strategy.devices());
      std::iota(place.devices.begin(), place.devices.end(), 0);
      place.links = linksOf(cluster, strategy, place.devices);
    }
    LayerTimeParts parts = layerTimeParts(footprint, strategy, place.links,
                                          cluster, place.devices, dtype);
    return parts.forward + parts.tpForward;
  }
};

} // namespace

void setPointTimes(LayerModel &model, const Cluster &cluster) {
  auto times =
      std::make_shared<PointTimes>(PointTimes{cluster, model.dtype(), {}});
  model.setPointTimes(cluster.hash(), [times](const LayerFootprint &footprint,
                                              const Strategy &strategy) {
    return times->secondsOf(footprint, strategy);
  });
}

Error checkKept(const LayerModel &model, const Plan &plan) {
  std::map<std::pair<size_t, Strategy>, size_t> first;
  for (size_t l = 0; l < plan.layers.size(); ++l) {
    const PlanLayer &layer = plan.layers[l];
    if (!layer.kept)
      continue;
    auto [it, fresh] = first.try_emplace({model.kindOf(l), layer.strategy}, l);
    if (!fresh && plan.layers[it->second].kept != layer.kept)
      return makeError("plan: layers '" + plan.layers[it->second].name +
                       "' and '" + layer.name +
                       "' are alike and have one strategy, '" +
                       layer.strategy.str() +
                       "', expected one set of kept values, found two: "
                       "another point has another number");
  }
  return Error::success();
}

Error fillKept(LayerModel &model, Plan &plan) {
  for (size_t l = 0; l < plan.layers.size(); ++l) {
    PlanLayer &layer = plan.layers[l];
    layer.kept.reset();
    if (layer.strategy.point() == 0)
      continue;
    Expected<int64_t> local =
        layer.strategy.localSamples(plan.microBatchSamples());
    if (!local)
      return local.takeError();
    Expected<KeptValues> kept =
        model.keptValues(model.kindOf(l), layer.strategy, *local);
    if (!kept)
      return kept.takeError();
    layer.kept = std::move(*kept);
  }
  return Error::success();
}

} // namespace galvatron::planner
