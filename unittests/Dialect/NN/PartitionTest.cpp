//===- PartitionTest.cpp - Partitioned bodies against whole ones ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every rank's program, as partition, collectives and fusion leave it, run by
// the reference executor with all ranks of the tensor-parallel group in lock
// step, must give what the whole body gives on one rank.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"
#include "TestBodies.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "mlir/IR/Verifier.h"
#include "gtest/gtest.h"

using namespace galvatron::tests;
using galvatron::Paradigm;
using galvatron::Strategy;
using galvatron::reference::Context;
using galvatron::reference::evaluate;
using galvatron::reference::evaluateRanks;
using galvatron::reference::Tensor;
using mlir::nn::ValueRole;

namespace {

constexpr int64_t kSamples = 4, kVocabulary = 33;
constexpr double kTolerance = 1e-12;

struct PartitionCase {
  const char *body;
  unsigned inputs;
  const char *strategy;
  bool products = false; ///< fused with what stands behind them
  int64_t classes = kVocabulary;
};

/// Rank `index`'s slice; past the end of the tensor there are zeros.
Tensor slice(const Tensor &whole, int64_t dim, int64_t index, int64_t count) {
  std::vector<int64_t> shape = whole.shape;
  shape[dim] = (shape[dim] + count - 1) / count;
  Tensor part = Tensor::zeros(shape);
  int64_t inner = 1, outer = 1;
  for (size_t i = dim + 1; i < shape.size(); ++i)
    inner *= shape[i];
  for (int64_t i = 0; i < dim; ++i)
    outer *= shape[i];
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t d = 0; d < shape[dim]; ++d) {
      int64_t global = index * shape[dim] + d;
      if (global >= whole.shape[dim])
        continue;
      for (int64_t i = 0; i < inner; ++i)
        part.values[(o * shape[dim] + d) * inner + i] =
            whole.values[(o * whole.shape[dim] + global) * inner + i];
    }
  return part;
}

/// Some samples of a tensor whose first dimension counts them.
Tensor sampleBlock(const Tensor &whole, int64_t first, int64_t count) {
  Tensor part;
  part.shape = whole.shape;
  part.shape[0] = count;
  int64_t size = whole.size() / whole.shape[0];
  part.values.assign(whole.values.begin() + first * size,
                     whole.values.begin() + (first + count) * size);
  return part;
}

class PartitionedBody : public testing::TestWithParam<PartitionCase> {
protected:
  Context contextAt(int64_t firstSample) {
    Context context;
    context.seed = 3;
    context.step = 2;
    context.layer = 1;
    context.inverseTokens = 1.0 / 29;
    context.firstSample = firstSample;
    return context;
  }
  /// The dimension along which an argument is cut, or -1.
  static int64_t splitDim(mlir::func::FuncOp function, unsigned argument) {
    auto slice = mlir::galvatron::SliceAttr::of(function, argument);
    if (!slice || !slice.getStateOn(0).isSplit())
      return -1;
    return slice.getStateOn(0).dim();
  }

  /// The whole arguments' slices for all ranks of one tensor-parallel group.
  std::vector<std::vector<Tensor>> distribute(mlir::func::FuncOp function,
                                              std::vector<Tensor> arguments,
                                              int64_t ranks) {
    std::vector<std::vector<Tensor>> result(ranks);
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (unsigned i = 0; i < arguments.size(); ++i) {
        int64_t dim = splitDim(function, i);
        result[rank].push_back(dim >= 0 ? slice(arguments[i], dim, rank, ranks)
                                        : arguments[i]);
      }
    return result;
  }
};

