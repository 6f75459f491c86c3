//===- LeastTimes.cpp - Lower bounds of executed steps, as problems -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A lower bound of a simulated step in the form that Search/ minimises, sums
// over layers: what it proves of all plans of a shape holds for the executed
// time. Stages 0 to P - 1 take at least f and b for a micro-batch, c = f + b,
// and hold k of them. Under 1F1B stage i ends its last backward pass no earlier
// than
//
//   sum c + (m-1) c_r - (k_r - 1) f_r - sum_{j<i} b_j         for any r >= i,
//   sum c + (m-1) c_r - (k_r - 1) b_r - sum_{j<i} b_j         for any r < i:
//
// stage r is busy or waits for the first micro-batch to come back, before which
// it can do no more than k_r - 1 further forwards; or its last forward, before
// which it has done m - k_r backwards, goes to the last stage and back to i.
// With more micro-batches than stages, stage r waits twice: between its first
// forward and the first backward, while S = sum_{j>r} c_j goes by and it has
// k_r - 1 forwards to do, and between its last forward and the last backward,
// with k_r - 1 backwards. So, for any i and r, that end is also no earlier than
//
//   sum c + (m - k_r) c_r + sum_{j>r} c_j - sum_{j<i} b_j.
//
// Some mean of these over the stages up to r (weights q_j with q_0 = 0, if r is
// not 0, and q_j (m - k_j) + sum_{l<j} q_l = 1 for 0 < j < r) is sum c + (m -
// P) c_r + sum_{j>0} c_j - sum_{j<i} b_j, for any r, which is exact where
// stages are alike. Any mean (`waits`) of that and the bounds above is one,
// too. Messages are times of the stage that sends them in all of this.
//
// Behind that come the stage's sums of gradients and its norm, and, once all
// norms have met, the longest update. A mean over the stages is no more than
// the longest. Under GPipe stage 0 ends after both phases.
//
//===----------------------------------------------------------------------===//

#include "Candidate.h"

#include "galvatron/Schedule/Schedule.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

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
  least.beside = computed + parts.tpRecompute + parts.tpBackward;
  least.besideScatter = std::min(computed, parts.scatter);
  least.scatter = parts.scatter;
  least.sync = parts.sync;
  least.end = parts.norm + parts.update;
  least.update = parts.update;
  return least;
}

namespace {

/// Whole picoseconds, none too many.
Picoseconds floorPicoseconds(double seconds) {
  return std::max<Picoseconds>(0, toPicoseconds(seconds) - 1);
}

/// What is saved of a layer's gather hides behind the layer before it, which
/// has the same sample layout: at most (2 - s) min(x, y) of a gather y beside
/// computation x. With the longest gather z of the layout that is no more than
/// (2 - s) (min(typical, y) + max(0, min(x, z) - typical)), of which the first
/// belongs to the gathered layer and the second to the one that computes.
struct Hiding {
  const StrategySet *set = nullptr; ///< of the stage
  double part = 0;                  ///< 2 - s
  /// By layout class: typical computation, and the longest gather.
  std::vector<double> forward, backward;
  std::vector<double> longestForward, longestBackward;

  static double hidden(double computes, double gathers, double typical,
                       double longest) {
    return std::min(typical, gathers) +
           std::max(0.0, std::min(computes, longest) - typical);
  }
};

/// Least times of one layer under one strategy.
struct Least {
  double forward, backward;
  /// Of backward what sums of gradients may still hide behind: the last pass
  /// and they take no less than computation and communication overlapped.
  double behind;
};

class LeastTimes {
public:
  LeastTimes(LayerModel &model, CostTables &tables, const Shape &shape)
      : model(model), tables(tables), shape(shape), layout(*shape.layout) {
    std::map<size_t, size_t> counts;
    for (size_t l = 0; l < model.layerCount(); ++l)
      ++counts[model.kindOf(l)];
    layersOfKind.assign(counts.begin(), counts.end());
  }

