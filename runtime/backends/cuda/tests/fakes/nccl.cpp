//===- nccl.cpp - A libnccl of tests --------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks are threads of one process. Nothing is sent: what is checked is that
// communicators live while they are used, that all ranks of one make the same
// calls in the same order, that sends meet receives of their size, that groups
// of calls begin and end, and that no graph that captured a communicator is
// left when it ends: the library would wait for that graph for ever.
//
//===----------------------------------------------------------------------===//

#include "device.h"
#include "fakes.h"

#include <algorithm>
#include <cstring>
#include <nccl.h>
#include <set>
#include <utility>

using namespace grt::fake;

namespace {

/// What ranks wait for each other for; a test that stands still says so.
constexpr std::chrono::seconds patience{20};

/// The calls of the ranks of one communicator.
struct World {
  int size = 0;
  std::vector<std::vector<std::string>> calls; ///< by rank
  std::vector<int> ended;                      ///< 1: destroyed, 2: aborted
  std::vector<int> members;                    ///< ranks in the first world
  /// Of sends and receives, by sender and receiver.
  std::map<std::pair<int, int>, std::vector<uint64_t>> sends, receives;
  /// Of splits, by their number: colour and key of every rank that came.
  std::vector<std::map<int, std::pair<int, int>>> splits;
  std::vector<size_t> splitsOf; ///< by rank
  std::map<std::pair<size_t, int>, std::shared_ptr<World>> children;
  int joined = 0;
  /// Of the first world: which communicators every rank used, in order.
  std::shared_ptr<std::vector<std::vector<const World *>>> order;
  std::shared_ptr<std::set<std::shared_ptr<World>>> all;
};

struct Communicator {
  std::shared_ptr<World> world;
  int rank;
};

std::map<uint64_t, std::shared_ptr<World>> worlds; ///< by identity
std::map<uint64_t, Communicator> communicators;
uint64_t identities = 0;

struct Queued {
  uint64_t communicator;
  cudaStream_t stream;
  Operation operation;
};
thread_local int depth = 0;
thread_local std::vector<Queued> queued;

template <class Body> ncclResult_t call(const char *function, Body body) {
  return called(
      function, ncclSuccess, ncclSystemError,
      [&](Device &device, std::unique_lock<std::mutex> &lock,
          bool change) -> ncclResult_t { return body(device, lock, change); });
}

Communicator *find(Device &device, ncclComm_t handle, const char *what) {
  auto found = communicators.find(numberOf(handle));
  return device.expect(found != communicators.end(),
                       std::string(what) +
                           " on a communicator that is not alive")
             ? &found->second
             : nullptr;
}

std::shared_ptr<World> makeWorld(int size) {
  auto world = std::make_shared<World>();
  world->size = size;
  world->calls.resize(size_t(size));
  world->ended.resize(size_t(size));
  world->splitsOf.resize(size_t(size));
  return world;
}

ncclComm_t add(Device &device, std::shared_ptr<World> world, int rank) {
  uint64_t handle = device.newHandle();
  communicators[handle] = {std::move(world), rank};
  device.others["communicators"][handle] = true;
  return handleOf<ncclComm_t>(handle);
}

uint64_t bytesOf(ncclDataType_t type) {
  switch (type) {
  case ncclUint8:
    return 1;
  case ncclBfloat16:
    return 2;
  case ncclFloat32:
    return 4;
  default:
    return 8;
  }
}

ncclResult_t launch(Device &device, const Queued &each) {
  cudaError_t error = device.put(numberOf(each.stream), each.operation);
  return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t put(Device &device, ncclComm_t communicator, cudaStream_t stream,
                 const char *what, std::vector<Range> ranges) {
  for (const Range &range : ranges)
    device.expect(!range.bytes || device.isMemory(range, false),
                  std::string(what) + " of memory that is not the device's");
  Queued each{numberOf(communicator),
              stream,
              {what, std::move(ranges), communicator, nullptr}};
  if (depth) {
    queued.push_back(std::move(each));
    return ncclSuccess;
  }
  return launch(device, each);
}

/// A call that all ranks of a communicator make.
ncclResult_t collective(Device &device, ncclComm_t handle, cudaStream_t stream,
                        const char *what, std::vector<Range> ranges,
                        uint64_t count, ncclDataType_t type, bool change) {
  Communicator *self = find(device, handle, what);
  if (!self)
    return ncclInvalidArgument;
  World &world = *self->world;
  std::vector<std::string> &own = world.calls[size_t(self->rank)];
  own.push_back(std::string(what) + " of " + std::to_string(count + change) +
                " of type " + std::to_string(int(type)));
  for (const std::vector<std::string> &other : world.calls)
    if (other.size() >= own.size() && other[own.size() - 1] != own.back()) {
      device.expect(false, "ranks of a communicator call differently: " +
                               own.back() + ", and " + other[own.size() - 1]);
      break;
    }
  (*world.order)[size_t(world.members[size_t(self->rank)])].push_back(&world);
  return put(device, handle, stream, what, std::move(ranges));
}

/// Once all ranks of a world have ended: whether they called as often, and what
/// was sent arrived.
void compareCalls(Device &device, const World &world) {
  for (const auto &calls : world.calls)
    if (!device.expect(calls.size() == world.calls[0].size(),
                       "ranks of a communicator call " +
                           std::to_string(calls.size()) + " and " +
                           std::to_string(world.calls[0].size()) + " times"))
      break;
  device.expect(world.sends == world.receives,
                "sends and receives do not meet");
}

/// Two communicators that have two ranks in common are used by both in one
/// order: else each may wait in one for the other.
void compareOrders(Device &device, const World &first) {
  const auto &order = *first.order;
  auto ranksOf = [](const World *world) {
    return std::set<int>(world->members.begin(), world->members.end());
  };
  std::map<const World *, std::set<int>> members;
  for (const auto &world : *first.all)
    members[world.get()] = ranksOf(world.get());
  for (size_t a = 0; a < order.size(); ++a)
    for (size_t b = a + 1; b < order.size(); ++b) {
      auto common = [&](size_t of) {
        std::vector<const World *> list;
        for (const World *world : order[of])
          if (members[world].count(int(a)) && members[world].count(int(b)))
            list.push_back(world);
        return list;
      };
      if (!device.expect(common(a) == common(b),
                         "ranks " + std::to_string(a) + " and " +
                             std::to_string(b) +
                             " use their communicators in different orders"))
        return;
    }
}

ncclResult_t end(Device &device, ncclComm_t handle, const char *what, int how) {
  Communicator *self = find(device, handle, what);
  if (!self)
    return ncclInvalidArgument;
  device.expect(depth == 0, std::string(what) + " in a group of calls");
  int64_t graphs = device.graphsOf(handle);
  device.expect(graphs == 0, std::string(what) + " while " +
                                 std::to_string(graphs) +
                                 " graphs have captured the communicator: it "
                                 "waits for them for ever");
  std::shared_ptr<World> world = self->world;
  world->ended[size_t(self->rank)] = how;
  device.changed.notify_all();
  communicators.erase(numberOf(handle));
  device.others["communicators"].erase(numberOf(handle));
  auto is = [](int expected) {
    return [=](int found) { return found == expected; };
  };
  if (!std::all_of(world->ended.begin(), world->ended.end(), is(1)))
    return ncclSuccess;
  compareCalls(device, *world);
  auto allEnded = [&] {
    return std::all_of(
        world->all->begin(), world->all->end(), [&](const auto &each) {
          return std::all_of(each->ended.begin(), each->ended.end(), is(1));
        });
  };
  if (allEnded())
    compareOrders(device, *world);
  return ncclSuccess;
}

/// False where a rank's communicator was aborted meanwhile, or after long.
template <class Condition>
bool waitFor(Device &device, std::unique_lock<std::mutex> &lock,
             const World &world, Condition condition, const char *what) {
  auto aborted = [&] {
    return std::count(world.ended.begin(), world.ended.end(), 2) > 0;
  };
  device.changed.notify_all();
  bool came = device.changed.wait_for(lock, patience,
                                      [&] { return condition() || aborted(); });
  device.expect(came, std::string(what) + ": not all ranks came");
  return came && condition();
}

} // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId *identity) {
  return call("ncclGetUniqueId", [&](Device &device, auto &, bool) {
    device.threadHasDevice("ncclGetUniqueId");
    std::memset(identity, 0, sizeof(*identity));
    ++identities;
    std::memcpy(identity, &identities, sizeof(identities));
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t *communicator, int ranks,
                              ncclUniqueId identity, int rank) {
  *communicator = nullptr;
  return call("ncclCommInitRank", [&](Device &device, auto &lock, bool) {
    device.threadHasDevice("ncclCommInitRank");
    if (!device.maySkipCapture("ncclCommInitRank"))
      return ncclInvalidUsage;
    uint64_t number;
    std::memcpy(&number, &identity, sizeof(number));
    std::shared_ptr<World> &entry = worlds[number];
    if (!entry) {
      entry = makeWorld(ranks);
      for (int i = 0; i < ranks; ++i)
        entry->members.push_back(i);
      entry->order = std::make_shared<std::vector<std::vector<const World *>>>(
          size_t(ranks));
      entry->all = std::make_shared<std::set<std::shared_ptr<World>>>();
      entry->all->insert(entry);
    }
    std::shared_ptr<World> world = entry;
    if (!device.expect(number > 0 && number <= identities &&
                           world->size == ranks && rank >= 0 && rank < ranks,
                       "a world is joined by no rank of it"))
      return ncclInvalidArgument;
    ++world->joined;
    if (!waitFor(
            device, lock, *world, [&] { return world->joined == ranks; },
            "ncclCommInitRank"))
      return ncclInternalError;
    *communicator = add(device, world, rank);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key,
                           ncclComm_t *communicator, ncclConfig_t *) {
  *communicator = nullptr;
  return call("ncclCommSplit", [&](Device &device, auto &lock, bool) {
    device.threadHasDevice("ncclCommSplit");
    if (!device.maySkipCapture("ncclCommSplit"))
      return ncclInvalidUsage;
    Communicator *found = find(device, parent, "ncclCommSplit");
    if (!found)
      return ncclInvalidArgument;
    Communicator self = *found;
    World &world = *self.world;
    const size_t number = world.splitsOf[size_t(self.rank)]++;
    if (world.splits.size() <= number)
      world.splits.resize(number + 1);
    world.splits[number][self.rank] = {color, key};
    if (!waitFor(
            device, lock, world,
            [&] { return int(world.splits[number].size()) == world.size; },
            "ncclCommSplit"))
      return ncclInternalError;
    if (color == NCCL_SPLIT_NOCOLOR)
      return ncclSuccess;
    std::vector<std::pair<int, int>> members; // key, rank
    for (const auto &[rank, said] : world.splits[number])
      if (said.first == color)
        members.push_back({said.second, rank});
    std::sort(members.begin(), members.end());
    std::shared_ptr<World> &child = world.children[{number, color}];
    if (!child) {
      child = makeWorld(int(members.size()));
      for (auto [place, rank] : members)
        child->members.push_back(world.members[size_t(rank)]);
      child->order = world.order;
      child->all = world.all;
      child->all->insert(child);
    }
    auto own =
        std::find_if(members.begin(), members.end(), [&](const auto &each) {
          return each.second == self.rank;
        });
    *communicator = add(device, child, int(own - members.begin()));
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  return call("ncclCommDestroy", [&](Device &device, auto &, bool) {
    return end(device, communicator, "ncclCommDestroy", 1);
  });
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  return call("ncclCommAbort", [&](Device &device, auto &, bool) {
    return end(device, communicator, "ncclCommAbort", 2);
  });
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator,
                                   ncclResult_t *error) {
  *error = ncclSuccess;
  return call("ncclCommGetAsyncError", [&](Device &device, auto &, bool) {
    return find(device, communicator, "ncclCommGetAsyncError")
               ? ncclSuccess
               : ncclInvalidArgument;
  });
}
const char *ncclGetErrorString(ncclResult_t) {
  return "refused by the tests' NCCL";
}
const char *ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count,
                           ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t communicator, cudaStream_t stream) {
  return call("ncclAllReduce", [&](Device &device, auto &, bool change) {
    const uint64_t bytes = count * bytesOf(type);
    return collective(device, communicator, stream, "ncclAllReduce",
                      {{in, bytes}, {out, bytes}}, count, type, change);
  });
}
ncclResult_t ncclAllGather(const void *in, void *out, size_t count,
                           ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  return call("ncclAllGather", [&](Device &device, auto &, bool change) {
    const uint64_t bytes = count * bytesOf(type);
    Communicator *self = find(device, communicator, "ncclAllGather");
    const uint64_t ranks = self ? uint64_t(self->world->size) : 0;
    return collective(device, communicator, stream, "ncclAllGather",
                      {{in, bytes}, {out, bytes * ranks}}, count, type, change);
  });
}
ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count,
                               ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t communicator, cudaStream_t stream) {
  return call("ncclReduceScatter", [&](Device &device, auto &, bool change) {
    const uint64_t bytes = count * bytesOf(type);
    Communicator *self = find(device, communicator, "ncclReduceScatter");
    const uint64_t ranks = self ? uint64_t(self->world->size) : 0;
    return collective(device, communicator, stream, "ncclReduceScatter",
                      {{in, bytes * ranks}, {out, bytes}}, count, type, change);
  });
}

static ncclResult_t exchange(Device &device, ncclComm_t communicator, int peer,
                             const void *address, uint64_t bytes,
                             cudaStream_t stream, bool sends) {
  const char *what = sends ? "ncclSend" : "ncclRecv";
  Communicator *self = find(device, communicator, what);
  if (!self || !device.expect(peer >= 0 && peer < self->world->size,
                              std::string(what) + ": no such peer"))
    return ncclInvalidArgument;
  World &world = *self->world;
  auto &ours = sends ? world.sends[{self->rank, peer}]
                     : world.receives[{peer, self->rank}];
  auto &theirs = sends ? world.receives[{self->rank, peer}]
                       : world.sends[{peer, self->rank}];
  ours.push_back(bytes);
  device.expect(theirs.size() < ours.size() || theirs[ours.size() - 1] == bytes,
                "a receive has another size than its send");
  return put(device, communicator, stream, what, {{address, bytes}});
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t communicator, cudaStream_t stream) {
  return call("ncclSend", [&](Device &device, auto &, bool change) {
    return exchange(device, communicator, peer, from,
                    count * bytesOf(type) - change, stream, true);
  });
}
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return call("ncclRecv", [&](Device &device, auto &, bool change) {
    return exchange(device, communicator, peer, to,
                    count * bytesOf(type) - change, stream, false);
  });
}
ncclResult_t ncclGroupStart() {
  return call("ncclGroupStart", [&](Device &, auto &, bool) {
    ++depth;
    return ncclSuccess;
  });
}
ncclResult_t ncclGroupEnd() {
  return call("ncclGroupEnd", [&](Device &device, auto &, bool) {
    if (!device.expect(depth > 0, "a group of calls ends that did not begin"))
      return ncclInvalidUsage;
    if (--depth)
      return ncclSuccess;
    ncclResult_t result = ncclSuccess;
    for (const Queued &each : std::exchange(queued, {})) {
      ncclResult_t one = launch(device, each);
      result = result == ncclSuccess ? one : result;
    }
    return result;
  });
}
