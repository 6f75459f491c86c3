//===- ProfileLayerModelTest.cpp - Models from profiles -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/ProfileLayerModel.h"
#include "../Collectives.h"
#include "../TestStrategy.h"
#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Support/Json.h"

#include "gtest/gtest.h"

#include <functional>
#include <map>

using namespace galvatron;

namespace {

const char *profile = R"({"version": 1, "dtype": "f32", "layers": [
  {"name": "embed", "forward-flops": 0, "parameter-bytes": 4096,
   "boundary-bytes": 0, "intermediate-bytes": 0},
  {"name": "block", "count": 2, "forward-ms": 2, "backward-ms": [[1, 4], [2, 6]],
   "parameter-bytes": 8192, "boundary-bytes": 640,
   "intermediate-bytes": 6400, "tp-replicated-bytes": 1280},
  {"name": "head", "forward-ms": 1, "backward-ms": 2, "parameter-bytes": 64,
   "boundary-bytes": 640, "intermediate-bytes": 0}]})";

std::unique_ptr<ProfileLayerModel> model(const std::string &text) {
  return llvm::cantFail(ProfileLayerModel::fromJson(
      llvm::cantFail(parseJson(text, "profile")), "toy"));
}

std::string errorOf(std::string text, const std::string &from,
                    const std::string &to) {
  text.replace(text.find(from), from.size(), to);
  llvm::Expected<llvm::json::Value> json = parseJson(text, "profile");
  if (!json)
    return llvm::toString(json.takeError());
  auto result = ProfileLayerModel::fromJson(*json, "toy");
  return result ? "no error" : llvm::toString(result.takeError());
}

LayerFootprint footprint(size_t kind, const char *strategy, int64_t samples) {
  return llvm::cantFail(
      model(profile)->footprint(kind, get(strategy), samples));
}

TEST(ProfileLayerModel, layers_and_kinds) {
  auto toy = model(profile);
  EXPECT_EQ(toy->layerCount(), 4u);
  EXPECT_EQ(toy->layerName(0), "embed");
  EXPECT_EQ(toy->layerName(2), "block.1");
  EXPECT_EQ(toy->kindOf(1), toy->kindOf(2));
  EXPECT_EQ(toy->boundaryBytesPerSample(0), 640);
  EXPECT_EQ(toy->boundaryBytesPerSample(3), 0);
  EXPECT_FALSE(toy->exact());
  EXPECT_EQ(toy->hash(), model(profile)->hash());
}

/// A plan is for the model that it was made for: everything that a layer says
/// is part of its hash.
TEST(ProfileLayerModel, any_figure_makes_another_model) {
  auto hashOf = [](llvm::function_ref<void(ProfileLayer &)> change) {
    ProfileLayer layer;
    layer.name = "block";
    layer.forwardFlops = 1e9;
    layer.forwardMovedBytes = 1e6;
    layer.tpReplicatedMovedBytes = 1e3;
    layer.sentBytes = 5;
    layer.boundaryBytes = 640;
    layer.forwardAttentionFlops = 1e3;
    change(layer);
    return llvm::cantFail(ProfileLayerModel::get("m", "f32", {layer}))->hash();
  };
  const std::function<void(ProfileLayer &)> changes[] = {
      [](ProfileLayer &layer) {},
      [](ProfileLayer &layer) { layer.name = "other"; },
      [](ProfileLayer &layer) { layer.count = 2; },
      [](ProfileLayer &layer) { layer.parameterBytes = 64; },
      [](ProfileLayer &layer) { layer.boundaryBytes = 641; },
      [](ProfileLayer &layer) { layer.intermediateBytes = 64; },
      [](ProfileLayer &layer) { layer.tpAllReduceBytes = 64; },
      [](ProfileLayer &layer) {
        layer.intermediateBytes = 64;
        layer.tpReplicatedBytes = 64;
      },
      [](ProfileLayer &layer) { layer.forwardFlops = 2e9; },
      [](ProfileLayer &layer) { layer.forwardMovedBytes = 2e6; },
      [](ProfileLayer &layer) { layer.forwardProductBytes = 64; },
      [](ProfileLayer &layer) { layer.forwardKernels = 3; },
      [](ProfileLayer &layer) { layer.forwardAttentionFlops = 2e3; },
      [](ProfileLayer &layer) { layer.forwardAttentionBytes = 64; },
      [](ProfileLayer &layer) { layer.backwardAttentionFlops = 64; },
      [](ProfileLayer &layer) { layer.sentBytes = 6; },
      [](ProfileLayer &layer) { layer.tpReplicatedMovedBytes = 64; },
      [](ProfileLayer &layer) { layer.again.flops = 64; },
      [](ProfileLayer &layer) { layer.again.movedBytes = 64; },
      [](ProfileLayer &layer) { layer.again.kernels = 64; },
      [](ProfileLayer &layer) { layer.again.bytes = 64; },
      [](ProfileLayer &layer) { layer.again.tpAllReduceBytes = 64; },
      [](ProfileLayer &layer) { layer.weightBytes = 64; },
      [](ProfileLayer &layer) {
        layer.measured = true;
        layer.forward = layer.backward = BatchTimes({{1, 2}});
      },
      [](ProfileLayer &layer) {
        layer.measured = true;
        layer.forward = BatchTimes({{1, 2}});
        layer.backward = BatchTimes({{1, 3}});
      },
      [](ProfileLayer &layer) {
        layer.measured = true;
        layer.forward = layer.backward = BatchTimes({{1, 2}});
        layer.weight = BatchTimes({{1, 1}});
      }};
  std::map<std::string, size_t> known;
  for (const auto &change : changes) {
    size_t number = &change - changes;
    auto [same, isNew] = known.try_emplace(hashOf(change), number);
    EXPECT_TRUE(isNew) << number << " is as " << same->second;
  }
}

