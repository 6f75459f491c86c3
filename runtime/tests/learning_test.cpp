//===- learning_test.cpp - Batches in parts, groups, steps left out -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/parameter_groups.h"
#include "grt/session.h"
#include "recording.h"
#include "reference_backend.h"
#include "session/replicas.h"
#include "tensors.h"
#include "test_program.h"

#include "gtest/gtest.h"

#include <cmath>
#include <random>

using namespace grt;
using namespace grt::test;

namespace {

SessionOptions options() {
  SessionOptions result;
  result.seed = 17;
  result.backend = referenceBackend();
  result.poison = true;
  return result;
}

/// A session of a program for the plan.
struct Trial {
  explicit Trial(const ModelPlan &plan, const SessionOptions &with = options())
      : plan(plan), code(plan) {
    status = Program::loadMemory(code.file(), "test", program);
    if (status)
      status = Session::create(program, with, session);
    if (!status)
      return;
    session->hyperparameters().learningRate = 0.05;
    session->hyperparameters().clipNorm = 0.1;
  }

  /// A step over so many samples; the same ones for the same number.
  StepResult step(unsigned number, int64_t samples) {
    std::mt19937 random{number * 31 + 5};
    std::vector<int32_t> tokens, labels;
    for (int64_t i = 0; i < samples * plan.seqLen; ++i) {
      tokens.push_back(int32_t(random() % uint64_t(plan.vocab)));
      bool gap = random() % 7 == 0;
      labels.push_back(gap ? -1 : int32_t(random() % uint64_t(plan.vocab)));
    }
    StepResult result;
    status = session->setBatch(tokens, labels);
    if (status)
      status = session->step(result);
    EXPECT_TRUE(status) << status.message();
    return result;
  }

  TensorMap parameters() {
    TensorMap values;
    EXPECT_TRUE(session->parameters(values));
    return values;
  }

