//===- PlacedPartition.cpp - Stages, their layers and devices -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/PlacedPartition.h"

#include "BoundedPipelines.h"

#include "llvm/ADT/STLExtras.h"

#include <map>

using namespace llvm;

namespace galvatron {

Error PlacedPartitionProblem::check() const {
  auto refuse = [](const Twine &what) {
    return makeError("placed-partition: " + what);
  };
  if (stages < 1 || microBatches < 1 || layers < 1)
    return refuse("expected at least 1 stage, micro-batch and layer");
  if (groups.empty() || times.size() != groups.size() ||
      ends.size() != groups.size() || cuts.size() != groups.size())
    return refuse("expected times, ends and cuts of every group");
  Picoseconds limit = (int64_t(1) << 60) / microBatches / layers;
  auto wrong = [&](const std::vector<Picoseconds> &costs, int64_t count) {
    return static_cast<int64_t>(costs.size()) != count ||
           any_of(costs,
                  [&](Picoseconds cost) { return cost < 0 || cost > limit; });
  };
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].size() != pools.size() ||
        any_of(groups[g], [](int64_t count) { return count < 0; }) ||
        all_of(groups[g], [](int64_t count) { return count == 0; }))
      return refuse("expected devices of every pool in group " + Twine(g));
    if (wrong(times[g], layers) || wrong(ends[g], layers) ||
        cuts[g].size() != groups.size() ||
        any_of(cuts[g],
               [&](const auto &row) { return wrong(row, layers - 1); }))
      return refuse("a cost of group " + Twine(g) +
                    " is missing, negative or too large");
  }
  if (!mostLayers.empty() &&
      (static_cast<int64_t>(mostLayers.size()) != stages ||
       any_of(mostLayers, [&](const auto &byGroup) {
         return byGroup.size() != groups.size() ||
                any_of(byGroup, [&](const auto &limits) {
                  return static_cast<int64_t>(limits.size()) != layers;
                });
       })))
    return refuse("expected a limit for every stage, group and first layer");
  return Error::success();
}

namespace {

/// What may be left of the pools in front of a stage.
struct Left {
  std::vector<int64_t> pools;
  /// By group: index among what may be left behind it; -1: it does not fit, or
  /// the rest cannot be used up.
  std::vector<int64_t> next;
};

/// By stage, and behind the last one the empty pools. Less of it once there are
/// more than `most` in all.
std::vector<std::vector<Left>> ways(const PlacedPartitionProblem &problem,
                                    size_t most = SIZE_MAX) {
  size_t count = 1;
  std::vector<std::vector<Left>> lefts(problem.stages + 1);
  lefts[0].push_back({problem.pools, {}});
  for (int64_t s = 0; s < problem.stages; ++s) {
    std::map<std::vector<int64_t>, int64_t> known;
    for (Left &left : lefts[s])
      for (const std::vector<int64_t> &group : problem.groups) {
        std::vector<int64_t> pools = left.pools;
        bool fits = true;
        for (size_t p = 0; p < pools.size(); ++p)
          fits &= (pools[p] -= group[p]) >= 0;
        bool last = s + 1 == problem.stages;
        if (!fits || (last && any_of(pools, [](int64_t n) { return n > 0; }))) {
          left.next.push_back(-1);
          continue;
        }
        auto [it, fresh] =
            known.try_emplace(pools, static_cast<int64_t>(lefts[s + 1].size()));
        if (fresh) {
          lefts[s + 1].push_back({std::move(pools), {}});
          if (++count > most)
            return lefts;
        }
        left.next.push_back(it->second);
      }
  }
  return lefts;
}

/// See BoundedPipelines.h. Stages are joined from the last to the first.
class BoundedPlacements {
public:
  struct Solution {
    std::vector<size_t> groups;
    std::vector<int64_t> layersPerStage;
  };

  explicit BoundedPlacements(const PlacedPartitionProblem &problem)
      : problem(problem), groups(problem.groups.size()), layers(problem.layers),
        lefts(ways(problem)) {
    auto sums = [&](const std::vector<std::vector<Picoseconds>> &costs) {
      std::vector<std::vector<Picoseconds>> result;
      for (const std::vector<Picoseconds> &row : costs) {
        result.push_back({0});
        for (Picoseconds cost : row)
          result.back().push_back(result.back().back() + cost);
      }
      return result;
    };
    times = sums(problem.times);
    ends = sums(problem.ends);
    for (const std::vector<Left> &stage : lefts) {
      least.emplace_back(stage.size() * groups * (layers + 1), kNoBound);
      chosen.emplace_back(least.back().size(), Choice());
    }
  }

  void boundEnds(Picoseconds bound) { mostEnd = bound; }
  Picoseconds leastRest(Picoseconds bound) {
    return fill(bound, /*largestOnly=*/false);
  }
  Picoseconds leastLargest() { return fill(kNoBound, /*largestOnly=*/true); }

