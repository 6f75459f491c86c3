//===- Passes.td - nn to grt -------------------------------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_CONVERSION_NNTOGRT_PASSES_TD
#define GALVATRON_CONVERSION_NNTOGRT_PASSES_TD

include "mlir/Pass/PassBase.td"

def ConvertNNToGRT : Pass<"convert-nn-to-grt", "::mlir::ModuleOp"> {
  let summary = "Turns partitioned bodies into functions on buffers";
  let description = [{
    Every partitioned function becomes a `grt.func`; each layer gets its update
    and norm functions and, as `layout`, the facts that the schedule and the
    arena need.
  }];
  let dependentDialects = ["::mlir::grt::GRTDialect"];
}

#endif // GALVATRON_CONVERSION_NNTOGRT_PASSES_TD
