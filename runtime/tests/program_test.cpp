//===- program_test.cpp - Loading programs, whole and damaged -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "files.h"
#include "grt/program_file.h"
#include "grt/session.h"
#include "program/reader.h"
#include "program_tables.h"
#include "test_program.h"
#include "tool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

using namespace grt;
using grt::test::tablesOf;

namespace {

std::string bigram(int ranks) {
  return std::string(TEST_PROGRAMS) + "/bigram" + std::to_string(ranks) +
         ".gvx";
}

void expectRefused(std::string_view bytes, const std::string &message) {
  std::shared_ptr<const Program> program;
  Status status = Program::loadMemory(bytes, "p.gvx", program);
  EXPECT_EQ(status.exitCode(), 2);
  EXPECT_NE(status.message().find(message), std::string::npos)
      << status.message();
  EXPECT_EQ(program, nullptr);
}

TEST(Program, LoadsAndTrains) {
  double loss[2][5];
  for (int ranks : {1, 2}) {
    std::shared_ptr<const Program> program;
    Status status = Program::loadFile(bigram(ranks), program);
    ASSERT_TRUE(status) << status.message();
    EXPECT_EQ(program->worldSize(), ranks);
    std::unique_ptr<Session> session;
    status = Session::create(program, SessionOptions(), session);
    ASSERT_TRUE(status) << status.message();
    std::vector<int32_t> tokens(32), labels(32);
    for (int i = 0; i < 32; ++i) {
      tokens[i] = i * 37 % 256;
      labels[i] = (i + 1) * 37 % 256;
    }
    ASSERT_TRUE(session->setBatch(tokens, labels));
    session->hyperparameters().learningRate = 0.1;
    for (double &value : loss[ranks - 1]) {
      StepResult result;
      status = session->step(result);
      ASSERT_TRUE(status) << status.message();
      value = result.loss;
    }
    for (const RankMemory &rank : session->memory()) {
      EXPECT_LE(rank.measuredPeakBytes, rank.plannedPeakBytes + 65536);
      EXPECT_GE(rank.measuredPeakBytes, rank.plannedPeakBytes * 95 / 100);
    }
  }
  EXPECT_NEAR(loss[0][0], std::log(256.0), 0.01);
  EXPECT_LT(loss[0][4], loss[0][0]);
  for (int i = 0; i < 5; ++i)
    EXPECT_NEAR(loss[0][i], loss[1][i], 1e-5 * loss[0][i]);
}

TEST(Program, WhatCannotRunIsDescribedAndIsAnError) {
  test::ModelPlan plan;
  plan.stages = {{{0, 1}, {0}}, {{2}, {1}}};
  const std::string path = test::folder() + "/unsound.gvx";
  for (bool sound : {true, false}) {
    // A stage sends its output before it has computed it.
    plan.changeTables = [&](gvx::Tables &tables) {
      const uint32_t first = tables.roles[0].parts[GRT_PART_STEADY].first;
      if (!sound)
        std::swap(tables.tasks[first], tables.tasks[first + 1]);
    };
    std::ofstream(path, std::ios::binary) << test::TestProgram(plan).file();
    const std::string error = "galvatron-run: error: program '" + path +
                              "': its schedule cannot run: ";
    for (const char *how : {"--describe", "--describe=whole",
                            "--describe=manifest", "--describe --json=-"}) {
      test::Result result = test::runTool(path + " " + how);
      EXPECT_EQ(result.exitCode, sound ? 0 : ExitInvalid) << how;
      EXPECT_EQ(test::has(result, error), !sound) << how << result.output;
      EXPECT_TRUE(test::has(result, "layer2")) << how << result.output;
    }
    const std::string file = test::folder() + "/described.json";
    EXPECT_EQ(test::runTool(path + " --describe --json=" + file).exitCode,
              sound ? 0 : ExitInvalid);
    EXPECT_NE(readAll(file).find("layer2"), std::string::npos);
    // A look at the machines is not worth it either.
    test::Result result = test::runTool(path + " --check");
    EXPECT_EQ(test::has(result, error), !sound) << result.output;
  }
}

TEST(Program, TheSamePathMayChangeBetweenLoads) {
  std::string path = testing::TempDir() + "/changing.gvx";
  std::shared_ptr<const Program> programs[2];
  for (int ranks : {1, 2}) {
    std::ofstream(path, std::ios::binary) << readAll(bigram(ranks));
    ASSERT_TRUE(Program::loadFile(path, programs[ranks - 1]));
  }
  EXPECT_EQ(programs[0]->worldSize(), 1);
  EXPECT_EQ(programs[1]->worldSize(), 2);
}

TEST(Program, AFileThatChangesLaterDoesNotMatter) {
  const std::string path = testing::TempDir() + "/shortened.gvx";
  std::ofstream(path, std::ios::binary) << readAll(bigram(1));
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadFile(path, program));
  std::ofstream(path, std::ios::binary) << "";
  EXPECT_EQ(program->file().functionCount(), 6u);
  EXPECT_EQ(program->file().kernel(0).kernel, uint32_t(GRT_KERNEL_EMBEDDING));
}

