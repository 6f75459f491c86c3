//===- GradientTest.cpp - Gradients against finite differences ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The backward function that differentiateBody makes, run by the reference
// executor, against the five-point difference quotient of the body itself.
//
//===----------------------------------------------------------------------===//

#include "TestBodies.h"
#include "mlir/IR/Diagnostics.h"
#include "gtest/gtest.h"

using namespace galvatron::tests;
using galvatron::reference::Context;
using galvatron::reference::evaluate;
using galvatron::reference::Tensor;
using mlir::nn::ValueRole;

namespace {

constexpr int64_t kSamples = 2, kClasses = 5;
constexpr size_t kMostElements = 40; ///< checked per argument
constexpr double kStep = 1e-3;
constexpr double kTolerance = 1e-6;

Context makeTestContext() {
  Context context;
  context.seed = 7;
  context.step = 3;
  context.layer = 2;
  context.firstSample = 5;
  context.inverseTokens = 1.0 / 13;
  return context;
}

/// The number whose gradient backward computes: the outputs weighted with their
/// gradients, and the mean of the loss.
double objective(mlir::func::FuncOp body, llvm::ArrayRef<Tensor> arguments,
                 llvm::ArrayRef<Tensor> gradients) {
  Context context = makeTestContext();
  auto outputs = evaluate(body, arguments, context);
  EXPECT_TRUE(bool(outputs));
  double sum = 0;
  size_t next = 0;
  for (auto [type, output] : llvm::zip_equal(body.getResultTypes(), *outputs)) {
    if (mlir::nn::isLossType(type)) {
      sum += output.values[0] * context.inverseTokens;
      // With a z-loss, what that is the mean of.
      body.walk([&](mlir::nn::CrossEntropyOp loss) {
        if (loss.isRegularized())
          sum += loss.getZLoss().convertToDouble() * output.values[1] *
                 context.inverseTokens;
      });
      continue;
    }
    const Tensor &gradient = gradients[next++];
    for (int64_t i = 0; i < output.size(); ++i)
      sum += output.values[i] * gradient.values[i];
  }
  return sum;
}

double differenceQuotient(mlir::func::FuncOp body,
                          std::vector<Tensor> arguments,
                          llvm::ArrayRef<Tensor> gradients, size_t argument,
                          size_t element) {
  double &value = arguments[argument].values[element];
  double start = value;
  auto at = [&](double steps) {
    value = start + steps * kStep;
    return objective(body, arguments, gradients);
  };
  return (at(-2) - 8 * at(-1) + 8 * at(1) - at(2)) / (12 * kStep);
}

/// `inputs`: how many arguments of the body are not parameters.
void checkGradients(mlir::ModuleOp module, llvm::StringRef name,
                    unsigned inputs, int64_t classes) {
  auto body = module.lookupSymbol<mlir::func::FuncOp>(name);
  ASSERT_TRUE(body);
  auto derived = mlir::nn::differentiateBody(body, integersOf(body, inputs));
  ASSERT_TRUE(mlir::succeeded(derived));

  Numbers numbers(11);
  std::vector<Tensor> arguments =
      makeArguments(body, kSamples, classes, numbers);
  // One label that does not count.
  for (auto [type, tensor] : llvm::zip(body.getArgumentTypes(), arguments))
    if (name.contains("cross_entropy") || name == "head")
      if (llvm::cast<mlir::RankedTensorType>(type).getElementType().isInteger())
        tensor.values[1] = -1;
  // Documents of five positions, of two and of three.
  for (auto [type, tensor] : llvm::zip(body.getArgumentTypes(), arguments))
    if (name.contains("documents") &&
        llvm::cast<mlir::RankedTensorType>(type).getElementType().isInteger())
      for (size_t i = 0; i < tensor.values.size(); ++i)
        tensor.values[i] = i % 5 < 2 ? 0 : 2;

  std::vector<Tensor> gradients, backwardArguments;
  for (unsigned index : argumentsWith(derived->backward, {ValueRole::Gradient}))
    gradients.push_back(numbers.tensor(
        derived->backward.getArgumentTypes()[index], kSamples, classes));
  auto forward = evaluate(derived->forward, arguments, makeTestContext());
  ASSERT_TRUE(bool(forward));
  backwardArguments = gradients;
  backwardArguments.insert(backwardArguments.end(), arguments.begin(),
                           arguments.begin() + inputs);
  for (unsigned index : resultsWith(derived->forward, {ValueRole::Stash}))
    backwardArguments.push_back((*forward)[index]);
  backwardArguments.insert(backwardArguments.end(), arguments.begin() + inputs,
                           arguments.end());
  auto results =
      evaluate(derived->backward, backwardArguments, makeTestContext());
  ASSERT_TRUE(bool(results));

  size_t next = 0;
  for (auto [index, type] : llvm::enumerate(body.getArgumentTypes())) {
    if (!llvm::isa<mlir::FloatType>(
            llvm::cast<mlir::RankedTensorType>(type).getElementType()))
      continue;
    ASSERT_LT(next, results->size());
    const Tensor &gradient = (*results)[next++];
    ASSERT_EQ(gradient.shape, arguments[index].shape);
    Tensor expected, actual;
    size_t count = std::min(kMostElements, arguments[index].values.size());
    for (size_t i = 0; i < count; ++i) {
      size_t element = count == arguments[index].values.size()
                           ? i
                           : size_t(numbers.below(gradient.size()));
      actual.values.push_back(gradient.values[element]);
      expected.values.push_back(
          differenceQuotient(body, arguments, gradients, index, element));
    }
    expected.shape = actual.shape = {int64_t(count)};
    EXPECT_LT(relativeError(actual, expected), kTolerance)
        << name.str() << ", argument " << index;
  }
  EXPECT_EQ(next, results->size());
}

/// One operation in a body of its own.
struct OperationCase {
  const char *name;
  unsigned inputs;
  const char *body;
};

const OperationCase kOperations[] = {
    {"embedding", 1, R"(
func.func private @embedding(%t: tensor<?x3xi32>, %w: tensor<5x4xf64>) -> tensor<?x3x4xf64> {
  %y = nn.embedding %t, %w : (tensor<?x3xi32>, tensor<5x4xf64>) -> tensor<?x3x4xf64>
  return %y : tensor<?x3x4xf64>
})"},
    {"position_add", 1, R"(
func.func private @position_add(%x: tensor<?x3x4xf64>, %w: tensor<5x4xf64>) -> tensor<?x3x4xf64> {
  %y = nn.position_add %x, %w : (tensor<?x3x4xf64>, tensor<5x4xf64>) -> tensor<?x3x4xf64>
  return %y : tensor<?x3x4xf64>
})"},
    {"linear", 1, R"(
func.func private @linear(%x: tensor<?x3x4xf64>, %w: tensor<4x2x5xf64>) -> tensor<?x3x2x5xf64> {
  %y = nn.linear %x, %w : (tensor<?x3x4xf64>, tensor<4x2x5xf64>) -> tensor<?x3x2x5xf64>
  return %y : tensor<?x3x2x5xf64>
})"},
    {"linear_transposed", 1, R"(
func.func private @linear_transposed(%x: tensor<?x3x4xf64>, %w: tensor<2x5x4xf64>) -> tensor<?x3x2x5xf64> {
  %y = nn.linear %x, %w {transpose_weight} : (tensor<?x3x4xf64>, tensor<2x5x4xf64>) -> tensor<?x3x2x5xf64>
  return %y : tensor<?x3x2x5xf64>
})"},
    {"linear_with_bias", 1, R"(
func.func private @linear_with_bias(%x: tensor<?x3x4xf64>, %w: tensor<4x5xf64>, %b: tensor<5xf64>) -> tensor<?x3x5xf64> {
  %y = nn.linear %x, %w bias %b : (tensor<?x3x4xf64>, tensor<4x5xf64>, tensor<5xf64>) -> tensor<?x3x5xf64>
  return %y : tensor<?x3x5xf64>
})"},
    {"bias_add", 1, R"(
func.func private @bias_add(%x: tensor<?x3x2x4xf64>, %b: tensor<2x4xf64>) -> tensor<?x3x2x4xf64> {
  %y = nn.bias_add %x, %b : (tensor<?x3x2x4xf64>, tensor<2x4xf64>) -> tensor<?x3x2x4xf64>
  return %y : tensor<?x3x2x4xf64>
})"},
    {"layer_norm", 1, R"(
func.func private @layer_norm(%x: tensor<?x3x6xf64>, %g: tensor<6xf64>, %b: tensor<6xf64>) -> tensor<?x3x6xf64> {
  %y, %s = nn.layer_norm %x, %g, %b {eps = 1.0e-2 : f64} : (tensor<?x3x6xf64>, tensor<6xf64>, tensor<6xf64>) -> (tensor<?x3x6xf64>, tensor<?x3x2xf64>)
  return %y : tensor<?x3x6xf64>
})"},
    {"layer_norm_without_beta", 1, R"(
func.func private @layer_norm_without_beta(%x: tensor<?x3x6xf64>, %g: tensor<6xf64>) -> tensor<?x3x6xf64> {
  %y, %s = nn.layer_norm %x, %g {eps = 1.0e-2 : f64} : (tensor<?x3x6xf64>, tensor<6xf64>) -> (tensor<?x3x6xf64>, tensor<?x3x2xf64>)
  return %y : tensor<?x3x6xf64>
})"},
    {"standardize", 1, R"(
func.func private @standardize(%x: tensor<?x3x6xf64>) -> tensor<?x3x6xf64> {
  %y, %s = nn.standardize %x {eps = 1.0e-2 : f64} : (tensor<?x3x6xf64>) -> (tensor<?x3x6xf64>, tensor<?x3x2xf64>)
  return %y : tensor<?x3x6xf64>
})"},
    {"column_scale", 1, R"(
func.func private @column_scale(%x: tensor<?x3x6xf64>, %s: tensor<6xf64>) -> tensor<?x3x6xf64> {
  %y = nn.column_scale %x, %s : (tensor<?x3x6xf64>, tensor<6xf64>) -> tensor<?x3x6xf64>
  return %y : tensor<?x3x6xf64>
})"},
    {"clip", 1, R"(
func.func private @clip(%x: tensor<?x7xf64>) -> tensor<?x7xf64> {
  %y = nn.clip %x {limit = 5.0e-1 : f64} : (tensor<?x7xf64>) -> tensor<?x7xf64>
  return %y : tensor<?x7xf64>
})"},
    {"gated_gelu_exact", 2, R"(
func.func private @gated_gelu_exact(%x: tensor<?x7xf64>, %u: tensor<?x7xf64>) -> tensor<?x7xf64> {
  %y = nn.gated_gelu %x, %u {exact} : (tensor<?x7xf64>, tensor<?x7xf64>) -> tensor<?x7xf64>
  return %y : tensor<?x7xf64>
})"},
    {"window_to_both_sides", 3, R"(
func.func private @window_to_both_sides(%q: tensor<?x7x2x3xf64>, %k: tensor<?x7x1x3xf64>, %v: tensor<?x7x1x3xf64>) -> tensor<?x7x6xf64> {
  %o, %l = nn.grouped_attention %q, %k, %v {scale = 6.0e-1 : f64, window = 3 : i64} : (tensor<?x7x2x3xf64>, tensor<?x7x1x3xf64>, tensor<?x7x1x3xf64>) -> (tensor<?x7x6xf64>, tensor<?x2x7xf64>)
  return %o : tensor<?x7x6xf64>
})"},
    {"soft_cap", 1, R"(
func.func private @soft_cap(%x: tensor<?x7xf64>) -> tensor<?x7xf64> {
  %y = nn.soft_cap %x {cap = 5.0e-1 : f64} : (tensor<?x7xf64>) -> tensor<?x7xf64>
  return %y : tensor<?x7xf64>
})"},
    {"capped_attention", 3, R"(
func.func private @capped_attention(%q: tensor<?x4x2x3xf64>, %k: tensor<?x4x1x3xf64>, %v: tensor<?x4x1x3xf64>) -> tensor<?x4x6xf64> {
  %o, %l = nn.grouped_attention %q, %k, %v {causal, scale = 6.0e-1 : f64, window = 3 : i64, cap = 4.0e-1 : f64, dropout = 2.0e-1 : f64} : (tensor<?x4x2x3xf64>, tensor<?x4x1x3xf64>, tensor<?x4x1x3xf64>) -> (tensor<?x4x6xf64>, tensor<?x2x4xf64>)
  return %o : tensor<?x4x6xf64>
})"},
    {"attention_by_distance", 3, R"(
func.func private @attention_by_distance(%q: tensor<?x4x3x2xf64>, %k: tensor<?x4x3x2xf64>, %v: tensor<?x4x3x2xf64>) -> tensor<?x4x6xf64> {
  %o, %l = nn.grouped_attention %q, %k, %v {causal, scale = 6.0e-1 : f64, cap = 9.0e-1 : f64, distance = 1.5 : f64} : (tensor<?x4x3x2xf64>, tensor<?x4x3x2xf64>, tensor<?x4x3x2xf64>) -> (tensor<?x4x6xf64>, tensor<?x3x4xf64>)
  return %o : tensor<?x4x6xf64>
})"},
    {"gelu_tanh", 1, R"(
func.func private @gelu_tanh(%x: tensor<?x7xf64>) -> tensor<?x7xf64> {
  %y = nn.gelu %x {approximate} : (tensor<?x7xf64>) -> tensor<?x7xf64>
  return %y : tensor<?x7xf64>
})"},
    {"gelu_erf", 1, R"(
func.func private @gelu_erf(%x: tensor<?x7xf64>) -> tensor<?x7xf64> {
  %y = nn.gelu %x : (tensor<?x7xf64>) -> tensor<?x7xf64>
  return %y : tensor<?x7xf64>
})"},
    {"attention_causal", 1, R"(
func.func private @attention_causal(%q: tensor<?x5x3x6xf64>) -> tensor<?x5x6xf64> {
  %o, %l = nn.attention %q {heads = 2 : i64, causal, scale = 6.0e-1 : f64} : (tensor<?x5x3x6xf64>) -> (tensor<?x5x6xf64>, tensor<?x2x5xf64>)
  return %o : tensor<?x5x6xf64>
})"},
    {"attention_both_ways_with_dropout", 1, R"(
func.func private @attention_both_ways_with_dropout(%q: tensor<?x5x3x6xf64>) -> tensor<?x5x6xf64> {
  %o, %l = nn.attention %q {heads = 3 : i64, scale = 6.0e-1 : f64, dropout = 3.0e-1 : f64, op_index = 4 : i64} : (tensor<?x5x3x6xf64>) -> (tensor<?x5x6xf64>, tensor<?x3x5xf64>)
  return %o : tensor<?x5x6xf64>
})"},
    {"rms_norm", 1, R"(
func.func private @rms_norm(%x: tensor<?x3x6xf64>, %g: tensor<6xf64>) -> tensor<?x3x6xf64> {
  %y, %s = nn.rms_norm %x, %g {eps = 1.0e-2 : f64} : (tensor<?x3x6xf64>, tensor<6xf64>) -> (tensor<?x3x6xf64>, tensor<?x3x1xf64>)
  return %y : tensor<?x3x6xf64>
})"},
    {"rms_norm_of_heads", 1, R"(
func.func private @rms_norm_of_heads(%x: tensor<?x3x2x4xf64>, %g: tensor<2x4xf64>) -> tensor<?x3x2x4xf64> {
  %y, %s = nn.rms_norm %x, %g {eps = 1.0e-2 : f64} : (tensor<?x3x2x4xf64>, tensor<2x4xf64>) -> (tensor<?x3x2x4xf64>, tensor<?x3x1x1xf64>)
  return %y : tensor<?x3x2x4xf64>
})"},
    {"rms_norm_with_unit_offset", 1, R"(
func.func private @rms_norm_with_unit_offset(%x: tensor<?x3x2x4xf64>, %g: tensor<2x4xf64>) -> tensor<?x3x2x4xf64> {
  %y, %s = nn.rms_norm %x, %g {eps = 1.0e-2 : f64, unit_offset} : (tensor<?x3x2x4xf64>, tensor<2x4xf64>) -> (tensor<?x3x2x4xf64>, tensor<?x3x1x1xf64>)
  return %y : tensor<?x3x2x4xf64>
})"},
    {"rotary", 1, R"(
func.func private @rotary(%x: tensor<?x4x3x6xf64>) -> tensor<?x4x3x6xf64> {
  %y = nn.rotary %x {frequencies = array<f64: 1.0, 0.3>, factor = 1.25 : f64} : (tensor<?x4x3x6xf64>) -> tensor<?x4x3x6xf64>
  return %y : tensor<?x4x3x6xf64>
})"},
    {"gated_silu", 2, R"(
func.func private @gated_silu(%g: tensor<?x7xf64>, %u: tensor<?x7xf64>) -> tensor<?x7xf64> {
  %y = nn.gated_silu %g, %u : (tensor<?x7xf64>, tensor<?x7xf64>) -> tensor<?x7xf64>
  return %y : tensor<?x7xf64>
})"},
    {"grouped_attention", 3, R"(
func.func private @grouped_attention(%q: tensor<?x5x4x3xf64>, %k: tensor<?x5x2x3xf64>, %v: tensor<?x5x2x3xf64>) -> tensor<?x5x12xf64> {
  %o, %l = nn.grouped_attention %q, %k, %v {causal, scale = 6.0e-1 : f64, dropout = 2.0e-1 : f64, op_index = 3 : i64} : (tensor<?x5x4x3xf64>, tensor<?x5x2x3xf64>, tensor<?x5x2x3xf64>) -> (tensor<?x5x12xf64>, tensor<?x4x5xf64>)
  return %o : tensor<?x5x12xf64>
})"},
    {"positions_of_documents", 2, R"(
func.func private @positions_of_documents(%x: tensor<?x5x4xf64>, %s: tensor<?x5xi32>, %t: tensor<7x4xf64>) -> tensor<?x5x4xf64> {
  %y = nn.position_add %x, %t starts %s {first = 1 : i64} : (tensor<?x5x4xf64>, tensor<7x4xf64>, tensor<?x5xi32>) -> tensor<?x5x4xf64>
  return %y : tensor<?x5x4xf64>
})"},
    {"attention_of_documents", 2, R"(
func.func private @attention_of_documents(%q: tensor<?x5x3x6xf64>, %s: tensor<?x5xi32>) -> tensor<?x5x6xf64> {
  %o, %l = nn.attention %q starts %s {heads = 2 : i64, causal, scale = 6.0e-1 : f64, dropout = 2.0e-1 : f64} : (tensor<?x5x3x6xf64>, tensor<?x5xi32>) -> (tensor<?x5x6xf64>, tensor<?x2x5xf64>)
  return %o : tensor<?x5x6xf64>
})"},
    {"grouped_attention_of_documents", 5, R"(
func.func private @grouped_attention_of_documents(%q: tensor<?x5x4x3xf64>, %k: tensor<?x5x2x3xf64>, %v: tensor<?x5x2x3xf64>, %s: tensor<?x5xi32>, %b: tensor<?x4x9xf64>) -> tensor<?x5x12xf64> {
  %o, %l = nn.grouped_attention %q, %k, %v starts %s bias %b {causal, scale = 6.0e-1 : f64} : (tensor<?x5x4x3xf64>, tensor<?x5x2x3xf64>, tensor<?x5x2x3xf64>, tensor<?x5xi32>, tensor<?x4x9xf64>) -> (tensor<?x5x12xf64>, tensor<?x4x5xf64>)
  return %o : tensor<?x5x12xf64>
})"},
    {"rotary_of_neighbours", 1, R"(
func.func private @rotary_of_neighbours(%x: tensor<?x5x2x7xf64>) -> tensor<?x5x2x7xf64> {
  %y = nn.rotary %x {frequencies = array<f64: 1.0, 0.5>, factor = 1.5 : f64, interleaved} : (tensor<?x5x2x7xf64>) -> tensor<?x5x2x7xf64>
  return %y : tensor<?x5x2x7xf64>
})"},
    {"grouped_attention_in_a_window", 3, R"(
func.func private @grouped_attention_in_a_window(%q: tensor<?x5x2x3xf64>, %k: tensor<?x7x1x3xf64>, %v: tensor<?x7x1x3xf64>) -> tensor<?x5x6xf64> {
  %o, %l = nn.grouped_attention %q, %k, %v {causal, scale = 6.0e-1 : f64, window = 2 : i64} : (tensor<?x5x2x3xf64>, tensor<?x7x1x3xf64>, tensor<?x7x1x3xf64>) -> (tensor<?x5x6xf64>, tensor<?x2x5xf64>)
  return %o : tensor<?x5x6xf64>
})"},
    {"grouped_attention_with_a_mask", 4, R"(
func.func private @grouped_attention_with_a_mask(%q: tensor<?x5x4x3xf64>, %k: tensor<?x6x2x3xf64>, %v: tensor<?x6x2x3xf64>, %m: tensor<?x6xi32>) -> tensor<?x5x12xf64> {
  %o, %l = nn.grouped_attention %q, %k, %v mask %m {scale = 6.0e-1 : f64, dropout = 2.0e-1 : f64, op_index = 3 : i64} : (tensor<?x5x4x3xf64>, tensor<?x6x2x3xf64>, tensor<?x6x2x3xf64>, tensor<?x6xi32>) -> (tensor<?x5x12xf64>, tensor<?x4x5xf64>)
  return %o : tensor<?x5x12xf64>
})"},
    {"grouped_attention_with_a_bias", 5, R"(
func.func private @grouped_attention_with_a_bias(%q: tensor<?x5x4x3xf64>, %k: tensor<?x6x2x3xf64>, %v: tensor<?x6x2x3xf64>, %m: tensor<?x6xi32>, %b: tensor<?x4x10xf64>) -> tensor<?x5x12xf64> {
  %o, %l = nn.grouped_attention %q, %k, %v mask %m bias %b {scale = 6.0e-1 : f64, dropout = 2.0e-1 : f64, op_index = 3 : i64} : (tensor<?x5x4x3xf64>, tensor<?x6x2x3xf64>, tensor<?x6x2x3xf64>, tensor<?x6xi32>, tensor<?x4x10xf64>) -> (tensor<?x5x12xf64>, tensor<?x4x5xf64>)
  return %o : tensor<?x5x12xf64>
})"},
    {"relative_bias", 2, R"(
func.func private @relative_bias(%q: tensor<?x7x2x3xf64>, %k: tensor<?x7x2x3xf64>, %near: tensor<3x2xf64>, %far: tensor<8x2xf64>) -> tensor<?x7x6xf64> {
  %b = nn.relative_bias %near {max_distance = 4 : i64} : (tensor<3x2xf64>) -> tensor<?x2x13xf64>
  %o, %l = nn.grouped_attention %q, %k, %k bias %b {causal, scale = 1.0 : f64} : (tensor<?x7x2x3xf64>, tensor<?x7x2x3xf64>, tensor<?x7x2x3xf64>, tensor<?x2x13xf64>) -> (tensor<?x7x6xf64>, tensor<?x2x7xf64>)
  %c = nn.relative_bias %far {bidirectional, max_distance = 6 : i64} : (tensor<8x2xf64>) -> tensor<?x2x13xf64>
  %p, %n = nn.grouped_attention %q, %k, %k bias %c {scale = 5.0e-1 : f64} : (tensor<?x7x2x3xf64>, tensor<?x7x2x3xf64>, tensor<?x7x2x3xf64>, tensor<?x2x13xf64>) -> (tensor<?x7x6xf64>, tensor<?x2x7xf64>)
  %y = nn.add %o, %p : (tensor<?x7x6xf64>, tensor<?x7x6xf64>) -> tensor<?x7x6xf64>
  return %y : tensor<?x7x6xf64>
})"},
    {"gated_gelu", 2, R"(
func.func private @gated_gelu(%g: tensor<?x7xf64>, %u: tensor<?x7xf64>) -> tensor<?x7xf64> {
  %y = nn.gated_gelu %g, %u : (tensor<?x7xf64>, tensor<?x7xf64>) -> tensor<?x7xf64>
  return %y : tensor<?x7xf64>
})"},
    {"relu_and_scale", 1, R"(
func.func private @relu_and_scale(%x: tensor<?x7xf64>) -> tensor<?x7xf64> {
  %y = nn.relu %x : (tensor<?x7xf64>) -> tensor<?x7xf64>
  %z = nn.scale %y {factor = -1.5 : f64} : (tensor<?x7xf64>) -> tensor<?x7xf64>
  return %z : tensor<?x7xf64>
})"},
    {"prepend", 1, R"(
func.func private @prepend(%x: tensor<?x3x4xf64>, %t: tensor<4xf64>) -> tensor<?x4x4xf64> {
  %y = nn.prepend %x, %t : (tensor<?x3x4xf64>, tensor<4xf64>) -> tensor<?x4x4xf64>
  return %y : tensor<?x4x4xf64>
})"},
    {"take", 1, R"(
func.func private @take(%x: tensor<?x3x4xf64>) -> tensor<?x4xf64> {
  %y = nn.take %x {position = 2 : i64} : (tensor<?x3x4xf64>) -> tensor<?x4xf64>
  return %y : tensor<?x4xf64>
})"},
    {"windows", 1, R"(
func.func private @windows(%x: tensor<?x15x3xf64>) -> tensor<?x4x4x3xf64> {
  %y = nn.windows %x {rows = 3 : i64, columns = 5 : i64, window = 3 : i64, shift = 1 : i64} : (tensor<?x15x3xf64>) -> tensor<?x2x9x3xf64>
  %z = nn.join_windows %y {rows = 3 : i64, columns = 4 : i64, window = 3 : i64, shift = 2 : i64} : (tensor<?x2x9x3xf64>) -> tensor<?x12x3xf64>
  %u = nn.windows %z {rows = 3 : i64, columns = 4 : i64, window = 2 : i64} : (tensor<?x12x3xf64>) -> tensor<?x4x4x3xf64>
  return %u : tensor<?x4x4x3xf64>
})"},
    {"merged_windows", 1, R"(
func.func private @merged_windows(%x: tensor<?x15x2xf64>) -> tensor<?x6x8xf64> {
  %y = nn.windows %x {rows = 3 : i64, columns = 5 : i64, window = 2 : i64, merge} : (tensor<?x15x2xf64>) -> tensor<?x6x8xf64>
  return %y : tensor<?x6x8xf64>
})"},
    {"window_attention", 3, R"(
func.func private @window_attention(%q: tensor<?x4x4x2x3xf64>, %k: tensor<?x4x4x2x3xf64>, %v: tensor<?x4x4x2x3xf64>, %t: tensor<9x2xf64>) -> tensor<?x4x4x6xf64> {
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 2 : i64, scale = 6.0e-1 : f64} : (tensor<?x4x4x2x3xf64>, tensor<?x4x4x2x3xf64>, tensor<?x4x4x2x3xf64>, tensor<9x2xf64>) -> (tensor<?x4x4x6xf64>, tensor<?x4x2x4xf64>)
  return %o : tensor<?x4x4x6xf64>
})"},
    {"turned_window_attention", 3, R"(
func.func private @turned_window_attention(%q: tensor<?x6x9x1x3xf64>, %k: tensor<?x6x9x1x3xf64>, %v: tensor<?x6x9x1x3xf64>, %t: tensor<25x1xf64>) -> tensor<?x6x9x3xf64> {
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 3 : i64, across = 3 : i64, shift = 1 : i64, scale = 6.0e-1 : f64, dropout = 2.0e-1 : f64, op_index = 3 : i64} : (tensor<?x6x9x1x3xf64>, tensor<?x6x9x1x3xf64>, tensor<?x6x9x1x3xf64>, tensor<25x1xf64>) -> (tensor<?x6x9x3xf64>, tensor<?x6x1x9xf64>)
  return %o : tensor<?x6x9x3xf64>
})"},
    {"drop_path", 1, R"(
func.func private @drop_path(%x: tensor<?x3x4xf64>) -> tensor<?x3x4xf64> {
  %y = nn.drop_path %x {rate = 2.0e-1 : f64, first_layer = 0 : i64, op_index = 1 : i64} : (tensor<?x3x4xf64>) -> tensor<?x3x4xf64>
  return %y : tensor<?x3x4xf64>
})"},
    {"mean", 1, R"(
func.func private @mean(%x: tensor<?x3x4xf64>) -> tensor<?x4xf64> {
  %y = nn.mean %x : (tensor<?x3x4xf64>) -> tensor<?x4xf64>
  return %y : tensor<?x4xf64>
})"},
    {"mean_beside_first", 1, R"(
func.func private @mean_beside_first(%x: tensor<?x3x4xf64>) -> tensor<?x8xf64> {
  %y = nn.mean %x {beside_first} : (tensor<?x3x4xf64>) -> tensor<?x8xf64>
  return %y : tensor<?x8xf64>
})"},
    {"transpose", 1, R"(
func.func private @transpose(%x: tensor<?x3x4xf64>) -> tensor<?x4x3xf64> {
  %y = nn.transpose %x : (tensor<?x3x4xf64>) -> tensor<?x4x3xf64>
  return %y : tensor<?x4x3xf64>
})"},
    {"dropout", 1, R"(
func.func private @dropout(%x: tensor<?x3x4xf64>) -> tensor<?x3x4xf64> {
  %y = nn.dropout %x {p = 4.0e-1 : f64, op_index = 1 : i64} : (tensor<?x3x4xf64>) -> tensor<?x3x4xf64>
  return %y : tensor<?x3x4xf64>
})"},
    {"add_of_one_value", 1, R"(
func.func private @add_of_one_value(%x: tensor<?x4xf64>) -> tensor<?x4xf64> {
  %y = nn.add %x, %x : (tensor<?x4xf64>, tensor<?x4xf64>) -> tensor<?x4xf64>
  return %y : tensor<?x4xf64>
})"},
    {"cross_entropy", 2, R"(
func.func private @cross_entropy(%x: tensor<?x3x5xf64>, %l: tensor<?x3xi32>) -> tensor<1xf64> {
  %y, %d = nn.cross_entropy %x, %l {classes = 5 : i64} : (tensor<?x3x5xf64>, tensor<?x3xi32>) -> (tensor<1xf64>, tensor<?x3x5xf64>)
  return %y : tensor<1xf64>
})"},
    {"regularized_cross_entropy", 2, R"(
func.func private @regularized_cross_entropy(%x: tensor<?x3x5xf64>, %l: tensor<?x3xi32>) -> tensor<2xf64> {
  %y, %d = nn.cross_entropy %x, %l {classes = 5 : i64, smoothing = 1.0e-1 : f64, z_loss = 3.0e-1 : f64} : (tensor<?x3x5xf64>, tensor<?x3xi32>) -> (tensor<2xf64>, tensor<?x3x5xf64>)
  return %y : tensor<2xf64>
})"},
    {"parameter_used_twice", 1, R"(
func.func private @parameter_used_twice(%x: tensor<?x4xf64>, %w: tensor<4x4xf64>) -> tensor<?x4xf64> {
  %y = nn.linear %x, %w : (tensor<?x4xf64>, tensor<4x4xf64>) -> tensor<?x4xf64>
  %z = nn.gelu %y : (tensor<?x4xf64>) -> tensor<?x4xf64>
  %u = nn.linear %z, %w {transpose_weight} : (tensor<?x4xf64>, tensor<4x4xf64>) -> tensor<?x4xf64>
  return %u : tensor<?x4xf64>
})"},
    {"two_outputs", 2, R"(
func.func private @two_outputs(%x: tensor<?x4xf64>, %z: tensor<?x4xf64>, %b: tensor<4xf64>) -> (tensor<?x4xf64>, tensor<?x4xf64>) {
  %y = nn.bias_add %x, %b : (tensor<?x4xf64>, tensor<4xf64>) -> tensor<?x4xf64>
  %u = nn.gelu %y : (tensor<?x4xf64>) -> tensor<?x4xf64>
  %v = nn.add %u, %z : (tensor<?x4xf64>, tensor<?x4xf64>) -> tensor<?x4xf64>
  return %y, %v : tensor<?x4xf64>, tensor<?x4xf64>
})"},
    {"test_operations", 1, R"(
func.func private @test_operations(%x: tensor<?x4xf64>) -> tensor<?x4xf64> {
  %y = test_nn.scaled_gelu %x {factor = 1.5 : f64} : tensor<?x4xf64>
  %z = test_nn.scale %y {factor = -0.5 : f64} : tensor<?x4xf64>
  return %z : tensor<?x4xf64>
})"},
};

