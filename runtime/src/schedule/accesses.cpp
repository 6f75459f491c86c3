//===- accesses.cpp - What a task reads and writes ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/accesses.h"

namespace galvatron::tasks {
namespace {

class AccessLister {
public:
  AccessLister(const TaskProgram &program, int64_t role, const Task &task,
               bool training, std::vector<Access> &list)
      : program(program), role(role), task(task), training(training),
        apart(program.separatesMessages ? RoleProgram::Apart{true, true, true}
                                        : program.roles[size_t(role)].apart),
        list(list) {}

  void run() {
    switch (task.kind) {
    case TaskKind::Forward:
      forward();
      break;
    case TaskKind::Backward:
      inputGradients(AccessMode::Take);
      weightGradients();
      break;
    case TaskKind::BackwardInput:
      // The slot keeps all that the weight part reads, with what the input part
      // makes for it.
      inputGradients(AccessMode::Read);
      ofChunk(Place::InputSum, AccessMode::Add);
      break;
    case TaskKind::BackwardWeight:
      ofChunk(Place::Weights, AccessMode::Read);
      ofResident(AccessMode::Add);
      ofChunk(Place::Slot, AccessMode::Take);
      weightGradients();
      break;
    case TaskKind::Transfer:
      transfer();
      break;
    case TaskKind::SyncGradients:
      ofResident(AccessMode::Reduce);
      ofChunk(Place::Sum, AccessMode::Reduce);
      break;
    case TaskKind::TieReduce:
      // Arriving gradients wait where the first slot is, or between layers.
      // Slots are in use if batches go on.
      if (!program.goesOn() || program.roles.size() == 1)
        list.push_back({Place::Slot, AccessMode::Work,
                        uint16_t(program.chunksOf(role).front())});
      list.push_back({Place::GradientOut, AccessMode::Work});
      break;
    case TaskKind::Norm:
      for (int64_t chunk : program.chunksOf(role))
        if (!program.chunks[chunk].forwardOnly)
          list.push_back({Place::Sum, AccessMode::Read, uint16_t(chunk)});
      break;
    case TaskKind::Update:
      ofChunk(Place::Sum, AccessMode::Take);
      ofChunk(Place::Weights, AccessMode::Replace);
      ofResident(AccessMode::Replace);
      break;
    case TaskKind::TieBroadcast:
      break;
    case TaskKind::Swap:
      swap();
      break;
    }
  }

private:
  void ofChunk(Place place, AccessMode mode) {
    list.push_back(
        {place, mode, task.chunk, task.slot, task.generation, task.microBatch});
  }
  void ofResident(AccessMode mode) {
    if (program.residentChunks > 0)
      ofChunk(Place::Resident, mode);
  }
  void ofPart(Place place, AccessMode mode, const TransferPart &part) {
    list.push_back(
        {place, mode, part.chunk, part.slot, part.generation, part.microBatch});
  }

  void swap() {
    if (task.classes & SwapActivations) {
      ofChunk(task.out ? Place::Slot : Place::HomeSlot, AccessMode::Take);
      ofChunk(task.out ? Place::HomeSlot : Place::Slot, AccessMode::Fill);
    }
    if (task.out && (task.classes & SwapGradients))
      ofChunk(Place::Resident, AccessMode::SendSum);
    if (task.out && (task.classes & (SwapParameters | SwapOptimizer)))
      ofChunk(Place::Resident, AccessMode::SendState);
    if (!task.out && (task.classes & SwapParameters))
      ofChunk(Place::Resident, AccessMode::Bring);
    if (!task.out && (task.classes & SwapOptimizer))
      ofChunk(Place::Resident, AccessMode::BringState);
    if (!task.out && (task.classes & SwapGradients))
      ofChunk(Place::Resident, AccessMode::BringSum);
  }

