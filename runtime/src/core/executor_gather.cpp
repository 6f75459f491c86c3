//===- executor_gather.cpp - Sharded parameters in full -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On devices with streams parameters are gathered around functions, on
// GRT_STREAM_GATHER. The program says which layers may be gathered while the
// one before them runs, and where to: never onto what that layer uses.
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"

namespace grt {

const Gathered &Rank::gatheredOf(size_t number, Phase phase) const {
  const Layer &layer = roleData->layers[number];
  return phase == Phase::Forward ? layer.forwardGathered
                                 : layer.backwardGathered;
}

Extent Rank::gatheredExtent(size_t number, uint32_t slot, Phase phase) const {
  const Gathered &gathered = gatheredOf(number, phase);
  return {roleData->slots.offset + slot * roleData->slotStride +
              gathered.offset,
          gathered.bytes};
}

void Rank::startGather(const gvx::Command &command, uint32_t slot) {
  const auto number = size_t(command.layer);
  const Phase phase = command.phase;
  Extent extent = gatheredExtent(number, slot, phase);
  const Layer &layer = roleData->layers[number];
  begin(extent);
  activity.setLayer(layer.name.c_str());
  runningLayer = &layer;
  if (recorder)
    recorder->layer = int32_t(number);
  notePlace("gather of parameters");
  device->order(GRT_STREAM_COMPUTE, GRT_STREAM_GATHER);
  if (command.number)
    awaitSums(GRT_STREAM_GATHER);
  communicator->onStream(GRT_STREAM_GATHER);
  Group &group = *layers[number].groups[GRT_AXIS_SDP];
  const char *from = arena->base() + layer.residentParameter + progress.weights;
  char *to = arena->base() + extent.offset;
  for (const FlatGroup &flat : layer.groups) {
    uint64_t shard = uint64_t(flat.shardElements) * manifest.elementBytes();
    if (shard)
      communicator->allGather(group, from, to, shard);
    from += shard;
    to += alignUp(uint64_t(flat.elements) * manifest.elementBytes());
  }
  communicator->onStream(GRT_STREAM_COMPUTE);
  // Gradients that the functions beside it scatter may have ranks in common
  // with it: they come behind it, on all ranks.
  if (phase != Phase::Forward)
    device->order(GRT_STREAM_GATHER, GRT_STREAM_GRADIENT);
}

} // namespace grt
