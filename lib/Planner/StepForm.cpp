//===- StepForm.cpp - The formulas of a step that are searched ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepForm.h"

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/RoundedTimes.h"

#include <map>
#include <set>

using namespace llvm;

namespace galvatron::planner {

std::vector<int64_t> messagesAtUplinks(const Cluster &cluster,
                                       ArrayRef<std::vector<int64_t>> stages) {
  std::vector<int64_t> most(stages.empty() ? 0 : stages.size() - 1, 1);
  if (cluster.nodeCount() == 1 || cluster.hasBandwidthMatrix())
    return most;
  std::vector<std::set<int64_t>> nodes(stages.size());
  for (size_t s = 0; s < stages.size(); ++s)
    for (int64_t device : stages[s])
      nodes[s].insert(cluster.nodeOf(device));
  // Messages out of a node, and into it: as many as there are cuts with another
  // node on their other side, of both directions alike.
  std::map<int64_t, int64_t> users;
  auto crosses = [&](size_t cut) {
    return nodes[cut].size() > 1 || nodes[cut] != nodes[cut + 1];
  };
  for (size_t cut = 0; cut < most.size(); ++cut) {
    if (!crosses(cut))
      continue;
    std::set<int64_t> both = nodes[cut];
    both.insert(nodes[cut + 1].begin(), nodes[cut + 1].end());
    for (int64_t node : both)
      ++users[node];
  }
  for (size_t cut = 0; cut < most.size(); ++cut)
    if (crosses(cut))
      for (const std::set<int64_t> *side : {&nodes[cut], &nodes[cut + 1]})
        for (int64_t node : *side)
          most[cut] = std::max(most[cut], users[node]);
  return most;
}

FormTimes FormTimes::of(const LayerTime &time, const LayerTimeParts &parts,
                        int64_t stages, Objective objective) {
  FormTimes times;
  times.nosync = layerNosyncPicoseconds(time);
  times.forward = toPicoseconds(time.forward);
  double sums = time.total() - time.totalNosync();
  times.ends = objective == Objective::Paper
                   ? layerPicoseconds(time) - times.nosync +
                         updatePicoseconds(parts, stages)
                   : toPicoseconds((sums + parts.norm + parts.update) /
                                   static_cast<double>(stages));
  times.wholeEnd = toPicoseconds(sums + parts.update);
  return times;
}

} // namespace galvatron::planner
