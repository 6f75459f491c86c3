//===- LayerStrategies.h - One option per layer, exactly --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The choice of one option (a strategy) for every layer of a stage: the dynamic
// programme of arXiv 2307.02031, Eq. 4 and Algorithm 3, made exact. The solver
// knows nothing of models or clusters: options have times and bytes, and
// neighbours of different layout class pay a transform.
//
//   minimise   sum_l cost(l) + sum_l transform(class(l), class(l+1))
//   subject to (k-1) * sum f + max_l (sum_{j<=l} f_j + b_l) + sum state <= E
//
// Method: labels from the last layer to the first. There V' = f + max(b, V)
// turns the peak into one number per label, so that a label is (states + V,
// states, cost); states matter on their own only while V is below the largest b
// to come. Labels are cut by Lagrangian bounds on their completion against a
// guessed optimum that is widened until a solution meets it: a failed guess
// proves that there is nothing below it.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SEARCH_LAYERSTRATEGIES_H
#define GALVATRON_SEARCH_LAYERSTRATEGIES_H

#include "galvatron/Support/Units.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace galvatron {

struct LayerOption {
  size_t layoutClass = 0; ///< row and column in the transform matrices
  Picoseconds time = 0;   ///< of one micro-batch with gradient sync
  Picoseconds timeNosync = 0;
  int64_t kept = 0;      ///< f, bytes
  int64_t transient = 0; ///< b, bytes
  int64_t state = 0;     ///< bytes
};

struct LayerStrategiesProblem {
  int64_t memory = 0;   ///< E, bytes
  int64_t inFlight = 1; ///< k
  size_t classes = 1;
  /// The options of a kind of layer, in order of preference among equals.
  std::vector<std::vector<LayerOption>> optionSets;
  std::vector<size_t> layers; ///< the option set of each layer
  /// Matrices of classes x classes, the former layer's class major.
  std::vector<std::vector<Picoseconds>> transforms;
  /// The matrix between layer i and i + 1; one entry less than layers.
  std::vector<size_t> transformAfter;

  /// Sizes and ranges: at least one layer and one option each, nothing
  /// negative, no sum of times or bytes that could overflow.
  llvm::Error check() const;
};

struct LayerStrategiesSolution {
  Picoseconds time = 0;
  Picoseconds timeNosync = 0;
  int64_t peak = 0;             ///< left side of the constraint
  std::vector<uint32_t> choice; ///< index into the layer's option set
};

/// Times and peak of a choice, by the formulas above.
LayerStrategiesSolution evaluateChoice(const LayerStrategiesProblem &problem,
                                       std::vector<uint32_t> choice);

/// Checks a solution's numbers and its feasibility by evaluateChoice.
llvm::Error verify(const LayerStrategiesProblem &problem,
                   const LayerStrategiesSolution &solution);

/// cost = timeWeight * time + nosyncWeight * timeNosync.
struct CostWeights {
  int64_t time = 1;
  int64_t nosync = 0;
};

/// Mistakes that the property test must be able to see. None in earnest.
enum class SolverFault : uint8_t {
  None,
  IgnoreBackwardPeak,         ///< only the last layer's b counts
  IgnoreTransformInDominance, ///< labels of different classes compared as is
  CutFrontTooFar              ///< labels cut a little below the bound
};

/// The cheapest feasible choice with cost at most `atMost`; among equals the
/// lexicographically first choice. Nothing if there is none.
std::optional<LayerStrategiesSolution>
solveLayerStrategies(const LayerStrategiesProblem &problem,
                     CostWeights weights = {}, Picoseconds atMost = kNoBound,
                     SolverFault fault = SolverFault::None);

/// The choice of least peak, whatever its time and the memory.
LayerStrategiesSolution minimumPeak(const LayerStrategiesProblem &problem);

} // namespace galvatron

#endif // GALVATRON_SEARCH_LAYERSTRATEGIES_H
