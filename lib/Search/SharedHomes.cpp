//===- SharedHomes.cpp - Chunks that share homes --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/SharedHomes.h"

#include "galvatron/Search/WholeLayers.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

using namespace llvm;

namespace galvatron {

Error HomesProblem::check() const {
  size_t count = layerCount(), cuts = chunks.empty() ? 0 : chunks.size() - 1;
  if (chunks.empty() || count < chunks.size())
    return makeError("shared homes: expected at least one layer for each of " +
                     Twine(chunks.size()) + " chunks, found " + Twine(count));
  if (rows.empty())
    return makeError("shared homes: expected a row");
  for (const std::vector<size_t> &sets : layers)
    if (sets.size() != count || any_of(sets, [&](size_t set) {
          return set >= optionSets.size() || optionSets[set].empty();
        }))
      return makeError("shared homes: expected options for every layer of "
                       "every place");
  for (const HomesChunk &chunk : chunks)
    if (chunk.home >= memory.size() || chunk.place >= layers.size() ||
        chunk.slots < 0)
      return makeError("shared homes: a chunk has no home or no place");
  for (const HomesRow &row : rows)
    if (row.forward.size() != chunks.size() ||
        row.backward.size() != chunks.size() ||
        row.end.size() != chunks.size() || row.sums.size() != chunks.size() ||
        (!row.input.empty() && row.input.size() != chunks.size()) ||
        row.out.size() != cuts || row.back.size() != cuts)
      return makeError("shared homes: expected numbers for every chunk and cut "
                       "in a row");
  if (out.size() != cuts || back.size() != cuts ||
      any_of(out, [&](const auto &list) { return list.size() != count; }) ||
      any_of(back, [&](const auto &list) { return list.size() != count; }))
    return makeError("shared homes: expected a time for every cut and layer");
  if (any_of(memory, [](int64_t bytes) { return bytes <= 0; }))
    return makeError("shared homes: expected memory above 0 in every home");
  if (!partition.empty() && partition.size() != chunks.size())
    return makeError("shared homes: expected layers of " +
                     Twine(chunks.size()) + " chunks, found " +
                     Twine(partition.size()));
  int64_t sum = 0;
  for (int64_t size : partition)
    sum += size > 0 ? size : -static_cast<int64_t>(count);
  if (!partition.empty() && sum != static_cast<int64_t>(count))
    return makeError("shared homes: expected chunks with all " + Twine(count) +
                     " layers and at least one each");
  if (any_of(optionSets, [](const std::vector<HomesOption> &set) {
        return any_of(set, [](const HomesOption &option) {
          return std::min({option.forward, option.backward, option.input,
                           option.sums, option.end, option.otherForward,
                           option.otherBackward}) < 0 ||
                 option.state < 0 || option.kept < 0;
        });
      }))
    return makeError("shared homes: expected times and bytes of at least 0");
  return Error::success();
}

namespace {

/// T of a solution, and M by chunk, as if that had the largest slot of its
/// home.
struct Sums {
  std::vector<double> rows, bytes;
};

/// The number of times that a byte that the chunk keeps counts in all slots of
/// its home.
double slotsOf(const HomesProblem &problem, size_t chunk) {
  int64_t slots = 0;
  for (const HomesChunk &other : problem.chunks)
    if (other.home == problem.chunks[chunk].home)
      slots += other.slots;
  return static_cast<double>(slots);
}

double memoryOf(const HomesProblem &problem, size_t chunk) {
  return static_cast<double>(problem.memory[problem.chunks[chunk].home]);
}

Sums sumsOf(const HomesProblem &problem, ArrayRef<int64_t> partition,
            ArrayRef<uint32_t> choice) {
  Sums sums;
  sums.rows.resize(problem.rows.size());
  std::vector<double> states(problem.memory.size());
  size_t layer = 0;
  for (auto [c, size] : enumerate(partition)) {
    const HomesChunk &chunk = problem.chunks[c];
    HomesOption all;
    double kept = 0;
    for (int64_t i = 0; i < size; ++i, ++layer) {
      const HomesOption &option =
          problem.optionSets[problem.layers[chunk.place][layer]][choice[layer]];
      all.forward += option.forward;
      all.backward += option.backward;
      all.input += option.input;
      all.otherForward += option.otherForward;
      all.otherBackward += option.otherBackward;
      all.sums += option.sums;
      all.end += option.end;
      states[chunk.home] += static_cast<double>(option.state);
      kept += static_cast<double>(option.kept);
    }
    sums.bytes.push_back(slotsOf(problem, c) * kept);
    for (auto [row, sum] : zip_equal(problem.rows, sums.rows)) {
      sum += row.seconds(c, all);
      if (c + 1 < problem.chunks.size())
        sum += row.out[c] * problem.out[c][layer - 1] +
               row.back[c] * problem.back[c][layer - 1];
    }
  }
  for (auto [bytes, chunk] : zip_equal(sums.bytes, problem.chunks))
    bytes += states[chunk.home];
  return sums;
}

HomesSolution toSolution(const HomesProblem &problem, const Sums &sums,
                         std::vector<int64_t> partition,
                         std::vector<uint32_t> choice) {
  HomesSolution solution{std::move(partition), std::move(choice)};
  solution.longest = *llvm::max_element(sums.rows);
  solution.fullness = 0;
  for (auto [chunk, bytes] : enumerate(sums.bytes))
    solution.fullness =
        std::max(solution.fullness, bytes / memoryOf(problem, chunk));
  return solution;
}

/// The nearest point with numbers of at least 0 and the sum 1.
void projectToSimplex(std::vector<double> &weights) {
  std::vector<double> sorted = weights;
  llvm::sort(sorted, std::greater<>());
  double sum = 0, shift = 0;
  for (auto [i, weight] : enumerate(sorted)) {
    sum += weight;
    double next = (sum - 1) / static_cast<double>(i + 1);
    if (weight <= next)
      break;
    shift = next;
  }
  double rest = 0;
  for (double &weight : weights)
    rest += weight = std::max(0.0, weight - shift);
  // Large numbers are rounded: a sum that is not 1 would scale every bound.
  for (double &weight : weights)
    weight /= rest;
}

/// A factor of bounds that makes up for the rounding of doubles.
constexpr double kHomesRounding = 1 - 1e-9;
/// The part of all that is added up, prices among it, that is taken off for it.
constexpr double kPriceRounding = 1e-13;

/// The first and the last layer that a chunk may end with, for all but the last
/// one.
using CutWindows = std::vector<std::pair<size_t, size_t>>;

/// The least of a problem under weights of rows and prices of memory, by chunk
/// whose slot may be the largest of its home.
class PricedChain {
public:
  /// Chunks that alone make a row longer than `limit` or fill more than their
  /// home are left out: no solution that fits and takes less has one.
  PricedChain(const HomesProblem &problem, double limit)
      : problem(problem), chunks(problem.chunks.size()),
        layers(problem.layerCount()) {
    for (size_t c = 0; c < chunks && problem.partition.empty(); ++c)
      addEarliest(c, limit);
    before.resize(chunks, std::vector<double>(layers + 1));
    chosen.resize(chunks, std::vector<uint32_t>(problem.optionSets.size()));
    own.resize(chunks, std::vector<double>(problem.optionSets.size()));
    least.resize(chunks, std::vector<double>(layers));
    begins.resize(chunks, std::vector<size_t>(layers));
  }

