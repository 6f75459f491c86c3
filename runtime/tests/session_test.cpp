//===- session_test.cpp - Sessions of hand-made programs ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/backend_table.h"
#include "core/manifest.h"
#include "files.h"
#include "grt/session.h"
#include "recording.h"
#include "reference_backend.h"
#include "spread_world.h"
#include "temporary_folder.h"
#include "tensors.h"
#include "test_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>

using namespace grt;
using namespace grt::test;

namespace {

/// The results of a run.
struct Trace {
  std::vector<double> losses, norms;
  TensorMap firstGradients, parameters;
  double validation = 0;
  uint64_t hits = 0;
  std::vector<int32_t> predicted;
  std::vector<RankMemory> memory;
};

struct Batch {
  std::vector<int32_t> tokens, labels;
};

Batch makeBatch(const ModelPlan &plan, int step, bool gaps = true) {
  std::mt19937 random{unsigned(step) * 31 + 5};
  Batch batch;
  for (int64_t i = 0; i < plan.batch * plan.seqLen; ++i) {
    batch.tokens.push_back(int32_t(random() % uint64_t(plan.vocab)));
    bool gap = gaps && random() % 7 == 0;
    batch.labels.push_back(gap ? -1 : int32_t(random() % uint64_t(plan.vocab)));
  }
  return batch;
}

/// The number of labels that the model predicts, asked sample by sample.
uint64_t hitsOf(const ModelPlan &plan, const Batch &batch, Session &session) {
  uint64_t hits = 0;
  auto length = size_t(plan.seqLen);
  for (size_t first = 0; first < batch.tokens.size(); first += length) {
    std::vector<int32_t> predicted;
    Status status =
        session.predict({batch.tokens.data() + first, length}, predicted);
    EXPECT_TRUE(status) << status.message();
    for (size_t i = 0; i < predicted.size(); ++i)
      hits += predicted[i] == batch.labels[first + i];
  }
  return hits;
}

/// Everything runs, with GRT_TEST_STREAMS, on a model of a device that checks
/// how it is used, and programs use its streams.
bool onStreams() { return std::getenv("GRT_TEST_STREAMS"); }

/// The backend of the library that GRT_TEST_BACKEND names; null without it.
const grt_backend *loadedBackend() {
  static const grt_backend *backend = []() -> const grt_backend * {
    const char *path = std::getenv("GRT_TEST_BACKEND");
    if (!path)
      return nullptr;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    auto get = reinterpret_cast<const grt_backend *(*)()>(
        library ? dlsym(library, "grt_backend_get") : nullptr);
    if (!get)
      throw std::runtime_error(std::string("no backend in ") + path);
    return get();
  }();
  return backend;
}

SessionOptions testOptions() {
  SessionOptions options;
  options.seed = 17;
  options.backend = loadedBackend() ? loadedBackend()
                    : onStreams() ? recording::backendAround(referenceBackend())
                                  : referenceBackend();
  options.poison = true;
  options.shareDevices = true;
  return options;
}

/// Under mpirun: what connects the processes.
Transport *transport = nullptr;

int worldSize(const ModelPlan &plan) {
  int size = 0;
  for (const StagePlan &stage : plan.stages)
    size += int(stage.devices.size());
  return size;
}

Trace run(const ModelPlan &plan, int steps = 4,
          SessionOptions options = testOptions()) {
  Trace trace;
  // Ranks of a plan for one rank stay together: they are the reference.
  std::optional<SpreadWorld> world;
  if (transport && worldSize(plan) > 1) {
    world.emplace(*transport, worldSize(plan));
    options.world = world->shared();
  }
  ModelPlan used = plan;
  used.streams |= onStreams();
  TestProgram code(used);
  std::shared_ptr<const Program> program;
  Status status = Program::loadMemory(code.file(), "test", program);
  EXPECT_TRUE(status) << status.message();
  if (!status)
    return trace;
  std::unique_ptr<Session> session;
  status = Session::create(program, options, session);
  EXPECT_TRUE(status) << status.message();
  if (!status)
    return trace;
  session->hyperparameters().learningRate = 0.05;
  session->hyperparameters().clipNorm = 0.1;
  for (int step = 1; step <= steps; ++step) {
    Batch batch = makeBatch(plan, step);
    EXPECT_TRUE(session->setBatch(batch.tokens, batch.labels));
    StepResult result;
    status = session->step(result);
    EXPECT_TRUE(status) << status.message();
    if (!status)
      return trace;
    EXPECT_EQ(result.step, uint64_t(step));
    trace.losses.push_back(result.loss);
    trace.norms.push_back(result.gradientNorm);
    if (step == 1) {
      EXPECT_TRUE(session->gradients(trace.firstGradients));
    }
  }
  EXPECT_TRUE(session->parameters(trace.parameters));
  Batch batch = makeBatch(plan, 99);
  EXPECT_TRUE(session->setBatch(batch.tokens, batch.labels));
  uint64_t valid = 0, hits = 0;
  status = session->evaluate(trace.validation, valid, &hits);
  EXPECT_TRUE(status) << status.message();
  EXPECT_GT(valid, 0u);
  EXPECT_EQ(hits, hitsOf(plan, batch, *session));
  trace.hits = hits;
  status = session->predict(std::vector<int32_t>{1, 2, 3}, trace.predicted);
  EXPECT_TRUE(status) << status.message();
  trace.memory = session->memory();
  status = session->finish();
  EXPECT_TRUE(status) << status.message();
  return trace;
}

void expectTwins(const ModelPlan &plan, double bound = 1e-11) {
  ModelPlan alone = plan;
  for (LayerPlan &layer : alone.layers)
    layer = LayerPlan();
  alone.stages = {{{0, 1, 2}, {0}}};
  alone.microBatches = 1;
  alone.oneForwardOneBackward = false;
  Trace expected = run(alone), found = run(plan);
  if (transport && transport->process() != 0) {
    // Global views are at process 0.
    expected.firstGradients.clear();
    expected.parameters.clear();
  }
  ASSERT_EQ(expected.losses.size(), found.losses.size());
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i],
                bound * expected.losses[i]);
    EXPECT_NEAR(found.norms[i], expected.norms[i], bound * expected.norms[i]);
  }
  expectSame(expected.firstGradients, found.firstGradients, bound);
  expectSame(expected.parameters, found.parameters, 10 * bound);
  EXPECT_NEAR(found.validation, expected.validation,
              bound * expected.validation);
  EXPECT_EQ(found.hits, expected.hits);
  EXPECT_EQ(found.predicted, expected.predicted);
  for (const RankMemory &rank : found.memory)
    EXPECT_LE(rank.measuredPeakBytes,
              rank.plannedPeakBytes + rank.outsideArenaBytes);
}

