//===- schedule_proof.h - Proof that a task program is sound ----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The machine of the proof: sends are rendezvous (nothing is buffered), a rank
// runs its tasks one after the other, the parts of one transfer task are one
// grouped operation, and a collective ends when every member has reached it.
// The proof runs on roles, so it does not grow with the ranks of a stage. What
// tasks do to memory is what accesses.h says.
//
// The compiler proves what it emits, and the runtime what it loads, by the same
// function.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_SCHEDULE_PROOF_H
#define GRT_SCHEDULE_PROOF_H

#include "grt/tasks.h"

#include <span>
#include <string>
#include <vector>

namespace galvatron::tasks {

enum class ScheduleFaultKind : uint8_t {
  MissingTask,        ///< a micro-batch is not run forward or backward once
  TaskOrder,          ///< a task before what it needs
  SlotConflict,       ///< a slot that is in use, wrong or out of range
  Residency,          ///< what is needed is not on the device, or is lost
  BufferConflict,     ///< memory between layers that is in use
  StreamOrder,        ///< two tasks that share memory, and no event between
  WrongChunk,         ///< a chunk of another role, or no neighbour
  UnmatchedTransfer,  ///< a send without a receive or the other way round
  MicroBatchMismatch, ///< a send meets the receive of something else
  CollectiveMismatch, ///< members disagree on a collective or on their order
  Deadlock            ///< a cycle of waits
};

struct ScheduleFault {
  ScheduleFaultKind kind;
  int64_t role; ///< the first role concerned
  SchedulePart part;
  int64_t task;        ///< index in the part, -1 if none
  std::string message; ///< names roles, ranks and tasks
};

/// All faults found, in order of part and role; empty means proven. With
/// `roleDevices` (global ranks by role) messages name ranks as well. Chunks and
/// roles that `program` names itself exist; tasks may say anything.
std::vector<ScheduleFault>
verifySchedule(const TaskProgram &program,
               std::span<const std::vector<int64_t>> roleDevices = {});

} // namespace galvatron::tasks

#endif // GRT_SCHEDULE_PROOF_H