TEST(Program, TruncationAtAnyLengthIsAnError) {
  std::string whole = readAll(bigram(1));
  const std::string bytes = std::to_string(whole.size());
  for (size_t length = 0; length < whole.size(); length += 211)
    expectRefused(std::string_view(whole).substr(0, length), "is damaged: ");
  expectRefused(std::string_view(whole).substr(0, whole.size() - 1),
                "is damaged: expected " + bytes + " bytes, found ");
  expectRefused("", "expected at least 472 bytes, found 0");
  expectRefused(whole + "x", "is damaged: expected " + bytes + " bytes");
}

TEST(Program, DamagedBytesAreAnError) {
  const std::string whole = readAll(bigram(1));
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::string damaged = whole;
    damaged[64 + random() % (damaged.size() - 64)] ^= char(1 + random() % 255);
    expectRefused(damaged, "its SHA-256 differs from the one in its header");
  }
  for (size_t byte = 0; byte < 64; ++byte) {
    std::string damaged = whole;
    damaged[byte] ^= 1;
    expectRefused(damaged, "");
  }
}

TEST(Program, WhatIsNoProgramIsAnError) {
  std::shared_ptr<const Program> program;
  EXPECT_NE(Program::loadFile("/nowhere/p.gvx", program)
                .message()
                .find("cannot open program '/nowhere/p.gvx': No such file"),
            std::string::npos);
  EXPECT_EQ(Program::loadFile(testing::TempDir(), program).exitCode(), 2);
  const std::string no = "'p.gvx' is not a program: expected a file that "
                         "galvatron-compile makes";
  expectRefused("some text", no);
  expectRefused(readAll(bigram(1)).substr(1), no);
}

TEST(Program, ProgramsOfOtherVersionsAreCompiledAgain) {
  // Programs up to ABI 5 were shared objects.
  expectRefused("\177ELF and what followed",
                "program 'p.gvx' is native code, as programs of ABI 5 and "
                "before were; this runtime reads version 10: compile again");
  std::string other = readAll(bigram(1));
  // Programs up to version 6 had no commands: the runtime made them of tasks.
  other[offsetof(gvx::Header, version)] = 6;
  expectRefused(other, "program 'p.gvx' has version 6, this runtime reads "
                       "version 10: compile again");
}

