//===- PacksTest.cpp - Packs that take turns on few devices ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "FaultPlaces.h"
#include "galvatron/Schedule/Verify.h"

#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <random>

using namespace galvatron;
using galvatron::test::faultsOf;

namespace {

ScheduleShape packShape(int64_t roles, int64_t microBatches,
                        std::vector<int64_t> forward,
                        std::vector<int64_t> backward, bool justInTime = false,
                        int64_t forwardMicroBatches = 0) {
  ScheduleShape shape{roles,        microBatches,
                      /*chunks=*/1, /*residentChunks=*/1,
                      justInTime,   /*slotsAtHome=*/true};
  shape.forwardPacks = std::move(forward);
  shape.backwardPacks = std::move(backward);
  shape.forwardMicroBatches = forwardMicroBatches;
  return shape;
}

const Schedule &packs() { return scheduleNamed("harmony-pp"); }

/// The task that is described so; a test fails that has none.
std::vector<Task>::iterator findTask(std::vector<Task> &tasks,
                                     llvm::StringRef name) {
  auto it = llvm::find_if(
      tasks, [&](const Task &task) { return task.str(true) == name; });
  EXPECT_NE(it, tasks.end()) << name.str();
  return it;
}

/// The verifier finds a fault of this kind that says this, besides others.
void expectFault(const TaskProgram &program, ScheduleFaultKind kind,
                 llvm::StringRef message) {
  std::string all;
  bool isThere = false;
  for (const ScheduleFault &one : faultsOf(program)) {
    all += one.message + "\n";
    isThere |=
        one.kind == kind && llvm::StringRef(one.message).contains(message);
  }
  EXPECT_TRUE(isThere) << all;
}

/// What is told of messages that wait is what is there along the tasks, counted
/// by how many more came than were used.
void expectWaitingTold(const TaskProgram &program) {
  for (int64_t role = 0; role < std::ssize(program.roles); ++role) {
    std::map<std::pair<int64_t, int64_t>, int64_t> most;
    for (SchedulePart part : {SchedulePart::Steady, SchedulePart::Evaluate}) {
      std::map<int64_t, int64_t> here;
      int64_t there = -1;
      for (const Task &task : program.roles[role].part(part)) {
        for (const TransferPart &one : task.parts)
          here[one.chunk] += !one.sends() && one.value != TransferValue::Stash;
        if (task.computes() || task.kind == TaskKind::Swap)
          there = task.chunk;
        for (auto [chunk, count] : here)
          most[{there, chunk}] = std::max(most[{there, chunk}], count);
        TransferPart end;
        end.direction = TransferDirection::Receive;
        end.chunk = task.chunk;
        end.value = task.kind == TaskKind::Forward ? TransferValue::Activation
                                                   : TransferValue::Gradient;
        if (task.computes() && program.peerOf(end) >= 0)
          --here[task.chunk];
      }
    }
    WaitingMessages told = waitingMessages(program, role);
    for (const WaitingMessages::Use &use : told.uses) {
      EXPECT_LE(use.places, program.roles[role].waitingPlaces);
      EXPECT_GE(use.places, (most[{use.beside, use.chunk}]));
      most.erase({use.beside, use.chunk});
    }
    for (auto [pair, count] : most)
      EXPECT_EQ(count, 0) << pair.first << " " << pair.second;
  }
}

std::vector<std::string> linesOf(const TaskProgram &program, int64_t role,
                                 SchedulePart part = SchedulePart::Steady) {
  std::vector<std::string> lines;
  for (const Task &task : program.roles[role].part(part))
    lines.push_back(task.str(/*withChunks=*/true));
  return lines;
}

/// Two forward packs of 2 and 1 layers, three backward packs that begin with
/// layers 0, 1 and 3: the second recomputes from inside the first forward pack.
TEST(Packs, every_pack_comes_once_for_all_micro_batches) {
  TaskProgram program = packs().build(packShape(2, 2, {0, 2}, {0, 1, 3}));
  std::vector<ScheduleFault> faults = faultsOf(program);
  ASSERT_TRUE(faults.empty()) << faults.front().message;
  EXPECT_EQ(runExpanded(program, {1, 1}), "");
  // The last pack is chunk 4, behind forward packs 0 and 1.
  EXPECT_EQ(
      linesOf(program, 0),
      (std::vector<std::string>{
          "swap in chunk 0 parameters",
          "forward chunk 0 mb 0 slot 0",
          "transfer send-activation chunk 0 mb 0",
          "transfer send-stash chunk 0 mb 0",
          "forward chunk 0 mb 1 slot 0",
          "transfer send-activation chunk 0 mb 1, recv-activation chunk 4 mb 0",
          "transfer send-stash chunk 0 mb 1",
          "swap in chunk 4 parameters",
          "forward chunk 4 mb 0 slot 0",
          "transfer recv-activation chunk 4 mb 1",
          "backward chunk 4 mb 0 slot 0",
          "transfer send-gradient chunk 4 mb 0",
          "forward chunk 4 mb 1 slot 0",
          "transfer recv-gradient chunk 2 mb 0",
          "backward chunk 4 mb 1 slot 0",
          "swap out chunk 4 gradients",
          "transfer send-gradient chunk 4 mb 1",
          "swap in chunk 2 parameters",
          "forward chunk 2 mb 0 slot 0",
          "transfer recv-gradient chunk 2 mb 1",
          "backward chunk 2 mb 0 slot 0",
          "forward chunk 2 mb 1 slot 0",
          "backward chunk 2 mb 1 slot 1",
          "swap out chunk 2 gradients"}));
  EXPECT_EQ(linesOf(program, 0, SchedulePart::StepEnd),
            (std::vector<std::string>{"sync-gradients chunk 4",
                                      "sync-gradients chunk 2", "norm",
                                      "update chunk 2", "update chunk 4"}));
}

/// Twice as many micro-batches backward as forward: stashes of a forward
/// micro-batch fill a slot at home, of which either backward one reads a half,
/// and the last forward pack's output comes to the last pack that way, too.
TEST(Packs, micro_batches_of_two_sizes_are_regrouped_at_home) {
  TaskProgram program = packs().build(
      packShape(2, 4, {0, 2}, {0, 1, 3}, /*justInTime=*/false, 2));
  std::vector<ScheduleFault> faults = faultsOf(program);
  ASSERT_TRUE(faults.empty()) << faults.front().message;
  EXPECT_EQ(program.chunks[3].slots, 2);
  EXPECT_EQ(program.chunks[4].slots, 2);
  auto only = [](std::vector<std::string> lines, llvm::StringRef word) {
    llvm::erase_if(lines, [&](const std::string &line) {
      return line.find(word) == std::string::npos;
    });
    return lines;
  };
  EXPECT_EQ(only(linesOf(program, 1), "stash"),
            (std::vector<std::string>{"transfer recv-stash chunk 3 mb 0",
                                      "transfer recv-stash chunk 3 mb 1",
                                      "transfer send-stash chunk 1 mb 0",
                                      "transfer send-stash chunk 1 mb 1"}));
  EXPECT_EQ(
      only(linesOf(program, 1), "activations"),
      (std::vector<std::string>{"swap in chunk 3 activations mb 0 slot 0",
                                "swap in chunk 3 activations mb 1 slot 0",
                                "swap in chunk 3 activations mb 2 slot 1",
                                "swap in chunk 3 activations mb 3 slot 1"}));
  // Evaluation stops at the last pack, which takes the same way.
  EXPECT_EQ(linesOf(program, 0, SchedulePart::Evaluate),
            (std::vector<std::string>{
                "swap in chunk 0 parameters", "forward chunk 0 mb 0 slot 0",
                "transfer send-activation chunk 0 mb 0",
                "forward chunk 0 mb 1 slot 0",
                "transfer send-activation chunk 0 mb 1",
                "transfer recv-stash chunk 4 mb 0",
                "swap in chunk 4 activations mb 0 slot 0",
                "swap in chunk 4 parameters", "forward chunk 4 mb 0 slot 0",
                "transfer recv-stash chunk 4 mb 1",
                "swap in chunk 4 activations mb 1 slot 0",
                "forward chunk 4 mb 1 slot 0",
                "swap in chunk 4 activations mb 2 slot 1",
                "forward chunk 4 mb 2 slot 0",
                "swap in chunk 4 activations mb 3 slot 1",
                "forward chunk 4 mb 3 slot 0"}));
  // The other way round a backward micro-batch waits for two forward ones.
  program = packs().build(
      packShape(2, 2, {0, 2}, {0, 1, 3}, /*justInTime=*/false, 4));
  EXPECT_TRUE(faultsOf(program).empty());
  std::vector<std::string> lines = linesOf(program, 0);
  auto at = [&](llvm::StringRef line) {
    auto it = llvm::find(lines, line);
    EXPECT_NE(it, lines.end()) << line.str();
    return it - lines.begin();
  };
  EXPECT_GT(at("forward chunk 4 mb 0 slot 0"),
            at("transfer recv-stash chunk 4 mb 1"));
  EXPECT_LT(at("forward chunk 4 mb 0 slot 0"),
            at("transfer recv-stash chunk 4 mb 3"));
}

/// Packs of random lengths on one to four devices, with a tied parameter and
/// all parameters of forward packs, at the end of the step and just in time.
TEST(Packs, all_shapes_are_sound) {
  std::mt19937_64 random(2022);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int trial = 0; trial < 400; ++trial) {
    int64_t layers = pick(2, 12);
    auto cuts = [&](int64_t end) {
      std::vector<int64_t> packs = {0};
      for (int64_t layer = 1; layer < end; ++layer)
        if (pick(0, 2) == 0)
          packs.push_back(layer);
      return packs;
    };
    std::vector<int64_t> backward = cuts(layers), forward;
    if (backward.size() > 1)
      forward = cuts(backward.back());
    int64_t microBatches = pick(1, 7), forwardMicroBatches = 0;
    if (!forward.empty() && pick(0, 1)) {
      forwardMicroBatches = microBatches * pick(1, 3);
      if (pick(0, 1))
        std::swap(forwardMicroBatches, microBatches);
    }
    ScheduleShape shape = packShape(pick(1, 4), microBatches, forward, backward,
                                    pick(0, 1), forwardMicroBatches);
    shape.updateOnDevice = shape.justInTime && pick(0, 1);
    if (llvm::Error refused = packs().check(shape)) {
      EXPECT_LT(shape.runCount(), shape.roles);
      llvm::consumeError(std::move(refused));
      continue;
    }
    std::vector<TieRoles> ties;
    int64_t first = shape.chunkOfRun(0), last = shape.allChunks() - 1;
    ties.push_back(
        {packs().home(shape, first), packs().home(shape, last), first, last});
    for (size_t chunk = 0; chunk < forward.size(); ++chunk) {
      TieRoles copy{packs().home(shape, first),
                    packs().home(shape, int64_t(chunk)), first, int64_t(chunk)};
      copy.forwardOnly = true;
      ties.push_back(copy);
    }
    TaskProgram program = packs().build(shape, ties);
    std::vector<ScheduleFault> faults = faultsOf(program);
    ASSERT_TRUE(faults.empty()) << faults.front().message;
    ASSERT_EQ(runExpanded(program, std::vector<int64_t>(shape.roles, 1)), "");
    // Groups of devices do the same in each of their ranks.
    if (trial % 8 == 0)
      ASSERT_EQ(runExpanded(program, std::vector<int64_t>(shape.roles, 3)), "");
    expectWaitingTold(program);
    // A pack's parameters come once. For an update on the device its optimizer
    // state does, and both go home; else gradients do.
    std::vector<int64_t> brought(program.chunks.size()),
        states(program.chunks.size()), updated(program.chunks.size()),
        gradients(program.chunks.size());
    for (const RoleProgram &role : program.roles) {
      for (const Task &task : role.part(SchedulePart::Steady)) {
        if (task.kind != TaskKind::Swap)
          continue;
        brought[task.chunk] += !task.out && (task.classes & SwapParameters);
        states[task.chunk] += !task.out && task.classes == SwapOptimizer;
        updated[task.chunk] +=
            task.out && task.classes == (SwapParameters | SwapOptimizer);
        gradients[task.chunk] += task.out && task.classes == SwapGradients;
      }
      EXPECT_LE(role.waitingPlaces,
                std::max(shape.microBatches, shape.forwardMicroBatches));
    }
    for (int64_t chunk = 0; chunk < shape.allChunks(); ++chunk) {
      bool here = shape.updateOnDevice && chunk > first && chunk < last;
      EXPECT_EQ(brought[chunk], 1);
      EXPECT_EQ(states[chunk], here);
      EXPECT_EQ(updated[chunk], here);
      EXPECT_EQ(gradients[chunk], !here && chunk >= first);
    }
  }
}

