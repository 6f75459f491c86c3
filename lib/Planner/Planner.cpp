//===- Planner.cpp - From a model and a cluster to a plan -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Candidate.h"
#include "ChunkedSearch.h"
#include "EachSchedule.h"
#include "FewSamples.h"
#include "KeptPlan.h"
#include "LongSamples.h"
#include "PlanSearch.h"
#include "galvatron/Planner/Gap.h"

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Planner/IdleDevices.h"
#include "galvatron/Planner/Offloads.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Support/Threads.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <array>
#include <chrono>
#include <limits>
#include <numeric>

using namespace llvm;

namespace galvatron {

std::vector<int64_t> evenPartition(int64_t layers, int64_t stages) {
  std::vector<int64_t> sizes(stages, layers / stages);
  for (int64_t s = 0; s < layers % stages; ++s)
    ++sizes[s];
  return sizes;
}

std::vector<std::vector<int64_t>> stageDevices(int64_t devices,
                                               int64_t stages) {
  std::vector<std::vector<int64_t>> groups;
  int64_t size = devices / stages;
  for (int64_t s = 0; s < stages; ++s) {
    groups.emplace_back(size);
    std::iota(groups.back().begin(), groups.back().end(), s * size);
  }
  return groups;
}

static Expected<PlannerResult> planOne(LayerModel &model,
                                       const Cluster &cluster,
                                       const PlannerOptions &options);

/// Puts a plan that was found otherwise in the place of one that is executed
/// more slowly. What is proven of the batch stays.
static void takeOver(PlannerResult &found, PlannerResult other,
                     StringRef space) {
  Plan plan = other.plan();
  bool isComparable = found.feasible() && found.plan().batch == plan.batch;
  planner::setLeastMs(plan, isComparable ? planner::leastMsOf(found) : 0);
  plan.space = space.str();
  plan.foundBy = "heuristic";
  plan.provenGapPercent.reset();
  found.outcome = std::move(plan);
  found.formulaMs = other.formulaMs;
}

/// Returns true if plans are searched by something else than a bound of the
/// time that they are compared by.
static bool isSearchedBesides(const PlannerOptions &options) {
  if (options.objective != Objective::Executed || options.anySchedule ||
      options.strategy || !options.paradigms.empty())
    return false;
  return (options.offload != Offload::Off && !options.offload.byLayer()) ||
         (options.schedule && (planner::chunksOf(options) > 1 ||
                               options.schedule->splitsBackward() ||
                               options.schedule->delay({}) > 0));
}

/// Plans what is a part of what was asked for and takes its plan if that is
/// faster.
static void tryLess(LayerModel &model, const Cluster &cluster,
                    PlannerOptions less, StringRef what,
                    const PlannerOptions &options, PlannerResult &found) {
  less.relaxations = less.reasons = false;
  less.progress = nullptr;
  // The larger space has the proof.
  less.proves = false;
  if (found.feasible())
    less.samplesPerSecondKnown =
        std::max(found.plan().samplesPerSecond,
                 options.samplesPerSecondKnown.value_or(0));
  Expected<PlannerResult> other = planOne(model, cluster, less);
  if (!other) {
    // It has no such pipeline.
    consumeError(other.takeError());
    return;
  }
  found.steps += other->steps;
  if (!other->feasible() ||
      (found.feasible() &&
       other->plan().samplesPerSecond <= found.plan().samplesPerSecond))
    return;
  found.decisions.push_back(
      (what + ": executed in " +
       formatv("{0:f3}", other->plan().iterationMs).str() + " ms, faster")
          .str());
  takeOver(found, std::move(*other), options.space);
}

/// Returns true if no faster plan is to be looked for: none is asked for, or
/// time is up.
static bool isDone(const PlannerOptions &options, const PlannerResult &found) {
  return options.isLate() ||
         (found.feasible() && found.plan().gapPercent == 0.0 && options.batch);
}

/// Tries the spaces inside the one asked for: no plan is to be slower than if
/// less had been looked at.
static void tryContained(LayerModel &model, const Cluster &cluster,
                         const PlannerOptions &options, PlannerResult &found) {
  bool whole = (options.offload == Offload::Off || options.offload.byLayer()) &&
               planner::chunksOf(options) == 1;
  for (StringRef space : planner::containedSpaces(options.space, whole)) {
    if (isDone(options, found))
      return;
    PlannerOptions less = options;
    less.groups.reset();
    less.space = space.str();
    tryLess(model, cluster, std::move(less), ("space '" + space + "'").str(),
            options, found);
  }
}

/// Plans all schedules, and the spaces inside the one asked for with the best
/// plan's schedule. What is proven is of all schedules.
static Expected<PlannerResult> planAny(LayerModel &model,
                                       const Cluster &cluster,
                                       const PlannerOptions &options) {
  Expected<PlannerResult> best = planner::planEachSchedule(
      model, cluster, options,
      [&](const Cluster &some, const PlannerOptions &one) {
        return planOne(model, some, one);
      });
  if (!best || !best->feasible())
    return best;
  const std::string proven = best->plan().provenSchedule;
  PlannerOptions one = options;
  one.anySchedule = false;
  one.schedule = best->plan().schedule;
  one.chunks =
      best->plan().chunksPerStage() > 1 ? best->plan().chunksPerStage() : 0;
  if (isSearchedBesides(one))
    tryContained(model, cluster, one, *best);
  std::get<Plan>(best->outcome).provenSchedule = proven;
  return best;
}

/// Plans with states whose home is the host. Beside devices with memory of
/// their own a second place for chunks lets parameters come while others run;
/// whether that is worth its room is seen by trying both.
static Expected<PlannerResult> planAway(LayerModel &model,
                                        const Cluster &cluster,
                                        const PlannerOptions &options,
                                        const planner::Space &space) {
  std::vector<int64_t> all(cluster.deviceCount());
  std::iota(all.begin(), all.end(), 0);
  const bool tryBoth = options.offload.states == Offload::States::All &&
                       !options.offload.prefetch &&
                       planner::chunksOf(options) > 1 &&
                       backendTraits(cluster.backendOf(all)).streams;
  PlannerOptions ahead = options;
  ahead.offload.prefetch = true;
  ahead.progress = nullptr;
  std::array<std::optional<Expected<PlannerResult>>, 2> results;
  forEachOn(options.threads, tryBoth ? 2 : 1, [&](size_t number) {
    results[number].emplace(planner::planChunked(
        model, cluster, number == 0 ? options : ahead, space));
  });
  Expected<PlannerResult> found = std::move(*results.front());
  if (!tryBoth)
    return found;
  Expected<PlannerResult> other = std::move(*results.back());
  if (!found || !other) {
    Error refused = found.takeError();
    Error refusedAhead = other.takeError();
    if (!refused)
      return std::move(refusedAhead);
    consumeError(std::move(refusedAhead));
    return std::move(refused);
  }
  found->steps += other->steps;
  planner::LeastOfAll least;
  least.add(*found);
  least.add(*other);
  std::string decision = "parameters of the next chunk beside each one: ";
  decision += other->feasible()
                  ? formatv("{0:f3} ms", other->plan().iterationMs).str()
                  : "do not fit";
  if (found->feasible() && other->feasible())
    decision += formatv(", else {0:f3} ms", found->plan().iterationMs).str();
  found->decisions.push_back(decision);
  if (other->feasible() &&
      (!found->feasible() ||
       other->plan().samplesPerSecond > found->plan().samplesPerSecond))
    takeOver(*found, std::move(*other), options.space);
  found->leastMs = least.milliseconds();
  if (Plan *plan = std::get_if<Plan>(&found->outcome))
    planner::setLeastMs(*plan, options.batch ? found->leastMs : 0);
  return found;
}

/// Returns true if a plan that was searched by a formula may be changed to be
/// executed faster: a gap is left, and the space has no rules for cuts or for
/// layers that share parameters.
static bool isWorthChanging(const LayerModel &model,
                            const PlannerOptions &options,
                            const planner::Space &space, const Plan &plan) {
  const double worthwhileGap = std::max(1.0, options.gapPercent); // percent
  return planner::Candidate::tieRule(model, plan.stages.size() > 1).empty() &&
         (space.partition == planner::PartitionMode::Free ||
          space.partition == planner::PartitionMode::Given) &&
         plan.gapPercent.value_or(100) > worthwhileGap;
}

/// Plans one space and one schedule, or all of these.
static Expected<PlannerResult> planOne(LayerModel &model,
                                       const Cluster &cluster,
                                       const PlannerOptions &options) {
  if (options.schedule &&
      (options.schedule->delay({}) > 0 || options.schedule->splitsBackward()) &&
      options.objective != Objective::Executed)
    return makeError("schedule '" + options.schedule->name() +
                     "' is not what objective '" +
                     objectiveName(options.objective) +
                     "' says the time of: expected objective 'executed'");
  if (options.anySchedule)
    return planAny(model, cluster, options);
  Expected<planner::Space> space =
      planner::getSpace(options, cluster.deviceCount());
  if (!space)
    return space.takeError();
  if (Error error =
          planner::applyPins(model, cluster.deviceCount(), options, *space))
    return error;
  if (Error error = planner::applyGroups(cluster, options, *space))
    return error;
  // A layer that is only measured has no values to choose among.
  if (space->points > 0 && !planner::hasValues(model))
    space->points = 0;
  if (Error error = planner::checkOptions(model, cluster, options, *space))
    return error;
  if (options.offload != Offload::Off && !options.offload.byLayer()) {
    PlannerOptions named = options;
    if (!named.schedule)
      named.schedule = &defaultSchedule();
    return planAway(model, cluster, named, *space);
  }
  if (planner::chunksOf(options) > 1)
    return planner::planChunked(model, cluster, options, *space);
  Expected<PlannerResult> found =
      planner::PlanSearch(model, cluster, options, *space).run();
  if (!found || !found->feasible() || options.objective != Objective::Executed)
    return found;
  PlannerOptions named = options;
  if (!named.schedule)
    named.schedule = &defaultSchedule();
  // No plan is as fast as the one that is known.
  if (options.batch && planner::isPrunedByBound(options, found->plan()))
    return found;
  if (isWorthChanging(model, options, *space, found->plan()))
    planner::searchLocally(model, cluster, named, *space, *found);
  if (Error error = planner::listAtEnd(model, cluster,
                                       options.samplesPerSecondKnown, *found))
    return std::move(error);
  return found;
}

static Expected<PlannerResult> planAsked(LayerModel &model,
                                         const Cluster &cluster,
                                         const PlannerOptions &options) {
  // Points are chosen for these devices before searches run beside each other.
  planner::setPointTimes(model, cluster);
  if (options.anyOffload)
    return planner::planEachOffload(
        cluster, options, comparedOffloads(),
        [&](const Cluster &some, const PlannerOptions &one) {
          return planAsked(model, some, one);
        });
  Expected<PlannerResult> found = planOne(model, cluster, options);
  if (!found)
    return found;
  if (isSearchedBesides(options))
    tryContained(model, cluster, options, *found);
  return found;
}

/// The parts of a plan that the options give, in words; empty if they give
/// none.
static std::string givenParts(const PlannerOptions &options) {
  std::vector<std::string> parts;
  if (options.strategy)
    parts.push_back("strategy");
  if (!options.pins.empty())
    parts.push_back("layers' strategies");
  if (!options.keep.empty())
    parts.push_back("kept values");
  if (!options.paradigms.empty())
    parts.push_back("paradigms");
  if (options.pipelineDegree)
    parts.push_back("pipeline degree");
  if (!options.partition.empty())
    parts.push_back("partition");
  if (options.microBatches)
    parts.push_back("micro-batches");
  if (options.chunks > 0)
    parts.push_back("chunks");
  if (parts.empty())
    return "";
  std::string last = parts.back();
  parts.pop_back();
  return "the given " +
         (parts.empty() ? last : join(parts, ", ") + " and " + last);
}

/// Searches the spaces that cut positions in one way alone, for a batch that is
/// given: the formula ranks ways less well than the simulator does, and what is
/// simulated of the whole space is near its formula's best.
static void tryOneWay(LayerModel &model, const Cluster &cluster,
                      const PlannerOptions &options,
                      const planner::LongSamples &samples,
                      PlannerResult &found) {
  if (!found.feasible() || !options.batch || options.anySchedule ||
      options.offload != Offload::Off || options.anyOffload)
    return;
  for (const std::vector<Paradigm> &way : samples.ways) {
    if (isDone(options, found))
      return;
    PlannerOptions less = options;
    less.paradigms = way;
    const std::string foundBy = found.plan().foundBy;
    tryLess(model, cluster, std::move(less), "positions cut in one way alone",
            options, found);
    std::get<Plan>(found.outcome).foundBy = foundBy;
  }
}

/// Plans with strategies that cut positions where samples are long, behind the
/// search without them: no plan is slower for the larger space, and what is
/// known to be slower is not searched. What is proven is of the larger space.
static Expected<PlannerResult> planSamples(LayerModel &model,
                                           const Cluster &cluster,
                                           const PlannerOptions &options) {
  planner::LongSamples samples =
      planner::findLongSamples(model, cluster, options);
  if (!samples.matter())
    return planAsked(model, cluster, options);
  PlannerOptions narrow = options, wide = options;
  // The advice is that of the larger space.
  narrow.relaxations = narrow.reasons = false;
  Expected<PlannerResult> found = planAsked(model, cluster, narrow);
  if (!found)
    return found;
  const bool isLate = options.isLate();
  if (isLate && !found->feasible()) {
    // What one shape needs takes least to say in the small space.
    narrow.reasons = options.reasons;
    return options.reasons ? planAsked(model, cluster, narrow)
                           : std::move(found);
  }
  if (found->feasible()) {
    Plan &plan = std::get<Plan>(found->outcome);
    if (isLate) {
      planner::setLeastMs(plan, 0);
      return found;
    }
    wide.samplesPerSecondKnown = std::max(
        plan.samplesPerSecond, options.samplesPerSecondKnown.value_or(0));
  }
  wide.paradigms = samples.wide;
  Expected<PlannerResult> other = planAsked(model, cluster, wide);
  if (!other)
    return other;
  other->steps += found->steps;
  std::vector<std::string> decisions = std::move(found->decisions);
  decisions.push_back("positions are cut as well: " + samples.reason);
  llvm::append_range(decisions, other->decisions);
  if (found->feasible() &&
      (!other->feasible() ||
       other->plan().samplesPerSecond <= found->plan().samplesPerSecond)) {
    decisions.push_back("no plan that cuts positions is faster");
    const double leastMs = options.batch ? planner::leastMsOf(*other) : 0;
    std::string foundBy = found->plan().foundBy;
    takeOver(*other, std::move(*found), options.space);
    Plan &plan = std::get<Plan>(other->outcome);
    // The larger space has all plans of the narrow one.
    plan.foundBy = std::move(foundBy);
    planner::setLeastMs(plan, leastMs);
  }
  other->decisions = std::move(decisions);
  tryOneWay(model, cluster, options, samples, *other);
  return other;
}

Expected<PlannerResult> plan(LayerModel &model, const Cluster &cluster,
                             const PlannerOptions &given) {
  auto start = std::chrono::steady_clock::now();
  planner::setPointTimes(model, cluster);
  PlannerOptions options = given;
  if (Error error = planner::forceKept(model, options))
    return error;
  auto planBatch = [&](const Cluster &some, const PlannerOptions &asked) {
    return planSamples(model, some, asked);
  };
  auto planOn = [&](const Cluster &some, const PlannerOptions &asked) {
    return planner::planFewSamples(model, some, asked, planBatch);
  };
  Expected<PlannerResult> found =
      options.mayIdle ? planner::planIdle(model, cluster, options, planOn)
                      : planOn(cluster, options);
  std::chrono::duration<double, std::milli> passed =
      std::chrono::steady_clock::now() - start;
  if (found && found->feasible()) {
    Plan &plan = std::get<Plan>(found->outcome);
    plan.searchMs = passed.count();
    plan.provenGiven = givenParts(given);
  }
  return found;
}

} // namespace galvatron
