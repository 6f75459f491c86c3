//===- VerifyTest.cpp - The deadlock proof and its faults -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/Verify.h"
#include "../TestSchedule.h"
#include "FaultPlaces.h"

#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <random>

using namespace galvatron;
using galvatron::test::faultsOf;

namespace {

std::vector<Task> &steady(TaskProgram &program, size_t role) {
  return program.roles[role].part(SchedulePart::Steady);
}

bool has(const std::vector<ScheduleFault> &faults, ScheduleFaultKind kind,
         const std::string &text) {
  return std::any_of(faults.begin(), faults.end(),
                     [&](const ScheduleFault &fault) {
                       return fault.kind == kind &&
                              fault.message.find(text) != std::string::npos;
                     });
}

std::string all(const std::vector<ScheduleFault> &faults) {
  std::string text;
  for (const ScheduleFault &fault : faults)
    text += fault.message + "\n";
  return text;
}

#define EXPECT_FAULT(program, kind, text)                                      \
  do {                                                                         \
    auto faults = faultsOf(program);                                           \
    EXPECT_TRUE(has(faults, ScheduleFaultKind::kind, text)) << all(faults);    \
  } while (false)

TEST(Verify, schedules_are_proven) {
  forAllSchedules(8, 18, 4,
                  [](const Schedule &schedule, const ScheduleShape &shape) {
                    for (bool tied : {false, true}) {
                      std::vector<TieRoles> ties;
                      if (tied)
                        ties = {{0, shape.roles - 1}, {shape.roles / 2, 0}};
                      auto faults = verifySchedule(schedule.build(shape, ties));
                      EXPECT_TRUE(faults.empty()) << all(faults);
                    }
                  });
}

TEST(Verify, expanded_programs_run) {
  forAllSchedules(
      4, 6, 3, [](const Schedule &schedule, const ScheduleShape &shape) {
        for (int64_t width : {1, 2, 3}) {
          std::vector<int64_t> ranks;
          for (int64_t s = 0; s < shape.roles; ++s)
            ranks.push_back(1 + (s + width) % 3);
          EXPECT_EQ(
              runExpanded(schedule.build(shape, {{0, shape.roles - 1}}), ranks),
              "");
        }
      });
}

TEST(Verify, a_missing_receive_is_found) {
  TaskProgram program = makeGPipe(2, 2);
  auto &tasks = steady(program, 1);
  tasks.erase(tasks.begin() + 2); // recv-activation mb 1
  EXPECT_FAULT(program, UnmatchedTransfer,
               "role 0 steady task 3 'transfer send-activation mb 1': no "
               "receive of the activation of micro-batch 1 in role 1");
  EXPECT_FAULT(program, TaskOrder, "its activation has not been received");
  EXPECT_NE(runExpanded(program, {2, 2}), "");
}

TEST(Verify, a_missing_send_is_found) {
  TaskProgram program = make1F1B(2, 2);
  auto &tasks = steady(program, 1);
  tasks.pop_back(); // send-gradient mb 1
  EXPECT_FAULT(program, UnmatchedTransfer,
               "no send of the gradient of micro-batch 1 in role 1");
  EXPECT_FAULT(program, MissingTask,
               "the gradient of micro-batch 1 is never sent");
}

TEST(Verify, a_send_beyond_the_last_role_is_found) {
  TaskProgram program = makeGPipe(2, 1);
  Task task;
  task.kind = TaskKind::Transfer;
  task.parts.push_back({TransferDirection::Send, TransferValue::Activation,
                        /*chunk=*/1, /*peerChunk=*/2});
  steady(program, 1).push_back(task);
  EXPECT_FAULT(program, UnmatchedTransfer, "in a neighbour, there is none");
}

TEST(Verify, another_micro_batch_is_found) {
  TaskProgram program = makeGPipe(2, 2);
  std::swap(steady(program, 1)[0].parts[0].microBatch,
            steady(program, 1)[2].parts[0].microBatch);
  EXPECT_FAULT(program, MicroBatchMismatch,
               "the activation of micro-batch 0 where the activation of "
               "micro-batch 1 is expected");
  EXPECT_NE(runExpanded(program, {1, 1}), "");
}

/// Ungrouped opposite transfers: each side sends and waits for the other's
/// receive. The classic deadlock of 1F1B with rendezvous sends.
TEST(Verify, opposite_sends_deadlock) {
  TaskProgram program = make1F1B(2, 3);
  for (size_t role = 0; role < 2; ++role) {
    std::vector<Task> split;
    for (const Task &task : steady(program, role)) {
      Task send = task, recv = task;
      llvm::erase_if(send.parts,
                     [](const TransferPart &part) { return !part.sends(); });
      llvm::erase_if(recv.parts,
                     [](const TransferPart &part) { return part.sends(); });
      if (send.parts.empty() || recv.parts.empty()) {
        split.push_back(task);
        continue;
      }
      split.push_back(send);
      split.push_back(recv);
    }
    steady(program, role) = split;
  }
  const std::vector<std::vector<int64_t>> devices = {{0, 1}, {2, 3}};
  auto faults = verifySchedule(program, devices);
  ASSERT_TRUE(has(faults, ScheduleFaultKind::Deadlock, "deadlock: waits for"))
      << all(faults);
  EXPECT_TRUE(has(faults, ScheduleFaultKind::Deadlock,
                  "role 0 (ranks 0, 1) steady task 3 'transfer "
                  "send-activation mb 1'"))
      << all(faults);
  EXPECT_TRUE(has(faults, ScheduleFaultKind::Deadlock, "role 1 (ranks 2, 3)"));
  EXPECT_NE(runExpanded(program, {2, 2}).find("is stuck"), std::string::npos);
}

TEST(Verify, collectives_in_another_order_are_found) {
  TaskProgram program = make1F1B(2, 1, {{0, 1}});
  auto &tasks = program.roles[1].part(SchedulePart::StepEnd);
  std::swap(tasks[1], tasks[2]); // tie-reduce and norm
  EXPECT_FAULT(program, CollectiveMismatch,
               "role 0 step-end task 1 'tie-reduce': meets role 1 step-end "
               "task 1 'norm'");
  EXPECT_FAULT(program, TaskOrder, "expected the order sync-gradients");
  EXPECT_NE(runExpanded(program, {1, 2}), "");
}

TEST(Verify, a_missing_collective_is_found) {
  TaskProgram program = make1F1B(3, 1);
  auto &tasks = program.roles[2].part(SchedulePart::StepEnd);
  tasks.erase(tasks.begin() + 1); // norm
  EXPECT_FAULT(program, CollectiveMismatch, "has no counterpart in role 2");
  EXPECT_NE(runExpanded(program, {1, 1, 1}), "");
}

TEST(Verify, slots_in_use_are_found) {
  TaskProgram program = make1F1B(2, 3);
  for (Task &task : steady(program, 0))
    if (task.microBatch == 1 && task.kind != TaskKind::Transfer)
      task.slot = 0;
  EXPECT_FAULT(program, SlotConflict, "slot 0 still holds micro-batch 0");
  TaskProgram beyond = make1F1B(1, 2);
  steady(beyond, 0)[2].slot = 1;
  EXPECT_FAULT(beyond, SlotConflict, "slot 1 does not exist, there are 1");
  TaskProgram wrong = makeGPipe(1, 2);
  std::swap(steady(wrong, 0)[2].slot, steady(wrong, 0)[3].slot);
  EXPECT_FAULT(wrong, SlotConflict, "slot 1 does not hold its activations");
}

TEST(Verify, missing_and_repeated_work_is_found) {
  TaskProgram program = makeGPipe(1, 2);
  auto tasks = steady(program, 0);
  steady(program, 0).pop_back();
  EXPECT_FAULT(program, MissingTask, "micro-batch 1 is never run backward");
  steady(program, 0) = tasks;
  steady(program, 0).push_back(tasks.back());
  EXPECT_FAULT(program, TaskOrder, "the micro-batch was already run backward");
  steady(program, 0) = tasks;
  std::swap(steady(program, 0)[2], steady(program, 0)[3]);
  EXPECT_FAULT(program, TaskOrder, "micro-batches ascending");
  for (uint32_t beyond : {2, 9}) {
    steady(program, 0)[0].microBatch = beyond;
    EXPECT_FAULT(program, TaskOrder,
                 "micro-batch " + std::to_string(beyond) +
                     " does not exist, there are 2");
  }
}

TEST(Verify, gradients_reduced_too_early_are_found) {
  for (TaskProgram program : {make1F1B(3, 4), makeGPipe(3, 4)}) {
    for (RoleProgram &role : program.roles)
      setSyncBehind(role);
    EXPECT_EQ(all(faultsOf(program)), "");
    EXPECT_EQ(runExpanded(program, {2, 2, 2}), "");
    auto first = std::find_if(
        steady(program, 1).begin(), steady(program, 1).end(),
        [](const Task &task) { return task.kind == TaskKind::Backward; });
    first->flags |= SyncBehind;
    EXPECT_FAULT(program, TaskOrder,
                 "gradients were already reduced behind a backward task");
  }
}

TEST(Verify, an_output_that_is_overwritten_is_found) {
  TaskProgram program = makeGPipe(2, 2);
  auto &tasks = steady(program, 0);
  std::swap(tasks[1], tasks[2]); // send mb 0 after forward mb 1
  EXPECT_FAULT(program, BufferConflict,
               "the output of micro-batch 0 has not been sent yet");
}

/// Single faults in a schedule that goes on.
TEST(Verify, faults_between_batches_are_found) {
  auto made = [] { return makeSchedule(scheduleNamed("2bw"), 3, 4, {{0, 2}}); };
  auto tasksOf = [](TaskProgram &program, size_t role,
                    SchedulePart part) -> std::vector<Task> & {
    return program.roles[role].part(part);
  };
  // A pass of the next batch with the weights of this one.
  TaskProgram program = made();
  for (Task &task : tasksOf(program, 1, SchedulePart::Steady))
    task.generation = 0;
  EXPECT_FALSE(faultsOf(program).empty());
  // One version too few, and more ahead than there are versions for.
  program = made();
  program.weightVersions = 1;
  EXPECT_FAULT(program, TaskOrder, "its weights have been updated already");
  program = made();
  program.delay = 0;
  EXPECT_FALSE(faultsOf(program).empty());
  program = made();
  tasksOf(program, 0, SchedulePart::Steady).front().generation = 2;
  EXPECT_FAULT(program, TaskOrder, "generation 2, expected at most 1");
  // A drain that begins with a batch, and a prologue that does not.
  program = made();
  tasksOf(program, 0, SchedulePart::Drain) =
      tasksOf(program, 0, SchedulePart::Steady);
  EXPECT_FAULT(program, TaskOrder, "there is no next batch behind a drain");
  program = made();
  tasksOf(program, 2, SchedulePart::Prologue).clear();
  EXPECT_FALSE(faultsOf(program).empty());
  // A slot too few, a slot that does not move with the batches.
  program = made();
  program.chunks[0].slots = 2;
  EXPECT_FAULT(program, SlotConflict, "slot 2 does not exist");
  program = made();
  program.chunks[1].slots = 3;
  EXPECT_FALSE(faultsOf(program).empty());
  // An update before the last backward pass of its batch.
  program = made();
  auto &steady = tasksOf(program, 1, SchedulePart::Steady);
  for (auto task = steady.rbegin(); task != steady.rend(); ++task)
    if (task->kind == TaskKind::Backward) {
      steady.erase(std::next(task).base());
      break;
    }
  EXPECT_FAULT(program, TaskOrder, "gradients are reduced before micro-batch");
  program = made();
  auto &end = tasksOf(program, 1, SchedulePart::StepEnd);
  std::swap(end.front(), end.back());
  EXPECT_FALSE(faultsOf(program).empty());
  // A gradient of the next batch in this one's sum.
  program = made();
  for (Task &task : tasksOf(program, 2, SchedulePart::Steady))
    if (task.kind == TaskKind::Backward && task.microBatch == 3)
      task.generation = 1;
  EXPECT_FALSE(faultsOf(program).empty());
  // A send to the next batch that meets one of this batch.
  program = made();
  for (Task &task : tasksOf(program, 0, SchedulePart::Steady))
    for (TransferPart &part : task.parts)
      part.generation = 0;
  EXPECT_FALSE(faultsOf(program).empty());
  // Tied values that are taken never, twice, too late, or by who has none.
  auto takes = [&](size_t role, SchedulePart part) -> std::vector<Task> {
    std::vector<Task> found;
    for (const Task &task : tasksOf(program, role, part))
      if (task.kind == TaskKind::TieBroadcast)
        found.push_back(task);
    return found;
  };
  program = makeSchedule(scheduleNamed("2bw"), 3, 4, {{0, 1}});
  EXPECT_EQ(all(faultsOf(program)), "");
  for (SchedulePart part : {SchedulePart::Steady, SchedulePart::Drain}) {
    EXPECT_EQ(takes(0, part).size(), 0u);
    EXPECT_EQ(takes(1, part).size(), 1u);
    EXPECT_EQ(takes(2, part).size(), 0u);
  }
  auto taken = [&](TaskProgram &of, SchedulePart part) {
    auto &tasks = tasksOf(of, 1, part);
    return llvm::find_if(tasks, [](const Task &task) {
      return task.kind == TaskKind::TieBroadcast;
    });
  };
  TaskProgram sound = program;
  for (SchedulePart part : {SchedulePart::Steady, SchedulePart::Drain}) {
    program = sound;
    tasksOf(program, 1, part).erase(taken(program, part));
    EXPECT_FAULT(program, TaskOrder,
                 "tied values of the update before have not been taken");
    program = sound;
    Task again = *taken(program, part);
    tasksOf(program, 1, part).push_back(again);
    EXPECT_FAULT(program, TaskOrder, "tied values were already taken");
    program = sound;
    tasksOf(program, 2, part).push_back(again);
    EXPECT_FAULT(program, TaskOrder, "the task belongs to step-end");
  }
  program = sound;
  auto late = taken(program, SchedulePart::Steady);
  std::rotate(late, late + 1, tasksOf(program, 1, SchedulePart::Steady).end());
  EXPECT_FAULT(program, TaskOrder,
               "tied values of the update before have not been taken");
  // A batch that leaves more begun than it found.
  program = made();
  Task more = tasksOf(program, 2, SchedulePart::Steady).back();
  tasksOf(program, 2, SchedulePart::Steady).push_back(more);
  EXPECT_FALSE(faultsOf(program).empty());
}

/// Random changes of a schedule that goes on: proof and expanded run agree in
/// what never ends.
TEST(Verify, proof_and_expanded_run_agree_where_batches_go_on) {
  std::mt19937 random(12);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int stuck = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    int64_t stages = pick(2, 4);
    TaskProgram program = makeSchedule(scheduleNamed("2bw"), stages, pick(1, 5),
                                       {{0, stages - 1}});
    std::vector<int64_t> ranks;
    for (int64_t s = 0; s < stages; ++s)
      ranks.push_back(pick(1, 3));
    for (int64_t change = pick(0, 2); change > 0; --change) {
      SchedulePart parts[] = {SchedulePart::Prologue, SchedulePart::Steady,
                              SchedulePart::Drain};
      auto &tasks = program.roles[pick(0, stages - 1)].part(parts[pick(0, 2)]);
      if (tasks.empty())
        continue;
      size_t a = pick(0, tasks.size() - 1), b = pick(0, tasks.size() - 1);
      if (pick(0, 1))
        std::swap(tasks[a], tasks[b]);
      else
        tasks.erase(tasks.begin() + a);
    }
    bool sound = faultsOf(program).empty();
    std::string expanded = runExpanded(program, ranks);
    stuck += !expanded.empty();
    // What is proven ends; what does not end is not proven.
    if (sound)
      EXPECT_EQ(expanded, "");
    if (!expanded.empty())
      EXPECT_FALSE(sound);
  }
  EXPECT_GT(stuck, 300);
}