/// Gradients stay, optimizer state comes behind the message that others wait
/// for, and goes home with the parameters before the next pack comes. The last
/// pack has a parameter tied to the first one's: both are updated at home.
TEST(Packs, optimizer_state_comes_for_an_update_on_the_device) {
  ScheduleShape shape = packShape(1, 2, {0, 1}, {0, 1, 3}, /*justInTime=*/true);
  shape.updateOnDevice = true;
  TaskProgram program = packs().build(shape, {{0, 0, 2, 4}});
  EXPECT_TRUE(faultsOf(program).empty());
  std::vector<std::string> lines = linesOf(program, 0);
  auto from = llvm::find(lines, "swap in chunk 3 parameters");
  EXPECT_EQ(
      std::vector<std::string>(from, lines.end()),
      (std::vector<std::string>{
          "swap in chunk 3 parameters", "forward chunk 3 mb 0 slot 0",
          "backward chunk 3 mb 0 slot 0",
          "transfer send-gradient chunk 3 mb 0, recv-gradient chunk 2 mb 0",
          "swap in chunk 3 activations mb 1 slot 1",
          "forward chunk 3 mb 1 slot 0", "backward chunk 3 mb 1 slot 1",
          "transfer send-gradient chunk 3 mb 1, recv-gradient chunk 2 mb 1",
          "sync-gradients chunk 3", "swap in chunk 3 optimizer",
          "update chunk 3", "swap out chunk 3 parameters optimizer",
          "swap in chunk 2 parameters", "forward chunk 2 mb 0 slot 0",
          "backward chunk 2 mb 0 slot 0", "forward chunk 2 mb 1 slot 0",
          "backward chunk 2 mb 1 slot 1", "swap out chunk 2 gradients"}));
  EXPECT_EQ(linesOf(program, 0, SchedulePart::StepEnd),
            (std::vector<std::string>{"sync-gradients chunk 4",
                                      "sync-gradients chunk 2", "tie-reduce",
                                      "norm", "update chunk 2",
                                      "update chunk 4", "tie-broadcast"}));
}

