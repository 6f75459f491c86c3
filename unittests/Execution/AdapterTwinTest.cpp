//===- AdapterTwinTest.cpp - Low-rank adapters under any plan -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model with adapters learns the same under every plan, and nothing but the
// adapters learns: no rank has a gradient or a state of another parameter.
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "gtest/gtest.h"

using namespace galvatron;
using namespace galvatron::test;

namespace {

class AdapterTwinTest : public ::testing::Test {
protected:
  AdapterTwinTest() { loadTwinDialects(context); }

  /// `reserved`: bytes that are planned and may stay untouched.
  void expectTwin(const TwinModel &model, const TwinPlan &plan,
                  const TwinOptions &options = {}, uint64_t reserved = 0) {
    SCOPED_TRACE(model.family + " " + plan.str());
    TwinOptions alone = options;
    alone.backend = "cpu";
    const TwinRun &expected = references.of(model, alone, plan.batch);
    ASSERT_EQ(expected.error, "");
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
    if (options.backend == "cpu")
      EXPECT_EQ(checkMemory(run, reserved), "");
    EXPECT_EQ(
        compareRuns(run, expected, getBounds(options.dtype, options.optimizer)),
        "");
  }

  void expectTwins(const TwinModel &model, unsigned plans,
                   const TwinOptions &options = {}) {
    std::mt19937 generator(unsigned(model.layers) + plans);
    for (unsigned i = 0; i < plans; ++i)
      expectTwin(model, randomPlan(model, generator), options);
  }

  mlir::MLIRContext context;
  References references{context};
};

TwinModel adapted(const char *family, const char *modules, int64_t layers = 6) {
  TwinModel model;
  model.family = family;
  model.layers = layers;
  model.adapters = modules;
  return model;
}

/// GPT-2, whose checkpoints have weights as [in, out] and whose head is tied;
/// and a decoder with fewer heads of keys than ranks.
TwinModel gpt2() { return adapted("gpt2", "c_attn;c_proj"); }
TwinModel llama() {
  TwinModel model =
      adapted("llama", "*.q_proj;*.v_proj:2;o_proj;down_proj:1:6");
  model.keyHeads = 2;
  return model;
}

Strategy strategyOf(const char *text) {
  return llvm::cantFail(Strategy::parse(text));
}

bool isAdapter(const std::string &name) {
  return name.find(".lora_") != std::string::npos;
}

} // namespace

TEST_F(AdapterTwinTest, RandomMixedPlans) {
  expectTwins(gpt2(), 4);
  expectTwins(llama(), 4);
  expectTwins(adapted("bert", "query;value;dense"), 2);
  expectTwins(adapted("t5", "*.q;*.EncDecAttention.v;wo", 5), 2);
  // Adapters of some layers alone: bodies differ.
  expectTwins(adapted("llama", "model.layers.1.*"), 2);
}

/// Modules whose rows are those of several products share A.
TEST_F(AdapterTwinTest, ModulesOfSeveralProducts) {
  const TwinModel phi = adapted("phi3", "qkv_proj;gate_up_proj;o_proj:2", 2);
  const TwinModel neox = adapted("gpt_neox", "query_key_value", 2);
  for (const char *text : {"zdp2", "tp2", "sdp2.tp2.ckpt"}) {
    expectTwin(phi, uniformPlan(phi, 1, strategyOf(text), 8, 2, "1f1b"));
    expectTwin(neox, uniformPlan(neox, 1, strategyOf(text), 8, 2, "1f1b"));
  }
}

