//===- tcp_link_test.cpp - Messages of two processes over one connection --===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/tcp_link.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fcntl.h>
#include <map>
#include <random>
#include <sys/socket.h>
#include <unistd.h>

using namespace grt;

namespace {

/// Two ends of one connection, with the smallest buffers that the kernel gives,
/// so that most messages go in many parts.
struct Ends {
  Ends() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                         pair),
              0);
    for (int end : pair) {
      int bytes = 4096;
      setsockopt(end, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    }
    one.open(Connection(Socket(pair[0])), /*connects=*/false);
    other.open(Connection(Socket(pair[1])), /*connects=*/true);
  }
  /// Moves bytes until nothing moves any more; returns whether both ends stand.
  bool move() {
    bool stands = true;
    for (int still = 0; still < 3 && stands; ++still)
      for (TcpLink *end : {&one, &other}) {
        bool wanted = end->wantsToWrite();
        stands &= end->write() && end->read();
        if (wanted)
          still = 0;
        if (end->wantsToWrite() && ++stuck > 100000)
          return stands;
      }
    return stands;
  }

  TcpLink one{1}, other{0};
  int stuck = 0;
};

std::vector<char> content(size_t bytes, int seed) {
  std::vector<char> result(bytes);
  std::mt19937 random{unsigned(seed)};
  for (char &byte : result)
    byte = char(random());
  return result;
}

void take(TcpOperation *operation) {
  if (!operation)
    return;
  EXPECT_TRUE(operation->done);
  EXPECT_EQ(operation->problem, "");
  delete operation;
}

TEST(TcpLink, ALargeMessageWaitsForItsReceive) {
  Ends ends;
  std::vector<char> out = content(300000, 1), in(out.size());
  TcpOperation *sent = ends.other.send(7, out.data(), out.size());
  ASSERT_TRUE(ends.move());
  ASSERT_NE(sent, nullptr);
  EXPECT_FALSE(sent->done);
  // A message is what the memory holds when it is taken.
  out[5] = 'x';
  TcpOperation *received = ends.one.receive(7, in.data(), in.size());
  ASSERT_TRUE(ends.move());
  take(sent);
  take(received);
  EXPECT_TRUE(in == out);
  EXPECT_LE(ends.one.mostHeldYet(), TcpLink::readBytes);
  EXPECT_LE(ends.other.mostHeldYet(), TcpLink::readBytes);
}

/// Small messages go ahead as far as credit reaches, those behind wait; credit
/// that one tag has used up does not stop another.
TEST(TcpLink, SmallMessagesGoAheadWithinTheirCredit) {
  Ends ends;
  constexpr size_t bytes = 1000, count = 500;
  std::vector<char> out(bytes * count);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = char(i / bytes);
  std::vector<TcpOperation *> sent;
  size_t ahead = 0;
  for (size_t i = 0; i < count; ++i) {
    TcpOperation *operation = ends.other.send(3, &out[i * bytes], bytes);
    ahead += operation == nullptr;
    if (operation)
      sent.push_back(operation);
  }
  EXPECT_EQ(ahead, TcpLink::window / (bytes + TcpLink::overhead));
  ASSERT_TRUE(ends.move());
  EXPECT_LE(ends.other.mostHeldYet(), TcpLink::window + TcpLink::readBytes);
  EXPECT_LE(ends.one.mostHeldYet(), TcpLink::window + TcpLink::readBytes);
  // The message has another tag, without credit.
  char letter = 'a', heard = 0;
  TcpOperation *late = ends.other.send(4, &letter, 1);
  TcpOperation *asked = ends.one.receive(4, &heard, 1);
  ASSERT_TRUE(ends.move());
  take(asked);
  take(late);
  EXPECT_EQ(heard, 'a');
  std::vector<char> in(bytes);
  for (size_t i = 0; i < count; ++i) {
    TcpOperation *operation = ends.one.receive(3, in.data(), bytes);
    ASSERT_TRUE(ends.move());
    take(operation);
    ASSERT_EQ(in, std::vector<char>(bytes, char(i)));
  }
  for (TcpOperation *operation : sent)
    take(operation);
  // Credit is back: as many go ahead again, but for what is given back late.
  ahead = 0;
  while (TcpLink::window) {
    TcpOperation *operation = ends.other.send(5, out.data(), bytes);
    if (operation) {
      ends.other.cancel(operation);
      break;
    }
    ++ahead;
  }
  EXPECT_GE(ahead * (bytes + TcpLink::overhead),
            TcpLink::window / 4 * 3 - 2000);
}

