//===- Groups.cpp - Which devices may form which stage --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Groups.h"

#include "galvatron/Strategy/DecisionTree.h"

#include "llvm/ADT/STLExtras.h"

#include <map>
#include <numeric>
#include <set>

using namespace llvm;

namespace galvatron::planner {

std::string groupRuleText(GroupRule rule) {
  switch (rule) {
  case GroupRule::Any:
    return "any number of devices of every node, in any order";
  case GroupRule::Blocks:
    return "whole nodes, any number of them, and equal parts of one node; "
           "nodes in any order";
  case GroupRule::Types:
    return "equal parts of the nodes of one type, or of each of these nodes; "
           "types in any order";
  case GroupRule::TypesInOrder:
    return "equal parts of the nodes of one type, or of each of these nodes; "
           "types in the order of the cluster";
  case GroupRule::TypesAlike:
    return "groups of one size in all nodes of one type, as many of one type "
           "as of another; types in the order of the cluster";
  }
  return "";
}

/// Returns true if the nodes of two groups are alike.
static bool areAlike(NodeGroup a, const NodeGroup &b) {
  a.count = b.count;
  return a == b;
}

bool isMixed(const Cluster &cluster) {
  return any_of(cluster.nodeGroups(), [&](const NodeGroup &group) {
    return !areAlike(group, cluster.nodeGroups().front());
  });
}

namespace {

using Counts = std::vector<int64_t>; ///< devices by node

class Sequences {
public:
  Sequences(const Cluster &cluster, int64_t mostStages, size_t most)
      : mostStages(mostStages), most(most), devicesOf(cluster.nodeCount()) {
    typeOf.resize(cluster.nodeCount());
    ArrayRef<NodeGroup> groups = cluster.nodeGroups();
    std::vector<size_t> typeOfGroup(groups.size());
    for (size_t g = 0; g < groups.size(); ++g) {
      // A matrix of bandwidths tells all nodes apart.
      size_t same = cluster.hasBandwidthMatrix() ? g : 0;
      while (!areAlike(groups[g], groups[same]))
        ++same;
      typeOfGroup[g] = same;
    }
    for (int64_t device = 0; device < cluster.deviceCount(); ++device) {
      int64_t node = cluster.nodeOf(device);
      devicesOf[node].push_back(device);
      typeOf[node] = cluster.hasBandwidthMatrix()
                         ? static_cast<size_t>(node)
                         : typeOfGroup[cluster.nodeGroupOf(device)];
    }
    for (const std::vector<int64_t> &devices : devicesOf)
      sizes.push_back(static_cast<int64_t>(devices.size()));
    for (size_t node = 0; node < typeOf.size(); ++node) {
      auto it = find_if(nodesOfType, [&](const std::vector<size_t> &nodes) {
        return typeOf[nodes.front()] == typeOf[node];
      });
      if (it == nodesOfType.end())
        it = nodesOfType.insert(it, std::vector<size_t>());
      it->push_back(node);
    }
  }

  /// False if there are too many.
  bool add(GroupRule rule) {
    found.clear();
    seen.clear();
    overflow = false;
    ways = 0;
    switch (rule) {
    case GroupRule::Any:
      overflow |= countAny(sizes, mostStages) > mostNodesApart();
      ways = 0;
      if (!overflow)
        addAny(sizes);
      break;
    case GroupRule::Blocks:
      addBlocks(std::vector<bool>(sizes.size(), false), sizes.size());
      break;
    case GroupRule::Types:
    case GroupRule::TypesInOrder:
    case GroupRule::TypesAlike: {
      std::vector<size_t> order(nodesOfType.size());
      std::iota(order.begin(), order.end(), 0);
      std::vector<int64_t> alike = {0};
      if (rule == GroupRule::TypesAlike)
        alike = partsOf(nodesOfType.front());
      const bool anyOrder = rule == GroupRule::Types;
      // Any order of up to five types.
      constexpr size_t few = 5;
      overflow = anyOrder && order.size() > few;
      do
        for (int64_t parts : alike)
          addTypes(order, 0, parts);
      while (anyOrder && !overflow &&
             std::next_permutation(order.begin(), order.end()));
      break;
    }
    }
    return !overflow;
  }

  std::vector<DeviceGroups> take() { return std::move(found); }

private:
  /// Nodes that are alike are met in every order first.
  double mostNodesApart() const { return 4 * static_cast<double>(most); }

  /// The number of sequences that use up what is left, with nodes told apart.
  double countAny(const Counts &left, int64_t stages) {
    if (all_of(left, [](int64_t count) { return count == 0; }))
      return 1;
    if (stages == 0)
      return 0;
    constexpr double kinds = 5000;
    double size = 1;
    for (int64_t count : left) {
      size *= static_cast<double>(count + 1);
      if (size > kinds)
        return 1e300;
    }
    auto [count, isNew] = known.try_emplace({left, stages}, 0);
    if (!isNew)
      return count->second;
    double sum = 0;
    Counts rest(left.size());
    forEachGroup(left, [&](const Counts &group) {
      for (size_t node = 0; node < rest.size(); ++node)
        rest[node] = left[node] - group[node];
      sum += countAny(rest, stages - 1);
      // Each of them is the end of one of the whole, so it has as many.
      overflow |= sum > mostNodesApart();
    });
    return count->second = sum;
  }

  /// All but the empty one, as long as there are not too many sequences.
  template <typename Do> void forEachGroup(const Counts &left, Do act) {
    // Most of many ways end with too many stages.
    constexpr size_t waysOfOne = 50;
    Counts group(left.size(), 0);
    while (!overflow) {
      if (++ways > waysOfOne * most)
        overflow = true;
      size_t node = 0;
      while (node < group.size() && group[node] == left[node])
        group[node++] = 0;
      if (node == group.size())
        return;
      ++group[node];
      act(group);
    }
  }