/// What is computed again is in backward passes, and not where the whole layer
/// is.
TEST(ProfileLayerModel, a_part_is_computed_again) {
  auto footprintOf = [](bool again, llvm::StringRef strategy) {
    ProfileLayer layer;
    layer.name = "block";
    layer.forwardFlops = 1e9;
    layer.boundaryBytes = layer.intermediateBytes = 6400;
    if (again)
      layer.again = {1e8, 1e4, 3, 640, 1280};
    auto model = llvm::cantFail(ProfileLayerModel::get("m", "f32", {layer}));
    return llvm::cantFail(model->footprint(
        0, llvm::cantFail(Strategy::parse(strategy)), /*samples=*/2));
  };
  LayerFootprint none = footprintOf(false, "tp2"),
                 some = footprintOf(true, "tp2");
  EXPECT_EQ(some.recomputeFlops, 2e8);
  EXPECT_EQ(some.recomputeMovedBytes, 2e4);
  EXPECT_EQ(some.recomputeKernels, 3);
  EXPECT_EQ(some.backwardTransient - none.backwardTransient, 1280);
  EXPECT_EQ(some.bytesOf(CollectiveGroup::Tensor, Collective::AllReduce,
                         CollectiveTime::Recompute),
            2560);
  EXPECT_EQ(some.stashBytes, none.stashBytes);
  EXPECT_EQ(some.forwardFlops, none.forwardFlops);
  LayerFootprint all = footprintOf(false, "tp2.ckpt"),
                 same = footprintOf(true, "tp2.ckpt");
  EXPECT_EQ(same.recomputeFlops, all.recomputeFlops);
  EXPECT_EQ(same.backwardTransient, all.backwardTransient);
}

TEST(ProfileLayerModel, memory) {
  LayerFootprint plain = footprint(1, "dp2", 2);
  EXPECT_EQ(plain.inputBytes, 1280);
  EXPECT_EQ(plain.stashBytes, 12800);
  EXPECT_EQ(plain.parameterBytes, 8192);
  EXPECT_EQ(plain.optimizerBytes, 2 * 8192);
  EXPECT_EQ(plain.bytesOf(CollectiveGroup::Gradients, Collective::AllReduce,
                          CollectiveTime::Step),
            8192);
  LayerFootprint checkpointed = footprint(1, "dp2.ckpt", 2);
  EXPECT_EQ(checkpointed.stashBytes, 0);
  EXPECT_EQ(checkpointed.backwardTransient, 12800);
  LayerFootprint split = footprint(1, "tp2", 2);
  EXPECT_EQ(split.stashBytes, 2560 + 5120);
  EXPECT_EQ(split.parameterBytes, 4096);
  EXPECT_EQ(tensorCalls(split, CollectiveTime::Forward).bytes, 2 * 2 * 640);
  LayerFootprint sharded = footprint(1, "sdp4", 2);
  EXPECT_EQ(sharded.parameterBytes, 2048);
  EXPECT_EQ(sharded.bytesOf(CollectiveGroup::Parameters, Collective::AllGather,
                            CollectiveTime::Forward),
            8192);
  EXPECT_EQ(sharded.backwardTransient, 2 * 8192);
}

