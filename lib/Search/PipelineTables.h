//===- PipelineTables.h - What bounds of stages are read from ---*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Everything about a PipelineProblem that does not depend on a limit: options
// in the form labels need, lower bounds for any run of layers in constant time,
// the parts of transfers that can be charged to one side, and the ways to
// settle the tied parameters.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SEARCH_PIPELINETABLES_H
#define GALVATRON_LIB_SEARCH_PIPELINETABLES_H

#include "StageLabels.h"

#include <map>
#include <tuple>

namespace galvatron::search {

/// Costs that the search looks at: C, N, C + (m-1) N, and C + (m-1)/P N, which
/// tells how much C costs where N is held down. With one stage or one
/// micro-batch a single number decides; then only the first is used. Where the
/// slowest stage alone counts N is its time, and C weighs nothing.
enum Functional : size_t { kTime, kNosync, kMix, kBalance, kFunctionals };

/// The Lagrangian dual of one functional over layers: sums over layers of the
/// least cost + multiplier * bytes. Equal neighbours share their numbers.
struct Curve {
  std::vector<double> multipliers; ///< ascending, the first is 0
  std::vector<uint32_t> runOf;     ///< by layer, and one past the last
  std::vector<uint32_t> starts;    ///< by run of equal layers: the first
  /// [run][multiplier]: of all layers before the run, of one of its layers, and
  /// of one that ends a stage.
  std::vector<double> sums, least, last;

  /// By multiplier: the sum of all layers before one.
  struct Prefix {
    const double *sums, *least;
    double count;
    double operator[](size_t k) const { return sums[k] + count * least[k]; }
  };
  Prefix before(size_t layer) const {
    size_t run = runOf[layer], row = run * multipliers.size();
    return {&sums[row], &least[row], static_cast<double>(layer - starts[run])};
  }
  const double *leastOf(size_t layer) const {
    return &least[runOf[layer] * multipliers.size()];
  }
  const double *lastOf(size_t layer) const {
    return &last[runOf[layer] * multipliers.size()];
  }

