//===- ThreadsTest.cpp - Independent parts on several threads -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/Threads.h"

#include "gtest/gtest.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

using namespace galvatron;

namespace {

TEST(ThreadsTest, CallsEachPartOnce) {
  for (unsigned count : {1u, 2u, 3u, 8u})
    for (size_t parts : {size_t(0), size_t(1), size_t(2), size_t(100)}) {
      Threads threads(count);
      EXPECT_EQ(threads.count(), count);
      std::vector<std::atomic<int>> calls(parts);
      threads.forEach(parts, [&](size_t i) { ++calls[i]; });
      for (const std::atomic<int> &of : calls)
        EXPECT_EQ(of, 1);
    }
}

TEST(ThreadsTest, WithoutThreadsPartsRunInOrder) {
  std::vector<size_t> order;
  forEachOn(nullptr, 3, [&](size_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2}));
  Threads one(1);
  forEachOn(&one, 3, [&](size_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 0, 1, 2}));
}

TEST(ThreadsTest, NoneMeansOneForEachProcessor) {
  EXPECT_GE(Threads(0).count(), 1u);
}

// Parts run at the same time on as many threads: each waits for all.
TEST(ThreadsTest, PartsRunBesideEachOther) {
  Threads threads(3);
  std::mutex mutex;
  std::condition_variable changed;
  int arrived = 0;
  threads.forEach(3, [&](size_t) {
    std::unique_lock lock(mutex);
    ++arrived;
    changed.notify_all();
    changed.wait(lock, [&] { return arrived == 3; });
  });
  EXPECT_EQ(arrived, 3);
}

TEST(ThreadsTest, PartsMayHaveParts) {
  Threads threads(2);
  std::atomic<int> calls = 0;
  threads.forEach(5, [&](size_t) {
    threads.forEach(
        5, [&](size_t) { threads.forEach(2, [&](size_t) { ++calls; }); });
  });
  EXPECT_EQ(calls, 50);
}

} // namespace
