//===- measure.cpp - Measures what a rank of this machine achieves --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "measure.h"
#include "core/error.h"
#include "core/executor.h"
#include "core/init.h"

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <unistd.h>

namespace grt::profile {
namespace {

/// Ranks with the same number run on hosts with the same name.
std::vector<int> hostsOfRanks(Communicator &communicator) {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  // A double holds 53 bits of the name's hash.
  double mine = double(hashName(name) >> 11);
  std::vector<double> all(size_t(communicator.size()));
  communicator.gather({&mine, 1}, all);
  std::map<double, int> numbers;
  std::vector<int> hosts;
  for (double host : all)
    hosts.push_back(numbers.emplace(host, int(numbers.size())).first->second);
  return hosts;
}

} // namespace

Measurement measure(World &world, const MeasureOptions &options) {
  BackendHandle backend("cpu", "");
  int cores = std::max(1, int(std::thread::hardware_concurrency()));
  int threads = std::max(1, cores / world.machineRanks());
  std::vector<Measurement> results(size_t(world.localCount()));
  std::vector<std::thread> ranks;
  std::mutex mutex;
  std::exception_ptr failure;
  for (int local = 0; local < world.localCount(); ++local)
    ranks.emplace_back([&, local] {
      try {
        std::unique_ptr<Communicator> communicator =
            world.join(world.firstLocal() + local);
        // One rank of a process asks for all.
        Probe probe(
            *communicator, *backend, threads,
            local == 0 ? options.ended : [] { return false; });
        Measurement &result = results[size_t(local)];
        result.threadsPerRank = threads;
        result.cores = cores;
        result.hosts = hostsOfRanks(*communicator);
        int hosts =
            1 + *std::max_element(result.hosts.begin(), result.hosts.end());
        double compute = communicator->size() > 1 ? 0.6 : 1;
        double pairs = hosts > 2 ? 0.1 : 0;
        if (hosts > 1)
          probe.averageOver(ranksOf(
              result.hosts, result.hosts[size_t(communicator->rank())]));
        measureCompute(probe, options.seconds * compute, options.quick, result);
        probe.averageOver({});
        if (hosts > 1)
          shareFigures(*communicator, hosts, result);
        if (communicator->size() > 1)
          measureCollectives(probe, options.seconds * (1 - compute - pairs),
                             options.quick, result);
        if (hosts > 2)
          measurePairs(probe, options.seconds * pairs, options.quick, result);
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
  return results[0];
}

} // namespace grt::profile
