//===- SearchRound.cpp - Searches beside each other -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SearchRound.h"

#include "galvatron/Support/Threads.h"

#include <atomic>
#include <utility>

using namespace llvm;

namespace galvatron::planner {

std::vector<RoundResult>
planRound(const PlannerOptions &options,
          const std::optional<PlannerResult> &best, size_t count,
          function_ref<Expected<PlannerResult>(size_t, PlannerOptions)> plan) {
  PlannerOptions known = options;
  const bool isKnown = best && best->feasible();
  if (isKnown)
    known.samplesPerSecondKnown = best->plan().samplesPerSecond;
  std::vector<RoundResult> results(count);
  std::atomic<bool> hasPlan = isKnown;
  forEachOn(options.threads, count, [&](size_t number) {
    if (hasPlan && options.isLate())
      return;
    PlannerOptions one = known;
    // One line of progress has room for one search.
    if (number > 0)
      one.progress = nullptr;
    RoundResult &result = results[number];
    result.emplace(plan(number, std::move(one)));
    if (*result && (*result)->feasible())
      hasPlan = true;
  });
  return results;
}

} // namespace galvatron::planner
