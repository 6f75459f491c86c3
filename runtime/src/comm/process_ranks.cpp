//===- process_ranks.cpp - Where the ranks of processes are ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/process_ranks.h"

#include <array>
#include <cmath>
#include <fstream>

namespace grt {
namespace {

/// The running kernel of this machine; processes with equal ones share cores,
/// whatever names and networks they see. Null bytes if unknown.
std::array<char, 40> machine() {
  std::array<char, 40> id{};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(id.data(), 36);
  return id;
}

} // namespace

ProcessWorld::Shared::Shared(Transport &transport, std::vector<int> firstRanks,
                             int epoch,
                             std::function<void(const Failure &)> tell)
    : transport(transport), first(std::move(firstRanks)), epoch(epoch),
      tell(std::move(tell)), local(first[size_t(transport.process()) + 1] -
                                       first[size_t(transport.process())],
                                   first[size_t(transport.process())]) {
  for (int process = 0; process < transport.processes(); ++process) {
    int count = first[size_t(process) + 1] - first[size_t(process)];
    owner.insert(owner.end(), size_t(count), process);
    mostLocal = std::max(mostLocal, count);
  }
  std::array<char, 40> own = machine();
  std::vector<std::array<char, 40>> all(
      static_cast<size_t>(transport.processes()));
  transport.allGather(own.data(), all.data(), sizeof(own));
  for (int process = 0; process < transport.processes(); ++process)
    if (all[size_t(process)] == own)
      machineRanks += first[size_t(process) + 1] - first[size_t(process)];
  // Tags repeat after this many worlds: every pair of thread ranks of two
  // processes has tags for each, and messages of the earlier world are gone
  // by then.
  constexpr int worlds = 16;
  pairs = families * mostLocal * mostLocal;
  epochs = hostTag(transport) / pairs;
  if (epochs < worlds)
    invalid("expected at most " +
            std::to_string(int(std::sqrt(double(hostTag(transport)) /
                                         double(worlds * families)))) +
            " thread ranks in a process, found " + std::to_string(mostLocal) +
            ": " + transport.name() + " has " +
            std::to_string(transport.largestTag()) + " message tags");
}

} // namespace grt
