//===- joined_rank.cpp - A rank that has no program -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/joined_rank.h"
#include "base/error.h"
#include "core/placement.h"

#include <algorithm>
#include <numeric>

namespace grt {

JoinedRank::JoinedRank(World &world, int rank, const grt_backend &backend,
                       int threads)
    : backend(backend), oneProcess(world.localCount() == world.size()),
      activity(rank), hosts(world.join(rank)),
      backendState(backend.create_rank(rank, threads)) {
  if (!backendState && backend.device) {
    const char *why = backend.failure ? backend.failure() : nullptr;
    fail("rank " + std::to_string(rank) + ": backend '" + backend.name +
         "' does not start" + (why && *why ? std::string(": ") + why : ""));
  }
  try {
    ownDevice =
        std::make_unique<Device>(backend, backendState, activity, world.size(),
                                 /*resultBytes=*/64, othersFailed);
    if (!*ownDevice || world.size() == 1)
      return;
    const grt_device &table = *backend.device;
    const grt_device_collectives *collectives =
        oneProcess && table.local_collectives ? table.local_collectives
                                              : table.collectives;
    if (!collectives)
      fail("rank " + std::to_string(rank) + ": backend '" + backend.name +
           "' cannot connect " + std::to_string(world.size()) + " ranks");
    devices = std::make_unique<DeviceCommunicator>(*ownDevice, backend,
                                                   collectives, *hosts);
  } catch (...) {
    release();
    throw;
  }
}

JoinedRank::~JoinedRank() { release(); }

void JoinedRank::release() noexcept {
  devices.reset();
  // It waits for what is left on its streams: memory goes after it.
  if (backendState)
    backend.destroy_rank(backendState);
  backendState = nullptr;
  for (auto [at, bytes] : memory)
    backend.release(at, bytes);
  memory.clear();
  ownDevice.reset();
}

/// A library would say less of it.
void JoinedRank::compareDevices() {
  if (!backend.device_identity)
    return;
  std::vector<int> all(size_t(hosts->size()));
  std::iota(all.begin(), all.end(), 0);
  const RankPlace own = ownPlace(backend);
  std::vector<RankPlace> places(all.size());
  hosts->allGather(hosts->group(all), &own, places.data(), sizeof(own));
  if (std::string message = sharedDevice(places); !message.empty())
    invalid(message);
}

void JoinedRank::join() {
  compareDevices();
  if (devices)
    devices->join();
}

Group *JoinedRank::groupOf(std::span<const std::vector<int>> groups) {
  const int self = hosts->rank();
  const auto own =
      std::find_if(groups.begin(), groups.end(), [&](const auto &ranks) {
        return std::find(ranks.begin(), ranks.end(), self) != ranks.end();
      });
  if (own != groups.end())
    return &peers().group(*own);
  if (devices)
    devices->withoutGroup();
  return nullptr;
}

char *JoinedRank::allocate(uint64_t bytes) {
  void *taken = backend.allocate(bytes);
  if (!taken)
    fail(ExitMemory, "rank " + std::to_string(hosts->rank()) +
                         ": no memory "
                         "for " +
                         std::to_string(bytes) + " bytes");
  memory.emplace_back(taken, bytes);
  auto *base = static_cast<char *>(taken);
  ownDevice->fill(GRT_STREAM_COMPUTE, base, 0, bytes);
  ownDevice->waitForAll();
  return base;
}

void JoinedRank::abort() noexcept {
  othersFailed = true;
  if (devices)
    devices->abortDevice();
}

} // namespace grt
