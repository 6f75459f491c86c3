//===- load_test.cpp - The CUDA backend on a machine without a device -----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `grt-cuda-load-test --backend=PATH`. With a device a rank starts; without,
// the backend says what it lacks.
//
//===----------------------------------------------------------------------===//

#include "../windows.h"

#include "grt/backend.h"
#include "grt/cuda_bounds.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <dlfcn.h>
#include <span>
#include <string>

namespace {

std::string path;

const grt_backend *load() {
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    ADD_FAILURE() << dlerror();
    return nullptr;
  }
  auto get = reinterpret_cast<const grt_backend *(*)()>(
      dlsym(library, "grt_backend_get"));
  return get ? get() : nullptr;
}

TEST(Load, TheTableIsComplete) {
  const grt_backend *backend = load();
  ASSERT_TRUE(backend);
  EXPECT_EQ(backend->abi_version, uint32_t(GRT_ABI_VERSION));
  EXPECT_STREQ(backend->name, "cuda");
  EXPECT_EQ(backend->bytes, sizeof(grt_backend));
  ASSERT_EQ(backend->kernel_count, uint32_t(GRT_KERNEL_COUNT));
  for (grt_kernel_function kernel :
       std::span(backend->kernels, backend->kernel_count))
    EXPECT_TRUE(kernel);
  EXPECT_TRUE(backend->map_arena);
  EXPECT_TRUE(backend->failure);
  ASSERT_TRUE(backend->device);
  EXPECT_GE(backend->device->event_count, uint32_t(GRT_FUNCTION_EVENTS));
  ASSERT_TRUE(backend->device->local_collectives);
  EXPECT_STREQ(backend->device->local_collectives->name, "device");
}

TEST(Load, ARankStartsOrSaysWhyNot) {
  const grt_backend *backend = load();
  ASSERT_TRUE(backend);
  void *rank = backend->create_rank(0, 1);
  if (rank) {
    backend->destroy_rank(rank);
    return;
  }
  EXPECT_NE(std::string(backend->failure()).find("no CUDA device"),
            std::string::npos)
      << backend->failure();
  EXPECT_FALSE(backend->allocate(64));
}

TEST(Windows, RangesCoverTheArenaOnce) {
  constexpr uint64_t g = GRT_CUDA_GRANULE;
  // Two granules, a window of three in three slots of five, seven behind.
  grt_arena arena = {};
  arena.window_offset = 2 * g;
  arena.window_bytes = 3 * g;
  arena.window_stride = 5 * g;
  arena.window_count = 3;
  // What stands there once: 2, the window, 2 between the slots twice, 7 less a
  // bit.
  arena.bytes = (2 + 3 + 2 + 2 + 7) * g - 100;
  auto ranges = grt::cuda::mappedRanges(arena, g);
  uint64_t at = 0, windows = 0, plain = 0;
  for (const grt::cuda::MappedRange &range : ranges) {
    EXPECT_EQ(range.offset, at);
    at += range.bytes;
    if (!range.window) {
      plain += range.bytes;
      continue;
    }
    EXPECT_EQ(range.offset,
              arena.window_offset + windows * arena.window_stride);
    EXPECT_EQ(range.bytes, arena.window_bytes);
    ++windows;
  }
  EXPECT_EQ(windows, arena.window_count);
  EXPECT_EQ(plain + arena.window_bytes, 16 * g);
  EXPECT_EQ(at, 22 * g);
}

TEST(Windows, OddWindowsAreRefused) {
  grt_arena arena = {};
  arena.bytes = 100 * GRT_CUDA_GRANULE;
  arena.window_offset = 4096;
  arena.window_bytes = arena.window_stride = GRT_CUDA_GRANULE;
  arena.window_count = 2;
  EXPECT_THROW(grt::cuda::mappedRanges(arena, GRT_CUDA_GRANULE),
               std::invalid_argument);
}

} // namespace

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string option = "--backend=";
  if (argc != 2 || std::string(argv[1]).rfind(option, 0) != 0) {
    std::fprintf(stderr, "expected --backend=PATH\n");
    return 2;
  }
  path = argv[1] + option.size();
  return RUN_ALL_TESTS();
}
