//===- DeepSpeed.cpp - DeepSpeed's ZeRO -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The JSON that DeepSpeed takes (deepspeed/runtime/config.py, zero/config.py of
// August 2026): stages of ZeRO, batch sizes, buckets, AutoTP. Pipelines are in
// a training script's code and recomputation is its own: the script's arguments
// say the latter, here the Trainer's.
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

/// Stages of ZeRO by their number.
constexpr Sharding kStages[] = {Sharding::None, Sharding::Optimizer,
                                Sharding::Gradients, Sharding::Parameters};

constexpr StringLiteral kBatch = "train_batch_size",
                        kMicroBatch = "train_micro_batch_size_per_gpu",
                        kAccumulation = "gradient_accumulation_steps",
                        kSequence = "sequence_parallel_size",
                        kSequenceType = "seq_parallel_communication_data_type";

/// Keys that change time or memory where they have another value than these;
/// the first one is DeepSpeed's default.
struct Unpriced {
  StringLiteral key;
  StringLiteral value, other;
};
constexpr Unpriced kUnpriced[] = {
    {"zero_optimization.offload_optimizer.device", "none", "none"},
    {"zero_optimization.offload_param.device", "none", "none"},
    {"zero_optimization.cpu_offload", "false", "false"},
    {"zero_optimization.contiguous_gradients", "true", "true"},
    {"zero_optimization.reduce_scatter", "true", "true"},
    {"zero_optimization.allgather_partitions", "true", "true"},
    {"zero_optimization.zero_hpz_partition_size", "1", "1"},
    {"zero_optimization.zero_quantized_weights", "false", "false"},
    {"zero_optimization.zero_quantized_gradients", "false", "false"},
    {"zero_optimization.zero_quantized_nontrainable_weights", "false", "false"},
    {"zero_optimization.mics_shard_size", "-1", "-1"},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", "false",
     "false"},
    {"zero_optimization.stage3_allgather_sequential", "false", "false"},
    {"activation_checkpointing.partition_activations", "false", "false"},
    {"activation_checkpointing.cpu_checkpointing", "false", "false"},
    {"data_types.grad_accum_dtype", "bf16", "fp16"},
    {"data_types.param_dtype", "bf16", "fp16"},
    {"communication_data_type", "bf16", "fp16"},
    {"bf16.bf16_master_weights_and_grads", "false", "false"},
    {"bf16.bf16_optimizer_states", "false", "false"},
    {"fp16.fp16_master_weights_and_grads", "false", "false"},
    {"torch_autocast.enabled", "false", "false"},
    {"amp.enabled", "false", "false"},
    {"elasticity.enabled", "false", "false"},
    {"compile.deepcompile", "false", "false"},
    {"managed_gradient_accumulation", "true", "true"},
    {"optimizer.type", "AdamW", "Adam"},
};

/// Beginnings of keys that no step's time or memory depends on.
constexpr StringLiteral kPassed[] = {
    "optimizer.params.",
    "scheduler.",
    "gradient_clipping",
    "steps_per_print",
    "wall_clock_breakdown",
    "memory_breakdown",
    "dump_state",
    "prescale_gradients",
    "gradient_predivide_factor",
    "seed",
    "fp16.",
    "bf16.",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "zero_optimization.sub_group_size",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.ignore_unused_parameters",
    "zero_optimization.elastic_checkpoint",
    "zero_optimization.load_from_fp32_weights",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.offload_optimizer.pin_memory",
    "zero_optimization.offload_param.pin_memory",
    "zero_optimization.offload_optimizer.nvme_path",
    "zero_optimization.offload_param.nvme_path",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.stage3_max_reuse_distance",
    "tensor_parallel.preset_model",
    "checkpoint.",
    "aio.",
    "flops_profiler.",
    "comms_logger.",
    "monitor_config.",
    "tensorboard.",
    "wandb.",
    "csv_monitor.",
    "dataloader_drop_last"};

