//===- Nanotron.cpp - nanotron --------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Configurations in YAML as nanotron's src/nanotron/config has them in April
// 2026 (2411b022), with its LLaMA. Stages are cut by the products' work, as
// models/base.py does; nothing in a file says otherwise.
//
//===----------------------------------------------------------------------===//

#include "Settings.h"
#include "Targets.h"

#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;

namespace galvatron {
namespace {

/// Names of engines, its and ours.
constexpr std::pair<StringLiteral, StringLiteral> kEngines[] = {
    {"1f1b", "1f1b"}, {"afab", "gpipe"}};

/// Sections, and beginnings of keys, that no step's time or memory depends on.
constexpr StringLiteral kPassed[] = {"checkpoints.",
                                     "general.",
                                     "logging.",
                                     "metrics_logging.",
                                     "tokenizer.",
                                     "lighteval.",
                                     "s3_upload.",
                                     "data_stages[",
                                     "model.init_method.",
                                     "model.model_config.",
                                     "optimizer.learning_rate_scheduler.",
                                     "optimizer.optimizer_factory.",
                                     "optimizer.weight_decay",
                                     "optimizer.clip_grad",
                                     "tokens.train_steps",
                                     "tokens.val_check_interval",
                                     "tokens.limit_"};

class Nanotron final : public Target {
public:
  StringRef name() const override { return "nanotron"; }
  std::string description() const override {
    return "nanotron of April 2026, its LLaMA";
  }
  Error setOption(StringRef option, StringRef value) override {
    std::vector<std::string> known = {"version"};
    if (option != "version")
      return makeError("unknown option '" + option +
                       "' of nanotron, expected version" +
                       didYouMean(option, known));
    if (value == "2026")
      return Error::success();
    return makeError("option 'version' of nanotron: expected '2026', found '" +
                     value + "'");
  }
  Execution execution() const override {
    Execution execution = cantFail(Execution::named("nanotron"));
    // Its communication is asynchronous where rows are cut.
    execution.overlapsTensor = true;
    return execution;
  }
  /// Ranks of tensor parallelism have equally many words.
  ModelShape asTrained(const ModelShape &shape,
                       const Configuration &degrees) const override {
    ModelShape padded = shape;
    padded.vocabulary = (shape.vocabulary + degrees.tensor - 1) /
                        degrees.tensor * degrees.tensor;
    return padded;
  }
  Error visit(const ModelShape &shape, const Cluster &cluster, int64_t batch,
              function_ref<void(const Configuration &)> visit) const override;
  std::vector<LaunchFile> write(const ModelShape &shape,
                                const Configuration &configuration,
                                const Cluster &cluster) const override;
  Expected<SoftwareReading> read(StringRef text,
                                 StringRef fileName) const override;

