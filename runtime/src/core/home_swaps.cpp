//===- home_swaps.cpp - Copies between an arena and the home of states ----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/home_swaps.h"

#include <thread>
#include <utility>

namespace grt {

void HomeSwaps::setUp(const HomeMemory &memory, Device &on, char *arenaBase,
                      double bytesPerSecond, bool hostWorks, uint32_t stream) {
  home = &memory;
  device = &on;
  arena = arenaBase;
  rate = bytesPerSecond;
  hostWaits = hostWorks;
  outStream = stream;
}

void HomeSwaps::copy(uint32_t stream, bool out, uint64_t atHome,
                     uint64_t inArena, uint64_t bytes) {
  const auto begun = std::chrono::steady_clock::now();
  home->forPieces(atHome, bytes, [&](uint64_t offset, uint64_t length) {
    char *there = home->base() + offset;
    char *here = arena + inArena + (offset - atHome);
    device->copy(stream, out ? there : here, out ? here : there, length);
  });
  leaves |= out;
  limit(begun, bytes);
}

void HomeSwaps::limit(std::chrono::steady_clock::time_point begin,
                      uint64_t bytes) const {
  if (rate > 0)
    std::this_thread::sleep_until(
        begin + std::chrono::duration_cast<std::chrono::nanoseconds>(
                    std::chrono::duration<double>(double(bytes) / rate)));
}

void HomeSwaps::reachHome() {
  if (hostWaits && std::exchange(leaves, false))
    device->waitFor(outStream);
}

void HomeSwaps::count(grt_swap_class states, bool out, uint64_t bytes) {
  RankSwaps::Bytes &of = states == GRT_SWAP_PARAMETERS  ? figures.parameters
                         : states == GRT_SWAP_GRADIENTS ? figures.gradients
                         : states == GRT_SWAP_OPTIMIZER ? figures.optimizer
                                                        : figures.activations;
  (out ? of.out : of.in) += bytes;
}

} // namespace grt
