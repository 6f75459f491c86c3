//===- RandomPipelines.h - Random problems of pipelines ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_SEARCH_RANDOMPIPELINES_H
#define GALVATRON_UNITTESTS_SEARCH_RANDOMPIPELINES_H

#include "../RandomInstances.h"
#include "galvatron/Search/PipelineSearch.h"

#include <algorithm>
#include <random>

namespace galvatron::test {

/// Sizes of random pipelines.
struct Sizes {
  int64_t fewestStages = 1, mostStages = 3, mostLayers = 5;
};

/// A small pipeline. Kinds, places, ties, lengths and numbers of micro-batches
/// in flight vary; few distinct values make ties and equal layers likely; the
/// budget lies between the least and one at which nothing binds.
inline PipelineProblem randomProblem(std::mt19937_64 &random,
                                     Sizes sizes = {}) {
  PipelineProblem problem;
  auto stages =
      static_cast<size_t>(pick(random, sizes.fewestStages, sizes.mostStages));
  auto count = static_cast<size_t>(pick(random, stages, sizes.mostLayers));
  int64_t kinds = pick(random, 1, 3);
  int64_t places = pick(random, 0, 2) ? 1 : pick(random, 1, 2);
  problem.classes = pick(random, 1, 3);
  problem.tieKeys = pick(random, 1, 3);
  problem.microBatches = pick(random, 0, 3) ? pick(random, 2, 6) : 1;
  int64_t spread = pick(random, 0, 2) == 0 ? 4 : 1000;
  int64_t transferSpread = pick(random, 0, 2) ? spread / 2 + 1 : 2 * spread;
  bool largeTransients = pick(random, 0, 3) == 0;
  bool syncs = pick(random, 0, 3) != 0;
  int64_t optionCount = count < 5 ? pick(random, 1, 4) : pick(random, 1, 3);
  for (int64_t set = 0; set < kinds * places; ++set) {
    problem.optionSets.emplace_back();
    for (int64_t o = 0; o < optionCount; ++o) {
      PipelineOption option;
      option.layoutClass = pick(random, 0, problem.classes - 1);
      option.tieKey = pick(random, 0, problem.tieKeys - 1);
      option.nosync = pick(random, 1, spread);
      option.time = option.nosync +
                    (syncs && pick(random, 0, 1) ? pick(random, 0, spread) : 0);
      option.kept = pick(random, 0, spread);
      option.transient = pick(random, 0, largeTransients ? 6 * spread : spread);
      option.state = pick(random, 0, spread);
      option.boundary = pick(random, 0, 2) ? pick(random, 0, spread / 2) : 0;
      problem.optionSets.back().push_back(option);
    }
  }
  std::vector<int64_t> kindOf;
  for (size_t l = 0; l < count; ++l)
    kindOf.push_back(pick(random, 0, kinds - 1));
  for (int64_t m = 0; m < 4; ++m) {
    problem.matrices.emplace_back();
    for (size_t cell = 0; cell < problem.classes * problem.classes; ++cell) {
      bool diagonal = cell / problem.classes == cell % problem.classes;
      problem.matrices.back().push_back(
          diagonal && pick(random, 0, 3) ? 0 : pick(random, 0, transferSpread));
    }
  }
  for (int64_t p = 0; p < places; ++p) {
    problem.layers.emplace_back();
    problem.transforms.emplace_back();
    for (size_t l = 0; l < count; ++l) {
      problem.layers.back().push_back(p * kinds + kindOf[l]);
      if (l + 1 < count)
        problem.transforms.back().push_back(pick(random, 0, 3));
    }
    problem.cuts.emplace_back();
    for (size_t l = 0; l + 1 < count; ++l)
      problem.cuts.back().push_back({static_cast<size_t>(pick(random, 0, 3)),
                                     static_cast<size_t>(pick(random, 0, 3))});
  }
  if (count > 1 && pick(random, 0, 1)) {
    for (int64_t b = 0; b < 3; ++b) {
      PipelineBoundary &boundary = problem.boundaries.emplace_back();
      for (size_t c = 0; c < problem.classes; ++c) {
        boundary.live.push_back(pick(random, 0, spread));
        boundary.passing.push_back(b > 0 ? pick(random, 0, boundary.live.back())
                                         : 0);
      }
    }
    for (size_t l = 0; l + 1 < count; ++l)
      problem.boundaryBehind.push_back(pick(random, 0, 2));
    // Neighbouring classes of one layout differ in their moves alone.
    if (problem.boundaries[0].live[0] % 5 == 0) {
      for (size_t c = 0; c < problem.classes; ++c)
        problem.layouts.push_back(c / 2);
      for (PipelineBoundary &boundary : problem.boundaries)
        for (size_t c = 1; c < problem.classes; c += 2) {
          boundary.live[c] = boundary.live[c - 1];
          boundary.passing[c] = boundary.passing[c - 1];
        }
    }
  }
  bool gpipe = pick(random, 0, 3) == 0;
  for (size_t s = 0; s < stages; ++s) {
    PipelineStage stage;
    stage.place = pick(random, 0, places - 1);
    stage.inFlight = gpipe
                         ? problem.microBatches
                         : std::min<int64_t>(stages - s, problem.microBatches);
    stage.sendsFromTransient = (problem.microBatches + s) % 2 == 0;
    problem.stages.push_back(stage);
    if (s + 1 < stages)
      problem.cutPlace.push_back(pick(random, 0, places - 1));
  }
  int64_t tieCount = count > 1 && pick(random, 0, 1) ? pick(random, 1, 2) : 0;
  for (int64_t t = 0; t < 3; ++t) {
    problem.tieTables.emplace_back();
    for (size_t cell = 0; cell < problem.tieKeys * problem.tieKeys; ++cell)
      problem.tieTables.back().push_back(pick(random, 0, 2 * spread));
  }
  for (int64_t t = 0; t < tieCount; ++t) {
    PipelineTie tie;
    bool ends = pick(random, 0, 1);
    tie.owner = ends ? 0 : pick(random, 0, count - 2);
    tie.borrower = ends ? count - 1 : pick(random, tie.owner + 1, count - 1);
    for (size_t pair = 0; pair < stages * stages; ++pair)
      tie.table.push_back(pick(random, 0, 2));
    problem.ties.push_back(tie);
  }
  if (pick(random, 0, 4) == 0) {
    int64_t left = static_cast<int64_t>(count);
    for (size_t s = 0; s < stages; ++s) {
      auto rest = static_cast<int64_t>(stages - 1 - s);
      problem.partition.push_back(rest == 0 ? left
                                            : pick(random, 1, left - rest));
      left -= problem.partition.back();
    }
  }
  // Budgets differ by stage now and then.
  int64_t least = leastNeed(problem).excess;
  int64_t slack = pick(random, 0, 3) * pick(random, 0, spread);
  bool uneven = pick(random, 0, 3) == 0;
  for (PipelineStage &stage : problem.stages)
    stage.memory = std::max<int64_t>(
        0, least - (pick(random, 0, 19) == 0 ? 1 : 0) + slack +
               (uneven ? pick(random, 0, spread) : 0));
  return problem;
}

/// Layers behind one that share parameters with it, most of them held alike.
inline void addAlikeTies(PipelineProblem &problem, std::mt19937_64 &random) {
  size_t count = problem.layerCount(), stages = problem.stages.size();
  if (count < 2)
    return;
  auto owner = static_cast<size_t>(pick(random, 0, count - 2));
  // Now and then a second group that has to be held as the first one.
  problem.ownersAlike = pick(random, 0, 2) == 0;
  if (problem.ownersAlike && owner > 0) {
    PipelineTie tie;
    tie.owner = 0;
    tie.borrower = count - 1;
    tie.alike = true;
    tie.table.assign(stages * stages, 1);
    problem.ties.push_back(std::move(tie));
  }
  for (size_t borrower = owner + 1; borrower < count; ++borrower) {
    if (pick(random, 0, 3) == 0)
      continue;
    PipelineTie tie;
    tie.owner = owner;
    tie.borrower = borrower;
    tie.alike = pick(random, 0, 4) > 0;
    // Often the same table for all stages but the owner's.
    bool isFlat = pick(random, 0, 1);
    auto elsewhere = static_cast<size_t>(pick(random, 0, 2));
    for (size_t pair = 0; pair < stages * stages; ++pair)
      tie.table.push_back(isFlat && pair / stages != pair % stages
                              ? elsewhere
                              : pick(random, 0, 2));
    problem.ties.push_back(std::move(tie));
  }
}

/// Gives options something on the host, and stages too little of it now and
/// then: what takes less here often takes more there.
inline void addHosts(PipelineProblem &problem, std::mt19937_64 &random) {
  int64_t most = 0;
  for (std::vector<PipelineOption> &set : problem.optionSets)
    for (PipelineOption &option : set) {
      option.host = pick(random, 0, 1) ? pick(random, 0, 200) : 0;
      option.hostKept = pick(random, 0, 2) ? 0 : pick(random, 0, 50);
      most = std::max(most, option.host + 4 * option.hostKept);
    }
  auto layers = static_cast<int64_t>(problem.layerCount());
  for (PipelineStage &stage : problem.stages)
    stage.hostMemory = pick(random, 0, most * layers / 2);
}

} // namespace galvatron::test

#endif // GALVATRON_UNITTESTS_SEARCH_RANDOMPIPELINES_H
