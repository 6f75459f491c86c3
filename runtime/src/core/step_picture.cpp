//===- step_picture.cpp - The last recorded step, for a drawing -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/trace_report.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace grt {
namespace {

/// Parts of a step that a drawing can tell apart; what is shorter is joined to
/// its neighbour, so that a picture of any step has a bounded size.
constexpr double kSeenParts = 1500;

using SpanKind = StepPicture::Kind;

SpanKind kindOf(const grt_task &task) {
  switch (task.kind) {
  case GRT_TASK_FORWARD:
    return SpanKind::Forward;
  case GRT_TASK_BACKWARD:
    return SpanKind::Backward;
  default:
    return SpanKind::Update;
  }
}

/// Of a predicted computation, which is named after its phase.
SpanKind kindOf(std::string_view what) {
  if (what == "forward")
    return SpanKind::Forward;
  bool isBackward = what == "backward" || what == "recompute";
  return isBackward ? SpanKind::Backward : SpanKind::Update;
}

/// Adds a span, or joins it to the last one of its kind where nobody could see
/// the difference.
void addSpan(std::vector<StepPicture::Span> &spans, StepPicture::Span span,
             double least) {
  if (span.end <= span.begin)
    return;
  if (!spans.empty()) {
    StepPicture::Span &last = spans.back();
    if (last.kind == span.kind && span.begin - last.end <= least) {
      last.end = std::max(last.end, span.end);
      return;
    }
  }
  spans.push_back(span);
}

/// The same of memory: of points that are drawn as one the highest counts.
void addPoint(std::vector<std::pair<double, uint64_t>> &points, double time,
              uint64_t bytes, double least) {
  if (points.empty() || time - points.back().first > least)
    points.emplace_back(time, bytes);
  else
    points.back().second = std::max(points.back().second, bytes);
}

} // namespace

StepPicture TraceReport::picture(size_t mostRanks) const {
  StepPicture picture;
  if (windows.empty())
    return picture;
  const Window &window = windows.back();
  constexpr double milli = 1e6; // nanoseconds
  picture.step = window.step;
  picture.measuredMs = double(window.end - window.begin) / milli;
  picture.predictedMs = prediction ? prediction->length / 1e3 : 0;
  double least = picture.measuredMs / kSeenParts;
  double leastPredicted = picture.predictedMs / kSeenParts;
  // Ranks of a stage do the same: one of each says most.
  std::set<int> drawn;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankRecording &recording = ranks[r];
    if (drawn.size() == mostRanks || !drawn.insert(recording.role).second)
      continue;
    StepPicture::Rank &rank = picture.ranks.emplace_back();
    rank.rank = recording.recorder->rank();
    rank.stage = manifest.roles[size_t(recording.role)].stage;
    rank.plannedBytes = recording.plannedBytes;
    std::span<const TraceEvent> events = recording.recorder->events();
    std::vector<StepPicture::Span> computed, moved;
    // What encloses others comes before them and ends behind them.
    std::vector<std::pair<double, uint64_t>> live;
    for (size_t e = 0; e < events.size(); ++e) {
      const TraceEvent &event = events[e];
      if (event.step != window.step || event.end < event.begin)
        continue;
      auto at = [&](uint64_t time) {
        return (double(time) - double(window.begin)) / milli;
      };
      bool onDevice = event.deviceEnd != 0;
      double begin = at(onDevice ? event.deviceBegin : event.begin);
      double end = at(onDevice ? event.deviceEnd : event.end);
      if (event.kind == TraceKind::Kernel)
        addSpan(computed, {kindOf(event.task), begin, end}, least);
      if (event.kind == TraceKind::Communication) {
        // What a device waits for is not known apart.
        double came = onDevice ? begin : begin + double(waits[r][e]) / milli;
        addSpan(moved, {SpanKind::Wait, begin, came}, least);
        addSpan(moved, {SpanKind::Communication, came, end}, least);
      } else {
        live.emplace_back(at(event.end), event.live);
      }
    }
    rank.measured = std::move(computed);
    rank.measured.insert(rank.measured.end(), moved.begin(), moved.end());
    std::sort(live.begin(), live.end());
    for (auto [time, bytes] : live)
      addPoint(rank.memory, time, bytes, least);
    if (!prediction)
      continue;
    computed.clear();
    moved.clear();
    for (const PredictedSpan &span :
         prediction->roles[size_t(recording.role)]) {
      StepPicture::Span each{SpanKind::Communication, span.begin / 1e3,
                             span.end / 1e3};
      if (span.row == PredictedRow::Communication)
        addSpan(moved, each, leastPredicted);
      each.kind = kindOf(span.what);
      if (span.row == PredictedRow::Compute)
        addSpan(computed, each, leastPredicted);
    }
    rank.predicted = std::move(computed);
    rank.predicted.insert(rank.predicted.end(), moved.begin(), moved.end());
  }
  return picture;
}

} // namespace grt
