//===- nccl_operations.cpp - What a libnccl of tests puts on streams ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Nothing is sent. What is checked is that all ranks of a communicator make the
// same calls in the same order, and that sends meet receives of their size.
// Their kernels run until those of the other ranks do, or until their own
// communicator is aborted. Groups of calls on communicators that do not block
// are carried out later, by another thread.
//
//===----------------------------------------------------------------------===//

#include "nccl_world.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <unistd.h>

namespace grt::fake {

namespace {

thread_local int depth = 0;
thread_local std::vector<Launch> launches;
thread_local std::vector<Job> jobs;
/// Of the calls of a group: 1 and 0 as ncclConfig_t has it; -1: none yet.
thread_local int groupBlocks = -1;
thread_local ncclResult_t groupError = ncclSuccess;

/// Threads that carry out groups; a process ends behind them.
std::atomic<int> launchers{0};
__attribute__((destructor)) void awaitLaunchers() {
  for (int i = 0; i < 2000 && launchers > 0; ++i)
    usleep(1000);
}

uint64_t bytesOf(ncclDataType_t type) {
  switch (type) {
  case ncclUint8:
    return 1;
  case ncclBfloat16:
    return 2;
  case ncclFloat32:
  case ncclInt32:
    return 4;
  case ncclFloat64:
    return 8;
  default:
    std::abort(); // The backend sends no other.
  }
}

void arrive(Device &device, World &world, std::pair<int, int> part,
            size_t number, const Rendezvous::Guest &guest) {
  const std::pair<std::pair<int, int>, size_t> key = {part, number};
  Rendezvous &arrival = world.rendezvous[key];
  arrival.guests.push_back(guest);
  if (arrival.guests.size() < (part.first < 0 ? size_t(world.size) : 2))
    return;
  const Rendezvous complete = std::move(arrival);
  world.rendezvous.erase(key);
  for (const Rendezvous::Guest &each : complete.guests)
    if (--*each.left == 0 && !each.work->done)
      device.finish(each.work);
}

/// The kernel of a launch begins to run on the device.
void begin(const Launch &launch, const std::shared_ptr<Work> &work) {
  Device &device = Device::get();
  Communicator &self = *launch.communicator;
  Resources &resources = *self.resources;
  if (resources.aborts)
    return device.finish(work);
  std::erase_if(resources.running, [](const auto &each) {
    const std::shared_ptr<Work> one = each.lock();
    return !one || one->done;
  });
  resources.running.push_back(work);
  auto left = std::make_shared<size_t>(launch.parts.size());
  for (const std::pair<int, int> &part : launch.parts)
    arrive(device, *self.world, part, self.begun[part]++, {work, left});
}

ncclResult_t put(Device &device, const Launch &launch) {
  Operation operation{launch.what, launch.ranges,
                      handleOf<const void *>(launch.communicator->handle),
                      nullptr};
  operation.begin = [launch](const std::shared_ptr<Work> &work) {
    begin(launch, work);
  };
  operation.chain = launch.communicator->resources->chain;
  return device.put(numberOf(launch.stream), std::move(operation)) ==
                 cudaSuccess
             ? ncclSuccess
             : ncclUnhandledCudaError;
}

/// Everything that a group has.
ncclResult_t carryOut(Device &device, std::unique_lock<std::mutex> &lock,
                      const std::vector<Job> &others,
                      const std::vector<Launch> &kernels, bool promised) {
  ncclResult_t result = ncclSuccess;
  for (const Job &job : others) {
    ncclResult_t one = job.run(device, lock);
    result = result == ncclSuccess ? one : result;
  }
  for (const Launch &launch : kernels) {
    if (promised)
      endPromise(device, *launch.communicator, numberOf(launch.stream));
    if (launch.communicator->resources->aborts)
      continue;
    ncclResult_t one = put(device, launch);
    result = result == ncclSuccess ? one : result;
  }
  return result;
}

} // namespace

void endPromise(Device &device, Communicator &communicator, uint64_t stream) {
  if (int &left = communicator.promised[stream]; left > 0) {
    --left;
    device.promise(stream, -1);
  }
}

bool isInGroup() { return depth > 0; }
void beginGroup() { ++depth; }

ncclResult_t addToGroup(Device &device, Launch launch) {
  const int blocks = launch.communicator->blocking;
  if (groupBlocks >= 0 && groupBlocks != blocks)
    return groupError = ncclInvalidArgument;
  groupBlocks = blocks;
  for (Launch &before : launches)
    if (before.communicator == launch.communicator &&
        device.expect(before.stream == launch.stream,
                      "one communicator on two streams in a group of calls")) {
      before.ranges.insert(before.ranges.end(), launch.ranges.begin(),
                           launch.ranges.end());
      before.parts.insert(before.parts.end(), launch.parts.begin(),
                          launch.parts.end());
      return ncclSuccess;
    }
  launches.push_back(std::move(launch));
  return ncclSuccess;
}

ncclResult_t addToGroup(Device &, Job job, bool ends) {
  const int blocks = ends || job.communicator->blocking;
  if (!ends && groupBlocks >= 0 && groupBlocks != blocks)
    return groupError = ncclInvalidArgument;
  groupBlocks = blocks;
  jobs.push_back(std::move(job));
  return ncclSuccess;
}

ncclResult_t endGroup(Device &device, std::unique_lock<std::mutex> &lock) {
  if (!device.expect(depth > 0, "a group of calls ends that did not begin"))
    return ncclInvalidUsage;
  if (--depth)
    return ncclSuccess;
  const std::vector<Launch> kernels = std::exchange(launches, {});
  const std::vector<Job> others = std::exchange(jobs, {});
  const bool blocks = std::exchange(groupBlocks, -1) != 0;
  if (ncclResult_t error = std::exchange(groupError, ncclSuccess))
    return error;
  if (kernels.empty() && others.empty())
    return ncclSuccess;
  if (blocks)
    return carryOut(device, lock, others, kernels, /*promised=*/false);
  auto job = std::make_shared<GroupJob>();
  std::set<CommunicatorPointer> all;
  for (const Job &each : others)
    all.insert(each.communicator);
  for (const Launch &each : kernels) {
    all.insert(each.communicator);
    device.promise(numberOf(each.stream), 1);
    ++each.communicator->promised[numberOf(each.stream)];
  }
  for (const CommunicatorPointer &each : all) {
    each->state = ncclInProgress;
    each->job = job;
  }
  ++launchers;
  std::thread([=] {
    // Late enough that who does not wait is found out.
    usleep(150);
    Device &late = Device::get();
    {
      std::unique_lock<std::mutex> own(late.mutex);
      late.chooseDevice(0);
      ncclResult_t result =
          carryOut(late, own, others, kernels, /*promised=*/true);
      for (const CommunicatorPointer &each : all)
        each->state = result;
      job->ended = true;
      late.changed.notify_all();
    }
    --launchers;
  }).detach();
  return ncclInProgress;
}

namespace {

/// The call of a communicator, in a group of its own or of the caller's.
template <class Body>
ncclResult_t operation(Device &device, std::unique_lock<std::mutex> &lock,
                       ncclComm_t handle, const char *what, Body body) {
  CommunicatorPointer self = findCommunicator(device, handle, what);
  if (!self)
    return ncclInvalidArgument;
  if (!device.expect(!self->revoked,
                     std::string(what) + " on a revoked communicator"))
    return ncclInvalidUsage;
  if (ncclResult_t error = ensureReady(device, self, what))
    return error;
  beginGroup();
  ncclResult_t result = body(self);
  ncclResult_t end = endGroup(device, lock);
  return result != ncclSuccess ? result : self->blocking ? end : self->state;
}

void checkMemory(Device &device, const char *what,
                 const std::vector<Range> &ranges) {
  for (const Range &range : ranges) {
    device.expect(!range.bytes || device.isMemory(range, false),
                  std::string(what) + " of memory that is not the device's");
    device.expect(device.isWhole(range),
                  std::string(what) +
                      " of a buffer in two pieces, of which one is registered");
  }
}

/// Connections are made the first time that a communicator needs them, by a
/// host that waits for the others' hosts (NCCL_RUNTIME_CONNECT).
void connect(Device &device, const Communicator &self,
             const std::string &what) {
  device.load("the first " + what + " of communicator " +
              std::to_string(self.handle));
}

/// A call that all ranks of a communicator make.
template <class Ranges>
ncclResult_t collective(const char *what, ncclComm_t handle,
                        cudaStream_t stream, uint64_t count,
                        ncclDataType_t type, Ranges rangesOf) {
  return ncclCall(what, [&](Device &device, auto &lock, bool change) {
    return operation(device, lock, handle, what, [&](const auto &self) {
      connect(device, *self, what);
      World &world = *self->world;
      std::vector<std::string> &own = world.calls[size_t(self->rank)];
      own.push_back(std::string(what) + " of " +
                    std::to_string(count + change) + " of type " +
                    std::to_string(int(type)));
      for (const std::vector<std::string> &other : world.calls)
        if (other.size() >= own.size() && other[own.size() - 1] != own.back()) {
          device.expect(
              false, "ranks of a communicator call differently: " + own.back() +
                         ", and " + other[own.size() - 1]);
          break;
        }
      (*world.order)[size_t(world.members[size_t(self->rank)])].push_back(
          &world);
      const std::vector<Range> ranges =
          rangesOf(count * bytesOf(type), uint64_t(world.size));
      checkMemory(device, what, ranges);
      return addToGroup(device, {self, stream, what, ranges, {{-1, -1}}});
    });
  });
}

ncclResult_t exchange(const char *what, ncclComm_t handle, int peer,
                      const void *address, uint64_t bytes, cudaStream_t stream,
                      bool sends) {
  return ncclCall(what, [&](Device &device, auto &lock, bool change) {
    return operation(device, lock, handle, what, [&](const auto &self) {
      World &world = *self->world;
      if (!device.expect(peer >= 0 && peer < world.size,
                         std::string(what) + ": no such peer"))
        return ncclInvalidArgument;
      connect(device, *self, std::string(what) + " " + std::to_string(peer));
      const std::pair<int, int> part =
          sends ? std::pair(self->rank, peer) : std::pair(peer, self->rank);
      auto &ours = sends ? world.sends[part] : world.receives[part];
      auto &theirs = sends ? world.receives[part] : world.sends[part];
      ours.push_back(bytes - change);
      device.expect(theirs.size() < ours.size() ||
                        theirs[ours.size() - 1] == bytes - change,
                    "a receive has another size than its send");
      const std::vector<Range> ranges = {{address, bytes}};
      checkMemory(device, what, ranges);
      return addToGroup(device, {self, stream, what, ranges, {part}});
    });
  });
}

} // namespace
} // namespace grt::fake

