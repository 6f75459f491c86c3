//===- threads.cpp - Ranks as threads of one process ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/threads.h"
#include "base/cores.h"
#include "comm/blocks.h"
#include "comm/copy.h"
#include "comm/sum.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

namespace grt {
namespace {

/// A group with a barrier and one published address per member.
class ThreadGroup : public Group {
public:
  ThreadGroup(std::vector<int> ranks, bool spins)
      : Group(std::move(ranks)), spins(spins), published(size()) {}

  void publish(int index, const void *address) {
    published[index] = const_cast<void *>(address);
  }
  char *address(int index) const {
    return static_cast<char *>(published[index]);
  }

  /// Returns when all members have called it as often.
  void barrier() {
    uint32_t now = generation.load();
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
      arrived.store(0, std::memory_order_relaxed);
      generation.store((now + 1) & ~WaitWord::abortBit);
    } else {
      if (spins)
        generation.spinWhile(now);
      generation.waitWhile(now);
    }
  }

  void abort() { generation.abort(); }

private:
  const bool spins; ///< a little, before sleeping
  std::vector<void *> published;
  std::atomic<int> arrived{0};
  WaitWord generation;
};

/// Joins elements [begin, end) of all members' published buffers; element 0 of
/// `onto` is element `begin`. `write` gets element numbers.
template <typename E, typename Write>
void sumBlocks(const ThreadGroup &group, uint64_t begin, uint64_t end,
               const typename E::Type *onto, Write write) {
  using T = typename E::Type;
  sumInOrder<E>(
      group.size(), end - begin, onto,
      [&](int member) {
        return reinterpret_cast<const T *>(group.address(member)) + begin;
      },
      [&](uint64_t first, uint64_t count, const T *sums) {
        write(begin + first, count, sums);
      });
}

} // namespace

struct ThreadsWorld::Shared {
  Shared(int size, int first)
      : size(size), first(first), spins(size <= availableCores()),
        mailboxes(size_t(size) * size_t(size)), told(size_t(size)) {
    std::vector<int> all(size);
    std::iota(all.begin(), all.end(), first);
    world = &group(all);
  }

  ThreadGroup &group(const std::vector<int> &ranks) {
    std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<ThreadGroup> &entry = pool[ranks];
    if (!entry) {
      entry = std::make_unique<ThreadGroup>(ranks, spins);
      if (aborted)
        entry->abort();
    }
    return *entry;
  }

  Mailbox &mailbox(int from, int to) {
    return mailboxes[size_t(from - first) * size_t(size) + size_t(to - first)];
  }

  /// The first rank that asks makes them.
  void reserveBoxes(size_t boxes) {
    std::lock_guard<std::mutex> lock(mutex);
    size_t wanted = boxes * mailboxes.size();
    if (posts.size() == wanted)
      return;
    if (!posts.empty())
      fail("ranks disagree on the number of boxes");
    std::vector<Mailbox> made(wanted);
    posts.swap(made);
    for (Mailbox &box : posts)
      if (aborted)
        box.state.abort();
  }

  Mailbox &posted(int from, int to, size_t box) {
    return posts.at(box * mailboxes.size() +
                    size_t(from - first) * size_t(size) + size_t(to - first));
  }

  void abort() {
    std::lock_guard<std::mutex> lock(mutex);
    aborted = true;
    for (Mailbox &box : posts)
      box.state.abort();
    for (ToldBox &box : told)
      box.number.abort();
    for (auto &entry : pool)
      entry.second->abort();
    for (Mailbox &mailbox : mailboxes)
      mailbox.state.abort();
  }

  const int size, first;
  const bool spins; ///< every rank has a core: the others are about to come
  std::mutex mutex;
  bool aborted = false;
  std::map<std::vector<int>, std::unique_ptr<ThreadGroup>> pool;
  ThreadGroup *world = nullptr;
  std::vector<Mailbox> mailboxes, posts;
  std::vector<ToldBox> told; ///< by rank
};

namespace {

class ThreadsCommunicator : public Communicator {
public:
  ThreadsCommunicator(ThreadsWorld::Shared &shared, int rank)
      : shared(shared), self(rank) {
    places.reserve(size_t(shared.size));
  }

  int rank() const override { return self; }
  int size() const override { return shared.size; }
  Group &group(const std::vector<int> &ranks) override {
    ThreadGroup &group = shared.group(ranks);
    group.indexOf(self);
    return group;
  }

  void allReduce(Group &base, void *data, uint64_t count,
                 grt_dtype dtype) override {
    dispatchSum(dtype, [&](auto element) {
      reduce<decltype(element)>(static_cast<ThreadGroup &>(base), data, count);
    });
  }
  void allReduceMax(Group &base, void *data, uint64_t count,
                    grt_dtype dtype) override {
    dispatchLargest(dtype, [&](auto element) {
      reduce<decltype(element)>(static_cast<ThreadGroup &>(base), data, count);
    });
  }