  /// The least sum of what has every cut in its window; `prices` are seconds
  /// for all of a home's memory, by chunk, and are not taken off.
  double solve(ArrayRef<double> weights, ArrayRef<double> prices,
               const CutWindows &windows) {
    for (size_t c = 0; c < chunks; ++c)
      priceOptions(c, weights, prices);
    weighCuts(weights);
    if (!problem.partition.empty())
      return givenCost();
    constexpr double none = std::numeric_limits<double>::infinity();
    std::vector<double> begin(layers);
    for (size_t c = 0; c < chunks; ++c) {
      // The least before the chunk if it begins with a layer.
      for (size_t l = 0; l < layers; ++l) {
        begin[l] = none;
        if (c == 0 && l == 0)
          begin[l] = 0;
        else if (c > 0 && l > 0 && least[c - 1][l - 1] < none)
          begin[l] = least[c - 1][l - 1] + cutCost(c - 1, l - 1) - before[c][l];
      }
      // The layers that the chunk may begin with are a range that only moves
      // on. `window` holds those of it that no later one costs less than.
      std::deque<size_t> window;
      for (size_t l = 0; l < layers; ++l) {
        while (!window.empty() && begin[l] < begin[window.back()])
          window.pop_back();
        window.push_back(l);
        while (!window.empty() && window.front() < earliest[c][l])
          window.pop_front();
        bool can = !window.empty() && begin[window.front()] < none &&
                   (c + 1 == chunks ||
                    (windows[c].first <= l && l <= windows[c].second));
        least[c][l] = can ? begin[window.front()] + before[c][l + 1] : none;
        begins[c][l] = can ? window.front() : l;
      }
    }
    return least[chunks - 1][layers - 1];
  }

