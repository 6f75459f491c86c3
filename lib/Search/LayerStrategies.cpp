//===- LayerStrategies.cpp - One option per layer, exactly ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/LayerStrategies.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

using namespace llvm;

namespace galvatron {

Error LayerStrategiesProblem::check() const {
  if (layers.empty())
    return makeError("layer-strategies: expected at least one layer");
  if (inFlight < 1)
    return makeError("layer-strategies: expected at least 1 micro-batch in "
                     "flight, found " +
                     Twine(inFlight));
  if (memory < 0)
    return makeError("layer-strategies: expected a memory of at least 0");
  if (transformAfter.size() + 1 != layers.size())
    return makeError("layer-strategies: expected " + Twine(layers.size() - 1) +
                     " transforms, found " + Twine(transformAfter.size()));
  // Sums stay below 2^62, also after doubling.
  constexpr int64_t limit = int64_t(1) << 60;
  auto count = static_cast<int64_t>(layers.size());
  int64_t perLayer = limit / count;
  for (const std::vector<LayerOption> &set : optionSets) {
    if (set.empty())
      return makeError("layer-strategies: a layer has no options");
    for (const LayerOption &option : set) {
      if (option.layoutClass >= classes)
        return makeError("layer-strategies: an option's class is out of range");
      for (int64_t value : {option.time, option.timeNosync, option.kept,
                            option.transient, option.state}) {
        if (value < 0)
          return makeError("layer-strategies: expected times and bytes of at "
                           "least 0, found " +
                           Twine(value));
        if (value > perLayer)
          return makeError("layer-strategies: times or bytes are too large to "
                           "be summed");
      }
      if (option.kept > perLayer / inFlight)
        return makeError("layer-strategies: bytes are too large to be summed");
    }
  }
  for (size_t set : layers)
    if (set >= optionSets.size())
      return makeError("layer-strategies: a layer's option set does not exist");
  for (const std::vector<Picoseconds> &matrix : transforms) {
    if (matrix.size() != classes * classes)
      return makeError("layer-strategies: expected a transform matrix of " +
                       Twine(classes) + " x " + Twine(classes));
    for (Picoseconds value : matrix)
      if (value < 0 || value > perLayer)
        return makeError("layer-strategies: a transform is negative or too "
                         "large");
  }
  for (size_t matrix : transformAfter)
    if (matrix >= transforms.size())
      return makeError("layer-strategies: a transform matrix does not exist");
  return Error::success();
}

LayerStrategiesSolution evaluateChoice(const LayerStrategiesProblem &problem,
                                       std::vector<uint32_t> choice) {
  LayerStrategiesSolution solution;
  int64_t keptSum = 0, stateSum = 0, highest = 0;
  const LayerOption *previous = nullptr;
  for (size_t l = 0; l < problem.layers.size(); ++l) {
    const LayerOption &option =
        problem.optionSets[problem.layers[l]][choice[l]];
    solution.time += option.time;
    solution.timeNosync += option.timeNosync;
    keptSum += option.kept;
    stateSum += option.state;
    highest = std::max(highest, keptSum + option.transient);
    if (previous) {
      Picoseconds transform =
          problem.transforms[problem.transformAfter[l - 1]]
                            [previous->layoutClass * problem.classes +
                             option.layoutClass];
      solution.time += transform;
      solution.timeNosync += transform;
    }
    previous = &option;
  }
  solution.peak = (problem.inFlight - 1) * keptSum + highest + stateSum;
  solution.choice = std::move(choice);
  return solution;
}

Error verify(const LayerStrategiesProblem &problem,
             const LayerStrategiesSolution &solution) {
  if (solution.choice.size() != problem.layers.size())
    return makeError("solution: expected " + Twine(problem.layers.size()) +
                     " choices, found " + Twine(solution.choice.size()));
  for (size_t l = 0; l < problem.layers.size(); ++l)
    if (solution.choice[l] >= problem.optionSets[problem.layers[l]].size())
      return makeError("solution: layer " + Twine(l) + " has no option " +
                       Twine(solution.choice[l]));
  LayerStrategiesSolution again = evaluateChoice(problem, solution.choice);
  if (again.time != solution.time || again.timeNosync != solution.timeNosync)
    return makeError("solution: the times do not belong to the choice");
  if (again.peak != solution.peak)
    return makeError("solution: expected a peak of " + Twine(again.peak) +
                     " bytes, found " + Twine(solution.peak));
  if (again.peak > problem.memory)
    return makeError("solution: needs " + Twine(again.peak) +
                     " bytes, available are " + Twine(problem.memory));
  return Error::success();
}

namespace {

/// An option in the form the label step needs: the constraint of k
/// micro-batches in flight is that of one, with (k-1) f counted as state.
struct Option {
  size_t layoutClass;
  int64_t cost;
  int64_t kept, transient, state;
  uint32_t index;

