//===- LeastProblem.cpp - Lower bounds of executed steps, as problems -----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
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
// the longest.
//
// Under GPipe stage i ends its last backward pass no earlier than
//
//   sum c + (m-1) (f_r + b_r) - sum_{j<i} b_j                 for any r >= i,
//   sum c + (m-1) f_r - sum_{j<i} b_j                         for any r < i:
//
// the last stage has the last forward pass behind sum f + (m-1) f_r, and what
// then goes back to i waits for m backward passes of r, if it comes there. So
// under weights w_i a backward pass of r counts m - 1 times in the ends of the
// stages up to r alone.
//
//===----------------------------------------------------------------------===//

#include "LeastTimes.h"

#include "galvatron/Schedule/Schedule.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

using namespace llvm;

namespace galvatron::planner {

/// Part of a move of a stage that counts for each micro-batch. Of stages that
/// are not the slowest it counts `once`.
static double partOfMoves(const Shape &shape, size_t stage, double once,
                          double waits) {
  auto count = static_cast<double>(shape.microBatches);
  double periods = periodsOfMoves(shape, stage, waits);
  return std::max(0.0, std::min(once, (periods + once) / count));
}

/// The weights of a message: `each` in the times of a micro-batch, and `once`,
/// of what it takes at least, for every pipeline.
struct MessageParts {
  double each = 0, once = 0;
};

/// A message counts `once` in stages that are not the slowest, which is more
/// than in every period of the slowest one. What it takes at least counts so
/// for all stages, and the rest as in a period: or all in one part that is none
/// too much for the slowest, which says more where the least says little.
static MessageParts partsOfMessages(const Shape &shape, size_t stage,
                                    double once, double waits, double least,
                                    double usual) {
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

/// The weights with which a stage's times enter the sums.
struct StageWeights {
  /// Weights of the stage's end, and of the ends of later stages, which come by
  /// its last backward pass earlier.
  double own = 0, later = 0;
  /// Part of a forward (for stages that come later: of a backward) that the
  /// stage may have done ahead, spread over m - 1 micro-batches.
  double ahead = 0;
  /// The number of times that stages in front wait for a pass of it besides.
  double awaited = 0;
  /// Weight of the stage's update.
  double update = 0;
  bool streams = false;

  /// The weight of what is saved by computation that sums of gradients run
  /// beside, in a last backward pass: (2 - s) of it at the stage's end, less (s
  /// - 1) where ends of stages in front count that wait for the pass.
  double saved(double slowdown, double waits) const {
    double waiting = 1 - own - later; // ends of stages in front
    return std::max(0.0,
                    own * (2 - slowdown) - waits * (slowdown - 1) * waiting);
  }
  auto operator<=>(const StageWeights &other) const = default;
};

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

/// Turns a candidate's problem of costs into one of the bounds of a form, place
/// by place. A place is what stages share that take the same times.
class Candidate::LeastBuilder : LeastTimes {
public:
  LeastBuilder(Candidate &candidate, const LeastForm &form, Picoseconds atMost)
      : LeastTimes(candidate.tables, candidate.theShape), to(candidate),
        problem(to.theProblem), form(form), atMost(atMost),
        old(std::move(to.theProblem)), stages(old.stages.size()) {}

  /// False if an option would have a time below 0. Incomplete if the tables
  /// are.
  bool build();

private:
  /// The seconds of an option's passes that gathers may run beside, and of its
  /// gathers.
  struct Beside {
    size_t layoutClass = 0; ///< of the strategies of the stage's size
    double forward = 0, forwardGather = 0;
    double backward = 0, backwardGather = 0;

    auto operator<=>(const Beside &other) const = default;
  };
  /// A stage whose place is new, while its options are priced.
  struct Place {
    size_t stage = 0;
    size_t oldPlace = 0; ///< in `old`
    StageWeights weights;
    const Hiding *hiding = nullptr;
    StageShape shape;
    PipelineStage budgets;
    double slowdown = 1; ///< the most of its layers'
  };
  /// One set of options of a place: those of layers of one kind and pin. The
  /// first stage's sums of the first layer begin behind the whole pass, and the
  /// last stage's none before the last layer's part of it is done.
  struct LayerSort {
    size_t kind = 0;
    std::optional<size_t> pin;
    bool isFirst = false, isLast = false;

    auto operator<=>(const LayerSort &other) const = default;
  };
  struct Priced {
    PipelineOption option;
    size_t strategy;
    LeastEnd end;
    Beside beside;
  };
  /// The weights with which seconds that hide beside others enter the time of a
  /// stage's options: in all, and in every further micro-batch of the slowest.
  struct HiddenWeights {
    double forward = 0, backward = 0;
    double forwardEach = 0, backwardEach = 0;
  };

  StageWeights weightsOf(size_t stage) const;
  const Hiding &hidingOn(size_t stage, size_t contention);
  bool addPlace(Place &place);
  bool addOptions(Place &place, const LayerSort &sort, const KindOptions &kind);
  size_t classOf(size_t strategy, const LeastParts &parts);
  std::pair<double, double> periodParts(const StageWeights &weights) const;
  HiddenWeights hiddenWeights(const Place &place) const;
  Picoseconds exposed(const Place &place, double forward,
                      double backward) const;
  void addExposed(const Place &place, size_t former, size_t latter,
                  std::vector<Picoseconds> &times) const;
  std::optional<Priced> price(const Place &place, const LayerSort &sort,
                              double slowdown, const KindOption &from,
                              Least time);
  void keep(const Priced &priced);
  void addExposedAtEnd(const Place &place, size_t set, bool isLast,
                       std::vector<Picoseconds> &times) const;
  void addBoundaries();
  void addReshards(const Place &place);
  void addCuts();
  void addTies();
  void chargeAlways();
  std::vector<Picoseconds> scaled(size_t matrix, double part) const;
  size_t addMatrix(std::vector<Picoseconds> times) {
    problem.matrices.push_back(std::move(times));
    return problem.matrices.size() - 1;
  }

  Candidate &to;
  PipelineProblem &problem;
  const LeastForm &form;
  Picoseconds atMost;
  PipelineProblem old;
  size_t stages;
  double always = 0; ///< what every pipeline takes besides, picoseconds
  /// The key is the number in `contentionsOf()` and the layout's place.
  std::map<std::pair<size_t, size_t>, Hiding> hidings;
  std::vector<Place> places; ///< by place
  /// The classes of the problem: those of `old`, each with and without gathers
  /// that may run ahead.
  std::vector<std::pair<size_t, bool>> classes;
  std::vector<std::vector<Beside>> besides; ///< by option set
};

StageWeights Candidate::LeastBuilder::weightsOf(size_t stage) const {
  StageWeights weights;
  weights.streams = layout.backend[stage].streams;
  weights.own = form.weights[stage];
  for (size_t i = stage + 1; i < stages; ++i)
    weights.later += form.weights[i];
  if (shape.microBatches > 1 && form.waits < 1)
    weights.ahead = (slotsAhead(shape, stage) - 1) / (count - 1);
  weights.awaited = stage > 0 ? form.waits : 0;
  weights.update = form.updates[stage];
  return weights;
}

const Hiding &Candidate::LeastBuilder::hidingOn(size_t stage,
                                                size_t contention) {
  auto [at, isNew] = hidings.try_emplace({layout.place[stage], contention});
  if (isNew)
    at->second = LeastTimes::hidingOn(stage);
  return at->second;
}

bool Candidate::LeastBuilder::build() {
  const std::vector<size_t> &contentions = tables.contentionsOf(shape);
  problem = PipelineProblem();
  problem.microBatches = old.microBatches;
  problem.boundaryBehind = old.boundaryBehind;
  to.strategyOf.clear();
  std::map<std::tuple<size_t, size_t, size_t, StageWeights>, size_t> placeIndex;
  for (size_t s = 0; s < stages; ++s) {
    Place place;
    place.stage = s;
    place.weights = weightsOf(s);
    place.budgets = old.stages[s];
    auto [it, fresh] = placeIndex.try_emplace(
        {layout.place[s], layout.movePlace[s], contentions[s], place.weights},
        placeIndex.size());
    place.oldPlace = std::exchange(place.budgets.place, it->second);
    problem.stages.push_back(place.budgets);
    if (!fresh)
      continue;
    place.hiding = &hidingOn(s, contentions[s]);
    place.shape = to.stageShape(s);
    if (!addPlace(place))
      return false;
    if (tables.incomplete())
      return true;
    places.push_back(std::move(place));
  }
  problem.classes = std::max<size_t>(classes.size(), 1);
  addBoundaries();
  for (const Place &place : places)
    addReshards(place);
  addCuts();
  addTies();
  chargeAlways();
  return true;
}

/// The class of an option. Where the moves between layers are priced, it tells
/// of gathers, too: what hides beside a layer depends on the next one.
size_t Candidate::LeastBuilder::classOf(size_t strategy,
                                        const LeastParts &parts) {
  if (old.classes == 1)
    return 0;
  std::pair<size_t, bool> own = {layout.set->classOf[strategy],
                                 parts.forwardAhead + parts.backwardAhead > 0};
  auto at = llvm::find(classes, own);
  if (at == classes.end())
    at = classes.insert(classes.end(), own);
  return static_cast<size_t>(at - classes.begin());
}

/// Adds the bytes of boundaries, which depend on how samples are laid out
/// alone.
void Candidate::LeastBuilder::addBoundaries() {
  problem.boundaries = old.boundaries;
  if (classes.empty())
    return;
  auto spread = [&](std::vector<int64_t> &bytes) {
    std::vector<int64_t> wide;
    for (const auto &[layoutClass, gathers] : classes)
      wide.push_back(bytes[layoutClass]);
    bytes = std::move(wide);
  };
  for (const auto &[layoutClass, gathers] : classes)
    problem.layouts.push_back(layoutClass);
  for (PipelineBoundary &boundary : problem.boundaries) {
    spread(boundary.live);
    spread(boundary.passing);
  }
}

bool Candidate::LeastBuilder::addPlace(Place &place) {
  problem.layers.emplace_back();
  problem.layers.back().reserve(model.layerCount());
  std::map<LayerSort, size_t> setOf;
  for (size_t l = 0; l < model.layerCount(); ++l) {
    LayerSort sort{model.kindOf(l), layout.set->pinOf(l), l == 0,
                   l + 1 == model.layerCount()};
    auto [known, isNew] = setOf.try_emplace(sort, problem.optionSets.size());
    problem.layers.back().push_back(known->second);
    if (!isNew)
      continue;
    const KindOptions &kind = options(sort.kind, place.stage);
    if (tables.incomplete())
      return true;
    place.slowdown = std::max(place.slowdown, kind.slowdown);
    if (!addOptions(place, sort, kind))
      return false;
  }
  return true;
}

void Candidate::LeastBuilder::keep(const Priced &priced) {
  problem.optionSets.back().push_back(priced.option);
  to.strategyOf.back().push_back(priced.strategy);
  to.leastEnds.back().push_back(priced.end);
  besides.back().push_back(priced.beside);
}

/// Adds the options that may take no more than `atMost`, or the fastest one:
/// on another place the layer may take less. False if one has no price.
bool Candidate::LeastBuilder::addOptions(Place &place, const LayerSort &sort,
                                         const KindOptions &kind) {
  problem.optionSets.emplace_back();
  to.strategyOf.emplace_back();
  to.leastEnds.emplace_back();
  besides.emplace_back();
  problem.optionSets.back().reserve(kind.options.size());
  to.strategyOf.back().reserve(kind.options.size());
  to.leastEnds.back().reserve(kind.options.size());
  size_t firstStrategy = layout.own[place.stage].strategy;
  std::optional<Priced> fastest; ///< of those that take too long
  auto add = [&](const KindOption &from) {
    if (!layout.set->allows(sort.pin, firstStrategy + from.strategy))
      return true;
    std::optional<Priced> priced =
        price(place, sort, kind.slowdown, from,
              of(from, *place.hiding, {sort.isFirst, sort.isLast}));
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
        price(place, sort, kind.slowdown, plain,
              of(plain, *place.hiding, {sort.isFirst, sort.isLast}));
    return !floor || problem.leastCost(floor->option) <= atMost;
  };
  if (!llvm::all_of(kind.options, add))
    return false;
  for (const KindOption &plain : kind.options)
    if (!sort.pin && mayHavePoints(plain) &&
        !llvm::all_of(pointsOf(plain, sort.kind, place.stage), add))
      return false;
  if (problem.optionSets.back().empty() && fastest)
    keep(*fastest);
  return true;
}

/// The weights of a layer's forward and backward pass in what every further
/// micro-batch takes.
std::pair<double, double>
Candidate::LeastBuilder::periodParts(const StageWeights &weights) const {
  double forward = 1, backward = 1 - weights.later;
  if (!hasPhases(*shape.schedule)) {
    forward -= weights.ahead * (1 - weights.later);
    backward = 1 - weights.ahead * weights.later;
  }
  double waiting = 0;
  if (form.waits > 0)
    waiting = form.waits * (count - static_cast<double>(stages)) /
              std::max(count - 1, 1.0);
  return {(1 - form.waits) * forward + waiting,
          (1 - form.waits) * backward + waiting};
}

/// Prices one option. Nothing if its time would be negative: counted as nothing
/// it would be too much.
std::optional<Candidate::LeastBuilder::Priced>
Candidate::LeastBuilder::price(const Place &place, const LayerSort &sort,
                               double slowdown, const KindOption &from,
                               Least time) {
  const StageWeights &weights = place.weights;
  size_t strategy = layout.own[place.stage].strategy + from.strategy;
  double both = time.forward + time.backward, sync = from.least.sync;
  // Sums at the end: what counts, and what would if no other end did.
  double atEnd = weights.own * sync, alone = sync;
  if (weights.streams) {
    double hidden = (sort.isLast ? 0 : form.behindBackward * time.behind) +
                    (sort.isFirst ? 0 : (1 - form.behindBackward) * sync);
    atEnd -= weights.saved(slowdown, form.waits) * hidden;
    alone -= (2 - slowdown) * hidden;
  }
  double rest = from.least.end - from.least.update;
  atEnd += weights.own * rest + weights.update * from.least.update;
  PipelineOption option;
  option.layoutClass = classOf(strategy, from.least);
  double atAll =
      (1 + weights.awaited) * both - weights.later * time.backward + atEnd;
  if (atAll < 0)
    return std::nullopt;
  option.time = floorPicoseconds(atAll);
  const auto [forward, backward] = periodParts(weights);
  option.nosync =
      floorPicoseconds(forward * time.forward + backward * time.backward);
  setMemory(option, from, place.shape, place.budgets);
  return Priced{
      option,
      strategy,
      {time.backward * 1e12, (alone + rest) * 1e12, from.least.update * 1e12},
      {place.hiding->set->classOf[from.strategy], from.least.forward,
       from.least.forwardAhead, from.least.beside, from.least.backwardAhead}};
}

/// A matrix of `old` with its times multiplied.
std::vector<Picoseconds> Candidate::LeastBuilder::scaled(size_t matrix,
                                                         double part) const {
  const std::vector<Picoseconds> &from = old.matrices[matrix];
  auto timeOf = [&](size_t cell) {
    return static_cast<Picoseconds>(
        std::floor(static_cast<double>(from[cell]) * std::max(0.0, part)));
  };
  if (classes.empty())
    return {timeOf(0)};
  std::vector<Picoseconds> times;
  for (const auto &[row, rowGathers] : classes)
    for (const auto &[column, columnGathers] : classes)
      times.push_back(timeOf(row * old.classes + column));
  return times;
}

/// The weights with which price() takes hidden seconds off an option's times. A
/// gather that hides less in a last backward pass leaves more of it to sums.
Candidate::LeastBuilder::HiddenWeights
Candidate::LeastBuilder::hiddenWeights(const Place &place) const {
  const StageWeights &weights = place.weights;
  const double part = place.hiding->part;
  HiddenWeights found;
  found.forward = part * (1 + weights.awaited);
  found.backward = part * (1 + weights.awaited - weights.later);
  if (weights.streams)
    found.backward -= form.behindBackward * weights.saved(2 - part, form.waits);
  const auto [forward, backward] = periodParts(weights);
  found.forwardEach = part * forward;
  found.backwardEach = part * backward;
  return found;
}

/// The least that seconds add which price() counts as hidden and are not, to
/// the time of a stage and that of every further micro-batch alike.
Picoseconds Candidate::LeastBuilder::exposed(const Place &place, double forward,
                                             double backward) const {
  HiddenWeights weights = hiddenWeights(place);
  double once = weights.forward * forward + weights.backward * backward;
  double each = weights.forwardEach * forward + weights.backwardEach * backward;
  return floorPicoseconds(
      std::max(0.0, std::min(once, (once + (count - 1) * each) / count)));
}

/// Adds the seconds that price() counts as hidden for each of two neighbours
/// and that no pair of their options can hide: a gather runs beside its
/// neighbour alone, in forward beside the former and in backward beside the
/// latter, and only if both lay their samples out alike. By classes: the least
/// of their options.
void Candidate::LeastBuilder::addExposed(
    const Place &place, size_t former, size_t latter,
    std::vector<Picoseconds> &times) const {
  const Hiding &hiding = *place.hiding;
  std::vector<std::set<Beside>> ofFormer(classes.size()),
      ofLatter(classes.size());
  auto sort = [&](size_t set, std::vector<std::set<Beside>> &byClass) {
    for (auto [option, beside] :
         zip_equal(problem.optionSets[set], besides[set]))
      byClass[option.layoutClass].insert(beside);
  };
  sort(former, ofFormer);
  sort(latter, ofLatter);
  auto exposedOf = [&](const Beside &one, const Beside &other) {
    double forward =
        hiding.counted(hiding.forward, hiding.longestForward, one.layoutClass,
                       one.forward, other.layoutClass, other.forwardGather);
    double backward = hiding.counted(hiding.backward, hiding.longestBackward,
                                     other.layoutClass, other.backward,
                                     one.layoutClass, one.backwardGather);
    if (one.layoutClass == other.layoutClass) {
      forward -= std::min(one.forward, other.forwardGather);
      backward -= std::min(other.backward, one.backwardGather);
    }
    return exposed(place, forward, backward);
  };
  for (size_t row = 0; row < classes.size(); ++row)
    for (size_t column = 0; column < classes.size(); ++column) {
      Picoseconds least = kNoBound;
      for (const Beside &one : ofFormer[row])
        for (const Beside &other : ofLatter[column])
          least = std::min(least, exposedOf(one, other));
      if (least < kNoBound)
        times[row * classes.size() + column] += least;
    }
}

/// Adds the seconds that price() counts as hidden for the last layer of a
/// stage, or the first one, and that do not hide there: nothing is gathered
/// beside the computation of the former in forward, and the gather of the
/// latter runs beside nothing; in backward it is the other way round.
void Candidate::LeastBuilder::addExposedAtEnd(
    const Place &place, size_t set, bool isLast,
    std::vector<Picoseconds> &times) const {
  const Hiding &hiding = *place.hiding;
  std::vector<Picoseconds> least(classes.size(), kNoBound);
  for (auto [option, beside] :
       zip_equal(problem.optionSets[set], besides[set])) {
    const size_t layout = beside.layoutClass;
    const double forward =
        isLast ? hiding.ofComputation(beside.forward, hiding.forward[layout],
                                      hiding.longestForward[layout])
               : hiding.ofGather(beside.forwardGather, hiding.forward[layout]);
    const double backward =
        isLast ? hiding.ofGather(beside.backwardGather, hiding.backward[layout])
               : hiding.ofComputation(beside.backward, hiding.backward[layout],
                                      hiding.longestBackward[layout]);
    Picoseconds &ofClass = least[option.layoutClass];
    ofClass = std::min(ofClass, exposed(place, forward, backward));
  }
  for (size_t row = 0; row < classes.size(); ++row)
    for (size_t column = 0; column < classes.size(); ++column)
      if (Picoseconds added = least[isLast ? row : column]; added < kNoBound)
        times[row * classes.size() + column] += added;
}

/// Reshards wait like computation does. Gathers and scatters end before one
/// begins (no layer next to one is gathered ahead), and sums of gradients run
/// beside those of the last backward pass only.
void Candidate::LeastBuilder::addReshards(const Place &place) {
  const StageWeights &weights = place.weights;
  double part = partOfMoves(shape, place.stage,
                            1 - weights.later + weights.awaited, form.waits);
  if (weights.streams)
    part -= form.behindBackward * weights.saved(place.slowdown, form.waits) /
            (stages == 1 ? count : 1.0);
  const std::vector<size_t> &sets = problem.layers[place.budgets.place];
  std::map<std::tuple<size_t, size_t, size_t>, size_t> known;
  problem.transforms.emplace_back();
  for (auto [layer, matrix] : enumerate(old.transforms[place.oldPlace])) {
    auto [at, isNew] =
        known.try_emplace({matrix, sets[layer], sets[layer + 1]}, 0);
    if (isNew) {
      std::vector<Picoseconds> times = scaled(matrix, part);
      if (!classes.empty() && place.hiding->part > 0)
        addExposed(place, sets[layer], sets[layer + 1], times);
      at->second = addMatrix(std::move(times));
    }
    problem.transforms.back().push_back(at->second);
  }
}

/// A stage's messages count once, those of gradients as far as the stages whose
/// ends count wait for them, and in the periods that its slots leave.
void Candidate::LeastBuilder::addCuts() {
  std::map<std::tuple<size_t, double, size_t, size_t, bool>, size_t> parts;
  // The message of a stage behind its last layer, or in front of its first one.
  auto partOf = [&](size_t matrix, double part, size_t stage, size_t layer,
                    bool isLast) {
    const Place &place = places[problem.stages[stage].place];
    const size_t set = problem.layers[place.budgets.place][layer];
    auto [it, fresh] =
        parts.try_emplace({matrix, part, place.budgets.place, set, isLast}, 0);
    if (!fresh)
      return it->second;
    std::vector<Picoseconds> times = scaled(matrix, part);
    if (!classes.empty() && place.hiding->part > 0)
      addExposedAtEnd(place, set, isLast, times);
    return it->second = addMatrix(std::move(times));
  };
  std::vector<Picoseconds> leastOf; ///< by matrix
  for (const std::vector<Picoseconds> &matrix : old.matrices)
    leastOf.push_back(*llvm::min_element(matrix));
  double later = 1;
  for (size_t s = 0; s + 1 < stages; ++s) {
    later -= form.weights[s];
    problem.cutPlace.push_back(s);
    std::vector<PipelineCut> &made = problem.cuts.emplace_back();
    const std::vector<PipelineCut> &cuts = old.cuts[old.cutPlace[s]];
    made.reserve(cuts.size());
    auto partsOf = [&](size_t PipelineCut::*message, double once,
                       size_t stage) {
      if (stage > 0)
        once += form.waits;
      Picoseconds shortest = kNoBound, usual = 0;
      for (size_t l = s; l + stages <= cuts.size() + 1 + s; ++l) {
        shortest = std::min(shortest, leastOf[cuts[l].*message]);
        usual = std::max(usual, leastOf[cuts[l].*message]);
      }
      MessageParts found = partsOfMessages(shape, stage, once, form.waits,
                                           static_cast<double>(shortest),
                                           static_cast<double>(usual));
      always += found.once * static_cast<double>(shortest);
      return found.each;
    };
    double there = partsOf(&PipelineCut::activation, 1, s);
    double back = partsOf(&PipelineCut::gradient, 1 - later, s + 1);
    for (size_t l = 0; l < cuts.size(); ++l) {
      made.push_back(
          {partOf(cuts[l].activation, there, s, l, /*isLast=*/true),
           partOf(cuts[l].gradient, back, s + 1, l + 1, /*isLast=*/false)});
    }
  }
}

/// A tie's owner sums behind its own sums and before its norm, and gives the
/// values behind its update. The first layer is on the first stage.
void Candidate::LeastBuilder::addTies() {
  for (const PipelineTie &tie : old.ties) {
    if (tie.owner > 0)
      continue;
    Picoseconds shortest = kNoBound;
    bool isLast = tie.borrower + 1 == model.layerCount();
    for (size_t s = isLast ? stages - 1 : 0; s < stages; ++s)
      shortest =
          std::min(shortest, *llvm::min_element(old.tieTables[tie.table[s]]));
    always += std::min(form.weights[0], form.updates[0]) *
              static_cast<double>(shortest);
  }
}

/// All pipelines have the first layer on the first stage: what all take is part
/// of its time.
void Candidate::LeastBuilder::chargeAlways() {
  auto rounded = static_cast<Picoseconds>(always);
  if (rounded <= 0)
    return;
  size_t &first = problem.layers[problem.stages[0].place][0];
  std::vector<PipelineOption> options = problem.optionSets[first];
  for (PipelineOption &option : options)
    option.time += rounded;
  std::vector<size_t> strategies = to.strategyOf[first];
  std::vector<LeastEnd> ends = to.leastEnds[first];
  first = problem.optionSets.size();
  problem.optionSets.push_back(std::move(options));
  to.strategyOf.push_back(std::move(strategies));
  to.leastEnds.push_back(std::move(ends));
}

std::unique_ptr<Candidate>
Candidate::makeLeast(CostTables &tables, const Shape &shape,
                     const LeastForm &form, Picoseconds atMost,
                     std::string &refusal, Moves moves) {
  std::unique_ptr<Candidate> candidate;
  auto makeWith = [&](const LeastForm &with) {
    // Sums over layers choose their options themselves.
    bool busy = LeastForm::countsBusy(shape);
    candidate = makeIn(StepForm::Drain, tables, shape, refusal,
                       /*fewest=*/0, moves,
                       busy ? std::optional(Points::leastWithin(kNoBound))
                            : std::nullopt);
    if (!candidate || tables.incomplete())
      return true;
    return busy ? candidate->makeBusyLeast(with, atMost)
                : LeastBuilder(*candidate, with, atMost).build();
  };
  // No time is below 0 if nothing is hidden.
  LeastForm without = form;
  without.behindBackward = 0;
  if (!makeWith(form) && !makeWith(without))
    return nullptr;
  if (!candidate || tables.incomplete())
    return nullptr;
  if (Error error = candidate->theProblem.check()) {
    refusal = toString(std::move(error));
    return nullptr;
  }
  return candidate;
}

} // namespace galvatron::planner
