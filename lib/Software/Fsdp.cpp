//===- Fsdp.cpp - FSDP by accelerate and the Trainer ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Files of accelerate (YAML for `accelerate launch`) and of the Trainer
// (arguments as JSON), as accelerate of July 2026 and transformers 5 read them.
// FSDP1 has sharding strategies, FSDP2 `reshard_after_forward` and, in
// accelerate alone, a mesh of replicas, shards and tensor parallelism. Neither
// file says the model, nor accelerate's the batch: options of the target do.
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

/// Bytes kept of a logit by transformers' ForCausalLMLoss: the 16-bit output,
/// its log-softmax in f32 and, in the backward pass, the gradient of that.
constexpr int64_t kLogitBytes = 10;

/// A strategy of FSDP1.
struct StrategyName {
  StringLiteral name;
  Sharding sharding;
  bool hybrid; ///< shards within a node, replicas across
};
constexpr StrategyName kStrategies[] = {
    {"FULL_SHARD", Sharding::Parameters, false},
    {"SHARD_GRAD_OP", Sharding::Gradients, false},
    {"NO_SHARD", Sharding::None, false},
    {"HYBRID_SHARD", Sharding::Parameters, true},
    {"HYBRID_SHARD_ZERO2", Sharding::Gradients, true},
};

std::string strategyNames() {
  std::vector<std::string> names;
  for (const StrategyName &strategy : kStrategies)
    names.push_back(strategy.name.str());
  return join(names, ", ");
}

/// Keys of accelerate's file that neither time nor memory of a step depends on.
constexpr StringLiteral kPassedByAccelerate[] = {"compute_environment",
                                                 "debug",
                                                 "enable_cpu_affinity",
                                                 "machine_rank",
                                                 "main_process_ip",
                                                 "main_process_port",
                                                 "main_training_function",
                                                 "rdzv_backend",
                                                 "same_network",
                                                 "gpu_ids",
                                                 "tpu_env",
                                                 "tpu_name",
                                                 "tpu_zone",
                                                 "tpu_use_cluster",
                                                 "tpu_use_sudo",
                                                 "command_file",
                                                 "commands"};
/// The same of `fsdp_config`, without a prefix.
constexpr StringLiteral kPassedOfConfig[] = {
    "state_dict_type",    "cpu_ram_efficient_loading",
    "use_orig_params",    "sync_module_states",
    "min_num_params",     "transformer_layer_cls_to_wrap",
    "forward_prefetch",   "limit_all_gathers",
    "xla_fsdp_grad_ckpt", "xla_fsdp_v2"};

/// Arguments of the Trainer that change time or memory where they have another
/// value than this.
constexpr std::pair<StringLiteral, StringLiteral> kUnpricedArguments[] = {
    {"gradient_checkpointing", "false"},
    {"activation_checkpointing", "false"},
    {"auto_find_batch_size", "false"},
    {"use_liger_kernel", "false"},
    {"use_cpu", "false"},
    {"accelerator_config.split_batches", "false"},
    {"fsdp_config.xla", "false"},
};
constexpr StringLiteral kRefusedArguments[] = {
    "deepspeed", "per_gpu_train_batch_size", "parallelism_config",
    "activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"};

class Fsdp final : public Target {
public:
  StringRef name() const override { return "fsdp"; }
  std::string description() const override {
    return "FSDP by accelerate or transformers' Trainer, summer of 2026";
  }
  bool filesNameModel() const override { return false; }
  Error setOption(StringRef option, StringRef value) override;
  Execution execution() const override;
  ModelShape asTrained(const ModelShape &shape,
                       const Configuration &) const override {
    return shape;
  }
  Error visit(const ModelShape &shape, const Cluster &cluster, int64_t batch,
              function_ref<void(const Configuration &)> visit) const override;
  std::vector<LaunchFile> write(const ModelShape &shape,
                                const Configuration &configuration,
                                const Cluster &cluster) const override;
  Expected<SoftwareReading> read(StringRef text,
                                 StringRef fileName) const override;

