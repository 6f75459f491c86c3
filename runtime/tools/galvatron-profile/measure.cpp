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

std::vector<int> ranksOf(const std::vector<int> &hosts, int host) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    if (hosts[rank] == host)
      ranks.push_back(int(rank));
  return ranks;
}

/// `ofHosts` becomes what each host has measured, and the figures of `result`
/// the mean over all ranks.
void shareFigures(Communicator &communicator, int hosts, Measurement &result) {
  std::vector<double> own = figuresOf(result);
  own.push_back(result.cores);
  own.push_back(result.threadsPerRank);
  std::vector<double> all(own.size() * size_t(communicator.size()));
  communicator.gather(own, all);
  auto figures = [&](int rank) {
    auto begin = all.begin() + ptrdiff_t(size_t(rank) * own.size());
    return std::vector<double>(begin, begin + ptrdiff_t(own.size()));
  };
  std::vector<double> sum(own.size() - 2);
  for (int rank = 0; rank < communicator.size(); ++rank)
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] += figures(rank)[i] / double(communicator.size());
  for (int host = 0; host < hosts; ++host) {
    std::vector<double> its = figures(ranksOf(result.hosts, host).front());
    Measurement of = result;
    of.ofHosts.clear();
    of.threadsPerRank = int(its.back());
    its.pop_back();
    of.cores = int(its.back());
    its.pop_back();
    setFigures(of, its);
    result.ofHosts.push_back(std::move(of));
  }
  setFigures(result, sum);
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