TEST(Session, LossFallsOnOneRank) {
  ModelPlan plan;
  plan.clip = false;
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadMemory(code.file(), "test", program));
  std::unique_ptr<Session> session;
  ASSERT_TRUE(Session::create(program, testOptions(), session));
  Batch batch = makeBatch(plan, 1);
  ASSERT_TRUE(session->setBatch(batch.tokens, batch.labels));
  session->hyperparameters().learningRate = 0.05;
  StepResult first, last;
  ASSERT_TRUE(session->step(first));
  for (int i = 0; i < 30; ++i)
    ASSERT_TRUE(session->step(last));
  EXPECT_LT(last.loss, 0.5 * first.loss);
  double loss = 0;
  uint64_t values = 0, hits = 0;
  ASSERT_TRUE(session->evaluate(loss, values, &hits));
  EXPECT_EQ(hits, hitsOf(plan, batch, *session));
  EXPECT_GT(hits, values / 2);
  // Every label has the largest logit if all are the same; a value that is no
  // label has none.
  TensorMap parameters;
  ASSERT_TRUE(session->parameters(parameters));
  for (auto &[name, tensor] : parameters) {
    tensor.values.assign(tensor.values.size(), 0);
    ASSERT_TRUE(session->setParameter(name, tensor.values));
  }
  ASSERT_TRUE(session->setBatch(batch.tokens, batch.labels));
  for (int again = 0; again < 2; ++again) {
    ASSERT_TRUE(session->evaluate(loss, values, &hits));
    EXPECT_LT(values, batch.labels.size());
    EXPECT_EQ(hits, values);
  }
}

