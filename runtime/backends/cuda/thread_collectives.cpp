//===- thread_collectives.cpp - Ranks of one process on one device --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Members publish their addresses and an event behind which the data is there,
// and meet on the host; each puts its share of the work on its own stream
// behind the others' events, and they meet again, so that every stream waits
// for all shares. Nothing waits on the host for the device.
//
// An event is recorded anew only after all who wait for it have said so to
// their streams: between two records of the same event all members meet.
//
//===----------------------------------------------------------------------===//

#include "collectives.h"
#include "rank.h"

#include "../common/call.h"
#include "comm/sum.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

namespace grt::cuda {
namespace {

struct Group {
  std::vector<int32_t> ranks;
  // By index in the list.
  std::vector<void *> addresses;
  std::vector<Event> ready, done;
  int arrived = 0;
  uint64_t rendezvous = 0;

  int size() const { return int(ranks.size()); }
};

/// What one rank offers another; the receiver copies.
struct Mailbox {
  enum { Empty, Posted, Taken } state = Empty;
  const grt_exchange_piece *pieces = nullptr;
  uint64_t count = 0;
};

using Identity = std::array<unsigned char, 16>;

class ThreadWorld {
public:
  explicit ThreadWorld(int ranks)
      : ranks(ranks), ready(size_t(ranks)), done(size_t(ranks)),
        mailboxes(size_t(ranks) * size_t(ranks)) {}
  ~ThreadWorld() {
    for (auto *events : {&ready, &done})
      destroy(*events);
    for (auto &entry : groups) {
      destroy(entry.second->ready);
      destroy(entry.second->done);
    }
  }

  Group &group(const std::vector<int32_t> &list, int32_t self) {
    auto place = std::find(list.begin(), list.end(), self);
    if (place == list.end())
      throw CallError("rank " + std::to_string(self) +
                      " is no member of the group");
    std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<Group> &entry = groups[list];
    if (!entry) {
      entry = std::make_unique<Group>();
      entry->ranks = list;
      entry->addresses.resize(list.size());
      entry->ready.resize(list.size());
      entry->done.resize(list.size());
    }
    auto index = size_t(place - list.begin());
    if (!entry->ready[index]) {
      entry->ready[index] = gpu::makeEvent();
      entry->done[index] = gpu::makeEvent();
    }
    return *entry;
  }

  /// Returns when all members have called it as often.
  void meet(Group &group) {
    std::unique_lock<std::mutex> lock(mutex);
    uint64_t now = group.rendezvous;
    if (++group.arrived == group.size()) {
      group.arrived = 0;
      ++group.rendezvous;
      changed.notify_all();
      return;
    }
    waitUntil(lock, [&] { return group.rendezvous != now; });
  }

  template <class Condition>
  void waitUntil(std::unique_lock<std::mutex> &lock, Condition condition) {
    changed.wait(lock, [&] { return aborted || condition(); });
    if (!condition())
      throw CallError("aborted");
  }

  void abort() {
    std::lock_guard<std::mutex> lock(mutex);
    aborted = true;
    changed.notify_all();
  }

  Mailbox &mailbox(int from, int to) {
    if (from < 0 || from >= ranks || to < 0 || to >= ranks)
      throw CallError("ranks are in [0, " + std::to_string(ranks) +
                      "), found " + std::to_string(from) + " and " +
                      std::to_string(to));
    return mailboxes[size_t(from) * size_t(ranks) + size_t(to)];
  }

  const int ranks;
  std::mutex mutex;
  std::condition_variable changed;
  /// Of exchanges, by rank.
  std::vector<Event> ready, done;

private:
  static void destroy(const std::vector<Event> &events) {
    for (Event event : events)
      if (event)
        gpu::destroyEvent(event);
  }

