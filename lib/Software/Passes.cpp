//===- Passes.cpp - Gathers and sums of every micro-batch -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Passes.h"

#include "galvatron/Cost/LayerCost.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
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
  // Passes are alike but where one of these begins.
  int64_t begins[] = {0,
                      traffic.forwardGathers,
                      traffic.backwardGathers,
                      traffic.passes - traffic.sums,
                      traffic.passes - 1,
                      traffic.passes};
  llvm::sort(begins);
  double seconds = 0;
  for (size_t part = 0; part + 1 < std::size(begins); ++part) {
    const int64_t pass = begins[part], count = begins[part + 1] - pass;
    if (count == 0)
      continue;
    bool last = pass + 1 == traffic.passes;
    parts.gather = pass < traffic.forwardGathers ? gather : 0;
    LayerTime forward =
        ahead ? layerTimeGatheredAhead(parts) : layerTime(parts);
    parts.gather = pass < traffic.backwardGathers ? gather : 0;
    // The last passes are those that sum.
    parts.scatter = pass >= traffic.passes - traffic.sums ? scatter : 0;
    LayerTime backward = layerTime(parts);
    seconds +=
        double(count) * (forward.forward +
                         (last ? backward.backward : backward.backwardNosync));
  }
  return seconds;
}

} // namespace

Expected<std::optional<PassSumsEither>>
passSums(LayerModel &model, const Cluster &cluster, const StrategyLinks &links,
         const Configuration &configuration, const Execution &execution) {
  const int64_t passes = configuration.microBatches();
  bool gradients = configuration.sharding == Sharding::Gradients;
  if (configuration.pipeline > 1 || configuration.shards() == 1 ||
      (!gradients && execution.sumsEveryPass))
    return std::nullopt;
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
  PassSumsEither sums;
  auto add = [&](size_t kind, const Strategy &strategy,
                 int64_t layers) -> Error {
    Expected<LayerFootprint> footprint =
        model.footprint(kind, strategy, configuration.microBatch);
    if (!footprint)
      return footprint.takeError();
    LayerTimeParts parts = layerTimeParts(*footprint, strategy, links, cluster,
                                          devices, model.dtype());
    const auto count = double(layers);
    for (bool ahead : {false, true}) {
      PassSums &of = ahead ? sums.ahead : sums.inFront;
      of.byPlan += count * passSeconds(parts, charged, ahead);
      of.inEarnest += count * passSeconds(parts, real, ahead);
      of.computation += count * passSeconds(parts, bare, ahead);
    }
    return Error::success();
  };
  // Embedding, block and head are three kinds.
  const Strategy ends = configuration.strategyOfEnds();
  const int64_t blocks = configuration.blocks.front();
  const int64_t again = configuration.recomputedOf(blocks);
  for (auto [kind, strategy, layers] :
       {std::tuple<size_t, Strategy, int64_t>(0, ends, 1),
        {1, configuration.strategyOfBlocks(), again},
        {1, ends, blocks - again},
        {2, ends, 1}})
    if (layers > 0)
      if (Error error = add(kind, strategy, layers))
        return std::move(error);
  return sums;
}

double savedSeconds(const PassSums &sums, double stepSeconds) {
  if (sums.byPlan <= sums.computation)
    return 0;
  // Less is saved if the plan's step waits less for communication.
  const double waited = std::clamp((stepSeconds - sums.computation) /
                                       (sums.byPlan - sums.computation),
                                   0.0, 1.0);
  return (sums.byPlan - sums.inEarnest) * waited;
}

} // namespace galvatron
