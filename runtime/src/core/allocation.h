//===- allocation.h - Counting what is taken from the heap ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The library stands before the C library in the search order of a process that
// links it, so its `malloc` family is the one that everything calls, kernels
// and third-party libraries included. It forwards to the C library and counts,
// per thread. Where another allocator stands first (a sanitizer's, say), counts
// stay zero.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_ALLOCATION_H
#define GRT_CORE_ALLOCATION_H

#include <cstdint>

namespace grt {

/// Starts counting from zero on this thread.
void beginAllocationCount();
/// Highest number of bytes that this thread held at once since then.
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

#endif // GRT_CORE_ALLOCATION_H