  int64_t bytes() const { return kept + state; }
};

/// Bounds on the cost of layers 0..l-1, given the class of layer l and the
/// bytes left for them: max over multipliers of the Lagrangian dual function,
/// with transforms inside and only the peak's b left out.
class CompletionBound {
public:
  CompletionBound(const LayerStrategiesProblem &problem,
                  const std::vector<std::vector<Option>> &sets,
                  int64_t transformWeight)
      : problem(problem), sets(sets),
        transformWeight(static_cast<double>(transformWeight)) {}

  /// Finds multipliers around the one that maximises the root's bound.
  void prepare(double memory) {
    // The dual function is concave; its slope is (bytes of the minimiser -
    // memory). Grow until the minimiser fits, then halve the bracket.
    double low = 0, high = 0;
    if (bytesAt(0) > memory) {
      high = initialMultiplier();
      int guard = 0;
      while (bytesAt(high) > memory && guard++ < 60) {
        low = high;
        high *= 4;
      }
      for (int i = 0; i < 24 && high - low > 1e-3 * high; ++i) {
        double middle = low == 0 ? high / 16 : std::sqrt(low * high);
        (bytesAt(middle) > memory ? low : high) = middle;
      }
    }
    std::set<double> chosen = {0};
    if (high > 0)
      for (double factor : {0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0})
        chosen.insert(high * factor);
    else
      // The memory does not bind at the root; it may for single labels.
      for (double factor : {0.1, 1.0, 10.0})
        chosen.insert(initialMultiplier() * factor);
    for (double multiplier : chosen)
      addTable(multiplier);
    // The best multiplier first: most labels are decided by it.
    llvm::sort(tables, [&](const Table &a, const Table &b) {
      return std::make_pair(std::fabs(a.multiplier - high), a.multiplier) <
             std::make_pair(std::fabs(b.multiplier - high), b.multiplier);
    });
  }

  /// Bound for layers before `layer`, whose class is `layoutClass`, with
  /// `left` bytes for them.
  double at(size_t layer, size_t layoutClass, double left,
            double enough) const {
    double best = 0;
    for (const Table &table : tables) {
      double bound = table.values[layer * problem.classes + layoutClass] -
                     table.multiplier * left;
      best = std::max(best, bound);
      if (best > enough)
        break;
    }
    return best;
  }

  /// Bound for the whole problem.
  double root(double memory) const {
    double best = 0;
    for (const Table &table : tables)
      best = std::max(best, table.whole - table.multiplier * memory);
    return best;
  }

private:
  struct Table {
    double multiplier;
    double whole;
    std::vector<double> values; ///< [layers][classes]
  };

  double costOf(const Option &option) const {
    return static_cast<double>(option.cost);
  }

  double initialMultiplier() const {
    double cost = 1, bytes = 1;
    for (const std::vector<Option> &set : sets)
      for (const Option &option : set) {
        cost = std::max(cost, costOf(option));
        bytes = std::max(bytes, static_cast<double>(option.bytes()));
      }
    return 0.1 * cost / bytes;
  }

