//===- RowsTwinTest.cpp - Plans whose layers divide rows ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tensor and sequence parallelism (`tsp`): between products a rank has a block
// of rows, samples times positions. Context parallelism (`cp`): a rank has a
// block of rows in all of a layer, and keys of all. Losses, gradients and
// parameters are those of one rank, dropout included, what is moved is what
// footprints list, and rows that the ranks cannot divide are refused. Sweeps
// over all strategies and random plans have such layers, too (Twin.h).
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Footprint/IRLayerModel.h"
#include "galvatron/Import/HuggingFace.h"
#include "grt/backend.h"
#include "gtest/gtest.h"

#include <atomic>
#include <cstdlib>

using namespace galvatron;
using namespace galvatron::test;

namespace {

/// True if sweeps are to be whole.
bool isLong() { return std::getenv("GALVATRON_LONG") != nullptr; }

Strategy parse(const char *text) {
  return llvm::cantFail(Strategy::parse(text));
}

class RowsTwinTest : public ::testing::Test {
protected:
  RowsTwinTest() { loadTwinDialects(context); }

  void expectTwins(const TwinModel &model, const TwinPlan &plan,
                   const TwinOptions &options = {}) {
    SCOPED_TRACE(model.family + " " + plan.str() + " " + options.dtype);
    TwinOptions alone = options;
    alone.backend = "cpu";
    const TwinRun &expected = references.of(model, alone, plan.batch);
    ASSERT_EQ(expected.error, "");
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
    if (options.backend == "cpu")
      EXPECT_EQ(checkMemory(run), "");
    EXPECT_EQ(
        compareRuns(run, expected, getBounds(options.dtype, options.optimizer)),
        "");
  }

