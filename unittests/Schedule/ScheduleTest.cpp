//===- ScheduleTest.cpp - Task orders -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"

#include "galvatron/Schedule/Verify.h"
#include "grt/accesses.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

using namespace galvatron;
using galvatron::tasks::Access;
using galvatron::tasks::AccessMode;
using galvatron::tasks::Place;

namespace {

std::vector<Access> accessesOf(const TaskProgram &program, int64_t role,
                               const Task &task) {
  std::vector<Access> accesses;
  listAccesses(program, role, task, /*training=*/true, accesses);
  return accesses;
}

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
  int shapes = 0;
  forAllSchedules(
      8, 18, 4, [&](const Schedule &schedule, const ScheduleShape &shape) {
        ++shapes;
        TaskProgram program = schedule.build(shape);
        EXPECT_EQ(program.schedule, &schedule);
        ASSERT_EQ(int64_t(program.chunks.size()), shape.allChunks());
        for (int64_t chunk = 0; chunk < shape.allChunks(); ++chunk) {
          int64_t home = schedule.home(shape, chunk);
          EXPECT_EQ(program.chunks[chunk].role, home);
          int64_t slots = schedule.slots(shape, chunk);
          EXPECT_EQ(program.chunks[chunk].slots, slots);
          int64_t alive = 0, most = 0;
          for (SchedulePart part : trainingParts(program, 3))
            for (const Task &task : program.roles[home].part(part))
              for (const Access &access : accessesOf(program, home, task)) {
                if (access.place != Place::Slot || access.chunk != chunk)
                  continue;
                alive += access.mode == AccessMode::Fill;
                alive -= access.mode == AccessMode::Take;
                most = std::max(most, alive);
              }
          EXPECT_EQ(alive, 0);
          EXPECT_EQ(most, slots)
              << schedule.name().str() << " " << shape.roles << " stages, "
              << shape.chunks << " chunks, " << shape.microBatches
              << " micro-batches, chunk " << chunk;
        }
        ScheduleShape fewer = shape;
        if (auto bound = schedule.slotsBoundedIn(shape);
            bound && shape.microBatches >= *bound) {
          fewer.microBatches = *bound;
          for (int64_t chunk = 0; chunk < shape.allChunks(); ++chunk)
            EXPECT_EQ(schedule.slots(fewer, chunk),
                      schedule.slots(shape, chunk));
        }
        // A gradient that is late is one of weights that are kept.
        int64_t delay = schedule.name() == "2bw" ? 1 : 0;
        EXPECT_EQ(schedule.weightVersions(shape), delay + 1);
        EXPECT_EQ(schedule.gradientBuffers(shape), 1);
        EXPECT_EQ(schedule.delay(shape), delay);
        EXPECT_EQ(program.weightVersions, delay + 1);
        EXPECT_EQ(program.delay, delay);
        for (const RoleProgram &role : program.roles) {
          EXPECT_EQ(role.part(SchedulePart::Drain).empty(), !delay);
          for (const Task &task : role.part(SchedulePart::StepEnd))
            EXPECT_FALSE(delay && task.kind == TaskKind::Norm);
        }
      });
  // More where a test has a schedule of its own.
  EXPECT_GE(shapes, 5 * 8 * 18 + 7 * 18 * 3 + 7 * 18);
}

/// Whatever passes take, they can be run in the order that is listed, within
/// the same slots.
TEST(Schedule, passes_are_listed_for_any_times) {
  std::mt19937_64 random(29);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (auto [name, trials, mostAlike] : {std::tuple("zb-v", 300, 150),
                                         {"zb-h1", 120, 110},
                                         {"zb-h2", 120, 60}}) {
    const Schedule &schedule = scheduleNamed(name);
    bool isV = schedule.name() == "zb-v";
    int alikes = 0;
    for (int trial = 0; trial < trials; ++trial) {
      ScheduleShape shape{isV ? pick(2, 8) : pick(1, 8), 1, isV ? 2 : 1};
      shape.microBatches = isV ? pick(1, 20) : pick(1, 3 * shape.roles);
      TaskProgram alike = schedule.build(shape);
      for (int64_t chunk = 0; chunk < shape.allChunks(); ++chunk)
        shape.passTimes.push_back(
            {pick(0, 200), pick(1, 200), pick(0, 100), pick(0, 20)});
      TaskProgram program = schedule.build(shape);
      auto faults = verifySchedule(program);
      EXPECT_TRUE(faults.empty()) << name << ": " << faults.front().message;
      EXPECT_EQ(program.passTimes, shape.passTimes);
      EXPECT_EQ(program.separatesMessages, alike.separatesMessages);
      for (size_t chunk = 0; chunk < program.chunks.size(); ++chunk)
        EXPECT_EQ(program.chunks[chunk].slots, alike.chunks[chunk].slots);
      alikes += llvm::equal(program.roles, alike.roles,
                            [](const RoleProgram &a, const RoleProgram &b) {
                              return a.part(SchedulePart::Steady) ==
                                     b.part(SchedulePart::Steady);
                            });
    }
    EXPECT_LT(alikes, mostAlike) << name;
  }
}

