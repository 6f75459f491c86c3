//===- monitor.cpp - Whether all processes are alive and move -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/monitor.h"
#include "base/error.h"
#include "base/random.h"
#include "base/signal_stack.h"
#include "comm/activity.h"
#include "comm/failure_detector.h"
#include "comm/handshake.h"
#include "comm/secret.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <optional>
#include <poll.h>
#include <thread>
#include <unistd.h>

namespace grt {
namespace {

/// Identity of a process; exchanged at the start.
struct Identity {
  char host[64];
  char network[64]; ///< networkIdentity()
  int32_t process, pid;
};

/// Process 0's contact and the monitor's key, which it sends to the others
/// once.
struct Invitation {
  Contact contact;
  char key[codeBytes] = {};
};

/// Ports of a relay on the loopback; 0: none of that kind.
struct RelayPorts {
  uint16_t ipv4 = 0, ipv6 = 0;
};

/// Seconds to connect all processes to those they report to, and, later, to
/// call process 0 and to answer a call.
constexpr double hubSeconds = 30, callSeconds = 5, answerSeconds = 5;
constexpr const char *monitorPurpose = "monitor";
constexpr const char *loopback = "127.0.0.1,::1";

std::string relayPurpose(int relay) {
  return "monitor of process " + std::to_string(relay);
}

void copyText(char *to, size_t capacity, const std::string &text) {
  size_t length = std::min(capacity - 1, text.size());
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}

RelayPorts portsOf(const Listener &listener) {
  RelayPorts ports;
  for (const Endpoint &endpoint : listener.endpoints())
    (endpoint.isMappedIpv4() ? ports.ipv4 : ports.ipv6) = endpoint.port;
  return ports;
}

Contact contactAt(const RelayPorts &ports) {
  Contact contact;
  auto add = [&](const char *address, uint16_t port) {
    std::string problem;
    if (port)
      for (const Endpoint &endpoint : resolve(address, port, problem))
        contact.endpoints[contact.count++] = endpoint;
  };
  add("127.0.0.1", ports.ipv4);
  add("::1", ports.ipv6);
  return contact;
}

/// SIGTERM sets this flag; mpirun ends with it the processes that a dead one
/// leaves behind. A signal's handler runs on any thread.
std::atomic<bool> terminated = false;
static_assert(std::atomic<bool>::is_always_lock_free);

} // namespace

struct Monitor::Implementation final : DetectorEnvironment {
  Implementation(Transport &transport, const MonitorOptions &options);
  ~Implementation() override;

  void send(int process, WatchKind kind, std::string_view text) override {
    connections.at(process).send(uint32_t(kind), text);
  }
  void callRoot() override;
  void describe(int &firstRank, std::vector<RankReport> &ranks) override;
  std::string whereIs(int process) const override {
    return "pid " + std::to_string(all[size_t(process)].pid) + " on '" +
           hostName(process) + "'";
  }
  std::string hostName(int process) const override {
    return all[size_t(process)].host;
  }
  void wakeRanks(const Failure &found) override;
  void speak(const std::string &message) override;
  void allTold() override;
  void end(int exitCode) override {
    if (options.ownsProcess)
      _exit(exitCode);
    hasEnded = true;
  }

