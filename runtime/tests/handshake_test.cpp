//===- handshake_test.cpp - Who may join a run ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Peers that are bad, many or silent, beside one that belongs to the run. Where
// time matters they never reach the limits of the run; no test asserts a time.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "base/random.h"
#include "base/sha256.h"
#include "comm/arrivals.h"
#include "comm/greeting.h"
#include "comm/handshake.h"
#include "comm/rendezvous.h"
#include "comm/secret.h"
#include "core/init.h"
#include "grt/processes.h"
#include "joining.h"
#include "launched.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>

using namespace grt;
using namespace grt::test;

namespace {

void say(const Socket &socket, std::string_view bytes) {
  sendAll(socket, bytes, after(20));
}

/// Returns the bytes that come until the other side closes, or for some time.
std::string hear(const Socket &socket, double seconds = 20) {
  std::string all;
  char byte;
  while (receiveAll(socket, &byte, 1, after(seconds)))
    all += byte;
  return all;
}

//===----------------------------------------------------------------------===//
// The handshake
//===----------------------------------------------------------------------===//

struct Introduced {
  Attempt attempt;
  std::string text, problem, heard;
};

/// Makes one connection to a listener that answers what it was told.
Introduced introduced(const Trust &listens, const Trust &connects,
                      const std::string &claim) {
  Listener listener({loopback()}, listens);
  Introduced result;
  std::atomic<bool> done = false;
  std::thread thread([&] {
    Socket socket = connected(listener.endpoints().at(0).port);
    result.attempt = introduce(connects, socket, claim, 1000, after(20),
                               result.text, result.problem);
    done = true;
  });
  while (!done)
    if (std::optional<Guest> guest = listener.next(after(0.05))) {
      result.heard = guest->claim;
      answer(listens, *guest, claim == "refuse me", "told " + guest->claim,
             after(20));
    }
  thread.join();
  return result;
}

TEST(Handshake, BothSidesHearEachOther) {
  Introduced good = introduced({secret, "p"}, {secret, "p"}, "me");
  EXPECT_EQ(good.attempt, Attempt::Done) << good.problem;
  EXPECT_EQ(good.heard, "me");
  EXPECT_EQ(good.text, "told me");
  EXPECT_EQ(introduced({"", "p"}, {"", "p"}, "").attempt, Attempt::Done);
  Introduced refused = introduced({secret, "p"}, {secret, "p"}, "refuse me");
  EXPECT_EQ(refused.attempt, Attempt::Refused);
  EXPECT_EQ(refused.text, "told refuse me");
}

/// Bytes that are sent at once may come in pieces.
TEST(Handshake, PiecesOfAnySize) {
  for (size_t most : {1, 5, 33, 1000}) {
    Trust trust{"secret", "test"};
    ListeningSide listening(trust);
    ConnectingSide connecting(trust, "claim", 100);
    auto give = [&](std::string bytes, auto &side) {
      auto state = side.received({});
      for (size_t at = 0; at < bytes.size();) {
        size_t count = std::min({most, side.wanted(), bytes.size() - at});
        state = side.received(std::string_view(bytes).substr(at, count));
        at += count;
      }
      return state;
    };
    EXPECT_EQ(give(connecting.outgoing, listening), ListeningSide::State::Open);
    EXPECT_EQ(give(listening.outgoing, connecting),
              ConnectingSide::State::Open);
    ASSERT_TRUE(connecting.isChallenged()) << most;
    EXPECT_EQ(give(connecting.outgoing, listening),
              ListeningSide::State::Claimed);
    EXPECT_EQ(listening.claim(), "claim");
    EXPECT_EQ(give(answerBytes(trust, listening.transcript(), /*refused=*/false,
                               "come in"),
                   connecting),
              ConnectingSide::State::Answered);
    EXPECT_EQ(connecting.text(), "come in");
    EXPECT_FALSE(connecting.isRefused());
  }
}

TEST(Handshake, AnotherKeyOrPurposeIsNone) {
  for (const Trust &other :
       {Trust{secret + "!", "p"}, {secret, "q"}, {"", "p"}}) {
    Introduced bad = introduced({secret, "p"}, other, "me");
    EXPECT_EQ(bad.attempt, Attempt::Failed);
    EXPECT_EQ(bad.heard, "");
    EXPECT_NE(bad.problem.find("secret"), std::string::npos) << bad.problem;
  }
}

/// All that either side says to one that does not know the key is random, or
/// proves something about random numbers.
TEST(Handshake, NothingIsToldBefore) {
  Listener listener({loopback()}, {secret, "p"});
  std::atomic<bool> done = false;
  std::thread server([&] {
    while (!done)
      EXPECT_FALSE(listener.next(after(0.05)));
  });
  uint16_t port = listener.endpoints().at(0).port;
  {
    Socket socket = connected(port);
    EXPECT_EQ(hear(socket, 0.2), "");
    say(socket, "GRTHELO2" + std::string(32, 'n'));
    EXPECT_EQ(hear(socket, 0.2).size(), 64u);
    say(socket, std::string("\4\0\0\0", 4) + "mine" + std::string(32, 'x'));
    EXPECT_EQ(hear(socket), "");
  }
  {
    // A claim that is longer than any is not waited for.
    Socket socket = connected(port);
    say(socket, "GRTHELO2" + std::string(32, 'n'));
    say(socket, std::string(4, '\xff'));
    EXPECT_EQ(hear(socket).size(), 64u);
  }
  done = true;
  server.join();
  EXPECT_EQ(listener.dropped().strangers, 2u);

  // The side that connects, to somebody who does not know the key.
  int problem = 0;
  Socket fake = listenAt(loopback(), problem);
  std::thread peer([&, port = localEndpoint(fake).port] {
    std::string text, why;
    EXPECT_EQ(introduce({secret, "p"}, connected(port), "my rank", 1000,
                        after(20), text, why),
              Attempt::Failed);
  });
  pollfd waiting = {fake.descriptor(), POLLIN, 0};
  ASSERT_EQ(::poll(&waiting, 1, 20000), 1);
  Socket taken(::accept4(fake.descriptor(), nullptr, nullptr,
                         SOCK_NONBLOCK | SOCK_CLOEXEC));
  std::string opening(40, 0);
  EXPECT_TRUE(receiveAll(taken, opening.data(), 40, after(20)));
  say(taken, std::string(64, 'y'));
  EXPECT_EQ(hear(taken), "");
  EXPECT_EQ(opening.substr(0, 8), "GRTHELO2");
  peer.join();
}

TEST(Handshake, ContactsAsBytes) {
  std::vector<Contact> contacts(3);
  contacts[1].count = 2;
  contacts[1].endpoints[0] = loopback(7);
  contacts[1].endpoints[1] = loopback(8);
  contacts[2].count = 1;
  contacts[2].endpoints[0] = loopback(9);
  std::string bytes = encode(contacts);
  EXPECT_EQ(bytes.size(), 3 + 3 * sizeof(Endpoint));
  std::optional<std::vector<Contact>> again = decodeContacts(bytes, 3);
  ASSERT_TRUE(again);
  EXPECT_EQ((*again)[0].count, 0u);
  EXPECT_EQ((*again)[1].endpoints[1], loopback(8));
  EXPECT_EQ((*again)[2].endpoints[0], loopback(9));
  EXPECT_FALSE(decodeContacts(bytes, 2));
  EXPECT_FALSE(decodeContacts(bytes, 4));
  EXPECT_FALSE(decodeContacts(bytes + '\0' + "x", 4));
  EXPECT_FALSE(
      decodeContacts(std::string(1, char(17)) + std::string(400, 0), 1));
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decodeContacts(std::string_view(bytes).substr(0, length), 3));
}