TEST(ProfileLayerModel, times) {
  EXPECT_DOUBLE_EQ(footprint(1, "dp2", 3).forwardSeconds, 6e-3);
  EXPECT_DOUBLE_EQ(footprint(1, "tp2", 2).forwardSeconds, 2e-3);
  // Measured points: linear between and beyond, through the origin below.
  EXPECT_DOUBLE_EQ(footprint(1, "dp2", 1).backwardSeconds, 4e-3);
  EXPECT_DOUBLE_EQ(footprint(1, "dp2", 2).backwardSeconds, 6e-3);
  EXPECT_DOUBLE_EQ(footprint(1, "dp2", 4).backwardSeconds, 10e-3);
  EXPECT_DOUBLE_EQ(footprint(1, "dp2.ckpt", 3).recomputeSeconds, 6e-3);
  EXPECT_DOUBLE_EQ(BatchTimes({{2, 6}}).milliseconds(1), 3);
}

const char *measuredTwice = R"({"version": 1, "layers": [
  {"name": "a", "times": [
     {"device-type": "new", "forward-ms": 1, "backward-ms": 2},
     {"device-type": "old", "forward-ms": 4, "backward-ms": 9},
     {"device-type": "new", "tp": 2, "forward-ms": 0.75, "backward-ms": 1.5},
     {"device-type": "old", "tp": 2, "forward-ms": 3, "backward-ms": 6}],
   "parameter-bytes": 64, "boundary-bytes": 640, "intermediate-bytes": 0},
  {"name": "b", "times": [{"forward-ms": 1, "backward-ms": 2}],
   "parameter-bytes": 64, "boundary-bytes": 640, "intermediate-bytes": 0}]})";

TEST(ProfileLayerModel, times_by_device_type_and_tensor_degree) {
  auto twice = model(measuredTwice);
  EXPECT_EQ(twice->measuredTypes(), (std::vector<std::string>{"new", "old"}));
  auto of = [&](const char *strategy) {
    return llvm::cantFail(twice->footprint(0, get(strategy), 2));
  };
  LayerFootprint one = of("single");
  ASSERT_EQ(one.measuredOn.size(), 2u);
  EXPECT_EQ(one.measuredOn[1].deviceType, "old");
  EXPECT_DOUBLE_EQ(one.measuredOn[1].forward, 8e-3);
  EXPECT_DOUBLE_EQ(one.measuredOn[1].backward, 18e-3);
  // What was measured under tp2 has its all-reduces.
  LayerFootprint two = of("tp2");
  EXPECT_DOUBLE_EQ(two.measuredOn[0].forward, 1.5e-3);
  EXPECT_EQ(tensorCalls(two, CollectiveTime::Forward).bytes, 0);
  EXPECT_EQ(tensorCalls(two, CollectiveTime::Forward).calls, 0);
  // Under tp4 nothing was: a quarter of one device's, and all-reduces.
  LayerFootprint four = of("tp4");
  EXPECT_DOUBLE_EQ(four.measuredOn[0].forward, 0.5e-3);
  EXPECT_EQ(tensorCalls(four, CollectiveTime::Forward).calls, 2);
  // Of what stands between products nothing was measured.
  llvm::Expected<LayerFootprint> rows = twice->footprint(0, get("tsp2"), 2);
  ASSERT_FALSE(bool(rows));
  EXPECT_EQ(llvm::toString(rows.takeError()),
            "'tsp' divides rows between products, and a profile does not say "
            "what these take");
  // Without a device type: on every one.
  LayerFootprint every =
      llvm::cantFail(twice->footprint(1, get("single.ckpt"), 2));
  EXPECT_TRUE(every.measuredOn.empty());
  EXPECT_DOUBLE_EQ(every.forwardSeconds, 2e-3);
  EXPECT_DOUBLE_EQ(every.recomputeSeconds, 2e-3);
  EXPECT_NE(twice->hash(), model(profile)->hash());
}

TEST(ProfileLayerModel, the_slowest_device_type_of_a_group_decides) {
  Cluster cluster = llvm::cantFail(Cluster::parse(R"(
name: two
device-types:
  - {name: new, backend: cuda, memory: 1GiB, flops: {f32: 9TFLOPS},
     memory-bandwidth: 1TB/s}
  - {name: old, backend: cuda, memory: 1GiB, flops: {f32: 1TFLOPS},
     memory-bandwidth: 1TB/s}
network: {bandwidth: 1GB/s, latency: 0us}
nodes:
  - {count: 1, device-type: new, devices: 1}
  - {count: 1, device-type: old, devices: 1}
)",
                                                  "two.yaml"));
  auto twice = model(measuredTwice);
  auto forward = [&](const char *strategy, std::vector<int64_t> devices) {
    Strategy parsed = get(strategy);
    return layerTimeParts(llvm::cantFail(twice->footprint(0, parsed, 2)),
                          parsed, linksOf(cluster, parsed, devices), cluster,
                          devices, "f32");
  };
  EXPECT_DOUBLE_EQ(forward("single", {0}).forward, 2e-3);
  EXPECT_DOUBLE_EQ(forward("single", {1}).forward, 8e-3);
  EXPECT_DOUBLE_EQ(forward("dp2.ckpt", {0, 1}).forward, 8e-3);
  EXPECT_DOUBLE_EQ(forward("dp2.ckpt", {1, 0}).backward, 18e-3);
  EXPECT_DOUBLE_EQ(forward("dp2.ckpt", {1, 0}).recompute, 8e-3);
}