/// What waits beside a pack, on a role that runs a forward pack, the last pack
/// and a backward pack in turn.
TEST(Packs, few_messages_wait_beside_a_pack) {
  TaskProgram program = packs().build(packShape(2, 4, {0, 2}, {0, 1, 3}));
  WaitingMessages waiting = waitingMessages(program, 0);
  std::vector<std::array<int64_t, 3>> uses;
  for (const WaitingMessages::Use &use : waiting.uses)
    uses.push_back({use.beside, use.chunk, use.places});
  // While forward pack 0 runs its four micro-batches three have come back for
  // the last pack, chunk 4. What chunk 3 sends chunk 2 meets the last of them.
  EXPECT_EQ(uses, (std::vector<std::array<int64_t, 3>>{
                      {0, 4, 3}, {2, 2, 4}, {4, 2, 3}, {4, 4, 3}}));
  EXPECT_EQ(waiting.together,
            (std::vector<std::pair<int64_t, int64_t>>{{2, 4}}));
}

struct PackFault {
  const char *name;
  std::function<void(TaskProgram &)> inject;
  ScheduleFaultKind kind;
  const char *message;
};

TEST(Packs, faults_are_found) {
  using Tasks = std::vector<Task>;
  auto steady = [](TaskProgram &program, int64_t role) -> Tasks & {
    return program.roles[role].part(SchedulePart::Steady);
  };
  auto find = findTask;
  const PackFault faults[] = {
      {"a stash that is not brought",
       [&](TaskProgram &program) {
         steady(program, 1)
             .erase(find(steady(program, 1),
                         "swap in chunk 3 activations mb 1 slot 1"));
       },
       ScheduleFaultKind::SlotConflict, "does not hold its activation"},
      {"a stash that is overwritten at home",
       [&](TaskProgram &program) {
         for (Task &task : steady(program, 1))
           for (TransferPart &part : task.parts)
             if (part.value == TransferValue::Stash)
               part.slot = 0;
       },
       ScheduleFaultKind::SlotConflict, "slot 0 at home still holds"},
      {"a stash of a micro-batch that another one is brought for",
       [&](TaskProgram &program) {
         find(steady(program, 1), "swap in chunk 3 activations mb 0 slot 0")
             ->slot = 1;
       },
       ScheduleFaultKind::Residency, "does not hold activations of"},
      {"a stash that is sent behind the next pass",
       [&](TaskProgram &program) {
         auto it = find(steady(program, 0), "transfer send-stash chunk 0 mb 0");
         std::iter_swap(it, it + 1);
       },
       ScheduleFaultKind::SlotConflict, "still holds micro-batch 0 of chunk 0"},
      {"a pack that comes over what the one before keeps",
       [&](TaskProgram &program) {
         auto it = find(steady(program, 0), "transfer send-stash chunk 0 mb 1");
         std::rotate(it, it + 1,
                     find(steady(program, 0), "swap in chunk 4 parameters") +
                         1);
       },
       ScheduleFaultKind::BufferConflict,
       "chunk 4 takes the place of what is kept of micro-batch 1 of chunk 0"},
      {"a pack that comes before the output of the one before is sent",
       [&](TaskProgram &program) {
         auto it =
             find(steady(program, 1), "transfer send-activation chunk 1 mb 1");
         std::rotate(it, it + 1,
                     find(steady(program, 1), "swap in chunk 3 parameters") +
                         1);
       },
       ScheduleFaultKind::BufferConflict,
       "chunk 3 takes the place of the output of micro-batch 1 of chunk 1"},
      {"a stash that is never sent",
       [&](TaskProgram &program) {
         steady(program, 0)
             .erase(
                 find(steady(program, 0), "transfer send-stash chunk 0 mb 1"));
       },
       ScheduleFaultKind::UnmatchedTransfer, "no send of the stash"},
      {"a stash that another chunk sends",
       [&](TaskProgram &program) { program.chunks[3].stashFrom = 1; },
       ScheduleFaultKind::WrongChunk, "has no such message"},
      {"a place that still waits",
       [&](TaskProgram &program) {
         for (Task &task : steady(program, 0))
           for (TransferPart &part : task.parts)
             if (!part.sends() && part.isGradient())
               part.slot = 0;
       },
       ScheduleFaultKind::BufferConflict, "waiting place 0 still holds"},
      {"a place with something else",
       [&](TaskProgram &program) {
         find(steady(program, 0), "backward chunk 2 mb 1 slot 1")->slot = 0;
       },
       ScheduleFaultKind::TaskOrder, "does not hold what came for"},
      {"more places than there are",
       [&](TaskProgram &program) { program.roles[0].waitingPlaces = 1; },
       ScheduleFaultKind::SlotConflict, "waiting place 1 does not exist"},
      {"a backward pass of a forward pack",
       [&](TaskProgram &program) {
         Tasks &tasks = steady(program, 0);
         Task task = *find(tasks, "forward chunk 0 mb 1 slot 0");
         task.kind = TaskKind::Backward;
         tasks.insert(find(tasks, "swap in chunk 4 parameters"), task);
       },
       ScheduleFaultKind::TaskOrder, "a backward task has no place here"},
      {"parameters that are not there",
       [&](TaskProgram &program) {
         steady(program, 0)
             .erase(find(steady(program, 0), "swap in chunk 2 parameters"));
       },
       ScheduleFaultKind::Residency,
       "parameters of chunk 2 are not on the device"},
      {"gradients that are overwritten by the next pack",
       [&](TaskProgram &program) {
         steady(program, 0)
             .erase(find(steady(program, 0), "swap out chunk 4 gradients"));
       },
       ScheduleFaultKind::Residency, "gradients of chunk 4 have not gone home"},
      {"a pack that evaluation leaves out",
       [&](TaskProgram &program) {
         Tasks &tasks = program.roles[0].part(SchedulePart::Evaluate);
         tasks.erase(find(tasks, "forward chunk 4 mb 1 slot 0"));
       },
       ScheduleFaultKind::MissingTask, "is never run forward"},
  };
  for (const PackFault &fault : faults) {
    SCOPED_TRACE(fault.name);
    TaskProgram program = packs().build(packShape(2, 2, {0, 2}, {0, 1, 3}));
    fault.inject(program);
    std::vector<ScheduleFault> found = faultsOf(program);
    EXPECT_TRUE(llvm::any_of(found, [&](const ScheduleFault &one) {
      return one.kind == fault.kind &&
             one.message.find(fault.message) != std::string::npos;
    })) << (found.empty() ? "nothing found" : found.front().message);
  }
}

