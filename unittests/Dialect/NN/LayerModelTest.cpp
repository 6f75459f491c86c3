//===- LayerModelTest.cpp - Footprints against hand counts ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// GPT-2 124M: 12 layers of width 768 with 12 heads, 1024 positions, 50257
// tokens. The expected numbers are worked out here from those five.
//
//===----------------------------------------------------------------------===//

#include "../../Collectives.h"
#include "TestBodies.h"
#include "galvatron/Dialect/Galvatron/Transforms/ModelFlops.h"
#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Footprint/IRLayerModel.h"
#include "galvatron/Import/HuggingFace.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace galvatron::tests;
using galvatron::Collective;
using galvatron::CollectiveGroup;
using galvatron::CollectiveTime;
using galvatron::LayerFootprint;
using galvatron::LayerModel;
using galvatron::Strategy;

namespace {

constexpr int64_t kWidth = 768, kLayers = 12, kVocabulary = 50257,
                  kPositions = 1024, kTokens = 64, kHeads = 12;
// Query, key and value; output projection; both halves of the feed-forward
// network; each with its bias; two layer norms.
constexpr int64_t kBlockParameters =
    kWidth * 3 * kWidth + 3 * kWidth + kWidth * kWidth + kWidth +
    2 * kWidth * 4 * kWidth + 4 * kWidth + kWidth + 4 * kWidth;
constexpr int64_t kEmbedding = kVocabulary * kWidth;
constexpr size_t kEmbed = 0, kBlock = 1, kHead = 2; ///< kinds

class Gpt2Footprints : public testing::Test {
protected:
  void SetUp() override {
    context = makeContext();
    auto imported = galvatron::importHuggingFaceConfig(
        R"({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12,
            "n_positions": 1024, "vocab_size": 50257})",
        "config.json", {kTokens, "f32"}, *context);
    ASSERT_TRUE(bool(imported)) << llvm::toString(imported.takeError());
    module = std::move(*imported);
    auto created = galvatron::createIRLayerModel(*module, "adamw", {"cpu", 1});
    ASSERT_TRUE(bool(created)) << llvm::toString(created.takeError());
    model = std::move(*created);
  }

  LayerFootprint footprint(size_t kind, llvm::StringRef strategy,
                           int64_t samples) {
    auto parsed = Strategy::parse(strategy);
    EXPECT_TRUE(bool(parsed));
    auto result = model->footprint(kind, *parsed, samples);
    EXPECT_TRUE(bool(result)) << llvm::toString(result.takeError());
    return result ? *result : LayerFootprint();
  }
  std::string refusal(size_t kind, llvm::StringRef strategy) {
    auto result = model->footprint(kind, *Strategy::parse(strategy), 4);
    return result ? "accepted" : llvm::toString(result.takeError());
  }

  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::unique_ptr<LayerModel> model;
};

TEST_F(Gpt2Footprints, LayersAndKinds) {
  ASSERT_EQ(model->layerCount(), size_t(kLayers + 2));
  EXPECT_EQ(model->kindOf(0), kEmbed);
  for (int64_t i = 1; i <= kLayers; ++i)
    EXPECT_EQ(model->kindOf(i), kBlock);
  EXPECT_EQ(model->kindOf(kLayers + 1), kHead);
  EXPECT_EQ(model->boundaryBytesPerSample(0), kTokens * kWidth * 4);
  EXPECT_EQ(model->boundaryBytesPerSample(kLayers + 1), 0);
  ASSERT_EQ(model->ties().size(), 1u);
  EXPECT_EQ(model->ties()[0].ownerLayer, 0u);
  EXPECT_EQ(model->ties()[0].borrowerLayer, size_t(kLayers + 1));
  EXPECT_EQ(model->ties()[0].bytes, kEmbedding * 4);
}

