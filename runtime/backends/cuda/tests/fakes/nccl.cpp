//===- nccl.cpp - The communicators of a libnccl of tests -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks are threads of one process. They behave as NCCL 2.30 does by its
// source; nccl_sequences_test.cpp says where each behaviour stands there, and
// asks the real library the same. What is checked is that communicators live
// while they are used, and that two of them that have two ranks in common are
// used by both in one order.
//
//===----------------------------------------------------------------------===//

#include "fakes.h"
#include "nccl_world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace grt::fake;

namespace {

#ifdef GRT_FAKE_OLD_NCCL
constexpr int version = 21801;
#else
constexpr int version = 23007;
#endif

/// Alive until the last thread that carries out a group has ended.
std::map<uint64_t, std::shared_ptr<World>> &worlds() { // by identity
  static auto *all = new std::map<uint64_t, std::shared_ptr<World>>();
  return *all;
}
std::map<uint64_t, CommunicatorPointer> &communicators() {
  static auto *all = new std::map<uint64_t, CommunicatorPointer>();
  return *all;
}
uint64_t identities = 0;
/// Ranks are threads of one process, which NCCL sees; otherwise each passes for
/// a process of its own.
bool oneProcess = false;

std::shared_ptr<World> makeWorld(int size) {
  auto world = std::make_shared<World>();
  world->size = size;
  world->calls.resize(size_t(size));
  world->ended.resize(size_t(size));
  world->splitsOf.resize(size_t(size));
  return world;
}

CommunicatorPointer make(std::shared_ptr<World> world, int rank,
                         const ncclConfig_t *config) {
  auto made = std::make_shared<Communicator>();
  made->world = std::move(world);
  made->rank = rank;
  auto isGiven = [](int value) { return value != NCCL_CONFIG_UNDEF_INT; };
  if (config) {
    made->blocking = !isGiven(config->blocking) || config->blocking;
    made->splitShare = isGiven(config->splitShare) ? config->splitShare : 0;
    made->mostCtas = isGiven(config->maxCTAs) ? config->maxCTAs : 32;
    made->name = config->commName ? config->commName : "";
  }
  return made;
}

void add(Device &device, const CommunicatorPointer &made) {
  made->handle = device.newHandle();
  communicators()[made->handle] = made;
  device.others["communicators"][made->handle] = true;
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

/// A rank has ended its communicator the ordinary way; the last one compares.
void compareAtTheEnd(Device &device, const World &world) {
  auto ended = [](const World &each) {
    return std::all_of(each.ended.begin(), each.ended.end(),
                       [](int how) { return how == 1; });
  };
  if (!ended(world))
    return;
  compareCalls(device, world);
  if (std::all_of(world.all->begin(), world.all->end(),
                  [&](const auto &each) { return ended(*each); }))
    compareOrders(device, world);
}

/// Waits until `condition`, or one of the flags that end it, is there; false
/// then, and after long.
template <class Condition>
bool waitFor(Device &device, std::unique_lock<std::mutex> &lock,
             const std::vector<std::shared_ptr<Resources>> &flags,
             bool blocking, Condition condition, const char *what) {
  auto aborted = [&] {
    return std::any_of(flags.begin(), flags.end(),
                       [](const auto &each) { return each->aborts; });
  };
  auto ends = [&] { return condition() || aborted(); };
  device.changed.notify_all();
  if (!blocking)
    device.changed.wait(lock, ends);
  else
    device.expect(device.changed.wait_for(lock, device.patience, ends),
                  std::string(what) + ": not all ranks came");
  return condition() && !aborted();
}

/// What ends whatever runs, and what begins later.
void setAbortFlags(Device &device, Communicator &self) {
  if (std::shared_ptr<Resources> child = self.child.lock())
    child->aborts = true;
  self.resources->aborts = true;
  // Nobody relies on what it has not launched yet.
  for (auto &[stream, left] : self.promised)
    while (left > 0)
      endPromise(device, self, stream);
  for (const std::weak_ptr<Work> &each :
       std::vector<std::weak_ptr<Work>>(self.resources->running))
    if (std::shared_ptr<Work> work = each.lock(); work && !work->done)
      device.finish(work);
  device.changed.notify_all();
}

/// The thread that carries out a group of this communicator has ended.
void joinJob(Device &device, std::unique_lock<std::mutex> &lock,
             Communicator &self) {
  if (std::shared_ptr<GroupJob> job = self.job)
    device.changed.wait(lock, [&] { return job->ended; });
}

/// The host waits for the communicator's last kernel, and until no graph that
/// captured one is left.
void awaitQuiet(Device &device, std::unique_lock<std::mutex> &lock,
                const Communicator &self, const char *what) {
  device.await(Works(self.resources->chain->last), lock, what);
  const void *user = handleOf<const void *>(self.handle);
  device.expect(
      device.changed.wait_for(lock, device.patience,
                              [&] { return device.graphsOf(user) == 0; }),
      std::string(what) + " while graphs have captured the communicator: it "
                          "waits for them for ever");
}

ncclResult_t reclaim(Device &device, std::unique_lock<std::mutex> &lock,
                     const CommunicatorPointer &self, const char *what) {
  World &world = *self->world;
  if (oneProcess) {
    world.waitForTheLast.push_back(self);
    if (int(world.waitForTheLast.size()) < world.size)
      return ncclSuccess;
    for (const CommunicatorPointer &each : world.waitForTheLast)
      awaitQuiet(device, lock, *each, what);
  } else {
    awaitQuiet(device, lock, *self, what);
  }
  compareAtTheEnd(device, world);
  return ncclSuccess;
}

ncclResult_t end(const char *what, ncclComm_t handle, int how) {
  return ncclCall(what, [&](Device &device, auto &lock, bool) {
    CommunicatorPointer self = findCommunicator(device, handle, what);
    if (!self)
      return ncclInvalidArgument;
    beginGroup();
    if (how == 2)
      setAbortFlags(device, *self);
    else if (!device.expect(self->state != ncclInProgress,
                            std::string(what) +
                                " of a communicator that is in progress, which "
                                "leaves a group of calls open"))
      return ncclInvalidArgument;
    self->ends = true;
    communicators().erase(self->handle);
    device.others["communicators"].erase(self->handle);
    joinJob(device, lock, *self);
    self->world->ended[size_t(self->rank)] = how;
    ncclResult_t result = addToGroup(
        device,
        {self,
         [=](Device &on, auto &held) { return reclaim(on, held, self, what); }},
        /*ends=*/true);
    ncclResult_t ended = endGroup(device, lock);
    device.expect(how == 2 || !isInGroup(),
                  std::string(what) + " in a group of calls");
    return result ? result : ended;
  });
}

/// Adds a line to the log, where one is wanted, as NCCL writes it.
void writeLog(const std::string &line) {
  const char *level = std::getenv("NCCL_DEBUG");
  const char *path = std::getenv("NCCL_DEBUG_FILE");
  if (!level || std::string(level) != "INFO" || !path)
    return;
  if (std::FILE *file = std::fopen(path, "a")) {
    std::fprintf(file, "tests:1:1 [0] NCCL INFO %s\n", line.c_str());
    std::fclose(file);
  }
}

/// What ranks say as they are joined and connected to the next one.
void logJoin(int rank, int ranks) {
  writeLog("Bootstrap: Using eth0:10.0.0.1<0>");
  writeLog("Using network IB");
  writeLog("NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)");
  const std::string next = std::to_string((rank + 1) % ranks) + "[0]";
  writeLog("Channel 00/0 : " + std::to_string(rank) + "[0] -> " + next +
           (rank % 2 ? " [send] via NET/IB/0/GDRDMA" : " via P2P/CUMEM"));
}

bool hasMagic(Device &device, const ncclConfig_t *config) {
  const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  return device.expect(!config || config->magic == initial.magic,
                       "a configuration that nobody initialized");
}

ncclResult_t init(const char *what, ncclComm_t *communicator, int ranks,
                  ncclUniqueId identity, int rank, const ncclConfig_t *config) {
  *communicator = nullptr;
  return ncclCall(what, [&](Device &device, auto &lock, bool) {
    device.threadHasDevice(what);
    if (!device.maySkipCapture(what))
      return ncclInvalidUsage;
    uint64_t number;
    std::memcpy(&number, &identity, sizeof(number));
    std::shared_ptr<World> &entry = worlds()[number];
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
                       "a world is joined by no rank of it") ||
        !hasMagic(device, config))
      return ncclInvalidArgument;
    CommunicatorPointer made = make(world, rank, config);
    add(device, made);
    logJoin(rank, ranks);
    *communicator = handleOf<ncclComm_t>(made->handle);
    beginGroup();
    addToGroup(device,
               {made,
                [=](Device &on, auto &held) {
                  ++world->joined;
                  return waitFor(
                             on, held, {made->resources}, made->blocking,
                             [&] { return world->joined == ranks; }, what)
                             ? ncclSuccess
                             : ncclInternalError;
                }},
               /*ends=*/false);
    ncclResult_t result = endGroup(device, lock);
    return made->blocking ? result : made->state;
  });
}

} // namespace

