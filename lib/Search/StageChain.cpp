//===- StageChain.cpp - Joining the stages' fronts ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/StageChain.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <limits>
#include <tuple>

using namespace llvm;

namespace galvatron {
namespace {

/// Stages 0..i joined. The last stage may still grow by what it sends on.
struct ChainLabel {
  Picoseconds sum;     ///< of C
  Picoseconds largest; ///< C_nosync of the stages before the last
  Picoseconds current; ///< C_nosync of the last stage so far
  size_t lastClass;
  size_t entry;
  size_t parent;
};

} // namespace

std::optional<StageChainSolution>
solveStageChain(const StageChainProblem &problem, Picoseconds atMost) {
  size_t count = problem.stages.size();
  int64_t weight = problem.microBatches - 1;
  // What the stages after i add at least.
  std::vector<Picoseconds> restSum(count + 1, 0), restLargest(count + 1, 0);
  for (size_t i = count; i-- > 0;) {
    if (problem.stages[i].empty())
      return std::nullopt;
    Picoseconds time = std::numeric_limits<Picoseconds>::max(), nosync = time;
    for (const StageEntry &entry : problem.stages[i]) {
      time = std::min(time, entry.time);
      nosync = std::min(nosync, entry.timeNosync);
    }
    restSum[i] = restSum[i + 1] + time;
    restLargest[i] = std::max(restLargest[i + 1], nosync);
  }

  std::vector<std::vector<ChainLabel>> labels(count);
  for (size_t i = 0; i < count; ++i) {
    std::vector<ChainLabel> fresh;
    auto admit = [&](const ChainLabel &label) {
      Picoseconds largest =
          std::max({label.largest, label.current, restLargest[i + 1]});
      if (label.sum + restSum[i + 1] + weight * largest <= atMost)
        fresh.push_back(label);
    };
    for (size_t e = 0; e < problem.stages[i].size(); ++e) {
      const StageEntry &entry = problem.stages[i][e];
      if (i == 0) {
        admit({entry.time, 0, entry.timeNosync, entry.lastClass, e, 0});
        continue;
      }
      for (size_t p = 0; p < labels[i - 1].size(); ++p) {
        const ChainLabel &from = labels[i - 1][p];
        size_t cell = from.lastClass * problem.classes + entry.firstClass;
        Picoseconds activation = problem.activation[i - 1][cell];
        Picoseconds gradient = problem.gradient[i - 1][cell];
        admit({from.sum + entry.time + activation + gradient,
               std::max(from.largest, from.current + activation),
               entry.timeNosync + gradient, entry.lastClass, e, p});
      }
    }
    llvm::sort(fresh, [](const ChainLabel &a, const ChainLabel &b) {
      return std::tie(a.sum, a.largest, a.current, a.entry, a.parent) <
             std::tie(b.sum, b.largest, b.current, b.entry, b.parent);
    });
    std::vector<std::vector<size_t>> byClass(problem.classes);
    for (const ChainLabel &label : fresh) {
      std::vector<size_t> &rivals = byClass[label.lastClass];
      if (any_of(rivals, [&](size_t index) {
            const ChainLabel &rival = labels[i][index];
            return rival.largest <= label.largest &&
                   rival.current <= label.current;
          }))
        continue;
      rivals.push_back(labels[i].size());
      labels[i].push_back(label);
    }
  }

  std::optional<StageChainSolution> best;
  size_t at = 0;
  for (size_t l = 0; l < labels.back().size(); ++l) {
    const ChainLabel &label = labels.back()[l];
    Picoseconds cost =
        label.sum + weight * std::max(label.largest, label.current);
    if (cost > atMost || (best && cost >= best->cost))
      continue;
    best = StageChainSolution{cost, {}};
    at = l;
  }
  if (!best)
    return std::nullopt;
  best->entry.resize(count);
  for (size_t i = count; i-- > 0;) {
    best->entry[i] = labels[i][at].entry;
    at = labels[i][at].parent;
  }
  return best;
}

} // namespace galvatron
