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
  dpTp.paradigms.erase(Paradigm::SDP);
  dpTp.factorInnermostOnly = true;
  dpTp.checkpoint = CheckpointChoice::Never;
  EXPECT_EQ(enumerateStrategies(8, dpTp).size(), 4u);
  SpaceOptions dp = dpTp;
  dp.paradigms.erase(Paradigm::TP);
  EXPECT_EQ(listStrategies(8, dp).size(), 4u);
}

TEST(DecisionTree, zdp_stands_in_the_place_of_dp) {
  SpaceOptions with;
  with.paradigms.insert(Paradigm::ZDP);
  // Trees of dp and tp once more, with zdp.
  EXPECT_EQ(listStrategies(8, with).size(), 62u);
  with.keepDpSdp = true;
  for (const Strategy &strategy : enumerateStrategies(16, with)) {
    if (strategy.degree(Paradigm::ZDP) > 1) {
      EXPECT_EQ(strategy.degree(Paradigm::DP), 1) << strategy.str();
      EXPECT_EQ(strategy.degree(Paradigm::SDP), 1) << strategy.str();
    }
  }
  SpaceOptions alone;
  alone.paradigms = ParadigmSet(llvm::cantFail(parseParadigms("zdp")));
  alone.checkpoint = CheckpointChoice::Never;
  ASSERT_EQ(enumerateStrategies(8, alone).size(), 1u);
  EXPECT_EQ(enumerateStrategies(8, alone)[0].str(), "zdp8");
}

TEST(DecisionTree, blocks_of_blocks_are_asked_for) {
  SpaceOptions all;
  for (const char *name :
       {"dp", "sdp", "tp", "zdp", "tsp", "cp", "scp", "zcp", "up", "sup"})
    all.paradigms.insert(*ParadigmRegistry::find(name));
  EXPECT_EQ(listStrategies(8, all).size(), 410u);
  all.blocksOfBlocks = true;
  EXPECT_EQ(listStrategies(8, all).size(), 578u);
  EXPECT_EQ(listStrategies(64, all).size(), 5942u);
  const Strategy twice = llvm::cantFail(Strategy::parse("cp2.tsp2"));
  EXPECT_TRUE(llvm::is_contained(enumerateStrategies(4, all), twice));
}

TEST(DecisionTree, lists_of_paradigms_are_read) {
  EXPECT_EQ(llvm::cantFail(parseParadigms("zdp, tp")),
            (std::vector<Paradigm>{Paradigm::ZDP, Paradigm::TP}));
  auto errorOf = [](const char *text) {
    return llvm::toString(parseParadigms(text).takeError());
  };
  EXPECT_EQ(errorOf("dp,ep"), "expected 'dp', 'sdp', 'tp', 'zdp', 'tsp', 'cp', "
                              "'scp', 'zcp', 'up', 'sup', 'ring' or 'sring', "
                              "separated by commas, found 'ep'");
  EXPECT_EQ(errorOf("dp,tp,dp"), "'dp' stands twice");
  EXPECT_EQ(errorOf(""), "expected 'dp', 'sdp', 'tp', 'zdp', 'tsp', 'cp', "
                         "'scp', 'zcp', 'up', 'sup', 'ring' or 'sring', "
                         "separated by commas, found ''");
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
