//===- threads.cpp - Ranks as threads of one process ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/threads.h"
#include "comm/futex.h"
#include "core/manifest.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <type_traits>

namespace grt {
namespace {

/// A group with a barrier and one published address per member.
class ThreadGroup : public Group {
public:
  explicit ThreadGroup(std::vector<int> ranks)
      : Group(std::move(ranks)), published(size()) {}

  int indexOf(int rank) const {
    auto it = std::find(ranks().begin(), ranks().end(), rank);
    if (it == ranks().end())
      fail("rank " + std::to_string(rank) + " is no member of the group");
    return int(it - ranks().begin());
  }

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
      generation.waitWhile(now);
    }
  }

  void abort() { generation.abort(); }

private:
  std::vector<void *> published;
  std::atomic<int> arrived{0};
  WaitWord generation;
};

/// Where one rank offers data to another. The receiver reads from the sender's
/// memory, so an offer is an address and nothing else.
struct alignas(64) Mailbox {
  static constexpr uint32_t empty = 0, posted = 1;
  WaitWord state;
  const char *base = nullptr;
};

/// Elements are summed in blocks that stay in the first-level cache.
constexpr uint64_t blockElements = 1024;

/// Elements are stored as T and summed as Sum; a sum is rounded once.
template <typename T> struct Exact {
  using Type = T;
  using Sum = T;
  static T wide(T value) { return value; }
  static T narrow(T value) { return value; }
};
struct Bfloat16 {
  using Type = uint16_t;
  using Sum = float;
  static float wide(uint16_t bits) {
    return std::bit_cast<float>(uint32_t(bits) << 16);
  }
  /// To the nearest, ties to even.
  static uint16_t narrow(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return uint16_t(value == value ? rounded : bits >> 16 | 0x40u);
  }
};

/// Sums elements [begin, end) of all members' published buffers, in the order
/// of the members, and hands each block to `write(first, count, sums)`, stored.
/// With `onto`, what stands there (element 0 of it is element `begin`) comes
/// first.
template <typename E, typename Write>
void sumBlocks(const ThreadGroup &group, uint64_t begin, uint64_t end,
               const typename E::Type *onto, Write write) {
  using T = typename E::Type;
  alignas(64) typename E::Sum sums[blockElements];
  for (uint64_t first = begin; first < end; first += blockElements) {
    uint64_t count = std::min(blockElements, end - first);
    const T *values = reinterpret_cast<const T *>(group.address(0)) + first;
    for (uint64_t i = 0; i < count; ++i)
      sums[i] = E::wide(values[i]);
    for (int member = 1; member < group.size(); ++member) {
      values = reinterpret_cast<const T *>(group.address(member)) + first;
      for (uint64_t i = 0; i < count; ++i)
        sums[i] += E::wide(values[i]);
    }
    if (onto)
      for (uint64_t i = 0; i < count; ++i)
        sums[i] += E::wide(onto[first - begin + i]);
    if constexpr (std::is_same_v<T, typename E::Sum>) {
      write(first, count, sums);
    } else {
      alignas(64) T stored[blockElements];
      for (uint64_t i = 0; i < count; ++i)
        stored[i] = E::narrow(sums[i]);
      write(first, count, stored);
    }
  }
}

template <typename E> void addInto(void *out, const void *in, uint64_t bytes) {
  using T = typename E::Type;
  T *to = static_cast<T *>(out);
  const T *from = static_cast<const T *>(in);
  for (uint64_t i = 0; i < bytes / sizeof(T); ++i)
    to[i] = E::narrow(E::wide(to[i]) + E::wide(from[i]));
}

/// Calls `body` with what is to know of the element type.
template <typename Body> void dispatchSum(grt_dtype dtype, Body body) {
  switch (dtype) {
  case GRT_F32:
    return body(Exact<float>());
  case GRT_F64:
    return body(Exact<double>());
  case GRT_BF16:
    return body(Bfloat16());
  default:
    fail(std::string("cannot sum elements of type ") + dtypeName(dtype));
  }
}

} // namespace

struct ThreadsWorld::Shared {
  explicit Shared(int size)
      : size(size), mailboxes(size_t(size) * size_t(size)) {
    std::vector<int> all(size);
    for (int rank = 0; rank < size; ++rank)
      all[rank] = rank;
    world = &group(all);
  }

  ThreadGroup &group(const std::vector<int> &ranks) {
    std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<ThreadGroup> &entry = pool[ranks];
    if (!entry) {
      entry = std::make_unique<ThreadGroup>(ranks);
      if (aborted)
        entry->abort();
    }
    return *entry;
  }

  Mailbox &mailbox(int from, int to) {
    return mailboxes[size_t(from) * size_t(size) + size_t(to)];
  }

