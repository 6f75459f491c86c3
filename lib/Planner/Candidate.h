//===- Candidate.h - One pipeline shape as a problem ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A shape fixes batch, pipeline degree, micro-batches and schedule, and maybe
// the partition. What is left, partition and strategies, is a PipelineProblem
// of Search/; a candidate builds it and reads its answers.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_CANDIDATE_H
#define GALVATRON_LIB_PLANNER_CANDIDATE_H

#include "CostTables.h"

#include "galvatron/Search/PipelineSearch.h"
#include "galvatron/Strategy/Plan.h"

#include <memory>
#include <optional>

namespace galvatron::planner {

/// Partition and strategies of a shape, with the cost of the whole pipeline.
struct Solved {
  Picoseconds cost = 0;
  std::vector<int64_t> partition;
  std::vector<size_t> strategies; ///< by layer, index into the set
};

/// The stage that is furthest from fitting when all take as little memory as
/// they can.
struct MemoryNeed {
  int64_t stage = -1;
  int64_t needed = 0;
  int64_t available = 0;
  StageLedger ledger;
  bool onHost = false; ///< all of these; else of the devices

  int64_t excess() const { return needed - available; }
};

/// One of the lower bounds of an executed step that are sums over layers.
struct LeastForm {
  /// Weights of the stages' ends; their sum is 1. A mean of times is no more
  /// than the longest.
  std::vector<double> weights;
  /// Weights of the stages' updates; all stages begin updates at the same time,
  /// once all norms have met.
  std::vector<double> updates;
  /// The part of X in the mean of (2 - s) X and (2 - s) S that is a bound of
  /// what sums of gradients S save beside a backward pass X, which is at most
  /// (2 - s) min(X, S).
  double behindBackward = 0;
  /// The share of the slowest stage's micro-batches that is given for what
  /// every stage waits for those behind it, 0 to 1 (LeastProblem.cpp).
  double waits = 0;

  /// True if the bounds are proven for a schedule of whole stages: 1F1B and
  /// GPipe, and schedules that go on from step to step or split backward
  /// passes.
  static bool knows(const Schedule &schedule);
  /// True if the bound is what the busiest stage does in a step: for schedules
  /// that leave little waiting besides.
  static bool countsBusy(const Shape &shape);
  /// True if ends of other stages than the first one may count.
  static bool hasWeights(const Shape &shape);
  /// True if `waits` may be more than 0.
  static bool hasWaits(const Shape &shape);
  /// The one to begin with: the first stage ends last.
  static LeastForm first(CostTables &tables, const Shape &shape);

  /// The ends of the first stages count, the first one's most, and the next
  /// ones' evenly less.
  size_t ends = 1;
  /// Part of the updates' weights that is given as the ends' is; the rest all
  /// stages have alike.
  double updatesAtEnds = 1;

  /// True if sums of gradients may run beside backward passes.
  bool hidesSums = false;

  /// Ways from one form to another.
  enum Change : uint8_t {
    MoreEnds,
    FewerEnds,
    UpdatesAtEnds,
    MoreBehind,
    LessBehind,
    LessWaiting,
    MoreWaiting,
    Last = MoreWaiting
  };
  /// True if the next change is the opposite one.
  static bool isOpposed(Change change) {
    return change == MoreEnds || change == MoreBehind || change == LessWaiting;
  }
  /// Makes such a change; false if there is none.
  bool apply(Change change, const Shape &shape);
  bool operator==(const LeastForm &other) const = default;

private:
  void setWeights(const Shape &shape);
};

/// The moves between layers that a problem has.
enum class Moves : uint8_t {
  None,      ///< all are free
  LeastCuts, ///< each cut takes what it does at least whatever the classes
  All
};

/// The points that a problem has: those that a pipeline of cost `within` or
/// less may have, for all that bounds without memory tell. Every pipeline with
/// another one costs more.
struct Points {
  Picoseconds within = kNoBound;
  /// The least bytes leave no pipeline out that fits, and may leave in some
  /// that do not: Candidate::priceBytes().
  PointBytes bytes = PointBytes::Exact;

