//===- process_world.cpp - Ranks of several processes ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/process_world.h"
#include "base/allocation.h"
#include "base/kept_memory.h"
#include "comm/activity.h"
#include "comm/blocks.h"
#include "comm/sum.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <sched.h>

namespace grt {
namespace {

/// The running kernel of this machine; processes with equal ones share cores,
/// whatever names and networks they see. Null bytes if unknown.
std::array<char, 40> machine() {
  std::array<char, 40> id{};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(id.data(), 36);
  return id;
}

/// Size in bytes below which an all-reduce is bound by latency and takes one
/// round instead of two.
constexpr uint64_t smallBytes = 16 << 10;

/// Chunks of a sum, and how many of each member are on their way at most.
constexpr uint64_t chunkBytes = 128 << 10, mostAhead = 8;

/// Most ranks whose numbers of a step are gathered in one round.
constexpr int fewRanks = 4;

/// Bytes of a packed message of an exchange; the same on all ranks. The least
/// is what every transport carries.
uint64_t packetBytes(int ranks) {
  constexpr uint64_t most = 64 << 10, least = 4 << 10, wanted = 1 << 20;
  return std::clamp(wanted / (2 * uint64_t(ranks)) & ~uint64_t(63), least,
                    most);
}

/// Pauses that grow: a rank that waits must not take the core from one that
/// computes, but most waits are short.
class Backoff {
public:
  void pause() {
    if (++turns <= 20) {
      sched_yield();
      return;
    }
    long microseconds = std::min(200L, 10L << std::min(turns / 20, 5));
    timespec time = {0, microseconds * 1000};
    nanosleep(&time, nullptr);
  }
  void reset() { turns = 0; }
  bool sleeps() const { return turns >= 20; }

private:
  int turns = 0;
};

/// A group with members in several processes.
class SpreadGroup : public Group {
public:
  using Group::Group;
  int indexOf(int rank) const {
    auto it = std::find(ranks().begin(), ranks().end(), rank);
    if (it == ranks().end())
      fail("rank " + std::to_string(rank) + " is no member of the group");
    return int(it - ranks().begin());
  }
};

} // namespace

struct ProcessWorld::Shared {
  Shared(Transport &transport, std::vector<int> firstRanks, int epoch,
         std::function<void(const Failure &)> tell)
      : transport(transport), first(std::move(firstRanks)), epoch(epoch),
        tell(std::move(tell)), local(first[size_t(transport.process()) + 1] -
                                         first[size_t(transport.process())],
                                     first[size_t(transport.process())]) {
    for (int process = 0; process < transport.processes(); ++process) {
      int count = first[size_t(process) + 1] - first[size_t(process)];
      owner.insert(owner.end(), size_t(count), process);
      mostLocal = std::max(mostLocal, count);
    }
    std::array<char, 40> own = machine();
    std::vector<std::array<char, 40>> all(
        static_cast<size_t>(transport.processes()));
    transport.allGather(own.data(), all.data(), sizeof(own));
    for (int process = 0; process < transport.processes(); ++process)
      if (all[size_t(process)] == own)
        machineRanks += first[size_t(process) + 1] - first[size_t(process)];
    // Tags repeat after this many worlds: every pair of thread ranks of two
    // processes has tags for each, and messages of the earlier world are gone
    // by then.
    constexpr int worlds = 16;
    pairs = families * mostLocal * mostLocal;
    epochs = hostTag(transport) / pairs;
    if (epochs < worlds)
      invalid("expected at most " +
              std::to_string(int(std::sqrt(double(hostTag(transport)) /
                                           double(worlds * families)))) +
              " thread ranks in a process, found " + std::to_string(mostLocal) +
              ": " + transport.name() + " has " +
              std::to_string(transport.largestTag()) + " message tags");
  }

  int size() const { return first.back(); }
  bool isLocal(int rank) const {
    return owner[size_t(rank)] == transport.process();
  }
  /// Messages that need not come in one order.
  enum Family { Ordinary, Posted, Told };
  static constexpr int64_t families = 3;

  /// Messages of a family from one rank to another have a tag of their own; the
  /// epoch keeps those of an aborted world apart.
  int tag(int from, int to, Family family = Ordinary) const {
    int64_t number =
        (int64_t(from - first[size_t(owner[size_t(from)])]) * mostLocal +
         (to - first[size_t(owner[size_t(to)])])) *
            families +
        family;
    return int(epoch % epochs * pairs + number);
  }

  SpreadGroup &group(const std::vector<int> &ranks) {
    std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<SpreadGroup> &entry = pool[ranks];
    if (!entry)
      entry = std::make_unique<SpreadGroup>(ranks);
    return *entry;
  }

  void abort() {
    aborted.store(true, std::memory_order_release);
    local.abort({});
  }