/// The n-th task of a kind in a role's steady part.
std::vector<Task>::iterator nth(TaskProgram &program, size_t role,
                                TaskKind kind, size_t n) {
  auto &tasks = steady(program, role);
  return std::find_if(tasks.begin(), tasks.end(), [&](const Task &task) {
    return task.kind == kind && n-- == 0;
  });
}

/// Single faults in a schedule whose backward passes are split.
TEST(Verify, faults_of_split_passes_are_found) {
  auto made = [] {
    return makeSchedule(scheduleNamed("zb-h1"), 3, 4, {{0, 2}});
  };
  // A weight part in front of its input part, and without one.
  TaskProgram program = made();
  std::iter_swap(nth(program, 0, TaskKind::BackwardInput, 1),
                 nth(program, 0, TaskKind::BackwardWeight, 1));
  EXPECT_FAULT(program, TaskOrder,
               "the input part of the micro-batch was not run backward yet");
  program = made();
  nth(program, 1, TaskKind::BackwardInput, 0)->kind = TaskKind::Backward;
  EXPECT_FAULT(program, TaskOrder,
               "the micro-batch has no weight part left to run");
  // One that is left out, and one that runs twice.
  program = made();
  steady(program, 2).pop_back();
  EXPECT_FAULT(program, MissingTask,
               "the weight part of micro-batch 3 is never run backward");
  EXPECT_FAULT(program, TaskOrder, "gradients are reduced before micro-batch");
  program = made();
  steady(program, 2).push_back(steady(program, 2).back());
  EXPECT_FAULT(program, TaskOrder,
               "the micro-batch has no weight part left to run");
  // Micro-batches that descend, in either part.
  program = made();
  std::iter_swap(nth(program, 2, TaskKind::BackwardWeight, 2),
                 nth(program, 2, TaskKind::BackwardWeight, 3));
  EXPECT_FAULT(program, TaskOrder, "micro-batches ascending");
  program = made();
  std::iter_swap(nth(program, 2, TaskKind::BackwardInput, 0),
                 nth(program, 2, TaskKind::BackwardInput, 1));
  EXPECT_FALSE(faultsOf(program).empty());
  // A slot that is used again before its weight part: one too few, a weight
  // part that comes too late, one with the slot of another micro-batch.
  program = made();
  program.chunks[2].slots = 2;
  for (Task &task : steady(program, 2)) {
    if (task.computes())
      task.slot = static_cast<uint16_t>(task.microBatch % 2);
    for (TransferPart &part : task.parts)
      part.slot = static_cast<uint16_t>(part.microBatch % 2);
  }
  EXPECT_FAULT(program, SlotConflict, "slot 0 still holds micro-batch 0");
  program = made();
  auto late = nth(program, 1, TaskKind::BackwardWeight, 0);
  std::rotate(late, late + 1, steady(program, 1).end());
  EXPECT_FAULT(program, SlotConflict, "still holds micro-batch 0");
  program = made();
  nth(program, 1, TaskKind::BackwardWeight, 0)->slot = 1;
  EXPECT_FAULT(program, SlotConflict, "slot 1 does not hold its activations");
  // Sums over ranks in front of the last weight part, and behind an input part.
  program = made();
  nth(program, 2, TaskKind::BackwardWeight, 2)->flags |= SyncBehind;
  EXPECT_FAULT(program, TaskOrder, "gradients are reduced before micro-batch");
  program = made();
  for (RoleProgram &role : program.roles)
    setSyncBehind(role);
  EXPECT_EQ(all(faultsOf(program)), "");
  EXPECT_EQ(runExpanded(program, {2, 1, 2}), "");
  // A weight part in an evaluation, one behind the step's end.
  program = made();
  Task weight = steady(program, 1).back();
  program.roles[1].part(SchedulePart::Evaluate).push_back(weight);
  EXPECT_FAULT(program, TaskOrder, "a backward task has no place here");
  program = made();
  steady(program, 1).pop_back();
  program.roles[1].part(SchedulePart::StepEnd).push_back(weight);
  EXPECT_FALSE(faultsOf(program).empty());
  // A gradient that is sent before its input part has made it.
  program = made();
  auto input = nth(program, 1, TaskKind::BackwardInput, 3);
  std::iter_swap(input, input + 1);
  EXPECT_FAULT(program, TaskOrder,
               "there is no gradient of micro-batch 3 to send");
}