  std::string hubPlaces() const;
  void connectAll(const HostTree &tree);
  void serve();
  void welcome();
  void wake() { (void)!::write(pipe[1], "", 1); }
  double now() const {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  Transport &transport;
  const MonitorOptions options;
  const int self;
  const Clock::time_point begin = Clock::now();
  std::vector<Identity> all;
  std::optional<HostTree> tree;
  std::optional<FailureDetector> detector; ///< of the thread

  Contact root;    ///< where process 0 listens
  std::string key; ///< of all connections
  /// Listener of process 0 for processes that have lost the relay they report
  /// to; present while there are relays.
  std::optional<Listener> listener;
  std::map<int, Connection> connections;
  int pipe[2] = {-1, -1};

  mutable std::mutex mutex;
  std::condition_variable changed;
  ProcessWorld *world = nullptr;
  std::span<const std::unique_ptr<Activity>> activities;
  std::deque<Failure> outgoing; ///< of this process, to be judged
  std::optional<Failure> failure;
  bool reported = false, closing = false;
  bool hasEnded = false; ///< of the thread: it has nothing more to do
  bool watched = false;  ///< by a new world: all should know of its ranks
  std::vector<uint64_t> progressSeen; ///< of `activities`, at the last beat
  std::optional<Connection> called;
  std::atomic<bool> ending = false;
  std::thread caller, thread;
};

Monitor::Implementation::Implementation(Transport &transport,
                                        const MonitorOptions &options)
    : transport(transport), options(options), self(transport.process()),
      all(static_cast<size_t>(transport.processes())) {
  Identity identity{};
  gethostname(identity.host, sizeof(identity.host) - 1);
  if (!options.host.empty())
    copyText(identity.host, sizeof(identity.host), options.host);
  identity.process = self;
  identity.pid = int32_t(getpid());
  copyText(identity.network, sizeof(identity.network),
           options.network.empty() ? networkIdentity() : options.network);
  transport.allGather(&identity, all.data(), sizeof(Identity));
  std::vector<std::string> networks;
  for (const Identity &one : all)
    networks.emplace_back(one.network,
                          strnlen(one.network, sizeof(one.network)));
  tree.emplace(networks);
  connectAll(*tree);
  if (::pipe2(pipe, O_CLOEXEC | O_NONBLOCK) != 0)
    grt::fail("cannot make a pipe: " + std::string(strerror(errno)));
  struct sigaction action{};
  if (options.ownsProcess && sigaction(SIGTERM, nullptr, &action) == 0 &&
      action.sa_handler == SIG_DFL) {
    action.sa_handler = [](int) { terminated = true; };
    sigaction(SIGTERM, &action, nullptr);
  }
  DetectorOptions limits;
  limits.timeout = options.timeout;
  limits.silence = options.silence;
  limits.patience = options.patience;
  detector.emplace(*tree, self, limits, *this, now());
  thread = std::thread([this] {
    SignalStack stack;
    serve();
  });
}

Monitor::Implementation::~Implementation() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    closing = true;
  }
  wake();
  thread.join();
  ending = true;
  if (caller.joinable())
    caller.join();
  ::close(pipe[0]);
  ::close(pipe[1]);
}

/// Process 0 and the relays of other hosts listen, all others connect to those
/// they report to.
void Monitor::Implementation::connectAll(const HostTree &tree) {
  const bool isRoot = self == 0;
  const std::vector<int> children = tree.children(self);
  allowConnections(children.size(), "for one to each host of the run");
  Invitation invitation;
  key = transport.sessionKey();
  if (isRoot) {
    if (key.empty()) {
      key = randomBytes(codeBytes);
      std::memcpy(invitation.key, key.data(), codeBytes);
    }
    listener.emplace(listenEndpoints(hubPlaces(), 0),
                     Trust{key, monitorPurpose});
    invitation.contact = contactOf(*listener);
  }
  transport.broadcast(&invitation, sizeof(invitation), 0);
  if (key.empty())
    key.assign(invitation.key, codeBytes);
  root = invitation.contact;

  RelayPorts own;
  if (!isRoot && !children.empty()) {
    listener.emplace(listenEndpoints(loopback, 0),
                     Trust{key, relayPurpose(self)});
    own = portsOf(*listener);
  }
  std::vector<RelayPorts> ports(all.size());
  transport.allGather(&own, ports.data(), sizeof(RelayPorts));

  const int parent = tree.parent(self);
  if (parent == 0)
    connections[0] = connectNumbered(root, {key, monitorPurpose}, self,
                                     hubSeconds, "process 0 by TCP");
  else if (parent > 0)
    connections[parent] = connectNumbered(
        contactAt(ports[size_t(parent)]), {key, relayPurpose(parent)}, self,
        hubSeconds, "process " + std::to_string(parent) + " by TCP");
  if (listener)
    takeNumbered(*listener, children, hubSeconds,
                 [&](int number, Connection connection) {
                   connections[number] = std::move(connection);
                 });
  if (!isRoot || children.size() + 1 == all.size())
    listener.reset();
}

std::string Monitor::Implementation::hubPlaces() const {
  if (!options.listen.empty())
    return options.listen;
  if (std::string places = transport.hubPlaces(); !places.empty())
    return places;
  return tree->hostOf(0).size() == all.size() ? loopback : "any";
}

/// Takes processes whose relay is gone, at process 0.
void Monitor::Implementation::welcome() {
  while (std::optional<Guest> guest = listener->advance()) {
    std::optional<int> number = numberOf(*guest);
    if (!number || *number < 1 || size_t(*number) >= all.size() ||
        connections.count(*number) ||
        !answer(listener->trust(), *guest, /*refused=*/false, {},
                after(answerSeconds)))
      continue;
    connections[*number] = Connection(std::move(guest->socket));
    detector->connected(*number, now());
  }
}