  Transport &transport;
  const std::vector<int> first;
  const int epoch;
  std::function<void(const Failure &)> tell;
  Watcher watcher;
  ThreadsWorld local;
  std::vector<int> owner; ///< process of each rank
  std::optional<RunHosts> hosts;
  int mostLocal = 1, machineRanks = 0;
  int64_t pairs = 1, epochs = 1; ///< how tags are divided
  std::atomic<bool> aborted{false};
  mutable std::mutex mutex;
  std::map<std::vector<int>, std::unique_ptr<SpreadGroup>> pool;
  std::optional<Failure> reason;
};

namespace {

/// One direction of an exchange with one peer: a stream of messages, of which
/// one is on its way. Rows of a packet or more travel from where they stand to
/// where they belong; smaller ones, and all that are added, through a buffer.
/// Both sides cut a stream in the same way.
struct Stream {
  const ExchangeCall *call = nullptr;
  const ExchangePeer *side = nullptr;
  bool sends = false;
  bool done = false;
  /// Index of the stream of an earlier call with the same peer, which must end
  /// first; -1 if there is none.
  int before = -1;
  size_t row = 0;      ///< of the next message
  uint64_t offset = 0; ///< bytes of that row that are done
  char *buffer = nullptr;
  Transport::Request request = nullptr;
  bool posted = false;
  /// The message on its way: where it began, and its length if packed.
  size_t packedRow = 0;
  uint64_t packedOffset = 0, packedBytes = 0;

  char *place(size_t number) const {
    const char *base = sends ? static_cast<const char *>(call->source)
                             : static_cast<char *>(call->destination);
    return const_cast<char *>(base) +
           uint64_t(side->rows[number].localUnit) * call->bytesPerUnit;
  }
  uint64_t rowBytes(size_t number) const {
    return uint64_t(side->rows[number].units) * call->bytesPerUnit;
  }
};

class ProcessCommunicator : public Communicator {
  using Shared = ProcessWorld::Shared;

public:
  ProcessCommunicator(ProcessWorld &processes, ProcessWorld::Shared &shared,
                      int rank)
      : processes(processes), shared(shared), transport(shared.transport),
        self(rank), inner(shared.local.join(rank)),
        packet(std::min<uint64_t>(packetBytes(shared.size()),
                                  transport.largestMessage() & ~size_t(63))),
        scratchSize(ProcessWorld::scratchBytes(shared.size())),
        scratch(std::make_unique<char[]>(scratchSize)) {
    std::vector<int> all(static_cast<size_t>(shared.size()));
    for (int r = 0; r < shared.size(); ++r)
      all[size_t(r)] = r;
    world = &group(all);
    // Reserves all that calls need, as nothing is taken from the heap while the
    // ranks run.
    size_t most = 2 * size_t(shared.size());
    streams.reserve(most);
    requests.reserve(2 * most);
    peers.reserve(2 * most);
  }

  int rank() const override { return self; }
  int size() const override { return shared.size(); }

  Group &group(const std::vector<int> &ranks) override {
    bool local = std::all_of(ranks.begin(), ranks.end(),
                             [&](int rank) { return shared.isLocal(rank); });
    if (local)
      return inner->group(ranks);
    SpreadGroup &group = shared.group(ranks);
    group.indexOf(self);
    return group;
  }

  void allReduce(Group &base, void *data, uint64_t count,
                 grt_dtype dtype) override {
    auto *group = dynamic_cast<SpreadGroup *>(&base);
    if (!group)
      return inner->allReduce(base, data, count, dtype);
    dispatchSum(dtype, [&](auto element) {
      reduce<decltype(element)>(*group, data, count);
    });
  }
  void allReduceMax(Group &base, void *data, uint64_t count,
                    grt_dtype dtype) override {
    auto *group = dynamic_cast<SpreadGroup *>(&base);
    if (!group)
      return inner->allReduceMax(base, data, count, dtype);
    dispatchLargest(dtype, [&](auto element) {
      reduce<decltype(element)>(*group, data, count);
    });
  }

  void allGather(Group &base, const void *in, void *out,
                 uint64_t bytes) override {
    auto *group = dynamic_cast<SpreadGroup *>(&base);
    if (!group)
      return inner->allGather(base, in, out, bytes);
    int index = group->indexOf(self), members = group->size();
    char *to = static_cast<char *>(out);
    sendPieces(bytes, [&](uint64_t first, uint64_t part) {
      for (int step = 1; step < members; ++step) {
        int from = (index + members - step) % members;
        receive(group->ranks()[size_t(from)],
                to + uint64_t(from) * bytes + first, part);
        send(group->ranks()[size_t((index + step) % members)],
             static_cast<const char *>(in) + first, part);
      }
    });
    char *own = to + uint64_t(index) * bytes;
    if (own != in && bytes)
      std::memcpy(own, in, bytes);
  }