TEST_F(Gpt2Footprints, ParametersOfTheWholeModel) {
  EXPECT_EQ(kBlockParameters, 7087872);
  EXPECT_EQ(footprint(kEmbed, "single", 1).parameterBytes,
            (kEmbedding + kPositions * kWidth) * 4);
  EXPECT_EQ(footprint(kBlock, "single", 1).parameterBytes,
            kBlockParameters * 4);
  EXPECT_EQ(footprint(kHead, "single", 1).parameterBytes,
            (2 * kWidth + kEmbedding) * 4);

  int64_t bytes = 0, optimizer = 0;
  for (size_t layer = 0; layer < model->layerCount(); ++layer) {
    LayerFootprint each = footprint(model->kindOf(layer), "single", 1);
    bytes += each.parameterBytes;
    optimizer += each.optimizerBytes;
    EXPECT_EQ(each.gradientBytes, each.parameterBytes);
  }
  // The head borrows the embedding: it holds a value, but no optimizer state.
  EXPECT_EQ(bytes - model->ties()[0].bytes, 124439808 * 4);
  EXPECT_EQ(optimizer, 2 * 124439808ll * 4);
}

TEST_F(Gpt2Footprints, ShardsOfTheParameters) {
  // Only the layer norms and the biases of the row products stay whole.
  int64_t replicated = 4 * kWidth + 2 * kWidth;
  EXPECT_EQ(footprint(kBlock, "tp4", 1).parameterBytes,
            ((kBlockParameters - replicated) / 4 + replicated) * 4);
  EXPECT_EQ(footprint(kBlock, "sdp4", 1).parameterBytes, kBlockParameters);
  EXPECT_EQ(footprint(kBlock, "sdp4", 1)
                .bytesOf(CollectiveGroup::Parameters, Collective::AllGather,
                         CollectiveTime::Forward),
            kBlockParameters * 4);
  // ceil(50257 / 4) = 12565 rows.
  EXPECT_EQ(footprint(kHead, "tp4", 1).parameterBytes,
            (12565 * kWidth + 2 * kWidth) * 4);
}

TEST_F(Gpt2Footprints, CollectivesAreListedByTheirTime) {
  using Group = CollectiveGroup;
  using Time = CollectiveTime;
  using List = llvm::SmallVector<galvatron::LayerCollective, 6>;
  int64_t gathered = kBlockParameters * 4;
  // One sample's activations are summed twice in a pass, once behind attention
  // in a recomputation, whose gather serves backward.
  int64_t activation = int64_t(kTokens) * kWidth * 4;
  EXPECT_EQ(
      footprint(kBlock, "sdp4", 1).collectives,
      (List{
          {Group::Parameters, Collective::AllGather, Time::Forward, gathered},
          {Group::Parameters, Collective::AllGather, Time::Backward, gathered},
          {Group::Parameters, Collective::ReduceScatter, Time::Backward,
           gathered}}));
  LayerFootprint both = footprint(kBlock, "tp2.sdp4.ckpt", 1);
  int64_t whole = both.parameterBytes * 4;
  EXPECT_EQ(
      both.collectives,
      (List{{Group::Tensor, Collective::AllReduce, Time::Forward,
             2 * activation, 2},
            {Group::Tensor, Collective::AllReduce, Time::Recompute, activation},
            {Group::Tensor, Collective::AllReduce, Time::Backward,
             2 * activation, 2},
            {Group::Parameters, Collective::AllGather, Time::Forward, whole},
            {Group::Parameters, Collective::AllGather, Time::Recompute, whole},
            {Group::Parameters, Collective::ReduceScatter, Time::Backward,
             whole}}));
  // The head borrows the embedding: its gradient goes whole to the owner.
  LayerFootprint head = footprint(kHead, "zdp2", 1);
  int64_t owned = head.gradientBytes - head.borrowedGradientBytes;
  EXPECT_EQ(
      head.collectives,
      (List{{Group::Gradients, Collective::ReduceScatter, Time::Step, owned},
            {Group::Gradients, Collective::AllGather, Time::Update, owned},
            {Group::Gradients, Collective::AllReduce, Time::Step,
             head.borrowedGradientBytes}}));
}

