//===- TimelineTest.cpp - When each stage works on what -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Report/Timeline.h"

#include "gtest/gtest.h"

#include <map>
#include <random>

using namespace galvatron;

namespace {

using Kind = TimelineSpan::Kind;

Plan pipeline(ScheduleKind schedule, int64_t microBatches,
              std::vector<std::pair<double, double>> forwardBackward,
              double sync = 0) {
  Plan plan;
  plan.schedule = schedule;
  plan.microBatches = microBatches;
  plan.pipelineDegree = static_cast<int64_t>(forwardBackward.size());
  for (auto [forward, backward] : forwardBackward) {
    PlanStage stage;
    stage.forwardMs = forward;
    stage.timeNosyncMs = forward + backward;
    stage.timeMs = forward + backward + sync;
    plan.stages.push_back(stage);
  }
  return plan;
}

TEST(Timeline, equal_stages_end_when_the_formula_says) {
  for (ScheduleKind schedule : {ScheduleKind::GPipe, ScheduleKind::OneFOneB})
    for (int64_t stages : {1, 2, 4, 7})
      for (int64_t m : {1, 3, 16}) {
        Plan plan = pipeline(
            schedule, m,
            std::vector<std::pair<double, double>>(stages, {1.0, 2.0}));
        double expected = 3.0 * static_cast<double>(m - 1 + stages);
        EXPECT_NEAR(timelineEnd(placeSchedule(plan)), expected, 1e-9)
            << stages << " stages, " << m << " micro-batches";
      }
}

TEST(Timeline, tasks_wait_for_their_inputs_and_for_each_other) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> time(0.5, 3);
  for (int round = 0; round < 40; ++round) {
    int64_t stages = 1 + round % 6, m = 1 + round % 9;
    std::vector<std::pair<double, double>> times;
    for (int64_t s = 0; s < stages; ++s)
      times.push_back({time(random), time(random)});
    Plan plan =
        pipeline(round % 2 ? ScheduleKind::GPipe : ScheduleKind::OneFOneB, m,
                 times, 0.25);
    Timeline timeline = placeSchedule(plan);
    ASSERT_EQ(timeline.size(), static_cast<size_t>(stages));
    std::map<std::tuple<int64_t, Kind, int64_t>, TimelineSpan> spans;
    for (int64_t s = 0; s < stages; ++s) {
      double clock = 0;
      for (const TimelineSpan &span : timeline[s]) {
        EXPECT_GE(span.beginMs, clock);
        clock = span.endMs;
        spans[{s, span.kind, span.microBatch}] = span;
      }
      EXPECT_EQ(timeline[s].size(), static_cast<size_t>(2 * m + 1));
      EXPECT_EQ(timeline[s].back().kind, Kind::Sync);
      EXPECT_NEAR(timeline[s].back().durationMs(), 0.25, 1e-12);
    }
    for (const auto &[key, span] : spans) {
      auto [s, kind, mb] = key;
      if (kind == Kind::Forward) {
        EXPECT_NEAR(span.durationMs(), times[s].first, 1e-9);
        if (s > 0) {
          EXPECT_GE(span.beginMs, spans.at({s - 1, kind, mb}).endMs);
        }
      }
      if (kind == Kind::Backward) {
        EXPECT_NEAR(span.durationMs(), times[s].second, 1e-9);
        EXPECT_GE(span.beginMs, spans.at({s, Kind::Forward, mb}).endMs);
        if (s + 1 < stages) {
          EXPECT_GE(span.beginMs, spans.at({s + 1, kind, mb}).endMs);
        }
      }
    }
  }
}

} // namespace
