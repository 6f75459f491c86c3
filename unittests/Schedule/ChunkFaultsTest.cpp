//===- ChunkFaultsTest.cpp - Faults in schedules with several chunks ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each fault is put into a schedule that is proven without it, and has to be
// told for what it is.
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "FaultPlaces.h"
#include "galvatron/Schedule/Verify.h"

#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

using namespace galvatron;
using galvatron::test::faultsOf;

namespace {

using Tasks = std::vector<Task>;
constexpr auto sends = TransferDirection::Send;
constexpr auto receives = TransferDirection::Receive;
constexpr auto activation = TransferValue::Activation;
constexpr auto gradient = TransferValue::Gradient;

/// The task of a role's steady part that runs a chunk, or has a message of it.
size_t find(const Tasks &tasks, TaskKind kind, int chunk, uint32_t microBatch) {
  for (size_t i = 0; i < tasks.size(); ++i)
    if (tasks[i].kind == kind && tasks[i].chunk == chunk &&
        tasks[i].microBatch == microBatch)
      return i;
  ADD_FAILURE() << "no such task";
  return 0;
}
size_t find(const Tasks &tasks, TransferDirection direction,
            TransferValue value, int chunk, uint32_t microBatch) {
  for (size_t i = 0; i < tasks.size(); ++i)
    if (const TransferPart *part = tasks[i].part(direction, value);
        part && part->chunk == chunk && part->microBatch == microBatch)
      return i;
  ADD_FAILURE() << "no such message";
  return 0;
}
TransferPart &partOf(Tasks &tasks, TransferDirection direction,
                     TransferValue value, int chunk, uint32_t microBatch) {
  Task &task = tasks[find(tasks, direction, value, chunk, microBatch)];
  return const_cast<TransferPart &>(*task.part(direction, value));
}
void dropPart(Tasks &tasks, TransferDirection direction, TransferValue value,
              int chunk, uint32_t microBatch) {
  llvm::erase_if(tasks[find(tasks, direction, value, chunk, microBatch)].parts,
                 [&](const TransferPart &part) {
                   return part.direction == direction && part.value == value;
                 });
}
void moveTask(Tasks &tasks, size_t from, size_t to) {
  Task task = tasks[from];
  tasks.erase(tasks.begin() + from);
  tasks.insert(tasks.begin() + to, task);
}

struct Fault {
  const char *what;
  /// Of the faulty role: steady part, step-end.
  void (*inject)(TaskProgram &program, Tasks &steady, Tasks &end);
  ScheduleFaultKind kind;
  const char *message;
};

/// All in role 1 of three stages with two chunks each: chunks 1 and 4.
const Fault faults[] = {
    {"a send to the wrong chunk",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       partOf(steady, sends, activation, 1, 2).peerChunk = 5;
     },
     ScheduleFaultKind::WrongChunk,
     "expected a message with chunk 2, found chunk 5"},
    {"a receive from the wrong chunk",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       partOf(steady, receives, gradient, 1, 0).peerChunk = 5;
     },
     ScheduleFaultKind::WrongChunk,
     "expected a message with chunk 2, found chunk 5"},
    {"a message of another role's chunk",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       partOf(steady, sends, activation, 1, 2).chunk = 2;
     },
     ScheduleFaultKind::WrongChunk, "chunk 2 is not the role's"},
    {"another role's chunk",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       steady[find(steady, TaskKind::Forward, 1, 0)].chunk = 0;
     },
     ScheduleFaultKind::WrongChunk, "chunk 0 is not the role's"},
    {"a chunk that does not exist",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       steady[find(steady, TaskKind::Forward, 1, 0)].chunk = 6;
     },
     ScheduleFaultKind::WrongChunk, "chunk 6 is not the role's"},
    {"the other chunk's forward",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       steady[find(steady, TaskKind::Forward, 4, 0)].chunk = 1;
     },
     ScheduleFaultKind::TaskOrder, "already run forward"},
    {"the other chunk's backward",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       steady[find(steady, TaskKind::Backward, 4, 0)].chunk = 1;
     },
     ScheduleFaultKind::TaskOrder, "its gradient has not been received"},
    {"a gradient that comes while one waits for another chunk's backward",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       // The gradient of chunk 1 comes before chunk 4's last one was used.
       size_t late = find(steady, receives, gradient, 1, 0);
       TransferPart part = *steady[late].part(receives, gradient);
       dropPart(steady, receives, gradient, 1, 0);
       size_t early = find(steady, receives, gradient, 4, 2);
       Task task;
       task.kind = TaskKind::Transfer;
       task.parts = {part};
       steady.insert(steady.begin() + early + 1, task);
     },
     ScheduleFaultKind::BufferConflict,
     "the gradient of micro-batch 2 of chunk 4 has not been used yet"},
    {"a backward that overwrites a gradient on its way",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       // Send behind the next backward.
       size_t at = find(steady, sends, gradient, 4, 0);
       TransferPart part = *steady[at].part(sends, gradient);
       dropPart(steady, sends, gradient, 4, 0);
       size_t next = find(steady, sends, gradient, 4, 1);
       Task task;
       task.kind = TaskKind::Transfer;
       task.parts = {part};
       steady.insert(steady.begin() + next, task);
     },
     ScheduleFaultKind::BufferConflict,
     "the gradient of micro-batch 0 of chunk 4 has not been sent yet"},
    {"a forward that overwrites an output",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       size_t at = find(steady, sends, activation, 1, 0);
       TransferPart part = *steady[at].part(sends, activation);
       dropPart(steady, sends, activation, 1, 0);
       size_t next = find(steady, TaskKind::Forward, 1, 1);
       Task task;
       task.kind = TaskKind::Transfer;
       task.parts = {part};
       steady.insert(steady.begin() + next + 1, task);
     },
     ScheduleFaultKind::BufferConflict,
     "the output of micro-batch 0 of chunk 1 has not been sent yet"},
    {"an output sent twice",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       size_t at = find(steady, sends, activation, 1, 0);
       steady.insert(steady.begin() + at, steady[at]);
     },
     ScheduleFaultKind::TaskOrder, "there is no output of micro-batch 0"},
    {"a slot of a chunk that is in use",
     [](TaskProgram &program, Tasks &steady, Tasks &) {
       program.chunks[1].slots = 2;
       for (Task &task : steady) {
         if (task.chunk == 1)
           task.slot %= 2;
         for (TransferPart &part : task.parts)
           if (part.chunk == 1)
             part.slot %= 2;
       }
     },
     ScheduleFaultKind::SlotConflict, "still holds micro-batch"},
    {"a slot that the chunk does not have",
     [](TaskProgram &program, Tasks &, Tasks &) {
       program.chunks[4].slots -= 1;
     },
     ScheduleFaultKind::SlotConflict, "does not exist"},
    {"a forward in another slot than the activation",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       steady[find(steady, TaskKind::Forward, 1, 0)].slot = 1;
     },
     ScheduleFaultKind::SlotConflict, "slot 1 does not hold its activation"},
    {"an activation received into another slot",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       partOf(steady, receives, activation, 1, 1).slot = 0;
     },
     ScheduleFaultKind::SlotConflict,
     "slot 0 still holds micro-batch 0 of chunk 1"},
    {"a backward in another slot than the stash",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       steady[find(steady, TaskKind::Backward, 1, 0)].slot = 2;
     },
     ScheduleFaultKind::SlotConflict, "slot 2 does not hold its activations"},
    {"a missing send",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       dropPart(steady, sends, activation, 1, 3);
     },
     ScheduleFaultKind::UnmatchedTransfer,
     "no send of the activation of micro-batch 3 of chunk 1 in role 1"},
    {"a missing receive",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       dropPart(steady, receives, gradient, 4, 3);
     },
     ScheduleFaultKind::UnmatchedTransfer,
     "no receive of the gradient of micro-batch 3 of chunk 5 in role 1"},
    {"messages in another order than the neighbour has them",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       std::swap(partOf(steady, receives, activation, 1, 0).microBatch,
                 partOf(steady, receives, activation, 1, 1).microBatch);
     },
     ScheduleFaultKind::MicroBatchMismatch,
     "where the activation of micro-batch 1 of chunk 0 is expected"},
    {"grouped transfers that are taken apart, what is sent first",
     [](TaskProgram &program, Tasks &, Tasks &) {
       for (RoleProgram &role : program.roles) {
         Tasks split;
         for (const Task &task : role.part(SchedulePart::Steady)) {
           Task sent = task, received = task;
           llvm::erase_if(sent.parts, [](const TransferPart &part) {
             return !part.sends();
           });
           llvm::erase_if(received.parts, [](const TransferPart &part) {
             return part.sends();
           });
           if (sent.parts.empty() || received.parts.empty()) {
             split.push_back(task);
             continue;
           }
           split.push_back(sent);
           split.push_back(received);
         }
         role.part(SchedulePart::Steady) = split;
       }
     },
     ScheduleFaultKind::Deadlock, "deadlock: waits for"},
    {"two messages of one kind in one transfer",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       Task &task = steady[find(steady, sends, activation, 1, 0)];
       task.parts.push_back(*task.part(sends, activation));
     },
     ScheduleFaultKind::TaskOrder, "two messages of one direction and value"},
    {"a transfer of nothing",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       Task task;
       task.kind = TaskKind::Transfer;
       steady.push_back(task);
     },
     ScheduleFaultKind::TaskOrder, "a transfer without messages"},
    {"a micro-batch that one chunk leaves out",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       steady.erase(steady.begin() + find(steady, TaskKind::Backward, 4, 3));
     },
     ScheduleFaultKind::MissingTask,
     "micro-batch 3 of chunk 4 is never run backward"},
    {"a backward before its forward",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       moveTask(steady, find(steady, TaskKind::Backward, 4, 0), 0);
     },
     ScheduleFaultKind::TaskOrder, "the micro-batch was not run forward yet"},
    {"gradients added in another order",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       std::swap(steady[find(steady, TaskKind::Backward, 1, 1)].microBatch,
                 steady[find(steady, TaskKind::Backward, 1, 2)].microBatch);
     },
     ScheduleFaultKind::TaskOrder, "micro-batches ascending"},
    {"a sum over ranks before the chunk's last backward",
     [](TaskProgram &, Tasks &steady, Tasks &) {
       steady[find(steady, TaskKind::Backward, 4, 2)].flags = SyncBehind;
     },
     ScheduleFaultKind::TaskOrder,
     "gradients are reduced before micro-batch 3 is added"},
    {"an update before the last backward pass",
     [](TaskProgram &, Tasks &steady, Tasks &end) {
       Task update = end.back();
       ASSERT_EQ(update.kind, TaskKind::Update);
       steady.insert(steady.end() - 2, update);
     },
     ScheduleFaultKind::TaskOrder, "the task belongs to step-end"},
    {"a chunk that is not updated",
     [](TaskProgram &, Tasks &, Tasks &end) { end.pop_back(); },
     ScheduleFaultKind::MissingTask, "expected a 'update' task of chunk 4"},
    {"a chunk whose gradients are not reduced",
     [](TaskProgram &, Tasks &, Tasks &end) { end.erase(end.begin()); },
     ScheduleFaultKind::TaskOrder,
     "the gradients of chunk 4 have not been reduced"},
    {"a chunk that is updated twice",
     [](TaskProgram &, Tasks &, Tasks &end) { end.push_back(end.back()); },
     ScheduleFaultKind::TaskOrder, "its weights have been updated already"},
    {"a forward with the weights of the next step",
     [](TaskProgram &, Tasks &steady, Tasks &end) {
       end.push_back(steady[find(steady, TaskKind::Forward, 1, 3)]);
     },
     ScheduleFaultKind::TaskOrder, "its weights have been updated already"},
};

TEST(ChunkFaults, are_told) {
  size_t told = 0;
  for (const Fault &fault : faults) {
    TaskProgram program = makeInterleaved(3, 2, 4);
    ASSERT_TRUE(faultsOf(program).empty());
    RoleProgram &role = program.roles[1];
    fault.inject(program, role.part(SchedulePart::Steady),
                 role.part(SchedulePart::StepEnd));
    bool found = false;
    std::string all;
    for (const ScheduleFault &one : faultsOf(program)) {
      found |= one.kind == fault.kind &&
               one.message.find(fault.message) != std::string::npos;
      all += one.message + "\n";
    }
    told += found;
    EXPECT_TRUE(found) << fault.what << ":\n" << all;
  }
  EXPECT_GE(told, 30u);
}

} // namespace