  void allGather(Group &base, const void *in, void *out,
                 uint64_t bytes) override {
    auto &group = static_cast<ThreadGroup &>(base);
    int index = group.indexOf(self);
    group.publish(index, out);
    group.barrier();
    // Each member copies its part to all: the part comes from memory once, not
    // once for every reader, and most likely it is in this core's cache. The
    // first place is the next member's, so that not all write to the same.
    places.clear();
    for (int step = 1; step <= group.size(); ++step) {
      int member = (index + step) % group.size();
      char *place = group.address(member) + uint64_t(index) * bytes;
      if (place != in)
        places.push_back(place);
    }
    copyToAll(places, in, bytes, uint64_t(group.size()) * bytes);
    group.barrier();
  }

  void reduceScatter(Group &base, const void *in, void *out, uint64_t count,
                     grt_dtype dtype, bool accumulate) override {
    auto &group = static_cast<ThreadGroup &>(base);
    int index = group.indexOf(self);
    group.publish(index, in);
    group.barrier();
    dispatchSum(dtype, [&](auto element) {
      using T = typename decltype(element)::Type;
      uint64_t begin = uint64_t(index) * count;
      T *to = static_cast<T *>(out);
      sumBlocks<decltype(element)>(
          group, begin, begin + count, accumulate ? to : nullptr,
          [&](uint64_t first, uint64_t elements, const T *sums) {
            std::memcpy(to + (first - begin), sums, elements * sizeof(T));
          });
    });
    group.barrier();
  }

  void allToAll(Group &base, const void *in, void *out,
                uint64_t bytes) override {
    auto &group = static_cast<ThreadGroup &>(base);
    checkBlocks(group, in, out, bytes);
    if (bytes == 0)
      return;
    const int index = group.indexOf(self), members = group.size();
    group.publish(index, in);
    group.barrier();
    // Members start at different ones, so that not all read from the same one.
    for (int step = 0; step < members; ++step) {
      const int from = memberAt(index, step, members);
      std::memcpy(static_cast<char *>(out) + uint64_t(from) * bytes,
                  group.address(from) + uint64_t(index) * bytes, bytes);
    }
    group.barrier();
  }

  void allToAll(Group &base, const void *in, void *out,
                const BlockCounts &counts) override {
    auto &group = static_cast<ThreadGroup &>(base);
    const int index = group.indexOf(self);
    checkBlocks(group, index, in, out, counts);
    const OfferedBlocks own{static_cast<const char *>(in), counts.sends,
                            counts.bytesPerUnit};
    group.publish(index, &own);
    group.barrier();
    std::string wrong;
    forBlocks(counts.receives, counts.bytesPerUnit,
              [&](int from, uint64_t at, uint64_t bytes) {
                const std::string what = takeBlock(
                    group, from, static_cast<char *>(out) + at, bytes);
                if (wrong.empty())
                  wrong = what;
              });
    // Other members may still read what this rank offers.
    group.barrier();
    if (!wrong.empty())
      fail(wrong);
  }

  void shift(Group &base, const void *in, void *out, uint64_t bytes,
             int64_t distance) override {
    auto &group = static_cast<ThreadGroup &>(base);
    checkShift(in, out, bytes);
    if (bytes == 0)
      return;
    const int index = group.indexOf(self);
    group.publish(index, in);
    group.barrier();
    std::memcpy(out,
                group.address(
                    memberAt(index, -(distance % group.size()), group.size())),
                bytes);
    group.barrier();
  }

  void exchange(std::span<const ExchangeCall> calls) override {
    bool several =
        visitRound(calls, 0, &ExchangeTable::sends,
                   [&](const ExchangeCall &call, const ExchangePeer &send) {
                     if (send.peer == self)
                       return;
                     Mailbox &box = shared.mailbox(self, send.peer);
                     box.state.waitFor(Mailbox::empty);
                     box.base = static_cast<const char *>(call.source);
                     box.state.store(Mailbox::posted);
                   });
    auto nothing = [](const ExchangeCall &, const ExchangePeer &) {};
    several |= visitRound(calls, 0, &ExchangeTable::receives, nothing);
    if (several)
      exchangeSeveral(calls);
    else
      visitRound(calls, 0, &ExchangeTable::receives,
                 [&](const ExchangeCall &call, const ExchangePeer &receive) {
                   if (receive.peer == self)
                     return takeRows(call, receive,
                                     static_cast<const char *>(call.source));
                   Mailbox &box = shared.mailbox(receive.peer, self);
                   box.state.waitFor(Mailbox::posted);
                   takeRows(call, receive, box.base);
                   box.state.store(Mailbox::empty);
                 });
    for (const ExchangeCall &call : calls)
      for (const ExchangePeer &send : call.table->sends)
        if (send.peer != self)
          shared.mailbox(self, send.peer).state.waitFor(Mailbox::empty);
  }