  Solution solution() const {
    Solution found;
    walk([&](int64_t, size_t group, int64_t begin, int64_t end) {
      found.groups.push_back(group);
      found.layersPerStage.push_back(end - begin);
    });
    return found;
  }
  Picoseconds largest() const {
    Picoseconds most = 0;
    walk([&](int64_t, size_t group, int64_t begin, int64_t end) {
      most = std::max(most, times[group][end] - times[group][begin]);
    });
    return most;
  }
  Picoseconds largestEnd() const {
    Picoseconds most = 0;
    walk([&](int64_t, size_t group, int64_t begin, int64_t end) {
      most = std::max(most, ends[group][end] - ends[group][begin]);
    });
    return most;
  }

private:
  /// Of a stage with a group and a first layer: where it ends, and the group of
  /// the next one.
  struct Choice {
    int32_t end = 0, nextGroup = 0;
  };

  size_t at(int64_t left, size_t group, int64_t begin) const {
    return (left * groups + group) * (layers + 1) + begin;
  }

  template <typename Visit> void walk(Visit visit) const {
    int64_t left = 0, begin = 0;
    auto group = static_cast<size_t>(firstGroup);
    for (int64_t s = 0; s < problem.stages; ++s) {
      Choice choice = chosen[s][at(left, group, begin)];
      visit(s, group, begin, choice.end);
      left = lefts[s][left].next[group];
      begin = choice.end;
      group = choice.nextGroup;
    }
  }

  /// The best that follows a stage of `group` which ends before layer `end`.
  std::pair<Picoseconds, int32_t> after(int64_t stage, int64_t next,
                                        size_t group, int64_t end,
                                        bool largestOnly) const {
    std::pair<Picoseconds, int32_t> best = {kNoBound, 0};
    for (size_t g = 0; g < groups; ++g) {
      Picoseconds value = least[stage + 1][at(next, g, end)];
      if (value >= kNoBound)
        continue;
      if (!largestOnly)
        value += problem.cuts[group][g][end - 1];
      if (value < best.first)
        best = {value, static_cast<int32_t>(g)};
    }
    return best;
  }

  Picoseconds fill(Picoseconds bound, bool largestOnly) {
    for (int64_t s = problem.stages - 1; s >= 0; --s) {
      if (problem.cancellation && problem.cancellation->requested())
        return kNoBound;
      std::fill(least[s].begin(), least[s].end(), kNoBound);
      for (size_t left = 0; left < lefts[s].size(); ++left)
        for (size_t g = 0; g < groups; ++g)
          if (lefts[s][left].next[g] >= 0)
            fillStage(s, static_cast<int64_t>(left), g, bound, largestOnly);
    }
    Picoseconds best = kNoBound;
    for (size_t g = 0; g < groups; ++g)
      if (Picoseconds value = least[0][at(0, g, 0)]; value < best) {
        best = value;
        firstGroup = static_cast<int64_t>(g);
      }
    return best;
  }

  void fillStage(int64_t s, int64_t left, size_t g, Picoseconds bound,
                 bool largestOnly) {
    bool last = s + 1 == problem.stages;
    int64_t furthest = layers - (problem.stages - 1 - s);
    int64_t next = lefts[s][left].next[g];
    tails.assign(layers + 1, {kNoBound, 0});
    if (last)
      tails[layers] = {0, 0};
    else
      for (int64_t end = s + 1; end <= furthest; ++end)
        tails[end] = after(s, next, g, end, largestOnly);
    for (int64_t begin = s; begin < furthest; ++begin) {
      int64_t most =
          problem.mostLayers.empty() ? layers : problem.mostLayers[s][g][begin];
      size_t here = at(left, g, begin);
      for (int64_t end = begin + 1; end <= furthest && end - begin <= most;
           ++end) {
        Picoseconds own = times[g][end] - times[g][begin];
        if (own > bound || ends[g][end] - ends[g][begin] > mostEnd)
          break;
        auto [tail, nextGroup] = tails[end];
        if (tail >= kNoBound)
          continue;
        Picoseconds value = largestOnly ? std::max(own, tail) : own + tail;
        if (value < least[s][here]) {
          least[s][here] = value;
          chosen[s][here] = {static_cast<int32_t>(end), nextGroup};
        }
      }
    }
  }

  const PlacedPartitionProblem &problem;
  size_t groups;
  int64_t layers;
  std::vector<std::vector<Left>> lefts;
  std::vector<std::vector<Picoseconds>> times, ends; ///< first i layers
  Picoseconds mostEnd = kNoBound;
  std::vector<std::vector<Picoseconds>> least; ///< by stage, see at()
  std::vector<std::vector<Choice>> chosen;
  std::vector<std::pair<Picoseconds, int32_t>> tails;
  int64_t firstGroup = 0;
};

} // namespace

int64_t placedPartitionSize(const PlacedPartitionProblem &problem,
                            int64_t limit) {
  int64_t each =
      static_cast<int64_t>(problem.groups.size()) * (problem.layers + 1);
  int64_t count = 0;
  for (const std::vector<Left> &stage :
       ways(problem, static_cast<size_t>(limit / each)))
    count += static_cast<int64_t>(stage.size());
  return std::min(each * count, limit);
}

std::optional<PlacedPartitionSolution>
solvePlacedPartition(const PlacedPartitionProblem &problem) {
  if (problem.layers < problem.stages)
    return std::nullopt;
  BoundedPlacements placements(problem);
  auto found = solveByBounds(placements, problem.microBatches);
  if (!found)
    return std::nullopt;
  return PlacedPartitionSolution{found->first, std::move(found->second.groups),
                                 std::move(found->second.layersPerStage)};
}

} // namespace galvatron
