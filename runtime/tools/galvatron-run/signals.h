//===- signals.h - Ending a run from outside ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_SIGNALS_H
#define GALVATRON_RUN_SIGNALS_H

#include <cstdint>

/// The requests to a run while it trains, as bits that the processes of a run
/// have in common (Session::anywhere), behind the step that they hold for.
enum Request : uint32_t {
  EndBySigint = 1,
  EndBySigterm = 2,
  EndBySighup = 4,
  EndByPipe = 8,  ///< nobody reads the lines, and nothing else would be left
  EndByTime = 16, ///< --max-seconds
  CheckpointNow = 32,
  StillWriting = 64, ///< a process is not through with the checkpoint behind
  TraceNow = 128,    ///< the next steps are recorded
  /// A checkpoint that could not be written is due again.
  RetryCheckpoint = 256,
};
inline constexpr uint32_t endRequests = CheckpointNow - 1;

/// The way in which a run that was asked to end says so.
struct Ending {
  const char *word; ///< the summary's `ended-by`
  int exitCode;
};
/// Returns the ending for the first of the bits in `endRequests` that is set.
Ending endingOf(uint32_t requests);

/// Writing to a pipe without a reader, or over the process's limit of a file's
/// size, becomes an error of the write instead of a signal.
void makeWritesFail();

/// Catches SIGUSR1, which asks for a checkpoint, and SIGUSR2, for a trace of
/// the next steps; a run that has not begun yet sees to it behind its first
/// step.
void catchWishes();

/// Catches SIGINT, SIGTERM and SIGHUP: the first is only noted, and another of
/// its kind ends the process as usual, unless it follows so soon (within 1 to 2
/// seconds) that both are one request, sent twice. A SIGHUP that the process
/// was started to ignore (nohup) stays ignored.
void catchSignals();

/// The requests that signals made: to end, once and for all; for a checkpoint
/// or a trace, since the last call.
uint32_t takeRequests();

#endif // GALVATRON_RUN_SIGNALS_H
