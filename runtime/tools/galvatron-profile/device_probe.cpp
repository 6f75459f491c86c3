//===- device_probe.cpp - Times calls on a device -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "device_probe.h"
#include "base/error.h"
#include "base/values.h"
#include "grt/cuda_bounds.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>

namespace grt::profile {

namespace {

/// Random values of one kind, made once and copied over buffers again and
/// again. Not a power of two, so that rows of a matrix differ.
constexpr uint64_t patternBytes = 1000003 * 4;
enum Pattern { Narrow, Single, Positive, Double, Integer, PatternCount };

uint64_t alignUp(uint64_t bytes) { return (bytes + 255) / 256 * 256; }
constexpr uint64_t patternStride = (patternBytes + 255) / 256 * 256;

Pattern patternOf(const DeviceProbe::Buffer &buffer) {
  switch (buffer.dtype) {
  case GRT_BF16:
    return Narrow;
  case GRT_F64:
    return Double;
  case GRT_I32:
    return Integer;
  default:
    return buffer.positive ? Positive : Single;
  }
}

template <typename Call> void check(Call call) {
  char message[512] = "";
  if (call(message, sizeof(message)) != 0) {
    message[sizeof(message) - 1] = 0;
    fail(message);
  }
}

} // namespace

uint64_t DeviceProbe::Buffer::bytes() const {
  return uint64_t(count) * dtypeBytes(dtype);
}

int64_t DeviceProbe::setsOfBuffers(uint64_t bytes, uint64_t cacheBytes) {
  // One set more is made, so that a set is cold when its turn comes again.
  uint64_t wanted = cachesOfBuffers * cacheBytes;
  return int64_t(wanted / std::max<uint64_t>(bytes, 256)) + 1;
}

DeviceProbe::DeviceProbe(const grt_backend &backend,
                         std::function<bool()> ended)
    : backend(backend), table(*backend.device), ended(std::move(ended)),
      state(backend.create_rank(0, 1)) {
  if (!state)
    fail(std::string("backend '") + backend.name + "' does not start: " +
         (backend.failure ? backend.failure() : "no reason given"));
  cacheBytes = table.cache_bytes ? table.cache_bytes(state) : 0;
  pinned = table.allocate_host(patternBytes);
  step = backend.allocate(sizeof(grt_step));
  patterns =
      static_cast<char *>(backend.allocate(PatternCount * patternStride));
  if (!pinned || !step || !patterns)
    fail("no memory for a step block and random values");
  auto *block = new (pinned) grt_step();
  block->step = block->seed = 1;
  block->learning_rate = 1e-3;
  block->beta1 = 0.9;
  block->beta2 = 0.999;
  block->eps = 1e-8;
  block->clip_factor = block->inverse_tokens = 1;
  copy(step, pinned, sizeof(grt_step));
  synchronise();
  makePatterns();
  at.dp_size = at.sdp_size = at.tp_size = at.block_count = 1;
}

DeviceProbe::~DeviceProbe() {
  release();
  if (patterns)
    backend.release(patterns, PatternCount * patternStride);
  if (step)
    backend.release(step, sizeof(grt_step));
  if (pinned)
    table.release_host(pinned, patternBytes);
  backend.destroy_rank(state);
}

void DeviceProbe::makePatterns() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int pattern = 0; pattern < PatternCount; ++pattern) {
    if (pattern == Narrow) {
      auto *to = static_cast<uint16_t *>(pinned);
      for (uint64_t i = 0; i < patternBytes / 2; ++i)
        to[i] = uint16_t(std::bit_cast<uint32_t>(normal(random)) >> 16);
    } else if (pattern == Double) {
      auto *to = static_cast<double *>(pinned);
      for (uint64_t i = 0; i < patternBytes / 8; ++i)
        to[i] = double(normal(random));
    } else if (pattern == Integer) {
      auto *to = static_cast<uint32_t *>(pinned);
      for (uint64_t i = 0; i < patternBytes / 4; ++i)
        to[i] = uint32_t(random());
    } else {
      auto *to = static_cast<float *>(pinned);
      for (uint64_t i = 0; i < patternBytes / 4; ++i) {
        float value = normal(random);
        to[i] = pattern == Positive ? std::abs(value) : value;
      }
    }
    copy(patterns + uint64_t(pattern) * patternStride, pinned, patternBytes);
    synchronise();
  }
}

void DeviceProbe::fill(char *to, const Buffer &buffer) {
  uint64_t bytes = buffer.bytes();
  if (buffer.dtype == GRT_I32) {
    // Their range is the call's: made on the host.
    auto *values = static_cast<int32_t *>(pinned);
    std::mt19937 random(2);
    for (uint64_t done = 0; done < bytes; done += patternBytes) {
      uint64_t part = std::min(bytes - done, patternBytes);
      for (uint64_t i = 0; i < part / 4; ++i)
        values[i] = int32_t(random() % uint32_t(std::max(buffer.limit, 1)));
      copy(to + done, pinned, part);
      synchronise();
    }
    return;
  }
  const char *from = patterns + uint64_t(patternOf(buffer)) * patternStride;
  for (uint64_t done = 0; done < bytes; done += patternBytes)
    copy(to + done, from, std::min(bytes - done, patternBytes));
}

