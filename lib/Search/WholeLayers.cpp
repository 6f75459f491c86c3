//===- WholeLayers.cpp - Layers that cannot be divided --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/WholeLayers.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

using namespace llvm;

namespace galvatron {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Bytes and seconds of an option.
using Point = std::pair<double, double>;

/// The lower hull of points: the least mean of seconds for a mean of bytes.
class Hull {
public:
  explicit Hull(std::vector<Point> points) {
    llvm::sort(points);
    for (const Point &point : points) {
      // More bytes are of use only if they save time.
      if (!hull.empty() && point.second >= hull.back().second)
        continue;
      while (hull.size() > 1 && isAbove(hull.back(), point))
        hull.pop_back();
      hull.push_back(point);
    }
  }

  double at(double bytes) const {
    if (bytes < hull.front().first)
      return kNever;
    auto next = llvm::find_if(
        hull, [&](const Point &point) { return point.first > bytes; });
    if (next == hull.end())
      return hull.back().second;
    auto before = std::prev(next);
    double part = (bytes - before->first) / (next->first - before->first);
    return before->second + part * (next->second - before->second);
  }

private:
  /// Whether a point is on or above the line from the one before it to `last`.
  bool isAbove(const Point &point, const Point &last) const {
    const Point &before = hull[hull.size() - 2];
    return (point.second - before.second) * (last.first - before.first) >=
           (last.second - before.second) * (point.first - before.first);
  }

  std::vector<Point> hull; ///< bytes ascend, seconds descend
};

/// The limit that a row sets on the layers of a kind on a home.
struct Line {
  Hull hull;
  double apart = 0; ///< seconds of the row's other terms, at least
};

/// The homes of a problem, and how many layers of a kind each may have.
class Homes {
public:
  Homes(const HomesProblem &problem, ArrayRef<size_t> kind)
      : problem(problem), kind(kind), lines(problem.memory.size()) {
    leastOfRows();
    for (size_t home = 0; home < lines.size(); ++home)
      addLines(home);
  }

  /// Whether `count` layers of the kind can be where no row is longer.
  bool holds(int64_t count, double seconds) const {
    for (auto [home, list] : enumerate(lines)) {
      count -= mostOf(home, count, seconds);
      if (count <= 0)
        return true;
    }
    return false;
  }

private:
  double leastOf(const HomesRow &row, size_t c, size_t set) const {
    double least = kNever;
    for (const HomesOption &option : problem.optionSets[set])
      least = std::min(least, row.seconds(c, option));
    return least;
  }
  const std::vector<size_t> &setsOf(size_t c) const {
    return problem.layers[problem.chunks[c].place];
  }

  /// Fills `single` and `cuts`.
  void leastOfRows() {
    size_t chunks = problem.chunks.size();
    // The option sets that a chunk may have a layer of.
    std::vector<std::set<size_t>> setsByChunk;
    for (size_t c = 0; c < chunks; ++c) {
      const std::vector<size_t> &sets = setsOf(c);
      if (c == 0)
        setsByChunk.push_back({sets.front()});
      else if (c + 1 == chunks)
        setsByChunk.push_back({sets.back()});
      else
        setsByChunk.emplace_back(sets.begin(), sets.end());
    }
    for (const HomesRow &row : problem.rows) {
      std::vector<double> &list = single.emplace_back(chunks, kNever);
      double &cut = cuts.emplace_back(0);
      for (size_t c = 0; c < chunks; ++c) {
        for (size_t set : setsByChunk[c])
          list[c] = std::min(list[c], leastOf(row, c, set));
        if (c + 1 == chunks)
          continue;
        double least = kNever;
        for (auto [out, back] : zip_equal(problem.out[c], problem.back[c]))
          least = std::min(least, row.out[c] * out + row.back[c] * back);
        cut += least;
      }
    }
  }

