//===- collectives.cpp - Collectives of a modelled device -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/values.h"
#include "operations.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

namespace grt::recording {
namespace {

/// Worlds are known by number: an identity is plain bytes.
std::map<uint64_t, std::weak_ptr<World>> worlds;
uint64_t worldCount = 0;

int32_t makeIdentity(void *identity, char *, size_t) {
  ModelLock lock;
  uint64_t number = ++worldCount;
  std::memcpy(identity, &number, sizeof(number));
  return 0;
}

int32_t joinWorld(void *state, const void *identity, int32_t number,
                  int32_t ranks, char *message, size_t capacity) {
  // What the rank did alone is over, for the host too.
  if (int32_t status = synchronise(state, GRT_STREAM_COUNT, message, capacity))
    return status;
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    uint64_t which = 0;
    std::memcpy(&which, identity, sizeof(which));
    std::shared_ptr<World> world = worlds[which].lock();
    if (!world)
      worlds[which] = world =
          std::make_shared<World>(ranks, nextSeed() + which);
    if (world->size() != ranks || number < 0 || number >= ranks ||
        world->ranks[size_t(number)])
      throw std::runtime_error("rank " + std::to_string(number) + " of " +
                               std::to_string(ranks) +
                               " does not fit into the world");
    rank.world->ranks[0] = nullptr;
    rank.number = number;
    rank.world = world;
    world->ranks[size_t(number)] = &rank;
    Clock clock(size_t(ranks) * (GRT_STREAM_COUNT + 1));
    rank.host = std::make_shared<const Clock>(clock);
    for (Stream &stream : rank.streams) {
      stream.clock = clock;
      stream.issued = 0;
      stream.last = nullptr;
    }
    std::fill(rank.events.begin(), rank.events.end(), nullptr);
    for (Allocation *allocation : rank.used)
      allocation->accesses.forget();
  });
}

int32_t makeGroup(void *state, const int32_t *ranks, int32_t count,
                  void **group, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    *group = nullptr;
    if (count == 0)
      return;
    std::vector<int> list(ranks, ranks + count);
    if (std::find(list.begin(), list.end(), rank.number) == list.end())
      throw std::runtime_error("rank " + std::to_string(rank.number) +
                               " is not in its group");
    *group = rank.world->group(list);
  });
}

/// An operation that all members of a group have.
std::unique_ptr<Operation> operationOf(Rank &rank, void *handle,
                                       uint32_t stream, Operation::Kind kind) {
  auto *group = static_cast<Group *>(handle);
  if (!group)
    throw std::runtime_error("a collective without a group");
  // The touches' messages need a name before the part is known.
  auto made = operation(rank, stream, kind, "collective");
  made->group = group;
  made->member =
      size_t(std::find(group->ranks.begin(), group->ranks.end(), rank.number) -
             group->ranks.begin());
  return made;
}

/// All members run the same layers.
void meetGroup(Operation &made, const char *name) {
  const Rank &rank = *made.rank;
  std::string text = std::string(name) + " of ranks ";
  for (size_t i = 0; i < made.group->ranks.size(); ++i)
    text += (i ? ", " : "") + std::to_string(made.group->ranks[i]);
  made.label->what = text;
  made.label->number = rank.streams[made.stream].issued + 1;
  for (int other : made.group->ranks)
    if (other != rank.number)
      made.meets.push_back(other);
  made.pairing = rank.place + text;
}

void putCollective(Rank &rank, void *handle, uint32_t stream,
                   const std::function<Part(Operation &, const Group &,
                                            size_t member)> &describe) {
  auto made = operationOf(rank, handle, stream, Operation::Kind::Collective);
  made->part = describe(*made, *made->group, made->member);
  meetGroup(*made, collectiveName(made->part.kind));
  put(std::move(made));
}

template <CollectiveKind Kind>
int32_t allReduce(void *state, void *group, uint32_t stream, void *data,
                  uint64_t count, uint32_t dtype, char *message,
                  size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    putCollective(
        rank, group, stream, [&](Operation &made, const Group &, size_t) {
          uint64_t bytes = count * dtypeBytes(dtype);
          touch(made, data, bytes, false);
          char *memory = touch(made, data, bytes, true);
          return Part{Kind, memory, memory, nullptr, count, dtype, false};
        });
  });
}

int32_t allGather(void *state, void *group, uint32_t stream, const void *in,
                  void *out, uint64_t bytes, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    putCollective(rank, group, stream,
                  [&](Operation &made, const Group &members, size_t) {
                    char *from = touch(made, in, bytes, false);
                    char *to =
                        touch(made, out, bytes * members.ranks.size(), true);
                    return Part{CollectiveKind::AllGather,
                                from,
                                to,
                                nullptr,
                                bytes,
                                GRT_U8,
                                false};
                  });
  });
}

