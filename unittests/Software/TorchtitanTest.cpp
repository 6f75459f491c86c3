//===- TorchtitanTest.cpp - Functions that are written and read back ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Target.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

std::unique_ptr<Target> torchtitan(bool compile = true) {
  SoftwareRequest request{
      false, "torchtitan", {{"compile", compile ? "on" : "off"}}};
  return llvm::cantFail(TargetRegistry::make(request));
}

/// Llama 3.1 8B or 1B.
ModelShape llama3(bool large) {
  ModelShape shape;
  shape.layers = large ? 32 : 16;
  shape.hidden = large ? 4096 : 2048;
  shape.heads = 32;
  shape.keyHeads = 8;
  shape.headWidth = shape.hidden / shape.heads;
  shape.inner = large ? 14336 : 8192;
  shape.vocabulary = 128256;
  shape.tokens = 8192;
  shape.gated = true;
  shape.tied = !large;
  shape.rotaryBase = 500000;
  return shape;
}

std::string refusalOf(const std::string &text) {
  llvm::Expected<SoftwareReading> none = torchtitan()->read(text, "run.toml");
  return none ? "" : llvm::toString(none.takeError());
}

/// A file of 0.2.
std::string toml(const std::string &parallelism, const std::string &training) {
  return "[model]\nname = \"llama3\"\nflavor = \"8B\" # of its registry\n"
         "[training]\nseq_len = 8192\ndataset = \"c4\"\n" +
         training + "[parallelism]\n" + parallelism +
         "[activation_checkpoint]\nmode = \"full\"\n[compile]\nenable = true\n";
}

/// Everything that can be expressed is written, and read back as the same.
TEST(Torchtitan, WhatIsWrittenIsReadBack) {
  int compared = 0;
  for (bool compile : {true, false}) {
    auto target = torchtitan(compile);
    for (llvm::StringRef name : {"8xh100", "2x8xh100"}) {
      Cluster cluster = llvm::cantFail(Cluster::builtin(name));
      ModelShape shape = llama3(compile);
      llvm::cantFail(target->visit(
          shape, cluster, 32, [&](const Configuration &configuration) {
            LaunchFile file =
                target->write(shape, configuration, cluster).front();
            llvm::Expected<SoftwareReading> reading =
                target->read(file.content, "plan.py");
            ASSERT_TRUE(bool(reading))
                << llvm::toString(reading.takeError()) << "\n"
                << file.content;
            EXPECT_EQ(reading->configuration, configuration)
                << configuration.str() << "\n"
                << file.content;
            ModelShape expected = shape;
            expected.name = reading->shape.name;
            EXPECT_EQ(reading->shape, expected);
            ++compared;
          }));
    }
  }
  EXPECT_GT(compared, 1000);
}

/// Schedules that are V's, chunks and shards of groups are in the bounds.
TEST(Torchtitan, TheFastestIsThatOfAllPrices) {
  auto target = torchtitan();
  ModelShape shape = llama3(false);
  shape.tokens = 2048;
  for (auto [name, batch] : {std::pair("2x2xa100-40gb", 16), {"4xh100", 8}}) {
    Cluster cluster = llvm::cantFail(Cluster::builtin(name));
    double best = 0;
    llvm::cantFail(target->visit(
        shape, cluster, batch, [&](const Configuration &configuration) {
          SoftwarePrice found = llvm::cantFail(
              price(shape, configuration, target->execution(), cluster));
          if (found.fits && (best == 0 || found.stepMs < best))
            best = found.stepMs;
        }));
    TargetAnswer answer =
        llvm::cantFail(findFastest(*target, shape, cluster, batch));
    EXPECT_EQ(answer.price.stepMs, best) << name;
    EXPECT_LT(answer.priced, answer.space / 2) << name;
  }
}

/// A key of the plan's sections that nobody knows may be a misspelt degree.
TEST(Torchtitan, RefusesKeysThatNobodyKnows) {
  const std::string shards = "data_parallel_shard_degree = 8\n";
  const std::string batch = "local_batch_size = 1\n";
  EXPECT_EQ(refusalOf(toml(shards + "tensor_parallel_degre = 2\n", batch)),
            "run.toml: 'parallelism.tensor_parallel_degre': not known: whether "
            "it changes time or memory cannot be told; did you mean "
            "'parallelism.tensor_parallel_degree'?");
  EXPECT_EQ(refusalOf(toml(shards, batch + "num_tokens_per_train_step = 1\n")),
            "run.toml: 'training.num_tokens_per_train_step': a key of "
            "torchtitan's main branch: those of 0.2 and 0.3 are read");
  EXPECT_EQ(
      refusalOf(toml(shards, batch + "[paralelism]\n"
                                     "tensor_parallel_degree = 2\n")),
      "run.toml: 'paralelism.tensor_parallel_degree': not known: whether it "
      "changes time or memory cannot be told; did you mean 'parallelism'?");
  EXPECT_EQ(refusalOf(toml(shards, batch + "[my_section]\nparts = 2\n")), "");
}

