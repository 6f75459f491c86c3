//===- failure_detector_test.cpp - Verdicts over many processes -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/session.h"
#include "simulated_processes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

using namespace grt;
using namespace grt::test;

namespace {

//===----------------------------------------------------------------------===//
// Reports and hosts
//===----------------------------------------------------------------------===//

TEST(Beat, ReportsAsBytes) {
  std::vector<ProcessReport> reports(2);
  reports[0].process = 3;
  reports[0].age = 1.25;
  reports[0].firstRank = 6;
  reports[0].ranks.resize(2);
  RankReport &second = reports[0].ranks[1];
  second.progress = 1ull << 40;
  second.busy = second.waiting = true;
  second.peers = {1, 70000};
  second.doing = "step 3";
  reports[1].process = 70001;
  reports[1].state = ProcessReport::Lost;
  std::string bytes = encode(reports);
  EXPECT_EQ(bytes.size(), 2 * 13u + 2 * 13 + 2 * 4 + 6);
  auto again = decodeReports(bytes);
  ASSERT_TRUE(again);
  EXPECT_EQ(encode(*again), bytes);
  EXPECT_EQ((*again)[0].age, 1.25);
  EXPECT_EQ((*again)[0].ranks[1].doing, "step 3");
  EXPECT_EQ((*again)[0].ranks[1].peers, (std::vector<int>{1, 70000}));
  EXPECT_FALSE((*again)[0].ranks[0].busy);
  EXPECT_EQ((*again)[1].state, ProcessReport::Lost);
  // The end of the first is the end of a message, too.
  for (size_t length = 1; length < bytes.size(); ++length)
    EXPECT_EQ(bool(decodeReports(bytes.substr(0, length))),
              length == bytes.size() - 13)
        << length;
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = bytes;
    for (int i = 0; i < 3; ++i)
      damaged[random() % damaged.size()] = char(random());
    decodeReports(damaged);
  }
  // A text that is too long is cut.
  reports[0].ranks[0].doing = std::string(1000, 'x');
  reports[0].ranks[0].peers.assign(100, 1);
  again = decodeReports(encode(reports));
  ASSERT_TRUE(again);
  EXPECT_EQ((*again)[0].ranks[0].doing, std::string(235, 'x'));
  EXPECT_EQ((*again)[0].ranks[0].peers.size(), 16u);
}

TEST(Beat, CollectivesAsBytes) {
  std::vector<ProcessReport> reports(1);
  reports[0].ranks.resize(2);
  RankReport &rank = reports[0].ranks[1];
  rank.known = true;
  rank.host = RankCollectives::InCollective;
  // Ranks of an order of their own, and those of every second machine.
  std::vector<int> some{70000, 3, 4, 5, 1}, many;
  for (int i = 0; i < 4096; ++i)
    many.push_back(8 * (i / 4) + i % 4);
  std::vector<CollectiveCall> calls;
  for (uint64_t number = 36; number < 44; ++number)
    calls.push_back({number, number << 33, CollectiveKind::AllGather, 3,
                     number == 40, number << 20});
  rank.communicators = {{"tp", some, 43, 40, 39, calls},
                        {"dp", std::vector<int>{1, 3, 5}, 7, 7, 7, {}}};
  std::string bytes = encode(reports);
  auto again = decodeReports(bytes);
  ASSERT_TRUE(again);
  EXPECT_EQ(encode(*again), bytes);
  EXPECT_FALSE((*again)[0].ranks[0].known);
  const RankReport &back = (*again)[0].ranks[1];
  EXPECT_TRUE(back.known);
  EXPECT_EQ(back.host, RankCollectives::InCollective);
  ASSERT_EQ(back.communicators.size(), 2u);
  const CommunicatorState &state = back.communicators[0];
  EXPECT_EQ(state.name, "tp");
  EXPECT_EQ(state.members.ranks(), some);
  EXPECT_EQ(state.enqueued, 43u);
  EXPECT_EQ(state.started, 40u);
  EXPECT_EQ(state.done, 39u);
  // The first that are not done, and the last that is.
  ASSERT_EQ(state.calls.size(), 4u);
  EXPECT_EQ(state.calls[0].number, 39u);
  EXPECT_EQ(state.calls[1].order, 40ull << 33);
  EXPECT_EQ(state.calls[1].bytes, 40ull << 20);
  EXPECT_EQ(state.calls[1].kind, CollectiveKind::AllGather);
  EXPECT_EQ(state.calls[1].stream, 3);
  EXPECT_TRUE(state.calls[1].inGraph);
  EXPECT_FALSE(state.calls[2].inGraph);
  // Half a list would be another communicator.
  rank.communicators[0].members = many;
  again = decodeReports(encode(reports));
  ASSERT_TRUE(again);
  EXPECT_FALSE((*again)[0].ranks[1].known);
  // Bytes that are none.
  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = bytes;
    for (int i = 0; i < 3; ++i)
      damaged[random() % damaged.size()] = char(random());
    decodeReports(damaged);
  }
}

