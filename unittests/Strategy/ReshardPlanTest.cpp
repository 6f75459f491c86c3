//===- ReshardPlanTest.cpp - Reshards against who holds what --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/ReshardPlan.h"
#include "../TestStrategy.h"
#include "galvatron/Strategy/DecisionTree.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

using namespace galvatron;

namespace {

std::vector<int64_t> ranks(int64_t first, int64_t count) {
  std::vector<int64_t> list(count);
  std::iota(list.begin(), list.end(), first);
  return list;
}

/// The samples a rank holds, worked out from the definition alone: walk the
/// levels from the outermost and cut the micro-batch at each dp or sdp level.
std::vector<int64_t> heldSamples(const Strategy &strategy, int64_t localRank,
                                 int64_t samples) {
  int64_t begin = 0, length = samples, span = strategy.devices();
  for (const Level &level : strategy.levels()) {
    span /= level.degree;
    int64_t coordinate = localRank / span;
    localRank %= span;
    if (level.paradigm == Paradigm::TP)
      continue;
    length /= level.degree;
    begin += coordinate * length;
  }
  std::vector<int64_t> held(length);
  std::iota(held.begin(), held.end(), begin);
  return held;
}

/// Samples that travel between two ranks, in sum.
int64_t totalUnits(const ReshardPlan &plan) {
  int64_t sum = 0;
  for (const ReshardTransfer &transfer : plan.transfers)
    sum += transfer.isLocal() ? 0 : transfer.units;
  return sum;
}

/// The most samples that one rank sends, or receives.
int64_t maxUnits(const ReshardPlan &plan, int64_t ReshardTransfer::*rank) {
  std::map<int64_t, int64_t> units;
  int64_t most = 0;
  for (const ReshardTransfer &transfer : plan.transfers)
    if (!transfer.isLocal())
      most = std::max(most, units[transfer.*rank] += transfer.units);
  return most;
}
int64_t maxSentUnits(const ReshardPlan &plan) {
  return maxUnits(plan, &ReshardTransfer::srcRank);
}
int64_t maxReceivedUnits(const ReshardPlan &plan) {
  return maxUnits(plan, &ReshardTransfer::dstRank);
}

/// Moves sample numbers as the plan says and checks that every rank ends up
/// with exactly its samples, each written once.
void simulate(const Strategy &from, const Strategy &to,
              const std::vector<int64_t> &fromDevices,
              const std::vector<int64_t> &toDevices, int64_t samples) {
  ReshardPlan plan = reshardPlan(from, to, fromDevices, toDevices, samples);
  SCOPED_TRACE(from.str() + " -> " + to.str());
  std::map<int64_t, std::vector<int64_t>> source, target;
  for (size_t r = 0; r < fromDevices.size(); ++r)
    source[fromDevices[r]] = heldSamples(from, r, samples);
  for (size_t r = 0; r < toDevices.size(); ++r)
    target[toDevices[r]].assign(heldSamples(to, r, samples).size(), -1);
  if (plan.transfers.empty()) {
    for (size_t r = 0; r < toDevices.size(); ++r)
      EXPECT_EQ(source[toDevices[r]], heldSamples(to, r, samples));
    return;
  }
  for (const ReshardTransfer &transfer : plan.transfers) {
    ASSERT_GT(transfer.units, 0);
    for (int64_t u = 0; u < transfer.units; ++u) {
      int64_t &slot = target.at(transfer.dstRank).at(transfer.dstUnit + u);
      EXPECT_EQ(slot, -1) << "written twice";
      slot = source.at(transfer.srcRank).at(transfer.srcUnit + u);
    }
  }
  for (size_t r = 0; r < toDevices.size(); ++r)
    EXPECT_EQ(target[toDevices[r]], heldSamples(to, r, samples));

  // Nothing travels that the receiver has.
  if (fromDevices == toDevices)
    for (const ReshardTransfer &transfer : plan.transfers)
      if (!transfer.isLocal()) {
        const std::vector<int64_t> &own = source[transfer.dstRank];
        int64_t sample = source[transfer.srcRank][transfer.srcUnit];
        EXPECT_EQ(std::count(own.begin(), own.end(), sample), 0);
      }
}

/// Each sender is the owner that has sent least so far, of these the nearest to
/// the receiver, of these the first: looked for among all owners.
void checkSenders(const Strategy &from, const Strategy &to,
                  const std::vector<int64_t> &fromDevices,
                  const std::vector<int64_t> &toDevices) {
  int64_t samples = 2 * std::lcm(from.sampleShards(), to.sampleShards());
  ReshardPlan plan = reshardPlan(from, to, fromDevices, toDevices, samples);
  SCOPED_TRACE(from.str() + " -> " + to.str());
  std::vector<int64_t> layout = from.sampleLayout().blocksByRank();
  std::map<int64_t, size_t> rankOf;
  for (size_t rank = 0; rank < fromDevices.size(); ++rank)
    rankOf[fromDevices[rank]] = rank;
  std::map<int64_t, int64_t> sent;
  for (const ReshardTransfer &transfer : plan.transfers) {
    if (transfer.isLocal())
      continue;
    int64_t block = layout[rankOf.at(transfer.srcRank)];
    std::tuple<int64_t, int64_t, int64_t> least(INT64_MAX, 0, 0);
    for (size_t rank = 0; rank < fromDevices.size(); ++rank)
      if (layout[rank] == block)
        least =
            std::min(least, {sent[fromDevices[rank]],
                             std::llabs(fromDevices[rank] - transfer.dstRank),
                             fromDevices[rank]});
    ASSERT_EQ(transfer.srcRank, std::get<2>(least));
    sent[transfer.srcRank] += transfer.units;
  }
}

TEST(ReshardPlan, the_idlest_and_nearest_owner_sends) {
  SpaceOptions all;
  all.keepDpSdp = true;
  all.checkpoint = CheckpointChoice::Never;
  std::mt19937 random(3);
  for (auto [before, after] :
       {std::pair<int64_t, int64_t>{8, 8}, {4, 8}, {12, 6}, {16, 16}}) {
    std::vector<int64_t> devices = ranks(0, before + after);
    for (int round = 0; round < 2; ++round) {
      std::vector<int64_t> first(devices.begin(), devices.begin() + before);
      std::vector<int64_t> second(devices.begin() + before, devices.end());
      for (const Strategy &from : enumerateStrategies(before, all))
        for (const Strategy &to : enumerateStrategies(after, all)) {
          checkSenders(from, to, first, second);
          if (before == after)
            checkSenders(from, to, first, first);
        }
      // Devices of nodes in turn.
      std::shuffle(devices.begin(), devices.end(), random);
    }
  }
}

TEST(ReshardPlan, of_many_owners_the_idlest_and_nearest_sends) {
  std::vector<int64_t> devices = ranks(0, 160), shuffled = devices;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(5));
  for (const std::vector<int64_t> &list : {devices, shuffled}) {
    std::vector<int64_t> first(list.begin(), list.begin() + 80);
    std::vector<int64_t> second(list.begin() + 80, list.end());
    for (const char *from : {"tp80", "dp2.tp40", "tp20.dp4", "tp5.dp4.sdp4"})
      for (const char *to :
           {"dp80", "tp2.dp40", "dp4.tp20", "tp80", "tp40.dp2"})
        for (const std::vector<int64_t> &receivers : {first, second})
          checkSenders(get(from), get(to), first, receivers);
  }
}

