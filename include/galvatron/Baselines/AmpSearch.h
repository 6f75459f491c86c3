//===- AmpSearch.h - AMP's plans on mixed clusters --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Algorithm 1 of AMP (Li et al., NeurIPS 2022): every number of stages, of
// replicas and of tensor ranks, and every micro-batch size; a placement of
// them on the devices; and the best assignment of layers to stages under Eq. 5,
// whose times depend on the devices of a stage and on the links between stages.
// One strategy for all layers. Memory is looked at, which AMP does not do.
// docs/amp.md has the formulas.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_BASELINES_AMPSEARCH_H
#define GALVATRON_BASELINES_AMPSEARCH_H

#include "galvatron/Baselines/Baselines.h"

#include "galvatron/Support/Units.h"

namespace galvatron {

/// A candidate without its placement.
struct AmpShape {
  int64_t pipelineDegree = 1, dataDegree = 1, tensorDegree = 1;
  int64_t microBatchSize = 1; ///< samples of a replica
  int64_t microBatches = 1;
  bool recompute = false;

  /// Replicas outside, tensor ranks inside.
  Strategy strategy() const;
  /// "pp4 dp2 tp2 size 1", with ", recomputed".
  std::string str() const;
  bool operator==(const AmpShape &other) const = default;
};

/// A shape on devices, with the best of its assignments.
struct AmpPlan {
  AmpShape shape;
  std::vector<std::vector<int64_t>> devices; ///< by stage, tensor ranks inside
  std::vector<int64_t> layersPerStage;
  Picoseconds pipeline = 0; ///< Eq. 5
  /// The slowest stage's gradient sum, norm and update, once a step.
  Picoseconds end = 0;

  Picoseconds total() const { return pipeline + end; }
};

struct AmpProblem {
  int64_t batch = 1;
  std::optional<int64_t> memory; ///< of every device, bytes
  RingLink ring = RingLink::Neighbours;
  Placement placement = Placement::Heuristic;
  uint64_t seed = 1;                                   ///< of annealing
  std::optional<int64_t> pipelineDegree, microBatches; ///< forced
  const Cancellation *cancellation = nullptr;
  /// Called now and then.
  std::function<void(const PlannerProgress &)> progress;
};

struct AmpResult {
  /// The fastest plan of every shape that fits, fastest first; of equals the
  /// one with fewer stages, then fewer tensor ranks, then smaller
  /// micro-batches.
  std::vector<AmpPlan> plans;
  int64_t shapes = 0; ///< looked at
  /// Shapes left out, because a layer cannot be cut so, and the first reason.
  int64_t refused = 0;
  std::string refusal;
  /// The bytes needed and available if nothing fits: of the shape whose fullest
  /// stage is the least in even parts.
  int64_t neededBytes = 0, availableBytes = 0;
};

/// Returns all shapes that divide devices and batch: tensor degrees up to the
/// devices of the largest node, at most as many stages as layers, without and
/// with recomputation of every layer. The order is that of AmpResult's ties.
std::vector<AmpShape> ampShapes(LayerModel &model, const Cluster &cluster,
                                const AmpProblem &problem);

/// The plans of AMP's space, of shapes that every layer can have.
llvm::Expected<AmpResult> searchAmp(LayerModel &model, const Cluster &cluster,
                                    const AmpProblem &problem);

/// The baseline: for every micro-batch size the least product of tensor degree
/// and stages that fits, with at most as many tensor ranks as the smallest node
/// has devices, and layers split evenly by number or by parameters, whichever
/// is faster.
llvm::Expected<AmpResult> megatronHeuristic(LayerModel &model,
                                            const Cluster &cluster,
                                            const AmpProblem &problem);

} // namespace galvatron

#endif // GALVATRON_BASELINES_AMPSEARCH_H
