//===- WatchedTest.cpp - Twins on the CUDA backend, watched ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The compiler's programs on the CUDA backend itself, with stand-ins for CUDA,
// NCCL, cuBLASLt and cuDNN behind it (runtime/backends/cuda/tests/watched.h).
// No kernel runs, so there are no losses to compare: what is held is that no
// call comes out of order, that captures are joined and hold nothing forbidden,
// that all ranks of a communicator call alike, and that nothing is left alive.
//
//===----------------------------------------------------------------------===//

#include "watched.h"
#include "Twin.h"

#include "galvatron/Strategy/DecisionTree.h"
#include "grt/checkpoint.h"
#include "gtest/gtest.h"

#include <filesystem>
#include <unistd.h>

using namespace galvatron;
using namespace galvatron::test;

namespace {

class WatchedTest : public ::testing::Test {
protected:
  WatchedTest() { loadTwinDialects(context); }

  static const ::grt::test::Watched &libraries() {
    return ::grt::test::watched();
  }

  /// With NCCL, and between threads.
  void expectClean(const TwinModel &model, const TwinPlan &plan,
                   const std::string &dtype, bool clip = true) {
    SCOPED_TRACE(model.family + " " + plan.str() + " " + dtype);
    TwinOptions options;
    options.dtype = dtype;
    options.steps = 3;
    options.poison = false;
    options.clip = clip;
    options.backend = "cuda";
    for (const grt_backend *device :
         {libraries().withNccl(), libraries().betweenThreads()}) {
      SCOPED_TRACE(device == libraries().withNccl() ? "nccl" : "threads");
      options.device = device;
      EXPECT_EQ(runTwin(context, model, plan, options).error, "");
      EXPECT_EQ(libraries().complaints(), "");
      EXPECT_EQ(libraries().alive(), "");
    }
  }

  static bool isLong() { return std::getenv("GALVATRON_LONG"); }

  mlir::MLIRContext context;
};

Strategy strategyOf(const char *text) {
  return llvm::cantFail(Strategy::parse(text));
}

TEST_F(WatchedTest, Strategies) {
  TwinModel model;
  int64_t graphs = libraries().calls("cudaGraphInstantiate");
  expectClean(model, singleRank(model, 16, 2), "f32");
  for (const char *text : {"dp2", "sdp2.ckpt", "tp2"})
    expectClean(model, uniformPlan(model, 2, strategyOf(text), 16, 4, "1f1b"),
                "bf16");
  expectClean(model,
              uniformPlan(model, 1, strategyOf("tp2.sdp2"), 16, 2, "gpipe"),
              "f64");
  // One a rank: of 1 rank, which is alone between threads too, and of 4 x 4.
  EXPECT_EQ(libraries().calls("cudaGraphInstantiate") - graphs, 2 + 16);
  EXPECT_GT(libraries().calls("ncclAllReduce"), 0);
  EXPECT_GT(libraries().products(), 0);
}

TEST_F(WatchedTest, EveryStrategyOfEightRanks) {
  if (!isLong())
    GTEST_SKIP() << "GALVATRON_LONG is not set";
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
        expectClean(
            model,
            uniformPlan(model, stages, strategy, 16, microBatches, schedule),
            "f32");
      }
}

/// Shifts beside kernels, in communicators that other streams use as well.
TEST_F(WatchedTest, StepsOfARing) {
  TwinModel model;
  for (const char *text : {"ring4", "sring2.sdp2.ckpt", "tp2.ring2"}) {
    const Strategy strategy = strategyOf(text);
    expectClean(
        model,
        uniformPlan(model, 1, strategy, 4 * strategy.sampleShards(), 2, "1f1b"),
        "bf16");
  }
}

TEST_F(WatchedTest, RandomMixedPlans) {
  TwinModel model;
  std::mt19937 generator(31);
  for (int i = 0; i < (isLong() ? 100 : 2); ++i)
    expectClean(model, randomPlan(model, generator), i % 2 ? "f32" : "bf16");
}

TEST_F(WatchedTest, OtherSchedules) {
  TwinModel model;
  TwinPlan chunked =
      uniformPlan(model, 4, strategyOf("dp2"), 16, 4, "interleaved");
  chunked.chunks = 2;
  expectClean(model, chunked, "f32");
  expectClean(model, uniformPlan(model, 2, strategyOf("dp2"), 16, 4, "2bw"),
              "f32", /*clip=*/false);
}

