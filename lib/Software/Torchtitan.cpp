//===- Torchtitan.cpp - torchtitan ----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Configurations of torchtitan 0.3.0 (torchtitan/config/configs.py, a Python
// function that --module and --config name) are written; those of 0.2 (TOML)
// are read, too: the keys are the same, recomputation apart, which is a class
// since 0.3. Models are its own of a fixed size (torchtitan/models/llama3).
//
//===----------------------------------------------------------------------===//

#include "Settings.h"
#include "Targets.h"

#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;

namespace galvatron {
namespace {

/// A model of llama3's registry.
struct Flavor {
  StringLiteral name;
  int64_t hidden, layers, heads, keyHeads, inner;
  bool tied;
};
constexpr Flavor kFlavors[] = {
    {"1B", 2048, 16, 32, 8, 8192, true},
    {"3B", 3072, 28, 24, 8, 8192, true},
    {"8B", 4096, 32, 32, 8, 14336, false},
    {"70B", 8192, 80, 64, 8, 28672, false},
    {"405B", 16384, 126, 128, 8, 53248, false},
};
constexpr int64_t kVocabulary = 128256;

ModelShape shapeOf(const Flavor &flavor, int64_t tokens) {
  ModelShape shape;
  shape.name = ("llama3 " + flavor.name).str();
  shape.layers = flavor.layers;
  shape.hidden = flavor.hidden;
  shape.heads = flavor.heads;
  shape.keyHeads = flavor.keyHeads;
  shape.headWidth = flavor.hidden / flavor.heads;
  shape.inner = flavor.inner;
  shape.vocabulary = kVocabulary;
  shape.tokens = tokens;
  shape.gated = true;
  shape.tied = flavor.tied;
  shape.rotaryBase = 500000;
  return shape;
}

/// The model of the registry that a shape is, as far as time and memory go.
const Flavor *flavorOf(const ModelShape &shape) {
  for (const Flavor &flavor : kFlavors) {
    ModelShape own = shapeOf(flavor, shape.tokens);
    if (own.layers == shape.layers && own.hidden == shape.hidden &&
        own.heads == shape.heads && own.keyHeads == shape.keyHeads &&
        own.headWidth == shape.headWidth && own.inner == shape.inner &&
        own.vocabulary == shape.vocabulary && own.gated == shape.gated &&
        own.tied == shape.tied)
      return &flavor;
  }
  return nullptr;
}

std::string flavorNames() {
  std::vector<std::string> names;
  for (const Flavor &flavor : kFlavors)
    names.push_back(flavor.name.str());
  return join(names, ", ");
}

/// A function of llama3's config_registry.py with what its configuration has
/// where that is no class's default.
struct BaseFunction {
  StringLiteral name, flavor;
  int64_t localBatch, tensor;
  StringLiteral policy; ///< of recomputation
};
constexpr StringLiteral kSelective = "SelectiveAC.Config()",
                        kFull = "FullAC.Config()", kNothing = "None";
constexpr BaseFunction kBases[] = {{"llama3_8b", "8B", 1, 1, kSelective},
                                   {"llama3_70b", "70B", 8, 8, kFull}};
constexpr int64_t kBaseTokens = 8192;

/// The name behind "config = " in a function; empty: there is none.
StringRef baseOf(StringRef text) {
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    text = rest;
    auto [left, right] = line.split('=');
    if (left.trim() == "config" && right.contains('('))
      return right.split('(').first.trim();
  }
  return "";
}

/// Names of schedules, its and ours.
constexpr std::pair<StringLiteral, StringLiteral> kSchedules[] = {
    {"1F1B", "1f1b"},
    {"Interleaved1F1B", "interleaved"},
    {"ZBVZeroBubble", "zb-v"},
};

/// Keys that change time or memory and are not priced, with the value that is
/// the default.
constexpr std::pair<StringLiteral, StringLiteral> kUnpriced[] = {
    {"parallelism.context_parallel_rotate_method", "allgather"},
    {"parallelism.context_parallel_load_balancer", "headtail"},
    {"parallelism.expert_parallel_degree", "1"},
    {"parallelism.expert_tensor_parallel_degree", "1"},
    {"parallelism.enable_compiled_autograd", "False"},
    {"parallelism.enable_fsdp_symm_mem", "False"},
    {"parallelism.disable_loss_parallel", "False"},
    {"parallelism.pipeline_parallel_split_points", "[]"},
    {"parallelism.module_fqns_per_model_part", "None"},
    {"parallelism.pipeline_parallel_schedule_csv", ""},
    {"parallelism.enable_async_tensor_parallel", "False"},
    {"experimental.enable_async_tensor_parallel", "False"},
    {"compile.enable_async_tensor_parallel", "False"},
    {"compile.backend", "inductor"},
    {"debug.deterministic", "False"},
    {"debug.batch_invariant", "False"},
    {"debug.detect_anomaly", "False"},
    {"training.deterministic", "False"},
    {"training.enable_cpu_offload", "False"},
    {"training.dtype", "float32"},
    {"training.mixed_precision_param", "bfloat16"},
    {"training.mixed_precision_reduce", "float32"},
};

/// Sections whose keys change time or memory unless they are among kPassed.
constexpr StringLiteral kPlanSections[] = {"training", "parallelism", "compile",
                                           "activation_checkpoint"};

/// Keys of these sections, of 0.2 and 0.3, on which neither depends.
constexpr StringLiteral kPassed[] = {
    "training.dataset",
    "training.dataset_path",
    "training.max_norm",
    "training.steps",
    "training.seed",
    "training.gc_freq",
    "training.gc_debug",
    "parallelism.spmd_backend",
    "parallelism.context_parallel_ptrr_mask_key",
    "parallelism.expert_parallel_comm_backend",
    "compile.components",
    "activation_checkpoint.preserve_rng_state",
    "activation_checkpoint.determinism_check",
    "activation_checkpoint.debug",
    "activation_checkpoint.early_stop",
    "activation_checkpoint.memory_budget",
    "activation_checkpoint.visualize_memory_budget_pareto",
    "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns"};

/// Keys of torchtitan's main branch in place of those that 0.3 has.
constexpr StringLiteral kOfMain[] = {
    "training.num_tokens_per_microbatch_per_dp_rank",
    "training.num_tokens_per_train_step", "training.max_context_length",
    "parallelism.num_pp_microbatches"};

/// Beginnings of keys that make products, or what is sent, smaller (fp8, fp4),
/// or replace parts of the model.
constexpr StringLiteral kConverted[] = {"model.converters", "quantize.",
                                        "float8.", "mx.", "override."};

class Torchtitan final : public Target {
public:
  StringRef name() const override { return "torchtitan"; }
  std::string description() const override {
    return "torchtitan 0.3.0, its llama3 models";
  }
  Error setOption(StringRef option, StringRef value) override {
    if (option == "version") {
      if (value == "0.3")
        return Error::success();
      return makeError(
          "option 'version' of torchtitan: expected '0.3' (files of "
          "0.2 are read), found '" +
          value + "'");
    }
    if (option == "compile") {
      if (value != "on" && value != "off")
        return makeError("option 'compile' of torchtitan: expected 'on' or "
                         "'off', found '" +
                         value + "'");
      compile = value == "on";
      return Error::success();
    }
    if (option == "devices")
      return readCount(name(), option, value, 1, int64_t(1) << 30, devices);
    std::vector<std::string> known = {"version", "compile", "devices"};
    return makeError("unknown option '" + option +
                     "' of torchtitan, expected " + join(known, ", ") +
                     didYouMean(option, known));
  }
  Execution execution() const override {
    Execution execution = cantFail(Execution::named("torchtitan"));
    execution.fusesNorms = compile;
    // Since 0.3 queries, keys and values are one product (fuse_qkv), and head
    // and loss take an eighth of the tokens at a time (ChunkedLossWrapper): of
    // the 10 bytes of a logit 1.25 are there at once.
    execution.fusesQueries = true;
    execution.logitBytes = 2;
    return execution;
  }
  ModelShape asTrained(const ModelShape &shape,
                       const Configuration &) const override {
    return shape;
  }