TEST(ProfileLayerModel, times_that_contradict_each_other_are_refused) {
  auto refused = [&](const char *from, const char *to) {
    return errorOf(measuredTwice, from, to);
  };
  EXPECT_EQ(refused(R"("old", "tp": 2)", R"("old", "tp": 4)"),
            "layer 'a': expected 'times' of the same degrees for device types "
            "'new' and 'old'");
  EXPECT_EQ(refused(R"("old", "tp": 2)", R"("new", "tp": 2)"),
            "layer 'a': 'times' has degree 2 twice for device type 'new'");
  EXPECT_EQ(refused(R"({"forward-ms": 1, "backward-ms": 2})",
                    R"({"tp": 2, "forward-ms": 1, "backward-ms": 2})"),
            "layer 'b': expected 'times' of tensor parallelism of degree 1");
  EXPECT_EQ(
      refused(R"({"forward-ms": 1, "backward-ms": 2})",
              R"({"device-type": "new", "forward-ms": 1, "backward-ms": 2})"),
      "layer 'b': expected 'times' on the device types of the layers before "
      "it");
  EXPECT_EQ(refused(R"("old", "forward-ms": 4)", R"("", "forward-ms": 4)"),
            "layer 'a': expected 'times' of the same degrees for device types "
            "'' and 'new'");
  EXPECT_EQ(refused(R"("tp": 2)", R"("tp": 0)"),
            "'layers[0].times[2].tp': expected at least 1, found 0");
  EXPECT_EQ(refused(R"({"forward-ms": 1, "backward-ms": 2})",
                    R"({"forward-ms": 1, "backward-ms": 2},
                       {"device-type": "new", "forward-ms": 1,
                        "backward-ms": 2})"),
            "layer 'b': expected a device type in all of 'times' or in none");
  EXPECT_EQ(refused(R"("name": "b", )", R"("name": "b", "forward-ms": 1, )"),
            "'layers[1].forward-ms': expected either it or 'times', found "
            "both");
}

TEST(ProfileLayerModel, flops_with_their_product_size) {
  auto sized = model(R"({"version": 1, "layers": [
    {"name": "a", "forward-flops": 6000, "forward-moved-bytes": 800,
     "forward-kernels": 5, "parameter-bytes": 4000, "boundary-bytes": 400,
     "intermediate-bytes": 1600, "tp-replicated-bytes": 400},
    {"name": "b", "forward-flops": 6000, "forward-product-bytes": 4000,
     "parameter-bytes": 4000, "boundary-bytes": 400,
     "intermediate-bytes": 1600}]})");
  auto of = [&](size_t kind, const char *strategy, int64_t samples) {
    return llvm::cantFail(sized->footprint(kind, get(strategy), samples));
  };
  // Two samples: 12000 FLOPs over 1000 parameters and 2 * 500 activations of 4
  // bytes: 1.5 * 12000 / 2000.
  LayerFootprint two = of(0, "single.ckpt", 2);
  ASSERT_EQ(two.forwardProducts.size(), 1u);
  EXPECT_EQ(two.forwardProducts[0].flops, 12000);
  EXPECT_DOUBLE_EQ(two.forwardProducts[0].size, 9);
  EXPECT_EQ(two.backwardProducts[0].flops, 24000);
  EXPECT_DOUBLE_EQ(two.backwardProducts[0].size, 9);
  EXPECT_EQ(two.recomputeProducts[0].flops, 12000);
  EXPECT_EQ(two.recomputeKernels, 5);
  EXPECT_EQ(two.backwardKernels, 10);
  // Under tp4 a quarter of the activations stays whole, 1/4 + 3/4 / 4 = 7/16 of
  // the bytes are left: 1.5 * 3000 / (250 + 2 * 500 * 7/16).
  LayerFootprint split = of(0, "tp4", 2);
  EXPECT_DOUBLE_EQ(split.forwardProducts[0].size, 1.5 * 3000 / (250 + 437.5));
  EXPECT_DOUBLE_EQ(split.forwardMovedBytes, 2 * 800 * 7 / 16.0);
  // What the products touch may be given: 1000 elements a sample.
  EXPECT_DOUBLE_EQ(of(1, "single", 2).forwardProducts[0].size,
                   1.5 * 12000 / 3000);
}

