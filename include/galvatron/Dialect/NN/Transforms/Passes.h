//===- Passes.h - Passes of the nn dialect ----------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_NN_TRANSFORMS_PASSES_H
#define GALVATRON_DIALECT_NN_TRANSFORMS_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::nn {

#define GEN_PASS_DECL
#include "galvatron/Dialect/NN/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "galvatron/Dialect/NN/Transforms/Passes.h.inc"

} // namespace mlir::nn

#endif // GALVATRON_DIALECT_NN_TRANSFORMS_PASSES_H
