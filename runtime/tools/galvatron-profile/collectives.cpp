//===- collectives.cpp - Collectives and transfers ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All groups of a kind run at the same time, as those of a level of a strategy
// do. Ranks come to them from work, as in a step: where they share cores they
// arrive one after another, and who wakes up waits for a core, which takes
// longer than most collectives.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "measure.h"

#include <algorithm>
#include <cmath>
#include <list>

namespace grt::profile {
namespace {

/// The groups of one size and stride: {base, base + stride, ..}.
struct Placement {
  int ranks, stride;
  bool network = false;

  std::vector<int> groupOf(int rank) const {
    int first = rank / (ranks * stride) * (ranks * stride) + rank % stride;
    std::vector<int> members;
    for (int i = 0; i < ranks; ++i)
      members.push_back(first + i * stride);
    return members;
  }
};

/// Sizes and strides that divide the ranks. On one host strides do not matter;
/// over several, every stride whose groups leave a host, and neighbours inside.
std::vector<Placement> placements(const std::vector<int> &hosts) {
  std::vector<Placement> result;
  int all = int(hosts.size());
  for (int ranks = 2; ranks <= all; ++ranks)
    for (int stride = 1; ranks * stride <= all; ++stride) {
      if (all % (ranks * stride) != 0)
        continue;
      Placement placement{ranks, stride};
      for (int rank = 0; rank < all; ++rank)
        for (int member : placement.groupOf(rank))
          placement.network |= hosts[size_t(member)] != hosts[size_t(rank)];
      if (stride == 1 || placement.network)
        result.push_back(placement);
    }
  return result;
}

constexpr const char *kinds[] = {"all-reduce", "all-gather", "reduce-scatter"};

/// A product that a rank alone on a core computes in a few milliseconds.
class Work {
public:
  /// The work that runs beside collectives; without it (quick, and on devices)
  /// they follow each other.
  Work(Probe &probe, bool quick) : probe(probe) {
    if (quick || probe.onDevice())
      return;
    buffers.emplace_back(probe.device(), rows * width * 4);
    buffers.emplace_back(probe.device(), width * width * 4);
    buffers.emplace_back(probe.device(), rows * width * 4);
    for (Block &buffer : buffers)
      buffer.fill(GRT_F32);
  }

  /// Seconds that `body` adds to the work before it.
  template <typename Body> double timeBehind(double seconds, Body body) {
    return buffers.empty() ? probe.time(seconds, body)
                           : probe.timeBehind(seconds, [&] { run(); }, body);
  }

private:
  static constexpr int64_t rows = 256, width = 512;
  void run() {
    std::vector<Block *> all;
    for (Block &buffer : buffers)
      all.push_back(&buffer);
    probe.launch(GRT_KERNEL_GEMM, GRT_F32, all,
                 {rows, width, width, 0, 0, 0, 0});
  }

