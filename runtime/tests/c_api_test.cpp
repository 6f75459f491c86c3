//===- c_api_test.cpp - Sessions in C -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/c_api.h"
#include "grt/checkpoint.h"
#include "grt/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>

using namespace grt;

namespace {

std::string bigram(int ranks) {
  return std::string(TEST_PROGRAMS) + "/bigram" + std::to_string(ranks) +
         ".gvx";
}

/// Four samples of eight bytes, and what follows each.
struct Batch {
  explicit Batch(int number) {
    for (int i = 0; i < 32; ++i) {
      tokens.push_back((number * 11 + i) * 37 % 256);
      labels.push_back((number * 11 + i + 1) * 37 % 256);
    }
    labels[size_t(number) % 32] = -1;
  }
  std::vector<int32_t> tokens, labels;
  std::vector<grt_array> arrays() const {
    return {{tokens.data(), tokens.size() * 4},
            {labels.data(), labels.size() * 4}};
  }
};

grt_session_options optionsOf(const std::string &program) {
  static std::string kept;
  kept = program;
  grt_session_options options{};
  options.size = sizeof(options);
  options.program = kept.c_str();
  options.seed = 5;
  return options;
}

template <typename T> T sized() {
  T value{};
  value.size = sizeof(T);
  return value;
}

/// A session that goes with the test.
struct Owned {
  explicit Owned(const grt_session_options &options) {
    EXPECT_EQ(grt_session_create(&options, &session), 0) << grt_error_text();
  }
  ~Owned() { grt_session_destroy(session); }
  operator grt_session *() const { return session; }
  grt_session *session = nullptr;
};

void setRate(grt_session *session, double rate) {
  auto values = sized<grt_hyperparameters>();
  ASSERT_EQ(grt_session_hyperparameters(session, &values), 0);
  values.learning_rate = rate;
  ASSERT_EQ(grt_session_set_hyperparameters(session, &values), 0)
      << grt_error_text();
}

grt_step_result stepOf(grt_session *session, int number) {
  auto result = sized<grt_step_result>();
  Batch batch(number);
  EXPECT_EQ(grt_session_step(session, batch.arrays().data(), 2, &result), 0)
      << grt_error_text();
  return result;
}

std::vector<double> valuesOf(grt_session *session, size_t tensor,
                             grt_values what) {
  auto facts = sized<grt_tensor>();
  EXPECT_EQ(grt_session_tensor(session, tensor, &facts), 0);
  std::vector<double> values(facts.elements);
  EXPECT_EQ(
      grt_session_read(session, tensor, what, values.data(), values.size()), 0)
      << grt_error_text();
  return values;
}

void expectError(int32_t code, grt_code expected, const std::string &text) {
  EXPECT_EQ(code, expected);
  EXPECT_NE(std::string(grt_error_text()).find(text), std::string::npos)
      << grt_error_text();
}

TEST(CApi, NumbersAreThoseOfASessionInCpp) {
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadFile(bigram(2), program));
  SessionOptions wanted;
  wanted.seed = 5;
  std::unique_ptr<Session> session;
  ASSERT_TRUE(Session::create(program, wanted, session));
  session->hyperparameters().learningRate = 0.1;
  Owned own(optionsOf(bigram(2)));
  setRate(own, 0.1);
  for (int number = 1; number <= 3; ++number) {
    Batch batch(number);
    ASSERT_TRUE(session->setBatch(batch.tokens, batch.labels));
    StepResult expected;
    ASSERT_TRUE(session->step(expected));
    grt_step_result result = stepOf(own, number);
    EXPECT_EQ(result.step, uint64_t(number));
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.gradient_norm, expected.gradientNorm);
    EXPECT_EQ(result.counted, 31u);
  }
  TensorMap maps[3];
  ASSERT_TRUE(session->parameters(maps[0]));
  ASSERT_TRUE(session->gradients(maps[1]));
  ASSERT_TRUE(session->optimizerState(maps[2]));
  auto tensor = sized<grt_tensor>();
  ASSERT_EQ(grt_session_tensor(own, 0, &tensor), 0);
  const std::string name = tensor.name;
  EXPECT_EQ(valuesOf(own, 0, GRT_VALUES_PARAMETER), maps[0].at(name).values);
  EXPECT_EQ(valuesOf(own, 0, GRT_VALUES_GRADIENT), maps[1].at(name).values);
  EXPECT_EQ(valuesOf(own, 0, GRT_VALUES_FIRST_STATE),
            maps[2].at(name + ".m").values);
  EXPECT_EQ(valuesOf(own, 0, GRT_VALUES_SECOND_STATE),
            maps[2].at(name + ".v").values);
  // The samples that are written are those of the loss.
  std::vector<double> values = maps[0].at(name).values;
  std::fill(values.begin(), values.end(), 0.0);
  ASSERT_EQ(grt_session_write(own, 0, values.data(), values.size()), 0);
  double loss = 0;
  uint64_t counted = 0;
  ASSERT_EQ(
      grt_session_evaluate(own, Batch(4).arrays().data(), 2, &loss, &counted),
      0);
  EXPECT_NEAR(loss, std::log(256.0), 1e-5);
  EXPECT_EQ(counted, 31u);
}

