//===- collective_log.h - Which collectives a rank has called -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rank notes its calls by communicator, with relaxed stores only, as it does
// in Activity; another thread reads them when the run hangs, for
// comm/collective_comparison.h. What a device was given ends later than the
// call: marks tell (Activity::mark). Calls that become part of a graph are
// kept with it, and count whenever it is started.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_COLLECTIVE_LOG_H
#define GRT_COMM_COLLECTIVE_LOG_H

#include "comm/collective_comparison.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace grt {

class CollectiveLog {
public:
  /// Most communicators of a rank that are kept: the first ones.
  static constexpr size_t mostCommunicators = 64;
  /// Most calls of each communicator that are kept: the last ones.
  static constexpr size_t mostCalls = 32;

  // These functions are called on the rank's thread.

  /// Makes a communicator known under its purpose (a static string), once for
  /// each `key`; its number, or -1 where there is no room for it.
  int communicator(const void *key, const char *name,
                   std::span<const int> members);
  /// Makes the transfers from one rank to another known, which have numbers of
  /// their own; returns as communicator() does.
  int channel(int from, int to);
  /// A call on a communicator, with the number of the rank's operation that it
  /// is part of; -1 is ignored. `onDevice`: it ends when the device has done
  /// it, else by `finish`.
  void enqueue(int communicator, CollectiveKind kind, uint64_t bytes,
               uint32_t stream, uint64_t operation, bool onDevice);
  void finish(int communicator);
  /// Calls enqueued between these two become part of graph `number`, in place
  /// of its earlier ones; `start` puts them on GRT_STREAM_COMPUTE.
  void beginGraph(uint32_t number);
  void endGraph() { capturing = nullptr; }
  void start(uint32_t number, uint64_t operation);

  // These are called on any thread.

  /// Answers whether the device has done an operation that was put on a stream.
  using DeviceDid = std::function<bool(uint32_t stream, uint64_t operation)>;
  /// `did` is empty where nobody can say.
  std::vector<CommunicatorState> states(const DeviceDid &did) const;

private:
  struct Entry {
    std::atomic<uint64_t> number{0}; ///< 0: being written
    std::atomic<uint64_t> order{0}, bytes{0}, operation{0};
    std::atomic<uint8_t> kind{0}, stream{0};
    std::atomic<bool> inGraph{false}, onDevice{false};
  };
  struct Slot {
    const void *key; ///< null: what goes from one rank to another
    int from = -1, to = -1;
    std::string name;
    RankList members;
    std::atomic<uint64_t> enqueued{0}, done{0};
    Entry calls[mostCalls];
  };
  struct Captured {
    int communicator;
    CollectiveKind kind;
    uint64_t bytes;
  };

  int add(const void *key, const char *name, std::span<const int> members);
  void push(int communicator, CollectiveKind kind, uint64_t bytes,
            uint32_t stream, uint64_t operation, bool onDevice, bool inGraph);

  std::unique_ptr<Slot> slots[mostCommunicators];
  std::atomic<size_t> count{0};
  uint64_t order = 0;
  std::vector<std::vector<Captured>> graphs;
  std::vector<Captured> *capturing = nullptr;
};

} // namespace grt

#endif // GRT_COMM_COLLECTIVE_LOG_H
