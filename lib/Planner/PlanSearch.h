//===- PlanSearch.h - The search of one plan --------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One call of plan(): the shapes that it looks at (PlanShapes.cpp), in which
// order and for how long (PlanFrontier.cpp), over which batches
// (PlanSweep.cpp), what becomes of the best (PlanBuilding.cpp), what is proven
// of its executed time (PlanProof.cpp), and why there is none
// (PlanDiagnosis.cpp). docs/search.md says why nothing is lost on the
// way.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_PLANSEARCH_H
#define GALVATRON_LIB_PLANNER_PLANSEARCH_H

#include "Candidate.h"
#include "Executed.h"
#include "Groups.h"
#include "Spaces.h"

#include "galvatron/Planner/Explain.h"
#include "galvatron/Planner/Planner.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <limits>
#include <map>
#include <set>
#include <tuple>

namespace galvatron::planner {

/// "3.880 ms"
inline std::string milliseconds(Picoseconds time) {
  std::string text;
  llvm::raw_string_ostream(text)
      << llvm::format("%.3f ms", toMilliseconds(time));
  return text;
}

/// Returns a / b < c / d for positive times (below 2^90) and batches, without
/// rounding.
inline bool fasterPerSample(__int128 a, int64_t b, __int128 c, int64_t d) {
  return a * d < c * b;
}

/// Stands for a search without a limit of steps.
constexpr uint64_t kNoStepLimit = std::numeric_limits<uint64_t>::max();

/// The milliseconds for what is left to do once time is up, beyond what must be
/// done: with the rest it stays below half a second.
constexpr double kGraceSeconds = 0.2;

/// Stages of so many devices have large tables of transfers.
constexpr int64_t kManyDevices = 128;

/// Returns true if it is proven that no plan of a search is executed faster
/// than one that is known.
inline bool isPrunedByBound(const PlannerOptions &options, const Plan &plan) {
  // A margin for the rounding of doubles.
  constexpr double rounding = 1 + 1e-9;
  return options.samplesPerSecondKnown && plan.gapPercent &&
         plan.samplesPerSecond * (1 + *plan.gapPercent / 100) <=
             *options.samplesPerSecondKnown * rounding;
}

/// The whole search of one call.
class PlanSearch {
public:
  PlanSearch(LayerModel &model, const Cluster &cluster,
             const PlannerOptions &options, Space space)
      : model(model), cluster(cluster), options(options),
        space(std::move(space)),
        tables(model, cluster, options.objective,
               options.schedule ? *options.schedule : defaultSchedule()) {
    tables.setCancellation(options.cancellation);
    if (this->space.anyGroups)
      tables.setAnyGroups();
  }

  llvm::Expected<PlannerResult> run();

  /// Returns true if some plan of these batches fits.
  bool fits(llvm::ArrayRef<int64_t> batches);

private:
  struct Incumbent {
    Shape shape;
    Solved solved;
  };
  /// The finder of a plan: the exact search; quickPipeline(); Algorithm 2.
  enum class Finder { Exact, Quick, Heuristic };

  /// Shapes on their way that differ in nothing but the number of
  /// micro-batches, and hold the same numbers of them in flight. More of them
  /// take less time per sample, whatever the plan, and a little more memory:
  /// the entry stands for the most micro-batches, with the memory of the
  /// fewest. What solves it and fits is better than all the others of the
  /// family. Its bound gets better step by step: without memory, with the least
  /// that cuts take, with memory, by bounds without and with transfers, by
  /// failed attempts. Where layers have points it first gets better by what the
  /// shape costs without them and without memory.
  struct Entry {
    Picoseconds bound;
    size_t order;
    Shape shape;
    std::vector<int64_t> fewer; ///< micro-batches of the others, descending
    enum {
      Free,
      Cuts,
      Unbound,
      Light,
      Shared,
      Relaxed,
      Tightened,
      Open
    } level = Free;
    std::shared_ptr<Candidate> candidate; ///< of the search
    std::shared_ptr<PipelineSearch> search;
    Picoseconds slack = 0;
    Points points;      ///< of the candidate
    bool exact = false; ///< with exact bytes of all points
    int misfits = 0;    ///< solutions that did not fit, see reopen()
  };
  /// The shape with the least bound of time per sample first.
  struct Later {
    bool operator()(const Entry &a, const Entry &b) const {
      __int128 left = static_cast<__int128>(a.bound) * b.shape.batch;
      __int128 right = static_cast<__int128>(b.bound) * a.shape.batch;
      return left != right ? left > right : a.order > b.order;
    }
  };
  using Queue = std::vector<Entry>; ///< a heap by Later