TEST(HostTree, TheLowestOfAHostSpeaksForIt) {
  // Process 5 does not know where it is.
  HostTree tree({"b", "a", "b", "a", "a", "", ""});
  EXPECT_EQ(tree.children(0), (std::vector<int>{1, 2, 5, 6}));
  EXPECT_EQ(tree.children(1), (std::vector<int>{3, 4}));
  EXPECT_EQ(tree.children(2), std::vector<int>());
  EXPECT_EQ(tree.hostOf(4), (std::vector<int>{1, 3, 4}));
  EXPECT_EQ(tree.hostOf(5), std::vector<int>{5});
  const int parents[] = {-1, 0, 0, 1, 1, 0, 0};
  for (int i = 0; i < tree.size(); ++i)
    EXPECT_EQ(tree.parent(i), parents[i]) << i;
}

//===----------------------------------------------------------------------===//
// Simulated runs
//===----------------------------------------------------------------------===//

/// Processes in hosts of eight, of which a process in the middle or its relay
/// meets a fault. A thousand, 4,096 where a test asks for `many`; 16,384 under
/// GALVATRON_LONG.
class Simulation : public ::testing::Test {
protected:
  Simulation() { resize(1024); }
  void many() { resize(4096); }
  void resize(int processes) {
    options.processes = std::getenv("GALVATRON_LONG") ? 16384 : processes;
    victim = options.processes / 2 + 3;
    relay = victim - 3;
  }

  static constexpr double faultAt = 2.5;
  static constexpr const char *silent = " gave no sign of life for 8 s";
  static constexpr const char *ended = " ended without a word";

  SimulatedRun &start() {
    run = std::make_unique<SimulatedRun>(options);
    run->runUntil(faultAt);
    EXPECT_TRUE(run->said.empty()) << run->said[0].what;
    return *run;
  }
  std::vector<int> hostOfVictim() { return run->tree.hostOf(victim); }
  std::string named(int process) {
    std::string n = std::to_string(process);
    return "process " + n + " (rank " + n + ", pid " + n + " on 'n" +
           std::to_string(process / options.perHost) + "')";
  }
  std::string hostNamed() {
    return "host 'n" + std::to_string(relay / options.perHost) +
           "' (processes " + std::to_string(relay) + " to " +
           std::to_string(relay + options.perHost - 1) + ")";
  }

  /// Process 0 alone says `text` first, at most `seconds` after the fault, and
  /// all processes but `gone` end with `code`, soon.
  void expectVerdict(const std::string &text, double seconds,
                     const std::vector<int> &gone, int code = ExitPeerLost) {
    run->runUntil(faultAt + seconds + 4);
    ASSERT_EQ(run->said.size(), 1u)
        << (run->said.empty() ? "" : run->said[1].what);
    EXPECT_EQ(run->said[0].process, 0);
    EXPECT_EQ(run->said[0].what.substr(0, text.size()), text)
        << run->said[0].what;
    EXPECT_LE(run->said[0].when, faultAt + seconds);
    int wrong = 0;
    for (const auto &process : run->processes)
      if (std::find(gone.begin(), gone.end(), process->number) == gone.end())
        wrong += process->ended != code;
    EXPECT_EQ(wrong, 0);
  }

  SimulatedOptions options;
  std::unique_ptr<SimulatedRun> run;
  int victim, relay;
};

