//===- staged.h - The suite's communicators over the memory of a device ---===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The suite's values are in the host's memory. Here every call takes them to a
// device, does its work on one of its streams, waits, and brings them back.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CONFORMANCE_STAGED_H
#define GRT_CONFORMANCE_STAGED_H

#include "base/error.h"
#include "comm/blocks.h"
#include "comm/sum.h"
#include "core/device_communicator.h"
#include "recording.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>

namespace grt::test {

/// Sums are the only kernels that communicators need.
inline const grt_backend *addingBackend() {
  static const grt_backend backend = [] {
    static grt_kernel_function kernels[GRT_KERNEL_ADD + 1] = {};
    grt_backend table{};
    table.abi_version = GRT_ABI_VERSION;
    table.bytes = sizeof(table);
    table.name = "adding";
    table.kernels = kernels;
    table.kernel_count = GRT_KERNEL_ADD + 1;
    kernels[GRT_KERNEL_ADD] = [](const grt_call *call, char *, size_t) {
      // The sum is in place: it is the first summand.
      dispatchSum(grt_dtype(call->op->buffers[0].dtype), [&](auto element) {
        addInto<decltype(element)>(call->buffers[2], call->buffers[1],
                                   call->op->buffers[2].bytes);
      });
      return int32_t(0);
    };
    table.create_rank = [](int32_t, int32_t) -> void * { return nullptr; };
    table.destroy_rank = [](void *) {};
    table.allocate = [](size_t bytes) {
      return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    };
    table.release = [](void *memory, size_t) { std::free(memory); };
    return table;
  }();
  return recording::backendAround(&backend);
}

class StagedCommunicator : public Communicator {
public:
  StagedCommunicator(std::unique_ptr<Communicator> onHost,
                     std::atomic<bool> &failed)
      : host(std::move(onHost)), failed(failed), activity(host->rank()),
        state(addingBackend()->create_rank(host->rank(), 1)),
        memory(static_cast<char *>(addingBackend()->allocate(memoryBytes))),
        device(*addingBackend(), state, activity, host->size(), 64, failed),
        inner(device, *addingBackend(),
              addingBackend()->device->local_collectives, *host) {
    inner.join();
    // Small, so that sums arrive in several rounds.
    inner.useScratch(memory, 64, size_t(host->size()));
  }
  ~StagedCommunicator() override {
    addingBackend()->release(memory, memoryBytes);
    addingBackend()->destroy_rank(state);
  }

  int rank() const override { return host->rank(); }
  int size() const override { return host->size(); }
  Group &group(const std::vector<int> &ranks) override {
    return inner.group(ranks);
  }

