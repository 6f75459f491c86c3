//===- StageChain.h - Joining the stages' fronts ----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each stage offers a front of (C, C_nosync) by the layout classes of its first
// and last layer; neighbouring stages pay transfers that depend on the classes
// on both sides of the cut. The pipeline's cost is (m-1) * max C_nosync + sum C
// (arXiv 2307.02031, Eq. 9), every transfer counted at its sender.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SEARCH_STAGECHAIN_H
#define GALVATRON_SEARCH_STAGECHAIN_H

#include "galvatron/Support/Units.h"

#include <optional>
#include <vector>

namespace galvatron {

struct StageEntry {
  size_t firstClass = 0, lastClass = 0;
  Picoseconds time = 0, timeNosync = 0;
};

struct StageChainProblem {
  int64_t microBatches = 1;
  std::vector<std::vector<StageEntry>> stages;
  /// Per cut: classes x classes matrices, the former stage's last class major.
  /// The activation is paid by the former stage, the gradient by the latter.
  size_t classes = 1;
  std::vector<std::vector<Picoseconds>> activation, gradient;
};

struct StageChainSolution {
  Picoseconds cost = 0;
  std::vector<size_t> entry; ///< by stage
};

/// The cheapest combination with cost at most `atMost`.
std::optional<StageChainSolution>
solveStageChain(const StageChainProblem &problem, Picoseconds atMost);

} // namespace galvatron

#endif // GALVATRON_SEARCH_STAGECHAIN_H
