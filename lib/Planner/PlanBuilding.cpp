//===- PlanBuilding.cpp - From a found pipeline to a priced plan ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BiObjective.h"
#include "Executed.h"
#include "PlanSearch.h"

using namespace llvm;

namespace galvatron::planner {

Plan PlanSearch::toPlan(const Incumbent &incumbent) const {
  const Shape &shape = incumbent.shape;
  Plan plan;
  plan.toolVersion = options.toolVersion;
  plan.space = space.name;
  plan.training = options.training;
  plan.objective = options.objective;
  plan.batch = shape.batch;
  plan.microBatches = shape.microBatches;
  plan.schedule = shape.schedule;
  plan.pipelineDegree = shape.degree();
  int64_t layer = 0;
  const std::vector<int64_t> &partition = incumbent.solved.partition;
  for (size_t s = 0; s < partition.size(); ++s) {
    PlanStage stage;
    stage.devices = shape.layout->devices[s];
    stage.firstLayer = layer;
    stage.layerCount = partition[s];
    plan.stages.push_back(stage);
    for (int64_t i = 0; i < partition[s]; ++i, ++layer)
      plan.layers.push_back(
          {model.layerName(layer), static_cast<int64_t>(s),
           shape.layout->set->strategies[incumbent.solved.strategies[layer]]});
  }
  plan.offload = plan.homesOfLayers();
  return plan;
}

/// A partition far from the best one can be harder to solve than the whole
/// search was: what it loses is not worth more than a fraction of a second.
constexpr uint64_t kHeuristicSteps = 4'000'000;

/// What Algorithm 2 makes of the shape that the exact search chose, as far as
/// it gets.
std::optional<Picoseconds> PlanSearch::compareHeuristic() {
  // Algorithm 2 moves layers with their strategies.
  if (space.partition != PartitionMode::Free || best->shape.degree() == 1 ||
      !best->shape.layout->hasEqualGroups())
    return std::nullopt;
  std::unique_ptr<Candidate> candidate = candidateOf(best->shape);
  if (!candidate)
    return std::nullopt;
  BiObjectiveResult found =
      biObjective(candidate->problem(), options.cancellation,
                  gapPercent > 0 ? 0 : best->solved.cost, kHeuristicSteps);
  if (found.stopped)
    log("the bi-objective heuristic is stopped after " + Twine(found.visited) +
        " partitions");
  if (!found.best) {
    if (!found.stopped)
      log("the bi-objective heuristic finds no plan that fits");
    return std::nullopt;
  }
  log("the bi-objective heuristic takes " + milliseconds(found.best->cost) +
      " after " + Twine(found.visited) + " partitions");
  // Only where the exact search was stopped early.
  if (found.best->cost < best->solved.cost) {
    best->solved = candidate->toSolved(*found.best);
    finder = Finder::Heuristic;
  }
  return found.best->cost;
}

/// Evaluates a plan that was found. Errors: two independent sums of it differ.
Expected<PlannerResult>
PlanSearch::price(const Incumbent &found,
                  std::optional<double> samplesPerSecond) {
  Plan plan = toPlan(found);
  Pricing pricing;
  pricing.lists = listsEach(plan);
  if (samplesPerSecond)
    pricing.worthMs = worthMs(found.shape.batch, *samplesPerSecond);
  Expected<PlannerResult> priced =
      evaluateAmong(model, cluster, plan, options.memory, pricing);
  if (!priced)
    return priced;
  bool agrees =
      asDrain || priced->formulaMs == toMilliseconds(found.solved.cost);
  if (!priced->feasible() || !agrees)
    return makeError(
        "internal error: the search and the evaluation disagree on " +
        found.shape.str() + ": " + milliseconds(found.solved.cost) + " and " +
        (priced->feasible() ? std::to_string(priced->formulaMs) + " ms"
                            : priced->infeasible().reason));
  return priced;
}

/// How much slower by the formula a plan may be and still be simulated: 1F1B
/// takes 0.82 to 1.00 of it (docs/simulator.md, "Bounds").
constexpr int64_t kRivalPercent = 110;
/// So many plans are simulated besides the best one.
constexpr size_t kMostRivals = 2;
/// Steps of the search for one rival: some hundredths of a second.
constexpr uint64_t kRivalSteps = 100'000;

/// The formula and the simulator may disagree on which of two plans is faster,
/// most of all on pipelines of other degrees: the best plan of some of them.
void PlanSearch::addAlternatives() {
  auto within = [&](Picoseconds cost, int64_t batch) {
    return static_cast<__int128>(cost) * 100 * best->shape.batch <=
           static_cast<__int128>(best->solved.cost) * kRivalPercent * batch;
  };
  erase_if(alternatives, [&](const Incumbent &other) {
    return !within(other.solved.cost, other.shape.batch);
  });
  // The latest are the fastest; one of each degree.
  std::vector<Incumbent> rivals;
  std::set<int64_t> degrees = {best->shape.degree()};
  for (Incumbent &other : llvm::reverse(alternatives))
    if (degrees.insert(other.shape.degree()).second)
      rivals.push_back(std::move(other));
  auto solve = [&](const Shape &shape) {
    std::unique_ptr<Candidate> candidate = candidateOf(shape);
    if (!candidate)
      return;
    PipelineSearch search(candidate->problem(), stations);
    search.setCancellation(options.cancellation);
    search.setMostSteps(kRivalSteps);
    auto limit = static_cast<Picoseconds>(
        static_cast<__int128>(best->solved.cost) * kRivalPercent / 100);
    if (std::optional<PipelineSolution> found = search.solve(limit))
      rivals.push_back({shape, candidate->toSolved(*found)});
    steps += search.statistics().steps;
  };
  if (shapeBesides && shapeBesides->batch == best->shape.batch &&
      degrees.insert(shapeBesides->degree()).second && !late())
    solve(*shapeBesides);
  std::vector<std::pair<Picoseconds, Shape>> shapes;
  if (rivals.size() < kMostRivals && !late())
    for (const Shape &shape : shapesOf(best->shape.batch))
      if (Picoseconds bound = freeBoundOf(shape);
          !degrees.count(shape.degree()) && within(bound, shape.batch))
        shapes.push_back({bound, shape});
  llvm::sort(shapes, [](const auto &a, const auto &b) {
    return std::tuple(a.first, a.second.degree(), a.second.microBatches) <
           std::tuple(b.first, b.second.degree(), b.second.microBatches);
  });
  size_t hopeless = 0;
  for (const auto &[bound, shape] : shapes) {
    if (rivals.size() + hopeless >= kMostRivals || late())
      break;
    // The first of each degree that memory leaves as fast.
    if (degrees.count(shape.degree()) ||
        (shape.degree() > 1 && !within(sharedBoundOf(shape), shape.batch)))
      continue;
    degrees.insert(shape.degree());
    if (isHopeless(shape)) {
      ++hopeless;
      continue;
    }
    solve(shape);
  }
  if (rivals.size() > kMostRivals)
    rivals.resize(kMostRivals);
  alternatives = std::move(rivals);
}

} // namespace galvatron::planner