  /// Per set and class: the least cost + multiplier * bytes, with its bytes.
  void reduceSets(double multiplier) {
    size_t classes = problem.classes;
    reduced.assign(sets.size() * classes, {infinity, 0});
    for (size_t s = 0; s < sets.size(); ++s)
      for (const Option &option : sets[s]) {
        double bytes = static_cast<double>(option.bytes());
        double value = costOf(option) + multiplier * bytes;
        auto &slot = reduced[s * classes + option.layoutClass];
        if (std::make_pair(value, bytes) < slot)
          slot = {value, bytes};
      }
  }

  /// Bytes of the (a) minimiser of the relaxed problem.
  double bytesAt(double multiplier) {
    reduceSets(multiplier);
    size_t classes = problem.classes;
    std::vector<std::pair<double, double>> at(classes), next(classes);
    for (size_t c = 0; c < classes; ++c)
      at[c] = reduced[problem.layers[0] * classes + c];
    for (size_t l = 1; l < problem.layers.size(); ++l) {
      const auto &matrix = problem.transforms[problem.transformAfter[l - 1]];
      for (size_t c = 0; c < classes; ++c) {
        const auto &own = reduced[problem.layers[l] * classes + c];
        std::pair<double, double> best = {infinity, 0};
        if (own.first < infinity)
          for (size_t x = 0; x < classes; ++x) {
            double value =
                at[x].first +
                transformWeight * static_cast<double>(matrix[x * classes + c]);
            best = std::min(best, {value, at[x].second});
          }
        next[c] = {best.first + own.first, best.second + own.second};
      }
      std::swap(at, next);
    }
    return std::min_element(at.begin(), at.end())->second;
  }

  void addTable(double multiplier) {
    reduceSets(multiplier);
    size_t classes = problem.classes, count = problem.layers.size();
    Table table;
    table.multiplier = multiplier;
    table.values.assign(count * classes, 0);
    std::vector<double> sum(classes);
    for (size_t l = 0; l < count; ++l) {
      for (size_t x = 0; x < classes; ++x)
        sum[x] = table.values[l * classes + x] +
                 reduced[problem.layers[l] * classes + x].first;
      if (l + 1 == count)
        break;
      const auto &matrix = problem.transforms[problem.transformAfter[l]];
      for (size_t c = 0; c < classes; ++c) {
        double best = infinity;
        for (size_t x = 0; x < classes; ++x)
          best = std::min(
              best, sum[x] + transformWeight *
                                 static_cast<double>(matrix[x * classes + c]));
        table.values[(l + 1) * classes + c] = best;
      }
    }
    table.whole = *std::min_element(sum.begin(), sum.end());
    tables.push_back(std::move(table));
  }

  static constexpr double infinity = std::numeric_limits<double>::infinity();

