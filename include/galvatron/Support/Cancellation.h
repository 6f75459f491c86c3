//===- Cancellation.h - When long work is to end ----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A request to end work that takes long: a deadline, a signal, or both. One
// object is made by the tool and looked at by every phase (pricing, search,
// explaining), so that no phase begins to count anew.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SUPPORT_CANCELLATION_H
#define GALVATRON_SUPPORT_CANCELLATION_H

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>

namespace galvatron {

class Cancellation {
public:
  using Clock = std::chrono::steady_clock;
  using Now = std::function<Clock::time_point()>;

  /// Never requests anything until told when.
  Cancellation() = default;
  /// Reads another clock, for tests that count how often it is looked at.
  explicit Cancellation(Now now) : now(std::move(now)) {}

  /// Requests the end this many seconds from now on; at least 0.
  void setSeconds(double seconds);
  /// Requests the end once the flag is not 0. A signal handler may set it; it
  /// must outlive this object.
  void setFlag(const volatile std::sig_atomic_t *raised) { flag = raised; }

  /// Whether work should end. Reads the clock, about 30 ns.
  bool requested() const;
  /// Whether it should because of the flag.
  bool interrupted() const { return flag && *flag; }

private:
  Now now;
  std::optional<Clock::time_point> deadline;
  const volatile std::sig_atomic_t *flag = nullptr;
};

} // namespace galvatron

#endif // GALVATRON_SUPPORT_CANCELLATION_H
