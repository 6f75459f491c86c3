//===- InitAllDialects.h - Registers the dialects ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_INITALLDIALECTS_H
#define GALVATRON_INITALLDIALECTS_H

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "mlir/Dialect/Func/Extensions/InlinerExtension.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/DialectRegistry.h"

namespace galvatron {

/// Every dialect that a module may hold between import and emission.
inline void registerAllDialects(mlir::DialectRegistry &registry) {
  registry.insert<mlir::func::FuncDialect, mlir::galvatron::GalvatronDialect,
                  mlir::grt::GRTDialect, mlir::LLVM::LLVMDialect,
                  mlir::nn::NNDialect>();
  mlir::func::registerInlinerExtension(registry);
}

} // namespace galvatron

#endif // GALVATRON_INITALLDIALECTS_H