  const LayerStrategiesProblem &problem;
  const std::vector<std::vector<Option>> &sets;
  double transformWeight;
  std::vector<std::pair<double, double>> reduced;
  std::vector<Table> tables;
};

/// A choice for layers l.., seen from layer l.
struct Label {
  int64_t peak; ///< states + V
  int64_t
      state; ///< raised to peak - (largest b to come) where only that counts
  int64_t cost;
  uint32_t parent; ///< in the labels of the next layer
  uint32_t option; ///< index in the layer's option set
  uint32_t group;  ///< class
  uint32_t rank;   ///< place of the choice in lexicographic order
};

/// Points (peak, state) of which none is at most another in both.
class Staircase {
public:
  bool dominates(int64_t peak, int64_t state) const {
    auto it = points.upper_bound(peak);
    return it != points.begin() && std::prev(it)->second <= state;
  }
  void insert(int64_t peak, int64_t state) {
    auto it = points.lower_bound(peak);
    while (it != points.end() && it->second >= state)
      it = points.erase(it);
    points.emplace_hint(it, peak, state);
  }

private:
  std::map<int64_t, int64_t> points;
};

class LabelSearch {
public:
  LabelSearch(const LayerStrategiesProblem &problem, CostWeights weights,
              SolverFault fault)
      : problem(problem), fault(fault) {
    for (const std::vector<LayerOption> &set : problem.optionSets) {
      std::vector<Option> options;
      for (uint32_t i = 0; i < set.size(); ++i) {
        const LayerOption &from = set[i];
        Option option;
        option.layoutClass = from.layoutClass;
        option.cost =
            weights.time * from.time + weights.nosync * from.timeNosync;
        option.kept = from.kept;
        option.transient = from.transient;
        option.state = from.state + (problem.inFlight - 1) * from.kept;
        option.index = i;
        options.push_back(option);
      }
      sets.push_back(withoutDominated(options));
    }
    transformWeight = weights.time + weights.nosync;

    size_t count = problem.layers.size();
    largestTransientBefore.assign(count + 1, 0);
    leastBytesBefore.assign(count + 1, 0);
    for (size_t l = 0; l < count; ++l) {
      int64_t transient = 0, bytes = std::numeric_limits<int64_t>::max();
      for (const Option &option : sets[problem.layers[l]]) {
        transient = std::max(transient, option.transient);
        bytes = std::min(bytes, option.bytes());
      }
      largestTransientBefore[l + 1] =
          std::max(largestTransientBefore[l], transient);
      leastBytesBefore[l + 1] = leastBytesBefore[l] + bytes;
    }
  }

  /// Prepares the bounds that labels are cut by; returns the whole problem's.
  double prepareBound() {
    bounds.emplace(problem, sets, transformWeight);
    bounds->prepare(static_cast<double>(problem.memory));
    return bounds->root(static_cast<double>(problem.memory));
  }

  void setLimit(Picoseconds value) {
    // Bounds are sums in floating point: leave room for their rounding.
    limit = static_cast<double>(value);
    limit += 2 + 1e-12 * std::fabs(limit);
  }

  bool memoryCanFit() const {
    return leastBytesBefore.back() <= problem.memory;
  }

  /// Runs over all layers. The labels of layer 0 are complete choices.
  const std::vector<Label> &run() {
    size_t count = problem.layers.size();
    labels.assign(count, {});
    for (size_t l = count; l-- > 0;) {
      fresh.clear();
      if (l + 1 == count)
        start(l);
      else
        extend(l);
      reduce(l);
      if (labels[l].empty())
        break;
    }
    return labels[0];
  }

  std::vector<uint32_t> choiceOf(const Label &label) const {
    std::vector<uint32_t> choice = {label.option};
    const Label *at = &label;
    for (size_t l = 1; l < labels.size(); ++l) {
      at = &labels[l][at->parent];
      choice.push_back(at->option);
    }
    return choice;
  }

private:
  /// Drops options that another of the same class beats. A dominated option may
  /// still be first among equals, so it goes only if it costs more or comes
  /// later.
  static std::vector<Option> withoutDominated(ArrayRef<Option> options) {
    std::vector<Option> kept;
    for (const Option &candidate : options) {
      bool dominated = any_of(options, [&](const Option &other) {
        if (other.index == candidate.index ||
            other.layoutClass != candidate.layoutClass ||
            other.cost > candidate.cost || other.kept > candidate.kept ||
            other.transient > candidate.transient ||
            other.state > candidate.state)
          return false;
        return other.cost < candidate.cost || other.index < candidate.index;
      });
      if (!dominated)
        kept.push_back(candidate);
    }
    return kept;
  }

  void start(size_t l) {
    for (const Option &option : sets[problem.layers[l]]) {
      Label label;
      label.state = option.state;
      label.peak = option.state + option.kept + option.transient;
      label.cost = option.cost;
      label.parent = 0;
      label.option = option.index;
      label.group = static_cast<uint32_t>(option.layoutClass);
      label.rank = 0;
      admit(l, option.layoutClass, label);
    }
  }

