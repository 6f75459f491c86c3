//===- ListedStages.h - Whole stages, listed for their times ----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Schedules of stages that are one chunk each, with backward passes in two
// parts. They have an order for passes that all take the same. For other times
// passes are listed (ListedPasses.h) within the same slots, and the order in
// which a step is shortest is taken, that for equal times among them.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SCHEDULE_LISTEDSTAGES_H
#define GALVATRON_LIB_SCHEDULE_LISTEDSTAGES_H

#include "ListedOrder.h"
#include "Synchronous.h"

namespace galvatron {

class ListedStages : public WholeStageSchedule {
public:
  bool splitsBackward() const final { return true; }
  bool listsByTimes() const final { return true; }

  TimeForm upper(const ScheduleShape &shape) const final;
  TimeForm lower(const ScheduleShape &shape) const final;

protected:
  /// Bounds of the order for equal times.
  virtual TimeForm upperAlike(const ScheduleShape &shape) const = 0;
  virtual TimeForm lowerAlike(const ScheduleShape &shape) const = 0;
  /// A lower bound of any order within the slots.
  TimeForm lowerOfAny(const ScheduleShape &shape) const;
  /// Adds both ends of a step to a lower form: of a role behind its own weight
  /// parts, and of the chain in which the last gradient goes back through all
  /// roles; `sum` of all roles apart.
  static void appendEnds(TimeForm &form, const RoleForm &sum, TimeMaximum own,
                         TimeMaximum chain);

private:
  void buildPasses(TaskProgram &program, const ScheduleShape &shape,
                   int64_t role) const final;
  /// Null: that for equal times is to be taken.
  std::shared_ptr<const ListedOrder> orderOf(const ScheduleShape &shape) const;

  mutable ListedOrders orders;
};

} // namespace galvatron

#endif // GALVATRON_LIB_SCHEDULE_LISTEDSTAGES_H
