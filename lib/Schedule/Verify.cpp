//===- Verify.cpp - Proof that a task program is sound --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The waits of the machine are monotonic: an operation that may end stays free
// to end whatever others do. So one run decides for all runs, and the proof is
// a run over the roles in which every operation is visited once. Memory is a
// role's own, so it is looked at in the order of the role's tasks.
//
// Batches without end are proven by induction. Every part is matched by itself,
// so parts that end one by one end behind one another. And a batch that goes on
// leaves a role as it found it: everything that is in use is that of the batch
// behind. So three batches stand for any number.
//
// Where batches go on ties are messages with memory of their own: who gives
// goes on. The proof lets both ends meet in `step-end`, as devices with streams
// do; that is to wait for more. Who takes a value later waits for a part
// before.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/Verify.h"
#include "RoleState.h"
#include "galvatron/Schedule/Accesses.h"
#include "galvatron/Schedule/SwapOrder.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

using namespace llvm;

namespace galvatron {
namespace {

/// Where a task stands.
struct TaskRef {
  int64_t role;
  int64_t index;

  bool operator==(const TaskRef &other) const = default;
};

class Verifier {
public:
  Verifier(const TaskProgram &program,
           ArrayRef<std::vector<int64_t>> roleDevices)
      : program(program), roleDevices(roleDevices),
        roleCount(static_cast<int64_t>(program.roles.size())) {}

  std::vector<ScheduleFault> run() {
    checkTraining();
    checkEvaluate();
    checkStepEnd();
    for (size_t i = 0; i < kSchedulePartCount; ++i) {
      part = static_cast<SchedulePart>(i);
      bool matched = matchTransfers();
      matched &= matchCollectives();
      // Waits are only defined between matched operations.
      if (matched)
        findDeadlock();
    }
    return std::move(faults);
  }

private:
  const std::vector<Task> &tasksOf(int64_t role) const {
    return program.roles[role].part(part);
  }

  std::string roleName(int64_t role) const {
    std::string text = "role " + std::to_string(role);
    if (role < static_cast<int64_t>(roleDevices.size())) {
      const std::vector<int64_t> &devices = roleDevices[role];
      text += devices.size() == 1 ? " (rank " : " (ranks ";
      for (size_t i = 0; i < devices.size(); ++i)
        text += (i ? ", " : "") + std::to_string(devices[i]);
      text += ")";
    }
    return text;
  }

  std::string taskName(TaskRef ref) const {
    return roleName(ref.role) + " " + schedulePartName(part).str() + " task " +
           std::to_string(ref.index) + " '" +
           tasksOf(ref.role)[ref.index].str(program.hasSeveralChunks()) + "'";
  }

  void report(ScheduleFaultKind kind, TaskRef ref, const Twine &what) {
    std::string message = ref.index >= 0 ? taskName(ref)
                                         : roleName(ref.role) + " " +
                                               schedulePartName(part).str();
    faults.push_back(
        {kind, ref.role, part, ref.index, message + ": " + what.str()});
  }

  //===--- One role on its own --------------------------------------------===//

  using PassState = verify::PassState;
  using Holder = verify::Holder;
  using ChunkState = verify::ChunkState;
  using Residency = verify::Residency;
  using RoleState = verify::RoleState;

  /// Its number over all batches.
  int64_t countedOver(const RoleState &state, int64_t generation,
                      int64_t microBatch) const {
    return (state.batch + generation) * program.microBatches + microBatch;
  }
  int64_t countedOver(const RoleState &state, const Access &access) const {
    return countedOver(state, access.generation, access.microBatch);
  }

  /// "micro-batch 3", or "micro-batch 3 of chunk 2"; where batches go on
  /// "micro-batch 3 of batch 1".
  std::string passName(int64_t chunk, int64_t microBatch) const {
    std::string text =
        "micro-batch " +
        std::to_string(microBatch % program.microBatchesOf(chunk));
    if (program.goesOn())
      text += " of batch " + std::to_string(microBatch / program.microBatches);
    if (program.hasSeveralChunks())
      text += " of chunk " + std::to_string(chunk);
    return text;
  }
  std::string passName(const Holder &held) const {
    return passName(held.chunk, held.microBatch);
  }

  void order(TaskRef ref, bool condition, const Twine &what) {
    if (!condition)
      report(ScheduleFaultKind::TaskOrder, ref, what);
  }

