//===- Groups.h - Which devices may form which stage ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On a mixed cluster stages have groups of devices of unequal sizes and types,
// in any order. Devices of a node are alike, so a group is told by how many it
// has of every node; it takes the first ones that are left. docs/search.md,
// "Unequal groups".
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_GROUPS_H
#define GALVATRON_LIB_PLANNER_GROUPS_H

#include "galvatron/Cluster/Cluster.h"

#include <string>
#include <vector>

namespace galvatron::planner {

/// The devices of each stage, in order.
using DeviceGroups = std::vector<std::vector<int64_t>>;

/// The sequences of groups that are looked at; from one to the next there are
/// fewer of them.
enum class GroupRule : uint8_t {
  Any,    ///< any numbers of devices of any nodes
  Blocks, ///< see groupRuleText()
  Types,
  TypesInOrder,
  TypesAlike
};
/// "any number of devices of every node".
std::string groupRuleText(GroupRule rule);

struct GroupSequences {
  GroupRule rule = GroupRule::Any;
  std::vector<DeviceGroups> sequences;
};

/// True if nodes differ in devices or links.
bool isMixed(const Cluster &cluster);

/// All sequences of at most `mostStages` groups that use every device, under
/// the first rule that allows no more than about `most` of them; the last one
/// whatever it allows, up to that number. Nodes that are alike are told apart
/// by the order in which they come only.
GroupSequences groupSequences(const Cluster &cluster, int64_t mostStages,
                              size_t most);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_GROUPS_H