  void extend(size_t l) {
    const std::vector<Label> &next = labels[l + 1];
    const auto &matrix = problem.transforms[problem.transformAfter[l]];
    size_t classes = problem.classes;
    for (const Option &option : sets[problem.layers[l]]) {
      const Picoseconds *row = &matrix[option.layoutClass * classes];
      for (uint32_t i = 0; i < next.size(); ++i) {
        const Label &from = next[i];
        Picoseconds transform = row[from.group];
        Label label;
        int64_t transient =
            fault == SolverFault::IgnoreBackwardPeak ? 0 : option.transient;
        int64_t later = std::max(transient, from.peak - from.state);
        label.state = from.state + option.state;
        label.peak = label.state + option.kept + later;
        label.cost = from.cost + option.cost + transformWeight * transform;
        label.parent = i;
        label.option = option.index;
        label.group = static_cast<uint32_t>(option.layoutClass);
        label.rank = from.rank;
        admit(l, option.layoutClass, label);
      }
    }
  }

  /// Keeps a label unless it cannot be completed within memory and limits.
  void admit(size_t l, size_t layoutClass, Label &label) {
    if (label.peak + leastBytesBefore[l] > problem.memory)
      return;
    double left = static_cast<double>(problem.memory - label.peak);
    double costLeft = limit - static_cast<double>(label.cost);
    if (fault == SolverFault::CutFrontTooFar)
      costLeft *= 0.5;
    if (costLeft < 0 || bounds->at(l, layoutClass, left, costLeft) > costLeft)
      return;
    label.state = std::max(label.state, label.peak - largestTransientBefore[l]);
    fresh.push_back(label);
  }

  void reduce(size_t l) {
    if (l == 0)
      for (Label &label : fresh) {
        // All that counts of memory now is that it fits.
        label.peak = label.state = 0;
      }
    llvm::sort(fresh, [](const Label &a, const Label &b) {
      return std::tie(a.cost, a.option, a.rank, a.peak, a.state) <
             std::tie(b.cost, b.option, b.rank, b.peak, b.state);
    });
    std::vector<Label> &kept = labels[l];
    bool separate = l > 0 && fault != SolverFault::IgnoreTransformInDominance;
    keepUndominated(l, kept, separate);
    // Ranks of the choices from here on: ties go to the first choice.
    std::vector<uint32_t> order(kept.size());
    for (uint32_t i = 0; i < order.size(); ++i)
      order[i] = i;
    llvm::sort(order, [&](uint32_t a, uint32_t b) {
      return std::tie(kept[a].option, kept[a].rank) <
             std::tie(kept[b].option, kept[b].rank);
    });
    std::vector<uint32_t> ranks(kept.size());
    uint32_t rank = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0 &&
          std::tie(kept[order[i]].option, kept[order[i]].rank) !=
              std::tie(kept[order[i - 1]].option, kept[order[i - 1]].rank))
        ++rank;
      ranks[order[i]] = rank;
    }
    for (size_t i = 0; i < kept.size(); ++i)
      kept[i].rank = ranks[i];
  }

  /// The most that two labels of layer l can differ in what the layer before
  /// pays for the transform to them.
  int64_t transformSpread(size_t l) const {
    if (l == 0)
      return 0;
    const auto &matrix = problem.transforms[problem.transformAfter[l - 1]];
    int64_t spread = 0;
    for (const Option &before : sets[problem.layers[l - 1]]) {
      int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
      for (const Option &own : sets[problem.layers[l]]) {
        int64_t value =
            matrix[before.layoutClass * problem.classes + own.layoutClass];
        least = std::min(least, value);
        most = std::max(most, value);
      }
      spread = std::max(spread, most - least);
    }
    return spread * transformWeight;
  }

