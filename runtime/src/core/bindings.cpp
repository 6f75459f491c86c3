//===- bindings.cpp - Tables of a layer's places --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/places.h"

namespace grt {
namespace {

/// Of what a rank does not update it needs no sum; borrowers' gradients go to
/// the owner, whole from any of them.
void addCutSums(const Manifest &manifest, const Layer &layer, Group *group,
                int64_t shift, StepPlaces &places) {
  const grt_dtype dtype = manifest.accumulatorType();
  const auto width = int64_t(dtypeBytes(dtype));
  const auto owned = uint64_t(layer.ownedElements());
  const auto borrowed = uint64_t(layer.groups[1].shardElements);
  char *all = places.gradients;
  if (owned)
    places.sums.push_back({CollectiveKind::ReduceScatter, group, all,
                           all - shift * width, owned, dtype});
  if (borrowed) {
    char *last = all + layer.heldBefore(1) * width;
    places.sums.push_back(
        {CollectiveKind::AllReduce, group, last, last, borrowed, dtype});
  }
}

} // namespace

StepPlaces stepPlaces(const Manifest &manifest, const Role &role, size_t number,
                      int localRank, const Side &home, const Side &side,
                      Group *const groups[]) {
  const Layer &layer = role.layers[number];
  const auto trained = uint64_t(layer.trainedElements());
  const uint64_t width = manifest.elementBytes();
  StepPlaces places;
  places.home = &home;
  places.side = &side;
  places.resident = residentStates(manifest, layer);
  places.parameterBytes = places.resident.parameters.bytes;
  places.gradientBytes = places.resident.gradients.bytes;
  const bool isResident = layer.updatesOnDevice;
  places.parameters =
      side.base + (isResident ? layer.residentParameter : layer.parameter);
  places.gradients =
      side.base + (isResident ? layer.residentGradient : layer.gradient);
  places.optimizer =
      side.base + (isResident ? layer.residentOptimizer : layer.optimizer);
  const int64_t shift = stateShift(layer, localRank);
  if (!layer.cutsStateOnly) {
    if (Group *dp = groups[GRT_AXIS_DP]; dp && trained)
      places.sums = {{CollectiveKind::AllReduce, dp, places.gradients,
                      places.gradients, trained, manifest.accumulatorType()}};
  } else if (Group *sdp = groups[GRT_AXIS_SDP]) {
    addCutSums(manifest, layer, sdp, shift, places);
    if (layer.ownedElements())
      places.gathers = {{CollectiveKind::AllGather, sdp,
                         places.parameters - shift * int64_t(width),
                         places.parameters, uint64_t(layer.ownedElements()),
                         manifest.dtype}};
  }
  return places;
}

/// Fills the rows of a layer.
class LayerBindings::Builder {
public:
  Builder(LayerBindings &result, const Manifest &manifest, const Role &role,
          size_t number, const StepPlaces &places, char *arena)
      : result(result), manifest(manifest), role(role), number(number),
        layer(role.layers[number]), places(places), arena(arena) {}

  void build(int64_t shift) {
    for (LayerPhase phase : {LayerPhase::Forward, LayerPhase::Recompute,
                             LayerPhase::Backward, LayerPhase::Weight}) {
      addStates(phase);
      addValues(phase);
      addNeighbours(phase);
    }
    addUpdate(shift);
  }

private:
  BoundRegion &at(LayerPhase phase, grt_region region) {
    return result.rows[size_t(phase)][region];
  }
  void set(LayerPhase phase, grt_region region, uint64_t offset, uint64_t bytes,
           uint64_t perSlot = 0) {
    at(phase, region) = {arena + offset, bytes, perSlot};
  }
  void setInSlot(LayerPhase phase, grt_region region, uint64_t offset,
                 uint64_t bytes) {
    set(phase, region, role.slots.offset + offset, bytes, role.slotStride);
  }
  /// `offset`: behind the beginning of what the layer keeps.
  void setKept(LayerPhase phase, grt_region region, const Layer &of,
               uint64_t offset, uint64_t bytes) {
    set(phase, region, role.keptOffset(of, 0) + offset, bytes,
        of.keptAway ? 0 : role.slotStride);
  }

  void addStates(LayerPhase phase) {
    set(phase, GRT_REGION_PARAMETER, layer.residentParameter,
        places.parameterBytes);
    set(phase, GRT_REGION_GRADIENT, layer.residentGradient,
        places.gradientBytes);
  }

