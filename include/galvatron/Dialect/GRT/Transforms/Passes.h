//===- Passes.h - Passes on the grt dialect ---------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GRT_TRANSFORMS_PASSES_H
#define GALVATRON_DIALECT_GRT_TRANSFORMS_PASSES_H

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "mlir/Pass/Pass.h"

namespace mlir::grt {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "galvatron/Dialect/GRT/Transforms/Passes.h.inc"

} // namespace mlir::grt

#endif // GALVATRON_DIALECT_GRT_TRANSFORMS_PASSES_H