TEST_P(PartitionedBody, EqualsTheWholeOne) {
  auto context = makeContext();
  auto module = parseModule(*context, bodiesText());
  ASSERT_TRUE(module);
  auto body = module->lookupSymbol<mlir::func::FuncOp>(GetParam().body);
  unsigned inputs = GetParam().inputs;
  auto derived = mlir::nn::differentiateBody(body, integersOf(body, inputs));
  ASSERT_TRUE(mlir::succeeded(derived));

  // The whole body.
  Numbers numbers(5);
  std::vector<Tensor> arguments =
      makeArguments(body, kSamples, GetParam().classes, numbers);
  auto whole = evaluate(derived->forward, arguments, contextAt(0));
  ASSERT_TRUE(bool(whole));
  std::vector<Tensor> outputGradients;
  for (unsigned index : argumentsWith(derived->backward, {ValueRole::Gradient}))
    outputGradients.push_back(numbers.tensor(
        derived->backward.getArgumentTypes()[index], kSamples, 0));
  std::vector<Tensor> backwardArguments = outputGradients;
  backwardArguments.insert(backwardArguments.end(), arguments.begin(),
                           arguments.begin() + inputs);
  for (unsigned index : resultsWith(derived->forward, {ValueRole::Stash}))
    backwardArguments.push_back((*whole)[index]);
  backwardArguments.insert(backwardArguments.end(), arguments.begin() + inputs,
                           arguments.end());
  auto wholeBackward =
      evaluate(derived->backward, backwardArguments, contextAt(0));
  ASSERT_TRUE(bool(wholeBackward));

  // The same under the strategy, as the passes do it.
  Strategy strategy = *Strategy::parse(GetParam().strategy);
  int64_t ranks = strategy.degree(Paradigm::TP);
  int64_t shards = strategy.sampleShards(), samples = kSamples / shards;
  mlir::galvatron::LayerFunctions functions;
  functions.forward = derived->forward;
  functions.backward = derived->backward;
  if (strategy.checkpoint()) {
    functions.recompute = mlir::nn::buildRecompute(derived->forward, "again");
    if (functions.recompute)
      functions.forward = mlir::nn::buildForwardOnly(derived->forward, "only");
  }
  auto local = mlir::galvatron::partitionLayer(functions, strategy, samples,
                                               "local", {});
  ASSERT_TRUE(mlir::succeeded(local));
  ASSERT_TRUE(mlir::succeeded(mlir::verify(*module)));
  for (mlir::func::FuncOp function :
       {local->forward, local->recompute, local->backward})
    if (function) {
      ASSERT_TRUE(
          mlir::succeeded(mlir::galvatron::insertCollectives(function)));
      mlir::nn::fuseFunction(function);
      if (GetParam().products)
        mlir::nn::fuseProducts(function);
    }
  ASSERT_TRUE(mlir::succeeded(mlir::verify(*module)));

  std::vector<Tensor> parameterGradients[8];
  double loss = 0;
  for (int64_t block = 0; block < shards; ++block) {
    int64_t first = block * samples;
    std::vector<Tensor> mine = arguments, gradients;
    for (unsigned i = 0; i < inputs; ++i)
      mine[i] = sampleBlock(arguments[i], first, samples);
    for (const Tensor &gradient : outputGradients)
      gradients.push_back(sampleBlock(gradient, first, samples));

    auto forward =
        evaluateRanks(local->forward, distribute(local->forward, mine, ranks),
                      contextAt(first));
    ASSERT_TRUE(bool(forward)) << llvm::toString(forward.takeError());
    std::vector<std::vector<Tensor>> stash(ranks);
    auto keep = [&](mlir::func::FuncOp function,
                    const std::vector<std::vector<Tensor>> &results) {
      for (unsigned index : resultsWith(function, {ValueRole::Stash}))
        for (int64_t rank = 0; rank < ranks; ++rank)
          stash[rank].push_back(results[rank][index]);
    };
    keep(local->forward, *forward);
    if (local->recompute) {
      auto again = evaluateRanks(local->recompute,
                                 distribute(local->recompute, mine, ranks),
                                 contextAt(first));
      ASSERT_TRUE(bool(again)) << llvm::toString(again.takeError());
      keep(local->recompute, *again);
    }
    for (unsigned index : resultsWith(local->forward, {ValueRole::Output}))
      for (int64_t rank = 0; rank < ranks; ++rank)
        EXPECT_LT(relativeError((*forward)[rank][index],
                                sampleBlock((*whole)[index], first, samples)),
                  kTolerance)
            << "output " << index << " on rank " << rank;
    for (unsigned index : resultsWith(local->forward, {ValueRole::Loss})) {
      loss += (*forward)[0][index].values[0];
      for (int64_t rank = 1; rank < ranks; ++rank)
        EXPECT_EQ((*forward)[rank][index].values, (*forward)[0][index].values);
    }

    // Stashed shards go back as they are; parameters are cut again.
    std::vector<std::vector<Tensor>> backwardInputs(ranks);
    auto parameters = argumentsWith(local->backward, {ValueRole::Parameter});
    for (int64_t rank = 0; rank < ranks; ++rank) {
      std::vector<Tensor> &list = backwardInputs[rank];
      list = gradients;
      list.insert(list.end(), mine.begin(), mine.begin() + inputs);
      list.insert(list.end(), stash[rank].begin(), stash[rank].end());
      for (auto [index, argument] : llvm::enumerate(parameters)) {
        int64_t dim = splitDim(local->backward, argument);
        const Tensor &parameter = arguments[inputs + index];
        list.push_back(dim >= 0 ? slice(parameter, dim, rank, ranks)
                                : parameter);
      }
    }
    auto backward =
        evaluateRanks(local->backward, backwardInputs, contextAt(first));
    ASSERT_TRUE(bool(backward)) << llvm::toString(backward.takeError());
    for (unsigned index :
         resultsWith(local->backward, {ValueRole::InputGradient}))
      for (int64_t rank = 0; rank < ranks; ++rank)
        EXPECT_LT(
            relativeError((*backward)[rank][index],
                          sampleBlock((*wholeBackward)[index], first, samples)),
            kTolerance)
            << "input gradient " << index << " on rank " << rank;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      std::vector<Tensor> &sums = parameterGradients[rank];
      size_t next = 0;
      for (unsigned index :
           resultsWith(local->backward, {ValueRole::ParameterGradient})) {
        const Tensor &part = (*backward)[rank][index];
        if (sums.size() == next)
          sums.push_back(Tensor::zeros(part.shape));
        for (int64_t i = 0; i < part.size(); ++i)
          sums[next].values[i] += part.values[i];
        ++next;
      }
    }
  }

  for (unsigned index : resultsWith(derived->forward, {ValueRole::Loss}))
    EXPECT_NEAR(loss, (*whole)[index].values[0], 1e-10);
  size_t next = 0;
  auto parameters = argumentsWith(local->backward, {ValueRole::Parameter});
  for (unsigned index :
       resultsWith(derived->backward, {ValueRole::ParameterGradient})) {
    int64_t dim = splitDim(local->backward, parameters[next]);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const Tensor &expected = (*wholeBackward)[index];
      // The slice pads with zeros: padding must not get a gradient.
      EXPECT_LT(relativeError(parameterGradients[rank][next],
                              dim >= 0 ? slice(expected, dim, rank, ranks)
                                       : expected),
                kTolerance)
          << "gradient of parameter " << next << " on rank " << rank;
    }
    ++next;
  }
}