TEST(CApi, SaysWhatASessionIs) {
  Owned own(optionsOf(bigram(2)));
  auto facts = sized<grt_session_facts>();
  ASSERT_EQ(grt_session_facts_of(own, &facts), 0);
  EXPECT_EQ(facts.ranks, 2);
  EXPECT_EQ(facts.local_ranks, 2);
  EXPECT_EQ(facts.leads, 1);
  EXPECT_EQ(facts.batch, 4);
  EXPECT_EQ(facts.data, 2u);
  EXPECT_EQ(facts.elements, 65536u);
  EXPECT_EQ(facts.losses_late, 0);
  auto datum = sized<grt_datum>();
  ASSERT_EQ(grt_session_datum(own, 1, &datum), 0);
  EXPECT_STREQ(datum.name, "labels");
  EXPECT_EQ(datum.bytes, 32u);
  EXPECT_EQ(datum.dimensions, 1u);
  EXPECT_EQ(datum.shape[0], 8);
  EXPECT_EQ(datum.counted, 1);
  stepOf(own, 1);
  auto memory = sized<grt_rank_memory>();
  ASSERT_EQ(grt_session_memory(own, 1, &memory), 0);
  EXPECT_EQ(memory.rank, 1);
  EXPECT_GE(memory.measured, memory.planned * 95 / 100);
  EXPECT_LE(memory.measured, memory.planned + 65536);
}

TEST(CApi, GoesOnFromACheckpoint) {
  const std::string folder = testing::TempDir() + "c-api-checkpoints";
  double expected[2];
  {
    Owned own(optionsOf(bigram(2)));
    setRate(own, 0.1);
    stepOf(own, 1);
    ASSERT_EQ(grt_session_checkpoint(own, folder.c_str(), 0), 0)
        << grt_error_text();
    for (int number : {2, 3})
      expected[number - 2] = stepOf(own, number).loss;
  }
  // The session of the other plan resumes from the newest checkpoint, without
  // being told rate or seed.
  grt_session_options options = optionsOf(bigram(1));
  options.seed = 99;
  options.resume = folder.c_str();
  Owned own(options);
  auto facts = sized<grt_session_facts>();
  ASSERT_EQ(grt_session_facts_of(own, &facts), 0);
  EXPECT_EQ(facts.steps, 1u);
  EXPECT_EQ(facts.samples, 4u);
  for (int number : {2, 3}) {
    grt_step_result result = stepOf(own, number);
    EXPECT_EQ(result.step, uint64_t(number));
    EXPECT_EQ(result.learning_rate, 0.1);
    EXPECT_NEAR(result.loss, expected[number - 2], 1e-5);
  }
  // A saved model is what another session may begin with.
  ASSERT_EQ(grt_session_save(own, folder.c_str()), 0) << grt_error_text();
  grt_session_options fresh = optionsOf(bigram(2));
  fresh.weights = folder.c_str();
  Owned begun(fresh);
  EXPECT_EQ(valuesOf(begun, 0, GRT_VALUES_PARAMETER),
            valuesOf(own, 0, GRT_VALUES_PARAMETER));
}

TEST(CApi, StructuresOfOtherSizesAreUnderstood) {
  // The structure of a caller that knows less: fields that it lacks are zero,
  // and not written.
  grt_session_options options = optionsOf(bigram(1));
  options.size = offsetof(grt_session_options, resume);
  options.resume = "nowhere";
  Owned own(options);
  grt_step_result result{};
  result.size = offsetof(grt_step_result, gradient_norm);
  result.gradient_norm = -7;
  ASSERT_EQ(grt_session_step(own, Batch(1).arrays().data(), 2, &result), 0)
      << grt_error_text();
  EXPECT_GT(result.loss, 0);
  EXPECT_EQ(result.gradient_norm, -7);
  // Hyperparameters that it lacks stay as they are.
  auto before = sized<grt_hyperparameters>();
  ASSERT_EQ(grt_session_hyperparameters(own, &before), 0);
  grt_hyperparameters few{};
  few.size = offsetof(grt_hyperparameters, beta1);
  few.learning_rate = 0.5;
  ASSERT_EQ(grt_session_set_hyperparameters(own, &few), 0);
  auto after = sized<grt_hyperparameters>();
  ASSERT_EQ(grt_session_hyperparameters(own, &after), 0);
  EXPECT_EQ(after.learning_rate, 0.5);
  EXPECT_EQ(after.beta2, before.beta2);
  EXPECT_GT(after.eps, 0);
  // The structure of one that knows more.
  struct Longer {
    grt_session_options options = optionsOf(bigram(1));
    uint64_t later = 0;
  } longer;
  longer.options.size = sizeof(longer);
  grt_session *session = nullptr;
  EXPECT_EQ(grt_session_create(&longer.options, &session), 0)
      << grt_error_text();
  grt_session_destroy(session);
  longer.later = 1;
  expectError(grt_session_create(&longer.options, &session), GRT_CODE_INVALID,
              "options: has fields that this library, which knows ");
  EXPECT_EQ(session, nullptr);
}

