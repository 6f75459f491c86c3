//===- GroupRulesTest.cpp - What each rule for groups allows --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Large clusters get fewer sequences of groups. Here the sequences under each
// rule are those of the widest one, which GroupsTest.cpp compares with every
// assignment of devices, that the rule's sentence allows.
//
//===----------------------------------------------------------------------===//

#include "Groups.h"

#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

#include <map>
#include <set>

using namespace galvatron;
using namespace galvatron::planner;

namespace {

/// Nodes of each type and their devices.
Cluster clusterOf(llvm::ArrayRef<std::pair<int64_t, int64_t>> types) {
  std::vector<DeviceType> devices;
  std::vector<NodeGroup> nodes;
  for (auto [count, size] : types) {
    DeviceType type;
    type.name = "type" + std::to_string(devices.size());
    type.backend = "cpu";
    type.memory = 1 << 20;
    type.flops = {{"f32", 1e9 * static_cast<double>(devices.size() + 1)}};
    type.memoryBandwidth = 10e9;
    nodes.push_back({count, type.name, size, {3e9, 2e-6}});
    devices.push_back(type);
  }
  return llvm::cantFail(Cluster::get("rules", devices, nodes, Link{1e9, 9e-6}));
}

int64_t typeOf(const Cluster &cluster, int64_t device) {
  return static_cast<int64_t>(cluster.nodeGroupOf(device));
}

/// A sequence but for which of several nodes of a type come first.
using Key = std::vector<std::vector<std::vector<int64_t>>>;

Key keyOf(const Cluster &cluster, const DeviceGroups &groups) {
  Key key;
  std::map<int64_t, int64_t> numbers;
  for (const std::vector<int64_t> &group : groups) {
    std::map<int64_t, std::pair<int64_t, int64_t>> parts; // of a node
    for (int64_t device : group) {
      auto &[type, count] = parts[cluster.nodeOf(device)];
      type = typeOf(cluster, device);
      ++count;
    }
    key.emplace_back();
    for (auto [node, part] : parts) {
      auto number = static_cast<int64_t>(numbers.size());
      number = numbers.try_emplace(node, number).first->second;
      key.back().push_back({number, part.first, part.second});
    }
  }
  return key;
}

/// Whether the sentence of the rule allows the sequence.
class Allowed {
public:
  Allowed(const Cluster &cluster, const DeviceGroups &groups)
      : cluster(cluster), groups(groups) {
    for (int64_t d = 0; d < cluster.deviceCount(); ++d)
      ++devicesOf[cluster.nodeOf(d)];
  }

  bool by(GroupRule rule) const {
    switch (rule) {
    case GroupRule::Any:
      return true;
    case GroupRule::Blocks:
      return areBlocks();
    case GroupRule::Types:
      return areTypes();
    case GroupRule::TypesInOrder:
      return areTypes() && llvm::is_sorted(types());
    case GroupRule::TypesAlike: {
      std::map<int64_t, int64_t> groupsOf;
      for (size_t i = 0; i < groups.size(); ++i)
        ++groupsOf[typeOf(i)];
      return areTypes() && llvm::is_sorted(types()) &&
             llvm::all_of(groupsOf, [&](auto each) {
               return each.second == groupsOf.begin()->second;
             });
    }
    }
    return false;
  }

private:
  int64_t typeOf(size_t group) const {
    return ::typeOf(cluster, groups[group].front());
  }
  std::vector<int64_t> types() const {
    std::vector<int64_t> list;
    for (size_t i = 0; i < groups.size(); ++i)
      list.push_back(typeOf(i));
    return list;
  }
  std::set<int64_t> nodesOf(size_t group) const {
    std::set<int64_t> nodes;
    for (int64_t device : groups[group])
      nodes.insert(cluster.nodeOf(device));
    return nodes;
  }
  int64_t sizeOf(size_t group) const {
    return static_cast<int64_t>(groups[group].size());
  }

