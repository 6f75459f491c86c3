//===- StageLabels.h - Label runs over the layers of a stage ----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The inner half of PipelineSearch: one run goes from the last layer of a stage
// towards the first and serves every length that the stage may have.
//
// Memory of a label is four numbers. With S the states so far, V the peak of
// the activations above them and D the boundary buffers, the peak of the whole
// stage is the largest of
//   S + b + d,  S + V + d,  S + D + b,  S + V + D      (plus what comes before)
// where b and d are the largest transient and boundary still to come. Where
// these are known to be small the four numbers collapse into the last one.
// What layers have on the host is a sum of its own.
//
// The time that a change of classes at a boundary adds (PipelineBoundary) is
// known when the layer before it is put in front.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SEARCH_STAGELABELS_H
#define GALVATRON_LIB_SEARCH_STAGELABELS_H

#include "galvatron/Search/PipelineSearch.h"

#include "llvm/ADT/ArrayRef.h"

#include <deque>
#include <optional>

namespace galvatron::search {

/// An option with its memory in the form of one micro-batch in flight: what the
/// others keep counts as state.
struct Choice {
  uint32_t index = 0; ///< in the option set
  uint32_t layoutClass = 0;
  Picoseconds time = 0, nosync = 0;
  int64_t state = 0, kept = 0, transient = 0;
  int64_t boundary = 0; ///< gradients of its input and output
  int64_t host = 0;     ///< on the host

  int64_t bytes() const { return state + kept; }
  bool operator==(const Choice &other) const = default;
};
using Choices = std::vector<Choice>;

/// Returns time * weights.time + nosync * weights.nosync.
struct Weights {
  int64_t time = 0, nosync = 0;

  int64_t both() const { return time + nosync; }
  template <typename T> auto of(T a, T b) const {
    return static_cast<T>(time) * a + static_cast<T>(nosync) * b;
  }
};

/// A functional that every complete choice must keep below a limit by its last
/// class, once what start and first class add to it is counted.
struct Limit {
  Weights weights;
  std::vector<double> limit; ///< by last class; one entry if not asked for
  std::vector<std::vector<double>> added; ///< by start and first class
};

struct StageRun {
  size_t classes = 1;
  llvm::ArrayRef<size_t> layouts; ///< by class; empty: each its own
  size_t end = 0;                 ///< one past the last layer
  std::vector<size_t> starts;     ///< possible first layers, ascending
  PipelineStage stage;
  // Arrays from starts.front() on, by layer:
  std::vector<const Choices *> options;
  /// Transforms between the layer and the next one.
  std::vector<const std::vector<Picoseconds> *> transforms;
  /// Spreads of the same matrix: by classes a and b of the next layer, the most
  /// by which a can cost more than b.
  std::vector<const std::vector<Picoseconds> *> spreads;
  /// The cost by class of what the last layer sends at least.
  const std::vector<Picoseconds> *endCharge = nullptr;
  /// The least that the first layer sends back, by start and class; or null.
  std::vector<const std::vector<Picoseconds> *> startCharge;

  /// Bytes from starts.front() on, by layer, of what lives in front of it and,
  /// last of all, behind the stage; null where that is nothing.
  std::vector<const PipelineBoundary *> boundaries;

  /// The Pareto front of both times, or the least of one functional.
  bool twoCosts = false;
  Weights cost;
  /// True if a stage is in front: the first layer then holds what passes it,
  /// and its class matters. Runs of the first stage may stand for layers
  /// further behind.
  bool byFirstClass = false;
  bool byLastClass = false;
  /// A limit by start of two costs: nosync below this is as good as this,
  /// because some other stage is slower anyway.
  std::vector<Picoseconds> floors;
  std::vector<Limit> limits;
  /// The multipliers of memory, by limit, for the completion bounds.
  std::vector<std::vector<double>> multipliers;
  PipelineFault fault = PipelineFault::None;
  /// When the run is given up: by the steps of all runs, and on request.
  uint64_t mostSteps = ~uint64_t(0);
  const Cancellation *cancellation = nullptr;
  /// Options of which some were left out.
  std::deque<Choices> restricted;
};

/// A complete choice for one stage. Times include the charges. A class that the
/// run does not ask for is 0.
struct StageEntry {
  size_t start = 0; ///< index into StageRun::starts
  size_t firstClass = 0, lastClass = 0;
  Picoseconds time = 0, nosync = 0;
  std::vector<uint32_t> choice; ///< by layer of the stage
};

/// All undominated choices within the limits, by start; nothing if the run was
/// given up.
std::optional<std::vector<StageEntry>> runStage(const StageRun &run,
                                                PipelineStatistics &statistics);

/// Lower bounds of a functional, [start][first class][last class] as far as
/// these are asked for: the Lagrangian dual with the transforms, over the given
/// multipliers. `reserved` is what the boundary
/// buffers take at least, by start.
std::vector<std::vector<double>>
boundStage(const StageRun &run, Weights weights,
           const std::vector<double> &multipliers,
           const std::vector<int64_t> &reserved);

/// The least memory of layers options[first..last], with the choice.
struct LeastMemory {
  int64_t bytes = 0;
  std::vector<uint32_t> choice;
};
LeastMemory leastMemory(const std::vector<const Choices *> &options);

/// Options that no other of the same class beats in everything.
Choices withoutDominated(const Choices &options);

/// Leaves room for the rounding of sums in floating point.
inline double roomFor(double limit) {
  return limit + 2 + 1e-12 * (limit < 0 ? -limit : limit);
}

} // namespace galvatron::search

#endif // GALVATRON_LIB_SEARCH_STAGELABELS_H