  std::vector<PlanKey> planKeys() const override;

private:
  void visitStates(const Configuration &base, int64_t ofNode,
                   function_ref<void(const Configuration &)> visit) const;
  LaunchFile accelerateFile(const Configuration &configuration,
                            const Cluster &cluster) const;
  LaunchFile trainerFile(const Configuration &configuration,
                         const Cluster &cluster) const;
  LaunchFile script(const Configuration &configuration,
                    const Cluster &cluster) const;
  void readAccelerate(Settings &settings, SoftwareReading &reading) const;
  void readTrainer(Settings &settings, SoftwareReading &reading) const;
  void readSharding(Settings &settings, SoftwareReading &reading,
                    const StrategyName *legacy) const;
  void readConfig(Settings &settings, SoftwareReading &reading) const;

  bool trainer = false, compile = false, syncEachBatch = false;
  std::optional<int64_t> version;
  /// Of `--from` alone: what files do not say.
  int64_t microBatch = 0, accumulation = 0, devices = 0, nodes = 0;

  int64_t versionOr(int64_t absent) const { return version.value_or(absent); }
};

Error Fsdp::setOption(StringRef option, StringRef value) {
  auto among = [&](StringRef one, StringRef other) -> Expected<bool> {
    if (value == one || value == other)
      return value == other;
    return makeError("option '" + option + "' of fsdp: expected '" + one +
                     "' or '" + other + "', found '" + value + "'");
  };
  std::pair<StringRef, bool *> switches[] = {
      {"compile", &compile}, {"sync-each-batch", &syncEachBatch}};
  for (auto [name, member] : switches)
    if (option == name) {
      Expected<bool> on = among("off", "on");
      if (!on)
        return on.takeError();
      *member = *on;
      return Error::success();
    }
  if (option == "files") {
    Expected<bool> second = among("accelerate", "trainer");
    if (!second)
      return second.takeError();
    trainer = *second;
    return Error::success();
  }
  if (option == "version") {
    Expected<bool> second = among("1", "2");
    if (!second)
      return second.takeError();
    version = *second ? 2 : 1;
    return Error::success();
  }
  std::pair<StringRef, int64_t *> counts[] = {{"micro-batch", &microBatch},
                                              {"accumulation", &accumulation},
                                              {"devices", &devices},
                                              {"nodes", &nodes}};
  std::vector<std::string> known = {"files", "version", "compile",
                                    "sync-each-batch"};
  for (auto [name, member] : counts) {
    known.push_back(name.str());
    if (option != name)
      continue;
    if (value.getAsInteger(10, *member) || *member < 1 ||
        *member > (int64_t(1) << 30))
      return makeError("option '" + option +
                       "' of fsdp: expected a count of at least 1, found '" +
                       value + "'");
    return Error::success();
  }
  return makeError("unknown option '" + option + "' of fsdp, expected " +
                   join(known, ", ") + didYouMean(option, known));
}

Execution Fsdp::execution() const {
  Execution execution = cantFail(Execution::named("fms-fsdp"));
  execution.fusesNorms = compile;
  execution.logitBytes = kLogitBytes;
  execution.gathersLogits = true;
  execution.sumsEveryPass = syncEachBatch;
  // FSDP1 gives parameters of SHARD_GRAD_OP back where it sums gradients.
  execution.gathersEveryPass = versionOr(2) == 2 || syncEachBatch;
  return execution;
}

Error Fsdp::visit(const ModelShape &shape, const Cluster &cluster,
                  int64_t batch,
                  function_ref<void(const Configuration &)> visit) const {
  for (auto [option, given] : {std::pair("micro-batch", microBatch),
                               {"accumulation", accumulation},
                               {"devices", devices},
                               {"nodes", nodes}})
    if (given)
      return makeError(
          Twine("fsdp: option '") + option +
          "' is of --from, whose files do not say it; here it is answered");
  const int64_t count = cluster.deviceCount();
  for (int64_t tensor : divisors(count)) {
    // The mesh is accelerate's, of FSDP2.
    if (tensor > 1 &&
        (trainer || versionOr(2) == 1 || shape.keyHeads % tensor ||
         shape.inner % tensor || shape.vocabulary % tensor))
      continue;
    Configuration configuration;
    configuration.batch = batch;
    configuration.tensor = tensor;
    configuration.data = count / tensor;
    configuration.blocks = Configuration::evenBlocks(shape.layers, 1);
    if (batch % configuration.data)
      continue;
    for (int64_t samples : divisors(batch / configuration.data)) {
      configuration.microBatch = samples;
      for (Recompute recompute : {Recompute::None, Recompute::Full}) {
        configuration.recompute = recompute;
        visitStates(configuration, count / cluster.nodeCount(), visit);
      }
    }
  }
  return Error::success();
}

