//===- galvatron-opt.cpp - The driver of passes ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/InitAllDialects.h"
#include "galvatron/InitAllPasses.h"
#include "galvatron/Pipelines/LibraryTool.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  galvatron::prepareLibraryTool("galvatron-opt", argc, argv);
  mlir::DialectRegistry registry;
  galvatron::registerAllDialects(registry);
  galvatron::registerAllPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(
      argc, argv, "Galvatron modular optimizer driver\n", registry));
}
