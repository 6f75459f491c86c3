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

namespace {

/// A batch that does not fit, and the bytes of the stage in need under the
/// least plan.
struct Misfit {
  int64_t batch;
  int64_t neededBytes;
};

} // namespace

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

/// Looks at batches of one sample, two, four, ..., as long as they need less
/// than all before, for one that fits; `least` is the misfit that needs least.
static Expected<bool> fitsBelow(const Cluster &cluster,
                                const PlannerOptions &options,
                                PlanFunction planOn, Misfit &least) {
  for (int64_t batch = 1; batch < options.batchStep; batch *= 2) {
    Expected<PlannerResult> found = planOn(cluster, ofBatch(options, batch));
    if (!found)
      return found.takeError();
    if (found->feasible())
      return true;
    const int64_t needed = found->infeasible().neededBytes;
    if (needed > 0 && needed >= least.neededBytes)
      return false;
    if (needed > 0)
      least = {batch, needed};
    if (options.isLate())
      return false;
  }
  return false;
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
  Misfit least = {options.batchStep, first->infeasible().neededBytes};
  Expected<bool> fits = fitsBelow(cluster, options, planOn, least);
  if (!fits)
    return fits.takeError();
  if (*fits)
    return planBelow(cluster, options, planOn);
  if (least.batch == options.batchStep)
    return planOn(cluster, options);
  // Batches that grow from here need more.
  PlannerOptions refused = options;
  refused.batch = least.batch;
  return planOn(cluster, refused);
}

} // namespace galvatron::planner
