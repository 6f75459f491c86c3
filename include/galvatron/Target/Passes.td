//===- Passes.td - Passes on whole programs ----------------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TARGET_PASSES_TD
#define GALVATRON_TARGET_PASSES_TD

include "mlir/Pass/PassBase.td"

def GalvatronVerifyProgram
    : Pass<"galvatron-verify-program", "::mlir::ModuleOp"> {
  let summary = "Checks that the runtime would take the program";
  let description = [{
    Makes the program of a module behind the phase `allocate` and asks the
    runtime's own checks, which are part of the compiler: of the manifest (views
    and owners of parameters, ledgers, what lies where), of tables against it,
    of calls of kernels, schedules and functions. `galvatron-compile` does the
    same before it writes a program, so one that it wrote is loaded.
  }];
}

#endif // GALVATRON_TARGET_PASSES_TD
