//===- host_tree.h - Processes by the machine that they share -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The lowest process of a host, its relay, hears the others of it over the
// loopback and speaks for them to process 0, which is the relay of its own
// host: process 0 has a connection for each host and for each process beside
// it, any other process one to its relay.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_HOST_TREE_H
#define GRT_COMM_HOST_TREE_H

#include <string>
#include <vector>

namespace grt {

/// Identity of the running kernel and the network that this process sees:
/// processes with equal ones reach each other by the loopback. Empty if
/// unknown.
std::string networkIdentity();

class HostTree {
public:
  /// The network identity of every process; one whose is empty is a host of its
  /// own.
  explicit HostTree(const std::vector<std::string> &networks);

  int size() const { return int(relays.size()); }
  /// The lowest process of the host of `process`.
  int relayOf(int process) const { return relays[size_t(process)]; }
  bool isRelay(int process) const { return relayOf(process) == process; }
  /// Returns the processes of the host of `process`, ascending.
  const std::vector<int> &hostOf(int process) const {
    return members[size_t(relayOf(process))];
  }
  /// The process that a process reports to; -1 at process 0.
  int parent(int process) const;
  /// The processes that report to it, ascending.
  std::vector<int> children(int process) const;

private:
  std::vector<int> relays;
  std::vector<std::vector<int>> members; ///< by relay
};

} // namespace grt

#endif // GRT_COMM_HOST_TREE_H