TEST(TcpLink, ASendThatIsGivenUpInTheMiddle) {
  Ends ends;
  std::vector<char> first = content(200000, 1), second = content(150000, 2);
  std::vector<char> in(150000, 'x');
  TcpOperation *received = ends.one.receive(1, in.data(), in.size());
  ASSERT_TRUE(ends.one.write());
  // The first message stops where buffers are full.
  ASSERT_TRUE(ends.other.write());
  ASSERT_TRUE(ends.one.read());
  ASSERT_TRUE(ends.one.write());
  ASSERT_TRUE(ends.other.read());
  first.resize(in.size());
  TcpOperation *sent = ends.other.send(1, first.data(), first.size());
  ASSERT_NE(sent, nullptr);
  ASSERT_TRUE(ends.other.wantsToWrite());
  ends.other.cancel(sent);
  std::fill(first.begin(), first.end(), 'y');
  ASSERT_TRUE(ends.move());
  EXPECT_FALSE(received->done) << "a message that was given up was taken";
  // The next one has its place.
  sent = ends.other.send(1, second.data(), second.size());
  ASSERT_TRUE(ends.move());
  take(received);
  take(sent);
  EXPECT_TRUE(in == second);
}

/// A small one has its credit when the other side gives some back, and waits
/// for the large one that is being written.
TEST(TcpLink, ASendOnCreditThatIsGivenUpGivesItBack) {
  constexpr size_t bytes = 1000,
                   most = TcpLink::window / (bytes + TcpLink::overhead);
  auto aheadAfter = [&](bool givesUp) {
    Ends ends;
    std::vector<char> large = content(300000, 1), in(large.size());
    std::vector<char> small(bytes, 's'), heard(bytes);
    TcpOperation *received = ends.one.receive(9, in.data(), in.size());
    for (size_t i = 0; i < most; ++i)
      EXPECT_EQ(ends.other.send(3, small.data(), bytes), nullptr);
    TcpOperation *late =
        givesUp ? ends.other.send(3, small.data(), bytes) : nullptr;
    EXPECT_EQ(late != nullptr, givesUp);
    EXPECT_TRUE(ends.move());
    TcpOperation *sent = ends.other.send(9, large.data(), large.size());
    for (size_t i = 0; i < most / 2; ++i)
      take(ends.one.receive(3, heard.data(), bytes));
    EXPECT_TRUE(ends.other.read());
    if (givesUp) {
      EXPECT_TRUE(late->paid);
      EXPECT_FALSE(late->done);
      ends.other.cancel(late);
    }
    EXPECT_TRUE(ends.move());
    take(sent);
    take(received);
    EXPECT_TRUE(in == large);
    size_t ahead = 0;
    TcpOperation *waits = nullptr;
    while (ahead <= most && !(waits = ends.other.send(5, small.data(), bytes)))
      ++ahead;
    ends.other.cancel(waits);
    return ahead;
  };
  EXPECT_GT(aheadAfter(false), 0u);
  EXPECT_EQ(aheadAfter(true), aheadAfter(false));
}

TEST(TcpLink, AReceiveThatIsGivenUp) {
  Ends ends;
  std::vector<char> out = content(100000, 3), in(out.size());
  // The receive is given up before the message comes: the next one has its
  // number.
  TcpOperation *received = ends.one.receive(1, in.data(), in.size());
  ASSERT_TRUE(ends.move());
  ends.one.cancel(received);
  received = ends.one.receive(1, in.data(), in.size());
  TcpOperation *sent = ends.other.send(1, out.data(), out.size());
  ASSERT_TRUE(ends.move());
  take(sent);
  take(received);
  EXPECT_TRUE(in == out);
  // A small one that comes meanwhile is kept.
  char letter = 'b', heard = 0;
  received = ends.one.receive(1, &heard, 1);
  ASSERT_TRUE(ends.move());
  ends.one.cancel(received);
  take(ends.other.send(1, &letter, 1));
  ASSERT_TRUE(ends.move());
  take(ends.one.receive(1, &heard, 1));
  EXPECT_EQ(heard, 'b');
  // A large one in the middle: it is lost, its memory left alone, and those
  // behind it come.
  std::fill(in.begin(), in.end(), 'x');
  received = ends.one.receive(1, in.data(), in.size());
  ASSERT_TRUE(ends.move());
  sent = ends.other.send(1, out.data(), out.size());
  ASSERT_TRUE(ends.one.read());
  ends.one.cancel(received);
  std::fill(in.begin(), in.end(), 'x');
  ASSERT_TRUE(ends.move());
  take(sent);
  EXPECT_EQ(in, std::vector<char>(in.size(), 'x'));
  received = ends.one.receive(1, in.data(), in.size());
  sent = ends.other.send(1, out.data(), out.size());
  ASSERT_TRUE(ends.move());
  take(sent);
  take(received);
  EXPECT_TRUE(in == out);
}

