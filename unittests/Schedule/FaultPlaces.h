//===- FaultPlaces.h - Where faults of schedules are said to be -*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_SCHEDULE_FAULTPLACES_H
#define GALVATRON_UNITTESTS_SCHEDULE_FAULTPLACES_H

#include "galvatron/Schedule/Verify.h"

#include "gtest/gtest.h"

#include <string>
#include <vector>

namespace galvatron::test {

/// What verifySchedule() finds in a program. Every fault begins with its role,
/// and names a task of it unless it is one that is missing.
inline std::vector<ScheduleFault> faultsOf(const TaskProgram &program) {
  std::vector<ScheduleFault> faults = verifySchedule(program);
  for (const ScheduleFault &fault : faults) {
    auto roles = static_cast<int64_t>(program.roles.size());
    EXPECT_GE(fault.role, 0) << fault.message;
    EXPECT_LT(fault.role, roles) << fault.message;
    if (fault.role < 0 || fault.role >= roles)
      continue;
    std::string begin = "role " + std::to_string(fault.role) + " ";
    begin += schedulePartName(fault.part);
    if (fault.task >= 0)
      begin += " task " + std::to_string(fault.task) + " '";
    else
      begin += ": ";
    EXPECT_EQ(fault.message.substr(0, begin.size()), begin);
    if (fault.kind == ScheduleFaultKind::MissingTask)
      EXPECT_EQ(fault.task, -1) << fault.message;
    EXPECT_GE(fault.task, -1) << fault.message;
    const std::vector<Task> &tasks = program.roles[fault.role].part(fault.part);
    EXPECT_LT(fault.task, static_cast<int64_t>(tasks.size())) << fault.message;
  }
  return faults;
}

} // namespace galvatron::test

#endif // GALVATRON_UNITTESTS_SCHEDULE_FAULTPLACES_H
