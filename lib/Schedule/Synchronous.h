//===- Synchronous.h - What synchronous schedules share ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Schedules that run all micro-batches of a step and then update: they differ
// in the order of their steady part.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SCHEDULE_SYNCHRONOUS_H
#define GALVATRON_LIB_SCHEDULE_SYNCHRONOUS_H

#include "galvatron/Schedule/Schedule.h"

namespace galvatron {

/// Appends tasks to one part of one role.
class PartWriter {
public:
  PartWriter(std::vector<Task> &tasks, int64_t role, int64_t roles,
             int64_t slots)
      : tasks(tasks), first(role == 0), last(role == roles - 1), slots(slots) {}

  void forward(int64_t microBatch) { run(TaskKind::Forward, microBatch); }
  void backward(int64_t microBatch) { run(TaskKind::Backward, microBatch); }
  // A transfer that has no neighbour to meet is left out.
  void recvActivation(int64_t microBatch);
  void sendActivation(int64_t microBatch);
  void recvGradient(int64_t microBatch);
  void sendGradient(int64_t microBatch);
  void sendActivationRecvGradient(int64_t sent, int64_t received);
  void sendGradientRecvActivation(int64_t sent, int64_t received);

private:
  uint16_t slotOf(int64_t microBatch) const;
  void run(TaskKind kind, int64_t microBatch);
  void transfer(int flags, int64_t sent, int64_t received);

  std::vector<Task> &tasks;
  bool first, last;
  int64_t slots;
};

class SynchronousSchedule : public Schedule {
public:
  TaskProgram build(const ScheduleShape &shape,
                    std::vector<TieRoles> ties) const final;
  TimeForm upper(const ScheduleShape &shape) const final;
  TimeForm lower(const ScheduleShape &shape) const final;

protected:
  virtual void buildSteady(PartWriter &steady, const ScheduleShape &shape,
                           int64_t role) const = 0;
  /// What every micro-batch but one adds to a step, at most.
  virtual std::vector<RoleForm> slowest() const = 0;
  /// Lower bounds of when role 0 ends its last backward pass, beside those that
  /// follow from the number of slots.
  virtual std::vector<TimeBound>
  moreEnds(const ScheduleShape & /*shape*/) const {
    return {};
  }
};

std::unique_ptr<Schedule> makeAllForwardsFirst();
std::unique_ptr<Schedule> makeOneForwardOneBackward();

} // namespace galvatron

#endif // GALVATRON_LIB_SCHEDULE_SYNCHRONOUS_H
