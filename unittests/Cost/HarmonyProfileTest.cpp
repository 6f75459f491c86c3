//===- HarmonyProfileTest.cpp - Layers by micro-batch size ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/HarmonyProfile.h"
#include "galvatron/Support/Json.h"
#include "llvm/ADT/StringExtras.h"

#include <gtest/gtest.h>

using namespace galvatron;

namespace {

const char *const twoLayers = R"({
  "model": "two", "num_layers": 2,
  "ubatchsizes": {"FWD": [1, 5, 6], "BWD": [2, 3]},
  "time_gpu_sec": {"FWD": [[0.1, 0.2], [0.5, 0.6], [0.5, 0.9]],
                   "BWD": [[1, 2], [3, 4]]},
  "memory_bytes": {"FWD": [[100, 200], [501, 602], [700, 800]],
                   "BWD": [[1, 2], [3, 4]]},
  "input_activation_bytes": {"slope": [10, 3], "intercept": [0, 7]},
  "weight_bytes": [1000, 0], "buffer_bytes": [24, 8],
  "optimizer_state_bytes": [2000, 0], "update_cpu_sec": [0.25, 0]
})";

llvm::Expected<HarmonyProfile> read(llvm::StringRef text) {
  return HarmonyProfile::fromJson(llvm::cantFail(parseJson(text, "test")),
                                  "p.json");
}

std::string refusal(llvm::StringRef from, llvm::StringRef to) {
  std::string text = twoLayers;
  size_t place = text.find(from.str());
  EXPECT_NE(place, std::string::npos) << from.str();
  text.replace(place, from.size(), to.str());
  llvm::Expected<HarmonyProfile> profile = read(text);
  if (profile)
    return "accepted";
  return llvm::toString(profile.takeError());
}

TEST(HarmonyProfile, isLinearBetweenMeasuredSizes) {
  HarmonyProfile profile = llvm::cantFail(read(twoLayers));
  EXPECT_EQ(profile.layerCount(), 2);
  HarmonyCosts at5 = profile.costs(Direction::Forward, 5);
  EXPECT_EQ(at5.time[1], 600'000'000'000);
  EXPECT_EQ(at5.memory[1], 602);
  HarmonyCosts at2 = profile.costs(Direction::Forward, 2);
  EXPECT_EQ(at2.time[0], 200'000'000'000);
  EXPECT_EQ(at2.time[1], 300'000'000'000);
  EXPECT_EQ(at2.memory[0], 200); // 200.25
  EXPECT_EQ(profile.costs(Direction::Backward, 3).time[0], 3'000'000'000'000);
  EXPECT_EQ(profile.inputBytes(4), (std::vector<int64_t>{40, 19, 0}));
  EXPECT_EQ(profile.weightSums().vec(), (std::vector<int64_t>{0, 1024, 1032}));
  EXPECT_EQ(profile.optimizerSums().vec(),
            (std::vector<int64_t>{0, 2000, 2000}));
  EXPECT_EQ(profile.updateSums()[2], 250'000'000'000);
}

TEST(HarmonyProfile, refusesWhatIsWrong) {
  EXPECT_EQ(refusal("\"num_layers\": 2", "\"num_layers\": 3"),
            "p.json: 'time_gpu_sec.FWD[0]': expected an array of 3 numbers, "
            "found 2 entries");
  EXPECT_EQ(refusal("\"num_layers\": 2", "\"num_layers\": 0"),
            "p.json: 'num_layers': expected 1 to 100000, found 0");
  EXPECT_EQ(refusal("[1, 5, 6]", "[1, 6, 5]"),
            "p.json: 'ubatchsizes.FWD[2]': expected ascending sizes from 1 to "
            "1000000, found 5");
  EXPECT_EQ(refusal("[1, 5, 6]", "[]"),
            "p.json: 'ubatchsizes.FWD': expected at least one micro-batch "
            "size, found none");
  EXPECT_EQ(refusal("[1, 5, 6]", "[1, 5]"),
            "p.json: 'time_gpu_sec.FWD': expected 2 rows, one per micro-batch "
            "size, found 3");
  EXPECT_EQ(refusal("[0.1, 0.2]", "[0.1, -0.5]"),
            "p.json: 'time_gpu_sec.FWD[0][1]': expected a number between 0 and "
            "3600, found -0.5");
  EXPECT_EQ(refusal("[100, 200]", "[100, \"x\"]"),
            "p.json: 'memory_bytes.FWD[0][1]': expected a number between 0 and "
            "1e+15, found \"x\"");
  EXPECT_EQ(refusal("\"slope\": [10, 3]", "\"slope\": 10"),
            "p.json: 'input_activation_bytes.slope': expected an array of 2 "
            "numbers, found no array");
  EXPECT_EQ(refusal("\"weight_bytes\"", "\"weights\""),
            "p.json: missing key 'weight_bytes'");
  EXPECT_EQ(
      refusal("\"model\": \"two\",", "\"model\": \"two\", \"colour\": 1,"),
      "p.json: unknown key 'colour'");
  EXPECT_EQ(refusal("{\"FWD\": [1, 5, 6],", "{"),
            "p.json: missing key 'ubatchsizes.FWD'");
  for (std::string part : {"ubatchsizes", "time_gpu_sec", "memory_bytes",
                           "input_activation_bytes"})
    EXPECT_EQ(refusal('"' + part + '"', "\"other\""),
              "p.json: missing key '" + part + "'");
}

} // namespace
