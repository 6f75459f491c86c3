//===- tcp.cpp - Messages over TCP ----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thread of its own reads, and writes what did not go at once; one more makes
// connections, which may take their time. A process has connections to those of
// its tree (tree.h) from the start, and to another one as soon as either has
// something to send to it or to receive from it: the one with the larger number
// makes it, so that there is one of every pair. What a connection carries, and
// how much of it is held, is tcp_link.h's. That a process is gone is found by
// the monitor; messages to and from it just never complete.
//
//===----------------------------------------------------------------------===//

#include "comm/tcp.h"
#include "base/allocation.h"
#include "base/error.h"
#include "base/signal_stack.h"
#include "comm/rendezvous.h"
#include "comm/tcp_link.h"
#include "comm/tree.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace grt {
namespace {

/// The tag of what happens at the start, below all others.
constexpr int startTag = -1;
constexpr double startSeconds = 60;
/// Seconds in which the other side is to end its connections, once this side
/// has all it wanted.
constexpr double endSeconds = 2;

class TcpTransport : public Transport {
public:
  explicit TcpTransport(const Rendezvous &at)
      : connectSeconds(at.connectSeconds) {
    Membership membership = joinRun(at);
    self = membership.rank;
    count = membership.size;
    key = membership.key;
    places = membership.places;
    contacts.resize(size_t(count));
    for (const auto &[process, contact] : membership.contacts)
      contacts[size_t(process)] = contact;
    listener = std::move(membership.listener);
    links.resize(size_t(count));
    wakeUp = Socket(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!wakeUp)
      fail("cannot make an eventfd: " + std::string(strerror(errno)));
    mover = std::thread([this] {
      SignalStack stack;
      move();
    });
    try {
      connector = std::thread([this] {
        SignalStack stack;
        makeConnections();
      });
      connectTree();
      gatherContacts();
    } catch (...) {
      stop();
      throw;
    }
  }
  ~TcpTransport() override { stop(); }

  int process() const override { return self; }
  int processes() const override { return count; }
  size_t largestMessage() const override { return TcpLink::largestMessage; }
  int largestTag() const override { return std::numeric_limits<int>::max(); }

  Request send(int process, int tag, const void *data, size_t bytes) override {
    UncountedAllocations uncounted;
    std::lock_guard<std::mutex> lock(mutex);
    TcpLink &link = linkTo(process);
    Request request = link.send(tag, data, bytes);
    afterUse(link);
    return request;
  }

  Request receive(int process, int tag, void *data, size_t bytes) override {
    UncountedAllocations uncounted;
    std::lock_guard<std::mutex> lock(mutex);
    TcpLink &link = linkTo(process);
    Request request = link.receive(tag, data, bytes);
    afterUse(link);
    return request;
  }

  bool test(std::span<Request> requests) override {
    UncountedAllocations uncounted;
    std::lock_guard<std::mutex> lock(mutex);
    return testAll(requests);
  }

  void cancel(std::span<Request> requests) override {
    UncountedAllocations uncounted;
    std::lock_guard<std::mutex> lock(mutex);
    for (Request &request : requests) {
      auto *operation =
          static_cast<TcpOperation *>(std::exchange(request, nullptr));
      if (!operation)
        continue;
      if (operation->link && !operation->done)
        operation->link->cancel(operation);
      else
        delete operation;
    }
  }

  void broadcast(void *data, size_t bytes, int root) override {
    broadcastToAll({*this, startTag, startWait}, data, bytes, root);
  }
  void allGather(const void *in, void *out, size_t bytes) override {
    gatherFromAll({*this, startTag, startWait}, in, out, bytes);
  }

  void finalize() override { stop(); }

  std::string name() const override { return "TCP"; }
  std::string sessionKey() const override { return key; }
  std::string hubPlaces() const override { return places; }
  size_t mostHeldBytes() const override {
    std::lock_guard<std::mutex> lock(mutex);
    size_t bytes = 0;
    for (const TcpLink *link : active)
      bytes += link->mostHeldYet();
    return bytes;
  }
  size_t heldLimit() const override {
    std::lock_guard<std::mutex> lock(mutex);
    return active.size() * TcpLink::mostHeld;
  }

private:
  //===--------------------------------------------------------------------===//
  // With the lock
  //===--------------------------------------------------------------------===//

  /// The link to a process; on first use it is asked for.
  TcpLink &linkTo(int process) {
    std::unique_ptr<TcpLink> &link = links[size_t(process)];
    if (link)
      return *link;
    link = std::make_unique<TcpLink>(process);
    if (process == self) {
      link->loop();
      return *link;
    }
    active.push_back(link.get());
    if (process < self) {
      wanted.push_back({process, after(connectSeconds)});
      asked.notify_all();
    }
    return *link;
  }

  void afterUse(const TcpLink &link) {
    if (link.wantsToWrite())
      nudge();
  }

