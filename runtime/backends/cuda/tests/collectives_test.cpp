//===- collectives_test.cpp - Ranks of one process on one device ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the table `local_collectives` of a backend must do, rank threads and all
// streams included: `grt-device-collectives-test --backend=PATH`. With
// `--between-processes` the same of `collectives`, for a world of one rank:
// what a machine with one device can say of NCCL.
//
//===----------------------------------------------------------------------===//

#include "on_backend.h"

#include "comm/sum.h"
#include "grt/update_decision.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

using namespace grt;
using namespace grt::test;

namespace {

const grt_backend *backend = nullptr;
const grt_device_collectives *tested = nullptr;
bool betweenProcesses = false;

/// One rank of a world, on its thread.
struct Member {
  OnRank &on;
  const grt_device_collectives &table;
  int rank, size;

  void *group(const std::vector<int32_t> &ranks) {
    void *made = nullptr;
    run(table.make_group, on.state, ranks.data(), int32_t(ranks.size()), &made);
    return made;
  }
};

void onRanks(int size, const std::function<void(Member &)> &body) {
  if (betweenProcesses && size > 1)
    GTEST_SKIP() << "needs a process per rank";
  const grt_device_collectives &table = *tested;
  std::vector<char> identity(table.identity_bytes);
  run(table.make_identity, static_cast<void *>(identity.data()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        OnRank on(*backend, rank);
        run(table.join, on.state, static_cast<const void *>(identity.data()),
            int32_t(rank), int32_t(size));
        Member member{on, table, rank, size};
        body(member);
        on.synchronise();
      } catch (const std::exception &error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
}

std::vector<int32_t> everyone(int size) {
  std::vector<int32_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Of mixed sign and magnitude, so that the order of sums shows.
template <class E> typename E::Type value(int rank, uint64_t i) {
  // SplitMix64.
  uint64_t bits =
      uint64_t(rank) * 0xD1342543DE82EF95 + (i + 1) * 0x9E3779B97F4A7C15;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
  bits ^= bits >> 31;
  double number = double(int64_t(bits)) / double(uint64_t(1) << (48 + i % 16));
  return E::narrow(typename E::Sum(number));
}

/// The sum in the order of the list, rounded once.
template <class E>
typename E::Type orderedSum(const std::vector<int32_t> &ranks, uint64_t i,
                            const typename E::Type *onto = nullptr) {
  auto sum = E::wide(value<E>(ranks[0], i));
  for (size_t m = 1; m < ranks.size(); ++m)
    sum += E::wide(value<E>(ranks[m], i));
  return E::narrow(onto ? sum + E::wide(*onto) : sum);
}

constexpr uint64_t awkward[] = {0, 1, 15, 17, 1025, 4099};

class DeviceCollectives : public testing::TestWithParam<int> {};

template <class E>
void sumsInOrder(Member &me, const std::vector<int32_t> &ranks,
                 grt_dtype dtype) {
  using T = typename E::Type;
  void *group = me.group(ranks);
  auto place = std::find(ranks.begin(), ranks.end(), me.rank) - ranks.begin();
  for (uint64_t count : awkward) {
    uint64_t all = count * ranks.size();
    DeviceMemory data(me.on, all * sizeof(T) + 1),
        out(me.on, count * sizeof(T) + 1);
    T *values = data.onHost<T>();
    auto fill = [&] {
      for (uint64_t i = 0; i < all; ++i)
        values[i] = value<E>(me.rank, i);
      data.send(GRT_STREAM_GRADIENT);
    };
    fill();
    run(me.table.all_reduce, me.on.state, group, uint32_t(GRT_STREAM_GRADIENT),
        data.onDevice(), all, uint32_t(dtype));
    data.fetch(GRT_STREAM_GRADIENT);
    for (uint64_t i = 0; i < all; ++i)
      ASSERT_EQ(values[i], orderedSum<E>(ranks, i)) << count << " at " << i;

    fill();
    std::vector<T> before(count);
    for (bool accumulate : {false, true}) {
      run(me.table.reduce_scatter, me.on.state, group,
          uint32_t(GRT_STREAM_GRADIENT),
          static_cast<const void *>(data.onDevice()), out.onDevice(), count,
          uint32_t(dtype), int32_t(accumulate), data.onDevice());
      out.fetch(GRT_STREAM_GRADIENT);
      for (uint64_t i = 0; i < count; ++i) {
        T sum = orderedSum<E>(ranks, uint64_t(place) * count + i,
                              accumulate ? &before[i] : nullptr);
        ASSERT_EQ(out.onHost<T>()[i], sum) << count << " at " << i;
        before[i] = sum;
      }
    }
  }
}

TEST_P(DeviceCollectives, SumsFollowTheListAndAreRoundedOnce) {
  onRanks(GetParam(), [](Member &me) {
    std::vector<int32_t> ranks = everyone(me.size);
    sumsInOrder<Exact<float>>(me, ranks, GRT_F32);
    sumsInOrder<Exact<double>>(me, ranks, GRT_F64);
    sumsInOrder<Bfloat16>(me, ranks, GRT_BF16);
    std::reverse(ranks.begin(), ranks.end());
    sumsInOrder<Exact<float>>(me, ranks, GRT_F32);
  });
}

TEST_P(DeviceCollectives, GathersConcatenateInPlaceToo) {
  onRanks(GetParam(), [](Member &me) {
    void *group = me.group(everyone(me.size));
    for (bool inPlace : {false, true})
      for (uint64_t count : awkward) {
        DeviceMemory mine(me.on, count * 4 + 1);
        DeviceMemory all(me.on, count * 4 * uint64_t(me.size) + 1);
        char *place = all.onDevice<char>() + uint64_t(me.rank) * count * 4;
        for (uint64_t i = 0; i < count; ++i)
          (inPlace ? all.onHost<int32_t>() + uint64_t(me.rank) * count
                   : mine.onHost<int32_t>())[i] = me.rank * 100000 + int32_t(i);
        mine.send(GRT_STREAM_GATHER);
        all.send(GRT_STREAM_GATHER);
        run(me.table.all_gather, me.on.state, group,
            uint32_t(GRT_STREAM_GATHER),
            static_cast<const void *>(inPlace ? place : mine.onDevice<char>()),
            all.onDevice(), count * 4);
        all.fetch(GRT_STREAM_GATHER);
        for (uint64_t i = 0; i < count * uint64_t(me.size); ++i)
          ASSERT_EQ(all.onHost<int32_t>()[i],
                    int32_t(i / count) * 100000 + int32_t(i % count));
      }
  });
}

template <class E> void largestOfAll(Member &me, grt_dtype dtype) {
  using T = typename E::Type;
  const std::vector<int32_t> ranks = everyone(me.size);
  void *group = me.group(ranks);
  for (uint64_t count : awkward) {
    DeviceMemory data(me.on, count * sizeof(T) + 1);
    // Integers are not of mixed sign by themselves.
    auto of = [&](int rank, uint64_t i) {
      return E::narrow(typename E::Sum((int(i) * 7 + rank * 31) % 101 - 50));
    };
    for (uint64_t i = 0; i < count; ++i)
      data.onHost<T>()[i] = of(me.rank, i);
    data.send(GRT_STREAM_GRADIENT);
    run(me.table.all_reduce_max, me.on.state, group,
        uint32_t(GRT_STREAM_GRADIENT), data.onDevice(), count, uint32_t(dtype));
    data.fetch(GRT_STREAM_GRADIENT);
    for (uint64_t i = 0; i < count; ++i) {
      T largest = of(0, i);
      for (int32_t rank : ranks)
        if (E::wide(largest) < E::wide(of(rank, i)))
          largest = of(rank, i);
      ASSERT_EQ(data.onHost<T>()[i], largest) << count << " at " << i;
    }
  }
}

TEST_P(DeviceCollectives, TheLargestOfEveryType) {
  onRanks(GetParam(), [](Member &me) {
    largestOfAll<Exact<float>>(me, GRT_F32);
    largestOfAll<Exact<double>>(me, GRT_F64);
    largestOfAll<Bfloat16>(me, GRT_BF16);
    largestOfAll<Exact<int32_t>>(me, GRT_I32);
    largestOfAll<Exact<uint8_t>>(me, GRT_U8);
  });
}

TEST_P(DeviceCollectives, AllToAllsMoveBlocks) {
  onRanks(GetParam(), [](Member &me) {
    void *group = me.group(everyone(me.size));
    const auto size = uint64_t(me.size);
    for (uint64_t count : awkward) {
      DeviceMemory in(me.on, count * 4 * size + 1),
          out(me.on, count * 4 * size + 1);
      auto of = [&](uint64_t from, uint64_t to, uint64_t i) {
        return int32_t(from * 1000000 + to * 100000 + i);
      };
      for (uint64_t i = 0; i < count * size; ++i)
        in.onHost<int32_t>()[i] = of(uint64_t(me.rank), i / count, i % count);
      in.send(GRT_STREAM_COMPUTE);
      run(me.table.all_to_all, me.on.state, group, uint32_t(GRT_STREAM_COMPUTE),
          static_cast<const void *>(in.onDevice()), out.onDevice(), count * 4);
      // The sender may write its blocks again at once.
      run(me.on.device.fill, me.on.state, uint32_t(GRT_STREAM_COMPUTE),
          in.onDevice(), int32_t(255), count * 4 * size);
      out.fetch(GRT_STREAM_COMPUTE);
      for (uint64_t i = 0; i < count * size; ++i)
        ASSERT_EQ(out.onHost<int32_t>()[i],
                  of(i / count, uint64_t(me.rank), i % count));
    }
  });
}

/// Each member has a block for those whose index is odd, of a size of its own.
TEST_P(DeviceCollectives, MembersOfAGroupExchangePieces) {
  onRanks(GetParam(), [](Member &me) {
    std::vector<int32_t> ranks = everyone(me.size);
    std::reverse(ranks.begin(), ranks.end());
    void *group = me.group(ranks);
    const int index = me.size - 1 - me.rank;
    auto bytesOf = [](int from, int to) {
      return to % 2 && from != to ? uint64_t(100 + from * 10 + to) : 0;
    };
    DeviceMemory in(me.on, 8000), out(me.on, 8000);
    std::vector<grt_exchange_piece> sends, receives;
    uint64_t sent = 0, received = 0;
    for (int member = 0; member < me.size; ++member) {
      if (uint64_t bytes = bytesOf(index, member)) {
        sends.push_back({member, 0, in.onDevice<char>() + sent, bytes});
        std::memset(in.onHost<char>() + sent, index * 16 + member, bytes);
        sent += bytes;
      }
      if (uint64_t bytes = bytesOf(member, index)) {
        receives.push_back({member, 0, out.onDevice<char>() + received, bytes});
        received += bytes;
      }
    }
    in.send(GRT_STREAM_TRANSFER);
    run(me.table.exchange_in_group, me.on.state, group,
        uint32_t(GRT_STREAM_TRANSFER),
        static_cast<const grt_exchange_piece *>(sends.data()),
        uint64_t(sends.size()),
        static_cast<const grt_exchange_piece *>(receives.data()),
        uint64_t(receives.size()));
    out.fetch(GRT_STREAM_TRANSFER);
    uint64_t at = 0;
    for (int member = 0; member < me.size; ++member)
      for (uint64_t i = 0; i < bytesOf(member, index); ++i)
        ASSERT_EQ(out.onHost<unsigned char>()[at++], member * 16 + index);
  });
}

TEST_P(DeviceCollectives, GroupsBesideEachOtherOnStreamsOfTheirOwn) {
  if (GetParam() % 2)
    GTEST_SKIP() << "needs an even number of ranks";
  onRanks(GetParam(), [](Member &me) {
    std::vector<int32_t> row = {me.rank / 2 * 2, me.rank / 2 * 2 + 1}, column;
    for (int rank = me.rank % 2; rank < me.size; rank += 2)
      column.push_back(rank);
    void *rows = me.group(row), *columns = me.group(column);
    DeviceMemory a(me.on, 8 * 65), b(me.on, 8 * 65);
    for (int round = 0; round < 20; ++round) {
      for (uint64_t i = 0; i < 65; ++i)
        a.onHost<double>()[i] = b.onHost<double>()[i] =
            value<Exact<double>>(me.rank, i);
      a.send(GRT_STREAM_COMPUTE);
      b.send(GRT_STREAM_GRADIENT);
      run(me.table.all_reduce, me.on.state, rows, uint32_t(GRT_STREAM_COMPUTE),
          a.onDevice(), uint64_t(65), uint32_t(GRT_F64));
      run(me.table.all_reduce, me.on.state, columns,
          uint32_t(GRT_STREAM_GRADIENT), b.onDevice(), uint64_t(65),
          uint32_t(GRT_F64));
      a.fetch(GRT_STREAM_COMPUTE);
      b.fetch(GRT_STREAM_GRADIENT);
      for (uint64_t i = 0; i < 65; ++i) {
        ASSERT_EQ(a.onHost<double>()[i], orderedSum<Exact<double>>(row, i));
        ASSERT_EQ(b.onHost<double>()[i], orderedSum<Exact<double>>(column, i));
      }
    }
  });
}

TEST_P(DeviceCollectives, ExchangesMovePiecesInTheirOrder) {
  // Every rank holds 5 pieces; a permutation sends them to new places.
  constexpr int perRank = 5, rounds = 20;
  constexpr uint64_t bytes = 1000;
  int total = GetParam() * perRank;
  std::mt19937 random(42);
  std::vector<std::vector<int>> places(rounds, std::vector<int>(size_t(total)));
  for (std::vector<int> &permutation : places) {
    std::iota(permutation.begin(), permutation.end(), 0);
    std::shuffle(permutation.begin(), permutation.end(), random);
  }
  onRanks(GetParam(), [&](Member &me) {
    DeviceMemory from(me.on, perRank * bytes), to(me.on, perRank * bytes);
    for (const std::vector<int> &permutation : places) {
      std::vector<grt_exchange_piece> sends, receives;
      for (int unit = 0; unit < total; ++unit) {
        int place = permutation[size_t(unit)];
        if (unit / perRank == me.rank)
          sends.push_back(
              {place / perRank, 0,
               from.onDevice<char>() + uint64_t(unit % perRank) * bytes,
               bytes});
        if (place / perRank == me.rank)
          receives.push_back(
              {unit / perRank, 0,
               to.onDevice<char>() + uint64_t(place % perRank) * bytes, bytes});
      }
      for (int unit = 0; unit < perRank; ++unit)
        std::memset(from.onHost<char>() + uint64_t(unit) * bytes,
                    me.rank * perRank + unit, bytes);
      from.send(GRT_STREAM_TRANSFER);
      run(me.table.exchange, me.on.state, uint32_t(GRT_STREAM_TRANSFER),
          static_cast<const grt_exchange_piece *>(sends.data()),
          uint64_t(sends.size()),
          static_cast<const grt_exchange_piece *>(receives.data()),
          uint64_t(receives.size()));
      // The sender may write its pieces again at once.
      run(me.on.device.fill, me.on.state, uint32_t(GRT_STREAM_TRANSFER),
          from.onDevice(), int32_t(255), uint64_t(perRank * bytes));
      to.fetch(GRT_STREAM_TRANSFER);
      for (int unit = 0; unit < total; ++unit)
        if (int place = permutation[size_t(unit)]; place / perRank == me.rank) {
          for (uint64_t b = 0; b < bytes; b += 99)
            ASSERT_EQ(
                to.onHost<unsigned char>()[uint64_t(place % perRank) * bytes +
                                           b],
                unit);
        }
    }
  });
}

TEST(DeviceCollectives, PiecesThatDoNotMatchAreRefused) {
  if (betweenProcesses)
    GTEST_SKIP() << "the library checks what it is given";
  const grt_device_collectives &table = *tested;
  OnRank on(*backend);
  std::vector<char> identity(table.identity_bytes);
  run(table.make_identity, static_cast<void *>(identity.data()));
  run(table.join, on.state, static_cast<const void *>(identity.data()),
      int32_t(0), int32_t(1));
  DeviceMemory memory(on, 64);
  grt_exchange_piece send = {0, 0, memory.onDevice(), 16};
  grt_exchange_piece receive = {0, 0, memory.onDevice<char>() + 32, 8};
  char message[256] = "";
  EXPECT_NE(table.exchange(on.state, GRT_STREAM_TRANSFER, &send, 1, &receive, 1,
                           message, sizeof(message)),
            0);
  EXPECT_NE(
      std::string(message).find("expects 8 bytes of rank 0, which sends 16"),
      std::string::npos)
      << message;
}

TEST_P(DeviceCollectives, AbortWakesWhoWaits) {
  if (GetParam() < 2)
    GTEST_SKIP() << "needs two ranks";
  onRanks(GetParam(), [](Member &me) {
    void *group = me.group(everyone(me.size));
    DeviceMemory data(me.on, 64);
    if (me.rank == me.size - 1) {
      // Gives the others time to fall asleep; the test is right without it.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      me.table.abort(me.on.state);
      return;
    }
    char message[256] = "";
    EXPECT_NE(me.table.all_reduce(me.on.state, group, GRT_STREAM_COMPUTE,
                                  data.onDevice(), 1, GRT_F32, message,
                                  sizeof(message)),
              0);
    EXPECT_NE(std::string(message).find("aborted"), std::string::npos);
  });
}

//===----------------------------------------------------------------------===//
// What makes a step one graph
//===----------------------------------------------------------------------===//

/// The device decides with the bits of the host: norms and losses that are not
/// finite, that clip, that skip, of several ranks.
TEST(DeviceDecision, IsTheHosts) {
  OnRank on(*backend);
  constexpr int most = 5;
  DeviceMemory block(on, sizeof(grt_step));
  DeviceMemory results(on, most * sizeof(RankResults));
  const double infinite = std::numeric_limits<double>::infinity();
  std::mt19937_64 random(3);
  auto real = [&] { return double(random() >> 11) * 0x1p-50; };
  std::set<std::pair<bool, bool>> seen;
  for (int i = 0; i < 60; ++i) {
    const uint64_t ranks = 1 + uint64_t(i) % most;
    const bool clips = i % 2;
    grt_step &step = *block.onHost<grt_step>();
    step = {};
    step.clip_norm = real();
    step.skip_norm = i % 3 ? 0 : 2;
    step.clip_factor = 77;
    step.update_left_out = 9;
    auto *of = results.onHost<RankResults>();
    for (uint64_t r = 0; r < ranks; ++r)
      of[r] = {real(), real()};
    if (i % 7 == 1)
      of[ranks - 1].loss = std::nan("");
    if (i % 7 == 3)
      of[0].normSquared = infinite;
    if (i % 7 == 5)
      of[0].loss = -infinite;
    results.send();
    block.send();
    run(on.device.decide_update, on.state, results.onDevice<const double>(),
        ranks, int32_t(clips), block.onDevice<grt_step>());
    const UpdateDecision expected =
        decideUpdate(of, ranks, clips, step.clip_norm, step.skip_norm);
    block.fetch();
    EXPECT_EQ(step.update_left_out, uint32_t(expected.leftOut));
    EXPECT_EQ(step.clip_factor, expected.clipFactor);
    seen.insert({expected.leftOut, expected.clipFactor < 1});
  }
  EXPECT_EQ(seen.size(), 4u);
}

TEST(DeviceDecision, LossesAreAddedInTheirOrder) {
  OnRank on(*backend);
  constexpr uint64_t count = 37;
  DeviceMemory block(on, sizeof(grt_step)), losses(on, count * sizeof(double));
  std::mt19937_64 random(4);
  grt_step &step = *block.onHost<grt_step>();
  step = {};
  step.local_norm_squared = 5;
  double sum = 0;
  for (uint64_t m = 0; m < count; ++m)
    sum += losses.onHost<double>()[m] = double(random()) * 0x1p-40;
  losses.send();
  block.send();
  run(on.device.add_results, on.state, losses.onDevice<const double>(), count,
      block.onDevice<grt_step>());
  block.fetch();
  EXPECT_EQ(step.local_loss, sum);
  EXPECT_EQ(step.local_norm_squared, 5);
}

/// The host goes on with what stands before the record, in every start of a
/// graph.
TEST(DeviceDecision, TheHostWaitsInTheMiddleOfAGraph) {
  OnRank on(*backend);
  if (!on.device.begin_graph)
    GTEST_SKIP() << "the backend has no graphs";
  constexpr uint32_t event = 7;
  constexpr uint64_t bytes = 1 << 20;
  DeviceMemory first(on, bytes), second(on, bytes);
  auto fillBoth = [&] {
    run(on.device.copy, on.state, uint32_t(GRT_STREAM_COMPUTE),
        first.onDevice<void>(), static_cast<const void *>(second.onDevice()),
        bytes);
    run(on.device.copy, on.state, uint32_t(GRT_STREAM_COMPUTE),
        first.onHost<void>(), static_cast<const void *>(first.onDevice()),
        bytes);
    run(on.device.record_for_host, on.state, uint32_t(GRT_STREAM_COMPUTE),
        event);
    run(on.device.fill, on.state, uint32_t(GRT_STREAM_COMPUTE),
        second.onDevice(), 0, bytes);
  };
  run(on.device.begin_graph, on.state);
  fillBoth();
  run(on.device.end_graph, on.state, 0u);
  for (char value : {'a', 'b', 'c'}) {
    std::memset(second.onHost<char>(), value, bytes);
    second.send();
    run(on.device.launch_graph, on.state, 0u);
    run(on.device.await, on.state, event);
    EXPECT_EQ(first.onHost<char>()[bytes - 1], value);
  }
  // Outside of graphs too.
  std::memset(second.onHost<char>(), 'd', bytes);
  second.send();
  fillBoth();
  run(on.device.await, on.state, event);
  EXPECT_EQ(first.onHost<char>()[0], 'd');
  on.synchronise();
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceCollectives,
                         testing::Values(1, 2, 3, 4, 8));

} // namespace

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string option = "--backend=";
  betweenProcesses = argc == 3 && std::string(argv[2]) == "--between-processes";
  if (argc != 2 + betweenProcesses ||
      std::string(argv[1]).rfind(option, 0) != 0) {
    std::fprintf(stderr, "expected --backend=PATH [--between-processes]\n");
    return 2;
  }
  try {
    backend = &loadBackend(argv[1] + option.size());
    tested = betweenProcesses ? backend->device->collectives
                              : backend->device->local_collectives;
    if (!tested)
      throw std::runtime_error("it has no such collectives");
  } catch (const std::exception &error) {
    std::fprintf(stderr, "cannot load the backend: %s\n", error.what());
    return 2;
  }
  return RUN_ALL_TESTS();
}
