//===- Executed.cpp - Plans by their simulated time -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Executed.h"
#include "galvatron/Planner/Gap.h"

#include "galvatron/Simulate/Simulate.h"

#include <limits>
#include <utility>

using namespace llvm;

namespace galvatron::planner {

namespace {

/// A tenth of a second. Beyond, the slowdown of a last backward pass beside
/// its sums of gradients is lost between stages: 3% were seen. All ways to sum
/// gradients that are simulated together have no more.
constexpr size_t kMostOperations = 100'000;
/// The most stages of which all combinations are simulated.
constexpr size_t kFewStages = 4;
/// The factor of time by which another way must gain to be worth recording.
constexpr double kGain = 1 - 1e-9;

/// Chooses when stages sum their gradients. The first one needs no choice: its
/// sums beside its backward passes take no longer than behind all of them, and
/// no stage waits for what they delay.
class SumsChoice {
public:
  SumsChoice(SimulationInput &input, const Plan &plan) : input(input) {
    const TaskProgram &program = input.program;
    if (program.hasSeveralChunks() || program.goesOn())
      return;
    for (size_t s = 1; s < plan.stages.size(); ++s)
      if (input.roles[s].canOverlapSums &&
          plan.stages[s].sums == SumTiming::ByRule)
        open.push_back(s);
    byRule = ways();
  }

  /// Sums beside backward passes take the least by the lower bound.
  double leastSeconds() {
    set(Ways(open.size(), true));
    double seconds = leastStepSeconds(input);
    set(byRule);
    return seconds;
  }

  /// Leaves `input` with the fastest way that was tried, which takes `seconds`;
  /// it comes with the rule's, and what that takes. Ways that take no less than
  /// `worth` are of no use.
  Error run(double &seconds, double worth) {
    // A step simulated in part loses how passes hold up each other.
    size_t each = stepOperations(input);
    if (open.empty() || each > kMostOperations)
      return Error::success();
    size_t left = kMostOperations / std::max<size_t>(each, 1);
    Ways best = byRule;
    auto offer = [&](const Ways &other) -> Expected<bool> {
      set(other);
      if (left == 0 || other == best ||
          leastStepSeconds(input) >= std::min(seconds * kGain, worth))
        return false;
      --left;
      Expected<double> found = simulatedSeconds(input, kMostOperations);
      if (!found)
        return found.takeError();
      if (*found >= seconds * kGain)
        return false;
      seconds = *found;
      best = other;
      return true;
    };
    std::vector<Ways> some = starts(left);
    bool isAll = open.size() <= kFewStages && some.size() == size_t(1)
                                                                 << open.size();
    for (const Ways &other : some)
      if (Expected<bool> better = offer(other); !better)
        return better.takeError();
    // Later stages end earlier, so that their sums may.
    bool improves = !isAll;
    while (improves && left > 0) {
      improves = false;
      for (size_t i = open.size(); i-- > 0;) {
        Ways other = best;
        other[i] = !other[i];
        Expected<bool> better = offer(other);
        if (!better)
          return better.takeError();
        improves |= *better;
      }
    }
    set(best);
    return Error::success();
  }

  /// Records what `input` has, of all stages or of none: who prices the plan
  /// again has nothing left to choose, or chooses the same.
  void record(Plan &plan) const {
    if (ways() == byRule)
      return;
    for (size_t s : open)
      plan.stages[s].sums = syncsBehind(input.program.roles[s])
                                ? SumTiming::Overlap
                                : SumTiming::AtEnd;
  }

private:
  /// True, by open stage, if its sums run beside backward passes.
  using Ways = std::vector<bool>;

  Ways ways() const {
    Ways overlap;
    for (size_t s : open)
      overlap.push_back(syncsBehind(input.program.roles[s]));
    return overlap;
  }
  void set(const Ways &overlap) {
    for (size_t i = 0; i < open.size(); ++i)
      setSumsOverlap(input, open[i], overlap[i]);
  }

  /// All ways of few stages. Of many those in which the first so many overlap,
  /// as the end of a late stage leaves it time.
  std::vector<Ways> starts(size_t most) const {
    std::vector<Ways> all;
    size_t count = open.size();
    if (count <= kFewStages && (size_t(1) << count) <= most + 1) {
      for (size_t number = 0; number < size_t(1) << count; ++number) {
        Ways &other = all.emplace_back();
        for (size_t i = 0; i < count; ++i)
          other.push_back(number >> i & 1);
      }
      return all;
    }
    for (size_t first :
         {size_t(0), count, count / 2, count / 4, 3 * count / 4}) {
      Ways &other = all.emplace_back(count, false);
      std::fill_n(other.begin(), first, true);
    }
    return all;
  }

