//===- monitor.cpp - Whether all processes are alive and move -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/monitor.h"
#include "comm/handshake.h"
#include "comm/secret.h"
#include "core/activity.h"
#include "core/error.h"
#include "core/random.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <fstream>
#include <mutex>
#include <optional>
#include <poll.h>
#include <thread>
#include <unistd.h>

namespace grt {
namespace {

double secondsSince(Clock::time_point time) {
  return std::chrono::duration<double>(Clock::now() - time).count();
}

/// What is sent over a connection.
enum class Kind : uint32_t {
  Beat,    ///< what the ranks of the sender do
  Ask,     ///< from process 0: a beat at once, please
  Failed,  ///< to process 0: exit code and message
  Stop,    ///< from process 0: the same
  Leaving, ///< the connection will close, and that is no failure
};

/// Begins the text of a beat, and that of a failure.
struct BeatHead {
  int32_t firstRank;
};
struct FailureHead {
  int32_t exitCode;
};

/// Beats come about every second; a process is late after this many.
constexpr double lateBeat = 1.9;

/// How long a lost process's peers get to come to wait for it.
constexpr double lostGrace = 0.4;

/// A rank as its process last described it.
struct RankReport {
  static constexpr size_t mostPeers = 16;
  uint64_t progress = 0;
  uint32_t busy = 0, waiting = 0;
  uint32_t peerCount = 0;
  int32_t peers[mostPeers] = {};
  char doing[236] = "";

  bool waitsFor(int first, int count) const {
    return std::any_of(
        peers, peers + std::min<size_t>(peerCount, mostPeers),
        [&](int peer) { return peer >= first && peer < first + count; });
  }
};

/// Ranks that a message describes; more would hide the first ones.
constexpr int mostDescribed = 8;

/// Who a process is; exchanged at the start.
struct Identity {
  char host[64];
  /// Of the running kernel and the network that the process sees: processes
  /// with equal ones reach each other by the loopback. Empty if unknown.
  char network[64];
  int32_t process, pid;
};

/// What process 0 tells the others once.
struct Invitation {
  Contact contact;
  char key[codeBytes] = {};
};

/// To connect all processes to process 0.
constexpr double hubSeconds = 30;
constexpr const char *monitorPurpose = "monitor";

std::string networkIdentity() {
  char boot[37] = "", space[64] = "";
  std::ifstream("/proc/sys/kernel/random/boot_id").read(boot, 36);
  ssize_t length = ::readlink("/proc/self/ns/net", space, sizeof(space) - 1);
  return *boot && length > 0 ? std::string(boot) + " " + space : "";
}

void copyText(char *to, size_t capacity, const std::string &text) {
  size_t length = std::min(capacity - 1, text.size());
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}

std::string rankList(int first, int count) {
  if (count == 0)
    return "no rank";
  if (count == 1)
    return "rank " + std::to_string(first);
  return "ranks " + std::to_string(first) + " to " +
         std::to_string(first + count - 1);
}

/// Set by SIGTERM, with which mpirun ends the processes that a dead one leaves
/// behind. Whoever knows of a failure within `termGrace` reports that instead.
volatile std::sig_atomic_t terminated = 0;
constexpr double termGrace = 0.5;

} // namespace

struct Monitor::Implementation {
  Implementation(Transport &transport, const MonitorOptions &options);
  ~Implementation();

  struct Peer {
    Identity identity{};
    Connection connection;
    bool leaving = false, gone = false;
    Clock::time_point heard = Clock::now();
    int firstRank = 0;
    std::vector<RankReport> ranks;
  };

  std::string hubPlaces(const std::vector<Identity> &all) const;
  void serve();
  void beat();
  void judge();
  void received(Peer &peer, const Message &message);
  void lost(Peer &peer, const std::string &how);
  void explainLost();
  void report(const Failure &found, bool tellProcess0);
  void speak(const std::string &message);
  void snapshot(std::vector<RankReport> &into);
  template <typename Visit> void forEachRank(Visit visit) const;
  std::string waiters(int first, int count) const;
  std::string name(const Peer &peer) const;
  void wake() { (void)!::write(pipe[1], "", 1); }
  bool isHub() const { return self == 0; }

