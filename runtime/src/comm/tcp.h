//===- tcp.h - Processes that find each other by an address ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For launchers that only set variables (torchrun's RANK, WORLD_SIZE,
// MASTER_ADDR, MASTER_PORT): process 0 listens at the address, the others come
// to it, and it tells everyone where some others are; where all are goes along
// a tree. From then on two processes have a connection as soon as they have
// something to say to each other. All are made as handshake.h describes: a
// process learns nothing, and is not counted, before it has shown that it knows
// the secret of the run. A connection carries what the host has to say, the
// identity of a device's world among it; values of the model travel here only
// where there is no device.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_TCP_H
#define GRT_COMM_TCP_H

#include "comm/transport.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace grt {

struct Rendezvous {
  int rank = 0, size = 1;
  std::string address; ///< of process 0: a name, IPv4 or IPv6
  uint16_t port = 0;
  /// Ports that process 0 takes, the first that is free, where another program
  /// has `port`. The others try all of them in turn.
  std::vector<uint16_t> otherPorts;
  /// Processes of another run that come to the same port are turned away, and
  /// so are those of an attempt before this one.
  std::string run;
  uint64_t restart = 0;
  /// An attempt of a run that starts itself again (--restarts): where counts
  /// differ, some processes have missed restarts of others, and the larger one
  /// counts. Without it the one behind is left over from before, and is turned
  /// away.
  bool catchesUp = false;
  double seconds = 120; ///< until all must have come
  /// Seconds to make one connection between two processes. A process that is
  /// stopped for a while comes back before; one that is gone is found by the
  /// monitor sooner.
  double connectSeconds = 60;
  /// Numbers of processes below `size` that the run can have as well, when the
  /// others do not come within `graceSeconds` to an attempt behind the first:
  /// the first of those that came, in their order, are numbered anew.
  std::vector<int> smaller;
  double graceSeconds = 30;
  /// Secret of the run, which strangers lack (secret.h); empty on one machine
  /// only.
  std::string secret;
  /// Addresses at which this process listens, as listenEndpoints takes them;
  /// empty: process 0 at `address`, the others where they reach it from.
  std::string listen;
};

/// The rendezvous that the environment's variables describe, but for the
/// secret; nothing if they are not there. Throws Error (2) for those that are
/// wrong.
std::optional<Rendezvous> rendezvousOfEnvironment();

/// Meets the others; collective over the processes. Throws Error.
std::unique_ptr<Transport> connectByTcp(const Rendezvous &rendezvous);

} // namespace grt

#endif // GRT_COMM_TCP_H
