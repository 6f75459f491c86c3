//===- processes.cpp - bench-collectives-processes ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks as processes, each started by a launcher as those of a run are: over
// TCP with torchrun's variables (runtime/tests/start-processes N ...), over
// Open MPI under mpirun. Beside the sizes of cases.h it measures the numbers of
// a step: "gather 0 ranks microseconds".
//
//===----------------------------------------------------------------------===//

#include "cases.h"

#include "comm/launch.h"
#include "comm/process_world.h"
#include "comm/rank_messages.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <numeric>

using namespace galvatron::bench;

namespace {

double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

/// The longest of all ranks' times.
double longest(grt::Communicator &communicator, double mine) {
  const std::vector<double> all =
      grt::gatherOfRanks(communicator, grt::MessageKind::Times, mine);
  return *std::max_element(all.begin(), all.end());
}

void measure(grt::Communicator &communicator) {
  const int ranks = communicator.size();
  std::vector<int> everyone(static_cast<size_t>(ranks));
  std::iota(everyone.begin(), everyone.end(), 0);
  grt::Group &group = communicator.group(everyone);
  auto timed = [&](int times, auto run) {
    std::vector<double> slowest;
    for (int i = 0; i < times + 2; ++i) {
      longest(communicator, 0); // all begin together
      double begin = now();
      run();
      double time = longest(communicator, now() - begin);
      // The first two touch memory and warm up.
      if (i >= 2)
        slowest.push_back(time);
    }
    std::sort(slowest.begin(), slowest.end());
    return slowest;
  };
  std::vector<double> small = timed(200, [&] { longest(communicator, 0); });
  if (communicator.rank() == 0)
    std::printf("gather 0 %d %.2f %.2f\n", ranks, 1e6 * small.front(),
                1e6 * small[small.size() / 2]);
  for (uint64_t size : mebibytes) {
    uint64_t bytes = size << 20, part = bytes / uint64_t(ranks);
    std::vector<float> data(bytes / 4, 0.5f), share(part / 4, 0.5f);
    for (int collective = 0; collective < 3; ++collective) {
      std::vector<double> slowest = timed(repetitions(bytes), [&] {
        if (collective == 0)
          communicator.allReduce(group, data.data(), data.size(), GRT_F32);
        else if (collective == 1)
          communicator.allGather(group, share.data(), data.data(), part);
        else
          communicator.reduceScatter(group, data.data(), share.data(),
                                     share.size(), GRT_F32, false);
      });
      if (communicator.rank() == 0)
        report(collective, bytes, ranks, slowest);
    }
  }
}

} // namespace

int main() try {
  grt::Transport *transport = grt::openTransport({});
  if (!transport) {
    std::fprintf(stderr, "expected a launcher's variables, found none: see the "
                         "head of processes.cpp\n");
    return 2;
  }
  {
    grt::ProcessWorld world(*transport, grt::gatherRankCounts(*transport, 1), 0,
                            [](const grt::Failure &) {});
    measure(*world.join(transport->process()));
  }
  transport->finalize();
  return 0;
} catch (const std::exception &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
