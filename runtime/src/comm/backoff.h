//===- backoff.h - Pauses of a rank that waits ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_BACKOFF_H
#define GRT_COMM_BACKOFF_H

#include "comm/activity.h"

#include <algorithm>
#include <ctime>
#include <sched.h>

namespace grt {

/// Pauses that grow: a rank that waits must not take the core from one that
/// computes, but most waits are short.
class Backoff {
public:
  void pause() {
    if (++turns <= 20) {
      sched_yield();
      return;
    }
    long microseconds = std::min(200L, 10L << std::min(turns / 20, 5));
    timespec time = {0, microseconds * 1000};
    nanosleep(&time, nullptr);
  }
  void reset() { turns = 0; }
  bool sleeps() const { return turns >= 20; }
  /// Notes the peer that has not come yet, for whoever says why nothing moves.
  void note(int peer) {
    if (!currentActivity || peer == noted)
      return;
    noted = peer;
    currentActivity->narrowWait(peer);
  }

private:
  int turns = 0;
  int noted = -1;
};

} // namespace grt

#endif // GRT_COMM_BACKOFF_H
