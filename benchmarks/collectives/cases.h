//===- cases.h - What both collective benchmarks measure --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sums are of f32. `bytes` is the whole: what an all-reduce holds on every
// rank, what an all-gather gives, what a reduce-scatter takes. Lines of output:
// "collective bytes ranks microseconds", the least and the median over the
// repetitions of the slowest rank's time.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_BENCHMARKS_COLLECTIVES_CASES_H
#define GALVATRON_BENCHMARKS_COLLECTIVES_CASES_H

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace galvatron::bench {

inline constexpr const char *collectiveNames[] = {"all-reduce", "all-gather",
                                                  "reduce-scatter"};
inline constexpr uint64_t mebibytes[] = {1, 4, 16, 64};

/// Enough for a median, few enough that large ones end.
inline int repetitions(uint64_t bytes) {
  return int(std::clamp<uint64_t>((uint64_t(128) << 20) / bytes, 5, 40));
}

inline void report(int collective, uint64_t bytes, int ranks,
                   std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  std::printf("%s %llu %d %.2f %.2f\n", collectiveNames[collective],
              (unsigned long long)bytes, ranks, 1e6 * seconds.front(),
              1e6 * seconds[seconds.size() / 2]);
}

} // namespace galvatron::bench

#endif // GALVATRON_BENCHMARKS_COLLECTIVES_CASES_H
