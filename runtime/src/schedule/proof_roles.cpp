//===- proof_roles.cpp - Every role on its own ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Memory is a role's own, so a role's tasks are followed in their order with
// what is in use behind each (role_state.h). What an access needs of a place is
// in proof_memory.cpp; here is that tasks exist, and are run once and in an
// order.
//
//===----------------------------------------------------------------------===//

#include "schedule/fault_log.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace galvatron::tasks::proof {
namespace {

/// Follows the tasks of one role after another.
class RoleProof {
public:
  explicit RoleProof(FaultLog &log) : log(log), program(log.program) {}

  void checkTraining() {
    // A batch without one behind it; and one with two, of which the first finds
    // what the prologue left and the second what the first did.
    checkTraining(1);
    if (program.goesOn() && log.faults.empty())
      checkTraining(3);
  }

  void checkTraining(int64_t batches) {
    for (int64_t role = 0; role < log.roleCount; ++role) {
      RoleState state = freshState(role, batches);
      std::vector<int64_t> begun = inUse(state);
      for (SchedulePart which : trainingParts(program, batches)) {
        log.part = which;
        for (size_t i = 0; i < log.tasksOf(role).size(); ++i)
          step({role, int64_t(i)}, state, /*training=*/true);
        if (log.part == SchedulePart::Prologue)
          begun = inUse(state);
        if (log.part != SchedulePart::StepEnd)
          continue;
        ++state.batch;
        state.tookTied = false;
        for (ChunkState &chunk : state.chunks) {
          chunk.added = chunk.inputAdded = -1;
          chunk.reduced = false;
        }
        if (state.batch + 1 < batches && inUse(state) != begun)
          log.report(
              ScheduleFaultKind::TaskOrder, {role, -1},
              "a batch does not leave to the one behind it what it found");
      }
      log.part = SchedulePart::Steady;
      finishRole(role, state, /*training=*/true);
    }
  }

  void checkEvaluate() {
    log.part = SchedulePart::Evaluate;
    for (int64_t role = 0; role < log.roleCount; ++role) {
      RoleState state = freshState(role, /*batches=*/1);
      for (size_t i = 0; i < log.tasksOf(role).size(); ++i)
        step({role, int64_t(i)}, state, /*training=*/false);
      if (!log.tasksOf(role).empty())
        finishRole(role, state, /*training=*/false);
    }
  }

private:
  /// The number of a micro-batch over all batches.
  int64_t countedOver(const RoleState &state, int64_t generation,
                      int64_t microBatch) const {
    return (state.batch + generation) * program.microBatches + microBatch;
  }

