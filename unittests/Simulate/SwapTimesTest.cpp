//===- SwapTimesTest.cpp - What copies beside computation take ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One device, one micro-batch, four chunks of one layer: what a step takes is
// known by hand. Copies and computation are added up where one thread does
// both, gradients leave beside what comes next where a stream takes them, and
// with a second place a chunk takes the longer of its computation and the copy
// of the next one.
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "galvatron/Schedule/SwapOrder.h"
#include "galvatron/Simulate/Simulate.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

constexpr int64_t kChunks = 4;

/// Seconds of a chunk.
struct Times {
  double forward, backward, parameters, gradients, norm = 0, update = 0;
};

double stepOf(const Times &times, bool streams, bool ahead,
              bool justInTime = false) {
  ScheduleShape shape{1, 1, kChunks, ahead ? 2 : 1, justInTime};
  shape.bringsAhead = ahead;
  SimulationInput input;
  input.program = scheduleNamed("interleaved").build(shape);
  if (streams)
    llvm::cantFail(assignSwapStreams(input.program));
  SimulatedRole role;
  role.devices = {0};
  for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
    SimulatedLayer layer;
    layer.time.forward = times.forward;
    layer.time.backward = times.backward;
    layer.time.swapParameters = times.parameters;
    layer.time.swapGradients = times.gradients;
    layer.time.norm = times.norm;
    layer.time.update = times.update;
    role.layers.push_back(layer);
    role.chunkEnds.push_back(size_t(chunk) + 1);
  }
  input.roles = {role};
  SimulatedCut cut;
  cut.senderGroup = cut.receiverGroup = {0};
  input.cuts.assign(kChunks - 1, cut);
  llvm::Expected<Simulation> simulation = simulate(input, {});
  EXPECT_TRUE(bool(simulation)) << llvm::toString(simulation.takeError());
  return simulation ? simulation->seconds : -1;
}

/// The last chunk stays from forward to backward: seven copies in, four out.
TEST(SwapTimes, OneThreadDoesOneAfterTheOther) {
  Times times{1, 2, 0.25, 0.5, 0.125, 1};
  EXPECT_DOUBLE_EQ(stepOf(times, /*streams=*/false, /*ahead=*/false),
                   4 * 3 + 7 * 0.25 + 4 * 0.5 + 4 * 0.125 + 4 * 1);
}

/// Parameters come when the chunk before is done; gradients leave beside what
/// comes next, but the last ones.
TEST(SwapTimes, GradientsLeaveBesideTheNextChunk) {
  Times times{1, 2, 0.25, 0.125, 0.125, 1};
  EXPECT_DOUBLE_EQ(stepOf(times, /*streams=*/true, /*ahead=*/false),
                   4 * 3 + 7 * 0.25 + 0.125 + 4 * 0.125 + 4 * 1);
  // There is one place for sums: the next chunk waits for those that leave.
  times.gradients = 4;
  EXPECT_DOUBLE_EQ(stepOf(times, /*streams=*/true, /*ahead=*/false),
                   4 * 1 + 4 * 0.25 + 4 * (2 + 4) + 4 * 0.125 + 4 * 1);
}

/// Six copies in, as two chunks stay; all but the first beside computation.
TEST(SwapTimes, AheadTheLongerOneCounts) {
  Times times{1, 2, 0.25, 0.5, 0.125, 1};
  EXPECT_DOUBLE_EQ(stepOf(times, /*streams=*/true, /*ahead=*/true),
                   0.25 + 4 * 3 + 0.5 + 4 * 0.125 + 4 * 1);
  // Copies are longer than forward passes and shorter than backward ones: the
  // first two come one after the other, then one waits for a place each time.
  times.parameters = 1.5;
  EXPECT_DOUBLE_EQ(stepOf(times, /*streams=*/true, /*ahead=*/true),
                   1.5 + 1.5 + 1.5 + 1.5 + 1 + 4 * 2 + 0.5 + 4 * 0.125 + 4 * 1);
}

/// What is done at home holds up what the host puts on streams behind it: the
/// copy in of the next chunk, which else runs beside the one out.
TEST(SwapTimes, UpdatesJustInTime) {
  Times times{1, 2, 0.25, 0.5, 0, 1};
  double late = stepOf(times, /*streams=*/true, /*ahead=*/false);
  double soon = stepOf(times, /*streams=*/true, /*ahead=*/false,
                       /*justInTime=*/true);
  EXPECT_DOUBLE_EQ(soon, late + 3 * 0.25);
}

} // namespace