TEST(Packs, faults_of_updates_on_the_device_are_found) {
  using Tasks = std::vector<Task>;
  auto find = findTask;
  /// Takes a task to where another one is, in front of it or behind it.
  auto move = [&](Tasks &tasks, llvm::StringRef name, llvm::StringRef other,
                  int behind = 0) {
    Task moved = *find(tasks, name);
    tasks.erase(find(tasks, name));
    tasks.insert(find(tasks, other) + behind, moved);
  };
  constexpr llvm::StringLiteral in = "swap in chunk 3 optimizer",
                                out = "swap out chunk 3 parameters optimizer",
                                update = "update chunk 3";
  const struct {
    const char *name;
    std::function<void(TaskProgram &, Tasks &)> inject;
    ScheduleFaultKind kind;
    const char *message;
  } faults[] = {
      {"optimizer state that does not come",
       [&](TaskProgram &, Tasks &tasks) { tasks.erase(find(tasks, in)); },
       ScheduleFaultKind::Residency,
       "optimizer state of chunk 3 is not on the device"},
      {"optimizer state that comes behind the update",
       [&](TaskProgram &, Tasks &tasks) { move(tasks, in, update, 1); },
       ScheduleFaultKind::Residency,
       "optimizer state of chunk 3 is not on the device"},
      {"parameters that do not go home",
       [&](TaskProgram &, Tasks &tasks) { tasks.erase(find(tasks, out)); },
       ScheduleFaultKind::Residency,
       "optimizer state of chunk 3 has not gone home"},
      {"optimizer state of the last pack that does not go home",
       [&](TaskProgram &, Tasks &tasks) {
         tasks.erase(find(tasks, "swap out chunk 2 parameters optimizer"));
       },
       ScheduleFaultKind::MissingTask,
       "optimizer state of chunk 2 never goes home"},
      {"parameters that go home before the update",
       [&](TaskProgram &, Tasks &tasks) { move(tasks, out, update); },
       ScheduleFaultKind::Residency,
       "parameters of chunk 3 are not updated on the device"},
      {"an update that the next pack comes before",
       [&](TaskProgram &, Tasks &tasks) {
         move(tasks, "swap in chunk 2 parameters", out);
       },
       ScheduleFaultKind::Residency,
       "optimizer state of chunk 3 has not gone home"},
      {"gradients that go home",
       [&](TaskProgram &, Tasks &tasks) {
         Task gradients = *find(tasks, in);
         gradients.classes = SwapGradients;
         gradients.out = true;
         tasks.insert(find(tasks, in), gradients);
       },
       ScheduleFaultKind::Residency,
       "parameters and gradients of chunk 3 are not on the device"},
      {"optimizer state over what is kept of a micro-batch",
       [&](TaskProgram &, Tasks &tasks) {
         move(tasks, in, "backward chunk 3 mb 1 slot 1");
       },
       ScheduleFaultKind::Residency,
       "what is kept of a micro-batch lies where optimizer state of chunk 3"},
      {"optimizer state over a gradient that is to be sent",
       [&](TaskProgram &, Tasks &tasks) {
         Task state = *find(tasks, in);
         tasks.erase(find(tasks, in));
         tasks.insert(find(tasks, "backward chunk 3 mb 1 slot 1") + 1, state);
       },
       ScheduleFaultKind::Residency,
       "what is to be sent lies where optimizer state of chunk 3 comes"},
      {"optimizer state over what comes to be kept",
       [&](TaskProgram &, Tasks &tasks) {
         move(tasks, in, "swap in chunk 3 activations mb 1 slot 1");
       },
       ScheduleFaultKind::Residency,
       "optimizer state of chunk 3 has not gone home"},
      {"an update in front of the sum over ranks",
       [&](TaskProgram &, Tasks &tasks) {
         move(tasks, "sync-gradients chunk 3", out);
       },
       ScheduleFaultKind::TaskOrder,
       "the gradients of chunk 3 have not been reduced"},
      {"a chunk that is updated at home",
       [&](TaskProgram &program, Tasks &) { program.updateOnDevice = false; },
       ScheduleFaultKind::Residency, "chunk 4 is updated at home"},
  };
  ScheduleShape shape = packShape(1, 2, {0, 1}, {0, 1, 3}, /*justInTime=*/true);
  shape.updateOnDevice = true;
  for (const auto &fault : faults) {
    SCOPED_TRACE(fault.name);
    TaskProgram program = packs().build(shape);
    ASSERT_TRUE(faultsOf(program).empty());
    fault.inject(program, program.roles[0].part(SchedulePart::Steady));
    expectFault(program, fault.kind, fault.message);
  }
}