  /// A task that names what does not exist is skipped after the report: the
  /// state has no place for it.
  /// `countedBy`: whose micro-batches are meant, which may have another size.
  bool inRange(TaskRef ref, int64_t chunk, int64_t countedBy,
               int64_t generation, int64_t mb, std::optional<int64_t> slot,
               const RoleState &state) {
    if (chunk >= int64_t(state.chunks.size()) || !state.chunks[chunk].isHere) {
      log.report(ScheduleFaultKind::WrongChunk, ref, "chunk ", chunk,
                 " is not the role's");
      return false;
    }
    if (int64_t count = program.microBatchesOf(countedBy); mb >= count) {
      log.report(ScheduleFaultKind::TaskOrder, ref, "micro-batch ", mb,
                 " does not exist, there are ", count);
      return false;
    }
    if (generation > program.delay) {
      log.report(ScheduleFaultKind::TaskOrder, ref, "generation ", generation,
                 ", expected at most ", program.delay,
                 " as gradients are so late");
      return false;
    }
    if (countedBy == chunk && countedOver(state, generation, mb) >=
                                  int64_t(state.chunks[chunk].passes.size())) {
      log.report(ScheduleFaultKind::TaskOrder, ref,
                 "there is no next batch behind a drain");
      return false;
    }
    int64_t slots = program.chunks[chunk].slots;
    if (slot && *slot >= slots) {
      log.report(ScheduleFaultKind::SlotConflict, ref, "slot ", *slot,
                 " does not exist, there are ", slots);
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

  /// Returns the pass that a task, or a part of one, belongs to.
  template <typename Named>
  PassState &passOf(RoleState &state, const Named &named) const {
    return state.chunks[named.chunk]
        .passes[countedOver(state, named.generation, named.microBatch)];
  }

  /// Checks that every pass is done once, and forward first.
  void follow(TaskRef ref, const Task &task, RoleState &state, bool training) {
    if (task.kind == TaskKind::Forward) {
      PassState &pass = passOf(state, task);
      log.order(ref, !pass.forwarded,
                "the micro-batch was already run forward");
      pass.forwarded = true;
    } else if (task.kind == TaskKind::BackwardWeight) {
      PassState &pass = passOf(state, task);
      log.order(ref, training, "a backward task has no place here");
      log.order(ref, pass.backwarded,
                "the input part of the micro-batch was not run backward yet");
      log.order(ref, pass.awaitsWeight || !pass.backwarded,
                "the micro-batch has no weight part left to run");
      pass.awaitsWeight = false;
    } else if (task.computes()) {
      PassState &pass = passOf(state, task);
      log.order(ref, training && !program.chunks[task.chunk].forwardOnly,
                "a backward task has no place here");
      log.order(ref, pass.forwarded, "the micro-batch was not run forward yet");
      log.order(ref, !pass.backwarded,
                "the micro-batch was already run backward");
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
      log.order(ref, !again, "the activation was already received");
    }
  }

  void checkParts(TaskRef ref, const Task &task) {
    for (size_t i = 0; i < task.parts.size(); ++i) {
      const TransferPart &message = task.parts[i];
      int64_t toNext = message.sends() != message.isGradient() ? 1 : -1;
      int64_t expected =
          program.hasPacks ? program.peerOf(message) : message.chunk + toNext;
      if (message.peerChunk != uint16_t(expected))
        log.report(ScheduleFaultKind::WrongChunk, ref,
                   expected < 0
                       ? joined("chunk ", message.chunk,
                                " has no such message, found one with chunk ")
                       : joined("expected a message with chunk ", expected,
                                ", found chunk "),
                   message.peerChunk);
      for (size_t j = 0; j < i; ++j)
        log.order(ref,
                  task.parts[j].direction != message.direction ||
                      task.parts[j].value != message.value,
                  "two messages of one direction and value");
    }
    log.order(ref, std::ranges::is_sorted(task.parts, standsBefore),
              "its messages are not in the order that transfers have them in");
    log.order(ref, !task.parts.empty(), "a transfer without messages");
  }

  /// Tied values are taken once a batch.
  void takeTied(TaskRef ref, RoleState &state) {
    log.order(ref, !state.tookTied, "tied values were already taken");
    state.tookTied = true;
  }

  void step(TaskRef ref, RoleState &state, bool training) {
    const Task &task = log.tasksOf(ref.role)[ref.index];
    if (task.kind == TaskKind::TieBroadcast && log.takesHere(ref.role))
      return takeTied(ref, state);
    bool behind = (task.kind == TaskKind::SyncGradients ||
                   task.kind == TaskKind::Update) &&
                  log.part == SchedulePart::Steady &&
                  task.chunk < program.chunks.size() &&
                  program.updatesBehind(task.chunk);
    if (endsStep(task.kind) && log.part != SchedulePart::StepEnd && !behind)
      return log.order(ref, false, "the task belongs to step-end");
    if (!inRange(ref, task, state))
      return;
    if (task.kind == TaskKind::Transfer)
      checkParts(ref, task);
    if ((task.classes & SwapActivations) && !program.slotsAtHome)
      return log.report(ScheduleFaultKind::Residency, ref,
                        "a swap of activations where slots are on the devices");
    listAccesses(program, ref.role, task, training, accesses);
    for (const Access &access : accesses)
      applyAccess(log, ref, access, state);
    follow(ref, task, state, training);
  }

  RoleState freshState(int64_t role, int64_t batches) const {
    RoleState state;
    state.residents.resize(size_t(program.residentChunks));
    if (program.slotsAtHome)
      state.deviceSlot.emplace();
    state.waiting.resize(size_t(program.roles[role].waitingPlaces));
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
          batches * program.microBatchesOf(int64_t(number)));
      if (chunk.slots > 0)
        state.chunks[number].slotShift = program.slotShift(int64_t(number));
    }
    return state;
  }