  void reduceScatter(Group &base, const void *in, void *out, uint64_t count,
                     grt_dtype dtype, bool accumulate) override {
    auto *group = dynamic_cast<SpreadGroup *>(&base);
    if (!group)
      return inner->reduceScatter(base, in, out, count, dtype, accumulate);
    dispatchSum(dtype, [&](auto element) {
      using E = decltype(element);
      using T = typename E::Type;
      const T *values = static_cast<const T *>(in);
      int index = group->indexOf(self), members = group->size();
      const Chunks chunks = chunksFor<T>(members);
      const uint64_t chunk = chunks.elements;
      auto transfer = [&](uint64_t round) {
        uint64_t first = round * chunk, part = std::min(chunk, count - first);
        for (int step = 1; step < members; ++step) {
          int from = (index + members - step) % members;
          int to = (index + step) % members;
          receive(group->ranks()[size_t(from)], piece<T>(chunks, from, round),
                  part * sizeof(T));
          send(group->ranks()[size_t(to)],
               values + uint64_t(to) * count + first, part * sizeof(T));
        }
      };
      const uint64_t rounds = (count + chunk - 1) / chunk;
      sumChunks(chunks, rounds, transfer, [&](uint64_t round) {
        uint64_t first = round * chunk, part = std::min(chunk, count - first);
        T *place = static_cast<T *>(out) + first;
        sumPieces<E>(members, index, values + uint64_t(index) * count + first,
                     part, chunks, round, accumulate ? place : nullptr,
                     [&](uint64_t begin, uint64_t n, const T *sums) {
                       std::memcpy(place + begin, sums, n * sizeof(T));
                     });
      });
    });
  }

  void allToAll(Group &base, const void *in, void *out,
                uint64_t bytes) override {
    auto *group = dynamic_cast<SpreadGroup *>(&base);
    if (!group)
      return inner->allToAll(base, in, out, bytes);
    checkBlocks(*group, in, out, bytes);
    const int index = group->indexOf(self), members = group->size();
    const char *from = static_cast<const char *>(in);
    char *to = static_cast<char *>(out);
    sendPieces(bytes, [&](uint64_t first, uint64_t part) {
      for (int step = 1; step < members; ++step) {
        const int before = memberAt(index, -step, members);
        const int behind = memberAt(index, step, members);
        receive(group->ranks()[size_t(before)],
                to + uint64_t(before) * bytes + first, part);
        send(group->ranks()[size_t(behind)],
             from + uint64_t(behind) * bytes + first, part);
      }
    });
    if (bytes)
      std::memcpy(to + uint64_t(index) * bytes, from + uint64_t(index) * bytes,
                  bytes);
  }

  void allToAll(Group &base, const void *in, void *out,
                const BlockCounts &counts) override {
    auto *group = dynamic_cast<SpreadGroup *>(&base);
    if (!group)
      return inner->allToAll(base, in, out, counts);
    const int index = group->indexOf(self);
    checkBlocks(*group, index, in, out, counts);
    const uint64_t unit = counts.bytesPerUnit;
    const char *from = static_cast<const char *>(in);
    char *to = static_cast<char *>(out);
    uint64_t largest = 0;
    const char *own = nullptr;
    for (const auto *side : {&counts.sends, &counts.receives})
      for (size_t member = 0; member < side->size(); ++member)
        if (int(member) != index)
          largest = std::max(largest, (*side)[member] * unit);
    auto partOfBlock = [](uint64_t first, uint64_t part, uint64_t bytes) {
      return first < bytes ? std::min(part, bytes - first) : 0;
    };
    sendPieces(largest, [&](uint64_t first, uint64_t part) {
      forBlocks(
          counts.receives, unit, [&](int member, uint64_t at, uint64_t bytes) {
            const uint64_t piece = partOfBlock(first, part, bytes);
            if (member != index && piece)
              receive(group->ranks()[size_t(member)], to + at + first, piece);
          });
      forBlocks(
          counts.sends, unit, [&](int member, uint64_t at, uint64_t bytes) {
            const uint64_t piece = partOfBlock(first, part, bytes);
            if (member != index && piece)
              send(group->ranks()[size_t(member)], from + at + first, piece);
          });
    });
    forBlocks(counts.sends, unit, [&](int member, uint64_t at, uint64_t) {
      if (member == index)
        own = from + at;
    });
    forBlocks(counts.receives, unit,
              [&](int member, uint64_t at, uint64_t bytes) {
                if (member == index && bytes)
                  std::memcpy(to + at, own, bytes);
              });
  }

  void shift(Group &base, const void *in, void *out, uint64_t bytes,
             int64_t distance) override {
    auto *group = dynamic_cast<SpreadGroup *>(&base);
    if (!group)
      return inner->shift(base, in, out, bytes, distance);
    checkShift(in, out, bytes);
    const int index = group->indexOf(self), members = group->size();
    const int64_t around = distance % members;
    if (around == 0) {
      if (bytes)
        std::memcpy(out, in, bytes);
      return;
    }
    const int before =
        group->ranks()[size_t(memberAt(index, -around, members))];
    const int behind = group->ranks()[size_t(memberAt(index, around, members))];
    sendPieces(bytes, [&](uint64_t first, uint64_t part) {
      receive(before, static_cast<char *>(out) + first, part);
      send(behind, static_cast<const char *>(in) + first, part);
    });
  }

