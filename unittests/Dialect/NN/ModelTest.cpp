//===- ModelTest.cpp - Whole models on the reference executor -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestBodies.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Import/HuggingFace.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace galvatron::tests;
using galvatron::reference::ModelInput;
using galvatron::reference::runModel;

namespace {

constexpr const char *kConfig =
    R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 4,
        "n_positions": 12, "vocab_size": 33})";

class ReferenceModel : public testing::Test {
protected:
  void SetUp() override {
    context = makeContext();
    auto imported = galvatron::importHuggingFaceConfig(
        kConfig, "config.json", {/*seqLen=*/6, "f64"}, *context);
    ASSERT_TRUE(bool(imported)) << llvm::toString(imported.takeError());
    module = std::move(*imported);

    Numbers numbers(17);
    for (auto parameter : module->getOps<mlir::galvatron::ParameterOp>()) {
      std::vector<double> &values =
          input.parameters[parameter.getSymName().str()];
      values.resize(parameter.getTensorType().getNumElements());
      for (double &value : values)
        value = 0.5 * numbers.uniform();
    }
    input.samples = 3;
    input.seed = 99;
    input.step = 4;
    for (int i = 0; i < 18; ++i) {
      input.tokens.push_back(int32_t(numbers.below(33)));
      input.labels.push_back(i == 7 ? -1 : int32_t(numbers.below(33)));
    }
  }

  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  ModelInput input;
};

TEST_F(ReferenceModel, LossOfEqualLogitsIsThatOfAGuess) {
  for (auto &[name, values] : input.parameters)
    std::fill(values.begin(), values.end(), 0.0);
  auto result = runModel(*module, input);
  ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
  EXPECT_NEAR(result->loss, std::log(33.0), 1e-14);
}

TEST_F(ReferenceModel, GradientsAgreeWithDifferences) {
  auto result = runModel(*module, input);
  ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
  EXPECT_EQ(result->gradients.size(), input.parameters.size());
  double total = 0;
  for (auto &[name, gradient] : result->gradients)
    for (double value : gradient)
      total += value * value;
  double scale = std::sqrt(total);
  Numbers numbers(23);
  for (auto &[name, gradient] : result->gradients) {
    std::vector<double> &values = input.parameters[name];
    ASSERT_EQ(gradient.size(), values.size()) << name;
    for (int i = 0; i < 3; ++i) {
      size_t element = size_t(numbers.below(int64_t(values.size())));
      double start = values[element], h = 1e-3;
      auto at = [&](double steps) {
        values[element] = start + steps * h;
        return runModel(*module, input)->loss;
      };
      double quotient = (at(-2) - 8 * at(-1) + 8 * at(1) - at(2)) / (12 * h);
      values[element] = start;
      EXPECT_NEAR(gradient[element], quotient, 1e-6 * scale)
          << name << "[" << element << "]";
    }
  }
}

TEST_F(ReferenceModel, TiedTableGetsBothGradients) {
  // The token 0 never occurs, so that its row has the head's gradient alone.
  for (int32_t &token : input.tokens)
    token = std::max(token, 1);
  auto tied = runModel(*module, input);
  ASSERT_TRUE(bool(tied));
  const std::vector<double> &gradient =
      tied->gradients["transformer.wte.weight"];
  double first = 0;
  for (int i = 0; i < 16; ++i)
    first += std::abs(gradient[i]);
  EXPECT_GT(first, 0);
}

TEST_F(ReferenceModel, DropoutIsAFunctionOfSeedAndStep) {
  double loss = runModel(*module, input)->loss;
  EXPECT_EQ(runModel(*module, input)->loss, loss);
  ++input.step;
  EXPECT_NE(runModel(*module, input)->loss, loss);
  --input.step;
  ++input.seed;
  EXPECT_NE(runModel(*module, input)->loss, loss);
  input.dropout = false;
  double without = runModel(*module, input)->loss;
  ++input.seed;
  EXPECT_EQ(runModel(*module, input)->loss, without);
}

TEST_F(ReferenceModel, SaysWhichParameterIsMissing) {
  input.parameters.erase("transformer.ln_f.bias");
  auto result = runModel(*module, input);
  ASSERT_FALSE(bool(result));
  EXPECT_EQ(llvm::toString(result.takeError()),
            "no value for parameter 'transformer.ln_f.bias'");
}

} // namespace
