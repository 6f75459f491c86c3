//===- Passes.td - grt to llvm -----------------------------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_CONVERSION_GRTTOLLVM_PASSES_TD
#define GALVATRON_CONVERSION_GRTTOLLVM_PASSES_TD

include "mlir/Pass/PassBase.td"

def ConvertGRTToLLVM : Pass<"convert-grt-to-llvm", "::mlir::ModuleOp"> {
  let summary = "Turns layer functions and schedules into a program";
  let description = [{
    Every `grt.func` becomes a function of calls to the runtime's C ABI, each fed
    with a constant descriptor and each status checked; every `grt.schedule`
    becomes constant task tables. `grt_program` names them all. Nothing else is
    exported, and nothing but `grt_launch`, `grt_communicate`, `grt_begin` and
    `grt_end` is imported.

    The manifest is the text of the module attribute `grt.manifest`, if there is
    one; program emission writes it.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

#endif // GALVATRON_CONVERSION_GRTTOLLVM_PASSES_TD
