//===- MaximumFlow.h - Maximum flow and minimum cut -------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Maximum flow by blocking flows on layered networks (Dinic): at most
// nodes^2 * edges steps, and on the graphs of layer bodies, which have some
// hundred nodes, a few passes over the edges.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SEARCH_MAXIMUMFLOW_H
#define GALVATRON_SEARCH_MAXIMUMFLOW_H

#include <cstddef>
#include <vector>

namespace galvatron {

class FlowNetwork {
public:
  /// Products of bytes and times do not fit into 64 bits.
  using Capacity = __int128;
  /// More than any sum of finite capacities that a caller may add.
  static constexpr Capacity kUnbounded = Capacity(1) << 125;

  explicit FlowNetwork(size_t nodes) : edgesOf(nodes) {}

  size_t nodes() const { return edgesOf.size(); }
  void addEdge(size_t from, size_t to, Capacity capacity);

  /// Sends as much as possible, and returns how much that is. The minimum cut
  /// has the same capacity. At least kUnbounded if a path without bound exists.
  Capacity maximise(size_t source, size_t sink);
  /// Returns, after a maximise() that found a bound, the nodes on the source's
  /// side of the minimum cut that has the fewest there.
  std::vector<bool> sourceSide() const;

private:
  struct Edge {
    size_t to;
    Capacity left;
  };

  bool makeLevels(size_t source, size_t sink);
  Capacity push(size_t node, size_t sink, Capacity most);

  std::vector<Edge> edges;                  ///< each next to its reverse edge
  std::vector<std::vector<size_t>> edgesOf; ///< by node
  std::vector<int> level;                   ///< by node; -1: out of reach
  std::vector<size_t> next; ///< by node, of the edges to be tried
};

} // namespace galvatron

#endif // GALVATRON_SEARCH_MAXIMUMFLOW_H
