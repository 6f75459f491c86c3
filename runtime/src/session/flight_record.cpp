//===- flight_record.cpp - What ranks did before a failure ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "session/flight_record.h"

#include <chrono>
#include <condition_variable>
#include <system_error>
#include <thread>
#include <utility>

namespace grt {

void FlightRecord::lookAtMarks() {
  if (!state.backend.device || !state.backend.device->query || marksHang)
    return;
  auto look = [this] {
    for (const std::unique_ptr<Rank> &rank : local.ranks)
      rank->lookAtMarks();
  };
  // Libraries of devices may hold a lock for as long as the device hangs.
  struct Looked {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  auto looked = std::make_shared<Looked>();
  try {
    std::thread([look, looked] {
      look();
      std::lock_guard<std::mutex> lock(looked->mutex);
      looked->done = true;
      looked->changed.notify_all();
    }).detach();
  } catch (const std::system_error &) {
    return;
  }
  std::unique_lock<std::mutex> lock(looked->mutex);
  marksHang = !looked->changed.wait_for(lock, std::chrono::seconds(1),
                                        [&] { return looked->done; });
}

std::string FlightRecord::compareCalls() {
  lookAtMarks();
  return findingsText(compared(local.flights(), absent()));
}

void FlightRecord::write(const std::function<std::string()> &reason) {
  std::lock_guard<std::mutex> lock(mutex);
  if (std::exchange(taken, true) || state.options.flightFile.empty())
    return;
  std::string why = reason();
  lookAtMarks();
  file.write(state.options.flightFile,
             flightText(why, local.flights(), absent()));
}

void FlightRecord::await() {
  FlightFile begun;
  {
    std::lock_guard<std::mutex> lock(mutex);
    begun = file;
  }
  begun.await(std::chrono::seconds(1));
}

std::string FlightRecord::note() {
  await();
  std::lock_guard<std::mutex> lock(mutex);
  return file.note();
}

} // namespace grt
