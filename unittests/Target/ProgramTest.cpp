//===- ProgramTest.cpp - Emitted programs load and run --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestModules.h"

#include "galvatron/Target/Program.h"
#include "grt/session.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

#include <chrono>
#include <cmath>

using namespace galvatron::testing;

namespace {

class ProgramTest : public ModuleTest {
protected:
  void SetUp() override {
    llvm::SmallString<128> folder;
    ASSERT_FALSE(
        llvm::sys::fs::createUniqueDirectory("galvatron-target", folder));
    directory = std::string(folder);
    path = directory + "/program.gvx";
  }
  void TearDown() override { llvm::sys::fs::remove_directories(directory); }

  /// Emits the model's program to `path`.
  bool emit(const Bigram &model) {
    auto module = parse(moduleText(model));
    return module && runPasses(*module) &&
           mlir::succeeded(mlir::galvatron::emitProgram(*module, path));
  }

  /// Losses of some steps of the program at `path`.
  std::vector<double> train(const Bigram &model, int steps) {
    std::shared_ptr<const grt::Program> program;
    grt::Status status = grt::Program::loadFile(path, program);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok())
      return {};
    grt::SessionOptions options;
    options.seed = 7;
    options.poison = true;
    options.backendFolder = BACKEND_FOLDER;
    std::unique_ptr<grt::Session> session;
    status = grt::Session::create(program, options, session);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok())
      return {};
    session->hyperparameters().learningRate = 0.05;
    std::vector<int32_t> tokens(model.batch * model.seqLen), labels;
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = int32_t(i * i * 7 % model.vocab);
    for (int32_t token : tokens)
      labels.push_back((token * 5 + 3) % model.vocab);
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i) {
      grt::StepResult result;
      status = session->setBatch(tokens, labels);
      EXPECT_TRUE(status.ok()) << status.message();
      status = session->step(result);
      EXPECT_TRUE(status.ok()) << status.message();
      losses.push_back(result.loss);
    }
    for (const grt::RankMemory &memory : session->memory())
      EXPECT_LE(memory.measuredPeakBytes, memory.plannedPeakBytes)
          << "rank " << memory.rank;
    return losses;
  }

  std::string directory, path;
};

TEST_F(ProgramTest, one_rank_learns) {
  Bigram model;
  ASSERT_TRUE(emit(model));
  std::vector<double> losses = train(model, 5);
  ASSERT_EQ(losses.size(), 5u);
  EXPECT_NEAR(losses[0], std::log(32.0), 0.05);
  EXPECT_LT(losses[4], losses[0] - 0.2);
}

TEST_F(ProgramTest, two_ranks_agree_with_one) {
  Bigram model;
  ASSERT_TRUE(emit(model));
  std::vector<double> expected = train(model, 4);
  ASSERT_EQ(expected.size(), 4u);

  Bigram dp = model;
  dp.stages = {{0, 1}};
  dp.embedLevels = dp.lossLevels = "dp = 2";
  dp.embedShards = dp.lossShards = 2;
  Bigram pp = model;
  pp.stages = {{0}, {1}};
  Bigram gpipe = pp;
  gpipe.schedule = "gpipe";
  Bigram both = dp;
  both.stages = {{0, 1}, {2, 3}};
  // A tp level of the loss keeps all samples on both ranks here: the logits are
  // not sharded, but the cut has to gather them.
  Bigram reshard = dp;
  reshard.lossLevels = "tp = 2";
  reshard.lossShards = 1;
  for (const Bigram &plan : {dp, pp, gpipe, both, reshard}) {
    SCOPED_TRACE(moduleText(plan));
    ASSERT_TRUE(emit(plan));
    std::vector<double> losses = train(plan, 4);
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], 1e-5 * expected[i]) << "step " << i;
  }
}

TEST_F(ProgramTest, holds_functions_tasks_and_manifest) {
  Bigram model;
  model.stages = {{0, 1}};
  model.embedLevels = model.lossLevels = "dp = 2";
  model.embedShards = model.lossShards = 2;
  ASSERT_TRUE(emit(model));
  std::shared_ptr<const grt::Program> program;
  grt::Status status = grt::Program::loadFile(path, program);
  ASSERT_TRUE(status.ok()) << status.message();
  auto manifest = llvm::json::parse(program->manifestText());
  ASSERT_TRUE(bool(manifest)) << llvm::toString(manifest.takeError());
  EXPECT_EQ(manifest->getAsObject()->getInteger("world"), 2);
  const std::string text = program->describe(/*asJson=*/false, /*whole=*/true);
  for (const char *expected :
       {"\nembed.forward:\n  embedding 'embedding': tokens data[0, 64) i32, ",
        "; rows 16, width 32, localRows 32, sharded 0\n",
        "\nstage 0, steady:\n  forward chunk 0, micro-batch 0, slot 0\n",
        "\nstage 0, step end:\n  sync-gradients chunk 0\n"})
    EXPECT_NE(text.find(expected), std::string::npos) << expected << "\n"
                                                      << text;
}

TEST_F(ProgramTest, equal_modules_give_equal_bytes) {
  Bigram model;
  auto read = [&] {
    EXPECT_TRUE(emit(model));
    auto buffer = llvm::MemoryBuffer::getFile(path);
    return buffer ? (*buffer)->getBuffer().str() : "";
  };
  std::string first = read();
  EXPECT_EQ(first, read());
}

TEST_F(ProgramTest, damaged_program_is_refused) {
  Bigram model;
  ASSERT_TRUE(emit(model));
  auto buffer = llvm::MemoryBuffer::getFile(path);
  ASSERT_TRUE(bool(buffer));
  std::string bytes = (*buffer)->getBuffer().str();
  std::shared_ptr<const grt::Program> program;
  std::string flipped = bytes;
  flipped[flipped.size() / 2] ^= 1;
  EXPECT_EQ(grt::Program::loadMemory(flipped, "flipped", program).exitCode(),
            2);
  EXPECT_EQ(grt::Program::loadMemory(bytes.substr(0, bytes.size() / 2), "cut",
                                     program)
                .exitCode(),
            2);
  EXPECT_TRUE(grt::Program::loadMemory(bytes, "whole", program).ok());
}

TEST_F(ProgramTest, nothing_is_left_beside_a_program_that_fails) {
  Bigram model;
  auto module = parse(moduleText(model));
  ASSERT_TRUE(module && runPasses(*module));
  module->walk([](mlir::grt::ScheduleOp op) { op.erase(); });
  mlir::ScopedDiagnosticHandler silent(
      &context, [](mlir::Diagnostic &) { return mlir::success(); });
  EXPECT_TRUE(mlir::failed(mlir::galvatron::emitProgram(*module, path)));
  std::error_code error;
  llvm::sys::fs::directory_iterator it(directory, error), end;
  EXPECT_TRUE(it == end) << it->path();
}

TEST_F(ProgramTest, small_programs_are_emitted_quickly) {
  Bigram model;
  auto module = parse(moduleText(model));
  ASSERT_TRUE(module && runPasses(*module));
  ASSERT_TRUE(mlir::succeeded(mlir::galvatron::emitProgram(*module, path)));
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(mlir::succeeded(mlir::galvatron::emitProgram(*module, path)));
  double ms = std::chrono::duration<double, std::milli>(
                  std::chrono::steady_clock::now() - begin)
                  .count() /
              5;
  RecordProperty("emit-ms", std::to_string(ms));
  llvm::outs() << "emit: " << llvm::formatv("{0:f1}", ms) << " ms\n";
  EXPECT_LT(ms, 1000);
}

} // namespace