  const Layout *equalLayout(int64_t degree);
  const Layout *layoutOf(std::vector<std::vector<int64_t>> devices);
  const StrategySet &setOf(int64_t groupSize);
  void makeLayouts();
  std::vector<int64_t> microBatchesOf(int64_t batch, int64_t degree) const;
  std::vector<Shape> shapesOf(int64_t batch);
  std::unique_ptr<Candidate> candidateOf(const Shape &shape, int64_t fewest = 0,
                                         Moves moves = Moves::All,
                                         Points points = {});
  /// The points of a problem that is solved: bytes are made exact once a
  /// solution has them. A partition that the space prescribes may depend on all
  /// of them.
  Points pointsWithin(Picoseconds cost) const {
    return {cost, space.partition == PartitionMode::Free ? PointBytes::Least
                                                         : PointBytes::Exact};
  }
  /// Returns true if a solution of a problem with these points fits with their
  /// exact bytes, and so much room besides: then it is as good as that of a
  /// problem with exact bytes. Prices these.
  bool fitsExactly(const Candidate &candidate, const PipelineSolution &solution,
                   Points points, int64_t fewest = 0, int64_t room = 0);
  /// Enough where only memory is asked for.
  std::unique_ptr<Candidate> leanCandidateOf(const Shape &shape) {
    return candidateOf(shape, /*fewest=*/0, Moves::None);
  }
  llvm::Expected<PlannerResult> search();
  void boundWithoutMemory(Entry &entry, Picoseconds most);
  void raiseWithoutMemory(Entry &entry);
  bool openProblem(Entry &entry, Moves moves);
  bool reopen(Entry &entry);
  bool openLight(Entry &entry);
  /// Returns true in the first of two searches, of plans without points. What
  /// it proved would be of these alone, so proofs are for the second one, and
  /// so are gathers ahead and equal groups.
  bool isFirstOfTwo() const {
    return !tables.pricesPoints() && space.points > 0 && !space.fixed;
  }
  /// Returns true if points are searched on the shape's stages.
  bool hasPoints(const Shape &shape) const {
    return tables.pricesPoints() && shape.layout->set->hasPoints();
  }
  /// Returns true if moves between the shape's layers take long to price.
  bool isLarge(const Shape &shape) const {
    return cluster.deviceCount() / shape.degree() >= kManyDevices;
  }
  /// Returns true if the moves between stages of the shape are quickly priced.
  bool cutsAreCheap(const Shape &shape) const {
    return shape.degree() > 1 && !isLarge(shape);
  }
  /// Lets a search take a turn of about `most` further steps while there is
  /// time, and adds those that it took to `counted`. It goes on where it was
  /// stopped.
  template <typename Turn>
  auto takeTurn(PipelineSearch &search, uint64_t most, uint64_t &counted,
                Turn turn) const {
    uint64_t taken = search.statistics().steps;
    search.setCancellation(options.cancellation);
    search.setMostSteps(taken + std::min(most, kNoStepLimit - taken));
    auto result = turn(search);
    counted += search.statistics().steps - taken;
    return result;
  }
  /// Lets the entry's search take a turn within what is left of steps.
  template <typename Turn> auto inSearchOf(Entry &entry, Turn turn) {
    return takeTurn(*entry.search, mostSteps - std::min(steps, mostSteps),
                    steps, turn);
  }
  Shape withMicroBatches(const Shape &shape, int64_t count) const {
    Shape other = shape;
    other.microBatches = count;
    other.batch = count * shape.samples();
    return other;
  }
  std::vector<int64_t> partitionOf(const PipelineProblem &problem) const;
  FreeBound boundsOf(const Shape &shape, bool cuts);
  Picoseconds freeBoundOf(const Shape &shape, bool cuts = false);
  Picoseconds sharedBoundOf(const Shape &shape, bool cuts = false);
  bool searchBatches(llvm::ArrayRef<int64_t> batches);
  /// Raises the entry's bound, not much above `enough`, or solves it. True if
  /// it is done with.
  bool improve(Entry &entry, Picoseconds enough, Queue &queue);
  bool finish(Entry &entry, const PipelineSolution &found, Queue &queue);
  bool giveUp(const Entry &entry, Queue &queue);
  void pushRest(const Entry &entry, Picoseconds bound, Queue &queue);
  void push(Queue &queue, Entry entry) const {
    queue.push_back(std::move(entry));
    std::push_heap(queue.begin(), queue.end(), Later());
  }
  void accept(const Shape &shape, Solved solved, Finder by = Finder::Exact);
  void report(llvm::ArrayRef<int64_t> batches, const Queue &queue) const;
  bool primalHeuristic(const Queue &queue);
  std::optional<Picoseconds> costWithMoves(const Incumbent &found);
  void reject(const Queue &rest);
  double gapTo(Picoseconds bound, int64_t batch) const;
  void note(const Shape &shape, Picoseconds time);
  Picoseconds limitFor(int64_t batch) const;
  /// The time of a step of the plan that is known (samplesPerSecondKnown);
  Picoseconds knownTime(int64_t batch) const {
    return options.samplesPerSecondKnown
               ? static_cast<Picoseconds>(static_cast<double>(batch) * 1e12 /
                                          *options.samplesPerSecondKnown)
               : kNoBound;
  }
  /// Returns true if it is proven that no plan of the shape is executed as fast
  /// as the one that is known.
  bool isPruned(const Shape &shape) {
    return options.samplesPerSecondKnown &&
           options.objective == Objective::Executed &&
           LeastForm::knows(*shape.schedule) &&
           leastFreeTime(tables, shape, cutsAreCheap(shape)) >
               knownTime(shape.batch);
  }
  bool late() const { return options.isLate(); }
  /// Time is up, or the batches searched have had their steps.
  bool spent() const { return steps >= mostSteps || late(); }
  std::vector<std::vector<int64_t>> batchGroups() const;
  bool endsMisfits(llvm::ArrayRef<int64_t> batches) const;
  std::optional<Picoseconds> compareHeuristic();
  /// A plan that is slower than `samplesPerSecond` for sure has a lower bound
  /// of its time in its place.
  llvm::Expected<PlannerResult> price(const Incumbent &found,
                                      std::optional<double> samplesPerSecond);
  /// Simulates a plan that was found; it is the best one, and the result, if
  /// it is executed faster. `how`: how it was found.
  bool offer(Incumbent found, PlannerResult &result, const llvm::Twine &how);
  void offerOtherDegrees(PlannerResult &result);
  void offerOtherCuts(PlannerResult &result);
  /// The plan that a search of few steps finds without some strategies, of
  /// at most that cost.
  std::optional<Incumbent>
  searchShortly(const Shape &shape, Picoseconds most,
                llvm::function_ref<bool(const Strategy &)> isLeftOut);
  class Proof;
  void proveExecuted(PlannerResult &priced);
  class Ahead;
  void gatherAhead(PlannerResult &priced);
  llvm::Error tryEqualGroups(PlannerResult &priced);
  void priceRest(Queue &queue);
  void proveRest(llvm::ArrayRef<std::vector<int64_t>> groups);
  /// A plan of the shape without layers.
  Plan emptyPlan(const Shape &shape) const;
  Plan toPlan(const Incumbent &best) const;
  Infeasible explain(int64_t batch);
  void log(const llvm::Twine &text) { decisions.push_back(text.str()); }

