//===- ResumeTest.cpp - A checkpoint goes on under any plan ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Twins that are interrupted: three steps under one plan, a checkpoint, two
// under another, compared with five steps of one rank.
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "gtest/gtest.h"

#include <filesystem>
#include <unistd.h>

using namespace galvatron;
using namespace galvatron::test;

namespace {

class ResumeTest : public ::testing::Test {
protected:
  ResumeTest() {
    loadTwinDialects(context);
    // In memory where possible: a checkpoint waits for the disk.
    std::string base =
        access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : ::testing::TempDir();
    folder = base + "resume-twin-" + std::to_string(getpid());
  }
  ~ResumeTest() override { std::filesystem::remove_all(folder); }

  TwinRun runResumed(const TwinPlan &from, const TwinPlan &to,
                     const TwinOptions &options) {
    std::filesystem::remove_all(folder);
    return runResumedTwin(context, model, from, to, /*before=*/3, folder,
                          options);
  }

  mlir::MLIRContext context;
  TwinModel model;
  std::string folder;
};

TEST_F(ResumeTest, BitwiseUnderTheSamePlan) {
  std::mt19937 generator(7);
  for (auto [dtype, optimizer] :
       {std::pair("f32", "adamw"), {"f32", "sgd"}, {"bf16", "adamw"}}) {
    TwinOptions options;
    options.dtype = dtype;
    options.optimizer = optimizer;
    TwinPlan plan = randomPlan(model, generator);
    SCOPED_TRACE(plan.str() + " " + dtype);
    TwinRun whole = runTwin(context, model, plan, options);
    TwinRun resumed = runResumed(plan, plan, options);
    ASSERT_EQ(whole.error, "");
    ASSERT_EQ(resumed.error, "");
    EXPECT_EQ(resumed.losses, whole.losses);
    EXPECT_EQ(resumed.norms, whole.norms);
    for (const auto &[name, tensor] : whole.parameters)
      EXPECT_EQ(resumed.parameters[name].values, tensor.values) << name;
    EXPECT_EQ(checkMemory(resumed), "");
  }
}

/// Two versions of the weights, while the next batch is under way: what was
/// begun is begun again.
TEST_F(ResumeTest, BitwiseWhereGradientsAreLate) {
  for (auto [dtype, optimizer] :
       {std::pair("f32", "adamw"), {"f64", "sgd"}, {"bf16", "adamw"}})
    for (const char *strategy : {"dp2", "sdp2.ckpt", "tp2"}) {
      TwinOptions options;
      options.clip = false;
      options.dtype = dtype;
      options.optimizer = optimizer;
      TwinPlan plan = uniformPlan(
          model, 4, llvm::cantFail(Strategy::parse(strategy)), 16, 4, "2bw");
      SCOPED_TRACE(plan.str() + " " + dtype);
      TwinRun whole = runTwin(context, model, plan, options);
      TwinRun resumed = runResumed(plan, plan, options);
      ASSERT_EQ(whole.error, "");
      ASSERT_EQ(resumed.error, "");
      EXPECT_EQ(resumed.losses, whole.losses);
      for (const auto &[name, tensor] : whole.parameters)
        EXPECT_EQ(resumed.parameters[name].values, tensor.values) << name;
    }
}

/// Under another plan of the same schedule the rule is the same.
TEST_F(ResumeTest, LateUnderAnotherPlan) {
  TwinOptions options;
  options.clip = false;
  TwinPlan one = uniformPlan(model, 4, llvm::cantFail(Strategy::parse("sdp2")),
                             16, 8, "2bw");
  TwinPlan other = uniformPlan(
      model, 2, llvm::cantFail(Strategy::parse("tp2.dp2")), 16, 2, "2bw");
  TwinRun expected = runTwin(context, model, one, options);
  TwinRun resumed = runResumed(one, other, options);
  ASSERT_EQ(expected.error, "");
  ASSERT_EQ(resumed.error, "");
  EXPECT_EQ(compareRuns(resumed, expected, getBounds("f64", "adamw")), "");
}

/// From stages of several chunks to stages of one, and back.
TEST_F(ResumeTest, SeveralChunksAStage) {
  TwinPlan chunked = uniformPlan(model, 4, Strategy(), 16, 4, "interleaved");
  chunked.chunks = 2;
  TwinPlan plain = uniformPlan(
      model, 2, llvm::cantFail(Strategy::parse("sdp2")), 16, 4, "1f1b");
  TwinOptions options;
  TwinRun expected = runTwin(context, model, singleRank(model, 16), options);
  ASSERT_EQ(expected.error, "");
  for (const auto &[from, to] :
       {std::pair(chunked, plain), {plain, chunked}, {chunked, chunked}}) {
    SCOPED_TRACE(from.str() + " to " + to.str());
    TwinRun resumed = runResumed(from, to, options);
    ASSERT_EQ(resumed.error, "");
    EXPECT_EQ(compareRuns(resumed, expected, getBounds("f64", "adamw")), "");
  }
}

/// Parameters that ranks share are in a checkpoint once.
TEST_F(ResumeTest, SharedKeyHeads) {
  model.family = "qwen3";
  model.layers = 3;
  model.keyHeads = 2;
  auto of = [&](int64_t stages, const char *strategy) {
    return uniformPlan(model, stages, llvm::cantFail(Strategy::parse(strategy)),
                       16, 2, "1f1b");
  };
  TwinOptions options;
  TwinRun expected = runTwin(context, model, singleRank(model, 16), options);
  ASSERT_EQ(expected.error, "");
  for (const auto &[from, to] : {std::pair(of(1, "tp8"), of(2, "tp2.sdp2")),
                                 {of(1, "tp2.sdp4"), of(1, "tp4.sdp2.ckpt")},
                                 {of(2, "tp4"), singleRank(model, 16, 2)}}) {
    SCOPED_TRACE(from.str() + " to " + to.str());
    TwinRun resumed = runResumed(from, to, options);
    ASSERT_EQ(resumed.error, "");
    EXPECT_EQ(compareRuns(resumed, expected, getBounds("f64", "adamw")), "");
    EXPECT_EQ(checkMemory(resumed), "");
  }
}

TEST_F(ResumeTest, AnyOtherPlan) {
  std::mt19937 generator(11);
  bool isLong = std::getenv("GALVATRON_LONG");
  TwinOptions options;
  for (const char *dtype : {"f64", "f32", "bf16"}) {
    options.dtype = dtype;
    options.eps = options.dtype == "f64" ? 1e-8 : 1e-6;
    TwinRun expected = runTwin(context, model, singleRank(model, 16), options);
    ASSERT_EQ(expected.error, "");
    int count = isLong ? 60 : options.dtype == "f64" ? 8 : 2;
    for (int i = 0; i < count && !HasFailure(); ++i) {
      TwinPlan from = randomPlan(model, generator);
      TwinPlan to =
          i % 4 == 3 ? singleRank(model, 16, 2) : randomPlan(model, generator);
      SCOPED_TRACE(from.str() + " to " + to.str() + " " + dtype);
      TwinRun resumed = runResumed(from, to, options);
      ASSERT_EQ(resumed.error, "");
      EXPECT_EQ(compareRuns(resumed, expected, getBounds(dtype, "adamw")), "");
      EXPECT_EQ(checkMemory(resumed), "");
    }
  }
}

} // namespace