  void exchange(std::span<const ExchangeCall> calls) override {
    auto isRemote = [&](const ExchangePeer &side) {
      return !shared.isLocal(side.peer);
    };
    bool remote = false;
    for (const ExchangeCall &call : calls)
      remote |= std::any_of(call.table->sends.begin(), call.table->sends.end(),
                            isRemote) ||
                std::any_of(call.table->receives.begin(),
                            call.table->receives.end(), isRemote);
    if (!remote)
      return inner->exchange(calls);

    streams.clear();
    for (const ExchangeCall &call : calls) {
      for (const ExchangePeer &side : call.table->sends)
        if (side.peer != self)
          addStream(call, side, /*sends=*/true);
      for (const ExchangePeer &side : call.table->receives)
        addStream(call, side, /*sends=*/false);
    }
    said = -1;
    try {
      runStreams();
    } catch (...) {
      for (Stream &stream : streams)
        transport.cancel({&stream.request, 1});
      throw;
    }
  }

  /// Gathers in rounds in which the blocks that a rank has double (Bruck et
  /// al., IEEE TPDS 8(11), 1997, section 3): log2(ranks) messages a rank
  /// instead of one to each other.
  void gather(std::span<const double> in, std::span<double> out) override {
    const uint64_t bytes = in.size_bytes();
    const int ranks = size();
    if (ranks <= fewRanks || bytes == 0 ||
        bytes * uint64_t(ranks) >
            std::min<uint64_t>(scratchSize, transport.largestMessage()))
      return allGather(*world, in.data(), out.data(), bytes);
    // Block i is that of rank self + i.
    char *blocks = scratch.get();
    std::memcpy(blocks, in.data(), bytes);
    for (int have = 1; have < ranks; have *= 2) {
      uint64_t moved = uint64_t(std::min(have, ranks - have)) * bytes;
      receive((self + have) % ranks, blocks + uint64_t(have) * bytes, moved);
      send((self + ranks - have) % ranks, blocks, moved);
      wait();
    }
    char *to = reinterpret_cast<char *>(out.data());
    for (int i = 0; i < ranks; ++i)
      std::memcpy(to + uint64_t((self + i) % ranks) * bytes,
                  blocks + uint64_t(i) * bytes, bytes);
  }

  void reserveBoxes(size_t boxes) override {
    inner->reserveBoxes(boxes);
    posted.resize(boxes * size_t(size()));
  }
  void post(const ExchangeCall &call, const ExchangePeer &send,
            size_t box) override {
    if (shared.isLocal(send.peer))
      return inner->post(call, send, box);
    UncountedAllocations uncounted;
    checkAborted();
    std::vector<Transport::Request> &started = requestsOf(send.peer, box);
    forPostedPieces(call, send, [&](int64_t unit, uint64_t at, uint64_t bytes) {
      started.push_back(
          transport.send(shared.owner[size_t(send.peer)],
                         shared.tag(self, send.peer, Shared::Posted),
                         static_cast<const char *>(call.source) +
                             uint64_t(unit) * call.bytesPerUnit + at,
                         bytes));
    });
  }
  void awaitTaken(int peer, size_t box) override {
    if (shared.isLocal(peer))
      return inner->awaitTaken(peer, box);
    std::vector<Transport::Request> &started = requestsOf(peer, box);
    await(started);
    started.clear();
  }
  void take(const ExchangeCall &call, const ExchangePeer &from,
            size_t box) override {
    if (shared.isLocal(from.peer))
      return inner->take(call, from, box);
    forPostedPieces(call, from, [&](int64_t unit, uint64_t at, uint64_t bytes) {
      char *to = static_cast<char *>(call.destination) +
                 uint64_t(unit) * call.bytesPerUnit + at;
      receive(from.peer, call.add ? scratch.get() : to, bytes, Shared::Posted);
      wait();
      if (call.add)
        dispatchSum(call.dtype, [&](auto element) {
          addInto<decltype(element)>(to, scratch.get(), bytes);
        });
    });
  }
  void tell(uint64_t number, std::span<const double> values) override {
    inner->tell(number, values);
    UncountedAllocations uncounted;
    Telling &telling = toldHere[number % toldTimes];
    await(telling.requests);
    telling.requests.clear();
    checkAborted();
    std::copy(values.begin(), values.end(), telling.values);
    for (int peer = 0; peer < size(); ++peer)
      if (!shared.isLocal(peer))
        telling.requests.push_back(transport.send(
            shared.owner[size_t(peer)], shared.tag(self, peer, Shared::Told),
            telling.values, sizeof(telling.values)));
  }
  void hear(int from, uint64_t number, std::span<double> values) override {
    if (shared.isLocal(from))
      return inner->hear(from, number, values);
    if (heard.empty())
      heard.resize(size_t(size()));
    Heard &last = heard[size_t(from)];
    // Times that a rank has told arrive in their order.
    while (last.number < number) {
      receive(from, last.values[(last.number + 1) % toldTimes],
              sizeof(last.values[0]), Shared::Told);
      wait();
      ++last.number;
    }
    std::copy_n(last.values[number % toldTimes], values.size(), values.begin());
  }

