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

std::string syncBehindReason(std::initializer_list<const char *> layers) {
  std::vector<Strategy> strategies;
  for (const char *text : layers)
    strategies.push_back(llvm::cantFail(Strategy::parse(text)));
  return whyNotSyncBehind(strategies);
}

/// Two collectives that share two or more ranks must not run side by side.
TEST(Concurrency, gradients_are_reduced_behind_what_shares_one_rank) {
  for (const char *one : {"dp4", "dp2.tp2", "tp2.dp2", "sdp2.dp2", "dp2.sdp2"})
    EXPECT_EQ(syncBehindReason({one, one, one}), "") << one;
  // The layers below run beside the all-reduce, those above are done.
  EXPECT_EQ(syncBehindReason({"sdp4", "dp4"}),
            "the sum of gradients of layer 1 (dp4) would run beside sharded "
            "parameters of layer 0 (sdp4)");
  EXPECT_EQ(syncBehindReason({"dp4", "sdp4"}), "");
  // Ranks 0 and 2 in both: dp2.tp2 reduces {0, 2}, tp2.dp2 exchanges {0, 2}.
  // They hold different samples as well.
  EXPECT_EQ(
      syncBehindReason({"tp2.dp2", "dp2.tp2"}),
      "the sum of gradients of layer 1 (dp2.tp2) would run beside the reshard "
      "of layer 0 (tp2.dp2)");
  // The same samples, cut by sharding instead of copying.
  EXPECT_EQ(
      syncBehindReason({"sdp2.tp2", "dp2.tp2"}),
      "the sum of gradients of layer 1 (dp2.tp2) would run beside sharded "
      "parameters of layer 0 (sdp2.tp2)");
  // Nothing is reduced above the reshard.
  EXPECT_EQ(syncBehindReason({"dp4", "tp4"}), "");
  EXPECT_NE(syncBehindReason({"tp4", "dp4", "dp4"}), "");
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

  // No collective of the neighbour on `compute` shares two ranks with it.
  for (const Strategy &beside : enumerateStrategies(8, {}))
    for (const Strategy &layer : enumerateStrategies(8, {})) {
      if (!whyNotGatherAhead(beside, layer).empty())
        continue;
      for (int64_t rank = 0; rank < 8; ++rank) {
        auto gathered = layer.group(rank, Paradigm::SDP);
        auto exchanged = beside.group(rank, Paradigm::TP);
        EXPECT_EQ(llvm::count_if(gathered,
                                 [&](int64_t member) {
                                   return llvm::is_contained(exchanged, member);
                                 }),
                  1)
            << beside.str() << " " << layer.str();
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