TEST(Session, GradientsMatchFiniteDifferences) {
  for (bool tied : {false, true}) {
    ModelPlan plan;
    plan.tied = tied;
    TestProgram code(plan);
    std::shared_ptr<const Program> program;
    ASSERT_TRUE(Program::loadMemory(code.file(), "test", program));
    std::unique_ptr<Session> session;
    ASSERT_TRUE(Session::create(program, testOptions(), session));
    Batch batch = makeBatch(plan, 1);
    ASSERT_TRUE(session->setBatch(batch.tokens, batch.labels));
    TensorMap values, gradients;
    ASSERT_TRUE(session->parameters(values));
    session->hyperparameters().learningRate = 0;
    StepResult step;
    ASSERT_TRUE(session->step(step));
    ASSERT_TRUE(session->gradients(gradients));
    double squares = 0;
    for (auto &[name, tensor] : values)
      for (size_t i = 0; i < tensor.values.size(); ++i) {
        squares += std::pow(gradients[name].values[i], 2);
        if (i % 5)
          continue;
        double loss[2], value = tensor.values[i];
        for (int side : {0, 1}) {
          tensor.values[i] = value + (side ? 1e-5 : -1e-5);
          ASSERT_TRUE(session->setParameter(name, tensor.values));
          uint64_t valid;
          ASSERT_TRUE(session->evaluate(loss[side], valid));
        }
        tensor.values[i] = value;
        ASSERT_TRUE(session->setParameter(name, tensor.values));
        EXPECT_NEAR(gradients[name].values[i], (loss[1] - loss[0]) / 2e-5, 1e-8)
            << name << " " << i;
      }
    EXPECT_NEAR(step.gradientNorm, std::sqrt(squares), 1e-12);
  }
}

TEST(Session, OptimizersAndMicroBatches) {
  for (const char *optimizer : {"adamw", "adam", "sgd"})
    for (int64_t m : {1, 2, 4}) {
      ModelPlan plan;
      plan.optimizer = optimizer;
      plan.microBatches = m;
      expectTwins(plan);
    }
}

TEST(Session, DataParallel) {
  for (bool tied : {false, true}) {
    ModelPlan plan;
    plan.tied = tied;
    for (LayerPlan &layer : plan.layers)
      layer.levels = {{"dp", 2}};
    plan.stages = {{{0, 1, 2}, {0, 1}}};
    expectTwins(plan);
  }
}

TEST(Session, ShardedDataParallel) {
  for (int64_t degree : {2, 4})
    for (bool tied : {false, true}) {
      ModelPlan plan;
      plan.tied = tied;
      for (LayerPlan &layer : plan.layers)
        layer.levels = {{"sdp", degree}};
      plan.stages = {{{0, 1, 2}, {0, 1}}};
      if (degree == 4)
        plan.stages[0].devices = {3, 1, 0, 2};
      expectTwins(plan);
    }
}

TEST(Session, TensorParallelVocabularyWithShortLastShard) {
  for (int64_t degree : {2, 4})
    for (bool tied : {false, true})
      for (bool ckpt : {false, true}) {
        ModelPlan plan;
        plan.tied = tied;
        for (LayerPlan &layer : plan.layers)
          layer.levels = {{"tp", degree}};
        plan.layers[2].ckpt = ckpt;
        plan.stages = {{{0, 1, 2}, {0, 1}}};
        if (degree == 4)
          plan.stages[0].devices = {0, 1, 2, 3};
        expectTwins(plan);
      }
}

/// Collectives of which the compiler makes few or none: all-to-alls, shifts,
/// the largest.
TEST(Session, BlocksMoveBetweenRanksAndComeBack) {
  for (int64_t degree : {2, 4})
    for (bool f64 : {true, false}) {
      ModelPlan plan;
      plan.f64 = f64;
      for (LayerPlan &layer : plan.layers)
        layer.levels = {{"tp", degree}};
      plan.stages = {{{0, 1, 2}, {0, 1}}};
      if (degree == 4)
        plan.stages[0].devices = {2, 0, 1, 3};
      const Trace expected = run(plan, 2);
      plan.movesBlocks = true;
      const Trace found = run(plan, 2);
      // The values agree to the last bit.
      EXPECT_EQ(found.losses, expected.losses);
      EXPECT_EQ(found.norms, expected.norms);
      EXPECT_EQ(found.hits, expected.hits);
      expectSame(expected.parameters, found.parameters, 0.0);
    }
}

