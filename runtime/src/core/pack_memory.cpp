//===- pack_memory.cpp - What packs and messages take in turns ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Packs begin at one place of the arena and take turns there; messages wait at
// the other end, in places that are larger for some packs than for others. So
// whether all are apart depends on the order of the tasks, which is followed
// here once, when a program is loaded.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/layout.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace grt {
namespace {

/// Where a pack keeps things while it runs.
struct Frame {
  Extent slot; ///< and the temporaries behind it
  std::vector<Extent> states, buffers;
  /// What comes for an update, when slot and buffers are needed no more.
  std::vector<Extent> optimizer;

  Extent whole() const {
    uint64_t end = slot.offset + slot.bytes;
    for (const auto *extents : {&states, &buffers, &optimizer})
      for (const Extent &extent : *extents)
        end = std::max(end, extent.offset + extent.bytes);
    return {slot.offset, end - slot.offset};
  }
};

Frame frameOf(const Manifest &manifest, const Role &role, const Chunk &chunk) {
  Frame frame{{role.slots.offset, 0}, {}, {}, {}};
  for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i) {
    const Layer &layer = role.layers[i];
    const uint64_t kept = layer.forwardOnly ? 0 : alignUp(layer.stashBytes);
    const uint64_t keptForward =
        layer.forwardOnly ? alignUp(layer.stashBytes) : 0;
    // Where nothing is an offset says nothing.
    for (const Extent &extent :
         {Extent{layer.stash, alignUp(layer.inputBytes) + kept},
          Extent{layer.transient,
                 alignUp(layer.recomputeStashBytes) + layer.transientBytes},
          Extent{layer.forwardTransient,
                 keptForward + layer.forwardTransientBytes},
          Extent{layer.forwardGathered.offset, layer.forwardGathered.bytes},
          Extent{layer.backwardGathered.offset, layer.backwardGathered.bytes}})
      if (extent.bytes)
        frame.slot.bytes =
            std::max(frame.slot.bytes, extent.offset + extent.bytes);
    const auto held = uint64_t(layer.heldElements());
    frame.states.push_back(
        {layer.residentParameter, held * uint64_t(manifest.elementBytes())});
    if (!layer.forwardOnly)
      frame.states.push_back(
          {layer.residentGradient, uint64_t(layer.trainedElements()) *
                                       uint64_t(manifest.accumulatorBytes())});
    if (layer.updatesOnDevice)
      frame.optimizer.push_back(
          {layer.residentOptimizer, manifest.optimizerBytes(layer)});
    const uint64_t behind = outputBytes(manifest, role, i);
    frame.buffers.push_back(boundaryExtent(role, layer.outputBuffer, behind));
    frame.buffers.push_back(boundaryExtent(role, layer.gradIn, behind));
    frame.buffers.push_back(
        boundaryExtent(role, layer.gradOut, layer.frontBytes));
  }
  return frame;
}

/// That a pack's states are apart from each other and from all else that it
/// keeps. Buffers are looked at with the layers that use them.
void checkFrame(const Role &role, const Chunk &chunk, const Frame &frame) {
  auto apart = [&](const Extent &one, const Extent &other) {
    if (overlap(one, other))
      invalid("manifest: chunk " + str(uint64_t(chunk.number)) + " of stage " +
              str(uint64_t(role.stage)) + ": " + str(one.bytes) + " bytes at " +
              str(one.offset) + " meet " + str(other.bytes) + " bytes at " +
              str(other.offset));
  };
  auto allApart = [&](std::vector<Extent> states,
                      const std::vector<Extent> &others) {
    std::erase_if(states, [](const Extent &extent) { return !extent.bytes; });
    std::sort(
        states.begin(), states.end(),
        [](const Extent &a, const Extent &b) { return a.offset < b.offset; });
    for (size_t i = 0; i < states.size(); ++i) {
      if (i)
        apart(states[i - 1], states[i]);
      for (const Extent &other : others)
        apart(other, states[i]);
    }
  };
  std::vector<Extent> others = frame.buffers;
  others.push_back(frame.slot);
  allApart(frame.states, others);
  // While it is updated nothing else is needed.
  std::vector<Extent> states = frame.states;
  states.insert(states.end(), frame.optimizer.begin(), frame.optimizer.end());
  allApart(std::move(states), {});
}

