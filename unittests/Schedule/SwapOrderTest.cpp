//===- SwapOrderTest.cpp - Events between swaps and what runs -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The events of a schedule are enough, none of them is too much, and what is
// left out or wrong is found.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/SwapOrder.h"
#include "../TestSchedule.h"

#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

using namespace galvatron;

namespace {

TaskProgram streamed(const ScheduleShape &shape,
                     std::vector<TieRoles> ties = {}) {
  TaskProgram program = scheduleNamed(shape.chunks > 1 ? "interleaved" : "1f1b")
                            .build(shape, std::move(ties));
  if (llvm::Error error = assignSwapStreams(program))
    ADD_FAILURE() << llvm::toString(std::move(error));
  return program;
}

/// A task with its stream and events.
std::string lineOf(const Task &task) {
  std::string line = task.str(/*withChunks=*/true);
  if (task.kind == TaskKind::Swap)
    line += task.stream == TaskStream::In    ? " on in"
            : task.stream == TaskStream::Out ? " on out"
                                             : " on compute";
  for (uint8_t event : task.waits)
    if (event > 0)
      line += " after " + std::to_string(event);
  if (task.records > 0)
    line += " records " + std::to_string(task.records);
  return line;
}

std::vector<std::string> eventLinesOf(const std::vector<Task> &tasks) {
  std::vector<std::string> lines;
  for (const Task &task : tasks)
    if (task.kind != TaskKind::Transfer)
      lines.push_back(lineOf(task));
  return lines;
}

/// Two stages of two chunks, two micro-batches, by hand: parameters come behind
/// what ran with those before them, gradients leave behind the last backward
/// pass. Those of the next chunk are added up once they have left; nobody else
/// waits for them but the host.
TEST(SwapOrder, EventsStandWhereMemoryIsShared) {
  TaskProgram program = streamed({2, 2, 2, 1});
  EXPECT_EQ(eventLinesOf(program.roles[1].part(SchedulePart::Steady)),
            (std::vector<std::string>{
                "swap in chunk 1 parameters on in records 1",
                "forward chunk 1 mb 0 slot 0 after 1",
                "forward chunk 1 mb 1 slot 1 records 1",
                "swap in chunk 3 parameters on in after 1 records 1",
                "forward chunk 3 mb 0 slot 0 after 1",
                "backward chunk 3 mb 0 slot 0", "forward chunk 3 mb 1 slot 0",
                "backward chunk 3 mb 1 slot 0 records 1",
                "swap out chunk 3 gradients on out after 1 records 2",
                "swap in chunk 1 parameters on in after 1 records 1",
                "backward chunk 1 mb 0 slot 0 after 1 after 2",
                "backward chunk 1 mb 1 slot 1 records 1",
                "swap out chunk 1 gradients on out after 1"}));
  // At home the host works, behind all that has left.
  for (const Task &task : program.roles[1].part(SchedulePart::StepEnd))
    EXPECT_EQ(lineOf(task), task.str(/*withChunks=*/true));
}

/// Two places: a copy waits for what ran with the parameters that it
/// overwrites, a chunk before, and not for what runs beside it.
TEST(SwapOrder, CopiesAheadRunBesideTheChunkBefore) {
  ScheduleShape shape{1, 1, 4, 2};
  shape.bringsAhead = true;
  std::vector<std::string> lines =
      eventLinesOf(streamed(shape).roles[0].part(SchedulePart::Steady));
  lines.resize(8);
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "swap in chunk 0 parameters on in records 1",
                       "swap in chunk 1 parameters on in records 2",
                       "forward chunk 0 mb 0 slot 0 after 1 records 1",
                       "swap in chunk 2 parameters on in after 1 records 1",
                       "forward chunk 1 mb 0 slot 0 after 2 records 2",
                       "swap in chunk 3 parameters on in after 2 records 2",
                       "forward chunk 2 mb 0 slot 0 after 1",
                       "forward chunk 3 mb 0 slot 0 after 2"}));
}

