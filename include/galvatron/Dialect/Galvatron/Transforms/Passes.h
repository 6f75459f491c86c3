//===- Passes.h - Passes of the galvatron dialect ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PASSES_H
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::galvatron {

#define GEN_PASS_DECL
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PASSES_H
