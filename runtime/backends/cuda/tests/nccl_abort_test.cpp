//===- nccl_abort_test.cpp - Aborts, deadlines and lateness over NCCL -----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The backend's own nccl_world.cpp and rank.cpp on libraries that block and are
// late as NCCL is (nccl_sequences_test.cpp): what hangs is ended, whatever it
// stands behind, and nobody waits longer than is said.
//
//===----------------------------------------------------------------------===//

#include "on_backend.h"
#include "watched.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <thread>

using namespace grt;
using namespace grt::test;
using namespace std::chrono_literals;
namespace test = grt::test;

namespace {

using Clock = std::chrono::steady_clock;

class NcclAbort : public testing::Test {
protected:
  NcclAbort()
      : backend(*watched().withNccl()), table(*backend.device->collectives),
        identity(table.identity_bytes) {
    watched().fault("", 0, "");
    watched().patience(20000);
    watched().complaints();
    onThread([&] {
      OnRank any(backend); // its thread has the device
      test::run(table.make_identity, static_cast<void *>(identity.data()));
    }).get();
  }
  ~NcclAbort() override {
    EXPECT_EQ(watched().complaints(), "");
    EXPECT_EQ(watched().forgetAlive(), "");
  }

  static std::future<void> onThread(std::function<void()> body) {
    return std::async(std::launch::async, std::move(body));
  }
  static bool ends(const std::future<void> &call) {
    return call.wait_for(10s) == std::future_status::ready;
  }
  void join(OnRank &rank, int number, int ranks = 2) {
    test::run(table.join, rank.state,
              static_cast<const void *>(identity.data()), number, ranks);
  }
  void allReduce(OnRank &rank, void *group, uint32_t stream, void *memory) {
    test::run(table.all_reduce, rank.state, group, stream, memory, uint64_t(64),
              uint32_t(GRT_F32));
  }

