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

#include "comm/futex.h"
#include "comm/world.h"

#include <memory>

namespace grt {

/// Place in which one rank offers data to another. The receiver reads from the
/// sender's memory, so an offer is an address and nothing else.
struct alignas(64) Mailbox {
  static constexpr uint32_t empty = 0, posted = 1;
  WaitWord state;
  const char *base = nullptr;
};

/// Messages that one rank tells all others.
struct alignas(64) ToldBox {
  WaitWord number; ///< of the last time
  std::byte messages[Communicator::toldTimes][Communicator::mostToldBytes] = {};
};

/// Takes what a peer offers at `source`: copies or adds the rows.
void takeRows(const ExchangeCall &call, const ExchangePeer &receive,
              const char *source);

/// The ranks [first, first + count) of a run; all of it in the common case.
class ThreadsWorld : public World {
public:
  explicit ThreadsWorld(int count, int first = 0);
  ~ThreadsWorld() override;

  int size() const override;
  int firstLocal() const override;
  int localCount() const override { return size(); }
  int machineRanks() const override { return size(); }
  std::unique_ptr<Communicator> join(int rank) override;
  void abort(const Failure &failure) override;
  /// The mailbox for messages from one rank to another, both of this world.
  Mailbox &mailbox(int from, int to);

  struct Shared;

private:
  std::unique_ptr<Shared> shared;
};

} // namespace grt

#endif // GRT_COMM_THREADS_H
