//===- ChunkedProblem.h - Shapes with chunks as plain data ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A shape (pipeline degree, micro-batches, chunks) of a schedule whose stages
// have several chunks, as a problem of Search/SharedHomes.h. Rows are those of
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

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_CHUNKEDPROBLEM_H
