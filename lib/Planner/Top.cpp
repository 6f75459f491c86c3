//===- Top.cpp - The best plans that differ -------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Top.h"

#include "LongSamples.h"
#include "Spaces.h"

#include "galvatron/Strategy/DecisionTree.h"

#include <algorithm>
#include <map>
#include <memory>
#include <queue>
#include <set>

using namespace llvm;

namespace galvatron {

namespace {

/// A part of the space: one shape, and what strategies may be made of. Parts
/// are cut out of larger ones, as in Lawler's K best solutions (1972): behind
/// an optimum come those without one of the things that it uses.
struct Part {
  double atLeastMs = 0; ///< by the formula that is searched
  int64_t pipelineDegree = 1, microBatches = 1;
  std::vector<Paradigm> allowed; ///< empty: all that the space has
  /// Its optimum, once it is solved; until then the time is only a bound.
  std::shared_ptr<const PlannerResult> optimum = nullptr;

  bool operator<(const Part &other) const { // the least is on top of a queue
    return atLeastMs > other.atLeastMs;
  }
};

bool uses(const Plan &plan, Paradigm paradigm) {
  return any_of(plan.layers, [&](const PlanLayer &layer) {
    return layer.strategy.degree(paradigm) > 1;
  });
}

/// The kind by which plans differ (Top.h): its shape, and the strategy in which
/// it spends most time.
std::string kindOf(const Plan &plan) {
  std::map<std::string, double> times;
  for (const PlanLayer &layer : plan.layers)
    times[layer.strategy.str()] += layer.timeMs;
  auto most = std::max_element(
      times.begin(), times.end(),
      [](const auto &a, const auto &b) { return a.second < b.second; });
  return (plan.schedule->name() + " pp" + Twine(plan.pipelineDegree) + " x" +
          Twine(plan.chunksPerStage()) + " m" + Twine(plan.microBatches) + " " +
          most->first)
      .str();
}

/// Degrees and micro-batches where the search names no others that it has
/// looked at.
void addAllShapes(const PlannerOptions &options, const Cluster &cluster,
                  const Plan &best, std::priority_queue<Part> &parts) {
  for (int64_t degree : divisors(cluster.deviceCount())) {
    if (options.pipelineDegree && *options.pipelineDegree != degree)
      continue;
    for (int64_t count : divisors(best.batch)) {
      bool same = degree == best.pipelineDegree && count == best.microBatches;
      if (!same && (!options.microBatches || *options.microBatches == count))
        parts.push({0, degree, count, options.paradigms, nullptr});
    }
  }
}

} // namespace

Expected<std::vector<PlannerResult>> planTop(LayerModel &model,
                                             const Cluster &cluster,
                                             const PlannerOptions &options,
                                             const PlannerResult &best,
                                             size_t count) {
  const Plan &first = best.plan();
  PlannerOptions one = options;
  one.batch = first.batch;
  one.microBatchRule = MicroBatchRule::Search;
  one.relaxations = false;
  auto timeOf = [](const PlannerResult &result) {
    return result.formulaMs > 0 ? result.formulaMs : result.plan().iterationMs;
  };
  std::priority_queue<Part> parts;
  parts.push({timeOf(best), first.pipelineDegree, first.microBatches,
              options.paradigms, std::make_shared<PlannerResult>(best)});
  // A sweep's runners-up are of several batches; of the best one's there may be
  // more.
  std::vector<RunnerUp> runnersUp = best.runnersUp;
  if (!options.batch && !runnersUp.empty()) {
    Expected<PlannerResult> again = plan(model, cluster, one);
    if (!again)
      return again.takeError();
    runnersUp = again->runnersUp;
  }
  for (const RunnerUp &other : runnersUp)
    parts.push({other.iterationMs, other.pipelineDegree, other.microBatches,
                options.paradigms, nullptr});
  if (runnersUp.empty())
    addAllShapes(options, cluster, first, parts);

  bool fixed = planner::fixesParadigms(options.space) || options.strategy;
  std::vector<PlannerResult> found;
  std::set<std::string> seen;
  while (!parts.empty() && found.size() < count) {
    if (options.isLate())
      break;
    Part part = parts.top();
    parts.pop();
    if (!part.optimum) {
      one.pipelineDegree = part.pipelineDegree;
      one.microBatches = part.microBatches;
      one.paradigms = part.allowed;
      Expected<PlannerResult> result = plan(model, cluster, one);
      // A request that this shape refuses has no plan there.
      if (!result) {
        consumeError(result.takeError());
      } else if (result->feasible()) {
        part.atLeastMs = timeOf(*result);
        part.optimum = std::make_shared<PlannerResult>(std::move(*result));
        parts.push(part);
      }
      continue;
    }
    const Plan &plan = part.optimum->plan();
    std::vector<Paradigm> allowed =
        part.allowed.empty()
            ? planner::findLongSamples(model, cluster, options).wide
            : part.allowed;
    for (Paradigm paradigm : allowed) {
      if (fixed || allowed.size() < 2 || !uses(plan, paradigm))
        continue;
      Part without = part;
      without.optimum = nullptr;
      without.allowed = allowed;
      llvm::erase(without.allowed, paradigm);
      parts.push(std::move(without));
    }
    if (seen.insert(kindOf(plan)).second)
      found.push_back(*part.optimum);
  }
  stable_sort(found, [](const PlannerResult &a, const PlannerResult &b) {
    return a.plan().iterationMs < b.plan().iterationMs;
  });
  return found;
}

} // namespace galvatron