/// How long a step takes whose messages take no time: a role runs its passes
/// one by one, each behind that of the micro-batch in the chunk next to it.
int64_t stepLength(const TaskProgram &program,
                   llvm::ArrayRef<PassTimes> times) {
  size_t roles = program.roles.size(), chunks = times.size();
  std::vector<size_t> next(roles);
  std::vector<int64_t> clocks(roles);
  std::map<std::tuple<TaskKind, int64_t, int64_t>, int64_t> ends;
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t role = 0; role < roles; ++role) {
      const auto &tasks = program.roles[role].part(SchedulePart::Steady);
      if (next[role] == tasks.size())
        continue;
      const Task &task = tasks[next[role]];
      int64_t from = 0, length = 0;
      if (task.computes()) {
        bool isForward = task.kind == TaskKind::Forward;
        length = isForward ? times[task.chunk].forward
                 : task.kind == TaskKind::BackwardInput
                     ? times[task.chunk].input
                     : times[task.chunk].weight;
        int64_t other = isForward ? task.chunk - 1 : task.chunk + 1;
        bool waits = task.kind != TaskKind::BackwardWeight && other >= 0 &&
                     other < int64_t(chunks);
        auto before = ends.find({task.kind, other, task.microBatch});
        if (waits && before == ends.end())
          continue;
        from = waits ? before->second : 0;
      }
      clocks[role] = std::max(clocks[role], from) + length;
      if (task.computes())
        ends[{task.kind, task.chunk, task.microBatch}] = clocks[role];
      ++next[role];
      moves = true;
    }
  }
  for (size_t role = 0; role < roles; ++role)
    EXPECT_EQ(next[role],
              program.roles[role].part(SchedulePart::Steady).size());
  return *std::max_element(clocks.begin(), clocks.end());
}

/// Four ways to fill waits with weight parts are tried. Each is the best one
/// somewhere: without any of them, or with a fifth instead of one, a step of
/// these takes longer.
TEST(Schedule, passes_are_listed_by_every_rule) {
  struct Case {
    int64_t roles, microBatches;
    std::vector<PassTimes> times;
    int64_t length;
  };
  const Case cases[] = {
      {4,
       4,
       {{7, 2, 4},
        {1, 3, 8},
        {1, 1, 8},
        {8, 9, 1},
        {8, 7, 6},
        {8, 9, 5},
        {9, 8, 4},
        {3, 6, 9}},
       169},
      {2, 2, {{2, 2, 3}, {2, 1, 3}, {1, 3, 4}, {4, 1, 3}}, 32},
      {2, 7, {{3, 5, 4}, {5, 1, 4}, {2, 6, 7}, {6, 6, 1}}, 183},
      {4,
       3,
       {{6, 1, 2},
        {4, 5, 3},
        {6, 3, 2},
        {6, 1, 1},
        {2, 3, 6},
        {1, 1, 2},
        {5, 2, 1},
        {1, 6, 5}},
       81},
  };
  for (const Case &each : cases) {
    ScheduleShape shape{each.roles, each.microBatches, 2};
    shape.passTimes = each.times;
    EXPECT_EQ(stepLength(scheduleNamed("zb-v").build(shape), each.times),
              each.length);
  }
}

