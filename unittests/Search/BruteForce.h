//===- BruteForce.h - Oracles for the solvers -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Enumeration of everything, with an evaluator of its own that is written
// straight from the formulas and shares nothing with the solvers. For tests and
// small problems.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_SEARCH_BRUTEFORCE_H
#define GALVATRON_UNITTESTS_SEARCH_BRUTEFORCE_H

#include "galvatron/Search/PipelinePartition.h"
#include "galvatron/Search/PipelineSearch.h"
#include "galvatron/Search/SharedHomes.h"

namespace galvatron::bruteforce {

/// All contiguous partitions.
std::optional<PartitionSolution>
solvePartition(const PartitionProblem &problem);

/// All contiguous partitions and all choices. Nothing if none fits.
std::optional<PipelineSolution> solvePipeline(const PipelineProblem &problem);

/// The least, over all partitions and choices, of the largest excess of a stage
/// over its memory.
int64_t leastExcess(const PipelineProblem &problem);

/// The fastest of all partitions and choices that fits. Nothing if none does.
std::optional<HomesSolution> solveHomes(const HomesProblem &problem);

} // namespace galvatron::bruteforce

#endif // GALVATRON_UNITTESTS_SEARCH_BRUTEFORCE_H
