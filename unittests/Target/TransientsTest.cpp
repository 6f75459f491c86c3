//===- TransientsTest.cpp - Placement of temporaries ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/Transforms/Transients.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

using namespace mlir::grt;

namespace {

void expectSound(const std::vector<Interval> &intervals, int64_t bytes) {
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Interval &a = intervals[i];
    EXPECT_GE(a.offset, 0);
    EXPECT_EQ(a.offset % kAlignment, 0);
    EXPECT_LE(a.offset + a.bytes, bytes);
    for (size_t j = 0; j < i; ++j) {
      const Interval &b = intervals[j];
      bool inTime = a.begin <= b.end && b.begin <= a.end;
      bool inSpace =
          a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      EXPECT_FALSE(inTime && inSpace) << i << " and " << j;
    }
  }
}

TEST(TransientsTest, empty_and_single) {
  std::vector<Interval> none;
  EXPECT_EQ(placeIntervals(none), 0);
  std::vector<Interval> one{{3, 5, 128}};
  EXPECT_EQ(placeIntervals(one), 128);
  EXPECT_EQ(one[0].offset, 0);
}

TEST(TransientsTest, dead_buffers_are_used_again) {
  std::vector<Interval> chain{{0, 1, 256}, {1, 2, 64}, {2, 3, 256}};
  EXPECT_EQ(placeIntervals(chain), 320);
  expectSound(chain, 320);
}

TEST(TransientsTest, random_placements_are_sound_and_near_the_lower_bound) {
  std::mt19937 random(1);
  double worst = 1;
  double sum = 0;
  const int rounds = 300;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Interval> intervals;
    int64_t count = 1 + random() % 60;
    for (int64_t i = 0; i < count; ++i) {
      int64_t begin = random() % 80;
      intervals.push_back({begin, begin + int64_t(random() % 20),
                           kAlignment * int64_t(1 + random() % 64)});
    }
    int64_t bytes = placeIntervals(intervals);
    expectSound(intervals, bytes);
    double ratio = double(bytes) / double(peakBytes(intervals));
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  RecordProperty("mean-over-bound", std::to_string(sum / rounds));
  // Random lives are harder than those of layer functions, and the bound cannot
  // always be reached.
  EXPECT_LT(worst, 1.25);
  EXPECT_LT(sum / rounds, 1.03);
}

TEST(TransientsTest, sixty_buffers_take_well_under_a_millisecond) {
  std::mt19937 random(2);
  std::vector<Interval> intervals;
  for (int i = 0; i < 60; ++i) {
    int64_t begin = i * 2 + int64_t(random() % 4);
    intervals.push_back({begin, begin + 1 + int64_t(random() % 30),
                         kAlignment * int64_t(1 + random() % 512)});
  }
  auto start = std::chrono::steady_clock::now();
  const int rounds = 100;
  for (int i = 0; i < rounds; ++i)
    placeIntervals(intervals);
  double ms = std::chrono::duration<double, std::milli>(
                  std::chrono::steady_clock::now() - start)
                  .count() /
              rounds;
  llvm::outs() << "placement of 60 buffers: " << llvm::formatv("{0:f3}", ms)
               << " ms, "
               << llvm::formatv("{0:f3}", double(placeIntervals(intervals)) /
                                              double(peakBytes(intervals)))
               << " of the lower bound\n";
  EXPECT_LT(ms, 20);
}

} // namespace