  bool testAll(std::span<Request> requests) {
    bool all = true;
    for (Request &request : requests) {
      auto *operation = static_cast<TcpOperation *>(request);
      if (!operation)
        continue;
      if (!operation->done) {
        all = false;
        continue;
      }
      std::unique_ptr<TcpOperation> ended(operation);
      request = nullptr;
      if (!ended->problem.empty())
        throw Error(ended->exitCode, ended->problem);
    }
    return all;
  }

  //===--------------------------------------------------------------------===//
  // The start
  //===--------------------------------------------------------------------===//

  void connectTree() {
    std::vector<int> neighbours = treeNeighbours(self, count);
    std::unique_lock<std::mutex> lock(mutex);
    for (int neighbour : neighbours)
      linkTo(neighbour);
    auto missing = [&] {
      std::vector<int> numbers;
      for (int neighbour : neighbours)
        if (!links[size_t(neighbour)]->isStanding())
          numbers.push_back(neighbour);
      return numbers;
    };
    bool all = changed.wait_until(lock, after(connectSeconds + 1), [&] {
      return missing().empty() || !connectProblem.empty();
    });
    if (!connectProblem.empty())
      fail(ExitPeerLost, connectProblem);
    if (!all)
      fail(ExitPeerLost, str(missing().size()) + " of " +
                             str(neighbours.size()) +
                             " processes did not connect within " +
                             secondsText(connectSeconds));
  }

  /// Gathers the contacts of all processes, for connections that are made
  /// later.
  void gatherContacts() {
    const Contact own = contacts[size_t(self)];
    std::vector<uint8_t> counts(static_cast<size_t>(count));
    auto ownCount = uint8_t(own.count);
    allGather(&ownCount, counts.data(), 1);
    size_t most = *std::max_element(counts.begin(), counts.end());
    std::vector<Endpoint> all(most * size_t(count));
    allGather(own.endpoints, all.data(), most * sizeof(Endpoint));
    std::lock_guard<std::mutex> lock(mutex);
    for (size_t process = 0; process < contacts.size(); ++process) {
      Contact &contact = contacts[process];
      contact.count = counts[process];
      std::copy_n(all.data() + process * most, contact.count,
                  contact.endpoints);
    }
  }

  /// Waits for requests at the start, when nobody watches yet. Where a process
  /// has ended, those that notice tell the others, so that all name the same
  /// one.
  void waitAtStart(std::vector<Request> requests) {
    Deadline deadline = after(startSeconds);
    std::unique_lock<std::mutex> lock(mutex);
    int lost = -1;
    bool came = false;
    auto look = [&] {
      if ((came = testAll(requests)))
        return true;
      for (const TcpLink *link : active)
        if (link->lostProcess() >= 0)
          lost = link->lostProcess();
      for (Request request : requests)
        if (auto *operation = static_cast<TcpOperation *>(request))
          if (lost < 0 && !operation->link)
            lost = operation->process;
      return lost >= 0;
    };
    try {
      changed.wait_until(lock, deadline, look);
    } catch (...) {
      lock.unlock();
      cancel(requests);
      throw;
    }
    if (came)
      return;
    int silent = -1;
    for (Request request : requests)
      if (auto *operation = static_cast<TcpOperation *>(request))
        silent = operation->process;
    if (lost >= 0)
      for (TcpLink *link : active)
        link->tellLost(lost);
    lock.unlock();
    cancel(requests);
    if (lost >= 0)
      fail(ExitPeerLost, "process " + str(lost) + " ended while the run began");
    fail(ExitPeerLost, "process " + str(silent) + " said nothing for " +
                           secondsText(startSeconds) + " while the run began");
  }

  //===--------------------------------------------------------------------===//
  // The thread that connects
  //===--------------------------------------------------------------------===//

  struct Wanted {
    int process;
    Deadline deadline;
  };

  /// Makes connections that are asked for, in turns.
  void makeConnections() {
    std::unique_lock<std::mutex> lock(mutex);
    size_t failed = 0; // in a row
    while (true) {
      asked.wait(lock, [&] { return stopping || !wanted.empty(); });
      if (stopping)
        return;
      Wanted next = wanted.front();
      wanted.pop_front();
      const Contact contact = contacts[size_t(next.process)];
      lock.unlock();
      std::string tried;
      std::optional<Connection> made =
          tryNumbered(contact, {key, meshPurpose(next.process)}, self,
                      next.deadline, tried);
      lock.lock();
      TcpLink &link = *links[size_t(next.process)];
      if (made) {
        failed = 0;
        link.open(std::move(*made), /*connects=*/true);
        link.write();
        nudge();
      } else if (millisecondsLeft(next.deadline) == 0) {
        connectProblem = "cannot reach process " + str(next.process) +
                         " by TCP at any of " + tried;
        link.fail(ExitPeerLost, connectProblem);
      } else {
        wanted.push_back(next);
        if (++failed >= wanted.size()) {
          failed = 0;
          asked.wait_for(lock, std::chrono::milliseconds(50),
                         [&] { return stopping; });
        }
      }
      changed.notify_all();
    }
  }