  /// A task that names what does not exist is skipped after the report: the
  /// state has no place for it.
  /// `countedBy`: whose micro-batches are meant, which may have another size.
  bool inRange(TaskRef ref, int64_t chunk, int64_t countedBy,
               int64_t generation, int64_t mb, std::optional<int64_t> slot,
               const RoleState &state) {
    if (chunk >= static_cast<int64_t>(state.chunks.size()) ||
        !state.chunks[chunk].isHere) {
      report(ScheduleFaultKind::WrongChunk, ref,
             "chunk " + Twine(chunk) + " is not the role's");
      return false;
    }
    if (int64_t count = program.microBatchesOf(countedBy); mb >= count) {
      report(ScheduleFaultKind::TaskOrder, ref,
             "micro-batch " + Twine(mb) + " does not exist, there are " +
                 Twine(count));
      return false;
    }
    if (generation > program.delay) {
      report(ScheduleFaultKind::TaskOrder, ref,
             "generation " + Twine(generation) + ", expected at most " +
                 Twine(program.delay) + " as gradients are so late");
      return false;
    }
    if (countedBy == chunk &&
        countedOver(state, generation, mb) >=
            static_cast<int64_t>(state.chunks[chunk].passes.size())) {
      report(ScheduleFaultKind::TaskOrder, ref,
             "there is no next batch behind a drain");
      return false;
    }
    int64_t slots = program.chunks[chunk].slots;
    if (slot && *slot >= slots) {
      report(ScheduleFaultKind::SlotConflict, ref,
             "slot " + Twine(*slot) + " does not exist, there are " +
                 Twine(slots));
      return false;
    }
    return true;
  }

  /// The slot of its chunk that a task or message names. Where there are packs
  /// most rows name a place of the role instead, in which a message waits.
  std::optional<int64_t> slotOf(const Task &task) const {
    bool atHome = task.classes & SwapActivations;
    return program.hasPacks && !atHome ? std::nullopt
                                       : std::optional<int64_t>(task.slot);
  }
  std::optional<int64_t> slotOf(const TransferPart &part) const {
    bool fills = part.value == TransferValue::Stash && !part.sends();
    return program.hasPacks && !fills ? std::nullopt
                                      : std::optional<int64_t>(part.slot);
  }

  /// A stash that comes home is one of its sender's micro-batches; both ends of
  /// other messages count alike.
  int64_t senderOf(const TransferPart &part) const {
    bool comes = part.value == TransferValue::Stash && !part.sends() &&
                 part.peerChunk < program.chunks.size();
    return comes ? part.peerChunk : part.chunk;
  }

  bool inRange(TaskRef ref, const Task &task, const RoleState &state) {
    if (task.isOfChunk())
      return inRange(ref, task.chunk, task.chunk, task.generation,
                     task.microBatch, slotOf(task), state);
    for (const TransferPart &part : task.parts)
      if (!inRange(ref, part.chunk, senderOf(part), part.generation,
                   part.microBatch, slotOf(part), state))
        return false;
    return true;
  }

  /// That a place is free to be written.
  void requireFree(TaskRef ref, const Access &access, const Holder &held) {
    if (held.isFree())
      return;
    std::string what = passName(held);
    switch (access.place) {
    case Place::Slot:
      return report(ScheduleFaultKind::SlotConflict, ref,
                    "slot " + Twine(access.slot) + " still holds " + what);
    case Place::HomeSlot:
      return report(ScheduleFaultKind::SlotConflict, ref,
                    "slot " + Twine(access.slot) + " at home still holds " +
                        what);
    case Place::Output:
      return report(ScheduleFaultKind::BufferConflict, ref,
                    "the output of " + what + " has not been sent yet");
    case Place::GradientIn:
      return report(ScheduleFaultKind::BufferConflict, ref,
                    "the gradient of " + what + " has not been used yet");
    case Place::Waiting:
      return report(ScheduleFaultKind::BufferConflict, ref,
                    "waiting place " + Twine(access.slot) + " still holds " +
                        what);
    default:
      return report(ScheduleFaultKind::BufferConflict, ref,
                    "the gradient of " + what + " has not been sent yet");
    }
  }

  /// That a place holds what is read there.
  void requireHeld(TaskRef ref, const Access &access, const Holder &held,
                   const RoleState &state) {
    int64_t number = countedOver(state, access);
    if (held.chunk == access.chunk && held.microBatch == number)
      return;
    const Task &task = tasksOf(ref.role)[ref.index];
    const PassState &pass = state.chunks[access.chunk].passes[number];
    std::string what = passName(access.chunk, number);
    switch (access.place) {
    case Place::Slot:
      if (task.kind == TaskKind::Forward && !pass.received &&
          program.chunks[access.chunk].stashFrom < 0)
        return order(ref, false, "its activation has not been received");
      // Of a backward task that is reported once.
      if (task.kind != TaskKind::Forward && !pass.forwarded)
        return;
      return report(
          ScheduleFaultKind::SlotConflict, ref,
          "slot " + Twine(access.slot) + " does not hold its " +
              (task.kind == TaskKind::Forward ? "activation" : "activations"));
    case Place::HomeSlot:
      return report(ScheduleFaultKind::Residency, ref,
                    "slot " + Twine(access.slot) +
                        " at home does not hold activations of " + what);
    case Place::Output:
      return order(ref, false, "there is no output of " + what + " to send");
    case Place::GradientIn:
      return order(ref, false, "its gradient has not been received");
    case Place::Waiting:
      return order(ref, false,
                   "waiting place " + Twine(access.slot) +
                       " does not hold what came for " + what);
    default:
      return order(ref, false, "there is no gradient of " + what + " to send");
    }
  }

