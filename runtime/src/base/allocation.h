//===- allocation.h - Counting what is taken from the heap ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The library replaces no allocator: that is for the program that it is in. One
// that links heap_counter.cpp (galvatron-run and the tests) has a `malloc`
// family that counts by thread, kernels and third-party libraries included. In
// any other, counts stay zero.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BASE_ALLOCATION_H
#define GRT_BASE_ALLOCATION_H

#include <cstdint>

namespace grt {

/// What counts in this process, by thread.
struct HeapCounter {
  void (*begin)();         ///< from zero on
  uint64_t (*peakBytes)(); ///< most that were held at once since then
  void (*pause)(int more); ///< counts nothing while the sum of these is not 0
};

/// Makes `counter`, which must live as long as the process, the one that is
/// asked. To be called before sessions are made.
void useHeapCounter(const HeapCounter *counter);

/// Starts counting from zero on this thread.
void beginAllocationCount();
/// Highest number of bytes that this thread held at once since then; 0 where
/// nothing counts.
uint64_t allocationPeakBytes();

/// While one lives, this thread counts nothing: what a library takes and gives
/// back inside belongs to the process, whichever rank's thread is passing by.
class UncountedAllocations {
public:
  UncountedAllocations();
  ~UncountedAllocations();
  UncountedAllocations(const UncountedAllocations &) = delete;
  UncountedAllocations &operator=(const UncountedAllocations &) = delete;
};

} // namespace grt

#endif // GRT_BASE_ALLOCATION_H
