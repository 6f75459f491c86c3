//===- ScheduleTest.cpp - Task orders -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"

#include "gtest/gtest.h"

#include <algorithm>

using namespace galvatron;

namespace {

std::vector<std::string> steadyOf(const TaskProgram &program, size_t role) {
  std::vector<std::string> lines;
  for (const Task &task : program.roles[role].part(SchedulePart::Steady))
    lines.push_back(task.str());
  return lines;
}

TEST(Schedule, one_stage_alternates) {
  EXPECT_EQ(steadyOf(make1F1B(1, 2), 0),
            (std::vector<std::string>{
                "forward mb 0 slot 0", "backward mb 0 slot 0",
                "forward mb 1 slot 0", "backward mb 1 slot 0"}));
}

TEST(Schedule, two_stages_group_opposite_transfers) {
  TaskProgram program = make1F1B(2, 3);
  EXPECT_EQ(steadyOf(program, 0),
            (std::vector<std::string>{
                "forward mb 0 slot 0", "transfer send-activation mb 0",
                "forward mb 1 slot 1",
                "transfer send-activation mb 1, recv-gradient mb 0",
                "backward mb 0 slot 0", "forward mb 2 slot 0",
                "transfer send-activation mb 2, recv-gradient mb 1",
                "backward mb 1 slot 1", "transfer recv-gradient mb 2",
                "backward mb 2 slot 0"}));
  EXPECT_EQ(steadyOf(program, 1),
            (std::vector<std::string>{
                "transfer recv-activation mb 0", "forward mb 0 slot 0",
                "backward mb 0 slot 0",
                "transfer send-gradient mb 0, recv-activation mb 1",
                "forward mb 1 slot 0", "backward mb 1 slot 0",
                "transfer send-gradient mb 1, recv-activation mb 2",
                "forward mb 2 slot 0", "backward mb 2 slot 0",
                "transfer send-gradient mb 2"}));
}

TEST(Schedule, gpipe_runs_all_forwards_first) {
  EXPECT_EQ(steadyOf(makeGPipe(2, 2), 1),
            (std::vector<std::string>{
                "transfer recv-activation mb 0", "forward mb 0 slot 0",
                "transfer recv-activation mb 1", "forward mb 1 slot 1",
                "backward mb 0 slot 0", "transfer send-gradient mb 0",
                "backward mb 1 slot 1", "transfer send-gradient mb 1"}));
}

/// Never more micro-batches in flight than there are slots, and that many once.
TEST(Schedule, slots_are_what_is_in_flight) {
  for (const auto &schedule : ScheduleRegistry::get().all())
    for (int64_t roles = 1; roles <= 8; ++roles)
      for (int64_t microBatches = 1; microBatches <= 16; ++microBatches) {
        ScheduleShape shape{roles, microBatches};
        if (llvm::Error refused = schedule->check(shape)) {
          llvm::consumeError(std::move(refused));
          continue;
        }
        TaskProgram program = schedule->build(shape);
        EXPECT_EQ(program.schedule, schedule.get());
        std::vector<int64_t> homes = schedule->homes(shape);
        for (size_t chunk = 0; chunk < homes.size(); ++chunk) {
          const RoleProgram &role = program.roles[homes[chunk]];
          int64_t slots = schedule->slots(shape, homes[chunk], chunk);
          EXPECT_EQ(role.slots, slots);
          int64_t alive = 0, most = 0;
          for (const Task &task : role.part(SchedulePart::Steady)) {
            alive += task.kind == TaskKind::Forward;
            alive -= task.kind == TaskKind::Backward;
            most = std::max(most, alive);
          }
          EXPECT_EQ(alive, 0);
          EXPECT_EQ(most, slots);
        }
        if (auto bound = schedule->slotsBoundedIn(roles);
            bound && microBatches >= *bound)
          for (size_t chunk = 0; chunk < homes.size(); ++chunk)
            EXPECT_EQ(schedule->slots({roles, *bound}, homes[chunk], chunk),
                      schedule->slots(shape, homes[chunk], chunk));
        // None keeps weights from one step to the next yet.
        EXPECT_EQ(schedule->weightVersions(shape), 1);
        EXPECT_EQ(schedule->gradientBuffers(shape), 1);
        EXPECT_EQ(schedule->delay(shape), 0);
      }
}

TEST(Schedule, names_are_known_or_refused) {
  for (const auto &schedule : ScheduleRegistry::get().all())
    EXPECT_EQ(llvm::cantFail(parseSchedule(schedule->name())), schedule.get());
  auto reason = [](const char *name) {
    return llvm::toString(parseSchedule(name).takeError());
  };
  EXPECT_EQ(reason("1F1B"),
            "unknown schedule '1F1B', expected '1f1b' or 'gpipe'");
  EXPECT_EQ(reason(""), "unknown schedule '', expected '1f1b' or 'gpipe'");
  EXPECT_EQ(reason("2bw"), "schedule '2bw' is planned, not executed yet");
}

TEST(Schedule, shapes_that_no_task_can_name_are_refused) {
  auto reason = [](const char *name, ScheduleShape shape) {
    llvm::Error error = scheduleNamed(name).check(shape);
    return error ? llvm::toString(std::move(error)) : "";
  };
  EXPECT_EQ(reason("gpipe", {2, 65535}), "");
  EXPECT_EQ(reason("gpipe", {2, 65536}),
            "schedule 'gpipe' holds 65536 micro-batches at once, expected at "
            "most 65535");
  EXPECT_EQ(reason("1f1b", {2, 65536}), "");
  EXPECT_EQ(reason("1f1b", {2, int64_t(1) << 32}),
            "expected at most 4294967295 micro-batches, found 4294967296");
  EXPECT_EQ(reason("1f1b", {0, 1}), "expected at least one stage, found 0");
  EXPECT_EQ(reason("1f1b", {1, 0}),
            "expected at least one micro-batch, found 0");
}

/// By hand: what a maximum over chains of roles takes.
TEST(Schedule, forms_are_sums_and_maxima) {
  std::vector<RoleTimes> roles(3);
  for (size_t r = 0; r < roles.size(); ++r) {
    double f = 1 + double(r), b = 10 - 3 * double(r);
    roles[r][RoleTime::Forward] = {f, 2 * f};
    roles[r][RoleTime::Backward] = {b, 2 * b};
  }
  TimeBound sum;
  sum.sum = {{RoleTime::Forward, 1}};
  EXPECT_EQ(evaluate({sum}, roles, false), 6);
  EXPECT_EQ(evaluate({sum}, roles, true), 12);

  TimeMaximum prefix;
  prefix.at = {{{RoleTime::Forward, 1}}};
  prefix.before = {{RoleTime::Backward, -1}};
  // 2, 4 - 10, 6 - 17 with the lower ends of what is subtracted.
  EXPECT_EQ(evaluate({{{}, {{3, prefix}}}}, roles, true), 3 * 2);
  prefix.before = {{RoleTime::Backward, 1}};
  EXPECT_EQ(evaluate({{{}, {{1, prefix}}}}, roles, false), 3 + 17);
  prefix.before = {};
  prefix.after = {{RoleTime::Backward, 1}};
  EXPECT_EQ(evaluate({{{}, {{1, prefix}}}}, roles, false), 1 + 21);

  TimeMaximum chain;
  chain.at = {RoleForm(), RoleForm(), {{RoleTime::Forward, 5}}};
  chain.chained = true;
  chain.first = {{RoleTime::Forward, 8}};
  chain.between = {{RoleTime::Backward, 1}};
  // From 0 to 2: 8 + 10 + 7 + 15; from 1: 16 + 7 + 15; from 2: 24 + 15.
  EXPECT_EQ(evaluate({{{}, {{1, chain}}}}, roles, false), 40);
  // The largest of several bounds.
  EXPECT_EQ(evaluate({sum, {{}, {{1, chain}}}}, roles, false), 40);
}

TEST(Schedule, evaluation_is_forward_only) {
  TaskProgram program = make1F1B(3, 4);
  for (const RoleProgram &role : program.roles)
    for (const Task &task : role.part(SchedulePart::Evaluate)) {
      EXPECT_NE(task.kind, TaskKind::Backward);
      EXPECT_EQ(task.flags & (SendGradient | RecvGradient), 0);
    }
}

TEST(Schedule, step_end_has_ties_where_they_are) {
  TaskProgram program = make1F1B(3, 2, {{0, 2}});
  auto kinds = [&](size_t role) {
    std::vector<TaskKind> list;
    for (const Task &task : program.roles[role].part(SchedulePart::StepEnd))
      list.push_back(task.kind);
    return list;
  };
  EXPECT_EQ(kinds(0),
            (std::vector<TaskKind>{TaskKind::SyncGradients, TaskKind::TieReduce,
                                   TaskKind::Norm, TaskKind::Update,
                                   TaskKind::TieBroadcast}));
  EXPECT_EQ(kinds(1),
            (std::vector<TaskKind>{TaskKind::SyncGradients, TaskKind::Norm,
                                   TaskKind::Update}));
  EXPECT_EQ(kinds(0), kinds(2));
}

TEST(Schedule, gradients_are_reduced_behind_the_last_backward) {
  TaskProgram program = make1F1B(2, 2);
  setSyncBehind(program.roles[1]);
  EXPECT_EQ(steadyOf(program, 1),
            (std::vector<std::string>{
                "transfer recv-activation mb 0", "forward mb 0 slot 0",
                "backward mb 0 slot 0",
                "transfer send-gradient mb 0, recv-activation mb 1",
                "forward mb 1 slot 0", "backward mb 1 slot 0 sync-behind",
                "transfer send-gradient mb 1"}));
  EXPECT_EQ(steadyOf(program, 0), steadyOf(make1F1B(2, 2), 0));
}

} // namespace
