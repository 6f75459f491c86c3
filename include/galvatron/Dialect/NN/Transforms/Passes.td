//===- Passes.td - Passes of the nn dialect -------------------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_NN_TRANSFORMS_PASSES_TD
#define GALVATRON_DIALECT_NN_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def NNFusePass : Pass<"nn-fuse", "::mlir::func::FuncOp"> {
  let summary = "Fuses neighbouring operations of a body";
  let description = [{
    linear + bias, bias + GELU, dropout + residual. Runs after collectives have
    been inserted, since an all-reduce between two operations keeps them apart.
    Changes no value.
  }];
  let dependentDialects = ["::mlir::nn::NNDialect"];
}

#endif // GALVATRON_DIALECT_NN_TRANSFORMS_PASSES_TD
