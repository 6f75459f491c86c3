//===- transport_test.cpp - Messages at the limits of a transport ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "comm/activity.h"
#include "comm/process_world.h"
#include "comm/rank_messages.h"
#include "forwarding_transport.h"
#include "grt/processes.h"
#include "in_process.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>
#include <tuple>

using namespace grt;
using namespace grt::test;

namespace {

/// A transport that offers less than the one it stands on, and counts what goes
/// beyond.
class Limited : public ForwardingTransport {
public:
  Limited(Transport &inner, size_t message, int tag)
      : ForwardingTransport(inner), message(message), tag(tag) {}

  size_t largestMessage() const override { return message; }
  int largestTag() const override { return tag; }
  std::string name() const override { return "limited"; }
  Request send(int process, int tag, const void *data, size_t bytes) override {
    look(tag, bytes);
    return ForwardingTransport::send(process, tag, data, bytes);
  }
  Request receive(int process, int tag, void *data, size_t bytes) override {
    look(tag, bytes);
    return ForwardingTransport::receive(process, tag, data, bytes);
  }

  std::atomic<int> beyond{0}, messages{0};
  std::atomic<size_t> largest{0};

private:
  void look(int used, size_t bytes) {
    ++messages;
    beyond += used < 0 || used > tag || bytes > message;
    size_t before = largest;
    while (bytes > before && !largest.compare_exchange_weak(before, bytes))
      ;
  }

