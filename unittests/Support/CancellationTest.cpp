//===- CancellationTest.cpp - Deadlines and flags -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/Cancellation.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

TEST(Cancellation, requests_nothing_by_itself) {
  EXPECT_FALSE(Cancellation().requested());
  Cancellation far;
  far.setSeconds(1e300);
  EXPECT_FALSE(far.requested());
}

TEST(Cancellation, a_deadline_that_is_past) {
  Cancellation cancellation;
  cancellation.setSeconds(0);
  EXPECT_TRUE(cancellation.requested());
  EXPECT_FALSE(cancellation.interrupted());
}

TEST(Cancellation, the_clock_decides) {
  Cancellation::Clock::time_point time;
  Cancellation cancellation([&] { return time += std::chrono::seconds(1); });
  cancellation.setSeconds(3);
  EXPECT_FALSE(cancellation.requested());
  EXPECT_FALSE(cancellation.requested());
  EXPECT_TRUE(cancellation.requested());
}

TEST(Cancellation, a_raised_flag_ends_work) {
  volatile std::sig_atomic_t flag = 0;
  Cancellation cancellation;
  cancellation.setFlag(&flag);
  EXPECT_FALSE(cancellation.requested());
  flag = 1;
  EXPECT_TRUE(cancellation.requested());
  EXPECT_TRUE(cancellation.interrupted());
}

} // namespace