TEST(CApi, WhatIsWrongIsSaid) {
  grt_session *session = nullptr;
  auto refuses = [&](auto change, const std::string &text) {
    grt_session_options options = optionsOf(bigram(2));
    change(options);
    expectError(grt_session_create(&options, &session), GRT_CODE_INVALID, text);
    EXPECT_EQ(session, nullptr);
  };
  expectError(grt_session_create(nullptr, &session), GRT_CODE_INVALID,
              "options: expected a structure, found null");
  refuses([](auto &o) { o.size = 0; }, "options: expected its size in 'size'");
  refuses([](auto &o) { o.program = nullptr; },
          "expected a file or its bytes, found none");
  refuses([](auto &o) { o.program = "nowhere.gvx"; }, "nowhere.gvx");
  refuses([](auto &o) { o.on_nan = 9; }, "on_nan: expected a grt_on_nan");
  refuses([](auto &o) { o.threads_per_rank = -1; },
          "threads_per_rank: expected at least 0, found -1");
  refuses([](auto &o) { o.resume = "nowhere"; }, "nowhere");
  refuses([](auto &o) { o.resume = o.weights = "/"; },
          "expected 'resume' or 'weights', found both");
  refuses([](auto &o) { o.processes = 2; },
          "address and port: expected where process 0 listens");
  refuses([](auto &o) { o.processes = o.process = 2; },
          "process: expected 0 to 1, found 2");
  refuses([](auto &o) { o.processes = 3; },
          "are not shared equally by 3 processes");
  Owned own(optionsOf(bigram(2)));
  Batch batch(1);
  auto arrays = batch.arrays();
  auto result = sized<grt_step_result>();
  expectError(grt_session_step(nullptr, arrays.data(), 2, &result),
              GRT_CODE_INVALID, "session: expected one, found null");
  expectError(grt_session_step(own, arrays.data(), 1, &result),
              GRT_CODE_INVALID,
              "expected an array for each of the program's 2");
  expectError(grt_session_step(own, arrays.data(), 2, nullptr),
              GRT_CODE_INVALID, "result: expected a structure, found null");
  arrays[1].bytes = 96;
  expectError(grt_session_step(own, arrays.data(), 2, &result),
              GRT_CODE_INVALID,
              "'labels': expected 128 bytes for 4 samples, or a multiple, "
              "found 96");
  batch.tokens[3] = 256;
  expectError(grt_session_step(own, batch.arrays().data(), 2, &result),
              GRT_CODE_INVALID, "256");
  double value = 0;
  expectError(grt_session_read(own, 0, GRT_VALUES_PARAMETER, &value, 1),
              GRT_CODE_INVALID, "expected room for 65536 values, found 1");
  expectError(grt_session_read(own, 7, GRT_VALUES_PARAMETER, &value, 1),
              GRT_CODE_INVALID, "tensor: expected a number below 1, found 7");
  std::vector<double> room(65536);
  expectError(grt_session_read(own, 0, GRT_VALUES_GRADIENT, room.data(), 65536),
              GRT_CODE_INVALID, "no step was done");
  auto values = sized<grt_hyperparameters>();
  ASSERT_EQ(grt_session_hyperparameters(own, &values), 0);
  values.beta1 = 1;
  expectError(grt_session_set_hyperparameters(own, &values), GRT_CODE_INVALID,
              "beta1: expected a number from 0 to below 1, found 1");
  // The session still works.
  EXPECT_GT(stepOf(own, 1).loss, 0);
  EXPECT_STREQ(grt_error_text(), "");
}

/// The processes of a test are children of this one.
const uint16_t firstPort = uint16_t(20000 + getpid() * 4 % 12000);

/// Runs `body(process)` in two processes and returns their exit codes.
template <typename Body> std::vector<int> inTwoProcesses(Body body) {
  std::vector<pid_t> children;
  for (int process : {0, 1})
    if (children.push_back(fork()); children.back() == 0) {
      body(process);
      std::fflush(nullptr);
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
  std::vector<int> codes;
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status)
                                      : 128 + WTERMSIG(status));
  }
  return codes;
}

