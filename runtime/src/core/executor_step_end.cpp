//===- executor_step_end.cpp - What ends a step ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sums of gradients over ranks and between the ends of ties, their norm, losses
// and what is decided from both, and the update.
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"
#include "grt/update_decision.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace grt {

void Rank::runOnStates(const StepPlaces &places,
                       const std::vector<StateCollective> &collectives,
                       grt_stream stream, const char *what) {
  notePlace(what);
  const Side &does = *places.side;
  Communicator &by = *does.communicator;
  does.memory->order(GRT_STREAM_COMPUTE, stream);
  by.onStream(stream);
  for (const StateCollective &each : collectives) {
    const bool gathers = each.kind == CollectiveKind::AllGather;
    noteUseBy(does, gathers ? places.parameters : places.gradients,
              gathers ? places.parameterBytes : places.gradientBytes, what);
    switch (each.kind) {
    case CollectiveKind::AllGather:
      by.allGather(*each.group, each.from, each.to, each.bytes());
      break;
    case CollectiveKind::ReduceScatter:
      by.reduceScatter(*each.group, each.from, each.to, each.elements,
                       each.dtype, /*accumulate=*/false);
      break;
    default:
      by.allReduce(*each.group, each.to, each.elements, each.dtype);
    }
  }
  by.onStream(GRT_STREAM_COMPUTE);
}

void Rank::reduceGradients(size_t number) {
  const Layer &layer = roleData->layers[number];
  const StepPlaces &places = layers[number].places;
  activity.setLayer(layer.name.c_str());
  runningLayer = &layer;
  if (recorder)
    recorder->layer = int32_t(number);
  if (places.sums.empty())
    return;
  runOnStates(places, places.sums, GRT_STREAM_GRADIENT, "sum of gradients");
  if (places.side->isHost)
    return;
  leaveMark(GRT_STREAM_GRADIENT);
  progress.reduces = true;
}

void Rank::awaitSums(grt_stream stream) {
  if (progress.reduces)
    device->order(GRT_STREAM_GRADIENT, stream);
}

void Rank::synchroniseGradients(const ChunkState &at) {
  if (!at.reduced)
    run(procedures.of(at.number, GRT_TASK_SYNC_GRADIENTS), {});
  awaitSums(GRT_STREAM_COMPUTE);
  progress.reduces = false;
}

bool Rank::hasLoss() const {
  return roleData->layers.back().output == OutputKind::Loss &&
         layers.back().countsLoss();
}

void Rank::update(const ChunkState &at) {
  // Values that others have not taken yet are about to change.
  ties.awaitTaken();
  run(procedures.of(at.number, GRT_TASK_UPDATE), {});
}

} // namespace grt