TEST(Handshake, ProcessesWithNumbers) {
  Listener listener({loopback()}, {secret, "p"});
  Contact contact = contactOf(listener);
  std::vector<std::thread> threads;
  for (int number : {3, 1, 2})
    threads.emplace_back([&, number] {
      Connection connection =
          connectNumbered(contact, {secret, "p"}, number, 20, "it");
      connection.send(uint32_t(number), "hello");
    });
  // Numbers that are none, and a key that is none.
  for (int number : {0, 4, -1})
    threads.emplace_back([&, number] {
      EXPECT_THROW(connectNumbered(contact, {secret, "p"}, number, 0.3, "it"),
                   Error);
    });
  threads.emplace_back([&] {
    EXPECT_THROW(connectNumbered(contact, {"other", "p"}, 2, 0.3, "it"), Error);
  });
  std::vector<Connection> connections(4);
  takeNumbered(listener, {1, 2, 3}, 20, [&](int number, Connection taken) {
    connections.at(size_t(number)) = std::move(taken);
  });
  for (std::thread &thread : threads)
    thread.join();
  for (int number : {1, 2, 3}) {
    std::vector<Message> messages;
    while (connections[size_t(number)].read(messages) && messages.empty())
      std::this_thread::yield();
    ASSERT_EQ(messages.size(), 1u);
    EXPECT_EQ(messages[0].kind, uint32_t(number));
  }
}