  Error visit(const ModelShape &shape, const Cluster &cluster, int64_t batch,
              function_ref<void(const Configuration &)> visit) const override {
    if (cantFail(halfTypeOf(cluster)) != "bf16")
      return makeError("torchtitan: expected devices with bf16, the one type "
                       "of 16 bits that it trains in");
    if (devices > 0)
      return makeError("torchtitan: option 'devices' is of --from, whose files "
                       "may not say it; here it is --cluster");
    if (!flavorOf(shape))
      return makeError("torchtitan: expected a model of its llama3 registry (" +
                       flavorNames() + "), found other sizes");
    DegreeLimits limits;
    limits.tensor = [&](int64_t tensor) { return shape.tokens % tensor == 0; };
    limits.context = [&](int64_t context, int64_t tensor) {
      return canCutPositions(shape, context, tensor);
    };
    visitDegrees(shape, cluster.deviceCount(), batch, limits,
                 [&](Configuration degrees) {
                   degrees.sequenceParallel = degrees.tensor > 1;
                   visitStages(shape, degrees, visit);
                 });
    return Error::success();
  }

  std::vector<LaunchFile> write(const ModelShape &shape,
                                const Configuration &configuration,
                                const Cluster &cluster) const override;
  Expected<SoftwareReading> read(StringRef text,
                                 StringRef fileName) const override;