/// Single faults in one whose messages wait.
TEST(Verify, faults_of_messages_that_wait_are_found) {
  auto made = [] { return makeSchedule(scheduleNamed("zb-h2"), 3, 8); };
  TaskProgram sound = made();
  EXPECT_EQ(all(verifySchedule(sound)), "");
  // Every task and every message of it is needed, and needed there.
  for (size_t role = 0; role < 3; ++role) {
    size_t count = steady(sound, role).size();
    for (size_t at = 0; at < count; ++at) {
      TaskProgram program = made();
      auto &tasks = steady(program, role);
      tasks.erase(tasks.begin() + static_cast<std::ptrdiff_t>(at));
      EXPECT_FALSE(faultsOf(program).empty()) << role << " " << at;
      for (size_t part = 0; part < steady(sound, role)[at].parts.size();
           ++part) {
        program = made();
        auto &parts = steady(program, role)[at].parts;
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(part));
        EXPECT_FALSE(faultsOf(program).empty()) << role << " " << at;
      }
    }
  }
  // In one region with what lies between layers nothing could wait.
  TaskProgram program = made();
  program.separatesMessages = false;
  EXPECT_FAULT(program, BufferConflict, "has not been used yet");
  // A slot too few.
  program = made();
  for (ProgramChunk &chunk : program.chunks)
    --chunk.slots;
  EXPECT_FALSE(faultsOf(program).empty());
}

