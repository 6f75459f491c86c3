//===- Offloads.cpp - Plans for several homes of states -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Offloads.h"
#include "galvatron/Planner/Gap.h"

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Support/Threads.h"
#include "galvatron/Support/Units.h"

#include "llvm/Support/FormatVariadic.h"

#include <atomic>
#include <optional>
#include <vector>

using namespace llvm;

namespace galvatron::planner {

Expected<PlannerResult> planEachOffload(const Cluster &cluster,
                                        const PlannerOptions &options,
                                        ArrayRef<Offload> offloads,
                                        PlanFunction planOn) {
  if (options.objective != Objective::Executed)
    return makeError("homes of states are compared by the time that is "
                     "executed, which objective '" +
                     objectiveName(options.objective) + "' is not");
  auto missing = [](const PlannerResult &result) {
    const Infeasible &infeasible = result.infeasible();
    return infeasible.neededBytes - infeasible.availableBytes;
  };
  std::optional<PlannerResult> best;
  std::vector<std::string> decisions;
  LeastOfAll least;
  // Those behind the first know of its plan and not of each other's, so that
  // plans are the same on any number of threads.
  std::vector<std::optional<Expected<PlannerResult>>> results(offloads.size());
  auto planRange = [&](size_t begin, size_t end) {
    const bool isKnown = best && best->feasible();
    std::atomic<bool> hasPlan = isKnown;
    forEachOn(options.threads, end - begin, [&](size_t number) {
      if (hasPlan && options.isLate())
        return;
      PlannerOptions one = options;
      one.anyOffload = one.relaxations = false;
      one.offload = offloads[begin + number];
      if (isKnown)
        one.samplesPerSecondKnown = best->plan().samplesPerSecond;
      // One line has room for one search.
      if (number > 0)
        one.progress = nullptr;
      std::optional<Expected<PlannerResult>> &result = results[begin + number];
      result.emplace(planOn(cluster, one));
      if (*result && (*result)->feasible())
        hasPlan = true;
    });
  };
  auto take = [&](Offload offload,
                  std::optional<Expected<PlannerResult>> &&planned) {
    std::string name = "offload '" + offloadName(offload) + "': ";
    if (!planned) {
      decisions.push_back(name + "not looked at, time is up");
      least.add(0);
      return;
    }
    Expected<PlannerResult> result = std::move(*planned);
    if (!result) {
      decisions.push_back(name + toString(result.takeError()));
      return;
    }
    least.add(*result);
    for (const std::string &decision : result->decisions)
      decisions.push_back(name + decision);
    if (result->feasible())
      decisions.push_back(
          name + formatv("{0:f3}", result->plan().iterationMs).str() + " ms");
    else
      decisions.push_back(name + result->infeasible().reason);
    const bool isKnown = best && best->feasible();
    bool better =
        !best || (result->feasible() && !isKnown) ||
        (result->feasible() && isKnown &&
         result->plan().samplesPerSecond > best->plan().samplesPerSecond) ||
        (!result->feasible() && !isKnown && missing(*result) < missing(*best));
    if (best)
      result->steps += best->steps;
    if (better)
      best = std::move(*result);
    else
      best->steps = result->steps;
  };
  planRange(0, 1);
  // A request refused in the simplest case is refused in others.
  if (!*results.front())
    return results.front()->takeError();
  take(offloads.front(), std::move(results.front()));
  planRange(1, offloads.size());
  for (size_t i = 1; i < offloads.size(); ++i)
    take(offloads[i], std::move(results[i]));
  best->decisions = std::move(decisions);
  if (Plan *plan = std::get_if<Plan>(&best->outcome)) {
    setLeastMs(*plan, options.batch ? least.milliseconds() : 0);
    // The formula proves nothing of plans with another home, most of which a
    // heuristic finds.
    plan->provenAmong.clear();
    plan->provenGapPercent.reset();
    plan->foundBy = "heuristic";
  } else {
    best->leastMs = least.milliseconds();
  }
  return std::move(*best);
}

} // namespace galvatron::planner