  ~ProcessCommunicator() override {
    for (std::vector<Transport::Request> &started : posted)
      transport.cancel(started);
    for (Telling &telling : toldHere)
      transport.cancel(telling.requests);
    // Memory that the library may still read is never freed.
    if (isKept(scratch.get(), scratchSize))
      (void)scratch.release();
  }

  void abort() override {
    processes.abort({1, "rank " + std::to_string(self) + " gave up"});
  }

private:
  //===--------------------------------------------------------------------===//
  // Messages of a collective
  //===--------------------------------------------------------------------===//

  void send(int to, const void *data, uint64_t bytes) {
    if (shared.aborted.load(std::memory_order_acquire)) {
      giveUp();
      throw Aborted();
    }
    requests.push_back(transport.send(shared.owner[size_t(to)],
                                      shared.tag(self, to), data, bytes));
    peers.push_back(to);
  }
  void receive(int from, void *data, uint64_t bytes,
               Shared::Family family = Shared::Ordinary) {
    requests.push_back(transport.receive(shared.owner[size_t(from)],
                                         shared.tag(from, self, family), data,
                                         bytes));
    peers.push_back(from);
  }

  /// post(first, part) for each part of so many bytes that fits in a message,
  /// which is waited for.
  template <typename Post> void sendPieces(uint64_t bytes, Post post) {
    const uint64_t most = transport.largestMessage();
    for (uint64_t first = 0; first < bytes; first += most) {
      post(first, std::min(bytes - first, most));
      wait();
    }
  }

  /// Waits until the sends are complete, so that their memory may be reused.
  void await(std::vector<Transport::Request> &started) {
    Backoff backoff;
    for (checkAborted(); !transport.test(started); checkAborted())
      backoff.pause();
  }
  std::vector<Transport::Request> &requestsOf(int peer, size_t box) {
    return posted.at(box * size_t(size()) + size_t(peer));
  }
  /// The messages of what is posted, alike on both sides: a unit of this rank's
  /// buffer, the first byte behind it, bytes. What is added goes through a
  /// buffer.
  template <typename Visit>
  void forPostedPieces(const ExchangeCall &call, const ExchangePeer &side,
                       Visit visit) const {
    uint64_t most = transport.largestMessage();
    if (call.add)
      most = std::min<uint64_t>(most, scratchSize);
    most = most / 64 * 64;
    for (const ExchangeRow &row : side.rows) {
      uint64_t bytes = uint64_t(row.units) * call.bytesPerUnit;
      for (uint64_t at = 0; at < bytes; at += most)
        visit(row.localUnit, at, std::min(most, bytes - at));
    }
  }

  void checkAborted() const {
    if (shared.aborted.load(std::memory_order_acquire))
      throw Aborted();
  }

  /// Forgets what is on its way when a call ends by an exception.
  void giveUp() {
    transport.cancel(requests);
    requests.clear();
    peers.clear();
  }

  /// Waits until all messages have arrived.
  void wait() { wait(requests.size()); }

  /// Waits for the `count` oldest messages.
  void wait(size_t count) {
    Backoff backoff;
    try {
      for (checkAborted(); !transport.test({requests.data(), count});
           checkAborted()) {
        if (backoff.sleeps()) {
          size_t first = 0;
          while (first < count && !requests[first])
            ++first;
          if (first < count)
            sayWaiting(peers[first]);
        }
        backoff.pause();
      }
    } catch (...) {
      giveUp();
      throw;
    }
    requests.erase(requests.begin(), requests.begin() + ptrdiff_t(count));
    peers.erase(peers.begin(), peers.begin() + ptrdiff_t(count));
    said = -1;
  }

  /// Notes which peer has not come yet.
  void sayWaiting(int peer) {
    if (!currentActivity || peer == said)
      return;
    said = peer;
    currentActivity->narrowWait(peer);
  }

  //===--------------------------------------------------------------------===//
  // Sums
  //===--------------------------------------------------------------------===//

