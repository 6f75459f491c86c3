//===- TestSchedule.h - Schedules by their names, in tests ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef UNITTESTS_TESTSCHEDULE_H
#define UNITTESTS_TESTSCHEDULE_H

#include "galvatron/Schedule/Schedule.h"

#include <functional>

inline const galvatron::Schedule &scheduleNamed(const char *name) {
  return *llvm::cantFail(galvatron::parseSchedule(name));
}

inline galvatron::TaskProgram
makeSchedule(const galvatron::Schedule &schedule, int64_t roles,
             int64_t microBatches, std::vector<galvatron::TieRoles> ties = {}) {
  return schedule.build({roles, microBatches}, std::move(ties));
}
inline galvatron::TaskProgram
makeInterleaved(int64_t roles, int64_t chunks, int64_t microBatches,
                std::vector<galvatron::TieRoles> ties = {}) {
  return scheduleNamed("interleaved")
      .build({roles, microBatches, chunks}, std::move(ties));
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

/// Calls `visit` for all registered schedules and all shapes that they can have
/// of so many stages, micro-batches and chunks.
inline void forAllSchedules(
    int64_t roles, int64_t microBatches, int64_t chunks,
    const std::function<void(const galvatron::Schedule &,
                             const galvatron::ScheduleShape &)> &visit) {
  for (const auto &schedule : galvatron::ScheduleRegistry::get().all())
    for (int64_t r = 1; r <= roles; ++r)
      for (int64_t m = 1; m <= microBatches; ++m)
        for (int64_t c = 1; c <= chunks; ++c) {
          galvatron::ScheduleShape shape{r, m, c};
          if (llvm::Error refused = schedule->check(shape))
            llvm::consumeError(std::move(refused));
          else
            visit(*schedule, shape);
        }
}

#endif // UNITTESTS_TESTSCHEDULE_H