/// Connects to process 0 on a thread of its own, since the caller has to go on
/// hearing the others.
void Monitor::Implementation::callRoot() {
  caller = std::thread([this] {
    SignalStack stack;
    Deadline deadline = after(callSeconds);
    std::string tried;
    while (!ending && Clock::now() < deadline) {
      if (std::optional<Connection> made =
              tryNumbered(root, {key, monitorPurpose}, self, deadline, tried)) {
        std::lock_guard<std::mutex> lock(mutex);
        called = std::move(made);
        wake();
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
}

void Monitor::Implementation::serve() {
  std::vector<pollfd> descriptors;
  std::vector<int> processes; ///< of those behind the pipe
  std::vector<Message> messages;
  while (true) {
    descriptors.assign(1, {pipe[0], POLLIN, 0});
    processes.clear();
    for (const auto &[process, connection] : connections) {
      processes.push_back(process);
      descriptors.push_back({connection.descriptor(), POLLIN, 0});
    }
    const size_t listening = descriptors.size();
    if (listener)
      listener->addPolled(descriptors);
    ::poll(descriptors.data(), descriptors.size(),
           int(detector->untilTick() * 1e3));
    char drained[64];
    while (::read(pipe[0], drained, sizeof(drained)) > 0)
      ;
    if (listener) {
      listener->accept(std::span(descriptors).subspan(listening));
      welcome();
    }
    for (size_t i = 0; i < processes.size(); ++i) {
      if (!descriptors[i + 1].revents)
        continue;
      const int process = processes[i];
      Connection &connection = connections.at(process);
      messages.clear();
      bool open = connection.read(messages);
      for (const Message &message : messages)
        detector->received(process, message, now());
      if (!open) {
        // poll() passes over what has no descriptor.
        connection.close();
        detector->closed(process, now());
      }
    }
    std::deque<Failure> failures;
    std::optional<Connection> toRoot;
    bool closes, fresh;
    {
      std::lock_guard<std::mutex> lock(mutex);
      closes = closing && outgoing.empty();
      failures.swap(outgoing);
      toRoot = std::exchange(called, std::nullopt);
      fresh = std::exchange(watched, false);
    }
    if (closes)
      return detector->leave();
    if (toRoot) {
      // The calling thread has connected, so it ends at once.
      caller.join();
      connections[0] = std::move(*toRoot);
      detector->connected(0, now());
    }
    if (fresh)
      detector->beatSoon();
    for (const Failure &own : failures)
      detector->fail(own, now());
    if (terminated)
      detector->terminated(now());
    detector->tick(now());
    if (hasEnded)
      return;
  }
}

/// Reports what each rank of this process is doing.
void Monitor::Implementation::describe(int &firstRank,
                                       std::vector<RankReport> &ranks) {
  std::lock_guard<std::mutex> lock(mutex);
  ranks.clear();
  if (!world)
    return;
  firstRank = world->firstLocal();
  ranks.resize(size_t(world->localCount()));
  std::vector<uint64_t> seen(ranks.size());
  seen.swap(progressSeen);
  for (size_t i = 0; i < activities.size() && i < ranks.size(); ++i) {
    const Activity &activity = *activities[i];
    RankReport &report = ranks[i];
    report.progress = activity.progress.load(std::memory_order_relaxed);
    progressSeen[i] = report.progress;
    report.busy = activity.busy;
    report.waiting = activity.isWaiting();
    report.peers = activity.awaited();
    report.doing = activity.describe();
    // Most ranks move, and nobody wants to know of what they call.
    report.known = activity.busy && seen.size() == ranks.size() &&
                   seen[i] == report.progress;
    if (!report.known)
      continue;
    RankCollectives called = activity.calledCollectives();
    report.host = called.host;
    report.communicators = std::move(called.communicators);
  }
}

void Monitor::Implementation::wakeRanks(const Failure &found) {
  std::lock_guard<std::mutex> lock(mutex);
  failure = found;
  if (world)
    world->fail(found);
}

void Monitor::Implementation::speak(const std::string &message) {
  if (!options.ownsProcess)
    return;
  std::fprintf(stderr, "%s: error: %s\n", options.tool.c_str(),
               message.c_str());
  std::fflush(stderr);
}

void Monitor::Implementation::allTold() {
  std::lock_guard<std::mutex> lock(mutex);
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
