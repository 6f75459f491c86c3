//===- Offloads.cpp - Plans for several homes of states -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Offloads.h"
#include "SearchRound.h"
#include "galvatron/Planner/Gap.h"

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

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
  auto take = [&](Offload offload, RoundResult planned) {
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
  auto planAll = [&](ArrayRef<Offload> some) {
    return planRound(options, best, some.size(),
                     [&](size_t number, PlannerOptions one) {
                       one.anyOffload = one.relaxations = false;
                       one.offload = some[number];
                       return planOn(cluster, one);
                     });
  };
  // The first home's plan is known to all others.
  std::vector<RoundResult> results = planAll(offloads.take_front());
  // A request refused in the simplest case is refused in others.
  if (!*results.front())
    return results.front()->takeError();
  take(offloads.front(), std::move(results.front()));
  ArrayRef<Offload> others = offloads.drop_front();
  results = planAll(others);
  for (auto [offload, result] : zip_equal(others, results))
    take(offload, std::move(result));
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