  void gather(std::span<const std::byte> in,
              std::span<std::byte> out) override {
    ThreadGroup &group = *shared.world;
    const std::span<const std::byte> own = in;
    group.publish(self - shared.first, &own);
    group.barrier();
    bool alike = true;
    for (int member = 0; member < group.size(); ++member) {
      const auto &message =
          *reinterpret_cast<const std::span<const std::byte> *>(
              group.address(member));
      alike &= message.size() == in.size();
      if (alike)
        std::copy(message.begin(), message.end(),
                  out.begin() + ptrdiff_t(size_t(member) * in.size()));
    }
    // Others may still read this rank's.
    group.barrier();
    if (!alike)
      fail("gather: expected messages of " + str(in.size()) +
           " bytes of all ranks, found others");
  }

  void reserveBoxes(size_t boxes) override { shared.reserveBoxes(boxes); }
  void post(const ExchangeCall &call, const ExchangePeer &send,
            size_t box) override {
    Mailbox &mailbox = shared.posted(self, send.peer, box);
    mailbox.base = static_cast<const char *>(call.source);
    mailbox.state.store(Mailbox::posted);
  }
  void awaitTaken(int peer, size_t box) override {
    shared.posted(self, peer, box).state.waitFor(Mailbox::empty);
  }
  void take(const ExchangeCall &call, const ExchangePeer &receive,
            size_t box) override {
    Mailbox &mailbox = shared.posted(receive.peer, self, box);
    mailbox.state.waitFor(Mailbox::posted);
    takeRows(call, receive, mailbox.base);
    mailbox.state.store(Mailbox::empty);
  }
  void tell(uint64_t number, std::span<const std::byte> message) override {
    if (message.size() > mostToldBytes)
      fail("expected a message of at most " + str(mostToldBytes) +
           " bytes to tell, found " + str(message.size()));
    ToldBox &box = shared.told[size_t(self - shared.first)];
    std::copy(message.begin(), message.end(), box.messages[number % toldTimes]);
    box.number.store(uint32_t(number) & ~WaitWord::abortBit);
  }
  void hear(int from, uint64_t number, std::span<std::byte> message) override {
    ToldBox &box = shared.told[size_t(from - shared.first)];
    // Numbers of 31 bits go round.
    auto isEarlier = [number](uint32_t last) {
      return int32_t((last - uint32_t(number)) << 1) < 0;
    };
    for (uint32_t last = box.number.load(); isEarlier(last);
         last = box.number.load())
      box.number.waitWhile(last);
    std::copy_n(box.messages[number % toldTimes], message.size(),
                message.begin());
  }

  void abort() override { shared.abort(); }

private:
  /// The blocks that a member publishes for an all-to-all with counts.
  struct OfferedBlocks {
    const char *in;
    std::span<const uint64_t> sends;
    uint64_t bytesPerUnit;
  };

  /// Copies the block that a member has for this rank; what is wrong with it.
  std::string takeBlock(const ThreadGroup &group, int from, char *to,
                        uint64_t bytes) {
    const auto &offer =
        *reinterpret_cast<const OfferedBlocks *>(group.address(from));
    const int index = group.indexOf(self);
    std::string wrong;
    forBlocks(offer.sends, offer.bytesPerUnit,
              [&](int member, uint64_t at, uint64_t sent) {
                if (member != index)
                  return;
                if (sent != bytes)
                  wrong = "all-to-all: expected " + str(bytes) +
                          " bytes of rank " + str(group.ranks()[size_t(from)]) +
                          ", found " + str(sent);
                else if (bytes)
                  std::memcpy(to, offer.in + at, bytes);
              });
    return wrong;
  }

  /// Reduces `data` in place: each member joins one part of the elements and
  /// writes it to all.
  template <typename E>
  void reduce(ThreadGroup &group, void *data, uint64_t count) {
    using T = typename E::Type;
    if (group.size() == 1 || count == 0)
      return;
    const int index = group.indexOf(self);
    group.publish(index, data);
    group.barrier();
    auto [begin, end] = partOf(count, group.size(), index);
    sumBlocks<E>(group, begin, end, nullptr,
                 [&](uint64_t first, uint64_t elements, const T *sums) {
                   for (int member = 0; member < group.size(); ++member)
                     std::memcpy(reinterpret_cast<T *>(group.address(member)) +
                                     first,
                                 sums, elements * sizeof(T));
                 });
    group.barrier();
  }

