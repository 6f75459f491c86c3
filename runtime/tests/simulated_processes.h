//===- simulated_processes.h - Failure detectors in one process -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The failure detectors of thousands of processes, with one rank each, over
// messages that are events in a queue, and a clock that jumps from one to the
// next. Messages between two processes keep their order, and take random times.
// Processes die (their connections close), hosts lose power (nothing closes),
// processes are stopped (what comes waits), and the link of a host is cut (what
// is sent is lost).
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_SIMULATED_PROCESSES_H
#define GRT_TESTS_SIMULATED_PROCESSES_H

#include "comm/failure_detector.h"
#include "event_queue.h"

#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace grt::test {

struct SimulatedOptions {
  int processes = 16, perHost = 8;
  DetectorOptions limits;
  double longestDelay = 0.002; ///< of a message
  unsigned seed = 1;
};

/// Bytes before the text of a message (Connection::send).
inline constexpr uint64_t messageHead = 8;

class SimulatedRun {
public:
  static constexpr double never = std::numeric_limits<double>::infinity();

  struct Process final : DetectorEnvironment {
    Process(SimulatedRun &run, int number) : run(run), number(number) {}

    void send(int to, WatchKind kind, std::string_view text) override {
      ++sent;
      sentBytes += messageHead + text.size();
      run.post(number, to, {uint32_t(kind), std::string(text)});
    }
    void callRoot() override { run.call(number); }
    void describe(int &firstRank, std::vector<RankReport> &ranks) override {
      firstRank = number;
      ranks.assign(1, run.rankOf(number));
    }
    std::string whereIs(int process) const override {
      return "pid " + std::to_string(process) + " on '" + hostName(process) +
             "'";
    }
    std::string hostName(int process) const override {
      return "n" + std::to_string(process / run.options.perHost);
    }
    void wakeRanks(const Failure &failure) override { known = failure; }
    void speak(const std::string &message) override {
      run.said.push_back({number, run.now, message});
    }
    void allTold() override {
      // The process ends soon, and its connections close.
      run.at(run.now + run.random(0.001, 0.1), [this] {
        if (!dead && known)
          end(known->exitCode);
      });
    }
    void end(int exitCode) override {
      if (ended < 0)
        ended = exitCode;
      run.kill(number);
    }

    SimulatedRun &run;
    const int number;
    std::unique_ptr<FailureDetector> detector;
    bool dead = false, stopped = false;
    std::deque<std::function<void()>> waiting; ///< while it is stopped
    std::unordered_map<int, double> lastArrival;
    std::set<int> links;
    std::optional<Failure> known;
    int ended = -1;
    uint64_t sent = 0, sentBytes = 0, heard = 0, heardBytes = 0;
  };

  struct Said {
    int process;
    double when;
    std::string what;
  };

  explicit SimulatedRun(const SimulatedOptions &options)
      : options(options), engine(options.seed), tree(networksOf(options)) {
    everyone.runs.push_back({0, 1, uint64_t(options.processes)});
    for (int i = 0; i < options.processes; ++i)
      processes.push_back(std::make_unique<Process>(*this, i));
    for (int i = 1; i < options.processes; ++i)
      link(i, tree.parent(i));
    for (auto &process : processes) {
      process->detector = std::make_unique<FailureDetector>(
          tree, process->number, options.limits, *process, 0);
      tickAt(*process, random(0, 0.1));
    }
  }

  /// Runs until `until`, or until no process lives.
  void runUntil(double until) {
    events.run(until, [&](double when) { now = when; });
    now = until;
  }

  // Faults.

  void kill(int number) {
    Process &process = *processes[size_t(number)];
    if (process.dead)
      return;
    process.dead = true;
    for (int other : process.links)
      arrive(number, other, [this, number, other] {
        processes[size_t(other)]->detector->closed(number, now);
      });
  }
  /// Ends a process without closing its connections.
  void powerOff(int number) { processes[size_t(number)]->dead = true; }
  void stop(int number) { processes[size_t(number)]->stopped = true; }
  void resume(int number) {
    Process &process = *processes[size_t(number)];
    process.stopped = false;
    std::deque<std::function<void()>> acts;
    acts.swap(process.waiting);
    for (auto &act : acts)
      act();
  }
  /// Cuts a host off: nothing gets to or from other hosts any more.
  void cut(int host) { cutHosts.insert(host); }
  void fail(int number, const Failure &failure) {
    processes[size_t(number)]->detector->fail(failure, now);
  }
  /// SIGTERM.
  void terminate(int number) {
    processes[size_t(number)]->detector->terminated(now);
  }
  /// Makes all ranks wait for this one from now on, directly or not.
  void holdUp(int rank) {
    heldBy = rank;
    heldAt = now + 0.05;
  }

