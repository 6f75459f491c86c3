//===- allocation.cpp - Counting what is taken from the heap --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/allocation.h"

#include <atomic>

namespace grt {
namespace {

// Set before there are threads that ask.
std::atomic<const HeapCounter *> used = nullptr;

void pause(int more) {
  if (const HeapCounter *counter = used.load(std::memory_order_relaxed))
    counter->pause(more);
}

} // namespace

void useHeapCounter(const HeapCounter *counter) { used = counter; }

void beginAllocationCount() {
  if (const HeapCounter *counter = used.load(std::memory_order_relaxed))
    counter->begin();
}

uint64_t allocationPeakBytes() {
  const HeapCounter *counter = used.load(std::memory_order_relaxed);
  return counter ? counter->peakBytes() : 0;
}

UncountedAllocations::UncountedAllocations() { pause(1); }
UncountedAllocations::~UncountedAllocations() { pause(-1); }

} // namespace grt
