//===- commands_test.cpp - The commands of tasks --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "changed_manifests.h"
#include "core/commands.h"
#include "program/reader.h"
#include "test_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

using namespace grt;
using namespace grt::test;

namespace {

/// A program's manifest with the procedures of each of its roles, as rank 0 of
/// the role has them.
struct Lowered {
  explicit Lowered(const std::string &bytes)
      : file(bytes), program(file, "p"),
        manifest(parseManifest(program.manifest())) {
    for (size_t r = 0; r < manifest.roles.size(); ++r) {
      const Role &role = manifest.roles[r];
      std::vector<LayerState> &states = layers.emplace_back(role.layers.size());
      Group *const alone[3] = {};
      for (size_t i = 0; i < states.size(); ++i) {
        states[i].outputBytes = outputBytes(manifest, role, i);
        states[i].places = stepPlaces(manifest, role, i, 0, side, side, alone);
      }
      roles.emplace_back(manifest, role, states, program.schedules()[r]);
    }
  }

  const std::string file;
  const ProgramFile program;
  const Manifest manifest;
  const Side side;
  std::vector<std::vector<LayerState>> layers;
  std::vector<Procedures> roles;
};

std::string compiledProgram(const char *name) {
  std::ifstream file(std::string(PROGRAMS) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<CommandKind> kindsOf(const Procedure &procedure) {
  std::vector<CommandKind> kinds;
  for (const Command &command : procedure)
    kinds.push_back(command.kind);
  return kinds;
}

TEST(Commands, AreTheStepsOfAPass) {
  const Lowered toy{TestProgram(ModelPlan()).file()};
  using enum CommandKind;
  // Three layers in a slot: each writes the next one's input.
  EXPECT_EQ(kindsOf(toy.roles[0].of(0, GRT_TASK_FORWARD)),
            (std::vector<CommandKind>{UseSlot, Begin, Call, Begin, Call, Call,
                                      Used}));
  EXPECT_EQ(kindsOf(toy.roles[0].of(0, GRT_TASK_SYNC_GRADIENTS)),
            (std::vector<CommandKind>{AwaitHome, Sum, Sum, Sum}));
  EXPECT_EQ(kindsOf(toy.roles[0].of(0, GRT_TASK_UPDATE)),
            (std::vector<CommandKind>{AwaitHome, Call, Call, Call}));
  EXPECT_EQ(kindsOf(toy.roles[0].norm()),
            (std::vector<CommandKind>{Call, Call, Call}));
}

/// Gradients that are late need the parameters from before the update.
TEST(Commands, LateUpdatesKeepParameters) {
  const Lowered late{compiledProgram("late")};
  const Role &role = late.manifest.roles[0];
  const Procedure &update = late.roles[0].of(0, GRT_TASK_UPDATE);
  size_t copies = 0;
  for (const Command &command : update)
    if (command.kind == CommandKind::Copy) {
      ++copies;
      EXPECT_EQ(command.to.offset - command.from.offset,
                late.manifest.versionStride(role));
    }
  EXPECT_EQ(copies, role.chunks[0].layerCount);
}

/// A batch of more micro-batches has more tasks, and the same commands.
TEST(Commands, DoNotGrowWithTheBatch) {
  ModelPlan few, many;
  many.microBatches = 8;
  const Lowered a{TestProgram(few).file()}, b{TestProgram(many).file()};
  for (uint8_t kind : {GRT_TASK_FORWARD, GRT_TASK_BACKWARD})
    EXPECT_EQ(kindsOf(a.roles[0].of(0, kind)), kindsOf(b.roles[0].of(0, kind)));
}

/// A function that runs backward has temporaries where the next layer's input
/// lies: one that writes an output there is refused.
TEST(Commands, OutputsAreOfForwardFunctions) {
  const Lowered toy{TestProgram(ModelPlan()).file()};
  alignas(64) char arena[1];
  const LayerBindings rows(toy.manifest, toy.manifest.roles[0], 0, 0,
                           toy.layers[0][0].places, arena);
  EXPECT_GT(rows[LayerPhase::Forward][GRT_REGION_OUTPUT].bytes, 0u);
  for (LayerPhase phase : {LayerPhase::Recompute, LayerPhase::Backward,
                           LayerPhase::Weight, LayerPhase::Update})
    EXPECT_EQ(rows[phase][GRT_REGION_OUTPUT].bytes, 0u);
}

/// Whatever a task's slot, place and part: commands stay inside the arena and
/// the home, and what begins in a pass is a place of its role.
TEST(Commands, StayInsideTheirMemory) {
  for (const char *name : {"toy", "late", "packs", "streams"}) {
    const Lowered lowered{compiledProgram(name)};
    for (size_t r = 0; r < lowered.roles.size(); ++r) {
      const Role &role = lowered.manifest.roles[r];
      auto check = [&](const Procedure &procedure, const TaskFrame &frame) {
        for (const Command &command : procedure)
          for (const MovingPlace *place : {&command.from, &command.to}) {
            const bool isHome =
                (command.kind == CommandKind::SwapIn &&
                 place == &command.from) ||
                (command.kind == CommandKind::SwapOut && place == &command.to);
            const Extent at = place->at(frame);
            EXPECT_LE(at.offset + at.bytes,
                      isHome ? role.homeBytes : role.addressBytes())
                << name << ", role " << r;
          }
      };
      for (size_t c = 0; c < role.chunks.size(); ++c)
        for (const grt_task_list &list : lowered.program.schedules()[r].parts)
          for (const grt_task &task : std::span(list.tasks, list.count)) {
            if (task.chunk != role.chunks[c].number)
              continue;
            TaskFrame frame;
            frame.place = task.slot;
            frame.slot = role.slotsInArena() > 1
                             ? role.chunks[c].firstSlot + task.slot
                             : 0;
            check(task.kind == GRT_TASK_SWAP
                      ? lowered.roles[r].swap(c, task)
                      : lowered.roles[r].of(c, task.kind),
                  frame);
          }
    }
  }
}

} // namespace
