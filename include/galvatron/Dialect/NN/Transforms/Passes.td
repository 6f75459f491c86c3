//===- Passes.td - Passes of the nn dialect ----------------*- tablegen -*-===//
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

def NNFuseProductsPass : Pass<"nn-fuse-products", "::mlir::func::FuncOp"> {
  let summary = "Fuses products of a body with what stands behind them";
  let description = [{
    linear + bias + GELU, the gradient of a linear's input + that of a GELU, the
    gradients of a linear's weight and of its bias. Runs behind `nn-fuse`, for
    backends whose products do such work on the side; `convert-nn-to-grt` does it
    for those. Changes no value but by rounding: what is between a product and
    its epilogue is not rounded to the element type.
  }];
  let dependentDialects = ["::mlir::nn::NNDialect"];
}

#endif // GALVATRON_DIALECT_NN_TRANSFORMS_PASSES_TD