  FileKind fileKind() const override { return FileKind::Function; }
  std::vector<PlanKey> planKeys() const override {
    // A missing one is what the function's base has, so none has a default.
    return {{"training.local_batch_size", ""},
            {"training.global_batch_size", ""},
            {"parallelism.data_parallel_replicate_degree", ""},
            {"parallelism.data_parallel_shard_degree", ""},
            {"parallelism.fsdp_reshard_after_forward", ""},
            {"parallelism.tensor_parallel_degree", ""},
            {"parallelism.context_parallel_degree", ""},
            {"parallelism.pipeline_parallel_degree", ""},
            {"parallelism.pipeline_parallel_schedule", ""},
            {"parallelism.pipeline_parallel_microbatch_size", ""},
            {"parallelism.pipeline_parallel_layers_per_stage", ""},
            {"parallelism.pipeline_parallel_first_stage_less_layers", ""},
            {"parallelism.pipeline_parallel_last_stage_less_layers", ""},
            {"compile.enable", ""},
            {"activation_checkpoint", "", false,
             "from torchtitan.distributed.activation_checkpoint import "
             "FullAC, SelectiveAC"}};
  }

private:
  const Flavor *readModel(Settings &settings, const BaseFunction *base,
                          bool isToml) const;
  void readRecomputation(Settings &settings, bool isToml,
                         const BaseFunction *base,
                         Configuration &configuration) const;
  void readOthers(Settings &settings, SoftwareReading &reading) const;
  void visitStages(const ModelShape &shape, Configuration configuration,
                   function_ref<void(const Configuration &)> visit) const {
    for (auto [its, ours] : kSchedules) {
      configuration.schedule = cantFail(parseSchedule(ours));
      bool single = ours == "1f1b";
      if (!single && configuration.pipeline == 1)
        continue;
      for (int64_t chunks : divisors(shape.layers)) {
        if (single != (chunks == 1) || (ours == "zb-v" && chunks != 2) ||
            (ours == "interleaved" &&
             configuration.microBatches() % configuration.pipeline))
          continue;
        configuration.chunks = chunks;
        configuration.visitDivisions(shape, [&](const Configuration &divided) {
          visitStates(divided, visit);
        });
      }
    }
  }

  /// Replicas, shards, and shards of groups, given back behind every pass or,
  /// without stages, not; nothing recomputed, all but some operations, or
  /// everything. Backward passes that are split recompute nothing.
  void visitStates(Configuration configuration,
                   function_ref<void(const Configuration &)> visit) const {
    for (Recompute recompute :
         {Recompute::None, Recompute::Operations, Recompute::Full}) {
      if (recompute != Recompute::None &&
          configuration.schedule->name() == "zb-v")
        continue;
      configuration.recompute = recompute;
      for (int64_t shards : divisors(configuration.data)) {
        // Ranks of context parallelism are always shards.
        const bool cut = shards * configuration.context > 1;
        configuration.shardGroup =
            cut && shards < configuration.data ? shards : 0;
        configuration.sharding = cut ? Sharding::Parameters : Sharding::None;
        visit(configuration);
        if (!cut || configuration.pipeline > 1)
          continue;
        configuration.sharding = Sharding::Gradients;
        visit(configuration);
      }
    }
  }