TEST(Packs, faults_of_two_sizes_are_found) {
  using Tasks = std::vector<Task>;
  auto find = findTask;
  auto steady = [](TaskProgram &program, int64_t role) -> Tasks & {
    return program.roles[role].part(SchedulePart::Steady);
  };
  const struct {
    PackFault fault;
    int64_t microBatches, forward;
  } cases[] = {
      {{"half of a slot that is another group's",
        [&](TaskProgram &program) {
          find(steady(program, 1), "swap in chunk 3 activations mb 1 slot 0")
              ->slot = 1;
        },
        ScheduleFaultKind::Residency,
        "slot 1 at home does not hold activations of part 1 of what chunk 3"},
       4,
       2},
      {{"an output that is not sent home before the next",
        [&](TaskProgram &program) {
          auto it =
              find(steady(program, 1), "transfer send-stash chunk 1 mb 0");
          std::iter_swap(
              it, find(steady(program, 1), "forward chunk 1 mb 1 slot 0"));
        },
        ScheduleFaultKind::BufferConflict, "has not been sent yet"},
       4,
       2},
      {{"a slot that is read before all of it is there",
        [&](TaskProgram &program) {
          Tasks &tasks = steady(program, 0);
          auto swap = find(tasks, "swap in chunk 4 activations mb 0 slot 0");
          Task moved = *swap;
          tasks.erase(swap);
          tasks.insert(find(tasks, "transfer recv-stash chunk 4 mb 1"), moved);
        },
        ScheduleFaultKind::Residency,
        "does not hold activations of part 1 of what chunk 4"},
       2,
       4},
      {{"a slot that two groups fill",
        [&](TaskProgram &program) {
          for (Task &task : steady(program, 1))
            for (TransferPart &part : task.parts)
              part.slot = part.value == TransferValue::Stash ? 0 : part.slot;
        },
        ScheduleFaultKind::SlotConflict, "slot 0 at home still holds part 0"},
       2,
       4},
      {{"a micro-batch that forward does not have",
        [&](TaskProgram &program) {
          find(steady(program, 0), "forward chunk 0 mb 1 slot 0")->microBatch =
              2;
        },
        ScheduleFaultKind::TaskOrder,
        "micro-batch 2 does not exist, there are 2"},
       4,
       2},
      {{"an output that goes from device to device",
        [&](TaskProgram &program) {
          for (int64_t role : {0, 1})
            for (Task &task : steady(program, role))
              for (TransferPart &part : task.parts)
                if (part.value == TransferValue::Stash &&
                    std::max(part.chunk, part.peerChunk) == 4)
                  part.value = TransferValue::Activation;
        },
        ScheduleFaultKind::WrongChunk, "has no such message"},
       4,
       2},
  };
  for (const auto &[fault, microBatches, forward] : cases) {
    SCOPED_TRACE(fault.name);
    TaskProgram program = packs().build(packShape(
        2, microBatches, {0, 2}, {0, 1, 3}, /*justInTime=*/false, forward));
    ASSERT_TRUE(faultsOf(program).empty());
    fault.inject(program);
    expectFault(program, fault.kind, fault.message);
  }
}

