//===- proof.cpp - Proof that a task program is sound ---------------------===//
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
// What is here puts the parts together: roles on their own (proof_roles.cpp)
// with their memory (proof_memory.cpp), and what roles do with one another
// (proof_waits.cpp).
//
//===----------------------------------------------------------------------===//

#include "grt/schedule_proof.h"
#include "grt/swap_order.h"
#include "schedule/fault_log.h"

#include <string>
#include <utility>
#include <vector>

namespace galvatron::tasks {
namespace proof {

std::string FaultLog::roleName(int64_t role) const {
  std::string text = "role " + std::to_string(role);
  if (role < int64_t(roleDevices.size())) {
    const std::vector<int64_t> &devices = roleDevices[role];
    text += devices.size() == 1 ? " (rank " : " (ranks ";
    for (size_t i = 0; i < devices.size(); ++i)
      text += (i ? ", " : "") + std::to_string(devices[i]);
    text += ")";
  }
  return text;
}

std::string FaultLog::taskName(TaskRef ref) const {
  return joined(
      roleName(ref.role), " ", schedulePartName(part), " task ", ref.index,
      " '", tasksOf(ref.role)[ref.index].str(program.hasSeveralChunks()), "'");
}

std::string FaultLog::passName(int64_t chunk, int64_t microBatch) const {
  std::string text = "micro-batch " +
                     std::to_string(microBatch % program.microBatchesOf(chunk));
  if (program.goesOn())
    text += " of batch " + std::to_string(microBatch / program.microBatches);
  if (program.hasSeveralChunks())
    text += " of chunk " + std::to_string(chunk);
  return text;
}

void FaultLog::add(ScheduleFaultKind kind, TaskRef ref,
                   const std::string &what) {
  const std::string place =
      ref.index >= 0 ? taskName(ref)
                     : joined(roleName(ref.role), " ", schedulePartName(part));
  faults.push_back({kind, ref.role, part, ref.index, place + ": " + what});
}

} // namespace proof

std::vector<ScheduleFault>
verifySchedule(const TaskProgram &program,
               std::span<const std::vector<int64_t>> roleDevices) {
  proof::FaultLog log(program, roleDevices);
  proof::checkRoles(log);
  proof::checkStepEnd(log);
  for (size_t i = 0; i < kSchedulePartCount; ++i) {
    log.part = static_cast<SchedulePart>(i);
    proof::checkWaits(log);
  }
  // Swaps are checked only if there is no fault so far, as it is only then that
  // tasks name what is in shared memory.
  if (log.faults.empty() && program.residentChunks > 0)
    return checkSwapOrder(program);
  return std::move(log.faults);
}

} // namespace galvatron::tasks
