//===- probe.h - One rank's stopwatch -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Everything is measured on all ranks at the same time, each on its thread with
// its share of the cores, as in training: what a rank gets depends on what the
// others do.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PROFILE_PROBE_H
#define GALVATRON_PROFILE_PROBE_H

#include "comm/communicator.h"
#include "grt/backend.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace grt::profile {

/// Memory of the backend, every page of it touched.
class Block {
public:
  /// Throws grt::Error.
  Block(const grt_backend &backend, int64_t bytes);
  ~Block();
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;
  void *data() const { return memory; }
  int64_t bytes() const { return size; }
  /// Numbers between -0.5 and 0.5.
  void fill(grt_dtype dtype);

private:
  const grt_backend &backend;
  int64_t size;
  void *memory;
};

class Probe {
public:
  /// Throws grt::Error.
  Probe(Communicator &communicator, const grt_backend &backend, int threads);
  ~Probe();
  Probe(const Probe &) = delete;
  Probe &operator=(const Probe &) = delete;

  Communicator &peers() { return communicator; }
  const grt_backend &device() const { return backend; }
  int threads() const { return ownThreads; }

  /// Calls a kernel on whole blocks. Throws grt::Error.
  void launch(grt_kernel kernel, grt_dtype dtype,
              const std::vector<Block *> &blocks,
              const std::vector<int64_t> &ints,
              const std::vector<double> &reals = {});

  /// Seconds per call of `body` while all ranks call it: the median over a few
  /// windows of the mean over the ranks, the same number on every rank. Every
  /// rank makes as many calls, for about `seconds` in all.
  template <typename Body> double time(double seconds, Body body) {
    body();
    int64_t count = countFor(seconds, window(1, body));
    return median([&] { return window(count, body); });
  }

  /// Seconds that `body` adds to `work` before it, likewise. Windows with and
  /// without it take turns, because the speed of a machine drifts. Noise may
  /// make it negative.
  template <typename Work, typename Body>
  double timeBehind(double seconds, Work work, Body body) {
    auto both = [&] {
      work();
      body();
    };
    both();
    int64_t count = countFor(seconds, window(1, work) + window(1, both));
    return median([&] {
      double alone = window(count, work);
      return window(count, both) - alone;
    });
  }

private:
  static constexpr int windows = 5;

  /// How often a window of five repeats what takes `once`.
  static int64_t countFor(double seconds, double once) {
    auto count = int64_t(seconds / windows / std::max(once, 1e-9));
    return std::clamp<int64_t>(count, 1, 1 << 20);
  }

  template <typename Window> static double median(Window one) {
    std::vector<double> results;
    for (int i = 0; i < windows; ++i)
      results.push_back(one());
    std::nth_element(results.begin(), results.begin() + windows / 2,
                     results.end());
    return results[windows / 2];
  }

  template <typename Body> double window(int64_t count, Body &body) {
    mean(0); // all begin together
    auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < count; ++i)
      body();
    std::chrono::duration<double> passed =
        std::chrono::steady_clock::now() - begin;
    return mean(passed.count() / double(count));
  }
  double mean(double value);

  Communicator &communicator;
  const grt_backend &backend;
  int ownThreads;
  void *state;
  grt_coordinates coordinates = {};
  grt_step step = {};
  std::vector<double> gathered;
};

} // namespace grt::profile

#endif // GALVATRON_PROFILE_PROBE_H