/// Why positions are not exchanged for heads among so many ranks; empty: they
/// can be.
std::string exchangeRefusal(const ModelShape &shape, int64_t context,
                            int64_t tensor) {
  if (tensor > 1)
    return "expected no AutoTP beside it";
  if (shape.heads % context)
    return ("expected a divisor of the heads, " + Twine(shape.heads)).str();
  if (shape.keyHeads % context && context % shape.keyHeads)
    return ("expected a divisor or a multiple of the key heads, " +
            Twine(shape.keyHeads))
        .str();
  return "";
}

/// The environment by which the Trainer is asked for Ulysses: DeepSpeed's
/// launcher passes a file of it to other nodes.
std::string sequenceEnvironment(const Configuration &configuration) {
  return formatv("ACCELERATE_USE_PARALLELISM_CONFIG=true\n"
                 "PARALLELISM_CONFIG_DP_SHARD_SIZE={0}\n"
                 "PARALLELISM_CONFIG_SP_SIZE={1}\n"
                 "PARALLELISM_CONFIG_SP_BACKEND=deepspeed\n"
                 "PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE=true\n"
                 "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION=sdpa\n",
                 configuration.data, configuration.context);
}

class DeepSpeed final : public Target {
public:
  StringRef name() const override { return "deepspeed"; }
  std::string description() const override {
    return "DeepSpeed of August 2026: ZeRO, AutoTP, Ulysses";
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

  std::vector<PlanKey> planKeys() const override {
    return {{kBatch.str(), ""},
            {kMicroBatch.str(), ""},
            {kAccumulation.str(), "1"},
            {"zero_optimization.stage", "0"},
            {"zero_optimization.overlap_comm", ""},
            {"zero_optimization.reduce_bucket_size", "500000000"},
            {"zero_optimization.stage3_prefetch_bucket_size", "50000000"},
            {"zero_optimization.stage3_max_live_parameters", "1000000000"},
            {"bf16.enabled", "false"},
            {"fp16.enabled", "false"},
            {"tensor_parallel.autotp_size", "1"},
            {kSequence.str(), "1"},
            {kSequenceType.str(), "fp32"}};
  }

private:
  void readBatch(Settings &settings, SoftwareReading &reading) const;
  void readZero(Settings &settings, SoftwareReading &reading) const;
  int64_t filled(Settings &settings, StringRef key, int64_t given,
                 StringRef option) const;

  bool overlapComm = true, compile = false, ulysses = true;
  /// Elements, as DeepSpeed's defaults have them.
  int64_t bucket = 500'000'000, prefetch = 50'000'000, live = 1'000'000'000;
  /// Values of `--from` alone: what files do not say, and "auto".
  bool checkpointing = false;
  int64_t microBatch = 0, accumulation = 0, devices = 0;
};

Error DeepSpeed::setOption(StringRef option, StringRef value) {
  std::vector<std::string> known;
  for (auto [name, member] :
       {std::pair<StringRef, bool *>("overlap-comm", &overlapComm),
        {"compile", &compile},
        {"ulysses", &ulysses},
        {"checkpointing", &checkpointing}}) {
    known.push_back(name.str());
    if (option != name)
      continue;
    if (value != "on" && value != "off")
      return makeError("option '" + option +
                       "' of deepspeed: expected 'on' or 'off', found '" +
                       value + "'");
    *member = value == "on";
    return Error::success();
  }
  for (auto [name, member, least] :
       {std::tuple<StringRef, int64_t *, int64_t>("bucket", &bucket, 1),
        {"prefetch", &prefetch, 0},
        {"live", &live, 0},
        {"micro-batch", &microBatch, 1},
        {"accumulation", &accumulation, 1},
        {"devices", &devices, 1}}) {
    known.push_back(name.str());
    if (option != name)
      continue;
    return readCount(this->name(), option, value, least, int64_t(1) << 40,
                     *member);
  }
  return makeError("unknown option '" + option + "' of deepspeed, expected " +
                   join(known, ", ") + didYouMean(option, known));
}

Execution DeepSpeed::execution() const {
  Execution execution = cantFail(Execution::named("deepspeed-zero"));
  execution.overlaps = overlapComm;
  execution.fusesNorms = compile;
  execution.bucketElements = bucket;
  execution.prefetchElements = prefetch;
  execution.liveElements = live;
  return execution;
}

Error DeepSpeed::visit(const ModelShape &shape, const Cluster &cluster,
                       int64_t batch,
                       function_ref<void(const Configuration &)> visit) const {
  for (auto [option, given] : {std::pair("micro-batch", microBatch > 0),
                               {"accumulation", accumulation > 0},
                               {"devices", devices > 0},
                               {"checkpointing", checkpointing}})
    if (given)
      return makeError(
          Twine("deepspeed: option '") + option +
          "' is of --from, whose files do not say it; here it is answered");
  DegreeLimits limits;
  limits.stages = false;
  limits.tensor = [&](int64_t tensor) { return shape.hidden % tensor == 0; };
  if (ulysses)
    limits.context = [&](int64_t context, int64_t tensor) {
      return exchangeRefusal(shape, context, tensor).empty() &&
             canCutPositions(shape, context, tensor);
    };
  visitDegrees(
      shape, cluster.deviceCount(), batch, limits, [&](Configuration degrees) {
        degrees.blocks = Configuration::evenBlocks(shape.layers, 1);
        for (Recompute recompute : {Recompute::None, Recompute::Full}) {
          degrees.recompute = recompute;
          for (Sharding stage : kStages) {
            degrees.sharding = stage;
            // There is nothing to cut on one rank.
            if (stage == Sharding::None || degrees.sharing() > 1)
              visit(degrees);
          }
        }
      });
  return Error::success();
}

std::vector<LaunchFile> DeepSpeed::write(const ModelShape &,
                                         const Configuration &configuration,
                                         const Cluster &cluster) const {
  bool bf16 = cantFail(halfTypeOf(cluster)) == "bf16";
  const int64_t stage = find(kStages, configuration.sharding) - kStages;
  json::Object zero{{"stage", stage},
                    {"overlap_comm", overlapComm},
                    {"contiguous_gradients", true},
                    {"reduce_scatter", true},
                    {"reduce_bucket_size", bucket},
                    {"allgather_bucket_size", 500'000'000}};
  if (stage == 3) {
    zero["stage3_prefetch_bucket_size"] = prefetch;
    zero["stage3_max_live_parameters"] = live;
    zero["stage3_gather_16bit_weights_on_model_save"] = true;
  }
  json::Object file{{kBatch, configuration.batch},
                    {kMicroBatch, configuration.microBatch},
                    {kAccumulation, configuration.microBatches()},
                    {bf16 ? "bf16" : "fp16", json::Object{{"enabled", true}}},
                    {"zero_optimization", std::move(zero)}};
  if (configuration.tensor > 1)
    file["tensor_parallel"] =
        json::Object{{"autotp_size", configuration.tensor}};
  std::string environment;
  if (configuration.context > 1) {
    file[kSequence] = configuration.context;
    // f32 unless it is said.
    file[kSequenceType] = bf16 ? "bf16" : "fp16";
    environment = "set -a\nsource \"$FOLDER/ulysses.env\"\nset +a\n"
                  "export DS_ENV_FILE=\"$FOLDER/ulysses.env\"\n";
  }
  const int64_t nodes = cluster.nodeCount();
  std::string arguments;
  if (configuration.recompute == Recompute::Full)
    arguments += " \\\n  --gradient_checkpointing true";
  if (compile)
    arguments += " \\\n  --torch_compile true";
  std::string script = formatv(
      R"script(#!/usr/bin/env bash
# {0}:
# {1} on {2}. Run it on one node.
#
# To be set: SCRIPT, a training script that takes the Trainer's arguments{3}.
# Master weights and moments are f32, gradients and their sums 16 bits.
set -euo pipefail
FOLDER=$(cd "$(dirname "$0")" && pwd)
{10}exec deepspeed {4}--num_gpus {5} \
  "${{SCRIPT:?}" --deepspeed "$FOLDER/deepspeed.json" --{6} true \
  --per_device_train_batch_size {7} --gradient_accumulation_steps {8}{9} "$@"
)script",
      description(), configuration.str(), cluster.name(),
      nodes > 1 ? ", and\n# HOSTFILE, DeepSpeed's list of nodes" : "",
      nodes > 1
          ? formatv("--hostfile \"${{HOSTFILE:?}\" --num_nodes {0} ", nodes)
                .str()
          : "",
      cluster.deviceCount() / nodes, bf16 ? "bf16" : "fp16",
      configuration.microBatch, configuration.microBatches(), arguments,
      environment);
  std::vector<LaunchFile> files = {
      {"deepspeed.json", formatv("{0:2}\n", json::Value(std::move(file))).str(),
       false},
      {"deepspeed.sh", std::move(script), true}};
  if (configuration.context > 1)
    files.push_back({"ulysses.env", sequenceEnvironment(configuration), false});
  return files;
}