void Fsdp::visitStates(const Configuration &base, int64_t ofNode,
                       function_ref<void(const Configuration &)> visit) const {
  Configuration configuration = base;
  bool first = versionOr(2) == 1;
  if (base.data == 1) {
    // Beside tensor parallelism FSDP2 wants shards.
    if (base.tensor == 1)
      visit(configuration);
    return;
  }
  // Summed behind every pass replicas are not priced.
  if (first && !syncEachBatch)
    visit(configuration);
  for (Sharding sharding : {Sharding::Gradients, Sharding::Parameters}) {
    configuration.sharding = sharding;
    for (int64_t shards : divisors(base.data)) {
      bool all = shards == base.data;
      bool group = first ? shards == ofNode : !trainer;
      if (shards == 1 || (!all && !group))
        continue;
      configuration.shardGroup = all ? 0 : shards;
      visit(configuration);
    }
  }
}

/// The strategy of FSDP1 that a configuration is.
StringRef strategyOf(const Configuration &configuration) {
  for (const StrategyName &strategy : kStrategies)
    if (strategy.sharding == configuration.sharding &&
        strategy.hybrid == (configuration.shardGroup > 0))
      return strategy.name;
  return "NO_SHARD";
}

StringRef word(bool value) { return value ? "true" : "false"; }

bool usesBf16(const Cluster &cluster) {
  return cantFail(halfTypeOf(cluster)) == "bf16";
}

LaunchFile Fsdp::accelerateFile(const Configuration &configuration,
                                const Cluster &cluster) const {
  bool second = versionOr(2) == 2;
  std::string lines;
  auto add = [&](const Twine &line) { lines += (line + "\n").str(); };
  add("compute_environment: LOCAL_MACHINE");
  add("distributed_type: FSDP");
  add("mixed_precision: " + Twine(usesBf16(cluster) ? "bf16" : "fp16"));
  add("num_machines: " + Twine(cluster.nodeCount()));
  add("num_processes: " + Twine(cluster.deviceCount()));
  add("fsdp_config:");
  add("  fsdp_version: " + Twine(second ? 2 : 1));
  if (second) {
    add("  fsdp_reshard_after_forward: " +
        word(configuration.sharding != Sharding::Gradients));
  } else {
    add("  fsdp_sharding_strategy: " + strategyOf(configuration));
    add("  fsdp_backward_prefetch: BACKWARD_PRE");
    add("  fsdp_use_orig_params: true");
    add("  fsdp_sync_module_states: true");
  }
  add("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP");
  add("  fsdp_activation_checkpointing: " +
      word(configuration.recompute == Recompute::Full));
  add("  fsdp_offload_params: false");
  add("  fsdp_state_dict_type: SHARDED_STATE_DICT");
  if (configuration.tensor > 1 || (second && configuration.shardGroup)) {
    add("parallelism_config:");
    add("  parallelism_config_dp_replicate_size: " +
        Twine(configuration.data / configuration.shards()));
    add("  parallelism_config_dp_shard_size: " + Twine(configuration.shards()));
    add("  parallelism_config_tp_size: " + Twine(configuration.tensor));
  }
  if (compile) {
    add("dynamo_config:");
    add("  dynamo_backend: INDUCTOR");
  }
  return {"fsdp.yaml",
          formatv("# {0}:\n# {1} on {2}.\n", description(), configuration.str(),
                  cluster.name())
                  .str() +
              lines,
          false};
}

