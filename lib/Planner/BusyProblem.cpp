//===- BusyProblem.cpp - The busiest stage as a problem -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The lower bound of a step of schedules that leave little waiting: what the
// busiest stage does. A problem of costs becomes one of these bounds, which are
// sums over the stage's layers and moves.
//
//===----------------------------------------------------------------------===//

#include "LeastTimes.h"

#include "galvatron/Schedule/Schedule.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

using namespace llvm;

namespace galvatron::planner {

/// Turns a candidate's problem of costs into one of what the busiest stage does
/// at least: m micro-batches with their messages, and what is behind the last
/// one of its sums of gradients and its update.
class Candidate::BusyBuilder : LeastTimes {
public:
  BusyBuilder(Candidate &candidate, const LeastForm &form, Picoseconds atMost)
      : LeastTimes(candidate.tables, candidate.theShape), to(candidate),
        problem(to.theProblem), form(form), atMost(atMost),
        goesOn(shape.schedule->delay({}) > 0),
        seen(problem.optionSets.size(), 0),
        reshardPart(problem.layers.size(), 0) {}

  /// False if an option would have a time below 0. Incomplete if the tables
  /// are.
  bool build();

private:
  void dropTies();
  bool timeStage(size_t stage);
  bool timeSet(size_t set, size_t kind, size_t stage, const Hiding &hiding);
  void sumMoves();

  Candidate &to;
  PipelineProblem &problem;
  const LeastForm &form;
  Picoseconds atMost;
  bool goesOn;                     ///< into the next step without draining
  std::vector<char> seen;          ///< by option set
  std::vector<double> reshardPart; ///< by place, how often reshards count
};

bool Candidate::BusyBuilder::build() {
  problem.microBatches = 1;
  problem.slowestAlone = true;
  dropTies();
  to.leastEnds.clear();
  for (size_t s = 0; s < problem.stages.size(); ++s) {
    if (!timeStage(s))
      return false;
    if (tables.incomplete())
      return true;
  }
  sumMoves();
  return true;
}

/// Ties take time that is not counted.
void Candidate::BusyBuilder::dropTies() {
  problem.ties.clear();
  problem.tieTables.clear();
  for (std::vector<PipelineOption> &set : problem.optionSets)
    for (PipelineOption &option : set)
      option.tieKey = 0;
  problem.tieKeys = 1;
}

bool Candidate::BusyBuilder::timeStage(size_t stage) {
  size_t place = problem.stages[stage].place;
  Hiding hiding = hidingOn(stage);
  double slowdown = 1;
  for (size_t l = 0; l < model.layerCount(); ++l) {
    size_t set = problem.layers[place][l];
    slowdown = std::max(slowdown, options(model.kindOf(l), stage).slowdown);
    if (tables.incomplete())
      return true;
    if (!std::exchange(seen[set], 1) &&
        !timeSet(set, model.kindOf(l), stage, hiding))
      return false;
  }
  // Sums may run beside those of the last backward pass.
  double part = count;
  if (layout.backend[stage].streams)
    part -= form.behindBackward * (2 - slowdown);
  reshardPart[place] = std::max(0.0, part);
  return true;
}

/// Gives the options of a set their times, and leaves out those of more than
/// `atMost`, but for the fastest one: on another place the layer may take less.
/// False if one would be negative: counted as nothing it would be too much.
bool Candidate::BusyBuilder::timeSet(size_t set, size_t kind, size_t stage,
                                     const Hiding &hiding) {
  const KindOptions &own = options(kind, stage);
  size_t firstStrategy = layout.own[stage].strategy;
  std::map<size_t, const KindOption *> byStrategy;
  for (const KindOption &plain : own.options) {
    byStrategy[firstStrategy + plain.strategy] = &plain;
    for (const KindOption &point : pointsOf(plain, kind, stage))
      byStrategy[firstStrategy + point.strategy] = &point;
  }
  std::vector<PipelineOption> kept;
  std::vector<size_t> strategies;
  std::optional<std::pair<PipelineOption, size_t>> fastest;
  for (auto [option, strategy] :
       zip_equal(problem.optionSets[set], to.strategyOf[set])) {
    const KindOption &from = *byStrategy.at(strategy);
    Least time = of(from, hiding);
    double sync = from.least.sync;
    if (layout.backend[stage].streams)
      sync -= (2 - own.slowdown) * (form.behindBackward * time.behind +
                                    (1 - form.behindBackward) * sync);
    double busy = count * (time.forward + time.backward) + sync +
                  (goesOn ? from.least.update : from.least.end);
    if (busy < 0)
      return false;
    option.time = option.nosync = floorPicoseconds(busy);
    if (option.time <= atMost) {
      kept.push_back(option);
      strategies.push_back(strategy);
    } else if (!fastest || option.time < fastest->first.time) {
      fastest = {option, strategy};
    }
  }
  if (kept.empty() && fastest) {
    kept.push_back(fastest->first);
    strategies.push_back(fastest->second);
  }
  problem.optionSets[set] = std::move(kept);
  to.strategyOf[set] = std::move(strategies);
  return true;
}

/// Counts reshards and messages as often as the stage waits for them.
void Candidate::BusyBuilder::sumMoves() {
  std::vector<std::vector<Picoseconds>> matrices;
  auto add = [&](size_t one, size_t other, double part) {
    std::vector<Picoseconds> &times = matrices.emplace_back();
    for (auto [a, b] :
         zip_equal(problem.matrices[one], problem.matrices[other]))
      times.push_back(static_cast<Picoseconds>(
          std::floor(static_cast<double>(std::max(a, b)) * part)));
    return matrices.size() - 1;
  };
  for (auto [place, transforms] : enumerate(problem.transforms)) {
    std::map<size_t, size_t> known;
    for (size_t &matrix : transforms) {
      auto [it, fresh] = known.try_emplace(matrix, 0);
      if (fresh)
        it->second = add(matrix, matrix, reshardPart[place]);
      matrix = it->second;
    }
  }
  // Opposite messages may go at the same time; a step that drains has one
  // message less in front of it.
  double messages = goesOn ? count : count - 1;
  std::map<std::pair<size_t, size_t>, size_t> known;
  for (std::vector<PipelineCut> &place : problem.cuts)
    for (PipelineCut &cut : place) {
      auto [it, fresh] = known.try_emplace({cut.activation, cut.gradient}, 0);
      if (fresh)
        it->second = add(cut.activation, cut.gradient, messages);
      cut.activation = cut.gradient = it->second;
    }
  problem.matrices = std::move(matrices);
}

bool Candidate::makeBusyLeast(const LeastForm &form, Picoseconds atMost) {
  return BusyBuilder(*this, form, atMost).build();
}

} // namespace galvatron::planner
