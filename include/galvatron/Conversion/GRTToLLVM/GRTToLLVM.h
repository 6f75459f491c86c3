//===- GRTToLLVM.h - From the grt dialect to LLVM ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_CONVERSION_GRTTOLLVM_GRTTOLLVM_H
#define GALVATRON_CONVERSION_GRTTOLLVM_GRTTOLLVM_H

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Pass/Pass.h"

namespace mlir {
#define GEN_PASS_DECL
#include "galvatron/Conversion/GRTToLLVM/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "galvatron/Conversion/GRTToLLVM/Passes.h.inc"
} // namespace mlir

namespace mlir::grt {

/// The program of `module` as a new module of the LLVM dialect; `module` stays
/// as it is. Functions are numbered in module order, roles by stage. Fails,
/// with a diagnostic, on transient buffers without an offset, on a role without
/// a schedule, and on operations that should have been converted before.
FailureOr<OwningOpRef<ModuleOp>> convertGRTToLLVM(ModuleOp module,
                                                  StringRef manifest);

} // namespace mlir::grt

#endif // GALVATRON_CONVERSION_GRTTOLLVM_GRTTOLLVM_H
