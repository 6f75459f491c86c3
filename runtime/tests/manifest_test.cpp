//===- manifest_test.cpp - Manifests that must be refused -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/layout.h"
#include "core/manifest.h"
#include "test_program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <random>

using namespace grt;
using namespace grt::test;
using Json = nlohmann::json;

namespace {

/// Two stages on four ranks with reshards, ties and all axes.
Json goodManifest() {
  ModelPlan plan;
  plan.tied = true;
  plan.layers[0].levels = {{"dp", 2}, {"tp", 2}};
  plan.layers[1].levels = {{"sdp", 4}};
  plan.layers[2].levels = {{"tp", 2}, {"dp", 2}};
  plan.stages = {{{0, 1}, {0, 1, 2, 3}}, {{2}, {4, 5, 6, 7}}};
  return Json::parse(TestProgram(plan).manifest());
}

/// The message with which a manifest is refused, or "".
std::string refusal(const std::string &text) {
  try {
    Manifest manifest = parseManifest(text);
    checkWiring(manifest);
    return "";
  } catch (const Error &error) {
    EXPECT_EQ(error.exitCode(), 2);
    return error.what();
  }
}

TEST(Manifest, AGoodOneIsAccepted) {
  EXPECT_EQ(refusal(goodManifest().dump()), "");
}

TEST(Manifest, WrongOnesAreRefusedWithTheirPlace) {
  struct Case {
    std::function<void(Json &)> change;
    std::string message;
  };
  auto layer = [](Json &m, int role, int index) -> Json & {
    return m["roles"][role]["layers"][index];
  };
  // Moves a boundary buffer over the first 64 bytes of temporaries.
  auto moveBoundary = [&](Json &m, int buffer) {
    Json &arena = m["roles"][0]["arena"];
    int64_t begin = arena["boundary"][0], half = arena["boundary"][1];
    half /= 2;
    int64_t temporaries = arena["slots"][0].get<int64_t>() +
                          layer(m, 0, 0)["transient"].get<int64_t>();
    arena["boundary"] = {{begin, half}, {begin + half, half}};
    arena["boundary"][buffer][0] =
        buffer == 0 ? temporaries : temporaries + 64 - half;
  };
  const Case cases[] = {
      {[](Json &m) { m.erase("abi"); }, "manifest: missing key 'abi'"},
      {[](Json &m) { m["abi"] = 1; },
       "abi: expected version 6, found 1: compile again"},
      {[](Json &m) { m["dtype"] = "f16"; },
       "dtype: expected 'f32', 'f64' or 'bf16', found 'f16'"},
      {[](Json &m) { m["world"] = "8"; }, "world: expected an integer"},
      {[](Json &m) { m["world"] = 9; }, "rank 8 has no role"},
      {[](Json &m) { m["roles"][1]["devices"][3] = 8; },
       "roles[1].devices: rank 8 of a world of 8"},
      {[](Json &m) { m["micro-batches"] = 3; },
       "3 micro-batches do not divide a batch of 8"},
      {[](Json &m) { m["training"]["optimizer"] = "lamb"; },
       "training.optimizer: expected 'adamw', 'adam' or 'sgd', found 'lamb'"},
      {[](Json &m) {
         m["parameters"][0]["init"] = {{"kind", "sinusoids"}};
         m["parameters"][0]["shape"] = {2, 3, 4};
       },
       "parameters[0].init: expected a matrix for kind 'sinusoids', found 3 "
       "dimensions"},
      {[](Json &m) { m["parameters"][0]["init"]["kind"] = "uniform"; },
       "parameters[0].init: expected kind 'normal'"},
      {[](Json &m) { m["parameters"][1]["shape"] = {8, 9}; },
       "view of 'mix.weight' has 64 elements, expected 72"},
      {[](Json &m) { m["parameters"][1]["shape"] = {8, 0}; },
       "parameters[1].shape[1]: expected an integer from 1 to "},
      {[](Json &m) { m["roles"][1]["devices"][0] = 3; }, "rank 3 stands twice"},
      {[](Json &m) { m["roles"][0]["arena"]["slots"][0] = 8; },
       "roles[0].arena.slots[0]: expected a multiple of 64, found 8"},
      {[](Json &m) { m["roles"][0]["arena"]["slots"][1] = 1 << 30; },
       "roles[0].arena.slots: leaves the arena of"},
      {[](Json &m) { m["roles"][0]["arena"]["step"][1] = 8; },
       "roles[0].arena.step: expected at least"},
      {[](Json &m) { m["roles"][0]["arena"]["data"][1] = 8; },
       "roles[0].data[0].extent: leaves the data region of 8 bytes"},
      {[](Json &m) { m["data"][0]["type"] = "i64"; },
       "data[0].type: expected 'i32', 'f32', 'f64' or 'bf16', found 'i64'"},
      {[](Json &m) { m["data"][0]["bytes-per-sample"] = 15; },
       "data[0].bytes-per-sample: expected the bytes of 4 values of i32, found "
       "15"},
      {[](Json &m) { m["data"][0].erase("below"); },
       "data[0]: missing key 'below'"},
      {[](Json &m) { m["data"][1]["counted"] = false; },
       "data: expected one datum that is counted, found 0"},
      {[](Json &m) { m["data"][0]["counted"] = true; },
       "data: expected one datum that is counted, found 2"},
      {[](Json &m) { m["data"][1]["type"] = "f32"; },
       "data[1].counted: only integers are counted, found f32"},
      {[](Json &m) { m["data"][1]["name"] = "tokens"; },
       "data[1].name: two data are called 'tokens'"},
      {[](Json &m) { m["roles"][0]["data"][0]["datum"] = 2; },
       "roles[0].data[0].datum: expected an integer from 0 to 1, found 2"},
      {[](Json &m) { m["roles"][0]["data"][0]["extent"][1] = 65; },
       "roles[0].data[0].extent: expected as many bytes for each of 2 "
       "micro-batches, found 65"},
      {[](Json &m) {
         m["roles"][0]["data"].push_back(m["roles"][0]["data"][0]);
       },
       "roles[0].data[1].extent: begins in the copy before it"},
      {[&](Json &m) { layer(m, 0, 0)["data"] = Json::array(); },
       "roles[0].data[0]: no layer reads it"},
      {[&](Json &m) { layer(m, 0, 0)["data"] = {1}; },
       "roles[0].layers[0].data[0]: expected an integer from 0 to 0, found 1"},
      {[](Json &m) { m["roles"][0]["data"][0]["extent"][1] = 32; },
       "roles[0].layers[0].data[0]: a micro-batch of 'tokens' takes"},
      {[](Json &m) { m["roles"][0]["ledger"]["all"] = 64; },
       "roles[0].ledger: sums to 64 bytes, expected the arena's"},
      {[](Json &m) { m["roles"][0]["chunks"][0]["slots"] = 50; },
       "roles[0].chunks: 50 slots of"},
      {[&](Json &m) { layer(m, 0, 0)["forward"] = 15; },
       "roles[0].layers[0].forward: expected an integer from 0 to 14"},
      {[&](Json &m) { layer(m, 0, 0)["levels"][0]["degree"] = 4; },
       "degrees multiply to 8, expected 4 devices"},
      {[&](Json &m) { layer(m, 0, 0)["levels"][0]["stride"] = 1; },
       "expected stride 2, found 1"},
      {[&](Json &m) { layer(m, 0, 0)["levels"][0]["kind"] = "ep"; },
       "expected kind 'dp', 'sdp', 'tp', 'zdp', 'cp', 'scp', 'zcp' or "
       "'replica', found 'ep'"},
      {[&](Json &m) { layer(m, 0, 0)["levels"][0]["kind"] = "tp"; },
       "kind 'tp' stands twice"},
      {[&](Json &m) {
         layer(m, 0, 0)["levels"][0]["kind"] = "cp";
         layer(m, 0, 0)["levels"][1]["kind"] = "scp";
       },
       "kind 'scp' stands twice, or beside one that it cannot stand beside"},
      {[&](Json &m) {
         layer(m, 0, 0)["levels"][0]["kind"] = "zcp";
         layer(m, 0, 0)["levels"][1]["kind"] = "dp";
       },
       "kind 'dp' stands twice, or beside one that it cannot stand beside"},
      {[&](Json &m) { layer(m, 0, 0)["levels"][1]["kind"] = "replica"; },
       "does not match the view of 'wte.weight' cut in 1 along dimension 0"},
      {[&](Json &m) { layer(m, 0, 0)["samples"] = 1; },
       "2 blocks of 1 samples, expected a micro-batch of 4"},
      {[&](Json &m) { layer(m, 0, 0)["tensors"][0]["local-shape"][0] = 5; },
       "does not match the view of 'wte.weight' cut in 2 along dimension 0"},
      {[&](Json &m) { layer(m, 0, 0)["tensors"][0]["offset"] = 64; },
       "tensor ends at element"},
      {[&](Json &m) { layer(m, 0, 1)["groups"][0]["shard-elements"] = 8; },
       "expected 4 shards of 8 elements to make"},
      {[&](Json &m) { layer(m, 0, 1)["parameter"] = 1 << 20; },
       "roles[0].layers[1].parameter: parameters leave their region"},
      {[&](Json &m) { layer(m, 0, 1)["stash"] = 1 << 20; },
       "roles[0].layers[1].stash: stash ends at byte"},
      {[&](Json &m) { layer(m, 0, 1)["transient-bytes"] = 1 << 30; },
       "roles[0].layers[1].transient: transients end at byte"},
      {[&](Json &m) { moveBoundary(m, /*buffer=*/1); },
       "'layer1': 1792 bytes of temporaries of forward meet 256 bytes of "
       "boundary buffer 1"},
      {[&](Json &m) { moveBoundary(m, /*buffer=*/0); },
       "'layer1': 1792 bytes of temporaries of backward meet 256 bytes of "
       "boundary buffer 0"},
      {[&](Json &m) {
         layer(m, 0, 1)["forward-gathered"] = {{"offset", 1 << 30}};
       },
       "roles[0].layers[1].forward-gathered: gathered parameters end at byte"},
      {[&](Json &m) { layer(m, 0, 0)["backward-gathered"] = {{"offset", 0}}; },
       "roles[0].layers[0].backward-gathered: nothing of the layer is "
       "sharded"},
      {[&](Json &m) { m["roles"][0]["arena"]["window"] = {0, 64}; },
       "roles[0].arena.window: expected an offset, bytes and a stride, found "
       "2"},
      {[&](Json &m) { m["roles"][0]["arena"]["window"] = {0, 64, 64}; },
       "roles[0].arena.window: expected a stride of at least"},
      {[&](Json &m) { m["roles"][0]["arena"]["window"] = {0, 64, 1 << 30}; },
       "roles[0].arena.window: leaves the arena of"},
      {[&](Json &m) { layer(m, 0, 0)["update"] = nullptr; },
       "a layer that owns parameters needs an update and a norm function"},
      {[&](Json &m) { layer(m, 0, 0)["forward-reshard"] = nullptr; },
       "its output does not reach 'layer1'"},
      {[&](Json &m) { layer(m, 0, 0)["output"] = {{"kind", "loss"}}; },
       "roles[0].layers[0].forward-reshard: needs a boundary output"},
      {[&](Json &m) { layer(m, 0, 1)["output"]["buffer"] = 2; },
       "expected an integer from 0 to 1, found 2"},
      {[&](Json &m) {
         layer(m, 0, 1)["front-bytes"] = 64;
         layer(m, 0, 1)["behind-bytes"] = 64;
         layer(m, 0, 1)["inputs"] = {{0, 0}};
       },
       "roles[0].layers[1].inputs[0]: expected 3 numbers, found 2"},
      {[&](Json &m) {
         layer(m, 0, 1)["front-bytes"] = 64;
         layer(m, 0, 1)["behind-bytes"] = 64;
         layer(m, 0, 1)["inputs"] = {{1 << 30, 0, 64}};
       },
       "roles[0].layers[1].inputs[0]: ends at byte 1073741888 of the"},
      {[&](Json &m) {
         layer(m, 0, 1)["front-bytes"] = 64;
         layer(m, 0, 1)["behind-bytes"] = 64;
         layer(m, 0, 1)["passes"] = {{0, 0, 64, 64, 0}};
       },
       "roles[0].layers[1].passes[0]: ends at byte 128 of the 64 behind the "
       "layer"},
      {[](Json &m) { m["exchanges"][0]["tensors"] = {{1, 0, 0}, {1, 64, 64}}; },
       "exchanges[0].tensors: tensors of 2 bytes a unit, expected"},
      {[](Json &m) { m["roles"][0]["chunks"][0]["send-activation"] = nullptr; },
       "chunk 0 of stage 0: activations are sent by exchange -1"},
      {[](Json &m) { m["roles"][1]["chunks"][0]["send-gradient"] = 0; },
       "chunk 0 of stage 0: gradients are received by exchange"},
      {[](Json &m) { m["roles"][0]["chunks"][0]["recv-activation"] = 0; },
       "chunk 0 of stage 0: the first chunk has no previous one"},
      {[](Json &m) { m["roles"][0]["chunks"][0]["send-gradient"] = 0; },
       "chunk 0 of stage 0: the first chunk has no previous one"},
      {[](Json &m) { m["roles"][1]["chunks"][0]["send-activation"] = 0; },
       "chunk 1 of stage 1: the last chunk has no next one"},
      {[](Json &m) { m["roles"][1]["chunks"][0]["recv-gradient"] = 0; },
       "chunk 1 of stage 1: the last chunk has no next one"},
      {[&](Json &m) {
         layer(m, 1, 0)["output"] = {{"kind", "boundary"}, {"buffer", 0}};
       },
       "chunk 1 of stage 1: the last layer does not give the loss"},
      {[&](Json &m) { layer(m, 0, 1)["output"] = {{"kind", "loss"}}; },
       "chunk 0 of stage 0: the last layer's output is in no boundary buffer"},
      {[&](Json &m) { layer(m, 0, 1)["grad-in"] = nullptr; },
       "chunk 0 of stage 0: gradients need buffers on both sides of the cut"},
      {[&](Json &m) { layer(m, 1, 0)["grad-out"] = nullptr; },
       "chunk 0 of stage 0: gradients need buffers on both sides of the cut"},
      {[&](Json &m) { layer(m, 0, 1)["backward-reshard"] = nullptr; },
       "'layer0': expected an exchange of its gradient, as ranks have other "
       "samples of 'layer1', found none"},
      {[](Json &m) { m["exchanges"][0]["transfers"][0][4] = 100; },
       "manifest: exchange 'exchange0'"},
      {[](Json &m) { m["exchanges"][0]["transfers"][0][0] = 7; },
       "source rank 7 is not in stage 0"},
      {[](Json &m) { m["exchanges"][0]["transfers"][0] = {1, 2}; },
       "exchanges[0].transfers[0]: expected [source, destination"},
      {[](Json &m) { m["ties"][0]["parameter"] = 1; },
       "ties[0].owner: does not name a tensor of the parameter in group 0"},
      {[](Json &m) { m["ties"][0]["borrower"]["layer"] = 4; },
       "ties[0].borrower.layer: expected an integer from 0 to 0"},
      // Six and four micro-batches, of which none are made of whole others; a
      // number that does not divide the batch; no packs at all.
      {[](Json &m) {
         m["batch"] = 12;
         m["micro-batches"] = 4;
         m["forward-packs"] = 1;
         m["forward-micro-batches"] = 6;
       },
       "forward-micro-batches: expected forward packs, and a divisor of the "
       "batch of 12 that divides 4 or is a multiple, found 6"},
      {[](Json &m) {
         m["forward-packs"] = 1;
         m["forward-micro-batches"] = 6;
       },
       "that divides 2 or is a multiple, found 6"},
      {[](Json &m) { m["forward-micro-batches"] = 2; },
       "forward-micro-batches: expected forward packs"},
      {[](Json &m) { m["roles"][0]["stage"] = 1; },
       "manifest: roles: expected stage 0, found 1"},
      {[](Json &m) { m["world"] = UINT64_MAX; }, "world: integer out of range"},
      {[](Json &m) { m["parameters"][0]["shape"] = {1LL << 40, 1LL << 40}; },
       "parameters[0].shape: too many elements"},
      {[](Json &m) { m["roles"][0]["arena"]["parameters"] = {0}; },
       "roles[0].arena.parameters: expected [offset, bytes]"},
      {[](Json &m) {
         int64_t offset = m["roles"][0]["arena"]["boundary"][0];
         m["roles"][0]["arena"]["boundary"] = {offset, 192};
       },
       "roles[0].arena.boundary: expected two halves of a multiple of 64 "
       "bytes"},
      {[](Json &m) { m["roles"][0]["arena"]["window"] = {0, 64, 1LL << 52}; },
       "roles[0].arena.window: is too large"},
      {[](Json &m) { m["roles"][0]["slot-bytes"] = 1LL << 52; },
       "roles[0]: slots are too large"},
      {[](Json &m) { m["roles"][1]["arena"]["loss"][1] = 8; },
       "roles[1].arena.loss: expected 1 f64 per micro-batch"},
      {[&](Json &m) {
         layer(m, 0, 0)["output"] = {{"kind", "loss"}};
         layer(m, 0, 0)["forward-reshard"] = nullptr;
       },
       "roles[0]: only the last layer may give the loss, found 'layer0'"},
      {[&](Json &m) { layer(m, 0, 0)["output"]["kind"] = "disk"; },
       "expected kind 'slot', 'boundary' or 'loss', found 'disk'"},
      {[&](Json &m) { layer(m, 0, 0)["levels"][1]["kind"] = "zdp"; },
       "kind 'zdp' stands twice, or beside one that it cannot stand beside"},
      {[&](Json &m) {
         Json &group = layer(m, 0, 1)["groups"][0];
         group["shard-elements"] = 9;
         group["elements"] = 36;
       },
       "roles[0].layers[1].groups[0]: shard is not a multiple of 64 bytes"},
      {[&](Json &m) { layer(m, 0, 1)["gradient"] = 1 << 20; },
       "roles[0].layers[1].gradient: gradients leave their region"},
      {[&](Json &m) { layer(m, 0, 1)["optimizer"] = 1 << 20; },
       "roles[0].layers[1].optimizer: optimizer state leaves its region"},
      {[&](Json &m) { layer(m, 0, 0)["backward-reshard"] = 0; },
       "roles[0].layers[0].backward-reshard: needs a gradient output and a "
       "previous layer"},
      {[&](Json &m) { layer(m, 0, 0)["resident-optimizer"] = 0; },
       "roles[0].layers[0].resident-optimizer: expected it of packs that run "
       "backward, without clipping, only"},
      {[](Json &m) { m["exchanges"][0]["tensors"] = {{1, 2}}; },
       "exchanges[0].tensors[0]: expected [bytes of a unit, source offset"},
  };
  for (const Case &test : cases) {
    Json manifest = goodManifest();
    test.change(manifest);
    std::string message = refusal(manifest.dump());
    EXPECT_NE(message.find(test.message), std::string::npos)
        << "expected: " << test.message << "\nfound: " << message;
  }
}

TEST(Manifest, SlotsThatDoNotFitAreRefusedWithTheirRoom) {
  Json manifest = goodManifest();
  Json &role = manifest["roles"][0];
  role["chunks"][0]["slots"] = 50;
  EXPECT_EQ(refusal(manifest.dump()),
            "manifest: roles[0].chunks: 50 slots of " +
                role["slot-bytes"].dump() + " bytes, found " +
                role["arena"]["slots"][1].dump());
}

/// States and slots with their home on the host lie inside it.
TEST(Manifest, WhatLeavesTheHomeIsRefused) {
  const std::string names[] = {"parameters", "gradients", "optimizer", "slots"};
  auto withHome = [&] {
    Json m = goodManifest();
    Json &role = m["roles"][0];
    int64_t bytes = role["arena"]["bytes"];
    role["home"] = {{"bytes", bytes}};
    for (const std::string &name : names)
      role["home"][name] = {0, bytes};
    return m;
  };
  EXPECT_EQ(refusal(withHome().dump()).find("leaves the home"),
            std::string::npos);
  for (const std::string &name : names)
    for (size_t number : {0, 1}) {
      Json m = withHome();
      Json &at = m["roles"][0]["home"][name][number];
      at = at.get<int64_t>() + 64;
      std::string bytes = m["roles"][0]["home"]["bytes"].dump();
      EXPECT_NE(refusal(m.dump()).find("roles[0].home." + name +
                                       ": leaves the home of " + bytes +
                                       " bytes"),
                std::string::npos)
          << refusal(m.dump());
    }
}

TEST(Manifest, WrongChunksAreRefused) {
  // Chunks 0 and 2 of the first role, 1 of the second one.
  ModelPlan plan;
  plan.stages = {{{0, 2}, {0}}, {{1}, {1}}};
  const Json good = Json::parse(TestProgram(plan).manifest());
  EXPECT_EQ(refusal(good.dump()), "");
  auto chunk = [](Json &m, int role, int index) -> Json & {
    return m["roles"][role]["chunks"][index];
  };
  struct Case {
    std::function<void(Json &)> change;
    std::string message;
  };
  const Case cases[] = {
      {[&](Json &m) { m["roles"][1]["chunks"] = Json::array(); },
       "roles[1].chunks: expected at least one chunk"},
      {[&](Json &m) { chunk(m, 0, 1)["number"] = 0; },
       "roles[0].chunks[1].number: expected more than 0, the chunk before, "
       "found 0"},
      {[&](Json &m) { chunk(m, 1, 0)["number"] = 2; }, "chunk 2 stands twice"},
      {[&](Json &m) { chunk(m, 0, 1)["number"] = 3; }, "chunk 3 of 3"},
      {[&](Json &m) { chunk(m, 0, 1)["layer-count"] = 2; },
       "roles[0].layers: expected the 3 layers of its chunks, found 2"},
      {[&](Json &m) { chunk(m, 0, 0)["slots"] = 0; },
       "roles[0].chunks[0].slots: expected an integer from 1 to 65536, found "
       "0"},
      {[&](Json &m) { chunk(m, 0, 0)["slots"] = 40; },
       "roles[0].chunks: 42 slots of"},
      {[&](Json &m) { chunk(m, 0, 1)["slots"] = 65536; },
       "roles[0].chunks[1].slots: expected at most 65536 slots of a role"},
      {[&](Json &m) { chunk(m, 0, 1)["recv-activation"] = nullptr; },
       "chunk 1 of stage 1: activations are sent by exchange"},
      {[&](Json &m) {
         m["roles"][0]["layers"][0]["output"] = {{"kind", "slot"},
                                                 {"layer", 1}};
       },
       "expected the next layer of the chunk, found 1"},
      {[](Json &m) {
         Json &boundary = m["roles"][0]["arena"]["boundary"];
         boundary = {boundary[0], boundary[1]};
       },
       "boundary: expected 4 buffers, as the role has several chunks"},
      // A gradient that comes where outputs wait, or gradients are worked on.
      {[](Json &m) {
         Json &boundary = m["roles"][0]["arena"]["boundary"];
         boundary[2] = boundary[3];
       },
       "bytes of boundary buffer 2 meet"},
      {[](Json &m) {
         Json &boundary = m["roles"][0]["arena"]["boundary"];
         boundary[2] = boundary[0];
       },
       "bytes of boundary buffer 2 meet"},
      // Outputs that wait while another chunk runs backward.
      {[](Json &m) {
         Json &boundary = m["roles"][0]["arena"]["boundary"];
         boundary[3] = boundary[0];
       },
       "bytes of boundary buffer 3 meet"},
  };
  for (const Case &test : cases) {
    Json manifest = good;
    test.change(manifest);
    std::string message = refusal(manifest.dump());
    EXPECT_NE(message.find(test.message), std::string::npos)
        << "expected: " << test.message << "\nfound: " << message;
  }
}

/// The elements of a tied tensor that each rank of a role holds, by where they
/// stand in its region.
std::map<int, std::map<int64_t, int64_t>> elementsOf(const Manifest &manifest,
                                                     const TieEnd &end) {
  const Role &role = manifest.roles[size_t(end.role)];
  const Layer &layer = role.layers[size_t(end.layer)];
  std::map<int, std::map<int64_t, int64_t>> elements;
  for (size_t local = 0; local < role.devices.size(); ++local)
    forEachRun(layer, layer.tensors[size_t(end.tensor)], int(local),
               [&](const TensorRun &run) {
                 for (int64_t i = 0; i < run.count; ++i)
                   elements[role.devices[local]][run.held + i] = run.global + i;
               });
  return elements;
}

/// Tensors that are cut along their second dimension lie in many pieces. Where
/// both layers cut them alike, a rank takes all that it holds in one row.
TEST(Manifest, TiesAlongOtherDimensions) {
  for (bool alike : {true, false}) {
    Json json = goodManifest();
    for (size_t r = 0; r < json["roles"].size(); ++r)
      for (Json &layer : json["roles"][r]["layers"])
        for (Json &tensor : layer["tensors"])
          if (tensor["parameter"] == 0 && (alike || r == 1)) {
            tensor["tp-dim"] = 1;
            tensor["local-shape"] = {11, 4};
          }
    ASSERT_EQ(refusal(json.dump()), "");
    Manifest manifest = parseManifest(json.dump());
    const Tie &tie = manifest.ties[0];
    const LocalRanks all{0, int(manifest.world)};
    const TieTables both = tieTables(manifest, tie, all);
    const LocalTables &tables = both.broadcast;
    auto owned = elementsOf(manifest, tie.owner);
    auto borrowed = elementsOf(manifest, tie.borrower);
    ASSERT_EQ(borrowed.size(), 4u);
    // Gradients come back to every rank that owns an element, once.
    for (const auto &[rank, elements] : owned) {
      std::map<int64_t, int64_t> taken;
      for (const ExchangePeer &peer : both.reduce[rank].receives)
        for (const ExchangeRow &row : peer.rows)
          for (int64_t i = 0; i < row.units; ++i)
            EXPECT_TRUE(
                taken
                    .emplace(row.localUnit + i,
                             borrowed.at(peer.peer).at(row.peerUnit + i))
                    .second);
      EXPECT_EQ(taken, elements) << "rank " << rank;
    }
    for (const auto &[rank, elements] : borrowed) {
      std::map<int64_t, int64_t> taken;
      size_t rows = 0;
      for (const ExchangePeer &peer : tables[rank].receives)
        for (const ExchangeRow &row : peer.rows) {
          ++rows;
          for (int64_t i = 0; i < row.units; ++i)
            EXPECT_TRUE(taken
                            .emplace(row.localUnit + i,
                                     owned.at(peer.peer).at(row.peerUnit + i))
                            .second);
        }
      EXPECT_EQ(taken, elements) << "rank " << rank;
      EXPECT_EQ(rows, alike ? 1u : 11u) << "rank " << rank;
    }
  }
}

TEST(Manifest, TextThatIsNoJson) {
  EXPECT_EQ(refusal(""), "manifest: not valid JSON");
  EXPECT_EQ(refusal("{"), "manifest: not valid JSON");
  EXPECT_EQ(refusal("[]"), "manifest: expected an object");
}

/// No damage to any value may do more than be refused.
TEST(Manifest, RandomDamageNeverCrashes) {
  const Json good = goodManifest().flatten();
  std::vector<std::string> paths;
  for (auto it = good.begin(); it != good.end(); ++it)
    paths.push_back(it.key());
  const Json values[] = {nullptr, -1,  0,    1,         7,   64,
                         1e300,   "x", true, INT64_MAX, 0.5, UINT64_MAX};
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    Json damaged = good;
    damaged[paths[random() % paths.size()]] =
        values[random() % std::size(values)];
    refusal(damaged.unflatten().dump());
  }
}

} // namespace
