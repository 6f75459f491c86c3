//===- DeepSpeedTest.cpp - DeepSpeed's JSON written and read back ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Target.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

using ZeroOptions = std::vector<std::pair<std::string, std::string>>;

ModelShape zeroShape() {
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

std::unique_ptr<Target> deepspeed(ZeroOptions options) {
  SoftwareRequest request{false, "deepspeed", std::move(options)};
  std::unique_ptr<Target> target =
      llvm::cantFail(TargetRegistry::make(request));
  target->setModel(zeroShape());
  return target;
}

/// Of a file with bf16, 16 samples, and what a test adds.
llvm::Expected<SoftwareReading> readZero(const ZeroOptions &options,
                                         const std::string &zero,
                                         const std::string &more) {
  return deepspeed(options)->read(
      "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {" + zero +
          "}, " + more + "}",
      "ds.json");
}

std::string zeroRefusal(const ZeroOptions &options, const std::string &zero,
                        const std::string &more) {
  llvm::Expected<SoftwareReading> none = readZero(options, zero, more);
  return none ? "" : llvm::toString(none.takeError());
}

const std::string kSixteen = "\"train_batch_size\": 16, "
                             "\"train_micro_batch_size_per_gpu\": 2, "
                             "\"gradient_accumulation_steps\": 2";

/// Everything that can be expressed is written, and read back as the same.
TEST(DeepSpeed, WhatIsWrittenIsReadBack) {
  int compared = 0;
  for (const ZeroOptions &options :
       {ZeroOptions{}, ZeroOptions{{"overlap-comm", "off"},
                                   {"bucket", "100000000"},
                                   {"prefetch", "0"},
                                   {"live", "7"}}})
    for (llvm::StringRef name : {"8xh100", "2x8xv100-32gb", "1xh100"}) {
      auto target = deepspeed(options);
      Cluster cluster = llvm::cantFail(Cluster::builtin(name));
      llvm::cantFail(target->visit(
          zeroShape(), cluster, 32, [&](const Configuration &plan) {
            LaunchFile file = target->write(zeroShape(), plan, cluster).front();
            ZeroOptions said = options;
            if (plan.recompute == Recompute::Full)
              said.push_back({"checkpointing", "on"});
            llvm::Expected<SoftwareReading> reading =
                deepspeed(said)->read(file.content, "plan");
            ASSERT_TRUE(bool(reading))
                << llvm::toString(reading.takeError()) << "\n"
                << file.content;
            EXPECT_EQ(reading->configuration, plan) << plan.str() << "\n"
                                                    << file.content;
            EXPECT_EQ(reading->devices, cluster.deviceCount());
            ++compared;
          }));
    }
  EXPECT_GT(compared, 300);
}

/// Any two of the batch, the micro-batch and its accumulation give the third
/// where the devices are known; all three give the devices.
TEST(DeepSpeed, BatchesAreOneIdentity) {
  auto plan = [](const ZeroOptions &options, const std::string &more) {
    SoftwareReading reading =
        llvm::cantFail(readZero(options, "\"stage\": 1", more));
    return reading.configuration.str() + " on " +
           std::to_string(reading.devices);
  };
  const std::string batch = "\"train_batch_size\": 32",
                    micro = "\"train_micro_batch_size_per_gpu\": 2",
                    steps = "\"gradient_accumulation_steps\": 4",
                    expected = "pp1 m4 zdp4, 2 a micro-batch on 4";
  auto with = [](std::string one, std::string other) {
    return one + ", " + other;
  };
  for (const std::string &text :
       {with(batch, micro), with(batch, steps), with(micro, steps)})
    EXPECT_EQ(plan({{"devices", "4"}, {"overlap-comm", "off"}}, text), expected)
        << text;
  EXPECT_EQ(plan({{"overlap-comm", "off"}}, with(with(batch, micro), steps)),
            expected);
  // A batch and a micro-batch alone are one pass.
  EXPECT_EQ(plan({{"overlap-comm", "off"}}, with(batch, micro)),
            "pp1 m1 zdp16, 2 a micro-batch on 16");
  EXPECT_EQ(
      plan({{"overlap-comm", "off"}},
           with(with(batch, micro),
                with(steps, "\"tensor_parallel\": {\"autotp_size\": 2}"))),
      "pp1 m4 zdp4.tp2, 2 a micro-batch on 8");
  // "auto" is filled by what the script is given.
  const std::string filled =
      "\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": "
      "\"auto\", \"gradient_accumulation_steps\": \"auto\"";
  EXPECT_EQ(plan({{"overlap-comm", "off"},
                  {"devices", "4"},
                  {"micro-batch", "2"},
                  {"accumulation", "4"}},
                 filled),
            expected);
  EXPECT_EQ(zeroRefusal({}, "\"stage\": 3", filled),
            "ds.json: 'train_micro_batch_size_per_gpu': 'auto' is a number of "
            "the Trainer's arguments: expected micro-batch=N in "
            "--from=deepspeed");
}

/// The type that the Trainer's arguments say is one of 16 bits either way, and
/// that nobody read it is told.
TEST(DeepSpeed, TakesTheTrainersType) {
  auto read = [](const std::string &types) {
    return deepspeed({{"devices", "4"}})
        ->read("{" + types + "\"zero_optimization\": {\"stage\": 3}, " +
                   kSixteen + "}",
               "ds.json");
  };
  SoftwareReading known =
      llvm::cantFail(read("\"bf16\": {\"enabled\": true}, "));
  EXPECT_TRUE(known.unread.empty());
  SoftwareReading left =
      llvm::cantFail(read("\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": "
                          "{\"enabled\": \"auto\"}, "));
  EXPECT_EQ(left.configuration, known.configuration);
  EXPECT_EQ(left.unread, (std::vector<std::string>{
                             "bf16.enabled (auto: taken as 16 bits)",
                             "fp16.enabled (auto: taken as 16 bits)"}));
  EXPECT_EQ(
      llvm::toString(read("\"bf16\": {\"enabled\": false}, ").takeError()),
      "ds.json: 'bf16.enabled': expected bf16 or fp16: without it "
      "products are in f32, not priced");
}

TEST(DeepSpeed, RefusesWhatItCannotPrice) {
  for (auto [zero, more, message] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}", "",
            "ds.json: 'zero_optimization.offload_optimizer.device': expected "
            "none, found 'cpu': it changes time or memory and is not priced"},
           {"\"stage\": 4", "",
            "ds.json: 'zero_optimization.stage': expected 0 to 3, found 4"},
           {"\"stage\": 2", "",
            "ds.json: 'zero_optimization.overlap_comm': without it sums and "
            "computation take turns, which deepspeed,overlap-comm=off prices"},
           {"\"stage\": 3, \"reduce_bucket_size\": 2e8", "",
            "ds.json: 'zero_optimization.reduce_bucket_size': it is 200000000 "
            "elements of memory: deepspeed,bucket=200000000 prices it"},
           {"\"stage\": 3, \"reduce_bucket_size\": \"auto\"", "",
            "ds.json: 'zero_optimization.reduce_bucket_size': it is 4194304 "
            "elements of memory: deepspeed,bucket=4194304 prices it"},
           {"\"stage\": 3, \"reduce_bucket_size\": \"auto\", "
            "\"stage3_prefetch_bucket_size\": \"auto\"",
            "",
            "ds.json: 'zero_optimization.reduce_bucket_size': it is 4194304 "
            "elements of memory: deepspeed,bucket=4194304,prefetch=3774873 "
            "prices it"},
           {"\"stage\": 3, \"stage3_live\": 1", "",
            "ds.json: 'zero_optimization.stage3_live': not known: whether it "
            "changes time or memory cannot be told"},
           {"\"stage\": 3", ", \"optimizer\": {\"type\": \"OneBitAdam\"}",
            "ds.json: 'optimizer.type': expected AdamW or Adam, found "
            "'OneBitAdam': it changes time or memory and is not priced"}})
    EXPECT_EQ(zeroRefusal({}, zero, kSixteen + more), message);
  EXPECT_EQ(zeroRefusal({}, "\"stage\": 3",
                        "\"train_batch_size\": 15, "
                        "\"train_micro_batch_size_per_gpu\": 2, "
                        "\"gradient_accumulation_steps\": 2"),
            "ds.json: 'train_batch_size': expected it beside "
            "train_micro_batch_size_per_gpu and gradient_accumulation_steps, "
            "as their quotient is the replicas, or devices=N in "
            "--from=deepspeed");
  EXPECT_EQ(zeroRefusal({{"devices", "8"}}, "\"stage\": 3", kSixteen),
            "ds.json: 'train_batch_size': expected "
            "train_micro_batch_size_per_gpu times gradient_accumulation_steps "
            "times replicas, 32, found 16");
  llvm::Expected<SoftwareReading> none =
      deepspeed({})->read("{" + kSixteen + "}", "ds.json");
  ASSERT_FALSE(bool(none));
  EXPECT_EQ(llvm::toString(none.takeError()),
            "ds.json: 'bf16.enabled': expected bf16 or fp16: without it "
            "products are in f32, not priced");
}

/// Buckets are memory: two where sums overlap, beside ZeRO-3 what stays
/// gathered.
TEST(DeepSpeed, BucketsAreMemory) {
  Cluster cluster = llvm::cantFail(Cluster::builtin("8xh100"));
  auto allocated = [&](Sharding sharding, const ZeroOptions &options) {
    Configuration plan;
    plan.batch = plan.data = 8;
    plan.sharding = sharding;
    plan.blocks = {8};
    return llvm::cantFail(price(zeroShape(), plan,
                                deepspeed(options)->execution(), cluster))
        .allocated;
  };
  const ZeroOptions none = {{"bucket", "1"}, {"prefetch", "0"}, {"live", "0"}};
  EXPECT_EQ(allocated(Sharding::Gradients, {{"bucket", "1000001"}}) -
                allocated(Sharding::Gradients, none),
            4'000'000);
  EXPECT_EQ(allocated(Sharding::Parameters, {{"bucket", "1000001"},
                                             {"prefetch", "500"},
                                             {"live", "1000"}}) -
                allocated(Sharding::Parameters, none),
            2'000'000 + 1000 + 2000);
}

} // namespace