  const grt_backend &backend;
  const grt_device_collectives &table;
  std::vector<char> identity;
};

/// One rank stands behind a collective of one communicator that the other never
/// comes to, with another communicator's behind that, as calls and as a graph.
TEST_F(NcclAbort, EndsWhatStandsBehindAnotherCommunicator) {
  for (bool graph : {false, true}) {
    SCOPED_TRACE(graph ? "graph" : "calls");
    std::promise<void> hangs, aborted;
    std::shared_future<void> isAborted(aborted.get_future());
    std::atomic<void *> states[2] = {};
    auto body = [&](int self) {
      OnRank rank(backend, self);
      join(rank, self);
      void *groups[2] = {};
      const int32_t ascending[] = {0, 1}, descending[] = {1, 0};
      test::run(table.make_group, rank.state, ascending, 2, &groups[0]);
      test::run(table.make_group, rank.state, descending, 2, &groups[1]);
      void *memory = backend.allocate(256);
      states[self] = rank.state;
      // Connected one after the other.
      for (void *group : groups) {
        allReduce(rank, group, GRT_STREAM_COMPUTE, memory);
        rank.synchronise();
      }
      if (self == 0) {
        if (graph)
          test::run(rank.device.begin_graph, rank.state);
        for (void *group : {groups[1], groups[0]})
          allReduce(rank, group, GRT_STREAM_COMPUTE, memory);
        if (graph) {
          test::run(rank.device.end_graph, rank.state, 0u);
          test::run(rank.device.launch_graph, rank.state, 0u);
        }
        hangs.set_value();
        rank.synchronise();
      }
      isAborted.wait();
      backend.release(memory, 256);
    };
    std::future<void> first = onThread([&] { body(0); }),
                      second = onThread([&] { body(1); });
    hangs.get_future().get();
    EXPECT_EQ(first.wait_for(100ms), std::future_status::timeout);
    // One of them is enough, and does not wait itself.
    const auto begin = Clock::now();
    table.abort(states[1]);
    table.abort(states[0]);
    EXPECT_LT(Clock::now() - begin, 500ms);
    aborted.set_value();
    EXPECT_TRUE(ends(first));
    EXPECT_TRUE(ends(second));
    first.get();
    second.get();
    onThread([&] {
      OnRank any(backend);
      test::run(table.make_identity, static_cast<void *>(identity.data()));
    }).get();
  }
}

/// Each rank's calls on one group: blocks for all, pieces of which one rank has
/// none in one direction, and the largest. The library is the process's, with
/// an all-to-all of its own or without.
TEST_F(NcclAbort, AllToAllsAndPiecesAreCarriedOut) {
  constexpr int ranks = 3;
  std::vector<std::future<void>> ended;
  for (int self = 0; self < ranks; ++self)
    ended.push_back(onThread([&, self] {
      OnRank rank(backend, self);
      join(rank, self, ranks);
      const int32_t list[] = {2, 0, 1};
      const int index = (self + 1) % ranks;
      void *group = nullptr;
      test::run(table.make_group, rank.state, list, ranks, &group);
      auto *memory = static_cast<char *>(backend.allocate(4096));
      for (bool graph : {false, true}) {
        // Nothing is connected beside a collective.
        auto settle = [&] {
          if (!graph)
            rank.synchronise();
        };
        if (graph)
          test::run(rank.device.begin_graph, rank.state);
        test::run(table.all_to_all, rank.state, group,
                  uint32_t(GRT_STREAM_COMPUTE),
                  static_cast<const void *>(memory),
                  static_cast<void *>(memory + 1024), uint64_t(256));
        settle();
        // Members 0 and 1 send to each other, and 1 to 2.
        std::vector<grt_exchange_piece> sends, receives;
        const int pairs[][2] = {{0, 1}, {1, 0}, {1, 2}};
        for (auto [from, to] : pairs) {
          if (index == from)
            sends.push_back({to, 0, memory + 64 * to, 64});
          if (index == to)
            receives.push_back({from, 0, memory + 2048 + 64 * from, 64});
        }
        test::run(table.exchange_in_group, rank.state, group,
                  uint32_t(GRT_STREAM_COMPUTE),
                  static_cast<const grt_exchange_piece *>(sends.data()),
                  uint64_t(sends.size()),
                  static_cast<const grt_exchange_piece *>(receives.data()),
                  uint64_t(receives.size()));
        settle();
        for (uint32_t dtype : {GRT_F32, GRT_F64, GRT_BF16, GRT_I32, GRT_U8})
          test::run(table.all_reduce_max, rank.state, group,
                    uint32_t(GRT_STREAM_COMPUTE), static_cast<void *>(memory),
                    uint64_t(16), dtype);
        if (graph) {
          test::run(rank.device.end_graph, rank.state, 0u);
          test::run(rank.device.launch_graph, rank.state, 0u);
        }
        rank.synchronise();
      }
      char message[128] = "";
      EXPECT_NE(table.all_reduce_max(rank.state, group, GRT_STREAM_COMPUTE,
                                     memory, 16, 77, message, sizeof(message)),
                0);
      EXPECT_EQ(std::string(message),
                "all_reduce_max: cannot compare elements of dtype 77");
      backend.release(memory, 4096);
    }));
  for (std::future<void> &each : ended)
    each.get();
}

/// Gathers of parameters and sums of gradients have a communicator each: one
/// that waits does not hold up the other.
TEST_F(NcclAbort, WhatIsOfAnotherStreamGoesOn) {
  std::promise<void> summed;
  auto body = [&](int self) {
    OnRank rank(backend, self);
    const uint32_t streams =
        1u << GRT_STREAM_GATHER | 1u << GRT_STREAM_GRADIENT;
    test::run(table.use_streams, rank.state, 0u, 0u, 2u);
    join(rank, self);
    test::run(table.use_streams, rank.state, streams, streams, 2u);
    void *group = nullptr;
    const int32_t all[] = {0, 1};
    test::run(table.make_group, rank.state, all, 2, &group);
    void *memory = backend.allocate(256);
    auto sum = [&](uint32_t stream) { allReduce(rank, group, stream, memory); };
    auto await = [&](uint32_t stream) {
      test::run(rank.device.synchronise, rank.state, stream);
    };
    for (uint32_t stream : {GRT_STREAM_GATHER, GRT_STREAM_GRADIENT}) {
      sum(stream);
      await(stream);
    }
    if (self == 0) {
      // The other one gets to it later.
      sum(GRT_STREAM_GATHER);
      sum(GRT_STREAM_GRADIENT);
      await(GRT_STREAM_GRADIENT);
      summed.set_value();
    } else {
      sum(GRT_STREAM_GRADIENT);
      summed.get_future().wait_for(5s);
      sum(GRT_STREAM_GATHER);
    }
    rank.synchronise();
    backend.release(memory, 256);
  };
  watched().patience(3000);
  std::future<void> first = onThread([&] { body(0); }),
                    second = onThread([&] { body(1); });
  EXPECT_TRUE(ends(first));
  EXPECT_TRUE(ends(second));
  first.get();
  second.get();
  // On purpose they were used in two orders.
  const std::string said = watched().complaints();
  EXPECT_EQ(said,
            "ranks 0 and 1 use their communicators in different orders\n");
}

/// What waits for other ranks to join can be aborted, and has a deadline.
TEST_F(NcclAbort, EndsAJoin) {
  std::promise<void *> joins;
  std::future<void> one = onThread([&] {
    OnRank rank(backend);
    joins.set_value(rank.state);
    EXPECT_ANY_THROW(join(rank, 0));
  });
  void *state = joins.get_future().get();
  EXPECT_EQ(one.wait_for(100ms), std::future_status::timeout);
  table.abort(state);
  EXPECT_TRUE(ends(one));
}

TEST_F(NcclAbort, AJoinHasADeadline) {
  setenv("GRT_NCCL_INIT_SECONDS", "0.2", 1);
  setenv("NCCL_SOCKET_IFNAME", "docker0", 1);
  std::string said;
  std::future<void> one = onThread([&] {
    OnRank rank(backend);
    try {
      join(rank, 0, 4);
    } catch (const std::exception &error) {
      said = error.what();
    }
  });
  EXPECT_TRUE(ends(one));
  unsetenv("NCCL_SOCKET_IFNAME");
  EXPECT_EQ(said,
            "join: NCCL has not connected 4 ranks in 0.2 s: rank 0 waits for "
            "others; NCCL_SOCKET_IFNAME ('docker0') names the interface that "
            "all of them reach, NCCL_DEBUG=INFO shows which is taken, "
            "GRT_NCCL_INIT_SECONDS gives more time");
  setenv("GRT_NCCL_INIT_SECONDS", "soon", 1);
  OnRank rank(backend);
  EXPECT_ANY_THROW(join(rank, 0, 4));
  unsetenv("GRT_NCCL_INIT_SECONDS");
}

/// An abort that does not come back, here for a graph that is left, is left
/// behind: its rank ends within seconds, with what it has.
TEST_F(NcclAbort, ThatDoesNotComeBackIsLeftBehind) {
  const auto begin = Clock::now();
  watched().patience(3000);
  {
    OnRank rank(backend);
    join(rank, 0, 1);
    void *group = nullptr;
    const int32_t alone[] = {0};
    test::run(table.make_group, rank.state, alone, 1, &group);
    void *memory = backend.allocate(256);
    test::run(rank.device.begin_graph, rank.state);
    allReduce(rank, group, GRT_STREAM_COMPUTE, memory);
    test::run(rank.device.end_graph, rank.state, 0u);
    watched().fault("cudaGraphExecDestroy", 1, "skip");
    table.abort(rank.state);
    backend.release(memory, 256);
  }
  EXPECT_LT(Clock::now() - begin, 2900ms);
  watched().fault("", 0, "");
  // It goes on until then, and complains, so that the library has an end.
  std::string said;
  while ((said = watched().complaints()).empty() && Clock::now() - begin < 15s)
    std::this_thread::sleep_for(20ms);
  EXPECT_NE(said.find("waits for them for ever"), std::string::npos) << said;
  watched().forgetAlive();
}

/// Work of the library that is late comes before all that is put there later.
TEST_F(NcclAbort, NothingIsPutOnAStreamBeforeTheLibraryHas) {
  OnRank rank(backend);
  join(rank, 0, 1);
  void *group = nullptr;
  const int32_t alone[] = {0};
  test::run(table.make_group, rank.state, alone, 1, &group);
  {
    DeviceMemory memory(rank, 256);
    for (int times = 0; times < 20; ++times) {
      allReduce(rank, group, GRT_STREAM_COMPUTE, memory.onDevice());
      test::run(rank.device.record, rank.state, uint32_t(GRT_STREAM_COMPUTE),
                5u);
      memory.fetch();
    }
  }
}

} // namespace