//===----------------------------------------------------------------------===//
// Bad peers beside good ones
//===----------------------------------------------------------------------===//

/// Disturbs process 0 while it waits; then process 1 comes, and both meet.
void expectHandshake(const std::function<void(uint16_t)> &disturb) {
  uint16_t port = freePort();
  Meeter first(at(0, 2, port, 60));
  awaitListener(port);
  disturb(port);
  Meeter second(at(1, 2, port, 60));
  second.end();
  first.end();
  EXPECT_EQ(first.problem, "");
  EXPECT_EQ(second.problem, "");
  EXPECT_EQ(first.processes, 2u);
  EXPECT_EQ(second.processes, 2u);
}

/// A loop that waits for other descriptors, too, wakes up for a peer that says
/// nothing more, and for nobody else.
TEST(BadPeers, ASilentOneInALoopOfOthers) {
  Listener listener({loopback()}, {secret, "p"});
  EXPECT_EQ(listener.lateMilliseconds(), -1);
  Socket silent = connected(listener.endpoints().at(0).port);
  std::vector<pollfd> polled;
  listener.addPolled(polled);
  ASSERT_GT(poll(polled.data(), polled.size(), 20000), 0);
  listener.accept(polled);
  EXPECT_FALSE(listener.advance());
  EXPECT_GT(listener.lateMilliseconds(), 0);
}

TEST(BadPeers, SilentOnes) {
  std::vector<Socket> open;
  expectHandshake([&](uint16_t port) {
    for (int i = 0; i < 1500; ++i)
      open.push_back(connected(port));
  });
}

TEST(BadPeers, Garbage) {
  expectHandshake([](uint16_t port) {
    for (int i = 0; i < 400; ++i) {
      Socket socket = connected(port);
      switch (i % 4) {
      case 0:
        say(socket, "GET / HTTP/1.1\r\nHost: alpha\r\n\r\n");
        break;
      case 1:
        say(socket, randomBytes(1000));
        break;
      case 2: // right until the proof
        say(socket, "GRTHELO2" + randomBytes(32));
        say(socket, std::string("\4\0\0\0", 4) + randomBytes(36));
        break;
      case 3: // an old version
        say(socket, std::string("GRTMEET1") + std::string(300, 0));
        break;
      }
    }
  });
}

TEST(BadPeers, AFloodThatGoesOn) {
  std::atomic<bool> done = false;
  std::vector<std::thread> floods;
  expectHandshake([&](uint16_t port) {
    for (int i = 0; i < 3; ++i)
      floods.emplace_back([&, port, i] {
        std::deque<Socket> open;
        std::string problem;
        while (!done) {
          open.push_back(connectTo(loopback(port), after(1), problem));
          if (open.back() && i == 1)
            say(open.back(), "GRTHELO2");
          if (open.back() && i == 2)
            say(open.back(), randomBytes(40));
          if (open.size() > 600)
            open.pop_front();
        }
      });
  });
  done = true;
  for (std::thread &flood : floods)
    flood.join();
}

