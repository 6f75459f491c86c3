//===- order.h - Sessions on libraries that watch the backend ---*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_TESTS_ORDER_H
#define GRT_BACKENDS_CUDA_TESTS_ORDER_H

#include "watched.h"

#include "grt/cuda_bounds.h"
#include "grt/session.h"
#include "test_program.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace grt::test {

constexpr int watchedSteps = 4;

/// The first error, or nothing.
inline std::string runWatched(const ModelPlan &plan, const grt_backend *backend,
                              bool graphs = true,
                              const std::string &choices = "",
                              const std::string &flightFile = "",
                              double timeout = 0) {
  ModelPlan used = plan;
  used.streams = true;
  TestProgram code(used);
  std::shared_ptr<const Program> program;
  if (Status status = Program::loadMemory(code.file(), "test", program);
      !status)
    return status.message();
  SessionOptions options;
  options.backend = backend;
  options.graphs = graphs;
  options.kernelChoices = choices;
  options.flightFile = flightFile;
  options.timeoutSeconds = timeout;
  options.shareDevices = true;
  std::unique_ptr<Session> session;
  if (Status status = Session::create(program, options, session); !status)
    return status.message();
  std::vector<int32_t> tokens(size_t(plan.batch * plan.seqLen), 3);
  for (int step = 0; step < watchedSteps; ++step) {
    StepResult result;
    Status status = session->setBatch(tokens, tokens);
    if (status)
      status = session->step(result);
    if (!status)
      return status.message();
  }
  TensorMap parameters;
  Status status = session->parameters(parameters);
  if (status)
    status = session->finish();
  return status ? "" : status.message();
}

/// The communicators of a session that is loaded.
inline std::string communicatorsOf(ModelPlan plan, const grt_backend *backend) {
  plan.streams = true;
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  SessionOptions options;
  options.backend = backend;
  options.shareDevices = true;
  std::unique_ptr<Session> session;
  Status status = Program::loadMemory(code.file(), "test", program);
  if (status)
    status = Session::create(program, options, session);
  return status ? watched().communicators() : status.message();
}

inline ModelPlan planOf(std::vector<std::pair<std::string, int64_t>> levels) {
  ModelPlan plan;
  int64_t ranks = 1;
  for (LayerPlan &layer : plan.layers)
    layer.levels = levels;
  plan.stages = {{{0, 1, 2}, {}}};
  for (const auto &level : levels)
    ranks *= level.second;
  plan.workspace = GRT_CUDA_WORKSPACE;
  for (int rank = 0; rank < ranks; ++rank)
    plan.stages[0].devices.push_back(rank);
  return plan;
}

inline ModelPlan pipeline() {
  ModelPlan plan;
  plan.tied = true;
  for (LayerPlan &layer : plan.layers)
    layer.levels = {{"sdp", 2}};
  plan.stages = {{{0}, {0, 1}}, {{1, 2}, {2, 3}}};
  plan.oneForwardOneBackward = true;
  plan.microBatches = 4;
  plan.workspace = GRT_CUDA_WORKSPACE;
  return plan;
}

class Order : public testing::Test {
protected:
  Order() {
    watched().fault("", 0, "");
    watched().patience(20000);
    watched().complaints();
  }
  void expectClean(const ModelPlan &plan, const grt_backend *backend,
                   bool graphs, const std::string &choices = "") {
    EXPECT_EQ(runWatched(plan, backend, graphs, choices), "");
    EXPECT_EQ(watched().complaints(), "");
    EXPECT_EQ(watched().alive(), "");
  }
};

} // namespace grt::test

#endif // GRT_BACKENDS_CUDA_TESTS_ORDER_H
