//===- topology.h - Ranks and links beside those of the plan ----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_TOPOLOGY_H
#define GRT_CORE_TOPOLOGY_H

#include "comm/numbering.h"
#include "core/manifest.h"

#include <string>
#include <vector>

namespace grt {

/// Groups of ranks that communicate at one time, over links of one kind.
struct PlannedLink {
  std::string name; ///< "tp4"; "stages" for transfers between those
  /// Share no rank; members in the order of the plan.
  std::vector<std::vector<int>> groups;
  /// Whether all members of each group are on one node of the plan.
  bool inside = true;
  /// Bytes per second that each member sends in the plan while all groups do;
  /// 0: the program does not say.
  double bandwidth = 0;
};

/// The levels of the plan's layers, each set of groups once under the name that
/// it has first, then transfers between stages; in the order of the program.
/// Empty if there is one rank.
std::vector<PlannedLink> plannedLinks(const Manifest &manifest);

/// "300GB/s", as cluster files have it.
std::string bandwidthText(double bytesPerSecond);

/// What is wrong where ranks of one node of the plan are on several hosts: the
/// node, the hosts, and a level of a layer that the plan priced inside a node
/// and that crosses hosts, with what the plan has for both links. Empty if each
/// node is on one host, or the program does not say its nodes.
std::string misplacedText(const Manifest &manifest, const RunHosts &hosts);

} // namespace grt

#endif // GRT_CORE_TOPOLOGY_H
