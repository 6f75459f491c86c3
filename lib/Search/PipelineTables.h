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

#include "StageClassCache.h"

#include <deque>
#include <map>
#include <optional>
#include <tuple>

namespace galvatron::search {

/// Costs that the search looks at: C, N, C + (m-1) N, and C + (m-1)/P N, which
/// tells how much C costs where N is held down. With one stage or one
/// micro-batch a single number decides; then only the first is used. Where the
/// slowest stage alone counts N is its time, and C weighs nothing.
enum Functional : size_t { kTime, kNosync, kMix, kBalance, kFunctionals };

/// Stages that no bound can tell apart: one place, one number of micro-batches
/// in flight, one memory here and on the host, one place for what is sent.
struct StageClass : PipelineStage {
  const StageClassLayers *layers = nullptr;
  /// The number of functionals that the tables have.
  const StageClassCurve *curves[kFunctionals] = {};

  /// Values are by layer; ties at their cheapest.
  const Choices &options(size_t layer) const { return *layers->options[layer]; }
  /// Boundary buffers that layers [begin, end) need at least.
  int64_t boundary(size_t begin, size_t end) const {
    return layers->boundary(begin, end);
  }
};

/// One way to settle the ties: the stages of both layers and the keys of the
/// borrower, which cost every owner the same. Of a tie whose layers are held
/// alike the owner's key is settled, too: then a borrower on the owner's stage
/// has any key, and its options pay for what they cost.
struct TieChoice {
  struct Settled {
    size_t ownerStage;
    /// The borrower's stages, [first, last], one of which it is on.
    size_t firstStage, lastStage;
    std::vector<bool> allowed; ///< borrower's keys
    size_t key = 0;            ///< one of them
    std::optional<size_t> ownerKey;

    bool paidByBorrower() const { return ownerKey && firstStage == ownerStage; }
  };
  std::vector<Settled> ties;
};

/// All ways to settle the ties of a problem; empty if there are more than
/// `most`.
std::vector<TieChoice> settleTies(const PipelineProblem &problem, size_t most);

/// Matrices of transfers are paid for in two parts: what every class of the
/// side that pays costs for sure, whatever the other side's, and the rest.
class Charges {
public:
  /// `byRow`: the classes of the former layer pay.
  Charges(const std::vector<Picoseconds> &matrix, size_t classes, bool byRow);

  std::vector<Picoseconds> byClass; ///< of the side that pays
  Picoseconds least = kNoBound;     ///< of them
  /// The cost above these charges, by both classes, and the most of it last.
  const std::vector<Picoseconds> &above();

private:
  const std::vector<Picoseconds> &matrix;
  bool byRow;
  std::vector<Picoseconds> rest; ///< empty until asked for
};

class PipelineTables {
public:
  /// `boundsOnly`: enough for bounds of C and N over all stages.
  /// What is prepared for stages is found in the cache or put there.
  PipelineTables(const PipelineProblem &problem, StageClassCache &cache,
                 bool boundsOnly = false);

  const PipelineProblem &problem;
  size_t stages, layers;
  /// The factor of max N: m - 1, 1 if it alone counts, 0 with one stage.
  int64_t bottleneck;
  /// The factor of sum C: 0 if the slowest stage alone does, else 1.
  int64_t summed;
  Weights weights[kFunctionals];
  std::vector<StageClass> stageClasses;
  std::vector<size_t> stageClassOf; ///< by stage
  std::vector<TieChoice> tieChoices;

  const StageClass &stageClass(size_t stage) const {
    return stageClasses[stageClassOf[stage]];
  }
  size_t functionals() const {
    return bottleneck > 0 ? size_t(kFunctionals) : 1;
  }

  /// Options of a layer on a stage under a tie choice.
  const Choices &options(size_t stage, size_t layer, size_t tieChoice);
  /// Returns true if ties concern a layer of [begin, end).
  bool tied(size_t begin, size_t end) const;
  /// Returns true if the stages of the tied layers are those of the choice.
  bool agrees(size_t tieChoice, size_t stage, size_t begin, size_t end) const;

  /// The charges of the last layer before `end` for the activation; null in the
  /// last stage.
  Charges *endCharges(size_t stage, size_t end) {
    return stage + 1 == stages
               ? nullptr
               : &chargesOf(cut(stage, end).activation, /*byRow=*/true);
  }
  /// The charges of layer `begin` for the gradient; null in the first stage.
  Charges *startCharges(size_t stage, size_t begin) {
    return stage == 0
               ? nullptr
               : &chargesOf(cut(stage - 1, begin).gradient, /*byRow=*/false);
  }
  const std::vector<Picoseconds> &transform(size_t stage, size_t layer) const;
  const std::vector<Picoseconds> &spread(size_t stage, size_t layer);
  /// Returns how far layers [begin, end) of a stage can be moved to the right
  /// without any cost or size changing.
  size_t shiftDistance(size_t stage, size_t begin, size_t end);
  /// The first stage that has the same costs and sizes.
  size_t representativeOf(size_t stage) const { return representatives[stage]; }
  const PipelineCut &cut(size_t stage, size_t end) const {
    return problem.cuts[problem.cutPlace[stage]][end - 1];
  }

private:
  StageClassPlace &placeOf(size_t place, StageClassCache &cache);
  /// The time to which a tie's is added.
  Picoseconds &tiedTime(Choice &choice) const {
    return problem.slowestAlone ? choice.nosync : choice.time;
  }
  /// The least charges by owner's key: those over all stages of a place and all
  /// borrowers.
  std::vector<Picoseconds> leastTies(const PipelineTie &tie,
                                     size_t place) const;
  Charges &chargesOf(size_t matrix, bool byRow);

  std::vector<std::shared_ptr<StageClassPlace>> places; ///< of the problem
  /// The options of tied layers; equal ones are one object, as layers are
  /// compared by it.
  std::deque<Choices> settledSets;
  std::map<std::tuple<size_t, size_t, size_t>, const Choices *> settled;
  /// By matrix, columns before rows; nothing until asked for.
  std::vector<std::optional<Charges>> charges;
  /// By matrix; empty until asked for.
  std::vector<std::vector<Picoseconds>> spreads;
  std::vector<bool> isTied;
  std::vector<size_t> representatives;
  /// [stage][layer]: the first layer from there on that is not like the next.
  std::vector<std::vector<size_t>> equalUntil;
};

/// Returns true if some pipeline fits for sure, quickly: false may mean that
/// none was found. Boundaries are left out of account as in leastNeed().
bool surelyFits(const PipelineTables &tables,
                const std::vector<int64_t> &partition);
/// Returns leastNeed() for layers per stage that may differ from the problem's;
/// empty: any.
PipelineNeed leastNeed(PipelineTables &tables,
                       const std::vector<int64_t> &partition);

} // namespace galvatron::search

#endif // GALVATRON_LIB_SEARCH_PIPELINETABLES_H
