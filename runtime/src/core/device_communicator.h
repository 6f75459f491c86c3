//===- device_communicator.h - Ranks on the memory of devices -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Puts collectives and transfers of a backend on streams. Numbers of the host,
// and the end of a run, go through the communicator of the host beside it.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_DEVICE_COMMUNICATOR_H
#define GRT_CORE_DEVICE_COMMUNICATOR_H

#include "comm/communicator.h"
#include "core/device.h"

#include <atomic>
#include <map>
#include <memory>

namespace grt {

class DeviceCommunicator : public Communicator {
public:
  /// Joins the world; collective over all ranks. A rank that is alone needs no
  /// `table`.
  DeviceCommunicator(Device &device, const grt_backend &backend,
                     const grt_device_collectives *table, Communicator &host);
  ~DeviceCommunicator() override;

  /// Where arriving values wait to be added, `bytesPerPeer` for each of `peers`
  /// others; the same numbers on all ranks, multiples of GRT_ALIGNMENT. Only
  /// exchanges that add need it.
  void useScratch(char *memory, uint64_t bytesPerPeer, size_t peers);
  /// Nothing is taken from the heap for exchanges of at most so many rows.
  void reserveRows(size_t rows);

  int rank() const override { return host.rank(); }
  int size() const override { return host.size(); }
  /// The first call for a list is collective over all ranks: each makes a group
  /// then, its own, or calls `withoutGroup`. A rank alone is a group at once.
  Group &group(const std::vector<int> &ranks) override;
  void withoutGroup();
  /// See grt_device_collectives::use_streams; before `join` and groups.
  void useStreams(uint32_t streams, uint32_t anywhere, uint32_t atOnce);
  /// Joins the world of the device's collectives: collective over all ranks,
  /// before the first group. May be aborted.
  void join();
  void onStream(grt_stream to) override { stream = to; }

  void allReduce(Group &group, void *data, uint64_t count,
                 grt_dtype dtype) override;
  void allGather(Group &group, const void *in, void *out,
                 uint64_t bytes) override;
  /// When accumulating, the member's own slice of `in` is where its sum is
  /// made.
  void reduceScatter(Group &group, const void *in, void *out, uint64_t count,
                     grt_dtype dtype, bool accumulate) override;
  void allReduceMax(Group &group, void *data, uint64_t count,
                    grt_dtype dtype) override;
  void allToAll(Group &group, const void *in, void *out,
                uint64_t bytes) override;
  void allToAll(Group &group, const void *in, void *out,
                const BlockCounts &counts) override;
  void shift(Group &group, const void *in, void *out, uint64_t bytes,
             int64_t distance) override;
  void exchange(std::span<const ExchangeCall> calls) override;
  /// Of the host.
  void gather(std::span<const std::byte> in,
              std::span<std::byte> out) override {
    host.gather(in, out);
  }
  void abort() override;
  /// Whether an operation of this rank has failed in the background. This and
  /// `abortDevice`, which ends what is under way, may come from any thread.
  bool hasFailed(char *message, size_t bytes) const;
  void abortDevice() const;
  /// What carries collectives, with its version; empty where nothing does.
  std::string library() const;

private:
  class DeviceGroup;
  struct Sum {
    char *to;
    const char *from;
    uint64_t bytes;
    grt_dtype dtype;
  };

  void *makeGroup(const std::vector<int> &ranks);
  /// The pieces of the rows to or from a peer that belong to a round.
  template <typename Visit>
  void forPieces(const ExchangeCall &call, const ExchangePeer &side,
                 uint64_t round, Visit visit) const;
  void add(const Sum &sum);
  void expect(bool there, const char *what) const;
  /// Moves `sends` and `receives`, whose peers are members.
  void exchangeInGroup(const DeviceGroup &group, const char *what);

  Device &device;
  const grt_backend &backend;
  const grt_device_collectives *table;
  Communicator &host;
  std::atomic<bool> joined = false;
  grt_stream stream = GRT_STREAM_COMPUTE;
  std::map<std::vector<int>, std::unique_ptr<DeviceGroup>> pool;
  char *scratch = nullptr;
  uint64_t scratchBytes = 0; ///< per peer
  size_t scratchPeers = 0;
  std::vector<grt_exchange_piece> sends, receives;
  std::vector<Sum> sums;
};

} // namespace grt

#endif // GRT_CORE_DEVICE_COMMUNICATOR_H
