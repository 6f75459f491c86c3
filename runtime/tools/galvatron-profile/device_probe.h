//===- device_probe.h - Times calls on a device ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For galvatron-profile and the bench of kernels. What a call takes inside a
// training step is asked for, so
//
// - calls stand one behind the other, at least ten between two events: a single
//   one shows the latency of its launch;
// - they go round buffers that are together larger than four times the device's
//   cache: what a step reads was written long before;
// - values are random: devices draw less power, and run faster, on constant
//   bits.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PROFILE_DEVICE_PROBE_H
#define GALVATRON_PROFILE_DEVICE_PROBE_H

#include "grt/backend.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace grt::profile {

class DeviceProbe {
public:
  /// Elements of one buffer of a call. Integers are random below `limit`;
  /// numbers have both signs, or, where a kernel takes roots, none below zero.
  struct Buffer {
    grt_dtype dtype;
    int64_t count;
    int32_t limit = 1;
    bool positive = false;

    uint64_t bytes() const;
  };

  /// Once `ended` says so, what is left is measured once. Throws Error where
  /// the backend does not start.
  explicit DeviceProbe(
      const grt_backend &backend,
      std::function<bool()> ended = [] { return false; });
  ~DeviceProbe();
  DeviceProbe(const DeviceProbe &) = delete;
  DeviceProbe &operator=(const DeviceProbe &) = delete;

  /// Seconds of one call of a kernel: the median of a few windows of calls,
  /// about `seconds` in all, or ten calls a window where that takes longer.
  double kernel(double seconds, grt_kernel kernel,
                const std::vector<Buffer> &buffers,
                const std::vector<int64_t> &ints,
                const std::vector<double> &reals = {});
  /// Seconds of a copy of so many bytes on the device.
  double copies(double seconds, uint64_t bytes);
  /// Bytes of the device that are in use besides what was asked for: the
  /// context, modules of kernels, what libraries keep, a graph of as many calls
  /// as a step's. To be asked last, when all kernels were called; 0 if nobody
  /// can say. Others on the device count too. Communicators are not there yet.
  uint64_t outsideBytes();

  /// Calls between two events, at least.
  static constexpr int64_t leastCalls = 10;
  /// Buffers that calls go round are larger than this many caches.
  static constexpr uint64_t cachesOfBuffers = 4;
  /// Sets of buffers, of `bytes` each, that calls go round.
  static int64_t setsOfBuffers(uint64_t bytes, uint64_t cacheBytes);

private:
  void release();
  void synchronise();
  void copy(void *to, const void *from, uint64_t bytes);
  void reserve(uint64_t bytes);
  void makePatterns();
  void fill(char *to, const Buffer &buffer);
  double timed(double seconds, const std::function<void(int64_t)> &call);
  double window(int64_t first, int64_t count,
                const std::function<void(int64_t)> &call);

  const grt_backend &backend;
  const grt_device &table;
  std::function<bool()> ended;
  void *state;
  void *pinned = nullptr, *step = nullptr;
  char *patterns = nullptr; ///< of the device: random bits of each kind
  char *pool = nullptr;
  uint64_t poolBytes = 0, cacheBytes = 0;
  grt_coordinates at = {};
};

} // namespace grt::profile

#endif // GALVATRON_PROFILE_DEVICE_PROBE_H
