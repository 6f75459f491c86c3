//===- operations.h - Putting operations on the streams of a model --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the tables of the backend and of its collectives have in common: a call
// is an operation on a stream of a rank, with the bytes that it uses.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_RECORDING_OPERATIONS_H
#define GRT_BACKENDS_RECORDING_OPERATIONS_H

#include "base/allocation.h"
#include "grt/backend.h"
#include "model.h"

#include <cstdio>
#include <memory>
#include <string>

namespace grt::recording {

constexpr uint32_t eventCount = 192;

/// The memory of all models, by first address; and the host's.
struct Memories {
  std::map<const char *, std::unique_ptr<Allocation>> allocations;
  HostRanges host;

  Allocation *allocationAt(const void *address);
};
Memories &memories();

inline Rank &rankOf(void *state) { return *static_cast<Rank *>(state); }

/// Runs `body` with the lock held; its exception, or what went wrong before, is
/// the call's failure.
template <typename Body>
int32_t guarded(void *state, char *message, size_t bytes, Body body) {
  // The model's own memory is none of the rank's.
  UncountedAllocations uncounted;
  ModelLock lock;
  // The body may take the rank to another world.
  std::shared_ptr<World> kept = rankOf(state).world;
  World &world = *kept;
  try {
    if (world.problem.empty() && !world.aborted)
      body(lock, rankOf(state));
  } catch (const std::exception &error) {
    world.fail(error.what());
  }
  if (world.problem.empty() && !world.aborted)
    return 0;
  std::snprintf(message, bytes, "%s",
                world.problem.empty() ? "aborted" : world.problem.c_str());
  return 1;
}

/// An operation that is not on its stream yet.
std::unique_ptr<Operation> operation(Rank &rank, uint32_t stream,
                                     Operation::Kind kind, std::string what);
/// Puts it there, or into the graph that is made.
void put(std::unique_ptr<Operation> made);
/// Notes that the operation uses these addresses; the memory behind them. Null
/// for no bytes.
char *touch(Operation &made, const void *address, uint64_t bytes, bool writes);
/// touch() of memory of the device or of the host; of the latter what is
/// pinned, and if `mayBePageable` the home of states too.
char *touchEither(Operation &made, const void *address, uint64_t bytes,
                  bool writes, bool mayBePageable);
/// The host waits for all operations on a stream; GRT_STREAM_COUNT: on all.
int32_t synchronise(void *state, uint32_t stream, char *message,
                    size_t capacity);

/// A number from which the order is drawn in which worlds that are made from
/// here on run.
uint64_t &nextSeed();

/// The table of the collectives.
const grt_device_collectives &collectivesTable();

} // namespace grt::recording

#endif // GRT_BACKENDS_RECORDING_OPERATIONS_H