  const KindOptions &options(size_t kind, size_t stage) const {
    return tables.kindOptions(kind, layout, stage, shape.samples(),
                              shape.microBatches);
  }
  const std::vector<KindOption> &pointsOf(const KindOption &plain, size_t kind,
                                          size_t stage) const {
    return tables.pointOptions(kind, layout, stage, shape.samples(),
                               shape.microBatches, plain);
  }
  Least of(const KindOption &option, const Hiding &hiding) const {
    const LeastParts &parts = option.least;
    size_t layoutClass = hiding.set->classOf[option.strategy];
    double forward = hiding.hidden(parts.forward, parts.forwardAhead,
                                   hiding.forward[layoutClass],
                                   hiding.longestForward[layoutClass]);
    double backward = hiding.hidden(parts.beside, parts.backwardAhead,
                                    hiding.backward[layoutClass],
                                    hiding.longestBackward[layoutClass]);
    if (hiding.part == 0)
      backward = 0;
    return {parts.forward + parts.forwardAhead - hiding.part * forward,
            parts.backward + parts.backwardAhead - hiding.part * backward,
            std::max(0.0, parts.beside - parts.besideScatter - backward)};
  }

  /// Of an option and all its points no more than any of them takes, in every
  /// form. A point computes longer in backward, and no part of its time is less
  /// (CostTables::pointOptions()): so its bounds are no less, unless more of a
  /// gather hides behind computation that runs beside the layer's own scatter,
  /// which is as if nothing had run beside that before.
  Least withPoints(const KindOption &option, const Hiding &hiding) const {
    if (!tables.pricesPoints() ||
        hiding.set->pointsOf[option.strategy].empty() ||
        option.least.besideScatter >= option.least.scatter)
      return of(option, hiding);
    KindOption longer = option;
    longer.least.beside += option.least.scatter - option.least.besideScatter;
    longer.least.besideScatter = option.least.scatter;
    return of(longer, hiding);
  }