namespace grt::fake {

CommunicatorPointer findCommunicator(Device &device, ncclComm_t handle,
                                     const char *what) {
  auto found = communicators().find(numberOf(handle));
  return device.expect(found != communicators().end(),
                       std::string(what) +
                           " on a communicator that is not alive")
             ? found->second
             : nullptr;
}

ncclResult_t ensureReady(Device &device, const CommunicatorPointer &self,
                         const char *what) {
  if (self->resources->aborts)
    return ncclSuccess;
  if (!device.expect(self->state != ncclInProgress,
                     std::string(what) +
                         " on a communicator that is in progress"))
    return ncclInvalidArgument;
  return self->state;
}

} // namespace grt::fake

GRT_FAKE void grt_fake_nccl_one_process(int32_t is) {
  std::lock_guard<std::mutex> lock(Device::get().mutex);
  oneProcess = is != 0;
}

/// Communicators that are alive, a line each, in the order they were made.
GRT_FAKE const char *grt_fake_nccl_communicators() {
  static std::string told;
  std::lock_guard<std::mutex> lock(Device::get().mutex);
  told.clear();
  for (const auto &[handle, each] : communicators())
    told += "rank " + std::to_string(each->world->members[size_t(each->rank)]) +
            ": '" + each->name + "' of " + std::to_string(each->world->size) +
            ", ctas " + std::to_string(each->mostCtas) + ", share " +
            std::to_string(each->splitShare) + "\n";
  return told.c_str();
}