  bool compile = true;
  int64_t devices = 0; ///< of --from alone: of which -1 is the rest; 0: unknown
};

bool isToml(StringRef text) {
  return text.starts_with("[") || text.contains("\n[");
}

std::vector<LaunchFile> Torchtitan::write(const ModelShape &shape,
                                          const Configuration &configuration,
                                          const Cluster &cluster) const {
  const Flavor &flavor = *flavorOf(shape);
  bool stay = configuration.sharding == Sharding::Gradients;
  const int64_t shards =
      std::max<int64_t>(configuration.shards() / configuration.context, 1);
  std::string lines;
  auto set = [&](const Twine &key, const Twine &value) {
    lines += ("    config." + key + " = " + value + "\n").str();
  };
  // A pipeline cuts what one pass reads; elsewhere passes are accumulated.
  bool staged = configuration.pipeline > 1;
  set("training.seq_len", Twine(shape.tokens));
  set("training.local_batch_size",
      Twine(staged ? configuration.batch / configuration.data
                   : configuration.microBatch));
  set("training.global_batch_size", Twine(configuration.batch));
  set("parallelism.data_parallel_replicate_degree",
      Twine(configuration.data / shards));
  set("parallelism.data_parallel_shard_degree", Twine(shards));
  set("parallelism.fsdp_reshard_after_forward",
      stay ? "\"never\"" : "\"always\"");
  set("parallelism.tensor_parallel_degree", Twine(configuration.tensor));
  if (configuration.context > 1)
    set("parallelism.context_parallel_degree", Twine(configuration.context));
  set("parallelism.pipeline_parallel_degree", Twine(configuration.pipeline));
  if (staged) {
    auto [embedding, loss] = configuration.countedEnds();
    for (auto [its, ours] : kSchedules)
      if (ours == configuration.schedule->name())
        set("parallelism.pipeline_parallel_schedule", "\"" + its + "\"");
    set("parallelism.pipeline_parallel_microbatch_size",
        Twine(configuration.microBatch));
    set("parallelism.pipeline_parallel_layers_per_stage",
        Twine(*max_element(configuration.blocks)));
    set("parallelism.pipeline_parallel_first_stage_less_layers",
        Twine(int(embedding)));
    set("parallelism.pipeline_parallel_last_stage_less_layers",
        Twine(int(loss)));
  }
  set("compile.enable", compile ? "True" : "False");
  set("activation_checkpoint",
      configuration.recompute == Recompute::Full         ? kFull
      : configuration.recompute == Recompute::Operations ? kSelective
                                                         : kNothing);
  std::string python = formatv(
      R"py(# {0}: {1} on {2}.
#
# Started by torchtitan.sh beside it. To be set: HF_ASSETS (the folder of the
# tokenizer) and DATASET (a name of torchtitan's, or a folder). Parameters,
# moments and sums of gradients are f32, products bf16.
import os

from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC  # noqa: F401
from torchtitan.models.llama3 import model_registry
from torchtitan.models.llama3.config_registry import llama3_8b


def plan():
    config = llama3_8b()
    config.model_spec = model_registry("{3}")
    config.hf_assets_path = os.environ["HF_ASSETS"]
    config.dataloader.dataset = os.environ["DATASET"]
{4}    return config
)py",
      description(), configuration.str(), cluster.name().str(), flavor.name,
      lines);
  int64_t nodes = cluster.nodeCount();
  std::string script = formatv(
      R"script(#!/usr/bin/env bash
# Run it on every node. To be set: HF_ASSETS, DATASET (galvatron_plan.py){2}.
set -euo pipefail
: "${{HF_ASSETS:?}" "${{DATASET:?}"
FOLDER=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$FOLDER${{PYTHONPATH:+:$PYTHONPATH}"
exec torchrun --nproc-per-node {0} --nnodes {1} --rdzv-backend c10d \
  --rdzv-endpoint "{3}" \
  -m torchtitan.train --module galvatron_plan --config plan "$@"
)script",
      cluster.deviceCount() / nodes, nodes,
      nodes > 1 ? ", HEAD_NODE (host:port of\n# the first)" : "",
      nodes > 1 ? "${HEAD_NODE:?}" : "localhost:0");
  return {{"galvatron_plan.py", std::move(python), false},
          {"torchtitan.sh", std::move(script), true}};
}