TEST(BadPeers, WithoutDescriptorsTheOldestGiveWay) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  // This process has both ends, so half as many connections fit.
  rlimit few = {128, before.rlim_max};
  uint16_t port = freePort();
  Meeter first(at(0, 2, port, 60));
  awaitListener(port);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    std::vector<Socket> open;
    std::string problem;
    for (int i = 0; i < 200; ++i)
      if (Socket socket = connectTo(loopback(port), after(0.05), problem))
        open.push_back(std::move(socket));
    EXPECT_LT(open.size(), 200u);
    open.resize(open.size() / 2);
    // Process 1 is in this process too, and may find that process 0 has taken
    // the descriptors for connections that were waiting.
    for (int i = 0; i < 200; ++i) {
      Meeter second(at(1, 2, port, 60));
      second.end();
      problem = second.problem;
      if (problem.find(strerror(EMFILE)) == std::string::npos)
        break;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(problem, "");
  }
  first.end();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(first.problem, "");
}

/// Passes bytes on between those that connect to it and a port, so many at a
/// time, and remembers what those that connect say.
class Between {
public:
  Between(uint16_t to, size_t atATime) : to(to), atATime(atATime) {
    int problem = 0;
    socket = listenAt(loopback(), problem);
    thread = std::thread([this] { serve(); });
  }
  ~Between() {
    done = true;
    thread.join();
  }
  uint16_t port() const { return localEndpoint(socket).port; }
  std::string said() {
    std::lock_guard<std::mutex> lock(mutex);
    return recorded;
  }

private:
  void serve() {
    std::vector<std::pair<Socket, Socket>> pairs;
    std::string problem;
    while (!done) {
      Socket from(::accept4(socket.descriptor(), nullptr, nullptr,
                            SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (from)
        pairs.emplace_back(std::move(from),
                           connectTo(loopback(to), after(5), problem));
      for (auto &[one, other] : pairs) {
        pass(one, other, true);
        pass(other, one, false);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  void pass(Socket &from, Socket &onto, bool record) {
    char bytes[4096];
    if (!from || !onto)
      return;
    ssize_t got =
        ::recv(from.descriptor(), bytes, std::min(atATime, sizeof(bytes)), 0);
    if (got == 0) {
      Socket(std::move(from));
      Socket(std::move(onto));
    }
    if (got <= 0)
      return;
    if (record) {
      std::lock_guard<std::mutex> lock(mutex);
      recorded.append(bytes, size_t(got));
    }
    sendAll(onto, {bytes, size_t(got)}, after(5));
  }

  const uint16_t to;
  const size_t atATime;
  Socket socket;
  std::mutex mutex;
  std::string recorded;
  std::atomic<bool> done = false;
  std::thread thread;
};

TEST(BadPeers, OneByteAtATimeIsNoBadPeer) {
  uint16_t port = freePort();
  Between between(port, 1);
  Meeter first(at(0, 2, port)), second(at(1, 2, between.port()));
  first.end();
  second.end();
  EXPECT_EQ(first.problem, "");
  EXPECT_EQ(second.problem, "");
}

TEST(BadPeers, Replays) {
  std::string heard;
  {
    uint16_t port = freePort();
    Between between(port, 4096);
    Meeter first(at(0, 2, port)), second(at(1, 2, between.port()));
    second.end();
    first.end();
    ASSERT_EQ(second.problem, "");
    heard = between.said();
  }
  ASSERT_GT(heard.size(), 100u);
  uint16_t port = freePort();
  Meeter first(at(0, 2, port, 1));
  awaitListener(port);
  Socket socket = connected(port);
  say(socket, heard);
  EXPECT_EQ(hear(socket).size(), 64u);
  first.end();
  EXPECT_EQ(first.code, 4);
  EXPECT_NE(first.problem.find("1 of 2 processes did not come"),
            std::string::npos)
      << first.problem;
  EXPECT_NE(first.problem.find("missing RANK 1; dropped connections: 1 without "
                               "the secret"),
            std::string::npos)
      << first.problem;
}

//===----------------------------------------------------------------------===//
// Processes of other runs
//===----------------------------------------------------------------------===//

TEST(Membership, AnotherSecret) {
  uint16_t port = freePort();
  Rendezvous wrong = at(1, 2, port, 0.5);
  wrong.secret = "another secret of a run";
  Meeter first(at(0, 2, port)), stranger(wrong);
  stranger.end();
  Meeter second(at(1, 2, port));
  EXPECT_NE(stranger.problem.find(
                "what listens there does not know the secret of this run"),
            std::string::npos)
      << stranger.problem;
  wrong.secret.clear();
  Meeter none(wrong);
  none.end();
  second.end();
  first.end();
  EXPECT_NE(none.problem, "");
  EXPECT_EQ(first.problem, "");
  EXPECT_EQ(second.problem, "");
}

TEST(Membership, ASecondJobOnThePort) {
  uint16_t port = freePort();
  Meeter first(at(0, 3, port)), second(at(1, 3, port));
  awaitListener(port);
  Rendezvous other = at(0, 2, port, 1), others = at(1, 2, port, 1);
  other.run = others.run = "other";
  Meeter otherFirst(other), otherSecond(others);
  otherFirst.end();
  otherSecond.end();
  EXPECT_NE(otherFirst.problem.find("Address already in use"),
            std::string::npos)
      << otherFirst.problem;
  EXPECT_NE(otherSecond.problem.find("another run meets at 127.0.0.1:"),
            std::string::npos)
      << otherSecond.problem;
  Meeter third(at(2, 3, port));
  for (Meeter *meeter : {&first, &second, &third}) {
    meeter->end();
    EXPECT_EQ(meeter->problem, "");
  }
}

TEST(Membership, AStaleProcessIsTurnedAway) {
  uint16_t port = freePort();
  Rendezvous now = at(0, 2, port), stale = at(1, 2, port),
             right = at(1, 2, port);
  now.restart = right.restart = 3;
  stale.restart = 2;
  Meeter first(now), late(stale);
  late.end();
  EXPECT_EQ(late.problem, "the process with RANK=1 is of restart 2, process 0 "
                          "of restart 3");
  EXPECT_EQ(late.code, 2);
  Meeter second(right);
  second.end();
  first.end();
  EXPECT_EQ(first.problem, "");
  EXPECT_EQ(second.problem, "");
}

TEST(Membership, AStaleProcessZeroIsWaitedFor) {
  uint16_t port = freePort();
  Rendezvous right = at(1, 2, port);
  right.restart = 1;
  Meeter stale(at(0, 2, port, 0.5));
  awaitListener(port);
  Meeter second(right);
  stale.end();
  Rendezvous now = at(0, 2, port);
  now.restart = 1;
  Meeter first(now);
  second.end();
  first.end();
  EXPECT_NE(stale.problem, "");
  EXPECT_EQ(first.problem, "");
  EXPECT_EQ(second.problem, "");
}

/// Attempts of runs that start themselves again: who has missed restarts of the
/// others takes their number, whoever it is.
TEST(Membership, AttemptsCatchUp) {
  for (int late : {0, 1, 2}) {
    uint16_t port = freePort();
    std::deque<Meeter> meeters;
    for (int rank : {0, 1, 2}) {
      Rendezvous here = at(rank, 3, port);
      here.catchesUp = true;
      here.restart = rank == late ? 2 : 5;
      meeters.emplace_back(here);
    }
    for (Meeter &meeter : meeters) {
      meeter.end();
      EXPECT_EQ(meeter.problem, "") << late;
      EXPECT_EQ(meeter.processes, 3u);
    }
  }
}

TEST(Membership, ARunGoesOnWithFewer) {
  uint16_t port = freePort();
  auto fewer = [&](int rank) {
    Rendezvous here = at(rank, 5, port);
    here.smaller = {2, 1};
    here.graceSeconds = 1;
    here.restart = 1;
    return here;
  };
  // Three of five come; those that stay are numbered in their order.
  Meeter first(fewer(0)), third(fewer(2)), fifth(fewer(4));
  for (Meeter *meeter : {&first, &third, &fifth})
    meeter->end();
  EXPECT_EQ(first.problem, "");
  EXPECT_EQ(first.processes, 2u);
  EXPECT_EQ(first.rank, 0);
  EXPECT_EQ(third.problem, "");
  EXPECT_EQ(third.processes, 2u);
  EXPECT_EQ(third.rank, 1);
  EXPECT_EQ(fifth.code, exitSpare);
  EXPECT_EQ(fifth.problem, "3 of 5 processes came, and the run goes on with 2");
}

/// A process that is slow to come to the first attempt is not gone.
TEST(Membership, TheFirstAttemptWaitsForAll) {
  uint16_t port = freePort();
  auto fewer = [&](int rank) {
    Rendezvous here = at(rank, 3, port, 30);
    here.smaller = {2, 1};
    here.graceSeconds = 0;
    return here;
  };
  Meeter first(fewer(0)), second(fewer(1));
  awaitListener(port);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  Meeter third(fewer(2));
  for (Meeter *meeter : {&first, &second, &third}) {
    meeter->end();
    EXPECT_EQ(meeter->processes, 3u) << meeter->problem;
  }
}

TEST(Membership, WithEnoughNobodyIsLeftOut) {
  uint16_t port = freePort();
  std::deque<Meeter> meeters;
  for (int rank : {0, 1, 2}) {
    Rendezvous here = at(rank, 3, port);
    here.smaller = {2, 1};
    here.graceSeconds = 60;
    here.restart = 1;
    meeters.emplace_back(here);
  }
  for (Meeter &meeter : meeters) {
    meeter.end();
    EXPECT_EQ(meeter.processes, 3u) << meeter.problem;
  }
}

TEST(Membership, TooFewForAnyProgramAreWaitedFor) {
  uint16_t port = freePort();
  auto fewer = [&](int rank) {
    Rendezvous here = at(rank, 4, port, 30);
    here.smaller = {3};
    here.graceSeconds = 0;
    here.restart = 1;
    return here;
  };
  Meeter first(fewer(0)), second(fewer(1));
  awaitListener(port);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  Meeter third(fewer(3));
  for (Meeter *meeter : {&first, &second, &third}) {
    meeter->end();
    EXPECT_EQ(meeter->processes, 3u) << meeter->problem;
  }
  EXPECT_EQ(third.rank, 2);
}

TEST(Membership, AProcessThatDiesMakesRoomForItsSuccessor) {
  uint16_t port = freePort();
  Meeter first(at(0, 3, port));
  awaitListener(port);
  {
    // This process comes, and ends before all have.
    Socket socket = connected(port);
    std::string text, problem;
    struct {
      uint64_t run, restart;
      int32_t rank, size;
      Contact contact;
    } claim = {hashName("run"), 0, 2, 3, {}};
    EXPECT_EQ(introduce({secret, "rendezvous"}, socket,
                        {reinterpret_cast<const char *>(&claim), sizeof(claim)},
                        100000, after(0.3), text, problem),
              Attempt::Failed);
  }
  Meeter second(at(1, 3, port)), third(at(2, 3, port));
  for (Meeter *meeter : {&first, &second, &third}) {
    meeter->end();
    EXPECT_EQ(meeter->problem, "");
  }
}

/// Returns the message of process 0 of so many under these limits, and its
/// limit then; in a process of its own, since a lowered limit cannot be raised
/// again.
std::string beginWithDescriptors(int size, rlim_t soft, rlim_t hard) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  uint16_t port = freePort();
  pid_t child = fork();
  if (child == 0) {
    rlimit limit = {soft, hard};
    setrlimit(RLIMIT_NOFILE, &limit);
    std::string text;
    try {
      joinRun(at(0, size, port, 0.05));
    } catch (const Error &error) {
      text = std::to_string(error.exitCode()) + " " + error.what();
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    text = std::to_string(limit.rlim_cur) + " " + text;
    [[maybe_unused]] ssize_t wrote = write(ends[1], text.data(), text.size());
    _exit(0);
  }
  close(ends[1]);
  std::string text(4096, 0);
  ssize_t got = read(ends[0], text.data(), text.size());
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return text.substr(0, size_t(std::max<ssize_t>(got, 0)));
}

TEST(Membership, ProcessZeroHasADescriptorForEach) {
  EXPECT_EQ(beginWithDescriptors(500, 200, 400),
            "200 2 this process needs 564 descriptors while the others come, "
            "its hard limit is 400 (ulimit -Hn)");
  EXPECT_EQ(beginWithDescriptors(500, 200, 700).find("700 4 499 of 500"), 0u);
  EXPECT_EQ(beginWithDescriptors(500, 200, 4000).find("1076 4 499 of 500"), 0u);
  EXPECT_EQ(beginWithDescriptors(100, 200, 4000).find("200 4 99 of 100"), 0u);
}

} // namespace
