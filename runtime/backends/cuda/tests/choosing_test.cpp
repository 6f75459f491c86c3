//===- choosing_test.cpp - The device that a process chooses --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The backend's own objects on the tests' CUDA with four devices. A process
// chooses once, so the tests are one after the other in one process.
//
//===----------------------------------------------------------------------===//

#include "watched.h"

#include <gtest/gtest.h>

#include <cstdlib>

using namespace grt::test;

namespace {

const grt_backend &backend() { return *watched().betweenThreads(); }

char message[512];

TEST(Choosing, CountsWithoutTakingADevice) {
  setenv("GRT_FAKE_DEVICES", "4", 1);
  int32_t count = 0;
  ASSERT_EQ(backend().count_devices(&count, message, sizeof(message)), 0)
      << message;
  EXPECT_EQ(count, 4);
  EXPECT_EQ(watched().calls("cudaSetDevice"), 0);
  setenv("GRT_FAKE_DEVICES", "0", 1);
  EXPECT_NE(backend().count_devices(&count, message, sizeof(message)), 0);
  EXPECT_STREQ(message, "no CUDA device: the driver lists none");
  setenv("GRT_FAKE_DEVICES", "4", 1);
}

TEST(Choosing, TakesOneForAllRanks) {
  EXPECT_NE(backend().use_device(4, message, sizeof(message)), 0);
  EXPECT_STREQ(message, "device 4 is not among the 4 that this "
                        "process may use");
  ASSERT_EQ(backend().use_device(2, message, sizeof(message)), 0) << message;
  char identity[96];
  ASSERT_EQ(backend().device_identity(identity, sizeof(identity), message,
                                      sizeof(message)),
            0)
      << message;
  EXPECT_STREQ(identity, "GPU-ab000000-0000-0000-0000-000000000002");
  EXPECT_EQ(watched().calls("cudaSetDevice"), 0);
  void *rank = backend().create_rank(0, 1);
  ASSERT_TRUE(rank);
  EXPECT_EQ(watched().calls("cudaSetDevice of 2"), 1);
  backend().destroy_rank(rank);
  EXPECT_EQ(backend().use_device(2, message, sizeof(message)), 0);
  EXPECT_NE(backend().use_device(1, message, sizeof(message)), 0);
  EXPECT_STREQ(message, "this process is on device 2 already, "
                        "expected device 1");
}

} // namespace
