//===- PlanTest.cpp - Plans and their JSON --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "SmallPlan.h"

#include "galvatron/Schedule/Schedule.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <limits>

using namespace galvatron;

namespace {

std::string checkOf(const Plan &plan) { return llvm::toString(plan.check()); }

TEST(Plan, json_round_trips) {
  Plan plan = smallPlan();
  llvm::json::Value json = plan.toJson();
  llvm::Expected<Plan> again = Plan::fromJson(json);
  ASSERT_TRUE(static_cast<bool>(again));
  EXPECT_EQ(again->toJson(), json);
}

TEST(Plan, sets_of_kept_values_go_both_ways) {
  Plan plan = smallPlan();
  plan.layers[1].strategy = llvm::cantFail(Strategy::parse("tp2.ckpt2"));
  plan.layers[1].kept = KeptValues{"0123456789abcdef", {{3, 0}, {7, 1}}};
  llvm::json::Value json = plan.toJson();
  llvm::Expected<Plan> read = Plan::fromJson(json);
  ASSERT_TRUE(bool(read)) << llvm::toString(read.takeError());
  EXPECT_EQ(read->layers[1].kept, plan.layers[1].kept);
  EXPECT_FALSE(read->layers[0].kept);

  // Names are for people: they travel, and tell no two sets apart.
  plan.layers[1].kept->names = {"attn.c_attn", "mlp.c_fc"};
  plan.layers[1].kept->remade = {"ln_1"};
  llvm::Expected<Plan> named = Plan::fromJson(plan.toJson());
  ASSERT_TRUE(bool(named)) << llvm::toString(named.takeError());
  EXPECT_EQ(named->layers[1].kept, read->layers[1].kept);
  EXPECT_EQ(read->layers[1].kept->text(), "");
  EXPECT_EQ(named->layers[1].kept->text(),
            "keeps attn.c_attn, mlp.c_fc; computes ln_1 again");
  EXPECT_EQ(named->keptTexts(),
            std::vector<std::string>{"tp2.ckpt2, " + plan.layers[1].name +
                                     ": keeps attn.c_attn, mlp.c_fc; computes "
                                     "ln_1 again"});

  auto errorWith = [&](const char *kept, const char *strategy) {
    llvm::json::Value changed = json;
    llvm::json::Object &layer =
        *(*changed.getAsObject()->getArray("layers"))[1].getAsObject();
    layer["kept"] = llvm::cantFail(llvm::json::parse(kept));
    layer["strategy"] = strategy;
    llvm::Expected<Plan> read = Plan::fromJson(changed);
    return read ? "" : llvm::toString(read.takeError());
  };
  EXPECT_EQ(errorWith(R"({"body": "0", "values": ["3"]})", "tp2.ckpt"),
            "'layers[1].kept': expected a strategy with a point, found "
            "'tp2.ckpt'");
  EXPECT_NE(errorWith(R"({"body": "0", "values": ["3", "2"]})", "tp2.ckpt1")
                .find("expected kept values in ascending order, found '2' "
                      "behind '3'"),
            std::string::npos);
  EXPECT_NE(errorWith(R"({"body": "0", "values": ["x"]})", "tp2.ckpt1")
                .find("found 'x'"),
            std::string::npos);
  EXPECT_NE(errorWith(R"({"values": []})", "tp2.ckpt1").find("kept.body"),
            std::string::npos);
}

/// Names, what they begin with, modules, and what is taken away.
TEST(KeptValues, words_select_values) {
  std::vector<NamedValue> values = {{{0, 0}, "ln_1", true, {"layernorm"}},
                                    {{0, 1}, "ln_1.stats", true, {"layernorm"}},
                                    {{1, 0}, "attn.c_attn", true, {}},
                                    {{2, 0}, "attn.attention", true, {}},
                                    {{3, 0}, "mlp.c_fc", true, {"mlp"}},
                                    {{4, 0}, "mlp.c_fc.gelu", false, {"mlp"}}};
  auto selected = [&](std::vector<std::string> words) {
    std::string text;
    auto found = selectValues(values, words);
    if (!found)
      return std::string("none");
    for (const KeptValue &value : *found)
      text += (text.empty() ? "" : " ") + value.str();
    return text;
  };
  EXPECT_EQ(selected({"attn.c_attn"}), "1");
  EXPECT_EQ(selected({"mlp.c_fc"}), "3 4");
  EXPECT_EQ(selected({"attn", "ln_1"}), "0 0:1 1 2");
  EXPECT_EQ(selected({"layernorm"}), "0 0:1");
  EXPECT_EQ(selected({"attn", "-attn.attention"}), "1");
  // All that is needed but these.
  EXPECT_EQ(selected({"-layernorm"}), "1 2 3");
  EXPECT_EQ(selected({"-ln_1", "-attn", "-mlp"}), "");
  EXPECT_EQ(selected({"att"}), "none");
  EXPECT_EQ(selected({"moe"}), "none");
}

TEST(Plan, throughput_is_that_of_the_models_mathematics) {
  Plan plan = smallPlan();
  EXPECT_EQ(plan.throughput(), "");
  EXPECT_EQ(plan.utilisation(), 0);
  plan.samplesPerSecond = 640;
  plan.seqLen = 1024;
  plan.parameters = 124439808;
  plan.flopsPerSample = 1e12;
  plan.peakFlops = 1.28e15;
  EXPECT_EQ(plan.flopsPerDevice(), 160e12); // of 4
  EXPECT_EQ(plan.throughput(),
            "124M parameters, 655k tokens/s, 160 TFLOP/s a device, MFU 50.0% "
            "of what large products reach");
  llvm::json::Value json = plan.toJson();
  EXPECT_EQ(json.getAsObject()->getNumber("tokens-per-second"), 655360);
  EXPECT_EQ(json.getAsObject()->getNumber("mfu"), 0.5);
  Plan again = llvm::cantFail(Plan::fromJson(json));
  EXPECT_EQ(again.throughput(), plan.throughput());
}

TEST(Plan, json_has_every_key_of_version_one) {
  llvm::json::Value json = smallPlan().toJson();
  const llvm::json::Object &object = *json.getAsObject();
  for (const char *key :
       {"version",   "tool-version",    "model",        "model-hash",
        "cluster",   "cluster-hash",    "profile-hash", "space",
        "training",  "seq-len",         "batch",        "micro-batches",
        "schedule",  "pipeline-degree", "iteration-ms", "samples-per-second",
        "search-ms", "peak-is",         "stages",       "layers"})
    EXPECT_TRUE(object.get(key)) << key;
  const llvm::json::Object &stage =
      *(*object.getArray("stages"))[0].getAsObject();
  for (const char *key :
       {"devices", "first-layer", "layer-count", "time-ms", "time-nosync-ms",
        "forward-ms", "compute-ms", "peak-bytes", "available-bytes", "ledger"})
    EXPECT_TRUE(stage.get(key)) << key;
  EXPECT_EQ(stage.getObject("ledger")->size(), 8u);
}

/// Under its own key, and back from there.
TEST(Plan, json_has_every_number_of_a_stage) {
  Plan plan = smallPlan();
  PlanStage &stage = plan.stages[1];
  struct Field {
    const char *key;
    double value;
  };
  const Field fields[] = {{"time-ms", 1.5},          {"time-nosync-ms", 2.5},
                          {"forward-ms", 3.5},       {"compute-ms", 4.5},
                          {"optimizer-ms", 5.5},     {"peak-bytes", 600},
                          {"available-bytes", 7000}, {"reserved-bytes", 80}};
  stage.timeMs = 1.5;
  stage.timeNosyncMs = 2.5;
  stage.forwardMs = 3.5;
  stage.computeMs = 4.5;
  stage.optimizerMs = 5.5;
  stage.peakBytes = 600;
  stage.availableBytes = 7000;
  stage.reservedBytes = 80;
  auto expectFields = [&](const Plan &plan) {
    llvm::json::Value json = plan.toJson();
    const llvm::json::Object &written =
        *(*json.getAsObject()->getArray("stages"))[1].getAsObject();
    for (const Field &field : fields)
      EXPECT_EQ(written.getNumber(field.key), field.value) << field.key;
  };
  expectFields(plan);
  Plan again = llvm::cantFail(Plan::fromJson(plan.toJson()));
  expectFields(again);
  EXPECT_EQ(again.stages[1].timeNosyncMs, 2.5);
  EXPECT_EQ(again.stages[1].peakBytes, 600);
  EXPECT_EQ(again.stages[1].availableBytes, 7000);
}

TEST(Plan, structure_is_checked) {
  EXPECT_FALSE(llvm::errorToBool(smallPlan().check()));
  Plan plan = smallPlan();
  plan.microBatches = 3;
  EXPECT_EQ(checkOf(plan),
            "plan: 3 micro-batches do not divide the batch of 8");
  plan = smallPlan();
  plan.layers[0].strategy = llvm::cantFail(Strategy::parse("dp4"));
  EXPECT_EQ(checkOf(plan), "plan: layer 'l0': strategy 'dp4' is for 4 devices, "
                           "but stage 0 has 2");
  plan = smallPlan();
  plan.batch = 6;
  EXPECT_EQ(checkOf(plan),
            "plan: layer 'l0': strategy 'dp2' cuts a micro-batch into 2 "
            "blocks, which does not divide its 3 samples");
  plan = smallPlan();
  plan.stages[1].devices = {1, 2};
  EXPECT_EQ(checkOf(plan), "plan: stage 1: device 1 is used twice");
  plan = smallPlan();
  plan.stages[1].firstLayer = 1;
  EXPECT_EQ(checkOf(plan),
            "plan: stage 1: expected its first layer to be 2, found 1");
  plan = smallPlan();
  plan.layers[1].stage = 1;
  EXPECT_EQ(checkOf(plan), "plan: layer 'l1': expected stage 0, found 1");
  plan = smallPlan();
  plan.layers.pop_back();
  EXPECT_EQ(checkOf(plan), "plan: the stages hold 3 layers, but 2 are listed");
  plan = smallPlan();
  plan.pipelineDegree = 4;
  EXPECT_EQ(checkOf(plan), "plan: pipeline degree 4, but 2 stages");
}

/// Stages may have any of the devices from 0 on. Plans on others are priced,
/// but neither read from files nor executed.
TEST(Plan, devices_are_those_of_the_stages) {
  auto errorOf = [](auto change) {
    Plan plan = smallPlan();
    change(plan);
    EXPECT_EQ(checkOf(plan), "");
    llvm::Expected<Plan> read = Plan::fromJson(plan.toJson());
    if (!read)
      return llvm::toString(read.takeError());
    for (size_t s = 0; s < plan.stages.size(); ++s)
      EXPECT_EQ(read->stages[s].devices, plan.stages[s].devices);
    return std::string();
  };
  EXPECT_EQ(errorOf([](Plan &) {}), "");
  EXPECT_EQ(errorOf([](Plan &plan) {
              std::swap(plan.stages[0].devices, plan.stages[1].devices);
            }),
            "");
  EXPECT_EQ(errorOf([](Plan &plan) {
              plan.stages[0].devices = {3, 0};
              plan.stages[1].devices = {2, 1};
            }),
            "");
  EXPECT_EQ(errorOf([](Plan &plan) { plan.stages[1].devices = {4, 5}; }),
            "plan: stage 1: the stages have 4 devices, expected 0 to 3, found "
            "4");
}

TEST(Plan, consecutive_groups_are_told_from_others) {
  Plan plan = smallPlan();
  EXPECT_TRUE(plan.hasConsecutiveDevices());
  plan.stages[1].devices = {3, 2};
  EXPECT_FALSE(plan.hasConsecutiveDevices());
  plan.stages[0].devices = {0, 1, 2};
  plan.stages[1].devices = {3};
  EXPECT_FALSE(plan.hasConsecutiveDevices());
}

TEST(Plan, wrong_json_is_refused) {
  auto errorOf = [](auto change) {
    llvm::json::Value json = smallPlan().toJson();
    change(*json.getAsObject());
    llvm::Expected<Plan> plan = Plan::fromJson(json);
    return plan ? std::string("no error") : llvm::toString(plan.takeError());
  };
  using Object = llvm::json::Object;
  EXPECT_EQ(errorOf([](Object &o) { o["version"] = 2; }),
            "'version': expected 1, found 2");
  EXPECT_EQ(errorOf([](Object &o) { o.erase("batch"); }),
            "missing key 'batch'");
  EXPECT_EQ(errorOf([](Object &o) { o.erase("schedule"); }),
            "missing key 'schedule'");
  EXPECT_EQ(errorOf([](Object &o) { o["schedule"] = "zigzag"; }),
            "'schedule': unknown schedule 'zigzag', expected '1f1b', 'gpipe', "
            "'interleaved', '2bw', 'zb-h1', 'zb-h2', 'zb-v', 'harmony-pp' or "
            "'harmony-dp'");
  EXPECT_EQ(errorOf([](Object &o) {
              (*(*o.getArray("layers"))[1].getAsObject())["strategy"] = "xp2";
            }),
            "'layers[1].strategy': invalid strategy 'xp2': expected a level "
            "like 'dp2', of " +
                ParadigmRegistry::names() + " and a degree, found 'xp2'");
  // Numbers whose sums and products would leave 64 bits.
  auto stage = [](Object &o) -> Object & {
    return *(*o.getArray("stages"))[0].getAsObject();
  };
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(errorOf([&](Object &o) { o["batch"] = int64_t(1) << 40; }),
            "plan: expected a batch from 1 to 2^30, found 1099511627776");
  EXPECT_EQ(errorOf([&](Object &o) { stage(o)["layer-count"] = most; }),
            "plan: stage 0: has 9223372036854775807 layers, but only 3 are "
            "listed");
  EXPECT_EQ(errorOf([&](Object &o) { stage(o)["peak-bytes"] = most; }),
            "'stages[0].peak-bytes': expected at most 2^48 bytes, found "
            "9223372036854775807");
  auto training = [](Object &o) -> Object & {
    return *o.getObject("training");
  };
  EXPECT_EQ(errorOf([&](Object &o) {
              training(o)["clip"] = false;
              training(o)["clip-delayed"] = true;
            }),
            "'training.clip-delayed': expected with 'clip'");
  EXPECT_EQ(errorOf([&](Object &o) { training(o)["optimizer"] = "lion"; }),
            "'training.optimizer': expected 'adamw', 'adam' or 'sgd', found "
            "'lion'");
  EXPECT_EQ(errorOf([&](Object &o) { training(o)["dtype"] = "f8"; }),
            "'training.dtype': expected 'f32', 'tf32', 'f16', 'bf16' or "
            "'f64', found 'f8'");
  EXPECT_EQ(errorOf([](Object &o) { o["objective"] = "fast"; }),
            "'objective': expected 'executed' or 'paper', found 'fast'");
  EXPECT_EQ(errorOf([](Object &o) {
              o["offload"] = "disk";
            }).find("'offload': unknown offload 'disk', expected 'off', "),
            0u);
  using Array = llvm::json::Array;
  EXPECT_EQ(errorOf([](Object &o) {
              o["pass-times"] = Array{Array{1, 2, 3, 4}, Array{1, 2, 3}};
            }),
            "'pass-times[1]': expected four integers: forward pass, input "
            "part, weight part, message");
  EXPECT_EQ(errorOf([](Object &o) { o["u-f"] = 2; }),
            "'u-f': packs of a layer profile are no program's, expected a plan "
            "that is made of the model");
  EXPECT_EQ(errorOf([](Object &o) { o["packs-f"] = Array{0, "two"}; }),
            "'packs-f': expected integers");
}

TEST(Plan, when_gradients_are_summed_goes_both_ways) {
  Plan plan = smallPlan();
  auto stageOf = [](llvm::json::Value &json, size_t stage) {
    return (*json.getAsObject()->getArray("stages"))[stage].getAsObject();
  };
  llvm::json::Value json = plan.toJson();
  EXPECT_EQ(stageOf(json, 0)->get("gradient-sums"), nullptr);
  plan.stages[0].sums = SumTiming::Overlap;
  plan.stages[1].sums = SumTiming::AtEnd;
  json = plan.toJson();
  EXPECT_EQ(stageOf(json, 0)->getString("gradient-sums"), "overlap");
  EXPECT_EQ(stageOf(json, 1)->getString("gradient-sums"), "at-end");
  Plan again = llvm::cantFail(Plan::fromJson(json));
  EXPECT_EQ(again.stages[0].sums, SumTiming::Overlap);
  EXPECT_EQ(again.stages[1].sums, SumTiming::AtEnd);
  EXPECT_EQ(again.toJson(), json);
  (*stageOf(json, 1))["gradient-sums"] = "by-rule";
  again = llvm::cantFail(Plan::fromJson(json));
  EXPECT_EQ(again.stages[1].sums, SumTiming::ByRule);
  (*stageOf(json, 1))["gradient-sums"] = "late";
  llvm::Expected<Plan> wrong = Plan::fromJson(json);
  ASSERT_FALSE(bool(wrong));
  EXPECT_EQ(llvm::toString(wrong.takeError()),
            "'stages[1].gradient-sums': expected 'by-rule', 'overlap' or "
            "'at-end', found 'late'");
  std::string text;
  llvm::raw_string_ostream os(text);
  plan.print(os);
  EXPECT_NE(text.find("gradients are summed at the end of the step on stage 1, "
                      "beside backward passes on stage 0\n"),
            std::string::npos)
      << text;
}

/// Where chunks take turns nothing waits for sums that overlap.
TEST(Plan, sums_of_several_chunks_overlap_where_nothing_waits) {
  Plan plan = smallPlan();
  plan.schedule = llvm::cantFail(parseSchedule("interleaved"));
  plan.stages[0].chunks = {{0, 1}, {2, 1}};
  plan.stages[1].chunks = {{1, 1}, {3, 1}};
  plan.layers.push_back(plan.layers.back());
  const char *strategies[] = {"dp2", "dp2", "dp2", "sdp2"};
  for (int64_t l = 0; l < 4; ++l)
    plan.layers[l] = {"l" + std::to_string(l), l % 2,
                      llvm::cantFail(Strategy::parse(strategies[l]))};
  EXPECT_EQ(checkOf(plan), "");
  plan.stages[0].sums = SumTiming::Overlap;
  EXPECT_EQ(checkOf(plan), "");
  plan.layers[0].strategy = llvm::cantFail(Strategy::parse("sdp2"));
  EXPECT_NE(checkOf(plan).find(
                "plan: stage 0: expected 'gradient-sums' to be 'at-end', found "
                "'overlap': its chunks take turns, and the sum of gradients of "
                "layer 1 (dp2) would run beside"),
            std::string::npos)
      << checkOf(plan);
  plan.stages[0].sums = SumTiming::AtEnd;
  EXPECT_EQ(checkOf(plan), "");
}

TEST(Plan, devices_are_ranges) {
  EXPECT_EQ(deviceRange({4}), "4");
  EXPECT_EQ(deviceRange({4, 5, 6}), "4-6");
  EXPECT_EQ(deviceRange({0, 2, 3, 7}), "0,2-3,7");
}

TEST(Plan, layers_fold_into_runs) {
  Plan plan = smallPlan();
  plan.layers[1].strategy = plan.layers[0].strategy;
  std::vector<LayerRun> runs = plan.runs();
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(plan.runName(runs[0]), "l0-l1 x2");
  EXPECT_EQ(plan.runName(runs[1]), "l2");
  // The same strategy on another stage is another run.
  plan.layers[2].strategy = plan.layers[0].strategy;
  EXPECT_EQ(plan.runs().size(), 2u);
  EXPECT_EQ(plan.summary(), "pp2 m2 batch 8: dp2 x3");
  EXPECT_EQ(smallPlan().summary(),
            "pp2 m2 batch 8: dp2 x1, tp2.ckpt x1, sdp2 x1");
}

TEST(Plan, time_of_a_stage_is_computation_communication_update_and_bubble) {
  Plan plan = smallPlan();
  plan.iterationMs = 20;
  plan.stages[0].timeMs = 6;
  plan.stages[0].timeNosyncMs = 4;
  plan.stages[0].computeMs = 3;
  plan.stages[0].optimizerMs = 2; // one of it in `timeMs`: there are two stages
  plan.stages[1].optimizerMs = 6;
  TimeSplit split = plan.timeSplit(0);
  EXPECT_EQ(split.computeMs, 6);       // two micro-batches
  EXPECT_EQ(split.communicationMs, 3); // one a micro-batch and one at the end
  EXPECT_EQ(split.optimizerMs, 4);     // the mean, as in the iteration
  EXPECT_EQ(split.bubbleMs, 7);
}

TEST(Plan, update_of_the_stage_with_most_states_counts_as_eq_9_counts_it) {
  Plan plan = smallPlan();
  plan.stages[0].timeMs = plan.stages[0].timeNosyncMs = 1;
  plan.stages[0].computeMs = 1;
  plan.stages[1].timeMs = 1 + 12 / 2;
  plan.stages[1].timeNosyncMs = plan.stages[1].computeMs = 1;
  plan.stages[0].optimizerMs = 0;
  plan.stages[1].optimizerMs = 12;
  plan.iterationMs = 1 + 1 + 7; // two micro-batches
  // The mean of the updates is in the step, half of what the stage takes.
  TimeSplit split = plan.timeSplit(1);
  EXPECT_EQ(split.computeMs, 2);
  EXPECT_EQ(split.communicationMs, 0);
  EXPECT_EQ(split.optimizerMs, 6);
  EXPECT_EQ(split.bubbleMs, 1); // the other stage's first micro-batch
  // A stage without states: the others' update is not its bubble.
  split = plan.timeSplit(0);
  EXPECT_EQ(split.optimizerMs, 6);
  EXPECT_EQ(split.bubbleMs, 1);
}

TEST(Plan, the_fullest_or_the_slowest_stage_binds) {
  Plan plan = smallPlan();
  plan.stages[0].availableBytes = plan.stages[1].availableBytes = 1000;
  plan.stages[0].peakBytes = 990;
  plan.stages[1].timeNosyncMs = 3;
  plan.stages[0].timeNosyncMs = 1;
  EXPECT_EQ(plan.binding(),
            "binding: memory of stage 0: 99.0% of 1000 B, 10 B free (next, "
            "time of stage 1: 3.000 ms a micro-batch, 50.0% above the mean "
            "stage)");
  plan.stages[0].peakBytes = 500;
  EXPECT_TRUE(
      llvm::StringRef(plan.binding()).starts_with("binding: time of stage 1"));
  plan.stages[0].peakBytes = 1010;
  EXPECT_TRUE(llvm::StringRef(plan.binding()).contains("10 B too much"));
}

TEST(Plan, table_shows_stages_and_runs_of_layers) {
  std::string text;
  llvm::raw_string_ostream os(text);
  smallPlan().print(os);
  EXPECT_NE(text.find("batch 8 in 2 micro-batches, schedule 1f1b"),
            std::string::npos);
  EXPECT_NE(text.find("tp2.ckpt"), std::string::npos);
  EXPECT_NE(text.find("parameters 640 B"), std::string::npos);
  EXPECT_NE(text.find("compute  exposed  optimizer  bubble  memory"),
            std::string::npos);
}

TEST(Plan, what_a_stage_needs_is_said_once) {
  Infeasible none;
  none.reason = "no plan fits: stage 1 needs 640 bytes (640 B), available are "
                "600 bytes (600 B)";
  none.stage = 1;
  none.neededBytes = none.ledger.parameters = 640;
  none.availableBytes = 600;
  none.relaxations = {"use 8 such devices"};
  EXPECT_EQ(none.str(), none.reason + "\n  stage 1: parameters 640 B\n  it "
                                      "would help to use 8 such devices");
  none.reason = "no plan fits";
  none.relaxations.clear();
  EXPECT_EQ(none.str(), "no plan fits\n  stage 1 needs 640 bytes (640 B), "
                        "available are 600 (600 B): parameters 640 B");
}

/// `count` stages of one device and two layers each, fuller from first to last.
Plan deepPlan(int64_t count) {
  Plan plan = smallPlan();
  plan.pipelineDegree = count;
  plan.stages.resize(1);
  plan.layers.clear();
  PlanStage stage = plan.stages[0];
  plan.stages.clear();
  for (int64_t s = 0; s < count; ++s) {
    stage.devices = {s};
    stage.firstLayer = 2 * s;
    stage.layerCount = 2;
    stage.availableBytes = 1 << 20;
    stage.ledger.activations = 1000 * s;
    stage.peakBytes = stage.ledger.total();
    plan.stages.push_back(stage);
    for (const char *strategy : {"single", "single.ckpt"})
      plan.layers.push_back({"l" + std::to_string(plan.layers.size()), s,
                             llvm::cantFail(Strategy::parse(strategy))});
  }
  return plan;
}

std::string tableOf(const Plan &plan, TableStyle style = {}) {
  std::string text;
  llvm::raw_string_ostream os(text);
  plan.print(os, style);
  return text;
}

size_t linesOf(llvm::StringRef text, llvm::StringRef part) {
  llvm::SmallVector<llvm::StringRef> lines;
  text.split(lines, '\n');
  return llvm::count_if(
      lines, [&](llvm::StringRef line) { return line.contains(part); });
}

TEST(Plan, table_folds_stages_that_are_alike) {
  Plan plan = deepPlan(64);
  plan.stages[0].timeMs = 7;      // the first is none of them
  plan.stages[40].timeMs = 3.001; // and a little longer makes no difference
  llvm::StringRef text;
  std::string table = tableOf(plan);
  text = table;
  EXPECT_EQ(linesOf(text, "["), 2u) << table;
  EXPECT_TRUE(text.contains("1-63   1-63, 1 each  2-127, 2 each")) << table;
  EXPECT_TRUE(text.contains("1.85 KiB to 62.4 KiB of 1.00 MiB")) << table;
  EXPECT_TRUE(text.contains("stage 63: parameters 640 B, activations 61.5 KiB"))
      << table;
  EXPECT_TRUE(text.contains("l2 ..   1-63   single")) << table;
  EXPECT_TRUE(text.contains("l3 ..   1-63   single.ckpt")) << table;
  EXPECT_EQ(linesOf(text, "single"), 4u) << table;
  EXPECT_TRUE(text.contains("3.001 ms")) << table;
  // Two alike are shown as they are, and so is one with another strategy.
  plan.layers[2 * 2].strategy = llvm::cantFail(Strategy::parse("single.ckpt"));
  table = tableOf(plan);
  EXPECT_EQ(linesOf(table, "["), 4u) << table;
  EXPECT_EQ(linesOf(tableOf(deepPlan(2)), "["), 2u);
}

TEST(Plan, table_fits_a_terminal) {
  Plan plan = smallPlan();
  plan.nominal = true;
  for (PlanStage &stage : plan.stages)
    stage.availableBytes = 1 << 20;
  for (size_t columns : {72, 80, 100, 132}) {
    std::string table = tableOf(plan, {columns, /*colour=*/false});
    llvm::SmallVector<llvm::StringRef> lines;
    llvm::StringRef(table).split(lines, '\n');
    for (llvm::StringRef line : lines)
      EXPECT_LE(line.size(), columns) << table;
    EXPECT_EQ(linesOf(table, "no-sync"), columns >= 100 ? 1u : 0u) << table;
    EXPECT_EQ(linesOf(table, "B of 1.00 MiB"), 2u) << table;
    EXPECT_EQ(linesOf(table, "bubble  memory"), columns >= 132 ? 1u : 0u);
  }
  std::string coloured = tableOf(plan, {0, /*colour=*/true});
  EXPECT_TRUE(llvm::StringRef(coloured).contains("\x1b[1m12.500 ms\x1b[0m"));
}

TEST(Plan, table_says_no_more_digits_of_a_gap_than_are_of_use) {
  Plan plan = smallPlan();
  plan.gapPercent = 1.86e-07;
  EXPECT_EQ(linesOf(tableOf(plan), "executed within 0.001% of"), 1u);
  plan.gapPercent = 7.169;
  EXPECT_EQ(linesOf(tableOf(plan), "executed within 7.17% of"), 1u);
}

/// The lines behind the stages: how the plan was found, and what is proven.
TEST(Plan, table_says_what_is_proven) {
  Plan plan = smallPlan();
  auto says = [&](llvm::StringRef from) {
    std::string table = tableOf(plan);
    size_t at = table.find(from.str());
    EXPECT_NE(at, std::string::npos) << table;
    std::string rest = table.substr(std::min(at, table.size()));
    return rest.substr(0, rest.find("\n\n") + 1);
  };
  EXPECT_EQ(tableOf(plan).find("found by"), std::string::npos);
  EXPECT_EQ(tableOf(plan).find("proven"), std::string::npos);
  EXPECT_EQ(tableOf(plan).find("executed"), std::string::npos);
  plan.foundBy = "heuristic";
  plan.objective = Objective::Paper;
  EXPECT_EQ(says("  found by"), "  found by the heuristic search\n");
  plan.foundBy = "quick";
  EXPECT_EQ(says("  found by"),
            "  found by the quick heuristic, stopped before "
            "anything was proven\n");
  plan.foundBy = "exact";
  plan.provenGapPercent = 0;
  EXPECT_EQ(says("  found by"),
            "  found by the exact search, proven optimal\n");
  plan.provenGapPercent = 1.25;
  plan.heuristicMs = 14;
  EXPECT_EQ(says("  found by"),
            "  found by the exact search, proven within 1.25% of the optimum; "
            "the heuristic's plan takes 14.000 ms\n");
  plan.heuristicMs = 0;
  plan.objective = Objective::Executed;
  plan.provenAmong = "equal groups";
  plan.provenSchedule = "1f1b";
  EXPECT_EQ(says("  found by"),
            "  found by the exact search, by its formula proven within 1.25% "
            "of the optimum\n"
            "    of plans whose stages have equal groups\n"
            "    of plans under schedule '1f1b'; schedules were compared by "
            "their best plans' simulated time\n");
  plan.gapPercent = 0;
  EXPECT_EQ(says("  executed"), "  executed as fast as any plan for this batch "
                                "under schedule '1f1b'\n");
  plan.gapPercent = 2;
  EXPECT_EQ(says("  executed"),
            "  executed within 2% of what any plan for this batch under "
            "schedule '1f1b' takes at least\n");
  plan.provenGiven = "the given strategy";
  EXPECT_EQ(says("  executed"),
            "  executed within 2% of what any plan for this batch with the "
            "given strategy under schedule '1f1b' takes at least\n");
  plan.provenGiven.clear();
  plan.provenSchedule.clear();
  EXPECT_EQ(says("  executed"), "  executed within 2% of what any plan for "
                                "this batch takes at least\n");
  plan.gapPercent.reset();
  plan.provenAmong.clear();
  plan.schedule = &scheduleNamed("2bw");
  EXPECT_EQ(says("    by the"),
            "    by the formula of batches that follow each "
            "other without a drain\n");
  plan.schedule = &scheduleNamed("zb-h1");
  EXPECT_EQ(says("    by the"),
            "    by the formula of steps whose weight parts "
            "fill what stages would wait\n");
  plan.schedule = &scheduleNamed("1f1b");
  EXPECT_EQ(says("  found by").find("by the formula of"), std::string::npos);
}

TEST(Plan, table_shows_equal_reserves_once) {
  Plan plan = smallPlan();
  auto count = [&] {
    std::string text;
    llvm::raw_string_ostream os(text);
    plan.print(os);
    return llvm::StringRef(text).count("reserved for contexts");
  };
  ASSERT_GT(plan.stages.size(), 1u);
  EXPECT_EQ(count(), 0u);
  for (PlanStage &stage : plan.stages)
    stage.reservedBytes = 1000;
  EXPECT_EQ(count(), 1u);
  plan.stages[0].reservedBytes = 2000;
  EXPECT_EQ(count(), plan.stages.size());
}

} // namespace