/// One role whose ranks all run all packs: their gradients are summed at home
/// before anything is updated.
TEST(Packs, data_parallelism_sums_before_it_updates) {
  const Schedule &everywhere = scheduleNamed("harmony-dp");
  for (bool justInTime : {false, true}) {
    ScheduleShape shape = packShape(1, 3, {0, 2}, {0, 1, 3}, justInTime);
    TaskProgram program = everywhere.build(shape);
    EXPECT_EQ(program.schedule, &everywhere);
    EXPECT_TRUE(faultsOf(program).empty());
    EXPECT_EQ(runExpanded(program, {4}), "");
    // The same tasks as a pipeline of one device has.
    TaskProgram alone = packs().build(shape);
    for (size_t part = 0; part < std::size(alone.roles[0].parts); ++part)
      EXPECT_EQ(program.roles[0].parts[part], alone.roles[0].parts[part]);
    SchedulePart where =
        justInTime ? SchedulePart::Steady : SchedulePart::StepEnd;
    for (int64_t chunk : {2, 3, 4}) {
      auto isOf = [&](TaskKind kind) {
        return [=](const Task &task) {
          return task.kind == kind && int64_t(task.chunk) == chunk;
        };
      };
      auto faultsOf =
          [&](llvm::function_ref<void(std::vector<Task> &)> inject) {
            TaskProgram broken = program;
            inject(broken.roles[0].part(where));
            return verifySchedule(broken).size();
          };
      // An update that comes before the sum, twice, or not at all.
      EXPECT_GT(faultsOf([&](std::vector<Task> &tasks) {
                  std::iter_swap(
                      llvm::find_if(tasks, isOf(TaskKind::Update)),
                      llvm::find_if(tasks, isOf(TaskKind::SyncGradients)));
                }),
                0u);
      EXPECT_GT(faultsOf([&](std::vector<Task> &tasks) {
                  tasks.push_back(
                      *llvm::find_if(tasks, isOf(TaskKind::Update)));
                }),
                0u);
      EXPECT_GT(faultsOf([&](std::vector<Task> &tasks) {
                  llvm::erase_if(tasks, isOf(TaskKind::Update));
                }),
                0u);
      EXPECT_GT(faultsOf([&](std::vector<Task> &tasks) {
                  llvm::erase_if(tasks, isOf(TaskKind::SyncGradients));
                }),
                0u);
    }
  }
  EXPECT_NE(llvm::toString(everywhere.check(packShape(2, 2, {0}, {0, 1})))
                .find("expected one stage, found 2"),
            std::string::npos);
}

