//===- FsdpReading.cpp - Files of accelerate and the Trainer --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fsdp.h"
#include "Targets.h"

#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace galvatron {

static std::string strategyNames() {
  std::vector<std::string> names;
  for (const FsdpStrategy &strategy : kFsdpStrategies)
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
/// Keys of `fsdp_config` that are passed over, without a prefix.
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

/// The key in `fsdp_config`, whose keys have a prefix or none.
static std::string configKey(const Settings &settings, StringRef key) {
  std::string prefixed = ("fsdp_config.fsdp_" + key).str();
  return settings.has(prefixed) ? prefixed : ("fsdp_config." + key).str();
}

/// Returns the devices of a node.
int64_t Fsdp::readAccelerate(Settings &settings,
                             SoftwareReading &reading) const {
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
  configuration.context = settings.count(mesh + "cp_size", 1);
  settings.expect(mesh + "sp_size", {"1"}, "others are not priced");
  settings.expect(mesh + "cp_backend", {"torch"}, "others are not priced");
  settings.expect(mesh + "cp_comm_strategy", {"allgather"},
                  "others are not priced");
  settings.text(mesh + "sp_backend");
  const int64_t beside = configuration.tensor * configuration.context;
  bool meshed = replicas * shards * beside > 1;
  if (!meshed)
    shards = reading.devices;
  else if (replicas * shards * beside != reading.devices)
    settings.fail("num_processes", "expected the product of the mesh, " +
                                       Twine(replicas * shards * beside) +
                                       ", found " + Twine(reading.devices));
  if (meshed && shards == 1 && (replicas > 1 || configuration.context == 1))
    settings.fail(mesh + "dp_shard_size",
                  "expected at least 2: FSDP2 has no other replicas, and "
                  "tensor parallelism wants shards");
  configuration.data = std::max<int64_t>(replicas * shards, 1);
  configuration.shardGroup = meshed && replicas > 1 ? shards : 0;
  const int64_t samples =
      priced ? priced->configuration.microBatch : microBatch;
  const int64_t passes =
      priced ? priced->configuration.microBatches() : accumulation;
  configuration.microBatch = samples;
  if (!samples)
    settings.fail("num_processes",
                  "accelerate's file says no batch: expected micro-batch=N, "
                  "samples of a pass on one device, and accumulation=N in "
                  "--from=fsdp");
  configuration.batch =
      configuration.data * samples * std::max<int64_t>(passes, 1);
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
  return reading.devices / std::max<int64_t>(machines, 1);
}

/// Returns the devices of a node; 0: nothing says how many nodes there are.
int64_t Fsdp::readTrainer(Settings &settings, SoftwareReading &reading) const {
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
  const int64_t count = priced ? priced->configuration.devices() : devices;
  const int64_t machines = priced ? priced->nodes : nodes;
  reading.devices = count;
  if (!count)
    settings.fail("fsdp", "the Trainer's arguments do not say on how many "
                          "devices: expected devices=N in --from=fsdp");
  configuration.data = std::max<int64_t>(count, 1);
  configuration.microBatch = settings.count("per_device_train_batch_size", 8);
  configuration.batch = configuration.data * configuration.microBatch *
                        settings.count("gradient_accumulation_steps", 1);
  if (microBatch || accumulation)
    settings.fail("per_device_train_batch_size",
                  "the file says the batch: expected neither micro-batch nor "
                  "accumulation in --from=fsdp");
  return machines ? count / machines : 0;
}

/// The strategy among words of the Trainer's old `fsdp`; null: none is named.
/// Words that price otherwise fail.
static const FsdpStrategy *legacyStrategy(Settings &settings) {
  StringRef text = settings.text("fsdp");
  const FsdpStrategy *found = nullptr;
  if (text.equals_insensitive("true"))
    return found;
  SmallVector<StringRef, 4> words;
  text.split(words, text.contains(',') ? ',' : ' ', -1, /*KeepEmpty=*/false);
  if (words.empty() || text.equals_insensitive("false"))
    settings.fail("fsdp", "expected true: without FSDP nothing is priced");
  for (StringRef entry : words) {
    if (entry == "auto_wrap")
      continue;
    const FsdpStrategy *strategy =
        find_if(kFsdpStrategies, [&](const FsdpStrategy &other) {
          return entry.equals_insensitive(other.name);
        });
    if (strategy == std::end(kFsdpStrategies))
      settings.fail("fsdp",
                    "expected true, or auto_wrap and a strategy, found '" +
                        entry + "', which is not priced");
    else
      found = strategy;
  }
  return found;
}

void Fsdp::readSharding(Settings &settings, SoftwareReading &reading,
                        const FsdpStrategy *legacy, int64_t ofNode) const {
  Configuration &configuration = reading.configuration;
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
    const FsdpStrategy *strategy =
        find_if(kFsdpStrategies, [&](const FsdpStrategy &other) {
          return wanted.equals_insensitive(other.name);
        });
    if (strategy == std::end(kFsdpStrategies)) {
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
  if (configuration.sharing() == 1)
    configuration.sharding = Sharding::None;
  if (configuration.shards() == configuration.sharing())
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
  if (priced && ofTrainer != trainer)
    return makeError(fileName + ": expected " +
                     (trainer ? "the Trainer's arguments, as files=trainer says"
                              : "accelerate's file, with distributed_type; "
                                "fsdp,files=trainer writes arguments"));
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
  int64_t ofNode = ofTrainer ? reader.readTrainer(settings, reading)
                             : reader.readAccelerate(settings, reading);
  reader.readSharding(settings, reading,
                      ofTrainer ? legacyStrategy(settings) : nullptr, ofNode);
  reader.readConfig(settings, reading);
  for (const std::string &other : settings.others()) {
    if (StringRef(other).starts_with("fp8_config."))
      settings.fail(other, "products in 8 bits are not priced");
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
  return checkedReading(std::move(reading), fileName);
}

} // namespace galvatron