std::vector<PartitionCase> partitionCases() {
  std::vector<PartitionCase> cases;
  for (const char *strategy :
       {"single", "tp2", "tp4", "single.ckpt", "tp2.ckpt", "tp4.ckpt",
        "dp2.tp2", "tp2.sdp2.ckpt", "sdp4"})
    for (auto [body, inputs] :
         {std::pair("embed", 1u), std::pair("block", 1u), std::pair("head", 2u),
          std::pair("gated", 1u), std::pair("shared", 1u),
          std::pair("masked", 2u), std::pair("biased", 2u),
          std::pair("windowed", 1u), std::pair("mixed", 1u),
          std::pair("classes", 2u), std::pair("test", 1u)})
      for (bool products : {false, true})
        cases.push_back({body, inputs, strategy, products});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(NN, PartitionedBody,
                         testing::ValuesIn(partitionCases()),
                         [](const auto &info) {
                           std::string name =
                               std::string(info.param.body) + "_" +
                               info.param.strategy +
                               (info.param.products ? "_products" : "");
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(Partition, LeavesNothingBehindWhenItRefuses) {
  auto context = makeContext();
  // Normalised over the split dimension.
  auto module = parseModule(*context, R"(
func.func private @body(%x: tensor<?x4xf64>, %w: tensor<4x8xf64> {nn.factors = ["", "ffn"]}, %g: tensor<8xf64>, %b: tensor<8xf64>) -> tensor<?x8xf64>
    attributes {nn.factor_units = {ffn = 8 : i64}} {
  %h = nn.linear %x, %w : (tensor<?x4xf64>, tensor<4x8xf64>) -> tensor<?x8xf64>
  %y, %s = nn.layer_norm %h, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8xf64>, tensor<8xf64>, tensor<8xf64>) -> (tensor<?x8xf64>, tensor<?x2xf64>)
  return %y : tensor<?x8xf64>
})");
  ASSERT_TRUE(module);
  std::string error;
  mlir::ScopedDiagnosticHandler handler(context.get(),
                                        [&](mlir::Diagnostic &diagnostic) {
                                          error = diagnostic.str();
                                          return mlir::success();
                                        });
  auto body = module->lookupSymbol<mlir::func::FuncOp>("body");
  auto derived = mlir::nn::differentiateBody(body, {false});
  ASSERT_TRUE(mlir::succeeded(derived));
  size_t before = llvm::range_size(module->getOps<mlir::func::FuncOp>());
  mlir::galvatron::LayerFunctions functions;
  functions.forward = derived->forward;
  functions.backward = derived->backward;
  EXPECT_TRUE(mlir::failed(mlir::galvatron::partitionLayer(
      functions, *Strategy::parse("tp2"), 2, "local", {})));
  EXPECT_EQ(error, "expected operand 0 to be split in a dimension that this "
                   "operation can split, found it split in dimension 1");
  EXPECT_EQ(llvm::range_size(module->getOps<mlir::func::FuncOp>()), before);
}

} // namespace