TEST(Torchtitan, ReadsFilesOfTheVersionBefore) {
  SoftwareReading reading = llvm::cantFail(torchtitan()->read(
      toml("data_parallel_shard_degree = 4\ntensor_parallel_degree = 2\n",
           "local_batch_size = 2\nglobal_batch_size = 64\n"),
      "run.toml"));
  EXPECT_EQ(reading.configuration.str(),
            "pp1 m8 sdp4.tp2.ckpt, 2 a micro-batch, rows cut");
  EXPECT_EQ(reading.shape.inner, 14336);
  EXPECT_EQ(reading.devices, 8);
  EXPECT_EQ(reading.passed, std::vector<std::string>{"training.dataset"});
  // Ranks of context parallelism are shards, whatever else is.
  reading = llvm::cantFail(torchtitan()->read(
      toml("data_parallel_replicate_degree = 2\n"
           "data_parallel_shard_degree = 1\ncontext_parallel_degree = 4\n",
           "local_batch_size = 1\n"),
      "run.toml"));
  EXPECT_EQ(reading.configuration.str(),
            "pp1 m1 dp2.sdp4.ckpt, 1 a micro-batch, positions cut in 4");
  EXPECT_EQ(reading.configuration.shards(), 4);
  EXPECT_EQ(reading.devices, 8);
  // Without stages parameters may stay gathered.
  EXPECT_EQ(llvm::cantFail(torchtitan()->read(
                               toml("data_parallel_shard_degree = 8\n"
                                    "fsdp_reshard_after_forward = \"never\"\n",
                                    "local_batch_size = 1\n"),
                               "run.toml"))
                .configuration.str(),
            "pp1 m1 sdp8.ckpt, 1 a micro-batch, parameters stay");
  // The first and the last stage have a block less unless it is said.
  EXPECT_EQ(refusalOf(toml("data_parallel_shard_degree = 2\n"
                           "pipeline_parallel_degree = 4\n"
                           "fsdp_reshard_after_forward = \"always\"\n",
                           "local_batch_size = 8\n")),
            "run.toml: expected blocks that divide by 4 chunks, with those "
            "that the first and last stage have less, found 32");
  EXPECT_EQ(llvm::cantFail(
                torchtitan()->read(
                    toml("data_parallel_shard_degree = 2\n"
                         "pipeline_parallel_degree = 2\n"
                         "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"
                         "pipeline_parallel_first_stage_less_layers = 0\n"
                         "pipeline_parallel_last_stage_less_layers = 0\n"
                         "pipeline_parallel_layers_per_stage = 4\n"
                         "fsdp_reshard_after_forward = \"always\"\n",
                         "local_batch_size = 8\n"),
                    "run.toml"))
                .configuration.str(),
            "pp2 m8 sdp2.ckpt, 1 a micro-batch, 4 chunks");
}

/// A missing key is what the function's base has.
TEST(Torchtitan, ReadsWhatAFunctionIsBasedOn) {
  SoftwareReading reading = llvm::cantFail(torchtitan()->read(
      "def mine():\n    config = llama3_70b()\n"
      "    config.parallelism.data_parallel_shard_degree = 8\n"
      "    config.compile.enable = True\n    return config\n",
      "mine.py"));
  EXPECT_EQ(reading.configuration.str(),
            "pp1 m1 sdp8.tp8.ckpt, 8 a micro-batch, rows cut");
  EXPECT_EQ(reading.shape.hidden, 8192);
  EXPECT_EQ(reading.shape.tokens, 8192);
  EXPECT_TRUE(reading.unread.empty());
  EXPECT_EQ(llvm::cantFail(
                torchtitan()->read(
                    "config = base()\nconfig.model_spec = "
                    "model_registry(\"8B\")\nconfig.activation_checkpoint = "
                    "None\nconfig.parallelism.data_parallel_shard_degree = "
                    "8\nconfig.compile.enable = True\n",
                    "mine.py"))
                .unread,
            std::vector<std::string>{"base()"});
  for (auto [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"config = llama3_8b_mxfp8()\n",
            "run.toml: 'llama3_8b_mxfp8' has products in 8 bits or less, or "
            "adapters, which are not priced"},
           {"config.model_spec = model_registry(\"8B\", converters=[x])\n",
            "run.toml: 'model_spec': expected a model without converters (fp8 "
            "and others change its time), found ', converters=[x])'"},
           {"config.model_spec = model_registry(\n",
            "run.toml: 'model_spec': expected model_registry(\"NAME\") on a "
            "line, without converters (fp8), found 'model_registry('"},
           {"[model]\nflavor = \"8B\"\nconverters = [\"float8\"]\n",
            "run.toml: 'model.converters': products in 8 bits or less and "
            "replaced parts of the model change time or memory and are not "
            "priced"}})
    EXPECT_EQ(refusalOf(text), message);
}

