//===- short_backend.cpp - A plug-in of another age -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// libgrt_short.so: the kernels of the reference backend behind a table that
// ends where an older backend's did. GRT_TEST_KERNELS is how many kernels it
// has. What stands behind its end is not for anybody to read.
//
//===----------------------------------------------------------------------===//

#include "reference_backend.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>

extern "C" __attribute__((visibility("default"))) const grt_backend *
grt_backend_get(void) {
  static grt_backend table = [] {
    constexpr size_t end = offsetof(grt_backend, map_arena);
    grt_backend made;
    std::memset(static_cast<void *>(&made), 0x5a, sizeof(made));
    std::memcpy(static_cast<void *>(&made), grt::test::referenceBackend(), end);
    made.bytes = end;
    made.name = "short";
    return made;
  }();
  const char *kernels = std::getenv("GRT_TEST_KERNELS");
  table.kernel_count =
      kernels ? uint32_t(std::atoi(kernels)) : uint32_t(GRT_KERNEL_COUNT);
  return &table;
}