  Transport &transport;
  const MonitorOptions options;
  const int self;
  Identity identity{};
  /// At process 0 all others, else process 0.
  std::vector<Peer> peers;
  /// The ranks of this process, as process 0 sees those of others.
  Peer own;
  int pipe[2] = {-1, -1};

  mutable std::mutex mutex;
  std::condition_variable changed;
  ProcessWorld *world = nullptr;
  std::span<const std::unique_ptr<Activity>> activities;
  std::deque<Failure> outgoing; ///< of this process, to be judged
  std::optional<Failure> failure;
  Clock::time_point failedAt;
  bool reported = false, closing = false;
  bool watched = false; ///< by a new world: all should know of its ranks
  /// A process that is gone, until it is known who waits for it.
  Peer *missing = nullptr;
  std::string missingHow;
  Clock::time_point missedAt;
  Clock::time_point lastBeat{}, lastMove = Clock::now(), termAt{};
  uint64_t lastProgress = 0;
  std::thread thread;
};

Monitor::Implementation::Implementation(Transport &transport,
                                        const MonitorOptions &options)
    : transport(transport), options(options), self(transport.process()) {
  gethostname(identity.host, sizeof(identity.host) - 1);
  identity.process = self;
  identity.pid = int32_t(getpid());
  copyText(identity.network, sizeof(identity.network), networkIdentity());
  std::vector<Identity> all(static_cast<size_t>(transport.processes()));
  transport.allGather(&identity, all.data(), sizeof(Identity));

  Invitation invitation;
  std::string key = transport.sessionKey();
  std::optional<Listener> listener;
  if (isHub()) {
    if (key.empty()) {
      key = randomBytes(codeBytes);
      std::memcpy(invitation.key, key.data(), codeBytes);
    }
    listener.emplace(listenEndpoints(hubPlaces(all), 0),
                     Trust{key, monitorPurpose});
    invitation.contact = contactOf(*listener);
  }
  transport.broadcast(&invitation, sizeof(invitation), 0);
  if (key.empty())
    key.assign(invitation.key, codeBytes);
  own.identity = identity;
  if (isHub()) {
    peers.resize(all.size() - 1);
    for (Peer &peer : peers)
      peer.identity = all[size_t(&peer - peers.data()) + 1];
    takeNumbered(*listener, int(peers.size()), hubSeconds,
                 [&](int number, Connection connection) {
                   peers.at(size_t(number) - 1).connection =
                       std::move(connection);
                 });
  } else {
    peers.resize(1);
    peers[0].identity = all[0];
    peers[0].connection =
        connectNumbered(invitation.contact, {key, monitorPurpose}, self,
                        hubSeconds, "process 0 by TCP");
  }
  if (::pipe2(pipe, O_CLOEXEC | O_NONBLOCK) != 0)
    grt::fail("cannot make a pipe: " + std::string(strerror(errno)));
  struct sigaction action{};
  if (sigaction(SIGTERM, nullptr, &action) == 0 &&
      action.sa_handler == SIG_DFL) {
    action.sa_handler = [](int) { terminated = 1; };
    sigaction(SIGTERM, &action, nullptr);
  }
  for (Peer &peer : peers)
    peer.heard = Clock::now();
  thread = std::thread([this] { serve(); });
}

Monitor::Implementation::~Implementation() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    closing = true;
  }
  wake();
  thread.join();
  ::close(pipe[0]);
  ::close(pipe[1]);
}

std::string
Monitor::Implementation::hubPlaces(const std::vector<Identity> &all) const {
  if (!options.listen.empty())
    return options.listen;
  if (std::string places = transport.hubPlaces(); !places.empty())
    return places;
  bool oneMachine =
      std::all_of(all.begin(), all.end(), [&](const Identity &other) {
        return *other.network &&
               std::strcmp(other.network, identity.network) == 0;
      });
  return oneMachine ? "127.0.0.1,::1" : "any";
}

