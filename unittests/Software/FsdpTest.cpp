//===- FsdpTest.cpp - Files of accelerate and the Trainer -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Target.h"

#include "llvm/ADT/StringExtras.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

ModelShape fsdpShape() {
  ModelShape shape;
  shape.layers = 8;
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

std::unique_ptr<Target> fsdp(Options options) {
  SoftwareRequest request{false, "fsdp", std::move(options)};
  std::unique_ptr<Target> target =
      llvm::cantFail(TargetRegistry::make(request));
  target->setModel(fsdpShape());
  return target;
}

std::string fsdpRefusal(const Options &options, const std::string &text) {
  llvm::Expected<SoftwareReading> none = fsdp(options)->read(text, "run");
  return none ? "" : llvm::toString(none.takeError());
}

std::string accelerateText(const std::string &config,
                           const std::string &more = "") {
  return "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
         "fsdp_config:\n  fsdp_version: 2\n"
         "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n" +
         config + more;
}

/// Everything that can be expressed is written, and read back as the same.
TEST(Fsdp, WhatIsWrittenIsReadBack) {
  int compared = 0;
  for (std::string files : {"accelerate", "trainer"})
    for (std::string version : {"1", "2"})
      for (std::string on : {"off", "on"})
        for (llvm::StringRef name : {"8xh100", "2x8xv100-32gb", "1xh100"}) {
          const Options options = {{"files", files},
                                   {"version", version},
                                   {"sync-each-batch", on},
                                   {"compile", on}};
          auto target = fsdp(options);
          Cluster cluster = llvm::cantFail(Cluster::builtin(name));
          llvm::cantFail(target->visit(
              fsdpShape(), cluster, 32, [&](const Configuration &plan) {
                LaunchFile file =
                    target->write(fsdpShape(), plan, cluster).front();
                Options said = options;
                if (files == "accelerate") {
                  said.push_back(
                      {"micro-batch", std::to_string(plan.microBatch)});
                  said.push_back(
                      {"accumulation", std::to_string(plan.microBatches())});
                } else {
                  said.push_back(
                      {"devices", std::to_string(cluster.deviceCount())});
                  said.push_back(
                      {"nodes", std::to_string(cluster.nodeCount())});
                }
                llvm::Expected<SoftwareReading> reading =
                    fsdp(said)->read(file.content, "plan");
                ASSERT_TRUE(bool(reading))
                    << llvm::toString(reading.takeError()) << "\n"
                    << file.content;
                EXPECT_EQ(reading->configuration, plan)
                    << plan.str() << "\n"
                    << reading->configuration.str() << "\n"
                    << file.content;
                EXPECT_EQ(reading->shape, fsdpShape());
                EXPECT_EQ(reading->devices, cluster.deviceCount());
                ++compared;
              }));
        }
  EXPECT_GT(compared, 250);
}

/// What either version and either file can say, and nothing else.
TEST(Fsdp, ExpressesWhatItsFilesSay) {
  Cluster cluster = llvm::cantFail(Cluster::builtin("2x8xh100"));
  auto plansOf = [&](Options options) {
    std::string plans;
    llvm::cantFail(
        fsdp(options)->visit(fsdpShape(), cluster, 16, [&](const auto &plan) {
          if (plan.recompute == Recompute::None && plan.microBatch == 1)
            plans += plan.str() + "\n";
        }));
    return plans;
  };
  const std::string all = "pp1 m1 sdp16, 1 a micro-batch, parameters stay\n";
  EXPECT_EQ(plansOf({{"files", "trainer"}}),
            all + "pp1 m1 sdp16, 1 a micro-batch\n");
  EXPECT_EQ(plansOf({{"version", "1"}}),
            "pp1 m1 dp16, 1 a micro-batch\n"
            "pp1 m1 dp2.sdp8, 1 a micro-batch, parameters stay\n" +
                all +
                "pp1 m1 dp2.sdp8, 1 a micro-batch\n"
                "pp1 m1 sdp16, 1 a micro-batch\n");
  std::string mesh = plansOf({});
  EXPECT_NE(mesh.find("dp2.sdp4.tp2,"), std::string::npos) << mesh;
  EXPECT_NE(mesh.find("dp8.sdp2,"), std::string::npos) << mesh;
  // Tensor parallelism wants shards beside it.
  EXPECT_EQ(mesh.find(" dp8.tp2,"), std::string::npos) << mesh;
  EXPECT_EQ(mesh.find("tp16,"), std::string::npos) << mesh;
  EXPECT_EQ(llvm::toString(fsdp({{"devices", "8"}})
                               ->visit(fsdpShape(), cluster, 16,
                                       [](const Configuration &) {})),
            "fsdp: option 'devices' is of --from, whose files do not say it; "
            "here it is answered");
}

TEST(Fsdp, ReadsFilesAsPeopleWriteThem) {
  auto read = [](Options options, const std::string &text) {
    return llvm::cantFail(fsdp(std::move(options))->read(text, "run"));
  };
  // Ranks with parts of the same samples are shards, alone or beside others.
  SoftwareReading parts =
      read({{"micro-batch", "1"}},
           accelerateText("", "parallelism_config:\n"
                              "  parallelism_config_cp_size: 8\n"));
  EXPECT_EQ(parts.configuration.str(),
            "pp1 m1 sdp8, 1 a micro-batch, positions cut in 8");
  EXPECT_EQ(parts.configuration.data, 1);
  parts = read({{"micro-batch", "1"}},
               accelerateText("", "parallelism_config:\n"
                                  "  parallelism_config_dp_replicate_size: 2\n"
                                  "  parallelism_config_dp_shard_size: 2\n"
                                  "  parallelism_config_cp_size: 2\n"));
  EXPECT_EQ(parts.configuration.str(),
            "pp1 m1 dp2.sdp4, 1 a micro-batch, positions cut in 2");
  EXPECT_EQ(parts.configuration.batch, 4);
  // accelerate's own template of FSDP1, its words apart.
  SoftwareReading first =
      read({{"version", "1"}, {"micro-batch", "4"}, {"accumulation", "2"}},
           "# a comment\ndistributed_type: FSDP\nmixed_precision: 'bf16'\n"
           "num_processes: 2\nfsdp_config:\n"
           "  fsdp_activation_checkpointing: true\n"
           "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
           "  fsdp_backward_prefetch: BACKWARD_PRE\n"
           "  fsdp_cpu_ram_efficient_loading: true\n"
           "  fsdp_sharding_strategy: SHARD_GRAD_OP\n");
  EXPECT_EQ(first.configuration.str(),
            "pp1 m2 sdp2.ckpt, 4 a micro-batch, parameters stay");
  EXPECT_EQ(first.passed, std::vector<std::string>{
                              "fsdp_config.fsdp_cpu_ram_efficient_loading"});
  // The old words of the Trainer; FSDP2 and 8 samples are its defaults.
  SoftwareReading old = read({{"files", "trainer"}, {"devices", "4"}},
                             "{\"bf16\": true, \"learning_rate\": 1e-4, "
                             "\"fsdp\": \"shard_grad_op auto_wrap\"}");
  EXPECT_EQ(old.configuration.str(),
            "pp1 m1 sdp4, 8 a micro-batch, parameters stay");
  EXPECT_EQ(old.passed, std::vector<std::string>{"learning_rate"});
  SoftwareReading mesh =
      read({{"micro-batch", "1"}},
           accelerateText("", "parallelism_config: "
                              "{parallelism_config_dp_replicate_size: 2, "
                              "parallelism_config_dp_shard_size: 2, "
                              "parallelism_config_tp_size: 2}\n"));
  EXPECT_EQ(mesh.configuration.str(), "pp1 m1 dp2.sdp2.tp2, 1 a micro-batch");
}

TEST(Fsdp, RefusesWhatItCannotPrice) {
  const Options batch = {{"micro-batch", "1"}};
  for (auto [config, more, message] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"  fsdp_offload_params: true\n", "",
            "run: 'fsdp_config.fsdp_offload_params': expected false, found "
            "'true': offloading is not priced"},
           {"  fsdp_sharding_strategy: FULL_SHARD\n", "",
            "run: 'fsdp_config.fsdp_sharding_strategy': FSDP2 has no "
            "strategies: expected reshard_after_forward, true or false"},
           {"  fsdp_reshard_after_forward: FULL_SHARD\n", "",
            "run: 'fsdp_config.fsdp_reshard_after_forward': expected true or "
            "false, found 'FULL_SHARD'"},
           {"  fsdp_prefetch: true\n", "",
            "run: 'fsdp_config.fsdp_prefetch': not known: whether it changes "
            "time or memory cannot be told"},
           {"  fsdp_version: 2\n", "",
            "run: 'fsdp_config.fsdp_version' is set twice"},
           {"", "dynamo_config:\n  dynamo_backend: INDUCTOR\n",
            "run: 'dynamo_config.dynamo_backend': fsdp,compile=on prices what "
            "is compiled"},
           {"", "parallelism_config:\n  parallelism_config_sp_size: 2\n",
            "run: 'parallelism_config.parallelism_config_sp_size': expected "
            "1, found '2': others are not priced"},
           {"",
            "parallelism_config:\n  parallelism_config_cp_size: 8\n  "
            "parallelism_config_cp_comm_strategy: alltoall\n",
            "run: 'parallelism_config.parallelism_config_cp_comm_strategy': "
            "expected allgather, found 'alltoall': others are not priced"},
           {"", "parallelism_config:\n  parallelism_config_tp_size: 8\n",
            "run: 'parallelism_config.parallelism_config_dp_shard_size': "
            "expected at least 2: FSDP2 has no other replicas, and tensor "
            "parallelism wants shards"},
           {"", "parallelism_config:\n  parallelism_config_dp_shard_size: 4\n",
            "run: 'num_processes': expected the product of the mesh, 4, found "
            "8"}})
    EXPECT_EQ(fsdpRefusal(batch, accelerateText(config, more)), message);
  EXPECT_EQ(fsdpRefusal({}, accelerateText("")),
            "run: 'num_processes': accelerate's file says no batch: expected "
            "micro-batch=N, samples of a pass on one device, and "
            "accumulation=N in --from=fsdp");
  EXPECT_EQ(fsdpRefusal(batch, "distributed_type: FSDP\nnum_processes: 8\n"
                               "mixed_precision: bf16\n"),
            "run: 'fsdp_config.version': fsdp,version=1 reads and prices "
            "FSDP1, accelerate's where no version is said");
  EXPECT_EQ(fsdpRefusal({{"version", "1"}}, accelerateText("")),
            "run: 'fsdp_config.fsdp_version': expected 1, found 2");
  EXPECT_EQ(fsdpRefusal({}, "[1, 2]"),
            "run: expected a mapping of keys to values");
  for (const std::string &mark : {"[", "- ", "? ", "{a: "})
    EXPECT_EQ(fsdpRefusal({}, "a:\n  " + llvm::join(std::vector<std::string>(
                                                        100000, mark),
                                                    "")),
              "run: nested too deeply for a configuration")
        << mark;
  EXPECT_EQ(fsdpRefusal({}, "a: [b\n").substr(0, 9), "run: line");
  const Options trainer = {{"devices", "8"}};
  for (auto [arguments, message] :
       std::vector<std::pair<std::string, std::string>>{
           {"\"fsdp\": true",
            "run: 'bf16': expected bf16 or fp16: without it products are in "
            "f32, not priced"},
           {"\"fsdp\": true, \"bf16\": true, \"optim\": \"adafactor\"",
            "run: 'optim': expected adamw_torch or adamw_torch_fused, found "
            "'adafactor': states of others are not priced"},
           {"\"fsdp\": \"hybrid_shard\", \"bf16\": true",
            "run: 'fsdp': HYBRID_SHARD is of FSDP1 alone"},
           {"\"fsdp\": \"offload\", \"bf16\": true",
            "run: 'fsdp': expected true, or auto_wrap and a strategy, found "
            "'offload', which is not priced"},
           {"\"fsdp\": true, \"bf16\": true, \"gradient_checkpointing\": true",
            "run: 'gradient_checkpointing': expected false, found 'true': it "
            "changes time or memory and is not priced"},
           {"\"fsdp\": true, \"bf16\": true, "
            "\"per_device_train_batch_size\": \"auto\"",
            "run: 'per_device_train_batch_size': expected a count, found "
            "'auto'"}})
    EXPECT_EQ(fsdpRefusal(trainer, "{" + arguments + "}"), message);
  EXPECT_EQ(fsdpRefusal({}, "{\"fsdp\": true, \"bf16\": true}"),
            "run: 'fsdp': the Trainer's arguments do not say on how many "
            "devices: expected devices=N in --from=fsdp");
}

} // namespace
