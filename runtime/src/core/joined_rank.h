//===- joined_rank.h - A rank that has no program ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Links are measured before a program has its arena, and without one. A rank
// joins its world here with a state of the backend and nothing else; its
// collectives are those that a session's ranks would call.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_JOINED_RANK_H
#define GRT_CORE_JOINED_RANK_H

#include "comm/activity.h"
#include "comm/world.h"
#include "core/device_communicator.h"

#include <memory>
#include <span>
#include <vector>

namespace grt {

/// Made, used and destroyed on the rank's thread, but for abort().
class JoinedRank {
public:
  /// Takes the backend's state. Throws Error.
  JoinedRank(World &world, int rank, const grt_backend &backend, int threads);
  ~JoinedRank();
  JoinedRank(const JoinedRank &) = delete;
  JoinedRank &operator=(const JoinedRank &) = delete;

  /// Joins the world of the device's collectives; nothing where there is no
  /// device. Two ranks on one device are an error (2) that names them, which
  /// all find. Collective over all ranks. Throws Error.
  void join();
  /// The group of these disjoint ones that this rank is in; null if it is in
  /// none. Collective over all ranks. Throws Error.
  Group *groupOf(std::span<const std::vector<int>> groups);

  Communicator &host() { return *hosts; }
  /// Over the memory of the device, if there is one.
  Communicator &peers() { return devices ? *devices : *hosts; }
  Device &device() { return *ownDevice; }
  void *state() const { return backendState; }
  /// Waits until the device has done all that it was given.
  void wait() { ownDevice->waitForAll(); }
  /// Memory of the backend, zeros, that goes with the rank. Throws Error.
  char *allocate(uint64_t bytes);
  /// The version of what carries collectives, as Session::collectivesLibrary.
  std::string library() const { return devices ? devices->library() : ""; }
  /// Ends what is under way on the device. From any thread.
  void abort() noexcept;

private:
  const grt_backend &backend;
  const bool oneProcess;
  Activity activity;
  std::atomic<bool> othersFailed = false;
  std::unique_ptr<Communicator> hosts;
  void *backendState = nullptr;
  std::unique_ptr<Device> ownDevice;
  std::unique_ptr<DeviceCommunicator> devices;
  std::vector<std::pair<void *, uint64_t>> memory;

  void compareDevices();
  void release() noexcept;
};

} // namespace grt

#endif // GRT_CORE_JOINED_RANK_H
