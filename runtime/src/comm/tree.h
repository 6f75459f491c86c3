//===- tree.h - What all processes tell each other ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collectives of the hosts around the ranks' own, in which a process talks only
// to those whose numbers are a power of two away from its own (modulo their
// number): ceil(log2(n)) messages each, and as many connections.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_TREE_H
#define GRT_COMM_TREE_H

#include "comm/transport.h"

#include <functional>
#include <vector>

namespace grt {

/// Returns when all requests are complete; throws to give up.
using WaitForAll = std::function<void(std::vector<Transport::Request>)>;

/// The processes that the collectives below talk to, ascending; this relation
/// is symmetric.
std::vector<int> treeNeighbours(int self, int count);

/// Transport, tag and wait of the collectives below.
struct HostMessages {
  Transport &transport;
  int tag; ///< of all messages; calls follow each other in the same order
  const WaitForAll &wait;
};

/// out[i * bytes..] = what process i has in `in`, in rounds in which what a
/// process has doubles (Bruck et al., IEEE TPDS 8(11), 1997, section 3).
void gatherFromAll(const HostMessages &messages, const void *in, void *out,
                   size_t bytes);

/// `data` becomes that of `root`, along a binomial tree.
void broadcastToAll(const HostMessages &messages, void *data, size_t bytes,
                    int root);

/// Returns when all processes have called it.
void meetAll(const HostMessages &messages);

/// The way to process 0 along a binomial tree: the children of a process, which
/// speak for their own, ascending, then itself to its parent.
struct TreePlace {
  int parent = -1; ///< -1 at process 0
  std::vector<int> children;
};
TreePlace treePlace(int self, int count);

} // namespace grt

#endif // GRT_COMM_TREE_H
