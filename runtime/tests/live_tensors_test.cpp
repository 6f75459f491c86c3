//===- live_tensors_test.cpp - Inputs are whole tensors -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "changed_manifests.h"
#include "core/layout.h"

#include <gtest/gtest.h>

#include <functional>

using namespace grt;
using namespace grt::test;

namespace {

/// Bytes of each tensor between layers.
constexpr uint64_t tensorBytes = 1024;

Json &layerAt(Json &manifest, size_t number) {
  return manifest["roles"][0]["layers"][number];
}

/// Gives the role slots of `slotBytes` at the end of its arena, and behind them
/// boundary buffers of two tensors.
void addRoom(Json &role, uint64_t slotBytes) {
  Json &arena = role["arena"];
  const uint64_t oldBytes = role["slot-bytes"];
  const uint64_t slots = arena["slots"][1].get<uint64_t>() / oldBytes;
  uint64_t end = alignUp(arena["bytes"].get<uint64_t>());
  auto place = [&](uint64_t bytes) {
    end += bytes;
    return Json{end - bytes, bytes};
  };
  arena["slots"] = place(slots * slotBytes);
  arena["boundary"] = {place(2 * tensorBytes), place(2 * tensorBytes)};
  arena["bytes"] = role["ledger"]["all"] = end;
  role["slot-bytes"] = slotBytes;
}

/// Three layers of which the first makes two tensors. The second reads one of
/// them, the other one passes it; the third reads it and what the second makes.
Json twoTensors() {
  Json m = oneChunk();
  Json &role = m["roles"][0];
  const uint64_t used = role["slot-bytes"];
  EXPECT_EQ(layerAt(m, 1)["input-bytes"], tensorBytes);
  for (size_t number : {0, 1, 2}) {
    layerAt(m, number)["transient"] = used + tensorBytes;
    layerAt(m, number)["forward-transient"] = used + tensorBytes;
  }
  addRoom(role, 2 * used + tensorBytes);
  const uint64_t held = layerAt(m, 1)["stash"];
  const uint64_t last = layerAt(m, 2)["stash"].get<uint64_t>() + tensorBytes;
  layerAt(m, 0).update({{"front-bytes", 0},
                        {"behind-bytes", 2 * tensorBytes},
                        {"outputs", {tensorBytes, tensorBytes}}});
  layerAt(m, 1).update(
      {{"input-bytes", 2 * tensorBytes},
       {"front-bytes", 2 * tensorBytes},
       {"behind-bytes", 2 * tensorBytes},
       {"inputs", {{held, 0, tensorBytes}}},
       {"passes",
        {{held + tensorBytes, tensorBytes, tensorBytes, tensorBytes, 0}}},
       {"outputs", Json::array({tensorBytes})}});
  layerAt(m, 2).update({{"stash", last},
                        {"front-bytes", 2 * tensorBytes},
                        {"behind-bytes", 0},
                        {"inputs",
                         {{last, 0, tensorBytes},
                          {held + tensorBytes, tensorBytes, tensorBytes}}}});
  return m;
}

std::string wrongTensors(const Json &manifest) {
  return guarded([&] { checkWiring(parseManifest(manifest.dump())); })
      .message();
}

void expectWrongTensors(const std::function<void(Json &)> &change,
                        const std::string &message) {
  Json m = twoTensors();
  change(m);
  const std::string found = wrongTensors(m);
  EXPECT_NE(found.find(message), std::string::npos)
      << "expected " << message << ", found " << found;
}

void moveNumber(Json &number, int64_t by) {
  number = number.get<int64_t>() + by;
}

TEST(LiveTensors, TwoTensorsAreAccepted) {
  EXPECT_EQ(wrongTensors(twoTensors()), "");
}

/// All that they name is in the slot, and all of it is written.
TEST(LiveTensors, InputsAreWholeTensorsInFrontOfTheLayer) {
  const std::string inside =
      "layer 'layer1': input 0: expected a tensor that lives in front of the "
      "layer, [0, 1024) with its gradient at 0, [1024, 2048) with its gradient "
      "at 1024, found [64, 1088) of the slot with its gradient at 0";
  expectWrongTensors(
      [](Json &m) { moveNumber(layerAt(m, 1)["inputs"][0][0], 64); }, inside);
  const char *first = "layer 'layer1': input 0: expected a tensor";
  const char *second = "layer 'layer2': input 1: expected a tensor";
  // Another tensor than the one whose gradient is there, and the reverse.
  expectWrongTensors(
      [](Json &m) { moveNumber(layerAt(m, 1)["inputs"][0][0], tensorBytes); },
      first);
  expectWrongTensors(
      [](Json &m) { moveNumber(layerAt(m, 1)["inputs"][0][1], tensorBytes); },
      first);
  expectWrongTensors(
      [](Json &m) { moveNumber(layerAt(m, 1)["inputs"][0][2], -64); }, first);
  // One that is still in the slot but lives in front of another layer.
  expectWrongTensors(
      [](Json &m) { moveNumber(layerAt(m, 2)["inputs"][1][0], -tensorBytes); },
      second);
  expectWrongTensors([](Json &m) { layerAt(m, 2).erase("inputs"); },
                     "expected the tensor [1024, 2048) in front of it to be an "
                     "input or to pass it, found neither");
}

TEST(LiveTensors, WhatPassesIsAWholeTensorOnBothSides) {
  const char *front =
      "passes: expected tensors that live in front of the layer";
  for (size_t number : {0, 1, 3})
    expectWrongTensors(
        [&](Json &m) { moveNumber(layerAt(m, 1)["passes"][0][number], -64); },
        front);
  expectWrongTensors(
      [](Json &m) { moveNumber(layerAt(m, 1)["passes"][0][2], -64); },
      "passes: expected a tensor at 1024 behind the layer, found one "
      "at 960");
  expectWrongTensors(
      [](Json &m) { layerAt(m, 1)["passes"][0][4] = 1; },
      "passes: expected that it says of [1024, 2048) whether it is "
      "an input too, 0, found 1");
  expectWrongTensors(
      [](Json &m) {
        Json &passes = layerAt(m, 1)["passes"];
        passes.push_back(passes[0]);
      },
      front);
  expectWrongTensors([](Json &m) { layerAt(m, 1).erase("passes"); },
                     "expected the tensor [1024, 2048) in front of it to be an "
                     "input or to pass it, found neither");
}

TEST(LiveTensors, SetsAreAsLargeAsBothSidesSay) {
  const char *held = "layer 'layer1': expected it to hold the tensors";
  expectWrongTensors(
      [](Json &m) { moveNumber(layerAt(m, 0)["outputs"][0], -64); }, held);
  expectWrongTensors(
      [](Json &m) {
        layerAt(m, 0)["outputs"] = {tensorBytes, tensorBytes, tensorBytes};
      },
      held);
  expectWrongTensors(
      [](Json &m) { moveNumber(layerAt(m, 1)["input-bytes"], -64); }, held);
  expectWrongTensors(
      [](Json &m) { layerAt(m, 1).erase("outputs"); },
      "expected 'outputs' of a layer that tensors pass, found none");
  for (size_t number : {0, 1})
    expectWrongTensors(
        [&](Json &m) { moveNumber(layerAt(m, number)["behind-bytes"], -64); },
        "behind");
}

} // namespace
