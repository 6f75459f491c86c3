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

/// Exit code and message of an aborted world.
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
  /// The number of ranks, of all processes, that share this machine's cores.
  virtual int machineRanks() const = 0;
  /// The hosts of all ranks; null: they are on one.
  virtual const RunHosts *hosts() const { return nullptr; }
  bool isLocal(int rank) const {
    return rank >= firstLocal() && rank < firstLocal() + localCount();
  }

  /// Shows what this process's ranks do, in their order, to the code that must
  /// say why nothing moves; valid until called again.
  virtual void watch(std::span<const std::unique_ptr<Activity>>) {}

  /// The communicator of one of this process's ranks.
  virtual std::unique_ptr<Communicator> join(int rank) = 0;
  /// Wakes all ranks of all processes; their calls throw Aborted. From any
  /// thread. The first failure stands.
  virtual void abort(const Failure &failure) = 0;
  /// The failure that made the ranks throw Aborted, if it came from elsewhere.
  virtual std::optional<Failure> failure() const { return std::nullopt; }
};

} // namespace grt

#endif // GRT_COMM_WORLD_H
