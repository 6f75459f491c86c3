//===- comm_test.cpp - What every communicator must do --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The suite knows communicators only by their interface. Under mpirun it runs
// on worlds whose ranks are spread over the processes, on its own on threads,
// over their memory and over that of a model of a device; every process runs
// the same tests in the same order.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "comm/threads.h"
#include "core/layout.h"
#include "spread_world.h"
#include "staged.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

using namespace grt;
using namespace grt::test;

namespace {

using Body = std::function<void(Communicator &)>;

/// Runs `body` on every rank of a fresh world of a kind of communicator.
struct Factory {
  const char *name;
  void (*run)(int size, const Body &body);
};

void runLocal(World &world, const Body &body) {
  std::vector<std::thread> threads;
  for (int local = 0; local < world.localCount(); ++local)
    threads.emplace_back([&, local] {
      std::unique_ptr<Communicator> communicator =
          world.join(world.firstLocal() + local);
      body(*communicator);
    });
  for (std::thread &thread : threads)
    thread.join();
}

void runThreads(int size, const Body &body) {
  ThreadsWorld world(size);
  runLocal(world, body);
}

void runDevice(int size, const Body &body) {
  ThreadsWorld world(size);
  std::atomic<bool> failed = false;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      StagedCommunicator communicator(world.join(rank), failed);
      body(communicator);
    });
  for (std::thread &thread : threads)
    thread.join();
}

Transport *transport = nullptr;

void runProcesses(int size, const Body &body) {
  SpreadWorld world(*transport, size);
  runLocal(*world.shared(), body);
}

/// Reproducible, of mixed sign and magnitude, so that the order of sums shows.
template <typename T> std::vector<T> values(uint64_t count, int seed) {
  std::vector<T> result(count);
  uint64_t state = uint64_t(seed) * 0x9e3779b97f4a7c15 + 1;
  for (T &value : result) {
    // SplitMix64.
    uint64_t bits = state += 0x9e3779b97f4a7c15;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    bits ^= bits >> 31;
    if constexpr (std::is_integral_v<T>)
      value = T(bits);
    else
      value =
          T(double(int64_t(bits)) / double(uint64_t(1) << (48 + bits % 16)));
  }
  return result;
}

template <typename T> constexpr grt_dtype typeOf() {
  return sizeof(T) == 8 ? GRT_F64 : GRT_F32;
}

