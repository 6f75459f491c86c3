//===- SwapTest.cpp - Chunks that come and go -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "FaultPlaces.h"
#include "galvatron/Schedule/Verify.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "gtest/gtest.h"

using namespace galvatron;
using galvatron::test::faultsOf;

namespace {

TaskProgram swapped(int64_t roles, int64_t chunks, int64_t microBatches,
                    int64_t resident, bool justInTime = false,
                    std::vector<TieRoles> ties = {}) {
  return scheduleNamed(chunks > 1 ? "interleaved" : "1f1b")
      .build({roles, microBatches, chunks, resident, justInTime},
             std::move(ties));
}

std::vector<std::string> linesOf(const std::vector<Task> &tasks,
                                 bool withTransfers = false) {
  std::vector<std::string> lines;
  for (const Task &task : tasks)
    if (withTransfers || task.kind != TaskKind::Transfer)
      lines.push_back(task.str(/*withChunks=*/true));
  return lines;
}

/// Two stages of two chunks, two micro-batches, by hand: on the last stage its
/// last chunk stays from forward to backward.
TEST(Swaps, a_chunk_comes_where_it_is_needed) {
  TaskProgram program = swapped(2, 2, 2, 1);
  EXPECT_EQ(linesOf(program.roles[1].part(SchedulePart::Steady)),
            (std::vector<std::string>{
                "swap in chunk 1 parameters", "forward chunk 1 mb 0 slot 0",
                "forward chunk 1 mb 1 slot 1", "swap in chunk 3 parameters",
                "forward chunk 3 mb 0 slot 0", "backward chunk 3 mb 0 slot 0",
                "forward chunk 3 mb 1 slot 0", "backward chunk 3 mb 1 slot 0",
                "swap out chunk 3 gradients", "swap in chunk 1 parameters",
                "backward chunk 1 mb 0 slot 0", "backward chunk 1 mb 1 slot 1",
                "swap out chunk 1 gradients"}));
}

/// Updates stand behind the message that others wait for, and in front of what
/// the role does next.
TEST(Swaps, a_chunk_is_updated_just_in_time) {
  TaskProgram program = swapped(2, 2, 2, 1, /*justInTime=*/true);
  const std::vector<Task> &steady = program.roles[1].part(SchedulePart::Steady);
  EXPECT_EQ(linesOf(steady),
            (std::vector<std::string>{
                "swap in chunk 1 parameters", "forward chunk 1 mb 0 slot 0",
                "forward chunk 1 mb 1 slot 1", "swap in chunk 3 parameters",
                "forward chunk 3 mb 0 slot 0", "backward chunk 3 mb 0 slot 0",
                "forward chunk 3 mb 1 slot 0", "backward chunk 3 mb 1 slot 0",
                "swap out chunk 3 gradients", "sync-gradients chunk 3",
                "update chunk 3", "swap in chunk 1 parameters",
                "backward chunk 1 mb 0 slot 0", "backward chunk 1 mb 1 slot 1",
                "swap out chunk 1 gradients", "sync-gradients chunk 1",
                "update chunk 1"}));
  std::vector<std::string> lines = linesOf(steady, /*withTransfers=*/true);
  auto update = llvm::find(lines, "sync-gradients chunk 3");
  EXPECT_TRUE(llvm::StringRef(*std::prev(update)).contains("send-gradient"))
      << *std::prev(update);
  EXPECT_EQ(linesOf(program.roles[1].part(SchedulePart::StepEnd)),
            std::vector<std::string>{"norm"});
}

/// Gradients of a tied parameter are summed over its chunks first.
TEST(Swaps, tied_chunks_are_updated_at_the_end) {
  TaskProgram program =
      swapped(2, 2, 2, 1, /*justInTime=*/true, {{0, 1, 0, 3}});
  EXPECT_TRUE(faultsOf(program).empty());
  EXPECT_EQ(
      linesOf(program.roles[1].part(SchedulePart::StepEnd)),
      (std::vector<std::string>{"sync-gradients chunk 3", "tie-reduce", "norm",
                                "update chunk 3", "tie-broadcast"}));
  EXPECT_FALSE(program.updatesBehind(0));
  EXPECT_TRUE(program.updatesBehind(1));
  EXPECT_TRUE(program.updatesBehind(2));
  EXPECT_FALSE(program.updatesBehind(3));
  // Where the chunks are not said none of both roles is.
  TaskProgram unsaid = swapped(2, 2, 2, 1, /*justInTime=*/true, {{0, 1}});
  EXPECT_TRUE(verifySchedule(unsaid).empty());
  EXPECT_FALSE(unsaid.updatesBehind(1));
}

/// With a second place parameters come where the chunk before begins, in front
/// of its passes. The two chunks that are there at the end of forward stay.
TEST(Swaps, parameters_come_a_chunk_ahead) {
  ScheduleShape shape{1, 1, 4, 2};
  shape.bringsAhead = true;
  TaskProgram program = scheduleNamed("interleaved").build(shape);
  EXPECT_TRUE(faultsOf(program).empty());
  EXPECT_EQ(linesOf(program.roles[0].part(SchedulePart::Steady)),
            (std::vector<std::string>{
                "swap in chunk 0 parameters", "swap in chunk 1 parameters",
                "forward chunk 0 mb 0 slot 0", "swap in chunk 2 parameters",
                "forward chunk 1 mb 0 slot 0", "swap in chunk 3 parameters",
                "forward chunk 2 mb 0 slot 0", "forward chunk 3 mb 0 slot 0",
                "backward chunk 3 mb 0 slot 0", "swap out chunk 3 gradients",
                "swap in chunk 1 parameters", "backward chunk 2 mb 0 slot 0",
                "swap out chunk 2 gradients", "swap in chunk 0 parameters",
                "backward chunk 1 mb 0 slot 0", "swap out chunk 1 gradients",
                "backward chunk 0 mb 0 slot 0", "swap out chunk 0 gradients"}));
  for (int64_t roles : {1, 2, 4})
    for (int64_t chunks : {2, 3, 4, 5})
      for (int64_t microBatches : {1, 2, 3, 5, 8})
        for (bool justInTime : {false, true}) {
          shape = {roles, microBatches, chunks, 2, justInTime};
          shape.bringsAhead = true;
          for (const ScheduleFault &fault :
               verifySchedule(scheduleNamed("interleaved").build(shape)))
            ADD_FAILURE() << fault.message;
        }
  shape = {2, 2, 1, 1};
  shape.bringsAhead = true;
  EXPECT_EQ(llvm::toString(scheduleNamed("1f1b").check(shape)),
            "parameters are brought ahead to a second place on the devices: "
            "expected two chunks of a stage or more, found 1");
}

/// What forward keeps goes home and comes back, but that of the last chunk,
/// whose backward pass is next.
TEST(Swaps, activations_go_home_and_come_back) {
  ScheduleShape shape{2, 2, 2, 1};
  shape.slotsAtHome = true;
  TaskProgram program = scheduleNamed("interleaved").build(shape);
  EXPECT_TRUE(faultsOf(program).empty());
  EXPECT_EQ(linesOf(program.roles[1].part(SchedulePart::Steady)),
            (std::vector<std::string>{
                "swap in chunk 1 parameters", "forward chunk 1 mb 0 slot 0",
                "swap out chunk 1 activations mb 0 slot 0",
                "forward chunk 1 mb 1 slot 1",
                "swap out chunk 1 activations mb 1 slot 1",
                "swap in chunk 3 parameters", "forward chunk 3 mb 0 slot 0",
                "backward chunk 3 mb 0 slot 0", "forward chunk 3 mb 1 slot 0",
                "backward chunk 3 mb 1 slot 0", "swap out chunk 3 gradients",
                "swap in chunk 1 parameters",
                "swap in chunk 1 activations mb 0 slot 0",
                "backward chunk 1 mb 0 slot 0",
                "swap in chunk 1 activations mb 1 slot 1",
                "backward chunk 1 mb 1 slot 1", "swap out chunk 1 gradients"}));
  // Evaluation keeps nothing.
  for (const Task &task : program.roles[1].part(SchedulePart::Evaluate))
    EXPECT_FALSE(task.classes & SwapActivations);
}

/// Sums that were begun come back where micro-batches go in several groups.
TEST(Swaps, a_sum_goes_on_where_it_stopped) {
  TaskProgram program = swapped(2, 2, 4, 1);
  size_t sums = 0;
  for (const Task &task : program.roles[0].part(SchedulePart::Steady))
    sums += task.kind == TaskKind::Swap && !task.out &&
            (task.classes & SwapGradients);
  EXPECT_GT(sums, 0u);
  EXPECT_TRUE(faultsOf(program).empty());
}

TEST(Swaps, all_shapes_are_sound) {
  int shapes = 0;
  forAllSchedules(
      8, 18, 4, [&](const Schedule &schedule, const ScheduleShape &shape) {
        // At the end, just in time, and with activations at home.
        for (int64_t way = 3; way < 3 * shape.chunks + 3; ++way) {
          int64_t resident = way / 3;
          ScheduleShape away = shape;
          away.residentChunks = resident;
          away.justInTime = way % 3 > 0;
          away.slotsAtHome = way % 3 > 1;
          if (llvm::Error refused = schedule.check(away)) {
            EXPECT_TRUE(schedule.delay(shape) > 0 ||
                        (schedule.splitsBackward() &&
                         (away.slotsAtHome || resident < shape.chunks)));
            llvm::consumeError(std::move(refused));
            continue;
          }
          ++shapes;
          std::vector<TieRoles> ties;
          if (shape.roles > 1)
            ties.push_back({0, schedule.home(shape, shape.allChunks() - 1), 0,
                            shape.allChunks() - 1});
          TaskProgram program = schedule.build(away, ties);
          std::vector<ScheduleFault> faults = faultsOf(program);
          ASSERT_TRUE(faults.empty()) << faults.front().message;
          if (shape.roles * shape.microBatches <= 6)
            ASSERT_EQ(
                runExpanded(program, std::vector<int64_t>(shape.roles, 2)), "");
          // Where nothing but swaps and updates is taken away the schedule is
          // as it was.
          TaskProgram plain = schedule.build(shape, ties);
          for (auto [with, without] : llvm::zip(program.roles, plain.roles)) {
            std::vector<Task> tasks = with.part(SchedulePart::Steady);
            llvm::erase_if(tasks, [](const Task &task) {
              return task.kind == TaskKind::Swap || endsStep(task.kind);
            });
            EXPECT_EQ(tasks, without.part(SchedulePart::Steady));
          }
        }
      });
  EXPECT_GT(shapes, 1800);
}

struct SwapFault {
  const char *name;
  std::function<void(TaskProgram &, std::vector<Task> &)> inject;
  const char *message;
};

/// The verifier passes `program`, and tells the fault once it is in.
void expectFound(const SwapFault &fault, TaskProgram program) {
  SCOPED_TRACE(fault.name);
  ASSERT_TRUE(faultsOf(program).empty());
  fault.inject(program, program.roles[0].part(SchedulePart::Steady));
  std::vector<ScheduleFault> faults = faultsOf(program);
  EXPECT_TRUE(llvm::any_of(faults, [&](const ScheduleFault &found) {
    return llvm::StringRef(found.message).contains(fault.message);
  })) << (faults.empty() ? "no fault" : faults.front().message);
}

size_t findSwap(const std::vector<Task> &tasks, int chunk, bool out,
                unsigned classes, int which = 0) {
  for (size_t i = 0; i < tasks.size(); ++i)
    if (tasks[i].kind == TaskKind::Swap && tasks[i].chunk == chunk &&
        tasks[i].out == out && (tasks[i].classes & classes) && which-- == 0)
      return i;
  ADD_FAILURE() << "no such swap";
  return 0;
}

/// Each fault is put into the first stage of two, of two chunks and four
/// micro-batches.
TEST(Swaps, faults_are_found) {
  const SwapFault list[] = {
      {"parameters that never come",
       [](TaskProgram &, std::vector<Task> &steady) {
         steady.erase(steady.begin() +
                      findSwap(steady, 0, false, SwapParameters));
       },
       "parameters of chunk 0 are not on the device"},
      {"parameters that come too late",
       [](TaskProgram &, std::vector<Task> &steady) {
         size_t at = findSwap(steady, 2, false, SwapParameters);
         std::swap(steady[at], steady[at + 1]);
       },
       "are not on the device"},
      {"parameters of another chunk",
       [](TaskProgram &, std::vector<Task> &steady) {
         steady[findSwap(steady, 2, false, SwapParameters)].chunk = 0;
       },
       "parameters of chunk 2 are not on the device"},
      {"a chunk that comes over gradients that have not left",
       [](TaskProgram &, std::vector<Task> &steady) {
         steady.erase(steady.begin() +
                      findSwap(steady, 2, true, SwapGradients));
       },
       "gradients of chunk 2 have not gone home"},
      {"gradients that never leave",
       [](TaskProgram &, std::vector<Task> &steady) {
         for (size_t i = steady.size(); i-- > 0;)
           if (steady[i].kind == TaskKind::Swap && steady[i].out) {
             steady.erase(steady.begin() + i);
             break;
           }
       },
       "have not gone home"},
      {"gradients that leave twice",
       [](TaskProgram &, std::vector<Task> &steady) {
         size_t at = findSwap(steady, 2, true, SwapGradients);
         steady.insert(steady.begin() + at, steady[at]);
       },
       "gradients of chunk 2 are not on the device"},
      {"a sum that goes on without what was in it",
       [](TaskProgram &, std::vector<Task> &steady) {
         steady[findSwap(steady, 2, false, SwapGradients)].classes =
             SwapParameters;
       },
       "gradients of chunk 2 are not on the device"},
      {"a sum that comes before there is one",
       [](TaskProgram &, std::vector<Task> &steady) {
         steady[findSwap(steady, 2, false, SwapParameters)].classes |=
             SwapGradients;
       },
       "or there are none"},
      {"an update on a device",
       [](TaskProgram &program, std::vector<Task> &) {
         std::vector<Task> &end = program.roles[0].part(SchedulePart::StepEnd);
         Task task = program.roles[0].part(SchedulePart::Steady).front();
         end.insert(end.begin(), task);
       },
       "does not belong to step-end"},
      {"a swap where nothing is swapped",
       [](TaskProgram &program, std::vector<Task> &) {
         program.residentChunks = 0;
       },
       "a swap where everything is on the devices"},
  };
  const TaskProgram program = swapped(2, 2, 4, 1);
  for (const SwapFault &fault : list)
    expectFound(fault, program);
}

std::vector<Task>::iterator findUpdate(std::vector<Task> &tasks, int chunk,
                                       TaskKind kind = TaskKind::Update) {
  auto found = llvm::find_if(tasks, [&](const Task &task) {
    return task.kind == kind && task.chunk == chunk;
  });
  EXPECT_NE(found, tasks.end());
  return found;
}

/// Into the same, updated just in time; chunks 0 and 3 are tied.
TEST(Swaps, faults_of_updates_just_in_time_are_found) {
  using Tasks = std::vector<Task>;
  const SwapFault list[] = {
      {"parameters of before the update that are used behind it",
       [](TaskProgram &, Tasks &steady) {
         auto last = llvm::find_if(llvm::reverse(steady), [](const Task &task) {
           return task.kind == TaskKind::Backward && task.chunk == 2;
         });
         auto update = findUpdate(steady, 2);
         Task task = *update;
         steady.erase(update);
         steady.insert(std::prev(last.base()), task);
       },
       "its weights have been updated already"},
      {"an update before the gradients of all micro-batches are summed",
       [](TaskProgram &, Tasks &steady) {
         auto sync = findUpdate(steady, 2, TaskKind::SyncGradients);
         Task task = *sync;
         steady.erase(sync);
         auto first = llvm::find_if(steady, [](const Task &task) {
           return task.kind == TaskKind::Backward && task.chunk == 2;
         });
         steady.insert(std::next(first), task);
       },
       "gradients are reduced before micro-batch"},
      {"gradients that are summed over ranks before they are at home",
       [](TaskProgram &, Tasks &steady) {
         auto last = llvm::find_if(llvm::reverse(steady), [](const Task &task) {
           return task.kind == TaskKind::Backward && task.chunk == 2;
         });
         auto at = std::prev(last.base()) - steady.begin();
         auto sync = findUpdate(steady, 2, TaskKind::SyncGradients);
         Task task = *sync;
         steady.erase(sync);
         steady.insert(steady.begin() + at + 1, task);
       },
       "gradients of chunk 2 have not gone home"},
      {"an update without the sum over ranks",
       [](TaskProgram &, Tasks &steady) {
         steady.erase(findUpdate(steady, 2, TaskKind::SyncGradients));
       },
       "have not been reduced"},
      {"a chunk that is never updated",
       [](TaskProgram &, Tasks &steady) {
         steady.erase(findUpdate(steady, 2));
       },
       "expected a 'update' task of chunk 2"},
      {"a chunk that is updated twice",
       [](TaskProgram &program, Tasks &steady) {
         program.roles[0]
             .part(SchedulePart::StepEnd)
             .push_back(*findUpdate(steady, 2));
       },
       "was already run"},
      {"an update of a tied chunk before its gradients are whole",
       [](TaskProgram &program, Tasks &steady) {
         Tasks &end = program.roles[0].part(SchedulePart::StepEnd);
         for (TaskKind kind : {TaskKind::SyncGradients, TaskKind::Update}) {
           auto task = findUpdate(end, 0, kind);
           steady.push_back(*task);
           end.erase(task);
         }
       },
       "the task belongs to step-end"},
      {"an update just in time of a program that has none",
       [](TaskProgram &program, Tasks &) { program.justInTime = false; },
       "the task belongs to step-end"},
  };
  const TaskProgram program =
      swapped(2, 2, 4, 1, /*justInTime=*/true, {{0, 1, 0, 3}});
  for (const SwapFault &fault : list)
    expectFound(fault, program);
}

TEST(Swaps, faults_of_activations_at_home_are_found) {
  using Tasks = std::vector<Task>;
  const SwapFault list[] = {
      {"activations that never come back",
       [](TaskProgram &, Tasks &steady) {
         steady.erase(steady.begin() +
                      findSwap(steady, 0, false, SwapActivations));
       },
       "does not hold its activations"},
      {"activations that stay",
       [](TaskProgram &, Tasks &steady) {
         steady.erase(steady.begin() +
                      findSwap(steady, 0, true, SwapActivations));
       },
       "still holds micro-batch 0 of chunk 0"},
      {"activations that go where others are",
       [](TaskProgram &, Tasks &steady) {
         steady[findSwap(steady, 0, true, SwapActivations, 1)].slot = 0;
       },
       "at home still holds micro-batch 0 of chunk 0"},
      {"activations of another micro-batch that come back",
       [](TaskProgram &, Tasks &steady) {
         steady[findSwap(steady, 0, false, SwapActivations)].slot = 1;
       },
       "at home does not hold activations of micro-batch"},
      {"activations that come back where others are",
       [](TaskProgram &, Tasks &steady) {
         size_t at = findSwap(steady, 0, false, SwapActivations);
         steady.insert(steady.begin() + at, steady[at]);
       },
       "at home does not hold activations of micro-batch"},
      {"activations that go home where they are on the devices",
       [](TaskProgram &program, Tasks &) { program.slotsAtHome = false; },
       "a swap of activations where slots are on the devices"},
  };
  ScheduleShape shape{2, 4, 2, 1};
  shape.slotsAtHome = true;
  const TaskProgram program = scheduleNamed("interleaved").build(shape);
  for (const SwapFault &fault : list)
    expectFound(fault, program);
}

TEST(Swaps, names_of_what_is_at_home) {
  for (llvm::StringRef name :
       {"off", "optimizer", "all", "all,just-in-time", "optimizer,activations",
        "all,activations,just-in-time", "all,prefetch",
        "all,activations,just-in-time,prefetch",
        "all,just-in-time,update-on-device"}) {
    llvm::Expected<Offload> offload = parseOffload(name);
    ASSERT_TRUE(bool(offload)) << llvm::toString(offload.takeError());
    EXPECT_EQ(offloadName(*offload), name);
  }
  EXPECT_EQ(offloadName(llvm::cantFail(parseOffload("just-in-time, all"))),
            "all,just-in-time");
  auto errorOf = [](llvm::StringRef text) {
    return llvm::toString(parseOffload(text).takeError());
  };
  EXPECT_NE(errorOf("all,optimizer").find("two of a kind"), std::string::npos);
  for (const char *alone : {"just-in-time", "off,activations"})
    EXPECT_NE(errorOf(alone).find("states with their home on the host"),
              std::string::npos);
  EXPECT_NE(errorOf("optimizer,prefetch").find("chunk by chunk"),
            std::string::npos);
  for (const char *late :
       {"all,update-on-device", "optimizer,just-in-time,update-on-device"})
    EXPECT_NE(errorOf(late).find("chunk by chunk, just in time"),
              std::string::npos);
  EXPECT_NE(errorOf("update-on-device").find("home on the host"),
            std::string::npos);
  EXPECT_NE(errorOf("").find("unknown offload ''"), std::string::npos);
  EXPECT_NE(errorOf("all,all").find("two of a kind"), std::string::npos);
}

} // namespace