  void addToSum(TaskRef ref, const Access &access, ChunkState &chunk) {
    auto mb = static_cast<int64_t>(access.microBatch);
    order(ref, access.generation == 0,
          "gradients of the next batch do not belong in this one's sum");
    order(ref, !chunk.reduced,
          "gradients were already reduced behind a backward task before");
    int64_t &added =
        access.place == Place::Sum ? chunk.added : chunk.inputAdded;
    order(ref, mb > added,
          "gradients are added with micro-batches ascending, but " +
              Twine(added) + " came before");
    added = std::max(added, mb);
  }

  /// A batch uses the weights that all updates but the last `delay` ones before
  /// it have made; as many versions are kept as the program says.
  void useWeights(TaskRef ref, const Access &access, int64_t batch,
                  ChunkState &chunk) {
    if (access.mode == AccessMode::Replace) {
      order(ref, chunk.version == batch,
            "its weights have been updated already");
      ++chunk.version;
      return;
    }
    int64_t wanted =
        std::max<int64_t>(batch + access.generation - program.delay, 0);
    order(ref, wanted > chunk.version - program.weightVersions,
          "its weights have been updated already");
    order(ref, wanted <= chunk.version, "its weights are not made yet");
  }

  /// Nothing is used that is not there, and nothing is lost that is needed.
  void reside(TaskRef ref, const Access &access, RoleState &state) {
    auto fault = [&](bool condition, const Twine &what) {
      if (!condition)
        report(ScheduleFaultKind::Residency, ref, what);
    };
    auto of = [](int64_t chunk) {
      return " of chunk " + std::to_string(chunk);
    };
    if (program.residentChunks == 0)
      return fault(false, "a swap where everything is on the devices");
    int64_t number = access.chunk;
    const ChunkState &chunk = state.chunks[number];
    Residency &place = state.residents[program.residencyOf(number)];
    bool isHere = place.chunk == number, sumHere = place.sumOf == number;
    switch (access.mode) {
    case AccessMode::Bring:
      fault(place.sumOf < 0 || sumHere,
            "gradients" + of(place.sumOf) + " have not gone home");
      place.chunk = number;
      break;
    case AccessMode::BringSum:
      fault(isHere && place.sumOf < 0 && chunk.added >= 0,
            "there is no place for gradients" + of(number) +
                ", or there are none");
      place.sumOf = number;
      break;
    case AccessMode::SendSum:
      fault(sumHere, "gradients" + of(number) + " are not on the device");
      place.sumOf = -1;
      break;
    case AccessMode::Add:
      fault(sumHere || (chunk.added < 0 && place.sumOf < 0),
            "gradients" + of(number) + " are not on the device");
      place.sumOf = number;
      [[fallthrough]];
    case AccessMode::Read:
      fault(isHere, "parameters" + of(number) + " are not on the device");
      break;
    case AccessMode::Reduce:
      fault(!sumHere, "gradients" + of(number) + " have not gone home");
      break;
    default:
      // What is at home is newer.
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
        report(ScheduleFaultKind::SlotConflict, ref,
               what + "still holds " + partName(held.chunk, held.microBatch));
      if (!comes && (held.chunk != access.chunk || held.microBatch != part))
        report(ScheduleFaultKind::Residency, ref,
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
               : passName(chunk, part);
  }

  void apply(TaskRef ref, const Access &access, RoleState &state) {
    ChunkState &chunk = state.chunks[access.chunk];
    if (access.place == Place::HomeSlot && program.hasPacks)
      return applyParts(ref, access, chunk);
    if (access.place == Place::Resident)
      return reside(ref, access, state);
    if (access.place == Place::Weights && program.takesTied(ref.role) &&
        (access.generation > 0 || access.mode == AccessMode::Replace))
      order(ref, state.tookTied,
            "tied values of the update before have not been taken");
    if (access.place == Place::Weights)
      return useWeights(ref, access, state.batch, chunk);
    if (access.place == Place::Sum || access.place == Place::InputSum) {
      if (access.mode == AccessMode::Add)
        return addToSum(ref, access, chunk);
      if (access.mode == AccessMode::Reduce) {
        order(ref, chunk.added + 1 == program.microBatches,
              "gradients are reduced before micro-batch " +
                  Twine(program.microBatches - 1) + " is added");
        chunk.reduced = true;
        return;
      }
      return order(ref, chunk.reduced,
                   "the gradients of chunk " + Twine(access.chunk) +
                       " have not been reduced");
    }
    if (access.place == Place::Waiting && access.slot >= state.waiting.size())
      return report(ScheduleFaultKind::SlotConflict, ref,
                    "waiting place " + Twine(access.slot) +
                        " does not exist, there are " +
                        Twine(state.waiting.size()));
    Holder &held = state.holder(access);
    if (access.mode == AccessMode::Fill || access.mode == AccessMode::Work)
      requireFree(ref, access, held);
    else
      requireHeld(ref, access, held, state);
    if (access.mode == AccessMode::Fill)
      held = {access.chunk, countedOver(state, access)};
    else if (access.mode != AccessMode::Read)
      held = {};
  }

  /// Of a task or a part of one.
  template <typename Named>
  PassState &passOf(RoleState &state, const Named &named) const {
    return state.chunks[named.chunk]
        .passes[countedOver(state, named.generation, named.microBatch)];
  }

  /// That everything is done once, and forward first.
  void follow(TaskRef ref, const Task &task, RoleState &state, bool training) {
    if (task.kind == TaskKind::Forward) {
      PassState &pass = passOf(state, task);
      order(ref, !pass.forwarded, "the micro-batch was already run forward");
      pass.forwarded = true;
    } else if (task.kind == TaskKind::BackwardWeight) {
      PassState &pass = passOf(state, task);
      order(ref, training, "a backward task has no place here");
      order(ref, pass.backwarded,
            "the input part of the micro-batch was not run backward yet");
      order(ref, pass.awaitsWeight || !pass.backwarded,
            "the micro-batch has no weight part left to run");
      pass.awaitsWeight = false;
    } else if (task.computes()) {
      PassState &pass = passOf(state, task);
      order(ref, training && !program.chunks[task.chunk].forwardOnly,
            "a backward task has no place here");
      order(ref, pass.forwarded, "the micro-batch was not run forward yet");
      order(ref, !pass.backwarded, "the micro-batch was already run backward");
      pass.backwarded = true;
      pass.awaitsWeight = task.kind == TaskKind::BackwardInput;
    }
    for (const TransferPart &message : task.parts) {
      if (message.sends() || message.isGradient())
        continue;
      bool again = false;
      if (message.value == TransferValue::Stash)
        again = !state.chunks[message.chunk]
                     .stashes.insert(message.microBatch)
                     .second;
      else
        again = std::exchange(passOf(state, message).received, true);
      order(ref, !again, "the activation was already received");
    }
  }

  void checkParts(TaskRef ref, const Task &task) {
    for (size_t i = 0; i < task.parts.size(); ++i) {
      const TransferPart &message = task.parts[i];
      int64_t toNext = message.sends() != message.isGradient() ? 1 : -1;
      int64_t expected =
          program.hasPacks ? program.peerOf(message) : message.chunk + toNext;
      if (message.peerChunk != static_cast<uint16_t>(expected))
        report(ScheduleFaultKind::WrongChunk, ref,
               expected < 0
                   ? "chunk " + Twine(message.chunk) +
                         " has no such message, found one with chunk " +
                         Twine(message.peerChunk)
                   : "expected a message with chunk " + Twine(expected) +
                         ", found chunk " + Twine(message.peerChunk));
      for (size_t j = 0; j < i; ++j)
        order(ref,
              task.parts[j].direction != message.direction ||
                  task.parts[j].value != message.value,
              "two messages of one direction and value");
    }
    order(ref, is_sorted(task.parts, standsBefore),
          "its messages are not in the order that transfers have them in");
    order(ref, !task.parts.empty(), "a transfer without messages");
  }

  /// Tied values are taken once a batch.
  void takeTied(TaskRef ref, RoleState &state) {
    order(ref, !state.tookTied, "tied values were already taken");
    state.tookTied = true;
  }

  void step(TaskRef ref, RoleState &state, bool training) {
    const Task &task = tasksOf(ref.role)[ref.index];
    if (task.kind == TaskKind::TieBroadcast && takesHere(ref.role))
      return takeTied(ref, state);
    bool behind = (task.kind == TaskKind::SyncGradients ||
                   task.kind == TaskKind::Update) &&
                  part == SchedulePart::Steady &&
                  task.chunk < program.chunks.size() &&
                  program.updatesBehind(task.chunk);
    if (endsStep(task.kind) && part != SchedulePart::StepEnd && !behind)
      return order(ref, false, "the task belongs to step-end");
    if (!inRange(ref, task, state))
      return;
    if (task.kind == TaskKind::Transfer)
      checkParts(ref, task);
    if ((task.classes & SwapActivations) && !program.slotsAtHome)
      return report(ScheduleFaultKind::Residency, ref,
                    "a swap of activations where slots are on the devices");
    for (const Access &access : taskAccesses(program, ref.role, task, training))
      apply(ref, access, state);
    follow(ref, task, state, training);
  }

  RoleState freshState(int64_t role, int64_t batches) const {
    RoleState state;
    state.residents.resize(static_cast<size_t>(program.residentChunks));
    if (program.slotsAtHome)
      state.deviceSlot.emplace();
    state.waiting.resize(
        static_cast<size_t>(program.roles[role].waitingPlaces));
    state.chunks.resize(program.chunks.size());
    for (size_t number = 0; number < program.chunks.size(); ++number) {
      const ProgramChunk &chunk = program.chunks[number];
      if (chunk.role != role)
        continue;
      state.chunks[number].isHere = true;
      int64_t parts = program.hasPacks ? program.parts() / program.groups() : 1;
      state.chunks[number].slots.resize(std::max<int64_t>(chunk.slots, 0) *
                                        parts);
      state.chunks[number].passes.resize(
          batches * program.microBatchesOf(static_cast<int64_t>(number)));
      if (chunk.slots > 0)
        state.chunks[number].slotShift =
            program.slotShift(static_cast<int64_t>(number));
    }
    return state;
  }

  /// Reports micro-batches that a role never runs, and what is left over.
  void finishRole(int64_t role, const RoleState &state, bool training) {
    for (size_t number = 0; number < state.chunks.size(); ++number)
      for (size_t mb = 0; mb < state.chunks[number].passes.size(); ++mb) {
        const PassState &pass = state.chunks[number].passes[mb];
        std::string what =
            passName(static_cast<int64_t>(number), static_cast<int64_t>(mb));
        // Evaluation runs every layer once.
        bool recomputes = program.hasPacks &&
                          !program.chunks[number].forwardOnly &&
                          !program.isLastChunk(static_cast<int64_t>(number));
        if (!pass.forwarded && (training || !recomputes))
          report(ScheduleFaultKind::MissingTask, {role, -1},
                 what + " is never run forward");
        if (training && !pass.backwarded && !program.chunks[number].forwardOnly)
          report(ScheduleFaultKind::MissingTask, {role, -1},
                 what + " is never run backward");
        if (pass.awaitsWeight)
          report(ScheduleFaultKind::MissingTask, {role, -1},
                 "the weight part of " + what + " is never run backward");
      }
    if (!state.output.isFree())
      report(ScheduleFaultKind::MissingTask, {role, -1},
             "the output of " + passName(state.output) + " is never sent");
    if (!state.gradientOut.isFree())
      report(ScheduleFaultKind::MissingTask, {role, -1},
             "the gradient of " + passName(state.gradientOut) +
                 " is never sent");
    for (const Holder &held : state.waiting)
      if (!held.isFree())
        report(ScheduleFaultKind::MissingTask, {role, -1},
               "what came for " + passName(held) + " is never used");
    if (program.hasPacks && state.deviceSlot && !state.deviceSlot->isFree())
      report(ScheduleFaultKind::MissingTask, {role, -1},
             "what is kept of " + passName(*state.deviceSlot) +
                 " is never used or sent");
  }

  /// What of a role is in use, in the numbers of the batch that comes.
  std::vector<int64_t> inUse(const RoleState &state) const {
    std::vector<int64_t> numbers;
    int64_t first = state.batch * program.microBatches;
    auto add = [&](const Holder &held) {
      numbers.push_back(held.chunk);
      numbers.push_back(held.isFree() ? -1 : held.microBatch - first);
    };
    for (const Holder *held :
         {&state.output, &state.gradientIn, &state.gradientOut})
      add(*held);
    for (const ChunkState &chunk : state.chunks) {
      for (size_t slot = 0; slot < chunk.slots.size(); ++slot)
        add(chunk.slots[chunk.slotAt(static_cast<int64_t>(slot), state.batch)]);
      // Of the batch that comes and the one behind it.
      auto end = std::min<int64_t>(first + 2 * program.microBatches,
                                   chunk.passes.size());
      for (int64_t pass = first; pass < end; ++pass)
        numbers.push_back(chunk.passes[pass].received +
                          2 * chunk.passes[pass].forwarded +
                          4 * chunk.passes[pass].backwarded +
                          8 * chunk.passes[pass].awaitsWeight);
    }
    return numbers;
  }

  void checkTraining() {
    // A batch without one behind it; and one with two, of which the first finds
    // what the prologue left and the second what the first did.
    checkTraining(1);
    if (program.goesOn() && faults.empty())
      checkTraining(3);
  }

  void checkTraining(int64_t batches) {
    for (int64_t role = 0; role < roleCount; ++role) {
      RoleState state = freshState(role, batches);
      std::vector<int64_t> begun = inUse(state);
      for (SchedulePart which : trainingParts(program, batches)) {
        part = which;
        for (size_t i = 0; i < tasksOf(role).size(); ++i)
          step({role, static_cast<int64_t>(i)}, state, /*training=*/true);
        if (part == SchedulePart::Prologue)
          begun = inUse(state);
        if (part != SchedulePart::StepEnd)
          continue;
        ++state.batch;
        state.tookTied = false;
        for (ChunkState &chunk : state.chunks) {
          chunk.added = chunk.inputAdded = -1;
          chunk.reduced = false;
        }
        if (state.batch + 1 < batches && inUse(state) != begun)
          report(ScheduleFaultKind::TaskOrder, {role, -1},
                 "a batch does not leave to the one behind it what it found");
      }
      part = SchedulePart::Steady;
      finishRole(role, state, /*training=*/true);
    }
  }

  void checkEvaluate() {
    part = SchedulePart::Evaluate;
    for (int64_t role = 0; role < roleCount; ++role) {
      RoleState state = freshState(role, /*batches=*/1);
      for (size_t i = 0; i < tasksOf(role).size(); ++i)
        step({role, static_cast<int64_t>(i)}, state, /*training=*/false);
      if (!tasksOf(role).empty())
        finishRole(role, state, /*training=*/false);
    }
  }

  /// Whether the part is one in which the role takes tied values.
  bool takesHere(int64_t role) const {
    return program.takesTied(role) &&
           (part == SchedulePart::Steady || part == SchedulePart::Drain);
  }

  bool isTied(int64_t role) const {
    return any_of(program.ties, [&](const TieRoles &tie) {
      return tie.owner == role || tie.borrower == role;
    });
  }

  void checkStepEnd() {
    part = SchedulePart::StepEnd;
    for (int64_t role = 0; role < roleCount; ++role) {
      int64_t previous = -1;
      std::set<std::pair<TaskKind, int64_t>> seen;
      for (size_t i = 0; i < tasksOf(role).size(); ++i) {
        TaskRef ref{role, static_cast<int64_t>(i)};
        const Task &task = tasksOf(role)[i];
        // The enum numbers step-end tasks in the order they must have.
        auto rank = static_cast<int64_t>(task.kind);
        order(ref, endsStep(task.kind), "the task does not belong to step-end");
        order(ref, rank >= previous,
              "expected the order sync-gradients, tie-reduce, norm, update, "
              "tie-broadcast");
        order(ref, seen.insert({task.kind, task.chunk}).second,
              "the task was already run");
        previous = std::max(previous, rank);
      }
      // Those of chunks that are updated just in time are in `steady`, where
      // their order follows from what they read; so are tied values that are
      // taken there.
      for (const Task &task : program.roles[role].part(SchedulePart::Steady))
        if (endsStep(task.kind) &&
            !(task.kind == TaskKind::TieBroadcast && program.takesTied(role)) &&
            !seen.insert({task.kind, task.chunk}).second)
          report(ScheduleFaultKind::TaskOrder, {role, -1},
                 "'" + task.str(program.hasSeveralChunks()) +
                     "' was already run in steady");
      auto require = [&](TaskKind kind, StringRef name, int64_t chunk = -1) {
        if (seen.count({kind, std::max<int64_t>(chunk, 0)}))
          return;
        std::string what = "expected a '" + name.str() + "' task";
        if (chunk >= 0 && program.hasSeveralChunks())
          what += " of chunk " + std::to_string(chunk);
        report(ScheduleFaultKind::MissingTask, {role, -1}, what);
      };
      for (int64_t chunk : program.chunksOf(role)) {
        if (program.chunks[chunk].forwardOnly)
          continue;
        require(TaskKind::SyncGradients, "sync-gradients", chunk);
        require(TaskKind::Update, "update", chunk);
      }
      if (program.sumsTied(role))
        require(TaskKind::TieReduce, "tie-reduce");
      if (isTied(role))
        require(TaskKind::TieBroadcast, "tie-broadcast");
    }
  }

  //===--- Matching -------------------------------------------------------===//

  /// One end of a message, as the sender names it.
  struct TransferEnd {
    TaskRef ref;
    TransferValue value;
    int64_t chunk;      ///< that it comes from; of a stash that it goes to
    int64_t microBatch; ///< from the batch on that the part is run for

    auto key() const { return std::tuple(value, chunk, microBatch); }
  };

  std::string messageName(const TransferEnd &end) const {
    return transferValueName(end.value) + " of " +
           passName(end.chunk, end.microBatch);
  }

  /// Home of a chunk; -1 if there is no such chunk.
  int64_t homeOf(int64_t chunk) const {
    return chunk < static_cast<int64_t>(program.chunks.size())
               ? program.chunks[chunk].role
               : -1;
  }

  /// By sender and receiver, in the order of either side's tasks.
  using Channel = std::pair<std::vector<TransferEnd>, std::vector<TransferEnd>>;
  std::map<std::pair<int64_t, int64_t>, Channel> channels() const {
    std::map<std::pair<int64_t, int64_t>, Channel> list;
    for (int64_t role = 0; role < roleCount; ++role)
      for (size_t i = 0; i < tasksOf(role).size(); ++i)
        for (const TransferPart &message : tasksOf(role)[i].parts) {
          TransferEnd end{
              {role, static_cast<int64_t>(i)},
              message.value,
              message.sends() != (message.value == TransferValue::Stash)
                  ? message.chunk
                  : message.peerChunk,
              message.generation * program.microBatches + message.microBatch};
          int64_t peer = homeOf(message.peerChunk);
          if (message.sends())
            list[{role, peer}].first.push_back(end);
          else
            list[{peer, role}].second.push_back(end);
        }
    return list;
  }

  /// Pairs what one role sends to another with what that receives, in order.
  bool matchChannel(ArrayRef<TransferEnd> sends, ArrayRef<TransferEnd> recvs,
                    int64_t sender, int64_t receiver) {
    std::map<decltype(std::declval<TransferEnd>().key()), int64_t> balance;
    for (const TransferEnd &end : sends)
      ++balance[end.key()];
    for (const TransferEnd &end : recvs)
      --balance[end.key()];
    bool good = true;
    auto unmatched = [&](ArrayRef<TransferEnd> list, int64_t sign,
                         StringRef missing, int64_t peer) {
      for (const TransferEnd &end : reverse(list)) {
        int64_t &left = balance[end.key()];
        if (left * sign <= 0)
          continue;
        left -= sign;
        good = false;
        report(ScheduleFaultKind::UnmatchedTransfer, end.ref,
               "no " + missing + " of the " + messageName(end) + " in " +
                   (peer >= 0 ? roleName(peer)
                              : std::string("a neighbour, there is none")));
      }
    };
    unmatched(sends, 1, "receive", receiver);
    unmatched(recvs, -1, "send", sender);
    if (!good)
      return false;
    for (size_t i = 0; i < sends.size(); ++i) {
      if (sends[i].key() != recvs[i].key()) {
        report(ScheduleFaultKind::MicroBatchMismatch, sends[i].ref,
               "meets " + taskName(recvs[i].ref) + ": the " +
                   messageName(sends[i]) + " where the " +
                   messageName(recvs[i]) + " is expected");
        return false;
      }
      peers[{sends[i].ref.role, sends[i].ref.index}].push_back(recvs[i].ref);
      peers[{recvs[i].ref.role, recvs[i].ref.index}].push_back(sends[i].ref);
    }
    return true;
  }

  bool matchTransfers() {
    peers.clear();
    bool good = true;
    for (const auto &[ends, channel] : channels())
      good &=
          matchChannel(channel.first, channel.second, ends.first, ends.second);
    return good;
  }

  /// A collective over roles; two are equal if they are the same call.
  struct Collective {
    TaskKind kind;
    size_t tie;
    std::set<int64_t> group;

    bool operator==(const Collective &other) const {
      return kind == other.kind && tie == other.tie;
    }
  };

  std::vector<std::pair<Collective, TaskRef>>
  collectivesOf(int64_t role) const {
    std::vector<std::pair<Collective, TaskRef>> list;
    for (size_t i = 0; i < tasksOf(role).size(); ++i) {
      TaskKind kind = tasksOf(role)[i].kind;
      TaskRef ref{role, static_cast<int64_t>(i)};
      // Where batches go on a norm is one that all have told a batch before.
      if (kind == TaskKind::Norm && !program.goesOn()) {
        std::set<int64_t> all;
        for (int64_t r = 0; r < roleCount; ++r)
          all.insert(r);
        list.push_back({{kind, 0, all}, ref});
      } else if ((kind == TaskKind::TieReduce ||
                  kind == TaskKind::TieBroadcast) &&
                 !takesHere(role)) {
        for (size_t t = 0; t < program.ties.size(); ++t) {
          const TieRoles &tie = program.ties[t];
          if (tie.forwardOnly && kind == TaskKind::TieReduce)
            continue;
          if (tie.owner == role || tie.borrower == role)
            list.push_back({{kind, t, {tie.owner, tie.borrower}}, ref});
        }
      }
    }
    return list;
  }

  /// Any two roles must agree on the sequence of collectives they share.
  bool matchCollectives() {
    std::vector<std::vector<std::pair<Collective, TaskRef>>> lists;
    for (int64_t role = 0; role < roleCount; ++role)
      lists.push_back(collectivesOf(role));
    for (int64_t a = 0; a < roleCount; ++a)
      for (int64_t b = a + 1; b < roleCount; ++b) {
        std::vector<std::pair<Collective, TaskRef>> inA, inB;
        copy_if(lists[a], std::back_inserter(inA),
                [&](const auto &c) { return c.first.group.count(b) > 0; });
        copy_if(lists[b], std::back_inserter(inB),
                [&](const auto &c) { return c.first.group.count(a) > 0; });
        size_t shared = std::min(inA.size(), inB.size());
        for (size_t i = 0; i < shared; ++i) {
          if (!(inA[i].first == inB[i].first)) {
            report(ScheduleFaultKind::CollectiveMismatch, inA[i].second,
                   "meets " + taskName(inB[i].second) +
                       ", expected the same collective in the same order");
            return false;
          }
          peers[{a, inA[i].second.index}].push_back(inB[i].second);
          peers[{b, inB[i].second.index}].push_back(inA[i].second);
        }
        if (inA.size() != inB.size()) {
          bool inFirst = inA.size() > inB.size();
          report(ScheduleFaultKind::CollectiveMismatch,
                 (inFirst ? inA : inB)[shared].second,
                 "has no counterpart in " + roleName(inFirst ? b : a));
          return false;
        }
      }
    return true;
  }

  //===--- Waits ----------------------------------------------------------===//

  /// The first peer that `ref` still waits for, given how far each role is.
  const TaskRef *waitsFor(TaskRef ref, ArrayRef<int64_t> reached) const {
    auto it = peers.find({ref.role, ref.index});
    if (it == peers.end())
      return nullptr;
    for (const TaskRef &peer : it->second)
      if (reached[peer.role] < peer.index)
        return &peer;
    return nullptr;
  }

  void findDeadlock() {
    std::vector<int64_t> reached(roleCount, 0);
    bool progress = true;
    while (progress) {
      progress = false;
      for (int64_t role = 0; role < roleCount; ++role)
        while (reached[role] < static_cast<int64_t>(tasksOf(role).size()) &&
               !waitsFor({role, reached[role]}, reached)) {
          ++reached[role];
          progress = true;
        }
    }
    int64_t start = -1;
    for (int64_t role = 0; role < roleCount && start < 0; ++role)
      if (reached[role] < static_cast<int64_t>(tasksOf(role).size()))
        start = role;
    if (start < 0)
      return;
    // Follow the waits; the first role met twice closes the cycle.
    std::vector<int64_t> path;
    int64_t role = start;
    while (!is_contained(path, role)) {
      path.push_back(role);
      role = waitsFor({role, reached[role]}, reached)->role;
    }
    path.erase(path.begin(), llvm::find(path, role));
    std::string cycle;
    for (int64_t member : path) {
      TaskRef at{member, reached[member]};
      const TaskRef *peer = waitsFor(at, reached);
      if (member != path.front())
        cycle += ", which waits for ";
      cycle += taskName(*peer) + ", but " + roleName(peer->role) + " is at " +
               taskName({peer->role, reached[peer->role]});
    }
    report(ScheduleFaultKind::Deadlock, {path.front(), reached[path.front()]},
           "deadlock: waits for " + cycle);
  }

  const TaskProgram &program;
  ArrayRef<std::vector<int64_t>> roleDevices;
  int64_t roleCount;
  SchedulePart part = SchedulePart::Steady;
  std::map<std::pair<int64_t, int64_t>, std::vector<TaskRef>> peers;
  std::vector<ScheduleFault> faults;
};

} // namespace

std::vector<ScheduleFault>
verifySchedule(const TaskProgram &program,
               ArrayRef<std::vector<int64_t>> roleDevices) {
  std::vector<ScheduleFault> faults = Verifier(program, roleDevices).run();
  // What shares memory is only defined where tasks name what is there.
  if (faults.empty() && program.residentChunks > 0)
    faults = checkSwapOrder(program);
  return faults;
}

} // namespace galvatron
