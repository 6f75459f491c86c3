//===- ExecuteTest.cpp - Compiled programs against the reference ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The whole way, with dropout: loss and gradients of the first step of compiled
// programs on rank threads against the reference executor on the model as it
// was imported. One model has operations of `test_nn` between a column and a
// row product: no pass, no pipeline and no part of the runtime knows them.
//
//===----------------------------------------------------------------------===//

#include "TestBodies.h"
#include "TestNN.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Pipelines/Compile.h"
#include "grt/session.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "gtest/gtest.h"

using namespace galvatron::tests;
using galvatron::reference::ModelInput;
using galvatron::reference::ModelResult;
using galvatron::reference::runModel;
using galvatron::reference::Tensor;

namespace {

llvm::ExitOnError exitOnError("execute: ");

constexpr int64_t kBatch = 8, kLength = 8, kVocabulary = 33;
constexpr double kTolerance = 1e-11;

struct ExecuteCase {
  const char *model;
  const char *cluster;
  const char *strategy;
  int64_t pipelineDegree, microBatches;
};

std::string modelText(llvm::StringRef model) {
  if (model == "gpt2")
    return R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 4,
               "n_positions": 12, "vocab_size": 33})";
  return bodiesText().str() + R"mlir(
galvatron.parameter @wte : tensor<33x16xf64> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @wpe : tensor<12x16xf64> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @wi : tensor<16x24xf64> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @wf : tensor<24x16xf64> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @bf : tensor<16xf64> {init = "zeros"}
galvatron.parameter @g : tensor<16xf64> {init = "ones"}
galvatron.parameter @b : tensor<16xf64> {init = "zeros"}
galvatron.model @toy(%tokens: tensor<?x8xi32> is <tokens, below = 33>, %labels: tensor<?x8xi32> is <labels, below = 33>) {
  %0 = galvatron.layer "wte" @embed(%tokens) params [@wte, @wpe] : (tensor<?x8xi32>) -> tensor<?x8x16xf64>
  %1 = galvatron.layer "test" @test(%0) params [@wi, @wf, @bf] : (tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %2 = galvatron.layer "head" @head(%1, %labels) params [@g, @b, @wte] : (tensor<?x8x16xf64>, tensor<?x8xi32>) -> tensor<1xf64>
  galvatron.output %2 : tensor<1xf64>
}
)mlir";
}

class Execute : public testing::TestWithParam<ExecuteCase> {};

TEST_P(Execute, AgreesWithTheReference) {
  const ExecuteCase &c = GetParam();
  mlir::test_nn::registerReferenceEvaluators();
  std::unique_ptr<mlir::MLIRContext> context =
      galvatron::createCompilerContext();
  context->getOrLoadDialect<mlir::test_nn::TestNNDialect>();
  galvatron::ImportOptions import;
  import.seqLen = kLength;
  bool imported = llvm::StringRef(c.model) == "gpt2";
  auto module = exitOnError(galvatron::loadModel(
      modelText(c.model), imported ? "config.json" : "model.mlir", import,
      *context));

  Numbers numbers(31);
  ModelInput input;
  input.samples = kBatch;
  input.seed = 77;
  for (auto parameter : module->getOps<mlir::galvatron::ParameterOp>()) {
    Tensor value =
        numbers.tensor(parameter.getTensorType(), kBatch, kVocabulary);
    input.parameters[parameter.getSymName().str()] = value.values;
  }
  for (int64_t i = 0; i < kBatch * kLength; ++i) {
    input.tokens.push_back(int32_t(numbers.below(kVocabulary)));
    input.labels.push_back(i % 7 == 3 ? -1
                                      : int32_t(numbers.below(kVocabulary)));
  }
  ModelResult expected = exitOnError(runModel(*module, input));

  galvatron::TrainingOptions training;
  training.optimizer = "sgd";
  training.dtype = "f64";
  galvatron::PlanRequest request;
  request.planner.batch = kBatch;
  request.planner.pipelineDegree = c.pipelineDegree;
  request.planner.microBatches = c.microBatches;
  request.planner.strategy =
      exitOnError(galvatron::Strategy::parse(c.strategy));
  llvm::SmallString<128> path;
  exitOnError(llvm::errorCodeToError(
      llvm::sys::fs::createTemporaryFile("execute", "gvx", path)));
  llvm::FileRemover remover(path);
  galvatron::PlannerResult plan = exitOnError(galvatron::compileModel(
      *module, exitOnError(galvatron::Cluster::load(c.cluster)), training,
      request, path));
  ASSERT_TRUE(plan.feasible());

  std::shared_ptr<const grt::Program> program;
  grt::Status status = grt::Program::loadFile(path.str().str(), program);
  ASSERT_TRUE(status.ok()) << status.message();
  grt::SessionOptions options;
  options.backendFolder = BACKEND_FOLDER;
  options.poison = true;
  options.seed = input.seed;
  std::unique_ptr<grt::Session> session;
  status = grt::Session::create(program, options, session);
  ASSERT_TRUE(status.ok()) << status.message();
  for (const auto &[name, values] : input.parameters) {
    status = session->setParameter(name, values);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  status = session->setBatch(input.tokens, input.labels);
  ASSERT_TRUE(status.ok()) << status.message();
  grt::StepResult step;
  status = session->step(step);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NEAR(step.loss, expected.loss, kTolerance * expected.loss);

  grt::TensorMap gradients;
  status = session->gradients(gradients);
  ASSERT_TRUE(status.ok()) << status.message();
  double squares = 0;
  for (const auto &[name, values] : expected.gradients)
    for (double value : values)
      squares += value * value;
  EXPECT_NEAR(step.gradientNorm, std::sqrt(squares),
              kTolerance * std::sqrt(squares));
  for (const auto &[name, values] : expected.gradients) {
    ASSERT_TRUE(gradients.count(name)) << name;
    Tensor wanted{{int64_t(values.size())}, values};
    Tensor found{{int64_t(gradients[name].values.size())},
                 gradients[name].values};
    // Judged by the whole where a tensor has next to no gradient of its own.
    double difference = 0;
    for (size_t i = 0; i < std::min(values.size(), found.values.size()); ++i)
      difference = std::max(difference, std::abs(found.values[i] - values[i]));
    EXPECT_TRUE(relativeError(found, wanted) < kTolerance ||
                difference < kTolerance * std::sqrt(squares))
        << name << " differs by " << difference;
  }
}

INSTANTIATE_TEST_SUITE_P(
    NN, Execute,
    testing::Values(ExecuteCase{"test_nn", "1xcpu", "single", 1, 1},
                    ExecuteCase{"test_nn", "2xcpu", "tp2", 1, 2},
                    ExecuteCase{"test_nn", "4xcpu", "tp4.ckpt", 1, 1},
                    ExecuteCase{"test_nn", "4xcpu", "sdp2.tp2.ckpt", 1, 2},
                    ExecuteCase{"gpt2", "1xcpu", "single", 1, 2},
                    ExecuteCase{"gpt2", "2xcpu", "tp2.ckpt", 1, 1},
                    ExecuteCase{"gpt2", "4xcpu", "dp2.tp2", 1, 2},
                    ExecuteCase{"gpt2", "4xcpu", "sdp2", 2, 2}),
    [](const auto &info) {
      std::string name = std::string(info.param.model) + "_" +
                         info.param.strategy + "_pp" +
                         std::to_string(info.param.pipelineDegree);
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

} // namespace