using namespace grt::fake;

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count,
                           ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t communicator, cudaStream_t stream) {
  return collective("ncclAllReduce", communicator, stream, count, type,
                    [&](uint64_t bytes, uint64_t) {
                      return std::vector<Range>{{in, bytes}, {out, bytes}};
                    });
}
ncclResult_t ncclAllGather(const void *in, void *out, size_t count,
                           ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  return collective("ncclAllGather", communicator, stream, count, type,
                    [&](uint64_t bytes, uint64_t ranks) {
                      return std::vector<Range>{{in, bytes},
                                                {out, bytes * ranks}};
                    });
}
ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count,
                               ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t communicator, cudaStream_t stream) {
  return collective("ncclReduceScatter", communicator, stream, count, type,
                    [&](uint64_t bytes, uint64_t ranks) {
                      return std::vector<Range>{{in, bytes * ranks},
                                                {out, bytes}};
                    });
}
#ifndef GRT_FAKE_OLD_NCCL
ncclResult_t ncclAlltoAll(const void *in, void *out, size_t count,
                          ncclDataType_t type, ncclComm_t communicator,
                          cudaStream_t stream) {
  return collective("ncclAlltoAll", communicator, stream, count, type,
                    [&](uint64_t bytes, uint64_t ranks) {
                      return std::vector<Range>{{in, bytes * ranks},
                                                {out, bytes * ranks}};
                    });
}
#endif
ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t communicator, cudaStream_t stream) {
  return exchange("ncclSend", communicator, peer, from, count * bytesOf(type),
                  stream, true);
}
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return exchange("ncclRecv", communicator, peer, to, count * bytesOf(type),
                  stream, false);
}
ncclResult_t ncclGroupStart() {
  return ncclCall("ncclGroupStart", [&](Device &, auto &, bool) {
    beginGroup();
    return ncclSuccess;
  });
}
ncclResult_t ncclGroupEnd() {
  return ncclCall("ncclGroupEnd", [&](Device &device, auto &lock, bool) {
    return endGroup(device, lock);
  });
}
