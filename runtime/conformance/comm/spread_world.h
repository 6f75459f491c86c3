//===- spread_world.h - Worlds of any size over processes -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For tests that run under mpirun: one world after the other, its ranks in
// blocks over the processes, as even as they go. Every process makes the same
// worlds in the same order.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CONFORMANCE_SPREAD_WORLD_H
#define GRT_CONFORMANCE_SPREAD_WORLD_H

#include "comm/launch.h"
#include "comm/process_world.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace grt::test {

/// True if a launcher started this process as one of several.
inline bool launched() {
  Launch launch;
  return readLaunch(launch) && launch.launcher != Launcher::None;
}

/// A world, and what tells all processes once whether it was aborted or has
/// ended; galvatron-run has the monitor for that.
class SpreadWorld {
public:
  SpreadWorld(Transport &transport, int size)
      : transport(transport), number(++made()) {
    int processes = transport.processes(), self = transport.process();
    int own = size * (self + 1) / processes - size * self / processes;
    ranks = std::make_shared<ProcessWorld>(
        transport, gatherRankCounts(transport, own), number,
        [this](const Failure &) { ring('a'); });
    listener = std::thread([this] { listen(); });
  }
  /// Waits for all processes.
  ~SpreadWorld() {
    ring('q');
    listener.join();
  }

  std::shared_ptr<World> shared() { return ranks; }

private:
  static int &made() {
    static int number = 0;
    return number;
  }

  void ring(char what) {
    if (rung.exchange(true))
      return;
    said = what;
    for (int process = 0; process < transport.processes(); ++process)
      sends.push_back(transport.send(process, tag(), &said, 1));
    sent = true;
  }

  void listen() {
    size_t count = size_t(transport.processes());
    std::vector<Transport::Request> receives;
    std::vector<char> heard(count, 0);
    for (size_t process = 0; process < count; ++process)
      receives.push_back(
          transport.receive(int(process), tag(), &heard[process], 1));
    for (bool known = false; !transport.test(receives);) {
      for (size_t process = 0; process < count; ++process)
        if (!known && !receives[process] && heard[process] == 'a') {
          known = true;
          ranks->fail({1, "aborted elsewhere"});
        }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    while (!sent || !transport.test(sends))
      std::this_thread::sleep_for(std::chrono::microseconds(200));
  }

  /// A tag above all tags of ranks that these tests use.
  int tag() const { return transport.largestTag() / 2 + number; }

  Transport &transport;
  const int number;
  std::shared_ptr<ProcessWorld> ranks;
  char said = 0;
  std::atomic<bool> rung{false}, sent{false};
  std::vector<Transport::Request> sends;
  std::thread listener;
};

} // namespace grt::test

#endif // GRT_CONFORMANCE_SPREAD_WORLD_H
