//===- rendezvous.h - Processes meet at an address ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_RENDEZVOUS_H
#define GRT_COMM_RENDEZVOUS_H

#include "comm/handshake.h"
#include "comm/tcp.h"

#include <map>
#include <memory>
#include <string>

namespace grt {

/// Rank, contacts and key of a process once all processes have met.
struct Membership {
  /// Rank and size as the process was started with them, unless the run has
  /// fewer (Rendezvous::smaller).
  int rank = 0, size = 1;
  /// Contacts by rank: the own one and those of the treeNeighbours() with
  /// smaller numbers. Process 0 tells everyone a few, so that what it says does
  /// not grow with the square of their number; the others are gathered along
  /// the tree.
  std::map<int, Contact> contacts;
  std::string key; ///< of this run's connections from here on
  std::unique_ptr<Listener> listener; ///< behind the own contact, with that key
  /// Addresses at which the process listens, as listenEndpoints takes them.
  std::string places;
};

/// The purpose of the connections that a process takes.
std::string meshPurpose(int rank);

/// Meets the others. Collective. Throws Error, where process 0 knows why on all
/// processes that came.
Membership joinRun(const Rendezvous &at);

} // namespace grt

#endif // GRT_COMM_RENDEZVOUS_H
