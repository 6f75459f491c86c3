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
class RendezvousSimulation : public ::testing::Test {
protected:
  RendezvousSimulation() {
    options.at.size = std::getenv("GALVATRON_LONG") ? 16384 : 4096;
    options.at.address = "alpha";
    options.at.port = 29500;
    options.at.run = "run";
    options.at.secret = "what strangers do not know";
    victim = options.at.size / 2 + 3;
  }

  SimulatedRendezvous &make() {
    rendezvous = std::make_unique<SimulatedRendezvous>(options);
    return *rendezvous;
  }
  void addStrangers(int count, double until) {
    for (int i = 0; i < count; ++i)
      rendezvous->addStranger(rendezvous->random(0, until));
  }

  /// Expects that all that were not killed are members of one run, each with
  /// the number that it was started with, and know where their neighbours are.
  void expectAllMet() {
    ASSERT_EQ(rendezvous->failure, "");
    ASSERT_EQ(rendezvous->size, options.at.size);
    std::map<int, int> ranks;
    int wrong = 0;
    for (const auto &peer : rendezvous->peers) {
      if (!peer->membership) {
        wrong += !peer->dead && peer->code < 0;
        // This peer died as it was told.
        if (peer->begun)
          ++ranks[peer->at.rank];
        continue;
      }
      const Membership &membership = *peer->membership;
      ++ranks[membership.rank];
      wrong += membership.rank != peer->at.rank ||
               membership.size != options.at.size ||
               membership.key != rendezvous->key;
      std::vector<int> known =
          lowerNeighbours(membership.rank, membership.size);
      known.push_back(membership.rank);
      wrong += membership.contacts.size() != known.size();
      for (int other : known) {
        auto at = membership.contacts.find(other);
        wrong += at == membership.contacts.end() || at->second.count != 1 ||
                 !(at->second.endpoints[0] ==
                   SimulatedRendezvous::contactOf(other).endpoints[0]);
      }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(int(ranks.size()), options.at.size - 1);
    for (auto [rank, count] : ranks)
      EXPECT_EQ(count, 1) << rank;
  }

  int countOf(int code) {
    return int(
        std::count_if(rendezvous->peers.begin(), rendezvous->peers.end(),
                      [&](const auto &peer) { return peer->code == code; }));
  }

  SimulatedRendezvousOptions options;
  std::unique_ptr<SimulatedRendezvous> rendezvous;
  int victim;
};

class Nobody : public ArrivalsEnvironment {
public:
  bool isThere(int) override { return false; }
  void answer(int, bool, const std::string &) override {}
};

/// Time passes between a look and the sleep behind it: a moment that comes in
/// between is not slept through.
TEST(Arrivals, WakesForWhatWasTooEarly) {
  using std::chrono::milliseconds;
  Rendezvous at;
  at.size = 3;
  at.smaller = {2};
  at.restart = 1;
  at.seconds = 60;
  at.graceSeconds = 1;
  Nobody nobody;
  const Clock::time_point begin = Clock::now();
  Arrivals arrivals(at, nobody, begin);
  EXPECT_EQ(arrivals.look(begin + milliseconds(999)), Arrivals::State::Waiting);
  EXPECT_EQ(arrivals.wakeAt(), begin + milliseconds(1000));
  EXPECT_EQ(arrivals.look(begin + milliseconds(1000)),
            Arrivals::State::Waiting);
  EXPECT_EQ(arrivals.wakeAt(), begin + milliseconds(60000));
}

TEST_F(RendezvousSimulation, AllComeBesideStrangers) {
  make().addAll();
  addStrangers(2000, options.spread);
  rendezvous->run();
  expectAllMet();
  EXPECT_LT(rendezvous->doneAt, options.spread + 0.2);
  EXPECT_GT(rendezvous->dropped().strangers, 500u);
  // Silent peers fill what handshakes may take, and give way.
  EXPECT_GT(rendezvous->dropped().crowded, 0u);
  // A stranger costs nobody a second attempt.
  for (const auto &peer : rendezvous->peers)
    EXPECT_EQ(peer->attempts, 1);
}

/// The cost is that which docs/operations.md says, and grows as the number of
/// processes does: process 0 looks at each of those that wait once, not once
/// for each that comes.
TEST_F(RendezvousSimulation, BytesAndCallsAreAsDocumented) {
  make().addAll();
  rendezvous->run();
  expectAllMet();
  const uint64_t others = uint64_t(options.at.size) - 1;
  uint64_t neighbours = 0;
  for (int rank = 1; rank < options.at.size; ++rank)
    neighbours += lowerNeighbours(rank, options.at.size).size();
  // A challenge of 64 bytes; 8, 32 and 8 before an answer's contacts and 32
  // behind them, each with one address.
  EXPECT_EQ(rendezvous->sentBytes,
            others * (64 + 80) + neighbours * (1 + sizeof(Endpoint)));
  EXPECT_LE(rendezvous->looks, others);
  RecordProperty("bytes", int(rendezvous->sentBytes));
}

/// All processes come at the same moment, to a process 0 that takes a
/// millisecond for each.
TEST_F(RendezvousSimulation, AtOnceToASlowProcess0) {
  options.spread = 0;
  options.stepCost = 1e-3;
  make().addAll();
  addStrangers(500, 1);
  rendezvous->run();
  expectAllMet();
  EXPECT_GT(rendezvous->mostWaiting, 1000u);
  EXPECT_LT(rendezvous->doneAt, options.at.size * 4e-3 + 10);
}

TEST_F(RendezvousSimulation, OneNeverComes) {
  options.at.seconds = 10;
  options.spread = 1;
  make().addAll({victim});
  addStrangers(500, 10);
  rendezvous->run();
  const std::string expected =
      "1 of " + std::to_string(options.at.size) +
      " processes did not come to alpha:29500 within 10 s: missing RANK " +
      std::to_string(victim) + "; dropped connections: ";
  EXPECT_EQ(rendezvous->failure.find(expected), 0u) << rendezvous->failure;
  EXPECT_NEAR(rendezvous->doneAt, 10, 0.1);
  for (const auto &peer : rendezvous->peers) {
    EXPECT_EQ(peer->code, ExitPeerLost);
    EXPECT_EQ(peer->problem, rendezvous->failure);
    EXPECT_LT(peer->ended, 10.2);
  }
}

TEST_F(RendezvousSimulation, ManyThatNeverComeAreNotAllNamed) {
  options.at.seconds = 5;
  options.spread = 1;
  std::set<int> gone;
  for (int rank = 1; rank < options.at.size; rank += 2)
    gone.insert(rank);
  make().addAll(gone);
  rendezvous->run();
  EXPECT_EQ(rendezvous->failure.find(std::to_string(options.at.size / 2) +
                                     " of " + std::to_string(options.at.size)),
            0u)
      << rendezvous->failure;
  EXPECT_NE(rendezvous->failure.find("missing RANK 1, 3, 5, "),
            std::string::npos);
  EXPECT_TRUE(rendezvous->failure.ends_with(", ...")) << rendezvous->failure;
  EXPECT_LT(rendezvous->failure.size(), 1200u);
  EXPECT_EQ(countOf(ExitPeerLost), options.at.size / 2 - 1);
}

/// The victim has come, and dies while others still come.
TEST_F(RendezvousSimulation, OneDiesInTheMiddle) {
  options.at.seconds = 10;
  options.spread = 2;
  make().addAll({victim});
  int dies = rendezvous->add(victim, 0.1);
  rendezvous->when(1, [&] { rendezvous->kill(dies); });
  rendezvous->run();
  EXPECT_NE(rendezvous->failure.find("missing RANK " + std::to_string(victim)),
            std::string::npos)
      << rendezvous->failure;
  EXPECT_EQ(countOf(ExitPeerLost), options.at.size - 2);
}

/// The victim dies while others still come, and is started again by its
/// launcher.
TEST_F(RendezvousSimulation, OneDiesInTheMiddleAndComesAgain) {
  make().addAll({victim});
  int dies = rendezvous->add(victim, 0.1);
  rendezvous->when(1, [&] { rendezvous->kill(dies); });
  rendezvous->add(victim, options.spread + 2);
  rendezvous->run();
  expectAllMet();
  EXPECT_GT(rendezvous->doneAt, options.spread + 2);
}

/// Process 0 waits for another process if it hears of the death before all have
/// come, and says so in the end; else the others are a run, whose connections
/// find it.
TEST_F(RendezvousSimulation, TheLastOneDiesAsItComes) {
  options.at.size = 64;
  options.at.seconds = 10;
  victim = 40;
  int begun = 0, refused = 0;
  for (options.seed = 1; options.seed <= 100; ++options.seed) {
    SCOPED_TRACE(options.seed);
    make().addAll({victim});
    int dies = rendezvous->add(victim, options.spread + 1);
    rendezvous->when(options.spread + 1 + rendezvous->random(0, 0.012),
                     [&] { rendezvous->kill(dies); });
    rendezvous->run();
    int members = 0;
    for (const auto &peer : rendezvous->peers)
      members += peer->membership && !peer->dead;
    if (rendezvous->failure.empty()) {
      ++begun;
      EXPECT_EQ(members, options.at.size - 2);
      continue;
    }
    ++refused;
    EXPECT_NE(rendezvous->failure.find("missing RANK 40"), std::string::npos);
    EXPECT_EQ(countOf(ExitPeerLost), options.at.size - 2);
  }
  // Runs that began and runs that were refused were both met.
  EXPECT_GT(begun, 10);
  EXPECT_GT(refused, 10);
}

TEST_F(RendezvousSimulation, TwoOfOneRank) {
  make().addAll();
  int second = rendezvous->add(victim, options.spread - 0.001);
  rendezvous->run();
  // Either may have come first.
  expectAllMet();
  int turnedAway = 0;
  for (const auto &peer : rendezvous->peers)
    if (peer->code >= 0) {
      ++turnedAway;
      EXPECT_EQ(peer->at.rank, victim);
      EXPECT_EQ(peer->code, ExitInvalid);
      EXPECT_EQ(peer->problem,
                "two processes have RANK=" + std::to_string(victim));
    }
  // The second process may also have come too late to be told.
  EXPECT_LE(turnedAway, 1);
  EXPECT_TRUE(turnedAway || !rendezvous->peers[size_t(second)]->membership);
}

/// A host of eight does not come: the run goes on with half of the processes,
/// the first of those that came, and the others are told.
TEST_F(RendezvousSimulation, WithFewerAfterTheGrace) {
  options.at.smaller = {options.at.size / 2, options.at.size / 4};
  options.at.graceSeconds = 8;
  options.at.restart = 1;
  std::set<int> host;
  for (int rank = victim / 8 * 8; rank < victim / 8 * 8 + 8; ++rank)
    host.insert(rank);
  // A process of the lower half does not come, either.
  host.insert(7);
  make().addAll(host);
  rendezvous->run();
  EXPECT_EQ(rendezvous->failure, "");
  EXPECT_EQ(rendezvous->size, options.at.size / 2);
  EXPECT_NEAR(rendezvous->doneAt, 8, 0.1);
  int members = 0;
  for (const auto &peer : rendezvous->peers) {
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
TEST_F(RendezvousSimulation, ThoseOfTheAttemptBeforeAreTurnedAway) {
  options.at.restart = 3;
  make().addAll();
  int stale = 0;
  for (int rank = 8; rank < options.at.size; rank += 8, ++stale)
    rendezvous->add(rank, rendezvous->random(0, options.spread / 2),
                    [](Rendezvous &at) { at.restart = 2; });
  rendezvous->run();
  expectAllMet();
  EXPECT_EQ(countOf(ExitInvalid), stale);
}

/// Under --restarts they have missed one, and take its number.
TEST_F(RendezvousSimulation, ThoseThatMissedARestartCatchUp) {
  options.at.restart = 2;
  options.at.catchesUp = true;
  make();
  for (int rank = 1; rank < options.at.size; ++rank)
    rendezvous->add(rank, rendezvous->random(0, options.spread),
                    [&](Rendezvous &at) { at.restart = rank % 8 ? 3 : 1; });
  rendezvous->run();
  expectAllMet();
}

/// Processes die and come again, twice of one rank, late and early, beside
/// strangers: whoever lives at the end is a member, and all are there.
TEST_F(RendezvousSimulation, AnyOrderOfComingAndGoing) {
  options.at.size = 32;
  const unsigned rounds = std::getenv("GALVATRON_LONG") ? 5000 : 200;
  for (unsigned round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    options.seed = round;
    options.longestDelay = round % 2 ? 0.3 : 0.002;
    make();
    for (int rank = 1; rank < options.at.size; ++rank) {
      double when = rendezvous->random(0, 3);
      for (unsigned lives = rendezvous->engine() % 3; lives; --lives) {
        int dies = rendezvous->add(rank, when);
        when += rendezvous->random(0, 2);
        rendezvous->when(when, [this, dies] { rendezvous->kill(dies); });
        // Its successor comes when it is known to be gone.
        when += 3 * options.longestDelay;
      }
      rendezvous->add(rank, when);
    }
    addStrangers(60, 8);
    rendezvous->run();
    expectAllMet();
    if (HasFailure())
      return;
  }
}

} // namespace