TEST(Program, TheTableIsChecked) {
  const gvx::Tables good = tablesOf(readAll(bigram(1)));
  ASSERT_EQ(good.file(), readAll(bigram(1)));
  auto refused = [&](auto change, const std::string &message) {
    gvx::Tables tables = good;
    change(tables);
    expectRefused(tables.file(), message);
  };
  refused([](gvx::Tables &t) { t.manifest.resize(100); }, "not valid JSON");
  refused(
      [](gvx::Tables &t) {
        t.functions.push_back({{uint32_t(t.calls.size()), 0}});
      },
      "program has 7 functions, its manifest names 6");
  auto endOf = [](const gvx::Tables &t) {
    gvx::Role role{};
    for (gvx::Range &part : role.parts)
      part.first = uint32_t(t.tasks.size());
    role.procedures.first = uint32_t(t.procedures.size());
    role.places.first = uint32_t(t.places.size());
    return role;
  };
  refused([&](gvx::Tables &t) { t.roles.push_back(endOf(t)); },
          "program has 2 roles");
  grt_task task{};
  std::vector<grt_transfer_part> parts;
  grt_part place = GRT_PART_STEADY;
  auto withTask = [&](gvx::Tables &t) {
    t.tasks = {task};
    t.transfers = parts;
    gvx::Role &role = t.roles[0];
    std::ranges::fill(role.parts, gvx::Range{});
    role.transfers = {};
    role.parts[place].count = 1;
    for (int part = place + 1; part < GRT_PART_COUNT; ++part)
      role.parts[part].first = 1;
    role.transfers.count = uint32_t(parts.size());
  };
  task.kind = 99;
  refused(withTask, "task 0: unknown kind 99");
  auto with = [&](auto change) {
    task = {};
    change(task);
    return withTask;
  };
  refused(with([](grt_task &t) { t.slot = 3; }), "slot 3 of 1");
  refused(with([](grt_task &t) { t.chunk = 1; }),
          "task 0: chunk 1 is not the role's");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_BACKWARD;
            t.micro_batch = 2;
          }),
          "micro-batch out of range, expected less than 2");
  refused(with([](grt_task &t) { t.flags = 1; }),
          "expected flags 0, found 1; this runtime does not know its meaning");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_BACKWARD;
            t.flags = 2;
          }),
          "expected flags 0, found 2");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_BACKWARD_INPUT;
            t.flags = 1;
          }),
          "expected flags 0, found 1");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_BACKWARD_WEIGHT;
            t.slot = 3;
          }),
          "slot 3 of 1");
  refused(with([](grt_task &t) { t.kind = GRT_TASK_SWAP + 1; }),
          "unknown kind 11");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_SWAP;
            t.classes = GRT_SWAP_PARAMETERS;
            t.tiers = GRT_TO_DEVICE;
          }),
          "states that have their home on the host");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_SWAP;
            t.classes = GRT_SWAP_OPTIMIZER;
            t.tiers = GRT_TO_HOST;
          }),
          "expected 1 to 4, 8 in or 9 out");
  refused(with([](grt_task &t) { t.generation = 1; }),
          "expected generation 0, found 1");
  refused(with([](grt_task &t) { t.tiers = 3; }), "expected tiers 0, found 3");
  refused(with([](grt_task &t) { t.count = 1; }),
          "expected count of parts 0, found 1");
  // Streams and events of swaps are for states that are offloaded to the host
  // only.
  refused(with([](grt_task &t) { t.stream = GRT_STREAM_IN; }),
          "expected stream 0, found 4");
  refused(with([](grt_task &t) { t.records = 1; }),
          "expected recorded event 0, found 1");
  refused(with([](grt_task &t) { t.waits[2] = 3; }),
          "expected event to wait for 0, found 3");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_NORM;
            t.micro_batch = 1;
          }),
          "expected micro-batch 0, found 1");
  refused(with([](grt_task &t) { t.kind = GRT_TASK_TRANSFER; }),
          "expected 1 to 4 parts of a transfer, found 0");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_TRANSFER;
            t.count = 1;
          }),
          "parts from 0 on of 0");
  task = {};
  parts.resize(1);
  refused(withTask, "part 0 of transfers: chunk 0 does not send an activation");
  parts[0].value = 2;
  refused(withTask, "unknown direction 0 or value 2");
  parts[0] = {};
  parts[0].chunk = 5;
  refused(withTask, "part 0 of transfers: chunk 5 is not the role's");
  parts.clear();
  place = GRT_PART_PROLOGUE;
  refused(withTask, "prologue: expected no tasks");
}

TEST(Program, AMissingBackendIsAnError) {
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadFile(bigram(1), program));
  SessionOptions options;
  options.backendFolder = "/nowhere";
  std::unique_ptr<Session> session;
  Status status = Session::create(program, options, session);
  EXPECT_EQ(status.exitCode(), 1);
  EXPECT_EQ(status.message().find("cannot load backend 'cpu': "), 0u)
      << status.message();
}

} // namespace
