//===- AloneWorld.cpp - A rank without the others -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AloneWorld.h"

#include "comm/world.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace galvatron::test {
namespace {

/// Every member gives what this rank gives.
class Alone : public grt::Communicator {
public:
  Alone(int self, int world) : self(self), world(world) {}

  int rank() const override { return self; }
  int size() const override { return world; }
  grt::Group &group(const std::vector<int> &ranks) override {
    for (const std::unique_ptr<grt::Group> &each : groups)
      if (each->ranks() == ranks)
        return *each;
    groups.push_back(std::make_unique<grt::Group>(ranks));
    return *groups.back();
  }
  void allReduce(grt::Group &, void *, uint64_t, grt_dtype) override {}
  void allGather(grt::Group &group, const void *in, void *out,
                 uint64_t bytes) override {
    for (int i = 0; i < group.size(); ++i)
      std::memmove(static_cast<char *>(out) + uint64_t(i) * bytes, in, bytes);
  }
  void reduceScatter(grt::Group &, const void *, void *, uint64_t, grt_dtype,
                     bool) override {}
  void allReduceMax(grt::Group &, void *, uint64_t, grt_dtype) override {}
  void allToAll(grt::Group &group, const void *in, void *out,
                uint64_t bytes) override {
    const auto place =
        std::find(group.ranks().begin(), group.ranks().end(), self);
    const auto index = uint64_t(place - group.ranks().begin());
    for (int i = 0; i < group.size(); ++i)
      std::memcpy(static_cast<char *>(out) + uint64_t(i) * bytes,
                  static_cast<const char *>(in) + index * bytes, bytes);
  }
  void allToAll(grt::Group &, const void *, void *out,
                const grt::BlockCounts &counts) override {
    // Others need not have as much for this rank as this rank has for them.
    uint64_t units = 0;
    for (uint64_t count : counts.receives)
      units += count;
    std::memset(out, 0, units * counts.bytesPerUnit);
  }
  void shift(grt::Group &, const void *in, void *out, uint64_t bytes,
             int64_t) override {
    std::memcpy(out, in, bytes);
  }
  void exchange(std::span<const grt::ExchangeCall>) override {}
  void gather(std::span<const std::byte> in,
              std::span<std::byte> out) override {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = in[i % in.size()];
  }
  void abort() override {}

private:
  int self, world;
  std::vector<std::unique_ptr<grt::Group>> groups;
};

class AloneWorld : public grt::World {
public:
  AloneWorld(int self, int world) : self(self), world(world) {}
  int size() const override { return world; }
  int firstLocal() const override { return self; }
  int localCount() const override { return 1; }
  int machineRanks() const override { return 1; }
  std::unique_ptr<grt::Communicator> join(int rank) override {
    return std::make_unique<Alone>(rank, world);
  }
  void abort(const grt::Failure &failure) override { seen = failure; }
  std::optional<grt::Failure> failure() const override { return seen; }

private:
  int self, world;
  std::optional<grt::Failure> seen;
};

} // namespace

std::shared_ptr<grt::World> aloneWorld(int rank, int ranks) {
  return std::make_shared<AloneWorld>(rank, ranks);
}

} // namespace galvatron::test
