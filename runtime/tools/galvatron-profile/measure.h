//===- measure.h - Measures what a rank of this machine achieves
//-----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All ranks run at the same time, each on its own thread with its share of the
// cores, as they do in training: what one rank gets depends on the others.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PROFILE_MEASURE_H
#define GALVATRON_PROFILE_MEASURE_H

namespace grt::profile {

/// Per rank, in elements of SI: FLOP/s, bytes/s, seconds.
struct Measurement {
  int ranks = 1;
  int threadsPerRank = 1;
  double f32Flops = 0;        ///< median over three product shapes
  double f64Flops = 0;        ///< product of 256 x 256 x 256
  double memoryBandwidth = 0; ///< copy: bytes read plus bytes written
  double kernelOverhead = 0;  ///< a product of 2 x 2 x 2
  /// Of the ring formulas in the cost model, fitted to an all-reduce of 4 MiB
  /// and one of 64 bytes over all ranks; 0 for one rank.
  double linkBandwidth = 0;
  double linkLatency = 0;
};

/// Measures with the CPU backend for about `seconds`. Throws grt::Error.
Measurement measure(int ranks, double seconds);

/// The threads that a rank gets: max(1, cores / ranks).
int threadsPerRank(int ranks);

} // namespace grt::profile

#endif // GALVATRON_PROFILE_MEASURE_H
