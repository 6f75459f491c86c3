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
        Probe probe(*communicator, *backend, threads);
        Measurement &result = results[size_t(local)];
        result.threadsPerRank = threads;
        result.cores = cores;
        result.hosts = hostsOfRanks(*communicator);
        double compute = communicator->size() > 1 ? 0.6 : 1;
        measureCompute(probe, options.seconds * compute, options.quick, result);
        if (communicator->size() > 1)
          measureCollectives(probe, options.seconds * (1 - compute),
                             options.quick, result);
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
