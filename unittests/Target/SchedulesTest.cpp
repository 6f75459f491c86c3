//===- SchedulesTest.cpp - Schedules survive the way through the IR -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "TestModules.h"

#include "galvatron/Dialect/GRT/Transforms/Roles.h"

using namespace galvatron::testing;
using namespace galvatron;

namespace {

class SchedulesTest : public ModuleTest {};

TEST_F(SchedulesTest, program_read_back_is_the_program_made) {
  for (const char *schedule : {"1f1b", "gpipe"})
    for (int64_t stages : {1, 2})
      for (int64_t microBatches : {1, 2, 8}) {
        Bigram model;
        model.microBatches = microBatches;
        model.schedule = schedule;
        if (stages == 2)
          model.stages = {{0}, {1}};
        auto module = parse(moduleText(model));
        ASSERT_TRUE(module && runPasses(*module));
        auto read = mlir::grt::readTaskProgram(*module);
        ASSERT_TRUE(mlir::succeeded(read));
        TaskProgram expected =
            makeSchedule(scheduleNamed(schedule), stages, microBatches);
        EXPECT_EQ(read->program.schedule, expected.schedule);
        EXPECT_EQ(read->program.microBatches, expected.microBatches);
        ASSERT_EQ(read->program.roles.size(), expected.roles.size());
        for (size_t role = 0; role < expected.roles.size(); ++role) {
          EXPECT_EQ(read->program.chunks[role].slots,
                    expected.chunks[role].slots);
          for (size_t part = 0; part < kSchedulePartCount; ++part)
            EXPECT_EQ(read->program.roles[role].parts[part],
                      expected.roles[role].parts[part])
                << schedule << " role " << role << " part " << part;
        }
      }
}

} // namespace
