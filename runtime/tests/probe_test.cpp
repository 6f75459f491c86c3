//===- probe_test.cpp - What ranks measure together -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One rank of many, whose communicator writes down what is asked of it and
// answers for the others: which of their times is taken shows in the numbers.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "base/values.h"
#include "measure.h"
#include "reference_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>

using namespace grt;
using namespace grt::profile;

namespace {

/// A group of `size` ranks in which the others answer what `answer` makes of
/// this one's number.
class Alone : public Communicator {
public:
  Alone(int rank, int size, std::function<double(int rank, double own)> answer)
      : own(rank), all(size), answer(std::move(answer)) {}
  int rank() const override { return own; }
  int size() const override { return all; }
  Group &group(const std::vector<int> &ranks) override {
    groups.push_back(std::make_unique<Group>(ranks));
    return *groups.back();
  }
  void allReduce(Group &group, void *, uint64_t count, grt_dtype) override {
    called("all-reduce", group, count * 4);
  }
  void allGather(Group &group, const void *in, void *out,
                 uint64_t bytes) override {
    EXPECT_TRUE(in && out);
    called("all-gather", group, bytes * uint64_t(group.size()));
  }
  void reduceScatter(Group &group, const void *in, void *out, uint64_t count,
                     grt_dtype, bool) override {
    EXPECT_TRUE(in && out);
    called("reduce-scatter", group, count * 4 * uint64_t(group.size()));
  }
  void allReduceMax(Group &, void *, uint64_t, grt_dtype) override {
    ADD_FAILURE() << "nothing is compared";
  }
  void allToAll(Group &group, const void *, void *, uint64_t bytes) override {
    called("all-to-all", group, bytes);
  }
  void allToAll(Group &, const void *, void *, const BlockCounts &) override {
    ADD_FAILURE() << "no counts are measured";
  }
  void shift(Group &group, const void *, void *, uint64_t bytes,
             int64_t) override {
    called("shift", group, bytes);
  }
  void exchange(std::span<const ExchangeCall> calls) override {
    ASSERT_EQ(calls.size(), 1u);
    const ExchangeCall &call = calls[0];
    EXPECT_TRUE(call.source && call.destination);
    EXPECT_FALSE(call.table->empty());
    EXPECT_LE(call.table->sends.size() + call.table->receives.size(), 1u);
    for (const ExchangePeer &peer : call.table->sends)
      sent.insert({peer.peer, call.bytesPerUnit});
    for (const ExchangePeer &peer : call.table->receives)
      received.insert({peer.peer, call.bytesPerUnit});
  }
  void gather(std::span<const std::byte> in,
              std::span<std::byte> out) override {
    // Behind its header a message has numbers.
    std::vector<double> mine((in.size() - sizeof(MessageHeader)) /
                             sizeof(double));
    std::memcpy(mine.data(), in.data() + sizeof(MessageHeader),
                mine.size() * sizeof(double));
    for (int rank = 0; rank < all; ++rank) {
      std::byte *to = out.data() + size_t(rank) * in.size();
      std::copy(in.begin(), in.end(), to);
      std::vector<double> its;
      for (double number : mine)
        its.push_back(answer(rank, number));
      std::memcpy(to + sizeof(MessageHeader), its.data(),
                  its.size() * sizeof(double));
    }
  }
  void abort() override {}

