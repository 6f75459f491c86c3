//===- KernelTableTest.cpp - Two tables of the kernels' accesses ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The compiler orders streams by its table, the recording backend checks the
// order by a table of its own: each says the same of every kernel.
//
//===----------------------------------------------------------------------===//

#include "accesses.h"
#include "galvatron/Dialect/GRT/IR/KernelInfo.h"

#include "gtest/gtest.h"

using namespace mlir::grt;

namespace {

::grt::recording::Access runtimeAccess(Access access) {
  switch (access) {
  case Access::Read:
    return ::grt::recording::Access::Read;
  case Access::Write:
    return ::grt::recording::Access::Write;
  case Access::ReadWrite:
    return ::grt::recording::Access::ReadWrite;
  case Access::Accumulate:
    return ::grt::recording::Access::Accumulate;
  case Access::Scratch:
    return ::grt::recording::Access::Scratch;
  }
  llvm_unreachable("all accesses are handled");
}

TEST(KernelTable, CompilerAndRecordingBackendAgree) {
  for (uint32_t number = 0; number < GRT_KERNEL_COUNT; ++number) {
    auto kernel = static_cast<Kernel>(number);
    SCOPED_TRACE(stringifyKernel(kernel).str());
    const KernelInfo &info = getKernelInfo(kernel);
    auto accesses = ::grt::recording::accessesOf(number).buffers;
    ASSERT_EQ(accesses.size(), info.operands.size());
    for (size_t i = 0; i < accesses.size(); ++i)
      EXPECT_EQ(accesses[i], runtimeAccess(info.operands[i].access))
          << info.operands[i].name.str();
  }
}

} // namespace
