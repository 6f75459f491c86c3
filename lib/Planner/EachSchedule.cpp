//===- EachSchedule.cpp - The fastest plan of all schedules ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Schedules are planned in rounds. Those of one round know of the plans of the
// rounds before, and so go no further than they can be faster, but not of each
// other's: rounds are the same on any number of threads, and so are plans.
//
//===----------------------------------------------------------------------===//

#include "EachSchedule.h"

#include "SearchRound.h"
#include "Spaces.h"

#include "galvatron/Planner/Gap.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

using namespace llvm;

namespace galvatron::planner {

namespace {

/// A lower bound of the time of all plans of several schedules for one batch.
class ScheduleBounds {
public:
  /// A search of one schedule has ended.
  void add(const Schedule &schedule, const PlannerResult &result) {
    const bool isBounded = leastMsOf(result) > 0;
    note(schedule, isBounded);
    if (isBounded)
      least.add(result);
  }
  /// Not all plans of a schedule were looked at.
  void leaveOpen(const Schedule &schedule) { note(schedule, false); }
  /// Sets what is proven of the fastest plan of all.
  void prove(Plan &plan) const {
    std::vector<StringRef> names;
    for (const auto &[schedule, isProven] : proven)
      if (isProven)
        names.push_back(schedule->name());
    plan.provenSchedule = join(names, ", ");
    setLeastMs(plan, names.empty() ? 0 : least.milliseconds());
  }

private:
  /// A schedule is proven if all of its searches are: chunks of some counts may
  /// be open.
  void note(const Schedule &schedule, bool isProven) {
    proven.try_emplace(&schedule, true).first->second &= isProven;
  }

  MapVector<const Schedule *, bool> proven; ///< in the order of their searches
  LeastOfAll least;
};

/// The rounds in which schedules are planned. Whole stages are planned exactly
/// and in less time than chunks; of these the ones whose batches overlap last,
/// whose exact search takes longest where nothing is known.
enum class Round : uint8_t { Default, Whole, Late, Chunks };

class ScheduleSearch {
public:
  ScheduleSearch(LayerModel &model, const Cluster &cluster,
                 const PlannerOptions &options, PlanFunction planOn)
      : model(model), cluster(cluster), options(options), planOn(planOn) {}

  Expected<PlannerResult> run();

private:
  /// One search: a schedule with so many chunks, or whole stages.
  struct Turn {
    const Schedule *schedule;
    size_t place; ///< in the registry
    Round round;
    int64_t chunks;
    std::string name;
    RoundResult result;
  };

  void addTurns(const Schedule &schedule, size_t place);
  std::vector<int64_t> chunkCounts(const Schedule &schedule) const;
  void planTurns(MutableArrayRef<Turn> round);
  Error take(Turn &turn);
  bool isBetter(const PlannerResult &result, size_t place) const;
  void log(const Turn &turn, const Twine &text) {
    decisions.push_back((turn.name + ": " + text).str());
  }

