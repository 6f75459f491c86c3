//===- TaskProgram.h - Task orders of pipeline schedules --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A schedule is a list of tasks per role (= pipeline stage), in five parts. All
// ranks of a role run the same list, so its size depends on the number of
// micro-batches only. Numbers and fields match the task table of a compiled
// program.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SCHEDULE_TASKPROGRAM_H
#define GALVATRON_SCHEDULE_TASKPROGRAM_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>
#include <vector>

namespace galvatron {

class Schedule;

enum class TaskKind : uint8_t {
  Forward = 0,
  Backward = 1,
  Transfer = 2,
  SyncGradients = 3,
  TieReduce = 4,
  Norm = 5,
  Update = 6,
  TieBroadcast = 7
};

/// Parts of a transfer task; those of one task are one grouped operation.
enum TransferFlag : uint8_t {
  SendActivation = 1, ///< to the next role
  RecvActivation = 2, ///< from the previous role, into `slot`
  SendGradient = 4,   ///< to the previous role
  RecvGradient = 8    ///< from the next role
};

/// Flags of a backward task.
enum BackwardFlag : uint8_t {
  /// The all-reduce of a layer's gradients over its DP groups starts behind the
  /// layer's backward pass; sync-gradients only waits for it.
  SyncBehind = 1
};

/// Fields that a kind does not use are 0.
struct Task {
  TaskKind kind = TaskKind::Forward;
  uint8_t flags = 0; ///< set of TransferFlag or BackwardFlag
  uint16_t slot = 0; ///< of the running, or of the received micro-batch
  uint32_t microBatch = 0;
  uint32_t sendMicroBatch = 0;
  uint32_t recvMicroBatch = 0;

  /// "forward mb 3 slot 1", "backward mb 3 slot 1 sync-behind", "transfer
  /// send-activation mb 3, recv-gradient mb 0".
  std::string str() const;
  bool operator==(const Task &other) const = default;
};

enum class SchedulePart : uint8_t {
  Prologue,
  Steady,
  StepEnd,
  Drain,
  Evaluate
};
inline constexpr size_t kSchedulePartCount = 5;
llvm::StringRef schedulePartName(SchedulePart part);

struct RoleProgram {
  int64_t slots = 1; ///< micro-batches in flight
  std::vector<Task> parts[kSchedulePartCount];

  std::vector<Task> &part(SchedulePart which) {
    return parts[static_cast<size_t>(which)];
  }
  const std::vector<Task> &part(SchedulePart which) const {
    return parts[static_cast<size_t>(which)];
  }
};

/// Roles of the owner and the borrower of a tied parameter.
struct TieRoles {
  int64_t owner;
  int64_t borrower;
};

struct TaskProgram {
  /// That made it; null if the tasks come from elsewhere.
  const Schedule *schedule = nullptr;
  int64_t microBatches = 1;
  std::vector<RoleProgram> roles;
  std::vector<TieRoles> ties;

  size_t taskCount() const;
};

/// Sets SyncBehind on the last backward task of a role; a role without one is
/// left as it is.
void setSyncBehind(RoleProgram &role);

} // namespace galvatron

#endif // GALVATRON_SCHEDULE_TASKPROGRAM_H
