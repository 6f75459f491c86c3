//===- PlanAhead.cpp - Plans that leave memory for gathering ahead --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The formula that is searched charges every gather of sharded parameters to
// its layer, so that it never pays to leave memory for gathering a layer ahead.
// Where the best plan may be far from the fastest, shapes of its batch are
// solved once more with gathers beside computation and the memory of two
// neighbours' parameters. What comes out is simulated: neither time nor memory
// of this second formula is promised to anybody.
//
//===----------------------------------------------------------------------===//

#include "Executed.h"
#include "PlanSearch.h"

#include "galvatron/Cost/StageContents.h"

using namespace llvm;

namespace galvatron::planner {

/// A gap that is worth a second search, percent.
constexpr double kGapWorthAhead = 0.5;
/// Part of the steps of a search that this one may take after it, 2 million.
constexpr uint64_t kAheadPart = 25;
/// The most plans that are simulated, each in up to a tenth of a second.
constexpr size_t kMostAheadSimulated = 4;
/// Neighbours of different sizes need more memory than the formula says: what
/// was missing is held back, so many times: more often with points, of which
/// another mix needs another room.
constexpr int kMostTries = 3, kMostTriesOfPoints = 8;

/// The second search of one batch.
class PlanSearch::Ahead {
public:
  Ahead(PlanSearch &plans, PlannerResult &result)
      : plans(plans), result(result),
        mostSteps(plans.options.mostSteps == 0
                      ? kNoStepLimit
                      : plans.options.mostSteps / kAheadPart) {
    plans.tables.setGathersAhead(true);
  }
  ~Ahead() { plans.tables.setGathersAhead(false); }

  void run();

private:
  bool ended() const {
    return steps >= mostSteps || simulated >= kMostAheadSimulated ||
           plans.late();
  }
  Picoseconds limit() const {
    return static_cast<Picoseconds>(result.plan().iterationMs * 1e9);
  }
  std::unique_ptr<Candidate> candidateOf(const Shape &shape, Moves moves);
  Points points() const { return plans.pointsWithin(limit()); }
  Picoseconds boundOf(const Shape &shape);
  void solve(const Shape &shape);
  std::optional<PipelineSolution> solve(const Candidate &candidate);
  int64_t missingFor(const Plan &plan);