  /// Division of a sum over so many members: elements of a chunk, and how many
  /// chunks are on their way at once. Small chunks stay in a cache until they
  /// are added; enough of them fill a connection that answers late.
  struct Chunks {
    uint64_t elements, ahead;
  };
  template <typename T> Chunks chunksFor(int members) const {
    constexpr uint64_t line = 64 / sizeof(T);
    uint64_t share = scratchSize / uint64_t(members);
    uint64_t bytes =
        std::min<uint64_t>({chunkBytes, share / 2, transport.largestMessage()});
    uint64_t elements = std::max(line, bytes / sizeof(T) / line * line);
    return {elements,
            std::clamp<uint64_t>(share / (elements * sizeof(T)), 1, mostAhead)};
  }
  /// The place where a member's chunk of a round arrives.
  template <typename T> T *piece(Chunks chunks, int member, uint64_t round) {
    uint64_t place = uint64_t(member) * chunks.ahead + round % chunks.ahead;
    return reinterpret_cast<T *>(scratch.get()) + place * chunks.elements;
  }

  /// Adds a round's pieces of all members, `own` for this one, and `onto`.
  template <typename E, typename Write>
  void sumPieces(int members, int index, const typename E::Type *own,
                 uint64_t count, Chunks chunks, uint64_t round,
                 const typename E::Type *onto, Write write) {
    using T = typename E::Type;
    sumInOrder<E>(
        members, count, onto,
        [&](int member) -> const T * {
          return member == index ? own : piece<T>(chunks, member, round);
        },
        write);
  }

  /// Sums `rounds` chunks in their order: transfer(round) posts what this
  /// member receives and sends for one, sum(round) adds what came and may post
  /// more. Messages of the next chunks are on their way meanwhile.
  template <typename TransferChunk, typename SumChunk>
  void sumChunks(Chunks chunks, uint64_t rounds, TransferChunk transfer,
                 SumChunk sum) {
    // Messages that were waited for, and those posted until a round was.
    uint64_t done = 0;
    std::array<uint64_t, mostAhead> postedFor = {};
    auto transferRound = [&](uint64_t round) {
      if (round >= rounds)
        return;
      transfer(round);
      postedFor[round % chunks.ahead] = done + requests.size();
    };
    for (uint64_t round = 0; round < chunks.ahead; ++round)
      transferRound(round);
    for (uint64_t round = 0; round < rounds; ++round) {
      uint64_t due = postedFor[round % chunks.ahead];
      wait(due - done);
      done = due;
      sum(round);
      transferRound(round + chunks.ahead);
    }
    wait();
  }

  template <typename E>
  void reduce(SpreadGroup &group, void *data, uint64_t count) {
    using T = typename E::Type;
    if (count == 0)
      return;
    T *values = static_cast<T *>(data);
    const uint64_t bytes = count * sizeof(T);
    if (bytes * uint64_t(group.size()) <= std::min(smallBytes, scratchSize) &&
        bytes <= transport.largestMessage())
      return reduceSmall<E>(group, values, count);
    reduceLarge<E>(group, values, count);
  }

  template <typename E>
  void reduceSmall(SpreadGroup &group, typename E::Type *values,
                   uint64_t count) {
    using T = typename E::Type;
    int index = group.indexOf(self), members = group.size();
    const Chunks whole = {count, 1};
    for (int step = 1; step < members; ++step) {
      int from = (index + members - step) % members;
      receive(group.ranks()[size_t(from)], piece<T>(whole, from, 0),
              count * sizeof(T));
      send(group.ranks()[size_t((index + step) % members)], values,
           count * sizeof(T));
    }
    wait();
    sumPieces<E>(members, index, values, count, whole, /*round=*/0, nullptr,
                 [&](uint64_t first, uint64_t part, const T *sums) {
                   std::memcpy(values + first, sums, part * sizeof(T));
                 });
  }

  /// Each member sums one part of the elements, chunk by chunk, and sends what
  /// it has summed to the others while the next chunk comes in.
  template <typename E>
  void reduceLarge(SpreadGroup &group, typename E::Type *values,
                   uint64_t count) {
    using T = typename E::Type;
    int index = group.indexOf(self), members = group.size();
    const Chunks chunks = chunksFor<T>(members);
    const uint64_t chunk = chunks.elements;
    uint64_t rounds = 0;
    for (int member = 0; member < members; ++member) {
      auto [begin, end] = partOf(count, members, member);
      rounds = std::max(rounds, (end - begin + chunk - 1) / chunk);
    }
    // Chunk `round` of a member's part.
    auto range = [&](int member, uint64_t round) {
      auto [begin, end] = partOf(count, members, member);
      uint64_t first = std::min(begin + round * chunk, end);
      return std::pair(first, std::min(first + chunk, end));
    };
    auto transferParts = [&](uint64_t round) {
      auto [begin, end] = range(index, round);
      for (int step = 1; step < members; ++step) {
        int from = (index + members - step) % members;
        int to = (index + step) % members;
        if (begin < end)
          receive(group.ranks()[size_t(from)], piece<T>(chunks, from, round),
                  (end - begin) * sizeof(T));
        if (auto [first, last] = range(to, round); first < last)
          send(group.ranks()[size_t(to)], values + first,
               (last - first) * sizeof(T));
      }
    };
    auto transferSums = [&](uint64_t round) {
      auto [begin, end] = range(index, round);
      for (int step = 1; step < members; ++step) {
        int from = (index + members - step) % members;
        int to = (index + step) % members;
        if (auto [first, last] = range(from, round); first < last)
          receive(group.ranks()[size_t(from)], values + first,
                  (last - first) * sizeof(T));
        if (begin < end)
          send(group.ranks()[size_t(to)], values + begin,
               (end - begin) * sizeof(T));
      }
    };
    sumChunks(chunks, rounds, transferParts, [&](uint64_t round) {
      auto [begin, end] = range(index, round);
      T *own = values + begin;
      sumPieces<E>(members, index, own, end - begin, chunks, round, nullptr,
                   [&](uint64_t first, uint64_t part, const T *sums) {
                     std::memcpy(own + first, sums, part * sizeof(T));
                   });
      transferSums(round);
    });
  }

