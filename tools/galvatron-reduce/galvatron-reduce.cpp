//===- galvatron-reduce.cpp - Test case reducer ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/InitAllDialects.h"
#include "galvatron/InitAllPasses.h"
#include "galvatron/Pipelines/LibraryTool.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"
#include "llvm/Support/SourceMgr.h"

int main(int argc, char **argv) {
  galvatron::prepareLibraryTool("galvatron-reduce");
  mlir::DialectRegistry registry;
  galvatron::registerAllDialects(registry);
  galvatron::registerAllPasses();
  mlir::MLIRContext context(registry);
  // Without a handler MLIR drops warnings: one says why nothing was reduced.
  llvm::SourceMgr sources;
  mlir::SourceMgrDiagnosticHandler handler(sources, &context);
  return mlir::failed(mlir::mlirReduceMain(argc, argv, context));
}
