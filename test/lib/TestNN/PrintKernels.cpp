//===- PrintKernels.cpp - What kernel calls touch -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Prints each call of a kernel with what the table of kernels says of its
// operands: name, access, and the elements that it needs of those it is given.
//
//===----------------------------------------------------------------------===//

#include "TestNN.h"

#include "galvatron/Dialect/GRT/IR/KernelCalls.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace {

StringRef accessName(::grt::Access access) {
  switch (access) {
  case ::grt::Access::Read:
    return "reads";
  case ::grt::Access::Write:
    return "writes";
  case ::grt::Access::ReadWrite:
    return "changes";
  case ::grt::Access::Accumulate:
    return "adds to";
  case ::grt::Access::Scratch:
    return "may use";
  }
  llvm_unreachable("an access");
}

void printCall(raw_ostream &os, mlir::grt::KernelOp call) {
  os << mlir::grt::stringifyKernel(call.getKernel()) << " [";
  llvm::interleaveComma(call.getInts(), os);
  os << ']';
  ::grt::KernelBuffers buffers = mlir::grt::getKernelBuffers(call);
  for (auto [i, value] : llvm::enumerate(call.getBuffers())) {
    auto type = cast<MemRefType>(value.getType());
    os << ", " << accessName(buffers[i].access) << ' ' << buffers[i].name << ' '
       << buffers[i].reach() << " of " << type.getNumElements();
    if (buffers[i].hasRows)
      os << " apart";
  }
}

struct PrintKernels : PassWrapper<PrintKernels, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PrintKernels)
  StringRef getArgument() const override { return "test-grt-kernels"; }
  StringRef getDescription() const override {
    return "print what calls of kernels touch, in place of the module";
  }
  void runOnOperation() override {
    llvm::StringSet<> seen;
    getOperation().walk([&](mlir::grt::KernelOp call) {
      std::string text;
      llvm::raw_string_ostream os(text);
      printCall(os, call);
      if (seen.insert(text).second)
        llvm::outs() << text << '\n';
    });
  }
};

} // namespace

void test_nn::registerPrintKernels() { PassRegistration<PrintKernels>(); }
