//===- layers_test.cpp - Sizes that are measured, and their file ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "doubts.h"
#include "layers.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

using namespace grt;
using namespace grt::profile;
using Sizes = std::vector<int64_t>;

namespace {

TEST(LayerSizes, DoubleThenHalveThenAdd) {
  auto upTo = [](int64_t most, int64_t largest = 1000) {
    return sizesThatFit(largest, [=](int64_t size) { return size <= most; });
  };
  EXPECT_EQ(upTo(0), Sizes{});
  EXPECT_EQ(upTo(1), Sizes{1});
  EXPECT_EQ(upTo(3), (Sizes{1, 2, 3}));
  EXPECT_EQ(upTo(13), (Sizes{1, 2, 4, 8, 12, 13}));
  EXPECT_EQ(upTo(15), (Sizes{1, 2, 4, 8, 12, 14, 15}));
  EXPECT_EQ(upTo(1000, 6), (Sizes{1, 2, 4, 6}));
  EXPECT_EQ(upTo(1000, 8), (Sizes{1, 2, 4, 8}));
}

/// The largest size that fits is found whatever the bound is, no size is tried
/// twice, and none beyond the one that may be.
TEST(LayerSizes, TheLargestThatFitsIsFound) {
  for (int64_t largest : {1, 7, 64, 100})
    for (int64_t most = 1; most <= 130; ++most) {
      std::set<int64_t> tried;
      Sizes sizes = sizesThatFit(largest, [&](int64_t size) {
        EXPECT_LE(size, largest);
        EXPECT_TRUE(tried.insert(size).second) << size << " again";
        return size <= most;
      });
      ASSERT_FALSE(sizes.empty());
      EXPECT_EQ(sizes.back(), std::min(most, largest));
      EXPECT_TRUE(std::is_sorted(sizes.begin(), sizes.end()));
    }
}

SizeMeasurement measurementOf(int64_t input, double seconds) {
  LayerNeed need;
  need.weights = 40;
  need.optimizer = 80;
  need.input = input;
  need.forward = 100 + input;
  need.backward = 200 + input;
  LayerSeconds time;
  time.forward = seconds;
  time.backward = 3 * seconds;
  time.update = 0.25;
  return {{need}, {time}};
}

TEST(LayerProfile, IsWhatSolveReads) {
  LayerProfile profile;
  profile.model = "a \"model\"";
  profile.measured = {{1, measurementOf(64, 0.5)}, {4, measurementOf(160, 1)}};
  profile.sizes = {Sizes{1, 4}, Sizes{1}};
  auto json = nlohmann::json::parse(toHarmonyJson(profile));
  auto is = [&](const char *path, const char *expected) {
    EXPECT_EQ(json.at(nlohmann::json::json_pointer(path)),
              nlohmann::json::parse(expected))
        << path;
  };
  is("/model", R"("a \"model\"")");
  is("/num_layers", "1");
  is("/ubatchsizes/FWD", "[1, 4]");
  is("/ubatchsizes/BWD", "[1]");
  is("/time_gpu_sec/FWD", "[[0.5], [1.0]]");
  is("/time_gpu_sec/BWD", "[[2.0]]"); // recomputation and backward
  is("/memory_bytes/FWD", "[[164], [260]]");
  is("/memory_bytes/BWD", "[[264]]");
  is("/input_activation_bytes/slope", "[32.0]");
  is("/input_activation_bytes/intercept", "[32.0]");
  is("/weight_bytes", "[40]");
  is("/optimizer_state_bytes", "[80]");
  is("/update_cpu_sec", "[0.25]");
  // All figures of one size are in proportion.
  profile.measured = {{4, measurementOf(64, 0.5)}};
  profile.sizes = {Sizes{4}, Sizes{4}};
  json = nlohmann::json::parse(toHarmonyJson(profile));
  is("/input_activation_bytes/slope", "[16.0]");
  is("/input_activation_bytes/intercept", "[0.0]");
}

/// Times differ by noise; only what cannot be is told.
TEST(LayerProfile, DoubtsWhatIsNoise) {
  LayerProfile profile;
  profile.measured = {{1, measurementOf(64, 1)},
                      {2, measurementOf(64, 0.9)},
                      {4, measurementOf(64, 3)}};
  EXPECT_EQ(doubts(profile, 0.1), std::vector<std::string>{});
  profile.measured[8] = measurementOf(64, 1.5);
  std::vector<std::string> found = doubts(profile, 1.5);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NE(found[0].find("kept 1.5 of the machine's cores"),
            std::string::npos);
  EXPECT_EQ(found[1],
            "micro-batches of 8 are quicker than those of 4, which is noise");
}

} // namespace
