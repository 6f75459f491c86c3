//===- inspector.h - What is looked at beside a pass ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Logits and hits of an evaluation, as its loss is computed. And when the loss
// or the gradient norm of a step is not finite its update is left out, so the
// forward pass can be run again exactly as it was (random numbers are keyed by
// the step), now looking at the output of every layer.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_INSPECTOR_H
#define GRT_CORE_INSPECTOR_H

#include "core/batch_in_flight.h"
#include "core/bound_layer.h"
#include "core/observer.h"
#include "core/step_end.h"

#include <string>
#include <vector>

namespace grt {

class Inspector {
public:
  Inspector(const RankFacts &facts, const RankMemories &memories,
            const Observer &observer, const BatchInFlight &batch)
      : facts(facts), memories(memories), observer(observer), batch(batch) {}

  /// Logits of the scored rows of PassInput: those of the vocabulary from
  /// `first` on, `count` of each.
  struct Scores {
    int64_t first = 0;
    size_t count = 0;
    std::vector<double> values;
  };
  /// A kernel has run for a layer; of its buffers the addresses.
  void lookAtKernel(const grt_kernel_op &op, const LayerState &layer,
                    void *const buffers[]);

  /// Looks at states, and until `end` at the outputs of layers.
  void begin();
  /// A function of a layer has run.
  void lookAtOutput(size_t layer, LayerPhase phase, const BoundLayer &bound);
  /// All ranks learn what any of them has found.
  void end();
  std::string describeNotFinite() const;

  /// Of the last pass; empty on ranks that have none of them.
  Scores scores;
  /// How many values of the last pass that count have the largest logit of
  /// their row; of those whose loss is computed here, once of a TP group.
  uint64_t hits = 0;

private:
  void keepScores(const grt_kernel_op &op, const LayerState &layer,
                  const void *logits);
  void countHits(const grt_kernel_op &op, const LayerState &layer,
                 const void *labels, const void *stats);

  const RankFacts &facts;
  const RankMemories &memories;
  const Observer &observer;
  const BatchInFlight &batch;
  bool looksAtOutputs = false;
  int64_t notFinite = 0; ///< where, see inspector.cpp
};

} // namespace grt

#endif // GRT_CORE_INSPECTOR_H
