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

#include <optional>

int main(int argc, char **argv) {
  galvatron::prepareLibraryTool("galvatron-reduce", argc, argv);
  mlir::DialectRegistry registry;
  galvatron::registerAllDialects(registry);
  galvatron::registerAllPasses();
  mlir::MLIRContext context(registry);
  // This handler prints warnings, which MLIR drops otherwise: one says why
  // nothing was reduced. Errors are those of what was tried and is no module
  // any more, but for the first of a run that fails.
  llvm::SourceMgr sources;
  mlir::SourceMgrDiagnosticHandler printer(sources, &context);
  std::optional<mlir::Diagnostic> first;
  mlir::ScopedDiagnosticHandler handler(
      &context, [&](mlir::Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error)
          return mlir::failure();
        if (!first)
          first = std::move(diagnostic);
        return mlir::success();
      });
  bool failed = mlir::failed(mlir::mlirReduceMain(argc, argv, context));
  if (failed && first)
    printer.emitDiagnostic(first->getLocation(), first->str(),
                           first->getSeverity());
  return failed;
}
