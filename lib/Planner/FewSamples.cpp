//===- FewSamples.cpp - Batches below the step of a sweep -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FewSamples.h"

#include "LongSamples.h"

#include <limits>

using namespace llvm;

namespace galvatron::planner {

/// Returns true if the batch is open, in usual steps, and samples are long.
static bool mayHaveFew(LayerModel &model, const PlannerOptions &options) {
  return !options.batch && options.batchStep == PlannerOptions().batchStep &&
         options.maxBatch >= options.batchStep &&
         options.microBatchRule == MicroBatchRule::Search &&
         options.objective == Objective::Executed &&
         model.sequenceLength() >= kLeastPositions;
}

/// Options of a search that says whether a batch fits, and if not, why.
static PlannerOptions ofBatch(const PlannerOptions &options, int64_t batch) {
  PlannerOptions one = options;
  one.batch = batch;
  one.gapPercent = std::numeric_limits<double>::infinity(); // any plan will do
  one.relaxations = false;
  return one;
}

/// The sweep below the usual step.
static Expected<PlannerResult> planBelow(const Cluster &cluster,
                                         const PlannerOptions &options,
                                         PlanFunction planOn) {
  PlannerOptions few = options;
  few.batchStep = 1;
  few.maxBatch = options.batchStep - 1;
  Expected<PlannerResult> found = planOn(cluster, few);
  if (found)
    found->decisions.insert(found->decisions.begin(),
                            "a batch of " + std::to_string(options.batchStep) +
                                " does not fit: smaller ones are searched");
  return found;
}

Expected<PlannerResult> planFewSamples(LayerModel &model,
                                       const Cluster &cluster,
                                       const PlannerOptions &options,
                                       PlanFunction planOn) {
  if (!mayHaveFew(model, options))
    return planOn(cluster, options);
  Expected<PlannerResult> first =
      planOn(cluster, ofBatch(options, options.batchStep));
  // A batch that nothing divides is no matter of memory.
  if (!first || first->feasible() || first->infeasible().neededBytes == 0) {
    consumeError(first.takeError());
    return planOn(cluster, options);
  }
  if (options.isLate())
    return first;
  // Batches of one sample, two, four, ..., as long as they need less than all
  // before; `least` is the misfit that needs least.
  int64_t least = options.batchStep;
  int64_t needed = first->infeasible().neededBytes;
  for (int64_t batch = 1; batch < options.batchStep; batch *= 2) {
    Expected<PlannerResult> found = planOn(cluster, ofBatch(options, batch));
    if (!found)
      return found;
    if (found->feasible())
      return planBelow(cluster, options, planOn);
    const int64_t own = found->infeasible().neededBytes;
    if (own > 0 && own >= needed)
      break;
    if (own > 0) {
      least = batch;
      needed = own;
    }
    if (options.isLate())
      break;
  }
  // Batches that grow from the least misfit need more.
  PlannerOptions refused = options;
  if (least != options.batchStep)
    refused.batch = least;
  return planOn(cluster, refused);
}

} // namespace galvatron::planner
