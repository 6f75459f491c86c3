//===- Timeline.h - When each stage works on what ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The schedule of one step placed in time for the picture in the report: every
// task begins as soon as its stage is free and its input is there. Durations
// are those of the plan, in which transfers belong to the sending stage. With
// equal stages the step ends when Eq. 9 of arXiv 2307.02031 says; else it may
// end before or, where forward is slow on one stage and backward on another,
// after it.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_REPORT_TIMELINE_H
#define GALVATRON_REPORT_TIMELINE_H

#include "galvatron/Strategy/Plan.h"

namespace galvatron {

struct TimelineSpan {
  enum class Kind : uint8_t { Forward, Backward, Sync };

  Kind kind = Kind::Forward;
  int64_t microBatch = -1; ///< -1 for the gradient synchronisation
  double beginMs = 0, endMs = 0;

  double durationMs() const { return endMs - beginMs; }
};

/// Spans by stage, each in order of time.
using Timeline = std::vector<std::vector<TimelineSpan>>;

Timeline placeSchedule(const Plan &plan);
/// When the last stage has finished.
double timelineEnd(const Timeline &timeline);

} // namespace galvatron

#endif // GALVATRON_REPORT_TIMELINE_H