/// Files as they are shipped have sections of what is not switched on, and
/// leave the shards to the number of devices.
TEST(Torchtitan, ReadsFilesThatAreShipped) {
  const std::string text =
      toml("data_parallel_shard_degree = -1\ntensor_parallel_degree = 2\n"
           "data_parallel_replicate_degree = 2\n",
           "local_batch_size = 1\n") +
      "[quantize.linear.float8]\nenable_fsdp_float8_all_gather = false\n"
      "filter_fqns = [\"output\"]\n";
  auto read = [&](const std::string &devices) {
    SoftwareRequest request{false, "torchtitan", {{"devices", devices}}};
    return llvm::cantFail(TargetRegistry::make(request))->read(text, "8b.toml");
  };
  EXPECT_EQ(llvm::cantFail(read("32")).configuration.str(),
            "pp1 m1 dp2.sdp8.tp2.ckpt, 1 a micro-batch, rows cut");
  EXPECT_EQ(llvm::toString(read("30").takeError()),
            "8b.toml: 'parallelism.data_parallel_shard_degree': expected other "
            "degrees whose product, 4, divides the devices, 30");
  EXPECT_EQ(
      llvm::toString(
          llvm::cantFail(
              TargetRegistry::make({false, "torchtitan", {{"devices", "4"}}}))
              ->read(toml("data_parallel_shard_degree = 8\n", ""), "8b.toml")
              .takeError()),
      "8b.toml: 'parallelism.data_parallel_shard_degree': expected "
      "degrees whose product is the devices, 4, found 8");
}

