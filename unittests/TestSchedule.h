//===- TestSchedule.h - Schedules by their names, in tests ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef UNITTESTS_TESTSCHEDULE_H
#define UNITTESTS_TESTSCHEDULE_H

#include "galvatron/Schedule/Schedule.h"

inline const galvatron::Schedule &scheduleNamed(const char *name) {
  return *llvm::cantFail(galvatron::parseSchedule(name));
}

inline galvatron::TaskProgram
makeSchedule(const galvatron::Schedule &schedule, int64_t roles,
             int64_t microBatches, std::vector<galvatron::TieRoles> ties = {}) {
  return schedule.build({roles, microBatches}, std::move(ties));
}
inline galvatron::TaskProgram
makeGPipe(int64_t roles, int64_t microBatches,
          std::vector<galvatron::TieRoles> ties = {}) {
  return makeSchedule(scheduleNamed("gpipe"), roles, microBatches,
                      std::move(ties));
}
inline galvatron::TaskProgram
make1F1B(int64_t roles, int64_t microBatches,
         std::vector<galvatron::TieRoles> ties = {}) {
  return makeSchedule(scheduleNamed("1f1b"), roles, microBatches,
                      std::move(ties));
}

#endif // UNITTESTS_TESTSCHEDULE_H