TEST(Session, EmptyVocabularyShard) {
  ModelPlan plan;
  plan.vocab = 5; // slices of two rows: the fourth rank holds none
  for (LayerPlan &layer : plan.layers)
    layer.levels = {{"tp", 4}};
  plan.stages = {{{0, 1, 2}, {0, 1, 2, 3}}};
  expectTwins(plan);
}

TEST(Session, PipelinesOfBothSchedules) {
  for (bool oneForwardOneBackward : {false, true})
    for (bool tied : {false, true})
      for (std::vector<int> cut : {std::vector<int>{0}, {0, 1}}) {
        ModelPlan plan;
        plan.tied = tied;
        plan.microBatches = 4;
        plan.oneForwardOneBackward = oneForwardOneBackward;
        std::vector<int> rest{2};
        if (cut.size() == 1)
          rest = {1, 2};
        plan.stages = {{cut, {1}}, {rest, {0}}};
        expectTwins(plan);
      }
}

/// The first stage has the first and the last layer, in chunks of their own.
TEST(Session, TwoChunksOfAStage) {
  for (bool tied : {false, true})
    for (bool ckpt : {false, true})
      for (int64_t microBatches : {1, 3, 4}) {
        ModelPlan plan;
        plan.tied = tied;
        plan.batch = 24;
        plan.microBatches = microBatches;
        plan.layers[2].ckpt = ckpt;
        plan.stages = {{{0, 2}, {0}}, {{1}, {1}}};
        expectTwins(plan);
        // Chunks of several ranks, in layouts of their own.
        plan.layers[0].levels = {{"sdp", 2}};
        plan.layers[1].levels = {{"tp", 2}};
        plan.layers[2].levels = {{"dp", 2}};
        plan.stages = {{{0, 2}, {2, 0}}, {{1}, {1, 3}}};
        expectTwins(plan);
      }
}

/// Every pair of neighbours differs: reshards, ties and cuts between layouts.
TEST(Session, MixedStrategiesEverywhere) {
  const std::vector<std::vector<std::pair<std::string, int64_t>>> choices = {
      {{"dp", 4}},
      {{"sdp", 4}},
      {{"tp", 4}},
      {{"dp", 2}, {"tp", 2}},
      {{"tp", 2}, {"dp", 2}},
      {{"tp", 2}, {"sdp", 2}},
      {{"sdp", 2}, {"dp", 2}},
      {{"dp", 2}, {"sdp", 2}}};
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    ModelPlan plan;
    plan.tied = round % 2;
    plan.optimizer = round % 3 ? "adamw" : "sgd";
    for (LayerPlan &layer : plan.layers)
      layer.levels = choices[random() % choices.size()];
    plan.layers[2].ckpt = random() % 2;
    if (round % 3 == 2) {
      plan.oneForwardOneBackward = random() % 2;
      plan.stages = {{{0}, {0, 1, 2, 3}}, {{1, 2}, {4, 5, 6, 7}}};
    } else {
      plan.stages = {{{0, 1, 2}, {0, 1, 2, 3}}};
    }
    SCOPED_TRACE("round " + std::to_string(round));
    expectTwins(plan);
    if (HasFailure())
      return;
  }
}

TEST(Session, SinglePrecision) {
  ModelPlan plan;
  plan.f64 = false;
  plan.tied = true;
  plan.layers[0].levels = {{"dp", 2}, {"tp", 2}};
  plan.layers[1].levels = {{"sdp", 4}};
  plan.layers[2].levels = {{"tp", 2}, {"dp", 2}};
  plan.stages = {{{0, 1, 2}, {0, 1, 2, 3}}};
  expectTwins(plan, 3e-6);
}