std::string Monitor::Implementation::name(const Peer &peer) const {
  return "process " + std::to_string(peer.identity.process) + " (" +
         rankList(peer.firstRank, int(peer.ranks.size())) + ", pid " +
         std::to_string(peer.identity.pid) + " on '" + peer.identity.host +
         "')";
}

void Monitor::Implementation::serve() {
  std::vector<pollfd> descriptors;
  std::vector<Message> messages;
  while (true) {
    descriptors.assign(1, {pipe[0], POLLIN, 0});
    for (Peer &peer : peers)
      descriptors.push_back(
          {peer.gone ? -1 : peer.connection.descriptor(), POLLIN, 0});
    ::poll(descriptors.data(), descriptors.size(), missing ? 20 : 100);
    char drained[64];
    while (::read(pipe[0], drained, sizeof(drained)) > 0)
      ;
    for (size_t i = 0; i < peers.size(); ++i) {
      Peer &peer = peers[i];
      if (peer.gone || !descriptors[i + 1].revents)
        continue;
      messages.clear();
      bool open = peer.connection.read(messages);
      for (const Message &message : messages)
        received(peer, message);
      if (!open)
        lost(peer, "ended without a word");
    }
    {
      std::unique_lock<std::mutex> lock(mutex);
      if (closing && outgoing.empty()) {
        for (Peer &peer : peers)
          if (!peer.gone)
            peer.connection.send(uint32_t(Kind::Leaving), {});
        return;
      }
    }
    while (true) {
      Failure next;
      {
        std::lock_guard<std::mutex> lock(mutex);
        if (outgoing.empty())
          break;
        next = outgoing.front();
        outgoing.pop_front();
      }
      report(next, /*tellProcess0=*/true);
    }
    beat();
    judge();
  }
}

/// What this process's ranks are doing.
void Monitor::Implementation::snapshot(std::vector<RankReport> &into) {
  std::lock_guard<std::mutex> lock(mutex);
  into.clear();
  if (!world)
    return;
  own.firstRank = world->firstLocal();
  into.resize(size_t(world->localCount()));
  for (size_t i = 0; i < activities.size() && i < into.size(); ++i) {
    const Activity &activity = *activities[i];
    RankReport &report = into[i];
    report.progress = activity.progress.load(std::memory_order_relaxed);
    report.busy = activity.busy;
    report.waiting = activity.isWaiting();
    for (int peer : activity.awaited())
      if (report.peerCount < RankReport::mostPeers)
        report.peers[report.peerCount++] = peer;
    copyText(report.doing, sizeof(report.doing), activity.describe());
  }
}

void Monitor::Implementation::beat() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (watched)
      lastBeat = {};
    watched = false;
  }
  if (secondsSince(lastBeat) < 1)
    return;
  lastBeat = Clock::now();
  snapshot(own.ranks);
  BeatHead head{own.firstRank};
  std::string text(reinterpret_cast<const char *>(&head), sizeof(head));
  text.append(reinterpret_cast<const char *>(own.ranks.data()),
              own.ranks.size() * sizeof(RankReport));
  for (Peer &peer : peers)
    if (!peer.gone)
      peer.connection.send(uint32_t(Kind::Beat), text);
}

void Monitor::Implementation::received(Peer &peer, const Message &message) {
  peer.heard = Clock::now();
  switch (Kind(message.kind)) {
  case Kind::Beat:
    if (message.text.size() >= sizeof(BeatHead)) {
      BeatHead head{};
      std::memcpy(&head, message.text.data(), sizeof(head));
      peer.firstRank = head.firstRank;
      peer.ranks.resize((message.text.size() - sizeof(head)) /
                        sizeof(RankReport));
      // Before its first rank begins, a process has none to tell of.
      if (!peer.ranks.empty())
        std::memcpy(static_cast<void *>(peer.ranks.data()),
                    message.text.data() + sizeof(head),
                    peer.ranks.size() * sizeof(RankReport));
    }
    return;
  case Kind::Ask:
    lastBeat = {};
    return;
  case Kind::Leaving:
    peer.leaving = true;
    return;
  case Kind::Failed:
  case Kind::Stop: {
    FailureHead head{1};
    if (message.text.size() < sizeof(head))
      return;
    std::memcpy(&head, message.text.data(), sizeof(head));
    report({head.exitCode, message.text.substr(sizeof(head))},
           /*tellProcess0=*/false);
    return;
  }
  }
}

