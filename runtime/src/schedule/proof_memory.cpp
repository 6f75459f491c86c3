//===- proof_memory.cpp - What tasks may do to their memory ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A place is written only while nothing in it is needed, read only while it
// holds what is meant, and weights and sums of gradients change in an order.
//
//===----------------------------------------------------------------------===//

#include "schedule/fault_log.h"

#include <algorithm>
#include <string>

namespace galvatron::tasks::proof {
namespace {

/// Judges the accesses of one role, while its tasks are followed.
class RoleMemory {
public:
  RoleMemory(FaultLog &log, RoleState &state)
      : log(log), program(log.program), state(state) {}

  void apply(TaskRef ref, const Access &access) {
    ChunkState &chunk = state.chunks[access.chunk];
    if (program.hasPacks && !takeTurn(ref, access))
      return;
    if (access.place == Place::HomeSlot && program.hasPacks)
      return applyParts(ref, access, chunk);
    if (access.place == Place::Resident)
      return reside(ref, access);
    if (access.place == Place::Weights && program.takesTied(ref.role) &&
        (access.generation > 0 || access.mode == AccessMode::Replace))
      log.order(ref, state.tookTied,
                "tied values of the update before have not been taken");
    if (access.place == Place::Weights)
      return useWeights(ref, access, state.batch, chunk);
    if (access.place == Place::Sum || access.place == Place::InputSum) {
      if (access.mode == AccessMode::Add)
        return addToSum(ref, access, chunk);
      if (access.mode == AccessMode::Reduce) {
        log.order(ref, chunk.added + 1 == program.microBatches,
                  "gradients are reduced before micro-batch ",
                  program.microBatches - 1, " is added");
        chunk.reduced = true;
        return;
      }
      return log.order(ref, chunk.reduced, "the gradients of chunk ",
                       access.chunk, " have not been reduced");
    }
    if (access.place == Place::Waiting && access.slot >= state.waiting.size())
      return log.report(ScheduleFaultKind::SlotConflict, ref, "waiting place ",
                        access.slot, " does not exist, there are ",
                        state.waiting.size());
    Holder &held = state.holder(access);
    if (access.mode == AccessMode::Fill || access.mode == AccessMode::Work)
      requireFree(ref, access, held);
    else
      requireHeld(ref, access, held);
    if (access.mode == AccessMode::Fill)
      held = {access.chunk, countedOver(access)};
    else if (access.mode != AccessMode::Read)
      held = {};
  }

private:
  /// Gives the memory that packs share on the devices to the chunk of an
  /// access, and the memory that outputs and their gradients share to one of
  /// them. Returns false if something there is still needed.
  bool takeTurn(TaskRef ref, const Access &access) {
    bool isHere =
        access.place == Place::Slot || access.place == Place::Output ||
        access.place == Place::GradientOut ||
        (access.place == Place::Resident && access.mode != AccessMode::Reduce &&
         access.mode != AccessMode::Replace);
    if (!isHere)
      return true;
    auto conflict = [&](const Holder &held, const char *what) {
      log.report(ScheduleFaultKind::BufferConflict, ref, "chunk ", access.chunk,
                 " takes the place of ", what, log.passName(held),
                 ", which is still needed");
      return false;
    };
    bool writes =
        access.mode == AccessMode::Fill || access.mode == AccessMode::Work;
    if (writes && access.place == Place::Output && !state.gradientOut.isFree())
      return conflict(state.gradientOut, "the gradient of ");
    if (writes && access.place == Place::GradientOut && !state.output.isFree())
      return conflict(state.output, "the output of ");
    // Optimizer state lies where a pack has all that its passes need.
    bool runs = access.place != Place::Resident;
    for (const Residency &place : state.residents)
      if (place.stateOf >= 0 && (runs || place.stateOf != access.chunk)) {
        log.report(ScheduleFaultKind::Residency, ref,
                   "optimizer state of chunk " + std::to_string(place.stateOf) +
                       " has not gone home");
        return false;
      }
    if (access.chunk == state.packHere)
      return true;
    if (!state.output.isFree())
      return conflict(state.output, "the output of ");
    if (!state.gradientOut.isFree())
      return conflict(state.gradientOut, "the gradient of ");
    if (state.deviceSlot && !state.deviceSlot->isFree())
      return conflict(*state.deviceSlot, "what is kept of ");
    for (Residency &place : state.residents) {
      if (place.sumOf >= 0 && place.sumOf != access.chunk) {
        log.report(ScheduleFaultKind::Residency, ref,
                   "gradients of chunk " + std::to_string(place.sumOf) +
                       " have not gone home");
        return false;
      }
      if (place.chunk != access.chunk)
        place.chunk = -1;
    }
    state.packHere = access.chunk;
    return true;
  }

