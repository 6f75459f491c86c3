//===- profile.h - Time by kernel, beside what the machine can do ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A backend that measures another one: every kernel of the wrapped table is
// timed and its work counted. The roofline (Williams, Waterman and Patterson,
// CACM 52(4), 2009) of a call is the longer of FLOPs over the measured peak and
// bytes over the measured bandwidth; a kernel's fraction is that over its time.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_BENCHMARKS_TRAINING_PROFILE_H
#define GALVATRON_BENCHMARKS_TRAINING_PROFILE_H

#include "grt/backend.h"

#include <cstdio>
#include <map>
#include <string>

namespace galvatron::bench {

/// Work of one kernel call, or of many. Bytes are what must pass between memory
/// and processor if every operand is read once and every result written once.
struct Work {
  double flops = 0, bytes = 0;
};

/// FLOPs and bytes of one call; only products and attention have FLOPs that
/// count.
Work workOf(const grt_kernel_op &op, bool accumulate);

/// What the machine reaches with one rank and that many threads.
struct Peaks {
  double f32Flops = 0, bf16Flops = 0, bytesPerSecond = 0;
};
Peaks measurePeaks(const grt_backend &backend, int threads);

/// The measuring backend; one in a process. Ranks may call it from any thread.
class Profile {
public:
  explicit Profile(const grt_backend &backend);

  const grt_backend *table() const;
  void reset();
  /// A table by kernel and shape, of `steps` steps that took `seconds`.
  void print(std::FILE *out, const Peaks &peaks, int ranks, double steps,
             double seconds) const;
};

} // namespace galvatron::bench

#endif // GALVATRON_BENCHMARKS_TRAINING_PROFILE_H
