//===- StageClassCache.h - Stages that problems have in common --*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The tables that bounds of a stage are read from depend on nothing but the
// costs of its layers, its micro-batches in flight and its memory. A planner
// opens thousands of problems whose stages are a few dozen different ones: each
// is prepared once, found again by its costs, and what is worked out of it is
// kept.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SEARCH_STAGECLASSCACHE_H
#define GALVATRON_LIB_SEARCH_STAGECLASSCACHE_H

#include "StageLabels.h"

#include "llvm/ADT/ArrayRef.h"

#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>

namespace galvatron::search {

/// The Lagrangian dual of one functional over layers: sums over layers of the
/// least cost + multiplier * bytes. Equal neighbours share their numbers.
struct Curve {
  std::vector<double> multipliers; ///< ascending, the first is 0
  std::vector<uint32_t> runOf;     ///< by layer, and one past the last
  std::vector<uint32_t> starts;    ///< by run of equal layers: the first
  /// [run][multiplier]: of all layers before the run, of one of its layers, and
  /// of one that ends a stage.
  std::vector<double> sums, least, last;

  /// The curve of layers; `distinct`: their options, `numberOf`: by layer,
  /// which.
  static Curve of(llvm::ArrayRef<Choices> distinct,
                  llvm::ArrayRef<uint32_t> numberOf, Weights weights);

  /// The sum of all layers before one, by multiplier.
  struct Prefix {
    const double *sums, *least;
    double count;
    double operator[](size_t k) const { return sums[k] + count * least[k]; }
  };
  Prefix before(size_t layer) const {
    size_t run = runOf[layer], row = run * multipliers.size();
    return {&sums[row], &least[row], static_cast<double>(layer - starts[run])};
  }
  const double *leastOf(size_t layer) const {
    return &least[runOf[layer] * multipliers.size()];
  }
  const double *lastOf(size_t layer) const {
    return &last[runOf[layer] * multipliers.size()];
  }

