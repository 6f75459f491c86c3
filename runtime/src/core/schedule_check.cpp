//===- schedule_check.cpp - The proof of a program that is loaded ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/schedule_check.h"
#include "base/error.h"
#include "core/layout.h"
#include "grt/schedule_proof.h"
#include "grt/swap_order.h"

#include <algorithm>
#include <vector>

namespace grt {
namespace {

namespace tasks = galvatron::tasks;

using tasks::ProgramChunk;
using tasks::RoleProgram;
using tasks::SchedulePart;
using tasks::Task;
using tasks::TaskKind;
using tasks::TaskProgram;
using tasks::TaskStream;
using tasks::TransferDirection;
using tasks::TransferPart;
using tasks::TransferValue;

// Rows of programs and tasks of the proof have the same numbers.
static_assert(uint8_t(TaskKind::Swap) == GRT_TASK_SWAP &&
              uint8_t(TaskKind::BackwardWeight) == GRT_TASK_BACKWARD_WEIGHT &&
              uint8_t(TaskKind::TieBroadcast) == GRT_TASK_TIE_BROADCAST);
static_assert(uint8_t(SchedulePart::Evaluate) == GRT_PART_EVALUATE &&
              tasks::kSchedulePartCount == GRT_PART_COUNT);
static_assert(uint8_t(TransferDirection::Receive) == GRT_RECEIVE &&
              uint8_t(TransferValue::Stash) == GRT_STASH);
static_assert(uint8_t(tasks::SwapOptimizer) == GRT_SWAP_OPTIMIZER &&
              uint8_t(tasks::SyncBehind) == GRT_SYNC_BEHIND);
static_assert(uint8_t(TaskStream::Out) == GRT_STREAM_OUT &&
              tasks::kScheduleEvents == GRT_SCHEDULE_EVENTS);

TransferPart partOf(const grt_transfer_part &row) {
  return {TransferDirection(row.direction),
          TransferValue(row.value),
          row.chunk,
          row.peer_chunk,
          row.slot,
          row.generation,
          row.micro_batch};
}

Task taskOf(const grt_task &row, const grt_schedule &from) {
  Task task;
  task.kind = TaskKind(row.kind);
  task.flags = row.flags;
  task.chunk = row.chunk;
  task.slot = row.slot;
  task.generation = row.generation;
  task.microBatch = row.micro_batch;
  task.classes = row.classes;
  task.out = row.tiers == GRT_TO_HOST;
  task.stream = TaskStream(row.stream);
  task.records = row.records;
  std::ranges::copy(row.waits, task.waits.begin());
  task.parts.reserve(row.count);
  for (uint32_t i = 0; i < row.count; ++i)
    task.parts.push_back(partOf(from.transfers[row.first + i]));
  return task;
}

/// A set of tensors between layers.
struct Between {
  int buffer;
  uint64_t bytes;
};

bool meet(const Role &role, const std::vector<Between> &some,
          const std::vector<Between> &others) {
  for (const Between &a : some)
    for (const Between &b : others)
      if (overlap(boundaryExtent(role, a.buffer, a.bytes),
                  boundaryExtent(role, b.buffer, b.bytes)))
        return true;
  return false;
}

/// What of what a role makes, what it receives and what it works on backward is
/// apart.
RoleProgram::Apart apartOf(const Manifest &manifest, const Role &role) {
  std::vector<Between> outputs, received, gradients;
  auto add = [](std::vector<Between> &list, int buffer, uint64_t bytes) {
    const auto same = [&](const Between &other) {
      return other.buffer == buffer && other.bytes == bytes;
    };
    // Layers are alike, so the lists are short.
    if (buffer >= 0 && bytes && std::ranges::none_of(list, same))
      list.push_back({buffer, bytes});
  };
  for (const Chunk &chunk : role.chunks)
    for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i) {
      const Layer &layer = role.layers[i];
      const uint64_t bytes = outputBytes(manifest, role, i);
      add(outputs, layer.outputBuffer, bytes);
      add(i + 1 == chunk.endLayer() ? received : gradients, layer.gradIn,
          bytes);
      add(gradients, layer.gradOut, layer.frontBytes);
    }
  return {!meet(role, outputs, received), !meet(role, outputs, gradients),
          !meet(role, received, gradients)};
}

/// Whether states of two chunks of a role come to one place.
bool sharePlace(const Manifest &manifest, const Role &role, const Chunk &a,
                const Chunk &b) {
  for (size_t i = a.firstLayer; i < a.endLayer(); ++i)
    for (size_t j = b.firstLayer; j < b.endLayer(); ++j) {
      const Layer &one = role.layers[i], &other = role.layers[j];
      if (!one.isAway || !other.isAway)
        continue;
      auto parametersOf = [&](const Layer &layer) {
        return Extent{layer.residentParameter,
                      uint64_t(layer.heldElements()) * manifest.elementBytes()};
      };
      auto gradientsOf = [&](const Layer &layer) {
        return Extent{layer.residentGradient,
                      uint64_t(layer.trainedElements()) *
                          manifest.accumulatorBytes()};
      };
      if (overlap(parametersOf(one), parametersOf(other)) ||
          overlap(gradientsOf(one), gradientsOf(other)))
        return true;
    }
  return false;
}

/// The largest number of places that chunks of all roles can take in turns as
/// they lie.
int64_t residentChunks(const Manifest &manifest) {
  if (!manifest.hasHomes())
    return 0;
  size_t most = 1;
  for (const Role &role : manifest.roles)
    most = std::max(most, role.chunks.size());
  auto fits = [&](size_t places) {
    for (const Role &role : manifest.roles)
      for (size_t i = 0; i < role.chunks.size(); ++i)
        for (size_t j = i + 1; j < role.chunks.size(); ++j)
          if (i % places != j % places &&
              sharePlace(manifest, role, role.chunks[i], role.chunks[j]))
            return false;
    return true;
  };
  while (most > 1 && (manifest.hasPacks || !fits(most)))
    --most;
  return int64_t(most);
}

const Chunk &chunkOf(const Role &role, int layer) {
  return *std::ranges::find_if(role.chunks, [&](const Chunk &chunk) {
    return size_t(layer) < chunk.endLayer();
  });
}

/// What is the same for all tasks.
void readFacts(const Manifest &manifest, TaskProgram &program) {
  program.microBatches = manifest.microBatches;
  program.weightVersions = manifest.weightVersions;
  program.delay = manifest.delay;
  program.hasPacks = manifest.hasPacks;
  // Packs take turns, so each has all of its places.
  program.separatesMessages = manifest.hasPacks;
  program.residentChunks = residentChunks(manifest);
  program.justInTime = manifest.updatesJustInTime;
  if (manifest.regroups())
    program.forwardMicroBatches = manifest.forwardMicroBatches;
  program.chunks.resize(size_t(manifest.chunkCount));
  for (size_t r = 0; r < manifest.roles.size(); ++r) {
    const Role &role = manifest.roles[r];
    program.slotsAtHome |= role.slotsAtHome || role.awaySlot.bytes > 0;
    for (const Layer &layer : role.layers)
      program.updateOnDevice |= layer.updatesOnDevice;
    for (const Chunk &chunk : role.chunks)
      program.chunks[size_t(chunk.number)] = {
          int64_t(r), chunk.slots, chunk.forwardOnly, chunk.stashFrom};
  }
  for (const Tie &tie : manifest.ties) {
    const Chunk &owner =
        chunkOf(manifest.roles[size_t(tie.owner.role)], tie.owner.layer);
    const Chunk &borrower =
        chunkOf(manifest.roles[size_t(tie.borrower.role)], tie.borrower.layer);
    program.ties.push_back({tie.owner.role, tie.borrower.role, owner.number,
                            borrower.number, borrower.forwardOnly});
  }
}

/// Why the proof need not begin; what it takes grows with what is looked at
/// here, and not with numbers of a manifest alone.
std::string tooMany(const Manifest &manifest,
                    std::span<const grt_schedule> schedules) {
  uint64_t tasks = 0;
  for (const grt_schedule &each : schedules)
    for (const grt_task_list &list : each.parts)
      tasks += list.count;
  const int64_t most =
      std::max(manifest.microBatches, manifest.forwardMicroBatches);
  if (uint64_t(most) > tasks)
    return "there are " + str(most) + " micro-batches, and " + str(tasks) +
           " tasks";
  const int64_t groups =
      std::min(manifest.microBatches, manifest.forwardMicroBatches);
  for (const Role &role : manifest.roles)
    for (const Chunk &chunk : role.chunks)
      if (manifest.regroups() && int64_t(chunk.slots) > groups)
        return "chunk " + str(chunk.number) + " has " +
               str(int64_t(chunk.slots)) + " slots at home for " + str(groups) +
               " micro-batches";
  return "";
}

} // namespace