  /// The rest of an exchange with several messages of one peer, whose first
  /// sends are posted. A mailbox holds one: the next is posted when it is
  /// empty. No message waits for one of another peer, or the other direction.
  void exchangeSeveral(std::span<const ExchangeCall> calls) {
    size_t most = 0;
    for (const ExchangeCall &call : calls)
      most += std::max(call.table->sends.size(), call.table->receives.size());
    sent.assign(most, 0);
    received.assign(most, 0);
    auto advance = [&](std::vector<uint8_t> &done,
                       std::vector<ExchangePeer> ExchangeTable::*sides,
                       auto attempt) {
      bool moved = false, left = false;
      // Only the first unfinished message of each peer may go on.
      for (size_t c = 0, at = 0; c < calls.size(); ++c)
        for (const ExchangePeer &side : calls[c].table->*sides) {
          size_t number = at++, before = 0;
          bool isFirst = true;
          for (size_t e = 0; e < c; ++e)
            for (const ExchangePeer &earlier : calls[e].table->*sides)
              isFirst &= done[before++] || earlier.peer != side.peer;
          if (done[number])
            continue;
          done[number] = isFirst && attempt(calls[c], side);
          moved |= done[number];
          left |= !done[number];
        }
      return std::pair(moved, left);
    };
    visitRound(calls, 0, &ExchangeTable::sends,
               [&](const ExchangeCall &call, const ExchangePeer &send) {
                 size_t at = size_t(&send - call.table->sends.data());
                 for (const ExchangeCall *each = calls.data(); each != &call;
                      ++each)
                   at += each->table->sends.size();
                 sent[at] = 1;
               });
    for (bool left = true; left;) {
      auto [posted, unsent] =
          advance(sent, &ExchangeTable::sends,
                  [&](const ExchangeCall &call, const ExchangePeer &send) {
                    if (send.peer == self)
                      return true;
                    Mailbox &box = shared.mailbox(self, send.peer);
                    if (box.state.load() != Mailbox::empty)
                      return false;
                    box.base = static_cast<const char *>(call.source);
                    box.state.store(Mailbox::posted);
                    return true;
                  });
      auto [taken, awaited] = advance(
          received, &ExchangeTable::receives,
          [&](const ExchangeCall &call, const ExchangePeer &receive) {
            if (receive.peer == self) {
              takeRows(call, receive, static_cast<const char *>(call.source));
              return true;
            }
            Mailbox &box = shared.mailbox(receive.peer, self);
            if (box.state.load() != Mailbox::posted)
              return false;
            takeRows(call, receive, box.base);
            box.state.store(Mailbox::empty);
            return true;
          });
      left = unsent || awaited;
      if (left && !posted && !taken)
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  /// Visits what calls have for their peers: of each peer the first call's in
  /// round 0, the second one's in round 1. Whether later rounds have any.
  template <typename Visit>
  static bool visitRound(std::span<const ExchangeCall> calls, size_t round,
                         std::vector<ExchangePeer> ExchangeTable::*sides,
                         Visit visit) {
    bool later = false;
    for (size_t c = 0; c < calls.size(); ++c)
      for (const ExchangePeer &side : calls[c].table->*sides) {
        size_t before = 0;
        for (size_t e = 0; e < c; ++e)
          for (const ExchangePeer &earlier : calls[e].table->*sides)
            before += earlier.peer == side.peer;
        if (before == round)
          visit(calls[c], side);
        later |= before > round;
      }
    return later;
  }

  ThreadsWorld::Shared &shared;
  int self;
  std::vector<uint8_t> sent, received; ///< of an exchange, by message
  std::vector<char *> places;          ///< where a part goes; never grows
};

} // namespace

void takeRows(const ExchangeCall &call, const ExchangePeer &receive,
              const char *source) {
  for (const ExchangeRow &row : receive.rows) {
    char *to = static_cast<char *>(call.destination) +
               uint64_t(row.localUnit) * call.bytesPerUnit;
    const char *from = source + uint64_t(row.peerUnit) * call.bytesPerUnit;
    uint64_t bytes = uint64_t(row.units) * call.bytesPerUnit;
    if (!call.add)
      std::memcpy(to, from, bytes);
    else
      dispatchSum(call.dtype, [&](auto element) {
        addInto<decltype(element)>(to, from, bytes);
      });
  }
}

ThreadsWorld::ThreadsWorld(int count, int first)
    : shared(std::make_unique<Shared>(count, first)) {}
ThreadsWorld::~ThreadsWorld() = default;

int ThreadsWorld::size() const { return shared->size; }
int ThreadsWorld::firstLocal() const { return shared->first; }

std::unique_ptr<Communicator> ThreadsWorld::join(int rank) {
  return std::make_unique<ThreadsCommunicator>(*shared, rank);
}

void ThreadsWorld::abort(const Failure &) { shared->abort(); }

Mailbox &ThreadsWorld::mailbox(int from, int to) {
  return shared->mailbox(from, to);
}

} // namespace grt
