//===- galvatron-lsp-server.cpp - Language server -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/InitAllDialects.h"
#include "galvatron/Pipelines/LibraryTool.h"

#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

int main(int argc, char **argv) {
  galvatron::prepareLibraryTool("galvatron-lsp-server", argc, argv);
  mlir::DialectRegistry registry;
  galvatron::registerAllDialects(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
