//===- AmpPlacementSearch.cpp - The best placement, with its proof --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Devices of a node are alike, so a stage is told by how many devices of each
// node it has, and by whether all its tensor groups lie inside nodes. Such
// stages get costs that no arrangement of their devices undercuts; the optimum
// under these (Search/PlacedPartition.h) is a bound for all placements. The
// placement that it names, and the one that is best for devices in the order of
// their nodes, are priced as they are. If they meet the bound, it is proven
// that there is no better one (docs/amp.md).
//
//===----------------------------------------------------------------------===//

#include "AmpPlacement.h"

#include "galvatron/Search/PlacedPartition.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace galvatron::planner {

namespace {

/// Kinds of stages; pairs of them have a row of cuts each.
constexpr size_t kMostGroups = 256;
/// Numbers that the solver keeps: a pass over them takes about 0.1 s.
constexpr int64_t kMostNumbers = 1'000'000;
/// Times are rounded transfer by transfer; a bound adds up others.
constexpr double kRounding = 1e-9;

struct Group {
  std::vector<int64_t> counts; ///< devices of each node
  /// Tensor groups lie inside nodes: the order of nodes is then the best one.
  bool inside = true;
};

class PlacementSearch {
public:
  PlacementSearch(AmpCosts &costs, const Cluster &cluster,
                  const AmpProblem &problem, const AmpShape &shape)
      : costs(costs), cluster(cluster), problem(problem), shape(shape),
        nodes(cluster.nodeCount()), first(nodes, -1), size(nodes, 0) {
    for (int64_t device = 0; device < cluster.deviceCount(); ++device) {
      int64_t node = cluster.nodeOf(device);
      if (first[node] < 0)
        first[node] = device;
      ++size[node];
    }
  }

  /// The least that the shape takes wherever it is: the fastest devices and the
  /// best links for all stages, transfers for nothing. Nothing if no device
  /// holds the layers.
  std::optional<Picoseconds> boundAnywhere() {
    PartitionProblem best;
    best.stages = shape.pipelineDegree;
    best.microBatches = shape.microBatches;
    int64_t layers = costs.layerCount();
    best.layers.assign(layers, kNoBound);
    std::vector<Picoseconds> end(layers, kNoBound);
    best.mostLayers.assign(best.stages, std::vector<int64_t>(layers, 0));
    StrategyLinks fastest = anyLinks();
    for (int64_t node = 0; node < nodes; ++node) {
      int64_t device = first[node];
      // Nodes of a group are alike.
      if (node > 0 &&
          cluster.nodeGroupOf(device) == cluster.nodeGroupOf(first[node - 1]))
        continue;
      AmpCosts::StageTimes times = costs.relaxedTimes({device}, fastest);
      for (int64_t l = 0; l < layers; ++l) {
        best.layers[l] = std::min(best.layers[l], times.microBatch[l]);
        end[l] = std::min(end[l], times.end[l]);
      }
      for (int64_t s = 0; s < best.stages; ++s)
        for (auto [most, own] :
             zip_equal(best.mostLayers[s], costs.mostLayers(s, {device})))
          most = std::max(most, own);
    }
    for (int64_t l = 0; l < layers; ++l)
      best.ends.emplace_back(best.stages, end[l]);
    std::optional<PartitionSolution> solution = solvePartition(best);
    if (!solution)
      return std::nullopt;
    return solution->cost;
  }

  /// False if there are too many kinds of stages, or ways to put them together.
  bool build() {
    std::vector<int64_t> counts(nodes, 0);
    if (!addGroups(counts, 0, shape.dataDegree * shape.tensorDegree))
      return false;
    relaxed.stages = shape.pipelineDegree;
    relaxed.microBatches = shape.microBatches;
    relaxed.layers = costs.layerCount();
    relaxed.pools = size;
    relaxed.cancellation = problem.cancellation;
    for (const Group &group : groups)
      relaxed.groups.push_back(group.counts);
    if (placedPartitionSize(relaxed, kMostNumbers + 1) > kMostNumbers)
      return false;
    for (int64_t s = 0; s < relaxed.stages; ++s) {
      relaxed.mostLayers.emplace_back();
      for (const Group &group : groups)
        relaxed.mostLayers.back().push_back(
            costs.mostLayers(s, devicesOf(group)));
    }
    ordered = relaxed;
    for (const Group &group : groups) {
      std::vector<int64_t> devices = devicesOf(group);
      const AmpCosts::StageTimes &own = costs.stageTimes(devices);
      ordered.times.push_back(own.microBatch);
      ordered.ends.push_back(own.end);
      AmpCosts::StageTimes least =
          group.inside ? own
                       : costs.relaxedTimes(devices, crossingLinks(group));
      relaxed.times.push_back(std::move(least.microBatch));
      relaxed.ends.push_back(std::move(least.end));
      relaxed.cuts.emplace_back();
      ordered.cuts.emplace_back();
      for (const Group &next : groups)
        addCut(group, next);
    }
    return true;
  }

