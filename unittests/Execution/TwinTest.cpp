//===- TwinTest.cpp - A plan never changes the mathematics ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "galvatron/Strategy/DecisionTree.h"
#include "gtest/gtest.h"

using namespace galvatron;
using namespace galvatron::test;

namespace {

class TwinTest : public ::testing::Test {
protected:
  TwinTest() { loadTwinDialects(context); }

  void expectTwins(const TwinModel &model, const TwinPlan &plan,
                   const std::string &dtype, bool dropout = true) {
    SCOPED_TRACE(plan.str() + " " + dtype);
    for (const std::string &optimizer : optimizersInTurn(tried++)) {
      TwinOptions options;
      options.dtype = dtype;
      options.optimizer = optimizer;
      options.dropout = dropout;
      // With eps 1e-8 rounding decides the sign of tiny updates; see semantics.
      options.eps = dtype == "f64" ? 1e-8 : 1e-6;
      const TwinRun &expected = references.of(model, options, plan.batch);
      ASSERT_EQ(expected.error, "");
      TwinRun run = runTwin(context, model, plan, options);
      ASSERT_EQ(run.error, "");
      EXPECT_EQ(checkMemory(run), "");
      Bounds bounds = getBounds(dtype, optimizer);
      // One rank in bf16 is 9% from one in f32 there: embeddings start with
      // deviation 1, and rounding decides on which side of 0 a ReLU is.
      if (dtype == "bf16" && model.family == "t5")
        bounds.gradients = 0.15;
      EXPECT_EQ(compareRuns(run, expected, bounds), "") << "with " << optimizer;
    }
  }