  LayerModel &model;
  const Cluster &cluster;
  const PlannerOptions &options;
  PlanFunction planOn;
  std::vector<Turn> turns;
  std::optional<PlannerResult> best;
  size_t bestPlace = 0; ///< of its schedule in the registry
  std::vector<std::string> decisions;
  ScheduleBounds bounds;
  uint64_t steps = 0;
};

} // namespace

/// The chunk counts that a pipeline of a schedule may have; 0: whole stages.
std::vector<int64_t>
ScheduleSearch::chunkCounts(const Schedule &schedule) const {
  PlannerOptions one = options;
  one.schedule = &schedule;
  if (chunksOf(one) == 1)
    return {0};
  std::vector<int64_t> counts = {2, 3, 4};
  if (options.chunks)
    counts = {options.chunks};
  std::vector<int64_t> possible = counts;
  llvm::erase_if(possible, [&](int64_t chunks) {
    Error refused = schedule.check(
        ScheduleShape::of(2, 1, std::max<int64_t>(chunks, 1), {}));
    bool isRefused = bool(refused);
    consumeError(std::move(refused));
    return isRefused;
  });
  return possible.empty() ? counts : possible;
}

/// Adds the searches of a schedule, or why there are none.
void ScheduleSearch::addTurns(const Schedule &schedule, size_t place) {
  // Other mathematics, so never unasked; and what is planned in a space of its
  // own.
  const bool late = schedule.delay({}) > 0;
  if ((late && !options.allowDelayed) || schedule.runsPacks())
    return;
  if (Error refused =
          checkClipping(schedule, options.offload, options.training)) {
    decisions.push_back(schedule.name().str() + ": " +
                        toString(std::move(refused)));
    return;
  }
  if (schedule.splitsBackward() && !model.splitsBackward()) {
    decisions.push_back(schedule.name().str() +
                        ": the model does not say what the parts of a "
                        "backward pass take");
    return;
  }
  for (int64_t chunks : chunkCounts(schedule)) {
    Turn turn{&schedule, place, Round::Whole, chunks, schedule.name().str(),
              {}};
    if (chunks > 0) {
      turn.name += " with " + std::to_string(chunks) + " chunks a stage";
      turn.round = Round::Chunks;
    } else if (late) {
      turn.round = Round::Late;
    } else if (&schedule == &defaultSchedule()) {
      turn.round = Round::Default;
    }
    turns.push_back(std::move(turn));
  }
}

/// Plans the schedules of a round, each by itself.
void ScheduleSearch::planTurns(MutableArrayRef<Turn> round) {
  // The last schedules of the registry take longest, and begin first.
  auto turnOf = [&](size_t number) -> Turn & {
    return round[round.size() - 1 - number];
  };
  std::vector<RoundResult> results = planRound(
      options, best, round.size(), [&](size_t number, PlannerOptions one) {
        one.anySchedule = false;
        one.schedule = turnOf(number).schedule;
        one.chunks = turnOf(number).chunks;
        return planOn(cluster, one);
      });
  for (auto [number, result] : enumerate(results))
    turnOf(number).result = std::move(result);
}

bool ScheduleSearch::isBetter(const PlannerResult &result, size_t place) const {
  if (!best)
    return true;
  if (!result.feasible() || !best->feasible())
    return result.feasible();
  double own = result.plan().samplesPerSecond;
  double known = best->plan().samplesPerSecond;
  // The schedule that comes first in the registry counts among equally fast
  // plans.
  return own > known || (own == known && place < bestPlace);
}

/// Takes the plan of a search, if it is the best one so far, and what was
/// proven.
Error ScheduleSearch::take(Turn &turn) {
  if (!turn.result) {
    log(turn, "not looked at, time is up");
    bounds.leaveOpen(*turn.schedule);
    return Error::success();
  }
  Expected<PlannerResult> result = std::move(*turn.result);
  turn.result.reset();
  // Whole stages exist in any case with all states on the devices: an error of
  // theirs is one of the options.
  const bool whole = turn.chunks == 0;
  if (!result && whole && options.offload == Offload::Off)
    return result.takeError();
  if (!result) {
    log(turn, toString(result.takeError()));
    return Error::success();
  }
  for (const std::string &decision : result->decisions)
    log(turn, decision);
  bounds.add(*turn.schedule, *result);
  steps += result->steps;
  const bool hasOneStage =
      result->feasible() && result->plan().pipelineDegree == 1;
  // One stage never drains anyway: gradients would be late for nothing.
  if (turn.round == Round::Late && hasOneStage)
    log(turn, "its best plan has no pipeline");
  // One stage waits for nobody: parts would take memory for nothing.
  else if (turn.schedule->splitsBackward() && hasOneStage)
    log(turn, "left out, the plan has one stage");
  else if (isBetter(*result, turn.place)) {
    best = std::move(*result);
    bestPlace = turn.place;
  }
  return Error::success();
}

Expected<PlannerResult> ScheduleSearch::run() {
  for (auto [place, schedule] : enumerate(ScheduleRegistry::get().all()))
    addTurns(*schedule, place);
  llvm::stable_sort(
      turns, [](const Turn &a, const Turn &b) { return a.round < b.round; });
  for (auto turn = turns.begin(); turn != turns.end();) {
    auto end = std::find_if(turn, turns.end(), [&](const Turn &other) {
      return other.round != turn->round;
    });
    planTurns({&*turn, static_cast<size_t>(end - turn)});
    Error refused = Error::success();
    for (; turn != end; ++turn)
      if (!refused)
        refused = take(*turn);
      else if (turn->result && !*turn->result)
        consumeError(turn->result->takeError());
    if (refused)
      return std::move(refused);
  }
  if (!best)
    return makeError("no schedule can be had: " + join(decisions, "; "));
  best->decisions = std::move(decisions);
  best->steps = steps;
  // Batches of several sizes have no bound in common.
  if (Plan *plan = std::get_if<Plan>(&best->outcome)) {
    if (options.batch)
      bounds.prove(*plan);
    else
      plan->provenSchedule = plan->schedule->name().str();
  }
  return std::move(*best);
}

Expected<PlannerResult> planEachSchedule(LayerModel &model,
                                         const Cluster &cluster,
                                         const PlannerOptions &options,
                                         PlanFunction planOn) {
  if (options.objective != Objective::Executed)
    return makeError("schedules are compared by the time that is executed, "
                     "which objective '" +
                     objectiveName(options.objective) + "' is not");
  return ScheduleSearch(model, cluster, options, planOn).run();
}

} // namespace galvatron::planner