int32_t allToAll(void *state, void *group, uint32_t stream, const void *in,
                 void *out, uint64_t bytes, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    putCollective(rank, group, stream,
                  [&](Operation &made, const Group &members, size_t) {
                    const uint64_t all = bytes * members.ranks.size();
                    char *from = touch(made, in, all, false);
                    char *to = touch(made, out, all, true);
                    return Part{CollectiveKind::AllToAll,
                                from,
                                to,
                                nullptr,
                                bytes,
                                GRT_U8,
                                false};
                  });
  });
}

int32_t reduceScatter(void *state, void *group, uint32_t stream, const void *in,
                      void *out, uint64_t count, uint32_t dtype,
                      int32_t accumulate, void *scratch, char *message,
                      size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    putCollective(
        rank, group, stream,
        [&](Operation &made, const Group &members, size_t) {
          uint64_t bytes = count * dtypeBytes(dtype);
          char *from = touch(made, in, bytes * members.ranks.size(), false);
          if (accumulate)
            touch(made, out, bytes, false);
          char *to = touch(made, out, bytes, true);
          char *room = accumulate ? touch(made, scratch, bytes, true) : nullptr;
          return Part{CollectiveKind::ReduceScatter,
                      from,
                      to,
                      room,
                      count,
                      dtype,
                      accumulate != 0};
        });
  });
}

/// The pieces of an exchange; `peerOf(number)` is the rank that a piece names.
template <typename PeerOf>
void addPieces(Operation &made, std::span<const grt_exchange_piece> sends,
               std::span<const grt_exchange_piece> receives, PeerOf peerOf) {
  for (auto [side, isSend] : {std::pair(sends, true), {receives, false}})
    for (const grt_exchange_piece &piece : side) {
      const std::optional<int> peer = peerOf(piece.peer);
      if (!peer || *peer == made.rank->number)
        throw std::runtime_error(made.label->text() + " names rank " +
                                 std::to_string(piece.peer));
      char *memory = touchEither(made, piece.address, piece.bytes, !isSend,
                                 /*mayBePageable=*/false);
      made.pieces.push_back({*peer, isSend, memory, piece.bytes, 0});
    }
}

int32_t exchange(void *state, uint32_t stream, const grt_exchange_piece *sends,
                 uint64_t sendCount, const grt_exchange_piece *receives,
                 uint64_t receiveCount, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    auto made = operation(rank, stream, Operation::Kind::Exchange, "exchange");
    made->label->number = rank.streams[stream].issued + 1;
    addPieces(*made, {sends, sendCount}, {receives, receiveCount},
              [&](int peer) -> std::optional<int> {
                if (peer < 0 || peer >= rank.world->size())
                  return std::nullopt;
                return peer;
              });
    std::set<int> peers;
    for (const Piece &piece : made->pieces)
      peers.insert(piece.peer);
    made->meets.assign(peers.begin(), peers.end());
    made->pairing = "an exchange";
    put(std::move(made));
  });
}

int32_t exchangeInGroup(void *state, void *handle, uint32_t stream,
                        const grt_exchange_piece *sends, uint64_t sendCount,
                        const grt_exchange_piece *receives,
                        uint64_t receiveCount, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    auto made = operationOf(rank, handle, stream, Operation::Kind::Exchange);
    addPieces(*made, {sends, sendCount}, {receives, receiveCount},
              [&](int peer) -> std::optional<int> {
                const std::vector<int> &ranks = made->group->ranks;
                if (peer < 0 || size_t(peer) >= ranks.size())
                  return std::nullopt;
                return ranks[size_t(peer)];
              });
    meetGroup(*made, "exchange");
    put(std::move(made));
  });
}

int32_t check(void *state, char *message, size_t capacity) {
  return guarded(state, message, capacity, [](ModelLock &, Rank &) {});
}

void abortWorld(void *state) {
  ModelLock lock;
  World &world = *rankOf(state).world;
  world.aborted = true;
  world.changed.notify_all();
}

} // namespace

const grt_device_collectives &collectivesTable() {
  static const grt_device_collectives table = [] {
    grt_device_collectives table{};
    table.bytes = sizeof(table);
    table.in_graphs = 1;
    table.name = "recording";
    table.identity_bytes = sizeof(uint64_t);
    table.make_identity = makeIdentity;
    table.join = joinWorld;
    table.make_group = makeGroup;
    table.all_reduce = allReduce<CollectiveKind::AllReduce>;
    table.all_reduce_max = allReduce<CollectiveKind::AllReduceMax>;
    table.all_to_all = allToAll;
    table.exchange_in_group = exchangeInGroup;
    table.all_gather = allGather;
    table.reduce_scatter = reduceScatter;
    table.exchange = exchange;
    table.check = check;
    table.abort = abortWorld;
    return table;
  }();
  return table;
}

} // namespace grt::recording