/// One stage that is twice as long as others. Without messages the test's own
/// clock says what both orders take.
TEST(Schedule, whole_stages_are_listed_for_their_times) {
  struct Case {
    const char *schedule;
    int64_t microBatches;
    std::vector<PassTimes> times;
    int64_t alike, listed;
  };
  const Case cases[] = {
      {"zb-h1", 4, {{1, 2, 1}, {2, 4, 2}, {1, 2, 1}, {1, 2, 1}}, 35, 33},
      {"zb-h2", 5, {{6, 2, 2}, {3, 1, 1}, {3, 1, 1}, {3, 1, 1}}, 54, 50},
      // With few micro-batches all of them went forward first.
      {"zb-h2", 4, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}, 16, 15},
  };
  for (const Case &each : cases) {
    ScheduleShape shape{int64_t(each.times.size()), each.microBatches, 1};
    const Schedule &schedule = scheduleNamed(each.schedule);
    EXPECT_EQ(stepLength(schedule.build(shape), each.times), each.alike);
    shape.passTimes = each.times;
    EXPECT_EQ(stepLength(schedule.build(shape), each.times), each.listed);
  }
}

/// Two stages, three micro-batches, by hand: the first stage begins with the
/// next batch before it ends one.
TEST(Schedule, batches_go_on) {
  TaskProgram program = makeSchedule(scheduleNamed("2bw"), 2, 3);
  auto lines = [&](size_t role, SchedulePart part) {
    std::vector<std::string> lines;
    for (const Task &task : program.roles[role].part(part))
      lines.push_back(task.str());
    return lines;
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines(0, SchedulePart::Prologue),
            (Lines{"forward mb 0 slot 0", "transfer send-activation mb 0"}));
  EXPECT_EQ(lines(0, SchedulePart::Steady),
            (Lines{"forward mb 1 slot 1",
                   "transfer send-activation mb 1, recv-gradient mb 0",
                   "backward mb 0 slot 0", "forward mb 2 slot 0",
                   "transfer send-activation mb 2, recv-gradient mb 1",
                   "backward mb 1 slot 1", "forward mb 0 of next batch slot 1",
                   "transfer send-activation mb 0 of next batch, recv-gradient "
                   "mb 2",
                   "backward mb 2 slot 0"}));
  EXPECT_EQ(lines(0, SchedulePart::Drain),
            (Lines{"forward mb 1 slot 1",
                   "transfer send-activation mb 1, recv-gradient mb 0",
                   "backward mb 0 slot 0", "forward mb 2 slot 0",
                   "transfer send-activation mb 2, recv-gradient mb 1",
                   "backward mb 1 slot 1", "transfer recv-gradient mb 2",
                   "backward mb 2 slot 0"}));
  EXPECT_EQ(lines(1, SchedulePart::Prologue),
            (Lines{"transfer recv-activation mb 0"}));
  EXPECT_EQ(lines(1, SchedulePart::StepEnd),
            (Lines{"sync-gradients", "update"}));
}

/// Two stages, three micro-batches, by hand: the second stage is a weight part
/// behind.
TEST(Schedule, backward_passes_are_split) {
  TaskProgram program = makeSchedule(scheduleNamed("zb-h1"), 2, 3);
  EXPECT_EQ(steadyOf(program, 0),
            (std::vector<std::string>{
                "forward mb 0 slot 0", "transfer send-activation mb 0",
                "forward mb 1 slot 1",
                "transfer send-activation mb 1, recv-gradient mb 0",
                "backward-input mb 0 slot 0", "backward-weight mb 0 slot 0",
                "forward mb 2 slot 0",
                "transfer send-activation mb 2, recv-gradient mb 1",
                "backward-input mb 1 slot 1", "backward-weight mb 1 slot 1",
                "transfer recv-gradient mb 2", "backward-input mb 2 slot 0",
                "backward-weight mb 2 slot 0"}));
  EXPECT_EQ(steadyOf(program, 1),
            (std::vector<std::string>{
                "transfer recv-activation mb 0", "forward mb 0 slot 0",
                "backward-input mb 0 slot 0",
                "transfer send-gradient mb 0, recv-activation mb 1",
                "forward mb 1 slot 1", "backward-input mb 1 slot 1",
                "backward-weight mb 0 slot 0",
                "transfer send-gradient mb 1, recv-activation mb 2",
                "forward mb 2 slot 0", "backward-input mb 2 slot 0",
                "transfer send-gradient mb 2", "backward-weight mb 1 slot 1",
                "backward-weight mb 2 slot 0"}));
  EXPECT_TRUE(scheduleNamed("zb-h1").splitsBackward());
  EXPECT_FALSE(scheduleNamed("1f1b").splitsBackward());
  setSyncBehind(program.roles[1]);
  EXPECT_TRUE(syncsBehind(program.roles[1]));
  EXPECT_EQ(steadyOf(program, 1).back(),
            "backward-weight mb 2 slot 0 sync-behind");
}