TEST(TcpLink, AnotherLengthIsAProblemOfItsReceive) {
  Ends ends;
  std::vector<char> out(9000, 'o'), in(9000, 'i');
  for (size_t bytes : {3u, 8000u}) {
    TcpOperation *received = ends.one.receive(1, in.data(), bytes);
    TcpOperation *sent = ends.other.send(1, out.data(), bytes + 1);
    ASSERT_TRUE(ends.move());
    take(sent);
    EXPECT_EQ(received->problem, "a message of " + std::to_string(bytes + 1) +
                                     " bytes arrived, expected " +
                                     std::to_string(bytes));
    delete received;
  }
  EXPECT_EQ(in, std::vector<char>(9000, 'i'));
}

/// Many messages on some tags both ways, with receives in any order: nothing
/// stands still, and every tag keeps its order.
TEST(TcpLink, MessagesOfAllSizesInAnyOrder) {
  for (int seed = 0; seed < 20; ++seed) {
    std::mt19937 random{unsigned(seed)};
    Ends ends;
    constexpr int count = 120, tags = 4;
    struct Pair {
      std::vector<char> out, in;
      TcpOperation *sent = nullptr, *received = nullptr;
      bool isSent = false, isAsked = false;
    };
    std::map<std::pair<int, int>, std::vector<Pair>> all;
    for (int i = 0; i < count; ++i) {
      const size_t sizes[] = {0, 1, 64, 4096, 4097, 70000};
      size_t bytes = sizes[random() % 6];
      Pair &pair =
          all[{int(random() % 2), int(random() % tags)}].emplace_back();
      pair.out = content(bytes, seed * count + i);
      pair.in.resize(bytes);
    }
    int left = 2 * count;
    while (left > 0) {
      auto &[key, pairs] = *std::next(all.begin(), random() % all.size());
      bool sends = random() % 2;
      for (Pair &pair : pairs) {
        if (sends ? pair.isSent : pair.isAsked)
          continue;
        (sends ? pair.isSent : pair.isAsked) = true;
        TcpLink &from = key.first ? ends.one : ends.other;
        TcpLink &to = key.first ? ends.other : ends.one;
        if (sends)
          pair.sent = from.send(key.second, pair.out.data(), pair.out.size());
        else
          pair.received =
              to.receive(key.second, pair.in.data(), pair.in.size());
        --left;
        break;
      }
      if (random() % 4 == 0) {
        ASSERT_TRUE(ends.one.read() && ends.other.write());
      }
      if (random() % 4 == 0) {
        ASSERT_TRUE(ends.other.read() && ends.one.write());
      }
    }
    ASSERT_TRUE(ends.move());
    for (auto &[key, pairs] : all)
      for (Pair &pair : pairs) {
        take(pair.sent);
        take(pair.received);
        EXPECT_TRUE(pair.in == pair.out);
      }
    EXPECT_LE(ends.one.mostHeldYet(), TcpLink::mostHeld);
    EXPECT_LE(ends.other.mostHeldYet(), TcpLink::mostHeld);
  }
}

/// Messages that have come can be received when the other side is gone; other
/// receives stay as they are, and can be given up.
TEST(TcpLink, TheOtherSideIsGone) {
  Ends ends;
  char letter = 'c', heard = 0, never = 0;
  take(ends.other.send(1, &letter, 1));
  std::vector<char> out(100000);
  TcpOperation *sent = ends.one.send(2, out.data(), out.size());
  TcpOperation *asked = ends.one.receive(3, &never, 1);
  ASSERT_TRUE(ends.move());
  ends.other.close();
  EXPECT_FALSE(ends.move());
  ends.one.close();
  EXPECT_TRUE(ends.one.isGone());
  take(ends.one.receive(1, &heard, 1));
  EXPECT_EQ(heard, 'c');
  EXPECT_FALSE(sent->done);
  EXPECT_EQ(sent->link, nullptr);
  EXPECT_FALSE(asked->done);
  delete sent;
  delete asked;
  TcpOperation *later = ends.one.send(1, &letter, 1);
  EXPECT_FALSE(later->done);
  delete later;
}

TEST(TcpLink, WhatNoProcessSaysEndsTheConnection) {
  struct {
    uint32_t kind;
    int32_t tag;
    uint64_t number;
  } const heads[] = {
      {99, 0, 0},                      // no kind
      {1, 0, (uint64_t(1) << 26) + 1}, // too long
      {2, 0, TcpLink::smallBytes + 1}, // not small
      {3, 0, 0},                       // the end of nothing
      {5, 0, 1},                       // credit that was not used
  };
  for (const auto &head : heads) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    TcpLink link{1};
    link.open(Connection(Socket(pair[0])), /*connects=*/false);
    ASSERT_EQ(::write(pair[1], &head, sizeof(head)), ssize_t(sizeof(head)));
    EXPECT_FALSE(link.read()) << "kind " << head.kind;
    ::close(pair[1]);
  }
}

} // namespace
