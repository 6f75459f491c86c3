//===- flight.h - What ranks did last -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every rank keeps its last operations (activity.h). When a run fails they are
// taken down before anything is ended, and written to a file. On a device an
// operation that the rank has put on a stream may not have been done: events
// behind the functions and behind what is on other streams tell.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_FLIGHT_H
#define GRT_CORE_FLIGHT_H

#include "comm/activity.h"

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace grt {

struct RankFlight {
  const Activity *activity;
  const grt_transfer_part *transfers; ///< of the rank's role
};

/// What comparing the ranks' collectives finds. `absent`: what ranks mean that
/// are not among these.
std::vector<CollectiveFinding> compared(std::span<const RankFlight> ranks,
                                        Absent absent);

/// JSON with the last operations of all ranks, at most about 16 MiB unless
/// there are thousands of ranks. The state of an operation is "done",
/// "enqueued" (given to the device, which has not finished it, as far as was
/// looked at: Activity::lookAtMarks) or "running" (the rank's thread is in it).
/// Communicators of a rank have the number of the last collective that it
/// enqueued, that had begun, and that was done, and those that are not done.
std::string flightText(const std::string &reason,
                       std::span<const RankFlight> ranks,
                       Absent absent = Absent::Unknown);

/// A flight record on its way to storage, which may be slow, or the very thing
/// that failed: a thread of its own writes it, and is left behind if it does
/// not come back.
class FlightFile {
public:
  /// Begins to write a file; once.
  void write(std::string path, std::string text);
  /// Waits so long until it is written, or cannot be; false where it still is.
  /// True where nothing was begun.
  bool await(std::chrono::milliseconds longest) const;
  /// What came of it, for people; empty where nothing was begun.
  std::string note() const;

private:
  struct State;
  std::shared_ptr<State> state;
};

} // namespace grt

#endif // GRT_CORE_FLIGHT_H
