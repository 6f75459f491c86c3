//===- SwapTest.cpp - Chunks that come and go -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "galvatron/Schedule/Verify.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "gtest/gtest.h"

using namespace galvatron;

namespace {

TaskProgram swapped(int64_t roles, int64_t chunks, int64_t microBatches,
                    int64_t resident) {
  return scheduleNamed(chunks > 1 ? "interleaved" : "1f1b")
      .build({roles, microBatches, chunks, resident});
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

/// Sums that were begun come back where micro-batches go in several groups.
TEST(Swaps, a_sum_goes_on_where_it_stopped) {
  TaskProgram program = swapped(2, 2, 4, 1);
  size_t sums = 0;
  for (const Task &task : program.roles[0].part(SchedulePart::Steady))
    sums += task.kind == TaskKind::Swap && !task.out &&
            (task.classes & SwapGradients);
  EXPECT_GT(sums, 0u);
  EXPECT_TRUE(verifySchedule(program).empty());
}

TEST(Swaps, all_shapes_are_sound) {
  int shapes = 0;
  forAllSchedules(
      8, 18, 4, [&](const Schedule &schedule, const ScheduleShape &shape) {
        for (int64_t resident = 1; resident <= shape.chunks; ++resident) {
          ScheduleShape away = shape;
          away.residentChunks = resident;
          if (llvm::Error refused = schedule.check(away)) {
            EXPECT_GT(schedule.delay(shape), 0);
            llvm::consumeError(std::move(refused));
            continue;
          }
          ++shapes;
          TaskProgram program = schedule.build(away);
          std::vector<ScheduleFault> faults = verifySchedule(program);
          ASSERT_TRUE(faults.empty()) << faults.front().message;
          // Where nothing but swaps is taken away the schedule is as it was.
          TaskProgram plain = schedule.build(shape);
          for (auto [with, without] : llvm::zip(program.roles, plain.roles)) {
            std::vector<Task> tasks = with.part(SchedulePart::Steady);
            llvm::erase_if(tasks, [](const Task &task) {
              return task.kind == TaskKind::Swap;
            });
            EXPECT_EQ(tasks, without.part(SchedulePart::Steady));
          }
        }
      });
  EXPECT_GT(shapes, 600);
}

struct SwapFault {
  const char *name;
  std::function<void(TaskProgram &, std::vector<Task> &)> inject;
  const char *message;
};

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
  for (const SwapFault &fault : list) {
    SCOPED_TRACE(fault.name);
    TaskProgram program = swapped(2, 2, 4, 1);
    ASSERT_TRUE(verifySchedule(program).empty());
    fault.inject(program, program.roles[0].part(SchedulePart::Steady));
    std::vector<ScheduleFault> faults = verifySchedule(program);
    EXPECT_TRUE(llvm::any_of(faults, [&](const ScheduleFault &found) {
      return llvm::StringRef(found.message).contains(fault.message);
    })) << (faults.empty() ? "no fault" : faults.front().message);
  }
}

} // namespace