  /// Updates and norms are of what the rank owns, be the others here or not.
  void addUpdate(int64_t shift) {
    uint64_t first = 0, held = uint64_t(layer.trainedElements());
    if (layer.cutsStateOnly) {
      first = uint64_t(-shift);
      held = uint64_t(layer.ownedElements());
    }
    const uint64_t width = manifest.elementBytes();
    const uint64_t wide = manifest.accumulatorBytes();
    const LayerPhase update = LayerPhase::Update;
    at(update, GRT_REGION_PARAMETER) = {places.parameters + first * width,
                                        held * width};
    at(update, GRT_REGION_GRADIENT) = {places.gradients + first * wide,
                                       held * wide};
    at(update, GRT_REGION_OPTIMIZER) = {places.optimizer,
                                        manifest.optimizerBytes(layer)};
    addValues(update);
  }

  /// Adds the values that the layer keeps, and its temporaries.
  void addValues(LayerPhase phase) {
    const uint64_t recomputed = alignUp(layer.recomputeStashBytes);
    const uint64_t input = alignUp(layer.inputBytes);
    const bool stashIsTransient =
        layer.recompute >= 0 &&
        (phase == LayerPhase::Recompute || phase == LayerPhase::Backward);
    if (stashIsTransient) {
      setInSlot(phase, GRT_REGION_STASH, layer.transient,
                layer.recomputeStashBytes);
      setInSlot(phase, GRT_REGION_TRANSIENT, layer.transient + recomputed,
                layer.transientBytes);
    } else if (layer.forwardOnly) {
      // Nobody needs what it keeps.
      setInSlot(phase, GRT_REGION_STASH, layer.forwardTransient,
                layer.stashBytes);
      setInSlot(phase, GRT_REGION_TRANSIENT,
                layer.forwardTransient + alignUp(layer.stashBytes),
                layer.forwardTransientBytes);
    } else {
      setKept(phase, GRT_REGION_STASH, layer, input, layer.stashBytes);
      if (phase == LayerPhase::Forward)
        setInSlot(phase, GRT_REGION_TRANSIENT, layer.forwardTransient,
                  layer.forwardTransientBytes);
      else
        setInSlot(phase, GRT_REGION_TRANSIENT, layer.transient,
                  recomputed + layer.transientBytes);
    }
  }

  void addOutput(uint64_t behind) {
    const LayerPhase forward = LayerPhase::Forward;
    if (layer.output == OutputKind::Slot) {
      const Layer &next = role.layers[number + 1];
      setKept(forward, GRT_REGION_OUTPUT, next, 0, next.inputBytes);
    } else if (layer.output == OutputKind::Boundary) {
      const Extent buffer = boundaryExtent(role, layer.outputBuffer, behind);
      set(forward, GRT_REGION_OUTPUT, buffer.offset, buffer.bytes);
    }
  }

  /// Adds the layer's input and output, and their gradients.
  void addNeighbours(LayerPhase phase) {
    const Gathered &full = phase == LayerPhase::Forward
                               ? layer.forwardGathered
                               : layer.backwardGathered;
    setInSlot(phase, GRT_REGION_GATHERED, full.offset, full.bytes);
    setKept(phase, GRT_REGION_INPUT, layer, 0, layer.inputBytes);
    const uint64_t behind = outputBytes(manifest, role, number);
    if (layer.output == OutputKind::Loss)
      set(phase, GRT_REGION_LOSS, role.loss.offset, manifest.lossBytes());
    // Other phases have temporaries where it lies.
    if (phase == LayerPhase::Forward)
      addOutput(behind);
    if (phase != LayerPhase::Backward)
      return;
    const Extent in = boundaryExtent(role, layer.gradIn, behind);
    const Extent out = boundaryExtent(role, layer.gradOut, layer.frontBytes);
    set(phase, GRT_REGION_GRAD_IN, in.offset, in.bytes);
    set(phase, GRT_REGION_GRAD_OUT, out.offset, out.bytes);
  }

  LayerBindings &result;
  const Manifest &manifest;
  const Role &role;
  const size_t number;
  const Layer &layer;
  const StepPlaces &places;
  char *arena;
};

LayerBindings::LayerBindings(const Manifest &manifest, const Role &role,
                             size_t layer, int localRank,
                             const StepPlaces &places, char *arena) {
  Builder(*this, manifest, role, layer, places, arena)
      .build(stateShift(role.layers[layer], localRank));
}

} // namespace grt