  void allReduce(Group &group, void *data, uint64_t count,
                 grt_dtype dtype) override {
    begin(GRT_STREAM_GRADIENT);
    uint64_t bytes = count * dtypeBytes(dtype);
    char *there = bring(data, bytes);
    inner.allReduce(group, there, count, dtype);
    end({{data, there, bytes}});
  }
  void allGather(Group &group, const void *in, void *out,
                 uint64_t bytes) override {
    begin(GRT_STREAM_GATHER);
    uint64_t all = bytes * uint64_t(group.size());
    char *to = bring(out, all);
    // The input may have its own place in the output.
    const char *from = static_cast<const char *>(in);
    const char *base = static_cast<const char *>(out);
    bool inside = from >= base && from < base + all;
    inner.allGather(group, inside ? to + (from - base) : bring(in, bytes), to,
                    bytes);
    end({{out, to, all}});
  }
  void reduceScatter(Group &group, const void *in, void *out, uint64_t count,
                     grt_dtype dtype, bool accumulate) override {
    begin(GRT_STREAM_GRADIENT);
    uint64_t bytes = count * dtypeBytes(dtype);
    char *from = bring(in, bytes * uint64_t(group.size()));
    char *to = bring(out, bytes);
    inner.reduceScatter(group, from, to, count, dtype, accumulate);
    end({{out, to, bytes}});
  }
  void allReduceMax(Group &group, void *data, uint64_t count,
                    grt_dtype dtype) override {
    begin(GRT_STREAM_GRADIENT);
    uint64_t bytes = count * dtypeBytes(dtype);
    char *there = bring(data, bytes);
    inner.allReduceMax(group, there, count, dtype);
    end({{data, there, bytes}});
  }
  void allToAll(Group &group, const void *in, void *out,
                uint64_t bytes) override {
    begin(GRT_STREAM_COMPUTE);
    checkBlocks(group, in, out, bytes);
    uint64_t all = bytes * uint64_t(group.size());
    char *from = bring(in, all), *to = bring(out, all);
    inner.allToAll(group, from, to, bytes);
    end({{out, to, all}});
  }
  void allToAll(Group &group, const void *in, void *out,
                const BlockCounts &counts) override {
    begin(GRT_STREAM_COMPUTE);
    auto bytesOf = [&](std::span<const uint64_t> units) {
      return std::accumulate(units.begin(), units.end(), uint64_t(0)) *
             counts.bytesPerUnit;
    };
    const auto &ranks = group.ranks();
    checkBlocks(
        group,
        int(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin()), in,
        out, counts);
    uint64_t received = bytesOf(counts.receives);
    char *from = bring(in, bytesOf(counts.sends)), *to = bring(out, received);
    inner.allToAll(group, from, to, counts);
    end({{out, to, received}});
  }
  void shift(Group &group, const void *in, void *out, uint64_t bytes,
             int64_t distance) override {
    begin(GRT_STREAM_TRANSFER);
    checkShift(in, out, bytes);
    char *from = bring(in, bytes), *to = bring(out, bytes);
    inner.shift(group, from, to, bytes, distance);
    end({{out, to, bytes}});
  }
  void exchange(std::span<const ExchangeCall> calls) override {
    begin(GRT_STREAM_TRANSFER);
    std::vector<ExchangeCall> there(calls.begin(), calls.end());
    std::vector<Result> results;
    for (ExchangeCall &call : there) {
      uint64_t sent = bytesOf(call, call.table->sends, false);
      uint64_t received = bytesOf(call, call.table->receives, false);
      // A rank reads its messages to itself at the peer's unit.
      sent = std::max(sent, bytesOf(call, call.table->receives, true));
      void *destination = call.destination;
      call.source = bring(call.source, sent);
      char *to = bring(destination, received);
      call.destination = to;
      results.push_back({destination, to, received});
    }
    inner.exchange(there);
    end(results);
  }
  void gather(std::span<const std::byte> in,
              std::span<std::byte> out) override {
    inner.gather(in, out);
  }
  void abort() override {
    failed = true;
    inner.abort();
  }

private:
  static constexpr size_t memoryBytes = 32 << 20;
  struct Result {
    void *to;
    char *from;
    uint64_t bytes;
  };

  uint64_t bytesOf(const ExchangeCall &call,
                   const std::vector<ExchangePeer> &sides, bool own) const {
    int64_t units = 0;
    for (const ExchangePeer &side : sides)
      for (const ExchangeRow &row : side.rows)
        if (!own || side.peer == rank())
          units =
              std::max(units, (own ? row.peerUnit : row.localUnit) + row.units);
    return uint64_t(units) * call.bytesPerUnit;
  }
  void begin(grt_stream on) {
    stream = on;
    used = size_t(size()) * 64;
    inner.onStream(on);
  }
  char *bring(const void *from, uint64_t bytes) {
    char *place = memory + used;
    used += (bytes + 127) / 64 * 64;
    if (used > memoryBytes)
      fail("the suite's device has too little memory");
    device.upload(place, from, bytes);
    device.order(GRT_STREAM_COMPUTE, stream);
    return place;
  }
  void end(const std::vector<Result> &results) {
    device.order(stream, GRT_STREAM_COMPUTE);
    for (const Result &result : results)
      device.download(result.to, result.from, result.bytes);
    device.waitForAll();
  }

  std::unique_ptr<Communicator> host;
  std::atomic<bool> &failed;
  Activity activity;
  void *state;
  char *memory;
  Device device;
  DeviceCommunicator inner;
  grt_stream stream = GRT_STREAM_COMPUTE;
  size_t used = 0;
};

} // namespace grt::test

#endif // GRT_CONFORMANCE_STAGED_H