  /// The number of its micro-batch over all batches.
  int64_t countedOver(const Access &access) const {
    return (state.batch + access.generation) * program.microBatches +
           access.microBatch;
  }

  /// Checks that a place is free to be written.
  void requireFree(TaskRef ref, const Access &access, const Holder &held) {
    if (held.isFree())
      return;
    std::string what = log.passName(held);
    switch (access.place) {
    case Place::Slot:
      return log.report(ScheduleFaultKind::SlotConflict, ref, "slot ",
                        access.slot, " still holds " + what);
    case Place::HomeSlot:
      return log.report(ScheduleFaultKind::SlotConflict, ref, "slot ",
                        access.slot, " at home still holds " + what);
    case Place::Output:
      return log.report(ScheduleFaultKind::BufferConflict, ref,
                        "the output of " + what + " has not been sent yet");
    case Place::GradientIn:
      return log.report(ScheduleFaultKind::BufferConflict, ref,
                        "the gradient of " + what + " has not been used yet");
    case Place::Waiting:
      return log.report(ScheduleFaultKind::BufferConflict, ref,
                        "waiting place ", access.slot, " still holds " + what);
    default:
      return log.report(ScheduleFaultKind::BufferConflict, ref,
                        "the gradient of " + what + " has not been sent yet");
    }
  }

  /// Checks that a place holds what is read there.
  void requireHeld(TaskRef ref, const Access &access, const Holder &held) {
    int64_t number = countedOver(access);
    if (held.chunk == access.chunk && held.microBatch == number)
      return;
    const Task &task = log.tasksOf(ref.role)[ref.index];
    const PassState &pass = state.chunks[access.chunk].passes[number];
    std::string what = log.passName(access.chunk, number);
    switch (access.place) {
    case Place::Slot:
      if (task.kind == TaskKind::Forward && !pass.received &&
          program.chunks[access.chunk].stashFrom < 0)
        return log.order(ref, false, "its activation has not been received");
      // A missing forward task is reported by the order of passes.
      if (task.kind != TaskKind::Forward && !pass.forwarded)
        return;
      return log.report(
          ScheduleFaultKind::SlotConflict, ref, "slot ", access.slot,
          " does not hold its ",
          (task.kind == TaskKind::Forward ? "activation" : "activations"));
    case Place::HomeSlot:
      return log.report(ScheduleFaultKind::Residency, ref, "slot ", access.slot,
                        " at home does not hold activations of " + what);
    case Place::Output:
      return log.order(ref, false,
                       "there is no output of " + what + " to send");
    case Place::GradientIn:
      return log.order(ref, false, "its gradient has not been received");
    case Place::Waiting:
      return log.order(ref, false, "waiting place ", access.slot,
                       " does not hold what came for " + what);
    default:
      return log.order(ref, false,
                       "there is no gradient of " + what + " to send");
    }
  }

  void addToSum(TaskRef ref, const Access &access, ChunkState &chunk) {
    auto mb = int64_t(access.microBatch);
    log.order(ref, access.generation == 0,
              "gradients of the next batch do not belong in this one's sum");
    log.order(ref, !chunk.reduced,
              "gradients were already reduced behind a backward task before");
    int64_t &added =
        access.place == Place::Sum ? chunk.added : chunk.inputAdded;
    log.order(ref, mb > added,
              "gradients are added with micro-batches ascending, but ", added,
              " came before");
    added = std::max(added, mb);
  }

  /// A batch uses the weights that all updates but the last `delay` ones before
  /// it have made; as many versions are kept as the program says.
  void useWeights(TaskRef ref, const Access &access, int64_t batch,
                  ChunkState &chunk) {
    if (access.mode == AccessMode::Replace) {
      log.order(ref, chunk.version == batch,
                "its weights have been updated already");
      ++chunk.version;
      return;
    }
    int64_t wanted =
        std::max<int64_t>(batch + access.generation - program.delay, 0);
    log.order(ref, wanted > chunk.version - program.weightVersions,
              "its weights have been updated already");
    log.order(ref, wanted <= chunk.version, "its weights are not made yet");
  }