  /// A bound of all placements, and the best plan that is found.
  std::pair<std::optional<Picoseconds>, std::optional<AmpPlan>> run() {
    std::optional<PlacedPartitionSolution> bound =
        solvePlacedPartition(relaxed);
    if (!bound)
      return {std::nullopt, std::nullopt};
    std::optional<AmpPlan> best = costs.solve(devicesOf(bound->groups));
    if (best && best->total() <= bound->cost)
      return {bound->cost, best};
    if (std::optional<PlacedPartitionSolution> other =
            solvePlacedPartition(ordered))
      if (std::optional<AmpPlan> plan = costs.solve(devicesOf(other->groups));
          plan && (!best || plan->total() < best->total()))
        best = std::move(plan);
    return {bound->cost, best};
  }

private:
  bool addGroups(std::vector<int64_t> &counts, int64_t node, int64_t left) {
    if (left == 0) {
      bool divides = all_of(counts, [&](int64_t count) {
        return count % shape.tensorDegree == 0;
      });
      bool spans =
          count_if(counts, [](int64_t count) { return count > 0; }) > 1;
      if (divides)
        groups.push_back({counts, true});
      if (spans && shape.tensorDegree > 1)
        groups.push_back({counts, false});
      return groups.size() <= kMostGroups;
    }
    if (node == nodes)
      return true;
    // What the nodes behind this one cannot take it must.
    int64_t behind = cluster.deviceCount() - first[node] - size[node];
    for (int64_t count = std::min(left, size[node]);
         count >= 0 && left - count <= behind; --count) {
      counts[node] = count;
      if (!addGroups(counts, node + 1, left - count))
        return false;
    }
    counts[node] = 0;
    return true;
  }

  std::vector<int64_t> devicesOf(const Group &group,
                                 ArrayRef<int64_t> taken = {}) const {
    std::vector<int64_t> devices;
    for (int64_t node = 0; node < nodes; ++node)
      for (int64_t i = 0; i < group.counts[node]; ++i)
        devices.push_back(first[node] + (taken.empty() ? 0 : taken[node]) + i);
    return devices;
  }
  StageDevices devicesOf(ArrayRef<size_t> order) const {
    StageDevices devices;
    std::vector<int64_t> taken(nodes, 0);
    for (size_t index : order) {
      devices.push_back(devicesOf(groups[index], taken));
      for (int64_t node = 0; node < nodes; ++node)
        taken[node] += groups[index].counts[node];
    }
    return devices;
  }

  /// The larger bandwidth and the smaller latency.
  static void improve(Link &link, const Link &other) {
    link.latency = link.bandwidth == 0 ? other.latency
                                       : std::min(link.latency, other.latency);
    link.bandwidth = std::max(link.bandwidth, other.bandwidth);
  }
  /// The best link between a device of `a` and another one of `b`.
  Link between(int64_t a, int64_t b) const {
    if (a != b)
      return cluster.linkBetween(first[a], first[b]);
    return size[a] > 1 ? cluster.linkBetween(first[a], first[a] + 1) : Link();
  }
  GroupLink ring(const Link &link, int64_t ranks) const {
    GroupLink made;
    static_cast<Link &>(made) = link;
    made.ranks = ranks;
    return made;
  }
  StrategyLinks links(const Link &data, const Link &tensor) const {
    return {ring(data, shape.dataDegree), GroupLink(),
            ring(tensor, shape.tensorDegree)};
  }
  StrategyLinks anyLinks() const {
    Link best;
    for (int64_t a = 0; a < nodes; ++a)
      for (int64_t b = 0; b <= a; ++b)
        if (Link link = between(a, b); link.bandwidth > 0)
          improve(best, link);
    return links(best, best);
  }
  /// Some tensor group crosses between nodes, on the best link at least; sums
  /// of gradients need not.
  StrategyLinks crossingLinks(const Group &group) const {
    Link any, across;
    for (int64_t a = 0; a < nodes; ++a)
      for (int64_t b = 0; b <= a; ++b) {
        if (group.counts[a] == 0 || group.counts[b] == 0)
          continue;
        Link link = between(a, b);
        if (link.bandwidth > 0)
          improve(any, link);
        if (a != b)
          improve(across, link);
      }
    return links(any, across);
  }