TEST(ProfileLayerModel, attention_is_a_product_of_its_own) {
  auto attends = model(R"({"version": 1, "layers": [
    {"name": "a", "forward-flops": 6000, "forward-attention-flops": 1000,
     "forward-attention-bytes": 800, "parameter-bytes": 4000,
     "boundary-bytes": 400, "intermediate-bytes": 1600,
     "tp-replicated-bytes": 400}]})");
  EXPECT_EQ(attends->flopsPerSample(), 3 * 7000);
  LayerFootprint split =
      llvm::cantFail(attends->footprint(0, get("tp2.ckpt"), 4));
  EXPECT_EQ(split.forwardFlops, 4 * 3500);
  ASSERT_EQ(split.forwardProducts.size(), 2u);
  EXPECT_FALSE(split.forwardProducts[0].attention);
  EXPECT_TRUE(split.forwardProducts[1].attention);
  EXPECT_EQ(split.forwardProducts[1].flops, 2000);
  // Whatever the samples and TP: 1.5 * 1000 / 200.
  EXPECT_DOUBLE_EQ(split.forwardProducts[1].size, 7.5);
  EXPECT_EQ(split.backwardProducts[1].flops, 4000);
  EXPECT_EQ(split.recomputeProducts[1].flops, 2000);
}

TEST(ProfileLayerModel, backward_of_attention_may_compute_scores_again) {
  std::string text = R"({"version": 1, "layers": [
    {"name": "a", "forward-flops": 6000, "forward-attention-flops": 1000,
     "forward-attention-bytes": 800, "backward-attention-flops": 2500,
     "parameter-bytes": 4000, "boundary-bytes": 400,
     "intermediate-bytes": 1600}]})";
  auto again = model(text);
  LayerFootprint split =
      llvm::cantFail(again->footprint(0, get("tp2.ckpt"), 4));
  ASSERT_EQ(split.backwardProducts.size(), 2u);
  EXPECT_EQ(split.backwardProducts[0].flops, 4 * 6000);
  EXPECT_EQ(split.backwardProducts[1].flops, 4 * 1250);
  EXPECT_EQ(split.backwardFlops, 4 * 7250);
  // A recomputed forward pass is a forward pass, and utilisation counts no
  // scores twice.
  EXPECT_EQ(split.recomputeProducts[1].flops, 2000);
  EXPECT_EQ(again->flopsPerSample(), 3 * 7000);
  std::string plain = text;
  plain.replace(plain.find(R"("backward-attention-flops": 2500,)"), 33, "");
  auto twice = model(plain);
  EXPECT_EQ(
      llvm::cantFail(twice->footprint(0, get("tp2.ckpt"), 4)).backwardFlops,
      4 * 7000);
  EXPECT_NE(twice->hash(), again->hash());
}

TEST(ProfileLayerModel, bf16_keeps_its_gradients_in_f32) {
  auto half = model(R"({"version": 1, "dtype": "bf16", "layers": [
    {"name": "a", "forward-flops": 6000, "forward-moved-bytes": 800,
     "parameter-bytes": 4096, "boundary-bytes": 400,
     "intermediate-bytes": 1600}]})");
  LayerFootprint sharded = llvm::cantFail(half->footprint(0, get("sdp2"), 1));
  // 2048 elements: gathered with 2 bytes, summed and scattered with 4.
  EXPECT_EQ(sharded.parameterBytes, 2048);
  EXPECT_EQ(sharded.gradientBytes, 4096);
  EXPECT_EQ(sharded.bytesOf(CollectiveGroup::Parameters, Collective::AllGather,
                            CollectiveTime::Forward),
            4096);
  EXPECT_EQ(sharded.bytesOf(CollectiveGroup::Parameters,
                            Collective::ReduceScatter,
                            CollectiveTime::Backward),
            8192);
  // Two moments and the master, 12 bytes an element.
  EXPECT_EQ(sharded.optimizerBytes, 12288);
  EXPECT_EQ(llvm::cantFail(half->footprint(0, get("dp2"), 1))
                .bytesOf(CollectiveGroup::Gradients, Collective::AllReduce,
                         CollectiveTime::Step),
            8192);
  EXPECT_EQ(sharded.backwardMovedBytes, 1600);
}

