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

#include "comm/rank_messages.h"
#include "core/joined_rank.h"
#include "grt/backend.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <utility>
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
  /// Once `ended` says so on any rank, all ranks measure what is left once.
  /// Throws grt::Error.
  Probe(Communicator &communicator, const grt_backend &backend, int threads,
        std::function<bool()> ended);
  /// Makes the probe of a rank that has a device, whose collectives are
  /// measured: a window ends when the device has done what it was given.
  Probe(JoinedRank &rank, const grt_backend &backend,
        std::function<bool()> ended);
  ~Probe();
  Probe(const Probe &) = delete;
  Probe &operator=(const Probe &) = delete;

  /// Returns the communicator whose times are measured.
  Communicator &peers() { return joined ? joined->peers() : communicator; }
  bool onDevice() const { return joined; }
  /// Memory that collectives take, zeros, as long as this lives.
  void *memory(int64_t bytes);
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
    window(1, body);
    int64_t count = countFor(seconds, meanOfAll());
    return median([&] { return window(count, body); });
  }

  /// Makes times means over the ranks of `members` alone, which must have this
  /// rank: the ranks of a host, where hosts are of unlike types. A body is
  /// called equally often on all. Empty: over all ranks.
  void averageOver(std::vector<int> members) { averaged = std::move(members); }

  /// Seconds per call of `body` on every rank: the median of its own windows.
  /// Ranks with nothing to do take part all the same.
  template <typename Body>
  std::vector<double> timesOfRanks(double seconds, Body body) {
    body();
    window(1, body);
    double slowest = *std::max_element(gathered.begin(), gathered.end());
    mean(slowest); // the count is the same on all
    int64_t count = countFor(seconds, gathered[0]);
    std::vector<std::vector<double>> all(gathered.size());
    for (int i = 0; i < windows && (i == 0 || !brief); ++i) {
      window(count, body);
      for (size_t rank = 0; rank < all.size(); ++rank)
        all[rank].push_back(gathered[rank]);
    }
    std::vector<double> medians;
    for (std::vector<double> &times : all)
      medians.push_back(medianOf(times));
    return medians;
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
    window(1, work);
    double alone = meanOfAll();
    window(1, both);
    int64_t count = countFor(seconds, alone + meanOfAll());
    return median([&] {
      double without = window(count, work);
      return window(count, both) - without;
    });
  }

private:
  static constexpr int windows = 5;

  /// Returns how often a window, one of five, repeats what takes `once`.
  int64_t countFor(double seconds, double once) const {
    if (brief)
      return 1;
    auto count = int64_t(seconds / windows / std::max(once, 1e-9));
    return std::clamp<int64_t>(count, 1, 1 << 20);
  }

  static double medianOf(std::vector<double> &times) {
    auto middle = times.begin() + ptrdiff_t(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

  template <typename Window> double median(Window one) const {
    std::vector<double> results;
    for (int i = 0; i < windows && (i == 0 || !brief); ++i)
      results.push_back(one());
    return medianOf(results);
  }

  template <typename Body> double window(int64_t count, Body &body) {
    beginTogether();
    auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < count; ++i)
      body();
    if (joined)
      joined->wait();
    std::chrono::duration<double> passed =
        std::chrono::steady_clock::now() - begin;
    return mean(passed.count() / double(count));
  }
  /// Over `averaged`, of what all ranks give.
  double mean(double value);
  double meanOfAll() const;
  /// Ranks wait for each other, and learn whether any of them was asked to end.
  void beginTogether();

  Communicator &communicator;
  const grt_backend &backend;
  int ownThreads;
  void *state;
  JoinedRank *joined = nullptr;
  std::list<Block> blocks;
  grt_coordinates coordinates = {};
  grt_step step = {};
  std::vector<double> gathered; ///< what ranks gave last
  std::vector<int> averaged;
  std::function<bool()> ended;
  bool brief = false; ///< the same on all ranks between two windows
};

} // namespace grt::profile

#endif // GALVATRON_PROFILE_PROBE_H