  /// Ranks and bytes.
  using Transfers = std::set<std::pair<int, uint64_t>>;
  Transfers sent, received;
  /// The members and the bytes in full, by kind.
  std::map<std::string, std::set<std::pair<std::vector<int>, uint64_t>>> made;

private:
  void called(const char *kind, const Group &group, uint64_t bytes) {
    made[kind].insert({group.ranks(), bytes});
  }
  int own, all;
  std::function<double(int rank, double own)> answer;
  std::vector<std::unique_ptr<Group>> groups;
};

/// Nobody asks to end, and rank r says that a call takes r + 1 seconds.
double secondsOfRank(int rank, double own) { return own == 0 ? 0 : rank + 1; }

bool nobodyEnds() { return false; }

grt_backend startingBackend() {
  grt_backend backend = *test::referenceBackend();
  static int state;
  backend.create_rank = [](int32_t, int32_t) -> void * { return &state; };
  return backend;
}

constexpr double oneCall = 1e-9; ///< seconds: every window has one call

/// Every two hosts are joined once, by their first ranks, in rounds in which
/// a host has one partner; a pair's time is that of who receives.
TEST(Profile, EveryTwoHostsAreAPair) {
  const grt_backend backend = startingBackend();
  const std::vector<int> hostsOfRanks[] = {
      {0, 1, 2}, {0, 0, 1, 2, 1, 3}, {0, 1, 2, 3, 4}};
  for (const std::vector<int> &hosts : hostsOfRanks) {
    std::vector<int> first;
    for (size_t rank = 0; rank < hosts.size(); ++rank)
      if (hosts[rank] == int(first.size()))
        first.push_back(int(rank));
    const size_t count = first.size();
    SCOPED_TRACE(std::to_string(count) + " hosts");
    for (int rank = 0; rank < int(hosts.size()); ++rank) {
      Alone peers(rank, int(hosts.size()), secondsOfRank);
      Probe probe(peers, backend, 1, nobodyEnds);
      Measurement result;
      result.hosts = hosts;
      measurePairs(probe, oneCall, /*quick=*/true, result);
      const std::vector<uint64_t> sizes = {32 << 10, 4 << 20};
      std::set<std::pair<int, int>> found;
      std::set<int> ofRound;
      for (size_t i = 0; i < result.pairs.size(); ++i) {
        const PairTimes &pair = result.pairs[i];
        if (i % (count / 2) == 0)
          ofRound.clear();
        EXPECT_TRUE(ofRound.insert(pair.first).second);
        EXPECT_TRUE(ofRound.insert(pair.second).second);
        EXPECT_LT(pair.first, pair.second);
        EXPECT_TRUE(found.insert({pair.first, pair.second}).second);
        EXPECT_EQ(pair.times.kind, "send");
        EXPECT_TRUE(pair.times.network);
        double seconds = first[size_t(pair.second)] + 1;
        EXPECT_EQ(pair.times.times,
                  (std::vector<std::pair<int64_t, double>>{
                      {sizes[0], seconds}, {sizes[1], seconds}}));
      }
      EXPECT_EQ(found.size(), count * (count - 1) / 2);
      Alone::Transfers sent, received;
      int own = hosts[size_t(rank)];
      if (first[size_t(own)] == rank)
        for (int host = 0; host < int(count); ++host)
          for (uint64_t bytes : sizes)
            if (host != own)
              (host > own ? sent : received)
                  .insert({first[size_t(host)], bytes});
      EXPECT_EQ(peers.sent, sent) << rank;
      EXPECT_EQ(peers.received, received) << rank;
    }
  }
}

/// Groups of every size and stride that matter, each collective in every size.
TEST(Profile, CollectivesAreThoseOfThePlacements) {
  const grt_backend backend = startingBackend();
  Alone peers(2, 4, secondsOfRank);
  Probe probe(peers, backend, 1, nobodyEnds);
  Measurement result;
  result.hosts = {0, 0, 1, 1};
  measureCollectives(probe, oneCall, /*quick=*/true, result);
  using Members = std::vector<int>;
  const std::vector<std::pair<Members, uint64_t>> groups = {
      {{2, 3}, 0}, {{0, 2}, 0}, {{0, 1, 2, 3}, 0}};
  const uint64_t sizes[] = {8 << 10, 512 << 10, 4 << 20};
  std::set<std::pair<Members, uint64_t>> expected;
  for (const auto &[members, none] : groups)
    for (uint64_t bytes : sizes)
      expected.insert({members, bytes});
  EXPECT_EQ(peers.made.size(), 3u);
  for (const char *kind : {"all-reduce", "all-gather", "reduce-scatter"})
    EXPECT_EQ(peers.made[kind], expected) << kind;
  Alone::Transfers sent, received;
  for (uint64_t bytes : sizes) {
    sent.insert({3, bytes});     // the first of {2, 3}
    received.insert({0, bytes}); // the second of {0, 2}
  }
  EXPECT_EQ(peers.sent, sent);
  EXPECT_EQ(peers.received, received);
  std::vector<std::string> seen;
  for (const CollectiveTimes &each : result.collectives) {
    seen.push_back(each.kind + " " + std::to_string(each.ranks) + " " +
                   std::to_string(each.stride) + " " +
                   std::to_string(each.concurrent) +
                   (each.network ? " network" : ""));
    ASSERT_EQ(each.times.size(), 3u);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(each.times[i], (std::pair<int64_t, double>{sizes[i], 2.5}));
  }
  EXPECT_EQ(seen,
            (std::vector<std::string>{
                "all-reduce 2 1 2", "all-gather 2 1 2", "reduce-scatter 2 1 2",
                "send 2 1 2", "all-reduce 2 2 2 network",
                "all-gather 2 2 2 network", "reduce-scatter 2 2 2 network",
                "send 2 2 2 network", "all-reduce 4 1 1 network",
                "all-gather 4 1 1 network", "reduce-scatter 4 1 1 network"}));
}

/// A host's figures are those of its first rank, and all have the mean.
TEST(Profile, HostsShareTheirFigures) {
  // Rank r has r * 10 more than this one.
  Alone peers(0, 3, [](int rank, double own) { return own + 10 * rank; });
  Measurement result;
  result.hosts = {0, 1, 1};
  result.cores = 4;
  result.threadsPerRank = 2;
  result.products = {{64, 1}, {128, 2}};
  result.f32Flops = 3;
  result.kernels = {{"gelu", 4, 100}};
  shareFigures(peers, 2, result);
  ASSERT_EQ(result.ofHosts.size(), 2u);
  for (size_t host = 0; host < 2; ++host) {
    const Measurement &of = result.ofHosts[host];
    double more = 10 * double(host);
    EXPECT_EQ(of.cores, 4 + int(more));
    EXPECT_EQ(of.threadsPerRank, 2 + int(more));
    EXPECT_EQ(of.products,
              (Measurement::Curve{{64, 1 + more}, {128, 2 + more}}));
    EXPECT_EQ(of.f32Flops, 3 + more);
    EXPECT_EQ(of.kernels[0].seconds, 4 + more);
    EXPECT_TRUE(of.ofHosts.empty());
  }
  EXPECT_NEAR(result.products[1].second, 12, 1e-9);
  EXPECT_NEAR(result.f32Flops, 13, 1e-9);
  EXPECT_NEAR(result.kernels[0].seconds, 14, 1e-9);
  EXPECT_EQ(result.cores, 4);
}

TEST(Profile, BlocksAreFilledToTheirEnd) {
  const grt_backend backend = startingBackend();
  for (grt_dtype dtype : {GRT_F64, GRT_F32, GRT_BF16}) {
    Block block(backend, 4096);
    block.fill(dtype);
    const int64_t count = 4096 / int64_t(dtypeBytes(dtype));
    std::set<double> different;
    for (int64_t i = 0; i < count; ++i) {
      double value = 0;
      if (dtype == GRT_F64)
        value = static_cast<const double *>(block.data())[i];
      else if (dtype == GRT_F32)
        value = static_cast<const float *>(block.data())[i];
      else
        value = std::bit_cast<float>(
            uint32_t(static_cast<const uint16_t *>(block.data())[i]) << 16);
      EXPECT_LE(std::abs(value), 0.5);
      different.insert(value);
    }
    EXPECT_GT(different.size(), 400u) << int(dtype);
    EXPECT_EQ(different.count(0), 0u) << int(dtype);
  }
}

TEST(Profile, WhatTheBackendLacksIsTold) {
  grt_backend backend = startingBackend();
  auto failure = [](auto body) -> std::string {
    try {
      body();
      return "";
    } catch (const Error &error) {
      return error.what();
    }
  };
  Alone peers(3, 4, secondsOfRank);
  {
    Probe probe(peers, backend, 1, nobodyEnds);
    EXPECT_EQ(failure([&] { probe.launch(GRT_KERNEL_GELU, GRT_F32, {}, {}); }),
              "backend 'reference' lacks a kernel");
  }
  backend.allocate = [](size_t) -> void * { return nullptr; };
  EXPECT_EQ(failure([&] { Block block(backend, 4096); }),
            "cannot allocate 4096 bytes");
  backend.create_rank = [](int32_t, int32_t) -> void * { return nullptr; };
  EXPECT_EQ(failure([&] { Probe probe(peers, backend, 1, nobodyEnds); }),
            "rank 3: cannot make the backend's state");
}

} // namespace