  SimulationInput &input;
  std::vector<size_t> open; ///< stages with a choice
  Ways byRule;
};

void setSeconds(Plan &plan, double seconds) {
  plan.iterationMs = seconds * 1e3;
  plan.samplesPerSecond =
      seconds > 0 ? static_cast<double>(plan.batch) / seconds : 0;
}

/// A plan may be so much slower than what is worth it and still have its passes
/// listed: nearly all gain less.
constexpr double kListingReach = 1.1;

/// Returns true if a step takes longer in the order that is listed where it
/// follows another one at once.
Expected<bool> isSlowerOnAndOn(SimulationInput &input) {
  Expected<double> listed = secondsWithoutNorm(input);
  if (!listed)
    return listed.takeError();
  std::vector<PassTimes> times = std::exchange(input.program.passTimes, {});
  Expected<double> alike = secondsWithoutNorm(input);
  input.program.passTimes = std::move(times);
  if (!alike)
    return alike.takeError();
  return *listed * kGain > *alike;
}

/// Stages times micro-batches of a plan whose passes are listed: some tenths of
/// a second.
constexpr int64_t kMostListed = 2048;

/// Passes of whole stages are listed for what they take, where that is quick
/// and the step is simulated whole: what is simulated in part says too little
/// of one order. Nor is that order taken where a run whose stages do not meet
/// behind a step would be slower. `seconds` comes with what the order for equal
/// times takes.
Error tryListed(SimulationInput &input, Plan &plan, double &seconds,
                std::optional<double> worthMs) {
  if (stepOperations(input) > kMostOperations ||
      plan.pipelineDegree * plan.microBatches > kMostListed ||
      (worthMs && seconds * 1e3 > *worthMs * kListingReach))
    return Error::success();
  input.program.passTimes = passTimes(input);
  if (leastStepSeconds(input) < seconds * kGain) {
    Expected<double> listed = simulatedSeconds(input, kMostOperations);
    if (!listed)
      return listed.takeError();
    bool faster = *listed < seconds * kGain;
    if (faster && mayEndAlone(input, plan)) {
      Expected<bool> slower = isSlowerOnAndOn(input);
      if (!slower)
        return slower.takeError();
      faster = !*slower;
    }
    if (faster) {
      seconds = *listed;
      plan.passTimes = input.program.passTimes;
      return Error::success();
    }
  }
  input.program.passTimes.clear();
  return Error::success();
}

} // namespace

Error priceExecuted(LayerModel &model, const Cluster &cluster, Plan &plan,
                    const Pricing &pricing) {
  if (plan.schedule->runsPacks()) {
    // All tasks of the step: it is not made of rounds that are alike.
    Expected<SimulationInput> input = simulationInput(model, cluster, plan);
    if (!input)
      return input.takeError();
    Expected<Simulation> simulation = simulate(*input);
    if (!simulation)
      return simulation.takeError();
    plan.iterationMs = simulation->seconds * 1e3;
    plan.samplesPerSecond =
        1e3 * static_cast<double>(plan.batch) / plan.iterationMs;
    return Error::success();
  }
  if (pricing.lists)
    plan.passTimes.clear();
  Expected<SimulationInput> input = simulationOutline(model, cluster, plan);
  if (!input)
    return input.takeError();
  bool listsStages = pricing.lists && !input->program.hasSeveralChunks();
  // The lower bound is one of any order then.
  if (pricing.lists)
    input->program.passTimes = passTimes(*input);
  if (pricing.lists && !listsStages)
    plan.passTimes = input->program.passTimes;
  SumsChoice choice(*input, plan);
  constexpr double rounding = 1 - 1e-9;
  if (pricing.worthMs)
    if (double least = choice.leastSeconds() * rounding;
        least * 1e3 >= *pricing.worthMs) {
      setSeconds(plan, least);
      return Error::success();
    }
  if (listsStages)
    input->program.passTimes.clear();
  Expected<double> seconds = simulatedSeconds(*input, kMostOperations);
  if (!seconds)
    return seconds.takeError();
  // Passes that are listed may take less than the bound of their usual order.
  const double reach = plan.schedule->listsByTimes() ? kListingReach : 1;
  const double worth = pricing.worthMs
                           ? *pricing.worthMs / 1e3 * reach
                           : std::numeric_limits<double>::infinity();
  if (Error error = choice.run(*seconds, worth))
    return error;
  choice.record(plan);
  if (listsStages)
    if (Error error = tryListed(*input, plan, *seconds, pricing.worthMs))
      return error;
  setSeconds(plan, *seconds);
  if (!pricing.worthMs || plan.iterationMs < *pricing.worthMs)
    plan.boundMs = stepBounds(*input).upper * 1e3;
  return Error::success();
}

Error listAtEnd(LayerModel &model, const Cluster &cluster,
                std::optional<double> samplesPerSecond, PlannerResult &found) {
  auto *plan = std::get_if<Plan>(&found.outcome);
  if (!plan || !plan->schedule->listsByTimes() || plan->chunksPerStage() > 1 ||
      listsEach(*plan))
    return Error::success();
  Expected<SimulationInput> input = simulationOutline(model, cluster, *plan);
  if (!input)
    return input.takeError();
  std::optional<double> worth;
  if (samplesPerSecond)
    worth = worthMs(plan->batch, *samplesPerSecond);
  double alike = plan->iterationMs / 1e3, seconds = alike;
  if (Error error = tryListed(*input, *plan, seconds, worth))
    return error;
  if (seconds == alike)
    return Error::success();
  double leastMs = leastMsOf(*plan);
  setSeconds(*plan, seconds);
  plan->boundMs = stepBounds(*input).upper * 1e3;
  // The bound proven for the batch stays.
  setLeastMs(*plan, leastMs);
  // The plan may have been too slow to be described in its order before.
  return describe(model, cluster, *plan);
}

} // namespace galvatron::planner