  void keepUndominated(size_t l, std::vector<Label> &kept,
                       bool separateClasses) {
    // Sorted by cost, then by choice: whatever came before is no worse. A label
    // of another class is dominated by one that stays cheaper whatever
    // transform comes; strictly cheaper, so that ties keep their order.
    std::map<uint32_t, Staircase> stairs;
    Staircase acrossClasses;
    size_t settled = 0;
    int64_t spread = transformSpread(l);
    for (const Label &label : fresh) {
      while (settled < kept.size() &&
             kept[settled].cost + spread < label.cost) {
        acrossClasses.insert(kept[settled].peak, kept[settled].state);
        ++settled;
      }
      if (acrossClasses.dominates(label.peak, label.state))
        continue;
      Staircase &stair = stairs[separateClasses ? label.group : 0];
      if (stair.dominates(label.peak, label.state))
        continue;
      stair.insert(label.peak, label.state);
      kept.push_back(label);
    }
  }

  const LayerStrategiesProblem &problem;
  SolverFault fault;
  std::vector<std::vector<Option>> sets;
  int64_t transformWeight;
  std::vector<int64_t> largestTransientBefore, leastBytesBefore;
  std::optional<CompletionBound> bounds;
  double limit = 0;
  std::vector<Label> fresh;
  std::vector<std::vector<Label>> labels;
};

} // namespace

std::optional<LayerStrategiesSolution>
solveLayerStrategies(const LayerStrategiesProblem &problem, CostWeights weights,
                     Picoseconds atMost, SolverFault fault) {
  LabelSearch search(problem, weights, fault);
  if (!search.memoryCanFit())
    return std::nullopt;
  double bound = search.prepareBound();
  // The bound is a floating-point sum: leave room for its rounding.
  if (!(bound - 2 - 1e-12 * bound <= static_cast<double>(atMost)) ||
      minimumPeak(problem).peak > problem.memory)
    return std::nullopt;
  // Guess that the optimum is close to the bound. If it is not, nothing is
  // found and the guess is widened; what is found below the guess is optimal.
  double slack = std::max(16.0, 1e-4 * bound);
  while (true) {
    double guess = bound + slack;
    bool final = guess >= static_cast<double>(atMost);
    Picoseconds limit = final ? atMost : static_cast<Picoseconds>(guess);
    search.setLimit(limit);
    const std::vector<Label> &labels = search.run();
    if (!labels.empty() &&
        (labels.front().cost <= limit || fault != SolverFault::None))
      return evaluateChoice(problem, search.choiceOf(labels.front()));
    if (final)
      return std::nullopt;
    slack *= 2;
  }
}

LayerStrategiesSolution minimumPeak(const LayerStrategiesProblem &problem) {
  // Labels without costs and classes; what is left is the least peak.
  struct Point {
    int64_t peak, state;
    uint32_t option, parent;
  };
  size_t count = problem.layers.size();
  std::vector<std::vector<Point>> points(count);
  for (size_t l = count; l-- > 0;) {
    std::vector<Point> fresh;
    const auto &set = problem.optionSets[problem.layers[l]];
    size_t nextCount = l + 1 < count ? points[l + 1].size() : 1;
    for (uint32_t o = 0; o < set.size(); ++o)
      for (uint32_t i = 0; i < nextCount; ++i) {
        int64_t state = set[o].state + (problem.inFlight - 1) * set[o].kept;
        int64_t later = set[o].transient;
        if (l + 1 < count) {
          const Point &from = points[l + 1][i];
          later = std::max(later, from.peak - from.state);
          state += from.state;
        }
        fresh.push_back({state + set[o].kept + later, state, o, i});
      }
    llvm::sort(fresh, [](const Point &a, const Point &b) {
      return std::tie(a.peak, a.state, a.option, a.parent) <
             std::tie(b.peak, b.state, b.option, b.parent);
    });
    for (const Point &point : fresh)
      if (points[l].empty() || point.state < points[l].back().state)
        points[l].push_back(point);
  }
  std::vector<uint32_t> choice;
  uint32_t at = 0;
  for (size_t l = 0; l < count; ++l) {
    choice.push_back(points[l][at].option);
    at = points[l][at].parent;
  }
  return evaluateChoice(problem, std::move(choice));
}

} // namespace galvatron