TEST(ReshardPlan, every_pair_inside_a_stage) {
  SpaceOptions all;
  all.keepDpSdp = true;
  all.checkpoint = CheckpointChoice::Never;
  for (int64_t devices : {1, 2, 4, 8, 6}) {
    std::vector<Strategy> strategies = enumerateStrategies(devices, all);
    for (const Strategy &from : strategies)
      for (const Strategy &to : strategies) {
        int64_t samples = 3 * std::lcm(from.sampleShards(), to.sampleShards());
        simulate(from, to, ranks(0, devices), ranks(0, devices), samples);
      }
  }
}

TEST(ReshardPlan, every_pair_across_a_cut) {
  SpaceOptions all;
  all.keepDpSdp = true;
  all.checkpoint = CheckpointChoice::Never;
  for (auto [before, after] :
       {std::pair<int64_t, int64_t>{8, 8}, {4, 8}, {8, 4}, {2, 6}, {1, 4}})
    for (const Strategy &from : enumerateStrategies(before, all))
      for (const Strategy &to : enumerateStrategies(after, all)) {
        int64_t samples = 2 * std::lcm(from.sampleShards(), to.sampleShards());
        simulate(from, to, ranks(4, before), ranks(4 + before, after), samples);
      }
}

TEST(ReshardPlan, equal_layouts_keep_what_they_have) {
  auto transfers = [](const char *from, const char *to) {
    Strategy a = get(from), b = get(to);
    return reshardPlan(a, b, ranks(0, a.devices()), ranks(0, b.devices()), 8)
        .transfers.size();
  };
  EXPECT_EQ(transfers("dp8", "sdp8"), 0u);
  EXPECT_EQ(transfers("dp8", "dp8.ckpt"), 0u);
  EXPECT_EQ(transfers("dp2.sdp4", "sdp8"), 0u);
  EXPECT_NE(transfers("tp8", "dp8"), 0u);
  EXPECT_NE(transfers("dp2.tp2.sdp2", "dp4.tp2"), 0u);
}

