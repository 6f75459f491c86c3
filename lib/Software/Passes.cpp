//===- Passes.cpp - Gathers and sums of every micro-batch -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Passes.h"

#include "galvatron/Cost/LayerCost.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

using namespace llvm;

namespace galvatron {
namespace {

/// Which passes of a step communicate.
struct Traffic {
  int64_t passes, forwardGathers, backwardGathers, sums;
  bool shared = true; ///< what replicas sum once a step
};

/// Seconds of a layer in all passes of a step.
double passSeconds(LayerTimeParts parts, const Traffic &traffic, bool ahead) {
  const double gather = parts.gather, scatter = parts.scatter;
  if (!traffic.shared)
    parts.sync = 0;
  double seconds = 0;
  for (int64_t pass = 0; pass < traffic.passes; ++pass) {
    bool last = pass + 1 == traffic.passes;
    parts.gather = pass < traffic.forwardGathers ? gather : 0;
    LayerTime forward =
        ahead ? layerTimeGatheredAhead(parts) : layerTime(parts);
    parts.gather = pass < traffic.backwardGathers ? gather : 0;
    // The last passes are those that sum.
    parts.scatter = pass >= traffic.passes - traffic.sums ? scatter : 0;
    LayerTime backward = layerTime(parts);
    seconds +=
        forward.forward + (last ? backward.backward : backward.backwardNosync);
  }
  return seconds;
}

} // namespace

Expected<double> savedByPasses(LayerModel &model, const Cluster &cluster,
                               const Plan &plan,
                               const Configuration &configuration,
                               const Execution &execution) {
  const int64_t passes = configuration.microBatches();
  bool gradients = configuration.sharding == Sharding::Gradients;
  if (configuration.pipeline > 1 || configuration.shards() == 1 ||
      (!gradients && execution.sumsEveryPass))
    return 0;
  const Traffic charged{passes, passes, passes, passes},
      bare{passes, 0, 0, 0, false};
  Traffic real = charged;
  if (gradients) {
    real.backwardGathers = 0;
    real.forwardGathers = execution.gathersEveryPass ? passes : 1;
  }
  if (!execution.sumsEveryPass)
    real.sums = 1;
  std::vector<int64_t> devices(size_t(cluster.deviceCount()));
  std::iota(devices.begin(), devices.end(), 0);
  bool ahead = plan.stages.front().gathersAhead;
  // Seconds by the plan, in earnest, and of computation alone.
  using Three = std::array<double, 3>;
  Three sums = {};
  // Layers of one kind and strategy are alike.
  std::map<std::pair<size_t, std::string>, Three> known;
  for (size_t layer = 0; layer < model.layerCount(); ++layer) {
    const Strategy &strategy = plan.layers[layer].strategy;
    const size_t kind = model.kindOf(layer);
    auto [entry, isNew] = known.insert({{kind, strategy.str()}, Three()});
    if (isNew) {
      Expected<LayerFootprint> footprint =
          model.footprint(kind, strategy, configuration.microBatch);
      if (!footprint)
        return footprint.takeError();
      LayerTimeParts parts = layerTimeParts(*footprint, strategy,
                                            linksOf(cluster, strategy, devices),
                                            cluster, devices, model.dtype());
      entry->second = {passSeconds(parts, charged, ahead),
                       passSeconds(parts, real, ahead),
                       passSeconds(parts, bare, ahead)};
    }
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] += entry->second[i];
  }
  auto [byPlan, inEarnest, computation] = sums;
  if (byPlan <= computation)
    return 0;
  // Where the plan's step waits less for communication, less is saved.
  const double step =
      (plan.iterationMs - plan.stages.front().optimizerMs) / 1e3;
  const double waited =
      std::clamp((step - computation) / (byPlan - computation), 0.0, 1.0);
  return (byPlan - inEarnest) * waited * 1e3;
}

} // namespace galvatron
