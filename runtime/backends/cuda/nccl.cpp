//===- nccl.cpp - Collectives between processes through NCCL --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One communicator for the world; groups are split from it, with connections of
// their own. NCCL gives all members of an all-reduce the same bits, but has an
// order of sums of its own, and rounds bf16 at every hop.
//
//===----------------------------------------------------------------------===//

#include "collective_blocks.h"
#include "collectives.h"
#include "nccl_world.h"
#include "queries.h"
#include "rank.h"

#include "../common/call.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace grt::cuda {
namespace {

/// The object behind a group's handle: a communicator for each stream that it
/// is used on, and one of those for the others. NCCL runs the kernels of one
/// communicator one behind the other, whatever streams they are on.
struct NcclGroup {
  NcclCommunicator *on[GRT_STREAM_COUNT] = {};
  int32_t count = 0, index = 0; ///< members; this rank's place among them
  /// The pieces of an all-to-all that is made of sends and receives.
  std::vector<grt_exchange_piece> sends, receives;

  void fill(NcclCommunicator *without) {
    for (NcclCommunicator *&each : on)
      each = each ? each : without;
  }
  NcclCommunicator *any() const {
    for (NcclCommunicator *each : on)
      if (each)
        return each;
    return nullptr;
  }
};

class NcclMembership : public Membership {
public:
  NcclMembership(const ncclUniqueId &identity, int32_t rank, int32_t ranks)
      : own(std::make_shared<NcclRank>(rank, ranks)),
        world(NcclWorld::of(identity)) {
    world->add(own);
  }
  ~NcclMembership() override {
    if (!world->isAborted())
      own->destroy();
  }
  void abort() override { world->abort(); }
  bool isAborted() const override { return world->isAborted(); }
  bool awaitAbort(std::chrono::milliseconds longest) override {
    return world->awaitAbort(longest);
  }