  //===--------------------------------------------------------------------===//
  // The thread that moves bytes
  //===--------------------------------------------------------------------===//

  void nudge() {
    uint64_t one = 1;
    [[maybe_unused]] ssize_t wrote =
        ::write(wakeUp.descriptor(), &one, sizeof(one));
  }

  void move() {
    std::vector<pollfd> polled;
    std::vector<TcpLink *> owners;
    std::optional<Deadline> end;
    bool wrote = true;
    while (true) {
      polled.assign(1, {wakeUp.descriptor(), POLLIN, 0});
      int patience = -1;
      if (listener) {
        listener->addPolled(polled);
        patience = listener->lateMilliseconds();
      }
      const size_t first = polled.size();
      owners.clear();
      {
        std::lock_guard<std::mutex> lock(mutex);
        bool copies = false;
        for (TcpLink *link : active) {
          copies |= link->hasCopies() && !link->isGone();
          if (!link->isOpen())
            continue;
          polled.push_back(
              {link->descriptor(),
               short(link->wantsToWrite() ? POLLIN | POLLOUT : POLLIN), 0});
          owners.push_back(link);
        }
        if (stopping && !end)
          end = after(endSeconds);
        // Messages that were sent go out first; then the others' last bytes are
        // read, as the kernel would throw away what it has for them otherwise.
        if (end && std::exchange(wrote, copies && millisecondsLeft(*end) > 0) &&
            !wrote)
          for (TcpLink *link : owners)
            link->endWriting();
        if (end) {
          if (owners.empty() || millisecondsLeft(*end) == 0)
            return;
          patience = millisecondsLeft(*end);
        }
      }
      ::poll(polled.data(), polled.size(), patience);
      uint64_t drained;
      [[maybe_unused]] ssize_t got =
          ::read(wakeUp.descriptor(), &drained, sizeof(drained));
      UncountedAllocations uncounted;
      if (listener) {
        listener->accept(std::span(polled).subspan(1, first - 1));
        while (std::optional<Guest> guest = listener->advance())
          take(std::move(*guest));
      }
      std::lock_guard<std::mutex> lock(mutex);
      for (size_t i = 0; i < owners.size(); ++i) {
        TcpLink &link = *owners[i];
        short events = polled[first + i].revents;
        // A link that was opened anew meanwhile has nothing to read yet.
        if (!events || polled[first + i].fd != link.descriptor())
          continue;
        bool stands = !(events & ~POLLOUT) || link.read();
        stands = stands && link.write();
        if (!stands && link.isStanding())
          link.close();
        else if (!stands)
          link.forget();
      }
      changed.notify_all();
    }
  }

  /// A process with a larger number connects; it may have to do so twice, if it
  /// did not hear the answer in time.
  void take(Guest guest) {
    std::optional<int> number = numberOf(guest);
    if (!number || *number <= self || *number >= count)
      return;
    {
      std::lock_guard<std::mutex> lock(mutex);
      const TcpLink &link = linkTo(*number);
      if (link.isStanding() || link.isGone())
        return;
    }
    if (!answer(listener->trust(), guest, /*refused=*/false, {}, after(1)))
      return;
    std::lock_guard<std::mutex> lock(mutex);
    TcpLink &link = linkTo(*number);
    link.forget();
    link.open(Connection(std::move(guest.socket)), /*connects=*/false);
  }

  void stop() {
    if (!mover.joinable())
      return;
    {
      std::lock_guard<std::mutex> lock(mutex);
      stopping = true;
    }
    asked.notify_all();
    nudge();
    if (connector.joinable())
      connector.join();
    mover.join();
    std::lock_guard<std::mutex> lock(mutex);
    for (std::unique_ptr<TcpLink> &link : links)
      if (link)
        link->close();
    listener.reset();
  }

  const double connectSeconds;
  int self = 0, count = 1; ///< fixed once all have met, as the next two are
  std::string key, places;
  std::unique_ptr<Listener> listener; ///< the mover's
  Socket wakeUp;
  const WaitForAll startWait = [this](std::vector<Request> requests) {
    waitAtStart(std::move(requests));
  };
  mutable std::mutex mutex;        ///< of everything below
  std::condition_variable changed; ///< for the start, which waits for all
  std::condition_variable asked;   ///< for the thread that connects
  std::vector<Contact> contacts;
  std::vector<std::unique_ptr<TcpLink>> links; ///< by process; null: not used
  std::vector<TcpLink *> active;               ///< to other processes
  std::deque<Wanted> wanted;
  std::string connectProblem;
  bool stopping = false;
  std::thread mover, connector;
};

} // namespace

std::unique_ptr<Transport> connectByTcp(const Rendezvous &rendezvous) {
  return std::make_unique<TcpTransport>(rendezvous);
}

} // namespace grt
