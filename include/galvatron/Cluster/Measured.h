//===- Measured.h - Measured curves of devices and links --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Measured curves that a cluster file may carry beyond single numbers: the part
// of the FLOP/s that kernels reach as a function of their size, and times of
// collectives. Both are given by points and read between them;
// docs/cost-model.md says how.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_CLUSTER_MEASURED_H
#define GALVATRON_CLUSTER_MEASURED_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace galvatron {

/// The size of a matrix product [m x k] * [k x n]: the harmonic mean of its
/// dimensions, 3 / (1/m + 1/n + 1/k). Half its FLOPs, three times, over the
/// elements that it reads and writes once gives the same number, also for the
/// sum of several products.
double productSize(double flops, double elements);

/// Fraction of the FLOP/s of large products that a product reaches.
class EfficiencyCurve {
public:
  using Point = std::pair<double, double>; ///< size, fraction

  EfficiencyCurve() = default;
  explicit EfficiencyCurve(std::vector<Point> points)
      : curve(std::move(points)) {}
  /// size / (size + half) at powers of two: half the rate at size `half`.
  static EfficiencyCurve hyperbola(double half);

  /// Linear in the logarithm of the size between points, proportional to the
  /// size below the first, constant above the last. 1 for a curve without
  /// points or a size of 0 (not known).
  double at(double size) const;
  bool empty() const { return curve.empty(); }
  llvm::ArrayRef<Point> points() const { return curve; }
  /// Sizes ascend and are positive, fractions lie above 0 and up to 1.
  llvm::Error check(const llvm::Twine &where) const;

  bool operator==(const EfficiencyCurve &other) const = default;

private:
  std::vector<Point> curve;
};

enum class Collective {
  AllReduce,
  AllGather,
  ReduceScatter,
  Send,
  AllToAll,
  Shift, ///< every member sends its buffer to the next, around the group
};
inline constexpr int kCollectiveCount = 6;
llvm::StringRef collectiveName(Collective kind);
std::optional<Collective> parseCollective(llvm::StringRef name);
/// "'all-reduce', 'all-gather', .. or 'all-to-all'", for messages.
std::string collectiveNames();

/// Times of one collective over groups of one size and placement.
struct CollectiveTable {
  using Point = std::pair<int64_t, double>; ///< bytes of the buffer, seconds

  Collective kind = Collective::AllReduce;
  int64_t ranks = 2;
  bool acrossNodes = false; ///< the group spans nodes
  /// Distance between neighbours of the group in global ranks; 0: any.
  int64_t stride = 0;
  /// Groups that ran at once when it was measured.
  int64_t concurrent = 1;
  std::vector<Point> times;

  /// Linear between points and, with the slope of the nearest piece, outside
  /// (at least 0); proportional to the bytes if there is one point.
  double seconds(double bytes) const;
  llvm::Error check(const llvm::Twine &where) const;

  bool operator==(const CollectiveTable &other) const = default;
};

} // namespace galvatron

#endif // GALVATRON_CLUSTER_MEASURED_H
