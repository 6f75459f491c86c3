//===- kept_memory.h - Memory that is never given back --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A library that sends messages may have no way to take one back: until the
// process ends it may read, or write, memory that it was given. Owners of such
// memory leave it where it is.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BASE_KEPT_MEMORY_H
#define GRT_BASE_KEPT_MEMORY_H

#include <cstdint>

namespace grt {

/// Says that a library may use these bytes until the process ends. From any
/// thread.
void keepMemory(const void *begin, uint64_t bytes);
/// Whether one of these bytes is kept: their owner then never gives them back.
bool isKept(const void *begin, uint64_t bytes);
/// Bytes of all calls of `keepMemory`.
uint64_t keptMemoryBytes();

} // namespace grt

#endif // GRT_BASE_KEPT_MEMORY_H
