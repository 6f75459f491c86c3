//===- nccl_world.cpp - The communicators of NCCL that a process has ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "nccl_world.h"

#include "../common/call.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

namespace grt::cuda {

namespace {

using Clock = NcclRank::Clock;

/// The time that calls that have begun get to return when a world is aborted.
constexpr std::chrono::milliseconds patience{500};

/// Waits a little longer each time, so that what is there soon is seen soon.
class Pause {
public:
  void operator()() {
    if (++times < 100)
      return std::this_thread::yield();
    std::this_thread::sleep_for(
        std::chrono::microseconds(times < 1000 ? 20 : 1000));
  }

private:
  int times = 0;
};

std::string secondsText(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", seconds);
  return text;
}

} // namespace

double ncclInitSeconds() {
  const char *wish = std::getenv("GRT_NCCL_INIT_SECONDS");
  if (!wish)
    return 120;
  char *end = nullptr;
  const double seconds = std::strtod(wish, &end);
  if (end == wish || *end || !(seconds > 0 && seconds <= 1e6))
    throw DeviceError(
        "GRT_NCCL_INIT_SECONDS: expected seconds above 0 and to 1e6, found '" +
        std::string(wish) + "'");
  return seconds;
}

//===----------------------------------------------------------------------===//
// NcclRank
//===----------------------------------------------------------------------===//

ncclConfig_t NcclRank::configuration() const {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  // Communicators that share resources have one order of launches, so that
  // nothing of one goes beside the other's.
  config.splitShare = 0;
  if (blocks)
    config.maxCTAs = blocks;
  return config;
}

void NcclRank::leave() {
  // The library's thread may be about to put work on a stream, of which the
  // rank ends a capture next; an abort joins it.
  const auto deadline = Clock::now() + 2 * patience;
  for (Pause pause; !stopped && Clock::now() < deadline;)
    pause();
  throw CallError("aborted");
}

ncclResult_t NcclRank::stateOf(const NcclCommunicator &communicator) {
  std::unique_lock<std::timed_mutex> lock(calls);
  if (aborted) {
    lock.unlock();
    leave();
  }
  ncclResult_t state = ncclSuccess;
  checkNccl(nccl().asyncError(communicator.handle, &state),
            "ncclCommGetAsyncError");
  return state;
}

void NcclRank::run(NcclCommunicator &communicator, const std::string &what,
                   const std::function<ncclResult_t(ncclComm_t)> &call,
                   Clock::time_point deadline) {
  ncclResult_t result;
  {
    std::lock_guard<std::timed_mutex> lock(calls);
    if (aborted)
      throw CallError("aborted");
    result = call(communicator.handle);
  }
  for (Pause pause; result == ncclInProgress; result = stateOf(communicator)) {
    if (Clock::now() >= deadline)
      throw DeviceError(what + ": still in progress at its deadline");
    pause();
  }
  checkNccl(result, what + " '" + communicator.name + "'");
}

NcclCommunicator &NcclRank::add(const std::string &name) {
  communicators.push_back(std::make_unique<NcclCommunicator>());
  communicators.back()->name = name;
  return *communicators.back();
}

NcclCommunicator &NcclRank::join(const ncclUniqueId &identity) {
  const double seconds = ncclInitSeconds();
  NcclCommunicator *made = nullptr;
  {
    std::lock_guard<std::timed_mutex> lock(calls);
    made = &add("world");
  }
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(seconds));
  ncclConfig_t config = configuration();
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  config.commName = made->name.c_str();
#endif
  // The library gives the handle at once: an abort ends the wait for others.
  try {
    run(
        *made, "ncclCommInitRankConfig",
        [&](ncclComm_t) {
          return nccl().initRank(&made->handle, ranks, identity, rank, &config);
        },
        deadline);
  } catch (const DeviceError &) {
    if (Clock::now() < deadline)
      throw;
    const char *interface = std::getenv("NCCL_SOCKET_IFNAME");
    throw DeviceError(
        "NCCL has not connected " + std::to_string(ranks) + " ranks in " +
        secondsText(seconds) + ": rank " + std::to_string(rank) +
        " waits for others; NCCL_SOCKET_IFNAME (" +
        (interface ? "'" + std::string(interface) + "'" : "not set") +
        ") names the interface that all of them reach, NCCL_DEBUG=INFO shows "
        "which is taken, GRT_NCCL_INIT_SECONDS gives more time");
  }
  return *made;
}

