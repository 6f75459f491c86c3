//===- rank_test.cpp - The order in which a rank lets things go -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// NCCL waits, when a communicator ends or is aborted, for every graph that
// captured one of its operations. So graphs go before communicators do, and an
// abort, which does not wait, is followed by the end of all graphs, whoever has
// them in hand.
//
//===----------------------------------------------------------------------===//

#include "rank.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>

using namespace grt::cuda;
using Calls = std::vector<std::string>;

namespace {

/// What the device was asked for, in order; streams and events left out.
Calls calls;
uintptr_t handles = 0;
bool captures = false;
int synchronised = 0;
std::thread::id captureThread;
/// Called when a graph is started.
std::function<void()> whenLaunched;

template <class Handle> Handle newHandle() {
  return reinterpret_cast<Handle>(++handles);
}

struct TestMembership : Membership {
  ~TestMembership() override { calls.push_back("end membership"); }
  void abort() override {
    if (!done.exchange(true))
      calls.push_back("abort membership");
  }
  bool awaitAbort(std::chrono::milliseconds) override { return comesBack; }
  std::atomic<bool> done = false;
  bool comesBack = true;
};

} // namespace

namespace grt::cuda {

namespace gpu {

void use() {}
void *allocate(uint64_t bytes) { return std::malloc(bytes); }
void release(void *memory) { std::free(memory); }
void *allocateHost(uint64_t bytes) { return std::malloc(bytes); }
void releaseHost(void *memory) { std::free(memory); }
void *addressOnDevice(void *hostMemory) { return hostMemory; }
uint64_t bytesInUse() { return 0; }
Stream makeStream(bool) { return newHandle<Stream>(); }
void destroyStream(Stream) {}
void synchronise(Stream) {
  EXPECT_FALSE(captures);
  ++synchronised;
}
Event makeEvent(bool) { return newHandle<Event>(); }
void destroyEvent(Event) {}
void record(Stream, Event) {}
void await(Event) { EXPECT_FALSE(captures); }
void wait(Stream, Event) {}
double millisecondsBetween(Event, Event) { return 0; }
void beginCapture(Stream) {
  captures = true;
  captureThread = std::this_thread::get_id();
}
Graph endCapture(Stream) {
  EXPECT_TRUE(captures);
  EXPECT_EQ(captureThread, std::this_thread::get_id());
  captures = false;
  calls.push_back("end capture");
  return newHandle<Graph>();
}
void dropCapture(Stream) {
  EXPECT_TRUE(captures);
  EXPECT_EQ(captureThread, std::this_thread::get_id());
  captures = false;
  calls.push_back("drop capture");
}
void launchGraph(Graph, Stream) {
  calls.push_back("launch");
  if (whenLaunched)
    whenLaunched();
}
void destroyGraph(Graph) { calls.push_back("destroy graph"); }

} // namespace gpu

std::unique_ptr<Products> openProducts() { return nullptr; }
std::unique_ptr<FusedAttention> openFusedAttention() { return nullptr; }

} // namespace grt::cuda

namespace {

class CudaRank : public testing::Test {
protected:
  CudaRank() {
    calls.clear();
    whenLaunched = nullptr;
    rank = std::make_unique<Rank>();
    rank->setMembership(std::make_unique<TestMembership>());
  }
  void makeGraph(uint32_t number) {
    rank->beginGraph();
    rank->endGraph(number);
    std::erase(calls, "end capture");
  }
  void abortFromElsewhere() {
    std::thread([&] { rank->abort(); }).join();
  }
  std::unique_ptr<Rank> rank;
};

TEST_F(CudaRank, GraphsGoBeforeWhatTheyCaptured) {
  makeGraph(0);
  makeGraph(1);
  rank.reset();
  EXPECT_EQ(calls, (Calls{"destroy graph", "destroy graph", "end membership"}));
}

TEST_F(CudaRank, AbortTakesGraphsAway) {
  makeGraph(0);
  makeGraph(1);
  rank->launchGraph(0);
  abortFromElsewhere();
  EXPECT_EQ(calls, (Calls{"launch", "abort membership", "destroy graph",
                          "destroy graph"}));
  EXPECT_THROW(rank->launchGraph(0), DeviceError);
  EXPECT_THROW(rank->beginGraph(), DeviceError);
  abortFromElsewhere();
  rank.reset();
  EXPECT_EQ(calls.size(), 5u);
  EXPECT_EQ(calls.back(), "end membership");
}

/// The rank's own thread ends what it captures, and then takes graphs away.
TEST_F(CudaRank, AGraphThatIsBeingMadeGoesWhenItEnds) {
  makeGraph(0);
  rank->beginGraph();
  abortFromElsewhere();
  EXPECT_EQ(calls, Calls{"abort membership"});
  EXPECT_THROW(rank->endGraph(1), DeviceError);
  EXPECT_EQ(calls, (Calls{"abort membership", "end capture", "destroy graph",
                          "destroy graph"}));
}

TEST_F(CudaRank, AGraphThatWasNeverEndedIsDroppedFirst) {
  makeGraph(0);
  rank->beginGraph();
  abortFromElsewhere();
  rank.reset();
  EXPECT_EQ(calls, (Calls{"abort membership", "drop capture", "destroy graph",
                          "end membership"}));
}

TEST_F(CudaRank, AFailureInsideAGraphWithoutAbort) {
  rank->beginGraph();
  rank.reset();
  EXPECT_EQ(calls, (Calls{"drop capture", "end membership"}));
}

/// A start that hangs is what an abort has to end: it waits for none, and the
/// graph goes when its start returns.
TEST_F(CudaRank, AnAbortDoesNotWaitForAStart) {
  makeGraph(0);
  whenLaunched = [&] {
    abortFromElsewhere();
    calls.push_back("launched");
  };
  rank->launchGraph(0);
  EXPECT_EQ(calls,
            (Calls{"launch", "abort membership", "launched", "destroy graph"}));
}

/// Nothing that hangs is waited for, or taken from under it.
TEST_F(CudaRank, WhatAnAbortDoesNotEndIsLeftBehind) {
  makeGraph(0);
  static_cast<TestMembership &>(*rank->membership).comesBack = false;
  abortFromElsewhere();
  synchronised = 0;
  rank.reset();
  EXPECT_EQ(synchronised, 0);
  EXPECT_EQ(calls, (Calls{"abort membership", "destroy graph"}));
}

TEST_F(CudaRank, AGraphThatIsMadeAgainReplacesTheFirst) {
  makeGraph(0);
  makeGraph(0);
  EXPECT_EQ(calls, Calls{"destroy graph"});
}

} // namespace