std::vector<int> everyone(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// The sum in the order of the group's list.
template <typename T>
std::vector<T> orderedSum(const std::vector<int> &ranks, uint64_t count) {
  std::vector<T> sum = values<T>(count, ranks[0]);
  for (size_t i = 1; i < ranks.size(); ++i) {
    std::vector<T> next = values<T>(count, ranks[i]);
    for (uint64_t e = 0; e < count; ++e)
      sum[e] += next[e];
  }
  return sum;
}

constexpr uint64_t awkwardSizes[] = {0,   1,    2,    15,   16,   17,
                                     255, 1023, 1024, 1025, 4097, 100003};

class Comm : public ::testing::TestWithParam<std::tuple<Factory, int>> {
protected:
  int size() const { return std::get<1>(GetParam()); }
  void run(const Body &body) { std::get<0>(GetParam()).run(size(), body); }
};

/// Tests of block exchanges, on groups of every size up to 8.
class CommBlocks : public Comm {};

template <typename T> void testAllReduce(Communicator &comm) {
  std::vector<int> ranks = everyone(comm.size());
  Group &group = comm.group(ranks);
  for (uint64_t count : awkwardSizes) {
    std::vector<T> data = values<T>(count, comm.rank());
    comm.allReduce(group, data.data(), count, typeOf<T>());
    EXPECT_EQ(data, orderedSum<T>(ranks, count)) << count;
  }
}

TEST_P(Comm, AllReduceAddsInOrderOnEveryMember) {
  run([&](Communicator &comm) {
    testAllReduce<float>(comm);
    testAllReduce<double>(comm);
  });
}

TEST_P(Comm, AllReduceFollowsTheOrderOfTheList) {
  run([&](Communicator &comm) {
    std::vector<int> ranks = everyone(comm.size());
    std::reverse(ranks.begin(), ranks.end());
    Group &group = comm.group(ranks);
    std::vector<float> data = values<float>(999, comm.rank());
    comm.allReduce(group, data.data(), data.size(), GRT_F32);
    EXPECT_EQ(data, orderedSum<float>(ranks, 999));
  });
}

TEST_P(Comm, AllGatherConcatenates) {
  run([&](Communicator &comm) {
    Group &group = comm.group(everyone(comm.size()));
    for (uint64_t count : awkwardSizes) {
      std::vector<float> mine = values<float>(count, comm.rank());
      std::vector<float> all(count * uint64_t(comm.size()), -1.0f);
      comm.allGather(group, mine.data(), all.data(), count * sizeof(float));
      for (int rank = 0; rank < comm.size(); ++rank) {
        std::vector<float> theirs = values<float>(count, rank);
        EXPECT_TRUE(std::equal(theirs.begin(), theirs.end(),
                               all.begin() + long(uint64_t(rank) * count)));
      }
    }
  });
}

// Large enough to go past the caches, at places that are no whole lines.
TEST_P(Comm, AllGatherOfManyBytesAtAnyPlace) {
  run([&](Communicator &comm) {
    Group &group = comm.group(everyone(comm.size()));
    uint64_t size = uint64_t(comm.size());
    uint64_t count = (uint64_t(2) << 20) / size + 33;
    auto bytesOf = [&](uint64_t rank) {
      std::vector<uint8_t> bytes(count);
      for (uint64_t i = 0; i < count; ++i)
        bytes[i] = uint8_t(i * 7 + i / 256 + rank * 13);
      return bytes;
    };
    for (uint64_t shift : {0, 1, 63}) {
      std::vector<uint8_t> mine = bytesOf(uint64_t(comm.rank()));
      mine.insert(mine.begin(), shift, 0);
      std::vector<uint8_t> all(shift + size * count + 1, 0xee);
      comm.allGather(group, mine.data() + shift, all.data() + shift, count);
      for (uint64_t rank = 0; rank < size; ++rank)
        EXPECT_EQ(std::memcmp(bytesOf(rank).data(),
                              all.data() + shift + rank * count, count),
                  0)
            << "part of rank " << rank << ", from " << shift;
      EXPECT_EQ(all.back(), 0xee) << "the byte behind";
      EXPECT_EQ(std::count(all.begin(), all.begin() + long(shift), 0xee),
                long(shift))
          << "the bytes before";
    }
  });
}

TEST_P(Comm, AllGatherInPlace) {
  run([&](Communicator &comm) {
    Group &group = comm.group(everyone(comm.size()));
    std::vector<double> all(size_t(comm.size()) * 33, -1.0);
    double *mine = all.data() + comm.rank() * 33;
    std::fill_n(mine, 33, double(comm.rank()));
    comm.allGather(group, mine, all.data(), 33 * sizeof(double));
    for (size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(all[i], double(i / 33));
  });
}

template <typename T> void testReduceScatter(Communicator &comm) {
  std::vector<int> ranks = everyone(comm.size());
  Group &group = comm.group(ranks);
  for (uint64_t count : awkwardSizes) {
    uint64_t total = count * uint64_t(comm.size());
    std::vector<T> in = values<T>(total, comm.rank());
    std::vector<T> sum = orderedSum<T>(ranks, total);
    std::vector<T> slice(sum.begin() + long(uint64_t(comm.rank()) * count),
                         sum.begin() + long(uint64_t(comm.rank() + 1) * count));
    std::vector<T> out(count, T(std::nan("")));
    comm.reduceScatter(group, in.data(), out.data(), count, typeOf<T>(), false);
    EXPECT_EQ(out, slice) << count;
    comm.reduceScatter(group, in.data(), out.data(), count, typeOf<T>(), true);
    for (T &value : slice)
      value += value;
    EXPECT_EQ(out, slice) << count;
  }
}

TEST_P(Comm, ReduceScatterOverwritesAndAccumulates) {
  run([&](Communicator &comm) {
    testReduceScatter<float>(comm);
    testReduceScatter<double>(comm);
  });
}

/// Rounds to the nearest, ties to even.
uint16_t toBfloat16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
float fromBfloat16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

TEST_P(Comm, Bfloat16IsSummedInSinglePrecisionAndRoundedOnce) {
  run([&](Communicator &comm) {
    std::vector<int> ranks = everyone(comm.size());
    Group &group = comm.group(ranks);
    uint64_t members = ranks.size(), part = 1111, count = part * members;
    auto input = [&](int rank) {
      std::vector<uint16_t> result;
      for (float value : values<float>(count, rank))
        result.push_back(toBfloat16(value));
      return result;
    };
    std::vector<float> sums(count, 0.0f);
    for (int rank : ranks) {
      std::vector<uint16_t> from = input(rank);
      for (uint64_t i = 0; i < count; ++i)
        sums[i] = rank == ranks[0] ? fromBfloat16(from[i])
                                   : sums[i] + fromBfloat16(from[i]);
    }
    std::vector<uint16_t> expected;
    for (float sum : sums)
      expected.push_back(toBfloat16(sum));
    std::vector<uint16_t> data = input(comm.rank());
    comm.allReduce(group, data.data(), count, GRT_BF16);
    EXPECT_EQ(data, expected);

    data = input(comm.rank());
    std::vector<uint16_t> share(part, toBfloat16(3.0f));
    comm.reduceScatter(group, data.data(), share.data(), part, GRT_BF16, true);
    for (uint64_t i = 0; i < part; ++i)
      EXPECT_EQ(share[i],
                toBfloat16(sums[uint64_t(comm.rank()) * part + i] + 3.0f));
  });
}

template <typename T>
void testAllReduceMax(Communicator &comm, grt_dtype dtype) {
  std::vector<int> ranks = everyone(comm.size());
  Group &group = comm.group(ranks);
  for (uint64_t count : {0, 1, 17, 1025, 30011}) {
    std::vector<T> expected = values<T>(count, ranks[0]);
    for (int rank : ranks) {
      std::vector<T> theirs = values<T>(count, rank);
      for (uint64_t i = 0; i < count; ++i)
        expected[i] = std::max(expected[i], theirs[i]);
    }
    std::vector<T> data = values<T>(count, comm.rank());
    comm.allReduceMax(group, data.data(), count, dtype);
    EXPECT_EQ(data, expected) << count << " of type " << dtype;
  }
}

TEST_P(CommBlocks, AllReduceMaxTakesTheLargestOfEveryType) {
  run([&](Communicator &comm) {
    testAllReduceMax<float>(comm, GRT_F32);
    testAllReduceMax<double>(comm, GRT_F64);
    testAllReduceMax<int32_t>(comm, GRT_I32);
    testAllReduceMax<uint8_t>(comm, GRT_U8);
    // Negative values of bf16 are not in the order of their bits.
    Group &group = comm.group(everyone(comm.size()));
    std::vector<uint16_t> data(1111), expected(1111);
    for (size_t i = 0; i < data.size(); ++i) {
      auto value = [&](int rank) {
        return float((int(i) * 7 + rank * 31) % 101 - 50) / 4;
      };
      float largest = value(0);
      for (int rank = 1; rank < comm.size(); ++rank)
        largest = std::max(largest, value(rank));
      data[i] = toBfloat16(value(comm.rank()));
      expected[i] = toBfloat16(largest);
    }
    comm.allReduceMax(group, data.data(), data.size(), GRT_BF16);
    EXPECT_EQ(data, expected);
  });
}

/// The block of so many bytes that a rank has for another one.
std::vector<uint8_t> blockOf(int from, int to, uint64_t bytes) {
  std::vector<uint8_t> block(bytes);
  for (uint64_t i = 0; i < bytes; ++i)
    block[i] = uint8_t(i * 7 + i / 256 + uint64_t(from) * 13 +
                       uint64_t(to) * 101 + bytes);
  return block;
}

void append(std::vector<uint8_t> &to, const std::vector<uint8_t> &block) {
  to.insert(to.end(), block.begin(), block.end());
}

// The byte behind the output stays as it is.
constexpr uint8_t untouched = 0xee;

TEST_P(CommBlocks, AllToAllGivesEveryMemberItsBlock) {
  run([&](Communicator &comm) {
    std::vector<int> ranks = everyone(comm.size());
    for (bool reversed : {false, true}) {
      if (reversed)
        std::reverse(ranks.begin(), ranks.end());
      Group &group = comm.group(ranks);
      for (uint64_t bytes : awkwardSizes) {
        std::vector<uint8_t> in, expected;
        for (int rank : ranks) {
          append(in, blockOf(comm.rank(), rank, bytes));
          append(expected, blockOf(rank, comm.rank(), bytes));
        }
        std::vector<uint8_t> out(expected.size() + 1, untouched);
        comm.allToAll(group, in.data(), out.data(), bytes);
        EXPECT_EQ(out.back(), untouched);
        out.pop_back();
        EXPECT_EQ(out, expected) << bytes << " bytes";
      }
    }
  });
}

TEST_P(CommBlocks, AllToAllTwiceIsWhereItBegan) {
  run([&](Communicator &comm) {
    Group &group = comm.group(everyone(comm.size()));
    const uint64_t count = 1025;
    std::vector<double> first =
        values<double>(count * uint64_t(comm.size()), comm.rank());
    std::vector<double> there(first.size()), back(first.size());
    comm.allToAll(group, first.data(), there.data(), count * sizeof(double));
    comm.allToAll(group, there.data(), back.data(), count * sizeof(double));
    EXPECT_EQ(back, first);
  });
}

/// Units from one member to another: none for many pairs, of some members to
/// nobody, large ones of a pair.
uint64_t countOf(int from, int to, int round) {
  const int kind = (from * 5 + to * 3 + round) % 7;
  if (round == 3 || (round == 2 && from == 0))
    return 0;
  return kind < 3 ? 0 : kind == 3 ? 1 : kind == 6 ? 4097 : uint64_t(kind) * 13;
}

TEST_P(CommBlocks, AllToAllWithCountsOfEveryPair) {
  run([&](Communicator &comm) {
    std::vector<int> ranks = everyone(comm.size());
    for (int round = 0; round < 5; ++round) {
      if (round == 4)
        std::reverse(ranks.begin(), ranks.end());
      Group &group = comm.group(ranks);
      for (uint64_t unit : {1, 3, 64}) {
        std::vector<uint8_t> in, expected;
        std::vector<uint64_t> sends, receives;
        for (int rank : ranks) {
          sends.push_back(countOf(comm.rank(), rank, round));
          receives.push_back(countOf(rank, comm.rank(), round));
          append(in, blockOf(comm.rank(), rank, sends.back() * unit));
          append(expected, blockOf(rank, comm.rank(), receives.back() * unit));
        }
        std::vector<uint8_t> out(expected.size() + 1, untouched);
        BlockCounts counts{sends, receives, unit, in.size() / unit,
                           expected.size() / unit};
        comm.allToAll(group, in.data(), out.data(), counts);
        EXPECT_EQ(out.back(), untouched);
        out.pop_back();
        EXPECT_EQ(out, expected) << "round " << round << ", unit " << unit;
      }
    }
  });
}

TEST_P(CommBlocks, ShiftGoesAroundTheGroup) {
  run([&](Communicator &comm) {
    const int size = comm.size();
    std::vector<int> ranks = everyone(size);
    std::reverse(ranks.begin(), ranks.end());
    Group &group = comm.group(ranks);
    const int index = size - 1 - comm.rank();
    for (int64_t distance :
         {int64_t(1), int64_t(-1), int64_t(0), int64_t(2), int64_t(size),
          int64_t(-5 * size - 3), INT64_MIN, INT64_MAX})
      for (uint64_t bytes :
           {uint64_t(0), uint64_t(1), uint64_t(1023), uint64_t(100003)}) {
        const auto back = int(distance % size);
        const int from = ranks[size_t((index - back + 2 * size) % size)];
        std::vector<uint8_t> in = blockOf(comm.rank(), 0, bytes);
        std::vector<uint8_t> out(bytes + 1, untouched);
        comm.shift(group, in.data(), out.data(), bytes, distance);
        EXPECT_EQ(out.back(), untouched);
        out.pop_back();
        EXPECT_EQ(out, blockOf(from, 0, bytes))
            << "distance " << distance << ", " << bytes << " bytes";
      }
  });
}

// A ring: what everybody has goes by everybody, while others do the same.
TEST_P(CommBlocks, ShiftsOfSeveralGroupsAtATime) {
  if (size() % 2)
    GTEST_SKIP() << "needs an even number of ranks";
  run([&](Communicator &comm) {
    std::vector<int> column;
    for (int rank = comm.rank() % 2; rank < comm.size(); rank += 2)
      column.push_back(rank);
    Group &group = comm.group(column);
    const int members = int(column.size()), index = comm.rank() / 2;
    std::vector<uint8_t> held = blockOf(comm.rank(), 1, 333), next(333);
    for (int step = 1; step <= members; ++step) {
      comm.shift(group, held.data(), next.data(), next.size(), 1);
      std::swap(held, next);
      EXPECT_EQ(
          held,
          blockOf(column[size_t((index - step + members) % members)], 1, 333));
    }
  });
}

/// Returns the text of the call's error; every rank sees it by itself.
template <typename Call> std::string errorOf(Call call) {
  try {
    call();
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

TEST_P(CommBlocks, WrongArgumentsAreRefused) {
  run([&](Communicator &comm) {
    Group &group = comm.group(everyone(comm.size()));
    const auto members = uint64_t(comm.size());
    std::vector<uint8_t> memory(64 * members + 64);
    uint8_t *in = memory.data(), *out = in + 32 * members;
    auto says = [](const std::string &found, const std::string &expected) {
      EXPECT_NE(found.find(expected), std::string::npos)
          << "expected: " << expected << "\nfound: " << found;
    };
    says(errorOf([&] { comm.allReduce(group, in, 4, GRT_I32); }),
         "expected elements of f32, f64 or bf16 to sum, found i32");
    says(errorOf([&] { comm.allReduceMax(group, in, 4, grt_dtype(7)); }),
         "expected elements of a known type");
    says(errorOf([&] { comm.allToAll(group, in, in + 1, 32); }),
         "all-to-all: expected an input and an output that do not overlap, "
         "found " +
             str(32 * members) + " and " + str(32 * members) +
             " bytes that begin 1 bytes apart");
    says(errorOf([&] { comm.shift(group, in + 4, in, 32, 1); }),
         "shift: expected an input and an output that do not overlap, found 32 "
         "and 32 bytes that begin 4 bytes apart");
    if (members > 1)
      says(errorOf([&] { comm.allToAll(group, in, out, UINT64_MAX / 2 + 1); }),
           "all-to-all: expected bytes below 2^64, found " + str(members) +
               " blocks of ");
    std::vector<uint64_t> ones(members, 1), more(members + 1, 1);
    auto counts = [&](const std::vector<uint64_t> &sends,
                      const std::vector<uint64_t> &receives, uint64_t mostSent,
                      uint64_t mostReceived) {
      return errorOf([&] {
        comm.allToAll(group, in, out,
                      BlockCounts{sends, receives, 8, mostSent, mostReceived});
      });
    };
    says(counts(more, ones, 99, 99),
         "expected " + str(members) +
             " counts of units sent, one for each member, found " +
             str(members + 1));
    says(counts(ones, {}, 99, 99),
         "expected " + str(members) +
             " counts of units received, one for each member, found 0");
    says(counts(ones, ones, 99, members - 1),
         "expected at most " + str(members - 1) +
             " units received, found 1 behind " + str(members - 1));
    std::vector<uint64_t> wrong = ones;
    wrong[size_t(comm.rank())] = 3;
    says(counts(wrong, ones, 99, 99),
         "expected as many units received as sent where a member is its own, "
         "found 1 and 3");
    wrong[size_t(comm.rank())] = UINT64_MAX / 4;
    says(counts(wrong, wrong, UINT64_MAX, UINT64_MAX),
         "all-to-all: expected bytes below 2^64, found ");
    // Refused calls have left nothing behind.
    EXPECT_EQ(counts(ones, ones, members, members), "no error");
  });
}

// Members that share memory see it; others' transports, or their watchdog, do.
TEST_P(CommBlocks, CountsThatDifferAreNamed) {
  if (std::get<0>(GetParam()).run != runThreads || size() < 2)
    GTEST_SKIP() << "needs two ranks that are threads";
  run([&](Communicator &comm) {
    Group &group = comm.group(everyone(comm.size()));
    const auto members = uint64_t(comm.size());
    std::vector<uint64_t> sends(members, 1), receives(members, 1);
    // Rank 0 expects more of rank 1.
    if (comm.rank() == 0)
      receives[1] = 5;
    std::vector<uint8_t> in(64 * members), out(64 * members);
    const std::string found = errorOf([&] {
      comm.allToAll(group, in.data(), out.data(),
                    BlockCounts{sends, receives, 8, 99, 99});
    });
    EXPECT_EQ(found, comm.rank() == 0 ? "all-to-all: expected 40 bytes of rank "
                                        "1, found 8"
                                      : "no error");
  });
}

TEST_P(Comm, DisjointGroupsRunAtTheSameTime) {
  if (size() % 2)
    GTEST_SKIP() << "needs an even number of ranks";
  run([&](Communicator &comm) {
    // Rows and columns of a grid of size/2 x 2.
    std::vector<int> row{comm.rank() / 2 * 2, comm.rank() / 2 * 2 + 1};
    std::vector<int> column;
    for (int rank = comm.rank() % 2; rank < comm.size(); rank += 2)
      column.push_back(rank);
    Group &rows = comm.group(row), &columns = comm.group(column);
    for (int round = 0; round < 50; ++round) {
      std::vector<double> data = values<double>(65, comm.rank());
      comm.allReduce(rows, data.data(), data.size(), GRT_F64);
      EXPECT_EQ(data, orderedSum<double>(row, 65));
      data = values<double>(65, comm.rank());
      comm.allReduce(columns, data.data(), data.size(), GRT_F64);
      EXPECT_EQ(data, orderedSum<double>(column, 65));
    }
  });
}

TEST_P(Comm, EqualListsGiveOneGroup) {
  run([&](Communicator &comm) {
    EXPECT_EQ(&comm.group(everyone(comm.size())),
              &comm.group(everyone(comm.size())));
  });
}

TEST_P(Comm, NobodyGetsAGroupOfOthers) {
  if (size() < 2)
    GTEST_SKIP() << "needs two ranks";
  run([&](Communicator &comm) {
    std::vector<int> others = everyone(comm.size());
    others.erase(others.begin() + comm.rank());
    EXPECT_THROW(comm.group(others), Error);
  });
}

TEST_P(Comm, GatherInRankOrder) {
  run([&](Communicator &comm) {
    for (int round = 0; round <= 20; ++round) {
      // Messages of 1 to 20 bytes, and of none.
      std::vector<std::byte> mine(static_cast<size_t>(round));
      auto byteOf = [&](int rank, size_t at) {
        return std::byte(uint8_t(31 * rank + 7 * round + int(at)));
      };
      for (size_t at = 0; at < mine.size(); ++at)
        mine[at] = byteOf(comm.rank(), at);
      std::vector<std::byte> all(size_t(comm.size()) * mine.size());
      comm.gather(mine, all);
      for (size_t at = 0; at < all.size(); ++at)
        EXPECT_EQ(all[at], byteOf(int(at / mine.size()), at % mine.size()));
    }
  });
}

/// Every rank holds `perRank` units; the permutation sends them to new places.
std::vector<LocalTables> randomExchanges(int size, int perRank, int rounds,
                                         std::vector<Exchange> &all) {
  std::mt19937 random(42);
  std::vector<LocalTables> tables;
  for (int round = 0; round < rounds; ++round) {
    std::vector<int> places(size_t(size) * size_t(perRank));
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), random);
    Exchange exchange;
    for (size_t unit = 0; unit < places.size(); ++unit)
      exchange.transfers.push_back({int(unit) / perRank, places[unit] / perRank,
                                    int64_t(unit) % perRank,
                                    places[unit] % perRank, 1});
    tables.push_back(exchangeTables(exchange, {0, size}));
    all.push_back(exchange);
  }
  return tables;
}

TEST_P(Comm, ExchangeMovesUnits) {
  constexpr int perRank = 5, rounds = 40;
  std::vector<Exchange> exchanges;
  auto tables = randomExchanges(size(), perRank, rounds, exchanges);
  for (uint64_t bytes : {1, 3, 64, 1000}) {
    run([&](Communicator &comm) {
      for (int round = 0; round < rounds; ++round) {
        std::vector<unsigned char> from(perRank * bytes), to(from.size(), 255);
        for (int unit = 0; unit < perRank; ++unit)
          std::memset(from.data() + uint64_t(unit) * bytes,
                      comm.rank() * perRank + unit, bytes);
        ExchangeCall call;
        call.table = &tables[round][comm.rank()];
        call.source = from.data();
        call.destination = to.data();
        call.bytesPerUnit = bytes;
        comm.exchange({&call, 1});
        for (const Transfer &transfer : exchanges[round].transfers)
          if (transfer.destination == comm.rank()) {
            for (uint64_t b = 0; b < bytes; ++b)
              ASSERT_EQ(to[uint64_t(transfer.destinationUnit) * bytes + b],
                        transfer.source * perRank + transfer.sourceUnit);
          }
      }
    });
  }
}

TEST_P(Comm, ExchangeAddsInOrderOfPeers) {
  // Everyone sends its first unit to rank 0, where all are added to one place.
  Exchange exchange;
  for (int rank = 0; rank < size(); ++rank)
    exchange.transfers.push_back({rank, 0, 0, 1, 1});
  auto tables = exchangeTables(exchange, {0, size()});
  run([&](Communicator &comm) {
    std::vector<float> from = values<float>(37, comm.rank());
    std::vector<float> to(74, 1.0f);
    ExchangeCall call{&tables[comm.rank()], from.data(), to.data(),
                      37 * sizeof(float),   true,        GRT_F32};
    comm.exchange({&call, 1});
    if (comm.rank() != 0)
      return;
    std::vector<float> sum(37, 1.0f);
    for (int rank = 0; rank < comm.size(); ++rank) {
      std::vector<float> next = values<float>(37, rank);
      for (size_t i = 0; i < 37; ++i)
        sum[i] += next[i];
    }
    EXPECT_TRUE(std::equal(sum.begin(), sum.end(), to.begin() + 37));
    EXPECT_EQ(to[0], 1.0f);
  });
}

TEST_P(Comm, OppositeTransfersInOneGroupedOperation) {
  if (size() < 2)
    GTEST_SKIP() << "needs two ranks";
  // Activations go up the line, gradients down, in one operation per pair.
  Exchange up, down;
  for (int rank = 0; rank + 1 < size(); ++rank) {
    up.transfers.push_back({rank, rank + 1, 0, 0, 1});
    down.transfers.push_back({rank + 1, rank, 0, 0, 1});
  }
  auto ups = exchangeTables(up, {0, size()}),
       downs = exchangeTables(down, {0, size()});
  run([&](Communicator &comm) {
    for (int round = 0; round < 100; ++round) {
      double send[2] = {comm.rank() + 0.25, comm.rank() + 0.5};
      double receive[2] = {-1, -1};
      ExchangeCall calls[2] = {
          {&ups[comm.rank()], &send[0], &receive[0], sizeof(double)},
          {&downs[comm.rank()], &send[1], &receive[1], sizeof(double)}};
      comm.exchange(calls);
      EXPECT_EQ(receive[0], comm.rank() ? comm.rank() - 1 + 0.25 : -1);
      EXPECT_EQ(receive[1],
                comm.rank() + 1 < comm.size() ? comm.rank() + 1.5 : -1);
    }
  });
}

/// Two stages with two chunks each send each other activations and gradients.
TEST_P(Comm, SeveralMessagesBetweenTwoRanksComeInOrder) {
  if (size() < 2)
    GTEST_SKIP() << "needs two ranks";
  Exchange ring;
  for (int rank = 0; rank < size(); ++rank)
    ring.transfers.push_back({rank, (rank + 1) % size(), 0, 0, 1});
  auto tables = exchangeTables(ring, {0, size()});
  // More than a packet, and little; either one first.
  const size_t large = size_t(1) << 20;
  run([&](Communicator &comm) {
    std::vector<double> sent = values<double>(large + 1, comm.rank());
    std::vector<double> received(large + 1);
    int before = (comm.rank() + comm.size() - 1) % comm.size();
    std::vector<double> expected = values<double>(large + 1, before);
    for (int round = 0; round < 6; ++round) {
      std::fill(received.begin(), received.end(), -1);
      ExchangeCall calls[2] = {{&tables[comm.rank()], &sent[0], &received[0],
                                large * sizeof(double)},
                               {&tables[comm.rank()], &sent[large],
                                &received[large], sizeof(double)}};
      if (round % 2)
        std::swap(calls[0], calls[1]);
      comm.exchange(calls);
      ASSERT_EQ(received, expected) << "round " << round;
    }
  });
}

/// Ranks 0, 1, 2: what 2 has for 0 follows from the second message that 0 has
/// for 1, and 0 has all three in one operation. So that message may not wait
/// for the one from 2, though it is behind it, and behind another one for 1.
TEST_P(Comm, MessagesOfOneOperationWaitForNoneOfAnotherPeer) {
  if (size() < 3)
    GTEST_SKIP() << "needs three ranks";
  auto between = [&](int from, int to) {
    Exchange one;
    one.transfers.push_back({from, to, 0, 0, 1});
    return exchangeTables(one, {0, size()});
  };
  auto first = between(0, 1), onward = between(1, 2), back = between(2, 0);
  // More than a packet, which a process cannot leave behind, and little.
  for (uint64_t count : {uint64_t(1), uint64_t(1) << 17})
    for (bool mirrored : {false, true})
      run([&](Communicator &comm) {
        // Mirrored: 0 receives two messages of 1 and sends one to 2, which 1
        // needs, by way of 2, for its second.
        auto table = [&](auto &tables, auto &opposite) {
          return mirrored ? &opposite[comm.rank()] : &tables[comm.rank()];
        };
        auto firstBack = between(1, 0), onwardBack = between(2, 1),
             backBack = between(0, 2);
        std::vector<double> sent = values<double>(count, comm.rank());
        std::vector<double> got[3];
        for (std::vector<double> &data : got)
          data.assign(count, -1);
        auto call = [&](auto *of, size_t place) {
          return ExchangeCall{of, sent.data(), got[place].data(),
                              count * sizeof(double)};
        };
        auto *one = table(first, firstBack), *two = table(onward, onwardBack),
             *three = table(back, backBack);
        for (int round = 0; round < 4; ++round) {
          if (comm.rank() == 0) {
            ExchangeCall calls[] = {call(one, 0), call(three, 1), call(one, 2)};
            comm.exchange(calls);
          } else if (comm.rank() == 1) {
            ExchangeCall both[] = {call(one, 0), call(one, 2)};
            ExchangeCall next[] = {call(two, 1)};
            if (mirrored) {
              comm.exchange({both, 1});
              comm.exchange(next);
              comm.exchange({both + 1, 1});
            } else {
              comm.exchange(both);
              comm.exchange(next);
            }
          } else if (comm.rank() == 2) {
            ExchangeCall before[] = {call(two, 0)}, after[] = {call(three, 1)};
            comm.exchange(mirrored ? after : before);
            comm.exchange(mirrored ? before : after);
          }
        }
        auto expect = [&](size_t place, int from) {
          EXPECT_EQ(got[place], values<double>(count, from));
        };
        if (comm.rank() == (mirrored ? 0 : 1)) {
          expect(0, mirrored ? 1 : 0);
          expect(2, mirrored ? 1 : 0);
        }
        if (comm.rank() == (mirrored ? 2 : 0))
          expect(1, mirrored ? 0 : 2);
      });
}

TEST_P(Comm, ARankWithoutTransfersReturnsAtOnce) {
  run([&](Communicator &comm) {
    ExchangeTable nothing;
    ExchangeCall call;
    call.table = &nothing;
    comm.exchange({&call, 1});
  });
}

TEST_P(Comm, AbortWakesEveryWaiter) {
  if (size() < 2)
    GTEST_SKIP() << "needs two ranks";
  Exchange fromLast;
  fromLast.transfers.push_back({size() - 1, 0, 0, 0, 1});
  auto tables = exchangeTables(fromLast, {0, size()});
  run([&](Communicator &comm) {
    Group &group = comm.group(everyone(comm.size()));
    if (comm.rank() == comm.size() - 1) {
      // Gives the others time to fall asleep; the test is right without it.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      comm.abort();
    }
    double value[1] = {0};
    if (comm.rank() == 0) {
      ExchangeCall call{&tables[0], value, value, sizeof(value)};
      EXPECT_THROW(comm.exchange({&call, 1}), Aborted);
    } else {
      EXPECT_THROW(comm.allReduce(group, value, 1, GRT_F64), Aborted);
    }
  });
}

/// Under mpirun the tests mean something else, so they have another name.
std::vector<Factory> factories() {
  if (launched())
    return {{"processes", runProcesses}};
  return {{"threads", runThreads}, {"device", runDevice}};
}

/// Over the host's memory only.
bool leavesMessages(const Factory &factory) { return factory.run != runDevice; }

// Everybody posts before anybody takes, so nobody can wait for the other end.
TEST_P(Comm, PostedMessagesWaitForWhoTakesThem) {
  if (!leavesMessages(std::get<0>(GetParam())))
    GTEST_SKIP() << "a device's memory has no such messages";
  run([&](Communicator &comm) {
    const int size = comm.size(), self = comm.rank();
    const int next = (self + 1) % size, before = (self + size - 1) % size;
    if (size == 1)
      return;
    constexpr size_t boxes = 2;
    comm.reserveBoxes(boxes);
    Group &group = comm.group(everyone(size));
    auto meet = [&] {
      double nothing = 0;
      comm.allReduce(group, &nothing, 1, GRT_F64);
    };
    // Two rows, out of order on the other side; more than one packet.
    constexpr int64_t units = 40000;
    const ExchangePeer send{next, {{10, 50, units}, {units + 20, 0, 30}}};
    const ExchangePeer receive{before, {{50, 10, units}, {0, units + 20, 30}}};
    const uint64_t count = units + 60;
    for (int round = 0; round < 5; ++round) {
      std::vector<float> sent = values<float>(count, self + 100 * round);
      std::vector<std::vector<float>> taken(boxes,
                                            std::vector<float>(count, 1.0f));
      auto callOf = [&](size_t box) {
        ExchangeCall call;
        call.source = sent.data();
        call.destination = taken[box].data();
        call.bytesPerUnit = sizeof(float);
        call.add = box == 1;
        call.dtype = GRT_F32;
        return call;
      };
      for (size_t box = 0; box < boxes; ++box)
        comm.post(callOf(box), send, box);
      meet();
      for (size_t box = 0; box < boxes; ++box)
        comm.take(callOf(box), receive, box);
      std::vector<float> theirs = values<float>(count, before + 100 * round);
      for (size_t box = 0; box < boxes; ++box)
        for (const ExchangeRow &row : receive.rows)
          for (int64_t i = 0; i < row.units; ++i) {
            float value = theirs[size_t(row.peerUnit + i)];
            ASSERT_EQ(taken[box][size_t(row.localUnit + i)],
                      box ? 1.0f + value : value);
          }
      for (size_t box = 0; box < boxes; ++box)
        comm.awaitTaken(next, box);
    }
  });
}

// Ranks are up to two times apart: four messages of a rank are told before the
// first of them is heard, which is as many as there may be.
TEST_P(Comm, MessagesThatAreToldAreHeardLater) {
  if (!leavesMessages(std::get<0>(GetParam())))
    GTEST_SKIP() << "the host tells messages";
  run([&](Communicator &comm) {
    auto told = [](int rank, uint64_t number) {
      std::vector<std::byte> bytes(1 +
                                   number * 3 % Communicator::mostToldBytes);
      for (size_t at = 0; at < bytes.size(); ++at)
        bytes[at] = std::byte(uint8_t(rank + 5 * int(number) + int(at)));
      return bytes;
    };
    for (uint64_t number = 1; number <= 40; ++number) {
      comm.tell(number, told(comm.rank(), number));
      for (int rank = 0; rank < comm.size() && number > 1; ++rank) {
        const std::vector<std::byte> expected = told(rank, number - 1);
        std::vector<std::byte> heard(expected.size());
        comm.hear(rank, number - 1, heard);
        EXPECT_EQ(heard, expected);
      }
    }
    double nothing = 0;
    comm.allReduce(comm.group(everyone(comm.size())), &nothing, 1, GRT_F64);
  });
}

std::string
nameOf(const testing::TestParamInfo<std::tuple<Factory, int>> &info) {
  return std::get<0>(info.param).name + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, Comm,
                         ::testing::Combine(::testing::ValuesIn(factories()),
                                            ::testing::Values(1, 2, 3, 4, 7,
                                                              8)),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(All, CommBlocks,
                         ::testing::Combine(::testing::ValuesIn(factories()),
                                            ::testing::Range(1, 9)),
                         nameOf);

} // namespace

int main(int argc, char **argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    if (launched())
      transport = openTransport({});
  } catch (const Error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  int result = RUN_ALL_TESTS();
  if (transport)
    transport->finalize();
  return result;
}