/// What is recomputed, by the words of 0.2 and the classes of 0.3.
TEST(Torchtitan, ReadsWhatIsRecomputed) {
  auto read = [](const std::string &text, const char *name) {
    return llvm::cantFail(torchtitan()->read(text, name)).configuration;
  };
  auto toml = [&](const std::string &section) {
    return read("[model]\nflavor = \"8B\"\n[parallelism]\n"
                "data_parallel_shard_degree = 8\n[compile]\nenable = true\n" +
                    section,
                "run.toml");
  };
  const std::string section = "[activation_checkpoint]\n";
  EXPECT_EQ(toml(section + "mode = \"none\"\n").recompute, Recompute::None);
  EXPECT_EQ(toml(section + "mode = \"full\"\n").str(),
            "pp1 m1 sdp8.ckpt, 8 a micro-batch");
  EXPECT_EQ(toml(section + "selective_ac_option = \"op\"\n").str(),
            "pp1 m1 sdp8, 8 a micro-batch, operations recomputed");
  // Every second block unless it is said, and of three the last.
  for (const std::string &text :
       {std::string(), section, section + "mode = \"selective\"\n"}) {
    EXPECT_EQ(toml(text).str(),
              "pp1 m1 sdp8, 8 a micro-batch, one block of 2 recomputed");
    EXPECT_EQ(toml(text).recomputedOf(32), 16);
  }
  Configuration third =
      toml(section + "mode = \"selective\"\nselective_ac_option = \"3\"\n");
  EXPECT_EQ(third.recomputedOf(32), 10);
  EXPECT_EQ(toml(section + "selective_ac_option = \"1\"\n").str(),
            "pp1 m1 sdp8.ckpt, 8 a micro-batch");
  auto function = [&](const std::string &base, const std::string &lines) {
    return read("config = " + base + "\n    config.parallelism." +
                    "data_parallel_shard_degree = 8\n    "
                    "config.compile.enable = True\n" +
                    lines,
                "mine.py");
  };
  EXPECT_EQ(function("llama3_8b()", "").recompute, Recompute::Operations);
  EXPECT_EQ(function("llama3_70b()", "").recompute, Recompute::Full);
  const std::string policy = "config.activation_checkpoint = ";
  EXPECT_EQ(function("llama3_8b()", policy + "None\n").recompute,
            Recompute::None);
  EXPECT_EQ(
      function("llama3_70b()", policy + "SelectiveAC.Config()\n").recompute,
      Recompute::Operations);
  auto refusal = [&](const std::string &line) {
    return refusalOf("config = llama3_8b()\nconfig.compile.enable = True\n"
                     "config.parallelism.data_parallel_shard_degree = 8\n" +
                     line);
  };
  EXPECT_EQ(refusal(policy + "MemoryBudgetAC.Config(memory_budget=0.3)\n"),
            "run.toml: 'activation_checkpoint': expected None, "
            "FullAC.Config() or SelectiveAC.Config(), as others are not "
            "priced, found 'MemoryBudgetAC.Config(memory_budget=0.3)'");
  auto tomlRefusal = [](const std::string &parallelism,
                        const std::string &recompute) {
    return refusalOf(
        "[model]\nflavor = \"8B\"\n[compile]\nenable = true\n[training]\n"
        "local_batch_size = 8\n[parallelism]\ndata_parallel_shard_degree = "
        "2\n" +
        parallelism + "[activation_checkpoint]\n" + recompute);
  };
  EXPECT_EQ(tomlRefusal("", "mode = \"memory_budget\"\n"),
            "run.toml: 'activation_checkpoint.mode': expected none, selective "
            "or full, as others are not priced, found 'memory_budget'");
  EXPECT_EQ(tomlRefusal("", "selective_ac_option = \"ops\"\n"),
            "run.toml: 'activation_checkpoint.selective_ac_option': expected "
            "\"op\" or a number of blocks, found 'ops'");
  // Chunks of eight blocks have no whole turns of three.
  EXPECT_EQ(
      tomlRefusal("pipeline_parallel_degree = 2\npipeline_parallel_schedule = "
                  "\"Interleaved1F1B\"\n"
                  "pipeline_parallel_first_stage_less_layers = 0\n"
                  "pipeline_parallel_last_stage_less_layers = 0\n"
                  "fsdp_reshard_after_forward = \"always\"\n",
                  "selective_ac_option = \"3\"\n"),
      "run.toml: expected chunks of whole turns of 3 blocks, of which one is "
      "recomputed (selective_ac_option), found 8 in the first");
}

TEST(Torchtitan, RefusesWhatItCannotPrice) {
  const std::string sharded = "data_parallel_shard_degree = 8\n";
  for (auto [parallelism, training, message] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"", "",
            "run.toml: 'parallelism.data_parallel_shard_degree': the file does "
            "not say of how many devices -1 is the rest: expected the degree, "
            "or devices=N in --from=torchtitan"},
           {sharded + "context_parallel_rotate_method = \"alltoall\"\n", "",
            "run.toml: 'parallelism.context_parallel_rotate_method': expected "
            "allgather, as others are not priced, found 'alltoall'"},
           {"data_parallel_shard_degree = 4\npipeline_parallel_degree = 2\n",
            "",
            "run.toml: 'parallelism.fsdp_reshard_after_forward': expected "
            "always: parameters that stay gathered (never; with stages the "
            "default) are not priced beside stages"},
           {sharded, "enable_cpu_offload = true\n",
            "run.toml: 'training.enable_cpu_offload': expected False, as "
            "others are not priced, found 'true'"},
           {sharded, "local_batch_size = two\n",
            "run.toml: 'training.local_batch_size': expected a count, found "
            "'two'"},
           {sharded, "seq_len = 4096\n",
            "run.toml: 'training.seq_len' is set twice"}})
    EXPECT_EQ(refusalOf(toml(parallelism, training)), message);
  EXPECT_EQ(refusalOf("[model]\nname = \"llama3\"\nflavor = \"9B\"\n"),
            "run.toml: 'model.flavor': expected one of 1B, 3B, 8B, 70B, 405B, "
            "found '9B'");
  ModelShape other = llama3(true);
  other.layers = 31;
  EXPECT_EQ(llvm::toString(torchtitan()->visit(
                other, llvm::cantFail(Cluster::builtin("8xh100")), 8,
                [](const Configuration &) {})),
            "torchtitan: expected a model of its llama3 registry (1B, 3B, 8B, "
            "70B, 405B), found other sizes");
}

} // namespace
