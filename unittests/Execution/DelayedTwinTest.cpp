//===- DelayedTwinTest.cpp - Gradients that are one batch late ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Schedule 2bw against the rule that it promises:
//   W(t+1) = W(t) - update(grad f(W(t-1)), W(t)),   W(-1) = W(0).
// The reference is no pipeline and knows nothing of versions: a synchronous
// program on one rank is given W(t-1), says loss and gradients of batch t, and
// what the optimizer makes of them is written here once more.
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "galvatron/Strategy/DecisionTree.h"
#include "grt/c_api.h"
#include "gtest/gtest.h"

#include <cmath>
#include <filesystem>
#include <unistd.h>

using namespace galvatron;
using namespace galvatron::test;

namespace {

/// Adam (with decoupled or coupled decay) or SGD with momentum, in f64.
/// Matrices decay.
class ReferenceOptimizer {
public:
  ReferenceOptimizer(std::string name, const ::grt::Hyperparameters &h)
      : name(std::move(name)), h(h) {}

  void update(::grt::TensorMap &parameters, const ::grt::TensorMap &gradients,
              double factor) {
    ++step;
    for (auto &[key, parameter] : parameters) {
      const std::vector<double> &gradient = gradients.at(key).values;
      auto &[first, second] = states[key];
      first.resize(gradient.size());
      second.resize(gradient.size());
      double decay = parameter.shape.size() > 1 ? h.weightDecay : 0;
      for (size_t i = 0; i < gradient.size(); ++i)
        parameter.values[i] = updated(parameter.values[i], factor * gradient[i],
                                      first[i], second[i], decay);
    }
  }

private:
  double updated(double value, double gradient, double &first, double &second,
                 double decay) const {
    if (name != "adamw")
      gradient += decay * value;
    if (name == "sgd") {
      first = h.momentum * first + gradient;
      return value - h.learningRate * first;
    }
    first = h.beta1 * first + (1 - h.beta1) * gradient;
    second = h.beta2 * second + (1 - h.beta2) * gradient * gradient;
    double mean = first / (1 - std::pow(h.beta1, step));
    double deviation = std::sqrt(second / (1 - std::pow(h.beta2, step)));
    if (name == "adamw")
      value -= h.learningRate * decay * value;
    return value - h.learningRate * mean / (deviation + h.eps);
  }

  std::string name;
  ::grt::Hyperparameters h;
  double step = 0;
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>>
      states;
};

class DelayedTwinTest : public ::testing::Test {
protected:
  DelayedTwinTest() {
    loadTwinDialects(context);
    options.clip = false;
    options.steps = 8;
  }

  /// One rank, by the rule.
  TwinRun delayed(const TwinModel &model, int64_t batch) {
    TwinRun run;
    std::string bytes;
    TwinOptions alone = options;
    alone.backend = "cpu";
    alone.clip = alone.clipDelayed = false;
    run.error =
        compileTwin(context, model, singleRank(model, batch), alone, bytes);
    if (run.error.empty())
      if (::grt::Status status = follow(bytes, batch, run); !status.ok())
        run.error = status.message();
    return run;
  }

  const TwinRun &reference(const TwinModel &model, int64_t batch) {
    std::string key = model.config() + options.dtype + options.optimizer +
                      std::to_string(batch) + std::to_string(options.steps) +
                      (options.clipDelayed ? "clipped" : "") +
                      std::to_string(options.labelSmoothing) +
                      std::to_string(options.zLoss);
    auto [entry, inserted] = references.try_emplace(key);
    if (inserted)
      entry->second = delayed(model, batch);
    return entry->second;
  }

  void expectDelayed(const TwinModel &model, const TwinPlan &plan) {
    SCOPED_TRACE(plan.str());
    const TwinRun &expected = reference(model, plan.batch);
    ASSERT_EQ(expected.error, "");
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
    EXPECT_EQ(
        compareRuns(run, expected, getBounds(options.dtype, options.optimizer)),
        "");
    EXPECT_EQ(checkMemory(run), "");
  }

  static TwinPlan late(const TwinModel &model, int64_t stages,
                       const Strategy &strategy, int64_t batch,
                       int64_t microBatches) {
    return uniformPlan(model, stages, strategy, batch, microBatches, "2bw");
  }

  mlir::MLIRContext context;
  TwinOptions options;
  std::map<std::string, TwinRun> references;

  int64_t clipped = 0; ///< updates of references

private:
  static double normOf(const ::grt::TensorMap &gradients) {
    double squares = 0;
    for (const auto &[name, tensor] : gradients)
      for (double value : tensor.values)
        squares += value * value;
    return std::sqrt(squares);
  }

