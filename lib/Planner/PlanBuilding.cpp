//===- PlanBuilding.cpp - From a found pipeline to a priced plan ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BiObjective.h"
#include "Executed.h"
#include "PlanSearch.h"

#include "galvatron/Planner/Budget.h"
#include "galvatron/Planner/Gap.h"

#include <cmath>

using namespace llvm;

namespace galvatron::planner {

Plan PlanSearch::emptyPlan(const Shape &shape) const {
  Plan plan;
  plan.toolVersion = options.toolVersion;
  plan.space = space.name;
  plan.training = options.training;
  plan.objective = options.objective;
  plan.batch = shape.batch;
  plan.microBatches = shape.microBatches;
  plan.schedule = shape.schedule;
  plan.pipelineDegree = shape.degree();
  for (const std::vector<int64_t> &devices : shape.layout->devices)
    plan.stages.emplace_back().devices = devices;
  return plan;
}

Plan PlanSearch::toPlan(const Incumbent &incumbent) const {
  const Shape &shape = incumbent.shape;
  Plan plan = emptyPlan(shape);
  int64_t layer = 0;
  const std::vector<int64_t> &partition = incumbent.solved.partition;
  for (size_t s = 0; s < partition.size(); ++s) {
    plan.stages[s].firstLayer = layer;
    plan.stages[s].layerCount = partition[s];
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

/// The cost that Algorithm 2 reaches for the shape that the exact search chose,
/// as far as it gets.
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
  bool agrees = priced->formulaMs == toMilliseconds(found.solved.cost);
  if (!priced->feasible() || !agrees)
    return makeError(
        "internal error: the search and the evaluation disagree on " +
        found.shape.str() + ": " + milliseconds(found.solved.cost) + " and " +
        (priced->feasible() ? std::to_string(priced->formulaMs) + " ms"
                            : priced->infeasible().reason));
  return priced;
}

bool PlanSearch::offer(Incumbent found, PlannerResult &result,
                       const Twine &how) {
  Plan plan = toPlan(found);
  Pricing pricing;
  pricing.lists = listsEach(plan);
  pricing.worthMs =
      worthMs(plan.batch, std::max(result.plan().samplesPerSecond,
                                   options.samplesPerSecondKnown.value_or(0)));
  Expected<PlannerResult> priced =
      evaluateAmong(model, cluster, plan, options.memory, pricing);
  if (!priced) {
    consumeError(priced.takeError());
    return false;
  }
  if (!priced->feasible() ||
      priced->plan().samplesPerSecond <= result.plan().samplesPerSecond ||
      fullHost(cluster, priced->plan(), options.hostMemory))
    return false;
  log(found.shape.str() + ": executed in " +
      Twine(formatv("{0:f3}", priced->plan().iterationMs).str()) + " ms, " +
      how);
  // The bound proven for the batch stays: the least that any plan takes.
  if (priced->plan().batch == result.plan().batch)
    setLeastMs(std::get<Plan>(priced->outcome), leastMsOf(result.plan()));
  found.solved.cost =
      static_cast<Picoseconds>(std::llround(priced->formulaMs * 1e9));
  result = std::move(*priced);
  best = std::move(found);
  return true;
}

/// The ratio up to which a plan that is slower by the formula is simulated:
/// 1F1B takes 0.82 to 1.00 of it (docs/simulator.md, "Bounds").
constexpr int64_t kAlternativePercent = 110;
/// The number of plans that are simulated besides the best one.
constexpr size_t kMostAlternatives = 2;
/// Steps of the search for one of them: some hundredths of a second.
constexpr uint64_t kAlternativeSteps = 100'000;

std::optional<PlanSearch::Incumbent> PlanSearch::searchShortly(
    const Shape &shape, Picoseconds most,
    llvm::function_ref<bool(const Strategy &)> isLeftOut) {
  Points points = pointsWithin(most);
  while (std::unique_ptr<Candidate> candidate =
             candidateOf(shape, /*fewest=*/0, Moves::All, points)) {
    if (!candidate->leaveOut(isLeftOut))
      return std::nullopt;
    PipelineSearch search(candidate->problem(), stageClasses);
    std::optional<PipelineSolution> found =
        takeTurn(search, kAlternativeSteps, steps,
                 [&](PipelineSearch &) { return search.solve(most); });
    if (!found)
      return std::nullopt;
    if (fitsExactly(*candidate, *found, points))
      return Incumbent{shape, candidate->toSolved(*found)};
    points.bytes = PointBytes::Exact;
  }
  return std::nullopt;
}

/// The formula and the simulator may also disagree on which way to cut
/// positions is faster: what a step does at its end, and what runs beside
/// computation, differs most between these. Simulated are the best plans
/// without the paradigms that cut positions in the best plan by the formula,
/// and those that cut them in one way alone: by rows of products, or with keys
/// that meet in one way.
void PlanSearch::offerOtherCuts(PlannerResult &result) {
  const Incumbent formula = *bestByFormula;
  auto most = static_cast<Picoseconds>(
      static_cast<__int128>(formula.solved.cost) * kAlternativePercent / 100);
  using Way = std::pair<LayerAxis, PositionsMeet>;
  std::set<Paradigm> used;
  for (size_t strategy : formula.solved.strategies)
    for (const Level &level :
         formula.shape.layout->set->strategies[strategy].levels())
      if (level.paradigm->searched == SearchedIn::Long)
        used.insert(level.paradigm);
  if (used.empty())
    return;
  std::set<Way> ways;
  for (const Strategy &strategy : formula.shape.layout->set->strategies)
    for (const Level &level : strategy.levels())
      if (level.paradigm->searched == SearchedIn::Long)
        ways.insert({level.paradigm->axis, level.paradigm->meet});
  auto offerWithout = [&](auto isLeftOut) {
    if (late())
      return;
    std::optional<Incumbent> found =
        searchShortly(formula.shape, most, [&](const Strategy &strategy) {
          return any_of(strategy.levels(), [&](const Level &level) {
            return level.paradigm->searched == SearchedIn::Long &&
                   isLeftOut(level.paradigm);
          });
        });
    if (found)
      offer(std::move(*found), result, "positions are cut in another way");
  };
  offerWithout([&](Paradigm paradigm) { return used.count(paradigm) > 0; });
  // One way alone is what was searched.
  if (ways.size() > 1)
    for (const Way &way : ways)
      offerWithout([&](Paradigm paradigm) {
        return Way(paradigm->axis, paradigm->meet) != way;
      });
}

/// The formula and the simulator may disagree on which of two plans is faster,
/// most of all on pipelines of other degrees. Simulated is what a short search
/// finds for the shapes of these with the least bounds, one plan of a degree.
/// One plan there is; others are for the time that is left.
void PlanSearch::offerOtherDegrees(PlannerResult &result) {
  const Incumbent formula = *best; // `best` changes on the way
  auto within = [&](Picoseconds cost, int64_t batch) {
    return static_cast<__int128>(cost) * 100 * formula.shape.batch <=
           static_cast<__int128>(formula.solved.cost) * kAlternativePercent *
               batch;
  };
  std::set<int64_t> degrees = {formula.shape.degree()};
  size_t count = 0;
  auto isEnough = [&] { return count == kMostAlternatives || late(); };
  auto solve = [&](const Shape &shape) {
    auto most = static_cast<Picoseconds>(
        static_cast<__int128>(formula.solved.cost) * kAlternativePercent / 100);
    std::optional<Incumbent> found =
        searchShortly(shape, most, [](const Strategy &) { return false; });
    if (!found)
      return;
    ++count;
    offer(std::move(*found), result, "found by a short search");
  };
  if (shapeBesides && shapeBesides->batch == formula.shape.batch &&
      degrees.insert(shapeBesides->degree()).second && !late())
    solve(*shapeBesides);
  std::vector<std::pair<Picoseconds, Shape>> shapes;
  if (!isEnough())
    for (const Shape &shape : shapesOf(formula.shape.batch))
      if (Picoseconds bound = freeBoundOf(shape); within(bound, shape.batch))
        shapes.push_back({bound, shape});
  llvm::sort(shapes, [](const auto &a, const auto &b) {
    return std::tuple(a.first, a.second.degree(), a.second.microBatches) <
           std::tuple(b.first, b.second.degree(), b.second.microBatches);
  });
  for (const auto &[bound, shape] : shapes) {
    if (isEnough())
      break;
    // The first of each degree that memory leaves as fast.
    if (degrees.count(shape.degree()) ||
        (shape.degree() > 1 && !within(sharedBoundOf(shape), shape.batch)))
      continue;
    degrees.insert(shape.degree());
    if (isPruned(shape)) {
      ++count;
      continue;
    }
    solve(shape);
  }
}

} // namespace galvatron::planner