/// Single faults where chunks lie in a V.
TEST(Verify, faults_in_a_v_are_found) {
  auto made = [] { return scheduleNamed("zb-v").build({3, 7, 2}); };
  TaskProgram sound = made();
  EXPECT_EQ(all(verifySchedule(sound)), "");
  EXPECT_EQ(runExpanded(sound, {2, 1, 4}), "");
  // Every task and every message of it is needed, and needed there.
  for (size_t role = 0; role < 3; ++role)
    for (size_t at = 0; at < steady(sound, role).size(); ++at) {
      TaskProgram program = made();
      auto &tasks = steady(program, role);
      tasks.erase(tasks.begin() + static_cast<std::ptrdiff_t>(at));
      EXPECT_FALSE(faultsOf(program).empty()) << role << " " << at;
      for (size_t part = 0; part < steady(sound, role)[at].parts.size();
           ++part) {
        program = made();
        auto &parts = steady(program, role)[at].parts;
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(part));
        EXPECT_FALSE(faultsOf(program).empty()) << role << " " << at;
      }
    }
  // The neighbour's other chunk.
  TaskProgram program = made();
  TransferPart &sent = nth(program, 0, TaskKind::Transfer, 0)->parts.front();
  EXPECT_EQ(sent.peerChunk, 1);
  sent.peerChunk = 4;
  EXPECT_FAULT(program, WrongChunk,
               "expected a message with chunk 1, found chunk 4");
  // The role's other chunk, in both of its ends.
  program = made();
  for (size_t role : {0, 1})
    for (Task &task : steady(program, role))
      for (TransferPart &part : task.parts)
        if (part.value == TransferValue::Activation && part.microBatch == 0 &&
            std::min(part.chunk, part.peerChunk) == 0) {
          part.chunk = 5 - part.chunk;
          part.peerChunk = 5 - part.peerChunk;
        }
  EXPECT_FAULT(program, WrongChunk, "expected a message with chunk");
  // A chunk that the role has not got.
  program = made();
  nth(program, 1, TaskKind::Forward, 0)->chunk = 2;
  EXPECT_FAULT(program, WrongChunk, "chunk 2 is not the role's");
  // The ends of a message of one role to itself, one behind the other.
  program = made();
  auto both =
      std::find_if(steady(program, 2).begin(), steady(program, 2).end(),
                   [](const Task &task) {
                     return task.parts.size() == 2 &&
                            task.parts[0].chunk == task.parts[1].peerChunk;
                   });
  ASSERT_NE(both, steady(program, 2).end());
  Task receive = *both;
  receive.parts = {both->parts[1]};
  both->parts.pop_back();
  steady(program, 2).insert(both + 1, receive);
  EXPECT_FAULT(program, Deadlock, "deadlock");
  // Messages of one transfer in another order than both ends know.
  program = made();
  auto several =
      std::find_if(steady(program, 0).begin(), steady(program, 0).end(),
                   [](const Task &task) { return task.parts.size() > 1; });
  ASSERT_NE(several, steady(program, 0).end());
  std::swap(several->parts[0], several->parts[1]);
  EXPECT_FAULT(program, TaskOrder, "its messages are not in the order");
  // A slot too few for some chunk; one that is used again before its weight
  // part.
  for (int64_t chunk = 0; chunk < 6; ++chunk) {
    program = made();
    --program.chunks[chunk].slots;
    EXPECT_FALSE(faultsOf(program).empty()) << chunk;
  }
  program = made();
  auto late = nth(program, 0, TaskKind::BackwardWeight, 0);
  std::rotate(late, late + 1, steady(program, 0).end());
  EXPECT_FAULT(program, SlotConflict, "still holds micro-batch 0");
}

