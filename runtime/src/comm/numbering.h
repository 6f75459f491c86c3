//===- numbering.h - Which process has which ranks --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A plan prices groups of ranks inside a node of its cluster by the links of
// that node. Launchers number processes as they like: `mpirun --map-by node`
// and `srun --distribution=cyclic` deal them round the hosts, so that every
// such group would talk over the network. Numbered anew, each node of the plan
// is on one host again, and as everything follows the rank, nothing else of a
// run changes.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_NUMBERING_H
#define GRT_COMM_NUMBERING_H

#include "comm/transport.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace grt {

/// The hosts of a run.
struct RunHosts {
  std::vector<std::string> names; ///< by host, which are numbered as they come
  std::vector<int> ofRank;        ///< the host of each rank
  /// Numbers were looked for that keep the nodes of the plan.
  bool sought = false;
};

/// The processes in the order in which they have ranks, so that ranks of one
/// planned node are on one host: entry i is the launcher's number of the
/// process that becomes process i. `ranks` are those of each process,
/// `hosts` its host, from 0 without a gap, and `nodes` the planned node of each
/// rank, whose number is the sum of `ranks`. The order is the launcher's where
/// that does; else one in which place i has as many ranks as before and the
/// processes of a host keep their order. Nothing if there is none, or none was
/// found among a million ways to fill hosts, which takes nodes of many
/// different sizes. A pure function, so that all processes find the same.
std::optional<std::vector<int>> numberProcesses(std::span<const int> ranks,
                                                std::span<const int> hosts,
                                                std::span<const int> nodes);

/// True if all ranks of each planned node are on one host.
bool keepsNodes(std::span<const int> hostOfRank, std::span<const int> nodes);

/// A transport whose process i is process `order[i]` of another one, which must
/// outlive it.
std::unique_ptr<Transport> renumbered(Transport &transport,
                                      std::vector<int> order);

/// "ranks are renumbered ..": which host has which ranks.
std::string renumberingText(const RunHosts &hosts);

/// "0 to 3, 8, 10"; behind so many ranges "..".
std::string rankRanges(std::span<const int> ranks, size_t most = 4);

} // namespace grt

#endif // GRT_COMM_NUMBERING_H
