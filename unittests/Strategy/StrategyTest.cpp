//===- StrategyTest.cpp - Strategies --------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/Strategy.h"
#include "../TestStrategy.h"
#include "galvatron/Strategy/DecisionTree.h"

#include "gtest/gtest.h"

#include <set>

using namespace galvatron;

namespace {

std::string errorOf(const char *text) {
  llvm::Expected<Strategy> strategy = Strategy::parse(text);
  if (strategy)
    return "no error";
  return llvm::toString(strategy.takeError());
}

TEST(Strategy, notation_round_trips) {
  for (const char *text :
       {"single", "single.ckpt", "dp2.tp4", "sdp8", "tp2.sdp4.ckpt",
        "dp2.sdp3.tp5", "tp12", "zdp4", "zdp2.tp2.ckpt", "tp2.zdp8",
        "dp2.opt-host", "single.act-host", "sdp2.ckpt.opt-host.act-host",
        "single.ckpt1", "tp4.ckpt9", "tp4.ckpt2.opt-host"})
    EXPECT_EQ(get(text).str(), text);
}

/// What is on the host is no matter of how a layer computes.
TEST(Strategy, has_a_home) {
  Strategy away = get("dp2.tp2.ckpt.opt-host.act-host");
  EXPECT_TRUE(away.home().states && away.home().activations);
  EXPECT_EQ(away.onDevices(), get("dp2.tp2.ckpt"));
  EXPECT_NE(away, get("dp2.tp2.ckpt.opt-host"));
  EXPECT_EQ(away.sampleLayout(), away.onDevices().sampleLayout());
  EXPECT_LT(get("dp4.ckpt"), get("dp4.opt-host"));
  EXPECT_LT(get("dp4.opt-host"), get("dp4.act-host"));
  EXPECT_EQ(away.withCheckpoint(false), get("dp2.tp2.opt-host.act-host"));
}

TEST(Strategy, wrong_notation_is_refused) {
  EXPECT_EQ(errorOf("rings2"),
            "invalid strategy 'rings2': expected a level like 'dp2', of 'dp', "
            "'sdp', 'tp', 'zdp', 'tsp', 'cp', 'scp', 'zcp', 'up', 'sup', "
            "'ring' or 'sring' and a degree, found 'rings2'");
  EXPECT_EQ(errorOf("zdp2.tp2.dp2"),
            "invalid strategy 'zdp2.tp2.dp2': 'zdp' is data parallelism whose "
            "optimizer state is sharded, expected no 'dp' beside it");
  EXPECT_EQ(errorOf("sdp2.zdp2"),
            "invalid strategy 'sdp2.zdp2': 'zdp' is data parallelism whose "
            "optimizer state is sharded, expected no 'sdp' beside it");
  EXPECT_EQ(errorOf("dp2.dp4"),
            "invalid strategy 'dp2.dp4': paradigm 'dp' "
            "occurs twice, expected at most one level each");
  EXPECT_EQ(errorOf("dp1"), "invalid strategy 'dp1': level 'dp1': expected a "
                            "degree of at least 2");
  const std::string level = "expected a level like 'dp2', of " +
                            ParadigmRegistry::names() +
                            " and a degree, found '";
  const std::string order = " comes behind the levels, in the order 'ckpt', "
                            "'opt-host', 'act-host'";
  const std::pair<const char *, std::string> wrong[] = {
      {"ckpt", "expected levels or 'single' before 'ckpt'"},
      {"dp2.ckpt.tp2", "'ckpt'" + order},
      {"dp2.ckpt1.tp2", "'ckpt1'" + order},
      {"dp2.ckpt1.ckpt", "'ckpt1'" + order},
      {"ckpt2", "expected levels or 'single' before 'ckpt2'"},
      {"tp4.ckpt0",
       "expected 'ckpt', or a point from 'ckpt1' to 'ckpt9', found "
       "'ckpt0'"},
      {"tp4.ckpt10", "expected 'ckpt', or a point from 'ckpt1' to 'ckpt9', "
                     "found 'ckpt10'"},
      {"dp2.ckpt.ckpt", "'ckpt'" + order},
      {"dp2.opt-host.ckpt", "'opt-host'" + order},
      {"dp2.act-host.opt-host", "'act-host'" + order},
      {"act-host.dp2", "'act-host'" + order},
      {"opt-host", "expected levels or 'single' before 'opt-host'"},
      {"single.dp2", "'single' stands alone"},
      {"dp2.single", "'single' stands alone"},
      {"single.single.ckpt", "'single' stands alone"},
      {"dp", "expected a degree after 'dp', found ''"},
      {"dp02", "expected a degree after 'dp', found '02'"},
      {"dp-2", "expected a degree after 'dp', found '-2'"},
      {"dp 2", "expected a degree after 'dp', found ' 2'"},
      {"dp2,tp2", "expected a degree after 'dp', found '2,tp2'"},
      {"dp99999999999999999999",
       "expected a degree after 'dp', found '99999999999999999999'"},
      {"pp2", level + std::string("pp2'")},
      {"DP2", level + std::string("DP2'")},
      {"dp2.", level + std::string("'")},
      {".dp2", level + std::string("'")},
      {"dp65536.tp32769", "the degrees multiply to more than 2^31 devices"},
      {"dp2147483649", "the degrees multiply to more than 2^31 devices"}};
  for (const auto &[text, why] : wrong)
    EXPECT_EQ(errorOf(text),
              "invalid strategy '" + std::string(text) + "': " + why);
  EXPECT_EQ(get("dp65536.tp32768").devices(), int64_t(1) << 31);
}

TEST(Strategy, degrees_and_strides) {
  Strategy strategy = get("tp2.sdp3.dp4");
  EXPECT_EQ(strategy.devices(), 24);
  EXPECT_EQ(strategy.degree(Paradigm::SDP), 3);
  EXPECT_EQ(strategy.stride(size_t(0)), 12);
  EXPECT_EQ(strategy.stride(Paradigm::SDP), 4);
  EXPECT_EQ(strategy.stride(Paradigm::DP), 1);
  EXPECT_EQ(get("tp8").degree(Paradigm::DP), 1);
  EXPECT_EQ(strategy.sampleShards(), 12);
  EXPECT_TRUE(get("dp2").withCheckpoint(true) == get("dp2.ckpt"));
  EXPECT_EQ(get("dp2.ckpt").withPoint(3), get("dp2.ckpt3"));
  EXPECT_EQ(get("dp2.ckpt3").withCheckpoint(false), get("dp2"));
  EXPECT_EQ(get("dp2.ckpt3").point(), 3);
  EXPECT_EQ(get("dp2.ckpt").point(), 0);
  EXPECT_FALSE(get("dp2.ckpt3").checkpoint());
  // From much to little kept.
  EXPECT_LT(get("dp2"), get("dp2.ckpt1"));
  EXPECT_LT(get("dp2.ckpt1"), get("dp2.ckpt2"));
  EXPECT_LT(get("dp2.ckpt9"), get("dp2.ckpt"));
}

TEST(Strategy, sample_blocks_follow_the_levels) {
  using Layout = std::vector<int64_t>;
  EXPECT_EQ(get("dp2.tp2").sampleLayout().blocksByRank(), (Layout{0, 0, 1, 1}));
  EXPECT_EQ(get("tp2.dp2").sampleLayout().blocksByRank(), (Layout{0, 1, 0, 1}));
  EXPECT_EQ(get("tp4").sampleLayout().blocksByRank(), (Layout{0, 0, 0, 0}));
  EXPECT_EQ(get("sdp4").sampleLayout().blocksByRank(), (Layout{0, 1, 2, 3}));
  EXPECT_EQ(get("sdp2.tp2.dp2").sampleLayout().blocksByRank(),
            (Layout{0, 1, 0, 1, 2, 3, 2, 3}));
}

TEST(Strategy, layouts_are_equal_if_all_blocks_are) {
  SpaceOptions all;
  all.keepDpSdp = true;
  std::vector<SampleLayout> layouts;
  for (int64_t devices : {4, 8, 12})
    for (const Strategy &strategy : enumerateStrategies(devices, all)) {
      SampleLayout layout = strategy.sampleLayout();
      EXPECT_EQ(layout.ranks(), devices);
      EXPECT_EQ(layout.blocks(), strategy.sampleShards());
      layouts.push_back(layout);
    }
  for (const SampleLayout &a : layouts)
    for (const SampleLayout &b : layouts) {
      bool equal = a.blocksByRank() == b.blocksByRank();
      EXPECT_EQ(a == b, equal);
      EXPECT_EQ(!(a < b) && !(b < a), equal);
    }
  EXPECT_TRUE(get("dp2.sdp2.tp2").sampleLayout() ==
              get("dp4.tp2").sampleLayout());
  EXPECT_FALSE(get("dp2.tp2.sdp2").sampleLayout() ==
               get("dp4.tp2").sampleLayout());
  EXPECT_FALSE(get("tp2").sampleLayout() == get("tp4").sampleLayout());
}

TEST(Strategy, levels_that_are_no_neighbours_make_groups) {
  using Group = llvm::SmallVector<int64_t, 8>;
  Paradigm both[] = {Paradigm::SDP, Paradigm::DP};
  ParadigmSet among{llvm::ArrayRef(both)};
  Strategy strategy = get("dp2.tp2.sdp2");
  EXPECT_EQ(strategy.group(4, among), (Group{0, 1, 4, 5}));
  EXPECT_EQ(strategy.group(3, among), (Group{2, 3, 6, 7}));
  EXPECT_EQ(strategy.groups(among),
            (std::vector<Group>{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(strategy.group(3, Paradigm::ZDP), (Group{3}));
  EXPECT_TRUE(strategy.groups(Paradigm::ZDP).empty());
  EXPECT_EQ(get("dp3.tp2").groups(among),
            (std::vector<Group>{{0, 2, 4}, {1, 3, 5}}));
}

TEST(Strategy, local_samples_divide) {
  EXPECT_EQ(llvm::cantFail(get("dp2.tp2.sdp3").localSamples(12)), 2);
  EXPECT_EQ(llvm::cantFail(get("tp4").localSamples(3)), 3);
  EXPECT_TRUE(get("dp2.sdp2").divides(8));
  EXPECT_FALSE(get("dp2.sdp2").divides(6));
  EXPECT_EQ(llvm::toString(get("dp2.sdp2").localSamples(6).takeError()),
            "strategy 'dp2.sdp2' cuts a micro-batch into 4 blocks, which does "
            "not divide its 6 samples");
}

TEST(Strategy, groups_partition_the_ranks) {
  SpaceOptions all;
  all.keepDpSdp = true;
  for (int64_t devices : {1, 2, 4, 6, 8, 12})
    for (const Strategy &strategy : enumerateStrategies(devices, all))
      for (Paradigm paradigm : {Paradigm::DP, Paradigm::SDP, Paradigm::TP}) {
        std::multiset<int64_t> seen;
        for (int64_t rank = 0; rank < devices; ++rank) {
          auto group = strategy.group(rank, paradigm);
          ASSERT_EQ(static_cast<int64_t>(group.size()),
                    strategy.degree(paradigm));
          EXPECT_EQ(group[strategy.coordinate(rank, paradigm)], rank);
          for (Paradigm other : {Paradigm::DP, Paradigm::SDP, Paradigm::TP})
            for (int64_t member : group)
              if (other != paradigm) {
                EXPECT_EQ(strategy.coordinate(member, other),
                          strategy.coordinate(rank, other));
              }
          if (strategy.coordinate(rank, paradigm) == 0)
            seen.insert(group.begin(), group.end());
        }
        EXPECT_EQ(static_cast<int64_t>(seen.size()), devices);
      }
}

} // namespace