/// Two stages, four micro-batches, by hand: the first stage is two passes
/// ahead, the second two weight parts behind. All messages between two tasks
/// are one operation.
TEST(Schedule, twice_as_far_ahead) {
  TaskProgram program = makeSchedule(scheduleNamed("zb-h2"), 2, 4);
  EXPECT_TRUE(program.separatesMessages);
  EXPECT_EQ(steadyOf(program, 0),
            (std::vector<std::string>{
                "forward mb 0 slot 0", "transfer send-activation mb 0",
                "forward mb 1 slot 1", "transfer send-activation mb 1",
                "forward mb 2 slot 2", "transfer recv-gradient mb 0",
                "backward-input mb 0 slot 0", "backward-weight mb 0 slot 0",
                "transfer send-activation mb 2, recv-gradient mb 1",
                "forward mb 3 slot 0", "backward-input mb 1 slot 1",
                "transfer recv-gradient mb 2", "backward-weight mb 1 slot 1",
                "transfer send-activation mb 3", "backward-input mb 2 slot 2",
                "backward-weight mb 2 slot 2", "transfer recv-gradient mb 3",
                "backward-input mb 3 slot 0", "backward-weight mb 3 slot 0"}));
  EXPECT_EQ(steadyOf(program, 1),
            (std::vector<std::string>{
                "transfer recv-activation mb 0", "forward mb 0 slot 0",
                "transfer recv-activation mb 1", "backward-input mb 0 slot 0",
                "transfer send-gradient mb 0", "forward mb 1 slot 1",
                "backward-input mb 1 slot 1",
                "transfer send-gradient mb 1, recv-activation mb 2",
                "forward mb 2 slot 2", "backward-input mb 2 slot 2",
                "transfer send-gradient mb 2", "backward-weight mb 0 slot 0",
                "transfer recv-activation mb 3", "forward mb 3 slot 0",
                "backward-input mb 3 slot 0", "transfer send-gradient mb 3",
                "backward-weight mb 1 slot 1", "backward-weight mb 2 slot 2",
                "backward-weight mb 3 slot 0"}));
}

/// The messages of a role are those of 1F1B, in their order, so both have one
/// proof.
TEST(Schedule, split_passes_meet_as_whole_ones_do) {
  auto transfers = [](const TaskProgram &program, size_t role) {
    std::vector<std::string> lines;
    for (const std::string &line : steadyOf(program, role))
      if (line.starts_with("transfer"))
        lines.push_back(line);
    return lines;
  };
  for (int64_t stages = 1; stages <= 8; ++stages)
    for (int64_t microBatches = 1; microBatches <= 3 * stages; ++microBatches) {
      TaskProgram split =
          makeSchedule(scheduleNamed("zb-h1"), stages, microBatches);
      TaskProgram whole = make1F1B(stages, microBatches);
      for (size_t role = 0; role < split.roles.size(); ++role)
        EXPECT_EQ(transfers(split, role), transfers(whole, role));
    }
}