  /// The typical layer of a class computes as long as one whose gathers are
  /// most of the class's, where that says more than the fastest of the slowest
  /// kind, recomputation included. Whatever is typical, the bound holds.
  Hiding hidingOn(size_t stage) const {
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
      slowBackward = std::max(slowBackward,
                              std::isfinite(recomputed) ? recomputed : plain);
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

  /// Of each class, whichever typical time lets less be hidden: the given one,
  /// or that of the option whose gathers of all layers of its kind are longest.
  void chooseTypical(std::vector<double> &typical, ArrayRef<double> longest,
                     const Hiding &hiding, size_t stage,
                     double LeastParts::*computes,
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

  /// Whether layers that sum their gradients do that longer than so many
  /// backward passes of a micro-batch take.
  bool sumsLongerThan(double passes) const {
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

  LayerModel &model;
  CostTables &tables;
  const Shape &shape;
  const Layout &layout;
  std::vector<std::pair<size_t, size_t>> layersOfKind; ///< kind, layers
};

/// Whether all forwards come before all backwards. Then they are charged one by
/// one, and slots let nothing be done ahead.
bool hasPhases(const Schedule &schedule) { return schedule.name() == "gpipe"; }

/// Micro-batches of which a stage may do the forwards ahead, and one.
double slotsAhead(const Shape &shape, size_t stage) {
  auto role = static_cast<int64_t>(stage);
  return hasPhases(*shape.schedule)
             ? 1
             : static_cast<double>(shape.schedule->slots(
                   {shape.degree(), shape.microBatches}, role));
}

/// In how many periods of the slowest stage a move counts: those in which its
/// slots do not let it go on without it.
double periodsOfMoves(const Shape &shape, size_t stage, double waits) {
  auto count = static_cast<double>(shape.microBatches);
  double periods = (1 - waits) * (count - slotsAhead(shape, stage)) +
                   waits * (count - static_cast<double>(shape.degree()));
  return std::max(0.0, periods);
}

/// Which part of a move of a stage counts for each micro-batch. Of stages that
/// are not the slowest it counts `once`.
double partOfMoves(const Shape &shape, size_t stage, double once,
                   double waits) {
  auto count = static_cast<double>(shape.microBatches);
  double periods = periodsOfMoves(shape, stage, waits);
  return std::max(0.0, std::min(once, (periods + once) / count));
}

/// How often a message counts: `each` in the times of a micro-batch, and
/// `once`, of what it takes at least, for every pipeline.
struct MessageParts {
  double each = 0, once = 0;
};

/// Of stages that are not the slowest a message counts `once`, which is more
/// than in every period of the slowest one. What it takes at least counts so
/// for all stages, and the rest as in a period: or all in one part that is none
/// too much for the slowest, which says more where the least says little.
MessageParts partsOfMessages(const Shape &shape, size_t stage, double once,
                             double waits, double least, double usual) {
  auto count = static_cast<double>(shape.microBatches);
  auto others = static_cast<double>(shape.degree() - 1);
  bool phases = hasPhases(*shape.schedule);
  double periods = phases ? 0 : periodsOfMoves(shape, stage, waits);
  double together = std::min(once, (periods + once) / count);
  if (count == 1)
    return {once, 0};
  double each = std::min(once, periods / (count - 1));
  double rest = once - each;
  double more = others * (rest * least - (together - each) * usual);
  return more > rest * (usual - least) ? MessageParts{each, rest}
                                       : MessageParts{together, 0};
}

/// How a stage's times enter the sums.
struct StageWeights {
  /// Of the stage's end, and of the ends of later stages, which come by its
  /// last backward pass earlier.
  double own = 0, later = 0;
  /// Part of a forward (for stages that come later: of a backward) that the
  /// stage may have done ahead, spread over m - 1 micro-batches.
  double ahead = 0;
  /// How often stages in front wait for a pass of it besides.
  double awaited = 0;
  /// Of the stage's update.
  double update = 0;
  bool streams = false;

  auto tied() const {
    return std::tie(own, later, ahead, awaited, update, streams);
  }
  /// What is saved by computation that sums of gradients run beside, in a last
  /// backward pass: (2 - s) of it at the stage's end, less (s - 1) where ends
  /// of stages in front count that wait for the pass.
  double saved(double slowdown, double waits) const {
    double waiting = 1 - own - later; // ends of stages in front
    return std::max(0.0,
                    own * (2 - slowdown) - waits * (slowdown - 1) * waiting);
  }
  bool operator<(const StageWeights &other) const {
    return tied() < other.tied();
  }
};

} // namespace

bool LeastForm::countsBusy(const Schedule &schedule) {
  return schedule.delay({}) > 0 || schedule.splitsBackward();
}

bool LeastForm::knows(const Schedule &schedule) {
  return schedule.name() == "1f1b" || hasPhases(schedule) ||
         countsBusy(schedule);
}

bool LeastForm::hasWeights(const Shape &shape) {
  return shape.degree() > 1 && !hasPhases(*shape.schedule) &&
         !countsBusy(*shape.schedule);
}

bool LeastForm::hasWaits(const Shape &shape) {
  return hasWeights(shape) && shape.schedule->name() == "1f1b" &&
         shape.microBatches > shape.degree();
}

LeastForm LeastForm::first(LayerModel &model, CostTables &tables,
                           const Shape &shape) {
  // Where there are many micro-batches a backward pass is little.
  constexpr int64_t many = 4;
  LeastTimes least(model, tables, shape);
  LeastForm form;
  form.hidesSums =
      least.sumsLongerThan(0) &&
      llvm::any_of(shape.layout->backend,
                   [](const BackendTraits &b) { return b.streams; });
  if (least.sumsLongerThan(1))
    form.behindBackward =
        shape.degree() > 1 || shape.microBatches >= many ? 1 : 0.5;
  // Groups that are not alike are not told by what alike ones wait.
  form.waits = hasWaits(shape) && shape.layout->hasEqualGroups() ? 1 : 0;
  // Where sums take long the ends of several stages come late.
  constexpr size_t some = 4;
  constexpr double someAbove = 6.5;
  if (hasWeights(shape)) {
    if (least.sumsLongerThan(someAbove))
      form.ends = std::min<size_t>(shape.degree(), some);
    form.updatesAtEnds = form.ends > 1 ? 0.5 : 0;
  }
  form.setWeights(shape);
  return form;
}

void LeastForm::setWeights(const Shape &shape) {
  size_t stages = shape.degree();
  weights.assign(stages, 0);
  double sum = static_cast<double>(ends * (ends + 1)) / 2;
  for (size_t s = 0; s < ends; ++s)
    weights[s] = static_cast<double>(ends - s) / sum;
  updates.clear();
  for (double weight : weights)
    updates.push_back(updatesAtEnds * weight +
                      (1 - updatesAtEnds) / static_cast<double>(stages));
}

bool LeastForm::apply(Change change, const Shape &shape) {
  size_t stages = shape.degree();
  switch (change) {
  case MoreEnds:
    if (ends == stages || !hasWeights(shape))
      return false;
    ends = std::min(2 * ends, stages);
    break;
  case FewerEnds:
    if (ends == 1)
      return false;
    ends = (ends + 1) / 2;
    break;
  case UpdatesAtEnds:
    if (updatesAtEnds == 1 || !hasWeights(shape))
      return false;
    updatesAtEnds += 0.5;
    break;
  case LessWaiting:
    if (waits == 0)
      return false;
    waits -= 0.5;
    break;
  case MoreBehind:
    if (behindBackward == 1 || !hidesSums)
      return false;
    behindBackward += 0.5;
    break;
  case LessBehind:
    if (behindBackward == 0 || !hidesSums)
      return false;
    behindBackward -= 0.5;
    break;
  case MoreWaiting:
    if (waits == 1 || !hasWaits(shape))
      return false;
    waits += 0.5;
    break;
  }
  setWeights(shape);
  return true;
}

Candidate::StageEnds Candidate::endsOf(const PipelineSolution &solution) const {
  StageEnds found;
  double before = 0;
  size_t layer = 0;
  for (size_t s = 0; s < solution.partition.size(); ++s) {
    double end = 0, backward = 0, update = 0;
    for (int64_t i = 0; i < solution.partition[s]; ++i, ++layer) {
      const LeastEnd &own = leastEnds[setOf(s, layer)][solution.choice[layer]];
      end += own.end;
      backward += own.backward;
      update += own.update;
    }
    found.ends.push_back(end - before);
    found.updates.push_back(update);
    before += backward;
  }
  return found;
}

bool Candidate::makeTimesLeast(LayerModel &model, CostTables &tables,
                               const LeastForm &form, Picoseconds atMost) {
  LeastTimes least(model, tables, theShape);
  const Layout &layout = *theShape.layout;
  PipelineProblem &problem = theProblem;
  size_t stages = problem.stages.size();
  auto count = static_cast<double>(theShape.microBatches);
  auto slotsOf = [&](size_t stage) { return slotsAhead(theShape, stage); };
  double waitingPart = form.waits > 0 ? (count - static_cast<double>(stages)) /
                                            std::max(count - 1, 1.0)
                                      : 0;
  const std::vector<size_t> &contentions =
      tables.contentionsOf(layout, theShape.microBatches);

  PipelineProblem old = std::move(problem);
  problem = PipelineProblem();
  problem.microBatches = old.microBatches;
  problem.classes = old.classes;
  problem.boundaries = old.boundaries;
  problem.boundaryBehind = old.boundaryBehind;
  strategyOf.clear();
  auto scaled = [&](size_t matrix, double part) {
    std::vector<Picoseconds> times;
    for (Picoseconds time : old.matrices[matrix])
      times.push_back(static_cast<Picoseconds>(
          std::floor(static_cast<double>(time) * std::max(0.0, part))));
    return times;
  };

  struct Priced {
    PipelineOption option;
    size_t strategy;
    LeastEnd end;
  };
  auto keep = [&](const Priced &priced) {
    problem.optionSets.back().push_back(priced.option);
    strategyOf.back().push_back(priced.strategy);
    leastEnds.back().push_back(priced.end);
  };
  std::map<std::tuple<size_t, size_t, size_t, StageWeights>, size_t> placeIndex;
  std::map<std::pair<size_t, size_t>, Hiding> hidings;
  for (size_t s = 0; s < stages; ++s) {
    size_t firstStrategy = layout.own[s].strategy;
    StageWeights weights;
    weights.streams = layout.backend[s].streams;
    weights.own = form.weights[s];
    for (size_t i = s + 1; i < stages; ++i)
      weights.later += form.weights[i];
    if (theShape.microBatches > 1 && form.waits < 1)
      weights.ahead = (slotsOf(s) - 1) / (count - 1);
    weights.awaited = s > 0 ? form.waits : 0;
    weights.update = form.updates[s];
    PipelineStage stage = old.stages[s];
    auto [it, fresh] = placeIndex.try_emplace(
        {layout.place[s], layout.movePlace[s], contentions[s], weights},
        placeIndex.size());
    size_t oldPlace = stage.place;
    stage.place = it->second;
    problem.stages.push_back(stage);
    if (!fresh)
      continue;

    auto [hidingAt, isNewSort] =
        hidings.try_emplace({layout.place[s], contentions[s]});
    if (isNewSort)
      hidingAt->second = least.hidingOn(s);
    const Hiding &hiding = hidingAt->second;
    StageShape shape = stageShape(s);
    problem.layers.emplace_back();
    problem.layers.back().reserve(model.layerCount());
    std::map<std::tuple<size_t, std::optional<size_t>, bool, bool>, size_t>
        setOfKind;
    double slowdown = 1;
    for (size_t l = 0; l < model.layerCount(); ++l) {
      std::optional<size_t> pin = layout.set->pinOf(l);
      // The first stage's sums of the first layer begin behind the whole pass,
      // and the last stage's none before the last layer's part of it is done.
      bool isFirst = l == 0, isLast = l + 1 == model.layerCount();
      auto [known, isNew] = setOfKind.try_emplace(
          {model.kindOf(l), pin, isFirst, isLast}, problem.optionSets.size());
      problem.layers.back().push_back(known->second);
      if (!isNew)
        continue;
      const KindOptions &kind = least.options(model.kindOf(l), s);
      if (tables.incomplete())
        return true;
      slowdown = std::max(slowdown, kind.slowdown);
      problem.optionSets.emplace_back();
      strategyOf.emplace_back();
      leastEnds.emplace_back();
      problem.optionSets.back().reserve(kind.options.size());
      strategyOf.back().reserve(kind.options.size());
      leastEnds.back().reserve(kind.options.size());
      // Nothing if that would be negative.
      auto price = [&](const KindOption &from,
                       Least time) -> std::optional<Priced> {
        size_t strategy = firstStrategy + from.strategy;
        double both = time.forward + time.backward, sync = from.least.sync;
        // Of the end: what counts, and what would if no other end did.
        double atEnd = weights.own * sync, alone = sync;
        if (weights.streams) {
          double hidden = (isLast ? 0 : form.behindBackward * time.behind) +
                          (isFirst ? 0 : (1 - form.behindBackward) * sync);
          atEnd -= weights.saved(kind.slowdown, form.waits) * hidden;
          alone -= (2 - kind.slowdown) * hidden;
        }
        double rest = from.least.end - from.least.update;
        atEnd += weights.own * rest + weights.update * from.least.update;
        PipelineOption option;
        option.layoutClass =
            old.classes > 1 ? layout.set->classOf[strategy] : 0;
        double atAll = (1 + weights.awaited) * both -
                       weights.later * time.backward + atEnd;
        if (atAll < 0)
          return std::nullopt;
        option.time = floorPicoseconds(atAll);
        double period =
            both - weights.ahead * ((1 - weights.later) * time.forward +
                                    weights.later * time.backward);
        option.nosync = floorPicoseconds((1 - form.waits) * period +
                                         form.waits * waitingPart * both);
        setMemory(option, from, shape, stage);
        return Priced{option,
                      strategy,
                      {time.backward * 1e12, (alone + rest) * 1e12,
                       from.least.update * 1e12}};
      };
      std::optional<Priced> fastest; ///< of those that take too long
      // False if it has no price.
      auto add = [&](const KindOption &from) {
        if (!layout.set->allows(pin, firstStrategy + from.strategy))
          return true;
        std::optional<Priced> priced = price(from, least.of(from, hiding));
        if (!priced)
          return false;
        Picoseconds cost = problem.leastCost(priced->option);
        if (cost <= atMost)
          keep(*priced);
        else if (!fastest || cost < problem.leastCost(fastest->option))
          fastest = priced;
        return true;
      };
      auto mayHavePoints = [&](const KindOption &plain) {
        std::optional<Priced> floor =
            price(plain, least.withPoints(plain, hiding));
        return !floor || problem.leastCost(floor->option) <= atMost;
      };
      // Counted as nothing it would be too much.
      if (!llvm::all_of(kind.options, add))
        return false;
      for (const KindOption &plain : kind.options)
        if (!pin && mayHavePoints(plain) &&
            !llvm::all_of(least.pointsOf(plain, model.kindOf(l), s), add))
          return false;
      // On another place the layer may take less.
      if (problem.optionSets.back().empty() && fastest)
        keep(*fastest);
    }

    // Reshards wait like computation does. Gathers and scatters end before one
    // begins (no layer next to one is gathered ahead), and sums of gradients
    // run beside those of the last backward pass only.
    double part = partOfMoves(theShape, s, 1 - weights.later + weights.awaited,
                              form.waits);
    if (weights.streams)
      part -= form.behindBackward * weights.saved(slowdown, form.waits) /
              (stages == 1 ? count : 1.0);
    std::map<size_t, size_t> known;
    problem.transforms.emplace_back();
    for (size_t matrix : old.transforms[oldPlace]) {
      auto [at, isNew] = known.try_emplace(matrix, problem.matrices.size());
      if (isNew)
        problem.matrices.push_back(scaled(matrix, part));
      problem.transforms.back().push_back(at->second);
    }
  }
  // A stage's messages count once, those of gradients as far as the stages
  // whose ends count wait for them, and in the periods that its slots leave.
  std::map<std::pair<size_t, double>, size_t> parts;
  auto partOf = [&](size_t matrix, double part) {
    auto [it, fresh] =
        parts.try_emplace({matrix, part}, problem.matrices.size());
    if (fresh)
      problem.matrices.push_back(scaled(matrix, part));
    return it->second;
  };
  std::vector<Picoseconds> leastOf; ///< by matrix
  for (const std::vector<Picoseconds> &matrix : old.matrices)
    leastOf.push_back(*llvm::min_element(matrix));
  double later = 1, always = 0;
  for (size_t s = 0; s + 1 < stages; ++s) {
    later -= form.weights[s];
    problem.cutPlace.push_back(s);
    problem.cuts.emplace_back();
    const std::vector<PipelineCut> &cuts = old.cuts[old.cutPlace[s]];
    problem.cuts.back().reserve(cuts.size());
    auto partsOf = [&](size_t PipelineCut::*message, double once,
                       size_t stage) {
      if (stage > 0)
        once += form.waits;
      Picoseconds least = kNoBound, usual = 0;
      for (size_t l = s; l + stages <= cuts.size() + 1 + s; ++l) {
        least = std::min(least, leastOf[cuts[l].*message]);
        usual = std::max(usual, leastOf[cuts[l].*message]);
      }
      MessageParts found = partsOfMessages(theShape, stage, once, form.waits,
                                           static_cast<double>(least),
                                           static_cast<double>(usual));
      always += found.once * static_cast<double>(least);
      return found.each;
    };
    double there = partsOf(&PipelineCut::activation, 1, s);
    double back = partsOf(&PipelineCut::gradient, 1 - later, s + 1);
    for (size_t l = 0; l < cuts.size(); ++l) {
      // Most layers send on as much as the one before.
      if (l > 0 && cuts[l].activation == cuts[l - 1].activation &&
          cuts[l].gradient == cuts[l - 1].gradient)
        problem.cuts.back().push_back(problem.cuts.back().back());
      else
        problem.cuts.back().push_back({partOf(cuts[l].activation, there),
                                       partOf(cuts[l].gradient, back)});
    }
  }
  // A tie's owner sums behind its own sums and before its norm, and gives the
  // values behind its update. The first layer is on the first stage.
  for (const PipelineTie &tie : old.ties) {
    if (tie.owner > 0)
      continue;
    Picoseconds least = kNoBound;
    bool isLast = tie.borrower + 1 == model.layerCount();
    for (size_t s = isLast ? stages - 1 : 0; s < stages; ++s)
      least = std::min(least, *llvm::min_element(old.tieTables[tie.table[s]]));
    always +=
        std::min(form.weights[0], form.updates[0]) * static_cast<double>(least);
  }
  // All pipelines have the first layer on the first stage.
  if (auto rounded = static_cast<Picoseconds>(always); rounded > 0) {
    size_t &first = problem.layers[problem.stages[0].place][0];
    std::vector<PipelineOption> options = problem.optionSets[first];
    for (PipelineOption &option : options)
      option.time += rounded;
    std::vector<size_t> strategies = strategyOf[first];
    std::vector<LeastEnd> ends = leastEnds[first];
    first = problem.optionSets.size();
    problem.optionSets.push_back(std::move(options));
    strategyOf.push_back(std::move(strategies));
    leastEnds.push_back(std::move(ends));
  }
  return true;
}

/// What the busiest stage does at least: m micro-batches with their messages,
/// and what is behind the last one of its sums of gradients and its update.
bool Candidate::makeBusyLeast(LayerModel &model, CostTables &tables,
                              const LeastForm &form, Picoseconds atMost) {
  LeastTimes least(model, tables, theShape);
  const Layout &layout = *theShape.layout;
  PipelineProblem &problem = theProblem;
  auto count = static_cast<double>(theShape.microBatches);
  bool goesOn = theShape.schedule->delay({}) > 0;
  problem.microBatches = 1;
  problem.slowestAlone = true;
  // Ties take time that is not counted.
  problem.ties.clear();
  problem.tieTables.clear();
  for (std::vector<PipelineOption> &set : problem.optionSets)
    for (PipelineOption &option : set)
      option.tieKey = 0;
  problem.tieKeys = 1;
  leastEnds.clear();
  std::vector<char> seen(problem.optionSets.size(), 0);
  std::vector<double> reshardPart(problem.layers.size(), 0);
  for (size_t s = 0; s < problem.stages.size(); ++s) {
    size_t place = problem.stages[s].place;
    Hiding hiding = least.hidingOn(s);
    bool streams = layout.backend[s].streams;
    double slowdown = 1;
    for (size_t l = 0; l < model.layerCount(); ++l) {
      size_t set = problem.layers[place][l];
      const KindOptions &kind = least.options(model.kindOf(l), s);
      if (tables.incomplete())
        return true;
      slowdown = std::max(slowdown, kind.slowdown);
      if (std::exchange(seen[set], 1))
        continue;
      std::map<size_t, const KindOption *> byStrategy;
      for (const KindOption &plain : kind.options) {
        byStrategy[layout.own[s].strategy + plain.strategy] = &plain;
        for (const KindOption &point :
             least.pointsOf(plain, model.kindOf(l), s))
          byStrategy[layout.own[s].strategy + point.strategy] = &point;
      }
      std::vector<PipelineOption> kept;
      std::vector<size_t> strategies;
      std::optional<std::pair<PipelineOption, size_t>> fastest;
      for (auto [option, strategy] :
           zip_equal(problem.optionSets[set], strategyOf[set])) {
        const KindOption &from = *byStrategy.at(strategy);
        Least time = least.of(from, hiding);
        double sync = from.least.sync;
        if (streams)
          sync -= (2 - kind.slowdown) * (form.behindBackward * time.behind +
                                         (1 - form.behindBackward) * sync);
        double busy = count * (time.forward + time.backward) + sync +
                      (goesOn ? from.least.update : from.least.end);
        // Counted as nothing it would be too much.
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
      // On another place the layer may take less.
      if (kept.empty() && fastest) {
        kept.push_back(fastest->first);
        strategies.push_back(fastest->second);
      }
      problem.optionSets[set] = std::move(kept);
      strategyOf[set] = std::move(strategies);
    }
    // Sums may run beside those of the last backward pass.
    double part = count;
    if (streams)
      part -= form.behindBackward * (2 - slowdown);
    reshardPart[place] = std::max(0.0, part);
  }
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
  return true;
}

std::unique_ptr<Candidate>
Candidate::makeLeast(LayerModel &model, CostTables &tables, const Shape &shape,
                     const LeastForm &form, Picoseconds atMost,
                     std::string &refusal, Moves moves) {
  std::unique_ptr<Candidate> candidate;
  auto makeWith = [&](const LeastForm &with) {
    // Sums over layers choose their options themselves.
    bool busy = LeastForm::countsBusy(*shape.schedule);
    candidate = makeIn(StepForm::Drain, model, tables, shape, refusal,
                       /*fewest=*/0, /*transfers=*/moves == Moves::All,
                       busy ? std::optional(kNoBound) : std::nullopt);
    if (!candidate)
      return true;
    if (moves == Moves::LeastCuts)
      candidate->addLeastCuts(model, tables);
    if (tables.incomplete())
      return true;
    return busy ? candidate->makeBusyLeast(model, tables, with, atMost)
                : candidate->makeTimesLeast(model, tables, with, atMost);
  };
  // Without hiding no time is below 0.
  LeastForm without = form;
  without.behindBackward = 0;
  if (!makeWith(form) && !makeWith(without))
    return nullptr;
  if (!candidate)
    return nullptr;
  if (tables.incomplete())
    return nullptr;
  if (Error error = candidate->theProblem.check()) {
    refusal = toString(std::move(error));
    return nullptr;
  }
  return candidate;
}

/// A mean of the bounds of 1F1B in which stages wait for those behind them,
/// sum_j (1 + p_j) c_j: p_j by stage, given what the whole model takes on each,
/// such that (1 + p_j) times that is the same for all as far as it can be.
static std::vector<double> awaitedParts(const Shape &shape,
                                        ArrayRef<double> wholes) {
  size_t stages = wholes.size();
  auto count = static_cast<double>(shape.microBatches);
  std::vector<double> parts(stages, 0);
  // The weights of the mean, added up, which grow with `level`.
  auto weightsFor = [&](double level) {
    double sum = 0;
    for (size_t j = 0; j < stages; ++j) {
      double periods = count - static_cast<double>(stages - j);
      double weight = std::max(0.0, level / wholes[j] - 1 - sum) / periods;
      parts[j] = weight * periods + sum;
      sum += weight;
    }
    return sum;
  };
  // The mean of all has parts of (m - 1) / P where stages are alike.
  double low = 0, high = *llvm::max_element(wholes) * (count + 1);
  for (int i = 0; i < 50; ++i) {
    double level = (low + high) / 2;
    (weightsFor(level) <= 1 ? low : high) = level;
  }
  weightsFor(low);
  return parts;
}

/// The slowest stage r takes c_r (1 - a_r) with a_r of it done ahead: at least
/// any mean of that over the stages. Stages of the weight 1 / (T_r (1 - a_r)),
/// where T_r is what the whole model takes there, count alike.
Picoseconds leastFreeTime(LayerModel &model, CostTables &tables,
                          const Shape &shape, bool cuts) {
  LeastTimes least(model, tables, shape);
  const Layout &layout = *shape.layout;
  const std::vector<size_t> &contentions =
      tables.contentionsOf(layout, shape.microBatches);
  struct Sort {
    std::vector<double> fastest; ///< by place in layersOfKind
    double whole = 0;
  };
  std::map<std::pair<size_t, size_t>, Sort> sorts;
  double forwardPart = 0;
  for (size_t s = 0; s < layout.place.size(); ++s) {
    auto [it, fresh] = sorts.try_emplace({layout.place[s], contentions[s]});
    if (!fresh)
      continue;
    Sort &sort = it->second;
    Hiding hiding = least.hidingOn(s);
    for (auto [kind, layers] : least.layersOfKind) {
      const KindOptions &options = least.options(kind, s);
      if (tables.incomplete())
        return 0;
      if (options.options.empty())
        return kNoBound;
      double fastest = std::numeric_limits<double>::infinity();
      for (const KindOption &option : options.options) {
        Least time = least.withPoints(option, hiding);
        double both = time.forward + time.backward;
        fastest = std::min(fastest, both);
        if (both > 0)
          forwardPart = std::max(forwardPart, time.forward / both);
      }
      sort.fastest.push_back(fastest);
      sort.whole += static_cast<double>(layers) * fastest;
    }
  }
  auto count = static_cast<double>(shape.microBatches);
  bool countsBusy = LeastForm::countsBusy(*shape.schedule);
  double weights = 0;
  std::vector<double> weightOf, wholes;
  for (size_t s = 0; s < layout.place.size(); ++s) {
    double ahead = 0;
    if (shape.microBatches > 1 && !countsBusy)
      ahead = (slotsAhead(shape, s) - 1) / (count - 1) * forwardPart;
    double whole = sorts[{layout.place[s], contentions[s]}].whole;
    if (whole <= 0)
      return 0;
    weightOf.push_back(1 / (std::max(1 - ahead, 1e-9) * whole));
    weights += weightOf.back();
    wholes.push_back(whole);
  }
  std::vector<double> awaited;
  if (LeastForm::hasWaits(shape))
    awaited = awaitedParts(shape, wholes);
  double sum = 0, mean = 0, waiting = 0;
  for (size_t k = 0; k < least.layersOfKind.size(); ++k) {
    double fastest = std::numeric_limits<double>::infinity();
    double share = fastest;
    for (const auto &[key, sort] : sorts) {
      fastest = std::min(fastest, sort.fastest[k]);
      share = std::min(share, sort.fastest[k] / sort.whole);
    }
    auto layers = static_cast<double>(least.layersOfKind[k].second);
    sum += layers * fastest;
    mean += layers * share / weights;
    double least = std::numeric_limits<double>::infinity();
    for (size_t s = 0; s < awaited.size(); ++s)
      least = std::min(least,
                       (1 + awaited[s]) *
                           sorts[{layout.place[s], contentions[s]}].fastest[k]);
    if (!awaited.empty())
      waiting += layers * least;
  }
  if (cuts && !countsBusy) {
    std::vector<CostTables::LeastMove> moves = leastCuts(model, tables, shape);
    if (tables.incomplete())
      return 0;
    for (size_t s = 0; s < moves.size(); ++s) {
      if (!awaited.empty())
        waiting +=
            (1 + awaited[s]) * toMilliseconds(moves[s].activation) * 1e-3 +
            (1 + awaited[s + 1]) * toMilliseconds(moves[s].gradient) * 1e-3;
      double there = toMilliseconds(moves[s].activation) * 1e-3;
      double back = toMilliseconds(moves[s].gradient) * 1e-3;
      sum += there + back;
      if (hasPhases(*shape.schedule) || count == 1)
        continue;
      there *= periodsOfMoves(shape, s, /*waits=*/0) / (count - 1);
      back *= periodsOfMoves(shape, s + 1, /*waits=*/0) / (count - 1);
      mean += (weightOf[s] * there + weightOf[s + 1] * back) / weights;
    }
  }
  if (countsBusy)
    return floorPicoseconds(count * mean);
  return floorPicoseconds(std::max(waiting, sum + (count - 1) * mean));
}

} // namespace galvatron::planner