/// The bytes of model.safetensors before any step.
std::string savedFile(const ModelPlan &plan, const std::string &name) {
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  std::unique_ptr<Session> session;
  EXPECT_TRUE(Program::loadMemory(code.file(), "test", program));
  EXPECT_TRUE(Session::create(program, testOptions(), session));
  std::string folder = testing::TempDir() + name;
  Status status = session->save(folder);
  EXPECT_TRUE(status) << status.message();
  EXPECT_NE(readAll(folder + "/config.json").find("vocab_size"),
            std::string::npos);
  return readAll(folder + "/model.safetensors");
}

TEST(Session, SavedFilesAreTheSameForEveryPlan) {
  for (bool tied : {false, true}) {
    ModelPlan alone;
    alone.tied = tied;
    std::string expected = savedFile(alone, "alone");
    // Header and tensors: two tables of 11 x 8, 8 x 8 and 8 values.
    EXPECT_GT(expected.size(), size_t(88 * (tied ? 1 : 2) + 72) * 8);
    for (const char *kind : {"dp", "sdp", "tp"}) {
      ModelPlan plan = alone;
      plan.layers[0].levels = {{kind, 4}};
      plan.layers[1].levels = {{"dp", 2}, {"sdp", 2}};
      plan.layers[2].levels = {{"sdp", 2}, {"tp", 2}};
      plan.stages = {{{0, 1}, {3, 1, 2, 0}}, {{2}, {4, 7, 6, 5}}};
      EXPECT_TRUE(savedFile(plan, kind) == expected) << kind;
    }
  }
}

TEST(Session, SeedsDecideTheWeights) {
  ModelPlan plan;
  SessionOptions other = testOptions();
  other.seed = 18;
  Trace a = run(plan, 1), b = run(plan, 1), c = run(plan, 1, other);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_NE(a.losses, c.losses);
}

// Weights of several blocks a thread, cut by rows and by flat shards.
TEST(Session, ThreadsAndPlansMakeTheSameWeights) {
  ModelPlan plan;
  plan.vocab = 3000;
  SessionOptions options = testOptions();
  options.threadsPerRank = 1;
  TensorMap expected = run(plan, 0, options).parameters;
  options.threadsPerRank = 5;
  expectSame(expected, run(plan, 0, options).parameters, 0);
  plan.layers[0].levels = {{"tp", 2}};
  plan.layers[2].levels = {{"sdp", 2}};
  plan.layers[1].levels = {{"dp", 2}};
  plan.stages = {{{0, 1, 2}, {0, 1}}};
  if (!transport)
    expectSame(expected, run(plan, 0, options).parameters, 0);
}

TEST(Session, DecayAllReachesVectors) {
  ModelPlan plan;
  SessionOptions all = testOptions();
  all.decayAll = true;
  Trace some = run(plan, 3), every = run(plan, 3, all);
  EXPECT_GT(distance(some.parameters["mix.bias"], every.parameters["mix.bias"]),
            1e-8);
  EXPECT_EQ(some.losses[0], every.losses[0]);
}

TEST(Session, ManySessionsAtOnce) {
  ModelPlan plan;
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadMemory(code.file(), "test", program));
  std::vector<std::unique_ptr<Session>> sessions(5);
  Batch batch = makeBatch(plan, 1);
  double loss = 0;
  for (auto &session : sessions) {
    ASSERT_TRUE(Session::create(program, testOptions(), session));
    ASSERT_TRUE(session->setBatch(batch.tokens, batch.labels));
    StepResult result;
    ASSERT_TRUE(session->step(result));
    if (&session != &sessions.front()) {
      EXPECT_EQ(result.loss, loss);
    }
    loss = result.loss;
  }
}

TEST(Session, AnOverrunIsRefusedWithRankBufferAndRegion) {
  ModelPlan plan;
  for (LayerPlan &layer : plan.layers)
    layer.levels = {{"dp", 2}};
  plan.stages = {{{0, 1, 2}, {0, 1}}};
  plan.overrunStash = true;
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadMemory(code.file(), "test", program));
  std::unique_ptr<Session> session;
  // The error comes before anything runs.
  Status status = Session::create(program, testOptions(), session);
  EXPECT_EQ(status.exitCode(), 1);
  EXPECT_NE(status.message().find("layer 'layer2': buffer 0 of 'begin' covers "
                                  "bytes 64 to"),
            std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("of region stash, which has"),
            std::string::npos);
  EXPECT_EQ(status.message().find("rank "), 0u);
}

