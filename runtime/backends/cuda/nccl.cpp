//===- nccl.cpp - Collectives between processes through NCCL --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One communicator for the world; groups are split from it, so that they share
// its connections. NCCL gives all members of an all-reduce the same bits, but
// has an order of sums of its own, and rounds bf16 at every hop.
//
//===----------------------------------------------------------------------===//

#include "collectives.h"
#include "library.h"
#include "rank.h"

#include "../common/call.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <nccl.h>
#include <shared_mutex>

namespace grt::cuda {
namespace {

/// What we use of the library.
struct Functions {
  decltype(&ncclGetUniqueId) getUniqueId;
  decltype(&ncclCommInitRank) initRank;
  decltype(&ncclCommSplit) split;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) asyncError;
  decltype(&ncclAllReduce) allReduce;
  decltype(&ncclAllGather) allGather;
  decltype(&ncclReduceScatter) reduceScatter;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  decltype(&ncclGroupStart) groupStart;
  decltype(&ncclGroupEnd) groupEnd;
  decltype(&ncclGetErrorString) errorString;
  decltype(&ncclGetLastError) lastError;

  Functions() {
    Library library{"libnccl.so.2", "libnccl.so"};
    auto find = [&](auto &function, const char *name) {
      std::remove_pointer_t<std::remove_reference_t<decltype(function)>> *found;
      library.find(found, name);
      function = found;
    };
    find(getUniqueId, "ncclGetUniqueId");
    find(initRank, "ncclCommInitRank");
    find(split, "ncclCommSplit");
    find(destroy, "ncclCommDestroy");
    find(abort, "ncclCommAbort");
    find(asyncError, "ncclCommGetAsyncError");
    find(allReduce, "ncclAllReduce");
    find(allGather, "ncclAllGather");
    find(reduceScatter, "ncclReduceScatter");
    find(send, "ncclSend");
    find(receive, "ncclRecv");
    find(groupStart, "ncclGroupStart");
    find(groupEnd, "ncclGroupEnd");
    find(errorString, "ncclGetErrorString");
    find(lastError, "ncclGetLastError");
  }
};

const Functions &nccl() {
  static const Functions functions;
  return functions;
}

void check(ncclResult_t result, const char *what, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess || result == ncclInProgress)
    return;
  std::string message = std::string(what) + ": " + nccl().errorString(result);
  if (const char *last = nccl().lastError(comm); last && *last)
    message += std::string(" (") + last + ")";
  throw DeviceError(message);
}

/// What a group's handle points to.
struct NcclGroup {
  ncclComm_t comm = nullptr;
};

class NcclMembership : public Membership {
public:
  /// Held around a call of the library. Throws once the rank was aborted: its
  /// communicators are gone then.
  std::shared_lock<std::shared_timed_mutex> enter() {
    std::shared_lock<std::shared_timed_mutex> entered(calls);
    if (aborted)
      throw CallError("aborted");
    return entered;
  }

  ~NcclMembership() override {
    std::lock_guard<std::mutex> lock(mutex);
    if (ended)
      return;
    for (auto it = groups.rbegin(); it != groups.rend(); ++it)
      nccl().destroy((*it)->comm);
  }

  NcclGroup &add(ncclComm_t comm) {
    std::lock_guard<std::mutex> lock(mutex);
    if (ended) {
      // It was made while the others ended: nobody else knows of it.
      nccl().abort(comm);
      throw CallError("aborted");
    }
    groups.push_back(std::make_unique<NcclGroup>());
    groups.back()->comm = comm;
    return *groups.back();
  }
  NcclGroup &world() { return *groups.front(); }

  void checkAll() {
    std::lock_guard<std::mutex> lock(mutex);
    if (ended)
      return;
    for (const auto &group : groups) {
      ncclResult_t error = ncclSuccess;
      check(nccl().asyncError(group->comm, &error), "ncclCommGetAsyncError");
      check(error, "nccl", group->comm);
    }
  }

  void abort() override {
    // From here on no call begins. Those that have begun only put something on
    // a stream, and return; one that does not waits for a rank that is gone,
    // and the library lets it go when its communicator is aborted.
    aborted = true;
    std::unique_lock<std::shared_timed_mutex> alone(calls, patience);
    std::lock_guard<std::mutex> lock(mutex);
    if (ended)
      return;
    ended = true;
    for (auto it = groups.rbegin(); it != groups.rend(); ++it)
      nccl().abort((*it)->comm);
  }

  int32_t rank = 0, ranks = 0;

private:
  static constexpr std::chrono::milliseconds patience{500};

  std::shared_timed_mutex calls;
  std::atomic<bool> aborted = false;
  std::mutex mutex; ///< of what follows
  bool ended = false;
  std::vector<std::unique_ptr<NcclGroup>> groups; ///< the world first
};

NcclMembership &membershipOf(void *state) {
  auto *membership =
      dynamic_cast<NcclMembership *>(rankOf(state).membership.get());
  if (!membership)
    throw CallError("the rank has joined no NCCL world");
  return *membership;
}

ncclComm_t commOf(void *group) { return static_cast<NcclGroup *>(group)->comm; }

ncclDataType_t typeOf(uint32_t dtype) {
  switch (dtype) {
  case GRT_F32:
    return ncclFloat32;
  case GRT_F64:
    return ncclFloat64;
  case GRT_BF16:
    return ncclBfloat16;
  default:
    throw CallError("cannot sum elements of dtype " + std::to_string(dtype));
  }
}

