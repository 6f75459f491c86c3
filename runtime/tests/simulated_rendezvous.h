//===- simulated_rendezvous.h - Thousands of processes that meet ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rendezvous of a run in one process: the runtime's own handshakes,
// Receptions, Arrivals and Newcomers over connections that are events in a
// queue, and a clock that jumps from one to the next. Bytes keep their order on
// a connection and take random times. Process 0 takes time for what it does,
// and looks at what came meanwhile in the next turn, as its loop does.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_SIMULATED_RENDEZVOUS_H
#define GRT_TESTS_SIMULATED_RENDEZVOUS_H

#include "base/error.h"
#include "comm/arrivals.h"
#include "comm/receptions.h"
#include "event_queue.h"

#include <cerrno>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace grt::test {

struct SimulatedRendezvousOptions {
  Rendezvous at; ///< of process 0; the others' have their rank
  /// Seconds from the start of process 0 within which all others start.
  double spread = 3;
  double longestDelay = 0.002; ///< of bytes on a connection
  double stepCost = 20e-6;     ///< of process 0, for a peer in a turn
  unsigned seed = 1;
};

class SimulatedRendezvous : public Streams, public ArrivalsEnvironment {
public:
  /// Limits of the runtime: accepted in one turn, waiting to be accepted,
  /// pauses between attempts, and the limits of one.
  static constexpr size_t perTurn = 64, backlogLimit = 4096;
  static constexpr double again = 0.1, patience = 5, synAgain = 1;

  struct Peer {
    Peer(const Rendezvous &where) : at(where), newcomer(at) {}
    const Rendezvous at;
    Newcomer newcomer;
    std::optional<ConnectingSide> side;
    int connection = -1;
    bool dead = false;
    bool begun = false; ///< process 0 has told it that the run begins
    double deadline = 0;
    int attempts = 0;
    std::string last;
    // These tell what became of the peer.
    std::optional<Membership> membership;
    int code = -1; ///< with which it ended
    std::string problem;
    double ended = 0;
  };

  explicit SimulatedRendezvous(const SimulatedRendezvousOptions &options)
      : options(options), at(options.at), engine(options.seed),
        trust{at.secret, "rendezvous"}, arrivals(at, *this, time(0)) {
    turnSoon();
  }

  /// A process of the run, which starts at `when`; its number here.
  int add(int rank, double when,
          const std::function<void(Rendezvous &)> &change = {}) {
    Rendezvous own = at;
    own.rank = rank;
    if (change)
      change(own);
    peers.push_back(std::make_unique<Peer>(own));
    const int number = int(peers.size()) - 1;
    this->when(when, [this, number] {
      Peer &peer = *peers[size_t(number)];
      peer.deadline = now + peer.at.seconds;
      connect(number);
    });
    return number;
  }
  /// Adds all processes but some.
  void addAll(const std::set<int> &but = {}) {
    for (int rank = 1; rank < at.size; ++rank)
      if (!but.count(rank))
        add(rank, random(0, options.spread));
  }
  /// Its connection closes, and it does nothing more.
  void kill(int number) {
    Peer &peer = *peers[size_t(number)];
    peer.dead = true;
    if (peer.connection >= 0)
      hangUp(peer.connection, /*byRoot=*/false);
  }

  /// Adds a peer that does not belong to the run, from `when` on.
  void addStranger(double when) {
    this->when(when, [this] {
      const unsigned kind = engine() % 6;
      const int connection = open(-1);
      auto says = [this, connection](std::string text) {
        carry(connection, std::move(text), /*byRoot=*/false);
      };
      // The others are silent.
      if (kind == 1)
        says("GET / HTTP/1.1\r\nHost: alpha\r\n\r\n");
      if (kind == 2)
        says("GRTHELO2" + std::string(16, 'n')); // half an opening
      if (kind == 3)                             // a proof that is none
        says("GRTHELO2" + std::string(32, 'n') + std::string("\4\0\0\0", 4) +
             std::string(36, 'x'));
      if (kind == 4) {
        Trust other{"another secret", trust.purpose};
        says(std::move(ConnectingSide(other, "claim", 100).outgoing));
        connections[connection].leaves = true;
      }
      if (kind == 5)
        hangUp(connection, /*byRoot=*/false);
    });
  }

  void when(double moment, std::function<void()> act) {
    events.add(moment, std::move(act));
  }
  double random(double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(engine);
  }

  /// Runs until no process has anything to do, or until `until`.
  void run(double until = 1e6) {
    events.run(until, [&](double when) { now = std::max(now, when); });
  }

  bool isDone() const { return !contacts.empty() || !failure.empty(); }

  // These tell what became of process 0.
  std::map<int, Contact> contacts; ///< as Membership::contacts
  std::string key, failure;
  int size = 0;
  double doneAt = 0;
  // These are the costs of the rendezvous.
  uint64_t sentBytes = 0, looks = 0, accepted = 0;
  size_t mostWaiting = 0;

