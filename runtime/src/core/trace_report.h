//===- trace_report.h - What recorded steps amount to -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Recordings of several ranks together tell what no rank knows alone: how much
// of a communication was waiting for the last member to come. Everything here
// runs after the steps, on the caller's thread.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_TRACE_REPORT_H
#define GRT_CORE_TRACE_REPORT_H

#include "core/manifest.h"
#include "core/trace.h"
#include "grt/session.h"

namespace grt {

struct RankRecording {
  const Recorder *recorder = nullptr;
  int role = 0;
  uint64_t plannedBytes = 0;
};

class TraceReport {
public:
  /// Ranks ascending. The recorders must outlive the report.
  TraceReport(const Program &program, std::vector<RankRecording> ranks);

  /// Steps that all ranks recorded.
  size_t stepCount() const { return windows.size(); }
  TimeShares measured() const;
  /// Of the cost model; false if the program does not have its times.
  bool predicted(TimeShares &shares) const;
  /// By layer of the model, see Session::layerSeconds.
  std::vector<LayerSeconds> layerSeconds() const;
  /// The last step, of at most so many ranks, one of each stage.
  StepPicture picture(size_t mostRanks) const;
  /// Chrome trace event format. Throws Error with exit code 1.
  void write(const std::string &path) const;

private:
  /// A step, from the first rank's begin to the last rank's end.
  struct Window {
    uint32_t step;
    uint64_t begin, end;
  };
  void findWindows();
  void findWaits();

  const Program &program;
  const Manifest &manifest;
  std::vector<RankRecording> ranks;
  std::vector<Window> windows;
  /// By rank and event: nanoseconds of a communication before its last member
  /// had come.
  std::vector<std::vector<uint64_t>> waits;
  std::optional<PredictedStep> prediction;
};

/// "forward chunk 0 mb 3 slot 1". `transfers` is the table of parts of the
/// task's role.
std::string taskText(const grt_task &task, const grt_transfer_part *transfers);

} // namespace grt

#endif // GRT_CORE_TRACE_REPORT_H
