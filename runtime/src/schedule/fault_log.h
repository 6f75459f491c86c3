//===- fault_log.h - Faults of a schedule, with their places ----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the parts of a schedule's proof (schedule_proof.h) share: the program,
// the faults found in it, and the names of roles, tasks and micro-batches in
// messages.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_SCHEDULE_FAULT_LOG_H
#define GRT_SCHEDULE_FAULT_LOG_H

#include "schedule/role_state.h"

#include "grt/schedule_proof.h"

#include <concepts>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace galvatron::tasks::proof {

/// Appends a piece of a message.
inline void appendTo(std::string &text, std::string_view piece) {
  text += piece;
}
inline void appendTo(std::string &text, std::integral auto number) {
  text += std::to_string(number);
}
/// The pieces of a message, texts and integers, one behind the other.
std::string joined(const auto &...pieces) {
  std::string text;
  (appendTo(text, pieces), ...);
  return text;
}

/// Position of a task: its role, and its index in the part.
struct TaskRef {
  int64_t role;
  int64_t index;

  bool operator==(const TaskRef &other) const = default;
};

/// The faults found so far, and how messages call what they name.
class FaultLog {
public:
  FaultLog(const TaskProgram &program,
           std::span<const std::vector<int64_t>> roleDevices)
      : program(program), roleDevices(roleDevices),
        roleCount(int64_t(program.roles.size())) {}

  const std::vector<Task> &tasksOf(int64_t role) const {
    return program.roles[role].part(part);
  }

  /// "role 1", with `roleDevices` "role 1 (ranks 2, 3)".
  std::string roleName(int64_t role) const;

  /// "role 1 steady task 4 'forward 2 slot 0'".
  std::string taskName(TaskRef ref) const;

  /// "micro-batch 3", or "micro-batch 3 of chunk 2"; where batches go on
  /// "micro-batch 3 of batch 1".
  std::string passName(int64_t chunk, int64_t microBatch) const;
  std::string passName(const Holder &held) const {
    return passName(held.chunk, held.microBatch);
  }

  /// `ref.index` -1: of the role as a whole. `what` are the pieces of a
  /// message.
  void report(ScheduleFaultKind kind, TaskRef ref, const auto &...what) {
    add(kind, ref, joined(what...));
  }

  /// Reports a fault of the order of tasks unless `condition` holds.
  void order(TaskRef ref, bool condition, const auto &...what) {
    if (!condition)
      report(ScheduleFaultKind::TaskOrder, ref, what...);
  }

  /// True if the part is one in which the role takes tied values.
  bool takesHere(int64_t role) const {
    return program.takesTied(role) &&
           (part == SchedulePart::Steady || part == SchedulePart::Drain);
  }

  const TaskProgram &program;
  const std::span<const std::vector<int64_t>> roleDevices;
  const int64_t roleCount;
  /// The part that is looked at: tasks and reports are of it.
  SchedulePart part = SchedulePart::Steady;
  std::vector<ScheduleFault> faults;

private:
  void add(ScheduleFaultKind kind, TaskRef ref, const std::string &what);
};

/// Follows every role's tasks in their order, in training and in evaluation:
/// everything is done once and after what it needs (proof_roles.cpp).
void checkRoles(FaultLog &log);

/// Checks that `step-end` has the tasks that it must have, in their order
/// (proof_roles.cpp).
void checkStepEnd(FaultLog &log);

/// Checks what an access of the task `ref` needs of the role's memory, and
/// applies its effect to `state` (proof_memory.cpp).
void applyAccess(FaultLog &log, TaskRef ref, const Access &access,
                 RoleState &state);

/// Matches messages and collectives of the part `log.part`; where they match,
/// that no waits form a cycle (proof_waits.cpp).
void checkWaits(FaultLog &log);

} // namespace galvatron::tasks::proof

#endif // GRT_SCHEDULE_FAULT_LOG_H
