//===- layer_seconds.cpp - What layers took in recorded steps -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/trace_report.h"

#include <algorithm>
#include <map>

namespace grt {
namespace {

/// What the functions of a kind took in one step, nanoseconds over all calls.
struct Calls {
  uint64_t nanoseconds = 0, count = 0;
};

/// A layer in one step.
struct LayerStep {
  Calls forward, recompute, backward, update;

  void add(LayerPhase phase, uint64_t nanoseconds) {
    switch (phase) {
    case LayerPhase::Forward:
      addTo(forward, nanoseconds, /*calls=*/1);
      break;
    case LayerPhase::Recompute:
      addTo(recompute, nanoseconds, 1);
      break;
    case LayerPhase::Backward:
      addTo(backward, nanoseconds, 1);
      break;
    case LayerPhase::Weight: // belongs to a call of the input part
      addTo(backward, nanoseconds, 0);
      break;
    case LayerPhase::Update:
      addTo(update, nanoseconds, 1);
      break;
    case LayerPhase::Norm: // belongs to the update
      addTo(update, nanoseconds, 0);
      break;
    }
  }

private:
  static void addTo(Calls &calls, uint64_t nanoseconds, uint64_t count) {
    calls.nanoseconds += nanoseconds;
    calls.count += count;
  }
};

double medianSeconds(const std::vector<LayerStep> &steps,
                     Calls LayerStep::*what) {
  std::vector<double> seconds;
  for (const LayerStep &step : steps)
    if (const Calls &calls = step.*what; calls.count)
      seconds.push_back(double(calls.nanoseconds) / 1e9 / double(calls.count));
  if (seconds.empty())
    return 0;
  auto middle = seconds.begin() + ptrdiff_t(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

} // namespace

std::vector<LayerSeconds> TraceReport::layerSeconds() const {
  size_t layers = 0;
  for (const Role &role : manifest.roles)
    for (const Layer &layer : role.layers)
      layers = std::max(layers, size_t(layer.index) + 1);
  std::map<uint32_t, size_t> places; // of the steps that all ranks recorded
  for (const Window &window : windows)
    places.try_emplace(window.step, places.size());
  std::vector<LayerSeconds> result(layers);
  std::vector<std::vector<LayerStep>> steps(
      layers, std::vector<LayerStep>(places.size()));
  for (const RankRecording &rank : ranks) {
    const Role &role = manifest.roles[size_t(rank.role)];
    for (const Layer &layer : role.layers)
      result[size_t(layer.index)].name = layer.name;
    std::span<const TraceEvent> events = rank.recorder->events();
    for (size_t e = 0; e < events.size(); ++e) {
      const TraceEvent &function = events[e];
      auto place = places.find(function.step);
      if (function.kind != TraceKind::Function || place == places.end() ||
          function.end < function.begin)
        continue;
      uint64_t nanoseconds = function.end - function.begin;
      if (rank.recorder->hasDevice()) {
        // The host only asks for kernels, whose events follow that of the
        // function that asks.
        nanoseconds = 0;
        for (size_t k = e + 1;
             k < events.size() && events[k].begin <= function.end; ++k)
          if (events[k].kind == TraceKind::Kernel)
            nanoseconds += events[k].deviceEnd - events[k].deviceBegin;
      }
      size_t index = size_t(role.layers[size_t(function.layer)].index);
      steps[index][place->second].add(LayerPhase(function.detail), nanoseconds);
    }
  }
  for (size_t l = 0; l < layers; ++l) {
    result[l].forward = medianSeconds(steps[l], &LayerStep::forward);
    result[l].recompute = medianSeconds(steps[l], &LayerStep::recompute);
    result[l].backward = medianSeconds(steps[l], &LayerStep::backward);
    result[l].update = medianSeconds(steps[l], &LayerStep::update);
  }
  return result;
}

} // namespace grt
