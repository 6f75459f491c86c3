//===- EventEngine.h - Operations on streams, run in time -------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The machine of the simulator, which knows nothing of models. Actors (ranks,
// or roles that stand for all their ranks) have streams; a stream runs its
// operations in the order in which they were added. An operation starts once
// all operations that it comes after have ended, it is the first of its stream,
// and all members of its join (the ends of a message, the members of a
// collective) can start as well: sends are rendezvous, nothing is buffered.
//
// An operation has an amount of work in seconds and runs at a rate:
//  - 1/slowdown while a collective and a computation (or an exchange that
//    computation waits for) of the same actor run at the same time. Two
//    operations of x and y seconds that start together then take
//    max(x, y) + (slowdown - 1) * min(x, y), the overlap of docs/cost-model.md;
//  - divided by the number of flows that share one of its node uplinks;
//  - divided by the number of exchanges, collectives and groups of messages
//    that its actor has under way, or one at another end of its join, if their
//    communication is one queue. Together they then take as long as one after
//    the other, and an exchange beside a collective is slowed down by this
//    alone.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SIMULATE_EVENTENGINE_H
#define GALVATRON_SIMULATE_EVENTENGINE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace galvatron {

enum class Stream : uint8_t {
  Compute,
  Exchange,   ///< communication that computation waits for: TP, reshards, ties
  Collective, ///< SDP and DP, which may overlap computation
  Send,
  Receive,
  CopyIn,  ///< from the host to a device's own memory
  CopyOut, ///< and back
  Posted   ///< what was left for others, and nobody waits for
};
inline constexpr size_t kStreamCount = 8;
/// "compute", "exchange", ...
llvm::StringRef streamName(Stream stream);

using OperationId = int32_t;

struct Operation {
  int32_t actor = 0;
  Stream stream = Stream::Compute;
  double work = 0;        ///< seconds, if nothing slows it down
  int32_t join = -1;      ///< operations of one join start together
  int32_t flow = -1;      ///< operations of one flow share uplinks as one
  int32_t uplinkSet = -1; ///< from EventEngine::addUplinks
};

/// When every operation ran, seconds from the start.
struct Timeline {
  std::vector<double> start, finish; ///< by operation
  double end = 0;
  /// Starts, ends and changes of rate.
  uint64_t events = 0;
  /// The first operation that cannot start, -1 if all have ended.
  OperationId stuck = -1;
};

class EventEngine {
public:
  /// Makes an engine with one slowdown per actor, at least 1; `oneQueue` says
  /// of each whether its communication is one queue (empty: of none).
  explicit EventEngine(std::vector<double> slowdowns,
                       std::vector<char> oneQueue = {})
      : slowdowns(std::move(slowdowns)), oneQueue(std::move(oneQueue)) {
    this->oneQueue.resize(this->slowdowns.size());
  }

  /// Adds an operation that comes after those in `after`.
  OperationId add(const Operation &operation,
                  llvm::ArrayRef<OperationId> after);
  /// `count` new joins; returns the first.
  int32_t addJoins(int32_t count = 1) {
    return std::exchange(joinCount, joinCount + count);
  }
  /// Uplinks by number, without duplicates; equal sets need not be shared.
  int32_t addUplinks(llvm::ArrayRef<int32_t> uplinks);

  const Operation &operation(OperationId id) const { return operations[id]; }
  size_t size() const { return operations.size(); }

  Timeline run() const;

private:
  std::vector<double> slowdowns; ///< by actor
  std::vector<char> oneQueue;    ///< by actor
  std::vector<Operation> operations;
  std::vector<OperationId> before; ///< dependencies, of all operations in turn
  std::vector<size_t> beforeEnd;   ///< by operation, into `before`
  std::vector<std::vector<int32_t>> uplinkSets;
  int32_t joinCount = 0;
};

} // namespace galvatron

#endif // GALVATRON_SIMULATE_EVENTENGINE_H
