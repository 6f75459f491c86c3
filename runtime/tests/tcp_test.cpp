//===- tcp_test.cpp - Connections that are made when they are used --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "comm/rendezvous.h"
#include "comm/tcp_link.h"
#include "comm/tree.h"
#include "in_process.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <fstream>
#include <set>

using namespace grt;
using namespace grt::test;

namespace {

/// Resident bytes of this process.
size_t residentBytes() {
  size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * size_t(sysconf(_SC_PAGESIZE));
}

TEST(Tree, NeighboursAreMutualAndPlacesAreOneTree) {
  for (int count : {1, 2, 3, 4, 5, 8, 13, 64, 100, 4096, 16384}) {
    int reached = 0;
    for (int self = 0; self < count; self += count > 100 ? 37 : 1)
      for (int other : treeNeighbours(self, count)) {
        EXPECT_NE(other, self);
        std::vector<int> back = treeNeighbours(other, count);
        EXPECT_TRUE(std::count(back.begin(), back.end(), self));
      }
    for (int self = 0; self < count; ++self) {
      TreePlace place = treePlace(self, count);
      EXPECT_EQ(place.parent < 0, self == 0);
      for (int child : place.children)
        EXPECT_EQ(treePlace(child, count).parent, self);
      reached += int(place.children.size());
    }
    EXPECT_EQ(reached, count - 1);
  }
}

/// 256 MiB are sent before anything is received, and small messages beside
/// them: they stay where they are.
TEST(Tcp, ASlowReceiverDoesNotLetTheSenderGrow) {
  std::barrier meet(2);
  onProcesses(2, [&](Transport &transport) {
    constexpr size_t large = 4 << 20, count = 64, small = 1000;
    const int self = transport.process(), other = 1 - self;
    std::vector<char> data(large, char('a' + self)), little(small, 's');
    meet.arrive_and_wait();
    if (self == 0) {
      size_t before = residentBytes();
      std::vector<Transport::Request> sent;
      for (size_t i = 0; i < count; ++i) {
        sent.push_back(transport.send(other, 1, data.data(), large));
        sent.push_back(transport.send(other, 2, little.data(), small));
      }
      for (int i = 0; i < 1000; ++i)
        sent.push_back(transport.send(other, 2, little.data(), small));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      size_t after = residentBytes();
      EXPECT_LT(after, before + (4 << 20));
      EXPECT_LE(transport.mostHeldBytes(), TcpLink::mostHeld);
      EXPECT_EQ(transport.heldLimit(), TcpLink::mostHeld);
      EXPECT_FALSE(transport.test(sent));
      meet.arrive_and_wait();
      waitFor(transport, sent);
      return;
    }
    meet.arrive_and_wait();
    EXPECT_LE(transport.mostHeldBytes(), TcpLink::mostHeld);
    for (size_t i = 0; i < count; ++i) {
      waitFor(transport, {transport.receive(other, 1, data.data(), large)});
      ASSERT_EQ(data.front(), 'a');
      ASSERT_EQ(data.back(), 'a');
    }
    for (size_t i = 0; i < count + 1000; ++i)
      waitFor(transport, {transport.receive(other, 2, little.data(), small)});
  });
}

/// Ports at which this program listens.
std::set<uint16_t> listeners() {
  std::set<uint16_t> ports;
  for (int descriptor = 3; descriptor < 1000; ++descriptor) {
    int listens = 0;
    socklen_t length = sizeof(listens);
    sockaddr_in address{};
    if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) !=
            0 ||
        !listens)
      continue;
    length = sizeof(address);
    getsockname(descriptor, reinterpret_cast<sockaddr *>(&address), &length);
    ports.insert(ntohs(address.sin_port));
  }
  return ports;
}