  //===--------------------------------------------------------------------===//
  // Exchanges
  //===--------------------------------------------------------------------===//

  void addStream(const ExchangeCall &call, const ExchangePeer &side,
                 bool sends) {
    Stream stream;
    stream.call = &call;
    stream.side = &side;
    stream.sends = sends;
    for (size_t i = 0; i < streams.size(); ++i)
      if (streams[i].call != &call && streams[i].sends == sends &&
          streams[i].side->peer == side.peer)
        stream.before = int(i);
    stream.buffer = scratch.get() + streams.size() * packet;
    if ((streams.size() + 1) * packet > scratchSize)
      fail("rank " + std::to_string(self) +
           ": an exchange has more than one transfer to or from a rank");
    streams.push_back(stream);
  }

  void runStreams() {
    Backoff backoff;
    while (true) {
      bool moved = false;
      const Stream *waiting = nullptr;
      for (size_t i = 0; i < streams.size(); ++i) {
        Stream &stream = streams[i];
        if (stream.done)
          continue;
        // Arriving data is added in the order of the peers, so a stream waits
        // for the one before it.
        bool blocked = !stream.sends && stream.call->add && i > 0 &&
                       streams[i - 1].call == stream.call &&
                       !streams[i - 1].sends && !streams[i - 1].done;
        blocked |= stream.before >= 0 && !streams[size_t(stream.before)].done;
        if (!blocked)
          moved |= advance(stream);
        if (!stream.done && !waiting)
          waiting = &stream;
      }
      if (!waiting)
        return;
      checkAborted();
      if (moved) {
        backoff.reset();
        continue;
      }
      if (backoff.sleeps())
        sayWaiting(waiting->side->peer);
      backoff.pause();
    }
  }

  /// Does what can be done without waiting; whether that was anything.
  bool advance(Stream &stream) {
    int peer = stream.side->peer;
    if (peer == self) {
      takeRows(*stream.call, *stream.side,
               static_cast<const char *>(stream.call->source));
      stream.done = true;
      return true;
    }
    if (shared.isLocal(peer))
      return stream.sends ? offer(stream) : take(stream);
    if (stream.posted) {
      if (!transport.test({&stream.request, 1}))
        return false;
      stream.posted = false;
      if (!stream.sends && stream.packedBytes)
        unpack(stream);
      stream.done = stream.row == stream.side->rows.size();
      return true;
    }
    post(stream);
    return true;
  }

  bool offer(Stream &stream) {
    Mailbox &box = shared.local.mailbox(self, stream.side->peer);
    if (box.state.load() != Mailbox::empty)
      return false;
    if (stream.posted) {
      stream.done = true;
    } else {
      box.base = static_cast<const char *>(stream.call->source);
      box.state.store(Mailbox::posted);
      stream.posted = true;
    }
    return true;
  }

  bool take(Stream &stream) {
    Mailbox &box = shared.local.mailbox(stream.side->peer, self);
    if (box.state.load() != Mailbox::posted)
      return false;
    takeRows(*stream.call, *stream.side, box.base);
    box.state.store(Mailbox::empty);
    stream.done = true;
    return true;
  }

  /// Starts the next message of a stream.
  void post(Stream &stream) {
    int peer = stream.side->peer;
    stream.posted = true;
    stream.packedBytes = 0;
    uint64_t left = stream.rowBytes(stream.row) - stream.offset;
    if (!stream.call->add && left >= packet) {
      uint64_t bytes = std::min<uint64_t>(left, transport.largestMessage());
      char *data = stream.place(stream.row) + stream.offset;
      start(stream, peer, data, bytes);
      forward(stream, bytes);
      return;
    }
    stream.packedRow = stream.row;
    stream.packedOffset = stream.offset;
    forEachPacked(stream, [&](char *place, char *packed, uint64_t bytes) {
      if (stream.sends)
        std::memcpy(packed, place, bytes);
      stream.packedBytes += bytes;
    });
    start(stream, peer, stream.buffer, stream.packedBytes);
  }