  const std::shared_ptr<NcclRank> own;
  NcclGroup exchanges; ///< of everybody
  std::vector<std::unique_ptr<NcclGroup>> groups;

private:
  const std::shared_ptr<NcclWorld> world;
};

NcclMembership &membershipOf(Rank &rank) {
  auto *membership = dynamic_cast<NcclMembership *>(rank.membership.get());
  if (!membership)
    throw CallError("the rank has joined no NCCL world");
  return *membership;
}
NcclRank &membershipOf(void *state) { return *membershipOf(rankOf(state)).own; }

NcclCommunicator &groupOf(void *group, uint32_t stream) {
  if (stream >= GRT_STREAM_COUNT)
    throw CallError("no stream " + std::to_string(stream));
  return *static_cast<NcclGroup *>(group)->on[stream];
}

/// Returns the name of the purpose of a stream's communicator.
const char *purposeOf(uint32_t stream, bool exchanges) {
  switch (stream) {
  case GRT_STREAM_COMPUTE:
    return exchanges ? "reshard" : "tensor";
  case GRT_STREAM_GRADIENT:
    return "gradient";
  case GRT_STREAM_GATHER:
    return "gather";
  default:
    return "transfer";
  }
}

/// The type of what is summed, or compared.
ncclDataType_t typeOf(uint32_t dtype, bool sums = true) {
  switch (dtype) {
  case GRT_F32:
    return ncclFloat32;
  case GRT_F64:
    return ncclFloat64;
  case GRT_BF16:
    return ncclBfloat16;
  case GRT_I32:
    if (!sums)
      return ncclInt32;
    break;
  case GRT_U8:
    if (!sums)
      return ncclUint8;
    break;
  }
  throw CallError(std::string("cannot ") + (sums ? "sum" : "compare") +
                  " elements of dtype " + std::to_string(dtype));
}

int32_t makeIdentity(void *identity, char *message, size_t messageBytes) {
  return guarded("make_identity", message, messageBytes, [&] {
    gpu::use();
    ncclUniqueId id;
    checkNccl(nccl().getUniqueId(&id), "ncclGetUniqueId");
    std::memcpy(identity, &id, sizeof(id));
  });
}

/// Loads the kernels that reduce_scatter launches behind its collective, which
/// nothing may be loaded beside.
void loadSums(Rank &rank) {
  const Queue queue = rank.queue("join");
  for (auto [dtype, width] :
       {std::pair(GRT_F32, 4), {GRT_F64, 8}, {GRT_BF16, 2}}) {
    Members memory = {};
    memory.at[0] = queue.workspace;
    memory.count = 1;
    // A whole pack, and what is left behind those.
    const uint64_t count = uint64_t(16 / width + 1);
    sumInOrder(queue.stream, uint32_t(dtype), count, memory, queue.workspace,
               memory);
  }
  rank.synchronise(GRT_STREAM_COMPUTE);
}

int32_t join(void *state, const void *identity, int32_t rank, int32_t ranks,
             char *message, size_t messageBytes) {
  return guarded("join", message, messageBytes, [&] {
    gpu::use();
    ncclUniqueId id;
    std::memcpy(&id, identity, sizeof(id));
    auto made = std::make_unique<NcclMembership>(id, rank, ranks);
    NcclMembership &membership = *made;
    Rank &self = rankOf(state);
    if (self.wanted.atOnce > 0)
      membership.own->limitBlocks(blocksOfEach(
          gpu::capability(), gpu::multiprocessors(), int(self.wanted.atOnce)));
    // The rank can be aborted from here on, while it waits for others.
    self.setMembership(std::move(made));
    try {
      NcclRank &own = *membership.own;
      own.join(id);
      for (uint32_t stream = 0; stream < GRT_STREAM_COUNT && ranks > 1;
           ++stream)
        if (self.wanted.streams >> stream & 1)
          membership.exchanges.on[stream] =
              own.split(/*color=*/0, rank, purposeOf(stream, true));
      membership.exchanges.fill(&own.world());
    } catch (const DeviceError &) {
      membership.abort();
      throw;
    }
    loadSums(self);
    self.peakBytes();
  });
}

int32_t useStreams(void *state, uint32_t streams, uint32_t anywhere,
                   uint32_t atOnce, char *message, size_t messageBytes) {
  return guarded("use_streams", message, messageBytes,
                 [&] { rankOf(state).wanted = {streams, anywhere, atOnce}; });
}

int32_t makeGroup(void *state, const int32_t *ranks, int32_t count,
                  void **group, char *message, size_t messageBytes) {
  return guarded("make_group", message, messageBytes, [&] {
    gpu::use();
    NcclMembership &membership = membershipOf(rankOf(state));
    NcclRank &self = *membership.own;
    const auto wanted = rankOf(state).wanted;
    *group = nullptr;
    auto made = std::make_unique<NcclGroup>();
    made->count = count;
    made->sends.reserve(size_t(count));
    made->receives.reserve(size_t(count));
    // A list of everybody in order is the same on all ranks: no split.
    bool everybody = count == self.ranks;
    for (int32_t i = 0; i < count; ++i)
      everybody = everybody && ranks[i] == i;
    if (everybody && !wanted.anywhere) {
      made->index = self.rank;
      made->fill(&self.world());
      *group = membership.groups.emplace_back(std::move(made)).get();
      return;
    }
    // Disjoint groups may be made by one split: their first ranks differ.
    int key = 0;
    while (key < count && ranks[key] != self.rank)
      ++key;
    if (count > 0 && key == count)
      throw CallError("rank " + std::to_string(self.rank) +
                      " is no member of the group");
    made->index = key;
    std::string name = "ranks";
    for (int32_t i = 0; i < std::min(count, 4); ++i)
      name += " " + std::to_string(ranks[i]);
    if (count > 4)
      name += " ..";
    // Each rank splits as often as all others, in one order.
    const uint32_t anywhere = wanted.anywhere ? wanted.anywhere : 1;
    const uint32_t own = wanted.anywhere ? wanted.streams : 1;
    for (uint32_t stream = 0; stream < GRT_STREAM_COUNT; ++stream)
      if (anywhere >> stream & 1)
        made->on[stream] = self.split(
            count > 0 && own >> stream & 1 ? ranks[0] : NCCL_SPLIT_NOCOLOR, key,
            wanted.anywhere ? purposeOf(stream, false) + (" of " + name)
                            : name);
    if (count > 0) {
      made->fill(made->any());
      *group = membership.groups.emplace_back(std::move(made)).get();
    }
    rankOf(state).peakBytes();
  });
}

int32_t allReduce(void *state, void *group, uint32_t stream, void *data,
                  uint64_t count, uint32_t dtype, char *message,
                  size_t messageBytes) {
  return guarded("all_reduce", message, messageBytes, [&] {
    gpu::use();
    const ncclDataType_t type = typeOf(dtype);
    Stream queue = rankOf(state).stream(stream);
    membershipOf(state).run(groupOf(group, stream), "ncclAllReduce",
                            [&](ncclComm_t comm) {
                              return nccl().allReduce(data, data, count, type,
                                                      ncclSum, comm, queue);
                            });
  });
}

int32_t allReduceMax(void *state, void *group, uint32_t stream, void *data,
                     uint64_t count, uint32_t dtype, char *message,
                     size_t messageBytes) {
  return guarded("all_reduce_max", message, messageBytes, [&] {
    gpu::use();
    const ncclDataType_t type = typeOf(dtype, /*sums=*/false);
    Stream queue = rankOf(state).stream(stream);
    membershipOf(state).run(groupOf(group, stream), "ncclAllReduce",
                            [&](ncclComm_t comm) {
                              return nccl().allReduce(data, data, count, type,
                                                      ncclMax, comm, queue);
                            });
  });
}

int32_t allGather(void *state, void *group, uint32_t stream, const void *in,
                  void *out, uint64_t bytes, char *message,
                  size_t messageBytes) {
  return guarded("all_gather", message, messageBytes, [&] {
    gpu::use();
    Stream queue = rankOf(state).stream(stream);
    membershipOf(state).run(
        groupOf(group, stream), "ncclAllGather", [&](ncclComm_t comm) {
          return nccl().allGather(in, out, bytes, ncclUint8, comm, queue);
        });
  });
}

int32_t reduceScatter(void *state, void *group, uint32_t stream, const void *in,
                      void *out, uint64_t count, uint32_t dtype,
                      int32_t accumulate, void *scratch, char *message,
                      size_t messageBytes) {
  return guarded("reduce_scatter", message, messageBytes, [&] {
    gpu::use();
    Stream queue = rankOf(state).stream(stream);
    const ncclDataType_t type = typeOf(dtype);
    void *sums = accumulate ? scratch : out;
    membershipOf(state).run(groupOf(group, stream), "ncclReduceScatter",
                            [&](ncclComm_t comm) {
                              return nccl().reduceScatter(in, sums, count, type,
                                                          ncclSum, comm, queue);
                            });
    if (!accumulate || count == 0)
      return;
    Members from = {}, to = {};
    from.at[0] = sums;
    to.at[0] = out;
    from.count = to.count = 1;
    sumInOrder(queue, dtype, count, from, out, to);
  });
}

/// Sends and receives on one communicator, in one group of calls.
void sendAndReceive(NcclRank &rank, NcclCommunicator &communicator,
                    Stream stream, std::span<const grt_exchange_piece> sends,
                    std::span<const grt_exchange_piece> receives) {
  if (sends.empty() && receives.empty())
    return;
  rank.run(communicator, "ncclSend or ncclRecv", [&](ncclComm_t comm) {
    ncclResult_t result = nccl().groupStart();
    if (result != ncclSuccess)
      return result;
    // The group is ended whatever happens inside it.
    for (const grt_exchange_piece &piece : sends)
      if (result == ncclSuccess)
        result = nccl().send(piece.address, piece.bytes, ncclUint8, piece.peer,
                             comm, stream);
    for (const grt_exchange_piece &piece : receives)
      if (result == ncclSuccess)
        result = nccl().receive(piece.address, piece.bytes, ncclUint8,
                                piece.peer, comm, stream);
    ncclResult_t end = nccl().groupEnd();
    return result == ncclSuccess ? end : result;
  });
}

int32_t exchange(void *state, uint32_t streamNumber,
                 const grt_exchange_piece *sends, uint64_t sendCount,
                 const grt_exchange_piece *receives, uint64_t receiveCount,
                 char *message, size_t messageBytes) {
  return guarded("exchange", message, messageBytes, [&] {
    gpu::use();
    NcclMembership &membership = membershipOf(rankOf(state));
    Stream stream = rankOf(state).stream(streamNumber);
    sendAndReceive(*membership.own, *membership.exchanges.on[streamNumber],
                   stream, {sends, sendCount}, {receives, receiveCount});
  });
}

int32_t exchangeInGroup(void *state, void *group, uint32_t stream,
                        const grt_exchange_piece *sends, uint64_t sendCount,
                        const grt_exchange_piece *receives,
                        uint64_t receiveCount, char *message,
                        size_t messageBytes) {
  return guarded("exchange_in_group", message, messageBytes, [&] {
    gpu::use();
    Stream queue = rankOf(state).stream(stream);
    sendAndReceive(membershipOf(state), groupOf(group, stream), queue,
                   {sends, sendCount}, {receives, receiveCount});
  });
}

/// Calls the library's own all-to-all where it has one, else sends and
/// receives.
int32_t allToAll(void *state, void *handle, uint32_t stream, const void *in,
                 void *out, uint64_t bytes, char *message,
                 size_t messageBytes) {
  return guarded("all_to_all", message, messageBytes, [&] {
    gpu::use();
    Stream queue = rankOf(state).stream(stream);
    NcclRank &self = membershipOf(state);
    NcclCommunicator &communicator = groupOf(handle, stream);
    if (nccl().allToAll)
      return self.run(communicator, "ncclAlltoAll", [&](ncclComm_t comm) {
        return nccl().allToAll(in, out, bytes, ncclUint8, comm, queue);
      });
    auto &group = *static_cast<NcclGroup *>(handle);
    auto place = [&](const void *base, int32_t member) {
      return const_cast<char *>(static_cast<const char *>(base)) +
             uint64_t(member) * bytes;
    };
    gpu::copy(queue, place(out, group.index), place(in, group.index), bytes);
    group.sends.clear();
    group.receives.clear();
    for (int32_t member = 0; member < group.count; ++member)
      if (member != group.index) {
        group.sends.push_back({member, 0, place(in, member), bytes});
        group.receives.push_back({member, 0, place(out, member), bytes});
      }
    sendAndReceive(self, communicator, queue, group.sends, group.receives);
  });
}

int32_t checkWorld(void *state, char *message, size_t messageBytes) {
  return guarded("nccl", message, messageBytes,
                 [&] { membershipOf(state).check(); });
}

void abortWorld(void *state) {
  try {
    rankOf(state).abort();
  } catch (const DeviceError &) {
    // The failure that led here is what has to be told.
  }
}

} // namespace

const grt_device_collectives *processCollectives() {
  static const grt_device_collectives table = [] {
    grt_device_collectives made = {};
    made.bytes = sizeof(made);
    made.in_graphs = 1;
    made.name = "nccl";
    made.identity_bytes = sizeof(ncclUniqueId);
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
    made.check = checkWorld;
    made.abort = abortWorld;
    made.use_streams = useStreams;
    made.library = [] { return nccl().name.c_str(); };
    return made;
  }();
  return &table;
}

} // namespace grt::cuda
