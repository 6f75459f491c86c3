//===- Candidate.h - One pipeline shape, solved exactly ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A candidate fixes everything but the strategies: batch, pipeline degree,
// micro-batches, partition, schedule. What does not add up over layers is
// enumerated: the size of the boundary buffers of each stage ("cap") and, for
// tied parameters, the borrower's strategy. Each choice of these is a problem
// of Search/.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_CANDIDATE_H
#define GALVATRON_LIB_PLANNER_CANDIDATE_H

#include "CostTables.h"

#include "galvatron/Strategy/Plan.h"

#include <optional>

namespace galvatron::planner {

/// The shape of a pipeline and all that is fixed about it.
struct Shape {
  int64_t batch = 0;
  int64_t pipelineDegree = 1;
  int64_t microBatches = 1;
  ScheduleKind schedule = ScheduleKind::OneFOneB;
  std::vector<int64_t> partition; ///< layers per stage
  std::string partitionName;      ///< "even" or "time-balanced"
  const StrategySet *set = nullptr;
  std::vector<std::vector<int64_t>> devices; ///< by stage
  std::vector<int64_t> memory;               ///< budget by stage, bytes

  int64_t samples() const { return batch / microBatches; }
  /// "pp2 m4 batch 32 even".
  std::string str() const;
};

/// Strategies of all layers with the cost of the whole pipeline.
struct Solved {
  Picoseconds cost = 0;
  std::vector<size_t> strategies; ///< by layer, index into the set
};

/// The stage that is furthest from fitting when all stages take as little
/// memory as they can.
struct MemoryNeed {
  int64_t stage = -1;
  int64_t needed = 0;
  int64_t available = 0;
  StageLedger ledger;

  int64_t excess() const { return needed - available; }
};

/// Lower bounds of sum C and max C_nosync.
struct FreeBound {
  Picoseconds time = 0, nosync = 0;
};

class Candidate {
public:
  /// An empty result means that some layer can have no strategy of the set; the
  /// reason is then in `refusal`.
  static std::optional<Candidate> make(LayerModel &model, CostTables &tables,
                                       const Shape &shape,
                                       std::string &refusal);

  const Shape &shape() const { return theShape; }

  /// Least times without regard to memory. They depend on the samples of a
  /// micro-batch, not on how many there are (with one micro-batch nosync may
  /// be 0).
  FreeBound freeBound();
  /// A lower bound with memory; kNoBound if it surely does not fit.
  Picoseconds bound();
  /// The optimum, if it costs at most `atMost`.
  std::optional<Solved> solve(Picoseconds atMost);
  MemoryNeed memoryNeed();

private:
  Candidate(LayerModel &model, CostTables &tables, const Shape &shape)
      : model(model), tables(tables), theShape(shape) {}

  struct Option {
    size_t strategy;
    int64_t boundary; ///< bytes, largest of input and output
    LayerOption cost;
    LayerFootprint footprint;
    int64_t samples;
  };

  /// One stage's problem with options limited to a cap, and the way back.
  struct Problem {
    LayerStrategiesProblem problem;
    std::vector<std::vector<size_t>> strategyOf; ///< [option set][option]
  };

  /// The borrower's strategies of every tie, limited to one choice.
  using TieChoice = std::vector<std::vector<bool>>; ///< [tie][strategy]

  struct StageBound {
    Picoseconds time = 0, nosync = 0;
  };

  bool build(std::string &refusal);
  void buildTransforms();
  void buildCuts();
  void enumerateTies();
  /// Without a choice every owner pays its cheapest tie.
  std::vector<Problem> stageProblems(size_t stage, const TieChoice *choice,
                                     const std::vector<int64_t> *onlyCap) const;
  Picoseconds tieTime(size_t tie, size_t owner, size_t borrower) const;
  Picoseconds cheapestTie(size_t tie, size_t owner) const;
  size_t stageOf(size_t layer) const;
  CostWeights scalarWeights() const { return {1, theShape.microBatches - 1}; }

  std::optional<Solved> solveSingle(const TieChoice &choice,
                                    Picoseconds atMost);
  std::optional<Solved> solvePipeline(const TieChoice &choice,
                                      Picoseconds atMost);
  Picoseconds boundOf(const std::vector<StageBound> &stages) const;
  std::vector<StageBound>
  stageBounds(const std::vector<std::vector<Problem>> &problems) const;

  LayerModel &model;
  CostTables &tables;
  Shape theShape;

  std::vector<size_t> firstLayer;           ///< by stage
  std::vector<std::vector<Option>> options; ///< by layer
  std::vector<size_t> setOf;                ///< option set of a layer, in stage
  std::vector<std::vector<int64_t>> caps;   ///< by stage, ascending
  std::vector<int64_t> constantBytes;       ///< by stage
  std::vector<std::vector<Picoseconds>> transforms;
  std::vector<size_t> transformAfter; ///< by layer; unused at cuts
  /// Per cut: what remains of the transfers once every sending layer has been
  /// charged its cheapest.
  std::vector<std::vector<Picoseconds>> activation, gradient;
  std::vector<TieChoice> tieChoices;
  std::vector<const std::vector<Picoseconds> *> tieTables; ///< by tie
  std::vector<Tie> ties;
};

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_CANDIDATE_H
