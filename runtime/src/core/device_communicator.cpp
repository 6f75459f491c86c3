//===- device_communicator.cpp - Ranks on the memory of devices -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/device_communicator.h"
#include "base/error.h"
#include "base/values.h"
#include "comm/blocks.h"
#include "comm/sum.h"

#include <algorithm>
#include <numeric>

namespace grt {

class DeviceCommunicator::DeviceGroup : public Group {
public:
  DeviceGroup(std::vector<int> ranks, int index, void *handle)
      : Group(std::move(ranks)), index(index), handle(handle) {}
  const int index; ///< of this rank
  void *const handle;
};

DeviceCommunicator::DeviceCommunicator(Device &device,
                                       const grt_backend &backend,
                                       const grt_device_collectives *table,
                                       Communicator &host)
    : device(device), backend(backend), table(table), host(host) {}

void DeviceCommunicator::join() {
  if (!table)
    return;
  // Rank 0 makes the identity; the host carries it to all.
  std::vector<int> all(size_t(host.size()));
  std::iota(all.begin(), all.end(), 0);
  std::vector<char> identity(table->identity_bytes),
      identities(table->identity_bytes * all.size());
  if (rank() == 0)
    device.check([&](char *message, size_t bytes) {
      return table->make_identity(identity.data(), message, bytes);
    });
  host.allGather(host.group(all), identity.data(), identities.data(),
                 identity.size());
  device.check([&](char *message, size_t bytes) {
    return table->join(device.rankState(), identities.data(), rank(), size(),
                       message, bytes);
  });
  joined = true;
}

void DeviceCommunicator::useStreams(uint32_t streams, uint32_t anywhere,
                                    uint32_t atOnce) {
  if (table && table->use_streams)
    device.check([&](char *message, size_t bytes) {
      return table->use_streams(device.rankState(), streams, anywhere, atOnce,
                                message, bytes);
    });
}

DeviceCommunicator::~DeviceCommunicator() = default;

void DeviceCommunicator::useScratch(char *memory, uint64_t bytesPerPeer,
                                    size_t peers) {
  scratch = memory;
  scratchBytes = bytesPerPeer;
  scratchPeers = scratchBytes ? peers : 0;
}

void DeviceCommunicator::reserveRows(size_t rows) {
  rows = std::max(rows, size_t(size())); // blocks of an all-to-all
  sends.reserve(rows);
  receives.reserve(rows);
  sums.reserve(rows);
}

void *DeviceCommunicator::makeGroup(const std::vector<int> &ranks) {
  void *handle = nullptr;
  device.check([&](char *message, size_t bytes) {
    return table->make_group(device.rankState(), ranks.data(),
                             int32_t(ranks.size()), &handle, message, bytes);
  });
  return handle;
}

Group &DeviceCommunicator::group(const std::vector<int> &ranks) {
  std::unique_ptr<DeviceGroup> &entry = pool[ranks];
  if (entry)
    return *entry;
  auto self = std::find(ranks.begin(), ranks.end(), rank());
  if (self == ranks.end())
    fail("rank " + std::to_string(rank()) + " is no member of the group");
  void *handle = ranks.size() > 1 ? makeGroup(ranks) : nullptr;
  entry =
      std::make_unique<DeviceGroup>(ranks, int(self - ranks.begin()), handle);
  return *entry;
}

void DeviceCommunicator::withoutGroup() { makeGroup({}); }

void DeviceCommunicator::allReduce(Group &base, void *data, uint64_t count,
                                   grt_dtype dtype) {
  auto &group = static_cast<DeviceGroup &>(base);
  dispatchSum(dtype, [](auto) {}); // Refuses other types.
  if (group.size() == 1 || count == 0)
    return;
  const Device::WaitSpan span(device, stream);
  device.check([&](char *message, size_t bytes) {
    return table->all_reduce(device.rankState(), group.handle, stream, data,
                             count, dtype, message, bytes);
  });
}

void DeviceCommunicator::allGather(Group &base, const void *in, void *out,
                                   uint64_t bytes) {
  auto &group = static_cast<DeviceGroup &>(base);
  if (group.size() == 1) {
    if (in != out)
      device.copy(stream, out, in, bytes);
    return;
  }
  if (bytes == 0)
    return;
  const Device::WaitSpan span(device, stream);
  device.check([&](char *message, size_t capacity) {
    return table->all_gather(device.rankState(), group.handle, stream, in, out,
                             bytes, message, capacity);
  });
}

void DeviceCommunicator::reduceScatter(Group &base, const void *in, void *out,
                                       uint64_t count, grt_dtype dtype,
                                       bool accumulate) {
  auto &group = static_cast<DeviceGroup &>(base);
  dispatchSum(dtype, [](auto) {});
  if (count == 0)
    return;
  uint64_t part = count * dtypeBytes(dtype);
  if (group.size() == 1) {
    if (accumulate)
      add({static_cast<char *>(out), static_cast<const char *>(in), part,
           dtype});
    else if (in != out)
      device.copy(stream, out, in, part);
    return;
  }
  void *own = const_cast<char *>(static_cast<const char *>(in)) +
              uint64_t(group.index) * part;
  const Device::WaitSpan span(device, stream);
  device.check([&](char *message, size_t bytes) {
    return table->reduce_scatter(device.rankState(), group.handle, stream, in,
                                 out, count, dtype, accumulate,
                                 accumulate ? own : nullptr, message, bytes);
  });
}

void DeviceCommunicator::expect(bool there, const char *what) const {
  if (!there)
    fail(std::string("backend '") + backend.name + "', collectives '" +
         table->name + "': expected " + what + ", found none");
}

void DeviceCommunicator::allReduceMax(Group &base, void *data, uint64_t count,
                                      grt_dtype dtype) {
  auto &group = static_cast<DeviceGroup &>(base);
  dispatchLargest(dtype, [](auto) {});
  if (group.size() == 1 || count == 0)
    return;
  expect(table->all_reduce_max, "an all-reduce of max");
  const Device::WaitSpan span(device, stream);
  device.check([&](char *message, size_t bytes) {
    return table->all_reduce_max(device.rankState(), group.handle, stream, data,
                                 count, dtype, message, bytes);
  });
}

void DeviceCommunicator::allToAll(Group &base, const void *in, void *out,
                                  uint64_t bytes) {
  auto &group = static_cast<DeviceGroup &>(base);
  checkBlocks(group, in, out, bytes);
  if (bytes == 0)
    return;
  if (group.size() == 1)
    return device.copy(stream, out, in, bytes);
  expect(table->all_to_all, "an all-to-all");
  const Device::WaitSpan span(device, stream);
  device.check([&](char *message, size_t capacity) {
    return table->all_to_all(device.rankState(), group.handle, stream, in, out,
                             bytes, message, capacity);
  });
}

void DeviceCommunicator::exchangeInGroup(const DeviceGroup &group,
                                         const char *what) {
  if (group.size() == 1)
    return;
  expect(table->exchange_in_group, what);
  const Device::WaitSpan span(device, stream);
  device.check([&](char *message, size_t bytes) {
    return table->exchange_in_group(device.rankState(), group.handle, stream,
                                    sends.data(), sends.size(), receives.data(),
                                    receives.size(), message, bytes);
  });
}

void DeviceCommunicator::allToAll(Group &base, const void *in, void *out,
                                  const BlockCounts &counts) {
  auto &group = static_cast<DeviceGroup &>(base);
  checkBlocks(group, group.index, in, out, counts);
  sends.clear();
  receives.clear();
  char *from = const_cast<char *>(static_cast<const char *>(in));
  char *to = static_cast<char *>(out);
  const char *own = nullptr;
  forBlocks(counts.sends, counts.bytesPerUnit,
            [&](int member, uint64_t at, uint64_t bytes) {
              if (member == group.index)
                own = from + at;
              else if (bytes)
                sends.push_back({member, 0, from + at, bytes});
            });
  forBlocks(counts.receives, counts.bytesPerUnit,
            [&](int member, uint64_t at, uint64_t bytes) {
              if (!bytes)
                return;
              if (member == group.index)
                device.copy(stream, to + at, own, bytes);
              else
                receives.push_back({member, 0, to + at, bytes});
            });
  exchangeInGroup(group, "an all-to-all with counts");
}

void DeviceCommunicator::shift(Group &base, const void *in, void *out,
                               uint64_t bytes, int64_t distance) {
  auto &group = static_cast<DeviceGroup &>(base);
  checkShift(in, out, bytes);
  const int64_t around = distance % group.size();
  if (bytes == 0)
    return;
  if (around == 0)
    return device.copy(stream, out, in, bytes);
  sends.assign({{memberAt(group.index, around, group.size()), 0,
                 const_cast<void *>(in), bytes}});
  receives.assign(
      {{memberAt(group.index, -around, group.size()), 0, out, bytes}});
  exchangeInGroup(group, "a shift");
}

void DeviceCommunicator::add(const Sum &sum) {
  if (sum.bytes == 0)
    return;
  // All kernels are on COMPUTE.
  device.order(stream, GRT_STREAM_COMPUTE);
  const grt_buffer buffer{0, uint32_t(sum.dtype), 0, sum.bytes};
  const grt_buffer buffers[] = {buffer, buffer, buffer};
  const int64_t elements = int64_t(sum.bytes / dtypeBytes(sum.dtype));
  const grt_kernel_op op{
      GRT_KERNEL_ADD, 3,         1,       0,
      buffers,        &elements, nullptr, "sum of values that arrived"};
  void *addresses[] = {sum.to, const_cast<char *>(sum.from), sum.to};
  const grt_coordinates alone{0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 1};
  const grt_call call{&op, addresses, &alone, nullptr, 0, device.rankState()};
  device.check([&](char *message, size_t bytes) {
    return backend.kernels[GRT_KERNEL_ADD](&call, message, bytes);
  });
  device.order(GRT_STREAM_COMPUTE, stream);
}

template <typename Visit>
void DeviceCommunicator::forPieces(const ExchangeCall &call,
                                   const ExchangePeer &side, uint64_t round,
                                   Visit visit) const {
  // What is added arrives in scratch memory, so much of it in a round; both
  // sides cut the rows in the same way.
  uint64_t begin = call.add ? round * scratchBytes : 0;
  uint64_t end = call.add ? begin + scratchBytes : UINT64_MAX;
  if (!call.add && round > 0)
    return;
  uint64_t at = 0;
  for (const ExchangeRow &row : side.rows) {
    uint64_t bytes = uint64_t(row.units) * call.bytesPerUnit;
    uint64_t first = std::max(at, begin), last = std::min(at + bytes, end);
    if (first < last)
      visit(uint64_t(row.localUnit) * call.bytesPerUnit + first - at,
            uint64_t(row.peerUnit) * call.bytesPerUnit + first - at,
            last - first, first - begin);
    at += bytes;
  }
}

void DeviceCommunicator::exchange(std::span<const ExchangeCall> calls) {
  for (uint64_t round = 0;; ++round) {
    sends.clear();
    receives.clear();
    sums.clear();
    for (const ExchangeCall &call : calls) {
      for (const ExchangePeer &side : call.table->sends)
        if (side.peer != rank())
          forPieces(call, side, round,
                    [&](uint64_t local, uint64_t, uint64_t bytes, uint64_t) {
                      char *from = const_cast<char *>(
                          static_cast<const char *>(call.source) + local);
                      sends.push_back({side.peer, 0, from, bytes});
                    });
      size_t place = 0; // of the peer in the scratch memory
      for (const ExchangePeer &side : call.table->receives) {
        bool own = side.peer == rank();
        if (call.add && !own && place == scratchPeers)
          fail(ExitMemory,
               "rank " + std::to_string(rank()) + ": no memory for values of " +
                   std::to_string(place + 1) + " ranks to be added");
        forPieces(
            call, side, round,
            [&](uint64_t local, uint64_t peer, uint64_t bytes, uint64_t at) {
              char *to = static_cast<char *>(call.destination) + local;
              const char *from = static_cast<const char *>(call.source) + peer;
              if (own && !call.add)
                return device.copy(stream, to, from, bytes);
              char *arrives =
                  call.add ? scratch + place * scratchBytes + at : to;
              if (call.add)
                sums.push_back({to, own ? from : arrives, bytes, call.dtype});
              if (!own)
                receives.push_back({side.peer, 0, arrives, bytes});
            });
        place += !own;
      }
    }
    if (sends.empty() && receives.empty() && sums.empty())
      return;
    if (!sends.empty() || !receives.empty()) {
      const Device::WaitSpan span(device, stream);
      device.check([&](char *message, size_t bytes) {
        return table->exchange(device.rankState(), stream, sends.data(),
                               sends.size(), receives.data(), receives.size(),
                               message, bytes);
      });
    }
    for (const Sum &sum : sums)
      add(sum);
  }
}

void DeviceCommunicator::abort() {
  abortDevice();
  host.abort();
}

bool DeviceCommunicator::hasFailed(char *message, size_t bytes) const {
  return table && joined &&
         table->check(device.rankState(), message, bytes) != 0;
}

std::string DeviceCommunicator::library() const {
  return joined && table->library ? table->library() : "";
}

void DeviceCommunicator::abortDevice() const {
  if (table)
    table->abort(device.rankState());
}

} // namespace grt