  /// The multiplier at which the dual function `at` is greatest. It is concave,
  /// so it rises up to there and falls behind; where rounding says otherwise
  /// another multiplier is found, whose bound is as true.
  template <typename Dual> size_t peakOf(Dual at) const {
    size_t low = 0, high = multipliers.size() - 1;
    while (low < high) {
      size_t middle = (low + high) / 2;
      if (at(middle) < at(middle + 1))
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  /// A lower bound for layers [begin, end) with `memory` bytes. Does not fall
  /// as runs grow.
  double bound(size_t begin, size_t end, double memory) const;
  /// A better one if they are all layers of a stage.
  double boundOfStage(size_t begin, size_t end, double memory) const;
  /// The multiplier of the best bound and `reach` neighbours on either side,
  /// and 0, added to `chosen`.
  void choose(size_t begin, size_t end, double memory, size_t reach,
              std::vector<double> &chosen) const;
};

/// Stages that no bound can tell apart: one place, one number of micro-batches
/// in flight, one memory, one place for what is sent.
struct Station {
  size_t place = 0;
  int64_t inFlight = 1, memory = 0;
  bool sendsFromTransient = false;
  std::vector<const Choices *> options; ///< by layer; ties at their cheapest
  std::vector<int64_t> leastBytes;      ///< exclusive prefix
  std::vector<int64_t> leastBoundary;   ///< by layer
  std::vector<int64_t> leastLast; ///< by layer: bytes if it ends the stage
  Curve curves[kFunctionals];

  /// Boundary buffers that layers [begin, end) need at least.
  int64_t boundary(size_t begin, size_t end) const;
};

/// One way to settle the ties: the stages of both layers and borrowers' keys
/// that cost every owner the same.
struct TieChoice {
  struct Settled {
    size_t ownerStage, borrowerStage;
    std::vector<bool> allowed; ///< borrower's keys
    size_t key;                ///< one of them
  };
  std::vector<Settled> ties;
};

class PipelineTables {
public:
  /// `boundsOnly`: enough for bounds of C and N over all stages.
  explicit PipelineTables(const PipelineProblem &problem,
                          bool boundsOnly = false);

  const PipelineProblem &problem;
  size_t stages, layers;
  /// What max N counts: m - 1, 1 if it alone counts, 0 with one stage.
  int64_t bottleneck;
  /// What sum C counts: 0 if the slowest stage alone does, else 1.
  int64_t summed;
  Weights weights[kFunctionals];
  std::vector<Station> stations;
  std::vector<size_t> stationOf; ///< by stage
  std::vector<TieChoice> tieChoices;

  const Station &station(size_t stage) const {
    return stations[stationOf[stage]];
  }
  size_t functionals() const {
    return bottleneck > 0 ? size_t(kFunctionals) : 1;
  }

  /// Options of a layer on a stage under a tie choice.
  const Choices &options(size_t stage, size_t layer, size_t tieChoice);
  /// Whether ties concern a layer of [begin, end).
  bool tied(size_t begin, size_t end) const;
  /// Whether the stages of the tied layers are those of the choice.
  bool agrees(size_t tieChoice, size_t stage, size_t begin, size_t end) const;

  /// What the last layer before `end` pays at least for the activation, by
  /// class; null in the last stage.
  const std::vector<Picoseconds> *endCharge(size_t stage, size_t end);
  /// What layer `begin` pays at least for the gradient; null in the first.
  const std::vector<Picoseconds> *startCharge(size_t stage, size_t begin);
  /// The most that a transfer can cost above these charges.
  Picoseconds endResidual(size_t stage, size_t end);
  Picoseconds startResidual(size_t stage, size_t begin);
  /// What transfers cost above these charges, by both classes.
  const std::vector<Picoseconds> &activationResiduals(size_t stage, size_t end);
  const std::vector<Picoseconds> &gradientResiduals(size_t stage, size_t begin);
  const std::vector<Picoseconds> &transform(size_t stage, size_t layer) const;
  const std::vector<Picoseconds> &spread(size_t stage, size_t layer);
  /// How far layers [begin, end) of a stage can be moved to the right without
  /// any cost or size changing.
  size_t shiftDistance(size_t stage, size_t begin, size_t end);
  /// The first stage that has the same costs and sizes.
  size_t representativeOf(size_t stage) const { return representatives[stage]; }
  const PipelineCut &cut(size_t stage, size_t end) const {
    return problem.cuts[problem.cutPlace[stage]][end - 1];
  }

private:
  const Choices &choicesOf(size_t set, int64_t inFlight);
  /// Where a tie's time is added.
  Picoseconds &tiedTime(Choice &choice) const {
    return problem.slowestAlone ? choice.nosync : choice.time;
  }
  Choices convert(const std::vector<PipelineOption> &options,
                  int64_t inFlight) const;
  void buildStation(Station &station, bool boundsOnly);
  void buildCurve(Station &station, size_t functional);
  void enumerateTies();
  /// By owner's key: the least over all stages of a place and all borrowers.
  const std::vector<Picoseconds> &leastTies(size_t tieIndex, size_t place);

  std::map<std::pair<size_t, int64_t>, Choices> converted;
  std::map<std::pair<size_t, size_t>, Choices> relaxedOwners;
  std::map<std::tuple<size_t, size_t, size_t>, Choices> settled;
  std::map<std::pair<size_t, size_t>, std::vector<Picoseconds>> tieLeast;
  /// By matrix; empty until asked for. Residuals have the largest one last.
  std::vector<std::vector<Picoseconds>> rowLeast, columnLeast, spreads,
      rowResiduals, columnResiduals;
  std::vector<bool> isTied;
  std::vector<size_t> representatives;
  /// [stage][layer]: the first layer from there on that is not like the next.
  std::vector<std::vector<size_t>> equalUntil;
};

/// leastNeed() for layers per stage that may differ from the problem's; empty:
/// any.
PipelineNeed leastNeed(PipelineTables &tables,
                       const std::vector<int64_t> &partition);

} // namespace galvatron::search

#endif // GALVATRON_LIB_SEARCH_PIPELINETABLES_H
