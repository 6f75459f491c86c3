//===- CheckOptions.cpp - Options that cannot be planned for --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Spaces.h"

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Cost/StageContents.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Schedule/Schedule.h"

#include <algorithm>
#include <numeric>

using namespace llvm;

namespace galvatron::planner {

Error checkOptions(LayerModel &model, const Cluster &cluster,
                   const PlannerOptions &options, const Space &space) {
  auto layers = static_cast<int64_t>(model.layerCount());
  if (layers < 1)
    return makeError("model '" + model.name() + "' has no layers");
  if (options.batch && *options.batch < 1)
    return makeError("expected a batch of at least 1, found " +
                     Twine(*options.batch));
  if (options.batch && *options.batch > kMostBatch)
    return makeError("expected a batch of at most 2^30, found " +
                     Twine(*options.batch));
  if (!options.batch && (options.batchStep < 1 || options.maxBatch < 1))
    return makeError("expected a batch step and a largest batch of at least 1");
  if (!options.batch && options.maxBatch < options.batchStep)
    return makeError("the largest batch " + Twine(options.maxBatch) +
                     " is below the batch step " + Twine(options.batchStep));
  if (!options.batch && options.maxBatch > kMostBatch)
    return makeError("expected a largest batch of at most 2^30, found " +
                     Twine(options.maxBatch));
  constexpr int64_t mostBatches = int64_t(1) << 20;
  if (!options.batch && options.maxBatch / options.batchStep > mostBatches)
    return makeError("the sweep has " +
                     Twine(options.maxBatch / options.batchStep) +
                     " batches, expected at most 2^20: use a larger step");
  std::string ofBatch =
      options.batch ? " of " + std::to_string(*options.batch) : std::string();
  if (options.microBatches &&
      (*options.microBatches < 1 ||
       (options.batch && *options.batch % *options.microBatches != 0)))
    return makeError(Twine(*options.microBatches) +
                     " micro-batches do not divide the batch" + ofBatch);
  if (options.microBatches && options.microBatchRule == MicroBatchRule::Paper)
    return makeError("expected either a number of micro-batches or a rule for "
                     "it, found both");
  if (options.memory && *options.memory < 1)
    return makeError("expected a memory above 0");
  std::vector<int64_t> all(cluster.deviceCount());
  std::iota(all.begin(), all.end(), 0);
  if (Error error = checkDevices(model, cluster, all))
    return error;
  if (!options.partition.empty()) {
    int64_t sum = 0;
    for (int64_t length : options.partition) {
      if (length < 1)
        return makeError("the partition has a stage of " + Twine(length) +
                         " layers");
      sum += length;
    }
    if (sum != layers)
      return makeError("the partition has " + Twine(sum) +
                       " layers, but model '" + model.name() + "' has " +
                       Twine(layers));
  }
  const Schedule &schedule =
      options.schedule ? *options.schedule : defaultSchedule();
  if (options.chunks < 0)
    return makeError("expected at least one chunk a stage, found " +
                     Twine(options.chunks));
  // Checked for a pipeline: which degrees there are is the space's matter.
  int64_t chunks = options.chunks ? options.chunks : chunksOf(options);
  if (Error error =
          schedule.check(ScheduleShape::of(2, 1, chunks, options.offload)))
    return error;
  if (Error error = checkClipping(schedule, options.offload, options.training))
    return error;
  if (options.offload != Offload::Off) {
    if (options.objective == Objective::Paper)
      return makeError("objective 'paper' has all states on the devices: "
                       "expected objective 'executed' for offload '" +
                       offloadName(options.offload) + "'");
    StringRef backend = cluster.backendOf(all);
    if (options.offload.byLayer() && options.offload.activations &&
        backendTraits(backend).streams)
      return makeError("offload '" + offloadName(options.offload) +
                       "': on devices of backend '" + backend +
                       "' activations of single layers stay there, expected "
                       "'layers', or 'optimizer,activations' for all of them");
    if (options.offload.prefetch && !backendTraits(backend).streams)
      return makeError("offload '" + offloadName(options.offload) +
                       "': on devices of backend '" + backend +
                       "' the thread that computes copies, so nothing comes "
                       "ahead: expected none of 'prefetch'");
  }
  auto checkHome = [&](const Strategy &strategy) {
    return strategy.home() && !options.offload.byLayer()
               ? makeError("strategy '" + strategy.str() +
                           "' has its home on the host: expected offload "
                           "'layers' or 'layers,activations', found '" +
                           offloadName(options.offload) + "'")
               : Error::success();
  };
  if (options.strategy)
    if (Error error = checkHome(*options.strategy))
      return error;
  for (const LayerPin &pin : options.pins)
    if (Error error = checkHome(pin.strategy))
      return error;
  if (chunksOf(options) > 1 && options.objective == Objective::Paper)
    return makeError("objective 'paper' is of whole stages: expected objective "
                     "'executed' for schedule '" +
                     schedule.name() + "'");
  if (schedule.splitsBackward() && !model.splitsBackward())
    return makeError("schedule '" + schedule.name() +
                     "' splits backward passes, and model '" + model.name() +
                     "' does not say what their parts take: expected a model "
                     "with bodies, or 'weight-ms' in its profile");
  if (options.gapPercent < 0)
    return makeError("expected a gap of at least 0 percent");
  int64_t fewest = *std::min_element(space.pipelineDegrees.begin(),
                                     space.pipelineDegrees.end());
  if (layers < fewest)
    return makeError("model '" + model.name() + "' has " + Twine(layers) +
                     " layers, fewer than the " + Twine(fewest) +
                     " stages of the pipeline");
  if (options.strategy && options.batch && options.microBatches) {
    int64_t samples = *options.batch / *options.microBatches;
    if (Expected<int64_t> local = options.strategy->localSamples(samples);
        !local)
      return local.takeError();
  }
  return Error::success();
}

} // namespace galvatron::planner
