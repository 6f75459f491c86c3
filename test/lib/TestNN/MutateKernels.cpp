//===- MutateKernels.cpp - Calls of kernels with a wrong integer ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Makes every integer of every call one larger and one smaller. The verifier
// (of the call, or of the layers that run it) must refuse it, unless the list
// of kernels says that no buffer tells this integer. Prints for each kernel how
// many changes were refused and which were accepted.
//
//===----------------------------------------------------------------------===//

#include "TestNN.h"

#include "galvatron/Dialect/GRT/IR/KernelCalls.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

#include <map>

using namespace mlir;

namespace {

struct Counts {
  int64_t calls = 0, refused = 0;
  llvm::MapVector<StringRef, int64_t> accepted; ///< by the integer's name
};

/// An integer of a call as the list has it.
::grt::KernelInt integerAt(mlir::grt::KernelOp call, size_t i) {
  ::grt::KernelInts ints =
      ::grt::kernelInts(static_cast<uint32_t>(call.getKernel()));
  if (i < ints.size())
    return ints[i];
  if ((i - ints.size()) % ::grt::segmentInts == ::grt::segmentFlag)
    return {"flag", 0, 1, "a flag"};
  return {"segment"};
}

struct MutateKernels : PassWrapper<MutateKernels, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(MutateKernels)
  StringRef getArgument() const override { return "test-mutate-kernels"; }
  StringRef getDescription() const override {
    return "change integers of kernel calls, which must then be refused";
  }

  /// Whether the layers that run the call's function accept it: they know where
  /// parameters begin and end.
  bool fitsLayers(mlir::grt::KernelOp call) {
    StringRef name = call->getParentOfType<mlir::grt::FuncOp>().getSymName();
    SymbolTableCollection tables;
    return !getOperation()
                .walk([&](mlir::grt::LayerOp layer) {
                  bool runs =
                      layer.getUpdate() == name || layer.getNorm() == name;
                  return runs && failed(layer.verifySymbolUses(tables))
                             ? WalkResult::interrupt()
                             : WalkResult::advance();
                })
                .wasInterrupted();
  }

  void mutate(mlir::grt::KernelOp call, Counts &counts) {
    ++counts.calls;
    SmallVector<int64_t> right(call.getInts());
    for (size_t i = 0; i < right.size(); ++i)
      for (int64_t change : {-1, 1}) {
        SmallVector<int64_t> wrong(right);
        wrong[i] += change;
        call.setInts(wrong);
        bool isRefused;
        {
          ScopedDiagnosticHandler silence(
              &getContext(), [](Diagnostic &) { return success(); });
          isRefused = failed(call.verify()) || !fitsLayers(call);
        }
        call.setInts(right);
        ::grt::KernelInt integer = integerAt(call, i);
        if (isRefused) {
          ++counts.refused;
          continue;
        }
        ++counts.accepted[integer.name];
        if (!integer.freedom) {
          call.emitError() << "expected '" << integer.name
                           << "' to follow from the buffers, but " << wrong[i]
                           << " is accepted too";
          signalPassFailure();
        }
      }
  }

  void runOnOperation() override {
    std::map<mlir::grt::Kernel, Counts> all;
    llvm::StringSet<> seen;
    getOperation().walk([&](mlir::grt::KernelOp call) {
      std::string text;
      llvm::raw_string_ostream os(text);
      os << mlir::grt::stringifyKernel(call.getKernel());
      for (int64_t value : call.getInts())
        os << ' ' << value;
      for (Value buffer : call.getBuffers())
        os << ' ' << buffer.getType();
      if (seen.insert(text).second)
        mutate(call, all[call.getKernel()]);
    });
    for (auto &[kernel, counts] : all) {
      llvm::outs() << mlir::grt::stringifyKernel(kernel) << ": " << counts.calls
                   << " calls, " << counts.refused << " changes refused";
      StringRef separator = ", accepted: ";
      for (auto &[name, count] : counts.accepted) {
        llvm::outs() << separator << count << " of " << name;
        separator = ", ";
      }
      llvm::outs() << '\n';
    }
  }
};

} // namespace

void test_nn::registerMutateKernels() { PassRegistration<MutateKernels>(); }
