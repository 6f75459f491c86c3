//===- arena_layout.cpp - What must be apart in an arena ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The places that a manifest names lie inside their regions, which the parser
// checks. Here they are compared with each other: regions of an arena and of a
// home, the states of layers, and in a slot what layers keep and what their
// functions use while they run.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/layout.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace grt {
namespace {

/// Extents that are pairwise apart, each with the name of what is there.
class ApartExtents {
public:
  explicit ApartExtents(std::string place) : place(std::move(place)) {}

  /// Throws Error if one of the others has a byte of it.
  void check(const std::string &name, const Extent &extent) const {
    if (!extent.bytes)
      return;
    auto next = byOffset.lower_bound(extent.offset);
    if (next != byOffset.end() && next->first < extent.offset + extent.bytes)
      meet(name, extent, *next);
    if (next != byOffset.begin() && overlap((--next)->second.extent, extent))
      meet(name, extent, *next);
  }
  void add(const std::string &name, const Extent &extent) {
    check(name, extent);
    if (extent.bytes)
      byOffset[extent.offset] = {name, extent};
  }

private:
  struct Named {
    std::string name;
    Extent extent;
  };

  [[noreturn]] void meet(const std::string &name, const Extent &extent,
                         const std::pair<const uint64_t, Named> &other) const {
    auto text = [](const std::string &what, const Extent &of) {
      return str(of.bytes) + " bytes of " + what + " at " + str(of.offset);
    };
    invalid("manifest: " + place + ": expected places that are apart, found " +
            text(name, extent) + " and " +
            text(other.second.name, other.second.extent));
  }

  std::string place;
  std::map<uint64_t, Named> byOffset;
};

std::string stageText(const Role &role) {
  return "stage " + str(int64_t(role.stage));
}

/// The slots, and the views of the window behind them.
Extent slotsWithWindow(const Role &role) {
  Extent slots = role.slots;
  if (role.window.bytes) {
    const uint64_t last = role.window.offset +
                          uint64_t(role.slotsInArena() - 1) * role.slotStride +
                          role.window.bytes;
    slots.bytes = std::max(slots.bytes, last - slots.offset);
  }
  return slots;
}

bool isInside(const Extent &inner, const Extent &outer) {
  return inner.offset >= outer.offset &&
         inner.offset + inner.bytes <= outer.offset + outer.bytes;
}

/// Boundary buffers take turns with each other and with temporaries, which
/// checkWiring() looks at, but with nothing else.
void checkRegions(const Manifest &manifest, const Role &role) {
  const bool hasHome = role.homeBytes > 0;
  ApartExtents arena(stageText(role) + ", arena");
  for (const auto &[name, extent] : {std::pair("data", role.data),
                                     {"loss", role.loss},
                                     {"step", role.step},
                                     {"workspace", role.workspace},
                                     {"away-slot", role.awaySlot}})
    arena.add(name, extent);
  if (manifest.hasPacks) {
    arena.add("packs", role.packs);
  } else {
    const Extent slots = slotsWithWindow(role);
    arena.add("slots", slots);
    arena.add("parameters",
              hasHome ? role.residentParameters : role.parameters);
    arena.add("gradients", hasHome ? role.residentGradients : role.gradients);
    arena.add("optimizer", hasHome ? role.residentOptimizer : role.optimizer);
    if (!isInside(role.transient, slots))
      arena.add("transient", role.transient);
    // Several of them may have the same bytes.
    for (const Extent &buffer : role.boundary)
      if (!isInside(buffer, role.transient))
        arena.check("boundary", buffer);
  }
  if (!hasHome)
    return;
  ApartExtents home(stageText(role) + ", home");
  for (const auto &[name, extent] : {std::pair("parameters", role.parameters),
                                     {"gradients", role.gradients},
                                     {"optimizer", role.optimizer},
                                     {"slots", role.homeSlots}})
    home.add(name, extent);
}

/// Where states have their home; in the arena those of packs take turns.
void checkStates(const Manifest &manifest, const Role &role) {
  const bool hasHome = role.homeBytes > 0;
  ApartExtents arena(stageText(role)), home(stageText(role) + ", home");
  for (const Layer &layer : role.layers) {
    // It reads the parameters of the pack that runs the same layer backward.
    if (layer.forwardOnly)
      continue;
    ApartExtents &states = hasHome && layer.isAway ? home : arena;
    const std::string of = " of layer '" + layer.name + "'";
    states.add("parameters" + of,
               {layer.parameter,
                uint64_t(layer.heldElements()) * manifest.elementBytes()});
    if (!layer.updatesOnDevice)
      states.add("gradients" + of,
                 {layer.gradient, uint64_t(layer.trainedElements()) *
                                      manifest.accumulatorBytes()});
    states.add("optimizer state" + of,
               {layer.optimizer, manifest.optimizerBytes(layer)});
  }
}

/// Where the states of a chunk's layers are while they are away from home.
void checkResidents(const Manifest &manifest, const Role &role,
                    const Chunk &chunk) {
  ApartExtents arena(stageText(role) + ", chunk " + str(int64_t(chunk.number)));
  for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i) {
    const Layer &layer = role.layers[i];
    if (!layer.isAway)
      continue;
    const std::string of = " of layer '" + layer.name + "'";
    arena.add("resident parameters" + of,
              {layer.residentParameter,
               uint64_t(layer.heldElements()) * manifest.elementBytes()});
    if (!layer.forwardOnly)
      arena.add("resident gradients" + of,
                {layer.residentGradient, uint64_t(layer.trainedElements()) *
                                             manifest.accumulatorBytes()});
    if (layer.updatesOnDevice)
      arena.add("resident optimizer state" + of,
                {layer.residentOptimizer, manifest.optimizerBytes(layer)});
  }
}