double DeviceProbe::kernel(double seconds, grt_kernel kernel,
                           const std::vector<Buffer> &buffers,
                           const std::vector<int64_t> &ints,
                           const std::vector<double> &reals) {
  if (!backend.kernels[kernel])
    fail(std::string("backend '") + backend.name + "' lacks a kernel");
  uint64_t each = 0, own = 0;
  std::vector<grt_buffer> descriptors;
  for (const Buffer &buffer : buffers) {
    descriptors.push_back(
        {GRT_REGION_TRANSIENT, uint32_t(buffer.dtype), 0, buffer.bytes()});
    each += alignUp(buffer.bytes());
    own += buffer.bytes();
  }
  const int64_t sets = setsOfBuffers(own, cacheBytes);
  reserve(uint64_t(sets) * each);
  std::vector<std::vector<void *>> addresses(static_cast<size_t>(sets));
  char *place = pool;
  for (std::vector<void *> &set : addresses)
    for (const Buffer &buffer : buffers) {
      fill(place, buffer);
      set.push_back(place);
      place += alignUp(buffer.bytes());
    }
  grt_kernel_op op = {uint32_t(kernel),      uint32_t(buffers.size()),
                      uint32_t(ints.size()), uint32_t(reals.size()),
                      descriptors.data(),    ints.data(),
                      reals.data(),          "profile"};
  if (backend.prepare)
    check([&](char *message, size_t bytes) {
      return backend.prepare(state, &op, message, bytes);
    });
  return timed(seconds, [&](int64_t number) {
    grt_call call = {&op, addresses[size_t(number % sets)].data(),
                     &at, static_cast<grt_step *>(step),
                     0,   state};
    check([&](char *message, size_t bytes) {
      return backend.kernels[kernel](&call, message, bytes);
    });
  });
}

double DeviceProbe::copies(double seconds, uint64_t bytes) {
  const int64_t sets = setsOfBuffers(2 * bytes, cacheBytes);
  reserve(uint64_t(sets) * 2 * bytes);
  fill(pool, {GRT_BF16, int64_t(uint64_t(sets) * bytes)});
  return timed(seconds, [&](int64_t number) {
    char *from = pool + uint64_t(number % sets) * 2 * bytes;
    copy(from + bytes, from, bytes);
  });
}

uint64_t DeviceProbe::outsideBytes() {
  // The backend remembers the most it saw, so it looks once, without a pool.
  release();
  constexpr int callsOfStep = 2000; // 48 layers of a GPT-2 have about as many
  const uint64_t bytes = 256;
  reserve(bytes);
  if (table.begin_graph) {
    check([&](char *message, size_t capacity) {
      return table.begin_graph(state, message, capacity);
    });
    for (int i = 0; i < callsOfStep; ++i)
      copy(pool + bytes / 2, pool, bytes / 2);
    check([&](char *message, size_t capacity) {
      return table.end_graph(state, 0, message, capacity);
    });
    check([&](char *message, size_t capacity) {
      return table.launch_graph(state, 0, message, capacity);
    });
    synchronise();
  }
  const uint64_t used = table.peak_bytes ? table.peak_bytes(state) : 0;
  // Kernels took the workspace of a rank that has no arena.
  const uint64_t own = PatternCount * patternStride + sizeof(grt_step) + bytes +
                       GRT_CUDA_WORKSPACE;
  return used > own ? used - own : 0;
}

void DeviceProbe::release() {
  if (pool)
    backend.release(pool, poolBytes);
  pool = nullptr;
  poolBytes = 0;
}

void DeviceProbe::reserve(uint64_t bytes) {
  if (bytes <= poolBytes)
    return;
  release();
  pool = static_cast<char *>(backend.allocate(bytes));
  if (!pool)
    fail("the device has no " + std::to_string(bytes) + " bytes");
  poolBytes = bytes;
}

void DeviceProbe::copy(void *to, const void *from, uint64_t bytes) {
  check([&](char *message, size_t capacity) {
    return table.copy(state, GRT_STREAM_COMPUTE, to, from, bytes, message,
                      capacity);
  });
}

void DeviceProbe::synchronise() {
  check([&](char *message, size_t bytes) {
    return table.synchronise(state, GRT_STREAM_COUNT, message, bytes);
  });
}

double DeviceProbe::timed(double seconds,
                          const std::function<void(int64_t)> &call) {
  constexpr int windows = 5;
  constexpr int64_t mostCalls = 1000;
  call(0);
  double once = window(1, leastCalls, call);
  const int64_t count = std::clamp(
      int64_t(seconds / windows / std::max(once, 1e-7)), leastCalls, mostCalls);
  std::vector<double> times;
  int64_t first = 1 + leastCalls;
  for (int i = 0; i < windows && (i == 0 || !ended()); ++i) {
    times.push_back(window(first, ended() ? leastCalls : count, call));
    first += count;
  }
  auto middle = times.begin() + ptrdiff_t(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

double DeviceProbe::window(int64_t first, int64_t count,
                           const std::function<void(int64_t)> &call) {
  auto stamp = [&](uint32_t number) {
    check([&](char *message, size_t bytes) {
      return table.stamp(state, GRT_STREAM_COMPUTE, number, message, bytes);
    });
  };
  auto stamped = [&](uint32_t number) {
    double milliseconds = 0;
    check([&](char *message, size_t bytes) {
      return table.stamped(state, number, &milliseconds, message, bytes);
    });
    return milliseconds;
  };
  stamp(0);
  for (int64_t i = 0; i < count; ++i)
    call(first + i);
  stamp(1);
  synchronise();
  double milliseconds = stamped(1) - stamped(0);
  return std::max(milliseconds / 1e3 / double(count), 1e-9);
}

} // namespace grt::profile