/// The model that a file names, or the base of its function; fails if that is
/// no plain one of the registry.
const Flavor *Torchtitan::readModel(Settings &settings,
                                    const BaseFunction *base,
                                    bool isToml) const {
  // A function of 0.3 names the model in a call, a file of 0.2 by a key.
  std::string wanted = settings.text("model.flavor").str();
  StringRef model = settings.text("model_spec");
  if (model.consume_front("model_registry(\"")) {
    auto [name, behind] = model.split('"');
    wanted = name.str();
    if (behind != ")")
      settings.fail("model_spec",
                    "expected a model without converters (fp8 and others "
                    "change its time), found '" +
                        behind + "'");
  } else if (settings.has("model_spec")) {
    settings.fail("model_spec", "expected model_registry(\"NAME\") on a line, "
                                "without converters (fp8), found '" +
                                    model + "'");
  }
  if (wanted.empty() && base)
    wanted = base->flavor.str();
  if (StringRef name = settings.text("model.name");
      !name.empty() && name != "llama3")
    settings.fail("model.name", "expected llama3, found '" + name + "'");
  // The sections of a TOML file only hold for what model.converters names.
  for (const std::string &key : settings.others())
    for (StringRef part :
         ArrayRef(kConverted).take_front(isToml ? 1 : std::size(kConverted)))
      if (StringRef(key).starts_with(part) && settings.text(key) != "[]")
        settings.fail(key, "products in 8 bits or less and replaced parts of "
                           "the model change time or memory and are not "
                           "priced");
  for (auto [key, value] : kUnpriced)
    if (StringRef found = settings.text(key);
        settings.has(key) && !found.equals_insensitive(value))
      settings.fail(key, "expected " + value +
                             ", as others are not priced, found '" + found +
                             "'");
  if (wanted.empty() && priced)
    return flavorOf(priced->shape);
  const Flavor *flavor = find_if(
      kFlavors, [&](const Flavor &other) { return other.name == wanted; });
  if (flavor != std::end(kFlavors))
    return flavor;
  settings.fail("model.flavor", "expected one of " + flavorNames() +
                                    ", found '" + wanted + "'");
  return &kFlavors[0];
}

/// Reads what is recomputed: a class since 0.3, a mode before, selective by
/// default in both, where 0.2 means every second block.
void Torchtitan::readRecomputation(Settings &settings, bool isToml,
                                   const BaseFunction *base,
                                   Configuration &configuration) const {
  if (!isToml) {
    StringRef policy = settings.text("activation_checkpoint");
    if (policy.empty())
      policy = base ? base->policy : kSelective;
    if (policy.starts_with("FullAC.Config("))
      configuration.recompute = Recompute::Full;
    else if (policy == kSelective)
      configuration.recompute = Recompute::Operations;
    else if (policy != kNothing)
      settings.fail("activation_checkpoint",
                    "expected None, " + kFull + " or " + kSelective +
                        ", as others are not priced, found '" + policy + "'");
    return;
  }
  StringRef mode = settings.text("activation_checkpoint.mode");
  constexpr StringLiteral option = "activation_checkpoint.selective_ac_option";
  StringRef kind = settings.text(option);
  if (mode == "full") {
    configuration.recompute = Recompute::Full;
    return;
  }
  if (!mode.empty() && mode != "selective") {
    if (mode != "none")
      settings.fail("activation_checkpoint.mode",
                    "expected none, selective or full, as others are not "
                    "priced, found '" +
                        mode + "'");
    return;
  }
  if (kind == "op") {
    configuration.recompute = Recompute::Operations;
    return;
  }
  int64_t every = 2;
  if (!kind.empty() && (kind.getAsInteger(10, every) || every < 0)) {
    settings.fail(option, "expected \"op\" or a number of blocks, found '" +
                              kind + "'");
    return;
  }
  configuration.recompute = Recompute::Full;
  configuration.recomputedEvery = every > 1 ? every : 0;
}