  /// The least of a move from `from` to `to`: every device receives a replica's
  /// samples, and those that no row of the same node can give it come through
  /// the uplinks, one after the other.
  ReshardRate leastRate(const Group &from, const Group &to) const {
    auto unit = 1 / static_cast<double>(shape.dataDegree);
    Link any, across;
    double slowest = 0;
    for (int64_t node = 0; node < nodes; ++node) {
      Link in, out;
      for (int64_t other = 0; other < nodes; ++other) {
        if (from.counts[other] > 0 && to.counts[node] > 0) {
          Link link = between(other, node);
          if (link.bandwidth > 0)
            improve(any, link);
          if (other != node) {
            improve(across, link);
            improve(in, link);
          }
        }
        if (from.counts[node] > 0 && to.counts[other] > 0 && other != node)
          improve(out, between(node, other));
      }
      if (!from.inside || !to.inside)
        continue;
      int64_t more = to.counts[node] - from.counts[node];
      if (more > 0)
        slowest =
            std::max(slowest, static_cast<double>(more) * unit / in.bandwidth);
      if (more < 0)
        slowest = std::max(slowest,
                           static_cast<double>(-more) * unit / out.bandwidth);
    }
    bool crosses = slowest > 0;
    return {crosses ? across.latency : any.latency,
            std::max(slowest, unit / any.bandwidth)};
  }

  void addCut(const Group &from, const Group &to) {
    bool together =
        all_of(zip_equal(from.counts, to.counts, size), [](const auto &node) {
          auto [a, b, most] = node;
          return a + b <= most;
        });
    // Never side by side: no cost is asked for.
    if (!together) {
      std::vector<Picoseconds> none(costs.layerCount() - 1, 0);
      relaxed.cuts.back().push_back(none);
      ordered.cuts.back().push_back(std::move(none));
      return;
    }
    relaxed.cuts.back().push_back(
        costs.relaxedCutTimes(leastRate(from, to), leastRate(to, from)));
    ordered.cuts.back().push_back(
        costs.cutTimes(devicesOf(from), devicesOf(to, from.counts)));
  }

  AmpCosts &costs;
  const Cluster &cluster;
  const AmpProblem &problem;
  const AmpShape &shape;
  int64_t nodes;
  std::vector<int64_t> first, size; ///< by node: its first device, how many
  std::vector<Group> groups;
  PlacedPartitionProblem relaxed, ordered;
};

} // namespace

Error checkPlacementSearch(const Cluster &cluster, const AmpProblem &problem) {
  auto refuse = [](const Twine &what) {
    return makeError("placement 'search': " + what);
  };
  if (cluster.hasBandwidthMatrix() || !cluster.collectives().empty())
    return refuse("expected links of nodes alone, found a bandwidth matrix or "
                  "tables of collectives: use 'anneal'");
  if (cluster.sharesCores())
    return refuse("expected devices that compute by themselves, found nodes "
                  "whose devices share cores: use 'anneal'");
  if (problem.ring == RingLink::Lowest)
    return refuse("expected rings over their neighbours' links, found the "
                  "lowest link of the group");
  return Error::success();
}

Error searchPlacements(AmpResult &result, AmpCosts &costs,
                       const Cluster &cluster, const AmpProblem &problem,
                       ArrayRef<AmpShape> shapes) {
  Picoseconds best =
      result.plans.empty() ? kNoBound : result.plans.front().total();
  Picoseconds bound = best;
  // What is in sight first: others are then proven to be no better.
  std::vector<AmpShape> order;
  for (const AmpPlan &plan : result.plans)
    order.push_back(plan.shape);
  for (const AmpShape &shape : shapes)
    if (!is_contained(order, shape))
      order.push_back(shape);
  for (auto [index, shape] : enumerate(order)) {
    if (Error error = costs.setShape(shape))
      return error;
    PlacementSearch search(costs, cluster, problem, shape);
    std::optional<Picoseconds> least = search.boundAnywhere();
    if (!least || *least >= best)
      continue;
    auto stopped = [&] {
      return problem.cancellation && problem.cancellation->requested();
    };
    if (!stopped() && search.build()) {
      auto [proven, found] = search.run();
      if (!stopped())
        least = proven;
      auto known = find_if(result.plans, [&, &shape = shape](const auto &plan) {
        return plan.shape == shape;
      });
      if (found && known == result.plans.end())
        known = result.plans.insert(known, *found);
      else if (found && found->total() < known->total())
        *known = *found;
      if (found)
        best = std::min(best, found->total());
    }
    if (least)
      bound = std::min(bound, *least);
    if (problem.progress && best < kNoBound) {
      PlannerProgress progress;
      progress.batch = problem.batch;
      progress.solved = index + 1;
      progress.open = order.size() - index - 1;
      progress.samplesPerSecond =
          static_cast<double>(problem.batch) * 1e12 / static_cast<double>(best);
      problem.progress(progress);
    }
  }
  if (best < kNoBound) {
    double gap = static_cast<double>(best) / static_cast<double>(bound) - 1;
    result.gapPercent = gap < kRounding ? 0 : 100 * gap;
  }
  return Error::success();
}

} // namespace galvatron::planner