int32_t makeIdentity(void *identity, char *message, size_t messageBytes) {
  return guarded("make_identity", message, messageBytes, [&] {
    gpu::use();
    ncclUniqueId id;
    check(nccl().getUniqueId(&id), "ncclGetUniqueId");
    std::memcpy(identity, &id, sizeof(id));
  });
}

int32_t join(void *state, const void *identity, int32_t rank, int32_t ranks,
             char *message, size_t messageBytes) {
  return guarded("join", message, messageBytes, [&] {
    gpu::use();
    ncclUniqueId id;
    std::memcpy(&id, identity, sizeof(id));
    ncclComm_t comm = nullptr;
    check(nccl().initRank(&comm, ranks, id, rank), "ncclCommInitRank");
    auto membership = std::make_unique<NcclMembership>();
    membership->rank = rank;
    membership->ranks = ranks;
    membership->add(comm);
    rankOf(state).membership = std::move(membership);
    rankOf(state).peakBytes();
  });
}

int32_t makeGroup(void *state, const int32_t *ranks, int32_t count,
                  void **group, char *message, size_t messageBytes) {
  return guarded("make_group", message, messageBytes, [&] {
    gpu::use();
    NcclMembership &self = membershipOf(state);
    *group = nullptr;
    // A list of everybody in order is the same on all ranks: no split.
    bool everybody = count == self.ranks;
    for (int32_t i = 0; i < count; ++i)
      everybody = everybody && ranks[i] == i;
    if (everybody) {
      *group = &self.world();
      return;
    }
    // Disjoint groups may be made by one split: their first ranks differ.
    int color = count > 0 ? ranks[0] : NCCL_SPLIT_NOCOLOR, key = 0;
    int32_t rank = self.rank;
    while (key < count && ranks[key] != rank)
      ++key;
    if (count > 0 && key == count)
      throw CallError("rank " + std::to_string(rank) +
                      " is no member of the group");
    auto entered = self.enter();
    ncclComm_t comm = nullptr;
    check(nccl().split(self.world().comm, color, key, &comm, nullptr),
          "ncclCommSplit", self.world().comm);
    if (comm)
      *group = &self.add(comm);
    rankOf(state).peakBytes();
  });
}

int32_t allReduce(void *state, void *group, uint32_t stream, void *data,
                  uint64_t count, uint32_t dtype, char *message,
                  size_t messageBytes) {
  return guarded("all_reduce", message, messageBytes, [&] {
    gpu::use();
    auto entered = membershipOf(state).enter();
    check(nccl().allReduce(data, data, count, typeOf(dtype), ncclSum,
                           commOf(group), rankOf(state).stream(stream)),
          "ncclAllReduce", commOf(group));
  });
}

int32_t allGather(void *state, void *group, uint32_t stream, const void *in,
                  void *out, uint64_t bytes, char *message,
                  size_t messageBytes) {
  return guarded("all_gather", message, messageBytes, [&] {
    gpu::use();
    auto entered = membershipOf(state).enter();
    check(nccl().allGather(in, out, bytes, ncclUint8, commOf(group),
                           rankOf(state).stream(stream)),
          "ncclAllGather", commOf(group));
  });
}

int32_t reduceScatter(void *state, void *group, uint32_t stream, const void *in,
                      void *out, uint64_t count, uint32_t dtype,
                      int32_t accumulate, void *scratch, char *message,
                      size_t messageBytes) {
  return guarded("reduce_scatter", message, messageBytes, [&] {
    gpu::use();
    Stream queue = rankOf(state).stream(stream);
    void *sums = accumulate ? scratch : out;
    auto entered = membershipOf(state).enter();
    check(nccl().reduceScatter(in, sums, count, typeOf(dtype), ncclSum,
                               commOf(group), queue),
          "ncclReduceScatter", commOf(group));
    if (!accumulate || count == 0)
      return;
    Members from = {}, to = {};
    from.at[0] = sums;
    to.at[0] = out;
    from.count = to.count = 1;
    sumInOrder(queue, dtype, count, from, out, to);
  });
}

int32_t exchange(void *state, uint32_t streamNumber,
                 const grt_exchange_piece *sends, uint64_t sendCount,
                 const grt_exchange_piece *receives, uint64_t receiveCount,
                 char *message, size_t messageBytes) {
  return guarded("exchange", message, messageBytes, [&] {
    gpu::use();
    ncclComm_t comm = membershipOf(state).world().comm;
    Stream stream = rankOf(state).stream(streamNumber);
    if (sendCount + receiveCount == 0)
      return;
    auto entered = membershipOf(state).enter();
    check(nccl().groupStart(), "ncclGroupStart");
    // The group is ended whatever happens inside it.
    ncclResult_t result = ncclSuccess;
    for (uint64_t i = 0; i < sendCount && result == ncclSuccess; ++i)
      result = nccl().send(sends[i].address, sends[i].bytes, ncclUint8,
                           sends[i].peer, comm, stream);
    for (uint64_t i = 0; i < receiveCount && result == ncclSuccess; ++i)
      result = nccl().receive(receives[i].address, receives[i].bytes, ncclUint8,
                              receives[i].peer, comm, stream);
    ncclResult_t end = nccl().groupEnd();
    check(result, "ncclSend or ncclRecv", comm);
    check(end, "ncclGroupEnd", comm);
  });
}

int32_t checkWorld(void *state, char *message, size_t messageBytes) {
  return guarded("nccl", message, messageBytes,
                 [&] { membershipOf(state).checkAll(); });
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
    made.all_gather = allGather;
    made.reduce_scatter = reduceScatter;
    made.exchange = exchange;
    made.check = checkWorld;
    made.abort = abortWorld;
    return made;
  }();
  return &table;
}

} // namespace grt::cuda
