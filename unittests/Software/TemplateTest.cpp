//===- TemplateTest.cpp - Plans in present files --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Target.h"

#include "gtest/gtest.h"

#include <random>

using namespace galvatron;

namespace {

using TargetOptions = std::vector<std::pair<std::string, std::string>>;

std::unique_ptr<Target> targetOf(const std::string &name,
                                 TargetOptions options = {}) {
  SoftwareRequest request{false, name, std::move(options)};
  return llvm::cantFail(TargetRegistry::make(request));
}

/// Llama 3.2 1B, which torchtitan's registry has.
ModelShape oneBillion() {
  ModelShape shape;
  shape.layers = 16;
  shape.hidden = 2048;
  shape.heads = 32;
  shape.keyHeads = 8;
  shape.headWidth = 64;
  shape.inner = 8192;
  shape.vocabulary = 128256;
  shape.tokens = shape.positions = 4096;
  shape.gated = shape.tied = true;
  shape.rotaryBase = 500000;
  return shape;
}

/// The options that hold what a software's files leave out of a plan.
TargetOptions unsaid(const std::string &name, const TargetOptions &options,
                     const Configuration &plan) {
  TargetOptions more = options;
  if (name == "deepspeed" && plan.recompute == Recompute::Full)
    more.push_back({"checkpointing", "on"});
  if (name != "fsdp")
    return more;
  if (options.front().second == "trainer") {
    more.push_back({"devices", std::to_string(plan.devices())});
    more.push_back({"nodes", "2"});
  } else {
    more.push_back({"micro-batch", std::to_string(plan.microBatch)});
    more.push_back({"accumulation", std::to_string(plan.microBatches())});
  }
  return more;
}

/// What the shell would take for its own is quoted, and an integer expression
/// goes whole.
TEST(Template, WritesWordsOfTheShell) {
  Cluster cluster = llvm::cantFail(Cluster::builtin("8xh100"));
  const ModelShape shape = oneBillion();
  Configuration plan;
  plan.batch = 16;
  plan.tensor = 2;
  plan.pipeline = 4;
  plan.blocks = {5, 4, 4, 3};
  auto target = targetOf("megatron");
  const std::string written =
      target->write(shape, plan, cluster).front().content;
  const std::string present =
      "PP=2\nARGUMENTS=(\n  --pipeline-model-parallel-size $PP\n"
      "  --num-layers-per-virtual-pipeline-stage $((16 / $PP / (2 + 2)))\n"
      "  --micro-batch-size $((4 / $PP)) --lr 3e-4\n)\n"
      "torchrun --nproc-per-node 8 pretrain_gpt.py \"${ARGUMENTS[@]}\"\n";
  const std::string filled =
      llvm::cantFail(fillTemplate(*target, present, "run.sh", written));
  EXPECT_NE(filled.find("--micro-batch-size 1 "), std::string::npos) << filled;
  EXPECT_NE(filled.find("--pipeline-model-parallel-layout "
                        "'Et*5|t*4|t*4|t*3L'"),
            std::string::npos)
      << filled;
  EXPECT_EQ(filled.find("$(("), std::string::npos) << filled;
  EXPECT_EQ(filled.find("2 + 2"), std::string::npos) << filled;
}

/// A file of one plan becomes that of another one, and its own stays as it is.
TEST(Template, TakesEveryPlan) {
  std::mt19937 random(3);
  Cluster cluster = llvm::cantFail(Cluster::builtin("2x8xh100"));
  const ModelShape shape = oneBillion();
  int compared = 0;
  for (auto [name, options] :
       std::vector<std::pair<std::string, TargetOptions>>{
           {"megatron", {}},
           {"torchtitan", {}},
           {"fsdp", {{"files", "accelerate"}, {"version", "1"}}},
           {"fsdp", {{"files", "accelerate"}, {"version", "2"}}},
           {"fsdp", {{"files", "trainer"}, {"version", "1"}}},
           {"fsdp", {{"files", "trainer"}, {"version", "2"}}},
           {"deepspeed", {}},
           {"nanotron", {}}}) {
    auto target = targetOf(name, options);
    std::vector<Configuration> plans;
    llvm::cantFail(
        target->visit(shape, cluster, 32, [&](const Configuration &plan) {
          plans.push_back(plan);
        }));
    for (int i = 0; i < 60; ++i) {
      const Configuration &from = plans[random() % plans.size()];
      const Configuration &to = plans[random() % plans.size()];
      std::string present = target->write(shape, from, cluster).front().content;
      std::string written = target->write(shape, to, cluster).front().content;
      EXPECT_EQ(
          llvm::cantFail(fillTemplate(*target, present, "present", present)),
          present);
      llvm::Expected<std::string> filled =
          fillTemplate(*target, present, "present", written);
      ASSERT_TRUE(bool(filled))
          << llvm::toString(filled.takeError()) << name << "\n"
          << present << written;
      auto reader = targetOf(name, unsaid(name, options, to));
      reader->setModel(shape);
      llvm::Expected<SoftwareReading> reading = reader->read(*filled, "filled");
      ASSERT_TRUE(bool(reading)) << llvm::toString(reading.takeError()) << "\n"
                                 << *filled;
      EXPECT_EQ(reading->configuration, to)
          << to.str() << "\n"
          << reading->configuration.str() << "\n"
          << *filled;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 8 * 60);
}

TEST(Template, LeavesAllElseAsItIs) {
  auto fill = [](const std::string &name, const TargetOptions &options,
                 const std::string &present, const std::string &written) {
    return llvm::cantFail(
        fillTemplate(*targetOf(name, options), present, "present", written));
  };
  // An odd JSON file with what a plan does not say.
  EXPECT_EQ(fill("deepspeed", {},
                 "{ \"optimizer\": {\"type\": \"AdamW\",\n \"x\": [1, {}]},\n"
                 "  \"train_batch_size\"  : \"auto\",\n"
                 "  \"zero_optimization\": {\"stage\":3} }\n",
                 "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\""
                 ": 2, \"gradient_accumulation_steps\": 4, "
                 "\"zero_optimization\": {\"stage\": 2}, \"tensor_parallel\": "
                 "{\"autotp_size\": 2}}"),
            "{ \"optimizer\": {\"type\": \"AdamW\",\n \"x\": [1, {}]},\n"
            "  \"train_batch_size\"  : 64,\n"
            "  \"zero_optimization\": {\"stage\":2}, "
            "\"train_micro_batch_size_per_gpu\": 2, "
            "\"gradient_accumulation_steps\": 4, "
            "\"tensor_parallel\": {\"autotp_size\": 2} }\n");
  // YAML with comments; what is its default is not added.
  EXPECT_EQ(fill("fsdp", {{"version", "2"}},
                 "# mine\ndistributed_type: FSDP\nnum_processes: 4 # cards\n"
                 "fsdp_config:\n    # own indent\n    fsdp_version: 2\n\n"
                 "machine_rank: 0",
                 "num_machines: 1\nnum_processes: 8\nfsdp_config:\n"
                 "  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n"
                 "  fsdp_activation_checkpointing: true\n"
                 "parallelism_config:\n"
                 "  parallelism_config_dp_replicate_size: 1\n"
                 "  parallelism_config_dp_shard_size: 4\n"
                 "  parallelism_config_tp_size: 2\n"),
            "# mine\ndistributed_type: FSDP\nnum_processes: 8 # cards\n"
            "fsdp_config:\n    # own indent\n"
            "    fsdp_activation_checkpointing: true\n    fsdp_version: 2\n\n"
            "machine_rank: 0\n"
            "parallelism_config:\n"
            "  parallelism_config_tp_size: 2\n"
            "  parallelism_config_dp_shard_size: 4\n");
  // A script of one's own: values by equals signs, variables, lines that go on.
  EXPECT_EQ(fill("megatron", {},
                 "#!/bin/bash\nTP=4 # --micro-batch-size 9\n"
                 "torchrun --nproc_per_node=8 pretrain_gpt.py \\\n"
                 "  --tensor-model-parallel-size $TP --lr 1e-4 \\\n"
                 "  --sequence-parallel \\\n"
                 "  --micro-batch-size '1' --recompute-granularity full \\\n"
                 "  --global-batch-size=64\n",
                 "--nproc-per-node 8 --tensor-model-parallel-size 1 "
                 "--pipeline-model-parallel-size 2 --micro-batch-size 4 "
                 "--global-batch-size 64 --use-distributed-optimizer"),
            "#!/bin/bash\nTP=4 # --micro-batch-size 9\n"
            "torchrun --nproc_per_node=8 pretrain_gpt.py \\\n"
            "  --tensor-model-parallel-size 1 --lr 1e-4 \\\n"
            "  --micro-batch-size 4 --use-distributed-optimizer "
            "--pipeline-model-parallel-size 2 \\\n"
            "  --global-batch-size=64\n");
  // A function that does not know the class of recomputation.
  EXPECT_EQ(fill("torchtitan", {},
                 "def mine():\n    config = base()\n"
                 "    config.training.steps = 5  # few\n"
                 "    config.training.local_batch_size = 8\n"
                 "    return config\n",
                 "config.training.local_batch_size = 2\n"
                 "config.activation_checkpoint = FullAC.Config()\n"
                 "config.parallelism.fsdp_reshard_after_forward = \"always\"\n"
                 "    return config\n"),
            "def mine():\n    config = base()\n"
            "    config.training.steps = 5  # few\n"
            "    config.training.local_batch_size = 2\n"
            "    config.parallelism.fsdp_reshard_after_forward = \"always\"\n"
            "    from torchtitan.distributed.activation_checkpoint import "
            "FullAC, SelectiveAC\n"
            "    config.activation_checkpoint = FullAC.Config()\n"
            "    return config\n");
}

/// A filled file that starts something else than what was priced is refused.
TEST(Template, RefusesWhatContradictsThePrice) {
  Cluster cluster = llvm::cantFail(Cluster::builtin("2x8xh100"));
  const ModelShape shape = oneBillion();
  auto refusal = [&](const std::string &name, const TargetOptions &options,
                     const std::string &present,
                     llvm::StringRef more = "") -> std::string {
    auto target = targetOf(name, options);
    TargetAnswer answer =
        llvm::cantFail(findFastest(*target, shape, cluster, 32));
    std::string written =
        target->write(shape, answer.configuration, cluster).front().content;
    std::string start = present.empty() ? written : present;
    // More of the kind, behind what the target writes.
    if (size_t place = start.find(more.split('|').first);
        !more.empty() && place != std::string::npos)
      start.replace(place, more.split('|').first.size(),
                    more.split('|').second.str());
    llvm::Expected<std::string> filled =
        fillTemplate(*target, start, "mine", written);
    if (!filled)
      return llvm::toString(filled.takeError());
    llvm::Expected<std::vector<std::string>> unread = checkFilled(
        *target, *filled, "mine", {shape, answer.configuration, 2, "bf16"});
    return unread ? "" : llvm::toString(unread.takeError());
  };
  const TargetOptions accelerate = {{"files", "accelerate"}},
                      trainer = {{"files", "trainer"}};
  for (auto [name, options, present, more, message] :
       std::vector<std::tuple<std::string, TargetOptions, std::string,
                              std::string, std::string>>{
           {"megatron", {}, "", "", ""},
           {"torchtitan", {}, "", "", ""},
           {"fsdp", accelerate, "", "", ""},
           {"fsdp", trainer, "", "", ""},
           {"deepspeed", {}, "", "", ""},
           {"nanotron", {}, "", "", ""},
           // Products of another type.
           {"megatron",
            {},
            "",
            "--swiglu|--swiglu --fp8-format hybrid",
            "mine: flag --fp8-format changes time or memory and is not priced"},
           {"torchtitan",
            {},
            "",
            "config = llama3_8b()|config = "
            "llama3_8b_mxfp8()",
            "mine: 'llama3_8b_mxfp8' has products in 8 bits or less, or "
            "adapters, which are not priced"},
           {"fsdp", accelerate, "",
            "fsdp_config:|fp8_config:\n  backend: TE\nfsdp_config:",
            "mine: 'fp8_config.backend': products in 8 bits are not priced"},
           {"nanotron",
            {},
            "",
            "dtype: bfloat16|dtype: float32",
            "mine: 'model.dtype': expected bfloat16, found 'float32': other "
            "types are not priced"},
           // Offloading.
           {"megatron",
            {},
            "",
            "--swiglu|--swiglu --optimizer-cpu-offload",
            "mine: flag --optimizer-cpu-offload changes time or memory and is "
            "not priced"},
           {"torchtitan",
            {},
            "",
            "config.compile|config.training.enable_cpu_offload = True\n    "
            "config.compile",
            "mine: 'training.enable_cpu_offload': expected False, as others "
            "are not priced, found 'True'"},
           {"fsdp", accelerate, "",
            "fsdp_offload_params: false|fsdp_offload_params: true",
            "mine: 'fsdp_config.fsdp_offload_params': expected false, found "
            "'true': offloading is not priced"},
           {"deepspeed",
            {},
            "",
            "\"overlap_comm\"|\"offload_optimizer\": {\"device\": "
            "\"cpu\"}, \"overlap_comm\"",
            "mine: 'zero_optimization.offload_optimizer.device': expected "
            "none, found 'cpu': it changes time or memory and is not priced"},
           // Another model.
           {"megatron",
            {},
            "",
            "--num-layers 16|--num-layers 12",
            "mine: expected the model that was priced, with 16 layers, found "
            "12"},
           {"megatron",
            {},
            "",
            "--seq-length 4096|--seq-length 2048",
            "mine: expected the model that was priced, with 4096 tokens, "
            "found 2048"},
           {"torchtitan",
            {},
            "",
            "\"1B\"|\"8B\"",
            "mine: expected the model that was priced, with 16 layers, found "
            "32"},
           {"nanotron",
            {},
            "",
            "num_hidden_layers: 16|num_hidden_layers: 12",
            "mine: expected the model that was priced, with 16 layers, found "
            "12"},
           // Another plan that no key of the target undoes.
           {"megatron",
            {},
            "",
            "--swiglu|--swiglu "
            "--microbatch-group-size-per-virtual-pipeline-stage 3",
            "mine: flag --microbatch-group-size-per-virtual-pipeline-stage "
            "changes time or "
            "memory and is not priced"},
           // Another kind of file.
           {"fsdp", accelerate, "{\"fsdp\": true, \"fsdp_config\": {}}", "",
            "mine: expected accelerate's file, with distributed_type; "
            "fsdp,files=trainer writes arguments"},
           {"fsdp", trainer,
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n", "",
            "mine: expected the Trainer's arguments, as files=trainer says"},
           {"nanotron",
            {},
            "distributed_type: FSDP\nnum_processes: 8\n",
            "",
            "mine: expected a file of 'nanotron', found none of its keys that "
            "say a plan"},
           {"megatron",
            {},
            "accelerate launch --config_file x train.py\n",
            "",
            "mine: expected a file of 'megatron', found none of its keys that "
            "say a plan"}})
    EXPECT_EQ(refusal(name, options, present, more), message) << name;
}

/// Keys that are changed are told by name.
TEST(Template, TellsWhatIsChanged) {
  std::vector<std::string> changed;
  llvm::cantFail(fillTemplate(
      *targetOf("fsdp", {{"version", "2"}}),
      "distributed_type: FSDP\nmixed_precision: fp8\nnum_processes: 8\n"
      "fsdp_config:\n  fsdp_version: 2\n",
      "mine",
      "mixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n"
      "  fsdp_version: 2\n  fsdp_activation_checkpointing: true\n",
      &changed));
  EXPECT_EQ(changed, (std::vector<std::string>{
                         "mixed_precision fp8 -> bf16",
                         "fsdp_config.fsdp_activation_checkpointing true "
                         "added"}));
}

TEST(Template, SaysWhatHasNoPlace) {
  auto refusal = [](const std::string &name, const std::string &present,
                    const std::string &written) {
    llvm::Expected<std::string> none =
        fillTemplate(*targetOf(name), present, "present", written);
    return none ? "" : llvm::toString(none.takeError());
  };
  EXPECT_EQ(refusal("deepspeed", "{\"zero_optimization\": 3}",
                    "{\"zero_optimization\": {\"stage\": 2}}"),
            "present: 'zero_optimization': expected an object, found '3'");
  EXPECT_EQ(
      refusal("nanotron", "parallelism: {dp: 1}\n", "parallelism:\n  dp: 2\n"),
      "present: 'parallelism': expected a key a line below it");
  EXPECT_EQ(refusal("torchtitan", "x = 1\n",
                    "config.training.local_batch_size = 2\n"),
            "present: expected a function that ends with 'return'");
  EXPECT_EQ(refusal("torchtitan", "[model]\nflavor = \"8B\"\n",
                    "config.training.local_batch_size = 2\n"),
            "present: expected a function that ends with 'return', found "
            "sections of TOML, which are read and not filled");
  EXPECT_EQ(refusal("megatron", "", "--micro-batch-size 2"),
            "present: expected flags, found none");
  EXPECT_EQ(refusal("hetu-galvatron", "{}", "{}"),
            "'hetu-galvatron' fills no present files");
}

} // namespace
