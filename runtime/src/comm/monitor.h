//===- monitor.h - Whether all processes are alive and move ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// TCP connections beside the transport, along the tree of hosts (host_tree.h),
// and a thread in each process that keeps them. The kernel closes the
// connection of a process that dies, however it died, so its relay knows at
// once; every second each says what its ranks are doing, so that a message can
// name the rank, the step, the operation and the peer it waited for. What
// follows from that is in failure_detector.h.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_MONITOR_H
#define GRT_COMM_MONITOR_H

#include "comm/process_world.h"

#include <memory>

namespace grt {

struct MonitorOptions {
  std::string tool = "galvatron-run"; ///< begins messages
  bool ownsProcess = true;            ///< see ProcessOptions
  double timeout = 0;  ///< seconds in which some rank must move; 0: no limit
  double silence = 8;  ///< seconds without a sign of life from a process
  double patience = 3; ///< seconds to end in after a failure
  /// Addresses at which process 0 listens for the others, as listenEndpoints
  /// takes them; empty: those that the transport names, else the loopback if
  /// all processes share it, else every address of its machine.
  std::string listen;
  /// Name of this process's machine, and what the processes of one host have in
  /// common; empty: gethostname() and networkIdentity().
  std::string host, network;
};

class Monitor {
public:
  /// Collective: connects all processes.
  Monitor(Transport &transport, const MonitorOptions &options);
  ~Monitor();

  /// The world whose ranks are watched and woken; null: none any more.
  void watch(ProcessWorld *world);
  /// Tells everyone, prints at process 0. From any thread, at once.
  void fail(const Failure &failure);
  /// Waits until a failure was printed, for two seconds at most.
  void waitUntilReported();
  /// The first failure of any process.
  std::optional<Failure> failure() const;
  /// Allows connections to close; called after the last collective call.
  void close();

private:
  struct Implementation;
  std::unique_ptr<Implementation> impl;
};

} // namespace grt

#endif // GRT_COMM_MONITOR_H
