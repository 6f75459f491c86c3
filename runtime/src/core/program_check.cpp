//===- program_check.cpp - What a program is refused for ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The compiler asks before it writes a program, the runtime when it loads one.
//
//===----------------------------------------------------------------------===//

#include "core/program_check.h"
#include "base/error.h"
#include "core/call_checks.h"
#include "core/command_proof.h"
#include "core/commands.h"
#include "core/function_check.h"
#include "core/layer_check.h"
#include "core/layout.h"
#include "core/like_layers.h"
#include "core/program_text.h"
#include "core/schedule_check.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

namespace grt {
namespace {

/// What is swapped for an update on the device.
uint32_t updatedClasses(uint32_t tiers) {
  const uint32_t optimizer = GRT_SWAP_OPTIMIZER;
  return tiers == GRT_TO_DEVICE ? optimizer : optimizer | GRT_SWAP_PARAMETERS;
}

/// What a row may say, from what its kind names.
void checkTask(const grt_task &task, const Manifest &manifest, const Role &role,
               uint64_t partCount, const std::string &place) {
  bool swaps = task.kind == GRT_TASK_SWAP;
  if (task.kind > GRT_TASK_BACKWARD_WEIGHT && !swaps)
    invalid(place + ": unknown kind " + str(task.kind));
  bool isLast =
      task.kind == GRT_TASK_BACKWARD || task.kind == GRT_TASK_BACKWARD_WEIGHT;
  bool computes = isLast || task.kind == GRT_TASK_FORWARD ||
                  task.kind == GRT_TASK_BACKWARD_INPUT;
  bool isTransfer = task.kind == GRT_TASK_TRANSFER;
  bool ofChunk = computes || task.kind == GRT_TASK_SYNC_GRADIENTS ||
                 task.kind == GRT_TASK_UPDATE || swaps;
  // Where every layer has a home of its own nothing of a role may be away.
  const bool mayBeAway = manifest.hasHomes();
  if (swaps && (!mayBeAway || task.tiers < GRT_TO_DEVICE ||
                task.tiers > GRT_TO_HOST || task.classes == 0 ||
                (task.classes > GRT_SWAP_ACTIVATIONS &&
                 task.classes != updatedClasses(task.tiers))))
    invalid(place + ": a swap of classes " + str(task.classes) + ", tiers " +
            str(task.tiers) +
            ", expected 1 to 4, 8 in or 9 out, and 1 or 2, and states that "
            "have their home on the host");
  const Chunk *chunk = ofChunk ? role.chunk(task.chunk) : nullptr;
  if (ofChunk && !chunk)
    invalid(place + ": chunk " + str(task.chunk) + " is not the role's");
  if (swaps && (task.classes & GRT_SWAP_OPTIMIZER) &&
      !role.layers[chunk->firstLayer].updatesOnDevice)
    invalid(place + ": optimizer state of chunk " + str(task.chunk) +
            ", which is updated at home");
  bool swapsSlot = swaps && task.classes == GRT_SWAP_ACTIVATIONS;
  // Where every layer has its own home none of a role's may be there.
  const bool mayHaveNone =
      std::any_of(manifest.roles.begin(), manifest.roles.end(),
                  [](const Role &other) { return other.awaySlot.bytes > 0; });
  if (swapsSlot && !(mayHaveNone && !role.slotsAtHome) &&
      (!role.slotsAtHome || task.slot >= chunk->slots ||
       (uint64_t(chunk->firstSlot) + task.slot + 1) * role.homeSlotBytes >
           role.homeSlots.bytes))
    invalid(place + ": slot " + str(task.slot) + " is not one at home");
  const uint64_t count =
      uint64_t(manifest.microBatchesOf(chunk && chunk->forwardOnly));
  if ((computes || swapsSlot) && task.micro_batch >= count)
    invalid(place + ": micro-batch out of range, expected less than " +
            str(count));
  if (manifest.hasPacks && swapsSlot && task.tiers != GRT_TO_DEVICE)
    invalid(place + ": a stash is sent home, not swapped out");
  if (manifest.hasPacks && computes && task.kind != GRT_TASK_FORWARD &&
      (task.kind != GRT_TASK_BACKWARD || chunk->forwardOnly))
    invalid(place + ": a backward pass in parts, or of a chunk that runs "
                    "forward only");
  // A pass that uses no message names place 0.
  uint64_t slots = manifest.hasPacks ? std::max<uint64_t>(role.waitingPlaces, 1)
                   : computes        ? chunk->slots
                                     : 0;
  if (computes && task.slot >= slots)
    invalid(place + ": slot " + str(task.slot) + " of " + str(slots));
  if (isTransfer && (task.count == 0 || task.count > GRT_TRANSFER_PARTS))
    invalid(place + ": expected 1 to " + str(GRT_TRANSFER_PARTS) +
            " parts of a transfer, found " + str(task.count));
  if (isTransfer &&
      (task.first > partCount || task.count > partCount - uint64_t(task.first)))
    invalid(place + ": parts from " + str(task.first) + " on of " +
            str(partCount));
  // What is done at home waits for no event.
  bool mayWait = mayBeAway && (computes || isTransfer || swaps);
  uint32_t waits =
      *std::max_element(std::begin(task.waits), std::end(task.waits));
  const struct {
    const char *name;
    uint32_t value;
    bool named;
  } fields[] = {
      {"flags", task.flags & ~uint32_t(GRT_SYNC_BEHIND), false},
      {"flags", task.flags, isLast},
      {"chunk", task.chunk, ofChunk},
      {"slot", task.slot, computes || swapsSlot},
      {"micro-batch", task.micro_batch, computes || swapsSlot},
      {"first part", task.first, isTransfer},
      {"count of parts", task.count, isTransfer},
      {"generation", task.generation,
       task.kind == GRT_TASK_FORWARD && task.generation <= manifest.delay},
      {"classes", task.classes, swaps},
      {"stream", task.stream,
       swaps && task.stream == (task.tiers == GRT_TO_HOST ? GRT_STREAM_OUT
                                                          : GRT_STREAM_IN)},
      {"tiers", task.tiers, swaps},
      {"recorded event", task.records,
       mayWait && task.records <= GRT_SCHEDULE_EVENTS},
      {"event to wait for", waits, mayWait && waits <= GRT_SCHEDULE_EVENTS}};
  for (const auto &field : fields)
    if (!field.named && field.value)
      invalid(place + ": expected " + field.name + " 0, found " +
              str(field.value) + "; this runtime does not know its meaning");
}

void checkPart(const grt_transfer_part &part, const Manifest &manifest,
               const Role &role, const std::string &place) {
  if (part.direction > GRT_RECEIVE ||
      part.value > (manifest.hasPacks ? GRT_STASH : GRT_GRADIENT))
    invalid(place + ": unknown direction " + str(part.direction) +
            " or value " + str(part.value));
  const Chunk *chunk = role.chunk(part.chunk);
  if (!chunk)
    invalid(place + ": chunk " + str(part.chunk) + " is not the role's");
  bool isActivation = part.value == GRT_ACTIVATION;
  bool isStash = part.value == GRT_STASH;
  bool sends = part.direction == GRT_SEND;
  int exchange = isActivation
                     ? sends ? chunk->sendActivation : chunk->recvActivation
                 : sends ? chunk->sendGradient
                         : chunk->recvGradient;
  // Activations go up in the model's order, gradients down.
  int peer = manifest.peerOf(part);
  if (isStash ? peer < 0 : exchange < 0)
    invalid(place + ": chunk " + str(part.chunk) + " does not " +
            (sends ? "send " : "receive ") +
            (isStash        ? "a stash"
             : isActivation ? "an activation"
                            : "a gradient"));
  if (part.peer_chunk != peer)
    invalid(place + ": expected peer chunk " + str(peer) + ", found " +
            str(part.peer_chunk));
  // A stash is one of its sender's micro-batches.
  const uint64_t count =
      uint64_t(manifest.microBatchesOf(isStash || chunk->forwardOnly));
  if (part.micro_batch >= count)
    invalid(place + ": micro-batch out of range, expected less than " +
            str(count));
  bool waits = manifest.hasPacks && !isStash;
  bool fills = (isActivation || manifest.hasPacks) && !sends;
  uint64_t slots = waits ? role.waitingPlaces : chunk->slots;
  if (fills ? part.slot >= slots : part.slot != 0)
    invalid(place + ": slot " + str(part.slot) + " of " +
            str(fills ? slots : uint64_t(1)));
  if (isStash && fills &&
      (uint64_t(chunk->firstSlot) + part.slot + 1) * role.homeSlotBytes >
          role.homeSlots.bytes)
    invalid(place + ": slot " + str(part.slot) + " is not one at home");
  if (part.generation > manifest.delay || part.reserved[0] ||
      part.reserved[1] || part.reserved[2])
    invalid(place + ": expected a generation of at most " +
            str(uint64_t(manifest.delay)) + ", found " + str(part.generation) +
            ", or a reserved field that is not 0");
}

/// Sums of gradients that begin behind a backward pass are those of all of a
/// chunk's: it is the last one of its part. At home they are summed later.
void checkSumsBehind(const grt_task_list &list, const Role &role,
                     const std::string &where) {
  std::map<uint32_t, uint64_t> last; // by chunk, from the end on
  for (uint64_t i = list.count; i-- > 0;) {
    const grt_task &task = list.tasks[i];
    if (task.kind != GRT_TASK_BACKWARD && task.kind != GRT_TASK_BACKWARD_WEIGHT)
      continue;
    const auto [behind, isLast] = last.try_emplace(task.chunk, i);
    if (!(task.flags & GRT_SYNC_BEHIND))
      continue;
    const std::string place = where + ", task " + str(i) + ": ";
    if (role.homeBytes > 0)
      invalid(place + "expected flags 0, as gradients are summed at home");
    if (!isLast)
      invalid(place + "expected sums of gradients of chunk " +
              str(uint64_t(task.chunk)) + " behind task " +
              str(behind->second) + ", its last backward pass");
  }
}

void checkSchedule(const grt_schedule &schedule, const Manifest &manifest,
                   const Role &role, const std::string &name) {
  for (uint64_t i = 0; i < schedule.transfer_count; ++i)
    checkPart(schedule.transfers[i], manifest, role,
              name + ", part " + str(i) + " of transfers");
  for (int part = 0; part < GRT_PART_COUNT; ++part) {
    const grt_task_list &list = schedule.parts[part];
    std::string where = name + ", " + partName(part);
    if (list.count && !manifest.delay &&
        (part == GRT_PART_PROLOGUE || part == GRT_PART_DRAIN))
      invalid(where + ": expected no tasks, found " + str(list.count) +
              ", as gradients are not late");
    checkSumsBehind(list, role, where);
    bool recorded[GRT_SCHEDULE_EVENTS + 1] = {true};
    for (uint64_t i = 0; i < list.count; ++i) {
      const grt_task &task = list.tasks[i];
      std::string place = where + ", task " + str(i);
      checkTask(task, manifest, role, schedule.transfer_count, place);
      for (uint8_t event : task.waits)
        if (!recorded[event])
          invalid(place + ": waits for event " + str(uint64_t(event)) +
                  ", which no task before it records");
      recorded[task.records] = true;
      if (task.kind == GRT_TASK_UPDATE && part == GRT_PART_STEP_END &&
          role.layers[role.chunk(task.chunk)->firstLayer].updatesOnDevice)
        invalid(place + ": chunk " + str(task.chunk) +
                " is updated on the device, where it is no more");
      bool ends = task.kind >= GRT_TASK_SYNC_GRADIENTS &&
                  task.kind <= GRT_TASK_TIE_BROADCAST;
      bool behind =
          task.kind == GRT_TASK_SYNC_GRADIENTS || task.kind == GRT_TASK_UPDATE;
      // Where updates are late, tied values are taken at the beginning.
      bool takes = task.kind == GRT_TASK_TIE_BROADCAST && manifest.delay > 0;
      if (ends && part != GRT_PART_STEP_END && !takes &&
          !(behind && part == GRT_PART_STEADY && role.homeBytes > 0 &&
            !manifest.clip))
        invalid(place + ": it ends a step, and only updates at home without "
                        "clipping come before");
      if (task.kind == GRT_TASK_NORM && manifest.delay && !manifest.clip)
        invalid(place + ": a norm, where updates do not wait for all ranks");
      unsigned seen = 0;
      for (uint32_t p = 0; task.kind == GRT_TASK_TRANSFER && p < task.count;
           ++p) {
        const grt_transfer_part &one = schedule.transfers[task.first + p];
        unsigned bit = 1u << (2 * one.value + one.direction);
        if (seen & bit)
          invalid(place + ": two parts of one direction and value");
        seen |= bit;
        // A role that waits for itself waits for ever.
        auto isOtherEnd = [&](const grt_transfer_part &end) {
          return end.chunk == one.peer_chunk && end.peer_chunk == one.chunk &&
                 end.value == one.value && end.direction != one.direction &&
                 end.micro_batch == one.micro_batch;
        };
        const grt_transfer_part *parts = schedule.transfers + task.first;
        if (role.chunk(one.peer_chunk) &&
            std::none_of(parts, parts + task.count, isOtherEnd))
          invalid(place + ": expected both ends of a message between chunks " +
                  str(one.chunk) + " and " + str(one.peer_chunk) +
                  ", which are on one role");
      }
    }
  }
}

void checkTables(size_t functions, std::span<const grt_schedule> schedules,
                 const Manifest &manifest) {
  if (functions != manifest.functions.size())
    invalid("program has " + str(functions) +
            " functions, its manifest names " + str(manifest.functions.size()));
  if (schedules.size() != manifest.roles.size())
    invalid("program has " + str(schedules.size()) +
            " roles, its manifest names " + str(manifest.roles.size()));
  for (size_t r = 0; r < schedules.size(); ++r) {
    std::string name = "schedule of role " + str(r);
    checkSchedule(schedules[r], manifest, manifest.roles[r], name);
    if (manifest.hasPacks)
      checkPackMemory(schedules[r], manifest, manifest.roles[r], name);
  }
}

bool updatesJustInTime(std::span<const grt_schedule> schedules) {
  for (const grt_schedule &schedule : schedules) {
    const grt_task_list &steady = schedule.parts[GRT_PART_STEADY];
    for (uint64_t i = 0; i < steady.count; ++i)
      if (steady.tasks[i].kind == GRT_TASK_UPDATE)
        return true;
  }
  return false;
}

} // namespace

Manifest checkedManifest(std::string_view text, size_t functions,
                         std::span<const grt_schedule> schedules) {
  Manifest manifest = parseManifest(text);
  checkTables(functions, schedules, manifest);
  manifest.updatesJustInTime = updatesJustInTime(schedules);
  checkWiring(manifest);
  return manifest;
}

Manifest checkedManifest(const ProgramFile &program, const std::string &name) {
  try {
    Manifest manifest = checkedManifest(
        program.manifest(), program.functionCount(), program.schedules());
    checkCommands(program, manifest);
    return manifest;
  } catch (const Error &error) {
    invalid("program '" + name + "': " + error.what());
  }
}

std::string unprovable(const Manifest &manifest, const ProgramFile &program) {
  if (std::string wrong = wrongSchedule(manifest, program.schedules());
      !wrong.empty())
    return "its schedule cannot run: " + wrong;
  if (std::string wrong = wrongFunctions(manifest, program); !wrong.empty())
    return wrong;
  if (std::string wrong = wrongCommands(manifest, program); !wrong.empty())
    return wrong;
  return wrongLayers(manifest, program);
}

namespace {

/// The first call of a kernel that does not suit the kernel or the layer, of
/// all functions that layers have; "" if there is none.
std::string wrongCalls(const Manifest &manifest, const ProgramFile &program) {
  // Only calls for the states of parameters depend on the layer.
  std::vector<bool> seen(manifest.functions.size());
  for (const Role &role : manifest.roles) {
    LikeLayers kinds(manifest);
    for (const Layer &layer : role.layers) {
      if (!kinds.add(layer))
        continue;
      for (int function : {layer.forward, layer.recompute, layer.backward,
                           layer.weight, layer.norm, layer.update}) {
        if (function < 0 || (seen[size_t(function)] && function != layer.norm &&
                             function != layer.update))
          continue;
        seen[size_t(function)] = true;
        for (const gvx::Call &call : program.calls(size_t(function))) {
          if (call.kind != gvx::CallKind::Launch)
            continue;
          const std::string wrong =
              wrongCall(program.kernel(call.index), layer);
          if (!wrong.empty())
            return "function '" + manifest.functions[size_t(function)] +
                   "' of layer '" + layer.name + "', " + textOf(program, call) +
                   ": " + wrong;
        }
      }
    }
  }
  return "";
}

/// The checked manifest of a program: what was read of the same text for equal
/// tables, if the tables that the program was made of have it.
std::shared_ptr<const Manifest> manifestOf(const ProgramFile &program,
                                           const std::string &name,
                                           const gvx::Tables *made) {
  if (!made || !made->read || made->manifest != program.manifest() ||
      made->functions.size() != program.functionCount() ||
      made->read->updatesJustInTime != updatesJustInTime(program.schedules()))
    return std::make_shared<const Manifest>(checkedManifest(program, name));
  try {
    checkTables(program.functionCount(), program.schedules(), *made->read);
    checkCommands(program, *made->read);
  } catch (const Error &error) {
    invalid("program '" + name + "': " + error.what());
  }
  return made->read;
}

} // namespace

std::string gvx::loadRefusal(std::string_view file, const std::string &name,
                             Digest digest, const Tables *made) {
  return guarded([&] {
           const ProgramFile program(file, name, digest);
           const auto manifest = manifestOf(program, name, made);
           std::string wrong = wrongCalls(*manifest, program);
           if (wrong.empty())
             wrong = unprovable(*manifest, program);
           if (!wrong.empty())
             invalid("program '" + name + "': " + wrong);
         })
      .message();
}

} // namespace grt