/// Bytes that functions of a layer use while they run.
struct Used {
  const char *what;
  Extent extent;
};

/// What a function of a layer uses while it runs, by direction.
std::array<Used, 2> usedForward(const Layer &layer) {
  return {Used{"forward temporaries",
               {layer.forwardTransient, layer.forwardTransientBytes}},
          Used{"parameters gathered for forward",
               {layer.forwardGathered.offset, layer.forwardGathered.bytes}}};
}
std::array<Used, 2> usedBackward(const Layer &layer) {
  return {Used{"backward temporaries",
               {layer.transient,
                alignUp(layer.recomputeStashBytes) + layer.transientBytes}},
          Used{"parameters gathered for backward",
               {layer.backwardGathered.offset, layer.backwardGathered.bytes}}};
}

void checkUsed(const ApartExtents &others, const std::array<Used, 2> &used,
               const Layer &layer) {
  for (const Used &each : used)
    others.check(std::string(each.what) + " of layer '" + layer.name + "'",
                 each.extent);
}

/// What a layer keeps in a slot, or in that of layers that are away; it is
/// temporary in a chunk without backward pass.
Extent keptBy(const Layer &layer) {
  if (layer.forwardOnly)
    return {};
  return {layer.stash, alignUp(layer.inputBytes) + layer.stashBytes};
}

/// The forward function writes the next layer's input.
void checkNextInput(const Role &role, const Layer &layer, const Layer &next) {
  if (layer.output != OutputKind::Slot || next.keptAway)
    return;
  ApartExtents input("slots of " + stageText(role));
  input.add("input of layer '" + next.name + "'",
            {next.stash, next.inputBytes});
  checkUsed(input, usedForward(layer), layer);
}

/// Checks that the values that a chunk's layers keep in a slot are apart, and
/// that the bytes that functions use are apart from those of their own layer
/// and of the layers in front. Where the weight parts of a backward pass run
/// behind all of it, they need what every layer keeps until then.
void checkSlot(const Role &role, const Chunk &chunk) {
  const std::span<const Layer> layers =
      std::span(role.layers).subspan(chunk.firstLayer, chunk.layerCount);
  ApartExtents kept("slots of " + stageText(role));
  ApartExtents keptAway("away slot of " + stageText(role));
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer &layer = layers[i];
    (layer.keptAway ? keptAway : kept)
        .add("kept values of layer '" + layer.name + "'", keptBy(layer));
    checkUsed(kept, usedBackward(layer), layer);
    checkUsed(kept, usedForward(layer), layer);
    if (i + 1 < layers.size())
      checkNextInput(role, layer, layers[i + 1]);
  }
  if (std::ranges::any_of(layers, [](auto &each) { return each.weight >= 0; }))
    for (const Layer &layer : layers)
      checkUsed(kept, usedBackward(layer), layer);
}

} // namespace

ResidentStates residentStates(const Manifest &manifest, const Layer &layer) {
  return {{layer.residentParameter,
           uint64_t(layer.heldElements()) * manifest.elementBytes()},
          {layer.residentGradient,
           uint64_t(layer.trainedElements()) * manifest.accumulatorBytes()},
          {layer.residentOptimizer, manifest.optimizerBytes(layer)}};
}

void checkArena(const Manifest &manifest, const Role &role) {
  checkRegions(manifest, role);
  checkStates(manifest, role);
  for (const Chunk &chunk : role.chunks) {
    checkResidents(manifest, role, chunk);
    checkSlot(role, chunk);
  }
}

} // namespace grt