  PlanSearch &plans;
  PlannerResult &result;
  uint64_t steps = 0, mostSteps;
  size_t simulated = 0;
};

std::unique_ptr<Candidate> PlanSearch::Ahead::candidateOf(const Shape &shape,
                                                          Moves moves) {
  std::string refusal;
  std::unique_ptr<Candidate> candidate =
      Candidate::make(plans.tables, shape, refusal,
                      /*fewest=*/0, moves, points());
  if (candidate)
    candidate->setPartition(plans.partitionOf(candidate->problem()));
  return candidate;
}

/// The least cost of the shape, as far as sums over layers within its memory
/// tell.
Picoseconds PlanSearch::Ahead::boundOf(const Shape &shape) {
  Picoseconds least =
      stepBound(shape, shape.form(plans.options.objective),
                freeBound(plans.tables, shape), plans.model.layerCount());
  if (least > limit())
    return kNoBound;
  std::unique_ptr<Candidate> candidate = candidateOf(shape, Moves::None);
  if (!candidate || leastWithoutMemory(candidate->problem(), limit()) > limit())
    return kNoBound;
  return PipelineSearch::bounds(candidate->problem(), plans.stageClasses)
      .cost(shape.degree() > 1 ? shape.microBatches - 1 : 0);
}

std::optional<PipelineSolution>
PlanSearch::Ahead::solve(const Candidate &candidate) {
  PipelineSearch search(candidate.problem(), plans.stageClasses);
  return plans.takeTurn(
      search, mostSteps - std::min(steps, mostSteps), steps,
      [&](PipelineSearch &) { return search.solve(limit()); });
}

/// Returns the bytes of the fullest stage that a solution leaves by the
/// formula.
static int64_t bytesLeft(const Candidate &candidate,
                         const PipelineSolution &solution) {
  PipelineValue value = evaluatePipeline(candidate.problem(),
                                         solution.partition, solution.choice);
  return -*llvm::max_element(value.excess);
}

/// The most bytes by which the memory of a stage is too small for gathering
/// ahead.
int64_t PlanSearch::Ahead::missingFor(const Plan &plan) {
  int64_t missing = 0;
  for (auto [s, stage] : enumerate(plan.stages)) {
    auto number = static_cast<int64_t>(s);
    StageContents contents =
        cantFail(stageContents(plans.model, plans.cluster, plan, number));
    markGathersAhead(contents, plan, number);
    int64_t needed = stageLedger(contents.layers, contents.shape).total();
    missing = std::max(
        missing,
        needed - plans.cluster.budgetOf(stage.devices, plans.options.memory));
  }
  return missing;
}

void PlanSearch::Ahead::solve(const Shape &shape) {
  // The limits are those of the first search: moves between layers of large
  // stages are dear to price.
  if (plans.isLarge(shape)) {
    std::unique_ptr<Candidate> relaxed = candidateOf(shape, Moves::None);
    if (!relaxed || !solve(*relaxed))
      return;
  }
  std::unique_ptr<Candidate> candidate = candidateOf(shape, Moves::All);
  int most = plans.hasPoints(shape) ? kMostTriesOfPoints : kMostTries;
  int64_t held = 0;
  for (int tries = 0; candidate && tries < most && !ended(); ++tries) {
    Points with = points();
    std::optional<PipelineSolution> solution = solve(*candidate);
    if (!solution)
      return;
    if (!plans.fitsExactly(*candidate, *solution, with, /*fewest=*/0, held)) {
      // The next search has the exact bytes of this solution, and this is not
      // counted as a try: every time more are known.
      candidate = candidateOf(shape, Moves::All);
      if (candidate)
        candidate->holdBack(held);
      --tries;
      continue;
    }
    Incumbent found{shape, candidate->toSolved(*solution)};
    int64_t missing = missingFor(plans.toPlan(found));
    // Only what has the room is worth a simulation if there are many tries.
    if (missing <= 0 || most == kMostTries) {
      ++simulated;
      if (plans.offer(std::move(found), result, "found with gathers ahead"))
        plans.finder = Finder::Exact;
    }
    if (missing <= 0)
      return;
    // Holding back less would, with points, leave room for the same solution.
    int64_t more =
        missing + (most == kMostTries ? 0 : bytesLeft(*candidate, *solution));
    candidate->holdBack(more);
    held += more;
  }
}

void PlanSearch::Ahead::run() {
  std::vector<std::pair<Picoseconds, Shape>> shapes;
  for (const Shape &shape : plans.shapesOf(plans.best->shape.batch)) {
    if (plans.late())
      return;
    Picoseconds bound = boundOf(shape);
    if (bound <= limit())
      shapes.push_back({bound, shape});
  }
  llvm::stable_sort(
      shapes, [](const auto &a, const auto &b) { return a.first < b.first; });
  for (const auto &[bound, shape] : shapes) {
    if (ended() || plans.tables.incomplete())
      return;
    if (bound <= limit())
      solve(shape);
  }
}

void PlanSearch::gatherAhead(PlannerResult &priced) {
  std::optional<double> gap = priced.plan().gapPercent;
  if (options.objective != Objective::Executed ||
      space.partition == PartitionMode::BiObjective || late() ||
      !tables.someGatherAhead() || isFirstOfTwo() ||
      (gap && *gap <= kGapWorthAhead) ||
      isPrunedByBound(options, priced.plan()))
    return;
  Ahead(*this, priced).run();
}

} // namespace galvatron::planner