  /// The multiplier at which the dual function `at` is greatest. It is concave,
  /// so it rises up to there and falls behind; where rounding says otherwise
  /// another multiplier is found, whose bound is as true.
  template <typename Dual> size_t peakOf(Dual at) const {
    size_t low = 0, high = multipliers.size() - 1;
    while (low < high) {
      size_t middle = (low + high) / 2;
      if (at(middle) < at(middle + 1))
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  /// A lower bound for layers [begin, end) with `memory` bytes. Does not fall
  /// as runs grow.
  double bound(size_t begin, size_t end, double memory) const;
  /// A better one if they are all layers of a stage.
  double boundOfStage(size_t begin, size_t end, double memory) const;
  /// The multiplier of the best bound and `reach` neighbours on either side,
  /// and 0, added to `chosen`.
  void choose(size_t begin, size_t end, double memory, size_t reach,
              std::vector<double> &chosen) const;
};

/// Options in the form that labels need.
Choices toChoices(const std::vector<PipelineOption> &options, int64_t inFlight);

/// Numbers by layers [begin, end), worked out when asked for first. Models of
/// many layers have too many: theirs are worked out every time.
template <typename Number> class IntervalTable {
public:
  explicit IntervalTable(size_t layers)
      : width(layers <= kMostLayers ? layers + 1 : 0) {}

  template <typename Make>
  Number at(size_t begin, size_t end, Make make) const {
    if (width == 0)
      return make();
    if (values.empty())
      values.assign(width * width, kUnknown);
    Number &value = values[begin * width + end];
    if (value == kUnknown)
      value = make();
    return value;
  }
  size_t mostBytes() const { return width * width * sizeof(Number); }

private:
  /// 33 KiB a table.
  static constexpr size_t kMostLayers = 64;
  /// A number not worked out yet; a result equal to it is worked out every
  /// time.
  static constexpr Number kUnknown = std::numeric_limits<Number>::lowest();
  size_t width;
  mutable std::vector<Number> values;
};

/// The layers of a place with so many micro-batches in flight.
struct StageClassLayers {
  std::vector<Choices> distinct;
  std::vector<const Choices *> options; ///< by layer; ties at their cheapest
  std::vector<int64_t> leastBytes;      ///< exclusive prefix
  std::vector<int64_t> leastBoundary;   ///< by layer
  std::vector<int64_t> leastLast; ///< by layer: bytes if it ends the stage
  /// The keys are layers [begin, end) of search::leastNeed(), and `distinct` as
  /// far as it matters to that.
  mutable std::map<std::pair<size_t, size_t>, LeastMemory> leastMemories;
  mutable std::vector<Choices> light;

  /// `sets`: the options of all distinct layers; `numberOf`: by layer, which.
  StageClassLayers(llvm::ArrayRef<std::vector<PipelineOption>> sets,
                   llvm::ArrayRef<uint32_t> numberOf, int64_t inFlight);
  /// Boundary buffers that layers [begin, end) need at least.
  int64_t boundary(size_t begin, size_t end) const;
  const LeastMemory &leastMemory(size_t begin, size_t end) const;

private:
  IntervalTable<int64_t> boundaries;
};

/// One functional of a stage with so much memory.
struct StageClassCurve {
  const StageClassLayers &layers;
  const Curve &curve;
  int64_t memory;
  IntervalTable<double> ofRuns, ofStages;

  StageClassCurve(const StageClassLayers &layers, const Curve &curve,
                  int64_t memory)
      : layers(layers), curve(curve), memory(memory),
        ofRuns(layers.options.size()), ofStages(layers.options.size()) {}
  /// Curve::bound() with the memory that boundary buffers leave; infinite if
  /// the layers need more of it, whatever their options.
  double boundOfFitting(size_t begin, size_t end) const {
    return ofRuns.at(begin, end, [&] {
      int64_t bytes = layers.leastBytes[end] - layers.leastBytes[begin];
      return bytes > memory - layers.boundary(begin, end)
                 ? std::numeric_limits<double>::infinity()
                 : curve.bound(begin, end, left(begin, end));
    });
  }
  /// Curve::boundOfStage() with that memory.
  double boundOfStage(size_t begin, size_t end) const {
    return ofStages.at(begin, end, [&] {
      return curve.boundOfStage(begin, end, left(begin, end));
    });
  }

private:
  double left(size_t begin, size_t end) const {
    return static_cast<double>(memory - layers.boundary(begin, end));
  }
};

/// The layers of a place, and all that was made of them.
class StageClassPlace {
public:
  /// About so many bytes as are made of it are added to `made`.
  StageClassPlace(std::vector<std::vector<PipelineOption>> sets,
                  std::vector<uint32_t> numberOf, std::shared_ptr<size_t> made)
      : sets(std::move(sets)), numberOf(std::move(numberOf)),
        made(std::move(made)) {}

  const StageClassLayers &layers(int64_t inFlight) {
    return slotsOf(inFlight).layers;
  }
  const StageClassCurve &curve(int64_t inFlight, int64_t memory,
                               Weights weights);

  bool isOf(llvm::ArrayRef<const std::vector<PipelineOption> *> otherSets,
            llvm::ArrayRef<uint32_t> otherNumbers) const;

private:
  struct Slots {
    StageClassLayers layers;
    std::map<std::pair<int64_t, int64_t>, Curve> curves; ///< by weights
    /// The keys are memory and weights.
    std::map<std::tuple<int64_t, int64_t, int64_t>, StageClassCurve>
        stageClasses;
  };
  Slots &slotsOf(int64_t inFlight);

  std::vector<std::vector<PipelineOption>> sets;
  std::vector<uint32_t> numberOf; ///< by layer
  std::map<int64_t, Slots> byInFlight;
  std::shared_ptr<size_t> made;
};

/// Places by the costs of their layers.
class StageClassCache {
public:
  /// `sets`: options of the distinct layers in the order in which they come
  /// first; `numberOf`: by layer, which of them.
  std::shared_ptr<StageClassPlace>
  placeOf(llvm::ArrayRef<const std::vector<PipelineOption> *> sets,
          llvm::ArrayRef<uint32_t> numberOf);

private:
  std::unordered_multimap<size_t, std::shared_ptr<StageClassPlace>> places;
  /// About the bytes of all places together. Places that were dropped but are
  /// still used count in an older number.
  std::shared_ptr<size_t> made = std::make_shared<size_t>(0);
};

} // namespace galvatron::search

#endif // GALVATRON_LIB_SEARCH_STAGECLASSCACHE_H