  mlir::MLIRContext context;
  References references{context};
};

/// Blocks begin inside samples: 36 rows of 9 positions on 2 to 6 ranks.
TEST_F(RowsTwinTest, BlocksBeginInsideSamples) {
  TwinModel model;
  model.positions = 9;
  model.heads = 6;
  model.width = 36;
  model.layers = 2;
  for (const char *text : {"tsp3", "tsp6", "tsp2.dp3", "sdp2.tsp3.ckpt"}) {
    Strategy strategy = parse(text);
    expectTwins(model, uniformPlan(model, 1, strategy,
                                   8 * strategy.sampleShards(), 2, "1f1b"));
  }
}

/// Bodies of other families: what cannot take rows gathers them.
TEST_F(RowsTwinTest, Families) {
  for (const char *family :
       {"llama", "olmo2", "phi", "bert", "vit", "swin", "t5", "starcoder2"}) {
    TwinModel model;
    model.family = family;
    model.layers = 3;
    model.heads = 4;
    // Fewer key heads than ranks.
    model.keyHeads = 2;
    expectTwins(model, uniformPlan(model, 1, parse("tsp4"), 16, 2, "1f1b"));
  }
}

/// A rank has all parameters and a block of the rows: of one sample a part of
/// its positions, of three some that begin inside a sample. Labels are missing
/// at ends of samples, so ranks count different numbers of them.
TEST_F(RowsTwinTest, ContextParallelism) {
  for (const char *family : {"gpt2", "llama"}) {
    TwinModel model;
    model.family = family;
    model.positions = 16;
    model.layers = 2;
    model.heads = 4;
    model.keyHeads = 2;
    for (const char *text :
         {"cp2", "cp4", "dp2.cp2", "cp2.dp2", "sdp2.cp2", "zcp4", "scp4.ckpt",
          "zcp2.zdp2", "scp2.sdp2.ckpt", "cp4.ckpt"})
      for (int64_t samples : {1, 3}) {
        Strategy strategy = parse(text);
        expectTwins(model, uniformPlan(model, 1, strategy,
                                       2 * samples * strategy.sampleShards(), 2,
                                       "1f1b"));
      }
  }
}

/// Positions beside heads and vocabulary: products and sums on both axes.
TEST_F(RowsTwinTest, ContextBesideTensorParallelism) {
  for (const char *family : {"gpt2", "llama", "olmo2"}) {
    TwinModel model;
    model.family = family;
    model.layers = 2;
    model.heads = 4;
    model.keyHeads = 2;
    for (const char *text :
         {"cp2.tp2", "tp2.cp2.ckpt", "tp2.scp2", "zcp2.tp2", "dp2.tp2.cp2"}) {
      Strategy strategy = parse(text);
      expectTwins(model, uniformPlan(model, 1, strategy,
                                     2 * strategy.sampleShards(), 2, "1f1b"));
    }
  }
}

/// Ranks that divide positions have blocks of all rows, in products and
/// attention, and those of tensor parallelism blocks of these between products:
/// balanced ones, whose gathers put two pieces in order on either axis, and, of
/// exchanged heads and without causal attention, blocks in order.
TEST_F(RowsTwinTest, BlocksOfBlocks) {
  std::vector<std::pair<const char *, std::vector<const char *>>> cases = {
      {"gpt2", {"tsp2.cp2.ckpt"}}, {"llama", {"cp2.tsp2"}}};
  if (isLong())
    for (const char *family : {"gpt2", "llama", "olmo2", "bert", "phi"})
      cases.push_back({family, {"cp2.tsp2", "tsp2.cp2.ckpt"}});
  for (const auto &[family, strategies] : cases) {
    TwinModel model;
    model.family = family;
    model.positions = 16;
    model.layers = 2;
    model.heads = 4;
    model.keyHeads = 2;
    for (const char *text : strategies)
      expectTwins(model, uniformPlan(model, 1, parse(text), 2, 2, "1f1b"));
  }
}

/// Beside samples and sharded states, exchanged heads, stages, 6 and 8 ranks
/// and blocks that begin inside samples: 36 rows on 6 ranks in two pieces each.
TEST_F(RowsTwinTest, BlocksOfBlocksBesideOtherLevels) {
  for (const char *family : {"gpt2", "llama"}) {
    TwinModel model;
    model.family = family;
    model.positions = 12;
    model.heads = 6;
    model.keyHeads = 6;
    model.width = 48;
    model.layers = 2;
    for (auto [text, samples, stages, isSample] :
         {std::tuple{"tsp3.cp2", 3, 1, "gpt2"},
          {"tsp2.sup3.ckpt", 2, 1, "llama"},
          {"cp3.tsp2", 3, 2, ""},
          {"dp2.cp2.tsp2", 2, 1, ""},
          {"scp2.tsp2.ckpt", 2, 2, ""},
          {"tsp2.zcp2", 2, 1, ""},
          {"sdp2.tsp2.cp2", 2, 1, ""},
          {"up3.tsp2", 1, 1, ""}})
      if (isLong() || model.family == isSample)
        expectTwins(model, uniformPlan(model, stages, parse(text),
                                       2 * samples * parse(text).sampleShards(),
                                       2, "1f1b"));
  }
}

/// Rows that both levels cut are counted together.
TEST_F(RowsTwinTest, BlocksOfBlocksThatRanksDoNotDivideAreRefused) {
  TwinModel model;
  model.positions = 12;
  TwinRun run =
      runTwin(context, model,
              uniformPlan(model, 1, parse("tsp2.cp2"), 2, 2, "1f1b"), {});
  EXPECT_NE(run.error.find("1 sample of 12 positions are 12 rows, which twice "
                           "degree 4 of 'cp' and 'tsp' does not divide: under "
                           "causal attention a rank has two pieces of them"),
            std::string::npos)
      << run.error;
}

/// Backward in two parts: terms of gradients leave the part that makes them.
TEST_F(RowsTwinTest, ContextParallelismUnderOtherSchedules) {
  TwinModel model;
  model.layers = 4;
  for (const char *schedule : {"zb-h1", "zb-h2", "gpipe"})
    for (const char *text : {"cp2", "scp2", "zcp2.ckpt"}) {
      // What is recomputed is not split.
      if (schedule[0] == 'z' && parse(text).checkpoint())
        continue;
      expectTwins(model, uniformPlan(model, 2, parse(text), 4, 4, schedule));
    }
}

/// Of causal attention every rank has the same products, a share of the whole:
/// in a ring of one sample in every step.
TEST_F(RowsTwinTest, BalancedBlocksHaveEqualWork) {
  TwinModel model;
  model.family = "llama";
  model.positions = 1536;
  auto module = llvm::cantFail(importHuggingFaceConfig(
      model.config(), "config.json", ImportOptions(), context));
  auto layers =
      llvm::cantFail(createIRLayerModel(*module, "adamw", {"cpu", 1}));
  auto attentionFlops = [&](const char *text, int64_t samples) {
    double flops = 0;
    LayerFootprint footprint = llvm::cantFail(
        layers->footprint(layers->kindOf(1), parse(text), samples));
    for (const ProductWork &product : footprint.forwardProducts)
      flops += product.attention ? product.flops : 0;
    return flops;
  };
  for (int64_t samples : {1, 3}) {
    const double whole = attentionFlops("single", samples);
    EXPECT_GT(whole, 0);
    for (auto [text, ranks] :
         {std::pair{"cp2", 2}, {"cp3", 3}, {"cp4", 4}, {"scp8", 8}})
      EXPECT_DOUBLE_EQ(attentionFlops(text, samples), whole / ranks) << text;
    // Of several samples blocks have unlike steps, whose busiest rank counts.
    for (auto [text, ranks, most] : {std::tuple{"ring2", 2, 1.0},
                                     {"ring3", 3, 2.0},
                                     {"ring4", 4, 1.75},
                                     {"sring8", 8, 2.1875}})
      EXPECT_DOUBLE_EQ(attentionFlops(text, samples),
                       whole / ranks * (samples == 1 ? 1 : most))
          << text;
    EXPECT_DOUBLE_EQ(attentionFlops("tp2.cp2", samples), whole / 4);
  }
}

/// Of four steps three run beside the shifts of keys and values to the next, on
/// devices with streams; gradients come home alone.
TEST_F(RowsTwinTest, StepsOfARingRunBesideShifts) {
  TwinModel model;
  model.family = "llama";
  model.positions = 1536;
  model.heads = 4;
  model.keyHeads = 2;
  ImportOptions import;
  import.dtype = "f32";
  auto module = llvm::cantFail(
      importHuggingFaceConfig(model.config(), "config.json", import, context));
  auto layers =
      llvm::cantFail(createIRLayerModel(*module, "adamw", {"cuda", 1}));
  const Strategy strategy = parse("ring4");
  LayerFootprint footprint =
      llvm::cantFail(layers->footprint(layers->kindOf(1), strategy, 1));
  ASSERT_EQ(footprint.overlapped.size(), 2u);
  const OverlappedCollective &forward = footprint.overlapped[0],
                             &backward = footprint.overlapped[1];
  const int64_t keys = forward.calls.bytes / 2;
  for (const OverlappedCollective *each : {&forward, &backward}) {
    EXPECT_EQ(each->times, 3);
    EXPECT_EQ(each->calls.calls, 2);
    EXPECT_EQ(each->calls.bytes, 2 * keys);
  }
  // Beside them the gradients of four steps.
  for (auto [when, calls] : {std::pair{CollectiveTime::Forward, 2 * 3},
                             {CollectiveTime::Backward, 2 * 3 + 2 * 4}})
    EXPECT_EQ(
        footprint.bytesOf(CollectiveGroup::Context, Collective::Shift, when),
        calls * keys);
  EXPECT_EQ(forward.calls.when, CollectiveTime::Forward);
  EXPECT_EQ(backward.calls.when, CollectiveTime::Backward);
  EXPECT_DOUBLE_EQ(backward.product.flops, 2.5 * forward.product.flops);

  Cluster gpus = llvm::cantFail(Cluster::builtin("8xh100"));
  const std::vector<int64_t> devices = {0, 1, 2, 3};
  const StrategyLinks links = linksOf(gpus, strategy, devices);
  auto partsOf = [&](const LayerFootprint &of) {
    return layerTimeParts(of, strategy, links, gpus, devices, "f32");
  };
  LayerFootprint apart = footprint;
  apart.overlapped.clear();
  const LayerTimeParts with = partsOf(footprint), without = partsOf(apart);
  const double shifts =
      2 * links.contextParallel.seconds(Collective::Shift, double(keys));
  for (auto [part, step] : {std::pair{&LayerTimeParts::tpForward, &forward},
                            {&LayerTimeParts::tpBackward, &backward}}) {
    const ComputeWork work = {step->product.flops, step->movedBytes, 0,
                              step->product};
    const double attention = computeSeconds(work, gpus.deviceType(0), "f32");
    EXPECT_NEAR(without.*part - with.*part,
                3 * (attention + shifts -
                     overlapSeconds(attention, shifts, with.slowdown)),
                1e-12);
    EXPECT_LT(with.*part, without.*part);
  }
}

/// Layers whose ranks divide rows beside others, in two stages: of one sample,
/// and beside layouts of samples.
TEST_F(RowsTwinTest, ContextParallelismBesideOtherLayers) {
  TwinModel model;
  model.layers = 4;
  const std::pair<int64_t, std::vector<const char *>> cases[] = {
      {2, {"tp4", "cp4", "tsp4", "scp4.ckpt", "tp2.cp2"}},
      {8, {"dp4", "cp4", "dp2.cp2.ckpt", "tsp4", "zcp2.zdp2", "sdp2.scp2"}}};
  for (const auto &[batch, strategies] : cases)
    for (size_t shift : {0, 1}) {
      TwinPlan plan = uniformPlan(model, 2, parse("cp4"), batch, 2,
                                  shift ? "1f1b" : "gpipe");
      for (auto [layer, strategy] : llvm::enumerate(plan.strategies))
        strategy = parse(strategies[(layer + shift) % strategies.size()]);
      expectTwins(model, plan);
    }
}

/// Ulysses: a rank has a block of the rows, and in attention all rows of a part
/// of the heads; key heads too, and dropout by global heads. Biases by
/// distance, soft caps and packed samples are of whole samples, so they stay.
TEST_F(RowsTwinTest, ExchangedHeads) {
  for (const char *family : {"gpt2", "llama", "t5", "bloom", "gemma2"}) {
    TwinModel model;
    model.family = family;
    model.positions = 12;
    model.layers = family == std::string("t5") ? 3 : 2;
    model.heads = 4;
    model.keyHeads = 2;
    for (const char *text : {"up2", "up2.dp2.ckpt", "sup2", "up2.tp2"}) {
      // Two key heads are one on a rank of two.
      if (model.family != "gpt2" && model.family != "bloom" &&
          text == std::string("up2.tp2"))
        continue;
      Strategy strategy = parse(text);
      // The decoder of T5 has 9 positions.
      const int64_t samples = model.hasDecoder() ? 2 : 1;
      expectTwins(model, uniformPlan(model, 1, strategy,
                                     2 * samples * strategy.sampleShards(), 2,
                                     "1f1b"));
    }
  }
}

/// A key head goes to all ranks that have queries of its group, and what they
/// make of its gradient is summed.
TEST_F(RowsTwinTest, ExchangedHeadsThatRanksShare) {
  TwinModel model;
  model.family = "llama";
  model.layers = 2;
  model.heads = 4;
  for (auto [text, keyHeads] :
       {std::pair{"up4", 2}, {"up4.ckpt", 1}, {"tp2.up2", 2}, {"sup4", 2}}) {
    model.keyHeads = keyHeads;
    expectTwins(model, uniformPlan(model, 1, parse(text), 2, 2, "1f1b"));
  }
}

/// Windows of keys, key masks, learned positions, normed queries, gates behind
/// attention and images.
TEST_F(RowsTwinTest, ExchangedHeadsOfFamilies) {
  for (const char *family :
       {"mistral", "bert", "opt", "olmo2", "phi", "falcon", "vit"}) {
    TwinModel model;
    model.family = family;
    model.layers = 2;
    model.heads = 4;
    model.keyHeads = 2;
    // Of images four samples of 7 positions.
    const int64_t samples = model.family == "vit" ? 4 : 1;
    expectTwins(model,
                uniformPlan(model, 1, parse("up4"), 2 * samples, 2, "1f1b"));
  }
}

/// Beside samples, sharded parameters and heads of tensor parallelism, with
/// stages and blocks that begin inside samples.
TEST_F(RowsTwinTest, ExchangedHeadsBesideOtherLevels) {
  for (const char *family : {"gpt2", "llama"}) {
    TwinModel model;
    model.family = family;
    model.positions = 9;
    model.heads = 6;
    model.keyHeads = 6;
    model.width = 48;
    model.layers = 2;
    for (auto [text, samples] : {std::pair{"up3", 1},
                                 {"up3.tp2", 2},
                                 {"tp2.up3.ckpt", 3},
                                 {"up3.sdp2", 3},
                                 {"dp2.up2", 4},
                                 {"up6", 4}})
      expectTwins(model, uniformPlan(model, 2, parse(text),
                                     2 * samples * parse(text).sampleShards(),
                                     2, "1f1b"));
  }
}

/// A rank drops values of its block of the rows and of its slice of the last
/// dimension: BART drops what its inner layer gives, which `tp` splits.
TEST_F(RowsTwinTest, DropoutOfSlicesOfBlocks) {
  TwinModel model;
  model.family = "bart";
  model.layers = 4;
  model.heads = 4;
  for (const char *text : {"tp2.up2", "up2.tp2", "tp2.cp2.ckpt"})
    expectTwins(model, uniformPlan(model, 1, parse(text), 8, 2, "1f1b"));
}

/// Ring attention: keys and values go round, and each step adds what the block
/// that has arrived gives; backward their gradients go with them. Queries that
/// see none of a step's keys, blocks of several samples, and dropout by global
/// positions, whose numbers four keys share.
TEST_F(RowsTwinTest, KeysInARing) {
  for (const char *family : {"gpt2", "llama"}) {
    TwinModel model;
    model.family = family;
    model.positions = 24;
    model.layers = 2;
    model.heads = 4;
    model.keyHeads = 2;
    for (const char *text : {"ring2", "ring4", "ring3.ckpt", "dp2.ring2",
                             "sring4.ckpt", "sring2.sdp2", "ring4.ckpt"})
      for (int64_t samples : {1, 3}) {
        Strategy strategy = parse(text);
        expectTwins(model, uniformPlan(model, 1, strategy,
                                       2 * samples * strategy.sampleShards(), 2,
                                       "1f1b"));
      }
  }
}

/// Key masks, learned positions, normed queries, gates behind attention, turned
/// pairs that are neighbours and images, with and without causal masking.
TEST_F(RowsTwinTest, KeysInARingOfFamilies) {
  for (const char *family :
       {"bert", "vit", "opt", "olmo2", "phi", "glm", "falcon"}) {
    TwinModel model;
    model.family = family;
    model.layers = 2;
    model.heads = 4;
    model.keyHeads = 2;
    // Of images four samples of 7 positions.
    const int64_t samples = model.family == "vit" ? 4 : 1;
    expectTwins(model,
                uniformPlan(model, 1, parse("ring4"), 2 * samples, 2, "1f1b"));
  }
}

/// Beside heads of tensor parallelism, in two stages, under backward passes in
/// two parts and beside layers of other strategies.
TEST_F(RowsTwinTest, KeysInARingBesideOtherLevels) {
  TwinModel model;
  model.family = "llama";
  model.layers = 4;
  model.heads = 4;
  model.keyHeads = 2;
  for (auto [text, stages, schedule] : {std::tuple{"ring2.tp2", 1, "1f1b"},
                                        {"tp2.ring2.ckpt", 2, "1f1b"},
                                        {"ring2", 2, "zb-h1"},
                                        {"sring2", 2, "zb-h2"},
                                        {"ring4", 2, "gpipe"}})
    expectTwins(model,
                uniformPlan(model, stages, parse(text),
                            4 * parse(text).sampleShards(), 4, schedule));
  TwinPlan plan = uniformPlan(model, 2, parse("ring4"), 2, 2, "1f1b");
  const char *others[] = {"ring4", "cp4", "tp2.ring2", "sring4.ckpt", "tp4"};
  for (auto [layer, strategy] : llvm::enumerate(plan.strategies))
    strategy = parse(others[layer % std::size(others)]);
  expectTwins(model, plan);
}

/// What a ring cannot pass on is named, with the reason.
TEST_F(RowsTwinTest, KeysInARingAreRefusedByName) {
  for (auto [family, why] :
       {std::pair{"mistral",
                  "has a window, of whose keys a ring would pass all "
                  "on"},
        {"t5", "has biases by distance, and a step of a ring adds none"},
        {"bloom", "has slopes by distance, and a step of a ring adds none"},
        {"swin", "mixes positions otherwise than attention does"}}) {
    TwinModel model;
    model.family = family;
    model.layers = 3;
    TwinRun run =
        runTwin(context, model,
                uniformPlan(model, 1, parse("ring2"), 8, 2, "1f1b"), {});
    EXPECT_NE(run.error.find(std::string(why) +
                             ": expected no 'ring', which passes keys and "
                             "values round"),
              std::string::npos)
        << run.error;
  }
}

TEST_F(RowsTwinTest, ContextParallelismInSmallerTypes) {
  TwinModel model;
  model.layers = 2;
  for (const char *dtype : {"f32", "bf16"}) {
    for (const char *text : {"cp4", "dp2.cp2.ckpt", "up2.tp2", "ring4.ckpt"}) {
      TwinOptions options;
      options.dtype = dtype;
      Strategy strategy = parse(text);
      // Biases of keys, which the twin's LLaMA has, get no gradient but what is
      // rounded; windows, which Mistral has, no ring.
      model.family = dtype == std::string("f32") ? "llama"
                     : strategy.str().find("ring") == std::string::npos
                         ? "mistral"
                         : "granite";
      // One sample on the ranks that divide rows.
      expectTwins(model,
                  uniformPlan(model, 1, strategy, 2 * strategy.sampleShards(),
                              2, "1f1b"),
                  options);
    }
  }
}

/// Families whose operations on positions take blocks: key masks, learned
/// positions, windows of keys, turned pairs that are neighbours. What cannot
/// take blocks and mixes no positions is done whole: tokens of images.
TEST_F(RowsTwinTest, ContextParallelismOfFamilies) {
  for (const char *family : {"bert", "vit", "opt", "phi", "mistral", "glm",
                             "falcon", "starcoder2", "olmo2"}) {
    TwinModel model;
    model.family = family;
    model.layers = 2;
    model.heads = 4;
    model.keyHeads = 2;
    // One sample of 8 positions on four ranks; of images four of 7.
    const int64_t samples = model.family == "vit" ? 4 : 1;
    expectTwins(model,
                uniformPlan(model, 1, parse("cp4"), 2 * samples, 2, "1f1b"));
  }
}

/// What works on whole samples alone is named.
TEST_F(RowsTwinTest, ContextParallelismIsRefusedByName) {
  for (auto [family, why, instead] :
       {std::tuple{"t5", "'nn.grouped_attention' has biases by distance",
                   "'up' or 'tsp'"},
        {"bloom", "'nn.grouped_attention' has slopes by distance",
         "'up' or 'tsp'"},
        {"gemma2", "'nn.grouped_attention' caps scores", "'up' or 'tsp'"},
        {"swin", "'nn.window_attention' has windows of an image", "'tsp'"}}) {
    TwinModel model;
    model.family = family;
    model.layers = 3;
    TwinRun run = runTwin(
        context, model, uniformPlan(model, 1, parse("cp2"), 8, 2, "1f1b"), {});
    EXPECT_NE(run.error.find(std::string(why) +
                             ", and works on whole samples alone: expected no "
                             "'cp', which cuts their positions: use " +
                             instead),
              std::string::npos)
        << run.error;
  }
  const std::string twice = "1 sample of 12 positions are 12 rows, which twice "
                            "degree 4 of 'cp' does not divide: under causal "
                            "attention a rank has two pieces of them; 16 "
                            "positions would do, or 2 samples";
  for (auto [positions, refusal] :
       {std::pair<int64_t, std::string>{
            7, "1 sample of 7 positions are 7 rows, which degree 4 of 'cp' "
               "does not divide"},
        {12, twice}}) {
    TwinModel model;
    model.positions = positions;
    TwinRun run = runTwin(
        context, model, uniformPlan(model, 1, parse("cp4"), 2, 2, "1f1b"), {});
    EXPECT_NE(run.error.find(refusal), std::string::npos) << run.error;
  }
}

/// Heads that ranks cannot share out are refused with their number, and what
/// has none by name.
TEST_F(RowsTwinTest, HeadsThatRanksDoNotDivideAreRefused) {
  for (auto [family, text, refusal] :
       {std::tuple{"gpt2", "up4",
                   "cannot have strategy 'up4': 'nn.attention' has 6 heads, "
                   "which degree 4 of 'up' does not divide"},
        {"llama", "up4",
         "'nn.grouped_attention' has 6 key heads, which degree 4 of 'up' "
         "neither divides nor is a multiple of"},
        {"swin", "up2",
         "'nn.window_attention' has windows of an image, and works on whole "
         "samples alone: expected no 'up'"}}) {
    TwinModel model;
    model.family = family;
    model.layers = 3;
    if (model.family != "swin") {
      model.heads = 6;
      model.width = 48;
    }
    TwinRun run = runTwin(context, model,
                          uniformPlan(model, 1, parse(text), 8, 2, "1f1b"), {});
    EXPECT_NE(run.error.find(refusal), std::string::npos) << run.error;
  }
}

/// On a model of a device that checks the order of every access.
TEST_F(RowsTwinTest, OnDevicesWithStreams) {
  TwinModel model;
  TwinOptions options;
  options.backend = "cuda";
  for (const char *text : {"tsp2.sdp2", "dp2.tsp2.ckpt"})
    expectTwins(model, uniformPlan(model, 2, parse(text), 16, 4, "1f1b"),
                options);
  for (const char *text :
       {"cp2.sdp2", "cp4.ckpt", "up4.ckpt", "up2.tp2", "cp2.tsp2.ckpt",
        "ring4.ckpt", "ring3", "sring4", "sring2.sdp2.ckpt", "tp2.ring2"}) {
    Strategy strategy = parse(text);
    model.positions = text == std::string("ring3") ? 12 : 8;
    expectTwins(
        model,
        uniformPlan(model, 2, strategy, 4 * strategy.sampleShards(), 4, "1f1b"),
        options);
  }
}

/// The kernels of the CUDA backend, on the CPU.
TEST_F(RowsTwinTest, OnEmulatedKernels) {
  const char *library = "libgrt_cuda_emulated.so";
  if (!builtBackend(library))
    GTEST_SKIP() << library << " was not built";
  TwinModel model;
  model.layers = 2;
  TwinOptions options;
  options.backend = "cuda";
  options.emulation = library;
  options.steps = 1;
  expectTwins(model, uniformPlan(model, 1, parse("tsp2.dp2"), 8, 2, "1f1b"),
              options);
  // Blocks of positions: packed queries, and key heads that queries share.
  for (const char *family : {"gpt2", "llama"}) {
    model.family = family;
    model.heads = 4;
    model.keyHeads = 2;
    for (const char *text : {"cp2", "cp2.tsp2", "up2", "ring2"})
      if (isLong() || text == std::string("ring2") ||
          text == std::string(model.family == "gpt2" ? "cp2.tsp2" : "cp2"))
        expectTwins(model, uniformPlan(model, 1, parse(text), 2, 2, "1f1b"),
                    options);
  }
  // Keys of several samples in a ring, summed in f32 and rounded.
  options.dtype = "bf16";
  model.family = "granite";
  expectTwins(model, uniformPlan(model, 1, parse("ring3.ckpt"), 6, 2, "1f1b"),
              options);
}

/// Four samples of 7 positions on 8 ranks.
TEST_F(RowsTwinTest, RowsThatRanksDoNotDivideAreRefused) {
  TwinModel model;
  model.positions = 7;
  TwinRun run = runTwin(context, model,
                        uniformPlan(model, 1, parse("tsp8"), 8, 2, "1f1b"), {});
  EXPECT_NE(run.error.find("4 samples of 7 positions are 28 rows, which degree "
                           "8 of 'tsp' does not divide"),
            std::string::npos)
      << run.error;
}

//===----------------------------------------------------------------------===//
// Bytes that are moved
//===----------------------------------------------------------------------===//

/// Calls and bytes of the device's collectives, of all ranks.
struct Moved {
  std::atomic<uint64_t> reduceCalls, reduceBytes, gatherCalls, gatherBytes,
      scatterCalls, scatterBytes, exchangeCalls, exchangeBytes, shiftCalls,
      shiftBytes;
} moved;
const grt_device_collectives *counted = nullptr;

uint64_t widthOf(uint32_t dtype) { return dtype == GRT_F64 ? 8 : 4; }

void countCollectives(grt_device &device) {
  static grt_device_collectives table;
  counted = device.local_collectives; // ranks are threads
  table = *counted;
  table.in_graphs = 0; // every step calls them
  table.all_reduce = [](void *state, void *group, uint32_t stream, void *data,
                        uint64_t count, uint32_t dtype, char *message,
                        size_t capacity) {
    ++moved.reduceCalls;
    moved.reduceBytes += count * widthOf(dtype);
    return counted->all_reduce(state, group, stream, data, count, dtype,
                               message, capacity);
  };
  table.all_gather = [](void *state, void *group, uint32_t stream,
                        const void *in, void *out, uint64_t bytes,
                        char *message, size_t capacity) {
    ++moved.gatherCalls;
    moved.gatherBytes += bytes;
    return counted->all_gather(state, group, stream, in, out, bytes, message,
                               capacity);
  };
  table.reduce_scatter = [](void *state, void *group, uint32_t stream,
                            const void *in, void *out, uint64_t count,
                            uint32_t dtype, int32_t accumulate, void *scratch,
                            char *message, size_t capacity) {
    ++moved.scatterCalls;
    moved.scatterBytes += count * widthOf(dtype);
    return counted->reduce_scatter(state, group, stream, in, out, count, dtype,
                                   accumulate, scratch, message, capacity);
  };
  table.all_to_all = [](void *state, void *group, uint32_t stream,
                        const void *in, void *out, uint64_t bytes,
                        char *message, size_t capacity) {
    ++moved.exchangeCalls;
    moved.exchangeBytes += bytes;
    return counted->all_to_all(state, group, stream, in, out, bytes, message,
                               capacity);
  };
  table.exchange_in_group =
      [](void *state, void *group, uint32_t stream,
         const grt_exchange_piece *sends, uint64_t sendCount,
         const grt_exchange_piece *receives, uint64_t receiveCount,
         char *message, size_t capacity) {
        ++moved.shiftCalls;
        for (uint64_t i = 0; i < sendCount; ++i)
          moved.shiftBytes += sends[i].bytes;
        return counted->exchange_in_group(state, group, stream, sends,
                                          sendCount, receives, receiveCount,
                                          message, capacity);
      };
  device.local_collectives = &table;
}

/// The collectives of a step on a device are those that the footprints of its
/// layers list, call by call and byte by byte.
TEST_F(RowsTwinTest, WhatIsMovedIsWhatFootprintsList) {
  TwinModel model;
  TwinOptions options;
  options.backend = "cuda";
  options.dtype = "f32";
  options.clip = false;
  options.changeDevice = countCollectives;
  const int64_t microBatches = 2, samples = 4;
  for (const char *text :
       {"tsp2", "tsp4", "tsp4.ckpt", "cp2", "cp4", "cp4.ckpt", "tp2.cp2", "up2",
        "up4.ckpt", "tp2.up2", "cp2.tsp2", "ring4.ckpt", "tp2.ring2"}) {
    SCOPED_TRACE(text);
    Strategy strategy = parse(text);
    const auto ranks = uint64_t(strategy.devices());
    // Of two more steps, so without what is done once.
    std::array<std::array<uint64_t, 10>, 2> runs;
    for (size_t i : {0, 1}) {
      options.steps = i ? 3 : 1;
      for (auto *count :
           {&moved.reduceCalls, &moved.reduceBytes, &moved.gatherCalls,
            &moved.gatherBytes, &moved.scatterCalls, &moved.scatterBytes,
            &moved.exchangeCalls, &moved.exchangeBytes, &moved.shiftCalls,
            &moved.shiftBytes})
        *count = 0;
      TwinRun run =
          runTwin(context, model,
                  uniformPlan(model, 1, strategy, microBatches * samples,
                              microBatches, "1f1b"),
                  options);
      ASSERT_EQ(run.error, "");
      runs[i] = {moved.reduceCalls,   moved.reduceBytes,   moved.gatherCalls,
                 moved.gatherBytes,   moved.scatterCalls,  moved.scatterBytes,
                 moved.exchangeCalls, moved.exchangeBytes, moved.shiftCalls,
                 moved.shiftBytes};
    }

    ImportOptions import;
    import.dtype = options.dtype;
    auto module = llvm::cantFail(importHuggingFaceConfig(
        model.config(), "config.json", import, context));
    auto layers =
        llvm::cantFail(createIRLayerModel(*module, "adamw", {"cuda", 1}));
    std::array<uint64_t, 10> listed = {};
    for (size_t layer = 0; layer < layers->layerCount(); ++layer) {
      LayerFootprint footprint = llvm::cantFail(
          layers->footprint(layers->kindOf(layer), strategy, samples));
      bool sums = false; // is listed
      for (const LayerCollective &each : footprint.collectives) {
        // Once a step, all gradients of a layer in one call.
        const bool once = each.when == CollectiveTime::Step;
        const int64_t times = once ? 1 : microBatches;
        size_t kind = each.kind == Collective::AllReduce   ? 0
                      : each.kind == Collective::AllGather ? 2
                      : each.kind == Collective::AllToAll  ? 6
                      : each.kind == Collective::Shift     ? 8
                                                           : 4;
        EXPECT_TRUE(kind != 4 || each.kind == Collective::ReduceScatter);
        listed[kind] += once ? uint64_t(!std::exchange(sums, true))
                             : uint64_t(each.calls * times);
        // A list has whole buffers, a call of the others a rank's block, of a
        // shift its own.
        const int64_t members =
            each.among == CollectiveGroup::Tensor
                ? strategy.degree(strategy.on(LayerAxis::Tensor))
            : each.among == CollectiveGroup::Context
                ? strategy.degree(strategy.on(LayerAxis::Context))
                : int64_t(ranks);
        listed[kind + 1] += uint64_t(each.bytes * times /
                                     (kind == 0 || kind == 8 ? 1 : members));
      }
    }
    for (size_t i = 0; i < listed.size(); ++i)
      EXPECT_EQ((runs[1][i] - runs[0][i]) / 2 / ranks, listed[i]) << i;
    const llvm::StringRef name = text;
    EXPECT_GT(listed[name.contains("ring") ? 8
                     : name.contains("up") ? 6
                                           : 4],
              0u);
  }
}

} // namespace