  /// The largest sum that was added up.
  double magnitude() const {
    double most = 0;
    for (const std::vector<double> &sums : before)
      most = std::max(most, sums.back());
    return most;
  }
  std::vector<int64_t> partition() const {
    if (!problem.partition.empty())
      return problem.partition;
    std::vector<int64_t> sizes(chunks);
    for (size_t c = chunks, end = layers; c-- > 0;) {
      size_t first = begins[c][end - 1];
      sizes[c] = static_cast<int64_t>(end - first);
      end = first;
    }
    return sizes;
  }
  std::vector<uint32_t> choice(ArrayRef<int64_t> sizes) const {
    std::vector<uint32_t> list;
    for (auto [c, size] : enumerate(sizes))
      for (int64_t i = 0; i < size; ++i)
        list.push_back(
            chosen[c][problem.layers[problem.chunks[c].place][list.size()]]);
    return list;
  }

private:
  /// The first layer that a chunk can begin with, by its last one; behind the
  /// last if it cannot have that one.
  void addEarliest(size_t c, double limit) {
    const HomesChunk &chunk = problem.chunks[c];
    const std::vector<size_t> &sets = problem.layers[chunk.place];
    std::vector<size_t> first(layers, 0);
    auto restrict = [&](double most, auto costOf) {
      std::vector<double> each(problem.optionSets.size(), -1);
      double sum = 0;
      for (size_t l = 0, begin = 0; l < layers; ++l) {
        double &cost = each[sets[l]];
        if (cost < 0) {
          cost = std::numeric_limits<double>::infinity();
          for (const HomesOption &option : problem.optionSets[sets[l]])
            cost = std::min(cost, costOf(option));
        }
        sum += cost;
        while (begin <= l && sum * kHomesRounding > most)
          sum -= each[sets[begin++]];
        first[l] = std::max(first[l], begin);
      }
    };
    for (const HomesRow &row : problem.rows)
      if (!row.takesOff())
        restrict(limit, [&](const HomesOption &option) {
          return row.seconds(c, option);
        });
    restrict(static_cast<double>(problem.memory[chunk.home]),
             [&](const HomesOption &option) {
               return static_cast<double>(option.state) +
                      slotsOf(problem, c) * static_cast<double>(option.kept);
             });
    earliest.push_back(std::move(first));
  }
  void priceOptions(size_t c, ArrayRef<double> weights,
                    ArrayRef<double> prices) {
    const HomesChunk &chunk = problem.chunks[c];
    // By the kind of the row.
    double forward[2] = {0, 0}, backward[2] = {0, 0};
    double input = 0, sums = 0, end = 0;
    for (auto [row, weight] : zip_equal(problem.rows, weights)) {
      forward[row.isOther] += weight * row.forward[c];
      backward[row.isOther] += weight * row.backward[c];
      input += weight * row.inputOf(c);
      sums += weight * row.sums[c];
      end += weight * row.end[c];
    }
    double ofState = 0, ofKept = prices[c] * slotsOf(problem, c);
    for (auto [other, price] : zip_equal(problem.chunks, prices))
      ofState += other.home == chunk.home ? price : 0;
    ofState /= memoryOf(problem, c);
    ofKept /= memoryOf(problem, c);
    std::vector<bool> priced(problem.optionSets.size());
    const std::vector<size_t> &sets = problem.layers[chunk.place];
    for (size_t l = 0; l < layers; ++l) {
      size_t set = sets[l];
      if (!priced[set]) {
        priced[set] = true;
        own[c][set] = std::numeric_limits<double>::infinity();
        for (auto [number, option] : enumerate(problem.optionSets[set])) {
          double cost =
              forward[0] * option.forward + forward[1] * option.otherForward +
              backward[0] * option.backward +
              backward[1] * option.otherBackward + input * option.input +
              sums * option.sums + end * option.end +
              ofState * static_cast<double>(option.state) +
              ofKept * static_cast<double>(option.kept);
          if (cost >= own[c][set])
            continue;
          own[c][set] = cost;
          chosen[c][set] = static_cast<uint32_t>(number);
        }
      }
      before[c][l + 1] = before[c][l] + own[c][set];
    }
  }
  void weighCuts(ArrayRef<double> weights) {
    out.assign(chunks, 0);
    back.assign(chunks, 0);
    for (auto [row, weight] : zip_equal(problem.rows, weights))
      for (size_t cut = 0; weight > 0 && cut + 1 < chunks; ++cut) {
        out[cut] += weight * row.out[cut];
        back[cut] += weight * row.back[cut];
      }
  }
  double cutCost(size_t cut, size_t layer) const {
    return out[cut] * problem.out[cut][layer] +
           back[cut] * problem.back[cut][layer];
  }
  double givenCost() const {
    double cost = 0;
    size_t first = 0;
    for (size_t c = 0; c < chunks; ++c) {
      size_t end = first + static_cast<size_t>(problem.partition[c]);
      cost += before[c][end] - before[c][first];
      if (c + 1 < chunks)
        cost += cutCost(c, end - 1);
      first = end;
    }
    return cost;
  }