TEST_F(Simulation, MessagesAndBytesAreAsDocumented) {
  many();
  SimulatedRun &run = start();
  struct Counts {
    uint64_t sent, sentBytes, heard, heardBytes;
  };
  auto countsOf = [&](int number) {
    const SimulatedRun::Process &process = *run.processes[size_t(number)];
    return Counts{process.sent, process.sentBytes, process.heard,
                  process.heardBytes};
  };
  const int seconds = 10, hosts = options.processes / options.perHost;
  const int three[] = {0, relay, victim};
  Counts before[3];
  for (int i = 0; i < 3; ++i)
    before[i] = countsOf(three[i]);
  run.runUntil(faultAt + seconds);
  // Every connection carries one message each way in each second; a second more
  // or less for where the ten seconds begin, and beats come a tick late.
  const double connections[] = {options.perHost - 1.0 + hosts - 1,
                                double(options.perHost), 1};
  for (int i = 0; i < 3; ++i) {
    Counts after = countsOf(three[i]);
    for (auto [count, was] : {std::pair{after.sent, before[i].sent},
                              std::pair{after.heard, before[i].heard}}) {
      EXPECT_LE(double(count - was), connections[i] * seconds + 1) << i;
      EXPECT_GE(double(count - was), connections[i] * (seconds - 2)) << i;
    }
  }
  // A process is told of in 33 bytes and what its rank does, here in 50 to 80.
  Counts root = countsOf(0);
  const double each = double(root.heardBytes - before[0].heardBytes) / seconds /
                      (options.processes - 1);
  EXPECT_GT(each, 60);
  EXPECT_LT(each, 33 + 60);
  RecordProperty("bytes-a-process", int(each));
  EXPECT_TRUE(run.said.empty());
}

TEST_F(Simulation, ADeadProcess) {
  many();
  start().kill(victim);
  run->holdUp(victim);
  expectVerdict(named(victim) + ended + "; rank " + std::to_string(victim) +
                    " was last seen in step ",
                1, {victim});
  EXPECT_NE(run->said[0].what.find(
                "; rank " + std::to_string(victim - 1) +
                " waits for it: step 5, layer 'h.11', reduce-scatter"),
            std::string::npos)
      << run->said[0].what;
}

TEST_F(Simulation, ADeadProcessBesideProcess0) {
  start().kill(5);
  run->holdUp(5);
  expectVerdict(named(5) + ended, 1, {5});
}

TEST_F(Simulation, ADeadRelayIsNotItsHost) {
  many();
  start().kill(relay);
  run->holdUp(relay);
  expectVerdict(named(relay) + ended, 1.5, {relay});
}

/// The order is free: the relay may have told of some before it goes itself.
TEST_F(Simulation, AHostWhoseProcessesDie) {
  resize(64);
  for (options.seed = 1; options.seed <= 20; ++options.seed) {
    SCOPED_TRACE(options.seed);
    std::vector<int> host = (start(), hostOfVictim());
    for (int process : host)
      run->at(run->now + run->random(0, 0.005),
              [this, process] { run->kill(process); });
    run->holdUp(victim);
    expectVerdict(hostNamed() + ended, 4, host);
  }
}

TEST_F(Simulation, AHostWithoutPower) {
  many();
  std::vector<int> host = (start(), hostOfVictim());
  for (int process : host)
    run->powerOff(process);
  run->holdUp(victim);
  expectVerdict(hostNamed() + silent, 10, host);
}

TEST_F(Simulation, AStoppedProcess) {
  start().stop(victim);
  run->holdUp(victim);
  expectVerdict(named(victim) + silent, 10, {victim});
  EXPECT_NE(run->said[0].what.find("; rank " + std::to_string(victim) +
                                   " does not answer, and ranks 0, 1, "),
            std::string::npos)
      << run->said[0].what;
}

TEST_F(Simulation, AStoppedRelayIsNotItsHost) {
  start().stop(relay);
  run->holdUp(relay);
  expectVerdict(named(relay) + silent, 10, {relay});
}

TEST_F(Simulation, ACutLinkIsToldOnBothSides) {
  std::vector<int> host = (start(), hostOfVictim());
  run->cut(run->hostOf(victim));
  run->holdUp(victim);
  run->runUntil(faultAt + 14);
  ASSERT_EQ(run->said.size(), 2u);
  std::sort(run->said.begin(), run->said.end(),
            [](const auto &a, const auto &b) { return a.process < b.process; });
  EXPECT_EQ(run->said[0].process, 0);
  EXPECT_EQ(run->said[0].what.find(hostNamed() + silent), 0u)
      << run->said[0].what;
  EXPECT_EQ(run->said[1].process, relay);
  EXPECT_EQ(run->said[1].what.find(named(0) + silent), 0u) << run->said[1].what;
  for (const auto &process : run->processes)
    EXPECT_EQ(process->ended, ExitPeerLost) << process->number;
}

TEST_F(Simulation, WithoutProcess0EachHostSpeaks) {
  for (bool dies : {true, false}) {
    start();
    if (dies)
      run->kill(0);
    else
      run->stop(0);
    run->holdUp(0);
    run->runUntil(faultAt + (dies ? 5 : 14));
    // The others of its own host have nobody else.
    std::set<int> speakers;
    for (const auto &said : run->said) {
      speakers.insert(said.process);
      EXPECT_EQ(said.what.find(named(0) + (dies ? ended : silent)), 0u)
          << said.what;
    }
    std::vector<int> children = run->tree.children(0);
    EXPECT_EQ(speakers, std::set<int>(children.begin(), children.end()));
    EXPECT_EQ(run->said.size(), speakers.size());
    for (const auto &process : run->processes)
      if (process->number)
        EXPECT_EQ(process->ended, ExitPeerLost) << process->number;
  }
}