TEST(ProfileLayerModel, gradients_may_be_summed_in_the_type_of_the_values) {
  std::string text = R"({"version": 1, "dtype": "f16", "gradient-dtype": "f16",
    "layers": [{"name": "a", "forward-flops": 6000, "parameter-bytes": 4096,
     "boundary-bytes": 400, "intermediate-bytes": 1600}]})";
  auto half = model(text);
  // 2048 elements, 2 bytes each wherever gradients are kept, summed and read.
  LayerFootprint whole = llvm::cantFail(half->footprint(0, get("dp2"), 1));
  EXPECT_EQ(whole.gradientBytes, 4096);
  EXPECT_EQ(whole.bytesOf(CollectiveGroup::Gradients, Collective::AllReduce,
                          CollectiveTime::Step),
            4096);
  EXPECT_EQ(whole.normBytes, 4096);
  // Master and moments stay f32: read and written, the gradient read, the
  // parameter written.
  EXPECT_EQ(whole.optimizerBytes, 2048 * 12);
  EXPECT_EQ(whole.updateBytes, 2048 * (2 * 12 + 2 + 2));
  LayerFootprint cut = llvm::cantFail(half->footprint(0, get("zdp2"), 1));
  EXPECT_EQ(cut.bytesOf(CollectiveGroup::Gradients, Collective::ReduceScatter,
                        CollectiveTime::Step),
            4096);
  LayerFootprint sharded = llvm::cantFail(half->footprint(0, get("sdp2"), 1));
  EXPECT_EQ(sharded.gradientBytes, 2048);
  EXPECT_EQ(sharded.bytesOf(CollectiveGroup::Parameters,
                            Collective::ReduceScatter,
                            CollectiveTime::Backward),
            4096);

  std::string usual = text;
  usual.replace(usual.find(R"("gradient-dtype": "f16",)"), 24, "");
  EXPECT_NE(half->hash(), model(usual)->hash());
  usual = text;
  usual.replace(usual.find(R"("gradient-dtype": "f16")") + 18, 5, R"("f32")");
  EXPECT_EQ(
      llvm::cantFail(model(usual)->footprint(0, get("dp2"), 1)).gradientBytes,
      8192);
  EXPECT_EQ(errorOf(text, R"("gradient-dtype": "f16")",
                    R"("gradient-dtype": "bf16")"),
            "profile 'toy': expected gradient-dtype 'f32' or 'f16', found "
            "'bf16'");
  EXPECT_EQ(errorOf(text, R"("dtype": "f16")", R"("dtype": "f32")"),
            "profile 'toy': expected gradient-dtype 'f32', found 'f16'");
}

TEST(ProfileLayerModel, sharded_parameters_are_gathered_ahead_if_it_says_so) {
  std::string text = R"({"version": 1, "gathers-ahead": true, "layers": [
    {"name": "a", "forward-flops": 6000, "parameter-bytes": 4096,
     "boundary-bytes": 400, "intermediate-bytes": 1600}]})";
  auto ahead = model(text);
  LayerFootprint sharded = llvm::cantFail(ahead->footprint(0, get("sdp2"), 1));
  EXPECT_EQ(sharded.forwardGathered, 4096);
  EXPECT_EQ(sharded.backwardGathered, 4096);
  // A part of the temporaries, not more of them.
  EXPECT_EQ(sharded.forwardTransient, 4096);
  EXPECT_EQ(llvm::cantFail(ahead->footprint(0, get("dp2"), 1)).forwardGathered,
            0);
  text.replace(text.find("true"), 4, "false");
  auto behind = model(text);
  EXPECT_EQ(
      llvm::cantFail(behind->footprint(0, get("sdp2"), 1)).forwardGathered, 0);
  EXPECT_NE(ahead->hash(), behind->hash());
}

TEST(ProfileLayerModel, gradients_may_be_added_by_another_kernel) {
  std::string text = R"({"version": 1, "dtype": "bf16", "adds-gradients": true,
    "layers": [{"name": "a", "forward-flops": 6000, "forward-moved-bytes": 800,
                "parameter-bytes": 4096, "boundary-bytes": 400,
                "intermediate-bytes": 1600}]})";
  auto adds = model(text);
  // 2048 elements: 2 bytes are read, 4 read and written; samples do not matter.
  EXPECT_EQ(
      llvm::cantFail(adds->footprint(0, get("single"), 1)).backwardMovedBytes,
      1600 + 2048 * 10);
  EXPECT_EQ(
      llvm::cantFail(adds->footprint(0, get("single"), 3)).backwardMovedBytes,
      4800 + 2048 * 10);
  // Each rank adds its part.
  EXPECT_EQ(
      llvm::cantFail(adds->footprint(0, get("sdp2"), 1)).backwardMovedBytes,
      1600 + 1024 * 10);
  text.replace(text.find("true"), 4, "false");
  auto whole = model(text);
  EXPECT_EQ(
      llvm::cantFail(whole->footprint(0, get("single"), 1)).backwardMovedBytes,
      1600);
  EXPECT_NE(adds->hash(), whole->hash());
}

