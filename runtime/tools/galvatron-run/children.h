//===- children.h - Processes that a process starts -------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_CHILDREN_H
#define GALVATRON_RUN_CHILDREN_H

#include <cstddef>
#include <functional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

/// The end of a process: by an exit code, or by a signal.
struct ChildEnd {
  int exitCode = 0;
  int signal = 0; ///< 0: none
};

using Variables = std::vector<std::pair<std::string, std::string>>;

/// The most children at a time.
inline constexpr size_t mostChildren = 1024;

/// Passes signals to this process on to its children from here on: those that
/// ask a run to end (SIGINT, SIGTERM, SIGHUP; see askedToEnd) and those that
/// ask it for something else (SIGUSR1, SIGUSR2). One of the first that is
/// ignored, as under nohup, stays so.
void passSignalsOn();

/// Lets SIGUSR1 and SIGUSR2 come, which wait while a child has no handlers yet.
void unblockWishes();

/// The signal that has asked this process to end; 0: none. A child that starts
/// behind it gets it at once.
int askedToEnd();

/// Starts this program again with these arguments (null at the end) and the
/// environment with `variables` set. The child has a process group of its own,
/// as a terminal's signals come through this process and once, and is asked to
/// end (SIGTERM) when this process dies. -1 if it cannot be started, which is
/// said on standard error.
pid_t startChild(const std::vector<char *> &arguments,
                 const Variables &variables);

/// Waits until the child has ended.
ChildEnd waitForChild(pid_t child);

/// The child that has ended first of those that have not been waited for; 0 if
/// none has within `seconds`.
pid_t waitForAnyChild(double seconds, ChildEnd &end);

/// Sends a signal to all children that have not been waited for.
void signalChildren(int signal);

/// The seconds that children have once one of them has ended badly.
struct Patience {
  double toEnd;  ///< to end on their own; then they are asked to (SIGTERM)
  double toSave; ///< to end once they are asked; then they are killed
};

/// Waits for so many children, each of which is given to `note` when it has
/// ended. One that `isBad` ends the others within the patience, whatever they
/// do; with `failed` they are asked to end already.
void waitForChildren(int left, bool failed, const Patience &patience,
                     const std::function<bool(const ChildEnd &)> &isBad,
                     const std::function<void(pid_t, const ChildEnd &)> &note);

#endif // GALVATRON_RUN_CHILDREN_H