/// Takes note of keys that change nothing; fails for those of the plan's
/// sections that nobody knows, and for sections that are misspelt.
void Torchtitan::readOthers(Settings &settings,
                            SoftwareReading &reading) const {
  const std::vector<std::string> sections(std::begin(kPlanSections),
                                          std::end(kPlanSections));
  std::vector<std::string> known = settings.askedKeys();
  known.insert(known.end(), std::begin(kPassed), std::end(kPassed));
  for (const std::string &key : settings.others()) {
    const std::string section = StringRef(key).split('.').first.str();
    const bool ofPlan = is_contained(sections, section);
    constexpr unsigned kNear = 2;
    const bool misspelt = !ofPlan && any_of(sections, [&](StringRef other) {
      return other.edit_distance(section, true, kNear) <= kNear;
    });
    if (is_contained(kPassed, key) || (!ofPlan && !misspelt))
      reading.passed.push_back(key);
    else if (priced)
      reading.unread.push_back(key);
    else if (is_contained(kOfMain, key))
      settings.fail(key, "a key of torchtitan's main branch: those of 0.2 and "
                         "0.3 are read");
    else
      settings.fail(key, "not known: whether it changes time or memory cannot "
                         "be told" +
                             didYouMean(misspelt ? section : key,
                                        misspelt ? sections : known));
  }
}