TaskProgram taskProgramOf(const Manifest &manifest,
                          std::span<const grt_schedule> schedules) {
  TaskProgram program;
  readFacts(manifest, program);
  for (size_t r = 0; r < schedules.size(); ++r) {
    RoleProgram &role = program.roles.emplace_back();
    role.waitingPlaces = int64_t(manifest.roles[r].waitingPlaces);
    role.apart = apartOf(manifest, manifest.roles[r]);
    for (size_t part = 0; part < GRT_PART_COUNT; ++part) {
      const grt_task_list &list = schedules[r].parts[part];
      role.parts[part].reserve(list.count);
      for (const grt_task &row : std::span(list.tasks, list.count)) {
        role.parts[part].push_back(taskOf(row, schedules[r]));
        program.swapsOnStreams |= row.stream != GRT_STREAM_COMPUTE;
      }
    }
  }
  return program;
}

std::string wrongSchedule(const Manifest &manifest,
                          std::span<const grt_schedule> schedules) {
  if (std::string wrong = tooMany(manifest, schedules); !wrong.empty())
    return wrong;
  const std::vector<tasks::ScheduleFault> faults =
      tasks::verifySchedule(taskProgramOf(manifest, schedules));
  if (faults.empty())
    return "";
  return faults.front().message +
         (faults.size() > 1 ? " (" + str(faults.size() - 1) + " more)" : "");
}

} // namespace grt