  /// Checks and applies an access to a resident chunk: it uses nothing that is
  /// not on the device, and loses nothing that is needed.
  void reside(TaskRef ref, const Access &access) {
    auto fault = [&](bool condition, const auto &...what) {
      if (!condition)
        log.report(ScheduleFaultKind::Residency, ref, what...);
    };
    if (program.residentChunks == 0)
      return fault(false, "a swap where everything is on the devices");
    int64_t number = access.chunk;
    const ChunkState &chunk = state.chunks[number];
    Residency &place = state.residents[program.residencyOf(number)];
    bool isHere = place.chunk == number, sumHere = place.sumOf == number;
    switch (access.mode) {
    case AccessMode::Bring:
      fault(place.sumOf < 0 || sumHere, "gradients of chunk ", place.sumOf,
            " have not gone home");
      place.chunk = number;
      break;
    case AccessMode::BringSum:
      fault(isHere && place.sumOf < 0 && chunk.added >= 0,
            "there is no place for gradients of chunk ", number,
            ", or there are none");
      place.sumOf = number;
      break;
    case AccessMode::SendSum:
      fault(sumHere, "gradients of chunk ", number, " are not on the device");
      place.sumOf = -1;
      break;
    case AccessMode::Add:
      fault(sumHere || (chunk.added < 0 && place.sumOf < 0),
            "gradients of chunk ", number, " are not on the device");
      place.sumOf = number;
      [[fallthrough]];
    case AccessMode::Read:
      fault(isHere, "parameters of chunk ", number, " are not on the device");
      break;
    case AccessMode::Reduce:
      if (program.updatesOnDevice(number))
        fault(sumHere, "gradients of chunk ", number, " are not on the device");
      else
        fault(!sumHere, "gradients of chunk ", number, " have not gone home");
      break;
    case AccessMode::BringState:
      fault(program.updatesOnDevice(number), "chunk ", number,
            " is updated at home");
      fault(isHere && sumHere, "parameters and gradients of chunk ", number,
            " are not on the device");
      fault(
          !state.deviceSlot || state.deviceSlot->isFree(),
          "what is kept of a micro-batch lies where optimizer state of chunk ",
          number, " comes");
      fault(state.output.isFree() && state.gradientOut.isFree(),
            "what is to be sent lies where optimizer state of chunk ", number,
            " comes");
      place.stateOf = number;
      break;
    case AccessMode::SendState:
      fault(place.stateOf == number && place.updated == number,
            "parameters of chunk ", number, " are not updated on the device");
      place.stateOf = place.updated = -1;
      break;
    default:
      if (program.updatesOnDevice(number)) {
        fault(isHere && sumHere, "parameters and gradients of chunk ", number,
              " are not on the device");
        fault(place.stateOf == number, "optimizer state of chunk ", number,
              " is not on the device");
        place.sumOf = -1;
        place.updated = number;
        break;
      }
      // The offloaded parameters are newer than those on the device from here
      // on.
      if (isHere)
        place.chunk = -1;
    }
  }

  /// A slot at home of packs, which is filled and read in parts.
  void applyParts(TaskRef ref, const Access &access, ChunkState &chunk) {
    bool comes = access.mode == AccessMode::Fill;
    int64_t counted =
        comes ? program.chunks[access.chunk].stashFrom : access.chunk;
    if (counted < 0)
      return; // no stash is this chunk's, which is reported of the message
    int64_t each = program.parts() / program.groups();
    std::string what = "slot " + std::to_string(access.slot) + " at home ";
    int64_t end = program.firstPartOf(counted, access.microBatch + 1);
    for (int64_t part = program.firstPartOf(counted, access.microBatch);
         part < end; ++part) {
      Holder &held = chunk.slots[access.slot * each + part % each];
      if (comes && !held.isFree())
        log.report(ScheduleFaultKind::SlotConflict, ref,
                   what + "still holds " +
                       partName(held.chunk, held.microBatch));
      if (!comes && (held.chunk != access.chunk || held.microBatch != part))
        log.report(ScheduleFaultKind::Residency, ref,
                   what + "does not hold activations of " +
                       partName(access.chunk, part));
      held = comes ? Holder{access.chunk, part} : Holder();
    }
  }

  /// "micro-batch 3 of chunk 2"; of two sizes "part 3 of what chunk 2 takes".
  std::string partName(int64_t chunk, int64_t part) const {
    return program.regroups()
               ? "part " + std::to_string(part) + " of what chunk " +
                     std::to_string(chunk) + " takes"
               : log.passName(chunk, part);
  }

  FaultLog &log;
  const TaskProgram &program;
  RoleState &state;
};

} // namespace

void applyAccess(FaultLog &log, TaskRef ref, const Access &access,
                 RoleState &state) {
  RoleMemory(log, state).apply(ref, access);
}

} // namespace galvatron::tasks::proof