  void forward() {
    ofChunk(Place::Weights, AccessMode::Read);
    ofResident(AccessMode::Read);
    if (comes(TransferValue::Activation))
      ofChunk(Place::Waiting, AccessMode::Take);
    bool makesSlot =
        program.readsData(task.chunk) || comes(TransferValue::Activation);
    ofChunk(Place::Slot, makesSlot ? AccessMode::Fill : AccessMode::Read);
    if (!apart.outputAndReceived)
      ofChunk(Place::GradientIn, AccessMode::Work);
    if (!apart.outputAndGradients)
      ofChunk(Place::GradientOut, AccessMode::Work);
    bool leaves = program.hasPacks ? leavesFrom(TransferValue::Activation) ||
                                         program.sendsHome(task.chunk)
                                   : !program.isLastChunk(task.chunk);
    ofChunk(Place::Output, leaves ? AccessMode::Fill : AccessMode::Work);
    // A chunk that runs forward only keeps the slot until its stashes are sent.
    if (!training || (program.chunks[task.chunk].forwardOnly &&
                      program.stashesOf(task.chunk).empty()))
      ofChunk(Place::Slot, AccessMode::Take);
  }

  /// True if the task's chunk uses a message that waits, or makes one; without
  /// packs never.
  bool comes(TransferValue value) const {
    return hasEnd(TransferDirection::Receive, value);
  }
  bool leavesFrom(TransferValue value) const {
    return hasEnd(TransferDirection::Send, value);
  }
  bool hasEnd(TransferDirection direction, TransferValue value) const {
    TransferPart end;
    end.direction = direction;
    end.value = value;
    end.chunk = task.chunk;
    return program.hasPacks && program.peerOf(end) >= 0;
  }

  void inputGradients(AccessMode slot) {
    ofChunk(Place::Weights, AccessMode::Read);
    ofResident(AccessMode::Add);
    ofChunk(Place::Slot, slot);
    if (comes(TransferValue::Gradient))
      ofChunk(Place::Waiting, AccessMode::Take);
    else if (!program.isLastChunk(task.chunk))
      ofChunk(Place::GradientIn, AccessMode::Take);
    if (!apart.outputAndGradients)
      ofChunk(Place::Output, AccessMode::Work);
    ofChunk(Place::GradientOut, program.readsData(task.chunk)
                                    ? AccessMode::Work
                                    : AccessMode::Fill);
  }

  void weightGradients() {
    ofChunk(Place::Sum, AccessMode::Add);
    if (task.flags & SyncBehind)
      ofChunk(Place::Sum, AccessMode::Reduce);
  }

  void transfer() {
    for (const TransferPart &part : task.parts) {
      if (part.sends())
        continue;
      // Outgoing gradients may share the region in which this part arrives.
      if (part.isGradient() && !apart.receivedAndGradients)
        ofPart(Place::GradientOut, AccessMode::Work, part);
      ofPart(arrivalOf(part), AccessMode::Fill, part);
    }
    for (const TransferPart &part : task.parts) {
      if (!part.sends())
        continue;
      bool isOutput = part.value != TransferValue::Stash ||
                      (program.sendsHome(part.chunk) &&
                       program.isLastChunk(part.peerChunk));
      if (isOutput) {
        ofPart(part.isGradient() ? Place::GradientOut : Place::Output,
               AccessMode::Take, part);
        continue;
      }
      // The last one of a pass.
      std::vector<int64_t> all = program.stashesOf(part.chunk);
      bool isLast = !all.empty() && part.peerChunk == all.back();
      ofPart(Place::Slot, isLast ? AccessMode::Take : AccessMode::Read, part);
    }
  }

  Place arrivalOf(const TransferPart &part) const {
    if (part.value == TransferValue::Stash)
      return Place::HomeSlot;
    if (program.hasPacks)
      return Place::Waiting;
    return part.isGradient() ? Place::GradientIn : Place::Slot;
  }

  const TaskProgram &program;
  int64_t role;
  const Task &task;
  bool training;
  RoleProgram::Apart apart;
  std::vector<Access> &list;
};

} // namespace

void listAccesses(const TaskProgram &program, int64_t role, const Task &task,
                  bool training, std::vector<Access> &list) {
  list.clear();
  AccessLister(program, role, task, training, list).run();
}

} // namespace galvatron::tasks
