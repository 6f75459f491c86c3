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

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "gtest/gtest.h"

#include <vector>

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
    // With and without the operand that the last integer asks for.
    for (int64_t last : {0, 1}) {
      llvm::SmallVector<int64_t> ints(info.ints.size(), last);
      grt_kernel_op op = {};
      op.kernel = number;
      op.int_count = uint32_t(ints.size());
      op.ints = ints.data();
      std::vector<::grt::recording::Access> accesses =
          ::grt::recording::accessesOf(op);
      llvm::SmallVector<unsigned> operands =
          info.operandsOf(ints, info.operands.size());
      ASSERT_EQ(accesses.size(), operands.size());
      for (auto [access, operand] : llvm::zip(accesses, operands))
        EXPECT_EQ(access, runtimeAccess(info.operands[operand].access))
            << info.operands[operand].name.str();
    }
  }
}

} // namespace
