//===- Planner.cpp - From a model and a cluster to a plan -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ChunkedSearch.h"
#include "PlanSearch.h"
#include "PlannedOnly.h"

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

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

/// Every schedule by itself; the plan that is executed fastest is taken.
static Expected<PlannerResult> planAny(LayerModel &model,
                                       const Cluster &cluster,
                                       const PlannerOptions &options) {
  if (options.objective != Objective::Executed)
    return makeError("schedules are compared by the time that is executed, "
                     "which objective '" +
                     objectiveName(options.objective) + "' is not");
  // What whole stages give is there in any case: an error of theirs is one of
  // the options.
  std::optional<PlannerResult> best;
  std::vector<std::string> decisions;
  for (const auto &schedule : ScheduleRegistry::get().all()) {
    // Other mathematics, so never unasked.
    bool late = schedule->delay({}) > 0;
    if (late && !options.allowDelayed)
      continue;
    // Planned in a space of their own.
    if (schedule->runsPacks())
      continue;
    if (Error refused =
            checkClipping(*schedule, options.offload, options.training)) {
      decisions.push_back(schedule->name().str() + ": " +
                          toString(std::move(refused)));
      continue;
    }
    PlannerOptions one = options;
    if (schedule->splitsBackward() && !model.splitsBackward()) {
      decisions.push_back(schedule->name().str() +
                          ": the model does not say what the parts of a "
                          "backward pass take");
      continue;
    }
    one.anySchedule = false;
    one.schedule = schedule.get();
    bool whole = planner::chunksOf(one) == 1;
    std::vector<int64_t> counts = {0};
    if (!whole)
      counts = options.chunks ? std::vector<int64_t>{options.chunks}
                              : std::vector<int64_t>{2, 3, 4};
    // Those that a pipeline of this schedule can have, if any.
    std::vector<int64_t> possible = counts;
    llvm::erase_if(possible, [&](int64_t chunks) {
      Error refused = schedule->check(
          ScheduleShape::of(2, 1, std::max<int64_t>(chunks, 1), {}));
      bool isRefused = bool(refused);
      consumeError(std::move(refused));
      return isRefused;
    });
    for (int64_t chunks : possible.empty() ? counts : possible) {
      one.chunks = chunks;
      std::string name = schedule->name().str();
      if (!whole)
        name += " with " + std::to_string(chunks) + " chunks a stage";
      Expected<PlannerResult> result = plan(model, cluster, one);
      if (!result && whole)
        return result.takeError();
      if (!result) {
        decisions.push_back(name + ": " + toString(result.takeError()));
        continue;
      }
      for (const std::string &decision : result->decisions)
        decisions.push_back(name + ": " + decision);
      // One stage never drains anyway: gradients would be late for nothing.
      if (late && result->feasible() && result->plan().pipelineDegree == 1) {
        decisions.push_back(name + ": its best plan has no pipeline");
        continue;
      }
      // One stage waits for nobody: parts would take memory for nothing.
      if (schedule->splitsBackward() && result->feasible() &&
          result->plan().pipelineDegree == 1) {
        decisions.push_back(name + ": left out, the plan has one stage");
        continue;
      }
      bool better =
          !best || (result->feasible() && !best->feasible()) ||
          (result->feasible() && best->feasible() &&
           result->plan().samplesPerSecond > best->plan().samplesPerSecond);
      if (better)
        best = std::move(*result);
    }
  }
  if (!best)
    return makeError("no schedule can be had: " + join(decisions, "; "));
  best->decisions = std::move(decisions);
  // Others are slower as they are simulated; what is proven is proven of plans
  // of one.
  if (Plan *plan = std::get_if<Plan>(&best->outcome))
    plan->provenSchedule = plan->schedule->name().str();
  return std::move(*best);
}

Expected<PlannerResult> plan(LayerModel &model, const Cluster &cluster,
                             const PlannerOptions &options) {
  if (planner::isHarmonySpace(options.space))
    return planner::planHarmonyExecuted(model, cluster, options);
  if (isExecutedSpace(options.space)) {
    if (options.offload != Offload::Off)
      return makeError("space '" + options.space +
                       "' has all states on the devices, found offload '" +
                       offloadName(options.offload) + "'");
    if (options.anySchedule || planner::chunksOf(options) > 1)
      return makeError("space '" + options.space +
                       "' has whole stages, found schedule '" +
                       (options.anySchedule ? std::string("any")
                                            : options.schedule->name().str()) +
                       "'");
    if (options.schedule && options.schedule->splitsBackward())
      return makeError("space '" + options.space +
                       "' knows whole backward passes only, found schedule '" +
                       options.schedule->name() + "'");
    return planner::planAmpExecuted(model, cluster, options);
  }
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
  if (Error error = planner::checkOptions(model, cluster, options, *space))
    return error;
  if (options.offload != Offload::Off) {
    PlannerOptions named = options;
    if (!named.schedule)
      named.schedule = &defaultSchedule();
    return planner::planChunked(model, cluster, named, *space);
  }
  if (planner::chunksOf(options) > 1)
    return planner::planChunked(model, cluster, options, *space);
  return planner::PlanSearch(model, cluster, options, std::move(*space)).run();
}

} // namespace galvatron