NcclCommunicator *NcclRank::split(int color, int key, const std::string &name) {
  // The library writes the handle once all ranks have come, which may be while
  // an abort is under way: it is left to it then.
  auto handle = std::make_unique<ncclComm_t>(nullptr);
  ncclConfig_t config = configuration();
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  config.commName = name.c_str();
#endif
  try {
    run(world(), "ncclCommSplit", [&](ncclComm_t parent) {
      return nccl().split(parent, color, key, handle.get(), &config);
    });
  } catch (...) {
    // An abort joins the library's thread: behind it the communicator is there,
    // and nobody else knows of it, or will never be.
    if (!stopped)
      static_cast<void>(handle.release());
    else if (*handle)
      nccl().abort(*handle);
    throw;
  }
  if (!*handle)
    return nullptr;
  std::lock_guard<std::timed_mutex> lock(calls);
  if (aborted) {
    // Nobody else knows of it.
    nccl().abort(*handle);
    throw CallError("aborted");
  }
  NcclCommunicator &made = add(name);
  made.handle = *handle;
  return &made;
}

void NcclRank::check() {
  for (size_t i = 0;; ++i) {
    std::lock_guard<std::timed_mutex> lock(calls);
    if (aborted || i >= communicators.size())
      return;
    const NcclCommunicator &each = *communicators[i];
    if (!each.handle)
      continue;
    ncclResult_t state = ncclSuccess;
    checkNccl(nccl().asyncError(each.handle, &state), "ncclCommGetAsyncError");
    if (state != ncclInProgress)
      checkNccl(state, "nccl '" + each.name + "'");
  }
}

void NcclRank::destroy() {
  std::lock_guard<std::timed_mutex> lock(calls);
  if (aborted)
    return;
  for (auto it = communicators.rbegin(); it != communicators.rend(); ++it)
    if ((*it)->handle)
      nccl().destroy((*it)->handle);
  communicators.clear();
}

//===----------------------------------------------------------------------===//
// NcclWorld
//===----------------------------------------------------------------------===//

std::shared_ptr<NcclWorld> NcclWorld::of(const ncclUniqueId &identity) {
  // Left behind at the end of the process, as threads that abort may be.
  static auto *mutex = new std::mutex();
  static auto *worlds = new std::map<std::string, std::weak_ptr<NcclWorld>>();
  std::lock_guard<std::mutex> lock(*mutex);
  std::erase_if(*worlds,
                [](const auto &each) { return each.second.expired(); });
  std::weak_ptr<NcclWorld> &entry =
      (*worlds)[std::string(identity.internal, sizeof(identity.internal))];
  std::shared_ptr<NcclWorld> world = entry.lock();
  if (!world)
    entry = world = std::make_shared<NcclWorld>();
  return world;
}

void NcclWorld::add(std::shared_ptr<NcclRank> rank) {
  std::lock_guard<std::mutex> lock(mutex);
  if (aborts)
    throw CallError("aborted");
  ranks.push_back(std::move(rank));
}

void NcclWorld::abort() {
  std::lock_guard<std::mutex> lock(mutex);
  if (aborts.exchange(true))
    return;
  // No call of the library begins from here on.
  for (const std::shared_ptr<NcclRank> &rank : ranks)
    rank->aborted = true;
  try {
    std::thread([self = shared_from_this()] { self->abortAll(); }).detach();
  } catch (const std::system_error &) {
    // No thread can be had: the process ends without.
  }
}

void NcclWorld::abortAll() {
  try {
    gpu::use();
  } catch (const DeviceError &) {
    // The library chooses the device itself.
  }
  std::vector<ncclComm_t> ready, busy;
  const auto deadline = Clock::now() + patience;
  for (const std::shared_ptr<NcclRank> &rank : ranks) {
    // Calls that have begun only give work to the library's thread, and return;
    // one that does not is let go by the abort.
    std::unique_lock<std::timed_mutex> alone(rank->calls, deadline);
    for (const auto &each : rank->communicators)
      if (each->handle) {
        ncclResult_t state = ncclInProgress;
        if (alone)
          nccl().asyncError(each->handle, &state);
        (state == ncclInProgress ? busy : ready).push_back(each->handle);
      }
  }
  // The flags of those in progress are set last: the abort joins the thread
  // that works for one, which may stand behind the kernel of another.
  nccl().groupStart();
  for (const std::vector<ncclComm_t> *each : {&ready, &busy})
    for (auto it = each->rbegin(); it != each->rend(); ++it)
      nccl().abort(*it);
  for (const std::shared_ptr<NcclRank> &rank : ranks)
    rank->stopped = true;
  nccl().groupEnd();
  std::lock_guard<std::mutex> lock(mutex);
  ended = true;
  changed.notify_all();
}

bool NcclWorld::awaitAbort(std::chrono::milliseconds longest) {
  std::unique_lock<std::mutex> lock(mutex);
  return changed.wait_for(lock, longest, [&] { return ended; });
}

} // namespace grt::cuda