TEST(SwapOrder, EveryEventIsNeeded) {
  int64_t waits = 0, most = 0;
  for (int64_t roles : {1, 2, 4})
    for (int64_t chunks : {1, 2, 3}) {
      if (roles == 1 && chunks > 1)
        continue;
      for (int64_t microBatches : {1, 2, 3, 5})
        for (int64_t resident : {1, 2, 3})
          for (bool justInTime : {false, true})
            for (bool slotsAtHome : {false, true}) {
              if (resident > chunks)
                continue;
              ScheduleShape shape{roles, microBatches, chunks, resident};
              shape.bringsAhead = resident == 2;
              shape.justInTime = justInTime;
              shape.slotsAtHome = slotsAtHome;
              int64_t last = roles * chunks - 1;
              TaskProgram program =
                  streamed(shape, {{0, (roles * chunks - 1) % roles, 0, last}});
              SCOPED_TRACE(testing::Message()
                           << roles << " roles, " << chunks << " chunks, "
                           << microBatches << " micro-batches, " << resident
                           << " resident" << (justInTime ? ", jit" : "")
                           << (slotsAtHome ? ", slots" : ""));
              for (const ScheduleFault &fault : verifySchedule(program))
                ADD_FAILURE() << fault.message;
              for (RoleProgram &role : program.roles)
                for (std::vector<Task> &part : role.parts)
                  for (Task &task : part) {
                    most = std::max<int64_t>(most, task.records);
                    for (uint8_t &event : task.waits) {
                      if (event == 0)
                        continue;
                      ++waits;
                      uint8_t kept = std::exchange(event, 0);
                      EXPECT_FALSE(checkSwapOrder(program).empty())
                          << lineOf(task) << " without " << int(kept);
                      event = kept;
                    }
                  }
            }
    }
  EXPECT_GT(waits, 1000);
  // They are used again and again, whatever the number of micro-batches.
  EXPECT_LE(most, 8);
}

/// The first fault of a program that `break_` has changed.
template <typename Break> std::string faultOf(Break breaks) {
  TaskProgram program = streamed({2, 2, 2, 1});
  breaks(program.roles[1].part(SchedulePart::Steady), program);
  std::vector<ScheduleFault> faults = verifySchedule(program);
  if (faults.empty())
    return "";
  EXPECT_EQ(faults.front().kind, ScheduleFaultKind::StreamOrder);
  return faults.front().message;
}

TEST(SwapOrder, FaultsAreNamed) {
  using Tasks = std::vector<Task>;
  auto swapOut = [](Tasks &tasks) -> Task & {
    return *llvm::find_if(tasks, [](const Task &task) { return task.out; });
  };
  EXPECT_EQ(faultOf([](Tasks &, TaskProgram &) {}), "");
  EXPECT_EQ(
      faultOf([&](Tasks &tasks, TaskProgram &) { swapOut(tasks).waits = {}; }),
      "role 1 steady task 12 'swap out chunk 3 gradients': nothing "
      "orders it behind 'backward chunk 3 mb 1 slot 0' on compute");
  EXPECT_EQ(faultOf([&](Tasks &tasks, TaskProgram &) {
              swapOut(tasks).stream = TaskStream::In;
            }),
            "role 1 steady task 12 'swap out chunk 3 gradients': expected it "
            "on stream 5, found 4");
  EXPECT_EQ(
      faultOf([&](Tasks &tasks, TaskProgram &) { tasks.front().waits[0] = 7; }),
      "role 1 steady task 0 'transfer recv-activation chunk 1 mb 0': event 7 "
      "has "
      "not been recorded");
  EXPECT_EQ(
      faultOf([&](Tasks &tasks, TaskProgram &) {
        tasks.front().records = kScheduleEvents + 1;
      }),
      "role 1 steady task 0 'transfer recv-activation chunk 1 mb 0': expected "
      "events of 1 to 32, found 33");
  EXPECT_EQ(faultOf([&](Tasks &, TaskProgram &program) {
              program.roles[1].part(SchedulePart::StepEnd)[0].records = 1;
            }),
            "role 1 step-end task 0 'sync-gradients chunk 3': expected no "
            "events, found some");
  // Compiled for devices without streams there are none.
  EXPECT_EQ(faultOf([&](Tasks &, TaskProgram &program) {
              program.swapsOnStreams = false;
            }),
            "role 0 steady task 0 'swap in chunk 0 parameters': expected it on "
            "stream 0, found 4");
}

TEST(SwapOrder, PacksStayAmongLayers) {
  TaskProgram program =
      scheduleNamed("harmony-pp")
          .build(ScheduleShape::ofPacks(1, 2, Offload::All, {0}, {0, 2}));
  EXPECT_EQ(llvm::toString(assignSwapStreams(program)), "");
  EXPECT_FALSE(program.swapsOnStreams);
  EXPECT_TRUE(checkSwapOrder(program).empty());
}

} // namespace