ncclResult_t ncclGetVersion(int *number) {
  const char *wish = std::getenv("GRT_FAKE_NCCL_VERSION");
  *number = wish ? std::atoi(wish) : version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *identity) {
  return ncclCall("ncclGetUniqueId", [&](Device &device, auto &, bool) {
    device.threadHasDevice("ncclGetUniqueId");
    std::memset(identity, 0, sizeof(*identity));
    ++identities;
    std::memcpy(identity, &identities, sizeof(identities));
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t *communicator, int ranks,
                              ncclUniqueId identity, int rank) {
  return init("ncclCommInitRank", communicator, ranks, identity, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *communicator, int ranks,
                                    ncclUniqueId identity, int rank,
                                    ncclConfig_t *config) {
  return init("ncclCommInitRankConfig", communicator, ranks, identity, rank,
              config);
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key,
                           ncclComm_t *communicator, ncclConfig_t *config) {
  *communicator = nullptr;
  return ncclCall("ncclCommSplit", [&](Device &device, auto &lock, bool) {
    device.threadHasDevice("ncclCommSplit");
    if (!device.maySkipCapture("ncclCommSplit"))
      return ncclInvalidUsage;
    CommunicatorPointer self =
        findCommunicator(device, parent, "ncclCommSplit");
    if (!self || !hasMagic(device, config))
      return ncclInvalidArgument;
    if (ncclResult_t error = ensureReady(device, self, "ncclCommSplit"))
      return error;
    CommunicatorPointer child;
    if (color != NCCL_SPLIT_NOCOLOR) {
      child = make(nullptr, 0, config);
      if (!config) {
        child->blocking = self->blocking;
        child->splitShare = self->splitShare;
        child->mostCtas = self->mostCtas;
        child->name = self->name;
      }
      // The parent's wish counts.
      if (self->splitShare)
        child->resources = self->resources;
      self->child = child->resources;
    }
    auto split = [=](Device &on, auto &held) {
      World &world = *self->world;
      const size_t number = world.splitsOf[size_t(self->rank)]++;
      if (world.splits.size() <= number)
        world.splits.resize(number + 1);
      world.splits[number][self->rank] = {color, key};
      if (!waitFor(
              on, held, {self->resources}, self->blocking,
              [&] { return int(world.splits[number].size()) == world.size; },
              "ncclCommSplit"))
        return ncclInternalError;
      if (!child)
        return ncclSuccess;
      std::vector<std::pair<int, int>> members; // key, rank
      for (const auto &[rank, said] : world.splits[number])
        if (said.first == color)
          members.push_back({said.second, rank});
      std::sort(members.begin(), members.end());
      std::shared_ptr<World> &made = world.children[{number, color}];
      if (!made) {
        made = makeWorld(int(members.size()));
        for (auto [place, rank] : members)
          made->members.push_back(world.members[size_t(rank)]);
        made->order = world.order;
        made->all = world.all;
        made->all->insert(made);
      }
      auto own =
          std::find_if(members.begin(), members.end(), [&](const auto &each) {
            return each.second == self->rank;
          });
      child->world = made;
      child->rank = int(own - members.begin());
      add(on, child);
      // Not before it is complete.
      *communicator = handleOf<ncclComm_t>(child->handle);
      return ncclSuccess;
    };
    beginGroup();
    addToGroup(device, {self, split}, /*ends=*/false);
    ncclResult_t result = endGroup(device, lock);
    return self->blocking ? result : self->state;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  return end("ncclCommDestroy", communicator, 1);
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  return end("ncclCommAbort", communicator, 2);
}

#ifndef GRT_FAKE_OLD_NCCL
GRT_FAKE ncclResult_t ncclCommRevoke(ncclComm_t communicator, int flags) {
  const char *what = "ncclCommRevoke";
  return ncclCall(what, [&](Device &device, auto &lock, bool) {
    CommunicatorPointer self = findCommunicator(device, communicator, what);
    if (!self || flags || self->ends || self->revoked)
      return ncclInvalidArgument;
    beginGroup();
    setAbortFlags(device, *self);
    self->revoked = true;
    joinJob(device, lock, *self);
    addToGroup(device,
               {self,
                [=](Device &on, auto &held) {
                  on.await(Works(self->resources->chain->last), held, what);
                  return ncclSuccess;
                }},
               /*ends=*/false);
    ncclResult_t result = endGroup(device, lock);
    return self->blocking ? result : self->state;
  });
}
#endif

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator,
                                   ncclResult_t *error) {
  *error = ncclSuccess;
  return ncclCall("ncclCommGetAsyncError", [&](Device &device, auto &, bool) {
    CommunicatorPointer self =
        findCommunicator(device, communicator, "ncclCommGetAsyncError");
    if (!self)
      return ncclInvalidArgument;
    *error = self->state;
    return ncclSuccess;
  });
}
const char *ncclGetErrorString(ncclResult_t result) {
  return result == ncclInProgress ? "NCCL operation in progress"
                                  : "refused by the tests' NCCL";
}
const char *ncclGetLastError(ncclComm_t) { return ""; }