  const HomesProblem &problem;
  size_t chunks, layers;
  std::vector<double> out, back;           ///< by cut: weights of its messages
  std::vector<std::vector<double>> before; ///< [chunk][layer]: sums of costs
  std::vector<std::vector<uint32_t>> chosen; ///< [chunk][option set]
  std::vector<std::vector<double>> own;      ///< their costs
  std::vector<std::vector<double>> least;    ///< [chunk][its last layer]
  std::vector<std::vector<size_t>> begins;   ///< [chunk][its last layer]
  std::vector<std::vector<size_t>> earliest; ///< [chunk][its last layer]
};

/// Solutions that are kept: of those that fit, and of others.
constexpr size_t kMostKept = 3;
/// Rounds without a better bound after which steps become shorter.
constexpr unsigned kPatience = 5;
/// The part of a new subgradient in the mean of them.
constexpr double kMeanPart = 0.05;
/// Rounds of a node that was branched to.
constexpr unsigned kRoundsOfNode = 40;
/// A cut whose layer varies by less than the root of this is settled.
constexpr double kLeastSpread = 1e-6;

/// The subgradient of weights whose sum stays 1, without those that would fall
/// below 0: the rows less the mean of all that take part.
std::vector<double> ascentsOf(ArrayRef<double> rows, ArrayRef<double> weights) {
  std::vector<char> part(rows.size(), 1);
  double mean = 0;
  for (bool changed = true; changed;) {
    double sum = 0, count = 0;
    for (auto [row, takes] : zip_equal(rows, part)) {
      sum += takes ? row : 0;
      count += takes;
    }
    mean = sum / count;
    changed = false;
    for (auto [row, weight, takes] : zip_equal(rows, weights, part))
      if (takes && weight == 0 && row < mean) {
        takes = 0;
        changed = true;
      }
  }
  std::vector<double> ascents;
  for (auto [row, takes] : zip_equal(rows, part))
    ascents.push_back(takes ? row - mean : 0);
  return ascents;
}

void keep(std::vector<HomesSolution> &list, HomesSolution solution) {
  auto orderOf = [](const HomesSolution &other) {
    return std::tie(other.longest, other.fullness);
  };
  for (const HomesSolution &other : list)
    if (other.partition == solution.partition &&
        other.choice == solution.choice)
      return;
  list.push_back(std::move(solution));
  llvm::stable_sort(list, [&](const auto &a, const auto &b) {
    return orderOf(a) < orderOf(b);
  });
  if (list.size() > kMostKept)
    list.resize(kMostKept);
}

} // namespace

HomesSolution evaluateHomes(const HomesProblem &problem,
                            std::vector<int64_t> partition,
                            std::vector<uint32_t> choice) {
  Sums sums = sumsOf(problem, partition, choice);
  return toSolution(problem, sums, std::move(partition), std::move(choice));
}

namespace {

/// Weights of rows, and prices of memory by chunk.
struct Multipliers {
  std::vector<double> weights, prices;
};

/// The plans of a problem that have every cut in its window.
struct Node {
  CutWindows windows;
  double least = 0; ///< a bound of them
  /// The best multipliers so far, and the sum by them.
  Multipliers start;
  double most = -std::numeric_limits<double>::infinity();
  /// The mean layer that each chunk but the last ended with, on the way to
  /// them, and the mean square of what is apart from it.
  std::vector<double> ends, spread;
};

/// Goes to the next value by its part in a mean of all.
void mix(std::vector<double> &mean, ArrayRef<double> fresh, double part) {
  mean.resize(fresh.size());
  for (auto [old, each] : zip_equal(mean, fresh))
    old += part * (each - old);
}

} // namespace

/// Improves multipliers of nodes. Steps go from the best ones so far along a
/// mean of the subgradients, the later ones weighing more (the volume
/// algorithm: Barahona and Anbil, "The volume algorithm: producing primal
/// solutions with a subgradient method", Math. Program. 87, 2000).
class HomesSearch::Impl {
public:
  Impl(const HomesProblem &problem, double limit, unsigned rounds);

