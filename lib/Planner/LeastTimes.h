//===- LeastTimes.h - Least times of layers and stages ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The least that layers take in an executed step, whatever else is chosen, and
// how often a stage's moves and messages count in the bounds that are made of
// them (LeastProblem.cpp, BusyProblem.cpp, LeastFreeTime.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_LEASTTIMES_H
#define GALVATRON_LIB_PLANNER_LEASTTIMES_H

#include "Candidate.h"

#include <utility>
#include <vector>

namespace galvatron::planner {

/// Times are whole picoseconds, rounded down.
Picoseconds floorPicoseconds(double seconds);

/// The bound of how much of a layer's gather hides behind the layer before it,
/// which has the same sample layout: at most (2 - s) min(x, y) of a gather y
/// beside computation x. With the longest gather z of the layout that is no
/// more than (2 - s) (min(typical, y) + max(0, min(x, z) - typical)), of which
/// the first belongs to the gathered layer and the second to the one that
/// computes.
struct Hiding {
  const StrategySet *set = nullptr; ///< of the stage
  double part = 0;                  ///< 2 - s
  /// The typical computation of each layout class, and the longest gather.
  std::vector<double> forward, backward;
  std::vector<double> longestForward, longestBackward;

  /// The part of the layer that is gathered, beside the one before it.
  static double ofGather(double gathers, double typical) {
    return std::min(typical, gathers);
  }
  /// The part of the layer that computes, beside the gather of the next one.
  static double ofComputation(double computes, double typical, double longest) {
    return std::max(0.0, std::min(computes, longest) - typical);
  }
  /// The bound of what hides of a gather of one class beside computation of
  /// another.
  double counted(llvm::ArrayRef<double> typical, llvm::ArrayRef<double> longest,
                 size_t computing, double computes, size_t gathered,
                 double gathers) const {
    return ofGather(gathers, typical[gathered]) +
           ofComputation(computes, typical[computing], longest[computing]);
  }
  /// Both parts of one layer, if it has them.
  static double hidden(double computes, double gathers, double typical,
                       double longest, bool hasFormer = true,
                       bool hasNext = true) {
    return (hasFormer ? ofGather(gathers, typical) : 0) +
           (hasNext ? ofComputation(computes, typical, longest) : 0);
  }
};

/// Whether a layer is the first or the last of the model, and so of a stage: no
/// layer computes before the first while its parameters are gathered, and none
/// is gathered while the last one computes. In backward it is the other way
/// round.
struct ModelEnds {
  bool isFirst = false, isLast = false;
};

/// Least times of one layer under one strategy.
struct Least {
  double forward, backward;
  /// The part of backward that sums of gradients may still hide behind: the
  /// last pass and they take no less than computation and communication
  /// overlapped.
  double behind;
};

/// The least times of a shape's layers, from their prices.
class LeastTimes {
public:
  LeastTimes(CostTables &tables, const Shape &shape);

  const KindOptions &options(size_t kind, size_t stage) const {
    return tables.kindOptions(kind, shape, stage);
  }
  /// The points of an option with what is known of their bytes: enough for a
  /// bound.
  const std::vector<KindOption> &pointsOf(const KindOption &plain, size_t kind,
                                          size_t stage) const {
    return tables.pointOptions(kind, shape, stage, plain, PointBytes::Least);
  }
  /// The least times of one option, and no more than those of its points: a
  /// point computes longer in backward, and no part of its time is less
  /// (CostTables::pointOptions()). What it computes besides hides no more of a
  /// gather than it takes.
  Least of(const KindOption &option, const Hiding &hiding,
           ModelEnds ends = {}) const;

  /// The typical layer of a class computes as long as one whose gathers are
  /// most of the class's, where that says more than the fastest of the slowest
  /// kind, recomputation included. Whatever is typical, the bound holds.
  Hiding hidingOn(size_t stage) const;

  /// Returns true if layers that sum their gradients do that longer than so
  /// many backward passes of a micro-batch take.
  bool sumsLongerThan(double passes) const;

  LayerModel &model;
  CostTables &tables;
  const Shape &shape;
  const Layout &layout;
  double count;                                        ///< micro-batches
  std::vector<std::pair<size_t, size_t>> layersOfKind; ///< kind, layers

private:
  /// Chooses for each class the typical time that lets less be hidden: the
  /// given one, or that of the option whose gathers of all layers of its kind
  /// are longest.
  void chooseTypical(std::vector<double> &typical,
                     llvm::ArrayRef<double> longest, const Hiding &hiding,
                     size_t stage, double LeastParts::*computes,
                     double LeastParts::*gathers) const;
};

/// True if all forwards come before all backwards. They are charged one by one,
/// and slots let nothing be done ahead.
bool hasPhases(const Schedule &schedule);

/// Micro-batches of which a stage may do the forwards ahead, and one.
double slotsAhead(const Shape &shape, size_t stage);

/// The number of periods of the slowest stage in which a move counts: those in
/// which its slots do not let it go on without it.
double periodsOfMoves(const Shape &shape, size_t stage, double waits);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_LEASTTIMES_H