class OperationGradient : public testing::TestWithParam<OperationCase> {};

TEST_P(OperationGradient, AgreesWithDifferences) {
  auto context = makeContext();
  auto module = parseModule(*context, GetParam().body);
  ASSERT_TRUE(module);
  checkGradients(*module, GetParam().name, GetParam().inputs, kClasses);
}

INSTANTIATE_TEST_SUITE_P(NN, OperationGradient, testing::ValuesIn(kOperations),
                         [](const auto &info) {
                           return std::string(info.param.name);
                         });

class BodyGradient
    : public testing::TestWithParam<std::pair<const char *, unsigned>> {};

TEST_P(BodyGradient, AgreesWithDifferences) {
  auto context = makeContext();
  auto module = parseModule(*context, bodiesText());
  ASSERT_TRUE(module);
  checkGradients(*module, GetParam().first, GetParam().second, 33);
}

INSTANTIATE_TEST_SUITE_P(
    NN, BodyGradient,
    testing::Values(std::pair("embed", 1u), std::pair("block", 1u),
                    std::pair("head", 2u), std::pair("gated", 1u),
                    std::pair("masked", 2u), std::pair("biased", 2u),
                    std::pair("windowed", 1u), std::pair("mixed", 1u),
                    std::pair("classes", 2u), std::pair("test", 1u)),
    [](const auto &info) { return std::string(info.param.first); });

