//===- Passes.h - Passes on whole programs ----------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TARGET_PASSES_H
#define GALVATRON_TARGET_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::galvatron {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "galvatron/Target/Passes.h.inc"

} // namespace mlir::galvatron

#endif // GALVATRON_TARGET_PASSES_H