Expected<SoftwareReading> Torchtitan::read(StringRef text,
                                           StringRef fileName) const {
  Expected<Settings> parsed = Settings::parse(text, fileName);
  if (!parsed)
    return parsed.takeError();
  Settings &settings = *parsed;
  SoftwareReading reading;
  const StringRef function = baseOf(text);
  if (any_of(ArrayRef<StringRef>{"float8", "fp8", "fp4", "405b", "lora"},
             [&](StringRef part) { return function.contains(part); }))
    return makeError(fileName + ": '" + function +
                     "' has products in 8 bits or less, or adapters, which are "
                     "not priced");
  const BaseFunction *base = find_if(kBases, [&](const BaseFunction &other) {
    return other.name == function;
  });
  if (base == std::end(kBases)) {
    base = nullptr;
    if (!function.empty())
      reading.unread.push_back((function + "()").str());
  }
  const Flavor *flavor = readModel(settings, base, isToml(text));
  reading.shape =
      shapeOf(*flavor, settings.count("training.seq_len",
                                      base ? kBaseTokens
                                           : (priced && !function.empty()
                                                  ? priced->shape.tokens
                                                  : 2048)));
  Configuration &configuration = reading.configuration;
  configuration.tensor = settings.count("parallelism.tensor_parallel_degree",
                                        base ? base->tensor : 1);
  configuration.pipeline =
      settings.count("parallelism.pipeline_parallel_degree", 1);
  bool cutsRows = settings.flag("parallelism.enable_sequence_parallel", true);
  configuration.sequenceParallel = cutsRows && configuration.tensor > 1;
  int64_t replicas =
      settings.count("parallelism.data_parallel_replicate_degree", 1);
  int64_t shards =
      settings.countOrRest("parallelism.data_parallel_shard_degree", -1);
  configuration.context =
      settings.count("parallelism.context_parallel_degree", 1);
  const int64_t others = configuration.tensor * configuration.pipeline *
                         configuration.context * replicas;
  if (shards < 1 && devices > 0 && others > 0 && devices % others == 0)
    shards = devices / others;
  else if (shards < 1)
    settings.fail(
        "parallelism.data_parallel_shard_degree",
        devices > 0 ? "expected other degrees whose product, " + Twine(others) +
                          ", divides the devices, " + Twine(devices)
                    : "the file does not say of how many devices -1 is the "
                      "rest: expected the degree, or devices=N in "
                      "--from=torchtitan");
  configuration.data = replicas * std::max<int64_t>(shards, 1);
  const bool cut = shards * configuration.context > 1;
  if (cut) {
    configuration.sharding = Sharding::Parameters;
    configuration.shardGroup = replicas > 1 ? shards : 0;
  }
  reading.devices = configuration.devices();
  if (devices > 0 && reading.devices != devices)
    settings.fail("parallelism.data_parallel_shard_degree",
                  "expected degrees whose product is the devices, " +
                      Twine(devices) + ", found " + Twine(reading.devices));
  int64_t local =
      settings.count("training.local_batch_size", base ? base->localBatch : 8);
  configuration.batch = settings.countOrRest("training.global_batch_size", -1);
  if (configuration.batch < 1)
    configuration.batch = local * configuration.data;
  bool staged = configuration.pipeline > 1;
  StringRef reshards = settings.text("parallelism.fsdp_reshard_after_forward");
  if (cut && staged && reshards != "always")
    settings.fail("parallelism.fsdp_reshard_after_forward",
                  "expected always: parameters that stay gathered (never; with "
                  "stages the default) are not priced beside stages");
  else if (cut && reshards == "never")
    configuration.sharding = Sharding::Gradients;
  int64_t embedding = 0, loss = 0;
  if (staged) {
    configuration.microBatch =
        settings.count("parallelism.pipeline_parallel_microbatch_size", 1);
    if (local * configuration.data != configuration.batch)
      settings.fail("training.global_batch_size",
                    "expected local_batch_size times replicas, " +
                        Twine(local * configuration.data) +
                        ", with stages, found " + Twine(configuration.batch));
    StringRef schedule =
        settings.text("parallelism.pipeline_parallel_schedule");
    if (schedule.empty())
      schedule = "1F1B";
    auto known = find_if(kSchedules, [&](const auto &entry) {
      return schedule.equals_insensitive(entry.first);
    });
    if (known == std::end(kSchedules))
      settings.fail("parallelism.pipeline_parallel_schedule",
                    "expected 1F1B, Interleaved1F1B or ZBVZeroBubble, found '" +
                        schedule + "'");
    else
      configuration.schedule = cantFail(parseSchedule(known->second));
    embedding = settings.count(
        "parallelism.pipeline_parallel_first_stage_less_layers", 1);
    loss = settings.count(
        "parallelism.pipeline_parallel_last_stage_less_layers", 1);
    if (embedding > 1 || loss > 1)
      settings.fail("parallelism.pipeline_parallel_first_stage_less_layers",
                    "expected 0 or 1 at both ends");
    bool single = configuration.schedule == &defaultSchedule();
    int64_t each =
        settings.count("parallelism.pipeline_parallel_layers_per_stage",
                       (reading.shape.layers + embedding + loss) /
                           (configuration.pipeline * (single ? 1 : 2)));
    configuration.chunks = std::max<int64_t>(
        (reading.shape.layers + embedding + loss) / std::max<int64_t>(each, 1) /
            configuration.pipeline,
        1);
  } else {
    configuration.microBatch = local;
  }
  if ((base || settings.has("compile.enable")) &&
      settings.flag("compile.enable", false) != compile)
    settings.fail("compile.enable",
                  compile ? "torchtitan,compile=off prices what is not compiled"
                          : "expected false beside compile=off");
  readRecomputation(settings, isToml(text), base, configuration);
  readOthers(settings, reading);
  if (Error error = settings.finish())
    return error;
  configuration.blocks = Configuration::blocksCounting(
      reading.shape.layers, configuration.pipeline * configuration.chunks,
      embedding, loss);
  if (configuration.blocks.empty())
    return makeError(fileName + ": expected blocks that divide by " +
                     Twine(configuration.pipeline * configuration.chunks) +
                     " chunks, with those that the first and last stage have "
                     "less, found " +
                     Twine(reading.shape.layers));
  // A rank counts through its chunks.
  if (configuration.chunks > 1 && configuration.recomputedEvery &&
      any_of(configuration.blocks, [&](int64_t blocks) {
        return blocks % configuration.recomputedEvery != 0;
      }))
    return makeError(fileName + ": expected chunks of whole turns of " +
                     Twine(configuration.recomputedEvery) +
                     " blocks, of which one is recomputed "
                     "(selective_ac_option), found " +
                     Twine(configuration.blocks.front()) + " in the first");
  return checkedReading(std::move(reading), fileName);
}

} // namespace

std::unique_ptr<Target> makeTorchtitanTarget() {
  return std::make_unique<Torchtitan>();
}

} // namespace galvatron
