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

#include "Fsdp.h"
#include "Targets.h"

#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;

namespace galvatron {

/// Bytes kept of a logit by transformers' ForCausalLMLoss: the 16-bit output,
/// its log-softmax in f32 and, in the backward pass, the gradient of that.
constexpr int64_t kLogitBytes = 10;

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
    return readCount(this->name(), option, value, 1, int64_t(1) << 30, *member);
  }
  return makeError("unknown option '" + option + "' of fsdp, expected " +
                   join(known, ", ") + didYouMean(option, known));
}

Execution Fsdp::execution() const {
  Execution execution = cantFail(Execution::named("fms-fsdp"));
  execution.fusesNorms = compile;
  execution.logitBytes = kLogitBytes;
  execution.gathersLogits = true;
  execution.contextWay = ContextWay::Gather; // accelerate's default
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
  // The mesh is accelerate's, of FSDP2.
  const bool meshed = !trainer && versionOr(2) == 2;
  DegreeLimits limits;
  limits.stages = false;
  limits.tensor = [&](int64_t tensor) {
    return tensor == 1 || (meshed && shape.vocabulary % tensor == 0);
  };
  if (meshed)
    limits.context = [&](int64_t context, int64_t tensor) {
      return canCutPositions(shape, context, tensor);
    };
  visitDegrees(shape, count, batch, limits, [&](Configuration degrees) {
    degrees.blocks = Configuration::evenBlocks(shape.layers, 1);
    for (Recompute recompute : {Recompute::None, Recompute::Full}) {
      degrees.recompute = recompute;
      visitStates(degrees, count / cluster.nodeCount(), visit);
    }
  });
  return Error::success();
}

void Fsdp::visitStates(const Configuration &base, int64_t ofNode,
                       function_ref<void(const Configuration &)> visit) const {
  Configuration configuration = base;
  bool first = versionOr(2) == 1;
  if (base.sharing() == 1) {
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
      // Ranks with parts of the same samples are shards, too.
      bool single = shards == 1 && !(all && base.context > 1);
      if (single || (!all && !group))
        continue;
      configuration.shardGroup = all ? 0 : shards;
      visit(configuration);
    }
  }
}

/// The strategy of FSDP1 that a configuration is.
static StringRef strategyOf(const Configuration &configuration) {
  for (const FsdpStrategy &strategy : kFsdpStrategies)
    if (strategy.sharding == configuration.sharding &&
        strategy.hybrid == (configuration.shardGroup > 0))
      return strategy.name;
  return "NO_SHARD";
}

static StringRef word(bool value) { return value ? "true" : "false"; }

static bool usesBf16(const Cluster &cluster) {
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
  if (configuration.tensor > 1 || configuration.context > 1 ||
      (second && configuration.shardGroup)) {
    const int64_t shards =
        std::max<int64_t>(configuration.shards() / configuration.context, 1);
    add("parallelism_config:");
    add("  parallelism_config_dp_replicate_size: " +
        Twine(configuration.data / shards));
    add("  parallelism_config_dp_shard_size: " + Twine(shards));
    add("  parallelism_config_tp_size: " + Twine(configuration.tensor));
    if (configuration.context > 1) {
      add("  parallelism_config_cp_size: " + Twine(configuration.context));
      add("  parallelism_config_cp_comm_strategy: allgather");
    }
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
  if (configuration.context > 1)
    notes += "# Its model is loaded with attn_implementation=\"sdpa\".\n";
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
        {"bf16", "false"},
        {"fp16", "false"},
        {"torch_compile", "false"},
        {"fsdp_config.version", "2"},
        {"fsdp_config.reshard_after_forward", second ? "true" : "full_shard"},
        {"fsdp_config.activation_checkpointing", "false"}};
  const std::string mesh = "parallelism_config.parallelism_config_";
  std::vector<PlanKey> keys = {
      {"num_machines", "1"},
      {"num_processes", ""},
      {"mixed_precision", ""},
      {"fsdp_config.fsdp_version", "1"},
      {"fsdp_config.fsdp_activation_checkpointing", "false"}};
  if (!second) {
    keys.push_back({"fsdp_config.fsdp_sharding_strategy", "FULL_SHARD"});
    return keys;
  }
  keys.push_back({"fsdp_config.fsdp_reshard_after_forward", "true"});
  for (const char *size :
       {"dp_replicate_size", "dp_shard_size", "tp_size", "cp_size"})
    keys.push_back({mesh + size, "1"});
  keys.push_back({mesh + "cp_comm_strategy", "allgather"});
  return keys;
}

std::unique_ptr<Target> makeFsdpTarget() { return std::make_unique<Fsdp>(); }

} // namespace galvatron