  void start(Stream &stream, int peer, char *data, uint64_t bytes) {
    checkAborted();
    int process = shared.owner[size_t(peer)];
    stream.request =
        stream.sends
            ? transport.send(process, shared.tag(self, peer), data, bytes)
            : transport.receive(process, shared.tag(peer, self), data, bytes);
  }

  static void forward(Stream &stream, uint64_t bytes) {
    stream.offset += bytes;
    if (stream.offset == stream.rowBytes(stream.row)) {
      ++stream.row;
      stream.offset = 0;
    }
  }

  /// Visits what fits in one packet from where the stream stands, and moves the
  /// stream behind it. Only rows that are added are cut, between elements: a
  /// packet has a whole number of them.
  template <typename Visit> void forEachPacked(Stream &stream, Visit visit) {
    uint64_t filled = 0;
    while (stream.row < stream.side->rows.size()) {
      uint64_t left = stream.rowBytes(stream.row) - stream.offset;
      uint64_t room = packet - filled;
      bool whole = !stream.call->add;
      if (room == 0 || (whole && (left >= packet || left > room)))
        return;
      uint64_t bytes = std::min(left, room);
      visit(stream.place(stream.row) + stream.offset, stream.buffer + filled,
            bytes);
      filled += bytes;
      forward(stream, bytes);
    }
  }

  void unpack(Stream &stream) {
    stream.row = stream.packedRow;
    stream.offset = stream.packedOffset;
    forEachPacked(stream, [&](char *place, char *packed, uint64_t bytes) {
      if (!stream.call->add) {
        std::memcpy(place, packed, bytes);
        return;
      }
      dispatchSum(stream.call->dtype, [&](auto element) {
        addInto<decltype(element)>(place, packed, bytes);
      });
    });
  }

  ProcessWorld &processes;
  ProcessWorld::Shared &shared;
  Transport &transport;
  int self;
  std::unique_ptr<Communicator> inner;
  Group *world = nullptr;
  const uint64_t packet;
  const uint64_t scratchSize;
  std::unique_ptr<char[]> scratch;
  std::vector<Stream> streams;
  std::vector<Transport::Request> requests;
  std::vector<int> peers; ///< of the requests
  int said = -1;          ///< the peer noted last
  /// Sends of posted messages that are not complete, by box and peer.
  std::vector<std::vector<Transport::Request>> posted;
  struct Telling {
    double values[toldNumbers] = {};
    std::vector<Transport::Request> requests;
  };
  Telling toldHere[toldTimes];
  struct Heard {
    uint64_t number = 0;
    double values[toldTimes][toldNumbers] = {};
  };
  std::vector<Heard> heard; ///< by rank
};

} // namespace

ProcessWorld::ProcessWorld(Transport &transport, std::vector<int> firstRanks,
                           int epoch, std::function<void(const Failure &)> tell)
    : shared(std::make_unique<Shared>(transport, std::move(firstRanks), epoch,
                                      std::move(tell))) {}
ProcessWorld::~ProcessWorld() = default;

int ProcessWorld::size() const { return shared->size(); }
int ProcessWorld::firstLocal() const { return shared->local.firstLocal(); }
int ProcessWorld::localCount() const { return shared->local.size(); }
int ProcessWorld::machineRanks() const { return shared->machineRanks; }

void ProcessWorld::setHosts(RunHosts hosts) {
  shared->hosts = std::move(hosts);
}

const RunHosts *ProcessWorld::hosts() const {
  return shared->hosts ? &*shared->hosts : nullptr;
}

std::unique_ptr<Communicator> ProcessWorld::join(int rank) {
  return std::make_unique<ProcessCommunicator>(*this, *shared, rank);
}

void ProcessWorld::abort(const Failure &failure) {
  fail(failure);
  shared->tell(failure);
}

void ProcessWorld::fail(const Failure &failure) {
  {
    std::lock_guard<std::mutex> lock(shared->mutex);
    if (!shared->reason)
      shared->reason = failure;
  }
  shared->abort();
}

std::optional<Failure> ProcessWorld::failure() const {
  std::lock_guard<std::mutex> lock(shared->mutex);
  return shared->reason;
}

void ProcessWorld::watch(std::span<const std::unique_ptr<Activity>> ranks) {
  if (shared->watcher)
    shared->watcher(ranks);
}

void ProcessWorld::setWatcher(Watcher watcher) {
  shared->watcher = std::move(watcher);
}

uint64_t ProcessWorld::scratchBytes(int ranks) {
  constexpr uint64_t least = 2 * mostAhead * chunkBytes; // a sum of two ranks
  return std::max(least, 2 * uint64_t(ranks) * packetBytes(ranks));
}

} // namespace grt
