//===- kernel_cases_test.cpp - Bytes and operations of kernels ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "kernel_cases.h"

#include "../../common/call.h"
#include "grt/kernel_checks.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>
#include <map>
#include <set>
#include <stdexcept>

using namespace grt;
using namespace grt::test;

namespace {

KernelWork of(const std::vector<KernelCase> &all, const std::string &name) {
  for (const KernelCase &call : all)
    if (call.name == name)
      return workOf(call);
  throw std::invalid_argument(name);
}

TEST(KernelCases, EveryKernelHasAComplete) {
  std::map<int, int> found;
  for (const KernelCase &call : kernelCases(2048, 128)) {
    SCOPED_TRACE(call.name);
    const KernelForm &form = kernelForms[call.kernel];
    EXPECT_GE(call.buffers.size(), size_t(form.buffers));
    EXPECT_GE(call.ints.size(), size_t(form.ints));
    EXPECT_GE(call.reals.size(), size_t(form.reals));
    EXPECT_EQ(call.name.rfind(form.name, 0), 0u);
    EXPECT_GT(workOf(call).bytes, 0u);
    ++found[call.kernel];
  }
  for (int kernel = 0; kernel < GRT_KERNEL_COUNT; ++kernel)
    EXPECT_GT(found[kernel], 0) << kernelForms[kernel].name;
}

/// A call of every kernel is right, and wrong with an integer that is one
/// larger or smaller, unless no buffer tells it.
TEST(KernelCases, WrongIntegersAreRefused) {
  for (KernelCase call : kernelCases(2048, 128)) {
    SCOPED_TRACE(call.name);
    std::vector<grt_buffer> buffers;
    for (const auto &buffer : call.buffers)
      buffers.push_back({0, uint32_t(buffer.dtype), 0, buffer.bytes()});
    const grt_kernel_op op = {uint32_t(call.kernel),
                              uint32_t(buffers.size()),
                              uint32_t(call.ints.size()),
                              uint32_t(call.reals.size()),
                              buffers.data(),
                              call.ints.data(),
                              call.reals.data(),
                              nullptr};
    EXPECT_EQ(wrongWith(op, "test"), "");
    const KernelInts ints = kernelInts(op.kernel);
    std::map<std::string, int> accepted;
    int refused = 0;
    for (size_t i = 0; i < call.ints.size(); ++i)
      for (int64_t change : {-1, 1}) {
        call.ints[i] += change;
        const bool isRefused = !wrongWith(op, "test").empty();
        call.ints[i] -= change;
        refused += isRefused;
        // Which parameters segments are is the layer's to say.
        const std::string name = i < ints.size() ? ints[i].name : "segment";
        if (!isRefused) {
          ++accepted[name];
          EXPECT_TRUE(i >= ints.size() || ints[i].freedom)
              << name << " " << call.ints[i] + change;
        }
      }
    std::printf("%s: %d refused", call.name.c_str(), refused);
    for (const auto &[name, count] : accepted)
      std::printf(", %d of %s accepted", count, name.c_str());
    std::printf("\n");
  }
}

/// Counted by hand.
TEST(KernelCases, BytesOfEachBufferOnce) {
  constexpr uint64_t rows = 2048, width = 128, n = rows * width, words = 50304;
  auto all = kernelCases(rows, width);
  EXPECT_EQ(of(all, "add").bytes, 6 * n);
  EXPECT_EQ(of(all, "layer-norm-grad").bytes,
            6 * n + 8 * rows + 2 * width + 8 * width);
  // 4 gradient, 12 of state read and written, 2 the rounded parameter.
  EXPECT_EQ(of(all, "optimizer, adamw").bytes, 30 * n);
  // Not the whole table.
  EXPECT_EQ(of(all, "embedding").bytes, 4 * rows + 4 * n);
  EXPECT_EQ(of(all, "embedding-grad").bytes,
            4 * rows + 2 * n + 4 * words * width);
  // A third of what the packed buffer has.
  EXPECT_EQ(of(all, "copy").bytes, 4 * n);
  EXPECT_EQ(of(all, "attention").bytes, 8 * n + 4 * rows * (width / 64));
  EXPECT_EQ(of(all, "round").bytes, 6 * n);
  EXPECT_EQ(of(all, "softmax-stats").bytes, rows * (2 * words + 4 + 12));
  EXPECT_EQ(of(all, "cross-entropy").bytes, rows * (4 * words + 4 + 12) + 8);
  // The logits once, which the two above read twice.
  EXPECT_EQ(of(all, "softmax-cross-entropy").bytes,
            rows * (4 * words + 4 + 12) + 8);
  // An accumulated gradient is written.
  EXPECT_EQ(of(all, "gemm, gradient of weights").bytes,
            2 * n + 8 * n + 16 * width * width);
}

TEST(KernelCases, OperationsOfProducts) {
  constexpr uint64_t rows = 2048, width = 128, length = 1024, samples = 2;
  auto all = kernelCases(rows, width);
  for (const char *name : {"gemm, forward", "gemm, gradient of weights",
                           "gemm, gradient of the input", "gemm-gelu, forward",
                           "gemm-gelu-grad", "gemm-bias-grad"})
    EXPECT_EQ(of(all, name).operations, 2 * rows * width * 4 * width) << name;
  // Row r sees r + 1 keys; with a bias by distance all.
  constexpr uint64_t seen = samples * width * length * (length + 1) / 2;
  EXPECT_EQ(of(all, "attention").operations, 4 * seen);
  EXPECT_EQ(of(all, "attention-grad").operations, 10 * seen);
  EXPECT_EQ(of(all, "biased-attention").operations,
            4 * samples * width * length * length);
  EXPECT_EQ(of(all, "shaped-attention-grad").operations, 10 * seen);
  // One image of 64 windows: the tokens are fewer than its positions.
  EXPECT_EQ(of(all, "window-attention").operations, 4u * 64 * 49 * 49 * width);
  EXPECT_EQ(of(all, "layer-norm").operations, 0u);
}

TEST(KernelCases, AWindowOfAttention) {
  auto all = kernelCases(1024, 64);
  for (KernelCase call : all)
    if (call.name == "attention") {
      constexpr size_t window =
          offsetof(kernels::Attention::Ints, window) / sizeof(int64_t);
      call.ints[window] = 100;
      // 1 to 100 keys, then 100 each.
      EXPECT_EQ(workOf(call).operations, 4u * 64 * (100 * 101 / 2 + 924 * 100));
    }
}

TEST(KernelCases, ShapesThatAreNone) {
  EXPECT_THROW(kernelCases(1500, 128), std::invalid_argument);
  EXPECT_THROW(kernelCases(1024, 100), std::invalid_argument);
  EXPECT_THROW(kernelCases(0, 64), std::invalid_argument);
}

} // namespace