  LayerModel &model;
  const Cluster &cluster;
  PlannerOptions options;
  Space space;
  CostTables tables;
  SharedStageClasses stageClasses;     ///< of all shapes
  std::map<int64_t, StrategySet> sets; ///< by group size
  /// Joined sets by the sizes of groups, of layouts with several.
  std::map<std::vector<int64_t>, StrategySet> joinedSets;
  std::map<DeviceGroups, std::unique_ptr<Layout>> layouts;
  std::vector<const Layout *> searched; ///< in order; see makeLayouts()
  std::string provenAmong;              ///< see Plan
  /// Bounds by layout, samples of a micro-batch, micro-batches as far as times
  /// depend on them, and with or without cuts.
  std::map<std::tuple<size_t, int64_t, int64_t, bool>, FreeBound> freeBounds;
  /// The keys are layout, samples, and micro-batches as far as memory depends
  /// on them.
  std::map<std::tuple<size_t, int64_t, int64_t>, PipelineBounds> sharedBounds;
  std::optional<Incumbent> best;
  /// The best one by the formula, whatever is executed fastest.
  std::optional<Incumbent> bestByFormula;
  /// A shape whose best plan by the formula is simulated in any case.
  std::optional<Shape> shapeBesides;
  /// The batch of a plan that was the best when the search began, or 0.
  int64_t firstBatch = 0;
  Finder finder = Finder::Exact; ///< of the best plan
  double gapPercent = 0;
  /// Some shape was not priced before time was up: no gap is proven.
  bool unpriced = false;
  std::map<std::pair<int64_t, int64_t>, RunnerUp> runnersUp;
  std::vector<std::string> decisions;
  std::string refusal;
  /// Shapes, and strategies of some, that were not searched, and what they take
  /// at least.
  struct LeftOut {
    Picoseconds bound;
    int64_t batch;
  };
  std::vector<LeftOut> leftOut;
  size_t solvedCount = 0, order = 0;
  uint64_t steps = 0;     ///< of all searches within shapes so far
  uint64_t mostSteps = 0; ///< at which the batches at hand are given up
  bool givenUp = false;   ///< some batches were
};

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_PLANSEARCH_H
