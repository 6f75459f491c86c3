//===- flight_record.h - What ranks did before a failure ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_SESSION_FLIGHT_RECORD_H
#define GRT_SESSION_FLIGHT_RECORD_H

#include "session/process_ranks.h"

#include <atomic>
#include <functional>
#include <mutex>
#include <string>

namespace grt {

/// Says what ranks did last, from any thread.
class FlightRecord {
public:
  FlightRecord(const RunState &state, const World &world,
               const ProcessRanks &local)
      : state(state), world(world), local(local) {}

  /// Asks the devices how far they are, for at most a second: what does not
  /// answer is not asked again, and is left behind.
  void lookAtMarks();
  /// Whether something was left behind, which uses the ranks for ever.
  bool isStuck() const { return marksHang; }
  /// What the ranks' collectives say of why they stand still, for the end of a
  /// message.
  std::string compareCalls();
  /// Takes down what the ranks did last and begins to write it where the
  /// options say, the first time.
  void write(const std::function<std::string()> &reason);
  /// Waits for it as long as storage that works may take.
  void await();
  /// What came of it, for people.
  std::string note();

private:
  Absent absent() const {
    return world.localCount() == world.size() ? Absent::Silent
                                              : Absent::Unknown;
  }

  const RunState &state;
  const World &world;
  const ProcessRanks &local;
  std::atomic<bool> marksHang = false;
  std::mutex mutex; ///< of what follows; taken before that of RankThreads
  bool taken = false;
  FlightFile file;
};

} // namespace grt

#endif // GRT_SESSION_FLIGHT_RECORD_H