class PackMemory {
public:
  PackMemory(const grt_schedule &schedule, const Manifest &manifest,
             const Role &role, const std::string &name)
      : schedule(schedule), role(role), name(name) {
    for (const Chunk &chunk : role.chunks) {
      Frame frame = frameOf(manifest, role, chunk);
      checkFrame(role, chunk, frame);
      frames.push_back(frame.whole());
    }
  }

  void follow(const grt_task_list &list) {
    messages.assign(role.waitingPlaces, {});
    const Chunk *there = nullptr;
    for (uint64_t i = 0; i < list.count; ++i) {
      const grt_task &task = list.tasks[i];
      const bool computes =
          task.kind == GRT_TASK_FORWARD || task.kind == GRT_TASK_BACKWARD;
      if (task.kind == GRT_TASK_TRANSFER)
        arrive(task);
      else if (computes || task.kind == GRT_TASK_SWAP)
        there = role.chunk(task.chunk);
      else
        continue;
      checkApart(there, i);
      if (computes)
        use(task);
    }
  }

private:
  struct Message {
    int chunk = -1;
    uint32_t microBatch = 0;
    uint8_t value = 0;
    Extent extent = {};
  };

  void arrive(const grt_task &task) {
    for (uint32_t p = 0; p < task.count; ++p) {
      const grt_transfer_part &part = schedule.transfers[task.first + p];
      if (part.direction == GRT_SEND || part.value == GRT_STASH)
        continue;
      const Chunk &chunk = *role.chunk(part.chunk);
      messages[part.slot] = {
          part.chunk, part.micro_batch, part.value,
          role.waitingExtent(chunk, part.slot, chunk.waitingBytes)};
    }
  }

  /// A pass without a message names place 0.
  void use(const grt_task &task) {
    if (task.slot >= messages.size())
      return;
    Message &message = messages[task.slot];
    const auto value =
        task.kind == GRT_TASK_FORWARD ? GRT_ACTIVATION : GRT_GRADIENT;
    if (message.chunk == task.chunk && message.value == value &&
        message.microBatch == task.micro_batch)
      message = {};
  }

  void checkApart(const Chunk *there, uint64_t task) const {
    auto fault = [&](const Message &message, const std::string &what) {
      invalid(name + ", task " + str(task) + ": " + str(message.extent.bytes) +
              " bytes that wait for chunk " + str(uint64_t(message.chunk)) +
              " meet " + what);
    };
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].chunk < 0)
        continue;
      if (there &&
          overlap(messages[i].extent, frames[size_t(there - &role.chunks[0])]))
        fault(messages[i],
              "chunk " + str(uint64_t(there->number)) + ", which is there");
      for (size_t j = 0; j < i; ++j)
        if (messages[j].chunk >= 0 &&
            overlap(messages[i].extent, messages[j].extent))
          fault(messages[i],
                "others for chunk " + str(uint64_t(messages[j].chunk)));
    }
  }

  const grt_schedule &schedule;
  const Role &role;
  const std::string &name;
  std::vector<Extent> frames;    ///< by chunk
  std::vector<Message> messages; ///< by place
};

} // namespace

void checkPackMemory(const grt_schedule &schedule, const Manifest &manifest,
                     const Role &role, const std::string &name) {
  PackMemory memory(schedule, manifest, role, name);
  for (grt_part part : {GRT_PART_STEADY, GRT_PART_EVALUATE})
    memory.follow(schedule.parts[part]);
}

} // namespace grt