/// A count of the file; of "auto" or of none what the option says, 0 if it says
/// nothing. Fails where both say something else.
int64_t DeepSpeed::filled(Settings &settings, StringRef key, int64_t given,
                          StringRef option) const {
  if (settings.text(key) == "auto") {
    if (!given)
      settings.fail(key, "'auto' is a number of the Trainer's arguments: "
                         "expected " +
                             option + "=N in --from=deepspeed");
    return given;
  }
  if (!settings.has(key))
    return given;
  int64_t found = settings.count(key, 0);
  if (given && given != found)
    settings.fail(key, "expected " + Twine(given) + ", as " + option +
                           " says, found " + Twine(found));
  return found;
}

void DeepSpeed::readBatch(Settings &settings, SoftwareReading &reading) const {
  Configuration &configuration = reading.configuration;
  const int64_t tensor =
      std::max<int64_t>(settings.count("tensor_parallel.autotp_size", 1), 1);
  configuration.tensor = tensor;
  const int64_t context = std::max<int64_t>(settings.count(kSequence, 1), 1);
  configuration.context = context;
  if (std::string why = exchangeRefusal(reading.shape, context, tensor);
      context > 1 && !why.empty())
    settings.fail(kSequence, why + ", found " + Twine(context));
  if (StringRef type = settings.text(kSequenceType);
      context > 1 && type != "bf16" && type != "fp16")
    settings.fail(kSequenceType,
                  "expected bf16 or fp16: beside " + kSequence +
                      " gradients are summed in f32 by default, which is not "
                      "priced");
  int64_t samples = filled(settings, kMicroBatch, microBatch, "micro-batch");
  int64_t steps = filled(settings, kAccumulation, accumulation, "accumulation");
  int64_t batch = 0;
  if (settings.text(kBatch) != "auto")
    batch = settings.count(kBatch, 0);
  int64_t data = devices / (tensor * context);
  if (devices % (tensor * context))
    settings.fail(tensor > 1 ? "tensor_parallel.autotp_size" : kSequence,
                  "expected a divisor of the devices, " + Twine(devices));
  // batch = samples * steps * data: what is missing follows, and without
  // devices steps are 1 where nothing says them.
  if (!steps && !(batch && samples && data))
    steps = 1;
  if (!data && batch && samples && batch % (samples * steps) == 0)
    data = batch / (samples * steps);
  if (!data) {
    settings.fail(kBatch, "expected it beside " + kMicroBatch + " and " +
                              kAccumulation +
                              ", as their quotient is the replicas, or "
                              "devices=N in --from=deepspeed");
    return;
  }
  if (!steps)
    steps = std::max<int64_t>(batch / (samples * data), 1);
  if (!samples && batch)
    samples = batch / (steps * data);
  if (samples < 1) {
    settings.fail(kMicroBatch, "missing");
    return;
  }
  if (batch && batch != samples * steps * data)
    settings.fail(kBatch, "expected " + kMicroBatch + " times " +
                              kAccumulation + " times replicas, " +
                              Twine(samples * steps * data) + ", found " +
                              Twine(batch));
  configuration.data = data;
  configuration.microBatch = samples;
  configuration.batch = samples * steps * data;
  reading.devices = data * tensor * context;
}

