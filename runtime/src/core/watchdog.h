//===- watchdog.h - Noticing ranks that are stuck -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_WATCHDOG_H
#define GRT_CORE_WATCHDOG_H

#include "comm/activity.h"

#include <chrono>
#include <optional>
#include <span>
#include <vector>

namespace grt {

/// Looks at the ranks of this process now and then. A rank that computes is
/// stuck if it does not go on for the time-out; ranks that wait are the victims
/// of such a one, unless all of them wait: then they wait for each other, or
/// for another process.
class Watchdog {
public:
  using Clock = std::chrono::steady_clock;

  Watchdog(std::span<const std::unique_ptr<Activity>> ranks, double seconds);

  /// Forgets the past; ranks begin a command.
  void restart(Clock::time_point now);
  /// What is wrong, if anything is.
  std::optional<std::string> look(Clock::time_point now);
  /// How often to look.
  std::chrono::milliseconds interval() const;

private:
  struct Seen {
    uint64_t progress = 0;
    Clock::time_point since;
  };
  std::string waiters(int culprit) const;

  std::span<const std::unique_ptr<Activity>> ranks;
  double seconds;
  std::vector<Seen> seen;
};

} // namespace grt

#endif // GRT_CORE_WATCHDOG_H
