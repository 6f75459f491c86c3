//===- threads.h - Ranks as threads of one process ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Members publish addresses and work directly on each other's arenas: nothing
// is copied twice and nothing is allocated after load.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_THREADS_H
#define GRT_COMM_THREADS_H

#include "comm/communicator.h"

#include <memory>

namespace grt {

/// What the ranks of a process share. Outlives its communicators.
class ThreadsWorld {
public:
  explicit ThreadsWorld(int size);
  ~ThreadsWorld();

  /// The communicator of one rank; groups live in the world's pool.
  std::unique_ptr<Communicator> join(int rank);
  /// Wakes all ranks; their calls throw Aborted. From any thread.
  void abort();

  struct Shared;

private:
  std::unique_ptr<Shared> shared;
};

} // namespace grt

#endif // GRT_COMM_THREADS_H