  void addLines(size_t home) {
    size_t chunks = problem.chunks.size();
    std::vector<size_t> own;
    double slots = 0;
    for (auto [c, chunk] : enumerate(problem.chunks))
      if (chunk.home == home) {
        own.push_back(c);
        slots += static_cast<double>(chunk.slots);
      }
    // Options of one place are not those of another.
    if (own.empty() || any_of(own, [&](size_t c) {
          return problem.chunks[c].place != problem.chunks[own.front()].place;
        }))
      return;
    slots /= static_cast<double>(own.size());
    bool hasFirst = own.front() == 0, hasLast = own.back() + 1 == chunks;
    for (auto [number, row] : enumerate(problem.rows)) {
      // Rows of other homes say nothing of this one; of those that take
      // something off, what is left out could.
      if (any_of(own,
                 [&](size_t c) {
                   return row.forward[c] + row.backward[c] <= 0;
                 }) ||
          row.takesOff())
        continue;
      std::vector<Point> points;
      size_t place = problem.chunks[own.front()].place;
      for (const HomesOption &option : problem.optionSets[kind[place]]) {
        double seconds = kNever;
        for (size_t c : own)
          seconds = std::min(seconds, row.seconds(c, option));
        points.push_back({static_cast<double>(option.state) +
                              slots * static_cast<double>(option.kept),
                          seconds});
      }
      Line line{Hull(std::move(points)), cuts[number]};
      for (size_t c = 0; c < chunks; ++c)
        if (!is_contained(own, c))
          line.apart += single[number][c];
      if (hasFirst && !isOfKind(0))
        line.apart += leastOf(row, 0, setsOf(0).front());
      if (hasLast && problem.layerCount() > 1 &&
          !isOfKind(problem.layerCount() - 1))
        line.apart += leastOf(row, chunks - 1, setsOf(chunks - 1).back());
      lines[home].push_back(std::move(line));
    }
  }
  bool isOfKind(size_t layer) const {
    for (auto [place, set] : enumerate(kind))
      if (problem.layers[place][layer] != set)
        return false;
    return true;
  }

  /// N_h, or `most` if that is less.
  int64_t mostOf(size_t home, int64_t most, double seconds) const {
    if (lines[home].empty())
      return most;
    auto memory = static_cast<double>(problem.memory[home]);
    // Sums of doubles are rounded: a little more room keeps it a bound.
    constexpr double kRoom = 1 + 1e-9;
    auto fits = [&](int64_t count) {
      auto layers = static_cast<double>(count);
      return all_of(lines[home], [&](const Line &line) {
        return layers * line.hull.at(memory * kRoom / layers) + line.apart <=
               seconds * kRoom;
      });
    };
    // The more layers, the more they take.
    int64_t low = 0, high = most;
    while (low < high) {
      int64_t middle = (low + high + 1) / 2;
      if (fits(middle))
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }

  const HomesProblem &problem;
  const ArrayRef<size_t> kind;          ///< option set by place
  std::vector<std::vector<Line>> lines; ///< by home
  /// [row][chunk]: the least of a layer that the chunk surely has.
  std::vector<std::vector<double>> single;
  std::vector<double> cuts; ///< by row
};

} // namespace

double boundByWholeLayers(const HomesProblem &problem, double limit) {
  // Layers by their option sets on all places.
  std::map<std::vector<size_t>, int64_t> kinds;
  for (size_t l = 0; l < problem.layerCount(); ++l) {
    std::vector<size_t> kind;
    for (const std::vector<size_t> &sets : problem.layers)
      kind.push_back(sets[l]);
    ++kinds[std::move(kind)];
  }
  double bound = 0;
  for (const auto &[kind, count] : kinds) {
    Homes homes(problem, kind);
    double low = bound, high = limit;
    if (homes.holds(count, low))
      continue;
    if (!std::isfinite(high)) {
      for (high = std::max(low, 1e-6); !homes.holds(count, high); high *= 2)
        if (high > 1e18)
          return limit; // nothing fits
    } else if (!homes.holds(count, high)) {
      return limit;
    }
    // A part in a hundred thousand is left to the bisection.
    while (high - low > 1e-5 * high) {
      double middle = (low + high) / 2;
      (homes.holds(count, middle) ? high : low) = middle;
    }
    bound = low;
  }
  return bound;
}

} // namespace galvatron
