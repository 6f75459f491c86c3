//===- ConcurrencyTest.cpp - Collectives side by side ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/Concurrency.h"
#include "galvatron/Strategy/DecisionTree.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

std::vector<Strategy> parsed(std::initializer_list<const char *> layers) {
  std::vector<Strategy> strategies;
  for (const char *text : layers)
    strategies.push_back(llvm::cantFail(Strategy::parse(text)));
  return strategies;
}

/// What waits, by layer: "g" its gather, "p" its pass, "r" the reshard behind.
std::string waits(std::initializer_list<const char *> layers) {
  std::string text;
  for (const AwaitedSums &sums : awaitedSums(parsed(layers)))
    text += (sums.gather.empty() ? "" : "g") +
            std::string(sums.pass.empty() ? "" : "p") +
            (sums.reshard.empty() ? "" : "r") + (sums.any() ? " " : "- ");
  return text;
}

/// Two collectives that share two or more ranks must not run side by side.
TEST(Concurrency, gradients_are_reduced_behind_what_shares_one_rank) {
  for (const char *one : {"dp4", "dp2.tp2", "tp2.dp2", "sdp2.dp2", "dp2.sdp2"})
    EXPECT_EQ(waits({one, one, one}), "- - - ") << one;
  // The layers below run beside the all-reduce, those above are done.
  EXPECT_EQ(waits({"sdp4", "dp4"}), "g - ");
  EXPECT_EQ(awaitedSums(parsed({"sdp4", "dp4"}))[0].gather,
            "the sum of gradients of layer 1 (dp4) would run beside sharded "
            "parameters of layer 0 (sdp4)");
  EXPECT_EQ(waits({"dp4", "sdp4"}), "- - ");
  // Ranks 0 and 2 in both: dp2.tp2 reduces {0, 2}, tp2.dp2 exchanges {0, 2}.
  // They hold different samples as well, but the one sum begins behind that
  // reshard.
  EXPECT_EQ(waits({"tp2.dp2", "dp2.tp2"}), "p - ");
  EXPECT_EQ(awaitedSums(parsed({"tp2.dp2", "dp2.tp2"}))[0].pass,
            "the sum of gradients of layer 1 (dp2.tp2) would run beside tensor "
            "parallelism of layer 0 (tp2.dp2)");
  // Of two, one is begun when the other layer's gradient is resharded.
  EXPECT_EQ(waits({"tp2.dp2", "dp2.tp2", "dp2.tp2"}), "p r - ");
  EXPECT_EQ(awaitedSums(parsed({"tp2.dp2", "dp2.tp2", "dp2.tp2"}))[1].reshard,
            "the sum of gradients of layer 2 (dp2.tp2) would run beside the "
            "reshard of layer 1 (dp2.tp2)");
  // An embedding and a head cut further: sums of the blocks end before the
  // embedding's reshard, the lowest one before its pass, nothing else waits.
  EXPECT_EQ(waits({"dp2.tp4", "dp4.tp2", "dp4.tp2", "dp4.tp2", "dp2.tp4"}),
            "p r - - - ");
  // The reshard waited for the only sum: what comes behind it need not.
  EXPECT_EQ(waits({"sdp2.tp2", "sdp4", "dp4"}), "- gr - ");
  // The same samples, cut by sharding instead of copying.
  EXPECT_EQ(waits({"sdp2.tp2", "dp2.tp2"}), "g - ");
  // Nothing is reduced above the reshard.
  EXPECT_EQ(waits({"dp4", "tp4"}), "- - ");
  EXPECT_EQ(waits({"tp4", "dp4", "dp4"}), "p r - ");
}

/// By definition, for groups of several levels together, too.
TEST(Concurrency, groups_share_ranks) {
  SpaceOptions space;
  space.keepDpSdp = true;
  std::vector<Strategy> all = enumerateStrategies(8, space);
  for (int64_t devices : {6, 12})
    for (const Strategy &strategy : enumerateStrategies(devices, space))
      if (strategy.levels().size() == 3)
        all.push_back(strategy);
  auto set = [](std::initializer_list<Paradigm> members) {
    return ParadigmSet(llvm::ArrayRef(members));
  };
  ParadigmSet sets[] = {Paradigm::DP, set({Paradigm::DP, Paradigm::SDP}),
                        set({Paradigm::DP, Paradigm::TP})};
  size_t shared = 0, apart = 0;
  for (const Strategy &one : all)
    for (const Strategy &other : all) {
      if (one.devices() != other.devices() || one.checkpoint() ||
          other.checkpoint())
        continue;
      for (ParadigmSet ofOne : sets)
        for (ParadigmSet ofOther : sets) {
          bool expected = false;
          for (int64_t rank = 0; rank < one.devices(); ++rank) {
            auto group = one.group(rank, ofOne);
            for (int64_t member : other.group(rank, ofOther))
              expected |= member != rank && llvm::is_contained(group, member);
          }
          EXPECT_EQ(groupsShareRanks(one, ofOne, other, ofOther), expected)
              << one.str() << " " << other.str();
          ++(expected ? shared : apart);
        }
    }
  EXPECT_GT(shared, 100u);
  EXPECT_GT(apart, 100u);
}