LaunchFile Fsdp::trainerFile(const Configuration &configuration,
                             const Cluster &cluster) const {
  bool second = versionOr(2) == 2;
  json::Object config{
      {"version", second ? 2 : 1},
      {"auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
      {"activation_checkpointing", configuration.recompute == Recompute::Full},
      {"cpu_offload", false},
      {"state_dict_type", "SHARDED_STATE_DICT"}};
  if (second) {
    config["reshard_after_forward"] =
        configuration.sharding != Sharding::Gradients;
  } else {
    config["reshard_after_forward"] = strategyOf(configuration).lower();
    config["backward_prefetch"] = "BACKWARD_PRE";
  }
  json::Object arguments{
      {usesBf16(cluster) ? "bf16" : "fp16", true},
      {"fsdp", true},
      {"fsdp_config", std::move(config)},
      {"per_device_train_batch_size", configuration.microBatch},
      {"gradient_accumulation_steps", configuration.microBatches()},
      {"torch_compile", compile}};
  if (syncEachBatch)
    arguments["accelerator_config"] =
        json::Object{{"gradient_accumulation_kwargs",
                      json::Object{{"sync_each_batch", true}}}};
  return {"trainer.json",
          formatv("{0:2}\n", json::Value(std::move(arguments))).str(), false};
}

LaunchFile Fsdp::script(const Configuration &configuration,
                        const Cluster &cluster) const {
  const int64_t nodeCount = cluster.nodeCount();
  std::string command;
  if (trainer) {
    command = formatv("torchrun --nproc-per-node {0} --nnodes {1} {2}\\\n"
                      "  \"${{SCRIPT:?}\" \"$FOLDER/trainer.json\"",
                      cluster.deviceCount() / nodeCount, nodeCount,
                      nodeCount > 1 ? "--rdzv-backend c10d --rdzv-endpoint "
                                      "\"${HEAD_NODE:?}:29500\" "
                                    : "");
  } else {
    command = "accelerate launch --config_file \"$FOLDER/fsdp.yaml\" \\\n  ";
    if (nodeCount > 1)
      command += "--machine_rank \"${MACHINE_RANK:?}\" --main_process_ip "
                 "\"${HEAD_NODE:?}\" \\\n  --main_process_port 29500 ";
    command += formatv("\"${{SCRIPT:?}\" --per_device_train_batch_size {0} "
                       "\\\n  --gradient_accumulation_steps {1}",
                       configuration.microBatch, configuration.microBatches());
    if (syncEachBatch)
      command += " \\\n  --accelerator_config "
                 "'{\"gradient_accumulation_kwargs\": "
                 "{\"sync_each_batch\": true}}'";
    command += " \"$@\"";
  }
  std::string notes =
      trainer
          ? "# What it takes besides, model and data, is added to "
            "trainer.json.\n"
          : "# A loop of its own has to take the batch and its accumulation "
            "from here.\n";
  if (configuration.tensor > 1)
    notes += "# Its model is loaded with tp_plan=\"auto\" and the "
             "accelerator's device mesh.\n";
  std::string places =
      "# To be set: SCRIPT, a training script that takes the Trainer's "
      "arguments";
  if (nodeCount > 1)
    places += trainer ? ",\n# and HEAD_NODE, the first node"
                      : ",\n# HEAD_NODE, the first node, and MACHINE_RANK, "
                        "counted from 0";
  std::string text = formatv(
      R"script(#!/usr/bin/env bash
# {0}:
# {1} on {2}. Run it on every node.
#
{3}.
{4}# Parameters and moments are f32, products and sums of gradients 16 bits.
set -euo pipefail
FOLDER=$(cd "$(dirname "$0")" && pwd)
exec {5}
)script",
      description(), configuration.str(), cluster.name(), places, notes,
      command);
  return {"fsdp.sh", std::move(text), true};
}

std::vector<LaunchFile> Fsdp::write(const ModelShape &,
                                    const Configuration &configuration,
                                    const Cluster &cluster) const {
  return {trainer ? trainerFile(configuration, cluster)
                  : accelerateFile(configuration, cluster),
          script(configuration, cluster)};
}

std::vector<PlanKey> Fsdp::planKeys() const {
  bool second = versionOr(2) == 2;
  if (trainer)
    return {
        {"per_device_train_batch_size", "8"},
        {"gradient_accumulation_steps", "1"},
        {"fsdp_config.version", "2"},
        {"fsdp_config.reshard_after_forward", second ? "true" : "full_shard"},
        {"fsdp_config.activation_checkpointing", "false"}};
  const std::string mesh = "parallelism_config.parallelism_config_";
  std::vector<PlanKey> keys = {
      {"num_machines", "1"},
      {"num_processes", ""},
      {"fsdp_config.fsdp_version", "1"},
      {"fsdp_config.fsdp_activation_checkpointing", "false"}};
  if (!second) {
    keys.push_back({"fsdp_config.fsdp_sharding_strategy", "FULL_SHARD"});
    return keys;
  }
  keys.push_back({"fsdp_config.fsdp_reshard_after_forward", "true"});
  for (const char *size : {"dp_replicate_size", "dp_shard_size", "tp_size"})
    keys.push_back({mesh + size, "1"});
  return keys;
}

