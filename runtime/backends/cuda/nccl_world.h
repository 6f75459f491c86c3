//===- nccl_world.h - The communicators of NCCL that a process has --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Communicators do not block: a call says that it is in progress, and another
// thread of the library's puts the work on the stream. So after every call, and
// every group of calls, the state is asked for until it is in progress no
// longer, before anything else is put on that stream. That makes an abort
// possible at any moment, and a deadline of what waits for other ranks.
//
// An abort is of all communicators that this process has of a world, in one
// group of calls: NCCL waits in it for the last kernel of a communicator, which
// may stand behind one of another communicator that hangs. It is made on a
// thread of its own, which is left behind if it does not come back.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_NCCL_WORLD_H
#define GRT_BACKENDS_CUDA_NCCL_WORLD_H

#include "nccl_library.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace grt::cuda {

/// A communicator of one rank.
struct NcclCommunicator {
  ncclComm_t handle = nullptr;
  std::string name;
};

/// The part of a world that one rank has. It is used on the rank's thread, and
/// by the thread that aborts.
class NcclRank {
public:
  using Clock = std::chrono::steady_clock;

  NcclRank(int32_t rank, int32_t ranks) : rank(rank), ranks(ranks) {}

  /// Makes a call of the library and waits until it has done all it has to.
  /// Throws CallError once the world is aborted, and DeviceError, which `what`
  /// begins, after a failure or at the deadline.
  void run(NcclCommunicator &communicator, const std::string &what,
           const std::function<ncclResult_t(ncclComm_t)> &call,
           Clock::time_point deadline = Clock::time_point::max());
  /// Limits the blocks of a device that run for each communicator from here on;
  /// 0: as many as the library likes.
  void limitBlocks(int most) { blocks = most; }
  /// Adds the communicator of everybody. `identity` is the world's.
  NcclCommunicator &join(const ncclUniqueId &identity);
  /// Splits a communicator of the ranks with this colour off, in the order of
  /// `key`; null where the colour is NCCL_SPLIT_NOCOLOR.
  NcclCommunicator *split(int color, int key, const std::string &name);
  NcclCommunicator &world() { return *communicators.front(); }
  /// Throws what went wrong in the background.
  void check();
  /// Ends all, the ordinary way; the last first.
  void destroy();

  const int32_t rank, ranks;

private:
  ncclConfig_t configuration() const;
  int blocks = 0;

  friend class NcclWorld;
  NcclCommunicator &add(const std::string &name);
  ncclResult_t stateOf(const NcclCommunicator &communicator);
  [[noreturn]] void leave();

  /// Held for a call of the library alone, which puts nothing on a stream
  /// itself; not while its state is asked for again and again.
  std::timed_mutex calls;
  std::atomic<bool> aborted = false;
  /// No thread of the library's works for this rank any more.
  std::atomic<bool> stopped = false;
  std::vector<std::unique_ptr<NcclCommunicator>> communicators; ///< of `calls`
};

/// The ranks of this process that have joined one world.
class NcclWorld : public std::enable_shared_from_this<NcclWorld> {
public:
  /// The one of this identity.
  static std::shared_ptr<NcclWorld> of(const ncclUniqueId &identity);

  void add(std::shared_ptr<NcclRank> rank);
  /// Begins to end what is under way on all ranks, and returns at once.
  void abort();
  bool isAborted() const { return aborts; }
  /// Waits so long for an abort that has begun; false where it goes on.
  bool awaitAbort(std::chrono::milliseconds longest);

private:
  void abortAll();

  std::atomic<bool> aborts = false;
  std::mutex mutex; ///< of what follows
  std::condition_variable changed;
  bool ended = false;
  std::vector<std::shared_ptr<NcclRank>> ranks;
};

/// Seconds that ranks have to join a world: GRT_NCCL_INIT_SECONDS, or 120.
double ncclInitSeconds();

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_NCCL_WORLD_H