  static Points leastWithin(Picoseconds cost) {
    return {cost, PointBytes::Least};
  }
};

class Candidate {
public:
  /// Ways to settle ties that a search goes through. An estimate, not measured.
  static constexpr size_t kMostTieChoices = 1 << 12;
  /// The rule that stages follow where many layers share parameters
  /// (Plan::provenAmong); empty: anything.
  static std::string tieRule(const LayerModel &model, bool severalStages);

  /// The tables must outlive the candidate.
  ///
  /// Null if some layer can have no strategy of the set, the reason is then in
  /// `refusal`, or if the tables are incomplete: pricing was to end. Memory is
  /// that of `fewest` micro-batches if given, which is the least of all shapes
  /// with the same numbers in flight. Fewer moves than all make no bound of the
  /// problem greater: enough for bounds, and the tables of moves are the
  /// dearest on many devices.
  ///
  /// Which points (CostTables::pointOptions()) a problem has: see Points.
  static std::unique_ptr<Candidate>
  make(CostTables &tables, const Shape &shape, std::string &refusal,
       int64_t fewest = 0, Moves moves = Moves::All, Points points = {});
  /// True if a point is no faster than what keeps all values under the formula
  /// that is searched, so that without memory no pipeline with points is the
  /// fastest. Where stages count forward passes and ends alone it is not: more
  /// of a sum of gradients may hide behind a longer backward pass.
  static bool pointsTakeNoLess(StepForm form) {
    return form != StepForm::Filled;
  }
  /// The shape without points, as if memory were endless: what that costs at
  /// least no pipeline with points costs less, if pointsTakeNoLess(). Null as
  /// above.
  static std::unique_ptr<Candidate> makeUnbound(CostTables &tables,
                                                const Shape &shape,
                                                std::string &refusal,
                                                Moves moves);
  /// Makes the shape with lower bounds of executed times in place of costs: no
  /// plan of it is executed faster than its cost says, as far as that is at
  /// most `atMost`; strategies that take longer are left out. Null as above, or
  /// with an empty refusal if nothing is left. docs/search.md, "The proof".
  static std::unique_ptr<Candidate>
  makeLeast(CostTables &tables, const Shape &shape, const LeastForm &form,
            Picoseconds atMost, std::string &refusal, Moves moves);
  /// The ends of stages in a solution of such a problem, picoseconds: when a
  /// stage is done but for its update, later than if it ended its last backward
  /// pass with the first stage; and its update.
  struct StageEnds {
    std::vector<double> ends, updates;
  };
  StageEnds endsOf(const PipelineSolution &solution) const;
  /// Layers per stage; empty: any.
  void setPartition(std::vector<int64_t> partition) {
    theProblem.partition = std::move(partition);
  }

  /// Leaves so many bytes of every stage's memory unused.
  void holdBack(int64_t bytes) {
    for (PipelineStage &stage : theProblem.stages)
      stage.memory -= bytes;
  }

  const Shape &shape() const { return theShape; }
  const PipelineProblem &problem() const { return theProblem; }
  /// Every pipeline of the shape that is not one of problem()'s costs more:
  /// strategies that take too long to be summed are left out. kNoBound if none
  /// is. Without transfers they are shortened instead, which keeps bounds
  /// bounds, and memory as it is.
  Picoseconds leftOutAbove() const { return longest; }
  /// About how much memory it takes.
  size_t bytes() const;
  Solved toSolved(const PipelineSolution &solution) const;
  /// Returns true if the layers can have these strategies and stages fit with
  /// them.
  bool fits(const Solved &solved) const;
  /// True if points of a solution had the least bytes; they are exact in what
  /// is made from now on.
  bool priceBytes(const PipelineSolution &solution) const;
  MemoryNeed memoryNeed() const;

