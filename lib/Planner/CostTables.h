//===- CostTables.h - Costs of strategies on a stage ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Turns model, cluster and strategies into the plain numbers that Search/ works
// on. Tables are shared by all stages that look alike and by all candidates
// with equal micro-batches.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_COSTTABLES_H
#define GALVATRON_LIB_PLANNER_COSTTABLES_H

#include "StepForm.h"

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Cost/RoundedTimes.h"
#include "galvatron/Cost/StageMemory.h"
#include "galvatron/Strategy/Plan.h"
#include "galvatron/Support/Cancellation.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace galvatron::planner {

/// The strategies of one group size with their layout classes.
struct StrategySet {
  std::vector<Strategy> strategies;
  std::vector<size_t> classOf; ///< by strategy; equal sample layouts
  std::vector<size_t> classes; ///< a strategy of each class
  /// The class of each strategy: those of one class move parameters alike,
  /// whether they recompute or not.
  std::vector<size_t> tieKeyOf;
  std::vector<size_t> tieKeys; ///< a strategy of each key
  /// The points of each strategy: strategies of the set that differ from it in
  /// keeping a part of a layer's values alone (Strategy::point()).
  std::vector<std::vector<size_t>> pointsOf;
  std::vector<char> isPoint; ///< of another strategy of the set
  /// The one strategy that a layer must have, by layer; empty: no layer must.
  std::vector<std::optional<size_t>> pinned;
  /// Strategies from here on are those of pinned layers only.
  size_t free = 0;

  static StrategySet make(std::vector<Strategy> strategies);
  /// Makes the set with the strategies of the pins, by layer.
  static StrategySet make(std::vector<Strategy> strategies,
                          llvm::ArrayRef<std::optional<Strategy>> pins);
  /// Several of different group sizes, one behind the other; no layer of them
  /// is pinned.
  static StrategySet join(llvm::ArrayRef<const StrategySet *> sets);

  std::optional<size_t> pinOf(size_t layer) const {
    return pinned.empty() ? std::nullopt : pinned[layer];
  }
  /// True if some strategy offloads something to the host.
  bool hasHomes() const;
  /// True if some strategy has points.
  bool hasPoints() const {
    return llvm::any_of(pointsOf, [](const std::vector<size_t> &points) {
      return !points.empty();
    });
  }
  bool allows(std::optional<size_t> pin, size_t strategy) const {
    return pin ? strategy == *pin : strategy < free;
  }
};

/// The strategies of one group size among those of all sizes of a layout.
struct StrategySubset {
  const StrategySet *set = nullptr;
  /// Numbers of its first strategy, class and tie key among all.
  size_t strategy = 0, layoutClass = 0, tieKey = 0;
};

/// A pipeline of groups of devices, in order.
struct Layout {
  int64_t degree = 1;
  size_t number = 0; ///< of the search's layouts
  /// Strategies of all sizes of groups, one behind the other.
  const StrategySet *set = nullptr;
  std::vector<StrategySubset> own;           ///< by stage
  std::vector<std::vector<int64_t>> devices; ///< by stage
  std::vector<int64_t> memory;               ///< budget by stage, bytes
  std::vector<int64_t> hostMemory;           ///< the same of the host
  std::vector<BackendTraits> backend;        ///< by stage
  std::vector<size_t> place;                 ///< by stage, of CostTables
  std::vector<size_t> movePlace;             ///< by stage, the same of moves
  std::vector<size_t> cutPlace;              ///< by cut, of CostTables

  bool hasEqualGroups() const {
    return llvm::all_of(
        own, [&](const StrategySubset &subset) { return subset.set == set; });
  }
};

/// Batch, pipeline degree, micro-batches and schedule: what is left to choose
/// are partition and strategies.
struct Shape {
  int64_t batch = 0;
  int64_t microBatches = 1;
  const Schedule *schedule = &defaultSchedule();
  const Layout *layout = nullptr;

  int64_t degree() const { return layout->degree; }
  int64_t samples() const { return batch / microBatches; }
  /// The form of a step that is searched for it under an objective.
  StepForm form(Objective objective) const {
    return stepFormOf(*schedule, degree(), microBatches, objective);
  }
  /// "pp2 m4 batch 32", "pp2 (3+1) m4 batch 32" with unequal groups.
  std::string str() const;
};