  const size_t message;
  const int tag;
};

constexpr int noTags = 1 << 30;

/// Runs `body` on every rank of a world of `processes` with `threads` ranks
/// each.
void onRanks(int processes, int threads, size_t message, int tag, int epoch,
             const std::function<void(Communicator &)> &body,
             size_t expectedLargest = 0) {
  onProcesses(processes, [&](Transport &inner) {
    Limited transport(inner, message, tag);
    std::vector<int> first;
    for (int process = 0; process <= processes; ++process)
      first.push_back(process * threads);
    ProcessWorld world(transport, first, epoch, [](const Failure &) {});
    std::vector<std::thread> ranks;
    for (int i = 0; i < threads; ++i)
      ranks.emplace_back([&, rank = world.firstLocal() + i] {
        std::unique_ptr<Communicator> communicator = world.join(rank);
        body(*communicator);
      });
    for (std::thread &rank : ranks)
      rank.join();
    EXPECT_GT(transport.messages, 0);
    EXPECT_EQ(transport.beyond, 0) << "messages beyond the limits";
    EXPECT_GE(transport.largest, expectedLargest);
  });
}

Group &everyone(Communicator &communicator) {
  std::vector<int> all;
  for (int rank = 0; rank < communicator.size(); ++rank)
    all.push_back(rank);
  return communicator.group(all);
}

/// The value that a rank has at a place: whole numbers, so that sums are exact.
float valueOf(int rank, uint64_t i) { return float((i * 7 + 3) % 61) + rank; }
float sumOf(int ranks, uint64_t i) {
  return float(ranks) * float((i * 7 + 3) % 61) +
         float(ranks * (ranks - 1) / 2);
}

void expectAllReduce(Communicator &communicator, uint64_t count) {
  std::vector<float> values(count + 1, -1);
  for (uint64_t i = 0; i < count; ++i)
    values[i] = valueOf(communicator.rank(), i);
  communicator.allReduce(everyone(communicator), values.data(), count, GRT_F32);
  for (uint64_t i = 0; i < count; ++i)
    ASSERT_EQ(values[i], sumOf(communicator.size(), i)) << i << " of " << count;
  ASSERT_EQ(values[count], -1);
}

//===----------------------------------------------------------------------===//
// Collectives between processes
//===----------------------------------------------------------------------===//

/// All that a rank waits for are told, in its words and to the monitor.
TEST(Transport, AWaitNamesAllItsPeers) {
  Activity activity(0);
  auto text = [&] { return std::string(activity.describe()); };
  activity.beginWait("exchange");
  for (int peer : {3, 1, 2})
    activity.addPeer(peer);
  EXPECT_EQ(activity.awaited(), (std::vector<int>{3, 1, 2}));
  EXPECT_TRUE(text().ends_with(", waiting for ranks 3, 1, 2")) << text();
  EXPECT_TRUE(activity.waitsFor(2));
  EXPECT_FALSE(activity.waitsFor(4));
  activity.narrowWait(1);
  EXPECT_EQ(activity.awaited(), std::vector<int>{1});
  EXPECT_TRUE(text().ends_with(", waiting for rank 1")) << text();
  for (int peer = 2; peer < 40; ++peer)
    activity.addPeer(peer);
  EXPECT_TRUE(text().ends_with(", 15, 16 and more")) << text();
  activity.endWait();
  EXPECT_TRUE(activity.awaited().empty());
  EXPECT_EQ(text().find("waiting"), std::string::npos) << text();
}

/// A rank that waits for several says who of them has not come, not who has.
TEST(Transport, WhoIsWaitedForIsWhoHasNotCome) {
  for (int late : {0, 1, 2}) {
    std::vector<std::unique_ptr<Activity>> activities;
    for (int rank = 0; rank < 3; ++rank)
      activities.push_back(std::make_unique<Activity>(rank));
    onRanks(3, 1, 1 << 20, noTags, 0, [&](Communicator &communicator) {
      const int rank = communicator.rank();
      Group &all = everyone(communicator);
      currentActivity = activities[size_t(rank)].get();
      const std::vector<int> expected = {late};
      auto isTold = [&] {
        return std::all_of(activities.begin(), activities.end(),
                           [&](const std::unique_ptr<Activity> &activity) {
                             return activity->rank == late ||
                                    activity->awaited() == expected;
                           });
      };
      if (rank == late) {
        for (int beat = 0; beat < 500 && !isTold(); ++beat)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        EXPECT_TRUE(isTold()) << "late is rank " << late;
      }
      // Every rank needs something of every other one.
      std::vector<float> values(6000, 1);
      currentActivity->beginWait("all_reduce");
      communicator.allReduce(all, values.data(), values.size(), GRT_F32);
      currentActivity->endWait();
      EXPECT_EQ(values, std::vector<float>(6000, 3));
      currentActivity = nullptr;
    });
  }
}

/// Parts of members that differ by a line where a chunk ends: one member has a
/// round more than another.
TEST(ProcessCollectives, AllReduceAtTheEndOfChunks) {
  for (int processes : {2, 3}) {
    // A member's share of the scratch holds several chunks here.
    constexpr uint64_t chunk = (128 << 10) / sizeof(float);
    ASSERT_GE(ProcessWorld::scratchBytes(processes) / uint64_t(processes),
              2 * chunk * sizeof(float));
    onRanks(
        processes, 1, size_t(1) << 26, noTags, 0,
        [&](Communicator &communicator) {
          for (uint64_t rounds : {1, 2})
            for (int64_t more : {-17, -16, -1, 0, 1, 15, 16, 17, 32, 48})
              expectAllReduce(
                  communicator,
                  uint64_t(int64_t(rounds * chunk) * processes + more));
          // More chunks than are on their way at once.
          for (int64_t more : {-1, 17})
            expectAllReduce(communicator,
                            uint64_t(int64_t(10 * chunk) * processes + more));
          // 2 x 65544 floats: the second part is a line longer.
          expectAllReduce(communicator, 131088);
        },
        chunk * sizeof(float));
  }
}

TEST(ProcessCollectives, MessagesAboveTheLargest) {
  constexpr size_t limit = 4096;
  onRanks(2, 2, limit, noTags, 0, [](Communicator &communicator) {
    int self = communicator.rank(), count = communicator.size();
    Group &all = everyone(communicator);
    for (uint64_t bytes :
         {limit - 1, limit, limit + 1, 3 * limit, 5 * limit + 13}) {
      std::vector<unsigned char> in(bytes),
          out(bytes * size_t(count) + 1, 0xee);
      auto byteOf = [](int rank, uint64_t i) {
        return static_cast<unsigned char>(i * 31 + uint64_t(rank) * 101 +
                                          i / 256);
      };
      for (uint64_t i = 0; i < bytes; ++i)
        in[i] = byteOf(self, i);
      communicator.allGather(all, in.data(), out.data(), bytes);
      for (int rank = 0; rank < count; ++rank)
        for (uint64_t i = 0; i < bytes; ++i)
          ASSERT_EQ(out[uint64_t(rank) * bytes + i], byteOf(rank, i))
              << "byte " << i << " of rank " << rank << ", " << bytes;
      ASSERT_EQ(out.back(), 0xee);
    }
    for (uint64_t elements : {1000, 1024, 1025, 3001, 5000, 10001}) {
      expectAllReduce(communicator, elements);
      std::vector<float> in(elements * uint64_t(count)), out(elements);
      for (uint64_t i = 0; i < in.size(); ++i)
        in[i] = valueOf(self, i);
      communicator.reduceScatter(all, in.data(), out.data(), elements, GRT_F32,
                                 /*accumulate=*/false);
      for (uint64_t i = 0; i < elements; ++i)
        ASSERT_EQ(out[i], sumOf(count, uint64_t(self) * elements + i));
    }
    // Rows of all sizes to the rank across, and back.
    int peer = (self + 2) % count;
    for (int64_t units : {1, 100, 1023, 1024, 1025, 2048, 5000}) {
      ExchangeTable table;
      table.sends = {{peer, {{0, 7, units}, {units + 5, 0, 7}}}};
      table.receives = {{peer, {{7, 0, units}, {0, units + 5, 7}}}};
      std::vector<float> in(size_t(units) + 12), out(size_t(units) + 8, -1);
      for (size_t i = 0; i < in.size(); ++i)
        in[i] = valueOf(self, i);
      ExchangeCall call;
      call.table = &table;
      call.source = in.data();
      call.destination = out.data();
      call.bytesPerUnit = sizeof(float);
      communicator.exchange({&call, 1});
      for (int64_t i = 0; i < units; ++i)
        ASSERT_EQ(out[size_t(i) + 7], valueOf(peer, uint64_t(i))) << units;
      for (int64_t i = 0; i < 7; ++i)
        ASSERT_EQ(out[size_t(i)], valueOf(peer, uint64_t(units + 5 + i)));
      ASSERT_EQ(out.back(), -1);
    }
  });
}

/// Messages by which all ranks share numbers every step: from each, the
/// logarithm of the number of ranks.
TEST(ProcessCollectives, GatheredNumbersOfManyRanks) {
  for (auto [processes, threads, rounds] :
       {std::tuple(2, 2, 3), {3, 2, 3}, {4, 4, 4}, {3, 5, 4}, {5, 5, 5}})
    onProcesses(
        processes, [&, threads = threads, rounds = rounds](Transport &inner) {
          Limited transport(inner, size_t(1) << 26, noTags);
          std::vector<int> first;
          for (int process = 0; process <= inner.processes(); ++process)
            first.push_back(process * threads);
          ProcessWorld world(transport, first, 0, [](const Failure &) {});
          std::vector<std::thread> ranks;
          for (int i = 0; i < threads; ++i)
            ranks.emplace_back([&, rank = world.firstLocal() + i] {
              std::unique_ptr<Communicator> communicator = world.join(rank);
              const double in[] = {rank + 0.5, -rank * 3.0, 1e300};
              const std::vector<double> out = gatherOfRanks<double>(
                  *communicator, MessageKind::Times, std::span(in));
              for (int other = 0; other < world.size(); ++other) {
                EXPECT_EQ(out[3 * size_t(other)], other + 0.5);
                EXPECT_EQ(out[3 * size_t(other) + 1], -other * 3.0);
                EXPECT_EQ(out[3 * size_t(other) + 2], 1e300);
              }
            });
          for (std::thread &rank : ranks)
            rank.join();
          // Each message is counted where it is sent and where it is received.
          EXPECT_EQ(transport.messages, 2 * threads * rounds);
        });
}

/// Ranks that are at different places of a run say so instead of taking one
/// message for another.
TEST(ProcessCollectives, MessagesOfAnotherKindAreRefused) {
  onRanks(2, 2, size_t(1) << 26, noTags, 0, [](Communicator &communicator) {
    const bool isOther = communicator.rank() == 2;
    try {
      gatherOfRanks(communicator,
                    isOther ? MessageKind::Hits : MessageKind::Times, 1.0);
      ADD_FAILURE() << "taken for another";
    } catch (const Error &error) {
      EXPECT_EQ(std::string(error.what()),
                isOther ? "rank 0 sends times (1 values of 8 bytes), expected "
                          "hits (1 values of 8 bytes)"
                        : "rank 2 sends hits (1 values of 8 bytes), expected "
                          "times (1 values of 8 bytes)");
    }
  });
}

/// The fewest tags that MPI guarantees, with worlds that use them all up.
TEST(ProcessCollectives, FewTags) {
  for (int epoch : {0, 3, 8190, 8191, 1000000})
    onRanks(2, 2, size_t(1) << 26, 32767, epoch,
            [](Communicator &communicator) {
              expectAllReduce(communicator, 5000);
              expectAllReduce(communicator, 100);
            });
}

TEST(ProcessCollectives, MoreThreadRanksThanTags) {
  onProcesses(2, [](Transport &inner) {
    Limited transport(inner, size_t(1) << 26, 32767);
    try {
      ProcessWorld world(transport, {0, 27, 54}, 0, [](const Failure &) {});
      ADD_FAILURE() << "27 thread ranks need more tags than there are";
    } catch (const Error &error) {
      EXPECT_EQ(error.exitCode(), 2);
      EXPECT_STREQ(error.what(),
                   "expected at most 26 thread ranks in a process, found 27: "
                   "limited has 32767 message tags");
    }
    EXPECT_NO_THROW(
        ProcessWorld(transport, {0, 26, 52}, 0, [](const Failure &) {}));
  });
}

//===----------------------------------------------------------------------===//
// TCP
//===----------------------------------------------------------------------===//

/// Gives all TCP connections of this process small buffers, so that the kernel
/// never takes a large message at once.
void shrinkBuffers(int bytes) {
  std::vector<int> descriptors;
  for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd"))
    descriptors.push_back(std::stoi(entry.path().filename().string()));
  int shrunk = 0;
  for (int descriptor : descriptors) {
    int type = 0, listens = 1;
    socklen_t length = sizeof(int);
    if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) != 0 ||
        type != SOCK_STREAM ||
        getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) !=
            0 ||
        listens)
      continue;
    EXPECT_EQ(
        setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)),
        0);
    ++shrunk;
  }
  EXPECT_GE(shrunk, 2);
}