  ModelPlan plan;
  TestProgram code;
  std::shared_ptr<const Program> program;
  std::unique_ptr<Session> session;
  Status status;
};

/// Plans with every way that gradients are summed.
std::vector<ModelPlan> plans() {
  std::vector<ModelPlan> result;
  for (const char *axis : {"", "dp", "sdp", "tp"})
    for (bool streams : {false, true})
      for (bool tied : {false, true}) {
        ModelPlan plan;
        plan.batch = 4;
        plan.tied = tied;
        plan.streams = streams;
        if (*axis) {
          for (LayerPlan &layer : plan.layers)
            layer.levels = {{axis, 2}};
          plan.stages = {{{0, 1, 2}, {0, 1}}};
        }
        result.push_back(plan);
      }
  ModelPlan pipeline;
  pipeline.batch = 4;
  pipeline.stages = {{{0, 1}, {0}}, {{2}, {1}}};
  result.push_back(pipeline);
  pipeline.oneForwardOneBackward = true;
  result.push_back(pipeline);
  return result;
}

TEST(Learning, PartsOfABatchAreTheBatch) {
  size_t number = 0;
  for (ModelPlan plan : plans()) {
    SCOPED_TRACE("plan " + std::to_string(number++));
    SessionOptions with = options();
    if (plan.streams)
      with.backend = recording::backendAround(referenceBackend());
    ModelPlan whole;
    whole.tied = plan.tied;
    whole.batch = 12;
    Trial expected(whole), found(plan, with);
    ASSERT_TRUE(found.status) << found.status.message();
    for (unsigned i = 1; i <= 3; ++i) {
      StepResult a = expected.step(i, 12), b = found.step(i, 12);
      EXPECT_EQ(b.step, i);
      EXPECT_EQ(b.countedValues, a.countedValues);
      EXPECT_NEAR(b.loss, a.loss, 1e-11 * a.loss);
      EXPECT_NEAR(b.gradientNorm, a.gradientNorm, 1e-11 * a.gradientNorm);
    }
    expectSame(expected.parameters(), found.parameters(), 1e-10);
    // One batch again, and an evaluation, know nothing of the parts.
    StepResult a = expected.step(9, 12), b = found.step(9, 12);
    EXPECT_NEAR(b.loss, a.loss, 1e-11 * a.loss);
    b = found.step(10, 4);
    double loss = 0;
    uint64_t valid = 0;
    EXPECT_TRUE(found.session->evaluate(loss, valid));
    EXPECT_EQ(valid, b.countedValues);
  }
}

TEST(Learning, AnEvaluationOfPartsIsRefused) {
  ModelPlan plan;
  Trial run(plan);
  run.step(1, 16);
  double loss = 0;
  uint64_t valid = 0;
  Status status = run.session->evaluate(loss, valid);
  EXPECT_EQ(status.message(),
            "evaluation: expected one batch of the program, found 2");
  std::vector<int32_t> half(12 * 4, 1);
  status = run.session->setBatch(half, half);
  EXPECT_EQ(status.message().find("batch: expected 128 bytes of '"), 0u)
      << status.message();
}

std::vector<ParameterGroup> groupsOf(const std::string &text) {
  std::vector<ParameterGroup> groups;
  Status status = parseParameterGroups(text, groups);
  EXPECT_TRUE(status) << status.message();
  return groups;
}

TEST(Learning, GroupsUnderEveryPlan) {
  // Frozen parameters stay, and are not in the norm.
  const std::string text = "*:lr=0.5;mix.*:lr=2,decay=0.3;*bias:frozen";
  for (const char *optimizer : {"adamw", "sgd"}) {
    std::optional<TensorMap> first;
    double norm = 0;
    for (ModelPlan plan : plans()) {
      if (plan.streams || plan.tied)
        continue;
      plan.optimizer = optimizer;
      plan.batch = 8;
      SessionOptions with = options();
      with.groups = groupsOf(text);
      Trial run(plan, with);
      ASSERT_TRUE(run.status) << run.status.message();
      TensorMap before = run.parameters();
      StepResult last;
      for (unsigned i = 1; i <= 3; ++i)
        last = run.step(i, 8);
      TensorMap after = run.parameters();
      EXPECT_EQ(after["mix.bias"].values, before["mix.bias"].values);
      EXPECT_NE(after["mix.weight"].values, before["mix.weight"].values);
      if (!first) {
        first = after;
        norm = last.gradientNorm;
        continue;
      }
      EXPECT_NEAR(last.gradientNorm, norm, 1e-11 * norm);
      expectSame(*first, after, 1e-10);
    }
  }
}

TEST(Learning, AGroupLearnsAsARunWithItsRates) {
  for (const char *optimizer : {"adamw", "adam", "sgd"}) {
    ModelPlan plan;
    plan.optimizer = optimizer;
    SessionOptions grouped = options();
    grouped.groups = groupsOf("mix.weight:lr=0.25,decay=0.4");
    Trial run(plan, grouped), plain(plan), other(plan);
    ASSERT_TRUE(run.status) << run.status.message();
    other.session->hyperparameters().learningRate = 0.05 * 0.25;
    other.session->hyperparameters().weightDecay = 0.4;
    for (Trial *one : {&run, &plain, &other})
      one->step(1, 8);
    TensorMap values = run.parameters(), same = plain.parameters();
    TensorMap slower = other.parameters();
    for (auto &[name, tensor] : values)
      EXPECT_EQ(tensor.values,
                name == "mix.weight" ? slower[name].values : same[name].values)
          << name << " with " << optimizer;
  }
}

TEST(Learning, TheNormIsThatOfWhatLearns) {
  ModelPlan plan;
  SessionOptions frozen = options();
  frozen.groups = groupsOf("mix.weight:frozen");
  Trial run(plan, frozen), plain(plan);
  StepResult some = run.step(1, 8), all = plain.step(1, 8);
  EXPECT_EQ(some.loss, all.loss);
  TensorMap gradients;
  ASSERT_TRUE(plain.session->gradients(gradients));
  double squares = 0;
  for (auto &[name, tensor] : gradients)
    for (double value : tensor.values)
      squares += name == "mix.weight" ? 0 : value * value;
  EXPECT_NEAR(some.gradientNorm, std::sqrt(squares), 1e-12);
  EXPECT_LT(some.gradientNorm, all.gradientNorm);
}

TEST(Learning, GroupsAreReadAndChecked) {
  auto refused = [](const std::string &text) {
    std::vector<ParameterGroup> groups;
    Status status = parseParameterGroups(text, groups);
    EXPECT_EQ(status.exitCode(), 2);
    return status.message();
  };
  EXPECT_EQ(refused("*.bias"), "parameter group '*.bias': expected "
                               "PATTERN:SETTINGS, as in '*.bias:decay=0'");
  EXPECT_EQ(refused("a:rate=1"), "parameter group 'a:rate=1': expected "
                                 "'lr=FACTOR', 'decay=X' or 'frozen', found "
                                 "'rate=1'");
  EXPECT_EQ(refused("a:lr=-1"), "parameter group 'a:lr=-1': expected a number "
                                "of at least 0, found '-1'");
  EXPECT_EQ(refused("a:frozen,lr=1"),
            "parameter group 'a:frozen,lr=1': what is frozen has neither a "
            "rate nor a decay");
  EXPECT_EQ(refused(";"),
            "expected parameter groups as in '*.bias:decay=0', found ';'");
  const std::string text = "*:lr=0.1,decay=0;h.?.x:frozen;b:lr=2";
  std::vector<ParameterGroup> groups = groupsOf(text);
  EXPECT_EQ(printParameterGroups(groups), text);
  EXPECT_EQ(groupsOf(printParameterGroups(groups)), groups);

  ModelPlan plan;
  SessionOptions with = options();
  with.groups = groupsOf("transformer.*:frozen");
  EXPECT_EQ(Trial(plan, with).status.exitCode(), 2);
  with.groups = groupsOf("*:lr=2");
  with.backend = recording::backendAround(referenceBackend());
  EXPECT_NE(Trial(plan, with)
                .status.message()
                .find("reads one rate and one "
                      "decay a step"),
            std::string::npos);
  Trial run(plan);
  GroupFacts facts;
  EXPECT_EQ(
      checkParameterGroups(groupsOf("*:frozen"), *run.program, facts).message(),
      "the parameter groups freeze all parameters");
  ASSERT_TRUE(
      checkParameterGroups(groupsOf("mix.bias:frozen"), *run.program, facts));
  EXPECT_EQ(facts.frozen, uint64_t(plan.width));
}

TEST(Learning, AStepWithALargeNormUpdatesNothing) {
  ModelPlan plan;
  Trial run(plan);
  TensorMap before = run.parameters();
  run.session->hyperparameters().skipNorm = 1e-6;
  StepResult result = run.step(1, 8);
  EXPECT_TRUE(result.skipped);
  EXPECT_GT(result.gradientNorm, 1e-6);
  expectSame(before, run.parameters(), 0);
  run.session->hyperparameters().skipNorm = 2 * result.gradientNorm;
  EXPECT_FALSE(run.step(1, 8).skipped);
  EXPECT_GT(distance(before["mix.weight"], run.parameters()["mix.weight"]), 0);
}

/// The reference backend with an update that goes wrong on one replica.
const grt_backend *faultyBackend() {
  static grt_kernel_function update =
      referenceBackend()->kernels[GRT_KERNEL_OPTIMIZER];
  static const grt_backend backend = [] {
    grt_backend copy = *referenceBackend();
    static std::vector<grt_kernel_function> kernels(
        copy.kernels, copy.kernels + GRT_KERNEL_COUNT);
    kernels[GRT_KERNEL_OPTIMIZER] = [](const grt_call *call, char *message,
                                       size_t bytes) {
      int32_t status = update(call, message, bytes);
      // The lowest bit of one value of the second step.
      if (call->coordinates->dp_index == 2 && call->step->step == 2)
        *static_cast<char *>(call->buffers[0]) ^= 1;
      return status;
    };
    copy.kernels = kernels.data();
    return copy;
  }();
  return &backend;
}

TEST(Replicas, ADifferenceOfOneBitIsFound) {
  ModelPlan plan;
  plan.batch = 8;
  plan.microBatches = 1;
  for (LayerPlan &layer : plan.layers)
    layer.levels = {{"dp", 4}};
  plan.stages = {{{0, 1, 2}, {0, 1, 2, 3}}};
  for (bool faulty : {false, true}) {
    SessionOptions with = options();
    if (faulty)
      with.backend = faultyBackend();
    Trial run(plan, with);
    ASSERT_TRUE(run.status) << run.status.message();
    run.step(1, 8);
    EXPECT_TRUE(run.session->checkReplicas());
    run.step(2, 8);
    Status status = run.session->checkReplicas();
    EXPECT_EQ(status.ok(), !faulty);
    EXPECT_EQ(run.session->usable(), !faulty);
    if (!faulty)
      continue;
    EXPECT_EQ(status.exitCode(), 1);
    EXPECT_NE(status.message().find("step 2: replicas hold different "
                                    "parameters: layer '"),
              std::string::npos)
        << status.message();
    EXPECT_NE(
        status.message().find("': rank 2 differs from rank 0 and 2 others"),
        std::string::npos)
        << status.message();
  }
}

TEST(Replicas, ShardsAreNoReplicas) {
  for (const ModelPlan &plan : plans()) {
    if (plan.streams)
      continue;
    Trial run(plan);
    ASSERT_TRUE(run.status);
    run.step(1, 4);
    Status status = run.session->checkReplicas();
    EXPECT_TRUE(status) << status.message();
    EXPECT_EQ(run.session->takeWork().size(), run.session->memory().size());
  }
}

/// Who holds the same parameters follows from the coordinates of ranks, and
/// from what a layer's levels cut.
TEST(Replicas, RanksThatHoldTheSameAreCompared) {
  ModelPlan plan;
  plan.layers[0].levels = plan.layers[1].levels = {{"dp", 2}, {"tp", 2}};
  plan.layers[2].levels = {{"dp", 2}, {"sdp", 2}};
  plan.stages = {{{0, 1, 2}, {0, 1, 2, 3}}};
  TestProgram code(plan);
  Manifest manifest = parseManifest(code.manifest());
  size_t each = replicaNumbers(manifest);
  ASSERT_EQ(each, 3u);
  // Ranks 0 and 2 have one half of every layer, 1 and 3 the other.
  std::vector<uint64_t> sums(4 * each);
  for (size_t rank = 0; rank < 4; ++rank)
    for (size_t layer = 0; layer < each; ++layer)
      sums[rank * each + layer] = 10 * layer + rank % 2;
  EXPECT_EQ(compareReplicas(manifest, sums), "");
  std::vector<uint64_t> wrong = sums;
  wrong[3 * each + 2] += 1;
  EXPECT_NE(compareReplicas(manifest, wrong).find("layer 'layer2': rank"),
            std::string::npos)
      << compareReplicas(manifest, wrong);

  // Levels that cut nothing, or only the optimizer's state: all four hold it.
  manifest.roles[0].layers[1].replicated = true;
  EXPECT_NE(compareReplicas(manifest, sums).find("layer 'layer1': rank"),
            std::string::npos);
  for (size_t rank = 0; rank < 4; ++rank)
    sums[rank * each + 1] = 7;
  EXPECT_EQ(compareReplicas(manifest, sums), "");
  manifest.roles[0].layers[2].cutsStateOnly = true;
  EXPECT_NE(compareReplicas(manifest, sums).find("layer 'layer2': rank"),
            std::string::npos);
}

} // namespace
