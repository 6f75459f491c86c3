//===- measure.h - Measures what a rank of this machine achieves ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PROFILE_MEASURE_H
#define GALVATRON_PROFILE_MEASURE_H

#include "comm/world.h"
#include "probe.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace grt::profile {

/// A kernel at the shapes of a transformer block.
struct KernelTime {
  std::string name;
  double seconds = 0;
  double bytes = 0; ///< that it reads and writes, each buffer once
};

/// Times of one collective while all groups of a kind run.
struct CollectiveTimes {
  std::string kind; ///< "all-reduce", "all-gather", "reduce-scatter", "send"
  int ranks = 2;
  bool network = false; ///< groups span hosts
  int stride = 1;       ///< distance of neighbours in ranks
  int concurrent = 1;   ///< groups
  /// Bytes of the full buffer, ascending; seconds as measured.
  std::vector<std::pair<int64_t, double>> times;
};

/// Transfers from the first rank of one host to that of another.
struct PairTimes {
  int first = 0, second = 0; ///< hosts
  CollectiveTimes times;
};

/// Per rank; SI units.
struct Measurement {
  /// (size, FLOP/s): products and attention kernels, size as in the cost model,
  /// the harmonic mean of the dimensions.
  using Curve = std::vector<std::pair<double, double>>;
  Curve products, attention;
  double f32Flops = 0; ///< of the best size
  double f64Flops = 0;
  double bf16Flops = 0; ///< 0: the backend has none
  /// Bytes of a device in use besides what programs ask for; 0 if unknown.
  uint64_t outsideBytes = 0;
  /// Bytes of a device that a communicator of all ranks takes; 0: unknown.
  uint64_t communicatorBytes = 0;
  /// Reached by the kernels of a transformer block that are no products, all
  /// together: bytes read and written once over time.
  double memoryBandwidth = 0;
  double copyBandwidth = 0; ///< of blocks beyond every cache
  double kernelOverhead = 0;
  /// Reached by AdamW and the gradient norm together, over states beyond every
  /// cache.
  double optimizerBandwidth = 0;
  std::vector<KernelTime> kernels;
  std::vector<CollectiveTimes> collectives;
  /// The times of every two hosts, where there are more than two.
  std::vector<PairTimes> pairs;
  /// Host of every rank, numbered from 0 by first appearance.
  std::vector<int> hosts;
  int threadsPerRank = 1;
  int cores = 1; ///< of a host
  std::string backend = "cpu";
  /// The figures that each host's ranks reach, if there are several hosts;
  /// those of computation alone count. The figures above are of all ranks.
  std::vector<Measurement> ofHosts;
};

/// The figures of computation, in one row, and back; both sides have measured
/// the same things.
std::vector<double> figuresOf(const Measurement &measurement);
void setFigures(Measurement &measurement, const std::vector<double> &figures);

/// The ranks of a host, ascending.
std::vector<int> ranksOf(const std::vector<int> &hosts, int host);

/// `ofHosts` becomes what each host has measured, and the figures of `result`
/// the mean over all ranks.
void shareFigures(Communicator &communicator, int hosts, Measurement &result);

/// Hosts whose devices are of one type: their products, over all sizes, differ
/// by less than a quarter. By host its type, numbered from 0 by first
/// appearance.
std::vector<int> typesOfHosts(const Measurement &measurement);

/// The time that a measurement may take, and the number of its points.
struct MeasureOptions {
  double seconds = 60;
  bool quick = false;
  /// Says whether the measurement was asked to end. From then on everything
  /// that is left is measured once: a cluster needs all of it. Called on one
  /// thread.
  std::function<bool()> ended = [] { return false; };
};

/// Measures with the CPU backend on all ranks of the world. Throws grt::Error.
Measurement measure(World &world, const MeasureOptions &options);

/// Adds what the links between devices reach to what each has measured alone
/// (measureDevice), of which `result` gets the means. Collective over all
/// ranks. Throws grt::Error.
void measureDeviceLinks(World &world, const grt_backend &backend,
                        const MeasureOptions &options, Measurement &result);

/// The parts that concern computation, and communication; `part` is the time
/// that they may take.
void measureCompute(Probe &probe, double part, bool quick, Measurement &result);
void measureCollectives(Probe &probe, double part, bool quick,
                        Measurement &result);
/// Every two hosts, in as many rounds as there are hosts or one fewer: in a
/// round every host is in one pair at most, and all pairs run.
void measurePairs(Probe &probe, double part, bool quick, Measurement &result);

/// The size of a product, by which efficiencies are listed.
inline double harmonicMean(double m, double n, double k) {
  return 3 / (1 / m + 1 / n + 1 / k);
}

} // namespace grt::profile

#endif // GALVATRON_PROFILE_MEASURE_H