/// Processes that are no neighbours in the tree, as 0 and 3, or 2 and 5, of
/// eight, connect when they have something to say, whichever is first, with
/// strangers at their ports.
TEST(Tcp, LateConnectionsBesideStrangers) {
  std::barrier meet(8);
  std::vector<Socket> silent;
  onProcesses(8, [&](Transport &transport) {
    const int self = transport.process();
    const size_t before = treeNeighbours(self, 8).size();
    EXPECT_EQ(transport.heldLimit(), before * TcpLink::mostHeld);
    meet.arrive_and_wait();
    if (self == 7)
      for (uint16_t port : listeners()) {
        std::string problem;
        Endpoint at = resolve("127.0.0.1", port, problem).at(0);
        for (int i = 0; i < 5; ++i)
          silent.push_back(connectTo(at, after(5), problem));
        Socket loud = connectTo(at, after(5), problem);
        sendAll(loud, "GET / HTTP/1.1\r\n\r\n", after(5));
        std::string text;
        Socket other = connectTo(at, after(5), problem);
        EXPECT_EQ(introduce({"another key", meshPurpose(0)}, other, "3210", 100,
                            after(1), text, problem),
                  Attempt::Failed);
      }
    meet.arrive_and_wait();
    const std::pair<int, int> pairs[] = {{0, 3}, {5, 2}};
    for (auto [from, to] : pairs) {
      std::vector<char> data(100000, self == from ? 'x' : ' ');
      if (self == from)
        waitFor(transport, {transport.send(to, 5, data.data(), data.size())});
      if (self != to)
        continue;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      waitFor(transport,
              {transport.receive(from, 5, data.data(), data.size())});
      EXPECT_EQ(data, std::vector<char>(100000, 'x'));
    }
    bool isOne = self == 0 || self == 3 || self == 2 || self == 5;
    EXPECT_EQ(transport.heldLimit(), (before + isOne) * TcpLink::mostHeld);
    meet.arrive_and_wait();
  });
}

/// Process 3 ends before 0 and 6 have a connection to it. The one that would
/// connect says so in time; the one that waits for it can give up.
TEST(Tcp, AProcessThatEndsBeforeItIsConnected) {
  Rendezvous at;
  at.size = 8;
  at.address = "127.0.0.1";
  at.port = freePort();
  at.connectSeconds = 5;
  std::barrier meet(8);
  std::vector<std::thread> threads;
  for (at.rank = 0; at.rank < 8; ++at.rank)
    threads.emplace_back([&, at] {
      std::unique_ptr<Transport> transport = connectByTcp(at);
      meet.arrive_and_wait();
      if (at.rank == 3)
        transport.reset();
      meet.arrive_and_wait();
      char byte = 0;
      if (at.rank == 6) {
        Transport::Request request = transport->receive(3, 1, &byte, 1);
        try {
          waitFor(*transport, {request});
          ADD_FAILURE() << "nobody sent this";
        } catch (const Error &error) {
          EXPECT_EQ(error.exitCode(), 4);
          EXPECT_EQ(std::string(error.what())
                        .find("cannot reach process 3 by TCP at any of 127."),
                    0u)
              << error.what();
        }
      }
      if (at.rank == 0) {
        Transport::Request request = transport->receive(3, 1, &byte, 1);
        EXPECT_FALSE(transport->test({&request, 1}));
        transport->cancel({&request, 1});
      }
      meet.arrive_and_wait();
      transport.reset();
    });
  for (std::thread &thread : threads)
    thread.join();
}

/// All name the process that has ended, not one that ended because of it. Some
/// notice while they still connect.
TEST(Tcp, AProcessThatEndsWhileTheRunBegins) {
  Rendezvous at;
  at.size = 8;
  at.address = "127.0.0.1";
  at.port = freePort();
  std::vector<std::thread> threads;
  std::atomic<int> named = 0;
  for (at.rank = 0; at.rank < 8; ++at.rank)
    threads.emplace_back([&, at] {
      char own = 0, all[8];
      try {
        std::unique_ptr<Transport> transport = connectByTcp(at);
        if (at.rank == 2)
          return;
        transport->allGather(&own, all, 1);
      } catch (const Error &error) {
        EXPECT_STREQ(error.what(), "process 2 ended while the run began");
        ++named;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(named, 7);
}

} // namespace