/// The parts of a layer's time that lower bounds of an executed step are made
/// of, in seconds (LeastTimes.cpp).
struct LeastParts {
  /// Seconds that run one after the other: computation, TP all-reduces, and
  /// gathers that never run ahead; and, of backward, scatters as far as the
  /// layer's own computation cannot hide them.
  double forward = 0, backward = 0;
  /// Gathers that may run beside the layer before.
  double forwardAhead = 0, backwardAhead = 0;
  /// The part of backward that gathers, or sums of gradients, may run beside:
  /// not what the layer's own scatter runs beside already.
  double beside = 0;
  double sync = 0;   ///< sums of gradients, once a step
  double end = 0;    ///< norm and update
  double update = 0; ///< of these

  static LeastParts of(const LayerTimeParts &parts,
                       const LayerFootprint &footprint);
};

/// One kind of layer under one strategy. Memory is that of layerMemory() with
/// no micro-batch.
struct KindOption {
  size_t strategy;
  int64_t samples; ///< local
  Picoseconds time, nosync;
  FormTimes form;
  LeastParts least;
  LayerMemory memory;
};

/// The bytes that a point's option has: those of its footprint, or no more
/// where it was not compiled yet (LayerModel::leastFootprint()). Times are the
/// same.
enum class PointBytes : uint8_t { Exact, Least };

/// A kind of layer under all strategies that it can have.
struct KindOptions {
  std::vector<KindOption> options;
  Picoseconds leastTime = kNoBound, leastNosync = kNoBound;
  Picoseconds leastForward = kNoBound;
  double slowdown = 1; ///< of computation and communication beside each other
  /// Why the first refused strategy was refused; empty if none of them divides
  /// the samples.
  std::string refusal;
};

class CostTables {
public:
  CostTables(LayerModel &model, const Cluster &cluster, Objective objective,
             const Schedule &schedule)
      : model(model), cluster(cluster), objective(objective),
        schedule(schedule), dtype(model.dtype()),
        contended(cluster.sharesCores()), contentions(1) {
    for (const Tie &tie : model.ties())
      for (size_t layer : {tie.ownerLayer, tie.borrowerLayer})
        tiedKinds.insert(model.kindOf(layer));
  }

  /// Tables that are made once this is requested are left out and not kept:
  /// whoever asked for one finds incomplete() true, and must not use it. Null:
  /// never.
  void setCancellation(const Cancellation *requested) {
    cancellation = requested;
    isIncomplete = false;
  }
  bool incomplete() const { return isIncomplete; }

  /// Must be called before places of groups of devices that are not consecutive
  /// are asked for. Who sends a block to whom, and which table of a collective
  /// fits, depends on how far apart ranks are.
  void setAnyGroups() { anyGroups = true; }

  /// Numbers of device lists, and of pairs of them, that no cost can tell
  /// apart: of layers, of moves inside a stage, of moves between stages.
  size_t placeOf(llvm::ArrayRef<int64_t> devices);
  size_t movePlaceOf(llvm::ArrayRef<int64_t> devices) {
    return placeOf(devices, devices);
  }
  size_t placeOf(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to);

  /// The numbers of lists of contentions by stage of a shape; 0 is the empty
  /// one. All 0 on a cluster that shares no cores: then costs do not depend on
  /// the micro-batches.
  const std::vector<size_t> &contentionsOf(const Shape &shape);
  bool sharesCores() const { return contended; }
  Objective searched() const { return objective; }
  LayerModel &layerModel() const { return model; }
  const Cluster &devices() const { return cluster; }

  /// Options of a kind on a stage of a shape: strategies whose blocks do not
  /// divide the samples of a micro-batch are left out. Strategies are numbered
  /// as in the set of the stage's size. Points of strategies of the set are not
  /// among them, see pointOptions().
  const KindOptions &kindOptions(size_t kind, const Shape &shape, size_t stage);

