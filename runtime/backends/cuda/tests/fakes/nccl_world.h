//===- nccl_world.h - What stands behind the libnccl of tests -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Worlds, communicators and groups of calls, for the two files that have the
// library's functions. Everything is used under the device's lock.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_TESTS_FAKES_NCCL_WORLD_H
#define GRT_BACKENDS_CUDA_TESTS_FAKES_NCCL_WORLD_H

#include "device.h"

#include <nccl.h>
#include <set>
#include <utility>

namespace grt::fake {

/// Kernels of several ranks that end together: those of a collective, or a send
/// and its receive.
struct Rendezvous {
  struct Guest {
    std::shared_ptr<Work> work;
    std::shared_ptr<size_t> left; ///< rendezvous of the same kernel
  };
  std::vector<Guest> guests;
};

struct Communicator;

/// The ranks of one communicator.
struct World {
  int size = 0;
  std::vector<std::vector<std::string>> calls; ///< by rank
  std::vector<int> ended;                      ///< 1: destroyed, 2: aborted
  std::vector<int> members;                    ///< ranks in the first world
  /// Of sends and receives, by sender and receiver.
  std::map<std::pair<int, int>, std::vector<uint64_t>> sends, receives;
  /// Kernels that run: a collective is from -1 to -1.
  std::map<std::pair<std::pair<int, int>, size_t>, Rendezvous> rendezvous;
  /// Of splits, by their number: colour and key of every rank that came.
  std::vector<std::map<int, std::pair<int, int>>> splits;
  std::vector<size_t> splitsOf; ///< by rank
  std::map<std::pair<size_t, int>, std::shared_ptr<World>> children;
  int joined = 0;
  /// Ranks of this process whose end was asked for, while others are left.
  std::vector<std::shared_ptr<Communicator>> waitForTheLast;
  /// Of the first world: which communicators every rank used, in order.
  std::shared_ptr<std::vector<std::vector<const World *>>> order;
  std::shared_ptr<std::set<std::shared_ptr<World>>> all;
};

/// What communicators of one rank share if one was split from the other with
/// splitShare: the order of their kernels, and the flag that ends them.
struct Resources {
  std::shared_ptr<Chain> chain = std::make_shared<Chain>();
  bool aborts = false;
  std::vector<std::weak_ptr<Work>> running;
};

/// A group of calls that another thread carries out.
struct GroupJob {
  bool ended = false;
};

struct Communicator {
  std::shared_ptr<World> world;
  int rank = 0;
  uint64_t handle = 0;
  bool blocking = true, revoked = false, ends = false;
  int splitShare = 0, mostCtas = 0;
  std::string name;
  ncclResult_t state = ncclSuccess;
  std::shared_ptr<Resources> resources = std::make_shared<Resources>();
  /// Of a split that is under way: ended with this one.
  std::weak_ptr<Resources> child;
  std::shared_ptr<GroupJob> job;
  /// Launches that it has taken and not carried out yet, by stream.
  std::map<uint64_t, int> promised;
  /// Kernels that began, by sender and receiver.
  std::map<std::pair<int, int>, size_t> begun;
};
using CommunicatorPointer = std::shared_ptr<Communicator>;

/// Work that a group of calls has for one communicator: one kernel.
struct Launch {
  CommunicatorPointer communicator;
  cudaStream_t stream;
  std::string what;
  std::vector<Range> ranges;
  std::vector<std::pair<int, int>> parts; ///< sender and receiver
};

/// Work of another kind: an init, a split, an end.
struct Job {
  CommunicatorPointer communicator;
  std::function<ncclResult_t(Device &, std::unique_lock<std::mutex> &)> run;
};

/// Takes back or fulfils a promise (Device::promise) of a launch.
void endPromise(Device &device, Communicator &communicator, uint64_t stream);

/// The communicator of a handle, null and a complaint where there is none.
CommunicatorPointer findCommunicator(Device &device, ncclComm_t handle,
                                     const char *what);
/// ncclCommEnsureReady: refuses one that is in progress.
ncclResult_t ensureReady(Device &device, const CommunicatorPointer &self,
                         const char *what);

/// A call, alone or in a group of calls. `ended` gives a group's result.
void beginGroup();
ncclResult_t addToGroup(Device &device, Launch launch);
ncclResult_t addToGroup(Device &device, Job job, bool ends);
ncclResult_t endGroup(Device &device, std::unique_lock<std::mutex> &lock);
bool isInGroup();

template <class Body> ncclResult_t ncclCall(const char *function, Body body) {
  return called(
      function, ncclSuccess, ncclSystemError,
      [&](Device &device, std::unique_lock<std::mutex> &lock,
          bool change) -> ncclResult_t { return body(device, lock, change); });
}

} // namespace grt::fake

#endif // GRT_BACKENDS_CUDA_TESTS_FAKES_NCCL_WORLD_H