TEST(Verify, step_end_needs_its_tasks) {
  TaskProgram program = make1F1B(1, 1, {{0, 0}});
  program.roles[0].part(SchedulePart::StepEnd).clear();
  auto faults = faultsOf(program);
  for (const char *task :
       {"'sync-gradients'", "'update'", "'tie-reduce'", "'tie-broadcast'"})
    EXPECT_TRUE(has(faults, ScheduleFaultKind::MissingTask, task));
  // Of a tie both ends give and take, and nobody else.
  for (int64_t role : {0, 1, 2}) {
    program = make1F1B(3, 4, {{0, 2}});
    llvm::erase_if(program.roles[role].part(SchedulePart::StepEnd),
                   [](const Task &task) {
                     return task.kind == TaskKind::TieReduce ||
                            task.kind == TaskKind::TieBroadcast;
                   });
    faults = faultsOf(program);
    EXPECT_EQ(faults.empty(), role == 1);
    for (const char *task : {"'tie-reduce'", "'tie-broadcast'"})
      EXPECT_EQ(has(faults, ScheduleFaultKind::MissingTask, task), role != 1)
          << role << " " << task;
  }
}

/// Whenever the proof accepts the transfers and collectives of a mutated
/// program, the expanded program runs, and the other way round.
TEST(Verify, proof_and_expanded_run_agree) {
  std::mt19937_64 random(17);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int stuck = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    int64_t stages = pick(2, 4);
    std::vector<TieRoles> ties = {{0, stages - 1}};
    int64_t microBatches = pick(1, 5), chunks = pick(0, 1) ? pick(2, 3) : 1;
    const char *name = chunks > 1
                           ? chunks == 2 && pick(0, 1) ? "zb-v" : "interleaved"
                       : pick(0, 1) ? "gpipe"
                       : pick(0, 1) ? "zb-h1"
                       : pick(0, 1) ? "zb-h2"
                                    : "1f1b";
    ScheduleShape shape{stages, microBatches, chunks};
    if (scheduleNamed(name).listsByTimes() && pick(0, 1))
      for (int64_t chunk = 0; chunk < shape.allChunks(); ++chunk)
        shape.passTimes.push_back(
            {pick(1, 9), pick(1, 9), pick(0, 9), pick(0, 3)});
    TaskProgram program = scheduleNamed(name).build(shape, ties);
    std::vector<int64_t> ranks;
    for (int64_t s = 0; s < stages; ++s)
      ranks.push_back(pick(1, 3));
    for (int64_t change = pick(0, 3); change > 0; --change) {
      auto part = pick(0, 4) ? SchedulePart::Steady : SchedulePart::StepEnd;
      auto &tasks = program.roles[pick(0, stages - 1)].part(part);
      if (tasks.empty())
        continue;
      size_t a = pick(0, tasks.size() - 1), b = pick(0, tasks.size() - 1);
      switch (pick(0, 2)) {
      case 0:
        std::swap(tasks[a], tasks[b]);
        break;
      case 1:
        tasks.erase(tasks.begin() + a);
        break;
      case 2:
        if (!tasks[a].parts.empty() && !tasks[b].parts.empty())
          tasks[a].parts.front().microBatch = tasks[b].parts.front().microBatch;
        break;
      }
    }
    bool refused = false;
    for (const ScheduleFault &fault : faultsOf(program))
      refused |= fault.part != SchedulePart::Evaluate &&
                 (fault.kind == ScheduleFaultKind::UnmatchedTransfer ||
                  fault.kind == ScheduleFaultKind::MicroBatchMismatch ||
                  fault.kind == ScheduleFaultKind::CollectiveMismatch ||
                  fault.kind == ScheduleFaultKind::Deadlock);
    std::string expanded = runExpanded(program, ranks);
    stuck += !expanded.empty();
    // A send without a receive that nobody waits behind still ends nowhere: the
    // expanded run notices every one of them, as its sender never gets on.
    EXPECT_EQ(refused, !expanded.empty()) << expanded << "\n"
                                          << all(faultsOf(program));
  }
  EXPECT_GT(stuck, 500);
}

} // namespace