  void abort() {
    std::lock_guard<std::mutex> lock(mutex);
    aborted = true;
    for (auto &entry : pool)
      entry.second->abort();
    for (Mailbox &mailbox : mailboxes)
      mailbox.state.abort();
  }

  int size;
  std::mutex mutex;
  bool aborted = false;
  std::map<std::vector<int>, std::unique_ptr<ThreadGroup>> pool;
  ThreadGroup *world = nullptr;
  std::vector<Mailbox> mailboxes;
};

namespace {

class ThreadsCommunicator : public Communicator {
public:
  ThreadsCommunicator(ThreadsWorld::Shared &shared, int rank)
      : shared(shared), self(rank) {}

  int rank() const override { return self; }
  int size() const override { return shared.size; }
  Group &group(const std::vector<int> &ranks) override {
    ThreadGroup &group = shared.group(ranks);
    group.indexOf(self);
    return group;
  }

  void allReduce(Group &base, void *data, uint64_t count,
                 grt_dtype dtype) override {
    auto &group = static_cast<ThreadGroup &>(base);
    if (group.size() == 1 || count == 0)
      return;
    int index = group.indexOf(self);
    group.publish(index, data);
    group.barrier();
    // Each member sums one part and writes it to everybody.
    dispatchSum(dtype, [&](auto element) {
      using T = typename decltype(element)::Type;
      auto [begin, end] = part(count, group.size(), index);
      sumBlocks<decltype(element)>(
          group, begin, end, nullptr,
          [&](uint64_t first, uint64_t elements, const T *sums) {
            for (int member = 0; member < group.size(); ++member)
              std::memcpy(reinterpret_cast<T *>(group.address(member)) + first,
                          sums, elements * sizeof(T));
          });
    });
    group.barrier();
  }

  void allGather(Group &base, const void *in, void *out,
                 uint64_t bytes) override {
    auto &group = static_cast<ThreadGroup &>(base);
    int index = group.indexOf(self);
    group.publish(index, in);
    group.barrier();
    for (int step = 0; step < group.size(); ++step) {
      // Each member begins with itself, so that not all read the same first.
      int member = (index + step) % group.size();
      char *place = static_cast<char *>(out) + uint64_t(member) * bytes;
      if (place != group.address(member) && bytes)
        std::memcpy(place, group.address(member), bytes);
    }
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

  void exchange(std::span<const ExchangeCall> calls) override {
    for (const ExchangeCall &call : calls)
      for (const ExchangePeer &send : call.table->sends)
        if (send.peer != self) {
          Mailbox &box = shared.mailbox(self, send.peer);
          box.state.waitFor(Mailbox::empty);
          box.base = static_cast<const char *>(call.source);
          box.state.store(Mailbox::posted);
        }
    for (const ExchangeCall &call : calls)
      for (const ExchangePeer &receive : call.table->receives) {
        if (receive.peer == self) {
          arrive(call, receive, static_cast<const char *>(call.source));
          continue;
        }
        Mailbox &box = shared.mailbox(receive.peer, self);
        box.state.waitFor(Mailbox::posted);
        arrive(call, receive, box.base);
        box.state.store(Mailbox::empty);
      }
    for (const ExchangeCall &call : calls)
      for (const ExchangePeer &send : call.table->sends)
        if (send.peer != self)
          shared.mailbox(self, send.peer).state.waitFor(Mailbox::empty);
  }

  void gather(std::span<const double> in, std::span<double> out) override {
    allGather(*shared.world, in.data(), out.data(), in.size_bytes());
  }

  void abort() override { shared.abort(); }

private:
  /// Member `index`'s part of `count` elements, in whole cache lines.
  static std::pair<uint64_t, uint64_t> part(uint64_t count, int members,
                                            int index) {
    constexpr uint64_t line = 16;
    uint64_t lines = (count + line - 1) / line;
    uint64_t begin = lines * uint64_t(index) / uint64_t(members) * line;
    uint64_t end = lines * uint64_t(index + 1) / uint64_t(members) * line;
    return {std::min(begin, count), std::min(end, count)};
  }

  static void arrive(const ExchangeCall &call, const ExchangePeer &receive,
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

  ThreadsWorld::Shared &shared;
  int self;
};

} // namespace

ThreadsWorld::ThreadsWorld(int size) : shared(std::make_unique<Shared>(size)) {}
ThreadsWorld::~ThreadsWorld() = default;

std::unique_ptr<Communicator> ThreadsWorld::join(int rank) {
  return std::make_unique<ThreadsCommunicator>(*shared, rank);
}

void ThreadsWorld::abort() { shared->abort(); }

} // namespace grt