  bool aborted = false;
  std::map<std::vector<int32_t>, std::unique_ptr<Group>> groups;
  std::vector<Mailbox> mailboxes;
};

struct ThreadMembership : Membership {
  void abort() override { world->abort(); }
  std::shared_ptr<ThreadWorld> world;
  int32_t self = 0;
  /// Of an exchange in a group; others may read it until the world ends.
  Mailbox offered;
};

ThreadMembership &membershipOf(void *state) {
  auto *membership =
      dynamic_cast<ThreadMembership *>(rankOf(state).membership.get());
  if (!membership)
    throw CallError("the rank has joined no world of threads");
  return *membership;
}

Stream streamOf(void *state, uint32_t number) {
  Stream stream = rankOf(state).stream(number);
  if (gpu::isCapturing(stream))
    throw CallError("collectives between ranks of one process cannot be part "
                    "of a graph");
  return stream;
}

int32_t makeIdentity(void *identity, char *message, size_t messageBytes) {
  return guarded("make_identity", message, messageBytes, [&] {
    std::random_device random;
    auto *bytes = static_cast<unsigned char *>(identity);
    for (size_t i = 0; i < sizeof(Identity); ++i)
      bytes[i] = static_cast<unsigned char>(random());
  });
}

int32_t join(void *state, const void *identity, int32_t rank, int32_t ranks,
             char *message, size_t messageBytes) {
  return guarded("join", message, messageBytes, [&] {
    gpu::use();
    static std::mutex mutex;
    static std::map<Identity, std::weak_ptr<ThreadWorld>> worlds;
    Identity key;
    std::memcpy(key.data(), identity, key.size());
    auto membership = std::make_unique<ThreadMembership>();
    membership->self = rank;
    std::lock_guard<std::mutex> lock(mutex);
    std::erase_if(worlds, [](auto &entry) { return entry.second.expired(); });
    std::shared_ptr<ThreadWorld> world = worlds[key].lock();
    if (!world) {
      world = std::make_shared<ThreadWorld>(ranks);
      worlds[key] = world;
    }
    if (world->ranks != ranks || rank < 0 || rank >= ranks)
      throw CallError("rank " + std::to_string(rank) + " of " +
                      std::to_string(ranks) + " cannot join a world of " +
                      std::to_string(world->ranks));
    world->ready[size_t(rank)] = gpu::makeEvent();
    world->done[size_t(rank)] = gpu::makeEvent();
    membership->world = std::move(world);
    rankOf(state).setMembership(std::move(membership));
  });
}

int32_t makeGroup(void *state, const int32_t *ranks, int32_t count,
                  void **group, char *message, size_t messageBytes) {
  return guarded("make_group", message, messageBytes, [&] {
    gpu::use();
    *group = nullptr;
    if (count == 0)
      return;
    if (count > mostMembers)
      throw CallError("a group of one process has at most " +
                      std::to_string(mostMembers) + " members, found " +
                      std::to_string(count));
    ThreadMembership &self = membershipOf(state);
    *group = &self.world->group({ranks, ranks + count}, self.self);
  });
}

/// One collective of a group: body(group, index, stream) puts this member's
/// share on the stream, between two rendezvous.
template <class Body>
int32_t collective(const char *what, void *state, void *groupHandle,
                   uint32_t streamNumber, const void *published, char *message,
                   size_t messageBytes, Body body) {
  return guarded(what, message, messageBytes, [&] {
    gpu::use();
    ThreadMembership &self = membershipOf(state);
    Group &group = *static_cast<Group *>(groupHandle);
    Stream stream = streamOf(state, streamNumber);
    auto index =
        size_t(std::find(group.ranks.begin(), group.ranks.end(), self.self) -
               group.ranks.begin());
    group.addresses[index] = const_cast<void *>(published);
    gpu::record(stream, group.ready[index]);
    self.world->meet(group);
    for (size_t m = 0; m < group.ranks.size(); ++m)
      if (m != index)
        gpu::wait(stream, group.ready[m]);
    body(group, index, stream);
    gpu::record(stream, group.done[index]);
    self.world->meet(group);
    for (size_t m = 0; m < group.ranks.size(); ++m)
      if (m != index)
        gpu::wait(stream, group.done[m]);
  });
}

uint64_t elementBytes(uint32_t dtype) {
  switch (dtype) {
  case GRT_F32:
  case GRT_I32:
    return 4;
  case GRT_F64:
    return 8;
  case GRT_BF16:
    return 2;
  case GRT_U8:
    return 1;
  }
  throw CallError("expected a known element type, found dtype " +
                  std::to_string(dtype));
}

/// All members' published addresses, `bytes` further on.
Members membersOf(const Group &group, uint64_t bytes) {
  Members members = {};
  members.count = group.size();
  for (int m = 0; m < members.count; ++m)
    members.at[m] = static_cast<char *>(group.addresses[size_t(m)]) + bytes;
  return members;
}

/// Each member joins one part and writes it to everybody:
/// join(stream, elements, their places).
template <class Join>
int32_t reduce(const char *what, void *state, void *group, uint32_t stream,
               void *data, uint64_t count, uint32_t dtype, char *message,
               size_t messageBytes, Join join) {
  return collective(what, state, group, stream, data, message, messageBytes,
                    [&](const Group &members, size_t index, Stream queue) {
                      auto [begin, end] =
                          partOf(count, members.size(), int(index));
                      if (members.size() == 1 || begin == end)
                        return;
                      join(queue, end - begin,
                           membersOf(members, begin * elementBytes(dtype)));
                    });
}

int32_t allReduce(void *state, void *group, uint32_t stream, void *data,
                  uint64_t count, uint32_t dtype, char *message,
                  size_t messageBytes) {
  return reduce("all_reduce", state, group, stream, data, count, dtype, message,
                messageBytes,
                [&](Stream queue, uint64_t elements, const Members &all) {
                  sumInOrder(queue, dtype, elements, all, nullptr, all);
                });
}

int32_t allReduceMax(void *state, void *group, uint32_t stream, void *data,
                     uint64_t count, uint32_t dtype, char *message,
                     size_t messageBytes) {
  return reduce("all_reduce_max", state, group, stream, data, count, dtype,
                message, messageBytes,
                [&](Stream queue, uint64_t elements, const Members &all) {
                  largestInOrder(queue, dtype, elements, all, all);
                });
}

int32_t allToAll(void *state, void *group, uint32_t stream, const void *in,
                 void *out, uint64_t bytes, char *message,
                 size_t messageBytes) {
  return collective(
      "all_to_all", state, group, stream, in, message, messageBytes,
      [&](const Group &members, size_t index, Stream queue) {
        for (size_t m = 0; m < members.ranks.size() && bytes; ++m)
          gpu::copy(queue, static_cast<char *>(out) + m * bytes,
                    static_cast<char *>(members.addresses[m]) + index * bytes,
                    bytes);
      });
}

int32_t allGather(void *state, void *group, uint32_t stream, const void *in,
                  void *out, uint64_t bytes, char *message,
                  size_t messageBytes) {
  return collective("all_gather", state, group, stream, in, message,
                    messageBytes,
                    [&](const Group &members, size_t, Stream queue) {
                      for (size_t m = 0; m < members.ranks.size(); ++m) {
                        char *to = static_cast<char *>(out) + m * bytes;
                        if (to != members.addresses[m])
                          gpu::copy(queue, to, members.addresses[m], bytes);
                      }
                    });
}

int32_t reduceScatter(void *state, void *group, uint32_t stream, const void *in,
                      void *out, uint64_t count, uint32_t dtype,
                      int32_t accumulate, void *, char *message,
                      size_t messageBytes) {
  return collective(
      "reduce_scatter", state, group, stream, in, message, messageBytes,
      [&](const Group &members, size_t index, Stream queue) {
        if (count == 0)
          return;
        Members to = {};
        to.at[0] = out;
        to.count = 1;
        sumInOrder(queue, dtype, count,
                   membersOf(members, index * count * elementBytes(dtype)),
                   accumulate ? out : nullptr, to);
      });
}

/// Copies what `peer` sends to `self`, in order, to where `self` wants it.
void takePieces(Stream stream, int32_t self, int32_t peer,
                const grt_exchange_piece *sends, uint64_t sendCount,
                const grt_exchange_piece *receives, uint64_t receiveCount) {
  uint64_t s = 0, r = 0;
  for (;; ++s, ++r) {
    while (s < sendCount && sends[s].peer != self)
      ++s;
    while (r < receiveCount && receives[r].peer != peer)
      ++r;
    bool sent = s < sendCount, wanted = r < receiveCount;
    if (!sent && !wanted)
      return;
    if (!sent || !wanted || sends[s].bytes != receives[r].bytes)
      throw CallError(
          "rank " + std::to_string(self) + " expects " +
          (wanted ? std::to_string(receives[r].bytes) + " bytes" : "nothing") +
          " of rank " + std::to_string(peer) + ", which sends " +
          (sent ? std::to_string(sends[s].bytes) + " bytes" : "nothing"));
    gpu::copy(stream, receives[r].address, sends[s].address, sends[s].bytes);
  }
}

/// The peers of some pieces, each once, without `self`.
std::vector<int32_t> peersOf(const grt_exchange_piece *pieces, uint64_t count,
                             int32_t self) {
  std::vector<int32_t> peers;
  for (uint64_t i = 0; i < count; ++i)
    if (pieces[i].peer != self)
      peers.push_back(pieces[i].peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

int32_t exchange(void *state, uint32_t streamNumber,
                 const grt_exchange_piece *sends, uint64_t sendCount,
                 const grt_exchange_piece *receives, uint64_t receiveCount,
                 char *message, size_t messageBytes) {
  return guarded("exchange", message, messageBytes, [&] {
    gpu::use();
    ThreadMembership &membership = membershipOf(state);
    ThreadWorld &world = *membership.world;
    const int32_t self = membership.self;
    Stream stream = streamOf(state, streamNumber);
    std::vector<int32_t> receivers = peersOf(sends, sendCount, self);
    std::vector<int32_t> senders = peersOf(receives, receiveCount, self);

    gpu::record(stream, world.ready[size_t(self)]);
    {
      std::lock_guard<std::mutex> lock(world.mutex);
      for (int32_t peer : receivers)
        world.mailbox(self, peer) = {Mailbox::Posted, sends, sendCount};
      world.changed.notify_all();
    }
    takePieces(stream, self, self, sends, sendCount, receives, receiveCount);
    for (int32_t peer : senders) {
      std::unique_lock<std::mutex> lock(world.mutex);
      Mailbox &box = world.mailbox(peer, self);
      world.waitUntil(lock, [&] { return box.state == Mailbox::Posted; });
      Mailbox offer = box;
      lock.unlock();
      gpu::wait(stream, world.ready[size_t(peer)]);
      takePieces(stream, self, peer, offer.pieces, offer.count, receives,
                 receiveCount);
    }
    gpu::record(stream, world.done[size_t(self)]);
    std::unique_lock<std::mutex> lock(world.mutex);
    for (int32_t peer : senders)
      world.mailbox(peer, self).state = Mailbox::Taken;
    world.changed.notify_all();
    for (int32_t peer : receivers) {
      Mailbox &box = world.mailbox(self, peer);
      world.waitUntil(lock, [&] { return box.state == Mailbox::Taken; });
      box.state = Mailbox::Empty;
      // What is sent may be overwritten behind this.
      gpu::wait(stream, world.done[size_t(peer)]);
    }
  });
}

int32_t exchangeInGroup(void *state, void *group, uint32_t stream,
                        const grt_exchange_piece *sends, uint64_t sendCount,
                        const grt_exchange_piece *receives,
                        uint64_t receiveCount, char *message,
                        size_t messageBytes) {
  auto *membership =
      dynamic_cast<ThreadMembership *>(rankOf(state).membership.get());
  if (membership)
    membership->offered = {Mailbox::Posted, sends, sendCount};
  return collective(
      "exchange_in_group", state, group, stream,
      membership ? &membership->offered : nullptr, message, messageBytes,
      [&](const Group &members, size_t index, Stream queue) {
        for (size_t m = 0; m < members.ranks.size(); ++m) {
          const auto &offer =
              *static_cast<const Mailbox *>(members.addresses[m]);
          takePieces(queue, int32_t(index), int32_t(m), offer.pieces,
                     offer.count, receives, receiveCount);
        }
      });
}

int32_t checkNothing(void *, char *, size_t) { return 0; }

void abortWorld(void *state) {
  try {
    rankOf(state).abort();
  } catch (const DeviceError &) {
    // The failure that led here is what has to be told.
  }
}

} // namespace

const grt_device_collectives *threadCollectives() {
  static const grt_device_collectives table = [] {
    grt_device_collectives made = {};
    made.bytes = sizeof(made);
    made.in_graphs = 0;
    made.name = "device";
    made.identity_bytes = sizeof(Identity);
    made.make_identity = makeIdentity;
    made.join = join;
    made.make_group = makeGroup;
    made.all_reduce = allReduce;
    made.all_reduce_max = allReduceMax;
    made.all_to_all = allToAll;
    made.exchange_in_group = exchangeInGroup;
    made.all_gather = allGather;
    made.reduce_scatter = reduceScatter;
    made.exchange = exchange;
    made.check = checkNothing;
    made.abort = abortWorld;
    return made;
  }();
  return &table;
}

} // namespace grt::cuda