void Monitor::Implementation::lost(Peer &peer, const std::string &how) {
  peer.gone = true;
  if (peer.leaving || missing)
    return;
  missing = &peer;
  missingHow = how;
  missedAt = Clock::now();
  for (Peer &other : peers)
    if (!other.gone)
      other.connection.send(uint32_t(Kind::Ask), {});
}

void Monitor::Implementation::explainLost() {
  snapshot(own.ranks);
  std::string waiting = waiters(missing->firstRank, int(missing->ranks.size()));
  if (waiting.empty() && secondsSince(missedAt) < lostGrace) {
    // Those who do not wait yet will soon.
    for (Peer &other : peers)
      if (!other.gone)
        other.connection.send(uint32_t(Kind::Ask), {});
    return;
  }
  std::string text = name(*missing) + " " + missingHow;
  for (size_t i = 0; i < missing->ranks.size() && i < mostDescribed; ++i)
    text += "; rank " + std::to_string(missing->firstRank + int(i)) +
            " was last seen in " + missing->ranks[i].doing;
  report({ExitPeerLost, text + waiting}, /*tellProcess0=*/false);
}

/// Calls `visit(rank, report)` for every rank that is known of.
template <typename Visit>
void Monitor::Implementation::forEachRank(Visit visit) const {
  auto look = [&](const Peer &peer) {
    for (size_t i = 0; i < peer.ranks.size(); ++i)
      visit(peer.firstRank + int(i), peer.ranks[i]);
  };
  if (isHub())
    look(own);
  for (const Peer &peer : peers)
    look(peer);
  if (!isHub())
    look(own);
}

/// "; rank 0 waits for it: step 17, .." for the ranks that wait for one of
/// [first, first + count).
std::string Monitor::Implementation::waiters(int first, int count) const {
  std::string text;
  int described = 0;
  forEachRank([&](int rank, const RankReport &report) {
    bool lost = rank >= first && rank < first + count;
    if (!lost && report.busy && report.waitsFor(first, count) &&
        described++ < mostDescribed)
      text +=
          "; rank " + std::to_string(rank) + " waits for it: " + report.doing;
  });
  return text;
}

void Monitor::Implementation::judge() {
  std::optional<Failure> found;
  {
    std::lock_guard<std::mutex> lock(mutex);
    found = failure;
  }
  if (found) {
    if (secondsSince(failedAt) > options.patience) {
      // Some rank is in a place from which it does not come back.
      if (isHub() && !reported)
        speak(found->message);
      _exit(found->exitCode);
    }
    return;
  }
  if (missing)
    return explainLost();
  if (terminated) {
    if (termAt == Clock::time_point())
      termAt = Clock::now();
    else if (secondsSince(termAt) > termGrace)
      _exit(128 + SIGTERM);
  }
  for (Peer &peer : peers)
    if (!peer.gone && secondsSince(peer.heard) > options.silence) {
      char how[64];
      std::snprintf(how, sizeof(how), "gave no sign of life for %.0f s",
                    options.silence);
      lost(peer, how);
      return;
    }
  if (!isHub() || options.timeout <= 0)
    return;
  // Training is in step: where one rank stands still, soon all do.
  snapshot(own.ranks);
  uint64_t moved = 0;
  bool busy = false;
  int stuck = -1;
  std::string all;
  int described = 0;
  forEachRank([&](int rank, const RankReport &report) {
    moved += report.progress;
    if (!report.busy)
      return;
    busy = true;
    if (!report.waiting && stuck < 0)
      stuck = rank;
    if (described++ < mostDescribed)
      all += "; rank " + std::to_string(rank) + ": " + report.doing;
  });
  // A process that is heard of and whose ranks have nothing to do reads or
  // writes files, however long that takes; the others may wait for it.
  auto hasIdle = [](const Peer &peer) {
    return peer.ranks.empty() ||
           std::any_of(peer.ranks.begin(), peer.ranks.end(),
                       [](const RankReport &report) { return !report.busy; });
  };
  bool onStorage = hasIdle(own);
  for (const Peer &peer : peers)
    onStorage |= hasIdle(peer) && secondsSince(peer.heard) <= lateBeat;
  if (moved != lastProgress || !busy || onStorage) {
    lastProgress = moved;
    lastMove = Clock::now();
    return;
  }
  double seconds = secondsSince(lastMove);
  if (seconds < options.timeout)
    return;
  char limit[64];
  std::snprintf(limit, sizeof(limit), " progress for %g s", options.timeout);
  std::string text = "no rank makes" + (limit + all);
  if (stuck >= 0) {
    text = "rank " + std::to_string(stuck) + " makes no" + limit;
    forEachRank([&](int rank, const RankReport &report) {
      if (rank == stuck)
        text += std::string(": ") + report.doing;
    });
    text += waiters(stuck, 1);
  }
  for (const Peer &peer : peers)
    if (secondsSince(peer.heard) > lateBeat) {
      std::snprintf(limit, sizeof(limit), " was last heard of %.1f s ago",
                    secondsSince(peer.heard));
      text += "; " + name(peer) + limit;
    }
  report({ExitPeerLost, text}, /*tellProcess0=*/false);
}

