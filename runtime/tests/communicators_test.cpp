//===- communicators_test.cpp - Communicators around others ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/text.h"
#include "comm/activity.h"
#include "comm/communicator.h"
#include "core/trace.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

using namespace grt;

namespace {

/// Rank 2 of 5, which writes down what it is called with.
class Written : public Communicator {
public:
  explicit Written(std::string &log) : log(log) {}
  int rank() const override { return 2; }
  int size() const override { return 5; }
  Group &group(const std::vector<int> &ranks) override {
    log += "group of " + str(uint64_t(ranks.size())) + "\n";
    return ours;
  }
  void onStream(grt_stream stream) override {
    log += "stream " + str(uint64_t(stream)) + "\n";
  }
  void allReduce(Group &group, void *data, uint64_t count,
                 grt_dtype dtype) override {
    write("all-reduce", {&group, data}, {count, uint64_t(dtype)});
  }
  void allGather(Group &group, const void *in, void *out,
                 uint64_t bytes) override {
    write("all-gather", {&group, in, out}, {bytes});
  }
  void reduceScatter(Group &group, const void *in, void *out, uint64_t count,
                     grt_dtype dtype, bool accumulate) override {
    write("reduce-scatter", {&group, in, out},
          {count, uint64_t(dtype), uint64_t(accumulate)});
  }
  void allReduceMax(Group &group, void *data, uint64_t count,
                    grt_dtype dtype) override {
    write("all-reduce of max", {&group, data}, {count, uint64_t(dtype)});
  }
  void allToAll(Group &group, const void *in, void *out,
                uint64_t bytes) override {
    write("all-to-all", {&group, in, out}, {bytes});
  }
  void allToAll(Group &group, const void *in, void *out,
                const BlockCounts &counts) override {
    write("all-to-all with counts", {&group, in, out, &counts}, {});
  }
  void shift(Group &group, const void *in, void *out, uint64_t bytes,
             int64_t distance) override {
    write("shift", {&group, in, out}, {bytes, uint64_t(distance)});
  }
  void exchange(std::span<const ExchangeCall> calls) override {
    write("exchange", {calls.data()}, {calls.size()});
  }
  void gather(std::span<const std::byte> in,
              std::span<std::byte> out) override {
    write("gather", {in.data(), out.data()}, {in.size(), out.size()});
  }
  void reserveBoxes(size_t boxes) override { write("boxes", {}, {boxes}); }
  void post(const ExchangeCall &call, const ExchangePeer &send,
            size_t box) override {
    write("post", {&call, &send}, {box});
  }
  void awaitTaken(int peer, size_t box) override {
    write("await taken", {}, {uint64_t(peer), box});
  }
  void take(const ExchangeCall &call, const ExchangePeer &receive,
            size_t box) override {
    write("take", {&call, &receive}, {box});
  }
  void tell(uint64_t number, std::span<const std::byte> message) override {
    write("tell", {message.data()}, {number, message.size()});
  }
  void hear(int from, uint64_t number, std::span<std::byte> message) override {
    write("hear", {message.data()}, {uint64_t(from), number, message.size()});
  }
  void abort() override { write("abort", {}, {}); }

  Group ours{{0, 2, 3}};

private:
  void write(const char *name, const std::vector<const void *> &places,
             const std::vector<uint64_t> &numbers) {
    log += name;
    for (const void *place : places)
      log += " @" + str(uint64_t(reinterpret_cast<uintptr_t>(place)));
    for (uint64_t number : numbers)
      log += " " + str(number);
    log += "\n";
  }
  std::string &log;
};

/// Makes every call, with arguments of which no two are equal.
void callEverything(Communicator &communicator) {
  static double values[8];
  static ExchangeTable table;
  static const ExchangeCall calls[2] = {{&table}, {&table}};
  static const ExchangePeer send{3, {}}, receive{4, {}};
  Group &group = communicator.group({0, 2, 3});
  communicator.onStream(GRT_STREAM_COMPUTE);
  communicator.allReduce(group, values, 11, GRT_F32);
  communicator.allGather(group, values, values + 1, 12);
  communicator.reduceScatter(group, values, values + 2, 13, GRT_BF16, true);
  communicator.reduceScatter(group, values, values + 2, 14, GRT_F64, false);
  communicator.allReduceMax(group, values, 21, GRT_I32);
  communicator.allToAll(group, values, values + 3, 22);
  static const uint64_t counts[3] = {1, 0, 2};
  static const BlockCounts blocks{counts, counts, 8, 3, 3};
  communicator.allToAll(group, values, values + 4, blocks);
  communicator.shift(group, values, values + 5, 23, -24);
  communicator.exchange(calls);
  static std::byte bytes[8];
  communicator.gather({bytes, 1}, {bytes + 3, 5});
  communicator.reserveBoxes(15);
  communicator.post(calls[0], send, 16);
  communicator.awaitTaken(3, 17);
  communicator.take(calls[1], receive, 18);
  communicator.tell(19, {bytes, 2});
  communicator.hear(1, 20, {bytes + 4, 3});
  communicator.abort();
}

TEST(Communicators, ThoseAroundOthersPassEveryCallOn) {
  std::string expected;
  Written plain(expected);
  callEverything(plain);
  using Wrap = std::function<std::unique_ptr<Communicator>(
      std::unique_ptr<Communicator>)>;
  Activity activity(2);
  grt_backend backend{};
  Recorder recorder(2, backend);
  const std::pair<const char *, Wrap> wraps[] = {
      {"watched",
       [&](auto inner) {
         return watchedCommunicator(std::move(inner), activity);
       }},
      {"traced", [&](auto inner) {
         return tracedCommunicator(std::move(inner), recorder);
       }}};
  for (const auto &[name, wrap] : wraps) {
    std::string found;
    auto inner = std::make_unique<Written>(found);
    const Group *group = &inner->ours;
    std::unique_ptr<Communicator> around = wrap(std::move(inner));
    EXPECT_EQ(around->rank(), 2) << name;
    EXPECT_EQ(around->size(), 5) << name;
    callEverything(*around);
    // Each has a group of its own.
    auto at = [](const Group *of) {
      return "@" + str(uint64_t(reinterpret_cast<uintptr_t>(of)));
    };
    std::string own = at(&plain.ours), other = at(group);
    for (size_t from = found.find(other); from != std::string::npos;
         from = found.find(other, from))
      found.replace(from, other.size(), own);
    EXPECT_EQ(found, expected) << name;
  }
}

} // namespace
