//===- checkpoint_training.h - Sessions that write checkpoints ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_CHECKPOINT_TRAINING_H
#define GRT_TESTS_CHECKPOINT_TRAINING_H

#include "grt/checkpoint.h"
#include "reference_backend.h"
#include "test_program.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

namespace grt::test {

/// An empty place; in memory where there is such a file system, because every
/// checkpoint waits for the disk.
inline std::string freshFolder(const std::string &name) {
  std::string shared = "/dev/shm/";
  std::string path =
      (access(shared.c_str(), W_OK) == 0 ? shared : testing::TempDir()) +
      "grt-checkpoint-test-" + std::to_string(getpid()) + "/" + name;
  std::filesystem::remove_all(path);
  return path;
}

inline void writeAll(const std::string &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Seconds between beats in the folders that Training opens. A run that finds a
/// mark which a power loss has emptied waits three beats for the run that may
/// have left it.
inline double beatSeconds = 5;
struct ShortBeats {
  ShortBeats() { beatSeconds = 0.05; }
  ~ShortBeats() { beatSeconds = 5; }
};

/// A program of a plan, and a session of it.
struct Training {
  explicit Training(const ModelPlan &plan, uint64_t seed = 17,
                    double timeout = 0, uint64_t hostMemory = 0)
      : plan(plan), code(plan) {
    std::shared_ptr<const Program> program;
    Status status = Program::loadMemory(code.file(), "test", program);
    EXPECT_TRUE(status) << status.message();
    SessionOptions options;
    options.seed = seed;
    options.timeoutSeconds = timeout;
    options.checkpointCopies = true;
    options.hostMemoryBytes = hostMemory;
    options.backend = referenceBackend();
    options.poison = true;
    status = Session::create(program, options, session);
    EXPECT_TRUE(status) << status.message();
    session->hyperparameters().learningRate = 0.05;
    session->hyperparameters().clipNorm = 0.1;
  }

  double step() {
    uint64_t number = session->stepsDone() + 1;
    std::mt19937 random{unsigned(number) * 31 + 5};
    std::vector<int32_t> tokens, labels;
    for (int64_t i = 0; i < plan.batch * plan.seqLen; ++i) {
      tokens.push_back(int32_t(random() % uint64_t(plan.vocab)));
      bool gap = random() % 7 == 0;
      labels.push_back(gap ? -1 : int32_t(random() % uint64_t(plan.vocab)));
    }
    EXPECT_TRUE(session->setBatch(tokens, labels));
    StepResult result;
    Status status = session->step(result);
    EXPECT_TRUE(status) << status.message();
    return result.loss;
  }

  Status write(const std::string &path, uint64_t keep = 2,
               uint64_t shardBytes = 1 << 20) {
    CheckpointOptions options;
    options.keep = keep;
    options.shardBytes = shardBytes;
    options.beatSeconds = beatSeconds;
    std::unique_ptr<CheckpointFolder> folder;
    Status status = CheckpointFolder::open(path, options, folder);
    TrainingState state;
    state.step = session->stepsDone();
    return status ? session->writeCheckpoint(*folder, state) : status;
  }

  /// Writes a checkpoint while `meanwhile` does further steps.
  Status writeBehind(const std::string &path,
                     const std::function<void()> &meanwhile, uint64_t keep = 2,
                     CheckpointEnd *end = nullptr) {
    CheckpointOptions options;
    options.keep = keep;
    options.shardBytes = 1 << 20;
    options.beatSeconds = beatSeconds;
    std::unique_ptr<CheckpointFolder> folder;
    Status status = CheckpointFolder::open(path, options, folder);
    TrainingState state;
    state.step = session->stepsDone();
    if (status)
      status = session->beginCheckpoint(*folder, state);
    if (!status)
      return status;
    meanwhile();
    CheckpointEnd ignored;
    return session->endCheckpoint(end ? *end : ignored);
  }

  /// The files that `write` would add to.
  static std::string newest(const std::string &path) {
    CheckpointOptions options;
    options.beatSeconds = beatSeconds;
    std::unique_ptr<CheckpointFolder> folder;
    Status status = CheckpointFolder::open(path, options, folder);
    EXPECT_TRUE(status) << status.message();
    return folder->newest().value_or("");
  }

  ModelPlan plan;
  TestProgram code;
  std::unique_ptr<Session> session;
};

} // namespace grt::test

#endif // GRT_TESTS_CHECKPOINT_TRAINING_H
