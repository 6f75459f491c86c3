//===- device_probe_test.cpp - What is timed when a device is measured ----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On a device that writes down its calls: no time is asserted, only what stands
// between the events that a time is taken from.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "device_probe.h"
#include "grt/cuda_bounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

using grt::profile::DeviceProbe;

namespace {

constexpr uint64_t cache = 1 << 20;

/// Buffers of each call, and where the events stand among them.
struct Seen {
  std::vector<std::vector<const char *>> calls;
  std::vector<size_t> events;
  /// Of the first call, when it was made.
  std::vector<std::vector<char>> contents;
  std::map<const char *, uint64_t> memory;
  double milliseconds = 1;
  /// Bytes of the device, and the most there were when somebody asked.
  uint64_t inUse = 0, peak = 0, graphCalls = 0;
  bool captures = false;
};
Seen seen;

int32_t kernel(const grt_call *call, char *, size_t) {
  std::vector<const char *> buffers;
  for (uint32_t i = 0; i < call->op->buffer_count; ++i)
    buffers.push_back(static_cast<const char *>(call->buffers[i]));
  if (seen.calls.empty())
    for (uint32_t i = 0; i < call->op->buffer_count; ++i)
      seen.contents.emplace_back(buffers[i],
                                 buffers[i] + call->op->buffers[i].bytes);
  seen.calls.push_back(buffers);
  return 0;
}

void *allocate(size_t bytes) {
  auto *memory = static_cast<char *>(std::calloc(bytes, 1));
  seen.memory[memory] = bytes;
  seen.inUse += bytes;
  return memory;
}
void release(void *memory, size_t bytes) {
  EXPECT_EQ(seen.memory[static_cast<char *>(memory)], bytes);
  seen.memory.erase(static_cast<char *>(memory));
  seen.inUse -= bytes;
  std::free(memory);
}

const grt_backend &fakeBackend() {
  static const grt_device device = [] {
    grt_device table{};
    table.bytes = sizeof(table);
    table.event_count = 2;
    table.allocate_host = [](uint64_t bytes) { return std::malloc(bytes); };
    table.release_host = [](void *memory, uint64_t) { std::free(memory); };
    table.begin_graph = [](void *, char *, size_t) {
      seen.captures = true;
      return int32_t(0);
    };
    table.end_graph = [](void *, uint32_t, char *, size_t) {
      seen.captures = false;
      seen.inUse += 1000 * seen.graphCalls;
      return int32_t(0);
    };
    table.launch_graph = [](void *, uint32_t, char *, size_t) {
      return int32_t(0);
    };
    table.peak_bytes = [](void *) {
      seen.peak = std::max(seen.peak, seen.inUse);
      return seen.peak;
    };
    table.copy = [](void *, uint32_t, void *to, const void *from,
                    uint64_t bytes, char *, size_t) {
      seen.graphCalls += seen.captures;
      std::memcpy(to, from, bytes);
      return int32_t(0);
    };
    table.stamp = [](void *, uint32_t, uint32_t, char *, size_t) {
      seen.events.push_back(seen.calls.size());
      return int32_t(0);
    };
    table.synchronise = [](void *, uint32_t, char *, size_t) {
      return int32_t(0);
    };
    table.stamped = [](void *, uint32_t number, double *time, char *, size_t) {
      *time = number * seen.milliseconds;
      return int32_t(0);
    };
    table.cache_bytes = [](void *) { return cache; };
    return table;
  }();
  static grt_kernel_function kernels[GRT_KERNEL_COUNT];
  static const grt_backend backend = [] {
    std::fill(std::begin(kernels), std::end(kernels), kernel);
    grt_backend table{};
    table.abi_version = GRT_ABI_VERSION;
    table.bytes = sizeof(table);
    table.name = "fake";
    table.kernels = kernels;
    table.kernel_count = GRT_KERNEL_COUNT;
    static int state;
    table.create_rank = [](int32_t, int32_t) -> void * { return &state; };
    table.destroy_rank = [](void *) {};
    table.allocate = allocate;
    table.release = release;
    table.device = &device;
    return table;
  }();
  return backend;
}

class Probe : public testing::Test {
protected:
  Probe() { seen = Seen(); }
  void run(const std::vector<DeviceProbe::Buffer> &buffers,
           double seconds = 0) {
    DeviceProbe probe(fakeBackend());
    probe.kernel(seconds, GRT_KERNEL_ADD, buffers, {1});
  }
};

TEST_F(Probe, TenCallsOrMoreStandBetweenTwoEvents) {
  // A window of these calls lasts longer than all the time there is.
  seen.milliseconds = 1e6;
  run({{GRT_F32, 1000}});
  ASSERT_GE(seen.events.size(), 4u);
  for (size_t i = 0; i < seen.events.size(); i += 2)
    EXPECT_GE(seen.events[i + 1] - seen.events[i],
              size_t(DeviceProbe::leastCalls));
  EXPECT_TRUE(seen.memory.empty());
}

TEST_F(Probe, CallsGoRoundMoreThanFourCaches) {
  for (int64_t count : {1000, 3000000}) {
    seen = Seen();
    run({{GRT_F32, count}, {GRT_BF16, count}}, 10);
    const uint64_t each = uint64_t(count) * 6;
    std::set<const char *> places;
    size_t round = 0;
    while (round < seen.calls.size() &&
           places.insert(seen.calls[round][0]).second)
      ++round;
    // Between a call and the next on the same buffers stand all the others.
    EXPECT_GT(round * each, 4 * cache) << count;
    for (size_t i = round; i < seen.calls.size(); ++i)
      ASSERT_EQ(seen.calls[i], seen.calls[i - round]);
  }
}

TEST_F(Probe, NoCacheMeansOneSet) {
  EXPECT_EQ(DeviceProbe::setsOfBuffers(1 << 20, 0), 1);
  EXPECT_EQ(DeviceProbe::setsOfBuffers(0, 0), 1);
}

TEST_F(Probe, MemoryOutsideIsWhatNobodyAskedFor) {
  constexpr uint64_t context = 500 << 20;
  DeviceProbe probe(fakeBackend());
  probe.kernel(0, GRT_KERNEL_ADD, {{GRT_F32, 3000000}}, {1});
  // Taken besides: by the context, and by the workspace of the first kernel.
  seen.inUse += context + GRT_CUDA_WORKSPACE;
  uint64_t outside = probe.outsideBytes();
  EXPECT_GE(seen.graphCalls, 1000u);
  EXPECT_EQ(outside, context + 1000 * seen.graphCalls);
}

/// What a backend says of its failure is what the user reads.
TEST_F(Probe, FailuresOfTheBackendAreTold) {
  grt_kernel_function kernels[GRT_KERNEL_COUNT] = {};
  grt_backend broken = fakeBackend();
  broken.kernels = kernels;
  auto failure = [](auto body) -> std::string {
    try {
      body();
      return "";
    } catch (const grt::Error &error) {
      EXPECT_EQ(error.exitCode(), grt::ExitFailed);
      return error.what();
    }
  };
  auto begins = [&] { DeviceProbe probe(broken); };
  {
    DeviceProbe probe(broken);
    auto launches = [&] {
      probe.kernel(0, GRT_KERNEL_ADD, {{GRT_F32, 1000}}, {1});
    };
    EXPECT_EQ(failure(launches), "backend 'fake' lacks a kernel");
    // A message as long as its place, without an end.
    kernels[GRT_KERNEL_ADD] = [](const grt_call *, char *message,
                                 size_t bytes) {
      std::memset(message, 'x', bytes);
      return int32_t(1);
    };
    EXPECT_EQ(failure(launches), std::string(511, 'x'));
    kernels[GRT_KERNEL_ADD] = kernel;
    EXPECT_EQ(failure(launches), "");
    broken.allocate = [](size_t) -> void * { return nullptr; };
    EXPECT_EQ(failure([&] { probe.copies(0, 100 << 20); }),
              "the device has no 209715200 bytes");
  }
  EXPECT_EQ(failure(begins), "no memory for a step block and random values");
  broken.create_rank = [](int32_t, int32_t) -> void * { return nullptr; };
  EXPECT_EQ(failure(begins), "backend 'fake' does not start: no reason given");
  broken.failure = [] { return "no device was found"; };
  EXPECT_EQ(failure(begins),
            "backend 'fake' does not start: no device was found");
}

TEST_F(Probe, ValuesAreRandom) {
  constexpr int64_t count = 4096;
  run({{GRT_BF16, count},
       {GRT_F32, count},
       {GRT_F32, count, 1, /*positive=*/true},
       {GRT_F64, count},
       {GRT_I32, count, 50000}});
  auto floats = [&](size_t buffer) {
    std::vector<float> values(size_t(count), 0.0f);
    std::memcpy(values.data(), seen.contents[buffer].data(), size_t(count) * 4);
    return values;
  };
  std::set<uint16_t> narrow;
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, seen.contents[0].data() + i * 2, 2);
    narrow.insert(bits);
  }
  EXPECT_GT(narrow.size(), 500u);
  for (size_t buffer : {1, 2}) {
    std::set<float> different;
    bool negative = false;
    for (float value : floats(buffer)) {
      ASSERT_TRUE(std::isfinite(value));
      different.insert(value);
      negative |= value < 0;
    }
    EXPECT_GT(different.size(), 4000u);
    EXPECT_EQ(negative, buffer == 1);
  }
  std::set<int32_t> words;
  for (int64_t i = 0; i < count; ++i) {
    int32_t word;
    std::memcpy(&word, seen.contents[4].data() + i * 4, 4);
    ASSERT_GE(word, 0);
    ASSERT_LT(word, 50000);
    words.insert(word);
  }
  EXPECT_GT(words.size(), 3500u);
}

} // namespace
