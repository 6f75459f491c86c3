//===- CostTables.h - Costs of strategies on a stage ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Turns model, cluster and strategies into the plain numbers that Search/ works
// on. Tables are shared by all stages that look alike and by all candidates
// with equal micro-batches.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_COSTTABLES_H
#define GALVATRON_LIB_PLANNER_COSTTABLES_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Cost/StageMemory.h"
#include "galvatron/Search/LayerStrategies.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace galvatron::planner {

/// Times are rounded once, layer by layer and transfer by transfer, here and in
/// evaluate(): both add the same integers.
inline Picoseconds layerPicoseconds(const LayerTime &time) {
  return toPicoseconds(time.total());
}
inline Picoseconds layerNosyncPicoseconds(const LayerTime &time) {
  return toPicoseconds(time.totalNosync());
}
inline Picoseconds transferPicoseconds(const ReshardRate &rate,
                                       int64_t bytesPerSample,
                                       int64_t samples) {
  return bytesPerSample == 0
             ? 0
             : toPicoseconds(rate.seconds(static_cast<double>(bytesPerSample),
                                          static_cast<double>(samples)));
}

/// The strategies of one group size with their layout classes.
struct StrategySet {
  std::vector<Strategy> strategies;
  std::vector<size_t> classOf; ///< by strategy; equal sample layouts
  std::vector<size_t> classes; ///< a strategy of each class
  int64_t sampleMultiple = 1;  ///< what every strategy's shards divide

  static StrategySet make(std::vector<Strategy> strategies);
};

/// One kind of layer under one strategy.
struct KindOption {
  size_t strategy;
  LayerFootprint footprint;
  int64_t samples;
  Picoseconds time, timeNosync;
};

/// A kind of layer under all strategies that it can have.
struct KindOptions {
  std::vector<KindOption> options;
  std::string refusal; ///< why the first refused strategy was refused
};

class CostTables {
public:
  CostTables(LayerModel &model, const Cluster &cluster)
      : model(model), cluster(cluster), dtype(model.dtype()) {}

  /// Options of a kind on a stage of `devices` for micro-batches of `samples`.
  const KindOptions &kindOptions(size_t kind, const StrategySet &set,
                                 llvm::ArrayRef<int64_t> devices,
                                 int64_t samples);

  /// Rates of a boundary's move, by class of the former and the latter layer:
  /// forward (activation) and backward (gradient).
  struct BoundaryRates {
    std::vector<ReshardRate> forward, backward;
  };
  const BoundaryRates &boundaryRates(const StrategySet &set,
                                     llvm::ArrayRef<int64_t> fromDevices,
                                     llvm::ArrayRef<int64_t> toDevices);

  /// tieSeconds for every (owner strategy, borrower strategy).
  const std::vector<Picoseconds> &tieTimes(const StrategySet &set,
                                           llvm::ArrayRef<int64_t> owner,
                                           llvm::ArrayRef<int64_t> borrower,
                                           int64_t bytes);

private:
  /// Equal for device lists that no cost can tell apart.
  std::string signature(llvm::ArrayRef<int64_t> a,
                        llvm::ArrayRef<int64_t> b = {}) const;

  LayerModel &model;
  const Cluster &cluster;
  std::string dtype;
  std::map<std::string, std::unique_ptr<KindOptions>> kinds;
  std::map<std::string, std::unique_ptr<BoundaryRates>> rates;
  std::map<std::string, std::unique_ptr<std::vector<Picoseconds>>> ties;
  std::map<std::string, StrategyLinks> links;
};

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_COSTTABLES_H