/// Two processes send each other a large message, and small ones behind it.
void sendInParts(int buffer, size_t large) {
  std::atomic<bool> shrunk = false;
  onProcesses(2, [&](Transport &transport) {
    int self = transport.process(), other = 1 - self;
    int number = self;
    std::vector<int> numbers(2);
    transport.allGather(&number, numbers.data(), sizeof(int));
    if (self == 0) {
      shrinkBuffers(buffer);
      shrunk = true;
    }
    while (!shrunk)
      std::this_thread::yield();
    const size_t sizes[] = {large, 1, 100000, 0, 8191};
    // Blocks that are no multiple of anything, each with its own number.
    auto contentOf = [](int process, size_t message, size_t bytes) {
      constexpr size_t block = 4093;
      std::vector<char> content(bytes, char(message * 2 + size_t(process)));
      for (size_t at = 0; at + sizeof(at) <= bytes; at += block)
        std::memcpy(content.data() + at, &at, sizeof(at));
      return content;
    };
    std::vector<std::vector<char>> out, in;
    std::vector<Transport::Request> requests;
    for (size_t m = 0; m < std::size(sizes); ++m) {
      out.push_back(contentOf(self, m, sizes[m]));
      in.emplace_back(sizes[m]);
      requests.push_back(transport.send(other, 3, out[m].data(), sizes[m]));
      requests.push_back(transport.receive(other, 3, in[m].data(), sizes[m]));
    }
    waitFor(transport, requests);
    for (size_t m = 0; m < std::size(sizes); ++m)
      EXPECT_TRUE(in[m] == contentOf(other, m, sizes[m])) << "message " << m;
  });
}

