//===- Passes.cpp - Gathers and sums of every micro-batch -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Passes.h"

#include "galvatron/Cost/LayerCost.h"

#include <map>
#include <numeric>

using namespace llvm;

namespace galvatron {
namespace {

/// Which passes of a step communicate.
struct Traffic {
  int64_t passes, forwardGathers, backwardGathers, sums;
};

/// Seconds of a layer in all passes of a step.
double passSeconds(LayerTimeParts parts, const Traffic &traffic, bool ahead) {
  const double gather = parts.gather, scatter = parts.scatter;
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
  const Traffic charged{passes, passes, passes, passes};
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
  double seconds = 0;
  // Layers of one kind and strategy are alike.
  std::map<std::pair<size_t, std::string>, double> known;
  for (size_t layer = 0; layer < model.layerCount(); ++layer) {
    const Strategy &strategy = plan.layers[layer].strategy;
    const size_t kind = model.kindOf(layer);
    auto [entry, isNew] = known.insert({{kind, strategy.str()}, 0});
    if (isNew) {
      Expected<LayerFootprint> footprint =
          model.footprint(kind, strategy, configuration.microBatch);
      if (!footprint)
        return footprint.takeError();
      LayerTimeParts parts = layerTimeParts(*footprint, strategy,
                                            linksOf(cluster, strategy, devices),
                                            cluster, devices, model.dtype());
      entry->second =
          passSeconds(parts, charged, ahead) - passSeconds(parts, real, ahead);
    }
    seconds += entry->second;
  }
  return seconds * 1e3;
}

} // namespace galvatron
