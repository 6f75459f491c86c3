//===- measure.cpp - Measures what a rank of this machine achieves --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "measure.h"
#include "base/error.h"
#include "core/executor.h"
#include "core/init.h"
#include "core/joined_rank.h"

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <unistd.h>

namespace grt::profile {
namespace {

/// Ranks with the same number run on hosts with the same name.
std::vector<int> hostsOfRanks(Communicator &communicator) {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  std::map<uint64_t, int> numbers;
  std::vector<int> hosts;
  for (uint64_t host :
       gatherOfRanks(communicator, MessageKind::HostName, hashName(name)))
    hosts.push_back(numbers.emplace(host, int(numbers.size())).first->second);
  return hosts;
}

double largestOf(Communicator &communicator, double own) {
  const std::vector<double> all =
      gatherOfRanks(communicator, MessageKind::Times, own);
  return *std::max_element(all.begin(), all.end());
}

/// Returns what one more communicator of all ranks takes of the device, once
/// what a library takes for the first one is there; 0 if nobody can say.
uint64_t bytesOfCommunicator(JoinedRank &rank, const grt_backend &backend) {
  if (!backend.device->peak_bytes)
    return 0;
  constexpr uint64_t bytes = 1 << 20, step = 64 << 20;
  char *memory = rank.allocate(bytes);
  std::vector<int> ranks(size_t(rank.peers().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto mostSeen = [&] { return backend.device->peak_bytes(rank.state()); };
  auto use = [&] {
    rank.peers().allReduce(rank.peers().group(ranks), memory,
                           bytes / sizeof(float), GRT_F32);
    rank.wait();
    largestOf(rank.host(), 0); // all are there
  };
  use();
  // The backend remembers the most that it saw: from here on that is now.
  for (const uint64_t before = mostSeen(); mostSeen() == before;)
    rank.allocate(step);
  largestOf(rank.host(), 0);
  const uint64_t with = mostSeen();
  largestOf(rank.host(), 0);
  // Another order is another communicator.
  std::reverse(ranks.begin(), ranks.end());
  use();
  return uint64_t(largestOf(rank.host(), double(mostSeen() - with)));
}

void measureLinksOfRank(JoinedRank &rank, const grt_backend &backend,
                        const MeasureOptions &options, Measurement &result) {
  rank.join();
  Communicator &host = rank.host();
  result.hosts = hostsOfRanks(host);
  const int hosts =
      1 + *std::max_element(result.hosts.begin(), result.hosts.end());
  shareFigures(host, hosts, result);
  if (hosts == 1)
    result.ofHosts.clear();
  result.outsideBytes = uint64_t(largestOf(host, double(result.outsideBytes)));
  result.communicatorBytes = bytesOfCommunicator(rank, backend);
  Probe probe(rank, backend, options.ended);
  const double pairs = hosts > 2 ? 0.25 : 0;
  measureCollectives(probe, options.seconds * (1 - pairs), options.quick,
                     result);
  if (hosts > 2)
    measurePairs(probe, options.seconds * pairs, options.quick, result);
}

/// Runs `body` for each rank of this process, on a thread of its own. What one
/// throws ends the others.
void onRanks(World &world, const std::function<void(int)> &body) {
  std::vector<std::thread> ranks;
  std::mutex mutex;
  std::exception_ptr failure;
  for (int local = 0; local < world.localCount(); ++local)
    ranks.emplace_back([&, local] {
      try {
        body(local);
      } catch (const std::exception &problem) {
        // The first one is the cause; the others were woken by it.
        std::lock_guard<std::mutex> lock(mutex);
        if (!failure) {
          failure = std::current_exception();
          world.abort({1, problem.what()});
        }
      }
    });
  for (std::thread &rank : ranks)
    rank.join();
  if (failure)
    std::rethrow_exception(failure);
}

} // namespace

void measureDeviceLinks(World &world, const grt_backend &backend,
                        const MeasureOptions &options, Measurement &result) {
  std::vector<Measurement> results(size_t(world.localCount()), result);
  onRanks(world, [&](int local) {
    JoinedRank rank(world, world.firstLocal() + local, backend, 1);
    MeasureOptions own = options;
    if (local > 0) // One rank of a process asks for all.
      own.ended = [] { return false; };
    measureLinksOfRank(rank, backend, own, results[size_t(local)]);
  });
  result = results[0];
}

Measurement measure(World &world, const MeasureOptions &options) {
  BackendHandle backend("cpu", "");
  int cores = std::max(1, int(std::thread::hardware_concurrency()));
  int threads = std::max(1, cores / world.machineRanks());
  std::vector<Measurement> results(size_t(world.localCount()));
  onRanks(world, [&](int local) {
    std::unique_ptr<Communicator> communicator =
        world.join(world.firstLocal() + local);
    // One rank of a process probes for all of them.
    Probe probe(
        *communicator, *backend, threads,
        local == 0 ? options.ended : [] { return false; });
    Measurement &result = results[size_t(local)];
    result.threadsPerRank = threads;
    result.cores = cores;
    result.hosts = hostsOfRanks(*communicator);
    int hosts = 1 + *std::max_element(result.hosts.begin(), result.hosts.end());
    double compute = communicator->size() > 1 ? 0.6 : 1;
    double pairs = hosts > 2 ? 0.1 : 0;
    if (hosts > 1)
      probe.averageOver(
          ranksOf(result.hosts, result.hosts[size_t(communicator->rank())]));
    measureCompute(probe, options.seconds * compute, options.quick, result);
    probe.averageOver({});
    if (hosts > 1)
      shareFigures(*communicator, hosts, result);
    if (communicator->size() > 1)
      measureCollectives(probe, options.seconds * (1 - compute - pairs),
                         options.quick, result);
    if (hosts > 2)
      measurePairs(probe, options.seconds * pairs, options.quick, result);
  });
  return results[0];
}

} // namespace grt::profile
