//===- process_ranks.h - Where the ranks of processes are -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the communicators of a process's ranks share. For process_world.cpp and
// what its communicators are made of.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_PROCESS_RANKS_H
#define GRT_COMM_PROCESS_RANKS_H

#include "comm/process_world.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

namespace grt {

/// A group with members in several processes.
class SpreadGroup : public Group {
public:
  using Group::Group;
};

struct ProcessWorld::Shared {
  Shared(Transport &transport, std::vector<int> firstRanks, int epoch,
         std::function<void(const Failure &)> tell);

  int size() const { return first.back(); }
  bool isLocal(int rank) const {
    return owner[size_t(rank)] == transport.process();
  }
  /// Messages that need not come in one order.
  enum Family { Ordinary, Posted, Told };
  static constexpr int64_t families = 3;

  /// Messages of a family from one rank to another have a tag of their own; the
  /// epoch keeps those of an aborted world apart.
  int tag(int from, int to, Family family = Ordinary) const {
    int64_t number =
        (int64_t(from - first[size_t(owner[size_t(from)])]) * mostLocal +
         (to - first[size_t(owner[size_t(to)])])) *
            families +
        family;
    return int(epoch % epochs * pairs + number);
  }

  SpreadGroup &group(const std::vector<int> &ranks) {
    std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<SpreadGroup> &entry = pool[ranks];
    if (!entry)
      entry = std::make_unique<SpreadGroup>(ranks);
    return *entry;
  }

  void checkAborted() const {
    if (aborted.load(std::memory_order_acquire))
      throw Aborted();
  }
  void abort() {
    aborted.store(true, std::memory_order_release);
    local.abort({});
  }

  Transport &transport;
  const std::vector<int> first;
  const int epoch;
  std::function<void(const Failure &)> tell;
  Watcher watcher;
  ThreadsWorld local;
  std::vector<int> owner; ///< process of each rank
  std::optional<RunHosts> hosts;
  int mostLocal = 1, machineRanks = 0;
  int64_t pairs = 1, epochs = 1; ///< how tags are divided
  std::atomic<bool> aborted{false};
  mutable std::mutex mutex;
  std::map<std::vector<int>, std::unique_ptr<SpreadGroup>> pool;
  std::optional<Failure> reason;
};

} // namespace grt

#endif // GRT_COMM_PROCESS_RANKS_H
