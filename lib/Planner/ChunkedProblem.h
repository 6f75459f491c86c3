//===- ChunkedProblem.h - Shapes as problems of shared homes ----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A shape (groups of devices, micro-batches, chunks) of a schedule whose stages
// have several chunks, or split backward passes, as a problem of
// Search/SharedHomes.h. Rows are those of
// BusyBound: what a stage does, from when its first micro-batch has come to
// when its last gradients have gone back. Bytes are what surely adds up: states
// and the slots of every chunk. Of any plan of the shape that fits no row is
// longer than its simulated step, and no home is fuller than the plan's stage.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_CHUNKEDPROBLEM_H
#define GALVATRON_LIB_PLANNER_CHUNKEDPROBLEM_H

#include "BusyBound.h"
#include "Spaces.h"

#include "galvatron/Search/SharedHomes.h"

namespace galvatron::planner {

struct ChunkedProblem {
  HomesProblem homes;
  std::vector<std::vector<Strategy>> strategies; ///< by option set

  /// Returns nothing if some layer can have no strategy, or a stage has no
  /// memory. `shape` has the schedule, batch, micro-batches and the stages'
  /// devices; its layers' strategies are not read.
  static std::optional<ChunkedProblem>
  make(LayerModel &model, const Cluster &cluster, const PlannerOptions &options,
       const Space &space, const Plan &shape, BusyBound &times);

  const Strategy &strategyOf(const HomesSolution &solution, size_t chunk,
                             size_t layer) const {
    size_t place = homes.chunks[chunk].place;
    return strategies[homes.layers[place][layer]][solution.choice[layer]];
  }
};

/// A shape as plain data, and what its plans take at least.
struct BoundedShape {
  /// `limit`: seconds above which no plan needs a bound.
  BoundedShape(Plan plan, ChunkedProblem made, double limit)
      : plan(std::move(plan)),
        problem(std::make_unique<ChunkedProblem>(std::move(made))),
        search(problem->homes, limit, kRounds) {}

  /// The work of a round: chunks times layers and options.
  size_t workOfNode() const {
    const HomesProblem &homes = problem->homes;
    size_t choices = homes.layerCount();
    for (const std::vector<HomesOption> &set : homes.optionSets)
      choices += set.size();
    return homes.chunks.size() * choices;
  }

  Plan plan;
  std::unique_ptr<ChunkedProblem> problem; ///< the search refers to it
  HomesSearch search;

  /// Rounds of weights and prices.
  static constexpr unsigned kRounds = 150;
  /// Branching ends once more nodes have raised the bound by less than this
  /// part.
  static constexpr int kIdleNodes = 16;
  static constexpr double kLeastRise = 1e-4;
};

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_CHUNKEDPROBLEM_H
