//===- PlanSweep.cpp - Batch after batch, and what is proven of them ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Executed.h"
#include "PlanSearch.h"
#include "galvatron/Planner/Gap.h"

using namespace llvm;

namespace galvatron::planner {

/// A sweep under the paper's rule ends after so many batches in a row at which
/// nothing fits.
constexpr int64_t kPaperSweepPatience = 8;

/// The batches of a sweep by doublings: the sweep may end after each group.
/// Under the paper's rule batch by batch.
std::vector<std::vector<int64_t>> PlanSearch::batchGroups() const {
  if (options.batch)
    return {{*options.batch}};
  bool paper = options.microBatchRule == MicroBatchRule::Paper;
  constexpr int64_t farthest = int64_t(1) << 17;
  int64_t most = paper ? farthest : options.maxBatch;
  std::vector<std::vector<int64_t>> groups;
  for (int64_t end = options.batchStep, batch = options.batchStep;
       batch <= most;) {
    groups.emplace_back();
    if (paper) {
      groups.back().push_back(batch);
      batch += options.batchStep;
      continue;
    }
    for (; batch <= std::min(end, most); batch += options.batchStep)
      groups.back().push_back(batch);
    end *= 2;
  }
  return groups;
}

/// Bounds of the entries that were not priced before time was up.
void PlanSearch::priceRest(Queue &queue) {
  Cancellation grace;
  grace.setSeconds(kGraceSeconds);
  tables.setCancellation(&grace);
  for (Entry &entry : queue)
    if (entry.bound == 0)
      entry.bound = freeBoundOf(entry.shape);
  tables.setCancellation(options.cancellation);
  std::make_heap(queue.begin(), queue.end(), Later());
}

/// Proves the bound for all batches that the sweep would have seen. Their
/// layers may have to be priced for that: only for so long.
void PlanSearch::proveRest(ArrayRef<std::vector<int64_t>> groups) {
  Cancellation grace;
  grace.setSeconds(unpriced ? 0 : kGraceSeconds);
  if (late())
    tables.setCancellation(&grace);
  for (const std::vector<int64_t> &group : groups)
    for (int64_t batch : group)
      for (const Shape &shape : shapesOf(batch)) {
        Picoseconds bound = freeBoundOf(shape);
        if (bound > limitFor(shape.batch))
          continue;
        unpriced |= bound == 0;
        gapPercent = std::max(gapPercent, gapTo(bound, shape.batch));
        if (unpriced)
          return tables.setCancellation(options.cancellation);
      }
  tables.setCancellation(options.cancellation);
}

bool PlanSearch::fits(ArrayRef<int64_t> batches) {
  for (int64_t batch : batches)
    for (const Shape &shape : shapesOf(batch)) {
      if (freeBoundOf(shape) >= kNoBound ||
          (shape.degree() > 1 && sharedBoundOf(shape) >= kNoBound))
        continue;
      if (std::unique_ptr<Candidate> candidate = leanCandidateOf(shape))
        if (leastNeed(candidate->problem()).excess <= 0)
          return true;
    }
  return false;
}

/// Returns true if no plan of a larger batch fits where none of this and the
/// ones before did. Where groups are equal each degree of data parallelism
/// divides the number of devices, so that some micro-batches of this batch have
/// the fewest samples that any strategies divide; more samples take more memory
/// (docs/search.md, "Long samples").
bool PlanSearch::endsMisfits(ArrayRef<int64_t> batches) const {
  const bool isPlain = !best && !options.batch &&
                       !options.samplesPerSecondKnown && leftOut.empty() &&
                       !givenUp && !space.anyGroups && !options.microBatches &&
                       options.microBatchRule == MicroBatchRule::Search;
  const int64_t devices = cluster.deviceCount();
  return isPlain && llvm::any_of(batches, [&](int64_t batch) {
           return batch % devices == 0;
         });
}

/// The formula and the simulator may disagree most where groups are unequal: no
/// plan is to be slower than without them.
Error PlanSearch::tryEqualGroups(PlannerResult &priced) {
  if (!space.anyGroups || options.objective == Objective::Paper || late() ||
      isFirstOfTwo() ||
      (options.pipelineDegree &&
       cluster.deviceCount() % *options.pipelineDegree != 0))
    return Error::success();
  PlannerOptions equal = options;
  equal.groups = Groups::Equal;
  equal.batch = priced.plan().batch;
  equal.relaxations = equal.reasons = false;
  equal.samplesPerSecondKnown =
      std::max(priced.plan().samplesPerSecond,
               options.samplesPerSecondKnown.value_or(0));
  Expected<PlannerResult> found = galvatron::plan(model, cluster, equal);
  if (!found)
    return found.takeError();
  steps += found->steps;
  if (!found->feasible()) {
    log("equal groups: no plan is executed as fast");
    return Error::success();
  }
  double faster =
      found->plan().samplesPerSecond / priced.plan().samplesPerSecond;
  log("equal groups: executed in " +
      Twine(formatv("{0:f3}", found->plan().iterationMs).str()) + " ms");
  if (faster <= 1)
    return Error::success();
  double leastMs = leastMsOf(priced.plan());
  priced.outcome = found->plan();
  priced.formulaMs = found->formulaMs;
  setLeastMs(std::get<Plan>(priced.outcome), leastMs);
  return Error::success();
}

/// Puts a plan that the search with points did not find in the place of the
/// one that it found, which is executed more slowly, or that it did not find
/// because none has as many samples a second as is known. What the search
/// proved of all plans stays.
static void keepPlan(PlannerResult &found, const PlannerResult &known,
                     double samplesPerSecond) {
  Plan plan = known.plan();
  plan.gapPercent =
      std::max(0.0, (samplesPerSecond / plan.samplesPerSecond - 1) * 100);
  if (!found.feasible())
    found.runnersUp = known.runnersUp;
  if (found.feasible()) {
    const Plan &slower = found.plan();
    plan.foundBy = slower.foundBy;
    plan.provenGapPercent = slower.provenGapPercent;
    plan.provenAmong = slower.provenAmong;
    setLeastMs(plan, slower.batch == plan.batch ? leastMsOf(slower) : 0);
  }
  found.outcome = std::move(plan);
  found.formulaMs = known.formulaMs;
}

/// Points take memory and time in between what a layer has without them, so
/// that the best plan without them is near the best one, and is quickly found:
/// the search with points goes no further than it can be better. No plan is
/// slower than if points had not been looked at.
Expected<PlannerResult> PlanSearch::run() {
  if (space.points == 0 || space.fixed)
    return search();
  tables.setPoints(false);
  bool reasons = std::exchange(options.reasons, false);
  Expected<PlannerResult> less = search();
  options.reasons = reasons;
  tables.setPoints(true);
  if (!less)
    return less;
  if (less->feasible() && late()) {
    // Nothing is proven of plans with points.
    Plan &plan = std::get<Plan>(less->outcome);
    setLeastMs(plan, 0);
    plan.provenGapPercent.reset();
    return less;
  }
  if (less->feasible()) {
    options.samplesPerSecondKnown =
        std::max(less->plan().samplesPerSecond,
                 options.samplesPerSecondKnown.value_or(0));
    // The fastest plan's shape may have a faster one.
    shapeBesides = best->shape;
    best = bestByFormula;
    firstBatch = best->shape.batch;
  }
  sharedBounds.clear();
  runnersUp.clear();
  leftOut.clear();
  gapPercent = 0;
  unpriced = givenUp = false;
  Expected<PlannerResult> found = search();
  if (!found || !less->feasible())
    return found;
  std::vector<std::string> all = std::move(less->decisions);
  all.insert(all.begin(), "layers keep all of their values or none:");
  all.push_back("layers keep some of their values as well:");
  llvm::append_range(all, found->decisions);
  found->decisions = std::move(all);
  if (!found->feasible() ||
      found->plan().samplesPerSecond < less->plan().samplesPerSecond)
    keepPlan(*found, *less, *options.samplesPerSecondKnown);
  return found;
}

Expected<PlannerResult> PlanSearch::search() {
  std::optional<int64_t> firstTried;
  int64_t misfits = 0;
  std::vector<std::vector<int64_t>> groups = batchGroups();
  if (options.batch && options.samplesPerSecondKnown) {
    std::vector<Shape> shapes = shapesOf(*options.batch);
    if (!shapes.empty() && llvm::all_of(shapes, [&](const Shape &shape) {
          return isPruned(shape);
        })) {
      Infeasible infeasible;
      infeasible.reason =
          "no plan is executed as fast as the one that is known";
      log(infeasible.reason);
      PlannerResult dominated{
          std::move(infeasible), std::move(decisions), {}, steps};
      dominated.leastMs = static_cast<double>(knownTime(*options.batch)) / 1e9;
      return dominated;
    }
  }
  size_t searched = 0;
  bool cutShort = false;
  for (const std::vector<int64_t> &group : groups) {
    ++searched;
    mostSteps = options.mostSteps == 0
                    ? kNoStepLimit
                    : steps + std::min(options.mostSteps, kNoStepLimit - steps);
    std::optional<Incumbent> before = best;
    if (searchBatches(group) && !firstTried)
      firstTried = *llvm::find_if(
          group, [&](int64_t batch) { return !shapesOf(batch).empty(); });
    if (late()) {
      cutShort = true;
      break;
    }
    if (endsMisfits(group)) {
      log("batch " + Twine(group.back()) +
          ": the sweep ends, no larger batch needs less memory");
      break;
    }
    if (options.microBatchRule == MicroBatchRule::Paper && !options.batch) {
      // Algorithm 1: until nothing fits. A batch with awkward divisors may not
      // fit although larger ones do.
      bool better = best && best->shape.batch == group.back();
      misfits = better || shapesOf(group.back()).empty() || fits(group)
                    ? 0
                    : misfits + 1;
      if (misfits < kPaperSweepPatience)
        continue;
      log("batch " + Twine(group.back()) +
          ": the sweep ends, nothing fits any more");
      break;
    }
    // The sweep ends when doubling the batch gained less than half a percent.
    // Where a gap is accepted a gain may be hidden by it.
    if (before && group.back() > firstBatch && (gapPercent == 0 || givenUp) &&
        !fasterPerSample(static_cast<__int128>(best->solved.cost) * 201,
                         best->shape.batch,
                         static_cast<__int128>(before->solved.cost) * 200,
                         before->shape.batch)) {
      log("batch " + Twine(group.back()) +
          ": the sweep ends, doubling the batch gained less than 0.5%");
      // It might have gained more.
      cutShort = givenUp;
      break;
    }
  }
  double nothing =
      late() || givenUp || unpriced || !leftOut.empty() ? 0 : INFINITY;
  if (!best) {
    Infeasible infeasible;
    infeasible.reason = "no plan fits";
    if (options.reasons) {
      int64_t batch =
          firstTried.value_or(options.batch.value_or(options.batchStep));
      infeasible = explain(batch);
      if (options.relaxations && infeasible.neededBytes > 0 && !late())
        relaxInput(model, cluster, options, batch, infeasible);
      if (options.relaxations && infeasible.neededBytes == 0 && !late())
        relaxDivision(model, cluster, options, batch, infeasible);
      log(infeasible.reason);
    }
    PlannerResult none{std::move(infeasible), std::move(decisions), {}, steps};
    none.leastMs = nothing;
    return none;
  }
  if (cutShort)
    proveRest(ArrayRef(groups).drop_front(searched));
  for (const LeftOut &shape : leftOut)
    if (shape.bound <= limitFor(shape.batch))
      gapPercent = std::max(gapPercent, gapTo(shape.bound, shape.batch));
  // The formula's time of one plan cannot be compared with the simulated time
  // of another.
  bool paper = options.objective == Objective::Paper;
  std::optional<Picoseconds> heuristic;
  if (!late() && (paper || gapPercent > 0))
    heuristic = compareHeuristic();
  bestByFormula = best;
  // Only a plan that is faster than the one that is known is of interest.
  Expected<PlannerResult> priced =
      price(*best, paper ? std::nullopt : options.samplesPerSecondKnown);
  if (!priced)
    return priced.takeError();
  if (!paper) {
    offerOtherDegrees(*priced);
    offerOtherCuts(*priced);
  }
  proveExecuted(*priced);
  gatherAhead(*priced);
  if (Error error = tryEqualGroups(*priced))
    return error;
  Plan plan = priced->plan();
  bool heuristicSpace = space.partition == PartitionMode::BiObjective;
  if (heuristicSpace)
    finder = Finder::Heuristic;
  plan.foundBy = finder == Finder::Exact   ? "exact"
                 : finder == Finder::Quick ? "quick"
                                           : "heuristic";
  // A heuristic proves nothing about the space.
  if (!heuristicSpace && !unpriced)
    plan.provenGapPercent = gapPercent;
  plan.provenAmong = provenAmong;
  plan.heuristicMs = heuristic && paper ? toMilliseconds(*heuristic) : 0;
  log("chosen: " + best->shape.str() + ", " + milliseconds(best->solved.cost) +
      ", after solving " + Twine(solvedCount) + " problems");
  PlannerResult result{
      std::move(plan), std::move(decisions), {}, steps, priced->formulaMs};
  // Another entry may stand for the same shape with another batch.
  runnersUp.erase({best->shape.degree(), best->shape.microBatches});
  for (const auto &[key, runnerUp] : runnersUp)
    result.runnersUp.push_back(runnerUp);
  llvm::sort(result.runnersUp, [](const RunnerUp &a, const RunnerUp &b) {
    return std::tie(b.samplesPerSecond, a.pipelineDegree, a.microBatches) <
           std::tie(a.samplesPerSecond, b.pipelineDegree, b.microBatches);
  });
  constexpr size_t mostRunnersUp = 16;
  if (result.runnersUp.size() > mostRunnersUp)
    result.runnersUp.resize(mostRunnersUp);
  return result;
}

} // namespace galvatron::planner
