//===- heap_counter.cpp - A malloc that counts ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// No part of the library: a program that links this file (target
// grt_heap_counter) stands before the C library in the search order, so that
// everything in its process calls the functions below. They forward to the C
// library and count, by thread. Under a sanitizer, whose allocator stands
// first, nothing is replaced or counted.
//
//===----------------------------------------------------------------------===//

#include "base/allocation.h"

#include <cerrno>
#include <cstddef>
#include <malloc.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) &&                    \
    !defined(__SANITIZE_THREAD__)

namespace {

struct Count {
  int64_t live;
  int64_t peak;
  int paused; ///< depth of UncountedAllocations
};

// Initial-exec: the first access must not allocate, it happens inside malloc.
thread_local Count count __attribute__((tls_model("initial-exec"))) = {0, 0, 0};

constexpr grt::HeapCounter counter = {[] { count.live = count.peak = 0; },
                                      [] { return uint64_t(count.peak); },
                                      [](int more) { count.paused += more; }};

[[maybe_unused]] const bool isUsed = [] {
  grt::useHeapCounter(&counter);
  return true;
}();

void *taken(void *memory) {
  if (memory && !count.paused) {
    count.live += int64_t(malloc_usable_size(memory));
    if (count.live > count.peak)
      count.peak = count.live;
  }
  return memory;
}

void *given(void *memory) {
  if (memory && !count.paused)
    count.live -= int64_t(malloc_usable_size(memory));
  return memory;
}

} // namespace

extern "C" {

void *__libc_malloc(size_t);
void __libc_free(void *);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

void *malloc(size_t bytes) { return taken(__libc_malloc(bytes)); }
void free(void *memory) { __libc_free(given(memory)); }
void *calloc(size_t number, size_t bytes) {
  return taken(__libc_calloc(number, bytes));
}
void *realloc(void *memory, size_t bytes) {
  given(memory);
  void *moved = __libc_realloc(memory, bytes);
  // A failed realloc leaves the old block; realloc(p, 0) frees it.
  if (!moved && bytes)
    taken(memory);
  return taken(moved);
}
void *memalign(size_t alignment, size_t bytes) {
  return taken(__libc_memalign(alignment, bytes));
}
void *aligned_alloc(size_t alignment, size_t bytes) {
  return taken(__libc_memalign(alignment, bytes));
}
int posix_memalign(void **result, size_t alignment, size_t bytes) {
  if (alignment < sizeof(void *) || (alignment & (alignment - 1)))
    return EINVAL;
  void *memory = taken(__libc_memalign(alignment, bytes));
  if (!memory)
    return ENOMEM;
  *result = memory;
  return 0;
}

} // extern "C"

#endif