TEST(ReshardPlan, equal_degrees_in_another_order_need_an_exchange) {
  ReshardPlan plan =
      reshardPlan(get("dp2.tp2"), get("tp2.dp2"), ranks(0, 4), ranks(0, 4), 4);
  // Ranks 0 and 3 keep their blocks, ranks 1 and 2 change.
  EXPECT_EQ(totalUnits(plan), 4);
  EXPECT_EQ(maxSentUnits(plan), 2);
  EXPECT_EQ(maxReceivedUnits(plan), 2);
}

TEST(ReshardPlan, owners_share_the_sending) {
  // Four owners of everything, four receivers of a quarter each.
  ReshardPlan cut =
      reshardPlan(get("tp4"), get("dp4"), ranks(0, 4), ranks(4, 4), 8);
  EXPECT_EQ(maxSentUnits(cut), 2);
  // The other half comes from the four ranks that hold it, one each.
  ReshardPlan gather =
      reshardPlan(get("dp2.tp4"), get("tp8"), ranks(0, 8), ranks(0, 8), 8);
  EXPECT_EQ(maxSentUnits(gather), 4);
  EXPECT_EQ(maxReceivedUnits(gather), 4);
}

TEST(ReshardPlan, a_senders_load_is_counted_in_units) {
  // Three groups of four owners hold four samples each, twelve receivers fetch
  // three each: an owner that is asked for one sample is not as busy as one
  // that is asked for three.
  ReshardPlan cut = reshardPlan(get("dp3.tp4"), get("tp3.dp4"), ranks(0, 12),
                                ranks(12, 12), 12);
  EXPECT_EQ(totalUnits(cut), 36);
  EXPECT_EQ(maxReceivedUnits(cut), 3);
  EXPECT_EQ(maxSentUnits(cut), 4);
}

TEST(ReshardPlan, backward_moves_as_much_for_slice_and_gather) {
  ReshardPlan forward =
      reshardPlan(get("dp8"), get("tp8"), ranks(0, 8), ranks(0, 8), 8);
  ReshardPlan backward =
      reshardPlan(get("tp8"), get("dp8"), ranks(0, 8), ranks(0, 8), 8);
  EXPECT_EQ(totalUnits(forward), 56);
  EXPECT_EQ(totalUnits(backward), 0);
}

} // namespace

TEST(SampleLayout, windows_of_the_period_own_their_blocks) {
  SpaceOptions space;
  space.keepDpSdp = true;
  for (int64_t devices : {1, 8, 12, 24})
    for (const Strategy &strategy : enumerateStrategies(devices, space)) {
      SampleLayout layout = strategy.sampleLayout();
      // Whether the ranks of every window of `q` own a range of blocks, in the
      // same order everywhere.
      auto repeats = [&](int64_t q) {
        int64_t shift = layout.blocks() * q / devices;
        if (layout.blocks() * q % devices != 0)
          return false;
        for (int64_t rank = 0; rank < devices; ++rank)
          if (layout.block(rank) != layout.block(rank % q) + rank / q * shift ||
              layout.block(rank % q) >= shift)
            return false;
        return true;
      };
      SCOPED_TRACE(strategy.str());
      for (int64_t q = 1; q <= devices; ++q)
        if (devices % q == 0)
          EXPECT_EQ(repeats(q), q % layout.period() == 0) << q;
    }
}
