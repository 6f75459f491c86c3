//===- Bounds.h - What a configuration takes at least -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bounds that take no plan, by which most of a target's configurations are
// ruled out before they are priced.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SOFTWARE_BOUNDS_H
#define GALVATRON_SOFTWARE_BOUNDS_H

#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Software/Pricing.h"

#include <array>
#include <map>
#include <optional>

namespace galvatron {

/// Seconds of all layers in the passes of a step of one stage, counted in
/// closed form, in which communication overlaps computation layer by layer.
struct PassSums {
  double byPlan = 0;      ///< gathers and sums of every pass, as planned
  double inEarnest = 0;   ///< those that the software has
  double computation = 0; ///< none of them
};

/// Sums of passes for both ways to gather a layer: in front of its forward
/// pass, and while the layer before computes.
struct PassSumsEither {
  PassSums inFront, ahead;
};

/// The least time of steps: the computation of the busiest stage, its messages
/// and what fills and empties the pipeline, with what ranks of tensor
/// parallelism send in front, as the planner has them; or what the shards of a
/// stage exchange; or the way of the first micro-batch through all chunks and
/// back, with the others' passes of the last chunk.
/// Sound for every schedule of the registry that changes nothing but time and
/// memory. For one model, whose sizes may differ in the vocabulary.
class LeastSteps {
public:
  LeastSteps(const Execution &execution, const Cluster &cluster);

  /// Milliseconds that a configuration takes at least.
  double leastMs(const ModelShape &shape, const Configuration &configuration);

private:
  /// Least seconds of one micro-batch; for a block, of a pass and its
  /// recomputation.
  struct Seconds {
    double forward = 0, backward = 0, again = 0, embedding = 0, head = 0;
    double sent = 0;          ///< by ranks of TP in a backward pass
    double weights = 0;       ///< of both, where backward passes are split, the
                              ///< part for gradients of weights
    double weightsOfEnds = 0; ///< the same of embedding and head
    double exchange = 0;      ///< of a block's shards
    double gather = 0;        ///< of these in a forward pass
    double sums = 0;     ///< of a block's replicas, once a step, by themselves
    double beside = 0;   ///< the same beside the last backward pass
    double message = 0;  ///< of a boundary to the next stage
    double slowdown = 1; ///< of both while they overlap
    /// Transfers of keys and values of other positions, forward and backward.
    double contextForward = 0, contextBackward = 0;
    /// Sums of the whole step, where less is gathered or summed than in every
    /// pass.
    std::optional<PassSumsEither> passes;
  };
  const Seconds &secondsOf(const ModelShape &shape,
                           const Configuration &configuration);

  /// Seconds from the first micro-batch's first pass to its last, with the
  /// passes of the others in the last chunk between.
  static double pathSeconds(const Seconds &one, const Configuration &degrees);

  /// Sets what replicas and shards of a block send.
  void addSharing(Seconds &seconds, LayerModel &model,
                  const Configuration &configuration);

  Execution execution;
  std::string dtype;
  Cluster cluster;
  /// Links of a strategy on every stage of so many.
  const std::vector<StrategyLinks> &linksOfStages(const Strategy &strategy,
                                                  int64_t stages);

  /// A boundary's move to the next stage, where that is fastest. `inTurn`: the
  /// last one sends to the first, too.
  const ReshardRate &bestMove(const Configuration &configuration, bool inTurn);

  std::map<int64_t, GroupLink> links; ///< by tensor parallelism
  /// Of ranks with parts of the same samples, by the degrees.
  std::map<std::array<int64_t, 3>, GroupLink> contextLinks;
  std::map<std::array<int64_t, 3>, ReshardRate> moves;
  std::map<std::pair<std::string, int64_t>, std::vector<StrategyLinks>>
      stageLinks;
  std::map<std::array<int64_t, 15>, Seconds> known;
};

/// Bytes that the first stage has allocated at least: states of its blocks, and
/// what the forward passes in flight keep of them.
int64_t leastAllocated(const ModelShape &shape,
                       const Configuration &configuration,
                       const Execution &execution);

} // namespace galvatron

#endif // GALVATRON_SOFTWARE_BOUNDS_H
