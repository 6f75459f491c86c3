//===- KeptPlan.cpp - What a plan's layers keep ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KeptPlan.h"

#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <map>
#include <memory>
#include <numeric>
#include <set>

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

bool hasValues(LayerModel &model) {
  for (size_t l = 0; l < model.layerCount(); ++l)
    if (!model.valuesOf(model.kindOf(l)).empty())
      return true;
  return false;
}

/// The values that layers have, a line for each kind:
/// "  layers.0: self_attn.q_proj, ..".
static std::string valuesText(LayerModel &model) {
  std::string text;
  std::set<size_t> seen;
  std::set<std::string> told;
  for (size_t l = 0; l < model.layerCount(); ++l) {
    if (!seen.insert(model.kindOf(l)).second)
      continue;
    std::vector<std::string> names;
    for (const NamedValue &value : model.valuesOf(model.kindOf(l)))
      names.push_back(value.name);
    if (!names.empty() && told.insert(join(names, ", ")).second)
      text += "\n  " + model.layerName(l) + ": " + join(names, ", ");
  }
  std::vector<std::string> modules;
  for (const RecomputeModule &module : recomputeModules())
    if (module.known)
      modules.push_back((module.name + " (" + module.text + ")").str());
  return text + "\n  modules: " + join(modules, ", ");
}

Error forceKept(LayerModel &model, PlannerOptions &options) {
  if (options.keep.empty())
    return Error::success();
  // A search may take the set in the place of points that it would choose.
  bool searched = !options.strategy && options.selective;
  if (!searched && (!options.strategy || options.strategy->checkpoint() ||
                    options.strategy->point() > 0 || !options.pins.empty()))
    return makeError(
        "values to keep are named beside one strategy for all "
        "layers that keeps all of them, found " +
        (options.strategy
             ? "'" + options.strategy->str() + "'" +
                   (options.pins.empty() ? "" : " and others' layers")
             : "none"));
  std::map<size_t, std::vector<NamedValue>> ofKind;
  for (size_t l = 0; l < model.layerCount(); ++l)
    if (size_t kind = model.kindOf(l); !ofKind.count(kind))
      ofKind[kind] = model.valuesOf(kind);
  if (all_of(ofKind, [](const auto &entry) { return entry.second.empty(); }))
    return model.keepOnly(0, {});
  for (StringRef word : options.keep) {
    std::vector<std::string> one = {word.ltrim('-').str()};
    if (any_of(ofKind, [&](const auto &entry) {
          return selectValues(entry.second, one).has_value();
        }))
      continue;
    auto module = llvm::find_if(recomputeModules(), [&](const auto &known) {
      return known.name == one.front();
    });
    std::string why = module != recomputeModules().end()
                          ? (": " + module->text + " of no layer").str()
                          : "";
    return makeError("no layer has values '" + one.front() + "'" + why +
                     "; there are" + valuesText(model));
  }
  std::set<size_t> forced;
  for (const auto &[kind, values] : ofKind)
    if (auto kept = selectValues(values, options.keep)) {
      if (Error error = model.keepOnly(kind, std::move(*kept)))
        return error;
      forced.insert(kind);
    }
  for (size_t l = 0; l < model.layerCount() && !searched; ++l)
    if (forced.count(model.kindOf(l)))
      options.pins.push_back(
          {model.layerName(l), options.strategy->withPoint(1)});
  options.keep.clear();
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
