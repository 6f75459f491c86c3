//===- PyTorchTest.cpp - The reference executor against PyTorch -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loss and gradients of the first step of the models in test/Execution/oracle,
// which PyTorch computed in f64. Weights and tokens come from the integer hash
// that generate.py describes.
//
//===----------------------------------------------------------------------===//

#include "TestBodies.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Import/HuggingFace.h"
#include "llvm/Support/Base64.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "gtest/gtest.h"

using namespace galvatron::tests;
using galvatron::reference::ModelInput;
using galvatron::reference::runModel;
using galvatron::reference::Tensor;

namespace {

constexpr double kTolerance = 1e-11;

uint64_t hashOf(llvm::StringRef name, uint64_t index) {
  uint64_t key = 0xcbf29ce484222325ull;
  for (char c : name)
    key = (key ^ uint8_t(c)) * 0x100000001b3ull;
  uint64_t z = key + index + 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

std::vector<double> initialValues(llvm::StringRef name,
                                  mlir::RankedTensorType type) {
  std::vector<double> values(type.getNumElements());
  for (size_t i = 0; i < values.size(); ++i) {
    double u = double(hashOf(name, i) >> 40) / double(1 << 23) - 1;
    bool gain = type.getRank() == 1 && name.ends_with(".weight");
    values[i] = type.getRank() > 1 ? u / 4 : gain ? 1 + u / 4 : u / 8;
  }
  return values;
}

Tensor decode(llvm::StringRef text) {
  std::vector<char> bytes;
  llvm::cantFail(llvm::decodeBase64(text, bytes));
  Tensor tensor;
  for (size_t i = 0; i < bytes.size(); i += sizeof(double))
    tensor.values.push_back(llvm::bit_cast<double>(
        llvm::support::endian::read64le(bytes.data() + i)));
  tensor.shape = {tensor.size()};
  return tensor;
}

class PyTorch : public testing::TestWithParam<const char *> {};

TEST_P(PyTorch, AgreesWithTheReference) {
  std::string path = std::string(ORACLE_FOLDER "/") + GetParam() + ".json";
  auto buffer = llvm::MemoryBuffer::getFile(path);
  ASSERT_TRUE(bool(buffer)) << path;
  auto json = llvm::json::parse((*buffer)->getBuffer());
  ASSERT_TRUE(bool(json));
  const llvm::json::Object &golden = *json->getAsObject();
  const llvm::json::Object &config = *golden.getObject("config");
  int64_t length = *golden.getInteger("seq-len");

  auto context = makeContext();
  std::string text;
  llvm::raw_string_ostream(text) << *golden.get("config");
  auto module = galvatron::importHuggingFaceConfig(text, "config.json",
                                                   {length, "f64"}, *context);
  ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());

  ModelInput input;
  for (auto parameter : (*module)->getOps<mlir::galvatron::ParameterOp>())
    input.parameters[parameter.getSymName().str()] =
        initialValues(parameter.getSymName(), parameter.getTensorType());
  input.samples = *golden.getInteger("batch");
  input.dropout = false;
  uint64_t vocabulary = uint64_t(*config.getInteger("vocab_size"));
  for (int64_t s = 0; s < input.samples; ++s)
    for (int64_t t = 0; t < length; ++t) {
      uint64_t at = uint64_t(s * (length + 1) + t);
      input.tokens.push_back(int32_t(hashOf("tokens.1", at) % vocabulary));
      input.labels.push_back(int32_t(hashOf("tokens.1", at + 1) % vocabulary));
    }

  auto result = runModel(**module, input);
  ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
  const llvm::json::Object &run = *(*golden.getArray("runs"))[0].getAsObject();
  double loss = *(*run.getArray("losses"))[0].getAsNumber();
  EXPECT_NEAR(result->loss, loss, kTolerance * loss);
  size_t compared = 0;
  double squares = 0;
  for (auto &[name, values] : result->gradients)
    for (double value : values)
      squares += value * value;
  for (const auto &entry : *golden.getObject("gradients")) {
    std::string name = entry.first.str();
    Tensor expected = decode(*entry.second.getAsString());
    Tensor actual{expected.shape, result->gradients[name]};
    ASSERT_EQ(actual.values.size(), expected.values.size()) << name;
    // Biases of keys have no gradient but rounding: judged by the whole.
    double difference = 0;
    for (int64_t i = 0; i < expected.size(); ++i)
      difference =
          std::max(difference, std::abs(actual.values[i] - expected.values[i]));
    EXPECT_TRUE(relativeError(actual, expected) < kTolerance ||
                difference < kTolerance * std::sqrt(squares))
        << name << " differs by " << difference;
    ++compared;
  }
  EXPECT_EQ(compared, result->gradients.size());
  double norm = *(*run.getArray("gradient-norms"))[0].getAsNumber();
  EXPECT_NEAR(std::sqrt(squares), norm, kTolerance * norm);
}

INSTANTIATE_TEST_SUITE_P(NN, PyTorch,
                         testing::Values("gpt2-tied", "gpt2-untied"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

} // namespace