void Monitor::Implementation::speak(const std::string &message) {
  std::fprintf(stderr, "%s: error: %s\n", options.tool.c_str(),
               message.c_str());
  std::fflush(stderr);
}

/// The first failure that arrives here stands. Process 0 prints and spreads it;
/// another process asks it to, or does without if it is gone.
void Monitor::Implementation::report(const Failure &found, bool tellProcess0) {
  ProcessWorld *toWake = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!failure) {
      failure = found;
      failedAt = Clock::now();
    } else if (!tellProcess0 || isHub() || reported) {
      // Also where process 0 has said what it found itself, and is gone since.
      return;
    }
    toWake = world;
    if (toWake)
      toWake->fail(found);
  }
  std::string text;
  FailureHead head{found.exitCode};
  text.assign(reinterpret_cast<const char *>(&head), sizeof(head));
  text += found.message;
  bool hubGone = !isHub() && peers[0].gone;
  if (isHub() || hubGone)
    speak(found.message);
  if (isHub())
    for (Peer &peer : peers) {
      if (!peer.gone)
        peer.connection.send(uint32_t(Kind::Stop), text);
    }
  else if (tellProcess0 && !hubGone)
    peers[0].connection.send(uint32_t(Kind::Failed), text);
  std::lock_guard<std::mutex> lock(mutex);
  if (isHub() || hubGone || !tellProcess0)
    reported = true;
  changed.notify_all();
}

Monitor::Monitor(Transport &transport, const MonitorOptions &options)
    : impl(std::make_unique<Implementation>(transport, options)) {}
Monitor::~Monitor() = default;

void Monitor::watch(ProcessWorld *world) {
  if (world)
    world->setWatcher([this](std::span<const std::unique_ptr<Activity>> ranks) {
      {
        std::lock_guard<std::mutex> lock(impl->mutex);
        impl->activities = ranks;
        impl->watched = true;
      }
      impl->wake();
    });
  std::lock_guard<std::mutex> lock(impl->mutex);
  impl->world = world;
  if (world && impl->failure)
    world->fail(*impl->failure);
}

void Monitor::fail(const Failure &failure) {
  {
    std::lock_guard<std::mutex> lock(impl->mutex);
    impl->outgoing.push_back(failure);
  }
  impl->wake();
}

void Monitor::waitUntilReported() {
  std::unique_lock<std::mutex> lock(impl->mutex);
  impl->changed.wait_for(lock, std::chrono::seconds(2),
                         [&] { return impl->reported; });
}

std::optional<Failure> Monitor::failure() const {
  std::lock_guard<std::mutex> lock(impl->mutex);
  return impl->failure;
}

void Monitor::close() {
  std::lock_guard<std::mutex> lock(impl->mutex);
  impl->closing = true;
}

} // namespace grt
