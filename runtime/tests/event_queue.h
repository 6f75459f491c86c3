//===- event_queue.h - What a simulation does next --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_EVENT_QUEUE_H
#define GRT_TESTS_EVENT_QUEUE_H

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>

namespace grt::test {

/// Events by their time in seconds, those of one time in the order in which
/// they were added.
class EventQueue {
public:
  void add(double when, std::function<void()> act) {
    events.push({when, order++, std::move(act)});
  }
  /// Runs what is due until `until`, what it adds included; `setTime` is told
  /// the time of each event before it acts.
  template <typename SetTime> void run(double until, SetTime setTime) {
    while (!events.empty() && events.top().when <= until) {
      std::function<void()> act = std::move(events.top().act);
      setTime(events.top().when);
      events.pop();
      act();
    }
  }

private:
  struct Event {
    double when;
    uint64_t order;
    mutable std::function<void()> act;
    bool operator<(const Event &other) const {
      return when != other.when ? when > other.when : order > other.order;
    }
  };
  std::priority_queue<Event> events;
  uint64_t order = 0;
};

} // namespace grt::test

#endif // GRT_TESTS_EVENT_QUEUE_H