grt_session_options oneOfTwo(int process) {
  grt_session_options options = optionsOf(bigram(2));
  options.processes = 2;
  options.process = process;
  options.address = "127.0.0.1";
  options.port = firstPort;
  options.run = "c-api-test";
  options.rendezvous_seconds = 20;
  return options;
}

TEST(CApi, ProcessesMeetWhereTheyAreTold) {
  double expected[3];
  {
    Owned own(optionsOf(bigram(2)));
    for (int number = 1; number <= 3; ++number)
      expected[number - 1] = stepOf(own, number).loss;
  }
  auto codes = inTwoProcesses([&](int process) {
    // One run after the other in the same processes.
    for (int round : {0, 1}) {
      grt_session_options options = oneOfTwo(process);
      options.port = uint16_t(firstPort + round);
      grt_session *session = nullptr;
      ASSERT_EQ(grt_session_create(&options, &session), 0) << grt_error_text();
      auto facts = sized<grt_session_facts>();
      ASSERT_EQ(grt_session_facts_of(session, &facts), 0);
      EXPECT_EQ(facts.local_ranks, 1);
      EXPECT_EQ(facts.first_rank, process);
      EXPECT_EQ(facts.leads, process == 0);
      for (int number = 1; number <= 3; ++number)
        EXPECT_EQ(stepOf(session, number).loss, expected[number - 1]);
      std::vector<double> values(process == 0 ? 65536 : 0);
      EXPECT_EQ(grt_session_read(session, 0, GRT_VALUES_PARAMETER,
                                 process == 0 ? values.data() : nullptr,
                                 values.size()),
                0)
          << grt_error_text();
      EXPECT_EQ(std::count(values.begin(), values.end(), 0.0), 0);
      EXPECT_EQ(grt_session_close(session), 0) << grt_error_text();
    }
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

TEST(CApi, ProcessesThatDifferAreRefusedByAll) {
  auto codes = inTwoProcesses([&](int process) {
    grt_session_options options = oneOfTwo(process);
    options.seed = uint64_t(process);
    grt_session *session = nullptr;
    expectError(grt_session_create(&options, &session), GRT_CODE_INVALID,
                "seed");
    EXPECT_EQ(session, nullptr);
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

TEST(CApi, AProcessOutlivesTheRunAndItsPeers) {
  auto codes = inTwoProcesses([&](int process) {
    grt_session_options options = oneOfTwo(process);
    grt_session *session = nullptr;
    ASSERT_EQ(grt_session_create(&options, &session), 0) << grt_error_text();
    stepOf(session, 1);
    if (process == 1) {
      // Process 0 may still read the numbers of the first step, which a process
      // that ends would take with it: by then it waits in its second step.
      sleep(2);
      raise(SIGKILL);
    }
    auto result = sized<grt_step_result>();
    expectError(grt_session_step(session, Batch(2).arrays().data(), 2, &result),
                GRT_CODE_PEER_LOST, "process 1");
    // Longer than a tool's process would be left to end by itself.
    sleep(4);
    expectError(grt_session_step(session, Batch(2).arrays().data(), 2, &result),
                GRT_CODE_PEER_LOST, "the session has failed before");
    grt_session_destroy(session);
    Owned alone(optionsOf(bigram(1)));
    EXPECT_GT(stepOf(alone, 1).loss, 0);
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 128 + SIGKILL}));
}

std::vector<std::string> environmentNow() {
  std::vector<std::string> result;
  for (char **entry = environ; *entry; ++entry)
    result.push_back(*entry);
  return result;
}

TEST(CApi, TheProcessIsLeftAlone) {
  const std::string said = testing::TempDir() + "c-api-said";
  auto codes = inTwoProcesses([&](int process) {
    ASSERT_NE(freopen((said + std::to_string(process)).c_str(), "w", stdout),
              nullptr);
    ASSERT_NE(dup2(1, 2), -1);
    const std::vector<std::string> before = environmentNow();
    struct sigaction handlers[NSIG];
    for (int number = 1; number < NSIG; ++number)
      sigaction(number, nullptr, &handlers[number]);
    grt_session_options options = oneOfTwo(process);
    grt_session *session = nullptr;
    ASSERT_EQ(grt_session_create(&options, &session), 0);
    stepOf(session, 1);
    ASSERT_EQ(grt_session_close(session), 0);
    EXPECT_EQ(environmentNow(), before);
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction now;
      if (sigaction(number, nullptr, &now) == 0)
        EXPECT_EQ(now.sa_handler, handlers[number].sa_handler) << number;
    }
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
  for (int process : {0, 1})
    EXPECT_EQ(std::filesystem::file_size(said + std::to_string(process)), 0u);
}

} // namespace
