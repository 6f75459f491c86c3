//===- processes.h - Runs of several processes ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A launcher (mpirun, srun with PMIx, or one that sets torchrun's variables)
// starts the same tool several times; together these processes hold the ranks
// of one run. Every process makes the same calls of a session in the same
// order, with the same options and data; `agree` is how they find out.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_PROCESSES_H
#define GRT_PROCESSES_H

#include "grt/session.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace grt {

/// Code of the error of a process that the others go on without, see
/// ProcessOptions::smaller. No failure of the run.
inline constexpr int exitSpare = 99;

/// Processes that know of each other without a launcher's variables.
struct KnownProcesses {
  int number = 0, count = 1; ///< of this one, and how many there are
  std::string address;       ///< where process 0 listens
  uint16_t port = 0;
  std::string run;      ///< processes of another are turned away
  double seconds = 120; ///< in which all must have come
};

struct ProcessOptions {
  std::string tool = "galvatron-run"; ///< begins messages
  /// Joins these, by TCP, whatever launcher started them.
  std::optional<KnownProcesses> known;
  /// The run is all that the process is for: what ends the run ends the
  /// process, with a message, and SIGTERM is waited out. Otherwise failures are
  /// found in the statuses of a session alone.
  bool ownsProcess = true;
  /// Ranks of this process, each on a thread.
  int threadRanks = 1;
  /// Seconds within which some rank must get on; 0: no limit.
  double timeout = 0;
  /// Folder of the plug-ins; empty: beside the runtime, then the system's path.
  std::string folder;
  /// File with what the processes of a run know and strangers do not, mode
  /// 0600; empty: GALVATRON_LAUNCH_SECRET has it. Without MPI, processes of
  /// several machines need one.
  std::string secretFile;
  /// Addresses or interfaces, separated by commas, where this process may be
  /// reached by the others, or "any"; empty: GRT_LISTEN says it, else the
  /// address by which process 0 is known.
  std::string listen;
  /// True for an attempt of a run that starts itself again: a process that has
  /// missed restarts of the others takes their number (TCP only).
  bool restarts = false;
  /// Numbers of processes that the run can have instead of those that the
  /// launcher started, if some do not come (TCP only): then the first of those
  /// that came are numbered anew, and the others end with exitSpare.
  std::vector<int> smaller;
  /// Called once all have met: the node of the plan that each of so many ranks
  /// is on (Program::nodes()). Where ranks of one node are on several hosts and
  /// another numbering of the processes mends it, they are numbered so; numbers
  /// follow the launcher's otherwise. The same in all processes.
  std::function<std::vector<int>(int ranks)> nodes;
  /// Text that this process sends to all others as they meet, up to 16 KiB; if
  /// it is empty everywhere, it costs one message.
  std::string tells;
  /// The host that this process takes itself to be on, for tests; empty: the
  /// name of this machine and its running kernel tell hosts apart.
  std::string host;
};

/// Something that all processes of a run must have in common: what it is called
/// and how a message shows it, as in {"--seed", "--seed=3"}. A process without
/// it is shown with "no --seed".
struct Term {
  std::string name, text;
};

/// This process among those of a run.
class Processes {
public:
  ~Processes();
  Processes(const Processes &) = delete;
  Processes &operator=(const Processes &) = delete;

  /// The number that the launcher gave to this process; 0 without a launcher.
  /// It alone prints what all would print.
  static int launchedNumber();

  /// Joins the others; `result` stays null if no launcher of several processes
  /// started this one. A launcher whose processes cannot find each other is an
  /// error with exit code 2, and so are processes of different builds.
  static Status join(const ProcessOptions &options,
                     std::shared_ptr<Processes> &result);

  /// Follows the ranks that the process has.
  int number() const;
  int count() const;
  int ranks() const; ///< of all processes
  /// ProcessOptions::tells of all processes, by their numbers.
  const std::vector<std::string> &told() const;
  /// The ranks of each host, if numbers are not the launcher's (see
  /// ProcessOptions::nodes); else empty.
  std::string renumbering() const;
  /// Name of the transport: "Open MPI v4.1.4", "TCP".
  std::string transport() const;
  /// Memory that every rank takes for messages beside its arena, in bytes,
  /// without that of the transport's library.
  uint64_t bufferBytes() const;
  /// The most bytes of messages that the transport of this process has held
  /// beside the memory of those who sent or receive them, added up over its
  /// connections, and what that can be with those that it has now. Nothing
  /// where the library does not tell.
  struct Held {
    uint64_t most, limit;
  };
  std::optional<Held> heldBytes() const;

  /// Compares the terms of all processes, before any relies on those of
  /// another. `own` is how this process has fared until now. Every process
  /// returns the same: success; the first failure of any, with its exit code;
  /// or exit code 2 and which processes differ in what. Collective; waits
  /// without a limit, as long as all live.
  Status agree(const Status &own, const std::vector<Term> &terms);
  /// `text` becomes that of process 0. Collective, as `agree`.
  Status share(std::string &text);

  /// Ends the run on this process; the exit code. Success waits for the others.
  /// A failure ends the others too, and process 0 prints it; does not return
  /// then.
  int finish(const Status &status);
  /// Ends a run without a failure, and leaves the process alone: waits for the
  /// others. Nothing of the run is of use behind it.
  Status leave();
  /// World of these processes, for the options of a session.
  std::shared_ptr<World> world();

  struct Implementation;

private:
  Processes();
  std::shared_ptr<Implementation> impl;
};

} // namespace grt

#endif // GRT_PROCESSES_H