  void at(double when, std::function<void()> act) {
    events.add(when, std::move(act));
  }
  double random(double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(engine);
  }
  int hostOf(int process) const { return process / options.perHost; }

  const SimulatedOptions options;
  std::mt19937 engine;
  const HostTree tree;
  double now = 0;
  std::vector<std::unique_ptr<Process>> processes;
  std::vector<Said> said;
  bool idle = false; ///< ranks have nothing to do

private:
  static std::vector<std::string> networksOf(const SimulatedOptions &options) {
    std::vector<std::string> networks;
    for (int i = 0; i < options.processes; ++i)
      networks.push_back("n" + std::to_string(i / options.perHost));
    return networks;
  }

  void link(int one, int other) {
    processes[size_t(one)]->links.insert(other);
    processes[size_t(other)]->links.insert(one);
  }

  RankReport rankOf(int number) const {
    RankReport report;
    report.busy = !idle;
    const double worked = std::min(now, heldAt);
    report.progress = uint64_t(worked * 100);
    report.doing = "step " + std::to_string(int(worked * 2)) +
                   ", layer 'h.11', reduce-scatter 'scatter'";
    if (heldBy >= 0 && now > heldAt && number != heldBy) {
      const int count = options.processes;
      const bool next =
          number == (heldBy + 1) % count || heldBy == (number + 1) % count;
      report.waiting = true;
      report.peers = {next ? heldBy : (number + 1) % count};
      report.doing += ", waiting for rank " + std::to_string(report.peers[0]);
    }
    if (heldBy >= 0 && now > heldAt + 1) {
      report.known = true;
      const bool waits = number != heldBy;
      report.host =
          waits ? RankCollectives::InCollective : RankCollectives::Runs;
      CommunicatorState state{"dp", everyone, 39, 39, 39, {}};
      if (waits) {
        state.enqueued = state.started = 40;
        state.calls.push_back(
            {40, 40, CollectiveKind::AllReduce, 0, false, 4096});
      }
      report.communicators.push_back(state);
    }
    return report;
  }

  bool isCut(int from, int to) const {
    return hostOf(from) != hostOf(to) &&
           (cutHosts.count(hostOf(from)) || cutHosts.count(hostOf(to)));
  }

  /// Lets a process see what comes to it, if it can.
  void hand(int to, std::function<void()> act) {
    Process &process = *processes[size_t(to)];
    if (process.dead)
      return;
    if (process.stopped)
      process.waiting.push_back(std::move(act));
    else
      act();
  }

  void arrive(int from, int to, std::function<void()> act) {
    if (isCut(from, to))
      return;
    double &last = processes[size_t(from)]->lastArrival[to];
    last = std::max(last, now + random(0.0001, options.longestDelay));
    at(last, [this, to, act = std::move(act)]() mutable {
      hand(to, std::move(act));
    });
  }

  void post(int from, int to, Message message) {
    arrive(from, to, [this, from, to, message = std::move(message)] {
      Process &process = *processes[size_t(to)];
      ++process.heard;
      process.heardBytes += messageHead + message.text.size();
      process.detector->received(from, message, now);
      if (!process.dead)
        process.detector->tick(now);
    });
  }

  /// A handshake there and back.
  void call(int from) {
    arrive(from, 0, [this, from] {
      if (processes[size_t(from)]->dead)
        return;
      link(from, 0);
      arrive(0, from, [this, from] {
        processes[size_t(from)]->detector->connected(0, now);
      });
      processes[0]->detector->connected(from, now);
    });
  }

  void tickAt(Process &process, double when) {
    at(when, [this, &process] {
      hand(process.number, [this, &process] {
        process.detector->tick(now);
        if (!process.dead)
          tickAt(process, now + process.detector->untilTick());
      });
    });
  }

  EventQueue events;
  std::set<int> cutHosts;
  RankList everyone;
  int heldBy = -1;
  double heldAt = never;
};

} // namespace grt::test

#endif // GRT_TESTS_SIMULATED_PROCESSES_H