/// Backward passes end at the lowest adapter: layers in front of it, whole
/// stages of them as well, have nothing to compute.
TEST_F(AdapterTwinTest, NothingBelowTheLowest) {
  const TwinModel upper = adapted("llama", "model.layers.[45].*");
  for (const char *schedule : {"1f1b", "gpipe", "zb-h1"})
    expectTwin(upper,
               uniformPlan(upper, 2, strategyOf("sdp2"), 16, 4, schedule), {},
               256 << 10);
  expectTwin(upper, uniformPlan(upper, 4, strategyOf("dp2"), 16, 4, "1f1b"));
  expectTwin(upper,
             uniformPlan(upper, 1, strategyOf("zdp2.tp2.ckpt"), 16, 2, "1f1b"));
  expectTwin(upper, uniformPlan(upper, 1, strategyOf("tsp2"), 16, 2, "1f1b"));
  const TwinModel decoder = adapted("t5", "decoder.*.EncDecAttention.?", 5);
  expectTwins(decoder, 2);

  // Whether passes end there or not, what is trained learns the same.
  for (TwinModel model : {upper, decoder}) {
    const TwinPlan plan = singleRank(model, 16);
    TwinRun some = runTwin(context, model, plan, {});
    model.goesBelowAdapters = true;
    TwinRun whole = runTwin(context, model, plan, {});
    ASSERT_EQ(some.error + whole.error, "");
    EXPECT_EQ(compareRuns(some, whole, getBounds("f64", "adamw")), "");
    EXPECT_LT(some.memory.front().plannedPeakBytes,
              whole.memory.front().plannedPeakBytes);
  }
}

/// Every paradigm alone, each with and without recomputation.
TEST_F(AdapterTwinTest, EveryParadigm) {
  for (const char *text :
       {"dp2", "zdp2", "sdp2", "tp2", "tp4", "tsp2", "zdp2.tp2",
        "sdp2.tp2.ckpt", "dp2.tsp2.ckpt", "cp2", "zcp2", "scp2.ckpt"})
    for (const TwinModel &model : {gpt2(), llama()})
      expectTwin(model, uniformPlan(model, 1, strategyOf(text), 16, 2, "1f1b"));
}

/// Of what a slot holds weight parts need little, and no other layer gets the
/// rest: it is planned and not touched again.
TEST_F(AdapterTwinTest, SplitBackwardPasses) {
  const uint64_t reserved = 256 << 10;
  expectTwin(gpt2(), uniformPlan(gpt2(), 2, strategyOf("tp2"), 16, 4, "zb-h1"),
             {}, reserved);
  expectTwin(llama(),
             uniformPlan(llama(), 2, strategyOf("sdp2"), 16, 4, "zb-h1"), {},
             reserved);
}

TEST_F(AdapterTwinTest, OnDevicesWithStreams) {
  TwinOptions options;
  options.backend = "cuda";
  expectTwins(llama(), 3, options);
}

/// In bf16 the model's parameters have no copies in f32, adapters have.
TEST_F(AdapterTwinTest, RoundedParameters) {
  TwinOptions options;
  options.dtype = "bf16";
  options.eps = 1e-6;
  expectTwin(llama(),
             uniformPlan(llama(), 1, strategyOf("zdp2.tp2"), 16, 2, "1f1b"),
             options);
}

TEST_F(AdapterTwinTest, NothingElseLearns) {
  TwinOptions options;
  grt::TensorMap states;
  options.atEnd = [&](grt::Session &session) {
    return session.optimizerState(states);
  };
  TwinPlan plan = uniformPlan(llama(), 2, strategyOf("zdp2"), 16, 2, "1f1b");
  TwinRun run = runTwin(context, llama(), plan, options);
  ASSERT_EQ(run.error, "");
  EXPECT_EQ(run.gradients.size(), 6u * 4 * 2);
  for (const auto &[name, tensor] : run.gradients)
    EXPECT_TRUE(isAdapter(name)) << name;
  EXPECT_EQ(states.size(), 6u * 4 * 2 * 2);
  for (const auto &[name, tensor] : states)
    EXPECT_TRUE(isAdapter(name)) << name;

  // The others are what they were.
  options.steps = 1;
  options.atEnd = nullptr;
  TwinRun shorter = runTwin(context, llama(), plan, options);
  ASSERT_EQ(shorter.error, "");
  for (const auto &[name, tensor] : run.parameters)
    EXPECT_EQ(tensor.values == shorter.parameters[name].values,
              !isAdapter(name))
        << name;
}

TEST_F(AdapterTwinTest, OlderVersionsAreRefused) {
  TwinPlan plan = uniformPlan(gpt2(), 2, strategyOf("dp2"), 16, 4, "2bw");
  TwinOptions options;
  options.clipDelayed = true;
  TwinRun run = runTwin(context, gpt2(), plan, options);
  EXPECT_NE(run.error.find("expected all parameters to be trained under "
                           "schedule '2bw', which keeps an older version"),
            std::string::npos)
      << run.error;
}
