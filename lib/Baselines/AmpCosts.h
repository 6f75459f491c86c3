//===- AmpCosts.h - What a placed shape costs -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Makes the problem that Search/PipelinePartition.h solves from a shape and the
// devices of its stages. What one list of devices costs is priced once a shape:
// placements differ in few of them.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_BASELINES_AMPCOSTS_H
#define GALVATRON_LIB_BASELINES_AMPCOSTS_H

#include "galvatron/Baselines/AmpSearch.h"

#include "galvatron/Cost/StageMemory.h"
#include "galvatron/Search/PipelinePartition.h"

#include <map>
#include <tuple>

namespace galvatron::baselines {

using StageDevices = std::vector<std::vector<int64_t>>;

class AmpCosts {
public:
  AmpCosts(LayerModel &model, const Cluster &cluster,
           const AmpProblem &problem);

  /// Everything that follows is of this shape. Errors: a layer cannot have its
  /// strategy.
  llvm::Error setShape(const AmpShape &shape);

  /// The best assignment on these devices; nothing if none fits.
  std::optional<AmpPlan> solve(const StageDevices &devices);
  /// A given assignment, if it fits.
  std::optional<AmpPlan> price(const StageDevices &devices,
                               const std::vector<int64_t> &layersPerStage);

  /// Bytes that the fullest stage of the even partition needs over what it has,
  /// as both.
  std::pair<int64_t, int64_t> evenNeed(const StageDevices &devices);

private:
  /// A stage's times, by layer.
  struct StageTimes {
    std::vector<Picoseconds> microBatch; ///< one micro-batch, both passes
    std::vector<Picoseconds> end;        ///< once a step
  };
  const StageTimes &stageTimes(llvm::ArrayRef<int64_t> devices,
                               llvm::ArrayRef<double> contention);
  /// The boundary behind every layer but the last, both ways.
  const std::vector<Picoseconds> &cutTimes(llvm::ArrayRef<int64_t> from,
                                           llvm::ArrayRef<int64_t> to);
  /// Layers that a stage holds at most, by its first one.
  const std::vector<int64_t> &mostLayers(int64_t stage,
                                         llvm::ArrayRef<int64_t> devices);
  PartitionProblem partitionProblem(const StageDevices &devices);
  StageShape stageShape(int64_t stage, llvm::ArrayRef<int64_t> devices) const;

  LayerModel &model;
  const Cluster &cluster;
  const AmpProblem &problem;
  int64_t layers;
  /// Whether costs of a stage depend on the nodes of its devices alone.
  bool byNode;

  AmpShape shape;
  Strategy strategy;
  int64_t samples = 1; ///< of a micro-batch over all replicas
  std::vector<StageLayer> contents;
  std::map<std::pair<std::vector<int64_t>, std::vector<double>>, StageTimes>
      stages;
  std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>,
           std::vector<Picoseconds>>
      cuts;
  /// By micro-batches in flight, last stage, backend and budget.
  std::map<std::tuple<int64_t, bool, std::string, int64_t>,
           std::vector<int64_t>>
      limits;
};

/// Simulated annealing of the placements of the first few plans of a result:
/// two devices of different nodes change places. No plan gets slower. Errors:
/// those of AmpCosts::setShape().
llvm::Error annealPlacements(AmpResult &result, AmpCosts &costs,
                             const Cluster &cluster, const AmpProblem &problem);

} // namespace galvatron::baselines

#endif // GALVATRON_LIB_BASELINES_AMPCOSTS_H
