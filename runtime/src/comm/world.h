//===- world.h - All ranks, seen from one process -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_WORLD_H
#define GRT_COMM_WORLD_H

#include "comm/communicator.h"

#include <memory>
#include <optional>
#include <string>

namespace grt {

class Activity;
struct RunHosts;

/// Why a world was aborted.
struct Failure {
  int exitCode = 1;
  std::string message;
};

/// The ranks of a run. A process has some of them, each on a thread; they are
/// consecutive. Outlives its communicators.
class World {
public:
  virtual ~World() = default;
  virtual int size() const = 0;
  virtual int firstLocal() const = 0;
  virtual int localCount() const = 0;
  /// How many ranks, of all processes, share this machine's cores.
  virtual int machineRanks() const = 0;
  /// The hosts of all ranks; null: they are on one.
  virtual const RunHosts *hosts() const { return nullptr; }
  bool isLocal(int rank) const {
    return rank >= firstLocal() && rank < firstLocal() + localCount();
  }

  /// What this process's ranks do, in their order, for whoever must say why
  /// nothing moves; until called again.
  virtual void watch(std::span<const std::unique_ptr<Activity>>) {}

  /// The communicator of one of this process's ranks.
  virtual std::unique_ptr<Communicator> join(int rank) = 0;
  /// Wakes all ranks of all processes; their calls throw Aborted. From any
  /// thread. The first failure stands.
  virtual void abort(const Failure &failure) = 0;
  /// What made the ranks throw Aborted, if that came from elsewhere.
  virtual std::optional<Failure> failure() const { return std::nullopt; }
};

} // namespace grt

#endif // GRT_COMM_WORLD_H
