//===- MegatronTest.cpp - Scripts that are written and read back ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Document.h"
#include "galvatron/Software/Pricing.h"
#include "galvatron/Software/Target.h"

#include "MegatronLayout.h"

#include "gtest/gtest.h"

#include <random>
#include <set>

using namespace galvatron;

namespace {

using MegatronOptions = std::vector<std::pair<std::string, std::string>>;

std::unique_ptr<Target> megatron(MegatronOptions options = {}) {
  SoftwareRequest request{false, "megatron", std::move(options)};
  return llvm::cantFail(TargetRegistry::make(request));
}

ModelShape llama() {
  ModelShape shape;
  shape.name = "llama";
  shape.layers = 24;
  shape.hidden = 2048;
  shape.heads = 16;
  shape.keyHeads = 8;
  shape.headWidth = 128;
  shape.inner = 5632;
  shape.vocabulary = 32000;
  shape.tokens = shape.positions = 4096;
  shape.gated = true;
  return shape;
}

/// Arguments of a model, and what a test adds.
std::string arguments(const std::string &more) {
  return "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 "
         "--seq-length 2048 --vocab-size 50257 --micro-batch-size 2 --bf16 "
         "--overlap-grad-reduce " +
         more;
}

std::string refusal(const std::string &text) {
  llvm::Expected<SoftwareReading> none = megatron()->read(text, "run.sh");
  return none ? "" : llvm::toString(none.takeError());
}

/// Everything that can be expressed is written, and read back as the same.
TEST(Megatron, WhatIsWrittenIsReadBack) {
  std::mt19937 random(7);
  int compared = 0;
  for (auto [option, value] : {std::pair("overlap-grad-reduce", "on"),
                               {"overlap-grad-reduce", "off"},
                               {"optimizer-instances", "on"},
                               {"grad-reduce-in-bf16", "on"}}) {
    auto target = megatron({{option, value}});
    const bool overlaps = std::string(option) == "overlap-grad-reduce";
    for (llvm::StringRef name : {"8xh100", "2x8xh100", "16xa100-80gb"}) {
      if (!overlaps && name != "8xh100")
        continue;
      Cluster cluster = llvm::cantFail(Cluster::builtin(name));
      for (int i = 0; i < (overlaps ? 2 : 1); ++i) {
        ModelShape shape = llama();
        shape.layers = 6 * int64_t(1 + random() % 6);
        shape.gated = random() % 2;
        shape.tied = random() % 2;
        shape.rotary = random() % 2;
        shape.rmsNorm = random() % 2;
        shape.biases = random() % 2;
        shape.keyHeads = random() % 2 ? 16 : 4;
        shape.headWidth = random() % 2 ? 128 : 64;
        llvm::cantFail(target->visit(
            shape, cluster, overlaps ? 32 : 8,
            [&](const Configuration &configuration) {
              LaunchFile file =
                  target->write(shape, configuration, cluster).front();
              llvm::Expected<SoftwareReading> reading =
                  target->read(file.content, "llama");
              ASSERT_TRUE(bool(reading))
                  << llvm::toString(reading.takeError()) << "\n"
                  << file.content;
              EXPECT_EQ(reading->configuration, configuration)
                  << configuration.str() << "\n"
                  << file.content;
              ModelShape expected = shape;
              if (!shape.rotary)
                expected.rotaryBase = 1e4;
              EXPECT_EQ(reading->shape, expected) << file.content;
              EXPECT_EQ(reading->devices, cluster.deviceCount());
              ++compared;
            }));
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

TEST(Megatron, DocumentsKeepWhatWasRead) {
  auto target = megatron();
  Cluster cluster = llvm::cantFail(Cluster::builtin("8xh100"));
  llvm::cantFail(target->visit(
      llama(), cluster, 16, [&](const Configuration &configuration) {
        SoftwareDocument document{llama(), configuration};
        SoftwareDocument again = llvm::cantFail(
            SoftwareDocument::fromJson(document.toJson(), "llama"));
        EXPECT_EQ(again.shape, document.shape);
        EXPECT_EQ(again.configuration, document.configuration);
      }));
}

/// An absent flag is the software's default, as megatron/training/arguments.py
/// has it.
TEST(Megatron, AbsentFlagsAreItsDefaults) {
  SoftwareReading reading =
      llvm::cantFail(megatron()->read(arguments(""), "run.sh"));
  EXPECT_EQ(reading.shape.inner, 4 * 2048);
  EXPECT_EQ(reading.shape.keyHeads, 16);
  EXPECT_EQ(reading.shape.headWidth, 128);
  EXPECT_TRUE(reading.shape.tied);
  EXPECT_TRUE(reading.shape.biases);
  EXPECT_FALSE(reading.shape.rmsNorm);
  EXPECT_FALSE(reading.shape.rotary);
  EXPECT_EQ(reading.configuration.batch, 2);
  EXPECT_EQ(reading.configuration.sharding, Sharding::None);
  EXPECT_EQ(reading.devices, 1);
  // int((4 h * 2 / 3) / 64) * 64 beside a gate.
  EXPECT_EQ(llvm::cantFail(megatron()->read(arguments("--swiglu"), "run.sh"))
                .shape.inner,
            5440);
  // Sequence parallelism has nothing to cut and is turned off.
  EXPECT_FALSE(llvm::cantFail(
                   megatron()->read(arguments("--sequence-parallel"), "run.sh"))
                   .configuration.sequenceParallel);
  // One group of keys where their number is not given.
  EXPECT_EQ(llvm::cantFail(megatron()->read(
                               arguments("--group-query-attention"), "run.sh"))
                .shape.keyHeads,
            1);
}

TEST(Megatron, ReadsScriptsAsPeopleWriteThem) {
  SoftwareReading reading = llvm::cantFail(megatron()->read(
      "#!/bin/bash\n"
      "export CUDA_DEVICE_MAX_CONNECTIONS=1  # --num-layers 7\n"
      "torchrun --nproc_per_node=8 --nnodes 2 pretrain_gpt.py \\\n"
      "    " +
          arguments("--tensor-model-parallel-size=4 \\\n"
                    "  --pipeline-model-parallel-size '2' --lr \"1e-4\" \\\n"
                    "  --num-layers-per-virtual-pipeline-stage 6 "
                    "--global-batch-size 64 --use-distributed-optimizer "
                    "--data-path $DATA --recompute-granularity full "
                    "--recompute-method uniform --recompute-num-layers 1\n"),
      "run.sh"));
  EXPECT_EQ(reading.configuration.str(),
            "pp2 m16 zdp2.tp4.ckpt, 2 a micro-batch, 2 chunks");
  EXPECT_EQ(reading.devices, 16);
  EXPECT_EQ(reading.passed, (std::vector<std::string>{"--lr", "--data-path"}));
}

/// Variables have what the script gives them; the others are told.
TEST(Megatron, ReadsVariables) {
  SoftwareReading reading = llvm::cantFail(megatron()->read(
      "TP=4\nNODES=${SLURM_NNODES:-2}\ncd $HOME\n"
      "MODEL=\"--num-layers 24 --hidden-size 2048 --num-attention-heads 16 "
      "--seq-length 2048 --vocab-size 50257\"\n"
      "TRAINING=(\n  --micro-batch-size 2\n  --bf16 --overlap-grad-reduce "
      "$MORE\n)\n"
      "torchrun --nproc_per_node=8 --nnodes $NODES pretrain_gpt.py \\\n"
      "  $MODEL ${TRAINING[@]} --tensor-model-parallel-size $TP \\\n"
      "  --data-path $DATA ${OTHERS[@]} \"$@\"\n",
      "run.sh"));
  EXPECT_EQ(reading.configuration.str(), "pp1 m1 dp4.tp4, 2 a micro-batch");
  EXPECT_EQ(reading.shape.layers, 24);
  EXPECT_EQ(reading.devices, 16);
  EXPECT_EQ(reading.unread,
            (std::vector<std::string>{"$MORE", "${OTHERS[@]}"}));
}

/// Norms and feed-forwards are recomputed by themselves: bytes and work counted
/// by hand, written and read back.
/// Integer expressions of the shell, of variables that the script sets.
TEST(Megatron, ReadsIntegerExpressions) {
  SoftwareReading reading = llvm::cantFail(megatron()->read(
      "NODES=${SLURM_NNODES:-2}\nPP=4\nWORLD=$((8 * $NODES))\nVPP=$(( 3 ))\n" +
          arguments("--nproc-per-node 8 --nnodes $NODES "
                    "--pipeline-model-parallel-size $PP "
                    "--num-layers-per-virtual-pipeline-stage "
                    "$((24 / ${PP} / VPP)) "
                    "--global-batch-size $(((WORLD - 8 + 2*4) * 5 % 48))"),
      "run.sh"));
  EXPECT_EQ(reading.configuration.str(),
            "pp4 m4 dp4, 2 a micro-batch, 3 chunks");
  EXPECT_EQ(reading.configuration.batch, 32);
  for (const char *text : {"$((8 / NONE))", "$((8 / 0))", "$((8 +))", "$((8",
                           "$((9223372036854775807 * 2))", "$((N))"})
    EXPECT_NE(refusal("N=$((N))\n" +
                      arguments(std::string("--global-batch-size ") + text))
                  .find("flag --global-batch-size: expected a number"),
              std::string::npos)
        << text;
}

TEST(Megatron, RecomputesModules) {
  const std::string model =
      "--nproc-per-node 8 --num-layers 24 --hidden-size 2048 "
      "--num-attention-heads 16 --seq-length 2048 --vocab-size 50257 "
      "--micro-batch-size 2 --bf16 --overlap-grad-reduce "
      "--tensor-model-parallel-size 2 --recompute-granularity selective "
      "--recompute-modules ";
  auto target = megatron();
  auto read = [&](const std::string &modules) {
    return llvm::cantFail(target->read(model + modules, "run.sh"));
  };
  SoftwareReading norms = read("layernorm"), mlp = read("core_attn mlp"),
                  both = read("mlp layernorm");
  EXPECT_EQ(norms.configuration.recompute, Recompute::Modules);
  EXPECT_EQ(norms.configuration.modules.str(), "layernorm");
  EXPECT_EQ(mlp.configuration.modules.str(), "core_attn mlp");
  EXPECT_EQ(both.configuration.modules.str(), "layernorm mlp");

  const double t = 2048, h = 2048, f = 4 * h;
  auto blockOf = [&](const Configuration &plan) {
    return softwareLayers(norms.shape, plan, target->execution())[1];
  };
  Configuration none = norms.configuration;
  none.recompute = Recompute::None;
  const ProfileLayer all = blockOf(none);
  const ProfileLayer less = blockOf(norms.configuration);
  // Two results of all ranks, of which kernels read and write as much.
  EXPECT_EQ(double(all.intermediateBytes - less.intermediateBytes), 4 * t * h);
  EXPECT_EQ(double(all.tpReplicatedBytes - less.tpReplicatedBytes), 4 * t * h);
  EXPECT_EQ(less.again.movedBytes, 8 * t * h);
  EXPECT_EQ(double(less.again.bytes), 4 * t * h);
  EXPECT_EQ(less.again.flops, 0);
  EXPECT_EQ(less.again.tpAllReduceBytes, 0);
  // Both sides of the activation; both products, and the sum of the second.
  const ProfileLayer least = blockOf(both.configuration);
  EXPECT_EQ(double(less.intermediateBytes - least.intermediateBytes),
            4 * t * f);
  EXPECT_NEAR(least.again.flops, 2 * t * 2 * h * f / 2, 1e-6 * t * h * f);
  EXPECT_EQ(least.again.tpAllReduceBytes, all.tpAllReduceBytes / 2);
  // With cut rows norms are of a rank's rows.
  Configuration cut = norms.configuration;
  cut.sequenceParallel = true;
  EXPECT_EQ(blockOf(cut).again.movedBytes, 8 * t * h / 2);
  EXPECT_EQ(blockOf(cut).tpReplicatedBytes, 0);

  // The more is computed again, the longer a step and the less memory.
  Cluster cluster = llvm::cantFail(Cluster::builtin("8xh100"));
  auto priceOf = [&](const Configuration &plan) {
    return llvm::cantFail(
        price(norms.shape, plan, target->execution(), cluster));
  };
  SoftwarePrice kept = priceOf(none), some = priceOf(norms.configuration),
                most = priceOf(both.configuration);
  EXPECT_LT(kept.stepMs, some.stepMs);
  EXPECT_LT(some.stepMs, most.stepMs);
  EXPECT_GT(kept.allocated, some.allocated);
  EXPECT_GT(some.allocated, most.allocated);

  // In the space where it is asked for, written, read back, and in JSON.
  for (bool asked : {false, true}) {
    auto searched =
        megatron(asked ? MegatronOptions{{"recompute-modules", "on"}}
                       : MegatronOptions{});
    std::set<std::string> seen;
    llvm::cantFail(
        searched->visit(llama(), cluster, 16, [&](const Configuration &plan) {
          if (plan.recompute != Recompute::Modules)
            return;
          seen.insert(plan.modules.str());
          LaunchFile file = searched->write(llama(), plan, cluster).front();
          EXPECT_EQ(
              llvm::cantFail(searched->read(file.content, "x")).configuration,
              plan);
          SoftwareDocument document{llama(), plan};
          EXPECT_EQ(
              llvm::cantFail(SoftwareDocument::fromJson(document.toJson(), "x"))
                  .configuration,
              plan);
        }));
    EXPECT_EQ(seen.size(), asked ? 3u : 0u);
  }
}

/// Selective recomputation drops attention's scores, which is nothing where a
/// fused kernel keeps none.
TEST(Megatron, RecomputesScores) {
  auto read = [](const std::string &more, const MegatronOptions &options = {}) {
    return megatron(options)->read(
        "--nproc-per-node 8 --num-layers 24 --hidden-size 2048 "
        "--num-attention-heads 16 --seq-length 2048 --vocab-size 50257 "
        "--micro-batch-size 2 --bf16 --overlap-grad-reduce " +
            more,
        "run.sh");
  };
  for (const char *flags :
       {"--recompute-granularity selective",
        "--recompute-granularity selective --recompute-modules core_attn",
        "--recompute-activations"}) {
    SoftwareReading reading = llvm::cantFail(read(flags));
    EXPECT_EQ(reading.configuration.recompute, Recompute::Attention);
    // Of unfused attention it is memory; of fused, nothing.
    Configuration none = reading.configuration;
    none.recompute = Recompute::None;
    Cluster cluster = llvm::cantFail(Cluster::builtin("8xh100"));
    for (auto [options, less] : {std::pair(MegatronOptions{}, false),
                                 {{{"attention", "unfused"}}, true}}) {
      Execution execution = megatron(options)->execution();
      auto bytes = [&](const Configuration &degrees) {
        return llvm::cantFail(price(reading.shape, degrees, execution, cluster))
            .allocated;
      };
      if (less)
        EXPECT_LT(bytes(reading.configuration), bytes(none));
      else
        EXPECT_EQ(bytes(reading.configuration), bytes(none));
    }
  }
  // It is in the space, written and read back, where there are scores.
  for (auto [options, most] :
       {std::pair(MegatronOptions{}, 0), {{{"attention", "unfused"}}, 1000}}) {
    int visited = 0;
    Cluster cluster = llvm::cantFail(Cluster::builtin("8xh100"));
    auto target = megatron(options);
    llvm::cantFail(
        target->visit(llama(), cluster, 16, [&](const Configuration &plan) {
          if (plan.recompute != Recompute::Attention)
            return;
          ++visited;
          LaunchFile file = target->write(llama(), plan, cluster).front();
          EXPECT_EQ(
              llvm::cantFail(target->read(file.content, "x")).configuration,
              plan);
        }));
    EXPECT_LE(visited, most);
    EXPECT_EQ(visited > 0, most > 0);
  }
  for (auto [flags, message] : std::vector<std::pair<std::string, std::string>>{
           {"--recompute-granularity selective --recompute-modules core_attn "
            "moe_act --seed 1",
            "run.sh: flag --recompute-modules: expected core_attn, layernorm "
            "and mlp, as no block that is priced has activations of experts, "
            "found 'moe_act'"},
           {"--recompute-granularity selective --recompute-modules layernorms",
            "run.sh: flag --recompute-modules: unknown module 'layernorms', "
            "expected some of core_attn, layernorm, mlp, moe, moe_act, "
            "shared_experts, mla_up_proj; did you mean 'layernorm'?"},
           {"--recompute-activations --recompute-method block",
            "run.sh: flag --recompute-method: expected none beside selective "
            "recomputation"},
           {"--recompute-activations --recompute-granularity full",
            "run.sh: flag --recompute-activations: expected none beside "
            "--recompute-granularity"}}) {
    llvm::Expected<SoftwareReading> refused = read(flags);
    ASSERT_FALSE(bool(refused)) << flags;
    EXPECT_EQ(llvm::toString(refused.takeError()), message);
  }
}

/// Ways of context parallelism are options: all-to-alls cut heads besides.
TEST(Megatron, PositionsAreCutInThreeWays) {
  ModelShape shape = llama();
  shape.tokens = shape.positions = 32768;
  Cluster cluster = llvm::cantFail(Cluster::builtin("8xh100"));
  for (auto [type, most] :
       {std::pair("p2p", 8), {"all_gather", 8}, {"a2a", 8}}) {
    auto target = megatron({{"cp-comm-type", type}});
    int visited = 0;
    llvm::cantFail(
        target->visit(shape, cluster, 16, [&](const Configuration &plan) {
          if (plan.context == 1 || plan.recompute != Recompute::None)
            return;
          ++visited;
          if (type == std::string("a2a"))
            EXPECT_EQ(shape.keyHeads % (plan.context * plan.tensor), 0);
          LaunchFile file = target->write(shape, plan, cluster).front();
          EXPECT_NE(file.content.find(std::string("--cp-comm-type ") + type),
                    std::string::npos);
          EXPECT_EQ(
              llvm::cantFail(target->read(file.content, "x")).configuration,
              plan);
          auto other = megatron(
              {{"cp-comm-type", type == std::string("p2p") ? "a2a" : "p2p"}});
          EXPECT_EQ(llvm::toString(other->read(file.content, "x").takeError()),
                    std::string("x: flag --cp-comm-type: "
                                "megatron,cp-comm-type=") +
                        type + " prices it");
        }));
    EXPECT_GE(visited, most) << type;
  }
  llvm::Expected<std::unique_ptr<Target>> none =
      TargetRegistry::make({false, "megatron", {{"cp-comm-type", "ring"}}});
  ASSERT_FALSE(bool(none));
  EXPECT_EQ(
      llvm::toString(none.takeError()),
      "option 'cp-comm-type' of megatron: expected 'p2p', 'all_gather' or "
      "'a2a', found 'ring'");
}

/// Layouts by hand; package_readers.py compares them with megatron-core's
/// parser.
TEST(Megatron, ReadsLayouts) {
  auto read = [](llvm::StringRef layout) {
    return llvm::cantFail(blocksOfLayout(layout));
  };
  using Blocks = std::vector<int64_t>;
  EXPECT_EQ(read("Et*11|t*11|t*11|t*10L"), (Blocks{11, 11, 11, 10}));
  EXPECT_EQ(read("Et,t,t|(tt|)*2tL"), (Blocks{3, 2, 2, 1}));
  EXPECT_EQ(read("E|t|t|L"), (Blocks{0, 1, 1, 0}));
  // A group repeats as a whole, a number behind a character that alone.
  EXPECT_EQ(read("Ettt*2|(t|t)*2L"), (Blocks{4, 1, 2, 1}));
  for (const Blocks &blocks :
       {Blocks{11, 11, 11, 10}, Blocks{0, 1, 1, 0}, Blocks{1}, Blocks{7, 8}})
    EXPECT_EQ(read(layoutOf(blocks)), blocks);
  for (auto [layout, message] :
       std::vector<std::pair<std::string, std::string>>{
           {"t|tL", "expected 'E' in front and 'L' at the end, found 't|tL'"},
           {"Et|t", "expected 'E' in front and 'L' at the end, found 'Et|t'"},
           {"EtL|tL", "expected 't' and '|' between 'E' and 'L', found 'tL'"},
           {"Et|*2tL", "a chunk without a layer is not priced"},
           {"Et|tmL", "multi-token prediction ('m') is not priced"},
           {"E((t)*2|)*2L", "expected a ')' in front of another '(', as groups "
                            "do not nest"},
           {"E(tL", "expected a ')' in front of another '(', as groups do not "
                    "nest"},
           {"Et*xL", "expected a number behind '*', found 'xL'"},
           {"Et*99999999L", "expected a layout of at most 65536 characters"}}) {
    llvm::Expected<Blocks> none = blocksOfLayout(layout);
    ASSERT_FALSE(bool(none)) << layout;
    EXPECT_EQ(llvm::toString(none.takeError()), message);
  }
}

/// Uneven stages are read from either flag, written as a layout, and read back.
TEST(Megatron, StagesMayBeUneven) {
  auto read = [](const std::string &more) {
    return megatron()->read(
        "--nproc-per-node 8 --num-layers 31 --hidden-size 2048 "
        "--num-attention-heads 16 --seq-length 2048 --vocab-size 50257 "
        "--micro-batch-size 1 --global-batch-size 16 --bf16 "
        "--overlap-grad-reduce --pipeline-model-parallel-size 4 " +
            more,
        "run.sh");
  };
  using Blocks = std::vector<int64_t>;
  const std::vector<std::pair<std::string, Blocks>> cases = {
      {"--decoder-first-pipeline-num-layers 7", {7, 8, 8, 8}},
      {"--decoder-first-pipeline-num-layers 9 "
       "--decoder-last-pipeline-num-layers 4",
       {9, 9, 9, 4}},
      {"--decoder-last-pipeline-num-layers 1", {10, 10, 10, 1}},
      {"--pipeline-model-parallel-layout 'Et*7|t*8|t*8|t*8L'", {7, 8, 8, 8}},
      {"--pipeline-model-parallel-layout 'Et*3|(t*4|)*6t*4L'",
       {3, 4, 4, 4, 4, 4, 4, 4}}};
  Cluster cluster = llvm::cantFail(Cluster::builtin("8xh100"));
  for (const auto &[flags, blocks] : cases) {
    SoftwareReading reading = llvm::cantFail(read(flags));
    EXPECT_EQ(reading.configuration.blocks, blocks) << flags;
    EXPECT_EQ(reading.configuration.chunks, int64_t(blocks.size()) / 4);
    auto target = megatron();
    SoftwarePrice found = llvm::cantFail(
        price(target->asTrained(reading.shape, reading.configuration),
              reading.configuration, target->execution(), cluster));
    EXPECT_GT(found.stepMs, 0);
    EXPECT_LE(
        LeastSteps(target->execution(), cluster)
            .leastMs(target->asTrained(reading.shape, reading.configuration),
                     reading.configuration),
        found.stepMs);
    LaunchFile file =
        target->write(reading.shape, reading.configuration, cluster).front();
    EXPECT_EQ(llvm::cantFail(target->read(file.content, "back")).configuration,
              reading.configuration)
        << flags;
  }
  for (
      auto [flags, message] : std::vector<std::pair<std::string, std::string>>{
          {"--decoder-first-pipeline-num-layers 6",
           "run.sh: flag --decoder-first-pipeline-num-layers: expected layers "
           "besides those of the first and last stage that divide by the other "
           "3 stages, found 25"},
          {"--decoder-first-pipeline-num-layers none",
           "run.sh: flag --decoder-first-pipeline-num-layers: expected a "
           "number of at least 1, found 'none'"},
          {"--decoder-first-pipeline-num-layers 7 "
           "--account-for-loss-in-pipeline-split",
           "run.sh: flag --decoder-first-pipeline-num-layers: expected none of "
           "--account-for-embedding-in-pipeline-split, "
           "--account-for-loss-in-pipeline-split and "
           "--num-layers-per-virtual-pipeline-stage beside it"},
          {"--decoder-first-pipeline-num-layers 7 "
           "--num-virtual-stages-per-pipeline-rank 2",
           "run.sh: flag --decoder-first-pipeline-num-layers: expected layers "
           "of a stage that divide by 2 chunks, found 7"},
          {"--pipeline-model-parallel-layout 'Et*15|t*16L'",
           "run.sh: flag --pipeline-model-parallel-layout: expected a multiple "
           "of 4 chunks, found 2"},
          {"--pipeline-model-parallel-layout 'Et*8|t*8|t*8|t*8L'",
           "run.sh: expected 4 counts of blocks, 31 in all, found 4 counts and "
           "32 blocks"},
          {"--pipeline-model-parallel-layout 'Et*7|t*8|t*8|t*8L' "
           "--num-virtual-stages-per-pipeline-rank 2",
           "run.sh: flag --pipeline-model-parallel-layout: expected no other "
           "flag of stages beside it"}}) {
    llvm::Expected<SoftwareReading> none = read(flags);
    ASSERT_FALSE(bool(none)) << flags;
    EXPECT_EQ(llvm::toString(none.takeError()), message);
  }
}

/// In its own assignment a variable is the environment's, so it has its
/// default.
TEST(Megatron, ReadsDefaultsOfTheEnvironment) {
  auto read = [](const std::string &assignments) {
    return megatron()->read(
        assignments +
            "torchrun --nproc_per_node=8 pretrain_gpt.py --num-layers 24 "
            "--hidden-size 2048 --num-attention-heads 16 --seq-length 2048 "
            "--vocab-size 50257 --micro-batch-size 2 --bf16 "
            "--overlap-grad-reduce --tensor-model-parallel-size $TP\n",
        "run.sh");
  };
  for (const char *own :
       {"TP=${TP:-4}\n", "TP=${TP-4}\n", "N=${TP:-4}\nTP=${TP:-$N}\n"})
    EXPECT_EQ(llvm::cantFail(read(own)).configuration.tensor, 4) << own;
  for (const char *none : {"TP=$TP\n", "TP=${TP}\n", "A=$TP\nTP=$A\n"})
    EXPECT_NE(llvm::toString(read(none).takeError())
                  .find("which the file does not set"),
              std::string::npos)
        << none;
}

/// Cards without bf16 train in f16, and keep attention's scores.
TEST(Megatron, WritesTheTypeThatWasPriced) {
  Cluster cluster = llvm::cantFail(Cluster::builtin("8xv100-32gb"));
  auto target = megatron();
  EXPECT_TRUE(target->executionOn(cluster).keepsScores);
  EXPECT_FALSE(target->executionOn(llvm::cantFail(Cluster::builtin("8xh100")))
                   .keepsScores);
  TargetAnswer answer =
      llvm::cantFail(findFastest(*target, llama(), cluster, 16));
  std::string script =
      target->write(llama(), answer.configuration, cluster).front().content;
  EXPECT_NE(script.find("--fp16 --accumulate-allreduce-grads-in-fp32"),
            std::string::npos);
  EXPECT_EQ(script.find("--bf16"), std::string::npos);
  auto unfused = megatron({{"attention", "unfused"}});
  EXPECT_EQ(llvm::cantFail(unfused->read(script, "run.sh")).configuration,
            answer.configuration);
}

/// What scripts have besides: flags that no step depends on, and values of
/// others that change nothing. What is not known is told at once.
TEST(Megatron, ReadsWhatScriptsHaveBesides) {
  SoftwareReading reading = llvm::cantFail(megatron()->read(
      arguments("--nproc-per-node 8 --use-distributed-optimizer "
                "--num-distributed-optimizer-instances 1 --main-grads-dtype "
                "fp32 --cpu-offloading-num-layers 0 --lr-warmup-samples 100 "
                "--no-load-optim --ckpt-format torch_dist --manual-gc"),
      "run.sh"));
  EXPECT_EQ(reading.configuration.str(), "pp1 m1 zdp8, 2 a micro-batch");
  EXPECT_EQ(refusal(arguments("--one 1 --two --three 3 --swiglo")),
            "run.sh: flags --one, --two, --three, --swiglo (--swiglu?) are not "
            "known: whether they change time or memory cannot be told");
  // Gradients in bf16 are an option, and take half of the memory.
  EXPECT_EQ(refusal(arguments("--grad-reduce-in-bf16")),
            "run.sh: flag --grad-reduce-in-bf16: gradients are kept and summed "
            "in bf16 then, which megatron,grad-reduce-in-bf16=on prices");
  auto half = megatron({{"grad-reduce-in-bf16", "on"}});
  llvm::cantFail(
      half->read(arguments("--grad-reduce-in-bf16 --nproc-per-node 8"),
                 "run.sh")
          .takeError());
  EXPECT_TRUE(half->execution().halfGradients);
  EXPECT_FALSE(
      half->executionOn(llvm::cantFail(Cluster::builtin("8xv100-32gb")))
          .halfGradients);
}

/// Instances of the distributed optimizer are groups of replicas that are next
/// to each other, of equal size.
TEST(Megatron, ReadsInstancesOfTheOptimizer) {
  const std::string degrees = "--nproc-per-node 8 --nnodes 4 "
                              "--tensor-model-parallel-size 2 ";
  const std::string instances = "--num-distributed-optimizer-instances ";
  SoftwareReading reading = llvm::cantFail(megatron()->read(
      arguments(degrees + "--use-distributed-optimizer " + instances + "4"),
      "run.sh"));
  EXPECT_EQ(reading.configuration.str(),
            "pp1 m1 zdp16.tp2, 2 a micro-batch, optimizer states cut in 4");
  EXPECT_EQ(refusal(arguments(degrees + instances + "4")),
            "run.sh: flag --num-distributed-optimizer-instances: expected "
            "--use-distributed-optimizer beside it");
  EXPECT_EQ(refusal(arguments(degrees + "--use-distributed-optimizer " +
                              instances + "3")),
            "run.sh: flag --num-distributed-optimizer-instances: expected a "
            "divisor of "
            "the 16 replicas, found 3");
  // Unasked, none are searched.
  int visited = 0, grouped = 0;
  for (const char *searched : {"off", "on"})
    llvm::cantFail(megatron({{"optimizer-instances", searched}})
                       ->visit(llama(),
                               llvm::cantFail(Cluster::builtin("8xh100")), 16,
                               [&](const Configuration &configuration) {
                                 ++visited;
                                 grouped += configuration.groupsStates();
                                 EXPECT_TRUE(std::string(searched) == "on" ||
                                             !configuration.groupsStates());
                               }));
  EXPECT_GT(grouped, 10);
  EXPECT_GT(visited, grouped);
}

TEST(Megatron, RefusesWhatItCannotPrice) {
  for (auto [more, message] : std::vector<std::pair<std::string, std::string>>{
           {"--num-experts 8", "run.sh: flag --num-experts changes time or "
                               "memory and is not priced"},
           {"--fp8-format e4m3", "run.sh: flag --fp8-format changes time or "
                                 "memory and is not priced"},
           {"--moe-grouped-gemm",
            "run.sh: flag --moe-grouped-gemm: experts are not priced"},
           {"--fp8-margin 1",
            "run.sh: flag --fp8-margin: products in 8 bits are not priced"},
           {"--attention-backend unfused",
            "run.sh: flag --attention-backend: scores are kept then, which "
            "megatron,attention=unfused prices"},
           {"--fp16", "run.sh: flag --fp16: expected "
                      "--accumulate-allreduce-grads-in-fp32 beside it: sums in "
                      "f16 are not priced"},
           {"--max-position-embeddings $LENGTH",
            "run.sh: flag --max-position-embeddings: expected a number of at "
            "least 1, found '$LENGTH', which the file does not set"},
           {"--expert-model-parallel-size 2",
            "run.sh: flag --expert-model-parallel-size: expected 1, as experts "
            "are not priced, found 2"},
           {"--context-parallel-size 2 --nproc-per-node 2 --cp-comm-type a2a",
            "run.sh: flag --cp-comm-type: megatron,cp-comm-type=a2a prices it"},
           {"--context-parallel-size 3 --nproc-per-node 3",
            "run.sh: expected the tokens of a sample, 2048, to divide by twice "
            "context parallelism, which deals them in pairs of parts, found "
            "6"},
           {"--tensor-model-parallel-sise 2",
            "run.sh: flag --tensor-model-parallel-sise is not known: whether "
            "it changes time or memory cannot be told; did you mean "
            "'tensor-model-parallel-size'?"},
           {"--global-batch-size many",
            "run.sh: flag --global-batch-size: expected a number of at least "
            "1, found 'many'"},
           {"--micro-batch-size 4",
            "run.sh: flag --micro-batch-size: given as '2' and as '4'"},
           {"--global-batch-size",
            "run.sh: flag --global-batch-size: expected a value"},
           {"--swiglu=1", "run.sh: flag --swiglu: expected no value, found "
                          "'1'"},
           {"--pipeline-model-parallel-size 5 --nproc-per-node 5",
            "run.sh: expected blocks that divide by 5 chunks, embedding and "
            "loss counted as the flags say, found 24"},
           {"--tensor-model-parallel-size 4 --nproc-per-node 6",
            "run.sh: flag --tensor-model-parallel-size: expected a product "
            "with --pipeline-model-parallel-size and --context-parallel-size "
            "that divides the 6 devices, found 4"},
           {"--overlap-param-gather",
            "run.sh: flag --overlap-param-gather: expected "
            "--use-distributed-optimizer and --overlap-grad-reduce beside "
            "it"}})
    EXPECT_EQ(refusal(arguments(more)), message);
  EXPECT_EQ(refusal("--num-layers 4"), "run.sh: flag --hidden-size: missing");
  EXPECT_EQ(refusal(""), "run.sh: flag --num-layers: missing");
}

/// The vocabulary that takes memory is the padded one.
TEST(Megatron, PadsTheVocabulary) {
  Configuration configuration;
  configuration.tensor = 4;
  EXPECT_EQ(megatron()->asTrained(llama(), configuration).vocabulary, 32256);
  ModelShape gpt2 = llama();
  gpt2.vocabulary = 50257;
  configuration.tensor = 1;
  EXPECT_EQ(megatron()->asTrained(gpt2, configuration).vocabulary, 50304);
}

} // namespace