/// Of `fsdp_config`, whose keys have a prefix or none.
std::string configKey(const Settings &settings, StringRef key) {
  std::string prefixed = ("fsdp_config.fsdp_" + key).str();
  return settings.has(prefixed) ? prefixed : ("fsdp_config." + key).str();
}

void Fsdp::readAccelerate(Settings &settings, SoftwareReading &reading) const {
  Configuration &configuration = reading.configuration;
  settings.expect("mixed_precision", {"bf16", "fp16"},
                  "other types are not priced");
  if (!settings.has("mixed_precision"))
    settings.fail("mixed_precision", "expected bf16 or fp16: without it "
                                     "products are in f32, not priced");
  settings.expect("use_cpu", {"false"}, "processors are not priced");
  settings.expect("downcast_bf16", {"no", "false"}, "not priced");
  reading.devices = settings.count("num_processes", 0);
  if (reading.devices < 1)
    settings.fail("num_processes", "missing");
  const int64_t machines = settings.count("num_machines", 1);
  const std::string mesh = "parallelism_config.parallelism_config_";
  int64_t replicas = settings.count(mesh + "dp_replicate_size", 1);
  int64_t shards = settings.count(mesh + "dp_shard_size", 1);
  configuration.tensor = settings.count(mesh + "tp_size", 1);
  for (StringRef axis : {"cp_size", "sp_size"})
    settings.expect(mesh + axis.str(), {"1"}, "others are not priced");
  for (StringRef axis : {"cp_backend", "cp_comm_strategy", "sp_backend"})
    settings.text(mesh + axis.str());
  bool meshed = replicas * shards * configuration.tensor > 1;
  if (!meshed)
    shards = reading.devices;
  else if (replicas * shards * configuration.tensor != reading.devices)
    settings.fail("num_processes",
                  "expected the product of the mesh, " +
                      Twine(replicas * shards * configuration.tensor) +
                      ", found " + Twine(reading.devices));
  if (meshed && shards == 1)
    settings.fail(mesh + "dp_shard_size",
                  "expected at least 2: FSDP2 has no other replicas, and "
                  "tensor parallelism wants shards");
  configuration.data = std::max<int64_t>(replicas * shards, 1);
  configuration.shardGroup = meshed && replicas > 1 ? shards : 0;
  configuration.microBatch = microBatch;
  if (!microBatch)
    settings.fail("num_processes",
                  "accelerate's file says no batch: expected micro-batch=N, "
                  "samples of a pass on one device, and accumulation=N in "
                  "--from=fsdp");
  configuration.batch =
      configuration.data * microBatch * std::max<int64_t>(accumulation, 1);
  bool compiled = !settings.text("dynamo_config.dynamo_backend").empty();
  settings.expect("dynamo_config.dynamo_backend", {"INDUCTOR"},
                  "others are not priced");
  for (StringRef key :
       {"mode", "use_dynamic", "use_fullgraph", "use_regional_compilation"})
    settings.text(("dynamo_config.dynamo_" + key).str());
  if (compiled != compile)
    settings.fail("dynamo_config.dynamo_backend",
                  compile ? "missing beside compile=on"
                          : "fsdp,compile=on prices what is compiled");
  for (StringRef key : kPassedByAccelerate)
    if (settings.has(key)) {
      settings.text(key);
      reading.passed.push_back(key.str());
    }
  // Without a mesh FSDP1 shards within nodes where the strategy is hybrid.
  if (configuration.tensor == 1 && !meshed && machines > 1 && !nodes)
    configuration.shardGroup = -(reading.devices / machines);
}

void Fsdp::readTrainer(Settings &settings, SoftwareReading &reading) const {
  Configuration &configuration = reading.configuration;
  for (auto [key, value] : kUnpricedArguments)
    settings.expect(key, {value},
                    "it changes time or memory and is not priced");
  for (StringRef key : kRefusedArguments)
    if (settings.has(key))
      settings.fail(key, "it changes time or memory and is not priced");
  settings.expect("optim", {"adamw_torch", "adamw_torch_fused"},
                  "states of others are not priced");
  if (!settings.flag("bf16", false) && !settings.flag("fp16", false))
    settings.fail("bf16", "expected bf16 or fp16: without it products are in "
                          "f32, not priced");
  if (settings.flag("torch_compile", false) != compile)
    settings.fail("torch_compile",
                  compile ? "missing beside compile=on"
                          : "fsdp,compile=on prices what is compiled");
  const std::string sync =
      "accelerator_config.gradient_accumulation_kwargs.sync_each_batch";
  if (settings.flag(sync, false) != syncEachBatch)
    settings.fail(sync, syncEachBatch ? "missing beside sync-each-batch=on"
                                      : "fsdp,sync-each-batch=on prices it");
  reading.devices = devices;
  if (!devices)
    settings.fail("fsdp", "the Trainer's arguments do not say on how many "
                          "devices: expected devices=N in --from=fsdp");
  configuration.data = std::max<int64_t>(devices, 1);
  configuration.microBatch = settings.count("per_device_train_batch_size", 8);
  configuration.batch = configuration.data * configuration.microBatch *
                        settings.count("gradient_accumulation_steps", 1);
  if (microBatch || accumulation)
    settings.fail("per_device_train_batch_size",
                  "the file says the batch: expected neither micro-batch nor "
                  "accumulation in --from=fsdp");
}

