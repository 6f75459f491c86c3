//===- deadline.h - Sockets until a moment --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_DEADLINE_H
#define GRT_COMM_DEADLINE_H

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <poll.h>
#include <string>
#include <sys/types.h>

namespace grt {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

inline Deadline after(double seconds) {
  return Clock::now() + std::chrono::milliseconds(int64_t(seconds * 1e3));
}

/// "0.5 s"
inline std::string secondsText(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", seconds);
  return text;
}

/// Milliseconds until the deadline, as poll() takes them; 0 once it is past.
inline int millisecondsLeft(Deadline deadline) {
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - Clock::now());
  return int(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

/// Moves all bytes through a non-blocking socket: `move(done)` sends or
/// receives what follows byte `done`, as send() and recv() do, and `event` is
/// what poll() waits for. False at the deadline or if the other side is gone.
template <typename Move>
bool moveAll(int socket, short event, size_t bytes, Deadline deadline,
             Move move) {
  for (size_t done = 0; done < bytes;) {
    ssize_t moved = move(done);
    if (moved > 0) {
      done += size_t(moved);
      continue;
    }
    if (moved == 0 || (errno != EAGAIN && errno != EINTR))
      return false;
    pollfd descriptor = {socket, event, 0};
    int left = millisecondsLeft(deadline);
    if (left == 0 || ::poll(&descriptor, 1, left) == 0)
      return false;
  }
  return true;
}

} // namespace grt

#endif // GRT_COMM_DEADLINE_H
