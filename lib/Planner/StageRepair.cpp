//===- StageRepair.cpp - Plans whose stages are made to fit ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StageRepair.h"

#include "Executed.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>

using namespace llvm;

namespace galvatron::planner {

std::optional<int64_t> StageRepair::excessOf(Plan &plan, size_t stage) {
  Expected<int64_t> found =
      stageExcess(context.model, context.cluster, plan,
                  static_cast<int64_t>(stage), context.options.memory);
  if (found)
    return *found;
  reason = toString(found.takeError());
  return std::nullopt;
}

std::optional<int64_t> StageRepair::worstExcess() {
  int64_t most = std::numeric_limits<int64_t>::min();
  for (size_t stage = 0; stage < excess.size(); ++stage) {
    if (!excess[stage] && !(excess[stage] = excessOf(current, stage)))
      return std::nullopt;
    if (*excess[stage] > most) {
      most = *excess[stage];
      worst = stage;
    }
  }
  return most;
}

bool StageRepair::recompute(bool everyStage) {
  // Samples stay where they are, so no stage changes what another one holds.
  for (size_t stage = 0; stage < excess.size(); ++stage) {
    if (everyStage ? *excess[stage] <= 0 : stage != worst)
      continue;
    std::vector<size_t> &half = added[stage];
    half.clear();
    for (size_t layer : current.stages[stage].layers())
      if (!current.layers[layer].strategy.checkpoint() && mayChange(layer))
        half.push_back(layer);
    if (half.empty() || !context.recomputes)
      return false;
    half.resize((half.size() + 1) / 2);
    for (size_t layer : half) {
      Strategy &own = current.layers[layer].strategy;
      own = own.withCheckpoint(true);
    }
    append_range(recomputed[stage], half);
    excess[stage].reset();
  }
  return true;
}

/// Gives the first of some layers of a stage what `with` makes of their given
/// strategies, and the others these: as few as fit. False if not all do.
bool StageRepair::giveFewest(Plan &plan, size_t stage, ArrayRef<size_t> some,
                             function_ref<Strategy(const Strategy &)> with) {
  auto fits = [&](size_t count) {
    for (auto [i, layer] : enumerate(some)) {
      const Strategy &own = given[layer].strategy;
      plan.layers[layer].strategy = i < count ? with(own) : own;
    }
    std::optional<int64_t> bytes = excessOf(plan, stage);
    return bytes && *bytes <= 0;
  };
  size_t few = 0, enough = some.size();
  if (some.empty() || !fits(enough))
    return false;
  while (few + 1 < enough && !context.stopped()) {
    size_t middle = few + (enough - few) / 2;
    (fits(middle) ? enough : few) = middle;
  }
  return fits(enough);
}

/// Gives a stage a point in place of the layers that are recomputed, to as few
/// layers as must have it, where its layers take less time with one.
void StageRepair::keepPoints(size_t stage) {
  const int64_t points = context.space.points;
  if (points == 0 || recomputed[stage].empty())
    return;
  auto secondsOf = [&](const Plan &plan) {
    double sum = 0;
    for (size_t layer : plan.stages[stage].layers()) {
      const BusyBound::Times &times =
          context.bound.timesOf(plan, context.model.kindOf(layer),
                                plan.layers[layer].strategy, stage);
      sum += times.refusal.empty() ? static_cast<double>(times.nosync)
                                   : std::numeric_limits<double>::infinity();
    }
    return sum;
  };
  std::vector<size_t> may(recomputed[stage]);
  for (size_t layer : current.stages[stage].layers())
    if (const Strategy &own = given[layer].strategy;
        !own.checkpoint() && own.point() == 0 && mayChange(layer) &&
        !is_contained(recomputed[stage], layer))
      may.push_back(layer);
  Plan other = current;
  double least = secondsOf(current);
  for (int64_t point = 1; point <= points && !context.stopped(); ++point) {
    if (!giveFewest(other, stage, may,
                    [&](const Strategy &own) { return own.withPoint(point); }))
      continue;
    double seconds = secondsOf(other);
    if (seconds >= least)
      continue;
    least = seconds;
    current = other;
  }
}

Plan StageRepair::finish() && {
  for (size_t stage = 0; stage < added.size(); ++stage) {
    giveFewest(current, stage, added[stage],
               [](const Strategy &own) { return own.withCheckpoint(true); });
    keepPoints(stage);
  }
  return std::move(current);
}

} // namespace galvatron::planner
