//===- process_world.h - Ranks of several processes -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collectives over a transport. Every process has its ranks as threads; groups
// inside one process and transfers between its ranks go through shared memory,
// as in a run of one process. Sums have the order of the group's list, so
// results have the same bits however the ranks are spread.
//
// An all-reduce sends 2 (n-1)/n of its bytes from every member, directly to the
// others; a small one sends everything to everyone at once.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_PROCESS_WORLD_H
#define GRT_COMM_PROCESS_WORLD_H

#include "comm/numbering.h"
#include "comm/threads.h"
#include "comm/transport.h"

#include <functional>

namespace grt {

class ProcessWorld : public World {
public:
  /// Collective. `firstRanks`: the first rank of every process, and the number
  /// of all ranks at the end. Worlds that follow each other have different
  /// `epoch`s. `tell` carries a failure to the other processes.
  ProcessWorld(Transport &transport, std::vector<int> firstRanks, int epoch,
               std::function<void(const Failure &)> tell);
  ~ProcessWorld() override;

  int size() const override;
  int firstLocal() const override;
  int localCount() const override;
  int machineRanks() const override;
  void watch(std::span<const std::unique_ptr<Activity>> ranks) override;
  std::unique_ptr<Communicator> join(int rank) override;
  void abort(const Failure &failure) override;
  std::optional<Failure> failure() const override;

  /// Sets the hosts of all ranks, before any session is made of this world.
  void setHosts(RunHosts hosts);
  const RunHosts *hosts() const override;

  /// A failure of which all processes know already.
  void fail(const Failure &failure);
  /// Receives the activities of this process's ranks when they change.
  using Watcher =
      std::function<void(std::span<const std::unique_ptr<Activity>>)>;
  void setWatcher(Watcher watcher);
  /// Size of the memory that a rank's communicator takes beside its arena, in
  /// bytes.
  static uint64_t scratchBytes(int ranks);

  struct Shared;

private:
  std::unique_ptr<Shared> shared;
};

} // namespace grt

#endif // GRT_COMM_PROCESS_WORLD_H