TEST(Tcp, MessagesThatGoInParts) {
  // The smallest buffer that the kernel gives, some hundred parts.
  sendInParts(4096, size_t(1) << 20);
  // The largest message, which no kernel takes at once.
  sendInParts(1 << 18, size_t(1) << 26);
}

//===----------------------------------------------------------------------===//
// The end of a run
//===----------------------------------------------------------------------===//

#ifdef FAILING_PLUGIN

/// Joins through a plug-in whose call of this name throws, and ends well.
void endWith(const char *failing) {
  setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  setenv("GRT_TEST_FAILS", failing, 1);
  ProcessOptions options;
  options.tool = "tool";
  options.folder = FAILING_PLUGIN;
  std::shared_ptr<Processes> processes;
  Status status = Processes::join(options, processes);
  if (!status || !processes)
    _exit(77);
  int code = processes->finish(Status());
  processes.reset();
  _exit(code);
}

TEST(TheEnd, APluginThatDoesNotOpenSaysWhy) {
  setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  setenv("GRT_TEST_FAILS", "open", 1);
  ProcessOptions options;
  options.folder = FAILING_PLUGIN;
  std::shared_ptr<Processes> processes;
  Status status = Processes::join(options, processes);
  unsetenv("GRT_TEST_FAILS");
  unsetenv("OMPI_COMM_WORLD_SIZE");
  unsetenv("OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(status.exitCode(), ExitFailed);
  EXPECT_EQ(status.message(), "no network today");
}

/// A launcher that has lost a process ends the others so; a process whose tool
/// has no use for the signal ends when nobody explains it.
TEST(TheEnd, ASignalOfTheLauncherEndsAProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto wait = [] {
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    ProcessOptions options;
    options.tool = "tool";
    options.folder = FAILING_PLUGIN;
    std::shared_ptr<Processes> processes;
    if (!Processes::join(options, processes) || !processes)
      _exit(77);
    alarm(60);
    raise(SIGTERM);
    while (true)
      pause();
  };
  EXPECT_EXIT(wait(), testing::ExitedWithCode(128 + SIGTERM), "");
}

TEST(TheEnd, AnErrorOfTheLastBarrierIsAMessage) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(endWith("nothing"), testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(endWith("test"), testing::ExitedWithCode(1),
              "tool: error: test has failed");
  EXPECT_EXIT(endWith("finalize"), testing::ExitedWithCode(0),
              "tool: warning: finalize has failed");
}

#endif

} // namespace