TEST(ProfileLayerModel, sharded_states_may_have_gradients_summed_everywhere) {
  std::string text = R"({"version": 1, "dtype": "bf16",
    "all-reduces-gradients": true, "layers": [
    {"name": "a", "forward-flops": 6000, "parameter-bytes": 4096,
     "boundary-bytes": 400, "intermediate-bytes": 1600}]})";
  auto everywhere = model(text);
  LayerFootprint sharded =
      llvm::cantFail(everywhere->footprint(0, get("zdp2"), 1));
  EXPECT_EQ(sharded.bytesOf(CollectiveGroup::Gradients, Collective::AllReduce,
                            CollectiveTime::Step),
            8192);
  EXPECT_EQ(sharded.bytesOf(CollectiveGroup::Gradients,
                            Collective::ReduceScatter, CollectiveTime::Step),
            0);
  EXPECT_EQ(sharded.bytesOf(CollectiveGroup::Gradients, Collective::AllGather,
                            CollectiveTime::Update),
            4096);
  text.replace(text.find("true"), 4, "false");
  auto scattered = model(text);
  sharded = llvm::cantFail(scattered->footprint(0, get("zdp2"), 1));
  EXPECT_EQ(sharded.bytesOf(CollectiveGroup::Gradients, Collective::AllReduce,
                            CollectiveTime::Step),
            0);
  EXPECT_EQ(sharded.bytesOf(CollectiveGroup::Gradients,
                            Collective::ReduceScatter, CollectiveTime::Step),
            8192);
  EXPECT_EQ(sharded.bytesOf(CollectiveGroup::Gradients, Collective::AllGather,
                            CollectiveTime::Update),
            4096);
  EXPECT_NE(everywhere->hash(), scattered->hash());
}

TEST(ProfileLayerModel, what_is_sent_and_moved_under_tp_may_be_said) {
  std::string text = R"({"version": 1, "layers": [
    {"name": "a", "forward-flops": 6000, "forward-moved-bytes": 800,
     "tp-replicated-moved-bytes": 600, "parameter-bytes": 4096,
     "boundary-bytes": 0, "intermediate-bytes": 1600},
    {"name": "b", "forward-flops": 6000, "parameter-bytes": 4096,
     "boundary-bytes": 400, "sent-bytes": 100, "intermediate-bytes": 1600}]})";
  auto says = model(text);
  EXPECT_EQ(says->boundaryBytesPerSample(0), 100);
  EXPECT_EQ(says->boundaryBytesPerSample(1), 0);
  // What a stage keeps is all of it.
  EXPECT_EQ(llvm::cantFail(says->footprint(1, get("tp4"), 1)).inputBytes, 448);
  // 600 on every rank, and a quarter of the others.
  EXPECT_EQ(llvm::cantFail(says->footprint(0, get("tp4"), 2)).forwardMovedBytes,
            2 * (600 + 50));
  EXPECT_EQ(errorOf(text, R"("sent-bytes": 100)", R"("sent-bytes": 401)"),
            "layer 'b': 'sent-bytes' is a part of 'boundary-bytes', found 401 "
            "of 400");
  EXPECT_EQ(errorOf(text, R"(moved-bytes": 600)", R"(moved-bytes": 801)"),
            "layer 'a': 'tp-replicated-moved-bytes' is a part of "
            "'forward-moved-bytes', found more");
  std::string plain = text;
  plain.replace(plain.find(R"("sent-bytes": 100, )"), 19, "");
  EXPECT_EQ(model(plain)->boundaryBytesPerSample(0), 400);
  EXPECT_NE(model(plain)->hash(), says->hash());
}

