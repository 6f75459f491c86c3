//===- tcp.cpp - Messages over TCP ----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thread of its own moves bytes, so that what was sent arrives whatever the
// sender does next. A message is copied when it is sent and once more when it
// is received: this is for what hosts say to each other around the work of
// devices. That a process is gone is found by the monitor; messages to and from
// it just never complete.
//
//===----------------------------------------------------------------------===//

#include "comm/tcp.h"
#include "comm/rendezvous.h"
#include "core/allocation.h"
#include "core/error.h"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace grt {
namespace {

/// Before every message.
struct Head {
  uint64_t bytes;
  int32_t tag;
  uint32_t reserved;
};

/// Tags of what happens at the start, below all others.
constexpr int startTag = -1;
constexpr auto startTime = std::chrono::seconds(60);
/// For connections to all others, once all have met.
constexpr double connectSeconds = 60;

/// A receive that is not complete, or has not been asked for since.
struct Receive {
  char *to;
  size_t bytes;
  bool done = false;
  std::string problem;
};

struct Peer {
  Connection connection; ///< owns the socket
  bool open = false;
  std::deque<std::vector<char>> outgoing;
  size_t sent = 0; ///< of the first
  Head head{};
  size_t headBytes = 0, bodyBytes = 0;
  std::vector<char> body;
  struct Channel {
    std::deque<std::vector<char>> arrived;
    std::deque<Receive *> waiting;
  };
  std::map<int, Channel> channels; ///< by tag
};

class TcpTransport : public Transport {
public:
  explicit TcpTransport(const Rendezvous &at) {
    connect(at);
    wakeUp = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wakeUp < 0)
      fail("cannot make an eventfd: " + std::string(strerror(errno)));
    mover = std::thread([this] { move(); });
  }
  ~TcpTransport() override { stop(); }

  int process() const override { return self; }
  int processes() const override { return count; }
  int largestTag() const override { return std::numeric_limits<int>::max(); }

  Request send(int process, int tag, const void *data, size_t bytes) override {
    UncountedAllocations uncounted;
    Head head{bytes, tag, 0};
    std::vector<char> message(sizeof(head) + bytes);
    std::memcpy(message.data(), &head, sizeof(head));
    if (bytes)
      std::memcpy(message.data() + sizeof(head), data, bytes);
    std::lock_guard<std::mutex> lock(mutex);
    Peer &peer = peers[size_t(process)];
    if (process == self) {
      message.erase(message.begin(), message.begin() + sizeof(head));
      deliver(peer, tag, std::move(message));
    } else if (peer.open) {
      peer.outgoing.push_back(std::move(message));
      nudge();
    }
    return nullptr;
  }

  Request receive(int process, int tag, void *data, size_t bytes) override {
    UncountedAllocations uncounted;
    auto *receive = new Receive{static_cast<char *>(data), bytes, false, {}};
    std::lock_guard<std::mutex> lock(mutex);
    Peer::Channel &channel = peers[size_t(process)].channels[tag];
    channel.waiting.push_back(receive);
    match(channel);
    return receive;
  }

  bool test(std::span<Request> requests) override {
    UncountedAllocations uncounted;
    std::lock_guard<std::mutex> lock(mutex);
    bool all = true;
    for (Request &request : requests) {
      auto *receive = static_cast<Receive *>(request);
      if (!receive)
        continue;
      if (!receive->done) {
        all = false;
        continue;
      }
      std::unique_ptr<Receive> ended(receive);
      request = nullptr;
      if (!ended->problem.empty())
        fail(ended->problem);
    }
    return all;
  }

  void cancel(std::span<Request> requests) override {
    UncountedAllocations uncounted;
    std::lock_guard<std::mutex> lock(mutex);
    for (Request &request : requests) {
      auto *receive = static_cast<Receive *>(std::exchange(request, nullptr));
      if (!receive)
        continue;
      for (Peer &peer : peers)
        for (auto &[tag, channel] : peer.channels)
          std::erase(channel.waiting, receive);
      delete receive;
    }
  }

  void broadcast(void *data, size_t bytes, int root) override {
    if (self != root)
      return wait(receive(root, startTag, data, bytes), root);
    for (int other = 0; other < count; ++other)
      if (other != self)
        send(other, startTag, data, bytes);
  }

  void allGather(const void *in, void *out, size_t bytes) override {
    for (int other = 0; other < count; ++other)
      send(other, startTag, in, bytes);
    for (int other = 0; other < count; ++other)
      wait(receive(other, startTag,
                   static_cast<char *>(out) + size_t(other) * bytes, bytes),
           other);
  }

  void finalize() override { stop(); }

  std::string name() const override { return "TCP"; }
  std::string sessionKey() const override { return key; }
  std::string hubPlaces() const override { return places; }

private:
  void connect(const Rendezvous &at) {
    Membership membership = joinRun(at);
    self = membership.rank;
    count = membership.size;
    peers = std::vector<Peer>(size_t(count));
    key = membership.key;
    places = membership.places;
    // Process 0 takes connections at once, 1 when it has one to 0, and so on.
    for (int lower = 0; lower < self; ++lower)
      keep(lower,
           connectNumbered(membership.contacts[size_t(lower)],
                           {membership.key, meshPurpose(lower)}, self - lower,
                           connectSeconds,
                           "process " + std::to_string(lower) + " by TCP"));
    if (self + 1 < count)
      takeNumbered(*membership.listener, count - self - 1, connectSeconds,
                   [&](int number, Connection taken) {
                     keep(self + number, std::move(taken));
                   });
  }
  void keep(int process, Connection connection) {
    Peer &peer = peers[size_t(process)];
    peer.connection = std::move(connection);
    peer.open = true;
  }

