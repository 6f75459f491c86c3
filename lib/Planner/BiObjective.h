//===- BiObjective.h - Algorithm 2 of the paper -----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The bi-objective balance of arXiv 2307.02031, Sec. V: partitions between the
// one that balances memory and the one that balances time. A heuristic; the
// exact search over partitions is the measure of what it loses.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_BIOBJECTIVE_H
#define GALVATRON_LIB_PLANNER_BIOBJECTIVE_H

#include "Candidate.h"

namespace galvatron::planner {

/// p_t: the least largest stage time. Every layer has the strategy that is
/// fastest without gradient synchronisation, as below. Among equals the longest
/// first stage, then the longest second, and so on.
std::vector<int64_t> timeBalanced(const PipelineProblem &problem);
/// p_m: the least largest stage memory.
std::vector<int64_t> memoryBalanced(const PipelineProblem &problem);

struct BiObjectiveResult {
  std::optional<PipelineSolution> best;
  size_t visited = 0;   ///< partitions for which strategies were searched
  bool stopped = false; ///< before the heuristic's own end
};

/// Algorithm 2 for one shape: from p_m on, a boundary layer of the slowest
/// stage moves to a neighbour if no stage gets slower than the slowest was,
/// everything fits, and no stage holds more than the largest does under p_t.
/// Strategies are searched exactly for every accepted partition. Best of all
/// seen, p_t and the even partition included. No partition costs less than
/// `atLeast`, as far as the caller knows; it stops after about `mostSteps` of
/// the solver's, or when that is requested.
BiObjectiveResult biObjective(const PipelineProblem &problem,
                              const Cancellation *cancellation = nullptr,
                              Picoseconds atLeast = 0,
                              uint64_t mostSteps = ~uint64_t(0));

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_BIOBJECTIVE_H