/// By definition, over all pairs of strategies of eight ranks with a third
/// layer on top: what does not wait shares one rank with every sum begun.
TEST(Concurrency, what_does_not_wait_shares_one_rank_with_every_sum) {
  std::vector<Strategy> all = enumerateStrategies(8, {});
  auto shares = [](const Strategy &sum, const Strategy &layer,
                   Paradigm paradigm) {
    for (int64_t rank = 0; rank < 8; ++rank) {
      auto reduced = sum.group(rank, sum.gradientSumLevels());
      for (int64_t a : reduced)
        for (int64_t b : reduced)
          if (a != b && llvm::is_contained(layer.group(rank, paradigm), a) &&
              llvm::is_contained(layer.group(rank, paradigm), b))
            return true;
    }
    return false;
  };
  for (const Strategy &low : all)
    for (const Strategy &high : all) {
      std::vector<AwaitedSums> sums = awaitedSums({low, high, high});
      EXPECT_FALSE(sums[2].any() || !sums[1].pass.empty());
      bool reshards = low.sampleLayout() != high.sampleLayout();
      bool sumsOnce = high.sumsOnce();
      EXPECT_EQ(!sums[1].reshard.empty(), reshards && sumsOnce);
      EXPECT_EQ(!sums[0].pass.empty(),
                sumsOnce && shares(high, low, Paradigm::TP))
          << low.str() << " " << high.str();
      EXPECT_EQ(!sums[0].gather.empty(),
                sumsOnce && shares(high, low, Paradigm::SDP))
          << low.str() << " " << high.str();
      bool reduces = low.sumsOnce() || sumsOnce;
      bool clashes = sums[0].any() || sums[1].any();
      auto behind = [&](SumTiming chosen, SumsPlace place) {
        return overlapsSums({low, high, high}, chosen, place);
      };
      SumsPlace first{true, false}, later{false, false}, turns{true, true};
      for (SumsPlace place : {first, later, turns})
        EXPECT_FALSE(behind(SumTiming::AtEnd, place));
      EXPECT_EQ(behind(SumTiming::ByRule, first), reduces);
      EXPECT_EQ(behind(SumTiming::ByRule, later), reduces && !clashes);
      EXPECT_EQ(behind(SumTiming::Overlap, later), reduces);
      EXPECT_EQ(behind(SumTiming::Overlap, turns), reduces && !clashes);
    }
}

TEST(Concurrency, parameters_are_gathered_beside_what_holds_the_same_samples) {
  auto reason = [](const char *beside, const char *layer) {
    return whyNotGatherAhead(llvm::cantFail(Strategy::parse(beside)),
                             llvm::cantFail(Strategy::parse(layer)));
  };
  for (auto [beside, layer] : {std::pair("sdp4", "sdp4"),
                               {"dp4", "sdp4"},
                               {"dp2.tp2", "sdp2.tp2"},
                               {"tp2.sdp2", "tp2.sdp2.ckpt"},
                               {"dp2.sdp2", "sdp2.dp2"}})
    EXPECT_EQ(reason(beside, layer), "") << beside << " " << layer;
  EXPECT_EQ(reason("sdp4", "dp4"), "nothing of it (dp4) is sharded");
  EXPECT_EQ(reason("tp2.sdp2", "sdp4"),
            "the gather of sdp4 would run beside the reshard from tp2.sdp2");

  EXPECT_EQ(reason("cp4", "scp4"),
            "the gather of scp4 would run beside collectives inside cp4");
  EXPECT_EQ(reason("scp2.sdp2", "sdp2.scp2"),
            "the gather of sdp2.scp2 would run beside collectives inside "
            "scp2.sdp2");

  // No collective of the neighbour on `compute` shares two ranks with it.
  SpaceOptions space;
  for (const char *name : {"tsp", "cp", "scp"})
    space.paradigms.insert(*ParadigmRegistry::find(name));
  for (const Strategy &beside : enumerateStrategies(8, space))
    for (const Strategy &layer : enumerateStrategies(8, space)) {
      if (!whyNotGatherAhead(beside, layer).empty())
        continue;
      for (int64_t rank = 0; rank < 8; ++rank) {
        auto gathered = layer.group(rank, layer.parameterSharding());
        for (const Level &level : beside.levels()) {
          if (!level.paradigm->hasAxis())
            continue;
          auto exchanged = beside.group(rank, level.paradigm);
          EXPECT_EQ(llvm::count_if(gathered,
                                   [&](int64_t member) {
                                     return llvm::is_contained(exchanged,
                                                               member);
                                   }),
                    1)
              << beside.str() << " " << layer.str();
        }
      }
    }

  std::vector<Strategy> layers;
  for (const char *text : {"sdp4", "dp4", "sdp4.ckpt", "tp4"})
    layers.push_back(llvm::cantFail(Strategy::parse(text)));
  std::string ahead;
  for (GatherAhead at : gathersAhead(layers))
    ahead += (at.forward ? "f" : "-") + std::string(at.backward ? "b " : "- ");
  EXPECT_EQ(ahead, "-b -- f- -- ");
}

} // namespace