  Probe &probe;
  std::list<Block> buffers;
};

/// Returns the seconds of one collective over `bytes` in full.
double collectiveSeconds(Probe &probe, Work &work, int kind, Group &group,
                         int64_t bytes, void *whole, void *part,
                         double seconds) {
  uint64_t count = uint64_t(bytes) / sizeof(float);
  uint64_t share = count / uint64_t(group.size());
  return work.timeBehind(seconds, [&] {
    Communicator &peers = probe.peers();
    if (kind == 0)
      peers.allReduce(group, whole, count, GRT_F32);
    else if (kind == 1)
      peers.allGather(group, part, whole, share * sizeof(float));
    else
      peers.reduceScatter(group, whole, part, share, GRT_F32,
                          /*accumulate=*/false);
  });
}

/// Returns the seconds of one transfer from the first rank of every pair to the
/// second.
double sendSeconds(Probe &probe, Work &work, const Placement &pairs,
                   int64_t bytes, void *whole, double seconds) {
  int self = probe.peers().rank();
  std::vector<int> pair = pairs.groupOf(self);
  ExchangeTable table;
  if (self == pair[0])
    table.sends = {{pair[1], {{0, 0, 1}}}};
  else
    table.receives = {{pair[0], {{0, 0, 1}}}};
  ExchangeCall call;
  call.table = &table;
  call.source = call.destination = whole;
  call.bytesPerUnit = uint64_t(bytes);
  return work.timeBehind(seconds, [&] { probe.peers().exchange({&call, 1}); });
}

} // namespace

void measureCollectives(Probe &probe, double part, bool quick,
                        Measurement &result) {
  std::vector<int64_t> sizes = {2 << 10, 32 << 10, 256 << 10, 2 << 20,
                                16 << 20};
  // A device's links are full with more.
  if (probe.onDevice())
    sizes = {32 << 10, 256 << 10, 2 << 20, 16 << 20, 128 << 20};
  if (quick)
    sizes = {8 << 10, 512 << 10, 4 << 20};
  std::vector<Placement> all = placements(result.hosts);
  size_t pairs = 0;
  for (const Placement &placement : all)
    pairs += placement.ranks == 2;
  double each = part / double(sizes.size() * (3 * all.size() + pairs));
  void *whole = probe.memory(sizes.back());
  void *share = probe.memory(sizes.back() / 2);
  Work work(probe, quick);
  auto add = [&](const char *kind, const Placement &placement,
                 auto measureOne) {
    CollectiveTimes times;
    times.kind = kind;
    times.ranks = placement.ranks;
    times.network = placement.network;
    times.stride = placement.stride;
    times.concurrent = int(result.hosts.size()) / placement.ranks;
    for (int64_t size : sizes)
      times.times.push_back({size, measureOne(size)});
    result.collectives.push_back(std::move(times));
  };
  for (const Placement &placement : all) {
    Group &group = probe.peers().group(placement.groupOf(probe.peers().rank()));
    for (int kind = 0; kind < 3; ++kind)
      add(kinds[kind], placement, [&](int64_t bytes) {
        return collectiveSeconds(probe, work, kind, group, bytes, whole, share,
                                 each);
      });
    if (placement.ranks == 2)
      add("send", placement, [&](int64_t bytes) {
        return sendSeconds(probe, work, placement, bytes, whole, each);
      });
  }
}

void measurePairs(Probe &probe, double part, bool quick, Measurement &result) {
  std::vector<int> first; ///< rank of every host
  for (size_t rank = 0; rank < result.hosts.size(); ++rank)
    if (result.hosts[rank] == int(first.size()))
      first.push_back(int(rank));
  int hosts = int(first.size());
  // A tournament: one host stays, the others turn around it. An odd number has
  // one that pauses.
  int places = hosts + hosts % 2;
  std::vector<int64_t> sizes = {32 << 10, quick ? 4 << 20 : 16 << 20};
  double each = part / double(places - 1) / double(sizes.size());
  void *whole = probe.memory(sizes.back());
  int self = probe.peers().rank();
  for (int round = 0; round + 1 < places; ++round) {
    auto at = [&](int place) {
      return place == 0 ? 0 : 1 + (place - 1 + round) % (places - 1);
    };
    std::vector<PairTimes> pairs;
    ExchangeTable table;
    for (int place = 0; place < places / 2; ++place) {
      auto [a, b] = std::minmax({at(place), at(places - 1 - place)});
      if (b == hosts)
        continue;
      pairs.push_back({a, b, {}});
      pairs.back().times.kind = "send";
      pairs.back().times.network = true;
      if (self == first[size_t(a)])
        table.sends = {{first[size_t(b)], {{0, 0, 1}}}};
      if (self == first[size_t(b)])
        table.receives = {{first[size_t(a)], {{0, 0, 1}}}};
    }
    for (int64_t bytes : sizes) {
      ExchangeCall call;
      call.table = &table;
      call.source = call.destination = whole;
      call.bytesPerUnit = uint64_t(bytes);
      std::vector<double> seconds = probe.timesOfRanks(each, [&] {
        if (!table.sends.empty() || !table.receives.empty())
          probe.peers().exchange({&call, 1});
      });
      for (PairTimes &pair : pairs)
        pair.times.times.push_back(
            {bytes, seconds[size_t(first[size_t(pair.second)])]});
    }
    result.pairs.insert(result.pairs.end(), pairs.begin(), pairs.end());
  }
}

} // namespace grt::profile
