//===- PlacedPartition.h - Stages, their layers and devices -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The problem of PipelinePartition.h where it is also to be chosen which
// devices a stage has. Devices of a pool are alike; a group says how many of
// each pool a stage takes, and its costs depend on nothing else. Every device
// is taken.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SEARCH_PLACEDPARTITION_H
#define GALVATRON_SEARCH_PLACEDPARTITION_H

#include "galvatron/Support/Cancellation.h"
#include "galvatron/Support/Units.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace galvatron {

/// minimise (m-1) * max t + sum t + sum cut + max end over orders of groups
/// that use up the pools, and contiguous partitions with no stage empty.
struct PlacedPartitionProblem {
  int64_t stages = 1;
  int64_t microBatches = 1;
  int64_t layers = 1;
  std::vector<int64_t> pools;                  ///< devices of each
  std::vector<std::vector<int64_t>> groups;    ///< [group][pool]
  std::vector<std::vector<Picoseconds>> times; ///< [group][layer]
  std::vector<std::vector<Picoseconds>> ends;  ///< [group][layer]
  /// [group][next group][layer that the cut is behind]
  std::vector<std::vector<std::vector<Picoseconds>>> cuts;
  /// [stage][group][first layer], see PartitionProblem. Empty: no limit.
  std::vector<std::vector<std::vector<int64_t>>> mostLayers;
  /// Once it is requested, what is returned need not be the optimum, and
  /// nothing proves nothing. Null: never.
  const Cancellation *cancellation = nullptr;

  llvm::Error check() const;
};

struct PlacedPartitionSolution {
  Picoseconds cost = 0;
  std::vector<size_t> groups; ///< by stage
  std::vector<int64_t> layersPerStage;
};

/// What the solver would keep: numbers for every group that may come next,
/// first layer, and way to have used up the pools by then. At most `limit`.
int64_t placedPartitionSize(const PlacedPartitionProblem &problem,
                            int64_t limit);

/// The optimum; nothing if no groups use up the pools or nothing keeps the
/// limits. Of equals any, the same on every machine.
std::optional<PlacedPartitionSolution>
solvePlacedPartition(const PlacedPartitionProblem &problem);

} // namespace galvatron

#endif // GALVATRON_SEARCH_PLACEDPARTITION_H
