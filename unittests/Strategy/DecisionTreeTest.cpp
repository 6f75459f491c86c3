//===- DecisionTreeTest.cpp - The paper's counts --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/DecisionTree.h"

#include "gtest/gtest.h"

#include <set>

using namespace galvatron;

namespace {

TEST(DecisionTree, counts_per_group_size) {
  SpaceOptions pruned, full;
  pruned.checkpoint = full.checkpoint = CheckpointChoice::Never;
  full.keepDpSdp = true;
  std::vector<size_t> expectedPruned = {1, 3, 7, 11, 15, 19};
  std::vector<size_t> expectedFull = {1, 3, 9, 21, 39, 63};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(enumerateStrategies(1 << i, pruned).size(), expectedPruned[i]);
    EXPECT_EQ(enumerateStrategies(1 << i, full).size(), expectedFull[i]);
  }
}

TEST(DecisionTree, counts_of_the_paper) {
  SpaceOptions full;
  full.keepDpSdp = true;
  EXPECT_EQ(listStrategies(8, full).size(), 68u);
  EXPECT_EQ(listStrategies(4).size(), 22u);
  EXPECT_EQ(listStrategies(8).size(), 44u);
  EXPECT_EQ(listStrategies(16).size(), 74u);
  EXPECT_EQ(listStrategies(32).size(), 112u);
  EXPECT_EQ(listStrategies(64).size(), 158u);
  SpaceOptions dpTp;
  dpTp.sdp = false;
  dpTp.tpInnermostOnly = true;
  dpTp.checkpoint = CheckpointChoice::Never;
  EXPECT_EQ(enumerateStrategies(8, dpTp).size(), 4u);
  SpaceOptions dp = dpTp;
  dp.tp = false;
  EXPECT_EQ(listStrategies(8, dp).size(), 4u);
}

TEST(DecisionTree, strategies_are_distinct_sorted_and_fill_the_group) {
  SpaceOptions full;
  full.keepDpSdp = true;
  for (int64_t devices : {1, 2, 6, 8, 12, 24, 64}) {
    std::vector<Strategy> all = enumerateStrategies(devices, full);
    std::set<std::string> names;
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].devices(), devices);
      EXPECT_TRUE(names.insert(all[i].str()).second);
      if (i > 0) {
        EXPECT_TRUE(all[i - 1] < all[i]);
      }
    }
  }
}

TEST(DecisionTree, degrees_are_divisors) {
  SpaceOptions plain;
  plain.checkpoint = CheckpointChoice::Never;
  // dp6 sdp6 tp6, and {dp, sdp} x {2, 3} with tp in both orders.
  EXPECT_EQ(enumerateStrategies(6, plain).size(), 11u);
  EXPECT_EQ(divisors(12), (std::vector<int64_t>{1, 2, 3, 4, 6, 12}));
}

TEST(DecisionTree, list_is_descending_and_plain_first) {
  std::vector<PipelineStrategy> list = listStrategies(2);
  std::vector<std::string> lines;
  for (const PipelineStrategy &entry : list)
    lines.push_back(entry.str());
  EXPECT_EQ(lines, (std::vector<std::string>{"pp2 single", "pp2 single.ckpt",
                                             "pp1 dp2", "pp1 sdp2", "pp1 tp2",
                                             "pp1 dp2.ckpt", "pp1 sdp2.ckpt",
                                             "pp1 tp2.ckpt"}));
}

} // namespace