TEST(Packs, shapes_that_make_no_sense_are_refused) {
  auto reason = [](const ScheduleShape &shape) {
    return llvm::toString(packs().check(shape));
  };
  EXPECT_NE(reason({2, 2, 2}).find("'--space=harmony-pp' plans"),
            std::string::npos);
  ScheduleShape resident = packShape(2, 2, {0, 2}, {0, 1, 3});
  resident.slotsAtHome = false;
  EXPECT_NE(reason(resident).find("home on the host"), std::string::npos);
  EXPECT_NE(reason(packShape(2, 2, {0, 3}, {0, 1, 3})).find("in front of"),
            std::string::npos);
  EXPECT_NE(reason(packShape(2, 2, {}, {0, 1})).find("in front of"),
            std::string::npos);
  EXPECT_NE(reason(packShape(2, 2, {0, 2}, {0, 3, 3})).find("ascend"),
            std::string::npos);
  EXPECT_NE(reason(packShape(6, 2, {0, 2}, {0, 1, 3}))
                .find("a backward pack for each of 6 devices, found 3"),
            std::string::npos);
  ScheduleShape atTheEnd = packShape(2, 2, {0, 2}, {0, 1, 3});
  atTheEnd.updateOnDevice = true;
  EXPECT_NE(reason(atTheEnd).find("expected 'just-in-time'"),
            std::string::npos);
  ScheduleShape chunks{2, 2, 2, 1, /*justInTime=*/true};
  chunks.updateOnDevice = true;
  EXPECT_NE(llvm::toString(scheduleNamed("interleaved").check(chunks))
                .find("expected packs of layers ('harmony-pp' or 'harmony-dp') "
                      "for 'update-on-device'"),
            std::string::npos);
  EXPECT_EQ(reason(packShape(1, 2, {}, {0})), "");
  EXPECT_EQ(reason(packShape(2, 2, {0, 2}, {0, 1, 3}, false, 6)), "");
  EXPECT_EQ(reason(packShape(2, 6, {0, 2}, {0, 1, 3}, false, 2)), "");
  EXPECT_NE(reason(packShape(2, 6, {0, 2}, {0, 1, 3}, false, 4))
                .find("or a multiple, found 4 of forward and 6 of backward"),
            std::string::npos);
  EXPECT_NE(reason(packShape(1, 4, {}, {0}, false, 2))
                .find("as many micro-batches of either direction"),
            std::string::npos);
}

} // namespace