/// Two stages with two chunks each, by hand.
TEST(Schedule, chunks_are_interleaved) {
  TaskProgram program = makeInterleaved(2, 2, 3);
  auto lines = [&](size_t role) {
    std::vector<std::string> lines;
    for (const Task &task : program.roles[role].part(SchedulePart::Steady))
      lines.push_back(task.str(/*withChunks=*/true));
    return lines;
  };
  EXPECT_EQ(
      lines(1),
      (std::vector<std::string>{
          "transfer recv-activation chunk 1 mb 0",
          "forward chunk 1 mb 0 slot 0",
          "transfer send-activation chunk 1 mb 0, recv-activation chunk 1 mb 1",
          "forward chunk 1 mb 1 slot 1",
          "transfer send-activation chunk 1 mb 1, recv-activation chunk 3 mb 0",
          "forward chunk 3 mb 0 slot 0",
          "backward chunk 3 mb 0 slot 0",
          "transfer send-gradient chunk 3 mb 0, recv-activation chunk 3 mb 1",
          "forward chunk 3 mb 1 slot 0",
          "backward chunk 3 mb 1 slot 0",
          "transfer send-gradient chunk 3 mb 1, recv-activation chunk 1 mb 2, "
          "recv-gradient chunk 1 mb 0",
          "forward chunk 1 mb 2 slot 2",
          "backward chunk 1 mb 0 slot 0",
          "transfer send-activation chunk 1 mb 2, send-gradient chunk 1 mb 0, "
          "recv-gradient chunk 1 mb 1",
          "backward chunk 1 mb 1 slot 1",
          "transfer send-gradient chunk 1 mb 1, recv-activation chunk 3 mb 2",
          "forward chunk 3 mb 2 slot 0",
          "backward chunk 3 mb 2 slot 0",
          "transfer send-gradient chunk 3 mb 2",
          "transfer recv-gradient chunk 1 mb 2",
          "backward chunk 1 mb 2 slot 2",
          "transfer send-gradient chunk 1 mb 2"}));
  EXPECT_EQ(lines(0).front(), "forward chunk 0 mb 0 slot 0");
  EXPECT_EQ(lines(0).back(), "backward chunk 0 mb 2 slot 2");
}

TEST(Schedule, names_are_known_or_refused) {
  for (const auto &schedule : ScheduleRegistry::get().all())
    EXPECT_EQ(llvm::cantFail(parseSchedule(schedule->name())), schedule.get());
  auto reason = [](const char *name) {
    return llvm::toString(parseSchedule(name).takeError());
  };
  EXPECT_EQ(reason("1F1B"),
            "unknown schedule '1F1B', expected '1f1b', 'gpipe', 'interleaved', "
            "'2bw', 'zb-h1', 'zb-h2', 'zb-v', 'harmony-pp' or 'harmony-dp'");
  EXPECT_EQ(reason(""), "unknown schedule '', expected '1f1b', 'gpipe', "
                        "'interleaved', '2bw', 'zb-h1', 'zb-h2', 'zb-v', "
                        "'harmony-pp' or 'harmony-dp'");
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
  EXPECT_EQ(reason("1f1b", {2, 1, 0}),
            "expected at least one chunk a stage, found 0");
  for (const char *name : {"1f1b", "gpipe", "zb-h1", "zb-h2"})
    EXPECT_EQ(reason(name, {2, 4, 2}), std::string("schedule '") + name +
                                           "' has one chunk a stage, found 2");
  EXPECT_EQ(reason("interleaved", {4, 8}),
            "schedule 'interleaved' needs at least 2 chunks a stage, found 1");
  EXPECT_EQ(reason("interleaved", {1, 8, 4}),
            "schedule 'interleaved' needs at least 2 stages, found 1");
  EXPECT_EQ(reason("zb-v", {4, 8, 3}),
            "schedule 'zb-v' has 2 chunks a stage, found 3");
  EXPECT_EQ(reason("zb-v", {1, 8, 2}),
            "schedule 'zb-v' needs at least 2 stages, found 1");
  ScheduleShape timed{2, 4, 2};
  timed.passTimes.resize(3);
  EXPECT_EQ(reason("zb-v", timed), "expected the times of 4 chunks, found 3");
  timed.passTimes.resize(4);
  EXPECT_EQ(reason("zb-v", timed), "");
  EXPECT_EQ(reason("interleaved", timed),
            "schedule 'interleaved' has one order of passes: expected no times "
            "that they take");
  timed.passTimes.front().weight = -1;
  EXPECT_EQ(reason("zb-v", timed),
            "expected times of passes from 0 to 1048576, found -1");
  EXPECT_EQ(reason("interleaved", {1024, 8, 64}),
            "expected at most 65535 chunks, found 64 of each of 1024 stages");
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
  forAllSchedules(
      3, 5, 3, [](const Schedule &schedule, const ScheduleShape &shape) {
        for (const RoleProgram &role : schedule.build(shape).roles)
          for (const Task &task : role.part(SchedulePart::Evaluate)) {
            EXPECT_TRUE(!task.computes() || task.kind == TaskKind::Forward);
            for (const TransferPart &part : task.parts)
              EXPECT_FALSE(part.isGradient());
          }
      });
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
