//===- home_swaps.h - Copies between an arena and the home of states ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_HOME_SWAPS_H
#define GRT_CORE_HOME_SWAPS_H

#include "core/device.h"
#include "core/home.h"
#include "core/manifest.h"
#include "grt/session.h"

#include <chrono>
#include <vector>

namespace grt {

/// On CPU ranks the thread that computes copies. A device copies on streams;
/// what is done at home is then done by the host, once all that was on its way
/// there has come.
class HomeSwaps {
public:
  /// `rate`: bytes a second that copies take at most, 0: as they are; see
  /// SessionOptions. `hostWaits`: the host works at home beside the device.
  /// `outStream`: on which copies leave the device.
  void setUp(const HomeMemory &memory, Device &device, char *arena, double rate,
             bool hostWaits, uint32_t outStream);
  /// Copies bytes at home to the arena, or with `out` the other way.
  void copy(uint32_t stream, bool out, uint64_t atHome, uint64_t inArena,
            uint64_t bytes);
  /// Makes a copy of so many bytes between device and home, which began at
  /// `begin`, take as long as the rate says.
  void limit(std::chrono::steady_clock::time_point begin, uint64_t bytes) const;
  /// The host waits for what is on its way home.
  void reachHome();
  /// Adds a copy to the figures of a class of states.
  void count(grt_swap_class states, bool out, uint64_t bytes);

  RankSwaps figures; ///< since loading
  /// By slot at home what of it is live when it is in the arena. Reserved when
  /// the rank is loaded: steps allocate nothing.
  std::vector<std::vector<Extent>> lives;

private:
  const HomeMemory *home = nullptr;
  Device *device = nullptr;
  char *arena = nullptr;
  double rate = 0;
  bool hostWaits = false;
  uint32_t outStream = GRT_STREAM_COMPUTE;
  bool leaves = false; ///< something may be on its way home
};

} // namespace grt

#endif // GRT_CORE_HOME_SWAPS_H
