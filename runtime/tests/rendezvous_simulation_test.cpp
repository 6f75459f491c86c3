//===- rendezvous_simulation_test.cpp - Thousands of processes meet -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/tree.h"
#include "grt/processes.h"
#include "grt/session.h"
#include "simulated_rendezvous.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

using namespace grt;
using namespace grt::test;

namespace {

/// Runs of 4,096 processes; 16,384 under GALVATRON_LONG.
class Meeting : public ::testing::Test {
protected:
  Meeting() {
    options.at.size = std::getenv("GALVATRON_LONG") ? 16384 : 4096;
    options.at.address = "alpha";
    options.at.port = 29500;
    options.at.run = "run";
    options.at.secret = "what strangers do not know";
    victim = options.at.size / 2 + 3;
  }

  SimulatedMeeting &make() {
    meeting = std::make_unique<SimulatedMeeting>(options);
    return *meeting;
  }
  void addStrangers(int count, double until) {
    for (int i = 0; i < count; ++i)
      meeting->addStranger(meeting->random(0, until));
  }

  /// All that were not killed are members of one run, each with the number that
  /// it was started with, and know where their neighbours are.
  void expectAllMet() {
    ASSERT_EQ(meeting->failure, "");
    ASSERT_EQ(meeting->size, options.at.size);
    std::map<int, int> ranks;
    int wrong = 0;
    for (const auto &peer : meeting->peers) {
      if (!peer->membership) {
        wrong += !peer->dead && peer->code < 0;
        // One that died as it was told.
        if (peer->begun)
          ++ranks[peer->at.rank];
        continue;
      }
      const Membership &membership = *peer->membership;
      ++ranks[membership.rank];
      wrong += membership.rank != peer->at.rank ||
               membership.size != options.at.size ||
               membership.key != meeting->key;
      std::vector<int> known =
          lowerNeighbours(membership.rank, membership.size);
      known.push_back(membership.rank);
      wrong += membership.contacts.size() != known.size();
      for (int other : known) {
        auto at = membership.contacts.find(other);
        wrong += at == membership.contacts.end() || at->second.count != 1 ||
                 !(at->second.endpoints[0] ==
                   SimulatedMeeting::contactOf(other).endpoints[0]);
      }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(int(ranks.size()), options.at.size - 1);
    for (auto [rank, count] : ranks)
      EXPECT_EQ(count, 1) << rank;
  }

  int countOf(int code) {
    return int(
        std::count_if(meeting->peers.begin(), meeting->peers.end(),
                      [&](const auto &peer) { return peer->code == code; }));
  }

  MeetingOptions options;
  std::unique_ptr<SimulatedMeeting> meeting;
  int victim;
};

TEST_F(Meeting, AllComeBesideStrangers) {
  make().addAll();
  addStrangers(2000, options.spread);
  meeting->run();
  expectAllMet();
  EXPECT_LT(meeting->doneAt, options.spread + 0.2);
  EXPECT_GT(meeting->dropped().strangers, 500u);
  // Those that are silent fill what handshakes may take, and give way.
  EXPECT_GT(meeting->dropped().crowded, 0u);
  // Nobody needs a second attempt for a stranger's sake.
  for (const auto &peer : meeting->peers)
    EXPECT_EQ(peer->attempts, 1);
}

/// What docs/operations.md says of the cost, and that it grows as the number of
/// processes does: process 0 looks at each of those that wait once, not once
/// for each that comes.
TEST_F(Meeting, BytesAndCallsAreAsDocumented) {
  make().addAll();
  meeting->run();
  expectAllMet();
  const uint64_t others = uint64_t(options.at.size) - 1;
  uint64_t neighbours = 0;
  for (int rank = 1; rank < options.at.size; ++rank)
    neighbours += lowerNeighbours(rank, options.at.size).size();
  // A challenge of 64 bytes; 8, 32 and 8 before an answer's contacts and 32
  // behind them, each with one address.
  EXPECT_EQ(meeting->sentBytes,
            others * (64 + 80) + neighbours * (1 + sizeof(Endpoint)));
  EXPECT_LE(meeting->looks, others);
  RecordProperty("bytes", int(meeting->sentBytes));
}

/// All at the same moment, with a process 0 that takes a millisecond for each.
TEST_F(Meeting, AtOnceToASlowProcess0) {
  options.spread = 0;
  options.stepCost = 1e-3;
  make().addAll();
  addStrangers(500, 1);
  meeting->run();
  expectAllMet();
  EXPECT_GT(meeting->mostWaiting, 1000u);
  EXPECT_LT(meeting->doneAt, options.at.size * 4e-3 + 10);
}

TEST_F(Meeting, OneNeverComes) {
  options.at.seconds = 10;
  options.spread = 1;
  make().addAll({victim});
  addStrangers(500, 10);
  meeting->run();
  const std::string expected =
      "1 of " + std::to_string(options.at.size) +
      " processes did not come to alpha:29500 within 10 s: missing RANK " +
      std::to_string(victim) + "; dropped connections: ";
  EXPECT_EQ(meeting->failure.find(expected), 0u) << meeting->failure;
  EXPECT_NEAR(meeting->doneAt, 10, 0.1);
  for (const auto &peer : meeting->peers) {
    EXPECT_EQ(peer->code, ExitPeerLost);
    EXPECT_EQ(peer->problem, meeting->failure);
    EXPECT_LT(peer->ended, 10.2);
  }
}

TEST_F(Meeting, ManyThatNeverComeAreNotAllNamed) {
  options.at.seconds = 5;
  options.spread = 1;
  std::set<int> gone;
  for (int rank = 1; rank < options.at.size; rank += 2)
    gone.insert(rank);
  make().addAll(gone);
  meeting->run();
  EXPECT_EQ(meeting->failure.find(std::to_string(options.at.size / 2) + " of " +
                                  std::to_string(options.at.size)),
            0u)
      << meeting->failure;
  EXPECT_NE(meeting->failure.find("missing RANK 1, 3, 5, "), std::string::npos);
  EXPECT_TRUE(meeting->failure.ends_with(", ...")) << meeting->failure;
  EXPECT_LT(meeting->failure.size(), 1200u);
  EXPECT_EQ(countOf(ExitPeerLost), options.at.size / 2 - 1);
}

/// It has come, and dies while others still come.
TEST_F(Meeting, OneDiesInTheMiddle) {
  options.at.seconds = 10;
  options.spread = 2;
  make().addAll({victim});
  int dies = meeting->add(victim, 0.1);
  meeting->when(1, [&] { meeting->kill(dies); });
  meeting->run();
  EXPECT_NE(meeting->failure.find("missing RANK " + std::to_string(victim)),
            std::string::npos)
      << meeting->failure;
  EXPECT_EQ(countOf(ExitPeerLost), options.at.size - 2);
}

/// The same, started again by its launcher.
TEST_F(Meeting, OneDiesInTheMiddleAndComesAgain) {
  make().addAll({victim});
  int dies = meeting->add(victim, 0.1);
  meeting->when(1, [&] { meeting->kill(dies); });
  meeting->add(victim, options.spread + 2);
  meeting->run();
  expectAllMet();
  EXPECT_GT(meeting->doneAt, options.spread + 2);
}

/// Where process 0 hears of the death before all have come, it waits for
/// another one, and says so in the end; else the others are a run, whose
/// connections find it.
TEST_F(Meeting, TheLastOneDiesAsItComes) {
  options.at.size = 64;
  options.at.seconds = 10;
  victim = 40;
  int begun = 0, refused = 0;
  for (options.seed = 1; options.seed <= 100; ++options.seed) {
    SCOPED_TRACE(options.seed);
    make().addAll({victim});
    int dies = meeting->add(victim, options.spread + 1);
    meeting->when(options.spread + 1 + meeting->random(0, 0.012),
                  [&] { meeting->kill(dies); });
    meeting->run();
    int members = 0;
    for (const auto &peer : meeting->peers)
      members += peer->membership && !peer->dead;
    if (meeting->failure.empty()) {
      ++begun;
      EXPECT_EQ(members, options.at.size - 2);
      continue;
    }
    ++refused;
    EXPECT_NE(meeting->failure.find("missing RANK 40"), std::string::npos);
    EXPECT_EQ(countOf(ExitPeerLost), options.at.size - 2);
  }
  // Both were met.
  EXPECT_GT(begun, 10);
  EXPECT_GT(refused, 10);
}

TEST_F(Meeting, TwoOfOneRank) {
  make().addAll();
  int second = meeting->add(victim, options.spread - 0.001);
  meeting->run();
  // Whichever came first.
  expectAllMet();
  int turnedAway = 0;
  for (const auto &peer : meeting->peers)
    if (peer->code >= 0) {
      ++turnedAway;
      EXPECT_EQ(peer->at.rank, victim);
      EXPECT_EQ(peer->code, ExitInvalid);
      EXPECT_EQ(peer->problem,
                "two processes have RANK=" + std::to_string(victim));
    }
  // It may also have come too late to be told.
  EXPECT_LE(turnedAway, 1);
  EXPECT_TRUE(turnedAway || !meeting->peers[size_t(second)]->membership);
}

/// A host of eight does not come: the run goes on with half of the processes,
/// the first of those that came, and the others are told.
TEST_F(Meeting, WithFewerAfterTheGrace) {
  options.at.smaller = {options.at.size / 2, options.at.size / 4};
  options.at.graceSeconds = 8;
  std::set<int> host;
  for (int rank = victim / 8 * 8; rank < victim / 8 * 8 + 8; ++rank)
    host.insert(rank);
  // Of the lower half, too.
  host.insert(7);
  make().addAll(host);
  meeting->run();
  EXPECT_EQ(meeting->failure, "");
  EXPECT_EQ(meeting->size, options.at.size / 2);
  EXPECT_NEAR(meeting->doneAt, 8, 0.1);
  int members = 0;
  for (const auto &peer : meeting->peers) {
    if (!peer->membership) {
      EXPECT_EQ(peer->code, exitSpare);
      continue;
    }
    ++members;
    EXPECT_EQ(peer->membership->rank,
              peer->at.rank -
                  std::distance(host.begin(), host.lower_bound(peer->at.rank)));
    EXPECT_EQ(peer->membership->size, options.at.size / 2);
  }
  EXPECT_EQ(members, options.at.size / 2 - 1);
  EXPECT_EQ(countOf(exitSpare), options.at.size - 9 - options.at.size / 2);
}

/// Every eighth process is left over from the attempt before.
TEST_F(Meeting, ThoseOfTheAttemptBeforeAreTurnedAway) {
  options.at.restart = 3;
  make().addAll();
  int stale = 0;
  for (int rank = 8; rank < options.at.size; rank += 8, ++stale)
    meeting->add(rank, meeting->random(0, options.spread / 2),
                 [](Rendezvous &at) { at.restart = 2; });
  meeting->run();
  expectAllMet();
  EXPECT_EQ(countOf(ExitInvalid), stale);
}

/// Under --restarts they have missed one, and take its number.
TEST_F(Meeting, ThoseThatMissedARestartCatchUp) {
  options.at.restart = 2;
  options.at.catchesUp = true;
  make();
  for (int rank = 1; rank < options.at.size; ++rank)
    meeting->add(rank, meeting->random(0, options.spread),
                 [&](Rendezvous &at) { at.restart = rank % 8 ? 3 : 1; });
  meeting->run();
  expectAllMet();
}

/// Processes die and come again, twice of one rank, late and early, beside
/// strangers: whoever lives at the end is a member, and all are there.
TEST_F(Meeting, AnyOrderOfComingAndGoing) {
  options.at.size = 32;
  const unsigned rounds = std::getenv("GALVATRON_LONG") ? 5000 : 200;
  for (unsigned round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    options.seed = round;
    options.longestDelay = round % 2 ? 0.3 : 0.002;
    make();
    for (int rank = 1; rank < options.at.size; ++rank) {
      double when = meeting->random(0, 3);
      for (unsigned lives = meeting->engine() % 3; lives; --lives) {
        int dies = meeting->add(rank, when);
        when += meeting->random(0, 2);
        meeting->when(when, [this, dies] { meeting->kill(dies); });
        // Its successor comes when it is known to be gone.
        when += 3 * options.longestDelay;
      }
      meeting->add(rank, when);
    }
    addStrangers(60, 8);
    meeting->run();
    expectAllMet();
    if (HasFailure())
      return;
  }
}

} // namespace