  mlir::MLIRContext context;
  References references{context};
  size_t tried = 0;
};

TEST_F(TwinTest, MicroBatchesOnOneRank) {
  TwinModel model;
  expectTwins(model, singleRank(model, 16, 4), "f64");
  expectTwins(model, singleRank(model, 16, 4), "f32");
}

/// The long sweep (GALVATRON_LONG) also runs in single precision.
std::vector<std::string> sweptTypes() {
  if (std::getenv("GALVATRON_LONG"))
    return {"f64", "f32"};
  return {"f64"};
}

TEST_F(TwinTest, EveryStrategyOfEightRanks) {
  TwinModel model;
  for (int64_t stages : {8, 4, 2, 1})
    for (const Strategy &strategy :
         enumerateStrategies(8 / stages, allStrategies()))
      for (const char *schedule : {"1f1b", "gpipe"}) {
        if (stages == 1 && std::string(schedule) == "gpipe")
          continue;
        int64_t microBatches = stages == 1 ? 2 : 4;
        while (16 / microBatches % strategy.sampleShards() != 0)
          microBatches /= 2;
        for (const std::string &dtype : sweptTypes())
          expectTwins(
              model,
              uniformPlan(model, stages, strategy, 16, microBatches, schedule),
              dtype);
      }
}

TEST_F(TwinTest, PureStrategiesInSinglePrecision) {
  TwinModel model;
  for (const char *text : {"dp4", "sdp4", "tp4", "tp2.sdp2.ckpt", "dp2.tp2",
                           "tsp4", "sdp2.tsp2"}) {
    Strategy strategy = llvm::cantFail(Strategy::parse(text));
    expectTwins(model, uniformPlan(model, 2, strategy, 16, 4, "1f1b"), "f32");
  }
}

TEST_F(TwinTest, StrategiesInBfloat16) {
  TwinModel model;
  for (const char *text : {"dp4", "sdp4", "tp4", "tp2.sdp2.ckpt", "dp2.tp2",
                           "tsp4", "sdp2.tsp2"}) {
    Strategy strategy = llvm::cantFail(Strategy::parse(text));
    expectTwins(model, uniformPlan(model, 2, strategy, 16, 4, "1f1b"), "bf16");
  }
}

/// Learning by heart: the loss falls by a third, so that a wrong update shows.
/// Sums in another order (instruction sets, sanitizers) move the last losses in
/// bf16 by 0.6%; the two were seen 1 to 2.5% apart.
TEST_F(TwinTest, Bfloat16LearnsLikeSinglePrecision) {
  TwinModel model;
  TwinOptions options;
  options.sameBatch = true;
  options.dropout = false;
  options.steps = 50;
  options.learningRate = 1e-3;
  std::vector<double> losses[2];
  for (int i : {0, 1}) {
    options.dtype = i ? "bf16" : "f32";
    TwinRun run = runTwin(context, model, singleRank(model, 16), options);
    ASSERT_EQ(run.error, "");
    EXPECT_EQ(checkMemory(run), "");
    losses[i] = run.losses;
  }
  EXPECT_LT(losses[0].back(), 0.8 * losses[0].front());
  EXPECT_NE(losses[0], losses[1]);
  for (size_t step = 0; step < losses[0].size(); ++step)
    EXPECT_NEAR(losses[1][step], losses[0][step], 0.04 * losses[0][step])
        << "step " << step + 1;
}

TEST_F(TwinTest, RandomMixedPlans) {
  TwinModel model;
  std::mt19937 generator(2026);
  int64_t count = std::getenv("GALVATRON_LONG") ? 200 : 16;
  for (int64_t i = 0; i < count && !HasFatalFailure(); ++i) {
    TwinPlan plan = randomPlan(model, generator);
    for (const std::string &dtype : sweptTypes())
      expectTwins(model, plan, dtype);
  }
}

/// Boundaries of very different sizes: the buffers between layers are as large
/// as two neighbours need, not twice the largest.
TEST_F(TwinTest, BoundaryBuffersHoldTwoNeighbours) {
  TwinModel model;
  model.vocabulary = 251;
  model.positions = 32;
  model.width = 64;
  model.layers = 1;
  TwinPlan plan;
  plan.batch = 60;
  plan.microBatches = 4;
  plan.schedule = "gpipe";
  plan.stageLayers = {3};
  plan.devicesPerStage = 5;
  for (const char *text : {"tp5.ckpt", "sdp5", "dp5.ckpt"})
    plan.strategies.push_back(llvm::cantFail(Strategy::parse(text)));
  TwinOptions options;
  options.steps = 1;
  const TwinRun &expected = references.of(model, options, plan.batch);
  ASSERT_EQ(expected.error, "");
  TwinRun run = runTwin(context, model, plan, options);
  ASSERT_EQ(run.error, "");
  EXPECT_EQ(compareRuns(run, expected, getBounds("f64", "adamw")), "");
  for (const grt::RankMemory &rank : run.memory) {
    EXPECT_LE(rank.measuredPeakBytes, rank.plannedPeakBytes);
    EXPECT_LE(rank.plannedPeakBytes, rank.measuredPeakBytes + (256 << 10))
        << rank.measuredPeakBytes;
  }
}

/// A classifier head alone on a stage: its forward has larger temporaries than
/// its backward, which has gradients between layers instead.
TEST_F(TwinTest, ForwardTemporariesGoOnOverTheBoundary) {
  TwinModel model;
  model.vocabulary = 10;
  for (const auto &[family, schedule, strategy, head] :
       {std::tuple("swin", "1f1b", "sdp2", "dp2"),
        std::tuple("swin", "gpipe", "dp2", "sdp2"),
        std::tuple("vit", "2bw", "dp2.ckpt", "tp2")}) {
    model.family = family;
    TwinPlan plan;
    plan.batch = 256;
    plan.microBatches = 2;
    plan.schedule = schedule;
    plan.stageLayers = {model.modelLayers() - 1, 1};
    plan.devicesPerStage = 2;
    plan.strategies.assign(model.modelLayers() - 1,
                           llvm::cantFail(Strategy::parse(strategy)));
    plan.strategies.push_back(llvm::cantFail(Strategy::parse(head)));
    SCOPED_TRACE(plan.str());
    TwinOptions options;
    options.steps = 1;
    options.clip = schedule != std::string("2bw");
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
    for (const grt::RankMemory &rank : run.memory) {
      EXPECT_LE(rank.measuredPeakBytes, rank.plannedPeakBytes);
      EXPECT_LE(double(rank.plannedPeakBytes),
                std::max(1.05 * double(rank.measuredPeakBytes),
                         double(rank.measuredPeakBytes) + (64 << 10)))
          << "rank " << rank.rank << " " << rank.measuredPeakBytes;
    }
    if (!options.clip)
      continue;
    const TwinRun &expected = references.of(model, options, plan.batch);
    ASSERT_EQ(expected.error, "");
    EXPECT_EQ(compareRuns(run, expected, getBounds("f64", "adamw")), "");
  }
}

/// A number of a family that does not depend on the other families.
unsigned seedOf(const std::string &family) {
  unsigned seed = 2027;
  for (char letter : family)
    seed = 31 * seed + unsigned(letter);
  return seed;
}

/// Grouped heads, windows, biases, norms of heads and ties under plans whose
/// tensor parallelism reaches the number of key heads; masks, token types and
/// images; a decoder beside the encoder, biases that all blocks of a stack
/// read.
class FamilyTwinTest : public TwinTest,
                       public ::testing::WithParamInterface<const char *> {};

TEST_P(FamilyTwinTest, RandomMixedPlans) {
  TwinModel model;
  model.family = GetParam();
  // A few plans a family, other ones of each: together they are many. The
  // long run has the same for all.
  const bool isLong = std::getenv("GALVATRON_LONG");
  std::mt19937 generator(isLong ? 2027 : seedOf(model.family));
  int64_t count = isLong ? 40 : 2;
  for (int64_t i = 0; i < count && !HasFatalFailure(); ++i) {
    TwinPlan plan = randomPlan(model, generator);
    for (const std::string &dtype : sweptTypes())
      expectTwins(model, plan, dtype);
  }
}

TEST_P(FamilyTwinTest, PureStrategies) {
  TwinModel model;
  model.family = GetParam();
  model.layers = 4;
  for (const char *text : {"tp8", "tp2.sdp2.ckpt"}) {
    Strategy strategy = llvm::cantFail(Strategy::parse(text));
    int64_t stages = 8 / strategy.devices();
    for (const char *dtype : {"f64", "f32"})
      expectTwins(model, uniformPlan(model, stages, strategy, 16, 4, "1f1b"),
                  dtype);
  }
  Strategy strategy = llvm::cantFail(Strategy::parse("tp2.sdp2"));
  expectTwins(model, uniformPlan(model, 1, strategy, 16, 4, "1f1b"), "bf16");
}

/// The recording backend checks order and lifetime of every access.
TEST_P(FamilyTwinTest, ProgramsForDevicesWithStreams) {
  TwinModel model;
  model.family = GetParam();
  model.layers = 3;
  TwinOptions options;
  options.dtype = "f32";
  options.eps = 1e-6;
  const TwinRun &expected = references.of(model, options, 16);
  ASSERT_EQ(expected.error, "");
  options.backend = "cuda";
  for (const char *text : {"tp4", "sdp2.tp2.ckpt", "dp4"}) {
    SCOPED_TRACE(text);
    Strategy strategy = llvm::cantFail(Strategy::parse(text));
    TwinRun run =
        runTwin(context, model, uniformPlan(model, 2, strategy, 16, 2, "1f1b"),
                options);
    ASSERT_EQ(run.error, "");
    EXPECT_EQ(compareRuns(run, expected, getBounds("f32", "adamw")), "");
  }
}

/// Label smoothing and z-loss: a vocabulary that is cut into uneven shards,
/// blocks of rows, stages, micro-batches, a second length; and evaluation,
/// whose loss has neither.
TEST_F(TwinTest, LabelSmoothingAndZLoss) {
  for (auto [family, smoothing, zLoss] : {std::tuple("gpt2", 0.1, 0.02),
                                          {"llama", 0.0, 0.02},
                                          {"bert", 0.2, 0.0},
                                          {"t5", 0.1, 0.02},
                                          {"vit", 0.1, 0.02}}) {
    TwinModel model;
    model.family = family;
    model.layers = 2;
    auto evaluateIn = [](double &loss) {
      return [&loss](grt::Session &session) {
        uint64_t counted = 0;
        return session.evaluate(loss, counted);
      };
    };
    for (const char *dtype : {"f64", "f32", "bf16"}) {
      // Other types are the kernels' own matter.
      if (dtype != std::string("f64") && model.family != "gpt2")
        continue;
      TwinOptions options;
      options.dtype = dtype;
      options.eps = options.dtype == "f64" ? 1e-8 : 1e-6;
      options.dropout = false;
      options.sameBatch = true;
      options.labelSmoothing = smoothing;
      options.zLoss = zLoss;
      double expectedLoss = 0, loss = 0;
      TwinOptions alone = options;
      alone.atEnd = evaluateIn(expectedLoss);
      TwinRun expected = runTwin(context, model, singleRank(model, 16), alone);
      ASSERT_EQ(expected.error, "");
      TwinOptions without = options;
      without.labelSmoothing = without.zLoss = 0;
      TwinRun plain = runTwin(context, model, singleRank(model, 16), without);
      ASSERT_EQ(plain.error, "");
      EXPECT_EQ(plain.losses.front() == expected.losses.front(),
                smoothing == 0);
      EXPECT_NE(plain.norms.front(), expected.norms.front());
      EXPECT_EQ(expected.zLosses.size(), zLoss == 0 ? 0u : 5u);
      const Bounds bounds = getBounds(dtype, options.optimizer);
      options.atEnd = evaluateIn(loss);
      for (auto [stages, text] : {std::pair(1, "tp8"),
                                  {2, "tp2.sdp2.ckpt"},
                                  {4, "dp2"},
                                  {2, "tsp4"}}) {
        if (options.dtype != "f64" && stages == 4)
          continue;
        SCOPED_TRACE(std::string(family) + " " + dtype + " " + text);
        TwinPlan plan =
            uniformPlan(model, stages, llvm::cantFail(Strategy::parse(text)),
                        16, 4, "1f1b");
        TwinRun run = runTwin(context, model, plan, options);
        ASSERT_EQ(run.error, "");
        EXPECT_EQ(compareRuns(run, expected, bounds), "");
        EXPECT_EQ(checkMemory(run), "");
        EXPECT_NEAR(loss, expectedLoss, bounds.losses * expectedLoss);
      }
    }
  }
}

/// The recording backend checks order and lifetime of every access.
TEST_F(TwinTest, LabelSmoothingAndZLossOnDevicesWithStreams) {
  TwinModel model;
  model.layers = 2;
  TwinOptions options;
  options.dtype = "f32";
  options.eps = 1e-6;
  options.labelSmoothing = 0.1;
  options.zLoss = 0.02;
  const TwinRun &expected = references.of(model, options, 16);
  ASSERT_EQ(expected.error, "");
  options.backend = "cuda";
  TwinPlan plan = uniformPlan(model, 2, llvm::cantFail(Strategy::parse("tp4")),
                              16, 2, "1f1b");
  TwinRun run = runTwin(context, model, plan, options);
  ASSERT_EQ(run.error, "");
  EXPECT_EQ(compareRuns(run, expected, getBounds("f32", "adamw")), "");
}

/// More ranks of tensor parallelism than key heads: ranks share heads, and
/// every rank has their parameters whole. Biases, windows, norms of heads and
/// ties.
TEST_F(TwinTest, RanksShareKeyHeads) {
  TwinModel model;
  bool isLong = std::getenv("GALVATRON_LONG");
  for (const char *family : {"llama", "mistral", "qwen2", "qwen3"}) {
    model.family = family;
    for (int64_t keyHeads : {1, 2, 4}) {
      if (!isLong && keyHeads != 2 && family != std::string("llama"))
        continue;
      model.keyHeads = keyHeads;
      expectTwins(model,
                  uniformPlan(model, 1, llvm::cantFail(Strategy::parse("tp8")),
                              16, 2, "gpipe"),
                  "f64");
      std::mt19937 generator(uint32_t(300 + keyHeads));
      int64_t count = isLong ? 20 : 2;
      for (int64_t i = 0; i < count && !HasFatalFailure(); ++i)
        expectTwins(model, randomPlan(model, generator), "f64");
    }
  }
}

TEST_F(TwinTest, RanksShareKeyHeadsUnderEveryStrategy) {
  TwinModel model;
  model.family = "llama";
  model.layers = 2;
  model.keyHeads = 2;
  for (const char *text : {"tp4.sdp2", "sdp2.tp4.ckpt", "tp4.dp2", "dp2.tp4",
                           "zdp2.tp4", "tp4.zdp2.ckpt"}) {
    Strategy strategy = llvm::cantFail(Strategy::parse(text));
    for (const char *dtype : {"f32", "bf16"})
      expectTwins(model, uniformPlan(model, 1, strategy, 16, 4, "1f1b"), dtype);
  }
  Strategy strategy = llvm::cantFail(Strategy::parse("tp4"));
  for (const char *schedule : {"1f1b", "gpipe"})
    expectTwins(model, uniformPlan(model, 2, strategy, 16, 4, schedule), "f32");
}

/// The recording backend checks order and lifetime of every access.
TEST_F(TwinTest, RanksShareKeyHeadsOnDevicesWithStreams) {
  TwinModel model;
  model.family = "qwen3";
  model.layers = 3;
  model.keyHeads = 2;
  TwinOptions options;
  options.dtype = "f32";
  options.eps = 1e-6;
  const TwinRun &expected = references.of(model, options, 16);
  ASSERT_EQ(expected.error, "");
  options.backend = "cuda";
  for (const char *text : {"tp4", "tp4.ckpt"}) {
    SCOPED_TRACE(text);
    Strategy strategy = llvm::cantFail(Strategy::parse(text));
    TwinRun run =
        runTwin(context, model, uniformPlan(model, 2, strategy, 16, 2, "1f1b"),
                options);
    ASSERT_EQ(run.error, "");
    EXPECT_EQ(compareRuns(run, expected, getBounds("f32", "adamw")), "");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, FamilyTwinTest,
    ::testing::Values("albert", "bart", "bert", "bloom", "cohere", "cohere2",
                      "deit", "dinov2", "distilbert", "electra", "falcon",
                      "gemma", "gemma2", "gemma3_text", "glm", "glm4",
                      "gpt_neox", "gptj", "granite", "llama", "mbart",
                      "mistral", "modernbert", "mpt", "olmo", "olmo2", "opt",
                      "pegasus", "phi", "phi3", "qwen2", "qwen3", "roberta",
                      "smollm3", "stablelm", "starcoder2", "swin", "t5",
                      "t5_v1_1", "umt5", "vit"),
    [](const auto &info) { return std::string(info.param); });

} // namespace
