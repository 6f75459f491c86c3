//===- NanotronTest.cpp - nanotron's YAML written and read back -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Target.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

std::unique_ptr<Target> nanotron() {
  SoftwareRequest request{false, "nanotron", {}};
  return llvm::cantFail(TargetRegistry::make(request));
}

ModelShape nanoShape() {
  ModelShape shape;
  shape.layers = 12;
  shape.hidden = 2048;
  shape.heads = 16;
  shape.keyHeads = 8;
  shape.headWidth = 128;
  shape.inner = 5632;
  shape.vocabulary = 32001;
  shape.tokens = shape.positions = 4096;
  shape.gated = true;
  shape.rotaryBase = 500000;
  return shape;
}

/// Two replicas of a small model, and what a test adds.
std::string nanoText(const std::string &parallelism,
                     const std::string &more = "") {
  return "model:\n  dtype: bfloat16\n  model_config: {is_llama_config: true, "
         "hidden_size: 1024, num_hidden_layers: 8, num_attention_heads: 8, "
         "intermediate_size: 4096}\ntokens:\n  sequence_length: 2048\n  "
         "micro_batch_size: 2\n  batch_accumulation_per_replica: 4\n  "
         "train_steps: 10\noptimizer:\n  zero_stage: 1\n"
         "data_stages:\n- name: one\n  start_training_step: 1\n  data:\n    "
         "dataset: null\n    seed: 42\n" +
         more + "parallelism:\n  dp: 2\n" + parallelism;
}

std::string nanoRefusal(const std::string &text) {
  llvm::Expected<SoftwareReading> none = nanotron()->read(text, "run.yaml");
  return none ? "" : llvm::toString(none.takeError());
}

/// Everything that can be expressed is written, and read back as the same.
TEST(Nanotron, WhatIsWrittenIsReadBack) {
  auto target = nanotron();
  int compared = 0;
  for (llvm::StringRef name : {"8xh100", "2x8xa100-80gb"}) {
    Cluster cluster = llvm::cantFail(Cluster::builtin(name));
    llvm::cantFail(
        target->visit(nanoShape(), cluster, 32, [&](const Configuration &plan) {
          LaunchFile file = target->write(nanoShape(), plan, cluster).front();
          llvm::Expected<SoftwareReading> reading =
              target->read(file.content, "plan");
          ASSERT_TRUE(bool(reading))
              << llvm::toString(reading.takeError()) << "\n"
              << file.content;
          EXPECT_EQ(reading->configuration, plan) << plan.str() << "\n"
                                                  << file.content;
          ModelShape expected = nanoShape();
          expected.name = reading->shape.name;
          EXPECT_EQ(reading->shape, expected);
          EXPECT_EQ(reading->devices, cluster.deviceCount());
          ++compared;
        }));
  }
  EXPECT_GT(compared, 300);
}

/// What is absent is the software's default: all forward passes first, whole
/// rows, nothing recomputed.
TEST(Nanotron, AbsentKeysAreItsDefaults) {
  SoftwareReading reading = llvm::cantFail(
      nanotron()->read(nanoText("  pp: 2\n  tp: 2\n"), "run.yaml"));
  EXPECT_EQ(reading.configuration.str(), "pp2 m4 zdp2.tp2, 2 a micro-batch");
  EXPECT_EQ(reading.configuration.schedule->name(), "gpipe");
  EXPECT_EQ(reading.shape.keyHeads, 8);
  EXPECT_EQ(reading.shape.vocabulary, 32000);
  EXPECT_EQ(reading.devices, 8);
  // Stages are cut by work: the head is some.
  EXPECT_EQ(reading.configuration.blocks, (std::vector<int64_t>{5, 3}));
  SoftwareReading cut = llvm::cantFail(nanotron()->read(
      nanoText("  pp: 1\n  tp: 4\n  tp_mode: REDUCE_SCATTER\n  "
               "tp_linear_async_communication: true\n  recompute_layer: "
               "true\n"),
      "run.yaml"));
  EXPECT_EQ(cut.configuration.str(),
            "pp1 m4 zdp2.tp4.ckpt, 2 a micro-batch, rows cut");
  EXPECT_EQ(nanotron()->asTrained(nanoShape(), cut.configuration).vocabulary,
            32004);
}

TEST(Nanotron, RefusesWhatItCannotPrice) {
  for (auto [parallelism, more, message] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"  pp: 1\n", "", "run.yaml: 'parallelism.tp': expected at least 1"},
           {"  pp: 1\n  tp: 1\n  context_parallel_size: 2\n", "",
            "run.yaml: 'parallelism.context_parallel_size': expected 1, found "
            "'2': others are not priced"},
           {"  pp: 2\n  tp: 1\n  pp_engine: interleaved\n", "",
            "run.yaml: 'parallelism.pp_engine': expected 1f1b or afab, found "
            "'interleaved'"},
           {"  pp: 1\n  tp: 2\n  tp_mode: REDUCE_SCATTER\n", "",
            "run.yaml: 'parallelism.tp_linear_async_communication': expected "
            "true beside REDUCE_SCATTER, false beside ALL_REDUCE, as "
            "published runs have it"},
           {"  pp: 1\n  tp: 1\n  fsdp: 2\n", "",
            "run.yaml: 'parallelism.fsdp': not known: whether it changes time "
            "or memory cannot be told"},
           {"  pp: 1\n  tp: 1\n", "profiler: {profiler_export_path: logs}\n",
            "run.yaml: 'profiler.profiler_export_path': it changes time and is "
            "not priced"}})
    EXPECT_EQ(nanoRefusal(nanoText(parallelism, more)), message);
  EXPECT_EQ(nanoRefusal("parallelism: {dp: 1, pp: 1, tp: 1}\n"),
            "run.yaml: 'model.model_config.is_llama_config': missing: other "
            "models are not priced");
  ModelShape gpt = nanoShape();
  gpt.gated = false;
  EXPECT_EQ(llvm::toString(nanotron()->visit(
                gpt, llvm::cantFail(Cluster::builtin("8xh100")), 8,
                [](const Configuration &) {})),
            "nanotron: expected a LLaMA: a gate, RMS norms, rotary positions, "
            "no biases");
}

/// A quarter of what tensor parallelism sends is hidden, where rows are cut: it
/// is not asynchronous otherwise.
TEST(Nanotron, HidesAQuarterBesideCutRows) {
  const ModelShape shape = nanoShape();
  const Execution hides = nanotron()->execution();
  Execution shows = hides;
  shows.overlapsTensor = false;
  Configuration plan;
  plan.tensor = 4;
  plan.blocks = {shape.layers};
  for (bool rows : {false, true}) {
    plan.sequenceParallel = rows;
    auto sentOf = [&](const Execution &execution) {
      return softwareLayers(shape, plan, execution)[1].tpAllReduceBytes;
    };
    EXPECT_EQ(4 * sentOf(hides), (rows ? 3 : 4) * sentOf(shows)) << rows;
  }
}

} // namespace