  /// Reports micro-batches that a role never runs, and what is left over.
  void finishRole(int64_t role, const RoleState &state, bool training) {
    for (size_t number = 0; number < state.chunks.size(); ++number)
      for (size_t mb = 0; mb < state.chunks[number].passes.size(); ++mb) {
        const PassState &pass = state.chunks[number].passes[mb];
        auto what = [&] { return log.passName(int64_t(number), int64_t(mb)); };
        // Evaluation runs every layer once.
        if (!pass.forwarded &&
            (training || !program.recomputes(int64_t(number))))
          log.report(ScheduleFaultKind::MissingTask, {role, -1}, what(),
                     " is never run forward");
        if (training && !pass.backwarded && !program.chunks[number].forwardOnly)
          log.report(ScheduleFaultKind::MissingTask, {role, -1}, what(),
                     " is never run backward");
        if (pass.awaitsWeight)
          log.report(ScheduleFaultKind::MissingTask, {role, -1},
                     "the weight part of ", what(), " is never run backward");
      }
    if (!state.output.isFree())
      log.report(ScheduleFaultKind::MissingTask, {role, -1},
                 "the output of " + log.passName(state.output) +
                     " is never sent");
    if (!state.gradientOut.isFree())
      log.report(ScheduleFaultKind::MissingTask, {role, -1},
                 "the gradient of " + log.passName(state.gradientOut) +
                     " is never sent");
    for (const Holder &held : state.waiting)
      if (!held.isFree())
        log.report(ScheduleFaultKind::MissingTask, {role, -1},
                   "what came for " + log.passName(held) + " is never used");
    for (const Residency &place : state.residents)
      if (place.stateOf >= 0)
        log.report(ScheduleFaultKind::MissingTask, {role, -1},
                   "optimizer state of chunk ", place.stateOf,
                   " never goes home");
    if (program.hasPacks && state.deviceSlot && !state.deviceSlot->isFree())
      log.report(ScheduleFaultKind::MissingTask, {role, -1},
                 "what is kept of " + log.passName(*state.deviceSlot) +
                     " is never used or sent");
  }

  /// Lists what is in use of a role, with micro-batches counted from the batch
  /// that comes, so that two batches can be compared.
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
        add(chunk.slots[chunk.slotAt(int64_t(slot), state.batch)]);
      // Passes of the batch that comes and of the one behind it.
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

  FaultLog &log;
  const TaskProgram &program;
  std::vector<Access> accesses; ///< of the task that is looked at
};

bool isTied(const TaskProgram &program, int64_t role) {
  return std::ranges::any_of(program.ties, [&](const TieRoles &tie) {
    return tie.owner == role || tie.borrower == role;
  });
}

} // namespace

void checkRoles(FaultLog &log) {
  RoleProof proof(log);
  proof.checkTraining();
  proof.checkEvaluate();
}

void checkStepEnd(FaultLog &log) {
  const TaskProgram &program = log.program;
  log.part = SchedulePart::StepEnd;
  for (int64_t role = 0; role < log.roleCount; ++role) {
    int64_t previous = -1;
    std::set<std::pair<TaskKind, int64_t>> seen;
    for (size_t i = 0; i < log.tasksOf(role).size(); ++i) {
      TaskRef ref{role, int64_t(i)};
      const Task &task = log.tasksOf(role)[i];
      // The enum numbers step-end tasks in the order they must have.
      auto rank = int64_t(task.kind);
      log.order(ref, endsStep(task.kind),
                "the task does not belong to step-end");
      log.order(ref, rank >= previous,
                "expected the order sync-gradients, tie-reduce, norm, update, "
                "tie-broadcast");
      log.order(ref, seen.insert({task.kind, task.chunk}).second,
                "the task was already run");
      previous = std::max(previous, rank);
    }
    // Step-end tasks of chunks that are updated just in time are in `steady`,
    // where their order follows from what they read; so are tied values that
    // are taken there.
    for (const Task &task : program.roles[role].part(SchedulePart::Steady))
      if (endsStep(task.kind) &&
          !(task.kind == TaskKind::TieBroadcast && program.takesTied(role)) &&
          !seen.insert({task.kind, task.chunk}).second)
        log.report(ScheduleFaultKind::TaskOrder, {role, -1},
                   "'" + task.str(program.hasSeveralChunks()) +
                       "' was already run in steady");
    auto require = [&](TaskKind kind, const std::string &name,
                       int64_t chunk = -1) {
      if (seen.count({kind, std::max<int64_t>(chunk, 0)}))
        return;
      std::string what = "expected a '" + name + "' task";
      if (chunk >= 0 && program.hasSeveralChunks())
        what += " of chunk " + std::to_string(chunk);
      log.report(ScheduleFaultKind::MissingTask, {role, -1}, what);
    };
    for (int64_t chunk : program.chunksOf(role)) {
      if (program.chunks[chunk].forwardOnly)
        continue;
      require(TaskKind::SyncGradients, "sync-gradients", chunk);
      require(TaskKind::Update, "update", chunk);
    }
    if (program.sumsTied(role))
      require(TaskKind::TieReduce, "tie-reduce");
    if (isTied(program, role))
      require(TaskKind::TieBroadcast, "tie-broadcast");
  }
}

} // namespace galvatron::tasks::proof