TEST_F(Gpt2Footprints, FlopsOfMatrixProducts) {
  constexpr int64_t samples = 4;
  double rows = samples * kTokens;
  // 12 * width^2 multiply-adds a token in the four products.
  double products = 2.0 * rows * 12 * kWidth * kWidth;
  // Scores and weighted values, half of them under the causal mask.
  double attention = 2 * (2.0 * rows * kTokens * kWidth) / 2;
  LayerFootprint block = footprint(kBlock, "single", samples);
  EXPECT_DOUBLE_EQ(block.forwardFlops, products + attention);
  EXPECT_DOUBLE_EQ(block.backwardFlops, 2 * products + 2.5 * attention);
  LayerFootprint half = footprint(kBlock, "tp2", samples);
  EXPECT_DOUBLE_EQ(half.forwardFlops, (products + attention) / 2);
  EXPECT_DOUBLE_EQ(half.backwardFlops, products + 1.25 * attention);
  EXPECT_DOUBLE_EQ(footprint(kHead, "single", samples).forwardFlops,
                   2.0 * rows * kEmbedding);
  EXPECT_EQ(footprint(kEmbed, "single", samples).forwardFlops, 0);
}

TEST_F(Gpt2Footprints, Communication) {
  constexpr int64_t samples = 4, activation = samples * kTokens * kWidth * 4;
  LayerFootprint block = footprint(kBlock, "tp2", samples);
  EXPECT_EQ(tensorCalls(block, CollectiveTime::Forward).calls, 2);
  EXPECT_EQ(tensorCalls(block, CollectiveTime::Forward).bytes, 2 * activation);
  EXPECT_EQ(tensorCalls(block, CollectiveTime::Backward).calls, 2);
  EXPECT_EQ(tensorCalls(block, CollectiveTime::Backward).bytes, 2 * activation);
  EXPECT_EQ(
      tensorCalls(footprint(kBlock, "single", samples), CollectiveTime::Forward)
          .calls,
      0);
  EXPECT_EQ(footprint(kBlock, "sdp2", samples)
                .bytesOf(CollectiveGroup::Gradients, Collective::AllReduce,
                         CollectiveTime::Step),
            0);
  EXPECT_EQ(footprint(kBlock, "dp2", samples)
                .bytesOf(CollectiveGroup::Gradients, Collective::AllReduce,
                         CollectiveTime::Step),
            kBlockParameters * 4);
  // The recomputation leaves out the last product and so its all-reduce.
  LayerFootprint checkpointed = footprint(kBlock, "tp2.ckpt", samples);
  EXPECT_EQ(tensorCalls(checkpointed, CollectiveTime::Recompute).calls, 1);
  EXPECT_EQ(tensorCalls(checkpointed, CollectiveTime::Recompute).bytes,
            activation);
  // Three numbers a row of each shard.
  LayerFootprint head = footprint(kHead, "tp2", samples);
  EXPECT_EQ(tensorCalls(head, CollectiveTime::Forward).calls, 1);
  EXPECT_EQ(tensorCalls(head, CollectiveTime::Forward).bytes,
            2 * samples * kTokens * 3 * 4);
  EXPECT_EQ(tensorCalls(head, CollectiveTime::Backward).calls, 1);
}

TEST_F(Gpt2Footprints, StashOfABlock) {
  constexpr int64_t samples = 4;
  int64_t rows = samples * kTokens;
  // Both normalised rows and their statistics, queries to values, the output of
  // attention and its sums, the first residual sum, the feed-forward network
  // before and after GELU.
  int64_t elements = rows * (2 * kWidth + 2 * 2 + 3 * kWidth + kWidth + kHeads +
                             kWidth + 2 * 4 * kWidth);
  EXPECT_EQ(footprint(kBlock, "single", samples).stashBytes, elements * 4);
  EXPECT_EQ(footprint(kBlock, "single.ckpt", samples).stashBytes, 0);
  EXPECT_EQ(footprint(kBlock, "single", samples).inputBytes, rows * kWidth * 4);
  EXPECT_EQ(footprint(kEmbed, "single", samples).stashBytes, 0);
  EXPECT_EQ(footprint(kEmbed, "single", samples).inputBytes, 0);
  EXPECT_EQ(footprint(kEmbed, "single", samples).dataBytesPerSample,
            (llvm::SmallVector<int64_t, 2>{kTokens * 4}));
}