  /// Whole nodes, or all equal parts of one, one behind the other.
  bool areBlocks() const {
    for (size_t i = 0; i < groups.size();) {
      std::set<int64_t> nodes = nodesOf(i);
      int64_t whole = 0;
      for (int64_t node : nodes)
        whole += devicesOf.at(node);
      if (sizeOf(i) == whole) {
        ++i;
        continue;
      }
      if (nodes.size() > 1 || whole % sizeOf(i))
        return false;
      for (int64_t part = 0; part < whole / sizeOf(i); ++part)
        if (i + part >= groups.size() || nodesOf(i + part) != nodes ||
            sizeOf(i + part) != sizeOf(i))
          return false;
      i += whole / sizeOf(i);
    }
    return true;
  }

  /// One type behind the other, each in groups of one size.
  bool areTypes() const {
    std::set<int64_t> over;
    for (size_t i = 0; i < groups.size(); ++i) {
      for (int64_t device : groups[i])
        if (::typeOf(cluster, device) != typeOf(i))
          return false;
      bool goesOn = i > 0 && typeOf(i) == typeOf(i - 1);
      if (goesOn ? sizeOf(i) != sizeOf(i - 1) : !over.insert(typeOf(i)).second)
        return false;
    }
    return areBlocks();
  }

  const Cluster &cluster;
  const DeviceGroups &groups;
  std::map<int64_t, int64_t> devicesOf; ///< by node
};

TEST(GroupRules, allow_what_their_sentences_say) {
  using Types = std::vector<std::pair<int64_t, int64_t>>;
  std::map<GroupRule, int> compared;
  for (const Types &types :
       {Types{{1, 2}, {1, 1}}, Types{{2, 2}, {1, 2}}, Types{{1, 4}, {2, 1}},
        Types{{2, 1}, {2, 2}}, Types{{1, 2}, {1, 2}, {1, 2}},
        Types{{4, 1}, {1, 2}}, Types{{1, 1}, {1, 1}, {1, 2}, {1, 1}}}) {
    Cluster cluster = clusterOf(types);
    int64_t devices = cluster.deviceCount();
    for (int64_t stages : {devices, devices - 1}) {
      constexpr size_t all = 200'000;
      GroupSequences any = groupSequences(cluster, stages, all);
      ASSERT_EQ(any.rule, GroupRule::Any);
      std::map<GroupRule, std::set<Key>> allowed;
      for (const DeviceGroups &groups : any.sequences)
        for (GroupRule rule :
             {GroupRule::Any, GroupRule::Blocks, GroupRule::Types,
              GroupRule::TypesInOrder, GroupRule::TypesAlike})
          if (Allowed(cluster, groups).by(rule))
            allowed[rule].insert(keyOf(cluster, groups));
      EXPECT_EQ(allowed[GroupRule::Any].size(), any.sequences.size());
      // As many as each rule has lead to that rule or one beside it.
      for (const auto &[wanted, keys] : allowed) {
        GroupSequences found =
            groupSequences(cluster, stages, std::max<size_t>(keys.size(), 1));
        std::set<Key> foundKeys;
        for (const DeviceGroups &groups : found.sequences) {
          std::set<int64_t> used;
          for (const std::vector<int64_t> &group : groups) {
            EXPECT_FALSE(group.empty());
            used.insert(group.begin(), group.end());
          }
          EXPECT_EQ(static_cast<int64_t>(used.size()), devices);
          EXPECT_LE(static_cast<int64_t>(groups.size()), stages);
          EXPECT_TRUE(foundKeys.insert(keyOf(cluster, groups)).second);
        }
        EXPECT_EQ(foundKeys, allowed[found.rule])
            << groupRuleText(found.rule) << ", " << stages << " stages";
        ++compared[found.rule];
      }
    }
  }
  for (GroupRule rule : {GroupRule::Any, GroupRule::Blocks, GroupRule::Types,
                         GroupRule::TypesInOrder, GroupRule::TypesAlike})
    EXPECT_GT(compared[rule], 2) << groupRuleText(rule);
}

} // namespace
