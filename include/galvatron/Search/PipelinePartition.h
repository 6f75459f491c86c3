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

/// minimise (m-1) * max t + sum t + sum cut over contiguous partitions with no
/// stage empty.
struct PartitionProblem {
  int64_t stages = 1;
  int64_t microBatches = 1;
  std::vector<Picoseconds> layers;
  /// cuts[i][j]: a cut after layer i between stages j and j + 1. Empty: free.
  std::vector<std::vector<Picoseconds>> cuts;

  llvm::Error check() const;
};

struct PartitionSolution {
  Picoseconds cost = 0;
  std::vector<int64_t> layersPerStage;
};

/// The optimum; nothing if there are fewer layers than stages. Among equals the
/// one with the longest first stage, then the longest second, and so on.
std::optional<PartitionSolution>
solvePartition(const PartitionProblem &problem);

/// The contiguous partition with the least maximal stage time: the time
/// balance of arXiv 2307.02031, Sec. V. Same tie rule.
std::optional<PartitionSolution>
minMaxPartition(const std::vector<Picoseconds> &layers, int64_t stages);

} // namespace galvatron

#endif // GALVATRON_SEARCH_PIPELINEPARTITION_H