/// The strategy among words of the Trainer's old `fsdp`; null: none is named.
/// Words that price otherwise fail.
const StrategyName *legacyStrategy(Settings &settings) {
  StringRef text = settings.text("fsdp");
  const StrategyName *found = nullptr;
  if (text.equals_insensitive("true"))
    return found;
  SmallVector<StringRef, 4> words;
  text.split(words, text.contains(',') ? ',' : ' ', -1, /*KeepEmpty=*/false);
  if (words.empty() || text.equals_insensitive("false"))
    settings.fail("fsdp", "expected true: without FSDP nothing is priced");
  for (StringRef entry : words) {
    if (entry == "auto_wrap")
      continue;
    const StrategyName *strategy =
        find_if(kStrategies, [&](const StrategyName &other) {
          return entry.equals_insensitive(other.name);
        });
    if (strategy == std::end(kStrategies))
      settings.fail("fsdp",
                    "expected true, or auto_wrap and a strategy, found '" +
                        entry + "', which is not priced");
    else
      found = strategy;
  }
  return found;
}

void Fsdp::readSharding(Settings &settings, SoftwareReading &reading,
                        const StrategyName *legacy) const {
  Configuration &configuration = reading.configuration;
  const int64_t ofNode = configuration.shardGroup < 0
                             ? -configuration.shardGroup
                         : nodes ? reading.devices / nodes
                                 : 0;
  configuration.shardGroup = std::max<int64_t>(configuration.shardGroup, 0);
  const std::string reshard = configKey(settings, "reshard_after_forward");
  const std::string old = configKey(settings, "sharding_strategy");
  if (versionOr(2) == 2) {
    if (settings.has(old))
      settings.fail(old, "FSDP2 has no strategies: expected "
                         "reshard_after_forward, true or false");
    if (legacy && (legacy->hybrid || legacy->sharding == Sharding::None))
      settings.fail("fsdp", legacy->name + " is of FSDP1 alone");
    bool absent = !legacy || legacy->sharding == Sharding::Parameters;
    configuration.sharding = settings.flag(reshard, absent)
                                 ? Sharding::Parameters
                                 : Sharding::Gradients;
  } else {
    // accelerate launch always gives FSDP1 a strategy, which comes first.
    std::string key = settings.has("distributed_type") ? old : reshard;
    if (key == old && settings.has(reshard) && !settings.has(old))
      settings.fail(reshard, "FSDP1 is given sharding_strategy by accelerate, "
                             "FULL_SHARD where it is missing");
    StringRef wanted = settings.text(key);
    settings.text(reshard);
    if (wanted.empty())
      wanted = legacy ? StringRef(legacy->name) : StringRef("FULL_SHARD");
    const StrategyName *strategy =
        find_if(kStrategies, [&](const StrategyName &other) {
          return wanted.equals_insensitive(other.name);
        });
    if (strategy == std::end(kStrategies)) {
      settings.fail(key, "expected one of " + strategyNames() + ", found '" +
                             wanted + "'");
      return;
    }
    configuration.sharding = strategy->sharding;
    if (strategy->hybrid && !ofNode)
      settings.fail(key, strategy->name +
                             " shards within a node: expected num_machines, or "
                             "nodes=N in --from=fsdp");
    if (strategy->hybrid)
      configuration.shardGroup = ofNode;
    if (strategy->sharding == Sharding::None && syncEachBatch &&
        configuration.data > 1)
      settings.fail(key, "NO_SHARD beside sync-each-batch=on is not priced");
    if (configuration.tensor > 1 || settings.has("parallelism_config."
                                                 "parallelism_config_tp_size"))
      settings.fail("parallelism_config", "it is of FSDP2 alone");
  }
  if (configuration.data == 1)
    configuration.sharding = Sharding::None;
  if (configuration.shards() == configuration.data)
    configuration.shardGroup = 0;
}