TEST(Session, ABufferInNoRegionIsNamed) {
  ModelPlan plan;
  plan.wrongRegion = true;
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  EXPECT_EQ(Program::loadMemory(code.file(), "test", program).message(),
            "program 'test' is malformed: function 10, call 0: expected a "
            "region below 12, found 12");
}

TEST(Session, AKernelsErrorEndsAllRanksOnce) {
  ModelPlan plan;
  for (LayerPlan &layer : plan.layers)
    layer.levels = {{"dp", 4}};
  plan.stages = {{{0, 1, 2}, {0, 1, 2, 3}}};
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadMemory(code.file(), "test", program));
  std::unique_ptr<Session> session;
  ASSERT_TRUE(Session::create(program, testOptions(), session));
  Batch batch = makeBatch(plan, 1);
  ASSERT_TRUE(session->setBatch(batch.tokens, batch.labels));
  session->hyperparameters().clipNorm = -INFINITY;
  StepResult result;
  Status status = session->step(result);
  if (status)
    status = session->finish(); // the update is behind the step on a device
  EXPECT_EQ(status.exitCode(), 1);
  for (const char *part : {"rank ", "optimizer", ": clip factor is not finite"})
    EXPECT_NE(status.message().find(part), std::string::npos)
        << status.message();
}

TEST(Session, BatchesAreChecked) {
  ModelPlan plan;
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadMemory(code.file(), "test", program));
  std::unique_ptr<Session> session;
  ASSERT_TRUE(Session::create(program, testOptions(), session));
  StepResult result;
  EXPECT_EQ(session->step(result).message(), "no batch was set");
  Batch batch = makeBatch(plan, 1);
  batch.tokens[3] = 11;
  Status status = session->setBatch(batch.tokens, batch.labels);
  EXPECT_EQ(status.exitCode(), 2);
  EXPECT_NE(status.message().find("at position 3"), std::string::npos);
  batch.tokens.pop_back();
  EXPECT_EQ(session->setBatch(batch.tokens, batch.labels).exitCode(), 2);
  TensorMap gradients;
  EXPECT_EQ(session->gradients(gradients).exitCode(), 2);
  batch = makeBatch(plan, 1);
  EXPECT_EQ(session->setParameter("nothing", {}).message(),
            "the program has no parameter 'nothing'");
  EXPECT_EQ(session->setParameter("mix.bias", std::vector<double>(3)).message(),
            "parameter 'mix.bias': expected 8 values, found 3");
}

/// Next tokens are asked of programs that read tokens, and in their numbers.
TEST(Session, WhatCannotBePredictedIsRefused) {
  auto refusal = [](const ModelPlan &plan, const std::vector<int32_t> &tokens,
                    const EncoderPrompt *encoder = nullptr) {
    TestProgram code(plan);
    std::shared_ptr<const Program> program;
    EXPECT_TRUE(Program::loadMemory(code.file(), "test", program));
    std::unique_ptr<Session> session;
    EXPECT_TRUE(Session::create(program, testOptions(), session));
    std::vector<int32_t> predicted;
    std::vector<double> scores;
    Status status = session->predict(tokens, predicted, encoder);
    EXPECT_EQ(session->predictScores(tokens, scores, encoder).message(),
              status.message());
    if (!status) {
      EXPECT_EQ(status.exitCode(), 2);
      EXPECT_TRUE(predicted.empty());
      EXPECT_TRUE(session->usable());
    }
    EXPECT_EQ(program->predictsTokens(), plan.readsKind == "tokens");
    return status.message();
  };
  ModelPlan plan;
  EXPECT_EQ(refusal(plan, {1, 2, 3}), "");
  EXPECT_EQ(refusal(plan, {}), "prediction: expected 1 to 4 tokens, found 0");
  EXPECT_EQ(refusal(plan, {1, 2, 3, 4, 5}),
            "prediction: expected 1 to 4 tokens, found 5");
  std::vector<int32_t> read = {1, 2};
  EncoderPrompt encoder{read, 0};
  EXPECT_EQ(refusal(plan, {1}, &encoder),
            "prediction: expected no tokens of an encoder, which the program "
            "lacks");
  plan.readsKind = "notes";
  EXPECT_EQ(refusal(plan, {1, 2, 3}),
            "prediction: expected a program that reads tokens, or an encoder's "
            "and a decoder's, and as many labels, and nothing else");
}

