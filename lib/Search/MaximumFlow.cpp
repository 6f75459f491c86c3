//===- MaximumFlow.cpp - Maximum flow and minimum cut ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/MaximumFlow.h"

#include <algorithm>
#include <cassert>

namespace galvatron {

void FlowNetwork::addEdge(size_t from, size_t to, Capacity capacity) {
  assert(from < nodes() && to < nodes() && capacity >= 0);
  edgesOf[from].push_back(edges.size());
  edges.push_back({to, capacity});
  edgesOf[to].push_back(edges.size());
  edges.push_back({from, 0});
}

/// Distances from the source over edges that have capacity left. False if the
/// sink is out of reach.
bool FlowNetwork::makeLevels(size_t source, size_t sink) {
  level.assign(nodes(), -1);
  level[source] = 0;
  std::vector<size_t> queue = {source};
  for (size_t i = 0; i < queue.size(); ++i)
    for (size_t number : edgesOf[queue[i]]) {
      const Edge &edge = edges[number];
      if (edge.left == 0 || level[edge.to] >= 0)
        continue;
      level[edge.to] = level[queue[i]] + 1;
      queue.push_back(edge.to);
    }
  return level[sink] >= 0;
}

FlowNetwork::Capacity FlowNetwork::push(size_t node, size_t sink,
                                        Capacity most) {
  if (node == sink)
    return most;
  for (; next[node] < edgesOf[node].size(); ++next[node]) {
    size_t number = edgesOf[node][next[node]];
    Edge &edge = edges[number];
    if (edge.left == 0 || level[edge.to] != level[node] + 1)
      continue;
    Capacity sent = push(edge.to, sink, std::min(most, edge.left));
    if (sent == 0)
      continue;
    edge.left -= sent;
    edges[number ^ 1].left += sent;
    return sent;
  }
  return 0;
}

FlowNetwork::Capacity FlowNetwork::maximise(size_t source, size_t sink) {
  assert(source != sink && "a cut separates two nodes");
  Capacity total = 0;
  while (total < kUnbounded && makeLevels(source, sink)) {
    next.assign(nodes(), 0);
    while (Capacity sent = push(source, sink, kUnbounded)) {
      total += sent;
      if (total >= kUnbounded)
        break;
    }
  }
  return total;
}

std::vector<bool> FlowNetwork::sourceSide() const {
  std::vector<bool> side;
  for (int distance : level)
    side.push_back(distance >= 0);
  return side;
}

} // namespace galvatron
