//===- threads.cpp - bench-collectives: ranks as threads ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   bench-collectives RANKS
//
//===----------------------------------------------------------------------===//

#include "cases.h"

#include "comm/threads.h"

#include <barrier>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <thread>

using namespace galvatron::bench;

namespace {

double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

struct Shared {
  explicit Shared(int ranks) : world(ranks), gate(ranks), seconds(ranks) {}
  grt::ThreadsWorld world;
  std::barrier<> gate;
  std::vector<double> seconds;
};

void rankBody(Shared &shared, int rank, int ranks) {
  std::unique_ptr<grt::Communicator> communicator = shared.world.join(rank);
  std::vector<int> everyone(static_cast<size_t>(ranks));
  std::iota(everyone.begin(), everyone.end(), 0);
  grt::Group &group = communicator->group(everyone);
  for (uint64_t size : mebibytes) {
    uint64_t bytes = size << 20, part = bytes / uint64_t(ranks);
    std::vector<float> data(bytes / 4, 0.5f), share(part / 4, 0.5f);
    for (int collective = 0; collective < 3; ++collective) {
      std::vector<double> slowest;
      for (int i = 0; i < repetitions(bytes) + 2; ++i) {
        shared.gate.arrive_and_wait();
        double begin = now();
        if (collective == 0)
          communicator->allReduce(group, data.data(), data.size(), GRT_F32);
        else if (collective == 1)
          communicator->allGather(group, share.data(), data.data(), part);
        else
          communicator->reduceScatter(group, data.data(), share.data(),
                                      share.size(), GRT_F32, false);
        shared.seconds[size_t(rank)] = now() - begin;
        shared.gate.arrive_and_wait();
        // The first two touch memory and warm up.
        if (i >= 2)
          slowest.push_back(
              *std::max_element(shared.seconds.begin(), shared.seconds.end()));
      }
      if (rank == 0)
        report(collective, bytes, ranks, slowest);
    }
  }
}

} // namespace

int main(int argc, char **argv) {
  int ranks = argc == 2 ? std::atoi(argv[1]) : 0;
  if (ranks < 2) {
    std::fprintf(stderr, "usage: bench-collectives RANKS\n");
    return 2;
  }
  Shared shared(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { rankBody(shared, rank, ranks); });
  for (std::thread &thread : threads)
    thread.join();
  return 0;
}
