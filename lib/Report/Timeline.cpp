//===- Timeline.cpp - When each stage works on what -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Report/Timeline.h"
#include "galvatron/Schedule/TaskProgram.h"

#include <algorithm>
#include <cassert>

namespace galvatron {

Timeline placeSchedule(const Plan &plan) {
  auto stages = static_cast<int64_t>(plan.stages.size());
  TaskProgram program = makeSchedule(plan.schedule, stages, plan.microBatches);
  constexpr double notYet = -1;
  std::vector<double> row(plan.microBatches, notYet);
  std::vector<std::vector<double>> forwardEnd(stages, row),
      backwardEnd(stages, row);
  std::vector<double> clock(stages, 0);
  std::vector<size_t> next(stages, 0);
  Timeline timeline(stages);

  // Rounds over the stages, each going as far as its inputs are there.
  for (bool progress = true; progress;) {
    progress = false;
    for (int64_t s = 0; s < stages; ++s) {
      const std::vector<Task> &tasks =
          program.roles[s].part(SchedulePart::Steady);
      for (; next[s] < tasks.size(); ++next[s], progress = true) {
        const Task &task = tasks[next[s]];
        bool forward = task.kind == TaskKind::Forward;
        if (!forward && task.kind != TaskKind::Backward)
          continue; // transfers are in the stages' times
        int64_t mb = task.microBatch;
        double ready = 0;
        if (forward && s > 0)
          ready = forwardEnd[s - 1][mb];
        if (!forward)
          ready = s + 1 < stages ? backwardEnd[s + 1][mb] : forwardEnd[s][mb];
        if (ready == notYet)
          break;
        const PlanStage &stage = plan.stages[s];
        TimelineSpan span;
        span.kind = forward ? TimelineSpan::Kind::Forward
                            : TimelineSpan::Kind::Backward;
        span.microBatch = mb;
        span.beginMs = std::max(clock[s], ready);
        span.endMs =
            span.beginMs +
            (forward ? stage.forwardMs : stage.timeNosyncMs - stage.forwardMs);
        clock[s] = span.endMs;
        (forward ? forwardEnd : backwardEnd)[s][mb] = span.endMs;
        timeline[s].push_back(span);
      }
    }
  }
  for (int64_t s = 0; s < stages; ++s) {
    assert(next[s] == program.roles[s].part(SchedulePart::Steady).size() &&
           "a sound schedule comes to its end");
    double sync = plan.stages[s].timeMs - plan.stages[s].timeNosyncMs;
    if (sync > 0)
      timeline[s].push_back({TimelineSpan::Kind::Sync, /*microBatch=*/-1,
                             clock[s], clock[s] + sync});
  }
  return timeline;
}

double timelineEnd(const Timeline &timeline) {
  double end = 0;
  for (const std::vector<TimelineSpan> &spans : timeline)
    if (!spans.empty())
      end = std::max(end, spans.back().endMs);
  return end;
}

} // namespace galvatron
