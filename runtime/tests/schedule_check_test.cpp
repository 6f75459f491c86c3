//===- schedule_check_test.cpp - Schedules that no session runs -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The compiler proves what it emits. Here one row of a program is changed, so
// that ranks would wait for ever, or read what is not there.
//
//===----------------------------------------------------------------------===//

#include "core/schedule_check.h"
#include "program/reader.h"
#include "reference_backend.h"
#include "test_program.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <utility>

using namespace grt;
using namespace grt::test;

namespace {

/// Two stages, three micro-batches.
ModelPlan twoStages(bool oneForwardOneBackward) {
  ModelPlan plan;
  plan.microBatches = 3;
  plan.batch = 6;
  plan.oneForwardOneBackward = oneForwardOneBackward;
  plan.stages = {{{0, 1}, {0}}, {{2}, {1}}};
  return plan;
}

/// Returns the message with which a session of a changed program is refused; ""
/// if it is made.
std::string refusal(ModelPlan plan,
                    const std::function<void(gvx::Tables &)> &change) {
  plan.changeTables = change;
  const TestProgram code(plan);
  std::shared_ptr<const Program> program;
  Status status = Program::loadMemory(code.file(), "p", program);
  if (status) {
    SessionOptions options;
    options.backend = referenceBackend();
    std::unique_ptr<Session> session;
    status = Session::create(program, options, session);
  }
  EXPECT_EQ(status.exitCode(), status ? 0 : 2);
  return status.message();
}

/// The rows of a role's part in the table of tasks.
gvx::Range rowsOf(const gvx::Tables &tables, size_t role, grt_part part) {
  return tables.roles[role].parts[part];
}

void erase(gvx::Tables &tables, uint32_t row) {
  tables.tasks.erase(tables.tasks.begin() + row);
  for (gvx::Role &role : tables.roles)
    for (gvx::Range &part : role.parts) {
      if (part.first > row)
        --part.first;
      else if (row < part.first + part.count)
        --part.count;
    }
}

const std::string cannotRun = "program 'p': its schedule cannot run: ";

TEST(ScheduleCheck, SoundProgramsAreProven) {
  std::vector<ModelPlan> plans = {ModelPlan(), twoStages(false),
                                  twoStages(true)};
  // Chunks of two stages take turns.
  plans.push_back(twoStages(false));
  plans.back().stages = {{{0, 2}, {0}}, {{1}, {1}}};
  plans.push_back(twoStages(true));
  plans.back().tied = true;
  for (const ModelPlan &plan : plans)
    EXPECT_EQ(refusal(plan, nullptr), "");
}

TEST(ScheduleCheck, WaitsInACircleAreRefused) {
  // Both stages want to receive before they send.
  EXPECT_EQ(
      refusal(twoStages(true),
              [](gvx::Tables &tables) {
                for (size_t role : {0, 1}) {
                  const gvx::Range steady =
                      rowsOf(tables, role, GRT_PART_STEADY);
                  for (uint32_t i = 0; i < steady.count; ++i) {
                    const uint32_t row = steady.first + i;
                    grt_task &task = tables.tasks[row];
                    if (task.kind != GRT_TASK_TRANSFER || task.count != 2)
                      continue;
                    // The received one first, the sent one in a task behind it.
                    grt_task sent = task;
                    sent.count = task.count = 1;
                    ++task.first;
                    tables.tasks.insert(tables.tasks.begin() + row + 1, sent);
                    for (gvx::Role &each : tables.roles)
                      for (gvx::Range &part : each.parts) {
                        part.first += part.first > row;
                        part.count +=
                            part.first <= row && row < part.first + part.count;
                      }
                    break;
                  }
                }
              }),
      cannotRun +
          "role 0 steady task 3 'transfer recv-gradient mb 0': deadlock: waits "
          "for role 1 steady task 4 'transfer send-gradient mb 0', but role 1 "
          "is at role 1 steady task 3 'transfer recv-activation mb 1', which "
          "waits for role 0 steady task 4 'transfer send-activation mb 1', but "
          "role 0 is at role 0 steady task 3 'transfer recv-gradient mb 0'");
}

TEST(ScheduleCheck, SlotsInUseAreNotFilled) {
  EXPECT_EQ(refusal(twoStages(true),
                    [](gvx::Tables &tables) {
                      const gvx::Range steady =
                          rowsOf(tables, 0, GRT_PART_STEADY);
                      grt_task &second = tables.tasks[steady.first + 2];
                      ASSERT_EQ(second.kind, GRT_TASK_FORWARD);
                      second.slot = 0;
                    }),
            cannotRun + "role 0 steady task 2 'forward mb 1 slot 0': slot 0 "
                        "still holds micro-batch 0 (2 more)");
}

/// Every task of a step is needed, and in its place: without one, or with
/// another micro-batch, no program runs.
TEST(ScheduleCheck, NoTaskMayLackOrNameAnotherMicroBatch) {
  for (bool alternates : {false, true}) {
    const ModelPlan plan = twoStages(alternates);
    size_t rows = 0;
    EXPECT_EQ(refusal(plan, [&](gvx::Tables &all) { rows = all.tasks.size(); }),
              "");
    for (uint32_t row = 0; row < rows; ++row) {
      grt_task task{};
      std::string found = refusal(plan, [&](gvx::Tables &tables) {
        task = tables.tasks[row];
        erase(tables, row);
      });
      // The program has no ties, so tasks of ties are not needed.
      const bool isNeeded = task.kind != GRT_TASK_TIE_REDUCE &&
                            task.kind != GRT_TASK_TIE_BROADCAST;
      EXPECT_EQ(found.starts_with(cannotRun), isNeeded)
          << "without row " << row << ": " << found;
      const bool computes =
          task.kind == GRT_TASK_FORWARD || task.kind == GRT_TASK_BACKWARD;
      if (!computes)
        continue;
      found = refusal(plan, [&](gvx::Tables &tables) {
        uint32_t &microBatch = tables.tasks[row].micro_batch;
        microBatch = (microBatch + 1) % 3;
      });
      EXPECT_TRUE(found.starts_with(cannotRun)) << "row " << row << found;
    }
    // Messages are of what both ends mean.
    size_t messages = 0;
    refusal(plan, [&](gvx::Tables &all) { messages = all.transfers.size(); });
    for (size_t message = 0; message < messages; ++message) {
      const std::string found = refusal(plan, [&](gvx::Tables &tables) {
        uint32_t &microBatch = tables.transfers[message].micro_batch;
        microBatch = (microBatch + 1) % 3;
      });
      EXPECT_TRUE(found.starts_with(cannotRun))
          << "message " << message << found;
    }
  }
}

TEST(ScheduleCheck, AManifestAloneTakesNoTime) {
  ModelPlan plan;
  plan.microBatches = plan.batch;
  EXPECT_EQ(refusal(plan,
                    [](gvx::Tables &tables) {
                      tables.tasks.resize(3);
                      tables.roles[0] = {};
                      for (gvx::Range &part : tables.roles[0].parts)
                        part.first = 3;
                      tables.roles[0].parts[GRT_PART_PROLOGUE] = {0, 0};
                      tables.roles[0].parts[GRT_PART_STEADY] = {0, 3};
                    }),
            cannotRun + "there are 8 micro-batches, and 3 tasks");
}

/// Rows that say anything are refused, or are none that the proof stumbles
/// over.
TEST(ScheduleCheck, AnyRowIsJudged) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    ModelPlan plan = twoStages(round % 2);
    if (round % 3 == 0)
      plan.stages = {{{0, 2}, {0}}, {{1}, {1}}};
    plan.oneForwardOneBackward = round % 2 && round % 3;
    refusal(plan, [&](gvx::Tables &tables) {
      grt_task &task = tables.tasks[random() % tables.tasks.size()];
      task.kind = uint8_t(random() % (GRT_TASK_SWAP + 1));
      task.chunk = uint16_t(random() % 3);
      task.slot = uint16_t(random() % 4);
      task.micro_batch = uint32_t(random() % 4);
      task.flags = uint8_t(random() % 2);
      if (task.kind == GRT_TASK_TRANSFER) {
        task = {};
        task.kind = GRT_TASK_TRANSFER;
        task.count = uint16_t(1 + random() % 4);
        task.first = uint32_t(random() % 8);
      }
      grt_transfer_part &part =
          tables.transfers[random() % tables.transfers.size()];
      part.peer_chunk = uint16_t(random() % 4);
      part.micro_batch = uint32_t(random() % 4);
    });
  }
}

} // namespace