TEST_F(Simulation, ARankThatStandsStill) {
  options.limits.timeout = 5;
  start().holdUp(victim);
  expectVerdict("rank " + std::to_string(victim) +
                    " makes no progress for 5 s: step ",
                8, {});
  // All others are in the same call.
  const std::string found = "; rank " + std::to_string(victim) +
                            " never enqueued all-reduce 40 of 'dp' (ranks 0 "
                            "to " +
                            std::to_string(options.processes - 1) + ")";
  EXPECT_TRUE(run->said[0].what.ends_with(found)) << run->said[0].what;
}

TEST_F(Simulation, AFailureOfOneIsThatOfAll) {
  start().fail(victim, {3, "the loss is nan"});
  expectVerdict("the loss is nan", 0.5, {}, 3);
  // One without words as well.
  start().fail(victim, {3, ""});
  expectVerdict("", 0.5, {}, 3);
}

TEST_F(Simulation, WhoCallsTooLateIsToldToo) {
  resize(16);
  start().stop(relay);
  run->fail(0, {3, "the loss is nan"});
  EXPECT_FALSE(run->processes[size_t(victim)]->known);
  run->processes[0]->detector->connected(victim, run->now);
  run->runUntil(faultAt + 0.1);
  const auto &told = run->processes[size_t(victim)]->known;
  ASSERT_TRUE(told);
  EXPECT_EQ(told->exitCode, 3);
  EXPECT_EQ(told->message, "the loss is nan");
}

TEST_F(Simulation, AFailureGoesRoundAStoppedRelay) {
  start().stop(relay);
  run->at(faultAt + 0.5, [this] { run->fail(victim, {3, "the loss is nan"}); });
  run->runUntil(faultAt + 14);
  ASSERT_FALSE(run->said.empty());
  EXPECT_EQ(run->said[0].process, 0);
  EXPECT_EQ(run->said[0].what, "the loss is nan");
  EXPECT_LE(run->said[0].when, faultAt + 2);
  // Process 0 has ended when the others behind the relay find it silent: they
  // speak for themselves.
  EXPECT_EQ(run->said.size(), 1u + size_t(options.perHost) - 2);
  for (size_t i = 1; i < run->said.size(); ++i)
    EXPECT_EQ(run->said[i].what.find(named(relay) + silent), 0u)
        << run->said[i].what;
  for (const auto &process : run->processes) {
    bool behind = run->hostOf(process->number) == run->hostOf(relay) &&
                  process->number != victim;
    if (process->number != relay)
      EXPECT_EQ(process->ended, behind ? ExitPeerLost : 3) << process->number;
  }
}

TEST_F(Simulation, ALauncherThatEndsAllChangesNoVerdict) {
  // The launcher mpirun sends SIGTERM to the others of a dead process, soon.
  for (int gone : {victim, relay}) {
    start().kill(gone);
    run->holdUp(gone);
    run->at(faultAt + 0.02, [this] {
      for (const auto &process : run->processes)
        run->terminate(process->number);
    });
    expectVerdict(named(gone) + ended, 1, {gone});
  }
  // There is no time to wait for all of a host: nothing is said of the others.
  start();
  for (int process : hostOfVictim())
    run->kill(process);
  run->holdUp(relay);
  run->at(faultAt + 0.02, [this] {
    for (const auto &process : run->processes)
      run->terminate(process->number);
  });
  expectVerdict(named(relay) + ended, 1.5, hostOfVictim());
  // A run without a loss ends all.
  start();
  for (const auto &process : run->processes)
    run->terminate(process->number);
  run->runUntil(faultAt + 2);
  EXPECT_TRUE(run->said.empty());
  for (const auto &process : run->processes)
    EXPECT_EQ(process->ended, 143);
}

TEST_F(Simulation, SlowMessagesAndProcessesAreNoFault) {
  // Two hops, each of which may take 2 s, and processes that stand still for 3.
  options.processes /= 4;
  options.longestDelay = 2;
  options.limits.timeout = 20;
  run = std::make_unique<SimulatedRun>(options);
  for (double when = 1; when < 30; when += 0.02) {
    int process = int(run->engine() % unsigned(options.processes));
    run->at(when, [this, process] { run->stop(process); });
    run->at(when + run->random(0, 3),
            [this, process] { run->resume(process); });
  }
  run->runUntil(30);
  EXPECT_TRUE(run->said.empty()) << run->said[0].what;
  for (const auto &process : run->processes)
    EXPECT_LT(process->ended, 0) << process->number;
}

