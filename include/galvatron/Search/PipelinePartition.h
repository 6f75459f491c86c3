//===- PipelinePartition.h - Contiguous stages, exactly ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SEARCH_PIPELINEPARTITION_H
#define GALVATRON_SEARCH_PIPELINEPARTITION_H

#include "galvatron/Support/Units.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace galvatron {

/// minimise (m-1) * max t + sum t + sum cut + max end over contiguous
/// partitions with no stage empty: t and end are sums over the layers of a
/// stage.
struct PartitionProblem {
  int64_t stages = 1;
  int64_t microBatches = 1;
  /// Time of a layer wherever it is; empty if `stageLayers` is given.
  std::vector<Picoseconds> layers;
  /// stageLayers[i][j] is the time of layer i in stage j. Empty: as `layers`.
  std::vector<std::vector<Picoseconds>> stageLayers;
  /// cuts[i][j] is the cost of a cut after layer i between stages j and j + 1.
  /// Empty: free.
  std::vector<std::vector<Picoseconds>> cuts;
  /// ends[i][j]: what layer i adds to the end of a step in stage j. Stages do
  /// this side by side. Empty: nothing.
  std::vector<std::vector<Picoseconds>> ends;
  /// mostLayers[j][i] is the number of layers that stage j holds at most if its
  /// first one is i; 0: not even that one. Empty: no limit.
  std::vector<std::vector<int64_t>> mostLayers;

  int64_t layerCount() const {
    return static_cast<int64_t>(layers.empty() ? stageLayers.size()
                                               : layers.size());
  }
  llvm::Error check() const;
};

struct PartitionSolution {
  Picoseconds cost = 0;
  std::vector<int64_t> layersPerStage;
};

/// The optimum; nothing if no partition keeps the limits, or there are fewer
/// layers than stages. Among equals the one whose longest stage is shortest,
/// then the one with the longest first stage, then the longest second, and so
/// on; with `ends`, any of them.
std::optional<PartitionSolution>
solvePartition(const PartitionProblem &problem);

/// The contiguous partition with the least maximal stage time: the time
/// balance of arXiv 2307.02031, Sec. V. Same tie rule.
std::optional<PartitionSolution>
minMaxPartition(const std::vector<Picoseconds> &layers, int64_t stages);

} // namespace galvatron

#endif // GALVATRON_SEARCH_PIPELINEPARTITION_H