/// A batch holds what its process reads; of the rest only how much of it counts
/// is known. Here all samples are read, and the count is another one.
TEST(Session, TheCountOfABatchMayComeWithIt) {
  ModelPlan plan;
  plan.layers[0].levels = plan.layers[2].levels = {{"dp", 2}};
  plan.layers[1].levels = {{"sdp", 2}};
  plan.stages = {{{0, 1, 2}, {0, 1}}};
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadMemory(code.file(), "test", program));
  ASSERT_EQ(program->data().size(), 2u);
  EXPECT_EQ(program->data()[1].name, "labels");
  EXPECT_TRUE(program->data()[1].counted);
  EXPECT_EQ(program->sequenceLength(), plan.seqLen);
  std::unique_ptr<Session> session;
  ASSERT_TRUE(Session::create(program, testOptions(), session));
  // Both ranks' halves of both micro-batches.
  for (const std::vector<SampleRange> &ranges : session->samplesRead()) {
    ASSERT_EQ(ranges.size(), 1u);
    EXPECT_EQ(ranges[0].first, 0);
    EXPECT_EQ(ranges[0].count, plan.batch);
  }
  Batch batch = makeBatch(plan, 1);
  DataBatch data(2);
  for (int i : {0, 1}) {
    const std::vector<int32_t> &values = i ? batch.labels : batch.tokens;
    auto *bytes = reinterpret_cast<const char *>(values.data());
    data[size_t(i)].assign(bytes, bytes + values.size() * sizeof(int32_t));
  }
  double whole = 0, counted = 0;
  uint64_t values = 0;
  ASSERT_TRUE(session->setBatch(batch.tokens, batch.labels));
  ASSERT_TRUE(session->evaluate(whole, values));
  EXPECT_EQ(values,
            uint64_t(std::count_if(batch.labels.begin(), batch.labels.end(),
                                   [](int32_t l) { return l >= 0; })));
  ASSERT_TRUE(session->setBatch(data));
  ASSERT_TRUE(session->evaluate(counted, values));
  EXPECT_EQ(counted, whole);
  ASSERT_TRUE(session->setBatch(data, 2 * values));
  uint64_t given = 0;
  ASSERT_TRUE(session->evaluate(counted, given));
  EXPECT_EQ(given, 2 * values);
  EXPECT_DOUBLE_EQ(counted, whole / 2);
  data.pop_back();
  EXPECT_NE(session->setBatch(data).message().find(
                "expected values of 2 data, found 1"),
            std::string::npos);
}

/// Only memory that is never given back is in use before anything runs.
TEST(Session, StaticMemoryIsCountedExactly) {
  ModelPlan whole, cut;
  cut.tied = true;
  cut.layers[0].levels = {{"dp", 2}, {"tp", 2}};
  cut.layers[1].levels = {{"sdp", 4}};
  cut.layers[2].levels = {{"tp", 2}, {"dp", 2}};
  cut.stages = {{{0, 1, 2}, {0, 1, 2, 3}}};
  for (const ModelPlan &plan : {whole, cut}) {
    TestProgram code(plan);
    std::shared_ptr<const Program> program;
    ASSERT_TRUE(Program::loadMemory(code.file(), "test", program));
    std::unique_ptr<Session> session;
    ASSERT_TRUE(Session::create(program, testOptions(), session));
    const Role &role = program->manifest().roles.front();
    uint64_t states = 0;
    for (const Layer &layer : role.layers) {
      auto held = uint64_t(layer.groups[0].shardElements +
                           layer.groups[1].shardElements);
      auto owned = uint64_t(layer.ownedElements());
      // AdamW's two moments; f64 has no master copies.
      uint64_t each = 2 * held + 2 * owned;
      states += each * 8;
    }
    for (const RankMemory &rank : session->memory()) {
      uint64_t used = rank.measuredPeakBytes - rank.outsideArenaBytes;
      uint64_t others = role.data.bytes + role.loss.bytes + role.step.bytes +
                        role.workspace.bytes;
      // Regions begin at multiples of an alignment.
      EXPECT_GE(used, states + others) << "rank " << rank.rank;
      EXPECT_LT(used, states + others + 4 * role.layers.size() * GRT_ALIGNMENT)
          << "rank " << rank.rank;
      EXPECT_EQ(used, role.parameters.bytes + role.gradients.bytes +
                          role.optimizer.bytes + others)
          << "rank " << rank.rank;
    }
  }
}