  bool branch(double known);
  uint64_t rounds() const { return roundsDone; }
  double least() const {
    // Plans that were left out take at least as long as the one given.
    double bound = given;
    for (const Node &node : open)
      bound = std::min(bound, node.least);
    return bound;
  }
  std::vector<HomesSolution> solutions() const {
    std::vector<HomesSolution> all = fitting;
    append_range(all, others);
    return all;
  }

private:
  /// Improves the node's bound in so many rounds, from weights whose sum is 1.
  void ascend(Node &node, Multipliers from, unsigned rounds);
  /// The bound under multipliers, and what its solution sums up to. Nothing if
  /// no solution of the node takes less than the limit that was given.
  std::optional<double> boundBy(const Multipliers &at, Node &node, Sums &sums,
                                std::vector<double> &ends);

  const HomesProblem &problem;
  PricedChain chain;
  const double given;
  /// The least of what was given, of what branch() was, and of the longest row
  /// of the best solution that fits.
  double limit;
  double scale = 0; ///< seconds of a solution
  uint64_t roundsDone = 0;
  std::vector<Node> open;
  std::vector<HomesSolution> fitting, others;
};

HomesSearch::Impl::Impl(const HomesProblem &problem, double limit,
                        unsigned rounds)
    : problem(problem), chain(problem, limit), given(limit), limit(limit) {
  const std::vector<HomesRow> &rows = problem.rows;
  auto isFirst = [](const HomesRow &row) { return !row.isOther; };
  auto firsts = static_cast<double>(llvm::count_if(rows, isFirst));
  auto all = static_cast<double>(rows.size());
  Node root;
  root.windows.assign(problem.chunks.size() - 1, {0, problem.layerCount() - 1});
  root.least = boundByWholeLayers(problem, limit);
  // A start that all rows share loses much where rows of one kind are all that
  // counts, and one of the first kind alone seldom leaves it.
  std::vector<double> none(problem.chunks.size(), 0), ofFirsts;
  for (const HomesRow &row : rows)
    ofFirsts.push_back(isFirst(row) ? 1 / firsts : 0);
  if (firsts > 0)
    ascend(root, {std::move(ofFirsts), none}, rounds);
  if (firsts < all)
    ascend(root, {std::vector<double>(rows.size(), 1 / all), none}, rounds);
  open.push_back(std::move(root));
}

std::optional<double> HomesSearch::Impl::boundBy(const Multipliers &at,
                                                 Node &node, Sums &sums,
                                                 std::vector<double> &ends) {
  double value = chain.solve(at.weights, at.prices, node.windows);
  if (value == std::numeric_limits<double>::infinity())
    return std::nullopt;
  // Prices may be so much larger than what is left that they round it.
  double gross = value + chain.magnitude();
  for (double price : at.prices) {
    value -= price;
    gross += price;
  }
  std::vector<int64_t> sizes = chain.partition();
  std::vector<uint32_t> choice = chain.choice(sizes);
  sums = sumsOf(problem, sizes, choice);
  ends.clear();
  for (double end = -1; int64_t size : ArrayRef(sizes).drop_back())
    ends.push_back(end += static_cast<double>(size));
  HomesSolution solution =
      toSolution(problem, sums, std::move(sizes), std::move(choice));
  if (scale == 0)
    scale = std::max(solution.longest, 1e-12);
  bool fits = solution.fullness <= 1;
  if (fits)
    limit = std::min(limit, solution.longest);
  keep(fits ? fitting : others, std::move(solution));
  node.least =
      std::max(node.least, value * kHomesRounding - kPriceRounding * gross);
  return value;
}

void HomesSearch::Impl::ascend(Node &node, Multipliers from, unsigned rounds) {
  Multipliers best = std::move(from), at = best;
  std::vector<double> meanRows, meanSlopes, meanEnds, spread, ends, apart;
  double step = 1, most = -std::numeric_limits<double>::infinity(), target = 0;
  unsigned waited = 0;
  for (unsigned round = 0; round < rounds && node.least < limit; ++round) {
    ++roundsDone;
    Sums sums;
    std::optional<double> value = boundBy(at, node, sums, ends);
    if (!value) {
      node.least = given;
      return;
    }
    // The unit of a weight is 1, that of a price is `scale` seconds.
    std::vector<double> slopes;
    for (auto [chunk, bytes] : enumerate(sums.bytes))
      slopes.push_back(scale * (bytes / memoryOf(problem, chunk) - 1));
    double part = round == 0 ? 1 : kMeanPart;
    mix(meanRows, sums.rows, part);
    mix(meanSlopes, slopes, part);
    mix(meanEnds, ends, part);
    apart.clear();
    for (auto [end, mean] : zip_equal(ends, meanEnds))
      apart.push_back((end - mean) * (end - mean));
    mix(spread, apart, part);
    if (*value > most) {
      most = *value;
      best = at;
      waited = 0;
      step = std::min(2.0, 1.1 * step);
    } else if (++waited >= kPatience) {
      step *= 0.66;
      waited = 0;
    }
    target = std::max({target, 1.1 * most, 0.1 * scale});
    std::vector<double> ascents = ascentsOf(meanRows, best.weights);
    double squares = 0;
    for (double ascent : ascents)
      squares += ascent * ascent;
    for (auto [slope, price] : zip_equal(meanSlopes, best.prices))
      if (slope > 0 || price > 0)
        squares += slope * slope;
    if (squares <= 0)
      break;
    double length = step * (target - most) / squares;
    at = best;
    for (auto [weight, ascent] : zip_equal(at.weights, ascents))
      weight += length * ascent;
    projectToSimplex(at.weights);
    for (auto [price, slope] : zip_equal(at.prices, meanSlopes))
      price = std::max(0.0, price + length * slope * scale);
  }
  if (most <= node.most)
    return;
  node.most = most;
  node.start = std::move(best);
  node.ends = std::move(meanEnds);
  node.spread = std::move(spread);
}

bool HomesSearch::Impl::branch(double known) {
  limit = std::min(limit, known);
  auto node = std::ranges::min_element(open, {}, &Node::least);
  if (node == open.end() || node->least >= limit || !problem.partition.empty())
    return false;
  // The cut that the bound mixes most.
  std::optional<size_t> cut;
  for (size_t c = 0; c < node->spread.size(); ++c)
    if (node->windows[c].first < node->windows[c].second &&
        node->spread[c] > kLeastSpread &&
        (!cut || node->spread[c] > node->spread[*cut]))
      cut = c;
  if (!cut)
    return false;
  auto [first, last] = node->windows[*cut];
  auto middle = std::clamp(static_cast<size_t>(std::max(0.0, node->ends[*cut])),
                           first, last - 1);
  Node parent = std::move(*node);
  open.erase(node);
  for (std::pair<size_t, size_t> window :
       {std::pair{first, middle}, {middle + 1, last}}) {
    Node child = parent;
    child.windows[*cut] = window;
    child.most = -std::numeric_limits<double>::infinity();
    ascend(child, parent.start, kRoundsOfNode);
    open.push_back(std::move(child));
  }
  return true;
}

HomesSearch::HomesSearch(const HomesProblem &problem, double limit,
                         unsigned rounds)
    : impl(std::make_unique<Impl>(problem, limit, rounds)) {}
HomesSearch::HomesSearch(HomesSearch &&) noexcept = default;
HomesSearch &HomesSearch::operator=(HomesSearch &&) noexcept = default;
HomesSearch::~HomesSearch() = default;
double HomesSearch::least() const { return impl->least(); }
std::vector<HomesSolution> HomesSearch::solutions() const {
  return impl->solutions();
}
bool HomesSearch::branch(double limit) { return impl->branch(limit); }
uint64_t HomesSearch::rounds() const { return impl->rounds(); }

} // namespace galvatron
