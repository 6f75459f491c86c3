//===- TaskProgram.h - Task programs as the compiler makes them -*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tasks, and what they mean, are of grt/tasks.h, which the runtime reads too.
// Here is what only those need who make them.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SCHEDULE_TASKPROGRAM_H
#define GALVATRON_SCHEDULE_TASKPROGRAM_H

#include "galvatron/Schedule/PassTimes.h"
#include "grt/tasks.h"

namespace galvatron {

class Schedule;

using tasks::endsStep;
using tasks::kSchedulePartCount;
using tasks::kTransferMessages;
using tasks::ProgramChunk;
using tasks::RoleProgram;
using tasks::SchedulePart;
using tasks::schedulePartName;
using tasks::standsBefore;
using tasks::Task;
using tasks::TaskKind;
using tasks::TaskStream;
using tasks::TieRoles;
using tasks::trainingParts;
using tasks::TransferDirection;
using tasks::transferOf;
using tasks::TransferPart;
using tasks::TransferValue;
using tasks::transferValueName;
using enum tasks::BackwardFlag;
using enum tasks::SwapClass;

/// A task program with what its schedule was asked for.
struct TaskProgram : tasks::TaskProgram {
  /// The schedule that made it; null if the tasks come from elsewhere.
  const Schedule *schedule = nullptr;
  bool delayedNorm = false;         ///< of ScheduleShape
  std::vector<PassTimes> passTimes; ///< of ScheduleShape
  /// Says that only the states that a layer's strategy names have their home on
  /// the host; what is swapped, and what forward keeps there, is theirs alone.
  bool homesByLayer = false;
  /// Parameters come to a free place while the chunk before runs, not when they
  /// are needed.
  bool bringsAhead = false;
};

/// The messages of a role of packs that came and wait to be used. The lowest
/// free place is taken, so few are in use while most packs run.
struct WaitingMessages {
  /// While `beside` is on the devices messages into `chunk` are in the first
  /// `places` places.
  struct Use {
    int64_t beside, chunk, places;
  };
  std::vector<Use> uses;
  /// Chunks into which messages wait at one time.
  std::vector<std::pair<int64_t, int64_t>> together;
};
WaitingMessages waitingMessages(const TaskProgram &program, int64_t role);

/// Sets SyncBehind on the last task of every chunk of a role that ends
/// gradients; a role without one is left as it is.
void setSyncBehind(RoleProgram &role);
/// Gives the states of all chunks a home on the host, of which so many chunks
/// of a role are on its devices at once (at least one). Swaps are put in front
/// of the tasks that need parameters, or where the chunk before begins and they
/// are brought ahead, and gradients go home behind the last
/// backward task of a chunk, or where another chunk takes its place. Chunks
/// that are updated just in time are summed over ranks and updated there, or on
/// the devices, between the two ways of their optimizer state.
/// Synchronous schedules only.
void insertSwaps(TaskProgram &program, int64_t residentChunks);
/// Whether the role's program has SyncBehind somewhere.
bool syncsBehind(const RoleProgram &role);

} // namespace galvatron

#endif // GALVATRON_SCHEDULE_TASKPROGRAM_H