  ::grt::Status follow(const std::string &bytes, int64_t batch, TwinRun &run) {
    std::shared_ptr<const ::grt::Program> program;
    std::unique_ptr<::grt::Session> session;
    ::grt::SessionOptions sessionOptions;
    sessionOptions.seed = options.seed;
    sessionOptions.backendFolder = BACKEND_FOLDER;
    ::grt::Status status =
        ::grt::Program::loadMemory(bytes, "reference", program);
    if (status)
      status = ::grt::Session::create(program, sessionOptions, session);
    if (!status)
      return status;
    ::grt::Hyperparameters &h = session->hyperparameters();
    h.eps = options.eps;
    h.learningRate = options.learningRate;
    ReferenceOptimizer optimizer(options.optimizer, h);
    ::grt::TensorMap newest, older;
    double normBefore = 0;
    status = disturbVectors(*session);
    if (status)
      status = session->parameters(newest);
    older = newest;
    for (int64_t t = 0; status && t < options.steps; ++t) {
      for (const auto &[name, tensor] : older)
        if (status)
          status = session->setParameter(name, tensor.values);
      ::grt::StepResult out;
      if (status)
        status = session->setBatch(twinBatch(*program, batch, t));
      if (status)
        status = session->step(out);
      ::grt::TensorMap gradients;
      if (status)
        status = session->gradients(gradients);
      if (!status)
        break;
      run.losses.push_back(out.loss);
      if (options.zLoss != 0)
        run.zLosses.push_back(out.zLoss);
      if (t == 0)
        run.gradients = gradients;
      older = newest;
      // Clipped by the norm of the batch before.
      double factor = 1;
      if (options.clipDelayed && t > 0)
        factor = std::min(1.0, options.clipNorm / (normBefore + 1e-6));
      normBefore = normOf(gradients);
      clipped += factor < 1;
      optimizer.update(newest, gradients, factor);
    }
    run.parameters = newest;
    return status;
  }
};

/// A stage after the other up to eight, micro-batches from fewer to more than
/// stages.
TEST_F(DelayedTwinTest, StagesAndMicroBatches) {
  TwinModel model;
  for (int64_t stages : {1, 2, 3, 4, 8})
    for (int64_t microBatches : {1, 2, 3, 4, 6, 8, 12, 24})
      if (microBatches <= 3 * stages)
        expectDelayed(model, late(model, stages, Strategy(), 24, microBatches));
}

/// Every strategy of eight ranks, tied weights on stages of more than one rank.
TEST_F(DelayedTwinTest, StrategiesOfEightRanks) {
  TwinModel model;
  bool all = std::getenv("GALVATRON_LONG");
  int64_t number = 0;
  for (int64_t stages : {8, 4, 2})
    for (const Strategy &strategy : enumerateStrategies(8 / stages, {}))
      for (int64_t microBatches : {1, 2, 4}) {
        // A sample of them; all in the long run.
        if (!all && number++ % 3)
          continue;
        if (16 / microBatches % strategy.sampleShards() == 0)
          expectDelayed(model, late(model, stages, strategy, 16, microBatches));
      }
}

/// Uneven stages and another strategy on every layer, with recomputation.
TEST_F(DelayedTwinTest, MixedPlans) {
  TwinModel model;
  std::mt19937 generator(2);
  int count = std::getenv("GALVATRON_LONG") ? 200 : 12;
  for (int i = 0; i < count; ++i) {
    TwinPlan plan = randomPlan(model, generator);
    plan.schedule = "2bw";
    expectDelayed(model, plan);
  }
}

TEST_F(DelayedTwinTest, OtherTypesAndOptimizersForTwentySteps) {
  TwinModel model;
  options.steps = 20;
  int number = 0;
  for (auto [dtype, optimizer] : {std::pair("f64", "adamw"),
                                  {"f64", "adam"},
                                  {"f64", "sgd"},
                                  {"f32", "adamw"},
                                  {"bf16", "sgd"}}) {
    options.dtype = dtype;
    options.optimizer = optimizer;
    options.eps = options.dtype == "f64" ? 1e-8 : 1e-6;
    for (const char *text : {"dp2.ckpt", "sdp2", "tp2"}) {
      // Types and optimizers behind the first two take turns.
      if (!std::getenv("GALVATRON_LONG") && number++ > 5 && number % 2)
        continue;
      expectDelayed(
          model, late(model, 4, llvm::cantFail(Strategy::parse(text)), 16, 8));
    }
  }
}

/// Losses that come a call late, and are those of a session in C++.
TEST_F(DelayedTwinTest, InC) {
  TwinModel model;
  std::string bytes;
  const int64_t batch = 8, steps = 5;
  ASSERT_EQ(compileTwin(context, model, late(model, 2, Strategy(), batch, 2),
                        options, bytes),
            "");
  std::shared_ptr<const ::grt::Program> program;
  ASSERT_TRUE(::grt::Program::loadMemory(bytes, "late", program).ok());
  std::vector<::grt::DataBatch> batches;
  for (int64_t step = 0; step < steps; ++step)
    batches.push_back(twinBatch(*program, batch, step));
  std::vector<double> expected;
  {
    ::grt::SessionOptions sessionOptions;
    sessionOptions.seed = options.seed;
    sessionOptions.backendFolder = BACKEND_FOLDER;
    sessionOptions.onNan = ::grt::OnNan::Late;
    std::unique_ptr<::grt::Session> session;
    ASSERT_TRUE(::grt::Session::create(program, sessionOptions, session).ok());
    ASSERT_TRUE(session->setBatch(batches[0]).ok());
    for (size_t step = 0; step < batches.size(); ++step) {
      if (step + 1 < batches.size())
        ASSERT_TRUE(session->setNextBatch(batches[step + 1]).ok());
      ::grt::StepResult result;
      ASSERT_TRUE(session->step(result).ok());
      expected.push_back(result.loss);
    }
  }
  grt_session_options inC = {sizeof(inC)};
  inC.program_data = bytes.data();
  inC.program_bytes = bytes.size();
  inC.plugins = BACKEND_FOLDER;
  inC.seed = options.seed;
  grt_session *session = nullptr;
  ASSERT_EQ(grt_session_create(&inC, &session), 0) << grt_error_text();
  grt_session_facts facts = {sizeof(facts)};
  ASSERT_EQ(grt_session_facts_of(session, &facts), 0);
  EXPECT_EQ(facts.losses_late, 1);
  grt_step_result result = {sizeof(result)};
  std::vector<double> losses;
  for (const ::grt::DataBatch &data : batches) {
    std::vector<grt_array> arrays;
    for (const std::vector<char> &values : data)
      arrays.push_back({values.data(), values.size()});
    ASSERT_EQ(grt_session_step(session, arrays.data(), arrays.size(), &result),
              0)
        << grt_error_text();
    EXPECT_EQ(result.step, losses.size() + (&data != &batches.front()));
    if (result.step)
      losses.push_back(result.loss);
    // It would be of neither the one batch nor the other.
    EXPECT_EQ(grt_session_evaluate(session, arrays.data(), arrays.size(),
                                   nullptr, nullptr),
              GRT_CODE_INVALID);
  }
  ASSERT_EQ(grt_session_flush(session, &result), 0) << grt_error_text();
  EXPECT_EQ(result.step, uint64_t(steps));
  losses.push_back(result.loss);
  EXPECT_EQ(losses, expected);
  // Nothing is left to be ended.
  ASSERT_EQ(grt_session_flush(session, &result), 0) << grt_error_text();
  EXPECT_EQ(result.step, 0u);
  EXPECT_EQ(grt_session_close(session), 0) << grt_error_text();
}

/// The norm is over stages, replicas and shards, and tied weights count once.
TEST_F(DelayedTwinTest, ClippedByTheNormOfTheBatchBefore) {
  TwinModel model;
  options.clip = options.clipDelayed = true;
  options.steps = 20;
  for (auto [stages, text] : {std::pair(1, "dp2"),
                              {2, "tp2"},
                              {2, "sdp2.ckpt"},
                              {4, "single"},
                              {4, "dp2"}})
    for (int64_t microBatches : {2, 8})
      expectDelayed(model,
                    late(model, stages, llvm::cantFail(Strategy::parse(text)),
                         16, microBatches));
  EXPECT_GT(clipped, 10);
}

/// Both figures of a step are told among ranks that go on without each other.
TEST_F(DelayedTwinTest, LabelSmoothingAndZLoss) {
  TwinModel model;
  options.labelSmoothing = 0.1;
  options.zLoss = 0.02;
  for (auto [stages, text] : {std::pair(2, "tp2"), {4, "dp2"}})
    expectDelayed(model, late(model, stages,
                              llvm::cantFail(Strategy::parse(text)), 16, 4));
}

/// A drain changes nothing, wherever it is: the same bits.
TEST_F(DelayedTwinTest, Drains) {
  TwinModel model;
  options.clip = options.clipDelayed = true;
  TwinPlan plan = late(model, 4, Strategy(), 12, 6);
  TwinRun whole = runTwin(context, model, plan, options);
  ASSERT_EQ(whole.error, "");
  for (int64_t every : {1, 2, 3}) {
    options.drainsBehind = [&](int64_t step) { return step % every == 0; };
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
    EXPECT_EQ(run.losses, whole.losses);
    for (const auto &[name, tensor] : whole.parameters)
      EXPECT_EQ(run.parameters[name].values, tensor.values) << name;
  }
}

/// Order and lifetimes of every access, on the backend that checks them.
TEST_F(DelayedTwinTest, WithStreams) {
  TwinModel model;
  options.backend = "cuda";
  options.dtype = "f32";
  options.eps = 1e-6;
  options.steps = 4;
  for (const char *text : {"single", "dp2", "sdp2.ckpt", "tp2"})
    for (int64_t microBatches : {2, 4, 8}) {
      TwinPlan plan = late(model, 4, llvm::cantFail(Strategy::parse(text)), 16,
                           microBatches);
      SCOPED_TRACE(plan.str());
      TwinRun run = runTwin(context, model, plan, options);
      ASSERT_EQ(run.error, "");
      EXPECT_EQ(compareRuns(run, reference(model, plan.batch),
                            getBounds(options.dtype, options.optimizer)),
                "");
    }
}

} // namespace
