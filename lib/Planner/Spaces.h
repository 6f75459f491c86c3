//===- Spaces.h - The named variants of the search space --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_SPACES_H
#define GALVATRON_LIB_PLANNER_SPACES_H

#include "galvatron/Planner/Planner.h"
#include "galvatron/Support/Units.h"

namespace galvatron::planner {

/// Where the partition comes from.
enum class PartitionMode : uint8_t {
  Free,           ///< searched exactly
  Even,           ///< evenPartition()
  TimeBalanced,   ///< p_t
  MemoryBalanced, ///< p_m
  BiObjective,    ///< Algorithm 2
  Given           ///< PlannerOptions::partition
};

/// A variant of arXiv 2307.02031, Sec. VII: which trees, which partitions.
struct Space {
  std::string name;
  SpaceOptions trees;
  std::optional<Strategy> fixed; ///< instead of the trees
  std::vector<int64_t> pipelineDegrees;
  PartitionMode partition = PartitionMode::Even;

  std::vector<Strategy> strategies(int64_t groupSize) const;
};

/// The space that the options name, with the forced parts applied.
llvm::Expected<Space> getSpace(const PlannerOptions &options, int64_t devices);

/// Refuses options that contradict each other, the model, the cluster or the
/// space.
llvm::Error checkOptions(LayerModel &model, const Cluster &cluster,
                         const PlannerOptions &options, const Space &space);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_SPACES_H