/// Where several slots have a window behind each, NCCL can register every piece
/// of the arena, and no buffer that it gets is in two.
TEST_F(WatchedTest, BuffersOfCollectivesAreInOnePiece) {
  TwinModel model;
  auto pieces = [&](const TwinPlan &plan) {
    const int64_t others = libraries().calls("other piece");
    const int64_t registrable = libraries().calls("registrable piece");
    expectClean(model, plan, "f32");
    EXPECT_EQ(libraries().calls("other piece"), others);
    return libraries().calls("registrable piece") - registrable;
  };
  // One a rank and run, that with NCCL and that between threads.
  EXPECT_EQ(pieces(uniformPlan(model, 1, strategyOf("tp2"), 16, 2, "1f1b")), 4);
  for (const char *text : {"tp2", "tp2.ckpt", "sdp2"})
    EXPECT_GT(pieces(uniformPlan(model, 2, strategyOf(text), 16, 4, "1f1b")),
              2 * 4);
  EXPECT_GT(
      pieces(uniformPlan(model, 2, strategyOf("tp2.sdp2"), 16, 4, "gpipe")),
      2 * 8);
}

TEST_F(WatchedTest, Families) {
  const char *all[] = {"llama", "bert",    "vit",  "swin",
                       "t5",    "mistral", "qwen2"};
  for (const char *family : all) {
    if (!isLong() && family != all[0])
      continue;
    TwinModel model;
    model.family = family;
    expectClean(model, uniformPlan(model, 1, strategyOf("tp2"), 8, 1, "1f1b"),
                "bf16");
  }
}

/// Weights that are cut by columns are copied whole, not a row at a time.
TEST_F(WatchedTest, CheckpointsCopyTensorsWhole) {
  TwinModel model;
  model.width = 64;
  model.layers = 2;
  TwinOptions options;
  options.dtype = "f32";
  options.steps = 1;
  options.backend = "cuda";
  options.device = libraries().withNccl();
  const TwinPlan plan = uniformPlan(model, 1, strategyOf("tp8"), 16, 2, "1f1b");
  const std::string folder =
      ::testing::TempDir() + "watched-" + std::to_string(getpid());
  auto moves = [] {
    return libraries().calls("cudaMemcpyAsync") +
           libraries().calls("cudaStreamSynchronize");
  };
  options.atEnd = [&](::grt::Session &session) {
    ::grt::TensorMap parameters;
    ::grt::Status status = session.parameters(parameters);
    const int64_t tensors = int64_t(parameters.size());
    int64_t rows = 0;
    for (const auto &[name, tensor] : parameters)
      rows += tensor.shape.size() == 2 ? tensor.shape[0] : 1;
    EXPECT_GT(rows, 10 * tensors);
    std::unique_ptr<::grt::CheckpointFolder> checkpoint;
    if (status)
      status = ::grt::CheckpointFolder::open(folder, {}, checkpoint);
    ::grt::TrainingState state;
    state.step = session.stepsDone();
    // A copy and a wait for each tensor, and its two states, of each rank; and
    // a few where ranks meet.
    auto expectFew = [&](const char *what, int64_t before) {
      EXPECT_LE(moves() - before, 8 * (3 * 2 * tensors + 16)) << what;
    };
    int64_t before = moves();
    if (status)
      status = session.writeCheckpoint(*checkpoint, state);
    expectFew("written", before);
    before = moves();
    if (status)
      status = session.resume(*checkpoint->newest());
    expectFew("read", before);
    before = moves();
    if (status)
      status = session.parameters(parameters);
    expectFew("gathered", before);
    before = moves();
    if (status)
      status = session.checkReplicas();
    expectFew("compared", before);
    return status;
  };
  EXPECT_EQ(runTwin(context, model, plan, options).error, "");
  EXPECT_EQ(libraries().complaints(), "");
  EXPECT_EQ(libraries().alive(), "");
  std::filesystem::remove_all(folder);
}

/// Heads of 64 columns, which cuDNN's attention takes.
TEST_F(WatchedTest, AttentionOfCudnn) {
  TwinModel model;
  model.positions = 128;
  model.width = 128;
  model.heads = 2;
  model.layers = 2;
  model.dropout = 0;
  setenv("GRT_CUDA_ATTENTION", "cudnn", 1);
  int64_t before = libraries().attentions();
  expectClean(model, uniformPlan(model, 1, strategyOf("dp2"), 4, 2, "1f1b"),
              "bf16");
  unsetenv("GRT_CUDA_ATTENTION");
  EXPECT_GT(libraries().attentions(), before);
}

} // namespace