void Fsdp::readConfig(Settings &settings, SoftwareReading &reading) const {
  settings.expect(configKey(settings, "auto_wrap_policy"),
                  {"TRANSFORMER_BASED_WRAP"},
                  "parameters of other units are gathered at once, not priced");
  if (settings.has("distributed_type") &&
      !settings.has(configKey(settings, "auto_wrap_policy")))
    settings.fail("fsdp_config.fsdp_auto_wrap_policy",
                  "missing: the model is one unit then (NO_WRAP), not priced");
  for (StringRef key : {"offload_params", "cpu_offload"})
    settings.expect(configKey(settings, key), {"false"},
                    "offloading is not priced");
  settings.expect(configKey(settings, "min_num_params"), {"0"},
                  "units by size are not priced");
  if (versionOr(2) == 1) {
    settings.expect(configKey(settings, "backward_prefetch"), {"BACKWARD_PRE"},
                    "gathers that wait are not priced");
    if (!settings.has(configKey(settings, "backward_prefetch")))
      settings.fail("fsdp_config.fsdp_backward_prefetch",
                    "missing: gathers wait then, not priced; expected "
                    "BACKWARD_PRE");
  } else {
    settings.expect(configKey(settings, "forward_prefetch"), {"false"},
                    "FSDP2 has none");
    settings.text(configKey(settings, "backward_prefetch"));
  }
  reading.configuration.recompute =
      settings.flag(configKey(settings, "activation_checkpointing"), false)
          ? Recompute::Full
          : Recompute::None;
  for (StringRef key : kPassedOfConfig)
    if (std::string whole = configKey(settings, key); settings.has(whole)) {
      settings.text(whole);
      reading.passed.push_back(whole);
    }
}

Expected<SoftwareReading> Fsdp::read(StringRef text, StringRef fileName) const {
  Expected<Settings> parsed = Settings::parseNested(text, fileName);
  if (!parsed)
    return parsed.takeError();
  Settings &settings = *parsed;
  bool ofTrainer = !settings.has("distributed_type");
  if (ofTrainer && !settings.has("fsdp"))
    return makeError(fileName + ": expected accelerate's file, with "
                                "distributed_type, or the Trainer's arguments, "
                                "with fsdp");
  settings.expect("distributed_type", {"FSDP"}, "no other is priced for fsdp");
  // The version is the file's, where it says one.
  Fsdp reader = *this;
  int64_t said = settings.count(configKey(settings, "version"),
                                versionOr(ofTrainer ? 2 : 1));
  if ((said != 1 && said != 2) || (version && *version != said))
    settings.fail(configKey(settings, "version"),
                  "expected " +
                      (version ? std::to_string(*version) : "1 or 2") +
                      ", found " + Twine(said));
  if (version)
    reader.version = said;
  else if (said != 2)
    settings.fail(
        configKey(settings, "version"),
        "fsdp,version=1 reads and prices FSDP1, accelerate's where no "
        "version is said");
  SoftwareReading reading;
  assert(model && "sizes come before a file");
  reading.shape = *model;
  if (ofTrainer)
    reader.readTrainer(settings, reading);
  else
    reader.readAccelerate(settings, reading);
  reader.readSharding(settings, reading,
                      ofTrainer ? legacyStrategy(settings) : nullptr);
  reader.readConfig(settings, reading);
  for (const std::string &other : settings.others()) {
    bool ofConfig = StringRef(other).starts_with("fsdp_config.");
    // A script's own arguments stand among those of the Trainer.
    if (ofTrainer && !ofConfig)
      reading.passed.push_back(other);
    else
      settings.fail(other, "not known: whether it changes time or memory "
                           "cannot be told");
  }
  if (Error error = settings.finish())
    return error;
  reading.configuration.blocks =
      Configuration::evenBlocks(reading.shape.layers, 1);
  if (Error error = reading.configuration.check(reading.shape))
    return makeError(fileName + ": " + toString(std::move(error)));
  return reading;
}

} // namespace

std::unique_ptr<Target> makeFsdpTarget() { return std::make_unique<Fsdp>(); }

} // namespace galvatron