/// The text of the only error that differentiation reports.
std::string differentiationError(llvm::StringRef text, unsigned inputs) {
  auto context = makeContext();
  std::string error;
  mlir::ScopedDiagnosticHandler handler(context.get(),
                                        [&](mlir::Diagnostic &diagnostic) {
                                          error = diagnostic.str();
                                          return mlir::success();
                                        });
  auto module = parseModule(*context, text);
  auto body = *module->getOps<mlir::func::FuncOp>().begin();
  EXPECT_TRUE(mlir::failed(
      mlir::nn::differentiateBody(body, integersOf(body, inputs))));
  return error;
}

TEST(Differentiate, RefusesAnOperationWithoutGradient) {
  EXPECT_EQ(differentiationError(R"(
func.func private @body(%x: tensor<?x4xf64>) -> tensor<?x4xf64> {
  %y = test_nn.opaque %x : tensor<?x4xf64>
  return %y : tensor<?x4xf64>
})",
                                 1),
            "expected an operation with a gradient, found 'test_nn.opaque'");
}

TEST(Differentiate, RefusesAParameterThatIsNotUsed) {
  EXPECT_EQ(differentiationError(R"(
func.func private @body(%x: tensor<?x4xf64>, %b: tensor<4xf64>) -> tensor<?x4xf64> {
  %y = nn.gelu %x : (tensor<?x4xf64>) -> tensor<?x4xf64>
  return %y : tensor<?x4xf64>
})",
                                 1),
            "expected every argument but data to reach the result, "
            "argument 1 does not");
}

} // namespace