TEST(ProfileLayerModel, a_borrowed_parameter_is_updated_by_its_owner) {
  std::string text = R"({"version": 1, "layers": [
    {"name": "table", "forward-flops": 0, "parameter-bytes": 8192,
     "boundary-bytes": 0, "intermediate-bytes": 0},
    {"name": "head", "forward-flops": 6000, "parameter-bytes": 12288,
     "borrowed-bytes": 8192, "boundary-bytes": 400, "intermediate-bytes": 0}]})";
  auto tied = model(text);
  std::string plain = text;
  plain.replace(plain.find(R"("borrowed-bytes": 8192, )"), 24, "");
  auto own = model(plain);
  EXPECT_NE(tied->hash(), own->hash());
  EXPECT_TRUE(own->ties().empty());
  ASSERT_EQ(tied->ties().size(), 1u);
  EXPECT_EQ(tied->ties()[0].ownerLayer, 0u);
  EXPECT_EQ(tied->ties()[0].borrowerLayer, 1u);
  EXPECT_EQ(tied->ties()[0].bytes, 8192);
  // It is counted once, held twice, and has one optimizer state.
  EXPECT_EQ(tied->parameterCount(), 3072);
  EXPECT_EQ(own->parameterCount(), 5120);
  auto footprint = llvm::cantFail(tied->footprint(1, get("single"), 1));
  EXPECT_EQ(footprint.parameterBytes, 12288);
  EXPECT_EQ(footprint.gradientBytes, 12288);
  EXPECT_EQ(footprint.borrowedGradientBytes, 8192);
  EXPECT_EQ(footprint.optimizerBytes, 2 * 4096);
  EXPECT_EQ(footprint.normBytes, 4096);
  // Under ZDP its gradient goes whole to the owner.
  footprint = llvm::cantFail(tied->footprint(1, get("zdp2"), 1));
  EXPECT_EQ(footprint.bytesOf(CollectiveGroup::Gradients,
                              Collective::ReduceScatter, CollectiveTime::Step),
            4096);
  EXPECT_EQ(footprint.bytesOf(CollectiveGroup::Gradients, Collective::AllReduce,
                              CollectiveTime::Step),
            8192);
  EXPECT_EQ(footprint.bytesOf(CollectiveGroup::Gradients, Collective::AllGather,
                              CollectiveTime::Update),
            4096);
  EXPECT_EQ(footprint.optimizerBytes, 4096);
  EXPECT_EQ(
      errorOf(text, R"("borrowed-bytes": 8192)", R"("borrowed-bytes": 12289)"),
      "layer 'head': 'borrowed-bytes' is a part of 'parameter-bytes' of "
      "a layer behind the first, found 12289 of 12288");
  EXPECT_EQ(
      errorOf(text, R"("borrowed-bytes": 8192)", R"("borrowed-bytes": 8193)"),
      "layer 'head': expected 'borrowed-bytes' that the first layer has, "
      "found 8193 of 8192");
  EXPECT_EQ(errorOf(text, R"("name": "head")", R"("name": "head", "count": 2)"),
            "layer 'head': expected a count of 1 beside 'borrowed-bytes', as "
            "the first layer has");
}

TEST(ProfileLayerModel, the_measured_device_is_kept) {
  std::string text = profile;
  text.replace(text.find("\"dtype\""), 0, "\"measured-flops\": \"2TFLOPS\", ");
  auto scaled = model(text);
  EXPECT_EQ(
      llvm::cantFail(scaled->footprint(1, get("single"), 1)).measuredFlops,
      2e12);
  EXPECT_NE(scaled->hash(), model(profile)->hash());
  EXPECT_NE(errorOf(text, "2TFLOPS", "2").find("'measured-flops': expected"),
            std::string::npos);
}

TEST(ProfileLayerModel, wrong_profiles_are_refused) {
  EXPECT_EQ(errorOf(profile, "\"version\": 1", "\"version\": 3"),
            "'version': expected 1, found 3");
  EXPECT_EQ(errorOf(profile, "\"boundary-bytes\": 0,", ""),
            "missing key 'layers[0].boundary-bytes'");
  EXPECT_EQ(
      errorOf(profile, "\"parameter-bytes\": 4096", "\"parameter-bytes\": -1"),
      "'layers[0].parameter-bytes': expected an integer of at least 0, "
      "found -1");
  EXPECT_EQ(errorOf(profile, "[[1, 4], [2, 6]]", "[[1, 4], [1, 6]]"),
            "'layers[1].backward-ms': a batch is listed twice");
  EXPECT_EQ(errorOf(profile, "\"count\": 2", "\"cuont\": 2"),
            "unknown key 'layers[1].cuont'; did you mean 'count'?");
  EXPECT_EQ(errorOf(profile, "\"boundary-bytes\"", "\"boundary_bytes\""),
            "unknown key 'layers[0].boundary_bytes'; did you mean "
            "'boundary-bytes'?");
  EXPECT_EQ(errorOf(profile, "\"count\": 2", "\"count\": 0"),
            "layer 'block': expected a count from 1 to 1000000, found 0");
  EXPECT_EQ(
      errorOf(profile, "f32", "f8"),
      "profile 'toy': expected an element type 'f32', 'tf32', 'f16', 'bf16' or "
      "'f64', found 'f8'");
  EXPECT_NE(errorOf(profile, "\"forward-ms\": 1",
                    "\"forward-ms\": 1, \"forward-flops\": 3")
                .find("either times or FLOPs"),
            std::string::npos);
}

} // namespace
