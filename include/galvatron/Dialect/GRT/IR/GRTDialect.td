//===- GRTDialect.td - The grt dialect ---------------------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GRT_IR_GRTDIALECT_TD
#define GALVATRON_DIALECT_GRT_IR_GRTDIALECT_TD

include "mlir/IR/DialectBase.td"

def GRT_Dialect : Dialect {
  let name = "grt";
  let cppNamespace = "::mlir::grt";
  let summary = "Programs of a role: layer functions on buffers, and schedules";
  let description = [{
    The lowest level of Galvatron's own IR, one step above the calls of the
    runtime's C ABI (`runtime/include/grt/abi.h`). It holds three kinds of
    things:

    - `grt.func`: one layer in one direction under one strategy, as a sequence
      of kernels and collectives on buffers. A buffer is a byte offset in a
      *region*; the executor binds regions to addresses, so equal layers share
      one function.
    - `grt.role`, `grt.layer`, `grt.exchange`: what the ranks of one pipeline
      stage hold and whom they exchange activations with.
    - `grt.schedule`: the order of tasks of a role, per part of a step.

    A module has the attribute `grt.model`, a `#grt.model` with what later phases
    need to know of the model.

    Numbers of regions, kernels, axes, task kinds and parts are those of the
    C ABI; the build fails if they differ.
  }];
  let dependentDialects = ["::mlir::galvatron::GalvatronDialect"];
  let hasOperationAttrVerify = 1;
  let useDefaultAttributePrinterParser = 1;
  let extraClassDeclaration = "void registerAttributes();";
}

#endif // GALVATRON_DIALECT_GRT_IR_GRTDIALECT_TD
