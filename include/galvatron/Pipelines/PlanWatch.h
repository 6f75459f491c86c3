//===- PlanWatch.h - Ends and shows a search --------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The watch of a tool over a running search: it ends the search after
// `--time-limit` or at Ctrl-C, and say on a terminal how far it is.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PIPELINES_PLANWATCH_H
#define GALVATRON_PIPELINES_PLANWATCH_H

#include "galvatron/Planner/Planner.h"

namespace galvatron {

/// 128 + SIGINT, as shells have it.
inline constexpr int kExitInterrupted = 130;

class PlanWatch {
public:
  PlanWatch() = default;
  PlanWatch(const PlanWatch &) = delete;
  PlanWatch &operator=(const PlanWatch &) = delete;
  ~PlanWatch() { end(); }

  /// Makes the first SIGINT request the end of planning from now on (a second
  /// one ends the process, as without this), and so does the limit of
  /// `options.cancellation`, which counts from now. Where standard error is a
  /// terminal it gets a line of progress. To be called once; the options must
  /// not outlive this object.
  void begin(PlannerOptions &options, std::optional<double> limitSeconds);
  /// Planning is over: clears the line, and SIGINT ends the process again.
  void end();
  /// Whether there was a SIGINT since begin().
  bool interrupted() const { return cancellation.interrupted(); }

private:
  void show(const PlannerProgress &progress);

  Cancellation cancellation;
  std::chrono::steady_clock::time_point lastShown;
  bool begun = false, shown = false;
};

/// "batch 512: 34 shapes done, 12 open, best 201.52 samples/s, within 1.8%".
std::string progressLine(const PlannerProgress &progress);

} // namespace galvatron

#endif // GALVATRON_PIPELINES_PLANWATCH_H
