//===- process_world.cpp - Ranks of several processes ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/process_world.h"
#include "base/allocation.h"
#include "base/kept_memory.h"
#include "comm/backoff.h"
#include "comm/blocks.h"
#include "comm/exchange_streams.h"
#include "comm/sum.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace grt {
namespace {

/// Size in bytes below which an all-reduce is bound by latency and takes one
/// round instead of two.
constexpr uint64_t smallBytes = 16 << 10;

/// Chunks of a sum, and how many of each member are on their way at most.
constexpr uint64_t chunkBytes = 128 << 10, mostAhead = 8;

/// Most ranks whose numbers of a step are gathered in one round.
constexpr int fewRanks = 4;

class ProcessCommunicator : public Communicator {
  using Shared = ProcessWorld::Shared;

public:
  ProcessCommunicator(ProcessWorld &processes, ProcessWorld::Shared &shared,
                      int rank)
      : processes(processes), shared(shared), transport(shared.transport),
        self(rank), inner(shared.local.join(rank)),
        scratchSize(ProcessWorld::scratchBytes(shared.size())),
        scratch(std::make_unique<char[]>(scratchSize)),
        streams(shared, rank, {scratch.get(), size_t(scratchSize)}) {
    std::vector<int> all(static_cast<size_t>(shared.size()));
    for (int r = 0; r < shared.size(); ++r)
      all[size_t(r)] = r;
    world = &group(all);
    // Reserves all that calls need, as nothing is taken from the heap while the
    // ranks run.
    size_t most = 2 * size_t(shared.size());
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
    streams.run(calls);
  }

  /// Gathers in rounds in which the blocks that a rank has double (Bruck et
  /// al., IEEE TPDS 8(11), 1997, section 3): log2(ranks) messages a rank
  /// instead of one to each other.
  void gather(std::span<const std::byte> in,
              std::span<std::byte> out) override {
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
    for (int i = 0; i < ranks; ++i)
      std::memcpy(out.data() + uint64_t((self + i) % ranks) * bytes,
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
    shared.checkAborted();
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
  void tell(uint64_t number, std::span<const std::byte> message) override {
    inner->tell(number, message);
    UncountedAllocations uncounted;
    Telling &telling = toldHere[number % toldTimes];
    await(telling.requests);
    telling.requests.clear();
    shared.checkAborted();
    std::copy(message.begin(), message.end(), telling.message);
    for (int peer = 0; peer < size(); ++peer)
      if (!shared.isLocal(peer))
        telling.requests.push_back(transport.send(
            shared.owner[size_t(peer)], shared.tag(self, peer, Shared::Told),
            telling.message, sizeof(telling.message)));
  }
  void hear(int from, uint64_t number, std::span<std::byte> message) override {
    if (shared.isLocal(from))
      return inner->hear(from, number, message);
    if (heard.empty())
      heard.resize(size_t(size()));
    Heard &last = heard[size_t(from)];
    // Times that a rank has told arrive in their order.
    while (last.number < number) {
      receive(from, last.messages[(last.number + 1) % toldTimes],
              sizeof(last.messages[0]), Shared::Told);
      wait();
      ++last.number;
    }
    std::copy_n(last.messages[number % toldTimes], message.size(),
                message.begin());
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
    for (shared.checkAborted(); !transport.test(started); shared.checkAborted())
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
      for (shared.checkAborted(); !transport.test({requests.data(), count});
           shared.checkAborted()) {
        if (backoff.sleeps()) {
          size_t first = 0;
          while (first < count && !requests[first])
            ++first;
          if (first < count)
            backoff.note(peers[first]);
        }
        backoff.pause();
      }
    } catch (...) {
      giveUp();
      throw;
    }
    requests.erase(requests.begin(), requests.begin() + ptrdiff_t(count));
    peers.erase(peers.begin(), peers.begin() + ptrdiff_t(count));
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

  ProcessWorld &processes;
  ProcessWorld::Shared &shared;
  Transport &transport;
  int self;
  std::unique_ptr<Communicator> inner;
  Group *world = nullptr;
  const uint64_t scratchSize;
  std::unique_ptr<char[]> scratch;
  ExchangeStreams streams;
  std::vector<Transport::Request> requests;
  std::vector<int> peers; ///< of the requests
  /// Sends of posted messages that are not complete, by box and peer.
  std::vector<std::vector<Transport::Request>> posted;
  struct Telling {
    std::byte message[mostToldBytes] = {};
    std::vector<Transport::Request> requests;
  };
  Telling toldHere[toldTimes];
  struct Heard {
    uint64_t number = 0;
    std::byte messages[toldTimes][mostToldBytes] = {};
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
