//===- whole_buffers.cpp - Buffers of collectives and pieces of arenas ----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/whole_buffers.h"
#include "core/places.h"

#include <algorithm>
#include <cstdint>

namespace grt {
namespace {

class WholeBuffers {
public:
  WholeBuffers(const Manifest &manifest, const Role &role,
               const ProgramFile &program)
      : manifest(manifest), role(role), program(program) {}

  bool run() {
    for (const Extent &buffer : role.boundary)
      add(buffer.offset, buffer.bytes, /*perSlot=*/0);
    for (size_t number = 0; number < role.layers.size(); ++number)
      addLayer(number);
    return whole;
  }

private:
  /// Bindings are made of addresses; these are of no memory.
  static char *base() { return reinterpret_cast<char *>(uintptr_t(1) << 40); }

  /// Takes a buffer into account, in all slots.
  void add(uint64_t offset, uint64_t bytes, uint64_t perSlot) {
    const auto slots = uint64_t(role.slotsInArena());
    for (uint64_t slot = 0; slot < (perSlot ? slots : 1); ++slot) {
      const uint64_t begin = offset + slot * perSlot, end = begin + bytes;
      for (uint64_t view = 0; view < slots; ++view) {
        const uint64_t from = role.window.offset + view * role.slotStride;
        for (uint64_t border : {from, from + role.window.bytes})
          whole = whole && (end <= border || begin >= border);
      }
    }
  }

  void addCalls(int function, const Binding &binding) {
    if (function < 0)
      return;
    for (const gvx::Call &call : program.calls(size_t(function))) {
      if (call.kind != gvx::CallKind::Communicate)
        continue;
      const grt_collective_op &op = program.collective(call.index);
      for (const grt_buffer *buffer : {&op.in, &op.out}) {
        const BoundRegion &region = binding[buffer->region];
        if (region.bytes)
          add(uint64_t(region.base - base()) + buffer->offset, buffer->bytes,
              region.perSlot);
      }
    }
  }

  void addGathered(const Layer &layer, const Gathered &gathered) {
    if (!gathered.bytes)
      return;
    uint64_t at = role.slots.offset + gathered.offset;
    for (const FlatGroup &group : layer.groups) {
      const uint64_t bytes = uint64_t(group.elements) * manifest.elementBytes();
      add(at, bytes, role.slotStride);
      at += alignUp(bytes);
    }
  }

  void addLayer(size_t number) {
    const Layer &layer = role.layers[number];
    StepPlaces places;
    places.parameters = places.gradients = places.optimizer = base();
    const LayerBindings bindings(manifest, role, number, /*localRank=*/0,
                                 places, base());
    addCalls(layer.forward, bindings[LayerPhase::Forward]);
    addCalls(layer.recompute, bindings[LayerPhase::Recompute]);
    addCalls(layer.backward, bindings[LayerPhase::Backward]);
    addCalls(layer.weight, bindings[LayerPhase::Weight]);
    addGathered(layer, layer.forwardGathered);
    addGathered(layer, layer.backwardGathered);
  }

  const Manifest &manifest;
  const Role &role;
  const ProgramFile &program;
  bool whole = true;
};

} // namespace

bool hasWholeBuffers(const Manifest &manifest, const Role &role,
                     const ProgramFile &program) {
  return role.window.bytes == 0 || WholeBuffers(manifest, role, program).run();
}

} // namespace grt
