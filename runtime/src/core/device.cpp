//===- device.cpp - The host's way to a rank's arena ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/device.h"
#include "base/allocation.h"
#include "base/error.h"

#include <exception>

namespace grt {

Device::Device(const grt_backend &backend, void *rankState, Activity &activity,
               int ranks, uint64_t resultBytes, const std::atomic<bool> &failed)
    : table(backend.device), state(rankState), activity(activity), ranks(ranks),
      othersFailed(failed), resultBytes((resultBytes + 63) / 64 * 64) {
  if (!table)
    return;
  std::string who = "rank " + std::to_string(rank()) + ": ";
  if (table->event_count < leastEvents)
    fail(who + "backend '" + backend.name + "' has " +
         std::to_string(table->event_count) + " events, expected at least " +
         std::to_string(leastEvents));
  pinned =
      static_cast<char *>(table->allocate_host(this->resultBytes + stageBytes));
  if (!pinned)
    fail(ExitMemory, who + "cannot allocate " +
                         std::to_string(this->resultBytes + stageBytes) +
                         " bytes of pinned host memory");
}

Device::~Device() {
  if (pinned)
    table->release_host(pinned, resultBytes + stageBytes);
}

char *Device::stage(uint64_t bytes) {
  if (stageUsed + bytes > stageBytes)
    wait();
  char *place = pinned + resultBytes + stageUsed;
  stageUsed += (bytes + 63) / 64 * 64;
  return place;
}

const void *Device::fetch(const void *from, uint64_t bytes) {
  if (!table)
    return from;
  if (resultsUsed + bytes > resultBytes)
    fail("rank " + std::to_string(rank()) + ": expected to fetch at most " +
         std::to_string(resultBytes) + " bytes");
  char *place = pinned + resultsUsed;
  resultsUsed += (bytes + 63) / 64 * 64;
  copy(GRT_STREAM_COMPUTE, place, from, bytes);
  return place;
}

template <typename Call> void Device::waitInCall(Call call) {
  // Whoever hangs, it may be because another rank does.
  activity.beginWait("work on the device", Activity::WaitKind::Device);
  for (int peer = 0; peer < ranks; ++peer)
    activity.addPeer(peer);
  check(call);
  activity.endWait();
}

void Device::recordForHost(uint32_t event) {
  check([&](char *message, size_t bytes) {
    return table->record_for_host(state, GRT_STREAM_COMPUTE, event, message,
                                  bytes);
  });
}

void Device::await(uint32_t event) {
  waitInCall([&](char *message, size_t bytes) {
    return table->await(state, event, message, bytes);
  });
  // What was staged went through COMPUTE before it.
  stageUsed = resultsUsed = 0;
}

void Device::synchronise(uint32_t stream) {
  if (!table)
    return;
  waitInCall([&](char *message, size_t bytes) {
    return table->synchronise(state, stream, message, bytes);
  });
  // Everything staged or fetched went through COMPUTE.
  if (stream == GRT_STREAM_COMPUTE || stream == GRT_STREAM_COUNT)
    stageUsed = resultsUsed = 0;
}

void Device::fill(uint32_t stream, char *to, int byte, uint64_t bytes) {
  if (bytes == 0)
    return;
  if (!table) {
    std::memset(to, byte, bytes);
    return;
  }
  check([&](char *message, size_t capacity) {
    return table->fill(state, stream, to, byte, bytes, message, capacity);
  });
}

void Device::copy(uint32_t stream, void *to, const void *from, uint64_t bytes) {
  if (bytes == 0)
    return;
  if (!table) {
    std::memcpy(to, from, bytes);
    return;
  }
  check([&](char *message, size_t capacity) {
    return table->copy(state, stream, to, from, bytes, message, capacity);
  });
}

void Device::record(uint32_t stream, uint32_t event) {
  if (table)
    check([&](char *message, size_t bytes) {
      return table->record(state, stream, event, message, bytes);
    });
}

void Device::wait(uint32_t stream, uint32_t event) {
  if (!table)
    return;
  const WaitSpan span(*this, stream);
  check([&](char *message, size_t bytes) {
    return table->wait(state, stream, event, message, bytes);
  });
}

static void putStamp(const Device &device, uint32_t stream, uint32_t number) {
  device.check([&](char *message, size_t bytes) {
    return device->stamp(device.rankState(), stream, number, message, bytes);
  });
}

uint32_t Device::stamp(uint32_t stream) {
  // The first is nobody's: times are told since then.
  if (stamps == 0)
    putStamp(*this, stream, stamps++);
  putStamp(*this, stream, stamps);
  return stamps++;
}

double Device::milliseconds(uint32_t stamp) const {
  double result = 0;
  check([&](char *message, size_t bytes) {
    return table->stamped(state, stamp, &result, message, bytes);
  });
  return result;
}

void Device::measureWaits(bool on) {
  measuresWaits = on && hasClock();
  if (!measuresWaits)
    return;
  waitStampsUsed = 0;
  // Milliseconds of a device are floats: a day after the first stamp they are
  // multiples of eight.
  if (stamps > 0)
    putStamp(*this, GRT_STREAM_COMPUTE, 0);
}

void Device::stampWait() {
  if (waitStampsUsed == waitStamps.size()) {
    UncountedAllocations uncounted;
    waitStamps.push_back(stamp(GRT_STREAM_COMPUTE));
  } else {
    putStamp(*this, GRT_STREAM_COMPUTE, waitStamps[waitStampsUsed]);
  }
  ++waitStampsUsed;
}

double Device::takeWaits() {
  double seconds = 0;
  for (size_t i = 0; i + 1 < waitStampsUsed; i += 2)
    seconds +=
        (milliseconds(waitStamps[i + 1]) - milliseconds(waitStamps[i])) / 1e3;
  waitStampsUsed = 0;
  return seconds;
}

Device::WaitSpan::WaitSpan(Device &at, uint32_t stream)
    : device(at.measuresWaits && stream == GRT_STREAM_COMPUTE &&
                     at.waitStampsUsed < mostWaitStamps
                 ? &at
                 : nullptr),
      exceptions(std::uncaught_exceptions()) {
  if (device)
    device->stampWait();
}

Device::WaitSpan::~WaitSpan() noexcept(false) {
  // A call that failed was no wait.
  if (device && std::uncaught_exceptions() == exceptions)
    device->stampWait();
}

void Device::order(uint32_t first, uint32_t then) {
  if (first == then)
    return;
  // A wait is for the record before it, so one event per stream will do.
  record(first, firstOwnEvent + first);
  wait(then, firstOwnEvent + first);
}

void Device::failed(const char *message) const {
  std::string place = activity.describe();
  activity.endWait();
  if (othersFailed.load(std::memory_order_relaxed))
    throw Aborted();
  fail("rank " + std::to_string(rank()) + ", " + place + ": " + message);
}

} // namespace grt