TEST_F(Gpt2Footprints, Refusals) {
  EXPECT_EQ(refusal(kBlock, "tp8"),
            "factor 'heads' has 12 units, which tensor parallel degree 8 does "
            "not divide");
  EXPECT_EQ(refusal(kHead, "tp8"), "accepted");
}

TEST_F(Gpt2Footprints, FlopsOfASampleForUtilisation) {
  // Six FLOPs a parameter in products, and attention; nothing for the tables.
  double products = 6.0 * (kLayers * 12.0 * kWidth * kWidth + kEmbedding);
  double attention = 3.0 * kLayers * 2 * (2.0 * kTokens * kWidth) / 2;
  EXPECT_DOUBLE_EQ(mlir::galvatron::countModelFlopsPerSample(*module),
                   kTokens * (products + attention));
}

// Sizes of products are harmonic means of their dimensions.
TEST_F(Gpt2Footprints, ProductSizes) {
  LayerFootprint block = footprint(kBlock, "single", 2);
  double rows = 2 * kTokens, width = kWidth, sum = 0;
  auto size = [](double m, double n, double k) {
    return 3 / (1 / m + 1 / n + 1 / k);
  };
  auto flopsOf = [&](double wanted, bool attention) {
    double flops = 0;
    for (const galvatron::ProductWork &product : block.forwardProducts)
      // Biases are read beside the products.
      if (product.attention == attention &&
          std::abs(product.size / wanted - 1) < 0.01)
        flops += product.flops;
    return flops;
  };
  EXPECT_EQ(flopsOf(size(rows, 3 * width, width), false),
            2 * rows * 3 * width * width);
  EXPECT_EQ(flopsOf(size(rows, width, width), false), 2 * rows * width * width);
  EXPECT_EQ(flopsOf(size(rows, 4 * width, width), false),
            2 * 2 * rows * 4 * width * width);
  // Scores of one head: 64 positions, heads of 64; half of it is causal.
  EXPECT_EQ(flopsOf(64, true), 2 * 2 * rows * kTokens * width / 2);
  for (const galvatron::ProductWork &product : block.forwardProducts)
    sum += product.flops;
  EXPECT_DOUBLE_EQ(sum, block.forwardFlops);
}

/// The planning passes know footprints by name only: a context has them where
/// registerFootprints() was called.
TEST_F(Gpt2Footprints, PlanningAsksTheContext) {
  auto cluster = galvatron::Cluster::load("4xcpu");
  ASSERT_TRUE(bool(cluster)) << llvm::toString(cluster.takeError());
  auto found = mlir::galvatron::createLayerModel(*module, *cluster);
  ASSERT_TRUE(mlir::succeeded(found));
  EXPECT_EQ((*found)->hash(), model->hash());

  std::string text;
  llvm::raw_string_ostream(text) << *module;
  mlir::MLIRContext plain;
  plain.loadDialect<mlir::func::FuncDialect, mlir::galvatron::GalvatronDialect,
                    mlir::nn::NNDialect>();
  auto copy = mlir::parseSourceString<mlir::ModuleOp>(text, &plain);
  ASSERT_TRUE(copy);
  std::string message;
  mlir::ScopedDiagnosticHandler handler(
      &plain,
      [&](mlir::Diagnostic &diagnostic) { message = diagnostic.str(); });
  EXPECT_TRUE(mlir::failed(mlir::galvatron::createLayerModel(*copy, *cluster)));
  EXPECT_EQ(message, "expected the context to have footprints: see "
                     "registerFootprints()");
}

} // namespace