  /// At the start only: nobody watches yet.
  void wait(Request request, int process) {
    auto deadline = std::chrono::steady_clock::now() + startTime;
    auto *receive = static_cast<Receive *>(request);
    bool came = false;
    {
      std::unique_lock<std::mutex> lock(mutex);
      const Peer &peer = peers[size_t(process)];
      came = moved.wait_until(lock, deadline, [&] {
        return receive->done || (process != self && !peer.open);
      }) && receive->done;
    }
    if (came) {
      test({&request, 1});
      return;
    }
    cancel({&request, 1});
    fail(ExitPeerLost,
         "process " + std::to_string(process) + " ended while the run began");
  }

  void deliver(Peer &peer, int tag, std::vector<char> message) {
    Peer::Channel &channel = peer.channels[tag];
    channel.arrived.push_back(std::move(message));
    match(channel);
  }
  void match(Peer::Channel &channel) {
    while (!channel.arrived.empty() && !channel.waiting.empty()) {
      Receive &receive = *channel.waiting.front();
      std::vector<char> &message = channel.arrived.front();
      if (message.size() != receive.bytes)
        receive.problem = "a message of " + std::to_string(message.size()) +
                          " bytes arrived, expected " +
                          std::to_string(receive.bytes);
      else if (!message.empty())
        std::memcpy(receive.to, message.data(), message.size());
      receive.done = true;
      channel.waiting.pop_front();
      channel.arrived.pop_front();
    }
    moved.notify_all();
  }

  void nudge() {
    uint64_t one = 1;
    [[maybe_unused]] ssize_t wrote = ::write(wakeUp, &one, sizeof(one));
  }

  void move() {
    std::vector<pollfd> sockets;
    std::vector<size_t> owners;
    while (true) {
      sockets.assign(1, {wakeUp, POLLIN, 0});
      owners.assign(1, 0);
      {
        std::lock_guard<std::mutex> lock(mutex);
        bool pending = false;
        for (size_t i = 0; i < peers.size(); ++i) {
          const Peer &peer = peers[i];
          if (!peer.open)
            continue;
          pending |= !peer.outgoing.empty();
          sockets.push_back(
              {peer.connection.descriptor(),
               short(peer.outgoing.empty() ? POLLIN : POLLIN | POLLOUT), 0});
          owners.push_back(i);
        }
        if (stopping && !pending)
          return;
      }
      ::poll(sockets.data(), sockets.size(), -1);
      uint64_t drained;
      [[maybe_unused]] ssize_t got = ::read(wakeUp, &drained, sizeof(drained));
      std::lock_guard<std::mutex> lock(mutex);
      for (size_t i = 1; i < sockets.size(); ++i) {
        Peer &peer = peers[owners[i]];
        if ((sockets[i].revents & POLLOUT) && !write(peer))
          peer.open = false;
        if (peer.open && (sockets[i].revents & ~POLLOUT) && !read(peer))
          peer.open = false;
        if (!peer.open) {
          peer.outgoing.clear();
          moved.notify_all();
        }
      }
    }
  }

  static bool isTemporary() { return errno == EAGAIN || errno == EINTR; }

  bool write(Peer &peer) {
    while (!peer.outgoing.empty()) {
      const std::vector<char> &first = peer.outgoing.front();
      ssize_t wrote =
          ::send(peer.connection.descriptor(), first.data() + peer.sent,
                 first.size() - peer.sent, MSG_NOSIGNAL);
      if (wrote < 0)
        return isTemporary();
      peer.sent += size_t(wrote);
      if (peer.sent < first.size())
        return true;
      peer.sent = 0;
      peer.outgoing.pop_front();
    }
    return true;
  }

  /// Takes what is there, up to the end of one message: others have their turn.
  bool read(Peer &peer) {
    int socket = peer.connection.descriptor();
    if (peer.headBytes < sizeof(Head)) {
      ssize_t got =
          ::recv(socket, reinterpret_cast<char *>(&peer.head) + peer.headBytes,
                 sizeof(Head) - peer.headBytes, 0);
      if (got <= 0)
        return got < 0 && isTemporary();
      peer.headBytes += size_t(got);
      if (peer.headBytes < sizeof(Head))
        return true;
      if (peer.head.bytes > largestMessage())
        return false;
      peer.body.resize(peer.head.bytes);
      peer.bodyBytes = 0;
    }
    while (peer.bodyBytes < peer.body.size()) {
      ssize_t got = ::recv(socket, peer.body.data() + peer.bodyBytes,
                           peer.body.size() - peer.bodyBytes, 0);
      if (got <= 0)
        return got < 0 && isTemporary();
      peer.bodyBytes += size_t(got);
    }
    peer.headBytes = 0;
    deliver(peer, peer.head.tag, std::exchange(peer.body, {}));
    return true;
  }

  /// What was sent goes out first, as long as the others take it.
  void stop() {
    if (!mover.joinable())
      return;
    {
      std::lock_guard<std::mutex> lock(mutex);
      stopping = true;
    }
    nudge();
    mover.join();
    ::close(wakeUp);
    for (Peer &peer : peers) {
      peer.connection.close();
      peer.open = false;
      for (auto &[tag, channel] : peer.channels)
        for (Receive *receive : channel.waiting)
          delete receive;
      peer.channels.clear();
    }
  }

  int self = 0, count = 1; ///< fixed once all have met
  std::string key, places;
  std::mutex mutex; ///< of everything below
  std::condition_variable moved;
  std::vector<Peer> peers;
  bool stopping = false;
  int wakeUp = -1;
  std::thread mover;
};

} // namespace

std::unique_ptr<Transport> connectByTcp(const Rendezvous &rendezvous) {
  return std::make_unique<TcpTransport>(rendezvous);
}

} // namespace grt