  /// Leaves out the options of these strategies; false if a layer has no other.
  bool leaveOut(llvm::function_ref<bool(const Strategy &)> isLeftOut);

private:
  Candidate(CostTables &tables, const Shape &shape, int64_t fewest)
      : tables(tables), theShape(shape), memoryMicroBatches(fewest) {}
  /// Returns make() with the costs of a given formula.
  static std::unique_ptr<Candidate> makeIn(StepForm form, CostTables &tables,
                                           const Shape &shape,
                                           std::string &refusal, int64_t fewest,
                                           Moves moves,
                                           std::optional<Points> points);
  LayerModel &model() const { return tables.layerModel(); }
  bool addOptions(StepForm form, std::string &refusal,
                  std::optional<Points> points);
  void countAllMessages();
  /// Sets the memory of an option on a stage.
  static void setMemory(PipelineOption &option, const KindOption &from,
                        const StageShape &shape, const PipelineStage &stage);
  /// Keeps some options of every set, up to one that would have none: the
  /// number of that set, if there is one.
  std::optional<size_t>
  keepOptions(llvm::function_ref<bool(size_t set, size_t option)> isKept);
  bool leaveOutLong(std::string &refusal);
  void shortenLong();
  void addTransfers();
  void addBoundaries();
  void makeTransfersFree();
  void addLeastCuts();
  std::vector<Picoseconds> spread(llvm::ArrayRef<Picoseconds> block,
                                  const StrategySubset &rows,
                                  const StrategySubset &columns, size_t side,
                                  bool ties) const;
  bool addTies(std::string &refusal);
  class LeastBuilder;
  class BusyBuilder;
  bool makeBusyLeast(const LeastForm &form, Picoseconds atMost);
  StageShape stageShape(size_t stage) const;
  size_t setOf(size_t stage, size_t layer) const {
    return theProblem.layers[theProblem.stages[stage].place][layer];
  }

  CostTables &tables;
  Shape theShape;
  int64_t memoryMicroBatches;
  PipelineProblem theProblem;
  Picoseconds longest = kNoBound;
  std::vector<std::vector<size_t>> strategyOf; ///< [option set][option]
  /// The end of an option of makeLeast(), picoseconds: a backward pass, what
  /// comes behind the last one up to the norm, and the update.
  struct LeastEnd {
    double backward = 0, end = 0, update = 0;
  };
  std::vector<std::vector<LeastEnd>> leastEnds; ///< [option set][option]
};

/// Lower bounds whatever the memory: of sum C, and of max C_nosync for any
/// partition; and of the sums of C_nosync and of its forward part. kNoBound if
/// a layer has no strategy.
struct FreeBound {
  Picoseconds time = 0, nosync = 0;
  Picoseconds nosyncSum = 0, forwardSum = 0;
  Picoseconds cuts = 0; ///< what time has of cuts
};
/// With `cuts` it has what every cut takes at least, for which it prices the
/// moves of cuts.
FreeBound freeBound(CostTables &tables, const Shape &shape, bool cuts = false);
/// Returns time + (m - 1) * nosync; what is longer than any pipeline is just
/// below kNoBound, which stands for "nothing fits".
Picoseconds pipelineBound(int64_t microBatches, Picoseconds time,
                          Picoseconds nosync);
/// The least cost of every pipeline of the shape under a formula, given that.
Picoseconds stepBound(const Shape &shape, StepForm form, const FreeBound &least,
                      size_t layers);

/// The least that each cut moves, whatever the partition and the classes.
std::vector<CostTables::LeastMove> leastCuts(CostTables &tables,
                                             const Shape &shape);

/// A lower bound of the executed time of any plan of the shape, whatever the
/// memory; kNoBound if a layer has no strategy. With `cuts` it has what these
/// take at least, where the schedule's form has that.
Picoseconds leastFreeTime(CostTables &tables, const Shape &shape, bool cuts);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_CANDIDATE_H