  double now = 0;
  std::vector<std::unique_ptr<Peer>> peers;
  const SimulatedRendezvousOptions options;
  const Rendezvous at;
  std::mt19937 engine;

  static Contact contactOf(int rank) {
    Contact contact;
    contact.count = 1;
    contact.endpoints[0].address[15] = uint8_t(rank);
    contact.endpoints[0].address[14] = uint8_t(rank >> 8);
    contact.endpoints[0].address[0] = 0xfd;
    contact.endpoints[0].port = uint16_t(1000 + rank);
    return contact;
  }
  const Dropped &dropped() const { return counts; }

private:
  struct Line {
    int peer = -1; ///< -1: a stranger's
    std::string toRoot, toPeer;
    bool rootClosed = false, peerClosed = false; ///< as the other side sees it
    bool leaves = false; ///< once process 0 has said something
    double lastToRoot = 0, lastToPeer = 0;
  };
  static Clock::time_point time(double seconds) {
    return Clock::time_point(std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(1e6 + seconds)));
  }
  static double seconds(Clock::time_point when) {
    return std::chrono::duration<double>(when.time_since_epoch()).count() - 1e6;
  }

  //===--------------------------------------------------------------------===//
  // Connections
  //===--------------------------------------------------------------------===//

  int open(int peer) {
    const int connection = ++lastConnection;
    connections[connection].peer = peer;
    when(now + random(0.0001, options.longestDelay),
         [this, connection] { arriveAtRoot(connection); });
    return connection;
  }
  /// A connection comes to process 0.
  void arriveAtRoot(int connection) {
    if (listens && backlog.size() >= backlogLimit) {
      // The kernel asks again.
      when(now + synAgain, [this, connection] { arriveAtRoot(connection); });
      return;
    }
    if (!listens)
      return refused(connection);
    backlog.push_back(connection);
    mostWaiting = std::max(mostWaiting, backlog.size());
    turnSoon();
  }
  void refused(int connection) {
    auto at = connections.find(connection);
    if (at == connections.end())
      return;
    const int number = at->second.peer;
    connections.erase(at);
    if (number >= 0 && peers[size_t(number)]->connection == connection)
      retry(number, "Connection refused");
  }

  void carry(int connection, std::string bytes, bool byRoot) {
    Line &line = connections[connection];
    double &last = byRoot ? line.lastToPeer : line.lastToRoot;
    last = std::max(last, now + random(0.0001, options.longestDelay));
    when(last, [this, connection, bytes = std::move(bytes), byRoot] {
      auto at = connections.find(connection);
      if (at == connections.end())
        return;
      if (byRoot) {
        at->second.toPeer += bytes;
        peerReads(connection);
      } else {
        at->second.toRoot += bytes;
        turnSoon();
      }
    });
  }
  /// Closes a connection behind all that was sent on it before.
  void hangUp(int connection, bool byRoot) {
    Line &line = connections[connection];
    double &last = byRoot ? line.lastToPeer : line.lastToRoot;
    last = std::max(last, now + random(0.0001, options.longestDelay));
    when(last, [this, connection, byRoot] {
      auto at = connections.find(connection);
      if (at == connections.end())
        return;
      if (!byRoot) {
        at->second.peerClosed = true;
        turnSoon();
        return;
      }
      at->second.rootClosed = true;
      peerReads(connection);
    });
  }

  //===--------------------------------------------------------------------===//
  // Process 0
  //===--------------------------------------------------------------------===//

  ssize_t send(int connection, std::string_view bytes) override {
    sentBytes += bytes.size();
    carry(connection, std::string(bytes), /*byRoot=*/true);
    return ssize_t(bytes.size());
  }
  ssize_t receive(int connection, char *to, size_t bytes) override {
    Line &line = connections[connection];
    if (line.toRoot.empty()) {
      if (line.peerClosed)
        return 0;
      errno = EAGAIN;
      return -1;
    }
    bytes = std::min(bytes, line.toRoot.size());
    std::copy_n(line.toRoot.begin(), bytes, to);
    line.toRoot.erase(0, bytes);
    return ssize_t(bytes);
  }
  void close(int connection) override { hangUp(connection, /*byRoot=*/true); }

  bool isThere(int guest) override {
    ++looks;
    return !connections[guest].peerClosed;
  }
  void answer(int guest, bool refused, const std::string &text) override {
    send(guest, answerBytes(trust, transcripts[guest], refused, text));
    if (const int number = connections[guest].peer; number >= 0 && !refused)
      peers[size_t(number)]->begun = true;
    hangUp(guest, /*byRoot=*/true);
  }

  void turnSoon() {
    if (turning || isDone())
      return;
    turning = true;
    when(std::max(now, freeAt), [this] { turn(); });
  }

  void turn() {
    turning = false;
    if (isDone())
      return;
    double cost = 0;
    for (size_t i = 0; i < perTurn && !backlog.empty(); ++i) {
      ++accepted;
      receptions->admit(backlog.front(), time(now));
      backlog.pop_front();
      cost += options.stepCost;
    }
    while (std::optional<Receptions::Proven> proven =
               receptions->advance(time(now))) {
      transcripts[proven->descriptor] = proven->transcript;
      arrivals.take(proven->descriptor, proven->claim);
      cost += options.stepCost;
    }
    freeAt = now + cost;
    counts = receptions->dropped();
    switch (arrivals.look(time(now))) {
    case Arrivals::State::Late:
      failure = arrivals.refuseAll(dropped().text());
      return end();
    case Arrivals::State::Complete: {
      const std::string session = newSession();
      key = sessionKey(at, session);
      size = arrivals.size();
      contacts = arrivals.begin(session, contactOf(0));
      return end();
    }
    case Arrivals::State::Waiting:
      break;
    }
    if (!backlog.empty())
      turnSoon();
    // The loop wakes up for handshakes that are late, and for its own deadline.
    double wake = seconds(arrivals.wakeAt());
    if (!receptions->empty())
      wake = std::min(wake, now + 0.2);
    if (wake < wakeAt || wakeAt <= now) {
      wakeAt = wake;
      when(wake + 1e-6, [this] { turnSoon(); });
    }
  }

  void end() {
    doneAt = now;
    listens = false;
    receptions.reset();
    for (int connection : std::exchange(backlog, {}))
      when(now + options.longestDelay,
           [this, connection] { refused(connection); });
  }

  //===--------------------------------------------------------------------===//
  // The others
  //===--------------------------------------------------------------------===//

  void connect(int number) {
    Peer &peer = *peers[size_t(number)];
    if (peer.dead || peer.code >= 0 || peer.membership)
      return;
    ++peer.attempts;
    peer.side.emplace(trust, peer.newcomer.claim(contactOf(peer.at.rank)),
                      peer.newcomer.longestAnswer());
    const int connection = peer.connection = open(number);
    carry(connection, std::exchange(peer.side->outgoing, {}), /*byRoot=*/false);
    when(now + patience, [this, number, connection] {
      Peer &peer = *peers[size_t(number)];
      if (peer.connection == connection && !peer.side->isChallenged())
        abandon(number);
    });
    when(peer.deadline + patience, [this, number, connection] {
      if (peers[size_t(number)]->connection == connection)
        abandon(number);
    });
  }
  void abandon(int number) {
    Peer &peer = *peers[size_t(number)];
    if (peer.dead)
      return;
    hangUp(peer.connection, /*byRoot=*/false);
    retry(number, peer.side->problem());
  }
  void retry(int number, const std::string &why) {
    Peer &peer = *peers[size_t(number)];
    peer.connection = -1;
    if (peer.dead)
      return;
    if (now >= peer.deadline) {
      peer.code = ExitPeerLost;
      peer.problem = "did not meet process 0: " + why;
      peer.ended = now;
      return;
    }
    when(now + again, [this, number] { connect(number); });
  }

  void peerReads(int connection) {
    Line &line = connections[connection];
    if (line.peer < 0) {
      if (line.leaves && !line.toPeer.empty()) {
        line.leaves = false;
        hangUp(connection, /*byRoot=*/false);
      }
      return;
    }
    const int number = line.peer;
    Peer &peer = *peers[size_t(number)];
    if (peer.dead || peer.connection != connection)
      return;
    while (!line.toPeer.empty()) {
      const size_t part = std::min(line.toPeer.size(), peer.side->wanted());
      std::string bytes = line.toPeer.substr(0, part);
      line.toPeer.erase(0, part);
      const ConnectingSide::State state = peer.side->received(bytes);
      if (!peer.side->outgoing.empty())
        carry(connection, std::exchange(peer.side->outgoing, {}),
              /*byRoot=*/false);
      if (state == ConnectingSide::State::Failed)
        return abandon(number);
      if (state == ConnectingSide::State::Answered)
        return hear(number);
    }
    if (line.rootClosed)
      retry(number, peer.side->problem());
  }
  void hear(int number) {
    Peer &peer = *peers[size_t(number)];
    peer.ended = now;
    peer.connection = -1;
    try {
      peer.membership = peer.newcomer.hear(peer.side->isRefused(),
                                           peer.side->text(), peer.last);
      if (!peer.membership)
        retry(number, peer.last);
    } catch (const Error &error) {
      peer.code = error.exitCode();
      peer.problem = error.what();
    }
  }

  EventQueue events;
  std::unordered_map<int, Line> connections;
  std::unordered_map<int, std::string> transcripts;
  int lastConnection = 0;
  std::deque<int> backlog;
  bool listens = true, turning = false;
  double freeAt = 0, wakeAt = -1;
  const Trust trust;
  std::optional<Receptions> receptions{std::in_place, *this, trust};
  Dropped counts;
  Arrivals arrivals;
};

} // namespace grt::test

#endif // GRT_TESTS_SIMULATED_RENDEZVOUS_H