void DeepSpeed::readZero(Settings &settings, SoftwareReading &reading) const {
  Configuration &configuration = reading.configuration;
  int64_t stage = settings.count("zero_optimization.stage", 0);
  if (stage < 0 || stage > 3) {
    settings.fail("zero_optimization.stage",
                  "expected 0 to 3, found " + Twine(stage));
    return;
  }
  if (configuration.sharing() > 1)
    configuration.sharding = kStages[stage];
  StringRef overlap = "zero_optimization.overlap_comm";
  if (stage > 0 && settings.flag(overlap, stage == 3) != overlapComm)
    settings.fail(overlap,
                  overlapComm
                      ? "without it sums and computation take turns, which "
                        "deepspeed,overlap-comm=off prices"
                      : "expected false beside overlap-comm=off");
  settings.text(overlap);
  // "auto" is what transformers' integration makes of the hidden size.
  const int64_t square = reading.shape.hidden * reading.shape.hidden;
  // All options that are missing, and the first one's key.
  std::string missing, missingKey, found;
  auto elements = [&](StringRef key, int64_t expected, int64_t byHidden,
                      int64_t absent, StringRef option) {
    std::string whole = ("zero_optimization." + key).str();
    bool isAuto = settings.text(whole) == "auto";
    // Exponents are usual here: 5e8.
    double number = double(absent);
    if (isAuto)
      number = double(byHidden);
    else if (settings.has(whole) && settings.text(whole).getAsDouble(number))
      settings.fail(whole, "expected a count of elements, found '" +
                               settings.text(whole) + "'");
    if (int64_t(number) == expected)
      return;
    if (missing.empty()) {
      missingKey = whole;
      found = std::to_string(int64_t(number));
    }
    missing += formatv(",{0}={1}", option, int64_t(number));
  };
  elements("reduce_bucket_size", bucket, square, 500'000'000, "bucket");
  if (stage == 3) {
    elements("stage3_prefetch_bucket_size", prefetch, square * 9 / 10,
             50'000'000, "prefetch");
    elements("stage3_max_live_parameters", live, 0, 1'000'000'000, "live");
  } else {
    settings.text("zero_optimization.stage3_prefetch_bucket_size");
    settings.text("zero_optimization.stage3_max_live_parameters");
  }
  if (!missing.empty())
    settings.fail(missingKey, "it is " + found +
                                  " elements of memory: deepspeed" + missing +
                                  " prices it");
  StringRef threshold = "zero_optimization.stage3_param_persistence_threshold";
  double persistent = 0;
  if (StringRef text = settings.text(threshold);
      !text.empty() && text != "auto" &&
      (text.getAsDouble(persistent) || persistent >= double(square)))
    settings.fail(threshold, "expected less than a matrix has, " +
                                 Twine(square) + ", found '" + text + "'");
}

Expected<SoftwareReading> DeepSpeed::read(StringRef text,
                                          StringRef fileName) const {
  Expected<Settings> parsed = Settings::parseNested(text, fileName);
  if (!parsed)
    return parsed.takeError();
  Settings &settings = *parsed;
  SoftwareReading reading;
  assert(model && "sizes come before a file");
  reading.shape = *model;
  for (const Unpriced &entry : kUnpriced) {
    if (entry.value == entry.other)
      settings.expect(entry.key, {entry.value},
                      "it changes time or memory and is not priced");
    else
      settings.expect(entry.key, {entry.value, entry.other},
                      "it changes time or memory and is not priced");
  }
  // Either type takes as many bytes; which the Trainer's arguments say it is
  // decides the devices.
  bool half = false;
  for (StringRef type : {"bf16.enabled", "fp16.enabled"}) {
    bool isAuto = settings.text(type) == "auto";
    if (isAuto)
      reading.unread.push_back((type + " (auto: taken as 16 bits)").str());
    half |= isAuto || settings.flag(type, false);
  }
  if (!half)
    settings.fail("bf16.enabled", "expected bf16 or fp16: without it products "
                                  "are in f32, not priced");
  readBatch(settings, reading);
  readZero(settings, reading);
  // A filled file's script says it.
  reading.configuration.recompute = priced ? priced->configuration.recompute
                                    : checkpointing ? Recompute::Full
                                                    : Recompute::None;
  for (const std::string &other : settings.others()) {
    if (any_of(kPassed, [&](StringRef key) {
          return other == key ||
                 (key.ends_with(".") && StringRef(other).starts_with(key));
        }))
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

} // namespace

std::unique_ptr<Target> makeDeepSpeedTarget() {
  return std::make_unique<DeepSpeed>();
}

} // namespace galvatron