/// The same programs on the CPU backend, where it is built.
TEST(Session, CpuBackendAgreesWithTheReference) {
  for (bool f64 : {true, false}) {
    ModelPlan plan;
    plan.f64 = f64;
    plan.tied = true;
    plan.layers[0].levels = {{"dp", 2}, {"tp", 2}};
    plan.layers[1].levels = {{"sdp", 4}};
    plan.layers[2].levels = {{"tp", 2}, {"dp", 2}};
    plan.stages = {{{0, 1, 2}, {0, 1, 2, 3}}};
    SessionOptions options = testOptions();
    options.backend = nullptr;
    TestProgram code(plan);
    std::shared_ptr<const Program> program;
    ASSERT_TRUE(Program::loadMemory(code.file(), "test", program));
    std::unique_ptr<Session> probe;
    Status status = Session::create(program, options, probe);
    if (!status && status.message().find("cannot load backend") == 0)
      GTEST_SKIP() << status.message();
    probe.reset();
    Trace expected = run(plan), found = run(plan, 4, options);
    double bound = f64 ? 1e-11 : 1e-5;
    ASSERT_EQ(expected.losses.size(), found.losses.size());
    for (size_t i = 0; i < expected.losses.size(); ++i)
      EXPECT_NEAR(found.losses[i], expected.losses[i],
                  bound * expected.losses[i]);
    expectSame(expected.firstGradients, found.firstGradients, bound);
    expectSame(expected.parameters, found.parameters, 10 * bound);
    EXPECT_EQ(found.predicted, expected.predicted);
    // The compiler reserves as much (Cost/StageMemory.h).
    for (const RankMemory &rank : found.memory)
      EXPECT_LE(rank.outsideArenaBytes, 4096u) << "rank " << rank.rank;
  }
}

/// Integers of the products prepared, and products launched that were not.
std::set<const int64_t *> preparedProducts;
int unpreparedProducts = 0;

TEST(Session, EveryKernelIsPreparedAtLoad) {
  static BackendTable backend(*referenceBackend());
  backend.table.prepare = [](void *, const grt_kernel_op *op, char *, size_t) {
    if (op->kernel == GRT_KERNEL_GEMM)
      preparedProducts.insert(op->ints);
    return int32_t(0);
  };
  backend.kernels[GRT_KERNEL_GEMM] = [](const grt_call *call, char *message,
                                        size_t bytes) {
    unpreparedProducts += !preparedProducts.count(call->op->ints);
    return referenceBackend()->kernels[GRT_KERNEL_GEMM](call, message, bytes);
  };
  SessionOptions options = testOptions();
  options.backend = &*backend;
  run(ModelPlan(), 2, options);
  EXPECT_FALSE(preparedProducts.empty());
  EXPECT_EQ(unpreparedProducts, 0);

  backend.table.prepare = [](void *, const grt_kernel_op *, char *message,
                             size_t bytes) {
    std::snprintf(message, bytes, "nothing left");
    return int32_t(1);
  };
  ModelPlan plan;
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadMemory(code.file(), "test", program));
  std::unique_ptr<Session> session;
  Status status = Session::create(program, options, session);
  EXPECT_EQ(status.exitCode(), 1);
  EXPECT_NE(status.message().find("nothing left"), std::string::npos);
}

} // namespace

/// Under mpirun the plans' ranks are spread over the processes.
int main(int argc, char **argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // Processes of one run share files.
  std::optional<TemporaryFolder> folder;
  if (launched())
    transport = openTransport({});
  else
    folder.emplace();
  int result = RUN_ALL_TESTS();
  if (transport)
    transport->finalize();
  return result;
}