  void addAny(const Counts &left) {
    if (all_of(left, [](int64_t count) { return count == 0; }))
      return emit();
    if (static_cast<int64_t>(sequence.size()) == mostStages)
      return;
    forEachGroup(left, [&](const Counts &group) {
      Counts rest = left;
      for (size_t node = 0; node < rest.size(); ++node)
        rest[node] -= group[node];
      sequence.push_back(group);
      addAny(rest);
      sequence.pop_back();
    });
  }

  /// One node in `parts` equal ones.
  void cut(size_t node, int64_t parts) {
    for (int64_t part = 0; part < parts; ++part) {
      sequence.emplace_back(sizes.size(), 0);
      sequence.back()[node] = sizes[node] / parts;
    }
  }

  void addBlocks(const std::vector<bool> &used, size_t left) {
    if (static_cast<int64_t>(sequence.size()) > mostStages)
      return;
    if (left == 0)
      return emit();
    // Takes the first of nodes that are alike.
    Counts room;
    for (const std::vector<size_t> &nodes : nodesOfType)
      room.push_back(count_if(nodes, [&](size_t node) { return !used[node]; }));
    forEachGroup(room, [&](const Counts &take) {
      std::vector<bool> then = used;
      Counts group(sizes.size(), 0);
      size_t nodes = 0, last = 0;
      for (size_t type = 0; type < take.size(); ++type) {
        int64_t more = take[type];
        for (size_t node : nodesOfType[type])
          if (more > 0 && !used[node]) {
            then[node] = true;
            group[node] = sizes[node];
            last = node;
            ++nodes;
            --more;
          }
      }
      size_t before = sequence.size();
      if (nodes > 1) {
        sequence.push_back(group);
        addBlocks(then, left - nodes);
        sequence.resize(before);
        return;
      }
      for (int64_t parts : divisors(sizes[last])) {
        cut(last, parts);
        addBlocks(then, left - 1);
        sequence.resize(before);
      }
    });
  }

  /// The numbers of equal groups into which the nodes may be cut.
  std::vector<int64_t> partsOf(const std::vector<size_t> &nodes) const {
    auto count = static_cast<int64_t>(nodes.size());
    std::vector<int64_t> parts = divisors(count);
    for (int64_t inside : divisors(sizes[nodes.front()]))
      if (inside > 1)
        parts.push_back(count * inside);
    return parts;
  }

  /// `alike`: as many groups of every type; 0: any.
  void addTypes(ArrayRef<size_t> order, size_t next, int64_t alike) {
    if (overflow || static_cast<int64_t>(sequence.size()) > mostStages)
      return;
    if (next == order.size())
      return emit();
    const std::vector<size_t> &nodes = nodesOfType[order[next]];
    auto count = static_cast<int64_t>(nodes.size());
    size_t before = sequence.size();
    for (int64_t parts : partsOf(nodes)) {
      if (alike > 0 && parts != alike)
        continue;
      if (parts > count) {
        for (size_t node : nodes)
          cut(node, parts / count);
      } else {
        for (int64_t part = 0; part < parts; ++part) {
          sequence.emplace_back(sizes.size(), 0);
          for (int64_t i = 0; i < count / parts; ++i) {
            size_t node = nodes[part * (count / parts) + i];
            sequence.back()[node] = sizes[node];
          }
        }
      }
      addTypes(order, next + 1, alike);
      sequence.resize(before);
    }
  }

  void emit() {
    if (static_cast<int64_t>(sequence.size()) > mostStages)
      return;
    // Nodes get numbers as they come.
    std::vector<int64_t> key;
    std::map<size_t, int64_t> numbers;
    for (const Counts &group : sequence) {
      for (size_t node = 0; node < group.size(); ++node)
        if (group[node] > 0) {
          auto number = static_cast<int64_t>(numbers.size());
          key.push_back(numbers.try_emplace(node, number).first->second);
          key.push_back(static_cast<int64_t>(typeOf[node]));
          key.push_back(group[node]);
        }
      key.push_back(-1);
    }
    if (!seen.insert(std::move(key)).second)
      return;
    if (found.size() == most) {
      overflow = true;
      return;
    }
    Counts taken(sizes.size(), 0);
    DeviceGroups groups;
    for (const Counts &group : sequence) {
      groups.emplace_back();
      for (size_t node = 0; node < group.size(); ++node)
        for (int64_t i = 0; i < group[node]; ++i)
          groups.back().push_back(devicesOf[node][taken[node]++]);
    }
    found.push_back(std::move(groups));
  }

  int64_t mostStages;
  size_t most;
  std::vector<std::vector<int64_t>> devicesOf; ///< by node
  std::vector<size_t> typeOf;                  ///< by node
  std::vector<std::vector<size_t>> nodesOfType;
  Counts sizes;
  /// Numbers of countAny(), by what is left and the stages.
  std::map<std::pair<Counts, int64_t>, double> known;
  std::vector<Counts> sequence;
  std::set<std::vector<int64_t>> seen;
  std::vector<DeviceGroups> found;
  size_t ways = 0; ///< tried
  bool overflow = false;
};

} // namespace

GroupSequences groupSequences(const Cluster &cluster, int64_t mostStages,
                              size_t most) {
  Sequences sequences(cluster, mostStages, most);
  GroupSequences result;
  for (GroupRule rule : {GroupRule::Any, GroupRule::Blocks, GroupRule::Types,
                         GroupRule::TypesInOrder, GroupRule::TypesAlike}) {
    result.rule = rule;
    if (sequences.add(rule))
      break;
  }
  result.sequences = sequences.take();
  return result;
}

} // namespace galvatron::planner
