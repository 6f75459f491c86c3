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

/// The origin of the partition.
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
  /// The strategy that each layer must have, by layer; empty if no layer is
  /// pinned.
  std::vector<std::optional<Strategy>> pins;
  /// The parts of a layer that may have their home on the host; empty: nothing.
  std::vector<LayerHome> homes;
  /// The number of points searched beside all and nothing kept
  /// (Strategy::point()). Layers that have fewer refuse the others.
  int64_t points = 0;
  /// Stages may have unequal groups.
  bool anyGroups = false;

  std::vector<Strategy> strategies(int64_t groupSize) const;
  /// Returns true if the search chooses the layer's strategy.
  bool mayChange(size_t layer) const {
    return !fixed && (pins.empty() || !pins[layer]);
  }
};

/// Chunks of a stage that the options' schedule asks for; 1 for schedules of
/// whole stages.
int64_t chunksOf(const PlannerOptions &options);

/// Returns true if a space has all paradigms that its objective is searched
/// with. The spaces of the paper's tables have the paper's.
bool hasAllParadigms(llvm::StringRef space);
/// True if the space's name says what strategies are made of.
bool fixesParadigms(llvm::StringRef space);
/// The spaces all of whose plans a space has, too. Where the search looks at no
/// partitions of the space's own those are left out that would only be searched
/// again.
std::vector<llvm::StringRef> containedSpaces(llvm::StringRef space,
                                             bool ownPartitions);
/// The space that the options name, with the forced parts applied.
llvm::Expected<Space> getSpace(const PlannerOptions &options, int64_t devices);

/// Adds the options' pins, which fix the pipeline degree. Refuses those that
/// contradict each other, the model, the cluster or another forced part.
llvm::Error applyPins(const LayerModel &model, int64_t devices,
                      const PlannerOptions &options, Space &space);

/// Decides whether stages may have unequal groups (Space::anyGroups) and frees
/// the pipeline degrees. Refuses unequal groups that are asked for where they
/// are not searched.
llvm::Error applyGroups(const Cluster &cluster, const PlannerOptions &options,
                        Space &space);

/// Refuses options that contradict each other, the model, the cluster or the
/// space.
llvm::Error checkOptions(LayerModel &model, const Cluster &cluster,
                         const PlannerOptions &options, const Space &space);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_SPACES_H