  std::vector<PlanKey> planKeys() const override {
    return {{"parallelism.dp", ""},
            {"parallelism.pp", ""},
            {"parallelism.tp", ""},
            {"parallelism.pp_engine", "afab"},
            {"parallelism.tp_mode", "ALL_REDUCE"},
            {"parallelism.tp_linear_async_communication", "false"},
            {"parallelism.recompute_layer", "false"},
            {"tokens.micro_batch_size", ""},
            {"tokens.batch_accumulation_per_replica", "1"},
            {"optimizer.zero_stage", "0"}};
  }

private:
  void visitStates(Configuration configuration,
                   function_ref<void(const Configuration &)> visit) const;
};

/// Names the property of a shape that nanotron's LLaMA lacks; empty: none.
std::string notLlama(const ModelShape &shape) {
  if (!shape.gated || !shape.rmsNorm || !shape.rotary || shape.biases)
    return "expected a LLaMA: a gate, RMS norms, rotary positions, no biases";
  if (shape.headWidth * shape.heads != shape.hidden)
    return "expected heads of the hidden width over their number";
  return "";
}

Error Nanotron::visit(const ModelShape &shape, const Cluster &cluster,
                      int64_t batch,
                      function_ref<void(const Configuration &)> visit) const {
  if (std::string missing = notLlama(shape); !missing.empty())
    return makeError("nanotron: " + missing);
  if (cantFail(halfTypeOf(cluster)) != "bf16")
    return makeError("nanotron: expected devices with bf16, as its sums in f32 "
                     "are those of bf16");
  visitDegrees(
      shape, cluster.deviceCount(), batch, {}, [&](Configuration degrees) {
        degrees.blocks = Configuration::blocksByWork(asTrained(shape, degrees),
                                                     degrees.pipeline);
        if (is_contained(degrees.blocks, 0))
          return;
        for (bool rows : {false, true}) {
          degrees.sequenceParallel = rows;
          if (!rows ||
              (degrees.tensor > 1 && shape.tokens % degrees.tensor == 0))
            visitStates(degrees, visit);
        }
      });
  return Error::success();
}

void Nanotron::visitStates(
    Configuration configuration,
    function_ref<void(const Configuration &)> visit) const {
  for (auto [its, ours] : kEngines) {
    if (ours != "1f1b" && configuration.pipeline == 1)
      continue;
    configuration.schedule = cantFail(parseSchedule(ours));
    for (Recompute recompute : {Recompute::None, Recompute::Full}) {
      configuration.recompute = recompute;
      for (Sharding sharding : {Sharding::None, Sharding::Optimizer}) {
        configuration.sharding = sharding;
        if (sharding == Sharding::None || configuration.data > 1)
          visit(configuration);
      }
    }
  }
}

std::vector<LaunchFile> Nanotron::write(const ModelShape &shape,
                                        const Configuration &configuration,
                                        const Cluster &cluster) const {
  StringRef engine;
  for (auto [its, ours] : kEngines)
    if (ours == configuration.schedule->name())
      engine = its;
  auto word = [](bool value) { return value ? "true" : "false"; };
  std::string yaml = formatv(
      R"(# {0}:
# {1} on {2}.
general: {{project: galvatron, run: plan, seed: 42}
checkpoints: {{checkpoint_interval: 1000, checkpoints_path: checkpoints}
logging: {{iteration_step_info_interval: 1}
tokenizer: {{tokenizer_name_or_path: "<TOKENIZER>"}
data_stages:
- name: training
  start_training_step: 1
  data:
    dataset: {{hf_dataset_or_datasets: "<DATASET>", text_column_name: text}
    num_loading_workers: 1
    seed: 42
)",
      description(), configuration.str(), cluster.name());
  yaml += formatv(
      R"(model:
  dtype: bfloat16
  ddp_bucket_cap_mb: 25
  make_vocab_size_divisible_by: 1
  init_method: {{std: 0.02}
  model_config:
    is_llama_config: true
    num_hidden_layers: {0}
    hidden_size: {1}
    intermediate_size: {2}
    num_attention_heads: {3}
    num_key_value_heads: {4}
    vocab_size: {5}
    max_position_embeddings: {6}
    rope_theta: {7:f1}
    tie_word_embeddings: {8}
)",
      shape.layers, shape.hidden, shape.inner, shape.heads, shape.keyHeads,
      shape.vocabulary, std::max(shape.positions, shape.tokens),
      shape.rotaryBase, word(shape.tied));
  yaml += formatv(
      R"(parallelism:
  dp: {0}
  pp: {1}
  tp: {2}
  pp_engine: {3}
  tp_mode: {4}
  tp_linear_async_communication: {5}
  recompute_layer: {6}
tokens:
  sequence_length: {7}
  micro_batch_size: {8}
  batch_accumulation_per_replica: {9}
  train_steps: <STEPS>
)",
      configuration.data, configuration.pipeline, configuration.tensor, engine,
      configuration.sequenceParallel ? "REDUCE_SCATTER" : "ALL_REDUCE",
      word(configuration.sequenceParallel),
      word(configuration.recompute == Recompute::Full), shape.tokens,
      configuration.microBatch, configuration.microBatches());
  yaml += formatv(
      R"(optimizer:
  zero_stage: {0}
  accumulate_grad_in_fp32: true
  weight_decay: 0.01
  clip_grad: 1.0
  learning_rate_scheduler: {{learning_rate: 0.0003}
  optimizer_factory: {{name: adamW, adam_beta1: 0.9, adam_beta2: 0.95, adam_eps: 1.0e-8, torch_adam_is_fused: true}
)",
      int(configuration.sharding == Sharding::Optimizer));
  const int64_t nodes = cluster.nodeCount();
  std::string script = formatv(
      R"script(#!/usr/bin/env bash
# {0}:
# {1} on {2}. Run it on every node, in nanotron's folder.
#
# To be set: DATASET and TOKENIZER (names of Hugging Face or folders), STEPS{3}.
# The learning rate and its like are in nanotron.yaml.
set -euo pipefail
FOLDER=$(cd "$(dirname "$0")" && pwd)
sed -e "s|<DATASET>|${{DATASET:?}|" -e "s|<TOKENIZER>|${{TOKENIZER:?}|" \
  -e "s|<STEPS>|${{STEPS:?}|" "$FOLDER/nanotron.yaml" > "$FOLDER/started.yaml"
export CUDA_DEVICE_MAX_CONNECTIONS=1
exec torchrun --nproc-per-node {4} --nnodes {5} {6}\
  run_train.py --config-file "$FOLDER/started.yaml"
)script",
      description(), configuration.str(), cluster.name(),
      nodes > 1 ? ",\n# HEAD_NODE (host:port of the first)" : "",
      cluster.deviceCount() / nodes, nodes,
      nodes > 1 ? "--rdzv-backend c10d --rdzv-endpoint \"${HEAD_NODE:?}\" "
                : "");
  return {{"nanotron.yaml", std::move(yaml), false},
          {"nanotron.sh", std::move(script), true}};
}

/// The model's sizes, by the defaults of nanotron's LlamaConfig.
/// `priced`: a plan that the file was filled with, whose model it may leave
/// out.
ModelShape readLlama(Settings &settings, StringRef fileName,
                     const std::optional<PricedPlan> &priced) {
  auto count = [&](StringRef key, int64_t absent) {
    return settings.count(("model.model_config." + key).str(), absent);
  };
  settings.expect("model.dtype", {"bfloat16"}, "other types are not priced");
  settings.expect("model.make_vocab_size_divisible_by", {"1"}, "not priced");
  settings.expect("model.ddp_bucket_cap_mb", {"25"}, "not priced");
  if (priced && none_of(settings.others(), [](StringRef key) {
        return key.starts_with("model.model_config");
      })) {
    ModelShape shape = priced->shape;
    shape.tokens = settings.count("tokens.sequence_length", shape.tokens);
    return shape;
  }
  for (const std::string &key : settings.others())
    if (StringRef(key).starts_with("model.model_config.moe") ||
        StringRef(key).starts_with("model.model_config.fp8"))
      settings.fail(key, "experts and products in 8 bits are not priced");
  settings.expect("model.model_config.is_llama_config", {"true"},
                  "other models are not priced");
  if (!settings.has("model.model_config.is_llama_config"))
    settings.fail("model.model_config.is_llama_config",
                  "missing: other models are not priced");
  ModelShape shape;
  shape.name = fileName.str();
  shape.layers = count("num_hidden_layers", 32);
  shape.hidden = count("hidden_size", 4096);
  shape.inner = count("intermediate_size", 11008);
  shape.heads = count("num_attention_heads", 32);
  shape.keyHeads = count("num_key_value_heads", shape.heads);
  shape.headWidth = shape.heads > 0 ? shape.hidden / shape.heads : 0;
  shape.vocabulary = count("vocab_size", 32000);
  shape.positions = count("max_position_embeddings", 2048);
  shape.tied = settings.flag("model.model_config.tie_word_embeddings", false);
  shape.gated = true;
  StringRef base = settings.text("model.model_config.rope_theta");
  if (!base.empty() && base.getAsDouble(shape.rotaryBase))
    settings.fail("model.model_config.rope_theta",
                  "expected a number, found '" + base + "'");
  shape.tokens = settings.count("tokens.sequence_length", 0);
  settings.expect("model.model_config.attention_bias", {"false"},
                  "biases are not priced");
  settings.expect("model.model_config._attn_implementation",
                  {"flash_attention_2"}, "other attention is not priced");
  return shape;
}

Expected<SoftwareReading> Nanotron::read(StringRef text,
                                         StringRef fileName) const {
  Expected<Settings> parsed = Settings::parseNested(text, fileName);
  if (!parsed)
    return parsed.takeError();
  Settings &settings = *parsed;
  SoftwareReading reading;
  reading.shape = readLlama(settings, fileName, priced);
  Configuration &configuration = reading.configuration;
  for (auto [key, degree] : {std::pair("dp", &configuration.data),
                             {"pp", &configuration.pipeline},
                             {"tp", &configuration.tensor}}) {
    *degree = settings.count(std::string("parallelism.") + key, 0);
    if (*degree < 1) {
      settings.fail(std::string("parallelism.") + key, "expected at least 1");
      *degree = 1;
    }
  }
  for (StringRef key : {"parallelism.expert_parallel_size",
                        "parallelism.context_parallel_size"})
    settings.expect(key, {"1"}, "others are not priced");
  settings.expect("parallelism.tp_recompute_allgather", {"true"},
                  "it changes memory and is not priced");
  settings.expect("optimizer.accumulate_grad_in_fp32", {"true"},
                  "gradients of 16 bits are not priced");
  settings.expect("optimizer.optimizer_factory.name", {"adamW"},
                  "states of others are not priced");
  settings.expect("optimizer.zero_stage", {"0", "1"}, "others are not there");
  for (StringRef key : {"profiler.profiler_export_path", "model.moe_config"})
    if (settings.has(key))
      settings.fail(key, "it changes time and is not priced");
  // The engine is AFAB, and rows are whole, where nothing is said.
  StringRef engine = settings.text("parallelism.pp_engine");
  bool inTurn = engine.equals_insensitive("1f1b");
  if (!engine.empty() && !inTurn && !engine.equals_insensitive("afab"))
    settings.fail("parallelism.pp_engine",
                  "expected 1f1b or afab, found '" + engine + "'");
  if (configuration.pipeline > 1)
    configuration.schedule = cantFail(parseSchedule(inTurn ? "1f1b" : "gpipe"));
  StringRef mode = settings.text("parallelism.tp_mode");
  bool rows = mode.equals_insensitive("REDUCE_SCATTER");
  if (!mode.empty() && !rows && !mode.equals_insensitive("ALL_REDUCE"))
    settings.fail("parallelism.tp_mode",
                  "expected ALL_REDUCE or REDUCE_SCATTER, found '" + mode +
                      "'");
  configuration.sequenceParallel = rows && configuration.tensor > 1;
  if (settings.flag("parallelism.tp_linear_async_communication", false) !=
          configuration.sequenceParallel &&
      configuration.tensor > 1)
    settings.fail("parallelism.tp_linear_async_communication",
                  "expected true beside REDUCE_SCATTER, false beside "
                  "ALL_REDUCE, as published runs have it");
  if (settings.flag("parallelism.recompute_layer", false))
    configuration.recompute = Recompute::Full;
  configuration.microBatch = settings.count("tokens.micro_batch_size", 0);
  configuration.batch =
      configuration.data * configuration.microBatch *
      settings.count("tokens.batch_accumulation_per_replica", 1);
  if (configuration.microBatch < 1)
    settings.fail("tokens.micro_batch_size", "missing");
  if (settings.text("optimizer.zero_stage") == "1" && configuration.data > 1)
    configuration.sharding = Sharding::Optimizer;
  reading.devices = configuration.devices();
  for (const std::string &other : settings.others()) {
    if (StringRef(other).ends_with(".sequence_length"))
      settings.fail(other, "lengths that change are not priced");
    else if (any_of(kPassed, [&](StringRef key) {
               return StringRef(other).starts_with(key);
             }))
      reading.passed.push_back(other);
    else
      settings.fail(other, "not known: whether it changes time or memory "
                           "cannot be told");
  }
  if (Error error = settings.finish())
    return error;
  if (Error error = reading.shape.check())
    return makeError(fileName + ": " + toString(std::move(error)));
  configuration.blocks = Configuration::blocksByWork(
      asTrained(reading.shape, configuration), configuration.pipeline);
  return checkedReading(std::move(reading), fileName);
}

} // namespace

std::unique_ptr<Target> makeNanotronTarget() {
  return std::make_unique<Nanotron>();
}

} // namespace galvatron