  /// The options of the points of one of these options. A point that the layer
  /// does not have is left out. So is one that takes less time than what keeps
  /// all values, in any of its parts: none is known, and bounds of times that
  /// are made without points are bounds of them, too.
  const std::vector<KindOption> &pointOptions(size_t kind, const Shape &shape,
                                              size_t stage,
                                              const KindOption &plain,
                                              PointBytes bytes);

  /// Sets what kindOptions() says from now on: that parameters are gathered in
  /// line, as at first, or that they are where the backend can gather them
  /// ahead, with the memory of two neighbours' at a time.
  void setGathersAhead(bool gathersAhead) { ahead = gathersAhead; }
  /// True if pointOptions() has any; at first it has. freeBound() and others
  /// that look at kindOptions() alone bound points, too.
  void setPoints(bool has) { hasPoints = has; }
  bool pricesPoints() const { return hasPoints; }
  /// True if some option that was priced can gather ahead.
  bool someGatherAhead() const { return canGatherAhead; }

  /// Rates of a boundary's move: forward (activation) and backward (gradient).
  struct BoundaryRates {
    std::vector<ReshardRate> forward, backward;
  };
  /// Row by row, by class of the former and the latter layer, of the sets of
  /// the groups that the place was made of.
  const BoundaryRates &boundaryRates(const StrategySet &former,
                                     const StrategySet &latter,
                                     size_t pairPlace);

  /// The least time of the moves of a boundary of so many bytes a sample,
  /// whatever the classes.
  struct LeastMove {
    Picoseconds activation = 0, gradient = 0;
  };
  LeastMove leastMove(const StrategySet &former, const StrategySet &latter,
                      size_t pairPlace, int64_t bytes, int64_t samples);

  /// The tieSeconds of every (owner's tie key, borrower's tie key).
  const std::vector<Picoseconds> &tieTimes(const StrategySet &owner,
                                           const StrategySet &borrower,
                                           size_t pairPlace, int64_t bytes);

private:
  /// True if pricing is to end; what is being made is then incomplete.
  bool cancelled() {
    isIncomplete |= cancellation && cancellation->requested();
    return isIncomplete;
  }
  std::string signature(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b,
                        bool moves) const;
  size_t numberOf(std::string text, llvm::ArrayRef<int64_t> from,
                  llvm::ArrayRef<int64_t> to);

  struct Place {
    std::vector<int64_t> from, to;    ///< the first lists seen
    std::vector<StrategyLinks> links; ///< by strategy
  };
  /// Place, kind, samples, contention, gathers ahead, stages.
  using KindKey = std::tuple<size_t, size_t, int64_t, size_t, bool, int64_t>;

  KindKey keyOf(size_t kind, const Shape &shape, size_t stage);
  const StrategyLinks &linksAt(size_t place, const StrategySet &set,
                               size_t strategy);
  llvm::Expected<KindOption> price(const KindKey &key, const Layout &layout,
                                   size_t stage, size_t strategy,
                                   PointBytes bytes, double &slowdown);

  LayerModel &model;
  const Cluster &cluster;
  Objective objective;
  const Schedule &schedule;
  const Cancellation *cancellation = nullptr;
  bool isIncomplete = false;
  bool ahead = false, canGatherAhead = false;
  bool hasPoints = true;
  bool anyGroups = false;
  std::string dtype;
  bool contended;
  std::set<size_t> tiedKinds; ///< with a parameter that two layers have
  std::vector<CoreContention> contentions; ///< by number
  /// The keys are layout and micro-batches.
  std::map<std::pair<size_t, int64_t>, std::vector<size_t>> contentionNumbers;
  std::map<std::string, size_t> placeNumbers;
  std::vector<Place> places;
  std::map<KindKey, KindOptions> kinds;
  /// The key has the strategy that they are points of, too.
  std::map<std::pair<KindKey, size_t>, std::vector<KindOption>> points,
      leastPoints;
  std::map<size_t, BoundaryRates> rates;
  /// The key is a pair of places, bytes and samples.
  std::map<std::tuple<size_t, int64_t, int64_t>, LeastMove> leastMoves;
  std::map<std::pair<size_t, int64_t>, std::vector<Picoseconds>> ties;
};

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_COSTTABLES_H
