//===- LeastTimes.cpp - Least times of layers and stages ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LeastTimes.h"

#include "galvatron/Schedule/Schedule.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

using namespace llvm;

namespace galvatron::planner {

LeastParts LeastParts::of(const LayerTimeParts &parts,
                          const LayerFootprint &footprint) {
  LeastParts least;
  double computed = parts.recompute + parts.backward;
  least.forward = parts.forward + parts.tpForward;
  least.backward = parts.tpRecompute + parts.tpBackward +
                   overlapSeconds(computed, parts.scatter, parts.slowdown);
  (footprint.forwardGathered > 0 ? least.forwardAhead : least.forward) +=
      parts.gather;
  (footprint.backwardGathered > 0 ? least.backwardAhead : least.backward) +=
      parts.gather;
  least.beside = std::max(0.0, computed - parts.scatter) + parts.tpRecompute +
                 parts.tpBackward;
  least.sync = parts.sync;
  least.end = parts.norm + parts.update;
  least.update = parts.update;
  return least;
}

Picoseconds floorPicoseconds(double seconds) {
  return std::max<Picoseconds>(0, toPicoseconds(seconds) - 1);
}

LeastTimes::LeastTimes(CostTables &tables, const Shape &shape)
    : model(tables.layerModel()), tables(tables), shape(shape),
      layout(*shape.layout), count(static_cast<double>(shape.microBatches)) {
  std::map<size_t, size_t> counts;
  for (size_t l = 0; l < model.layerCount(); ++l)
    ++counts[model.kindOf(l)];
  layersOfKind.assign(counts.begin(), counts.end());
}

Least LeastTimes::of(const KindOption &option, const Hiding &hiding,
                     ModelEnds ends) const {
  const LeastParts &parts = option.least;
  size_t layoutClass = hiding.set->classOf[option.strategy];
  double forward = Hiding::hidden(
      parts.forward, parts.forwardAhead, hiding.forward[layoutClass],
      hiding.longestForward[layoutClass], !ends.isFirst, !ends.isLast);
  double backward = Hiding::hidden(
      parts.beside, parts.backwardAhead, hiding.backward[layoutClass],
      hiding.longestBackward[layoutClass], !ends.isLast, !ends.isFirst);
  if (hiding.part == 0)
    backward = 0;
  return {parts.forward + parts.forwardAhead - hiding.part * forward,
          parts.backward + parts.backwardAhead - hiding.part * backward,
          std::max(0.0, parts.beside - backward)};
}

Hiding LeastTimes::hidingOn(size_t stage) const {
  Hiding hiding;
  const StrategySet &set = *layout.own[stage].set;
  hiding.set = &set;
  hiding.longestForward.assign(set.classes.size(), 0);
  hiding.longestBackward.assign(set.classes.size(), 0);
  auto raise = [](double &most, double time) { most = std::max(most, time); };
  bool ahead = false;
  double slowForward = 0, slowBackward = 0;
  for (auto [kind, count] : layersOfKind) {
    const KindOptions &own = options(kind, stage);
    double forward = std::numeric_limits<double>::infinity();
    double plain = forward, recomputed = forward;
    for (const KindOption &option : own.options) {
      bool checkpoint = set.strategies[option.strategy].checkpoint();
      double &backward = checkpoint ? recomputed : plain;
      forward = std::min(forward, option.least.forward);
      backward = std::min(backward, option.least.backward);
      ahead |= option.least.forwardAhead + option.least.backwardAhead > 0;
      size_t layoutClass = set.classOf[option.strategy];
      raise(hiding.longestForward[layoutClass], option.least.forwardAhead);
      raise(hiding.longestBackward[layoutClass], option.least.backwardAhead);
    }
    if (own.options.empty())
      continue;
    hiding.part = std::max(hiding.part, 2 - own.slowdown);
    slowForward = std::max(slowForward, forward);
    slowBackward =
        std::max(slowBackward, std::isfinite(recomputed) ? recomputed : plain);
  }
  hiding.forward.assign(set.classes.size(), slowForward);
  hiding.backward.assign(set.classes.size(), slowBackward);
  if (!ahead)
    hiding.part = 0;
  if (hiding.part > 0) {
    chooseTypical(hiding.forward, hiding.longestForward, hiding, stage,
                  &LeastParts::forward, &LeastParts::forwardAhead);
    chooseTypical(hiding.backward, hiding.longestBackward, hiding, stage,
                  &LeastParts::beside, &LeastParts::backwardAhead);
  }
  return hiding;
}

void LeastTimes::chooseTypical(std::vector<double> &typical,
                               ArrayRef<double> longest, const Hiding &hiding,
                               size_t stage, double LeastParts::*computes,
                               double LeastParts::*gathers) const {
  struct Choice {
    double most = 0, time = 0;    ///< of the option's gathers
    double given = 0, chosen = 0; ///< hidden of all options
  };
  std::vector<Choice> choices(typical.size());
  auto visit = [&](auto what) {
    for (auto [kind, count] : layersOfKind)
      for (const KindOption &option : options(kind, stage).options) {
        size_t layoutClass = hiding.set->classOf[option.strategy];
        what(choices[layoutClass], layoutClass, static_cast<double>(count),
             option.least.*computes, option.least.*gathers);
      }
  };
  visit([](Choice &choice, size_t, double count, double x, double y) {
    if (count * y > choice.most) {
      choice.most = count * y;
      choice.time = x;
    }
  });
  visit([&](Choice &choice, size_t number, double count, double x, double y) {
    double z = longest[number];
    choice.given += count * Hiding::hidden(x, y, typical[number], z);
    choice.chosen += count * Hiding::hidden(x, y, choice.time, z);
  });
  for (auto [time, choice] : zip_equal(typical, choices))
    if (choice.chosen < choice.given)
      time = choice.time;
}

bool LeastTimes::sumsLongerThan(double passes) const {
  double sync = 0, backward = 0;
  for (auto [kind, count] : layersOfKind) {
    double most = 0, least = std::numeric_limits<double>::infinity();
    for (const KindOption &option : options(kind, 0).options) {
      most = std::max(most, option.least.sync);
      least = std::min(least, option.least.backward);
    }
    sync += static_cast<double>(count) * most;
    backward += static_cast<double>(count) * (most > 0 ? least : 0);
  }
  return sync > passes * backward;
}

bool hasPhases(const Schedule &schedule) { return schedule.name() == "gpipe"; }

double slotsAhead(const Shape &shape, size_t stage) {
  auto role = static_cast<int64_t>(stage);
  return hasPhases(*shape.schedule)
             ? 1
             : static_cast<double>(shape.schedule->slots(
                   {shape.degree(), shape.microBatches}, role));
}

double periodsOfMoves(const Shape &shape, size_t stage, double waits) {
  auto count = static_cast<double>(shape.microBatches);
  double periods = (1 - waits) * (count - slotsAhead(shape, stage)) +
                   waits * (count - static_cast<double>(shape.degree()));
  return std::max(0.0, periods);
}

} // namespace galvatron::planner