/// All processes stop for a while, as by Ctrl-Z and fg or on a machine that is
/// frozen: none takes that time for a sign that others are gone.
TEST_F(Simulation, ARunThatWasStoppedGoesOn) {
  start();
  for (int process = 0; process < options.processes; ++process) {
    run->stop(process);
    run->at(faultAt + 30 + run->random(0, 0.5),
            [this, process] { run->resume(process); });
  }
  run->runUntil(faultAt + 60);
  EXPECT_TRUE(run->said.empty()) << run->said[0].what;
  for (const auto &process : run->processes)
    EXPECT_LT(process->ended, 0) << process->number;
}

TEST_F(Simulation, StorageIsNoStandstill) {
  options.processes /= 4;
  options.limits.timeout = 3;
  start().idle = true;
  run->holdUp(0);
  run->runUntil(12);
  EXPECT_TRUE(run->said.empty()) << run->said[0].what;
}

TEST_F(Simulation, ALeavingRelayIsNoFault) {
  // Processes end in any order once all have come to the end.
  options.processes = 64;
  start();
  for (const auto &process : run->processes)
    run->at(faultAt + run->random(0, 9), [this, &process] {
      process->detector->leave();
      run->kill(process->number);
    });
  run->idle = true;
  run->runUntil(20);
  EXPECT_TRUE(run->said.empty()) << run->said[0].what;
}

/// 2, 3, 4, 7 of "processes 2 to 4, 7".
std::vector<int> numbersIn(const std::string &text) {
  std::vector<int> numbers;
  for (size_t i = 0; i < text.size();) {
    if (!std::isdigit(text[i])) {
      ++i;
      continue;
    }
    size_t length = 0;
    int number = std::stoi(text.substr(i), &length);
    const bool range = i >= 4 && text.substr(i - 4, 4) == " to ";
    for (int from = range ? numbers.back() + 1 : number; from <= number; ++from)
      numbers.push_back(from);
    i += length;
  }
  return numbers;
}

/// Random faults, two of them: what is said first names one of those that are
/// faulty, and nobody else.
TEST_F(Simulation, NoVerdictAgainstTheLiving) {
  const int rounds = std::getenv("GALVATRON_LONG") ? 2000 : 100;
  for (int round = 0; round < rounds; ++round) {
    options.processes = 24;
    options.perHost = 1 + round % 8;
    options.longestDelay = round % 2 ? 0.5 : 0.005;
    options.seed = unsigned(round);
    start();
    std::set<int> faulty;
    for (int fault = 0; fault < 2; ++fault) {
      int process = 1 + int(run->engine() % 23);
      std::vector<int> host = run->tree.hostOf(process);
      // That of process 0 may not go as a whole.
      unsigned kind = run->engine() % (host[0] == 0 ? 2 : 4);
      std::vector<int> hit = kind < 2 ? std::vector<int>{process} : host;
      double when = faultAt + run->random(0, 6);
      for (int one : hit) {
        faulty.insert(one);
        run->at(when + run->random(0, 0.01), [this, one, kind] {
          if (kind == 0 || kind == 2)
            run->kill(one);
          else if (kind == 1)
            run->stop(one);
          else
            run->powerOff(one);
        });
      }
      if (fault == 0)
        run->at(when, [this, process] { run->holdUp(process); });
    }
    run->runUntil(faultAt + 24);
    ASSERT_FALSE(run->said.empty()) << round;
    EXPECT_EQ(run->said[0].process, 0) << round;
    // "process 3 (..)", "host 'n1' (..)" or "processes 2, 3 on 'n1'".
    const std::string &what = run->said[0].what;
    std::vector<int> blamed;
    for (int process = 0; process < options.processes; ++process)
      if (what.find(named(process)) == 0)
        blamed.push_back(process);
    if (what.find("host 'n") == 0)
      blamed = run->tree.hostOf(std::stoi(what.substr(7)) * options.perHost);
    else if (blamed.empty())
      blamed = numbersIn(what.substr(0, what.find(" on ")));
    EXPECT_FALSE(blamed.empty()) << what;
    for (int process : blamed)
      EXPECT_TRUE(faulty.count(process)) << round << ": " << what;
    for (const auto &process : run->processes)
      if (!faulty.count(process->number))
        EXPECT_EQ(process->ended, ExitPeerLost) << round << ": " << what;
  }
}

} // namespace
